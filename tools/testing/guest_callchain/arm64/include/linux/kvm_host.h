/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the kernel that arch/arm64/kvm/stacktrace_guest.c needs, for user space.  The
 * fuzzer defines the functions that access the guest's memory.
 */
#ifndef GUEST_CALLCHAIN_ARM64_KVM_HOST_H
#define GUEST_CALLCHAIN_ARM64_KVM_HOST_H

#include <linux/types.h>

#include "callchain_oracle.h"

#define __force
#define __aligned(x)		__attribute__((__aligned__(x)))
#define likely(x)		(x)
#define ARRAY_SIZE(x)		(sizeof(x) / sizeof((x)[0]))
#define static_assert(expr)	_Static_assert(expr, #expr)
#define READ_ONCE(x)		((__typeof__(x))fuzz_read_once(&(x), sizeof(x)))

#define EFAULT			14
#define U64_MAX			UINT64_MAX
#define SZ_4K			0x1000
#define PAGE_SHIFT		12
#define PAGE_SIZE		(1UL << PAGE_SHIFT)

#define BIT(nr)			(1UL << (nr))
#define GENMASK_ULL(h, l)	((~0ULL >> (63 - (h))) & (~0ULL << (l)))
#define FIELD_GET(mask, reg)	(((reg) & (mask)) >> __builtin_ctzll(mask))
#define IS_ALIGNED(x, a)	(((x) & ((u64)(a) - 1)) == 0)
#define ALIGN_DOWN(x, a)	((x) & ~((u64)(a) - 1))
#define PAGE_MASK		(~(PAGE_SIZE - 1))
#define page_address(page)	((void *)(page))
#define virt_to_page(kva)	((struct page *)((unsigned long)(kva) & PAGE_MASK))
#define offset_in_page(p)	((unsigned long)(p) & (PAGE_SIZE - 1))
#define clamp(x, lo, hi)	((x) < (lo) ? (lo) : (x) > (hi) ? (hi) : (x))

typedef u64 gva_t;
typedef u64 gpa_t;
typedef u64 gfn_t;
typedef u64 __be64;
typedef u64 __le64;

#define be64_to_cpu(x)		__builtin_bswap64(x)
#define le64_to_cpu(x)		(x)

static inline s64 sign_extend64(u64 value, int index)
{
	return (s64)(value << (63 - index)) >> (63 - index);
}

/* The same values as in arm64's headers. */
#define PSR_MODE_EL0t		0x0
#define PSR_MODE_EL1h		0x5
#define PSR_MODE_MASK		0xf
#define PSR_MODE32_BIT		0x10
#define PSR_AA32_MODE_USR	0x10
#define PSR_AA32_MODE_MASK	0x1f
#define PSR_AA32_E_BIT		0x200
#define PSR_I_BIT		0x80
#define PSR_PAN_BIT		0x400000

#define SCTLR_ELx_M		BIT(0)
#define SCTLR_EL1_E0E		BIT(24)
#define SCTLR_ELx_EE		BIT(25)

#define TCR_T0SZ_MASK		GENMASK_ULL(5, 0)
#define TCR_T1SZ_MASK		GENMASK_ULL(21, 16)
#define TCR_TBI0		BIT(37)
#define TCR_TBI1		BIT(38)

#define PERF_CONTEXT_MAX	(-4095ULL)

enum {
	PERF_GUEST_CALLCHAIN_NEVER,
	PERF_GUEST_CALLCHAIN_IF_ALLOWED,
	PERF_GUEST_CALLCHAIN_UNLESS_FORBIDDEN,
};

enum kvm_callchain_policy {
	KVM_CALLCHAIN_UNDECIDED,
	KVM_CALLCHAIN_ALLOWED,
	KVM_CALLCHAIN_FORBIDDEN,
};

enum kvm_callchain_phase {
	CALLCHAIN_CLOSED,
	CALLCHAIN_REQUEST,
	CALLCHAIN_WALK,
};

enum vcpu_sysreg {
	TCR_EL1,
	SCTLR_EL1,
	ELR_EL1,
	SPSR_EL1,
	SP_EL1,
	NR_SYS_REGS,
};

struct kvm {
	int srcu;
	enum kvm_callchain_policy callchain_policy;
};

enum { PERF_GUEST_ACTIVE = 1, PERF_GUEST_USER };

struct perf_guest_callchain_request {
	unsigned int max;
	unsigned int guest_state;
	u64 guest_ip;
};

struct perf_guest_stack;
struct kvm_memory_slot;
struct page;

struct user_pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
};

struct kvm_vcpu {
	struct kvm *kvm;
	struct {
		u64 callchain_walks;
		u64 callchain_frames;
		u64 callchain_ends[7];
	} stat;
	struct {
		u8 callchain_phase;
		struct perf_guest_callchain_request callchain_request;
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

int kvm_peek_guest(struct kvm_vcpu *vcpu, gpa_t gpa, u64 *val);
unsigned int kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max,
				      unsigned int *nr_kernel);
struct perf_guest_callchain_request *kvm_arch_vcpu_callchain_request(struct kvm_vcpu *vcpu);
bool kvm_arch_vcpu_stack_begin(struct kvm_vcpu *vcpu, struct perf_guest_stack *stack,
			       unsigned int size);
void kvm_arch_vcpu_stack_end(struct kvm_vcpu *vcpu, struct perf_guest_stack *stack);

/* Defined in fuzz_stack_walk.c: the guest's memory and registers, and the host's state. */
extern int sysctl_perf_event_guest_callchain;
bool is_protected_kvm_enabled(void);
bool preemptible(void);
unsigned long hardirq_count(void);
int __kvm_translate_va(struct kvm_vcpu *vcpu, struct s1_walk_info *wi,
		       struct s1_walk_result *wr, u64 va);
struct kvm_memory_slot *kvm_vcpu_gfn_to_memslot(struct kvm_vcpu *vcpu, gfn_t gfn);
bool kvm_is_visible_memslot(struct kvm_memory_slot *slot);
unsigned long __gfn_to_hva_memslot(const struct kvm_memory_slot *slot, gfn_t gfn);
bool get_user_page_fast_only(unsigned long addr, unsigned int flags, struct page **page);
struct page *kvm_get_swapped_page(unsigned long hva);
void put_page(struct page *page);
u64 fuzz_read_once(const void *from, size_t size);
u64 vcpu_read_sys_reg(const struct kvm_vcpu *vcpu, enum vcpu_sysreg reg);
u64 fuzz_sp_el1_on_cpu(void);

#define HARDIRQ_OFFSET		0x10000

#define read_sysreg(reg)	fuzz_##reg##_on_cpu()
#define __vcpu_sys_reg(v, r)	((v)->arch.sys_regs[r])
#define SYSREGS_ON_CPU		sysregs_on_cpu
#define vcpu_get_flag(v, flag)	((v)->arch.flag)
#define vcpu_has_ptrauth(v)	((v)->state.pauth)
#define vcpu_has_nv(v)		((v)->has_nv)

/* The walk uses only one kind of guard: it locks SRCU until the end of the block. */
#define guard(_name)		fuzz_guard_##_name
#define fuzz_guard_srcu(_lock)						\
	__attribute__((__cleanup__(fuzz_srcu_unlock), __unused__))	\
	int *fuzz_srcu = fuzz_srcu_lock(_lock)

static inline int *fuzz_srcu_lock(int *srcu)
{
	++*srcu;
	return srcu;
}

static inline void fuzz_srcu_unlock(int **srcu)
{
	--**srcu;
}

static inline gfn_t gpa_to_gfn(gpa_t gpa)
{
	return gpa >> PAGE_SHIFT;
}

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

#endif /* GUEST_CALLCHAIN_ARM64_KVM_HOST_H */
