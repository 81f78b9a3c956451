// SPDX-License-Identifier: GPL-2.0
/*
 * Write an ELF file with the ORC tables and the code of a guest's kernel, from the guest's memory.
 */
#include <elf.h>
#include <linux/kernel.h>

#include "guest-elf.h"
#include "guest-kernel.h"
#include "guest-vmlinux.h"

/* No section of a kernel is that large. */
#define MAX_SECTION	(64UL << 20)

/*
 * The sections of the file, and the symbols at their start and end.  The kernel has freed its boot
 * code, .init.text, but the idle task's chain still leads to that code.
 */
static const struct section {
	const char	*name;
	const char	*start;
	const char	*end;
	u32		type;
	bool		code;
	bool		optional;
} sections[] = {
	{ ".text", "_text", "_etext", SHT_PROGBITS, true, false },
	{ ".init.text", "_sinittext", "_einittext", SHT_NOBITS, true, true },
	{ ".orc_header", "__start_orc_header", "__stop_orc_header", SHT_PROGBITS, false, true },
	{ ".orc_unwind_ip", "__start_orc_unwind_ip", "__stop_orc_unwind_ip", SHT_PROGBITS,
	  false, false },
	{ ".orc_unwind", "__start_orc_unwind", "__stop_orc_unwind", SHT_PROGBITS, false, false },
};

/* Put a section's address in the guest into @addr; return its size, zero if there is none. */
static u64 find_section(const struct guest_kernel *kernel, const struct section *section,
			u64 *addr)
{
	const struct guest_symbol *start = guest_kernel__symbol(kernel, section->start);
	const struct guest_symbol *end = guest_kernel__symbol(kernel, section->end);

	if (!start || !end || end->addr <= start->addr || end->addr - start->addr > MAX_SECTION)
		return 0;

	*addr = start->addr;
	return end->addr - start->addr;
}

/**
 * guest_vmlinux__write - write the ORC tables of a guest's kernel, and its code
 * @kernel:	the kernel
 * @file:	where to write the ELF file
 *
 * Return: NULL, or why the file could not be written.
 */
const char *guest_vmlinux__write(struct guest_kernel *kernel, FILE *file)
{
	struct guest_section found[ARRAY_SIZE(sections)] = {};

	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		found[i].name = sections[i].name;
		found[i].type = sections[i].type;
		found[i].code = sections[i].code;
		found[i].size = find_section(kernel, &sections[i], &found[i].addr);
		if (!found[i].size && !sections[i].optional)
			return "its kernel has no ORC tables";
	}
	return guest_elf__write(kernel->mem, found, ARRAY_SIZE(found), file) ?
	       NULL : "its ORC tables can't be written";
}
