// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzz arch/arm64/kvm/stacktrace_guest.c in user space, under libFuzzer.
 *
 * The input describes a guest: registers, page tables, stacks, and maybe a word that changes at
 * some read.  The walk must find what the oracle finds.  Both translate by oracle_translate();
 * guest_callchain_modes_test tests KVM's own page-table walk.
 */
#include <linux/kvm_host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most words and page-table walks that an entry of kvm_arch_vcpu_stack_walk() takes. */
#define MAX_READS	7
#define MAX_WALKS	4

/* Put behind the array that a walk may fill; the walk must not overwrite it. */
#define CANARY		0x0ff1ce0ff1ce0ff1ULL

/* The guest's memory.  Its last 64 KiB, the largest granule, begin with a page of each kind. */
#define MEM_GPA		0x40000000ULL
#define MEM_SIZE	0x100000u
#define ODD_OFF		(MEM_SIZE - 0x10000u)

enum page_kind {
	PAGE_USUAL,
	PAGE_SWAPPED,	/* only kvm_get_swapped_page() finds it */
	PAGE_HOLE,	/* the VMM has no memory there; a page fault would allocate some */
	PAGE_DEVICE,	/* a device's registers: reads have side effects */
	PAGE_NO_SLOT,
	PAGE_HIDDEN,	/* in a memslot of KVM's own, or in one that is being removed */
	NR_PAGE_KINDS,
};

static u8 mem[MEM_SIZE] __aligned(PAGE_SIZE);

int sysctl_perf_event_guest_callchain;

/* The bytes of the input; when these are used up, random numbers, seeded by its first bytes. */
static struct {
	const u8 *data;
	size_t size;
	u64 state;
} input;

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
	unsigned int depth;
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
	bool racing;
	unsigned int race_countdown;
	unsigned int race_reads;

	struct oracle_chain chain;
	bool is_protected;
	bool is_preemptible;
	unsigned long hardirqs;
	bool translates;
	void *held;
	unsigned int reads;
	unsigned int walks;
} f;

static void print_chain(const char *whose, const struct oracle_chain *chain)
{
	unsigned int i;

	fprintf(stderr, "%s: end %u, %u of the kernel:", whose, chain->end, chain->nr_kernel);
	for (i = 0; i < chain->nr; i++)
		fprintf(stderr, " %#lx", chain->ips[i]);
	fputc('\n', stderr);
}

static void print_guest(void)
{
	const struct oracle_vcpu *v = &f.v;

	fprintf(stderr, "pc %#lx x29 %#lx sp_el0 %#lx sp_el1 %#lx elr %#lx spsr %#lx\n",
		v->pc, v->x29, v->sp_el0, v->sp_el1, v->elr, v->spsr);
	fprintf(stderr, "pstate %#lx sctlr %#lx tcr %#lx ttbr %#lx %#lx\n",
		v->pstate, v->sctlr, v->tcr, v->ttbr[0], v->ttbr[1]);
	fprintf(stderr, "pauth %d depth %u race %d\n", v->pauth, f.depth, f.race);
	print_chain("walk", &f.chain);
}

#define FUZZ_ASSERT(_cond, ...)						\
do {									\
	if (!(_cond)) {							\
		fprintf(stderr, "fuzz_stack_walk_arm64: " __VA_ARGS__);	\
		fputc('\n', stderr);					\
		print_guest();						\
		abort();						\
	}								\
} while (0)

/* Memory */

static enum page_kind page_kind(u64 off)
{
	u64 nr = (off - ODD_OFF) / PAGE_SIZE;

	return off >= ODD_OFF && nr < NR_PAGE_KINDS ? nr : PAGE_USUAL;
}

static u64 load(u64 off)
{
	u64 bytes;

	if (f.racing && !f.race_countdown--)
		memcpy(mem + f.race_off, &f.race_bytes[1], 8);
	memcpy(&bytes, mem + off, 8);
	return bytes;
}

/* Read for the oracle: the first *@arg reads of the racing word find its old value. */
static bool oracle_read(void *arg, u64 pa, u64 *bytes)
{
	const unsigned int *old_reads = arg;
	u64 off = pa - MEM_GPA;

	if (off >= MEM_SIZE || page_kind(off) > PAGE_SWAPPED)
		return false;
	memcpy(bytes, mem + off, 8);
	if (f.race && off == f.race_off)
		*bytes = f.race_bytes[f.race_reads++ >= *old_reads];
	return true;
}

static bool walk_read(void *arg, u64 pa, u64 *bytes)
{
	return !kvm_peek_guest(arg, pa, bytes);
}

int __kvm_translate_va(struct kvm_vcpu *vcpu, struct s1_walk_info *wi,
		       struct s1_walk_result *wr, u64 va)
{
	struct oracle_rights rights;
	bool found;

	FUZZ_ASSERT(wi->peek && wi->regime == TR_EL10, "may change page tables");
	FUZZ_ASSERT(!(va & (PAGE_SIZE - 1)), "translates %#lx, not a page", va);
	f.walks++;
	f.translates = true;
	found = oracle_translate(&f.v, walk_read, vcpu, va, wi->as_el0, &wr->pa, &rights);
	f.translates = false;
	if (!found)
		return -EFAULT;
	wr->ur = rights.el0;
	wr->pr = rights.el1 && !(wi->pan && rights.el0 && (f.v.sctlr & SCTLR_ELx_M));
	return 0;
}

struct kvm_memory_slot *kvm_vcpu_gfn_to_memslot(struct kvm_vcpu *vcpu, gfn_t gfn)
{
	u64 off = (gfn << PAGE_SHIFT) - MEM_GPA;

	FUZZ_ASSERT(vcpu->kvm->srcu == 1, "looks for a memslot without kvm->srcu");
	if (off >= MEM_SIZE || page_kind(off) == PAGE_NO_SLOT)
		return NULL;
	return (void *)(mem + (page_kind(off) == PAGE_HIDDEN));
}

bool kvm_is_visible_memslot(struct kvm_memory_slot *slot)
{
	return slot == (void *)mem;
}

unsigned long __gfn_to_hva_memslot(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	FUZZ_ASSERT(slot == (void *)mem, "takes memory of a memslot that is not the guest's");
	return (unsigned long)mem + (gfn << PAGE_SHIFT) - MEM_GPA;
}

/* GUP */

static bool hold_page(struct page **page, unsigned long addr)
{
	FUZZ_ASSERT(!f.held, "holds two pages");
	f.held = (void *)(addr & PAGE_MASK);
	*page = f.held;
	return true;
}

static enum page_kind gup(unsigned long addr)
{
	FUZZ_ASSERT(addr - (unsigned long)mem < MEM_SIZE, "asks for a page beyond the memslot");
	FUZZ_ASSERT(f.is_preemptible, "may sleep where it must not");
	return page_kind(addr - (unsigned long)mem);
}

bool get_user_page_fast_only(unsigned long addr, unsigned int flags, struct page **page)
{
	enum page_kind kind = gup(addr);

	FUZZ_ASSERT(!flags, "asks for a page with flags %#x", flags);
	return kind == PAGE_USUAL && hold_page(page, addr);
}

struct page *kvm_get_swapped_page(unsigned long hva)
{
	struct page *page;

	return gup(hva) == PAGE_SWAPPED && hold_page(&page, hva) ? page : NULL;
}

void put_page(struct page *page)
{
	FUZZ_ASSERT(f.held && page == f.held, "puts a page that it doesn't hold");
	f.held = NULL;
}

u64 fuzz_read_once(const void *from, size_t size)
{
	u64 off = (unsigned long)from - (unsigned long)mem, val = 0;

	if (off >= MEM_SIZE) {
		memcpy(&val, from, size);
		return val;
	}

	FUZZ_ASSERT(size == 8 && !(off & 7), "reads %zu bytes at offset %#lx", size, off);
	FUZZ_ASSERT(f.held == (void *)((unsigned long)from & PAGE_MASK),
		    "reads a page that it doesn't hold");
	f.reads += !f.translates;
	return load(off);
}

/* Registers, and the host's state */

u64 vcpu_read_sys_reg(const struct kvm_vcpu *vcpu, enum vcpu_sysreg reg)
{
	switch (reg) {
	case TCR_EL1:
		return f.v.tcr;
	case SCTLR_EL1:
		return f.v.sctlr;
	case ELR_EL1:
		return f.v.elr;
	case SPSR_EL1:
		return f.v.spsr;
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

bool preemptible(void)
{
	return f.is_preemptible;
}

unsigned long hardirq_count(void)
{
	return f.hardirqs;
}

/* Random guests */

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
	value = input.state * 0x2545f4914f6cdd1dULL;
	return value >> (64 - 8 * nr_bytes);
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
			page = once_in(16) ? ODD_OFF + pick(NR_PAGE_KINDS) * PAGE_SIZE :
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

/* Write saved registers of Linux at @regs, and a zero record of @type at @record. */
static void put_regs(u64 regs, u64 record, u64 type, u64 fp, u64 sp, u64 pc, u64 pstate)
{
	put_stack(regs + 232, spoil_address(fp), false);
	put_stack(regs + 248, spoil_address(sp), false);
	put_stack(regs + 256, pc, false);
	put_stack(regs + 264, once_in(8) ? pstate ^ BIT(pick(once_in(2) ? 8 : 64)) : pstate, false);
	put_stack(record, once_in(30) ? rnd(8) : 0, false);
	put_stack(record + 8, 0, false);
	put_stack(record + 16, once_in(16) ? rnd(1) % 4 : type, false);
}

/* Build frames; their first record is at @fp. */
static void put_frames(u64 fp, struct stack *stack, bool upper, bool el0)
{
	unsigned int nr = pick(3) ? pick(24) : pick(160);
	u64 next, regs, offset, first = fp;
	bool old, again;

	for (; nr; nr--, fp = next) {
		if (once_in(6))
			first = fp;
		if (!el0 && once_in(10)) {
			/* This record is the one in Linux's saved registers. */
			old = once_in(3);
			offset = old ? 304 : 296;
			regs = fp - offset;
			stack->next = fp + 48;
			if (!old && once_in(2)) {
				stack = choose_stack(stack, false);
				next = once_in(6) ? regs + pick(48) * 8 : next_record(stack);
				put_regs(regs, fp, 2, next, next, choose_text(upper), 0x3c5);
				continue;
			}
			el0 = true;
			upper = once_in(16);
			/* A program's frames may be on one of the kernel's stacks. */
			stack = &f.stacks[once_in(6) ? pick(f.nr_stacks) : 0];
			/* Or its frame pointer leads back to a record of the kernel's. */
			again = once_in(6);
			next = again ? first : next_record(stack);
			put_regs(regs, fp, old ? rnd(8) : 1, next, next - pick(8) * 8,
				 choose_text(upper), ONE_OF(0, 0x1000, 0x60000000, 0, 0x10));
			if (again)
				return;
			continue;
		}
		stack = choose_stack(stack, el0);
		next = next_record(stack);
		put_stack(fp, spoil_address(next), el0);
		put_stack(fp + 8, choose_text(upper), el0);
	}
	put_stack(fp, once_in(4) ? next_record(stack) : 0, el0);
	put_stack(fp + 8, 0, el0);
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
	v->elr = choose_text(once_in(8));
	v->spsr = ONE_OF(0, 0x60001000, 0x10, 0x3c5, rnd(8));
	memset(v->x24, 0, sizeof(v->x24));
	if (once_in(4))
		v->x24[pick(4)] = rnd(8);
	if (!el0 && once_in(6)) {
		/* The kernel was just entered: X29 is still the program's. */
		stack = &f.stacks[0];
		fp = next_record(stack);
		v->x29 = spoil_address(fp);
		if (once_in(3)) {
			/* The kernel has saved and cleared X29. */
			v->sp_el1 = once_in(8) ? -ONE_OF(0x130, 0x140, 0x150) :
						 f.stacks[1].low + 8 * pick(4);
			put_stack(v->sp_el1 + 8 * 29, v->x29, false);
			v->x29 = 0;
		}
		el0 = true;
		upper = false;
	}
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
	return a->nr == b->nr && a->nr_kernel == b->nr_kernel && a->end == b->end &&
	       !memcmp(a->ips, b->ips, a->nr * sizeof(a->ips[0]));
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
		oracle_walk(&f.v, oracle_read, &old_reads, f.depth, &oracle);
		if (print)
			print_chain("oracle", &oracle);
		if (chains_equal(&f.chain, &oracle))
			return true;
	} while (f.race && old_reads++ < f.race_reads);

	return false;
}

/* Return the reason that was counted; fail unless it is the only one, counted once. */
static enum oracle_end counted_end(const struct kvm_vcpu *vcpu)
{
	enum oracle_end end = ORACLE_GOES_ON;
	unsigned int i;

	FUZZ_ASSERT(vcpu->stat.callchain_walks == 1 &&
		    vcpu->stat.callchain_frames == f.chain.nr, "counts %lu walks of %lu entries",
		    vcpu->stat.callchain_walks, vcpu->stat.callchain_frames);
	for (i = 0; i < ARRAY_SIZE(vcpu->stat.callchain_ends); i++) {
		FUZZ_ASSERT(vcpu->stat.callchain_ends[i] <= !end, "counts two ends");
		if (vcpu->stat.callchain_ends[i])
			end = i + 1;
	}
	FUZZ_ASSERT(end, "counts no end");
	return end;
}

static bool is_shown(const struct kvm_vcpu *vcpu)
{
	static const bool shown[3][3] = {
		[PERF_GUEST_CALLCHAIN_IF_ALLOWED][KVM_CALLCHAIN_ALLOWED] = true,
		[PERF_GUEST_CALLCHAIN_UNLESS_FORBIDDEN][KVM_CALLCHAIN_UNDECIDED] = true,
		[PERF_GUEST_CALLCHAIN_UNLESS_FORBIDDEN][KVM_CALLCHAIN_ALLOWED] = true,
	};

	return !f.is_protected && !vcpu->has_nv &&
	       shown[sysctl_perf_event_guest_callchain][vcpu->kvm->callchain_policy];
}

static void check_request(struct kvm_vcpu *vcpu)
{
	struct perf_guest_callchain_request *request = kvm_arch_vcpu_callchain_request(vcpu);
	bool may = is_shown(vcpu) && vcpu->arch.callchain_phase == CALLCHAIN_REQUEST &&
		   f.hardirqs == HARDIRQ_OFFSET;

	FUZZ_ASSERT(request == (may ? &vcpu->arch.callchain_request : NULL),
		    "allows a request that it must refuse, or refuses one that it must allow");
	FUZZ_ASSERT(!request || request->guest_ip == f.v.pc, "requests from another IP");
	/* Bits 3 to 0 of PSTATE are zero at EL0, in AArch64 and in AArch32. */
	FUZZ_ASSERT(!request || request->guest_state ==
		    (PERF_GUEST_ACTIVE | (f.v.pstate & 0xf ? 0 : PERF_GUEST_USER)),
		    "requests with a wrong guest_state");
}

static void check_walk(struct kvm_vcpu *vcpu)
{
	static const unsigned int depths[] = { 127, 16, 3, 1 };
	static u64 ips[ORACLE_MAX_DEPTH + 1];
	const struct kvm_vcpu before = *vcpu;
	struct oracle_chain *chain = &f.chain;

	f.depth = depths[pick(4)];
	ips[f.depth] = CANARY;
	chain->nr = kvm_arch_vcpu_stack_walk(vcpu, ips, f.depth, &chain->nr_kernel);
	FUZZ_ASSERT(ips[f.depth] == CANARY && chain->nr <= f.depth, "writes beyond its array");
	memcpy(chain->ips, ips, chain->nr * sizeof(ips[0]));
	FUZZ_ASSERT(!f.held && !vcpu->kvm->srcu,
		    "returns without putting its page or unlocking kvm->srcu");
	FUZZ_ASSERT(!memcmp(&before.arch, &vcpu->arch, sizeof(before.arch)),
		    "changes the vCPU's registers");

	if (!is_shown(vcpu) || vcpu->arch.callchain_phase != CALLCHAIN_WALK || !f.is_preemptible) {
		u64 max = is_shown(vcpu) && f.v.pc < PERF_CONTEXT_MAX &&
			  vcpu->arch.callchain_phase != CALLCHAIN_CLOSED;

		FUZZ_ASSERT(!vcpu->stat.callchain_walks && !f.walks && !f.reads,
			    "walks when it must not");
		FUZZ_ASSERT(chain->nr == max && (!max || chain->ips[0] == f.v.pc) &&
			    chain->nr_kernel == (max && vcpu_mode_priv(vcpu)),
			    "finds %u entries where there is an IP only", chain->nr);
		return;
	}

	chain->end = counted_end(vcpu);
	/* The IP takes no read.  So the bound has room for the step that ended the chain. */
	FUZZ_ASSERT(f.reads <= MAX_READS * chain->nr && f.walks <= MAX_WALKS * chain->nr,
		    "%u words and %u translations for %u entries", f.reads, f.walks, chain->nr);
	FUZZ_ASSERT(is_right(false) || is_right(true), "the chain is not the oracle's");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct kvm kvm = {};
	struct kvm_vcpu vcpu = { .kvm = &kvm };

	memset(mem, 0, f.next_off);
	memset(mem + ODD_OFF - 0x10000, 0, MEM_SIZE - ODD_OFF + 0x10000);
	memset(&f, 0, sizeof(f));

	input.state = 0x9e3779b97f4a7c15ULL;
	input.data = data;
	input.size = size;
	if (size >= 8)
		input.state ^= rnd(8);
	input.state = input.state ?: 1;

	sysctl_perf_event_guest_callchain = once_in(12) ? pick(3) : 2;
	kvm.callchain_policy = once_in(12) ? pick(3) : KVM_CALLCHAIN_UNDECIDED;
	vcpu.has_nv = once_in(32);
	f.is_protected = once_in(32);
	f.is_preemptible = !once_in(16);
	f.hardirqs = once_in(4) ? pick(3) * HARDIRQ_OFFSET : HARDIRQ_OFFSET;
	f.on_cpu = once_in(2);
	vcpu.arch.callchain_phase = once_in(8) ? pick(3) : CALLCHAIN_WALK;
	choose_guest();

	vcpu.state = f.v;
	vcpu.arch.regs.regs[29] = f.v.x29;
	memcpy(&vcpu.arch.regs.regs[24], f.v.x24, sizeof(f.v.x24));
	vcpu.arch.regs.sp = f.v.sp_el0;
	vcpu.arch.regs.pc = f.v.pc;
	vcpu.arch.regs.pstate = f.v.pstate;
	vcpu.arch.sysregs_on_cpu = f.on_cpu;
	/* While the register is on the CPU, the copy in memory is stale. */
	vcpu.arch.sys_regs[SP_EL1] = f.on_cpu ? rnd(8) : f.v.sp_el1;

	check_request(&vcpu);
	f.racing = f.race;
	f.race_countdown = f.race ? rnd(1) : 0;
	check_walk(&vcpu);
	return 0;
}
