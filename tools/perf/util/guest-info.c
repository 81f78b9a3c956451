// SPDX-License-Identifier: GPL-2.0
/*
 * Files that name what runs in guests, made from the guests' memory.  They lie beside
 * perf.data, in the way of --guestmount: one folder for each guest, by its VMM's pid.
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

#include <elf.h>
#include <linux/kernel.h>
#include <linux/time64.h>
#include <linux/zalloc.h>

#include "debug.h"
#include "dwarf-regs.h"
#include "guest-info.h"
#include "guest-kernel.h"
#include "guest-modules.h"
#include "guest-name.h"
#include "guest-vmlinux.h"
#include "guest-watch.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "sample.h"
#include "symbol_conf.h"
#include "target.h"
#include "util.h"

/* What a VMM's file descriptors for its VMs are called. */
#define KVM_VM		"anon_inode:kvm-vm"

/* Names that the kernel gives to files in /proc/PID are short. */
#define MAX_PROC_PATH	64

/* How long after a kernel was last seen its code may still run. */
#define MAX_UNSEEN_NSEC	(2 * NSEC_PER_SEC)

/* Does the process have a VM of KVM's?  Return false, with errno set, if nothing tells. */
static bool runs_guest(const char *pid)
{
	char path[MAX_PROC_PATH], name[sizeof(KVM_VM)];
	struct dirent *entry;
	bool found = false;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	fds = opendir(path);
	while (fds && !found && (entry = readdir(fds)))
		found = readlinkat(dirfd(fds), entry->d_name, name, sizeof(name)) ==
			sizeof(KVM_VM) - 1 && !memcmp(name, KVM_VM, sizeof(KVM_VM) - 1);
	if (fds)
		closedir(fds);
	return found;
}

static FILE *open_in(const char *dir, const char *name, int flags, const char *mode)
{
	char path[PATH_MAX];
	FILE *file;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return NULL;

	fd = open(path, flags, 0600);
	if (fd < 0)
		return NULL;

	file = fdopen(fd, mode);
	if (!file)
		close(fd);
	return file;
}

/**
 * guest_info__create - create a file in a new folder
 * @dir:	the folder
 * @name:	of the file.  One that is there is somebody else's: it is not followed or
 *		overwritten.
 *
 * Return: the file; NULL if it can't be created.
 */
FILE *guest_info__create(const char *dir, const char *name)
{
	return open_in(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, "w");
}

/**
 * guest_info__append - open a file that guest_info__write_kernel() has written
 * @dir:	the folder of the kernel
 * @name:	of the file
 *
 * Return: the file, to be written at its end; NULL if it can't be opened.
 */
FILE *guest_info__append(const char *dir, const char *name)
{
	return open_in(dir, name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC, "a");
}

/* Close a file; return true if all was written. */
static bool is_written(FILE *file)
{
	bool good = file && !ferror(file);

	return file && !fclose(file) && good;
}

/*
 * Write what the guest's /proc would say, build-ids of modules, and what unwinds these if that
 * is wanted; return false if that fails.  Take the reason if modules are missing.
 */
static bool write_names(struct guest_kernel *kernel, const char *top, bool tables,
			const char **why_not)
{
	FILE *kallsyms = guest_info__create(top, "proc/kallsyms");
	FILE *modules = guest_info__create(top, "proc/modules");
	FILE *version = guest_info__create(top, "proc/version");
	bool good;

	*why_not = NULL;
	if (kallsyms && modules && version) {
		for (size_t i = 0; i < kernel->nr_symbols; i++)
			fprintf(kallsyms, "%016" PRIx64 " %c %s\n", kernel->symbols[i].addr,
				kernel->symbols[i].type, kernel->symbols[i].name);
		fprintf(version, "Linux version %s (by its memory)\n", kernel->info.release);
		*why_not = guest_modules__write(kernel, modules, kallsyms, top, tables);
	}

	good = is_written(kallsyms);
	good &= is_written(modules);
	good &= is_written(version);
	return good;
}

/* Write what unwinds the guest's kernel, named as in /boot; return NULL, or why not. */
static const char *write_tables(struct guest_kernel *kernel, const char *top)
{
	char name[sizeof("boot/vmlinux-") + GUEST_RELEASE_SIZE], path[PATH_MAX];
	const char *why_not = NULL;
	FILE *vmlinux;

	scnprintf(name, sizeof(name), "boot/vmlinux-%s", kernel->info.release);
	vmlinux = guest_info__create(top, name);
	if (vmlinux)
		why_not = guest_vmlinux__write(kernel, vmlinux);
	if (!is_written(vmlinux))
		why_not = "its ORC tables can't be written";
	if (why_not && snprintf(path, sizeof(path), "%s/%s", top, name) < (int)sizeof(path))
		unlink(path);
	return why_not;
}

/* Write the kernel's build-id as sysfs has it. */
static void write_build_id(const struct guest_vmcoreinfo *info, const char *top)
{
	const Elf64_Nhdr note = { sizeof("GNU"), info->build_id_size, NT_GNU_BUILD_ID };
	FILE *file;

	if (!info->build_id_size)
		return;

	file = guest_info__create(top, "sys/kernel/notes");
	if (file) {
		fwrite(&note, sizeof(note), 1, file);
		fwrite("GNU", sizeof("GNU"), 1, file);
		fwrite(info->build_id, info->build_id_size, 1, file);
	}
	if (!is_written(file))
		pr_debug("%s/sys/kernel/notes can't be written\n", top);
}

/* Make the folders in @top. */
static bool make_dirs(const char *top)
{
	static const char * const names[] = {
		"proc", "boot", "boot/modules", "sys", "sys/kernel", "sys/module",
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", top, names[i]) >= (int)sizeof(path) ||
		    mkdir(path, 0700))
			return false;
	}
	return true;
}

/**
 * guest_info__write_kernel - write what names and unwinds a kernel
 * @kernel:	the kernel
 * @pid:	of the guest's VMM
 * @top:	where to make proc, with kallsyms and modules, boot, and sys, with build-ids;
 *		it is made as well
 * @tables:	whether to write the tables that unwind it
 *
 * Return: what was found; warns of what was not.
 */
enum guest_info guest_info__write_kernel(struct guest_kernel *kernel, pid_t pid, const char *top,
					 bool tables)
{
	enum guest_info found = GUEST_INFO_NAMES;
	const char *why_not;

	if (mkdir(top, 0700)) {
		pr_warning("The guest of process %d has no names: %s can't be made\n", pid, top);
		return GUEST_INFO_NONE;
	}
	if (!make_dirs(top) || !write_names(kernel, top, tables, &why_not)) {
		pr_warning("The guest of process %d has no names: %s can't be written\n", pid,
			   top);
		rm_rf(top);
		return GUEST_INFO_NONE;
	}
	if (why_not)
		pr_warning("Modules of the guest of process %d have no names: %s\n", pid, why_not);

	write_build_id(&kernel->info, top);
	why_not = tables ? write_tables(kernel, top) : NULL;
	if (why_not)
		pr_warning("The guest of process %d is not unwound by ORC: %s\n", pid, why_not);
	else if (tables)
		found = GUEST_INFO_TABLES;

	pr_info("The guest of process %d runs Linux %s: %zu symbols\n", pid,
		kernel->info.release, kernel->nr_symbols);
	return found;
}

/* Write the VM's name, if it has one, to the file "name", and print it. */
static void write_guest_name(pid_t pid, const char *top)
{
	char name[GUEST_NAME_SIZE];
	FILE *file;

	if (!guest_name__read(pid, name))
		return;

	file = guest_info__create(top, "name");
	if (file)
		fprintf(file, "%s\n", name);
	if (is_written(file))
		pr_info("The guest of process %d is called %s\n", pid, name);
}

/* Write what is found of a guest to @dir/@pid; watch it until guest_watch__stop(). */
static enum guest_info write_guest(pid_t pid, const char *dir, bool tables)
{
	enum guest_info found = GUEST_INFO_NONE;
	struct guest_kernel *kernel;
	const char *why_not;
	char top[PATH_MAX];

	kernel = guest_kernel__find(pid, NULL, &why_not);
	if (!kernel) {
		pr_warning("The guest of process %d has no names: %s\n", pid, why_not);
		return found;
	}

	/* What an earlier look has found may be another kernel's. */
	if (snprintf(top, sizeof(top), "%s/%d", dir, pid) >= (int)sizeof(top) ||
	    (mkdir(dir, 0700) && errno != EEXIST) || rm_rf(top))
		pr_warning("The guest of process %d has no names: %s can't be written\n", pid,
			   dir);
	else
		found = guest_info__write_kernel(kernel, pid, top, tables);
	if (found)
		write_guest_name(pid, top);

	if (!found || !guest_watch__add(pid, top, kernel, tables))
		guest_kernel__delete(kernel);
	return found;
}

/**
 * guest_info__write - write what names and unwinds a guest's kernel, from its memory
 * @pid:	of the guest's VMM
 * @dir:	where to make PID/proc, with kallsyms and modules, PID/boot, PID/sys, with
 *		build-ids, PID/tasks and PID/maps
 * @tables:	whether to write the tables that unwind it
 *
 * Return: what was found; warns of what was not.
 */
enum guest_info guest_info__write(pid_t pid, const char *dir, bool tables)
{
	enum guest_info found = write_guest(pid, dir, tables);

	guest_watch__stop();
	return found;
}

static enum guest_info write_guests_of(const char *pids, const char *dir, bool tables)
{
	char *copy = strdup(pids), *rest = copy, *pid;
	enum guest_info most = GUEST_INFO_NONE;

	while (copy && (pid = strsep(&rest, ","))) {
		errno = 0;
		/* Tell who asks for this very process that it may not be looked into. */
		if (runs_guest(pid) || errno == EACCES)
			most = max(most, write_guest(atoi(pid), dir, tables));
	}
	free(copy);
	return most;
}

static enum guest_info write_all_guests(const char *dir, bool tables)
{
	enum guest_info most = GUEST_INFO_NONE;
	DIR *procs = opendir("/proc");
	struct dirent *entry;

	while (procs && (entry = readdir(procs))) {
		if (isdigit(entry->d_name[0]) && runs_guest(entry->d_name))
			most = max(most, write_guest(atoi(entry->d_name), dir, tables));
	}
	if (procs)
		closedir(procs);
	return most;
}

/*
 * The folder beside @data; perf.data becomes perf.data.old when another one is recorded.
 * There is none beside a pipe or a device.
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
 * guest_info__record - find out what runs in the guests that are going to be recorded
 * @target:	what is recorded
 * @data:	the file that is recorded, NULL for perf.data; what is found goes to a folder
 *		beside it, and the folder of the previous record is moved to perf.data.old's
 * @tables:	whether to write the tables that unwind them
 *
 * If the user has given files of guests, only the previous folder is moved.
 *
 * Return: the most that was found of a guest.
 */
enum guest_info guest_info__record(const struct target *target, const char *data, bool tables)
{
	enum guest_info most = GUEST_INFO_NONE;
	char dir[PATH_MAX], old[PATH_MAX];

	if (!guests_beside(dir, data, false) || !guests_beside(old, data, true))
		return most;

	if (rm_rf(old) || (rename(dir, old) && errno != ENOENT)) {
		pr_warning("Guests have no names: %s can't be moved\n", dir);
		return most;
	}
	if (!symbol_conf.guest_info || symbol_conf__has_guest_files() || EM_HOST != EM_X86_64)
		return most;

	/* Whoever has made the folder meanwhile could choose where files are written. */
	if (mkdir(dir, 0700)) {
		pr_warning("Guests have no names: %s can't be made\n", dir);
		return most;
	}
	if (target->pid)
		most = write_guests_of(target->pid, dir, tables);
	else if (target->system_wide || target->cpu_list)
		most = write_all_guests(dir, tables);

	if (most)
		symbol_conf.guestmount = strdup(dir);
	else
		rmdir(dir);
	return most;
}

/* Names that another user has written may have escape sequences in them. */
static bool is_own_folder(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode) && (!st.st_uid || st.st_uid == geteuid());
}

/* The folder beside the data that is read. */
static char *used;

/**
 * guest_info__is_used - tell whether a guest is named as guest_info__record() has noted
 * @machine: the guest
 *
 * Return: false if it is one of the user's --guestmount, whose files are the guest's own.
 */
bool guest_info__is_used(struct machine *machine)
{
	return used && symbol_conf.guestmount == used && !machine__is_host(machine) &&
	       *machine->root_dir;
}

/**
 * guest_info__use - name what runs in guests as guest_info__record() has noted
 * @data: what was recorded
 */
void guest_info__use(const char *data)
{
	char dir[PATH_MAX];

	/* Of another file that was opened before this one. */
	if (used && symbol_conf.guestmount == used)
		symbol_conf.guestmount = NULL;

	if (symbol_conf__has_guest_files() || !guests_beside(dir, data, false) ||
	    !is_own_folder(dir))
		return;

	free(used);
	used = strdup(dir);
	symbol_conf.guestmount = used;
	perf_guest = true;
}

/* Where guest_info__begin_live() has its files; empty if it was not called. */
static char live_dir[PATH_MAX];

static void remove_live_dir(void)
{
	if (*live_dir)
		rm_rf(live_dir);
	*live_dir = 0;
}

/**
 * guest_info__begin_live - find out what runs in guests whose samples are shown as they come
 * @target:	what is sampled
 * @tables:	whether the guests are unwound by their tables
 *
 * The files are in a temporary folder.
 *
 * Return: the most that was found of a guest.
 */
enum guest_info guest_info__begin_live(const struct target *target, bool tables)
{
	enum guest_info most = GUEST_INFO_NONE;
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
	/* A signal may end perf before guest_info__end_live(). */
	atexit(remove_live_dir);

	if (snprintf(data, sizeof(data), "%s/live", live_dir) < (int)sizeof(data))
		most = guest_info__record(target, data, tables);
	if (most) {
		zfree(&symbol_conf.guestmount);
		guest_info__use(data);
	}
	return most;
}

/**
 * guest_info__end_live - forget what guest_info__begin_live() has found
 */
void guest_info__end_live(void)
{
	if (!*live_dir)
		return;

	guest_watch__stop();
	remove_live_dir();
}

/**
 * guest_info__is_live - tell whether the notes of guests' tasks grow while they are read
 *
 * Return: true between guest_info__begin_live() and guest_info__end_live().
 */
bool guest_info__is_live(void)
{
	return *live_dir;
}

/* Read what guest_info__record() has noted of a guest's name; return it, or NULL. */
static char *read_guest_name(struct machine *machine)
{
	char path[PATH_MAX], name[GUEST_NAME_SIZE];
	char *copy = NULL;
	FILE *file;

	if (!guest_info__is_used(machine) ||
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
 * guest_info__name - tell what a VM is called
 * @machine: the guest, or the host
 *
 * Return: the name, or its VMM's pid; or what else there is to say.  The machine's, not to be
 * freed.
 */
const char *guest_info__name(struct machine *machine)
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
 * Find the first kernel that began to run after @time.  Return when it began, ~0 if there is none,
 * and put its folder in @path.  Skip names that perf record does not write.
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
 * A kernel may run on after it was last seen: perf's thread had no time to look.  Samples of its
 * code are its own then, until the first of other code in kernel mode.  That is the firmware's or
 * the next kernel's; code of the old one that is in no map, e.g. of BPF programs, costs its names.
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
 * guest_info__use_kernel_of - use the names of the kernel that a guest ran when it was sampled
 * @machine:	the guest
 * @sample:	the sample
 *
 * Samples come in the order of their times, or nearly: there is no way back to a kernel.
 */
void guest_info__use_kernel_of(struct machine *machine, const struct perf_sample *sample)
{
	u64 time = sample->time;
	char path[PATH_MAX];

	/* Samples may have no time. */
	if (time == ~0ULL || !guest_info__is_used(machine))
		return;

	if (!machine->guest_top) {
		machine->guest_top = strdup(machine->root_dir);
		if (!machine->guest_top)
			return;
		machine->next_kernel = find_next_kernel(machine->guest_top, 0, path);
	}
	while (machine->next_kernel <= time && !is_of_last_kernel(machine, sample)) {
		find_next_kernel(machine->guest_top, machine->next_kernel - 1, path);
		if (machine__reboot(machine, path))
			pr_warning("The guest of process %d has no names from %" PRIu64 " on\n",
				   machine->pid, machine->next_kernel);
		machine->next_kernel = find_next_kernel(machine->guest_top, machine->next_kernel,
							path);
	}
}
