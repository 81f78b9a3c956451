/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_MEMORY_H
#define __PERF_GUEST_MEMORY_H

#include <stdbool.h>
#include <sys/types.h>
#include <linux/types.h>

#define GUEST_PAGE_SHIFT	12
#define GUEST_PAGE_SIZE		(1ULL << GUEST_PAGE_SHIFT)
#define GUEST_PAGE_MASK		(~(GUEST_PAGE_SIZE - 1))

struct guest_memory;

/**
 * struct guest_page_tables - the page tables of a guest's kernel
 * @root:	guest-physical address of the topmost one
 * @gva:	virtual address of the topmost one
 * @is_arm64:	they are arm64's, otherwise x86-64's
 * @page_shift:	log2 of the size of a page: 12, 14 or 16
 * @va_bits:	how many bits of a virtual address are translated: 25 to 57
 */
struct guest_page_tables {
	u64		root;
	u64		gva;
	bool		is_arm64;
	unsigned int	page_shift;
	unsigned int	va_bits;
};

/* The function receives the page's offset in RAM, for guest_memory__read_ram(). */
typedef bool (*guest_page_fn)(struct guest_memory *mem, u64 offset, void *arg);

bool guest_memory__is_supported(void);
struct guest_memory *guest_memory__open(pid_t pid);
void guest_memory__close(struct guest_memory *mem);
bool guest_memory__find(struct guest_memory *mem, const char *prefix, guest_page_fn found,
			void *arg);
void guest_memory__forget(struct guest_memory *mem);
void guest_memory__begin(struct guest_memory *mem);
void guest_memory__refresh(struct guest_memory *mem);
void guest_memory__glance(struct guest_memory *mem);
bool guest_memory__spend(struct guest_memory *mem, size_t size);
bool guest_memory__read_ram(struct guest_memory *mem, u64 offset, void *buf, size_t size);
bool guest_memory__use_tables(struct guest_memory *mem, const struct guest_page_tables *tables);
bool guest_memory__use_next_layout(struct guest_memory *mem);
bool guest_memory__read(struct guest_memory *mem, u64 gva, void *buf, size_t size);
bool guest_memory__read_page(struct guest_memory *mem, u64 pfn, void *page);
bool guest_memory__is_exhausted(const struct guest_memory *mem);
char *guest_memory__read_string(struct guest_memory *mem, u64 gva, size_t max);

#endif /* __PERF_GUEST_MEMORY_H */
