/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_TASK_WRITER_H
#define __PERF_GUEST_TASK_WRITER_H

#include <stdio.h>
#include <linux/compiler.h>
#include <linux/types.h>

struct guest_kernel;
struct guest_task_writer;

#ifdef HAVE_LIBBPF_SUPPORT
struct guest_task_writer *guest_task_writer__new(struct guest_kernel *kernel, FILE *file,
						 FILE *maps, const char *dir);
bool guest_task_writer__update(struct guest_task_writer *tasks, u64 time);
void guest_task_writer__look_for_new(struct guest_task_writer *tasks, u64 time);
bool guest_task_writer__has_new(const struct guest_task_writer *tasks, u64 time);
bool guest_task_writer__is_unsettled(const struct guest_task_writer *tasks);
void guest_task_writer__finish(struct guest_task_writer *tasks);
void guest_task_writer__delete(struct guest_task_writer *tasks);
#else
static inline struct guest_task_writer *
guest_task_writer__new(struct guest_kernel *kernel __maybe_unused, FILE *file __maybe_unused,
		       FILE *maps __maybe_unused, const char *dir __maybe_unused)
{
	return NULL;
}

static inline bool guest_task_writer__update(struct guest_task_writer *tasks __maybe_unused,
					     u64 time __maybe_unused)
{
	return false;
}

static inline void
guest_task_writer__look_for_new(struct guest_task_writer *tasks __maybe_unused,
				u64 time __maybe_unused)
{
}

static inline bool
guest_task_writer__has_new(const struct guest_task_writer *tasks __maybe_unused,
			   u64 time __maybe_unused)
{
	return false;
}

static inline bool
guest_task_writer__is_unsettled(const struct guest_task_writer *tasks __maybe_unused)
{
	return false;
}

static inline void guest_task_writer__finish(struct guest_task_writer *tasks __maybe_unused) {}

static inline void guest_task_writer__delete(struct guest_task_writer *tasks __maybe_unused) {}
#endif

#endif /* __PERF_GUEST_TASK_WRITER_H */
