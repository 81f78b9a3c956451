/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random guests to sample: their registers, page tables and stacks.  Most parts are
 * plausible, so that walks get far.  Some are broken, so that walks reach all their checks.
 */
#ifndef SELFTEST_KVM_CALLCHAIN_CASE_H
#define SELFTEST_KVM_CALLCHAIN_CASE_H

#include <linux/types.h>

#include "callchain_oracle.h"

/*
 * The guest's memory.  It is aligned for the largest page.  The same memory also is above 4 GiB,
 * for PSE-36 and PAE.
 */
#define CASE_MEM_GPA		0x80000000ULL
#define CASE_HIGH_MEM_GPA	0x180000000ULL
#define CASE_NR_PAGES		48
#define CASE_MEM_SIZE		(CASE_NR_PAGES * 4096)

/* The code, "jmp .", is on the first page.  The last page can't be read. */
#define CASE_CODE_OFF		0x7e0
#define CASE_HOLE_OFF		(CASE_MEM_SIZE - 4096)

#define CASE_MAX_WRITES		2048

/* Limits of the number of entries in a chain, its IP included; see callchain_case.depth. */
extern const unsigned int case_depths[];
#define CASE_NR_DEPTHS		4

/**
 * struct callchain_case - a guest that runs an endless loop
 * @rnd:	function of the caller that returns random bytes
 * @rnd_arg:	passed to @rnd
 * @mem:	CASE_MEM_SIZE bytes of the caller, initially zero but for the code
 * @has_la57:	the CPU has 5-level paging
 * @has_smap:	the CPU has SMAP
 * @has_pke:	the CPU has protection keys
 * @fixed_pdptes: the CPU may load PDPTEs into registers: keep them valid
 * @vcpu:	the generated state; the caller sets amd, gbpages, maxphyaddr and pse36_bits
 * @depth:	index into case_depths
 * @real:	the vCPU is in real mode
 * @race:	a word changes while the stack is walked
 * @race_off:	offset of that word in @mem
 * @race_size:	size of that word in bytes
 * @race_words:	the two values of that word; case_generate() leaves the first one in memory
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
