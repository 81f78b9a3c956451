// SPDX-License-Identifier: GPL-2.0
/*
 * Write the names that a guest's JIT compilers give to their code.  A compiler writes them to a
 * file named perf-PID.map, for a perf in the guest, and keeps it open.  The guest has what was just
 * written in its page cache.
 */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include <bpf/btf.h>

#include "guest-btf.h"
#include "guest-jit-writer.h"
#include "guest-memory.h"
#include "guest-page-cache.h"
#include "guest-sandbox.h"

/*
 * Limits for the descriptors of a process; for the size of a file and of one of its lines; for all
 * that is written, as files that have grown are written again; and for processes.
 */
#define MAX_FDS		256
#define MAX_SIZE	(16ULL << 20)
#define MAX_LINE	512
#define MAX_WRITTEN	(256ULL << 20)
#define MAX_PROCESSES	64

/* The longest name: "perf-4194304.map". */
#define MAX_NAME	32

/**
 * struct jit_layout - offsets of the fields of a guest's structures, in bytes
 * @fdt:	in struct files_struct: a pointer to the table of descriptors
 * @max_fds:	in struct fdtable: their number
 * @fds:	... a pointer to the array of pointers to files
 * @f_path:	in struct file: its dentry
 * @f_mapping:	... its struct address_space
 * @f_inode:	... its inode
 * @i_size:	in struct inode: the size of the file
 * @d_name:	in struct dentry: a pointer to the name
 * @d_len:	... the length of the name
 */
struct jit_layout {
	u32	fdt;
	u32	max_fds;
	u32	fds;
	u32	f_path;
	u32	f_mapping;
	u32	f_inode;
	u32	i_size;
	u32	d_name;
	u32	d_len;
};

/* A process whose file was written, and the size that the file had then. */
struct jit {
	u64	root;
	u32	pid;
	u64	size;
};

struct guest_jit_writer {
	const struct guest_page_cache *cache;
	char			*dir;
	struct jit_layout	layout;
	struct jit		jits[MAX_PROCESSES];
	unsigned int		nr;
	u64			written;
};

static bool find_field(const struct btf *btf, const char *type, const char *outer,
		       const char *inner, u32 *offset)
{
	int id = btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT);
	u32 inner_offset = 0;

	id = guest_btf__find(btf, id, outer, offset);
	if (id > 0 && inner)
		id = guest_btf__find(btf, btf__resolve_type(btf, id), inner, &inner_offset);
	*offset += inner_offset;
	return id > 0;
}

/**
 * guest_jit_writer__new - prepare to write names of JIT compilers' code
 * @cache:	the guest's page cache, which must outlive the result
 * @btf:	the types of the guest's kernel
 * @dir:	the directory with the files of the kernel
 *
 * Return: the state; NULL if the types lack a field that perf reads.
 */
struct guest_jit_writer *guest_jit_writer__new(const struct guest_page_cache *cache,
					       const struct btf *btf, const char *dir)
{
	struct guest_jit_writer *jits = zalloc(sizeof(*jits));

	if (!jits)
		return NULL;

	jits->cache = cache;
	jits->dir = strdup(dir);
	if (jits->dir &&
	    find_field(btf, "files_struct", "fdt", NULL, &jits->layout.fdt) &&
	    find_field(btf, "fdtable", "max_fds", NULL, &jits->layout.max_fds) &&
	    find_field(btf, "fdtable", "fd", NULL, &jits->layout.fds) &&
	    find_field(btf, "file", "f_path", "dentry", &jits->layout.f_path) &&
	    find_field(btf, "file", "f_mapping", NULL, &jits->layout.f_mapping) &&
	    find_field(btf, "file", "f_inode", NULL, &jits->layout.f_inode) &&
	    find_field(btf, "inode", "i_size", NULL, &jits->layout.i_size) &&
	    find_field(btf, "dentry", "d_name", "name", &jits->layout.d_name) &&
	    find_field(btf, "dentry", "d_name", "len", &jits->layout.d_len))
		return jits;
	guest_jit_writer__delete(jits);
	return NULL;
}

void guest_jit_writer__delete(struct guest_jit_writer *jits)
{
	if (jits)
		free(jits->dir);
	free(jits);
}

static bool read_u64(const struct guest_jit_writer *jits, u64 gva, u64 *value)
{
	return guest_memory__read(jits->cache->mem, gva, value, sizeof(*value));
}

/* Return true if a file is named like the map of a JIT compiler. */
static bool is_map(const struct guest_jit_writer *jits, u64 file)
{
	u64 dentry, at;
	char name[MAX_NAME + 1], end;
	u32 len, pid;

	if (!read_u64(jits, file + jits->layout.f_path, &dentry) ||
	    !guest_memory__read(jits->cache->mem, dentry + jits->layout.d_len, &len, sizeof(len)) ||
	    len > MAX_NAME || !read_u64(jits, dentry + jits->layout.d_name, &at) ||
	    !guest_memory__read(jits->cache->mem, at, name, len))
		return false;

	name[len] = 0;
	return sscanf(name, "perf-%u.ma%c", &pid, &end) == 2 && end == 'p' &&
	       len && name[len - 1] == 'p';
}

/* Return the address of the struct file that a process has open; zero if there is none. */
static u64 find_map(const struct guest_jit_writer *jits, u64 files)
{
	const struct jit_layout *layout = &jits->layout;
	u64 fdt, fds, file;
	u32 nr;

	if (!read_u64(jits, files + layout->fdt, &fdt) ||
	    !guest_memory__read(jits->cache->mem, fdt + layout->max_fds, &nr, sizeof(nr)) ||
	    !read_u64(jits, fdt + layout->fds, &fds))
		return 0;

	for (u32 i = 0; i < nr && i < MAX_FDS; i++) {
		if (!read_u64(jits, fds + i * sizeof(file), &file))
			return 0;
		if (file && is_map(jits, file))
			return file;
	}
	return 0;
}

/* Write a line if it has an address, a size and a name; the name is printed on terminals. */
static void write_line(char *line, FILE *file)
{
	u64 start, size;
	int name = 0;

	if (sscanf(line, "%" SCNx64 " %" SCNx64 " %n", &start, &size, &name) != 2 || !name ||
	    !line[name] || !size || start > LLONG_MAX || size > LLONG_MAX)
		return;
	for (char *c = &line[name]; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
	fprintf(file, "%" PRIx64 " %" PRIx64 " %s\n", start, size, &line[name]);
}

/* Write the lines of a file that are wholly in the guest's page cache. */
static void write_lines(const struct guest_jit_writer *jits, u64 mapping, u64 size, FILE *file)
{
	char page[GUEST_PAGE_SIZE], line[MAX_LINE];
	unsigned int len = 0;
	bool whole = true;
	u64 pfn;

	for (u64 at = 0; at < size; at += GUEST_PAGE_SIZE) {
		unsigned int nr = min_t(u64, size - at, GUEST_PAGE_SIZE);

		if (!guest_page_cache__find(jits->cache, mapping, at >> GUEST_PAGE_SHIFT, &pfn) ||
		    !guest_memory__read_page(jits->cache->mem, pfn, page)) {
			whole = false;
			continue;
		}
		for (unsigned int i = 0; i < nr; i++) {
			if (page[i] != '\n') {
				if (len + 1 < sizeof(line))
					line[len++] = page[i];
				continue;
			}
			line[len] = 0;
			if (whole)
				write_line(line, file);
			whole = true;
			len = 0;
		}
	}
}

static struct jit *find_jit(struct guest_jit_writer *jits, u64 root, u32 pid)
{
	struct jit *jit;

	for (unsigned int i = 0; i < jits->nr; i++) {
		jit = &jits->jits[i];
		if (jit->root == root && jit->pid == pid)
			return jit;
	}
	if (jits->nr == MAX_PROCESSES)
		return NULL;

	jit = &jits->jits[jits->nr++];
	*jit = (struct jit){ .root = root, .pid = pid };
	return jit;
}

/**
 * guest_jit_writer__note - write the names that a process gives to its code, if there are new ones
 * @jits:	state of the guest
 * @files:	address of the process's struct files_struct
 * @root:	guest-physical address of its topmost page table
 * @pid:	its pid in the guest
 *
 * They go to the file programs/perf-ROOT-PID.map in the directory of guest_jit_writer__new().
 */
void guest_jit_writer__note(struct guest_jit_writer *jits, u64 files, u64 root, u32 pid)
{
	u64 file = find_map(jits, files), mapping, inode, size;
	char path[PATH_MAX], new_path[PATH_MAX + sizeof(".new")];
	struct jit *jit = file ? find_jit(jits, root, pid) : NULL;
	FILE *out;
	bool good;

	if (!jit || !read_u64(jits, file + jits->layout.f_mapping, &mapping) ||
	    !read_u64(jits, file + jits->layout.f_inode, &inode) ||
	    !read_u64(jits, inode + jits->layout.i_size, &size) ||
	    size == jit->size || jits->written > MAX_WRITTEN ||
	    snprintf(path, sizeof(path), "%s/programs/perf-%" PRIx64 "-%u.map", jits->dir, root,
		     pid) >= (int)sizeof(path))
		return;

	/* Readers never see half a file. */
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	out = guest_sandbox__fopen(new_path, GUEST_CREATE_FILE);
	if (!out)
		return;
	write_lines(jits, mapping, min_t(u64, size, MAX_SIZE), out);
	jits->written += ftell(out);
	good = !ferror(out);
	if (fclose(out) || !good || guest_sandbox__rename(new_path, path)) {
		guest_sandbox__unlink(new_path);
		return;
	}
	jit->size = size;
}
