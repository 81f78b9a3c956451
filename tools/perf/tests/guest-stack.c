// SPDX-License-Identifier: GPL-2.0
/*
 * Test what is read of guests: parse records with right and with wrong sizes, and unwind stacks by
 * the tables of a vmlinux and of modules.
 */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/unaligned.h>
#include <perf/event.h>

#include "../../arch/x86/include/uapi/asm/perf_regs.h"
#include "build-id.h"
#include "callchain.h"
#include "dso.h"
#include "event.h"
#include "evsel.h"
#include "guest-orc.h"
#include "guest-reads.h"
#include "guest-user.h"
#include "machine.h"
#include "sample.h"
#include "symbol_conf.h"
#include "tests.h"
#include "util.h"

#define NR_BYTES	64

/* A record with two registers and two pieces. */
struct read_record {
	struct perf_record_guest_read	record;
	u64				regs[2];
	u64				nr;
	struct {
		u64			addr;
		u64			size;
		u8			data[NR_BYTES];
		u64			dyn_size;
	} first;
	struct {
		u64			addr;
		u64			size;
		u8			data[8];
		u64			dyn_size;
	} second;
};

static void make_record(struct read_record *record)
{
	*record = (struct read_record) {
		.record = {
			.header = { .type = PERF_RECORD_GUEST_READ, .size = sizeof(*record) },
			.cookie = 42,
			.abi = PERF_SAMPLE_REGS_ABI_64,
			.root = 0x2000,
			.mask = 1 << PERF_REG_X86_BP | 1 << PERF_REG_X86_IP,
		},
		.regs = { 0x1234, 0x5678 },
		.nr = 2,
		.first = { .addr = -(u64)NR_BYTES, .size = NR_BYTES, .dyn_size = NR_BYTES },
		/* Three bytes could not be read. */
		.second = { .addr = 0x1000, .size = 8, .dyn_size = 5 },
	};
}

static int parse(struct read_record *record, struct perf_sample *sample)
{
	memset(sample, 0, sizeof(*sample));
	return perf_event__parse_guest_read((union perf_event *)record, sample);
}

static int test__records(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct perf_sample sample;
	struct read_record record;
	const struct guest_read *read = &sample.guest_read;

	make_record(&record);
	TEST_ASSERT_VAL("a record is refused", !parse(&record, &sample));
	TEST_ASSERT_VAL("cookie", sample.deferred_cookie == 42);
	TEST_ASSERT_VAL("record", read->record == &record.record && read->nr == 2);
	TEST_ASSERT_VAL("first piece", read->pieces[0].addr == record.first.addr &&
			read->pieces[0].size == NR_BYTES &&
			read->pieces[0].data == record.first.data);
	TEST_ASSERT_VAL("second piece", read->pieces[1].addr == 0x1000 &&
			read->pieces[1].size == 5 && read->pieces[1].data == record.second.data);
	TEST_ASSERT_VAL("no third piece", !read->pieces[2].size);
	TEST_ASSERT_VAL("registers", guest_read__reg(read, PERF_REG_X86_BP) == 0x1234 &&
			guest_read__reg(read, PERF_REG_X86_IP) == 0x5678);
	TEST_ASSERT_VAL("no register", !guest_read__reg(read, PERF_REG_X86_SP));

	record.second.dyn_size = 0;
	TEST_ASSERT_VAL("a piece that could not be read", !parse(&record, &sample) &&
			read->nr == 2 && !read->pieces[1].size);
	record.second.dyn_size = 9;
	TEST_ASSERT_VAL("more bytes than the piece has", parse(&record, &sample));
	record.second.dyn_size = 5;
	record.second.size = 7;
	TEST_ASSERT_VAL("a size that is no multiple of 8", parse(&record, &sample));
	record.second.size = 24;
	TEST_ASSERT_VAL("a piece that goes beyond the record", parse(&record, &sample));
	TEST_ASSERT_VAL("a record that is refused", !read->record);
	record.second.size = -8ULL;
	TEST_ASSERT_VAL("a size that wraps", parse(&record, &sample));

	make_record(&record);
	record.first.addr++;
	TEST_ASSERT_VAL("a piece beyond the last address", parse(&record, &sample));
	record.first.dyn_size--;
	TEST_ASSERT_VAL("a piece up to the last address", !parse(&record, &sample) &&
			read->pieces[0].size == NR_BYTES - 1);
	record.first.size = 0;
	TEST_ASSERT_VAL("a piece in place of the first one's bytes", !parse(&record, &sample) &&
			read->pieces[1].data == record.first.data + 16);

	make_record(&record);
	record.nr = 3;
	TEST_ASSERT_VAL("a piece too many", parse(&record, &sample));
	record.nr = PERF_GUEST_READ_MAX + 1;
	TEST_ASSERT_VAL("more pieces than there are", parse(&record, &sample));
	record.nr = -1ULL;
	TEST_ASSERT_VAL("a number that wraps", parse(&record, &sample));
	record.nr = 0;
	TEST_ASSERT_VAL("no pieces", !parse(&record, &sample) && !read->nr);

	make_record(&record);
	record.record.header.size -= 8;
	TEST_ASSERT_VAL("a record that ends before dyn_size", parse(&record, &sample));
	record.record.header.size += 4;
	TEST_ASSERT_VAL("a record that ends within a word", parse(&record, &sample));
	record.record.header.size = sizeof(record.record);
	TEST_ASSERT_VAL("a record without registers", parse(&record, &sample));
	record.record.header.size += sizeof(record.regs);
	TEST_ASSERT_VAL("a record without a number", parse(&record, &sample));
	record.record.header.size = sizeof(record.record) - 8;
	TEST_ASSERT_VAL("a record without a mask", parse(&record, &sample));
	make_record(&record);
	record.record.mask = -1ULL;
	TEST_ASSERT_VAL("more registers than the record has", parse(&record, &sample));
	return 0;
}

#ifdef HAVE_LIBELF_SUPPORT
#define TEXT		0xffffffff81000000ULL
#define TEXT_SIZE	0x100
#define IPS		0xffffffff82000000ULL

/* Values in the ORC entries of Linux 7.3: SP as the base, a call, the outermost frame, no rule. */
#define RULE_SP		3
#define RULE_CALL	(2 << 8)
#define RULE_END	BIT(8)
#define RULE_UNDEFINED	0

/* Values before Linux 6.3: a call with SP as the base, the outermost frame. */
#define OLD_RULE_CALL	5
#define OLD_RULE_END	BIT(10)

/* Values of Linux 6.4 to 7.2: a call with SP as the base, registers that lie at SP. */
#define RULE_CALL_6_4	(RULE_CALL | 5)
#define RULE_REGS_6_4	(3 << 8 | 5)

/*
 * Offsets in the code: return addresses with a call before them, one without a call, the outermost
 * function, a return address with a call before it in that function, and code that no chain has.
 */
#define CALL_1		0x20
#define CALL_2		0x30
#define NO_CALL		0x80
#define OUTERMOST	0xc0
#define OUTERMOST_CALL	0xd0
#define UNUSED		0xf0

/* As in guest-orc.c: this many chains decide whether the tables are the guest's. */
#define NR_PROOFS	5

#define SP		0xffffc90000001000ULL

enum { NOTHING, CODE, ORC_IPS, ORC_RULES, ORC_HASH, NOTES, NAMES, NR_SECTIONS };

static const char names[] =
	"\0.text\0.init.text\0.orc_unwind_ip\0.orc_unwind\0.orc_header\0.notes\0.names";

struct vmlinux {
	Elf64_Ehdr	ehdr;
	Elf64_Shdr	shdrs[NR_SECTIONS];
	s32		ips[3];
	u16		rules[3][3];
	u8		hash[ORC_HASH_SIZE];
	Elf64_Nhdr	note;
	char		note_name[4];
	u8		build_id[BUILD_ID_SIZE];
	char		names[sizeof(names)];
	/* A call in front of the code, which perf must not look at. */
	u8		before[2];
	u8		code[TEXT_SIZE];
};

static const u8 call_rax[] = { 0xff, 0xd0 };

static void make_section(struct vmlinux *file, int nr, const char *name, u64 addr,
			 const void *data, u64 size)
{
	file->shdrs[nr] = (Elf64_Shdr) {
		.sh_name = (const char *)memmem(names, sizeof(names), name, strlen(name) + 1) -
			   names,
		.sh_type = SHT_PROGBITS,
		.sh_addr = addr,
		.sh_offset = (const u8 *)data - (const u8 *)file,
		.sh_size = size,
	};
}

static void make_call(struct vmlinux *file, u64 end)
{
	memcpy(&file->code[end - sizeof(call_rax)], call_rax, sizeof(call_rax));
}

static void make_vmlinux(struct vmlinux *file)
{
	static const u8 hash[ORC_HASH_SIZE] = {
		0x13, 0x7c, 0x36, 0xad, 0x76, 0x27, 0xc4, 0xdd, 0x55, 0x93,
		0x21, 0x76, 0xbb, 0x0e, 0xcd, 0xbd, 0x50, 0x41, 0xfc, 0x82,
	};

	*file = (struct vmlinux) {
		.ehdr = {
			.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				     EV_CURRENT },
			.e_type = ET_EXEC,
			.e_machine = EM_X86_64,
			.e_version = EV_CURRENT,
			.e_shoff = offsetof(struct vmlinux, shdrs),
			.e_ehsize = sizeof(Elf64_Ehdr),
			.e_shentsize = sizeof(Elf64_Shdr),
			.e_shnum = NR_SECTIONS,
			.e_shstrndx = NAMES,
		},
		.ips = { (s32)(TEXT - IPS), (s32)(TEXT + OUTERMOST - IPS - ORC_IP_SIZE),
			 (s32)(TEXT + UNUSED - IPS - 2 * ORC_IP_SIZE) },
		.rules = { { 16, 0, RULE_CALL | RULE_SP }, { 0, 0, RULE_END },
			   { 0, 0, RULE_UNDEFINED } },
		.note = { sizeof(file->note_name), BUILD_ID_SIZE, NT_GNU_BUILD_ID },
		.note_name = "GNU",
		.build_id = { 42 },
	};
	memcpy(file->hash, hash, sizeof(hash));
	memcpy(file->names, names, sizeof(names));
	memcpy(file->before, call_rax, sizeof(call_rax));
	memset(file->code, 0xcc, sizeof(file->code));
	make_call(file, CALL_1);
	make_call(file, CALL_2);
	make_call(file, OUTERMOST_CALL);
	make_section(file, CODE, ".text", TEXT, file->code, sizeof(file->code));
	file->shdrs[CODE].sh_flags = SHF_EXECINSTR;
	make_section(file, ORC_IPS, ".orc_unwind_ip", IPS, file->ips, sizeof(file->ips));
	make_section(file, ORC_RULES, ".orc_unwind", 0, file->rules, sizeof(file->rules));
	make_section(file, ORC_HASH, ".orc_header", 0, file->hash, sizeof(file->hash));
	make_section(file, NOTES, ".notes", 0, &file->note,
		     offsetof(struct vmlinux, names) - offsetof(struct vmlinux, note));
	file->shdrs[NOTES].sh_type = SHT_NOTE;
	make_section(file, NAMES, ".names", 0, file->names, sizeof(file->names));
	file->shdrs[NAMES].sh_type = SHT_STRTAB;
}

/* Write a file; @path receives its path, which begins with @path and ends with XXXXXX. */
static bool write_file(char *path, const void *data, size_t size)
{
	int fd = mkstemp(path);
	bool written = fd >= 0 && write(fd, data, size) == (ssize_t)size;

	if (fd >= 0)
		close(fd);
	return written;
}

static struct guest_orc *load_for(const void *file, size_t size, u64 text,
				  const struct dso *kernel)
{
	char path[] = "/tmp/perf-test-vmlinux-XXXXXX";
	struct guest_orc *orc = NULL;
	const char *why_not;

	if (write_file(path, file, size))
		orc = guest_orc__load(path, text, kernel, &why_not);
	unlink(path);
	return orc;
}

static struct guest_orc *load(const struct vmlinux *file, size_t size, u64 text)
{
	return load_for(file, size, text, NULL);
}

/* A sample in the guest's kernel, with two return addresses and something above them. */
struct stack_sample {
	u64				words[6];
	struct perf_record_guest_read	record;
	/* In the order of their numbers. */
	u64				bp, sp, ip;
	struct {
		u64	nr;
		u64	ips[5];
	} chain;
	struct perf_sample		sample;
};

static void make_sample(struct stack_sample *s, u64 text, u64 first, u64 second)
{
	*s = (struct stack_sample) {
		.words = { 0, text + first, 0, text + second, 0, 1234 },
		.record = {
			.abi = PERF_SAMPLE_REGS_ABI_64,
			.mask = 1 << PERF_REG_X86_BP | 1 << PERF_REG_X86_SP | 1 << PERF_REG_X86_IP,
		},
		.sp = SP,
		.ip = text + 0x10,
		.chain = { 5, { PERF_CONTEXT_GUEST_KERNEL, text + 0x10, PERF_CONTEXT_GUEST_USER,
				0x401000, 0x402000 } },
		.sample = {
			.cpumode = PERF_RECORD_MISC_GUEST_KERNEL,
			.callchain = (struct ip_callchain *)&s->chain,
			.guest_read = {
				.record = &s->record,
				.nr = 1,
				.pieces = { { SP, sizeof(s->words), (const u8 *)s->words } },
			},
		},
	};
}

/* Return true if the chain is still the one that was recorded. */
static bool is_as_recorded(const struct stack_sample *s)
{
	return !s->sample.merged_callchain && (const void *)s->sample.callchain == &s->chain;
}

static enum orc_end unwind(struct guest_orc *orc, u64 text, u64 first, u64 second)
{
	struct stack_sample s;
	enum orc_end end;

	make_sample(&s, text, first, second);
	end = guest_orc__unwind(orc, &s.sample);
	if (s.sample.merged_callchain)
		free(s.sample.callchain);
	return end;
}

/* Unwind chains to their end, until the tables are known to be the guest's. */
static void prove(struct guest_orc *orc, u64 text)
{
	for (int i = 0; i < NR_PROOFS; i++)
		unwind(orc, text, CALL_1, OUTERMOST_CALL);
}

/*
 * Unwind three frames of a kernel that was moved by @moved bytes, up to a word that is not a return
 * address.
 */
static int test_unwind(u64 moved)
{
	const u64 text = TEXT + moved;
	const u64 expected[] = { PERF_CONTEXT_GUEST_KERNEL, text + 0x10, text + CALL_1,
				 text + CALL_2, PERF_CONTEXT_GUEST_USER, 0x401000, 0x402000 };
	struct stack_sample s;
	struct vmlinux file;
	struct guest_orc *orc;
	enum orc_end end;

	make_vmlinux(&file);
	orc = load(&file, sizeof(file), moved ? text : 0);
	TEST_ASSERT_VAL("the tables are not found", orc);

	/* A chain without a return address proves nothing. */
	for (int i = 0; i < NR_PROOFS; i++) {
		make_sample(&s, text, CALL_1, CALL_2);
		s.ip = text + OUTERMOST;
		TEST_ASSERT_VAL("end of the outermost frame",
				guest_orc__unwind(orc, &s.sample) == ORC_END_OUTERMOST);
		free(s.sample.callchain);
	}

	make_sample(&s, text, CALL_1, CALL_2);
	end = guest_orc__unwind(orc, &s.sample);
	TEST_ASSERT_VAL("end of a chain that proves nothing", end == ORC_END_NO_TABLE);
	TEST_ASSERT_VAL("a chain of tables that nothing proves", is_as_recorded(&s));

	prove(orc, text);
	end = guest_orc__unwind(orc, &s.sample);
	guest_orc__delete(orc);
	TEST_ASSERT_VAL("end", end == ORC_END_NO_TABLE);
	TEST_ASSERT_VAL("allocated", s.sample.merged_callchain);
	TEST_ASSERT_VAL("length", s.sample.callchain->nr == ARRAY_SIZE(expected));
	TEST_ASSERT_VAL("chain", !memcmp(s.sample.callchain->ips, expected, sizeof(expected)));
	free(s.sample.callchain);
	return 0;
}

static int test__unwind(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return test_unwind(0) ?: test_unwind(0x2a00000);
}

/* A rule by which the SP from before an IRQ is the word at SP; and the IRQ's stack. */
#define RULE_INDIRECT	(RULE_CALL | 9)
#define IRQ_SP		0xffffc90000008ff8ULL

/*
 * A sample on an IRQ's stack, of which the last word is the SP from before the IRQ.  The walk goes
 * on there, if that stack was read as well.
 */
static int test__interrupted(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	const u64 expected[] = { PERF_CONTEXT_GUEST_KERNEL, TEXT + UNUSED, TEXT + CALL_1,
				 TEXT + OUTERMOST_CALL, PERF_CONTEXT_GUEST_USER, 0x401000,
				 0x402000 };
	u64 irq_stack = SP + sizeof(u64);
	struct stack_sample s;
	struct guest_orc *orc;
	struct vmlinux file;
	enum orc_end end;

	make_vmlinux(&file);
	/* SP after the switch is the word at SP; behind it lies the return address. */
	file.rules[2][0] = 0;
	file.rules[2][2] = RULE_INDIRECT;
	orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("the tables are not found", orc);

	make_sample(&s, TEXT, 0, CALL_1);
	s.words[0] = TEXT + CALL_1;
	s.words[2] = TEXT + OUTERMOST_CALL;
	s.ip = TEXT + UNUSED;
	s.sp = IRQ_SP;
	s.sample.guest_read.nr = 2;
	s.sample.guest_read.pieces[GUEST_READ_INTERRUPTED] =
		s.sample.guest_read.pieces[GUEST_READ_STACK];
	s.sample.guest_read.pieces[GUEST_READ_STACK] =
		(struct guest_piece){ IRQ_SP, sizeof(irq_stack), (const u8 *)&irq_stack };
	end = guest_orc__unwind(orc, &s.sample);
	TEST_ASSERT_VAL("end", end == ORC_END_OUTERMOST);
	TEST_ASSERT_VAL("chain", s.sample.merged_callchain &&
			s.sample.callchain->nr == ARRAY_SIZE(expected) &&
			!memcmp(s.sample.callchain->ips, expected, sizeof(expected)));
	free(s.sample.callchain);

	s.sample.callchain = (struct ip_callchain *)&s.chain;
	s.sample.merged_callchain = false;
	s.sample.guest_read.pieces[GUEST_READ_INTERRUPTED].size = 0;
	end = guest_orc__unwind(orc, &s.sample);
	guest_orc__delete(orc);
	TEST_ASSERT_VAL("a stack that was not read", end == ORC_END_NO_STACK && is_as_recorded(&s));
	return 0;
}

/*
 * The code that the file has around an address, the last @after bytes of it behind the address.
 * @is_call: the address may be a return address; the kernel may have put another call before it.
 */
static const struct call_case {
	const char	*name;
	bool		is_call;
	u8		after;
	u8		size;
	u8		code[16];
} call_cases[] = {
	{ "call",			true,  0, 5, { 0xe8, 0x10, 0x00, 0x00, 0x00 } },
	{ "call of what is no code",	false, 0, 5, { 0xe8, 0x10, 0x00, 0x00, 0x40 } },
	{ "jmp",			false, 0, 5, { 0xe9, 0x10, 0x00, 0x00, 0x00 } },
	{ "call *%rax",			true,  0, 2, { 0xff, 0xd0 } },
	{ "jmp *%rax",			false, 0, 2, { 0xff, 0xe0 } },
	{ "call *%r11",			true,  0, 3, { 0x41, 0xff, 0xd3 } },
	{ "call *%r12",			true,  0, 3, { 0x41, 0xff, 0xd4 } },
	{ "call *(%rax)",		true,  0, 2, { 0xff, 0x10 } },
	{ "call *8(%rax)",		true,  0, 3, { 0xff, 0x50, 0x08 } },
	{ "call *8(%rsp)",		true,  0, 4, { 0xff, 0x54, 0x24, 0x08 } },
	{ "call *x(%rax)",		true,  0, 6, { 0xff, 0x90, 1, 2, 3, 4 } },
	{ "call *x(%rip)",		true,  0, 6, { 0xff, 0x15, 1, 2, 3, 4 } },
	{ "call *(%rsp)",		true,  0, 3, { 0xff, 0x14, 0x24 } },
	{ "call *x(%rsp)",		true,  0, 7, { 0xff, 0x94, 0x24, 1, 2, 3, 4 } },
	{ "call *x",			true,  0, 7, { 0xff, 0x14, 0x25, 1, 2, 3, 4 } },
	{ "within call *x(%rax)",	false, 2, 6, { 0xff, 0x90, 1, 2, 3, 4 } },
	{ "call *x(%rip), now call",	true,  1, 6, { 0xff, 0x15, 1, 2, 3, 4 } },
	{ "call *x, now call",		true,  2, 7, { 0xff, 0x14, 0x25, 1, 2, 3, 4 } },
	{ "retpoline, now call *%rax",	true,  3, 5, { 0xe8, 0x10, 0x00, 0x00, 0x00 } },
	{ "retpoline, now call *%r11",	true,  2, 5, { 0xe8, 0x10, 0x00, 0x00, 0x00 } },
	{ "within a call",		false, 1, 5, { 0xe8, 0x10, 0x00, 0x00, 0x00 } },
	{ "rep stosb, now call",	true,  0, 5, { 0xf3, 0xaa, 0x90, 0x90, 0x90 } },
	{ "two NOPs",			false, 0, 2, { 0x90, 0x90 } },
	{ "NOPs before a function",	false, 0, 16, { [0 ... 15] = 0x90 } },
	{ "NOP of the function tracer",	false, 0, 5, { 0x0f, 0x1f, 0x44, 0x00, 0x00 } },
	{ "lretq",			true,  0, 2, { 0x48, 0xcb } },
	{ "lret",			false, 0, 2, { 0x90, 0xcb } },
	{ "a kretprobe's trampoline",	true,  5, 5, { 0x68, 0x80, 0x00, 0x00, 0x81 } },
	{ "push of another address",	false, 5, 5, { 0x68, 0x81, 0x00, 0x00, 0x81 } },
};

static int test_call(const struct call_case *c)
{
	struct vmlinux file;
	struct guest_orc *orc;
	enum orc_end end;

	make_vmlinux(&file);
	memcpy(&file.code[NO_CALL + c->after - c->size], c->code, c->size);
	orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("the tables are not found", orc);

	end = unwind(orc, TEXT, NO_CALL, OUTERMOST_CALL);
	guest_orc__delete(orc);
	TEST_ASSERT_VAL(c->name, end == (c->is_call ? ORC_END_OUTERMOST : ORC_END_NO_CALL));
	return 0;
}

static int test__calls(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct vmlinux file;
	struct guest_orc *orc;

	for (size_t i = 0; i < ARRAY_SIZE(call_cases); i++) {
		if (test_call(&call_cases[i]))
			return -1;
	}

	make_vmlinux(&file);
	orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("the tables are not found", orc);
	TEST_ASSERT_VAL("begin of the code", unwind(orc, TEXT, 0, OUTERMOST_CALL) ==
			ORC_END_NO_CALL);
	TEST_ASSERT_VAL("begin of a thread", unwind(orc, TEXT, CALL_1, OUTERMOST) ==
			ORC_END_OUTERMOST);
	guest_orc__delete(orc);

	file.rules[1][2] = RULE_UNDEFINED;
	orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("tables with an undefined rule", orc);
	TEST_ASSERT_VAL("the graph tracer's trampoline", unwind(orc, TEXT, CALL_1, OUTERMOST) ==
			ORC_END_UNDEFINED);
	guest_orc__delete(orc);

	make_vmlinux(&file);
	make_section(&file, NOTES, ".init.text", TEXT + NO_CALL, file.code, 1);
	file.shdrs[NOTES].sh_flags = SHF_EXECINSTR;
	orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("a kernel with code for the boot", orc);
	TEST_ASSERT_VAL("code for the boot", unwind(orc, TEXT, NO_CALL, OUTERMOST_CALL) ==
			ORC_END_NO_CALL);
	guest_orc__delete(orc);

	file.shdrs[NOTES].sh_type = SHT_NOBITS;
	orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("a kernel that has booted", orc);
	TEST_ASSERT_VAL("code that is gone", unwind(orc, TEXT, NO_CALL, OUTERMOST_CALL) ==
			ORC_END_OUTERMOST);
	TEST_ASSERT_VAL("in front of it", unwind(orc, TEXT, NO_CALL - 1, OUTERMOST_CALL) ==
			ORC_END_NO_CALL);
	TEST_ASSERT_VAL("behind it", unwind(orc, TEXT, NO_CALL + 1, OUTERMOST_CALL) ==
			ORC_END_NO_CALL);
	guest_orc__delete(orc);

	make_vmlinux(&file);
	file.shdrs[CODE].sh_type = SHT_NOBITS;
	orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("a kernel without code", orc);
	TEST_ASSERT_VAL("code without data", unwind(orc, TEXT, CALL_1, CALL_2) ==
			ORC_END_NO_CALL);
	guest_orc__delete(orc);
	return 0;
}

/*
 * Some chains come to their end by chance with the tables of another kernel.  These tables must be
 * refused when NR_PROOFS chains have failed, as fewer have come to their end before.
 */
static int test__other_kernel(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct machine machine = { .guest_orc_tried = true };
	struct stack_sample s;
	struct vmlinux file;
	int i;

	make_vmlinux(&file);
	machine.guest_orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("the tables are not found", machine.guest_orc);

	for (i = 0; i < NR_PROOFS - 1; i++)
		unwind(machine.guest_orc, TEXT, CALL_1, OUTERMOST_CALL);
	for (i = 0; i < NR_PROOFS; i++) {
		TEST_ASSERT_VAL("refused too early", machine.guest_orc);
		make_sample(&s, TEXT, CALL_1, NO_CALL);
		TEST_ASSERT_VAL("end of a chain that fails",
				sample__unwind_guest(&s.sample, &machine) == ORC_END_NO_CALL);
		TEST_ASSERT_VAL("a chain that fails", is_as_recorded(&s));
	}
	TEST_ASSERT_VAL("another kernel is not refused", !machine.guest_orc);
	TEST_ASSERT_VAL("another kernel unwinds",
			sample__unwind_guest(&s.sample, &machine) == ORC_CONTINUE &&
			is_as_recorded(&s));
	return 0;
}

/* The stack has nothing but return addresses: more frames than a chain has room for. */
static int test__many_frames(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static u64 words[300];
	struct machine machine = { .guest_orc_tried = true };
	struct stack_sample s;
	struct vmlinux file;
	size_t i;

	make_vmlinux(&file);
	file.rules[0][0] = sizeof(u64);
	machine.guest_orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("the tables are not found", machine.guest_orc);

	for (i = 0; i < NR_PROOFS; i++) {
		make_sample(&s, TEXT, 0, 0);
		s.words[0] = TEXT + OUTERMOST_CALL;
		TEST_ASSERT_VAL("end of a short chain", ORC_END_OUTERMOST ==
				guest_orc__unwind(machine.guest_orc, &s.sample));
		free(s.sample.callchain);
	}

	make_sample(&s, TEXT, 0, 0);
	for (i = 0; i < ARRAY_SIZE(words); i++)
		words[i] = TEXT + CALL_1;
	s.sample.guest_read.pieces[0].size = sizeof(words);
	s.sample.guest_read.pieces[0].data = (const u8 *)words;
	TEST_ASSERT_VAL("end of a chain that is too long", ORC_END_NO_TABLE ==
			guest_orc__unwind(machine.guest_orc, &s.sample));
	/* The kernel's marker and frames, and user mode's marker with two frames. */
	TEST_ASSERT_VAL("length", s.sample.callchain->nr == 1 + 256 + 3);
	free(s.sample.callchain);
	guest_orc__delete(machine.guest_orc);
	return 0;
}

/* Once the tables are known to be the guest's, chains that fail are cut where they fail. */
static int test__own_kernel(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	const u64 expected[] = { PERF_CONTEXT_GUEST_KERNEL, TEXT + 0x10, TEXT + CALL_1,
				 PERF_CONTEXT_GUEST_USER, 0x401000, 0x402000 };
	struct machine machine = { .guest_orc_tried = true };
	struct stack_sample s;
	struct vmlinux file;

	make_vmlinux(&file);
	machine.guest_orc = load(&file, sizeof(file), 0);
	TEST_ASSERT_VAL("the tables are not found", machine.guest_orc);

	prove(machine.guest_orc, TEXT);
	for (int i = 0; i < 2 * NR_PROOFS; i++) {
		make_sample(&s, TEXT, CALL_1, NO_CALL);
		TEST_ASSERT_VAL("end of a chain that fails",
				sample__unwind_guest(&s.sample, &machine) == ORC_END_NO_CALL);
		TEST_ASSERT_VAL("allocated", s.sample.merged_callchain);
		TEST_ASSERT_VAL("chain", s.sample.callchain->nr == ARRAY_SIZE(expected) &&
				!memcmp(s.sample.callchain->ips, expected, sizeof(expected)));
		free(s.sample.callchain);
	}
	TEST_ASSERT_VAL("the guest's kernel is refused", machine.guest_orc);
	guest_orc__delete(machine.guest_orc);
	return 0;
}

static int test__build_id(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct dso *kernel = dso__new("[guest.kernel.kallsyms]");
	struct guest_orc *own, *unknown, *other, *forced;
	struct build_id bid;
	struct vmlinux file;

	TEST_ASSERT_VAL("no memory", kernel);
	make_vmlinux(&file);
	unknown = load_for(&file, sizeof(file), 0, kernel);
	build_id__init(&bid, file.build_id, BUILD_ID_SIZE);
	dso__set_build_id(kernel, &bid);
	own = load_for(&file, sizeof(file), 0, kernel);
	file.build_id[0]++;
	other = load_for(&file, sizeof(file), 0, kernel);
	symbol_conf.ignore_vmlinux_buildid = true;
	forced = load_for(&file, sizeof(file), 0, kernel);
	symbol_conf.ignore_vmlinux_buildid = false;

	guest_orc__delete(unknown);
	guest_orc__delete(own);
	guest_orc__delete(other);
	guest_orc__delete(forced);
	dso__put(kernel);
	TEST_ASSERT_VAL("build-id that is not known", unknown);
	TEST_ASSERT_VAL("same build-id", own);
	TEST_ASSERT_VAL("another build-id", !other);
	TEST_ASSERT_VAL("another build-id, ignored", forced);
	return 0;
}

/* More sections of code than perf keeps. */
#define NR_MORE		40

static int test__many_sections(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct {
		struct vmlinux	kernel;
		Elf64_Shdr	shdrs[NR_SECTIONS + NR_MORE];
	} file;
	struct guest_orc *orc;
	enum orc_end end;

	make_vmlinux(&file.kernel);
	memcpy(file.shdrs, file.kernel.shdrs, sizeof(file.kernel.shdrs));
	for (int i = NR_SECTIONS; i < NR_SECTIONS + NR_MORE; i++) {
		file.shdrs[i] = file.kernel.shdrs[CODE];
		file.shdrs[i].sh_name = 0;
		file.shdrs[i].sh_size = 1;
	}
	file.kernel.ehdr.e_shoff = offsetof(typeof(file), shdrs);
	file.kernel.ehdr.e_shnum += NR_MORE;
	orc = load_for(&file, sizeof(file), 0, NULL);
	TEST_ASSERT_VAL("the tables are not found", orc);
	end = unwind(orc, TEXT, CALL_1, NO_CALL);
	guest_orc__delete(orc);
	TEST_ASSERT_VAL("many sections of code", end == ORC_END_NO_CALL);
	return 0;
}

/* Addresses of a module in the guest, and offsets of its sections of code. */
#define MODULE		0xffffffffc0100000ULL
#define MODULE_END	(MODULE + 0x2000)
#define MODULE_TEXT	0x00
#define MODULE_B	0x80
#define MODULE_C	0xc0

#define TEXT_BYTES	0x48
#define B_BYTES		0x40
#define C_BYTES		0x40

enum {
	M_NOTHING, M_IPS, M_RULES, M_HASH, M_INIT, M_TEXT, M_B, M_RELOCS, M_C, M_SYMBOLS, M_NAMES,
	NR_M_SECTIONS
};

static const char module_names[] =
	"\0.init.text\0.text\0.text.b\0.text.c\0.rela.orc_unwind_ip\0.orc_unwind_ip\0"
	".orc_unwind\0.orc_header\0.symtab\0.names";

#define NR_ROWS		8

struct module {
	Elf64_Ehdr	ehdr;
	Elf64_Shdr	shdrs[NR_M_SECTIONS + NR_MORE];
	Elf64_Rela	relocs[NR_ROWS];
	/* One for each section up to M_C, by its number. */
	Elf64_Sym	symbols[M_C + 1];
	s32		ips[NR_ROWS];
	u16		rules[NR_ROWS][3];
	u8		hash[ORC_HASH_SIZE];
	char		names[sizeof(module_names)];
	u8		init[16];
	u8		text[TEXT_BYTES];
	u8		b[B_BYTES];
	u8		c[C_BYTES];
};

static void make_module_section(struct module *file, int nr, int type, const char *name,
				const void *data, u64 size, u64 align)
{
	file->shdrs[nr] = (Elf64_Shdr) {
		.sh_name = (const char *)memmem(module_names, sizeof(module_names), name,
						strlen(name) + 1) - module_names,
		.sh_type = type,
		.sh_offset = (const u8 *)data - (const u8 *)file,
		.sh_size = size,
		.sh_addralign = align,
	};
	if (align) {
		file->shdrs[nr].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
		file->symbols[nr].st_shndx = nr;
	}
}

/*
 * Make a row as in a file that is not linked: rows are not sorted, and each section but .init.text
 * has a last row without a rule.
 */
static void make_row(struct module *file, int row, int section, u64 offset, u16 sp_offset)
{
	file->relocs[row] = (Elf64_Rela) {
		.r_offset = row * ORC_IP_SIZE,
		.r_info = ELF64_R_INFO(section, R_X86_64_PC32),
		.r_addend = offset,
	};
	file->rules[row][0] = sp_offset;
	file->rules[row][2] = sp_offset ? RULE_CALL | RULE_SP : RULE_UNDEFINED;
}

static void make_module(struct module *file)
{
	struct vmlinux kernel;

	make_vmlinux(&kernel);
	*file = (struct module) { .ehdr = kernel.ehdr };
	file->ehdr.e_type = ET_REL;
	file->ehdr.e_shoff = offsetof(struct module, shdrs);
	file->ehdr.e_shnum = NR_M_SECTIONS;
	file->ehdr.e_shstrndx = M_NAMES;
	memcpy(file->hash, kernel.hash, sizeof(file->hash));
	memcpy(file->names, module_names, sizeof(module_names));
	/* Make a call that is not relocated, and one that needs no relocation. */
	file->b[0x10 - 5] = 0xe8;
	memcpy(&file->text[0x20 - sizeof(call_rax)], call_rax, sizeof(call_rax));

	make_module_section(file, M_INIT, SHT_PROGBITS, ".init.text", file->init,
			    sizeof(file->init), 16);
	make_module_section(file, M_TEXT, SHT_PROGBITS, ".text", file->text, TEXT_BYTES, 16);
	make_module_section(file, M_B, SHT_PROGBITS, ".text.b", file->b, B_BYTES, 64);
	make_module_section(file, M_C, SHT_PROGBITS, ".text.c", file->c, C_BYTES, 1);
	make_module_section(file, M_RELOCS, SHT_RELA, ".rela.orc_unwind_ip", file->relocs,
			    sizeof(file->relocs), 0);
	file->shdrs[M_RELOCS].sh_info = M_IPS;
	file->shdrs[M_RELOCS].sh_link = M_SYMBOLS;
	file->shdrs[M_RELOCS].sh_entsize = sizeof(Elf64_Rela);
	/* This section between sections of code is loaded as well, but is not code. */
	file->shdrs[M_RELOCS].sh_flags = SHF_ALLOC;
	make_module_section(file, M_IPS, SHT_PROGBITS, ".orc_unwind_ip", file->ips,
			    sizeof(file->ips), 0);
	make_module_section(file, M_RULES, SHT_PROGBITS, ".orc_unwind", file->rules,
			    sizeof(file->rules), 0);
	make_module_section(file, M_HASH, SHT_PROGBITS, ".orc_header", file->hash,
			    sizeof(file->hash), 0);
	make_module_section(file, M_SYMBOLS, SHT_SYMTAB, ".symtab", file->symbols,
			    sizeof(file->symbols), 0);
	file->shdrs[M_SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
	/*
	 * In a symbol table, sh_info is the number of local symbols.  If it happens to be the
	 * index of .orc_unwind_ip, perf must not take the symbols for that section's relocations.
	 */
	file->shdrs[M_SYMBOLS].sh_info = M_IPS;
	make_module_section(file, M_NAMES, SHT_STRTAB, ".names", file->names,
			    sizeof(file->names), 0);

	make_row(file, 0, M_C, 0, 8);
	make_row(file, 1, M_C, C_BYTES, 0);
	make_row(file, 2, M_INIT, 0, 32);
	make_row(file, 3, M_B, 8, 16);
	make_row(file, 4, M_B, B_BYTES, 0);
	make_row(file, 5, M_TEXT, 0, 24);
	make_row(file, 6, M_TEXT, TEXT_BYTES, 0);
	make_row(file, 7, M_B, 0, 48);
}

/*
 * Make a sample in a module's .text.c: the kernel has called .text, which has called .text.b, which
 * has called .text.c.
 */
static void make_module_sample(struct stack_sample *s)
{
	make_sample(s, TEXT, 0, 0);
	s->ip = MODULE + MODULE_C + 8;
	s->words[0] = MODULE + MODULE_B + 0x10;
	s->words[2] = MODULE + MODULE_TEXT + 0x20;
	s->words[5] = TEXT + OUTERMOST_CALL;
}

static enum orc_end unwind_module_of(const struct vmlinux *kernel, const struct module *file,
				     size_t size, u64 end, struct stack_sample *s)
{
	char path[] = "/tmp/perf-test-module-XXXXXX";
	struct guest_orc *orc = load(kernel, sizeof(*kernel), 0);
	enum orc_end why = NR_ORC_ENDS;

	/* Other modules, whose files can't be read, lie right above and below. */
	if (orc && write_file(path, file, size) &&
	    !guest_orc__add_module(orc, path, 0, NULL, MODULE, end) &&
	    !guest_orc__add_module(orc, "/", 0, NULL, end, end + 0x1000) &&
	    !guest_orc__add_module(orc, "/", 0, NULL, MODULE - 0x1000, MODULE)) {
		prove(orc, TEXT);
		make_module_sample(s);
		why = guest_orc__unwind(orc, &s->sample);
	}
	guest_orc__delete(orc);
	unlink(path);
	return why;
}

static enum orc_end unwind_module(const struct module *file, size_t size, u64 end,
				  struct stack_sample *s)
{
	struct vmlinux kernel;

	make_vmlinux(&kernel);
	return unwind_module_of(&kernel, file, size, end, s);
}

static int test__module(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	const u64 expected[] = { PERF_CONTEXT_GUEST_KERNEL, MODULE + MODULE_C + 8,
				 MODULE + MODULE_B + 0x10, MODULE + MODULE_TEXT + 0x20,
				 TEXT + OUTERMOST_CALL, PERF_CONTEXT_GUEST_USER, 0x401000,
				 0x402000 };
	struct stack_sample s;
	struct module file;
	enum orc_end end;

	make_module(&file);
	end = unwind_module(&file, sizeof(file), MODULE_END, &s);
	TEST_ASSERT_VAL("end", end == ORC_END_OUTERMOST);
	TEST_ASSERT_VAL("chain", s.sample.merged_callchain &&
			s.sample.callchain->nr == ARRAY_SIZE(expected) &&
			!memcmp(s.sample.callchain->ips, expected, sizeof(expected)));
	free(s.sample.callchain);

	/* The module has nothing but code, up to its last byte. */
	end = unwind_module(&file, sizeof(file), MODULE + MODULE_C + C_BYTES, &s);
	TEST_ASSERT_VAL("a module that is all code", end == ORC_END_OUTERMOST);
	free(s.sample.callchain);

	/* The data of a module is behind its code. */
	file.shdrs[M_B].sh_size = 0x10;
	file.shdrs[M_C].sh_flags = 0;
	end = unwind_module(&file, sizeof(file), MODULE_END, &s);
	TEST_ASSERT_VAL("data of a module", end == ORC_END_NO_TABLE && is_as_recorded(&s));
	return 0;
}

/* Another module lies right above. */
#define OTHER_MODULE_END	(MODULE_END + 0x1000)

/* Make a module's file as from the guest's memory: it has the layout of a kernel's. */
static void make_loaded_module(struct vmlinux *file)
{
	make_vmlinux(file);
	file->shdrs[CODE].sh_addr = MODULE;
	file->shdrs[ORC_IPS].sh_addr = IPS - TEXT + MODULE;
	/* It has no hash. */
	file->shdrs[ORC_HASH].sh_name = 0;
}

static enum orc_end unwind_loaded_module_of(const struct vmlinux *kernel,
					    const struct vmlinux *file, u64 start, u64 end,
					    struct stack_sample *s)
{
	char path[] = "/tmp/perf-test-module-XXXXXX";
	struct guest_orc *orc = load(kernel, sizeof(*kernel), 0);
	enum orc_end why = NR_ORC_ENDS;

	if (orc && write_file(path, file, sizeof(*file)) &&
	    !guest_orc__add_module(orc, "/", 0, NULL, MODULE_END, OTHER_MODULE_END) &&
	    !guest_orc__add_module(orc, path, 0, NULL, start, end)) {
		prove(orc, TEXT);
		make_sample(s, MODULE, CALL_1, 0);
		s->words[3] = TEXT + OUTERMOST_CALL;
		why = guest_orc__unwind(orc, &s->sample);
	}
	guest_orc__delete(orc);
	unlink(path);
	return why;
}

static enum orc_end unwind_loaded_module(const struct vmlinux *file, u64 start, u64 end,
					 struct stack_sample *s)
{
	struct vmlinux kernel;

	make_vmlinux(&kernel);
	return unwind_loaded_module_of(&kernel, file, start, end, s);
}

/* Let the module call @target right before CALL_1. */
static enum orc_end unwind_direct_call(struct vmlinux *file, u64 target)
{
	u8 *call = &file->code[CALL_1 - 5];
	struct stack_sample s;
	enum orc_end end;

	call[0] = 0xe8;
	put_unaligned_le32(target - MODULE - CALL_1, &call[1]);
	end = unwind_loaded_module(file, MODULE, MODULE + TEXT_SIZE, &s);
	if (end == ORC_END_OUTERMOST)
		free(s.sample.callchain);
	return end;
}

static int test__loaded_module(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	const u64 expected[] = { PERF_CONTEXT_GUEST_KERNEL, MODULE + 0x10, MODULE + CALL_1,
				 TEXT + OUTERMOST_CALL, PERF_CONTEXT_GUEST_USER, 0x401000,
				 0x402000 };
	struct stack_sample s;
	struct vmlinux file;
	enum orc_end end;

	make_loaded_module(&file);
	end = unwind_loaded_module(&file, MODULE, MODULE + TEXT_SIZE, &s);
	TEST_ASSERT_VAL("end", end == ORC_END_OUTERMOST);
	TEST_ASSERT_VAL("chain", s.sample.merged_callchain &&
			s.sample.callchain->nr == ARRAY_SIZE(expected) &&
			!memcmp(s.sample.callchain->ips, expected, sizeof(expected)));
	free(s.sample.callchain);

	TEST_ASSERT_VAL("a call of the kernel",
			unwind_direct_call(&file, TEXT) == ORC_END_OUTERMOST);
	TEST_ASSERT_VAL("a call of another module",
			unwind_direct_call(&file, OTHER_MODULE_END) == ORC_END_OUTERMOST);
	TEST_ASSERT_VAL("a call of what is below the kernel",
			unwind_direct_call(&file, TEXT - 1) == ORC_END_NO_CALL);
	TEST_ASSERT_VAL("a call of what is above all modules",
			unwind_direct_call(&file, OTHER_MODULE_END + 1) == ORC_END_NO_CALL);

	end = unwind_loaded_module(&file, MODULE, MODULE + TEXT_SIZE - 1, &s);
	TEST_ASSERT_VAL("a module that ends earlier", end == ORC_END_NO_TABLE);
	end = unwind_loaded_module(&file, MODULE + 1, MODULE + TEXT_SIZE, &s);
	TEST_ASSERT_VAL("a module that begins later", end == ORC_END_NO_TABLE);

	file.shdrs[ORC_IPS].sh_size--;
	end = unwind_loaded_module(&file, MODULE, MODULE + TEXT_SIZE, &s);
	TEST_ASSERT_VAL("broken tables", end == ORC_END_NO_TABLE);
	return 0;
}

/*
 * Unwind by the tables of a kernel that has the format of 6.4, but no hash.  The kernel's own
 * entries show the format.  Those of its module don't: none is for saved registers, so they could
 * be an older kernel's.
 */
static int test__other_format(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct vmlinux kernel, file;
	struct stack_sample s;
	enum orc_end end;

	make_vmlinux(&kernel);
	kernel.shdrs[ORC_HASH].sh_name = 0;
	kernel.rules[0][2] = RULE_CALL_6_4;
	kernel.rules[2][2] = RULE_REGS_6_4;
	make_loaded_module(&file);
	file.rules[0][2] = RULE_CALL_6_4;
	end = unwind_loaded_module_of(&kernel, &file, MODULE, MODULE + TEXT_SIZE, &s);
	TEST_ASSERT_VAL("a module that does not show its format", end == ORC_END_OUTERMOST);
	free(s.sample.callchain);
	return 0;
}

/* Unwind by an older kernel and its module, whose tables have no hash. */
static int test__old_module(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct vmlinux kernel;
	struct stack_sample s;
	struct module file;
	enum orc_end end;

	make_vmlinux(&kernel);
	kernel.shdrs[ORC_HASH].sh_name = 0;
	kernel.rules[0][2] = OLD_RULE_CALL;
	kernel.rules[1][2] = OLD_RULE_END;
	make_module(&file);
	file.shdrs[M_HASH].sh_name = 0;
	for (int i = 0; i < NR_ROWS; i++) {
		if (file.rules[i][2])
			file.rules[i][2] = OLD_RULE_CALL;
	}
	end = unwind_module_of(&kernel, &file, sizeof(file), MODULE_END, &s);
	TEST_ASSERT_VAL("a module of an old kernel", end == ORC_END_OUTERMOST);
	free(s.sample.callchain);
	return 0;
}

/* A chain ends before a return address in a module that was refused. */
static int test__refused_module(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	char path[] = "/tmp/perf-test-module-XXXXXX";
	struct guest_orc *orc;
	struct stack_sample s;
	struct vmlinux kernel;
	struct module file;
	enum orc_end end;

	make_vmlinux(&kernel);
	make_module(&file);
	orc = load(&kernel, sizeof(kernel), 0);
	TEST_ASSERT_VAL("the tables are not found", orc);
	TEST_ASSERT_VAL("no file", write_file(path, &file, sizeof(file)));
	TEST_ASSERT_VAL("no memory", !guest_orc__add_module(orc, path, 0, NULL, MODULE,
							    MODULE + MODULE_C));
	make_sample(&s, TEXT, CALL_1, 0);
	s.words[3] = MODULE + 0x30;
	end = guest_orc__unwind(orc, &s.sample);
	guest_orc__delete(orc);
	unlink(path);
	TEST_ASSERT_VAL("a refused module that has called", end == ORC_END_NO_TABLE);
	return 0;
}

/* Wrong calls or frames of a module don't count against the tables of the kernel. */
static int test__replaced_module(struct test_suite *test __maybe_unused,
				 int subtest __maybe_unused)
{
	const u64 expected[] = { PERF_CONTEXT_GUEST_KERNEL, MODULE + MODULE_C + 8,
				 MODULE + MODULE_B + 0x10, PERF_CONTEXT_GUEST_USER, 0x401000,
				 0x402000 };
	struct machine machine = { .guest_orc_tried = true };
	char path[] = "/tmp/perf-test-module-XXXXXX";
	struct stack_sample s;
	struct vmlinux kernel;
	struct module file;

	make_vmlinux(&kernel);
	make_module(&file);
	file.text[0x20 - 1] = 0x90;
	machine.guest_orc = load(&kernel, sizeof(kernel), 0);
	TEST_ASSERT_VAL("the tables are not found", machine.guest_orc);
	TEST_ASSERT_VAL("no file", write_file(path, &file, sizeof(file)));
	TEST_ASSERT_VAL("no memory", !guest_orc__add_module(machine.guest_orc, path, 0, NULL,
							    MODULE, MODULE_END));

	for (int i = 0; i < 2 * NR_PROOFS; i++) {
		make_module_sample(&s);
		s.words[2] = i & 1 ? MODULE + MODULE_TEXT + 0x20 : TEXT + NO_CALL;
		TEST_ASSERT_VAL("end", sample__unwind_guest(&s.sample, &machine) ==
				ORC_END_NO_CALL);
		TEST_ASSERT_VAL("the kernel's tables are given up", machine.guest_orc);
		TEST_ASSERT_VAL("a chain that fails", is_as_recorded(&s));
	}

	/*
	 * Once the kernel's tables are known to be the guest's, the chain is cut before the wrong
	 * frame.
	 */
	prove(machine.guest_orc, TEXT);
	make_module_sample(&s);
	TEST_ASSERT_VAL("end of a chain that is cut",
			sample__unwind_guest(&s.sample, &machine) == ORC_END_NO_CALL);
	TEST_ASSERT_VAL("a chain that is cut", s.sample.merged_callchain &&
			s.sample.callchain->nr == ARRAY_SIZE(expected) &&
			!memcmp(s.sample.callchain->ips, expected, sizeof(expected)));
	free(s.sample.callchain);
	guest_orc__delete(machine.guest_orc);
	unlink(path);
	return 0;
}

static int write_below(const char *dir, const char *name, const void *data, size_t size)
{
	char path[PATH_MAX], *slash;
	int fd, written;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	slash = strrchr(path, '/');
	*slash = '\0';
	if (mkdir_p(path, 0755))
		return -1;
	*slash = '/';
	fd = open(path, O_WRONLY | O_CREAT, 0644);
	if (fd < 0)
		return -1;
	written = write(fd, data, size);
	close(fd);
	return written == (int)size ? 0 : -1;
}

/* Add the map of the module as perf record has written it with the guest's root elsewhere. */
static int add_module_map(struct machine *machine)
{
	union perf_event event = {
		.mmap2 = {
			.header.type = PERF_RECORD_MMAP2,
			.pid = machine->pid,
			.start = MODULE,
			.len = MODULE_END - MODULE,
			.filename = "/elsewhere/77/lib/modules/7.3/kernel/m.ko",
		},
	};
	struct perf_sample sample = { .cpumode = PERF_RECORD_MISC_GUEST_KERNEL };

	return machine__process_mmap2_event(machine, &event, &sample);
}

static int test_guest_in(const char *dir)
{
	static const char version[] = "Linux version 7.3 (root@guest)\n";
	struct machines machines;
	struct machine *machine;
	struct stack_sample s;
	struct vmlinux kernel;
	struct module file;

	make_vmlinux(&kernel);
	make_module(&file);
	TEST_ASSERT_VAL("no files",
			!write_below(dir, "proc/version", version, sizeof(version) - 1) &&
			!write_below(dir, "boot/vmlinux-7.3", &kernel, sizeof(kernel)) &&
			!write_below(dir, "lib/modules/7.3/kernel/m.ko", &file, sizeof(file)));

	machines__init(&machines);
	machine = machines__add(&machines, 77, dir);
	TEST_ASSERT_VAL("no guest", machine && !add_module_map(machine));
	make_module_sample(&s);
	TEST_ASSERT_VAL("end in a guest's root",
			sample__unwind_guest(&s.sample, machine) == ORC_END_OUTERMOST);
	free(s.sample.callchain);
	/* machines__exit() does not close the files of guests. */
	guest_orc__delete(machine->guest_orc);
	machine->guest_orc = NULL;

	/* A guest without a root does not use the files of another guest or of the host. */
	machine = machines__add(&machines, 78, "");
	TEST_ASSERT_VAL("no second guest", machine && !add_module_map(machine));
	make_module_sample(&s);
	TEST_ASSERT_VAL("a guest without a root",
			sample__unwind_guest(&s.sample, machine) == ORC_CONTINUE &&
			is_as_recorded(&s));
	machines__exit(&machines);
	return 0;
}

/* Find the kernel and a module in the root file system of the guest. */
static int test__guest_root(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	char dir[] = "/tmp/perf-test-guest-XXXXXX";
	int err;

	TEST_ASSERT_VAL("no directory", mkdtemp(dir));
	err = test_guest_in(dir);
	rm_rf(dir);
	return err;
}

/*
 * Ways to break a module's file.  Chains through a broken module must stay as they were recorded.
 */
static void no_sections(struct module *file)
{
	for (int i = 0; i <= M_C; i++)
		file->symbols[i].st_shndx = SHN_ABS;
}

static void offsets_beyond(struct module *file)
{
	for (int i = 0; i < NR_ROWS; i++)
		file->relocs[i].r_offset += sizeof(file->ips);
}

static void other_relocs(struct module *file)
{
	for (int i = 0; i < NR_ROWS; i++)
		file->relocs[i].r_info = ELF64_R_INFO(M_B, R_X86_64_64);
}

static void far_symbols(struct module *file)
{
	for (int i = 0; i <= M_C; i++)
		file->symbols[i].st_value = 0x10000;
}

static void many_sections(struct module *file)
{
	file->ehdr.e_shnum += NR_MORE;
	for (int i = 0; i < NR_MORE; i++) {
		file->shdrs[NR_M_SECTIONS + i] = file->shdrs[M_C];
		file->shdrs[NR_M_SECTIONS + i].sh_size = 1;
	}
}

static void section_beyond(struct module *file)
{
	for (int i = 0; i <= M_C; i++)
		file->symbols[i].st_shndx = NR_M_SECTIONS;
}

#define SET(_field, _value)								\
	.at = offsetof(struct module, _field), .size = sizeof(((struct module *)NULL)->_field), \
	.value = _value

static const struct module_case {
	const char	*name;
	void		(*spoil)(struct module *file);	/* or else, change a field: */
	size_t		at;
	size_t		size;
	u64		value;
} module_cases[] = {
	{ "no relocations of the table",	SET(shdrs[M_RELOCS].sh_info, M_HASH) },
	{ "another hash than the kernel's",	SET(hash[0], 0) },
	{ "a hash of another size",		SET(shdrs[M_HASH].sh_size, 8) },
	{ "no hash, unlike the kernel",		SET(shdrs[M_HASH].sh_name, 0) },
	{ "a hash that is not in the file",	SET(shdrs[M_HASH].sh_type, SHT_NOBITS) },
	{ "no rules",				SET(shdrs[M_RULES].sh_name, 0) },
	{ "rules that are not in the file",	SET(shdrs[M_RULES].sh_type, SHT_NOBITS) },
	{ "a name beyond the names",		SET(shdrs[M_C].sh_name, 1 << 20) },
	{ "symbols of a section beyond the last", .spoil = section_beyond },
	{ "a huge alignment",			SET(shdrs[M_B].sh_addralign, 1ULL << 40) },
	{ "fewer rules than addresses",		SET(shdrs[M_RULES].sh_size, 6 * (NR_ROWS - 1)) },
	{ "too many sections of code",		.spoil = many_sections },
	{ "an alignment that is no power of 2",	SET(shdrs[M_TEXT].sh_addralign, 24) },
	{ "a section that is too large",	SET(shdrs[M_TEXT].sh_size, 1ULL << 40) },
	{ "another machine",			SET(ehdr.e_machine, EM_AARCH64) },
	{ "a file that is linked",		SET(ehdr.e_type, ET_DYN) },
	{ "relocations without symbols",	SET(shdrs[M_SYMBOLS].sh_size, sizeof(Elf64_Sym)) },
	{ "symbols without a section",		.spoil = no_sections },
	{ "relocations beyond the table",	.spoil = offsets_beyond },
	{ "relocations of another type",	.spoil = other_relocs },
	{ "addresses beyond the module",	.spoil = far_symbols },
};

static int test_broken_module(const char *name, const struct module *file, size_t size, u64 end)
{
	struct stack_sample s;
	enum orc_end why = unwind_module(file, size, end, &s);

	TEST_ASSERT_VAL(name, why == ORC_END_NO_TABLE && is_as_recorded(&s));
	return 0;
}

static int test__broken_modules(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct module file;

	for (size_t i = 0; i < ARRAY_SIZE(module_cases); i++) {
		make_module(&file);
		if (module_cases[i].spoil)
			module_cases[i].spoil(&file);
		memcpy((u8 *)&file + module_cases[i].at, &module_cases[i].value,
		       module_cases[i].size);
		if (test_broken_module(module_cases[i].name, &file, sizeof(file), MODULE_END))
			return -1;
	}

	make_module(&file);
	if (test_broken_module("a file that is cut short", &file, sizeof(file.ehdr), MODULE_END))
		return -1;
	return test_broken_module("a module that is too large", &file, sizeof(file),
				  MODULE + MODULE_C);
}

#ifdef HAVE_ZSTD_SUPPORT
/* A bzImage whose kernel is one uncompressed block of zstd. */
struct vmlinuz {
	u8		setup[2 * 512];
	u8		before[16];
	u8		frame[10];
	struct vmlinux	vmlinux;
	u8		size[4];
} __packed;

static void make_vmlinuz(struct vmlinuz *file)
{
	/* The magic, and the header: one segment, whose size less 256 follows in two bytes. */
	static const u8 frame[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x60 };
	const size_t size = sizeof(file->vmlinux);
	struct vmlinux vmlinux;

	*file = (struct vmlinuz) {};
	file->setup[0x1f1] = 1;
	memcpy(&file->setup[0x202], "HdrS\x08\x02", 6);
	file->setup[0x248] = sizeof(file->before);
	put_unaligned_le32(sizeof(*file) - offsetof(struct vmlinuz, frame), &file->setup[0x24c]);
	memcpy(file->frame, frame, sizeof(frame));
	put_unaligned_le16(size - 256, &file->frame[5]);
	/* The header of a block: it is the last one, is not compressed, and has this size. */
	put_unaligned_le24(1 | 0 << 1 | size << 3, &file->frame[7]);
	make_vmlinux(&vmlinux);
	file->vmlinux = vmlinux;
	put_unaligned_le32(size, file->size);
}

static bool loads_vmlinuz(const struct vmlinuz *file, size_t size)
{
	struct guest_orc *orc = load_for(file, size, 0, NULL);

	guest_orc__delete(orc);
	return orc;
}

static int test__vmlinuz(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct vmlinuz file;

	make_vmlinuz(&file);
	TEST_ASSERT_VAL("a vmlinuz", loads_vmlinuz(&file, sizeof(file)));
	TEST_ASSERT_VAL("a vmlinuz that is cut short", !loads_vmlinuz(&file, sizeof(file) - 1));

	file.setup[0x206] = 7;
	TEST_ASSERT_VAL("an old boot protocol", !loads_vmlinuz(&file, sizeof(file)));

	make_vmlinuz(&file);
	file.frame[0]++;
	TEST_ASSERT_VAL("unknown compression", !loads_vmlinuz(&file, sizeof(file)));

	make_vmlinuz(&file);
	file.size[0]++;
	TEST_ASSERT_VAL("less than its size says", !loads_vmlinuz(&file, sizeof(file)));
	file.size[3] = 0xff;
	TEST_ASSERT_VAL("a size that is too large", !loads_vmlinuz(&file, sizeof(file)));

	make_vmlinuz(&file);
	put_unaligned_le32(4, &file.setup[0x24c]);
	TEST_ASSERT_VAL("no room for a size", !loads_vmlinuz(&file, sizeof(file)));
	put_unaligned_le32(-1, &file.setup[0x24c]);
	TEST_ASSERT_VAL("a payload that is too large", !loads_vmlinuz(&file, sizeof(file)));

	make_vmlinuz(&file);
	file.vmlinux.ehdr.e_machine = EM_AARCH64;
	TEST_ASSERT_VAL("another machine's", !loads_vmlinuz(&file, sizeof(file)));
	return 0;
}
#endif

/* Return true if -g reads the guest's stack with this file as the guest's kernel. */
static bool is_at_hand(const struct vmlinux *file)
{
	char path[] = "/tmp/perf-test-vmlinux-XXXXXX";
	bool at_hand;

	symbol_conf.default_guest_vmlinux_name = path;
	at_hand = write_file(path, file, sizeof(*file)) && guest_orc__is_at_hand();
	symbol_conf.default_guest_vmlinux_name = NULL;
	unlink(path);
	return at_hand;
}

static int test__at_hand(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct vmlinux file;

	TEST_ASSERT_VAL("nothing is named", !guest_orc__is_at_hand());
	make_vmlinux(&file);
	TEST_ASSERT_VAL("a kernel with tables", is_at_hand(&file));
	file.shdrs[ORC_IPS].sh_size = 0;
	TEST_ASSERT_VAL("a kernel without tables", !is_at_hand(&file));

	symbol_conf.guestmount = "/";
	TEST_ASSERT_VAL("guests' root file systems", guest_orc__is_at_hand());
	symbol_conf.guestmount = NULL;
	return 0;
}

static int test__refused(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct vmlinux file;

	make_vmlinux(&file);
	file.shdrs[ORC_HASH].sh_size = 8;
	TEST_ASSERT_VAL("a hash of another size", !load(&file, sizeof(file), 0));

	make_vmlinux(&file);
	file.hash[0]++;
	TEST_ASSERT_VAL("an unknown hash", !load(&file, sizeof(file), 0));

	make_vmlinux(&file);
	file.shdrs[ORC_RULES].sh_size -= 2;
	TEST_ASSERT_VAL("less rules than addresses", !load(&file, sizeof(file), 0));

	make_vmlinux(&file);
	file.shdrs[ORC_IPS].sh_offset = sizeof(file);
	TEST_ASSERT_VAL("a section beyond the end", !load(&file, sizeof(file), 0));

	make_vmlinux(&file);
	file.ehdr.e_machine = EM_AARCH64;
	TEST_ASSERT_VAL("another machine", !load(&file, sizeof(file), 0));
	TEST_ASSERT_VAL("a file that is cut short", !load(&file, sizeof(file.ehdr) - 1, 0));
	return 0;
}
#endif

static struct test_case tests__guest_stack[] = {
	TEST_CASE("Records", records),
#ifdef HAVE_LIBELF_SUPPORT
	TEST_CASE("Kernels", unwind),
	TEST_CASE("Stacks that IRQs interrupt", interrupted),
	TEST_CASE("Broken kernels", refused),
	TEST_CASE("Kernels with many sections", many_sections),
	TEST_CASE("Build-ids", build_id),
	TEST_CASE("Calls before return addresses", calls),
	TEST_CASE("More frames than a chain has", many_frames),
	TEST_CASE("Chains that fail", own_kernel),
	TEST_CASE("Tables of another kernel", other_kernel),
	TEST_CASE("Modules", module),
	TEST_CASE("Broken modules", broken_modules),
	TEST_CASE("Modules that were replaced", replaced_module),
	TEST_CASE("Modules that were refused", refused_module),
	TEST_CASE("Modules of an old kernel", old_module),
	TEST_CASE("Modules from the guest's memory", loaded_module),
	TEST_CASE("Such modules that don't show their format", other_format),
	TEST_CASE("Files in the guest's root", guest_root),
#ifdef HAVE_ZSTD_SUPPORT
	TEST_CASE("Compressed kernels", vmlinuz),
#endif
	TEST_CASE("Kernel that -g is for", at_hand),
#endif
	{ .name = NULL, }
};

struct test_suite suite__guest_stack = {
	.desc = "Stacks of guests",
	.test_cases = tests__guest_stack,
};
