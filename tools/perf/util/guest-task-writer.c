// SPDX-License-Identifier: GPL-2.0
/*
 * Find the tasks of a guest, and the files that they run.  The stack of a task identifies it in
 * samples of the kernel; in samples of user mode, its page tables identify only its process.
 * Lists may change while perf reads them: each look corrects errors and omissions of the one
 * before.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/time64.h>
#include <linux/unaligned.h>
#include <linux/zalloc.h>

#include <bpf/btf.h>

#include "debug.h"
#include "guest-btf.h"
#include "guest-cgroup-writer.h"
#include "guest-kernel.h"
#include "guest-map-writer.h"
#include "guest-memory.h"
#include "guest-task-writer.h"

/*
 * Limits for tasks, as the guest's lists may have no end; for CPUs, as the guest may claim any
 * number; and for the size of the output, as guests may rename their tasks all the time.
 */
#define MAX_TASKS	65536
#define MAX_CPUS	8192
#define MAX_FILE	(16L << 20)

/*
 * Look for changes for NEW_NSEC after a process began, as it maps its files after that: mostly
 * within FRESH_NSEC, on a busy guest later.  Such looks read no more than the last MAX_NEW
 * processes.  They end at the first NR_UNCHANGED in a row that have not changed: those that a shell
 * starts together may call exec later than those after them.
 */
#define MAX_NEW		64
#define FRESH_NSEC	(200 * NSEC_PER_MSEC)
#define NEW_NSEC	NSEC_PER_SEC
#define NR_UNCHANGED	8

/* When the recording ends, spend the budgets of this many looks on programs. */
#define MAX_LAST_LOOKS	8

/* TASK_COMM_LEN */
#define COMM_SIZE	16

/* All fields of a struct task_struct that perf reads lie within this size. */
#define MAX_TASK_SIZE	16384

/*
 * Addresses of the direct map of RAM and of the array of struct page in kernels that have no
 * variables for them: those without CONFIG_DYNAMIC_MEMORY_LAYOUT.
 */
#define PAGE_OFFSET	0xffff888000000000ULL
#define VMEMMAP		0xffffea0000000000ULL

/**
 * struct task - a task of a guest
 * @stack:	address of its kernel stack
 * @root:	guest-physical address of its page tables; zero if it has none of its own
 * @mm:		address of its struct mm_struct
 * @exec_vm:	number of pages that it can execute; zero if that isn't known, or if its files
 *		could not be read, so that the next look reads them again
 * @css_set:	address of its struct css_set
 * @fds:	address of its struct files_struct
 * @own:	address of its struct pid; zero if that isn't known
 * @has_jit:	true if it can execute memory without a file
 * @files:	hash of the list of its files that perf last wrote; zero if perf wrote none
 * @pid:	pid of its process
 * @tid:	its tid
 * @comm:	its name
 */
struct task {
	u64	stack;
	u64	root;
	u64	mm;
	u64	exec_vm;
	u64	css_set;
	u64	fds;
	u64	own;
	bool	has_jit;
	u64	files;
	u32	pid;
	u32	tid;
	char	comm[COMM_SIZE + 1];
};

/**
 * struct task_layout - offsets of the fields of a guest's structures, in bytes
 * @tasks:	in struct task_struct: the list of all processes
 * @thread_node: ... the list of a process's threads
 * @signal:	... the struct signal_struct that threads share
 * @mm:		... the struct mm_struct
 * @stack:	... the kernel stack
 * @pid:	... what user space calls the tid
 * @tgid:	... what it calls the pid
 * @comm:	... the name
 * @css_set:	... the struct css_set; zero if the kernel has no cgroups
 * @files:	... the struct files_struct; zero if that isn't known
 * @own:	... the struct pid; zero if that isn't known
 * @end:	the end of the last of these fields
 * @threads:	in struct signal_struct: the head of the list of threads
 * @pgd:	in struct mm_struct: the topmost page table
 * @exec_vm:	... the number of pages that can be executed
 */
struct task_layout {
	u32	tasks;
	u32	thread_node;
	u32	signal;
	u32	mm;
	u32	stack;
	u32	pid;
	u32	tgid;
	u32	comm;
	u32	css_set;
	u32	files;
	u32	own;
	u32	end;
	u32	threads;
	u32	pgd;
	u32	exec_vm;
};

/**
 * struct guest_task_writer - the tasks of a guest
 * @mem:	the guest's memory
 * @maps:	state for the files that tasks run; NULL if perf can't or need not write these
 * @cgroups:	state for the cgroups that tasks are in; NULL if perf can't write these
 * @file:	the file that tasks are written to
 * @layout:	offsets of the fields of the guest's structures
 * @init_task:	address of the first task
 * @idle:	address of idle_threads, which is per-CPU; zero if that isn't known
 * @offsets:	address of __per_cpu_offset, each CPU's offset to its per-CPU variables
 * @nr_cpus:	number of CPUs
 * @page_offset: address of the direct map of RAM
 * @found:	tasks that the current look finds, sorted by stack
 * @nr_found:	number of these
 * @noted:	tasks of the last look that was written
 * @nr_noted:	number of these
 * @newest:	address of the task that began last
 * @newest_pid:	its pid
 * @newest_seen: when it was first seen, in perf's clock; zero if none was
 * @warned:	true after a warning that tasks are missing
 * @unsettled:	true if the last look found a new process, or could not read the files of one
 */
struct guest_task_writer {
	struct guest_memory	*mem;
	struct guest_map_writer	*maps;
	struct guest_cgroup_writer *cgroups;
	FILE			*file;
	struct task_layout	layout;
	u64			init_task;
	u64			idle;
	u64			offsets;
	u32			nr_cpus;
	u64			page_offset;
	struct task		*found;
	size_t			nr_found;
	struct task		*noted;
	size_t			nr_noted;
	u64			newest;
	u32			newest_pid;
	u64			newest_seen;
	bool			warned;
	bool			unsettled;
};

/* Return the offset of a field of struct task_struct that a kernel need not have, or zero. */
static u32 find_pointer(const struct btf *btf, int task, const char *name)
{
	u32 offset;

	return guest_btf__find(btf, task, name, &offset) < 0 ||
	       offset > MAX_TASK_SIZE - sizeof(u64) ? 0 : offset;
}

static bool find_layout(const struct btf *btf, struct task_layout *layout)
{
	int task = btf__find_by_name_kind(btf, "task_struct", BTF_KIND_STRUCT);
	int signal = btf__find_by_name_kind(btf, "signal_struct", BTF_KIND_STRUCT);
	int mm = btf__find_by_name_kind(btf, "mm_struct", BTF_KIND_STRUCT);
	const struct {
		const char	*name;
		u32		*offset;
		u32		size;
	} members[] = {
		{ "tasks",	 &layout->tasks,	sizeof(u64) },
		{ "thread_node", &layout->thread_node,	sizeof(u64) },
		{ "signal",	 &layout->signal,	sizeof(u64) },
		{ "mm",		 &layout->mm,		sizeof(u64) },
		{ "stack",	 &layout->stack,	sizeof(u64) },
		{ "pid",	 &layout->pid,		sizeof(u32) },
		{ "tgid",	 &layout->tgid,		sizeof(u32) },
		{ "comm",	 &layout->comm,		COMM_SIZE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (guest_btf__find(btf, task, members[i].name, members[i].offset) < 0 ||
		    *members[i].offset > MAX_TASK_SIZE - members[i].size)
			return false;
		layout->end = max(layout->end, *members[i].offset + members[i].size);
	}
	layout->css_set = find_pointer(btf, task, "cgroups");
	layout->files = find_pointer(btf, task, "files");
	layout->own = find_pointer(btf, task, "thread_pid");
	layout->end = max(layout->end, layout->css_set + (u32)sizeof(u64));
	layout->end = max(layout->end, layout->files + (u32)sizeof(u64));
	layout->end = max(layout->end, layout->own + (u32)sizeof(u64));
	return guest_btf__find(btf, signal, "thread_head", &layout->threads) > 0 &&
	       guest_btf__find(btf, mm, "pgd", &layout->pgd) > 0 &&
	       guest_btf__find(btf, mm, "exec_vm", &layout->exec_vm) > 0;
}

static u64 symbol_addr(const struct guest_kernel *kernel, const char *name)
{
	const struct guest_symbol *symbol = guest_kernel__symbol(kernel, name);

	return symbol ? symbol->addr : 0;
}

/*
 * Read where a region of the kernel begins.  Without a variable @name, the region is at @fixed.
 */
static bool read_base(const struct guest_kernel *kernel, const char *name, u64 fixed, u64 *base)
{
	u64 addr = symbol_addr(kernel, name);

	*base = fixed;
	return !addr || guest_memory__read(kernel->mem, addr, base, sizeof(*base));
}

/*
 * Find the direct map of RAM and the array of struct page: where both have guest-physical address
 * zero, or would have it.  arm64's begin with the lowest RAM.
 */
static bool find_regions(const struct guest_kernel *kernel, const struct btf *btf,
			 u64 *page_offset, u64 *vmemmap)
{
	const struct guest_vmcoreinfo *info = &kernel->info;
	int page;

	if (!info->is_arm64)
		return read_base(kernel, "page_offset_base", PAGE_OFFSET, page_offset) &&
		       read_base(kernel, "vmemmap_base", VMEMMAP, vmemmap);

	*page_offset = info->page_offset - info->phys_offset;
	/* Before Linux 6.0, VMCOREINFO has no array: then no page lies in it. */
	*vmemmap = ~0ULL;
	page = btf__find_by_name_kind(btf, "page", BTF_KIND_STRUCT);
	/* The offset is negative if the CPU translates fewer bits than the kernel can. */
	if (page > 0 && info->vmemmap)
		*vmemmap = info->vmemmap - ((s64)info->phys_offset >> info->page_shift) *
						   btf__type_by_id(btf, page)->size;
	return info->page_offset;
}

/**
 * guest_task_writer__new - prepare to write a guest's tasks
 * @kernel:	the guest's kernel, which must outlive the result
 * @file:	the file to write tasks to
 * @maps:	receives the files that the tasks run; NULL to leave these out
 * @dir:	directory with the files of the kernel; what names and unwinds programs goes there
 *
 * Return: the state; NULL if the kernel's BTF or symbols do not describe the tasks.
 */
struct guest_task_writer *guest_task_writer__new(struct guest_kernel *kernel, FILE *file,
						 FILE *maps, const char *dir)
{
	struct guest_task_writer *tasks = zalloc(sizeof(*tasks));
	struct btf *btf = guest_btf__read(kernel);
	u64 nr_cpus = symbol_addr(kernel, "nr_cpu_ids");
	u64 vmemmap;

	if (!tasks || !btf || !find_layout(btf, &tasks->layout) ||
	    !find_regions(kernel, btf, &tasks->page_offset, &vmemmap))
		goto err;

	/* How many bits an address has tells those of a signature from it. */
	if (kernel->info.is_arm64)
		fprintf(file, "arm64 %u %u\n", kernel->info.va_bits, kernel->info.page_shift);
	tasks->mem = kernel->mem;
	tasks->maps = maps ? guest_map_writer__new(kernel, btf, vmemmap, maps, dir) :
			      NULL;
	tasks->cgroups = tasks->layout.css_set ?
			 guest_cgroup_writer__new(kernel->mem, btf, dir) : NULL;
	tasks->file = file;
	tasks->init_task = symbol_addr(kernel, "init_task");
	tasks->idle = symbol_addr(kernel, "idle_threads");
	tasks->offsets = symbol_addr(kernel, "__per_cpu_offset");
	if (!tasks->init_task)
		goto err;
	if (nr_cpus && tasks->idle && tasks->offsets)
		guest_memory__read(kernel->mem, nr_cpus, &tasks->nr_cpus, sizeof(tasks->nr_cpus));
	tasks->nr_cpus = min_t(u32, tasks->nr_cpus, MAX_CPUS);
	btf__free(btf);
	return tasks;
err:
	btf__free(btf);
	guest_task_writer__delete(tasks);
	return NULL;
}

void guest_task_writer__delete(struct guest_task_writer *tasks)
{
	if (!tasks)
		return;

	guest_map_writer__delete(tasks->maps);
	guest_cgroup_writer__delete(tasks->cgroups);
	free(tasks->found);
	free(tasks->noted);
	free(tasks);
}

/*
 * Read the address of a task's topmost page table, as CR3 has it in the kernel, without the PCID.
 * Also read how many pages the task can execute.  Both are zero if the task has no address space
 * of its own, or if that can't be read.
 */
static void read_mm(struct guest_task_writer *tasks, const u8 *raw, struct task *task)
{
	u64 mm = get_unaligned_le64(raw + tasks->layout.mm), pgd;

	task->mm = mm;
	task->root = 0;
	task->exec_vm = 0;
	task->files = 0;
	if (!mm || !guest_memory__read(tasks->mem, mm + tasks->layout.pgd, &pgd, sizeof(pgd)))
		return;

	task->root = pgd - tasks->page_offset;
	guest_memory__read(tasks->mem, mm + tasks->layout.exec_vm, &task->exec_vm,
			   sizeof(task->exec_vm));
}

/* Add the task with the fields in @raw, unless it has ended; return false if there is no memory. */
static bool add_task(struct guest_task_writer *tasks, const u8 *raw)
{
	const struct task_layout *layout = &tasks->layout;
	struct task *task;

	/* A task without a stack has ended, and only waits for its parent. */
	if (!get_unaligned_le64(raw + layout->stack))
		return true;

	/* The array is full if the number is zero or a power of two. */
	if (!(tasks->nr_found & (tasks->nr_found - 1))) {
		task = realloc(tasks->found, max(2 * tasks->nr_found, (size_t)1) * sizeof(*task));
		if (!task)
			return false;
		tasks->found = task;
	}

	task = &tasks->found[tasks->nr_found++];
	task->stack = get_unaligned_le64(raw + layout->stack);
	read_mm(tasks, raw, task);
	task->css_set = layout->css_set ? get_unaligned_le64(raw + layout->css_set) : 0;
	task->fds = layout->files ? get_unaligned_le64(raw + layout->files) : 0;
	task->own = layout->own ? get_unaligned_le64(raw + layout->own) : 0;
	task->has_jit = false;
	task->pid = get_unaligned_le32(raw + layout->tgid);
	task->tid = get_unaligned_le32(raw + layout->pid);
	memcpy(task->comm, raw + layout->comm, COMM_SIZE);
	task->comm[COMM_SIZE] = 0;
	/* Names must have no escape sequences.  A line with an empty name is refused when read. */
	for (char *c = task->comm; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
	if (!*task->comm)
		memcpy(task->comm, "?", sizeof("?"));
	return true;
}

/*
 * Add the threads of a process, except the first one, which is at @leader and has its fields in
 * @raw.
 */
static bool add_threads(struct guest_task_writer *tasks, u64 leader, const u8 *raw)
{
	u64 head = get_unaligned_le64(raw + tasks->layout.signal) + tasks->layout.threads;
	u64 node = get_unaligned_le64(raw + tasks->layout.thread_node);
	u8 thread[MAX_TASK_SIZE];

	while (node != head && tasks->nr_found < MAX_TASKS) {
		u64 task = node - tasks->layout.thread_node;

		if (!guest_memory__read(tasks->mem, task, thread, tasks->layout.end))
			return false;
		if (task != leader && !add_task(tasks, thread))
			return false;
		node = get_unaligned_le64(thread + tasks->layout.thread_node);
	}
	return node == head;
}

/* Each CPU but the first has an idle task that is in no list. */
static void add_idle_tasks(struct guest_task_writer *tasks)
{
	u8 raw[MAX_TASK_SIZE];
	u64 offset, task;

	for (u32 cpu = 1; cpu < tasks->nr_cpus && tasks->nr_found < MAX_TASKS; cpu++) {
		if (guest_memory__read(tasks->mem, tasks->offsets + cpu * sizeof(offset), &offset,
				       sizeof(offset)) &&
		    guest_memory__read(tasks->mem, tasks->idle + offset, &task, sizeof(task)) &&
		    task && guest_memory__read(tasks->mem, task, raw, tasks->layout.end))
			add_task(tasks, raw);
	}
}

static int cmp_tasks(const void *a, const void *b)
{
	const struct task *x = a, *y = b;

	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/*
 * Add the first thread of the process whose struct task_struct is at @task; put the process before
 * it into @task.
 */
static bool add_process(struct guest_task_writer *tasks, u64 *task)
{
	u8 raw[MAX_TASK_SIZE];

	if (!guest_memory__read(tasks->mem, *task, raw, tasks->layout.end) ||
	    !add_task(tasks, raw))
		return false;

	*task = get_unaligned_le64(raw + tasks->layout.tasks + sizeof(u64)) - tasks->layout.tasks;
	return true;
}

/* Return true if the list of all tasks was read to its end. */
static bool find_tasks(struct guest_task_writer *tasks)
{
	u64 task = tasks->init_task;
	u8 raw[MAX_TASK_SIZE];

	tasks->nr_found = 0;
	do {
		if (!guest_memory__read(tasks->mem, task, raw, tasks->layout.end) ||
		    !add_task(tasks, raw) || !add_threads(tasks, task, raw))
			return false;
		task = get_unaligned_le64(raw + tasks->layout.tasks) - tasks->layout.tasks;
	} while (task != tasks->init_task && tasks->nr_found < MAX_TASKS);

	add_idle_tasks(tasks);
	if (tasks->nr_found)
		qsort(tasks->found, tasks->nr_found, sizeof(*tasks->found), cmp_tasks);
	return task == tasks->init_task;
}

static bool is_same(const struct task *a, const struct task *b)
{
	return a->root == b->root && a->pid == b->pid && a->tid == b->tid &&
	       !strcmp(a->comm, b->comm);
}

static void note_task(struct guest_task_writer *tasks, const struct task *task, u64 time)
{
	fprintf(tasks->file, "%" PRIu64 " %" PRIx64 " %" PRIx64 " %u %u %s\n", time, task->stack,
		task->root, task->pid, task->tid, task->comm);
}

/* Return a hash that is never zero: zero means that nothing was written. */
static u64 hash_of(const char *text)
{
	u64 hash = 0xcbf29ce484222325;

	for (; *text; text++)
		hash = (hash ^ (u8)*text) * 0x100000001b3;
	return hash | 1;
}

/*
 * Write the files that a process runs if they have changed since the last look.  Read them only if
 * the process is new, or if the number of pages that it can execute has changed.  If they can't be
 * read, the next look reads them again.
 */
static void note_maps(struct guest_task_writer *tasks, const struct task *old, struct task *new,
		      u64 time)
{
	bool same = old && old->root == new->root && old->pid == new->pid;
	char *files;

	if (!tasks->maps || !new->root || new->pid != new->tid)
		return;

	tasks->unsettled |= !same;
	new->files = same ? old->files : 0;
	new->has_jit = same && old->has_jit;
	if (same && old->exec_vm == new->exec_vm)
		return;

	files = guest_map_writer__read(tasks->maps, new->mm);
	if (!files) {
		tasks->unsettled = true;
		new->exec_vm = 0;
		return;
	}
	if (new->files != hash_of(files))
		guest_map_writer__note(tasks->maps, new->root, new->pid, time, files);
	new->files = hash_of(files);
	new->has_jit = guest_map_writer__has_jit(files);
	free(files);
}

/* Return where a task with this stack is among those of the last look, or where it belongs. */
static size_t find_noted(const struct guest_task_writer *tasks, u64 stack)
{
	size_t low = 0, high = tasks->nr_noted;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (tasks->noted[mid].stack < stack)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Put a task among those of the last look. */
static bool insert_noted(struct guest_task_writer *tasks, size_t i, const struct task *task)
{
	/* Arrays are full if the number is zero or a power of two. */
	if (!(tasks->nr_noted & (tasks->nr_noted - 1))) {
		struct task *larger = realloc(tasks->noted, max(2 * tasks->nr_noted, (size_t)1) *
					      sizeof(*larger));

		if (!larger)
			return false;
		tasks->noted = larger;
	}
	memmove(&tasks->noted[i + 1], &tasks->noted[i],
		(tasks->nr_noted - i) * sizeof(*tasks->noted));
	tasks->noted[i] = *task;
	tasks->nr_noted++;
	return true;
}

static void note_cgroup(struct guest_task_writer *tasks, const struct task *old, struct task *new)
{
	if ((!old || old->css_set != new->css_set) &&
	    !guest_cgroup_writer__note(tasks->cgroups, new->css_set))
		new->css_set = 0;
}

/* Write a task if it is new or has changed; return true if so. */
static bool note_new(struct guest_task_writer *tasks, struct task *new, u64 time)
{
	size_t i = find_noted(tasks, new->stack);
	struct task *old = i < tasks->nr_noted && tasks->noted[i].stack == new->stack ?
			   &tasks->noted[i] : NULL;
	bool changed = !old || !is_same(old, new) || old->exec_vm != new->exec_vm ||
		       old->css_set != new->css_set;

	if (!changed)
		return false;

	if (!old || !is_same(old, new))
		note_task(tasks, new, time);
	note_maps(tasks, old, new, time);
	note_cgroup(tasks, old, new);
	if (old)
		*old = *new;
	return old || insert_noted(tasks, i, new);
}

/* Write how this look differs from the last one; both are sorted by stack. */
static void note(struct guest_task_writer *tasks, u64 time)
{
	size_t i = 0, j = 0;

	tasks->unsettled = false;
	while (i < tasks->nr_noted || j < tasks->nr_found) {
		const struct task *old = i < tasks->nr_noted ? &tasks->noted[i] : NULL;
		struct task *new = j < tasks->nr_found ? &tasks->found[j] : NULL;

		if (!new || (old && old->stack < new->stack)) {
			fprintf(tasks->file, "%" PRIu64 " %" PRIx64 "\n", time, old->stack);
			i++;
			continue;
		}
		if (old && old->stack > new->stack)
			old = NULL;
		if (!old || !is_same(old, new))
			note_task(tasks, new, time);
		note_maps(tasks, old, new, time);
		note_cgroup(tasks, old, new);
		i += !!old;
		j++;
	}
}

/* Write the names of code that processes have compiled. */
static void note_jits(struct guest_task_writer *tasks)
{
	guest_memory__refresh(tasks->mem);
	for (size_t i = 0; i < tasks->nr_noted; i++) {
		const struct task *task = &tasks->noted[i];

		if (task->has_jit && task->fds)
			guest_map_writer__note_jit(tasks->maps, task->fds, task->own, task->root,
						   task->pid);
	}
}

static void warn_once(struct guest_task_writer *tasks, const char *why)
{
	if (!tasks->warned)
		pr_warning("New tasks of a guest have no names: %s\n", why);
	tasks->warned = true;
}

/**
 * guest_task_writer__update - look at a guest's tasks, and write what has changed
 * @tasks:	the guest's tasks
 * @time:	time of the look, in perf's clock
 *
 * A line has the time, the address of a task's stack, its page tables, pid, tid and name; or only
 * the first two if the stack is no task's any more.  Before these, that of an arm64 guest has how
 * many bits of an address are translated, and the log2 of the size of a page.
 *
 * Return: true if the tasks were found, and what has changed was written.
 */
bool guest_task_writer__update(struct guest_task_writer *tasks, u64 time)
{
	struct task *noted = tasks->noted;

	guest_memory__refresh(tasks->mem);
	if (!find_tasks(tasks)) {
		if (guest_memory__is_exhausted(tasks->mem) || tasks->nr_found == MAX_TASKS)
			warn_once(tasks, "there are too many");
		return false;
	}
	if (ftell(tasks->file) > MAX_FILE) {
		warn_once(tasks, "they change too often");
		return false;
	}

	note(tasks, time);
	tasks->noted = tasks->found;
	tasks->nr_noted = tasks->nr_found;
	tasks->found = noted;
	tasks->nr_found = 0;
	if (tasks->maps) {
		guest_memory__refresh(tasks->mem);
		guest_map_writer__write_programs(tasks->maps);
		note_jits(tasks);
	}
	return !fflush(tasks->file);
}

/**
 * guest_task_writer__finish - write what is still missing of the programs that tasks run
 * @tasks: the guest's tasks
 */
void guest_task_writer__finish(struct guest_task_writer *tasks)
{
	bool all = !tasks->maps;

	if (!all)
		guest_map_writer__retry_programs(tasks->maps);
	for (unsigned int i = 0; i < MAX_LAST_LOOKS && !all; i++) {
		guest_memory__refresh(tasks->mem);
		all = guest_map_writer__write_programs(tasks->maps);
	}
}

/**
 * guest_task_writer__look_for_new - look at the processes that began last
 * @tasks:	the guest's tasks
 * @time:	time of the look, in perf's clock
 *
 * Processes may end before the next regular look.  New ones are at the end of the list, so that
 * this takes much less time than guest_task_writer__update(), which finds all changes.  Threads are
 * left out: they have their process's files.
 */
void guest_task_writer__look_for_new(struct guest_task_writer *tasks, u64 time)
{
	unsigned int unchanged = 0;
	u64 task;
	u32 pid;

	guest_memory__glance(tasks->mem);
	if (ftell(tasks->file) > MAX_FILE ||
	    !guest_memory__read(tasks->mem, tasks->init_task + tasks->layout.tasks + sizeof(u64),
				&task, sizeof(task)))
		return;

	task -= tasks->layout.tasks;
	if (!guest_memory__read(tasks->mem, task + tasks->layout.pid, &pid, sizeof(pid)))
		return;
	/* The struct task_struct of a task that has ended may be used again. */
	if (task != tasks->newest || pid != tasks->newest_pid)
		tasks->newest_seen = time;
	tasks->newest = task;
	tasks->newest_pid = pid;
	if (time > tasks->newest_seen + NEW_NSEC)
		return;

	for (unsigned int i = 0; i < MAX_NEW && unchanged < NR_UNCHANGED; i++) {
		bool changed = false;

		tasks->nr_found = 0;
		if (task == tasks->init_task || !add_process(tasks, &task))
			break;
		for (size_t j = 0; j < tasks->nr_found; j++)
			changed |= note_new(tasks, &tasks->found[j], time);
		unchanged = changed ? 0 : unchanged + 1;
	}
	tasks->nr_found = 0;
	fflush(tasks->file);
}

/**
 * guest_task_writer__has_new - check whether a process has begun a moment ago
 * @tasks:	the guest's tasks
 * @time:	now, in perf's clock
 *
 * Return: true if the newest process is likely to map its files now.
 */
bool guest_task_writer__has_new(const struct guest_task_writer *tasks, u64 time)
{
	return tasks->newest_seen && time <= tasks->newest_seen + FRESH_NSEC;
}

/**
 * guest_task_writer__is_unsettled - check whether to look again soon
 * @tasks:	the guest's tasks
 *
 * A process maps its files when it begins, and may have ended before the next regular look.
 *
 * Return: true if the last look found a new process, or could not read the files of one.
 */
bool guest_task_writer__is_unsettled(const struct guest_task_writer *tasks)
{
	return tasks->unsettled;
}
