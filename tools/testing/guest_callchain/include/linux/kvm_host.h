/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the kernel that arch/x86/kvm/stacktrace.c needs, for user space.  The
 * fuzzer defines all functions that access a guest's memory.
 */
#ifndef GUEST_CALLCHAIN_KVM_HOST_H
#define GUEST_CALLCHAIN_KVM_HOST_H

#include <linux/types.h>

#include "callchain_oracle.h"
#include "stacktrace.h"

#define __user
#define __uninitialized
#define noinline		__attribute__((__noinline__))
#define likely(x)		(x)
#define unlikely(x)		(x)
#define OPTIMIZER_HIDE_VAR(var)	asm volatile("" : "+r" (var))
#define __aligned(x)		__attribute__((__aligned__(x)))
#define ARRAY_SIZE(x)		(sizeof(x) / sizeof((x)[0]))

#define U16_MAX			UINT16_MAX
#define U32_MAX			UINT32_MAX
#define U64_MAX			UINT64_MAX

#define BIT(nr)			(1UL << (nr))
#define BIT_ULL(nr)		(1ULL << (nr))
#define GENMASK_ULL(h, l)	((~0ULL >> (63 - (h))) & (~0ULL << (l)))
#define GENMASK(h, l)		GENMASK_ULL(h, l)
#define IS_ALIGNED(x, a)	(((x) & ((u64)(a) - 1)) == 0)
#define min_t(type, x, y)	((type)(x) < (type)(y) ? (type)(x) : (type)(y))

#define PAGE_SHIFT		12
#define PAGE_SIZE		(1UL << PAGE_SHIFT)
#define PAGE_MASK		(~(PAGE_SIZE - 1))
#define PAGE_ALIGN(p)		(((p) + PAGE_SIZE - 1) & PAGE_MASK)
#define offset_in_page(p)	((unsigned long)(p) & ~PAGE_MASK)

#define PFERR_USER_MASK		4
#define INVALID_GPA		(~0ULL)

#define X86_EFLAGS_FIXED	BIT(1)
#define X86_EFLAGS_IF		BIT(9)
#define X86_EFLAGS_VM		BIT(17)

#define SEGMENT_RPL_MASK	3
#define USER_RPL		3
#define __USER32_CS		0x23

enum {
	VCPU_SREG_CS,
	VCPU_SREG_SS,
};

typedef u64 gva_t;
typedef u64 gpa_t;
typedef u64 gfn_t;

/* As on a 64-bit host. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

struct mm_struct;

/* As in the kernel; the sysctl has its default value. */
enum {
	PERF_GUEST_CALLCHAIN_NEVER,
	PERF_GUEST_CALLCHAIN_IF_ALLOWED,
	PERF_GUEST_CALLCHAIN_UNLESS_FORBIDDEN,
};

static const int sysctl_perf_event_guest_callchain = PERF_GUEST_CALLCHAIN_UNLESS_FORBIDDEN;

enum kvm_callchain_policy {
	KVM_CALLCHAIN_UNDECIDED,
	KVM_CALLCHAIN_ALLOWED,
	KVM_CALLCHAIN_FORBIDDEN,
};

struct kvm {
	struct mm_struct *mm;
	int srcu;
	enum kvm_callchain_policy callchain_policy;
};

struct kvm_memory_slot;

enum { PERF_GUEST_ACTIVE = 1, PERF_GUEST_USER };

struct perf_guest_callchain_request {
	unsigned int max;
	unsigned int guest_state;
	u64 guest_ip;
};

struct kvm_vcpu_stat {
	u64 callchain_walks;
	u64 callchain_frames;
	u64 callchain_ends[UNWIND_END_NO_MEMORY];
};

struct kvm_vcpu {
	struct kvm *kvm;
	unsigned int vcpu_id;
	struct kvm_vcpu_stat stat;
	struct {
		bool guest_state_protected;
		u8 handling_intr_from_guest;
		struct perf_guest_callchain_request callchain_request;
	} arch;
	struct oracle_vcpu state;
};

#define PERF_CONTEXT_MAX	(-4095ULL)

enum { PERF_SAMPLE_REGS_ABI_NONE, PERF_SAMPLE_REGS_ABI_32, PERF_SAMPLE_REGS_ABI_64 };

#define PERF_GUEST_STACK_MAX_PAGES	18

struct perf_guest_stack {
	struct perf_guest_stack_info {
		u64 abi;
		u64 ip;
		u64 sp;
		u64 fp;
		u64 flags;
		u64 root;
		struct {
			u64 addr;
			u64 size;
		} pieces[2];
	} info;
	unsigned int nr_pages;
	struct {
		const void *start;
		unsigned int size;
	} pages[PERF_GUEST_STACK_MAX_PAGES];
	int priv;
};

#define static_assert(expr)	_Static_assert(expr, #expr)

unsigned int kvm_arch_vcpu_stack_walk(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max,
				      unsigned int *nr_kernel);
struct perf_guest_callchain_request *kvm_arch_vcpu_callchain_request(struct kvm_vcpu *vcpu);
bool kvm_arch_vcpu_stack_begin(struct kvm_vcpu *vcpu, struct perf_guest_stack *stack,
			       unsigned int size);
void kvm_arch_vcpu_stack_end(struct kvm_vcpu *vcpu, struct perf_guest_stack *stack);

/* Functions of fuzz_stack_walk.c: they access the guest's memory and check the walk. */
gpa_t kvm_mmu_gva_to_gpa_peek(struct kvm_vcpu *vcpu, gva_t gva, u64 access);
struct kvm_memory_slot *kvm_vcpu_gfn_to_memslot(struct kvm_vcpu *vcpu, gfn_t gfn);
unsigned long __gfn_to_hva_memslot(const struct kvm_memory_slot *slot, gfn_t gfn);
bool kvm_handling_nmi_from_guest(struct kvm_vcpu *vcpu);
void kvm_load_host_pkru(struct kvm_vcpu *vcpu);
void kvm_load_guest_pkru(struct kvm_vcpu *vcpu);
void trace_kvm_stack_walk(unsigned int vcpu_id, unsigned int frames, unsigned int reads,
			  unsigned int walks, enum guest_unwind_end end);
int fuzz_get_user(const void *uptr, unsigned int size, u64 *word);

#define __get_user(x, ptr)						\
({									\
	u64 __word = 0;							\
	int __r = fuzz_get_user(ptr, sizeof(*(ptr)), &__word);		\
									\
	(x) = __word;							\
	__r;								\
})

#define user_access_begin(ptr, len)	((void)(ptr), true)
#define user_access_end()		((void)0)
#define unsafe_get_user(x, ptr, label)					\
do {									\
	if (__get_user(x, ptr))						\
		goto label;						\
} while (0)

static inline gfn_t gpa_to_gfn(gpa_t gpa)
{
	return gpa >> PAGE_SHIFT;
}

static inline bool kvm_arch_has_private_mem(struct kvm *kvm)
{
	return false;
}

static inline bool fuzz_has_encrypted_mem(struct kvm_vcpu *vcpu)
{
	return false;
}

static inline bool kvm_is_visible_memslot(struct kvm_memory_slot *slot)
{
	return slot;
}

static inline int srcu_read_lock(int *srcu)
{
	return ++*srcu;
}

static inline void srcu_read_unlock(int *srcu, int idx)
{
	*srcu = idx - 1;
}

#define __srcu_read_lock	srcu_read_lock
#define __srcu_read_unlock	srcu_read_unlock

static inline bool __is_canonical_address(u64 addr, u8 va_bits)
{
	return (u64)((int64_t)(addr << (64 - va_bits)) >> (64 - va_bits)) == addr;
}

static inline u8 vcpu_virt_addr_bits(struct kvm_vcpu *vcpu)
{
	return vcpu->state.la57 ? 57 : 48;
}

static inline bool is_long_mode(struct kvm_vcpu *vcpu)
{
	return vcpu->state.lma;
}

static inline int fuzz_get_cpl(struct kvm_vcpu *vcpu)
{
	return vcpu->state.cpl;
}

static inline void fuzz_get_cs_db_l_bits(struct kvm_vcpu *vcpu, int *db, int *l)
{
	*db = vcpu->state.cs_d;
	*l = vcpu->state.cs_l;
}

#define kvm_x86_call(func) fuzz_##func

static inline u64 kvm_reg_mode_mask(struct kvm_vcpu *vcpu)
{
	return vcpu->state.lma && vcpu->state.cs_l ? U64_MAX : U32_MAX;
}

static inline u64 kvm_rbp_read_raw(struct kvm_vcpu *vcpu)
{
	return vcpu->state.rbp;
}

static inline u64 kvm_rcx_read_raw(struct kvm_vcpu *vcpu)
{
	return vcpu->state.rcx;
}

static inline u64 kvm_r11_read_raw(struct kvm_vcpu *vcpu)
{
	return vcpu->state.r11;
}

static inline u64 kvm_rsp_read(struct kvm_vcpu *vcpu)
{
	return vcpu->state.rsp & kvm_reg_mode_mask(vcpu);
}

static inline u64 kvm_get_segment_base(struct kvm_vcpu *vcpu, int seg)
{
	return seg == VCPU_SREG_CS ? vcpu->state.cs_base : vcpu->state.ss_base;
}

static inline u64 kvm_rip_read(struct kvm_vcpu *vcpu)
{
	return vcpu->state.rip & kvm_reg_mode_mask(vcpu);
}

/* Only shown in dumps. */
static inline u64 kvm_get_rflags(struct kvm_vcpu *vcpu)
{
	return X86_EFLAGS_FIXED;
}

static inline u64 kvm_read_cr3(struct kvm_vcpu *vcpu)
{
	return 0;
}

/* For dumps, and the request of a deferred walk.  Deferred walks themselves are not fuzzed. */
#define is_64_bit_mode(vcpu)		((void)(vcpu), true)

static inline u64 kvm_get_linear_rip(struct kvm_vcpu *vcpu)
{
	return kvm_rip_read(vcpu);
}

#endif /* GUEST_CALLCHAIN_KVM_HOST_H */
