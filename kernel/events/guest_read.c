// SPDX-License-Identifier: GPL-2.0
/*
 * Pieces of a guest's memory for the samples that a host takes of its virtual machines.
 *
 * An event says where to read, by struct perf_guest_read, and the vCPU's thread reads after an
 * exit that the event has sampled.  What the pieces mean is the reader's business: a stack to
 * unwind, the registers that were saved when user mode was left, or the name of a task.
 */

#include <linux/kvm_types.h>
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

/* Return whether @reads are valid, and their record is not too large. */
static bool guest_reads_valid(const struct perf_guest_reads *reads)
{
	/* abi, root, mask and nr, and for each read, addr, size and dyn_size */
	size_t size = (4 + hweight64(reads->regs) + 3 * reads->nr) * sizeof(u64);
	unsigned int i;

	if (reads->nr > PERF_GUEST_READ_MAX || reads->__reserved ||
	    reads->regs & PERF_REG_EXTENDED_MASK ||
	    (reads->regs && perf_reg_validate(reads->regs)))
		return false;

	for (i = 0; i < reads->nr; i++) {
		const struct perf_guest_read *read = &reads->read[i];

		if (read->base >= PERF_GUEST_READ_BASE_MAX ||
		    read->nr_derefs > PERF_GUEST_READ_DEREFS || read->size > MAX_SIZE ||
		    !IS_ALIGNED(read->size, sizeof(u64)) ||
		    read->flags & ~(PERF_GUEST_READ_IN_KERNEL | PERF_GUEST_READ_IN_USER |
				    PERF_GUEST_READ_AS_USER) ||
		    (read->within && !read->nr_derefs))
			return false;
		size += read->size;
	}

	return size <= MAX_SIZE;
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

	if (!guest_reads_valid(&new->reads)) {
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

/**
 * perf_output_copy_user - write memory of the current task to a ring buffer
 * @handle: of a record that has room for it
 * @buf: where to copy from
 * @len: how many bytes to copy
 *
 * Context: any.  Page faults are not handled.
 *
 * Return: how many bytes could not be copied.
 */
unsigned int perf_output_copy_user(struct perf_output_handle *handle, const void __user *buf,
				   unsigned int len)
{
	return __output_copy_user(handle, (__force const void *)buf, len);
}
EXPORT_SYMBOL_FOR_KVM(perf_output_copy_user);

struct guest_read_record {
	struct guest_read_head	head;
	u16			misc;
	unsigned int		guest_state;
};

/* Read for @event if it has taken a sample at this exit, and emit the record. */
static void guest_read_output(struct perf_event *event, void *data)
{
	struct guest_read_record *record = data;
	/* abi, root, mask, regs[] and nr */
	u64 words[3 + 64 + 1] __uninitialized, addr[PERF_GUEST_READ_MAX] __uninitialized;
	struct perf_event_guest_reads *reads;
	struct perf_output_handle handle;
	/* Not cleared, as in perf_callchain_deferred_output(). */
	struct perf_sample_data sample __uninitialized;
	unsigned int i, nr, size;
	int found;

	if (event->guest_cookie != record->head.cookie || !event->attr.guest_read)
		return;

	reads = guest_reads(event);
	if (!reads)
		return;

	found = static_call(__perf_guest_find_reads)(&reads->reads, record->guest_state, words,
						     addr);
	if (found < 0)
		return;

	nr = 3 + hweight64(reads->reads.regs);
	words[nr++] = reads->reads.nr;
	size = sizeof(record->head) + (nr + 2 * reads->reads.nr) * sizeof(u64);
	for (i = 0; i < reads->reads.nr; i++) {
		if (found & BIT(i) && reads->reads.read[i].size)
			size += reads->reads.read[i].size + sizeof(u64);
	}

	perf_event_header__init(&record->head.header, &sample, PERF_RECORD_GUEST_READ,
				record->misc, size, event);

	if (perf_output_begin(&handle, &sample, event, record->head.header.size))
		return;

	perf_output_put(&handle, record->head);
	__output_copy(&handle, words, nr * sizeof(u64));
	for (i = 0; i < reads->reads.nr; i++) {
		const struct perf_guest_read *read = &reads->reads.read[i];
		u64 head[2] = {}, done;

		if (found & BIT(i)) {
			head[0] = addr[i];
			head[1] = read->size;
		}
		perf_output_put(&handle, head);
		if (!head[1])
			continue;

		done = static_call(__perf_guest_read)(&handle, addr[i], read->size,
						      read->flags & PERF_GUEST_READ_AS_USER);
		perf_output_skip(&handle, read->size - done);
		perf_output_put(&handle, done);
	}
	perf_event__output_id_sample(event, &handle, &sample);
	perf_output_end(&handle);
}

/**
 * perf_guest_read_serve - make the reads that PMIs asked for
 * @request: the request
 * @cookie: the cookie of the samples that the records belong to
 * @misc: PERF_RECORD_MISC_GUEST_*, the guest's mode in these samples
 *
 * Context: as perf_guest_callchain_serve().
 */
void perf_guest_read_serve(struct perf_guest_callchain_request *request, u64 cookie, u16 misc)
{
	struct guest_read_record record = {
		.head.cookie	= cookie,
		.misc		= misc,
		.guest_state	= request->guest_state,
	};

	perf_iterate_sb(guest_read_output, &record, NULL);
}
