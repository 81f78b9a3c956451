/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_JIT_WRITER_H
#define __PERF_GUEST_JIT_WRITER_H

#include <linux/types.h>

struct btf;
struct guest_jit_writer;
struct guest_page_cache;

struct guest_jit_writer *guest_jit_writer__new(const struct guest_page_cache *cache,
					       const struct btf *btf, const char *dir);
void guest_jit_writer__note(struct guest_jit_writer *jits, u64 files, u64 own, u64 root, u32 pid);
void guest_jit_writer__delete(struct guest_jit_writer *jits);

#endif /* __PERF_GUEST_JIT_WRITER_H */
