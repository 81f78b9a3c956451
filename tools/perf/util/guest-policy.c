// SPDX-License-Identifier: GPL-2.0
/*
 * Check whether the administrator or the VMM forbids reading a guest.  The kernel enforces this for
 * perf events; perf itself has to check it before it reads the VMM's memory.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <api/fs/fs.h>
#include <linux/kernel.h>

#include "guest-memslots.h"
#include "guest-policy.h"

/* Values of kernel.perf_event_guest_callchain. */
#define NEVER		0
#define IF_ALLOWED	1

#define NOT_ALLOWED \
	"kernel.perf_event_guest_callchain is 1, and its VMM is not known to allow it"

/*
 * Read the sysctl; return false if the kernel has none.  If the kernel has the sysctl, but it can't
 * be read, assume that reading guests is forbidden.
 */
static bool read_sysctl(int *level)
{
	char path[PATH_MAX];
	FILE *file;

	scnprintf(path, sizeof(path), "%s/sys/kernel/perf_event_guest_callchain",
		  procfs__mountpoint() ?: "");
	file = fopen(guest_paths.sysctl ?: path, "re");
	if (!file && errno == ENOENT)
		return false;

	if (!file || fscanf(file, "%d", level) != 1)
		*level = NEVER;
	if (file)
		fclose(file);
	return true;
}

/* Read a VMM's policy for the VM whose directory is @path; the file's name is added to @path. */
static void read_policy(char path[PATH_MAX], char policy[16])
{
	size_t len = strlen(path);
	FILE *file;

	scnprintf(path + len, PATH_MAX - len, "/guest_callchain");
	*policy = 0;
	file = fopen(path, "re");
	if (!file)
		return;
	if (fscanf(file, "%15s", policy) != 1)
		*policy = 0;
	fclose(file);
}

/**
 * guest_policy__refusal - check whether a guest may be read
 * @pid: pid of its VMM
 *
 * The VMM's answer is in debugfs, which only root can read; for other users, there is none.  If a
 * VMM has several VMs and refuses one of them, perf reads none.
 *
 * Return: the reason, or NULL if the guest may be read.
 */
const char *guest_policy__refusal(pid_t pid)
{
	char path[PATH_MAX], policy[16];
	unsigned int nr;
	int level;

	if (!read_sysctl(&level))
		return NULL;
	if (level == NEVER)
		return "kernel.perf_event_guest_callchain is 0";

	for (nr = 0; guest_memslots__find_vm(pid, nr, path); nr++) {
		read_policy(path, policy);
		if (!strcmp(policy, "forbidden"))
			return "its VMM forbids it";
		if (level == IF_ALLOWED && strcmp(policy, "allowed"))
			return NOT_ALLOWED;
	}
	if (level == IF_ALLOWED && !nr)
		return NOT_ALLOWED;

	/*
	 * A VM whose creating thread has ended may be another VMM's: it can forbid, but not allow.
	 */
	for (nr = 0; guest_memslots__find_orphan(pid, nr, path); nr++) {
		read_policy(path, policy);
		if (!strcmp(policy, "forbidden"))
			return "its VMM forbids it";
	}
	return NULL;
}
