// SPDX-License-Identifier: GPL-2.0
/*
 * Watch guests while they are recorded: tasks come and go, modules are loaded, and a guest that
 * boots again may run another kernel, or the same kernel at other addresses.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <linux/err.h>
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
#include "guest-reads.h"
#include "guest-task-writer.h"
#include "guest-watch.h"
#include "perf-sys.h"
#include "record.h"

/*
 * How often to check whether a guest's kernel runs, to look for new processes, and to look at all
 * tasks.  The first interval is short because the time when a kernel was last seen to run is taken
 * as the time when the next kernel began.
 */
#define INTERVAL_MSEC	50
#define NEW_MSEC	5
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

/**
 * struct guest - a guest that is recorded
 * @next:	the next guest
 * @pid:	pid of its VMM
 * @tables:	true to write the tables that unwind its kernels
 * @top:	directory with the files of its first kernel
 * @kernel:	its last kernel
 * @tasks:	tasks of the kernel; NULL if they can't be found
 * @file:	the file that the tasks are written to
 * @maps:	the file that the files of processes are written to
 * @modules:	the file that modules are written to
 * @kallsyms:	the file that symbols of modules are written to
 * @dir:	directory with the files of @kernel
 * @nr_kernels:	number of its kernels so far
 * @forbidden:	true if the administrator or the VMM forbade reading it at the last look
 * @alive:	when the kernel was last seen to run, in perf's time; zero before the first look
 * @began_anew:	true if its ticks have gone backwards since the last search
 * @next_search: when RAM may be searched again
 * @patience:	seconds from a search to the next one
 */
struct guest {
	struct guest		*next;
	pid_t			pid;
	bool			tables;
	char			*top;
	struct guest_kernel	*kernel;
	struct guest_task_writer	*tasks;
	FILE			*file;
	FILE			*maps;
	FILE			*modules;
	FILE			*kallsyms;
	char			*dir;
	unsigned int		nr_kernels;
	bool			forbidden;
	u64			alive;
	bool			began_anew;
	u64			next_search;
	unsigned int		patience;
};

/* The list of guests changes only while no thread watches them. */
static struct {
	struct guest		*guests;
	const struct record_opts *opts;
	bool			only_tasks;
	pthread_t		thread;
	int			stop[2];
	bool			running;
} watch;

/*
 * perf's clock can be read only by events.  The thread gives itself a name, a dummy event records
 * that, and the record has the time.  CLOCK_MONOTONIC_RAW shows how much time has passed since the
 * last such record.
 */
struct perf_clock {
	int				fd;
	size_t				size;
	struct perf_event_mmap_page	*page;
	u64				time;
	u64				monotonic;
};

static u64 get_monotonic(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

static void open_clock(struct perf_clock *clock, const struct record_opts *opts)
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

	memset(clock, 0, sizeof(*clock));
	clock->page = MAP_FAILED;
	clock->size = sysconf(_SC_PAGESIZE);
	clock->fd = sys_perf_event_open(&attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (clock->fd >= 0)
		clock->page = mmap(NULL, 2 * clock->size, PROT_READ | PROT_WRITE, MAP_SHARED,
				   clock->fd, 0);
}

/* Resync the offset between perf's clock and CLOCK_MONOTONIC_RAW. */
static void set_clock(struct perf_clock *clock)
{
	const u8 *ring = (const u8 *)clock->page + clock->size;
	u64 head, before, after;

	if (clock->page == MAP_FAILED)
		return;

	before = get_monotonic();
	prctl(PR_SET_NAME, THREAD_NAME);
	after = get_monotonic();
	/* Pairs with the barrier before the kernel moves the head: the record is complete. */
	head = __atomic_load_n(&clock->page->data_head, __ATOMIC_ACQUIRE);
	if (head == clock->page->data_tail)
		return;

	/* The record ends with sample_id, which has nothing but the time. */
	clock->monotonic = before + (after - before) / 2;
	memcpy(&clock->time, ring + (head - sizeof(clock->time)) % clock->size,
	       sizeof(clock->time));
	__atomic_store_n(&clock->page->data_tail, head, __ATOMIC_RELEASE);
}

/* Return perf's time; zero if it can't be known. */
static u64 get_time(const struct perf_clock *clock)
{
	return clock->time ? clock->time + get_monotonic() - clock->monotonic : 0;
}

static void close_clock(struct perf_clock *clock)
{
	if (clock->page != MAP_FAILED)
		munmap(clock->page, 2 * clock->size);
	if (clock->fd >= 0)
		close(clock->fd);
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
		pr_warning("Tasks of the guest of process %d have no names: %s\n", guest->pid,
			   guest->file ? "its kernel's BTF does not describe them" :
			   "their file can't be written");
	if (!guest->maps)
		pr_warning("Programs of the guest of process %d have no names: their file can't be written\n",
			   guest->pid);
}

/* Begin to watch a kernel; drop_kernel() frees it.  Its files are in @dir. */
static void use_kernel(struct guest *guest, struct guest_kernel *kernel, const char *dir)
{
	guest->kernel = kernel;
	guest->nr_kernels++;
	guest->patience = 1;
	guest->file = NULL;
	guest->maps = NULL;
	guest->tasks = NULL;
	/* Samples of arm64 guests have no registers that tell which task they hit. */
	if (!kernel->info.is_arm64)
		use_tasks(guest, kernel, dir);
	guest->modules = guest_files__append(dir, "proc/modules");
	guest->kallsyms = guest_files__append(dir, "proc/kallsyms");
	guest->dir = strdup(dir);
	guest_kernel__free_symbols(kernel);
}

/* Check whether the guest runs another kernel by now; if so, watch that one. */
static void find_next_kernel(struct guest *guest, const struct perf_clock *clock)
{
	/* A kernel that began anew may be the same as before, at the same addresses. */
	const struct guest_kernel *but = guest->began_anew ? NULL : guest->kernel;
	struct guest_kernel *kernel;
	const char *why_not;
	char dir[PATH_MAX];

	guest->began_anew = false;
	kernel = guest_kernel__find(guest->pid, but, &why_not);
	if (!kernel)
		return;

	if (!guest_kernel__is_running(kernel) ||
	    snprintf(dir, sizeof(dir), "%s/kernels", guest->top) >= (int)sizeof(dir) ||
	    (mkdir(dir, 0700) && (errno != EEXIST || guest->nr_kernels == 1)))
		goto err;

	/* The new kernel may have begun right after the old one was last seen to run. */
	if (snprintf(dir, sizeof(dir), "%s/kernels/%" PRIu64, guest->top, guest->alive + 1) >=
	    (int)sizeof(dir) ||
	    !guest_files__write(kernel, guest->pid, dir, guest->tables))
		goto err;

	guest_reads__learn(guest->pid, kernel);
	drop_kernel(guest);
	use_kernel(guest, kernel, dir);
	guest->alive = get_time(clock);
	return;
err:
	guest_kernel__delete(kernel);
}

/* Check whether the guest's kernel runs. */
static void look_at_kernel(struct guest *guest, const struct perf_clock *clock)
{
	s64 ticks = guest_kernel__ticks(guest->kernel);

	guest->began_anew |= ticks < 0;
	if (ticks > 0 || !guest->alive)
		guest->alive = get_time(clock);
}

/* Write the modules that were loaded since the last look. */
static void look_at_modules(struct guest *guest)
{
	if (!guest->kernel->modules || !guest->modules || !guest->kallsyms)
		return;

	guest_memory__refresh(guest->kernel->mem);
	guest_modules__write(guest->kernel, guest->modules, guest->kallsyms,
			     guest->dir, guest->tables);
	fflush(guest->modules);
	fflush(guest->kallsyms);
}

static void look_at_tasks(struct guest *guest, const struct perf_clock *clock)
{
	u64 time = get_time(clock);

	if (!watch.only_tasks && time && guest->nr_kernels < MAX_KERNELS &&
	    time >= guest->next_search &&
	    (guest->began_anew || time - guest->alive >= ASLEEP_NSEC)) {
		find_next_kernel(guest, clock);
		guest->patience = min(2 * guest->patience, (unsigned int)MAX_PATIENCE);
		time = get_time(clock);
		guest->next_search = time + guest->patience * NSEC_PER_SEC;
	}

	if (!watch.only_tasks)
		look_at_modules(guest);
	/* Without a clock, it is not known when a task began. */
	if (guest->tasks && time)
		guest_task_writer__update(guest->tasks, time);
}

static void look_again(struct guest *guest, const struct perf_clock *clock)
{
	u64 time = get_time(clock);

	if (guest->tasks && time && guest_task_writer__is_unsettled(guest->tasks))
		guest_task_writer__update(guest->tasks, time);
}

/* Look for processes that began a moment ago: they may not last until the next look at all. */
static void look_for_new(const struct perf_clock *clock)
{
	u64 time = get_time(clock);

	for (struct guest *guest = watch.guests; guest && time; guest = guest->next) {
		if (guest->tasks && !guest->forbidden)
			guest_task_writer__look_for_new(guest->tasks, time);
	}
}

static void look_at_all(struct perf_clock *clock)
{
	set_clock(clock);
	for (struct guest *guest = watch.guests; guest; guest = guest->next) {
		guest->forbidden = guest_policy__refusal(guest->pid);
		if (guest->forbidden)
			continue;
		look_at_kernel(guest, clock);
		look_at_tasks(guest, clock);
	}
}

/* Write the tasks that are there from the beginning. */
static void note_first_tasks(void)
{
	for (struct guest *guest = watch.guests; guest; guest = guest->next) {
		if (guest->tasks)
			guest_task_writer__update(guest->tasks, 0);
	}
}

static void *watch_guests(void *arg __maybe_unused)
{
	struct pollfd stop = { .fd = watch.stop[0], .events = POLLIN };
	/* When to look at all, at kernels, and at tasks again, in milliseconds. */
	u64 all = get_monotonic() / NSEC_PER_MSEC + TASKS_MSEC, kernels = 0, again = ~0ULL;
	struct perf_clock clock;

	open_clock(&clock, watch.opts);
	set_clock(&clock);
	if (!clock.time)
		pr_warning("New tasks and reboots of guests go unnoticed: perf's clock can't be read\n");
	while (!poll(&stop, 1, NEW_MSEC)) {
		u64 now = get_monotonic() / NSEC_PER_MSEC;

		if (now >= all) {
			look_at_all(&clock);
			all = now + TASKS_MSEC;
			again = now + AGAIN_MSEC;
			kernels = now + INTERVAL_MSEC;
			continue;
		}
		if (now < kernels) {
			look_for_new(&clock);
			continue;
		}
		for (struct guest *guest = watch.guests; guest; guest = guest->next) {
			if (guest->forbidden)
				continue;
			look_at_kernel(guest, &clock);
			if (now >= again)
				look_again(guest, &clock);
		}
		kernels = now + INTERVAL_MSEC;
		if (now >= again)
			again = ~0ULL;
	}
	/* A guest may just have booted again: search once more, even if that is not due yet. */
	for (struct guest *guest = watch.guests; guest; guest = guest->next)
		guest->next_search = 0;
	look_at_all(&clock);
	close_clock(&clock);
	return NULL;
}

/**
 * guest_watch__add - add a guest to those that guest_watch__start() watches
 * @pid:	pid of its VMM
 * @top:	directory with the files of its kernel
 * @kernel:	the kernel; it is taken over if this succeeds
 * @tables:	true to write the tables that unwind later kernels
 *
 * Return: true if the guest was added.
 */
bool guest_watch__add(pid_t pid, const char *top, struct guest_kernel *kernel, bool tables)
{
	struct guest *guest = zalloc(sizeof(*guest));

	if (!guest)
		return false;

	guest->top = strdup(top);
	if (!guest->top) {
		free(guest);
		return false;
	}
	guest->pid = pid;
	guest->tables = tables;
	guest->next = watch.guests;
	watch.guests = guest;
	use_kernel(guest, kernel, top);
	return true;
}

/* Start the thread that watches guests.  It handles none of perf record's signals. */
static bool start_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	bool started;

	if (pthread_attr_init(&attr))
		return false;

	/* A search takes long: don't inherit perf record's real-time priority. */
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	started = !pthread_create(&watch.thread, &attr, watch_guests, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return started;
}

/**
 * guest_watch__start - watch guests until guest_watch__stop()
 * @opts:	options of the recording
 * @only_tasks:	true to watch tasks, but neither modules nor reboots
 */
void guest_watch__start(const struct record_opts *opts, bool only_tasks)
{
	if (!watch.guests)
		return;

	note_first_tasks();
	watch.opts = opts;
	watch.only_tasks = only_tasks;
	/*
	 * The thread ends when the write end of the pipe is closed.  A program that perf starts
	 * must not inherit that end, as a copy of it would keep the pipe open.
	 */
	if (!pipe2(watch.stop, O_CLOEXEC)) {
		watch.running = start_thread();
		if (!watch.running) {
			close(watch.stop[0]);
			close(watch.stop[1]);
		}
	}
	if (!watch.running)
		pr_warning("Guests are not watched: new tasks and reboots go unnoticed\n");
}

/**
 * guest_watch__stop - look at guests for the last time, and stop watching them
 */
void guest_watch__stop(void)
{
	struct guest *guest;

	if (watch.running) {
		close(watch.stop[1]);
		pthread_join(watch.thread, NULL);
		close(watch.stop[0]);
		watch.running = false;
	} else if (!watch.opts) {
		note_first_tasks();
	}
	watch.opts = NULL;
	guest_reads__end();
	while ((guest = watch.guests)) {
		watch.guests = guest->next;
		if (guest->tasks && !guest->forbidden)
			guest_task_writer__finish(guest->tasks);
		drop_kernel(guest);
		free(guest->top);
		free(guest);
	}
}
