// SPDX-License-Identifier: GPL-2.0
/*
 * Test which tasks of a guest perf finds in the guest's memory, and which files these run.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <elf.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/time64.h>

#include "fake-guest.h"
#include "guest-kernel.h"
#include "guest-memslots.h"
#include "guest-reader.h"
#include "guest-task-writer.h"
#include "guest-watch.h"
#include "perf-sys.h"
#include "record.h"
#include "tests.h"
#include "util.h"

/* The lines for all tasks, by stack. */
static const char all_tasks[] =
	"0 ffffc90000000000 0 0 0 swapper/1\n"
	"0 ffffc90000008000 0 2 2 kthreadd\n"
	"0 ffffc90000010000 900000 7 9 worker\n"
	"0 ffffc90000020000 900000 7 7 a name of 15 ch\n"
	"0 ffffffff9b804000 0 0 0 swapper/0\n";

static const struct fake_guest tasks[] = {
	{ "tasks",			.from = "", .to = "" },
	{ "an escape sequence as comm",	.bytes = { BYTES(TASK(3) + T_COMM, "\x1bthr\x9b\n") },
	  .from = "kthreadd", .to = "?thr??dd" },
	{ "more CPUs than there are",	.bytes = { HALF(NR_CPUS_AT, ~0U) }, .from = "", .to = "" },
	{ "a comm without end",		.bytes = { BYTES(TASK(3) + T_COMM, "sixteen letters!") },
	  .from = "kthreadd", .to = "sixteen letters!" },
	{ "no comm",			.bytes = { BYTES(TASK(3) + T_COMM, "\0") },
	  .from = "kthreadd", .to = "?" },
	{ "a task without stack",	.bytes = { WORD(TASK(4) + T_STACK, 0) },
	  .from = "0 ffffc90000000000 0 0 0 swapper/1\n", .to = "" },
	/*
	 * As in Linux, the first CPU's idle task is the first one of the list.  A CPU beyond
	 * nr_cpu_ids has an idle task, too, which is also in the list.  perf must not write either
	 * of them twice.
	 */
	{ "idle tasks of other CPUs",
	  .bytes = { WORD(IDLE_THREADS, TASK(0)), WORD(CPU_OFFSETS + 16, 0x200),
		     WORD(IDLE_THREADS + 0x200, TASK(3)) }, .from = "", .to = "" },
	/* The last process's list of threads never comes back to its head. */
	{ "the last one's threads without end",
	  .bytes = { WORD(TASK(3) + T_THREADS, TASK(2) + T_THREADS),
		     WORD(TASK(2) + T_THREADS, TASK(2) + T_THREADS) } },
	/* This field would lie across the end of what is read. */
	{ "a field at the end",		.kernel.far_field = true },
	{ "tasks without end",		.bytes = { WORD(TASK(3) + T_TASKS, TASK(1) + T_TASKS) } },
	{ "tasks into nothing",		.bytes = { WORD(TASK(3) + T_TASKS, 8) } },
	{ "threads without end",
	  .bytes = { WORD(TASK(2) + T_THREADS, TASK(1) + T_THREADS) } },
	{ "threads into nothing",	.bytes = { WORD(TASK(2) + T_THREADS, 8) } },
	{ "tasks that nobody knows",	.kernel.no_tasks = true },
};

static int test_tasks(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(tasks); i++) {
		fake__make(&tasks[i]);
		TEST_ASSERT_VAL(tasks[i].name, fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL(tasks[i].name,
				fake__has_changed(dir, "tasks", all_tasks, &tasks[i]));
	}
	return TEST_OK;
}

/* The lines for the files that the process runs. */
#define BUILD_ID_TEXT	"0102030405060708090a0b0c0d0e0f1011121314"
#define SET_TEXT	"0 900000 7\n"
#define PROGRAM_TEXT	"401000 403000 1000 12f:f0000 1000 " BUILD_ID_TEXT " /bin/a program\n"
#define LIBRARY_TEXT	"7f0000001000 7f0000005000 0 12f:f0001 1001 - /usr/lib/libtest.so\n"

#define VDSO_ID_TEXT	"4202030405060708090a0b0c0d0e0f1011121314"
#define VDSO_TEXT	"408000 409000 0 0:0 0 " VDSO_ID_TEXT " [vdso]\n"

/* What fake__move_vdso() makes of it. */
#define HIGH_VDSO_TEXT	"7e0000408000 7e0000409000 0 0:0 0 " VDSO_ID_TEXT " [vdso]\n"

/* Memory that can be executed, without a file. */
#define ANON_TEXT	"408000 409000 408000 0:0 0 - //anon\n"

static const char all_files[] = SET_TEXT PROGRAM_TEXT ANON_TEXT LIBRARY_TEXT;

/* What perf writes in place of the usual text. */
#define THE_SAME	.from = "", .to = ""
#define NO_PROGRAM	.from = PROGRAM_TEXT, .to = ""
#define NO_LIBRARY	.from = LIBRARY_TEXT, .to = ""
#define NO_BUILD_ID	.from = BUILD_ID_TEXT, .to = "-"

/* The lengths of two names. */
#define BIN_LEN		(DENTRY(BIN) + D_NAME + QSTR_LEN)
#define LIB_LEN		(DENTRY(LIB) + D_NAME + QSTR_LEN)

/* A full leaf has no pivot for its last slot. */
static void full_leaf(void)
{
	for (unsigned int i = 0; i < 15; i++) {
		fake__put_u64(NODE(2) + LEAF_SLOTS + i * 8, 0);
		fake__put_u64(NODE(2) + NODE_PIVOTS + i * 8,
			      i < 14 ? 0x7f0000000000UL + i : LIBRARY - 1);
	}
	fake__put_u64(NODE(0) + NODE_PIVOTS + 8, LIBRARY + 4 * PAGE - 1);
	fake__put_u64(NODE(2) + LEAF_SLOTS + 15 * 8, VMA(3));
}

static void vdso_elsewhere(void)
{
	fake__make_vdso();
	fake__put_u64(MM + MM_CONTEXT + CONTEXT_VDSO, LIBRARY);
}

static void vdso_of_32_bit_programs(void)
{
	fake__make_vdso();
	fake__put_u64(MM + MM_CONTEXT + CONTEXT_IMAGE, VDSO_IMAGE + 0x100);
}

static const struct fake_guest files[] = {
	{ "files",			THE_SAME },
	{ "no VMAs",			.kernel.no_tree = true },
	{ "a list of VMAs",		.kernel.list = true, THE_SAME },
	{ "a list that begins again",	.kernel.list = true,
	  .bytes = { WORD(VMA(3) + V_NEXT, VMA(0)) } },
	{ "a list that ends nowhere",	.kernel.list = true,
	  .bytes = { WORD(VMA(3) + V_NEXT, 8) } },
	{ "a list with an empty VMA",	.kernel.list = true,
	  .bytes = { WORD(VMA(0) + V_END, PROGRAM) } },
	{ "a list with VMAs that overlap", .kernel.list = true,
	  .bytes = { WORD(VMA(2) + V_START, PROGRAM + 2 * PAGE) } },
	{ "a VMA that is cut",		.bytes = { WORD(VMA(1) + V_END, PROGRAM + 2 * PAGE) } },
	{ "a VMA that grew downwards",	.bytes = { WORD(VMA(3) + V_START, LIBRARY - PAGE) } },
	{ "nothing to execute",		.bytes = { WORD(VMA(1) + V_FLAGS, 3) }, NO_PROGRAM },
	{ "escape sequences in a path",
	  .bytes = { BYTES(NAME_OF(A_PROGRAM), "\x1b../../\x9b\n") },
	  .from = "a program", .to = "?..?..???" },
	{ "no name",			.bytes = { HALF(BIN_LEN, 0) }, NO_PROGRAM },
	{ "a name that is too long",	.bytes = { HALF(BIN_LEN, 256) }, NO_PROGRAM },
	{ "a name of 4 GiB",		.bytes = { HALF(BIN_LEN, ~0U) }, NO_PROGRAM },
	/* A memfd is an example. */
	{ "a file without a directory",
	  .bytes = { WORD(DENTRY(A_PROGRAM) + D_PARENT, DENTRY(A_PROGRAM)) }, NO_PROGRAM },
	{ "a path without end",
	  .bytes = { WORD(DENTRY(LIB) + D_PARENT, DENTRY(LIBTEST)) }, NO_LIBRARY },
	{ "mounts without end",
	  .bytes = { WORD(MOUNT(1) + MNT_PARENT, MOUNT(2)), WORD(MOUNT(2) + MNT_PARENT, MOUNT(1)),
		     WORD(MOUNT(2) + MNT, DENTRY(USR)),
		     WORD(MOUNT(2) + MNT_POINT, DENTRY(USR_ROOT)) }, NO_LIBRARY },
	{ "a file that was deleted",	.bytes = { WORD(DENTRY(A_PROGRAM) + D_HASH + 8, 0) },
	  .from = "/bin/a program\n", .to = "/bin/a program (deleted)\n" },
	{ "a process that exits",	.bytes = { HALF(MM + MM_USERS, 0) } },
	{ "a path that leads upwards",	.bytes = { BYTES(NAME_OF(BIN), ".."), HALF(BIN_LEN, 2) },
	  NO_PROGRAM },
	{ "a name of three dots",	.bytes = { BYTES(NAME_OF(BIN), "...") },
	  .from = "/bin/", .to = "/.../" },
	/* Directories contain each other, and their names are as long as they can be. */
	{ "a path that is too long",
	  .bytes = { WORD(DENTRY(LIB) + D_PARENT, DENTRY(LIBTEST)), HALF(LIB_LEN, 255),
		     HALF(DENTRY(LIBTEST) + D_NAME + QSTR_LEN, 255) }, NO_LIBRARY },
	{ "a VMA's field far away",	.kernel.vma_file = 16000 },
	{ "a node of 1000 slots",	.kernel.nr_slots = 1000 },
	{ "a node without slots",	.kernel.nr_slots = NONE },
	{ "no inode",			.bytes = { WORD(FILE_OF(0) + F_INODE, 8) }, NO_PROGRAM },
	{ "no file system",		.bytes = { WORD(INODE(0) + I_SB, 8) }, NO_PROGRAM },
	{ "the root as a file",		.bytes = { WORD(FILE_OF(0) + F_PATH + 8, DENTRY(ROOT)) },
	  NO_PROGRAM },
	{ "a tree that has itself",
	  .bytes = { WORD(NODE(0) + ARANGE_SLOTS, NODE(0) | ARANGE) } },
	{ "a node of an unknown kind",
	  .bytes = { WORD(NODE(0) + ARANGE_SLOTS, NODE(1) | 4 << 3) } },
	{ "a node that is nowhere",	.bytes = { WORD(NODE(0) + ARANGE_SLOTS, 0x1000 | LEAF) } },
	{ "a pivot before the last",	.bytes = { WORD(NODE(1) + NODE_PIVOTS + 2 * 8, PROGRAM) } },
	{ "a pivot behind the node",	.bytes = { WORD(NODE(1) + NODE_PIVOTS + 2 * 8, LIBRARY) } },
	{ "a leaf that is full",	.change = full_leaf, THE_SAME },
	{ "a vDSO",			.change = fake__make_vdso,
	  .from = ANON_TEXT, .to = VDSO_TEXT },
	{ "a vDSO elsewhere",		.change = vdso_elsewhere, THE_SAME },
	{ "the vDSO of a 32-bit program", .change = vdso_of_32_bit_programs, THE_SAME },
};

static int test_files_of(const char *dir, const struct fake_guest *guests, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		fake__make(&guests[i]);
		TEST_ASSERT_VAL(guests[i].name, fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL(guests[i].name,
				fake__has_changed(dir, "maps", all_files, &guests[i]));
		TEST_ASSERT_VAL(guests[i].name, fake__has_text(dir, "tasks", all_tasks));
	}
	return TEST_OK;
}

static int test_files(const char *dir)
{
	return test_files_of(dir, files, ARRAY_SIZE(files));
}

/* Fields of the program's ELF header and of its second program header, and its second note. */
#define EHDR(field)	(PROGRAM_GPA + offsetof(Elf64_Ehdr, field))
#define PHDR(field)	(PROGRAM_GPA + sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + \
			 offsetof(Elf64_Phdr, field))
#define NOTE		(PROGRAM_GPA + 0x214)

/* The entry of the page cache for the first page of the program. */
#define CACHED		(CACHE(1) + C_SLOTS)

static const struct fake_guest build_ids[] = {
	{ "no ELF file",		.bytes = { BYTES(PROGRAM_GPA, "\0") }, NO_BUILD_ID },
	{ "an ELF file of 32 bits",	.bytes = { BYTES(PROGRAM_GPA + EI_CLASS, "\1") },
	  NO_BUILD_ID },
	{ "program headers elsewhere",
	  .bytes = { BYTES(EHDR(e_phoff) + 3, "\x10") }, NO_BUILD_ID },
	{ "too many program headers",	.bytes = { BYTES(EHDR(e_phnum), "\x80"),
						   BYTES(PHDR(p_type), "\0") }, NO_BUILD_ID },
	{ "notes elsewhere",
	  .bytes = { BYTES(PHDR(p_filesz) + 1, "\xff") }, NO_BUILD_ID },
	{ "notes far away",
	  .bytes = { BYTES(PHDR(p_offset) + 3, "\x10") }, NO_BUILD_ID },
	{ "a note of another owner",	.bytes = { BYTES(NOTE + sizeof(Elf64_Nhdr), "X") },
	  NO_BUILD_ID },
	{ "a note's owner that is cut",	.bytes = { BYTES(NOTE + 1, "\x10") }, NO_BUILD_ID },
	{ "short program headers",
	  .bytes = { BYTES(EHDR(e_phentsize), "\x20") }, NO_BUILD_ID },
	{ "a note that is cut",		.bytes = { WORD(PHDR(p_filesz), 20 + 16 + 19) },
	  NO_BUILD_ID },
	{ "a note without its name",	.bytes = { WORD(PHDR(p_filesz), 20 + 12) }, NO_BUILD_ID },
	{ "a build-id that is too long", .bytes = { BYTES(NOTE + 4, "\x15"),
						    WORD(PHDR(p_filesz), 20 + 16 + 24) },
	  NO_BUILD_ID },
	{ "a page that is not there",	.bytes = { WORD(CACHED, PAGE_OF(PROGRAM_GPA + PAGE)) },
	  NO_BUILD_ID },
	{ "a file of one page",
	  .bytes = { WORD(MAPPING(0) + M_CACHE, PAGE_OF(PROGRAM_GPA)) }, THE_SAME },
	{ "a struct page of 56 bytes",	.kernel.page_size = 56, THE_SAME },
	{ "a struct page of none",	.kernel.page_size = NONE },
	{ "no page cache",		.bytes = { WORD(FILE_OF(0) + F_MAPPING, 8) }, NO_BUILD_ID },
	{ "an empty page cache",	.bytes = { WORD(MAPPING(0) + M_CACHE, 0) }, NO_BUILD_ID },
	{ "a page cache in itself",	.bytes = { WORD(CACHED, CACHE(0) | 2) }, NO_BUILD_ID },
	{ "a page cache elsewhere",
	  .bytes = { WORD(CACHED, 0xffffffff00001002) }, NO_BUILD_ID },
	/* Bit 0 says so.  The other bits lead to its struct page all the same. */
	{ "a page that is swapped out",	.bytes = { WORD(CACHED, PAGE_OF(PROGRAM_GPA) | 1) },
	  NO_BUILD_ID },
	{ "a part of a struct page",	.bytes = { WORD(CACHED, PAGE_OF(PROGRAM_GPA) + 8) },
	  NO_BUILD_ID },
	{ "a page below all",		.bytes = { WORD(CACHED, PAGE_OF(0) - STRUCT_PAGE) },
	  NO_BUILD_ID },
	{ "a page behind RAM",		.bytes = { WORD(CACHED, PAGE_OF(HIGH_GPA + LOW_SIZE)) },
	  NO_BUILD_ID },
	{ "a page behind all",		.bytes = { WORD(CACHED, ~7UL) }, NO_BUILD_ID },
	/* The number of the page is so large that its address would wrap to the program's page. */
	{ "a page that is far away",
	  .bytes = { WORD(VMEMMAP_AT, 0),
		     WORD(CACHED, ((1UL << 52) + PROGRAM_GPA / PAGE) * STRUCT_PAGE) },
	  NO_BUILD_ID },
};

static int test_build_ids(const char *dir)
{
	return test_files_of(dir, build_ids, ARRAY_SIZE(build_ids));
}

#define ROOT_TEXT	"11 /\n"
#define SERVICE_TEXT	"33 /system.slice/a.service\n"

static const struct fake_guest cgroups[] = {
	{ "cgroups",			.from = "", .to = "" },
	{ "Linux 6.14",			.kernel.hot = true, .from = "", .to = "" },
	{ "a name with escape sequences", .bytes = { BYTES(CGROUP_NAME(1), "\x1b[2J") },
	  .from = SERVICE_TEXT, .to = "" },
	{ "a path without end",
	  .bytes = { WORD(CGROUP_DIR(1) + KN_PARENT, CGROUP_DIR(2)) },
	  .from = SERVICE_TEXT, .to = "" },
	{ "a path into nothing",	.bytes = { WORD(CGROUP_DIR(1) + KN_PARENT, 8) },
	  .from = SERVICE_TEXT, .to = "" },
	{ "a cgroup in nothing",	.bytes = { WORD(CSS_SET(2) + CSS_CGROUP, 8) },
	  .from = SERVICE_TEXT, .to = "" },
	{ "the same id",		.bytes = { WORD(CGROUP_DIR(2) + KN_ID, 11) },
	  .from = SERVICE_TEXT, .to = "" },
	{ "a task in none",		.bytes = { WORD(TASK(1) + T_CGROUPS, 0),
						   WORD(TASK(2) + T_CGROUPS, 0) },
	  .from = SERVICE_TEXT, .to = "" },
};

static int test_cgroups(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(cgroups); i++) {
		fake__make(&cgroups[i]);
		TEST_ASSERT_VAL(cgroups[i].name, fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL(cgroups[i].name,
				fake__has_changed(dir, "cgroups", ROOT_TEXT SERVICE_TEXT,
						  &cgroups[i]));
	}
	return TEST_OK;
}

/*
 * What is special about kernels that distributions have.  Of these, make test-stock runs 5.10, 6.1,
 * 6.12 and later ones; the others are made of what their source says.
 */
#define OLD_KERNEL	.kallsyms = FROM_BASE_BUT_PERCPU, .old = true, .no_header = true

static const struct fake_guest versions[] = {
	{ "4.18 (RHEL 8)",
	  .kernel = { OLD_KERNEL, .nr_symbols = 300, .wide = true, .radix = true, .types = IN_INFO,
		      .list = true, .no_top = true } },
	{ "5.4 (Ubuntu 20.04), 5.10 (Debian 11)",
	  .kernel = { OLD_KERNEL, .nr_symbols = 300, .list = true, .no_top = true } },
	{ "5.14 (RHEL 9), 5.15 (Ubuntu 22.04)",
	  .kernel = { OLD_KERNEL, .nr_symbols = 300, .list = true } },
	{ "6.1 (Debian 12)",		.kernel = { OLD_KERNEL } },
	{ "6.12 (Debian 13)",
	  .kernel = { .kallsyms = FROM_BASE_BUT_PERCPU, .hot = true } },
	{ "7.3",			.kernel = { .kallsyms = FROM_PLACE } },
};

static int test_versions(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		const char *name = versions[i].name;

		fake__make(&versions[i]);
		TEST_ASSERT_VAL(name, fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL(name, fake__has_names(dir));
		TEST_ASSERT_VAL(name, fake__has_tables(dir) && fake__has_module_tables(dir));
		TEST_ASSERT_VAL(name, fake__has_text(dir, "tasks", all_tasks));
		TEST_ASSERT_VAL(name, fake__has_text(dir, "maps", all_files));
		TEST_ASSERT_VAL(name, fake__has_text(dir, "cgroups", ROOT_TEXT SERVICE_TEXT));
	}
	return TEST_OK;
}

static int test_arm64(const char *dir)
{
	char lines[512];

	for (const struct fake_arm64 *guest = fake_arm64_guests; guest->name; guest++) {
		fake__make_arm64(guest);
		snprintf(lines, sizeof(lines),
			 "%s401000 403000 %lx 12f:f0000 1000 %s /bin/a program\n%s%s", SET_TEXT,
			 1UL << guest->shift, BUILD_ID_TEXT, ANON_TEXT, LIBRARY_TEXT);
		TEST_ASSERT_VAL(guest->name, fake__find(dir) == GUEST_FILES_NAMES);
		TEST_ASSERT_VAL(guest->name, fake__has_text(dir, "maps", lines));
		snprintf(lines, sizeof(lines), "arm64 %u %u\n%s", guest->used_bits, guest->shift,
			 all_tasks);
		TEST_ASSERT_VAL(guest->name, fake__has_text(dir, "tasks", lines));
	}

	/* Before Linux 6.0, VMCOREINFO doesn't tell where the array of struct page is. */
	fake__make_arm64(fake_arm64_guests);
	fake__change_info("VMEMMAP_START", "UNKNOWN_START");
	TEST_ASSERT_VAL("no array", fake__find(dir) == GUEST_FILES_NAMES);
	TEST_ASSERT_VAL("no array",
			fake__has_changed(dir, "maps", all_files,
					  &(const struct fake_guest){ NO_BUILD_ID }));

	fake__make_arm64(fake_arm64_guests);
	fake__make_program();
	fake__make_vdso();
	TEST_ASSERT_VAL("vDSO of 32 bits", fake__find(dir) == GUEST_FILES_NAMES);
	TEST_ASSERT_VAL("vDSO of 32 bits", fake__has_text(dir, "maps", all_files));
	fake__move_vdso();
	TEST_ASSERT_VAL("vDSO", fake__find(dir) == GUEST_FILES_NAMES);
	TEST_ASSERT_VAL("vDSO", fake__has_text(dir, "maps", SET_TEXT PROGRAM_TEXT HIGH_VDSO_TEXT
					       LIBRARY_TEXT));
	return TEST_OK;
}

/* Each kernel whose tasks can't be found has a reason. */
static int test_reasons(const char *dir __maybe_unused)
{
	static const struct {
		struct fake_kernel	kernel;
		const char		*why_not;
	} reasons[] = {
		{ { .no_data = true },		"CONFIG_KALLSYMS_ALL" },
		{ { .no_btf = true },		"has no BTF" },
		{ { .no_tasks = true },		"does not describe" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		struct guest_kernel *kernel;
		const char *why_not;
		bool same;

		fake__make_kernel(&reasons[i].kernel);
		kernel = guest_kernel__find(getpid(), NULL, &why_not);
		TEST_ASSERT_VAL("a kernel", kernel);
		same = strstr(guest_kernel__why_no_data(kernel), reasons[i].why_not);
		guest_kernel__delete(kernel);
		TEST_ASSERT_VAL(reasons[i].why_not, same);
	}
	return TEST_OK;
}

/*
 * Look at the tasks.  Return true if that succeeds, and if guest_task_writer__is_unsettled() then
 * returns @again.
 */
static bool look(struct guest_task_writer *found, u64 time, bool again)
{
	return guest_task_writer__update(found, time) &&
	       guest_task_writer__is_unsettled(found) == again;
}

/* A look writes what has changed, and only that. */
static int test_looks(const char *dir)
{
	struct guest_kernel *kernel;
	struct guest_task_writer *found;
	const char *why_not;
	char path[PATH_MAX];
	FILE *file, *maps;
	bool good;

	fake__make_usual();
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	TEST_ASSERT_VAL("found", kernel);
	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%d/looks", dir, getpid());
	file = fopen(path, "we");
	snprintf(path, sizeof(path), "%s/%d/files", dir, getpid());
	maps = fopen(path, "we");
	found = file && maps ? guest_task_writer__new(kernel, file, maps, dir) : NULL;
	good = found && look(found, 1, true);
	if (good)
		rewind(file);
	good = good && !ftruncate(fileno(file), 0) && look(found, 2, false);
	/* Change the name of a task. */
	fake__put(TASK(1) + T_COMM, "renamed", 8);
	good = good && look(found, 3, false);
	/*
	 * Make the library not executable.  This is found once the number of executable pages
	 * changes.
	 */
	fake__put_u64(VMA(3) + V_FLAGS, 1);
	good = good && look(found, 3, false);
	fake__put_u64(MM + MM_EXEC_VM, 3);
	good = good && look(found, 4, false);
	/*
	 * The number of executable pages changes, but not the files.  Then make the library
	 * executable again; while the mm has no users, no file is read.
	 */
	fake__put_u64(MM + MM_EXEC_VM, 5);
	good = good && look(found, 4, false);
	fake__put_u64(VMA(3) + V_FLAGS, 5);
	fake__put_u64(MM + MM_EXEC_VM, 7);
	fake__put_u32(MM + MM_USERS, 0);
	good = good && look(found, 4, true);
	fake__put_u32(MM + MM_USERS, 1);
	good = good && look(found, 4, false);
	fake__put_u64(MM + MM_PGD, PAGE_OFFSET + 0x54321000);
	good = good && look(found, 4, true);
	fake__put_u64(TASK(1) + T_TASKS, TASK(0) + T_TASKS);
	good = good && look(found, 5, false);
	fake__put_u64(TASK(4) + T_STACK, 0xffffc90000018000);
	good = good && look(found, 6, false);
	guest_task_writer__delete(found);
	guest_kernel__delete(kernel);
	if (file)
		fclose(file);
	if (maps)
		fclose(maps);
	TEST_ASSERT_VAL("all looks", good);
	TEST_ASSERT_VAL("which files", fake__has_text(dir, "files",
		"1 900000 7\n" PROGRAM_TEXT ANON_TEXT LIBRARY_TEXT
		"4 900000 7\n" PROGRAM_TEXT ANON_TEXT
		"4 900000 7\n" PROGRAM_TEXT ANON_TEXT LIBRARY_TEXT
		"4 54321000 7\n" PROGRAM_TEXT ANON_TEXT LIBRARY_TEXT));
	TEST_ASSERT_VAL("what has changed", fake__has_text(dir, "looks",
		"3 ffffc90000020000 900000 7 7 renamed\n"
		"4 ffffc90000010000 54321000 7 9 worker\n"
		"4 ffffc90000020000 54321000 7 7 renamed\n"
		"5 ffffc90000008000\n"
		"6 ffffc90000000000\n"
		"6 ffffc90000018000 0 0 0 swapper/1\n"));
	return TEST_OK;
}

/* The processes that began last are looked at for a while, without the others. */
static int test_new(const char *dir)
{
	const u64 second = NSEC_PER_SEC;
	struct guest_task_writer *found;
	struct guest_kernel *kernel;
	const char *why_not;
	char path[PATH_MAX];
	FILE *file;

	fake__make_usual();
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	TEST_ASSERT_VAL("found", kernel);
	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%d/new", dir, getpid());
	file = fopen(path, "we");
	found = file ? guest_task_writer__new(kernel, file, NULL, dir) : NULL;
	TEST_ASSERT_VAL("a writer", found && guest_task_writer__update(found, 0));
	rewind(file);
	TEST_ASSERT_VAL("no lines", !ftruncate(fileno(file), 0));

	fake__put(TASK(3) + T_COMM, "exec", 5);
	guest_task_writer__look_for_new(found, second);
	TEST_ASSERT_VAL("a new one", guest_task_writer__has_new(found, second + second / 10));
	TEST_ASSERT_VAL("no new one", !guest_task_writer__has_new(found, second + second / 2));
	/* Processes of a busy guest need a second to call exec. */
	fake__put(TASK(3) + T_COMM, "late", 5);
	guest_task_writer__look_for_new(found, 2 * second);
	/* All of this happens long after the last process began. */
	fake__put(TASK(3) + T_COMM, "unseen", 7);
	guest_task_writer__look_for_new(found, 2 * second + 1);
	/* A process ends, so that another one is the last: nothing new is known of that. */
	fake__put_u64(TASK(0) + T_TASKS + 8, TASK(1) + T_TASKS);
	fake__put(TASK(1) + T_COMM, "the last one", 13);
	fake__put(TASK(2) + T_COMM, "its thread", 11);
	guest_task_writer__look_for_new(found, 3 * second);
	guest_task_writer__look_for_new(found, 3 * second);
	/* Another process has the same struct task_struct. */
	fake__put(TASK(1) + T_COMM, "used again", 11);
	fake__put_u32(TASK(1) + T_PID, 17);
	fake__put_u32(TASK(1) + T_TGID, 17);
	guest_task_writer__look_for_new(found, 4 * second);
	/* A list without end, and one into nothing. */
	fake__put_u64(TASK(1) + T_TASKS + 8, TASK(1) + T_TASKS);
	guest_task_writer__look_for_new(found, 4 * second);
	fake__put_u64(TASK(0) + T_TASKS + 8, 8);
	guest_task_writer__look_for_new(found, 5 * second);

	guest_task_writer__delete(found);
	guest_kernel__delete(kernel);
	fclose(file);
	TEST_ASSERT_VAL("what is new", fake__has_text(dir, "new",
		"1000000000 ffffc90000008000 0 2 2 exec\n"
		"2000000000 ffffc90000008000 0 2 2 late\n"
		"3000000000 ffffc90000020000 900000 7 7 the last one\n"
		"4000000000 ffffc90000020000 900000 17 17 used again\n"));
	return TEST_OK;
}

/* Return true if a task's new name is written when the sysctl is @level at the last look. */
static bool notes_later_task(const char *dir, const char *sysctl, const char *level)
{
	const struct record_opts opts = {};
	struct guest_reader what = { .pid = getpid(), .opts = &opts };
	char path[PATH_MAX];
	char *noted;
	size_t size;
	bool found;

	fake__make_usual();
	fake__write_text(sysctl, "2\n");
	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	rm_rf(path);
	what.top = path;
	if (!guest_watch__add(&what))
		return false;
	guest_watch__start();
	fake__write_text(sysctl, level);
	fake__put(TASK(1) + T_COMM, "later", 6);
	/* This looks at the guest once more. */
	guest_watch__stop();

	noted = fake__read_file(dir, "tasks", &size);
	found = noted && strstr(noted, " later\n");
	free(noted);
	return found;
}

/* If someone forbids reading a guest while it is recorded, perf obeys. */
static int test_policy(const char *dir)
{
	struct perf_event_attr attr = {
		.size		= sizeof(attr),
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_DUMMY,
		.exclude_kernel	= 1,
	};
	char sysctl[PATH_MAX];
	int fd;

	/* perf notes new tasks with a time of its clock, which only an event can tell. */
	fd = sys_perf_event_open(&attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return TEST_SKIP;

	close(fd);
	snprintf(sysctl, sizeof(sysctl), "%s/sysctl", dir);
	guest_paths.sysctl = sysctl;
	TEST_ASSERT_VAL("still allowed", notes_later_task(dir, sysctl, "2\n"));
	TEST_ASSERT_VAL("not any more", !notes_later_task(dir, sysctl, "0\n"));
	return TEST_OK;
}

/* Lines of a JIT compiler; one is too long, and its part on the second page looks like a line. */
#define JIT_FIRST	"408010 20 first\n"
#define JIT_LONG	"408040 10 x"
#define JIT_SECOND	"408050 8 second \x1b[2J\n"
#define JIT_LAST	"408070 8 last"

static size_t put_lines(char text[2 * PAGE])
{
	size_t len = sprintf(text, JIT_FIRST JIT_LONG);

	memset(text + len, 'x', PAGE - len);
	return PAGE + sprintf(text + PAGE, "408044 8 a part\n" JIT_SECOND "nonsense\n"
			      "408060 0 empty\nffffffffffffffff 10 upper\n408068 8\n" JIT_LAST);
}

static const struct {
	const char	*name;
	const char	*file;		/* the name of the file that the process has open */
	struct fake_bytes bytes;
	bool		first;		/* the lines that are expected */
	bool		others;
} jits[] = {
	{ "names of compiled code",	"perf-3.map",	{}, true, true },
	{ "those of another process",	"perf-7.map",	{}, false, false },
	{ "no pid of its own",		"perf-7.map",	WORD(TASK(1) + T_OWN, 0), true, true },
	{ "a pid in no namespace",	"perf-7.map",
	  HALF(OWN_PID + PID_LEVEL, ~0U), true, true },
	{ "no descriptors",		"perf-3.map",	WORD(FILES + FILES_FDT, 8), false, false },
	{ "a table into nothing",	"perf-3.map",	WORD(FDT + FDT_FDS, 8), false, false },
	{ "a table without end",	"perf-3.map",	HALF(FDT + FDT_MAX, ~0U), true, true },
	{ "a file behind many others",	"perf-3.map",
	  WORD(FDT + FDT_FDS, FDS - 256 * 8), false, false },
	{ "a table that is empty",	"perf-3.map",	HALF(FDT + FDT_MAX, 0), false, false },
	{ "a name without a pid",	"perf-.map",	{}, false, false },
	{ "a longer name",		"perf-3.map2",	{}, false, false },
	{ "another name",		"perf-3.mop",	{}, false, false },
	{ "a page that is not cached",	"perf-3.map",
	  WORD(JIT_CACHE + C_SLOTS + 8, 0), true, false },
	{ "the first page is not cached", "perf-3.map",
	  WORD(JIT_CACHE + C_SLOTS, 0), false, true },
	{ "an empty file",		"perf-3.map",
	  WORD(INODE(JIT_FILE) + I_SIZE, 0), false, false },
};

/* What a compiler adds to its file is written at the next look. */
static int check_later_names(const char *dir)
{
	char text[2 * PAGE], path[64];
	size_t size = put_lines(text);
	struct guest_task_writer *found;
	struct guest_kernel *kernel;
	const char *why_not;
	FILE *file, *maps;

	fake__make_usual();
	fake__make_jit("perf-3.map", text, size);
	/* Of the second page, nothing was written so far. */
	fake__put_u64(INODE(JIT_FILE) + I_SIZE, 100);
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	snprintf(path, sizeof(path), "%s/%d/later", dir, getpid());
	file = fopen(path, "we");
	snprintf(path, sizeof(path), "%s/%d/maps", dir, getpid());
	maps = fopen(path, "we");
	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	TEST_ASSERT_VAL("no files", kernel && file && maps);
	found = guest_task_writer__new(kernel, file, maps, path);
	TEST_ASSERT_VAL("no tasks", found && guest_task_writer__update(found, 1));
	TEST_ASSERT_VAL("the first line",
			fake__has_text(dir, "programs/perf-900000-7.map", JIT_FIRST));
	fake__put_u64(INODE(JIT_FILE) + I_SIZE, size);
	TEST_ASSERT_VAL("no tasks", guest_task_writer__update(found, 2));
	fake__put_u64(INODE(JIT_FILE) + I_SIZE, size - 10);
	TEST_ASSERT_VAL("no tasks", guest_task_writer__update(found, 3));
	guest_task_writer__delete(found);
	guest_kernel__delete(kernel);
	fclose(file);
	fclose(maps);
	snprintf(text, sizeof(text), JIT_FIRST "%.511s\n408050 8 second ?[2J\n",
		 strdupa(text) + strlen(JIT_FIRST));
	TEST_ASSERT_VAL("all lines", fake__has_text(dir, "programs/perf-900000-7.map", text));
	return TEST_OK;
}

/* The names that a JIT compiler gives to its code. */
static int test_jits(const char *dir)
{
	char text[2 * PAGE], expected[1024], path[PATH_MAX];
	size_t size = put_lines(text);

	for (size_t i = 0; i < ARRAY_SIZE(jits); i++) {
		int len = 0;

		fake__make_usual();
		fake__make_jit(jits[i].file, text, size);
		if (jits[i].bytes.size)
			fake__put(jits[i].bytes.at, jits[i].bytes.data, jits[i].bytes.size);
		TEST_ASSERT_VAL(jits[i].name, fake__find(dir) == GUEST_FILES_TABLES);
		snprintf(path, sizeof(path), "%s/%d/programs/perf-900000-7.map", dir, getpid());
		if (!jits[i].first && !jits[i].others) {
			TEST_ASSERT_VAL(jits[i].name, access(path, F_OK));
			continue;
		}
		*expected = 0;
		if (jits[i].first)
			len += sprintf(expected, JIT_FIRST);
		if (jits[i].first && jits[i].others)
			len += sprintf(expected + len, "%.511s\n", text + strlen(JIT_FIRST));
		if (jits[i].others)
			sprintf(expected + len, "408050 8 second ?[2J\n");
		TEST_ASSERT_VAL(jits[i].name,
				fake__has_text(dir, "programs/perf-900000-7.map", expected));
	}
	return check_later_names(dir);
}

static struct test_case tests__guest_tasks[] = {
	FAKE_GUEST_BTF_TEST("Tasks", test_tasks),
	FAKE_GUEST_BTF_TEST("Files that tasks run", test_files),
	FAKE_GUEST_BTF_TEST("Build-ids of these files", test_build_ids),
	FAKE_GUEST_BTF_TEST("Names of code that tasks compile", test_jits),
	FAKE_GUEST_BTF_TEST("Cgroups of tasks", test_cgroups),
	FAKE_GUEST_BTF_TEST("Kernels of distributions", test_versions),
	FAKE_GUEST_BTF_TEST("Tasks and files of arm64", test_arm64),
	FAKE_GUEST_BTF_TEST("Reasons why tasks are not found", test_reasons),
	FAKE_GUEST_BTF_TEST("Changes from one look to the next", test_looks),
	FAKE_GUEST_BTF_TEST("New processes", test_new),
	FAKE_GUEST_BTF_TEST("Policy while a guest is watched", test_policy),
	{ .name = NULL, }
};

struct test_suite suite__guest_tasks = {
	.desc = "Tasks of guests",
	.test_cases = tests__guest_tasks,
};
