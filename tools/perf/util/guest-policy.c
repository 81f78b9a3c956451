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
#include "guest-sandbox.h"

/* Values of kernel.perf_event_guest_callchain, see Documentation/admin-guide/perf-guests.rst. */
#define NEVER			0
#define IF_ALLOWED		1
#define READ_UNLESS_FORBIDDEN	3

#define NOT_ALLOWED \
	"kernel.perf_event_guest_callchain is 1, and its VMM is not known to allow it"

#define NO_READS \
	"kernel.perf_event_guest_callchain is not 3, and the VMM does not allow it by KVM_CAP_GUEST_CALLCHAIN"

/**
 * enum policy - what a VMM has decided about its VM
 * @UNKNOWN:	the kernel doesn't tell
 * @UNDECIDED:	nothing
 * @ALLOWED:	callchains may be recorded
 * @READ_ALLOWED: and events may read the guest
 * @FORBIDDEN:	neither
 */
enum policy { UNKNOWN, UNDECIDED, ALLOWED, READ_ALLOWED, FORBIDDEN };

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

/* Read the VMM's policy from the fdinfo of its VM. */
static enum policy read_policy(const char *path)
{
	static const char *const names[] = {
		[UNDECIDED]	= "undecided",
		[ALLOWED]	= "allowed",
		[READ_ALLOWED]	= "read-allowed",
		[FORBIDDEN]	= "forbidden",
	};
	FILE *file = fopen(path, "re");
	enum policy policy = UNKNOWN;
	char line[128], name[16];

	while (file && !policy && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "guest_callchain: %15s", name) != 1)
			continue;
		for (policy = UNDECIDED; policy < ARRAY_SIZE(names); policy++) {
			if (!strcmp(name, names[policy]))
				break;
		}
		/* Refuse what a later kernel may tell. */
		if (policy == ARRAY_SIZE(names))
			policy = FORBIDDEN;
	}
	if (file)
		fclose(file);
	return policy;
}

/**
 * guest_policy__refusal - check whether a guest may be read
 * @pid: pid of its VMM
 *
 * This is for perf's own reading of the VMM's memory, which takes the right to trace the VMM.  Who
 * has that right can read the VMM's answer.  If a VMM has several VMs and refuses one of them, perf
 * reads none.
 *
 * Return: the reason, or NULL if the guest may be read.
 */
const char *guest_policy__refusal(pid_t pid)
{
	char path[PATH_MAX];
	enum policy policy;
	unsigned int nr;
	int level;

	if (guest_sandbox__is_entered())
		return guest_sandbox__refusal();
	if (!read_sysctl(&level))
		return NULL;
	if (level == NEVER)
		return "kernel.perf_event_guest_callchain is 0";

	for (nr = 0; guest_memslots__find_vm(pid, nr, path); nr++) {
		policy = read_policy(path);
		if (policy == FORBIDDEN)
			return "its VMM forbids it";
		if (level == IF_ALLOWED && policy != ALLOWED && policy != READ_ALLOWED)
			return NOT_ALLOWED;
	}
	return level == IF_ALLOWED && !nr ? NOT_ALLOWED : NULL;
}

/**
 * guest_policy__read_refusal - check whether events may read a guest
 * @pid: pid of its VMM, or of a thread of the VMM
 *
 * Return: the reason, or NULL if the events of perf may read the guest.
 */
const char *guest_policy__read_refusal(pid_t pid)
{
	char path[PATH_MAX];
	unsigned int nr;
	int level;

	if (!read_sysctl(&level))
		return NULL;
	if (level == NEVER)
		return "kernel.perf_event_guest_callchain is 0";

	for (nr = 0; guest_memslots__find_vm(pid, nr, path); nr++) {
		enum policy policy = read_policy(path);

		if (policy == FORBIDDEN)
			return "the VMM forbids it";
		if (level != READ_UNLESS_FORBIDDEN && policy != READ_ALLOWED)
			return NO_READS;
	}
	return level != READ_UNLESS_FORBIDDEN && !nr ? NO_READS : NULL;
}
