/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * x86's part of the midwalk test.
 */
#ifndef GUEST_CALLCHAIN_MIDWALK_ARCH_H
#define GUEST_CALLCHAIN_MIDWALK_ARCH_H

#include "guest_stack.h"

/* In an entry for a 4 KiB page, the huge-page bit has another meaning: PAT. */
#define LEAF_IGNORES_HUGE	true

#define PTE_ADDR		PHYSICAL_PAGE_MASK

static inline bool has_huge_pages(int level)
{
	return level == PG_LEVEL_2M || (level == PG_LEVEL_1G && kvm_cpu_has(X86_FEATURE_GBPAGES));
}

/* In a huge page's entry, these bits of a table's address are reserved. */
static inline bool never_huge(u64 pte)
{
	return pte & GENMASK_ULL(20, 13);
}

#endif /* GUEST_CALLCHAIN_MIDWALK_ARCH_H */
