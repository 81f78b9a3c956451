// SPDX-License-Identifier: GPL-2.0
/*
 * Callchains of guests in the samples that a host takes of its virtual machines.
 *
 * A PMI that hits a guest makes it exit.  So the PMI only asks for the callchain, and the
 * vCPU's thread walks the guest's stack right after the exit, where the guest still has the
 * registers and the memory that the PMI saw.
 */

#include <linux/kvm_types.h>
#include <linux/perf_event.h>
#include <linux/sysctl.h>
#include <linux/unwind_deferred.h>

#include "internal.h"

/* The words of the first part of a callchain, see struct perf_guest_callchain_request. */
enum { CHAIN_NR, CHAIN_MARKER, CHAIN_IP, CHAIN_DEFERRED, CHAIN_COOKIE };

/* The longest chain in a record.  A record's size has 16 bits; 256 bytes are for other fields. */
#define MAX_ENTRIES	((U16_MAX - 256) / sizeof(u64))

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
		.extra2		= SYSCTL_THREE,
	},
};

static int __init init_guest_callchain_sysctl(void)
{
	register_sysctl_init("kernel", guest_callchain_sysctl_table);
	return 0;
}
core_initcall(init_guest_callchain_sysctl);

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
	request->chain[CHAIN_NR] = ARRAY_SIZE(request->chain) - 1;
	request->chain[CHAIN_DEFERRED] = PERF_CONTEXT_USER_DEFERRED;
	request->chain[CHAIN_COOKIE] = guest_callchain_cookie();
}
EXPORT_SYMBOL_FOR_KVM(perf_guest_callchain_request_init);

/* Return true if @event may see the stack of the guest that the current task runs. */
static bool perf_guest_callchain_allowed(const struct perf_event *event, unsigned int guest_state)
{
	/* Skid must not show the kernel to a user-only event, nor vice versa. */
	if (guest_state & PERF_GUEST_USER ? event->attr.exclude_user : event->attr.exclude_kernel)
		return false;

	/* An event that follows another task must not see current's guest. */
	return !event->ctx->task || event->ctx->task == current;
}

/**
 * perf_guest_callchain - get the first part of the callchain of the guest that a PMI hit
 * @data: the sample; its IP is known if @event samples the IP
 * @event: the event that is sampled, with attr.guest_callchain set
 *
 * Context: any in which events are sampled: NMI, IRQ or task.
 *
 * Return: the chain, which stays the same until the exit is handled, and whose rest
 * perf_guest_callchain_ask() asks for.  An empty one if @event may not see the guest's stack,
 * or if the IP isn't known.  NULL if the sample hit the host.
 */
struct perf_callchain_entry *perf_guest_callchain(struct perf_sample_data *data,
						  struct perf_event *event)
{
	unsigned int guest_state = perf_sample_guest_state(data, event);
	struct perf_guest_callchain_request *request;
	u64 ip;

	if (!guest_state)
		return NULL;

	if (!perf_guest_callchain_allowed(event, guest_state))
		return &__empty_callchain;

	request = static_call(__perf_guest_callchain_request)();
	if (!request)
		return &__empty_callchain;

	/*
	 * An IP that the guest chooses must not pass for a context marker.  Zero is the IP of a
	 * guest whose registers the host can't see.
	 */
	ip = data->sample_flags & PERF_SAMPLE_IP ? data->ip : perf_guest_get_ip();
	if (!ip || ip >= PERF_CONTEXT_MAX)
		return &__empty_callchain;

	request->guest_state = guest_state;
	request->chain[CHAIN_MARKER] = guest_state & PERF_GUEST_USER ? PERF_CONTEXT_GUEST_USER :
								       PERF_CONTEXT_GUEST_KERNEL;
	request->chain[CHAIN_IP] = ip;
	return (struct perf_callchain_entry *)request->chain;
}

/**
 * perf_guest_callchain_ask - ask for the rest of the guest's callchain in a sample
 * @data: the sample, which is being written to the ring buffer
 * @event: the event that is sampled, with attr.guest_callchain set
 *
 * A sample that a BPF program drops, or that the ring buffer has no room for, asks for nothing.
 *
 * Context: as perf_guest_callchain().
 */
void perf_guest_callchain_ask(struct perf_sample_data *data, struct perf_event *event)
{
	struct perf_guest_callchain_request *request;

	/* All other chains of samples that hit a guest are empty. */
	if (!perf_sample_guest_state(data, event) || data->callchain == &__empty_callchain)
		return;

	request = container_of((u64 *)data->callchain, struct perf_guest_callchain_request,
			       chain[0]);
	request->max = max_t(unsigned int, request->max, event->attr.sample_max_stack);
	event->guest_cookie = request->chain[CHAIN_COOKIE];
	request->reads |= event->attr.guest_read;
}

struct guest_callchain_record {
	struct {
		struct perf_event_header	header;
		u64				cookie;
		u64				nr;
	} head;
	u16		misc;
	unsigned int	nr;
	const u64	*ips;
};

/* Emit the record to @event if it has taken a sample at this exit, with as much as it asks for. */
static void guest_callchain_output(struct perf_event *event, void *data)
{
	struct guest_callchain_record *record = data;
	struct perf_output_handle handle;
	/* Not cleared, as in perf_callchain_deferred_output(). */
	struct perf_sample_data sample __uninitialized;
	unsigned int size;

	if (event->guest_cookie != record->head.cookie)
		return;

	/* The sample has the IP, and here, a marker takes its place. */
	record->head.nr = min_t(unsigned int, record->nr, event->attr.sample_max_stack);
	if (record->head.nr == 1)
		record->head.nr = 0;
	size = record->head.nr * sizeof(u64);
	perf_event_header__init(&record->head.header, &sample, PERF_RECORD_CALLCHAIN_DEFERRED,
				record->misc, sizeof(record->head) + size, event);

	if (perf_output_begin(&handle, &sample, event, record->head.header.size))
		return;

	perf_output_put(&handle, record->head);
	__output_copy(&handle, record->ips, size);
	perf_event__output_id_sample(event, &handle, &sample);
	perf_output_end(&handle);
}

/**
 * perf_guest_callchain_serve - make the walk of the guest's stack that PMIs asked for
 * @request: the request, whose max isn't zero; empty again when this function returns
 *
 * Each event that sampled the guest at this exit gets a record.  Readers of the samples expect
 * it: it is empty if no caller is found.
 *
 * Context: task, the vCPU's thread, after the exit and before the hypervisor handles it.  IRQs
 * are enabled.  Preemption must have been disabled since the exit: so the events that took the
 * samples are still those of this CPU and this task.  Doesn't sleep.
 */
void perf_guest_callchain_serve(struct perf_guest_callchain_request *request)
{
	struct perf_callchain_entry *entry;
	struct guest_callchain_record record = {
		.head.cookie	= request->chain[CHAIN_COOKIE],
		.misc		= request->guest_state & PERF_GUEST_USER ?
				  PERF_RECORD_MISC_GUEST_USER : PERF_RECORD_MISC_GUEST_KERNEL,
	};
	unsigned int max;
	int rctx;

	/* Read first: readers deliver a sample as soon as its callchain comes. */
	if (request->reads)
		perf_guest_read_serve(request, record.head.cookie, record.misc);

	/*
	 * Protect the callchain buffers.  They may be others than at the PMI, and smaller, if all
	 * events were closed meanwhile.
	 */
	guard(rcu)();
	entry = get_callchain_entry_max(&rctx, &max);
	if (entry) {
		max = min3(max, request->max, (unsigned int)MAX_ENTRIES);
		entry->ip[0] = request->chain[CHAIN_MARKER];
		record.nr = static_call(__perf_guest_stack_walk)(&entry->ip[1], max - !!max);
		record.nr += !!record.nr;
		record.ips = entry->ip;
	}

	perf_iterate_sb(guest_callchain_output, &record, NULL);

	/* The next request has another cookie. */
	request->chain[CHAIN_COOKIE] = guest_callchain_cookie();
	request->max = 0;
	request->reads = false;
	if (entry)
		put_callchain_entry(rctx);
}
EXPORT_SYMBOL_FOR_KVM(perf_guest_callchain_serve);
