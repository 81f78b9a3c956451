/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_NAME_H
#define __PERF_GUEST_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Longer names are cut. */
#define GUEST_NAME_SIZE	64

void guest_name__clean(char *name);
bool guest_name__is_clean(const char *name);
bool guest_name__is_clean_symbol(const char *name);
bool guest_name__find(const char *args, size_t size, char name[GUEST_NAME_SIZE]);
bool guest_name__read(pid_t pid, char name[GUEST_NAME_SIZE]);

#endif /* __PERF_GUEST_NAME_H */
