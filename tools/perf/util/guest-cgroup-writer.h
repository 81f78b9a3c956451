/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_CGROUP_WRITER_H
#define __PERF_GUEST_CGROUP_WRITER_H

#include <stdbool.h>
#include <linux/types.h>

struct btf;
struct guest_cgroup_writer;
struct guest_memory;

struct guest_cgroup_writer *guest_cgroup_writer__new(struct guest_memory *mem,
						     const struct btf *btf, const char *dir);
void guest_cgroup_writer__delete(struct guest_cgroup_writer *cgroups);
bool guest_cgroup_writer__note(struct guest_cgroup_writer *cgroups, u64 css_set);

#endif /* __PERF_GUEST_CGROUP_WRITER_H */
