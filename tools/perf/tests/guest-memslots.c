// SPDX-License-Identifier: GPL-2.0
/*
 * Test where perf finds the memory of a VMM's guests, and whether it may read that.  The fdinfo of
 * the VMM's VMs, with the memslots and the VMM's policy, and the sysctl
 * kernel.perf_event_guest_callchain are files of the test.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
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
 * KVM's list of the guest's memory.  The first %lx is the VMM's address of the RAM at
 * guest-physical 4 GiB, the second one that of the RAM at guest-physical zero, the third one is
 * 8 MiB above the second.
 */
#define PIECE(as, gpa, size, hva) \
	"memslot:\tas_id=" as " slot=5 gpa=" gpa " size=" size " hva=" hva " flags=0x1\n"
#define SLOT(as, gpa, hva) PIECE(as, gpa, "0x1000000", hva)
#define HIGH_RAM	SLOT("0", "0x100000000", "0x%lx")
#define LOW_RAM		SLOT("0", "0x0", "0x%lx")

/* What the fdinfo of any file descriptor has. */
#define ANY_FD		"pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t1057\n"

static const struct {
	const char	*what;
	const char	*list;
	bool		in_pieces;
	bool		found;
	const char	*link;	/* NULL for that of a VM */
} lists[] = {
	{ "none",			"", true, false, NULL },
	{ "none, RAM in one piece",	"", false, true, NULL },
	{ "RAM in two pieces",		HIGH_RAM LOW_RAM, true, true, NULL },
	{ "RAM in three pieces",	HIGH_RAM PIECE("0", "0x0", "0x800000", "0x%lx")
						PIECE("0", "0x800000", "0x800000", "0x%lx"),
	  true, true, NULL },
	{ "a piece that ends before",	HIGH_RAM PIECE("0", "0x0", "0x803000", "0x%lx"),
	  true, false, NULL },
	{ "other memory as well",	SLOT("1", "0x0", "0x1000") HIGH_RAM LOW_RAM,
	  true, true, NULL },
	{ "the other address space's",	SLOT("1", "0x100000000", "0x%lx")
						SLOT("1", "0x0", "0x%lx"), true, false, NULL },
	{ "pieces elsewhere",		SLOT("0", "0x200000000", "0x%lx")
						SLOT("0", "0x10000000", "0x%lx"),
	  true, false, NULL },
	/* The VMM has a page that looks like a kernel's, but the page is not in the guest's RAM. */
	{ "other RAM",			SLOT("0", "0x0", "0x1000"), false, false, NULL },
	{ "nonsense",			"nonsense\n\nmemslot:\tas_id=0 slot=0\n" HIGH_RAM LOW_RAM,
	  true, true, NULL },
	{ "no VM's",			HIGH_RAM LOW_RAM, true, false, "anon_inode:kvm-vcpu:0" },
	{ "memory that can't be read",	SLOT("0", "0x200000000", "0x1000") HIGH_RAM LOW_RAM,
	  true, true, NULL },
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

/* Use @dir/proc in place of /proc; this process has no file descriptors there so far. */
static bool make_proc(const char *dir)
{
	static char proc[PATH_MAX];
	char path[PATH_MAX];

	snprintf(proc, sizeof(proc), "%s/proc", dir);
	rm_rf(proc);
	guest_paths.proc = proc;
	snprintf(path, sizeof(path), "%s/proc/%d/fd", dir, getpid());
	if (mkdir_p(path, 0700))
		return false;
	snprintf(path, sizeof(path), "%s/proc/%d/fdinfo", dir, getpid());
	return !mkdir(path, 0700);
}

/* Make a file descriptor @fd with a link and, in its fdinfo, a policy and KVM's list. */
static bool make_fd(const char *dir, int fd, const char *link, const char *policy,
		    const char *list)
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/%d/fd/%d", dir, getpid(), fd);
	unlink(path);
	if (symlink(link, path))
		return false;

	snprintf(path, sizeof(path), "%s/proc/%d/fdinfo/%d", dir, getpid(), fd);
	file = fopen(path, "we");
	if (!file)
		return false;

	fprintf(file, ANY_FD);
	if (policy)
		fprintf(file, "guest_callchain:\t%s\n", policy);
	fprintf(file, list, (long)fake_ram, (long)fake_ram + HOLE,
		(long)fake_ram + HOLE + (8 << 20));
	return !fclose(file);
}

/* Make a VM. */
static bool make_vm(const char *dir, int fd, const char *policy, const char *list)
{
	return make_fd(dir, fd, guest_paths.vm_link, policy, list);
}

static int test_lists(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		const char *link = lists[i].link ?: guest_paths.vm_link;
		bool found;

		TEST_ASSERT_VAL("no directory", make_proc(dir));
		fake__make_kernel(&(const struct fake_kernel){ .high = true });
		if (lists[i].in_pieces)
			swap_ram();
		TEST_ASSERT_VAL("no list", make_fd(dir, 5, link, "undecided", lists[i].list));
		/* The process has other file descriptors as well. */
		TEST_ASSERT_VAL("no list", make_fd(dir, 4, "/dev/kvm", NULL, "") &&
				make_fd(dir, 6, "anon_inode:kvm-vcpu:1", NULL, ""));
		found = fake__find(dir) == GUEST_FILES_TABLES;
		TEST_ASSERT_VAL(lists[i].what, found == lists[i].found);
		TEST_ASSERT_VAL(lists[i].what, !found || fake__has_names(dir));
	}
	return TEST_OK;
}

/* Make a list of @nr memslots, the last two of which are RAM. */
static bool make_long_list(const char *dir, unsigned int nr)
{
	char *list = calloc(nr, sizeof(SLOT("0", "0x200000000", "0x1000")));
	bool good;

	if (!list)
		return false;
	for (unsigned int i = 2; i < nr; i++)
		sprintf(list + strlen(list), SLOT("0", "0x2%04x0000", "0x1000"), i);
	strcat(list, HIGH_RAM LOW_RAM);
	good = make_vm(dir, 5, NULL, list);
	free(list);
	return good;
}

static int test_long_lists(const char *dir)
{
	TEST_ASSERT_VAL("no directory", make_proc(dir));
	fake__make_usual();
	swap_ram();
	TEST_ASSERT_VAL("no list", make_long_list(dir, MAX_MEMSLOTS));
	TEST_ASSERT_VAL("a long list", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("no list", make_long_list(dir, MAX_MEMSLOTS + 1));
	TEST_ASSERT_VAL("a list that is too long", fake__find(dir) == GUEST_FILES_NONE);
	return TEST_OK;
}

/* One VM has no memory, and another one no Linux.  The third one gets more memory, and loses it. */
static int test_vms(const char *dir)
{
	struct guest_kernel *kernel;
	const char *why_not;
	u8 page[PAGE];
	u64 value;

	TEST_ASSERT_VAL("no directory", make_proc(dir));
	fake__make_usual();
	swap_ram();
	TEST_ASSERT_VAL("no lists", make_vm(dir, 5, NULL, "") &&
			make_vm(dir, 6, NULL, SLOT("0", "0x0", "0x1000")) &&
			make_vm(dir, 7, NULL, SLOT("1", "0x0", "0x%lx")
						PIECE("0", "0x0", "0xf00000", "0x%lx")));
	/* The VMM has other memory right behind the piece. */
	fake_ram[HOLE + 0xf00000] = 1;
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	TEST_ASSERT_VAL("of three VMs", kernel);
	TEST_ASSERT_VAL("memory", guest_memory__read_page(kernel->mem, 0, page));
	TEST_ASSERT_VAL("no memory", !guest_memory__read_page(kernel->mem, 0xf00, page) &&
			!guest_memory__read_page(kernel->mem, HIGH_GPA / PAGE, page));
	make_vm(dir, 7, NULL, HIGH_RAM LOW_RAM);
	guest_memory__refresh(kernel->mem);
	TEST_ASSERT_VAL("more memory", guest_memory__read_page(kernel->mem, HIGH_GPA / PAGE, page));
	make_vm(dir, 7, NULL, "");
	guest_memory__refresh(kernel->mem);
	TEST_ASSERT_VAL("no memory", !guest_memory__read(kernel->mem, NUM_SYMS, &value,
							 sizeof(value)));
	guest_kernel__delete(kernel);
	return TEST_OK;
}

/*
 * The sysctl, NULL if there is none; what the VMM allows for its VM, NULL if the kernel doesn't
 * tell; whether perf may read the guest; and whether its events may.
 */
static const struct {
	const char	*what;
	const char	*sysctl;
	const char	*policy;
	bool		found;
	bool		read;
} policies[] = {
	{ "no sysctl",		NULL,	NULL,		true,	true },
	{ "0",			"0\n",	"read-allowed",	false,	false },
	{ "1, undecided",	"1\n",	"undecided",	false,	false },
	{ "1, not known",	"1\n",	NULL,		false,	false },
	{ "1, allowed",		"1\n",	"allowed",	true,	false },
	{ "1, reads allowed",	"1\n",	"read-allowed",	true,	true },
	{ "1, forbidden",	"1\n",	"forbidden",	false,	false },
	{ "2, undecided",	"2\n",	"undecided",	true,	false },
	{ "2, not known",	"2\n",	NULL,		true,	false },
	{ "2, allowed",		"2\n",	"allowed",	true,	false },
	{ "2, reads allowed",	"2\n",	"read-allowed",	true,	true },
	{ "2, forbidden",	"2\n",	"forbidden",	false,	false },
	{ "3, undecided",	"3\n",	"undecided",	true,	true },
	{ "3, not known",	"3\n",	NULL,		true,	true },
	{ "3, forbidden",	"3\n",	"forbidden",	false,	false },
	{ "3, another policy",	"3\n",	"something",	false,	false },
	{ "nothing",		"",	"read-allowed",	false,	false },
	{ "no number",		"x\n",	"read-allowed",	false,	false },
};

/* A guest is not read if anyone forbids it. */
static int test_policy(const char *dir)
{
	char sysctl[PATH_MAX];

	TEST_ASSERT_VAL("no directory", make_proc(dir));
	snprintf(sysctl, sizeof(sysctl), "%s/sysctl", dir);
	guest_paths.sysctl = sysctl;
	fake__make_kernel(&(const struct fake_kernel){ .high = true });
	swap_ram();
	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		TEST_ASSERT_VAL("no files", fake__write_text(sysctl, policies[i].sysctl) &&
				make_vm(dir, 5, policies[i].policy, HIGH_RAM LOW_RAM));
		TEST_ASSERT_VAL(policies[i].what,
				(fake__find(dir) == GUEST_FILES_TABLES) == policies[i].found);
		TEST_ASSERT_VAL(policies[i].what,
				!guest_policy__read_refusal(getpid()) == policies[i].read);
	}

	/* If one of a process's VMs forbids it, perf reads none of them. */
	for (int i = 0; i < 2; i++) {
		TEST_ASSERT_VAL("no files", fake__write_text(sysctl, "2\n") &&
				make_vm(dir, 5, i ? "read-allowed" : "forbidden",
					HIGH_RAM LOW_RAM) &&
				make_vm(dir, 6, i ? "forbidden" : "read-allowed", ""));
		TEST_ASSERT_VAL("one of two", fake__find(dir) == GUEST_FILES_NONE);
		TEST_ASSERT_VAL("one of two, reads", guest_policy__read_refusal(getpid()));
	}
	TEST_ASSERT_VAL("no file", make_vm(dir, 6, "allowed", ""));
	TEST_ASSERT_VAL("both allow", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("one allows reads", guest_policy__read_refusal(getpid()));
	TEST_ASSERT_VAL("no file", make_vm(dir, 6, "read-allowed", ""));
	TEST_ASSERT_VAL("both allow reads", !guest_policy__read_refusal(getpid()));

	/* Without a VM, the sysctl alone decides. */
	guest_paths.proc = "/nowhere";
	swap_ram();
	TEST_ASSERT_VAL("no file", fake__write_text(sysctl, "1\n"));
	TEST_ASSERT_VAL("1, no VM", fake__find(dir) == GUEST_FILES_NONE);
	TEST_ASSERT_VAL("no file", fake__write_text(sysctl, "2\n"));
	TEST_ASSERT_VAL("2, no VM", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("2, no VM, reads", guest_policy__read_refusal(getpid()));
	return TEST_OK;
}

static struct test_case tests__guest_memslots[] = {
	FAKE_GUEST_TEST("Lists of memslots", test_lists),
	FAKE_GUEST_TEST("Long lists", test_long_lists),
	FAKE_GUEST_TEST("Several VMs", test_vms),
	FAKE_GUEST_TEST("Sysctl and settings of VMMs", test_policy),
	{ .name = NULL, }
};

struct test_suite suite__guest_memslots = {
	.desc = "Memory of guests",
	.test_cases = tests__guest_memslots,
};
