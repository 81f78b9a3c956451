/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_MAP_READER_H
#define __PERF_GUEST_MAP_READER_H

#include <stdbool.h>
#include <stdio.h>
#include <linux/time64.h>
#include <linux/types.h>

/*
 * perf record looks at a guest's tasks about once a second.  A task that is first seen after a
 * sample may have been there at the time of the sample.  If more time than this has passed in
 * between, assume that it was not.
 */
#define GUEST_MAX_LATE	(2 * NSEC_PER_SEC)

struct guest_map_reader;
struct machine;
struct thread;

struct guest_map_reader *guest_map_reader__load(FILE *file);
void guest_map_reader__use(struct guest_map_reader *maps, struct machine *machine,
			   struct thread *thread, u64 root, u32 pid, u64 time);
bool guest_map_reader__lacks(const struct guest_map_reader *maps, u64 root, u32 pid, u64 time,
			     u64 addr);
void guest_map_reader__delete(struct guest_map_reader *maps);

#endif /* __PERF_GUEST_MAP_READER_H */
