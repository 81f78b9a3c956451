/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_TASKS_H
#define __PERF_GUEST_TASKS_H

#include <stdio.h>
#include <linux/compiler.h>
#include <linux/types.h>

struct guest_kernel;
struct guest_tasks;

#ifdef HAVE_LIBBPF_SUPPORT
struct guest_tasks *guest_tasks__new(struct guest_kernel *kernel, FILE *file, FILE *maps);
bool guest_tasks__update(struct guest_tasks *tasks, u64 time);
bool guest_tasks__are_unsettled(const struct guest_tasks *tasks);
void guest_tasks__delete(struct guest_tasks *tasks);
#else
static inline struct guest_tasks *guest_tasks__new(struct guest_kernel *kernel __maybe_unused,
						   FILE *file __maybe_unused,
						   FILE *maps __maybe_unused)
{
	return NULL;
}

static inline bool guest_tasks__update(struct guest_tasks *tasks __maybe_unused,
				       u64 time __maybe_unused)
{
	return false;
}

static inline bool guest_tasks__are_unsettled(const struct guest_tasks *tasks __maybe_unused)
{
	return false;
}

static inline void guest_tasks__delete(struct guest_tasks *tasks __maybe_unused) {}
#endif

#endif /* __PERF_GUEST_TASKS_H */
