// SPDX-License-Identifier: GPL-2.0
/*
 * Test what perf finds of a guest's modules in the guest's memory.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <elf.h>

#include <linux/kernel.h>
#include <linux/string.h>

#include "fake-guest.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-modules.h"
#include "tests.h"
#include "util.h"

static const struct fake_guest broken[] = {
	{ "a list without end",		.bytes = { WORD(MODULE(1) + M_LIST, MODULE(0) + M_LIST) } },
	{ "a list into nothing",	.bytes = { WORD(MODULE(1) + M_LIST, 8) } },
	{ "an escape sequence as name",	.bytes = { BYTES(MODULE(1) + M_NAME, "\x1b[2J") } },
	{ "a space in a name",		.bytes = { BYTES(MODULE(1) + M_NAME, "a b\0") } },
	{ "a path as name",		.bytes = { BYTES(MODULE(1) + M_NAME, "a/b\0") } },
	{ "no BTF",			.bytes = { HALF(BTF, 0) } },
	{ "BTF without end",		.kernel.endless = true },
	{ "too many symbols of a module", .bytes = { HALF(MODULE(1) + M_CORE_KALLSYMS + 8, ~0U) } },
	{ "an escape sequence as symbol", .bytes = { BYTES(STRINGS + 16, "\x1b") } },
	{ "an escape sequence as type",	.bytes = { BYTES(TYPES, "U\x1b") } },
	{ "a control character of 8 bits", .bytes = { BYTES(MODULE(1) + M_NAME, "\x9bK2\0") } },
};

/*
 * Broken modules do not keep the kernel's symbols from being written, and add no unsafe characters.
 */
static int test_broken(const char *dir)
{
	char expected[4096], *kallsyms;
	bool good;
	size_t size;

	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		fake__make(&broken[i]);
		TEST_ASSERT_VAL(broken[i].name,
				guest_folder__write(getpid(), dir, false) == GUEST_FILES_NAMES);
		fake__print_kallsyms(expected, sizeof(expected), false);
		kallsyms = fake__read_file(dir, "proc/kallsyms", &size);
		good = kallsyms && !strncmp(kallsyms, expected, strlen(expected)) &&
		       !strpbrk(kallsyms, "\x1b\x9b") && !strstr(kallsyms, "[a b]");
		free(kallsyms);
		TEST_ASSERT_VAL(broken[i].name, good);
	}
	return TEST_OK;
}

/* The entry for the build-id of the first module. */
#define ID_ENTRY	(MODULE(0) + 0x600 + N_NOTE(false) + NOTE_STEP)

static const struct fake_guest broken_ids[] = {
	{ "no notes",			.bytes = { WORD(MODULE(0) + M_NOTES, 0) } },
	{ "a note that is too large",	.bytes = { WORD(ID_ENTRY + NOTE_SIZE, 40) } },
	{ "a note that is too small",	.bytes = { WORD(ID_ENTRY + NOTE_SIZE, 32) } },
	{ "an empty note",		.bytes = { WORD(ID_ENTRY + NOTE_SIZE, 0) } },
	{ "a note behind the module",	.bytes = { WORD(ID_ENTRY + NOTE_ADDR, MODULE_NOTE + 4),
						   BYTES(MODULE_NOTE + 4, NOTE_CONTENTS) } },
	{ "a note of another kind",	.bytes = { BYTES(MODULE_NOTE + 8, "\4") } },
	{ "a note by another",		.bytes = { BYTES(MODULE_NOTE + 12, "GNX") } },
	{ "a note behind many others",
	  .bytes = { WORD(MODULE(0) + M_NOTES, ID_ENTRY - 9 * NOTE_STEP - N_NOTE(false)) } },
};

static int test_build_ids(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(broken_ids); i++) {
		fake__make(&broken_ids[i]);
		TEST_ASSERT_VAL(broken_ids[i].name, fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL(broken_ids[i].name,
				fake__has_build_id(dir, KERNEL_NOTES, KERNEL_ID));
		TEST_ASSERT_VAL(broken_ids[i].name, fake__has_build_id(dir, FIRST_NOTES, NULL));
	}
	return TEST_OK;
}

/* Link a third module behind the others: a copy of the second one with another name or address. */
static void add_module(const char *name, u64 base, u32 state)
{
	for (unsigned int i = 0; i < 0x500; i++)
		fake_ram[fake__offset(MODULE(2) + i)] = fake_ram[fake__offset(MODULE(1) + i)];
	fake__put_u64(MODULE(1) + M_LIST, MODULE(2) + M_LIST);
	fake__put_u64(MODULE(2) + M_KALLSYMS, MODULE(2) + M_CORE_KALLSYMS);
	fake__put(MODULE(2) + M_NAME, name, strlen(name) + 1);
	fake__put_u64(MODULE(2) + M_MEM, base);
	fake__put_u32(MODULE(2), state);
}

static const struct {
	const char	*name;
	const char	*module;
	u64		base;
	u32		state;
	bool		is_new;
	bool		starts;		/* its init runs at the first look that finds it */
} later_modules[] = {
	{ "a module",			"third", 0xffffffffc0020000, 0, true, false },
	{ "one right behind another",	"third", 0xffffffffc0012000, 0, true, false },
	{ "one below the others",	"third", 0xffffffffbff00000, 0, true, false },
	{ "one right below another",	"third", 0xffffffffc000e000, 0, true, false },
	{ "one where another's data could be", "third", MODULE_CODE + 0x3000, 0, true, false },
	{ "one whose start is not over", "third", 0xffffffffc0020000, 0, true, true },
	{ "one that is being loaded",	"third", 0xffffffffc0020000, 1, false, false },
	{ "one that lies across another", "third", 0xffffffffc000e001, 0, false, false },
	{ "one that was there before",	"second", 0xffffffffc0020000, 0, false, false },
	{ "one where another one was",	"third", 0xffffffffc0011fff, 0, false, false },
};

/* Modules that are loaded after the first look. */
static int test_later_modules(const char *dir)
{
	char path[PATH_MAX], expected[256];

	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	mkdir(path, 0700);
	for (size_t i = 0; i < ARRAY_SIZE(later_modules); i++) {
		struct guest_kernel *kernel;
		const char *why_not;
		FILE *list, *kallsyms;
		bool good;

		fake__make_usual();
		kernel = guest_kernel__find(getpid(), NULL, &why_not);
		TEST_ASSERT_VAL("found", kernel);
		snprintf(path, sizeof(path), "%s/%d/modules", dir, getpid());
		list = fopen(path, "we");
		snprintf(path, sizeof(path), "%s/%d/kallsyms", dir, getpid());
		kallsyms = fopen(path, "we");
		good = list && kallsyms &&
		       !guest_modules__write(kernel, list, kallsyms, NULL, false);
		guest_kernel__free_symbols(kernel);
		if (good) {
			rewind(list);
			rewind(kallsyms);
		}
		good = good && !ftruncate(fileno(list), 0) && !ftruncate(fileno(kallsyms), 0);
		add_module(later_modules[i].module, later_modules[i].base, later_modules[i].state);
		/* It has other symbols during its init. */
		if (later_modules[i].starts)
			fake__put_u64(MODULE(2) + M_KALLSYMS, MODULE(0) + M_CORE_KALLSYMS);
		for (unsigned int j = 0; j < 2; j++) {
			guest_memory__refresh(kernel->mem);
			good = good && !guest_modules__write(kernel, list, kallsyms, NULL, false);
			fake__put_u64(MODULE(2) + M_KALLSYMS, MODULE(2) + M_CORE_KALLSYMS);
		}
		guest_kernel__delete(kernel);
		if (list)
			fclose(list);
		if (kallsyms)
			fclose(kallsyms);
		*expected = 0;
		if (later_modules[i].is_new)
			scnprintf(expected, sizeof(expected),
				  "third 8192 0 - Live 0x%016" PRIx64 "\n", later_modules[i].base);
		TEST_ASSERT_VAL(later_modules[i].name, good);
		TEST_ASSERT_VAL(later_modules[i].name, fake__has_text(dir, "modules", expected));
		TEST_ASSERT_VAL(later_modules[i].name,
				fake__has_text(dir, "kallsyms", later_modules[i].is_new ?
					       "ffffffffc0010010 t second_f\t[third]\n" : ""));
	}
	return TEST_OK;
}

/* Code of inits: the third module has it where the fourth one has it later. */
#define THIRD		MODULE(2)
#define FOURTH		(MODULE(2) + 0x1000)
#define INIT		MODULE_CODE
#define INIT_END	(INIT + 0x1000)

/* Put a module in front of the others, with symbols in its core, elsewhere, and in its init. */
static void load_module(u64 module, const char *name, bool old)
{
	const Elf64_Sym symbols[] = {
		{ .st_name = 8, .st_shndx = 1, .st_value = 0xffffffffc0020010 },
		{ .st_name = 8, .st_shndx = 1, .st_value = INIT - 0x20 },
		{ .st_name = 16, .st_shndx = 1, .st_value = INIT + 0x20 },
	};

	for (unsigned int i = 0; i < 0x500; i++)
		fake_ram[fake__offset(module + i)] = fake_ram[fake__offset(MODULE(1) + i)];
	fake__put(module + M_NAME, name, strlen(name) + 1);
	fake__put_u32(module, 1);
	fake__put_u64(module + M_MEM, 0xffffffffc0020000);
	fake__put_u64(MODULES, module + M_LIST);
	fake__put_u64(module + M_LIST, MODULE(0) + M_LIST);
	fake__put_u64(module + M_INIT, INIT);
	fake__put_u32(module + M_INIT + (old ? 12 : 8), INIT_END - INIT);
	fake__put_u32(module + M_ARCH, NR_ORCS);
	fake__put_u64(module + M_ARCH + 8, MODULE_IPS);
	fake__put_u64(module + M_ARCH + 16, MODULE_ORC);
	/* The symbols that it has during its init. */
	fake__put_u64(module + M_KALLSYMS, module + 0x480);
	fake__put_u64(module + 0x480, module + 0x700);
	fake__put_u32(module + 0x488, ARRAY_SIZE(symbols));
	fake__put_u64(module + 0x490, STRINGS);
	fake__put_u64(module + 0x498, module + 0x780);
	fake__put(module + 0x700, symbols, sizeof(symbols));
	fake__put(module + 0x780, "ttt", 3);
}

static void end_init(u64 module)
{
	fake__put_u32(module, 0);
	fake__put_u64(module + M_KALLSYMS, module + M_CORE_KALLSYMS);
}

/* Look at inits at @time; return true if that was needed. */
static bool look_at_inits(struct guest_kernel *kernel, FILE *inits, const char *top, u64 time)
{
	bool needed;

	guest_memory__refresh(kernel->mem);
	needed = guest_modules__are_loaded(kernel, time);
	if (needed)
		guest_modules__write_inits(kernel, inits, top, true, time);
	fflush(inits);
	return needed;
}

static int check_inits(const char *dir, bool old)
{
	char top[64], path[128], expected[1024];
	struct guest_kernel *kernel;
	FILE *inits, *nothing;
	const char *why_not;

	fake__make_kernel(&(struct fake_kernel){ .old = old });
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	TEST_ASSERT_VAL("found", kernel);
	snprintf(top, sizeof(top), "%s/%d", dir, getpid());
	snprintf(path, sizeof(path), "%s/boot/modules", top);
	mkdir_p(path, 0700);
	snprintf(path, sizeof(path), "%s/inits", top);
	inits = fopen(path, "we");
	nothing = fopen("/dev/null", "we");
	TEST_ASSERT_VAL("no files", inits && nothing);
	TEST_ASSERT_VAL("modules", !guest_modules__write(kernel, nothing, nothing, NULL, false));

	look_at_inits(kernel, inits, top, 10);
	TEST_ASSERT_VAL("no look is needed", !look_at_inits(kernel, inits, top, 20));
	load_module(THIRD, "third", old);
	TEST_ASSERT_VAL("it begins", look_at_inits(kernel, inits, top, 30));
	/* It becomes live before it drops the symbols of its init. */
	fake__put_u32(THIRD, 0);
	TEST_ASSERT_VAL("it goes on", look_at_inits(kernel, inits, top, 40));
	end_init(THIRD);
	TEST_ASSERT_VAL("it ends", look_at_inits(kernel, inits, top, 50));
	TEST_ASSERT_VAL("all is over", !look_at_inits(kernel, inits, top, 60));
	fake__put_u64(MODULES, MODULE(0) + M_LIST);
	look_at_inits(kernel, inits, top, 65);
	load_module(THIRD, "th ird", old);
	look_at_inits(kernel, inits, top, 70);
	load_module(THIRD, "third", old);
	look_at_inits(kernel, inits, top, 80);
	/* Other modules' inits take the place of one whose end nobody has seen. */
	load_module(FOURTH, "fourth", old);
	look_at_inits(kernel, inits, top, 90);
	load_module(FOURTH, "fifth", old);
	look_at_inits(kernel, inits, top, 91);
	/* It fails. */
	fake__put_u32(FOURTH, 2);
	look_at_inits(kernel, inits, top, 100);
	guest_kernel__delete(kernel);
	fclose(inits);
	fclose(nothing);

	scnprintf(expected, sizeof(expected),
		  "20 %1$lx %2$lx third.init\n%3$016lx t second_f\t[third.init]\n50 %1$lx\n"
		  "80 %1$lx %2$lx third.init\n%3$016lx t second_f\t[third.init]\n80 %1$lx\n"
		  "90 %1$lx %2$lx fourth.init\n%3$016lx t second_f\t[fourth.init]\n90 %1$lx\n"
		  "91 %1$lx %2$lx fifth.init\n%3$016lx t second_f\t[fifth.init]\n100 %1$lx\n",
		  INIT, INIT_END, INIT + 0x20);
	TEST_ASSERT_VAL("inits", fake__has_text(dir, "inits", expected));
	snprintf(path, sizeof(path), "%s/boot/modules/third.init", top);
	TEST_ASSERT_VAL("tables", !access(path, R_OK));
	return TEST_OK;
}

/*
 * perf writes at most 16 modules that run their init at a time, and at most 2048 in all, whatever
 * the guest's list says.
 */
#define NR_MANY		20
#define MAX_AT_ONCE	16
#define MAX_EVER	2048
#define MANY(i)		(MODULE(2) + (i) * 0x100)

static int check_many_inits(void)
{
	unsigned int nr_begun = 0, nr_ended = 0, nr_all = 0;
	struct guest_kernel *kernel;
	const char *why_not;
	char *text = NULL, *line;
	FILE *nothing, *inits;
	size_t size;

	fake__make_usual();
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	nothing = fopen("/dev/null", "we");
	inits = open_memstream(&text, &size);
	TEST_ASSERT_VAL("no files", kernel && nothing && inits);
	TEST_ASSERT_VAL("modules", !guest_modules__write(kernel, nothing, nothing, NULL, false));
	fake__put_u64(MODULES, MANY(0) + M_LIST);
	for (unsigned int i = 0; i < NR_MANY; i++) {
		fake__put_u32(MANY(i), 1);
		fake__put_u64(MANY(i) + M_LIST, i + 1 < NR_MANY ? MANY(i + 1) + M_LIST : MODULES);
		fake__put(MANY(i) + M_NAME, "many", sizeof("many"));
		fake__put_u64(MANY(i) + M_INIT, INIT + i * 0x100);
		fake__put_u32(MANY(i) + M_INIT + 8, 0x100);
	}
	look_at_inits(kernel, inits, NULL, 10);
	fake__put_u64(MODULES, MODULES);
	look_at_inits(kernel, inits, NULL, 20);
	look_at_inits(kernel, inits, NULL, 25);
	for (unsigned int i = 0; i < 2 * MAX_EVER / MAX_AT_ONCE; i++) {
		fake__put_u64(MODULES, MANY(0) + M_LIST);
		look_at_inits(kernel, inits, NULL, 30);
		fake__put_u64(MODULES, MODULES);
		look_at_inits(kernel, inits, NULL, 40);
	}
	fclose(inits);
	for (line = text; line && *line; line = strchr(line, '\n') + 1) {
		bool begins = strstr(line, "many.init\n") ==
			      strchr(line, '\n') - strlen("many.init");

		/* When they ended is not known: another module may have been there since. */
		nr_begun += begins && strstarts(line, "10 ");
		nr_ended += !begins && strstarts(line, "10 ");
		nr_all += begins;
	}
	free(text);
	fclose(nothing);
	guest_kernel__delete(kernel);
	TEST_ASSERT_VAL("all that begin", nr_begun == MAX_AT_ONCE);
	TEST_ASSERT_VAL("all that end", nr_ended == MAX_AT_ONCE);
	TEST_ASSERT_VAL("all ever", nr_all == MAX_EVER);
	return TEST_OK;
}

/* The code that modules drop after their init. */
static int test_inits(const char *dir)
{
	TEST_ASSERT_VAL("since Linux 6.4", check_inits(dir, false) == TEST_OK);
	TEST_ASSERT_VAL("before that", check_inits(dir, true) == TEST_OK);
	TEST_ASSERT_VAL("many at once", check_many_inits() == TEST_OK);
	return TEST_OK;
}

static struct test_case tests__guest_modules[] = {
	FAKE_GUEST_BTF_TEST("Broken modules", test_broken),
	FAKE_GUEST_BTF_TEST("Broken build-ids of modules", test_build_ids),
	FAKE_GUEST_BTF_TEST("Modules that are loaded later", test_later_modules),
	FAKE_GUEST_BTF_TEST("Inits of modules", test_inits),
	{ .name = NULL, }
};

struct test_suite suite__guest_modules = {
	.desc = "Modules of guests",
	.test_cases = tests__guest_modules,
};
