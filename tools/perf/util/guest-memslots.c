// SPDX-License-Identifier: GPL-2.0
/*
 * Find where a VMM has its guests' memory: KVM lists the memslots of a VM in the fdinfo of the VM's
 * file descriptor.  Who may trace the VMM can read it.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/kernel.h>

#include "guest-memslots.h"
#include "guest-sandbox.h"

/* The address space that guests use; another one is for x86's system management mode. */
#define NORMAL_AS	0

struct guest_paths guest_paths = { .proc = "/proc", .vm_link = "anon_inode:kvm-vm" };

/**
 * guest_memslots__find_vm - find what KVM tells of a VM
 * @pid:	pid of the VM's VMM
 * @nr:		index of the VM among the VMM's VMs
 * @path:	receives the path of the VM's fdinfo
 *
 * Return: true if there is one; otherwise, errno is zero unless the VMM's file descriptors can't be
 * read.
 */
bool guest_memslots__find_vm(pid_t pid, unsigned int nr, char path[PATH_MAX])
{
	struct dirent *entry;
	bool found = false;
	char link[64];
	DIR *fds;

	if (guest_sandbox__is_entered())
		return guest_sandbox__find_vm(nr, path);

	scnprintf(path, PATH_MAX, "%s/%d/fd", guest_paths.proc, pid);
	fds = opendir(path);
	if (!fds)
		return false;

	while (!found && (entry = readdir(fds))) {
		ssize_t len = readlinkat(dirfd(fds), entry->d_name, link, sizeof(link) - 1);

		link[len < 0 ? 0 : len] = 0;
		if (strcmp(link, guest_paths.vm_link) || nr--)
			continue;
		scnprintf(path, PATH_MAX, "%s/%d/fdinfo/%s", guest_paths.proc, pid, entry->d_name);
		found = true;
	}
	closedir(fds);
	errno = 0;
	return found;
}

static int cmp_slots(const void *a, const void *b)
{
	const struct guest_memslot *x = a, *y = b;

	return x->gpa < y->gpa ? -1 : x->gpa > y->gpa;
}

/**
 * guest_memslots__read - read a list of memslots
 * @path:	path of the VM's fdinfo, from guest_memslots__find_vm()
 * @slots:	receives the memslots, MAX_MEMSLOTS at most, sorted by guest-physical address
 *
 * Return: the number of memslots; zero if they can't be read, or are too many.
 */
size_t guest_memslots__read(const char *path, struct guest_memslot *slots)
{
	FILE *file = guest_sandbox__fopen(path, GUEST_READ_FILE);
	struct guest_memslot slot;
	unsigned int as_id;
	char *line = NULL;
	size_t nr = 0, len = 0;

	while (file && getline(&line, &len, file) > 0) {
		if (sscanf(line, "memslot: as_id=%u slot=%*u gpa=%" SCNx64 " size=%" SCNx64
			   " hva=%" SCNx64, &as_id, &slot.gpa, &slot.size, &slot.hva) != 4 ||
		    as_id != NORMAL_AS)
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
