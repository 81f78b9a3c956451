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
	PMI_NMI,	/* a hardware counter, or the test_pmi module */
};

/**
 * struct callchain_sample - one PERF_RECORD_SAMPLE
 * @cpumode:	PERF_RECORD_MISC_*, what the PMI interrupted
 * @ip:		PERF_SAMPLE_IP
 * @nr:		entries in @ips, context markers included
 * @ips:	PERF_SAMPLE_CALLCHAIN, innermost first
 */
struct callchain_sample {
	u16 cpumode;
	u64 ip;
	u64 nr;
	const u64 *ips;
};

typedef void (*callchain_sample_fn)(const struct callchain_sample *sample, void *arg);

bool pmi_source_available(enum pmi_source source, const char **why_not);
void vcpu_run_sampled(struct kvm_vcpu *vcpu, enum pmi_source source,
		      const struct perf_event_attr *attr, unsigned int nr_samples,
		      callchain_sample_fn fn, void *arg);

static inline bool callchain_sample_is_guest(const struct callchain_sample *sample)
{
	return sample->cpumode == PERF_RECORD_MISC_GUEST_KERNEL ||
	       sample->cpumode == PERF_RECORD_MISC_GUEST_USER;
}

#endif /* SELFTEST_KVM_PERF_CALLCHAIN_H */
