// SPDX-License-Identifier: GPL-2.0
/*
 * The files that a guest's processes run, as perf record has written them, see
 * guest_map_writer__note().
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "build-id.h"
#include "dso.h"
#include "guest-folder.h"
#include "guest-map-reader.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "symbol.h"
#include "symbol_conf.h"
#include "thread.h"

/* Read no more than this; guest_map_writer__note() hardly writes as much. */
#define MAX_FILES	(1 << 20)
#define MAX_SETS	(1 << 18)

#define BUILD_ID_HEX	(2 * BUILD_ID_SIZE)

/*
 * Suffixes of file names, so that perf doesn't open the host's file with the same path.  UNKNOWN is
 * for files whose build-id perf does not know.
 */
#define GUEST_ONLY	" (guest)"

/* The kernel has this file; the others have absolute paths. */
#define VDSO		"[vdso]"
#define UNKNOWN		" (guest, no build-id)"

/* Code in memory without a file: perf's own name for it. */
#define ANON		"//anon"

/**
 * struct file - a file that a process runs
 * @start:	its first address
 * @end:	the address after its last one
 * @pgoff:	offset of @start in the file
 * @id:		device, inode, and the build-id if that is known
 * @path:	path of the file
 */
struct file {
	u64		start;
	u64		end;
	u64		pgoff;
	struct dso_id	id;
	char		*path;
};

/**
 * struct set - all files that a process runs since some time
 * @root:	guest-physical address of the process's page tables
 * @pid:	pid of the process
 * @time:	when the process was first seen to run these files
 * @first:	index of the first of its files
 * @nr:		number of its files
 */
struct set {
	u64	root;
	u32	pid;
	u64	time;
	size_t	first;
	size_t	nr;
};

/* A process, and the index of the set that its maps were made from; negative if it has no maps. */
struct process {
	u32	pid;
	ssize_t	set;
};

/**
 * struct guest_map_reader - all that was written of the files that a guest's processes run
 * @files:	files in the order in which they were written
 * @nr_files:	number of files
 * @sets:	sets sorted by page tables, pid, and time
 * @nr_sets:	number of sets
 * @processes:	processes sorted by pid
 * @nr_processes: number of processes
 */
struct guest_map_reader {
	struct file	*files;
	size_t		nr_files;
	struct set	*sets;
	size_t		nr_sets;
	struct process	*processes;
	size_t		nr_processes;
};

static bool read_build_id(const char *hex, struct build_id *build_id)
{
	u8 data[BUILD_ID_SIZE];
	size_t size = strlen(hex) / 2;

	if (!strcmp(hex, "-"))
		return true;
	if (strlen(hex) % 2)
		return false;
	for (size_t i = 0; i < size; i++) {
		if (sscanf(&hex[2 * i], "%2hhx", &data[i]) != 1)
			return false;
	}
	build_id__init(build_id, data, size);
	return true;
}

/*
 * Return true if perf may open @path, on the host or below --symfs.  The guest has chosen the path.
 * Refuse perf's lists of symbols in /tmp as well: those are the host's.
 */
static bool is_sane(const char *path)
{
	static const char *const strange[] = { "/proc/", "/sys/", "/dev/" };

	if (!strcmp(path, VDSO))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(strange); i++) {
		if (!strncmp(path, strange[i], strlen(strange[i])))
			return false;
	}
	for (const char *c = path; *c; c++) {
		if (*c < ' ' || *c > '~')
			return false;
	}
	return *path == '/' && !strstr(path, "/./") && !strstr(path, "/../") &&
	       !is_perf_pid_map_name(path);
}

/*
 * Read a line that guest_map_writer__note() has written.  Check it: the directory may have been
 * unpacked from elsewhere.
 */
static bool read_file(const char *line, struct file *file)
{
	char hex[BUILD_ID_HEX + 1];
	int path = 0;

	memset(file, 0, sizeof(*file));
	if (sscanf(line, "%" SCNx64 " %" SCNx64 " %" SCNx64 " %x:%x %" SCNu64 " %40s %n",
		   &file->start, &file->end, &file->pgoff, &file->id.maj, &file->id.min,
		   &file->id.ino, hex, &path) != 7 || !path || file->start >= file->end ||
	    file->end > LLONG_MAX || !read_build_id(hex, &file->id.build_id) ||
	    !is_sane(&line[path]))
		return false;

	file->id.mmap2_valid = true;
	file->path = strdup(&line[path]);
	return file->path;
}

static bool read_set(const char *line, struct set *set)
{
	int end = 0;
	u64 pid;

	memset(set, 0, sizeof(*set));
	if (sscanf(line, "%" SCNu64 " %" SCNx64 " %" SCNu64 "%n", &set->time, &set->root, &pid,
		   &end) != 3 || !end || line[end] || !set->root || pid > INT_MAX)
		return false;

	set->pid = pid;
	return true;
}

/* Make room for one more element.  The array is full if @nr is zero or a power of two. */
static bool make_room(void **array, size_t nr, size_t size)
{
	void *larger;

	if (nr & (nr - 1))
		return true;

	larger = realloc(*array, max(2 * nr, (size_t)1) * size);
	if (larger)
		*array = larger;
	return larger;
}

static bool add_line(struct guest_map_reader *maps, const char *line)
{
	struct file file;
	struct set set;

	if (read_set(line, &set)) {
		if (maps->nr_sets == MAX_SETS ||
		    !make_room((void **)&maps->sets, maps->nr_sets, sizeof(set)))
			return false;
		set.first = maps->nr_files;
		maps->sets[maps->nr_sets++] = set;
	} else if (maps->nr_sets && read_file(line, &file)) {
		if (maps->nr_files == MAX_FILES ||
		    !make_room((void **)&maps->files, maps->nr_files, sizeof(file))) {
			free(file.path);
			return false;
		}
		maps->files[maps->nr_files++] = file;
		maps->sets[maps->nr_sets - 1].nr++;
	}
	return true;
}

static int cmp_u64(u64 a, u64 b)
{
	return a < b ? -1 : a > b;
}

static int cmp_sets(const void *a, const void *b)
{
	const struct set *x = a, *y = b;

	return cmp_u64(x->root, y->root) ?: cmp_u64(x->pid, y->pid) ?: cmp_u64(x->time, y->time);
}

static int cmp_pids(const void *a, const void *b)
{
	const struct process *x = a, *y = b;

	return cmp_u64(x->pid, y->pid);
}

static bool index_processes(struct guest_map_reader *maps)
{
	size_t nr = 0;

	maps->processes = calloc(maps->nr_sets, sizeof(*maps->processes));
	if (!maps->processes)
		return false;

	for (size_t i = 0; i < maps->nr_sets; i++)
		maps->processes[i] = (struct process){ maps->sets[i].pid, -1 };
	qsort(maps->processes, maps->nr_sets, sizeof(*maps->processes), cmp_pids);
	for (size_t i = 0; i < maps->nr_sets; i++) {
		if (!nr || maps->processes[i].pid != maps->processes[nr - 1].pid)
			maps->processes[nr++] = maps->processes[i];
	}
	maps->nr_processes = nr;
	return true;
}

static int cmp_inodes(const struct file *x, const struct file *y)
{
	return cmp_u64(x->id.ino, y->id.ino) ?: cmp_u64(x->id.maj, y->id.maj) ?:
	       cmp_u64(x->id.min, y->id.min) ?: strcmp(x->path, y->path);
}

/* Sort by inode and path; of the same file, put entries with a known build-id first. */
static int cmp_files(const void *a, const void *b)
{
	const struct file *x = *(const struct file **)a, *y = *(const struct file **)b;

	return cmp_inodes(x, y) ?: cmp_u64(y->id.build_id.size, x->id.build_id.size);
}

/*
 * The build-id of a file may have been read for one process only: give it to all processes that run
 * the file, unless two are known because the file was replaced.
 */
static void share_build_ids(struct guest_map_reader *maps)
{
	struct file **files = calloc(maps->nr_files, sizeof(*files)), *known = NULL;
	bool differ = false;

	for (size_t i = 0; files && i < maps->nr_files; i++)
		files[i] = &maps->files[i];
	if (files)
		qsort(files, maps->nr_files, sizeof(*files), cmp_files);
	for (size_t i = 0; files && i < maps->nr_files; i++) {
		struct build_id *build_id = &files[i]->id.build_id;

		if (!known || cmp_inodes(known, files[i])) {
			known = files[i];
			differ = false;
		} else if (build_id__is_defined(build_id)) {
			differ |= memcmp(build_id->data, known->id.build_id.data, BUILD_ID_SIZE);
		} else if (!differ) {
			*build_id = known->id.build_id;
		}
	}
	free(files);
}

/**
 * guest_map_reader__load - read what was written of the files that a guest's processes run
 * @notes: the file "maps" in the guest's directory
 *
 * Return: the files and sets; NULL if there are none.
 */
struct guest_map_reader *guest_map_reader__load(FILE *notes)
{
	struct guest_map_reader *maps = zalloc(sizeof(*maps));
	char *line = NULL;
	size_t len = 0;

	while (maps && getline(&line, &len, notes) > 0) {
		line[strcspn(line, "\n")] = 0;
		if (!add_line(maps, line))
			break;
	}
	free(line);
	if (!maps || !maps->nr_sets || !index_processes(maps)) {
		guest_map_reader__delete(maps);
		return NULL;
	}
	qsort(maps->sets, maps->nr_sets, sizeof(*maps->sets), cmp_sets);
	if (maps->nr_files)
		share_build_ids(maps);
	return maps;
}

void guest_map_reader__delete(struct guest_map_reader *maps)
{
	if (!maps)
		return;

	for (size_t i = 0; i < maps->nr_files; i++)
		free(maps->files[i].path);
	free(maps->files);
	free(maps->sets);
	free(maps->processes);
	free(maps);
}

/*
 * Return true if perf can use the file that it finds by this path.  With --symfs, assume so;
 * without it, the file on this machine must have the same build-id.
 */
static bool is_at_hand(const struct file *file)
{
	struct build_id build_id = { .size = 0 };

	if (!strcmp(file->path, VDSO))
		return false;
	if (*symbol_conf.symfs)
		return true;
	return build_id__is_defined(&file->id.build_id) &&
	       filename__read_build_id(file->path, &build_id) > 0 &&
	       build_id.size == file->id.build_id.size &&
	       !memcmp(build_id.data, file->id.build_id.data, build_id.size);
}

/* Have perf find a file, and its debug information, in the guest's own file system. */
static bool use_mounted(struct machine *machine, struct dso *dso, const char *path,
			const struct build_id *build_id)
{
	char hex[SBUILD_ID_SIZE], debug[PATH_MAX];
	char *file = dso__guest_mount_tried(dso) ? NULL :
		     guest_folder__mounted(machine, path, build_id);

	dso__set_guest_mount_tried(dso);
	if (!file)
		return false;

	dso__set_guest_mounted(dso);
	dso__set_guest_filename(dso, file);
	build_id__snprintf(build_id, hex, sizeof(hex));
	scnprintf(debug, sizeof(debug), "/usr/lib/debug/.build-id/%.2s/%s.debug", hex, hex + 2);
	dso__set_guest_debug_filename(dso, guest_folder__mounted(machine, debug, build_id));
	return true;
}

/* Have perf find what guest_map_writer__write_programs() has written of a file. */
static void use_program(struct machine *machine, struct dso *dso, const struct build_id *build_id)
{
	char name[SBUILD_ID_SIZE], *path;

	if (build_id__snprintf(build_id, name, sizeof(name)) <= 0 ||
	    asprintf(&path, "%s/programs/%s", machine->root_dir, name) < 0)
		return;

	if (!is_regular_file(path)) {
		free(path);
		return;
	}
	dso__set_guest_filename(dso, path);
	/* While samples are shown live, symbols may have been looked for before this. */
	if (!dso__has_symbols(dso))
		dso__clear_loaded(dso);
}

/*
 * Map code that is in no file, such as that of a JIT compiler.  perf record has written the names
 * that the compiler has given to it, if any, see guest_jit_writer__note().
 */
static void add_anon(struct machine *machine, struct thread *thread, const struct set *set,
		     const struct file *file)
{
	/* Another program may get the same pid later, and has other page tables. */
	const struct dso_id id = { .ino = set->root, .mmap2_valid = true };
	char name[64], *path;
	struct dso *dso;
	struct map *map;
	bool named;

	if (asprintf(&path, "%s/programs/perf-%" PRIx64 "-%u.map", machine->root_dir, set->root,
		     set->pid) < 0)
		return;

	named = is_regular_file(path);
	scnprintf(name, sizeof(name), named ? "[JIT] tid %u" GUEST_ONLY : ANON GUEST_ONLY,
		  set->pid);
	dso = machine__findnew_dso_id(machine, name, &id);
	map = dso ? map__new2(file->start, dso) : NULL;
	if (map) {
		map__set_end(map, file->end);
		map__set_mapping_type(map, MAPPING_TYPE__IDENTITY);
		if (named && !dso__guest_filename(dso)) {
			dso__set_symtab_type(dso, DSO_BINARY_TYPE__JAVA_JIT);
			dso__set_guest_filename(dso, path);
			path = NULL;
		}
		maps__fixup_overlap_and_insert(thread__maps(thread), map);
	}
	map__put(map);
	dso__put(dso);
	free(path);
}

static void add_map(struct machine *machine, struct thread *thread, const struct file *file)
{
	const char *suffix = build_id__is_defined(&file->id.build_id) ? GUEST_ONLY : UNKNOWN;
	char name[PATH_MAX + sizeof(UNKNOWN)];
	struct dso *dso;
	struct map *map;

	scnprintf(name, sizeof(name), "%s%s", file->path, is_at_hand(file) ? "" : suffix);
	dso = machine__findnew_dso_id(machine, name, &file->id);
	/* The name may be that of the kernel's or a module's DSO: don't map it. */
	map = dso && !dso__kernel(dso) ? map__new2(file->start, dso) : NULL;
	if (map) {
		map__set_end(map, file->end);
		map__set_pgoff(map, file->pgoff);
		if (build_id__is_defined(&file->id.build_id) && !dso__guest_filename(dso)) {
			if (!use_mounted(machine, dso, file->path, &file->id.build_id))
				use_program(machine, dso, &file->id.build_id);
		}
		maps__fixup_overlap_and_insert(thread__maps(thread), map);
	}
	map__put(map);
	dso__put(dso);
}

/*
 * Return the index of the set of files that a process ran at @time.  If none is known, return the
 * next one if it begins within GUEST_MAX_LATE, or else a negative value.
 */
static ssize_t find_set(const struct guest_map_reader *maps, u64 root, u32 pid, u64 time)
{
	const struct set key = { .root = root, .pid = pid, .time = time };
	size_t low = 0, high = maps->nr_sets;

	/* Count the sets that come before @key or are equal to it. */
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (cmp_sets(&maps->sets[mid], &key) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	if (low && maps->sets[low - 1].root == root && maps->sets[low - 1].pid == pid)
		return low - 1;
	if (low < maps->nr_sets && maps->sets[low].root == root && maps->sets[low].pid == pid &&
	    maps->sets[low].time - time <= GUEST_MAX_LATE)
		return low;
	return -1;
}

/**
 * guest_map_reader__lacks - check that a process has no file mapped at an address
 * @maps:	maps of the guest; may be NULL
 * @root:	guest-physical address of the process's page tables
 * @pid:	pid of the process
 * @time:	time of the sample, in perf's clock
 * @addr:	the address
 *
 * Return: true if the files of the process are known, and none of them is mapped at @addr.
 */
bool guest_map_reader__lacks(const struct guest_map_reader *maps, u64 root, u32 pid, u64 time,
			     u64 addr)
{
	ssize_t i = maps ? find_set(maps, root, pid, time) : -1;

	if (i < 0)
		return false;

	for (size_t j = 0; j < maps->sets[i].nr; j++) {
		const struct file *file = &maps->files[maps->sets[i].first + j];

		if (addr >= file->start && addr < file->end)
			return false;
	}
	return true;
}

static bool is_any(struct map *map __maybe_unused, void *arg __maybe_unused)
{
	return true;
}

/**
 * guest_map_reader__use - give a thread the maps of the files that its process runs
 * @maps:	maps of the guest; may be NULL
 * @machine:	the guest
 * @thread:	the thread; the other threads of its process share its maps
 * @root:	guest-physical address of the process's page tables
 * @pid:	pid of the process
 * @time:	time of the sample, in perf's clock
 */
void guest_map_reader__use(struct guest_map_reader *maps, struct machine *machine,
			   struct thread *thread, u64 root, u32 pid, u64 time)
{
	const struct process key = { .pid = pid };
	struct process *process;
	const struct set *set;
	ssize_t i;

	if (!maps)
		return;

	process = bsearch(&key, maps->processes, maps->nr_processes, sizeof(key), cmp_pids);
	if (!process)
		return;

	i = find_set(maps, root, pid, time);
	if (i == process->set)
		return;

	process->set = i;
	maps__remove_maps(thread__maps(thread), is_any, NULL);
	set = i < 0 ? NULL : &maps->sets[i];
	for (size_t j = 0; set && j < set->nr; j++) {
		const struct file *file = &maps->files[set->first + j];

		if (strcmp(file->path, ANON))
			add_map(machine, thread, file);
		else
			add_anon(machine, thread, set, file);
	}
}
