/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_MAPS_H
#define __PERF_GUEST_MAPS_H

#include <stdio.h>
#include <linux/types.h>

struct btf;
struct guest_maps;
struct guest_memory;

struct guest_maps *guest_maps__new(struct guest_memory *mem, const struct btf *btf, FILE *file);
char *guest_maps__read(struct guest_maps *maps, u64 mm, u64 root);
void guest_maps__note(struct guest_maps *maps, u64 root, u32 pid, u64 time, const char *files);
void guest_maps__delete(struct guest_maps *maps);

#endif /* __PERF_GUEST_MAPS_H */
