/* SPDX-License-Identifier: GPL-2.0-only */
/* Which pages of the VMM's are memory, and the context that asks; see fuzz_stack_walk.c. */
#ifndef GUEST_CALLCHAIN_MM_H
#define GUEST_CALLCHAIN_MM_H

#include <linux/types.h>

struct page;

#define FOLL_NOWAIT	1
#define FOLL_DUMP	2

bool in_nmi(void);
bool in_task(void);
bool get_user_page_fast_only(unsigned long addr, unsigned int flags, struct page **page);
long get_user_pages_unlocked(unsigned long start, unsigned long nr_pages, struct page **pages,
			     unsigned int flags);
void put_page(struct page *page);

static inline void pagefault_disable(void)
{
}

static inline void pagefault_enable(void)
{
}

#endif /* GUEST_CALLCHAIN_MM_H */
