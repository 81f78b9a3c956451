// SPDX-License-Identifier: GPL-2.0-only
/*
 * Build stacks of known frames in a guest's memory.
 */
#include "guest_stack.h"
#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"

/* Made-up return addresses begin here, where nothing is mapped. */
#define FAKE_TEXT_GVA		0x700000000000ULL
#define FAKE_FUNCTION_SIZE	0x40

/* An address whose index in the root table, of level 4 or 5, is not that of the guest's code. */
#define FAR_GVA(_vm)	BIT_ULL((_vm)->mmu.pgtable_levels == 5 ? 51 : 46)

/* A leaf function uses that many bytes between RSP and the frame of its caller. */
#define RED_ZONE_SIZE		128

asm(".pushsection .text; .global guest_loop; guest_loop: jmp guest_loop; .popsection");

static void write_word(struct kvm_vm *vm, gva_t gva, u64 word)
{
	*(u64 *)addr_gva2hva(vm, gva) = word;
}

/*
 * vm_create_looping - create a guest that runs guest_loop()
 * @vcpu:	its only vCPU
 * @levels:	how many levels its page tables have at most
 * @user:	it runs in user mode
 */
struct kvm_vm *vm_create_looping(struct kvm_vcpu **vcpu, int levels, bool user)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, guest_loop);

	if (vm->mmu.pgtable_levels > levels)
		vcpu_use_4_level_paging(*vcpu);
	if (user) {
		vm_set_user_accessible(vm, (gva_t)guest_loop & PAGE_MASK, 1);
		vcpu_enter_user_mode(*vcpu);
	}
	return vm;
}

/*
 * guest_stack_build - allocate a stack in the guest, and write its frames
 * @vm:		the VM
 * @stack:	is filled in
 * @layout:	where the frames are to lie
 *
 * A frame is what "push %rbp; mov %rsp,%rbp" leaves on the stack: the caller's frame
 * pointer, and the return address above it.  In the outermost frame, both are zero.
 */
void guest_stack_build(struct kvm_vm *vm, struct guest_stack *stack,
		       const struct guest_stack_layout *layout)
{
	u64 size = layout->offset + (layout->nr_frames + 1) * (u64)layout->stride;
	unsigned int i;
	u64 fp;

	TEST_ASSERT(layout->nr_frames <= GUEST_STACK_MAX_FRAMES &&
		    layout->stride >= 16 && layout->offset < PAGE_SIZE,
		    "No such layout: %u frames, %u bytes apart, from offset %u",
		    layout->nr_frames, layout->stride, layout->offset);

	/* One page more, for what a leaf function has below the innermost frame. */
	stack->nr_pages = 1 + DIV_ROUND_UP(size + sizeof(u64), PAGE_SIZE);
	stack->gva = vm_alloc(vm, stack->nr_pages * PAGE_SIZE,
			      layout->far ? FAR_GVA(vm) : DEFAULT_GUEST_STACK_VADDR_MIN);
	stack->nr_frames = layout->nr_frames;

	fp = stack->gva + PAGE_SIZE + layout->offset;
	stack->fp = fp;
	stack->sp = fp - RED_ZONE_SIZE;

	for (i = 0; i < layout->nr_frames; i++, fp += layout->stride) {
		stack->frames[i] = fp;
		stack->ras[i] = FAKE_TEXT_GVA + (i + 1) * FAKE_FUNCTION_SIZE;
		write_word(vm, fp, fp + layout->stride);
		write_word(vm, fp + 8, stack->ras[i]);
	}

	stack->frames[i] = fp;
	write_word(vm, fp, 0);
	write_word(vm, fp + 8, 0);
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
 * @rip:	the instruction that it runs next
 */
void guest_stack_use(struct kvm_vcpu *vcpu, const struct guest_stack *stack, gva_t rip)
{
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	regs.rip = rip;
	regs.rsp = stack->sp;
	regs.rbp = stack->fp;
	vcpu_regs_set(vcpu, &regs);
	vcpu_set_if(vcpu);
}

/*
 * guest_stack_build_and_use - build a stack, and let a vCPU run guest_loop() on it
 * @vcpu:	the vCPU
 * @stack:	is filled in
 * @layout:	where the frames are to lie
 * @user:	let user mode access the stack
 */
void guest_stack_build_and_use(struct kvm_vcpu *vcpu, struct guest_stack *stack,
			       const struct guest_stack_layout *layout, bool user)
{
	guest_stack_build(vcpu->vm, stack, layout);
	if (user)
		vm_set_user_accessible(vcpu->vm, stack->gva, stack->nr_pages);
	guest_stack_use(vcpu, stack, (gva_t)guest_loop);
}

/*
 * expect_guest_stack - expect the chain of guest_loop() on a stack
 * @e:		is filled in
 * @name:	the case, for messages
 * @user:	the guest is in user mode
 * @stack:	the stack
 * @max_stack:	how many entries the event takes, context marker not included
 */
void expect_guest_stack(struct callchain_expectation *e, const char *name, bool user,
			const struct guest_stack *stack, unsigned int max_stack)
{
	unsigned int i, nr_ras = min(stack->nr_frames, max_stack - 1);

	e->name = name;
	e->cpumode = user ? PERF_RECORD_MISC_GUEST_USER : PERF_RECORD_MISC_GUEST_KERNEL;
	e->ip = (u64)guest_loop;
	e->nr = 0;
	e->ips[e->nr++] = user ? PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL;
	e->ips[e->nr++] = e->ip;
	for (i = 0; i < nr_ras; i++)
		e->ips[e->nr++] = stack->ras[i];
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
 * The guest can handle exceptions, and return to user mode.
 */
void vcpu_enter_user_mode(struct kvm_vcpu *vcpu)
{
	struct kvm_vm *vm = vcpu->vm;
	struct kvm_sregs sregs;

	write_word(vm, vm->arch.gdt + USER_CS, USER_CS_DESC);
	write_word(vm, vm->arch.gdt + USER_DS, USER_DS_DESC);
	write_word(vm, vm->arch.tss + TSS_RSP0, vm_alloc_stack(vm, 1));

	vcpu_sregs_get(vcpu, &sregs);
	sregs.cs.selector = USER_CS | 3;
	sregs.cs.dpl = 3;
	sregs.ss = sregs.ds;
	sregs.ss.selector = USER_DS | 3;
	sregs.ss.dpl = 3;
	vcpu_sregs_set(vcpu, &sregs);
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
