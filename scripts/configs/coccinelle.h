/* SPDX-License-Identifier: GPL-2.0-only */
/* Coccinelle 1.1.1 can't parse these words: it silently skips the code that has one of them. */

/* Linux's own */
#define __uninitialized
#define DEFINE_PER_CPU(type, name) type name
#define DECLARE_PER_CPU(type, name) extern type name
#define scoped_guard(...) YACFE_ITERATOR
