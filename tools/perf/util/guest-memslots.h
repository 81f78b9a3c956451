/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_MEMSLOTS_H
#define __PERF_GUEST_MEMSLOTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <linux/types.h>

/* VMMs that plug in memory have some hundred. */
#define MAX_MEMSLOTS	1024

/**
 * struct guest_memslot - where a piece of a guest's memory is
 * @gpa:	guest-physical address of its first byte
 * @hva:	the same in the VMM
 * @size:	how many bytes
 */
struct guest_memslot {
	u64	gpa;
	u64	hva;
	u64	size;
};

bool guest_memslots__find_vm(pid_t pid, unsigned int nr, char path[PATH_MAX]);
bool guest_memslots__find_orphan(pid_t pid, unsigned int nr, char path[PATH_MAX]);
bool guest_memslots__find(pid_t pid, unsigned int nr, char path[PATH_MAX]);
size_t guest_memslots__read(const char *path, struct guest_memslot *slots);

/* Where KVM has a directory for each VM, if that is not debugfs: for tests. */
extern const char *guest_memslots__dir;
/* What a VM's file descriptor leads to. */
extern const char *guest_memslots__link;

#endif /* __PERF_GUEST_MEMSLOTS_H */
