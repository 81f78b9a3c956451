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
bool guest_modules__are_loaded(struct guest_kernel *kernel, u64 time);
void guest_modules__write_inits(struct guest_kernel *kernel, FILE *inits, const char *top,
				bool tables, u64 time);
#else
static inline const char *guest_modules__write(struct guest_kernel *kernel __maybe_unused,
					       FILE *modules __maybe_unused,
					       FILE *kallsyms __maybe_unused,
					       const char *top __maybe_unused,
					       bool tables __maybe_unused)
{
	return "this perf was built without libbpf";
}

static inline bool guest_modules__are_loaded(struct guest_kernel *kernel __maybe_unused,
					     u64 time __maybe_unused)
{
	return false;
}

static inline void guest_modules__write_inits(struct guest_kernel *kernel __maybe_unused,
					      FILE *inits __maybe_unused,
					      const char *top __maybe_unused,
					      bool tables __maybe_unused, u64 time __maybe_unused)
{
}
#endif

#endif /* __PERF_GUEST_MODULES_H */
