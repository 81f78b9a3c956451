/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_THREADS_H
#define __PERF_GUEST_THREADS_H

#include <linux/types.h>

struct guest_threads;
struct machine;
struct perf_sample;

void guest_threads__delete(struct guest_threads *threads);
void sample__name_guest_task(struct perf_sample *sample, struct machine *machine);

#endif /* __PERF_GUEST_THREADS_H */
