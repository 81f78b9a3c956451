// SPDX-License-Identifier: GPL-2.0
/*
 * From files like those of perf record, find the task of a guest that a sample hit, the file that
 * the task ran, the guest's kernel, and the name of the VM.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <perf/event.h>

#include "build-id.h"
#include "callchain.h"
#include "cgroup.h"
#include "copyfile.h"
#include "dso.h"
#include "env.h"
#include "guest-files.h"
#include "guest-folder.h"
#include "guest-name.h"
#include "guest-reads.h"
#include "guest-regs.h"
#include "guest-task-reader.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "sample.h"
#include "symbol.h"
#include "symbol_conf.h"
#include "record.h"
#include "tests.h"
#include "thread.h"
#include "util.h"

#define VMM		4242
/* The thread of a vCPU. */
#define VCPU		4243
#define VCPU_COMM	"CPU 0/KVM"
#define MAX_PATH	256

#define KERNEL		PERF_RECORD_MISC_GUEST_KERNEL
#define USER		PERF_RECORD_MISC_GUEST_USER

/* The build-id of a file that the host doesn't have; perf record has read something of it. */
#define PROGRAM_ID	"0011223344556677889900112233445566778899"

/* The directory of the test, and in it the data file and the directory of guests' files. */
static char dir[32], data[64], data_guests[64];

/*
 * At 20, task 7 calls exec, and task 9 has ended; at 30, the stack of task 9 is another task's.
 * Lines that are no notes are ignored.
 */
static const char tasks[] =
	"0 ffffc90000000000 0 0 0 swapper/1\n"
	"0 ffffc90000004000 0 3 3 kthread\n"
	"0 ffffc90000010000 2000 7 7 sh\n"
	"0 ffffc90000054000 18000 7 7 sh\n"
	"0 ffffc90000014000 2000 7 8  a thread\n"
	"0 ffffc90000020000 4000 9 9 gone\n"
	"nonsense\n"
	"0 ffffc90000028000 6000 1\n"
	"0 ffffc90000030000 8000 1 1 \n"
	"0 ffffc90000034000 8000 1 1 \x1b[2J\n"
	"0 ffffc90000038000 8000 4294967303 7 large\n"
	"0 0 8000 1 1 stackless\n"
	"20 ffffc90000010000 e000 7 7 find\n"
	"20 ffffc90000004000 0 4 4 kthread2\n"
	"20 ffffc90000020000\n"
	"30 ffffc90000020000 c000 11 11 later\n"
	"30 ffffc90000024000 12000 12 12 new\n"
	"0 ffffc90000044000 16000 16 16 long\n"
	"9000000000 ffffc90000028000 14000 13 13 too late\n"
	"9000000000 ffffc90000044000\n"
	"9500000000 ffffc9000004c000 1a000 18 18 begins\n"
	"0 ffffc90000050000 0 2 17 by its stack\n"
	"30 ffffc90000070000 18000 19 19 reused\n"
	"0 ffffc90000074000 1c000 20 20 lasting\n";

static const struct {
	const char	*name;
	u16		cpumode;
	u64		time;
	u64		sp;
	u64		task_sp;	/* of the second piece, zero if there is none */
	u64		root;
	int		tid;		/* the vCPU's if the task is not known */
	const char	*comm;		/* NULL for the vCPU's */
} cases[] = {
	{ "a process",		KERNEL, 10, 0xffffc90000010010, 0, 0x2000, 7, "sh" },
	{ "its first byte",	KERNEL, 10, 0xffffc90000010000, 0, 0x2000, 7, "sh" },
	{ "its last bytes",	KERNEL, 10, 0xffffc90000013ff8, 0, 0x2000, 7, "sh" },
	{ "a PCID",		KERNEL, 10, 0xffffc90000010010, 0, 0x2abc, 7, "sh" },
	{ "tags of addresses",	KERNEL, 10, 0xffffc90000010010, 0, 0x6000000000002000, 7, "sh" },
	{ "a thread",		KERNEL, 10, 0xffffc90000014010, 0, 0x2000, 8, " a thread" },
	{ "a thread, PTI",	KERNEL, 10, 0xffffc90000014010, 0, 0x3000, 8, " a thread" },
	{ "an interrupt",	KERNEL, 10, 0xffffc90000000010, 0xffffc90000014010, 0x2000, 8,
				" a thread" },
	{ "the idle task",	KERNEL, 10, 0xffffc90000000010, 0, 0x2000, 0, "swapper" },
	{ "the next stack",	KERNEL, 10, 0xffffc90000004000, 0, 0xa000, 3, "kthread" },
	{ "the same, later",	KERNEL, 20, 0xffffc90000007ff8, 0, 0xa000, 4, "kthread2" },
	{ "before exec",	KERNEL, 19, 0xffffc90000010010, 0, 0x2000, 7, "sh" },
	{ "exec, not noted",	KERNEL, 19, 0xffffc90000010010, 0, 0xe000, 7, "find" },
	{ "after exec",		KERNEL, 20, 0xffffc90000010010, 0, 0xe000, 7, "find" },
	{ "a task",		KERNEL, 19, 0xffffc90000020010, 0, 0x4000, 9, "gone" },
	{ "the next one's",	KERNEL, 25, 0xffffc90000020010, 0, 0xc000, 11, "later" },
	{ "not noted so far",	KERNEL, 10, 0xffffc90000024010, 0, 0x12000, 12, "new" },
	{ "noted too late",	KERNEL, 10, 0xffffc90000028010, 0, 0x14000, VCPU, NULL },
	{ "nobody's stack",	KERNEL, 25, 0xffffc90000020010, 0, 0xa000, VCPU, NULL },
	{ "behind a stack",	KERNEL, 10, 0xffffc90000018000, 0, 0x2000, VCPU, NULL },
	{ "below all stacks",	KERNEL, 10, 0xffff888000000000, 0, 0x2000, VCPU, NULL },
	{ "no stack",		KERNEL, 10, 0, 0, 0x8000, VCPU, NULL },
	{ "a task without name", KERNEL, 10, 0xffffc90000030010, 0, 0x8000, VCPU, NULL },
	{ "half a note",	KERNEL, 10, 0xffffc90000028010, 0, 0x6000, VCPU, NULL },
	{ "an escape sequence",	KERNEL, 10, 0xffffc90000034010, 0, 0x8000, VCPU, NULL },
	{ "a pid too large",	KERNEL, 10, 0xffffc90000038010, 0, 0x8000, VCPU, NULL },
	{ "user mode",		USER, 10, 0x7fff00000000, 0, 0x2000, 7, "sh" },
	{ "user mode, PTI",	USER, 30, 0x7fff00000000, 0, 0xd000, 11, "later" },
	{ "user mode, exec",	USER, 25, 0x7fff00000000, 0, 0xe000, 7, "find" },
	{ "exec has left it",	USER, 25, 0x7fff00000000, 0, 0x2000, VCPU, NULL },
	{ "its process is gone", USER, 25, 0x7fff00000000, 0, 0x4000, VCPU, NULL },
	{ "user mode of none",	USER, 10, 0x7fff00000000, 0, 0xa000, VCPU, NULL },
	{ "no page tables",	USER, 10, 0x7fff00000000, 0, 0, VCPU, NULL },
	{ "a kernel's stack",	USER, 10, 0xffffc90000000010, 0, 0xa000, VCPU, NULL },
};

static bool write_file(const char *top, const char *name, const char *text)
{
	char path[MAX_PATH];
	FILE *file;
	bool good;

	scnprintf(path, sizeof(path), "%s/%s", top, name);
	file = fopen(path, "we");
	good = file && fputs(text, file) >= 0;
	return file && !fclose(file) && good;
}

/* Write the files of kernel number @nr, which has code and symbols of its own. */
static bool make_kernel(const char *top, unsigned int nr)
{
	u64 text = nr == 1 ? 0xffffffff81000000 : 0xffffffff90000000 + (nr << 24);
	char path[MAX_PATH], symbols[512];

	scnprintf(path, sizeof(path), "%s/proc", top);
	/* Names that would control a terminal, or lead to other directories, are left out. */
	scnprintf(symbols, sizeof(symbols),
		  "%016lx T _text\n%016lx T _stext\n%016lx T a\x1b[2J\n%016lx T do_%u\n%016lx T ../a\n%016lx T _etext\n"
		  "ffffffffc0010010 t good_do\t[good]\n"
		  "ffffffffc0010080 t good\x1b\t[good]\n",
		  (long)text, (long)text, (long)text + 0x80, (long)text + 0x100, nr,
		  (long)text + 0x180, (long)text + 0x200000);
	return !mkdir(path, 0700) && write_file(path, "kallsyms", symbols) &&
	       write_file(path, "modules", "../../a 4096 0 - Live 0xffffffffc0000000\n"
			  "good 4096 0 - Live 0xffffffffc0010000\n"
			  ".a 4096 0 - Live 0xffffffffc0020000\n"
			  "a/b 4096 0 - Live 0xffffffffc0030000\n") &&
	       write_file(path, "version", "Linux version 6.1.0-test (by its memory)\n");
}

/* What was read of the guest: SP and the page tables. */
struct fake_read {
	struct perf_record_guest_read	record;
	u64				sp;
};

static void make_read(struct perf_sample *sample, struct fake_read *read, u64 sp, u64 root)
{
	*read = (struct fake_read) {
		.record = { .root = root, .mask = 1 << PERF_REG_X86_SP },
		.sp = sp,
	};
	sample->guest_read.record = &read->record;
}

static int test_tasks(struct machine *machine)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *comm = cases[i].comm ?: VCPU_COMM;
		struct perf_sample sample;
		struct thread *thread = NULL;
		struct fake_read read;
		bool good;

		perf_sample__init(&sample, /*all=*/true);
		sample.pid = VMM;
		sample.tid = VCPU;
		sample.time = cases[i].time;
		sample.cpumode = cases[i].cpumode;
		make_read(&sample, &read, cases[i].sp, cases[i].root);
		if (cases[i].task_sp)
			sample.guest_read.pieces[GUEST_READ_INTERRUPTED] =
				(struct guest_piece){ .addr = cases[i].task_sp, .size = 8 };
		sample__name_guest_task(&sample, machine);
		good = (int)sample.tid == cases[i].tid;
		if (good) {
			thread = machine__find_thread(machine, sample.pid, sample.tid);
			good = thread && !strcmp(thread__comm_str(thread), comm);
		}
		if (!good)
			pr_debug("%d/%d %s\n", sample.pid, sample.tid,
				 thread ? thread__comm_str(thread) : "");
		thread__put(thread);
		TEST_ASSERT_VAL(cases[i].name, good);

		/* A sample without reads keeps its pid and tid. */
		sample.pid = VMM;
		sample.tid = VCPU;
		sample.guest_read.record = NULL;
		sample__name_guest_task(&sample, machine);
		TEST_ASSERT_VAL("no reads", sample.pid == VMM && sample.tid == VCPU);
	}
	return TEST_OK;
}

/* On arm64, an ASID may stand above the page tables, and user mode has no others. */
static const struct {
	const char	*name;
	u16		cpumode;
	u64		sp;
	u64		root;
	int		tid;
} arm64_cases[] = {
	{ "an ASID",			USER, 0, 0x12000000002000, 7 },
	{ "tables for many CPUs",	USER, 0, 0x2001, 7 },
	{ "the page behind",		USER, 0, 0x3000, VCPU },
	{ "a stack",			KERNEL, 0xffffc90000014010, 0x12000000002001, 8 },
	{ "a stack of 64 KiB",		KERNEL, 0xffffc90000063ff0, 0x18000, 7 },
	{ "behind it",			KERNEL, 0xffffc90000064000, 0x18000, VCPU },
};

/* Have the guest be an arm64 one whose CPU translates 39 bits, with pages of 64 KiB. */
static bool make_arm64_tasks(void)
{
	char top[MAX_PATH], text[sizeof(tasks) + 32];

	scnprintf(top, sizeof(top), "%s/%d", data_guests, VMM);
	scnprintf(text, sizeof(text), "arm64 39 16\n%s", tasks);
	return write_file(top, "tasks", text);
}

static int test_arm64(struct machine *machine)
{
	TEST_ASSERT_VAL("unknown", machine__guest_va_bits(NULL) == 48);
	TEST_ASSERT_VAL("no tasks", make_arm64_tasks());
	TEST_ASSERT_VAL("bits of an address", machine__guest_va_bits(machine) == 39);
	for (size_t i = 0; i < ARRAY_SIZE(arm64_cases); i++) {
		struct perf_sample sample;
		struct {
			struct perf_record_guest_read	record;
			u64				sp;
			u64				pc;
		} read = {
			.record = {
				.root = arm64_cases[i].root,
				.mask = BIT_ULL(PERF_REG_ARM64_SP) | BIT_ULL(PERF_REG_ARM64_PC),
			},
			.sp = arm64_cases[i].sp,
		};

		perf_sample__init(&sample, /*all=*/true);
		sample.pid = VMM;
		sample.tid = VCPU;
		sample.time = 10;
		sample.cpumode = arm64_cases[i].cpumode;
		sample.guest_read.record = &read.record;
		sample__name_guest_task(&sample, machine);
		TEST_ASSERT_VAL(arm64_cases[i].name, (int)sample.tid == arm64_cases[i].tid);
	}
	return TEST_OK;
}

/* Give the VMM's thread on the host a name. */
static bool name_vcpu(struct machines *machines)
{
	struct thread *thread = machine__findnew_thread(&machines->host, VMM, VCPU);
	bool named = thread && !thread__set_comm(thread, VCPU_COMM, 0);

	thread__put(thread);
	return named;
}

static const struct {
	const char	*name;
	u64		root;
	u32		pids[2];	/* tid, pid */
	const char	*comm;
	u64		size;		/* of the comm that was read */
	int		tid;
	const char	*shown;
	const char	*file;		/* that is mapped at 0x400000 */
	u64		sp;		/* zero for that of "by its stack" */
} currents[] = {
	{ "a task",		 0x2000,  { 7, 7 }, "sh", 16, 7, "sh", "any", 0 },
	{ "PTI",		 0x3000,  { 7, 7 }, "sh", 16, 7, "sh", "any", 0 },
	{ "a task not noted",	 0x30000, { 70, 70 }, "short-lived", 16, 70, "short-lived", NULL,
				 0 },
	{ "another's tables",	 0x2000,  { 71, 71 }, "kworker/0:1", 16, 71, "kworker/0:1", NULL,
				 0 },
	{ "a thread",		 0x2000,  { 8, 7 }, "renamed", 16, 8, "renamed", "any", 0 },
	{ "the idle task",	 0x2000,  { 0, 0 }, "swapper/3", 16, 0, "swapper", NULL, 0 },
	{ "a long name",	 0x2000,  { 7, 7 }, "0123456789abcdef", 16, 7, "0123456789abcdef",
				 "any", 0 },
	{ "an escape sequence",	 0x2000,  { 7, 7 }, "\x1b[2J", 16, 7, "?[2J", "any", 0 },
	{ "no name",		 0x2000,  { 7, 7 }, "", 16, 17, "by its stack", NULL, 0 },
	{ "half of a name",	 0x2000,  { 7, 7 }, "sh", 8, 17, "by its stack", NULL, 0 },
	{ "no pid",		 0x2000,  { 1U << 31, 7 }, "sh", 16, 17, "by its stack", NULL, 0 },
	{ "exec, not noted",	 0x30000, { 7, 7 }, "new", 16, 7, "new", NULL, 0xffffc90000010010 },
};

/*
 * If the current task was read, it counts; if not, the task that has the stack does.  Files are
 * those of the process that has the page tables, or else the stack, if that is the current one.
 */
static int test_current(struct machine *machine)
{
	for (size_t i = 0; i < ARRAY_SIZE(currents); i++) {
		char comm[16] = "";
		struct perf_sample sample;
		struct fake_read read;
		struct thread *thread;
		struct map *map;
		bool good;

		memcpy(comm, currents[i].comm, strlen(currents[i].comm));
		perf_sample__init(&sample, /*all=*/true);
		sample.pid = VMM;
		sample.tid = VCPU;
		sample.time = 10;
		sample.cpumode = KERNEL;
		make_read(&sample, &read, currents[i].sp ?: 0xffffc90000050010, currents[i].root);
		sample.guest_read.pieces[GUEST_READ_PIDS] =
			(struct guest_piece){ 0, 8, (const u8 *)currents[i].pids };
		sample.guest_read.pieces[GUEST_READ_COMM] =
			(struct guest_piece){ 0, currents[i].size, (const u8 *)comm };
		sample__name_guest_task(&sample, machine);
		TEST_ASSERT_VAL(currents[i].name, (int)sample.tid == currents[i].tid);
		thread = machine__find_thread(machine, sample.pid, sample.tid);
		TEST_ASSERT_VAL(currents[i].name, thread);
		map = maps__find(thread__maps(thread), 0x400000);
		good = !strcmp(thread__comm_str(thread), currents[i].shown) &&
		       !map == !currents[i].file;
		map__put(map);
		thread__put(thread);
		TEST_ASSERT_VAL(currents[i].name, good);
	}
	return TEST_OK;
}

/* Whether user mode's part stays when the kernel may be switching to another task. */
static const struct {
	const char	*name;
	u64		root;
	u64		saved;		/* where user mode's registers are */
	u32		pid;
	int		tid;
	u64		nr;		/* of the chain's entries */
} switches[] = {
	{ "its page tables",		0x2000, 0xffffc90000013f58, 7, 7, 4 },
	{ "page tables of none",	0x30000, 0xffffc90000013f58, 7, 7, 4 },
	{ "another's page tables",	0x1c000, 0xffffc90000013f58, 7, 7, 2 },
	{ "page tables of one that ends", 0x4000, 0xffffc90000013f58, 7, 7, 4 },
	{ "page tables of its own soon", 0x18000, 0xffffc90000013f58, 19, 19, 4 },
	{ "another's stack",		0x2000, 0xffffc90000017f58, 8, 7, 2 },
	{ "another's stack and tables",	0x1c000, 0xffffc90000017f58, 8, 7, 2 },
};

static int test_switches(struct machine *machine)
{
	/* The number of entries comes first. */
	const u64 usual[] = {
		4, PERF_CONTEXT_GUEST_KERNEL, 0xffffffff81000000, PERF_CONTEXT_GUEST_USER, 0x400000,
	};
	u64 chain[ARRAY_SIZE(usual)];

	for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
		const u32 pids[] = { switches[i].pid, switches[i].pid };
		struct perf_sample sample;
		struct fake_read read;

		perf_sample__init(&sample, /*all=*/true);
		sample.pid = VMM;
		sample.tid = VCPU;
		sample.time = 10;
		sample.cpumode = KERNEL;
		memcpy(chain, usual, sizeof(usual));
		sample.callchain = (struct ip_callchain *)chain;
		sample.merged_callchain = true;
		make_read(&sample, &read, 0xffffc90000010010, switches[i].root);
		sample.guest_read.pieces[GUEST_READ_USER_REGS] =
			(struct guest_piece){ .addr = switches[i].saved, .size = 168 };
		sample.guest_read.pieces[GUEST_READ_PIDS] =
			(struct guest_piece){ 0, sizeof(pids), (const u8 *)pids };
		sample.guest_read.pieces[GUEST_READ_COMM] =
			(struct guest_piece){ 0, 16, (const u8 *)"current\0\0\0\0\0\0\0\0" };
		sample__name_guest_task(&sample, machine);
		TEST_ASSERT_VAL(switches[i].name,
				(int)sample.tid == switches[i].tid && *chain == switches[i].nr);
	}
	return TEST_OK;
}

/* A sample without reads gets the name of the VMM's thread. */
static int test_no_reads(struct machine *machine)
{
	struct perf_sample sample;
	struct thread *thread;
	bool same;

	perf_sample__init(&sample, /*all=*/true);
	sample.pid = VMM;
	sample.tid = VCPU;
	sample__name_guest_task(&sample, machine);
	thread = machine__find_thread(machine, VMM, VCPU);
	same = thread && !strcmp(thread__comm_str(thread), VCPU_COMM);
	thread__put(thread);
	TEST_ASSERT_VAL("the name of a sample without reads", same);

	/*
	 * With machine_pid, pid and tid are the guest's.  The host's thread with the same tid is
	 * another task, whose name must not be used.
	 */
	sample.machine_pid = VMM;
	sample.pid = VMM + 2;
	sample.tid = VMM + 2;
	thread = machine__findnew_thread(&machine->machines->host, sample.pid, sample.tid);
	TEST_ASSERT_VAL("no thread", thread && !thread__set_comm(thread, "host's", 0));
	thread__put(thread);
	sample__name_guest_task(&sample, machine);
	thread = machine__find_thread(machine, sample.pid, sample.tid);
	same = thread && !strcmp(thread__comm_str(thread), "host's");
	thread__put(thread);
	TEST_ASSERT_VAL("no name of the host's", !same);
	return TEST_OK;
}

static const struct {
	const char	*name;
	u16		cpumode;
	u64		time;
	u64		user_ip;	/* zero if the sample has none */
	int		tid;
	u64		root;
} ends[] = {
	{ "its file",			USER, 8999999999, 0x400000, 16, 0x16000 },
	{ "the end of its file",	USER, 8999999999, 0x4fffff, 16, 0x16000 },
	{ "behind its file",		USER, 8999999999, 0x500000, VCPU, 0x16000 },
	{ "before its file",		USER, 8999999999, 0x3fffff, VCPU, 0x16000 },
	{ "called from its file",	KERNEL, 8999999999, 0x400000, 16, 0x16000 },
	{ "called from elsewhere",	KERNEL, 8999999999, 0x500000, VCPU, 0x16000 },
	{ "called from nowhere",	KERNEL, 8999999999, 0, 16, 0x16000 },
	{ "long before",		USER, 10, 0x500000, 16, 0x16000 },
	{ "two seconds before",		USER, 7000000000, 0x500000, VCPU, 0x16000 },
	{ "not so late",		USER, 6999999999, 0x500000, 16, 0x16000 },
	{ "exec ends no task",		USER, 19, 0x300000, 7, 0x2000 },
	{ "its file, not seen yet",	USER, 9499999999, 0x400000, 18, 0x1a000 },
	{ "elsewhere, not seen yet",	USER, 9499999999, 0x500000, VCPU, 0x1a000 },
	{ "elsewhere, seen by then",	USER, 9500000000, 0x500000, 18, 0x1a000 },
};

/* If a task has ended, and perf has not looked since then, its stack may be another task's. */
static int test_ends(struct machine *machine)
{
	struct fake_read read;
	struct {
		u64 nr;
		u64 ips[4];
	} chain = { 4, { PERF_CONTEXT_GUEST_KERNEL, 0xffffffff81000000, PERF_CONTEXT_GUEST_USER } };

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		struct perf_sample sample;

		perf_sample__init(&sample, /*all=*/true);
		sample.pid = VMM;
		sample.tid = VCPU;
		sample.time = ends[i].time;
		sample.cpumode = ends[i].cpumode;
		sample.ip = ends[i].cpumode == USER ? ends[i].user_ip : 0xffffffff81000000;
		chain.nr = ends[i].user_ip ? 4 : 2;
		chain.ips[3] = ends[i].user_ip;
		if (ends[i].cpumode == KERNEL)
			sample.callchain = (struct ip_callchain *)&chain;
		make_read(&sample, &read, 0xffffc90000044010, ends[i].root);
		sample__name_guest_task(&sample, machine);
		TEST_ASSERT_VAL(ends[i].name, (int)sample.tid == ends[i].tid);
	}
	return TEST_OK;
}

static char level_of(struct thread *thread, struct map *map, u64 ip, char before)
{
	struct callchain_cursor_node node = { .ip = ip };
	struct addr_location al;
	char level;

	addr_location__init(&al);
	al.thread = thread__get(thread);
	al.level = before;
	node.ms.thread = thread;
	node.ms.map = map;
	fill_callchain_info(&al, &node, /*hide_unresolved=*/false);
	level = al.level;
	addr_location__exit(&al);
	return level;
}

/* The level of a caller comes from its map, from its address, or from the entry before it. */
static int test_levels(struct machine *machine)
{
	struct machines *machines = machine->machines;
	struct thread *guest = machine__findnew_thread(machine, VMM, VMM);
	struct thread *host = machine__findnew_thread(&machines->host, VMM, VMM);
	struct map *map = machine__kernel_map(machine);
	bool by_map, by_address, below, as_before;

	TEST_ASSERT_VAL("no threads", guest && host);
	machines->host.single_address_space = true;
	by_map = level_of(guest, map, 0xffffffff81000100, 'u') == 'g' &&
		 level_of(guest, map, 0x401000, 'u') == 'g';
	by_address = level_of(guest, NULL, 0xffffffffc0000000, 'u') == 'g' &&
		     level_of(guest, NULL, 0x401000, 'g') == 'u' &&
		     level_of(host, NULL, 0xffffffffc0000000, '.') == 'k' &&
		     level_of(host, NULL, 0x401000, 'k') == '.';
	/* Modules of arm64 lie below the kernel. */
	machines->host.kernel_start = 0xffff800080000000;
	below = level_of(host, NULL, 0xffff80007a000000, '.') == 'k';
	machines->host.single_address_space = false;
	as_before = level_of(host, NULL, 0x401000, 'k') == 'k' &&
		    level_of(host, NULL, 0xffffffffc0000000, '.') == '.' &&
		    level_of(guest, NULL, 0x401000, 'g') == 'g';
	thread__put(guest);
	thread__put(host);
	TEST_ASSERT_VAL("levels by map", by_map);
	TEST_ASSERT_VAL("levels by address", by_address);
	TEST_ASSERT_VAL("level of a module below the kernel", below);
	TEST_ASSERT_VAL("levels where addresses don't tell", as_before);
	return TEST_OK;
}

/*
 * Write maps with this program in place of the guest's: with its build-id, with another one, and
 * with none.
 */
static bool write_maps(const char *top)
{
	char exe[PATH_MAX], hex[SBUILD_ID_SIZE], *text;
	struct build_id build_id = { .size = 0 };
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	bool good;

	if (len < 0)
		return false;
	exe[len] = 0;
	if (filename__read_build_id(exe, &build_id) <= 0)
		return false;
	build_id__snprintf(&build_id, hex, sizeof(hex));
	if (asprintf(&text,
		     "400000 500000 0 8:1 5 %1$s /before any process\n"
		     "0 2000 7\n"
		     "400000 500000 0 8:1 5 - %2$s\n"
		     "500000 600000 2000 8:1 5 %1$s %2$s\n"
		     "600000 700000 0 8:1 6 - %2$s\n"
		     "nonsense\n"
		     "700000 800000 0 8:1 5 - relative\n"
		     "700000 700000 0 8:1 5 - /empty\n"
		     "700000 ffffffff80000000 0 8:1 5 - /upper/half\n"
		     "700000 800000 0 8:1 5 xy /no/build-id\n"
		     "700000 800000 0 8:1 5 001 /half/a/byte\n"
		     "700000 800000 0 8:1 5 001122334455667788990011223344556677889900 /long\n"
		     "700000 800000 0 8:1 5 - /tmp/perf-7.map\n"
		     "700000 800000 0 8:1 5 - /proc/self/exe\n"
		     "700000 800000 0 8:1 5 - /usr/../etc/passwd\n"
		     "700000 800000 0 8:1 5 - /\x1b[2J\n"
		     "c00000 d00000 c00000 0:0 0 - //anon\n"
		     "0 2000 11\n"
		     "400000 500000 0 8:1 7 - /another pid\n"
		     "c00000 d00000 c00000 0:0 0 - //anon\n"
		     "0 18000 7\n"
		     "c00000 d00000 c00000 0:0 0 - //anon\n"
		     "0 2000 4294967303\n"
		     "15 2000 7 more\n"
		     "15 2000 7\n"
		     "500000 600000 3000 8:1 5 %1$s %2$s\n"
		     "0 16000 16\n"
		     "400000 500000 0 8:1 11 - /long\n"
		     "9500000000 1a000 18\n"
		     "400000 500000 0 8:1 12 - /begins\n"
		     "0 4000 9\n"
		     "400000 500000 0 8:2 5 - %2$s\n"
		     "900000 a00000 0 9:1 5 - %2$s\n"
		     "a00000 b00000 0 0:0 0 aa11223344556677889900112233445566778899 [vdso]\n"
		     "b00000 c00000 0 0:0 0 - [heap]\n"
		     "c00000 d00000 c00000 0:0 0 - //anon\n"
		     "500000 600000 0 8:1 5 - /another/path\n"
		     "600000 700000 0 8:1 5 0011223344556677889900112233445566778899 %2$s.new\n"
		     "700000 800000 0 8:1 5 ff11223344556677889900112233445566778899 %2$s.new\n"
		     "800000 900000 0 8:1 5 - %2$s.new\n"
		     "20 e000 7\n"
		     "600000 700000 0 8:1 8 0011223344556677889900112233445566778899 %2$s\n"
		     "2000000000 c000 11\n"
		     "400000 500000 0 8:1 9 %1$s /usr/bin/a file elsewhere\n"
		     "1000000000 c000 11\n"
		     "500000 600000 0 8:1 9 %1$s /usr/bin/a file elsewhere\n"
		     "9000000000 12000 12\n"
		     "500000 600000 0 8:1 10 - /too/late\n", hex, exe) < 0)
		return false;
	good = write_file(top, "maps", text);
	free(text);
	return good;
}

static const struct {
	const char	*name;
	u64		time;
	u64		root;
	u64		ip;
	u64		pgoff;
	const char	*file;		/* NULL if there is none; "=" is this program */
	bool		build_id;	/* true if the build-id is known */
} files[] = {
	{ "a program",			10, 0x2000, 0x500000, 0x2000, "=", true },
	{ "its last byte",		10, 0x2000, 0x5fffff, 0x2000, "=", true },
	{ "behind all",			10, 0x2000, 0x700000, 0, NULL, false },
	{ "another's build-id",		10, 0x2000, 0x400000, 0, "=", true },
	{ "no build-id",		10, 0x2000, 0x600000, 0, "= (guest, no build-id)", false },
	{ "mapped elsewhere since",	15, 0x2000, 0x500000, 0x3000, "=", true },
	{ "not mapped any more",	15, 0x2000, 0x400000, 0, NULL, false },
	{ "a little back in time",	14, 0x2000, 0x400000, 0, "=", true },
	{ "another device",		10, 0x4000, 0x400000, 0, "= (guest, no build-id)", false },
	{ "another kind of device",	10, 0x4000, 0x900000, 0, "= (guest, no build-id)", false },
	{ "the vDSO",			10, 0x4000, 0xa00000, 0, "[vdso] (guest)", true },
	{ "no file",			10, 0x4000, 0xb00000, 0, NULL, false },
	{ "another path",		10, 0x4000, 0x500000, 0,
	  "/another/path (guest, no build-id)", false },
	{ "a file that was written",	10, 0x4000, 0x800000, 0,
	  "=.new (guest, no build-id)", false },
	{ "after exec",			25, 0xe000, 0x600000, 0, "= (guest)", true },
	{ "the program before it",	25, 0xe000, 0x500000, 0, NULL, false },
	{ "not looked at so far",	30, 0xc000, 0x500000, 0,
	  "/usr/bin/a file elsewhere (guest)", true },
	{ "and not later",		30, 0xc000, 0x400000, 0, NULL, false },
	{ "mapped too late",		30, 0x12000, 0x500000, 0, NULL, false },
};

/* Return true if perf has found what was written of a program, or not if nothing was written. */
static bool has_program(const struct dso *dso, bool written)
{
	const char *path = dso__guest_filename(dso);
	char expected[MAX_PATH];

	scnprintf(expected, sizeof(expected), "%s/%d/programs/" PROGRAM_ID, data_guests, VMM);
	return written ? path && !strcmp(path, expected) : !path;
}

/*
 * Return true if the map is of this file.  It must have the symbols of this program if the file is
 * this program, and only then.
 */
static bool is_file(struct map *map, size_t i)
{
	const char *name = dso__long_name(map__dso(map)), *file = files[i].file;
	char expected[PATH_MAX + 32], exe[PATH_MAX] = "";

	if (*file == '=' && readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
		return false;
	scnprintf(expected, sizeof(expected), "%s%s", exe, file + (*file == '='));
	return !strcmp(name, expected) && map__pgoff(map) == files[i].pgoff &&
	       has_program(map__dso(map), !strcmp(file, "= (guest)")) &&
	       dso__has_build_id(map__dso(map)) == files[i].build_id &&
	       !map__find_symbol_by_name(map, "cmd_test") == !!strcmp(file, "=");
}

/* Return true if a sample of user mode hits the expected file, or no file if none is expected. */
static bool has_file(struct machine *machine, size_t i)
{
	struct fake_read read;
	struct addr_location al;
	struct perf_sample sample;
	struct thread *thread;
	struct map *map;
	bool good;

	perf_sample__init(&sample, /*all=*/true);
	sample.pid = VMM;
	sample.tid = VMM;
	sample.time = files[i].time;
	sample.cpumode = USER;
	make_read(&sample, &read, 0, files[i].root);
	sample__name_guest_task(&sample, machine);
	thread = machine__find_thread(machine, sample.pid, sample.tid);
	addr_location__init(&al);
	map = thread ? thread__find_map(thread, USER, files[i].ip, &al) : NULL;
	good = thread && (map ? files[i].file && is_file(map, i) : !files[i].file);
	if (!good)
		pr_debug("%d: %s\n", sample.tid, map ? dso__long_name(map__dso(map)) : "no file");
	addr_location__exit(&al);
	thread__put(thread);
	return good;
}

static int test_files(struct machine *machine)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		TEST_ASSERT_VAL(files[i].name, has_file(machine, i));
	return TEST_OK;
}

/*
 * Return true if the symbol @name is 0x100 bytes behind @text, the beginning of the kernel's code.
 */
static bool has_symbol(struct machine *machine, u64 text, const char *name)
{
	struct map *map = NULL;
	struct symbol *symbol = machine__find_kernel_symbol(machine, text + 0x100, &map);
	bool same = symbol && !strcmp(symbol->name, name);

	map__put(map);
	return same;
}

/* Return the name of the function that a task runs at an address, NULL if it has none. */
static const char *function_of(struct machine *machine, u64 root, u64 ip, const char **file)
{
	const char *name = NULL;
	struct addr_location al;
	struct perf_sample sample;
	struct fake_read read;
	struct thread *thread;

	perf_sample__init(&sample, /*all=*/true);
	sample.pid = VMM;
	sample.tid = VMM;
	sample.time = 10;
	sample.cpumode = USER;
	make_read(&sample, &read, 0, root);
	sample__name_guest_task(&sample, machine);
	thread = machine__find_thread(machine, sample.pid, sample.tid);
	addr_location__init(&al);
	if (thread && thread__find_symbol(thread, USER, ip, &al))
		name = al.sym->name;
	*file = al.map ? dso__name(map__dso(al.map)) : "";
	addr_location__exit(&al);
	thread__put(thread);
	return name;
}

/* Code that a task has compiled has names if its compiler has given it some. */
static int test_jit(struct machine *machine)
{
	const char *name, *file;
	char path[MAX_PATH];

	scnprintf(path, sizeof(path), "%s/programs", machine->root_dir);
	TEST_ASSERT_VAL("no names", write_file(path, "perf-2000-7.map",
					       "c00100 80 work fast\nc00200 10 pl\x1by\n"
					       "c00300 fffffffffffffff0 no end\n") &&
			write_file(path, "perf-18000-7.map", "c00100 80 next\n"));
	name = function_of(machine, 0x2000, 0xc00120, &file);
	TEST_ASSERT_VAL("a function", name && !strcmp(name, "work fast"));
	TEST_ASSERT_VAL("its file", !strcmp(file, "[JIT] tid 7 (guest)"));
	name = function_of(machine, 0x2000, 0xc00208, &file);
	TEST_ASSERT_VAL("another one", name && !strcmp(name, "pl?y"));
	TEST_ASSERT_VAL("none", !function_of(machine, 0x2000, 0xc00300, &file));
	name = function_of(machine, 0x18000, 0xc00120, &file);
	TEST_ASSERT_VAL("another program of that pid", name && !strcmp(name, "next"));
	TEST_ASSERT_VAL("no names", !function_of(machine, 0x4000, 0xc00120, &file));
	TEST_ASSERT_VAL("no file", !strcmp(file, "//anon (guest)"));
	return TEST_OK;
}

/*
 * Put this program below --guestmount, at the path that another file has in the guest, and at that
 * of a file of the guest's with another build-id.  perf record has read something of it, too.  A
 * link leads out of the guest's file system.
 */
static bool mount_files(const char *mount)
{
	char exe[PATH_MAX] = "", path[PATH_MAX + MAX_PATH], copy[PATH_MAX], hex[SBUILD_ID_SIZE];
	struct build_id build_id = { .size = 0 };

	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0 ||
	    filename__read_build_id(exe, &build_id) <= 0)
		return false;
	build_id__snprintf(&build_id, hex, sizeof(hex));
	scnprintf(path, sizeof(path), "%s/%d/programs", data_guests, VMM);
	if (!write_file(path, hex, ""))
		return false;
	scnprintf(path, sizeof(path), "%s/%d/usr/bin/x", mount, VMM);
	if (mkdir_p(path, 0700))
		return false;
	scnprintf(copy, sizeof(copy), "%s/%d/usr/bin/a file elsewhere", mount, VMM);
	scnprintf(path, sizeof(path), "%s/%d/usr/bin/out", mount, VMM);
	if (copyfile(exe, copy) || symlink(exe, path))
		return false;
	scnprintf(path, sizeof(path), "%s/%d%s", mount, VMM, exe);
	if (mkdir_p(path, 0700))
		return false;
	rmdir(path);
	return !link(copy, path);
}

/* Return true if the file that a task runs at an address is read from this path, NULL for none. */
static bool reads_from(struct machine *machine, u64 time, u64 root, u64 ip, const char *path)
{
	struct addr_location al;
	struct perf_sample sample;
	struct fake_read read;
	struct thread *thread;
	struct map *map;
	const char *found;
	bool same;

	perf_sample__init(&sample, /*all=*/true);
	sample.pid = VMM;
	sample.tid = VMM;
	sample.time = time;
	sample.cpumode = USER;
	make_read(&sample, &read, 0, root);
	sample__name_guest_task(&sample, machine);
	thread = machine__find_thread(machine, sample.pid, sample.tid);
	addr_location__init(&al);
	map = thread ? thread__find_map(thread, USER, ip, &al) : NULL;
	found = map ? dso__guest_filename(map__dso(map)) : NULL;
	same = map && found && path ? !strcmp(found, path) : found == path;
	if (same && path)
		same = !map__find_symbol_by_name(map, "cmd_test") ==
		       !dso__guest_mounted(map__dso(map));
	addr_location__exit(&al);
	thread__put(thread);
	return same;
}

/*
 * The names and maps of perf record go with the files below the user's --guestmount, if these have
 * the same build-ids.
 */
static int test_mounted(struct machine *machine)
{
	char mount[MAX_PATH], file[2 * MAX_PATH], written[MAX_PATH], *found;
	struct build_id build_id = { .size = 0 };

	TEST_ASSERT_VAL("no build-id", filename__read_build_id("/proc/self/exe", &build_id) > 0);
	scnprintf(mount, sizeof(mount), "%s/mount", dir);
	scnprintf(file, sizeof(file), "%s/%d/usr/bin/a file elsewhere", mount, VMM);
	scnprintf(written, sizeof(written), "%s/%d/programs/" PROGRAM_ID, data_guests, VMM);
	TEST_ASSERT_VAL("no files", mount_files(mount));
	symbol_conf.guestmount = mount;
	guest_folder__use(data);
	TEST_ASSERT_VAL("names", has_symbol(machine, 0xffffffff81000000, "do_1"));
	TEST_ASSERT_VAL("a file", reads_from(machine, 30, 0xc000, 0x500000, file));
	TEST_ASSERT_VAL("another build-id", reads_from(machine, 25, 0xe000, 0x600000, written));
	TEST_ASSERT_VAL("no build-id", reads_from(machine, 10, 0x2000, 0x600000, NULL));
	found = guest_folder__mounted(machine, "/usr/bin/a file elsewhere", &build_id);
	TEST_ASSERT_VAL("the file itself", found && !strcmp(found, file));
	free(found);
	TEST_ASSERT_VAL("out of it", !guest_folder__mounted(machine, "/usr/bin/out", &build_id));
	/* Another data file, which has no directory of its own, has the mount back. */
	guest_folder__use("-");
	TEST_ASSERT_VAL("the mount itself", symbol_conf.guestmount == mount);
	TEST_ASSERT_VAL("not mounted any more",
			!guest_folder__mounted(machine, "/usr/bin/a file elsewhere", &build_id));
	symbol_conf.guestmount = NULL;
	return TEST_OK;
}

/* Return true if the function, or the module, at an address has this name; NULL for none. */
static bool is_named(struct machine *machine, u64 ip, bool module, const char *name)
{
	struct map *map = NULL;
	struct symbol *symbol = machine__find_kernel_symbol(machine, ip, &map);
	const char *found = symbol ? symbol->name : NULL;
	bool same;

	if (module) {
		map__put(map);
		map = maps__find(machine__kernel_maps(machine), ip);
		found = map ? dso__short_name(map__dso(map)) : NULL;
	}
	same = found && name ? !strcmp(found, name) : found == name;
	map__put(map);
	return same;
}

static int test_clean_names(struct machine *machine)
{
	TEST_ASSERT_VAL("before it", is_named(machine, 0xffffffff81000090, false, "_stext") ||
			is_named(machine, 0xffffffff81000090, false, "_text"));
	TEST_ASSERT_VAL("a function", is_named(machine, 0xffffffff81000110, false, "do_1"));
	TEST_ASSERT_VAL("behind it", is_named(machine, 0xffffffff81000190, false, "do_1"));
	TEST_ASSERT_VAL("a module", is_named(machine, 0xffffffffc0010000, true, "[good]"));
	TEST_ASSERT_VAL("its function", is_named(machine, 0xffffffffc0010020, false, "good_do"));
	TEST_ASSERT_VAL("behind that", is_named(machine, 0xffffffffc0010090, false, "good_do"));
	TEST_ASSERT_VAL("a path", is_named(machine, 0xffffffffc0000000, true, NULL));
	TEST_ASSERT_VAL("a slash", is_named(machine, 0xffffffffc0030000, true, NULL));
	TEST_ASSERT_VAL("a dot", is_named(machine, 0xffffffffc0020000, true, NULL));
	return TEST_OK;
}

/*
 * The inits of modules have the same place, one after the other, also at the same time; another
 * one lies where a module was loaded later.  Those that lie where the kernel is, in user mode, or
 * have a strange name are ignored.
 */
static const char inits[] =
	"50 ffffffffc0100000 ffffffffc0101000 net.init\n"
	"ffffffffc0100010 t net_start\t[net.init]\n"
	"ffffffffc0100800 t net\x1b\t[net.init]\n"
	"ffffffffc0100900 t net\x9b\t[net.init]\n"
	"nonsense\n"
	"60 ffffffffc0100000\n"
	"60 ffffffffc0100000 ffffffffc0101000 short.init\n"
	"ffffffffc0100010 t short_start\t[short.init]\n"
	"60 ffffffffc0100000\n"
	"60 ffffffffc0100000 ffffffffc0101000 block.init\n"
	"ffffffffc0100010 t block_start\t[block.init]\n"
	"ffffffffc0100010 d block_data\t[block.init]\n"
	"50 ffffffff81000000 ffffffff81001000 kernel.init\n"
	"ffffffff81000100 t kernel_start\t[kernel.init]\n"
	"50 ffffffff80ffff00 ffffffff81000010 kernel_two.init\n"
	"71 ffffffffc000f000 ffffffffc0010080 before.init\n"
	"ffffffffc0010018 t before_do\t[before.init]\n"
	"72 ffffffffc000f000\n"
	"50 400000 401000 user.init\n"
	"55 ffffffffc0100000 0 ends.init\n"
	"50 ffffffffc0300000 ffffffffc0300000 empty.init\n"
	"50 ffffffffc0300000 ffffffffc0301000 a\x1b.init\n"
	"50 ffffffffc0300000 ffffffffc0301000 a/b.init\n"
	"70 ffffffffc0100000\n"
	"70 ffffffff81000000\n";

static int tid_of(struct machine *machine, u64 sp, u64 time)
{
	struct perf_sample sample;
	struct fake_read read;

	perf_sample__init(&sample, /*all=*/true);
	sample.tid = VMM;
	sample.time = time;
	sample.cpumode = KERNEL;
	make_read(&sample, &read, sp, 0);
	sample__name_guest_task(&sample, machine);
	return sample.tid;
}

/* Let a sample choose the kernel whose names are used. */
static void sample_at(struct machine *machine, u64 time, u8 cpumode, u64 ip)
{
	struct perf_sample sample;

	perf_sample__init(&sample, /*all=*/true);
	sample.time = time;
	sample.cpumode = cpumode;
	sample.ip = ip;
	guest_folder__use_kernel_of(machine, &sample);
}

static bool append_to(const struct machine *machine, const char *name, const char *text)
{
	char path[MAX_PATH];
	FILE *file;
	bool good;

	scnprintf(path, sizeof(path), "%s/%s", machine->root_dir, name);
	file = fopen(path, "ae");
	good = file && fputs(text, file) >= 0;
	return file && !fclose(file) && good;
}

/* Modules that no event tells of, as they were loaded after the recording had begun. */
static int test_new_modules(struct machine *machine)
{
	TEST_ASSERT_VAL("no module", append_to(machine, "proc/modules",
					       "later 4096 0 - Live 0xffffffffc0050000\n"
					       "next 8192 0 - Live 0xffffffffc0010800\n") &&
			append_to(machine, "proc/kallsyms",
				  "ffffffffc0050010 t later_do\t[later]\n"));
	sample_at(machine, 10, KERNEL, 0xffffffff81000110);
	TEST_ASSERT_VAL("the kernel", is_named(machine, 0xffffffff81000110, false, "do_1"));
	TEST_ASSERT_VAL("known before", is_named(machine, 0xffffffffc0010000, true, "[good]"));
	TEST_ASSERT_VAL("a new module", is_named(machine, 0xffffffffc0050020, true, "[later]"));
	TEST_ASSERT_VAL("its function", is_named(machine, 0xffffffffc0050020, false, "later_do"));
	TEST_ASSERT_VAL("right behind", is_named(machine, 0xffffffffc0010810, true, "[next]"));
	return TEST_OK;
}

static int test_inits(struct machine *machine)
{
	const u64 ip = 0xffffffffc0100020, strange = 0xffffffffc0300020;
	const u64 kernel = 0xffffffff81000110;

	sample_at(machine, 49, KERNEL, kernel);
	TEST_ASSERT_VAL("before all", is_named(machine, ip, true, NULL));
	sample_at(machine, 50, KERNEL, ip);
	TEST_ASSERT_VAL("a module's init", is_named(machine, ip, true, "[net.init]"));
	TEST_ASSERT_VAL("a function", is_named(machine, ip, false, "net_start"));
	TEST_ASSERT_VAL("a strange name", is_named(machine, 0xffffffffc0100910, false,
						   "net_start"));
	TEST_ASSERT_VAL("the kernel", is_named(machine, kernel, false, "do_1"));
	TEST_ASSERT_VAL("a strange module", is_named(machine, strange, true, NULL));
	TEST_ASSERT_VAL("below the kernel", is_named(machine, 0xffffffff80ffff10, true, NULL));
	TEST_ASSERT_VAL("user mode", is_named(machine, 0x400010, true, NULL));
	sample_at(machine, 59, KERNEL, ip);
	TEST_ASSERT_VAL("no end", is_named(machine, ip, false, "net_start"));
	sample_at(machine, 60, KERNEL, ip);
	TEST_ASSERT_VAL("the next one's init", is_named(machine, ip, true, "[block.init]"));
	TEST_ASSERT_VAL("its function", is_named(machine, ip, false, "block_start"));
	sample_at(machine, 55, KERNEL, ip);
	TEST_ASSERT_VAL("no way back", is_named(machine, ip, false, "block_start"));
	sample_at(machine, 70, KERNEL, ip);
	TEST_ASSERT_VAL("after all", is_named(machine, ip, true, NULL));
	TEST_ASSERT_VAL("still the kernel", is_named(machine, kernel, false, "do_1"));
	TEST_ASSERT_VAL("a module", is_named(machine, 0xffffffffc0010020, true, "[good]"));
	sample_at(machine, 71, KERNEL, ip);
	TEST_ASSERT_VAL("before it", is_named(machine, 0xffffffffc0010020, false, "before_do"));
	TEST_ASSERT_VAL("not yet", is_named(machine, 0xffffffffc0010f00, true, NULL));
	sample_at(machine, 72, KERNEL, ip);
	TEST_ASSERT_VAL("no init", is_named(machine, 0xffffffffc0010020, false, "good_do"));
	sample_at(machine, 5000, KERNEL, 0xfffffff0);
	TEST_ASSERT_VAL("another kernel's", is_named(machine, ip, true, "[six.init]"));
	return TEST_OK;
}

static int test_kernels(struct machine *machine)
{
	const u64 stack = 0xffffc90000000010, firmware = 0xfffffff0;
	const u64 first = 0xffffffff81000100, second = 0xffffffff92000100;
	const u64 third = 0xffffffff93000100;
	struct map *map;

	sample_at(machine, 99, KERNEL, firmware);
	TEST_ASSERT_VAL("the first kernel", has_symbol(machine, 0xffffffff81000000, "do_1"));
	sample_at(machine, ~0ULL, KERNEL, firmware);
	TEST_ASSERT_VAL("a sample without time", has_symbol(machine, 0xffffffff81000000, "do_1"));
	sample_at(machine, 101, KERNEL, first);
	TEST_ASSERT_VAL("it still runs", has_symbol(machine, 0xffffffff81000000, "do_1"));
	sample_at(machine, 101, PERF_RECORD_MISC_GUEST_USER, 0x400000);
	TEST_ASSERT_VAL("its program runs", has_symbol(machine, 0xffffffff81000000, "do_1"));
	map = map__get(machine__kernel_map(machine));

	sample_at(machine, 100, KERNEL, firmware);
	TEST_ASSERT_VAL("the second kernel", has_symbol(machine, 0xffffffff92000000, "do_2"));
	TEST_ASSERT_VAL("nothing of the first", !has_symbol(machine, 0xffffffff81000000, "do_1"));
	TEST_ASSERT_VAL("no tasks of the first", !machine__find_thread(machine, 7, 8));
	TEST_ASSERT_VAL("a task of the second", tid_of(machine, stack, 100) == 17);
	TEST_ASSERT_VAL("its machine", maps__machine(map__kmaps(map)) == machine);
	map__put(map);
	sample_at(machine, 101, KERNEL, first);
	TEST_ASSERT_VAL("no way back", has_symbol(machine, 0xffffffff92000000, "do_2"));
	sample_at(machine, 199 + 2 * NSEC_PER_SEC, KERNEL, second);
	TEST_ASSERT_VAL("for two seconds", has_symbol(machine, 0xffffffff92000000, "do_2"));

	sample_at(machine, 200 + 2 * NSEC_PER_SEC, KERNEL, third);
	TEST_ASSERT_VAL("the third kernel", has_symbol(machine, 0xffffffff93000000, "do_3"));

	/* A kernel without samples is skipped. */
	sample_at(machine, 1000 + 2 * NSEC_PER_SEC, KERNEL, third);
	TEST_ASSERT_VAL("the last kernel", has_symbol(machine, 0xffffffff96000000, "do_6"));
	TEST_ASSERT_VAL("no tasks", tid_of(machine, stack, 1000 + 2 * NSEC_PER_SEC) == VMM);
	return TEST_OK;
}

/* Return the path of the cgroup that a sample shows with this piece; NULL if none. */
static const char *cgroup_of(struct machine *machine, u64 id, size_t size, u64 time)
{
	struct perf_sample sample;
	struct cgroup *cgroup;
	struct fake_read read;

	perf_sample__init(&sample, /*all=*/true);
	sample.pid = VMM;
	sample.tid = VCPU;
	sample.time = time;
	sample.cpumode = KERNEL;
	make_read(&sample, &read, 0xffffc90000004010, 0);
	sample.guest_read.pieces[GUEST_READ_CGROUP] =
		(struct guest_piece){ 0, size, (const u8 *)&id };
	sample.guest_read.nr = NR_GUEST_READ_SLOTS;
	if (!sample__name_guest_task(&sample, machine) || !sample.cgroup)
		return NULL;
	cgroup = machine__find_cgroup(machine, sample.cgroup);
	return cgroup ? cgroup->name : "unknown";
}

static bool is_cgroup(const char *found, const char *expected)
{
	return found && expected ? !strcmp(found, expected) : found == expected;
}

static int test_cgroups(struct machine *machine)
{
	struct machine *other = machines__findnew(machine->machines, VMM + 1);
	const char *path = "/system.slice/a?.service";

	/* The VMM's cgroup, and one of another guest, have the same id. */
	TEST_ASSERT_VAL("no cgroup", cgroup__findnew(machine->machines->host.env, 33, "/vmm"));
	TEST_ASSERT_VAL("its path", is_cgroup(cgroup_of(machine, 33, 8, 10), path));
	TEST_ASSERT_VAL("not read", is_cgroup(cgroup_of(machine, 33, 0, 10), NULL));
	TEST_ASSERT_VAL("no path", is_cgroup(cgroup_of(machine, 34, 8, 10), "unknown"));
	TEST_ASSERT_VAL("the VMM's", is_cgroup(machine__find_cgroup(machine, 33)->name, "/vmm"));
	TEST_ASSERT_VAL("of nobody", !machine__find_cgroup(machine, 78));
	TEST_ASSERT_VAL("another guest", other && !machine__create_kernel_maps(other));
	TEST_ASSERT_VAL("another guest's", is_cgroup(cgroup_of(other, 33, 8, 10), "/other"));
	TEST_ASSERT_VAL("still its path", is_cgroup(cgroup_of(machine, 33, 8, 10), path));
	/* The next kernel counts anew, and has none that are known. */
	sample_at(machine, 5000, KERNEL, 0xfffffff0);
	TEST_ASSERT_VAL("another kernel's", !machine->guest_cgroups);
	return TEST_OK;
}

static bool append(const char *top, const char *text)
{
	FILE *file = guest_files__append(top, "tasks");
	bool good = file && fputs(text, file) >= 0;

	return file && !fclose(file) && good;
}

static bool has_live_folder(void)
{
	struct dirent *entry;
	bool found = false;
	DIR *folder = opendir(dir);

	while (folder && (entry = readdir(folder)))
		found |= strstarts(entry->d_name, "perf-guests-");
	if (folder)
		closedir(folder);
	return found;
}

/* The arguments of VMMs have a | here in place of the zero behind each. */
#define LONG_NAME	"0123456789012345678901234567890123456789012345678901234567890123"

static const struct {
	const char	*what;
	const char	*args;
	const char	*name;		/* NULL if there is none */
} names[] = {
	{ "none",		"qemu|-m|1G|",				NULL },
	{ "QEMU's",		"qemu|-name|web1|-m|1G|",		"web1" },
	{ "libvirt's",		"qemu|-name|guest=web1,debug-threads=on|", "web1" },
	{ "two options",	"qemu|-name|process=x|--name|web1|",	"web1" },
	{ "a process's",	"qemu|-name|process=web1|",		NULL },
	{ "not the first",	"qemu|-name|process=x,guest=web1|",	"web1" },
	{ "two commas",		"qemu|-name|a,,b,,,process=x|",		"a,b," },
	{ "two of them",	"qemu|-name|guest=a,guest=web 1|",	"web 1" },
	{ "a comma at the end",	"qemu|-name|web1,|",			"web1" },
	{ "kvmtool's",		"lkvm|run|--name=web1|",		"web1" },
	{ "Firecracker's",	"firecracker|--id|web1|",		"web1" },
	{ "other options",	"vmm|--identity|web1|-namespace|web1|",	NULL },
	{ "empty ones",		"vmm|-name||--id=|-m|",			NULL },
	{ "no value",		"vmm|-name|",				NULL },
	{ "no end",		"vmm|-name|web1",			NULL },
	{ "no arguments",	"",					NULL },
	{ "escape sequences",	"vmm|-name|\x1b[2J\n\xff|",		"?[2J??" },
	{ "a long one",		"vmm|-name|" LONG_NAME "4|",		LONG_NAME },
};

static int test__vm_names(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	char name[GUEST_NAME_SIZE], args[128];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t size = strlen(names[i].args);
		bool found;

		for (size_t j = 0; j < size; j++)
			args[j] = names[i].args[j] == '|' ? 0 : names[i].args[j];
		/* The text behind the arguments is not one of them. */
		strcpy(&args[size], "x");
		found = guest_name__find(args, size, name);
		if (found != !!names[i].name ||
		    (found && strncmp(name, names[i].name, sizeof(name) - 1))) {
			pr_debug("%s: %s\n", names[i].what, name);
			return TEST_FAIL;
		}
	}
	return TEST_OK;
}

/* The name of the VM is found although machine->root_dir is that of another kernel by now. */
static int test_name(struct machine *machine)
{
	struct machine *other = machines__findnew(machine->machines, VMM + 1);

	TEST_ASSERT_VAL("no machine", other);
	sample_at(machine, 1000 + 2 * NSEC_PER_SEC, KERNEL, 0xfffffff0);
	TEST_ASSERT_VAL("the last kernel", has_symbol(machine, 0xffffffff96000000, "do_6"));
	TEST_ASSERT_VAL("host's name",
			!strcmp(guest_folder__name(&machine->machines->host), "[host]"));
	TEST_ASSERT_VAL("guest's name", !strcmp(guest_folder__name(machine), "web?[1"));
	TEST_ASSERT_VAL("VMM's pid", atoi(guest_folder__name(other)) == VMM + 1);
	return TEST_OK;
}

/*
 * Below the user's --guestmount, perf ignores files named kernels, tasks and name: they are the
 * guest's own, and not perf record's.
 */
static int test_guestmount(struct machine *machine)
{
	symbol_conf.guestmount = data_guests;
	sample_at(machine, 5000, KERNEL, 0xfffffff0);
	TEST_ASSERT_VAL("kernels", has_symbol(machine, 0xffffffff81000000, "do_1"));
	TEST_ASSERT_VAL("tasks", tid_of(machine, 0xffffc90000004010, 0) == VMM);
	TEST_ASSERT_VAL("name", atoi(guest_folder__name(machine)) == VMM);
	return TEST_OK;
}

/* perf writes tasks while it reads them: it reads them again once for each second of samples. */
static int test_later(struct machine *machine)
{
	const u64 stack = 0xffffc9000003c010;
	const struct record_opts opts = {};
	const char *top = machine->root_dir;

	/* The directory that is made here is not the one that is used. */
	guest_folder__use("-");
	symbol_conf.guest_info = true;
	setenv("TMPDIR", dir, 1);
	TEST_ASSERT_VAL("guests of nobody", !guest_folder__begin_live(&opts, false));
	unsetenv("TMPDIR");
	symbol_conf.guest_info = false;
	guest_folder__use(data);

	TEST_ASSERT_VAL("not noted so far", tid_of(machine, stack, 50) == VMM);
	TEST_ASSERT_VAL("no notes", append(top, "40 ffffc9000003c000 0 14 14 late\n"));
	TEST_ASSERT_VAL("not looked again", tid_of(machine, stack, 1000000049) == VMM);
	TEST_ASSERT_VAL("noted meanwhile", tid_of(machine, stack, 1000000050) == 14);
	TEST_ASSERT_VAL("no notes", append(top, "45 ffffc9000003c000 0 16 16 next\n"));
	TEST_ASSERT_VAL("known and another's since", tid_of(machine, stack, 2000000050) == 16);
	TEST_ASSERT_VAL("no directory", has_live_folder());
	guest_folder__end_live();
	TEST_ASSERT_VAL("a directory that is left", !has_live_folder());
	TEST_ASSERT_VAL("no notes", append(top, "46 ffffc9000003c000 0 17 17 last\n"));
	TEST_ASSERT_VAL("noted behind the end", tid_of(machine, stack, 4000000000) == 16);
	return TEST_OK;
}

static int make_guests(void)
{
	static const struct {
		const char	*name;
		unsigned int	nr;
		const char	*tasks;
	} kernels[] = {
		/* Kernels come in the order of their times, not of their names. */
		{ "1000", 4, "" },
		{ "100", 2, "100 ffffc90000000000 0 17 17 second\n" },
		{ "200", 3, "" },
		{ "2000", 6, "" },
		/* Names that perf record does not write are ignored. */
		{ "+101", 5, "" },
		{ "0102", 5, "" },
		{ "103a", 5, "" },
	};
	char top[MAX_PATH], path[MAX_PATH];

	scnprintf(data_guests, sizeof(data_guests), "%s/data.guests", dir);
	TEST_ASSERT_VAL("no directory", !mkdir(data_guests, 0700));
	scnprintf(top, sizeof(top), "%s/data.guests/%d", dir, VMM);
	TEST_ASSERT_VAL("no directory", !mkdir(top, 0700));
	TEST_ASSERT_VAL("no kernel", make_kernel(top, 1));
	TEST_ASSERT_VAL("no tasks", write_file(top, "tasks", tasks));
	TEST_ASSERT_VAL("no files", write_maps(top));
	TEST_ASSERT_VAL("no inits", write_file(top, "inits", inits));
	TEST_ASSERT_VAL("no cgroups", write_file(top, "cgroups", "33 /system.slice/a\x1b.service\n"
					 "34 relative\n99999999999999999999999 /\n"));
	scnprintf(path, sizeof(path), "%s/programs", top);
	TEST_ASSERT_VAL("no directory", !mkdir(path, 0700));
	TEST_ASSERT_VAL("no program", write_file(path, PROGRAM_ID, ""));
	TEST_ASSERT_VAL("no name", write_file(top, "name", "web\x1b[1\n2\n"));
	scnprintf(path, sizeof(path), "%s/data.guests/%d", dir, VMM + 1);
	TEST_ASSERT_VAL("no directory", !mkdir(path, 0700));
	TEST_ASSERT_VAL("no kernel", make_kernel(path, 1));
	TEST_ASSERT_VAL("no tasks", write_file(path, "tasks", tasks));
	TEST_ASSERT_VAL("no cgroups", write_file(path, "cgroups", "33 /other\n"));
	scnprintf(path, sizeof(path), "%s/kernels", top);
	TEST_ASSERT_VAL("no directory", !mkdir(path, 0700));
	for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
		scnprintf(path, sizeof(path), "%s/kernels/%s", top, kernels[i].name);
		TEST_ASSERT_VAL("no kernel", !mkdir(path, 0700) &&
				make_kernel(path, kernels[i].nr) &&
				write_file(path, "tasks", kernels[i].tasks));
	}
	scnprintf(path, sizeof(path), "%s/kernels/2000", top);
	TEST_ASSERT_VAL("no inits", write_file(path, "inits",
					       "100 ffffffffc0100000 ffffffffc0101000 six.init\n"));
	/* This is a kernel whose files could not be written. */
	scnprintf(path, sizeof(path), "%s/kernels/50", top);
	TEST_ASSERT_VAL("no kernel", !mkdir(path, 0700));
	return TEST_OK;
}

/* Run a subtest with the files of a guest, which perf uses, and with a machine for the guest. */
static int run(struct test_suite *test, int subtest)
{
	int (*run_case)(struct machine *machine) = test->test_cases[subtest].priv;
	const char *const was = symbol_conf.guestmount;
	const bool was_guest = perf_guest;
	struct machines machines;
	struct machine *machine;
	struct perf_env env;
	int err;

	strcpy(dir, "/tmp/perf-test-guest-XXXXXX");
	TEST_ASSERT_VAL("no directory", mkdtemp(dir));
	err = make_guests();
	symbol_conf.guestmount = NULL;
	scnprintf(data, sizeof(data), "%s/data", dir);
	guest_folder__use(data);
	perf_env__init(&env);
	machines__init(&machines);
	machines.host.env = &env;
	machine = machines__findnew(&machines, VMM);
	if (err || !machine || machine__create_kernel_maps(machine) || !name_vcpu(&machines))
		err = TEST_FAIL;
	else
		err = run_case(machine);
	machines__exit(&machines);
	perf_env__exit(&env);
	guest_folder__use("-");
	symbol_conf.guestmount = was;
	perf_guest = was_guest;
	rm_rf(dir);
	return err;
}

#define GUEST_CASE(_desc, _run) { .name = #_run, .desc = _desc, .run_case = run, .priv = _run }

static struct test_case tests__guest_samples[] = {
	TEST_CASE("Names of VMs in command lines", vm_names),
	GUEST_CASE("Samples without reads", test_no_reads),
	GUEST_CASE("Tasks", test_tasks),
	GUEST_CASE("Tasks of arm64", test_arm64),
	GUEST_CASE("Tasks that the guest says are current", test_current),
	GUEST_CASE("Switches to other tasks", test_switches),
	GUEST_CASE("Cgroups of tasks", test_cgroups),
	GUEST_CASE("Tasks that end or begin", test_ends),
	GUEST_CASE("Tasks that are noted while samples are read", test_later),
	GUEST_CASE("Files that tasks run", test_files),
	GUEST_CASE("Code that tasks compile", test_jit),
	GUEST_CASE("Levels of callers", test_levels),
	GUEST_CASE("Kernels after reboots", test_kernels),
	GUEST_CASE("Name of the VM", test_name),
	GUEST_CASE("The user's --guestmount", test_guestmount),
	GUEST_CASE("Files of programs below --guestmount", test_mounted),
	GUEST_CASE("Modules that are loaded later", test_new_modules),
	GUEST_CASE("Inits of modules", test_inits),
	GUEST_CASE("Names of functions and modules", test_clean_names),
	{ .name = NULL, }
};

struct test_suite suite__guest_samples = {
	.desc = "Samples of guests",
	.test_cases = tests__guest_samples,
};
