// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk the stack of a guest, by its frame pointers, through its page tables.
 *
 * The guest writes everything that a walk follows, and may change it during
 * the walk: check each step, and give each loop a bound that the guest can't
 * change.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kvm_host.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <linux/uaccess.h>

#include <asm/segment.h>

#include "mmu.h"
#include "regs.h"
#include "stacktrace.h"
#include "trace.h"
#include "x86.h"

/*
 * A Linux guest saves struct pt_regs on its kernel's stack at interrupts, exceptions and
 * system calls.  These are the parts that matter here; offsets and sizes are in bytes.  They
 * are not taken from the host's headers, as the guest's kernel may be a 32-bit one.
 *
 * At interrupts and exceptions, kernels with frame pointers encode a pointer to pt_regs in
 * the frame pointer (ENCODE_FRAME_POINTER): 64-bit kernels add one to the pointer, 32-bit
 * kernels clear its topmost bit.
 */
#define LINUX_PT_REGS_64_SIZE	168
#define LINUX_PT_REGS_32_SIZE	68

/*
 * A task's stack in a 64-bit kernel ends at a multiple of this.  The pt_regs that were
 * saved when the task left user mode are at its end.  Kernels that are built for FRED
 * leave 16 bytes free after them.
 */
#define LINUX_THREAD_SIZE_64	16384
#define LINUX_FRED_RESERVED	16

/* CS of 32-bit programs on a 64-bit kernel, and the privilege level of user mode. */
#define LINUX_USER32_CS		0x23
#define LINUX_USER_RPL		3

/* Parts of pt_regs, by ascending address. */
enum { SAVED_BP, SAVED_IP, SAVED_CS, SAVED_FLAGS, SAVED_SP, NR_SAVED };

struct entry_frame {
	u8 offset[NR_SAVED];
	u8 size;
};

static const struct entry_frame entry_frame_64 = {
	.offset = { [SAVED_BP] = 32, [SAVED_IP] = 128, [SAVED_CS] = 136, [SAVED_FLAGS] = 144,
		    [SAVED_SP] = 152 },
	.size = LINUX_PT_REGS_64_SIZE,
};

static const struct entry_frame entry_frame_32 = {
	.offset = { [SAVED_BP] = 20, [SAVED_IP] = 48, [SAVED_CS] = 52, [SAVED_FLAGS] = 56,
		    [SAVED_SP] = 60 },
	.size = LINUX_PT_REGS_32_SIZE,
};

/*
 * The state of a walk of a guest's stack:
 *
 * @vcpu:	the vCPU whose stack is walked
 * @ips:	entries that were found so far, linear addresses
 * @nr:		how many entries were found
 * @max:	how many entries there is room for
 * @nr_kernel:	how many of the entries found belong to the guest's kernel
 * @fp:		frame pointer that leads to the caller's frame, relative to @ss_base
 * @sp:		lowest linear address at which the caller's frame may lie
 * @cs_base:	where the code segment begins; zero in 64-bit code
 * @ss_base:	where the stack segment begins; zero in 64-bit code
 * @access:	PFERR_USER_MASK to read with the rights of the guest's user mode
 * @word:	bytes in the guest's words: 8, 4, or 2
 * @va_bits:	width of the guest's virtual addresses
 * @user:	the walk is not, or no longer, in the guest's kernel
 * @page_gva:	guest virtual address of the stack page that was translated last
 * @page_hva:	where the VMM has mapped that page; NULL if there is none
 * @end:	whether the walk has ended, and why
 * @nr_reads:	how many reads of words of the guest's stack were tried
 * @nr_walks:	how many translations of pages of the stack were tried
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

/* Return the highest address.  Outside of 64-bit code, addresses wrap around after it. */
static u64 guest_max_addr(const struct guest_unwind_state *state)
{
	return state->word == 8 ? U64_MAX : U32_MAX;
}

/* Return true if @nr bytes at @gva end below the highest address. */
static bool guest_fits(const struct guest_unwind_state *state, gva_t gva, u8 nr)
{
	return gva <= guest_max_addr(state) - nr;
}

static bool guest_canonical(const struct guest_unwind_state *state, u64 addr)
{
	return state->word < 8 || __is_canonical_address(addr, state->va_bits);
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
 * Return true if the host's page tables map @hva to normal memory.  Refuse special
 * entries and P2PDMA pages, as GUP does: a memslot may map a device's registers, where
 * reads have side effects, or a device's memory.  P2PDMA pages are mapped by PTEs only,
 * see p2pmem_alloc_mmap().  IRQs are off to keep the tables from being freed, and each
 * entry is read once, as in host_pfn_mapping_level().
 */
static bool host_maps_memory(struct mm_struct *mm, unsigned long hva)
{
	unsigned long flags;
	bool normal = false;
	pgd_t pgd;
	p4d_t p4d;
	pud_t pud;
	pmd_t pmd;
	pte_t pte;

	local_irq_save(flags);

	pgd = READ_ONCE(*pgd_offset(mm, hva));
	if (!pgd_present(pgd))
		goto out;

	p4d = READ_ONCE(*p4d_offset(&pgd, hva));
	if (!p4d_present(p4d))
		goto out;

	pud = READ_ONCE(*pud_offset(&p4d, hva));
	if (!pud_present(pud) || pud_leaf(pud)) {
		normal = pud_present(pud) && !pud_special(pud);
		goto out;
	}

	pmd = READ_ONCE(*pmd_offset(&pud, hva));
	if (!pmd_present(pmd) || pmd_leaf(pmd)) {
		normal = pmd_present(pmd) && !pmd_special(pmd);
		goto out;
	}

	pte = READ_ONCE(*pte_offset_kernel(&pmd, hva));
	normal = pte_present(pte) && !pte_special(pte) && !is_pci_p2pdma_page(pte_page(pte));
out:
	local_irq_restore(flags);
	return normal;
}

/*
 * Return true if there is normal memory at @hva.  A deferred walk may sleep: it also gets
 * memory that was swapped out, see kvm_get_swapped_page().
 */
static bool guest_unwind_is_memory(struct kvm_vcpu *vcpu, unsigned long hva)
{
	struct page *page;

	if (host_maps_memory(vcpu->kvm->mm, hva))
		return true;

	/* No walk can sleep while KVM handles an IRQ or NMI that hit the guest. */
	if (vcpu->arch.handling_intr_from_guest)
		return false;

	pagefault_enable();
	page = kvm_get_swapped_page(hva);
	pagefault_disable();
	if (!page)
		return false;

	put_page(page);
	return true;
}

/* Translate the page that @gva lies in, unless it is the page that was translated last. */
static enum guest_unwind_end guest_unwind_map(struct guest_unwind_state *state, gva_t gva)
{
	struct kvm_vcpu *vcpu = state->vcpu;
	struct kvm_memory_slot *slot;
	unsigned long hva;
	gpa_t gpa;

	if (state->page_hva && state->page_gva == (gva & PAGE_MASK))
		return UNWIND_CONTINUE;

	/* Translation ignores the bits that make an address non-canonical. */
	if (!guest_canonical(state, gva))
		return UNWIND_END_NONCANONICAL;

	state->nr_walks++;
	gpa = kvm_mmu_gva_to_gpa_peek(vcpu, gva & PAGE_MASK, state->access);
	if (gpa == INVALID_GPA)
		return UNWIND_END_UNMAPPED;

	/* KVM's own memslots, e.g. for the APIC, are not the guest's memory. */
	slot = kvm_vcpu_gfn_to_memslot(vcpu, gpa_to_gfn(gpa));
	if (!kvm_is_visible_memslot(slot))
		return UNWIND_END_NO_MEMORY;

	hva = __gfn_to_hva_memslot(slot, gpa_to_gfn(gpa));
	if (!guest_unwind_is_memory(vcpu, hva))
		return UNWIND_END_NO_MEMORY;

	state->page_gva = gva & PAGE_MASK;
	state->page_hva = (const void __user *)hva;
	return UNWIND_CONTINUE;
}

/*
 * Read one word.  Words are aligned, so that each lies on one page; a frame may
 * lie on two.  access_ok() isn't needed: when KVM adds a memslot, it checks that
 * the memslot lies in user memory.  The guest chooses @gva; __get_user() has a
 * barrier against speculation past the checks of @gva.
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
	return r ? UNWIND_END_NO_MEMORY : UNWIND_CONTINUE;
}

/* If state->fp encodes a pointer to pt_regs (ENCODE_FRAME_POINTER), store it, return true. */
static bool guest_unwind_is_entry(const struct guest_unwind_state *state, gva_t *regs)
{
	/* Linux has flat segments. */
	if (state->user || state->cs_base || state->ss_base)
		return false;

	switch (state->word) {
	case 8:
		*regs = state->fp - 1;
		return IS_ALIGNED(*regs, 8);
	case 4:
		/* Kernels whose stacks lie in the lower half can't encode a pointer like this. */
		*regs = state->fp | BIT(31);
		return *regs != state->fp && (state->sp & BIT(31)) && IS_ALIGNED(*regs, 4);
	default:
		return false;
	}
}

/* Return UNWIND_CONTINUE if @word is plausible for register @which of an entry frame. */
static enum guest_unwind_end
guest_unwind_check_saved_reg(const struct guest_unwind_state *state, unsigned int which, u64 word)
{
	switch (which) {
	case SAVED_IP:
		/* Zero in kernel threads that were never in user mode. */
		if (!word)
			return UNWIND_END_LAST;
		return guest_canonical(state, word) ? UNWIND_CONTINUE : UNWIND_END_NONCANONICAL;
	case SAVED_CS:
		/* CS is never a null selector, i.e. index 0 of the GDT with any RPL. */
		return (word & U16_MAX) > SEGMENT_RPL_MASK ? UNWIND_CONTINUE :
							     UNWIND_END_UNALIGNED;
	case SAVED_FLAGS:
		/*
		 * In RFLAGS, bit 1 is always set; bits 3, 5, 15, and 22 and up never are.
		 * Code that runs with VM set can't be walked.
		 */
		return (word & (GENMASK_ULL(63, 22) | X86_EFLAGS_VM | BIT(15) | BIT(5) | BIT(3) |
				X86_EFLAGS_FIXED)) == X86_EFLAGS_FIXED ? UNWIND_CONTINUE :
									 UNWIND_END_UNALIGNED;
	default:
		return UNWIND_CONTINUE;
	}
}

/*
 * Continue with the registers that were saved at @regs when code was interrupted.
 * Check that they are plausible: @regs may be a guess, as system calls don't mark
 * their frame, and any guest may have an odd frame pointer.  Read in ascending
 * order, so as not to translate a page twice.
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
			end = guest_unwind_check_saved_reg(state, i, saved[i]);
		if (end)
			return end;
	}
	cs = saved[SAVED_CS];
	sp = saved[SAVED_SP];

	switch (cs & SEGMENT_RPL_MASK) {
	case 0:
		/* The kernel was interrupted: its frames must lie above @regs. */
		if (sp < regs + frame->size)
			return UNWIND_END_BACKWARDS;
		break;
	case LINUX_USER_RPL:
		/* With 64-bit kernels, user mode has the lower half of the addresses. */
		if ((s64)saved[SAVED_IP] < 0)
			return UNWIND_END_NONCANONICAL;
		/* Switch to user mode's stack, once, and read it with user mode's rights. */
		state->user = true;
		state->access = PFERR_USER_MASK;
		state->page_hva = NULL;
		if (cs == LINUX_USER32_CS)
			state->word = 4;
		break;
	default:
		return UNWIND_END_UNALIGNED;
	}

	/* 32-bit code leaves the upper halves of registers undefined. */
	state->fp = saved[SAVED_BP] & guest_max_addr(state);
	state->sp = sp & guest_max_addr(state);
	return guest_unwind_store(state, saved[SAVED_IP] & guest_max_addr(state));
}

/*
 * At a system call without FRED, a 64-bit kernel saves pt_regs and clears the frame pointer.
 * The frame of the first function that it calls lies right below pt_regs.  Continue with the
 * registers in pt_regs if they are user mode's.
 */
static enum guest_unwind_end guest_unwind_outermost(struct guest_unwind_state *state)
{
	unsigned int nr = state->nr;
	enum guest_unwind_end end;

	/* By the ABI, a frame pointer of zero marks the outermost frame. */
	if (state->user || state->word < 8 || !IS_ALIGNED(state->sp, 8))
		return UNWIND_END_LAST;

	end = guest_unwind_entry(state, state->sp);
	if (state->user)
		return end;

	/* These aren't user mode's registers: discard the entry that they may have added. */
	state->nr = nr;
	state->nr_kernel = nr;
	return UNWIND_END_LAST;
}

/*
 * @top is the end of the stack that @sp lies on.  If user mode's registers lie right below
 * @top, or below the 16 bytes that are left free for FRED, continue with them and return true.
 */
static bool guest_unwind_task_regs(struct guest_unwind_state *state, u64 sp, gva_t top)
{
	unsigned int nr = state->nr, padding;
	gva_t regs;

	for (padding = 0; padding <= LINUX_FRED_RESERVED; padding += LINUX_FRED_RESERVED) {
		regs = top - LINUX_PT_REGS_64_SIZE - padding;
		state->sp = sp;
		if (!guest_unwind_entry(state, regs) && state->user) {
			state->end = UNWIND_CONTINUE;
			return true;
		}

		/* If these are not user mode's registers, discard the IP that they gave. */
		state->nr = nr;
		state->nr_kernel = nr;
		if (state->user)
			return false;
	}

	return false;
}

static noinline bool guest_is_syscall_context(const struct guest_unwind_state *state)
{
	struct kvm_vcpu *vcpu = state->vcpu;
	u64 ip = kvm_rcx_read_raw(vcpu);

	return !state->user && (s64)ip >= 0 &&
	       !guest_unwind_check_saved_reg(state, SAVED_IP, ip) &&
	       !guest_unwind_check_saved_reg(state, SAVED_FLAGS, kvm_r11_read_raw(vcpu));
}

/*
 * Return true if the guest is at the first or the last instructions of a system call: IP is
 * in the kernel's half of the addresses, the upper one, but SP is in the lower half.  SP is user
 * mode's, or, with page-table isolation, has the value of CR3.  RCX and R11 have user mode's IP
 * and flags then: SYSCALL puts them there, and SYSRET takes them from there.
 */
static __always_inline bool guest_has_user_stack(const struct guest_unwind_state *state)
{
	/* Leave out 32-bit programs, whose stack lies below 4 GiB: EBP is a syscall argument. */
	return unlikely((s64)state->ips[0] < 0) && unlikely((s64)state->sp >= 0) &&
	       state->sp > U32_MAX && guest_is_syscall_context(state);
}

/*
 * Return true if the guest enters or leaves a system call while its kernel's stack is nearly
 * empty: between @sp, the stack pointer, and the end of the stack there is less room than user
 * mode's registers and FRED's 16 bytes take.  RCX and R11 have user mode's IP and flags then.
 * The stack is the task's, or the one that the kernel uses while it switches page tables.
 */
static bool guest_is_syscall_edge(const struct guest_unwind_state *state, u64 sp)
{
	return state->nr == 1 &&
	       PAGE_ALIGN(sp) - sp < LINUX_PT_REGS_64_SIZE + LINUX_FRED_RESERVED &&
	       (kvm_r11_read_raw(state->vcpu) & X86_EFLAGS_IF) && guest_is_syscall_context(state);
}

/* If guest_has_user_stack() or guest_is_syscall_edge(), continue with user mode's IP in RCX. */
static void guest_unwind_syscall(struct guest_unwind_state *state)
{
	state->user = true;
	state->access = PFERR_USER_MASK;
	state->page_hva = NULL;
	state->end = guest_unwind_store(state, kvm_rcx_read_raw(state->vcpu));
}

/*
 * If the stack that state->sp lies on is an IRQ's or an exception's, set *@sp to the stack
 * pointer from before the switch to that stack, and return true.  @end is the end of the stack,
 * and state->end says why it ends there: in Linux, an unmapped page follows the stacks of
 * exceptions and, with CONFIG_VMAP_STACK, those of IRQs.  The last word on an IRQ's stack is
 * the stack pointer that was saved; on an exception's stack, SS follows it.  With FRED, more
 * words follow SS, and no stack pointer is found.  As a rule, none is found on a task's stack
 * either: its last word is user mode's SS, zero, or a word that FRED pushes.
 */
static bool guest_stack_interrupted(struct guest_unwind_state *state, gva_t end, u64 *sp)
{
	u64 word;

	if (state->user || state->word < 8 || (s64)state->sp >= 0 ||
	    state->end != UNWIND_END_UNMAPPED ||
	    end - state->sp < 2 * sizeof(u64) || guest_unwind_read(state, end - sizeof(u64), &word))
		return false;

	/* If this is SS, the stack pointer is the word before it. */
	if (word <= U16_MAX && guest_unwind_read(state, end - 2 * sizeof(u64), &word))
		return false;

	/* Kernels live in the upper half. */
	if (!IS_ALIGNED(word, sizeof(u64)) || (s64)word >= 0 || !guest_canonical(state, word) ||
	    word - state->sp < end - state->sp)
		return false;

	*sp = word;
	return true;
}

/*
 * Return the end of the stack that @sp lies on: the address where a task's stack would end,
 * or the first address from @sp up that can't be read.  Set state->end to UNWIND_CONTINUE in
 * the first case, and to the reason why the address can't be read in the second.
 */
static gva_t guest_stack_end(struct guest_unwind_state *state, u64 sp)
{
	/* If the stack is empty, @sp is its end. */
	gva_t top = ((sp - 1) | (LINUX_THREAD_SIZE_64 - 1)) + 1, gva;

	for (gva = sp; gva != top; gva = (gva & PAGE_MASK) + PAGE_SIZE) {
		state->end = guest_unwind_map(state, gva);
		if (state->end)
			return gva;
	}

	state->end = UNWIND_CONTINUE;
	return top;
}

/*
 * Find user mode's registers on the kernel's stack, or on the stack that an IRQ or exception
 * interrupted; at a system call's entry and exit, take them from RCX and RBP.  Return true if
 * the walk can continue in user mode.
 */
static noinline bool guest_unwind_kernel_stack(struct guest_unwind_state *state)
{
	enum guest_unwind_end why = state->end;
	u64 sp = kvm_rsp_read(state->vcpu);
	bool linked;
	gva_t end;

	/* Only a stack in the upper half can be a Linux kernel's; don't search others. */
	if ((s64)sp >= 0)
		return false;

	if (guest_is_syscall_edge(state, sp)) {
		guest_unwind_syscall(state);
		/* RBP is user mode's.  guest_unwind_outermost() may have changed state->fp. */
		state->fp = kvm_rbp_read_raw(state->vcpu);
		/* User mode's SP is unknown here: the first frame may lie anywhere. */
		state->sp = 0;
		return true;
	}

	/* Follow at most one link, from an IRQ's or exception's stack to another one. */
	for (linked = false; ; linked = true) {
		end = guest_stack_end(state, sp);
		if (!state->end) {
			if (guest_unwind_task_regs(state, sp, end))
				return true;
			/* An IRQ's stack may also end here, below an unmapped page. */
			if (!linked && !state->user)
				state->end = guest_unwind_map(state, end);
		}

		state->sp = sp;
		if (linked || !guest_stack_interrupted(state, end, &sp))
			break;
	}

	state->end = why;
	return false;
}

/*
 * If frame pointers have not led to the outermost frame, continue in user mode with the
 * registers that are saved on the task's stack: kernels that are built without frame pointers
 * use RBP for something else, so their chains may end anywhere.  Return true if there is
 * more to walk.
 */
static bool guest_unwind_task(struct guest_unwind_state *state)
{
	/* Test first for the end that most walks have. */
	if ((state->end == UNWIND_END_LAST && state->nr > 1) ||
	    state->end == UNWIND_END_DEPTH || state->nr == state->max || state->user ||
	    state->word < 8)
		return false;

	return guest_unwind_kernel_stack(state);
}

/* Read a frame at any aligned address, with words of any size. */
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
	return guest_unwind_store(state, (state->cs_base + ra) & guest_max_addr(state));
}

/*
 * Return a limit for guest_unwind_page(), which only reads frames of @gva's page that begin
 * below this limit.  In 64-bit code, such a frame ends before the page does, so that the
 * address after the frame doesn't wrap.
 */
static u64 guest_frames_end(gva_t gva)
{
	return (gva & PAGE_MASK) + PAGE_SIZE - 2 * sizeof(u64);
}

/*
 * Return the address of the frame at @fp on the page at @page_hva.  The guest chooses
 * @fp, and under speculation the caller's checks don't bound it.  The mask keeps the
 * frame's first word, which becomes the next @fp, on the page.  Hide @fp from the
 * compiler, which may drop the mask because of these checks.
 */
static __always_inline const u64 __user *guest_frame_nospec(const void __user *page_hva, u64 fp)
{
	OPTIMIZER_HIDE_VAR(fp);
	return page_hva + (fp & (PAGE_SIZE - sizeof(u64)));
}

/*
 * Fast path: read aligned, ascending 64-bit frames on one page, in one window of
 * user access.  The checks are those of guest_unwind_next() and of
 * guest_unwind_frame().
 */
static noinline enum guest_unwind_end guest_unwind_page(struct guest_unwind_state *state)
{
	u64 fp = state->fp, sp = state->sp, frames_end = guest_frames_end(fp);
	u64 next_fp, ra, half = BIT_ULL(state->va_bits - 1);
	u64 *const first = &state->ips[state->nr], *ip = first;
	u64 *const ip_end = &state->ips[state->max];
	const void __user *page_hva;
	const u64 __user *frame;
	enum guest_unwind_end end;

	end = guest_unwind_map(state, fp);
	if (end)
		return end;

	page_hva = state->page_hva;

	/* Memslots lie in user memory, so this can't fail. */
	if (!user_access_begin(page_hva, PAGE_SIZE))
		return UNWIND_END_NO_MEMORY;

	do {
		frame = guest_frame_nospec(page_hva, fp);
		unsafe_get_user(next_fp, &frame[0], fault);
		unsafe_get_user(ra, &frame[1], fault);

		if (!ra) {
			end = UNWIND_END_LAST;
			break;
		}
		/* Canonical addresses lie in [-half, half). */
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
		/* Without likely(), gcc computes all conditions first, and then joins them. */
	} while (likely(ip < ip_end) && likely(fp >= sp) && likely(fp < frames_end) &&
		 IS_ALIGNED(fp, 8));

	/* Count the frame that has ended the walk. */
	if (end)
		state->nr_reads += 2;
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

/* Find more entries.  Return why the walk ends, or UNWIND_CONTINUE if it doesn't. */
static enum guest_unwind_end guest_unwind_next(struct guest_unwind_state *state)
{
	gva_t frame;

	if (!state->fp)
		return guest_unwind_outermost(state);

	if (state->word == 8 && state->fp >= state->sp &&
	    state->fp < guest_frames_end(state->fp) && IS_ALIGNED(state->fp, 8))
		return guest_unwind_page(state);

	if (guest_unwind_is_entry(state, &frame))
		return guest_unwind_entry(state, frame);

	frame = (state->ss_base + state->fp) & guest_max_addr(state);
	if (!IS_ALIGNED(frame, state->word))
		return UNWIND_END_UNALIGNED;

	/* Each frame must lie above the last one, so that there are no cycles. */
	if (frame < state->sp || !guest_fits(state, frame, 2 * state->word))
		return UNWIND_END_BACKWARDS;

	return guest_unwind_frame(state, frame);
}

static __always_inline void guest_unwind_start(struct guest_unwind_state *state,
					       struct kvm_vcpu *vcpu, u64 *ips, unsigned int max)
{
	int cpl = kvm_x86_call(get_cpl)(vcpu);
	int cs_db, cs_l;
	u64 ip;

	/* Set members one by one: clearing the struct takes more instructions. */
	state->vcpu = vcpu;
	state->ips = ips;
	state->nr = 1;
	state->max = max;
	state->nr_kernel = !cpl;
	state->cs_base = 0;
	state->ss_base = 0;
	/* Rings 1 and 2 aren't the kernel, but have its rights to memory. */
	state->user = cpl != 0;
	state->access = cpl == 3 ? PFERR_USER_MASK : 0;
	state->va_bits = vcpu_virt_addr_bits(vcpu);
	state->page_hva = NULL;
	state->end = UNWIND_CONTINUE;
	state->nr_reads = 0;
	state->nr_walks = 0;

	kvm_x86_call(get_cs_db_l_bits)(vcpu, &cs_db, &cs_l);
	if (is_long_mode(vcpu) && cs_l) {
		state->word = 8;
		ip = kvm_rip_read(vcpu);
		state->fp = kvm_rbp_read_raw(vcpu);
		state->sp = kvm_rsp_read(vcpu);
	} else {
		state->cs_base = kvm_get_segment_base(vcpu, VCPU_SREG_CS);
		state->ss_base = kvm_get_segment_base(vcpu, VCPU_SREG_SS);
		state->word = cs_db ? 4 : 2;
		ip = (state->cs_base + kvm_rip_read(vcpu)) & U32_MAX;
		state->fp = kvm_rbp_read_raw(vcpu) & GENMASK(state->word * 8 - 1, 0);
		state->sp = kvm_rsp_read(vcpu) & GENMASK(state->word * 8 - 1, 0);
		state->sp = (state->ss_base + state->sp) & guest_max_addr(state);
	}

	/* As guest_unwind_store(), but @nr and @nr_kernel are known: this is the first entry. */
	ips[0] = ip;
	if (unlikely(ip >= PERF_CONTEXT_MAX)) {
		state->nr = 0;
		state->nr_kernel = 0;
		state->end = UNWIND_END_DEPTH;
	}
}

/*
 * Return true if some of the guest's memory may be private: ciphertext to the host,
 * or not at the VMM's addresses that are in its memslots.
 */
static bool guest_memory_is_private(struct kvm_vcpu *vcpu)
{
	return kvm_arch_has_private_mem(vcpu->kvm) || kvm_x86_call(has_encrypted_mem)(vcpu);
}

/*
 * An NMI that hit the guest has interrupted neither a user of SRCU nor code that holds
 * a spinlock on this CPU: __srcu_read_lock() is safe here, whatever the flavor of SRCU.
 * In NMIs, srcu_read_lock() would warn, as it checks the flavor.
 */
static int guest_unwind_srcu_lock(struct kvm *kvm)
{
	return in_nmi() ? __srcu_read_lock(&kvm->srcu) : srcu_read_lock(&kvm->srcu);
}

static void guest_unwind_srcu_unlock(struct kvm *kvm, int idx)
{
	if (in_nmi())
		__srcu_read_unlock(&kvm->srcu, idx);
	else
		srcu_read_unlock(&kvm->srcu, idx);
}

/*
 * Protect memslots, and load the host's PKRU, until guest_memory_end(): walks read
 * the guest's stacks and page tables by user accesses.  Return the SRCU index.
 */
static int guest_memory_begin(struct kvm_vcpu *vcpu)
{
	/* KVM handles NMIs before it saves the guest's PKRU and loads the host's. */
	if (kvm_handling_nmi_from_guest(vcpu))
		kvm_load_host_pkru(vcpu);

	return guest_unwind_srcu_lock(vcpu->kvm);
}

static void guest_memory_end(struct kvm_vcpu *vcpu, int srcu_idx)
{
	guest_unwind_srcu_unlock(vcpu->kvm, srcu_idx);

	if (kvm_handling_nmi_from_guest(vcpu))
		kvm_load_guest_pkru(vcpu);
}

/* Return true if the host can see the guest's registers, and may read its stack. */
static __always_inline bool guest_shows_stack(struct kvm_vcpu *vcpu)
{
	enum kvm_callchain_policy policy = READ_ONCE(vcpu->kvm->callchain_policy);
	int level = READ_ONCE(sysctl_perf_event_guest_callchain);

	if (vcpu->arch.guest_state_protected)
		return false;

	if (likely(level == PERF_GUEST_CALLCHAIN_UNLESS_FORBIDDEN))
		return policy != KVM_CALLCHAIN_FORBIDDEN;

	return level == PERF_GUEST_CALLCHAIN_IF_ALLOWED && policy == KVM_CALLCHAIN_ALLOWED;
}

static void guest_unwind(struct guest_unwind_state *state)
{
	struct kvm_vcpu *vcpu = state->vcpu;
	int srcu_idx;

	if (guest_memory_is_private(vcpu)) {
		state->end = UNWIND_END_NO_MEMORY;
		return;
	}

	srcu_idx = guest_memory_begin(vcpu);
	pagefault_disable();
	/* Check this first: in this case, RBP leads to the program's frames. */
	if (guest_has_user_stack(state))
		guest_unwind_syscall(state);
	do {
		while (!state->end && state->nr < state->max)
			state->end = guest_unwind_next(state);
	} while (guest_unwind_task(state));
	pagefault_enable();
	guest_memory_end(vcpu, srcu_idx);
}

/*
 * Store the guest's instruction pointer and the return addresses on its stack,
 * innermost first, at most @max of them, in @ips; return how many.  The first
 * @nr_kernel are the guest kernel's.  Addresses are linear, i.e. segment bases are
 * added.  The guest's memory is never written.  It is read with the rights of the
 * code whose frames are walked.
 *
 * @max bounds the work.  An entry takes at most five words and two walks of the page
 * tables: a frame has two words, and five registers of an entry frame are read.  The
 * search for user mode's registers, done once, takes at most 22 words and nine walks.
 *
 * Called while KVM handles an IRQ or NMI that hit the guest, where it may read registers
 * into its cache, see kvm_assert_register_caching_allowed(); or in the vCPU's thread,
 * before the exit is handled.
 */
unsigned int kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max,
				      unsigned int *nr_kernel)
{
	struct guest_unwind_state state __uninitialized;

	*nr_kernel = 0;
	if (!guest_shows_stack(vcpu) || !max)
		return 0;

	guest_unwind_start(&state, vcpu, ips, max);
	if (!state.end && max > 1)
		guest_unwind(&state);
	if (!state.end)
		state.end = UNWIND_END_DEPTH;

	/* No need for atomics: only the vCPU's thread and its interrupts walk, one at a time. */
	static_assert(ARRAY_SIZE(vcpu->stat.callchain_ends) == UNWIND_END_NO_MEMORY);
	vcpu->stat.callchain_walks++;
	vcpu->stat.callchain_frames += state.nr;
	vcpu->stat.callchain_ends[state.end - 1]++;

	trace_kvm_stack_walk(vcpu->vcpu_id, state.nr, state.nr_reads, state.nr_walks, state.end);
	*nr_kernel = state.nr_kernel;
	return state.nr;
}

/* Find the pages of a piece of the guest's stack; return how many bytes were found. */
static unsigned int guest_stack_map(struct guest_unwind_state *state,
				    struct perf_guest_stack *stack, gva_t gva, unsigned int size)
{
	unsigned int len, found = 0;

	/* Stacks don't wrap around. */
	if (size - 1 > guest_max_addr(state) - gva)
		size = guest_max_addr(state) - gva + 1;

	while (found < size && stack->nr_pages < ARRAY_SIZE(stack->pages)) {
		state->end = guest_unwind_map(state, gva);
		if (state->end)
			break;

		len = min_t(unsigned int, size - found, PAGE_SIZE - offset_in_page(gva));
		stack->pages[stack->nr_pages].start = state->page_hva + offset_in_page(gva);
		stack->pages[stack->nr_pages].size = len;
		stack->nr_pages++;
		gva += len;
		found += len;
	}

	return found;
}

/*
 * Find at most @size bytes of the guest's stack, from the stack pointer up, and the registers
 * that an unwinder needs.  Memslots stay until kvm_arch_vcpu_stack_end(), but the VMM's
 * mappings may change after this function has found normal memory there: a copy must end at
 * a page that is missing, and not fault it in.  Return false if the host can't see the guest's
 * registers, or must not read its stack.
 *
 * Called in the same contexts as kvm_arch_vcpu_stack_walk().
 */
bool kvm_arch_vcpu_stack_begin(struct kvm_vcpu *vcpu, struct perf_guest_stack *stack,
			       unsigned int size)
{
	struct perf_guest_stack_info *info = &stack->info;
	struct guest_unwind_state state __uninitialized;
	gva_t end;

	if (!guest_shows_stack(vcpu))
		return false;

	guest_unwind_start(&state, vcpu, &info->ip, 1);
	info->ip = kvm_get_linear_rip(vcpu);
	info->abi = state.word == 8 ? PERF_SAMPLE_REGS_ABI_64 : PERF_SAMPLE_REGS_ABI_32;
	info->sp = state.sp;
	info->fp = state.fp;
	info->flags = kvm_get_rflags(vcpu);
	info->root = kvm_read_cr3(vcpu);
	info->pieces[0].addr = state.sp;
	info->pieces[0].size = 0;
	info->pieces[1].addr = 0;
	info->pieces[1].size = 0;
	stack->nr_pages = 0;

	stack->priv = guest_memory_begin(vcpu);
	/* If the kernel runs on a program's stack, don't dump it: it has no kernel frames. */
	if (guest_memory_is_private(vcpu) || guest_has_user_stack(&state))
		return true;

	pagefault_disable();
	info->pieces[0].size = guest_stack_map(&state, stack, state.sp, size);
	end = state.sp + info->pieces[0].size;
	if (info->pieces[0].size < size &&
	    guest_stack_interrupted(&state, end, &info->pieces[1].addr))
		info->pieces[1].size = guest_stack_map(&state, stack, info->pieces[1].addr,
						       size - info->pieces[0].size);
	pagefault_enable();
	return true;
}

/* Called when perf has copied the pages that kvm_arch_vcpu_stack_begin() found. */
void kvm_arch_vcpu_stack_end(struct kvm_vcpu *vcpu, struct perf_guest_stack *stack)
{
	guest_memory_end(vcpu, stack->priv);
}

/*
 * Return the vCPU's request for a deferred walk of the guest's stack, or NULL if there
 * must be none.  vcpu_enter_guest() serves the request before handle_exit() changes
 * registers and memory.
 */
struct perf_guest_callchain_request *kvm_arch_vcpu_callchain_request(struct kvm_vcpu *vcpu)
{
	struct perf_guest_callchain_request *request = &vcpu->arch.callchain_request;

	if (!guest_shows_stack(vcpu))
		return NULL;

	/* Find the same as kvm_guest_state() and kvm_guest_get_ip(), with fewer calls. */
	request->guest_state = PERF_GUEST_ACTIVE;
	if (kvm_x86_call(get_cpl)(vcpu))
		request->guest_state |= PERF_GUEST_USER;
	request->guest_ip = is_64_bit_mode(vcpu) ? kvm_rip_read(vcpu) :
						   kvm_get_linear_rip(vcpu);
	return request;
}
