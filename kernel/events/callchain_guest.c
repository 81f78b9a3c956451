// SPDX-License-Identifier: GPL-2.0
/*
 * Callchains of guests, in samples that a host takes of the machines it runs.
 */

#include <linux/perf_event.h>
#include <linux/uaccess.h>

#include <asm/tlb.h>

#include "internal.h"

static bool store_entry(void *cookie, unsigned long addr)
{
	return !perf_callchain_store(cookie, addr);
}

static bool guest_callchain_wanted(const struct perf_event *event, bool user)
{
	const struct perf_event_attr *attr = &event->attr;

	if (user)
		return !attr->exclude_callchain_user && !attr->exclude_user;

	/* Skid must not show kernel addresses to a user-only event. */
	return !attr->exclude_callchain_kernel && !attr->exclude_kernel;
}

/**
 * perf_callchain_guest - get the callchain of the guest that a PMI interrupted
 * @event: the event that is sampled; its exclude_callchain_* and
 *	   sample_max_stack (in entries, context markers aside) apply
 *
 * The chain is a context marker, the guest's instruction pointer, and the
 * return addresses that the hypervisor finds on the guest's stack.
 *
 * Context: NMI or IRQ, with perf_guest_state() non-zero.  Never faults in the
 * guest's memory.
 *
 * Return: the chain, in a per-CPU buffer that is good until the next sample in
 * the same context; NULL if @event wants none or the guest shows none.
 */
struct perf_callchain_entry *perf_callchain_guest(struct perf_event *event)
{
	bool user = perf_guest_state() & PERF_GUEST_USER;
	struct perf_callchain_entry_ctx ctx = {
		.max_stack = event->attr.sample_max_stack,
	};
	int rctx;

	/*
	 * The guest's memory is read through the VMM's mappings, which may be
	 * gone, or not be the ones that are loaded.
	 */
	if (!guest_callchain_wanted(event, user) || !nmi_uaccess_okay())
		return NULL;

	ctx.entry = get_callchain_entry(&rctx);
	if (!ctx.entry)
		return NULL;

	ctx.entry->nr = 0;
	perf_callchain_store_context(&ctx, user ? PERF_CONTEXT_GUEST_USER :
						  PERF_CONTEXT_GUEST_KERNEL);

	pagefault_disable();
	static_call_cond(__perf_guest_stack_walk)(store_entry, &ctx);
	pagefault_enable();

	put_callchain_entry(rctx);

	return ctx.nr ? ctx.entry : NULL;
}
