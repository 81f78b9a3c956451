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
 */
struct guest_callchain {
	struct perf_callchain_entry_ctx ctx;
	const struct perf_event_attr	*attr;
	u64				context;
};

static unsigned int store_entries(void *cookie, const u64 *ips, unsigned int nr, bool user)
{
	u64 context = user ? PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL;
	struct guest_callchain *chain = cookie;
	struct perf_callchain_entry_ctx *ctx = &chain->ctx;
	const u64 *from;
	u64 *to, *end;

	/* Behind the kernel's part there may be user mode's, but not vice versa. */
	if (user && chain->attr->exclude_callchain_user)
		return 0;
	if (!user && chain->attr->exclude_callchain_kernel)
		return nr;

	/* The guest must not make perf take its address for a context marker. */
	if (ips[0] >= PERF_CONTEXT_MAX)
		return 0;

	if (chain->context != context) {
		chain->context = context;
		if (perf_callchain_store_context(ctx, context))
			return 0;
	}

	to = &ctx->entry->ip[ctx->entry->nr];
	end = to + min(nr, ctx->max_stack - ctx->nr);
	for (from = ips; to < end && *from < PERF_CONTEXT_MAX; from++)
		*to++ = *from;

	nr = from - ips;
	ctx->entry->nr += nr;
	ctx->nr += nr;
	return nr;
}

static bool guest_callchain_wanted(const struct perf_event_attr *attr, unsigned int guest_state)
{
	if (attr->exclude_callchain_kernel && attr->exclude_callchain_user)
		return false;

	/* Skid must not show the kernel to a user-only event, nor vice versa. */
	return guest_state & PERF_GUEST_USER ? !attr->exclude_user : !attr->exclude_kernel;
}

/**
 * perf_callchain_guest - get the callchain of the guest that a PMI interrupted
 * @event: the event that is sampled; its exclude_callchain_* and
 *	   sample_max_stack (in entries, context markers aside) apply
 * @guest_state: perf_guest_state(), not zero
 *
 * The chain is a context marker, the guest's instruction pointer, and the
 * return addresses that the hypervisor finds on the guest's stack.  Where it
 * finds how the guest's kernel was entered, user mode's part follows behind a
 * marker of its own.
 *
 * Context: NMI or IRQ that hit a guest.  Never faults in the guest's memory.
 *
 * Return: the chain, in a per-CPU buffer that is good until the next sample in
 * the same context; NULL if @event wants none or the guest shows none.
 */
struct perf_callchain_entry *perf_callchain_guest(struct perf_event *event,
						  unsigned int guest_state)
{
	struct guest_callchain chain = {
		.ctx.max_stack = event->attr.sample_max_stack,
		.attr = &event->attr,
	};
	int rctx;

	/*
	 * The guest's memory is read through the VMM's mappings, which may be
	 * gone, or not be the ones that are loaded.
	 */
	if (!guest_callchain_wanted(&event->attr, guest_state) || !nmi_uaccess_okay())
		return NULL;

	chain.ctx.entry = get_callchain_entry(&rctx);
	if (!chain.ctx.entry)
		return NULL;

	chain.ctx.entry->nr = 0;

	pagefault_disable();
	/* Entries that aren't stored cost as much as those that are. */
	static_call_cond(__perf_guest_stack_walk)(event->attr.sample_max_stack,
						  store_entries, &chain);
	pagefault_enable();

	put_callchain_entry(rctx);

	return chain.ctx.nr ? chain.ctx.entry : NULL;
}
