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
 * Return a new cookie, made like those of get_cookie() in kernel/unwind/deferred.c.  The
 * upper half is even here and odd there, so that the two kinds never match.  A cookie is
 * not zero, because its lower half isn't.
 */
static u64 guest_callchain_cookie(void)
{
	return (u64)this_cpu_add_return(guest_callchain_count, 2) << 32 |
	       (smp_processor_id() + 1);
}

/**
 * perf_callchain_guest_request - request the callchain of the guest that a PMI hit
 * @data: the sample; its guest_ip is set
 * @event: the event that is sampled
 *
 * The chain has four words: a context marker, the guest's instruction pointer,
 * PERF_CONTEXT_USER_DEFERRED, and the cookie of the PERF_RECORD_CALLCHAIN_DEFERRED
 * that will bring the rest.  Readers join the two as they do for user mode.  The
 * entries of the record begin with a context marker of their own.
 *
 * The request needs no lock: only one PMI at a time can hit the guest, and the
 * vCPU's thread does not continue before the PMI is done.  All samples before that
 * share one record, and this chain.
 *
 * Context: as perf_callchain_guest().
 *
 * Return: the chain, which is part of the vCPU's request and valid until the vCPU's
 * thread continues; empty if the guest's stack must not be read, or if the guest's
 * IP looks like a context marker.
 */
struct perf_callchain_entry *perf_callchain_guest_request(struct perf_sample_data *data,
							  struct perf_event *event)
{
	struct perf_guest_callchain_request *request;
	unsigned int guest_state;

	request = static_call(__perf_guest_callchain_request)();

	/* An IP that the guest chooses must not pass for a context marker. */
	if (unlikely(!request || request->guest_ip >= PERF_CONTEXT_MAX))
		return &__empty_callchain;

	data->guest_ip = request->guest_ip;
	guest_state = data->guest_state;
	request->guest_state = guest_state;
	request->callchain.nr = ARRAY_SIZE(request->callchain_words);
	request->callchain.ip[0] = guest_state & PERF_GUEST_USER ?
				   PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL;
	request->callchain.ip[1] = request->guest_ip;
	request->callchain.ip[2] = PERF_CONTEXT_USER_DEFERRED;
	if (!request->max)
		request->callchain.ip[3] = guest_callchain_cookie();
	request->max = max_t(unsigned int, request->max, event->attr.sample_max_stack);
	if (unlikely(request->stack_size < event->attr.sample_stack_guest))
		request->stack_size = event->attr.sample_stack_guest;

	return &request->callchain;
}

/* The longest chain that fits into a record, whose size has 16 bits. */
#define MAX_DEFERRED	((U16_MAX - 256) / sizeof(u64))

/**
 * __perf_guest_callchain_serve - walk the guest's stack as PMIs have requested
 * @request: the request; empty again when this function returns
 *
 * One walk serves all events that sampled the guest at this exit.  Its record goes
 * to all events of this task and of this CPU that take such records.  The record is
 * empty if nothing but the IP is found, or if there is no memory for a chain that is
 * longer than usual: readers of the samples expect a record.
 *
 * unwind_deferred_request() can't do this: its task work runs after the exit was
 * handled, when the guest's registers and memory may have changed.
 *
 * Context: the vCPU's thread, right after the exit: before the hypervisor handles
 * the exit, and while it protects the guest's memory.  May sleep.
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
	/* Dump the stack first: a reader delivers the sample when its callchain has come. */
	if (request->stack_size)
		perf_guest_stack_serve(request->callchain.ip[3], misc, request->stack_size);

	if (max >= ARRAY_SIZE(usual))
		ips = kvmalloc_array(max + 1, sizeof(*ips), GFP_KERNEL);
	if (ips) {
		nr = static_call(__perf_guest_stack_walk)(ips, max, &nr_kernel);
		trace.entries = (unsigned long *)ips;
	}

	/* The sample has the first entry, the IP: a marker takes its place here. */
	if (nr > 1)
		trace.nr = guest_callchain_mark(ips, nr - 1, nr_kernel ? nr_kernel - 1 : 0);

	/*
	 * The record has the kernel's entries but the IP, plus their marker: nr_kernel
	 * words, or none if the IP is the kernel's only entry.
	 */
	perf_callchain_deferred_emit(request->callchain.ip[3], misc, &trace,
				     nr_kernel > 1 ? nr_kernel : 0);
	request->max = 0;
	request->stack_size = 0;
	if (ips != usual)
		kvfree(ips);
}
EXPORT_SYMBOL_FOR_KVM(__perf_guest_callchain_serve);
