/* SPDX-License-Identifier: GPL-2.0-only */
/* The VMM's mappings of memory, and the context of the walk; see fuzz_stack_walk.c. */
#ifndef GUEST_CALLCHAIN_MM_H
#define GUEST_CALLCHAIN_MM_H

#include <linux/types.h>

struct page;

bool in_nmi(void);
struct page *kvm_get_swapped_page(unsigned long hva);
void put_page(struct page *page);

/* The host's page tables: all upper levels are present, the fuzzer makes the PTEs. */
typedef unsigned long pgd_t, p4d_t, pud_t, pmd_t, pte_t;

extern const unsigned long fuzz_host_table;
const pte_t *fuzz_host_pte(unsigned long addr);

#define READ_ONCE(x)			(x)
#define pgd_offset(mm, addr)		((void)(mm), &fuzz_host_table)
#define p4d_offset(pgd, addr)		((void)(pgd), &fuzz_host_table)
#define pud_offset(p4d, addr)		((void)(p4d), &fuzz_host_table)
#define pmd_offset(pud, addr)		((void)(pud), &fuzz_host_table)
#define pte_offset_kernel(pmd, addr)	((void)(pmd), fuzz_host_pte(addr))
#define pgd_present(pgd)		(pgd)
#define p4d_present(p4d)		(p4d)
#define pud_present(pud)		(pud)
#define pmd_present(pmd)		(pmd)
#define pte_present(pte)		(pte)
#define pud_leaf(pud)			((void)(pud), false)
#define pmd_leaf(pmd)			((void)(pmd), false)
#define pud_special(pud)		((void)(pud), false)
#define pmd_special(pmd)		((void)(pmd), false)
#define pte_special(pte)		((void)(pte), false)
#define pte_page(pte)			((void)(pte), (struct page *)NULL)

#define local_irq_save(flags)		((flags) = 0)
#define local_irq_restore(flags)	((void)(flags))

static inline void pagefault_disable(void)
{
}

static inline void pagefault_enable(void)
{
}

#endif /* GUEST_CALLCHAIN_MM_H */
