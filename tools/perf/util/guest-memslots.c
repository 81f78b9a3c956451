// SPDX-License-Identifier: GPL-2.0
/*
 * Find where a VMM has its guests' memory, by the lists of memslots that KVM has in debugfs.  Only
 * root can read them.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <api/fs/fs.h>
#include <linux/kernel.h>

#include "guest-memslots.h"

/* The address space that guests use; another one is for x86's system management mode. */
#define NORMAL_AS	0

struct guest_paths guest_paths = { .vm_link = "anon_inode:kvm-vm" };

/*
 * Return true if the VM of this directory belongs to the process.  KVM names the directory TID-FD,
 * by the thread that created the VM and by the VM's file descriptor.  The TID is that of the
 * initial PID namespace: perf has to run there.
 */
static bool is_of(const char *name, pid_t pid)
{
	char path[64];
	int tid, fd;

	if (sscanf(name, "%d-%d", &tid, &fd) != 2)
		return false;

	scnprintf(path, sizeof(path), "/proc/%d/task/%d", pid, tid);
	return !access(path, F_OK);
}

/* Return true if the thread has ended, and the process has a VM at the same file descriptor. */
static bool may_be_of(const char *name, pid_t pid)
{
	char path[64], link[64] = "";
	int tid, fd;

	if (sscanf(name, "%d-%d", &tid, &fd) != 2)
		return false;

	scnprintf(path, sizeof(path), "/proc/%d", tid);
	if (!access(path, F_OK))
		return false;

	scnprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	return readlink(path, link, sizeof(link) - 1) > 0 && !strcmp(link, guest_paths.vm_link);
}

static bool find_vm(pid_t pid, unsigned int nr, char path[PATH_MAX],
		    bool (*belongs)(const char *name, pid_t pid))
{
	const char *top = guest_paths.debugfs ?: debugfs__mountpoint();
	struct dirent *entry;
	bool found = false;
	DIR *vms;

	if (!top)
		return false;

	scnprintf(path, PATH_MAX, "%s/kvm", top);
	vms = opendir(path);
	while (vms && !found && (entry = readdir(vms))) {
		if (!belongs(entry->d_name, pid) || nr--)
			continue;
		scnprintf(path, PATH_MAX, "%s/kvm/%s", top, entry->d_name);
		found = true;
	}
	if (vms)
		closedir(vms);
	return found;
}

/**
 * guest_memslots__find_vm - find the directory that KVM has for a VM
 * @pid:	pid of the VM's VMM
 * @nr:		index of the VM among the VMM's VMs
 * @path:	receives the path of the directory
 *
 * Return: true if there is one.
 */
bool guest_memslots__find_vm(pid_t pid, unsigned int nr, char path[PATH_MAX])
{
	return find_vm(pid, nr, path, is_of);
}

/**
 * guest_memslots__find_orphan - find the directory of a VM whose creating thread has ended
 * @pid:	pid of the VMM that may own it
 * @nr:		index of the VM among such VMs
 * @path:	receives the path of the directory
 *
 * The VMM has a VM at the same file descriptor; other VMMs may have one there as well.
 *
 * Return: true if there is one.
 */
bool guest_memslots__find_orphan(pid_t pid, unsigned int nr, char path[PATH_MAX])
{
	return find_vm(pid, nr, path, may_be_of);
}

/**
 * guest_memslots__find - find the list of a VM's memslots
 * @pid:	pid of the VM's VMM
 * @nr:		index of the VM among the VMM's VMs
 * @path:	receives the path of the list
 *
 * Return: true if there is one that perf can read.
 */
bool guest_memslots__find(pid_t pid, unsigned int nr, char path[PATH_MAX])
{
	size_t len;

	if (!guest_memslots__find_vm(pid, nr, path))
		return false;

	len = strlen(path);
	scnprintf(path + len, PATH_MAX - len, "/memslots");
	return !access(path, R_OK);
}

static int cmp_slots(const void *a, const void *b)
{
	const struct guest_memslot *x = a, *y = b;

	return x->gpa < y->gpa ? -1 : x->gpa > y->gpa;
}

/**
 * guest_memslots__read - read a list of memslots
 * @path:	the list's path, from guest_memslots__find()
 * @slots:	receives the memslots, MAX_MEMSLOTS at most, sorted by guest-physical address
 *
 * Return: the number of memslots; zero if they can't be read, or are too many.
 */
size_t guest_memslots__read(const char *path, struct guest_memslot *slots)
{
	FILE *file = fopen(path, "re");
	struct guest_memslot slot;
	unsigned int as_id;
	char *line = NULL;
	size_t nr = 0, len = 0;

	while (file && getline(&line, &len, file) > 0) {
		if (sscanf(line, "as_id=%u slot=%*u gpa=%" SCNx64 " size=%" SCNx64 " hva=%" SCNx64,
			   &as_id, &slot.gpa, &slot.size, &slot.hva) != 4 || as_id != NORMAL_AS)
			continue;
		if (nr == MAX_MEMSLOTS) {
			nr = 0;
			break;
		}
		slots[nr++] = slot;
	}
	free(line);
	if (file)
		fclose(file);
	if (nr)
		qsort(slots, nr, sizeof(*slots), cmp_slots);
	return nr;
}
