// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzz arch/arm64/kvm/stacktrace_guest.c and virt/kvm/peek.c in user space, under libFuzzer.
 *
 * The input describes a guest: registers, page tables, stacks, and maybe a word that changes at
 * some read.  The walk and the reads must find what the oracle finds.  Both translate by
 * oracle_translate(); guest_callchain_modes_test tests KVM's own page-table walk.
 */
#include <linux/kvm_host.h>

#include "fuzz_guest.h"

/* The most words and page-table walks that a frame of kvm_arch_vcpu_stack_walk() takes. */
#define FRAME_WORDS		2
#define FRAME_TRANSLATIONS	2

/* X0 to X30, SP and PC. */
#define VALID_REGS	GENMASK_ULL(32, 0)

/* The guest's memory.  Its last 64 KiB, the largest granule, begin with a page of each kind. */
#define MEM_GPA		0x40000000ULL
#define MEM_SIZE	0x100000u
#define ODD_OFF		(MEM_SIZE - 0x10000u)

const char *const fuzz_name = "fuzz_stack_walk_arm64";
const size_t fuzz_mem_size = MEM_SIZE;
const u64 fuzz_odd_off = ODD_OFF;

static u8 *mem;

#define MAX_MAPPED	32
#define MAX_WORDS	1024
#define MAX_STACKS	6

/*
 * struct stack - one of the guest's stacks
 * @low:	its lowest address
 * @high:	where it ends
 * @next:	where the next frame record may go
 */
struct stack {
	u64 low;
	u64 high;
	u64 next;
};

/* The current guest, and what its walk has done so far. */
static struct {
	struct oracle_vcpu v;
	bool on_cpu;
	unsigned int max;
	u64 next_off;
	unsigned int nr_mapped;
	struct {
		u64 gva;
		u64 off;
	} mapped[MAX_MAPPED];
	unsigned int nr_words;
	u64 words[MAX_WORDS];
	unsigned int nr_entries;
	u64 entries[MAX_WORDS];
	struct stack stacks[MAX_STACKS];
	unsigned int nr_stacks;
	bool descends;
	u64 lowest;

	bool race;
	u64 race_off;
	u64 race_bytes[2];
	unsigned int race_reads;

	struct oracle_chain chain;
	bool is_protected;
} f;

static struct kvm_vcpu vcpu;

static void print_chain(const char *whose, const struct oracle_chain *chain)
{
	unsigned int i;

	fprintf(stderr, "%s:", whose);
	for (i = 0; i < chain->nr; i++)
		fprintf(stderr, " %#lx", chain->ips[i]);
	fputc('\n', stderr);
}

void fuzz_print(void)
{
	const struct oracle_vcpu *v = &f.v;

	fprintf(stderr, "pc %#lx x29 %#lx sp_el0 %#lx sp_el1 %#lx\n", v->pc, v->x29, v->sp_el0,
		v->sp_el1);
	fprintf(stderr, "pstate %#lx sctlr %#lx tcr %#lx ttbr %#lx %#lx\n",
		v->pstate, v->sctlr, v->tcr, v->ttbr[0], v->ttbr[1]);
	fprintf(stderr, "pauth %d max %u race %d\n", v->pauth, f.max, f.race);
	print_chain("walk", &f.chain);
}

/* Memory */

bool fuzz_find(u64 gpa, u64 *off)
{
	*off = gpa - MEM_GPA;
	return *off < MEM_SIZE;
}

/*
 * Read for the oracle: the first *@arg reads of the racing word find its old value.  If @arg is
 * NULL, no word races.
 */
static bool oracle_read(void *arg, u64 pa, u64 *bytes)
{
	const unsigned int *old_reads = arg;
	u64 off;

	if (!fuzz_find(pa, &off) || fuzz_page_kind(off) != FUZZ_PAGE_USUAL)
		return false;
	memcpy(bytes, mem + off, 8);
	if (arg && f.race && off == f.race_off)
		*bytes = f.race_bytes[f.race_reads++ >= *old_reads];
	return true;
}

static bool walk_read(void *arg, u64 pa, u64 *bytes)
{
	return fuzz_walk_read(arg, pa, sizeof(*bytes), bytes, false);
}

int __kvm_translate_va(struct kvm_vcpu *v, struct s1_walk_info *wi, struct s1_walk_result *wr,
		       u64 va)
{
	struct oracle_rights rights;
	bool found;

	FUZZ_ASSERT(wi->peek && wi->regime == TR_EL10, "may change page tables");
	FUZZ_ASSERT(v == &vcpu && !(va & (PAGE_SIZE - 1)), "translates %#lx, not a page", va);
	fuzz_translating();
	found = oracle_translate(&f.v, walk_read, v, va, wi->as_el0, &wr->pa, &rights);
	fuzz_guest.translating = false;
	if (!found)
		return -EFAULT;
	wr->ur = rights.el0;
	wr->pr = rights.el1 && !(wi->pan && rights.el0 && (f.v.sctlr & SCTLR_ELx_M));
	return 0;
}

/* Registers, and the host's state */

u64 vcpu_read_sys_reg(const struct kvm_vcpu *vcpu, enum vcpu_sysreg reg)
{
	switch (reg) {
	case TCR_EL1:
		return f.v.tcr;
	case SCTLR_EL1:
		return f.v.sctlr;
	case TTBR0_EL1:
	case TPIDR_EL1:
		return vcpu->arch.sys_regs[reg];
	default:
		FUZZ_ASSERT(false, "reads register %u", reg);
		return 0;
	}
}

u64 fuzz_sp_el1_on_cpu(void)
{
	FUZZ_ASSERT(f.on_cpu,
		    "reads SP_EL1 from the CPU while the guest's registers are in memory");
	return f.v.sp_el1;
}

bool is_protected_kvm_enabled(void)
{
	return f.is_protected;
}

/* Random guests */

static u64 rnd(unsigned int nr_bytes)
{
	return fuzz_rnd(nr_bytes);
}

static unsigned int pick(unsigned int n)
{
	return rnd(n > 256 ? 2 : 1) % n;
}

static bool once_in(unsigned int n)
{
	return pick(n) == 1;
}

static u64 one_of(const u64 *values, unsigned int nr)
{
	return values[pick(nr)];
}

#define ONE_OF(...)	one_of((const u64[]){ __VA_ARGS__ },				\
			       ARRAY_SIZE(((const u64[]){ __VA_ARGS__ })))

static u64 swap_if(bool big_endian, u64 bytes)
{
	return big_endian ? __builtin_bswap64(bytes) : bytes;
}

static u64 alloc_piece(u64 size)
{
	u64 off = (f.next_off + size - 1) & ~(size - 1);

	/* A piece that no longer fits gets the 64 KiB below ODD_OFF instead. */
	if (off + size > ODD_OFF)
		return ODD_OFF - 0x10000;
	f.next_off = off + size;
	return off;
}

static void remember(u64 *offs, unsigned int *nr, u64 off)
{
	if (*nr < MAX_WORDS)
		offs[(*nr)++] = off;
}

/* Map the memory at @off to @gva, as a page or as a block. */
static void map(u64 gva, u64 off, bool block, bool el0)
{
	const bool upper = gva >> 55 & 1;
	const unsigned int va_bits = oracle_va_bits(&f.v, upper);
	const unsigned int granule = oracle_granule_shift(&f.v, upper), stride = granule - 3;
	unsigned int low = granule, last = granule + (block ? stride : 0), top = va_bits;
	u64 table = f.v.ttbr[upper], desc, at;

	while (low + stride < va_bits)
		low += stride;

	for (;; top = low, low -= stride) {
		at = table - MEM_GPA + ((gva & GENMASK_ULL(top - 1, 0)) >> low) * 8;
		if (at > ODD_OFF - 8)
			return;
		memcpy(&desc, mem + at, 8);
		desc = swap_if(f.v.sctlr & SCTLR_ELx_EE, desc);
		remember(f.entries, &f.nr_entries, at);
		if (low <= last)
			break;
		if (!(desc & 1)) {
			/* Random values for bits that reads must ignore; sometimes APTable[0]. */
			desc = (MEM_GPA + alloc_piece(1UL << granule)) | 3 | (rnd(2) & 0xffc) |
			       (u64)once_in(12) << 61;
			desc = swap_if(f.v.sctlr & SCTLR_ELx_EE, desc);
			memcpy(mem + at, &desc, 8);
			desc = swap_if(f.v.sctlr & SCTLR_ELx_EE, desc);
		} else if (!(desc & 2)) {
			return;
		}
		table = desc & GENMASK_ULL(47, granule);
	}

	desc = ((MEM_GPA + off) & ~(BIT(low) - 1)) | (low == granule ? 3 : 1);
	/* Random AttrIndx, AP[2], SH and nG; AF in most entries.  AP[1] lets EL0 read. */
	desc |= (rnd(2) & 0xb9c) | (once_in(12) ? 0 : BIT(10)) | (u64)el0 << 6;
	desc = swap_if(f.v.sctlr & SCTLR_ELx_EE, desc);
	memcpy(mem + at, &desc, 8);
}

static u64 extend(u64 va, bool upper)
{
	u64 above = GENMASK_ULL(63, oracle_va_bits(&f.v, upper));

	return upper ? va | above : va & ~above;
}

static u64 choose_stack_gva(bool upper)
{
	u64 end = BIT(oracle_va_bits(&f.v, upper));

	switch (pick(8)) {
	case 0:
		/* Below the end of this half: beyond it, addresses wrap or aren't canonical. */
		return extend(end - PAGE_SIZE * (1 + pick(3)), upper);
	case 1:
	case 2:
		return extend(PAGE_SIZE * pick(2), upper);
	case 3:
		return extend(rnd(8) & ~(PAGE_SIZE - 1), upper);
	default:
		return extend(0x8000000 + rnd(1) * 0x4000, upper);
	}
}

/* Make a stack of one to three pages, which need not be adjacent in memory. */
static void make_stack(bool upper, bool el0)
{
	const u64 granule = BIT(oracle_granule_shift(&f.v, upper));
	const unsigned int nr_pages = 1 + pick(3);
	struct stack *stack = &f.stacks[f.nr_stacks];
	const bool block = once_in(6);
	u64 gva = choose_stack_gva(upper), off = alloc_piece(granule), page;
	unsigned int i;

	if (!(f.v.sctlr & SCTLR_ELx_M))
		gva = MEM_GPA + off;
	if (block && granule == PAGE_SIZE)
		gva = (gva & ~(BIT(21) - 1)) | off;
	stack->low = gva;

	for (i = 0; i < nr_pages && f.nr_mapped < MAX_MAPPED; i++, gva += PAGE_SIZE) {
		if (!(f.v.sctlr & SCTLR_ELx_M) || (block && granule == PAGE_SIZE)) {
			page = i ? alloc_piece(PAGE_SIZE) : off;
		} else if (granule == PAGE_SIZE) {
			page = once_in(16) ? ODD_OFF + pick(NR_FUZZ_PAGES) * PAGE_SIZE :
			       i ? alloc_piece(PAGE_SIZE) : off;
		} else {
			/* Larger pages: take another one where the last one ends. */
			if (i && !(gva & (granule - 1)))
				off = alloc_piece(granule);
			if (once_in(16))
				off = ODD_OFF;
			page = off + (gva & (granule - 1));
		}
		if ((f.v.sctlr & SCTLR_ELx_M) && !once_in(24))
			map(gva, page, block && granule == PAGE_SIZE, el0);
		f.mapped[f.nr_mapped].gva = gva;
		f.mapped[f.nr_mapped++].off = page;
	}
	stack->high = gva;
	stack->next = stack->low + 8 * (once_in(4) ? pick(40) : pick(0x100));
	f.nr_stacks++;
}

/* Write a word to a stack; do nothing if it is unaligned, or if no stack has a page there. */
static void put_stack(u64 gva, u64 word, bool el0)
{
	unsigned int i;
	u64 off;

	if (gva & 7)
		return;
	word = swap_if(f.v.sctlr & (el0 ? SCTLR_EL1_E0E : SCTLR_ELx_EE), word);
	for (i = 0; i < f.nr_mapped; i++) {
		if (f.mapped[i].gva != (gva & ~(PAGE_SIZE - 1)))
			continue;
		off = f.mapped[i].off + (gva & (PAGE_SIZE - 1));
		memcpy(mem + off, &word, 8);
		remember(f.words, &f.nr_words, off);
		return;
	}
}

/* Return @va; sometimes with a tag, a flipped bit or an offset, or another value instead. */
static u64 spoil_address(u64 va)
{
	switch (pick(40)) {
	case 0:
	case 1:
	case 2:
		return va ^ rnd(1) << 56;
	case 3:
		return va ^ BIT(pick(64));
	case 4:
		return va + ONE_OF(1, 2, 4, 8, -8ULL, -16ULL, -0x20ULL);
	case 5:
		return ONE_OF(0, 8, 16, -8ULL, -16ULL, -24ULL, -32ULL, BIT(55), rnd(8));
	default:
		return va;
	}
}

static u64 choose_text(bool upper)
{
	u64 va = extend(0x400000 + rnd(2) * 4, upper);

	switch (pick(32)) {
	case 0:
		return ONE_OF(0, 4, -4095ULL, -4096ULL, -4ULL, rnd(8));
	case 1:
		return va ^ BIT(pick(64));
	default:
		/* Sometimes with a signature. */
		return f.v.pauth && once_in(2) ? va ^ (rnd(2) << 48 & ~BIT(55)) : va;
	}
}

/* Choose the stack of the next record: mostly the same one. */
static struct stack *choose_stack(struct stack *stack, bool el0)
{
	if (!el0 && once_in(8))
		return &f.stacks[pick(f.nr_stacks)];
	return stack;
}

static u64 next_record(struct stack *stack)
{
	u64 at = stack->next;

	/* Below the first record, lower each time, as if on one more stack. */
	if (f.descends && once_in(3)) {
		f.lowest -= 16 + pick(8) * 8;
		return f.lowest;
	}

	stack->next += once_in(10) ? 0x800 + pick(0x100) * 8 : 16 + pick(16) * 8;
	if (once_in(12))
		stack->next = stack->low + pick(0x200) * 8;
	return at;
}

/* Build frames; their first record is at @fp. */
static void put_frames(u64 fp, struct stack *stack, bool upper, bool el0)
{
	unsigned int nr = pick(3) ? pick(24) : pick(160);
	u64 next;

	for (; nr; nr--, fp = next) {
		stack = choose_stack(stack, el0);
		next = next_record(stack);
		put_stack(fp, spoil_address(next), el0);
		put_stack(fp + 8, choose_text(upper), el0);
	}
	put_stack(fp, once_in(4) ? next_record(stack) : 0, el0);
	put_stack(fp + 8, once_in(4) ? choose_text(upper) : 0, el0);
}

static u64 choose_tcr(void)
{
	static const u64 tg0[] = { 0, 0, 0, 0, 2, 1 }, tg1[] = { 2, 2, 2, 2, 1, 3 };
	u64 tcr = rnd(8) & (TCR_TBI0 | TCR_TBI1 | BIT(39));
	unsigned int upper;

	for (upper = 0; upper < 2; upper++) {
		u64 tsz = once_in(24) ? rnd(1) % 64 : ONE_OF(16, 16, 25, 12, 17, 28, 39);

		tcr |= tsz << (upper ? 16 : 0);
		tcr |= (upper ? tg1 : tg0)[pick(6)] << (upper ? 30 : 14);
		if (once_in(4))
			tcr |= BIT(upper ? 42 : 41);
		if (once_in(24))
			tcr |= BIT(upper ? 23 : 7);
		if (once_in(16))
			tcr |= BIT(upper ? 56 : 55);
	}
	return tcr;
}

static void tamper(const u64 *offs, unsigned int nr)
{
	u64 off = nr ? offs[pick(nr)] : 0, bytes;

	if (!off || off >= MEM_SIZE)
		return;
	memcpy(&bytes, mem + off, 8);
	bytes = once_in(3) ? rnd(8) : bytes ^ BIT(pick(64));
	memcpy(mem + off, &bytes, 8);
}

/* Choose a word that changes during the walk, or none. */
static void choose_race(void)
{
	unsigned int nr = f.nr_words + f.nr_entries, i;

	f.race = once_in(3) && nr;
	if (!f.race)
		return;
	i = pick(nr);
	f.race_off = i < f.nr_words ? f.words[i] : f.entries[i - f.nr_words];
	memcpy(&f.race_bytes[0], mem + f.race_off, 8);
	i = pick(nr);
	memcpy(&f.race_bytes[1],
	       mem + (i < f.nr_words ? f.words[i] : f.entries[i - f.nr_words]), 8);
	if (once_in(2))
		f.race_bytes[1] = f.race_bytes[0] ^ BIT(pick(64));
}

static void choose_guest(void)
{
	struct oracle_vcpu *v = &f.v;
	struct stack *stack;
	unsigned int i, nr;
	bool el0, upper, shared;
	u64 fp;

	v->pauth = once_in(2);
	v->tcr = choose_tcr();
	v->sctlr = (once_in(12) ? 0 : SCTLR_ELx_M) | (once_in(6) ? SCTLR_ELx_EE : 0) |
		   (once_in(6) ? SCTLR_EL1_E0E : 0);
	v->pstate = ONE_OF(0x3c5, 0x5, 0x3c5, 0x5, 0, 0, 0x4, 0x10, 0x13) |
		    (once_in(4) ? PSR_PAN_BIT : 0) | (rnd(1) << 24 & 0xf0000000) |
		    (once_in(8) ? PSR_AA32_E_BIT : 0);
	el0 = (v->pstate & 0xf) == 0;
	upper = el0 ? once_in(8) : !once_in(4);
	v->ttbr[0] = MEM_GPA + alloc_piece(BIT(oracle_granule_shift(v, false)));
	v->ttbr[1] = MEM_GPA + alloc_piece(BIT(oracle_granule_shift(v, true)));

	/* The first stack is the program's, the others are the kernel's. */
	make_stack(el0 && upper, !once_in(12));
	shared = once_in(6);
	nr = 1 + pick(4);
	for (i = 0; i < nr; i++)
		make_stack(upper, shared || once_in(12));

	stack = &f.stacks[el0 ? 0 : 1 + pick(nr)];
	v->pc = choose_text(upper);
	if (v->pauth)
		v->pc = extend(v->pc, upper);
	fp = next_record(stack);
	f.descends = once_in(6);
	f.lowest = fp;
	v->x29 = spoil_address(fp);
	v->sp_el1 = spoil_address(once_in(8) ? f.stacks[pick(f.nr_stacks)].low : fp - pick(8) * 8);
	v->sp_el0 = once_in(3) ? f.stacks[0].low : v->sp_el1;
	put_frames(fp, stack, upper, el0);

	for (i = once_in(3) ? pick(4) : 0; i; i--)
		tamper(f.entries, f.nr_entries);
	for (i = once_in(4) ? pick(4) : 0; i; i--)
		tamper(f.words, f.nr_words);
	choose_race();
}

/* Checks of the results */

static bool chains_equal(const struct oracle_chain *a, const struct oracle_chain *b)
{
	return a->nr == b->nr && !memcmp(a->ips, b->ips, a->nr * sizeof(a->ips[0]));
}

/*
 * Return true if the oracle finds the walk's chain.  The racing word changes once, as a whole, at
 * an unknown read.  So let the oracle read its old value not at all, once, twice, and so on.
 */
static bool is_right(bool print)
{
	static struct oracle_chain oracle;
	unsigned int old_reads = 0;

	do {
		f.race_reads = 0;
		oracle_walk(&f.v, oracle_read, &old_reads, f.max, &oracle);
		if (print)
			print_chain("oracle", &oracle);
		if (chains_equal(&f.chain, &oracle))
			return true;
	} while (f.race && old_reads++ < f.race_reads);

	return false;
}

static void check_walk(void)
{
	static const unsigned int limits[] = { 126, 15, 2, 0 };
	struct oracle_chain *chain = &f.chain;
	struct kvm_vcpu before;
	unsigned int tried;
	bool faulted;
	u64 *ips;

	f.max = limits[pick(4)];
	fuzz_peek_begin(&vcpu);
	before = vcpu;
	/* AddressSanitizer finds writes beyond this. */
	ips = malloc(f.max * sizeof(*ips));
	fuzz_guest.race = (struct fuzz_race) {
		.on = f.race, .off = f.race_off, .size = 8, .word = f.race_bytes[1],
		.countdown = f.race ? rnd(1) : 0,
	};
	fuzz_begin_walk();
	chain->nr = kvm_arch_vcpu_stack_walk(&vcpu, ips, f.max);
	faulted = fuzz_end_walk(&vcpu);
	FUZZ_ASSERT(chain->nr <= f.max, "finds %u callers, not up to %u", chain->nr, f.max);
	memcpy(chain->ips, ips, chain->nr * sizeof(*ips));
	free(ips);
	before.peek = vcpu.peek;
	FUZZ_ASSERT(!memcmp(&before, &vcpu, sizeof(before)), "changes the vCPU");

	/* The record that ends the chain also costs. */
	tried = chain->nr + (chain->nr < f.max);
	FUZZ_ASSERT(fuzz_guest.words <= FRAME_WORDS * tried &&
		    fuzz_guest.translations <= FRAME_TRANSLATIONS * tried,
		    "%u words and %u translations for %u records", fuzz_guest.words,
		    fuzz_guest.translations, tried);
	/* What fails ends a walk early. */
	if (faulted)
		f.max = chain->nr;
	FUZZ_ASSERT(is_right(false) || is_right(true), "the chain is not the oracle's");
}

/* Reads */

bool fuzz_translate(u64 gva, bool user, u64 *gpa)
{
	struct oracle_rights rights;

	gva = oracle_untagged(&f.v, gva);
	return oracle_is_canonical(&f.v, gva) &&
	       oracle_translate(&f.v, oracle_read, NULL, gva, user, gpa, &rights) &&
	       oracle_may_read(&f.v, user, &rights);
}

/* M[4] of PSTATE. */
static bool is_aarch32(void)
{
	return f.v.pstate & 16;
}

/* D1.21.1: R13 of AArch32's user mode is X13. */
static u64 fuzz_sp(void)
{
	return is_aarch32() ? vcpu.arch.regs.regs[13] & ~0U : oracle_sp(&f.v);
}

u64 fuzz_read_base(enum perf_guest_read_base base)
{
	return base == PERF_GUEST_READ_SP ? oracle_untagged(&f.v, fuzz_sp()) :
					    vcpu.arch.sys_regs[TPIDR_EL1];
}

void fuzz_read_regs(u64 mask, u64 *data)
{
	unsigned int i;

	*data++ = is_aarch32() ? PERF_SAMPLE_REGS_ABI_32 : PERF_SAMPLE_REGS_ABI_64;
	*data++ = vcpu.arch.sys_regs[TTBR0_EL1];
	*data++ = mask;
	for (i = 0; i < 33; i++) {
		/* The link register is X30, or R14, which is X14; R15 is the PC. */
		if (mask >> i & 1)
			*data++ = i == 32 || (i == 15 && is_aarch32()) ? f.v.pc :
				  i == 31 ? fuzz_sp() :
				  vcpu.arch.regs.regs[i == 30 && is_aarch32() ? 14 : i];
	}
}

u64 fuzz_any_address(void)
{
	if (!f.nr_mapped || once_in(8))
		return once_in(2) ? -rnd(1) : rnd(8);
	return f.mapped[pick(f.nr_mapped)].gva +
	       (rnd(2) & (once_in(4) ? ~0u : ~7u)) % (PAGE_SIZE + 64);
}

u64 fuzz_any_offset(void)
{
	/* A page table, or a page of a stack. */
	if (once_in(4) && f.nr_entries)
		return f.entries[pick(f.nr_entries)];
	return f.nr_mapped ? f.mapped[pick(f.nr_mapped)].off : ODD_OFF;
}

static void choose_registers(void)
{
	unsigned int i;

	memset(&vcpu, 0, sizeof(vcpu));
	vcpu.state = f.v;
	for (i = 0; i < 31; i++)
		vcpu.arch.regs.regs[i] = rnd(8);
	vcpu.arch.regs.regs[29] = f.v.x29;
	vcpu.arch.regs.sp = f.v.sp_el0;
	vcpu.arch.regs.pc = f.v.pc;
	vcpu.arch.regs.pstate = f.v.pstate;
	vcpu.arch.sysregs_on_cpu = f.on_cpu;
	/* While the register is on the CPU, the copy in memory is stale. */
	vcpu.arch.sys_regs[SP_EL1] = f.on_cpu ? rnd(8) : f.v.sp_el1;
	vcpu.arch.sys_regs[TTBR0_EL1] = f.v.ttbr[0];
	vcpu.arch.sys_regs[TPIDR_EL1] = fuzz_any_address();
	vcpu.has_nv = once_in(4);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	fuzz_make_memory();
	mem = fuzz_guest.mem;
	memset(mem, 0, f.next_off);
	memset(mem + ODD_OFF - 0x10000, 0, MEM_SIZE - ODD_OFF + 0x10000);
	memset(&f, 0, sizeof(f));
	fuzz_begin(data, size);

	f.is_protected = once_in(4);
	f.on_cpu = once_in(2);
	choose_guest();
	choose_registers();
	FUZZ_ASSERT(kvm_arch_vcpu_can_peek(&vcpu) == !(f.is_protected || vcpu.has_nv),
		    "shows a guest that it can't, or the other way around");

	check_walk();
	fuzz_check_reads(&vcpu, (f.v.pstate & 0xf) == 0, VALID_REGS);
	return 0;
}
