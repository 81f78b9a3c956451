/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_INIT_READER_H
#define __PERF_GUEST_INIT_READER_H

#include <linux/types.h>

struct guest_init_reader;
struct machine;

void guest_init_reader__use(struct machine *machine, u64 time);
void guest_init_reader__delete(struct guest_init_reader *inits);

#endif /* __PERF_GUEST_INIT_READER_H */
