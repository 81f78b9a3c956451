// SPDX-License-Identifier: GPL-2.0
/*
 * Find the Linux kernel of a guest in the guest's memory.  Linux keeps a page, VMCOREINFO, for
 * tools that read its memory after a crash, see Documentation/admin-guide/kdump/vmcoreinfo.rst.
 * The guest may have written anything there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/zalloc.h>

#include "debug.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-policy.h"

/* x86-64 has its kernel above this address, with or without KASLR. */
#define START_KERNEL_MAP	0xffffffff80000000ULL

/* VMCOREINFO begins with this key. */
#define RELEASE			"OSRELEASE="

/* A reset does not clear RAM, so pages of earlier kernels may still be there. */
#define MAX_CANDIDATES		8

/* What to do if a kernel can't be read. */
#define USE_KALLSYMS		"name its functions by --guestkallsyms"

/* The jiffies of a kernel that serves timers advance within ten looks. */
#define NR_LOOKS		10
#define LOOK_NSEC		20000000

/**
 * struct candidates - kernels that were found in a guest's memory
 * @but:	a kernel to leave out; may be NULL
 * @infos:	the identity of each of them
 * @pages:	where each of them has VMCOREINFO
 * @nr:		number of kernels
 * @has_32bit:	there is VMCOREINFO of a 32-bit kernel, too
 */
struct candidates {
	const struct guest_kernel	*but;
	struct guest_vmcoreinfo		infos[MAX_CANDIDATES];
	u64				pages[MAX_CANDIDATES];
	unsigned int			nr;
	bool				has_32bit;
};

/*
 * Find the value of @key.  @key includes the line feed before it and the "=", so one strstr() is
 * enough: it takes one quick pass, whatever the guest has written to the page.
 */
static const char *find_value(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	return line ? line + strlen(key) : NULL;
}

static u64 find_number(const char *text, const char *key, int base)
{
	const char *value = find_value(text, key);

	return value ? strtoull(value, NULL, base) : 0;
}

/* Read the release.  Refuse what is not safe in a file name. */
static bool read_release(struct guest_vmcoreinfo *info, const char *text)
{
	const char *value = text + strlen(RELEASE);
	size_t len;

	if (strncmp(text, RELEASE, strlen(RELEASE)))
		return false;
	len = strspn(value, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-._~");
	if (!len || len >= sizeof(info->release) || value[len] != '\n' || *value == '.')
		return false;
	memcpy(info->release, value, len);
	info->release[len] = 0;
	return true;
}

/* Read the build-id; a kernel without one writes zeroes. */
static void read_build_id(struct guest_vmcoreinfo *info, const char *text)
{
	const char *value = find_value(text, "\nBUILD-ID=");
	unsigned int byte, any = 0;

	info->build_id_size = 0;
	if (!value || strspn(value, "0123456789abcdef") != 2 * GUEST_BUILD_ID_SIZE)
		return;
	for (size_t i = 0; i < GUEST_BUILD_ID_SIZE; i++) {
		if (sscanf(&value[2 * i], "%2x", &byte) != 1)
			break;
		info->build_id[i] = byte;
		any |= byte;
	}
	if (any)
		info->build_id_size = GUEST_BUILD_ID_SIZE;
}

/*
 * Find a kernel's page tables by its VMCOREINFO, the page in @text.  Of the two architectures, only
 * arm64 has kimage_voffset there.  A guest can make perf read its tables in the other
 * architecture's format, and gains nothing by that.  Return false for sizes of pages and addresses
 * that Linux does not use.
 */
static bool find_page_tables(const char *text, struct guest_page_tables *tables)
{
	u64 voffset = find_number(text, "\nNUMBER(kimage_voffset)=", 16);
	u64 page_size, txsz;

	tables->gva = find_number(text, "\nSYMBOL(swapper_pg_dir)=", 16);
	tables->is_arm64 = voffset;
	if (!voffset) {
		tables->root = tables->gva - START_KERNEL_MAP +
			       find_number(text, "\nNUMBER(phys_base)=", 10);
		tables->page_shift = GUEST_PAGE_SHIFT;
		tables->va_bits = find_number(text, "\nNUMBER(pgtable_l5_enabled)=", 10) ? 57 : 48;
		return true;
	}

	page_size = find_number(text, "\nPAGESIZE=", 10);
	txsz = find_number(text, "\nNUMBER(TCR_EL1_T1SZ)=", 16);
	if ((page_size != 4096 && page_size != 16384 && page_size != 65536) ||
	    txsz < 12 || txsz > 39)
		return false;

	tables->root = tables->gva - voffset;
	tables->page_shift = ilog2(page_size);
	tables->va_bits = 64 - txsz;
	/*
	 * With pages of 64 KiB, the topmost table has entries for VA_BITS.  A CPU that translates
	 * fewer bits uses the end of that table, where the upper bits of the index are all set, as
	 * they are in addresses of the kernel.
	 */
	if (page_size == 65536 && find_number(text, "\nNUMBER(VA_BITS)=", 10) == 52)
		tables->va_bits = 52;
	return true;
}

/*
 * Return true if the page at @offset is the VMCOREINFO of a kernel whose page tables are in memory.
 * Copy the page to @text, and put what identifies the kernel into @info.
 */
static bool read_identity(struct guest_memory *mem, u64 offset, struct guest_vmcoreinfo *info,
			  char text[GUEST_PAGE_SIZE + 1])
{
	struct guest_page_tables tables;

	text[GUEST_PAGE_SIZE] = 0;
	if (!guest_memory__read_ram(mem, offset, text, GUEST_PAGE_SIZE) ||
	    !read_release(info, text) || !find_page_tables(text, &tables) ||
	    !guest_memory__use_tables(mem, &tables))
		return false;

	info->page_tables = tables.gva;
	info->is_arm64 = tables.is_arm64;
	info->page_shift = tables.page_shift;
	info->stext = find_number(text, "\nSYMBOL(_stext)=", 16);
	return true;
}

/*
 * Find where an arm64 kernel has its direct map and its array of struct page.  The direct map
 * begins at the lowest address of VA_BITS, whether or not the CPU translates as many.
 */
static void read_regions(struct guest_vmcoreinfo *info, const char *text)
{
	u64 va_bits = find_number(text, "\nNUMBER(VA_BITS)=", 10);

	info->va_bits = 0;
	info->phys_offset = 0;
	info->page_offset = 0;
	info->vmemmap = 0;
	if (!info->is_arm64 || !va_bits || va_bits > 63)
		return;

	info->va_bits = 64 - find_number(text, "\nNUMBER(TCR_EL1_T1SZ)=", 16);
	info->phys_offset = find_number(text, "\nNUMBER(PHYS_OFFSET)=", 16);
	info->page_offset = GENMASK_ULL(63, va_bits);
	info->vmemmap = find_number(text, "\nNUMBER(VMEMMAP_START)=", 16);
}

/* As read_identity(), but read all of VMCOREINFO that perf uses. */
static bool read_vmcoreinfo(struct guest_memory *mem, u64 offset, struct guest_vmcoreinfo *info)
{
	char text[GUEST_PAGE_SIZE + 1];

	if (!read_identity(mem, offset, info, text))
		return false;

	read_build_id(info, text);
	read_regions(info, text);
	info->names = find_number(text, "\nSYMBOL(kallsyms_names)=", 16);
	info->num_syms = find_number(text, "\nSYMBOL(kallsyms_num_syms)=", 16);
	info->token_table = find_number(text, "\nSYMBOL(kallsyms_token_table)=", 16);
	info->token_index = find_number(text, "\nSYMBOL(kallsyms_token_index)=", 16);
	info->offsets = find_number(text, "\nSYMBOL(kallsyms_offsets)=", 16);
	info->relative_base = find_number(text, "\nSYMBOL(kallsyms_relative_base)=", 16);
	return true;
}

/* Return true if the first entry of the list at symbol @name points back to the list's head. */
static bool is_list(const struct guest_kernel *kernel, const char *name)
{
	const struct guest_symbol *head = guest_kernel__symbol(kernel, name);
	u64 next, prev;

	return head && guest_memory__read(kernel->mem, head->addr, &next, sizeof(next)) &&
	       guest_memory__read(kernel->mem, next + sizeof(next), &prev, sizeof(prev)) &&
	       prev == head->addr;
}

/* Modules may be anywhere in RAM: choose a layout by which their list points back to its head. */
static void settle_layout(struct guest_kernel *kernel)
{
	while (!is_list(kernel, "modules") && guest_memory__use_next_layout(kernel->mem))
		;
}

static bool is_same_kernel(const struct guest_vmcoreinfo *a, const struct guest_vmcoreinfo *b)
{
	return a->page_tables == b->page_tables && a->stext == b->stext;
}

/* Return true if this is VMCOREINFO of a kernel whose addresses have 32 bits. */
static bool is_32bit(const char *text)
{
	u64 tables = find_number(text, "\nSYMBOL(swapper_pg_dir)=", 16);
	u64 stext = find_number(text, "\nSYMBOL(_stext)=", 16);

	return tables && stext && !(tables >> 32) && !(stext >> 32);
}

static bool note_candidate(struct guest_memory *mem, u64 offset, void *arg)
{
	struct candidates *found = arg;
	struct guest_vmcoreinfo *info = &found->infos[found->nr];
	char text[GUEST_PAGE_SIZE + 1] = "";

	if (found->nr == MAX_CANDIDATES)
		return true;
	if (!read_identity(mem, offset, info, text)) {
		found->has_32bit |= is_32bit(text);
		return found->nr;
	}

	/* Skip copies of a page. */
	for (unsigned int i = 0; i < found->nr; i++) {
		if (is_same_kernel(info, &found->infos[i]))
			return true;
	}
	if (!found->but || !is_same_kernel(info, &found->but->info))
		found->pages[found->nr++] = offset;
	return true;
}

/**
 * guest_kernel__free_symbols - free the symbols of a kernel
 * @kernel: the kernel
 */
void guest_kernel__free_symbols(struct guest_kernel *kernel)
{
	for (size_t i = 0; i < kernel->nr_symbols; i++)
		free(kernel->symbols[i].name);
	free(kernel->symbols);
	kernel->symbols = NULL;
	kernel->nr_symbols = 0;
}

/* Read the kernel whose VMCOREINFO is at @page; return NULL, or why that failed. */
static const char *use_candidate(struct guest_kernel *kernel, u64 page)
{
	const struct guest_symbol *jiffies;
	const char *why_not;

	guest_kernel__free_symbols(kernel);
	guest_memory__begin(kernel->mem);
	if (!read_vmcoreinfo(kernel->mem, page, &kernel->info))
		return "its kernel is gone";
	why_not = guest_kallsyms__read(kernel);
	if (why_not)
		return why_not;

	settle_layout(kernel);
	jiffies = guest_kernel__symbol(kernel, "jiffies_64");
	kernel->jiffies_addr = jiffies ? jiffies->addr : 0;
	guest_kernel__ticks(kernel);
	return NULL;
}

/**
 * guest_kernel__find - find the kernel of a guest, and its symbols
 * @pid:	pid of the guest's VMM
 * @but:	a kernel to leave out; may be NULL
 * @why_not:	receives the reason if no kernel is found
 *
 * Return: the kernel, or NULL.
 */
struct guest_kernel *guest_kernel__find(pid_t pid, const struct guest_kernel *but,
					const char **why_not)
{
	struct guest_kernel *kernel = zalloc(sizeof(*kernel));
	struct candidates candidates = { .but = but };
	unsigned int first = MAX_CANDIDATES;

	*why_not = "perf is out of memory";
	if (!kernel)
		return NULL;

	*why_not = "perf can do that on hosts of x86-64, and of arm64 with pages of 4 KiB, only";
	if (!guest_memory__is_supported())
		goto err;

	*why_not = guest_policy__refusal(pid);
	if (*why_not)
		goto err;

	kernel->mem = guest_memory__open(pid);
	if (!kernel->mem ||
	    !guest_memory__find(kernel->mem, RELEASE, note_candidate, &candidates)) {
		if (errno == EACCES || errno == EPERM)
			*why_not = "you may not trace its VMM";
		else if (errno)
			*why_not = "its VMM has no memory that can be read";
		else if (candidates.has_32bit)
			*why_not = "only a kernel of 32 bits is found, which perf can't read; "
				   USE_KALLSYMS;
		else
			*why_not = "no Linux kernel is found in its memory; " USE_KALLSYMS;
		goto err;
	}

	*why_not = "no other kernel is found in its memory";
	/*
	 * Use the first kernel that is seen to run.  If none is, or if there is only one, use the
	 * first one that can be read.
	 */
	for (unsigned int i = 0; i < candidates.nr; i++) {
		*why_not = use_candidate(kernel, candidates.pages[i]);
		if (!*why_not && (candidates.nr == 1 || guest_kernel__is_running(kernel)))
			goto found;
		if (!*why_not)
			first = min(first, i);
	}
	if (first < candidates.nr)
		*why_not = use_candidate(kernel, candidates.pages[first]);
	if (*why_not)
		goto err;
found:
	/* Reading modules and tables takes more than the budget of one look. */
	guest_memory__begin(kernel->mem);
	return kernel;
err:
	guest_kernel__delete(kernel);
	return NULL;
}

void guest_kernel__delete(struct guest_kernel *kernel)
{
	if (!kernel)
		return;

	if (kernel->modules)
		kernel->free_modules(kernel->modules);
	guest_kernel__free_symbols(kernel);
	guest_memory__close(kernel->mem);
	free(kernel);
}

/**
 * guest_kernel__ticks - count the ticks of a guest's kernel since the last call
 * @kernel: the guest's kernel
 *
 * Return: the number of ticks; zero if the kernel sleeps or is gone; negative if it has begun to
 * count anew.
 */
s64 guest_kernel__ticks(struct guest_kernel *kernel)
{
	u64 last = kernel->jiffies;

	guest_memory__glance(kernel->mem);
	if (!kernel->jiffies_addr ||
	    !guest_memory__read(kernel->mem, kernel->jiffies_addr, &kernel->jiffies,
				sizeof(kernel->jiffies)))
		return 0;
	return kernel->jiffies - last;
}

/**
 * guest_kernel__is_running - check whether the guest runs this kernel
 * @kernel: the guest's kernel
 *
 * Return: true if the kernel's jiffies advanced within 200 ms.  They also stand still while the
 * guest is paused, or idle without ticks.
 */
bool guest_kernel__is_running(struct guest_kernel *kernel)
{
	const struct timespec interval = { .tv_nsec = LOOK_NSEC };

	for (unsigned int i = 0; i < NR_LOOKS; i++) {
		nanosleep(&interval, NULL);
		if (guest_kernel__ticks(kernel) > 0)
			return true;
	}
	return false;
}

/**
 * guest_kernel__symbol - look for a symbol of the kernel
 * @kernel:	the kernel
 * @name:	name of the symbol
 *
 * Return: the first one of that name, NULL if there is none.
 */
const struct guest_symbol *guest_kernel__symbol(const struct guest_kernel *kernel,
						const char *name)
{
	for (size_t i = 0; i < kernel->nr_symbols; i++) {
		if (!strcmp(kernel->symbols[i].name, name))
			return &kernel->symbols[i];
	}
	return NULL;
}

/**
 * guest_kernel__why_no_data - tell why perf doesn't find the kernel's structures
 * @kernel: the kernel, with its symbols
 *
 * Return: the reason; if there is no other, that BTF lacks a structure or a field.
 */
const char *guest_kernel__why_no_data(const struct guest_kernel *kernel)
{
#ifndef HAVE_LIBBPF_SUPPORT
	return "perf was built without libbpf, which reads BTF";
#endif
	if (!guest_kernel__symbol(kernel, "init_task"))
		return "its kernel's symbols don't tell where its data is (CONFIG_KALLSYMS_ALL)";
	if (!guest_kernel__symbol(kernel, "__start_BTF"))
		return "its kernel has no BTF, which tells where they are";
	return "its kernel's BTF does not describe them";
}
