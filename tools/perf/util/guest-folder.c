// SPDX-License-Identifier: GPL-2.0
/*
 * The folder with files that perf needs to name and unwind guests: symbols, modules, tables and
 * tasks from the guests' memory, and the guests' names from the VMMs' command lines.  The files
 * have the layout of --guestmount: one directory has a subdirectory for each guest, named by the
 * pid of its VMM.  perf record puts the one directory beside perf.data.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/zalloc.h>

#include "build-id.h"
#include "debug.h"
#include "guest-folder.h"
#include "guest-init-reader.h"
#include "guest-memory.h"
#include "guest-memslots.h"
#include "guest-name.h"
#include "guest-reader.h"
#include "guest-watch.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "record.h"
#include "sample.h"
#include "symbol.h"
#include "symbol_conf.h"
#include "target.h"
#include "util.h"

/* A kernel may still run for this long after perf last saw it run. */
#define MAX_UNSEEN_NSEC	(2 * NSEC_PER_SEC)

/*
 * Return true if the process has a VM of KVM's.  If its file descriptors can't be read, return
 * false with errno set.
 */
static bool runs_guest(const char *pid)
{
	char path[PATH_MAX];

	return guest_memslots__find_vm(atoi(pid), 0, path);
}

/* Write the VM's name, if it has one, to the file "name", and print it. */
static void write_guest_name(pid_t pid, const char *top)
{
	char name[GUEST_NAME_SIZE];
	FILE *file;

	if (!guest_name__read(pid, name))
		return;

	file = guest_files__create(top, "name");
	if (file)
		fprintf(file, "%s\n", name);
	if (guest_files__close(file))
		pr_info("The guest of process %d is called %s\n", pid, name);
}

/*
 * Return true if the directory is this user's or root's.  Names that another user has written may
 * have escape sequences in them.
 */
static bool is_own_folder(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode) && (!st.st_uid || st.st_uid == geteuid());
}

/*
 * Remove a directory that perf has made for guests; return false if there is another one, which
 * lacks @has, or if the directory can't be removed.
 */
static bool remove_own(const char *path, const char *has)
{
	char file[PATH_MAX];

	if (!rmdir(path) || errno == ENOENT)
		return true;
	return snprintf(file, sizeof(file), "%s/%s", path, has) < (int)sizeof(file) &&
	       is_own_folder(path) && !access(file, F_OK) && !rm_rf(path);
}

/* Write the files of a guest to @dir/PID, and watch it, see guest_watch__add(). */
static enum guest_files write_guest(struct guest_reader *what, pid_t pid, const char *dir)
{
	enum guest_files found = GUEST_FILES_NONE;
	char top[PATH_MAX];

	/* Remove what an earlier call has written: it may be another kernel's. */
	if (snprintf(top, sizeof(top), "%s/%d", dir, pid) >= (int)sizeof(top) ||
	    (mkdir(dir, 0700) && errno != EEXIST) || !remove_own(top, "proc")) {
		pr_warning("The guest of process %d has no names: %s can't be written\n", pid, dir);
		return found;
	}

	what->pid = pid;
	what->top = top;
	found = guest_watch__add(what);
	if (found)
		write_guest_name(pid, top);
	else
		remove_own(top, "proc");
	return found;
}

/**
 * guest_folder__write - write the files of a guest: name, kernel, tasks and their files
 * @pid:	pid of the guest's VMM
 * @dir:	directory in which to make the directory PID with these files
 * @tables:	true to write the tables that unwind the kernel
 *
 * Return: what was written of the kernel, see guest_files__write().
 */
enum guest_files guest_folder__write(pid_t pid, const char *dir, bool tables)
{
	struct guest_reader what = { .tables = tables };
	enum guest_files found = write_guest(&what, pid, dir);

	guest_watch__stop();
	return found;
}

static enum guest_files write_guests_of(struct guest_reader *what, const char *pids,
					const char *dir)
{
	char *copy = strdup(pids), *rest = copy, *pid;
	enum guest_files most = GUEST_FILES_NONE;

	while (copy && (pid = strsep(&rest, ","))) {
		errno = 0;
		/*
		 * The user named this process: if perf may not look into it, let write_guest()
		 * warn.
		 */
		if (runs_guest(pid) || errno == EACCES)
			most = max(most, write_guest(what, atoi(pid), dir));
		else
			pr_warning("Process %s runs no guest\n", pid);
	}
	free(copy);
	return most;
}

static enum guest_files write_all_guests(struct guest_reader *what, const char *dir)
{
	enum guest_files most = GUEST_FILES_NONE;
	DIR *procs = opendir("/proc");
	struct dirent *entry;

	while (procs && (entry = readdir(procs))) {
		if (isdigit(entry->d_name[0]) && runs_guest(entry->d_name))
			most = max(most, write_guest(what, atoi(entry->d_name), dir));
	}
	if (procs)
		closedir(procs);
	return most;
}

/* List the processes that run guests.  A workload has not begun yet, so it is not among them. */
static void list_guests(void)
{
	DIR *procs = opendir("/proc");
	char name[GUEST_NAME_SIZE];
	struct dirent *entry;
	unsigned int nr = 0;

	while (procs && (entry = readdir(procs))) {
		pid_t pid = atoi(entry->d_name);

		if (!isdigit(entry->d_name[0]) || !runs_guest(entry->d_name))
			continue;
		if (!nr++)
			pr_warning("No guest is named: choose one by -p, or all by -a\n");
		if (!guest_name__read(pid, name))
			*name = 0;
		pr_warning("  -p %d  %s\n", pid, name);
	}
	if (procs)
		closedir(procs);
	if (!nr)
		pr_warning("No guest is named by -p or -a, and none runs now\n");
}

/*
 * Put the path of the directory with the files of guests into @path.  This directory is beside the
 * data file @data or, with @old, beside @data.old, to which perf record renames the previous data
 * file.  Return false for a pipe or a device, which has no directory beside it.
 */
static bool guests_beside(char path[PATH_MAX], const char *data, bool old)
{
	struct stat st;

	if (!data)
		data = "perf.data";
	if (!strcmp(data, "-") ||
	    (!stat(data, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return false;

	return snprintf(path, PATH_MAX, "%s%s.guests", data, old ? ".old" : "") < PATH_MAX;
}

/**
 * guest_folder__record - write the files of the guests that perf is about to record
 * @opts:	options of the recording
 * @data:	the data file, NULL for perf.data; the files go to a directory beside it.  The
 *		directory of the previous recording is renamed first, as perf.data is to
 *		perf.data.old.
 * @tables:	true to write the tables that unwind the guests' kernels
 *
 * If the user has named files of guests, if symbol_conf.guest_info is false, and on hosts whose
 * guests perf can't read, the previous directory is renamed, but nothing is written.
 *
 * Return: what was written; if guests differ, the highest of their values.
 */
enum guest_files guest_folder__record(const struct record_opts *opts, const char *data,
				      bool tables)
{
	struct guest_reader what = {
		.tables = tables, .only_tasks = guest_folder__is_live(), .opts = opts,
	};
	const struct target *target = &opts->target;
	enum guest_files most = GUEST_FILES_NONE;
	char dir[PATH_MAX], old[PATH_MAX];

	if (!guests_beside(dir, data, false) || !guests_beside(old, data, true))
		return most;

	if (!remove_own(old, "") || (rename(dir, old) && errno != ENOENT)) {
		pr_warning("Guests have no names: %s can't be moved\n", dir);
		return most;
	}
	if (!symbol_conf.guest_info || symbol_conf__has_guest_files() ||
	    !guest_memory__is_supported())
		return most;

	/* Fail if the directory exists: its creator could choose where files are written. */
	if (mkdir(dir, 0700)) {
		pr_warning("Guests have no names: %s can't be made\n", dir);
		return most;
	}
	if (target->pid)
		most = write_guests_of(&what, target->pid, dir);
	else if (target->system_wide || target->cpu_list)
		most = write_all_guests(&what, dir);
	else if (!target->tid)
		list_guests();

	if (most)
		symbol_conf.guestmount = strdup(dir);
	else
		rmdir(dir);
	return most;
}

/* The directory that guest_folder__use() has chosen last, or that was not there. */
static char *used, *missing;

/**
 * guest_folder__is_used - check whether the files of a guest are those of guest_folder__record()
 * @machine: the guest
 *
 * Return: true if they are; false if they are below the user's --guestmount, which has the guest's
 * own file system.
 */
bool guest_folder__is_used(struct machine *machine)
{
	return used && symbol_conf.guestmount == used && !machine__is_host(machine) &&
	       *machine->root_dir;
}

/**
 * guest_folder__missing - tell which directory would have the files of guests
 *
 * Return: the one beside the data file, if it is not there or is another user's, and no option
 * names files of guests; else NULL.
 */
const char *guest_folder__missing(void)
{
	return missing;
}

/* The user's --guestmount, while that directory is used in its place. */
static const char *mounted;

/**
 * guest_folder__use - use the files that guest_folder__record() has written
 * @data: the data file
 *
 * They tell what the guest ran when it was sampled, and so take the place of the user's
 * --guestmount, which may have another kernel by now.  Files of programs may be found there, see
 * guest_folder__mounted().
 */
void guest_folder__use(const char *data)
{
	const char *mount = symbol_conf.guestmount;
	char dir[PATH_MAX];

	/* Drop the directory of a data file that was opened before this one. */
	if (used && mount == used)
		mount = mounted;

	mounted = NULL;
	symbol_conf.guestmount = NULL;
	free(missing);
	missing = NULL;
	if (symbol_conf__has_guest_files() || !guests_beside(dir, data, false)) {
		symbol_conf.guestmount = mount;
		return;
	}
	if (!is_own_folder(dir)) {
		symbol_conf.guestmount = mount;
		missing = mount ? NULL : strdup(dir);
		return;
	}

	mounted = mount;
	free(used);
	used = strdup(dir);
	symbol_conf.guestmount = used;
	perf_guest = true;
}

/**
 * guest_folder__mounted - find a file of a guest below the user's --guestmount
 * @machine:	the guest
 * @path:	the path that the file has in the guest; the guest may have chosen it
 * @build_id:	the build-id that the file must have
 *
 * Return: its path, to be freed; NULL if there is no such file.
 */
char *guest_folder__mounted(struct machine *machine, const char *path,
			    const struct build_id *build_id)
{
	struct build_id found = { .size = 0 };
	char *name, *top, *file;
	bool below;

	if (!mounted || asprintf(&name, "%s/%d", mounted, machine->pid) < 0)
		return NULL;
	top = realpath(name, NULL);
	free(name);
	if (!top || asprintf(&name, "%s%s", top, path) < 0) {
		free(top);
		return NULL;
	}
	/* A link in the guest's file system must not lead to the host's files. */
	file = realpath(name, NULL);
	below = file && !strncmp(file, top, strlen(top)) && file[strlen(top)] == '/';
	free(name);
	free(top);
	if (below && is_regular_file(file) && filename__read_build_id(file, &found) > 0 &&
	    found.size == build_id->size && !memcmp(found.data, build_id->data, found.size))
		return file;
	free(file);
	return NULL;
}

/* The directory that guest_folder__begin_live() has made; empty if there is none. */
static char live_dir[PATH_MAX];

static void remove_live_dir(void)
{
	if (*live_dir)
		rm_rf(live_dir);
	*live_dir = 0;
}

/**
 * guest_folder__begin_live - write and use the files of guests whose samples are shown live
 * @opts:	options of the session
 * @tables:	true to write the tables that unwind the guests' kernels
 *
 * The files are in a temporary directory.
 *
 * Return: what was written; if guests differ, the highest of their values.
 */
enum guest_files guest_folder__begin_live(const struct record_opts *opts, bool tables)
{
	enum guest_files most = GUEST_FILES_NONE;
	const char *tmp = getenv("TMPDIR");
	char data[PATH_MAX];

	if (!symbol_conf.guest_info || symbol_conf__has_guest_files())
		return most;

	scnprintf(live_dir, sizeof(live_dir), "%s/perf-guests-XXXXXX",
		  tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(live_dir)) {
		pr_warning("Guests have no names: %s can't be made\n", live_dir);
		*live_dir = 0;
		return most;
	}
	/* A signal handler may call exit() before guest_folder__end_live(). */
	atexit(remove_live_dir);

	if (snprintf(data, sizeof(data), "%s/live", live_dir) < (int)sizeof(data))
		most = guest_folder__record(opts, data, tables);
	if (most) {
		zfree(&symbol_conf.guestmount);
		guest_folder__use(data);
	}
	return most;
}

/**
 * guest_folder__end_live - stop watching guests and remove what guest_folder__begin_live() wrote
 */
void guest_folder__end_live(void)
{
	if (!*live_dir)
		return;

	guest_watch__stop();
	remove_live_dir();
}

/**
 * guest_folder__is_live - check whether the files of guests grow while perf reads them
 *
 * Return: true between guest_folder__begin_live() and guest_folder__end_live().
 */
bool guest_folder__is_live(void)
{
	return *live_dir;
}

/**
 * guest_folder__open - open a file that guest_folder__record() has written for a guest
 * @machine:	the guest
 * @name:	the name of the file
 *
 * Return: the file, to be read; NULL if it can't be opened.
 */
FILE *guest_folder__open(const struct machine *machine, const char *name)
{
	char path[PATH_MAX];
	struct stat st;
	FILE *file;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", machine->root_dir, name) >= (int)sizeof(path))
		return NULL;

	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return NULL;

	file = !fstat(fd, &st) && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
	if (!file)
		close(fd);
	return file;
}

/* Return the name of a guest that guest_folder__record() has written, or NULL. */
static char *read_guest_name(struct machine *machine)
{
	char path[PATH_MAX], name[GUEST_NAME_SIZE];
	char *copy = NULL;
	FILE *file;

	if (!guest_folder__is_used(machine) ||
	    snprintf(path, sizeof(path), "%s/name",
		     machine->guest_top ?: machine->root_dir) >= (int)sizeof(path))
		return NULL;

	file = fopen(path, "re");
	if (!file)
		return NULL;

	if (fgets(name, sizeof(name), file)) {
		name[strcspn(name, "\n")] = 0;
		guest_name__clean(name);
		copy = *name ? strdup(name) : NULL;
	}
	fclose(file);
	return copy;
}

/**
 * guest_folder__name - return the name of a VM
 * @machine: the guest, or the host
 *
 * Return: the VM's name, or the pid of its VMM if it has none, or "[guest]" if that is not known
 * either; "[host]" for the host.  The string belongs to the machine: don't free it.
 */
const char *guest_folder__name(struct machine *machine)
{
	if (machine__is_host(machine))
		return "[host]";

	if (!machine->guest_name)
		machine->guest_name = read_guest_name(machine);
	if (!machine->guest_name && machine->pid != DEFAULT_GUEST_KERNEL_ID &&
	    asprintf(&machine->guest_name, "%d", machine->pid) < 0)
		machine->guest_name = NULL;
	return machine->guest_name ?: "[guest]";
}

/*
 * Find the first kernel whose directory is named after a time later than @time.  Return that time
 * and put the directory into @path; return ~0 if there is none.  Skip directories with names that
 * perf record does not write, or without kallsyms.
 */
static u64 find_next_kernel(const char *top, u64 time, char path[PATH_MAX])
{
	char name[32], file[PATH_MAX];
	struct dirent *entry;
	u64 next = ~0ULL;
	DIR *kernels;

	if (snprintf(path, PATH_MAX, "%s/kernels", top) >= PATH_MAX)
		return next;

	kernels = opendir(path);
	while (kernels && (entry = readdir(kernels))) {
		u64 since = strtoull(entry->d_name, NULL, 10);

		scnprintf(name, sizeof(name), "%" PRIu64, since);
		if (strcmp(entry->d_name, name) || since <= time || since >= next ||
		    snprintf(file, sizeof(file), "%s/kernels/%s/proc/kallsyms", top, name) >=
		    (int)sizeof(file) || access(file, R_OK))
			continue;
		next = since;
		snprintf(path, PATH_MAX, "%s/kernels/%s", top, name);
	}
	if (kernels)
		closedir(kernels);
	return next;
}

/*
 * Return true if a sample after machine->next_kernel is still of the old kernel, which may run for
 * up to MAX_UNSEEN_NSEC after perf last saw it run.  In this time, samples belong to the old kernel
 * until one in kernel mode is in none of its maps: that sample is of the firmware or of the next
 * kernel.  If that sample is of the old kernel after all, e.g. of a BPF program, the old kernel's
 * names are given up too early.
 */
static bool is_of_last_kernel(struct machine *machine, const struct perf_sample *sample)
{
	struct map *map;
	bool found;

	if (sample->time - machine->next_kernel >= MAX_UNSEEN_NSEC)
		return false;
	if (sample->cpumode != PERF_RECORD_MISC_GUEST_KERNEL)
		return true;

	map = maps__find(machine__kernel_maps(machine), sample->ip);
	found = map;
	map__put(map);
	return found;
}

/**
 * guest_folder__use_kernel_of - use the names of the kernel that a guest ran when it was sampled
 * @machine:	the guest
 * @sample:	the sample
 *
 * Samples come in the order of their times, or nearly so: an earlier kernel is never used again.
 */
void guest_folder__use_kernel_of(struct machine *machine, const struct perf_sample *sample)
{
	u64 time = sample->time;
	char path[PATH_MAX];

	/* Some samples have no time. */
	if (time == ~0ULL || !guest_folder__is_used(machine))
		return;

	if (!machine->guest_top) {
		machine->guest_top = strdup(machine->root_dir);
		if (!machine->guest_top)
			return;
		machine->next_kernel = find_next_kernel(machine->guest_top, 0, path);
		machine__add_modules(machine);
	}
	while (machine->next_kernel <= time && !is_of_last_kernel(machine, sample)) {
		find_next_kernel(machine->guest_top, machine->next_kernel - 1, path);
		if (machine__reboot(machine, path))
			pr_warning("The guest of process %d has no names from %" PRIu64 " on\n",
				   machine->pid, machine->next_kernel);
		machine->next_kernel = find_next_kernel(machine->guest_top, machine->next_kernel,
							path);
	}
	guest_init_reader__use(machine, time);
}
