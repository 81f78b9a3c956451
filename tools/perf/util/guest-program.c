// SPDX-License-Identifier: GPL-2.0
/*
 * Write a file that names and unwinds a program or a library of a guest, from the pages that the
 * guest has cached.  Section headers are hardly ever cached, as programs run without them: what the
 * dynamic linker and exceptions need is found by program headers.
 *
 * A page that is missing costs the names and the rules in it.  It must not lead to others: leave
 * out a symbol whose name is not wholly there, and a rule of which a byte is missing.
 *
 * The guest may have written anything there.  Readers of the file see nothing but what was checked
 * here: symbols of code with printable names, and rules that lie where their table says.
 */
#include <stdlib.h>
#include <string.h>

#include <elf.h>
#include <linux/align.h>
#include <linux/kernel.h>
#include <linux/unaligned.h>
#include <linux/zalloc.h>

#include "build-id.h"
#include "guest-memory.h"
#include "guest-page-cache.h"
#include "guest-program.h"

/* No more of a file is looked at than this, in pages and in bytes. */
#define MAX_PAGES	(1ULL << 18)
#define MAX_SIZE	(MAX_PAGES << GUEST_PAGE_SHIFT)

/* Further segments, entries of the dynamic section, symbols, rules and bytes are left out. */
#define MAX_SEGMENTS	16
#define MAX_DYNAMIC	512
#define MAX_SYMBOLS	(1U << 20)
#define MAX_RULES	(1U << 20)
#define MAX_RULE_SIZE	16384
#define MAX_RULES_SIZE	(64U << 20)
#define MAX_NAMES_SIZE	(32U << 20)

/*
 * In rules: the last register, which is x86-64's return address, and arm64's v31; how often states
 * are remembered.
 */
#define MAX_REGISTER		16
#define ARM64_MAX_REGISTER	95

/* DW_CFA_AARCH64_negate_ra_state: the return address is signed, or is so no longer. */
#define NEGATE_RA_STATE		0x2d
#define MAX_DEPTH	4
#define MAX_NAME	4096

/* Read names in pieces of this size, in bytes. */
#define NAME_PIECE	64

/*
 * The size of an entry of a procedure linkage table, and the most code before the first table; on
 * arm64, that may be relocations.  There, an entry that checks branches or signatures of addresses
 * is larger, as the first one is.
 */
#define PLT_ENTRY_SIZE		16
#define ARM64_PLT_LARGE_SIZE	24
#define ARM64_PLT_FIRST_SIZE	32
#define MAX_BEFORE_PLT		256
#define ARM64_MAX_BEFORE_PLT	1024

/* Instructions of arm64's tables, and their bits that are not the same in all entries. */
#define ARM64_BTI		0xd503245f	/* bti	c */
#define ARM64_PUSH		0xa9bf7bf0	/* stp	x16, x30, [sp, #-16]! */
#define ARM64_ADRP		0x90000010	/* adrp	x16, PAGE */
#define ARM64_ADRP_BITS		0x60ffffe0
#define ARM64_LOAD		0xf9400211	/* ldr	x17, [x16, #OFFSET] */
#define ARM64_LOAD_BITS		0x003ffc00
#define ARM64_JUMP		0xd61f0220	/* br	x17 */

/* How often to read a file until no page changes meanwhile. */
#define MAX_TRIES	3

/*
 * Linkers write .eh_frame_hdr in one way: version 1; the address of .eh_frame relative to the place
 * where it stands; the number of entries; addresses relative to the header.  See the Linux Standard
 * Base, "Exception Frames".
 */
static const u8 eh_frame_hdr[] = { 1, 0x1b, 0x03, 0x3b };

/* The first bytes of .eh_frame_hdr; an entry of its table. */
struct rule_table {
	u8	format[sizeof(eh_frame_hdr)];
	s32	eh_frame;
	u32	nr;
};

struct rule_entry {
	s32	ip;
	s32	rule;
};

/* A page of the file; it is missing if it has no data. */
struct cached {
	u64	pfn;
	u8	*data;
	bool	tried;
};

/**
 * struct program - a program of a guest
 * @cache:	the guest's page cache
 * @mapping:	address of the program's struct address_space
 * @pages:	the pages that were read, by their place in the file
 * @nr_pages:	number of pages up to the last one that was read
 * @only_first:	true if no other page than the first one is read
 * @ehdr:	its ELF header
 * @segments:	the segments that are loaded
 * @nr_segments: number of these
 * @dynamic:	where its dynamic section is; empty if there is none
 * @unwind:	where its .eh_frame_hdr is; empty if there is none
 * @notes:	where it has notes
 * @nr_notes:	number of these
 * @missing:	number of pages that were missing
 * @failed:	true if memory or the budget did not suffice
 * @common:	address of what the last rules have in common; zero if there is none
 */
struct program {
	const struct guest_page_cache	*cache;
	u64			mapping;
	struct cached		*pages;
	u64			nr_pages;
	bool			only_first;
	Elf64_Ehdr		ehdr;
	Elf64_Phdr		segments[MAX_SEGMENTS];
	unsigned int		nr_segments;
	Elf64_Phdr		dynamic;
	Elf64_Phdr		unwind;
	Elf64_Phdr		notes[MAX_SEGMENTS];
	unsigned int		nr_notes;
	int			missing;
	bool			failed;
	u64			common;
};

/**
 * struct part - a section of the file that is written
 * @name:	its name
 * @shdr:	its header
 * @data:	its contents; NULL if the file doesn't have them
 */
struct part {
	const char	*name;
	Elf64_Shdr	shdr;
	void		*data;
};

enum {
	PART_NULL, PART_TEXT, PART_NOTE, PART_SYMBOLS, PART_NAMES, PART_TABLE, PART_RULES,
	PART_SECTIONS, NR_PARTS
};

/* Read a page of the file; @page receives where it is. */
static bool read_page(struct program *program, u64 index, struct cached *page)
{
	const struct guest_page_cache *cache = program->cache;

	if (cache->image)
		return index < cache->image_size >> GUEST_PAGE_SHIFT &&
		       guest_memory__read(cache->mem, cache->image + (index << GUEST_PAGE_SHIFT),
					  page->data, GUEST_PAGE_SIZE);
	return guest_page_cache__find(cache, program->mapping, index, &page->pfn) &&
	       guest_memory__read_page(cache->mem, page->pfn, page->data);
}

static const u8 *get_page(struct program *program, u64 index)
{
	struct cached *page = &program->pages[index];

	if (index && program->only_first)
		return NULL;

	if (page->tried)
		return page->data;

	page->tried = true;
	program->nr_pages = max_t(u64, program->nr_pages, index + 1);
	page->data = malloc(GUEST_PAGE_SIZE);
	program->failed |= !page->data;
	if (!page->data || !read_page(program, index, page)) {
		zfree(&page->data);
		program->missing++;
	}
	return page->data;
}

/* Read bytes of the file, if all of them are there; if not, leave @buf as it is. */
static bool read_at(struct program *program, u64 offset, void *buf, u64 size)
{
	u64 len;

	if (offset > MAX_SIZE || size > MAX_SIZE - offset)
		return false;

	/* The guest chooses how often a page is read. */
	if (!guest_memory__spend(program->cache->mem, size)) {
		program->failed = true;
		return false;
	}

	for (u64 at = offset & GUEST_PAGE_MASK; at < offset + size; at += GUEST_PAGE_SIZE) {
		if (!get_page(program, at >> GUEST_PAGE_SHIFT))
			return false;
	}
	for (; size; size -= len, offset += len, buf += len) {
		u64 begin = offset & ~GUEST_PAGE_MASK;

		len = min_t(u64, size, (GUEST_PAGE_SIZE - begin));
		memcpy(buf, get_page(program, offset >> GUEST_PAGE_SHIFT) + begin, len);
	}
	return true;
}

/* Read bytes by the address that the linker has given them. */
static bool read_addr(struct program *program, u64 addr, void *buf, u64 size)
{
	for (unsigned int i = 0; i < program->nr_segments; i++) {
		const Elf64_Phdr *segment = &program->segments[i];
		u64 offset = addr - segment->p_vaddr;

		if (addr >= segment->p_vaddr && offset < segment->p_filesz &&
		    size <= segment->p_filesz - offset)
			return read_at(program, segment->p_offset + offset, buf, size);
	}
	/* Looking for it has a cost, too. */
	program->failed |= !guest_memory__spend(program->cache->mem, 0);
	return false;
}

/* Return the segment with the code at an address; NULL if there is none. */
static const Elf64_Phdr *find_code(const struct program *program, u64 addr)
{
	for (unsigned int i = 0; i < program->nr_segments; i++) {
		const Elf64_Phdr *segment = &program->segments[i];

		if (segment->p_flags & PF_X && addr >= segment->p_vaddr &&
		    addr - segment->p_vaddr < segment->p_filesz)
			return segment;
	}
	return NULL;
}

static bool is_in_file(const Elf64_Phdr *phdr)
{
	return phdr->p_offset <= MAX_SIZE && phdr->p_filesz <= MAX_SIZE - phdr->p_offset &&
	       phdr->p_vaddr + phdr->p_filesz >= phdr->p_vaddr;
}

static bool is_arm64(const struct program *program)
{
	return program->cache->is_arm64;
}

/* Read the headers; return false if the file is none of 64-bit code. */
static bool read_headers(struct program *program)
{
	Elf64_Ehdr *ehdr = &program->ehdr;
	Elf64_Phdr phdr;
	u64 end = 0;

	if (!read_at(program, 0, ehdr, sizeof(*ehdr)) ||
	    memcmp(ehdr->e_ident, ELFMAG, SELFMAG) || ehdr->e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr->e_ident[EI_DATA] != ELFDATA2LSB || ehdr->e_phentsize != sizeof(phdr) ||
	    (ehdr->e_type != ET_DYN && ehdr->e_type != ET_EXEC) ||
	    ehdr->e_machine != (is_arm64(program) ? EM_AARCH64 : EM_X86_64) ||
	    ehdr->e_phoff > GUEST_PAGE_SIZE)
		return false;

	for (unsigned int i = 0; i < min_t(unsigned int, ehdr->e_phnum, 4 * MAX_SEGMENTS); i++) {
		if (!read_at(program, ehdr->e_phoff + i * sizeof(phdr), &phdr, sizeof(phdr)))
			return false;
		if (!is_in_file(&phdr))
			continue;
		/* Linkers sort segments.  In two that overlap, an address has two contents. */
		if (phdr.p_type == PT_LOAD && phdr.p_vaddr < end)
			return false;
		if (phdr.p_type == PT_LOAD)
			end = phdr.p_vaddr + phdr.p_filesz;
		if (phdr.p_type == PT_LOAD && program->nr_segments < MAX_SEGMENTS)
			program->segments[program->nr_segments++] = (Elf64_Phdr) {
				.p_type = PT_LOAD,
				.p_flags = phdr.p_flags & (PF_R | PF_W | PF_X),
				.p_offset = phdr.p_offset,
				.p_vaddr = phdr.p_vaddr,
				.p_paddr = phdr.p_vaddr,
				.p_filesz = phdr.p_filesz,
				.p_memsz = phdr.p_filesz,
				.p_align = GUEST_PAGE_SIZE,
			};
		else if (phdr.p_type == PT_NOTE && program->nr_notes < MAX_SEGMENTS)
			program->notes[program->nr_notes++] = phdr;
		else if (phdr.p_type == PT_DYNAMIC)
			program->dynamic = phdr;
		else if (phdr.p_type == PT_GNU_EH_FRAME)
			program->unwind = phdr;
	}
	return program->nr_segments;
}

/* Find the build-id in notes; return its size, zero if there is none. */
static size_t find_in_notes(const u8 *notes, size_t size, u8 *build_id)
{
	Elf64_Nhdr note;
	size_t desc;

	for (size_t pos = 0; pos + sizeof(note) <= size;
	     pos = desc + ALIGN((size_t)note.n_descsz, 4)) {
		memcpy(&note, &notes[pos], sizeof(note));
		desc = pos + sizeof(note) + ALIGN((size_t)note.n_namesz, 4);
		if (desc > size || note.n_descsz > size - desc)
			return 0;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU) &&
		    !memcmp(&notes[pos + sizeof(note)], ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) &&
		    note.n_descsz && note.n_descsz <= BUILD_ID_SIZE) {
			memcpy(build_id, &notes[desc], note.n_descsz);
			return note.n_descsz;
		}
	}
	return 0;
}

static bool find_build_id(struct program *program, struct build_id *build_id)
{
	u8 notes[GUEST_PAGE_SIZE];

	build_id->size = 0;
	for (unsigned int i = 0; i < program->nr_notes && !build_id->size; i++) {
		const Elf64_Phdr *phdr = &program->notes[i];

		if (phdr->p_filesz <= sizeof(notes) &&
		    read_at(program, phdr->p_offset, notes, phdr->p_filesz))
			build_id->size = find_in_notes(notes, phdr->p_filesz, build_id->data);
	}
	return build_id->size;
}

/*
 * Return the number of dynamic symbols, from the table by whose hashes they are found: symbols
 * without a hash come first, and the others by their hashes.
 */
static u32 count_by_gnu_hash(struct program *program, u64 addr)
{
	struct { u32 nr_buckets, first, nr_bloom, shift; } head;
	u32 last = 0, bucket, hash;
	u64 chains;

	if (!read_addr(program, addr, &head, sizeof(head)) || head.nr_buckets > MAX_SYMBOLS ||
	    head.first > MAX_SYMBOLS || head.nr_bloom > MAX_SYMBOLS)
		return 0;

	addr += sizeof(head) + head.nr_bloom * sizeof(u64);
	chains = addr + head.nr_buckets * sizeof(u32);
	for (u32 i = 0; i < head.nr_buckets && !program->failed; i++) {
		if (read_addr(program, addr + i * sizeof(bucket), &bucket, sizeof(bucket)))
			last = max_t(u32, last, bucket);
	}
	if (last < head.first)
		return head.first;

	while (last < MAX_SYMBOLS &&
	       read_addr(program, chains + (u64)(last - head.first) * sizeof(hash), &hash,
			 sizeof(hash)) && !(hash & 1))
		last++;
	return last + 1;
}

/*
 * Read the name at @addr, of at most @max bytes; return its length, zero if not all of it is there.
 */
static size_t read_name(struct program *program, u64 addr, u64 max, char name[MAX_NAME])
{
	size_t len = 0, size;

	max = min_t(u64, max, MAX_NAME);
	while (len < max) {
		/* The bytes after a name may be on a page that is missing. */
		size = min_t(u64, NAME_PIECE - (addr + len) % NAME_PIECE, (max - len));
		if (!read_addr(program, addr + len, &name[len], size))
			return 0;
		for (; size; size--, len++) {
			if (!name[len])
				return len;
			/* Names are printed on terminals. */
			if (name[len] <= ' ' || name[len] > '~')
				name[len] = '?';
		}
	}
	return 0;
}

/* Where a program has its dynamic symbols and relocations; zero if it has none. */
struct dynamic {
	u64	symbols;
	u64	names;
	u64	names_size;
	u64	gnu_hash;
	u64	hash;
	u64	plt_relocs;
	u64	plt_relocs_size;
	u64	relocs;
	u64	relocs_size;
};

static void read_dynamic(struct program *program, struct dynamic *dynamic)
{
	const struct {
		s64	tag;
		u64	*value;
	} wanted[] = {
		{ DT_SYMTAB, &dynamic->symbols }, { DT_STRTAB, &dynamic->names },
		{ DT_STRSZ, &dynamic->names_size }, { DT_GNU_HASH, &dynamic->gnu_hash },
		{ DT_HASH, &dynamic->hash }, { DT_JMPREL, &dynamic->plt_relocs },
		{ DT_PLTRELSZ, &dynamic->plt_relocs_size }, { DT_RELA, &dynamic->relocs },
		{ DT_RELASZ, &dynamic->relocs_size },
	};
	Elf64_Dyn dyn;

	memset(dynamic, 0, sizeof(*dynamic));
	for (u64 i = 0; i < min_t(u64, program->dynamic.p_filesz / sizeof(dyn), MAX_DYNAMIC); i++) {
		if (!read_at(program, program->dynamic.p_offset + i * sizeof(dyn), &dyn,
			     sizeof(dyn)) ||
		    dyn.d_tag == DT_NULL)
			return;
		for (size_t j = 0; j < ARRAY_SIZE(wanted); j++) {
			if (dyn.d_tag == wanted[j].tag)
				*wanted[j].value = dyn.d_un.d_val;
		}
	}
}

static u32 count_symbols(struct program *program, const struct dynamic *dynamic)
{
	u32 nr = 0;

	if (!dynamic->symbols || !dynamic->names)
		return 0;
	if (dynamic->gnu_hash)
		nr = count_by_gnu_hash(program, dynamic->gnu_hash);
	/* The other table of hashes begins with the number of its buckets, and that of symbols. */
	else if (dynamic->hash)
		read_addr(program, dynamic->hash + sizeof(nr), &nr, sizeof(nr));
	return min_t(u32, nr, MAX_SYMBOLS);
}

/* Return true if the symbol is that of code in the program. */
static bool is_code(const struct program *program, const Elf64_Sym *symbol)
{
	unsigned int type = ELF64_ST_TYPE(symbol->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
	       symbol->st_shndx != SHN_UNDEF && find_code(program, symbol->st_value);
}

/* The symbols that are written, and their names. */
struct symbols {
	FILE	*symbols;
	FILE	*names;
};

/* Read a symbol and its name; return false if they aren't wholly there. */
static bool read_symbol(struct program *program, const struct dynamic *dynamic, u32 i,
			Elf64_Sym *symbol, char name[MAX_NAME])
{
	return read_addr(program, dynamic->symbols + i * sizeof(*symbol), symbol,
			 sizeof(*symbol)) && symbol->st_name < dynamic->names_size &&
	       read_name(program, dynamic->names + symbol->st_name,
			 dynamic->names_size - symbol->st_name, name);
}

static void add_symbol(struct symbols *out, Elf64_Sym symbol, const char *name, const char *suffix)
{
	/* Many symbols may have the same long name. */
	if (ftell(out->names) > MAX_NAMES_SIZE)
		return;
	symbol.st_name = ftell(out->names);
	symbol.st_shndx = PART_TEXT;
	fwrite(&symbol, sizeof(symbol), 1, out->symbols);
	fprintf(out->names, "%s%s%c", name, suffix, 0);
}

static void add_functions(struct program *program, const struct dynamic *dynamic, u32 nr,
			  struct symbols *out)
{
	char name[MAX_NAME];
	Elf64_Sym symbol;

	for (u32 i = 1; i < nr && !program->failed; i++) {
		/* A symbol without a size goes as far as to the next one, which may be missing. */
		if (read_symbol(program, dynamic, i, &symbol, name) &&
		    is_code(program, &symbol) && symbol.st_size)
			add_symbol(out, symbol, name, "");
	}
}

/* A pointer that the dynamic linker sets to a function of that symbol. */
struct slot {
	u64	addr;
	u32	symbol;
};

static int cmp_slots(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Return true if a relocation of this type sets a pointer to a function. */
static bool is_slot(const struct program *program, u32 type)
{
	if (is_arm64(program))
		return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
	return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
}

/* Add the slots of relocations; return the number of all slots then. */
static u32 add_slots(struct program *program, u64 addr, u64 size, struct slot *slots, u32 nr)
{
	Elf64_Rela rela;

	size = min_t(u64, size, (MAX_SYMBOLS * sizeof(rela)));
	for (u64 pos = 0; pos + sizeof(rela) <= size && nr < MAX_SYMBOLS && !program->failed;
	     pos += sizeof(rela)) {
		if (read_addr(program, addr + pos, &rela, sizeof(rela)) &&
		    is_slot(program, ELF64_R_TYPE(rela.r_info)))
			slots[nr++] = (struct slot) { rela.r_offset, ELF64_R_SYM(rela.r_info) };
	}
	return nr;
}

/* As read_plt_entry(), for arm64. */
static unsigned int read_arm64_plt_entry(struct program *program, u64 addr, u64 *slot)
{
	u32 code[PLT_ENTRY_SIZE / sizeof(u32) + 1];
	const u32 *at = code;
	s64 page;

	/* The last entry may be the end of a file's code. */
	code[ARRAY_SIZE(code) - 1] = 0;
	if (!read_addr(program, addr, code, sizeof(code)) &&
	    !read_addr(program, addr, code, PLT_ENTRY_SIZE))
		return 0;

	if (*at == ARM64_BTI)
		at++;
	/* The first entry pushes the address of a pointer, and jumps by another one. */
	if (*at == ARM64_PUSH)
		return ARM64_PLT_FIRST_SIZE;
	if ((at[0] & ~ARM64_ADRP_BITS) != ARM64_ADRP || (at[1] & ~ARM64_LOAD_BITS) != ARM64_LOAD)
		return 0;

	/* ADRP has 21 bits of the number of the page, the lowest two of them in bits 29 and 30. */
	page = (s64)((u64)(at[0] >> 5 & 0x7ffff) << 45) >> 43 | (at[0] >> 29 & 3);
	*slot = (addr & GUEST_PAGE_MASK) + page * GUEST_PAGE_SIZE + (at[1] >> 10 & 0xfff) * 8;
	return at == code && at[3] == ARM64_JUMP ? PLT_ENTRY_SIZE : ARM64_PLT_LARGE_SIZE;
}

/*
 * Return the size of an entry of a procedure linkage table, zero if there is none at @addr; put the
 * address of the pointer by which it jumps into @slot, or zero.
 */
static unsigned int read_plt_entry(struct program *program, u64 addr, u64 *slot)
{
	static const u8 endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa }, push = 0x68;
	u8 code[PLT_ENTRY_SIZE];
	unsigned int at = 0;

	*slot = 0;
	if (is_arm64(program))
		return read_arm64_plt_entry(program, addr, slot);
	if (!read_addr(program, addr, code, sizeof(code)))
		return 0;

	/* The first entry pushes a pointer, and jumps by the next one. */
	if (code[0] == 0xff && code[1] == 0x35)
		return sizeof(code);
	if (!memcmp(code, endbr, sizeof(endbr))) {
		at = sizeof(endbr);
		if (code[at] == push)
			return sizeof(code);
		/* The prefix BND. */
		at += code[at] == 0xf2;
	}
	if (code[at] != 0xff || code[at + 1] != 0x25)
		return 0;

	*slot = addr + at + 6 + (s32)get_unaligned_le32(&code[at + 2]);
	/* An entry that needs not push anything may be a short one. */
	return at || code[6] == push ? sizeof(code) : sizeof(code) / 2;
}

/* Name the entries of the tables that begin the code: they are "function@plt". */
static void add_plt(struct program *program, const struct dynamic *dynamic,
		    const struct slot *slots, u32 nr, struct symbols *out)
{
	const Elf64_Phdr *segment = NULL;
	char name[MAX_NAME];
	Elf64_Sym function;
	u64 first, before = is_arm64(program) ? ARM64_MAX_BEFORE_PLT : MAX_BEFORE_PLT;
	unsigned int size, entry = PLT_ENTRY_SIZE;
	bool any = false;
	struct slot key;

	for (unsigned int i = 0; i < program->nr_segments && !segment; i++) {
		if (program->segments[i].p_flags & PF_X)
			segment = &program->segments[i];
	}
	if (!segment)
		return;

	/* arm64's linkers put headers and symbols before the code, and the relocations last. */
	first = dynamic->plt_relocs + dynamic->plt_relocs_size - segment->p_vaddr;
	if (!dynamic->plt_relocs || first >= segment->p_filesz)
		first = 0;
	first = ALIGN(segment->p_vaddr + first, PLT_ENTRY_SIZE) - segment->p_vaddr;
	for (u64 at = first; at < segment->p_filesz && !program->failed; at += size) {
		u64 addr = segment->p_vaddr + at, offset = segment->p_offset + at;
		const struct slot *found;

		if (any && (!get_page(program, offset >> GUEST_PAGE_SHIFT) ||
			    !get_page(program, (offset + entry - 1) >> GUEST_PAGE_SHIFT))) {
			/* Go on with the first entry that begins behind this page. */
			size = GUEST_PAGE_SIZE - (offset & ~GUEST_PAGE_MASK);
			size = DIV_ROUND_UP(size, entry) * entry;
			continue;
		}
		size = read_plt_entry(program, addr, &key.addr);
		found = key.addr ? bsearch(&key, slots, nr, sizeof(key), cmp_slots) : NULL;
		if (found) {
			Elf64_Sym symbol = {
				.st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
				.st_value = addr,
				.st_size = size,
			};

			any = true;
			entry = size;
			if (read_symbol(program, dynamic, found->symbol, &function, name))
				add_symbol(out, symbol, name, "@plt");
		} else if (!size || (key.addr && !any)) {
			/* Other code comes before the tables, and the program's behind them. */
			if (any || at > first + before)
				return;
			size = PLT_ENTRY_SIZE;
		}
	}
}

/* Make the symbols and their names; return false if there is no memory. */
static bool make_symbols(struct program *program, struct part *parts)
{
	struct part *symbols = &parts[PART_SYMBOLS], *names = &parts[PART_NAMES];
	char *texts[2] = {};
	const Elf64_Sym none = {};
	size_t sizes[2] = {};
	struct dynamic dynamic;
	struct symbols out;
	struct slot *slots;
	u32 nr;

	read_dynamic(program, &dynamic);
	out.symbols = open_memstream(&texts[0], &sizes[0]);
	out.names = open_memstream(&texts[1], &sizes[1]);
	slots = calloc(MAX_SYMBOLS, sizeof(*slots));
	if (out.symbols && out.names && slots) {
		fwrite(&none, sizeof(none), 1, out.symbols);
		fputc(0, out.names);
		add_functions(program, &dynamic, count_symbols(program, &dynamic), &out);
		nr = add_slots(program, dynamic.plt_relocs, dynamic.plt_relocs_size, slots, 0);
		nr = add_slots(program, dynamic.relocs, dynamic.relocs_size, slots, nr);
		qsort(slots, nr, sizeof(*slots), cmp_slots);
		add_plt(program, &dynamic, slots, nr, &out);
	}
	free(slots);
	if (out.symbols && fclose(out.symbols))
		sizes[0] = 0;
	if (out.names && fclose(out.names))
		sizes[1] = 0;
	symbols->data = texts[0];
	symbols->shdr.sh_size = sizes[0];
	names->data = texts[1];
	names->shdr.sh_size = sizes[1];
	return sizes[0] && sizes[1];
}

/* A place in a rule, and its end; the place is NULL behind a number or a block that is cut. */
struct bytes {
	const u8	*at;
	const u8	*end;
};

/* Skip a number in LEB128, see the DWARF standard, 7.6, and return it; its sign doesn't matter. */
static u64 skip_leb128(struct bytes *bytes)
{
	u64 value = 0;

	for (unsigned int shift = 0; bytes->at && bytes->at < bytes->end; shift += 7) {
		u8 byte = *bytes->at++;

		if (shift < 63)
			value |= (u64)(byte & 0x7f) << shift;
		else if (byte & 0x7f)
			value = ~0ULL;
		if (!(byte & 0x80))
			return value;
	}
	bytes->at = NULL;
	return 0;
}

static void skip(struct bytes *bytes, u64 size)
{
	if (bytes->at && size <= (u64)(bytes->end - bytes->at))
		bytes->at += size;
	else
		bytes->at = NULL;
}

/*
 * Check the instructions of a rule: DWARF 6.4.2, and GNU's.  Readers would get out of memory by
 * a register or a depth that is far too large.
 */
static bool are_instructions(struct bytes bytes, bool arm64)
{
	/* Of each instruction: "r": a register, "u": a number, "b": a block, a digit: bytes. */
	static const char *const operands[] = {
		[0x00] = "", [0x02] = "1", [0x03] = "2", [0x04] = "4", [0x05] = "ru", [0x06] = "r",
		[0x07] = "r", [0x08] = "r", [0x09] = "rr", [0x0a] = "", [0x0b] = "", [0x0c] = "ru",
		[0x0d] = "r", [0x0e] = "u", [0x0f] = "b", [0x10] = "rb", [0x11] = "ru",
		[0x12] = "ru", [0x13] = "u", [0x14] = "ru", [0x15] = "ru", [0x16] = "rb",
		[NEGATE_RA_STATE] = "", [0x2e] = "u", [0x2f] = "ru",
	};
	unsigned int depth = 0, max = arm64 ? ARM64_MAX_REGISTER : MAX_REGISTER;

	while (bytes.at && bytes.at < bytes.end) {
		u8 code = *bytes.at++;

		/* The upper two bits may be an instruction, with a number in the others. */
		if (code >> 6 == 1)
			continue;
		if (code >> 6) {
			if ((code & 0x3f) > max)
				return false;
			if (code >> 6 == 2)
				skip_leb128(&bytes);
			continue;
		}
		if (code >= ARRAY_SIZE(operands) || !operands[code] ||
		    (code == NEGATE_RA_STATE && !arm64))
			return false;
		depth += code == 0x0a;
		depth -= code == 0x0b && depth;
		if (depth > MAX_DEPTH)
			return false;
		for (const char *kind = operands[code]; *kind && bytes.at; kind++) {
			u64 number;

			if (*kind >= '0' && *kind <= '9') {
				skip(&bytes, *kind - '0');
				continue;
			}
			number = skip_leb128(&bytes);
			if (*kind == 'r' && number > max)
				return false;
			if (*kind == 'b' && bytes.at)
				skip(&bytes, number);
		}
	}
	return bytes.at;
}

/* Return the size of a pointer in this encoding, see the Linux Standard Base. */
static unsigned int pointer_size(u8 encoding)
{
	static const u8 sizes[] = { [2] = 2, [3] = 4 };

	return (encoding & 7) < ARRAY_SIZE(sizes) && sizes[encoding & 7] ? sizes[encoding & 7] : 8;
}

/* Check what rules have in common; addresses in the rules must have four bytes. */
static bool is_common(const u8 *record, u32 len, bool arm64)
{
	struct bytes bytes = { record + 2 * sizeof(u32), record + sizeof(u32) + len };
	const char *augmentation = (const char *)bytes.at + 1;
	bool found = false;
	u64 size;
	u8 code;

	/* Version 1, and an augmentation as of today's compilers. */
	if (len < 16 || *bytes.at != 1 || *augmentation != 'z' ||
	    strnlen(augmentation, 8) == 8)
		return false;

	skip(&bytes, 1 + strlen(augmentation) + 1);
	skip_leb128(&bytes);
	skip_leb128(&bytes);
	skip(&bytes, 1);
	size = bytes.at ? skip_leb128(&bytes) : 0;
	for (const char *kind = augmentation + 1; *kind && bytes.at; kind++) {
		if (*kind == 'S' || *kind == 'B')
			continue;
		code = bytes.at < bytes.end ? *bytes.at : 0;
		skip(&bytes, 1);
		size--;
		if (*kind == 'R') {
			found = code == 0x1b;
		} else if (*kind == 'P') {
			skip(&bytes, pointer_size(code));
			size -= pointer_size(code);
		} else if (*kind != 'L') {
			return false;
		}
	}
	return found && bytes.at && !size && are_instructions(bytes, arm64);
}

/* Check a rule: the address and the size of the code come first, then a number of bytes. */
static bool is_rule(const u8 *record, u32 len, bool arm64)
{
	struct bytes bytes = { record + 2 * sizeof(u32), record + sizeof(u32) + len };

	if (len < 3 * sizeof(u32) + 1)
		return false;

	skip(&bytes, 2 * sizeof(u32));
	skip(&bytes, skip_leb128(&bytes));
	return bytes.at && are_instructions(bytes, arm64);
}

/*
 * Copy a rule, or what rules have in common, to its place in @rules if all of it is there; return
 * its length, zero if it can't be used.
 */
static u32 copy_record(struct program *program, u64 first, u64 addr, u8 *rules, u64 size)
{
	u64 offset = addr - first;
	u32 len;

	if (addr < first || offset >= size || size - offset < 2 * sizeof(len) ||
	    !read_addr(program, addr, &len, sizeof(len)) || len < sizeof(len) ||
	    len > MAX_RULE_SIZE || len > size - offset - sizeof(len) ||
	    !read_addr(program, addr, &rules[offset], len + sizeof(len)))
		return 0;
	return len;
}

/* Copy a rule and what it refers to; return the rule's length, zero if it can't be used. */
static u32 copy_rule(struct program *program, u64 first, u64 addr, u8 *rules, u64 size)
{
	u32 len = copy_record(program, first, addr, rules, size), id, common_len;
	u64 common;

	if (!len || !is_rule(&rules[addr - first], len, is_arm64(program)))
		return 0;

	/* A rule tells how far before this word its common part is; the latter has zero there. */
	id = get_unaligned_le32(&rules[addr - first + sizeof(id)]);
	common = addr + sizeof(id) - id;
	if (common == program->common)
		return len;

	common_len = copy_record(program, first, common, rules, size);
	if (!common_len || get_unaligned_le32(&rules[common - first + sizeof(id)]) ||
	    !is_common(&rules[common - first], common_len, is_arm64(program)))
		return 0;

	program->common = common;
	return len;
}

/*
 * Return true if all segments lie in memory as in the file.  perf computes addresses by that: if
 * not, the rules would be used for other code.
 */
static bool is_in_one_piece(const struct program *program)
{
	for (unsigned int i = 1; i < program->nr_segments; i++) {
		if (program->segments[i].p_flags & PF_X &&
		    program->segments[i].p_vaddr - program->segments[i].p_offset !=
		    program->segments[0].p_vaddr - program->segments[0].p_offset)
			return false;
	}
	return true;
}

/* Return the end of the segment that an address is in; zero if it is in none. */
static u64 segment_end(const struct program *program, u64 addr)
{
	for (unsigned int i = 0; i < program->nr_segments; i++) {
		const Elf64_Phdr *segment = &program->segments[i];

		if (addr >= segment->p_vaddr && addr - segment->p_vaddr < segment->p_filesz)
			return segment->p_vaddr + segment->p_filesz;
	}
	return 0;
}

/* Make the table of rules, and the rules; return false if there is no memory. */
static bool make_rules(struct program *program, struct part *parts)
{
	u64 table = program->unwind.p_vaddr, rules, size;
	struct rule_entry *entries;
	struct rule_table *head;
	struct rule_table old;
	u32 nr, found = 0;
	u64 end = 0;
	u8 *data;

	/* Without rules, callchains end in the program. */
	if (!program->unwind.p_filesz || !is_in_one_piece(program) ||
	    !read_addr(program, table, &old, sizeof(old)) ||
	    memcmp(old.format, eh_frame_hdr, sizeof(eh_frame_hdr)))
		return true;

	rules = table + offsetof(struct rule_table, eh_frame) + old.eh_frame;
	size = segment_end(program, rules) - rules;
	if (!segment_end(program, rules) || size > MAX_RULES_SIZE)
		return true;

	nr = min_t(u32, old.nr, MAX_RULES);
	data = calloc(1, size + sizeof(u32));
	head = calloc(1, sizeof(*head) + nr * sizeof(*entries));
	if (!data || !head) {
		free(data);
		free(head);
		return false;
	}

	entries = (struct rule_entry *)(head + 1);
	for (u32 i = 0; i < nr && !program->failed; i++) {
		struct rule_entry entry;
		u64 rule;
		u32 len;

		if (!read_addr(program, table + sizeof(old) + i * sizeof(entry), &entry,
			       sizeof(entry)))
			continue;
		rule = table + entry.rule;
		/* Readers search the table by halves: it must be sorted. */
		if ((found && entries[found - 1].ip >= entry.ip) ||
		    !find_code(program, table + entry.ip))
			continue;
		len = copy_rule(program, rules, rule, data, size);
		if (!len)
			continue;
		entries[found++] = entry;
		end = max_t(u64, end, (rule - rules + sizeof(len) + len));
	}
	*head = old;
	head->nr = found;
	parts[PART_TABLE].data = head;
	parts[PART_TABLE].shdr.sh_addr = table;
	parts[PART_TABLE].shdr.sh_size = sizeof(*head) + found * sizeof(*entries);
	parts[PART_RULES].data = data;
	parts[PART_RULES].shdr.sh_addr = rules;
	/* A length of zero ends the rules. */
	parts[PART_RULES].shdr.sh_size = end + sizeof(u32);
	return true;
}

/*
 * arm64's kernel has a signal handler return to code of the vDSO, and puts user mode's registers on
 * the stack, where SP is then: X0 to X30, SP and PC, in struct rt_sigframe, which programs know.
 */
#define SIGNAL_RETURN		"__kernel_rt_sigreturn"
#define SIGNAL_RETURN_SIZE	8
#define INSTRUCTION_SIZE	4
#define SIGNAL_REGS		312
#define NR_SIGNAL_REGS		33
#define SIGNAL_PC		32

/* The rule, with what rules have in common in front; all lengths are multiples of 4. */
struct signal_rule {
	u32	common_len;
	u32	common_id;
	u8	head[9];
	u8	cfa[4];
	u8	regs[NR_SIGNAL_REGS][4];
	u8	pad[3];
	u32	len;
	u32	id;
	s32	ip;
	u32	size;
	u32	no_augmentation;
	u32	end;
};

/* Return a symbol that was found; NULL if it was not. */
static Elf64_Sym *find_symbol(const struct part *parts, const char *name)
{
	Elf64_Sym *symbols = parts[PART_SYMBOLS].data;
	const char *names = parts[PART_NAMES].data;

	for (size_t i = 0; i < parts[PART_SYMBOLS].shdr.sh_size / sizeof(*symbols); i++) {
		if (symbols[i].st_name < parts[PART_NAMES].shdr.sh_size &&
		    !strcmp(&names[symbols[i].st_name], name))
			return &symbols[i];
	}
	return NULL;
}

/*
 * Make the rule for the return from signal handlers, which Linux leaves out of arm64's vDSO, as it
 * has misled C++.  Return false if there is no memory.
 */
static bool make_signal_rule(const struct program *program, struct part *parts)
{
	struct signal_rule *rule;
	const Elf64_Phdr *last;
	u64 table, at, begin;
	Elf64_Sym *function;
	struct {
		struct rule_table head;
		struct rule_entry entry;
	} *head;

	if (!is_arm64(program) || !program->cache->image || parts[PART_RULES].data)
		return true;

	function = find_symbol(parts, SIGNAL_RETURN);
	if (!function)
		return true;

	rule = zalloc(sizeof(*rule));
	head = zalloc(sizeof(*head));
	if (!rule || !head) {
		free(rule);
		free(head);
		return false;
	}

	/*
	 * Nothing of the file is behind its segments.  A caller is looked up by the address before;
	 * in the system call, PC is the address after.
	 */
	last = &program->segments[program->nr_segments - 1];
	table = ALIGN(last->p_vaddr + last->p_filesz, sizeof(u64));
	at = table + sizeof(*head);
	begin = function->st_value - INSTRUCTION_SIZE;
	function->st_value = begin;
	function->st_size = 2 * INSTRUCTION_SIZE + SIGNAL_RETURN_SIZE;
	*rule = (struct signal_rule) {
		.common_len = offsetof(struct signal_rule, len) - sizeof(u32),
		/* Version 1, a signal's frame, units of 4 and -8 bytes, the caller's PC. */
		.head = { 1, 'z', 'R', 'S', 0, 4, 0x78, SIGNAL_PC, 1 },
		/* The encoding of addresses; DW_CFA_def_cfa: SP. */
		.cfa = { 0x1b, 0x0c, 31, 0 },
		.len = offsetof(struct signal_rule, end) - offsetof(struct signal_rule, id),
		.id = offsetof(struct signal_rule, id),
		.ip = begin - at - offsetof(struct signal_rule, ip),
		.size = function->st_size,
	};
	for (unsigned int reg = 0; reg < NR_SIGNAL_REGS; reg++) {
		int place = -(SIGNAL_REGS / 8 + (int)reg);

		/* DW_CFA_offset_extended_sf */
		rule->regs[reg][0] = 0x11;
		rule->regs[reg][1] = reg;
		rule->regs[reg][2] = 0x80 | (place & 0x7f);
		rule->regs[reg][3] = place >> 7 & 0x7f;
	}
	memcpy(head->head.format, eh_frame_hdr, sizeof(eh_frame_hdr));
	head->head.eh_frame = at - table - offsetof(struct rule_table, eh_frame);
	head->head.nr = 1;
	head->entry.ip = begin - table;
	head->entry.rule = at + offsetof(struct signal_rule, len) - table;
	parts[PART_TABLE].data = head;
	parts[PART_TABLE].shdr.sh_addr = table;
	parts[PART_TABLE].shdr.sh_size = sizeof(*head);
	parts[PART_RULES].data = rule;
	parts[PART_RULES].shdr.sh_addr = at;
	parts[PART_RULES].shdr.sh_size = sizeof(*rule);
	return true;
}

/* Make the note with the build-id; return false if there is no memory. */
static bool make_note(const struct build_id *build_id, struct part *parts)
{
	struct {
		Elf64_Nhdr	head;
		char		name[sizeof(ELF_NOTE_GNU)];
		u8		build_id[BUILD_ID_SIZE];
	} *note = zalloc(sizeof(*note));

	if (!note)
		return false;

	note->head.n_namesz = sizeof(note->name);
	note->head.n_type = NT_GNU_BUILD_ID;
	note->head.n_descsz = build_id->size;
	memcpy(note->name, ELF_NOTE_GNU, sizeof(note->name));
	memcpy(note->build_id, build_id->data, build_id->size);
	parts[PART_NOTE].data = note;
	parts[PART_NOTE].shdr.sh_size = sizeof(note->head) + sizeof(note->name) + build_id->size;
	return true;
}

/* Describe the code, which the file leaves out: of several pieces, the first. */
static void make_text(const struct program *program, struct part *text)
{
	for (unsigned int i = 0; i < program->nr_segments; i++) {
		const Elf64_Phdr *segment = &program->segments[i];

		if (!(segment->p_flags & PF_X))
			continue;
		text->shdr.sh_addr = segment->p_vaddr;
		text->shdr.sh_offset = segment->p_offset;
		text->shdr.sh_size = segment->p_filesz;
		return;
	}
}

/* Return true if all pages that were read are still those of the file. */
static bool is_unchanged(const struct program *program)
{
	u64 pfn;

	if (program->cache->image)
		return true;

	guest_memory__forget(program->cache->mem);
	for (u64 i = 0; i < program->nr_pages; i++) {
		if (program->pages[i].data &&
		    (!guest_page_cache__find(program->cache, program->mapping, i, &pfn) ||
		     pfn != program->pages[i].pfn))
			return false;
	}
	return true;
}

static bool write_padded(FILE *file, const void *data, size_t size)
{
	static const u8 zeroes[sizeof(u64)];
	size_t pad = ALIGN(size, sizeof(u64)) - size;

	return fwrite(data, 1, size, file) == size && fwrite(zeroes, 1, pad, file) == pad;
}

static bool write_file(const struct program *program, struct part *parts, FILE *file)
{
	size_t phdrs = program->nr_segments * sizeof(Elf64_Phdr), len = 1;
	Elf64_Ehdr ehdr = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = program->ehdr.e_type,
		.e_machine = program->ehdr.e_machine,
		.e_version = EV_CURRENT,
		.e_entry = program->ehdr.e_entry,
		.e_phoff = sizeof(ehdr),
		.e_shoff = sizeof(ehdr) + phdrs,
		.e_ehsize = sizeof(ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = program->nr_segments,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = NR_PARTS,
		.e_shstrndx = PART_SECTIONS,
	};
	char names[128] = "";
	u64 offset = sizeof(ehdr) + phdrs + NR_PARTS * sizeof(Elf64_Shdr);
	bool good;

	for (unsigned int i = PART_TEXT; i < NR_PARTS; i++) {
		parts[i].shdr.sh_name = len;
		len += scnprintf(&names[len], sizeof(names) - len, "%s", parts[i].name) + 1;
	}
	parts[PART_SECTIONS].data = names;
	parts[PART_SECTIONS].shdr.sh_size = sizeof(names);

	good = write_padded(file, &ehdr, sizeof(ehdr)) &&
	       write_padded(file, program->segments, phdrs);
	for (unsigned int i = 0; i < NR_PARTS; i++) {
		if (parts[i].data) {
			parts[i].shdr.sh_offset = offset;
			offset += ALIGN(parts[i].shdr.sh_size, sizeof(u64));
		} else if (i != PART_TEXT) {
			parts[i].shdr.sh_type = SHT_NULL;
		}
		good = good && write_padded(file, &parts[i].shdr, sizeof(parts[i].shdr));
	}
	for (unsigned int i = 0; i < NR_PARTS; i++) {
		if (parts[i].data)
			good = good && write_padded(file, parts[i].data, parts[i].shdr.sh_size);
	}
	parts[PART_SECTIONS].data = NULL;
	return good;
}

/* Read the program once, and write it unless its pages have changed meanwhile. */
static int try_to_write(const struct guest_page_cache *cache, u64 mapping,
			const struct build_id *build_id, FILE *file, u64 *content)
{
	struct part parts[NR_PARTS] = {
		[PART_TEXT] = { ".text", { .sh_type = SHT_NOBITS,
					   .sh_flags = SHF_ALLOC | SHF_EXECINSTR } },
		[PART_NOTE] = { ".note.gnu.build-id", { .sh_type = SHT_NOTE } },
		[PART_SYMBOLS] = { ".dynsym", { .sh_type = SHT_DYNSYM, .sh_link = PART_NAMES,
						.sh_info = 1, .sh_entsize = sizeof(Elf64_Sym) } },
		[PART_NAMES] = { ".dynstr", { .sh_type = SHT_STRTAB } },
		[PART_TABLE] = { ".eh_frame_hdr", { .sh_type = SHT_PROGBITS,
						    .sh_flags = SHF_ALLOC } },
		[PART_RULES] = { ".eh_frame", { .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC } },
		[PART_SECTIONS] = { ".shstrtab", { .sh_type = SHT_STRTAB } },
	};
	struct program program = { .cache = cache, .mapping = mapping };
	int missing = GUEST_PROGRAM_NONE;
	struct build_id found;

	guest_memory__forget(cache->mem);
	program.pages = calloc(MAX_PAGES, sizeof(*program.pages));
	/* Meanwhile, the guest may have another file there: compare the build-id again. */
	if (program.pages && read_headers(&program) && find_build_id(&program, &found) &&
	    found.size == build_id->size && !memcmp(found.data, build_id->data, found.size) &&
	    make_note(build_id, parts) && make_rules(&program, parts) &&
	    make_symbols(&program, parts) && make_signal_rule(&program, parts) &&
	    !program.failed &&
	    !guest_memory__is_exhausted(cache->mem) && is_unchanged(&program)) {
		make_text(&program, &parts[PART_TEXT]);
		if (write_file(&program, parts, file))
			missing = program.missing;
		*content = parts[PART_SYMBOLS].shdr.sh_size + parts[PART_TABLE].shdr.sh_size;
	}
	for (unsigned int i = 0; i < NR_PARTS; i++)
		free(parts[i].data);
	for (u64 i = 0; i < program.nr_pages; i++)
		free(program.pages[i].data);
	free(program.pages);
	return missing;
}

/**
 * guest_program__write - write what names and unwinds a program, from a guest's page cache
 * @cache:	how the guest's kernel caches pages
 * @mapping:	address of the program's struct address_space
 * @build_id:	the program's build-id; a file that has another one by now is not written
 * @file:	where to write: an empty file
 * @content:	receives a measure of how much was found: the size of its symbols and of its table
 *		of rules
 *
 * The ELF file has the program's segments without their contents, dynamic symbols of code, rules to
 * unwind it, and its build-id.
 *
 * Return: the number of pages that were missing; GUEST_PROGRAM_NONE if nothing was written, because
 * the guest reclaims pages faster than they can be read, or the budget is used up, see
 * guest_memory__is_exhausted().
 */
int guest_program__write(const struct guest_page_cache *cache, u64 mapping,
			 const struct build_id *build_id, FILE *file, u64 *content)
{
	int missing = GUEST_PROGRAM_NONE;

	for (unsigned int i = 0; i < MAX_TRIES && missing < 0 && !ftell(file) &&
	     !guest_memory__is_exhausted(cache->mem); i++)
		missing = try_to_write(cache, mapping, build_id, file, content);
	return missing;
}

/**
 * guest_program__read_build_id - read the build-id of a file in a guest's page cache
 * @cache:	how the guest's kernel caches pages
 * @mapping:	address of the file's struct address_space
 * @build_id:	receives it
 *
 * Linkers put it on the first page.
 *
 * Return: true if it was found.
 */
bool guest_program__read_build_id(const struct guest_page_cache *cache, u64 mapping,
				  struct build_id *build_id)
{
	struct cached first = {};
	struct program program = {
		.cache = cache, .mapping = mapping, .pages = &first, .only_first = true,
	};
	bool found = read_headers(&program) && find_build_id(&program, build_id);

	free(first.data);
	return found;
}
