// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compute the callchain that an arm64 guest must have.
 *
 * Numbers like D8.2 are sections and R_ABCDE are rules of the Arm Architecture Reference Manual
 * for A-profile, DDI 0487; AAPCS64 is the Procedure Call Standard for the Arm 64-bit
 * Architecture, IHI 0055.
 */
#include "callchain_oracle.h"

/* The lowest number that perf may use as a context marker. */
#define FIRST_MARKER	(-4095ULL)

/* KVM_PEEK_MAX: a walk that reaches more pieces ends there. */
#define MAX_PIECES		64

static u64 bit(unsigned int nr)
{
	return 1ULL << nr;
}

static u64 bits(unsigned int high, unsigned int low)
{
	return ~0ULL >> (63 - high) & ~0ULL << low;
}

/* Bits of SCTLR_EL1, section D24.2. */
#define SCTLR_M		bit(0)
#define SCTLR_E0E	bit(24)
#define SCTLR_EE	bit(25)

/* Fields of TCR_EL1.  All but HA exist once for each half of the addresses. */
#define TCR_TSZ(_upper)	((_upper) ? 16 : 0)
#define TCR_EPD(_upper)	bit((_upper) ? 23 : 7)
#define TCR_TBI(_upper)	bit((_upper) ? 38 : 37)
#define TCR_HPD(_upper)	bit((_upper) ? 42 : 41)
#define TCR_E0PD(_upper) bit((_upper) ? 56 : 55)
#define TCR_HA		bit(39)

/* PSTATE, in the format of SPSR_EL1. */
#define PSTATE_M4	bit(4)		/* AArch32 */
#define PSTATE_PAN	bit(22)
#define PSTATE_M	bits(3, 0)
#define PSTATE_EL0T	0
#define PSTATE_EL1H	5

/* D8.1.2: bit 55 selects the half, for tagged addresses as well. */
static bool in_upper_half(u64 va)
{
	return va >> 55 & 1;
}

/**
 * oracle_granule_shift - return log2 of the size of pages
 * @v:		the vCPU
 * @upper:	in the upper half of the addresses
 *
 * TCR_EL1.TG0 and TG1 have different encodings.
 */
unsigned int oracle_granule_shift(const struct oracle_vcpu *v, bool upper)
{
	static const unsigned int tg0[] = { 12, 16, 14, 16 }, tg1[] = { 16, 14, 12, 16 };

	return upper ? tg1[v->tcr >> 30 & 3] : tg0[v->tcr >> 14 & 3];
}

/**
 * oracle_va_bits - return the width of virtual addresses
 * @v:		the vCPU
 * @upper:	in the upper half of the addresses
 *
 * D8.2.4.1: a CPU may treat a TxSZ that is out of range as the nearest valid one.
 */
unsigned int oracle_va_bits(const struct oracle_vcpu *v, bool upper)
{
	unsigned int tsz = v->tcr >> TCR_TSZ(upper) & 63;

	return tsz < 12 ? 52 : tsz > 48 ? 16 : 64 - tsz;
}

/**
 * oracle_is_canonical - check a virtual address without a tag
 * @v:		the vCPU
 * @va:		the address
 *
 * R_YYVYV: all bits above the input address must be equal to bit 55.
 */
bool oracle_is_canonical(const struct oracle_vcpu *v, u64 va)
{
	u64 above = va >> oracle_va_bits(v, in_upper_half(va));

	return above == (in_upper_half(va) ? ~0ULL >> oracle_va_bits(v, true) : 0);
}

/**
 * oracle_untagged - return a data address without its tag
 * @v:		the vCPU
 * @va:		the address
 *
 * D8.8: with TBI, the CPU ignores the topmost byte of a data address.
 */
u64 oracle_untagged(const struct oracle_vcpu *v, u64 va)
{
	if (!(v->tcr & TCR_TBI(in_upper_half(va))))
		return va;
	return (va & bits(55, 0)) | (in_upper_half(va) ? bits(63, 56) : 0);
}

/**
 * oracle_sp - return the stack pointer
 * @v:		the vCPU
 *
 * C5.2.16: SPSel selects it.
 */
u64 oracle_sp(const struct oracle_vcpu *v)
{
	return (v->pstate & PSTATE_M) == PSTATE_EL1H ? v->sp_el1 : v->sp_el0;
}

/* D8.10, Strip(): all bits above the address may hold the signature, except bit 55. */
static u64 without_signature(const struct oracle_vcpu *v, u64 va)
{
	u64 address = bits(oracle_va_bits(v, in_upper_half(va)) - 1, 0);

	if (!v->pauth)
		return va;
	return (va & address) | (in_upper_half(va) ? ~address : 0);
}

static u64 swap_if(bool big_endian, u64 bytes)
{
	return big_endian ? __builtin_bswap64(bytes) : bytes;
}

/**
 * oracle_translate - translate a guest's virtual address for a data read
 * @v:		the vCPU
 * @read:	reads the guest's physical memory
 * @arg:	passed to @read
 * @va:		the address, canonical and without a tag
 * @as_el0:	EL0 does the read
 * @pa:		where to put the physical address
 * @rights:	set to who may read there, without regard to PAN
 *
 * Follows D8.2 and D8.3, but has no descriptor formats for 52-bit addresses.
 *
 * Return: false if there is no translation.
 */
bool oracle_translate(const struct oracle_vcpu *v, oracle_read_fn read, void *arg, u64 va,
		      bool as_el0, u64 *pa, struct oracle_rights *rights)
{
	const bool upper = in_upper_half(va);
	const unsigned int va_bits = oracle_va_bits(v, upper), tsz = v->tcr >> TCR_TSZ(upper) & 63;
	const unsigned int granule = oracle_granule_shift(v, upper);
	/* Each table is a page of eight-byte descriptors; the first table may be smaller. */
	unsigned int top = va_bits, low = granule;
	u64 table, desc, no_el0 = 0;

	if (!(v->sctlr & SCTLR_M)) {
		*pa = va;
		rights->el0 = true;
		rights->el1 = true;
		return va < bit(48);
	}

	if (tsz < 12 || tsz > 48 || (v->tcr & TCR_EPD(upper)))
		return false;
	/* FEAT_E0PD: accesses by EL0 fault, whatever the tables say. */
	if (as_el0 && (v->tcr & TCR_E0PD(upper)))
		return false;

	while (low + granule - 3 < va_bits)
		low += granule - 3;

	table = v->ttbr[upper] & bits(47, 1);
	for (;;) {
		u64 index = (va & bits(top - 1, 0)) >> low;

		if (!read(arg, table + index * 8, &desc))
			return false;
		desc = swap_if(v->sctlr & SCTLR_EE, desc);
		if (!(desc & 1))
			return false;
		if (low == granule || !(desc & 2))
			break;

		/* APTable[0]: EL0 may not read, whatever the lower levels say. */
		if (!(v->tcr & TCR_HPD(upper)))
			no_el0 |= desc & bit(61);
		table = desc & bits(47, granule);
		top = low;
		low -= granule - 3;
	}

	/* No blocks at the last level; up to 1 GiB, 32 MiB or 512 MiB, by the size of pages. */
	if (low == granule ? !(desc & 2) : low > granule + (granule == 12 ? 2 : 1) * (granule - 3))
		return false;
	if (!(desc & bit(10)) && !(v->tcr & TCR_HA))
		return false;

	*pa = (desc & bits(47, low)) | (va & bits(low - 1, 0));
	rights->el1 = true;
	rights->el0 = (desc & bit(6)) && !no_el0;
	return true;
}

/**
 * oracle_may_read - return true if a read is allowed where oracle_translate() has found @rights
 * @v:		the vCPU
 * @el0:	EL0 does the read
 * @rights:	who may read there
 */
bool oracle_may_read(const struct oracle_vcpu *v, bool el0, const struct oracle_rights *rights)
{
	if (el0)
		return rights->el0;
	/* R_PMTWB, FEAT_PAN: if the MMU is on, EL1 can't read memory that EL0 may read. */
	if ((v->sctlr & SCTLR_M) && (v->pstate & PSTATE_PAN) && rights->el0)
		return false;
	return rights->el1;
}

/* How many times a walk may leave a stack of the kernel for a lower one. */
#define MAX_LEFT	3

/**
 * struct walk - the state of a walk
 * @v:		the vCPU
 * @read:	reads the guest's physical memory
 * @arg:	passed to @read
 * @el0:	the stack is not the guest's kernel's
 * @be:		words of the stack are big-endian
 * @fp:		frame pointer
 * @stacks:	the part of each stack that was walked; the current stack is the last one
 * @nr_stacks:	the number of these parts
 * @have_page:	@page and @page_pa are valid
 * @page:	virtual address of the 4 KiB piece that was translated last
 * @page_pa:	its physical address
 * @nr_pieces:	how many pieces were translated, or could not be
 */
struct walk {
	const struct oracle_vcpu *v;
	oracle_read_fn read;
	void *arg;
	bool el0;
	bool be;
	u64 fp;
	struct {
		u64 from;
		u64 to;
	} stacks[MAX_LEFT + 1];
	unsigned int nr_stacks;
	bool have_page;
	u64 page;
	u64 page_pa;
	unsigned int nr_pieces;
};

static bool read_stack(struct walk *w, u64 va, u64 *word)
{
	struct oracle_rights rights;
	u64 page = va & ~bits(11, 0), bytes;

	if (!w->have_page || w->page != page) {
		w->have_page = w->nr_pieces++ < MAX_PIECES && oracle_is_canonical(w->v, va) &&
			       oracle_translate(w->v, w->read, w->arg, page, w->el0, &w->page_pa,
						&rights) &&
			       oracle_may_read(w->v, w->el0, &rights);
		w->page = page;
	}
	if (!w->have_page || !w->read(w->arg, w->page_pa + (va - page), &bytes))
		return false;
	*word = swap_if(w->be, bytes);
	return true;
}

/* Return true if the next record may be at @frame; if needed, go to a lower stack. */
static bool go_to_record(struct walk *w, u64 frame)
{
	unsigned int i;

	if (frame & 7 || frame >= 0ULL - 16)
		return false;
	for (i = 0; i < w->nr_stacks; i++) {
		if (frame >= w->stacks[i].from && frame < w->stacks[i].to)
			return false;
	}
	/* Stacks grow to lower addresses: callers are above. */
	if (frame >= w->stacks[w->nr_stacks - 1].to)
		return true;
	if (w->el0 || w->nr_stacks == MAX_LEFT + 1)
		return false;
	w->stacks[w->nr_stacks].from = frame;
	w->stacks[w->nr_stacks++].to = frame;
	return true;
}

/* AAPCS64 6.4.6: a frame record has the caller's frame pointer, then the return address. */
static bool find_caller(struct walk *w, u64 *ip)
{
	u64 frame = oracle_untagged(w->v, w->fp), ra;

	if (!go_to_record(w, frame) || !read_stack(w, frame, &w->fp) ||
	    !read_stack(w, frame + 8, &ra))
		return false;

	ra = without_signature(w->v, ra);
	if (!ra || !oracle_is_canonical(w->v, ra) || ra >= FIRST_MARKER)
		return false;

	*ip = ra;
	w->stacks[w->nr_stacks - 1].to = frame + 16;
	return true;
}

/**
 * oracle_walk - compute the callers that a vCPU must have
 * @v:		the vCPU
 * @read:	reads the guest's physical memory
 * @arg:	passed to @read
 * @max:	how many callers there may be, up to ORACLE_MAX_DEPTH
 * @chain:	set to the callers
 */
void oracle_walk(const struct oracle_vcpu *v, oracle_read_fn read, void *arg,
		 unsigned int max, struct oracle_chain *chain)
{
	const bool el0 = (v->pstate & bits(3, 2)) == PSTATE_EL0T;
	struct walk w = {
		.v = v, .read = read, .arg = arg, .el0 = el0,
		.be = v->sctlr & (el0 ? SCTLR_E0E : SCTLR_EE),
		.fp = v->x29, .nr_stacks = 1,
	};

	w.stacks[0].from = oracle_untagged(v, oracle_sp(v));
	w.stacks[0].to = w.stacks[0].from;

	/* AArch32 code has no such records.  Zero marks the outermost one. */
	chain->nr = 0;
	while (!(v->pstate & PSTATE_M4) && chain->nr < max && w.fp &&
	       find_caller(&w, &chain->ips[chain->nr]))
		chain->nr++;
}
