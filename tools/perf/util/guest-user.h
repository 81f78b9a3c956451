/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_USER_H
#define __PERF_GUEST_USER_H

#include <stdbool.h>
#include <linux/types.h>
#include "unwind.h"

struct guest_read;
struct machine;
struct perf_sample;

u64 guest_read__reg(const struct guest_read *read, unsigned int reg);
bool guest_read__is_arm64(const struct guest_read *read);
void sample__add_guest_user(struct perf_sample *sample, struct machine *machine);
enum unwind_end sample__unwind_guest_user(struct perf_sample *sample, struct machine *machine);
const char *guest_user_end__name(enum unwind_end end);

#endif /* __PERF_GUEST_USER_H */
