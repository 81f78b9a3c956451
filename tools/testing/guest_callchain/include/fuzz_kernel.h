/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the kernel that virt/kvm/peek.c and both architectures' walks need, for user space.
 * The functions that reach the guest's memory are in fuzz_guest.c.
 */
#ifndef GUEST_CALLCHAIN_FUZZ_KERNEL_H
#define GUEST_CALLCHAIN_FUZZ_KERNEL_H

#include <string.h>
#include <linux/types.h>

#define __aligned(x)		__attribute__((__aligned__(x)))
#define __force
#define __user
#define unlikely(x)		__builtin_expect(!!(x), 0)
#define ARRAY_SIZE(x)		(sizeof(x) / sizeof((x)[0]))

#define EFAULT			14
#define ERANGE			34
#define U32_MAX			UINT32_MAX
#define U64_MAX			UINT64_MAX

#define BITS_PER_BYTE		8
#define BITS_PER_TYPE(x)	(sizeof(x) * BITS_PER_BYTE)
#define BIT(nr)			(1UL << (nr))
#define __ffs64(x)		__builtin_ctzll(x)
#define BIT_ULL(nr)		(1ULL << (nr))
#define GENMASK_ULL(h, l)	((~0ULL >> (63 - (h))) & (~0ULL << (l)))
#define FIELD_GET(mask, reg)	(((reg) & (mask)) >> __builtin_ctzll(mask))
#define ALIGN_DOWN(x, a)	((x) & ~((u64)(a) - 1))
#define IS_ALIGNED(x, a)	(((x) & ((u64)(a) - 1)) == 0)
#define min_t(type, x, y)	((type)(x) < (type)(y) ? (type)(x) : (type)(y))
#define clamp(x, lo, hi)	((x) < (lo) ? (lo) : (x) > (hi) ? (hi) : (x))
#define lower_32_bits(x)	((u32)(x))

#define SZ_4K			0x1000
#define PAGE_SHIFT		12
#define PAGE_SIZE		(1UL << PAGE_SHIFT)
#define PAGE_MASK		(~(PAGE_SIZE - 1))
#define offset_in_page(p)	((unsigned long)(p) & ~PAGE_MASK)

typedef u64 gva_t;
typedef u64 gpa_t;
typedef u64 gfn_t;

#define INVALID_GPA		(~0ULL)

static inline gfn_t gpa_to_gfn(gpa_t gpa)
{
	return gpa >> PAGE_SHIFT;
}

static inline s64 sign_extend64(u64 value, int index)
{
	return (s64)(value << (63 - index)) >> (63 - index);
}

struct kvm_memory_slot;
struct kvm_vcpu;
struct mm_struct;

struct kvm {
	struct mm_struct *mm;
};

/* As in mm.h. */
#define VM_PFNMAP	0x00000400UL
#define VM_IO		0x00004000UL
#define VM_MIXEDMAP	0x10000000UL

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
};

/* As in perf's headers. */
#define PERF_CONTEXT_MAX	(-4095ULL)

enum { PERF_GUEST_ACTIVE = 1, PERF_GUEST_USER };
enum { PERF_SAMPLE_REGS_ABI_NONE, PERF_SAMPLE_REGS_ABI_32, PERF_SAMPLE_REGS_ABI_64 };

struct perf_output_handle {
	u8 *addr;
};

/* Defined in fuzz_guest.c. */
struct kvm_memory_slot *kvm_vcpu_gfn_to_memslot(struct kvm_vcpu *vcpu, gfn_t gfn);
bool kvm_is_visible_memslot(const struct kvm_memory_slot *slot);
unsigned long __gfn_to_hva_memslot(const struct kvm_memory_slot *slot, gfn_t gfn);
void pagefault_disable(void);
void pagefault_enable(void);
struct vm_area_struct *lock_vma_under_rcu(struct mm_struct *mm, unsigned long addr);
void vma_end_read(struct vm_area_struct *vma);
bool user_read_access_begin(const void __user *from, size_t size);
void user_read_access_end(void);
unsigned int perf_output_copy_user(struct perf_output_handle *handle, const void __user *buf,
				   unsigned int len);
int fuzz_get_user(u64 *word, const void __user *from, unsigned int size, bool unsafe);

/* A read that faults stores zero. */
#define fuzz_get(x, ptr, unsafe)						\
({										\
	u64 _word;								\
	int _error = fuzz_get_user(&_word, ptr, sizeof(*(ptr)), unsafe);	\
										\
	(x) = (__typeof__(x))_word;						\
	_error;									\
})

#define __get_user(x, ptr)	fuzz_get(x, ptr, false)
#define unsafe_get_user(x, ptr, label)						\
do {										\
	if (fuzz_get(x, ptr, true))						\
		goto label;							\
} while (0)

/* As in kvm_host.h and uapi/linux/perf_event.h, from which the Makefile makes it. */
#include "fuzz_types.h"

#endif /* GUEST_CALLCHAIN_FUZZ_KERNEL_H */
