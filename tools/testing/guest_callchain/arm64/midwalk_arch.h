/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * arm64's part of the midwalk test.
 */
#ifndef GUEST_CALLCHAIN_MIDWALK_ARCH_H
#define GUEST_CALLCHAIN_MIDWALK_ARCH_H

#include "guest_stack.h"

/* The last level has no blocks: there, an entry that is marked as a block is invalid. */
#define LEAF_IGNORES_HUGE	false

#define PTE_ADDR		GENMASK_ULL(47, 12)

#define PG_LEVEL_SHIFT(_level)	(PAGE_SHIFT + 9 * ((_level) - PG_LEVEL_4K))
#define PG_LEVEL_SIZE(_level)	BIT_ULL(PG_LEVEL_SHIFT(_level))

static inline bool has_huge_pages(int level)
{
	return level == PG_LEVEL_2M || level == PG_LEVEL_1G;
}

/* A block needs the Access flag, which entries for tables don't have. */
static inline bool never_huge(u64 pte)
{
	return !(pte & PTE_AF);
}

#endif /* GUEST_CALLCHAIN_MIDWALK_ARCH_H */
