// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk the stack of a guest, by its frame pointers, through its page tables.
 *
 * The guest writes everything that a walk follows, and may change it during the walk: check
 * each step, and give each loop a bound that the guest can't change.
 */

#include <linux/kvm_host.h>
#include <linux/perf_event.h>
#include <linux/perf_regs.h>

#include <trace/events/kvm.h>

#include "mmu.h"
#include "regs.h"
#include "x86.h"

/*
 * Return true if the host can see the guest's registers and memory: private memory is
 * ciphertext to the host, or not at the VMM's addresses that are in the memslots.
 */
bool kvm_arch_vcpu_can_peek(struct kvm_vcpu *vcpu)
{
	return !vcpu->arch.guest_state_protected && !kvm_arch_has_private_mem(vcpu->kvm) &&
	       !kvm_x86_call(has_encrypted_mem)(vcpu);
}

/* Translate for virt/kvm/peek.c. */
gpa_t kvm_arch_vcpu_peek_gva(struct kvm_vcpu *vcpu, gva_t gva, bool user)
{
	/* Translation ignores the bits that make an address non-canonical. */
	if (is_64_bit_mode(vcpu) && is_noncanonical_address(gva, vcpu, 0))
		return INVALID_GPA;

	/* The guest may choose what this brings into the cache. */
	kvm_request_l1tf_flush_l1d();
	return kvm_mmu_gva_to_gpa_peek(vcpu, gva, user ? PFERR_USER_MASK : 0);
}

/*
 * How the code that was interrupted stores its frames:
 *
 * @word:	bytes in a word: 8, 4, or 2
 * @max:	the highest address; outside of 64-bit code, addresses wrap around after it
 * @cs_base:	where the code segment begins; zero in 64-bit code
 * @ss_base:	where the stack segment begins, to which frame pointers are relative; zero in
 *		64-bit code
 */
struct guest_frames {
	unsigned int	word;
	u64		max;
	u64		cs_base;
	u64		ss_base;
};

/* Read a word of the stack.  It is aligned, so that it lies in one word of the reader. */
static int guest_read(struct kvm_vcpu *vcpu, unsigned int word, gva_t gva, u64 *val)
{
	if (kvm_peek_word(vcpu, ALIGN_DOWN(gva, sizeof(u64)), val))
		return -EFAULT;

	*val = (*val >> (gva % sizeof(u64) * BITS_PER_BYTE)) & GENMASK_ULL(word * 8 - 1, 0);
	return 0;
}

/* Inlined, so that the walk of 64-bit code, where @frames is constant, takes no more for others. */
static __always_inline unsigned int guest_walk(struct kvm_vcpu *vcpu, struct guest_frames frames,
					       u64 *ips, unsigned int max)
{
	u64 mask = GENMASK_ULL(frames.word * 8 - 1, 0);
	u64 fp = kvm_rbp_read_raw(vcpu) & mask, sp = kvm_rsp_read(vcpu) & mask;
	u64 frame = fp, next, ra;
	/* The canonical addresses are those from -half to half - 1. */
	const u64 half = BIT_ULL(vcpu_virt_addr_bits(vcpu) - 1);
	unsigned long nr;

	/* Rings 1 and 2, too, are user mode for perf, and get no more than its rights. */
	kvm_peek_with_rights(vcpu, kvm_x86_call(get_cpl)(vcpu));
	/*
	 * A frame pointer of zero marks the outermost frame, by the psABI.  In 64-bit code, it is
	 * an address below any stack.
	 */
	sp = ((frames.ss_base + sp) & frames.max) ?: 1;
	for (nr = 0; nr < max && (frames.word == sizeof(u64) || fp); nr++) {
		/* Each frame must lie above the last one, so that there are no cycles. */
		frame = (frames.ss_base + fp) & frames.max;
		if (frame < sp || frame > frames.max - 2 * frames.word ||
		    !IS_ALIGNED(frame, frames.word))
			break;

		if (frames.word == sizeof(u64) ? kvm_peek_pair(vcpu, frame, &next, &ra) :
		    guest_read(vcpu, frames.word, frame, &next) ||
		    guest_read(vcpu, frames.word, frame + frames.word, &ra))
			break;

		/* perf would take the highest addresses for context markers. */
		if (!ra || ra >= PERF_CONTEXT_MAX ||
		    (frames.word == sizeof(u64) && ra + half >= 2 * half))
			break;

		ips[nr] = (frames.cs_base + ra) & frames.max;
		sp = frame + 2 * frames.word;
		fp = next;
	}

	/* Zero at the outermost frame, else the frame that was tried last */
	trace_kvm_stack_walk(vcpu->vcpu_id, nr, fp ? frame : 0);
	return nr;
}

/*
 * Store the return addresses that are on the guest's stack, innermost first, at most @max of
 * them, in @ips; return how many.  Addresses are linear.  The stack is read with the rights of
 * the code that was interrupted.
 *
 * @max and KVM_PEEK_MAX bound the work: a frame takes two words, and at most two translations.
 *
 * Called in the vCPU's thread, before the exit is handled, see kvm_peek_begin().
 */
unsigned int kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max)
{
	int cs_db, cs_l;

	if (is_64_bit_mode(vcpu))
		return guest_walk(vcpu, (struct guest_frames){ .word = 8, .max = U64_MAX }, ips,
				  max);

	kvm_x86_call(get_cs_db_l_bits)(vcpu, &cs_db, &cs_l);
	return guest_walk(vcpu, (struct guest_frames){
			.word = cs_db ? 4 : 2,
			.max = U32_MAX,
			.cs_base = kvm_get_segment_base(vcpu, VCPU_SREG_CS),
			.ss_base = kvm_get_segment_base(vcpu, VCPU_SREG_SS),
		}, ips, max);
}

/* The stack pointer, as a linear address. */
static u64 guest_linear_sp(struct kvm_vcpu *vcpu)
{
	u64 sp = kvm_rsp_read(vcpu);

	return is_64_bit_mode(vcpu) ? sp :
	       lower_32_bits(kvm_get_segment_base(vcpu, VCPU_SREG_SS) + sp);
}

/*
 * Return where a read begins.  In user mode, the kernel's GS base is in KERNEL_GS_BASE, until
 * SWAPGS exchanges the two.  Right after the entry and before the return, the kernel has not
 * done so yet, or has done so already: take the base that is in the upper half then.
 *
 * Called as kvm_arch_vcpu_stack_walk().
 */
u64 kvm_arch_vcpu_read_base(struct kvm_vcpu *vcpu, enum perf_guest_read_base base)
{
	u64 gs;

	if (base == PERF_GUEST_READ_SP)
		return guest_linear_sp(vcpu);

	gs = kvm_get_segment_base(vcpu, VCPU_SREG_GS);
	if (kvm_x86_call(get_cpl)(vcpu) || (s64)gs >= 0)
		kvm_msr_read(vcpu, MSR_KERNEL_GS_BASE, &gs);
	return gs;
}

static u64 guest_reg(struct kvm_vcpu *vcpu, unsigned int reg)
{
	/* perf and KVM number the general registers differently. */
	static const u8 regs[] = {
		[PERF_REG_X86_AX] = VCPU_REGS_RAX, [PERF_REG_X86_BX] = VCPU_REGS_RBX,
		[PERF_REG_X86_CX] = VCPU_REGS_RCX, [PERF_REG_X86_DX] = VCPU_REGS_RDX,
		[PERF_REG_X86_SI] = VCPU_REGS_RSI, [PERF_REG_X86_DI] = VCPU_REGS_RDI,
		[PERF_REG_X86_BP] = VCPU_REGS_RBP,
	};
	struct kvm_segment segment;

	switch (reg) {
	case PERF_REG_X86_SP:
		return kvm_rsp_read(vcpu);
	case PERF_REG_X86_IP:
		return kvm_get_linear_rip(vcpu);
	case PERF_REG_X86_FLAGS:
		return kvm_get_rflags(vcpu);
	case PERF_REG_X86_CS:
	case PERF_REG_X86_SS:
		kvm_get_segment(vcpu, &segment,
				reg == PERF_REG_X86_CS ? VCPU_SREG_CS : VCPU_SREG_SS);
		return segment.selector;
	case PERF_REG_X86_AX ... PERF_REG_X86_BP:
		return kvm_register_read_raw(vcpu, regs[reg]);
	case PERF_REG_X86_R8 ... PERF_REG_X86_R15:
		return kvm_register_read_raw(vcpu, VCPU_REGS_R8 + reg - PERF_REG_X86_R8);
	default:
		return 0;
	}
}

/* Store abi, root, mask and regs of PERF_RECORD_GUEST_READ. */
void kvm_arch_vcpu_read_regs(struct kvm_vcpu *vcpu, u64 mask, u64 *words)
{
	*words++ = is_64_bit_mode(vcpu) ? PERF_SAMPLE_REGS_ABI_64 : PERF_SAMPLE_REGS_ABI_32;
	*words++ = kvm_read_cr3(vcpu);
	*words++ = mask;
	for (; mask; mask &= mask - 1)
		*words++ = guest_reg(vcpu, __ffs64(mask));
}
