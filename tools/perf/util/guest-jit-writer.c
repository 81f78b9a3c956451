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
 * that is read; for processes at a time; and for pid namespaces in one another.
 */
#define MAX_FDS		256
#define MAX_SIZE	(16ULL << 20)
#define MAX_LINE	512
#define MAX_READ	(256ULL << 20)
#define MAX_PROCESSES	64
#define MAX_LEVEL	32

/* The longest name: "perf-4294967295.map". */
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
 * @level:	in struct pid: in how many pid namespaces it is, but for the first
 * @numbers:	... its pid in each of these, in an array of struct upid; the last is its own
 * @upid_size:	the size of struct upid; zero if these fields are not known
 * @nr:		in struct upid: the pid
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
	u32	level;
	u32	numbers;
	u32	upid_size;
	u32	nr;
};

/* A process, and the size of the part of its file that was written. */
struct jit {
	u64	root;
	u32	pid;
	u64	done;
};

struct guest_jit_writer {
	const struct guest_page_cache *cache;
	char			*dir;
	struct jit_layout	layout;
	struct jit		jits[MAX_PROCESSES];
	unsigned int		nr;
	u64			nr_read;
};

static void find_pid(const struct btf *btf, struct jit_layout *layout)
{
	int upid = btf__find_by_name_kind(btf, "upid", BTF_KIND_STRUCT);

	if (upid > 0 && guest_btf__find_field(btf, "pid", "level", NULL, &layout->level) &&
	    guest_btf__find_field(btf, "pid", "numbers", NULL, &layout->numbers) &&
	    guest_btf__find_field(btf, "upid", "nr", NULL, &layout->nr))
		layout->upid_size = btf__resolve_size(btf, upid);
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
	find_pid(btf, &jits->layout);
	if (jits->dir &&
	    guest_btf__find_field(btf, "files_struct", "fdt", NULL, &jits->layout.fdt) &&
	    guest_btf__find_field(btf, "fdtable", "max_fds", NULL, &jits->layout.max_fds) &&
	    guest_btf__find_field(btf, "fdtable", "fd", NULL, &jits->layout.fds) &&
	    guest_btf__find_field(btf, "file", "f_path", "dentry", &jits->layout.f_path) &&
	    guest_btf__find_field(btf, "file", "f_mapping", NULL, &jits->layout.f_mapping) &&
	    guest_btf__find_field(btf, "file", "f_inode", NULL, &jits->layout.f_inode) &&
	    guest_btf__find_field(btf, "inode", "i_size", NULL, &jits->layout.i_size) &&
	    guest_btf__find_field(btf, "dentry", "d_name", "name", &jits->layout.d_name) &&
	    guest_btf__find_field(btf, "dentry", "d_name", "len", &jits->layout.d_len))
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

/* Return the pid that a process has for itself, by its struct pid; @usual if that isn't known. */
static u32 own_pid(const struct guest_jit_writer *jits, u64 pid, u32 usual)
{
	const struct jit_layout *layout = &jits->layout;
	u32 level, own;

	if (!layout->upid_size || !pid ||
	    !guest_memory__read(jits->cache->mem, pid + layout->level, &level, sizeof(level)) ||
	    level > MAX_LEVEL ||
	    !guest_memory__read(jits->cache->mem, pid + layout->numbers +
				level * layout->upid_size + layout->nr, &own, sizeof(own)))
		return usual;
	return own;
}

static bool has_name(const struct guest_jit_writer *jits, u64 file, const char *name)
{
	u64 dentry, at;
	char found[MAX_NAME];
	u32 len;

	return read_u64(jits, file + jits->layout.f_path, &dentry) &&
	       guest_memory__read(jits->cache->mem, dentry + jits->layout.d_len, &len,
				  sizeof(len)) &&
	       len == strlen(name) && read_u64(jits, dentry + jits->layout.d_name, &at) &&
	       guest_memory__read(jits->cache->mem, at, found, len) && !memcmp(found, name, len);
}

/*
 * Return the address of the struct file of the process's own map, which it has open; zero if there
 * is none.  A process may have inherited the one that its parent has open.
 */
static u64 find_map(const struct guest_jit_writer *jits, u64 files, u32 pid)
{
	const struct jit_layout *layout = &jits->layout;
	char name[MAX_NAME];
	u64 fdt, fds, file;
	u32 nr;

	if (!read_u64(jits, files + layout->fdt, &fdt) ||
	    !guest_memory__read(jits->cache->mem, fdt + layout->max_fds, &nr, sizeof(nr)) ||
	    !read_u64(jits, fdt + layout->fds, &fds))
		return 0;

	scnprintf(name, sizeof(name), "perf-%u.map", pid);
	for (u32 i = 0; i < nr && i < MAX_FDS; i++) {
		if (!read_u64(jits, fds + i * sizeof(file), &file))
			return 0;
		if (file && has_name(jits, file, name))
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

/* Read a page of a file, if the guest has it in its cache. */
static bool read_page(const struct guest_jit_writer *jits, u64 mapping, u64 index, char *page)
{
	u64 pfn, again;

	if (!guest_page_cache__find(jits->cache, mapping, index, &pfn) ||
	    !guest_memory__read_page(jits->cache->mem, pfn, page))
		return false;

	/* The guest may have reclaimed it, and have put another page there. */
	guest_memory__forget(jits->cache->mem);
	return guest_page_cache__find(jits->cache, mapping, index, &again) && again == pfn;
}

/*
 * Write the lines of a file from @from on that are wholly in the guest's page cache.  Return the
 * place behind the last line.
 */
static u64 write_lines(const struct guest_jit_writer *jits, u64 mapping, u64 from, u64 size,
		       FILE *file)
{
	char page[GUEST_PAGE_SIZE], line[MAX_LINE];
	unsigned int len = 0;
	bool whole = true;
	u64 done = from;

	for (u64 at = from & GUEST_PAGE_MASK; at < size; at += GUEST_PAGE_SIZE) {
		unsigned int end = min_t(u64, size - at, GUEST_PAGE_SIZE);

		if (!read_page(jits, mapping, at >> GUEST_PAGE_SHIFT, page)) {
			/* Go on here next time. */
			if (guest_memory__is_exhausted(jits->cache->mem))
				break;
			whole = false;
			continue;
		}
		for (unsigned int i = at < from ? from - at : 0; i < end; i++) {
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
			done = at + i + 1;
		}
	}
	return done;
}

static struct jit *find_jit(struct guest_jit_writer *jits, u64 root, u32 pid)
{
	struct jit *jit;

	for (unsigned int i = 0; i < min_t(unsigned int, jits->nr, MAX_PROCESSES); i++) {
		jit = &jits->jits[i];
		if (jit->root == root && jit->pid == pid)
			return jit;
	}

	/* The process that was noted first may have ended. */
	jit = &jits->jits[jits->nr++ % MAX_PROCESSES];
	*jit = (struct jit){ .root = root, .pid = pid };
	return jit;
}

/**
 * guest_jit_writer__note - write the names that a process gives to its code, if there are new ones
 * @jits:	state of the guest
 * @files:	address of the process's struct files_struct
 * @own:	address of its struct pid; zero if that isn't known
 * @root:	guest-physical address of its topmost page table
 * @pid:	its pid in the guest
 *
 * They go to the file programs/perf-ROOT-PID.map in the directory of guest_jit_writer__new().
 */
void guest_jit_writer__note(struct guest_jit_writer *jits, u64 files, u64 own, u64 root, u32 pid)
{
	u64 file = find_map(jits, files, own_pid(jits, own, pid)), mapping, inode, size, done;
	struct jit *jit = file ? find_jit(jits, root, pid) : NULL;
	char path[PATH_MAX];
	FILE *out;

	if (!jit || !read_u64(jits, file + jits->layout.f_mapping, &mapping) ||
	    !read_u64(jits, file + jits->layout.f_inode, &inode) ||
	    !read_u64(jits, inode + jits->layout.i_size, &size) ||
	    min_t(u64, size, MAX_SIZE) <= jit->done || jits->nr_read > MAX_READ ||
	    snprintf(path, sizeof(path), "%s/programs/perf-%" PRIx64 "-%u.map", jits->dir, root,
		     pid) >= (int)sizeof(path))
		return;

	/* Compilers only append to it. */
	if (!jit->done)
		guest_sandbox__unlink(path);
	out = guest_sandbox__fopen(path, jit->done ? GUEST_APPEND_FILE : GUEST_CREATE_FILE);
	if (!out)
		return;
	done = write_lines(jits, mapping, jit->done, min_t(u64, size, MAX_SIZE), out);
	jits->nr_read += size - jit->done;
	if (!fclose(out))
		jit->done = done;
}
