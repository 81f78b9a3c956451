/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * x86's part of guest_stack.h, and helpers for x86's tests.
 */
#ifndef SELFTEST_KVM_GUEST_STACK_ARCH_H
#define SELFTEST_KVM_GUEST_STACK_ARCH_H

#include "kvm_util.h"
#include "processor.h"

#define GUEST_MAX_LEVELS	5

/* A PMI that hits KVM doesn't count as the guest's. */
#define PMIS_HIT_KVM	0

/* The host's kernel may defer callchains of user mode. */
#define HOST_DEFERS	1

/* All general registers of a vCPU. */
struct general_regs {
	struct kvm_regs regs;
};

static inline u64 pte_present_mask(struct kvm_vm *vm)
{
	return PTE_PRESENT_MASK(&vm->mmu);
}

/* Return the entry of a huge page from that of a small one. */
static inline u64 pte_make_huge(struct kvm_vm *vm, u64 pte)
{
	return pte | PTE_HUGE_MASK(&vm->mmu);
}

void vcpu_set_if(struct kvm_vcpu *vcpu);
void vcpu_use_4_level_paging(struct kvm_vcpu *vcpu);

#endif /* SELFTEST_KVM_GUEST_STACK_ARCH_H */
