// SPDX-License-Identifier: GPL-2.0-only
/*
 * Set up x86 guests whose stacks are sampled.
 */
#include "guest_stack.h"
#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"

asm(".pushsection .text; .global guest_loop; guest_loop: jmp guest_loop; .popsection");

bool guests_available(const char **why_not)
{
	return true;
}

bool guest_has_levels(int levels)
{
	return levels < 5 || kvm_cpu_has(X86_FEATURE_LA57);
}

/*
 * vm_create_sampled - create a guest whose callchains can be sampled
 * @nr_vcpus:	how many vCPUs it has
 * @code:	what they run
 * @vcpus:	is filled in
 */
struct kvm_vm *vm_create_sampled(unsigned int nr_vcpus, void *code, struct kvm_vcpu **vcpus)
{
	struct kvm_vm *vm = vm_create_with_vcpus(nr_vcpus, code, vcpus);
	unsigned int i;

	for (i = 0; i < nr_vcpus; i++)
		vcpu_set_if(vcpus[i]);
	return vm;
}

/*
 * vm_create_looping - create a guest that runs guest_loop()
 * @vcpu:	its only vCPU
 * @levels:	how many levels its page tables have at most
 * @user:	it runs in user mode
 */
struct kvm_vm *vm_create_looping(struct kvm_vcpu **vcpu, int levels, bool user)
{
	struct kvm_vm *vm = vm_create_sampled(1, guest_loop, vcpu);

	if (vm->mmu.pgtable_levels > levels)
		vcpu_use_4_level_paging(*vcpu);
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
	struct kvm_vcpu *vcpu = vm_vcpu_add(vm, 0, guest_loop);

	vcpu_set_if(vcpu);
	return vcpu;
}

/*
 * vm_create_looping_second - create a guest whose second vCPU runs guest_loop()
 * @vcpu:	this vCPU
 * @id:		its ID
 * @user:	it runs in user mode
 */
struct kvm_vm *vm_create_looping_second(struct kvm_vcpu **vcpu, u32 id, bool user)
{
	struct kvm_vcpu *first;
	struct kvm_vm *vm = vm_create_looping(&first, 4, user);
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	vcpu_sregs_get(first, &sregs);
	vcpu_regs_get(first, &regs);
	*vcpu = vm_vcpu_add(vm, id, guest_loop);
	vcpu_sregs_set(*vcpu, &sregs);
	vcpu_regs_set(*vcpu, &regs);
	return vm;
}

/*
 * vcpu_set_if - set RFLAGS.IF
 * @vcpu:	the vCPU
 *
 * Nothing interrupts these guests.  But on Bochs, a host interrupt ends guest mode only if
 * the guest has IF set.
 */
void vcpu_set_if(struct kvm_vcpu *vcpu)
{
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	regs.rflags |= X86_EFLAGS_IF;
	vcpu_regs_set(vcpu, &regs);
}

/*
 * guest_stack_use - let a vCPU run on a stack
 * @vcpu:	the vCPU
 * @stack:	the stack
 * @ip:		the instruction that it runs next
 */
void guest_stack_use(struct kvm_vcpu *vcpu, const struct guest_stack *stack, gva_t ip)
{
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	regs.rip = ip;
	regs.rsp = stack->sp;
	regs.rbp = stack->fp;
	vcpu_regs_set(vcpu, &regs);
	vcpu_set_if(vcpu);
}

/* A return address in the kernel, and what a Linux kernel saves at a system call. */
#define LINUX_KERNEL_IP		0xffffffff81001000ULL
#define LINUX_USER_CS		0x33

enum {
	LINUX_REGS_RIP		= 16,
	LINUX_REGS_CS		= 17,
	LINUX_REGS_FLAGS	= 18,
};

/*
 * guest_stack_enter_linux - turn a stack into that of a Linux kernel which user mode has entered
 * @vm:		the VM
 * @stack:	the stack
 * @user_ip:	where user mode was
 * @e:		what to expect of @stack; the kernel's return address is appended
 *
 * The outermost frame gets a return address.  Above it are user mode's registers.
 */
void guest_stack_enter_linux(struct kvm_vm *vm, const struct guest_stack *stack, u64 user_ip,
			     struct callchain_expectation *e)
{
	u64 *entry = addr_gva2hva(vm, stack->frames[stack->nr_frames] + 8);

	*entry++ = LINUX_KERNEL_IP;
	entry[LINUX_REGS_RIP] = user_ip;
	entry[LINUX_REGS_CS] = LINUX_USER_CS;
	entry[LINUX_REGS_FLAGS] = X86_EFLAGS_IF | X86_EFLAGS_FIXED;
	e->ips[e->nr++] = LINUX_KERNEL_IP;
}

/*
 * vcpu_map_upper_half - map a page to the upper half of the addresses
 * @vcpu:	the vCPU
 * @gva:	where
 * @gpa:	the page
 */
void vcpu_map_upper_half(struct kvm_vcpu *vcpu, gva_t gva, gpa_t gpa)
{
	virt_pg_map(vcpu->vm, gva, gpa);
}

void vcpu_set_fp(struct kvm_vcpu *vcpu, u64 fp)
{
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	regs.rbp = fp;
	vcpu_regs_set(vcpu, &regs);
}

void vcpu_get_general_regs(struct kvm_vcpu *vcpu, struct general_regs *regs)
{
	vcpu_regs_get(vcpu, &regs->regs);
}

/*
 * vm_get_pte_level - find the page table entry for an address, at a given level
 * @vm:		the VM
 * @gva:	a mapped address
 * @level:	PG_LEVEL_4K for the leaf, the VM's pgtable_levels for the root table
 */
u64 *vm_get_pte_level(struct kvm_vm *vm, gva_t gva, int level)
{
	u64 *table = addr_gpa2hva(vm, vm->mmu.pgd), *pte = NULL;
	int l;

	for (l = vm->mmu.pgtable_levels; l >= level; l--) {
		pte = &table[(gva >> PG_LEVEL_SHIFT(l)) & 0x1ff];
		TEST_ASSERT(*pte & PTE_PRESENT_MASK(&vm->mmu),
			    "0x%lx is not mapped at level %d", gva, l);
		if (l > level)
			table = addr_gpa2hva(vm, PTE_GET_PA(*pte));
	}

	return pte;
}

/*
 * vm_set_user_accessible - let guest user mode access pages
 * @vm:		the VM
 * @gva:	the first page
 * @nr_pages:	how many
 */
void vm_set_user_accessible(struct kvm_vm *vm, gva_t gva, unsigned int nr_pages)
{
	unsigned int i;
	int level;

	for (i = 0; i < nr_pages; i++) {
		for (level = PG_LEVEL_4K; level <= vm->mmu.pgtable_levels; level++)
			*vm_get_pte_level(vm, gva + i * PAGE_SIZE, level) |=
				PTE_USER_MASK(&vm->mmu);
	}
}

/* Selectors that the library's GDT doesn't use, and flat segments of DPL 3 for them. */
#define USER_CS			0x28
#define USER_CS_DESC		0x00affb000000ffffULL
#define USER_DS			0x30
#define USER_DS_DESC		0x00cff3000000ffffULL

/* Offset of RSP0 in the TSS.  Exceptions in user mode use the stack at RSP0. */
#define TSS_RSP0		4

/*
 * vcpu_enter_user_mode - switch a vCPU to CPL 3, in 64-bit code
 * @vcpu:	the vCPU
 *
 * User mode can run guest_loop().  The guest can handle exceptions, and return to user mode.
 */
void vcpu_enter_user_mode(struct kvm_vcpu *vcpu)
{
	struct kvm_vm *vm = vcpu->vm;
	struct kvm_sregs sregs;

	write_guest_word(vm, vm->arch.gdt + USER_CS, USER_CS_DESC);
	write_guest_word(vm, vm->arch.gdt + USER_DS, USER_DS_DESC);
	write_guest_word(vm, vm->arch.tss + TSS_RSP0, vm_alloc_stack(vm, 1));

	vcpu_sregs_get(vcpu, &sregs);
	sregs.cs.selector = USER_CS | 3;
	sregs.cs.dpl = 3;
	sregs.ss = sregs.ds;
	sregs.ss.selector = USER_DS | 3;
	sregs.ss.dpl = 3;
	vcpu_sregs_set(vcpu, &sregs);
	vm_set_user_accessible(vm, (gva_t)guest_loop & PAGE_MASK, 1);
}

/*
 * vcpu_use_4_level_paging - switch a vCPU from 5-level to 4-level paging
 * @vcpu:	a vCPU of a VM that was built with 5 levels
 *
 * The first table of the fourth level becomes the root: all addresses below
 * 2^47 stay mapped as they are.
 */
void vcpu_use_4_level_paging(struct kvm_vcpu *vcpu)
{
	struct kvm_vm *vm = vcpu->vm;
	struct kvm_sregs sregs;

	TEST_ASSERT(vm->mmu.pgtable_levels == 5, "The VM has %d levels",
		    vm->mmu.pgtable_levels);

	vm->mmu.pgd = PTE_GET_PA(*vm_get_pte_level(vm, 0, 5));
	vm->mmu.pgtable_levels = 4;

	vcpu_sregs_get(vcpu, &sregs);
	sregs.cr4 &= ~X86_CR4_LA57;
	sregs.cr3 = vm->mmu.pgd;
	vcpu_sregs_set(vcpu, &sregs);
}
