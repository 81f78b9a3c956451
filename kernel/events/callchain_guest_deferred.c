// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred callchains of guests: the PMI asks for one, and the vCPU's thread, which
 * can't let the guest go on before it has continued itself, walks the stack.
 */

#include <linux/kvm_types.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <linux/unwind_deferred.h>

#include "internal.h"

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
 * perf_callchain_guest_request - request the callchain of the guest that a PMI hit
 * @data: the sample; takes the guest's IP
 * @event: the event that is sampled
 *
 * The chain is a context marker, the guest's instruction pointer, and behind
 * PERF_CONTEXT_USER_DEFERRED the cookie of the PERF_RECORD_CALLCHAIN_DEFERRED that
 * will bring the rest.  Readers join the two as for user mode, and find another
 * context marker where the record begins.
 *
 * The request needs no lock: one PMI at a time can have hit the guest, and the
 * vCPU's thread continues when it is done.  All samples before that share one
 * record, and this chain.
 *
 * Context: the PMI, NMI or IRQ.
 *
 * Return: the chain, which is the vCPU's and good until its thread continues; empty
 * if the guest shows none.
 */
struct perf_callchain_entry *perf_callchain_guest_request(struct perf_sample_data *data,
							  struct perf_event *event)
{
	struct perf_guest_callchain_request *request;
	unsigned int guest_state;

	request = static_call(__perf_guest_callchain_request)();

	/* The guest must not make perf take its address for a context marker. */
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

/* The longest chain: a record's size has 16 bits. */
#define MAX_DEFERRED	((U16_MAX - 256) / sizeof(u64))

/**
 * __perf_guest_callchain_serve - walk the guest's stack as PMIs have requested
 * @request: the request; ready for the next exit after that
 *
 * One walk serves all events that sampled the guest before this exit, and its
 * record goes to all events of this task that take such records.  With nothing to
 * be found, or without memory for a chain that is longer than usual, the record is
 * empty: each sample's other half comes, unless the ring buffer has no room for it.
 *
 * Not unwind_deferred_request(): its task work runs after the exit was handled,
 * with other registers and memory than the sample has seen.
 *
 * Context: the vCPU's thread, right after the exit, as long as the hypervisor has
 * neither handled it nor dropped what protects the guest's memory.  May sleep.
 */
void __perf_guest_callchain_serve(struct perf_guest_callchain_request *request)
{
	unsigned int nr = 0, nr_kernel = 0, max = min(request->max, MAX_DEFERRED);
	/* One more, for the marker of user mode. */
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

	/* The sample has the first entry, the IP, which leaves room for a marker. */
	if (nr > 1)
		trace.nr = guest_callchain_mark(ips, nr - 1, nr_kernel ? nr_kernel - 1 : 0);

	/* That many entries, and their marker; of the IP alone, there are none. */
	perf_event_callchain_deferred(request->callchain.ip[3], misc, &trace,
				      nr_kernel > 1 ? nr_kernel : 0);
	request->max = 0;
	request->stack_size = 0;
	if (ips != usual)
		kvfree(ips);
}
EXPORT_SYMBOL_FOR_KVM(__perf_guest_callchain_serve);
