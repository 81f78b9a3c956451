// SPDX-License-Identifier: GPL-2.0
/*
 * Read the BTF in the memory of a guest's kernel, which has the offsets of the fields of the
 * kernel's structures.  The guest may have written anything there.
 */
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>

#include <bpf/btf.h>

#include "guest-btf.h"
#include "guest-kernel.h"
#include "guest-memory.h"

#define MAX_MEMBERS	4096
#define MAX_BTF		(64U << 20)

/*
 * Find a member of @type, also in its unnamed structures and unions; return the id of the member's
 * type, or -1.  Look at no more than @budget members in all, however deeply the guest has nested
 * them.
 */
static int find_member(const struct btf *btf, const struct btf_type *type, const char *name,
		       u32 *offset, unsigned int *budget)
{
	const struct btf_member *member = btf_members(type);

	for (unsigned int i = 0; i < btf_vlen(type) && *budget; i++, member++) {
		const char *found = btf__name_by_offset(btf, member->name_off);
		const struct btf_type *inner;
		u32 bits = btf_member_bit_offset(type, i);
		int id;

		if (found && !strcmp(found, name)) {
			*offset += bits / 8;
			return member->type;
		}
		--*budget;
		if (!found || *found)
			continue;
		inner = btf__type_by_id(btf, btf__resolve_type(btf, member->type));
		if (!inner || !btf_is_composite(inner))
			continue;
		*offset += bits / 8;
		id = find_member(btf, inner, name, offset, budget);
		if (id > 0)
			return id;
		*offset -= bits / 8;
	}
	return -1;
}

/**
 * guest_btf__find - find a member of a structure
 * @btf:	the types of the guest's kernel
 * @id:		id of the structure; if it is negative, nothing is found
 * @name:	name of the member, which may be in an unnamed structure
 * @offset:	receives the member's offset, in bytes
 *
 * Return: the id of the member's type; negative if there is none.
 */
int guest_btf__find(const struct btf *btf, int id, const char *name, u32 *offset)
{
	const struct btf_type *type = btf__type_by_id(btf, id < 0 ? 0 : id);
	unsigned int budget = MAX_MEMBERS;

	*offset = 0;
	if (id < 0 || !type || !btf_is_composite(type))
		return -1;
	return find_member(btf, type, name, offset, &budget);
}

/**
 * guest_btf__find_field - find a field of a structure, or one within that field
 * @btf:	the types of the guest's kernel
 * @type:	name of the structure
 * @outer:	name of the field
 * @inner:	name of the field within @outer; NULL for @outer itself
 * @offset:	receives the offset, in bytes
 *
 * Return: true if there is such a field.
 */
bool guest_btf__find_field(const struct btf *btf, const char *type, const char *outer,
			   const char *inner, u32 *offset)
{
	int id = btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT);
	u32 inner_offset = 0;

	id = guest_btf__find(btf, id, outer, offset);
	if (id > 0 && inner)
		id = guest_btf__find(btf, btf__resolve_type(btf, id), inner, &inner_offset);
	*offset += inner_offset;
	return id > 0;
}

/**
 * guest_btf__read - read the types of a guest's kernel
 * @kernel: the kernel
 *
 * Return: the types, to be freed by btf__free(); NULL if they can't be read.
 */
struct btf *guest_btf__read(struct guest_kernel *kernel)
{
	const struct guest_symbol *start = guest_kernel__symbol(kernel, "__start_BTF");
	const struct guest_symbol *stop = guest_kernel__symbol(kernel, "__stop_BTF");
	struct btf *btf = NULL;
	void *data;
	u64 size;

	size = start && stop ? stop->addr - start->addr : 0;
	if (!size || size > MAX_BTF)
		return NULL;

	data = malloc(size);
	if (data && guest_memory__read(kernel->mem, start->addr, data, size))
		btf = btf__new(data, size);
	free(data);
	return btf;
}
