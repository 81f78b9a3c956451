// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests that are as deep as perf allows, and deeper.
 */
#include "callchain_harness.h"

#define NR_SAMPLES		25

#define MAX_STACK_SYSCTL	"/proc/sys/kernel/perf_event_max_stack"

/* More entries than the longest stack that can be built has. */
#define RAISED_MAX_STACK	1000

static void is_refused(enum pmi_source source, u16 max_stack)
{
	const struct perf_event_attr attr = { .sample_max_stack = max_stack };
	struct callchain_event event;

	TEST_ASSERT(callchain_event_open(&event, source, &attr, 0, -1) && errno == EOVERFLOW,
		    "perf takes a sample_max_stack of %u, kernel.perf_event_max_stack is %d",
		    max_stack, read_number(MAX_STACK_SYSCTL));
}

/* Build the longest stack; its chain must have the first @nr_frames return addresses. */
static void check_depth(enum pmi_source source, u16 max_stack, unsigned int nr_frames)
{
	const struct guest_stack_layout layout = { GUEST_STACK_MAX_FRAMES, 64, 0x100 };
	const struct perf_event_attr attr = { .sample_max_stack = max_stack };
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	char name[64];

	snprintf(name, sizeof(name), "sample_max_stack %u", max_stack);
	vm_create_sampled(1, guest_loop, &vcpu);
	guest_stack_build_and_use(vcpu, &stack, &layout, false);
	expect_guest_stack(&e, name, false, &stack, 1 + nr_frames);
	vcpu_run_and_compare(vcpu, source, &attr, NR_SAMPLES, &e);
	kvm_vm_free(vcpu->vm);
}

PMI_FIXTURE(depth)

/* The limit includes the instruction pointer, but not the context marker. */
CALLCHAIN_TEST(depth, as_it_is)
{
	int max = read_number(MAX_STACK_SYSCTL);

	if (max < 1 || max > GUEST_STACK_MAX_FRAMES)
		SKIP(return, "kernel.perf_event_max_stack is %d", max);

	check_depth(variant->source, 0, max - 1);
	check_depth(variant->source, 1, 0);
	check_depth(variant->source, max, max - 1);
	is_refused(variant->source, max + 1);
	is_refused(variant->source, 65535);
}

CALLCHAIN_TEST(depth, raised)
{
	SKIP_UNLESS_OVERRIDDEN(MAX_STACK_SYSCTL, RAISED_MAX_STACK);

	check_depth(variant->source, 0, GUEST_STACK_MAX_FRAMES);
	check_depth(variant->source, RAISED_MAX_STACK, GUEST_STACK_MAX_FRAMES);
	check_depth(variant->source, GUEST_STACK_MAX_FRAMES, GUEST_STACK_MAX_FRAMES - 1);
	is_refused(variant->source, RAISED_MAX_STACK + 1);
	is_refused(variant->source, 65535);
}

/*
 * A limit of zero leaves no room even for the IP.  An event that asks for more than the limit is
 * refused anyway.
 */
CALLCHAIN_TEST(depth, zero)
{
	const struct perf_event_attr attr = {};
	struct callchain_event event;

	SKIP_UNLESS_OVERRIDDEN(MAX_STACK_SYSCTL, 0);
	TEST_ASSERT(callchain_event_open(&event, variant->source, &attr, 0, -1) && errno == EINVAL,
		    "perf takes callchains of guests without any entry");
	is_refused(variant->source, 1);
}

TEST_HARNESS_MAIN
