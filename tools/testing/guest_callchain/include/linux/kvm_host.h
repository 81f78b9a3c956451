/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the kernel that arch/x86/kvm/stacktrace.c needs, for user space.
 */
#ifndef GUEST_CALLCHAIN_KVM_HOST_H
#define GUEST_CALLCHAIN_KVM_HOST_H

#include "callchain_oracle.h"
#include "fuzz_kernel.h"

#define PFERR_USER_MASK		4
#define MSR_KERNEL_GS_BASE	0xc0000102

enum { VCPU_SREG_CS, VCPU_SREG_SS, VCPU_SREG_GS };

enum {
	VCPU_REGS_RAX, VCPU_REGS_RCX, VCPU_REGS_RDX, VCPU_REGS_RBX,
	VCPU_REGS_RSP, VCPU_REGS_RBP, VCPU_REGS_RSI, VCPU_REGS_RDI,
	VCPU_REGS_R8,
	NR_VCPU_REGS = VCPU_REGS_R8 + 8,
};

enum {
	PERF_REG_X86_AX, PERF_REG_X86_BX, PERF_REG_X86_CX, PERF_REG_X86_DX,
	PERF_REG_X86_SI, PERF_REG_X86_DI, PERF_REG_X86_BP, PERF_REG_X86_SP,
	PERF_REG_X86_IP, PERF_REG_X86_FLAGS, PERF_REG_X86_CS, PERF_REG_X86_SS,
	PERF_REG_X86_DS, PERF_REG_X86_ES, PERF_REG_X86_FS, PERF_REG_X86_GS,
	PERF_REG_X86_R8, PERF_REG_X86_R15 = PERF_REG_X86_R8 + 7,
};

struct kvm_segment {
	u16 selector;
};

struct kvm_vcpu {
	unsigned int vcpu_id;
	struct kvm *kvm;
	struct kvm_peek peek;
	struct {
		bool guest_state_protected;
	} arch;
	struct oracle_vcpu state;
	/* Only for reads; RSP and RBP are in @state. */
	u64 regs[NR_VCPU_REGS];
	u64 rflags;
	u64 gs_base;
	u64 kernel_gs_base;
	u16 selectors[2];
};

gpa_t kvm_mmu_gva_to_gpa_peek(struct kvm_vcpu *vcpu, gva_t gva, u64 access);
static inline void kvm_request_l1tf_flush_l1d(void) {}

#define kvm_x86_call(func)		fuzz_##func
#define kvm_arch_has_private_mem(kvm)	((void)(kvm), false)
#define fuzz_has_encrypted_mem(vcpu)	((void)(vcpu), false)

static inline int fuzz_get_cpl(struct kvm_vcpu *vcpu)
{
	return vcpu->state.cpl;
}

static inline void fuzz_get_cs_db_l_bits(struct kvm_vcpu *vcpu, int *db, int *l)
{
	*db = vcpu->state.cs_d;
	*l = vcpu->state.cs_l;
}

static inline bool is_64_bit_mode(struct kvm_vcpu *vcpu)
{
	return vcpu->state.lma && vcpu->state.cs_l;
}

static inline u8 vcpu_virt_addr_bits(struct kvm_vcpu *vcpu)
{
	return vcpu->state.la57 ? 57 : 48;
}

static inline bool __is_canonical_address(u64 addr, u8 va_bits)
{
	return (u64)sign_extend64(addr, va_bits - 1) == addr;
}

static inline bool is_noncanonical_address(u64 la, struct kvm_vcpu *vcpu, unsigned int flags)
{
	return !__is_canonical_address(la, vcpu_virt_addr_bits(vcpu));
}

static inline u64 kvm_register_read_raw(struct kvm_vcpu *vcpu, int reg)
{
	return reg == VCPU_REGS_RBP ? vcpu->state.rbp : vcpu->regs[reg];
}

static inline u64 kvm_rbp_read_raw(struct kvm_vcpu *vcpu)
{
	return vcpu->state.rbp;
}

static inline u64 kvm_rsp_read(struct kvm_vcpu *vcpu)
{
	return vcpu->state.rsp & (is_64_bit_mode(vcpu) ? U64_MAX : U32_MAX);
}

static inline u64 kvm_get_segment_base(struct kvm_vcpu *vcpu, int seg)
{
	return seg == VCPU_SREG_CS ? vcpu->state.cs_base :
	       seg == VCPU_SREG_SS ? vcpu->state.ss_base : vcpu->gs_base;
}

static inline void kvm_get_segment(struct kvm_vcpu *vcpu, struct kvm_segment *segment, int seg)
{
	segment->selector = vcpu->selectors[seg];
}

static inline int kvm_msr_read(struct kvm_vcpu *vcpu, u32 msr, u64 *data)
{
	*data = msr == MSR_KERNEL_GS_BASE ? vcpu->kernel_gs_base : 0;
	return 0;
}

static inline u64 kvm_get_linear_rip(struct kvm_vcpu *vcpu)
{
	return oracle_ip(&vcpu->state);
}

static inline u64 kvm_get_rflags(struct kvm_vcpu *vcpu)
{
	return vcpu->rflags;
}

static inline u64 kvm_read_cr3(struct kvm_vcpu *vcpu)
{
	return vcpu->state.cr3;
}

#include "fuzz_peek.h"

#endif /* GUEST_CALLCHAIN_KVM_HOST_H */
