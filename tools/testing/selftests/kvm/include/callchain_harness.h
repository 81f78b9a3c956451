/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Helpers that the callchain tests share: reasons to skip a test, and fixtures with a variant for
 * each way to sample.
 */
#ifndef SELFTEST_KVM_CALLCHAIN_HARNESS_H
#define SELFTEST_KVM_CALLCHAIN_HARNESS_H

#include "guest_stack.h"
#include "kvm_test_harness.h"
#include "kvm_util.h"
#include "perf_callchain.h"
#include "processor.h"
#include "test_util.h"

/* Timeout of one test, in seconds.  The whole program has 120, see the file settings. */
#define CALLCHAIN_TIMEOUT	100

#define CALLCHAIN_TEST(_fixture, _name)	\
	TEST_F_TIMEOUT(_fixture, _name, CALLCHAIN_TIMEOUT)

#define SKIP_UNLESS_PMI(_source)					\
do {									\
	const char *why_not;						\
									\
	if (!guests_available(&why_not) ||				\
	    !pmi_source_available(_source, &why_not))			\
		SKIP(return, "%s", why_not);				\
} while (0)

#define SKIP_UNLESS_LEVELS(_levels)					\
do {									\
	if (!guest_has_levels(_levels))					\
		SKIP(return, "The host has no %d-level paging", _levels); \
} while (0)

#define SKIP_UNLESS_OVERRIDDEN(_path, _value)				\
do {									\
	if (!host_override(_path, _value))				\
		SKIP(return, "Can't write %d to %s: %s", _value, _path,	\
		     strerror(errno));					\
} while (0)

#define SKIP_UNLESS_USERFAULTS()					\
do {									\
	if (!has_userfaults())						\
		SKIP(return, "This user may not handle userfaults of the kernel"); \
} while (0)

/*
 * Add one variant to a fixture for each source of PMIs.  Further arguments initialize other
 * members.
 */
#define PMI_VARIANTS(_fixture, _suffix, ...)				\
FIXTURE_VARIANT_ADD(_fixture, irq##_suffix)				\
	{ .source = PMI_IRQ, ##__VA_ARGS__ };				\
FIXTURE_VARIANT_ADD(_fixture, nmi##_suffix)				\
	{ .source = PMI_NMI, ##__VA_ARGS__ }

/* A fixture whose variants differ only in the way to sample. */
#define PMI_FIXTURE(_fixture)						\
FIXTURE(_fixture) {};							\
FIXTURE_VARIANT(_fixture) { enum pmi_source source; };			\
PMI_VARIANTS(_fixture,);						\
FIXTURE_SETUP(_fixture) { SKIP_UNLESS_PMI(variant->source); }		\
FIXTURE_TEARDOWN(_fixture) { host_restore(); }

/* As PMI_FIXTURE(), with 4-level and 5-level paging for each way to sample. */
#define PMI_LEVELS_FIXTURE(_fixture)					\
FIXTURE(_fixture) {};							\
FIXTURE_VARIANT(_fixture) { enum pmi_source source; int levels; };	\
PMI_VARIANTS(_fixture, _4_level, .levels = 4);				\
PMI_VARIANTS(_fixture, _5_level, .levels = 5);				\
FIXTURE_SETUP(_fixture)							\
{									\
	SKIP_UNLESS_PMI(variant->source);				\
	SKIP_UNLESS_LEVELS(variant->levels);				\
}									\
FIXTURE_TEARDOWN(_fixture) { host_restore(); }

#define for_each_case(_c, _cases) \
	for (_c = _cases; _c < _cases + ARRAY_SIZE(_cases); _c++)

#endif /* SELFTEST_KVM_CALLCHAIN_HARNESS_H */
