/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_TASK_READER_H
#define __PERF_GUEST_TASK_READER_H

#include <stdbool.h>
#include <linux/types.h>

struct guest_task_reader;
struct machine;
struct perf_sample;

void guest_task_reader__delete(struct guest_task_reader *threads);
bool sample__name_guest_task(struct perf_sample *sample, struct machine *machine);
unsigned int machine__guest_va_bits(struct machine *machine);

#endif /* __PERF_GUEST_TASK_READER_H */
