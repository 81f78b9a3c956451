/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Build stacks of known frames in a guest's memory: what the instruments take of x86's
 * guest_stack.h.
 */
#ifndef GUEST_CALLCHAIN_GUEST_STACK_H
#define GUEST_CALLCHAIN_GUEST_STACK_H

#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"

#define GUEST_STACK_MAX_FRAMES	512

/* Pages of the guest, whatever the host's are. */
#define PAGE_SIZE	4096
#define PAGE_SHIFT	12
#define PAGE_MASK	(~(PAGE_SIZE - 1ULL))

/*
 * struct guest_stack_layout - where the frame records of a stack lie
 * @nr_frames:	how many
 * @stride:	bytes from one to the next, at least 16
 */
struct guest_stack_layout {
	unsigned int nr_frames;
	unsigned int stride;
};

/*
 * struct guest_stack - a stack with frame records, and registers of a function on it
 * @gva:	address of its lowest page
 * @sp:		value for SP
 * @fp:		value for X29
 * @ras:	return addresses, innermost first, which a walk must find
 */
struct guest_stack {
	gva_t gva;
	u64 sp;
	u64 fp;
	u64 ras[GUEST_STACK_MAX_FRAMES];
};

/* In the outermost record, both words are zero. */
static inline void guest_stack_build(struct kvm_vm *vm, struct guest_stack *stack,
				     const struct guest_stack_layout *layout)
{
	unsigned int i;
	u64 fp;

	TEST_ASSERT(layout->nr_frames <= GUEST_STACK_MAX_FRAMES && layout->stride >= 16,
		    "No such layout: %u frames, %u bytes apart", layout->nr_frames,
		    layout->stride);

	/* The records begin on a page of their own: below are the function's variables. */
	stack->gva = vm_alloc(vm, 2 * PAGE_SIZE + (layout->nr_frames + 1) * layout->stride,
			      DEFAULT_GUEST_STACK_VADDR_MIN);
	fp = stack->gva + PAGE_SIZE;
	stack->fp = fp;
	stack->sp = fp - 32;

	for (i = 0; i < layout->nr_frames; i++, fp += layout->stride) {
		u64 *record = addr_gva2hva(vm, fp);

		stack->ras[i] = 0x700000000000ULL + (i + 1) * 0x40;
		record[0] = fp + layout->stride;
		record[1] = stack->ras[i];
	}
	memset(addr_gva2hva(vm, fp), 0, 2 * sizeof(u64));
}

static inline void guest_stack_use(struct kvm_vcpu *vcpu, const struct guest_stack *stack,
				   gva_t pc)
{
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.pc), pc);
	vcpu_set_reg(vcpu, ARM64_CORE_REG(sp_el1), stack->sp);
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.regs[29]), stack->fp);
}

#endif /* GUEST_CALLCHAIN_GUEST_STACK_H */
