/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_BROKER_H
#define __PERF_GUEST_BROKER_H

#include <stdbool.h>
#include <sys/types.h>
#include <linux/types.h>

struct guest_reader;

/**
 * struct guest_broker - what perf has of a process that reads a guest
 * @vmm:	pid of the guest's VMM
 * @top:	the directory in which the process may write
 * @socket:	socket to the process; -1 if it is not served any more
 * @stop:	write end of a pipe; closing it tells the process to end
 * @pid:	pid of the process, a child that only waitpid() with __WALL sees; -1 if it has ended
 * @vmm_pidfd:	the VMM; when it has ended, its pid may become that of any process
 * @vmm_ended:	true if it has ended
 * @created:	number of files and directories that the process has had created
 * @said:	number of bytes that the process has had printed
 */
struct guest_broker {
	pid_t		vmm;
	char		*top;
	int		socket;
	int		stop;
	pid_t		pid;
	int		vmm_pidfd;
	bool		vmm_ended;
	unsigned int	created;
	size_t		said;
};

/* The function receives what the process tells, see guest_sandbox__tell(). */
typedef void (*guest_told_fn)(u32 what, const void *data, void *arg);

/*
 * What the process runs: it confines itself by guest_sandbox__enter() with @broker, and reads the
 * guest until @stop can be read.
 */
typedef void (*guest_reader_fn)(const struct guest_reader *what, int broker, int stop);

struct guest_broker *guest_broker__start(const struct guest_reader *what, guest_reader_fn run);
bool guest_broker__serve(struct guest_broker *broker, int msec, guest_told_fn told, void *arg);
void guest_broker__stop(struct guest_broker *broker);
void guest_broker__kill(struct guest_broker *broker);
void guest_broker__delete(struct guest_broker *broker);

#endif /* __PERF_GUEST_BROKER_H */
