// SPDX-License-Identifier: GPL-2.0
/*
 * The files that a guest's processes run, by what perf record has noted of them, see
 * guest_maps__note().
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "build-id.h"
#include "dso.h"
#include "guest-thread-maps.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "mutex.h"
#include "symbol_conf.h"
#include "thread.h"

/* Notes that guest_maps__note() makes are fewer. */
#define MAX_NOTES	(1 << 20)

#define BUILD_ID_HEX	(2 * BUILD_ID_SIZE)

/**
 * struct note - a file that a process runs from some time on
 * @time:	from when on
 * @root:	guest-physical address of the process's page tables
 * @start:	its first address
 * @end:	the one behind its last
 * @pgoff:	where that is in the file
 * @pid:	of the process
 * @used:	whether the process has it
 * @id:		which file: device, inode, and its build-id if that is known
 * @path:	of the file
 */
struct note {
	u64		time;
	u64		root;
	u64		start;
	u64		end;
	u64		pgoff;
	u32		pid;
	bool		used;
	struct dso_id	id;
	char		*path;
};

/**
 * struct guest_thread_maps - all that was noted of the files that a guest's processes run
 * @notes:	by page tables, and by time
 * @nr:		how many
 */
struct guest_thread_maps {
	struct note	*notes;
	size_t		nr;
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
 * As guest_maps__note() writes them; the folder may have been unpacked from elsewhere.  A path
 * that perf takes for a list of symbols is none.
 */
static bool read_note(char *line, struct note *note)
{
	char hex[BUILD_ID_HEX + 1];
	int path = 0;
	u64 pid;

	memset(note, 0, sizeof(*note));
	line[strcspn(line, "\n")] = 0;
	if (sscanf(line, "%" SCNu64 " %" SCNx64 " %" SCNu64 " %" SCNx64 " %" SCNx64 " %" SCNx64
		   " %x:%x %" SCNu64 " %40s %n", &note->time, &note->root, &pid, &note->start,
		   &note->end, &note->pgoff, &note->id.maj, &note->id.min, &note->id.ino, hex,
		   &path) != 10 || !path || line[path] != '/' ||
	    !note->root || pid > INT_MAX || note->start >= note->end || note->end > LLONG_MAX ||
	    !read_build_id(hex, &note->id.build_id) || is_perf_pid_map_name(&line[path]))
		return false;

	for (const char *c = &line[path]; *c; c++) {
		if (*c < ' ' || *c > '~')
			return false;
	}
	note->id.mmap2_valid = true;
	note->pid = pid;
	note->path = strdup(&line[path]);
	return note->path;
}

static int cmp_notes(const void *a, const void *b)
{
	const struct note *x = a, *y = b;

	if (x->root != y->root)
		return x->root < y->root ? -1 : 1;
	return x->time < y->time ? -1 : x->time > y->time;
}

/* By file, and those whose build-id is known first. */
static int cmp_files(const void *a, const void *b)
{
	const struct note *x = *(const struct note **)a, *y = *(const struct note **)b;

	if (x->id.ino != y->id.ino)
		return x->id.ino < y->id.ino ? -1 : 1;
	if (x->id.maj != y->id.maj)
		return x->id.maj < y->id.maj ? -1 : 1;
	if (x->id.min != y->id.min)
		return x->id.min < y->id.min ? -1 : 1;
	return strcmp(x->path, y->path) ?:
	       build_id__is_defined(&y->id.build_id) - build_id__is_defined(&x->id.build_id);
}

/* A file's first page may be there for one process only: all that run the file share it. */
static void share_build_ids(struct guest_thread_maps *maps)
{
	struct note **files = calloc(maps->nr, sizeof(*files)), *known = NULL;

	for (size_t i = 0; files && i < maps->nr; i++)
		files[i] = &maps->notes[i];
	if (files)
		qsort(files, maps->nr, sizeof(*files), cmp_files);
	for (size_t i = 0; files && i < maps->nr; i++) {
		struct note *note = files[i];

		if (build_id__is_defined(&note->id.build_id))
			known = note;
		else if (known && known->id.ino == note->id.ino &&
			 known->id.maj == note->id.maj && known->id.min == note->id.min &&
			 !strcmp(known->path, note->path))
			note->id.build_id = known->id.build_id;
	}
	free(files);
}

/**
 * guest_thread_maps__load - read what was noted of the files that a guest's processes run
 * @file: with the notes
 *
 * Return: them; NULL if there are none.
 */
struct guest_thread_maps *guest_thread_maps__load(FILE *file)
{
	struct guest_thread_maps *maps = zalloc(sizeof(*maps));
	char *line = NULL;
	size_t len = 0;

	while (maps && maps->nr < MAX_NOTES && getline(&line, &len, file) > 0) {
		struct note note, *notes = maps->notes;

		if (!read_note(line, &note))
			continue;
		/* At powers of two there is no more room. */
		if (!(maps->nr & (maps->nr - 1))) {
			notes = realloc(notes, max(2 * maps->nr, (size_t)1) * sizeof(*notes));
			if (!notes) {
				free(note.path);
				break;
			}
			maps->notes = notes;
		}
		notes[maps->nr++] = note;
	}
	free(line);
	if (!maps || !maps->nr) {
		guest_thread_maps__delete(maps);
		return NULL;
	}
	qsort(maps->notes, maps->nr, sizeof(*maps->notes), cmp_notes);
	share_build_ids(maps);
	return maps;
}

void guest_thread_maps__delete(struct guest_thread_maps *maps)
{
	if (!maps)
		return;

	for (size_t i = 0; i < maps->nr; i++)
		free(maps->notes[i].path);
	free(maps->notes);
	free(maps);
}

static void add_map(struct machine *machine, struct thread *thread, const struct note *note)
{
	struct dso *dso = machine__findnew_dso_id(machine, note->path, &note->id);
	struct map *map = dso ? map__new2(note->start, dso) : NULL;

	if (map) {
		map__set_end(map, note->end);
		map__set_pgoff(map, note->pgoff);
		maps__fixup_overlap_and_insert(thread__maps(thread), map);
	}
	/*
	 * The host's file of that name is another one, unless its build-id is the same, as the
	 * symbols' reader looks for itself, or it is below --symfs.
	 */
	if (dso && !build_id__is_defined(&note->id.build_id) && !*symbol_conf.symfs) {
		mutex_lock(dso__lock(dso));
		dso__set_loaded(dso);
		mutex_unlock(dso__lock(dso));
	}
	map__put(map);
	dso__put(dso);
}

/**
 * guest_thread_maps__use - let a thread have the files that its process runs
 * @maps:	of the guest; may be NULL
 * @machine:	the guest
 * @thread:	the thread
 * @root:	guest-physical address of the process's page tables
 * @pid:	of the process
 * @time:	up to when, in perf's time
 */
void guest_thread_maps__use(struct guest_thread_maps *maps, struct machine *machine,
			    struct thread *thread, u64 root, u32 pid, u64 time)
{
	size_t low = 0, high = maps ? maps->nr : 0;

	/* The first one of those page tables. */
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (maps->notes[mid].root < root)
			low = mid + 1;
		else
			high = mid;
	}
	for (; maps && low < maps->nr && maps->notes[low].root == root &&
	     maps->notes[low].time <= time; low++) {
		struct note *note = &maps->notes[low];

		if (note->used || note->pid != pid)
			continue;
		add_map(machine, thread, note);
		note->used = true;
	}
}
