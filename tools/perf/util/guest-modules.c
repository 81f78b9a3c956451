// SPDX-License-Identifier: GPL-2.0
/*
 * Read the modules of a guest and their symbols.  The BTF in the memory of the guest's kernel has
 * the offsets of the fields of its structures.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <elf.h>
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/zalloc.h>

#include <bpf/btf.h>

#include "guest-btf.h"
#include "guest-elf.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-modules.h"
#include "guest-sandbox.h"
#include "unwind-orc.h"

/*
 * Limits for the modules in the list, which may have no end; for the symbols of all modules
 * together; and for the ORC rows and the bytes of code of one module.
 */
#define MAX_MODULES	4096
#define MAX_SYMBOLS	(1 << 20)
#define MAX_ORCS	(1 << 20)
#define MAX_CODE	(16U << 20)

#define NAME_SIZE	64
#define MAX_NAME	512

/* enum module_state */
#define MODULE_STATE_LIVE	0
#define MODULE_STATE_COMING	1
#define MODULE_STATE_UNFORMED	3

/* enum mod_mem_type has at most this many values; the first one is the module's code. */
#define MAX_MEM_TYPES	16

/*
 * The kernel puts new modules first: look no further for those that run their init; and for no more
 * than MAX_INITS at a time, nor for more than MAX_ALL_INITS in all.
 */
#define MAX_NEWEST	32
#define MAX_INITS	16
#define MAX_ALL_INITS	2048

/* Modules have a build-id and one or two further notes. */
#define MAX_NOTES	8
#define BUILD_ID_NOTE	".note.gnu.build-id"

/* The size of a note with a build-id: at least an MD5, at most a SHA-1. */
#define MIN_NOTE	32
#define MAX_NOTE	36

/* The contents of a module's struct mod_kallsyms. */
struct symtab {
	u64	symbols;
	u64	strings;
	u64	types;
	u32	nr;
};

/**
 * struct module_layout - offsets of the fields of a guest's struct module, in bytes
 * @list:	the module's entry in the list of modules
 * @name:	its name
 * @kallsyms:	a pointer to its symbols
 * @core_kallsyms: the symbols that it keeps after its init; zero if it has no such field
 * @mem:	its memory: an array since Linux 6.4, its code first
 * @mem_base:	in an element of @mem: its address
 * @mem_size:	in an element of @mem: its size
 * @mem_step:	the size of an element of @mem
 * @nr_mem:	the number of elements of @mem
 * @init_base:	the address of the code of its init
 * @init_size:	the size of this code; if zero, it isn't known where the code is
 * @symbols:	in struct mod_kallsyms: a pointer to the table
 * @nr_symbols:	... the number of symbols
 * @strings:	... a pointer to their names
 * @types:	... a pointer to their types, as nm prints them
 * @has_types:	false if there is none
 * @text_size:	in an element of @mem: the size of the code in it; the same field as @mem_size since
 *		Linux 6.4
 * @nr_orcs:	the number of rows in its ORC tables; if zero, its kernel has none, and the next two
 *		mean nothing
 * @orc_ips:	a pointer to the addresses of the rows
 * @orcs:	a pointer to the rows
 * @state:	its enum module_state
 * @notes:	a pointer to its notes in sysfs; if zero, its kernel has none, and the next ones
 *		mean nothing
 * @first_note:	in struct module_notes_attrs: the array of struct bin_attribute
 * @note_step:	... the size of an element
 * @note_name:	in struct bin_attribute: a pointer to the name of the note's section
 * @note_addr:	... a pointer to the note
 * @note_size:	... the size of the note
 */
struct module_layout {
	u32	list;
	u32	name;
	u32	kallsyms;
	u32	core_kallsyms;
	u32	mem;
	u32	mem_base;
	u32	mem_size;
	u32	mem_step;
	u32	nr_mem;
	u32	init_base;
	u32	init_size;
	u32	symbols;
	u32	nr_symbols;
	u32	strings;
	u32	types;
	bool	has_types;
	u32	text_size;
	u32	nr_orcs;
	u32	orc_ips;
	u32	orcs;
	u32	state;
	u32	notes;
	u32	first_note;
	u32	note_step;
	u32	note_name;
	u32	note_addr;
	u32	note_size;
};

/* A module that perf has written to files: its name, and where its code is. */
struct known_module {
	char	*name;
	u64	start;
	u64	end;
};

/*
 * A module that runs its init: its address, where the code of its init is, and its name.  Another
 * module may be at the same address at the next look.
 */
struct init {
	u64	module;
	u64	start;
	u64	end;
	bool	seen;
	char	name[NAME_SIZE + 1];
};

/**
 * struct guest_modules - the modules of a guest that perf has written to files
 * @layout:	offsets of the fields of the guest's structures
 * @head:	address of the head of the list of modules
 * @newest:	the first entry of the list at the last look for modules that run their init
 * @looked:	when that entry was last seen to be the first one, in perf's clock
 * @unsettled:	true if a module was then being loaded
 * @inits:	modules that ran their init then
 * @nr_inits:	number of modules in @inits
 * @inits_left:	for how many modules the init may still be written
 * @init_symbols_left: how many symbols of inits may still be written
 * @symbols_left: how many symbols of modules may still be written
 * @known:	modules whose lines are in the files that guest_modules__write() was given
 * @nr:		number of modules in @known
 */
struct guest_modules {
	struct module_layout	layout;
	u64			head;
	u64			newest;
	u64			looked;
	bool			unsettled;
	struct init		inits[MAX_INITS];
	unsigned int		nr_inits;
	unsigned int		inits_left;
	u32			init_symbols_left;
	u32			symbols_left;
	struct known_module	*known;
	size_t			nr;
};

/*
 * Find the memory of a module.  Before Linux 6.4, core_layout has the part that the module keeps,
 * and init_layout the part that it drops after its init.
 */
static bool find_memory(const struct btf *btf, int module, struct module_layout *layout)
{
	const struct btf_type *type;
	int id = guest_btf__find(btf, module, "mem", &layout->mem), element;

	if (id < 0) {
		layout->nr_mem = 1;
		id = guest_btf__find(btf, module, "core_layout", &layout->mem);
		element = btf__resolve_type(btf, id);
	} else {
		type = btf__type_by_id(btf, btf__resolve_type(btf, id));
		if (!type || !btf_is_array(type))
			return false;
		layout->nr_mem = btf_array(type)->nelems;
		element = btf__resolve_type(btf, btf_array(type)->type);
		layout->mem_step = btf__resolve_size(btf, element);
	}

	if (guest_btf__find(btf, element, "text_size", &layout->text_size) < 0)
		guest_btf__find(btf, element, "size", &layout->text_size);
	return layout->nr_mem <= MAX_MEM_TYPES &&
	       guest_btf__find(btf, element, "base", &layout->mem_base) > 0 &&
	       guest_btf__find(btf, element, "size", &layout->mem_size) > 0;
}

/* Return the index of the code of the init in the array of a module's memory, or -1. */
static int find_init_text(const struct btf *btf)
{
	int id = btf__find_by_name_kind(btf, "mod_mem_type", BTF_KIND_ENUM);
	const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, id);

	for (int i = 0; type && i < (int)btf_vlen(type) && i < MAX_MEM_TYPES; i++) {
		const struct btf_enum *value = &btf_enum(type)[i];
		const char *name = btf__name_by_offset(btf, value->name_off);

		if (name && !strcmp(name, "MOD_INIT_TEXT") && value->val >= 0 &&
		    value->val < MAX_MEM_TYPES)
			return value->val;
	}
	return -1;
}

/* Find the code of a module's init, after find_memory(). */
static void find_init(const struct btf *btf, int module, struct module_layout *layout)
{
	u32 at = layout->mem;
	int i;

	if (layout->mem_step) {
		i = find_init_text(btf);
		if (i < 0 || i >= (int)layout->nr_mem)
			return;
		at += i * layout->mem_step;
	} else if (guest_btf__find(btf, module, "init_layout", &at) < 0) {
		return;
	}
	layout->init_base = at + layout->mem_base;
	layout->init_size = at + layout->text_size;
}

/* Find the ORC tables of a module, if its kernel has any. */
static void find_orc(const struct btf *btf, int module, struct module_layout *layout)
{
	u32 arch;
	int id = btf__resolve_type(btf, guest_btf__find(btf, module, "arch", &arch));

	if (guest_btf__find(btf, id, "num_orcs", &layout->nr_orcs) < 0 ||
	    guest_btf__find(btf, id, "orc_unwind_ip", &layout->orc_ips) < 0 ||
	    guest_btf__find(btf, id, "orc_unwind", &layout->orcs) < 0) {
		layout->nr_orcs = 0;
		return;
	}
	layout->nr_orcs += arch;
	layout->orc_ips += arch;
	layout->orcs += arch;
}

/* Find the notes of a module, if its kernel has them in sysfs. */
static void find_notes(const struct btf *btf, int module, struct module_layout *layout)
{
	int notes = btf__find_by_name_kind(btf, "module_notes_attrs", BTF_KIND_STRUCT);
	int note = btf__find_by_name_kind(btf, "bin_attribute", BTF_KIND_STRUCT);
	int attr = btf__find_by_name_kind(btf, "attribute", BTF_KIND_STRUCT);
	u32 name;

	if (guest_btf__find(btf, module, "notes_attrs", &layout->notes) < 0 ||
	    guest_btf__find(btf, notes, "attrs", &layout->first_note) < 0 ||
	    guest_btf__find(btf, note, "attr", &layout->note_name) < 0 ||
	    guest_btf__find(btf, attr, "name", &name) < 0 ||
	    guest_btf__find(btf, note, "private", &layout->note_addr) < 0 ||
	    guest_btf__find(btf, note, "size", &layout->note_size) < 0) {
		layout->notes = 0;
		return;
	}
	layout->note_name += name;
	layout->note_step = btf__resolve_size(btf, note);
}

static bool find_layout(const struct btf *btf, struct module_layout *layout)
{
	int module = btf__find_by_name_kind(btf, "module", BTF_KIND_STRUCT);
	int kallsyms = btf__find_by_name_kind(btf, "mod_kallsyms", BTF_KIND_STRUCT);

	find_orc(btf, module, layout);
	find_notes(btf, module, layout);
	if (guest_btf__find(btf, module, "core_kallsyms", &layout->core_kallsyms) < 0)
		layout->core_kallsyms = 0;
	layout->has_types = guest_btf__find(btf, kallsyms, "typetab", &layout->types) > 0;
	return guest_btf__find(btf, module, "list", &layout->list) > 0 &&
	       guest_btf__find(btf, module, "name", &layout->name) > 0 &&
	       guest_btf__find(btf, module, "state", &layout->state) > 0 &&
	       guest_btf__find(btf, module, "kallsyms", &layout->kallsyms) > 0 &&
	       guest_btf__find(btf, kallsyms, "symtab", &layout->symbols) > 0 &&
	       guest_btf__find(btf, kallsyms, "num_symtab", &layout->nr_symbols) > 0 &&
	       guest_btf__find(btf, kallsyms, "strtab", &layout->strings) > 0 &&
	       find_memory(btf, module, layout);
}

/*
 * Read the type of a symbol.  Before Linux 5.2, it is in the symbol itself: in place of its size,
 * or before 5.0, of its ELF type, which is no letter.
 */
static bool read_type(struct guest_memory *mem, const struct symtab *symtab, u32 i,
		      const Elf64_Sym *symbol, char *type)
{
	if (symtab->types)
		return guest_memory__read(mem, symtab->types + i, type, sizeof(*type));
	*type = isalpha(symbol->st_info) ? symbol->st_info : symbol->st_size;
	return true;
}

/* Write the symbols whose addresses are from @start on, and below @end. */
static void write_symbols(struct guest_memory *mem, const struct symtab *symtab, u64 start,
			  u64 end, const char *module, FILE *kallsyms)
{
	Elf64_Sym symbol;
	char *name, type;

	for (u32 i = 0; i < symtab->nr; i++) {
		if (!guest_memory__read(mem, symtab->symbols + i * sizeof(symbol), &symbol,
					sizeof(symbol)) ||
		    !read_type(mem, symtab, i, &symbol, &type))
			return;
		if (symbol.st_shndx == SHN_UNDEF || type <= ' ' || type > '~' ||
		    symbol.st_value < start || symbol.st_value >= end)
			continue;
		name = guest_memory__read_string(mem, symtab->strings + symbol.st_name, MAX_NAME);
		if (name)
			fprintf(kallsyms, "%016" PRIx64 " %c %s\t[%s]\n", symbol.st_value, type,
				name, module);
		free(name);
	}
}

static bool read_symtab(struct guest_memory *mem, const struct module_layout *layout, u64 module,
			struct symtab *symtab)
{
	u64 kallsyms;

	symtab->types = 0;
	return guest_memory__read(mem, module + layout->kallsyms, &kallsyms, sizeof(kallsyms)) &&
	       kallsyms &&
	       guest_memory__read(mem, kallsyms + layout->symbols, &symtab->symbols, sizeof(u64)) &&
	       guest_memory__read(mem, kallsyms + layout->strings, &symtab->strings, sizeof(u64)) &&
	       (!layout->has_types || guest_memory__read(mem, kallsyms + layout->types,
							 &symtab->types, sizeof(u64))) &&
	       guest_memory__read(mem, kallsyms + layout->nr_symbols, &symtab->nr, sizeof(u32));
}

/* Read where a module's code is, and the size of all parts of the module, which may be anywhere. */
static bool read_range(struct guest_memory *mem, const struct module_layout *layout, u64 module,
		       u64 *start, u64 *end, u64 *total)
{
	u64 at = module + layout->mem;
	u32 size;

	if (!guest_memory__read(mem, at + layout->mem_base, start, sizeof(*start)))
		return false;

	*end = *start;
	*total = 0;
	for (u32 i = 0; i < layout->nr_mem; i++, at += layout->mem_step) {
		if (!guest_memory__read(mem, at + layout->mem_size, &size, sizeof(size)))
			return false;
		if (!i)
			*end = *start + size;
		*total += size;
	}
	return true;
}

/*
 * Write the ORC tables of a module, and @size bytes of code, to boot/modules/@name, if the guest
 * has all of them.
 */
static void write_tables(struct guest_memory *mem, const struct module_layout *layout, u64 module,
			 u64 code, u32 size, const char *top, const char *name)
{
	struct guest_section sections[] = {
		{ ".text", .type = SHT_PROGBITS, .code = true, .addr = code, .size = size },
		{ ".orc_unwind_ip", .type = SHT_PROGBITS },
		{ ".orc_unwind", .type = SHT_PROGBITS },
	};
	char path[PATH_MAX];
	u32 nr;
	FILE *file;
	bool good;

	if (!layout->nr_orcs ||
	    !guest_memory__read(mem, module + layout->nr_orcs, &nr, sizeof(nr)) ||
	    !guest_memory__read(mem, module + layout->orc_ips, &sections[1].addr, sizeof(u64)) ||
	    !guest_memory__read(mem, module + layout->orcs, &sections[2].addr, sizeof(u64)) ||
	    !nr || nr > MAX_ORCS || !size || size > MAX_CODE ||
	    snprintf(path, sizeof(path), "%s/boot/modules/%s", top, name) >= (int)sizeof(path))
		return;

	sections[1].size = (u64)nr * ORC_IP_SIZE;
	sections[2].size = (u64)nr * ORC_ENTRY_SIZE;
	file = guest_sandbox__fopen(path, GUEST_CREATE_FILE);
	if (!file)
		return;
	good = guest_elf__write(mem, sections, ARRAY_SIZE(sections), file);
	if (fclose(file) || !good)
		guest_sandbox__unlink(path);
}

/* Return true if @size bytes from @addr on are the module's own memory. */
static bool is_in_module(struct guest_memory *mem, const struct module_layout *layout, u64 module,
			 u64 addr, u64 size)
{
	u64 at = module + layout->mem, base;
	u32 mem_size;

	for (u32 i = 0; i < layout->nr_mem; i++, at += layout->mem_step) {
		if (!guest_memory__read(mem, at + layout->mem_base, &base, sizeof(base)) ||
		    !guest_memory__read(mem, at + layout->mem_size, &mem_size, sizeof(mem_size)))
			return false;
		if (addr >= base && addr - base < mem_size && size <= mem_size - (addr - base))
			return true;
	}
	return false;
}

/* Return true if the note is a build-id. */
static bool is_build_id(const u8 *note, size_t size)
{
	Elf64_Nhdr header;

	if (size < MIN_NOTE)
		return false;

	memcpy(&header, note, sizeof(header));
	return header.n_namesz == sizeof("GNU") && header.n_type == NT_GNU_BUILD_ID &&
	       !memcmp(&note[sizeof(header)], "GNU", sizeof("GNU")) &&
	       sizeof(header) + sizeof("GNU") + header.n_descsz == size;
}

/* Read the note that has a module's build-id; return its size, zero if there is none. */
static size_t read_note(struct guest_memory *mem, const struct module_layout *layout, u64 module,
			u8 note[MAX_NOTE])
{
	u64 notes, at, name, addr, size;
	bool found = false;
	char *text;

	if (!layout->notes ||
	    !guest_memory__read(mem, module + layout->notes, &notes, sizeof(notes)) || !notes)
		return 0;

	at = notes + layout->first_note;
	for (unsigned int i = 0; i < MAX_NOTES && !found; i++, at += layout->note_step) {
		if (!guest_memory__read(mem, at + layout->note_name, &name, sizeof(name)) ||
		    !guest_memory__read(mem, at + layout->note_addr, &addr, sizeof(addr)) ||
		    !guest_memory__read(mem, at + layout->note_size, &size, sizeof(size)))
			return 0;
		text = guest_memory__read_string(mem, name, NAME_SIZE);
		if (!text)
			return 0;
		/* An entry behind the end of the array may have the note of another module. */
		found = !strcmp(text, BUILD_ID_NOTE) && size <= MAX_NOTE &&
			is_in_module(mem, layout, module, addr, size);
		free(text);
	}
	return found && guest_memory__read(mem, addr, note, size) && is_build_id(note, size) ?
	       size : 0;
}

/* Write a module's build-id below @top, to the path that its file has in the guest's sysfs. */
static void write_note(struct guest_memory *mem, const struct module_layout *layout, u64 module,
		       const char *top, const char *name)
{
	char dir[PATH_MAX], path[PATH_MAX];
	u8 note[MAX_NOTE];
	size_t size;
	FILE *file;

	size = read_note(mem, layout, module, note);
	if (!size ||
	    snprintf(path, sizeof(path), "%s/sys/module/%s", top, name) >= (int)sizeof(path) ||
	    guest_sandbox__mkdir(path) ||
	    snprintf(dir, sizeof(dir), "%s/notes", path) >= (int)sizeof(dir) ||
	    guest_sandbox__mkdir(dir) ||
	    snprintf(path, sizeof(path), "%s/" BUILD_ID_NOTE, dir) >= (int)sizeof(path))
		return;

	file = guest_sandbox__fopen(path, GUEST_CREATE_FILE);
	if (!file)
		return;
	fwrite(note, size, 1, file);
	if (fclose(file))
		guest_sandbox__unlink(path);
}

/*
 * Return true if a module with that name or at that place was written.  It may be unloaded by now.
 */
static bool is_known(const struct guest_modules *modules, const char *name, u64 start, u64 end)
{
	for (size_t i = 0; i < modules->nr; i++) {
		const struct known_module *known = &modules->known[i];

		if (!strcmp(known->name, name) || (start < known->end && known->start < end))
			return true;
	}
	return false;
}

/* Add a module; if this succeeds, it owns @name. */
static bool add_known(struct guest_modules *modules, char *name, u64 start, u64 end)
{
	struct known_module *known;

	/* The array is full if the number is zero or a power of two. */
	if (!(modules->nr & (modules->nr - 1))) {
		known = realloc(modules->known,
				max(2 * modules->nr, (size_t)1) * sizeof(*known));
		if (!known)
			return false;
		modules->known = known;
	}
	modules->known[modules->nr++] = (struct known_module){ name, start, end };
	return true;
}

/* The files that a call of guest_modules__write() writes. */
struct output {
	FILE		*modules;
	FILE		*kallsyms;
	const char	*top;
	bool		tables;
};

/*
 * Return the lines of /proc/kallsyms for the symbols of a module from @start on and below @end, to
 * be freed; no lines if its symbols can't be read or are more than *@left, which they are taken
 * from.  Return NULL if there is no memory, or if the budget to read the guest is used up.
 */
static char *read_symbols(struct guest_memory *mem, struct guest_modules *modules, u64 module,
			  u64 start, u64 end, const char *name, u32 *left)
{
	struct symtab symtab;
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	if (!file)
		return NULL;
	if (read_symtab(mem, &modules->layout, module, &symtab) &&
	    symtab.nr <= *left) {
		*left -= symtab.nr;
		write_symbols(mem, &symtab, start, end, name, file);
	}
	if (!fclose(file) && !guest_memory__is_exhausted(mem))
		return text;
	free(text);
	return NULL;
}

/*
 * Write the module with that name, unless it was written before.  If this succeeds, the caller does
 * not own @name any more.
 */
static bool write_new(struct guest_memory *mem, struct guest_modules *modules, u64 module,
		      char *name, const struct output *out)
{
	u64 start, end, total;
	char *symbols;
	u32 size;

	if (!read_range(mem, &modules->layout, module, &start, &end, &total))
		return false;
	if (is_known(modules, name, start, end)) {
		free(name);
		return true;
	}
	symbols = modules->nr == MAX_MODULES ? NULL : read_symbols(mem, modules, module, 0, ~0ULL,
							       name, &modules->symbols_left);
	if (!symbols || !add_known(modules, name, start, end)) {
		free(symbols);
		return false;
	}

	/* Write a line of /proc/modules.  No reader needs the number of users or their names. */
	fprintf(out->modules, "%s %" PRIu64 " 0 - Live 0x%016" PRIx64 "\n", name, total, start);
	fputs(symbols, out->kallsyms);
	free(symbols);
	if (out->top)
		write_note(mem, &modules->layout, module, out->top, name);
	if (out->top && out->tables &&
	    guest_memory__read(mem, module + modules->layout.mem + modules->layout.text_size, &size,
			       sizeof(size)))
		write_tables(mem, &modules->layout, module, start, size, out->top, name);
	return true;
}

/*
 * Return true if the module already uses the symbols that it keeps.  It becomes live before that,
 * while it still uses those of its init.
 */
static bool has_begun(struct guest_memory *mem, const struct module_layout *layout, u64 module)
{
	u64 kallsyms;

	return !layout->core_kallsyms ||
	       (guest_memory__read(mem, module + layout->kallsyms, &kallsyms, sizeof(kallsyms)) &&
		kallsyms == module + layout->core_kallsyms);
}

/* Write the module whose struct list_head is at @node; return false if that is not a module. */
static bool write_one(struct guest_memory *mem, struct guest_modules *modules, u64 node,
		      const struct output *out)
{
	u64 module = node - modules->layout.list;
	char *name;
	u32 state;

	if (!guest_memory__read(mem, module + modules->layout.state, &state, sizeof(state)))
		return false;
	/* A module that is being loaded or unloaded may have no symbols. */
	if (state != MODULE_STATE_LIVE || !has_begun(mem, &modules->layout, module))
		return true;

	name = guest_memory__read_string(mem, module + modules->layout.name, NAME_SIZE);
	if (name && *name != '.' && !strpbrk(name, "/[]") &&
	    write_new(mem, modules, module, name, out))
		return true;
	free(name);
	return false;
}

/* Return true if a module runs its init, and its symbols are those that it has meanwhile. */
static bool runs_init(struct guest_memory *mem, const struct module_layout *layout, u64 module,
		      u32 state)
{
	return state == MODULE_STATE_COMING ||
	       (state == MODULE_STATE_LIVE && !has_begun(mem, layout, module));
}

/* Read where a module has the code of its init, and its name. */
static bool read_init(struct guest_memory *mem, const struct module_layout *layout, u64 module,
		      struct init *init)
{
	char *name;
	u32 size;

	if (!guest_memory__read(mem, module + layout->init_base, &init->start, sizeof(u64)) ||
	    !guest_memory__read(mem, module + layout->init_size, &size, sizeof(size)) ||
	    !size || size > MAX_CODE || init->start > ~0ULL - size)
		return false;

	name = guest_memory__read_string(mem, module + layout->name, NAME_SIZE);
	if (!name || *name == '.' || strpbrk(name, "/[]")) {
		free(name);
		return false;
	}
	init->module = module;
	init->end = init->start + size;
	init->seen = true;
	scnprintf(init->name, sizeof(init->name), "%s", name);
	free(name);
	return true;
}

static bool is_same_init(const struct init *a, const struct init *b)
{
	return a->module == b->module && a->start == b->start && a->end == b->end &&
	       !strcmp(a->name, b->name);
}

/* Write that there is no code of an init at an address any more since @time. */
static void end_init(struct guest_modules *modules, unsigned int i, u64 time, FILE *inits)
{
	fprintf(inits, "%" PRIu64 " %" PRIx64 "\n", time, modules->inits[i].start);
	modules->inits[i] = modules->inits[--modules->nr_inits];
}

/* Write the code of a module's init, its name and its symbols. */
static void begin_init(struct guest_modules *modules, const struct init *init, const char *symbols,
		       u64 since, FILE *inits)
{
	for (unsigned int i = modules->nr_inits; i-- > 0;) {
		const struct init *other = &modules->inits[i];

		/* Nobody knows when it ended. */
		if (other->start < init->end && init->start < other->end)
			end_init(modules, i, modules->looked, inits);
	}
	fprintf(inits, "%" PRIu64 " %" PRIx64 " %" PRIx64 " %s.init\n%s", since, init->start,
		init->end, init->name, symbols);
	modules->inits[modules->nr_inits++] = *init;
}

/* Write the init that a module runs since @since, unless it was written before. */
static void note_init(struct guest_kernel *kernel, u64 module, u64 since, FILE *inits,
		      const char *top, bool tables)
{
	struct guest_modules *modules = kernel->modules;
	const struct module_layout *layout = &modules->layout;
	char file[NAME_SIZE + sizeof(".init")], path[PATH_MAX], *symbols;
	struct guest_memory *mem = kernel->mem;
	struct init init, again;
	u32 state;

	if (!read_init(mem, layout, module, &init))
		return;

	for (unsigned int i = 0; i < modules->nr_inits; i++) {
		if (is_same_init(&modules->inits[i], &init)) {
			modules->inits[i].seen = true;
			return;
		}
	}
	if (modules->nr_inits == MAX_INITS || !modules->inits_left)
		return;

	modules->inits_left--;
	scnprintf(file, sizeof(file), "%s.init", init.name);
	symbols = read_symbols(mem, modules, module, init.start, init.end, file,
			       &modules->init_symbols_left);
	if (symbols && top && tables &&
	    snprintf(path, sizeof(path), "%s/boot/modules/%s", top, file) < (int)sizeof(path)) {
		guest_sandbox__unlink(path);
		write_tables(mem, layout, module, init.start, init.end - init.start, top, file);
	}
	/* The guest may have freed what was just read, and have put something else there. */
	guest_memory__forget(mem);
	if (symbols &&
	    guest_memory__read(mem, module + layout->state, &state, sizeof(state)) &&
	    runs_init(mem, layout, module, state) && read_init(mem, layout, module, &again) &&
	    is_same_init(&init, &again))
		begin_init(modules, &init, symbols, since, inits);
	else if (top && tables)
		guest_sandbox__unlink(path);
	free(symbols);
}

/**
 * guest_modules__are_loaded - check whether a guest loads modules
 * @kernel:	the guest's kernel
 * @time:	now, in perf's clock
 *
 * This reads one word if no module is being loaded.
 *
 * Return: true if guest_modules__write_inits() may have something to write.
 */
bool guest_modules__are_loaded(struct guest_kernel *kernel, u64 time)
{
	struct guest_modules *modules = kernel->modules;
	u64 newest;

	if (!modules || !modules->layout.init_size ||
	    !guest_memory__read(kernel->mem, modules->head, &newest, sizeof(newest)))
		return false;
	if (newest != modules->newest || modules->unsettled)
		return true;

	modules->looked = time;
	return false;
}

/*
 * Return since when the module at @node, the newest one, may run its init: since the last look if
 * it is the only one that was loaded meanwhile.  If not, another one's init may have been there.
 */
static u64 init_since(struct guest_kernel *kernel, u64 node, u64 time)
{
	const struct guest_modules *modules = kernel->modules;
	u64 next;

	if (!modules->looked || !guest_memory__read(kernel->mem, node, &next, sizeof(next)) ||
	    next != modules->newest)
		return time;
	return modules->looked;
}

/**
 * guest_modules__write_inits - write which modules run their init
 * @kernel:	the guest's kernel
 * @inits:	receives a line for the begin and for the end of each module's init: the time in
 *		perf's clock, the address of the code; and at its begin, the address after it, a
 *		name, and lines as in /proc/kallsyms
 * @top:	directory in which to write tables; NULL to write none
 * @tables:	true to write an ELF file with the ORC tables and the code of the init
 * @time:	now, in perf's clock
 *
 * The code of a module's init is freed when it has run, and the next module may have its init
 * there.  So claim no time in which it may have been another module's.
 */
void guest_modules__write_inits(struct guest_kernel *kernel, FILE *inits, const char *top,
				bool tables, u64 time)
{
	struct guest_modules *modules = kernel->modules;
	struct guest_memory *mem = kernel->mem;
	u64 node, first, since;
	bool is_new;
	u32 state;

	if (!modules || !modules->layout.init_size ||
	    !guest_memory__read(mem, modules->head, &first, sizeof(first)))
		return;

	is_new = first != modules->newest;
	since = is_new ? init_since(kernel, first, time) : time;
	for (unsigned int i = 0; i < modules->nr_inits; i++)
		modules->inits[i].seen = false;
	modules->newest = first;
	modules->unsettled = false;
	node = first;
	for (unsigned int i = 0; i < MAX_NEWEST && node != modules->head; i++) {
		u64 module = node - modules->layout.list;

		if (!guest_memory__read(mem, module + modules->layout.state, &state,
					sizeof(state)))
			break;
		if (runs_init(mem, &modules->layout, module, state)) {
			modules->unsettled = true;
			note_init(kernel, module, node == first ? since : time, inits, top, tables);
		}
		modules->unsettled |= state == MODULE_STATE_UNFORMED;
		if (!guest_memory__read(mem, node, &node, sizeof(node)))
			break;
	}
	for (unsigned int i = modules->nr_inits; i-- > 0;) {
		if (!modules->inits[i].seen)
			end_init(modules, i, is_new ? modules->looked : time, inits);
	}
	modules->looked = time;
}

static struct guest_modules *guest_modules__new(struct guest_kernel *kernel)
{
	const struct guest_symbol *head = guest_kernel__symbol(kernel, "modules");
	struct guest_modules *modules = zalloc(sizeof(*modules));
	struct btf *btf = guest_btf__read(kernel);
	bool known = modules && head && btf && find_layout(btf, &modules->layout);

	if (known)
		find_init(btf, btf__find_by_name_kind(btf, "module", BTF_KIND_STRUCT),
			  &modules->layout);
	btf__free(btf);
	if (!known) {
		free(modules);
		return NULL;
	}
	modules->head = head->addr;
	modules->symbols_left = MAX_SYMBOLS;
	modules->inits_left = MAX_ALL_INITS;
	modules->init_symbols_left = MAX_SYMBOLS;
	return modules;
}

static void guest_modules__delete(struct guest_modules *modules)
{
	for (size_t i = 0; i < modules->nr; i++)
		free(modules->known[i].name);
	free(modules->known);
	free(modules);
}

/**
 * guest_modules__write - write the modules of a guest, as in its /proc
 * @kernel:	the guest's kernel
 * @modules:	receives the lines of /proc/modules
 * @kallsyms:	receives the modules' lines of /proc/kallsyms
 * @top:	directory in which to write build-ids, as sysfs has them, and tables; NULL to write
 *		neither
 * @tables:	true to write an ELF file for each module, with its ORC tables and its code
 *
 * Further calls write the modules that were loaded since.  They leave out a module that has the
 * name or the place of one that was written before, and don't need the kernel's symbols.
 *
 * Return: NULL, or why modules are missing.
 */
const char *guest_modules__write(struct guest_kernel *kernel, FILE *modules, FILE *kallsyms,
				 const char *top, bool tables)
{
	const struct output out = { modules, kallsyms, top, tables };
	struct guest_memory *mem = kernel->mem;
	u64 node;

	if (!kernel->modules)
		kernel->modules = guest_modules__new(kernel);
	kernel->free_modules = guest_modules__delete;
	if (!kernel->modules)
		return guest_kernel__why_no_data(kernel);

	if (!guest_memory__read(mem, kernel->modules->head, &node, sizeof(node)))
		return "its list of modules can't be read";
	for (unsigned int i = 0; i < MAX_MODULES && node != kernel->modules->head; i++) {
		if (!write_one(mem, kernel->modules, node, &out) ||
		    !guest_memory__read(mem, node, &node, sizeof(node)))
			return "its list of modules is broken";
	}
	return node == kernel->modules->head ? NULL : "its list of modules has no end";
}
