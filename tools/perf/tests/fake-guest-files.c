// SPDX-License-Identifier: GPL-2.0
/*
 * Run perf on a guest that fake-guest.c has made, and compare the files that perf writes for it.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <elf.h>
#include <linux/kernel.h>

#include "build-id.h"
#include "fake-guest.h"
#include "guest-memory.h"
#include "guest-memslots.h"
#include "symbol.h"
#include "util.h"

#ifdef HAVE_LIBBPF_SUPPORT
#define HAS_BTF		true
#else
#define HAS_BTF		false
#endif

/* Run a subtest with empty RAM and an empty directory, and without the host's own sysctl. */
int fake__run_test(struct test_suite *test, int subtest)
{
	int (*run)(const char *dir) = test->test_cases[max(subtest, 0)].priv;
	char dir[] = "/tmp/perf-test-guest-XXXXXX";
	int err;

	/* Hosts of x86-64, and of arm64 with pages of 4 KiB, test guests of both architectures. */
	if (!guest_memory__is_supported())
		return TEST_SKIP;

	fake_ram = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	TEST_ASSERT_VAL("no memory", fake_ram != MAP_FAILED);
	TEST_ASSERT_VAL("no directory", mkdtemp(dir));
	guest_paths.sysctl = "/nowhere";
	err = run(dir);
	guest_paths.sysctl = NULL;
	guest_paths.proc = "/proc";
	rm_rf(dir);
	munmap(fake_ram, RAM_SIZE);
	return err;
}

int fake__run_btf_test(struct test_suite *test, int subtest)
{
	return HAS_BTF ? fake__run_test(test, subtest) : TEST_SKIP;
}

/* Write all files, as perf kvm record does if it records callchains. */
enum guest_files fake__find(const char *dir)
{
	return guest_folder__write(getpid(), dir, true);
}

/* Write a file with this text; remove it if @text is NULL. */
bool fake__write_text(const char *path, const char *text)
{
	FILE *file;

	unlink(path);
	file = text ? fopen(path, "we") : NULL;
	return !text || (file && fputs(text, file) >= 0 && !fclose(file));
}

/* Return the contents of file @name in the guest's directory; the caller must free them. */
char *fake__read_file(const char *dir, const char *name, size_t *size)
{
	char path[PATH_MAX], *text = NULL;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%d/%s", dir, getpid(), name);
	file = fopen(path, "re");
	*size = 0;
	if (file) {
		text = calloc(1, 1 << 20);
		*size = text ? fread(text, 1, (1 << 20) - 1, file) : 0;
		fclose(file);
	}
	return text;
}

bool fake__has_file(const char *dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%d/%s", dir, getpid(), name);
	return !access(path, F_OK);
}

bool fake__has_text(const char *dir, const char *name, const char *expected)
{
	size_t size;
	char *text = fake__read_file(dir, name, &size);
	bool same = text && !strcmp(text, expected);

	if (!same)
		pr_debug("%s:\n%sand not\n%s", name, text ?: "", expected);
	free(text);
	return same;
}

/* Return true if the file has the text that is usual, with @guest->to in place of @guest->from. */
bool fake__has_changed(const char *dir, const char *name, const char *usual,
		       const struct fake_guest *guest)
{
	const char *at = guest->from ? strstr(usual, guest->from) : NULL;
	char expected[1024] = "";

	if (at)
		scnprintf(expected, sizeof(expected), "%.*s%s%s", (int)(at - usual), usual,
			  guest->to, at + strlen(guest->from));
	return fake__has_text(dir, name, expected);
}

/* Check the names of the kernel that was made last, and of its modules. */
bool fake__has_names(const char *dir)
{
	static char expected[1 << 16];

	fake__print_kallsyms(expected, sizeof(expected), HAS_BTF);
	return fake__has_text(dir, "proc/kallsyms", expected) &&
	       (!HAS_BTF ||
		fake__has_text(dir, "proc/modules", fake_kernel.old ?
			       "first 12288 0 - Live 0xffffffff9b250000\n"
			       "second 8192 0 - Live 0xffffffffc0010000\n" :
			       "first 16384 0 - Live 0xffffffff9b250000\n"
			       "second 8192 0 - Live 0xffffffffc0010000\n")) &&
	       fake__has_text(dir, "proc/version", "Linux version " RELEASE " (by its memory)\n");
}

/* A section that an ELF file must have, other than the null section and the section names. */
struct expected_section {
	const char	*name;
	u64		start;
	u64		end;
};

/* Return true if the section has what the guest has there. */
static bool has_section(const char *file, const Elf64_Shdr *shdr,
			const struct expected_section *expected)
{
	if (shdr->sh_addr != expected->start || shdr->sh_size != expected->end - expected->start)
		return false;
	for (u64 i = 0; i < shdr->sh_size; i++) {
		if ((u8)file[shdr->sh_offset + i] != fake_ram[fake__offset(expected->start + i)])
			return false;
	}
	return true;
}

/* Return true if the file has these sections, up to one without a name. */
static bool has_sections(const char *dir, const char *name,
			 const struct expected_section *expected)
{
	size_t size;
	char *file = fake__read_file(dir, name, &size);
	const Elf64_Ehdr *ehdr = (void *)file;
	bool good = false;

	if (file && size > sizeof(*ehdr) && !memcmp(ehdr->e_ident, ELFMAG, SELFMAG)) {
		const Elf64_Shdr *shdr = (void *)&file[ehdr->e_shoff];
		const Elf64_Shdr *names = &shdr[ehdr->e_shnum - 1];

		good = ehdr->e_shstrndx == ehdr->e_shnum - 1;
		for (shdr++; good && expected->name; shdr++, expected++)
			good = shdr < names && has_section(file, shdr, expected) &&
			       shdr->sh_name + strlen(expected->name) < names->sh_size &&
			       !strcmp(&file[names->sh_offset + shdr->sh_name], expected->name);
		good = good && shdr == names;
	}
	free(file);
	return good;
}

/*
 * Return true if the file, which has the format of sysfs, has the expected build-id.  If @expected
 * is NULL, return true if there is no such file.
 */
bool fake__has_build_id(const char *dir, const char *name, const char *expected)
{
	char path[PATH_MAX], found[SBUILD_ID_SIZE] = "";
	struct build_id bid = {};

	if (!expected)
		return !fake__has_file(dir, name);

	scnprintf(path, sizeof(path), "%s/%d/%s", dir, getpid(), name);
	return !sysfs__read_build_id(path, &bid) &&
	       build_id__snprintf(&bid, found, sizeof(found)) && !strcmp(found, expected);
}

/* Expect no section for what the guest lacks: boot code and, in older kernels, the ORC header. */
bool fake__has_tables(const char *dir)
{
	static const struct expected_section with_header[] = {
		{ ".text", KERNEL, KERNEL + 0x2000 }, { ".orc_header", ORC_HEADER, ORC_IPS },
		{ ".orc_unwind_ip", ORC_IPS, ORC }, { ".orc_unwind", ORC, ORC_END }, {}
	};
	static const struct expected_section without[] = {
		{ ".text", KERNEL, KERNEL + 0x2000 }, { ".orc_unwind_ip", ORC_IPS, ORC },
		{ ".orc_unwind", ORC, ORC_END }, {}
	};

	return has_sections(dir, VMLINUX, fake_kernel.no_header ? without : with_header) &&
	       fake__has_build_id(dir, KERNEL_NOTES, KERNEL_ID);
}

bool fake__has_module_tables(const char *dir)
{
	const struct expected_section expected[] = {
		{ ".text", MODULE_CODE, MODULE_CODE + (fake_kernel.old ? CODE_SIZE : MODULE_SIZE) },
		{ ".orc_unwind_ip", MODULE_IPS, MODULE_IPS + NR_ORCS * 4 },
		{ ".orc_unwind", MODULE_ORC, MODULE_ORC + NR_ORCS * 6 }, {}
	};

	return !HAS_BTF ||
	       (!fake__has_file(dir, "boot/modules/second") &&
		has_sections(dir, "boot/modules/first", expected) &&
		fake__has_build_id(dir, FIRST_NOTES, MODULE_ID) &&
		fake__has_build_id(dir, "sys/module/second/notes/" ID_NOTE, NULL));
}
