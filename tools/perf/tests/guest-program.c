// SPDX-License-Identifier: GPL-2.0
/*
 * Test what perf writes of a guest's program from the guest's page cache: names and rules that are
 * wholly there, and no others.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <elf.h>
#include <linux/bits.h>
#include <linux/kernel.h>
#include <perf/event.h>

#include "build-id.h"
#include "dso.h"
#include "event.h"
#include "fake-guest.h"
#include "guest-kernel.h"
#include "guest-reads.h"
#include "guest-regs.h"
#include "guest-task-writer.h"
#include "guest-user.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "sample.h"
#include "symbol.h"
#include "tests.h"
#include "thread.h"
#include "util.h"

#define PROGRAM_ID	"0102030405060708090a0b0c0d0e0f1011121314"
#define BUILD_ID_FILE	"programs/" PROGRAM_ID
#define VDSO_FILE	"programs/4202030405060708090a0b0c0d0e0f1011121314"

/* All that perf writes: functions by their order in the table, and rules by address. */
static const char all[] =
	"15100+20 first\n"
	"15200+30 second\n"
	"15500+10 esc?[2J\n"
	"15020+10 imported@plt\n"
	"rule 15100+20\n"
	"rule 15200+30\n"
	"rule 15500+10\n";

/* A field of the program header of the code. */
#define CODE_PHDR(field)							\
	(PROGRAM_GPA + sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr) +		\
	 offsetof(Elf64_Phdr, field))
#define NO_PAGE(page)	WORD(PROGRAM_SLOT(page), 0)
#define THE_SAME	.from = "", .to = ""
#define LEAVES(text)	.from = all, .to = text
#define NO_SYMBOLS	LEAVES("rule 15100+20\nrule 15200+30\nrule 15500+10\n")
#define NO_SECOND	.from = "15200+30 second\n", .to = ""
#define NO_RULES	.from = "rule 15100+20\nrule 15200+30\nrule 15500+10\n", .to = ""
#define NO_RULE_1	.from = "rule 15100+20\n", .to = ""

/* The instructions of the first rule. */
#define INSTRUCTIONS	PROGRAM_RAM(RULES_1, RULE_1 + 17)

/* The tests change the program after fake__make_program(). */
static const struct fake_guest programs[] = {
	{ "all pages",			THE_SAME },
	{ "no page with hashes",	.bytes = { NO_PAGE(HASHES) }, NO_SYMBOLS },
	{ "no dynamic section",		.bytes = { NO_PAGE(DYNAMIC) }, NO_SYMBOLS },
	{ "no code",			.bytes = { NO_PAGE(CODE) },
	  .from = "15020+10 imported@plt\n", .to = "" },
	{ "no page with the names",	.bytes = { NO_PAGE(NAMES_1) }, NO_SYMBOLS },
	{ "half a name",		.bytes = { NO_PAGE(NAMES_2) }, NO_SECOND },
	{ "no table",			.bytes = { NO_PAGE(TABLE) }, NO_RULES },
	{ "nothing in common",		.bytes = { NO_PAGE(RULES_1) }, NO_RULES },
	{ "half a rule",		.bytes = { NO_PAGE(RULES_2) },
	  .from = "rule 15200+30\nrule 15500+10\n", .to = "" },

	{ "a large folio",
	  .bytes = { WORD(PROGRAM_SLOT(NAMES_2), NAMES_1 << 2 | 2),
		     WORD(PROGRAM_FOLIO(NAMES_2) + P_MAPPING, 0) }, THE_SAME },
	{ "a folio that leads to itself",
	  .bytes = { WORD(PROGRAM_SLOT(NAMES_2), NAMES_2 << 2 | 2) }, NO_SECOND },
	{ "a page that is being read",
	  .bytes = { WORD(PROGRAM_FOLIO(NAMES_2) + P_FLAGS, ~P_UPTODATE) }, NO_SECOND },
	{ "a page of another file",
	  .bytes = { WORD(PROGRAM_FOLIO(NAMES_2) + P_MAPPING, MAPPING(1)) }, NO_SECOND },
	{ "a page behind this one",
	  .bytes = { WORD(PROGRAM_FOLIO(NAMES_2) + P_INDEX, NAMES_2 + 1) }, NO_SECOND },
	{ "a folio of terabytes",
	  .bytes = { WORD(PROGRAM_SLOT(NAMES_2), PROGRAM_FOLIO(NAMES_2)),
		     WORD(PROGRAM_FOLIO(NAMES_2) + P_INDEX, 0) },
	  NO_SECOND },

	{ "hashes without end",
	  .bytes = { HALF(PROGRAM_RAM(HASHES, HASH_AT + 12 * sizeof(u32)), 12) }, THE_SAME },
	{ "buckets without end",	.bytes = { HALF(PROGRAM_RAM(HASHES, HASH_AT), ~0U) },
	  .from = "15100+20 first\n15200+30 second\n15500+10 esc?[2J\n", .to = "" },
	{ "names without end",
	  .bytes = { WORD(PROGRAM_RAM(DYNAMIC, 2 * 16 + 8), SECOND_AT + 4) }, NO_SECOND },
	{ "a pointer of no function",
	  .bytes = { WORD(PROGRAM_RAM(DYNAMIC, RELOCS_AT), ADDR(DYNAMIC, POINTER_AT + 8)) },
	  .from = "15020+10 imported@plt\n", .to = "" },

	{ "code that lies elsewhere than in the file",
	  .bytes = { WORD(CODE_PHDR(p_offset), FILE_AT(DYNAMIC, 0)) },
	  .from = "15020+10 imported@plt\nrule 15100+20\nrule 15200+30\nrule 15500+10\n",
	  .to = "" },
	{ "segments that overlap",
	  .bytes = { WORD(CODE_PHDR(p_vaddr), ADDR(CODE, 0) + PAGE) }, LEAVES("nothing") },
	{ "another architecture",
	  .bytes = { BYTES(PROGRAM_GPA + offsetof(Elf64_Ehdr, e_machine), "\xb7") },
	  LEAVES("nothing") },
	{ "a register of arm64's",	.bytes = { BYTES(INSTRUCTIONS, "\x05\x11") }, NO_RULE_1 },
	{ "a return address that is signed, as on arm64",
	  .bytes = { BYTES(INSTRUCTIONS, "\x2d") }, NO_RULE_1 },
	{ "relocations without end",
	  .bytes = { WORD(PROGRAM_RAM(DYNAMIC, 4 * 16 + 8), 8),
		     WORD(PROGRAM_RAM(DYNAMIC, 5 * 16 + 8), ~0UL) },
	  .from = "15020+10 imported@plt\n", .to = "" },
	{ "rules in another format",	.bytes = { BYTES(PROGRAM_RAM(TABLE, 3), "\x1b") },
	  NO_RULES },
	{ "rules that are nowhere",	.bytes = { HALF(PROGRAM_RAM(TABLE, 4), 1 << 30) },
	  NO_RULES },
	{ "a rule of no code",
	  .bytes = { HALF(PROGRAM_RAM(TABLE, 12), ADDR(DYNAMIC, 0) - ADDR(TABLE, 0)) }, NO_RULE_1 },
	{ "a table that is not sorted",
	  .bytes = { HALF(PROGRAM_RAM(TABLE, 20), ADDR(CODE, 0x80) - ADDR(TABLE, 0)) },
	  .from = "rule 15200+30\n", .to = "" },
	{ "a rule without end",
	  .bytes = { HALF(PROGRAM_RAM(RULES_1, RULE_1), ~0U) }, NO_RULE_1 },
	{ "a rule that goes too far",
	  .bytes = { HALF(PROGRAM_RAM(RULES_1, RULE_1), 2 * PAGE) }, NO_RULE_1 },
	{ "a rule of no size",
	  .bytes = { HALF(PROGRAM_RAM(RULES_1, RULE_1), 0) }, NO_RULE_1 },
	{ "a rule in common with itself",
	  .bytes = { HALF(PROGRAM_RAM(RULES_1, RULE_1 + 4), 4) }, NO_RULE_1 },
	{ "a rule in common with what comes later",
	  .bytes = { HALF(PROGRAM_RAM(RULES_1, RULE_1 + 4), -4096) }, NO_RULE_1 },
	{ "a register that is far away",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, RULE_1 + 17), "\x05\xff\xff\x7f\1") }, NO_RULE_1 },
	{ "an unknown instruction",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, RULE_1 + 17), "\x3f") }, NO_RULE_1 },
	{ "an expression without end",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, RULE_1 + 17), "\x0f\x7f") }, NO_RULE_1 },
	{ "a number without end",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, RULE_1 + 21), "\x0e\xff\xff") }, NO_RULE_1 },
	{ "states without end",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, RULE_1 + 17), "\n\n\n\n\n") }, NO_RULE_1 },
	{ "instructions that compilers use",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, RULE_1 + 17), "\n\x41\x0e\x10\x86\2\x0b") },
	  THE_SAME },
	{ "addresses of eight bytes",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, 16), "\0") }, NO_RULES },
	{ "numbers without end in common",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, 12),
			   "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff") }, NO_RULES },
	{ "a personality that is cut",
	  .bytes = { BYTES(PROGRAM_RAM(RULES_1, 10), "P") }, NO_RULES },
	{ "a rule before all others",
	  .bytes = { HALF(PROGRAM_RAM(TABLE, 16), ADDR(TABLE, 0x100) - ADDR(TABLE, 0)) },
	  NO_RULE_1 },
};

/* Find a section of the file; return NULL if there is none. */
static const Elf64_Shdr *find_section(const char *file, const char *name)
{
	const Elf64_Ehdr *ehdr = (void *)file;
	const Elf64_Shdr *shdrs = (void *)&file[ehdr->e_shoff];

	for (unsigned int i = 1; i < ehdr->e_shnum; i++) {
		if (!strcmp(&file[shdrs[ehdr->e_shstrndx].sh_offset + shdrs[i].sh_name], name))
			return &shdrs[i];
	}
	return NULL;
}

/* Print functions and rules of the file. */
static void print_program(const char *file, char *text, size_t size)
{
	const Elf64_Shdr *symtab = find_section(file, ".dynsym");
	const Elf64_Shdr *strings = find_section(file, ".dynstr");
	const Elf64_Shdr *table = find_section(file, ".eh_frame_hdr");
	const Elf64_Shdr *rules = find_section(file, ".eh_frame");
	const Elf64_Sym *symbol = (void *)&file[symtab->sh_offset];
	const u32 *nr = (void *)&file[table->sh_offset + 8];
	const s32 *entries = (const s32 *)(nr + 1);

	*text = 0;
	for (size_t i = 1; i < symtab->sh_size / sizeof(*symbol); i++)
		snprintf(text + strlen(text), size - strlen(text), "%" PRIx64 "+%" PRIx64 " %s\n",
			 (u64)symbol[i].st_value, (u64)symbol[i].st_size,
			 &file[strings->sh_offset + symbol[i].st_name]);
	for (u32 i = 0; table->sh_size && i < *nr; i++) {
		u64 at = table->sh_addr + entries[2 * i + 1] - rules->sh_addr;
		const u32 *rule = (void *)&file[rules->sh_offset + at];
		u64 ip = rules->sh_addr + at + 8 + (s32)rule[2];

		if (ip == table->sh_addr + entries[2 * i])
			snprintf(text + strlen(text), size - strlen(text),
				 "rule %" PRIx64 "+%x\n", ip, rule[3]);
		else
			snprintf(text + strlen(text), size - strlen(text),
				 "rule %" PRIx64 " is another's\n", ip);
	}
}

static bool has_file(const char *dir, const char *name, const struct fake_guest *guest)
{
	const char *at = strstr(all, guest->from);
	char expected[1024], found[1024] = "nothing";
	size_t size;
	char *file;

	snprintf(expected, sizeof(expected), "%.*s%s%s", (int)(at - all), all, guest->to,
		 at + strlen(guest->from));
	file = fake__read_file(dir, name, &size);
	if (file && size)
		print_program(file, found, sizeof(found));
	free(file);
	if (strcmp(found, expected))
		pr_debug("%s:\n%sand not\n%s", guest->name, found, expected);
	return !strcmp(found, expected);
}

static bool has_program(const char *dir, const struct fake_guest *guest)
{
	return has_file(dir, BUILD_ID_FILE, guest);
}

static int test_programs(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		fake__make_usual();
		fake__make_program();
		fake__change(&programs[i]);
		TEST_ASSERT_VAL(programs[i].name, fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL(programs[i].name, has_program(dir, &programs[i]));
	}
	return TEST_OK;
}

static void use_bti(void)
{
	fake__make_arm64_program(0, true);
}

/* Where linkers put no headers and symbols into segments of their own. */
static void put_relocs_into_code(void)
{
	fake__make_arm64_program(0x600, false);
}

static const struct fake_guest arm64_programs[] = {
	{ "arm64",		THE_SAME },
	{ "arm64 with BTI",	.change = use_bti, .from = "15020+10", .to = "15020+18" },
	{ "relocations before the table",
				.change = put_relocs_into_code,
				.from = "15020+10", .to = "15640+10" },
	{ "another architecture",
	  .bytes = { BYTES(PROGRAM_GPA + offsetof(Elf64_Ehdr, e_machine), "\x3e") },
	  LEAVES("nothing") },
	{ "a return address that is signed",
	  .bytes = { BYTES(INSTRUCTIONS, "\x2d") }, THE_SAME },
	{ "the last register",	.bytes = { BYTES(INSTRUCTIONS, "\x05\x5f") }, THE_SAME },
	{ "one more",		.bytes = { BYTES(INSTRUCTIONS, "\x05\x60") }, NO_RULE_1 },
};

static int test_arm64(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(arm64_programs); i++) {
		fake__make_arm64(fake_arm64_guests);
		fake__make_arm64_program(0, false);
		fake__change(&arm64_programs[i]);
		TEST_ASSERT_VAL(arm64_programs[i].name, fake__find(dir) == GUEST_FILES_NAMES);
		TEST_ASSERT_VAL(arm64_programs[i].name, has_program(dir, &arm64_programs[i]));
	}
	return TEST_OK;
}

/* The kernel has the vDSO in its own memory. */
static int test_vdso(const char *dir)
{
	const struct fake_guest same = { .name = "vDSO", THE_SAME };

	fake__make_usual();
	fake__make_program();
	fake__make_vdso();
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("its contents", has_file(dir, VDSO_FILE, &same));
	TEST_ASSERT_VAL("the program's", has_program(dir, &same));
	/* A page behind its end would be the kernel's. */
	fake__put_u64(VDSO_IMAGE + VI_SIZE, RULES_2 * PAGE);
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("half of it", !has_file(dir, VDSO_FILE, &same));
	return TEST_OK;
}

/* arm64's vDSO has no rule for the code to which signal handlers return. */
static int test_signal(const char *dir)
{
	const struct fake_guest with_rule = {
		.name = "vDSO of arm64",
		LEAVES("150fc+10 __kernel_rt_sigreturn\n15200+30 second\n15500+10 esc?[2J\n"
		       "15020+10 imported@plt\nrule 150fc+10\n"),
	};
	static const char name[] = "__kernel_rt_sigreturn";

	fake__make_arm64(fake_arm64_guests);
	fake__make_arm64_program(0, false);
	fake__put_u32(PROGRAM_GPA + sizeof(Elf64_Ehdr) + 5 * sizeof(Elf64_Phdr), PT_NULL);
	fake__put(PROGRAM_RAM(NAMES_1, 0x100), name, sizeof(name));
	fake__put_u32(PROGRAM_RAM(HASHES, 2 * sizeof(Elf64_Sym)), 0x100);
	fake__make_vdso();
	fake__move_vdso();
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_NAMES);
	TEST_ASSERT_VAL("a rule", has_file(dir, VDSO_FILE, &with_rule));
	return TEST_OK;
}

/* A page that was missing at first may be there when the recording ends. */
static int test_again(const char *dir)
{
	static const struct fake_guest without = { "at first", NO_SECOND };
	static const struct fake_guest with = { "in the end", THE_SAME };
	struct guest_task_writer *found;
	struct guest_kernel *kernel;
	char path[PATH_MAX];
	const char *why_not;
	FILE *file;

	fake__make_usual();
	fake__make_program();
	fake__put_u64(PROGRAM_SLOT(NAMES_2), 0);
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	TEST_ASSERT_VAL("found", kernel);
	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%d/programs", dir, getpid());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	file = fopen("/dev/null", "we");
	found = guest_task_writer__new(kernel, file, file, path);
	TEST_ASSERT_VAL("a writer", found && guest_task_writer__update(found, 0));
	TEST_ASSERT_VAL("at first", has_program(dir, &without));
	fake__put_u64(PROGRAM_SLOT(HASHES), 0);
	guest_task_writer__finish(found);
	TEST_ASSERT_VAL("not with fewer pages", has_program(dir, &without));
	fake__put_u64(PROGRAM_SLOT(HASHES), PROGRAM_FOLIO(HASHES));
	fake__put_u64(PROGRAM_SLOT(NAMES_2), PROGRAM_FOLIO(NAMES_2));
	TEST_ASSERT_VAL("a look", guest_task_writer__update(found, 1));
	TEST_ASSERT_VAL("not by each look", has_program(dir, &without));
	/* The first byte of the build-id: another file is there by now. */
	fake__put(PROGRAM_RAM(HEADERS, 0x224), "\xff", 1);
	guest_task_writer__finish(found);
	TEST_ASSERT_VAL("not another file", has_program(dir, &without));
	fake__put(PROGRAM_RAM(HEADERS, 0x224), "\1", 1);
	guest_task_writer__finish(found);
	TEST_ASSERT_VAL("in the end", has_program(dir, &with));
	guest_task_writer__delete(found);
	guest_kernel__delete(kernel);
	fclose(file);
	return TEST_OK;
}

/* Where a task has mapped the code, and its stack; the program begins at BASE. */
#define BASE		0x7f0000000000ULL
#define IP		(BASE + FILE_AT(CODE, 0x110))
/* The end of the function at IP. */
#define IP_END		(BASE + FILE_AT(CODE, 0x120))
#define CALLER_1	(BASE + FILE_AT(CODE, 0x210))
#define CALLER_2	(BASE + FILE_AT(CODE, 0x508))
#define USER_SP		0x7fff00001000ULL
#define KERNEL_IP	0xffffffff81000010ULL
#define NO_CALLER	0x1234ULL

/* A sample with registers up to R15; its chain by frame pointers has an address that is wrong. */
struct program_sample {
	struct perf_record_guest_read	record;
	u64				regs[PERF_REG_X86_64_MAX];
	u64				saved[GUEST_PT_REGS_SIZE / sizeof(u64)];
	u64				stack[3];
	struct {
		u64	nr;
		u64	ips[5];
	} chain;
	struct perf_sample		sample;
};

/* Registers in struct pt_regs, by their index. */
enum { R_BP = 4, R_R11 = 6, R_CX = 11, R_IP = 16, R_CS = 17, R_FLAGS = 18, R_SP = 19 };

/*
 * What may be missing in place of a page: the file, the map, all rules, the saved registers, a name
 * that a C compiler would give, most of the stack; the rule after a system call, after a jump to
 * what CX has, or at a page fault.
 */
enum {
	NO_FILE = NR_PAGES, ELSEWHERE, NO_TABLES, SAVED, MANGLED, SHORT, AFTER_SYSCALL, AFTER_JUMP,
	AFTER_FAULT,
};

#define MANGLED_NAME	"_Z1fv"

/* The index of a chain whose stack is too short. */
#define BEYOND		12

static const struct {
	const char	*name;
	int		missing;	/* a page, or a number below; zero if none is */
	bool		in_kernel;
	u64		cs;
	u64		sp;
	u64		ips[3];		/* of user mode */
	enum unwind_end	end;
} chains[] = {
	{ "whole",		0, false, 0x33, USER_SP, { IP, CALLER_1 - 1, CALLER_2 - 1 },
	  UNWIND_OUTERMOST },
	{ "from the kernel",	0, true, 0x33, USER_SP, { IP, CALLER_1 - 1, CALLER_2 - 1 },
	  UNWIND_OUTERMOST },
	{ "no second rule",	RULES_2, false, 0x33, USER_SP, { IP, CALLER_1 - 1 },
	  UNWIND_NO_RULE },
	{ "no rule",		RULES_1, false, 0x33, USER_SP, { IP },
	  UNWIND_NO_RULE },
	{ "no table",		TABLE, false, 0x33, USER_SP, { IP },
	  UNWIND_NO_RULE },
	{ "no file",		NO_FILE, false, 0x33, USER_SP, { IP, NO_CALLER },
	  UNWIND_NO_FILE },
	{ "code in no file",	ELSEWHERE, false, 0x33, USER_SP, { IP, NO_CALLER },
	  UNWIND_NO_FILE },
	{ "no rules at all",	NO_TABLES, false, 0x33, USER_SP, { IP },
	  UNWIND_NO_RULE },
	{ "a 32-bit program",	0, false, 0x23, USER_SP, { IP, NO_CALLER },
	  UNWIND_NONE },
	{ "a 32-bit program's system call", 0, true, 0x23, USER_SP, { IP, NO_CALLER },
	  UNWIND_NONE },
	{ "a system call's first instruction", SAVED, true, 0x33, USER_SP, { IP, NO_CALLER },
	  UNWIND_NONE },
	{ "a C++ name",		MANGLED, false, 0x33, USER_SP, { IP, CALLER_1 - 1, CALLER_2 - 1 },
	  UNWIND_OUTERMOST },
	[BEYOND] = { "beyond the stack", SHORT, false, 0x33, USER_SP, { IP, CALLER_1 - 1 },
	  UNWIND_NO_STACK },
	{ "from a function's last instruction", AFTER_SYSCALL, true, 0x33, USER_SP,
	  { IP_END, CALLER_1 - 1, CALLER_2 - 1 }, UNWIND_OUTERMOST },
	{ "from after it, by CX", AFTER_JUMP, true, 0x33, USER_SP, { IP_END },
	  UNWIND_NO_RULE },
	{ "from after it",	AFTER_FAULT, true, 0x33, USER_SP, { IP_END },
	  UNWIND_NO_RULE },
	{ "another stack",	0, false, 0x33, USER_SP + 8, { IP, NO_CALLER },
	  UNWIND_NONE },
};

static void make_sample(struct program_sample *s, size_t i)
{
	struct guest_piece *pieces = s->sample.guest_read.pieces;
	u64 ip = chains[i].ips[0];

	*s = (struct program_sample) {
		.record = {
			.abi = PERF_SAMPLE_REGS_ABI_64,
			.mask = BIT_ULL(PERF_REG_X86_64_MAX) - 1,
		},
		.regs = {
			[PERF_REG_X86_IP] = chains[i].in_kernel ? KERNEL_IP : ip,
			[PERF_REG_X86_SP] = chains[i].sp,
			/* It would lead to a wrong caller. */
			[PERF_REG_X86_BP] = USER_SP,
			[PERF_REG_X86_CS] = chains[i].cs,
			[PERF_REG_X86_CX] = chains[i].missing == SAVED ? ip : 0,
			[PERF_REG_X86_R11] = 0x246,
		},
		.saved = {
			[R_BP] = USER_SP, [R_IP] = ip, [R_CS] = chains[i].cs, [R_FLAGS] = 0x246,
			[R_SP] = chains[i].sp,
			[R_CX] = chains[i].missing == AFTER_SYSCALL ||
				 chains[i].missing == AFTER_JUMP ? ip : 0,
			[R_R11] = chains[i].missing == AFTER_JUMP ? 0 : 0x246,
		},
		.stack = { CALLER_1, CALLER_2, 0 },
		.chain = { 3, { PERF_CONTEXT_GUEST_USER, ip, NO_CALLER } },
		.sample = {
			.pid = 7, .tid = 7,
			.cpumode = PERF_RECORD_MISC_GUEST_USER,
			.callchain = (struct ip_callchain *)&s->chain,
			.guest_read = { .record = &s->record, .nr = NR_GUEST_READ_SLOTS },
		},
	};
	pieces[GUEST_READ_CURRENT_STACK] =
		(struct guest_piece) { USER_SP, sizeof(s->stack), (const u8 *)s->stack };
	if (chains[i].missing == SHORT)
		pieces[GUEST_READ_CURRENT_STACK].size = sizeof(s->stack[0]);
	if (!chains[i].in_kernel)
		return;

	s->sample.cpumode = PERF_RECORD_MISC_GUEST_KERNEL;
	s->chain.nr = 5;
	memmove(&s->chain.ips[2], s->chain.ips, 3 * sizeof(u64));
	s->chain.ips[0] = PERF_CONTEXT_GUEST_KERNEL;
	s->chain.ips[1] = KERNEL_IP;
	pieces[GUEST_READ_USER_STACK] = pieces[GUEST_READ_CURRENT_STACK];
	pieces[GUEST_READ_CURRENT_STACK].size = 0;
	pieces[GUEST_READ_USER_REGS] = (struct guest_piece) {
		0xffffc90000004000 - sizeof(s->saved), sizeof(s->saved), (const u8 *)s->saved,
	};
}

/* Have a task map the program's code, with what was written of the program. */
static bool map_program(struct machine *machine, struct thread *thread, const char *dir, u64 shift)
{
	struct dso *dso = machine__findnew_dso(machine, "/bin/a program (guest)");
	struct map *map = dso ? map__new2(BASE + shift + FILE_AT(CODE, 0), dso) : NULL;
	struct build_id build_id = { .size = GUEST_BUILD_ID_SIZE };
	bool good = false;
	char *path;

	for (u8 i = 0; i < build_id.size; i++)
		build_id.data[i] = i + 1;
	if (map)
		dso__set_build_id(dso, &build_id);
	if (map && asprintf(&path, "%s/%d/" BUILD_ID_FILE, dir, getpid()) > 0) {
		dso__set_guest_filename(dso, path);
		map__set_end(map, BASE + shift + FILE_AT(CODE, PAGE));
		map__set_pgoff(map, FILE_AT(CODE, 0));
		good = !maps__fixup_overlap_and_insert(thread__maps(thread), map);
	}
	map__put(map);
	dso__put(dso);
	return good;
}

static bool has_symbol_of_program(struct thread *thread, u64 ip, const char *name)
{
	struct addr_location al;
	bool same;

	addr_location__init(&al);
	thread__find_symbol(thread, PERF_RECORD_MISC_GUEST_USER, ip, &al);
	same = al.sym ? name && !strcmp(al.sym->name, name) : !name;
	addr_location__exit(&al);
	return same;
}

static bool has_chain(const struct perf_sample *sample, size_t i)
{
	u64 first = chains[i].in_kernel ? 3 : 1, nr = 0;

	while (nr < ARRAY_SIZE(chains[i].ips) && chains[i].ips[nr])
		nr++;
	return sample->callchain->nr == first + nr &&
	       sample->callchain->ips[first - 1] == PERF_CONTEXT_GUEST_USER &&
	       (first == 1 || sample->callchain->ips[1] == KERNEL_IP) &&
	       !memcmp(&sample->callchain->ips[first], chains[i].ips, nr * sizeof(u64));
}

/* Unwind by what was written of the program, and compare the chain and the names. */
static bool unwinds(const char *dir, size_t i)
{
	bool guest = perf_guest, good;
	struct program_sample s;
	struct machines machines;
	struct machine *machine;
	struct thread *thread;

	if (machines__init(&machines))
		return false;

	perf_guest = true;
	machine = machines__add(&machines, 4242, "");
	thread = machine ? machine__findnew_thread(machine, 7, 7) : NULL;
	good = thread && (chains[i].missing == NO_FILE ||
			  map_program(machine, thread, dir,
				      chains[i].missing == ELSEWHERE ? 1 << 20 : 0));
	make_sample(&s, i);
	good = good && sample__unwind_guest_user(&s.sample, machine) == chains[i].end &&
	       has_chain(&s.sample, i) &&
	       (chains[i].missing == NO_FILE || chains[i].missing == ELSEWHERE ||
		(has_symbol_of_program(thread, IP, chains[i].missing == MANGLED ?
				       MANGLED_NAME : "first") &&
		 has_symbol_of_program(thread, IP + 0x10, NULL) &&
		 has_symbol_of_program(thread, BASE + FILE_AT(CODE, 0x28), "imported@plt")));
	if (s.sample.merged_callchain)
		free(s.sample.callchain);
	thread__put(thread);
	if (machine)
		machine__delete_threads(machine);
	machines__exit(&machines);
	perf_guest = guest;
	return good;
}

static int test_chains(const char *dir)
{
	/* The user's servers don't have the program. */
	unsetenv("DEBUGINFOD_URLS");
	for (size_t i = 0; i < ARRAY_SIZE(chains); i++) {
		fake__make_usual();
		fake__make_program();
		if (chains[i].missing && chains[i].missing < NR_PAGES)
			fake__put_u64(PROGRAM_SLOT(chains[i].missing), 0);
		if (chains[i].missing == MANGLED)
			fake__put(PROGRAM_RAM(NAMES_1, FIRST_AT), MANGLED_NAME,
				  sizeof(MANGLED_NAME));
		/* The last program header is that of the table. */
		if (chains[i].missing == NO_TABLES)
			fake__put_u32(PROGRAM_GPA + sizeof(Elf64_Ehdr) + 5 * sizeof(Elf64_Phdr), 0);
		TEST_ASSERT_VAL(chains[i].name, fake__find(dir) == GUEST_FILES_TABLES);
		TEST_ASSERT_VAL(chains[i].name, unwinds(dir, i));
	}
	return TEST_OK;
}

/* Where arm64 saves the system call's number, and a signature above an address. */
#define A_SYSCALL	35
#define SIGNATURE	(0x2aULL << 48)

static const struct {
	const char	*name;
	bool		in_kernel;
	u64		ip;
	s32		syscall;
	u64		nr;		/* of user mode's addresses */
	enum unwind_end	end;
} arm64_chains[] = {
	{ "arm64",				false, IP, 0, 3, UNWIND_OUTERMOST },
	{ "arm64, from the kernel",		true, IP, 64, 3, UNWIND_OUTERMOST },
	{ "from a function's last instruction",	true, IP_END, 64, 3, UNWIND_OUTERMOST },
	{ "from after it",			true, IP_END, -1, 1, UNWIND_NO_RULE },
};

static bool unwinds_arm64(struct machine *machine, size_t i)
{
	const u64 ip = arm64_chains[i].ip, expected[] = { ip, CALLER_1 - 1, CALLER_2 - 1 };
	const u64 stack[] = { 1, CALLER_1 | SIGNATURE, 2, CALLER_2 | SIGNATURE, 3, 0 };
	const u64 saved[A_SYSCALL + 1] = {
		[29] = USER_SP, [31] = USER_SP, [32] = ip, [33] = 0x60000000,
		[A_SYSCALL] = (u32)arm64_chains[i].syscall,
	};
	u64 first = arm64_chains[i].in_kernel ? 4 : 1;
	struct {
		struct perf_record_guest_read	record;
		u64				regs[PERF_REG_ARM64_PC + 1];
	} read = {
		.record = {
			.abi = PERF_SAMPLE_REGS_ABI_64,
			.mask = BIT_ULL(PERF_REG_ARM64_PC + 1) - 1,
		},
		.regs = {
			[PERF_REG_ARM64_X29] = arm64_chains[i].in_kernel ? 0xffffc90000003e00 : 0,
			[PERF_REG_ARM64_SP] = USER_SP,
			[PERF_REG_ARM64_PC] = ip,
		},
	};
	/* The number of entries comes first. */
	u64 in_user[] = { 3, PERF_CONTEXT_GUEST_USER, ip, NO_CALLER };
	u64 in_kernel[] = {
		6, PERF_CONTEXT_GUEST_KERNEL, KERNEL_IP, KERNEL_IP + 16, PERF_CONTEXT_GUEST_USER,
		ip, NO_CALLER,
	};
	struct perf_sample sample = {
		.pid = 7, .tid = 7,
		.cpumode = arm64_chains[i].in_kernel ? PERF_RECORD_MISC_GUEST_KERNEL :
						       PERF_RECORD_MISC_GUEST_USER,
		.callchain = (struct ip_callchain *)(arm64_chains[i].in_kernel ? in_kernel :
										 in_user),
		.guest_read = { .record = &read.record, .nr = NR_GUEST_READ_SLOTS },
	};
	struct guest_piece *pieces = sample.guest_read.pieces;
	bool good;

	pieces[arm64_chains[i].in_kernel ? GUEST_READ_USER_STACK : GUEST_READ_CURRENT_STACK] =
		(struct guest_piece) { USER_SP, sizeof(stack), (const u8 *)stack };
	if (arm64_chains[i].in_kernel)
		pieces[GUEST_READ_USER_REGS] = (struct guest_piece) {
			0xffffc90000003f00, sizeof(saved), (const u8 *)saved,
		};
	good = sample__unwind_guest_user(&sample, machine) == arm64_chains[i].end &&
	       sample.callchain->nr == first + arm64_chains[i].nr &&
	       !memcmp(&sample.callchain->ips[first], expected,
		       arm64_chains[i].nr * sizeof(u64));
	if (sample.merged_callchain)
		free(sample.callchain);
	return good;
}

/* Return addresses are signed; libdw knows arm64's registers on all hosts. */
static int test_arm64_chains(const char *dir)
{
	bool guest = perf_guest, good;
	struct machines machines;
	struct machine *machine;
	struct thread *thread;
	size_t i = 0;

	fake__make_arm64(fake_arm64_guests);
	fake__make_arm64_program(0, false);
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_NAMES);
	TEST_ASSERT_VAL("no machines", !machines__init(&machines));
	perf_guest = true;
	machine = machines__add(&machines, 4242, "");
	thread = machine ? machine__findnew_thread(machine, 7, 7) : NULL;
	good = thread && map_program(machine, thread, dir, 0);
	while (good && i < ARRAY_SIZE(arm64_chains))
		good = unwinds_arm64(machine, i++);
	thread__put(thread);
	if (machine)
		machine__delete_threads(machine);
	machines__exit(&machines);
	perf_guest = guest;
	TEST_ASSERT_VAL(i ? arm64_chains[i - 1].name : "no thread", good);
	return TEST_OK;
}

/* Unwind sample @i of a process; it has the program at its usual place. */
static bool unwinds_process(struct machine *machine, const char *dir, pid_t pid, size_t i)
{
	struct thread *thread = machine__findnew_thread(machine, pid, pid);
	struct program_sample s;
	bool good;

	make_sample(&s, i);
	s.sample.pid = pid;
	s.sample.tid = pid;
	good = thread && (has_symbol_of_program(thread, IP, "first") ||
			  map_program(machine, thread, dir, 0));
	good = good && sample__unwind_guest_user(&s.sample, machine) == chains[i].end &&
	       has_chain(&s.sample, i) && has_symbol_of_program(thread, IP, "first");
	if (s.sample.merged_callchain)
		free(s.sample.callchain);
	thread__put(thread);
	return good;
}

/* libdw keeps files open, but not more than there may be. */
static int test_many(const char *dir)
{
	bool guest = perf_guest, good = true;
	struct machines machines;
	struct machine *machine;
	struct rlimit old, few;
	int first = dup(STDERR_FILENO);

	unsetenv("DEBUGINFOD_URLS");
	fake__make_usual();
	fake__make_program();
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("no machines", !machines__init(&machines));
	TEST_ASSERT_VAL("no limit", first >= 0 && !getrlimit(RLIMIT_NOFILE, &old));
	close(first);

	perf_guest = true;
	machine = machines__add(&machines, 4242, "");
	few = old;
	few.rlim_cur = first + 200;
	setrlimit(RLIMIT_NOFILE, &few);
	for (pid_t pid = 10; pid < 510 && good; pid++)
		good = unwinds_process(machine, dir, pid, 0);
	/* libdw has forgotten the first one by now. */
	good = good && unwinds_process(machine, dir, 10, 0) &&
	       unwinds_process(machine, dir, 10, BEYOND) && unwinds_process(machine, dir, 10, 0);
	setrlimit(RLIMIT_NOFILE, &old);
	machine__delete_threads(machine);
	machines__exit(&machines);
	perf_guest = guest;
	TEST_ASSERT_VAL("not whole", good);
	return TEST_OK;
}

#ifdef HAVE_DEBUGINFOD_SUPPORT
/*
 * The file that debuginfod has of the program takes the place of what was read of it.  A folder
 * stands for the server.
 */
static int test_debuginfod(const char *dir)
{
	const char *const names[] = { "buildid", "buildid/" PROGRAM_ID };
	char path[PATH_MAX], to[PATH_MAX], urls[PATH_MAX];
	bool good;

	fake__make_usual();
	fake__make_program();
	TEST_ASSERT_VAL("found", fake__find(dir) == GUEST_FILES_TABLES);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		TEST_ASSERT_VAL("a directory", !mkdir(path, 0700));
	}
	snprintf(path, sizeof(path), "%s/%d/" BUILD_ID_FILE, dir, getpid());
	snprintf(to, sizeof(to), "%s/buildid/" PROGRAM_ID "/executable", dir);
	TEST_ASSERT_VAL("the server's file", !rename(path, to));

	fake__put_u64(PROGRAM_SLOT(RULES_2), 0);
	TEST_ASSERT_VAL("half a program", fake__find(dir) == GUEST_FILES_TABLES);
	unsetenv("DEBUGINFOD_URLS");
	TEST_ASSERT_VAL("without a server", !unwinds(dir, 0));
	snprintf(urls, sizeof(urls), "file://%s", dir);
	snprintf(path, sizeof(path), "%s/cache", dir);
	setenv("DEBUGINFOD_URLS", urls, 1);
	setenv("DEBUGINFOD_CACHE_PATH", path, 1);
	good = unwinds(dir, 0);
	unsetenv("DEBUGINFOD_URLS");
	unsetenv("DEBUGINFOD_CACHE_PATH");
	TEST_ASSERT_VAL("with a server", good);
	return TEST_OK;
}
#endif

#ifdef HAVE_LIBDW_SUPPORT
#define run_chains	fake__run_btf_test
#else
static int run_chains(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return TEST_SKIP;
}
#endif

static struct test_case tests__guest_program[] = {
	FAKE_GUEST_BTF_TEST("Names and rules of programs", test_programs),
	FAKE_GUEST_BTF_TEST("Names and rules of arm64 programs", test_arm64),
	FAKE_GUEST_BTF_TEST("Pages that are cached later", test_again),
	FAKE_GUEST_BTF_TEST("vDSO", test_vdso),
	FAKE_GUEST_BTF_TEST("Return from signals on arm64", test_signal),
	{
		.name = "test_chains", .desc = "Callchains by these rules",
		.run_case = run_chains, .priv = test_chains,
		.skip_reason = "no libdw, no libbpf, or perf can't read guests on such a host",
	},
	{
		.name = "test_arm64_chains", .desc = "Callchains by the rules of arm64",
		.run_case = run_chains, .priv = test_arm64_chains,
		.skip_reason = "no libdw, no libbpf, or perf can't read guests on such a host",
	},
	{
		.name = "test_many", .desc = "Many processes",
		.run_case = run_chains, .priv = test_many,
		.skip_reason = "no libdw, no libbpf, or perf can't read guests on such a host",
	},
#if defined(HAVE_LIBDW_SUPPORT) && defined(HAVE_DEBUGINFOD_SUPPORT)
	FAKE_GUEST_BTF_TEST("Programs that debuginfod has", test_debuginfod),
#endif
	{ .name = NULL, }
};

struct test_suite suite__guest_program = {
	.desc = "Programs of guests",
	.test_cases = tests__guest_program,
};
