/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_PROGRAM_H
#define __PERF_GUEST_PROGRAM_H

#include <stdbool.h>
#include <stdio.h>
#include <linux/types.h>

struct guest_page_cache;

/* What was written of a program: nothing; not all, as pages are missing; all. */
enum guest_program { GUEST_PROGRAM_NONE, GUEST_PROGRAM_PART, GUEST_PROGRAM_WHOLE };

size_t guest_program__read_build_id(const struct guest_page_cache *cache, u64 mapping,
				    u8 *build_id);
enum guest_program guest_program__write(const struct guest_page_cache *cache, u64 mapping,
					FILE *file);

#endif /* __PERF_GUEST_PROGRAM_H */
