// SPDX-License-Identifier: GPL-2.0
/*
 * Test what perf asks the kernel to read of a guest, by the symbols and the BTF of the guest's
 * kernel.
 */
#include <string.h>
#include <unistd.h>

#include <linux/kernel.h>
#include <linux/perf_event.h>

#include "dwarf-regs.h"
#include "fake-guest.h"
#include "guest-kernel.h"
#include "guest-reads.h"
#include "tests.h"

#define IN_KERNEL	PERF_GUEST_READ_IN_KERNEL
#define IN_USER		PERF_GUEST_READ_IN_USER
#define AS_USER		PERF_GUEST_READ_AS_USER

/* What is read of the usual kernel. */
static const struct perf_guest_read usual[] = {
	[GUEST_READ_STACK] = {
		.base = PERF_GUEST_READ_SP, .flags = IN_KERNEL, .size = 4096,
	},
	[GUEST_READ_INTERRUPTED] = {
		.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 2, .flags = IN_KERNEL, .size = 4096,
		.within = 16384, .address = FAKE_IRQ_STACK,
	},
	[GUEST_READ_USER_REGS] = {
		.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 1, .flags = IN_KERNEL, .size = 168,
		.offset = { 0, -168 }, .address = FAKE_TOP,
	},
	[GUEST_READ_USER_STACK] = {
		.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 2, .flags = IN_KERNEL | AS_USER,
		.size = 8192, .offset = { 0, -16 }, .address = FAKE_TOP,
	},
	[GUEST_READ_CURRENT_STACK] = {
		.base = PERF_GUEST_READ_SP, .flags = IN_USER | AS_USER, .size = 8192,
	},
	[GUEST_READ_PIDS] = {
		.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 1, .flags = IN_KERNEL | IN_USER,
		.size = 8, .offset = { 0, T_PID }, .address = FAKE_CURRENT,
	},
	[GUEST_READ_COMM] = {
		.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 1, .flags = IN_KERNEL | IN_USER,
		.size = 16, .offset = { 0, T_COMM }, .address = FAKE_CURRENT,
	},
	[GUEST_READ_CGROUP] = {
		.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 4, .flags = IN_KERNEL | IN_USER,
		.size = 8, .offset = { 0, T_CGROUPS, CSS_CGROUP, CGROUP_KN, KN_ID },
		.address = FAKE_CURRENT,
	},
};

static bool describe(const struct fake_kernel *fake, u32 size, struct perf_guest_reads *reads)
{
	struct guest_kernel *kernel;
	const char *why_not;

	fake__make_kernel(fake);
	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	if (!kernel)
		return false;

	guest_reads__describe(reads, kernel);
	guest_reads__set_size(reads, size);
	guest_kernel__delete(kernel);
	return reads->regs == 0xff0fff && reads->nr == NR_GUEST_READ_SLOTS;
}

static bool is_usual(const struct perf_guest_reads *reads, unsigned int slot)
{
	return !memcmp(&reads->read[slot], &usual[slot], sizeof(usual[slot]));
}

static int test_usual(const char *dir __maybe_unused)
{
	struct perf_guest_reads reads;

	TEST_ASSERT_VAL("no kernel", describe(&(const struct fake_kernel){}, 4096, &reads));
	for (unsigned int i = 0; i < NR_GUEST_READ_SLOTS; i++)
		TEST_ASSERT_VAL(guest_read_slot__name(i), is_usual(&reads, i));
	return TEST_OK;
}

/* In struct pcpu_hot, the variables lie elsewhere. */
static int test_hot(const char *dir __maybe_unused)
{
	struct perf_guest_reads reads;

	TEST_ASSERT_VAL("no kernel",
			describe(&(const struct fake_kernel){ .hot = true }, 4096, &reads));
	TEST_ASSERT_VAL("IRQ's stack",
			reads.read[GUEST_READ_INTERRUPTED].address == FAKE_HOT + HOT_IRQ_STACK);
	TEST_ASSERT_VAL("registers",
			reads.read[GUEST_READ_USER_REGS].address == FAKE_HOT + HOT_TOP);
	TEST_ASSERT_VAL("user mode's stack",
			reads.read[GUEST_READ_USER_STACK].address == FAKE_HOT + HOT_TOP);
	TEST_ASSERT_VAL("pids", reads.read[GUEST_READ_PIDS].address == FAKE_HOT + HOT_CURRENT);
	TEST_ASSERT_VAL("comm", reads.read[GUEST_READ_COMM].address == FAKE_HOT + HOT_CURRENT);
	return TEST_OK;
}

/* The kernel has no variable for the top of the stack. */
static int test_no_top(const char *dir __maybe_unused)
{
	const struct perf_guest_read regs = {
		.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 2, .flags = IN_KERNEL, .size = 168,
		.offset = { 0, T_STACK, 16384 - 168 }, .address = FAKE_CURRENT,
	}, stack = {
		.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 3, .flags = IN_KERNEL | AS_USER,
		.size = 8192, .offset = { 0, T_STACK, 16384 - 16 }, .address = FAKE_CURRENT,
	};
	struct perf_guest_reads reads;
	const struct perf_guest_read *irq = &reads.read[GUEST_READ_INTERRUPTED];

	TEST_ASSERT_VAL("no kernel",
			describe(&(const struct fake_kernel){ .no_top = true }, 4096, &reads));
	TEST_ASSERT_VAL("IRQ's stack", irq->address == FAKE_IRQ_STACK && irq->offset[1] == -8);
	TEST_ASSERT_VAL("registers",
			!memcmp(&reads.read[GUEST_READ_USER_REGS], &regs, sizeof(regs)));
	TEST_ASSERT_VAL("user mode's stack",
			!memcmp(&reads.read[GUEST_READ_USER_STACK], &stack, sizeof(stack)));
	TEST_ASSERT_VAL("pids", is_usual(&reads, GUEST_READ_PIDS));
	return TEST_OK;
}

/* Nothing is read by what the kernel doesn't have. */
static int test_unknown(const char *dir __maybe_unused)
{
	struct perf_guest_reads reads;

	TEST_ASSERT_VAL("no kernel",
			describe(&(const struct fake_kernel){ .no_percpu = true }, 4096, &reads));
	for (unsigned int i = 0; i < NR_GUEST_READ_SLOTS; i++) {
		bool read = i == GUEST_READ_STACK || i == GUEST_READ_CURRENT_STACK;

		TEST_ASSERT_VAL(guest_read_slot__name(i), read ? is_usual(&reads, i) :
								 !reads.read[i].flags);
	}

	guest_reads__describe(&reads, NULL);
	guest_reads__set_size(&reads, 4096);
	for (unsigned int i = 0; i < NR_GUEST_READ_SLOTS; i++)
		/* Kernels of arm64 have frame records: their stacks are not read. */
		TEST_ASSERT_VAL("another guest", i == GUEST_READ_STACK && EM_HOST != EM_AARCH64 ?
						 is_usual(&reads, i) : !reads.read[i].flags);
	return TEST_OK;
}

/* What is read of arm64's kernels; the end of a stack depends on the size of pages. */
static int test_arm64(const char *dir __maybe_unused)
{
	for (const struct fake_arm64 *guest = fake_arm64_guests; guest->name; guest++) {
		const s32 at = (guest->shift == 16 ? 65536 : 16384) - ARM64_PT_REGS;
		const struct perf_guest_read regs = {
			.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 2, .flags = IN_KERNEL,
			.size = 288, .offset = { 0, T_STACK, at }, .address = FAKE_ENTRY,
		}, stack = {
			.base = PERF_GUEST_READ_PERCPU, .nr_derefs = 3,
			.flags = IN_KERNEL | AS_USER,
			.size = 8192, .offset = { 0, T_STACK, at + 248 }, .address = FAKE_ENTRY,
		};
		struct perf_guest_reads reads;
		struct guest_kernel *kernel;
		const char *why_not;

		fake__make_arm64(guest);
		kernel = guest_kernel__find(getpid(), NULL, &why_not);
		TEST_ASSERT_VAL(guest->name, kernel);
		guest_reads__describe(&reads, kernel);
		guest_kernel__delete(kernel);
		TEST_ASSERT_VAL(guest->name, reads.regs == 0x1ffffffff);
		for (unsigned int i = 0; i < NR_GUEST_READ_SLOTS; i++) {
			struct perf_guest_read expected = usual[i];

			if (i == GUEST_READ_STACK || i == GUEST_READ_INTERRUPTED)
				expected = (struct perf_guest_read) {};
			else if (i == GUEST_READ_USER_REGS)
				expected = regs;
			else if (i == GUEST_READ_USER_STACK)
				expected = stack;
			else if (expected.address == FAKE_CURRENT)
				expected.address = FAKE_ENTRY;
			TEST_ASSERT_VAL(guest_read_slot__name(i),
					!memcmp(&reads.read[i], &expected, sizeof(expected)));
		}
	}
	return TEST_OK;
}

/* All slots together must fit into a record. */
static int test_sizes(const char *dir __maybe_unused)
{
	struct perf_guest_reads reads;
	u32 size = 0;

	TEST_ASSERT_VAL("no kernel", describe(&(const struct fake_kernel){}, 65528, &reads));
	for (unsigned int i = 0; i < NR_GUEST_READ_SLOTS; i++) {
		TEST_ASSERT_VAL("part of a word", reads.read[i].size % sizeof(u64) == 0);
		size += reads.read[i].size + 24;
	}
	TEST_ASSERT_VAL("too much", size + 24 * sizeof(u64) <= 65535 - 256);
	TEST_ASSERT_VAL("a large stack", reads.read[GUEST_READ_STACK].size == 32768);

	TEST_ASSERT_VAL("no kernel", describe(&(const struct fake_kernel){}, 0, &reads));
	TEST_ASSERT_VAL("no stack", !reads.read[GUEST_READ_STACK].flags &&
			!reads.read[GUEST_READ_INTERRUPTED].flags);
	TEST_ASSERT_VAL("registers without stack", is_usual(&reads, GUEST_READ_USER_REGS));
	return TEST_OK;
}

static struct test_case tests__guest_reads[] = {
	FAKE_GUEST_BTF_TEST("Kernel with per-CPU variables", test_usual),
	FAKE_GUEST_BTF_TEST("Kernel with struct pcpu_hot", test_hot),
	FAKE_GUEST_BTF_TEST("Kernel without the top of the stack", test_no_top),
	FAKE_GUEST_BTF_TEST("What is not known", test_unknown),
	FAKE_GUEST_BTF_TEST("Kernel of arm64", test_arm64),
	FAKE_GUEST_BTF_TEST("Sizes", test_sizes),
	{ .name = NULL, }
};

struct test_suite suite__guest_reads = {
	.desc = "Reads of guests",
	.test_cases = tests__guest_reads,
};
