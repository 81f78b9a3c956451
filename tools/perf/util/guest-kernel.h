/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_KERNEL_H
#define __PERF_GUEST_KERNEL_H

#include <stdbool.h>
#include <sys/types.h>
#include <linux/types.h>

struct guest_memory;
struct guest_modules;

#define GUEST_RELEASE_SIZE	65

/* The size of a SHA-1, which linkers use. */
#define GUEST_BUILD_ID_SIZE	20

/**
 * struct guest_symbol - a symbol of a guest
 * @addr:	its address
 * @type:	its type, as nm prints it
 * @name:	its name
 */
struct guest_symbol {
	u64	addr;
	char	type;
	char	*name;
};

/**
 * struct guest_vmcoreinfo - the parts of the VMCOREINFO of a guest's kernel that perf reads
 * @release:	the release, as uname -r prints it
 * @build_id:	build-id of the kernel's image
 * @build_id_size: size of @build_id in bytes; zero if there is none
 * @page_tables: virtual address of the topmost page table
 * @is_arm64:	true for arm64, false for x86-64
 * @page_shift:	log2 of the size of a page
 * @va_bits:	how many bits of an address arm64's CPU translates; here and in the next three, zero
 *		for x86-64, whose kernels have variables for what perf needs
 * @phys_offset: guest-physical address at which the direct map of RAM begins
 * @page_offset: virtual address at which it begins
 * @vmemmap:	address of the first struct page; zero if VMCOREINFO has none
 * @stext:	address at which the kernel's code begins; here and below, zero if VMCOREINFO has
 *		none
 * @names:	address of kallsyms' names, which are compressed
 * @num_syms:	... of the number of symbols
 * @token_table: ... of the strings for which the bytes of names stand
 * @token_index: ... of the index of each string in @token_table
 * @offsets:	... of the offsets from which the symbols' addresses are computed
 * @relative_base: ... of the base of @offsets; guest_kallsyms__read() puts the base itself here
 */
struct guest_vmcoreinfo {
	char	release[GUEST_RELEASE_SIZE];
	u8	build_id[GUEST_BUILD_ID_SIZE];
	u32	build_id_size;
	u64	page_tables;
	bool	is_arm64;
	u32	page_shift;
	u32	va_bits;
	u64	phys_offset;
	u64	page_offset;
	u64	vmemmap;
	u64	stext;
	u64	names;
	u64	num_syms;
	u64	token_table;
	u64	token_index;
	u64	offsets;
	u64	relative_base;
};

/**
 * struct guest_kernel - the kernel of a guest, as found in the guest's memory
 * @mem:	the guest's memory
 * @info:	from the kernel's VMCOREINFO
 * @symbols:	symbols of the kernel, without those of modules
 * @nr_symbols:	number of symbols
 * @jiffies_addr: address of jiffies_64; zero if that isn't known
 * @jiffies:	value of jiffies_64 when it was last read
 * @modules:	the modules that perf has written to files; NULL before guest_modules__write()
 * @free_modules: frees them
 */
struct guest_kernel {
	struct guest_memory	*mem;
	struct guest_vmcoreinfo	info;
	struct guest_symbol	*symbols;
	size_t			nr_symbols;
	u64			jiffies_addr;
	u64			jiffies;
	struct guest_modules	*modules;
	void			(*free_modules)(struct guest_modules *modules);
};

struct guest_kernel *guest_kernel__find(pid_t pid, const struct guest_kernel *but,
					const char **why_not);
void guest_kernel__free_symbols(struct guest_kernel *kernel);
void guest_kernel__delete(struct guest_kernel *kernel);
s64 guest_kernel__ticks(struct guest_kernel *kernel);
bool guest_kernel__is_running(struct guest_kernel *kernel);
const struct guest_symbol *guest_kernel__symbol(const struct guest_kernel *kernel,
						const char *name);
const char *guest_kernel__why_no_data(const struct guest_kernel *kernel);
const char *guest_kallsyms__read(struct guest_kernel *kernel);
bool guest_kallsyms__search(struct guest_kernel *kernel);

#endif /* __PERF_GUEST_KERNEL_H */
