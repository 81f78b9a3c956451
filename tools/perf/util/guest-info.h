/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_INFO_H
#define __PERF_GUEST_INFO_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <linux/types.h>

struct guest_kernel;
struct machine;
struct perf_sample;
struct target;

/* The files that were written for a guest.  Each value includes those before it. */
enum guest_info {
	GUEST_INFO_NONE,
	GUEST_INFO_NAMES,
	GUEST_INFO_TABLES,
};

FILE *guest_info__create(const char *dir, const char *name);
FILE *guest_info__append(const char *dir, const char *name);
enum guest_info guest_info__write(pid_t pid, const char *dir, bool tables);
enum guest_info guest_info__write_kernel(struct guest_kernel *kernel, pid_t pid, const char *top,
					 bool tables);
enum guest_info guest_info__record(const struct target *target, const char *data, bool tables);
void guest_info__use(const char *data);
enum guest_info guest_info__begin_live(const struct target *target, bool tables);
void guest_info__end_live(void);
bool guest_info__is_live(void);
bool guest_info__is_used(struct machine *machine);
const char *guest_info__name(struct machine *machine);
void guest_info__use_kernel_of(struct machine *machine, const struct perf_sample *sample);

#endif /* __PERF_GUEST_INFO_H */
