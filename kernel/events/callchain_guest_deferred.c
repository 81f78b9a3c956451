// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred callchains of guests: the PMI requests a callchain, and after the PMI, the
 * vCPU's thread walks the guest's stack.  The vCPU does not run in between, as only its
 * thread can enter the guest again.
 */

#include <linux/kvm_types.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <linux/unwind_deferred.h>

#include "internal.h"

/* See guest_callchain_cookie(). */
static DEFINE_PER_CPU(u32, guest_callchain_count);

/*
 * Return a new cookie, made like those of get_cookie() in kernel/unwind/deferred.c.  Their
 * count is odd, and that of guests' cookies is even, so that the two kinds never match.  A
 * cookie is never zero, as its field cpu is at least one.
 */
static u64 guest_callchain_cookie(void)
{
	union unwind_task_id cookie;

	guard(preempt)();

	cookie.cpu = smp_processor_id() + 1;
	cookie.cnt = this_cpu_add_return(guest_callchain_count, 2);
	return cookie.id;
}

/**
 * perf_guest_callchain_request_init - prepare a vCPU's request for its first PMI
 * @request: the request, all zero
 *
 * Context: task.
 */
void perf_guest_callchain_request_init(struct perf_guest_callchain_request *request)
{
	request->callchain.nr = ARRAY_SIZE(request->callchain_words);
	request->callchain.ip[2] = PERF_CONTEXT_USER_DEFERRED;
	request->callchain.ip[3] = guest_callchain_cookie();
}
EXPORT_SYMBOL_FOR_KVM(perf_guest_callchain_request_init);

/* The longest chain in a record.  A record's size has 16 bits; 256 bytes are for other fields. */
#define MAX_DEFERRED	((U16_MAX - 256) / sizeof(u64))

/**
 * __perf_guest_callchain_serve - make the walk of the guest's stack that PMIs requested
 * @request: the request; empty again when this function returns
 *
 * One walk serves all events that sampled the guest at this exit.  Its record goes
 * to all events of this task and of this CPU that take such records.  Readers of the
 * samples expect a record: emit an empty one if at most the IP is found, or if there is
 * no memory for a long chain.
 *
 * unwind_deferred_request() can't do this: its task work runs after the exit was
 * handled, when the guest's registers and memory may have changed.
 *
 * Context: task, the vCPU's thread, after the exit and before the hypervisor handles
 * it.  IRQs and preemption are enabled.  May sleep.
 */
void __perf_guest_callchain_serve(struct perf_guest_callchain_request *request)
{
	unsigned int nr = 0, nr_kernel = 0, max = min(request->max, MAX_DEFERRED);
	/* The marker in front of user mode's entries takes one more word. */
	u64 usual[PERF_MAX_STACK_DEPTH + 1] __uninitialized, *ips = usual;
	struct unwind_stacktrace trace = {};
	u16 misc;

	misc = request->guest_state & PERF_GUEST_USER ? PERF_RECORD_MISC_GUEST_USER :
							PERF_RECORD_MISC_GUEST_KERNEL;
	/* Dump the stack first: readers deliver a sample as soon as its callchain comes. */
	if (request->stack_size)
		perf_guest_stack_serve(request->callchain.ip[3], misc, request->stack_size);

	if (max >= ARRAY_SIZE(usual))
		ips = kvmalloc_array(max + 1, sizeof(*ips), GFP_KERNEL);
	if (ips) {
		nr = static_call(__perf_guest_stack_walk)(ips, max, &nr_kernel);
		trace.entries = (unsigned long *)ips;
	}

	/* The sample has the first entry, the IP.  Here, a marker takes its place. */
	if (nr > 1)
		trace.nr = guest_callchain_mark(ips, nr - 1, nr_kernel ? nr_kernel - 1 : 0);

	/*
	 * The marker takes the place of the IP, so the kernel's part has nr_kernel words.
	 * If the IP is the kernel's only entry, there is no such part.
	 */
	perf_callchain_deferred_emit(request->callchain.ip[3], misc, &trace,
				     nr_kernel > 1 ? nr_kernel : 0);
	request->max = 0;
	request->stack_size = 0;
	/* The next request has another cookie. */
	request->callchain.ip[3] = guest_callchain_cookie();
	if (ips != usual)
		kvfree(ips);
}
EXPORT_SYMBOL_FOR_KVM(__perf_guest_callchain_serve);
