/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is written to and read from /dev/test_guest_walk, see guest_walk_changes.c.
 */
#ifndef SELFTEST_KVM_TEST_GUEST_WALK_H
#define SELFTEST_KVM_TEST_GUEST_WALK_H

#include <linux/types.h>

#define GUEST_WALK_MAX_CHANGES	256

/**
 * struct guest_walk_change - what to change during each of some walks of a stack
 * @addr:	an entry of the guest's page tables in this process; zero to only count
 * @before:	what it holds outside of such walks
 * @after:	what it is changed to
 * @step:	when: zero before the first entry is read, n right after the n-th is
 * @flip:	go on at each later step, with @before and @after in turns
 * @nr_walks:	after so many walks, go on with the next change
 * @deferred:	what the thread itself walks counts, rather than what its PMIs do
 *
 * Write an array of them to begin; behind the last one, nothing is done.
 */
struct guest_walk_change {
	__u64 addr;
	__u64 before;
	__u64 after;
	__u32 step;
	__u32 flip;
	__u32 nr_walks;
	__u32 deferred;
};

/**
 * struct guest_walk_result - what happened in the walks of one change
 * @nr_walks:		walks of a stack
 * @changes:		how often the entry was changed, not counting that it was put back
 * @failures:		how often it could not be written
 * @elements:		entries of page tables that were read
 * @max_elements:	the same, most in any one walk
 * @max_reads:		words that were read from the stack, most in any one walk; x86 only
 * @max_table_walks:	pages of the stack that were translated, most in any one walk; x86 only
 * @reserved:		zero
 *
 * Read as many as there are changes.
 */
struct guest_walk_result {
	__u32 nr_walks;
	__u32 changes;
	__u32 failures;
	__u32 elements;
	__u32 max_elements;
	__u32 max_reads;
	__u32 max_table_walks;
	__u32 reserved;
};

#endif /* SELFTEST_KVM_TEST_GUEST_WALK_H */
