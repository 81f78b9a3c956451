// SPDX-License-Identifier: GPL-2.0
/*
 * An ELF file with what it takes to unwind a guest's kernel: its ORC tables, and its code,
 * from the guest's memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <elf.h>
#include <linux/kernel.h>

#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-vmlinux.h"

/* No section of a kernel is that large. */
#define MAX_SECTION	(64UL << 20)

#define ALIGNMENT	8

/*
 * Names are those that guest-orc.c looks for; symbols are where they begin and end.  Code
 * for the boot is gone: chains that began there still lead to it.
 */
static const struct section {
	const char	*name;
	const char	*start;
	const char	*end;
	u32		type;
	u64		flags;
	bool		optional;
} sections[] = {
	{ ".text", "_text", "_etext", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, false },
	{ ".init.text", "_sinittext", "_einittext", SHT_NOBITS, SHF_ALLOC | SHF_EXECINSTR, true },
	{ ".orc_header", "__start_orc_header", "__stop_orc_header", SHT_PROGBITS, SHF_ALLOC, true },
	{ ".orc_unwind_ip", "__start_orc_unwind_ip", "__stop_orc_unwind_ip", SHT_PROGBITS,
	  SHF_ALLOC, false },
	{ ".orc_unwind", "__start_orc_unwind", "__stop_orc_unwind", SHT_PROGBITS,
	  SHF_ALLOC, false },
};

/* Before these, a section that is none; behind them, their names. */
#define NR_SECTIONS	(ARRAY_SIZE(sections) + 2)
#define NAMES		(NR_SECTIONS - 1)

/* Write @size bytes of the guest's, zeroes for pages that aren't there. */
static bool write_bytes(struct guest_kernel *kernel, u64 gva, u64 size, FILE *file)
{
	u8 page[GUEST_PAGE_SIZE];
	size_t len;

	for (; size; size -= len, gva += len) {
		len = min(size, GUEST_PAGE_SIZE - (gva & ~GUEST_PAGE_MASK));
		if (!guest_memory__read(kernel->mem, gva, page, len))
			memset(page, 0, len);
		if (fwrite(page, len, 1, file) != 1)
			return false;
	}
	return true;
}

/* Fill in where a section of the guest's is; false if it has none, but must have it. */
static bool find_section(const struct guest_kernel *kernel, const struct section *section,
			 Elf64_Shdr *shdr)
{
	const struct guest_symbol *start = guest_kernel__symbol(kernel, section->start);
	const struct guest_symbol *end = guest_kernel__symbol(kernel, section->end);

	if (!start || !end || end->addr <= start->addr || end->addr - start->addr > MAX_SECTION)
		return section->optional;

	shdr->sh_type = section->type;
	shdr->sh_flags = section->flags;
	shdr->sh_addr = start->addr;
	shdr->sh_size = end->addr - start->addr;
	return true;
}

static bool write_file(struct guest_kernel *kernel, const Elf64_Shdr *shdrs, const char *names,
		       FILE *file)
{
	const Elf64_Ehdr ehdr = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_shoff = sizeof(ehdr),
		.e_ehsize = sizeof(ehdr),
		.e_shentsize = sizeof(*shdrs),
		.e_shnum = NR_SECTIONS,
		.e_shstrndx = NAMES,
	};

	if (fwrite(&ehdr, sizeof(ehdr), 1, file) != 1 ||
	    fwrite(shdrs, sizeof(*shdrs), NR_SECTIONS, file) != NR_SECTIONS ||
	    fwrite(names, shdrs[NAMES].sh_size, 1, file) != 1)
		return false;

	for (size_t i = 1; i < NAMES; i++) {
		if (shdrs[i].sh_type == SHT_PROGBITS &&
		    (fseek(file, shdrs[i].sh_offset, SEEK_SET) ||
		     !write_bytes(kernel, shdrs[i].sh_addr, shdrs[i].sh_size, file)))
			return false;
	}
	return true;
}

/**
 * guest_vmlinux__write - write the ORC tables of a guest's kernel, and its code
 * @kernel:	the kernel
 * @file:	where to write the ELF file
 *
 * Return: NULL, or why it was not written.
 */
const char *guest_vmlinux__write(struct guest_kernel *kernel, FILE *file)
{
	Elf64_Shdr shdrs[NR_SECTIONS] = {};
	char names[256] = "";
	u64 offset;
	size_t len = 1;

	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		if (!find_section(kernel, &sections[i], &shdrs[i + 1]))
			return "its kernel has no ORC tables";
		if (!shdrs[i + 1].sh_size)
			continue;
		shdrs[i + 1].sh_name = len;
		len += scnprintf(&names[len], sizeof(names) - len, "%s", sections[i].name) + 1;
	}
	shdrs[NAMES].sh_type = SHT_STRTAB;
	shdrs[NAMES].sh_offset = sizeof(Elf64_Ehdr) + sizeof(shdrs);
	shdrs[NAMES].sh_size = len;

	offset = shdrs[NAMES].sh_offset + len;
	for (size_t i = 1; i < NAMES; i++) {
		offset = (offset + ALIGNMENT - 1) & ~(ALIGNMENT - 1UL);
		shdrs[i].sh_offset = offset;
		shdrs[i].sh_addralign = 1;
		if (shdrs[i].sh_type == SHT_PROGBITS)
			offset += shdrs[i].sh_size;
	}
	return write_file(kernel, shdrs, names, file) ? NULL : "its tables can't be written";
}
