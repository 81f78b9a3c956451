// SPDX-License-Identifier: GPL-2.0
/*
 * Find the paths of the cgroups that a guest's tasks are in: those of cgroup v2, or of the unified
 * hierarchy beside v1.  Samples have the ids of the cgroups.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include <bpf/btf.h>

#include "guest-btf.h"
#include "guest-cgroup-writer.h"
#include "guest-files.h"
#include "guest-memory.h"

/* Limits for what the guest may make up: cgroups, how deep they are nested, and names. */
#define MAX_CGROUPS	8192
#define MAX_DEPTH	32
#define MAX_NAME	255

/**
 * struct guest_cgroup_writer - the cgroups of a guest that were written
 * @mem:	the guest's memory
 * @file:	the file that they are written to
 * @dfl_cgrp:	in struct css_set, offset in bytes: pointer to its cgroup of v2
 * @kn:		in struct cgroup: pointer to its directory
 * @id:		in struct kernfs_node, of a directory: the id of its cgroup
 * @name:	... a pointer to its name
 * @parent:	... a pointer to the directory that it is in
 * @ids:	ids that were written
 * @nr:		number of these
 */
struct guest_cgroup_writer {
	struct guest_memory	*mem;
	FILE			*file;
	u32			dfl_cgrp;
	u32			kn;
	u32			id;
	u32			name;
	u32			parent;
	u64			ids[MAX_CGROUPS];
	unsigned int		nr;
};

static bool find_layout(const struct btf *btf, struct guest_cgroup_writer *cgroups)
{
	int css_set = btf__find_by_name_kind(btf, "css_set", BTF_KIND_STRUCT);
	int cgroup = btf__find_by_name_kind(btf, "cgroup", BTF_KIND_STRUCT);
	int node = btf__find_by_name_kind(btf, "kernfs_node", BTF_KIND_STRUCT);

	/* The field for the parent has another name since Linux 6.15. */
	return guest_btf__find(btf, css_set, "dfl_cgrp", &cgroups->dfl_cgrp) > 0 &&
	       guest_btf__find(btf, cgroup, "kn", &cgroups->kn) > 0 &&
	       guest_btf__find(btf, node, "id", &cgroups->id) > 0 &&
	       guest_btf__find(btf, node, "name", &cgroups->name) > 0 &&
	       (guest_btf__find(btf, node, "__parent", &cgroups->parent) > 0 ||
		guest_btf__find(btf, node, "parent", &cgroups->parent) > 0);
}

/**
 * guest_cgroup_writer__new - prepare to write a guest's cgroups
 * @mem:	the guest's memory; it must outlive the result
 * @btf:	the kernel's BTF
 * @dir:	directory with the files of the kernel
 *
 * Return: the state; NULL if the kernel has no cgroups, or if the file can't be created.
 */
struct guest_cgroup_writer *guest_cgroup_writer__new(struct guest_memory *mem,
						     const struct btf *btf, const char *dir)
{
	struct guest_cgroup_writer *cgroups = zalloc(sizeof(*cgroups));

	if (!cgroups)
		return NULL;

	cgroups->mem = mem;
	if (find_layout(btf, cgroups))
		cgroups->file = guest_files__create(dir, "cgroups");
	if (cgroups->file)
		return cgroups;

	free(cgroups);
	return NULL;
}

void guest_cgroup_writer__delete(struct guest_cgroup_writer *cgroups)
{
	if (cgroups)
		fclose(cgroups->file);
	free(cgroups);
}

static bool read_u64(struct guest_cgroup_writer *cgroups, u64 gva, u64 *value)
{
	return guest_memory__read(cgroups->mem, gva, value, sizeof(*value));
}

/* Read the path of a directory; return false if it can't be read. */
static bool read_path(struct guest_cgroup_writer *cgroups, u64 node, char path[PATH_MAX])
{
	char *names[MAX_DEPTH];
	unsigned int depth = 0;
	bool good = false;
	size_t len = 0;
	u64 name;

	while (read_u64(cgroups, node + cgroups->name, &name)) {
		u64 parent;

		if (!read_u64(cgroups, node + cgroups->parent, &parent))
			break;
		/* The root has no name. */
		if (!parent) {
			good = true;
			break;
		}
		if (depth == MAX_DEPTH)
			break;
		names[depth] = guest_memory__read_string(cgroups->mem, name, MAX_NAME);
		if (!names[depth])
			break;
		depth++;
		node = parent;
	}

	if (!depth)
		scnprintf(path, PATH_MAX, "/");
	while (depth--) {
		len += scnprintf(&path[len], PATH_MAX - len, "/%s", names[depth]);
		free(names[depth]);
	}
	return good;
}

/**
 * guest_cgroup_writer__note - write the cgroup of a task, unless it was written before
 * @cgroups:	state of the guest
 * @css_set:	address of the task's struct css_set
 *
 * A line has the id of the cgroup and its path.
 *
 * Return: false if the cgroup could not be read: look again later.
 */
bool guest_cgroup_writer__note(struct guest_cgroup_writer *cgroups, u64 css_set)
{
	u64 cgroup, node, id, same;
	char path[PATH_MAX];

	if (!cgroups || !css_set || cgroups->nr == MAX_CGROUPS)
		return true;
	if (!read_u64(cgroups, css_set + cgroups->dfl_cgrp, &cgroup) ||
	    !read_u64(cgroups, cgroup + cgroups->kn, &node) ||
	    !read_u64(cgroups, node + cgroups->id, &id))
		return false;

	for (unsigned int i = 0; i < cgroups->nr; i++) {
		if (cgroups->ids[i] == id)
			return true;
	}
	/* The cgroup may be removed meanwhile, and its memory be used for another one. */
	if (!read_path(cgroups, node, path))
		return false;
	guest_memory__forget(cgroups->mem);
	if (!read_u64(cgroups, node + cgroups->id, &same) || same != id)
		return false;

	cgroups->ids[cgroups->nr++] = id;
	fprintf(cgroups->file, "%" PRIu64 " %s\n", id, path);
	fflush(cgroups->file);
	return true;
}
