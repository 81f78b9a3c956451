// SPDX-License-Identifier: GPL-2.0-only
/*
 * Set up arm64 guests whose stacks are sampled.
 */
#include <unistd.h>

#include "guest_modes.h"
#include "guest_stack.h"
#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"

#define TEST_PTE_USER		BIT_ULL(6)
#define TEST_PTE_RDONLY		BIT_ULL(7)

#define PSTATE_EL0		0

asm(".pushsection .text; .balign 4; .global guest_loop; guest_loop: b guest_loop; .popsection");

/* Only a host in protected mode, pKVM, has VMs of this type. */
bool is_protected_host(void)
{
	int kvm_fd = open_kvm_dev_path_or_exit();
	int fd = ioctl(kvm_fd, KVM_CREATE_VM, KVM_VM_TYPE_ARM_PROTECTED);

	close(kvm_fd);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/*
 * guests_available - check whether this host can run guests whose stacks can be sampled
 * @why_not:	receives the reason if it can't, for the test to skip with
 *
 * Return: true if it can.
 */
bool guests_available(const char **why_not)
{
	*why_not = "A host in protected mode shows nothing";
	if (is_protected_host())
		return false;

	*why_not = "The host, or its guests, have no pages of 4 KiB";
	return getpagesize() == PAGE_SIZE && guest_modes[VM_MODE_P40V48_4K].supported;
}

bool guest_has_levels(int levels)
{
	return levels == 4;
}

/* Walks refuse guests that have EL2. */
static struct kvm_vcpu *add_vcpu_without_el2(struct kvm_vm *vm, u32 id, void *code)
{
	struct kvm_vcpu_init init;

	kvm_get_default_vcpu_target(vm, &init);
	init.features[0] &= ~BIT(KVM_ARM_VCPU_HAS_EL2);
	return aarch64_vcpu_add(vm, id, &init, code);
}

/*
 * vm_create_sampled - create a guest whose callchains can be sampled
 * @nr_vcpus:	how many vCPUs it has
 * @code:	what they run
 * @vcpus:	is filled in
 */
struct kvm_vm *vm_create_sampled(unsigned int nr_vcpus, void *code, struct kvm_vcpu **vcpus)
{
	struct kvm_vm *vm = __vm_create(VM_SHAPE(VM_MODE_P40V48_4K), nr_vcpus, 0);
	unsigned int i;

	for (i = 0; i < nr_vcpus; i++)
		vcpus[i] = add_vcpu_without_el2(vm, i, code);
	kvm_arch_vm_finalize_vcpus(vm);
	return vm;
}

/*
 * vcpu_enter_user_mode - switch a vCPU to EL0
 * @vcpu:	the vCPU
 *
 * User mode can run guest_loop().
 */
void vcpu_enter_user_mode(struct kvm_vcpu *vcpu)
{
	vm_set_user_accessible(vcpu->vm, (gva_t)guest_loop & PAGE_MASK, 1);
	/* Read-only: EL1 can't execute from pages that EL0 can write to. */
	*virt_get_pte_hva(vcpu->vm, (gva_t)guest_loop) |= TEST_PTE_RDONLY;
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.pstate), PSTATE_EL0);
}

/*
 * vm_create_looping - create a guest that runs guest_loop()
 * @vcpu:	its only vCPU
 * @levels:	how many levels its page tables have: 4
 * @user:	it runs in EL0
 */
struct kvm_vm *vm_create_looping(struct kvm_vcpu **vcpu, int levels, bool user)
{
	struct kvm_vm *vm = vm_create_sampled(1, guest_loop, vcpu);

	TEST_ASSERT(vm->mmu.pgtable_levels == levels, "The VM has %d levels",
		    vm->mmu.pgtable_levels);
	if (user)
		vcpu_enter_user_mode(*vcpu);
	return vm;
}

/*
 * vm_add_looping - add a vCPU that runs guest_loop() to a VM that has none
 * @vm:		the VM
 */
struct kvm_vcpu *vm_add_looping(struct kvm_vm *vm)
{
	struct kvm_vcpu *vcpu = add_vcpu_without_el2(vm, 0, guest_loop);

	kvm_arch_vm_finalize_vcpus(vm);
	return vcpu;
}

/*
 * vm_create_looping_second - create a guest whose second vCPU runs guest_loop()
 * @vcpu:	this vCPU
 * @id:		its ID
 * @user:	it runs in EL0
 */
struct kvm_vm *vm_create_looping_second(struct kvm_vcpu **vcpu, u32 id, bool user)
{
	struct kvm_vm *vm = __vm_create(VM_SHAPE(VM_MODE_P40V48_4K), 2, 0);

	add_vcpu_without_el2(vm, 0, guest_loop);
	*vcpu = add_vcpu_without_el2(vm, id, guest_loop);
	kvm_arch_vm_finalize_vcpus(vm);
	if (user)
		vcpu_enter_user_mode(*vcpu);
	return vm;
}

/*
 * guest_stack_use - let a vCPU run on a stack
 * @vcpu:	the vCPU, in EL0 or in EL1
 * @stack:	the stack
 * @ip:		the instruction that it runs next
 */
void guest_stack_use(struct kvm_vcpu *vcpu, const struct guest_stack *stack, gva_t ip)
{
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.pc), ip);
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.sp), stack->sp);
	vcpu_set_reg(vcpu, ARM64_CORE_REG(sp_el1), stack->sp);
	vcpu_set_fp(vcpu, stack->fp);
}

/*
 * vcpu_use_upper_half - let a vCPU use the upper half of the addresses, TTBR1's
 * @vcpu:	the vCPU
 *
 * Both halves have the same tables.
 */
void vcpu_use_upper_half(struct kvm_vcpu *vcpu)
{
	static const u64 tg1[] = { [12] = 2, [14] = 1, [16] = 3 };
	u64 tcr = vcpu_get_reg(vcpu, KVM_ARM64_SYS_REG(SYS_TCR_EL1));

	tcr &= ~TCR_EPD1_MASK;
	tcr |= (64ULL - vcpu->vm->va_bits) << 16;
	/* Memory attributes and shareability are those of the lower half. */
	tcr |= (tcr & GENMASK_ULL(13, 8)) << 16;
	tcr |= tg1[vcpu->vm->page_shift] << 30;
	vcpu_set_reg(vcpu, KVM_ARM64_SYS_REG(SYS_TCR_EL1), tcr);
	vcpu_set_reg(vcpu, KVM_ARM64_SYS_REG(SYS_TTBR1_EL1),
		     vcpu_get_reg(vcpu, KVM_ARM64_SYS_REG(SYS_TTBR0_EL1)));
}

/*
 * vcpu_map_upper_half - map a page to the upper half of the addresses
 * @vcpu:	the vCPU
 * @gva:	where
 * @gpa:	the page
 */
void vcpu_map_upper_half(struct kvm_vcpu *vcpu, gva_t gva, gpa_t gpa)
{
	vcpu_use_upper_half(vcpu);
	virt_pg_map(vcpu->vm, gva & GENMASK_ULL(vcpu->vm->va_bits - 1, 0), gpa);
}

void vcpu_set_fp(struct kvm_vcpu *vcpu, u64 fp)
{
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.regs[29]), fp);
}

void vcpu_get_general_regs(struct kvm_vcpu *vcpu, struct general_regs *regs)
{
	unsigned int i;

	/* PC and PSTATE follow X0 to X30 and SP, and SP_EL1 comes next, as in struct kvm_regs. */
	for (i = 0; i < ARRAY_SIZE(regs->regs); i++)
		regs->regs[i] = vcpu_get_reg(vcpu, ARM64_CORE_REG(regs.regs[0]) + 2 * i);
}

/*
 * vm_get_pte_level - find the page table entry for an address, at a given level
 * @vm:		the VM; its page tables have 4 levels
 * @gva:	a mapped address
 * @level:	PG_LEVEL_4K for the leaf, the VM's pgtable_levels for the root table
 */
u64 *vm_get_pte_level(struct kvm_vm *vm, gva_t gva, int level)
{
	u64 *pte;

	/* For virt_get_pte_hva_at_level(), the leaf is level 3, however many levels there are. */
	TEST_ASSERT(vm->mmu.pgtable_levels == 4, "The VM has %d levels", vm->mmu.pgtable_levels);
	pte = virt_get_pte_hva_at_level(vm, gva, 4 - level);
	TEST_ASSERT(*pte & PTE_VALID, "0x%lx is not mapped at level %d", gva, level);
	return pte;
}

/*
 * vm_set_user_accessible - let EL0 access pages
 * @vm:		the VM
 * @gva:	the first page
 * @nr_pages:	how many
 */
void vm_set_user_accessible(struct kvm_vm *vm, gva_t gva, unsigned int nr_pages)
{
	unsigned int i;

	for (i = 0; i < nr_pages; i++)
		*virt_get_pte_hva(vm, gva + i * PAGE_SIZE) |= TEST_PTE_USER;
}
