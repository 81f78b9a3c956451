// SPDX-License-Identifier: GPL-2.0
/*
 * Write files that perf needs to name and unwind a kernel of a guest: symbols, modules, tables and
 * build-ids from the guest's memory.
 */
#include <inttypes.h>
#include <limits.h>

#include <elf.h>
#include <linux/kernel.h>

#include "debug.h"
#include "guest-files.h"
#include "guest-kernel.h"
#include "guest-modules.h"
#include "guest-sandbox.h"
#include "guest-vmlinux.h"

static FILE *open_in(const char *dir, const char *name, enum guest_request_op how)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return NULL;

	return guest_sandbox__fopen(path, how);
}

/**
 * guest_files__create - create a file in a new directory
 * @dir:	the directory
 * @name:	name of the file.  If a file or a link of that name exists, somebody else made it:
 *		the call fails.
 *
 * Return: the file; NULL if it can't be created.
 */
FILE *guest_files__create(const char *dir, const char *name)
{
	return open_in(dir, name, GUEST_CREATE_FILE);
}

/**
 * guest_files__append - open a file that guest_files__write() has written
 * @dir:	the directory of the kernel
 * @name:	name of the file
 *
 * Return: the file, open for appending; NULL if it can't be opened.
 */
FILE *guest_files__append(const char *dir, const char *name)
{
	return open_in(dir, name, GUEST_APPEND_FILE);
}

/**
 * guest_files__close - close a file
 * @file: the file; NULL if it could not be created
 *
 * Return: true if all was written.
 */
bool guest_files__close(FILE *file)
{
	bool good = file && !ferror(file);

	return file && !fclose(file) && good;
}

/*
 * Write the files in proc as the guest has them, and the build-ids of modules; with @tables, also
 * files to unwind modules by.  Return false if a file in proc can't be written.  Put the reason
 * into @why_not if modules are missing, NULL otherwise.
 */
static bool write_names(struct guest_kernel *kernel, const char *top, bool tables,
			const char **why_not)
{
	FILE *kallsyms = guest_files__create(top, "proc/kallsyms");
	FILE *modules = guest_files__create(top, "proc/modules");
	FILE *version = guest_files__create(top, "proc/version");
	bool good;

	*why_not = NULL;
	if (kallsyms && modules && version) {
		for (size_t i = 0; i < kernel->nr_symbols; i++)
			fprintf(kallsyms, "%016" PRIx64 " %c %s\n", kernel->symbols[i].addr,
				kernel->symbols[i].type, kernel->symbols[i].name);
		fprintf(version, "Linux version %s (by its memory)\n", kernel->info.release);
		*why_not = guest_modules__write(kernel, modules, kallsyms, top, tables);
	}

	good = guest_files__close(kallsyms);
	good &= guest_files__close(modules);
	good &= guest_files__close(version);
	return good;
}

/*
 * Write the ORC tables and the code of the guest's kernel to a file that is named like a vmlinux in
 * /boot; return NULL, or why that failed.
 */
static const char *write_tables(struct guest_kernel *kernel, const char *top)
{
	char name[sizeof("boot/vmlinux-") + GUEST_RELEASE_SIZE], path[PATH_MAX];
	const char *why_not = NULL;
	FILE *vmlinux;

	scnprintf(name, sizeof(name), "boot/vmlinux-%s", kernel->info.release);
	vmlinux = guest_files__create(top, name);
	if (vmlinux)
		why_not = guest_vmlinux__write(kernel, vmlinux);
	if (!guest_files__close(vmlinux))
		why_not = "its ORC tables can't be written";
	if (why_not && snprintf(path, sizeof(path), "%s/%s", top, name) < (int)sizeof(path))
		guest_sandbox__unlink(path);
	return why_not;
}

/* Write the kernel's build-id in the format of sysfs. */
static void write_build_id(const struct guest_vmcoreinfo *info, const char *top)
{
	const Elf64_Nhdr note = { sizeof("GNU"), info->build_id_size, NT_GNU_BUILD_ID };
	FILE *file;

	if (!info->build_id_size)
		return;

	file = guest_files__create(top, "sys/kernel/notes");
	if (file) {
		fwrite(&note, sizeof(note), 1, file);
		fwrite("GNU", sizeof("GNU"), 1, file);
		fwrite(info->build_id, info->build_id_size, 1, file);
	}
	if (!guest_files__close(file))
		pr_debug("%s/sys/kernel/notes can't be written\n", top);
}

/* Make the directories in @top. */
static bool make_dirs(const char *top)
{
	static const char * const names[] = {
		"proc", "boot", "boot/modules", "sys", "sys/kernel", "sys/module", "programs",
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", top, names[i]) >= (int)sizeof(path) ||
		    guest_sandbox__mkdir(path))
			return false;
	}
	return true;
}

/**
 * guest_files__write - write the files of a guest's kernel: symbols, modules, tables
 * @kernel:	the kernel
 * @pid:	pid of the guest's VMM
 * @top:	directory to make, with proc for kallsyms and modules, boot for tables, and sys for
 *		build-ids
 * @tables:	true to write the tables that unwind the kernel
 *
 * Return: what was written.  Prints a warning for symbols, modules or tables that could not be
 * written.
 */
enum guest_files guest_files__write(struct guest_kernel *kernel, pid_t pid, const char *top,
				    bool tables)
{
	enum guest_files found = GUEST_FILES_NAMES;
	const char *why_not;
	char path[PATH_MAX];

	/* Kernels of arm64 have frame records, and need no tables. */
	tables &= !kernel->info.is_arm64;

	if (guest_sandbox__mkdir(top)) {
		pr_warning("The guest of process %d has no names: %s can't be made\n", pid, top);
		return GUEST_FILES_NONE;
	}
	if (!make_dirs(top) || !write_names(kernel, top, tables, &why_not)) {
		pr_warning("The guest of process %d has no names: %s can't be written\n", pid,
			   top);
		/* Without this file, nothing in the directory is used. */
		if (snprintf(path, sizeof(path), "%s/proc/kallsyms", top) < (int)sizeof(path))
			guest_sandbox__unlink(path);
		return GUEST_FILES_NONE;
	}
	if (why_not)
		pr_warning("Modules of the guest of process %d have no names: %s\n", pid, why_not);

	write_build_id(&kernel->info, top);
	why_not = tables ? write_tables(kernel, top) : NULL;
	if (why_not)
		pr_warning("The guest of process %d is not unwound by ORC: %s\n", pid, why_not);
	else if (tables)
		found = GUEST_FILES_TABLES;

	pr_info("The guest of process %d runs Linux %s: %zu symbols\n", pid,
		kernel->info.release, kernel->nr_symbols);
	return found;
}
