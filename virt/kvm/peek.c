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

/**
 * kvm_peek_begin - begin to read a guest's memory
 * @vcpu: the vCPU of the current thread
 *
 * Context: the vCPU's thread, kvm->srcu held until kvm_peek_end().  Doesn't sleep.
 */
void kvm_peek_begin(struct kvm_vcpu *vcpu)
{
	vcpu->peek_vma = NULL;
	pagefault_disable();
}

/* End what kvm_peek_begin() has begun. */
void kvm_peek_end(struct kvm_vcpu *vcpu)
{
	pagefault_enable();
	if (vcpu->peek_vma)
		vma_end_read(vcpu->peek_vma);
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
	struct vm_area_struct *vma = vcpu->peek_vma;

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

	vcpu->peek_vma = vma;
	return vma ? (const void __user *)hva : NULL;
}

/**
 * kvm_peek_slot - read an aligned word of the guest's physical memory
 * @vcpu: the vCPU of the current thread
 * @slot: a memslot that the VMM has made, and in which @gpa lies
 * @gpa: where to read
 * @data: where to put the word
 * @len: 4 or 8 bytes, which are read at once
 *
 * Context: between kvm_peek_begin() and kvm_peek_end().
 *
 * Return: zero, or -EFAULT if there is no memory, or if it isn't at hand.
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

/**
 * kvm_peek_map - find a piece of the guest's virtual memory
 * @peek: the reader
 * @gva: any address in the piece
 *
 * Sets @peek->piece and @peek->gva; a piece has KVM_PEEK_SIZE bytes.
 *
 * Context: as kvm_peek_slot().
 *
 * Return: zero, or -EFAULT if the guest can't read there with the reader's rights, or if that
 * isn't memory of the VMM.
 */
int kvm_peek_map(struct kvm_peek *peek, gva_t gva)
{
	struct kvm_memory_slot *slot;
	gpa_t gpa;

	peek->piece = NULL;
	peek->gva = ALIGN_DOWN(gva, KVM_PEEK_SIZE);
	gpa = kvm_arch_vcpu_peek_gva(peek->vcpu, peek->gva, peek->user);
	if (gpa == INVALID_GPA)
		return -EFAULT;

	/* KVM's own memslots, e.g. for the APIC, are not the guest's memory. */
	slot = kvm_vcpu_gfn_to_memslot(peek->vcpu, gpa_to_gfn(gpa));
	if (!kvm_is_visible_memslot(slot))
		return -EFAULT;

	peek->piece = kvm_peek_hva(peek->vcpu, slot, gpa);
	return peek->piece ? 0 : -EFAULT;
}

/* Read @len bytes; return how many could be read. */
static unsigned int kvm_peek_read(struct kvm_peek *peek, gva_t gva, void *data, unsigned int len)
{
	unsigned int done = 0, n, left = 0;

	/* Addresses don't wrap around. */
	if (len && len - 1 > ~(gva_t)0 - gva)
		len = ~(gva_t)0 - gva + 1;

	while (done < len && !left) {
		if ((!peek->piece || peek->gva != ALIGN_DOWN(gva, KVM_PEEK_SIZE)) &&
		    kvm_peek_map(peek, gva))
			break;

		n = min_t(unsigned int, len - done, KVM_PEEK_SIZE - gva % KVM_PEEK_SIZE);
		left = __copy_from_user_inatomic(data + done, peek->piece + gva % KVM_PEEK_SIZE, n);
		gva += n;
		done += n - left;
	}

	return done;
}

/*
 * Make one read: store the last address in @addr, and the bytes there in @data.  Return how many
 * could be read.
 */
static unsigned int kvm_guest_read_one(struct kvm_peek *peek, const struct perf_guest_read *read,
				       u64 *addr, void *data)
{
	struct kvm_vcpu *vcpu = peek->vcpu;
	gva_t gva = read->base == PERF_GUEST_READ_ADDRESS ?
		    read->address : kvm_arch_vcpu_read_base(vcpu, read->base);
	unsigned int size;
	u64 word;
	int i;

	for (i = 0; i < read->nr_derefs; i++) {
		gva += read->offset[i];
		if (!IS_ALIGNED(gva, sizeof(u64)) || kvm_peek_word(peek, gva, &word))
			return 0;

		/* Does the stack pointer lie on the stack that ends at this word? */
		if (!i && read->within &&
		    word - kvm_arch_vcpu_read_base(vcpu, PERF_GUEST_READ_SP) - 1 >= read->within)
			return 0;
		gva = word;
	}

	*addr = gva + read->offset[read->nr_derefs];
	if (!(read->flags & PERF_GUEST_READ_AS_USER))
		return kvm_peek_read(peek, *addr, data, read->size);

	/* Forget the piece: it was found with the other mode's rights. */
	*peek = (struct kvm_peek){ .vcpu = vcpu, .user = true };
	size = kvm_peek_read(peek, *addr, data, read->size);
	*peek = (struct kvm_peek){ .vcpu = vcpu };
	return size;
}

/**
 * kvm_guest_read - read registers and memory of a guest for perf
 * @vcpu: the vCPU
 * @reads: what to read, valid
 * @guest_state: what the guest was doing when it exited, PERF_GUEST_*
 * @data: where to put it, as PERF_RECORD_GUEST_READ has it from abi to reads[]
 * @size: the size of @data in bytes, enough for all but the pieces' bytes
 *
 * @reads bounds the work: each read has at most four words, and its bytes.  A piece that @data
 * has no room for is left out.
 *
 * Context: as kvm_peek_slot(), before the exit is handled.
 *
 * Return: the number of bytes in @data.
 */
unsigned int kvm_guest_read(struct kvm_vcpu *vcpu, const struct perf_guest_reads *reads,
			    unsigned int guest_state, void *data, unsigned int size)
{
	struct kvm_peek peek = { .vcpu = vcpu };
	unsigned int i, mode, padding, room;
	u64 *p = data, *head;

	mode = guest_state & PERF_GUEST_USER ? PERF_GUEST_READ_IN_USER : PERF_GUEST_READ_IN_KERNEL;
	p = kvm_arch_vcpu_read_regs(vcpu, reads->regs, p);
	*p++ = reads->nr;
	/* What is left when each piece has its address and its size */
	room = size - ((void *)(p + 2 * reads->nr) - data);
	for (i = 0; i < reads->nr; i++) {
		const struct perf_guest_read *read = &reads->read[i];

		head = p;
		p += 2;
		head[0] = 0;
		head[1] = 0;
		if (!(read->flags & mode) || room < round_up(read->size, sizeof(u64)))
			continue;

		head[1] = kvm_guest_read_one(&peek, read, &head[0], p);
		padding = -head[1] % sizeof(u64);
		memset((void *)p + head[1], 0, padding);
		p = (void *)p + head[1] + padding;
		room -= head[1] + padding;
	}

	return (void *)p - data;
}
