// SPDX-License-Identifier: GPL-2.0
/*
 * Dump the stacks of guests in the samples that a host takes of its virtual machines.  A
 * dump has bytes and registers, for readers that know the layout of the guest's frames.
 */

#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/static_call.h>

#include <asm/tlb.h>

#include "internal.h"

/* Return true if an event with @attr may see the stack of a guest in @guest_state's mode. */
static bool guest_stack_visible(const struct perf_event_attr *attr, unsigned int guest_state)
{
	if (guest_state & PERF_GUEST_USER)
		return !attr->exclude_user && !attr->exclude_callchain_user;

	return !attr->exclude_kernel && !attr->exclude_callchain_kernel;
}

/**
 * __perf_prepare_guest_stack - make room for a guest's stack in a sample
 * @data: the sample; the sizes of its other fields are known, except that of AUX data
 * @event: the event that is sampled; its dumps are not deferred
 *
 * Sets data->guest_stack_size if @event may see the stack.  When the sample is written,
 * some of these bytes may turn out to be unreadable.
 *
 * Context: as perf_guest_callchain().
 */
void __perf_prepare_guest_stack(struct perf_sample_data *data, struct perf_event *event)
{
	unsigned int guest_state = perf_sample_guest_state(data, event), size, used;

	/* The guest's memory is read through the VMM's mappings, see guest_callchain_walk(). */
	if (!guest_state || perf_callchain_for_host(event) ||
	    perf_guest_callchain_disabled() || !perf_guest_callchain_allowed(event, guest_state) ||
	    !guest_stack_visible(&event->attr, guest_state) || !nmi_uaccess_okay())
		return;

	used = perf_sample_data_size(data, event) + sizeof(struct perf_guest_stack_info);
	/* AUX data takes the room that is left over, but leave room for its size field. */
	if (event->attr.sample_type & PERF_SAMPLE_AUX)
		used += sizeof(u64);
	size = event->attr.sample_stack_guest;
	/* The size of a record must fit into 16 bits. */
	if (used + size > U16_MAX)
		size = used < U16_MAX ? round_down(U16_MAX - used, sizeof(u64)) : 0;

	/* __perf_event_header_size() has counted the size field, which is always there. */
	data->guest_stack_size = size;
	if (size)
		data->dyn_size += size + sizeof(struct perf_guest_stack_info);
}

/*
 * Output @size bytes, and the info that follows them.  The bytes of @stack that can be read
 * come first; the rest stays as it was in the ring buffer.
 */
static void output_stack(struct perf_output_handle *handle, const struct perf_guest_stack *stack,
			 unsigned int size)
{
	struct perf_guest_stack_info info = stack->info;
	unsigned int i, len, copied = 0, missing = 0;

	for (i = 0; i < stack->nr_pages && copied < size && !missing; i++) {
		len = min(stack->pages[i].size, size - copied);
		missing = __output_copy_user(handle, stack->pages[i].start, len);
		copied += len - missing;
	}
	if (size > copied)
		__output_skip(handle, NULL, size - copied);

	info.pieces[0].size = min(info.pieces[0].size, copied);
	info.pieces[1].size = copied - info.pieces[0].size;
	perf_output_put(handle, info);
}

/**
 * perf_output_guest_stack - output the guest's stack into a sample, after its size field
 * @handle: the output handle of the sample
 * @size: how many bytes __perf_prepare_guest_stack() has made room for; not zero
 *
 * Context: as perf_guest_callchain().  Does not fault the guest's memory in.
 */
void perf_output_guest_stack(struct perf_output_handle *handle, unsigned int size)
{
	struct perf_guest_stack stack __uninitialized;
	bool found = false;
	int rctx;

	/*
	 * Dumps and walks can't nest, as on x86 they change PKRU.  So hold the callchain buffer
	 * of this context while the stack is copied: if the copy hits a tracepoint, e.g. in a
	 * fault, the tracepoint's event gets no buffer, and neither walks nor dumps the stack.
	 */
	if (get_callchain_entry(&rctx)) {
		found = static_call(__perf_guest_stack_begin)(&stack, size);
		if (found) {
			output_stack(handle, &stack, size);
			static_call(__perf_guest_stack_end)(&stack);
		}
		put_callchain_entry(rctx);
	}

	if (!found) {
		memset(&stack.info, 0, sizeof(stack.info));
		stack.nr_pages = 0;
		output_stack(handle, &stack, size);
	}
}

struct guest_stack_record {
	const struct perf_guest_stack *stack;
	u16 misc;
	unsigned int size;
	struct {
		struct perf_event_header	header;
		u64				cookie;
		u64				size;
	} head;
};

static void output_record(struct perf_event *event, void *data)
{
	const struct perf_event_attr *attr = &event->attr;
	struct guest_stack_record *record = data;
	/* Not cleared, as in perf_callchain_deferred_output(). */
	struct perf_sample_data sample __uninitialized;
	struct perf_output_handle handle;
	unsigned int guest_state, size;

	guest_state = record->misc == PERF_RECORD_MISC_GUEST_USER ? PERF_GUEST_USER : 0;
	if (!attr->defer_output || !attr->sample_stack_guest ||
	    attr->exclude_guest || !guest_stack_visible(attr, guest_state))
		return;

	/* Another event may have asked for more. */
	size = min_t(unsigned int, record->size, attr->sample_stack_guest);
	record->head.size = size;
	perf_event_header__init(&record->head.header, &sample, PERF_RECORD_GUEST_STACK_DEFERRED,
				record->misc,
				sizeof(record->head) + size + sizeof(record->stack->info), event);

	if (perf_output_begin(&handle, &sample, event, record->head.header.size))
		return;

	perf_output_put(&handle, record->head);
	output_stack(&handle, record->stack, size);
	perf_event__output_id_sample(event, &handle, &sample);
	perf_output_end(&handle);
}

/* Leave room for the largest struct sample_id, and for the other fields of a record. */
#define MAX_DEFERRED_SIZE	round_down(U16_MAX - 256, sizeof(u64))

/**
 * perf_guest_stack_serve - make and emit a dump of a guest's stack that was deferred
 * @cookie: the cookie of the samples that the dump belongs to
 * @misc: PERF_RECORD_MISC_GUEST_*, the guest's mode in these samples
 * @size: how many bytes to dump at most
 *
 * The record is as long as the stack that the hypervisor finds.  Readers of the samples
 * expect a record: emit an empty one if the hypervisor finds no stack.
 *
 * Context: as __perf_guest_callchain_serve().  May sleep.
 */
noinline void perf_guest_stack_serve(u64 cookie, u16 misc, unsigned int size)
{
	struct perf_guest_stack stack __uninitialized;
	struct guest_stack_record record = {
		.stack = &stack,
		.misc = misc,
		.head.cookie = cookie,
	};
	bool found;

	found = static_call(__perf_guest_stack_begin)(&stack, min(size, MAX_DEFERRED_SIZE));
	if (!found) {
		memset(&stack.info, 0, sizeof(stack.info));
		stack.nr_pages = 0;
	}

	record.size = round_up(stack.info.pieces[0].size + stack.info.pieces[1].size,
			       sizeof(u64));
	perf_iterate_sb(output_record, &record, NULL);

	if (found)
		static_call(__perf_guest_stack_end)(&stack);
}
