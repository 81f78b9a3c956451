// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk the stack of a guest, by its frame pointers, through its page tables.
 *
 * Everything that is followed here was written by the guest, and may change
 * while it is read: each step is checked, and each loop is bounded without the
 * guest's help.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kvm_host.h>
#include <linux/perf_event.h>
#include <linux/uaccess.h>

#include <asm/ptrace.h>
#include <asm/segment.h>

#include "mmu.h"
#include "regs.h"
#include "stacktrace.h"
#include "trace.h"
#include "x86.h"

#define END_STAT(_reason, _stat) \
	[UNWIND_END_##_reason] = offsetof(struct kvm_vcpu_stat, callchain_end_##_stat)

static const size_t end_stat[] = {
	END_STAT(LAST, last),
	END_STAT(DEPTH, depth),
	END_STAT(UNALIGNED, unaligned),
	END_STAT(BACKWARDS, backwards),
	END_STAT(NONCANONICAL, noncanonical),
	END_STAT(UNMAPPED, unmapped),
	END_STAT(NO_MEMORY, no_memory),
};

/* What Linux guests save when they are interrupted or called, by ascending address. */
enum { SAVED_BP, SAVED_IP, SAVED_CS, SAVED_FLAGS, SAVED_SP, NR_SAVED };

/* Where these lie in the guest's struct pt_regs. */
struct entry_frame {
	u8 offset[NR_SAVED];
	u8 size;
};

static const struct entry_frame entry_frame_64 = {
	.offset = {
		[SAVED_BP]	= offsetof(struct pt_regs, bp),
		[SAVED_IP]	= offsetof(struct pt_regs, ip),
		[SAVED_CS]	= offsetof(struct pt_regs, cs),
		[SAVED_FLAGS]	= offsetof(struct pt_regs, flags),
		[SAVED_SP]	= offsetof(struct pt_regs, sp),
	},
	.size = sizeof(struct pt_regs),
};

/* A 64-bit host has no definition of the 32-bit one. */
static const struct entry_frame entry_frame_32 = {
	.offset = { [SAVED_BP] = 20, [SAVED_IP] = 48, [SAVED_CS] = 52, [SAVED_FLAGS] = 56,
		    [SAVED_SP] = 60 },
	.size = 68,
};

/**
 * struct guest_unwind_state - a position on a guest's stack
 * @vcpu:	the vCPU whose stack is walked
 * @ips:	entries that were found so far, linear addresses
 * @nr:		how many
 * @max:	how many there is room for
 * @nr_kernel:	how many of them are not the guest's user mode's
 * @fp:		frame pointer that leads to the caller's frame, relative to @ss_base
 * @sp:		lowest linear address at which the caller's frame may lie
 * @cs_base:	where the code segment begins; zero in 64-bit code
 * @ss_base:	where the stack segment begins; zero in 64-bit code
 * @access:	PFERR_USER_MASK to read with the rights of the guest's user mode
 * @word:	bytes in the guest's words: 8, 4, or 2
 * @va_bits:	width of the guest's virtual addresses
 * @user:	the walk has come to the guest's user mode
 * @page_gva:	guest virtual address of the stack page that was translated last
 * @page_hva:	where the VMM has mapped that page
 * @end:	whether the walk has ended, and why
 * @nr_reads:	words that were read from the guest's stack
 * @nr_walks:	pages of the stack that were translated
 */
struct guest_unwind_state {
	struct kvm_vcpu		*vcpu;
	u64			*ips;
	unsigned int		nr;
	unsigned int		max;
	unsigned int		nr_kernel;
	u64			fp;
	u64			sp;
	u64			cs_base;
	u64			ss_base;
	u64			access;
	u8			word;
	u8			va_bits;
	bool			user;
	gva_t			page_gva;
	const void __user	*page_hva;
	enum guest_unwind_end	end;
	unsigned int		nr_reads;
	unsigned int		nr_walks;
};

/* The highest address; outside of 64-bit code, arithmetic wraps behind it. */
static u64 guest_top(const struct guest_unwind_state *state)
{
	return state->word == 8 ? U64_MAX : U32_MAX;
}

/* Does @nr bytes at @gva end before addresses do, so that more can lie above? */
static bool guest_fits(const struct guest_unwind_state *state, gva_t gva, u8 nr)
{
	return gva <= guest_top(state) - nr;
}

static bool guest_canonical(const struct guest_unwind_state *state, u64 addr)
{
	return state->word < 8 || __is_canonical_address(addr, state->va_bits);
}

/* The guest must not make perf take an address of its for a context marker. */
static enum guest_unwind_end guest_unwind_store(struct guest_unwind_state *state, u64 ip)
{
	if (ip >= PERF_CONTEXT_MAX)
		return UNWIND_END_DEPTH;

	state->ips[state->nr++] = ip;
	if (!state->user)
		state->nr_kernel = state->nr;
	return UNWIND_GOES_ON;
}

/*
 * Translate the page that @gva lies in, unless that was done last time.
 * kvm->srcu, which keeps the memslot, is held by whoever let the PMI happen: see
 * vcpu_enter_guest(), kvm_before_nmi().
 */
static enum guest_unwind_end guest_unwind_map(struct guest_unwind_state *state, gva_t gva)
{
	struct kvm_vcpu *vcpu = state->vcpu;
	unsigned long hva;
	gpa_t gpa;

	if (state->page_hva && state->page_gva == (gva & PAGE_MASK))
		return UNWIND_GOES_ON;

	/* Translation ignores the bits that make an address non-canonical. */
	if (!guest_canonical(state, gva))
		return UNWIND_END_NONCANONICAL;

	state->nr_walks++;
	gpa = kvm_mmu_gva_to_gpa_peek(vcpu, gva & PAGE_MASK, state->access);
	if (gpa == INVALID_GPA)
		return UNWIND_END_UNMAPPED;

	/* What the VMM has mapped in place of private memory isn't the guest's. */
	if (kvm_arch_has_private_mem(vcpu->kvm) &&
	    kvm_mem_is_private(vcpu->kvm, gpa_to_gfn(gpa)))
		return UNWIND_END_NO_MEMORY;

	hva = kvm_vcpu_gfn_to_hva_prot(vcpu, gpa_to_gfn(gpa), NULL);
	if (kvm_is_error_hva(hva))
		return UNWIND_END_NO_MEMORY;

	state->page_gva = gva & PAGE_MASK;
	state->page_hva = (const void __user *)hva;
	return UNWIND_GOES_ON;
}

/*
 * Words are aligned, so none straddles two pages; what consists of several may,
 * hence word by word.  Memslots lie in user memory, KVM checks that when it adds
 * one.
 */
static enum guest_unwind_end guest_unwind_read(struct guest_unwind_state *state,
					       gva_t gva, u64 *word)
{
	enum guest_unwind_end end;
	const void __user *uptr;
	int r;

	end = guest_unwind_map(state, gva);
	if (end)
		return end;

	uptr = state->page_hva + offset_in_page(gva);
	state->nr_reads++;
	switch (state->word) {
	case 8:
		r = __get_user(*word, (const u64 __user *)uptr);
		break;
	case 4:
		r = __get_user(*word, (const u32 __user *)uptr);
		break;
	default:
		r = __get_user(*word, (const u16 __user *)uptr);
		break;
	}
	return r ? UNWIND_END_NO_MEMORY : UNWIND_GOES_ON;
}

/*
 * Is state->fp the mark of an entry frame?  Linux makes pointers to struct
 * pt_regs odd, or, in 32-bit kernels, clears their topmost bit: see
 * ENCODE_FRAME_POINTER in arch/x86/include/asm/frame.h.
 */
static bool guest_unwind_decode(const struct guest_unwind_state *state, gva_t *regs)
{
	/* Linux has flat segments. */
	if (state->user || state->cs_base || state->ss_base)
		return false;

	switch (state->word) {
	case 8:
		*regs = state->fp - 1;
		return IS_ALIGNED(*regs, 8);
	case 4:
		/* Only then does the kernel live in the upper half. */
		*regs = state->fp | BIT(31);
		return *regs != state->fp && (state->sp & BIT(31)) && IS_ALIGNED(*regs, 4);
	default:
		return false;
	}
}

/* Can this word be what was saved when something was interrupted? */
static enum guest_unwind_end guest_unwind_judge(const struct guest_unwind_state *state,
						unsigned int which, u64 word)
{
	switch (which) {
	case SAVED_IP:
		/* A kernel thread that never was in user mode has nothing there. */
		if (!word)
			return UNWIND_END_LAST;
		return guest_canonical(state, word) ? UNWIND_GOES_ON : UNWIND_END_NONCANONICAL;
	case SAVED_CS:
		/* SDM vol. 3, 3.4.2: index 0 is no segment, whatever the privilege level. */
		return (word & U16_MAX) > SEGMENT_RPL_MASK ? UNWIND_GOES_ON :
							     UNWIND_END_UNALIGNED;
	case SAVED_FLAGS:
		/* Intel SDM vol. 1, 3.4.3: bit 1 is always set; 3, 5, 15, and 22 up never. */
		return (word & (GENMASK_ULL(63, 22) | X86_EFLAGS_VM | BIT(15) | BIT(5) | BIT(3) |
				X86_EFLAGS_FIXED)) == X86_EFLAGS_FIXED ? UNWIND_GOES_ON :
									 UNWIND_END_UNALIGNED;
	default:
		return UNWIND_GOES_ON;
	}
}

/*
 * Go on with what was interrupted, and saved at @regs.  System calls don't mark
 * their frame, and any guest may have an odd frame pointer, so that it takes
 * plausible contents as well.  Ascending, not to translate a page twice.
 */
static enum guest_unwind_end guest_unwind_entry(struct guest_unwind_state *state, gva_t regs)
{
	const struct entry_frame *frame = state->word == 8 ? &entry_frame_64 : &entry_frame_32;
	enum guest_unwind_end end;
	u64 saved[NR_SAVED], sp;
	unsigned int i;
	u16 cs;

	if (regs < state->sp || !guest_fits(state, regs, frame->size))
		return UNWIND_END_BACKWARDS;

	for (i = 0; i < NR_SAVED; i++) {
		end = guest_unwind_read(state, regs + frame->offset[i], &saved[i]);
		if (!end)
			end = guest_unwind_judge(state, i, saved[i]);
		if (end)
			return end;
	}
	cs = saved[SAVED_CS];
	sp = saved[SAVED_SP];

	switch (cs & SEGMENT_RPL_MASK) {
	case 0:
		/* The same stack: one way only, as for frames. */
		if (sp < regs + frame->size)
			return UNWIND_END_BACKWARDS;
		break;
	case USER_RPL:
		/* The stack is another one, once; and it is read as user mode would. */
		state->user = true;
		state->access = PFERR_USER_MASK;
		state->page_hva = NULL;
		if (cs == __USER32_CS)
			state->word = 4;
		break;
	default:
		return UNWIND_END_UNALIGNED;
	}

	/* SDM vol. 1, 3.4.1.1: 32-bit code leaves upper halves undefined. */
	state->fp = saved[SAVED_BP] & guest_top(state);
	state->sp = sp & guest_top(state);
	return guest_unwind_store(state, saved[SAVED_IP] & guest_top(state));
}

/*
 * A system call begins with a frame pointer of zero, and puts the frame of its
 * first function right below what it interrupted: see entry_SYSCALL_64().
 */
static enum guest_unwind_end guest_unwind_outermost(struct guest_unwind_state *state)
{
	unsigned int nr = state->nr;
	enum guest_unwind_end end;

	/* x86-64 psABI, 3.4.1: a frame pointer of zero marks the outermost frame. */
	if (state->user || state->word < 8 || !IS_ALIGNED(state->sp, 8))
		return UNWIND_END_LAST;

	end = guest_unwind_entry(state, state->sp);
	if (state->user)
		return end;

	/* What looked like an entry from the kernel isn't one. */
	state->nr = nr;
	state->nr_kernel = nr;
	return UNWIND_END_LAST;
}

/* One frame, wherever it lies, in words of any size. */
static enum guest_unwind_end guest_unwind_frame(struct guest_unwind_state *state, gva_t frame)
{
	enum guest_unwind_end end;
	u64 next_fp, ra;

	end = guest_unwind_read(state, frame, &next_fp);
	if (end)
		return end;
	end = guest_unwind_read(state, frame + state->word, &ra);
	if (end)
		return end;

	if (!ra)
		return UNWIND_END_LAST;
	if (!guest_canonical(state, ra))
		return UNWIND_END_NONCANONICAL;

	state->fp = next_fp;
	state->sp = frame + 2 * state->word;
	return guest_unwind_store(state, (state->cs_base + ra) & guest_top(state));
}

/*
 * Where on a page frames of 64-bit code may begin, so that they end below its
 * end: then what lies above them doesn't wrap.
 */
static u64 guest_frames_end(gva_t gva)
{
	return (gva & PAGE_MASK) + PAGE_SIZE - 2 * sizeof(u64);
}

/*
 * The frame of 64-bit code at @state->fp, and those that follow on its page: most
 * of all frames are found here, hence by few instructions each.  The checks are
 * those for other frames.
 */
static enum guest_unwind_end guest_unwind_page(struct guest_unwind_state *state)
{
	u64 fp = state->fp, sp = state->sp, frames_end = guest_frames_end(fp);
	u64 next_fp, ra, half = BIT_ULL(state->va_bits - 1);
	u64 *const first = &state->ips[state->nr], *ip = first;
	u64 *const ip_end = &state->ips[state->max];
	const u64 __user *frame;
	enum guest_unwind_end end;
	unsigned long to_hva;

	end = guest_unwind_map(state, fp);
	if (end)
		return end;

	to_hva = (unsigned long)state->page_hva - state->page_gva;

	/* Memslots lie in user memory, so that this does not fail. */
	if (!user_access_begin(state->page_hva, PAGE_SIZE))
		return UNWIND_END_NO_MEMORY;

	do {
		frame = (const u64 __user *)(fp + to_hva);
		unsafe_get_user(next_fp, &frame[0], fault);
		unsafe_get_user(ra, &frame[1], fault);

		if (!ra) {
			end = UNWIND_END_LAST;
			break;
		}
		/* Canonical are those whose distance from zero is less than half. */
		if (ra + half >= 2 * half) {
			end = UNWIND_END_NONCANONICAL;
			break;
		}
		if (ra >= PERF_CONTEXT_MAX) {
			end = UNWIND_END_DEPTH;
			break;
		}

		*ip++ = ra;
		sp = fp + 2 * sizeof(u64);
		fp = next_fp;
	} while (ip < ip_end && fp >= sp && fp < frames_end && IS_ALIGNED(fp, 8));

	state->nr_reads += !!end * 2;
	goto out;

fault:
	state->nr_reads++;
	end = UNWIND_END_NO_MEMORY;
out:
	user_access_end();
	state->nr = ip - state->ips;
	state->nr_reads += 2 * (ip - first);
	if (!state->user)
		state->nr_kernel = state->nr;
	state->fp = fp;
	state->sp = sp;
	return end;
}

/* Find at least one more entry, or why there is none. */
static enum guest_unwind_end guest_unwind_next(struct guest_unwind_state *state)
{
	gva_t frame;

	if (!state->fp)
		return guest_unwind_outermost(state);

	/* Most frames, before what is there for the others: these pass all of it. */
	if (state->word == 8 && state->fp >= state->sp &&
	    state->fp < guest_frames_end(state->fp) && IS_ALIGNED(state->fp, 8))
		return guest_unwind_page(state);

	if (guest_unwind_decode(state, &frame))
		return guest_unwind_entry(state, frame);

	frame = (state->ss_base + state->fp) & guest_top(state);
	if (!IS_ALIGNED(frame, state->word))
		return UNWIND_END_UNALIGNED;

	/* Frames lie on top of each other: no cycles, no way back. */
	if (frame < state->sp || !guest_fits(state, frame, 2 * state->word))
		return UNWIND_END_BACKWARDS;

	return guest_unwind_frame(state, frame);
}

static void guest_unwind_start(struct guest_unwind_state *state, struct kvm_vcpu *vcpu,
			       u64 *ips, unsigned int max)
{
	u8 va_bits = vcpu_virt_addr_bits(vcpu);
	int cpl = kvm_x86_call(get_cpl)(vcpu);
	int cs_db, cs_l;

	*state = (struct guest_unwind_state) {
		.vcpu		= vcpu,
		.ips		= ips,
		.max		= max,
		/* Rings 1 and 2 aren't the kernel, but have its rights to memory. */
		.user		= cpl != 0,
		.access		= cpl == 3 ? PFERR_USER_MASK : 0,
		.va_bits	= va_bits,
	};

	kvm_x86_call(get_cs_db_l_bits)(vcpu, &cs_db, &cs_l);
	if (is_long_mode(vcpu) && cs_l) {
		state->word = 8;
		state->end = guest_unwind_store(state, kvm_rip_read(vcpu));
		state->fp = kvm_rbp_read_raw(vcpu);
		state->sp = kvm_rsp_read(vcpu);
		return;
	}

	state->cs_base = kvm_get_segment_base(vcpu, VCPU_SREG_CS);
	state->ss_base = kvm_get_segment_base(vcpu, VCPU_SREG_SS);
	state->word = cs_db ? 4 : 2;
	state->end = guest_unwind_store(state, (state->cs_base + kvm_rip_read(vcpu)) & U32_MAX);
	state->fp = kvm_rbp_read_raw(vcpu) & GENMASK(state->word * 8 - 1, 0);
	state->sp = kvm_rsp_read(vcpu) & GENMASK(state->word * 8 - 1, 0);
	state->sp = (state->ss_base + state->sp) & guest_top(state);
}

/* With no room left: is there yet another entry, or was the last one the outermost? */
static enum guest_unwind_end guest_unwind_full(struct guest_unwind_state *state)
{
	u64 beyond;

	state->ips = &beyond;
	state->nr = 0;
	state->max = 1;
	return guest_unwind_next(state) ?: UNWIND_END_DEPTH;
}

/**
 * kvm_arch_vcpu_stack_walk - get the callchain of a vCPU's guest
 * @vcpu:	the vCPU, which has left guest mode, and not gone on since
 * @ips:	is filled with the guest's instruction pointer and the return
 *		addresses, innermost first
 * @max:	how many of them at most
 * @nr_kernel:	is set to how many of them are the kernel's; what comes behind
 *		them is the guest's user mode's
 *
 * Reads the guest's memory with the privileges that the guest has right now,
 * and writes none of it.  Addresses are linear ones, i.e. segment bases are
 * added.  Each entry costs five words and two walks of the page tables at the
 * most: two words that may straddle pages for a frame, five for the registers
 * that Linux saves on entry.
 *
 * Context: the PMI, IRQ or NMI, with kvm_arch_pmi_in_guest() true: kvm->srcu is
 * held then, and registers may be cached.  Page faults must be disabled.  Or the
 * vCPU's thread, with kvm->srcu held, before the exit is handled; that may sleep.
 *
 * Return: how many entries were found; zero if the guest shows none.
 */
unsigned int kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max,
				      unsigned int *nr_kernel)
{
	struct guest_unwind_state state __uninitialized;
	unsigned int nr;

	*nr_kernel = 0;
	if (vcpu->arch.guest_state_protected || !max)
		return 0;

	/* NMIs come before KVM has put the host's PKRU back, and saved the guest's. */
	if (kvm_handling_nmi_from_guest(vcpu))
		kvm_load_host_pkru(vcpu);

	guest_unwind_start(&state, vcpu, ips, max);
	while (!state.end && state.nr < max)
		state.end = guest_unwind_next(&state);

	nr = state.nr;
	*nr_kernel = state.nr_kernel;
	if (!state.end)
		state.end = guest_unwind_full(&state);

	if (kvm_handling_nmi_from_guest(vcpu))
		kvm_load_guest_pkru(vcpu);

	/* Only this thread's PMIs count, and they don't interrupt each other. */
	vcpu->stat.callchain_walks++;
	vcpu->stat.callchain_frames += nr;
	++*(u64 *)((void *)&vcpu->stat + end_stat[state.end]);

	trace_kvm_stack_walk(vcpu->vcpu_id, nr, state.nr_reads, state.nr_walks, state.end);
	return nr;
}
