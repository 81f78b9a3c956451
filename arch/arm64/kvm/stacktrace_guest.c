// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk the stack of a guest, by its frame records, through its page tables.
 *
 * The guest writes everything that a walk follows, and may change it during the walk: check
 * each step, and give each loop a bound that the guest can't change.
 */

#include <linux/kvm_host.h>
#include <linux/perf_event.h>
#include <linux/perf_regs.h>

#include <asm/kvm_emulate.h>
#include <asm/kvm_nested.h>

#include <trace/events/kvm.h>

/*
 * The number of times that a walk may leave a stack for a lower one: a kernel has several, e.g.
 * for interrupts.  One that lies between two that were walked ends the walk.
 */
#define UNWIND_MAX_LEFT		3

struct guest_stack_range {
	u64 low;
	u64 high;
};

/*
 * @user:	user mode was interrupted, which has one stack
 * @stack:	the part of the current stack that was walked; the caller's frame record lies at
 *		@stack.high or above, or on another stack
 * @left:	the parts of other stacks that were walked
 * @nr_left:	the number of these parts
 */
struct guest_unwind_state {
	bool			user;
	struct guest_stack_range stack;
	struct guest_stack_range left[UNWIND_MAX_LEFT];
	unsigned int		nr_left;
};

static bool is_upper_half(u64 addr)
{
	return addr & BIT(55);
}

/*
 * Return @addr with all bits above the guest's virtual addresses set to the value of bit 55.
 * Values of TxSZ that the architecture does not have are brought into range; translation refuses
 * them.
 */
static u64 guest_extend(u64 tcr, u64 addr)
{
	u64 txsz = is_upper_half(addr) ? FIELD_GET(TCR_T1SZ_MASK, tcr) :
					 FIELD_GET(TCR_T0SZ_MASK, tcr);
	u64 above = GENMASK_ULL(63, 64 - clamp(txsz, 12, 48));

	return is_upper_half(addr) ? addr | above : addr & ~above;
}

/* Set the topmost byte of a data address to copies of bit 55 if the guest's CPU ignores it. */
static u64 guest_untag(u64 tcr, u64 addr)
{
	u64 tbi = is_upper_half(addr) ? TCR_TBI1 : TCR_TBI0;

	return tcr & tbi ? (u64)sign_extend64(addr, 55) : addr;
}

/*
 * Return true if the host can see the guest's registers and memory.
 *
 * In protected mode, it can't.  The hypervisor takes the memory of protected VMs from the host.
 * Of the registers of other VMs, it copies only PC and PSTATE to the host at each exit; the
 * host must ask for the others.
 *
 * Guests with nested virtualization are not supported: they have more translation regimes,
 * and their own guests have a second stage.  A 32-bit kernel has page tables of another format.
 */
bool kvm_arch_vcpu_can_peek(struct kvm_vcpu *vcpu)
{
	return !is_protected_kvm_enabled() && !vcpu_has_nv(vcpu) && !vcpu_el1_is_32bit(vcpu);
}

/* Translate for virt/kvm/peek.c. */
gpa_t kvm_arch_vcpu_peek_gva(struct kvm_vcpu *vcpu, gva_t gva, bool user)
{
	u64 tcr = vcpu_read_sys_reg(vcpu, TCR_EL1);
	struct s1_walk_result wr = {};
	struct s1_walk_info wi = {
		.regime	= TR_EL10,
		.as_el0	= user,
		/* Obey PAN as it is: don't read user memory that the kernel couldn't read now. */
		.pan	= !user && (*vcpu_cpsr(vcpu) & PSR_PAN_BIT),
		.peek	= true,
	};

	gva = guest_untag(tcr, gva);
	if (guest_extend(tcr, gva) != gva || __kvm_translate_va(vcpu, &wi, &wr, gva) ||
	    !(user ? wr.ur : wr.pr))
		return INVALID_GPA;

	return wr.pa;
}

static bool is_in_range(const struct guest_stack_range *range, u64 addr)
{
	return addr >= range->low && addr < range->high;
}

/*
 * Return true if the walk may go on to the frame record at @frame.  On one stack, each record lies
 * above the last one.  A walk may leave a stack for a lower one a few times.  It must never come
 * back to a part that it has walked, so that it has no cycles.
 */
static bool guest_unwind_step(struct guest_unwind_state *state, u64 frame)
{
	unsigned int i;

	if (!IS_ALIGNED(frame, sizeof(u64)) || frame > U64_MAX - 2 * sizeof(u64))
		return false;

	for (i = 0; i < state->nr_left; i++) {
		if (is_in_range(&state->left[i], frame))
			return false;
	}

	if (frame >= state->stack.high)
		return true;

	if (state->user || is_in_range(&state->stack, frame) ||
	    state->nr_left == ARRAY_SIZE(state->left))
		return false;

	state->left[state->nr_left++] = state->stack;
	state->stack.low = frame;
	state->stack.high = frame;
	return true;
}

static u64 guest_word(bool be, u64 word)
{
	return be ? be64_to_cpu((__force __be64)word) : le64_to_cpu((__force __le64)word);
}

/* The stack pointer.  Preemption is disabled, so that registers stay where they are. */
static u64 guest_sp(struct kvm_vcpu *vcpu)
{
	if (vcpu_mode_is_32bit(vcpu))
		return lower_32_bits(vcpu_get_reg(vcpu, 13));

	if ((*vcpu_cpsr(vcpu) & PSR_MODE_MASK) != PSR_MODE_EL1h)
		return vcpu_gp_regs(vcpu)->sp;

	return vcpu_get_flag(vcpu, SYSREGS_ON_CPU) ? read_sysreg(sp_el1) :
						     __vcpu_sys_reg(vcpu, SP_EL1);
}

/*
 * Store the return addresses that are on the guest's stack, innermost first, at most @max of
 * them, in @ips; return how many.  The stack is read with the rights of the code that was
 * interrupted.
 *
 * @max bounds the work: a frame record takes two words, and at most two translations.
 *
 * Called in the vCPU's thread, before the exit is handled, see kvm_peek_begin().
 */
unsigned int kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max)
{
	struct guest_unwind_state state = { .user = !vcpu_mode_priv(vcpu) };
	u64 fp = vcpu_get_reg(vcpu, 29), frame = fp, next, ra;
	/* Each of these takes more instructions than the rest of a frame. */
	u64 tcr = vcpu_read_sys_reg(vcpu, TCR_EL1);
	bool be = kvm_vcpu_is_be(vcpu), pauth = vcpu_has_ptrauth(vcpu);
	unsigned int nr;

	/* 32-bit code has no frame records of this kind. */
	if (vcpu_mode_is_32bit(vcpu))
		return 0;

	kvm_peek_with_rights(vcpu, state.user);
	state.stack.low = guest_untag(tcr, guest_sp(vcpu));
	state.stack.high = state.stack.low;
	/* A frame pointer of zero marks the outermost record, by the AAPCS. */
	for (nr = 0; nr < max && fp; nr++) {
		frame = guest_untag(tcr, fp);
		if (!guest_unwind_step(&state, frame) ||
		    kvm_peek_pair(vcpu, frame, &next, &ra))
			break;

		ra = guest_word(be, ra);
		fp = guest_word(be, next);

		/* Remove the signature that pointer authentication has put into the address. */
		if (pauth)
			ra = guest_extend(tcr, ra);
		/* perf would take the highest addresses for context markers. */
		if (!ra || guest_extend(tcr, ra) != ra || ra >= PERF_CONTEXT_MAX)
			break;

		ips[nr] = ra;
		state.stack.high = frame + 2 * sizeof(u64);
	}

	/* Zero at the outermost record, else the record that was tried last */
	trace_kvm_stack_walk(vcpu->vcpu_id, nr, fp ? frame : 0);
	return nr;
}

/* Return where a read begins.  Called as kvm_arch_vcpu_stack_walk(). */
u64 kvm_arch_vcpu_read_base(struct kvm_vcpu *vcpu, enum perf_guest_read_base base)
{
	return base == PERF_GUEST_READ_SP ?
	       guest_untag(vcpu_read_sys_reg(vcpu, TCR_EL1), guest_sp(vcpu)) :
	       vcpu_read_sys_reg(vcpu, TPIDR_EL1);
}

/* Store abi, root, mask and regs of PERF_RECORD_GUEST_READ. */
void kvm_arch_vcpu_read_regs(struct kvm_vcpu *vcpu, u64 mask, u64 *words)
{
	unsigned int reg;

	*words++ = vcpu_mode_is_32bit(vcpu) ? PERF_SAMPLE_REGS_ABI_32 : PERF_SAMPLE_REGS_ABI_64;
	*words++ = vcpu_read_sys_reg(vcpu, TTBR0_EL1);
	*words++ = mask;
	for (; mask; mask &= mask - 1) {
		reg = __ffs64(mask);
		/* As perf_reg_value() of 32-bit tasks, where r14 and r15 are LR and PC. */
		if (vcpu_mode_is_32bit(vcpu) && reg == PERF_REG_ARM64_LR)
			reg = 14;
		else if (vcpu_mode_is_32bit(vcpu) && reg == 15)
			reg = PERF_REG_ARM64_PC;
		if (reg < PERF_REG_ARM64_SP)
			*words++ = vcpu_get_reg(vcpu, reg);
		else if (reg == PERF_REG_ARM64_SP)
			*words++ = guest_sp(vcpu);
		else
			*words++ = reg == PERF_REG_ARM64_PC ? *vcpu_pc(vcpu) : 0;
	}
}
