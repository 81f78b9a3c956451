// SPDX-License-Identifier: GPL-2.0
/*
 * Find the name of a VM in the command line of its VMM.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/string.h>
#include <symbol/kallsyms.h>

#include "guest-name.h"

/* QEMU has -name or --name, kvmtool and crosvm have --name, and Firecracker has --id. */
static const char * const options[] = { "-name", "--name", "--id" };

/* QEMU's option has a list.  The name has this key, which may be omitted in the first element. */
#define KEY	"guest="

/**
 * guest_name__clean - replace characters that must not go to a terminal or a file of one line
 * @name: the name
 */
void guest_name__clean(char *name)
{
	for (; *name; name++) {
		if (*name < ' ' || *name > '~')
			*name = '?';
	}
}

/* Copy an element of a list, in which two commas stand for one; return what follows. */
static const char *copy_element(const char *list, char element[GUEST_NAME_SIZE])
{
	size_t len = 0;

	for (; *list && (*list != ',' || list[1] == ','); list++) {
		list += *list == ',';
		if (len < GUEST_NAME_SIZE - 1)
			element[len++] = *list;
	}
	element[len] = 0;
	guest_name__clean(element);
	return *list ? list + 1 : list;
}

static bool find_in_list(const char *list, char name[GUEST_NAME_SIZE])
{
	char element[GUEST_NAME_SIZE];

	list = copy_element(list, name);
	if (strstarts(name, KEY))
		memmove(name, name + strlen(KEY), strlen(name + strlen(KEY)) + 1);
	else if (strchr(name, '='))
		*name = 0;

	while (*list) {
		list = copy_element(list, element);
		if (strstarts(element, KEY))
			scnprintf(name, GUEST_NAME_SIZE, "%s", element + strlen(KEY));
	}
	return *name;
}

/* If @arg is an option that names a VM, return its value, from @arg or @next; otherwise NULL. */
static const char *value_of(const char *arg, const char *next)
{
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		size_t len = strlen(options[i]);

		if (strncmp(arg, options[i], len))
			continue;
		if (arg[len] == '=')
			return arg + len + 1;
		if (!arg[len])
			return next;
	}
	return NULL;
}

/**
 * guest_name__is_clean - check the name of a function or a module of a guest
 * @name: the name
 *
 * It is printed on terminals, and that of a module becomes part of a path.
 *
 * Return: true if the name is one that Linux may have.
 */
bool guest_name__is_clean(const char *name)
{
	for (const char *c = name; *c; c++) {
		if (*c <= ' ' || *c > '~' || *c == '/')
			return false;
	}
	return *name && *name != '.' && strncmp(name, "[.", 2);
}

/**
 * guest_name__is_clean_symbol - check the name of a function in a guest's kallsyms
 * @name: the name; for a function of a module, a tab and the module's name in brackets follow
 *
 * Return: true if both names are such that Linux may have them.
 */
bool guest_name__is_clean_symbol(const char *name)
{
	const char *module = strchr(name, '\t');
	char function[KSYM_NAME_LEN + 1];

	if (!module)
		return guest_name__is_clean(name);
	if (module - name >= (ptrdiff_t)sizeof(function))
		return false;

	scnprintf(function, sizeof(function), "%.*s", (int)(module - name), name);
	return guest_name__is_clean(function) && guest_name__is_clean(module + 1);
}

/**
 * guest_name__find - find the name of a VM in the command line of its VMM
 * @args:	the arguments, each with a zero behind it
 * @size:	size of all arguments
 * @name:	receives the name, cleaned by guest_name__clean()
 *
 * Return: true if the VM has a name.
 */
bool guest_name__find(const char *args, size_t size, char name[GUEST_NAME_SIZE])
{
	const char *end = args + size, *arg, *next, *value;

	*name = 0;
	if (!size || end[-1])
		return false;

	for (arg = args; arg < end; arg = next) {
		next = arg + strlen(arg) + 1;
		value = value_of(arg, next < end ? next : NULL);
		if (value && find_in_list(value, name))
			return true;
	}
	return false;
}

/**
 * guest_name__read - find the name of a VM
 * @pid:	pid of its VMM
 * @name:	receives the name
 *
 * The command line is in the memory of the VMM, so reading it may cause a page fault there.  For
 * the command line, the kernel reads anonymous memory only.
 *
 * Return: true if the VM has a name.
 */
bool guest_name__read(pid_t pid, char name[GUEST_NAME_SIZE])
{
	/* Command lines with many devices are longer, but libvirt puts the name first. */
	char path[32], args[16 << 10];
	FILE *file;
	size_t size;

	scnprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	file = fopen(path, "re");
	if (!file)
		return false;

	size = fread(args, 1, sizeof(args), file);
	fclose(file);
	/* Drop the last argument if it was cut. */
	while (size && args[size - 1])
		size--;
	return guest_name__find(args, size, name);
}
