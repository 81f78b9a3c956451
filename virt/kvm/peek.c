// SPDX-License-Identifier: GPL-2.0-only
/*
 * Read a guest's memory and change nothing, neither the guest nor the VMM's mappings.
 *
 * The guest chooses the addresses, and may change its memory and its page tables meanwhile.
 * Reads go through the VMM's mappings, with page faults disabled: they never wait, and never
 * fill a hole.  What the guest has just used is mapped, as a rule; a page that was swapped out
 * is not.  The memory of devices is left alone, as reads of a register may have side effects.
 */

#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <linux/uaccess.h>

/* Begin to read a guest's memory, in the vCPU's thread, with kvm->srcu held.  Doesn't sleep. */
void kvm_peek_begin(struct kvm_vcpu *vcpu)
{
	vcpu->peek = (struct kvm_peek){};
	pagefault_disable();
}

/* End what kvm_peek_begin() has begun. */
void kvm_peek_end(struct kvm_vcpu *vcpu)
{
	pagefault_enable();
	if (vcpu->peek.vma)
		vma_end_read(vcpu->peek.vma);
}

/*
 * Return where the VMM has mapped @gpa in @slot; NULL if that isn't normal memory, or if the VMM
 * changes the mapping just now.  It stays mapped until the next call or kvm_peek_end(): the VMA
 * is locked.
 */
static const void __user *kvm_peek_hva(struct kvm_vcpu *vcpu, const struct kvm_memory_slot *slot,
				       gpa_t gpa)
{
	unsigned long hva = __gfn_to_hva_memslot(slot, gpa_to_gfn(gpa)) + offset_in_page(gpa);
	struct vm_area_struct *vma = vcpu->peek.vma;

	/* Most reads lie in the same VMA as the one before. */
	if (vma && hva >= vma->vm_start && hva < vma->vm_end)
		return (const void __user *)hva;

	if (vma)
		vma_end_read(vma);
	vma = lock_vma_under_rcu(vcpu->kvm->mm, hva);
	if (vma && vma->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP)) {
		vma_end_read(vma);
		vma = NULL;
	}

	vcpu->peek.vma = vma;
	return vma ? (const void __user *)hva : NULL;
}

/*
 * Read an aligned word of 4 or 8 bytes, at once, from @slot, which the VMM has made.  Return zero,
 * or -EFAULT if there is no normal memory, or if it isn't at hand.  Called between
 * kvm_peek_begin() and kvm_peek_end().
 */
int kvm_peek_slot(struct kvm_vcpu *vcpu, const struct kvm_memory_slot *slot, gpa_t gpa,
		  void *data, unsigned int len)
{
	const void __user *uaddr = kvm_peek_hva(vcpu, slot, gpa);

	if (!uaddr)
		return -EFAULT;

	return len == sizeof(u64) ? __get_user(*(u64 *)data, (const u64 __user *)uaddr) :
				    __get_user(*(u32 *)data, (const u32 __user *)uaddr);
}

/* As kvm_peek_slot(), but KVM's own memslots, e.g. for the APIC, are not the guest's memory. */
int kvm_peek_guest(struct kvm_vcpu *vcpu, gpa_t gpa, void *data, unsigned int len)
{
	struct kvm_memory_slot *slot = kvm_vcpu_gfn_to_memslot(vcpu, gpa_to_gfn(gpa));

	return kvm_is_visible_memslot(slot) ? kvm_peek_slot(vcpu, slot, gpa, data, len) : -EFAULT;
}

/* Begin a walk or a read with the rights of the guest's user mode, or of its kernel. */
void kvm_peek_with_rights(struct kvm_vcpu *vcpu, bool user)
{
	/* The piece was found with the other mode's rights. */
	if (vcpu->peek.user != user) {
		vcpu->peek.piece = NULL;
		vcpu->peek.pairs = 0;
	}
	vcpu->peek.user = user;
	vcpu->peek.nr = 0;
}

/*
 * Find the piece of the guest's virtual memory in which @gva lies, for vcpu->peek.  Return zero, or
 * -EFAULT if the guest can't read there with the reader's rights, if that isn't memory of the VMM,
 * or if KVM_PEEK_MAX pieces were looked for.  Called as kvm_peek_slot().
 */
int kvm_peek_map(struct kvm_vcpu *vcpu, gva_t gva)
{
	struct kvm_peek *peek = &vcpu->peek;
	struct kvm_memory_slot *slot;
	gpa_t gpa;

	/* Translation may unlock the VMA that the piece lies in. */
	peek->piece = NULL;
	peek->pairs = 0;
	peek->gva = ALIGN_DOWN(gva, KVM_PEEK_SIZE);
	gpa = peek->nr++ < KVM_PEEK_MAX ?
	      kvm_arch_vcpu_peek_gva(vcpu, peek->gva, peek->user) : INVALID_GPA;
	if (gpa == INVALID_GPA)
		return -EFAULT;

	/* KVM's own memslots, e.g. for the APIC, are not the guest's memory. */
	slot = kvm_vcpu_gfn_to_memslot(vcpu, gpa_to_gfn(gpa));
	if (!kvm_is_visible_memslot(slot))
		return -EFAULT;

	peek->piece = kvm_peek_hva(vcpu, slot, gpa);
	if (!peek->piece)
		return -EFAULT;

	peek->pairs = KVM_PEEK_SIZE - sizeof(u64);
	return 0;
}

/* Find the address of a piece, with the rights of the guest's kernel. */
static int kvm_find_read(struct kvm_vcpu *vcpu, const struct perf_guest_read *read, u64 *addr)
{
	gva_t gva = read->address;
	u64 word;
	int i;

	if (read->base != PERF_GUEST_READ_ADDRESS)
		gva += kvm_arch_vcpu_read_base(vcpu, read->base);
	for (i = 0; i < read->nr_derefs; i++) {
		gva += read->offset[i];
		if (!IS_ALIGNED(gva, sizeof(u64)) || kvm_peek_word(vcpu, gva, &word))
			return -EFAULT;

		/* Does the stack pointer lie on the stack that ends at this word? */
		if (!i && read->within &&
		    word - kvm_arch_vcpu_read_base(vcpu, PERF_GUEST_READ_SP) - 1 >= read->within)
			return -ERANGE;
		gva = word;
	}

	*addr = gva + read->offset[read->nr_derefs];
	return 0;
}

/*
 * Store a guest's registers, as PERF_RECORD_GUEST_READ has them from abi to regs[], in @words, and
 * where to read of its memory, in @addr.  Return a mask of the pieces that are to be read in
 * @guest_state, PERF_GUEST_*, and whose address could be found.
 *
 * @reads is valid, and bounds the work: each read takes four words at most.
 *
 * Called as kvm_peek_slot(), before the exit is handled.
 */
unsigned int kvm_guest_find_reads(struct kvm_vcpu *vcpu, const struct perf_guest_reads *reads,
				  unsigned int guest_state, u64 *words, u64 *addr)
{
	unsigned int i, found = 0, mode = guest_state & PERF_GUEST_USER ? PERF_GUEST_READ_IN_USER :
									  PERF_GUEST_READ_IN_KERNEL;

	kvm_arch_vcpu_read_regs(vcpu, reads->regs, words);
	kvm_peek_with_rights(vcpu, false);
	for (i = 0; i < reads->nr; i++) {
		if (reads->read[i].flags & mode && !kvm_find_read(vcpu, &reads->read[i], &addr[i]))
			found |= BIT(i);
	}

	return found;
}

/*
 * Write @len bytes of a guest's memory at @gva to a ring buffer of perf, which has room for them.
 * Read with the rights of the guest's user mode if @user, else of its kernel.  Return how many
 * bytes could be read.
 *
 * Called as kvm_guest_find_reads().
 */
unsigned int kvm_guest_read(struct kvm_vcpu *vcpu, struct perf_output_handle *handle, gva_t gva,
			    unsigned int len, bool user)
{
	const struct kvm_peek *peek = &vcpu->peek;
	unsigned int done = 0, n, left = 0;

	/* Addresses don't wrap around. */
	if (len && len - 1 > ~(gva_t)0 - gva)
		len = ~(gva_t)0 - gva + 1;

	kvm_peek_with_rights(vcpu, user);
	while (done < len && !left && !kvm_peek_find(vcpu, gva)) {
		n = min_t(unsigned int, len - done, KVM_PEEK_SIZE - gva % KVM_PEEK_SIZE);
		left = perf_output_copy_user(handle, peek->piece + gva % KVM_PEEK_SIZE, n);
		gva += n;
		done += n - left;
	}

	return done;
}
