// SPDX-License-Identifier: GPL-2.0
/*
 * Tell the kernel what to read of guests when they are sampled.  The host's kernel knows no guest's
 * operating system: where Linux has its stacks, user mode's registers and the current task is known
 * from the symbols and the BTF of the guest's kernel.
 */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>

#include <internal/xyarray.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/zalloc.h>
#include <perf/cpumap.h>
#include <perf/threadmap.h>

#ifdef HAVE_LIBBPF_SUPPORT
#include <bpf/btf.h>
#endif

#include "callchain.h"
#include "debug.h"
#include "dwarf-regs.h"
#include "evlist.h"
#include "evsel.h"
#include "guest-btf.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-memslots.h"
#include "guest-policy.h"
#include "guest-reads.h"
#include "guest-regs.h"

#define FD(e, x, y) (*(int *)xyarray__entry((e)->core.fd, x, y))

/* All registers that the kernel can read: the kernel refuses DS, ES, FS and GS. */
#define X86_REGS	(((1ULL << PERF_REG_X86_64_MAX) - 1) &				\
			 ~(1ULL << PERF_REG_X86_DS | 1ULL << PERF_REG_X86_ES |		\
			   1ULL << PERF_REG_X86_FS | 1ULL << PERF_REG_X86_GS))
#define ARM64_REGS	((1ULL << (PERF_REG_ARM64_PC + 1)) - 1)
#define HOST_REGS	(EM_HOST == EM_AARCH64 ? ARM64_REGS : X86_REGS)

/* How far to read user mode's stack.  Frames of one KiB are rare. */
#define USER_STACK_SIZE		8192

/* A record has 64 KiB less some bytes.  This leaves room for all other slots. */
#define MAX_STACK_SIZE		32768
#define MAX_INTERRUPTED_SIZE	8192

/* IRQ_STACK_SIZE of x86-64 without KASAN. */
#define IRQ_STACK_SIZE		16384

/* The size of a task's stack, also without KASAN; arm64 has at least a page. */
#define THREAD_SIZE		16384

/**
 * struct vm - a VM that may be sampled
 * @next:	the next one
 * @pid:	pid of its VMM
 * @known:	true if perf knows the guest's kernel, and the VMM has no other VM
 * @reads:	what to read of the guest
 */
struct vm {
	struct vm		*next;
	pid_t			pid;
	bool			known;
	struct perf_guest_reads	reads;
};

/* The thread that serves processes which read guests, see guest-watch.c, notes what they tell. */
static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	struct vm		*vms;
	unsigned int		nr_vms;
	struct evlist		*evlist;
	const char		*refusal;
} state;

static const char *const slot_names[NR_GUEST_READ_SLOTS] = {
	[GUEST_READ_STACK]		= "stack",
	[GUEST_READ_INTERRUPTED]	= "interrupted stack",
	[GUEST_READ_USER_REGS]		= "user registers",
	[GUEST_READ_USER_STACK]		= "user stack",
	[GUEST_READ_CURRENT_STACK]	= "current user stack",
	[GUEST_READ_PIDS]		= "pids",
	[GUEST_READ_COMM]		= "comm",
	[GUEST_READ_CGROUP]		= "cgroup",
};

const char *guest_read_slot__name(unsigned int slot)
{
	return slot < NR_GUEST_READ_SLOTS ? slot_names[slot] : "unknown";
}

/**
 * guest_reads__are_wanted - check whether events should read guests
 * @param: how callchains are recorded
 *
 * Return: true if stacks are to be unwound by ORC, which arm64 has not, or if the kernel of a guest
 * is known, so that tasks can be named and callchains can go on in user mode.
 */
bool guest_reads__are_wanted(const struct callchain_param *param)
{
	bool known = false;

	for (const struct vm *vm = state.vms; vm; vm = vm->next)
		known |= vm->known;
	return known || (EM_HOST == EM_X86_64 && param->guest_stack_size);
}

#ifdef HAVE_LIBBPF_SUPPORT
/* Return the offset of a member; -1 if there is none. */
static s64 find_member(const struct btf *btf, const char *type, const char *name)
{
	u32 offset;
	int id;

	if (!btf)
		return -1;

	id = btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT);
	return guest_btf__find(btf, id, name, &offset) < 0 ? -1 : (s64)offset;
}

/* Return the size of a structure; zero if there is none of that name. */
static u32 find_size(const struct btf *btf, const char *type)
{
	int id = btf ? btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT) : -1;

	return id < 0 ? 0 : btf__type_by_id(btf, id)->size;
}

static struct btf *read_btf(struct guest_kernel *kernel)
{
	return guest_btf__read(kernel);
}

static void free_btf(struct btf *btf)
{
	btf__free(btf);
}
#else
static s64 find_member(const struct btf *btf __maybe_unused, const char *type __maybe_unused,
		       const char *name __maybe_unused)
{
	return -1;
}

static u32 find_size(const struct btf *btf __maybe_unused, const char *type __maybe_unused)
{
	return 0;
}

static struct btf *read_btf(struct guest_kernel *kernel __maybe_unused)
{
	return NULL;
}

static void free_btf(struct btf *btf __maybe_unused) {}
#endif

/*
 * Find where a per-CPU variable lies from the GS base on; return false if that isn't known.  Linux
 * 6.2 to 6.14 has @hot in struct pcpu_hot, others have the variable @name.  Until 6.14, addresses
 * of per-CPU symbols count from zero.  Since then, they are addresses of the kernel's image, and
 * the GS base is the offset to the CPU's copy.
 */
static bool find_percpu(struct guest_kernel *kernel, const struct btf *btf, const char *name,
			const char *hot, __u64 *address)
{
	const struct guest_symbol *symbol = guest_kernel__symbol(kernel, name);
	s64 member = 0;

	if (!symbol) {
		symbol = guest_kernel__symbol(kernel, "pcpu_hot");
		member = find_member(btf, "pcpu_hot", hot);
	}
	if (!symbol || member < 0)
		return false;

	*address = symbol->addr + member;
	return true;
}

/*
 * Describe how to reach the end of the current task's stack: fill in @read up to its last
 * dereference, and return the offset of the end from there.  Linux 5.10 keeps the end in the TSS,
 * in a word that is not aligned, and KVM reads aligned words only.  There, begin at the stack's
 * lowest address, and return the stack's size.
 */
static s32 find_stack_end(struct perf_guest_read *read, struct guest_kernel *kernel,
			  const struct btf *btf)
{
	s64 stack = find_member(btf, "task_struct", "stack");

	*read = (struct perf_guest_read) {
		.base	= PERF_GUEST_READ_PERCPU,
		.flags	= PERF_GUEST_READ_IN_KERNEL,
	};
	if (find_percpu(kernel, btf, "cpu_current_top_of_stack", "top_of_stack",
			&read->address)) {
		read->nr_derefs = 1;
		return 0;
	}
	if (stack < 0 || stack > INT_MAX ||
	    !find_percpu(kernel, btf, "current_task", "current_task", &read->address))
		return 0;
	read->offset[1] = stack;
	read->nr_derefs = 2;
	return THREAD_SIZE;
}

/*
 * Find where the last word of a CPU's IRQ stack is, from the address in hardirq_stack_ptr on.  That
 * is the end of the stack in Linux 5.10.
 */
static bool find_last_word(struct guest_kernel *kernel, u64 ptr, s32 *from)
{
	const struct guest_symbol *offsets = guest_kernel__symbol(kernel, "__per_cpu_offset");
	u64 offset, addr;

	if (!offsets || !guest_memory__read(kernel->mem, offsets->addr, &offset, sizeof(offset)) ||
	    !guest_memory__read(kernel->mem, offset + ptr, &addr, sizeof(addr)))
		return false;
	*from = addr % GUEST_PAGE_SIZE ? 0 : -(s32)sizeof(u64);
	return addr;
}

static void describe_stacks(struct perf_guest_reads *reads, struct guest_kernel *kernel,
			    const struct btf *btf)
{
	struct perf_guest_read read;
	__u64 address;
	s32 end;

	/* The last word of an IRQ's stack is the SP from before; the variable points to it. */
	if (find_percpu(kernel, btf, "hardirq_stack_ptr", "hardirq_stack_ptr", &address) &&
	    find_last_word(kernel, address, &end))
		reads->read[GUEST_READ_INTERRUPTED] = (struct perf_guest_read) {
			.base		= PERF_GUEST_READ_PERCPU,
			.nr_derefs	= 2,
			.flags		= PERF_GUEST_READ_IN_KERNEL,
			.size		= MAX_INTERRUPTED_SIZE,
			.within		= IRQ_STACK_SIZE,
			.offset		= { 0, end },
			.address	= address,
		};

	/* The end of the stack is that of pt_regs, whether room is left for FRED or not. */
	end = find_stack_end(&read, kernel, btf);
	if (!read.nr_derefs)
		return;

	read.size = GUEST_PT_REGS_SIZE;
	read.offset[read.nr_derefs] = end - GUEST_PT_REGS_SIZE;
	reads->read[GUEST_READ_USER_REGS] = read;
	read.size = USER_STACK_SIZE;
	read.flags |= PERF_GUEST_READ_AS_USER;
	read.offset[read.nr_derefs++] += GUEST_PT_REGS_SP;
	reads->read[GUEST_READ_USER_STACK] = read;
}

/*
 * Find the current task; return false if that isn't known.  On arm64, it is in SP_EL0 while the
 * kernel runs, and always where the entry from user mode takes it from.
 */
static bool find_current(struct guest_kernel *kernel, const struct btf *btf, __u64 *address)
{
	const char *name = kernel->info.is_arm64 ? "__entry_task" : "current_task";

	return find_percpu(kernel, btf, name, "current_task", address);
}

/* arm64 saves user mode's registers at the end of the task's stack, in struct pt_regs. */
static void describe_arm64_stacks(struct perf_guest_reads *reads, struct guest_kernel *kernel,
				  const struct btf *btf)
{
	u32 end = max(THREAD_SIZE, 1 << kernel->info.page_shift), size = find_size(btf, "pt_regs");
	s64 stack = find_member(btf, "task_struct", "stack");
	struct perf_guest_read read = {
		.base		= PERF_GUEST_READ_PERCPU,
		.nr_derefs	= 2,
		.flags		= PERF_GUEST_READ_IN_KERNEL,
		.size		= GUEST_ARM64_PT_REGS_SIZE,
		.offset		= { 0, stack, end - size },
	};

	if (stack < 0 || stack > INT_MAX || size < GUEST_ARM64_PT_REGS_SIZE || size > end ||
	    !find_current(kernel, btf, &read.address))
		return;

	reads->read[GUEST_READ_USER_REGS] = read;
	read.size = USER_STACK_SIZE;
	read.flags |= PERF_GUEST_READ_AS_USER;
	read.offset[read.nr_derefs++] += GUEST_ARM64_PT_REGS_SP;
	reads->read[GUEST_READ_USER_STACK] = read;
}

/* The id of a cgroup is that of its directory. */
static void describe_cgroup(struct perf_guest_reads *reads, const struct perf_guest_read *of_task,
			    const struct btf *btf)
{
	const s64 offsets[] = {
		find_member(btf, "task_struct", "cgroups"),
		find_member(btf, "css_set", "dfl_cgrp"),
		find_member(btf, "cgroup", "kn"),
		find_member(btf, "kernfs_node", "id"),
	};
	struct perf_guest_read read = *of_task;

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		if (offsets[i] < 0 || offsets[i] > INT_MAX)
			return;
		read.offset[1 + i] = offsets[i];
	}
	read.nr_derefs = ARRAY_SIZE(offsets);
	read.size = sizeof(u64);
	reads->read[GUEST_READ_CGROUP] = read;
}

static void describe_task(struct perf_guest_reads *reads, struct guest_kernel *kernel,
			  const struct btf *btf)
{
	s64 pid = find_member(btf, "task_struct", "pid");
	s64 comm = find_member(btf, "task_struct", "comm");
	struct perf_guest_read read = {
		.base		= PERF_GUEST_READ_PERCPU,
		.nr_derefs	= 1,
		.flags		= PERF_GUEST_READ_IN_KERNEL | PERF_GUEST_READ_IN_USER,
	};

	if (pid < 0 || pid > INT_MAX || comm < 0 || comm > INT_MAX ||
	    find_member(btf, "task_struct", "tgid") != pid + (s64)sizeof(u32) ||
	    !find_current(kernel, btf, &read.address))
		return;

	read.offset[1] = pid;
	read.size = 2 * sizeof(u32);
	reads->read[GUEST_READ_PIDS] = read;
	read.offset[1] = comm;
	read.size = GUEST_COMM_SIZE;
	reads->read[GUEST_READ_COMM] = read;
	describe_cgroup(reads, &read, btf);
}

/**
 * guest_reads__describe - describe what to read of a guest
 * @reads:	receives the description
 * @kernel:	the guest's kernel, with its symbols; NULL if it isn't known
 *
 * Slots that can't be read have no flags: nothing is read for them.
 */
void guest_reads__describe(struct perf_guest_reads *reads, struct guest_kernel *kernel)
{
	bool arm64 = kernel ? kernel->info.is_arm64 : EM_HOST == EM_AARCH64;
	struct btf *btf;

	*reads = (struct perf_guest_reads) {
		.regs	= arm64 ? ARM64_REGS : X86_REGS,
		.nr	= NR_GUEST_READ_SLOTS,
	};
	/* Kernels of arm64 have frame records, which the host's kernel follows. */
	if (!arm64)
		reads->read[GUEST_READ_STACK] = (struct perf_guest_read) {
			.base	= PERF_GUEST_READ_SP,
			.flags	= PERF_GUEST_READ_IN_KERNEL,
			.size	= MAX_STACK_SIZE,
		};
	if (!kernel)
		return;

	reads->read[GUEST_READ_CURRENT_STACK] = (struct perf_guest_read) {
		.base	= PERF_GUEST_READ_SP,
		.flags	= PERF_GUEST_READ_IN_USER | PERF_GUEST_READ_AS_USER,
		.size	= USER_STACK_SIZE,
	};
	btf = read_btf(kernel);
	if (arm64)
		describe_arm64_stacks(reads, kernel, btf);
	else
		describe_stacks(reads, kernel, btf);
	describe_task(reads, kernel, btf);
	free_btf(btf);
}

/**
 * guest_reads__set_size - set how much of the kernel's stacks to read
 * @reads:	what to read of a guest
 * @size:	the number of bytes; zero to leave out these stacks
 */
void guest_reads__set_size(struct perf_guest_reads *reads, u32 size)
{
	for (unsigned int slot = GUEST_READ_STACK; slot <= GUEST_READ_INTERRUPTED; slot++) {
		reads->read[slot].size = slot ? min_t(u32, size, MAX_INTERRUPTED_SIZE) :
						min_t(u32, size, MAX_STACK_SIZE);
		if (!size)
			reads->read[slot].flags = 0;
	}
}

/* Return the reads for events of this thread; -1 stands for all threads. */
static const struct perf_guest_reads *reads_for(pid_t tid, const struct perf_guest_reads *usual)
{
	char path[64];

	for (const struct vm *vm = state.vms; vm; vm = vm->next) {
		if (!vm->known)
			continue;
		/* An event of a CPU sees all VMs: what is right for one is wrong for others. */
		if (tid == -1 && state.nr_vms == 1)
			return &vm->reads;

		scnprintf(path, sizeof(path), "/proc/%d/task/%d", vm->pid, tid);
		if (tid > 0 && !access(path, F_OK))
			return &vm->reads;
	}
	return usual;
}

static void set_reads(struct evsel *evsel, const struct perf_guest_reads *usual)
{
	struct perf_thread_map *threads = evsel->core.threads;
	int nr_threads = perf_thread_map__nr(threads);

	if (!evsel->core.attr.guest_read || !evsel->core.fd)
		return;

	for (int cpu = 0; cpu < xyarray__max_x(evsel->core.fd); cpu++) {
		for (int thread = 0; thread < xyarray__max_y(evsel->core.fd); thread++) {
			int fd = FD(evsel, cpu, thread);
			pid_t tid = thread < nr_threads && !evsel->core.system_wide ?
				    perf_thread_map__pid(threads, thread) : -1;
			struct perf_guest_reads reads = *reads_for(tid, usual);

			guest_reads__set_size(&reads, callchain_param.guest_stack_size);
			if (fd >= 0 && ioctl(fd, PERF_EVENT_IOC_SET_GUEST_READS, &reads))
				guest_reads__refuse("the kernel can't make the reads that perf asks for");
		}
	}
}

static void set_all_reads(void)
{
	struct perf_guest_reads usual;
	struct evsel *evsel;

	guest_reads__describe(&usual, NULL);
	evlist__for_each_entry(state.evlist, evsel)
		set_reads(evsel, &usual);
}

/* Check a piece that the process that reads the guest wants: a guest may have taken it over. */
static bool is_sane(const struct perf_guest_read *read, unsigned int slot)
{
	static const u32 max_sizes[NR_GUEST_READ_SLOTS] = {
		[GUEST_READ_STACK]		= MAX_STACK_SIZE,
		[GUEST_READ_INTERRUPTED]	= MAX_INTERRUPTED_SIZE,
		[GUEST_READ_USER_REGS]		= GUEST_ARM64_PT_REGS_SIZE,
		[GUEST_READ_USER_STACK]		= USER_STACK_SIZE,
		[GUEST_READ_CURRENT_STACK]	= USER_STACK_SIZE,
		[GUEST_READ_PIDS]		= 2 * sizeof(u32),
		[GUEST_READ_COMM]		= GUEST_COMM_SIZE,
		[GUEST_READ_CGROUP]		= sizeof(u64),
	};

	return read->size <= max_sizes[slot] && read->size % sizeof(u64) == 0 &&
	       (read->base == PERF_GUEST_READ_SP || read->base == PERF_GUEST_READ_PERCPU) &&
	       read->nr_derefs <= PERF_GUEST_READ_DEREFS &&
	       (!read->within || read->within == IRQ_STACK_SIZE) &&
	       !(read->flags & ~(PERF_GUEST_READ_IN_KERNEL | PERF_GUEST_READ_IN_USER |
				 PERF_GUEST_READ_AS_USER));
}

/**
 * guest_reads__note - note what to read of a guest
 * @pid:	pid of its VMM
 * @reads:	what to read, from guest_reads__describe(); what that doesn't write is left out
 * @known:	true if the guest's kernel is known
 *
 * After guest_reads__begin(), events read the guest like that: the guest may boot another kernel
 * while it is recorded.
 */
void guest_reads__note(pid_t pid, const struct perf_guest_reads *reads, bool known)
{
	char path[PATH_MAX];
	struct vm *vm;

	pthread_mutex_lock(&state_lock);
	vm = state.vms;
	while (vm && vm->pid != pid)
		vm = vm->next;
	if (!vm) {
		vm = zalloc(sizeof(*vm));
		if (!vm)
			goto out;
		vm->pid = pid;
		vm->next = state.vms;
		state.vms = vm;
		state.nr_vms++;
	}
	vm->known = known && !guest_memslots__find_vm(pid, 1, path);
	vm->reads = (struct perf_guest_reads) { .regs = HOST_REGS, .nr = NR_GUEST_READ_SLOTS };
	for (unsigned int slot = 0; slot < NR_GUEST_READ_SLOTS; slot++) {
		if (is_sane(&reads->read[slot], slot))
			vm->reads.read[slot] = reads->read[slot];
	}
	if (state.evlist)
		set_all_reads();
out:
	pthread_mutex_unlock(&state_lock);
}

/* Find out whether the administrator and the VMMs allow reads. */
static void check_policy(struct evlist *evlist)
{
	struct perf_thread_map *threads = evlist__core(evlist)->threads;
	const char *why = NULL;

	/* If perf has not looked for guests, the user has given files of the guest. */
	if (!state.vms && perf_thread_map__pid(threads, 0) > 0)
		why = guest_policy__read_refusal(perf_thread_map__pid(threads, 0));
	for (const struct vm *vm = state.vms; vm && !why; vm = vm->next)
		why = guest_policy__read_refusal(vm->pid);
	if (why)
		guest_reads__refuse(why);
}

/**
 * guest_reads__begin - have events read guests
 * @evlist: the events, open
 *
 * Say why if guests can't be read: their callchains are those of frame pointers then.
 */
void guest_reads__begin(struct evlist *evlist)
{
	struct evsel *evsel;
	bool any = false;

	evlist__for_each_entry(evlist, evsel)
		any |= evsel->core.attr.guest_read;
	if (!any)
		return;

	pthread_mutex_lock(&state_lock);
	state.evlist = evlist;
	check_policy(evlist);
	/* What is refused now may be allowed later. */
	set_all_reads();
	pthread_mutex_unlock(&state_lock);
}

/**
 * guest_reads__end - forget all events and guests
 */
void guest_reads__end(void)
{
	struct vm *vm;

	pthread_mutex_lock(&state_lock);
	state.evlist = NULL;
	state.nr_vms = 0;
	while ((vm = state.vms)) {
		state.vms = vm->next;
		free(vm);
	}
	pthread_mutex_unlock(&state_lock);
}

/**
 * guest_reads__refuse - say once why guests can't be read
 * @why: the reason
 */
void guest_reads__refuse(const char *why)
{
	if (!state.refusal)
		pr_warning("Guests are not read: %s\n", why);
	state.refusal = why;
}

/**
 * guest_reads__are_refused - check whether events can't read guests
 *
 * Return: true after guest_reads__refuse().
 */
bool guest_reads__are_refused(void)
{
	return state.refusal;
}
