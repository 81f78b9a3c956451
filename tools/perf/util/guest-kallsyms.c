// SPDX-License-Identifier: GPL-2.0
/*
 * Read the kallsyms in the memory of a guest's kernel.  Each byte of a name there stands for a
 * token, see scripts/kallsyms.c.
 */
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "guest-kernel.h"
#include "guest-memory.h"

/* No kernel has more symbols, longer names, or more bytes of names. */
#define MAX_SYMBOLS	(1 << 20)
#define MAX_NAME	512
#define MAX_NAMES	(64UL << 20)

#define NR_TOKENS	256
#define MAX_TOKENS	((1 << 16) + MAX_NAME)

/* Set in the first byte of a name's length if a second byte follows. */
#define LONG_NAME	0x80

struct tokens {
	u16	index[NR_TOKENS];
	char	table[MAX_TOKENS + 1];
};

static bool read_tokens(struct tokens *tokens, struct guest_kernel *kernel)
{
	const struct guest_vmcoreinfo *info = &kernel->info;
	size_t size = 0, len;

	if (!guest_memory__read(kernel->mem, info->token_index, tokens->index,
				sizeof(tokens->index)))
		return false;

	for (size_t i = 0; i < NR_TOKENS; i++)
		size = max(size, (size_t)tokens->index[i] + MAX_NAME);
	/* Read page by page: the pages behind the table may not be readable. */
	for (size_t i = 0; i < size; i += len) {
		u64 at = info->token_table + i;

		len = min((size_t)(GUEST_PAGE_SIZE - (at & ~GUEST_PAGE_MASK)), size - i);
		if (!guest_memory__read(kernel->mem, at, &tokens->table[i], len))
			break;
	}
	return true;
}

/* Expand @codes to the type and the name of a symbol; return false if they are not valid. */
static bool expand_name(struct guest_symbol *symbol, const struct tokens *tokens,
			const u8 *codes, unsigned int nr)
{
	char name[MAX_NAME + 1];
	size_t len = 0;

	for (unsigned int i = 0; i < nr; i++) {
		const char *token = &tokens->table[tokens->index[codes[i]]];

		for (; *token; token++) {
			if (len == MAX_NAME || *token <= ' ' || *token > '~')
				return false;
			name[len++] = *token;
		}
	}
	if (len < 2)
		return false;

	symbol->type = name[0];
	symbol->name = strndup(&name[1], len - 1);
	return symbol->name;
}

static bool read_names(struct guest_kernel *kernel, const struct tokens *tokens, u32 nr)
{
	u64 at = kernel->info.names;
	u8 codes[MAX_NAME], byte;
	unsigned int len;
	size_t total = 0;

	for (; kernel->nr_symbols < nr; kernel->nr_symbols++) {
		if (!guest_memory__read(kernel->mem, at++, &byte, 1))
			return false;
		len = byte;
		if (byte & LONG_NAME) {
			if (!guest_memory__read(kernel->mem, at++, &byte, 1))
				return false;
			len = (len & ~LONG_NAME) | byte << 7;
		}
		if (len > sizeof(codes) || !guest_memory__read(kernel->mem, at, codes, len) ||
		    !expand_name(&kernel->symbols[kernel->nr_symbols], tokens, codes, len))
			return false;
		at += len;
		total += strlen(kernel->symbols[kernel->nr_symbols].name);
		if (total > MAX_NAMES) {
			kernel->nr_symbols++;
			return false;
		}
	}
	return true;
}

/*
 * Kernels store addresses in three ways.  Since 7.0, an address is relative to the place where its
 * offset is stored.  Before that, it is relative to a base.  With CONFIG_KALLSYMS_ABSOLUTE_PERCPU,
 * which SMP kernels of x86-64 had before 6.15, the offsets of per-CPU symbols are their addresses,
 * and those of all others are negative and relative to the base.
 */
static u64 from_place(const struct guest_vmcoreinfo *info, size_t i, s32 offset)
{
	return info->offsets + i * sizeof(offset) + offset;
}

static u64 from_base(const struct guest_vmcoreinfo *info, size_t i __maybe_unused, s32 offset)
{
	return info->relative_base + (u32)offset;
}

static u64 from_base_but_percpu(const struct guest_vmcoreinfo *info, size_t i __maybe_unused,
				s32 offset)
{
	return offset < 0 ? info->relative_base - 1 - offset : (u64)offset;
}

typedef u64 (*address_fn)(const struct guest_vmcoreinfo *info, size_t i, s32 offset);

static const address_fn layouts[] = { from_place, from_base, from_base_but_percpu };

/* Pick the layout that puts _stext where VMCOREINFO says. */
static address_fn find_layout(const struct guest_kernel *kernel, const s32 *offsets)
{
	const struct guest_vmcoreinfo *info = &kernel->info;

	for (size_t i = 0; i < kernel->nr_symbols; i++) {
		if (strcmp(kernel->symbols[i].name, "_stext"))
			continue;
		for (size_t j = 0; j < ARRAY_SIZE(layouts); j++) {
			if (layouts[j](info, i, offsets[i]) == info->stext)
				return layouts[j];
		}
	}
	return NULL;
}

static bool read_addresses(struct guest_kernel *kernel)
{
	size_t size = kernel->nr_symbols * sizeof(s32);
	struct guest_vmcoreinfo *info = &kernel->info;
	address_fn layout = NULL;
	s32 *offsets;

	/* VMCOREINFO has the address of the variable, not the base itself. */
	if (info->relative_base && !guest_memory__read(kernel->mem, info->relative_base,
						       &info->relative_base, sizeof(u64)))
		return false;

	offsets = malloc(size);
	if (offsets && guest_memory__read(kernel->mem, info->offsets, offsets, size))
		layout = find_layout(kernel, offsets);
	for (size_t i = 0; layout && i < kernel->nr_symbols; i++)
		kernel->symbols[i].addr = layout(info, i, offsets[i]);
	free(offsets);
	return layout;
}

/**
 * guest_kallsyms__read - read the symbols of a guest's kernel
 * @kernel:	the kernel; receives the symbols
 *
 * Return: NULL, or why there are none.
 */
const char *guest_kallsyms__read(struct guest_kernel *kernel)
{
	struct tokens *tokens;
	bool good = false;
	u32 nr;

	if ((!kernel->info.names || !kernel->info.offsets) && !guest_kallsyms__search(kernel))
		return "no kallsyms are found in its kernel";

	tokens = zalloc(sizeof(*tokens));
	if (tokens && guest_memory__read(kernel->mem, kernel->info.num_syms, &nr, sizeof(nr)) &&
	    nr && nr <= MAX_SYMBOLS && read_tokens(tokens, kernel)) {
		kernel->symbols = calloc(nr, sizeof(*kernel->symbols));
		good = kernel->symbols && read_names(kernel, tokens, nr) && read_addresses(kernel);
	}
	free(tokens);
	return good ? NULL : "its symbols are laid out in a way that this perf doesn't know";
}
