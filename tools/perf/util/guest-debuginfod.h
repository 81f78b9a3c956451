/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_DEBUGINFOD_H
#define __PERF_GUEST_DEBUGINFOD_H

#include <linux/compiler.h>

struct dso;

#ifdef HAVE_DEBUGINFOD_SUPPORT
void dso__fetch_guest_files(struct dso *dso);
#else
static inline void dso__fetch_guest_files(struct dso *dso __maybe_unused) {}
#endif

#endif /* __PERF_GUEST_DEBUGINFOD_H */
