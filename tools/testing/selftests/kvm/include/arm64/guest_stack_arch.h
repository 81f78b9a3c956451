/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * arm64's part of guest_stack.h.
 */
#ifndef SELFTEST_KVM_GUEST_STACK_ARCH_H
#define SELFTEST_KVM_GUEST_STACK_ARCH_H

#include "kvm_util.h"
#include "processor.h"

#define GUEST_MAX_LEVELS	4

/*
 * A PMI that hits KVM while a vCPU is loaded counts as the guest's.  Unless it came right after
 * the exit, its callchain is empty.
 */
#define PMIS_HIT_KVM	1

/* The host's kernel has no unwinder that could defer callchains of user mode. */
#define HOST_DEFERS	0

/* Pages of these guests, and of hosts that run them, see guests_available(). */
#define PAGE_SHIFT	12
#define PAGE_SIZE	BIT(PAGE_SHIFT)
#define PAGE_MASK	(~(PAGE_SIZE - 1))

/* Levels of page tables, from the leaf up, as x86 counts them. */
enum pg_level {
	PG_LEVEL_4K = 1,
	PG_LEVEL_2M,
	PG_LEVEL_1G,
};

/* All general registers of a vCPU: X0 to X30, SP, PC and PSTATE, and EL1's SP. */
struct general_regs {
	u64 regs[35];
};

static inline u64 pte_present_mask(struct kvm_vm *vm)
{
	return PTE_VALID;
}

/* Return the entry of a huge page, a block, from that of a small one. */
static inline u64 pte_make_huge(struct kvm_vm *vm, u64 pte)
{
	return pte & ~PTE_TYPE_PAGE;
}

bool is_protected_host(void);
void vcpu_use_upper_half(struct kvm_vcpu *vcpu);

#endif /* SELFTEST_KVM_GUEST_STACK_ARCH_H */
