// SPDX-License-Identifier: GPL-2.0
/*
 * Test where perf puts the files of guests, and which of them it uses.
 */
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "fake-guest.h"
#include "symbol_conf.h"
#include "record.h"
#include "tests.h"
#include "util.h"

static bool exists(const char *path)
{
	return !access(path, F_OK);
}

static int test_relative(const char *dir)
{
	TEST_ASSERT_VAL("no directory", !chdir(dir));
	fake__make_usual();
	TEST_ASSERT_VAL("relative", fake__find("relative") == GUEST_FILES_TABLES);
	TEST_ASSERT_VAL("tables",
			fake__has_tables("relative") && fake__has_module_tables("relative"));
	TEST_ASSERT_VAL("no way back", !chdir("/"));
	return TEST_OK;
}

/*
 * perf uses the directory beside the data, also in the place of the user's --guestmount, unless the
 * user names files of guests.
 */
static int test_use(const char *dir)
{
	const bool was_guest = perf_guest;

	TEST_ASSERT_VAL("no way", !chdir(dir));
	guest_folder__use("data");
	TEST_ASSERT_VAL("nothing", guest_folder__missing() &&
			!strcmp(guest_folder__missing(), "data.guests"));
	guest_folder__use("-");
	TEST_ASSERT_VAL("a pipe", !guest_folder__missing());
	symbol_conf.guestmount = "/";
	guest_folder__use("data");
	TEST_ASSERT_VAL("--guestmount", !guest_folder__missing());
	symbol_conf.guestmount = NULL;

	guest_folder__use("data");
	TEST_ASSERT_VAL("no directory", !mkdir("data.guests", 0700));
	guest_folder__use("data");
	TEST_ASSERT_VAL("nothing is missing", !guest_folder__missing());
	TEST_ASSERT_VAL("a directory", symbol_conf.guestmount &&
			!strcmp(symbol_conf.guestmount, "data.guests") && perf_guest);
	guest_folder__use("-");
	TEST_ASSERT_VAL("a pipe after that", !symbol_conf.guestmount);
	symbol_conf.guestmount = "/";
	guest_folder__use("data");
	TEST_ASSERT_VAL("in the user's place", !strcmp(symbol_conf.guestmount, "data.guests"));
	guest_folder__use("-");
	TEST_ASSERT_VAL("the user's directory", !strcmp(symbol_conf.guestmount, "/"));
	symbol_conf.guestmount = NULL;
	symbol_conf.default_guest_modules = "/";
	guest_folder__use("data");
	TEST_ASSERT_VAL("the user's files", !symbol_conf.guestmount);
	symbol_conf.default_guest_modules = NULL;
	perf_guest = was_guest;

	TEST_ASSERT_VAL("no link", !rmdir("data.guests") && !symlink("/", "data.guests"));
	guest_folder__use("data");
	TEST_ASSERT_VAL("a link", !symbol_conf.guestmount);
	TEST_ASSERT_VAL("no way back", !chdir("/"));
	return TEST_OK;
}

/* The files of guests are renamed and removed with the data. */
static int test_rename(const char *dir)
{
	const struct record_opts nothing = {};

	TEST_ASSERT_VAL("no directory", !chdir(dir) && !mkdir("data.guests", 0700) &&
			!mkdir("data.guests/1", 0700));
	guest_folder__record(&nothing, "-", false);
	guest_folder__record(&nothing, "/dev/null", false);
	TEST_ASSERT_VAL("another one's", exists("data.guests/1"));
	guest_folder__record(&nothing, "data", false);
	TEST_ASSERT_VAL("the first one", !exists("data.guests") && exists("data.old.guests/1"));
	TEST_ASSERT_VAL("no directory",
			!mkdir("data.guests", 0700) && !mkdir("data.guests/2", 0700));
	guest_folder__record(&nothing, "data", false);
	TEST_ASSERT_VAL("the second one", !exists("data.guests") &&
			!exists("data.old.guests/1") && exists("data.old.guests/2"));
	guest_folder__record(&nothing, "data", false);
	TEST_ASSERT_VAL("none", !exists("data.guests") && !exists("data.old.guests"));
	TEST_ASSERT_VAL("no way back", !chdir("/"));
	return TEST_OK;
}

static struct test_case tests__guest_folder[] = {
	FAKE_GUEST_TEST("Relative path", test_relative),
	FAKE_GUEST_TEST("Directory beside the data", test_use),
	FAKE_GUEST_TEST("Old directory is renamed and removed", test_rename),
	{ .name = NULL, }
};

struct test_suite suite__guest_folder = {
	.desc = "Directory of guests' files",
	.test_cases = tests__guest_folder,
};
