// SPDX-License-Identifier: GPL-2.0
/*
 * Callchains of guests, in samples that a host takes of the machines it runs.
 */

#include <linux/perf_event.h>
#include <linux/uaccess.h>

#include <asm/tlb.h>

#include "internal.h"

/**
 * struct guest_callchain - a chain that is being recorded
 * @ctx:	where to
 * @attr:	what the event wants
 * @context:	the context marker that was stored last, zero for none
 * @nr_left:	how many more entries to take from the hypervisor
 */
struct guest_callchain {
	struct perf_callchain_entry_ctx ctx;
	const struct perf_event_attr	*attr;
	u64				context;
	unsigned int			nr_left;
};

static bool store_entry(void *cookie, u64 ip, bool user)
{
	struct guest_callchain *chain = cookie;
	u64 context = user ? PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL;

	/* Entries that aren't stored cost as much as those that are. */
	if (!chain->nr_left--)
		return false;

	/* Behind the kernel's part there may be user mode's, but not vice versa. */
	if (user && chain->attr->exclude_callchain_user)
		return false;
	if (!user && chain->attr->exclude_callchain_kernel)
		return true;

	/* The guest must not make perf take its address for a context marker. */
	if (ip >= PERF_CONTEXT_MAX)
		return false;

	if (chain->context != context) {
		chain->context = context;
		perf_callchain_store_context(&chain->ctx, context);
	}
	return !perf_callchain_store(&chain->ctx, ip);
}

/* Skid must not show the kernel to a user-only event, nor vice versa. */
static bool guest_callchain_allowed(const struct perf_event_attr *attr)
{
	return perf_guest_state() & PERF_GUEST_USER ? !attr->exclude_user : !attr->exclude_kernel;
}

/**
 * perf_callchain_guest - get the callchain of the guest that a PMI interrupted
 * @event: the event that is sampled; its exclude_callchain_* and
 *	   sample_max_stack (in entries, context markers aside) apply
 *
 * The chain is a context marker, the guest's instruction pointer, and the
 * return addresses that the hypervisor finds on the guest's stack.  Where it
 * finds how the guest's kernel was entered, user mode's part follows behind a
 * marker of its own.
 *
 * Context: NMI or IRQ, with perf_guest_state() non-zero.  Never faults in the
 * guest's memory.
 *
 * Return: the chain, in a per-CPU buffer that is good until the next sample in
 * the same context; NULL if @event wants none or the guest shows none.
 */
struct perf_callchain_entry *perf_callchain_guest(struct perf_event *event)
{
	struct guest_callchain chain = {
		.ctx.max_stack = event->attr.sample_max_stack,
		.attr = &event->attr,
		.nr_left = event->attr.sample_max_stack,
	};
	int rctx;

	/*
	 * The guest's memory is read through the VMM's mappings, which may be
	 * gone, or not be the ones that are loaded.
	 */
	if (!guest_callchain_allowed(&event->attr) || !nmi_uaccess_okay())
		return NULL;

	chain.ctx.entry = get_callchain_entry(&rctx);
	if (!chain.ctx.entry)
		return NULL;

	chain.ctx.entry->nr = 0;

	pagefault_disable();
	static_call_cond(__perf_guest_stack_walk)(store_entry, &chain);
	pagefault_enable();

	put_callchain_entry(rctx);

	return chain.ctx.nr ? chain.ctx.entry : NULL;
}
