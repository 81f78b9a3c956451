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

/* Entries that are handed over at once: as many as take little of an NMI's stack. */
#define NR_BATCH	32

/**
 * struct guest_unwind_state - a position on a guest's stack
 * @vcpu:	the vCPU whose stack is walked
 * @ips:	entries that were found last, linear addresses
 * @nr:		how many, not more than NR_BATCH; zero when the walk has ended
 * @fp:		frame pointer that leads to the caller's frame, relative to @ss_base
 * @sp:		lowest linear address at which the caller's frame may lie
 * @cs_base:	where the code segment begins; zero in 64-bit code
 * @ss_base:	where the stack segment begins; zero in 64-bit code
 * @access:	PFERR_USER_MASK to read with the rights of the guest's user mode
 * @word:	bytes in the guest's words: 8, 4, or 2
 * @va_bits:	width of the guest's virtual addresses
 * @user:	these entries are of the guest's user mode
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

#define for_each_guest_frames(state, vcpu, ips, max) \
	for (guest_unwind_start(state, vcpu, ips); (state)->nr; guest_unwind_next(state, max))

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

/*
 * Go on with what was interrupted, and saved at @regs.  System calls don't mark
 * their frame, and any guest may have an odd frame pointer, so that it takes
 * plausible contents as well.  Ascending, not to translate a page twice.
 */
static enum guest_unwind_end guest_unwind_entry(struct guest_unwind_state *state, gva_t regs)
{
	const struct entry_frame *frame = state->word == 8 ? &entry_frame_64 : &entry_frame_32;
	u64 saved[NR_SAVED], ip, cs, flags, sp;
	enum guest_unwind_end end;
	unsigned int i;

	if (regs < state->sp || !guest_fits(state, regs, frame->size))
		return UNWIND_END_BACKWARDS;

	for (i = 0; i < NR_SAVED; i++) {
		end = guest_unwind_read(state, regs + frame->offset[i], &saved[i]);
		if (end)
			return end;
	}
	ip = saved[SAVED_IP];
	cs = saved[SAVED_CS] & U16_MAX;
	flags = saved[SAVED_FLAGS];
	sp = saved[SAVED_SP];

	/* A kernel thread that never was in user mode has nothing there. */
	if (!ip)
		return UNWIND_END_LAST;
	if (!guest_canonical(state, ip))
		return UNWIND_END_NONCANONICAL;

	/* Intel SDM vol. 1, 3.4.3: bit 1 is always set; 3, 5, 15, and 22 up never. */
	if ((flags & (GENMASK_ULL(63, 22) | X86_EFLAGS_VM | BIT(15) | BIT(5) | BIT(3) |
		      X86_EFLAGS_FIXED)) != X86_EFLAGS_FIXED)
		return UNWIND_END_UNALIGNED;

	/* SDM vol. 3, 3.4.2: index 0 is no segment, whatever the privilege level. */
	if (cs <= SEGMENT_RPL_MASK)
		return UNWIND_END_UNALIGNED;

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
	state->ips[state->nr++] = ip & guest_top(state);
	state->fp = saved[SAVED_BP] & guest_top(state);
	state->sp = sp & guest_top(state);
	return UNWIND_GOES_ON;
}

/*
 * A system call begins with a frame pointer of zero, and puts the frame of its
 * first function right below what it interrupted: see entry_SYSCALL_64().
 */
static enum guest_unwind_end guest_unwind_outermost(struct guest_unwind_state *state)
{
	/* x86-64 psABI, 3.4.1: a frame pointer of zero marks the outermost frame. */
	if (state->user || state->word < 8 || !IS_ALIGNED(state->sp, 8) ||
	    guest_unwind_entry(state, state->sp) || !state->user) {
		/* What looked like an entry from the kernel isn't one. */
		state->nr = 0;
		return UNWIND_END_LAST;
	}

	return UNWIND_GOES_ON;
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

	state->ips[state->nr++] = (state->cs_base + ra) & guest_top(state);
	state->fp = next_fp;
	state->sp = frame + 2 * state->word;
	return UNWIND_GOES_ON;
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
static enum guest_unwind_end guest_unwind_page(struct guest_unwind_state *state,
					       unsigned int max)
{
	u64 fp = state->fp, sp = state->sp, frames_end = guest_frames_end(fp);
	u64 next_fp, ra, half = BIT_ULL(state->va_bits - 1);
	u64 *ip = state->ips, *const ip_end = ip + max;
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

		*ip++ = ra;
		sp = fp + 2 * sizeof(u64);
		fp = next_fp;
	} while (ip < ip_end && fp >= sp && fp < frames_end && IS_ALIGNED(fp, 8));

	user_access_end();
	state->nr = ip - state->ips;
	state->nr_reads += 2 * (state->nr + !!end);
	state->fp = fp;
	state->sp = sp;
	return end;

fault:
	user_access_end();
	state->nr = ip - state->ips;
	state->nr_reads += 2 * state->nr + 1;
	return UNWIND_END_NO_MEMORY;
}

static enum guest_unwind_end __guest_unwind_next(struct guest_unwind_state *state,
						 unsigned int max)
{
	gva_t frame;

	if (!state->fp)
		return guest_unwind_outermost(state);

	if (guest_unwind_decode(state, &frame))
		return guest_unwind_entry(state, frame);

	frame = (state->ss_base + state->fp) & guest_top(state);
	if (!IS_ALIGNED(frame, state->word))
		return UNWIND_END_UNALIGNED;

	/* Frames lie on top of each other: no cycles, no way back. */
	if (frame < state->sp || !guest_fits(state, frame, 2 * state->word))
		return UNWIND_END_BACKWARDS;

	if (state->word == 8 && frame < guest_frames_end(frame))
		return guest_unwind_page(state, max);

	return guest_unwind_frame(state, frame);
}

/* Find at least one more entry and @max at the most, or why there is none. */
static void guest_unwind_next(struct guest_unwind_state *state, unsigned int max)
{
	state->nr = 0;
	if (!state->end)
		state->end = __guest_unwind_next(state, max);
}

static void guest_unwind_start(struct guest_unwind_state *state, struct kvm_vcpu *vcpu, u64 *ips)
{
	int cpl = kvm_x86_call(get_cpl)(vcpu);
	int cs_db, cs_l;

	*state = (struct guest_unwind_state) {
		.vcpu		= vcpu,
		.ips		= ips,
		.nr		= 1,
		/* Rings 1 and 2 aren't the kernel, but have its rights to memory. */
		.user		= cpl != 0,
		.access		= cpl == 3 ? PFERR_USER_MASK : 0,
		.va_bits	= vcpu_virt_addr_bits(vcpu),
	};

	kvm_x86_call(get_cs_db_l_bits)(vcpu, &cs_db, &cs_l);
	if (is_long_mode(vcpu) && cs_l) {
		state->word = 8;
		state->ips[0] = kvm_rip_read(vcpu);
		state->fp = kvm_rbp_read_raw(vcpu);
		state->sp = kvm_rsp_read(vcpu);
		return;
	}

	state->cs_base = kvm_get_segment_base(vcpu, VCPU_SREG_CS);
	state->ss_base = kvm_get_segment_base(vcpu, VCPU_SREG_SS);
	state->word = cs_db ? 4 : 2;
	state->ips[0] = (state->cs_base + kvm_rip_read(vcpu)) & U32_MAX;
	state->fp = kvm_rbp_read_raw(vcpu) & GENMASK(state->word * 8 - 1, 0);
	state->sp = kvm_rsp_read(vcpu) & GENMASK(state->word * 8 - 1, 0);
	state->sp = (state->ss_base + state->sp) & guest_top(state);
}

/**
 * kvm_arch_vcpu_stack_walk - report the callchain of a vCPU's guest
 * @vcpu:		the vCPU that the current PMI interrupted in guest mode
 * @max_entries:	how many entries to report at most
 * @consume_entries:	called with the guest's instruction pointer and return
 *			addresses, innermost first, some at a time; see
 *			perf_guest_consume_fn
 * @cookie:		passed to @consume_entries
 *
 * Reads the guest's memory with the privileges that the guest has right now,
 * and writes none of it.  Addresses are linear ones, i.e. segment bases are
 * added.  Each entry costs five words and two walks of the page tables at the
 * most: two words that may straddle pages for a frame, five for the registers
 * that Linux saves on entry.
 *
 * Context: the PMI, IRQ or NMI, with kvm_arch_pmi_in_guest() true: kvm->srcu is
 * held then, and registers may be cached.  Page faults must be disabled.
 */
void kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu, unsigned int max_entries,
			      perf_guest_consume_fn consume_entries, void *cookie)
{
	unsigned int nr_frames = 0, taken;
	struct guest_unwind_state state __uninitialized;
	u64 ips[NR_BATCH] __uninitialized;

	if (vcpu->arch.guest_state_protected)
		return;

	/* NMIs come before KVM has put the host's PKRU back, and saved the guest's. */
	if (kvm_handling_nmi_from_guest(vcpu))
		kvm_load_host_pkru(vcpu);

	/* Whether the last entry is the outermost one is told by what lies behind it. */
	for_each_guest_frames(&state, vcpu, ips, clamp(max_entries - nr_frames, 1, NR_BATCH)) {
		taken = 0;
		if (nr_frames < max_entries)
			taken = consume_entries(cookie, state.ips, state.nr, state.user);
		nr_frames += taken;
		if (taken < state.nr) {
			state.end = UNWIND_END_DEPTH;
			break;
		}
	}

	if (kvm_handling_nmi_from_guest(vcpu))
		kvm_load_guest_pkru(vcpu);

	/* Only this thread's PMIs count, and they don't interrupt each other. */
	vcpu->stat.callchain_walks++;
	vcpu->stat.callchain_frames += nr_frames;
	++*(u64 *)((void *)&vcpu->stat + end_stat[state.end]);

	trace_kvm_stack_walk(vcpu->vcpu_id, nr_frames, state.nr_reads, state.nr_walks,
			     state.end);
}
