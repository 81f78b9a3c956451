/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_PROGRAM_H
#define __PERF_GUEST_PROGRAM_H

#include <stdbool.h>
#include <stdio.h>
#include <linux/types.h>

struct build_id;
struct guest_page_cache;

/* In place of a number of missing pages: nothing was written. */
#define GUEST_PROGRAM_NONE	-1

bool guest_program__read_build_id(const struct guest_page_cache *cache, u64 mapping,
				  struct build_id *build_id);
int guest_program__write(const struct guest_page_cache *cache, u64 mapping,
			 const struct build_id *build_id, FILE *file, u64 *content);

#endif /* __PERF_GUEST_PROGRAM_H */
