// SPDX-License-Identifier: GPL-2.0-only
/*
 * Guests that use LBRs of their own, by a virtual PMU: they must see their own
 * branches and no others, also while the host samples their callchains.
 */
#include "callchain_harness.h"
#include "vmx.h"

#define NR_SAMPLES	50
#define NR_FRAMES	8

/* What a record has besides an address: flags, in some of Intel's formats. */
#define LBR_ADDRESS	GENMASK_ULL(47, 0)

#define MIN_LBRS	4

/* Three branches, each to the next. */
void lbr_0(void);
void lbr_1(void);
void lbr_2(void);
void lbr_3(void);

PMI_FIXTURE(lbr)

/* The format of the LBRs that guests can have, or zero. */
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

static struct kvm_vm *create_with_lbr(struct kvm_vcpu **vcpu, void *guest_code)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, guest_code);

	vcpu_set_msr(*vcpu, MSR_IA32_PERF_CAPABILITIES, lbr_format());
	vcpu_set_if(*vcpu);
	return vm;
}

/* How many records there are: a power of two. */
static unsigned int nr_lbrs(void)
{
	unsigned int nr = 0;
	u64 value;

	while (nr < 64 && !rdmsr_safe(MSR_LBR_NHM_FROM + nr, &value))
		nr++;
	__GUEST_ASSERT(nr >= MIN_LBRS && !(nr & (nr - 1)), "There are %u LBRs", nr);
	return nr;
}

/* @back is zero for the branch that was recorded last. */
static void assert_lbr(unsigned int back, u64 from, u64 to)
{
	unsigned int i = (rdmsr(MSR_LBR_TOS) - back) & (nr_lbrs() - 1);
	u64 found_from = rdmsr(MSR_LBR_NHM_FROM + i) & LBR_ADDRESS;
	u64 found_to = rdmsr(MSR_LBR_NHM_TO + i) & LBR_ADDRESS;

	__GUEST_ASSERT(found_from == from && found_to == to,
		       "%u branches ago: 0x%lx to 0x%lx, not 0x%lx to 0x%lx",
		       back, found_from, found_to, from, to);
}

static void record_branches(void)
{
	u32 eax = DEBUGCTLMSR_LBR;

	wrmsr(MSR_LBR_SELECT, 0);
	asm volatile("wrmsr\n"
		     "lbr_0: jmp lbr_1; nop\n"
		     "lbr_1: jmp lbr_2; nop; nop\n"
		     "lbr_2: jmp lbr_3; nop\n"
		     "lbr_3: xor %%eax, %%eax; wrmsr"
		     : "+a"(eax) : "c"(MSR_IA32_DEBUGCTLMSR), "d"(0) : "cc");
	assert_lbr(0, (u64)lbr_2, (u64)lbr_3);
	assert_lbr(1, (u64)lbr_1, (u64)lbr_2);
	assert_lbr(2, (u64)lbr_0, (u64)lbr_1);
	GUEST_DONE();
}

static void run_to_ucall(struct kvm_vcpu *vcpu, u64 cmd)
{
	struct ucall uc;

	vcpu_run(vcpu);
	if (get_ucall(vcpu, &uc) == UCALL_ABORT)
		REPORT_GUEST_ASSERT(uc);
	TEST_ASSERT(uc.cmd == cmd, "Unexpected ucall %lu", uc.cmd);
}

TEST_F(lbr, branches)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	SKIP_UNLESS_LBR();
	vm = create_with_lbr(&vcpu, record_branches);
	run_to_ucall(vcpu, UCALL_DONE);
	kvm_vm_free(vm);
}

static void start_lbr(void)
{
	wrmsr(MSR_LBR_SELECT, 0);
	wrmsr(MSR_IA32_DEBUGCTLMSR, DEBUGCTLMSR_LBR);
	GUEST_SYNC(0);
}

static void stop_lbr(void)
{
	unsigned int i, nr;

	wrmsr(MSR_IA32_DEBUGCTLMSR, 0);
	nr = nr_lbrs();
	for (i = 0; i < nr; i++)
		assert_lbr(i, (u64)guest_loop, (u64)guest_loop);
	GUEST_DONE();
}

/* All that the guest did since its LBRs were started is one branch, again and again. */
CALLCHAIN_TEST(lbr, sampled)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100 };
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_regs regs;
	struct kvm_vm *vm;

	SKIP_UNLESS_LBR();
	vm = create_with_lbr(&vcpu, start_lbr);
	run_to_ucall(vcpu, UCALL_SYNC);

	vcpu_regs_get(vcpu, &regs);
	guest_stack_build_and_use(vcpu, &stack, &layout, false);
	expect_guest_stack(&e, "with LBRs", false, &stack, DEFAULT_MAX_STACK);
	vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);

	regs.rip = (u64)stop_lbr;
	/* As if it had been called. */
	regs.rsp = (regs.rsp & ~0xfULL) - 8;
	vcpu_regs_set(vcpu, &regs);
	run_to_ucall(vcpu, UCALL_DONE);
	kvm_vm_free(vm);
}

TEST_HARNESS_MAIN
