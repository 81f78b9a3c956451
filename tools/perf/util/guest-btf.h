/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_BTF_H
#define __PERF_GUEST_BTF_H

#include <stdbool.h>
#include <linux/types.h>

struct btf;
struct guest_kernel;

struct btf *guest_btf__read(struct guest_kernel *kernel);
int guest_btf__find(const struct btf *btf, int id, const char *name, u32 *offset);
bool guest_btf__find_field(const struct btf *btf, const char *type, const char *outer,
			   const char *inner, u32 *offset);

#endif /* __PERF_GUEST_BTF_H */
