// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compute the callchain that a guest must have.
 *
 * Paging is written down from the manuals: Intel SDM volume 3, chapter "Paging"
 * (chapter 4, since 2023 chapter 5; sections below are numbered as in chapter 4),
 * and AMD APM volume 2, chapter 5.  The code is literal rather than fast.  It has no
 * dependencies, so that it can run in a fuzzer, and in a test of a running kernel.
 */
#include <linux/types.h>

#include "callchain_oracle.h"

#define ORACLE_BIT(n)		(1ULL << (n))

/* PERF_CONTEXT_MAX, see perf_event_open(2): from here on, entries are markers. */
#define ORACLE_FIRST_MARKER	(~0ULL - 4094)

/* KVM_PEEK_MAX: a walk that reaches more pages ends there. */
#define ORACLE_MAX_PAGES	64

/* Return a mask of bits @hi down to @lo; zero if @hi is below @lo. */
static u64 bits(unsigned int hi, unsigned int lo)
{
	if (hi < lo)
		return 0;
	return (hi == 63 ? ~0ULL : ORACLE_BIT(hi + 1) - 1) & ~(ORACLE_BIT(lo) - 1);
}

/* SDM 4.3 to 4.5, APM 5.4.1: bits at the same place in all kinds of entries that have them. */
#define ENTRY_P			ORACLE_BIT(0)
#define ENTRY_US		ORACLE_BIT(2)
#define ENTRY_PS		ORACLE_BIT(7)
#define ENTRY_XD		ORACLE_BIT(63)

/*
 * SDM 4.6.1 and 4.6.2: return true if data at an address may be read.  @us is true if
 * all entries of its translation that have a U/S bit have it set; @key is its protection key.
 */
static bool may_read(const struct oracle_vcpu *v, bool user, bool us, unsigned int key)
{
	/* User-mode accesses may only read from user-mode addresses. */
	if (user && !us)
		return false;

	/* Supervisor-mode accesses may read from user-mode addresses unless SMAP forbids it. */
	if (!user && us && v->smap && !v->ac)
		return false;

	/* With 4- and 5-level paging, keys restrict all accesses to user-mode addresses. */
	if (v->lma && v->pke && us && (v->pkru >> (2 * key) & 1))
		return false;

	return true;
}

/* SDM 4.3, figures 4-2 and 4-3, tables 4-4 to 4-6; APM 5.2.1 and 5.2.2. */
static bool translate_32(const struct oracle_vcpu *v, oracle_read_fn read, void *arg,
			 u32 la, bool user, u64 *gpa)
{
	unsigned int wide = v->maxphyaddr < v->pse36_bits ? v->maxphyaddr : v->pse36_bits;
	u64 pde, pte;

	if (!read(arg, (v->cr3 & bits(31, 12)) | (u64)(la >> 22) * 4, 4, &pde) ||
	    !(pde & ENTRY_P))
		return false;

	if (v->pse && (pde & ENTRY_PS)) {
		/* PSE-36: bits 20:13 are address bits 39:32; unused ones and 21 are reserved. */
		if (pde & bits(21, 13 + wide - 32))
			return false;
		if (!may_read(v, user, pde & ENTRY_US, 0))
			return false;
		*gpa = (pde & bits(31, 22)) | (pde & bits(20, 13)) << 19 | (la & bits(21, 0));
		return true;
	}

	if (!read(arg, (pde & bits(31, 12)) | (u64)(la >> 12 & 0x3ff) * 4, 4, &pte) ||
	    !(pte & ENTRY_P))
		return false;
	if (!may_read(v, user, pde & pte & ENTRY_US, 0))
		return false;

	*gpa = (pte & bits(31, 12)) | (la & bits(11, 0));
	return true;
}

/* SDM 4.4, tables 4-8 to 4-11; APM 5.2.3, and 15.25.10 for PDPTEs with nested paging. */
static bool translate_pae(const struct oracle_vcpu *v, oracle_read_fn read, void *arg,
			  u32 la, bool user, u64 *gpa)
{
	const u64 rsvd = bits(62, v->maxphyaddr) | (v->nxe ? 0 : ENTRY_XD);
	const u64 base = bits(v->maxphyaddr - 1, 12);
	u64 pdpte, pde, pte;

	if (!read(arg, (v->cr3 & bits(31, 5)) | (u64)(la >> 30) * 8, 8, &pdpte) ||
	    !(pdpte & ENTRY_P) || (pdpte & (bits(63, v->maxphyaddr) | bits(8, 5) | bits(2, 1))))
		return false;

	if (!read(arg, (pdpte & base) | (u64)(la >> 21 & 0x1ff) * 8, 8, &pde) ||
	    !(pde & ENTRY_P) || (pde & rsvd))
		return false;

	if (pde & ENTRY_PS) {
		if (pde & bits(20, 13))
			return false;
		if (!may_read(v, user, pde & ENTRY_US, 0))
			return false;
		*gpa = (pde & base & ~bits(20, 0)) | (la & bits(20, 0));
		return true;
	}

	if (!read(arg, (pde & base) | (u64)(la >> 12 & 0x1ff) * 8, 8, &pte) ||
	    !(pte & ENTRY_P) || (pte & rsvd))
		return false;
	if (!may_read(v, user, pde & pte & ENTRY_US, 0))
		return false;

	*gpa = (pte & base) | (la & bits(11, 0));
	return true;
}

/* SDM 4.5, tables 4-13 to 4-20; APM 5.3.  Levels: 5 is PML5, 4 PML4, 3 PDPT, 2 PD, 1 PT. */
static bool translate_long(const struct oracle_vcpu *v, oracle_read_fn read, void *arg,
			   u64 la, bool user, u64 *gpa)
{
	const u64 base = bits(v->maxphyaddr - 1, 12);
	u64 table = v->cr3 & base, entry;
	bool us = true;
	int level;

	for (level = v->la57 ? 5 : 4; ; level--) {
		unsigned int shift = 12 + 9 * (level - 1);

		if (!read(arg, table | (la >> shift & 0x1ff) * 8, 8, &entry) ||
		    !(entry & ENTRY_P))
			return false;

		if ((entry & bits(51, v->maxphyaddr)) || ((entry & ENTRY_XD) && !v->nxe))
			return false;
		us = us && (entry & ENTRY_US);

		/* Neither a PML5E nor a PML4E maps a page.  APM: bit 8 must be zero as well. */
		if (level >= 4 && (entry & (ENTRY_PS | (v->amd ? ORACLE_BIT(8) : 0))))
			return false;
		if (level == 3 && (entry & ENTRY_PS) && !v->gbpages)
			return false;

		if (level == 1 || (entry & ENTRY_PS)) {
			/* Large pages: bits from 13 up to the address are reserved, 12 is PAT. */
			if (level > 1 && (entry & bits(shift - 1, 13)))
				return false;
			if (!may_read(v, user, us, entry >> 59 & 0xf))
				return false;
			*gpa = (entry & base & ~bits(shift - 1, 0)) | (la & bits(shift - 1, 0));
			return true;
		}

		table = entry & base;
	}
}

/**
 * oracle_translate - translate a guest's linear address for a data read
 * @vcpu:	the vCPU
 * @read:	reads the guest's physical memory
 * @arg:	passed to @read
 * @gva:	the linear address; bits beyond the width of addresses don't count
 * @user:	a user-mode access
 * @gpa:	is set to the physical address
 *
 * Return: false if the access would fault, or if a page table is not in the guest's memory.
 */
bool oracle_translate(const struct oracle_vcpu *vcpu, oracle_read_fn read, void *arg,
		      u64 gva, bool user, u64 *gpa)
{
	if (!vcpu->pg) {
		*gpa = gva;
		return true;
	}
	if (vcpu->lma)
		return translate_long(vcpu, read, arg, gva, user, gpa);
	if (vcpu->pae)
		return translate_pae(vcpu, read, arg, gva, user, gpa);
	return translate_32(vcpu, read, arg, gva, user, gpa);
}

/* SDM volume 3, 5.2.1: 64-bit code. */
static bool is_64_bit(const struct oracle_vcpu *v)
{
	return v->lma && v->cs_l;
}

/**
 * oracle_is_canonical - check a linear address
 * @v:		the vCPU
 * @la:		the address
 *
 * SDM volume 1, 3.3.7.1: bits 63 down to the highest translated bit are equal.
 *
 * Return: false if 64-bit code can't use the address; true in other code.
 */
bool oracle_is_canonical(const struct oracle_vcpu *v, u64 la)
{
	u64 upper = bits(63, v->la57 ? 56 : 47);

	return !is_64_bit(v) || !(la & upper) || (la & upper) == upper;
}

/**
 * oracle_ip - return the linear address of the vCPU's instruction
 * @v:		the vCPU
 */
u64 oracle_ip(const struct oracle_vcpu *v)
{
	return is_64_bit(v) ? v->rip : (v->cs_base + v->rip) & bits(31, 0);
}

/**
 * struct walk - the state of a walk of a stack
 * @v:		the vCPU
 * @read:	reads the guest's physical memory
 * @arg:	passed to @read
 * @size:	bytes in a word
 * @max:	the highest linear address
 * @cs_base:	added to return addresses
 * @ss_base:	added to frame pointers
 * @low:	lowest linear address at which the caller's frame may lie
 * @fp:		frame pointer
 * @have_page:	@page and @page_gpa are valid
 * @page:	linear address of the page that was translated last
 * @page_gpa:	physical address of that page
 * @nr_pages:	how many pages were translated, or could not be
 */
struct walk {
	const struct oracle_vcpu *v;
	oracle_read_fn read;
	void *arg;
	unsigned int size;
	u64 max;
	u64 cs_base;
	u64 ss_base;
	u64 low;
	u64 fp;
	bool have_page;
	u64 page;
	u64 page_gpa;
	unsigned int nr_pages;
};

static bool read_stack(struct walk *w, u64 la, u64 *word)
{
	u64 page = la & ~bits(11, 0);

	if (!oracle_is_canonical(w->v, la))
		return false;

	if (!w->have_page || w->page != page) {
		/* Ring 0 reads as the kernel, the other rings as user mode. */
		w->have_page = w->nr_pages++ < ORACLE_MAX_PAGES &&
			       oracle_translate(w->v, w->read, w->arg, page, w->v->cpl != 0,
						&w->page_gpa);
		w->page = page;
	}
	return w->have_page && w->read(w->arg, w->page_gpa + (la - page), w->size, word);
}

/* Find the return address in the next frame; return false if there is no good one. */
static bool find_caller(struct walk *w, u64 *ip)
{
	u64 frame = (w->ss_base + w->fp) & w->max, ra;

	/* Frames are aligned, lie above the one before, and end below the highest address. */
	if (frame & (w->size - 1) || frame < w->low || w->max - frame < 2 * w->size)
		return false;

	if (!read_stack(w, frame, &w->fp) || !read_stack(w, frame + w->size, &ra))
		return false;

	if (!ra || !oracle_is_canonical(w->v, ra) || ra >= ORACLE_FIRST_MARKER)
		return false;

	*ip = (w->cs_base + ra) & w->max;
	w->low = frame + 2 * w->size;
	return true;
}

/**
 * oracle_walk - compute the callers that a vCPU must have
 * @vcpu:	the vCPU
 * @read:	reads the guest's physical memory
 * @arg:	passed to @read
 * @max:	maximum number of callers, up to ORACLE_MAX_DEPTH
 * @chain:	is set to the callers
 */
void oracle_walk(const struct oracle_vcpu *vcpu, oracle_read_fn read, void *arg,
		 unsigned int max, struct oracle_chain *chain)
{
	struct walk w = {
		.v = vcpu, .read = read, .arg = arg,
		.fp = vcpu->rbp, .low = vcpu->rsp, .size = 8, .max = ~0ULL,
	};

	/* SDM volume 3, 5.2.1: CS.D; volume 1, 3.3.4: no bases in 64-bit code. */
	if (!is_64_bit(vcpu)) {
		u64 mask = vcpu->cs_d ? bits(31, 0) : bits(15, 0);

		w.size = vcpu->cs_d ? 4 : 2;
		w.max = bits(31, 0);
		w.cs_base = vcpu->cs_base;
		w.ss_base = vcpu->ss_base;
		w.fp &= mask;
		w.low = (w.ss_base + (vcpu->rsp & mask)) & w.max;
	}

	for (chain->nr = 0; chain->nr < max && w.fp; chain->nr++) {
		if (!find_caller(&w, &chain->ips[chain->nr]))
			break;
	}
}
