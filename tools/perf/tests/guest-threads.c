// SPDX-License-Identifier: GPL-2.0
/*
 * Which task of a guest a sample hit, and which of the guest's kernels: by files as perf
 * record leaves them.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <linux/kernel.h>
#include <perf/event.h>

#include "env.h"
#include "guest-info.h"
#include "guest-threads.h"
#include "machine.h"
#include "map.h"
#include "sample.h"
#include "symbol_conf.h"
#include "tests.h"
#include "thread.h"
#include "util.h"

#define VMM		4242
#define MAX_PATH	256

#define KERNEL		PERF_RECORD_MISC_GUEST_KERNEL
#define USER		PERF_RECORD_MISC_GUEST_USER

/* At 20, task 7 calls exec, 9 has ended, and its stack is another one's at 30. */
static const char tasks[] =
	"0 ffffc90000000000 0 0 0 swapper/1\n"
	"0 ffffc90000010000 1000 7 7 sh\n"
	"0 ffffc90000014000 1000 7 8 a thread\n"
	"0 ffffc90000020000 5000 9 9 gone\n"
	"nonsense\n"
	"0 ffffc90000028000 6000 1\n"
	"0 ffffc90000030000 7000 1 1 \n"
	"20 ffffc90000010000 3000 7 7 find\n"
	"20 ffffc90000020000\n"
	"30 ffffc90000020000 c000 11 11 later\n";

static const struct {
	const char	*name;
	u16		cpumode;
	u64		time;
	u64		sp;
	u64		task_sp;	/* of the second piece, if there is one */
	u64		root;
	int		tid;		/* that of the VMM if it is not known */
	const char	*comm;
} cases[] = {
	{ "a process",		KERNEL, 10, 0xffffc90000010010, 0, 0x1000, 7, "sh" },
	{ "its first byte",	KERNEL, 10, 0xffffc90000010000, 0, 0x1000, 7, "sh" },
	{ "its last bytes",	KERNEL, 10, 0xffffc90000013ff8, 0, 0x1000, 7, "sh" },
	{ "a PCID",		KERNEL, 10, 0xffffc90000010010, 0, 0x1abc, 7, "sh" },
	{ "tags of addresses",	KERNEL, 10, 0xffffc90000010010, 0, 0x6000000000001000, 7, "sh" },
	{ "a thread",		KERNEL, 10, 0xffffc90000014010, 0, 0x1000, 8, "a thread" },
	{ "an interrupt",	KERNEL, 10, 0xffffc90000000010, 0xffffc90000014010, 0x1000, 8,
				"a thread" },
	{ "the idle task",	KERNEL, 10, 0xffffc90000000010, 0, 0x1000, 0, "swapper" },
	{ "before exec",	KERNEL, 19, 0xffffc90000010010, 0, 0x1000, 7, "sh" },
	{ "exec, not noted",	KERNEL, 19, 0xffffc90000010010, 0, 0x3000, 7, "find" },
	{ "after exec",		KERNEL, 20, 0xffffc90000010010, 0, 0x3000, 7, "find" },
	{ "a task",		KERNEL, 19, 0xffffc90000020010, 0, 0x5000, 9, "gone" },
	{ "the next one's",	KERNEL, 25, 0xffffc90000020010, 0, 0xc000, 11, "later" },
	{ "nobody's stack",	KERNEL, 25, 0xffffc90000020010, 0, 0xa000, VMM, NULL },
	{ "behind a stack",	KERNEL, 10, 0xffffc90000024000, 0, 0xa000, VMM, NULL },
	{ "below all stacks",	KERNEL, 10, 0xffff888000000000, 0, 0xa000, VMM, NULL },
	{ "another stack",	KERNEL, 10, 0xffffc90000024000, 0, 0x1000, 7, "sh" },
	{ "user mode",		USER, 10, 0x7fff00000000, 0, 0x1000, 7, "sh" },
	{ "user mode, PTI",	USER, 25, 0x7fff00000000, 0, 0xd000, 11, "later" },
	{ "user mode, no PTI",	USER, 10, 0x7fff00000000, 0, 0x5000, 9, "gone" },
	{ "user mode, exec",	USER, 25, 0x7fff00000000, 0, 0x3000, 7, "find" },
	{ "user mode of none",	USER, 10, 0x7fff00000000, 0, 0xa000, VMM, NULL },
	{ "the kernel's stack",	USER, 10, 0xffffc90000010010, 0, 0xa000, VMM, NULL },
};

static bool write_file(const char *dir, const char *name, const char *text)
{
	char path[MAX_PATH];
	FILE *file;
	bool good;

	scnprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "we");
	good = file && fputs(text, file) >= 0;
	return file && !fclose(file) && good;
}

/* A kernel whose code begins at @text. */
static bool make_kernel(const char *dir, u64 text)
{
	char path[MAX_PATH], symbols[256];

	scnprintf(path, sizeof(path), "%s/proc", dir);
	scnprintf(symbols, sizeof(symbols), "%016lx T _text\n%016lx T _stext\n%016lx T do_it\n"
		 "%016lx T _etext\n", (long)text, (long)text, (long)text + 0x100,
		 (long)text + 0x200000);
	return !mkdir(path, 0700) && write_file(path, "kallsyms", symbols) &&
	       write_file(path, "modules", "") &&
	       write_file(path, "version", "Linux version 6.1.0-test (by its memory)\n");
}

static int test_tasks(struct machine *machine)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct perf_record_guest_stack_info info = {
			.sp = cases[i].sp,
			.root = cases[i].root,
			.pieces = {
				{ .addr = cases[i].sp, .size = 8 },
				{ .addr = cases[i].task_sp },
			},
		};
		struct perf_sample sample;
		struct thread *thread = NULL;
		bool good;

		if (cases[i].task_sp)
			info.pieces[1].size = 8;
		perf_sample__init(&sample, /*all=*/true);
		sample.pid = VMM;
		sample.tid = VMM;
		sample.time = cases[i].time;
		sample.cpumode = cases[i].cpumode;
		sample.guest_stack.info = &info;
		sample__name_guest_task(&sample, machine);
		good = (int)sample.tid == cases[i].tid;
		if (good && cases[i].comm) {
			thread = machine__find_thread(machine, sample.pid, sample.tid);
			good = thread && !strcmp(thread__comm_str(thread), cases[i].comm);
		}
		if (!good)
			pr_debug("%d/%d %s\n", sample.pid, sample.tid,
				 thread ? thread__comm_str(thread) : "");
		thread__put(thread);
		TEST_ASSERT_VAL(cases[i].name, good);

		/* Nothing is said of samples that carry no stack. */
		sample.pid = VMM;
		sample.tid = VMM;
		sample.guest_stack.info = NULL;
		sample__name_guest_task(&sample, machine);
		TEST_ASSERT_VAL("no stack", sample.pid == VMM && sample.tid == VMM);
	}
	return 0;
}

static u64 kernel_start(struct machine *machine)
{
	struct map *map = machine__kernel_map(machine);

	return map ? map__start(map) : 0;
}

static int test_kernels(struct machine *machine)
{
	guest_info__use_kernel_of(machine, 99);
	TEST_ASSERT_VAL("the first kernel", kernel_start(machine) == 0xffffffff81000000);
	guest_info__use_kernel_of(machine, ~0ULL);
	TEST_ASSERT_VAL("a sample without time", kernel_start(machine) == 0xffffffff81000000);
	guest_info__use_kernel_of(machine, 100);
	TEST_ASSERT_VAL("the second kernel", kernel_start(machine) == 0xffffffff92000000);
	TEST_ASSERT_VAL("no tasks of the first", !machine__find_thread(machine, 7, 8));
	guest_info__use_kernel_of(machine, 5000);
	TEST_ASSERT_VAL("the last kernel", kernel_start(machine) == 0xffffffff93000000);
	return 0;
}

static int test_guest(const char *dir)
{
	char top[MAX_PATH], path[MAX_PATH];
	struct machines machines;
	struct machine *machine;
	struct perf_env env;
	int err;

	scnprintf(top, sizeof(top), "%s/%d", dir, VMM);
	TEST_ASSERT_VAL("no folder", !mkdir(top, 0700));
	TEST_ASSERT_VAL("no kernel", make_kernel(top, 0xffffffff81000000));
	TEST_ASSERT_VAL("no tasks", write_file(top, "tasks", tasks));
	scnprintf(path, sizeof(path), "%s/kernels", top);
	TEST_ASSERT_VAL("no folder", !mkdir(path, 0700));
	/* In the order of their times, not of their names. */
	scnprintf(path, sizeof(path), "%s/kernels/1000", top);
	TEST_ASSERT_VAL("no kernel", !mkdir(path, 0700) && make_kernel(path, 0xffffffff93000000));
	scnprintf(path, sizeof(path), "%s/kernels/100", top);
	TEST_ASSERT_VAL("no kernel", !mkdir(path, 0700) && make_kernel(path, 0xffffffff92000000));

	perf_env__init(&env);
	machines__init(&machines);
	machines.host.env = &env;
	machine = machines__findnew(&machines, VMM);
	err = !machine || machine__create_kernel_maps(machine) || test_tasks(machine) ||
	      test_kernels(machine);
	machines__exit(&machines);
	perf_env__exit(&env);
	return err;
}

static int test__guest_threads(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	const char *const was = symbol_conf.guestmount;
	char dir[] = "/tmp/perf-test-guest-XXXXXX";
	int err;

	TEST_ASSERT_VAL("no directory", mkdtemp(dir));
	symbol_conf.guestmount = dir;
	err = test_guest(dir);
	symbol_conf.guestmount = was;
	rm_rf(dir);
	return err ? TEST_FAIL : TEST_OK;
}

DEFINE_SUITE("Tasks and kernels of guests", guest_threads);
