// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random guests to sample.
 *
 * Most parts of a guest are sound, so that walks get deep enough to reach the odd parts.  A
 * walk mostly ends at its first fault: few parts of each kind are odd, so that the kinds of faults
 * don't hide each other.  Addresses and bits at the borders of ranges are listed, as random
 * values would rarely hit them.
 */
#include <linux/types.h>
#include <stdio.h>
#include <string.h>

#include "callchain_case.h"

#define NR(_array)	(sizeof(_array) / sizeof((_array)[0]))
#define PAGE		4096u

const unsigned int case_depths[CASE_NR_DEPTHS] = { 127, 16, 3, 1 };

static u64 rnd(struct callchain_case *c, unsigned int nr_bytes)
{
	return c->rnd(c->rnd_arg, nr_bytes);
}

static unsigned int pick(struct callchain_case *c, unsigned int n)
{
	return rnd(c, n > 256 ? 2 : 1) % n;
}

/* Return true about once in @n times. */
static bool once_in(struct callchain_case *c, unsigned int n)
{
	return pick(c, n) == 1;
}

static u64 one_of(struct callchain_case *c, const u64 *values, unsigned int nr)
{
	return values[pick(c, nr)];
}

#define ONE_OF(_c, ...)							\
	one_of(_c, (const u64[]){ __VA_ARGS__ }, NR(((const u64[]){ __VA_ARGS__ })))

/**
 * case_offset - convert a physical address to an offset in the guest's memory
 * @gpa:	physical address
 * @off:	is set to the offset
 *
 * Return: false if @gpa can't be read.
 */
bool case_offset(u64 gpa, u32 *off)
{
	u64 o = gpa - (gpa >= CASE_HIGH_MEM_GPA ? CASE_HIGH_MEM_GPA : CASE_MEM_GPA);

	*off = o;
	return gpa >= CASE_MEM_GPA && o < CASE_HOLE_OFF;
}

/**
 * case_load - read a word that another thread may be writing
 * @mem:	the memory
 * @off:	the word's offset, aligned
 * @size:	its size
 * @word:	is set to its value
 */
void case_load(const u8 *mem, u32 off, unsigned int size, u64 *word)
{
	switch (size) {
	case 8:
		*word = __atomic_load_n((const u64 *)(mem + off), __ATOMIC_RELAXED);
		break;
	case 4:
		*word = __atomic_load_n((const u32 *)(mem + off), __ATOMIC_RELAXED);
		break;
	default:
		*word = __atomic_load_n((const u16 *)(mem + off), __ATOMIC_RELAXED);
		break;
	}
}

/**
 * case_store - write a word that another thread may be reading
 * @mem:	the memory
 * @off:	the word's offset, aligned
 * @size:	its size
 * @word:	its new value
 */
void case_store(u8 *mem, u32 off, unsigned int size, u64 word)
{
	switch (size) {
	case 8:
		__atomic_store_n((u64 *)(mem + off), word, __ATOMIC_RELAXED);
		break;
	case 4:
		__atomic_store_n((u32 *)(mem + off), word, __ATOMIC_RELAXED);
		break;
	default:
		__atomic_store_n((u16 *)(mem + off), word, __ATOMIC_RELAXED);
		break;
	}
}

static u64 get(struct callchain_case *c, u32 off, unsigned int size)
{
	u64 word;

	case_load(c->mem, off, size, &word);
	return word;
}

static void put(struct callchain_case *c, u32 off, unsigned int size, u64 word)
{
	if (c->nr_writes == CASE_MAX_WRITES)
		return;
	c->writes[c->nr_writes++] = off & ~7u;
	case_store(c->mem, off, size, word);
}

static u32 alloc_page(struct callchain_case *c)
{
	u32 off = c->next_page;

	/* When memory runs out, all further allocations get the last page before the hole. */
	if (off < CASE_HOLE_OFF - PAGE)
		c->next_page += PAGE;
	return off;
}

/* Page tables */

#define P	0x01ULL
#define RW	0x02ULL
#define US	0x04ULL
#define A	0x20ULL
#define D	0x40ULL
#define PS	0x80ULL

static int root_level(const struct oracle_vcpu *v)
{
	return !v->lma ? v->pae ? 3 : 2 : v->la57 ? 5 : 4;
}

/* Return the number of address bits below those that index a table of @level. */
static unsigned int level_shift(const struct oracle_vcpu *v, int level)
{
	return 12 + (level - 1) * (v->pae ? 9 : 10);
}

static bool is_pdpte_register(const struct oracle_vcpu *v, int level)
{
	return v->pae && !v->lma && level == 3;
}

/*
 * Return random values for bits that reads must ignore: the walk must ignore them, too.  In long
 * mode, also return a random protection key; reads depend on it if CR4.PKE is set.
 */
static u64 noise(struct callchain_case *c, int level, bool leaf)
{
	const struct oracle_vcpu *v = &c->vcpu;
	u64 mask = 7ULL << 9;

	if (is_pdpte_register(v, level))
		return rnd(c, 8) & mask;
	mask |= RW | A | D;
	if (!c->mapping_code && v->nxe)
		mask |= 1ULL << 63;
	if (v->lma)
		mask |= 0x7ffULL << 52;
	if (leaf || level < 4)
		mask |= 1ULL << 8;
	return rnd(c, 8) & mask;
}

static bool is_code_entry(const struct callchain_case *c, u32 off)
{
	unsigned int i;

	for (i = 0; i < c->nr_code_entries; i++) {
		if (c->code_entries[i] == off)
			return true;
	}
	return false;
}

/* Remember an entry: those that map the code must stay valid, others may be changed later. */
static void remember_entry(struct callchain_case *c, u32 off)
{
	if (c->mapping_code) {
		if (c->nr_code_entries < NR(c->code_entries))
			c->code_entries[c->nr_code_entries++] = off;
	} else if (c->nr_entries < NR(c->entries)) {
		c->entries[c->nr_entries++] = off;
	}
}

/*
 * Map a page whose size is that of @leaf_level.  The root table is at offset PAGE of the memory;
 * with PAE, it may begin anywhere on that page, see choose_mode().
 */
static void map(struct callchain_case *c, u64 gva, u64 gpa, int leaf_level, bool user)
{
	const struct oracle_vcpu *v = &c->vcpu;
	u64 table = v->cr3 & ~(v->pae && !v->lma ? 31ULL : 4095ULL);
	int level;

	for (level = root_level(v); ; level--) {
		unsigned int index = gva >> level_shift(v, level) & (v->pae ? 511 : 1023);
		u64 entry, rights = RW | (user ? US : 0), flags;
		u32 off;

		/* PDPTEs have no rights, and no Accessed or Dirty bits. */
		if (is_pdpte_register(v, level)) {
			index &= 3;
			rights = 0;
		}
		if (!case_offset(table + index * c->entry_size, &off))
			return;

		entry = get(c, off, c->entry_size);
		flags = P | rights;
		flags |= c->mapping_code && !is_pdpte_register(v, level) ?
			 A | D : noise(c, level, level == leaf_level);

		if (level == leaf_level) {
			if (is_code_entry(c, off))
				return;
			if (level > 1)
				flags |= PS;
			entry = gpa | flags;
			if (!v->pae && level == 2)
				entry = (gpa & 0xffc00000) | gpa >> 32 << 13 | flags;
			put(c, off, c->entry_size, entry);
			remember_entry(c, off);
			return;
		}

		if (!(entry & P)) {
			u64 window = v->pae && once_in(c, 4) && !c->mapping_code ?
				     CASE_HIGH_MEM_GPA : CASE_MEM_GPA;

			entry = (window + alloc_page(c)) | flags;
		} else if (!(entry & PS) || is_pdpte_register(v, level)) {
			/* Kernel pages may use the table, too; user pages need US in its entry. */
			entry |= user ? rights : 0;
		} else {
			return;
		}
		put(c, off, c->entry_size, entry);
		remember_entry(c, off);
		table = v->pae ? entry & 0xffffffffff000ULL : entry & 0xfffff000ULL;
	}
}

/*
 * Change an entry that does not map the code.  Each kind of change has odds of 1 in 10, but U/S
 * has 2 in 10, because all checks of rights depend on it.  The listed bits are at the borders
 * of fields and of reserved bits; the listed addresses can't be read.
 */
static void tamper_with_entry(struct callchain_case *c)
{
	u32 off = c->nr_entries ? c->entries[pick(c, c->nr_entries)] : 0;
	u64 entry, base = c->entry_size == 8 ? 0xffffffffff000ULL : 0xfffff000ULL;

	if (!off || is_code_entry(c, off))
		return;
	if (c->fixed_pdptes && is_pdpte_register(&c->vcpu, 3) &&
	    off - (c->vcpu.cr3 - CASE_MEM_GPA) < 32)
		return;

	entry = get(c, off, c->entry_size);
	switch (pick(c, 10)) {
	case 0:
		entry &= ~P;
		break;
	case 1:
	case 2:
		entry ^= US;
		break;
	case 3:
		entry ^= PS;
		break;
	case 4:
		entry ^= 1ULL << pick(c, 64);
		break;
	case 5:
		entry ^= 1ULL << ONE_OF(c, 63, 51, 52, 40, 39, 36, 8, 13, 17, 21, 29);
		break;
	case 6:
		entry = (entry & ~base) | ONE_OF(c, CASE_MEM_GPA + CASE_HOLE_OFF, 0, 1ULL << 34,
						 CASE_MEM_GPA + CASE_MEM_SIZE, 1ULL << 39,
						 CASE_HIGH_MEM_GPA + CASE_HOLE_OFF);
		break;
	case 7:
		/* To the table that the entry itself is in. */
		entry = (entry & ~base) | (CASE_MEM_GPA + (off & ~4095u));
		break;
	case 8:
		entry = (entry & ~base) |
			(CASE_MEM_GPA + pick(c, CASE_NR_PAGES) * (u64)PAGE);
		break;
	default:
		entry ^= rnd(c, 1) % 16 << 59;
		break;
	}
	put(c, off, c->entry_size, entry);
}

/* Stacks */

/* Remember where the memory of a stack's page is: put_stack() writes there. */
static void add_mapped(struct callchain_case *c, u64 gva, u32 off)
{
	if (c->nr_mapped == NR(c->mapped))
		return;
	c->mapped[c->nr_mapped].gva = gva;
	c->mapped[c->nr_mapped++].off = off;
}

/* Write a word to the stack; do nothing if it is unaligned, or if its page is not mapped. */
static void put_stack(struct callchain_case *c, u64 gva, unsigned int size, u64 word)
{
	unsigned int i;
	u32 off;

	if (gva & (size - 1))
		return;
	for (i = 0; i < c->nr_mapped; i++) {
		if (c->mapped[i].gva != (gva & ~4095ULL))
			continue;
		off = c->mapped[i].off + (gva & 4095);
		put(c, off, size, word);
		if (c->nr_words < NR(c->words))
			c->words[c->nr_words++] = off;
		return;
	}
}

/*
 * Choose where a stack lies: at usual places, at borders of address ranges, which random addresses
 * would never hit, or anywhere.
 */
static u64 choose_stack_gva(struct callchain_case *c, bool user)
{
	const struct oracle_vcpu *v = &c->vcpu;

	if (v->lma && v->cs_l) {
		if (user)
			return ONE_OF(c, 0x7ffc12340000ULL, 0x7fffffffd000ULL, 0x400000ULL,
				      0xfffd0000ULL, v->la57 ? 0xffffffffffd000ULL : 0x1000);
		switch (pick(c, 8)) {
		case 0:
			return 0xffffc90000010000ULL;
		case 1:
			return 0xffff888000000000ULL + (rnd(c, 3) << 12);
		case 2:
			return v->la57 ? 0xff11000000000000ULL : 0xffff800000000000ULL;
		case 3:
			/* Last pages of all addresses; in the next case, of the lower half. */
			return 0ULL - PAGE * (1 + pick(c, 3));
		case 4:
			return (v->la57 ? 1ULL << 56 : 1ULL << 47) - PAGE * (1 + pick(c, 3));
		case 5:
			return rnd(c, 8) & ~4095ULL;
		default:
			return 0xffffc90000020000ULL;
		}
	}

	switch (pick(c, 6)) {
	case 0:
		return 0x80000000u - PAGE * (1 + pick(c, 2));
	case 1:
		return user ? 0xbfffe000u : 0u - PAGE * (1 + pick(c, 3));
	case 2:
		return rnd(c, 4) & 0xfffff000u;
	default:
		return user ? 0xbf800000u : 0xc1234000u;
	}
}

/* Map a stack of @nr_pages pages; return its lowest address. */
static u64 make_stack(struct callchain_case *c, bool user, unsigned int nr_pages)
{
	const struct oracle_vcpu *v = &c->vcpu;
	const bool high = v->pg && (v->pae || v->pse) && once_in(c, 4);
	const u64 window = high ? CASE_HIGH_MEM_GPA : CASE_MEM_GPA;
	const u64 mask = v->lma && v->cs_l ? ~0ULL : 0xffffffffULL;
	u64 gva = choose_stack_gva(c, user), page_mask;
	unsigned int i;
	int level = 1;
	u32 off;

	/* Without paging, a stack's addresses are those of its memory. */
	if (!v->pg) {
		for (i = 0; i < nr_pages; i++) {
			off = alloc_page(c);
			if (!i)
				gva = CASE_MEM_GPA + off;
			add_mapped(c, CASE_MEM_GPA + off, off);
		}
		return gva;
	}

	/* Large pages of 32-bit paging need PSE, and also reach above 4 GiB; PTEs can't. */
	if (once_in(c, 4) && (v->pae || v->pse))
		level = v->lma && v->gbpages && once_in(c, 2) ? 3 : 2;

	if (level > 1) {
		page_mask = (1ULL << level_shift(v, level)) - 1;
		gva = (gva & ~page_mask) + c->next_page;
		map(c, gva & ~page_mask, window, level, user);
		for (i = 0; i < nr_pages; i++) {
			off = alloc_page(c);
			add_mapped(c, (gva & ~page_mask & mask) + off, off);
		}
		return gva & mask;
	}

	for (i = 0; i < nr_pages; i++) {
		off = alloc_page(c);
		map(c, (gva + i * PAGE) & mask, (v->pae ? window : CASE_MEM_GPA) + off, 1, user);
		add_mapped(c, (gva + i * PAGE) & mask, off);
	}
	return gva;
}

/**
 * struct builder - a stack under construction, from its innermost frame outwards
 * @at:		the lowest address at which the next frame may lie
 * @word:	bytes in a word
 * @user:	the stack is user mode's
 * @cs_base:	base of return addresses
 * @ss_base:	base of frame pointers
 * @fp_at:	address of the word that must point to the next frame; zero if RBP must
 * @mask:	mask of linear addresses
 */
struct builder {
	u64 at;
	unsigned int word;
	bool user;
	u64 cs_base;
	u64 ss_base;
	u64 fp_at;
	u64 mask;
};

static void set_fp(struct callchain_case *c, const struct builder *b, u64 fp)
{
	if (b->fp_at)
		put_stack(c, b->fp_at, b->word, fp);
	else
		c->vcpu.rbp = b->word < 8 && once_in(c, 4) ?
			      (fp & ((1ULL << 8 * b->word) - 1)) | rnd(c, 4) << 8 * b->word : fp;
}

static u64 text_address(struct callchain_case *c, const struct builder *b)
{
	if (once_in(c, 64))
		return rnd(c, 8);
	if (b->word < 8)
		return 0x1000 + rnd(c, b->word) % 0x70000000;
	return b->user ? 0x400000 + rnd(c, 3) : 0xffffffff81000000ULL + rnd(c, 3);
}

/*
 * Return the distance to the next frame.  Six of eight are below 16 words, so that several frames
 * fit on a page; the others often lead to the next page.
 */
static u64 gap(struct callchain_case *c, const struct builder *b)
{
	switch (pick(c, 8)) {
	case 0:
	case 1:
		return 0;
	case 2:
		/* Straddle pages. */
		return (PAGE - b->word - b->at) & 4095 & ~(b->word - 1);
	case 3:
		return (u64)pick(c, PAGE) & ~(u64)(b->word - 1);
	default:
		return pick(c, 16) * b->word;
	}
}

/*
 * Return a frame pointer that leads to no frame, or to a wrong one.  Most kinds are just beyond
 * one check of the walk, all with the same odds: random values mostly fail the first check.
 */
static u64 bad_fp(struct callchain_case *c, const struct builder *b)
{
	u64 here = b->at - b->ss_base;

	switch (pick(c, 12)) {
	case 0:
		return 0;
	case 1:
		return here + 1;
	case 2:
		return here + b->word / 2;
	case 3:
		return here - b->word * (1 + pick(c, 8));
	case 4:
		return b->fp_at - b->ss_base;
	case 5:
		return 0 - b->ss_base - (u64)b->word * pick(c, 6);
	case 6:
		return 1ULL << pick(c, 64);
	case 7:
		return rnd(c, 8);
	case 8:
		return here ^ (1ULL << pick(c, 64));
	case 9:
		return here + (1 + pick(c, 8)) * PAGE;
	case 10:
		return here & ~(1ULL << 31);
	default:
		return b->word == 8 ? ONE_OF(c, 1, (1ULL << 47) - 8, (1ULL << 47) - 16,
					     1ULL << 47, (1ULL << 56) - 8, ~0xffffffffULL) :
				      ONE_OF(c, 1, 0x7fffffff, 0x7ffffffc, 0x80000000, 4);
	}
}

/*
 * Add a frame.  1 of 48 return addresses is zero, or at the border of canonical addresses or of
 * perf's context markers: of the stacks with 13 frames, nearly three of four have none of these.
 */
static void push_frame(struct callchain_case *c, struct builder *b)
{
	u64 frame = (b->at + gap(c, b)) & b->mask;
	u64 ra = text_address(c, b);

	if (once_in(c, 48))
		ra = ONE_OF(c, 0, 1ULL << 47, 1ULL << 56, 1ULL << 63, -4095ULL, -4096ULL);

	set_fp(c, b, frame - b->ss_base);
	put_stack(c, (frame + b->word) & b->mask, b->word, ra);
	b->fp_at = frame;
	b->at = (frame + 2 * b->word) & b->mask;
}

/*
 * Build the stacks.  Most have at most 13 frames, and 1 of 40 frame pointers is bad: of the stacks
 * with 13 frames, seven of ten have no bad one, so that most walks are not cut off by these.
 */
static void build_stacks(struct callchain_case *c)
{
	struct oracle_vcpu *v = &c->vcpu;
	const bool long_code = v->lma && v->cs_l;
	struct builder b = {
		.word = long_code ? 8 : v->cs_d ? 4 : 2,
		.user = v->cpl > 0,
		.cs_base = long_code ? 0 : v->cs_base,
		.mask = long_code ? ~0ULL : 0xffffffffULL,
	};
	const unsigned int nr_pages = 1 + pick(c, 5);
	/* Sometimes, the pages have the wrong rights. */
	u64 stack = make_stack(c, (v->cpl == 3) ^ once_in(c, 8), nr_pages);
	unsigned int i, nr_frames;

	/* The stack must lie in a segment of 64 KiB, as offsets have 16 bits. */
	if (b.word == 2) {
		v->ss_base = once_in(c, 4) ? stack - pick(c, 0x4000) : stack - 0x100;
		v->ss_base &= 0xfffffffe;
	}
	b.ss_base = long_code ? 0 : v->ss_base;

	b.at = stack + (pick(c, PAGE) & ~7u);
	v->rsp = (b.at - b.ss_base) & b.mask;
	if (b.word < 8 && once_in(c, 4))
		v->rsp = (v->rsp & (b.word == 2 ? 0xffff : b.mask)) | rnd(c, 4) << 8 * b.word;
	if (once_in(c, 16))
		v->rsp += ONE_OF(c, -8ULL, 8, 1, 4, 2, 1ULL << 63);

	/* 1 of 12 stacks may have up to 149 frames; the long ones run off the stack's pages. */
	nr_frames = once_in(c, 12) ? pick(c, 150) : pick(c, 14);
	for (i = 0; i < nr_frames; i++) {
		if (once_in(c, 40)) {
			set_fp(c, &b, bad_fp(c, &b));
			return;
		}
		push_frame(c, &b);
	}

	set_fp(c, &b, once_in(c, 3) ? bad_fp(c, &b) : 0);
}

/* Registers */

/*
 * Choose the mode.  64-bit code is half of the modes, as most guests run it.  Most keys in PKRU
 * allow reads.
 */
static void choose_mode(struct callchain_case *c)
{
	struct oracle_vcpu *v = &c->vcpu;
	unsigned int mode = pick(c, 16);

	v->cpl = ONE_OF(c, 0, 0, 0, 0, 3, 3, 1, 2);
	v->nxe = once_in(c, 2);
	v->pse = once_in(c, 2);
	v->smap = c->has_smap && once_in(c, 3);
	v->pke = c->has_pke && once_in(c, 3);
	v->ac = once_in(c, 2);
	v->pkru = v->pke ? rnd(c, 4) & rnd(c, 4) : 0;

	switch (mode) {
	default:	/* 64-bit code */
		v->lma = true;
		v->cs_l = true;
		break;
	case 8:
	case 9:		/* compatibility mode */
		v->lma = true;
		v->cs_d = !once_in(c, 4);
		break;
	case 10:
	case 11:	/* PAE */
		v->pae = true;
		v->cs_d = !once_in(c, 8);
		break;
	case 12:
	case 13:	/* 32-bit paging */
		v->cs_d = !once_in(c, 8);
		break;
	case 14:	/* no paging */
		v->cs_d = !once_in(c, 4);
		break;
	case 15:
		c->real = true;
		v->cpl = 0;
		break;
	}
	v->pg = mode < 14;
	v->pae = v->pae || v->lma;
	v->nxe = v->nxe && v->pae;
	v->la57 = v->lma && c->has_la57 && once_in(c, 3);
	c->entry_size = v->pae ? 8 : 4;
	v->cr3 = CASE_MEM_GPA + PAGE;
	if (v->pae && !v->lma)
		v->cr3 += 32 * pick(c, 128);
}

static void place_code(struct callchain_case *c)
{
	struct oracle_vcpu *v = &c->vcpu;
	u64 gva = CASE_MEM_GPA + CASE_CODE_OFF;

	if (v->pg) {
		gva = CASE_CODE_OFF + (v->lma && v->cs_l ?
			ONE_OF(c, 0x12345678000ULL, 0xffffffff81234000ULL) :
			ONE_OF(c, 0x23456000u, 0xc0100000u));
		c->mapping_code = true;
		map(c, gva & ~4095ULL, CASE_MEM_GPA, 1, true);
		c->mapping_code = false;
	}

	v->rip = gva;
	if (v->lma && v->cs_l)
		return;

	if (!v->cs_d) {
		v->rip = pick(c, 0x8000);
		v->cs_base = (u32)(gva - v->rip);
	} else if (once_in(c, 3)) {
		v->cs_base = rnd(c, 4);
		v->rip = (u32)(gva - v->cs_base);
	}
	if (once_in(c, 3))
		v->ss_base = rnd(c, 4) & (once_in(c, 4) ? 0xffffffff : 0xfffffff0);
}

static void choose_race(struct callchain_case *c)
{
	c->race = true;
	if (once_in(c, 3) && c->nr_entries) {
		c->race_off = c->entries[pick(c, c->nr_entries)];
		c->race_size = c->entry_size;
	} else if (c->nr_words) {
		c->race_off = c->words[pick(c, c->nr_words)];
		c->race_size = c->vcpu.lma && c->vcpu.cs_l ? 8 : c->vcpu.cs_d ? 4 : 2;
		c->race_off &= ~(u32)(c->race_size - 1);
	} else {
		c->race = false;
		return;
	}
	if (is_code_entry(c, c->race_off)) {
		c->race = false;
		return;
	}

	c->race_words[0] = get(c, c->race_off, c->race_size);
	switch (pick(c, 4)) {
	case 0:
		c->race_words[1] = 0;
		break;
	case 1:
		c->race_words[1] = rnd(c, 8);
		break;
	case 2:
		c->race_words[1] = c->race_words[0] + ONE_OF(c, 8, -8ULL, 16, PAGE, -(u64)PAGE);
		break;
	default:
		c->race_words[1] = c->race_words[0] ^ (1ULL << pick(c, 8 * c->race_size));
		break;
	}
	if (c->race_size < 8)
		c->race_words[1] &= (1ULL << 8 * c->race_size) - 1;
}

/**
 * case_generate - generate a guest
 * @c:	the case
 */
void case_generate(struct callchain_case *c)
{
	const struct oracle_vcpu caps = {
		.amd = c->vcpu.amd,
		.gbpages = c->vcpu.gbpages,
		.maxphyaddr = c->vcpu.maxphyaddr,
		.pse36_bits = c->vcpu.pse36_bits,
	};
	unsigned int i, nr;

	c->vcpu = caps;
	c->real = false;
	c->race = false;
	c->next_page = 2 * PAGE;
	c->nr_entries = 0;
	c->nr_code_entries = 0;
	c->nr_words = 0;
	c->nr_mapped = 0;

	choose_mode(c);
	place_code(c);
	build_stacks(c);
	/* Most chains may have 127 entries: lower limits cut walks short. */
	c->depth = once_in(c, 4) ? pick(c, CASE_NR_DEPTHS) : 0;

	/*
	 * Add few faults, which might hide those built in above: 5 of 8 cases keep all their
	 * page-table entries, 7 of 8 keep all words of their stacks, 7 of 8 have no race.
	 */
	if (once_in(c, 2)) {
		for (i = 0, nr = pick(c, 4); i < nr; i++)
			tamper_with_entry(c);
	}
	if (once_in(c, 8) && c->nr_words) {
		u32 off = c->words[pick(c, c->nr_words)] & ~1u;

		put(c, off, 2, rnd(c, 2));
	}
	if (once_in(c, 8))
		choose_race(c);
}

/**
 * case_clear - clear all words that a case has written to its memory
 * @c:	the case
 */
void case_clear(struct callchain_case *c)
{
	if (c->race)
		memset(c->mem + (c->race_off & ~7u), 0, 8);
	while (c->nr_writes)
		memset(c->mem + c->writes[--c->nr_writes], 0, 8);
}

bool case_chains_equal(const struct oracle_chain *a, const struct oracle_chain *b)
{
	return a->nr == b->nr && !memcmp(a->ips, b->ips, a->nr * sizeof(a->ips[0]));
}

void case_print_chain(const char *whose, const struct oracle_chain *chain)
{
	unsigned int i;

	fprintf(stderr, "%s, %u callers:", whose, chain->nr);
	for (i = 0; i < chain->nr; i++)
		fprintf(stderr, " 0x%lx", chain->ips[i]);
	fputc('\n', stderr);
}

void case_print(const struct callchain_case *c)
{
	const struct oracle_vcpu *v = &c->vcpu;

	fprintf(stderr, "cpl %u, lma %u, cs.l %u, cs.d %u, real mode %u, cs.base 0x%lx, ss.base 0x%lx\n",
		v->cpl, v->lma, v->cs_l, v->cs_d, c->real, v->cs_base, v->ss_base);
	fprintf(stderr, "pg %u, pse %u, pae %u, la57 %u, nxe %u, smap %u, ac %u, pke %u, pkru 0x%x\n",
		v->pg, v->pse, v->pae, v->la57, v->nxe, v->smap, v->ac, v->pke, v->pkru);
	fprintf(stderr, "rip 0x%lx, rsp 0x%lx, rbp 0x%lx, cr3 0x%lx, depth %u\n",
		v->rip, v->rsp, v->rbp, v->cr3, case_depths[c->depth]);
	if (c->race)
		fprintf(stderr, "%u bytes of the memory, at 0x%x, change from 0x%lx to 0x%lx\n",
			c->race_size, c->race_off, c->race_words[0], c->race_words[1]);
}
