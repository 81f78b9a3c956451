/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The data that the PMUs of the test_pmi module put into PERF_SAMPLE_RAW, see test_pmi.c.
 */
#ifndef SELFTEST_KVM_TEST_PMI_H
#define SELFTEST_KVM_TEST_PMI_H

#include <linux/types.h>

/**
 * struct test_pmi_raw - when a PMI's handler ran
 * @nr:		number of the PMI, on its CPU; a PMI counts even if perf drops its sample
 * @entry:	time when its handler began: the TSC, or CNTVCT_EL0
 * @last_exit:	time when the handler of PMI @nr - 1 ended; a handler can't put the time of
 *		its own end into the sample that it takes
 */
struct test_pmi_raw {
	__u64 nr;
	__u64 entry;
	__u64 last_exit;
};

#endif /* SELFTEST_KVM_TEST_PMI_H */
