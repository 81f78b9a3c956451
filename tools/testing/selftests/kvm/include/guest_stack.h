/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Build stacks of known frames in a guest's memory.
 */
#ifndef SELFTEST_KVM_GUEST_STACK_H
#define SELFTEST_KVM_GUEST_STACK_H

#include "guest_stack_arch.h"
#include "kvm_util.h"
#include "perf_callchain.h"
#include "processor.h"

#define GUEST_STACK_MAX_FRAMES	512

/*
 * struct guest_stack_layout - where the frames of a stack lie
 * @nr_frames:	how many frames
 * @stride:	bytes from one frame to the next, at least 16
 * @offset:	offset of the innermost frame in its page, in bytes
 * @far:	the stack shares no page table but the root with the guest's code
 */
struct guest_stack_layout {
	unsigned int nr_frames;
	unsigned int stride;
	unsigned int offset;
	bool far;
};

/*
 * struct guest_stack - a stack with frames, and registers of a function that runs on it
 * @gva:	address of its lowest page
 * @nr_pages:	how many pages it covers
 * @sp:		value for the stack pointer
 * @fp:		value for the frame pointer, which is frames[0]
 * @nr_frames:	how many frames, without the outermost one, which has no return address
 * @frames:	their addresses, innermost first, and the address of the outermost one
 * @ras:	their return addresses, innermost first, which a walk must find
 */
struct guest_stack {
	gva_t gva;
	unsigned int nr_pages;
	u64 sp;
	u64 fp;
	unsigned int nr_frames;
	gva_t frames[GUEST_STACK_MAX_FRAMES + 1];
	u64 ras[GUEST_STACK_MAX_FRAMES];
};

/*
 * A single instruction that jumps to itself.  A guest that runs it has a known
 * IP, and never touches its stack.
 */
void guest_loop(void);

static inline void write_guest_word(struct kvm_vm *vm, gva_t gva, u64 word)
{
	*(u64 *)addr_gva2hva(vm, gva) = word;
}

void guest_stack_build(struct kvm_vm *vm, struct guest_stack *stack,
		       const struct guest_stack_layout *layout);
void guest_stack_build_and_use(struct kvm_vcpu *vcpu, struct guest_stack *stack,
			       const struct guest_stack_layout *layout, bool user);
void expect_guest_stack(struct callchain_expectation *e, const char *name, bool user,
			const struct guest_stack *stack, unsigned int max_stack);

/*
 * Functions that each architecture implements.  guests_available() sets @why_not if it returns
 * false.
 */
bool guests_available(const char **why_not);
bool guest_has_levels(int levels);
struct kvm_vm *vm_create_sampled(unsigned int nr_vcpus, void *code, struct kvm_vcpu **vcpus);
struct kvm_vm *vm_create_looping(struct kvm_vcpu **vcpu, int levels, bool user);
struct kvm_vcpu *vm_add_looping(struct kvm_vm *vm);
struct kvm_vm *vm_create_looping_second(struct kvm_vcpu **vcpu, u32 id, bool user);
void guest_stack_use(struct kvm_vcpu *vcpu, const struct guest_stack *stack, gva_t ip);
void guest_stack_enter_linux(struct kvm_vm *vm, const struct guest_stack *stack, u64 user_ip,
			     struct callchain_expectation *e);
void vcpu_map_upper_half(struct kvm_vcpu *vcpu, gva_t gva, gpa_t gpa);
void vcpu_enter_user_mode(struct kvm_vcpu *vcpu);
void vcpu_set_fp(struct kvm_vcpu *vcpu, u64 fp);
void vcpu_get_general_regs(struct kvm_vcpu *vcpu, struct general_regs *regs);
u64 *vm_get_pte_level(struct kvm_vm *vm, gva_t gva, int level);
void vm_set_user_accessible(struct kvm_vm *vm, gva_t gva, unsigned int nr_pages);

#endif /* SELFTEST_KVM_GUEST_STACK_H */
