// SPDX-License-Identifier: GPL-2.0
/*
 * Start a process that reads a guest, and do for it what it may not do itself.  A guest may have
 * taken over that process: it gets nothing but the files of its VMM in /proc that tell where the
 * guest's memory is, and a directory to write in.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "guest-broker.h"
#include "guest-memslots.h"
#include "guest-policy.h"
#include "guest-reader.h"
#include "guest-sandbox.h"
#include "ui/ui.h"

/*
 * A process that asks for more than this is broken.  One that works asks some thirty times a second
 * and for a few files of each module and program.
 */
#define MAX_ASKED	(1ULL << 32)

/* Return true if the path is that of the directory @top, or of something in it. */
static bool is_in(const char *path, const char *top)
{
	size_t len = strlen(top);

	return !strncmp(path, top, len) && (path[len] == '/' || !path[len]) &&
	       !strstr(&path[len], "/..");
}

/* Return true if the path is that of a file that tells where the VMM's memory is. */
static bool is_of_vmm(const char *path, pid_t vmm)
{
	char dir[PATH_MAX];
	size_t len;

	len = scnprintf(dir, sizeof(dir), "/proc/%d/", vmm);
	if (!strncmp(path, dir, len) &&
	    (!strcmp(&path[len], "pagemap") || !strcmp(&path[len], "maps")))
		return true;

	len = scnprintf(dir, sizeof(dir), "%s/%d/fdinfo/", guest_paths.proc, vmm);
	return !strncmp(path, dir, len) && path[len] &&
	       !path[len + strspn(&path[len], "0123456789")];
}

/* Do what is asked for; return a file descriptor or zero, or -1 with errno set. */
static int answer(const struct guest_broker *broker, struct guest_request *request,
		  char text[PATH_MAX])
{
	const char *why;

	request->path[sizeof(request->path) - 1] = 0;
	request->to[sizeof(request->to) - 1] = 0;
	errno = EPERM;
	switch (request->op) {
	case GUEST_READ_FILE:
		return is_of_vmm(request->path, broker->vmm) ?
		       guest_sandbox__open(request->path, request->op) : -1;
	case GUEST_CREATE_FILE:
	case GUEST_APPEND_FILE:
		return is_in(request->path, broker->top) ?
		       guest_sandbox__open(request->path, request->op) : -1;
	case GUEST_MKDIR:
		return is_in(request->path, broker->top) ?
		       guest_sandbox__mkdir(request->path) : -1;
	case GUEST_RENAME:
		return is_in(request->path, broker->top) && is_in(request->to, broker->top) ?
		       guest_sandbox__rename(request->path, request->to) : -1;
	case GUEST_REMOVE:
		return is_in(request->path, broker->top) ?
		       guest_sandbox__remove(request->path) : -1;
	case GUEST_FIND_VM:
		if (guest_memslots__find_vm(broker->vmm, request->nr, text))
			return 0;
		*text = 0;
		return errno ? -1 : 0;
	case GUEST_ASK_POLICY:
		why = guest_policy__refusal(broker->vmm);
		scnprintf(text, PATH_MAX, "%s", why ?: "");
		return 0;
	case GUEST_TELL:
		return 0;
	default:
		return -1;
	}
}

/* Answer, and hand over @fd unless that is zero or -1. */
static bool reply(int socket, struct guest_answer *answer, int fd)
{
	union {
		struct cmsghdr	align;
		char		space[CMSG_SPACE(sizeof(fd))];
	} control = { .align = {
		.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd)),
	} };
	struct iovec iov = { answer, sizeof(*answer) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd > 0) {
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	return sendmsg(socket, &msg, MSG_NOSIGNAL) == sizeof(*answer);
}

/**
 * guest_broker__serve - wait until the process asks for something, and do it
 * @broker:	the process
 * @told:	called with what the process tells
 * @arg:	argument of @told
 *
 * Return: true if the process goes on; false if it has ended.
 */
bool guest_broker__serve(struct guest_broker *broker, guest_told_fn told, void *arg)
{
	struct guest_answer reply_text = {};
	struct guest_request request;
	int fd = -1;
	bool good;

	if (broker->socket < 0)
		return false;

	good = recv(broker->socket, &request, sizeof(request), 0) == sizeof(request) &&
	       broker->asked++ < MAX_ASKED;
	if (good) {
		fd = answer(broker, &request, reply_text.text);
		reply_text.error = fd < 0 ? errno : 0;
		if (request.op == GUEST_TELL)
			told(request.nr, request.told, arg);
		good = reply(broker->socket, &reply_text, fd);
	}
	if (fd > 0)
		close(fd);
	if (!good) {
		close(broker->socket);
		broker->socket = -1;
	}
	return good;
}

/* Leave nothing open but standard error, the socket and the pipe. */
static void close_others(int socket, int stop)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;

	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	while (fds && (entry = readdir(fds))) {
		int fd = atoi(entry->d_name);

		if (fd > STDERR_FILENO && fd != socket && fd != stop && fd != dirfd(fds))
			close(fd);
	}
	if (fds)
		closedir(fds);
}

/*
 * Read the guest in a grandchild.  Nobody waits for it, and perf record, which ends when its child
 * does, gets no SIGCHLD of it.  Return false if there is none.
 */
static bool start_process(const int socket[2], const int stop[2], const struct guest_reader *what,
			  guest_reader_fn run)
{
	const struct timespec now = {};
	sigset_t all, old, child;
	int status;
	pid_t pid;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = fork();
	if (!pid) {
		pid = fork();
		if (pid)
			_exit(pid < 0);

		/* Signals stay blocked: Ctrl-C is for perf, which ends this process. */
		close_others(socket[1], stop[0]);
		use_browser = 0;
		run(what, socket[1], stop[0]);
		fflush(NULL);
		_exit(0);
	}
	if (pid > 0 && (waitpid(pid, &status, 0) != pid || status))
		pid = -1;
	sigtimedwait(&child, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return pid > 0;
}

/**
 * guest_broker__start - start a process that reads a guest
 * @what:	what to read; the process may write to @what->top
 * @run:	the function that reads it
 *
 * Return: what to serve the process by; NULL if it can't be started.
 */
struct guest_broker *guest_broker__start(const struct guest_reader *what, guest_reader_fn run)
{
	struct guest_broker *broker = zalloc(sizeof(*broker));
	int socket[2] = { -1, -1 }, stop[2] = { -1, -1 };
	bool started;

	if (!broker)
		return NULL;

	broker->vmm = what->pid;
	broker->top = strdup(what->top);
	started = broker->top && !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socket) &&
		  !pipe2(stop, O_CLOEXEC) &&
		  start_process(socket, stop, what, run);
	close(socket[1]);
	close(stop[0]);
	broker->socket = socket[0];
	broker->stop = stop[1];
	if (started)
		return broker;

	guest_broker__delete(broker);
	return NULL;
}

/**
 * guest_broker__stop - tell the process to end
 * @broker: the process; serve it until it has ended
 */
void guest_broker__stop(struct guest_broker *broker)
{
	if (broker->stop >= 0)
		close(broker->stop);
	broker->stop = -1;
}

void guest_broker__delete(struct guest_broker *broker)
{
	if (!broker)
		return;

	guest_broker__stop(broker);
	if (broker->socket >= 0)
		close(broker->socket);
	free(broker->top);
	free(broker);
}
