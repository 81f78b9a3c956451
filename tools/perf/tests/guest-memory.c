// SPDX-License-Identifier: GPL-2.0
/*
 * Test the files that perf writes from the memory of guests.  This process stands for the VMM: make
 * a guest in its memory, whose kernel has two modules, and compare all that is written for it.
 * Then break the guest, in one place at a time.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <elf.h>
#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>

#ifdef HAVE_LIBBPF_SUPPORT
#include <bpf/btf.h>
#endif

#include "build-id.h"
#include "guest-info.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-memslots.h"
#include "guest-modules.h"
#include "guest-policy.h"
#include "guest-tasks.h"
#include "guest-watch.h"
#include "perf-sys.h"
#include "record.h"
#include "symbol.h"
#include "symbol_conf.h"
#include "target.h"
#include "tests.h"
#include "util.h"

/*
 * As on QEMU's q35: RAM above the first 2 GiB has guest-physical addresses from 4 GiB on.  Only the
 * first LOW_SIZE bytes below 2 GiB and those from 4 GiB on are used; test_many_copies() uses more.
 */
#define LOW_SIZE	(16UL << 20)
#define HOLE		(2UL << 30)
#define HIGH_GPA	(4UL << 30)
#define RAM_SIZE	(HOLE + LOW_SIZE)
#define PAGE		4096UL

/*
 * The guest's kernel.  Its first 2 MiB are one large page.  The rest is small pages, whose physical
 * addresses descend as the virtual ones ascend.
 */
#define KERNEL		0xffffffff9b000000ULL
#define SMALL		(KERNEL + (2UL << 20))
#define KERNEL_GPA	(2UL << 20)
#define SMALL_GPA	(5UL << 20)
#define NR_SMALL	256

#define PGD_GPA		(KERNEL_GPA + PAGE)
#define PUD_GPA		(1UL << 20)
#define PMD_GPA		(PUD_GPA + PAGE)
#define PTE_GPA		(PMD_GPA + PAGE)
/*
 * perf reads the beginnings of many pages by one system call.  VMCOREINFO is not on the first of
 * these pages.
 */
#define INFO_GPA	((8UL << 20) + 3 * PAGE)

/* Bits of entries in page tables. */
#define PRESENT		1UL
#define LARGE		BIT(7)
#define LARGE_PAT	BIT(12)
#define NO_EXEC		BIT_ULL(63)

/* Addresses of the kernel's data.  It is in small pages, and some structures cross pages. */
#define NUM_SYMS	(SMALL + 0x800)
#define RELATIVE_BASE	(SMALL + 0x808)
#define NAMES		(SMALL + 0xff8)
#define TOKEN_TABLE	(SMALL + 0x4ff0)
#define TOKEN_INDEX	(SMALL + 0x5f80)
#define OFFSETS		(SMALL + 0x6ffc)
#define MODULES		(SMALL + 0x8000)
#define MODULE(i)	(SMALL + 0x9fe0 + (i) * 0x2000)
#define STRINGS		(SMALL + 0x10000)
#define SYMTAB		(SMALL + 0x11ff4)
#define TYPES		(SMALL + 0x14000)
#define ORC_HEADER	(SMALL + 0x20000)
#define ORC_IPS		(ORC_HEADER + 20)
#define ORC		(ORC_IPS + 4 * 4)
#define ORC_END		(ORC + 4 * 6)
#define BTF		(SMALL + 0x30000)
#define JIFFIES		(SMALL + 0x60000)
#define VMEMMAP_AT	(SMALL + 0x60ff8)
#define PAGE_OFFSET_AT	(SMALL + 0x61000)
#define NR_CPUS_AT	(SMALL + 0x61008)
#define CPU_OFFSETS	(SMALL + 0x61010)
#define IDLE_THREADS	(SMALL + 0x61800)
#define TASK(i)		(SMALL + 0x62fe0 + (i) * 0x1000)
#define SIGNAL		(SMALL + 0x70000)
#define MM		(SMALL + 0x71000)
#define NODE(i)		(SMALL + 0x72000 + (i) * 0x100)
#define VMA(i)		(SMALL + 0x73fd8 + (i) * 0x40)
#define FILE_OF(i)	(SMALL + 0x75fe0 + (i) * 0x40)
#define DENTRY(i)	(SMALL + 0x77fe4 + (i) * 0x40)
#define MOUNT(i)	(SMALL + 0x79fe0 + (i) * 0x40)
#define NAME_OF(i)	(SMALL + 0x7bffe + (i) * 0x10)
#define INODE(i)	(SMALL + 0x7dff4 + (i) * 0x40)
#define SUPER(i)	(SMALL + 0x7f000 + (i) * 0x40)
#define MAPPING(i)	(SMALL + 0x80ff0 + (i) * 0x40)
#define CACHE(i)	(SMALL + 0x82ff0 + (i) * 0x240)

/* A process: gpas of its page tables and its program's first page, and gvas of its two files. */
#define USER_PGD_GPA	(9UL << 20)
#define PROGRAM_GPA	(USER_PGD_GPA + PAGE)
#define PROGRAM		0x400000UL
#define LIBRARY		0x7f0000001000UL

static u8 *ram;

/* True if the structure of the first module begins in the RAM above the hole. */
static bool high;

/* The size of the small pages. */
static u64 page_bytes = PAGE;

static u64 to_offset(u64 gva)
{
	u64 page = (gva - SMALL) / page_bytes, base = SMALL_GPA;

	if (gva < SMALL)
		return gva - KERNEL + KERNEL_GPA;
	if (high && gva / PAGE == MODULE(0) / PAGE)
		base += HOLE;
	return base + (NR_SMALL * PAGE / page_bytes - 1 - page) * page_bytes + gva % page_bytes;
}

static u64 to_gpa(u64 gva)
{
	u64 offset = to_offset(gva);

	return offset < HOLE ? offset : offset - HOLE + HIGH_GPA;
}

static void put(u64 gva, const void *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		ram[to_offset(gva + i)] = ((const u8 *)data)[i];
}

static void put_u64(u64 gva, u64 value)
{
	put(gva, &value, sizeof(value));
}

static void put_entry(u64 table, unsigned int i, u64 entry)
{
	memcpy(&ram[table + i * sizeof(entry)], &entry, sizeof(entry));
}

static void make_tables(void)
{
	put_entry(PGD_GPA, 511, PUD_GPA | PRESENT);
	put_entry(PUD_GPA, (KERNEL >> 30) & 511, PMD_GPA | PRESENT);
	put_entry(PMD_GPA, (KERNEL >> 21) & 511,
		  KERNEL_GPA | LARGE | LARGE_PAT | NO_EXEC | PRESENT);
	put_entry(PMD_GPA, (SMALL >> 21) & 511, PTE_GPA | PRESENT);
	for (u64 i = 0; i < NR_SMALL; i++)
		put_entry(PTE_GPA, i, to_gpa(SMALL + i * PAGE) | NO_EXEC | PRESENT);
}

#define KERNEL_ID	"000102030405060708090a0b0c0d0e0fff01faaf"

static const char info[] =
	"OSRELEASE=6.1.0-test\n"
	"BUILD-ID=" KERNEL_ID "\n"
	"SYMBOL(swapper_pg_dir)=ffffffff9b001000\n"
	"SYMBOL(_stext)=ffffffff9b000000\n"
	"SYMBOL(kallsyms_names)=ffffffff9b200ff8\n"
	"SYMBOL(kallsyms_num_syms)=ffffffff9b200800\n"
	"SYMBOL(kallsyms_token_table)=ffffffff9b204ff0\n"
	"SYMBOL(kallsyms_token_index)=ffffffff9b205f80\n"
	"SYMBOL(kallsyms_offsets)=ffffffff9b206ffc\n"
	"SYMBOL(kallsyms_relative_base)=ffffffff9b200808\n"
	"NUMBER(phys_base)=-450887680\n"
	"NUMBER(pgtable_l5_enabled)=0\n";

/*
 * An address below the kernel's is that of a per-CPU symbol; zero stands for the end of BTF, see
 * symbol_addr().
 */
static const struct {
	u64		addr;
	const char	*name;	/* the type, then the name */
} symbols[] = {
	{ 0x1000,		"Airq_stack_backing_store" },
	{ KERNEL,		"T_text" },
	{ KERNEL,		"T_stext" },
	{ KERNEL + 0x40,	"tdo_one" },
	{ KERNEL + 0x2000,	"T_etext" },
	{ MODULES,		"Dmodules" },
	{ ORC_HEADER,		"R__start_orc_header" },
	{ ORC_IPS,		"R__stop_orc_header" },
	{ ORC_IPS,		"R__start_orc_unwind_ip" },
	{ ORC,			"R__stop_orc_unwind_ip" },
	{ ORC,			"R__start_orc_unwind" },
	{ ORC_END,		"R__stop_orc_unwind" },
	{ BTF,			"R__start_BTF" },
	{ 0,			"R__stop_BTF" },
	{ JIFFIES,		"Djiffies_64" },
	{ VMEMMAP_AT,		"Dvmemmap_base" },
	{ PAGE_OFFSET_AT,	"Dpage_offset_base" },
	{ NR_CPUS_AT,		"Rnr_cpu_ids" },
	{ CPU_OFFSETS,		"R__per_cpu_offset" },
	{ IDLE_THREADS,		"didle_threads" },
	{ TASK(0),		"Dinit_task" },
	{ ORC_END + 0x100,	"ta_name_of_more_than_127_characters_" },
};

/* Ways in which kallsyms stores addresses. */
enum layout { FROM_PLACE, FROM_BASE, FROM_BASE_BUT_PERCPU };

static u64 btf_size;

/* True for an older kernel, whose ORC tables have no header. */
static bool no_header;

static u64 symbol_addr(size_t i)
{
	return symbols[i].addr ?: BTF + btf_size;
}

static s32 kept_offset(size_t i, enum layout layout)
{
	u64 addr = symbol_addr(i);

	switch (layout) {
	case FROM_PLACE:
		return addr - (OFFSETS + i * sizeof(s32));
	case FROM_BASE:
		return addr - KERNEL;
	case FROM_BASE_BUT_PERCPU:
	default:
		return addr < KERNEL ? (s32)addr : (s32)(KERNEL - 1 - addr);
	}
}

/* The last name is a long one: NR_LONG bytes with token 1 are added to it. */
#define NR_LONG		120
#define LONG_TOKEN	"xy"

static void make_kallsyms(enum layout layout)
{
	u32 nr = ARRAY_SIZE(symbols);
	u64 names = NAMES, tokens = TOKEN_TABLE;

	put(NUM_SYMS, &nr, sizeof(nr));
	put_u64(RELATIVE_BASE, KERNEL);
	/* Token 1 stands for two characters, all others for themselves. */
	for (unsigned int i = 0; i < 256; i++) {
		const char itself[] = { i, 0 }, *token = i == 1 ? LONG_TOKEN : itself;
		u16 index = tokens - TOKEN_TABLE;

		put(TOKEN_INDEX + i * sizeof(index), &index, sizeof(index));
		put(tokens, token, strlen(token) + 1);
		tokens += strlen(token) + 1;
	}
	for (size_t i = 0; i < nr; i++) {
		u8 code[512], len = strlen(symbols[i].name);
		unsigned int size = 0, total = len + (i == nr - 1 ? NR_LONG : 0);
		s32 offset = kept_offset(i, layout);

		code[size++] = total < 128 ? total : 0x80 | (total & 0x7f);
		if (total >= 128)
			code[size++] = total >> 7;
		memcpy(&code[size], symbols[i].name, len);
		if (no_header && symbols[i].addr == ORC_HEADER)
			code[size + 1] = '-';
		memset(&code[size + len], 1, total - len);
		put(names, code, size + total);
		names += size + total;
		put(OFFSETS + i * sizeof(offset), &offset, sizeof(offset));
	}
}

static void make_orc(void)
{
	u8 bytes[ORC_END - ORC_HEADER];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i;
	put(ORC_HEADER, bytes, sizeof(bytes));
}

#ifdef HAVE_LIBBPF_SUPPORT
/* Offsets of a module's fields. */
#define M_LIST		8
#define M_NAME		24
#define M_MEM		88
#define M_ARCH		160
#define M_KALLSYMS	200
#define M_CORE_KALLSYMS	0x400
#define M_NOTES		216
#define MEM_STEP	24

/* The code of the first module, and its ORC tables. */
#define MODULE_CODE	(SMALL + 0x50000)
#define CODE_SIZE	0x1100
#define MODULE_IPS	(SMALL + 0x53ffc)
#define MODULE_ORC	(SMALL + 0x54ffa)
#define NR_ORCS		3

/* The build-id of the first module is at the end of its first part in memory. */
#define MODULE_NOTE	(MODULE_CODE + 0x3000 - 36)
#define OTHER_NOTE	".note.gnu.property"
#define ID_NOTE		".note.gnu.build-id"
#define MODULE_ID	"6d6f64756c6573206f776e206964206f66203230"

static const char module_note[] = "\4\0\0\0\24\0\0\0\3\0\0\0GNU\0modules own id of 20";

static const struct {
	const char	*name;
	u64		base;
	u32		sizes[2];
} modules[] = {
	{ "first",	MODULE_CODE, { 0x3000, 0x1000 } },
	{ "second",	0xffffffffc0010000, { 0x2000, 0 } },
};

/* Offsets in a module's notes: struct module_notes_attrs, and struct bin_attribute. */
#define N_NOTE(old)	((old) ? 16 : 32)
#define NOTE_STEP	64
#define NOTE_NAME	8
#define NOTE_SIZE	24
#define NOTE_ADDR	32

/* Offsets in struct task_struct (T_), struct signal_struct (S_) and struct mm_struct (MM_). */
#define T_COMM		0x20
#define T_PID		0x30
#define T_TGID		0x34
#define T_TASKS		0x40
#define T_MM		0x50
#define T_STACK		0x8
#define T_SIGNAL	0x60
#define T_THREADS	0x68
#define S_THREADS	0x10
#define MM_PGD		0x18
#define MM_TREE		0x20
#define MM_EXEC_VM	0x30
/* Where the guest has its direct map of RAM and its array of struct page. */
#define PAGE_OFFSET	0xffff9d4000000000ULL
#define VMEMMAP		0xfffff0c180000000ULL

/* Offsets in the structures that lead to the files that a process runs. */
#define V_START		0
#define V_END		8
#define V_FLAGS		0x18
#define V_PGOFF		0x20
#define V_FILE		0x28
#define F_PATH		0x10
#define F_INODE		0x28
#define F_MAPPING	0x30
#define M_CACHE		0x18
#define C_SLOTS		0x28
#define I_INO		8
#define I_SB		0x10
#define S_DEV		0x10
#define D_PARENT	8
#define D_NAME		0x10
#define QSTR_LEN	4
#define QSTR_NAME	8
#define D_HASH		0x28
#define MM_USERS	0x38
#define MNT_PARENT	0
#define MNT_POINT	8
#define MNT		0x10
#define NODE_PIVOTS	8
#define LEAF_SLOTS	128
#define ARANGE_SLOTS	80
#define LEAF		(1 << 3)
#define ARANGE		(3 << 3)

/* True for Linux 6.0, which has no maple tree of VMAs. */
static bool no_tree;

/* The offset of a VMA's vm_file, zero for V_FILE; and the number of slots of a leaf. */
static u32 vma_file;
static u32 nr_slots = 16;

/* The size of the guest's struct page. */
static u32 page_size = 64;

/* True to leave out a field of struct task_struct, or to have one far behind the others. */
static bool no_tasks, far_field;

static void add_node_type(struct btf *btf, const char *name, int u64_id, u32 nr)
{
	int pivots = btf__add_array(btf, u64_id, u64_id, nr ? nr - 1 : 0);
	int slots = btf__add_array(btf, u64_id, u64_id, nr);

	btf__add_struct(btf, name, 256);
	btf__add_field(btf, "pivot", pivots, NODE_PIVOTS * 8, 0);
	btf__add_field(btf, "slot", slots, (NODE_PIVOTS + (min(nr ?: 1, 16U) - 1) * 8) * 8, 0);
}

static void add_map_types(struct btf *btf, int u32_id, int u64_id)
{
	int tree, path, cache, slots, name, mnt, hash;

	tree = btf__add_struct(btf, "maple_tree", 16);
	btf__add_field(btf, "ma_root", u64_id, 64, 0);
	btf__add_struct(btf, "mm_struct", 64);
	btf__add_field(btf, "pgd", u64_id, MM_PGD * 8, 0);
	if (!no_tree)
		btf__add_field(btf, "mm_mt", tree, (MM_TREE - 8) * 8, 0);
	btf__add_field(btf, "exec_vm", u64_id, MM_EXEC_VM * 8, 0);
	btf__add_field(btf, "mm_users", u32_id, MM_USERS * 8, 0);
	btf__add_struct(btf, "vm_area_struct", 1024);
	btf__add_field(btf, "vm_start", u64_id, V_START * 8, 0);
	btf__add_field(btf, "vm_end", u64_id, V_END * 8, 0);
	btf__add_field(btf, "vm_flags", u64_id, V_FLAGS * 8, 0);
	btf__add_field(btf, "vm_pgoff", u64_id, V_PGOFF * 8, 0);
	btf__add_field(btf, "vm_file", u64_id, (vma_file ?: V_FILE) * 8, 0);
	path = btf__add_struct(btf, "path", 16);
	btf__add_field(btf, "mnt", u64_id, 0, 0);
	btf__add_field(btf, "dentry", u64_id, 64, 0);
	btf__add_struct(btf, "file", 64);
	btf__add_field(btf, "f_path", path, F_PATH * 8, 0);
	btf__add_field(btf, "f_inode", u64_id, F_INODE * 8, 0);
	btf__add_field(btf, "f_mapping", u64_id, F_MAPPING * 8, 0);
	cache = btf__add_struct(btf, "xarray", 16);
	btf__add_field(btf, "xa_head", u64_id, 64, 0);
	btf__add_struct(btf, "address_space", 64);
	btf__add_field(btf, "i_pages", cache, (M_CACHE - 8) * 8, 0);
	slots = btf__add_array(btf, u64_id, u64_id, 64);
	btf__add_struct(btf, "xa_node", C_SLOTS + 64 * 8);
	btf__add_field(btf, "slots", slots, C_SLOTS * 8, 0);
	btf__add_struct(btf, "page", page_size);
	btf__add_struct(btf, "inode", 64);
	btf__add_field(btf, "i_ino", u64_id, I_INO * 8, 0);
	btf__add_field(btf, "i_sb", u64_id, I_SB * 8, 0);
	btf__add_struct(btf, "super_block", 64);
	btf__add_field(btf, "s_dev", u32_id, S_DEV * 8, 0);
	name = btf__add_struct(btf, "qstr", 16);
	btf__add_field(btf, "len", u32_id, QSTR_LEN * 8, 0);
	btf__add_field(btf, "name", u64_id, QSTR_NAME * 8, 0);
	hash = btf__add_struct(btf, "hlist_bl_node", 16);
	btf__add_field(btf, "pprev", u64_id, 64, 0);
	btf__add_struct(btf, "dentry", 64);
	btf__add_field(btf, "d_hash", hash, D_HASH * 8, 0);
	btf__add_field(btf, "d_parent", u64_id, D_PARENT * 8, 0);
	btf__add_field(btf, "d_name", name, D_NAME * 8, 0);
	mnt = btf__add_struct(btf, "vfsmount", 16);
	btf__add_field(btf, "mnt_root", u64_id, 0, 0);
	btf__add_struct(btf, "mount", 64);
	btf__add_field(btf, "mnt_parent", u64_id, MNT_PARENT * 8, 0);
	btf__add_field(btf, "mnt_mountpoint", u64_id, MNT_POINT * 8, 0);
	btf__add_field(btf, "mnt", mnt, MNT * 8, 0);
	add_node_type(btf, "maple_range_64", u64_id, nr_slots);
	add_node_type(btf, "maple_arange_64", u64_id, 10);
}

static void add_task_types(struct btf *btf, int u32_id, int u64_id, int char_id, int list)
{
	btf__add_struct(btf, "signal_struct", 64);
	btf__add_field(btf, "thread_head", list, S_THREADS * 8, 0);
	add_map_types(btf, u32_id, u64_id);
	btf__add_struct(btf, "task_struct", far_field ? 16388 : 256);
	btf__add_field(btf, "comm", char_id, T_COMM * 8, 0);
	btf__add_field(btf, "pid", u32_id, T_PID * 8, 0);
	btf__add_field(btf, "tgid", u32_id, T_TGID * 8, 0);
	btf__add_field(btf, "tasks", list, T_TASKS * 8, 0);
	btf__add_field(btf, "mm", u64_id, T_MM * 8, 0);
	btf__add_field(btf, "stack", u64_id, T_STACK * 8, 0);
	btf__add_field(btf, "signal", u64_id, (far_field ? 16380 : T_SIGNAL) * 8, 0);
	if (!no_tasks)
		btf__add_field(btf, "thread_node", list, T_THREADS * 8, 0);
}

/* True for a struct module without end: its members have no names, and contain themselves. */
static bool endless;

static void add_endless(struct btf *btf)
{
	int id = btf__add_struct(btf, NULL, 256);

	for (unsigned int i = 0; i < 100; i++)
		btf__add_field(btf, NULL, id, 0, 0);
	btf__add_struct(btf, "module", 256);
	btf__add_field(btf, NULL, id, 0, 0);
}

static void *make_btf(bool old, u32 *size)
{
	struct btf *btf = btf__new_empty();
	int u32_id, u64_id, char_id, mem, array, list, kallsyms, pointer, anonymous,
	    arch, attribute, note, array_of_notes;
	const void *data;
	void *copy;

	u32_id = btf__add_int(btf, "unsigned int", 4, 0);
	u64_id = btf__add_int(btf, "unsigned long", 8, 0);
	char_id = btf__add_array(btf, u32_id, btf__add_int(btf, "char", 1, 0), 56);
	list = btf__add_struct(btf, "list_head", 16);
	btf__add_field(btf, "next", u64_id, 0, 0);
	btf__add_field(btf, "prev", u64_id, 64, 0);
	kallsyms = btf__add_struct(btf, "mod_kallsyms", 32);
	btf__add_field(btf, "symtab", u64_id, 0, 0);
	btf__add_field(btf, "num_symtab", u32_id, 64, 0);
	btf__add_field(btf, "strtab", u64_id, 128, 0);
	btf__add_field(btf, "typetab", u64_id, 192, 0);
	pointer = btf__add_ptr(btf, kallsyms);
	mem = btf__add_struct(btf, old ? "module_layout" : "module_memory", MEM_STEP);
	btf__add_field(btf, "base", u64_id, 0, 0);
	btf__add_field(btf, "size", u32_id, 64, 0);
	if (old)
		btf__add_field(btf, "text_size", u32_id, 96, 0);
	array = btf__add_array(btf, u32_id, mem, 2);
	arch = btf__add_struct(btf, "mod_arch_specific", 24);
	btf__add_field(btf, "num_orcs", u32_id, 0, 0);
	btf__add_field(btf, "orc_unwind_ip", u64_id, 64, 0);
	btf__add_field(btf, "orc_unwind", u64_id, 128, 0);
	add_task_types(btf, u32_id, u64_id, char_id, list);
	anonymous = btf__add_union(btf, NULL, 56);
	btf__add_field(btf, "name", char_id, 0, 0);
	if (endless)
		add_endless(btf);
	attribute = btf__add_struct(btf, "attribute", 16);
	btf__add_field(btf, "name", pointer, NOTE_NAME * 8, 0);
	note = btf__add_struct(btf, "bin_attribute", NOTE_STEP);
	btf__add_field(btf, "attr", attribute, 0, 0);
	btf__add_field(btf, "size", u64_id, NOTE_SIZE * 8, 0);
	btf__add_field(btf, "private", pointer, NOTE_ADDR * 8, 0);
	array_of_notes = btf__add_array(btf, u32_id, note, 0);
	btf__add_struct(btf, "module_notes_attrs", N_NOTE(old));
	btf__add_field(btf, "attrs", array_of_notes, N_NOTE(old) * 8, 0);
	btf__add_struct(btf, "module", 256);
	btf__add_field(btf, "state", u32_id, 0, 0);
	btf__add_field(btf, "list", list, M_LIST * 8, 0);
	btf__add_field(btf, NULL, anonymous, M_NAME * 8, 0);
	if (old)
		btf__add_field(btf, "core_layout", mem, M_MEM * 8, 0);
	else
		btf__add_field(btf, "mem", array, M_MEM * 8, 0);
	btf__add_field(btf, "arch", arch, M_ARCH * 8, 0);
	btf__add_field(btf, "kallsyms", pointer, M_KALLSYMS * 8, 0);
	btf__add_field(btf, "notes_attrs", pointer, M_NOTES * 8, 0);
	btf__add_field(btf, "core_kallsyms", kallsyms, M_CORE_KALLSYMS * 8, 0);

	data = btf__raw_data(btf, size);
	copy = data ? malloc(*size) : NULL;
	if (copy)
		memcpy(copy, data, *size);
	btf__free(btf);
	return copy;
}

/*
 * The idle task of the first CPU, two threads of one process, a thread of the kernel, and the idle
 * task of the second CPU, which is in no list.
 */
static const struct {
	const char	*comm;
	u32		pid;
	u32		tid;
	u64		stack;
	bool		has_mm;
} tasks[] = {
	{ "swapper/0",		0, 0, 0xffffffff9b804000, false },
	{ "a name of 15 ch",	7, 7, 0xffffc90000020000, true },
	{ "worker",		7, 9, 0xffffc90000010000, true },
	{ "kthreadd",		2, 2, 0xffffc90000008000, false },
	{ "swapper/1",		0, 0, 0xffffc90000000000, false },
};

static void put_u32(u64 gva, u32 value)
{
	put(gva, &value, sizeof(value));
}

/*
 * The directories and files: index, parent, name.  The first two are roots of mounts: each is its
 * own parent.
 */
enum { ROOT, USR_ROOT, BIN, A_PROGRAM, USR, LIB, LIBTEST, NR_DENTRIES };

static const struct {
	unsigned int	parent;
	const char	*name;
} dentries[NR_DENTRIES] = {
	[ROOT]		= { ROOT,	"/" },
	[USR_ROOT]	= { USR_ROOT,	"/" },
	[BIN]		= { ROOT,	"bin" },
	[A_PROGRAM]	= { BIN,	"a program" },
	[USR]		= { ROOT,	"usr" },
	[LIB]		= { USR_ROOT,	"lib" },
	[LIBTEST]	= { LIB,	"libtest.so" },
};

/* The VMAs of the process, by address.  One of them can be executed, but has no file. */
#define NO_FILE		2

static const struct {
	u64		start;
	u64		end;
	u64		flags;
	u64		pgoff;
	unsigned int	file;
} vmas[] = {
	{ PROGRAM,		PROGRAM + PAGE,		1,	0,	0 },
	{ PROGRAM + PAGE,	PROGRAM + 3 * PAGE,	5,	1,	0 },
	{ PROGRAM + 8 * PAGE,	PROGRAM + 9 * PAGE,	7,	0,	NO_FILE },
	{ LIBRARY,		LIBRARY + 4 * PAGE,	5,	0,	1 },
};

static void put_slot(u64 node, u32 slots, unsigned int i, u64 slot, u64 last)
{
	put_u64(node + slots + i * 8, slot);
	put_u64(node + NODE_PIVOTS + i * 8, last);
}

/*
 * Make the first page of an ELF file, with two notes, the second of which is the build-id, and with
 * a segment that is not a note but looks like another build-id.
 */
static void make_program(void)
{
	const Elf64_Ehdr ehdr = {
		.e_ident	= { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB },
		.e_phoff	= sizeof(ehdr),
		.e_phentsize	= sizeof(Elf64_Phdr),
		.e_phnum	= 2,
	};
	const Elf64_Phdr phdrs[] = {
		{ .p_type = PT_LOAD, .p_offset = 0x300, .p_filesz = 36 },
		{ .p_type = PT_NOTE, .p_offset = 0x200, .p_filesz = 16 + 4 + 16 + 20 },
	};
	const Elf64_Nhdr abi_tag = { 4, 4, NT_GNU_ABI_TAG }, build_id = { 4, 20, NT_GNU_BUILD_ID };
	u8 *page = &ram[PROGRAM_GPA];

	memcpy(page, &ehdr, sizeof(ehdr));
	memcpy(page + sizeof(ehdr), phdrs, sizeof(phdrs));
	memcpy(page + 0x200, &abi_tag, sizeof(abi_tag));
	memcpy(page + 0x20c, "GNU", 4);
	for (unsigned int at = 0x214; at <= 0x300; at += 0x300 - 0x214) {
		memcpy(page + at, &build_id, sizeof(build_id));
		memcpy(page + at + 12, "GNU", 4);
		for (unsigned int i = 0; i < 20; i++)
			page[at + 16 + i] = at == 0x214 ? i + 1 : 0xff;
	}
}

/* The address of a page's struct page. */
#define PAGE_OF(gpa)	(VMEMMAP + (gpa) / PAGE * page_size)

static void make_maps(void)
{
	make_program();
	/* Nothing is cached of the second file. */
	put_u64(MAPPING(0) + M_CACHE, CACHE(0) | 2);
	put_u64(CACHE(0) + C_SLOTS, CACHE(1) | 2);
	put_u64(CACHE(1) + C_SLOTS, PAGE_OF(PROGRAM_GPA));

	put_u64(MM + MM_PGD, PAGE_OFFSET + USER_PGD_GPA);
	put_u64(MM + MM_EXEC_VM, 7);
	put_u32(MM + MM_USERS, 1);
	put_u64(MM + MM_TREE, NODE(0) | ARANGE | 2);
	put_slot(NODE(0), ARANGE_SLOTS, 0, NODE(1) | LEAF | 4, 0x7effffffffffUL);
	put_slot(NODE(0), ARANGE_SLOTS, 1, NODE(2) | LEAF | 4, ~0UL);
	/* There are gaps below the program, between its parts, and below and above the library. */
	put_slot(NODE(1), LEAF_SLOTS, 0, 0, vmas[0].start - 1);
	put_slot(NODE(1), LEAF_SLOTS, 1, VMA(0), vmas[0].end - 1);
	put_slot(NODE(1), LEAF_SLOTS, 2, VMA(1), vmas[1].end - 1);
	put_slot(NODE(1), LEAF_SLOTS, 3, 0, vmas[2].start - 1);
	put_slot(NODE(1), LEAF_SLOTS, 4, VMA(2), vmas[2].end - 1);
	put_slot(NODE(2), LEAF_SLOTS, 0, 0, vmas[3].start - 1);
	put_slot(NODE(2), LEAF_SLOTS, 1, VMA(3), vmas[3].end - 1);
	for (size_t i = 0; i < ARRAY_SIZE(vmas); i++) {
		put_u64(VMA(i) + V_START, vmas[i].start);
		put_u64(VMA(i) + V_END, vmas[i].end);
		put_u64(VMA(i) + V_FLAGS, vmas[i].flags);
		put_u64(VMA(i) + V_PGOFF, vmas[i].pgoff);
		put_u64(VMA(i) + V_FILE, vmas[i].file == NO_FILE ? 0 : FILE_OF(vmas[i].file));
	}
	for (unsigned int i = 0; i < NR_DENTRIES; i++) {
		u32 len = strlen(dentries[i].name);

		put(NAME_OF(i), dentries[i].name, len);
		put_u64(DENTRY(i) + D_PARENT, DENTRY(dentries[i].parent));
		put(DENTRY(i) + D_NAME + QSTR_LEN, &len, sizeof(len));
		put_u64(DENTRY(i) + D_NAME + QSTR_NAME, NAME_OF(i));
		put_u64(DENTRY(i) + D_HASH + 8, 8);
	}
	/* The second file is in the file system that is mounted on /usr. */
	for (unsigned int i = 0; i < 2; i++) {
		put_u64(MOUNT(i) + MNT_PARENT, MOUNT(0));
		put_u64(MOUNT(i) + MNT_POINT, DENTRY(i ? USR : ROOT));
		put_u64(MOUNT(i) + MNT, DENTRY(i ? USR_ROOT : ROOT));
		put_u64(FILE_OF(i) + F_PATH, MOUNT(i) + MNT);
		put_u64(FILE_OF(i) + F_PATH + 8, DENTRY(i ? LIBTEST : A_PROGRAM));
		put_u64(FILE_OF(i) + F_INODE, INODE(i));
		put_u64(FILE_OF(i) + F_MAPPING, MAPPING(i));
		put_u64(INODE(i) + I_INO, 1000 + i);
		put_u64(INODE(i) + I_SB, SUPER(i));
		put_u32(SUPER(i) + S_DEV, 0x12ff0000 + i);
	}
}

static void make_tasks(void)
{
	put_u64(JIFFIES, 1);
	put_u64(VMEMMAP_AT, VMEMMAP);
	put_u64(PAGE_OFFSET_AT, PAGE_OFFSET);
	put_u32(NR_CPUS_AT, 2);
	put_u64(CPU_OFFSETS + 8, 0x100);
	put_u64(IDLE_THREADS + 0x100, TASK(4));
	make_maps();
	for (size_t i = 0; i < ARRAY_SIZE(tasks); i++) {
		put(TASK(i) + T_COMM, tasks[i].comm, strlen(tasks[i].comm) + 1);
		put_u32(TASK(i) + T_PID, tasks[i].tid);
		put_u32(TASK(i) + T_TGID, tasks[i].pid);
		put_u64(TASK(i) + T_STACK, tasks[i].stack);
		put_u64(TASK(i) + T_MM, tasks[i].has_mm ? MM : 0);
		put_u64(TASK(i) + T_SIGNAL, SIGNAL);
	}
	put_u64(TASK(0) + T_TASKS, TASK(1) + T_TASKS);
	put_u64(TASK(1) + T_TASKS, TASK(3) + T_TASKS);
	put_u64(TASK(3) + T_TASKS, TASK(0) + T_TASKS);
	for (size_t i = 0; i < ARRAY_SIZE(tasks); i++)
		put_u64(TASK(i) + T_SIGNAL, SIGNAL + 0x100 * i);
	/* The list of each process's threads ends at the head in its struct signal_struct. */
	put_u64(TASK(0) + T_THREADS, SIGNAL + S_THREADS);
	put_u64(TASK(3) + T_THREADS, SIGNAL + 0x300 + S_THREADS);
	put_u64(TASK(1) + T_THREADS, TASK(2) + T_THREADS);
	put_u64(TASK(2) + T_THREADS, SIGNAL + 0x100 + S_THREADS);
}

#define WITH_MODULES	true

/*
 * Each module has an undefined symbol, which perf does not write, and a symbol whose name begins
 * with that of the module.
 */
static void make_modules(bool old)
{
	u64 node = MODULES;
	u32 size = 0;
	const u32 code_size = CODE_SIZE, nr_orcs = NR_ORCS;
	void *btf = make_btf(old, &size);

	btf_size = size;
	if (btf)
		put(BTF, btf, size);
	free(btf);

	put(STRINGS, "\0hidden\0first_f\0second_f", 25);
	for (size_t i = 0; i < ARRAY_SIZE(modules); i++) {
		u64 module = MODULE(i), table = module + M_CORE_KALLSYMS;
		const Elf64_Sym syms[] = {
			{ .st_name = 1, .st_shndx = SHN_UNDEF },
			{ .st_name = i ? 16 : 8, .st_shndx = 1,
			  .st_value = modules[i].base + 0x10 },
		};
		const struct {
			u64 symtab;
			u32 nr;
			u64 strings, types;
		} kallsyms = {
			SYMTAB + i * sizeof(syms), ARRAY_SIZE(syms), STRINGS, TYPES + 2 * i,
		};

		put_u64(node, module + M_LIST);
		put_u64(module + M_LIST + 8, node);
		node = module + M_LIST;
		put(module + M_NAME, modules[i].name, strlen(modules[i].name) + 1);
		put_u64(module + M_KALLSYMS, table);
		for (unsigned int j = 0; j < 2; j++) {
			put_u64(module + M_MEM + j * MEM_STEP, modules[i].base + j * 0x8000);
			put(module + M_MEM + j * MEM_STEP + 8, &modules[i].sizes[j], sizeof(u32));
		}
		if (old)
			put(module + M_MEM + 12, &code_size, sizeof(code_size));
		put(table, &kallsyms, sizeof(kallsyms));
		put(kallsyms.symtab, syms, sizeof(syms));
		put(kallsyms.types, "Ut", 2);
	}
	put_u64(node, MODULES);

	/*
	 * The first module has a build-id behind another note, the second one has only the other
	 * note.
	 */
	for (size_t i = 0; i < ARRAY_SIZE(modules); i++) {
		u64 notes = MODULE(i) + 0x600, note = notes + N_NOTE(old);
		u64 names = notes + 0x400;

		put_u64(MODULE(i) + M_NOTES, notes);
		put(names, OTHER_NOTE, sizeof(OTHER_NOTE));
		put_u64(note + NOTE_NAME, names);
		put_u64(note + NOTE_SIZE, sizeof(module_note) - 1);
		put_u64(note + NOTE_ADDR, MODULE_CODE + 0x100);
		if (i)
			break;
		put(names + 0x20, ID_NOTE, sizeof(ID_NOTE));
		put(MODULE_NOTE, module_note, sizeof(module_note) - 1);
		put_u64(note + NOTE_STEP + NOTE_NAME, names + 0x20);
		put_u64(note + NOTE_STEP + NOTE_SIZE, sizeof(module_note) - 1);
		put_u64(note + NOTE_STEP + NOTE_ADDR, MODULE_NOTE);
	}

	/* The second module has no ORC tables. */
	put(MODULE(0) + M_ARCH, &nr_orcs, sizeof(nr_orcs));
	put_u64(MODULE(0) + M_ARCH + 8, MODULE_IPS);
	put_u64(MODULE(0) + M_ARCH + 16, MODULE_ORC);
	put(MODULE_CODE, &info[3], sizeof(info) - 3);
	put(MODULE_CODE + PAGE, &info[4], 0x100);
	put(MODULE_IPS, &info[1], NR_ORCS * 4);
	put(MODULE_ORC, &info[2], NR_ORCS * 6);
	make_tasks();
}
#else
#define M_LIST		0
#define M_NAME		0
#define M_KALLSYMS	0
#define WITH_MODULES	false

static void make_modules(bool old __maybe_unused) {}
#endif

static void make_contents(enum layout layout, bool old)
{
	make_tables();
	memcpy(&ram[INFO_GPA], info, sizeof(info));
	ram[INFO_GPA - PAGE] = 1;
	make_modules(old);
	make_kallsyms(layout);
	make_orc();
	for (size_t i = 0; i < 0x2000; i++)
		ram[KERNEL_GPA + i] ^= i < PAGE ? i : 0;
}

static void make_guest(enum layout layout, bool old)
{
	madvise(ram, RAM_SIZE, MADV_REMOVE);
	make_contents(layout, old);
}

/* Replace text in VMCOREINFO with other text of the same length. */
static void change_info(const char *from, const char *to)
{
	char *at = strstr((char *)&ram[INFO_GPA], from);

	memcpy(at, to, strlen(to));
}

/* Return the contents of file @name in the guest's directory; the caller must free them. */
static char *read_guest_file(const char *dir, const char *name, size_t *size)
{
	char path[PATH_MAX], *text = NULL;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%d/%s", dir, getpid(), name);
	file = fopen(path, "re");
	*size = 0;
	if (file) {
		text = calloc(1, 1 << 20);
		*size = text ? fread(text, 1, (1 << 20) - 1, file) : 0;
		fclose(file);
	}
	return text;
}

static bool has_text(const char *dir, const char *name, const char *expected)
{
	size_t size;
	char *text = read_guest_file(dir, name, &size);
	bool same = text && !strcmp(text, expected);

	if (!same)
		pr_debug("%s:\n%sand not\n%s", name, text ?: "", expected);
	free(text);
	return same;
}

/* Put the lines that proc/kallsyms must have for the kernel and its modules into @text. */
static void expect_kallsyms(char *text, bool with_modules)
{
	for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
		text += sprintf(text, "%016" PRIx64 " %c %s", symbol_addr(i), symbols[i].name[0],
				&symbols[i].name[1]);
		for (unsigned int j = 0; i == ARRAY_SIZE(symbols) - 1 && j < NR_LONG; j++)
			text += sprintf(text, LONG_TOKEN);
		text += sprintf(text, "\n");
	}
	if (with_modules)
		sprintf(text, "ffffffff9b250010 t first_f\t[first]\n"
			      "ffffffffc0010010 t second_f\t[second]\n");
}

static bool test_names(const char *dir, bool with_modules, bool old)
{
	char expected[4096];

	expect_kallsyms(expected, with_modules);
	return has_text(dir, "proc/kallsyms", expected) &&
	       (!with_modules ||
		has_text(dir, "proc/modules",
			 old ? "first 12288 0 - Live 0xffffffff9b250000\n"
			       "second 8192 0 - Live 0xffffffffc0010000\n" :
			       "first 16384 0 - Live 0xffffffff9b250000\n"
			       "second 8192 0 - Live 0xffffffffc0010000\n")) &&
	       has_text(dir, "proc/version", "Linux version 6.1.0-test (by its memory)\n");
}

/* Return true if the section has what the guest has from @start to @end. */
static bool has_section(const char *file, const Elf64_Shdr *shdr, u64 start, u64 end)
{
	if (shdr->sh_addr != start || shdr->sh_size != end - start)
		return false;
	for (u64 i = 0; i < shdr->sh_size; i++) {
		if ((u8)file[shdr->sh_offset + i] != ram[to_offset(start + i)])
			return false;
	}
	return true;
}

/* A section that the ELF file must have, other than the null section and the section names. */
struct expected_section {
	const char	*name;
	u64		start;
	u64		end;
};

static bool has_sections(const char *dir, const char *name, const struct expected_section *sections,
			 int nr)
{
	size_t size;
	char *file = read_guest_file(dir, name, &size);
	const Elf64_Ehdr *ehdr = (void *)file;
	bool good = false;

	if (file && size > sizeof(*ehdr) && !memcmp(ehdr->e_ident, ELFMAG, SELFMAG)) {
		const Elf64_Shdr *shdrs = (void *)&file[ehdr->e_shoff], *names = &shdrs[nr + 1];

		good = ehdr->e_shnum == nr + 2 && ehdr->e_shstrndx == nr + 1;
		for (int i = 0; good && i < nr; i++)
			good = has_section(file, &shdrs[i + 1], sections[i].start,
					   sections[i].end) &&
			       shdrs[i + 1].sh_name + strlen(sections[i].name) < names->sh_size &&
			       !strcmp(&file[names->sh_offset + shdrs[i + 1].sh_name],
				       sections[i].name);
	}
	free(file);
	return good;
}

/*
 * Return true if the file, which has the format of sysfs, has the expected build-id.  If @expected
 * is NULL, return true if there is no such file.
 */
static bool has_build_id(const char *dir, const char *name, const char *expected)
{
	char path[PATH_MAX], found[SBUILD_ID_SIZE] = "";
	struct build_id bid = {};

	scnprintf(path, sizeof(path), "%s/%d/sys/%s", dir, getpid(), name);
	if (!expected)
		return access(path, F_OK);

	return !sysfs__read_build_id(path, &bid) &&
	       build_id__snprintf(&bid, found, sizeof(found)) && !strcmp(found, expected);
}

/* Expect no section for what the guest lacks: boot code and, if @no_header is set, the header. */
static bool test_tables(const char *dir)
{
	const struct expected_section text = { ".text", KERNEL, KERNEL + 0x2000 };
	const struct expected_section ips = { ".orc_unwind_ip", ORC_IPS, ORC };
	const struct expected_section rows = { ".orc_unwind", ORC, ORC_END };
	const struct expected_section with_header[] = {
		text, { ".orc_header", ORC_HEADER, ORC_IPS }, ips, rows,
	};
	const struct expected_section without[] = { text, ips, rows };

	return has_sections(dir, "boot/vmlinux-6.1.0-test", no_header ? without : with_header,
			    no_header ? 3 : 4) &&
	       has_build_id(dir, "kernel/notes", KERNEL_ID);
}

#ifdef HAVE_LIBBPF_SUPPORT
static bool test_module_tables(const char *dir, bool old)
{
	const struct expected_section sections[] = {
		{ ".text", MODULE_CODE, MODULE_CODE + (old ? CODE_SIZE : modules[0].sizes[0]) },
		{ ".orc_unwind_ip", MODULE_IPS, MODULE_IPS + NR_ORCS * 4 },
		{ ".orc_unwind", MODULE_ORC, MODULE_ORC + NR_ORCS * 6 },
	};
	size_t size;
	char *none = read_guest_file(dir, "boot/modules/second", &size);

	free(none);
	return !none && has_sections(dir, "boot/modules/first", sections, 3) &&
	       has_build_id(dir, "module/first/notes/" ID_NOTE, MODULE_ID) &&
	       has_build_id(dir, "module/second/notes/" ID_NOTE, NULL);
}
#else
static bool test_module_tables(const char *dir __maybe_unused, bool old __maybe_unused)
{
	return true;
}
#endif

/* Write all files, as perf kvm record does if it records callchains. */
static enum guest_info find_all(const char *dir)
{
	return guest_info__write(getpid(), dir, true);
}

/*
 * Guests of arm64 have the same contents as those of x86-64, but page tables of arm64, and a large
 * page only if small ones have 4 KiB.  Descriptors of tables and pages have bit 1 set; those of
 * large pages, which arm64 calls blocks, have it clear.  All have attributes in other bits, which
 * perf must not take for a part of the address.
 */
#define ARM64_BLOCK	(BIT(0) | BIT(10) | GENMASK_ULL(52, 50) | BIT_ULL(54))
#define ARM64_PAGE	(ARM64_BLOCK | BIT(1))
#define ARM64_TABLE	(BIT(0) | BIT(1) | BIT_ULL(59))
#define ARM64_ADDRESS	GENMASK_ULL(47, 12)
/* All tables but the topmost one lie at or above this offset in RAM, 64 KiB apart. */
#define ARM64_TABLES	(1UL << 20)

/**
 * struct arm64_guest - a guest of arm64
 * @name:	what is special about it
 * @shift:	log2 of the size of its pages
 * @va_bits:	how many bits its tables translate
 * @txsz:	TCR_EL1_T1SZ in VMCOREINFO
 * @ram:	guest-physical address of its RAM
 * @break_it:	breaks it, if set
 */
struct arm64_guest {
	const char	*name;
	unsigned int	shift;
	unsigned int	va_bits;
	unsigned int	txsz;
	u64		ram;
	void		(*break_it)(void);
};

static u64 next_table;

/* Map a page, or a block of 2 MiB, at @gva. */
static void map_arm64(const struct arm64_guest *guest, u64 gva, bool block)
{
	unsigned int bits = guest->shift - 3, shift = guest->shift;
	u64 table = PGD_GPA, place, entry, index = gva & GENMASK_ULL(guest->va_bits - 1, 0);

	while (shift + bits < guest->va_bits)
		shift += bits;
	for (; shift > guest->shift + (block ? bits : 0); shift -= bits) {
		place = table + (index >> shift) * sizeof(entry);
		memcpy(&entry, &ram[place], sizeof(entry));
		if (!entry) {
			entry = (guest->ram + next_table) | ARM64_TABLE;
			next_table += 65536;
			memcpy(&ram[place], &entry, sizeof(entry));
		}
		table = (entry & ARM64_ADDRESS) - guest->ram;
		index &= GENMASK_ULL(shift - 1, 0);
	}
	put_entry(table, index >> shift,
		  (guest->ram + to_offset(gva)) | (block ? ARM64_BLOCK : ARM64_PAGE));
}

static void make_arm64(const struct arm64_guest *guest)
{
	u64 size = 1UL << guest->shift, voffset = KERNEL - KERNEL_GPA - guest->ram;
	char *text;

	page_bytes = size;
	make_guest(FROM_BASE, false);
	memset(&ram[PGD_GPA], 0, size);
	memset(&ram[ARM64_TABLES], 0, KERNEL_GPA - ARM64_TABLES);
	next_table = ARM64_TABLES;
	if (guest->shift == 12)
		map_arm64(guest, KERNEL, true);
	for (u64 gva = KERNEL; guest->shift != 12 && gva < SMALL; gva += size)
		map_arm64(guest, gva, false);
	for (u64 gva = SMALL; gva < SMALL + NR_SMALL * PAGE; gva += size)
		map_arm64(guest, gva, false);

	/* The last lines of VMCOREINFO are x86-64's: replace them with arm64's. */
	text = strstr((char *)&ram[INFO_GPA], "NUMBER(phys_base)");
	sprintf(text, "PAGESIZE=%" PRIu64 "\nNUMBER(VA_BITS)=%u\n"
		"NUMBER(kimage_voffset)=0x%" PRIx64 "\nNUMBER(TCR_EL1_T1SZ)=0x%x\n",
		size, guest->va_bits, voffset, guest->txsz);
	if (guest->break_it)
		guest->break_it();
	page_bytes = PAGE;
}

static void arm64_other_page_size(void)
{
	change_info("PAGESIZE=4096", "PAGESIZE=8192");
}

static void arm64_other_address_size(void)
{
	change_info("T1SZ)=0x10", "T1SZ)=0x0b");
}

/* VMCOREINFO has a wrong offset: the page tables are elsewhere. */
static void arm64_other_offset(void)
{
	change_info("voffset)=0xffffffff5ae0", "voffset)=0xffffffff5ad0");
}

static void arm64_no_table(void)
{
	put_entry(ARM64_TABLES, (KERNEL >> 30) & 511, ARM64_TABLES + 65536);
}

/* A block of 1 GiB takes the place of a table: it maps the page tables to other addresses. */
static void arm64_block(void)
{
	put_entry(ARM64_TABLES, (KERNEL >> 30) & 511, (1UL << 30) | ARM64_BLOCK);
}

static const struct arm64_guest arm64_guests[] = {
	{ "4 KiB, 39 bits",	12, 39, 64 - 39, 1UL << 30, NULL },
	{ "4 KiB, 48 bits",	12, 48, 64 - 48, 1UL << 30, NULL },
	{ "4 KiB, 52 bits",	12, 52, 64 - 52, 1UL << 30, NULL },
	{ "16 KiB, 47 bits",	14, 47, 64 - 47, 1UL << 30, NULL },
	{ "16 KiB, 48 bits",	14, 48, 64 - 48, 1UL << 30, NULL },
	{ "64 KiB, 48 bits",	16, 48, 64 - 48, 1UL << 30, NULL },
	{ "64 KiB, 52 bits",	16, 52, 64 - 52, 1UL << 30, NULL },
	{ "64 KiB, 52 bits on a CPU that has 48", 16, 52, 64 - 48, 1UL << 30, NULL },
	{ "RAM at 2 GiB",	12, 48, 64 - 48, 1UL << 31, NULL },
	{ "pages of 8 KiB",	12, 48, 64 - 48, 1UL << 30, arm64_other_page_size },
	{ "addresses of 53 bits", 12, 48, 64 - 48, 1UL << 30, arm64_other_address_size },
	{ "another offset",	12, 48, 64 - 48, 1UL << 30, arm64_other_offset },
	{ "no table",		12, 48, 64 - 48, 1UL << 30, arm64_no_table },
	{ "a block in place of a table", 12, 48, 64 - 48, 1UL << 30, arm64_block },
};

/* arm64's guests need no ORC tables, and their tasks are not looked for. */
static int test_arm64(const char *dir)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(arm64_guests); i++) {
		const struct arm64_guest *guest = &arm64_guests[i];

		make_arm64(guest);
		TEST_ASSERT_VAL(guest->name, find_all(dir) ==
				(guest->break_it ? GUEST_INFO_NONE : GUEST_INFO_NAMES));
		if (guest->break_it)
			continue;
		TEST_ASSERT_VAL("names", test_names(dir, WITH_MODULES, false));
		snprintf(path, sizeof(path), "%s/%d/boot/vmlinux-6.1.0-test", dir, getpid());
		TEST_ASSERT_VAL("no tables", access(path, F_OK));
		snprintf(path, sizeof(path), "%s/%d/tasks", dir, getpid());
		TEST_ASSERT_VAL("no tasks", access(path, F_OK));
	}
	return 0;
}

static int test_guest(const char *dir)
{
	for (int layout = FROM_PLACE; layout <= FROM_BASE_BUT_PERCPU; layout++) {
		for (int old = 0; old < 2; old++) {
			make_guest(layout, old);
			TEST_ASSERT_VAL("found", find_all(dir) == GUEST_INFO_TABLES);
			TEST_ASSERT_VAL("names", test_names(dir, WITH_MODULES, old));
			TEST_ASSERT_VAL("tables", test_tables(dir));
			TEST_ASSERT_VAL("modules' tables", test_module_tables(dir, old));
		}
	}
	return 0;
}

static void no_release(void)
{
	change_info("OSRELEASE=6.1.0-test", "OSRELEASE=6.1/../tes");
}

/* Write a release of @len characters, and leave all else as it was. */
static void put_release(size_t len)
{
	char *text = (char *)&ram[INFO_GPA];

	text += sprintf(text, "OSRELEASE=");
	memset(text, '6', len);
	sprintf(text + len, "%s", strchr(info, '\n'));
}

static void long_release(void)
{
	put_release(65);
}

static void long_name(void)
{
	put(NAMES, "\xff\x7f", 2);
}

static void no_page_tables(void)
{
	change_info("SYMBOL(swapper_pg_dir)=ffffffff9b001", "SYMBOL(swapper_pg_dir)=ffffffff9b002");
}

static void page_tables_without_end(void)
{
	put_entry(PGD_GPA, 511, PGD_GPA | PRESENT);
}

static void page_tables_elsewhere(void)
{
	put_entry(PMD_GPA, (SMALL >> 21) & 511, (RAM_SIZE << 2) | PRESENT);
}

static void no_symbols(void)
{
	put(NUM_SYMS, "\0\0\0\0", 4);
}

static void too_many_symbols(void)
{
	put(NUM_SYMS, "\xff\xff\xff\xff", 4);
}

static void more_symbols_than_names(void)
{
	put(NUM_SYMS, "\0\0\x20\0", 4);
}

static void other_stext(void)
{
	change_info("SYMBOL(_stext)=ffffffff9b0", "SYMBOL(_stext)=ffffffff9b1");
}

static void put_token(char token)
{
	u16 index;

	for (size_t i = 0; i < sizeof(index); i++)
		((u8 *)&index)[i] = ram[to_offset(TOKEN_INDEX + 2 * 'd' + i)];
	put(TOKEN_TABLE + index, &token, 1);
}

static void control_character(void)
{
	put_token('\x1b');
}

static void upper_half_character(void)
{
	put_token('\x9b');
}

static void name_without_end(void)
{
	/* Overwrite all tokens: none of them ends before the index of tokens. */
	for (u64 gva = TOKEN_TABLE; gva < TOKEN_INDEX; gva++)
		put(gva, "x", 1);
}

static void no_tables(void)
{
	change_info("SYMBOL(kallsyms_names)", "SYMBOL(kallsyms-names)");
}

/* Ways to break a guest so that nothing is found. */
static const struct {
	const char	*name;
	void		(*break_it)(void);
} broken[] = {
	{ "a release that is a path",		no_release },
	{ "a release that is too long",		long_release },
	{ "no page tables",			no_page_tables },
	{ "page tables without end",		page_tables_without_end },
	{ "page tables beyond RAM",		page_tables_elsewhere },
	{ "no symbols",				no_symbols },
	{ "too many symbols",			too_many_symbols },
	{ "more symbols than names",		more_symbols_than_names },
	{ "_stext elsewhere",			other_stext },
	{ "a control character",		control_character },
	{ "a control character of 8 bits",	upper_half_character },
	{ "a name without end",			name_without_end },
	{ "a name that is too long",		long_name },
	{ "no addresses of kallsyms",		no_tables },
};

static int test_broken(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		make_guest(FROM_BASE, false);
		broken[i].break_it();
		TEST_ASSERT_VAL(broken[i].name, find_all(dir) == GUEST_INFO_NONE);
	}
	return 0;
}

static int test_release(const char *dir)
{
	make_guest(FROM_BASE, false);
	put_release(64);
	TEST_ASSERT_VAL("a release of 64 characters", find_all(dir) == GUEST_INFO_TABLES);
	return 0;
}

static int test_broken_tables(const char *dir)
{
	char path[PATH_MAX];

	make_guest(FROM_BASE, false);
	/* Give _etext the address of _text: the kernel has no code. */
	put(OFFSETS + 4 * sizeof(s32), "\0\0\0\0", 4);
	TEST_ASSERT_VAL("no code", find_all(dir) == GUEST_INFO_NAMES);
	snprintf(path, sizeof(path), "%s/%d/boot/vmlinux-6.1.0-test", dir, getpid());
	TEST_ASSERT_VAL("a file without tables", access(path, F_OK));
	return 0;
}

static int test_no_header(const char *dir)
{
	no_header = true;
	make_guest(FROM_BASE, false);
	TEST_ASSERT_VAL("no header", find_all(dir) == GUEST_INFO_TABLES);
	TEST_ASSERT_VAL("tables", test_tables(dir));
	no_header = false;
	return 0;
}

/*
 * Only the page on which the first module's structure begins lies above the hole.  All other pages
 * would also fit a layout of RAM without a hole.
 */
static int test_hole(const char *dir)
{
	high = true;
	make_guest(FROM_PLACE, false);
	TEST_ASSERT_VAL("found", find_all(dir) == GUEST_INFO_TABLES);
	TEST_ASSERT_VAL("names", test_names(dir, WITH_MODULES, false));
	high = false;
	return 0;
}

/* An earlier kernel has left its VMCOREINFO, but not its page tables. */
static int test_copies(const char *dir)
{
	size_t size;
	char *none;

	make_guest(FROM_PLACE, false);
	memcpy(&ram[INFO_GPA - 8 * PAGE], info, sizeof(info));
	ram[INFO_GPA - 8 * PAGE + sizeof("OSRELEASE=") - 1] = '7';
	memcpy(strstr((char *)&ram[INFO_GPA - 8 * PAGE], "9b001000"), "9b0ff000", 8);
	TEST_ASSERT_VAL("found", guest_info__write(getpid(), dir, false) == GUEST_INFO_NAMES);
	TEST_ASSERT_VAL("names", test_names(dir, WITH_MODULES, false));
	none = read_guest_file(dir, "boot/modules/first", &size);
	free(none);
	TEST_ASSERT_VAL("tables that nobody wants", !none);
	return 0;
}

static int nr_resident(void)
{
	unsigned char *resident = calloc(1, RAM_SIZE / PAGE);
	int nr = 0;

	if (resident && !mincore(ram, RAM_SIZE, resident)) {
		for (size_t i = 0; i < RAM_SIZE / PAGE; i++)
			nr += resident[i] & 1;
	}
	free(resident);
	return nr;
}

/* Pages that the guest never touched are not allocated when perf reads the guest. */
static int test_holes(const char *dir)
{
	int before;
	u64 page;

	TEST_ASSERT_VAL("no holes", !madvise(ram, RAM_SIZE, MADV_REMOVE));
	make_contents(FROM_BASE, false);
	before = nr_resident();
	TEST_ASSERT_VAL("all is there", before && before < (int)(LOW_SIZE / PAGE / 2));
	TEST_ASSERT_VAL("found", find_all(dir) == GUEST_INFO_TABLES);
	TEST_ASSERT_VAL("pages", nr_resident() == before);

	/* The page with the token index's end and the first symbol's address was never there. */
	page = to_offset(OFFSETS) & ~(PAGE - 1);
	TEST_ASSERT_VAL("no hole", !madvise(&ram[page], PAGE, MADV_REMOVE));
	before = nr_resident();
	TEST_ASSERT_VAL("missing", find_all(dir) == GUEST_INFO_NONE);
	TEST_ASSERT_VAL("pages", nr_resident() == before);
	return 0;
}

/* Do not use this host's sysctl. */
#define NO_SYSCTL	"/nowhere"

static bool write_text(const char *path, const char *text)
{
	FILE *file;

	unlink(path);
	file = text ? fopen(path, "we") : NULL;
	return !text || (file && fputs(text, file) >= 0 && !fclose(file));
}

#ifdef HAVE_LIBBPF_SUPPORT
static void list_without_end(void)
{
	put_u64(MODULE(1) + M_LIST, MODULE(0) + M_LIST);
}

static void list_into_nothing(void)
{
	put_u64(MODULE(1) + M_LIST, 8);
}

static void escape_in_name(void)
{
	put(MODULE(1) + M_NAME, "\x1b[2J", 4);
}

static void space_in_name(void)
{
	put(MODULE(1) + M_NAME, "a b", 4);
}

static void path_in_name(void)
{
	put(MODULE(1) + M_NAME, "a/b", 4);
}

static void no_btf(void)
{
	put(BTF, "\0\0\0\0", 4);
}

static void endless_btf(void)
{
	endless = true;
	make_guest(FROM_BASE, false);
	endless = false;
}

static void too_many_module_symbols(void)
{
	put(MODULE(1) + 0x400 + 8, "\xff\xff\xff\xff", 4);
}

static void escape_as_type(void)
{
	put(TYPES, "U\x1b", 2);
}

static void upper_half_in_name(void)
{
	put(MODULE(1) + M_NAME, "\x9bK2", 4);
}

static void escape_in_symbol(void)
{
	put(STRINGS + 16, "\x1b", 1);
}

static const struct {
	const char	*name;
	void		(*break_it)(void);
} broken_modules[] = {
	{ "a list without end",			list_without_end },
	{ "a list into nothing",		list_into_nothing },
	{ "an escape sequence as name",		escape_in_name },
	{ "a space in a name",			space_in_name },
	{ "a path as name",			path_in_name },
	{ "no BTF",				no_btf },
	{ "BTF without end",			endless_btf },
	{ "too many symbols of a module",	too_many_module_symbols },
	{ "an escape sequence as symbol",	escape_in_symbol },
	{ "an escape sequence as type",		escape_as_type },
	{ "a control character of 8 bits",	upper_half_in_name },
};

/*
 * Broken modules do not keep the kernel's symbols from being written, and add no unsafe characters.
 */
static int test_broken_modules(const char *dir)
{
	char expected[4096], *kallsyms;
	bool good;
	size_t size;

	for (size_t i = 0; i < ARRAY_SIZE(broken_modules); i++) {
		make_guest(FROM_BASE, false);
		broken_modules[i].break_it();
		TEST_ASSERT_VAL(broken_modules[i].name,
				guest_info__write(getpid(), dir, false) == GUEST_INFO_NAMES);
		expect_kallsyms(expected, false);
		kallsyms = read_guest_file(dir, "proc/kallsyms", &size);
		good = kallsyms && !strncmp(kallsyms, expected, strlen(expected)) &&
		       !strpbrk(kallsyms, "\x1b\x9b") && !strstr(kallsyms, "[a b]");
		free(kallsyms);
		TEST_ASSERT_VAL(broken_modules[i].name, good);
	}
	return 0;
}

/* The lines for all tasks, by stack. */
static const char all_tasks[] =
	"0 ffffc90000000000 0 0 0 swapper/1\n"
	"0 ffffc90000008000 0 2 2 kthreadd\n"
	"0 ffffc90000010000 900000 7 9 worker\n"
	"0 ffffc90000020000 900000 7 7 a name of 15 ch\n"
	"0 ffffffff9b804000 0 0 0 swapper/0\n";

static void escape_in_comm(void)
{
	put(TASK(3) + T_COMM, "\x1bthr\x9b\n", 6);
}

static void tasks_without_end(void)
{
	put_u64(TASK(3) + T_TASKS, TASK(1) + T_TASKS);
}

static void tasks_into_nothing(void)
{
	put_u64(TASK(3) + T_TASKS, 8);
}

static void threads_without_end(void)
{
	put_u64(TASK(2) + T_THREADS, TASK(1) + T_THREADS);
}

static void threads_into_nothing(void)
{
	put_u64(TASK(2) + T_THREADS, 8);
}

static void unknown_tasks(void)
{
	no_tasks = true;
	make_guest(FROM_BASE, false);
	no_tasks = false;
}

static void long_comm(void)
{
	put(TASK(3) + T_COMM, "sixteen letters!", 16);
}

static void no_comm(void)
{
	put(TASK(3) + T_COMM, "", 1);
}

static void no_stack(void)
{
	put_u64(TASK(4) + T_STACK, 0);
}

/*
 * As in Linux, the first CPU's idle task is the first one of the list.  A CPU beyond nr_cpu_ids has
 * an idle task, too, which is also in the list.  perf must not write either of them twice.
 */
static void first_idle_task(void)
{
	put_u64(IDLE_THREADS, TASK(0));
	put_u64(CPU_OFFSETS + 16, 0x200);
	put_u64(IDLE_THREADS + 0x200, TASK(3));
}

/* The last process's list of threads never comes back to its head. */
static void last_threads_without_end(void)
{
	put_u64(TASK(3) + T_THREADS, TASK(2) + T_THREADS);
	put_u64(TASK(2) + T_THREADS, TASK(2) + T_THREADS);
}

/* A field that would lie across the end of what is read. */
static void field_at_the_end(void)
{
	far_field = true;
	make_guest(FROM_BASE, false);
	far_field = false;
}

static void too_many_cpus(void)
{
	put(NR_CPUS_AT, "\xff\xff\xff\xff", 4);
}

/* Copy @all to @text with @to in place of @from; copy nothing if @from is NULL. */
static void change_text(char *text, size_t size, const char *all, const char *from, const char *to)
{
	const char *at = from ? strstr(all, from) : NULL;

	*text = 0;
	if (at)
		scnprintf(text, size, "%.*s%s%s", (int)(at - all), all, to, at + strlen(from));
}

static void nothing_broken(void) {}

static const struct {
	const char	*name;
	void		(*break_it)(void);
	const char	*from;
	const char	*to;
} broken_tasks[] = {
	{ "tasks",			nothing_broken,		"", "" },
	{ "an escape sequence as comm",	escape_in_comm,		"kthreadd", "?thr??dd" },
	{ "more CPUs than there are",	too_many_cpus,		"", "" },
	{ "a comm without end",		long_comm,		"kthreadd", "sixteen letters!" },
	{ "no comm",			no_comm,		"kthreadd", "?" },
	{ "a task without stack",	no_stack,
	  "0 ffffc90000000000 0 0 0 swapper/1\n", "" },
	{ "idle tasks of other CPUs",	first_idle_task,	"", "" },
	{ "the last one's threads without end", last_threads_without_end, NULL, NULL },
	{ "a field at the end",		field_at_the_end,	NULL, NULL },
	{ "tasks without end",		tasks_without_end, NULL, NULL },
	{ "tasks into nothing",		tasks_into_nothing, NULL, NULL },
	{ "threads without end",	threads_without_end, NULL, NULL },
	{ "threads into nothing",	threads_into_nothing, NULL, NULL },
	{ "tasks that nobody knows",	unknown_tasks, NULL, NULL },
};

/* Link a third module behind the others: a copy of the second one with another name or address. */
static void add_module(const char *name, u64 base, u32 state)
{
	for (unsigned int i = 0; i < 0x500; i++)
		ram[to_offset(MODULE(2) + i)] = ram[to_offset(MODULE(1) + i)];
	put_u64(MODULE(1) + M_LIST, MODULE(2) + M_LIST);
	put_u64(MODULE(2) + M_KALLSYMS, MODULE(2) + M_CORE_KALLSYMS);
	put(MODULE(2) + M_NAME, name, strlen(name) + 1);
	put_u64(MODULE(2) + M_MEM, base);
	put_u32(MODULE(2), state);
}

static const struct {
	const char	*name;
	const char	*module;
	u64		base;
	u32		state;
	bool		is_new;
	bool		starts;		/* its init runs at the first look that finds it */
} later_modules[] = {
	{ "a module",			"third", 0xffffffffc0020000, 0, true, false },
	{ "one right behind another",	"third", 0xffffffffc0012000, 0, true, false },
	{ "one below the others",	"third", 0xffffffffbff00000, 0, true, false },
	{ "one right below another",	"third", 0xffffffffc000e000, 0, true, false },
	{ "one where another's data could be", "third", MODULE_CODE + 0x3000, 0, true, false },
	{ "one whose start is not over", "third", 0xffffffffc0020000, 0, true, true },
	{ "one that is being loaded",	"third", 0xffffffffc0020000, 1, false, false },
	{ "one that lies across another", "third", 0xffffffffc000e001, 0, false, false },
	{ "one that was there before",	"second", 0xffffffffc0020000, 0, false, false },
	{ "one where another one was",	"third", 0xffffffffc0011fff, 0, false, false },
};

/* Modules that are loaded after the first look. */
static int test_later_modules(const char *dir)
{
	char path[PATH_MAX], expected[256];

	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	mkdir(path, 0700);
	for (size_t i = 0; i < ARRAY_SIZE(later_modules); i++) {
		struct guest_kernel *kernel;
		const char *why_not;
		FILE *list, *kallsyms;
		bool good;

		make_guest(FROM_BASE, false);
		kernel = guest_kernel__find(getpid(), NULL, &why_not);
		TEST_ASSERT_VAL("found", kernel);
		snprintf(path, sizeof(path), "%s/%d/modules", dir, getpid());
		list = fopen(path, "we");
		snprintf(path, sizeof(path), "%s/%d/kallsyms", dir, getpid());
		kallsyms = fopen(path, "we");
		good = list && kallsyms &&
		       !guest_modules__write(kernel, list, kallsyms, NULL, false);
		guest_kernel__free_symbols(kernel);
		if (good) {
			rewind(list);
			rewind(kallsyms);
		}
		good = good && !ftruncate(fileno(list), 0) && !ftruncate(fileno(kallsyms), 0);
		add_module(later_modules[i].module, later_modules[i].base, later_modules[i].state);
		/* It has other symbols during its init. */
		if (later_modules[i].starts)
			put_u64(MODULE(2) + M_KALLSYMS, MODULE(0) + M_CORE_KALLSYMS);
		for (unsigned int j = 0; j < 2; j++) {
			guest_memory__refresh(kernel->mem);
			good = good && !guest_modules__write(kernel, list, kallsyms, NULL, false);
			put_u64(MODULE(2) + M_KALLSYMS, MODULE(2) + M_CORE_KALLSYMS);
		}
		guest_kernel__delete(kernel);
		if (list)
			fclose(list);
		if (kallsyms)
			fclose(kallsyms);
		*expected = 0;
		if (later_modules[i].is_new)
			scnprintf(expected, sizeof(expected),
				  "third 8192 0 - Live 0x%016" PRIx64 "\n", later_modules[i].base);
		TEST_ASSERT_VAL(later_modules[i].name, good);
		TEST_ASSERT_VAL(later_modules[i].name, has_text(dir, "modules", expected));
		TEST_ASSERT_VAL(later_modules[i].name,
				has_text(dir, "kallsyms", later_modules[i].is_new ?
					 "ffffffffc0010010 t second_f\t[third]\n" : ""));
	}
	return 0;
}

static int test_tasks(const char *dir)
{
	char expected[2 * sizeof(all_tasks)];

	for (size_t i = 0; i < ARRAY_SIZE(broken_tasks); i++) {
		make_guest(FROM_BASE, false);
		broken_tasks[i].break_it();
		change_text(expected, sizeof(expected), all_tasks, broken_tasks[i].from,
			    broken_tasks[i].to);
		TEST_ASSERT_VAL(broken_tasks[i].name, find_all(dir) == GUEST_INFO_TABLES);
		TEST_ASSERT_VAL(broken_tasks[i].name, has_text(dir, "tasks", expected));
	}
	return 0;
}

/* The lines for the files that the process runs. */
#define BUILD_ID_TEXT	"0102030405060708090a0b0c0d0e0f1011121314"
#define SET_TEXT	"0 900000 7\n"
#define PROGRAM_TEXT	"401000 403000 1000 12f:f0000 1000 " BUILD_ID_TEXT " /bin/a program\n"
#define LIBRARY_TEXT	"7f0000001000 7f0000005000 0 12f:f0001 1001 - /usr/lib/libtest.so\n"

static const char all_maps[] = SET_TEXT PROGRAM_TEXT LIBRARY_TEXT;

static void no_tree_of_vmas(void)
{
	no_tree = true;
	make_guest(FROM_BASE, false);
	no_tree = false;
}

static void torn_vma(void)
{
	put_u64(VMA(1) + V_END, PROGRAM + 2 * PAGE);
}

static void moved_vma(void)
{
	put_u64(VMA(3) + V_START, LIBRARY - PAGE);
}

static void data_only(void)
{
	put_u64(VMA(1) + V_FLAGS, 3);
}

static void escape_in_path(void)
{
	put(NAME_OF(A_PROGRAM), "\x1b../../\x9b\n", 9);
}

static void put_name_len(u32 len)
{
	put(DENTRY(BIN) + D_NAME + QSTR_LEN, &len, sizeof(len));
}

static void no_name(void)
{
	put_name_len(0);
}

static void long_component(void)
{
	put_name_len(256);
}

static void huge_name(void)
{
	put_name_len(~0U);
}

static void memfd(void)
{
	put_u64(DENTRY(A_PROGRAM) + D_PARENT, DENTRY(A_PROGRAM));
}

static void path_without_end(void)
{
	put_u64(DENTRY(LIB) + D_PARENT, DENTRY(LIBTEST));
}

static void mounts_without_end(void)
{
	put_u64(MOUNT(1) + MNT_PARENT, MOUNT(1) + 0x40);
	put_u64(MOUNT(2) + MNT_PARENT, MOUNT(1));
	put_u64(MOUNT(2) + MNT, DENTRY(USR));
	put_u64(MOUNT(2) + MNT_POINT, DENTRY(USR_ROOT));
}

static void no_inode(void)
{
	put_u64(FILE_OF(0) + F_INODE, 8);
}

static void no_file_system(void)
{
	put_u64(INODE(0) + I_SB, 8);
}

static void deleted_file(void)
{
	put_u64(DENTRY(A_PROGRAM) + D_HASH + 8, 0);
}

static void no_users(void)
{
	put_u32(MM + MM_USERS, 0);
}

static void path_upwards(void)
{
	put(NAME_OF(BIN), "..", 2);
	put_name_len(2);
}

static void path_of_dots(void)
{
	put(NAME_OF(BIN), "...", 3);
}

/* Make directories that contain each other, with names as long as they can be. */
static void long_path(void)
{
	u32 len = 255;

	put_u64(DENTRY(LIB) + D_PARENT, DENTRY(LIBTEST));
	put(DENTRY(LIB) + D_NAME + QSTR_LEN, &len, sizeof(len));
	put(DENTRY(LIBTEST) + D_NAME + QSTR_LEN, &len, sizeof(len));
}

static void far_vma_field(void)
{
	vma_file = 16000;
	make_guest(FROM_BASE, false);
	vma_file = 0;
}

static void many_slots(void)
{
	nr_slots = 1000;
	make_guest(FROM_BASE, false);
	nr_slots = 16;
}

static void no_slots(void)
{
	nr_slots = 0;
	make_guest(FROM_BASE, false);
	nr_slots = 16;
}

static void root_as_file(void)
{
	put_u64(FILE_OF(0) + F_PATH + 8, DENTRY(ROOT));
}

static void tree_into_itself(void)
{
	put_u64(NODE(0) + ARANGE_SLOTS, NODE(0) | ARANGE);
}

static void unknown_node(void)
{
	put_u64(NODE(0) + ARANGE_SLOTS, NODE(1) | (4 << 3));
}

static void tree_into_nothing(void)
{
	put_u64(NODE(0) + ARANGE_SLOTS, 0x1000 | LEAF);
}

static void pivots_backwards(void)
{
	put_u64(NODE(1) + NODE_PIVOTS + 2 * 8, PROGRAM);
}

static void pivot_beyond(void)
{
	put_u64(NODE(1) + NODE_PIVOTS + 2 * 8, LIBRARY);
}

/* A full leaf has no pivot for its last slot. */
static void full_leaf(void)
{
	const u64 gap = 0x7f0000000000UL;

	for (unsigned int i = 0; i < 15; i++)
		put_slot(NODE(2), LEAF_SLOTS, i, 0, i < 14 ? gap + i : vmas[3].start - 1);
	put_u64(NODE(0) + NODE_PIVOTS + 8, vmas[3].end - 1);
	put_u64(NODE(2) + LEAF_SLOTS + 15 * 8, VMA(3));
}

static void change_program(unsigned int offset, u8 byte)
{
	ram[PROGRAM_GPA + offset] = byte;
}

static void no_elf(void)
{
	change_program(0, 0);
}

static void elf_of_32_bits(void)
{
	change_program(EI_CLASS, ELFCLASS32);
}

static void headers_behind_page(void)
{
	change_program(offsetof(Elf64_Ehdr, e_phoff) + 3, 0x10);
}

static void many_headers(void)
{
	change_program(offsetof(Elf64_Ehdr, e_phnum), 0x80);
	change_program(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr), 0);
}

static void notes_behind_page(void)
{
	change_program(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) +
		       offsetof(Elf64_Phdr, p_filesz) + 1, 0xff);
}

static void notes_far_away(void)
{
	change_program(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) +
		       offsetof(Elf64_Phdr, p_offset) + 3, 0x10);
}

static void other_owner(void)
{
	change_program(0x214 + sizeof(Elf64_Nhdr), 'X');
}

static void long_owner(void)
{
	change_program(0x214 + 1, 0x10);
}

static void short_headers(void)
{
	change_program(offsetof(Elf64_Ehdr, e_phentsize), 32);
}

static void cut_notes(void)
{
	change_program(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) +
		       offsetof(Elf64_Phdr, p_filesz), 20 + 16 + 19);
}

static void cut_name(void)
{
	change_program(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) +
		       offsetof(Elf64_Phdr, p_filesz), 20 + 12);
}

static void long_build_id(void)
{
	change_program(0x218, 21);
	change_program(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) +
		       offsetof(Elf64_Phdr, p_filesz), 20 + 16 + 24);
}

/* Change the entry of the page cache for the first page of the program. */
static void put_page(u64 entry)
{
	put_u64(CACHE(1) + C_SLOTS, entry);
}

static void page_not_present(void)
{
	put_page(PAGE_OF(PROGRAM_GPA + PAGE));
}

static void page_without_node(void)
{
	put_u64(MAPPING(0) + M_CACHE, PAGE_OF(PROGRAM_GPA));
}

static void other_page_size(void)
{
	page_size = 56;
	make_guest(FROM_BASE, false);
	page_size = 64;
}

static void no_page_size(void)
{
	page_size = 0;
	make_guest(FROM_BASE, false);
	page_size = 64;
}

static void no_mapping(void)
{
	put_u64(FILE_OF(0) + F_MAPPING, 8);
}

static void no_cache(void)
{
	put_u64(MAPPING(0) + M_CACHE, 0);
}

static void cache_in_itself(void)
{
	put_page(CACHE(0) | 2);
}

static void cache_elsewhere(void)
{
	put_page(0xffffffff00001002);
}

/* Bit 0 says that the page is swapped out.  The other bits lead to its struct page all the same. */
static void swapped_page(void)
{
	put_page(PAGE_OF(PROGRAM_GPA) | 1);
}

static void part_of_page(void)
{
	put_page(PAGE_OF(PROGRAM_GPA) + 8);
}

static void page_below_all(void)
{
	put_page(PAGE_OF(0) - page_size);
}

static void page_behind_ram(void)
{
	put_page(PAGE_OF(HIGH_GPA + LOW_SIZE));
}

static void page_behind_all(void)
{
	put_page(~7UL);
}

/* The number of the page is so large that its address would wrap to the program's page. */
static void page_far_away(void)
{
	put_u64(VMEMMAP_AT, 0);
	put_page(((1UL << 52) + PROGRAM_GPA / PAGE) * page_size);
}

static const struct {
	const char	*name;
	void		(*break_it)(void);
	const char	*from;
	const char	*to;
} broken_maps[] = {
	{ "files",			nothing_broken,		"", "" },
	{ "Linux 6.0",			no_tree_of_vmas,	NULL, NULL },
	{ "a VMA that is cut",		torn_vma,		NULL, NULL },
	{ "a VMA that grew downwards",	moved_vma,		NULL, NULL },
	{ "nothing to execute",		data_only,		PROGRAM_TEXT, "" },
	{ "escape sequences in a path",	escape_in_path,		"a program", "?..?..???" },
	{ "no name",			no_name,		PROGRAM_TEXT, "" },
	{ "a name that is too long",	long_component,		PROGRAM_TEXT, "" },
	{ "a name of 4 GiB",		huge_name,		PROGRAM_TEXT, "" },
	{ "a file without a directory",	memfd,			PROGRAM_TEXT, "" },
	{ "a path without end",		path_without_end,	LIBRARY_TEXT, "" },
	{ "mounts without end",		mounts_without_end,	LIBRARY_TEXT, "" },
	{ "a file that was deleted",	deleted_file,
	  "/bin/a program\n", "/bin/a program (deleted)\n" },
	{ "a process that exits",	no_users,		NULL, NULL },
	{ "a path that leads upwards",	path_upwards,		PROGRAM_TEXT, "" },
	{ "a name of three dots",	path_of_dots,		"/bin/", "/.../" },
	{ "a path that is too long",	long_path,		LIBRARY_TEXT, "" },
	{ "a VMA's field far away",	far_vma_field,		NULL, NULL },
	{ "a node of 1000 slots",	many_slots,		NULL, NULL },
	{ "a node without slots",	no_slots,		NULL, NULL },
	{ "no inode",			no_inode,		PROGRAM_TEXT, "" },
	{ "no file system",		no_file_system,		PROGRAM_TEXT, "" },
	{ "the root as a file",		root_as_file,		PROGRAM_TEXT, "" },
	{ "a tree that has itself",	tree_into_itself,	NULL, NULL },
	{ "a node of an unknown kind",	unknown_node,		NULL, NULL },
	{ "a node that is nowhere",	tree_into_nothing,	NULL, NULL },
	{ "a pivot before the last",	pivots_backwards,	NULL, NULL },
	{ "a pivot behind the node",	pivot_beyond,		NULL, NULL },
	{ "a leaf that is full",	full_leaf,		"", "" },
	{ "no ELF file",		no_elf,			BUILD_ID_TEXT, "-" },
	{ "an ELF file of 32 bits",	elf_of_32_bits,		BUILD_ID_TEXT, "-" },
	{ "program headers elsewhere",	headers_behind_page,	BUILD_ID_TEXT, "-" },
	{ "too many program headers",	many_headers,		BUILD_ID_TEXT, "-" },
	{ "notes elsewhere",		notes_behind_page,	BUILD_ID_TEXT, "-" },
	{ "notes far away",		notes_far_away,		BUILD_ID_TEXT, "-" },
	{ "a note of another owner",	other_owner,		BUILD_ID_TEXT, "-" },
	{ "a note's owner that is cut",	long_owner,		BUILD_ID_TEXT, "-" },
	{ "short program headers",	short_headers,		BUILD_ID_TEXT, "-" },
	{ "a note that is cut",		cut_notes,		BUILD_ID_TEXT, "-" },
	{ "a note without its name",	cut_name,		BUILD_ID_TEXT, "-" },
	{ "a build-id that is too long", long_build_id,		BUILD_ID_TEXT, "-" },
	{ "a page that is not there",	page_not_present,	BUILD_ID_TEXT, "-" },
	{ "a file of one page",		page_without_node,	"", "" },
	{ "a struct page of 56 bytes",	other_page_size,	"", "" },
	{ "a struct page of none",	no_page_size,		NULL, NULL },
	{ "no page cache",		no_mapping,		BUILD_ID_TEXT, "-" },
	{ "an empty page cache",	no_cache,		BUILD_ID_TEXT, "-" },
	{ "a page cache in itself",	cache_in_itself,	BUILD_ID_TEXT, "-" },
	{ "a page cache elsewhere",	cache_elsewhere,	BUILD_ID_TEXT, "-" },
	{ "a page that is swapped out",	swapped_page,		BUILD_ID_TEXT, "-" },
	{ "a part of a struct page",	part_of_page,		BUILD_ID_TEXT, "-" },
	{ "a page below all",		page_below_all,		BUILD_ID_TEXT, "-" },
	{ "a page behind RAM",		page_behind_ram,	BUILD_ID_TEXT, "-" },
	{ "a page behind all",		page_behind_all,	BUILD_ID_TEXT, "-" },
	{ "a page that is far away",	page_far_away,		BUILD_ID_TEXT, "-" },
};

static int test_maps(const char *dir)
{
	char expected[2 * sizeof(all_maps)];

	for (size_t i = 0; i < ARRAY_SIZE(broken_maps); i++) {
		make_guest(FROM_BASE, false);
		broken_maps[i].break_it();
		change_text(expected, sizeof(expected), all_maps, broken_maps[i].from,
			    broken_maps[i].to);
		TEST_ASSERT_VAL(broken_maps[i].name, find_all(dir) == GUEST_INFO_TABLES);
		TEST_ASSERT_VAL(broken_maps[i].name, has_text(dir, "maps", expected));
		TEST_ASSERT_VAL(broken_maps[i].name, has_text(dir, "tasks", all_tasks));
	}
	return 0;
}

/*
 * Look at the tasks.  Return true if that succeeds, and if guest_tasks__are_unsettled() then
 * returns @again.
 */
static bool look(struct guest_tasks *found, u64 time, bool again)
{
	return guest_tasks__update(found, time) && guest_tasks__are_unsettled(found) == again;
}

/* A look writes what has changed, and only that. */
static int test_second_look(const char *dir)
{
	struct guest_kernel *kernel;
	struct guest_tasks *found;
	const char *why_not;
	char path[PATH_MAX];
	FILE *file, *maps;
	bool good;

	make_guest(FROM_BASE, false);
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	TEST_ASSERT_VAL("found", kernel);
	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%d/looks", dir, getpid());
	file = fopen(path, "we");
	snprintf(path, sizeof(path), "%s/%d/files", dir, getpid());
	maps = fopen(path, "we");
	found = file && maps ? guest_tasks__new(kernel, file, maps) : NULL;
	good = found && look(found, 1, true);
	if (good)
		rewind(file);
	good = good && !ftruncate(fileno(file), 0) && look(found, 2, false);
	/* Change the name of a task. */
	put(TASK(1) + T_COMM, "renamed", 8);
	good = good && look(found, 3, false);
	/*
	 * Make the library not executable.  This is found once the number of executable pages
	 * changes.
	 */
	put_u64(VMA(3) + V_FLAGS, 1);
	good = good && look(found, 3, false);
	put_u64(MM + MM_EXEC_VM, 3);
	good = good && look(found, 4, false);
	/*
	 * The number of executable pages changes, but not the files.  Then make the library
	 * executable again; while the mm has no users, no file is read.
	 */
	put_u64(MM + MM_EXEC_VM, 5);
	good = good && look(found, 4, false);
	put_u64(VMA(3) + V_FLAGS, 5);
	put_u64(MM + MM_EXEC_VM, 7);
	put_u32(MM + MM_USERS, 0);
	good = good && look(found, 4, true);
	put_u32(MM + MM_USERS, 1);
	good = good && look(found, 4, false);
	put_u64(MM + MM_PGD, PAGE_OFFSET + 0x54321000);
	good = good && look(found, 4, true);
	put_u64(TASK(1) + T_TASKS, TASK(0) + T_TASKS);
	good = good && look(found, 5, false);
	put_u64(TASK(4) + T_STACK, 0xffffc90000018000);
	good = good && look(found, 6, false);
	guest_tasks__delete(found);
	guest_kernel__delete(kernel);
	if (file)
		fclose(file);
	if (maps)
		fclose(maps);
	TEST_ASSERT_VAL("all looks", good);
	TEST_ASSERT_VAL("which files", has_text(dir, "files",
		"1 900000 7\n" PROGRAM_TEXT LIBRARY_TEXT
		"4 900000 7\n" PROGRAM_TEXT
		"4 900000 7\n" PROGRAM_TEXT LIBRARY_TEXT
		"4 54321000 7\n" PROGRAM_TEXT LIBRARY_TEXT));
	TEST_ASSERT_VAL("what has changed", has_text(dir, "looks",
		"3 ffffc90000020000 900000 7 7 renamed\n"
		"4 ffffc90000010000 54321000 7 9 worker\n"
		"4 ffffc90000020000 54321000 7 7 renamed\n"
		"5 ffffc90000008000\n"
		"6 ffffc90000000000\n"
		"6 ffffc90000018000 0 0 0 swapper/1\n"));
	return 0;
}

/* The entry for the build-id of the first module. */
#define ID_ENTRY	(MODULE(0) + 0x600 + N_NOTE(false) + NOTE_STEP)

static void no_note(void)
{
	put_u64(MODULE(0) + M_NOTES, 0);
}

static void large_note(void)
{
	put_u64(ID_ENTRY + NOTE_SIZE, 40);
}

static void small_note(void)
{
	put_u64(ID_ENTRY + NOTE_SIZE, 32);
}

static void empty_note(void)
{
	put_u64(ID_ENTRY + NOTE_SIZE, 0);
}

static void note_of_another(void)
{
	put_u64(ID_ENTRY + NOTE_ADDR, MODULE_NOTE + 4);
	put(MODULE_NOTE + 4, module_note, sizeof(module_note) - 1);
}

static void note_of_another_kind(void)
{
	put(MODULE_NOTE + 8, "\4", 1);
}

static void note_by_another(void)
{
	put(MODULE_NOTE + 12, "GNX", 3);
}

static void note_behind_others(void)
{
	put_u64(MODULE(0) + M_NOTES, ID_ENTRY - 9 * NOTE_STEP - N_NOTE(false));
}

static void no_id(void)
{
	change_info("BUILD-ID=" KERNEL_ID, "BUILD-IT=" KERNEL_ID);
}

static void short_id(void)
{
	change_info("BUILD-ID=" KERNEL_ID, "BUILD-ID=0123456789abcdef0123456789abcdef0123456\n");
}

static void long_id(void)
{
	change_info("test\nBUILD-ID=", "tes\nBUILD-ID=0");
}

static void zero_id(void)
{
	change_info("BUILD-ID=" KERNEL_ID, "BUILD-ID=0000000000000000000000000000000000000000");
}

static const struct {
	const char	*what;
	void		(*change)(void);
	bool		of_kernel;
} broken_ids[] = {
	{ "no notes",			no_note, false },
	{ "a note that is too large",	large_note, false },
	{ "a note that is too small",	small_note, false },
	{ "an empty note",		empty_note, false },
	{ "a note behind the module",	note_of_another, false },
	{ "a note of another kind",	note_of_another_kind, false },
	{ "a note by another",		note_by_another, false },
	{ "a note behind many others",	note_behind_others, false },
	{ "no build-id",		no_id, true },
	{ "a short build-id",		short_id, true },
	{ "a long build-id",		long_id, true },
	{ "a build-id of zeroes",	zero_id, true },
};

static int test_broken_ids(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(broken_ids); i++) {
		bool of_kernel = broken_ids[i].of_kernel;

		make_guest(FROM_BASE, false);
		broken_ids[i].change();
		TEST_ASSERT_VAL(broken_ids[i].what, find_all(dir) == GUEST_INFO_TABLES);
		TEST_ASSERT_VAL(broken_ids[i].what,
				has_build_id(dir, "kernel/notes", of_kernel ? NULL : KERNEL_ID));
		TEST_ASSERT_VAL(broken_ids[i].what,
				has_build_id(dir, "module/first/notes/" ID_NOTE,
					     of_kernel ? MODULE_ID : NULL));
	}
	return 0;
}

/* There are more pages with VMCOREINFO than MAX_KERNELS, the number of kernels that perf keeps. */
static int test_many_copies(const char *dir)
{
	make_guest(FROM_BASE, false);
	for (unsigned int i = 1; i < 20; i++) {
		char *copy = (char *)&ram[INFO_GPA + i * 4 * PAGE];

		memcpy(copy, info, sizeof(info));
		/* Half of them are those of other kernels, whose code is elsewhere. */
		if (i % 2)
			sprintf(strstr(copy, "SYMBOL(_stext)="), "SYMBOL(_stext)=%016x\n", i);
	}
	TEST_ASSERT_VAL("found", find_all(dir) == GUEST_INFO_TABLES);
	TEST_ASSERT_VAL("names", test_names(dir, WITH_MODULES, false));

	/* Any program of the guest can write pages that begin like VMCOREINFO. */
	make_guest(FROM_BASE, false);
	for (unsigned int i = 0; i < 3000; i++) {
		strcpy((char *)&ram[LOW_SIZE + i * PAGE], "OSRELEASE=6.1.0\n");
		/* Some are in front of the real page as well, where there is room for them. */
		if (i < 500)
			strcpy((char *)&ram[INFO_GPA - (i + 4) * PAGE], "OSRELEASE=6.1.0\n");
	}
	TEST_ASSERT_VAL("found among fakes", find_all(dir) == GUEST_INFO_TABLES);
	TEST_ASSERT_VAL("names among fakes", test_names(dir, WITH_MODULES, false));
	return 0;
}

/* Addresses of the second kernel's page tables and jiffies. */
#define OTHER_PGD	(KERNEL_GPA + 3 * PAGE)
#define OTHER_PUD	(PTE_GPA + PAGE)
#define OTHER_PMD	(OTHER_PUD + PAGE)
#define OTHER_PTE	(OTHER_PMD + PAGE)
#define OTHER_JIFFIES	(OTHER_PTE + PAGE)

static void *tick(void *arg)
{
	u64 *jiffies = (u64 *)&ram[OTHER_JIFFIES];
	const bool *stop = arg;

	while (!READ_ONCE(*stop)) {
		usleep(1000);
		WRITE_ONCE(*jiffies, *jiffies + 1);
	}
	return NULL;
}

/* A kernel that ran before a reset is still whole in memory, but has no ticks. */
static int test_reset(const char *dir)
{
	char *copy = (char *)&ram[INFO_GPA + 8 * PAGE];
	bool stop = false;
	pthread_t thread;
	int err;

	make_guest(FROM_BASE, false);
	memcpy(copy, info, sizeof(info));
	copy[sizeof("OSRELEASE=") - 1] = '7';
	memcpy(strstr(copy, "9b001000"), "9b003000", 8);
	put_entry(OTHER_PGD, 511, OTHER_PUD | PRESENT);
	put_entry(OTHER_PUD, (KERNEL >> 30) & 511, OTHER_PMD | PRESENT);
	memcpy(&ram[OTHER_PMD], &ram[PMD_GPA], PAGE);
	put_entry(OTHER_PMD, (SMALL >> 21) & 511, OTHER_PTE | PRESENT);
	memcpy(&ram[OTHER_PTE], &ram[PTE_GPA], PAGE);
	put_entry(OTHER_PTE, (JIFFIES - SMALL) / PAGE, OTHER_JIFFIES | NO_EXEC | PRESENT);

	/* If both kernels stand still, the first one is used. */
	TEST_ASSERT_VAL("found", find_all(dir) == GUEST_INFO_TABLES);
	TEST_ASSERT_VAL("the first", has_text(dir, "proc/version",
					      "Linux version 6.1.0-test (by its memory)\n"));
	TEST_ASSERT_VAL("no thread", !pthread_create(&thread, NULL, tick, &stop));
	err = find_all(dir) != GUEST_INFO_TABLES ||
	      !has_text(dir, "proc/version", "Linux version 7.1.0-test (by its memory)\n");
	WRITE_ONCE(stop, true);
	pthread_join(thread, NULL);
	TEST_ASSERT_VAL("the one that runs", !err);
	return 0;
}

/* Return true if a task's new name is written when the sysctl is @level at the last look. */
static bool notes_later_task(const char *dir, const char *sysctl, const char *level)
{
	const struct record_opts opts = {};
	struct guest_kernel *kernel;
	const char *why_not;
	char path[PATH_MAX];
	char *noted;
	size_t size;
	bool found;

	make_guest(FROM_BASE, false);
	write_text(sysctl, "2\n");
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	if (!kernel)
		return false;

	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	rm_rf(path);
	mkdir(path, 0700);
	if (!guest_watch__add(getpid(), path, kernel, false)) {
		guest_kernel__delete(kernel);
		return false;
	}
	guest_watch__start(&opts);
	write_text(sysctl, level);
	put(TASK(1) + T_COMM, "later", 6);
	/* This looks at the guest once more. */
	guest_watch__stop();

	noted = read_guest_file(dir, "tasks", &size);
	found = noted && strstr(noted, " later\n");
	free(noted);
	return found;
}

/* If someone forbids reading a guest while it is recorded, perf obeys. */
static int test_policy_while_watched(const char *dir)
{
	struct perf_event_attr attr = {
		.size		= sizeof(attr),
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_DUMMY,
		.exclude_kernel	= 1,
	};
	char sysctl[PATH_MAX];
	int fd;

	/* perf notes new tasks with a time of its clock, which only an event can tell. */
	fd = sys_perf_event_open(&attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return 0;

	close(fd);
	snprintf(sysctl, sizeof(sysctl), "%s/sysctl", dir);
	guest_policy__sysctl = sysctl;
	TEST_ASSERT_VAL("still allowed", notes_later_task(dir, sysctl, "2\n"));
	TEST_ASSERT_VAL("not any more", !notes_later_task(dir, sysctl, "0\n"));
	guest_policy__sysctl = NO_SYSCTL;
	return 0;
}
#else
static int test_broken_modules(const char *dir __maybe_unused)
{
	return 0;
}

static int test_tasks(const char *dir __maybe_unused)
{
	return 0;
}

static int test_later_modules(const char *dir __maybe_unused)
{
	return 0;
}

static int test_maps(const char *dir __maybe_unused)
{
	return 0;
}

static int test_second_look(const char *dir __maybe_unused)
{
	return 0;
}

static int test_broken_ids(const char *dir __maybe_unused)
{
	return 0;
}

static int test_many_copies(const char *dir __maybe_unused)
{
	return 0;
}

static int test_reset(const char *dir __maybe_unused)
{
	return 0;
}

static int test_policy_while_watched(const char *dir __maybe_unused)
{
	return 0;
}
#endif

/*
 * KVM's list of the guest's memory.  %d is the VMM's pid.  The first %lx is the VMM's address of
 * the RAM at guest-physical 4 GiB, the second one that of the RAM at guest-physical zero, the third
 * one is 8 MiB above the second.
 */
#define PIECE(as, gpa, size, hva) \
	"as_id=" as " slot=5 gpa=" gpa " size=" size " hva=" hva " flags=0x1\n"
#define SLOT(as, gpa, hva) PIECE(as, gpa, "0x1000000", hva)
#define HIGH_RAM	SLOT("0", "0x100000000", "0x%lx")
#define LOW_RAM		SLOT("0", "0x0", "0x%lx")

static const struct {
	const char	*what;
	const char	*dir;
	const char	*list;
	bool		in_pieces;
	bool		found;
} lists[] = {
	{ "none",			"%d-5", "", true, false },
	{ "none, RAM in one piece",	"%d-5", "", false, true },
	{ "RAM in two pieces",		"%d-5", HIGH_RAM LOW_RAM, true, true },
	{ "RAM in three pieces",	"%d-5", HIGH_RAM PIECE("0", "0x0", "0x800000", "0x%lx")
						PIECE("0", "0x800000", "0x800000", "0x%lx"),
	  true, true },
	{ "a piece that ends before",	"%d-5", HIGH_RAM PIECE("0", "0x0", "0x803000", "0x%lx"),
	  true, false },
	{ "other memory as well",	"%d-5", SLOT("1", "0x0", "0x1000") HIGH_RAM LOW_RAM,
	  true, true },
	{ "the other address space's",	"%d-5", SLOT("1", "0x100000000", "0x%lx")
						SLOT("1", "0x0", "0x%lx"), true, false },
	{ "pieces elsewhere",		"%d-5", SLOT("0", "0x200000000", "0x%lx")
						SLOT("0", "0x10000000", "0x%lx"), true, false },
	/* The VMM has a page that looks like a kernel's, but the page is not in the guest's RAM. */
	{ "other RAM",			"%d-5", SLOT("0", "0x0", "0x1000"), false, false },
	{ "nonsense",			"%d-5", "nonsense\n\nas_id=0 slot=0\n" HIGH_RAM LOW_RAM,
	  true, true },
	{ "another process's",		"1-%d", HIGH_RAM LOW_RAM, true, false },
	{ "no VM's",			"%d", HIGH_RAM LOW_RAM, true, false },
	{ "memory that can't be read",	"%d-5", SLOT("0", "0x200000000", "0x1000") HIGH_RAM LOW_RAM,
	  true, true },
};

/*
 * Lay out RAM as the VMM of a large guest may do: the RAM at guest-physical 4 GiB lies before the
 * RAM at guest-physical zero.
 */
static void swap_ram(void)
{
	u8 *low = malloc(LOW_SIZE);

	if (low) {
		memcpy(low, ram, LOW_SIZE);
		memcpy(ram, ram + HOLE, LOW_SIZE);
		memcpy(ram + HOLE, low, LOW_SIZE);
	}
	free(low);
}

/* Make KVM's list; return false if that fails. */
static bool make_list(const char *dir, const char *vm, const char *list)
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/kvm/%s", dir, vm);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/kvm/%s/memslots", dir, vm);
	file = fopen(path, "we");
	if (file)
		fprintf(file, list, (long)ram, (long)ram + HOLE, (long)ram + HOLE + (8 << 20));
	return file && !fclose(file);
}

/* Make a list of @nr memslots, the last two of which are RAM. */
static bool make_long_list(const char *dir, const char *vm, unsigned int nr)
{
	char *list = calloc(nr, sizeof(SLOT("0", "0x200000000", "0x1000")));
	bool good;

	if (!list)
		return false;
	for (unsigned int i = 2; i < nr; i++)
		sprintf(list + strlen(list), SLOT("0", "0x2%04x0000", "0x1000"), i);
	strcat(list, HIGH_RAM LOW_RAM);
	good = make_list(dir, vm, list);
	free(list);
	return good;
}

static int test_long_lists(const char *dir)
{
	char vm[32];

	snprintf(vm, sizeof(vm), "%d-5", getpid());
	make_guest(FROM_BASE, false);
	swap_ram();
	TEST_ASSERT_VAL("no list", make_long_list(dir, vm, MAX_MEMSLOTS));
	TEST_ASSERT_VAL("a long list", find_all(dir) == GUEST_INFO_TABLES);
	TEST_ASSERT_VAL("no list", make_long_list(dir, vm, MAX_MEMSLOTS + 1));
	TEST_ASSERT_VAL("a list that is too long", find_all(dir) == GUEST_INFO_NONE);
	return 0;
}

/* One VM has no memory, and another one no Linux.  The third one gets more memory, and loses it. */
static int test_vms(const char *dir)
{
	struct guest_kernel *kernel;
	const char *why_not;
	char vms[3][32];
	u8 page[PAGE];
	u64 value;

	make_guest(FROM_BASE, false);
	swap_ram();
	for (int i = 0; i < 3; i++)
		snprintf(vms[i], sizeof(vms[i]), "%d-%d", getpid(), i + 5);
	TEST_ASSERT_VAL("no lists", make_list(dir, vms[0], "") &&
			make_list(dir, vms[1], SLOT("0", "0x0", "0x1000")) &&
			make_list(dir, vms[2], SLOT("1", "0x0", "0x%lx")
						PIECE("0", "0x0", "0xf00000", "0x%lx")));
	/* The VMM has other memory right behind the piece. */
	ram[HOLE + 0xf00000] = 1;
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	TEST_ASSERT_VAL("of three VMs", kernel);
	TEST_ASSERT_VAL("memory", guest_memory__read_page(kernel->mem, 0, page));
	TEST_ASSERT_VAL("no memory", !guest_memory__read_page(kernel->mem, 0xf00, page) &&
			!guest_memory__read_page(kernel->mem, HIGH_GPA / PAGE, page));
	make_list(dir, vms[2], HIGH_RAM LOW_RAM);
	guest_memory__refresh(kernel->mem);
	TEST_ASSERT_VAL("more memory", guest_memory__read_page(kernel->mem, HIGH_GPA / PAGE, page));
	make_list(dir, vms[2], "");
	guest_memory__refresh(kernel->mem);
	TEST_ASSERT_VAL("no memory", !guest_memory__read(kernel->mem, NUM_SYMS, &value,
							 sizeof(value)));
	guest_kernel__delete(kernel);
	return 0;
}

static int test_listed(const char *dir)
{
	char path[PATH_MAX], vm[32];

	snprintf(path, sizeof(path), "%s/kvm", dir);
	TEST_ASSERT_VAL("no directory", !mkdir(path, 0700));
	guest_memslots__dir = dir;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		bool found;

		high = true;
		make_guest(FROM_BASE, false);
		if (lists[i].in_pieces)
			swap_ram();
		snprintf(vm, sizeof(vm), lists[i].dir, getpid());
		TEST_ASSERT_VAL("no list", make_list(dir, vm, lists[i].list));
		found = find_all(dir) == GUEST_INFO_TABLES;
		snprintf(path, sizeof(path), "%s/kvm/%s", dir, vm);
		rm_rf(path);
		high = false;
		TEST_ASSERT_VAL(lists[i].what, found == lists[i].found);
		TEST_ASSERT_VAL(lists[i].what, !found || test_names(dir, WITH_MODULES, false));
	}
	if (test_long_lists(dir) || test_vms(dir))
		return -1;
	guest_memslots__dir = NULL;
	return 0;
}

/*
 * The sysctl, NULL if there is none; what the VMM allows for its VM; and whether the guest may be
 * read.
 */
static const struct {
	const char	*what;
	const char	*sysctl;
	const char	*policy;
	bool		found;
} policies[] = {
	{ "no sysctl",		NULL,	NULL,		true },
	{ "0",			"0\n",	"allowed\n",	false },
	{ "1, undecided",	"1\n",	"undecided\n",	false },
	{ "1, not known",	"1\n",	NULL,		false },
	{ "1, allowed",		"1\n",	"allowed\n",	true },
	{ "1, forbidden",	"1\n",	"forbidden\n",	false },
	{ "2, undecided",	"2\n",	"undecided\n",	true },
	{ "2, not known",	"2\n",	NULL,		true },
	{ "2, forbidden",	"2\n",	"forbidden\n",	false },
	{ "nothing",		"",	"allowed\n",	false },
	{ "no number",		"x\n",	"allowed\n",	false },
};

/* A guest is not read if anyone forbids it. */
static int test_policy(const char *dir)
{
	char path[PATH_MAX], sysctl[PATH_MAX], policy[PATH_MAX], vm[32];

	snprintf(path, sizeof(path), "%s/kvm", dir);
	rm_rf(path);
	TEST_ASSERT_VAL("no directory", !mkdir(path, 0700));
	snprintf(vm, sizeof(vm), "%d-5", getpid());
	snprintf(sysctl, sizeof(sysctl), "%s/sysctl", dir);
	snprintf(policy, sizeof(policy), "%s/kvm/%s/guest_callchain", dir, vm);
	guest_memslots__dir = dir;
	guest_policy__sysctl = sysctl;
	high = true;
	make_guest(FROM_BASE, false);
	TEST_ASSERT_VAL("no list", make_list(dir, vm, HIGH_RAM LOW_RAM));
	swap_ram();
	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		TEST_ASSERT_VAL("no files", write_text(sysctl, policies[i].sysctl) &&
				write_text(policy, policies[i].policy));
		TEST_ASSERT_VAL(policies[i].what,
				(find_all(dir) == GUEST_INFO_TABLES) == policies[i].found);
	}

	/* If one of a process's VMs forbids it, perf reads none of them. */
	snprintf(vm, sizeof(vm), "%d-6", getpid());
	TEST_ASSERT_VAL("no list", make_list(dir, vm, ""));
	snprintf(path, sizeof(path), "%s/kvm/%d-6/guest_callchain", dir, getpid());
	for (int i = 0; i < 2; i++) {
		TEST_ASSERT_VAL("no files", write_text(sysctl, "2\n") &&
				write_text(i ? path : policy, "forbidden\n") &&
				write_text(i ? policy : path, "allowed\n"));
		TEST_ASSERT_VAL("one of two", find_all(dir) == GUEST_INFO_NONE);
	}
	TEST_ASSERT_VAL("no file", write_text(path, "allowed\n"));
	TEST_ASSERT_VAL("both allow", find_all(dir) == GUEST_INFO_TABLES);

	/* Without a VM in the list, the sysctl alone decides. */
	guest_memslots__dir = "/nowhere";
	swap_ram();
	TEST_ASSERT_VAL("no file", write_text(sysctl, "1\n"));
	TEST_ASSERT_VAL("1, no VM", find_all(dir) == GUEST_INFO_NONE);
	TEST_ASSERT_VAL("no file", write_text(sysctl, "2\n"));
	TEST_ASSERT_VAL("2, no VM", find_all(dir) == GUEST_INFO_TABLES);
	high = false;
	guest_memslots__dir = NULL;
	guest_policy__sysctl = NO_SYSCTL;
	return 0;
}

/* A tid that no thread has: the kernel's limit is 2^22. */
#define NO_THREAD	(1 << 22)

static bool is_forbidden(const char *dir, int tid, int fd)
{
	char path[PATH_MAX], name[32];
	bool forbidden;

	snprintf(path, sizeof(path), "%s/kvm", dir);
	rm_rf(path);
	mkdir(path, 0700);
	snprintf(name, sizeof(name), "%d-%d", tid, fd);
	make_list(dir, name, "");
	snprintf(path, sizeof(path), "%s/kvm/%s/guest_callchain", dir, name);
	write_text(path, "forbidden\n");
	forbidden = guest_policy__refusal(getpid());
	/* guest_memslots__find_vm() must not find a VM that isn't known to be this process's. */
	return forbidden && !guest_memslots__find_vm(getpid(), 0, path);
}

/*
 * If the thread that made a VM has ended, and may have been one of this process, the VM's setting
 * can forbid reading the guests of this process, but not allow it.
 */
static int test_ended_thread(const char *dir)
{
	const char *link = guest_memslots__link;
	const int fd = eventfd(0, EFD_CLOEXEC);
	bool other, right, running, closed;
	char sysctl[PATH_MAX];

	TEST_ASSERT_VAL("no file descriptor", fd >= 0);
	snprintf(sysctl, sizeof(sysctl), "%s/sysctl", dir);
	TEST_ASSERT_VAL("no file", write_text(sysctl, "2\n"));
	guest_policy__sysctl = sysctl;
	guest_memslots__dir = dir;
	other = is_forbidden(dir, NO_THREAD, fd);
	guest_memslots__link = "anon_inode:[eventfd]";
	right = is_forbidden(dir, NO_THREAD, fd);
	running = is_forbidden(dir, getppid(), fd);
	close(fd);
	closed = is_forbidden(dir, NO_THREAD, fd);
	guest_memslots__link = link;
	guest_memslots__dir = NULL;
	guest_policy__sysctl = NO_SYSCTL;
	TEST_ASSERT_VAL("no VM", !other);
	TEST_ASSERT_VAL("a VM", right);
	TEST_ASSERT_VAL("another process's", !running);
	TEST_ASSERT_VAL("no such descriptor", !closed);
	return 0;
}

static bool exists(const char *path)
{
	return !access(path, F_OK);
}

/* The files of guests lie beside the data, and are renamed and removed with it. */
static int test_beside(const char *dir)
{
	const struct target nothing = {};
	const bool was_guest = perf_guest;

	TEST_ASSERT_VAL("no directory", !chdir(dir));
	make_guest(FROM_BASE, false);
	TEST_ASSERT_VAL("relative", find_all("relative") == GUEST_INFO_TABLES);
	TEST_ASSERT_VAL("tables", test_tables("relative") && test_module_tables("relative", false));
	TEST_ASSERT_VAL("no directory",
			!mkdir("data.guests", 0700) && !mkdir("data.guests/1", 0700));
	guest_info__use("data");
	TEST_ASSERT_VAL("a directory", symbol_conf.guestmount &&
			!strcmp(symbol_conf.guestmount, "data.guests") && perf_guest);
	guest_info__use("-");
	TEST_ASSERT_VAL("a pipe after that", !symbol_conf.guestmount);
	symbol_conf.guestmount = "/";
	guest_info__use("data");
	TEST_ASSERT_VAL("the user's directory", !strcmp(symbol_conf.guestmount, "/"));
	symbol_conf.guestmount = NULL;
	perf_guest = was_guest;

	guest_info__record(&nothing, "-", false);
	guest_info__record(&nothing, "/dev/null", false);
	TEST_ASSERT_VAL("another one's", exists("data.guests/1"));
	guest_info__record(&nothing, "data", false);
	TEST_ASSERT_VAL("the first one", !exists("data.guests") && exists("data.old.guests/1"));
	TEST_ASSERT_VAL("no directory",
			!mkdir("data.guests", 0700) && !mkdir("data.guests/2", 0700));
	guest_info__record(&nothing, "data", false);
	TEST_ASSERT_VAL("the second one", !exists("data.guests") &&
			!exists("data.old.guests/1") && exists("data.old.guests/2"));
	guest_info__record(&nothing, "data", false);
	TEST_ASSERT_VAL("none", !exists("data.guests") && !exists("data.old.guests"));

	TEST_ASSERT_VAL("no link", !symlink("/", "data.guests"));
	guest_info__use("data");
	TEST_ASSERT_VAL("a link", !symbol_conf.guestmount);
	TEST_ASSERT_VAL("no way back", !chdir("/"));
	return 0;
}

static int test__guest_memory(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	char dir[] = "/tmp/perf-test-guest-XXXXXX";
	int err;

	/* Hosts of x86-64, and of arm64 with pages of 4 KiB, test guests of both architectures. */
	if (!guest_memory__is_supported())
		return TEST_SKIP;

	ram = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	TEST_ASSERT_VAL("no memory", ram != MAP_FAILED);
	TEST_ASSERT_VAL("no directory", mkdtemp(dir));
	guest_policy__sysctl = NO_SYSCTL;
	err = test_guest(dir) || test_arm64(dir) || test_broken(dir) || test_release(dir) ||
	      test_broken_tables(dir) || test_no_header(dir) || test_hole(dir) ||
	      test_copies(dir) || test_holes(dir) || test_broken_modules(dir) ||
	      test_later_modules(dir) || test_tasks(dir) || test_maps(dir) ||
	      test_second_look(dir) || test_broken_ids(dir) || test_many_copies(dir) ||
	      test_reset(dir) || test_listed(dir) || test_policy(dir) ||
	      test_policy_while_watched(dir) || test_ended_thread(dir) ||
	      test_beside(dir);
	guest_policy__sysctl = NULL;
	rm_rf(dir);
	munmap(ram, RAM_SIZE);
	return err ? TEST_FAIL : TEST_OK;
}

DEFINE_SUITE("Names of guests from their memory", guest_memory);
