// SPDX-License-Identifier: GPL-2.0
/*
 * Start a process that reads a guest, and do for it what it may not do itself.  A guest may have
 * taken over that process: it gets nothing but the files of its VMM in /proc that tell where the
 * guest's memory is, and a directory to write in.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "debug.h"
#include "dwarf-regs.h"
#include "guest-broker.h"
#include "guest-memslots.h"
#include "guest-policy.h"
#include "guest-reader.h"
#include "guest-sandbox.h"
#include "trace/beauty/syscalltbl.h"

/* A process that has more than this printed may be a guest's. */
#define MAX_SAID	(1U << 20)

/* The process takes less memory, and its files are smaller: those with symbols have some 20 MB. */
#define MAX_MEMORY	(2ULL << 30)
#define MAX_FILE_SIZE	(1ULL << 30)

/* All files and directories of a guest: modules have three each, programs and kernels some. */
#define MAX_CREATED	(1U << 16)

/* How long and how deep a path below the guest's directory is at most: rm_rf() recurses. */
#define MAX_SUBPATH	256
#define MAX_DEPTH	8

/*
 * Return true if the path is that of the directory @top, or of something in it.  The name of the VM
 * is not for the process to choose.
 */
static bool is_in(const char *path, const char *top)
{
	size_t len = strlen(top), depth = 0;

	if (strncmp(path, top, len) || strlen(&path[len]) > MAX_SUBPATH ||
	    !strcmp(&path[len], "/name"))
		return false;
	for (const char *c = &path[len]; *c; c++)
		depth += *c == '/';
	return (path[len] == '/' || !path[len]) && !strstr(&path[len], "/..") && depth <= MAX_DEPTH;
}

/* Return true if the process may have one more file or directory there. */
static bool may_create(struct guest_broker *broker, const char *path)
{
	return is_in(path, broker->top) && broker->created++ < MAX_CREATED;
}

/* Return true if the process may rename the file: a directory would get deeper than it may. */
static bool may_rename(struct guest_broker *broker, const char *path, const char *to)
{
	struct stat st;

	return is_in(path, broker->top) && is_in(to, broker->top) && !lstat(path, &st) &&
	       S_ISREG(st.st_mode);
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

/* Print a message, without the escape sequences that it may have. */
static void print(struct guest_broker *broker, struct guest_request *request)
{
	size_t len = min_t(size_t, request->nr, GUEST_TOLD_SIZE);

	for (size_t i = 0; i < len; i++) {
		u8 *c = &request->told[i];

		if ((*c < ' ' || *c > '~') && *c != '\n' && *c != '\t')
			*c = '?';
	}
	broker->said += len;
	if (broker->said <= MAX_SAID)
		pr_err("%.*s", (int)len, (char *)request->told);
}

/* Return zero if a file was opened. */
static int open_file(const struct guest_request *request, int *fd)
{
	*fd = guest_sandbox__open(request->path, request->op);
	return *fd < 0 ? -1 : 0;
}

/*
 * Do what is asked for; return zero, or -1 with errno set.  If a file was opened, @fd receives it.
 */
static int answer(struct guest_broker *broker, struct guest_request *request, char text[PATH_MAX],
		  int *fd)
{
	const char *why;

	request->path[sizeof(request->path) - 1] = 0;
	request->to[sizeof(request->to) - 1] = 0;
	errno = EPERM;
	switch (request->op) {
	case GUEST_READ_FILE:
		return is_of_vmm(request->path, broker->vmm) ? open_file(request, fd) : -1;
	case GUEST_CREATE_FILE:
		return may_create(broker, request->path) ? open_file(request, fd) : -1;
	case GUEST_APPEND_FILE:
		return is_in(request->path, broker->top) ? open_file(request, fd) : -1;
	case GUEST_MKDIR:
		return may_create(broker, request->path) ?
		       guest_sandbox__mkdir(request->path) : -1;
	case GUEST_RENAME:
		return may_rename(broker, request->path, request->to) ?
		       guest_sandbox__rename(request->path, request->to) : -1;
	case GUEST_UNLINK:
		return is_in(request->path, broker->top) ?
		       guest_sandbox__unlink(request->path) : -1;
	case GUEST_FIND_VM:
		if (guest_memslots__find_vm(broker->vmm, request->nr, text))
			return 0;
		*text = 0;
		return errno ? -1 : 0;
	case GUEST_ASK_POLICY:
		why = guest_policy__refusal(broker->vmm);
		scnprintf(text, PATH_MAX, "%s", why ?: "");
		return 0;
	case GUEST_SAY:
		print(broker, request);
		return 0;
	case GUEST_TELL:
		return 0;
	default:
		return -1;
	}
}

/*
 * Answer, and hand over @fd unless that is -1.  Don't wait: the process may not read answers.
 */
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

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	return sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*answer);
}

/**
 * guest_broker__serve - wait until the process asks for something, and do it
 * @broker:	the process
 * @msec:	how long to wait, in milliseconds
 * @told:	called with what the process tells
 * @arg:	argument of @told
 *
 * Return: true if the process is to be served again; false if it has ended, or had to be killed, as
 * it is when its VMM has ended.
 */
bool guest_broker__serve(struct guest_broker *broker, int msec, guest_told_fn told, void *arg)
{
	struct pollfd polls[] = {
		{ .fd = broker->socket, .events = POLLIN },
		{ .fd = broker->vmm_pidfd, .events = POLLIN },
	};
	struct guest_answer answer_to = {};
	struct guest_request request;
	ssize_t size;
	int fd = -1;
	bool good;

	if (broker->socket < 0)
		return false;

	poll(polls, ARRAY_SIZE(polls), msec);
	broker->vmm_ended = polls[1].revents;
	size = recv(broker->socket, &request, sizeof(request), MSG_DONTWAIT);
	if (size < 0 && (errno == EINTR || errno == EAGAIN) && !broker->vmm_ended)
		return true;

	good = size == sizeof(request) && !broker->vmm_ended;
	if (good) {
		if (answer(broker, &request, answer_to.text, &fd))
			answer_to.error = errno ?: EPERM;
		if (request.op == GUEST_TELL)
			told(request.nr, request.told, arg);
		good = reply(broker->socket, &answer_to, fd);
	}
	if (fd >= 0)
		close(fd);
	if (!good)
		guest_broker__kill(broker);
	return good;
}

/* Leave nothing open but the socket and the pipe, both above 2; return false if that fails. */
static bool close_others(int socket, int stop)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;

	if (null < 0 || !fds)
		return false;

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	while ((entry = readdir(fds))) {
		int fd = atoi(entry->d_name);

		if (fd > STDERR_FILENO && fd != socket && fd != stop && fd != dirfd(fds))
			close(fd);
	}
	closedir(fds);
	return true;
}

/*
 * Limit what the process can take from others, however a guest makes it behave: memory, and the
 * largest file.  If memory gets short, it is the first to go.
 */
static bool limit_process(void)
{
	const struct {
		int	what;
		rlim_t	value;
	} limits[] = {
		{ RLIMIT_DATA, MAX_MEMORY }, { RLIMIT_FSIZE, MAX_FILE_SIZE }, { RLIMIT_CORE, 0 },
	};
	int fd;

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		const struct rlimit limit = { limits[i].value, limits[i].value };

		if (setrlimit(limits[i].what, &limit))
			return false;
	}
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1000", 4) != 4)
		pr_debug("What reads a guest may outlive others when memory gets short\n");
	if (fd >= 0)
		close(fd);
	return true;
}

/*
 * Fork a process that sends no SIGCHLD when it ends: perf record takes that for the end of the
 * workload.  Without fork(), no handlers run in the process: perf must have one thread.
 */
static pid_t fork_quietly(void)
{
	return syscall(syscalltbl__id(EM_HOST, "clone"), 0, NULL, NULL, NULL, NULL);
}

/* Start the process; it ends with perf. */
static pid_t start_process(int socket, int stop, const struct guest_reader *what,
			   guest_reader_fn run)
{
	pid_t perf = getpid(), pid;
	sigset_t all, old;

	sigfillset(&all);
	/* What perf has not written yet would be written twice. */
	fflush(NULL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = fork_quietly();
	if (!pid) {
		/* Signals stay blocked: Ctrl-C is for perf, which ends this process. */
		if (!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == perf &&
		    close_others(socket, stop) && limit_process())
			run(what, socket, stop);
		_exit(0);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return pid;
}

/* Keep files of this process's out of the places of standard input, output and error. */
static int move_up(int *fd)
{
	int higher = *fd < 0 ? -1 : fcntl(*fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

	if (*fd >= 0)
		close(*fd);
	*fd = higher;
	return higher;
}

/**
 * guest_broker__start - start a process that reads a guest
 * @what:	what to read; the process may write to @what->top
 * @run:	the function that reads it
 *
 * Context: perf must not have another thread yet, as the process is a fork of it.
 * Return: what to serve the process by; NULL if it can't be started.
 */
struct guest_broker *guest_broker__start(const struct guest_reader *what, guest_reader_fn run)
{
	struct guest_broker *broker = zalloc(sizeof(*broker));
	int socket[2] = { -1, -1 }, stop[2] = { -1, -1 };

	if (!broker)
		return NULL;

	broker->vmm = what->pid;
	broker->top = strdup(what->top);
	broker->pid = -1;
	/* Look at the VMM first: the process can read whoever has its pid. */
	broker->vmm_pidfd = syscall(syscalltbl__id(EM_HOST, "pidfd_open"), what->pid, 0);
	if (broker->top && broker->vmm_pidfd >= 0 &&
	    !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socket) &&
	    !pipe2(stop, O_CLOEXEC) && move_up(&socket[0]) >= 0 && move_up(&socket[1]) >= 0 &&
	    move_up(&stop[0]) >= 0 && move_up(&stop[1]) >= 0)
		broker->pid = start_process(socket[1], stop[0], what, run);
	if (socket[1] >= 0)
		close(socket[1]);
	if (stop[0] >= 0)
		close(stop[0]);
	broker->socket = socket[0];
	broker->stop = stop[1];
	if (broker->pid > 0)
		return broker;

	guest_broker__delete(broker);
	return NULL;
}

/**
 * guest_broker__stop - tell the process to end
 * @broker: the process; serve it until it has ended, or kill it
 */
void guest_broker__stop(struct guest_broker *broker)
{
	if (broker->stop >= 0)
		close(broker->stop);
	broker->stop = -1;
}

/**
 * guest_broker__kill - end the process, and serve it no more
 * @broker: the process
 */
void guest_broker__kill(struct guest_broker *broker)
{
	if (broker->pid > 0) {
		kill(broker->pid, SIGKILL);
		waitpid(broker->pid, NULL, __WALL);
	}
	broker->pid = -1;
	if (broker->socket >= 0)
		close(broker->socket);
	broker->socket = -1;
}

/**
 * guest_broker__delete - end the process, and free what perf has of it
 * @broker: the process; NULL if it could not be started
 */
void guest_broker__delete(struct guest_broker *broker)
{
	if (!broker)
		return;

	guest_broker__stop(broker);
	guest_broker__kill(broker);
	if (broker->vmm_pidfd >= 0)
		close(broker->vmm_pidfd);
	free(broker->top);
	free(broker);
}
