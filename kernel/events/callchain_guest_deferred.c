// SPDX-License-Identifier: GPL-2.0
/*
 * Callchains of guests whose walk is put off: the PMI only asks for it, and the
 * thread of the vCPU, which can't enter the guest before it has gone on, makes it.
 */

#include <linux/kvm_types.h>
#include <linux/perf_event.h>
#include <linux/slab.h>
#include <linux/unwind_deferred.h>

#include "internal.h"

/* On as long as events put walks off; changing it costs more than leaving it on. */
DEFINE_STATIC_KEY_DEFERRED_FALSE(perf_guest_callchain_deferrals, HZ);
EXPORT_SYMBOL_FOR_KVM(perf_guest_callchain_deferrals);

/* See guest_callchain_cookie(). */
static DEFINE_PER_CPU(u32, guest_callchain_count);

/*
 * As get_cookie() in kernel/unwind/deferred.c, from a space of its own: user mode's
 * are odd in the upper half.  Not zero, for the lower half isn't.
 */
static u64 guest_callchain_cookie(void)
{
	return (u64)this_cpu_add_return(guest_callchain_count, 2) << 32 |
	       (smp_processor_id() + 1);
}

/**
 * perf_callchain_guest_deferred - ask for the callchain of the guest that a PMI hit
 * @event: the event that is sampled
 *
 * The chain is a context marker, the guest's instruction pointer, and the cookie
 * of the PERF_RECORD_CALLCHAIN_DEFERRED that is to come with the rest, behind
 * PERF_CONTEXT_USER_DEFERRED: who reads it joins the two as for user mode, and
 * finds another context marker where the record begins.
 *
 * Nobody else writes the request meanwhile: only one PMI at a time can have hit
 * the guest, and its vCPU's thread goes on when all of them are done.  All samples
 * before that share one record, and this chain.
 *
 * Context: the PMI, NMI or IRQ.
 *
 * Return: see __perf_callchain_guest(), but for the buffer: that is the vCPU's, and
 * good until its thread goes on.  NULL if the PMI hit no guest.
 */
struct perf_callchain_entry *perf_callchain_guest_deferred(struct perf_event *event)
{
	const struct perf_event_attr *attr = &event->attr;
	struct perf_guest_callchain_request *request;

	/* No room for the markers. */
	if (!attr->sample_max_stack || sysctl_perf_event_max_contexts_per_stack < 3)
		return perf_callchain_guest(event);

	request = static_call(__perf_guest_callchain_request)();
	if (!request)
		return NULL;

	/* The guest must not make perf take its address for a context marker. */
	if (!request->guest_state || !guest_callchain_wanted(attr, request->guest_state) ||
	    request->guest_ip >= PERF_CONTEXT_MAX)
		return &__empty_callchain;

	/* A walk that is wanted already may be for a PMI that was long ago. */
	request->callchain.nr = ARRAY_SIZE(request->callchain_words);
	request->callchain.ip[0] = request->guest_state & PERF_GUEST_USER ?
				   PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL;
	request->callchain.ip[1] = request->guest_ip;
	request->callchain.ip[2] = PERF_CONTEXT_USER_DEFERRED;
	if (!request->max)
		request->callchain.ip[3] = guest_callchain_cookie();
	request->max = max_t(unsigned int, request->max, attr->sample_max_stack);

	return &request->callchain;
}

/* The longest chain whose record has a size that fits into 16 bits. */
#define MAX_DEFERRED	((U16_MAX - 256) / sizeof(u64))

/**
 * __perf_guest_callchain_deferred - make the walk that PMIs have put off
 * @request: what they have left; is ready for the next exit after that
 *
 * One walk serves all events that sampled the guest before this exit, and its
 * record goes to all that take callchains of this task.  With nothing to be found,
 * or without memory for a chain that is longer than usual, it is an empty record: a
 * sample's other half always comes, unless there is no room for it.
 *
 * Context: the vCPU's thread, right after the exit, as long as the hypervisor has
 * neither handled it nor dropped what protects the guest's memory.  May sleep.
 */
void __perf_guest_callchain_deferred(struct perf_guest_callchain_request *request)
{
	unsigned int nr = 0, nr_kernel = 0, max = min(request->max, MAX_DEFERRED);
	/* One more, for the marker of user mode. */
	u64 usual[PERF_MAX_STACK_DEPTH + 1] __uninitialized, *ips = usual;
	struct unwind_stacktrace trace = {};
	u16 misc;

	if (max >= ARRAY_SIZE(usual))
		ips = kmalloc_array(max + 1, sizeof(*ips), GFP_KERNEL);
	if (ips) {
		nr = static_call(__perf_guest_stack_walk)(ips, max, &nr_kernel);
		trace.entries = (unsigned long *)ips;
	}

	/* The sample has the first one, the IP, and so there is room for a marker. */
	if (nr > 1)
		trace.nr = guest_callchain_mark(ips, nr - 1, nr_kernel ? nr_kernel - 1 : 0);

	misc = request->guest_state & PERF_GUEST_USER ? PERF_RECORD_MISC_GUEST_USER :
							PERF_RECORD_MISC_GUEST_KERNEL;
	perf_event_callchain_deferred(request->callchain.ip[3], misc, &trace);
	request->max = 0;
	if (ips != usual)
		kfree(ips);
}
EXPORT_SYMBOL_FOR_KVM(__perf_guest_callchain_deferred);
