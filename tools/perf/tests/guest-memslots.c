// SPDX-License-Identifier: GPL-2.0
/*
 * Test where perf finds the memory of a VMM's guests, and whether it may read that.  KVM's list of
 * memslots, the sysctl kernel.perf_event_guest_callchain and the VMM's setting are files of the
 * test.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <linux/kernel.h>

#include "fake-guest.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-memslots.h"
#include "guest-policy.h"
#include "tests.h"
#include "util.h"

/*
 * KVM's list of the guest's memory.  %d is the VMM's pid.  The first %lx is the VMM's address of
 * the RAM at guest-physical 4 GiB, the second one that of the RAM at guest-physical zero, the third
 * one is 8 MiB above the second.
 */
#define PIECE(as, gpa, size, hva) \
	"as_id=" as " slot=5 gpa=" gpa " size=" size " hva=" hva " flags=0x1\n"
#define SLOT(as, gpa, hva) PIECE(as, gpa, "0x1000000", hva)
#define HIGH_RAM	SLOT("0", "0x100000000", "0x%lx")
#define LOW_RAM		SLOT("0", "0x0", "0x%lx")

static const struct {
	const char	*what;
	const char	*dir;
	const char	*list;
	bool		in_pieces;
	bool		found;
} lists[] = {
	{ "none",			"%d-5", "", true, false },
	{ "none, RAM in one piece",	"%d-5", "", false, true },
	{ "RAM in two pieces",		"%d-5", HIGH_RAM LOW_RAM, true, true },
	{ "RAM in three pieces",	"%d-5", HIGH_RAM PIECE("0", "0x0", "0x800000", "0x%lx")
						PIECE("0", "0x800000", "0x800000", "0x%lx"),
	  true, true },
	{ "a piece that ends before",	"%d-5", HIGH_RAM PIECE("0", "0x0", "0x803000", "0x%lx"),
	  true, false },
	{ "other memory as well",	"%d-5", SLOT("1", "0x0", "0x1000") HIGH_RAM LOW_RAM,
	  true, true },
	{ "the other address space's",	"%d-5", SLOT("1", "0x100000000", "0x%lx")
						SLOT("1", "0x0", "0x%lx"), true, false },
	{ "pieces elsewhere",		"%d-5", SLOT("0", "0x200000000", "0x%lx")
						SLOT("0", "0x10000000", "0x%lx"), true, false },
	/* The VMM has a page that looks like a kernel's, but the page is not in the guest's RAM. */
	{ "other RAM",			"%d-5", SLOT("0", "0x0", "0x1000"), false, false },
	{ "nonsense",			"%d-5", "nonsense\n\nas_id=0 slot=0\n" HIGH_RAM LOW_RAM,
	  true, true },
	{ "another process's",		"1-%d", HIGH_RAM LOW_RAM, true, false },
	{ "no VM's",			"%d", HIGH_RAM LOW_RAM, true, false },
	{ "memory that can't be read",	"%d-5", SLOT("0", "0x200000000", "0x1000") HIGH_RAM LOW_RAM,
	  true, true },
};

/*
 * Lay out RAM as the VMM of a large guest may do: the RAM at guest-physical 4 GiB lies before the
 * RAM at guest-physical zero.
 */
static void swap_ram(void)
{
	u8 *low = malloc(LOW_SIZE);

	if (low) {
		memcpy(low, fake_ram, LOW_SIZE);
		memcpy(fake_ram, fake_ram + HOLE, LOW_SIZE);
		memcpy(fake_ram + HOLE, low, LOW_SIZE);
	}
	free(low);
}

/* Use @dir in place of debugfs. */
static bool make_debugfs(const char *dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/kvm", dir);
	rm_rf(path);
	guest_paths.debugfs = dir;
	return !mkdir(path, 0700);
}

/* Make KVM's list; return false if that fails. */
static bool make_list(const char *dir, const char *vm, const char *list)
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/kvm/%s", dir, vm);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/kvm/%s/memslots", dir, vm);
	file = fopen(path, "we");
	if (file)
		fprintf(file, list, (long)fake_ram, (long)fake_ram + HOLE,
			(long)fake_ram + HOLE + (8 << 20));
	return file && !fclose(file);
}

static int test_lists(const char *dir)
{
	char vm[32];

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		bool found;

		TEST_ASSERT_VAL("no directory", make_debugfs(dir));
		fake__make_kernel(&(const struct fake_kernel){ .high = true });
		if (lists[i].in_pieces)
			swap_ram();
		snprintf(vm, sizeof(vm), lists[i].dir, getpid());
		TEST_ASSERT_VAL("no list", make_list(dir, vm, lists[i].list));
		found = fake__find(dir) == GUEST_FILES_TABLES;
		TEST_ASSERT_VAL(lists[i].what, found == lists[i].found);
		TEST_ASSERT_VAL(lists[i].what, !found || fake__has_names(dir));
	}
	return TEST_OK;
}

/* Make a list of @nr memslots, the last two of which are RAM. */
static bool make_long_list(const char *dir, const char *vm, unsigned int nr)
{
	char *list = calloc(nr, sizeof(SLOT("0", "0x200000000", "0x1000")));
	bool good;

	if (!list)
		return false;
	for (unsigned int i = 2; i < nr; i++)
		sprintf(list + strlen(list), SLOT("0", "0x2%04x0000", "0x1000"), i);
	strcat(list, HIGH_RAM LOW_RAM);
	good = make_list(dir, vm, list);
	free(list);
	return good;
}

static int test_long_lists(const char *dir)
{
	char vm[32];

	snprintf(vm, sizeof(vm), "%d-5", getpid());
	TEST_ASSERT_VAL("no directory", make_debugfs(dir));
	fake__make_usual();
	swap_ram();
	TEST_ASSERT_VAL("no list", make_long_list(dir, vm, MAX_MEMSLOTS));
	TEST_ASSERT_VAL("a long list", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("no list", make_long_list(dir, vm, MAX_MEMSLOTS + 1));
	TEST_ASSERT_VAL("a list that is too long", fake__find(dir) == GUEST_FILES_NONE);
	return TEST_OK;
}

/* One VM has no memory, and another one no Linux.  The third one gets more memory, and loses it. */
static int test_vms(const char *dir)
{
	struct guest_kernel *kernel;
	const char *why_not;
	char vms[3][32];
	u8 page[PAGE];
	u64 value;

	TEST_ASSERT_VAL("no directory", make_debugfs(dir));
	fake__make_usual();
	swap_ram();
	for (int i = 0; i < 3; i++)
		snprintf(vms[i], sizeof(vms[i]), "%d-%d", getpid(), i + 5);
	TEST_ASSERT_VAL("no lists", make_list(dir, vms[0], "") &&
			make_list(dir, vms[1], SLOT("0", "0x0", "0x1000")) &&
			make_list(dir, vms[2], SLOT("1", "0x0", "0x%lx")
						PIECE("0", "0x0", "0xf00000", "0x%lx")));
	/* The VMM has other memory right behind the piece. */
	fake_ram[HOLE + 0xf00000] = 1;
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	TEST_ASSERT_VAL("of three VMs", kernel);
	TEST_ASSERT_VAL("memory", guest_memory__read_page(kernel->mem, 0, page));
	TEST_ASSERT_VAL("no memory", !guest_memory__read_page(kernel->mem, 0xf00, page) &&
			!guest_memory__read_page(kernel->mem, HIGH_GPA / PAGE, page));
	make_list(dir, vms[2], HIGH_RAM LOW_RAM);
	guest_memory__refresh(kernel->mem);
	TEST_ASSERT_VAL("more memory", guest_memory__read_page(kernel->mem, HIGH_GPA / PAGE, page));
	make_list(dir, vms[2], "");
	guest_memory__refresh(kernel->mem);
	TEST_ASSERT_VAL("no memory", !guest_memory__read(kernel->mem, NUM_SYMS, &value,
							 sizeof(value)));
	guest_kernel__delete(kernel);
	return TEST_OK;
}

/*
 * The sysctl, NULL if there is none; what the VMM allows for its VM; and whether the guest may be
 * read.
 */
static const struct {
	const char	*what;
	const char	*sysctl;
	const char	*policy;
	bool		found;
} policies[] = {
	{ "no sysctl",		NULL,	NULL,		true },
	{ "0",			"0\n",	"allowed\n",	false },
	{ "1, undecided",	"1\n",	"undecided\n",	false },
	{ "1, not known",	"1\n",	NULL,		false },
	{ "1, allowed",		"1\n",	"allowed\n",	true },
	{ "1, forbidden",	"1\n",	"forbidden\n",	false },
	{ "2, undecided",	"2\n",	"undecided\n",	true },
	{ "2, not known",	"2\n",	NULL,		true },
	{ "2, forbidden",	"2\n",	"forbidden\n",	false },
	{ "nothing",		"",	"allowed\n",	false },
	{ "no number",		"x\n",	"allowed\n",	false },
};

/* A guest is not read if anyone forbids it. */
static int test_policy(const char *dir)
{
	char path[PATH_MAX], sysctl[PATH_MAX], policy[PATH_MAX], vm[32];

	TEST_ASSERT_VAL("no directory", make_debugfs(dir));
	snprintf(vm, sizeof(vm), "%d-5", getpid());
	snprintf(sysctl, sizeof(sysctl), "%s/sysctl", dir);
	snprintf(policy, sizeof(policy), "%s/kvm/%s/guest_callchain", dir, vm);
	guest_paths.sysctl = sysctl;
	fake__make_kernel(&(const struct fake_kernel){ .high = true });
	TEST_ASSERT_VAL("no list", make_list(dir, vm, HIGH_RAM LOW_RAM));
	swap_ram();
	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		TEST_ASSERT_VAL("no files", fake__write_text(sysctl, policies[i].sysctl) &&
				fake__write_text(policy, policies[i].policy));
		TEST_ASSERT_VAL(policies[i].what,
				(fake__find(dir) == GUEST_FILES_TABLES) == policies[i].found);
	}

	/* If one of a process's VMs forbids it, perf reads none of them. */
	snprintf(vm, sizeof(vm), "%d-6", getpid());
	TEST_ASSERT_VAL("no list", make_list(dir, vm, ""));
	snprintf(path, sizeof(path), "%s/kvm/%d-6/guest_callchain", dir, getpid());
	for (int i = 0; i < 2; i++) {
		TEST_ASSERT_VAL("no files", fake__write_text(sysctl, "2\n") &&
				fake__write_text(i ? path : policy, "forbidden\n") &&
				fake__write_text(i ? policy : path, "allowed\n"));
		TEST_ASSERT_VAL("one of two", fake__find(dir) == GUEST_FILES_NONE);
	}
	TEST_ASSERT_VAL("no file", fake__write_text(path, "allowed\n"));
	TEST_ASSERT_VAL("both allow", fake__find(dir) == GUEST_FILES_TABLES);

	/* Without a VM in the list, the sysctl alone decides. */
	guest_paths.debugfs = "/nowhere";
	swap_ram();
	TEST_ASSERT_VAL("no file", fake__write_text(sysctl, "1\n"));
	TEST_ASSERT_VAL("1, no VM", fake__find(dir) == GUEST_FILES_NONE);
	TEST_ASSERT_VAL("no file", fake__write_text(sysctl, "2\n"));
	TEST_ASSERT_VAL("2, no VM", fake__find(dir) == GUEST_FILES_TABLES);
	return TEST_OK;
}

/* A tid that no thread has: the kernel's limit is 2^22. */
#define NO_THREAD	(1 << 22)

static bool is_forbidden(const char *dir, int tid, int fd)
{
	char path[PATH_MAX], name[32];
	bool forbidden;

	make_debugfs(dir);
	snprintf(name, sizeof(name), "%d-%d", tid, fd);
	make_list(dir, name, "");
	snprintf(path, sizeof(path), "%s/kvm/%s/guest_callchain", dir, name);
	fake__write_text(path, "forbidden\n");
	forbidden = guest_policy__refusal(getpid());
	/* guest_memslots__find_vm() must not find a VM that isn't known to be this process's. */
	return forbidden && !guest_memslots__find_vm(getpid(), 0, path);
}

/*
 * If the thread that made a VM has ended, and may have been one of this process, the VM's setting
 * can forbid reading the guests of this process, but not allow it.
 */
static int test_ended_thread(const char *dir)
{
	const char *link = guest_paths.vm_link;
	const int fd = eventfd(0, EFD_CLOEXEC);
	bool other, right, running, closed;
	char sysctl[PATH_MAX];

	TEST_ASSERT_VAL("no file descriptor", fd >= 0);
	snprintf(sysctl, sizeof(sysctl), "%s/sysctl", dir);
	TEST_ASSERT_VAL("no file", fake__write_text(sysctl, "2\n"));
	guest_paths.sysctl = sysctl;
	other = is_forbidden(dir, NO_THREAD, fd);
	guest_paths.vm_link = "anon_inode:[eventfd]";
	right = is_forbidden(dir, NO_THREAD, fd);
	running = is_forbidden(dir, getppid(), fd);
	close(fd);
	closed = is_forbidden(dir, NO_THREAD, fd);
	guest_paths.vm_link = link;
	TEST_ASSERT_VAL("no VM", !other);
	TEST_ASSERT_VAL("a VM", right);
	TEST_ASSERT_VAL("another process's", !running);
	TEST_ASSERT_VAL("no such descriptor", !closed);
	return TEST_OK;
}

static struct test_case tests__guest_memslots[] = {
	FAKE_GUEST_TEST("Lists of memslots", test_lists),
	FAKE_GUEST_TEST("Long lists", test_long_lists),
	FAKE_GUEST_TEST("Several VMs", test_vms),
	FAKE_GUEST_TEST("Sysctl and settings of VMMs", test_policy),
	FAKE_GUEST_TEST("VM whose creating thread has ended", test_ended_thread),
	{ .name = NULL, }
};

struct test_suite suite__guest_memslots = {
	.desc = "Memory of guests",
	.test_cases = tests__guest_memslots,
};
