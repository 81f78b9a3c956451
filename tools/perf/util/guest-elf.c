// SPDX-License-Identifier: GPL-2.0
/*
 * Write pieces of a guest's memory to an ELF file.
 */
#include <string.h>

#include <elf.h>
#include <linux/kernel.h>

#include "guest-elf.h"
#include "guest-memory.h"

#define MAX_SECTIONS	8
#define ALIGNMENT	8UL

/*
 * Write @size bytes of the guest's memory.  Pages that can't be read become holes in the file, but
 * the last page becomes zeroes: a hole at the end would leave the file too short.
 */
static bool write_bytes(struct guest_memory *mem, u64 gva, u64 size, FILE *file)
{
	u8 page[GUEST_PAGE_SIZE];
	size_t len;

	for (; size; size -= len, gva += len) {
		len = min(size, (u64)(GUEST_PAGE_SIZE - (gva & ~GUEST_PAGE_MASK)));
		if (!guest_memory__read(mem, gva, page, len)) {
			if (guest_memory__is_exhausted(mem))
				return false;
			memset(page, 0, len);
			if (size > len) {
				if (fseek(file, len, SEEK_CUR))
					return false;
				continue;
			}
		}
		if (fwrite(page, len, 1, file) != 1)
			return false;
	}
	return true;
}

/**
 * guest_elf__write - write pieces of a guest's memory as an ELF file
 * @mem:	the guest's memory
 * @sections:	the pieces; those with a size of zero are left out
 * @nr:		number of pieces, at most 8
 * @file:	where to write
 *
 * Return: true if the file was written.
 */
bool guest_elf__write(struct guest_memory *mem, const struct guest_section *sections, size_t nr,
		      FILE *file)
{
	/* The first section is the null section; the last one has the names. */
	Elf64_Shdr shdrs[MAX_SECTIONS + 2] = {}, *shdr = &shdrs[1];
	Elf64_Ehdr ehdr = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_shoff = sizeof(ehdr),
		.e_ehsize = sizeof(ehdr),
		.e_shentsize = sizeof(*shdr),
	};
	char names[256] = "";
	size_t len = 1;
	u64 offset = sizeof(ehdr) + sizeof(shdrs) + sizeof(names);

	for (size_t i = 0; i < nr && i < MAX_SECTIONS; i++) {
		if (!sections[i].size)
			continue;
		shdr->sh_name = len;
		len += scnprintf(&names[len], sizeof(names) - len, "%s", sections[i].name) + 1;
		shdr->sh_type = sections[i].type;
		shdr->sh_flags = SHF_ALLOC | (sections[i].code ? SHF_EXECINSTR : 0);
		shdr->sh_addr = sections[i].addr;
		shdr->sh_size = sections[i].size;
		shdr->sh_addralign = 1;
		shdr->sh_offset = offset;
		if (shdr->sh_type == SHT_PROGBITS)
			offset += (shdr->sh_size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
		shdr++;
	}
	shdr->sh_type = SHT_STRTAB;
	shdr->sh_offset = sizeof(ehdr) + sizeof(shdrs);
	shdr->sh_size = len;
	ehdr.e_shstrndx = shdr - shdrs;
	ehdr.e_shnum = ehdr.e_shstrndx + 1;

	if (fwrite(&ehdr, sizeof(ehdr), 1, file) != 1 ||
	    fwrite(shdrs, sizeof(shdrs), 1, file) != 1 ||
	    fwrite(names, sizeof(names), 1, file) != 1)
		return false;
	while (--shdr > shdrs) {
		if (shdr->sh_type == SHT_PROGBITS &&
		    (fseek(file, shdr->sh_offset, SEEK_SET) ||
		     !write_bytes(mem, shdr->sh_addr, shdr->sh_size, file)))
			return false;
	}
	return true;
}
