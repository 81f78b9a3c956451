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

#include <linux/kernel.h>

#include "fake-guest.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-modules.h"
#include "tests.h"

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

static struct test_case tests__guest_modules[] = {
	FAKE_GUEST_BTF_TEST("Broken modules", test_broken),
	FAKE_GUEST_BTF_TEST("Broken build-ids of modules", test_build_ids),
	FAKE_GUEST_BTF_TEST("Modules that are loaded later", test_later_modules),
	{ .name = NULL, }
};

struct test_suite suite__guest_modules = {
	.desc = "Modules of guests",
	.test_cases = tests__guest_modules,
};
