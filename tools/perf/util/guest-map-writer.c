// SPDX-License-Identifier: GPL-2.0
/*
 * Find the programs and libraries that a guest's processes run: the files that they have mapped
 * executable.  A process's tree of VMAs leads to the files, and dentries have their paths.  Both
 * may change while perf reads them, so two reads in a row must agree.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/unaligned.h>
#include <linux/zalloc.h>

#include <bpf/btf.h>

#include "build-id.h"
#include "debug.h"
#include "guest-btf.h"
#include "guest-jit-writer.h"
#include "guest-kernel.h"
#include "guest-map-writer.h"
#include "guest-memory.h"
#include "guest-page-cache.h"
#include "guest-program.h"
#include "guest-sandbox.h"

/* Linux's VM_EXEC. */
#define VM_EXEC		4

/* Device numbers as the kernel stores them. */
#define MINOR_BITS	20
#define MINOR_MASK	((1U << MINOR_BITS) - 1)

/* Nodes of a maple tree, see include/linux/maple_tree.h. */
#define NODE_SIZE	256
#define NODE_MASK	(~(NODE_SIZE - 1ULL))
#define NODE_TYPE_SHIFT	3
#define NODE_TYPE_MASK	15
#define NODE_LEAF_64	1
#define NODE_RANGE_64	2
#define NODE_ARANGE_64	3

/* No tree of VMAs is deeper than this, even with as many VMAs as processes may have by default. */
#define MAX_DEPTH	8

/* All fields of a VMA that perf reads lie within this size. */
#define MAX_VMA_SIZE	512

/* Files whose paths have more components and mount points than this are left out. */
#define MAX_COMPONENTS	128
#define MAX_NAME	255

/*
 * Write no more once the output is larger than this: a guest's processes may call mmap() all the
 * time.
 */
#define MAX_FILE	(16L << 20)

/* Further files with code are left out, and so are further VMAs of a process. */
#define MAX_PROGRAMS	4096

/* Write no more of programs once this many bytes were written. */
#define MAX_WRITTEN	(1ULL << 30)

#define MAX_VMAS	8192

/* Read the files of a process at most this many times, until two reads in a row agree. */
#define MAX_READS	4

/* Memory without a file, in lines for the files that a process runs; as in perf's mmap events. */
#define ANON		"//anon"

/* The kernel appends this to the path of a deleted file. */
#define DELETED		" (deleted)"

/**
 * struct node_layout - offsets of the fields of a type of maple tree node, in bytes
 * @pivots:	array of the last address of each slot; the last slot has no entry
 * @slots:	array of pointers to nodes or VMAs
 * @nr_slots:	number of slots
 */
struct node_layout {
	u32	pivots;
	u32	slots;
	u32	nr_slots;
};

/**
 * struct map_layout - offsets of the fields of a guest's structures, in bytes
 * @tree:	in struct mm_struct: the root of the tree of VMAs; before Linux 6.1, the first one
 *		of the list
 * @is_list:	true if VMAs are in a list
 * @users:	... the number of its users; zero once the last task exits
 * @vdso:	... the address of its vDSO
 * @vdso_image:	... which vDSO that is; arm64 has no such field
 * @range:	layout of leaves, and of inner nodes that do not track gaps
 * @arange:	layout of inner nodes that track gaps
 * @start:	in struct vm_area_struct: the first address
 * @end:	... the first address after the VMA
 * @flags:	... the flags, VM_EXEC among them
 * @pgoff:	... the offset in the file, in pages
 * @file:	... the file
 * @next:	... the next VMA in the list; zero if there is no list
 * @vma_end:	the end of the last of these fields
 * @f_mnt:	in struct file: the mount
 * @f_dentry:	... the dentry, which is the last component of the path
 * @f_inode:	... the inode
 * @f_mapping:	... the struct address_space
 * @i_ino:	in struct inode: the number of the inode
 * @i_sb:	... the superblock
 * @s_dev:	in struct super_block: the device number
 * @d_parent:	in struct dentry: the dentry of the directory
 * @d_name:	... a pointer to the name
 * @d_len:	... the length of the name
 * @d_pprev:	... a link of the hash table; NULL if the file was deleted
 * @mnt:	in struct mount: the struct vfsmount, to which other structures point
 * @mnt_root:	... the dentry of the root of the mounted tree
 * @mnt_parent:	... the mount that it is mounted on; itself for the topmost mount
 * @mnt_point:	... the dentry that it is mounted on
 */
struct map_layout {
	u32			tree;
	bool			is_list;
	u32			users;
	u32			vdso;
	u32			vdso_image;
	struct node_layout	range;
	struct node_layout	arange;
	u32			start;
	u32			end;
	u32			flags;
	u32			pgoff;
	u32			file;
	u32			next;
	u32			vma_end;
	u32			f_mnt;
	u32			f_dentry;
	u32			f_inode;
	u32			f_mapping;
	u32			i_ino;
	u32			i_sb;
	u32			s_dev;
	u32			d_parent;
	u32			d_name;
	u32			d_len;
	u32			d_pprev;
	u32			mnt;
	u32			mnt_root;
	u32			mnt_parent;
	u32			mnt_point;
};

/**
 * struct program - a file with code
 * @cache:	how to find its pages
 * @mapping:	address of its struct address_space
 * @build_id:	its build-id
 * @tried:	true if perf has tried to write what names and unwinds it
 * @missing:	how many of its pages were missing then; GUEST_PROGRAM_NONE if nothing was written
 * @content:	how much was written, see guest_program__write()
 */
struct program {
	const struct guest_page_cache *cache;
	u64			mapping;
	struct build_id		build_id;
	bool			tried;
	int			missing;
	u64			content;
};

/**
 * struct guest_map_writer - the files that a guest's processes run
 * @mem:	the guest's memory
 * @file:	the file that they are written to
 * @dir:	the directory with the files of the guest's kernel
 * @layout:	offsets of the fields of the guest's structures
 * @cache:	how to find pages of files
 * @jits:	state for names of compiled code; NULL if these can't be found
 * @vdso:	the vDSO of 64-bit programs, which the kernel has in its memory
 * @vdso_image:	address of the struct vdso_image; zero on arm64, or if that isn't known
 * @programs:	the files that were found
 * @nr_programs: number of these
 * @next:	index of the one to try next
 * @written:	number of bytes that were written of programs
 * @warned:	true after a warning that @file has become too large
 */
struct guest_map_writer {
	struct guest_memory	*mem;
	FILE			*file;
	char			*dir;
	struct map_layout	layout;
	struct guest_page_cache	cache;
	struct guest_jit_writer	*jits;
	struct guest_page_cache	vdso;
	u64			vdso_image;
	struct program		*programs;
	size_t			nr_programs;
	size_t			next;
	u64			written;
	bool			warned;
};

/**
 * struct process - the process whose files are read
 * @vdso:	address of its vDSO; zero if that is none of 64-bit programs
 * @out:	receives a line for each executable mapping of a file
 * @nr_vmas:	number of VMAs that were read
 */
struct process {
	u64		vdso;
	FILE		*out;
	unsigned int	nr_vmas;
};

static bool find_node(const struct btf *btf, const char *type, struct node_layout *node)
{
	int id = btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT);
	const struct btf_type *slots;

	if (guest_btf__find(btf, id, "pivot", &node->pivots) < 0)
		return false;

	id = guest_btf__find(btf, id, "slot", &node->slots);
	slots = id < 0 ? NULL : btf__type_by_id(btf, id);
	if (!slots || !btf_is_array(slots))
		return false;

	node->nr_slots = btf_array(slots)->nelems;
	return node->nr_slots && node->nr_slots <= NODE_SIZE / sizeof(u64) &&
	       node->pivots <= NODE_SIZE - node->nr_slots * sizeof(u64) &&
	       node->slots <= NODE_SIZE - node->nr_slots * sizeof(u64);
}

/* Find how VMAs are kept: in a maple tree, or in a list before Linux 6.1. */
static bool find_vmas(const struct btf *btf, struct map_layout *layout)
{
	if (guest_btf__find_field(btf, "mm_struct", "mm_mt", "ma_root", &layout->tree))
		return find_node(btf, "maple_range_64", &layout->range) &&
		       find_node(btf, "maple_arange_64", &layout->arange);

	layout->is_list = guest_btf__find_field(btf, "mm_struct", "mmap", NULL, &layout->tree) &&
			  guest_btf__find_field(btf, "vm_area_struct", "vm_next", NULL,
						&layout->next) &&
			  layout->next <= MAX_VMA_SIZE - sizeof(u64);
	layout->vma_end = max(layout->vma_end, layout->next + (u32)sizeof(u64));
	return layout->is_list;
}

static bool find_layout(const struct btf *btf, struct map_layout *layout)
{
	const struct {
		const char	*type;
		const char	*outer;
		const char	*inner;
		u32		*offset;
	} fields[] = {
		{ "mm_struct",	"mm_users",	NULL,		&layout->users },
		{ "file",	"f_path",	"mnt",		&layout->f_mnt },
		{ "file",	"f_path",	"dentry",	&layout->f_dentry },
		{ "file",	"f_inode",	NULL,		&layout->f_inode },
		{ "file",	"f_mapping",	NULL,		&layout->f_mapping },
		{ "inode",	"i_ino",	NULL,		&layout->i_ino },
		{ "inode",	"i_sb",		NULL,		&layout->i_sb },
		{ "super_block", "s_dev",	NULL,		&layout->s_dev },
		{ "dentry",	"d_parent",	NULL,		&layout->d_parent },
		{ "dentry",	"d_name",	"name",		&layout->d_name },
		{ "dentry",	"d_name",	"len",		&layout->d_len },
		{ "dentry",	"d_hash",	"pprev",	&layout->d_pprev },
		{ "mount",	"mnt",		NULL,		&layout->mnt },
		{ "mount",	"mnt",		"mnt_root",	&layout->mnt_root },
		{ "mount",	"mnt_parent",	NULL,		&layout->mnt_parent },
		{ "mount",	"mnt_mountpoint", NULL,		&layout->mnt_point },
	}, vma_fields[] = {
		{ "vm_area_struct", "vm_start",	NULL,		&layout->start },
		{ "vm_area_struct", "vm_end",	NULL,		&layout->end },
		{ "vm_area_struct", "vm_flags",	NULL,		&layout->flags },
		{ "vm_area_struct", "vm_pgoff",	NULL,		&layout->pgoff },
		{ "vm_area_struct", "vm_file",	NULL,		&layout->file },
	};

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!guest_btf__find_field(btf, fields[i].type, fields[i].outer,
					   fields[i].inner, fields[i].offset))
			return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(vma_fields); i++) {
		if (!guest_btf__find_field(btf, vma_fields[i].type, vma_fields[i].outer,
					   vma_fields[i].inner, vma_fields[i].offset) ||
		    *vma_fields[i].offset > MAX_VMA_SIZE - sizeof(u64))
			return false;
		layout->vma_end = max(layout->vma_end,
				      *vma_fields[i].offset + (u32)sizeof(u64));
	}
	return find_vmas(btf, layout);
}

/* As find_vdso(), for arm64, whose kernels have no struct with the vDSO's address and size. */
static void find_arm64_vdso(struct guest_map_writer *maps, struct guest_kernel *kernel,
			    const struct btf *btf)
{
	const struct guest_symbol *start = guest_kernel__symbol(kernel, "vdso_start");
	const struct guest_symbol *end = guest_kernel__symbol(kernel, "vdso_end");

	if (!start || !start->addr || !end || end->addr <= start->addr ||
	    !guest_btf__find_field(btf, "mm_struct", "context", "vdso", &maps->layout.vdso))
		return;

	maps->vdso.mem = maps->mem;
	maps->vdso.is_arm64 = true;
	maps->vdso.image = start->addr;
	maps->vdso.image_size = end->addr - start->addr;
}

/* Find the kernel's vDSO for 64-bit programs. */
static void find_vdso(struct guest_map_writer *maps, struct guest_kernel *kernel,
		      const struct btf *btf)
{
	const struct guest_symbol *symbol = guest_kernel__symbol(kernel, "vdso_image_64");
	u32 data, size;

	if (!symbol || !guest_btf__find_field(btf, "vdso_image", "data", NULL, &data) ||
	    !guest_btf__find_field(btf, "vdso_image", "size", NULL, &size) ||
	    !guest_btf__find_field(btf, "mm_struct", "context", "vdso", &maps->layout.vdso) ||
	    !guest_btf__find_field(btf, "mm_struct", "context", "vdso_image",
				   &maps->layout.vdso_image) ||
	    !guest_memory__read(maps->mem, symbol->addr + size, &maps->vdso.image_size,
				sizeof(u64)) ||
	    !guest_memory__read(maps->mem, symbol->addr + data, &maps->vdso.image, sizeof(u64)))
		return;

	if (!maps->vdso.image)
		return;

	maps->vdso.mem = maps->mem;
	maps->vdso_image = symbol->addr;
}

/**
 * guest_map_writer__new - prepare to write the files that a guest's processes run
 * @kernel:	the guest's kernel, with its symbols
 * @btf:	its types
 * @vmemmap:	where the struct page of guest-physical address zero is, or would be
 * @file:	the file to write to
 * @dir:	the directory with the files of the guest's kernel
 *
 * Return: the state; NULL if the types lack a field that perf reads.
 */
struct guest_map_writer *guest_map_writer__new(struct guest_kernel *kernel, const struct btf *btf,
					       u64 vmemmap, FILE *file, const char *dir)
{
	struct guest_map_writer *maps = zalloc(sizeof(*maps));

	if (!maps || !find_layout(btf, &maps->layout) ||
	    !guest_page_cache__init(&maps->cache, kernel, btf, vmemmap)) {
		free(maps);
		return NULL;
	}
	maps->mem = kernel->mem;
	if (kernel->info.is_arm64)
		find_arm64_vdso(maps, kernel, btf);
	else
		find_vdso(maps, kernel, btf);
	maps->file = file;
	maps->dir = strdup(dir);
	if (!maps->dir) {
		free(maps);
		return NULL;
	}
	maps->jits = guest_jit_writer__new(&maps->cache, btf, dir);
	return maps;
}

void guest_map_writer__delete(struct guest_map_writer *maps)
{
	if (maps) {
		guest_jit_writer__delete(maps->jits);
		free(maps->dir);
		free(maps->programs);
	}
	free(maps);
}

static bool read_u64(struct guest_map_writer *maps, u64 gva, u64 *value)
{
	return guest_memory__read(maps->mem, gva, value, sizeof(*value));
}

/* Put a slash and the name of @dentry right before @end; return where they begin, or NULL. */
static char *prepend_name(struct guest_map_writer *maps, u64 dentry, const char *path, char *end)
{
	const struct map_layout *layout = &maps->layout;
	u64 name;
	u32 len;

	if (!read_u64(maps, dentry + layout->d_name, &name) ||
	    !guest_memory__read(maps->mem, dentry + layout->d_len, &len, sizeof(len)) ||
	    !len || len > MAX_NAME || end - path < (ptrdiff_t)len + 1 ||
	    !guest_memory__read(maps->mem, name, end - len, len))
		return NULL;

	/* Refuse "." and "..": the path would be that of another file. */
	if ((len == 1 && end[-1] == '.') || (len == 2 && end[-1] == '.' && end[-2] == '.'))
		return NULL;
	/* The name is printed on terminals, and must stay one component. */
	for (char *c = end - len; c < end; c++) {
		if (*c < ' ' || *c > '~' || *c == '/')
			*c = '?';
	}
	end -= len + 1;
	*end = '/';
	return end;
}

/* Read the path of a file into @path, which has PATH_MAX bytes; return where it begins, or NULL. */
static const char *read_path(struct guest_map_writer *maps, u64 file, char *path)
{
	const struct map_layout *layout = &maps->layout;
	char *begin = path + PATH_MAX - sizeof(DELETED);
	u64 mount, dentry, root, parent, pprev;

	if (!read_u64(maps, file + layout->f_mnt, &mount) ||
	    !read_u64(maps, file + layout->f_dentry, &dentry) ||
	    !read_u64(maps, dentry + layout->d_pprev, &pprev))
		return NULL;
	*begin = 0;
	if (!pprev)
		memcpy(begin, DELETED, sizeof(DELETED));

	mount -= layout->mnt;
	for (unsigned int i = 0; i < MAX_COMPONENTS && begin; i++) {
		if (!read_u64(maps, mount + layout->mnt_root, &root))
			return NULL;

		if (dentry != root) {
			begin = prepend_name(maps, dentry, path, begin);
			/* A file without a directory, such as a memfd, is its own parent. */
			if (!read_u64(maps, dentry + layout->d_parent, &parent) ||
			    parent == dentry)
				return NULL;
			dentry = parent;
			continue;
		}

		if (!read_u64(maps, mount + layout->mnt_parent, &parent))
			return NULL;
		if (parent == mount)
			return *begin == '/' ? begin : NULL;
		if (!read_u64(maps, mount + layout->mnt_point, &dentry))
			return NULL;
		mount = parent;
	}
	return NULL;
}

/* Read the device number and the inode number of a file. */
static bool read_inode(struct guest_map_writer *maps, u64 file, u32 *dev, u64 *ino)
{
	const struct map_layout *layout = &maps->layout;
	u64 inode, sb;

	return read_u64(maps, file + layout->f_inode, &inode) &&
	       read_u64(maps, inode + layout->i_ino, ino) &&
	       read_u64(maps, inode + layout->i_sb, &sb) &&
	       guest_memory__read(maps->mem, sb + layout->s_dev, dev, sizeof(*dev));
}

/*
 * Read the build-id of a file, and note the file for guest_map_writer__write_programs().  Read it
 * each time: another file may be there by now.
 */
static bool note_program(struct guest_map_writer *maps, const struct guest_page_cache *cache,
			 u64 mapping, struct build_id *build_id)
{
	struct program *program;

	if (!guest_program__read_build_id(cache, mapping, build_id))
		return false;

	for (size_t i = 0; i < maps->nr_programs; i++) {
		program = &maps->programs[i];
		if (program->build_id.size == build_id->size &&
		    !memcmp(program->build_id.data, build_id->data, build_id->size)) {
			/* Another copy, or the file was cached anew: use what is there now. */
			program->cache = cache;
			program->mapping = mapping;
			return true;
		}
	}
	if (maps->nr_programs == MAX_PROGRAMS)
		return true;

	/* The array is full if the number is zero or a power of two. */
	if (!(maps->nr_programs & (maps->nr_programs - 1))) {
		program = realloc(maps->programs,
				  max(2 * maps->nr_programs, (size_t)1) * sizeof(*program));
		if (!program)
			return true;
		maps->programs = program;
	}
	maps->programs[maps->nr_programs++] = (struct program) {
		.cache = cache, .mapping = mapping, .build_id = *build_id,
		.missing = GUEST_PROGRAM_NONE,
	};
	return true;
}

/* Write a line for a process's vDSO. */
static void write_vdso(struct guest_map_writer *maps, struct process *process, u64 first, u64 last)
{
	struct build_id build_id;
	char hex[SBUILD_ID_SIZE];

	if (note_program(maps, &maps->vdso, 0, &build_id) &&
	    build_id__snprintf(&build_id, hex, sizeof(hex)) > 0)
		fprintf(process->out, "%" PRIx64 " %" PRIx64 " 0 0:0 0 %s [vdso]\n", first,
			last + 1, hex);
}

/* Write a line for a VMA from @first to @last, if it has a file mapped executable. */
static void write_vma(struct guest_map_writer *maps, struct process *process, const u8 *vma,
		      u64 first, u64 last)
{
	const struct map_layout *layout = &maps->layout;
	u64 file = get_unaligned_le64(vma + layout->file), ino, mapping;
	char buf[PATH_MAX], hex[SBUILD_ID_SIZE] = "-";
	struct build_id build_id;
	const char *path;
	u32 dev;

	if (!(get_unaligned_le64(vma + layout->flags) & VM_EXEC))
		return;
	if (!file && process->vdso && first == process->vdso)
		write_vdso(maps, process, first, last);
	else if (!file)
		fprintf(process->out, "%" PRIx64 " %" PRIx64 " %" PRIx64 " 0:0 0 - " ANON "\n",
			first, last + 1, first);
	if (!file)
		return;

	path = read_inode(maps, file, &dev, &ino) ? read_path(maps, file, buf) : NULL;
	if (!path)
		return;

	if (read_u64(maps, file + layout->f_mapping, &mapping) &&
	    note_program(maps, &maps->cache, mapping, &build_id))
		build_id__snprintf(&build_id, hex, sizeof(hex));
	fprintf(process->out, "%" PRIx64 " %" PRIx64 " %" PRIx64 " %x:%x %" PRIu64 " %s %s\n",
		first, last + 1, get_unaligned_le64(vma + layout->pgoff) <<
		(GUEST_PAGE_SHIFT + maps->cache.page_bits),
		dev >> MINOR_BITS, dev & MINOR_MASK, ino, hex, path);
}

/* Read the VMA that a leaf has for @first to @last; return false if the VMA has another range. */
static bool read_vma(struct guest_map_writer *maps, struct process *process, u64 vma, u64 first,
		     u64 last)
{
	const struct map_layout *layout = &maps->layout;
	u8 raw[MAX_VMA_SIZE];

	if (++process->nr_vmas > MAX_VMAS)
		return true;
	if (!guest_memory__read(maps->mem, vma, raw, layout->vma_end) ||
	    get_unaligned_le64(raw + layout->start) != first ||
	    get_unaligned_le64(raw + layout->end) != last + 1)
		return false;

	write_vma(maps, process, raw, first, last);
	return true;
}

/* Read the tree's node for @first to @last; return false if its contents make no sense. */
static bool read_node(struct guest_map_writer *maps, struct process *process, u64 node, u64 first,
		      u64 last, unsigned int depth)
{
	unsigned int type = (node >> NODE_TYPE_SHIFT) & NODE_TYPE_MASK;
	const struct node_layout *layout = &maps->layout.range;
	u8 raw[NODE_SIZE];

	if (type == NODE_ARANGE_64)
		layout = &maps->layout.arange;
	else if (type != NODE_LEAF_64 && type != NODE_RANGE_64)
		return false;
	if (!depth || !guest_memory__read(maps->mem, node & NODE_MASK, raw, sizeof(raw)))
		return false;

	for (u32 i = 0; i < layout->nr_slots; i++) {
		u64 slot = get_unaligned_le64(raw + layout->slots + i * sizeof(u64)), end = last;
		bool good = true;

		if (i + 1 < layout->nr_slots)
			end = get_unaligned_le64(raw + layout->pivots + i * sizeof(u64));
		/* After the last slot in use, pivots are zero, and slots may be anything. */
		if (i && !end)
			return true;
		if (end < first || end > last)
			return false;
		if (slot && type == NODE_LEAF_64)
			good = read_vma(maps, process, slot, first, end);
		else if (slot)
			good = read_node(maps, process, slot, first, end, depth - 1);
		if (!good || end == last)
			return good;
		first = end + 1;
	}
	return true;
}

/* Read the list of VMAs; return false if it is not in order. */
static bool read_list(struct guest_map_writer *maps, struct process *process, u64 vma)
{
	const struct map_layout *layout = &maps->layout;
	u8 raw[MAX_VMA_SIZE];
	u64 last = 0;

	while (vma && ++process->nr_vmas <= MAX_VMAS) {
		u64 start, end;

		if (!guest_memory__read(maps->mem, vma, raw, layout->vma_end))
			return false;
		start = get_unaligned_le64(raw + layout->start);
		end = get_unaligned_le64(raw + layout->end);
		if (start < last || end <= start)
			return false;
		write_vma(maps, process, raw, start, end - 1);
		last = end;
		vma = get_unaligned_le64(raw + layout->next);
	}
	return true;
}

/* Return the address of a process's vDSO; zero if that isn't known. */
static u64 read_vdso(struct guest_map_writer *maps, u64 mm)
{
	u64 vdso, image;

	if (!maps->vdso.mem || !read_u64(maps, mm + maps->layout.vdso, &vdso))
		return 0;
	/* On arm64, that of a 32-bit program is below 4 GiB, where 64-bit programs have none. */
	if (maps->vdso.is_arm64)
		return vdso >> 32 ? vdso : 0;
	return read_u64(maps, mm + maps->layout.vdso_image, &image) &&
	       image == maps->vdso_image ? vdso : 0;
}

/* Return a line for each executable mapping of a file, to be freed; NULL if they can't be read. */
static char *read_files(struct guest_map_writer *maps, u64 mm)
{
	struct process process = {};
	char *text = NULL;
	size_t size;
	u32 users;
	u64 node;
	bool good;

	guest_memory__forget(maps->mem);
	process.out = open_memstream(&text, &size);
	if (!process.out)
		return NULL;

	process.vdso = read_vdso(maps, mm);
	good = read_u64(maps, mm + maps->layout.tree, &node) &&
	       (maps->layout.is_list ? read_list(maps, &process, node) :
				       read_node(maps, &process, node, 0, ~0ULL, MAX_DEPTH)) &&
	       guest_memory__read(maps->mem, mm + maps->layout.users, &users, sizeof(users)) &&
	       users;
	if (!fclose(process.out) && good && !guest_memory__is_exhausted(maps->mem))
		return text;
	free(text);
	return NULL;
}

/**
 * guest_map_writer__read - read the files that a process runs
 * @maps:	state of the guest
 * @mm:		address of the process's struct mm_struct
 *
 * A line has the first address and the one after the last, the offset in the file, the file's
 * device and inode, its build-id or "-", and its path.  A mapping that has no file has "//anon" in
 * place of the path, and its address in place of the offset.
 *
 * Return: the lines, to be freed; NULL if they can't be read, or if no two reads in a row agree.
 */
char *guest_map_writer__read(struct guest_map_writer *maps, u64 mm)
{
	char *last = NULL, *text = NULL;

	for (unsigned int i = 0; i < MAX_READS; i++) {
		text = read_files(maps, mm);
		if (text && last && !strcmp(text, last))
			break;
		free(last);
		last = text;
		text = NULL;
	}
	free(last);
	return text;
}

/**
 * guest_map_writer__note - write the files that a process runs since @time
 * @maps:	state of the guest
 * @root:	guest-physical address of the process's topmost page table
 * @pid:	its pid in the guest
 * @time:	time of the look, in perf's clock
 * @files:	the lines of guest_map_writer__read()
 *
 * Write a line with @time, @root and @pid, and then @files.
 */
void guest_map_writer__note(struct guest_map_writer *maps, u64 root, u32 pid, u64 time,
			    const char *files)
{
	if (ftell(maps->file) <= MAX_FILE) {
		fprintf(maps->file, "%" PRIu64 " %" PRIx64 " %u\n%s", time, root, pid, files);
		fflush(maps->file);
		return;
	}
	if (!maps->warned)
		pr_warning("New programs of a guest have no names: there are too many\n");
	maps->warned = true;
}

/**
 * guest_map_writer__has_jit - check whether a process can execute memory without a file
 * @files: the lines of guest_map_writer__read()
 *
 * Return: true if it can, as those with a JIT compiler.
 */
bool guest_map_writer__has_jit(const char *files)
{
	return strstr(files, " - " ANON "\n");
}

/**
 * guest_map_writer__note_jit - write the names of what a process has compiled
 * @maps:	state of the guest
 * @fds:	address of its struct files_struct
 * @own:	address of its struct pid; zero if that isn't known
 * @root:	guest-physical address of its topmost page table
 * @pid:	its pid in the guest
 */
void guest_map_writer__note_jit(struct guest_map_writer *maps, u64 fds, u64 own, u64 root,
				u32 pid)
{
	if (maps->jits)
		guest_jit_writer__note(maps->jits, fds, own, root, pid);
}

/* Write one program, unless what was written before has as much. */
static void write_program(struct guest_map_writer *maps, struct program *program)
{
	char path[PATH_MAX], new_path[PATH_MAX + sizeof(".new")], hex[SBUILD_ID_SIZE];
	int missing = GUEST_PROGRAM_NONE;
	u64 content = 0;
	FILE *file;
	bool good;

	build_id__snprintf(&program->build_id, hex, sizeof(hex));
	if (snprintf(path, sizeof(path), "%s/programs/%s", maps->dir, hex) >= (int)sizeof(path))
		return;

	/* Readers never see half a file.  A file of that name is somebody else's. */
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	file = guest_sandbox__fopen(new_path, GUEST_CREATE_FILE);
	if (!file)
		return;
	if (maps->written < MAX_WRITTEN)
		missing = guest_program__write(program->cache, program->mapping, &program->build_id,
					       file, &content);
	maps->written += ftell(file);
	good = !ferror(file);
	if (fclose(file) || !good || missing < 0 ||
	    (program->missing >= 0 && content <= program->content) ||
	    guest_sandbox__rename(new_path, path)) {
		guest_sandbox__unlink(new_path);
		return;
	}
	program->missing = missing;
	program->content = content;
}

/**
 * guest_map_writer__write_programs - write what names and unwinds the files that were found
 * @maps: state of the guest
 *
 * Each goes to the file programs/BUILD-ID in the directory of guest_map_writer__new().
 *
 * Return: true if all were tried; false if the budget of one look does not suffice.
 */
bool guest_map_writer__write_programs(struct guest_map_writer *maps)
{
	for (size_t i = 0; i < maps->nr_programs; i++) {
		struct program *program;

		if (maps->next >= maps->nr_programs)
			maps->next = 0;
		program = &maps->programs[maps->next++];
		if (program->tried)
			continue;
		/* One for which a whole budget does not suffice must not keep out the others. */
		program->tried = true;
		write_program(maps, program);
		if (guest_memory__is_exhausted(maps->mem))
			return false;
	}
	return true;
}

/**
 * guest_map_writer__retry_programs - have incomplete programs written anew
 * @maps: state of the guest
 *
 * By now, the guest may have cached these pages.
 */
void guest_map_writer__retry_programs(struct guest_map_writer *maps)
{
	for (size_t i = 0; i < maps->nr_programs; i++)
		maps->programs[i].tried &= !maps->programs[i].missing;
}
