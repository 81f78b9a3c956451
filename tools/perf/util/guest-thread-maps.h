/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_THREAD_MAPS_H
#define __PERF_GUEST_THREAD_MAPS_H

#include <stdbool.h>
#include <stdio.h>
#include <linux/types.h>

struct guest_thread_maps;
struct machine;
struct thread;

struct guest_thread_maps *guest_thread_maps__load(FILE *file);
void guest_thread_maps__use(struct guest_thread_maps *maps, struct machine *machine,
			    struct thread *thread, u64 root, u32 pid, u64 time);
bool guest_thread_maps__lacks(const struct guest_thread_maps *maps, u64 root, u32 pid, u64 time,
			      u64 addr);
void guest_thread_maps__delete(struct guest_thread_maps *maps);

#endif /* __PERF_GUEST_THREAD_MAPS_H */
