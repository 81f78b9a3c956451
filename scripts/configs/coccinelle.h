/* SPDX-License-Identifier: GPL-2.0-only */
/* Coccinelle 1.1.1 can't parse these words: it silently skips the code that has one of them. */

/* Linux's own */
#define __uninitialized
#define DEFINE_PER_CPU(type, name) type name
#define DECLARE_PER_CPU(type, name) extern type name
#define scoped_guard(...) YACFE_ITERATOR

/* kselftest_harness.h's: here fixtures are structures, and tests functions. */
#define FIXTURE(name) struct fixture
#define FIXTURE_DATA(name) struct fixture
#define FIXTURE_VARIANT(name) struct fixture
#define FIXTURE_VARIANT_ADD(data, name) static const struct fixture name =
#define FIXTURE_SETUP(name) static void setup(struct fixture *self)
#define FIXTURE_TEARDOWN(name) static void teardown(struct fixture *self)
#define FIXTURE_TEARDOWN_PARENT(name) static void teardown(struct fixture *self)
#define TEST(name) static void name(void)
#define TEST_F(data, name) static void name(struct fixture *self)
#define TEST_F_TIMEOUT(data, name, timeout) static void name(struct fixture *self)
#define TEST_HARNESS_MAIN

/* callchain_harness.h's */
#define PMI_FIXTURE(name)
#define PMI_LEVELS_FIXTURE(name)
#define PMI_VARIANTS(...)
#define CALLCHAIN_TEST(data, name) static void name(struct fixture *self)

/* guest-memslots.c's, as it has several of them in a row */
#define PIECE(as, gpa, size, hva) ""
#define SLOT(as, gpa, hva) ""
#define HIGH_RAM ""
#define LOW_RAM ""
#define ANY_FD ""

/* The same of guest-tasks.c */
#define SET_TEXT ""
#define PROGRAM_TEXT ""
#define LIBRARY_TEXT ""
#define VDSO_TEXT ""
#define ROOT_TEXT ""
#define SERVICE_TEXT ""
