// SPDX-License-Identifier: GPL-2.0
/*
 * Record the callchains of guests in the samples that a host takes of its virtual machines.
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
 * Return true if @event has a BPF program that calls stack helpers.  These helpers read the
 * recorded chain and expect a stack of the host, so perf must treat a sample of a guest like
 * one of the host.  Programs that this program tail-calls are not checked: if they call stack
 * helpers, these can see the guest's chain.
 */
bool perf_callchain_for_host(const struct perf_event *event)
{
	const struct bpf_prog *prog = READ_ONCE(event->prog);

	return prog && prog->call_get_stack;
}

/* Return true if @event may see the stack of the guest that the current task runs. */
bool perf_guest_callchain_allowed(const struct perf_event *event, unsigned int guest_state)
{
	const struct perf_event_attr *attr = &event->attr;

	/* Skid must not show the kernel to a user-only event, nor vice versa. */
	if (guest_state & PERF_GUEST_USER ? attr->exclude_user : attr->exclude_kernel)
		return false;

	/* An event that follows another task must not see current's guest. */
	return !event->ctx->task || event->ctx->task == current;
}

/**
 * perf_guest_callchain_init - decide whether an event's guest callchains can be deferred
 * @event: a new event; it has callchain buffers, so that the callchain sysctls can't change
 *
 * Clears attr.defer_guest_callchain in three cases.  @event takes no callchains of guests.  Or
 * @event leaves out a part of them by exclude_callchain_*: all samples of an exit share the
 * first part of a deferred chain, and the record with the rest.  Or
 * perf_event_max_contexts_per_stack allows fewer contexts than the three that the first part
 * takes: two markers and the cookie.  If @event takes callchains at all, PMIs then walk the stack.
 *
 * Context: task, before @event is installed.  Takes no locks.
 *
 * Return: zero, or -EINVAL if @event asks for a deferred stack and can't defer.
 */
int perf_guest_callchain_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;

	if (attr->exclude_guest || !attr->sample_max_stack || attr->exclude_callchain_kernel ||
	    attr->exclude_callchain_user || sysctl_perf_event_max_contexts_per_stack < 3) {
		/* A deferred stack needs the cookie that deferred callchains put in samples. */
		if (attr->defer_guest_callchain && attr->sample_stack_guest)
			return -EINVAL;
		attr->defer_guest_callchain = 0;
	}

	return 0;
}

static struct perf_callchain_entry *
guest_callchain_walk(struct perf_sample_data *data, const struct perf_event_attr *attr)
{
	unsigned int max_contexts = READ_ONCE(sysctl_perf_event_max_contexts_per_stack);
	unsigned int nr, nr_kernel = 0;
	struct perf_callchain_entry *entry;
	u64 *ips;
	int rctx;

	/*
	 * The walk reads the guest's memory through the VMM's mappings: these
	 * must be loaded.
	 */
	if (!max_contexts || !nmi_uaccess_okay())
		return &__empty_callchain;

	if (attr->exclude_callchain_kernel && attr->exclude_callchain_user)
		return &__empty_callchain;

	entry = get_callchain_entry(&rctx);
	if (!entry)
		return &__empty_callchain;

	/* Leave room for a marker.  All fits: the sysctls for the buffer size can't change now. */
	ips = &entry->ip[1];
	nr = static_call(__perf_guest_stack_walk)(ips, attr->sample_max_stack, &nr_kernel);
	if (nr)
		data->guest_ip = ips[0];

	/* Drop what is excluded, and user mode's entries if only the kernel's marker is allowed. */
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

/*
 * Request the callchain of the guest that a PMI hit, if @event may have it.  Return the
 * vCPU's request, or NULL.
 *
 * request->callchain is the first part of the chain.  It has four words: a context marker,
 * the guest's instruction pointer, PERF_CONTEXT_USER_DEFERRED, and the cookie of the
 * PERF_RECORD_CALLCHAIN_DEFERRED that will have the rest.  Readers join the two as they
 * do for user mode.  The entries of the record begin with a context marker of their own.
 *
 * The request needs no lock: the hypervisor gives it to one PMI at a time, and the vCPU's
 * thread, which serves it, can't go on before the PMI is done.  All samples of an exit share
 * one record, and this part of the chain.
 *
 * Inlined to keep the PMI short.  The hypervisor finds the guest's state and IP in one
 * call, and has checked the sysctl.  The last two words of the chain are already set.
 */
static __always_inline struct perf_guest_callchain_request *
guest_callchain_defer(struct perf_sample_data *data, struct perf_event *event)
{
	struct perf_guest_callchain_request *request;
	unsigned int guest_state;
	u64 guest_ip;

	request = static_call(__perf_guest_callchain_request)();
	if (unlikely(!request))
		return NULL;

	guest_state = request->guest_state;
	guest_ip = request->guest_ip;
	if (unlikely(perf_callchain_for_host(event) ||
		     !perf_guest_callchain_allowed(event, guest_state)))
		return NULL;

	/* An IP that the guest chooses must not pass for a context marker. */
	if (unlikely(guest_ip >= PERF_CONTEXT_MAX))
		return NULL;

	data->guest_state = guest_state;
	data->guest_ip = guest_ip;
	request->callchain.ip[0] = guest_state & PERF_GUEST_USER ?
				   PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL;
	request->callchain.ip[1] = guest_ip;
	request->max = max_t(unsigned int, request->max, event->attr.sample_max_stack);
	if (unlikely(request->stack_size < event->attr.sample_stack_guest))
		request->stack_size = event->attr.sample_stack_guest;

	return request;
}

/* Not inlined, so that requests for deferred chains don't set up this stack frame. */
static noinline struct perf_callchain_entry *
guest_callchain_immediate(struct perf_sample_data *data, struct perf_event *event)
{
	unsigned int guest_state = perf_sample_guest_state(data, event);

	if (!guest_state || perf_callchain_for_host(event))
		return NULL;

	if (event->attr.defer_guest_callchain || perf_guest_callchain_disabled() ||
	    !perf_guest_callchain_allowed(event, guest_state))
		return &__empty_callchain;

	return guest_callchain_walk(data, &event->attr);
}

/**
 * perf_guest_callchain - get the callchain of the guest that a PMI interrupted
 * @data: the sample; this sets its guest_state, and its guest_ip if the IP is found
 * @event: the event that is sampled, with attr.guest_callchain set; its exclude_*
 *	   bits and sample_max_stack (which does not count context markers) apply
 *
 * The chain is a context marker, the guest's instruction pointer, and the
 * return addresses that the hypervisor finds on the guest's stack.  If the
 * hypervisor finds where user mode entered the guest's kernel, another context
 * marker and the entries of user mode follow.
 *
 * Context: any in which events are sampled: NMI, IRQ or task.  Does not sleep, and
 * brings no page in.
 *
 * Return: the chain, or the first part of a deferred one, see
 * guest_callchain_defer().  It is valid until the next sample in the same
 * context.  It is empty if @event may not see it, if the guest's stack must not be
 * read, or if a deferred chain can't be requested.  NULL if the sample hit the host,
 * or must be treated as if it did, see perf_callchain_for_host().
 */
struct perf_callchain_entry *perf_guest_callchain(struct perf_sample_data *data,
						  struct perf_event *event)
{
	struct perf_guest_callchain_request *request;

	if (event->attr.defer_guest_callchain) {
		request = guest_callchain_defer(data, event);
		if (likely(request))
			return &request->callchain;
	}

	return guest_callchain_immediate(data, event);
}

/* Consoles are slow: print only the innermost entries. */
#define GUEST_BACKTRACE_MAX	16

/**
 * perf_guest_print_backtrace - in a backtrace of the host, print which guest this CPU runs
 * @log_lvl: log level, a prefix for printk()
 *
 * Prints nothing unless the hypervisor says that the current interrupt hit a guest.  Prints
 * the guest's IP and callchain as well if the hypervisor finds them, and if the administrator
 * and the VMM allow callchains.
 *
 * Context: NMI, IRQ, or task with IRQs disabled.  An interrupt that hits a walk of the guest's
 * stack makes no second walk: on x86, KVM says that it did not hit the guest; on arm64, KVM finds
 * only the IP.
 */
void perf_guest_print_backtrace(const char *log_lvl)
{
	unsigned int max = 1, nr = 0, nr_kernel = 0, i;
	u64 ips[GUEST_BACKTRACE_MAX];
	int rctx;

	if (!perf_guest_state())
		return;

	/*
	 * Read the guest's memory only if the VMM's mappings are loaded.  Don't read it in a
	 * panic, which broken memory may have caused.
	 */
	if (nmi_uaccess_okay() && !panic_in_progress())
		max = ARRAY_SIZE(ips);

	/*
	 * Skip tracepoint events that the walk hits: they could walk the stack, too, and walks
	 * can't nest, as on x86 they change PKRU.  The callchain buffer may not be allocated:
	 * it can't serve as the guard, unlike in perf_output_guest_stack().
	 */
	rctx = perf_swevent_get_recursion_context();
	if (rctx >= 0) {
		nr = static_call(__perf_guest_stack_walk)(ips, max, &nr_kernel);
		perf_swevent_put_recursion_context(rctx);
	}

	printk("%sGuest of VMM %d, vCPU %d\n", log_lvl, task_tgid_nr(current),
	       static_call(__perf_guest_get_vcpu_id)());
	if (nr)
		printk("%sGuest call trace:\n", log_lvl);
	for (i = 0; i < nr; i++)
		printk("%s 0x%llx%s\n", log_lvl, ips[i], i < nr_kernel ? "" : " (user)");
}
