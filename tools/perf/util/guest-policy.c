// SPDX-License-Identifier: GPL-2.0
/*
 * Who has said no to reading a guest: the administrator or the VMM.  The kernel holds perf
 * events to that; here it is for what perf reads of the VMM's memory itself.
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

const char *guest_policy__sysctl;

/* A kernel that has no such sysctl says nothing; what can't be read may say no. */
static bool read_sysctl(int *level)
{
	char path[PATH_MAX];
	FILE *file;

	scnprintf(path, sizeof(path), "%s/sys/kernel/perf_event_guest_callchain",
		  procfs__mountpoint() ?: "");
	file = fopen(guest_policy__sysctl ?: path, "re");
	if (!file && errno == ENOENT)
		return false;

	if (!file || fscanf(file, "%d", level) != 1)
		*level = NEVER;
	if (file)
		fclose(file);
	return true;
}

/* What a VMM has said of a VM, whose directory @path is. */
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
 * guest_policy__refusal - tell why a guest must not be read
 * @pid: of its VMM
 *
 * A VMM's answer is in debugfs, which only root can read; for others it counts as not given.  If
 * a VMM has several VMs, each of them can forbid it.
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

	/* A VM of an ended thread may be another VMM's: it can forbid, but not allow. */
	for (nr = 0; guest_memslots__find_orphan(pid, nr, path); nr++) {
		read_policy(path, policy);
		if (!strcmp(policy, "forbidden"))
			return "its VMM forbids it";
	}
	return NULL;
}
