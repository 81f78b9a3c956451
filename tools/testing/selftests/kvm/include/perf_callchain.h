/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sample a vCPU with perf, and read back the callchains.
 */
#ifndef SELFTEST_KVM_PERF_CALLCHAIN_H
#define SELFTEST_KVM_PERF_CALLCHAIN_H

#include <linux/perf_event.h>

#include "kvm_util.h"

/* The source of PMIs, which decides in which context they come. */
enum pmi_source {
	PMI_IRQ,	/* cpu-clock: a timer's interrupt */
	PMI_NMI,	/* a hardware counter, or the PMU that KVM_SELFTEST_NMI_PMU names; */
			/* on arm64, its interrupts may be IRQs */
	PMI_ATTR,	/* the event that the caller's attribute has in type and config */

	/* Flag: don't ask for guests' callchains; that is perf's default. */
	PMI_STOCK = 0x200,
};

/*
 * struct callchain_sample - one PERF_RECORD_SAMPLE
 * @cpumode:	PERF_RECORD_MISC_*, what the PMI interrupted
 * @size:	size of the record in the ring buffer, in bytes
 * @ip:		PERF_SAMPLE_IP
 * @nr:		entries in @ips, context markers included
 * @ips:	PERF_SAMPLE_CALLCHAIN, innermost first, joined with the deferred chain
 * @cookie:	the cookie of its deferred records; zero if nothing was deferred
 * @shares_walk: it has the same deferred records as the previous sample of the guest
 * @alone:	the deferred callchain is missing, nothing was joined
 * @hit_kvm:	it counts as the guest's, but its PMI hit KVM: it has no chain
 * @raw:	PERF_SAMPLE_RAW; not aligned
 * @read:	what PERF_RECORD_GUEST_READ has, from abi on; NULL if there is no such record
 * @read_size:	how many bytes that is
 */
struct callchain_sample {
	u16 cpumode;
	u16 size;
	u64 ip;
	u64 nr;
	const u64 *ips;
	u64 cookie;
	bool shares_walk;
	bool alone;
	bool hit_kvm;
	const void *raw;
	const u64 *read;
	size_t read_size;
};

/* The default of kernel.perf_event_max_stack, and so of sample_max_stack. */
#define DEFAULT_MAX_STACK	127

/* The period of events whose attr.sample_period is zero, in nanoseconds. */
#define DEFAULT_SAMPLE_PERIOD_NS	200000

/* Room for the longest chain that a test builds, context markers included. */
#define CALLCHAIN_MAX_ENTRIES	1024

/*
 * struct callchain_expectation - what each sample of a guest must have
 * @name:	the case, for messages
 * @cpumode:	PERF_RECORD_MISC_GUEST_*
 * @ip:		PERF_SAMPLE_IP
 * @nr:		entries in @ips
 * @ips:	the whole chain, context markers included
 */
struct callchain_expectation {
	const char *name;
	u16 cpumode;
	u64 ip;
	unsigned int nr;
	u64 ips[CALLCHAIN_MAX_ENTRIES];
};

/*
 * struct callchain_comparison - the argument of callchain_compare()
 * @expected:	what each sample of the guest must have
 * @nr_guest:	how many samples hit the guest; those that share a walk count as one
 */
struct callchain_comparison {
	const struct callchain_expectation *expected;
	unsigned int nr_guest;
};

typedef void (*callchain_sample_fn)(const struct callchain_sample *sample, void *arg);

/*
 * struct callchain_event - an event that samples callchains
 * @fd:		its file descriptor
 * @ring:	its ring buffer
 * @map_size:	size of @ring in bytes, the first page included
 * @sample_type: what its samples consist of
 * @nr_throttled: how often perf was seen to throttle it, see callchain_event_read()
 * @cookie:	the cookie of the last sample of the guest that was joined
 * @waits:	a sample was left in the ring, because a deferred record isn't there yet
 * @defers:	it asks for guests' callchains: only then may they be deferred
 * @exclude_host: its PMIs don't hit the host
 * @may_lose:	samples may lack deferred records, and the ring may be too small
 * @nr_lost:	how many records the ring was too small for
 * @deferred_fn: also called with each deferred callchain; may be NULL
 */
struct callchain_event {
	int fd;
	struct perf_event_mmap_page *ring;
	size_t map_size;
	u64 sample_type;
	unsigned int nr_throttled;
	u64 cookie;
	bool waits;
	bool defers;
	bool exclude_host;
	bool may_lose;
	u64 nr_lost;
	callchain_sample_fn deferred_fn;
};

int perf_event_open(struct perf_event_attr *attr, pid_t pid, int cpu);
bool pmi_source_available(enum pmi_source source, const char **why_not);
bool has_hardware_cycles(void);
int callchain_event_open_ring(struct callchain_event *event, enum pmi_source source,
			      const struct perf_event_attr *attr, pid_t pid, int cpu,
			      unsigned int nr_pages);
int callchain_event_open(struct callchain_event *event, enum pmi_source source,
			 const struct perf_event_attr *attr, pid_t pid, int cpu);
void callchain_event_start(struct callchain_event *event, enum pmi_source source,
			   const struct perf_event_attr *attr, pid_t pid, int cpu);
void callchain_event_enable(struct callchain_event *event);
void callchain_event_disable(struct callchain_event *event);
void callchain_event_close(struct callchain_event *event);
unsigned int callchain_event_read(struct callchain_event *event,
				  callchain_sample_fn fn, void *arg);
u64 callchain_event_head(const struct callchain_event *event);
unsigned int callchain_event_count_walks(const struct callchain_event *event, u64 since);
void callchain_compare(const struct callchain_sample *s, void *arg);
void vcpu_run_until_sampled(struct kvm_vcpu *vcpu, struct callchain_event *event,
			    bool enable);
void vcpu_run_sampled(struct kvm_vcpu *vcpu, enum pmi_source source,
		      const struct perf_event_attr *attr, unsigned int nr_samples,
		      callchain_sample_fn fn, void *arg);
void vcpu_run_sampled_bpf(struct kvm_vcpu *vcpu, enum pmi_source source,
			  const struct perf_event_attr *attr, int prog_fd,
			  unsigned int nr_samples, callchain_sample_fn fn, void *arg);
void vcpu_run_until_guest_sampled(struct kvm_vcpu *vcpu, enum pmi_source source,
				  const struct perf_event_attr *attr, unsigned int nr_samples,
				  callchain_sample_fn fn, void *arg,
				  const unsigned int *nr_guest);
void callchain_event_set_reads(struct callchain_event *event,
			       const struct perf_guest_reads *reads);
void vcpu_run_until_guest_read(struct kvm_vcpu *vcpu, enum pmi_source source,
			       const struct perf_guest_reads *reads, unsigned int nr_samples,
			       callchain_sample_fn fn, void *arg, const unsigned int *nr_guest);
void vcpu_run_sampled_to_exit(struct kvm_vcpu *vcpu, enum pmi_source source,
			      const struct perf_event_attr *attr,
			      callchain_sample_fn fn, void *arg);
bool callchain_sample_compare(const struct callchain_sample *s,
			      const struct callchain_expectation *e);
unsigned int vcpu_run_and_compare(struct kvm_vcpu *vcpu, enum pmi_source source,
				  const struct perf_event_attr *attr,
				  unsigned int nr_samples,
				  const struct callchain_expectation *e);

static inline bool callchain_sample_is_guest(const struct callchain_sample *sample)
{
	return sample->cpumode == PERF_RECORD_MISC_GUEST_KERNEL ||
	       sample->cpumode == PERF_RECORD_MISC_GUEST_USER;
}

int pmu_type(const char *name);
bool has_userfaults(void);
int read_number(const char *path);
int tracepoint_id(const char *name);
bool write_number(const char *path, int value);
bool host_override(const char *path, int value);
void host_restore(void);

#endif /* SELFTEST_KVM_PERF_CALLCHAIN_H */
