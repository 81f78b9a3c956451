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

/**
 * struct guest_unwind_state - a position on a guest's stack
 * @vcpu:	the vCPU whose stack is walked
 * @ip:		instruction pointer of the current frame, a guest virtual address
 * @fp:		frame pointer that leads to the caller's frame
 * @sp:		lowest address at which the caller's frame may lie
 * @page_gva:	guest virtual address of the stack page that was translated last
 * @page_hva:	where the VMM has mapped that page
 * @done:	the walk has ended
 */
struct guest_unwind_state {
	struct kvm_vcpu		*vcpu;
	u64			ip;
	u64			fp;
	u64			sp;
	gva_t			page_gva;
	const void __user	*page_hva;
	bool			done;
};

#define for_each_guest_frame(state, vcpu) \
	for (guest_unwind_start(state, vcpu); !(state)->done; guest_unwind_next(state))

/*
 * Translate the page that @gva lies in.  kvm->srcu, which keeps the memslot, is
 * held by whoever let the PMI happen: see vcpu_enter_guest(), kvm_before_nmi().
 */
static int guest_unwind_map(struct guest_unwind_state *state, gva_t gva)
{
	struct kvm_vcpu *vcpu = state->vcpu;
	unsigned long hva;
	gpa_t gpa;

	gpa = kvm_mmu_gva_to_gpa_peek(vcpu, gva & PAGE_MASK);
	if (gpa == INVALID_GPA)
		return -EFAULT;

	/* What the VMM has mapped in place of private memory isn't the guest's. */
	if (kvm_mem_is_private(vcpu->kvm, gpa_to_gfn(gpa)))
		return -EFAULT;

	hva = kvm_vcpu_gfn_to_hva_prot(vcpu, gpa_to_gfn(gpa), NULL);
	if (kvm_is_error_hva(hva))
		return -EFAULT;

	state->page_gva = gva & PAGE_MASK;
	state->page_hva = (const void __user *)hva;
	return 0;
}

/*
 * A frame that is aligned to words may still straddle two pages, hence word by
 * word.  Memslots lie in user memory, KVM checks that when it adds one.
 */
static int guest_unwind_read(struct guest_unwind_state *state, gva_t gva, u64 *word)
{
	const u64 __user *uptr;

	if ((!state->page_hva || (gva & PAGE_MASK) != state->page_gva) &&
	    guest_unwind_map(state, gva))
		return -EFAULT;

	uptr = state->page_hva + offset_in_page(gva);
	return __get_user(*word, uptr);
}

static int __guest_unwind_next(struct guest_unwind_state *state)
{
	struct kvm_vcpu *vcpu = state->vcpu;
	u64 fp = state->fp;
	u64 next_fp, ra;

	/* Frames lie on top of each other: no cycles, no way back. */
	if (fp < state->sp)
		return -EINVAL;

	/* The ABI aligns them; Linux marks its entry frames by an odd pointer. */
	if (!IS_ALIGNED(fp, sizeof(u64)))
		return -EINVAL;

	/* Translation ignores the bits that make an address non-canonical. */
	if (is_noncanonical_address(fp, vcpu, 0) ||
	    is_noncanonical_address(fp + sizeof(u64), vcpu, 0))
		return -EFAULT;

	if (guest_unwind_read(state, fp, &next_fp) ||
	    guest_unwind_read(state, fp + sizeof(u64), &ra))
		return -EFAULT;

	/* The outermost frame has nowhere to return to. */
	if (!ra || is_noncanonical_address(ra, vcpu, 0))
		return -EINVAL;

	state->ip = ra;
	state->fp = next_fp;
	state->sp = fp + 2 * sizeof(u64);
	return 0;
}

static void guest_unwind_next(struct guest_unwind_state *state)
{
	if (__guest_unwind_next(state))
		state->done = true;
}

static void guest_unwind_start(struct guest_unwind_state *state, struct kvm_vcpu *vcpu)
{
	*state = (struct guest_unwind_state) {
		.vcpu	= vcpu,
		.ip	= kvm_rip_read(vcpu),
		.sp	= kvm_rsp_read(vcpu),
		.fp	= kvm_rbp_read(vcpu),
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

	if (!is_64_bit_mode(vcpu) || is_guest_mode(vcpu)) {
		consume_entry(cookie, kvm_arch_vcpu_get_ip(vcpu));
		return;
	}

	for_each_guest_frame(&state, vcpu) {
		if (!consume_entry(cookie, state.ip))
			break;
	}
}
