// SPDX-License-Identifier: GPL-2.0-only
/*
 * Load the modules of this folder, and talk to them.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test_modules.h"
#include "test_util.h"

#define TEST_GUEST_WALK		"/dev/test_guest_walk"

/**
 * load_test_module - load a module from the folder of the running program
 * @name:	the module
 *
 * Return: zero if the module is loaded now, or was before; -1 if loading fails or there is no
 * file.
 */
int load_test_module(const char *name)
{
	char path[PATH_MAX] = {}, ko[PATH_MAX + 64];
	int fd, r;

	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
		return -1;

	*strrchr(path, '/') = '\0';
	snprintf(ko, sizeof(ko), "%s/%s.ko", path, name);
	fd = open(ko, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;

	r = syscall(SYS_finit_module, fd, "", 0);
	close(fd);
	return r && errno != EEXIST ? -1 : 0;
}

/**
 * guest_walk_open - open the device of the test_guest_walk module
 *
 * Only this thread's walks count, see test_guest_walk.h.
 *
 * Return: a file descriptor, or -1 if the module can't be loaded or its device can't be opened.
 */
int guest_walk_open(void)
{
	if (access(TEST_GUEST_WALK, R_OK) && load_test_module("test_guest_walk"))
		return -1;

	return open(TEST_GUEST_WALK, O_RDWR | O_CLOEXEC);
}

/**
 * guest_walk_arm - choose what happens during walks, and begin to count
 * @fd:		from guest_walk_open()
 * @changes:	the changes to make
 * @nr:		how many changes
 */
void guest_walk_arm(int fd, const struct guest_walk_change *changes, unsigned int nr)
{
	const ssize_t size = nr * sizeof(*changes);

	TEST_ASSERT(nr <= GUEST_WALK_MAX_CHANGES, "%u changes are too many", nr);
	TEST_ASSERT(write(fd, changes, size) == size, "write() to " TEST_GUEST_WALK " failed: %s",
		    strerror(errno));
}

/**
 * guest_walk_get_results - read what happened since guest_walk_arm()
 * @fd:		from guest_walk_open()
 * @results:	are filled in
 * @nr:		how many changes there were
 */
void guest_walk_get_results(int fd, struct guest_walk_result *results, unsigned int nr)
{
	const ssize_t size = nr * sizeof(*results);

	TEST_ASSERT(read(fd, results, size) == size, "read() from " TEST_GUEST_WALK " failed: %s",
		    strerror(errno));
}
