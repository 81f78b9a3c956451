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

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "debug.h"
#include "guest-broker.h"
#include "guest-reader.h"
#include "guest-reads.h"
#include "guest-watch.h"

/**
 * struct guest - a guest that is read
 * @next:	the next guest
 * @pid:	pid of its VMM
 * @broker:	the process that reads it
 * @told:	true if the process has told what it wrote
 * @found:	what it wrote
 */
struct guest {
	struct guest		*next;
	pid_t			pid;
	struct guest_broker	*broker;
	bool			told;
	enum guest_files	found;
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
	const struct guest_told_reads *told = data;
	struct guest *guest = arg;

	if (what == GUEST_TOLD_READS) {
		guest_reads__note(guest->pid, &told->reads, told->known);
	} else if (what == GUEST_TOLD_FILES && !guest->told) {
		memcpy(&guest->found, data, sizeof(guest->found));
		guest->told = true;
	}
}

/* Serve all processes until they have ended. */
static void *serve(void *arg __maybe_unused)
{
	struct pollfd *polls;
	unsigned int nr, left = 0;

	for (struct guest *guest = watch.guests; guest; guest = guest->next)
		left += guest->broker->socket >= 0;
	polls = calloc(max(left, 1U), sizeof(*polls));
	while (polls && left) {
		nr = 0;
		left = 0;
		for (struct guest *guest = watch.guests; guest; guest = guest->next) {
			if (guest->broker->socket >= 0)
				polls[nr++] = (struct pollfd){
					.fd = guest->broker->socket, .events = POLLIN,
				};
		}
		if (poll(polls, nr, -1) < 0)
			break;
		nr = 0;
		for (struct guest *guest = watch.guests; guest; guest = guest->next) {
			if (guest->broker->socket < 0)
				continue;
			if (!polls[nr++].revents ||
			    guest_broker__serve(guest->broker, note, guest)) {
				left++;
				continue;
			}
			if (!__atomic_load_n(&watch.stopping, __ATOMIC_RELAXED))
				pr_warning("The guest of process %d is not watched any more: the process that reads it has died\n",
					   guest->pid);
		}
	}
	free(polls);
	return NULL;
}

/**
 * guest_watch__add - write the files of a guest, and watch it until guest_watch__stop()
 * @what: what to read of the guest
 *
 * Return: what was written of its kernel.
 */
enum guest_files guest_watch__add(const struct guest_reader *what)
{
	struct guest *guest = zalloc(sizeof(*guest));

	if (!guest)
		return GUEST_FILES_NONE;

	guest->pid = what->pid;
	guest->broker = guest_broker__start(what, guest_reader__run);
	while (guest->broker && !guest->told && guest_broker__serve(guest->broker, note, guest))
		;
	if (!guest->told)
		pr_warning("The guest of process %d has no names: the process that reads it has died\n",
			   what->pid);
	if (guest->told && guest->found) {
		guest->next = watch.guests;
		watch.guests = guest;
		return min_t(unsigned int, guest->found, GUEST_FILES_TABLES);
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
