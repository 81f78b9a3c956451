// SPDX-License-Identifier: GPL-2.0
/*
 * Search a guest's kernel for its kallsyms.  VMCOREINFO tells where they are since Linux 6.0.  In
 * kernels before that, scripts/kallsyms.c wrote these tables one after the other, each at a
 * multiple of 8:
 *
 *	offsets		of addresses, one s32 for each symbol
 *	relative base	u64
 *	number		of symbols, u32
 *	names		the compressed names, each behind its length
 *	markers		where each 256th name begins; u32, or u64 in older kernels
 *	token table	256 strings
 *	token index	where each of them begins, u16
 *
 * The token index has the most distinct shape, and leads to the tables before it.  The guest may
 * have written anything there.
 */
#include <stdlib.h>
#include <string.h>

#include <linux/align.h>
#include <linux/kernel.h>
#include <linux/unaligned.h>

#include "guest-kernel.h"
#include "guest-memory.h"

#define TABLE_ALIGN	8

#define NR_TOKENS	256
#define INDEX_SIZE	(NR_TOKENS * sizeof(u16))
/* No token is longer. */
#define MAX_TOKEN	128

/* Every 256th name has a marker. */
#define NAMES_PER_MARKER 256
#define MAX_MARKERS	4096
/* The shortest name has a length and one token, for its type and its characters. */
#define MIN_NAME	2
#define MAX_NAME	256

/*
 * Search this much of a kernel, and no further than this many pages in a row that can't be read:
 * the kernel frees what only its start needs.
 */
#define MAX_IMAGE	(256UL << 20)
#define MAX_UNREADABLE	4096

/**
 * struct search - what is known of the tables
 * @mem:	the guest's memory
 * @info:	receives the tables' addresses
 * @markers:	where each 256th name begins
 * @nr_markers:	number of these
 * @buf:	for the token table
 */
struct search {
	struct guest_memory	*mem;
	struct guest_vmcoreinfo	*info;
	u64			markers[MAX_MARKERS];
	size_t			nr_markers;
	u8			buf[NR_TOKENS * MAX_TOKEN + 2 * TABLE_ALIGN];
};

/* Return true if this may be a token index: its entries rise by the sizes of strings. */
static bool is_index(const u8 *index)
{
	u16 last = get_unaligned_le16(index);

	if (last)
		return false;
	for (size_t i = 1; i < NR_TOKENS; i++) {
		u16 next = get_unaligned_le16(index + i * sizeof(u16));

		if (next <= last || next - last > MAX_TOKEN)
			return false;
		last = next;
	}
	return true;
}

/* Return the size of the token table at @table if @index is its index; else zero. */
static size_t token_table_size(const u8 *table, size_t left, const u8 *index)
{
	size_t size = 0;

	for (size_t i = 0; i < NR_TOKENS; i++) {
		if (size >= left || size != get_unaligned_le16(index + i * sizeof(u16)))
			return 0;
		size += strnlen((const char *)&table[size], left - size) + 1;
	}
	return size > left ? 0 : size;
}

/* Find the token table that ends right before @at. */
static bool find_token_table(struct search *search, u64 at, const u8 *index)
{
	size_t last = get_unaligned_le16(index + (NR_TOKENS - 1) * sizeof(u16));
	size_t max = ALIGN(last + MAX_TOKEN, TABLE_ALIGN);

	if (!guest_memory__read(search->mem, at - max, search->buf, max))
		return false;

	for (size_t size = ALIGN(last + 1, TABLE_ALIGN); size <= max; size += TABLE_ALIGN) {
		const u8 *table = &search->buf[max - size];
		size_t used;

		/* The last token tells the size: look there first, as to look at all takes long. */
		if (ALIGN(last + strnlen((const char *)&table[last], size - last) + 1,
			  TABLE_ALIGN) != size)
			continue;
		used = token_table_size(table, size, index);
		if (used && ALIGN(used, TABLE_ALIGN) == size) {
			search->info->token_table = at - size;
			search->info->token_index = at;
			return true;
		}
	}
	return false;
}

/* Read the marker of @width bytes that ends at @end. */
static bool read_marker(struct search *search, u64 end, unsigned int width, u64 *marker)
{
	*marker = 0;
	return guest_memory__read(search->mem, end - width, marker, width);
}

/* Read the markers, which end at @end; return where they begin, or zero. */
static u64 read_markers(struct search *search, u64 end, unsigned int width)
{
	u64 marker;

	/* The last one is zero only if it is the only one, which no kernel has. */
	if (!read_marker(search, end, width, &marker))
		return 0;
	if (!marker)
		end -= width;

	/* They stand in reverse order here. */
	for (search->nr_markers = 0; search->nr_markers < MAX_MARKERS; end -= width) {
		u64 *last = &search->markers[search->nr_markers];

		if (!read_marker(search, end, width, last))
			return 0;
		if (search->nr_markers++ &&
		    (*last >= last[-1] || last[-1] - *last < NAMES_PER_MARKER * MIN_NAME ||
		     last[-1] - *last > NAMES_PER_MARKER * MAX_NAME))
			return 0;
		if (!*last)
			return search->nr_markers > 1 ? end - width : 0;
	}
	return 0;
}

/* Return true if the names at @names have these markers, and end right before @end. */
static bool are_names(struct search *search, u64 names, u64 end, u32 nr)
{
	size_t left = search->nr_markers;
	u64 at = names;
	u8 len;

	for (u32 i = 0; i < nr; i++) {
		if (i % NAMES_PER_MARKER == 0 && at - names != search->markers[--left])
			return false;
		if (at >= end || !guest_memory__read(search->mem, at, &len, sizeof(len)) || !len)
			return false;
		at += sizeof(len) + len;
	}
	return at <= end && end - at < TABLE_ALIGN;
}

/* Find the names, which end right before @end, and what stands before them. */
static bool find_names(struct search *search, u64 end)
{
	u64 last = ALIGN_DOWN(end - search->markers[0], TABLE_ALIGN);
	u32 nr;

	for (u64 names = last; last - names < NAMES_PER_MARKER * MAX_NAME; names -= TABLE_ALIGN) {
		if (!guest_memory__read(search->mem, names - TABLE_ALIGN, &nr, sizeof(nr)))
			return false;
		if (DIV_ROUND_UP((u64)nr, NAMES_PER_MARKER) != search->nr_markers ||
		    !are_names(search, names, end, nr))
			continue;
		search->info->names = names;
		search->info->num_syms = names - TABLE_ALIGN;
		search->info->relative_base = names - 2 * TABLE_ALIGN;
		search->info->offsets = search->info->relative_base -
					ALIGN(nr * sizeof(s32), TABLE_ALIGN);
		return true;
	}
	return false;
}

/* Find all tables, if @index, which was read at @at, is a token index. */
static bool find_tables(struct search *search, u64 at, const u8 *index)
{
	static const unsigned int widths[] = { sizeof(u32), sizeof(u64) };

	if (!is_index(index) || !find_token_table(search, at, index))
		return false;

	for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
		u64 markers = read_markers(search, search->info->token_table, widths[i]);

		if (markers && find_names(search, markers))
			return true;
	}
	return false;
}

static bool find(struct search *search)
{
	u64 start = search->info->stext & GUEST_PAGE_MASK;
	u8 piece[GUEST_PAGE_SIZE + INDEX_SIZE];
	unsigned int unreadable = 0;

	for (u64 at = start; at - start < MAX_IMAGE && unreadable < MAX_UNREADABLE;
	     at += GUEST_PAGE_SIZE) {
		unreadable++;
		memset(piece, 0xff, sizeof(piece));
		if (!guest_memory__read(search->mem, at, piece, GUEST_PAGE_SIZE))
			continue;
		unreadable = 0;
		/* An index that goes on after a page that is the last one can't be read. */
		guest_memory__read(search->mem, at + GUEST_PAGE_SIZE, &piece[GUEST_PAGE_SIZE],
				   INDEX_SIZE);
		for (size_t i = 0; i < GUEST_PAGE_SIZE; i += TABLE_ALIGN) {
			if (find_tables(search, at + i, &piece[i]))
				return true;
		}
	}
	return false;
}

/**
 * guest_kallsyms__search - search a kernel for its kallsyms
 * @kernel: the kernel; its VMCOREINFO receives the tables' addresses
 *
 * Return: true if they were found.
 */
bool guest_kallsyms__search(struct guest_kernel *kernel)
{
	struct search *search = calloc(1, sizeof(*search));
	bool found = false;

	if (search && kernel->info.stext) {
		search->mem = kernel->mem;
		search->info = &kernel->info;
		found = find(search);
	}
	free(search);
	return found;
}
