/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The data that programs write to and read from /dev/test_guest_walk, see guest_walk_changes.c.
 */
#ifndef SELFTEST_KVM_TEST_GUEST_WALK_H
#define SELFTEST_KVM_TEST_GUEST_WALK_H

#include <linux/types.h>

#define GUEST_WALK_MAX_CHANGES	256

/**
 * struct guest_walk_change - an entry to change during each of @nr_walks walks of a stack
 * @addr:	address in this process of an entry of the guest's page tables; zero to only count
 * @before:	the entry's value outside of such walks
 * @after:	the value that the entry changes to
 * @step:	when it changes: 0 before the first entry is read, n right after the n-th is read
 * @flip:	change it at each later step, too, to @before and @after in turns
 * @nr_walks:	after this many walks, go on with the next change
 * @reserved:	zero
 *
 * Write an array of changes to begin.  After the last change, nothing is changed or counted.
 */
struct guest_walk_change {
	__u64 addr;
	__u64 before;
	__u64 after;
	__u32 step;
	__u32 flip;
	__u32 nr_walks;
	__u32 reserved;
};

/**
 * struct guest_walk_result - what happened in the walks of one change
 * @nr_walks:		walks of a stack
 * @changes:		how often the entry was changed; restoring it after a walk does not count
 * @failures:		how often the entry could not be written
 * @elements:		page-table entries read in all of these walks
 * @max_elements:	page-table entries read, the most in one walk
 * @max_table_walks:	pages of the stack translated, the most in one walk
 *
 * Read as many results as there are changes.
 */
struct guest_walk_result {
	__u32 nr_walks;
	__u32 changes;
	__u32 failures;
	__u32 elements;
	__u32 max_elements;
	__u32 max_table_walks;
};

#endif /* SELFTEST_KVM_TEST_GUEST_WALK_H */
