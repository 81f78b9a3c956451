// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzz tools/perf/util/guest-orc.c, orc-module.c, unwind-orc.c and guest-user.c under libFuzzer.
 *
 * The input determines a guest's vmlinux, a module, and some reads of the guest's registers and
 * stacks.  The files are small, and some are changed; 1 of 8 vmlinux files is raw bytes of the
 * input.  AddressSanitizer and UBSan look for errors.  The result must be a valid chain.
 */
#include <elf.h>
#include <fcntl.h>
#include <libelf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/zalloc.h>
#include <perf/event.h>

#include "build-id.h"
#include "callchain.h"
#include "debug.h"
#include "dso.h"
#include "event.h"
#include "guest-orc.h"
#include "guest-reads.h"
#include "guest-regs.h"
#include "guest-user.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "path.h"
#include "sample.h"
#include "symbol.h"
#include "symbol_conf.h"
#include "vmlinuz.h"

#define TEXT		0xffffffff81000000ULL
#define IPS		0xffffffff82000000ULL
#define STACK		0xffffc90000001000ULL
#define IRQ_STACK	0xffffc90000042000ULL
#define MOVED		0x2a00000ULL
#define MODULE		0xffffffffc0100000ULL
#define USER_STACK	0x7ffc00001000ULL
#define USER_STACK_32	0xff801000ULL
#define USER_TEXT	0x401000ULL

#define NR_RULES	16
#define RULE_SIZE	16
#define CODE_SIZE	(NR_RULES * RULE_SIZE)
#define MAX_WORDS	64

/* The most frames of the kernel and of user mode, see guest-orc.c and guest-user.c. */
#define MAX_FRAMES	256

/* Addresses of user mode have 56 bits at most. */
#define MAX_USER	BIT_ULL(56)

enum { NOTHING, CODE, ORC_IPS, ORC_RULES, ORC_HASH, NAMES, NR_SECTIONS };

static const char names[] = "\0.text\0.orc_unwind_ip\0.orc_unwind\0.orc_header\0.names";

/* The code comes last, so that a read beyond it is a read beyond the file. */
struct vmlinux {
	Elf64_Ehdr	ehdr;
	Elf64_Shdr	shdrs[NR_SECTIONS];
	s32		ips[NR_RULES];
	u16		rules[NR_RULES][3];
	u8		hash[ORC_HASH_SIZE];
	char		names[sizeof(names)];
	u8		code[CODE_SIZE];
} __packed;

enum {
	M_NOTHING, M_INIT, M_TEXT, M_B, M_RELOCS, M_IPS, M_RULES, M_HASH, M_SYMBOLS, M_NAMES,
	NR_M_SECTIONS
};

static const char module_names[] =
	"\0.init.text\0.text\0.text.b\0.rela.orc_unwind_ip\0.orc_unwind_ip\0.orc_unwind\0"
	".orc_header\0.symtab\0.names";

/* Here, too, the code comes last.  .text.b directly follows .text, as in the guest. */
struct module {
	Elf64_Ehdr	ehdr;
	Elf64_Shdr	shdrs[NR_M_SECTIONS];
	Elf64_Rela	relocs[NR_RULES];
	Elf64_Sym	symbols[M_B + 1];
	s32		ips[NR_RULES];
	u16		rules[NR_RULES][3];
	u8		hash[ORC_HASH_SIZE];
	char		names[sizeof(module_names)];
	u8		init[RULE_SIZE];
	u8		code[CODE_SIZE];
} __packed;

static const u8 hashes[][ORC_HASH_SIZE] = {
	{ 0xfe, 0x5d, 0x32, 0xbf, 0x58, 0x1b, 0xd6, 0x3b, 0x2c, 0xa9,
	  0xa5, 0xc6, 0x5b, 0xa5, 0xa6, 0x25, 0xea, 0xb3, 0xfe, 0x24 },
	{ 0x13, 0x7c, 0x36, 0xad, 0x76, 0x27, 0xc4, 0xdd, 0x55, 0x93,
	  0x21, 0x76, 0xbb, 0x0e, 0xcd, 0xbd, 0x50, 0x41, 0xfc, 0x82 },
};

#define FUZZ_ASSERT(_cond, ...)						\
do {									\
	if (!(_cond)) {							\
		fprintf(stderr, "fuzz_guest_stack: " __VA_ARGS__);	\
		fputc('\n', stderr);					\
		abort();						\
	}								\
} while (0)

/*
 * The bytes of the input.  When they are used up, rnd() returns random numbers; their seed is the
 * input's first 8 bytes.
 */
static struct {
	const u8 *data;
	size_t size;
	u64 state;
} input;

static u64 rnd(unsigned int nr_bytes)
{
	u64 value = 0;

	if (input.size >= nr_bytes) {
		memcpy(&value, input.data, nr_bytes);
		input.data += nr_bytes;
		input.size -= nr_bytes;
		return value;
	}

	input.size = 0;
	input.state ^= input.state << 13;
	input.state ^= input.state >> 7;
	input.state ^= input.state << 17;
	return input.state * 0x2545f4914f6cdd1dULL >> (64 - 8 * nr_bytes);
}

static u64 rnd_below(unsigned int limit)
{
	return rnd(2) % limit;
}

/*
 * The file that libelf opens next.  The allocation has exactly its size, so that AddressSanitizer
 * finds reads beyond the file.
 */
static u8 *file;
static size_t file_size;

static void make_file(const void *data)
{
	file = malloc(file_size ?: 1);
	memcpy(file, data, file_size);
}

Elf *__wrap_elf_begin(int fd, Elf_Cmd cmd, Elf *ref);

Elf *__wrap_elf_begin(int fd __maybe_unused, Elf_Cmd cmd __maybe_unused,
		      Elf *ref __maybe_unused)
{
	return elf_memory((char *)file, file_size);
}

/* Stubs of the parts of perf that guest-orc.c refers to, just enough to load tables and unwind. */
struct symbol_conf symbol_conf;
int verbose;

int eprintf(int level __maybe_unused, int var __maybe_unused, const char *fmt __maybe_unused, ...)
{
	return 0;
}

void *zalloc(size_t size)
{
	return calloc(1, size);
}

struct kmap *map__kmap(struct map *map __maybe_unused)
{
	return NULL;
}

int maps__for_each_map(struct maps *maps __maybe_unused,
		       int (*cb)(struct map *map, void *data) __maybe_unused,
		       void *data __maybe_unused)
{
	return 0;
}

int sysfs__read_build_id(const char *filename __maybe_unused,
			 struct build_id *bid __maybe_unused)
{
	return -1;
}

const char *guest_folder__missing(void)
{
	return NULL;
}

bool is_regular_file(const char *file __maybe_unused)
{
	return true;
}

const char *vmlinuz__open(const char *path, int *fd)
{
	*fd = open(path, O_RDONLY);
	return *fd < 0 ? "it can't be opened" : NULL;
}

char *machine__kernel_version(const struct machine *machine __maybe_unused)
{
	return NULL;
}

unsigned int machine__guest_va_bits(struct machine *machine __maybe_unused)
{
	return 48;
}

int filename__decompress(const char *name __maybe_unused, char *pathname __maybe_unused,
			 size_t len __maybe_unused, int comp __maybe_unused,
			 int *err __maybe_unused)
{
	return -1;
}

bool build_id__is_defined(const struct build_id *bid __maybe_unused)
{
	return false;
}

bool dso__build_id_equal(const struct dso *dso __maybe_unused,
			 const struct build_id *bid __maybe_unused)
{
	return true;
}

int filename__read_build_id(const char *filename __maybe_unused,
			    struct build_id *bid __maybe_unused)
{
	return -1;
}

static void make_section(struct vmlinux *vmlinux, int nr, const char *name, u64 addr,
			 const void *data, u64 size)
{
	vmlinux->shdrs[nr] = (Elf64_Shdr) {
		.sh_name = (const char *)memmem(names, sizeof(names), name, strlen(name) + 1) -
			   names,
		.sh_type = SHT_PROGBITS,
		.sh_addr = addr,
		.sh_offset = (const u8 *)data - (const u8 *)vmlinux,
		.sh_size = size,
	};
}

/* Make a rule: mostly one that can find a next frame, and random bits in 1 of 16 rules. */
static void make_rule(u16 rule[3])
{
	static const u16 usual[] = {
		2 << 8 | 3,		/* 7.3: a call, by SP */
		2 << 8 | 4,		/* by BP */
		2 << 8 | 8 << 4 | 3,	/* by SP; BP is on the stack */
		3 << 8 | 1 << 11 | 3,	/* interrupted code */
		4 << 8 | 1 << 11 | 3,
		2 << 8 | 9,		/* SP is on the stack */
		2 << 8 | 10,
		2 << 8 | 5,		/* 6.4: a call, by SP */
		2 << 8 | 1 << 4 | 5,
		3 << 8 | 1 << 11 | 5,
		0 << 8 | 5,		/* 6.1: likewise */
		1 << 8 | 5,
		1 << 8 | 1 << 10,
	};
	unsigned int kind = rnd(1);

	rule[0] = 8 * rnd_below(16);
	rule[1] = -8 * (int)rnd_below(4);
	rule[2] = usual[kind % ARRAY_SIZE(usual)];
	if (kind >= 240) {
		rule[0] = rnd(2);
		rule[1] = rnd(2);
		rule[2] = rnd(2);
	}
}

/* Put an instruction before each 16th byte: a call of one of six kinds, or one that is no call. */
static void make_code(u8 *code)
{
	static const u8 calls[][7] = {
		{ 0x90, 0x90, 0xe8, 0x10, 0x00, 0x00, 0x00 },
		{ 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0 },
		{ 0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd3 },
		{ 0x90, 0xff, 0x15, 0x01, 0x02, 0x03, 0x04 },
		{ 0xff, 0x94, 0x24, 0x01, 0x02, 0x03, 0x04 },
		{ 0xff, 0x14, 0x25, 0x01, 0x02, 0x03, 0x04 },
		{ 0x90, 0x90, 0x0f, 0x1f, 0x44, 0x00, 0x00 },
	};
	unsigned int i;

	for (i = 0; i < NR_RULES; i++) {
		u8 kind = rnd(1);

		memset(&code[i * RULE_SIZE], kind, RULE_SIZE);
		memcpy(&code[(i + 1) * RULE_SIZE - sizeof(calls[0])],
		       calls[kind % ARRAY_SIZE(calls)], sizeof(calls[0]));
	}
}

/* Leave 5 of 8 files as they are.  In the others, change one to three values in @data. */
static void change(void *data, size_t nr_bytes)
{
	unsigned int changes;

	for (changes = rnd_below(8); changes > 4; changes--) {
		unsigned int size = 1 << rnd_below(4);
		u64 value = rnd_below(2) ? rnd(8) : -rnd_below(64);

		memcpy((u8 *)data + rnd_below(nr_bytes - size), &value, size);
	}
}

static void make_vmlinux(struct vmlinux *vmlinux)
{
	unsigned int i;

	*vmlinux = (struct vmlinux) {
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
	};
	memcpy(vmlinux->names, names, sizeof(names));
	memcpy(vmlinux->hash, hashes[rnd_below(ARRAY_SIZE(hashes))], ORC_HASH_SIZE);
	make_code(vmlinux->code);
	for (i = 0; i < NR_RULES; i++) {
		vmlinux->ips[i] = (s32)(TEXT + i * RULE_SIZE - (IPS + i * ORC_IP_SIZE));
		make_rule(vmlinux->rules[i]);
	}

	make_section(vmlinux, CODE, ".text", TEXT, vmlinux->code, sizeof(vmlinux->code));
	vmlinux->shdrs[CODE].sh_flags = SHF_EXECINSTR;
	make_section(vmlinux, ORC_IPS, ".orc_unwind_ip", IPS, vmlinux->ips, sizeof(vmlinux->ips));
	make_section(vmlinux, ORC_RULES, ".orc_unwind", 0, vmlinux->rules,
		     sizeof(vmlinux->rules));
	/* Kernels before 6.3.10 have no .orc_header. */
	if (rnd_below(4))
		make_section(vmlinux, ORC_HASH, ".orc_header", 0, vmlinux->hash,
			     sizeof(vmlinux->hash));
	make_section(vmlinux, NAMES, ".names", 0, vmlinux->names, sizeof(vmlinux->names));
	vmlinux->shdrs[NAMES].sh_type = SHT_STRTAB;

	/* Sometimes, a section is not in the file.  The code may end within a call. */
	if (!rnd_below(16))
		vmlinux->shdrs[rnd_below(NR_SECTIONS)].sh_type = SHT_NOBITS;
	file_size = sizeof(*vmlinux) - rnd_below(8);
	vmlinux->shdrs[CODE].sh_size -= sizeof(*vmlinux) - file_size;

	change(vmlinux, rnd_below(4) ? offsetof(struct vmlinux, names) : sizeof(*vmlinux));
}

static void make_module_section(struct module *module, int nr, u32 type, const char *name,
				const void *data, u64 size, u64 entry_size)
{
	module->shdrs[nr] = (Elf64_Shdr) {
		.sh_name = (const char *)memmem(module_names, sizeof(module_names), name,
						strlen(name) + 1) - module_names,
		.sh_type = type,
		.sh_offset = (const u8 *)data - (const u8 *)module,
		.sh_size = size,
		.sh_entsize = entry_size,
	};
}

static void make_module_code(struct module *module, int nr, const char *name, const void *data,
			     u64 size)
{
	make_module_section(module, nr, SHT_PROGBITS, name, data, size, 0);
	module->shdrs[nr].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
	module->shdrs[nr].sh_addralign = 1 << rnd_below(5);
	module->symbols[nr].st_shndx = nr;
}

static void make_module(struct module *module)
{
	/* The offset in the code at which .text ends and .text.b begins. */
	unsigned int half = RULE_SIZE * rnd_below(NR_RULES), i;

	*module = (struct module) {
		.ehdr = {
			.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				     EV_CURRENT },
			.e_type = ET_REL,
			.e_machine = EM_X86_64,
			.e_version = EV_CURRENT,
			.e_shoff = offsetof(struct module, shdrs),
			.e_ehsize = sizeof(Elf64_Ehdr),
			.e_shentsize = sizeof(Elf64_Shdr),
			.e_shnum = NR_M_SECTIONS,
			.e_shstrndx = M_NAMES,
		},
	};
	memcpy(module->names, module_names, sizeof(module_names));
	memcpy(module->hash, hashes[rnd_below(ARRAY_SIZE(hashes))], ORC_HASH_SIZE);
	make_code(module->code);

	make_module_code(module, M_INIT, ".init.text", module->init, sizeof(module->init));
	make_module_code(module, M_TEXT, ".text", module->code, half);
	make_module_code(module, M_B, ".text.b", &module->code[half], CODE_SIZE - half);
	make_module_section(module, M_RELOCS, SHT_RELA, ".rela.orc_unwind_ip", module->relocs,
			    sizeof(module->relocs), sizeof(module->relocs[0]));
	module->shdrs[M_RELOCS].sh_info = M_IPS;
	module->shdrs[M_RELOCS].sh_link = M_SYMBOLS;
	make_module_section(module, M_IPS, SHT_PROGBITS, ".orc_unwind_ip", module->ips,
			    sizeof(module->ips), 0);
	make_module_section(module, M_RULES, SHT_PROGBITS, ".orc_unwind", module->rules,
			    sizeof(module->rules), 0);
	if (rnd_below(4))
		make_module_section(module, M_HASH, SHT_PROGBITS, ".orc_header", module->hash,
				    sizeof(module->hash), 0);
	make_module_section(module, M_SYMBOLS, SHT_SYMTAB, ".symtab", module->symbols,
			    sizeof(module->symbols), sizeof(module->symbols[0]));
	make_module_section(module, M_NAMES, SHT_STRTAB, ".names", module->names,
			    sizeof(module->names), 0);

	for (i = 0; i < NR_RULES; i++) {
		int section = i < half / RULE_SIZE ? M_TEXT : M_B;

		module->relocs[i] = (Elf64_Rela) {
			.r_offset = i * ORC_IP_SIZE,
			.r_info = ELF64_R_INFO(section, R_X86_64_PC32),
			.r_addend = i * RULE_SIZE - (section == M_B ? half : 0),
		};
		make_rule(module->rules[i]);
	}
	file_size = sizeof(*module);
	change(module, rnd_below(4) ? offsetof(struct module, names) : sizeof(*module));
}

/* Return a word as on a stack: a code address, a stack address, a selector, or random bits. */
static u64 rnd_word(u64 text)
{
	if (!rnd_below(4))
		text = MODULE;

	switch (rnd_below(8)) {
	case 0:
		return rnd(8);
	case 1:
		return STACK + 8 * rnd_below(MAX_WORDS);
	case 2:
		return IRQ_STACK + 8 * rnd_below(MAX_WORDS);
	case 3:
		return 0x33 - rnd_below(0x24);
	case 4:
		return text + rnd_below(CODE_SIZE + 8);
	default:
		return text + RULE_SIZE * rnd_below(NR_RULES + 1);
	}
}

/* Return a word as on user mode's stack. */
static u64 rnd_user_word(void)
{
	switch (rnd_below(8)) {
	case 0:
		return rnd(8);
	case 1:
		return USER_TEXT + rnd_below(64);
	case 2:
		return USER_STACK_32 + 4 * rnd_below(2 * MAX_WORDS);
	case 3:
		return USER_STACK_32 + 8 * rnd_below(MAX_WORDS) + (USER_TEXT << 32);
	case 4:
		return 0;
	default:
		return USER_STACK + 8 * rnd_below(MAX_WORDS);
	}
}

/* Make a piece.  Like the file's allocation, this one has exactly the size of its contents. */
static void make_piece(struct guest_piece *piece, u64 addr, unsigned int size, u64 text)
{
	u8 *data = malloc(size ?: 1);

	for (unsigned int i = 0; i < size; i += sizeof(u64)) {
		u64 word = text ? rnd_word(text) : rnd_user_word();

		memcpy(&data[i], &word, min((size_t)(size - i), sizeof(word)));
	}
	/* No piece lies beyond the end of the address space. */
	if (size && size - 1 > ~0ULL - addr)
		addr = -(u64)size;
	*piece = (struct guest_piece){ addr, size, data };
}

static unsigned int rnd_size(void)
{
	return rnd_below(8) ? 8 * rnd_below(MAX_WORDS) : rnd_below(8 * MAX_WORDS);
}

/* A stack with more frames than a chain may have. */
static void make_deep_stack(struct guest_piece *piece, u64 user)
{
	const u32 size = 2 * MAX_FRAMES * 16;
	u64 *words = malloc(size);

	for (u32 at = 0; at < size; at += 16) {
		words[at / 8] = user + at + 16;
		words[at / 8 + 1] = USER_TEXT;
	}
	*piece = (struct guest_piece){ user, size, (const u8 *)words };
}

static void put_saved(const struct guest_piece *piece, unsigned int offset, u64 value)
{
	memcpy((u8 *)piece->data + offset, &value, sizeof(value));
}

/* Whether the sample is that of an arm64 guest. */
static bool arm64;

static void make_pieces(struct guest_read *read, u64 text)
{
	struct guest_piece *p = read->pieces;
	const u64 user = rnd_below(4) ? USER_STACK : USER_STACK_32;
	const unsigned int saved_size = arm64 ? GUEST_ARM64_PT_REGS_SIZE : GUEST_PT_REGS_SIZE;
	bool compat = user == USER_STACK_32;

	for (read->nr = 0; read->nr < NR_GUEST_READ_SLOTS && rnd_below(16); read->nr++) {
		switch (read->nr) {
		case GUEST_READ_STACK:
			make_piece(&p[read->nr], rnd_below(8) ? STACK : -8 * rnd_below(MAX_WORDS),
				   rnd_size(), text);
			break;
		case GUEST_READ_INTERRUPTED:
			make_piece(&p[read->nr], rnd_below(8) ? IRQ_STACK : rnd(8),
				   rnd_below(2) ? 0 : rnd_size(), text);
			break;
		case GUEST_READ_USER_REGS:
			make_piece(&p[read->nr], rnd_below(8) ? STACK + 0x3f58 : rnd(8),
				   rnd_below(8) ? saved_size : rnd_size(), 0);
			if (p[read->nr].size != saved_size || !rnd_below(4))
				break;
			if (arm64) {
				put_saved(&p[read->nr], 232, user + 8 * rnd_below(8));
				put_saved(&p[read->nr], GUEST_ARM64_PT_REGS_SP,
					  user + 8 * rnd_below(8));
				put_saved(&p[read->nr], 256, rnd_user_word());
				put_saved(&p[read->nr], 264, rnd_below(8) ? 0x60000000 : rnd(8));
				break;
			}
			put_saved(&p[read->nr], 32, user + 8 * rnd_below(8));
			put_saved(&p[read->nr], 128, rnd_user_word());
			put_saved(&p[read->nr], 136, rnd_below(8) ? compat ? 0x23 : 0x33 : rnd(2));
			put_saved(&p[read->nr], 144, 0x246 ^ (rnd_below(8) ? 0 : rnd(8)));
			put_saved(&p[read->nr], GUEST_PT_REGS_SP, user + 8 * rnd_below(8));
			break;
		default:
			if (rnd_below(16))
				make_piece(&p[read->nr], rnd_below(8) ? user : rnd(8), rnd_size(),
					   0);
			else
				make_deep_stack(&p[read->nr], user);
			break;
		}
	}
}

/* All registers are at hand, or some. */
static struct perf_record_guest_read *make_record(u64 text)
{
	u64 mask = rnd_below(8) ? (1ULL << (arm64 ? 33 : 24)) - 1 : rnd(8);
	struct perf_record_guest_read *record;
	unsigned int i, nr = 0;

	record = malloc(sizeof(*record) + __builtin_popcountll(mask) * sizeof(u64));
	*record = (struct perf_record_guest_read) {
		.abi = rnd_below(16) ? PERF_SAMPLE_REGS_ABI_64 : PERF_SAMPLE_REGS_ABI_32,
		.mask = mask,
	};
	for (i = 0; i < 64; i++) {
		u64 reg = rnd_word(text);

		if (i == PERF_REG_X86_SP && rnd_below(8))
			reg = (rnd_below(8) ? STACK : USER_STACK) + 8 * rnd_below(8);
		else if (arm64 && i == PERF_REG_ARM64_X29 && rnd_below(8))
			reg = STACK + 8 * rnd_below(8);
		else if (i == PERF_REG_X86_CX && rnd_below(2))
			reg = USER_TEXT;
		else if (i == PERF_REG_X86_R11 && rnd_below(2))
			reg = 0x246;
		if (mask >> i & 1)
			record->regs[nr++] = reg;
	}
	return record;
}

static void make_chain(struct perf_sample *sample, u64 text)
{
	struct ip_callchain *chain;
	unsigned int nr = rnd_below(6), i;

	if (!rnd_below(8))
		return;
	chain = malloc(sizeof(*chain) + nr * sizeof(u64));
	chain->nr = nr;
	for (i = 0; i < nr; i++)
		chain->ips[i] = i ? rnd_word(text) : PERF_CONTEXT_GUEST_KERNEL;
	sample->callchain = chain;
	sample->merged_callchain = rnd_below(2);
	sample->deferred_callchain = !rnd_below(8);
}

/* Copy a chain, because the next step may free it. */
static struct ip_callchain *copy_chain(const struct ip_callchain *chain)
{
	size_t size = chain ? sizeof(*chain) + chain->nr * sizeof(u64) : 0;

	return chain ? memcpy(malloc(size), chain, size) : NULL;
}

/* User mode's part, which ends the chain. */
static u64 nr_user_ips(const struct ip_callchain *chain)
{
	u64 i;

	for (i = 0; chain && i < chain->nr; i++) {
		if (chain->ips[i] == PERF_CONTEXT_GUEST_USER)
			return chain->nr - i;
	}
	return 0;
}

static void add_user(struct perf_sample *sample)
{
	struct ip_callchain *old = copy_chain(sample->callchain), *chain;
	u64 nr = old ? old->nr : 0, i;

	sample__add_guest_user(sample, NULL);
	chain = sample->callchain;
	FUZZ_ASSERT(!chain == !old, "the chain is lost, or comes from nowhere");
	FUZZ_ASSERT(!old || !memcmp(chain->ips, old->ips, nr * sizeof(u64)),
		    "the kernel's part has changed");
	if (old && chain->nr != nr) {
		FUZZ_ASSERT(chain->nr >= nr + 2 && chain->nr <= nr + 1 + MAX_FRAMES &&
			    chain->ips[nr] == PERF_CONTEXT_GUEST_USER,
			    "user mode's part has %llu entries",
			    (unsigned long long)(chain->nr - nr));
		for (i = nr + 1; i < chain->nr; i++)
			FUZZ_ASSERT(chain->ips[i] && chain->ips[i] < MAX_USER,
				    "an address that is not user mode's");
	}
	free(old);
}

static void unwind_kernel(struct guest_orc *orc, struct perf_sample *sample)
{
	u64 ip = guest_read__reg(&sample->guest_read, PERF_REG_X86_IP), nr_user, nr;
	struct ip_callchain *old = copy_chain(sample->callchain), *chain;
	enum orc_end end = guest_orc__unwind(orc, sample);

	FUZZ_ASSERT(end < NR_ORC_ENDS, "ends for an unknown reason, %u", end);
	chain = sample->callchain;
	nr_user = nr_user_ips(old);
	if (chain && (!old || chain->nr != old->nr ||
		      memcmp(chain->ips, old->ips, old->nr * sizeof(u64)))) {
		nr = chain->nr - nr_user;
		FUZZ_ASSERT(sample->merged_callchain && chain->nr >= nr_user + 2 &&
			    nr <= 1 + MAX_FRAMES + (nr_user ? 0 : 2),
			    "a chain of %llu entries", (unsigned long long)chain->nr);
		FUZZ_ASSERT(chain->ips[0] == PERF_CONTEXT_GUEST_KERNEL && chain->ips[1] == ip,
			    "a chain that does not begin at the sample");
		FUZZ_ASSERT(!nr_user || !memcmp(&chain->ips[nr], &old->ips[old->nr - nr_user],
						nr_user * sizeof(u64)),
			    "a chain without its user mode");
	}
	FUZZ_ASSERT(chain || !old, "the chain is lost");
	free(old);
}

static void unwind(struct guest_orc *orc, u64 text)
{
	struct perf_record_guest_read *record;
	struct perf_sample sample = {
		.cpumode = rnd_below(16) ? PERF_RECORD_MISC_GUEST_KERNEL :
					   PERF_RECORD_MISC_GUEST_USER,
	};
	struct ip_callchain *first;

	arm64 = !rnd_below(4);
	record = make_record(text);
	sample.guest_read.record = record;
	make_pieces(&sample.guest_read, text);
	make_chain(&sample, text);
	first = sample.merged_callchain ? NULL : sample.callchain;

	add_user(&sample);
	if (orc && !arm64 && sample.guest_read.pieces[GUEST_READ_STACK].size)
		unwind_kernel(orc, &sample);

	/* The first chain lies in the ring buffer, unless it was merged. */
	if (sample.merged_callchain)
		free(sample.callchain);
	free(first);
	for (unsigned int i = 0; i < sample.guest_read.nr; i++)
		free((void *)sample.guest_read.pieces[i].data);
	free(record);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	const char *why_not = NULL;
	u8 *kernel, *module_file = NULL;
	struct guest_orc *orc;
	unsigned int i;
	u64 text = 0;

	input.state = 0x9e3779b97f4a7c15ULL;
	input.data = data;
	input.size = size;
	if (size >= 8) {
		input.state ^= rnd(8);
		input.state = input.state ?: 1;
	}

	if (rnd_below(8)) {
		struct vmlinux vmlinux;

		make_vmlinux(&vmlinux);
		make_file(&vmlinux);
	} else {
		file_size = input.size;
		make_file(input.data);
	}
	kernel = file;
	if (rnd_below(2))
		text = rnd_below(16) ? TEXT + MOVED : rnd(8);

	orc = guest_orc__load("/dev/null", text, NULL, &why_not);
	FUZZ_ASSERT(!orc == !!why_not, "neither tables nor a reason, or both");
	if (orc && rnd_below(4)) {
		struct module module;

		make_module(&module);
		make_file(&module);
		module_file = file;
		guest_orc__add_module(orc, "/dev/null", 0, NULL, MODULE,
				      MODULE + (rnd_below(8) ? 0x1000 : rnd(8)));
	}
	/*
	 * Enough chains for guest_orc__judge() to decide if the file is the guest's kernel; without
	 * tables, only user mode's part is found.
	 */
	for (i = 0; i < 8; i++)
		unwind(orc, text ?: TEXT);
	guest_orc__delete(orc);
	free(module_file);
	free(kernel);
	return 0;
}
