/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_KERNEL_H
#define __PERF_GUEST_KERNEL_H

#include <stdbool.h>
#include <sys/types.h>
#include <linux/types.h>

struct guest_memory;
struct guest_modules;

#define GUEST_RELEASE_SIZE	65

/* SHA-1, as linkers write it. */
#define GUEST_BUILD_ID_SIZE	20

/**
 * struct guest_symbol - a symbol of a guest
 * @addr:	its address
 * @type:	as nm tells it
 * @name:	its name
 */
struct guest_symbol {
	u64	addr;
	char	type;
	char	*name;
};

/**
 * struct guest_vmcoreinfo - what a guest's kernel tells those that read its memory
 * @release:	as uname -r
 * @build_id:	of its image
 * @build_id_size: ... in bytes
 * @page_tables: where it has the topmost of them
 * @stext:	where its code begins; zero for what is not told, here and below
 * @names:	kallsyms: names, compressed
 * @num_syms:	... how many
 * @token_table: ... what each of their bytes stands for
 * @token_index: ... where that is in @token_table
 * @offsets:	... addresses
 * @relative_base: ... what they are relative to
 */
struct guest_vmcoreinfo {
	char	release[GUEST_RELEASE_SIZE];
	u8	build_id[GUEST_BUILD_ID_SIZE];
	u32	build_id_size;
	u64	page_tables;
	u64	stext;
	u64	names;
	u64	num_syms;
	u64	token_table;
	u64	token_index;
	u64	offsets;
	u64	relative_base;
};

/**
 * struct guest_kernel - the kernel of a guest, as its memory shows it
 * @mem:	the memory
 * @info:	what the kernel tells
 * @symbols:	those of the kernel, without modules
 * @nr_symbols:	how many
 * @jiffies_addr: where it counts its ticks; zero if that isn't known
 * @jiffies:	as last seen
 * @modules:	those that were written; NULL if none is known
 */
struct guest_kernel {
	struct guest_memory	*mem;
	struct guest_vmcoreinfo	info;
	struct guest_symbol	*symbols;
	size_t			nr_symbols;
	u64			jiffies_addr;
	u64			jiffies;
	struct guest_modules	*modules;
};

struct guest_kernel *guest_kernel__find(pid_t pid, const struct guest_kernel *but,
					const char **why_not);
void guest_kernel__free_symbols(struct guest_kernel *kernel);
void guest_kernel__delete(struct guest_kernel *kernel);
s64 guest_kernel__ticks(struct guest_kernel *kernel);
bool guest_kernel__is_running(struct guest_kernel *kernel);
const struct guest_symbol *guest_kernel__symbol(const struct guest_kernel *kernel,
						const char *name);
const char *guest_kallsyms__read(struct guest_kernel *kernel);

#endif /* __PERF_GUEST_KERNEL_H */
