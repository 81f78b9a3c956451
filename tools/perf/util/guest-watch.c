// SPDX-License-Identifier: GPL-2.0
/*
 * Start a process for each guest, which reads and watches it; serve these processes while the
 * guests are recorded.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "debug.h"
#include "guest-broker.h"
#include "guest-reader.h"
#include "guest-reads.h"
#include "guest-watch.h"

/* How long a process may take for its first look, which searches all RAM, and for its last one. */
#define START_SEC	600
#define STOP_SEC	60

/* A process tells this for each kernel, unless a guest has taken it over. */
#define MAX_TOLD	64

/* How often to look whether a process takes too long. */
#define WAIT_MSEC	500

/**
 * struct guest - a guest that is read
 * @next:	the next guest
 * @pid:	pid of its VMM
 * @broker:	the process that reads it
 * @told:	true if the process has told what it wrote
 * @found:	what it wrote
 * @nr_told:	how often it has told what to read at samples
 */
struct guest {
	struct guest		*next;
	pid_t			pid;
	struct guest_broker	*broker;
	bool			told;
	enum guest_files	found;
	unsigned int		nr_told;
};

/* The list of guests changes only while no thread serves them. */
static struct {
	struct guest	*guests;
	pthread_t	thread;
	bool		running;
	bool		stopping;
} watch;

static void note(u32 what, const void *data, void *arg)
{
	struct guest_told_reads told;
	struct guest *guest = arg;

	if (what == GUEST_TOLD_READS && guest->nr_told++ < MAX_TOLD) {
		memcpy(&told, data, sizeof(told));
		guest_reads__note(guest->pid, &told.reads, told.known);
	} else if (what == GUEST_TOLD_FILES && !guest->told) {
		memcpy(&guest->found, data, sizeof(guest->found));
		/* A guest may have taken over the process. */
		guest->found = min_t(unsigned int, guest->found, GUEST_FILES_TABLES);
		guest->told = true;
	}
}

/* Return the guest of a VMM, NULL if it is not read. */
static struct guest *find_guest(pid_t pid)
{
	struct guest *guest = watch.guests;

	while (guest && guest->pid != pid)
		guest = guest->next;
	return guest;
}

static void serve_guest(struct guest *guest, bool stopping)
{
	if (guest_broker__serve(guest->broker, 0, note, guest))
		return;
	if (!stopping && !guest->broker->vmm_ended)
		pr_warning("The guest of process %d is not watched any more: the process that reads it has died\n",
			   guest->pid);
}

/* Wait until one of @nr processes asks for something, or a VMM ends. */
static void wait_for_any(unsigned int nr)
{
	struct pollfd *polls = calloc(2 * nr, sizeof(*polls)), *next = polls;

	for (struct guest *guest = watch.guests; polls && guest; guest = guest->next) {
		if (guest->broker->socket < 0)
			continue;
		*next++ = (struct pollfd){ .fd = guest->broker->socket, .events = POLLIN };
		*next++ = (struct pollfd){ .fd = guest->broker->vmm_pidfd, .events = POLLIN };
	}
	if (polls)
		poll(polls, next - polls, WAIT_MSEC);
	free(polls);
}

static time_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

/* Serve all processes until they have ended.  Kill those that don't end when they should. */
static void *serve(void *arg __maybe_unused)
{
	time_t deadline = 0;

	while (true) {
		bool stopping = __atomic_load_n(&watch.stopping, __ATOMIC_RELAXED);
		unsigned int nr = 0;

		for (struct guest *guest = watch.guests; guest; guest = guest->next)
			nr += guest->broker->socket >= 0;
		if (!nr)
			return NULL;

		if (stopping && !deadline)
			deadline = now() + STOP_SEC;
		wait_for_any(nr);
		for (struct guest *guest = watch.guests; guest; guest = guest->next) {
			if (guest->broker->socket < 0)
				continue;
			serve_guest(guest, stopping);
			if (guest->broker->socket < 0 || !deadline || now() < deadline)
				continue;
			pr_warning("The last look at the guest of process %d took too long: perf has ended it\n",
				   guest->pid);
			guest_broker__kill(guest->broker);
		}
	}
}

/**
 * guest_watch__add - write the files of a guest, and watch it until guest_watch__stop()
 * @what: what to read of the guest
 *
 * Context: perf must not have another thread yet.
 * Return: what was written of its kernel.
 */
enum guest_files guest_watch__add(const struct guest_reader *what)
{
	struct guest *guest = find_guest(what->pid);
	const char *why = "the process that reads it can't be started";
	time_t deadline = now() + START_SEC;

	if (guest)
		return guest->found;

	guest = zalloc(sizeof(*guest));
	if (!guest)
		return GUEST_FILES_NONE;

	guest->pid = what->pid;
	guest->broker = guest_broker__start(what, guest_reader__run);
	if (guest->broker)
		why = "the process that reads it has died";
	while (guest->broker && !guest->told &&
	       guest_broker__serve(guest->broker, WAIT_MSEC, note, guest)) {
		if (now() >= deadline) {
			why = "to read it takes too long";
			break;
		}
	}
	if (!guest->told)
		pr_warning("The guest of process %d has no names: %s\n", what->pid, why);
	if (guest->told && guest->found) {
		guest->next = watch.guests;
		watch.guests = guest;
		return guest->found;
	}
	guest_broker__delete(guest->broker);
	free(guest);
	return GUEST_FILES_NONE;
}

/* Start the thread that serves.  It handles none of perf record's signals. */
static bool start_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	bool started;

	if (pthread_attr_init(&attr))
		return false;

	/* Don't inherit perf record's real-time priority: a guest may keep the thread busy. */
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	started = !pthread_create(&watch.thread, &attr, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return started;
}

/**
 * guest_watch__start - serve the processes that watch guests, in a thread
 */
void guest_watch__start(void)
{
	watch.running = watch.guests && start_thread();
	if (watch.guests && !watch.running)
		pr_warning("Guests are not watched: new tasks and reboots go unnoticed\n");
}

/**
 * guest_watch__stop - have guests looked at for the last time, and stop watching them
 */
void guest_watch__stop(void)
{
	struct guest *guest;

	__atomic_store_n(&watch.stopping, true, __ATOMIC_RELAXED);
	for (guest = watch.guests; guest; guest = guest->next)
		guest_broker__stop(guest->broker);
	if (watch.running)
		pthread_join(watch.thread, NULL);
	else
		serve(NULL);
	watch.running = false;
	watch.stopping = false;
	guest_reads__end();
	while ((guest = watch.guests)) {
		watch.guests = guest->next;
		guest_broker__delete(guest->broker);
		free(guest);
	}
}
