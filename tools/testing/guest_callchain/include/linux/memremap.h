/* SPDX-License-Identifier: GPL-2.0-only */
/* The VMM of fuzz_stack_walk.c maps no memory of a PCI device. */
#ifndef GUEST_CALLCHAIN_MEMREMAP_H
#define GUEST_CALLCHAIN_MEMREMAP_H

#include <linux/mm.h>

static inline bool is_pci_p2pdma_page(const struct page *page)
{
	return false;
}

#endif /* GUEST_CALLCHAIN_MEMREMAP_H */
