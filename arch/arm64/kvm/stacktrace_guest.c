// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk the stack of a guest, by its frame records, through its page tables.
 *
 * The guest writes everything that a walk follows, and may change it during
 * the walk: check each step, and give each loop a bound that the guest can't
 * change.
 */

#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <linux/sizes.h>

#include <asm/kvm_emulate.h>
#include <asm/kvm_nested.h>

/* Reasons why a walk of a guest's stack ended, in the order of struct kvm_vcpu_stat. */
enum guest_unwind_end {
	UNWIND_CONTINUE,
	UNWIND_END_LAST,	/* the outermost frame: it has no return address */
	UNWIND_END_DEPTH,	/* perf takes no more entries, or not this one */
	UNWIND_END_UNALIGNED,	/* an unaligned frame pointer, or implausible saved registers */
	UNWIND_END_BACKWARDS,	/* not a frame pointer, or a cycle */
	UNWIND_END_NONCANONICAL, /* an address outside of both halves, or in the wrong one */
	UNWIND_END_UNMAPPED,	/* the guest can't read there, or its tables aren't at hand */
	UNWIND_END_NO_MEMORY,	/* no memslot, or memory that isn't at hand */
};

/*
 * At interrupts, exceptions and system calls, a Linux guest saves struct pt_regs on its
 * kernel's stack, with a frame record in it.  These are the parts that matter here, as
 * offsets in bytes.  They are not taken from the host's headers, as the guest's kernel
 * may be another version.
 */
#define LINUX_REGS_X29		232
#define LINUX_REGS_SP		248
#define LINUX_REGS_PC		256
#define LINUX_REGS_PSTATE	264

/*
 * Since Linux 6.13, both words of that record are zero, and the next word has its type.
 * Before, only the record of an entry from user mode is zero, and there is no type.
 */
#define LINUX_REGS_RECORD	296
#define LINUX_REGS_RECORD_6_12	304
#define LINUX_REGS_SIZE		320

#define LINUX_RECORD_FINAL	1
#define LINUX_RECORD_REGS	2

/* The walk translates pieces of this size, the smallest page of any guest or host. */
#define UNWIND_PAGE_SIZE	SZ_4K

/*
 * The number of times that a walk may leave a stack for a lower one.  A walk of Linux may go from
 * the stack of an SDEI event to the overflow stack, on to the IRQ stack, and to the task's stack.
 */
#define UNWIND_MAX_LEFT		3

struct guest_stack_range {
	u64 low;
	u64 high;
};

/*
 * The state of a walk of a guest's stack:
 *
 * @vcpu:	the vCPU whose stack is walked
 * @ips:	entries that were found so far
 * @nr:		how many entries were found
 * @max:	how many entries there is room for
 * @nr_kernel:	how many of the entries found belong to EL1
 * @fp:		frame pointer that leads to the caller's frame record
 * @stack:	the part of the current stack that was walked; on this stack, the caller's
 *		frame record lies at @stack.high or above
 * @left:	the parts of other stacks that were walked
 * @nr_left:	the number of these parts
 * @tcr:	the guest's TCR_EL1
 * @sctlr:	the guest's SCTLR_EL1
 * @user:	the walk is not, or no longer, in the guest's kernel
 * @be:		the guest's words are big-endian
 * @page_gva:	guest virtual address of the piece of stack that was translated last
 * @piece:	where the host's kernel has mapped that piece; NULL if there is none
 */
struct guest_unwind_state {
	struct kvm_vcpu		*vcpu;
	u64			*ips;
	unsigned int		nr;
	unsigned int		max;
	unsigned int		nr_kernel;
	u64			fp;
	struct guest_stack_range stack;
	struct guest_stack_range left[UNWIND_MAX_LEFT];
	unsigned int		nr_left;
	u64			tcr;
	u64			sctlr;
	bool			user;
	bool			be;
	gva_t			page_gva;
	const void		*piece;
};

static bool is_upper_half(u64 addr)
{
	return addr & BIT(55);
}

/*
 * Return the width of the guest's virtual addresses in @addr's half.  Values of TxSZ that
 * the architecture does not have are brought into range; translation refuses them.
 */
static unsigned int guest_va_bits(const struct guest_unwind_state *state, u64 addr)
{
	u64 txsz = is_upper_half(addr) ? FIELD_GET(TCR_T1SZ_MASK, state->tcr) :
					 FIELD_GET(TCR_T0SZ_MASK, state->tcr);

	return 64 - clamp(txsz, 12, 48);
}

/* Set the topmost byte of a data address to copies of bit 55 if the guest's CPU ignores it. */
static u64 guest_untag(const struct guest_unwind_state *state, u64 addr)
{
	u64 tbi = is_upper_half(addr) ? TCR_TBI1 : TCR_TBI0;

	return state->tcr & tbi ? (u64)sign_extend64(addr, 55) : addr;
}

/* Return @addr with all bits above the guest's virtual addresses set to the value of bit 55. */
static u64 guest_extend(const struct guest_unwind_state *state, u64 addr)
{
	u64 above = GENMASK_ULL(63, guest_va_bits(state, addr));

	return is_upper_half(addr) ? addr | above : addr & ~above;
}

static bool guest_canonical(const struct guest_unwind_state *state, u64 addr)
{
	return guest_extend(state, addr) == addr;
}

/*
 * Remove the signature that pointer authentication has put into a return address, in the
 * bits that addresses don't need.  Guests without pointer authentication have no signatures:
 * there, leave the address alone, as it must be canonical.
 */
static u64 guest_strip_pac(const struct guest_unwind_state *state, u64 addr)
{
	return vcpu_has_ptrauth(state->vcpu) ? guest_extend(state, addr) : addr;
}

/* Add @ip to the chain; end the walk if perf would take @ip for a context marker. */
static enum guest_unwind_end guest_unwind_store(struct guest_unwind_state *state, u64 ip)
{
	if (ip >= PERF_CONTEXT_MAX)
		return UNWIND_END_DEPTH;

	state->ips[state->nr++] = ip;
	if (!state->user)
		state->nr_kernel = state->nr;
	return UNWIND_CONTINUE;
}

/*
 * Get the VMM's page at @hva if it is normal memory.  GUP refuses the registers of devices,
 * where reads have side effects.  For swapped memory, see kvm_get_swapped_page().
 */
static struct page *host_get_page(unsigned long hva)
{
	struct page *page;

	return get_user_page_fast_only(hva, 0, &page) ? page : kvm_get_swapped_page(hva);
}

/*
 * Return the address at which the host's kernel has mapped the guest's memory at @gpa, or
 * NULL.  The caller must pass this address to guest_peek_unmap(), which puts the page.
 *
 * Don't read through the VMM's mapping: it may change meanwhile, and on CPUs that don't set
 * Access flags, a read of a page that was aged takes a page fault.  Hold the page, but don't
 * pin it: FOLL_PIN would have GUP unshare a page that the VMM shares.
 */
static const void *guest_peek_map(struct kvm_vcpu *vcpu, gpa_t gpa)
{
	struct kvm_memory_slot *slot = kvm_vcpu_gfn_to_memslot(vcpu, gpa_to_gfn(gpa));
	struct page *page;

	/* KVM's own memslots, and those that are being removed, are not the guest's memory. */
	if (!kvm_is_visible_memslot(slot))
		return NULL;

	page = host_get_page(__gfn_to_hva_memslot(slot, gpa_to_gfn(gpa)));
	return page ? page_address(page) + offset_in_page(gpa) : NULL;
}

static void guest_peek_unmap(const void *kva)
{
	if (kva)
		put_page(virt_to_page(kva));
}

/*
 * Read the descriptor of the guest's page tables that is at @gpa, a multiple of 8, into *@val,
 * and change nothing.  Return zero, or -EFAULT if there is no memory at @gpa, or if reading it
 * would have to wait for I/O or for the VMM.
 *
 * Called in deferred walks, with kvm->srcu held.
 */
int kvm_peek_guest(struct kvm_vcpu *vcpu, gpa_t gpa, u64 *val)
{
	const void *kva = guest_peek_map(vcpu, gpa);

	if (!kva)
		return -EFAULT;

	*val = READ_ONCE(*(const u64 *)kva);
	guest_peek_unmap(kva);
	return 0;
}

/* Translate the page that @gva lies in. */
static enum guest_unwind_end guest_unwind_map(struct guest_unwind_state *state, gva_t gva)
{
	gva_t page_gva = ALIGN_DOWN(gva, UNWIND_PAGE_SIZE);
	struct s1_walk_result wr = {};
	struct s1_walk_info wi = {
		.regime	= TR_EL10,
		.as_el0	= state->user,
		/* Obey PAN: don't read user memory that the guest's kernel can't read. */
		.pan	= !state->user && (*vcpu_cpsr(state->vcpu) & PSR_PAN_BIT),
		.peek	= true,
	};

	guest_peek_unmap(state->piece);
	state->piece = NULL;

	if (!guest_canonical(state, gva))
		return UNWIND_END_NONCANONICAL;

	if (__kvm_translate_va(state->vcpu, &wi, &wr, page_gva) ||
	    !(state->user ? wr.ur : wr.pr))
		return UNWIND_END_UNMAPPED;

	state->piece = guest_peek_map(state->vcpu, wr.pa);
	state->page_gva = page_gva;
	return state->piece ? UNWIND_CONTINUE : UNWIND_END_NO_MEMORY;
}

/* Read an aligned word of the stack.  Most words lie on the page that was translated last. */
static enum guest_unwind_end guest_unwind_read(struct guest_unwind_state *state,
					       gva_t gva, u64 *word)
{
	enum guest_unwind_end end;
	u64 val;

	if (!state->piece || state->page_gva != ALIGN_DOWN(gva, UNWIND_PAGE_SIZE)) {
		end = guest_unwind_map(state, gva);
		if (end)
			return end;
	}

	/* The guest chooses @gva: mask the offset, so that speculation stays on the page. */
	val = READ_ONCE(*(const u64 *)(state->piece +
				       (gva & (UNWIND_PAGE_SIZE - sizeof(u64)))));
	*word = state->be ? be64_to_cpu((__force __be64)val) : le64_to_cpu((__force __le64)val);
	return UNWIND_CONTINUE;
}

static bool is_in_range(const struct guest_stack_range *range, u64 addr)
{
	return addr >= range->low && addr < range->high;
}

/*
 * Go on to the frame record at @frame.  On one stack, each record lies above the last one.
 * A kernel has several stacks, in any order: a walk may leave a stack for a lower one a few
 * times.  It must never come back to a part that it has walked, so that it has no cycles.
 */
static enum guest_unwind_end guest_unwind_step(struct guest_unwind_state *state, u64 frame)
{
	unsigned int i;

	if (frame > U64_MAX - 2 * sizeof(u64))
		return UNWIND_END_BACKWARDS;

	for (i = 0; i < state->nr_left; i++) {
		if (is_in_range(&state->left[i], frame))
			return UNWIND_END_BACKWARDS;
	}

	if (frame >= state->stack.high)
		return UNWIND_CONTINUE;

	if (state->user || is_in_range(&state->stack, frame) ||
	    state->nr_left == ARRAY_SIZE(state->left))
		return UNWIND_END_BACKWARDS;

	state->left[state->nr_left++] = state->stack;
	state->stack.low = frame;
	state->stack.high = frame;
	return UNWIND_CONTINUE;
}

/* Continue in user mode, once, and with its rights. */
static enum guest_unwind_end guest_unwind_user(struct guest_unwind_state *state, u64 pc, u64 sp,
					       u64 fp, u64 pstate)
{
	enum guest_unwind_end end;

	state->user = true;
	state->be = state->sctlr & SCTLR_EL1_E0E;
	guest_peek_unmap(state->piece);
	state->piece = NULL;
	state->nr_left = 0;
	state->fp = fp;
	state->stack.low = guest_untag(state, sp);
	state->stack.high = state->stack.low;

	end = guest_unwind_store(state, pc);
	/* 32-bit code has no frame records of this kind. */
	return !end && pstate & PSR_MODE32_BIT ? UNWIND_END_LAST : end;
}

/*
 * Return UNWIND_CONTINUE if @pc and @pstate can be those of user mode, as a kernel saves
 * them: user mode has the lower half of the addresses, and runs with IRQs enabled.
 */
static enum guest_unwind_end guest_check_user(u64 pc, u64 pstate)
{
	if ((pstate & PSR_MODE_MASK) != PSR_MODE_EL0t || pstate & PSR_I_BIT)
		return UNWIND_END_UNALIGNED;

	return is_upper_half(pc) ? UNWIND_END_NONCANONICAL : UNWIND_CONTINUE;
}

/*
 * Return true if the entry code of the guest's kernel seems to have cleared the general registers.
 * Until that code makes the frame record, it uses few registers, and none of X24 to X27.
 */
static bool guest_unwind_cleared(const struct guest_unwind_state *state)
{
	unsigned int i;

	for (i = 24; i <= 27; i++) {
		if (vcpu_get_reg(state->vcpu, i))
			return false;
	}

	return true;
}

/*
 * Continue in user mode if the guest's kernel is at the first instructions after an entry
 * from user mode, or at the last ones before it returns: X29, ELR and SPSR are user mode's
 * there.  If the entry code has cleared X29 already, take it from where it was saved, at SP.
 */
static enum guest_unwind_end guest_unwind_edge(struct guest_unwind_state *state)
{
	u64 pc = vcpu_read_sys_reg(state->vcpu, ELR_EL1);
	u64 pstate = vcpu_read_sys_reg(state->vcpu, SPSR_EL1);
	u64 sp = vcpu_gp_regs(state->vcpu)->sp, regs = state->stack.low;

	if (state->nr > 1 || !pc || !guest_canonical(state, pc) || guest_check_user(pc, pstate))
		return state->fp ? UNWIND_END_NONCANONICAL : UNWIND_END_LAST;

	if (!state->fp) {
		if (!guest_unwind_cleared(state))
			return UNWIND_END_LAST;
		if (is_upper_half(regs) && IS_ALIGNED(regs, 16) &&
		    regs <= U64_MAX - LINUX_REGS_SIZE)
			guest_unwind_read(state, regs + LINUX_REGS_X29, &state->fp);
	}

	/* If SP_EL0 has a value of the kernel's, user mode's first frame may lie anywhere. */
	return guest_unwind_user(state, pc, is_upper_half(sp) ? 0 : sp, state->fp, pstate);
}

/*
 * Continue with the registers that a Linux guest has saved at @regs.  If @from_user is true,
 * they must be those of user mode, otherwise those of kernel code that was interrupted.
 * Other guests may have anything there, so check that the registers are plausible.  Read in
 * ascending order, so as not to translate a page twice.
 */
static enum guest_unwind_end guest_unwind_regs(struct guest_unwind_state *state, u64 regs,
					       bool from_user)
{
	static const u16 offsets[] = {
		LINUX_REGS_X29, LINUX_REGS_SP, LINUX_REGS_PC, LINUX_REGS_PSTATE,
	};
	u64 saved[ARRAY_SIZE(offsets)], fp, sp, pc, pstate;
	enum guest_unwind_end end;
	unsigned int i;

	if (!IS_ALIGNED(regs, 16))
		return UNWIND_END_UNALIGNED;
	if (regs < state->stack.high)
		return UNWIND_END_BACKWARDS;

	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		end = guest_unwind_read(state, regs + offsets[i], &saved[i]);
		if (end)
			return end;
	}
	fp = saved[0];
	sp = saved[1];
	pc = saved[2];
	pstate = saved[3];

	/* Zero in kernel threads that were never in user mode. */
	if (!pc)
		return UNWIND_END_LAST;
	if (!guest_canonical(state, pc))
		return UNWIND_END_NONCANONICAL;
	if (pstate & GENMASK_ULL(63, 36))
		return UNWIND_END_UNALIGNED;

	if (from_user)
		return guest_check_user(pc, pstate) ?:
		       guest_unwind_user(state, pc, sp, fp, pstate);

	/* The kernel was interrupted.  Its frames lie above @regs, or on another stack. */
	if ((pstate & PSR_MODE_MASK) != PSR_MODE_EL1h)
		return UNWIND_END_UNALIGNED;

	state->stack.high = regs + LINUX_REGS_SIZE;
	state->fp = fp;
	return guest_unwind_store(state, pc);
}

/*
 * Both words of the frame record at @frame are zero: it is the outermost record, or the next
 * word is a type.  Linux before 6.13 has no type.
 */
static enum guest_unwind_end guest_unwind_meta(struct guest_unwind_state *state, u64 frame)
{
	enum guest_unwind_end end;
	u64 type;

	if (state->user || frame < LINUX_REGS_RECORD_6_12 || frame > U64_MAX - 3 * sizeof(u64))
		return UNWIND_END_LAST;

	if (guest_unwind_read(state, frame + 2 * sizeof(u64), &type))
		return UNWIND_END_LAST;

	switch (type) {
	case LINUX_RECORD_REGS:
		return guest_unwind_regs(state, frame - LINUX_REGS_RECORD, false);
	case LINUX_RECORD_FINAL:
		end = guest_unwind_regs(state, frame - LINUX_REGS_RECORD, true);
		break;
	default:
		end = guest_unwind_regs(state, frame - LINUX_REGS_RECORD_6_12, true);
		break;
	}

	/* If these are not user mode's registers, ignore them: this is the outermost record. */
	return state->user ? end : UNWIND_END_LAST;
}

/* Find one more entry, or return why there is none. */
static enum guest_unwind_end guest_unwind_next(struct guest_unwind_state *state)
{
	u64 frame = guest_untag(state, state->fp), next_fp, ra;
	enum guest_unwind_end end;

	/* A kernel in the upper half has its stacks there, too. */
	if (!state->user && is_upper_half(state->ips[state->nr - 1]) && !is_upper_half(frame))
		return guest_unwind_edge(state);

	if (!state->fp)
		return UNWIND_END_LAST;

	if (!IS_ALIGNED(frame, sizeof(u64)))
		return UNWIND_END_UNALIGNED;

	end = guest_unwind_step(state, frame);
	if (end)
		return end;
	end = guest_unwind_read(state, frame, &next_fp);
	if (end)
		return end;
	end = guest_unwind_read(state, frame + sizeof(u64), &ra);
	if (end)
		return end;

	if (!next_fp && !ra)
		return guest_unwind_meta(state, frame);

	ra = guest_strip_pac(state, ra);
	if (!ra)
		return UNWIND_END_LAST;
	if (!guest_canonical(state, ra))
		return UNWIND_END_NONCANONICAL;

	state->fp = next_fp;
	state->stack.high = frame + 2 * sizeof(u64);
	return guest_unwind_store(state, ra);
}

/* Return the guest's stack pointer. */
static u64 guest_unwind_sp(struct kvm_vcpu *vcpu)
{
	if ((*vcpu_cpsr(vcpu) & PSR_MODE_MASK) != PSR_MODE_EL1h)
		return vcpu_gp_regs(vcpu)->sp;

	/* Preemption is harmless: when this continues, the registers are on the CPU again. */
	return vcpu_get_flag(vcpu, SYSREGS_ON_CPU) ? read_sysreg(sp_el1) :
						     __vcpu_sys_reg(vcpu, SP_EL1);
}

static void guest_unwind_start(struct guest_unwind_state *state)
{
	struct kvm_vcpu *vcpu = state->vcpu;

	state->tcr = vcpu_read_sys_reg(vcpu, TCR_EL1);
	state->sctlr = vcpu_read_sys_reg(vcpu, SCTLR_EL1);
	state->be = kvm_vcpu_is_be(vcpu);
	state->fp = vcpu_get_reg(vcpu, 29);
	state->stack.low = guest_untag(state, guest_unwind_sp(vcpu));
	state->stack.high = state->stack.low;
}

static enum guest_unwind_end guest_unwind(struct guest_unwind_state *state)
{
	enum guest_unwind_end end = UNWIND_CONTINUE;

	guard(srcu)(&state->vcpu->kvm->srcu);

	guest_unwind_start(state);
	while (!end && state->nr < state->max)
		end = guest_unwind_next(state);
	guest_peek_unmap(state->piece);

	return end ?: UNWIND_END_DEPTH;
}

/*
 * Return true if the host can see the guest's stack, and is allowed to read it.
 *
 * In protected mode, it can't.  The hypervisor takes the memory of protected VMs from the host.
 * Of the registers of other VMs, it copies only PC and PSTATE to the host at each exit; the
 * host must ask for the others.
 *
 * Guests with nested virtualization are not supported: they have more translation regimes,
 * and their own guests have a second stage.
 *
 * Inlined, as each PMI calls this.
 */
static __always_inline bool guest_shows_stack(struct kvm_vcpu *vcpu)
{
	enum kvm_callchain_policy policy = READ_ONCE(vcpu->kvm->callchain_policy);
	int level = READ_ONCE(sysctl_perf_event_guest_callchain);

	if (is_protected_kvm_enabled() || vcpu_has_nv(vcpu))
		return false;

	if (level == PERF_GUEST_CALLCHAIN_UNLESS_FORBIDDEN)
		return policy != KVM_CALLCHAIN_FORBIDDEN;

	return level == PERF_GUEST_CALLCHAIN_IF_ALLOWED && policy == KVM_CALLCHAIN_ALLOWED;
}

/*
 * Return true if the vCPU's thread makes a walk that a PMI has requested: the registers are
 * those of the exit, and the walk may sleep.  Handlers of IRQs, NMIs and tracepoints may
 * interrupt that walk, but they are not preemptible.
 */
static bool guest_may_walk(struct kvm_vcpu *vcpu)
{
	return vcpu->arch.callchain_phase == CALLCHAIN_WALK && preemptible();
}

/*
 * Store the guest's instruction pointer and the return addresses on its stack,
 * innermost first, at most @max of them, in @ips; return how many.  The first
 * @nr_kernel are the guest kernel's.  The guest's memory is never written.  It
 * is read with the rights of the code whose frames are walked.
 *
 * Only deferred walks read the stack; walks in the PMI find only the IP.  perf takes
 * each PMI for the guest's while a vCPU is loaded.  Find nothing if the PMI doesn't
 * come right after an exit: the vCPU's registers may be partly on the CPU and partly
 * in memory, or KVM may be changing them.
 *
 * @max bounds the work.  An entry takes at most seven words and four walks of the
 * page tables.
 */
unsigned int kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max,
				      unsigned int *nr_kernel)
{
	enum guest_unwind_end end = UNWIND_END_DEPTH;
	struct guest_unwind_state state = {
		.vcpu	= vcpu,
		.ips	= ips,
		.max	= max,
	};

	*nr_kernel = 0;
	if (!guest_shows_stack(vcpu) || !max ||
	    READ_ONCE(vcpu->arch.callchain_phase) == CALLCHAIN_CLOSED)
		return 0;

	state.user = !vcpu_mode_priv(vcpu);
	if (!guest_unwind_store(&state, *vcpu_pc(vcpu)) && max > 1 && guest_may_walk(vcpu))
		end = vcpu_mode_is_32bit(vcpu) ? UNWIND_END_LAST : guest_unwind(&state);

	/* Count deferred walks only.  The vCPU's thread makes them one at a time: no atomics. */
	if (guest_may_walk(vcpu)) {
		static_assert(ARRAY_SIZE(vcpu->stat.callchain_ends) == UNWIND_END_NO_MEMORY);
		vcpu->stat.callchain_walks++;
		vcpu->stat.callchain_frames += state.nr;
		vcpu->stat.callchain_ends[end - 1]++;
	}

	*nr_kernel = state.nr_kernel;
	return state.nr;
}

/*
 * Return the vCPU's request for a deferred walk of the guest's stack, or NULL if there
 * must be none.
 *
 * Only one PMI at a time may write the request.  So refuse a PMI that has interrupted the
 * handler of another interrupt.  Also refuse tracepoints that are hit outside of interrupt
 * handlers: a PMI may come meanwhile.
 */
struct perf_guest_callchain_request *kvm_arch_vcpu_callchain_request(struct kvm_vcpu *vcpu)
{
	struct perf_guest_callchain_request *request = &vcpu->arch.callchain_request;

	if (READ_ONCE(vcpu->arch.callchain_phase) != CALLCHAIN_REQUEST ||
	    hardirq_count() != HARDIRQ_OFFSET || !guest_shows_stack(vcpu))
		return NULL;

	request->guest_state = PERF_GUEST_ACTIVE;
	if (!vcpu_mode_priv(vcpu))
		request->guest_state |= PERF_GUEST_USER;
	request->guest_ip = *vcpu_pc(vcpu);
	return request;
}

/* Dumps are for kernels without frame pointers.  Kernels of arm64 have frame records. */
bool kvm_arch_vcpu_stack_begin(struct kvm_vcpu *vcpu, struct perf_guest_stack *stack,
			       unsigned int size)
{
	return false;
}

void kvm_arch_vcpu_stack_end(struct kvm_vcpu *vcpu, struct perf_guest_stack *stack)
{
}
