// SPDX-License-Identifier: GPL-2.0
/*
 * Which of a guest's tasks a sample hit, by what perf record has noted of them, see
 * guest_tasks__update().
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/zalloc.h>
#include <perf/event.h>

#include "event.h"
#include "guest-threads.h"
#include "machine.h"
#include "sample.h"
#include "symbol_conf.h"
#include "thread.h"

/* THREAD_SIZE of x86-64 without KASAN. */
#define STACK_SIZE	16384

/* Where CR3 has the topmost page table; with PTI, that of user mode is in the page behind. */
#define ROOT_ADDRESS	GENMASK_ULL(51, 12)
#define ROOT_PTI_USER	BIT_ULL(12)

/* TASK_COMM_LEN */
#define COMM_SIZE	16

/**
 * struct note - a task of a guest from some time on
 * @time:	from when on
 * @stack:	where its stack begins
 * @root:	guest-physical address of its page tables; zero for threads of the kernel
 * @pid:	as the guest calls it
 * @tid:	likewise
 * @comm:	its name; empty if the stack has no task any more
 */
struct note {
	u64	time;
	u64	stack;
	u64	root;
	u32	pid;
	u32	tid;
	char	comm[COMM_SIZE + 1];
};

/**
 * struct guest_threads - all that was noted of a guest's tasks
 * @by_stack:	by stack, and by time
 * @by_root:	those that user mode's samples can have hit, by page tables, and by time
 * @nr:		how many are in @by_stack
 * @nr_roots:	how many are in @by_root
 */
struct guest_threads {
	struct note	*by_stack;
	struct note	*by_root;
	size_t		nr;
	size_t		nr_roots;
};

static int cmp_u64(u64 a, u64 b)
{
	return a < b ? -1 : a > b;
}

static int cmp_stacks(const void *a, const void *b)
{
	const struct note *x = a, *y = b;

	return cmp_u64(x->stack, y->stack) ?: cmp_u64(x->time, y->time);
}

static int cmp_roots(const void *a, const void *b)
{
	const struct note *x = a, *y = b;

	return cmp_u64(x->root, y->root) ?: cmp_u64(x->time, y->time);
}

static bool read_note(const char *line, struct note *note)
{
	int nr, comm = 0;

	memset(note, 0, sizeof(*note));
	nr = sscanf(line, "%" SCNu64 " %" SCNx64 " %" SCNx64 " %u %u %n", &note->time,
		    &note->stack, &note->root, &note->pid, &note->tid, &comm);
	if (nr == 2)
		return true;
	if (nr != 5 || !comm)
		return false;

	snprintf(note->comm, sizeof(note->comm), "%.*s", (int)strcspn(line + comm, "\n"),
		 line + comm);
	return *note->comm;
}

/* Samples of user mode don't tell the thread, only the process. */
static bool index_roots(struct guest_threads *threads)
{
	threads->by_root = calloc(threads->nr, sizeof(*threads->by_root));
	if (!threads->by_root)
		return false;

	for (size_t i = 0; i < threads->nr; i++) {
		const struct note *note = &threads->by_stack[i];

		if (note->root && note->pid == note->tid)
			threads->by_root[threads->nr_roots++] = *note;
	}
	qsort(threads->by_root, threads->nr_roots, sizeof(*threads->by_root), cmp_roots);
	return true;
}

static struct guest_threads *guest_threads__load(FILE *file)
{
	struct guest_threads *threads = zalloc(sizeof(*threads));
	char *line = NULL;
	size_t len = 0;

	while (threads && getline(&line, &len, file) > 0) {
		struct note note, *notes = threads->by_stack;

		if (!read_note(line, &note))
			continue;
		/* At powers of two there is no more room. */
		if (!(threads->nr & (threads->nr - 1))) {
			notes = realloc(notes, max(2 * threads->nr, (size_t)1) * sizeof(*notes));
			if (!notes)
				break;
			threads->by_stack = notes;
		}
		notes[threads->nr++] = note;
	}
	free(line);

	if (!threads || !threads->nr)
		goto err;
	qsort(threads->by_stack, threads->nr, sizeof(*threads->by_stack), cmp_stacks);
	if (index_roots(threads))
		return threads;
err:
	guest_threads__delete(threads);
	return NULL;
}

void guest_threads__delete(struct guest_threads *threads)
{
	if (!threads)
		return;

	free(threads->by_stack);
	free(threads->by_root);
	free(threads);
}

/* How many of @nr sorted notes come before @key, or are equal to it. */
static size_t count_before(const struct note *notes, size_t nr, const struct note *key,
			   int (*cmp)(const void *a, const void *b))
{
	size_t low = 0, high = nr;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (cmp(&notes[mid], key) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* A thread of the kernel keeps the page tables of whatever ran before. */
static bool can_be(const struct note *note, u64 root)
{
	return *note->comm && (!note->root || note->root == root);
}

/* A task that came after perf record's last look is in the notes of the next one. */
static const struct note *find_by_stack(const struct guest_threads *threads, u64 sp, u64 root,
					u64 time)
{
	const struct note *notes = threads->by_stack;
	struct note key = { .stack = sp, .time = ~0ULL };
	size_t i = count_before(notes, threads->nr, &key, cmp_stacks);

	if (!i || sp - notes[i - 1].stack >= STACK_SIZE)
		return NULL;

	key.stack = notes[i - 1].stack;
	key.time = time;
	i = count_before(notes, threads->nr, &key, cmp_stacks);
	if (i && notes[i - 1].stack == key.stack && can_be(&notes[i - 1], root))
		return &notes[i - 1];
	if (i < threads->nr && notes[i].stack == key.stack && can_be(&notes[i], root))
		return &notes[i];
	return NULL;
}

static const struct note *find_by_root(const struct guest_threads *threads, u64 root, u64 time)
{
	const struct note *notes = threads->by_root;
	struct note key = { .root = root, .time = time };
	size_t i = count_before(notes, threads->nr_roots, &key, cmp_roots);

	if (i && notes[i - 1].root == root)
		return &notes[i - 1];
	return i < threads->nr_roots && notes[i].root == root ? &notes[i] : NULL;
}

static const struct note *find_note(const struct guest_threads *threads,
				    const struct perf_sample *sample)
{
	const struct perf_record_guest_stack_info *info = sample->guest_stack.info;
	const struct note *note = NULL;
	u64 root = info->root & ROOT_ADDRESS;
	/* An interrupt's stack leads to that of the task. */
	u64 sp = info->pieces[1].size ? info->pieces[1].addr : info->sp;

	if (sample->cpumode == PERF_RECORD_MISC_GUEST_KERNEL)
		note = find_by_stack(threads, sp, root, sample->time) ?:
		       find_by_stack(threads, sp, root & ~ROOT_PTI_USER, sample->time);
	if (!note)
		note = find_by_root(threads, root, sample->time) ?:
		       find_by_root(threads, root & ~ROOT_PTI_USER, sample->time);
	return note;
}

static struct guest_threads *machine__guest_threads(struct machine *machine)
{
	char path[PATH_MAX];
	FILE *file;

	if (machine->guest_threads_tried)
		return machine->guest_threads;

	machine->guest_threads_tried = true;
	if (!*machine->root_dir ||
	    snprintf(path, sizeof(path), "%s/tasks", machine->root_dir) >= (int)sizeof(path))
		return NULL;

	file = fopen(path, "re");
	if (file) {
		machine->guest_threads = guest_threads__load(file);
		fclose(file);
	}
	return machine->guest_threads;
}

/**
 * sample__name_guest_task - let a sample of a guest have the task of the guest that it hit
 * @sample:	a sample whose deferred parts are there
 * @machine:	the guest
 *
 * The sample's pid and tid are those of the VMM until then, and stay so if it carries no
 * stack of the guest, or if nothing is known of the task.
 */
void sample__name_guest_task(struct perf_sample *sample, struct machine *machine)
{
	struct guest_threads *threads;
	const struct note *note;
	struct thread *thread;
	const char *comm;

	if (!sample->guest_stack.info || !machine || machine__is_host(machine) ||
	    symbol_conf.guest_code)
		return;

	threads = machine__guest_threads(machine);
	note = threads ? find_note(threads, sample) : NULL;
	thread = note ? machine__findnew_thread(machine, note->pid, note->tid) : NULL;
	if (!thread)
		return;

	/* Tasks change their names.  Each CPU has an idle task of its own, and all are task 0. */
	comm = note->tid ? note->comm : "swapper";
	if (strcmp(thread__comm_str(thread), comm))
		thread__set_comm(thread, comm, sample->time);
	thread__put(thread);
	sample->pid = note->pid;
	sample->tid = note->tid;
}
