// SPDX-License-Identifier: GPL-2.0
/*
 * Test that the process that reads a guest can do nothing else, whatever the guest makes it do.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <linux/capability.h>
#include <linux/kernel.h>

#include "debug.h"
#include "fake-guest.h"
#include "guest-broker.h"
#include "guest-reader.h"
#include "guest-sandbox.h"
#include "tests.h"

/* What the confined process tells: the first attempt that had another outcome than it should. */
enum { TOLD_FAULT, TOLD_PID, TOLD_END };

static char fault[GUEST_TOLD_SIZE];
static bool ended;

/* Return true if a process has no capabilities but that to trace others. */
static bool has_dropped_capabilities(pid_t pid)
{
	char path[PATH_MAX], line[128];
	u64 caps = ~0ULL;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status) &&
	       sscanf(line, "CapPrm: %" SCNx64, &caps) != 1)
		;
	if (status)
		fclose(status);
	return !(caps & ~(1ULL << CAP_SYS_PTRACE));
}

static void note(u32 what, const void *data, void *arg __maybe_unused)
{
	pid_t pid;

	if (what == TOLD_PID) {
		memcpy(&pid, data, sizeof(pid));
		if (!has_dropped_capabilities(pid))
			snprintf(fault, sizeof(fault), "capabilities");
	}
	if (what == TOLD_FAULT && !*fault)
		memcpy(fault, data, sizeof(fault) - 1);
	ended |= what == TOLD_END;
}

static void check(const char *name, bool good)
{
	char text[GUEST_TOLD_SIZE] = "";

	if (!good) {
		snprintf(text, sizeof(text), "%s", name);
		guest_sandbox__tell(TOLD_FAULT, text, sizeof(text));
	}
}

/* Check that what was done just now, with this result, was refused. */
static void refused(const char *name, long result)
{
	check(name, result == -1 && errno == EPERM);
}

static bool can_read(pid_t pid, void *from)
{
	u64 word;
	struct iovec local = { &word, sizeof(word) }, remote = { from, sizeof(word) };

	return process_vm_readv(pid, &local, 1, &remote, 1, 0) == sizeof(word);
}

/* Try what shellcode would. */
static void try_calls(const struct guest_reader *what, int broker, int stop __maybe_unused)
{
	char byte, *const args[] = { NULL };
	pid_t pid = getpid();
	static u64 word;
	void *page;

	if (!guest_sandbox__enter(what->pid, broker))
		return;

	guest_sandbox__tell(TOLD_PID, &pid, sizeof(pid));
	refused("open", open("/dev/null", O_RDONLY));
	refused("creat", creat(what->top, 0600));
	refused("unlink", unlink(what->top));
	refused("mkdir", mkdir(what->top, 0700));
	refused("chmod", chmod(what->top, 0700));
	refused("socket", socket(AF_UNIX, SOCK_STREAM, 0));
	refused("execve", execve("/bin/true", args, args));
	refused("fork", fork());
	refused("kill", kill(what->pid, 0));
	refused("ptrace", ptrace(PTRACE_ATTACH, what->pid, NULL, NULL));
	refused("unshare", unshare(CLONE_NEWUSER));
	refused("setuid", setuid(65534));
	refused("memory of others", can_read(1, &word) ? 0 : -1);
	refused("own memory", can_read(0, &word) ? 0 : -1);
	check("what is typed", read(STDERR_FILENO, &byte, 1) == 0);
	refused("F_DUPFD", fcntl(STDERR_FILENO, F_DUPFD, 0));

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check("memory", page != MAP_FAILED);
	refused("mprotect", mprotect(page, 4096, PROT_READ | PROT_EXEC));
	refused("code", mmap(NULL, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
		MAP_FAILED ? -1 : 0);
	/* The same address is the VMM's: this process is a copy of it. */
	check("memory of the VMM", can_read(what->pid, &word));
	page = mmap(NULL, 3UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check("all memory", page == MAP_FAILED && errno == ENOMEM);
	guest_sandbox__tell(TOLD_END, "", 1);
}

/* Try to get from perf what the guest's directory and the VMM don't have. */
static void try_requests(const struct guest_reader *what, int broker, int stop __maybe_unused)
{
	char path[PATH_MAX], other[PATH_MAX], byte;
	int fd;

	if (!guest_sandbox__enter(what->pid, broker))
		return;

	check("own directory", !guest_sandbox__mkdir(what->top));
	snprintf(path, sizeof(path), "%s/a", what->top);
	fd = guest_sandbox__open(path, GUEST_CREATE_FILE);
	check("new file", fd > 0 && write(fd, "a", 1) == 1);
	check("it can't be read", read(fd, &byte, 1) == -1 && errno == EBADF);
	check("large file", lseek(fd, 1L << 30, SEEK_SET) > 0 && write(fd, "a", 1) == -1 &&
	      errno == EFBIG);
	check("no file twice", guest_sandbox__open(path, GUEST_CREATE_FILE) == -1 &&
	      errno == EEXIST);
	check("append", guest_sandbox__open(path, GUEST_APPEND_FILE) > 0);
	snprintf(other, sizeof(other), "%s/b", what->top);
	check("rename", !guest_sandbox__rename(path, other));
	refused("read it", guest_sandbox__open(other, GUEST_READ_FILE));
	check("remove", !guest_sandbox__unlink(other));

	/* What rm_rf() can't remove, and what is not for the process to say. */
	snprintf(path, sizeof(path), "%s/1/2/3/4/5/6/7/8/9", what->top);
	refused("deep", guest_sandbox__mkdir(path));
	snprintf(path, sizeof(path), "%s/%0300d", what->top, 0);
	refused("long", guest_sandbox__mkdir(path));
	snprintf(path, sizeof(path), "%s/dir", what->top);
	check("directory", !guest_sandbox__mkdir(path));
	refused("rename a directory", guest_sandbox__rename(path, other));
	snprintf(path, sizeof(path), "%s/name", what->top);
	refused("name of the VM", guest_sandbox__open(path, GUEST_CREATE_FILE));

	snprintf(path, sizeof(path), "%s/../outside", what->top);
	refused("..", guest_sandbox__open(path, GUEST_CREATE_FILE));
	snprintf(path, sizeof(path), "%s-outside", what->top);
	refused("beside", guest_sandbox__open(path, GUEST_CREATE_FILE));
	refused("directory", guest_sandbox__mkdir(path));
	refused("append to others", guest_sandbox__open(path, GUEST_APPEND_FILE));
	refused("rename to", guest_sandbox__rename(other, path));
	refused("rename from", guest_sandbox__rename(path, other));
	refused("remove others", guest_sandbox__unlink(path));
	refused("link out", guest_sandbox__open("/etc/passwd", GUEST_APPEND_FILE));

	refused("files of others", guest_sandbox__open("/etc/passwd", GUEST_READ_FILE));
	refused("maps of others", guest_sandbox__open("/proc/1/maps", GUEST_READ_FILE));
	snprintf(path, sizeof(path), "/proc/%d/maps", what->pid);
	check("maps", guest_sandbox__open(path, GUEST_READ_FILE) > 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", what->pid);
	refused("memory", guest_sandbox__open(path, GUEST_READ_FILE));
	snprintf(path, sizeof(path), "/proc/%d/fdinfo/../environ", what->pid);
	refused("environment", guest_sandbox__open(path, GUEST_READ_FILE));
	snprintf(path, sizeof(path), "/proc/%d/maps", what->pid);
	refused("create there", guest_sandbox__open(path, GUEST_CREATE_FILE));
	refused("no such request", guest_sandbox__open("", GUEST_SAY + 1));
	guest_sandbox__tell(TOLD_END, "", 1);
}

static void run_away(const struct guest_reader *what __maybe_unused, int broker __maybe_unused,
		     int stop __maybe_unused)
{
	abort();
}

static void wait_for_end(const struct guest_reader *what, int broker, int stop)
{
	char byte;

	if (guest_sandbox__enter(what->pid, broker))
		check("end", !read(stop, &byte, 1));
}

/* Make directories, which are files as well, until perf makes no more. */
static void use_up(const struct guest_reader *what, int broker, int stop __maybe_unused)
{
	unsigned int nr = 0;

	if (!guest_sandbox__enter(what->pid, broker))
		return;

	while (nr < 1U << 17 && (!guest_sandbox__mkdir(what->top) || errno == EEXIST))
		nr++;
	check("endless files", nr < 1U << 17);
	guest_sandbox__tell(TOLD_END, "", 1);
}

/* Ask, and never read an answer. */
static void flood(const struct guest_reader *what, int broker, int stop __maybe_unused)
{
	const struct guest_request request = { .op = GUEST_ASK_POLICY };

	if (guest_sandbox__enter(what->pid, broker)) {
		while (write(broker, &request, sizeof(request)) == sizeof(request))
			;
		/* Don't end by itself. */
		poll(NULL, 0, -1);
	}
}

static void stay(const struct guest_reader *what, int broker, int stop __maybe_unused)
{
	if (guest_sandbox__enter(what->pid, broker)) {
		guest_sandbox__tell(TOLD_END, "", 1);
		poll(NULL, 0, -1);
	}
}

static void say(const struct guest_reader *what, int broker, int stop __maybe_unused)
{
	if (guest_sandbox__enter(what->pid, broker))
		pr_err("a\x1b[2J\x9b\n");
}

/* Run a confined process to its end. */
static int run(const char *dir, guest_reader_fn fn, bool stop)
{
	struct guest_reader what = { .pid = getpid() };
	struct guest_broker *broker;
	char top[PATH_MAX];

	ended = false;
	*fault = 0;
	snprintf(top, sizeof(top), "%s/top", dir);
	what.top = top;
	broker = guest_broker__start(&what, fn);
	TEST_ASSERT_VAL("no process", broker);
	if (stop)
		guest_broker__stop(broker);
	while (guest_broker__serve(broker, 100, note, NULL))
		;
	TEST_ASSERT_VAL("served after its end", !guest_broker__serve(broker, 0, note, NULL));
	guest_broker__delete(broker);
	if (*fault)
		pr_debug("%s\n", fault);
	TEST_ASSERT_VAL("see the line above", !*fault);
	return TEST_OK;
}

static int test_calls(const char *dir)
{
	TEST_ASSERT_EQUAL("calls", run(dir, try_calls, false), TEST_OK);
	TEST_ASSERT_VAL("not all were tried", ended);
	return TEST_OK;
}

static int test_requests(const char *dir)
{
	char path[PATH_MAX];

	/* This is there for the process to remove, rename or append to. */
	snprintf(path, sizeof(path), "%s/top-outside", dir);
	TEST_ASSERT_VAL("no file", fake__write_text(path, "mine"));
	TEST_ASSERT_EQUAL("requests", run(dir, try_requests, false), TEST_OK);
	TEST_ASSERT_VAL("not all were tried", ended);
	TEST_ASSERT_VAL("it is still there", !access(path, F_OK));
	return TEST_OK;
}

/* perf survives a process that dies, and ends one that waits. */
static int test_end(const char *dir)
{
	TEST_ASSERT_EQUAL("dies", run(dir, run_away, false), TEST_OK);
	TEST_ASSERT_EQUAL("waits", run(dir, wait_for_end, true), TEST_OK);
	return TEST_OK;
}

/* Messages can't control a terminal. */
static int test_messages(const char *dir)
{
	FILE *usual = debug_file(), *file;
	char *text = NULL;
	size_t size;
	bool same;
	int err;

	file = open_memstream(&text, &size);
	TEST_ASSERT_VAL("no memory", file);
	debug_set_file(file);
	err = run(dir, say, false);
	debug_set_file(usual);
	same = !fclose(file) && !strcmp(text, "a?[2J?\n");
	free(text);
	TEST_ASSERT_EQUAL("a message", err, TEST_OK);
	TEST_ASSERT_VAL("its text", same);
	return TEST_OK;
}

/* perf ends a process that stays, that waits for nothing, or that wants too much. */
static int test_stubborn(const char *dir)
{
	struct guest_reader what = { .pid = getpid(), .top = dir };
	struct guest_broker *broker;
	pid_t pid;

	TEST_ASSERT_EQUAL("floods", run(dir, flood, false), TEST_OK);
	TEST_ASSERT_EQUAL("files without end", run(dir, use_up, false), TEST_OK);
	TEST_ASSERT_VAL("not all were tried", ended);

	ended = false;
	broker = guest_broker__start(&what, stay);
	TEST_ASSERT_VAL("no process", broker);
	while (!ended && guest_broker__serve(broker, 100, note, NULL))
		;
	guest_broker__stop(broker);
	TEST_ASSERT_VAL("it has ended", guest_broker__serve(broker, 100, note, NULL));
	pid = broker->pid;
	guest_broker__delete(broker);
	TEST_ASSERT_VAL("it is still there", kill(pid, 0) && errno == ESRCH);
	return TEST_OK;
}

/* When the VMM ends, its pid may become another process's: nothing is read any more. */
static int test_vmm(const char *dir)
{
	struct guest_reader what = { .top = dir };
	struct guest_broker *broker;

	what.pid = fork();
	if (!what.pid) {
		poll(NULL, 0, -1);
		_exit(0);
	}
	ended = false;
	broker = guest_broker__start(&what, stay);
	TEST_ASSERT_VAL("no process", broker);
	while (!ended && guest_broker__serve(broker, 100, note, NULL))
		;
	TEST_ASSERT_VAL("no VMM", !broker->vmm_ended);
	kill(what.pid, SIGKILL);
	waitpid(what.pid, NULL, 0);
	TEST_ASSERT_VAL("goes on", !guest_broker__serve(broker, 10000, note, NULL));
	TEST_ASSERT_VAL("why", broker->vmm_ended && broker->pid == -1);
	guest_broker__delete(broker);
	what.pid = 1 << 30;
	TEST_ASSERT_VAL("no such VMM", !guest_broker__start(&what, stay));
	return TEST_OK;
}

/* Return true if the process runs, and is not just waited for. */
static bool is_running(pid_t pid)
{
	char path[PATH_MAX], state = 'Z';
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	stat = fopen(path, "re");
	if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
		state = 'Z';
	if (stat)
		fclose(stat);
	return state != 'Z';
}

/* The process ends when perf is killed. */
static int test_perf(const char *dir)
{
	struct guest_reader what = { .pid = getpid(), .top = dir };
	struct guest_broker *broker;
	pid_t perf, pid;
	int told[2];

	TEST_ASSERT_VAL("no pipe", !pipe(told));
	perf = fork();
	if (!perf) {
		ended = false;
		broker = guest_broker__start(&what, stay);
		while (broker && !ended && guest_broker__serve(broker, 100, note, NULL))
			;
		pid = broker ? broker->pid : -1;
		if (write(told[1], &pid, sizeof(pid)) == sizeof(pid))
			poll(NULL, 0, -1);
		_exit(1);
	}
	TEST_ASSERT_VAL("no pid", read(told[0], &pid, sizeof(pid)) == sizeof(pid));
	TEST_ASSERT_VAL("no process", pid > 0 && is_running(pid));
	kill(perf, SIGKILL);
	waitpid(perf, NULL, 0);
	for (unsigned int i = 0; i < 50 && is_running(pid); i++)
		poll(NULL, 0, 100);
	TEST_ASSERT_VAL("it is still there", !is_running(pid));
	close(told[0]);
	close(told[1]);
	return TEST_OK;
}

static struct test_case tests__guest_sandbox[] = {
	FAKE_GUEST_TEST("System calls", test_calls),
	FAKE_GUEST_TEST("Requests to perf", test_requests),
	FAKE_GUEST_TEST("End", test_end),
	FAKE_GUEST_TEST("Messages", test_messages),
	FAKE_GUEST_TEST("Processes that don't end", test_stubborn),
	FAKE_GUEST_TEST("End of the VMM", test_vmm),
	FAKE_GUEST_TEST("End of perf", test_perf),
	{ .name = NULL, }
};

struct test_suite suite__guest_sandbox = {
	.desc = "Processes that read guests",
	.test_cases = tests__guest_sandbox,
};
