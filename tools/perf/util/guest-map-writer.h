/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_MAP_WRITER_H
#define __PERF_GUEST_MAP_WRITER_H

#include <stdbool.h>
#include <stdio.h>
#include <linux/types.h>

struct btf;
struct guest_kernel;
struct guest_map_writer;

struct guest_map_writer *guest_map_writer__new(struct guest_kernel *kernel, const struct btf *btf,
					       u64 vmemmap, FILE *file, const char *dir);
char *guest_map_writer__read(struct guest_map_writer *maps, u64 mm);
void guest_map_writer__note(struct guest_map_writer *maps, u64 root, u32 pid, u64 time,
			    const char *files);
bool guest_map_writer__has_jit(const char *files);
void guest_map_writer__note_jit(struct guest_map_writer *maps, u64 fds, u64 own, u64 root,
				u32 pid);
bool guest_map_writer__write_programs(struct guest_map_writer *maps);
void guest_map_writer__retry_programs(struct guest_map_writer *maps);
void guest_map_writer__delete(struct guest_map_writer *maps);

#endif /* __PERF_GUEST_MAP_WRITER_H */
