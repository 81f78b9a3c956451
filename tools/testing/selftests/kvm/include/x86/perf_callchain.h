/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sample a vCPU with perf, and read back the callchains.
 */
#ifndef SELFTEST_KVM_PERF_CALLCHAIN_H
#define SELFTEST_KVM_PERF_CALLCHAIN_H

#include <linux/perf_event.h>

#include "kvm_util.h"

/* The contexts in which a PMI can come. */
enum pmi_source {
	PMI_IRQ,	/* cpu-clock: a timer's interrupt */
	PMI_NMI,	/* a hardware counter, or the PMU that the environment names */
	PMI_ATTR,	/* the caller's choice: type and config of the attribute */

	/* Or'ed to one of these: the vCPU's thread walks the stack, not the PMI. */
	PMI_DEFERRED = 0x100,
	PMI_IRQ_DEFERRED = PMI_IRQ | PMI_DEFERRED,
	PMI_NMI_DEFERRED = PMI_NMI | PMI_DEFERRED,

	/* Or'ed as well: without guests' callchains, as perf samples by default. */
	PMI_STOCK = 0x200,
};

/* What follows the bytes of a guest's stack, see perf_event_open(2). */
struct callchain_stack_info {
	u64 abi;
	u64 ip;
	u64 sp;
	u64 fp;
	u64 flags;
	u64 root;
	struct {
		u64 addr;
		u64 size;
	} pieces[2];
};

/*
 * struct callchain_stack - PERF_SAMPLE_GUEST_STACK
 * @size:	bytes of @data
 * @data:	the guest's stack, from @info->sp up
 * @info:	what follows @data in the record; NULL if @size is zero
 */
struct callchain_stack {
	u64 size;
	const u8 *data;
	const struct callchain_stack_info *info;
};

/*
 * struct callchain_sample - one PERF_RECORD_SAMPLE
 * @cpumode:	PERF_RECORD_MISC_*, what the PMI interrupted
 * @size:	bytes in the ring
 * @ip:		PERF_SAMPLE_IP
 * @time:	PERF_SAMPLE_TIME, in nanoseconds
 * @nr:		entries in @ips, context markers included
 * @ips:	PERF_SAMPLE_CALLCHAIN, innermost first, joined with what was deferred
 * @cookie:	of what was deferred, zero if nothing was
 * @shares_walk: what was deferred is the same record as for the sample before
 * @alone:	what was deferred has been lost
 * @raw:	PERF_SAMPLE_RAW; not aligned
 * @stack:	PERF_SAMPLE_GUEST_STACK, in the sample or deferred
 * @user_stack:	how many bytes PERF_SAMPLE_STACK_USER has of a process' stack
 */
struct callchain_sample {
	u16 cpumode;
	u16 size;
	u64 ip;
	u64 time;
	u64 nr;
	const u64 *ips;
	u64 cookie;
	bool shares_walk;
	bool alone;
	const void *raw;
	struct callchain_stack stack;
	u64 user_stack;
};

/* kernel.perf_event_max_stack, and so the depth of an event that asks for none */
#define DEFAULT_MAX_STACK	127

/* The longest chain: a marker, and as many entries as any test builds. */
#define CALLCHAIN_MAX_ENTRIES	1024

/*
 * struct callchain_expectation - what each sample of a guest must be
 * @name:	the case, for messages
 * @cpumode:	PERF_RECORD_MISC_GUEST_*
 * @ip:		PERF_SAMPLE_IP
 * @nr:		entries in @ips
 * @ips:	the whole chain, context marker first
 */
struct callchain_expectation {
	const char *name;
	u16 cpumode;
	u64 ip;
	unsigned int nr;
	u64 ips[CALLCHAIN_MAX_ENTRIES];
};

/*
 * struct callchain_comparison - the samples of a guest, see callchain_compare()
 * @expected:	what each of them must be
 * @nr_guest:	how many walks of the guest's stack they took
 */
struct callchain_comparison {
	const struct callchain_expectation *expected;
	unsigned int nr_guest;
};

typedef void (*callchain_sample_fn)(const struct callchain_sample *sample, void *arg);

/*
 * struct callchain_event - an event that samples callchains
 * @fd:		of perf_event_open(2)
 * @deferred_fd: of the event that takes what is deferred, -1 if nothing is
 * @ring:	the ring buffer, of both
 * @map_size:	bytes of it, the first page included
 * @sample_type: what its samples consist of
 * @nr_user_regs: registers of PERF_SAMPLE_REGS_USER, if a sample has any
 * @nr_throttled: how often perf was seen to throttle it, see callchain_event_read()
 * @cookie:	of the last sample of the guest whose chain was deferred
 * @waits:	a sample was left in the ring, as what was deferred isn't there yet
 * @defers:	the chains of guests are deferred, all of them; checked at each sample
 * @may_lose:	samples may lack what was deferred, and the ring may be too small
 * @nr_lost:	how many records it was too small for
 * @nr_stacks:	how many PERF_RECORD_GUEST_STACK_DEFERRED were read
 * @max_stack:	bytes of the largest of these
 * @deferred_fn: called with what is deferred as well, or NULL: each callchain, and
 *		each stack, which has no entries
 */
struct callchain_event {
	int fd;
	int deferred_fd;
	struct perf_event_mmap_page *ring;
	size_t map_size;
	u64 sample_type;
	unsigned int nr_user_regs;
	unsigned int nr_throttled;
	u64 cookie;
	bool waits;
	bool defers;
	bool may_lose;
	u64 nr_lost;
	unsigned int nr_stacks;
	u64 max_stack;
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
void callchain_compare(const struct callchain_sample *s, void *arg);
void vcpu_run_until_sampled(struct kvm_vcpu *vcpu, struct callchain_event *event,
			    unsigned int nr_samples);
u64 vcpu_get_callchain_ends(struct kvm_vcpu *vcpu);
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
void vcpu_run_sampled_to_exit(struct kvm_vcpu *vcpu, enum pmi_source source,
			      const struct perf_event_attr *attr,
			      callchain_sample_fn fn, void *arg);
bool callchain_sample_compare(const struct callchain_sample *s,
			      const struct callchain_expectation *e);
unsigned int vcpu_run_and_compare(struct kvm_vcpu *vcpu, enum pmi_source source,
				  const struct perf_event_attr *attr,
				  unsigned int nr_samples,
				  const struct callchain_expectation *e);
u64 vcpu_get_callchain_end_stat(struct kvm_vcpu *vcpu, const char *end);

static inline bool callchain_sample_is_guest(const struct callchain_sample *sample)
{
	return sample->cpumode == PERF_RECORD_MISC_GUEST_KERNEL ||
	       sample->cpumode == PERF_RECORD_MISC_GUEST_USER;
}

int pmu_type(const char *name);
bool has_userfaults(void);
int read_number(const char *path);
bool write_number(const char *path, int value);
bool host_override(const char *path, int value);
void host_restore(void);

#endif /* SELFTEST_KVM_PERF_CALLCHAIN_H */
