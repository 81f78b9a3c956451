/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_WATCH_H
#define __PERF_GUEST_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

struct guest_kernel;
struct record_opts;

bool guest_watch__add(pid_t pid, const char *top, struct guest_kernel *kernel, bool tables);
void guest_watch__start(const struct record_opts *opts, bool only_tasks);
void guest_watch__stop(void);

#endif /* __PERF_GUEST_WATCH_H */
