/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_MEMSLOTS_H
#define __PERF_GUEST_MEMSLOTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <linux/types.h>

/* VMMs that hotplug memory have a few hundred. */
#define MAX_MEMSLOTS	1024

/**
 * struct guest_memslot - where a piece of a guest's memory is
 * @gpa:	guest-physical address of the first byte
 * @hva:	virtual address of the first byte in the VMM
 * @size:	number of bytes
 */
struct guest_memslot {
	u64	gpa;
	u64	hva;
	u64	size;
};

/**
 * struct guest_paths - where the host tells about its VMs; tests name other places
 * @proc:	the directory with a directory for each process
 * @vm_link:	the link of a VM's file descriptor in /proc/PID/fd
 * @sysctl:	in place of perf_event_guest_callchain in /proc/sys; NULL for that
 */
struct guest_paths {
	const char	*proc;
	const char	*vm_link;
	const char	*sysctl;
};

extern struct guest_paths guest_paths;

bool guest_memslots__find_vm(pid_t pid, unsigned int nr, char path[PATH_MAX]);
size_t guest_memslots__read(const char *path, struct guest_memslot *slots);

#endif /* __PERF_GUEST_MEMSLOTS_H */
