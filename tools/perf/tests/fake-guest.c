// SPDX-License-Identifier: GPL-2.0
/*
 * Make a guest in this process's memory: page tables, VMCOREINFO, kallsyms, ORC tables, BTF, two
 * modules, and tasks with their files.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <elf.h>
#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/kernel.h>

#ifdef HAVE_LIBBPF_SUPPORT
#include <bpf/btf.h>
#endif

#include "fake-guest.h"

u8 *fake_ram;

struct fake_kernel fake_kernel;

/* The size of the kernel's BTF. */
static u64 btf_size;

/* The size of the small pages. */
static u64 page_bytes = PAGE;

/* Return the offset in RAM of an address of the kernel; lower addresses are such offsets. */
u64 fake__offset(u64 at)
{
	u64 page = (at - SMALL) / page_bytes, base = SMALL_GPA;

	if (at < KERNEL)
		return at;
	if (at < SMALL)
		return at - KERNEL + KERNEL_GPA;
	if (fake_kernel.high && at / PAGE == MODULE(0) / PAGE)
		base += HOLE;
	return base + (NR_SMALL * PAGE / page_bytes - 1 - page) * page_bytes + at % page_bytes;
}

static u64 to_gpa(u64 gva)
{
	u64 offset = fake__offset(gva);

	return offset < HOLE ? offset : offset - HOLE + HIGH_GPA;
}

void fake__put(u64 at, const void *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		fake_ram[fake__offset(at + i)] = ((const u8 *)data)[i];
}

void fake__put_u32(u64 at, u32 value)
{
	fake__put(at, &value, sizeof(value));
}

void fake__put_u64(u64 at, u64 value)
{
	fake__put(at, &value, sizeof(value));
}

static void put_string(u64 at, const char *text)
{
	fake__put(at, text, strlen(text) + 1);
}

static void make_tables(void)
{
	fake__put_u64(ENTRY(PGD_GPA, 511), PUD_GPA | PRESENT);
	fake__put_u64(ENTRY(PUD_GPA, (KERNEL >> 30) & 511), PMD_GPA | PRESENT);
	fake__put_u64(ENTRY(PMD_GPA, (KERNEL >> 21) & 511),
		      KERNEL_GPA | LARGE | LARGE_PAT | NO_EXEC | PRESENT);
	fake__put_u64(ENTRY(PMD_GPA, (SMALL >> 21) & 511), PTE_GPA | PRESENT);
	for (u64 i = 0; i < NR_SMALL; i++)
		fake__put_u64(ENTRY(PTE_GPA, i), to_gpa(SMALL + i * PAGE) | NO_EXEC | PRESENT);
}

static const char info[] =
	"OSRELEASE=" RELEASE "\n"
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
	{ VDSO_IMAGE,		"Rvdso_image_64" },
	{ VDSO_DATA,		"Rvdso_start" },
	{ VDSO_DATA + NR_PAGES * PAGE, "Rvdso_end" },
	{ FAKE_ENTRY,		"D__entry_task" },
	{ FAKE_HOT,		"Dpcpu_hot" },
	{ FAKE_TOP,		"Acpu_current_top_of_stack" },
	{ FAKE_IRQ_STACK,	"Ahardirq_stack_ptr" },
	{ FAKE_CURRENT,		"Acurrent_task" },
	{ ORC_END + 0x100,	"ta_name_of_more_than_127_characters_" },
};

/* More symbols, which have the type in front, too. */
static const char *symbol(u32 i, char buf[32])
{
	if (i < ARRAY_SIZE(symbols))
		return symbols[i].name;
	snprintf(buf, 32, i % 7 ? "dname_%u" : "ta_function_%u", i);
	return buf;
}

static u64 symbol_addr(u32 i)
{
	if (i >= ARRAY_SIZE(symbols))
		return ORC_END + 0x100 + i;
	return symbols[i].addr ?: BTF + btf_size;
}

static u32 nr_symbols(void)
{
	return fake_kernel.nr_symbols ?: ARRAY_SIZE(symbols);
}

/* Where the guest has the tables of kallsyms, and their number of symbols. */
static u64 offsets_at, base_at, nr_at, token_table_at, token_index_at;

u64 fake_old_places[NR_OLD_PLACES];

static s32 kept_offset(u32 i)
{
	u64 addr = symbol_addr(i);

	switch (fake_kernel.kallsyms) {
	case FROM_PLACE:
		return addr - (offsets_at + i * sizeof(s32));
	case FROM_BASE_BUT_PERCPU:
		return addr < KERNEL ? (s32)addr : (s32)(KERNEL - 1 - addr);
	case FROM_BASE:
	default:
		return addr - KERNEL;
	}
}

/* The last name is a long one: NR_LONG bytes with token 1 are added to it. */
#define NR_LONG		120
#define LONG_TOKEN	"xy"

/* Older kernels had no long names. */
static bool is_long(u32 i)
{
	return i == ARRAY_SIZE(symbols) - 1 && !fake_kernel.nr_symbols;
}

/* Return true if the kernel does not have this symbol. */
static bool is_missing(u32 i)
{
	u64 addr = symbol_addr(i);
	char buf[32];
	const char *name = symbol(i, buf);

	return (fake_kernel.no_header && addr == ORC_HEADER) ||
	       ((fake_kernel.hot || fake_kernel.no_percpu) && addr >= FAKE_TOP &&
		addr <= FAKE_CURRENT) ||
	       (fake_kernel.no_top && addr == FAKE_TOP) ||
	       (fake_kernel.no_data && !strchr("tT", *name)) ||
	       (fake_kernel.no_btf && !strncmp(name, "R__start_BTF", 12));
}

/* Put one compressed name, behind its length; return where the next one goes. */
static u64 put_name(u64 at, u32 i)
{
	char buf[32];
	const char *name = symbol(i, buf);
	u8 code[512], len = strlen(name);
	unsigned int size = 0, total = len + (is_long(i) ? NR_LONG : 0);

	code[size++] = total < 128 ? total : 0x80 | (total & 0x7f);
	if (total >= 128)
		code[size++] = total >> 7;
	memcpy(&code[size], name, len);
	if (is_missing(i))
		code[size + 1] = '-';
	memset(&code[size + len], 1, total - len);
	fake__put(at, code, size + total);
	return at + size + total;
}

/* Token 1 stands for two characters, all others for themselves. */
static const char *token(unsigned int i, char itself[2])
{
	itself[0] = i;
	itself[1] = 0;
	return i == 1 ? LONG_TOKEN : itself;
}

static u64 put_tokens(u64 at)
{
	char itself[2];

	for (unsigned int i = 0; i < 256; i++) {
		put_string(at, token(i, itself));
		at += strlen(token(i, itself)) + 1;
		if (i == 100)
			fake_old_places[OLD_TOKEN] = at - 1;
	}
	return at;
}

static void put_index(u64 at)
{
	char itself[2];
	u16 index = 0;

	for (unsigned int i = 0; i < 256; i++) {
		fake_old_places[OLD_INDEX] = at + i * sizeof(index);
		fake__put(fake_old_places[OLD_INDEX], &index, sizeof(index));
		index += strlen(token(i, itself)) + 1;
	}
}

static u64 align_table(u64 at)
{
	return (at + 7) & ~7ULL;
}

/*
 * Put the tables in the order in which Linux had them before 6.0, when VMCOREINFO didn't tell where
 * they are.
 */
static void make_old_kallsyms(void)
{
	static const char *const gone[] = { "names", "num", "token_table", "token_index", "offsets",
					    "relative" };
	u32 nr = nr_symbols(), markers[8], nr_markers = 0;
	char from[32], to[32];
	u64 names_at, at;

	for (size_t i = 0; i < ARRAY_SIZE(gone); i++) {
		snprintf(from, sizeof(from), "(kallsyms_%s", gone[i]);
		snprintf(to, sizeof(to), "(kallsyms-%s", gone[i]);
		fake__change_info(from, to);
	}
	offsets_at = align_table(OLD_TABLES);
	base_at = align_table(offsets_at + nr * sizeof(s32));
	nr_at = base_at + sizeof(u64);
	names_at = nr_at + sizeof(u64);
	fake_old_places[OLD_NR] = nr_at;
	at = names_at;
	for (u32 i = 0; i < nr; i++) {
		if (i % 256 == 0)
			markers[nr_markers++] = at - names_at;
		if (i == 300)
			fake_old_places[OLD_LEN] = at;
		at = put_name(at, i);
	}
	at = align_table(at);
	for (u32 i = 0; i < nr_markers; i++) {
		fake_old_places[OLD_MARKER] = at;
		fake__put_u32(at, markers[i]);
		at += fake_kernel.wide ? sizeof(u64) : sizeof(u32);
	}
	token_table_at = align_table(at);
	token_index_at = align_table(put_tokens(token_table_at));
}

static void make_kallsyms(void)
{
	u32 nr = nr_symbols();
	u64 at = NAMES;

	offsets_at = OFFSETS;
	base_at = RELATIVE_BASE;
	nr_at = NUM_SYMS;
	token_table_at = TOKEN_TABLE;
	token_index_at = TOKEN_INDEX;
	if (fake_kernel.nr_symbols) {
		make_old_kallsyms();
	} else {
		for (u32 i = 0; i < nr; i++)
			at = put_name(at, i);
		put_tokens(token_table_at);
	}
	put_index(token_index_at);
	fake__put_u32(nr_at, nr);
	fake__put_u64(base_at, KERNEL);
	for (u32 i = 0; i < nr; i++)
		fake__put_u32(offsets_at + i * sizeof(s32), kept_offset(i));
}

/* Print the lines that proc/kallsyms must have for the kernel and, if asked for, its modules. */
size_t fake__print_kallsyms(char *text, size_t size, bool with_modules)
{
	char buf[32];
	size_t len = 0;

	for (u32 i = 0; i < nr_symbols(); i++) {
		const char *name = symbol(i, buf);

		len += scnprintf(text + len, size - len, "%016" PRIx64 " %c %c%s", symbol_addr(i),
				 name[0], is_missing(i) ? '-' : name[1], &name[2]);
		for (unsigned int j = 0; is_long(i) && j < NR_LONG; j++)
			len += scnprintf(text + len, size - len, LONG_TOKEN);
		len += scnprintf(text + len, size - len, "\n");
	}
	if (with_modules)
		len += scnprintf(text + len, size - len,
				 "ffffffff9b250010 t first_f\t[first]\n"
				 "ffffffffc0010010 t second_f\t[second]\n");
	return len;
}

static void make_orc(void)
{
	for (u64 i = 0; i < ORC_END - ORC_HEADER; i++)
		fake__put(ORC_HEADER + i, (const u8[]){ i }, 1);
}

static u32 or_usual(u32 number, u32 usual)
{
	return number == NONE ? 0 : number ?: usual;
}

#ifdef HAVE_LIBBPF_SUPPORT
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
	int tree, path, cache, slots, name, mnt, hash, context, upid, numbers;

	tree = btf__add_struct(btf, "maple_tree", 16);
	btf__add_field(btf, "ma_root", u64_id, 64, 0);
	btf__add_struct(btf, "pt_regs", ARM64_PT_REGS);
	btf__add_struct(btf, "vdso_image", 16);
	btf__add_field(btf, "data", u64_id, VI_DATA * 8, 0);
	btf__add_field(btf, "size", u64_id, VI_SIZE * 8, 0);
	context = btf__add_struct(btf, NULL, 32);
	btf__add_field(btf, "vdso", u64_id, CONTEXT_VDSO * 8, 0);
	btf__add_field(btf, "vdso_image", u64_id, CONTEXT_IMAGE * 8, 0);
	context = btf__add_typedef(btf, "mm_context_t", context);
	btf__add_struct(btf, "mm_struct", 128);
	btf__add_field(btf, "pgd", u64_id, MM_PGD * 8, 0);
	btf__add_field(btf, "context", context, MM_CONTEXT * 8, 0);
	if (fake_kernel.list)
		btf__add_field(btf, "mmap", u64_id, MM_TREE * 8, 0);
	else if (!fake_kernel.no_tree)
		btf__add_field(btf, "mm_mt", tree, (MM_TREE - 8) * 8, 0);
	btf__add_field(btf, "exec_vm", u64_id, MM_EXEC_VM * 8, 0);
	btf__add_field(btf, "mm_users", u32_id, MM_USERS * 8, 0);
	btf__add_struct(btf, "vm_area_struct", 1024);
	btf__add_field(btf, "vm_start", u64_id, V_START * 8, 0);
	btf__add_field(btf, "vm_end", u64_id, V_END * 8, 0);
	btf__add_field(btf, "vm_flags", u64_id, V_FLAGS * 8, 0);
	btf__add_field(btf, "vm_pgoff", u64_id, V_PGOFF * 8, 0);
	btf__add_field(btf, "vm_file", u64_id, (fake_kernel.vma_file ?: V_FILE) * 8, 0);
	if (fake_kernel.list)
		btf__add_field(btf, "vm_next", u64_id, V_NEXT * 8, 0);
	path = btf__add_struct(btf, "path", 16);
	btf__add_field(btf, "mnt", u64_id, 0, 0);
	btf__add_field(btf, "dentry", u64_id, 64, 0);
	btf__add_struct(btf, "file", 64);
	btf__add_field(btf, "f_path", path, F_PATH * 8, 0);
	btf__add_field(btf, "f_inode", u64_id, F_INODE * 8, 0);
	btf__add_field(btf, "f_mapping", u64_id, F_MAPPING * 8, 0);
	cache = btf__add_struct(btf, fake_kernel.radix ? "radix_tree_root" : "xarray", 16);
	btf__add_field(btf, fake_kernel.radix ? "rnode" : "xa_head", u64_id, 64, 0);
	btf__add_struct(btf, "address_space", 64);
	btf__add_field(btf, "i_pages", cache, (M_CACHE - 8) * 8, 0);
	slots = btf__add_array(btf, u64_id, u64_id, 64);
	btf__add_struct(btf, fake_kernel.radix ? "radix_tree_node" : "xa_node", C_SLOTS + 64 * 8);
	btf__add_field(btf, "shift", u32_id, C_SHIFT * 8, 0);
	btf__add_field(btf, "slots", slots, C_SLOTS * 8, 0);
	btf__add_enum(btf, "pageflags", 4);
	btf__add_enum_value(btf, "PG_locked", 0);
	btf__add_enum_value(btf, "PG_uptodate", 3);
	btf__add_struct(btf, "page", or_usual(fake_kernel.page_size, STRUCT_PAGE));
	if (!fake_kernel.list)
		btf__add_struct(btf, "folio", 64);
	btf__add_field(btf, "flags", u64_id, P_FLAGS * 8, 0);
	btf__add_field(btf, "mapping", u64_id, P_MAPPING * 8, 0);
	btf__add_field(btf, "index", u64_id, P_INDEX * 8, 0);
	btf__add_struct(btf, "inode", 64);
	btf__add_field(btf, "i_ino", u64_id, I_INO * 8, 0);
	btf__add_field(btf, "i_sb", u64_id, I_SB * 8, 0);
	btf__add_field(btf, "i_size", u64_id, I_SIZE * 8, 0);
	btf__add_struct(btf, "files_struct", 64);
	btf__add_field(btf, "fdt", u64_id, FILES_FDT * 8, 0);
	upid = btf__add_struct(btf, "upid", UPID_SIZE);
	btf__add_field(btf, "nr", u32_id, 0, 0);
	numbers = btf__add_array(btf, u32_id, upid, 1);
	btf__add_struct(btf, "pid", 64);
	btf__add_field(btf, "level", u32_id, PID_LEVEL * 8, 0);
	btf__add_field(btf, "numbers", numbers, PID_NUMBERS * 8, 0);
	btf__add_struct(btf, "fdtable", 64);
	btf__add_field(btf, "max_fds", u32_id, FDT_MAX * 8, 0);
	btf__add_field(btf, "fd", u64_id, FDT_FDS * 8, 0);
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
	add_node_type(btf, "maple_range_64", u64_id, or_usual(fake_kernel.nr_slots, NR_SLOTS));
	add_node_type(btf, "maple_arange_64", u64_id, 10);
}

/* The fields are in a structure without a name, in a union without a name. */
static void add_hot_type(struct btf *btf, int u64_id)
{
	int fields = btf__add_struct(btf, NULL, 40), either;

	btf__add_field(btf, "current_task", u64_id, HOT_CURRENT * 8, 0);
	btf__add_field(btf, "top_of_stack", u64_id, HOT_TOP * 8, 0);
	btf__add_field(btf, "hardirq_stack_ptr", u64_id, HOT_IRQ_STACK * 8, 0);
	either = btf__add_union(btf, NULL, 64);
	btf__add_field(btf, NULL, fields, 0, 0);
	btf__add_struct(btf, "pcpu_hot", 64);
	btf__add_field(btf, NULL, either, 0, 0);
}

/* struct pcpu_hot went when a field got this name. */
static void add_cgroup_types(struct btf *btf, int u64_id)
{
	btf__add_struct(btf, "css_set", 64);
	btf__add_field(btf, "dfl_cgrp", u64_id, CSS_CGROUP * 8, 0);
	btf__add_struct(btf, "cgroup", 64);
	btf__add_field(btf, "kn", u64_id, CGROUP_KN * 8, 0);
	btf__add_struct(btf, "kernfs_node", 64);
	btf__add_field(btf, fake_kernel.hot || fake_kernel.old ? "parent" : "__parent", u64_id,
		       KN_PARENT * 8, 0);
	btf__add_field(btf, "name", u64_id, KN_NAME * 8, 0);
	btf__add_field(btf, "id", u64_id, KN_ID * 8, 0);
}

static void add_task_types(struct btf *btf, int u32_id, int u64_id, int char_id, int list)
{
	btf__add_struct(btf, "signal_struct", 64);
	btf__add_field(btf, "thread_head", list, S_THREADS * 8, 0);
	add_map_types(btf, u32_id, u64_id);
	add_cgroup_types(btf, u64_id);
	if (fake_kernel.hot)
		add_hot_type(btf, u64_id);
	btf__add_struct(btf, "task_struct", fake_kernel.far_field ? 16388 : 256);
	btf__add_field(btf, "comm", char_id, T_COMM * 8, 0);
	btf__add_field(btf, "pid", u32_id, T_PID * 8, 0);
	btf__add_field(btf, "tgid", u32_id, T_TGID * 8, 0);
	btf__add_field(btf, "tasks", list, T_TASKS * 8, 0);
	btf__add_field(btf, "mm", u64_id, T_MM * 8, 0);
	btf__add_field(btf, "stack", u64_id, T_STACK * 8, 0);
	btf__add_field(btf, "cgroups", u64_id, T_CGROUPS * 8, 0);
	btf__add_field(btf, "files", u64_id, T_FILES * 8, 0);
	btf__add_field(btf, "thread_pid", u64_id, T_OWN * 8, 0);
	btf__add_field(btf, "signal", u64_id, (fake_kernel.far_field ? 16380 : T_SIGNAL) * 8, 0);
	if (!fake_kernel.no_tasks)
		btf__add_field(btf, "thread_node", list, T_THREADS * 8, 0);
}

static void add_endless(struct btf *btf)
{
	int id = btf__add_struct(btf, NULL, 256);

	for (unsigned int i = 0; i < 100; i++)
		btf__add_field(btf, NULL, id, 0, 0);
	btf__add_struct(btf, "module", 256);
	btf__add_field(btf, NULL, id, 0, 0);
}

static void make_btf(void)
{
	struct btf *btf = btf__new_empty();
	int u32_id, u64_id, char_id, mem, array, list, kallsyms, pointer, anonymous,
	    arch, attribute, note, array_of_notes;
	const bool old = fake_kernel.old;
	const void *data;
	u32 size = 0;

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
	if (fake_kernel.types == IN_TABLE)
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
	if (fake_kernel.endless)
		add_endless(btf);
	attribute = btf__add_struct(btf, "attribute", 16);
	btf__add_field(btf, "name", pointer, NOTE_NAME * 8, 0);
	note = btf__add_struct(btf, "bin_attribute", NOTE_STEP);
	btf__add_field(btf, "attr", attribute, 0, 0);
	btf__add_field(btf, "size", u64_id, NOTE_SIZE * 8, 0);
	btf__add_field(btf, "private", pointer, NOTE_ADDR * 8, 0);
	btf__add_enum(btf, "mod_mem_type", 4);
	btf__add_enum_value(btf, "MOD_TEXT", 0);
	btf__add_enum_value(btf, "MOD_INIT_TEXT", 1);
	array_of_notes = btf__add_array(btf, u32_id, note, 0);
	btf__add_struct(btf, "module_notes_attrs", N_NOTE(old));
	btf__add_field(btf, "attrs", array_of_notes, N_NOTE(old) * 8, 0);
	btf__add_struct(btf, "module", 256);
	btf__add_field(btf, "state", u32_id, 0, 0);
	btf__add_field(btf, "list", list, M_LIST * 8, 0);
	btf__add_field(btf, NULL, anonymous, M_NAME * 8, 0);
	if (old)
		btf__add_field(btf, "core_layout", mem, M_MEM * 8, 0);
	if (old)
		btf__add_field(btf, "init_layout", mem, M_INIT * 8, 0);
	else
		btf__add_field(btf, "mem", array, M_MEM * 8, 0);
	btf__add_field(btf, "arch", arch, M_ARCH * 8, 0);
	btf__add_field(btf, "kallsyms", pointer, M_KALLSYMS * 8, 0);
	btf__add_field(btf, "notes_attrs", pointer, M_NOTES * 8, 0);
	btf__add_field(btf, "core_kallsyms", kallsyms, M_CORE_KALLSYMS * 8, 0);

	data = btf__raw_data(btf, &size);
	if (data)
		fake__put(BTF, data, size);
	btf_size = size;
	btf__free(btf);
}
#else
static void make_btf(void) {}
#endif

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
	{ VDSO,			VDSO + PAGE,		7,	0,	NO_FILE },
	{ LIBRARY,		LIBRARY + 4 * PAGE,	5,	0,	1 },
};

static void put_slot(u64 node, u32 slots, unsigned int i, u64 slot, u64 last)
{
	fake__put_u64(node + slots + i * 8, slot);
	fake__put_u64(node + NODE_PIVOTS + i * 8, last);
}

/*
 * Make the first page of an ELF file, with two notes, the second of which is the build-id, and with
 * a segment that is not a note but looks like another build-id.
 */
static void make_program(void)
{
	const Elf64_Ehdr ehdr = {
		.e_ident	= { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB },
		.e_type		= ET_DYN,
		.e_machine	= EM_X86_64,
		.e_phoff	= sizeof(ehdr),
		.e_phentsize	= sizeof(Elf64_Phdr),
		.e_phnum	= 2,
	};
	const Elf64_Phdr phdrs[] = {
		{ .p_type = PT_LOAD, .p_offset = 0x300, .p_filesz = 36 },
		{ .p_type = PT_NOTE, .p_offset = 0x200, .p_filesz = 16 + 4 + 16 + 20 },
	};
	const Elf64_Nhdr abi_tag = { 4, 4, NT_GNU_ABI_TAG }, build_id = { 4, 20, NT_GNU_BUILD_ID };
	u8 *page = &fake_ram[PROGRAM_GPA];

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

/* Have the page cache of a file hold a page. */
void fake__put_page(u64 gpa, u64 mapping, u64 index)
{
	u64 page = VMEMMAP + gpa / PAGE * or_usual(fake_kernel.page_size, STRUCT_PAGE);

	fake__put_u64(page + P_FLAGS, P_UPTODATE);
	fake__put_u64(page + P_MAPPING, mapping);
	fake__put_u64(page + P_INDEX, index);
	fake__put_u64(CACHE(1) + C_SLOTS + index * sizeof(u64), page);
}

/* The bit by which a tree of pages marks the addresses of its nodes. */
static u64 tree_bit(void)
{
	return fake_kernel.radix ? 1 : 2;
}

static void make_maps(void)
{
	make_program();
	/* Nothing is cached of the second file. */
	fake__put_u64(MAPPING(0) + M_CACHE, CACHE(0) | tree_bit());
	fake__put_u32(CACHE(0) + C_SHIFT, 6);
	fake__put_u64(CACHE(0) + C_SLOTS, CACHE(1) | tree_bit());
	if (fake_kernel.page_size != NONE)
		fake__put_page(PROGRAM_GPA, MAPPING(0), 0);

	fake__put_u64(MM + MM_PGD, PAGE_OFFSET + USER_PGD_GPA);
	fake__put_u64(MM + MM_EXEC_VM, 7);
	fake__put_u32(MM + MM_USERS, 1);
	fake__put_u64(MM + MM_TREE, fake_kernel.list ? VMA(0) : NODE(0) | ARANGE | 2);
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
		fake__put_u64(VMA(i) + V_START, vmas[i].start);
		fake__put_u64(VMA(i) + V_END, vmas[i].end);
		fake__put_u64(VMA(i) + V_FLAGS, vmas[i].flags);
		fake__put_u64(VMA(i) + V_PGOFF, vmas[i].pgoff);
		fake__put_u64(VMA(i) + V_NEXT, i + 1 < ARRAY_SIZE(vmas) ? VMA(i + 1) : 0);
		fake__put_u64(VMA(i) + V_FILE, vmas[i].file == NO_FILE ? 0 : FILE_OF(vmas[i].file));
	}
	for (unsigned int i = 0; i < NR_DENTRIES; i++) {
		fake__put(NAME_OF(i), dentries[i].name, strlen(dentries[i].name));
		fake__put_u64(DENTRY(i) + D_PARENT, DENTRY(dentries[i].parent));
		fake__put_u32(DENTRY(i) + D_NAME + QSTR_LEN, strlen(dentries[i].name));
		fake__put_u64(DENTRY(i) + D_NAME + QSTR_NAME, NAME_OF(i));
		fake__put_u64(DENTRY(i) + D_HASH + 8, 8);
	}
	/* The second file is in the file system that is mounted on /usr. */
	for (unsigned int i = 0; i < 2; i++) {
		fake__put_u64(MOUNT(i) + MNT_PARENT, MOUNT(0));
		fake__put_u64(MOUNT(i) + MNT_POINT, DENTRY(i ? USR : ROOT));
		fake__put_u64(MOUNT(i) + MNT, DENTRY(i ? USR_ROOT : ROOT));
		fake__put_u64(FILE_OF(i) + F_PATH, MOUNT(i) + MNT);
		fake__put_u64(FILE_OF(i) + F_PATH + 8, DENTRY(i ? LIBTEST : A_PROGRAM));
		fake__put_u64(FILE_OF(i) + F_INODE, INODE(i));
		fake__put_u64(FILE_OF(i) + F_MAPPING, MAPPING(i));
		fake__put_u64(INODE(i) + I_INO, 1000 + i);
		fake__put_u64(INODE(i) + I_SB, SUPER(i));
		fake__put_u32(SUPER(i) + S_DEV, 0x12ff0000 + i);
	}
}

/* Have the process open a file with this name, behind a descriptor that is closed. */
void fake__make_jit(const char *name, const char *text, size_t size)
{
	/* The process has pid 7 for all, and pid 3 for itself. */
	fake__put_u64(TASK(1) + T_OWN, OWN_PID);
	fake__put_u32(OWN_PID + PID_LEVEL, 1);
	fake__put_u32(OWN_PID + PID_NUMBERS, 7);
	fake__put_u32(OWN_PID + PID_NUMBERS + UPID_SIZE, 3);
	fake__put_u64(TASK(1) + T_FILES, FILES);
	fake__put_u64(FILES + FILES_FDT, FDT);
	fake__put_u32(FDT + FDT_MAX, 1000);
	fake__put_u64(FDT + FDT_FDS, FDS);
	fake__put_u64(FDS, 0);
	fake__put_u64(FDS + 8, FILE_OF(JIT_FILE));
	fake__put_u64(FILE_OF(JIT_FILE) + F_PATH + 8, DENTRY(JIT_DENTRY));
	fake__put_u64(FILE_OF(JIT_FILE) + F_INODE, INODE(JIT_FILE));
	fake__put_u64(FILE_OF(JIT_FILE) + F_MAPPING, MAPPING(JIT_FILE));
	fake__put_u32(DENTRY(JIT_DENTRY) + D_NAME + QSTR_LEN, strlen(name));
	fake__put_u64(DENTRY(JIT_DENTRY) + D_NAME + QSTR_NAME, NAME_OF(JIT_DENTRY));
	fake__put(NAME_OF(JIT_DENTRY), name, strlen(name));
	fake__put_u64(INODE(JIT_FILE) + I_SIZE, size);
	fake__put_u64(MAPPING(JIT_FILE) + M_CACHE, JIT_CACHE | tree_bit());
	for (unsigned int i = 0; i < 2; i++) {
		u64 page = PAGE_OF(JIT_PAGE(i));

		fake__put_u64(page + P_FLAGS, P_UPTODATE);
		fake__put_u64(page + P_MAPPING, MAPPING(JIT_FILE));
		fake__put_u64(page + P_INDEX, i);
		fake__put_u64(JIT_CACHE + C_SLOTS + i * sizeof(u64), page);
	}
	memcpy(&fake_ram[JIT_PAGE(0)], text, size);
}

/* Each is in the one before it. */
static void make_cgroups(void)
{
	static const char *const names[] = { "", "system.slice", "a.service" };

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		fake__put_u64(CSS_SET(i) + CSS_CGROUP, CGROUP(i));
		fake__put_u64(CGROUP(i) + CGROUP_KN, CGROUP_DIR(i));
		fake__put_u64(CGROUP_DIR(i) + KN_ID, 11 * (i + 1));
		fake__put_u64(CGROUP_DIR(i) + KN_NAME, CGROUP_NAME(i));
		fake__put_u64(CGROUP_DIR(i) + KN_PARENT, i ? CGROUP_DIR(i - 1) : 0);
		put_string(CGROUP_NAME(i), names[i]);
	}
}

static void make_tasks(void)
{
	make_cgroups();
	fake__put_u64(JIFFIES, 1);
	fake__put_u64(VMEMMAP_AT, VMEMMAP);
	fake__put_u64(PAGE_OFFSET_AT, PAGE_OFFSET);
	fake__put_u32(NR_CPUS_AT, 2);
	fake__put_u64(CPU_OFFSETS, fake_kernel.hot ? 0 : SMALL + 0xa0000);
	fake__put_u64(CPU_OFFSETS + 8, 0x100);
	/* The end of an IRQ's stack, or its last word. */
	fake__put_u64(fake_kernel.hot ? FAKE_HOT + HOT_IRQ_STACK : SMALL + 0xa0000 + FAKE_IRQ_STACK,
		      0xffffc90000007000 - (fake_kernel.no_top ? 0 : sizeof(u64)));
	fake__put_u64(IDLE_THREADS + 0x100, TASK(4));
	make_maps();
	for (size_t i = 0; i < ARRAY_SIZE(tasks); i++) {
		put_string(TASK(i) + T_COMM, tasks[i].comm);
		fake__put_u32(TASK(i) + T_PID, tasks[i].tid);
		fake__put_u32(TASK(i) + T_TGID, tasks[i].pid);
		fake__put_u64(TASK(i) + T_STACK, tasks[i].stack);
		fake__put_u64(TASK(i) + T_MM, tasks[i].has_mm ? MM : 0);
		fake__put_u64(TASK(i) + T_SIGNAL, SIGNAL + 0x100 * i);
		fake__put_u64(TASK(i) + T_CGROUPS, CSS_SET(tasks[i].has_mm ? 2 : 0));
	}
	fake__put_u64(TASK(0) + T_TASKS, TASK(1) + T_TASKS);
	fake__put_u64(TASK(1) + T_TASKS, TASK(3) + T_TASKS);
	fake__put_u64(TASK(3) + T_TASKS, TASK(0) + T_TASKS);
	fake__put_u64(TASK(0) + T_TASKS + 8, TASK(3) + T_TASKS);
	fake__put_u64(TASK(1) + T_TASKS + 8, TASK(0) + T_TASKS);
	fake__put_u64(TASK(3) + T_TASKS + 8, TASK(1) + T_TASKS);
	/* The list of each process's threads ends at the head in its struct signal_struct. */
	fake__put_u64(TASK(0) + T_THREADS, SIGNAL + S_THREADS);
	fake__put_u64(TASK(3) + T_THREADS, SIGNAL + 0x300 + S_THREADS);
	fake__put_u64(TASK(1) + T_THREADS, TASK(2) + T_THREADS);
	fake__put_u64(TASK(2) + T_THREADS, SIGNAL + 0x100 + S_THREADS);
}

static const struct {
	const char	*name;
	u64		base;
	u32		sizes[2];
} modules[] = {
	{ "first",	MODULE_CODE, { MODULE_SIZE, 0x1000 } },
	{ "second",	0xffffffffc0010000, { 0x2000, 0 } },
};

#define OTHER_NOTE	".note.gnu.property"

/*
 * Each module has an undefined symbol, which perf does not write, and a symbol whose name begins
 * with that of the module.
 */
static void make_modules(void)
{
	u64 node = MODULES;

	fake__put(STRINGS, "\0hidden\0first_f\0second_f", 25);
	for (size_t i = 0; i < ARRAY_SIZE(modules); i++) {
		u64 module = MODULE(i), table = module + M_CORE_KALLSYMS;
		const Elf64_Sym syms[] = {
			{ .st_name = 1, .st_shndx = SHN_UNDEF },
			{ .st_name = i ? 16 : 8, .st_shndx = 1,
			  .st_info = fake_kernel.types == IN_INFO ? 't' :
				     ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			  .st_size = fake_kernel.types == IN_SIZE ? 't' : 0x10,
			  .st_value = modules[i].base + 0x10 },
		};
		const struct {
			u64 symtab;
			u32 nr;
			u64 strings, types;
		} kallsyms = {
			SYMTAB + i * sizeof(syms), ARRAY_SIZE(syms), STRINGS, TYPES + 2 * i,
		};

		fake__put_u64(node, module + M_LIST);
		fake__put_u64(module + M_LIST + 8, node);
		node = module + M_LIST;
		put_string(module + M_NAME, modules[i].name);
		fake__put_u64(module + M_KALLSYMS, table);
		for (unsigned int j = 0; j < 2; j++) {
			fake__put_u64(module + M_MEM + j * MEM_STEP, modules[i].base + j * 0x8000);
			fake__put_u32(module + M_MEM + j * MEM_STEP + 8, modules[i].sizes[j]);
		}
		if (fake_kernel.old)
			fake__put_u32(module + M_MEM + 12, CODE_SIZE);
		fake__put(table, &kallsyms, sizeof(kallsyms));
		fake__put(kallsyms.symtab, syms, sizeof(syms));
		fake__put(kallsyms.types, "Ut", 2);
	}
	fake__put_u64(node, MODULES);

	/*
	 * The first module has a build-id behind another note, the second one has only the other
	 * note.
	 */
	for (size_t i = 0; i < ARRAY_SIZE(modules); i++) {
		u64 notes = MODULE(i) + 0x600, note = notes + N_NOTE(fake_kernel.old);
		u64 names = notes + 0x400;

		fake__put_u64(MODULE(i) + M_NOTES, notes);
		put_string(names, OTHER_NOTE);
		fake__put_u64(note + NOTE_NAME, names);
		fake__put_u64(note + NOTE_SIZE, sizeof(NOTE_CONTENTS) - 1);
		fake__put_u64(note + NOTE_ADDR, MODULE_CODE + 0x100);
		if (i)
			break;
		put_string(names + 0x20, ID_NOTE);
		fake__put(MODULE_NOTE, NOTE_CONTENTS, sizeof(NOTE_CONTENTS) - 1);
		fake__put_u64(note + NOTE_STEP + NOTE_NAME, names + 0x20);
		fake__put_u64(note + NOTE_STEP + NOTE_SIZE, sizeof(NOTE_CONTENTS) - 1);
		fake__put_u64(note + NOTE_STEP + NOTE_ADDR, MODULE_NOTE);
	}

	/* The second module has no ORC tables. */
	fake__put_u32(MODULE(0) + M_ARCH, NR_ORCS);
	fake__put_u64(MODULE(0) + M_ARCH + 8, MODULE_IPS);
	fake__put_u64(MODULE(0) + M_ARCH + 16, MODULE_ORC);
	fake__put(MODULE_CODE, &info[3], sizeof(info) - 3);
	fake__put(MODULE_CODE + PAGE, &info[4], 0x100);
	fake__put(MODULE_IPS, &info[1], NR_ORCS * 4);
	fake__put(MODULE_ORC, &info[2], NR_ORCS * 6);
}

/* Make a kernel in RAM that is empty. */
void fake__make_contents(const struct fake_kernel *kernel)
{
	fake_kernel = *kernel;
	make_tables();
	memcpy(&fake_ram[INFO_GPA], info, sizeof(info));
	fake_ram[INFO_GPA - PAGE] = 1;
	make_btf();
	make_modules();
	make_tasks();
	make_kallsyms();
	make_orc();
	for (size_t i = 0; i < PAGE; i++)
		fake_ram[KERNEL_GPA + i] ^= i;
}

void fake__make_kernel(const struct fake_kernel *kernel)
{
	madvise(fake_ram, RAM_SIZE, MADV_REMOVE);
	fake__make_contents(kernel);
}

/* Replace text in VMCOREINFO with other text of the same length. */
void fake__change_info(const char *from, const char *to)
{
	memcpy(strstr((char *)&fake_ram[INFO_GPA], from), to, strlen(to));
}

/* Write a release of @len characters, and leave the rest of VMCOREINFO as it was. */
void fake__put_release(size_t len)
{
	char *text = (char *)&fake_ram[INFO_GPA];

	text += sprintf(text, "OSRELEASE=");
	memset(text, '6', len);
	sprintf(text + len, "%s", strchr(info, '\n'));
}

/* Write VMCOREINFO of another kernel: another digit in its release, and other page tables. */
char *fake__put_other_info(u64 gpa, char digit, const char *tables)
{
	char *copy = memcpy(&fake_ram[gpa], info, sizeof(info));

	copy[strlen("OSRELEASE=")] = digit;
	memcpy(strstr(copy, "9b001000"), tables, strlen(tables));
	return copy;
}

/* Change the guest that was made last. */
void fake__change(const struct fake_guest *guest)
{
	for (size_t i = 0; i < ARRAY_SIZE(guest->bytes); i++)
		fake__put(guest->bytes[i].at, guest->bytes[i].data, guest->bytes[i].size);
	if (guest->info[0])
		fake__change_info(guest->info[0], guest->info[1]);
	if (guest->change)
		guest->change();
}

void fake__make(const struct fake_guest *guest)
{
	fake__make_kernel(&guest->kernel);
	fake__change(guest);
}

void fake__make_usual(void)
{
	fake__make(&(const struct fake_guest){});
}

static const Elf64_Sym program_symbols[] = {
	{},
	{ .st_name = 1, .st_info = STT_FUNC },
	{ FIRST_AT, STT_FUNC, 0, 1, ADDR(CODE, 0x100), 0x20 },
	{ SECOND_AT, STT_FUNC, 0, 1, ADDR(CODE, 0x200), 0x30 },
	{ 16, STT_OBJECT, 0, 1, ADDR(CODE, 0x300), 0x10 },
	{ 16, STT_FUNC, 0, 1, ADDR(CODE, 0x400), 0 },
	{ 16, STT_FUNC, 0, 1, ADDR(DYNAMIC, 0), 0x10 },
	{ 22, STT_FUNC, 0, 1, ADDR(CODE, 0x500), 0x10 },
};

/* One bucket; symbols from the second one on have hashes, and the last of these is odd. */
static const u32 program_hashes[] = { 1, 2, 1, 0, 0, 0, 2, 2, 4, 6, 8, 10, 13 };

/* Have the process run a vDSO that is a copy of the program, but for its build-id. */
void fake__make_vdso(void)
{
	for (unsigned int i = 0; i < NR_PAGES; i++)
		fake__put(VDSO_DATA + i * PAGE, &fake_ram[PROGRAM_RAM(i, 0)], PAGE);
	fake__put(VDSO_DATA + 0x224, (u8[]){ VDSO_ID }, 1);
	fake__put_u64(VDSO_IMAGE + VI_DATA, VDSO_DATA);
	fake__put_u64(VDSO_IMAGE + VI_SIZE, NR_PAGES * PAGE);
	fake__put_u64(MM + MM_CONTEXT + CONTEXT_VDSO, VDSO);
	fake__put_u64(MM + MM_CONTEXT + CONTEXT_IMAGE, VDSO_IMAGE);
}

/* Have the process's vDSO where one of a 64-bit program may be. */
void fake__move_vdso(void)
{
	const u64 vdso = 0x7e0000408000;

	fake__put_u64(MM + MM_CONTEXT + CONTEXT_VDSO, vdso);
	fake__put_u64(VMA(2) + V_START, vdso);
	fake__put_u64(VMA(2) + V_END, vdso + PAGE);
	fake__put_u64(NODE(1) + NODE_PIVOTS + 3 * 8, vdso - 1);
	fake__put_u64(NODE(1) + NODE_PIVOTS + 4 * 8, vdso + PAGE - 1);
}

static void put_in_program(unsigned int page, u64 at, const void *data, size_t size)
{
	fake__put(PROGRAM_RAM(page, at), data, size);
}

static void put_rule(u64 at, u64 function, u32 size)
{
	const struct {
		u32 len, common;
		s32 ip;
		u32 size;
		u8 rules[8];
	} rule = {
		RULE_SIZE - sizeof(u32), at + sizeof(u32),
		(s32)(function - ADDR(RULES_1, at + 8)), size, {},
	};

	put_in_program(RULES_1, at, &rule, sizeof(rule));
}

static void put_table(void)
{
	const struct {
		u8 format[4];
		s32 rules;
		u32 nr;
		s32 entries[6];
	} table = {
		{ 1, 0x1b, 0x03, 0x3b }, ADDR(RULES_1, 0) - ADDR(TABLE, 4), 3,
		{
			ADDR(CODE, 0x100) - ADDR(TABLE, 0), ADDR(RULES_1, RULE_1) - ADDR(TABLE, 0),
			ADDR(CODE, 0x200) - ADDR(TABLE, 0), ADDR(RULES_1, RULE_2) - ADDR(TABLE, 0),
			ADDR(CODE, 0x500) - ADDR(TABLE, 0), ADDR(RULES_1, RULE_3) - ADDR(TABLE, 0),
		},
	};
	static const u8 common[RULE_1] = {
		RULE_1 - 4, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8,
		0x90, 1,
	};

	put_in_program(TABLE, 0, &table, sizeof(table));
	put_in_program(RULES_1, 0, common, sizeof(common));
	put_rule(RULE_1, ADDR(CODE, 0x100), 0x20);
	put_rule(RULE_2, ADDR(CODE, 0x200), 0x30);
	put_rule(RULE_3, ADDR(CODE, 0x500), 0x10);
}

/* Put a jump by the pointer at the place in the code. */
static void put_jump(u64 at)
{
	const s32 offset = ADDR(DYNAMIC, POINTER_AT) - ADDR(CODE, at + 10);
	u8 jump[16] = { 0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25 };

	memcpy(&jump[6], &offset, sizeof(offset));
	put_in_program(CODE, at, jump, sizeof(jump));
}

/* Make a program with code, symbols and rules, in place of the one that has no code. */
void fake__make_program(void)
{
	const Elf64_Phdr phdrs[] = {
		{ PT_LOAD, PF_R, 0, ADDR(0, 0), 0, CODE * PAGE, CODE * PAGE, PAGE },
		{ PT_NOTE, PF_R, 0x200, ADDR(0, 0x200), 0, 56, 56, 4 },
		{ PT_LOAD, PF_R | PF_X, CODE * PAGE, ADDR(CODE, 0), 0, PAGE, PAGE, PAGE },
		{ PT_LOAD, PF_R, TABLE * PAGE, ADDR(TABLE, 0), 0, 3 * PAGE, 3 * PAGE, PAGE },
		{ PT_DYNAMIC, PF_R, DYNAMIC * PAGE, ADDR(DYNAMIC, 0), 0, PAGE, PAGE, 8 },
		{ PT_GNU_EH_FRAME, PF_R, TABLE * PAGE, ADDR(TABLE, 0), 0, 0x100, 0x100, 4 },
	};
	const Elf64_Dyn dynamic[] = {
		{ DT_SYMTAB, { ADDR(HASHES, 0) } }, { DT_STRTAB, { ADDR(NAMES_1, 0) } },
		{ DT_STRSZ, { 2 * PAGE } }, { DT_GNU_HASH, { ADDR(HASHES, HASH_AT) } },
		{ DT_JMPREL, { ADDR(DYNAMIC, RELOCS_AT) } },
		{ DT_PLTRELSZ, { sizeof(Elf64_Rela) } },
		{},
	};
	const Elf64_Rela reloc = {
		ADDR(DYNAMIC, POINTER_AT), ELF64_R_INFO(1, R_X86_64_JUMP_SLOT), 0,
	};
	static const u8 plt0[16] = { 0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25 };
	static const u16 nr = ARRAY_SIZE(phdrs);

	for (unsigned int i = 0; i < NR_PAGES; i++)
		fake__put_page(PROGRAM_RAM(i, 0), MAPPING(0), i);
	put_in_program(HEADERS, offsetof(Elf64_Ehdr, e_phnum), &nr, sizeof(nr));
	put_in_program(HEADERS, sizeof(Elf64_Ehdr), phdrs, sizeof(phdrs));
	put_in_program(HASHES, 0, program_symbols, sizeof(program_symbols));
	put_in_program(HASHES, HASH_AT, program_hashes, sizeof(program_hashes));
	put_in_program(NAMES_1, 0, "\0imported\0first\0other\0esc\x1b[2J", 30);
	put_in_program(NAMES_1, SECOND_AT, "second", 7);
	put_in_program(DYNAMIC, 0, dynamic, sizeof(dynamic));
	put_in_program(DYNAMIC, RELOCS_AT, &reloc, sizeof(reloc));
	/* Other code comes first.  A function may begin with a jump as those of the table do. */
	put_in_program(CODE, 0x10, plt0, sizeof(plt0));
	put_jump(0x20);
	put_jump(0x100);
	put_table();
}

/*
 * Guests of arm64 have the same contents as those of x86-64, but page tables of arm64, and a large
 * page only if small ones have 4 KiB.  Descriptors of tables and pages have bit 1 set; those of
 * large pages, which arm64 calls blocks, have it clear.  All have attributes in other bits, which
 * perf must not take for a part of the address.
 */
#define ARM64_PAGE	(ARM64_BLOCK | BIT(1))
#define ARM64_TABLE	(BIT(0) | BIT(1) | BIT_ULL(59))
#define ARM64_ADDRESS	GENMASK_ULL(47, 12)

const struct fake_arm64 fake_arm64_guests[] = {
	{ "4 KiB, 48 bits",	12, 48, 48, 1UL << 30 },
	{ "4 KiB, 39 bits",	12, 39, 39, 1UL << 30 },
	{ "4 KiB, 52 bits",	12, 52, 52, 1UL << 30 },
	{ "16 KiB, 47 bits",	14, 47, 47, 1UL << 30 },
	{ "16 KiB, 48 bits",	14, 48, 48, 1UL << 30 },
	{ "64 KiB, 48 bits",	16, 48, 48, 1UL << 30 },
	{ "64 KiB, 52 bits",	16, 52, 52, 1UL << 30 },
	{ "64 KiB, 52 bits on a CPU that has 48", 16, 52, 48, 1UL << 30 },
	{ "RAM at 2 GiB",	12, 48, 48, 1UL << 31 },
	{}
};

static u64 next_table;

/* Map a page, or a block of 2 MiB, at @gva. */
static void map_arm64(const struct fake_arm64 *guest, u64 gva, bool block)
{
	unsigned int bits = guest->shift - 3, shift = guest->shift;
	u64 table = PGD_GPA, place, entry, index = gva & GENMASK_ULL(guest->va_bits - 1, 0);

	while (shift + bits < guest->va_bits)
		shift += bits;
	for (; shift > guest->shift + (block ? bits : 0); shift -= bits) {
		place = ENTRY(table, index >> shift);
		memcpy(&entry, &fake_ram[place], sizeof(entry));
		if (!entry) {
			entry = (guest->ram + next_table) | ARM64_TABLE;
			next_table += 65536;
			fake__put_u64(place, entry);
		}
		table = (entry & ARM64_ADDRESS) - guest->ram;
		index &= GENMASK_ULL(shift - 1, 0);
	}
	fake__put_u64(ENTRY(table, index >> shift),
		      (guest->ram + fake__offset(gva)) | (block ? ARM64_BLOCK : ARM64_PAGE));
}

void fake__make_arm64(const struct fake_arm64 *guest)
{
	u64 size = 1UL << guest->shift, voffset = KERNEL - KERNEL_GPA - guest->ram;
	/* The direct map is where x86-64's is: a large offset leads there. */
	u64 phys = GENMASK_ULL(63, guest->va_bits) - PAGE_OFFSET;
	u64 program = guest->shift == 12 ? PROGRAM_GPA : ARM64_PROGRAM, vmemmap;
	char *text;

	page_bytes = size;
	fake__make_usual();
	fake_ram[PROGRAM_GPA + offsetof(Elf64_Ehdr, e_machine)] = EM_AARCH64;
	memset(&fake_ram[PGD_GPA], 0, size);
	memset(&fake_ram[ARM64_TABLES], 0, KERNEL_GPA - ARM64_TABLES);
	next_table = ARM64_TABLES;
	if (guest->shift == 12)
		map_arm64(guest, KERNEL, true);
	for (u64 gva = guest->shift == 12 ? SMALL : KERNEL; gva < SMALL + NR_SMALL * PAGE;
	     gva += size)
		map_arm64(guest, gva, false);

	/* The struct page of the program's first page is where x86-64's is. */
	if (program != PROGRAM_GPA)
		memcpy(&fake_ram[program], &fake_ram[PROGRAM_GPA], PAGE);
	vmemmap = PAGE_OF(PROGRAM_GPA) - ((guest->ram + program) >> guest->shift) * STRUCT_PAGE +
		  ((s64)phys >> guest->shift) * STRUCT_PAGE;

	/* The last lines of VMCOREINFO are x86-64's: replace them with arm64's. */
	text = strstr((char *)&fake_ram[INFO_GPA], "NUMBER(phys_base)");
	sprintf(text, "PAGESIZE=%" PRIu64 "\nNUMBER(VA_BITS)=%u\n"
		"NUMBER(kimage_voffset)=0x%" PRIx64 "\nNUMBER(TCR_EL1_T1SZ)=0x%x\n"
		"NUMBER(VMEMMAP_START)=0x%" PRIx64 "\nNUMBER(PHYS_OFFSET)=0x%" PRIx64 "\n",
		size, guest->va_bits, voffset, 64 - guest->used_bits, vmemmap, phys);
	page_bytes = PAGE;
}

/* Put a jump of arm64 by the pointer, with BTI or without, at the place in the code. */
static void put_arm64_jump(u64 at, bool bti)
{
	u64 to = ADDR(DYNAMIC, POINTER_AT);
	s64 pages = to / PAGE - ADDR(CODE, at) / PAGE;
	const u32 code[] = {
		0xd503245f,
		0x90000010 | (pages & 3) << 29 | (pages >> 2 & 0x7ffff) << 5,
		0xf9400211 | to % PAGE / 8 << 10,
		0x91000210 | to % PAGE << 10,
		0xd61f0220,
		0xd503201f,
	};

	put_in_program(CODE, at, &code[!bti], bti ? sizeof(code) : 16);
}

/*
 * Make a program of arm64.  Its table for jumps comes right behind the relocations, if these are in
 * the code, at @relocs.
 */
void fake__make_arm64_program(u64 relocs, bool bti)
{
	const Elf64_Rela reloc = {
		ADDR(DYNAMIC, POINTER_AT), ELF64_R_INFO(1, R_AARCH64_JUMP_SLOT), 0,
	};
	/* CFA is SP + 16, and X30 is the return address, right below CFA. */
	static const u8 common[] = { 30, 1, 0x1b, 0x0c, 31, 16, 0x9e, 1 };
	const u32 first = 0xa9bf7bf0;
	const u16 machine = EM_AARCH64;
	u64 table = relocs ? relocs + 32 : 0;

	fake__make_program();
	put_in_program(HEADERS, offsetof(Elf64_Ehdr, e_machine), &machine, sizeof(machine));
	put_in_program(relocs ? CODE : DYNAMIC, relocs ?: RELOCS_AT, &reloc, sizeof(reloc));
	if (relocs)
		put_in_program(DYNAMIC, 4 * sizeof(Elf64_Dyn) + 8, &(u64){ ADDR(CODE, relocs) }, 8);
	put_in_program(RULES_1, 14, common, sizeof(common));
	put_in_program(CODE, table, &first, sizeof(first));
	put_arm64_jump(table + 32, bti);
}
