// SPDX-License-Identifier: GPL-2.0
/*
 * The process that reads a guest: it writes what is found in the guest's memory, and goes on while
 * the guest is recorded.  Tasks come and go, modules are loaded, and a guest that boots again may
 * run another kernel, or the same kernel at other addresses.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/time64.h>
#include <linux/zalloc.h>

#include "debug.h"
#include "guest-files.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-modules.h"
#include "guest-policy.h"
#include "guest-reader.h"
#include "guest-reads.h"
#include "guest-sandbox.h"
#include "guest-task-writer.h"
#include "perf-sys.h"
#include "record.h"

/*
 * How often to check whether a guest's kernel runs; to look for new processes, and while some
 * begin; and to look at all tasks.  The first interval is short because the time when a kernel was
 * last seen to run is taken as the time when the next kernel began.
 */
#define INTERVAL_MSEC	50
#define NEW_MSEC	5
#define BUSY_MSEC	2
#define TASKS_MSEC	1000

/* Look at tasks once more this long after a look that found new processes. */
#define AGAIN_MSEC	100

/*
 * A kernel without ticks for a second may be gone or asleep.  perf then searches all RAM for
 * another kernel.  After each search without success, it waits twice as long as before until it
 * searches again, up to MAX_PATIENCE seconds.
 */
#define ASLEEP_NSEC	NSEC_PER_SEC
#define MAX_PATIENCE	64

/* Don't write more kernels of a guest than this: the files of each take some 30 MB. */
#define MAX_KERNELS	16

/* A thread's name has 15 characters at most. */
#define THREAD_NAME	"perf-guests"

/*
 * perf's clock can be read only by events.  The thread gives itself a name, a dummy event records
 * that, and the record has the time.  CLOCK_MONOTONIC_RAW shows how much time has passed since the
 * last such record.
 */
static struct {
	int				fd;
	size_t				size;
	struct perf_event_mmap_page	*page;
	u64				time;
	u64				monotonic;
} perf_clock = { .fd = -1, .page = MAP_FAILED };

/**
 * struct guest - the guest
 * @what:	what to read of it
 * @kernel:	its last kernel
 * @tasks:	tasks of the kernel; NULL if they can't be found
 * @file:	the file that the tasks are written to
 * @maps:	the file that the files of processes are written to
 * @modules:	the file that modules are written to
 * @kallsyms:	the file that symbols of modules are written to
 * @inits:	the file that code is written to that is there while modules are loaded
 * @dir:	directory with the files of @kernel
 * @nr_kernels:	number of its kernels so far
 * @forbidden:	true if the administrator or the VMM forbade reading it at the last look
 * @alive:	when the kernel was last seen to run, in perf's time; zero before the first look
 * @began_anew:	true if its ticks have gone backwards since the last search
 * @next_search: when RAM may be searched again
 * @patience:	seconds from a search to the next one
 */
struct guest {
	const struct guest_reader *what;
	struct guest_kernel	*kernel;
	struct guest_task_writer	*tasks;
	FILE			*file;
	FILE			*maps;
	FILE			*modules;
	FILE			*kallsyms;
	FILE			*inits;
	char			*dir;
	unsigned int		nr_kernels;
	bool			forbidden;
	u64			alive;
	bool			began_anew;
	u64			next_search;
	unsigned int		patience;
};

static u64 get_monotonic(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

static void open_clock(const struct record_opts *opts)
{
	struct perf_event_attr attr = {
		.size		= sizeof(attr),
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_DUMMY,
		.sample_type	= PERF_SAMPLE_TIME,
		.sample_id_all	= 1,
		.exclude_kernel	= 1,
		.comm		= 1,
		.use_clockid	= opts->use_clockid,
		.clockid	= opts->clockid,
	};

	perf_clock.size = sysconf(_SC_PAGESIZE);
	perf_clock.fd = sys_perf_event_open(&attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (perf_clock.fd >= 0)
		perf_clock.page = mmap(NULL, 2 * perf_clock.size, PROT_READ | PROT_WRITE,
				       MAP_SHARED, perf_clock.fd, 0);
}

/* Resync the offset between perf's clock and CLOCK_MONOTONIC_RAW. */
static void set_clock(void)
{
	const u8 *ring = (const u8 *)perf_clock.page + perf_clock.size;
	u64 head, before, after;

	if (perf_clock.page == MAP_FAILED)
		return;

	before = get_monotonic();
	prctl(PR_SET_NAME, THREAD_NAME);
	after = get_monotonic();
	/* Pairs with the barrier before the kernel moves the head: the record is complete. */
	head = __atomic_load_n(&perf_clock.page->data_head, __ATOMIC_ACQUIRE);
	if (head == perf_clock.page->data_tail)
		return;

	/* The record ends with sample_id, which has nothing but the time. */
	perf_clock.monotonic = before + (after - before) / 2;
	memcpy(&perf_clock.time, ring + (head - sizeof(perf_clock.time)) % perf_clock.size,
	       sizeof(perf_clock.time));
	__atomic_store_n(&perf_clock.page->data_tail, head, __ATOMIC_RELEASE);
}

/* Return perf's time; zero if it can't be known. */
static u64 get_time(void)
{
	return perf_clock.time ? perf_clock.time + get_monotonic() - perf_clock.monotonic : 0;
}

static void drop_kernel(struct guest *guest)
{
	guest_task_writer__delete(guest->tasks);
	if (guest->file)
		fclose(guest->file);
	if (guest->maps)
		fclose(guest->maps);
	if (guest->modules)
		fclose(guest->modules);
	if (guest->kallsyms)
		fclose(guest->kallsyms);
	if (guest->inits)
		fclose(guest->inits);
	zfree(&guest->dir);
	guest_kernel__delete(guest->kernel);
}

/* Begin to watch the tasks of a kernel.  Its files are in @dir. */
static void use_tasks(struct guest *guest, struct guest_kernel *kernel, const char *dir)
{
	guest->file = guest_files__create(dir, "tasks");
	guest->maps = guest_files__create(dir, "maps");
	guest->tasks = guest->file ?
		       guest_task_writer__new(kernel, guest->file, guest->maps, dir) : NULL;
	if (!guest->tasks)
		pr_warning("Tasks of the guest of process %d have no names: %s\n", guest->what->pid,
			   guest->file ? guest_kernel__why_no_data(kernel) :
			   "their file can't be written");
	if (!guest->maps)
		pr_warning("Programs of the guest of process %d have no names: their file can't be written\n",
			   guest->what->pid);
}

/* Begin to watch a kernel; drop_kernel() frees it.  Its files are in @dir. */
static void use_kernel(struct guest *guest, struct guest_kernel *kernel, const char *dir)
{
	guest->kernel = kernel;
	guest->nr_kernels++;
	guest->patience = 1;
	use_tasks(guest, kernel, dir);
	guest->modules = guest_files__append(dir, "proc/modules");
	guest->kallsyms = guest_files__append(dir, "proc/kallsyms");
	guest->inits = guest_files__create(dir, "inits");
	guest->dir = strdup(dir);
	guest_kernel__free_symbols(kernel);
}

/* Tell perf what to read of the guest at samples; @kernel is NULL if it isn't known. */
static void tell_kernel(struct guest_kernel *kernel)
{
	struct guest_told_reads told = { .known = !!kernel };

	static_assert(sizeof(told) <= GUEST_TOLD_SIZE, "it is told in one piece");
	guest_reads__describe(&told.reads, kernel);
	guest_sandbox__tell(GUEST_TOLD_READS, &told, sizeof(told));
}

/* Check whether the guest runs another kernel by now; if so, watch that one. */
static void find_next_kernel(struct guest *guest)
{
	/* A kernel that began anew may be the same as before, at the same addresses. */
	const struct guest_kernel *but = guest->began_anew ? NULL : guest->kernel;
	struct guest_kernel *kernel;
	const char *why_not;
	char dir[PATH_MAX];

	guest->began_anew = false;
	kernel = guest_kernel__find(guest->what->pid, but, &why_not);
	if (!kernel)
		return;

	if (!guest_kernel__is_running(kernel) ||
	    snprintf(dir, sizeof(dir), "%s/kernels", guest->what->top) >= (int)sizeof(dir) ||
	    (guest_sandbox__mkdir(dir) && errno != EEXIST))
		goto err;

	/* To look whether it runs takes a short look's budget only. */
	guest_memory__begin(kernel->mem);
	/* The new kernel may have begun right after the old one was last seen to run. */
	if (snprintf(dir, sizeof(dir), "%s/kernels/%" PRIu64, guest->what->top, guest->alive + 1) >=
	    (int)sizeof(dir) ||
	    !guest_files__write(kernel, guest->what->pid, dir, guest->what->tables))
		goto err;

	tell_kernel(kernel);
	drop_kernel(guest);
	use_kernel(guest, kernel, dir);
	guest->alive = get_time();
	return;
err:
	guest_kernel__delete(kernel);
}

/* Check whether the guest's kernel runs. */
static void look_at_kernel(struct guest *guest)
{
	s64 ticks = guest_kernel__ticks(guest->kernel);

	guest->began_anew |= ticks < 0;
	if (ticks > 0 || !guest->alive)
		guest->alive = get_time();
}

/* Write the modules that were loaded since the last look. */
static void look_at_modules(struct guest *guest)
{
	if (!guest->kernel->modules || !guest->modules || !guest->kallsyms)
		return;

	guest_memory__refresh(guest->kernel->mem);
	guest_modules__write(guest->kernel, guest->modules, guest->kallsyms,
			     guest->dir, guest->what->tables);
	fflush(guest->modules);
	fflush(guest->kallsyms);
}

/* Write which modules are being loaded. */
static void look_at_inits(struct guest *guest)
{
	u64 time = get_time();

	if (guest->what->only_tasks || !guest->inits || !time)
		return;

	guest_memory__glance(guest->kernel->mem);
	if (!guest_modules__are_loaded(guest->kernel, time))
		return;

	/* Modules are in memory that is mapped anew for each: drop translations, too. */
	guest_memory__forget(guest->kernel->mem);
	guest_modules__write_inits(guest->kernel, guest->inits, guest->dir, guest->what->tables,
				   time);
	fflush(guest->inits);
}

static void look_at_tasks(struct guest *guest)
{
	u64 time = get_time();

	if (!guest->what->only_tasks && time && guest->nr_kernels < MAX_KERNELS &&
	    time >= guest->next_search &&
	    (guest->began_anew || time - guest->alive >= ASLEEP_NSEC)) {
		find_next_kernel(guest);
		guest->patience = min(2 * guest->patience, (unsigned int)MAX_PATIENCE);
		time = get_time();
		guest->next_search = time + guest->patience * NSEC_PER_SEC;
	}

	if (!guest->what->only_tasks)
		look_at_modules(guest);
	/* Without a clock, it is not known when a task began. */
	if (guest->tasks && time)
		guest_task_writer__update(guest->tasks, time);
}

static void look_again(struct guest *guest)
{
	u64 time = get_time();

	if (guest->tasks && time && guest_task_writer__is_unsettled(guest->tasks))
		guest_task_writer__update(guest->tasks, time);
}

/* Look for processes and modules that began a moment ago: they may not last until the next look. */
static void look_for_new(struct guest *guest)
{
	u64 time = get_time();

	if (guest->tasks && time)
		guest_task_writer__look_for_new(guest->tasks, time);
	look_at_inits(guest);
}

static void look_at_all(struct guest *guest)
{
	set_clock();
	guest->forbidden = guest_policy__refusal(guest->what->pid);
	if (guest->forbidden)
		return;
	look_at_kernel(guest);
	look_at_tasks(guest);
}

/* Return for how long to wait until the next look: a shell's processes come in quick succession. */
static int wait_msec(struct guest *guest)
{
	return guest->tasks && guest_task_writer__has_new(guest->tasks, get_time()) ? BUSY_MSEC :
	       NEW_MSEC;
}

static void watch(struct guest *guest, int stop_fd)
{
	struct pollfd stop = { .fd = stop_fd, .events = POLLIN };
	/* When to look at all, at the kernel, and at tasks again, in milliseconds. */
	u64 all = get_monotonic() / NSEC_PER_MSEC + TASKS_MSEC, kernel = 0, again = ~0ULL;

	while (!poll(&stop, 1, wait_msec(guest))) {
		u64 now = get_monotonic() / NSEC_PER_MSEC;

		if (now >= all) {
			look_at_all(guest);
			all = now + TASKS_MSEC;
			again = now + AGAIN_MSEC;
			kernel = now + INTERVAL_MSEC;
			continue;
		}
		if (guest->forbidden)
			continue;
		if (now < kernel) {
			look_for_new(guest);
			continue;
		}
		look_at_kernel(guest);
		kernel = now + INTERVAL_MSEC;
		if (now >= again) {
			look_again(guest);
			again = ~0ULL;
		}
	}
	/* The guest may just have booted again: search once more, even if that is not due yet. */
	guest->next_search = 0;
	look_at_all(guest);
}

/**
 * guest_reader__run - write what is found of a guest, and watch the guest
 * @what:	what to read
 * @broker:	socket to perf, see guest_broker__serve()
 * @stop:	file descriptor that can be read when it is time to end
 *
 * This confines the process for the rest of its life.  It tells perf what to read of the guest at
 * samples, and what was written.
 */
void guest_reader__run(const struct guest_reader *what, int broker, int stop)
{
	enum guest_files found = GUEST_FILES_NONE;
	struct guest guest = { .what = what };
	struct guest_kernel *kernel;
	const char *why_not;

	if (what->opts)
		open_clock(what->opts);
	/* Without seccomp, perf doesn't read guests: it says that this process has died. */
	if (!guest_sandbox__enter(what->pid, broker))
		return;

	kernel = guest_kernel__find(what->pid, NULL, &why_not);
	tell_kernel(kernel);
	if (kernel)
		found = guest_files__write(kernel, what->pid, what->top, what->tables);
	else
		pr_warning("The guest of process %d has no names: %s\n", what->pid, why_not);
	if (!found) {
		guest_kernel__delete(kernel);
		guest_sandbox__tell(GUEST_TOLD_FILES, &found, sizeof(found));
		return;
	}

	use_kernel(&guest, kernel, what->top);
	/* Write the tasks that are there from the beginning. */
	if (guest.tasks)
		guest_task_writer__update(guest.tasks, 0);
	set_clock();
	if (what->opts && !perf_clock.time)
		pr_warning("New tasks and reboots of guests go unnoticed: perf's clock can't be read\n");
	guest_sandbox__tell(GUEST_TOLD_FILES, &found, sizeof(found));
	watch(&guest, stop);
	if (guest.tasks && !guest.forbidden)
		guest_task_writer__finish(guest.tasks);
	drop_kernel(&guest);
}
