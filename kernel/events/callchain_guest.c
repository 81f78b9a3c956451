// SPDX-License-Identifier: GPL-2.0
/*
 * Callchains of guests, in samples that a host takes of the machines it runs.
 */

#include <linux/perf_event.h>
#include <linux/uaccess.h>

#include <asm/tlb.h>

#include "internal.h"

/**
 * __perf_callchain_guest - get the callchain of the guest that a PMI interrupted
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
 * the same context; it is empty if @event wants none or the guest shows none.
 */
struct perf_callchain_entry *__perf_callchain_guest(struct perf_event *event,
						    unsigned int guest_state)
{
	const struct perf_event_attr *attr = &event->attr;
	unsigned int nr, nr_kernel = 0, max_contexts;
	struct perf_callchain_entry *entry;
	u64 *ips;
	int rctx;

	/*
	 * The guest's memory is read through the VMM's mappings, which may be
	 * gone, or not be the ones that are loaded.
	 */
	max_contexts = READ_ONCE(sysctl_perf_event_max_contexts_per_stack);
	if (!max_contexts || !guest_callchain_wanted(attr, guest_state) || !nmi_uaccess_okay())
		return &__empty_callchain;

	entry = get_callchain_entry(&rctx);
	if (!entry)
		return &__empty_callchain;

	/* A marker comes first; the sysctls don't change while there are buffers. */
	ips = &entry->ip[1];
	pagefault_disable();
	nr = static_call(__perf_guest_stack_walk)(ips, attr->sample_max_stack, &nr_kernel);
	pagefault_enable();

	/* What is left out costs as much as what isn't. */
	if (attr->exclude_callchain_kernel) {
		nr -= nr_kernel;
		memmove(ips, &ips[nr_kernel], nr * sizeof(*ips));
		nr_kernel = 0;
	} else if (attr->exclude_callchain_user || (nr_kernel && max_contexts == 1)) {
		nr = nr_kernel;
	}

	entry->nr = guest_callchain_mark(entry->ip, nr, nr_kernel);
	put_callchain_entry(rctx);

	return entry;
}
