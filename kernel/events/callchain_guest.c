// SPDX-License-Identifier: GPL-2.0
/*
 * Callchains of guests, in samples that a host takes of the machines it runs.
 */

#include <linux/filter.h>
#include <linux/kvm_types.h>
#include <linux/panic.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/sysctl.h>

#include <asm/tlb.h>

#include "internal.h"

int sysctl_perf_event_guest_callchain __read_mostly = PERF_GUEST_CALLCHAIN_UNLESS_FORBIDDEN;
EXPORT_SYMBOL_FOR_KVM(sysctl_perf_event_guest_callchain);

static const struct ctl_table guest_callchain_sysctl_table[] = {
	{
		.procname	= "perf_event_guest_callchain",
		.data		= &sysctl_perf_event_guest_callchain,
		.maxlen		= sizeof(sysctl_perf_event_guest_callchain),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_TWO,
	},
};

static int __init init_guest_callchain_sysctl(void)
{
	register_sysctl_init("kernel", guest_callchain_sysctl_table);
	return 0;
}
core_initcall(init_guest_callchain_sysctl);

/*
 * BPF stack helpers read the very chain that is recorded, and know host stacks only: with
 * such a program, samples of guests are taken for samples of the host.  Programs that
 * @event's program tail-calls are not known here, and may read the guest's chain.
 */
bool perf_callchain_is_hosts(const struct perf_event *event)
{
	const struct bpf_prog *prog = READ_ONCE(event->prog);

	return prog && prog->call_get_stack;
}

/* Return true if @event may see the stack of the guest that current runs. */
bool perf_callchain_guest_wanted(const struct perf_event *event, unsigned int guest_state)
{
	const struct perf_event_attr *attr = &event->attr;

	/* Skid must not show the kernel to a user-only event, nor vice versa. */
	if (guest_state & PERF_GUEST_USER ? attr->exclude_user : attr->exclude_kernel)
		return false;

	/* An event that follows another task must not see current's guest. */
	return !event->ctx->task || event->ctx->task == current;
}

/**
 * perf_callchain_guest_init - settle whether an event's chains can be deferred
 * @event: a new event that has callchain buffers, so that sysctls don't change
 *
 * A deferred record carries the whole chain: walk at once if @event wants only a part
 * of it, or if there is no room for three markers.
 *
 * Context: task, before @event is installed.
 */
void perf_callchain_guest_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;

	if (!attr->sample_max_stack || attr->exclude_callchain_kernel ||
	    attr->exclude_callchain_user || sysctl_perf_event_max_contexts_per_stack < 3)
		attr->defer_guest_callchain = 0;
}

/* Out of line: a deferred chain does not need its stack frame. */
static noinline struct perf_callchain_entry *
guest_callchain_walk(struct perf_sample_data *data, const struct perf_event_attr *attr)
{
	unsigned int max_contexts = READ_ONCE(sysctl_perf_event_max_contexts_per_stack);
	unsigned int nr, nr_kernel = 0;
	struct perf_callchain_entry *entry;
	u64 *ips;
	int rctx;

	/*
	 * The guest's memory is read through the VMM's mappings, which may be
	 * gone, or not be the ones that are loaded.
	 */
	if (!max_contexts || !nmi_uaccess_okay())
		return &__empty_callchain;

	if (attr->exclude_callchain_kernel && attr->exclude_callchain_user)
		return &__empty_callchain;

	entry = get_callchain_entry(&rctx);
	if (!entry)
		return &__empty_callchain;

	/* A marker comes first; the sysctls don't change while there are buffers. */
	ips = &entry->ip[1];
	nr = static_call(__perf_guest_stack_walk)(ips, attr->sample_max_stack, &nr_kernel);
	if (nr)
		data->guest_ip = ips[0];

	/* The walk finds the whole chain; drop what is excluded. */
	if (attr->exclude_callchain_kernel) {
		nr -= nr_kernel;
		memmove(ips, &ips[nr_kernel], nr * sizeof(*ips));
		nr_kernel = 0;
	} else if (attr->exclude_callchain_user || attr->exclude_user ||
		   (nr_kernel && max_contexts == 1)) {
		nr = nr_kernel;
	}

	entry->nr = guest_callchain_mark(entry->ip, nr, nr_kernel);
	put_callchain_entry(rctx);

	return entry;
}

/**
 * perf_callchain_guest - get the callchain of the guest that a PMI interrupted
 * @data: the sample; takes the guest's IP where that is found on the way
 * @event: the event that is sampled, with attr.guest_callchain; its
 *	   exclude_* and sample_max_stack (in entries, context markers aside) apply
 *
 * The chain is a context marker, the guest's instruction pointer, and the
 * return addresses that the hypervisor finds on the guest's stack.  Where it
 * finds how the guest's kernel was entered, user mode's part follows behind a
 * marker of its own.
 *
 * Context: NMI or IRQ.  Never faults in the guest's memory.
 *
 * Return: the chain, in a per-CPU buffer that is good until the next sample in
 * the same context; empty if @event may not see it or the guest shows none.  NULL
 * if the sample is one of the host, or is to be taken for one, see
 * perf_callchain_is_hosts().
 */
struct perf_callchain_entry *perf_callchain_guest(struct perf_sample_data *data,
						  struct perf_event *event)
{
	unsigned int guest_state = perf_sample_guest_state(data, event);

	if (!guest_state || perf_callchain_is_hosts(event))
		return NULL;

	if (unlikely(perf_callchain_guest_never() ||
		     !perf_callchain_guest_wanted(event, guest_state)))
		return &__empty_callchain;

	if (event->attr.defer_guest_callchain)
		return perf_callchain_guest_request(data, event);

	return guest_callchain_walk(data, &event->attr);
}

/* Enough to see what the guest was doing; consoles are slow. */
#define GUEST_BACKTRACE_MAX	16

/**
 * perf_guest_print_backtrace - name the guest that this CPU runs, for a backtrace of the host
 * @log_lvl: log level, a prefix for printk()
 *
 * Prints nothing unless the current interrupt ended guest mode, or came right after the
 * exit.  The guest's IP and callchain are printed if the administrator and the VMM allow
 * callchains.
 *
 * Context: NMI or IRQ, but not inside of a PMI: walks must not nest.
 */
void perf_guest_print_backtrace(const char *log_lvl)
{
	unsigned int max = 1, nr, nr_kernel = 0, i;
	u64 ips[GUEST_BACKTRACE_MAX];

	if (!perf_guest_state())
		return;

	/*
	 * Read the guest's memory only if the VMM's mappings are loaded, and not in a panic:
	 * broken memory may have caused it.
	 */
	if (nmi_uaccess_okay() && !panic_in_progress())
		max = ARRAY_SIZE(ips);
	nr = static_call(__perf_guest_stack_walk)(ips, max, &nr_kernel);

	printk("%sGuest of VMM %d, vCPU %d\n", log_lvl, task_tgid_nr(current),
	       static_call(__perf_guest_get_vcpu_id)());
	if (nr)
		printk("%sGuest call trace:\n", log_lvl);
	for (i = 0; i < nr; i++)
		printk("%s 0x%llx%s\n", log_lvl, ips[i], i < nr_kernel ? "" : " (user)");
}
