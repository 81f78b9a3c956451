/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_FILES_H
#define __PERF_GUEST_FILES_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct guest_kernel;

/* The files that were written for a guest.  Each value includes those before it. */
enum guest_files {
	GUEST_FILES_NONE,
	GUEST_FILES_NAMES,
	GUEST_FILES_TABLES,
};

FILE *guest_files__create(const char *dir, const char *name);
FILE *guest_files__append(const char *dir, const char *name);
bool guest_files__close(FILE *file);
enum guest_files guest_files__write(struct guest_kernel *kernel, pid_t pid, const char *top,
				    bool tables);

#endif /* __PERF_GUEST_FILES_H */
