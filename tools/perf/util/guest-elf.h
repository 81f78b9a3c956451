/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_ELF_H
#define __PERF_GUEST_ELF_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <linux/types.h>

struct guest_memory;

/**
 * struct guest_section - a piece of a guest's memory that becomes a section of a file
 * @name:	name of the section, as guest-orc.c looks it up
 * @addr:	virtual address in the guest
 * @size:	size in bytes; zero if the guest has no such piece
 * @type:	SHT_PROGBITS, or SHT_NOBITS if the guest has freed the memory
 * @code:	true if the piece is code
 */
struct guest_section {
	const char	*name;
	u64		addr;
	u64		size;
	u32		type;
	bool		code;
};

bool guest_elf__write(struct guest_memory *mem, const struct guest_section *sections, size_t nr,
		      FILE *file);

#endif /* __PERF_GUEST_ELF_H */
