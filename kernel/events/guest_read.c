// SPDX-License-Identifier: GPL-2.0
/*
 * Pieces of a guest's memory for the samples that a host takes of its virtual machines.
 *
 * An event says where to read, by struct perf_guest_read, and the vCPU's thread reads after an
 * exit that the event has sampled.  What the pieces mean is the reader's business: a stack to
 * unwind, the registers that were saved when user mode was left, or the name of a task.
 */

#include <linux/perf_event.h>
#include <linux/perf_regs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

/* What a record has before the hypervisor's data. */
struct guest_read_head {
	struct perf_event_header	header;
	u64				cookie;
};

/* A record's size has 16 bits; leave room for the head and the largest struct sample_id. */
#define MAX_SIZE	(U16_MAX - 256)

/* The words that a record has at most beside the pieces: abi, root, mask, regs, nr, reads[] */
#define MAX_WORDS	(3 + 64 + 1 + 2 * PERF_GUEST_READ_MAX)

/* Return how many bytes the hypervisor may need for @reads, or zero if they are invalid. */
static unsigned int guest_reads_size(const struct perf_guest_reads *reads)
{
	/* abi, root, mask and nr, and for each read, addr and size */
	size_t size = (4 + hweight64(reads->regs) + 2 * reads->nr) * sizeof(u64);
	unsigned int i;

	if (reads->nr > PERF_GUEST_READ_MAX || reads->__reserved ||
	    reads->regs & PERF_REG_EXTENDED_MASK ||
	    (reads->regs && perf_reg_validate(reads->regs)))
		return 0;

	for (i = 0; i < reads->nr; i++) {
		const struct perf_guest_read *read = &reads->read[i];

		if (read->base >= PERF_GUEST_READ_BASE_MAX ||
		    read->nr_derefs > PERF_GUEST_READ_DEREFS || read->size > MAX_SIZE ||
		    read->flags & ~(PERF_GUEST_READ_IN_KERNEL | PERF_GUEST_READ_IN_USER |
				    PERF_GUEST_READ_AS_USER) ||
		    (read->within && !read->nr_derefs))
			return 0;
		size += round_up(read->size, sizeof(u64));
	}

	return size <= MAX_SIZE ? size : 0;
}

/**
 * perf_event_set_guest_reads - set what an event wants to have of the guest's memory
 * @event: an event with attr.guest_read set; its children use its reads, too
 * @arg: from user space; replaces what was set before
 *
 * Context: task, the event's context is locked.
 *
 * Return: zero, -EINVAL if @event may have no reads or @arg is invalid, -EFAULT, or -ENOMEM.
 */
int perf_event_set_guest_reads(struct perf_event *event, struct perf_guest_reads __user *arg)
{
	struct perf_event_guest_reads *new, *old;

	if (!event->attr.guest_read)
		return -EINVAL;

	new = kzalloc_obj(*new);
	if (!new)
		return -ENOMEM;

	if (copy_from_user(&new->reads, arg, sizeof(new->reads))) {
		kfree(new);
		return -EFAULT;
	}

	new->size = guest_reads_size(&new->reads);
	if (!new->size) {
		kfree(new);
		return -EINVAL;
	}

	old = rcu_replace_pointer(event->guest_reads, new, lockdep_is_held(&event->ctx->mutex));
	if (old)
		kfree_rcu(old, rcu);
	return 0;
}

/* Called when @event is freed: no sample and no record uses its reads any more. */
void perf_event_free_guest_reads(struct perf_event *event)
{
	struct perf_event_guest_reads *reads = rcu_dereference_protected(event->guest_reads, true);

	if (reads)
		kfree_rcu(reads, rcu);
}

/* A child holds its parent, whose reads it uses.  Preemption or IRQs are disabled. */
static struct perf_event_guest_reads *guest_reads(struct perf_event *event)
{
	return rcu_dereference_sched((event->parent ?: event)->guest_reads);
}

/* Called by perf_guest_callchain_ask(), in the PMI. */
void perf_guest_read_ask(struct perf_event *event, struct perf_guest_callchain_request *request)
{
	struct perf_event_guest_reads *reads = guest_reads(event);

	if (reads)
		request->reads_size = max(request->reads_size, reads->size);
}

struct guest_read_record {
	struct guest_read_head	head;
	u16			misc;
	unsigned int		guest_state;
	unsigned int		max;
	void			*data;
};

/* Read for @event if it has taken a sample at this exit, and emit the record. */
static void guest_read_output(struct perf_event *event, void *data)
{
	struct guest_read_record *record = data;
	struct perf_event_guest_reads *reads;
	struct perf_output_handle handle;
	/* Not cleared, as in perf_callchain_deferred_output(). */
	struct perf_sample_data sample __uninitialized;
	unsigned int size;

	if (event->guest_cookie != record->head.cookie || !event->attr.guest_read)
		return;

	reads = guest_reads(event);
	if (!reads)
		return;

	size = static_call(__perf_guest_read)(&reads->reads, record->guest_state, record->data,
					      record->max);
	if (!size)
		return;

	perf_event_header__init(&record->head.header, &sample, PERF_RECORD_GUEST_READ,
				record->misc, sizeof(record->head) + size, event);

	if (perf_output_begin(&handle, &sample, event, record->head.header.size))
		return;

	perf_output_put(&handle, record->head);
	__output_copy(&handle, record->data, size);
	perf_event__output_id_sample(event, &handle, &sample);
	perf_output_end(&handle);
}

/**
 * perf_guest_read_serve - make the reads that PMIs asked for
 * @request: the request; its reads_size is zero when this function returns
 * @cookie: the cookie of the samples that the records belong to
 * @misc: PERF_RECORD_MISC_GUEST_*, the guest's mode in these samples
 *
 * Without memory for the pieces, records have the registers at least.
 *
 * Context: as __perf_guest_callchain_serve().
 */
void perf_guest_read_serve(struct perf_guest_callchain_request *request, u64 cookie, u16 misc)
{
	u64 words[MAX_WORDS] __uninitialized;
	struct guest_read_record record = {
		.head.cookie	= cookie,
		.misc		= misc,
		.guest_state	= request->guest_state,
		.max		= max_t(unsigned int, request->reads_size, sizeof(words)),
	};
	void *data = kmalloc(record.max, GFP_NOWAIT | __GFP_NOWARN);

	request->reads_size = 0;
	record.data = data ?: words;
	if (!data)
		record.max = sizeof(words);

	perf_iterate_sb(guest_read_output, &record, NULL);
	kfree(data);
}
