/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random guests to sample: registers, page tables and stacks that are plausible
 * enough to lead somewhere, and broken often enough.
 */
#ifndef SELFTEST_KVM_CALLCHAIN_CASE_H
#define SELFTEST_KVM_CALLCHAIN_CASE_H

#include <linux/types.h>

#include "callchain_oracle.h"

/*
 * The guest's memory: aligned for the largest page, in the upper half of 32 bits
 * for Linux's entry frames, and once more above 4 GiB for PSE-36.
 */
#define CASE_MEM_GPA		0x80000000ULL
#define CASE_HIGH_MEM_GPA	0x180000000ULL
#define CASE_NR_PAGES		48
#define CASE_MEM_SIZE		(CASE_NR_PAGES * 4096)

/* The code, "jmp .", lies in the first page; the last one can't be read. */
#define CASE_CODE_OFF		0x7e0
#define CASE_HOLE_OFF		(CASE_MEM_SIZE - 4096)

#define CASE_MAX_WRITES		2048

/* How deep chains may go; case.depth is one of them. */
extern const unsigned int case_depths[];
#define CASE_NR_DEPTHS		4

/**
 * struct callchain_case - a guest that stands in its loop
 * @rnd:	yields random bytes, the caller's
 * @rnd_arg:	passed to @rnd
 * @mem:	CASE_MEM_SIZE bytes, zero at first, the caller's
 * @has_la57:	the CPU has 5-level paging
 * @has_smap:	the CPU has SMAP
 * @has_pke:	the CPU has protection keys
 * @fixed_pdptes: the CPU may keep PDPTEs in registers: leave them valid
 * @vcpu:	what was generated; amd, gbpages and maxphyaddr are the caller's
 * @depth:	index into case_depths
 * @real:	the vCPU is in real mode
 * @race:	a word changes while the stack is walked
 * @race_off:	where in @mem
 * @race_size:	its size
 * @race_words:	its value, and the other one
 */
struct callchain_case {
	u64 (*rnd)(void *arg, unsigned int nr_bytes);
	void *rnd_arg;
	u8 *mem;
	bool has_la57;
	bool has_smap;
	bool has_pke;
	bool fixed_pdptes;

	struct oracle_vcpu vcpu;
	unsigned int depth;
	bool real;
	bool race;
	u32 race_off;
	u8 race_size;
	u64 race_words[2];

	/* private */
	u32 next_page;
	unsigned int nr_writes;
	u32 writes[CASE_MAX_WRITES];
	unsigned int nr_entries;
	u32 entries[128];
	unsigned int nr_code_entries;
	u32 code_entries[8];
	unsigned int nr_words;
	u32 words[512];
	u8 entry_size;
	bool mapping_code;
	unsigned int nr_mapped;
	struct {
		u64 gva;
		u32 off;
	} mapped[24];
};

void case_generate(struct callchain_case *c);
void case_clear(struct callchain_case *c);
bool case_offset(u64 gpa, u32 *off);
void case_load(const u8 *mem, u32 off, unsigned int size, u64 *word);
void case_store(u8 *mem, u32 off, unsigned int size, u64 word);
bool case_chains_equal(const struct oracle_chain *a, const struct oracle_chain *b);
void case_print(const struct callchain_case *c);
void case_print_chain(const char *whose, const struct oracle_chain *chain);

#endif /* SELFTEST_KVM_CALLCHAIN_CASE_H */
