/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_PAGE_CACHE_H
#define __PERF_GUEST_PAGE_CACHE_H

#include <stdbool.h>
#include <linux/types.h>

struct btf;
struct guest_kernel;
struct guest_memory;

/**
 * struct guest_page_cache - how to find pages of files in a guest's memory
 * @mem:	the guest's memory
 * @is_arm64:	true if the guest's programs are arm64's, false if they are x86-64's
 * @vmemmap:	where the guest's kernel has an array of struct page, one for each page of RAM
 * @page_bits:	log2 of how many times as large as GUEST_PAGE_SIZE such a page is
 * @page_size:	the size of struct page, in bytes; here and below, offsets are in bytes, too
 * @internal:	the lowest bits of entries that are not pages
 * @root:	in struct address_space: the root of the tree of cached pages
 * @shift:	in the tree's nodes: how many bits of an index are below those that choose a slot
 * @slots:	... the array of slots
 * @slot_bits:	how many bits of an index choose a slot
 * @uptodate:	the flag that says that a folio has the file's contents
 * @flags:	in struct folio: its flags
 * @mapping:	... the struct address_space that the folio belongs to
 * @index:	... the index of its first page
 * @image:	address of a file that the kernel has in its own memory, in place of a cache; zero
 *		if there is none
 * @image_size:	its size
 */
struct guest_page_cache {
	struct guest_memory	*mem;
	bool			is_arm64;
	u64			vmemmap;
	u32			page_bits;
	u32			page_size;
	u64			internal;
	u32			root;
	u32			shift;
	u32			slots;
	u32			slot_bits;
	u64			uptodate;
	u32			flags;
	u32			mapping;
	u32			index;
	u64			image;
	u64			image_size;
};

bool guest_page_cache__init(struct guest_page_cache *cache, const struct guest_kernel *kernel,
			    const struct btf *btf, u64 vmemmap);
bool guest_page_cache__find(const struct guest_page_cache *cache, u64 mapping, u64 index,
			    u64 *pfn);

#endif /* __PERF_GUEST_PAGE_CACHE_H */
