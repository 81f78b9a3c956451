// SPDX-License-Identifier: GPL-2.0-only
/*
 * A guest that uses LBRs through its virtual PMU must see its own branches and no
 * others, even while the host samples its callchains.
 */
#include "callchain_harness.h"
#include "vmx.h"

#define NR_SAMPLES	50
#define NR_FRAMES	8

/* KVM lends no more LBRs to guests than this; other MSRs lie behind them. */
#define MAX_LBRS	32

/* The bits of a record that are the address; in some formats, the others are flags. */
#define LBR_ADDRESS	GENMASK_ULL(47, 0)

/*
 * lbr_start() records four indirect jumps, the last one to RDI, but no relative ones:
 * guest_loop() is a relative jump, and would overwrite the earlier records.  lbr_stop()
 * filters out all branches, but leaves LBRs enabled, because otherwise KVM takes them
 * back.
 */
void lbr_start(void);
void lbr_0(void);
void lbr_1(void);
void lbr_2(void);
void lbr_3(void);
void lbr_stop(void);
asm(".pushsection .text\n"
    "lbr_start:\n"
    "	xor	%edx, %edx\n"
    "	mov	$0x1d9, %ecx\n"		/* MSR_IA32_DEBUGCTLMSR */
    "	mov	$1, %eax\n"		/* LBR */
    "	wrmsr\n"
    "	mov	$0x1c8, %ecx\n"		/* MSR_LBR_SELECT */
    "	mov	$0x80, %eax\n"		/* all but near relative jumps */
    "	wrmsr\n"
    "	lea	lbr_1(%rip), %rax\n"
    "	lea	lbr_2(%rip), %rcx\n"
    "	lea	lbr_3(%rip), %rdx\n"
    "lbr_0:	jmp	*%rax; int3\n"
    "lbr_1:	jmp	*%rcx; int3\n"
    "lbr_2:	jmp	*%rdx; int3\n"
    "lbr_3:	jmp	*%rdi; int3\n"
    "lbr_stop:\n"
    "	xor	%edx, %edx\n"
    "	mov	$0x1c8, %ecx\n"
    "	mov	$0x1ff, %eax\n"		/* nothing at all */
    "	wrmsr\n"
    "	jmp	lbr_check\n"
    ".popsection");

static unsigned int nr_lbrs(void)
{
	unsigned int nr = 0;
	u64 value;

	while (nr < MAX_LBRS && !rdmsr_safe(MSR_LBR_NHM_FROM + nr, &value))
		nr++;
	__GUEST_ASSERT(nr >= 4 && !(nr & (nr - 1)), "There are %u LBRs", nr);
	return nr;
}

/* lbr_stop() jumps here, and passes the address to which lbr_3() has jumped. */
void lbr_check(u64 target);
void __attribute__((used)) lbr_check(u64 target)
{
	const u64 path[] = { (u64)lbr_0, (u64)lbr_1, (u64)lbr_2, (u64)lbr_3, target };
	unsigned int i, lbr, nr = nr_lbrs();
	u64 from, to;

	for (i = 0; i < ARRAY_SIZE(path) - 1; i++) {
		lbr = (rdmsr(MSR_LBR_TOS) - (ARRAY_SIZE(path) - 2 - i)) & (nr - 1);
		from = rdmsr(MSR_LBR_NHM_FROM + lbr) & LBR_ADDRESS;
		to = rdmsr(MSR_LBR_NHM_TO + lbr) & LBR_ADDRESS;
		__GUEST_ASSERT(from == path[i] && to == path[i + 1],
			       "Branch %u was 0x%lx to 0x%lx, is recorded as 0x%lx to 0x%lx",
			       i, path[i], path[i + 1], from, to);
	}
	GUEST_DONE();
}

/* Return the format of the LBRs that guests can have, or zero if they can't. */
static u64 lbr_format(void)
{
	if (!host_cpu_is_intel || !kvm_is_pmu_enabled() || !kvm_cpu_has(X86_FEATURE_PDCM))
		return 0;
	return kvm_get_feature_msr(MSR_IA32_PERF_CAPABILITIES) & PERF_CAP_LBR_FMT;
}

#define SKIP_UNLESS_LBR()					\
do {								\
	if (!lbr_format())					\
		SKIP(return, "The host gives guests no LBR");	\
} while (0)

static struct kvm_vm *create_with_lbr(struct kvm_vcpu **vcpu, void *target)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, lbr_start);

	vcpu_set_msr(*vcpu, MSR_IA32_PERF_CAPABILITIES, lbr_format());
	vcpu_args_set(*vcpu, 1, (u64)target);
	vcpu_set_if(*vcpu);
	return vm;
}

static void run_to_end(struct kvm_vcpu *vcpu)
{
	struct ucall uc;

	vcpu_run(vcpu);
	if (get_ucall(vcpu, &uc) == UCALL_ABORT)
		REPORT_GUEST_ASSERT(uc);
	TEST_ASSERT(uc.cmd == UCALL_DONE, "Unexpected ucall %lu", uc.cmd);
}

TEST(lbr_branches)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	SKIP_UNLESS_LBR();
	vm = create_with_lbr(&vcpu, lbr_stop);
	run_to_end(vcpu);
	kvm_vm_free(vm);
}

PMI_FIXTURE(lbr)

static void ignore_sample(const struct callchain_sample *s, void *arg)
{
}

/* Neither PMIs nor walks may add a branch to the guest's records. */
CALLCHAIN_TEST(lbr, sampled)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100 };
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_regs regs = {};
	struct kvm_vm *vm;
	unsigned int i;
	u64 rsp;

	SKIP_UNLESS_LBR();
	vm = create_with_lbr(&vcpu, guest_loop);
	for (i = 0; i < 1000 && regs.rip != (u64)guest_loop; i++) {
		vcpu_run_sampled(vcpu, variant->source, NULL, 1, ignore_sample, NULL);
		vcpu_regs_get(vcpu, &regs);
	}
	TEST_ASSERT_EQ(regs.rip, (u64)guest_loop);
	rsp = regs.rsp;

	guest_stack_build_and_use(vcpu, &stack, &layout, false);
	expect_guest_stack(&e, "with LBRs", false, &stack, DEFAULT_MAX_STACK);
	vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);

	vcpu_regs_get(vcpu, &regs);
	regs.rip = (u64)lbr_stop;
	regs.rsp = rsp;
	vcpu_regs_set(vcpu, &regs);
	run_to_end(vcpu);
	kvm_vm_free(vm);
}

TEST_HARNESS_MAIN
