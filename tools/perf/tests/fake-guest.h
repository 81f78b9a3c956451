/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A made-up guest in the memory of the test, which stands for the VMM.  Tests compare all that perf
 * writes for the guest.  Then they break the guest, in one place at a time.
 */
#ifndef __PERF_TESTS_FAKE_GUEST_H
#define __PERF_TESTS_FAKE_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/bits.h>
#include <linux/types.h>
#include "guest-folder.h"
#include "tests.h"

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
/* An entry of a page table. */
#define ENTRY(table, i)	((table) + (i) * sizeof(u64))
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

/*
 * Per-CPU variables: their offsets from the GS base; the address of struct pcpu_hot, which a later
 * kernel may have in its image; that of arm64's current task; and the offsets in struct pcpu_hot.
 */
#define FAKE_TOP	0x1040
#define FAKE_IRQ_STACK	0x1048
#define FAKE_CURRENT	0x1080
#define FAKE_HOT	(SMALL + 0x90000)
#define FAKE_ENTRY	(SMALL + 0x99000)
#define HOT_CURRENT	0
#define HOT_TOP		24
#define HOT_IRQ_STACK	32

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
/* Where an older kernel has kallsyms. */
#define OLD_TABLES	(SMALL + 0xa8004)
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
#define CSS_SET(i)	(SMALL + 0x88ff0 + (i) * 0x40)
#define CGROUP(i)	(SMALL + 0x8aff8 + (i) * 0x40)
#define CGROUP_DIR(i)	(SMALL + 0x8cfe0 + (i) * 0x40)
#define CGROUP_NAME(i)	(SMALL + 0x8effc + (i) * 0x20)

/*
 * The descriptors of the process, in make_jit(): the table has one file, the map of a JIT compiler,
 * of which two pages are cached.
 */
#define FILES		(SMALL + 0x90ff8)
#define FDT		(SMALL + 0x92ffc)
#define FDS		(SMALL + 0x94ff8)
#define OWN_PID		(SMALL + 0x96ff8)
#define JIT_FILE	2
#define JIT_DENTRY	NR_DENTRIES
#define JIT_CACHE	CACHE(2)
#define JIT_PAGE(i)	(PROGRAM_GPA + (12 + (i)) * PAGE)

/* A process: gpas of its page tables and its program's first page, and gvas of its two files. */
#define USER_PGD_GPA	(9UL << 20)
#define PROGRAM_GPA	(USER_PGD_GPA + PAGE)
#define PROGRAM		0x400000UL
#define LIBRARY		0x7f0000001000UL

/* The pages of the file that fake__make_program() makes, by what they have. */
enum { HEADERS, HASHES, NAMES_1, NAMES_2, DYNAMIC, CODE, TABLE, RULES_1, RULES_2, NR_PAGES };

/* Offset in the file, address as the linker gave it, and offset in RAM, of a place on a page. */
#define FILE_AT(page, at)	((page) * PAGE + (at))
#define ADDR(page, at)		((int)(0x10000 + FILE_AT(page, at)))
#define PROGRAM_RAM(page, at)	(PROGRAM_GPA + FILE_AT(page, at))
#define PROGRAM_SLOT(page)	(CACHE(1) + C_SLOTS + (page) * sizeof(u64))
#define PROGRAM_FOLIO(page)	PAGE_OF(PROGRAM_RAM(page, 0))

#define HASH_AT		0x400
#define RELOCS_AT	0x400
#define POINTER_AT	0x800

/* Names of functions.  The second one begins on one page and ends on the next. */
#define FIRST_AT	10
#define SECOND_AT	(PAGE - 3)

/* A rule lies on both pages; all rules have the first record in common. */
#define RULE_1		24
#define RULE_2		(PAGE - 8)
#define RULE_3		(PAGE + 16)
#define RULE_SIZE	24

/* The release of the kernel and its build-id, in VMCOREINFO. */
#define RELEASE		"6.1.0-test"
#define KERNEL_ID	"000102030405060708090a0b0c0d0e0fff01faaf"

/* Files that perf writes, below a directory named by the VMM's pid. */
#define VMLINUX		"boot/vmlinux-" RELEASE
#define KERNEL_NOTES	"sys/kernel/notes"
#define FIRST_NOTES	"sys/module/first/notes/" ID_NOTE

/* Offsets of a module's fields. */
#define M_LIST		8
#define M_NAME		24
#define M_MEM		88
#define M_ARCH		160
#define M_KALLSYMS	200
#define M_CORE_KALLSYMS	0x400
#define M_NOTES		216
#define MEM_STEP	24
/* The code of the init. */
#define M_INIT		(M_MEM + MEM_STEP)

/* The code of the first module, and its ORC tables. */
#define MODULE_CODE	(SMALL + 0x50000)
#define MODULE_SIZE	0x3000
#define CODE_SIZE	0x1100
#define MODULE_IPS	(SMALL + 0x53ffc)
#define MODULE_ORC	(SMALL + 0x54ffa)
#define NR_ORCS		3

/* The build-id of the first module is at the end of its first part in memory. */
#define MODULE_NOTE	(MODULE_CODE + MODULE_SIZE - 36)
#define NOTE_CONTENTS	"\4\0\0\0\24\0\0\0\3\0\0\0GNU\0modules own id of 20"
#define ID_NOTE		".note.gnu.build-id"
#define MODULE_ID	"6d6f64756c6573206f776e206964206f66203230"

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
#define T_CGROUPS	0x80
#define T_FILES		0x88
#define T_OWN		0x90
#define PID_LEVEL	4
#define PID_NUMBERS	16
#define UPID_SIZE	16
#define S_THREADS	0x10
#define MM_PGD		0x18
#define MM_TREE		0x20
#define MM_EXEC_VM	0x30
/* Where the guest has its direct map of RAM and its array of struct page. */
#define PAGE_OFFSET	0xffff9d4000000000ULL
#define STRUCT_PAGE	64
/* Of this array, the guest has the part for the pages of the program. */
#define VMEMMAP		(SMALL + 0xa0000 - PROGRAM_GPA / PAGE * STRUCT_PAGE)
/* The address of a page's struct page. */
#define PAGE_OF(gpa)	(VMEMMAP + (gpa) / PAGE * STRUCT_PAGE)

/*
 * The vDSO: its size and address in struct vdso_image; in struct mm_struct, mm_context_t and its
 * fields; where the process has it.
 */
#define VDSO_IMAGE	(SMALL + 0xb0ff8)
#define VI_DATA		0
#define VI_SIZE		8
#define VDSO_DATA	(SMALL + 0xc0000)
#define MM_CONTEXT	0x60
#define CONTEXT_VDSO	0x8
#define CONTEXT_IMAGE	0x10
/* The process has executable memory without a file here. */
#define VDSO		(PROGRAM + 8 * PAGE)
/* The first byte of its build-id; the others are those of the program's. */
#define VDSO_ID		0x42

/* Offsets in struct css_set, struct cgroup, and struct kernfs_node. */
#define CSS_CGROUP	0x18
#define CGROUP_KN	0x10
#define KN_NAME		0x8
#define KN_PARENT	0x10
#define KN_ID		0x18

/* Offsets in the structures that lead to the files that a process runs. */
#define V_START		0
#define V_END		8
#define V_FLAGS		0x18
#define V_NEXT		0x10
#define V_PGOFF		0x20
#define V_FILE		0x28
#define F_PATH		0x10
#define F_INODE		0x28
#define F_MAPPING	0x30
#define M_CACHE		0x18
#define C_SHIFT		0
#define C_SLOTS		0x28
#define P_FLAGS		0
#define P_MAPPING	0x18
#define P_INDEX		0x20
#define P_UPTODATE	BIT(3)
#define I_INO		8
#define I_SB		0x10
#define I_SIZE		0x18
#define FILES_FDT	8
#define FDT_MAX		0
#define FDT_FDS		8
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
#define NR_SLOTS	16
#define LEAF		(1 << 3)
#define ARANGE		(3 << 3)

/*
 * The directories and files: index, parent, name.  The first two are roots of mounts: each is its
 * own parent.
 */
enum { ROOT, USR_ROOT, BIN, A_PROGRAM, USR, LIB, LIBTEST, NR_DENTRIES };

/* Ways in which kallsyms stores addresses. */
enum fake_kallsyms { FROM_BASE, FROM_PLACE, FROM_BASE_BUT_PERCPU };
#define NR_KALLSYMS	3

/* Where the types of a module's symbols are. */
enum fake_types { IN_TABLE, IN_INFO, IN_SIZE };

/* A number that is zero in the guest, where zero stands for the usual number. */
#define NONE		(~0U)

/**
 * struct fake_kernel - what is special about a guest's kernel
 * @kallsyms:	how kallsyms stores addresses
 * @nr_symbols:	if not zero, kallsyms are as before Linux 6.0: they have this many symbols, and
 *		VMCOREINFO doesn't tell where they are
 * @wide:	... and their markers have 64 bits, as before Linux 4.20
 * @radix:	cached pages are in a radix tree, as before Linux 4.20
 * @old:	modules are as before Linux 6.4
 * @types:	where the types of their symbols are: IN_SIZE in 5.0 and 5.1, IN_INFO before that
 * @no_header:	ORC tables have no header, as in older kernels
 * @high:	the structure of the first module begins in the RAM above the hole
 * @endless:	BTF has a struct module whose members have no names, and contain themselves
 * @no_tasks:	struct task_struct lacks a field
 * @far_field:	... or has one far behind the others
 * @list:	VMAs are in a list, as before Linux 6.1, and pages have no folios, as before 5.16
 * @no_tree:	there is neither a maple tree of VMAs nor a list
 * @vma_file:	the offset of a VMA's vm_file
 * @nr_slots:	the number of slots of a leaf
 * @page_size:	the size of struct page
 * @hot:	per-CPU variables are in struct pcpu_hot, as in Linux 6.2 to 6.14
 * @no_top:	there is no variable for the top of the stack, as in Linux 5.10, and
 *		hardirq_stack_ptr is the end of the IRQ's stack
 * @no_percpu:	there are no such variables
 * @no_data:	symbols are those of code only
 * @no_btf:	there is no symbol of BTF
 */
struct fake_kernel {
	enum fake_kallsyms	kallsyms;
	u32			nr_symbols;
	bool			wide;
	bool			radix;
	bool			old;
	enum fake_types		types;
	bool			no_header;
	bool			high;
	bool			endless;
	bool			no_tasks;
	bool			far_field;
	bool			list;
	bool			no_tree;
	u32			vma_file;
	u32			nr_slots;
	u32			page_size;
	bool			hot;
	bool			no_top;
	bool			no_percpu;
	bool			no_data;
	bool			no_btf;
};

/* Bytes at an address of the guest's kernel or, below KERNEL, at an offset in RAM. */
struct fake_bytes {
	u64		at;
	const void	*data;
	size_t		size;
};

#define BYTES(at, text)	{ at, text, sizeof(text) - 1 }
#define WORD(at, value)	{ at, (const u64[]){ value }, sizeof(u64) }
#define HALF(at, value)	{ at, (const u32[]){ value }, sizeof(u32) }

/**
 * struct fake_guest - a guest that is broken, or special in another way
 * @name:	in which way
 * @kernel:	what is special about its kernel
 * @bytes:	bytes to write to its memory
 * @info:	text in VMCOREINFO, and other text to write over it
 * @change:	function that does what the members above can't
 * @from:	text that perf usually writes for a guest; NULL if it writes nothing for this one
 * @to:		what it writes in place of that
 */
struct fake_guest {
	const char		*name;
	struct fake_kernel	kernel;
	struct fake_bytes	bytes[4];
	const char		*info[2];
	void			(*change)(void);
	const char		*from;
	const char		*to;
};

/* Places in the kallsyms of an older kernel: number, a length, the last marker, token and index. */
enum fake_old_place { OLD_NR, OLD_LEN, OLD_MARKER, OLD_TOKEN, OLD_INDEX, NR_OLD_PLACES };

extern u64 fake_old_places[NR_OLD_PLACES];

/* arm64's large pages, and where all tables but the topmost one lie in RAM, 64 KiB apart. */
#define ARM64_BLOCK	(BIT(0) | BIT(10) | GENMASK_ULL(52, 50) | BIT_ULL(54))
#define ARM64_TABLES	(1UL << 20)

/* Where the program's first page is if pages are larger, and the size of arm64's struct pt_regs. */
#define ARM64_PROGRAM	(10UL << 20)
#define ARM64_PT_REGS	336

/**
 * struct fake_arm64 - a guest of arm64
 * @name:	what is special about it
 * @shift:	log2 of the size of its pages
 * @va_bits:	how many bits its tables can translate
 * @used_bits:	how many bits its CPU translates
 * @ram:	guest-physical address of its RAM
 */
struct fake_arm64 {
	const char	*name;
	unsigned int	shift;
	unsigned int	va_bits;
	unsigned int	used_bits;
	u64		ram;
};

/* The first one is the usual one; the last one has no name. */
extern const struct fake_arm64 fake_arm64_guests[];

/* The guest's RAM, and the kernel that was made last. */
extern u8 *fake_ram;
extern struct fake_kernel fake_kernel;

u64 fake__offset(u64 at);
void fake__put(u64 at, const void *data, size_t size);
void fake__put_u32(u64 at, u32 value);
void fake__put_u64(u64 at, u64 value);
void fake__change_info(const char *from, const char *to);
void fake__put_page(u64 gpa, u64 mapping, u64 index);
void fake__put_release(size_t len);
char *fake__put_other_info(u64 gpa, char digit, const char *tables);
void fake__make_contents(const struct fake_kernel *kernel);
void fake__make_kernel(const struct fake_kernel *kernel);
void fake__change(const struct fake_guest *guest);
void fake__make(const struct fake_guest *guest);
void fake__make_usual(void);
void fake__make_program(void);
void fake__make_vdso(void);
void fake__move_vdso(void);
void fake__make_jit(const char *name, const char *text, size_t size);
void fake__make_arm64(const struct fake_arm64 *guest);
void fake__make_arm64_program(u64 relocs, bool bti);
size_t fake__print_kallsyms(char *text, size_t size, bool modules);

/* Compare what perf has written, see fake-guest-files.c. */
enum guest_files fake__find(const char *dir);
bool fake__write_text(const char *path, const char *text);
char *fake__read_file(const char *dir, const char *name, size_t *size);
bool fake__has_file(const char *dir, const char *name);
bool fake__has_text(const char *dir, const char *name, const char *expected);
bool fake__has_changed(const char *dir, const char *name, const char *usual,
		       const struct fake_guest *guest);
bool fake__has_names(const char *dir);
bool fake__has_tables(const char *dir);
bool fake__has_module_tables(const char *dir);
bool fake__has_build_id(const char *dir, const char *name, const char *expected);

int fake__run_test(struct test_suite *test, int subtest);
int fake__run_btf_test(struct test_suite *test, int subtest);

/* Subtests; the function gets the path of a new directory.  The second kind needs BTF. */
#define FAKE_GUEST_TEST(_desc, _run)							\
	{										\
		.name = #_run, .desc = _desc, .run_case = fake__run_test, .priv = _run,	\
		.skip_reason = "perf can't read guests on such a host",			\
	}

#define FAKE_GUEST_BTF_TEST(_desc, _run)						\
	{										\
		.name = #_run, .desc = _desc, .run_case = fake__run_btf_test, .priv = _run, \
		.skip_reason = "no libbpf, or perf can't read guests on such a host",	\
	}

#endif /* __PERF_TESTS_FAKE_GUEST_H */
