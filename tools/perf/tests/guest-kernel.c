// SPDX-License-Identifier: GPL-2.0
/*
 * Test what perf finds of a guest's kernel in the guest's memory: symbols, ORC tables, build-id.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include <linux/compiler.h>
#include <linux/kernel.h>

#include "fake-guest.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "tests.h"

/* With each way to store addresses, and with modules as before Linux 6.4 and since. */
static int test_formats(const char *dir)
{
	for (unsigned int i = 0; i < 2 * NR_KALLSYMS; i++) {
		fake__make_kernel(&(const struct fake_kernel){ .kallsyms = i / 2, .old = i % 2 });
		TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL("names", fake__has_names(dir));
		TEST_ASSERT_VAL("tables", fake__has_tables(dir));
		TEST_ASSERT_VAL("modules' tables", fake__has_module_tables(dir));
	}
	for (enum fake_types types = IN_INFO; types <= IN_SIZE; types++) {
		fake__make_kernel(&(const struct fake_kernel){ .types = types });
		TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL("names of modules", fake__has_names(dir));
	}
	return TEST_OK;
}

static void long_release(void)
{
	fake__put_release(65);
}

/* Overwrite all tokens: none of them ends before the index of tokens. */
static void name_without_end(void)
{
	for (u64 gva = TOKEN_TABLE; gva < TOKEN_INDEX; gva++)
		fake__put(gva, "x", 1);
}

/* The string of token 'd', which is in the name "do_one". */
#define TOKEN_D		(TOKEN_TABLE + 2 * 'd')

/* Ways to break a guest so that nothing is found. */
static const struct fake_guest broken[] = {
	{ "a release that is a path", .info = { "OSRELEASE=" RELEASE, "OSRELEASE=6.1/../tes" } },
	{ "a release that is too long",	.change = long_release },
	{ "no page tables",		.info = { "swapper_pg_dir)=ffffffff9b001",
						  "swapper_pg_dir)=ffffffff9b002" } },
	{ "page tables without end",
	  .bytes = { WORD(ENTRY(PGD_GPA, 511), PGD_GPA | PRESENT) } },
	{ "page tables beyond RAM",
	  .bytes = { WORD(ENTRY(PMD_GPA, (SMALL >> 21) & 511), (RAM_SIZE << 2) | PRESENT) } },
	{ "no symbols",			.bytes = { HALF(NUM_SYMS, 0) } },
	{ "too many symbols",		.bytes = { HALF(NUM_SYMS, ~0U) } },
	{ "more symbols than names",	.bytes = { HALF(NUM_SYMS, 0x200000) } },
	{ "_stext elsewhere",		.info = { "SYMBOL(_stext)=ffffffff9b0",
						  "SYMBOL(_stext)=ffffffff9b1" } },
	{ "a control character",	.bytes = { BYTES(TOKEN_D, "\x1b") } },
	{ "a control character of 8 bits", .bytes = { BYTES(TOKEN_D, "\x9b") } },
	{ "a name without end",		.change = name_without_end },
	{ "a name that is too long",	.bytes = { BYTES(NAMES, "\xff\x7f") } },
	{ "no addresses of kallsyms",	.info = { "(kallsyms_names)", "(kallsyms-names)" } },
};

/* Return why perf finds no kernel; NULL if it finds one. */
static const char *why_none(void)
{
	const char *why_not;
	struct guest_kernel *kernel = guest_kernel__find(getpid(), NULL, &why_not);

	guest_kernel__delete(kernel);
	return kernel ? NULL : why_not;
}

#define TABLES_64	"SYMBOL(swapper_pg_dir)=ffffffff9b001000\nSYMBOL(_stext)=ffffffff9b000000\n"
#define TABLES_32	"SYMBOL(swapper_pg_dir)=00000000c1001000\nSYMBOL(_stext)=00000000c1000000\n"
#define STEXT_32	"SYMBOL(swapper_pg_dir)=ffffffff9b002000\nSYMBOL(_stext)=00000000c1000000\n"

static int test_32bit(const char *dir __maybe_unused)
{
	const char *why;

	fake__make(&(const struct fake_guest){ .info = { TABLES_64, TABLES_32 } });
	why = why_none();
	TEST_ASSERT_VAL("a kernel of 32 bits", why && strstr(why, "32 bits"));
	fake__make(&(const struct fake_guest){ .info = { TABLES_64, STEXT_32 } });
	why = why_none();
	TEST_ASSERT_VAL("half of one", why && strstr(why, "no Linux kernel"));
	/* A program of a good kernel's guest has copied it. */
	fake__make_usual();
	memcpy(strstr(fake__put_other_info(INFO_GPA - PAGE, '5', "9b003000"), "SYMBOL(swapper"),
	       TABLES_32, strlen(TABLES_32));
	TEST_ASSERT_VAL("one beside a kernel of 64 bits", !why_none());
	return TEST_OK;
}

static int test_broken(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		fake__make(&broken[i]);
		TEST_ASSERT_VAL(broken[i].name, fake__find(dir) == GUEST_FILES_NONE);
	}

	fake__make_usual();
	fake__put_release(64);
	TEST_ASSERT_VAL("a release of 64 characters", fake__find(dir) == GUEST_FILES_TABLES);
	return TEST_OK;
}

/**
 * struct old_tables - the kallsyms of a kernel that doesn't tell where they are
 * @name:	what is special about them
 * @nr:		number of symbols
 * @wide:	markers have 64 bits
 * @change:	which of these places to add @delta to
 * @delta:	zero if the tables are good
 */
static const struct old_tables {
	const char		*name;
	u32			nr;
	bool			wide;
	enum fake_old_place	change;
	int			delta;
} old_tables[] = {
	{ "a kernel of 5.10",		.nr = 1000 },
	{ "a kernel of 4.18",		.nr = 1000, .wide = true },
	{ "all markers full",		.nr = 4 * 256 },
	{ "two markers",		.nr = 257 },
	{ "a gap behind the markers",	.nr = 5 * 256 - 1 },
	{ "a gap behind wide markers",	.nr = 5 * 256 - 1, .wide = true },
	{ "fewer symbols than names",	.nr = 1000, .change = OLD_NR, .delta = -1 },
	{ "more symbols than names",	.nr = 1000, .change = OLD_NR, .delta = 1 },
	{ "a name of another length",	.nr = 1000, .change = OLD_LEN, .delta = 1 },
	{ "another marker",		.nr = 1000, .change = OLD_MARKER, .delta = 1 },
	{ "another marker, which is wide",
	  .nr = 1000, .wide = true, .change = OLD_MARKER, .delta = -1 },
	{ "a token that doesn't end",	.nr = 1000, .change = OLD_TOKEN, .delta = 'x' },
	{ "another index",		.nr = 1000, .change = OLD_INDEX, .delta = 1 },
};

static int test_old_tables(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(old_tables); i++) {
		const struct old_tables *old = &old_tables[i];
		u64 at;
		u32 word;

		fake__make_kernel(&(const struct fake_kernel){
			.kallsyms = FROM_BASE_BUT_PERCPU, .nr_symbols = old->nr,
			.wide = old->wide });
		at = fake_old_places[old->change];
		memcpy(&word, &fake_ram[fake__offset(at)], sizeof(word));
		fake__put_u32(at, word + old->delta);
		TEST_ASSERT_VAL(old->name, fake__find(dir) ==
				(old->delta ? GUEST_FILES_NONE : GUEST_FILES_TABLES));
		TEST_ASSERT_VAL(old->name, old->delta || fake__has_names(dir));
	}
	return TEST_OK;
}

static int test_tables(const char *dir)
{
	fake__make_usual();
	/* Give _etext the address of _text: the kernel has no code. */
	fake__put_u32(OFFSETS + 4 * sizeof(s32), 0);
	TEST_ASSERT_VAL("no code", fake__find(dir) == GUEST_FILES_NAMES);
	TEST_ASSERT_VAL("a file without tables", !fake__has_file(dir, VMLINUX));

	fake__make_kernel(&(const struct fake_kernel){ .no_header = true });
	TEST_ASSERT_VAL("no header", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("tables", fake__has_tables(dir));
	return TEST_OK;
}

static const struct fake_guest broken_ids[] = {
	{ "no build-id",		.info = { "BUILD-ID=", "BUILD-IT=" } },
	{ "a short build-id",
	  .info = { "BUILD-ID=" KERNEL_ID, "BUILD-ID=0123456789abcdef0123456789abcdef0123456\n" } },
	{ "a long build-id",		.info = { "test\nBUILD-ID=", "tes\nBUILD-ID=0" } },
	{ "a build-id of zeroes",
	  .info = { KERNEL_ID, "0000000000000000000000000000000000000000" } },
};

static int test_build_ids(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(broken_ids); i++) {
		fake__make(&broken_ids[i]);
		TEST_ASSERT_VAL(broken_ids[i].name, fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL(broken_ids[i].name, fake__has_build_id(dir, KERNEL_NOTES, NULL));
		TEST_ASSERT_VAL(broken_ids[i].name, fake__has_module_tables(dir));
	}
	return TEST_OK;
}

/*
 * Only the page on which the first module's structure begins lies above the hole.  All other pages
 * would also fit a layout of RAM without a hole.
 */
static int test_hole(const char *dir)
{
	fake__make_kernel(&(const struct fake_kernel){ .kallsyms = FROM_PLACE, .high = true });
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("names", fake__has_names(dir));
	return TEST_OK;
}

static int nr_resident(void)
{
	unsigned char *resident = calloc(1, RAM_SIZE / PAGE);
	int nr = 0;

	if (resident && !mincore(fake_ram, RAM_SIZE, resident)) {
		for (size_t i = 0; i < RAM_SIZE / PAGE; i++)
			nr += resident[i] & 1;
	}
	free(resident);
	return nr;
}

/* Pages that the guest never touched are not allocated when perf reads the guest. */
static int test_untouched_pages(const char *dir)
{
	int before;
	u64 page;

	TEST_ASSERT_VAL("no holes", !madvise(fake_ram, RAM_SIZE, MADV_REMOVE));
	fake__make_contents(&(const struct fake_kernel){});
	before = nr_resident();
	TEST_ASSERT_VAL("all is there", before && before < (int)(LOW_SIZE / PAGE / 2));
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("pages", nr_resident() == before);

	/* The page with the token index's end and the first symbol's address was never there. */
	page = fake__offset(OFFSETS) & ~(PAGE - 1);
	TEST_ASSERT_VAL("no hole", !madvise(&fake_ram[page], PAGE, MADV_REMOVE));
	before = nr_resident();
	TEST_ASSERT_VAL("missing", fake__find(dir) == GUEST_FILES_NONE);
	TEST_ASSERT_VAL("pages", nr_resident() == before);
	return TEST_OK;
}

/* An earlier kernel has left its VMCOREINFO, but not its page tables. */
static int test_earlier_kernel(const char *dir)
{
	fake__make_kernel(&(const struct fake_kernel){ .kallsyms = FROM_PLACE });
	fake__put_other_info(INFO_GPA - 8 * PAGE, '7', "9b0ff000");
	TEST_ASSERT_VAL("found", guest_folder__write(getpid(), dir, false) == GUEST_FILES_NAMES);
	TEST_ASSERT_VAL("names", fake__has_names(dir));
	TEST_ASSERT_VAL("tables that nobody wants", !fake__has_file(dir, "boot/modules/first"));
	return TEST_OK;
}

/* There are more pages with VMCOREINFO than the number of kernels that perf keeps. */
static int test_many_copies(const char *dir)
{
	fake__make_usual();
	for (unsigned int i = 1; i < 20; i++) {
		char *copy = fake__put_other_info(INFO_GPA + i * 4 * PAGE, '6', "9b001000");

		/* Half of them are those of other kernels, whose code is elsewhere. */
		if (i % 2)
			sprintf(strstr(copy, "SYMBOL(_stext)="), "SYMBOL(_stext)=%016x\n", i);
	}
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("names", fake__has_names(dir));

	/* Any program of the guest can write pages that begin like VMCOREINFO. */
	fake__make_usual();
	for (unsigned int i = 0; i < 3000; i++) {
		strcpy((char *)&fake_ram[LOW_SIZE + i * PAGE], "OSRELEASE=6.1.0\n");
		/* Some are in front of the real page as well, where there is room for them. */
		if (i < 500)
			strcpy((char *)&fake_ram[INFO_GPA - (i + 4) * PAGE], "OSRELEASE=6.1.0\n");
	}
	TEST_ASSERT_VAL("found among fakes", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("names among fakes", fake__has_names(dir));
	return TEST_OK;
}

/* Addresses of the second kernel's page tables and jiffies. */
#define OTHER_PGD	(KERNEL_GPA + 3 * PAGE)
#define OTHER_PUD	(PTE_GPA + PAGE)
#define OTHER_PMD	(OTHER_PUD + PAGE)
#define OTHER_PTE	(OTHER_PMD + PAGE)
#define OTHER_JIFFIES	(OTHER_PTE + PAGE)

static void *tick(void *arg)
{
	u64 *jiffies = (u64 *)&fake_ram[OTHER_JIFFIES];
	const bool *stop = arg;

	while (!READ_ONCE(*stop)) {
		usleep(1000);
		WRITE_ONCE(*jiffies, *jiffies + 1);
	}
	return NULL;
}

/* As much as reading a large kernel costs, which is more than a look may cost. */
#define KERNEL_COST	(512UL << 20)

/*
 * Return true if a kernel is found whose memory can be read as far as a large kernel needs it; to
 * find out which of several kernels runs, perf takes short looks.
 */
static bool can_be_read(void)
{
	const char *why_not;
	struct guest_kernel *kernel = guest_kernel__find(getpid(), NULL, &why_not);
	bool good = kernel && guest_memory__spend(kernel->mem, KERNEL_COST);

	guest_kernel__delete(kernel);
	return good;
}

/* A kernel that ran before a reset is still whole in memory, but has no ticks. */
static int test_reset(const char *dir)
{
	bool stop = false, readable;
	pthread_t thread;
	int err;

	fake__make_usual();
	fake__put_other_info(INFO_GPA + 8 * PAGE, '7', "9b003000");
	fake__put_u64(ENTRY(OTHER_PGD, 511), OTHER_PUD | PRESENT);
	fake__put_u64(ENTRY(OTHER_PUD, (KERNEL >> 30) & 511), OTHER_PMD | PRESENT);
	memcpy(&fake_ram[OTHER_PMD], &fake_ram[PMD_GPA], PAGE);
	fake__put_u64(ENTRY(OTHER_PMD, (SMALL >> 21) & 511), OTHER_PTE | PRESENT);
	memcpy(&fake_ram[OTHER_PTE], &fake_ram[PTE_GPA], PAGE);
	fake__put_u64(ENTRY(OTHER_PTE, (JIFFIES - SMALL) / PAGE),
		      OTHER_JIFFIES | NO_EXEC | PRESENT);

	/* If both kernels stand still, the first one is used. */
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("the first", fake__has_names(dir));
	TEST_ASSERT_VAL("no thread", !pthread_create(&thread, NULL, tick, &stop));
	err = fake__find(dir) != GUEST_FILES_TABLES ||
	      !fake__has_text(dir, "proc/version", "Linux version 7.1.0-test (by its memory)\n");
	readable = can_be_read();
	WRITE_ONCE(stop, true);
	pthread_join(thread, NULL);
	TEST_ASSERT_VAL("the one that runs", !err);
	TEST_ASSERT_VAL("a budget for all of it", readable);
	return TEST_OK;
}

static const struct fake_guest broken_arm64[] = {
	{ "pages of 8 KiB",		.info = { "PAGESIZE=4096", "PAGESIZE=8192" } },
	{ "addresses of 53 bits",	.info = { "T1SZ)=0x10", "T1SZ)=0x0b" } },
	/* VMCOREINFO has a wrong offset: the page tables are elsewhere. */
	{ "another offset",		.info = { "=0xffffffff5ae0", "=0xffffffff5ad0" } },
	{ "no table",
	  .bytes = { WORD(ENTRY(ARM64_TABLES, (KERNEL >> 30) & 511), ARM64_TABLES + 65536) } },
	/* A block of 1 GiB maps the page tables to other addresses. */
	{ "a block in place of a table",
	  .bytes = { WORD(ENTRY(ARM64_TABLES, (KERNEL >> 30) & 511), (1UL << 30) | ARM64_BLOCK) } },
};

/* arm64's guests need no ORC tables. */
static int test_arm64(const char *dir)
{
	for (const struct fake_arm64 *guest = fake_arm64_guests; guest->name; guest++) {
		fake__make_arm64(guest);
		TEST_ASSERT_VAL(guest->name, fake__find(dir) == GUEST_FILES_NAMES);
		TEST_ASSERT_VAL("names", fake__has_names(dir));
		TEST_ASSERT_VAL("no tables", !fake__has_file(dir, VMLINUX));
	}
	for (size_t i = 0; i < ARRAY_SIZE(broken_arm64); i++) {
		fake__make_arm64(fake_arm64_guests);
		fake__change(&broken_arm64[i]);
		TEST_ASSERT_VAL(broken_arm64[i].name, fake__find(dir) == GUEST_FILES_NONE);
	}
	return TEST_OK;
}

static struct test_case tests__guest_kernel[] = {
	FAKE_GUEST_TEST("Formats of kernels", test_formats),
	FAKE_GUEST_TEST("Broken kernels", test_broken),
	FAKE_GUEST_TEST("Kernels of 32 bits", test_32bit),
	FAKE_GUEST_TEST("Kernels before 6.0", test_old_tables),
	FAKE_GUEST_TEST("ORC tables", test_tables),
	FAKE_GUEST_TEST("Broken build-ids", test_build_ids),
	FAKE_GUEST_TEST("RAM with a hole", test_hole),
	FAKE_GUEST_TEST("Pages that were never touched", test_untouched_pages),
	FAKE_GUEST_TEST("Page of an earlier kernel", test_earlier_kernel),
	FAKE_GUEST_TEST("Many such pages, and fakes", test_many_copies),
	FAKE_GUEST_TEST("Whole kernel from before a reset", test_reset),
	FAKE_GUEST_TEST("Kernels of arm64", test_arm64),
	{ .name = NULL, }
};

struct test_suite suite__guest_kernel = {
	.desc = "Kernels of guests",
	.test_cases = tests__guest_kernel,
};
