// SPDX-License-Identifier: GPL-2.0
/*
 * Find the callchains of guests whose kernels have no frame pointers.  Pieces of the guest's stack
 * were read when it was sampled.  Unwind them with the ORC tables in the guest's vmlinux and in
 * the files of its modules.
 */
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <libelf.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/perf_event.h>
#include <linux/unaligned.h>
#include <linux/zalloc.h>
#include <perf/event.h>

#include "../../arch/x86/include/uapi/asm/perf_regs.h"
#include "build-id.h"
#include "callchain.h"
#include "debug.h"
#include "dso.h"
#include "event.h"
#include "guest-folder.h"
#include "guest-orc.h"
#include "guest-reads.h"
#include "guest-user.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "orc-module.h"
#include "path.h"
#include "sample.h"
#include "symbol.h"
#include "symbol_conf.h"
#include "vmlinuz.h"

/* Kernels live in the upper half. */
#define is_kernel_address(addr)	((s64)(addr) < 0)

/*
 * The maximum number of frames in a chain, about twice the default of the kernel's own chains.
 * An event's limit, sample_max_stack, does not apply here.
 */
#define MAX_FRAMES	256

/* This many chains decide whether the file is that of the guest's kernel. */
#define NR_PROOFS	5

/*
 * The parts of a kernel's or a module's file that perf uses, with the addresses of the file.  The
 * file lacks the @boot_size bytes of code at @boot; @boot_size is zero if it lacks none.
 */
struct orc_sections {
	Elf_Data		*ips;
	Elf_Data		*entries;
	Elf_Data		*header;
	u64			ips_addr;
	struct orc_code		code;
	u64			boot;
	u64			boot_size;
};

/**
 * struct guest_module - a module of a guest
 * @node:	in guest_orc.modules
 * @start:	its first address in the guest
 * @end:	the address after its last one
 * @path:	path of its file
 * @comp:	compression of the file, see filename__decompress()
 * @notes:	path of the guest's file in sysfs with the build-id of the loaded module; may be
 *		NULL
 * @tried:	true once perf has tried to read the file
 * @elf:	libelf's handle of the file; the file descriptor is closed once the file was read
 * @orc:	its ORC tables and its code
 */
struct guest_module {
	struct list_head	node;
	u64			start;
	u64			end;
	char			*path;
	int			comp;
	char			*notes;
	bool			tried;
	Elf			*elf;
	struct orc_module	orc;
};

/**
 * struct guest_orc - the tables of a guest's kernel
 * @elf:	the file with the tables, open as long as they are used
 * @fd:		file descriptor of the file
 * @start:	first address of the kernel's code in the guest
 * @offset:	the amount to add to an address in the file to get the one in the guest
 * @nr_whole:	number of chains of two or more frames that led to user mode or to the outermost
 *		frame; counted until guest_orc__judge() has decided
 * @nr_failed:	number of chains that came to a return address in the kernel with no call before
 *		it; counted as long as @nr_whole is
 * @sections:	sections of the file
 * @table:	table of the kernel, without its modules
 * @path:	path of the file
 * @modules:	the modules whose files are known
 * @warned:	true after a warning that a module can't be unwound
 */
struct guest_orc {
	Elf			*elf;
	int			fd;
	u64			start;
	u64			offset;
	unsigned int		nr_whole;
	unsigned int		nr_failed;
	struct orc_sections	sections;
	struct orc_table	table;
	char			*path;
	struct list_head	modules;
	bool			warned;
};

static bool orc_sections__find(struct orc_sections *sections, Elf *elf)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return false;

	while ((scn = elf_nextscn(elf, scn))) {
		const char *name;

		if (!gelf_getshdr(scn, &shdr))
			return false;
		name = elf_strptr(elf, names, shdr.sh_name);
		if (!name)
			return false;

		if (!strcmp(name, ".orc_unwind_ip")) {
			sections->ips = elf_rawdata(scn, NULL);
			sections->ips_addr = shdr.sh_addr;
		} else if (!strcmp(name, ".orc_unwind")) {
			sections->entries = elf_rawdata(scn, NULL);
		} else if (!strcmp(name, ".orc_header")) {
			sections->header = elf_rawdata(scn, NULL);
		} else if (!strcmp(name, ".text")) {
			sections->code.start = shdr.sh_addr;
		} else if (!strcmp(name, ".init.text") && shdr.sh_type == SHT_NOBITS) {
			sections->boot = shdr.sh_addr;
			sections->boot_size = shdr.sh_size;
		}
		if (shdr.sh_flags & SHF_EXECINSTR)
			orc_code__add(&sections->code, shdr.sh_addr, shdr.sh_size,
				      elf_rawdata(scn, NULL));
	}
	return true;
}

/*
 * Fill in all but the format of a table, for a kernel or for a module from the guest's memory.  The
 * code runs @offset bytes above the addresses in the file.  Return NULL, or why that failed.
 */
static const char *orc_table__read(struct orc_table *table, const struct orc_sections *sections,
				   u64 offset)
{
	size_t nr;

	if (!sections->ips || !sections->entries || !sections->code.start)
		return "it has no ORC tables";

	nr = sections->ips->d_size / ORC_IP_SIZE;
	if (!nr || nr > UINT_MAX || nr * ORC_IP_SIZE != sections->ips->d_size ||
	    nr * ORC_ENTRY_SIZE != sections->entries->d_size ||
	    !sections->ips->d_buf || !sections->entries->d_buf)
		return "its ORC tables are broken";

	table->addr = sections->ips_addr + offset;
	table->ips = sections->ips->d_buf;
	table->entries = sections->entries->d_buf;
	table->nr = nr;
	table->end = sections->code.end + offset;
	return NULL;
}

/* Find the format of a kernel's table.  Return NULL, or why that failed. */
static const char *orc_table__find_format(struct orc_table *table, const Elf_Data *header)
{
	const u8 *hash = NULL;

	if (header) {
		hash = header->d_buf;
		if (!hash || header->d_size != ORC_HASH_SIZE)
			return "its ORC tables are broken";
	}

	table->format = orc_format__find(hash, table->entries, table->nr);
	return table->format ? NULL :
			       "its ORC tables have a format that this perf doesn't know";
}

static bool is_kernels_file(const struct dso *kernel, int fd)
{
	struct build_id bid = {};
	char path[32];

	if (!dso__has_build_id(kernel) || symbol_conf.ignore_vmlinux_buildid)
		return true;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return filename__read_build_id(path, &bid) < 0 || dso__build_id_equal(kernel, &bid);
}

/**
 * guest_orc__load - read the ORC tables of a kernel
 * @path:	path of its vmlinux or vmlinuz
 * @text:	address of its code in the guest; zero if that is the address in the file
 * @kernel:	DSO of the guest's kernel, to compare build-ids; NULL to compare none
 * @why_not:	receives the reason if there are no tables
 *
 * Return: the tables; NULL if there are none.
 */
struct guest_orc *guest_orc__load(const char *path, u64 text, const struct dso *kernel,
				  const char **why_not)
{
	struct guest_orc *orc;
	GElf_Ehdr ehdr;

	*why_not = "there is no memory";
	orc = zalloc(sizeof(*orc));
	if (!orc)
		return NULL;

	INIT_LIST_HEAD(&orc->modules);
	orc->fd = -1;
	orc->path = strdup(path);
	if (!orc->path)
		goto err;

	*why_not = vmlinuz__open(path, &orc->fd);
	if (*why_not)
		goto err;

	*why_not = "it is not the guest's kernel";
	if (kernel && !is_kernels_file(kernel, orc->fd))
		goto err;

	elf_version(EV_CURRENT);
	orc->elf = elf_begin(orc->fd, PERF_ELF_C_READ_MMAP, NULL);
	if (!orc->elf || !gelf_getehdr(orc->elf, &ehdr) || ehdr.e_machine != EM_X86_64 ||
	    ehdr.e_ident[EI_DATA] != ELFDATA2LSB || !orc_sections__find(&orc->sections, orc->elf)) {
		*why_not = "it is no kernel of x86-64";
		goto err;
	}

	if (!text)
		text = orc->sections.code.start;
	orc->offset = text - orc->sections.code.start;
	*why_not = orc_table__read(&orc->table, &orc->sections, orc->offset);
	if (!*why_not)
		*why_not = orc_table__find_format(&orc->table, orc->sections.header);
	if (*why_not)
		goto err;

	orc->start = text;
	return orc;
err:
	guest_orc__delete(orc);
	return NULL;
}

static void guest_module__delete(struct guest_module *module)
{
	orc_module__exit(&module->orc);
	elf_end(module->elf);
	free(module->path);
	free(module->notes);
	free(module);
}

void guest_orc__delete(struct guest_orc *orc)
{
	struct guest_module *module, *next;

	if (!orc)
		return;

	list_for_each_entry_safe(module, next, &orc->modules, node)
		guest_module__delete(module);
	elf_end(orc->elf);
	if (orc->fd >= 0)
		close(orc->fd);
	free(orc->path);
	free(orc);
}

/**
 * guest_orc__add_module - add a module, to be read once a chain comes to it
 * @orc:	tables of the kernel
 * @path:	path of the module's file
 * @comp:	how it is compressed; zero if it is not
 * @notes:	path of the guest's file in sysfs with the module's build-id, or NULL
 * @start:	the module's first address in the guest
 * @end:	the address after its last one
 *
 * Return: zero, or -ENOMEM.
 */
int guest_orc__add_module(struct guest_orc *orc, const char *path, int comp, const char *notes,
			  u64 start, u64 end)
{
	struct guest_module *module = zalloc(sizeof(*module));

	if (!module)
		return -ENOMEM;

	module->start = start;
	module->end = end;
	module->comp = comp;
	module->path = strdup(path);
	if (notes)
		module->notes = strdup(notes);
	if (!module->path || (notes && !module->notes)) {
		guest_module__delete(module);
		return -ENOMEM;
	}
	list_add(&module->node, &orc->modules);
	return 0;
}

/*
 * Return false if the file is known not to be that of the loaded module: the file may have been
 * replaced since the module was loaded.
 */
static bool guest_module__is_loaded(const struct guest_module *module)
{
	struct build_id loaded = {}, bid = {};

	if (!module->notes || !is_regular_file(module->notes) ||
	    sysfs__read_build_id(module->notes, &loaded) < 0 ||
	    filename__read_build_id(module->path, &bid) < 0)
		return true;

	return loaded.size == bid.size && !memcmp(loaded.data, bid.data, bid.size);
}

/* Read the tables from a file that perf has made of a loaded module: it has final addresses. */
static const char *guest_module__read_memory(struct guest_module *module,
					     const struct guest_orc *orc)
{
	struct orc_sections sections = {};
	struct guest_module *other;

	if (!orc_sections__find(&sections, module->elf) ||
	    sections.code.start < module->start || sections.code.end > module->end)
		return "it is not where the guest has the module";

	/*
	 * Calls are relocated.  They lead to the kernel, which is below all modules, or to any
	 * module: count all addresses from the kernel's start to the last module's end as code.
	 */
	module->orc.code = sections.code;
	module->orc.code.start = orc->start;
	list_for_each_entry(other, &orc->modules, node)
		module->orc.code.end = max(module->orc.code.end, other->end);

	/* The file has no .orc_header, and a module's entries alone may not show the format. */
	module->orc.table.format = orc->table.format;
	return orc_table__read(&module->orc.table, &sections, 0);
}

static const char *guest_module__read(struct guest_module *module, const struct guest_orc *orc)
{
	GElf_Ehdr ehdr;

	if (gelf_getehdr(module->elf, &ehdr) && ehdr.e_type == ET_EXEC)
		return guest_module__read_memory(module, orc);

	return orc_module__read(&module->orc, module->elf, module->start, module->end,
				orc->table.format, orc->sections.header);
}

static const char *guest_module__load(struct guest_module *module, const struct guest_orc *orc)
{
	const char *why_not = "it can't be read";
	int fd, error;

	/* The guest may have a FIFO there: open() would wait forever. */
	if (!is_regular_file(module->path))
		return why_not;
	if (!guest_module__is_loaded(module))
		return "it is not the module that was loaded";

	if (module->comp)
		fd = filename__decompress(module->path, NULL, 0, module->comp, &error);
	else
		fd = open(module->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return why_not;

	/* Don't map the file: the guest may truncate it. */
	module->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (module->elf) {
		why_not = guest_module__read(module, orc);
		/*
		 * Don't keep the file open: a guest may have more modules than perf may have open
		 * files.
		 */
		elf_cntl(module->elf, ELF_C_FDDONE);
	}
	close(fd);
	return why_not;
}

static void guest_orc__try_module(struct guest_orc *orc, struct guest_module *module)
{
	const char *why_not = guest_module__load(module, orc);

	module->tried = true;
	if (why_not && !orc->warned) {
		orc->warned = true;
		pr_warning("Stacks of guests are not unwound by %s: %s\n", module->path, why_not);
	}
}

static struct guest_module *guest_orc__find_module(struct guest_orc *orc, u64 ip)
{
	struct guest_module *module;

	list_for_each_entry(module, &orc->modules, node) {
		if (ip < module->start || ip >= module->end)
			continue;
		if (!module->tried)
			guest_orc__try_module(orc, module);
		return module;
	}
	return NULL;
}

static bool guest_orc__is_kernel(const struct guest_orc *orc, u64 ip)
{
	return ip >= orc->start && ip < orc->table.end;
}

static const struct orc_table *guest_orc__find_table(u64 ip, void *arg)
{
	struct guest_orc *orc = arg;
	struct guest_module *module;

	if (guest_orc__is_kernel(orc, ip))
		return &orc->table;

	module = is_kernel_address(ip) ? guest_orc__find_module(orc, ip) : NULL;
	return module && ip < module->orc.table.end ? &module->orc.table : NULL;
}

/* The fewest and the most bytes of a call. */
#define MIN_CALL	2
#define MAX_CALL	7

/*
 * The fewest and the most bytes of NOPs at the end of code that the kernel may replace with a call:
 * the address behind so many NOPs passes as a return address.  The first addresses of a few
 * functions in assembly pass as well, as they have as many NOPs before them.
 */
#define MIN_NOPS	3
#define MAX_NOPS	15

/*
 * Return true if there is a direct call at @pos that leads to code.  In the file of a module, a
 * call that is not relocated leads to the address behind it, which is code as well.
 */
static bool orc_code__has_direct_call(const struct orc_code *code,
				      const struct orc_piece *piece, u64 pos)
{
	u64 target;

	if (piece->size - pos < 5 || piece->data[pos] != 0xe8)
		return false;
	target = piece->addr + pos + 5 + (s32)get_unaligned_le32(&piece->data[pos + 1]);
	return target >= code->start && target <= code->end;
}

/*
 * Return true if @code is an indirect call (ff /2) of @size bytes, or a longer one that the kernel
 * may have replaced with a direct call of 5 bytes.
 */
static bool is_indirect_call(const u8 *code, size_t size)
{
	u8 mod = code[1] >> 6, rm = code[1] & 7;
	size_t full = 2;

	if (code[0] != 0xff || (code[1] >> 3 & 7) != 2)
		return false;
	if (mod != 3 && rm == 4)
		full++;
	/* Mod 2 has a displacement of 32 bits, and so has mod 0 without a base register. */
	if (mod == 2 || (!mod && (rm == 5 || (rm == 4 && size > 2 && (code[2] & 7) == 5))))
		full += 4;
	else if (mod == 1)
		full++;
	return full == size || (size == 5 && full > size);
}

/*
 * Return true if a call ends at @pos, as the file has it or as the kernel may have patched it.  The
 * kernel makes indirect calls direct and puts direct calls in place of NOPs.  It also makes the
 * direct call of a retpoline an indirect call, which has 2 or 3 bytes and begins at the same
 * address.
 */
static bool orc_code__has_call(const struct orc_code *code, const struct orc_piece *piece,
			       u64 pos)
{
	size_t size, nops = 0;

	for (size = MIN_CALL; size <= MAX_CALL && size <= pos; size++) {
		if (is_indirect_call(&piece->data[pos - size], size))
			return true;
		if ((size == 5 || size == 2 || size == 3) &&
		    orc_code__has_direct_call(code, piece, pos - size))
			return true;
	}
	while (nops <= MAX_NOPS && nops < pos && piece->data[pos - nops - 1] == 0x90)
		nops++;
	return nops >= MIN_NOPS && nops <= MAX_NOPS;
}

/*
 * Return true if functions return to @pos though no call ends there.  In older kernels, the boot
 * code calls C code by lretq.  A probed function returns to the trampoline of its kretprobe, which
 * begins by pushing its own address.
 */
static bool needs_no_call(const struct orc_piece *piece, u64 pos)
{
	if (pos >= 2 && piece->data[pos - 2] == 0x48 && piece->data[pos - 1] == 0xcb)
		return true;
	return piece->size - pos >= 5 && piece->data[pos] == 0x68 &&
	       get_unaligned_le32(&piece->data[pos + 1]) == (u32)(piece->addr + pos);
}

static bool orc_code__returns_to(const struct orc_code *code, u64 addr)
{
	unsigned int i;

	for (i = 0; i < code->nr_pieces && i < ORC_MAX_CODE; i++) {
		const struct orc_piece *piece = &code->pieces[i];
		u64 pos = addr - piece->addr;

		if (addr < piece->addr || pos > piece->size)
			continue;
		if (orc_code__has_call(code, piece, pos) || needs_no_call(piece, pos))
			return true;
	}
	return false;
}

/*
 * Return true for boot code that the file lacks, as the guest has freed it.  The idle task began in
 * that code, so chains may still lead there.
 */
static bool orc_sections__lack_code(const struct orc_sections *sections, u64 addr)
{
	return addr - sections->boot < sections->boot_size;
}

/*
 * Return true if a function can return to @ip.  A word on the stack is not a frame just
 * because its value is an address in code.
 */
static bool guest_orc__is_return_address(struct guest_orc *orc, u64 ip)
{
	struct guest_module *module;

	if (guest_orc__is_kernel(orc, ip))
		return orc_code__returns_to(&orc->sections.code, ip - orc->offset) ||
		       orc_sections__lack_code(&orc->sections, ip - orc->offset);

	module = guest_orc__find_module(orc, ip);
	return module && orc_code__returns_to(&module->orc.code, ip);
}

/*
 * Return true if the rule for the state's address itself ends the chain; the rule for a return
 * address is that of the byte before.  No call precedes the code with which a thread begins, nor
 * the trampoline that the function graph tracer puts in place of return addresses.
 */
static bool orc_state__ends_here(const struct orc_state *state)
{
	struct orc_state next = *state;

	next.interrupted = true;
	orc_state__next(&next);
	return next.end == ORC_END_OUTERMOST || next.end == ORC_END_UNDEFINED;
}

/*
 * Return the index of the context marker of the guest's user mode; the number of entries if there
 * is no such marker.
 */
static u64 callchain__find_user(const struct ip_callchain *chain)
{
	u64 i;

	for (i = 0; chain && i < chain->nr; i++) {
		if (chain->ips[i] == PERF_CONTEXT_GUEST_USER)
			return i;
	}
	return chain ? chain->nr : 0;
}

/*
 * Decide whether the tables are those of the guest's kernel.  A chain is whole if it leads to user
 * mode or to the outermost frame, and fails at a return address with no call before it.  With the
 * guest's tables, at least nine in ten chains are whole, and nearly none fails.  With another
 * kernel's tables, one in eight fails, and fewer than one in 200 are whole.  The decision is final.
 */
static void guest_orc__judge(struct guest_orc *orc, bool whole, bool failed)
{
	if (orc->nr_whole == NR_PROOFS || orc->nr_failed == NR_PROOFS)
		return;

	orc->nr_whole += whole;
	orc->nr_failed += failed;
}

/**
 * guest_orc__unwind - replace the kernel's part of a sample's callchain
 * @orc:	tables of the guest's kernel
 * @sample:	a sample of the guest's kernel, with its registers and its stack
 *
 * User mode's part stays as sample__add_guest_user() has found it.  If it has found none, that part
 * becomes the user-mode IP that was saved when the guest's kernel was entered.
 *
 * The chain is only replaced if the tables lead to user mode or to the outermost frame, or if they
 * are known to be the guest's and lead to at least one frame in addition to the sample's IP.
 *
 * Return: why there are no more frames.
 */
enum orc_end guest_orc__unwind(struct guest_orc *orc, struct perf_sample *sample)
{
	const struct guest_read *read = &sample->guest_read;
	const struct guest_piece *below = &read->pieces[GUEST_READ_INTERRUPTED];
	const struct guest_piece *stack = &read->pieces[GUEST_READ_STACK];
	const struct orc_piece pieces[2] = {
		{ stack->addr, stack->size, stack->data },
		{ below->addr, below->size, below->data },
	};
	const struct orc_source source = {
		.find_table = guest_orc__find_table,
		.arg = orc,
		.pieces = pieces,
		.nr_pieces = below->size ? 2 : 1,
	};
	u64 user = callchain__find_user(sample->callchain), nr_user;
	u64 ips[1 + MAX_FRAMES + 2], nr = 0;
	struct ip_callchain *chain;
	struct orc_state state;
	bool ended;

	ips[nr++] = PERF_CONTEXT_GUEST_KERNEL;
	orc_state__for_each_frame(&state, &source, guest_read__reg(read, PERF_REG_X86_IP),
				  guest_read__reg(read, PERF_REG_X86_SP),
				  guest_read__reg(read, PERF_REG_X86_BP)) {
		/*
		 * End the chain at an address without a table, which may not be a return address
		 * at all.  End a chain that is too long with the same value: it then counts neither
		 * as whole nor as failed.
		 */
		if (nr > MAX_FRAMES || !guest_orc__find_table(state.ip, orc)) {
			state.end = ORC_END_NO_TABLE;
			break;
		}
		if (!state.interrupted && !guest_orc__is_return_address(orc, state.ip)) {
			if (!orc_state__ends_here(&state)) {
				state.end = ORC_END_NO_CALL;
				break;
			}
			state.interrupted = true;
		}
		ips[nr++] = state.ip;
	}
	ended = state.end == ORC_END_USER || state.end == ORC_END_OUTERMOST;
	/* Count missing calls within the kernel only: a module may have been replaced. */
	guest_orc__judge(orc, ended && nr > 2, state.end == ORC_END_NO_CALL &&
			 guest_orc__is_kernel(orc, ips[nr - 1]) &&
			 guest_orc__is_kernel(orc, state.ip));
	if (nr < 2 || (!ended && (nr == 2 || orc->nr_whole < NR_PROOFS)))
		return state.end;

	nr_user = sample->callchain ? sample->callchain->nr - user : 0;
	if (!nr_user && state.end == ORC_END_USER && !is_kernel_address(state.ip)) {
		ips[nr++] = PERF_CONTEXT_GUEST_USER;
		ips[nr++] = state.ip;
	}

	chain = malloc(sizeof(*chain) + (nr + nr_user) * sizeof(u64));
	if (!chain)
		return state.end;

	chain->nr = nr + nr_user;
	memcpy(chain->ips, ips, nr * sizeof(u64));
	if (nr_user)
		memcpy(&chain->ips[nr], &sample->callchain->ips[user], nr_user * sizeof(u64));

	if (sample->merged_callchain)
		free(sample->callchain);
	sample->callchain = chain;
	sample->merged_callchain = true;
	return state.end;
}

/*
 * Return the address of the kernel's code in the guest, by its kallsyms; zero if it isn't known.
 * Without kallsyms, a map that was loaded from a vmlinux begins at the address in the file.
 */
static u64 machine__kernel_text(struct machine *machine)
{
	struct map *map = machine__kernel_map(machine);
	struct kmap *kmap = map ? map__kmap(map) : NULL;

	if (kmap && kmap->ref_reloc_sym)
		return kmap->ref_reloc_sym->addr;

	return map ? map__start(map) : 0;
}

static const struct dso *machine__kernel_dso(struct machine *machine)
{
	struct map *map = machine__kernel_map(machine);

	return map ? map__dso(map) : NULL;
}

/*
 * Return the guest's kernel if it may have a build-id of its own, NULL otherwise.  Data files of
 * older perfs have the host's build-id for the guest's kernel: ignore a build-id that equals the
 * host's.  If the host's build-id is not known, ignore any build-id.
 */
static const struct dso *machine__identified_kernel(struct machine *machine)
{
	const struct dso *kernel = machine__kernel_dso(machine), *host = NULL;

	if (machine->machines)
		host = machine__kernel_dso(&machine->machines->host);

	return kernel && host && dso__has_build_id(host) &&
	       !dso__build_id_equal(kernel, dso__bid(host)) ? kernel : NULL;
}

/* Paths of the kernel's file in distributions: the parts before and after the release. */
static const char *const vmlinux_places[][2] = {
	{ "boot/vmlinux-", "" },
	{ "usr/lib/debug/boot/vmlinux-", "" },
	{ "usr/lib/debug/lib/modules/", "/vmlinux" },
	{ "boot/vmlinuz-", "" },
	{ "lib/modules/", "/vmlinuz" },
};

/*
 * Return the path of the kernel's file below the guest's root, to be freed; NULL if there is none.
 */
static char *machine__find_vmlinux(struct machine *machine)
{
	char *release = machine__kernel_version(machine), *path = NULL;

	for (size_t i = 0; release && !path && i < ARRAY_SIZE(vmlinux_places); i++) {
		if (asprintf(&path, "%s/%s%s%s", machine->root_dir, vmlinux_places[i][0],
			     release, vmlinux_places[i][1]) < 0)
			path = NULL;
		if (path && access(path, R_OK)) {
			free(path);
			path = NULL;
		}
	}
	free(release);
	return path;
}

/*
 * Return the path of the file of a guest's kernel, to be freed; NULL, after a warning, if there is
 * none.  perf uses --guestvmlinux for the default guest only, as it does to find symbols: other
 * guests may run other kernels.
 */
static char *machine__vmlinux(struct machine *machine)
{
	char *path = NULL;

	if (guest_folder__missing()) {
		pr_warning("Guests have no names, and their stacks are not unwound: %s is not there, or is another user's\n",
			   guest_folder__missing());
	} else if (!machine__is_default_guest(machine)) {
		if (*machine->root_dir)
			path = machine__find_vmlinux(machine);
		if (!path)
			pr_warning("Stacks of the guest of process %d are not unwound: --guestmount has no kernel of it\n",
				   machine->pid);
	} else if (symbol_conf.default_guest_vmlinux_name) {
		path = strdup(symbol_conf.default_guest_vmlinux_name);
	} else {
		pr_warning("Stacks of guests are not unwound: --guestvmlinux names no kernel\n");
	}
	return path;
}

struct guest_root {
	struct guest_orc	*orc;
	const char		*dir;
};

/*
 * Add the module of a map.  perf record has written the path of the module's file, but perf report
 * may have the guest's root elsewhere.
 */
static int guest_root__add_module(struct map *map, void *data)
{
	const struct guest_root *root = data;
	const struct dso *dso = map__dso(map);
	const char *below = strstr(dso__long_name(dso), "/lib/modules/");
	const char *name = dso__short_name(dso);
	char path[PATH_MAX], notes[PATH_MAX];
	int len = strlen(name) - 2;

	/* Short names look like "[null_blk]". */
	if (!dso__is_kmod(dso) || name[0] != '[' || len <= 0)
		return 0;

	/* Prefer the file that perf record has made from the guest's memory. */
	if (snprintf(path, sizeof(path), "%s/boot/modules/%.*s", root->dir, len, name + 1) >=
	    (int)sizeof(path))
		return 0;
	if (!access(path, R_OK))
		return guest_orc__add_module(root->orc, path, 0, NULL, map__start(map),
					     map__end(map));

	if (!below ||
	    snprintf(path, sizeof(path), "%s%s", root->dir, below) >= (int)sizeof(path) ||
	    snprintf(notes, sizeof(notes), "%s/sys/module/%.*s/notes/.note.gnu.build-id",
		     root->dir, len, name + 1) >= (int)sizeof(notes))
		return 0;

	return guest_orc__add_module(root->orc, path, dso__comp(dso), notes, map__start(map),
				     map__end(map));
}

/*
 * Return the tables of a guest, or NULL.  Load them only once, and warn only once if there are
 * none.  Add the modules here, while the kernel's maps include one for each module: when the
 * kernel's symbols are loaded, other maps may replace these.
 */
static struct guest_orc *machine__guest_orc(struct machine *machine)
{
	struct guest_root root = { .dir = machine->root_dir };
	const char *why_not;
	char *path;

	if (machine->guest_orc_tried)
		return machine->guest_orc;

	machine->guest_orc_tried = true;
	path = machine__vmlinux(machine);
	if (!path)
		return NULL;

	root.orc = guest_orc__load(path, machine__kernel_text(machine),
				   machine__identified_kernel(machine), &why_not);
	if (!root.orc)
		pr_warning("Stacks of guests are not unwound by %s: %s\n", path, why_not);
	/* The default guest has no root: the modules' files would be those of the host. */
	else if (*root.dir)
		maps__for_each_map(machine__kernel_maps(machine), guest_root__add_module, &root);

	free(path);
	machine->guest_orc = root.orc;
	return root.orc;
}

/**
 * guest_orc__add_map - unwind code that was mapped while a guest was sampled
 * @machine:	the guest
 * @map:	map of a module, or of its init
 *
 * If no stack was unwound so far, the map is found with all others.
 */
void guest_orc__add_map(struct machine *machine, struct map *map)
{
	struct guest_root root = { .orc = machine->guest_orc, .dir = machine->root_dir };

	if (root.orc && *root.dir)
		guest_root__add_module(map, &root);
}

/**
 * guest_orc__remove_map - don't unwind code any more that has gone
 * @machine:	the guest
 * @map:	its map
 */
void guest_orc__remove_map(struct machine *machine, const struct map *map)
{
	struct guest_module *module, *next;

	if (!machine->guest_orc)
		return;

	list_for_each_entry_safe(module, next, &machine->guest_orc->modules, node) {
		if (module->start != map__start(map) || module->end != map__end(map))
			continue;
		list_del(&module->node);
		guest_module__delete(module);
	}
}

/**
 * guest_orc__is_at_hand - check whether stacks of guests can be unwound by ORC
 *
 * Return: true if the user has named a kernel that has tables, or if there is a --guestmount,
 * whatever it has.
 */
bool guest_orc__is_at_hand(void)
{
	const char *path = symbol_conf.default_guest_vmlinux_name, *why_not;
	struct guest_orc *orc;

	if (symbol_conf.guestmount)
		return true;

	orc = path ? guest_orc__load(path, 0, NULL, &why_not) : NULL;
	guest_orc__delete(orc);
	return orc;
}

/**
 * sample__unwind_guest - unwind the stacks that were read of a guest
 * @sample:	a sample with its deferred parts
 * @machine:	the guest that was sampled
 *
 * Return: why there are no more frames; ORC_CONTINUE if there was nothing to unwind, or no tables.
 */
enum orc_end sample__unwind_guest(struct perf_sample *sample, struct machine *machine)
{
	const struct guest_read *read = &sample->guest_read;
	struct guest_orc *orc;
	enum orc_end end;

	if (!read->record || !machine || sample->cpumode != PERF_RECORD_MISC_GUEST_KERNEL ||
	    read->record->abi != PERF_SAMPLE_REGS_ABI_64)
		return ORC_CONTINUE;

	sample__add_guest_user(sample, machine);
	/*
	 * Without its stack, a kernel's part is that of frame pointers.  Where guests' samples are
	 * hidden, they have the host's machine, which has no guest's tables.
	 */
	if (!read->pieces[GUEST_READ_STACK].size || machine__is_host(machine))
		return ORC_CONTINUE;

	orc = machine__guest_orc(machine);
	if (!orc)
		return ORC_CONTINUE;

	end = guest_orc__unwind(orc, sample);
	if (orc->nr_failed == NR_PROOFS) {
		pr_warning("Stacks of guests are not unwound by %s: it is not the guest's kernel, or that is not where kallsyms says\n",
			   orc->path);
		guest_orc__delete(orc);
		machine->guest_orc = NULL;
	}
	return end;
}
