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

/* An address whose index in the root table is not that of the guest's code. */
#define FAR_GVA(_vm)	BIT_ULL((_vm)->mmu.pgtable_levels == 5 ? 51 : 46)

/* The stack pointer lies that many bytes below the innermost frame. */
#define RED_ZONE_SIZE		128

/*
 * guest_stack_build - allocate a stack in the guest, and write its frames
 * @vm:		the VM
 * @stack:	is filled in
 * @layout:	where the frames are to lie
 *
 * A frame is what x86's "push %rbp; mov %rsp,%rbp" leaves on the stack, and an arm64 frame
 * record: the caller's frame pointer, and the return address above it.  In the outermost
 * frame, both are zero.
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
		write_guest_word(vm, fp, fp + layout->stride);
		write_guest_word(vm, fp + 8, stack->ras[i]);
	}

	stack->frames[i] = fp;
	write_guest_word(vm, fp, 0);
	write_guest_word(vm, fp + 8, 0);
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
