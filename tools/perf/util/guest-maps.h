/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_MAPS_H
#define __PERF_GUEST_MAPS_H

#include <stdio.h>
#include <linux/types.h>

struct btf;
struct guest_maps;
struct guest_memory;

struct guest_maps *guest_maps__new(struct guest_memory *mem, const struct btf *btf, u64 vmemmap,
				   FILE *file);
char *guest_maps__read(struct guest_maps *maps, u64 mm);
void guest_maps__note(struct guest_maps *maps, u64 root, u32 pid, u64 time, const char *files);
void guest_maps__delete(struct guest_maps *maps);

#endif /* __PERF_GUEST_MAPS_H */
