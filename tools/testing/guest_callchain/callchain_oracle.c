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

/* Return a mask of bits @hi down to @lo; zero if @hi is below @lo. */
static u64 bits(unsigned int hi, unsigned int lo)
{
	if (hi < lo)
		return 0;
	return (hi == 63 ? ~0ULL : ORACLE_BIT(hi + 1) - 1) & ~(ORACLE_BIT(lo) - 1);
}

const char * const oracle_end_names[NR_ORACLE_ENDS] = {
	[ORACLE_GOES_ON]	= "goes_on",
	[ORACLE_LAST]		= "last",
	[ORACLE_DEPTH]		= "depth",
	[ORACLE_UNALIGNED]	= "unaligned",
	[ORACLE_BACKWARDS]	= "backwards",
	[ORACLE_NONCANONICAL]	= "noncanonical",
	[ORACLE_UNMAPPED]	= "unmapped",
	[ORACLE_NO_MEMORY]	= "no_memory",
};

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
 * @gva:	the linear address; canonical in 64-bit code
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

/**
 * struct walk - the state of a walk of a stack
 * @v:		the vCPU
 * @read:	reads the guest's physical memory
 * @arg:	passed to @read
 * @size:	bytes in a word
 * @max:	the highest linear address
 * @cs_base:	added to instruction pointers
 * @ss_base:	added to frame pointers
 * @low:	lowest linear address at which the caller's frame may lie
 * @fp:		frame pointer
 * @ip:		linear address of the instruction
 * @user:	the frame is not one of the guest's kernel
 * @as_user:	memory is read with user mode's rights
 * @have_page:	@page and @page_gpa are valid
 * @page:	linear address of the page that was translated last
 * @page_gpa:	physical address of that page
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
	u64 ip;
	bool user;
	bool as_user;
	bool have_page;
	u64 page;
	u64 page_gpa;
};

/* SDM volume 1, 3.3.7.1: bits 63 down to the highest translated bit are equal. */
static bool canonical(const struct walk *w, u64 la)
{
	u64 upper = bits(63, w->v->la57 ? 56 : 47);

	return w->size < 8 || !(la & upper) || (la & upper) == upper;
}

static enum oracle_end read_stack(struct walk *w, u64 la, u64 *word)
{
	u64 page = la & ~bits(11, 0);

	if (!canonical(w, la))
		return ORACLE_NONCANONICAL;

	if (!w->have_page || w->page != page) {
		w->have_page = false;
		if (!oracle_translate(w->v, w->read, w->arg, page, w->as_user, &w->page_gpa))
			return ORACLE_UNMAPPED;
		w->page = page;
		w->have_page = true;
	}

	if (!w->read(w->arg, w->page_gpa + (la - page), w->size, word))
		return ORACLE_NO_MEMORY;
	return ORACLE_GOES_ON;
}

/* Return true if @size bytes at @la begin at @low or above, and end below the highest address. */
static bool lies_above(const struct walk *w, u64 la, u64 size)
{
	return la >= w->low && la <= w->max && w->max - la >= size;
}

/* Outside of 64-bit code, registers and linear addresses have 32 bits. */
static void leave_64_bit_code(struct walk *w)
{
	w->size = 4;
	w->max = 0xffffffff;
	w->ip &= w->max;
	w->fp &= w->max;
	w->low &= w->max;
}

/* Linux's struct pt_regs, of a 64-bit and of a 32-bit kernel. */
struct regs_layout {
	unsigned int bp, ip, cs, flags, sp, size;
};

static const struct regs_layout layout_64 = { 4 * 8, 16 * 8, 17 * 8, 18 * 8, 19 * 8, 21 * 8 };
static const struct regs_layout layout_32 = { 5 * 4, 12 * 4, 13 * 4, 14 * 4, 15 * 4, 17 * 4 };

/* Linux's selector for 32-bit programs under a 64-bit kernel. */
#define USER32_CS	0x23

/* Return true if SDM volume 1, 3.4.3 allows @flags.  Refuse VM86: its segments aren't flat. */
static bool are_flags(u64 flags)
{
	return (flags & ORACLE_BIT(1)) &&
	       !(flags & (ORACLE_BIT(3) | ORACLE_BIT(5) | ORACLE_BIT(15) | ORACLE_BIT(17) |
			  bits(63, 22)));
}

static enum oracle_end go_to_interrupted(struct walk *w, u64 regs)
{
	const struct regs_layout *layout = w->size == 8 ? &layout_64 : &layout_32;
	u64 bp, ip, cs, flags, sp;
	enum oracle_end end;

	if (!lies_above(w, regs, layout->size))
		return ORACLE_BACKWARDS;

	/* Most implausible values end the walk before the next value is read. */
	end = read_stack(w, regs + layout->bp, &bp);
	if (!end)
		end = read_stack(w, regs + layout->ip, &ip);
	if (end)
		return end;
	if (!ip)
		return ORACLE_LAST;
	if (!canonical(w, ip))
		return ORACLE_NONCANONICAL;

	/* SDM volume 3, 3.4.2: index 0 of the GDT is the null selector, with any RPL. */
	end = read_stack(w, regs + layout->cs, &cs);
	if (end)
		return end;
	cs &= 0xffff;
	if (cs < 4)
		return ORACLE_UNALIGNED;

	end = read_stack(w, regs + layout->flags, &flags);
	if (end)
		return end;
	if (!are_flags(flags))
		return ORACLE_UNALIGNED;

	end = read_stack(w, regs + layout->sp, &sp);
	if (end)
		return end;

	if ((cs & 3) == 3) {
		if (ip & ORACLE_BIT(63))
			return ORACLE_NONCANONICAL;
		w->user = true;
		w->as_user = true;
		w->have_page = false;
	} else if (cs & 3) {
		return ORACLE_UNALIGNED;
	} else if (sp < regs + layout->size) {
		/* The frames of the interrupted code lie above the registers saved for it. */
		return ORACLE_BACKWARDS;
	}

	w->ip = ip;
	w->fp = bp;
	w->low = sp;
	if (cs == USER32_CS)
		leave_64_bit_code(w);
	return ORACLE_GOES_ON;
}

static enum oracle_end go_to_caller(struct walk *w)
{
	const bool flat = !w->cs_base && !w->ss_base;
	enum oracle_end end;
	u64 frame, fp, ra;

	if (!w->fp) {
		/* A system call has left an unmarked struct pt_regs here, or the chain ends. */
		if (w->user || w->size != 8 || (w->low & 7) ||
		    go_to_interrupted(w, w->low) || !w->user)
			return ORACLE_LAST;
		return ORACLE_GOES_ON;
	}

	if (!w->user && w->size == 8 && (w->fp & 7) == 1)
		return go_to_interrupted(w, w->fp - 1);

	if (!w->user && w->size == 4 && flat && (w->low & ORACLE_BIT(31)) &&
	    !(w->fp & ORACLE_BIT(31)) && !(w->fp & 3))
		return go_to_interrupted(w, w->fp + ORACLE_BIT(31));

	frame = (w->ss_base + w->fp) & w->max;
	if (frame & (w->size - 1))
		return ORACLE_UNALIGNED;
	if (!lies_above(w, frame, 2 * w->size))
		return ORACLE_BACKWARDS;

	end = read_stack(w, frame, &fp);
	if (!end)
		end = read_stack(w, frame + w->size, &ra);
	if (end)
		return end;

	if (!ra)
		return ORACLE_LAST;
	if (!canonical(w, ra))
		return ORACLE_NONCANONICAL;

	w->ip = (w->cs_base + ra) & w->max;
	w->fp = fp;
	w->low = frame + 2 * w->size;
	return ORACLE_GOES_ON;
}

/*
 * Linux: a task's stack ends at a multiple of THREAD_SIZE, with user mode's registers.  Kernels
 * that are built for FRED leave FRED_RESERVED bytes free after these.
 */
#define THREAD_SIZE	0x4000
#define FRED_RESERVED	16

/* Continue with the registers at @top, the end of the task's stack on which @rsp lies. */
static bool go_to_caller_of_task(struct walk *w, u64 rsp, u64 top)
{
	unsigned int free;

	for (free = 0; free <= FRED_RESERVED; free += FRED_RESERVED) {
		struct walk next = *w;

		next.low = rsp;
		if (!go_to_interrupted(&next, top - layout_64.size - free) && next.user) {
			*w = next;
			return w->ip < ORACLE_FIRST_MARKER;
		}

		/* Keep the last translation: the next read may be on the same page. */
		w->have_page = next.have_page;
		w->page = next.page;
		w->page_gpa = next.page_gpa;
	}

	return false;
}

/* Check if the page at @la can be read.  If it can't, keep the last translation. */
static enum oracle_end look_at(struct walk *w, u64 la)
{
	struct walk next = *w;
	enum oracle_end end;
	u64 word;

	end = read_stack(&next, la & ~7ULL, &word);
	if (!end)
		*w = next;
	return end;
}

/*
 * Linux: exceptions' stacks and, with CONFIG_VMAP_STACK, IRQs' stacks end below an unmapped page.
 * The last word is RSP from before the switch to the stack, or SS with that RSP right below it.
 */
static bool read_interrupted_rsp(struct walk *w, u64 top, u64 *rsp)
{
	u64 word;

	if (top - *rsp < 16 || read_stack(w, top - 8, &word))
		return false;
	if (word <= 0xffff && read_stack(w, top - 16, &word))
		return false;
	/* RSP must lie on another stack of the kernel. */
	if ((word & 7) || !(word & ORACLE_BIT(63)) || !canonical(w, word) ||
	    (word >= *rsp && word <= top - 1))
		return false;

	*rsp = word;
	return true;
}

/* SDM volume 2, SYSCALL: RCX gets RIP, R11 gets RFLAGS; RSP and RBP stay as they are. */
static bool go_to_caller_of_syscall(struct walk *w, u64 low)
{
	const struct oracle_vcpu *v = w->v;

	if (w->user || w->size != 8)
		return false;
	if (!v->rcx || (v->rcx & ORACLE_BIT(63)) || !canonical(w, v->rcx) || !are_flags(v->r11))
		return false;

	w->user = true;
	w->as_user = true;
	w->have_page = false;
	w->ip = v->rcx;
	w->fp = v->rbp;
	w->low = low;
	return true;
}

/* Return true if code in the upper half of the addresses runs on a program's stack above 4 GiB. */
static bool is_on_program_stack(const struct oracle_vcpu *v)
{
	return (v->rip & ORACLE_BIT(63)) && !(v->rsp & ORACLE_BIT(63)) && v->rsp >> 32;
}

/*
 * Linux: return true if the kernel's stack, which ends with a page, holds less than all of the
 * program's registers that Linux saves there.  Programs run with interrupts on.
 */
static bool is_on_stack_of_syscall(const struct oracle_vcpu *v)
{
	const u64 used = -v->rsp & bits(11, 0);

	return (v->rsp & ORACLE_BIT(63)) && (v->r11 & ORACLE_BIT(9)) &&
	       used < layout_64.size + FRED_RESERVED;
}

/*
 * The kernel may lack frame pointers while the program has them: continue with the program.
 * Linux lies in the upper half of the addresses.  A stack counts as a task's if all pages up to
 * the next multiple of THREAD_SIZE can be read.
 */
static bool go_to_program(struct walk *w)
{
	unsigned int nr_stacks;
	u64 rsp = w->v->rsp;

	if (w->user || w->size != 8 || !(rsp & ORACLE_BIT(63)))
		return false;

	for (nr_stacks = 1; ; nr_stacks++) {
		/* RSP is at the top if nothing is on the stack. */
		const u64 top = ((rsp - 1) | (THREAD_SIZE - 1)) + 1;
		enum oracle_end end = ORACLE_GOES_ON;
		u64 la = rsp;

		while (la != top && !end) {
			end = look_at(w, la);
			if (!end)
				la = (la & ~bits(11, 0)) + 0x1000;
		}
		if (la == top) {
			if (go_to_caller_of_task(w, rsp, top))
				return true;
			if (w->user)
				return false;
			if (nr_stacks == 1)
				end = look_at(w, top);
		}
		if (nr_stacks == 2 || end != ORACLE_UNMAPPED || !read_interrupted_rsp(w, la, &rsp))
			return false;
	}
}

/* Return true if frame pointers filled the chain, or led to its end by at least one frame. */
static bool is_whole(const struct oracle_chain *chain)
{
	return chain->end == ORACLE_DEPTH || (chain->end == ORACLE_LAST && chain->nr > 1);
}

/**
 * oracle_walk - compute the callchain that a vCPU must have
 * @vcpu:	the vCPU
 * @read:	reads the guest's physical memory
 * @arg:	passed to @read
 * @depth:	maximum number of entries in the chain, up to ORACLE_MAX_DEPTH
 * @chain:	is set to the callchain
 */
void oracle_walk(const struct oracle_vcpu *vcpu, oracle_read_fn read, void *arg,
		 unsigned int depth, struct oracle_chain *chain)
{
	struct walk w = {
		.v = vcpu, .read = read, .arg = arg,
		.user = vcpu->cpl > 0, .as_user = vcpu->cpl == 3,
	};

	/* SDM volume 3, 5.2.1: CS.L and CS.D; volume 1, 3.3.4: no bases in 64-bit code. */
	if (vcpu->lma && vcpu->cs_l) {
		w.size = 8;
		w.max = ~0ULL;
		w.ip = vcpu->rip;
		w.fp = vcpu->rbp;
		w.low = vcpu->rsp;
	} else {
		u64 mask = vcpu->cs_d ? bits(31, 0) : bits(15, 0);

		w.size = vcpu->cs_d ? 4 : 2;
		w.max = bits(31, 0);
		w.cs_base = vcpu->cs_base;
		w.ss_base = vcpu->ss_base;
		w.ip = (w.cs_base + vcpu->rip) & w.max;
		w.fp = vcpu->rbp & mask;
		w.low = (w.ss_base + (vcpu->rsp & mask)) & w.max;
	}

	chain->ip = w.ip;
	chain->nr = 0;
	chain->end = ORACLE_GOES_ON;
	while (!chain->end) {
		/* The chain ends at an address that perf would take for a context marker. */
		if (w.ip >= ORACLE_FIRST_MARKER) {
			chain->end = ORACLE_DEPTH;
			break;
		}
		chain->entries[chain->nr].ip = w.ip;
		chain->entries[chain->nr++].user = w.user;
		/* The chain is full: don't look for the last entry's caller. */
		if (chain->nr == depth)
			chain->end = ORACLE_DEPTH;
		else if (chain->nr > 1 || !is_on_program_stack(vcpu) ||
			 !go_to_caller_of_syscall(&w, vcpu->rsp))
			chain->end = go_to_caller(&w);

		if (!chain->end || is_whole(chain))
			continue;
		if (chain->nr == 1 && is_on_stack_of_syscall(vcpu) &&
		    go_to_caller_of_syscall(&w, 0))
			chain->end = ORACLE_GOES_ON;
		else if (go_to_program(&w))
			chain->end = ORACLE_GOES_ON;
	}
}
