// SPDX-License-Identifier: GPL-2.0
/*
 * Read the ORC tables of kernel modules.  The file of a module is neither linked nor relocated.  Do
 * what the kernel does when it loads the module: lay out the sections of code in the file's order,
 * from the address in /proc/modules on, and sort the tables.  Kernels whose modules can't be
 * unloaded put .exit.text with the init code.  That is not handled here: sections that come
 * after .exit.text in the file then get wrong addresses.
 */
#include <elf.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/unaligned.h>

#include "orc-module.h"

/* Offsets in a table have 32 bits. */
#define MAX_SIZE	BIT_ULL(30)

/* Far more than any module has: those of Debian's cloud kernel have up to 30,267 rows. */
#define MAX_ROWS	BIT(22)

/* A row of a table that is not sorted yet. */
struct orc_row {
	u64		ip;
	const u8	*entry;
	bool		ends_section;
};

/*
 * The parts of a module's file that perf uses.
 *
 * @addrs:	addresses of its sections in the guest, by number; zero unless section_is_code()
 * @ips:	the section with the address of each entry; all zeroes before relocation
 * @ips_nr:	number of that section
 * @relocs:	relocations of that section
 * @symbols:	symbols that @relocs refer to
 */
struct module_file {
	Elf		*elf;
	u64		*addrs;
	size_t		nr_addrs;
	Elf_Data	*ips;
	size_t		ips_nr;
	Elf_Data	*entries;
	Elf_Data	*header;
	Elf_Data	*relocs;
	Elf_Data	*symbols;
};

/**
 * orc_code__add - note a section of code
 * @code:	code of a kernel or a module
 * @addr:	first address of the section
 * @size:	size of the section in bytes
 * @data:	contents of the section; NULL if they are not known
 */
void orc_code__add(struct orc_code *code, u64 addr, u64 size, const Elf_Data *data)
{
	if (size > UINT64_MAX - addr)
		return;

	code->end = max(code->end, addr + size);
	if (!data || !data->d_buf)
		return;
	if (code->nr_pieces < ORC_MAX_CODE)
		code->pieces[code->nr_pieces] = (struct orc_piece) {
			addr, data->d_size, data->d_buf,
		};
	code->nr_pieces++;
}

/* Return true if the section is code that stays after the module's init. */
static bool section_is_code(const GElf_Shdr *shdr, const char *name)
{
	const u64 flags = SHF_ALLOC | SHF_EXECINSTR;

	return (shdr->sh_flags & flags) == flags && strncmp(name, ".init", strlen(".init"));
}

/* Find the sections that perf uses, and lay out the sections of code from @code->start on. */
static bool module_file__read(struct module_file *file, struct orc_code *code)
{
	Elf_Scn *scn = NULL;
	u64 addr = code->start;
	GElf_Shdr shdr;
	size_t names;

	if (elf_getshdrstrndx(file->elf, &names) || elf_getshdrnum(file->elf, &file->nr_addrs))
		return false;
	file->addrs = calloc(file->nr_addrs, sizeof(*file->addrs));
	if (!file->addrs)
		return false;

	while ((scn = elf_nextscn(file->elf, scn))) {
		const char *name;

		if (!gelf_getshdr(scn, &shdr))
			return false;
		name = elf_strptr(file->elf, names, shdr.sh_name);
		if (!name)
			return false;

		if (!strcmp(name, ".orc_unwind_ip")) {
			file->ips = elf_rawdata(scn, NULL);
			file->ips_nr = elf_ndxscn(scn);
		} else if (!strcmp(name, ".orc_unwind")) {
			file->entries = elf_rawdata(scn, NULL);
		} else if (!strcmp(name, ".orc_header")) {
			file->header = elf_rawdata(scn, NULL);
		} else if (shdr.sh_type == SHT_SYMTAB) {
			file->symbols = elf_getdata(scn, NULL);
		} else if (section_is_code(&shdr, name)) {
			u64 align = shdr.sh_addralign ?: 1;

			if (align & (align - 1))
				return false;
			addr = (addr + align - 1) & ~(align - 1);
			if (addr < code->start)
				return false;
			file->addrs[elf_ndxscn(scn)] = addr;
			orc_code__add(code, addr, shdr.sh_size, elf_rawdata(scn, NULL));
			addr += shdr.sh_size;
			if (addr < code->start || addr - code->start > MAX_SIZE)
				return false;
		}
	}

	/* Relocations may come before the section that they are for. */
	while ((scn = elf_nextscn(file->elf, scn))) {
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_RELA && file->ips &&
		    shdr.sh_info == file->ips_nr)
			file->relocs = elf_getdata(scn, NULL);
	}
	return file->ips && file->entries && file->relocs && file->symbols;
}

/* Fill in a row by its relocation, which says where the row's code is. */
static bool module_file__read_row(const struct module_file *file, int i, size_t nr,
				  struct orc_row *row)
{
	GElf_Rela rela;
	GElf_Sym sym;

	if (!gelf_getrela(file->relocs, i, &rela) || GELF_R_TYPE(rela.r_info) != R_X86_64_PC32 ||
	    rela.r_offset / ORC_IP_SIZE >= nr ||
	    !gelf_getsym(file->symbols, GELF_R_SYM(rela.r_info), &sym) ||
	    sym.st_shndx >= file->nr_addrs)
		return false;

	row->ip = file->addrs[sym.st_shndx] + sym.st_value + rela.r_addend;
	row->entry = file->entries->d_buf + rela.r_offset / ORC_IP_SIZE * ORC_ENTRY_SIZE;
	return true;
}

/*
 * A row that ends a section may have the address at which the next section begins; it comes first.
 */
static int orc_row__cmp(const void *a, const void *b)
{
	const struct orc_row *first = a, *second = b;

	if (first->ip != second->ip)
		return first->ip < second->ip ? -1 : 1;
	return (int)second->ends_section - (int)first->ends_section;
}

static const char *orc_module__fill(struct orc_module *module, const struct orc_row *rows,
				    unsigned int nr)
{
	unsigned int i;

	module->ips = malloc((size_t)nr * ORC_IP_SIZE);
	module->entries = malloc((size_t)nr * ORC_ENTRY_SIZE);
	if (!module->ips || !module->entries)
		return "there is no memory";

	for (i = 0; i < nr; i++) {
		u64 offset = (u64)i * ORC_IP_SIZE;

		put_unaligned_le32(rows[i].ip - (module->table.addr + offset),
				   &module->ips[offset]);
		memcpy(&module->entries[(size_t)i * ORC_ENTRY_SIZE], rows[i].entry,
		       ORC_ENTRY_SIZE);
	}
	module->table.ips = module->ips;
	module->table.entries = module->entries;
	module->table.nr = nr;
	return NULL;
}

static const char *orc_module__read_table(struct orc_module *module,
					  const struct module_file *file)
{
	size_t nr = file->ips->d_size / ORC_IP_SIZE, nr_rows = 0;
	struct orc_row *rows;
	const char *why_not;

	if (!nr || nr > MAX_ROWS || nr * ORC_IP_SIZE != file->ips->d_size ||
	    nr * ORC_ENTRY_SIZE != file->entries->d_size || !file->entries->d_buf)
		return "its ORC tables are broken";

	rows = calloc(nr, sizeof(*rows));
	if (!rows)
		return "there is no memory";

	for (size_t i = 0; i < nr; i++) {
		struct orc_row *row = &rows[nr_rows];

		/* Skip rows of code that is gone after the module's init. */
		if (!module_file__read_row(file, i, nr, row) || row->ip < module->code.start ||
		    row->ip > module->code.end)
			continue;
		row->ends_section = orc_entry__ends_section(module->table.format, row->entry);
		nr_rows++;
	}
	qsort(rows, nr_rows, sizeof(*rows), orc_row__cmp);
	why_not = nr_rows ? orc_module__fill(module, rows, nr_rows) : "its ORC tables are broken";
	free(rows);
	return why_not;
}

static bool is_same(const Elf_Data *a, const Elf_Data *b)
{
	if (!a || !b)
		return !a && !b;
	return a->d_buf && b->d_buf && a->d_size == b->d_size &&
	       !memcmp(a->d_buf, b->d_buf, a->d_size);
}

/**
 * orc_module__read - read the ORC tables of a module
 * @module:	receives the tables; call orc_module__exit() for it, also if this fails
 * @elf:	the module's file; must stay open as long as @module is used
 * @start:	the module's first address in the guest
 * @end:	the address after its last one
 * @format:	format of the tables of the guest's kernel
 * @header:	.orc_header of the guest's kernel, NULL if it has none
 *
 * Return: NULL, or why there are none.
 */
const char *orc_module__read(struct orc_module *module, Elf *elf, u64 start, u64 end,
			     const struct orc_format *format, const Elf_Data *header)
{
	struct module_file file = { .elf = elf };
	const char *why_not = NULL;
	GElf_Ehdr ehdr;

	*module = (struct orc_module) {
		.table = { .format = format, .addr = start },
		.code = { .start = start, .end = start },
	};
	if (!gelf_getehdr(elf, &ehdr) || ehdr.e_machine != EM_X86_64 || ehdr.e_type != ET_REL ||
	    ehdr.e_ident[EI_DATA] != ELFDATA2LSB)
		return "it is no module of x86-64";

	if (!module_file__read(&file, &module->code))
		why_not = "it has no ORC tables";
	else if (module->code.end > end)
		why_not = "it is larger than the guest's module";
	else if (module->code.nr_pieces > ORC_MAX_CODE)
		why_not = "it has too many sections of code";
	else if (!is_same(file.header, header))
		why_not = "its ORC tables have another format than the kernel's";
	else
		why_not = orc_module__read_table(module, &file);
	free(file.addrs);
	/* The table of a refused module ends at zero, so that no address lies in it. */
	if (!why_not)
		module->table.end = module->code.end;
	return why_not;
}

/**
 * orc_module__exit - free what orc_module__read() has allocated
 * @module:	the module
 */
void orc_module__exit(struct orc_module *module)
{
	free(module->ips);
	free(module->entries);
}
