/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_MODULES_H
#define __PERF_GUEST_MODULES_H

#include <stdbool.h>
#include <stdio.h>
#include <linux/compiler.h>

struct guest_kernel;

#ifdef HAVE_LIBBPF_SUPPORT
const char *guest_modules__write(struct guest_kernel *kernel, FILE *modules, FILE *kallsyms,
				 const char *top, bool tables);
#else
static inline const char *guest_modules__write(struct guest_kernel *kernel __maybe_unused,
					       FILE *modules __maybe_unused,
					       FILE *kallsyms __maybe_unused,
					       const char *top __maybe_unused,
					       bool tables __maybe_unused)
{
	return "this perf was built without libbpf";
}
#endif

#endif /* __PERF_GUEST_MODULES_H */
