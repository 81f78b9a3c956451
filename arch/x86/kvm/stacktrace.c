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
#include <linux/stacktrace.h>
#include <linux/uaccess.h>

#include "mmu.h"
#include "regs.h"
#include "x86.h"

/* Why a walk ended; counted in the vCPU's stats, see end_stat[]. */
enum guest_unwind_end {
	UNWIND_GOES_ON,
	UNWIND_END_LAST,	/* a frame that returns nowhere, the outermost one */
	UNWIND_END_DEPTH,	/* perf wanted no more */
	UNWIND_END_MODE,	/* not 64-bit code, or a nested guest */
	UNWIND_END_UNALIGNED,	/* no frame pointer; or the mark of an entry frame */
	UNWIND_END_BACKWARDS,	/* no frame pointer; or another stack; or a cycle */
	UNWIND_END_NONCANONICAL, /* no frame pointer, or no return address */
	UNWIND_END_UNMAPPED,	/* the guest can't read there */
	UNWIND_END_NO_MEMORY,	/* the host can't: no memslot, or nothing mapped */
};

#define END_STAT(_reason, _stat) \
	[UNWIND_END_##_reason] = offsetof(struct kvm_vcpu_stat, callchain_end_##_stat)

static const size_t end_stat[] = {
	END_STAT(LAST, last),
	END_STAT(DEPTH, depth),
	END_STAT(MODE, mode),
	END_STAT(UNALIGNED, unaligned),
	END_STAT(BACKWARDS, backwards),
	END_STAT(NONCANONICAL, noncanonical),
	END_STAT(UNMAPPED, unmapped),
	END_STAT(NO_MEMORY, no_memory),
};

/**
 * struct guest_unwind_state - a position on a guest's stack
 * @vcpu:	the vCPU whose stack is walked
 * @ip:		instruction pointer of the current frame, a guest virtual address
 * @fp:		frame pointer that leads to the caller's frame
 * @sp:		lowest address at which the caller's frame may lie
 * @va_bits:	width of the guest's virtual addresses
 * @has_frames:	whether this kind of guest can be walked; if not, there is just @ip
 * @page_gva:	guest virtual address of the stack page that was translated last
 * @page_hva:	where the VMM has mapped that page
 * @end:	whether the walk has ended, and why
 */
struct guest_unwind_state {
	struct kvm_vcpu		*vcpu;
	u64			ip;
	u64			fp;
	u64			sp;
	u8			va_bits;
	bool			has_frames;
	gva_t			page_gva;
	const void __user	*page_hva;
	enum guest_unwind_end	end;
};

#define for_each_guest_frame(state, vcpu) \
	for (guest_unwind_start(state, vcpu); !(state)->end; guest_unwind_next(state))

/*
 * Translate the page that @gva lies in.  kvm->srcu, which keeps the memslot, is
 * held by whoever let the PMI happen: see vcpu_enter_guest(), kvm_before_nmi().
 */
static enum guest_unwind_end guest_unwind_map(struct guest_unwind_state *state, gva_t gva)
{
	struct kvm_vcpu *vcpu = state->vcpu;
	unsigned long hva;
	gpa_t gpa;

	/* Translation ignores the bits that make an address non-canonical. */
	if (!__is_canonical_address(gva, state->va_bits))
		return UNWIND_END_NONCANONICAL;

	gpa = kvm_mmu_gva_to_gpa_peek(vcpu, gva & PAGE_MASK);
	if (gpa == INVALID_GPA)
		return UNWIND_END_UNMAPPED;

	/* What the VMM has mapped in place of private memory isn't the guest's. */
	if (kvm_mem_is_private(vcpu->kvm, gpa_to_gfn(gpa)))
		return UNWIND_END_NO_MEMORY;

	hva = kvm_vcpu_gfn_to_hva_prot(vcpu, gpa_to_gfn(gpa), NULL);
	if (kvm_is_error_hva(hva))
		return UNWIND_END_NO_MEMORY;

	state->page_gva = gva & PAGE_MASK;
	state->page_hva = (const void __user *)hva;
	return UNWIND_GOES_ON;
}

/*
 * A frame that is aligned to words may still straddle two pages, hence word by
 * word.  Memslots lie in user memory, KVM checks that when it adds one.
 */
static enum guest_unwind_end guest_unwind_read(struct guest_unwind_state *state,
					       gva_t gva, u64 *word)
{
	enum guest_unwind_end end;
	const u64 __user *uptr;

	if (!state->page_hva || (gva & PAGE_MASK) != state->page_gva) {
		end = guest_unwind_map(state, gva);
		if (end)
			return end;
	}

	uptr = state->page_hva + offset_in_page(gva);
	return __get_user(*word, uptr) ? UNWIND_END_NO_MEMORY : UNWIND_GOES_ON;
}

static enum guest_unwind_end __guest_unwind_next(struct guest_unwind_state *state)
{
	enum guest_unwind_end end;
	u64 fp = state->fp;
	u64 next_fp, ra;

	if (!state->has_frames)
		return UNWIND_END_MODE;

	/* x86-64 psABI, 3.4.1: a frame pointer of zero marks the outermost frame. */
	if (!fp)
		return UNWIND_END_LAST;

	/* The ABI aligns frames; Linux marks its entry frames by an odd pointer. */
	if (!IS_ALIGNED(fp, sizeof(u64)))
		return UNWIND_END_UNALIGNED;

	/* They lie on top of each other: no cycles, no way back. */
	if (fp < state->sp)
		return UNWIND_END_BACKWARDS;

	end = guest_unwind_read(state, fp, &next_fp);
	if (end)
		return end;
	end = guest_unwind_read(state, fp + sizeof(u64), &ra);
	if (end)
		return end;

	if (!ra)
		return UNWIND_END_LAST;
	if (!__is_canonical_address(ra, state->va_bits))
		return UNWIND_END_NONCANONICAL;

	state->ip = ra;
	state->fp = next_fp;
	state->sp = fp + 2 * sizeof(u64);
	return UNWIND_GOES_ON;
}

static void guest_unwind_next(struct guest_unwind_state *state)
{
	state->end = __guest_unwind_next(state);
}

static void guest_unwind_start(struct guest_unwind_state *state, struct kvm_vcpu *vcpu)
{
	*state = (struct guest_unwind_state) {
		.vcpu		= vcpu,
		.ip		= kvm_rip_read(vcpu),
		.sp		= kvm_rsp_read(vcpu),
		.fp		= kvm_rbp_read_raw(vcpu),
		.va_bits	= vcpu_virt_addr_bits(vcpu),
		.has_frames	= is_64_bit_mode(vcpu) && !is_guest_mode(vcpu),
	};
}

/**
 * kvm_arch_vcpu_stack_walk - report the callchain of a vCPU's guest
 * @vcpu:		the vCPU that the current PMI interrupted in guest mode
 * @consume_entry:	called for the guest's instruction pointer, then for each
 *			return address, innermost first; false ends the walk
 * @cookie:		passed to @consume_entry
 *
 * Reads the guest's memory with the privileges that the guest has right now,
 * and writes none of it.  Each entry costs two reads at the most, plus the walk
 * of the page tables when a frame lies on another page than the one before.
 *
 * Context: the PMI, IRQ or NMI, with kvm_arch_pmi_in_guest() true: kvm->srcu is
 * held then, and registers may be cached.  Page faults must be disabled.
 */
void kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu,
			      stack_trace_consume_fn consume_entry, void *cookie)
{
	struct guest_unwind_state state;

	if (vcpu->arch.guest_state_protected)
		return;

	for_each_guest_frame(&state, vcpu) {
		if (!consume_entry(cookie, state.ip)) {
			state.end = UNWIND_END_DEPTH;
			break;
		}
		vcpu->stat.callchain_frames++;
	}

	/* Only this thread's PMIs count, and they don't interrupt each other. */
	vcpu->stat.callchain_walks++;
	++*(u64 *)((void *)&vcpu->stat + end_stat[state.end]);
}
