/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the kernel that arch/arm64/kvm/stacktrace_guest.c needs, for user space.
 */
#ifndef GUEST_CALLCHAIN_ARM64_KVM_HOST_H
#define GUEST_CALLCHAIN_ARM64_KVM_HOST_H

#include "callchain_oracle.h"
#include "fuzz_kernel.h"

typedef u64 __be64;
typedef u64 __le64;

#define be64_to_cpu(x)		__builtin_bswap64(x)
#define le64_to_cpu(x)		(x)

/* The same values as in arm64's headers. */
#define PSR_MODE_EL0t		0x0
#define PSR_MODE_EL1h		0x5
#define PSR_MODE_MASK		0xf
#define PSR_MODE32_BIT		0x10
#define PSR_AA32_MODE_USR	0x10
#define PSR_AA32_MODE_MASK	0x1f
#define PSR_AA32_E_BIT		0x200
#define PSR_PAN_BIT		0x400000

#define SCTLR_ELx_M		BIT(0)
#define SCTLR_EL1_E0E		BIT(24)
#define SCTLR_ELx_EE		BIT(25)

#define TCR_T0SZ_MASK		GENMASK_ULL(5, 0)
#define TCR_T1SZ_MASK		GENMASK_ULL(21, 16)
#define TCR_TBI0		BIT(37)
#define TCR_TBI1		BIT(38)

enum { PERF_REG_ARM64_LR = 30, PERF_REG_ARM64_SP, PERF_REG_ARM64_PC };

enum vcpu_sysreg {
	TCR_EL1,
	SCTLR_EL1,
	TTBR0_EL1,
	TPIDR_EL1,
	SP_EL1,
	NR_SYS_REGS,
};

struct user_pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
};

struct kvm_vcpu {
	unsigned int vcpu_id;
	struct kvm *kvm;
	struct kvm_peek peek;
	struct {
		struct user_pt_regs regs;
		bool sysregs_on_cpu;
		u64 sys_regs[NR_SYS_REGS];
	} arch;
	bool has_nv;
	struct oracle_vcpu state;
};

/* Arguments and results of the page-table walk in at.c. */
enum trans_regime {
	TR_EL10,
};

struct s1_walk_info {
	enum trans_regime regime;
	bool as_el0;
	bool pan;
	bool peek;
};

struct s1_walk_result {
	u64 pa;
	bool ur;
	bool pr;
};

/* Defined in fuzz_stack_walk.c: the guest's registers, and the host's state. */
bool is_protected_kvm_enabled(void);
int __kvm_translate_va(struct kvm_vcpu *vcpu, struct s1_walk_info *wi,
		       struct s1_walk_result *wr, u64 va);
u64 vcpu_read_sys_reg(const struct kvm_vcpu *vcpu, enum vcpu_sysreg reg);
u64 fuzz_sp_el1_on_cpu(void);

#define read_sysreg(reg)	fuzz_##reg##_on_cpu()
#define __vcpu_sys_reg(v, r)	((v)->arch.sys_regs[r])
#define SYSREGS_ON_CPU		sysregs_on_cpu
#define vcpu_get_flag(v, flag)	((v)->arch.flag)
#define vcpu_has_ptrauth(v)	((v)->state.pauth)
#define vcpu_has_nv(v)		((v)->has_nv)

static inline struct user_pt_regs *vcpu_gp_regs(struct kvm_vcpu *vcpu)
{
	return &vcpu->arch.regs;
}

static inline u64 *vcpu_pc(struct kvm_vcpu *vcpu)
{
	return &vcpu->arch.regs.pc;
}

static inline u64 *vcpu_cpsr(struct kvm_vcpu *vcpu)
{
	return &vcpu->arch.regs.pstate;
}

static inline u64 vcpu_get_reg(struct kvm_vcpu *vcpu, u8 nr)
{
	return vcpu->arch.regs.regs[nr];
}

static inline bool vcpu_mode_is_32bit(struct kvm_vcpu *vcpu)
{
	return *vcpu_cpsr(vcpu) & PSR_MODE32_BIT;
}

/* The guests here have 64-bit kernels. */
static inline bool vcpu_el1_is_32bit(struct kvm_vcpu *vcpu)
{
	return false;
}

static inline bool vcpu_mode_priv(struct kvm_vcpu *vcpu)
{
	if (vcpu_mode_is_32bit(vcpu))
		return (*vcpu_cpsr(vcpu) & PSR_AA32_MODE_MASK) > PSR_AA32_MODE_USR;
	return (*vcpu_cpsr(vcpu) & PSR_MODE_MASK) != PSR_MODE_EL0t;
}

static inline bool kvm_vcpu_is_be(struct kvm_vcpu *vcpu)
{
	if (vcpu_mode_is_32bit(vcpu))
		return *vcpu_cpsr(vcpu) & PSR_AA32_E_BIT;
	return vcpu_read_sys_reg(vcpu, SCTLR_EL1) &
	       (vcpu_mode_priv(vcpu) ? SCTLR_ELx_EE : SCTLR_EL1_E0E);
}

#include "fuzz_peek.h"

#endif /* GUEST_CALLCHAIN_ARM64_KVM_HOST_H */
