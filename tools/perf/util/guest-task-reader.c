// SPDX-License-Identifier: GPL-2.0
/*
 * Find the guest's task that a sample hit, among the tasks that perf record has written, see
 * guest_task_writer__update().
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/time64.h>
#include <linux/unaligned.h>
#include <linux/zalloc.h>
#include <perf/event.h>

#include "cgroup.h"
#include "event.h"
#include "guest-folder.h"
#include "guest-map-reader.h"
#include "guest-reads.h"
#include "guest-regs.h"
#include "guest-task-reader.h"
#include "guest-user.h"
#include "machine.h"
#include "sample.h"
#include "symbol_conf.h"
#include "thread.h"

/* THREAD_SIZE without KASAN; arm64's is that of a page at least. */
#define STACK_SIZE	16384

/* guest_task_writer__update() writes shorter lines, and fewer of them. */
#define MAX_LINE	128
#define MAX_NOTES	(1 << 20)

/* guest_cgroup_writer__note() writes fewer lines. */
#define MAX_CGROUPS	(1 << 16)

/*
 * Ids of guests' cgroups in samples: this bit, the number of the kernel, and the id in the guest,
 * which counts up from one.
 */
#define GUEST_CGROUP	BIT_ULL(63)
#define CGROUP_ID_BITS	40

/* While perf samples live, don't read files again that exceed this many bytes in total. */
#define MAX_LIVE_SIZE	(1 << 20)

/*
 * The address of the topmost page table in CR3, and in arm64's TTBR0, which may have an ASID above
 * it.  With PTI, x86-64's user mode has another one, in the next page.
 */
#define ROOT_ADDRESS	GENMASK_ULL(51, 12)
#define ROOT_PTI_USER	BIT_ULL(12)
#define ARM64_ROOT_ADDRESS GENMASK_ULL(47, 1)

/* TASK_COMM_LEN */
#define COMM_SIZE	16

/**
 * struct note - a task of a guest since some time
 * @time:	when the task was first seen like this
 * @stack:	first address of its kernel stack
 * @root:	guest-physical address of its page tables; zero for threads of the kernel
 * @pid:	its pid in the guest
 * @tid:	its tid in the guest
 * @comm:	its name; empty if the stack is no task's any more
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
 * struct guest_task_reader - all that was written of a guest's tasks
 * @by_stack:	notes sorted by stack and time
 * @by_root:	notes that samples of user mode can have hit, sorted by page tables and time
 * @nr:		number of notes in @by_stack
 * @nr_roots:	number of notes in @by_root
 * @maps:	the files that processes run; NULL if none were written
 * @stack_size:	size of a task's stack
 * @va_bits:	how many bits of an address arm64's CPU translates; zero if that isn't known
 */
struct guest_task_reader {
	struct note	*by_stack;
	struct note	*by_root;
	size_t		nr;
	size_t		nr_roots;
	struct guest_map_reader *maps;
	u64		stack_size;
	unsigned int	va_bits;
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

/*
 * Read a line that guest_task_writer__update() has written.  Check it: the directory may have been
 * unpacked from elsewhere.
 */
static bool read_note(const char *line, struct note *note)
{
	int nr, comm = 0;
	u64 pid, tid;

	memset(note, 0, sizeof(*note));
	nr = sscanf(line, "%" SCNu64 " %" SCNx64 " %" SCNx64 " %" SCNu64 " %" SCNu64 "%n",
		    &note->time, &note->stack, &note->root, &pid, &tid, &comm);
	if (nr == 2)
		return note->stack;
	if (nr != 5 || line[comm] != ' ' || !note->stack || pid > INT_MAX || tid > INT_MAX)
		return false;

	note->pid = pid;
	note->tid = tid;
	snprintf(note->comm, sizeof(note->comm), "%.*s", (int)strcspn(&line[comm + 1], "\n"),
		 &line[comm + 1]);
	for (const char *c = note->comm; *c; c++) {
		if (*c < ' ' || *c > '~')
			return false;
	}
	return *note->comm;
}

/*
 * Fill in @threads->by_root.  A sample of user mode identifies only the process, by its page
 * tables.  These are no longer the process's once the stack of its first thread is another task's
 * or no task's, or once that thread has called exec.
 */
static bool index_roots(struct guest_task_reader *threads)
{
	struct note *roots = calloc(2 * threads->nr, sizeof(*roots));
	const struct note *last = NULL;

	if (!roots)
		return false;

	threads->by_root = roots;
	for (size_t i = 0; i < threads->nr; i++) {
		const struct note *note = &threads->by_stack[i];

		if (last && last->stack == note->stack && last->root && last->pid == last->tid &&
		    last->root != note->root)
			roots[threads->nr_roots++] = (struct note){
				.time = note->time,
				.root = last->root,
			};
		if (note->root && note->pid == note->tid)
			roots[threads->nr_roots++] = *note;
		last = note;
	}
	qsort(roots, threads->nr_roots, sizeof(*roots), cmp_roots);
	return true;
}

/* Read the line that an arm64 guest has; return false for any other. */
static bool read_arm64(const char *line, struct guest_task_reader *threads)
{
	unsigned int va_bits, page_shift;

	if (sscanf(line, "arm64 %u %u", &va_bits, &page_shift) != 2)
		return false;
	if (va_bits >= 36 && va_bits <= 52)
		threads->va_bits = va_bits;
	if (page_shift == 16)
		threads->stack_size = 1 << page_shift;
	return true;
}

static struct guest_task_reader *guest_task_reader__load(FILE *file)
{
	struct guest_task_reader *threads = zalloc(sizeof(*threads));
	char line[MAX_LINE];

	if (threads)
		threads->stack_size = STACK_SIZE;
	while (threads && threads->nr < MAX_NOTES && fgets(line, sizeof(line), file)) {
		struct note note, *notes = threads->by_stack;

		if (read_arm64(line, threads) || !read_note(line, &note))
			continue;
		/* The array is full if the number is zero or a power of two. */
		if (!(threads->nr & (threads->nr - 1))) {
			notes = realloc(notes, max(2 * threads->nr, (size_t)1) * sizeof(*notes));
			if (!notes)
				break;
			threads->by_stack = notes;
		}
		notes[threads->nr++] = note;
	}
	if (!threads || !threads->nr)
		goto err;
	qsort(threads->by_stack, threads->nr, sizeof(*threads->by_stack), cmp_stacks);
	if (index_roots(threads))
		return threads;
err:
	guest_task_reader__delete(threads);
	return NULL;
}

void guest_task_reader__delete(struct guest_task_reader *threads)
{
	if (!threads)
		return;

	guest_map_reader__delete(threads->maps);
	free(threads->by_stack);
	free(threads->by_root);
	free(threads);
}

/* Return how many of @nr sorted notes come before @key or are equal to it. */
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

/*
 * Find the task that had the stack at perf record's last look before @time, and that of the next
 * look, @next; both are NULL if the stack was not noted then.
 */
static const struct note *find_owners(const struct guest_task_reader *threads, u64 sp, u64 time,
				      const struct note **next)
{
	const struct note *notes = threads->by_stack;
	struct note key = { .stack = sp, .time = ~0ULL };
	size_t i = count_before(notes, threads->nr, &key, cmp_stacks);

	*next = NULL;
	if (!i || sp - notes[i - 1].stack >= threads->stack_size)
		return NULL;

	key.stack = notes[i - 1].stack;
	key.time = time;
	i = count_before(notes, threads->nr, &key, cmp_stacks);
	if (i < threads->nr && notes[i].stack == key.stack)
		*next = &notes[i];
	return i && notes[i - 1].stack == key.stack ? &notes[i - 1] : NULL;
}

/*
 * Find the task that had the stack at perf record's last look before @time.  The page tables at
 * @root must be the task's, unless it is a thread of the kernel, which runs with the page tables of
 * the task that ran before it.  If there is no such task, find the one that had the stack at the
 * next look, if it has these page tables.
 */
static const struct note *find_by_stack(const struct guest_task_reader *threads, u64 sp, u64 root,
					u64 time)
{
	const struct note *next, *note = find_owners(threads, sp, time, &next);

	if (note && *note->comm && (!note->root || note->root == root))
		return note;

	return next && next->root && next->root == root && next->time - time <= GUEST_MAX_LATE ?
	       next : NULL;
}

static const struct note *find_by_root(const struct guest_task_reader *threads, u64 root, u64 time)
{
	const struct note *notes = threads->by_root, *note;
	struct note key = { .root = root, .time = time };
	size_t i = count_before(notes, threads->nr_roots, &key, cmp_roots);

	note = i ? &notes[i - 1] : NULL;
	if (note && note->root == root && *note->comm)
		return note;

	note = i < threads->nr_roots ? &notes[i] : NULL;
	return note && note->root == root && *note->comm && note->time - time <= GUEST_MAX_LATE ?
	       note : NULL;
}

/* Return the address of the topmost page table; put user mode's other root into @other. */
static u64 find_root(const struct guest_read *read, u64 *other)
{
	bool arm64 = guest_read__is_arm64(read);
	u64 root = read->record->root & (arm64 ? ARM64_ROOT_ADDRESS : ROOT_ADDRESS);

	*other = arm64 ? root : root & ~ROOT_PTI_USER;
	return root;
}

/* Return the IP of user mode in a guest's sample; zero if the sample has none. */
static u64 user_ip(const struct perf_sample *sample)
{
	const struct ip_callchain *chain = sample->callchain;

	if (sample->cpumode == PERF_RECORD_MISC_GUEST_USER)
		return sample->ip;

	for (u64 i = 0; chain && i + 1 < chain->nr; i++) {
		if (chain->ips[i] == PERF_CONTEXT_GUEST_USER)
			return chain->ips[i + 1];
	}
	return 0;
}

/* Return true if the look after @time found the stack to be another task's, or no task's. */
static bool ends_soon(const struct guest_task_reader *threads, const struct note *note, u64 time)
{
	struct note key = { .stack = note->stack, .time = time };
	size_t i = count_before(threads->by_stack, threads->nr, &key, cmp_stacks);
	const struct note *next = i < threads->nr ? &threads->by_stack[i] : NULL;

	return next && next->stack == note->stack && next->tid != note->tid &&
	       next->time - time <= GUEST_MAX_LATE;
}

/*
 * Return true if the sample is of another task than the note's.  If the note's task is gone at the
 * look after the sample, another task may already have had its stack and page tables.  If the
 * note's task was not there at the look before the sample, another task may still have had them.
 * In both cases, the sample is another task's if user mode ran none of the note's known files.
 */
static bool is_anothers(const struct guest_task_reader *threads, const struct note *note,
			const struct perf_sample *sample)
{
	u64 ip = user_ip(sample);

	return ip && (note->time > sample->time || ends_soon(threads, note, sample->time)) &&
	       guest_map_reader__lacks(threads->maps, note->root, note->pid, sample->time, ip);
}

static u64 kernel_sp(const struct guest_read *read)
{
	return guest_read__reg(read, guest_read__is_arm64(read) ? PERF_REG_ARM64_SP :
								  PERF_REG_X86_SP);
}

/*
 * Return true if the kernel was switching to another task: that one is current already, and has
 * user mode's registers on its stack, but SP is still on the stack of the one before.  The stacks
 * of interrupts are no task's.
 */
static bool is_switching(const struct guest_task_reader *threads, const struct perf_sample *sample)
{
	const struct guest_read *read = &sample->guest_read;
	const struct guest_piece *saved = &read->pieces[GUEST_READ_USER_REGS];
	const struct note *next;
	u64 sp = kernel_sp(read);

	return sample->cpumode == PERF_RECORD_MISC_GUEST_KERNEL && saved->size &&
	       (sp ^ saved->addr) >= threads->stack_size &&
	       find_owners(threads, sp, sample->time, &next);
}

/*
 * Return an address on the stack of the task that was sampled.  SP may be on the stack of an
 * interrupt, but user mode's registers and the stack that was interrupted are on the task's.
 */
static u64 task_sp(const struct guest_task_reader *threads, const struct perf_sample *sample)
{
	const struct guest_read *read = &sample->guest_read;

	if (is_switching(threads, sample))
		return kernel_sp(read);
	if (read->pieces[GUEST_READ_USER_REGS].size)
		return read->pieces[GUEST_READ_USER_REGS].addr;
	if (read->pieces[GUEST_READ_INTERRUPTED].size)
		return read->pieces[GUEST_READ_INTERRUPTED].addr;
	return kernel_sp(read);
}

static const struct note *find_note(const struct guest_task_reader *threads,
				    const struct perf_sample *sample)
{
	u64 other, root = find_root(&sample->guest_read, &other);
	u64 sp = task_sp(threads, sample);
	const struct note *note, *next;

	/* The page tables may already be those of the next task. */
	if (is_switching(threads, sample)) {
		note = find_owners(threads, sp, sample->time, &next);
		return note && *note->comm && !ends_soon(threads, note, sample->time) ? note :
											NULL;
	}
	if (sample->cpumode == PERF_RECORD_MISC_GUEST_KERNEL)
		return find_by_stack(threads, sp, root, sample->time) ?:
		       find_by_stack(threads, sp, other, sample->time);

	return find_by_root(threads, root, sample->time) ?:
	       find_by_root(threads, other, sample->time);
}

/*
 * Make an id that no cgroup of the host, of another guest, or of another kernel of this guest has:
 * each kernel begins to count anew.
 */
static u64 cgroup_key(const struct machine *machine, u64 id)
{
	return GUEST_CGROUP | (u64)machine->guest_cgroups << CGROUP_ID_BITS |
	       (id & GENMASK_ULL(CGROUP_ID_BITS - 1, 0));
}

/* Read a file that guest_cgroup_writer__note() has written. */
static void load_cgroups(struct machine *machine, FILE *file)
{
	static u32 nr_kernels;
	char line[PATH_MAX + 32];
	int path;
	u64 id;

	if (!machine->guest_cgroups)
		machine->guest_cgroups = ++nr_kernels;
	for (unsigned int i = 0; i < MAX_CGROUPS && fgets(line, sizeof(line), file); i++) {
		if (sscanf(line, "%" SCNu64 " %n", &id, &path) != 1 || line[path] != '/')
			continue;
		line[strcspn(line, "\n")] = 0;
		for (char *c = &line[path]; *c; c++) {
			if (*c < ' ' || *c > '~')
				*c = '?';
		}
		cgroup__findnew(machine->machines->host.env, cgroup_key(machine, id), &line[path]);
	}
}

static struct guest_task_reader *machine__guest_task_reader(struct machine *machine)
{
	FILE *file;

	if (machine->guest_task_reader_tried)
		return machine->guest_task_reader;

	machine->guest_task_reader_tried = true;
	if (!guest_folder__is_used(machine))
		return NULL;

	file = guest_folder__open(machine, "tasks");
	if (file) {
		machine->guest_task_reader = guest_task_reader__load(file);
		fclose(file);
	}
	file = machine->guest_task_reader ? guest_folder__open(machine, "maps") : NULL;
	if (file) {
		machine->guest_task_reader->maps = guest_map_reader__load(file);
		fclose(file);
	}
	file = machine->guest_task_reader && machine->machines && machine->machines->host.env ?
	       guest_folder__open(machine, "cgroups") : NULL;
	if (file) {
		load_cgroups(machine, file);
		fclose(file);
	}
	return machine->guest_task_reader;
}

static off_t size_of_notes(const struct machine *machine, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/%s", machine->root_dir, name) >= (int)sizeof(path) ||
	    lstat(path, &st))
		return 0;
	return st.st_size;
}

/*
 * While perf samples live, the files with a guest's tasks grow.  Check once for each second of
 * samples whether they have grown; if so, drop what was read, so that they are read again.  Don't
 * do that beyond MAX_LIVE_SIZE: a guest can make the files large, and reading them takes time.
 */
static void machine__load_later_threads(struct machine *machine, u64 time)
{
	off_t size;

	if (!guest_folder__is_live() || time == ~0ULL ||
	    (machine->guest_task_reader_time &&
	     time < machine->guest_task_reader_time + NSEC_PER_SEC))
		return;

	machine->guest_task_reader_time = time;
	size = size_of_notes(machine, "tasks") + size_of_notes(machine, "maps") +
	       size_of_notes(machine, "cgroups");
	if (size == machine->guest_task_reader_size || size > MAX_LIVE_SIZE)
		return;

	machine->guest_task_reader_size = size;
	guest_task_reader__delete(machine->guest_task_reader);
	machine->guest_task_reader = NULL;
	machine->guest_task_reader_tried = false;
}

/*
 * Return true if the page tables were another process's: the kernel switches these before it
 * switches to another task.  The task may also have the page tables of a process that has ended:
 * then the next look finds that process gone, or the task with these page tables.
 */
static bool are_tables_of_another(const struct guest_task_reader *threads, const struct note *note,
				  const struct note *task, u64 time)
{
	const struct note *end = &threads->by_root[threads->nr_roots], *first = note;

	for (; note && note < end && note->root == first->root &&
	     note->time <= time + GUEST_MAX_LATE; note++) {
		if (note->pid == task->pid || !*note->comm)
			return false;
	}
	return first;
}

/*
 * Fill in @task with the task that was current in the guest; return false if that was not read.
 * Page tables tell which files are mapped: find those of the process, with or without PTI.  Set
 * @foreign if user mode's stack is not the task's, as the page tables are not.
 */
static bool read_current(const struct guest_task_reader *threads,
			 const struct perf_sample *sample, struct note *task, bool *foreign)
{
	const struct guest_read *read = &sample->guest_read;
	const struct guest_piece *pids = &read->pieces[GUEST_READ_PIDS];
	const struct guest_piece *comm = &read->pieces[GUEST_READ_COMM];
	u64 other, root = find_root(read, &other);
	const struct note *note;

	if (pids->size != 2 * sizeof(u32) || comm->size != COMM_SIZE ||
	    is_switching(threads, sample))
		return false;

	*task = (struct note) {
		.root	= root,
		.tid	= get_unaligned_le32(pids->data),
		.pid	= get_unaligned_le32(pids->data + sizeof(u32)),
	};
	if (task->tid > INT_MAX || task->pid > INT_MAX || !*comm->data)
		return false;

	note = find_by_root(threads, root, sample->time) ?:
	       find_by_root(threads, other, sample->time);
	if (note && note->pid == task->pid)
		task->root = note->root;
	*foreign = are_tables_of_another(threads, note, task, sample->time);
	memcpy(task->comm, comm->data, COMM_SIZE);
	for (char *c = task->comm; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
	return true;
}

/*
 * Find the task that a sample hit; return false if it isn't known.  Set @foreign if user mode's
 * stack, or its registers, are another task's.
 */
static bool find_task(struct machine *machine, const struct perf_sample *sample,
		      struct note *task, bool *foreign)
{
	const struct guest_task_reader *threads;
	const struct note *note;

	*foreign = false;
	machine__load_later_threads(machine, sample->time);
	threads = machine__guest_task_reader(machine);
	/* Without files of this guest, what was read was not described for its kernel. */
	if (!threads)
		return false;

	if (read_current(threads, sample, task, foreign))
		return true;

	*foreign = is_switching(threads, sample);

	note = find_note(threads, sample);
	if (!note || is_anothers(threads, note, sample))
		return false;

	*task = *note;
	return true;
}

/* Remove user mode's part of the kernel's chain. */
static void drop_user(struct perf_sample *sample)
{
	struct ip_callchain *chain = sample->callchain;

	for (u64 i = 1; sample->merged_callchain && i < chain->nr; i++) {
		if (chain->ips[i] == PERF_CONTEXT_GUEST_USER)
			chain->nr = i;
	}
}

/**
 * machine__guest_va_bits - tell how many bits an address of a guest's program has
 * @machine: an arm64 guest; may be NULL
 *
 * Return: how many bits its CPUs translate; 48 if that isn't known.
 */
unsigned int machine__guest_va_bits(struct machine *machine)
{
	const struct guest_task_reader *threads = machine ? machine__guest_task_reader(machine) :
							    NULL;

	return threads && threads->va_bits ? threads->va_bits : 48;
}

/* Give a sample the cgroup of the guest's task. */
static void name_cgroup(struct perf_sample *sample, const struct machine *machine)
{
	const struct guest_read *read = &sample->guest_read;
	const struct guest_piece *piece = &read->pieces[GUEST_READ_CGROUP];

	if (read->nr > GUEST_READ_CGROUP && piece->size == sizeof(u64) && machine->guest_cgroups)
		sample->cgroup = cgroup_key(machine, get_unaligned_le64(piece->data));
}

/* Give a guest's thread the name of the VMM's thread whose vCPU was sampled. */
static void name_vcpu(const struct perf_sample *sample, struct machine *machine)
{
	struct thread *vcpu, *thread = NULL;

	/* With machine_pid, pid and tid are the guest's own. */
	if (sample->machine_pid || !machine->machines)
		return;

	vcpu = machine__find_thread(&machine->machines->host, sample->pid, sample->tid);
	if (vcpu && thread__comm_set(vcpu))
		thread = machine__findnew_thread(machine, sample->pid, sample->tid);
	if (thread && !thread__comm_set(thread))
		thread__set_comm(thread, thread__comm_str(vcpu), sample->time);
	thread__put(thread);
	thread__put(vcpu);
}

/**
 * sample__name_guest_task - give a guest's sample the pid and tid of the guest's task that it hit
 * @sample:	a sample with its deferred parts
 * @machine:	the guest
 *
 * Before this, the sample has the pid and tid of the VMM's thread.  It keeps them if the guest was
 * not read, or if its task is not known; then the guest's thread gets the comm of the VMM's thread.
 *
 * Return: true if the sample has the guest's pid and tid now.
 */
bool sample__name_guest_task(struct perf_sample *sample, struct machine *machine)
{
	bool known, foreign = false;
	struct thread *thread;
	struct note task;
	const char *comm;

	if (!machine || machine__is_host(machine) || symbol_conf.guest_code)
		return false;

	known = sample->guest_read.record && find_task(machine, sample, &task, &foreign);
	if (foreign && sample->cpumode == PERF_RECORD_MISC_GUEST_KERNEL)
		drop_user(sample);
	if (!known) {
		name_vcpu(sample, machine);
		return false;
	}

	thread = machine__findnew_thread(machine, task.pid, task.tid);
	if (!thread)
		return false;

	/*
	 * Tasks may change their names.  Each CPU has an idle task of its own, and all of them are
	 * task 0.
	 */
	comm = task.tid ? task.comm : "swapper";
	if (strcmp(thread__comm_str(thread), comm))
		thread__set_comm(thread, comm, sample->time);
	guest_map_reader__use(machine->guest_task_reader->maps, machine, thread, task.root,
			      task.pid, sample->time);
	thread__put(thread);
	sample->pid = task.pid;
	sample->tid = task.tid;
	name_cgroup(sample, machine);
	return true;
}
