// SPDX-License-Identifier: GPL-2.0
/*
 * Find pages of files in a guest's page cache.  No process need have a page mapped, but the guest
 * may reclaim it at any time.  The guest may have written anything to its structures.
 */
#include <string.h>

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/log2.h>

#include <bpf/btf.h>

#include "guest-btf.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-page-cache.h"

/*
 * Entries of an xarray, see include/linux/xarray.h.  Before Linux 4.20, pages were in a radix tree,
 * which marks the addresses of its nodes by another bit, and had no large folios of files on disks.
 */
#define XA_TYPE_MASK	3
#define XA_INTERNAL	2
#define RADIX_INTERNAL	1
#define XA_MAX_INTERNAL	4096

/* No index has more bits. */
#define MAX_SHIFT	60

/* Find the flag of folios that have been read; return zero if there is none. */
static u64 find_uptodate(const struct btf *btf)
{
	int id = btf__find_by_name_kind(btf, "pageflags", BTF_KIND_ENUM);
	const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, id);
	const struct btf_enum *flag = type ? btf_enum(type) : NULL;

	for (u32 i = 0; flag && i < btf_vlen(type); i++) {
		const char *name = btf__name_by_offset(btf, flag[i].name_off);

		if (name && !strcmp(name, "PG_uptodate") && flag[i].val >= 0 && flag[i].val < 64)
			return BIT_ULL(flag[i].val);
	}
	return 0;
}

/**
 * guest_page_cache__init - find out how a guest's kernel caches pages of files
 * @cache:	to be filled in
 * @kernel:	the kernel
 * @btf:	its types
 * @vmemmap:	where the struct page of guest-physical address zero is, or would be
 *
 * Return: true if @btf has all that is needed.
 */
bool guest_page_cache__init(struct guest_page_cache *cache, const struct guest_kernel *kernel,
			    const struct btf *btf, u64 vmemmap)
{
	int space = btf__find_by_name_kind(btf, "address_space", BTF_KIND_STRUCT);
	int node = btf__find_by_name_kind(btf, "xa_node", BTF_KIND_STRUCT);
	int folio = btf__find_by_name_kind(btf, "folio", BTF_KIND_STRUCT);
	int page = btf__find_by_name_kind(btf, "page", BTF_KIND_STRUCT);
	const struct btf_type *slots;
	u32 head;
	int id;

	/* Before Linux 5.16, struct page has what struct folio has now. */
	if (folio < 0)
		folio = page;
	*cache = (struct guest_page_cache) {
		.mem = kernel->mem, .is_arm64 = kernel->info.is_arm64, .vmemmap = vmemmap,
		.internal = XA_INTERNAL, .page_bits = kernel->info.page_shift - GUEST_PAGE_SHIFT,
	};
	id = guest_btf__find(btf, space, "i_pages", &cache->root);
	if (page < 0 || id < 0)
		return false;
	id = btf__resolve_type(btf, id);
	if (guest_btf__find(btf, id, "xa_head", &head) < 0) {
		if (guest_btf__find(btf, id, "rnode", &head) < 0)
			return false;
		node = btf__find_by_name_kind(btf, "radix_tree_node", BTF_KIND_STRUCT);
		cache->internal = RADIX_INTERNAL;
	}
	if (guest_btf__find(btf, node, "shift", &cache->shift) < 0 ||
	    guest_btf__find(btf, folio, "flags", &cache->flags) < 0 ||
	    guest_btf__find(btf, folio, "mapping", &cache->mapping) < 0 ||
	    guest_btf__find(btf, folio, "index", &cache->index) < 0)
		return false;

	cache->root += head;
	cache->uptodate = find_uptodate(btf);
	cache->page_size = btf__type_by_id(btf, page)->size;
	id = guest_btf__find(btf, node, "slots", &cache->slots);
	slots = id < 0 ? NULL : btf__type_by_id(btf, id);
	if (!slots || !btf_is_array(slots) || !is_power_of_2(btf_array(slots)->nelems))
		return false;

	cache->slot_bits = ilog2(btf_array(slots)->nelems);
	return cache->page_size && cache->slot_bits && cache->uptodate;
}

static bool read_u64(const struct guest_page_cache *cache, u64 gva, u64 *value)
{
	return guest_memory__read(cache->mem, gva, value, sizeof(*value));
}

static bool is_internal(const struct guest_page_cache *cache, u64 entry)
{
	return (entry & XA_TYPE_MASK) == cache->internal;
}

static bool is_node(const struct guest_page_cache *cache, u64 entry)
{
	return is_internal(cache, entry) && entry > XA_MAX_INTERNAL;
}

/*
 * Find the entry of a page, and put the index of the first page that it is for into @first; return
 * zero if there is none.
 */
static u64 find_entry(const struct guest_page_cache *cache, u64 mapping, u64 index, u64 *first)
{
	u64 nr_slots = 1ULL << cache->slot_bits, entry, slot;
	unsigned int above = MAX_SHIFT + 1;
	u8 shift;

	*first = 0;
	if (!read_u64(cache, mapping + cache->root, &entry))
		return 0;
	/* Without a node, the tree has no more than the first page. */
	if (!is_node(cache, entry))
		return index ? 0 : entry;

	while (is_node(cache, entry)) {
		u64 node = entry - cache->internal;

		/* Nodes get closer to the pages, so that there is no cycle. */
		if (!guest_memory__read(cache->mem, node + cache->shift, &shift, sizeof(shift)) ||
		    shift >= above)
			return 0;
		slot = index >> shift;
		if (above > MAX_SHIFT && slot >= nr_slots)
			return 0;
		above = shift;
		slot &= nr_slots - 1;
		if (!read_u64(cache, node + cache->slots + slot * sizeof(entry), &entry))
			return 0;
		/* The slots of a large folio, except its first one, tell which slot that is. */
		if (is_internal(cache, entry) && entry >> 2 < nr_slots) {
			slot = entry >> 2;
			if (!read_u64(cache, node + cache->slots + slot * sizeof(entry), &entry))
				return 0;
		}
		*first = ((index >> shift & ~(nr_slots - 1)) | slot) << shift;
	}
	return entry;
}

/**
 * guest_page_cache__find - find a page of a file
 * @cache:	how the guest's kernel caches pages
 * @mapping:	address of the file's struct address_space
 * @index:	the page's offset in the file
 * @pfn:	receives its page frame number
 *
 * Both are in units of GUEST_PAGE_SIZE, also if the guest's pages are larger.
 *
 * Return: true if the page is there, and has been read from the disk.  The guest may reclaim it at
 * any time: see that it is still there after it was read.
 */
bool guest_page_cache__find(const struct guest_page_cache *cache, u64 mapping, u64 index, u64 *pfn)
{
	u64 flags, owner, first, expected, page = index >> cache->page_bits;
	u64 folio = find_entry(cache, mapping, page, &expected);

	/*
	 * Entries of pages that are swapped out, and internal ones, are no multiples of four, as
	 * addresses of structures are.
	 */
	if (folio < cache->vmemmap || folio & XA_TYPE_MASK ||
	    (folio - cache->vmemmap) % cache->page_size ||
	    !read_u64(cache, folio + cache->flags, &flags) || !(flags & cache->uptodate) ||
	    !read_u64(cache, folio + cache->mapping, &owner) || owner != mapping ||
	    !read_u64(cache, folio + cache->index, &first) || first != expected)
		return false;

	page += (folio - cache->vmemmap) / cache->page_size - first;
	*pfn = page << cache->page_bits | (index & (BIT_ULL(cache->page_bits) - 1));
	return true;
}
