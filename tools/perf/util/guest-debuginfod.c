// SPDX-License-Identifier: GPL-2.0
/*
 * Get the files of guests' programs from debuginfod servers, by their build-ids.
 */
#include "guest-debuginfod.h"

#ifdef HAVE_DEBUGINFOD_SUPPORT
#include <stdlib.h>
#include <unistd.h>

#include <elfutils/debuginfod.h>

#include "build-id.h"
#include "debug.h"
#include "dso.h"

/**
 * dso__fetch_guest_files - ask debuginfod for the files of a guest's program
 * @dso: the program, of which something was read in the guest's memory
 *
 * The servers are those of DEBUGINFOD_URLS, as for the host's files.  The program's own file, if a
 * server has it, takes the place of what was read: all of its rules are there.  The file with its
 * debug information has the names of functions that are not exported.  Don't ask for what the
 * guest's own file system has, see guest_folder__mounted().
 *
 * Context: the DSO's lock is held, so that each DSO is asked for once.  Waits for the servers, as
 * long as DEBUGINFOD_TIMEOUT says.
 */
void dso__fetch_guest_files(struct dso *dso)
{
	const char *urls = getenv(DEBUGINFOD_URLS_ENV_VAR);
	const struct build_id *bid = dso__bid(dso);
	debuginfod_client *client;
	char *path;
	int fd;

	if (!urls || !*urls || !dso__guest_filename(dso) || !build_id__is_defined(bid))
		return;

	client = debuginfod_begin();
	if (!client)
		return;

	fd = dso__guest_mounted(dso) ? -1 :
	     debuginfod_find_executable(client, bid->data, bid->size, &path);
	if (fd >= 0) {
		close(fd);
		dso__set_guest_filename(dso, path);
	}
	fd = dso__guest_debug_filename(dso) ? -1 :
	     debuginfod_find_debuginfo(client, bid->data, bid->size, &path);
	if (fd >= 0) {
		close(fd);
		dso__set_guest_debug_filename(dso, path);
	}
	debuginfod_end(client);
	pr_debug("%s: %s, %s\n", dso__long_name(dso), dso__guest_filename(dso),
		 dso__guest_debug_filename(dso) ?: "no debug information");
}
#endif /* HAVE_DEBUGINFOD_SUPPORT */
