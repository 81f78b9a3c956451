// SPDX-License-Identifier: GPL-2.0
/*
 * Confine the process that reads a guest.  A guest may prepare its memory so as to break the code
 * that reads it.  So this code runs in a process that can use memory and the files that it has
 * open, and read the VMM's memory.  Its only capability is the one to read the VMM.  For all else,
 * it asks perf: see guest-broker.c, which decides.
 *
 * Landlock could restrict where it writes, but neither whose memory it reads nor what else it does.
 *
 * Functions that open or change files do so directly in a process that is not confined.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/kernel.h>
#include <linux/seccomp.h>

#include "debug.h"
#include "dwarf-regs.h"
#include "guest-sandbox.h"
#include "trace/beauty/syscalltbl.h"
#include "ui/ui.h"

#if defined(__x86_64__)
#define THIS_ARCH	AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH	AUDIT_ARCH_AARCH64
#else
/* Guests can't be read here, see guest_memory__is_supported(). */
#define THIS_ARCH	0
#endif

/* Capabilities that decide whether the VMM's memory may be read; all others are dropped. */
#define KEPT_CAPABILITIES	(1U << CAP_SYS_PTRACE)

/* The lower half of a system call's argument: seccomp compares words of 32 bits. */
#define ARGUMENT(nr)	(offsetof(struct seccomp_data, args) + (nr) * sizeof(u64) +		\
			 (__BYTE_ORDER == __BIG_ENDIAN ? sizeof(u32) : 0))

#define LOAD(offset)	((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset))
#define RETURN(value)	((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value))
#define JUMP(kind, value, if_true, if_false)							\
	((struct sock_filter)BPF_JUMP(BPF_JMP | (kind) | BPF_K, value, if_true, if_false))
#define ALLOW		RETURN(SECCOMP_RET_ALLOW)
#define REFUSE		RETURN(SECCOMP_RET_ERRNO | EPERM)

/* System calls that the process may make. */
static const char *const calls[] = {
	"brk", "clock_gettime", "clock_nanosleep", "close", "exit_group", "futex", "getrandom",
	"lseek", "madvise", "mremap", "munmap", "nanosleep", "poll", "ppoll", "pread64", "read",
	"readv", "recvmsg", "restart_syscall", "sendmsg", "write", "writev",
};

/* System calls that it may make if an argument has this value, or none of these bits. */
static const struct {
	const char	*name;
	u32		nr;
	enum { VALUE, NO_BITS } kind;
	u32		value;
} calls_with[] = {
	/* fdopen() asks how the file was opened. */
	{ "fcntl", 1, VALUE, F_GETFL },
	{ "mmap", 2, NO_BITS, PROT_EXEC },
	{ "mprotect", 2, NO_BITS, PROT_EXEC },
	/* perf's clock is read by giving the thread a name, see guest-reader.c. */
	{ "prctl", 0, VALUE, PR_SET_NAME },
};

/* The socket to the process that decides; -1 in a process that is not confined. */
static int broker = -1;

static bool drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {};

	if (syscall(SYS_capget, &header, caps))
		return false;

	for (size_t i = 0; i < ARRAY_SIZE(caps); i++) {
		caps[i].permitted &= i ? 0 : KEPT_CAPABILITIES;
		caps[i].effective = caps[i].permitted;
		caps[i].inheritable = 0;
	}
	return !syscall(syscalltbl__id(EM_HOST, "capset"), &header, caps);
}

/* Add a rule for a system call that may be made if the argument @nr is right. */
static struct sock_filter *add_call_with(struct sock_filter *next, const char *name, u32 nr,
					 int kind, u32 value)
{
	bool wanted = kind == VALUE;
	int id = syscalltbl__id(EM_HOST, name);

	/* All architectures have these calls.  No call has the number -1. */
	assert(id >= 0);
	*next++ = JUMP(BPF_JEQ, id, 0, 4);
	*next++ = LOAD(ARGUMENT(nr));
	*next++ = JUMP(kind == NO_BITS ? BPF_JSET : BPF_JEQ, value, !wanted, wanted);
	*next++ = ALLOW;
	*next++ = REFUSE;
	return next;
}

/* Let this process make no system calls but these, and read the memory of no process but @vmm. */
static bool restrict_calls(pid_t vmm)
{
	struct sock_filter filter[10 + 2 * ARRAY_SIZE(calls) + 5 * ARRAY_SIZE(calls_with)];
	struct sock_filter *next = filter;
	struct sock_fprog program = { .filter = filter };

	*next++ = LOAD(offsetof(struct seccomp_data, arch));
	*next++ = JUMP(BPF_JEQ, THIS_ARCH, 1, 0);
	*next++ = RETURN(SECCOMP_RET_KILL_PROCESS);
	*next++ = LOAD(offsetof(struct seccomp_data, nr));
	next = add_call_with(next, "process_vm_readv", 0, VALUE, vmm);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		int id = syscalltbl__id(EM_HOST, calls[i]);

		/* arm64 has no poll(). */
		assert(id >= 0 || !strcmp(calls[i], "poll"));
		if (id < 0)
			continue;
		*next++ = JUMP(BPF_JEQ, id, 0, 1);
		*next++ = ALLOW;
	}
	for (size_t i = 0; i < ARRAY_SIZE(calls_with); i++)
		next = add_call_with(next, calls_with[i].name, calls_with[i].nr,
				     calls_with[i].kind, calls_with[i].value);
	*next++ = REFUSE;
	program.len = next - filter;
	assert(program.len <= ARRAY_SIZE(filter));
	return THIS_ARCH && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/*
 * Ask, and wait for the answer; return zero, or -1 with errno set.  If @fd is not NULL, it receives
 * the file descriptor that comes with the answer.
 */
static int ask(struct guest_request *request, struct guest_answer *answer, int *fd)
{
	union {
		struct cmsghdr	align;
		char		space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { request, sizeof(*request) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;

	if (sendmsg(broker, &msg, MSG_NOSIGNAL) != sizeof(*request))
		return -1;

	iov = (struct iovec){ answer, sizeof(*answer) };
	msg.msg_control = &control;
	msg.msg_controllen = sizeof(control);
	/* perf may be gone. */
	if (recvmsg(broker, &msg, 0) != sizeof(*answer)) {
		errno = EPIPE;
		return -1;
	}
	cmsg = CMSG_FIRSTHDR(&msg);
	if (cmsg && fd)
		memcpy(fd, CMSG_DATA(cmsg), sizeof(*fd));
	errno = answer->error;
	return answer->error ? -1 : 0;
}

/* Have perf print what this process prints. */
static ssize_t say(void *cookie __maybe_unused, const char *text, size_t size)
{
	for (size_t done = 0, len; done < size; done += len) {
		struct guest_request request = { .op = GUEST_SAY };
		struct guest_answer answer;

		len = min_t(size_t, size - done, GUEST_TOLD_SIZE);
		request.nr = len;
		memcpy(request.told, &text[done], len);
		if (ask(&request, &answer, NULL))
			break;
	}
	return size;
}

static bool redirect_messages(void)
{
	FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = say });

	if (!file || setvbuf(file, NULL, _IOLBF, 0))
		return false;

	/* perf prints them where its own are. */
	use_browser = 0;
	debug_set_file(file);
	return true;
}

/**
 * guest_sandbox__enter - confine this process for the rest of its life
 * @vmm:	pid of the VMM whose memory it may read
 * @socket:	socket to the process that calls guest_broker__serve()
 *
 * Files that are open stay so.  Messages are printed by perf.
 *
 * Return: true if the process is confined.
 */
bool guest_sandbox__enter(pid_t vmm, int socket)
{
	if (!drop_capabilities() || !restrict_calls(vmm))
		return false;

	broker = socket;
	return redirect_messages();
}

bool guest_sandbox__is_entered(void)
{
	return broker >= 0;
}

static int ask_for_path(enum guest_request_op op, const char *path, const char *to, int *fd)
{
	struct guest_request request = { .op = op };
	struct guest_answer answer;

	if (snprintf(request.path, sizeof(request.path), "%s", path) >= PATH_MAX ||
	    snprintf(request.to, sizeof(request.to), "%s", to) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return ask(&request, &answer, fd);
}

/**
 * guest_sandbox__open - open a file
 * @path:	its path
 * @how:	GUEST_READ_FILE, GUEST_CREATE_FILE, which fails if there is anything of that name,
 *		or GUEST_APPEND_FILE
 *
 * Return: the file descriptor, or -1 with errno set.
 */
int guest_sandbox__open(const char *path, enum guest_request_op how)
{
	static const int flags[] = {
		[GUEST_READ_FILE]	= O_RDONLY | O_CLOEXEC,
		[GUEST_CREATE_FILE]	= O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		[GUEST_APPEND_FILE]	= O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
	};

	int fd = -1;

	if (!guest_sandbox__is_entered())
		return open(path, flags[how], 0600);

	return ask_for_path(how, path, "", &fd) ? -1 : fd;
}

/**
 * guest_sandbox__fopen - open a file as a stream
 * @path:	its path
 * @how:	see guest_sandbox__open()
 *
 * Return: the stream, or NULL with errno set.
 */
FILE *guest_sandbox__fopen(const char *path, enum guest_request_op how)
{
	static const char *const modes[] = {
		[GUEST_READ_FILE] = "r", [GUEST_CREATE_FILE] = "w", [GUEST_APPEND_FILE] = "a",
	};
	int fd = guest_sandbox__open(path, how);
	FILE *file = fd < 0 ? NULL : fdopen(fd, modes[how]);

	if (!file && fd >= 0)
		close(fd);
	return file;
}

/* Like mkdir() for this user only. */
int guest_sandbox__mkdir(const char *path)
{
	return guest_sandbox__is_entered() ? ask_for_path(GUEST_MKDIR, path, "", NULL) :
					     mkdir(path, 0700);
}

/* Like rename(). */
int guest_sandbox__rename(const char *path, const char *to)
{
	return guest_sandbox__is_entered() ? ask_for_path(GUEST_RENAME, path, to, NULL) :
					     rename(path, to);
}

/* Like unlink(). */
int guest_sandbox__unlink(const char *path)
{
	return guest_sandbox__is_entered() ? ask_for_path(GUEST_UNLINK, path, "", NULL) :
					     unlink(path);
}

/**
 * guest_sandbox__find_vm - guest_memslots__find_vm() for the VMM of guest_sandbox__enter()
 * @nr:		index of the VM among the VMM's VMs
 * @path:	receives the path of the VM's fdinfo
 *
 * Return: true if there is one.  If not, errno tells why that isn't known; zero if it is.
 */
bool guest_sandbox__find_vm(unsigned int nr, char path[PATH_MAX])
{
	struct guest_request request = { .op = GUEST_FIND_VM, .nr = nr };
	struct guest_answer answer;

	if (ask(&request, &answer, NULL))
		return false;

	memcpy(path, answer.text, PATH_MAX);
	return *path;
}

/**
 * guest_sandbox__refusal - guest_policy__refusal() for the VMM of guest_sandbox__enter()
 *
 * Return: the reason, valid until the next call, or NULL if the guest may be read.
 */
const char *guest_sandbox__refusal(void)
{
	struct guest_request request = { .op = GUEST_ASK_POLICY };
	static struct guest_answer answer;

	if (ask(&request, &answer, NULL))
		return "perf can't ask whether it may be read";

	return *answer.text ? answer.text : NULL;
}

/**
 * guest_sandbox__tell - tell something to the caller of guest_broker__serve()
 * @what:	what it is about
 * @data:	what to tell
 * @size:	its size in bytes, at most GUEST_TOLD_SIZE
 */
void guest_sandbox__tell(u32 what, const void *data, size_t size)
{
	struct guest_request request = { .op = GUEST_TELL, .nr = what };
	struct guest_answer answer;

	memcpy(request.told, data, size);
	ask(&request, &answer, NULL);
}
