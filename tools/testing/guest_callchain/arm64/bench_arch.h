/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * arm64's part of the benchmark.
 */
#ifndef GUEST_CALLCHAIN_BENCH_ARCH_H
#define GUEST_CALLCHAIN_BENCH_ARCH_H

#include "guest_stack.h"

/* The exit reason of a guest that has finished its work. */
#define WORK_DONE	KVM_EXIT_SYSTEM_EVENT

void guest_work(void);
void guest_work_end(void);
void host_work(void);
void host_work_loop(void);
void host_work_end(void);

/*
 * Both functions count X9 down, and read the clock once in 16 loops.  X10 is the time of the
 * last read, X11 the least time between two reads.  A time of UNDISTURBED or more between two
 * reads is stored at X12, which then advances.  When X12 reaches X13, no more is stored.
 */
#define COUNT								\
	"	tst x9, #15\n"						\
	"	b.ne 1f\n"						\
	"	mrs x14, cntvct_el0\n"					\
	"	sub x15, x14, x10\n"					\
	"	mov x10, x14\n"						\
	"	cmp x15, x11\n"						\
	"	csel x11, x15, x11, lo\n"				\
	"	cmp x15, #" __stringify(UNDISTURBED) "\n"		\
	"	b.lo 1f\n"						\
	"	cmp x12, x13\n"						\
	"	b.hs 1f\n"						\
	"	str x15, [x12], #8\n"					\
	"1:	subs x9, x9, #1\n"

asm(".pushsection .text\n"
	"guest_work:\n"
	COUNT
	"	b.ne guest_work\n"
	"guest_work_end:\n"
	/* PSCI's SYSTEM_OFF, which leaves X9 to X13 as they are. */
	"	mov w0, #8\n"
	"	movk w0, #0x8400, lsl #16\n"
	"	hvc #0\n"
	"	b guest_work_end\n"

	/* X16 is the frame pointer.  The loop ends when the byte at X17 is not zero. */
	"host_work:\n"
	"	mov x8, x29\n"
	"	mov x29, x16\n"
	"host_work_loop:\n"
	COUNT
	"	b.eq 2f\n"
	"	ldrb w14, [x17]\n"
	"	cbz w14, host_work_loop\n"
	"host_work_end:\n"
	"2:	mov x29, x8\n"
	"	ret\n"
	".popsection");

static inline u64 arch_time(void)
{
	return read_sysreg(cntvct_el0);
}

static void arch_run_host(struct work *work, const struct guest_stack *stack, const bool *stop)
{
	register u64 left asm("x9") = work->left;
	register u64 last asm("x10") = arch_time();
	register u64 undisturbed asm("x11") = work->undisturbed;
	register u64 gaps asm("x12") = work->gaps;
	register u64 gaps_end asm("x13") = work->gaps_end;
	register u64 fp asm("x16") = stack->fp;
	register u64 end asm("x17") = (u64)stop;

	asm volatile("bl host_work"
		     : "+r" (left), "+r" (last), "+r" (undisturbed), "+r" (gaps)
		     : "r" (gaps_end), "r" (fp), "r" (end)
		     : "x8", "x14", "x15", "x30", "memory", "cc");
	work->gaps = gaps;
	work->undisturbed = undisturbed;
	work->left = left;
}

/* Create a typical guest: 4 KiB pages, 48-bit addresses, a GIC, and no EL2. */
static struct kvm_vm *arch_create_guest(struct kvm_vcpu **vcpu, void *code)
{
	return vm_create_sampled(1, code, vcpu);
}

static void arch_set_work(struct kvm_vcpu *vcpu, const struct work *work)
{
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.regs[9]), work->left);
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.regs[11]), work->undisturbed);
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.regs[12]), work->gaps);
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.regs[13]), work->gaps_end);
}

static void arch_get_work(struct kvm_vcpu *vcpu, struct work *work)
{
	work->left = vcpu_get_reg(vcpu, ARM64_CORE_REG(regs.regs[9]));
	work->undisturbed = vcpu_get_reg(vcpu, ARM64_CORE_REG(regs.regs[11]));
	work->gaps = vcpu_get_reg(vcpu, ARM64_CORE_REG(regs.regs[12]));
}

/* On arm64, struct kvm_run does not have the registers: reading each takes a system call. */
static void arch_show_regs(struct kvm_vcpu *vcpu)
{
}

static void arch_get_regs(struct kvm_vcpu *vcpu, struct sampled_regs *regs)
{
	regs->ip = vcpu_get_reg(vcpu, ARM64_CORE_REG(regs.pc));
	regs->sp = vcpu_get_reg(vcpu, ARM64_CORE_REG(sp_el1));
	regs->fp = vcpu_get_reg(vcpu, ARM64_CORE_REG(regs.regs[29]));
	regs->root = vcpu_get_reg(vcpu, KVM_ARM64_SYS_REG(SYS_TTBR0_EL1));
}

static const u8 *arch_translate(struct kvm_vm *vm, const struct sampled_regs *regs, u64 page)
{
	return addr_gva2hva(vm, page);
}

/* Time an exit and the next entry, as the guest sees them, by a hypercall unknown to KVM. */
static u64 arch_time_exit(void)
{
	register u64 function asm("x0") = -1ULL;
	u64 start = arch_time();

	asm volatile("hvc #0" : "+r" (function) : : "x1", "x2", "x3", "memory");
	return arch_time() - start;
}

#endif /* GUEST_CALLCHAIN_BENCH_ARCH_H */
