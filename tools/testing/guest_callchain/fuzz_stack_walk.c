// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzz arch/x86/kvm/stacktrace.c and virt/kvm/peek.c in user space, under libFuzzer.
 *
 * The input is a guest: its registers, page tables and stacks, and sometimes a word that
 * changes during the walk.  The walk and the reads must find the same as the oracle.  Both use
 * oracle_translate(); guest_callchain_fuzz.c tests KVM's own page-table walk.
 */
#include <linux/kvm_host.h>

#include "callchain_case.h"
#include "fuzz_guest.h"

/* The highest costs of a frame, by the comment of kvm_arch_vcpu_stack_walk(). */
#define FRAME_WORDS		2
#define FRAME_TRANSLATIONS	2

/* perf refuses DS, ES, FS and GS. */
#define VALID_REGS		(0xffffffULL & ~0xf000ULL)

const char *const fuzz_name = "fuzz_stack_walk";
const size_t fuzz_mem_size = CASE_MEM_SIZE;
const u64 fuzz_odd_off = CASE_HOLE_OFF;

static struct callchain_case c;
static struct kvm_vcpu vcpu;
static struct oracle_chain chain;

void fuzz_print(void)
{
	case_print(&c);
	case_print_chain("walk", &chain);
}

static u64 case_rnd(void *arg, unsigned int nr_bytes)
{
	return fuzz_rnd(nr_bytes);
}

/* Memory */

bool fuzz_find(u64 gpa, u64 *off)
{
	*off = gpa - (gpa >= CASE_HIGH_MEM_GPA ? CASE_HIGH_MEM_GPA : CASE_MEM_GPA);
	return gpa >= CASE_MEM_GPA && *off < CASE_MEM_SIZE;
}

static bool walk_read(void *arg, u64 gpa, unsigned int size, u64 *word)
{
	/* KVM reads the root of PAE paging by kvm_peek_guest().  Here, read all its tables so. */
	const bool pae = vcpu.state.pae && !vcpu.state.lma;

	return fuzz_walk_read(&vcpu, gpa, size, word, !pae);
}

gpa_t kvm_mmu_gva_to_gpa_peek(struct kvm_vcpu *v, gva_t gva, u64 access)
{
	bool found;
	u64 gpa;

	FUZZ_ASSERT(v == &vcpu && !(gva & ~PAGE_MASK), "translates %#lx, not a page", gva);
	FUZZ_ASSERT(!(access & ~PFERR_USER_MASK), "translates with access %#lx", access);
	fuzz_translating();
	found = oracle_translate(&v->state, walk_read, NULL, gva, access, &gpa);
	fuzz_guest.translating = false;
	return found ? gpa : INVALID_GPA;
}

/*
 * Memory as the oracle sees it: the first *@arg reads of the word that changes see the old value.
 * If @arg is NULL, no word changes.
 */
static unsigned int race_reads;

static bool oracle_read(void *arg, u64 gpa, unsigned int size, u64 *word)
{
	const unsigned int *old_reads = arg;
	u64 off;

	if (!fuzz_find(gpa, &off) || fuzz_page_kind(off) != FUZZ_PAGE_USUAL)
		return false;
	if (arg && c.race && off < c.race_off + c.race_size && c.race_off < off + size)
		case_store(c.mem, c.race_off, c.race_size,
			   c.race_words[race_reads++ >= *old_reads]);
	case_load(c.mem, off, size, word);
	return true;
}

/* Walks */

/*
 * Return true if the walk's chain is the oracle's.  If a word changes, it does so once, and as
 * a whole: try each number of the oracle's reads that still see the old value.
 */
static bool is_right(unsigned int max, bool print)
{
	static struct oracle_chain oracle;
	unsigned int old_reads = 0;

	do {
		race_reads = 0;
		oracle_walk(&c.vcpu, oracle_read, &old_reads, max, &oracle);
		if (print)
			case_print_chain("oracle", &oracle);
		if (case_chains_equal(&chain, &oracle))
			return true;
	} while (c.race && old_reads++ < race_reads);

	return false;
}

static void check_walk(void)
{
	unsigned int max = case_depths[c.depth] - 1, tried;
	bool faulted;
	u64 *ips;

	chain.nr = 0;
	fuzz_peek_begin(&vcpu);
	/* AddressSanitizer finds writes beyond this. */
	ips = malloc(max * sizeof(*ips));
	fuzz_guest.race = (struct fuzz_race) {
		.on = c.race, .off = c.race_off, .size = c.race_size, .word = c.race_words[1],
		.countdown = c.race ? fuzz_rnd(1) : 0,
	};
	fuzz_begin_walk();
	chain.nr = kvm_arch_vcpu_stack_walk(&vcpu, ips, max);
	faulted = fuzz_end_walk(&vcpu);
	FUZZ_ASSERT(chain.nr <= max, "finds %u callers, not up to %u", chain.nr, max);
	memcpy(chain.ips, ips, chain.nr * sizeof(*ips));
	free(ips);

	/* The frame that ends the chain also costs. */
	tried = chain.nr + (chain.nr < max);
	FUZZ_ASSERT(fuzz_guest.words <= FRAME_WORDS * tried &&
		    fuzz_guest.translations <= FRAME_TRANSLATIONS * tried,
		    "%u words and %u translations for %u frames", fuzz_guest.words,
		    fuzz_guest.translations, tried);
	/* What fails ends a walk early. */
	if (faulted)
		max = chain.nr;
	FUZZ_ASSERT(is_right(max, false) || is_right(max, true), "the chain is not the oracle's");
}

/* Reads */

bool fuzz_translate(u64 gva, bool user, u64 *gpa)
{
	return oracle_is_canonical(&c.vcpu, gva) &&
	       oracle_translate(&c.vcpu, oracle_read, NULL, gva, user, gpa);
}

u64 fuzz_read_base(enum perf_guest_read_base base)
{
	const struct oracle_vcpu *v = &c.vcpu;

	if (base == PERF_GUEST_READ_SP)
		return v->lma && v->cs_l ? v->rsp : (u32)(v->ss_base + v->rsp);

	/* SWAPGS exchanges the bases.  Linux's is in the upper half, and it runs in ring 0. */
	return v->cpl == 0 && vcpu.gs_base >> 63 ? vcpu.gs_base : vcpu.kernel_gs_base;
}

void fuzz_read_regs(u64 mask, u64 *data)
{
	const struct oracle_vcpu *v = &c.vcpu;
	const bool is_64_bit = v->lma && v->cs_l;
	/* The order of arch/x86/include/uapi/asm/perf_regs.h; KVM has that of the manuals. */
	const u64 regs[24] = {
		vcpu.regs[0], vcpu.regs[3], vcpu.regs[1], vcpu.regs[2], vcpu.regs[6], vcpu.regs[7],
		v->rbp, is_64_bit ? v->rsp : (u32)v->rsp, oracle_ip(v), vcpu.rflags,
		vcpu.selectors[0], vcpu.selectors[1], 0, 0, 0, 0,
		vcpu.regs[8], vcpu.regs[9], vcpu.regs[10], vcpu.regs[11],
		vcpu.regs[12], vcpu.regs[13], vcpu.regs[14], vcpu.regs[15],
	};
	unsigned int i;

	*data++ = is_64_bit ? PERF_SAMPLE_REGS_ABI_64 : PERF_SAMPLE_REGS_ABI_32;
	*data++ = v->cr3;
	*data++ = mask;
	for (i = 0; i < ARRAY_SIZE(regs); i++) {
		if (mask >> i & 1)
			*data++ = regs[i];
	}
}

u64 fuzz_any_address(void)
{
	unsigned int nr = fuzz_rnd(1);

	if (nr < 8)
		return fuzz_rnd(8);
	if (nr < 16)
		return -fuzz_rnd(1);
	return c.nr_mapped ? c.mapped[nr % c.nr_mapped].gva + (fuzz_rnd(2) & (nr & 1 ? ~7 : ~0)) %
			     (PAGE_SIZE + 64) : fuzz_rnd(8);
}

u64 fuzz_any_offset(void)
{
	unsigned int nr = fuzz_rnd(1);

	/* A page table, or a page of a stack. */
	if (nr < 64 && c.nr_entries)
		return c.entries[nr % c.nr_entries];
	return c.nr_mapped ? c.mapped[nr % c.nr_mapped].off : CASE_HOLE_OFF;
}

static void choose_registers(void)
{
	unsigned int i;

	memset(&vcpu, 0, sizeof(vcpu));
	vcpu.state = c.vcpu;
	for (i = 0; i < NR_VCPU_REGS; i++)
		vcpu.regs[i] = fuzz_rnd(8);
	vcpu.rflags = fuzz_rnd(8);
	vcpu.gs_base = fuzz_any_address();
	vcpu.kernel_gs_base = fuzz_any_address();
	vcpu.selectors[0] = fuzz_rnd(2);
	vcpu.selectors[1] = fuzz_rnd(2);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	fuzz_make_memory();
	fuzz_begin(data, size);

	c.rnd = case_rnd;
	c.mem = fuzz_guest.mem;
	c.has_la57 = true;
	c.has_smap = true;
	c.has_pke = true;
	c.vcpu.amd = fuzz_rnd(1) & 1;
	c.vcpu.gbpages = fuzz_rnd(1) & 1;
	c.vcpu.maxphyaddr = 33 + fuzz_rnd(1) % 20;
	c.vcpu.pse36_bits = 40;
	case_generate(&c);
	choose_registers();

	check_walk();
	fuzz_check_reads(&vcpu, c.vcpu.cpl, VALID_REGS);
	case_clear(&c);
	return 0;
}
