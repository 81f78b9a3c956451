// SPDX-License-Identifier: GPL-2.0-only
/*
 * Samples of tracepoints that hit while KVM runs a guest, but in no PMI's context: right after the
 * exit, and in softirqs.  On x86, an event right after the exit has the guest's chain, on arm64 it
 * has none.  A softirq's sample is the host's.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_SAMPLES	25
#define NR_FRAMES	4

FIXTURE(tracepoint)
{
	struct kvm_vcpu *vcpu;
	struct guest_stack stack;
	struct kvm_vm *vm;
};

FIXTURE_SETUP(tracepoint)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100 };

	SKIP_UNLESS_PMI(PMI_IRQ);
	if (tracepoint_id("irq/softirq_entry") < 0)
		SKIP(return, "This user finds no tracepoints");

	self->vm = vm_create_sampled(1, guest_loop, &self->vcpu);
	guest_stack_build_and_use(self->vcpu, &self->stack, &layout, false);
}

FIXTURE_TEARDOWN(tracepoint)
{
	kvm_vm_free(self->vm);
}

/*
 * A sample of the guest has no return addresses: on x86 because its stack is not in memory, on
 * arm64 because the event may not walk.  On arm64, a deferred event's chain is even empty.
 */
static void count_guest_ip(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr = arg;

	if (!callchain_sample_is_guest(s))
		return;

	TEST_ASSERT((PMIS_HIT_KVM && !s->nr) ||
		    (s->nr == 2 && s->ips[0] == (u64)PERF_CONTEXT_GUEST_KERNEL &&
		     s->ips[1] == (u64)guest_loop),
		    "A sample has %lu entries, not a marker and the guest's IP", s->nr);
	++*nr;
}

/* Run the vCPU until @count has counted NR_SAMPLES. */
static void sample_tracepoint(struct kvm_vcpu *vcpu, const struct perf_event_attr *attr,
			      callchain_sample_fn count)
{
	struct callchain_event event;
	unsigned int nr = 0;

	callchain_event_start(&event, PMI_ATTR, attr, 0, -1);
	while (nr < NR_SAMPLES) {
		vcpu_run_until_sampled(vcpu, &event, false);
		callchain_event_read(&event, count, &nr);
	}
	callchain_event_close(&event);
}

/*
 * When KVM enables IRQs to handle the IRQ that has ended guest mode, the tracepoint hits in task
 * context.  Its sample is the guest's, but a walk must not sleep there.  Have a walk look for a
 * stack that is not in memory.
 */
CALLCHAIN_TEST(tracepoint, irq_enable)
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.config = tracepoint_id("preemptirq/irq_enable"),
		.sample_period = 20,
		.wakeup_events = NR_SAMPLES,
	};

	if ((int)attr.config < 0)
		SKIP(return, "There is no preemptirq:irq_enable, CONFIG_PREEMPTIRQ_TRACEPOINTS");

	TEST_ASSERT(!madvise(addr_gva2hva(self->vm, self->stack.gva),
			     self->stack.nr_pages * PAGE_SIZE, MADV_DONTNEED), "MADV_DONTNEED");
	sample_tracepoint(self->vcpu, &attr, count_guest_ip);
}

static void count_softirq(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr = arg;

	TEST_ASSERT(s->cpumode == PERF_RECORD_MISC_KERNEL && s->ip != (u64)guest_loop &&
		    s->nr && s->ips[0] == (u64)PERF_CONTEXT_KERNEL,
		    "A softirq's sample has cpumode %u, IP 0x%lx, %lu entries, from 0x%lx",
		    s->cpumode, s->ip, s->nr, s->nr ? s->ips[0] : 0);
	++*nr;
}

/* Softirqs that follow the IRQ which has ended guest mode are the host's. */
CALLCHAIN_TEST(tracepoint, softirq)
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.config = tracepoint_id("irq/softirq_entry"),
		.sample_period = 1,
		.wakeup_events = NR_SAMPLES,
	};

	sample_tracepoint(self->vcpu, &attr, count_softirq);
}

TEST_HARNESS_MAIN
