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

/* The function receives the page's offset in RAM, for guest_memory__read_ram(). */
typedef bool (*guest_page_fn)(struct guest_memory *mem, u64 offset, void *arg);

struct guest_memory *guest_memory__open(pid_t pid);
void guest_memory__close(struct guest_memory *mem);
bool guest_memory__find(struct guest_memory *mem, const char *prefix, guest_page_fn found,
			void *arg);
void guest_memory__forget(struct guest_memory *mem);
void guest_memory__begin(struct guest_memory *mem);
void guest_memory__refresh(struct guest_memory *mem);
bool guest_memory__read_ram(struct guest_memory *mem, u64 offset, void *buf, size_t size);
bool guest_memory__use_tables(struct guest_memory *mem, u64 root, u64 gva, bool la57);
bool guest_memory__use_next_layout(struct guest_memory *mem);
bool guest_memory__read(struct guest_memory *mem, u64 gva, void *buf, size_t size);
bool guest_memory__read_page(struct guest_memory *mem, u64 pfn, void *page);
bool guest_memory__is_exhausted(const struct guest_memory *mem);
char *guest_memory__read_string(struct guest_memory *mem, u64 gva, size_t max);

#endif /* __PERF_GUEST_MEMORY_H */
