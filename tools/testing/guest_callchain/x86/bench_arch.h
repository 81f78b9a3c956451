/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * x86's part of the benchmark.
 */
#ifndef GUEST_CALLCHAIN_BENCH_ARCH_H
#define GUEST_CALLCHAIN_BENCH_ARCH_H

#include "guest_stack.h"
#include "processor.h"

/* The exit reason of a guest whose work is done. */
#define WORK_DONE	KVM_EXIT_IO

/* The loops of guest_work and host_work count RCX down, and never touch the stack. */
void guest_work(void);
void guest_work_end(void);
void host_work(void);
void host_work_loop(void);
void host_work_end(void);

/*
 * The body of both loops.  It counts RCX down, and reads the time in one of 16
 * iterations.  R8 is the time of the last read, R10 the shortest time between two reads.
 * Times between two reads are disturbances if they have at least UNDISTURBED ticks: they
 * are stored at RDI, which goes up, as long as RDI is below RSI.
 */
#define COUNT								\
	"	test $15, %cl\n"					\
	"	jnz 1f\n"						\
	"	rdtsc\n"						\
	"	shl $32, %rdx\n"					\
	"	or %rax, %rdx\n"					\
	"	mov %rdx, %rax\n"					\
	"	sub %r8, %rdx\n"					\
	"	mov %rax, %r8\n"					\
	"	cmp %r10, %rdx\n"					\
	"	cmovb %rdx, %r10\n"					\
	"	cmp $" __stringify(UNDISTURBED) ", %rdx\n"		\
	"	jb 1f\n"						\
	"	cmp %rsi, %rdi\n"					\
	"	jae 1f\n"						\
	"	mov %rdx, (%rdi)\n"					\
	"	add $8, %rdi\n"					\
	"1:	dec %rcx\n"

asm(".pushsection .text\n"
	"guest_work:\n"
	COUNT
	"	jnz guest_work\n"
	"guest_work_end:\n"
	"	out %al, $0x80\n"
	"	jmp guest_work_end\n"

	/* RBX: the frame pointer, R9: address of the byte that ends the loop. */
	"host_work:\n"
	"	push %rbp\n"
	"	mov %rbx, %rbp\n"
	"host_work_loop:\n"
	COUNT
	"	jz 2f\n"
	"	cmpb $0, (%r9)\n"
	"	je host_work_loop\n"
	"host_work_end:\n"
	"2:	pop %rbp\n"
	"	ret\n"
	".popsection");

static void arch_run_host(struct work *work, const struct guest_stack *stack, const bool *stop)
{
	register u64 rdi asm("rdi") = work->gaps;
	register u64 rsi asm("rsi") = work->gaps_end;
	register u64 rbx asm("rbx") = stack->fp;
	register u64 rcx asm("rcx") = work->left;
	register u64 r8 asm("r8") = rdtsc();
	register u64 r9 asm("r9") = (u64)stop;
	register u64 r10 asm("r10") = work->undisturbed;

	/* Leave the red zone alone. */
	asm volatile("sub $128, %%rsp; call host_work; add $128, %%rsp"
		     : "+r" (rcx), "+r" (rdi), "+r" (r8), "+r" (r10)
		     : "r" (rsi), "r" (rbx), "r" (r9) : "rax", "rdx", "memory", "cc");
	work->gaps = rdi;
	work->undisturbed = r10;
	work->left = rcx;
}

static struct kvm_vm *arch_create_guest(struct kvm_vcpu **vcpu, void *code)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, code);

	/* Most guests have 4-level paging, even if the host has 5 levels. */
	if (vm->mmu.pgtable_levels == 5)
		vcpu_use_4_level_paging(*vcpu);
	return vm;
}

static void arch_set_work(struct kvm_vcpu *vcpu, const struct work *work)
{
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	regs.rcx = work->left;
	regs.rdi = work->gaps;
	regs.rsi = work->gaps_end;
	regs.r10 = work->undisturbed;
	vcpu_regs_set(vcpu, &regs);
}

static void arch_get_work(struct kvm_vcpu *vcpu, struct work *work)
{
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	work->left = regs.rcx;
	work->gaps = regs.rdi;
	work->undisturbed = regs.r10;
}

/* Let KVM store the registers in the shared page at each return from KVM_RUN. */
static void arch_show_regs(struct kvm_vcpu *vcpu)
{
	vcpu->run->kvm_valid_regs = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS;
}

static void arch_get_regs(struct kvm_vcpu *vcpu, struct sampled_regs *sampled)
{
	const struct kvm_sync_regs *regs = &vcpu->run->s.regs;

	sampled->ip = regs->regs.rip;
	sampled->sp = regs->regs.rsp;
	sampled->fp = regs->regs.rbp;
	sampled->root = regs->sregs.cr3;
}

static const u8 *arch_translate(struct kvm_vm *vm, const struct sampled_regs *regs, u64 page)
{
	u64 entry = regs->root;
	int level;

	for (level = PG_LEVEL_512G; level >= PG_LEVEL_4K; level--) {
		const u64 *table = addr_gpa2hva(vm, PTE_GET_PA(entry));

		entry = table[(page >> PG_LEVEL_SHIFT(level)) & 0x1ff];
		if (!(entry & PTE_PRESENT_MASK(&vm->mmu)))
			return NULL;
		if (level == PG_LEVEL_4K || entry & PTE_HUGE_MASK(&vm->mmu))
			break;
	}

	return addr_gpa2hva(vm, PTE_GET_PA(entry) + (page & (PG_LEVEL_SIZE(level) - 1)));
}

/* Return how long an exit and the entry after it take, by the guest's clock. */
static u64 arch_time_exit(void)
{
	unsigned int eax, ebx, ecx, edx;
	u64 start = rdtsc();

	__cpuid(0, 0, &eax, &ebx, &ecx, &edx);
	return rdtsc() - start;
}

#endif /* GUEST_CALLCHAIN_BENCH_ARCH_H */
