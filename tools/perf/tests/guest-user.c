// SPDX-License-Identifier: GPL-2.0
/*
 * Test where the callchain of a guest's kernel goes on in user mode: at system calls, interrupts,
 * and at the first and last instructions of system calls.  The guest may have anything in its
 * registers and in its memory.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <perf/event.h>

#include "callchain.h"
#include "debug.h"
#include "event.h"
#include "guest-reads.h"
#include "guest-regs.h"
#include "guest-user.h"
#include "sample.h"
#include "tests.h"

#define KERNEL_IP	0xffffffff81000010ULL
#define CALLER		0xffffffff81002000ULL
#define ENTRY_IP	0xffffffff82000010ULL
/* The end of the task's stack. */
#define TOP		0xffffc90000004000ULL
#define KERNEL_SP	(TOP - 0x400)
/* User mode: where it was left, and its stack, with two frames. */
#define USER_IP		0x401000ULL
#define USER_SP		0x7fff00001000ULL
#define RA_1		0x402000ULL
#define RA_2		0x403000ULL
#define FLAGS		0x246ULL

/* Registers in struct pt_regs, by their index. */
enum { R_BP = 4, R_IP = 16, R_CS = 17, R_FLAGS = 18, R_SP = 19, NR_REGS = 21 };

/* A sample, with a register for each number up to R15. */
struct user_sample {
	struct perf_record_guest_read	record;
	u64				regs[PERF_REG_X86_64_MAX];
	u64				saved[NR_REGS];
	u64				stack[8];
	struct {
		u64	nr;
		u64	ips[5];
	} chain;
	struct perf_sample		sample;
};

static void set_piece(struct user_sample *s, unsigned int slot, u64 addr, u64 size,
		      const void *data)
{
	s->sample.guest_read.pieces[slot] = (struct guest_piece){ addr, size, data };
}

/* Make a sample of a function that a system call has called, or whatever has entered the kernel. */
static void make_sample(struct user_sample *s)
{
	*s = (struct user_sample) {
		.record = {
			.abi = PERF_SAMPLE_REGS_ABI_64,
			.mask = BIT_ULL(PERF_REG_X86_64_MAX) - 1,
		},
		.regs = {
			[PERF_REG_X86_IP] = KERNEL_IP,
			[PERF_REG_X86_SP] = KERNEL_SP,
			[PERF_REG_X86_R11] = FLAGS,
			[PERF_REG_X86_CX] = 0x404000,
		},
		.saved = {
			[R_BP] = USER_SP + 0x10,
			[R_IP] = USER_IP,
			[R_CS] = 0x33,
			[R_FLAGS] = FLAGS,
			[R_SP] = USER_SP,
		},
		/* The second word is in the middle of the first function's frame. */
		.stack = { 1, 2, USER_SP + 0x30, RA_1, 3, 4, 0, RA_2 },
		.chain = { 5, { PERF_CONTEXT_GUEST_KERNEL, KERNEL_IP, PERF_CONTEXT_USER_DEFERRED,
				PERF_CONTEXT_GUEST_KERNEL, CALLER } },
		.sample = {
			.cpumode = PERF_RECORD_MISC_GUEST_KERNEL,
			.callchain = (struct ip_callchain *)&s->chain,
			.guest_read = { .record = &s->record, .nr = NR_GUEST_READ_SLOTS },
		},
	};
	set_piece(s, GUEST_READ_USER_REGS, TOP - sizeof(s->saved), sizeof(s->saved), s->saved);
	set_piece(s, GUEST_READ_USER_STACK, USER_SP, sizeof(s->stack), s->stack);
}

static void nothing(struct user_sample *s __maybe_unused) {}

/* On an IRQ's stack, the registers are those of the task all the same. */
static void irq_stack(struct user_sample *s)
{
	s->regs[PERF_REG_X86_SP] = 0xffffc90000128e00ULL;
}

static void fred(struct user_sample *s)
{
	s->sample.guest_read.pieces[GUEST_READ_USER_REGS].addr -= 16;
}

static void compat(struct user_sample *s)
{
	const u32 frames[] = { 0x5000 + 8, 0x8048100, 0, 0x8048200 };

	s->saved[R_CS] = 0x23;
	s->saved[R_IP] = 0x567808048000;
	s->saved[R_SP] = 0xffffffff00005000;
	s->saved[R_BP] = 0xffffffff00005000;
	memcpy(s->stack, frames, sizeof(frames));
	s->sample.guest_read.pieces[GUEST_READ_USER_STACK].addr = 0x5000;
}

/* Right after SYSCALL, and right before SYSRET, SP is user mode's. */
static void syscall_user_sp(struct user_sample *s)
{
	s->chain.nr = 4;
	s->regs[PERF_REG_X86_IP] = ENTRY_IP;
	s->regs[PERF_REG_X86_SP] = USER_SP;
	s->regs[PERF_REG_X86_BP] = USER_SP + 0x10;
	s->regs[PERF_REG_X86_CX] = 0x409000;
	/* What is saved is from the system call before. */
	s->saved[R_IP] = 0x1111;
}

/* If the guest has no SMAP, the kernel could read that stack from SP. */
static void syscall_no_smap(struct user_sample *s)
{
	syscall_user_sp(s);
	set_piece(s, GUEST_READ_USER_STACK, 0, 0, NULL);
	set_piece(s, GUEST_READ_STACK, USER_SP, sizeof(s->stack), s->stack);
}

/* The first frame is below SP. */
static void syscall_below_sp(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_SP] = USER_SP + 0x18;
}

/* SP has CR3. */
static void syscall_pti(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_SP] = 0x123456000ULL;
}

/* The program's stack is below 4 GiB: it is one of 32 bits, whose RCX has no IP. */
static void syscall_compat(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_SP] = 0xffffd000;
}

static void syscall_no_flags(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_R11] = 0x1246 | BIT(15);
}

static void syscall_no_cx(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_CX] = 0;
}

static void syscall_kernel_cx(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_CX] = KERNEL_IP;
}

/* The kernel's stack is nearly empty: the registers are not saved yet. */
static void syscall_empty_stack(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_SP] = TOP - 0x28;
}

static void syscall_empty(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_SP] = TOP;
}

/* Kernels that are built for FRED leave 16 bytes free: the registers are not all saved. */
static void syscall_fred(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_SP] = TOP - 176;
}

static void syscall_room(struct user_sample *s)
{
	syscall_user_sp(s);
	s->regs[PERF_REG_X86_SP] = TOP - 184;
}

static void syscall_callers(struct user_sample *s)
{
	syscall_empty_stack(s);
	s->chain.nr = 5;
}

/* Interrupts are off in R11: a program can't do that. */
static void syscall_no_if(struct user_sample *s)
{
	syscall_empty_stack(s);
	s->regs[PERF_REG_X86_R11] = FLAGS & ~BIT(9);
}

static void kernel_thread(struct user_sample *s)
{
	memset(s->saved, 0, sizeof(s->saved));
}

static void no_ip(struct user_sample *s)
{
	s->saved[R_IP] = 0;
}

static void kernel_cs(struct user_sample *s)
{
	s->saved[R_CS] = 0x10;
}

static void null_cs(struct user_sample *s)
{
	s->saved[R_CS] = 3;
}

static void kernel_ip(struct user_sample *s)
{
	s->saved[R_IP] = KERNEL_IP;
}

static void noncanonical_ip(struct user_sample *s)
{
	s->saved[R_IP] = BIT_ULL(60);
}

static void no_flags(struct user_sample *s)
{
	s->saved[R_FLAGS] = FLAGS & ~BIT(1);
}

static void vm86_flags(struct user_sample *s)
{
	s->saved[R_FLAGS] = FLAGS | BIT(17);
}

static void regs_in_part(struct user_sample *s)
{
	s->sample.guest_read.pieces[GUEST_READ_USER_REGS].size -= 8;
}

static void regs_in_user(struct user_sample *s)
{
	s->sample.guest_read.pieces[GUEST_READ_USER_REGS].addr = USER_SP;
}

/* Only the first slot was read, as the guest's kernel isn't known. */
static void one_slot(struct user_sample *s)
{
	s->sample.guest_read.nr = 1;
}

static void no_reads(struct user_sample *s)
{
	s->sample.guest_read.record = NULL;
}

static void kernel_32(struct user_sample *s)
{
	s->record.abi = PERF_SAMPLE_REGS_ABI_32;
}

static void user_mode(struct user_sample *s)
{
	s->sample.cpumode = PERF_RECORD_MISC_GUEST_USER;
}

static void no_record(struct user_sample *s)
{
	s->sample.deferred_callchain = true;
}

static void no_stack(struct user_sample *s)
{
	set_piece(s, GUEST_READ_USER_STACK, 0, 0, NULL);
}

static void cycle(struct user_sample *s)
{
	s->stack[2] = USER_SP + 0x10;
}

static void descending(struct user_sample *s)
{
	s->saved[R_BP] = USER_SP + 0x30;
	s->stack[6] = USER_SP + 0x10;
}

static void below_sp(struct user_sample *s)
{
	s->saved[R_SP] = USER_SP + 0x18;
}

static void overlap(struct user_sample *s)
{
	s->stack[2] = USER_SP + 0x18;
}

static void unaligned(struct user_sample *s)
{
	s->saved[R_BP] += 4;
}

static void beyond(struct user_sample *s)
{
	s->saved[R_BP] = USER_SP + 0x38;
}

static void half_frame(struct user_sample *s)
{
	s->sample.guest_read.pieces[GUEST_READ_USER_STACK].size = 0x1c;
}

static void kernel_ra(struct user_sample *s)
{
	s->stack[7] = KERNEL_IP;
}

static void no_ra(struct user_sample *s)
{
	s->stack[3] = 0;
}

static const struct {
	const char	*name;
	void		(*change)(struct user_sample *s);
	unsigned int	nr;
	u64		ips[3];
} cases[] = {
	{ "a system call",		nothing,	3, { USER_IP, RA_1, RA_2 } },
	{ "an IRQ's stack",		irq_stack,	3, { USER_IP, RA_1, RA_2 } },
	{ "FRED",			fred,		3, { USER_IP, RA_1, RA_2 } },
	{ "a program of 32 bits",	compat,		3, { 0x8048000, 0x8048100, 0x8048200 } },
	{ "SP of user mode",		syscall_user_sp, 3, { 0x409000, RA_1, RA_2 } },
	{ "the same, no SMAP",		syscall_no_smap, 3, { 0x409000, RA_1, RA_2 } },
	{ "a frame below user mode's SP", syscall_below_sp, 1, { 0x409000 } },
	{ "CR3 in SP",			syscall_pti,	3, { 0x409000, RA_1, RA_2 } },
	{ "SP below 4 GiB",		syscall_compat,	3, { 0x1111, RA_1, RA_2 } },
	{ "R11 has no flags",		syscall_no_flags, 3, { 0x1111, RA_1, RA_2 } },
	{ "RCX is zero",		syscall_no_cx,	3, { 0x1111, RA_1, RA_2 } },
	{ "RCX has no user mode's IP",	syscall_kernel_cx, 3, { 0x1111, RA_1, RA_2 } },
	{ "a stack that is nearly empty", syscall_empty_stack, 3, { 0x409000, RA_1, RA_2 } },
	{ "an empty stack",		syscall_empty,	3, { 0x409000, RA_1, RA_2 } },
	{ "a stack that is so for FRED", syscall_fred,	3, { 0x409000, RA_1, RA_2 } },
	{ "a stack with registers",	syscall_room,	3, { 0x1111, RA_1, RA_2 } },
	{ "a stack with a caller",	syscall_callers, 3, { 0x1111, RA_1, RA_2 } },
	{ "no interrupts in R11",	syscall_no_if,	3, { 0x1111, RA_1, RA_2 } },
	{ "a thread of the kernel",	kernel_thread,	0, {} },
	{ "no IP",			no_ip,		0, {} },
	{ "CS of the kernel",		kernel_cs,	0, {} },
	{ "no CS",			null_cs,	0, {} },
	{ "IP of the kernel",		kernel_ip,	0, {} },
	{ "no canonical IP",		noncanonical_ip, 0, {} },
	{ "no flags",			no_flags,	0, {} },
	{ "flags of virtual 8086 mode",	vm86_flags,	0, {} },
	{ "a part of the registers",	regs_in_part,	0, {} },
	{ "registers on no kernel's stack", regs_in_user, 0, {} },
	{ "only one slot",		one_slot,	0, {} },
	{ "no reads",			no_reads,	0, {} },
	{ "a kernel of 32 bits",	kernel_32,	0, {} },
	{ "a sample of user mode",	user_mode,	0, {} },
	{ "no record of the callchain",	no_record,	0, {} },
	{ "no stack",			no_stack,	1, { USER_IP } },
	{ "a frame that leads to itself", cycle,	2, { USER_IP, RA_1 } },
	{ "a frame that leads down",	descending,	2, { USER_IP, RA_2 } },
	{ "a frame below SP",		below_sp,	1, { USER_IP } },
	{ "frames that overlap",	overlap,	2, { USER_IP, RA_1 } },
	{ "an unaligned frame",		unaligned,	1, { USER_IP } },
	{ "a frame beyond the stack",	beyond,		1, { USER_IP } },
	{ "half a frame",		half_frame,	1, { USER_IP } },
	{ "a caller in the kernel",	kernel_ra,	2, { USER_IP, RA_1 } },
	{ "no return address",		no_ra,		1, { USER_IP } },
};

static bool is_as_expected(const struct user_sample *s, size_t i)
{
	const struct ip_callchain *chain = s->sample.callchain;
	u64 nr = s->chain.nr;

	if (!cases[i].nr)
		return (const void *)chain == &s->chain && !s->sample.merged_callchain;

	return s->sample.merged_callchain && chain->nr == nr + 1 + cases[i].nr &&
	       !memcmp(chain->ips, s->chain.ips, nr * sizeof(u64)) &&
	       chain->ips[nr] == PERF_CONTEXT_GUEST_USER &&
	       !memcmp(&chain->ips[nr + 1], cases[i].ips, cases[i].nr * sizeof(u64));
}

static int test__chains(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct user_sample s;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool good;

		make_sample(&s);
		cases[i].change(&s);
		sample__add_guest_user(&s.sample, NULL);
		good = is_as_expected(&s, i);
		if (s.sample.merged_callchain)
			free(s.sample.callchain);
		TEST_ASSERT_VAL(cases[i].name, good);
	}
	return TEST_OK;
}

/* A stack of nothing but frames has more of them than a chain. */
static int test__many_frames(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static u64 stack[1024];
	struct user_sample s;
	u64 nr;

	for (size_t i = 0; i < ARRAY_SIZE(stack); i += 2) {
		stack[i] = USER_SP + (i + 2) * sizeof(u64);
		stack[i + 1] = RA_1;
	}
	make_sample(&s);
	s.saved[R_BP] = USER_SP;
	set_piece(&s, GUEST_READ_USER_STACK, USER_SP, sizeof(stack), stack);
	sample__add_guest_user(&s.sample, NULL);
	TEST_ASSERT_VAL("no chain", s.sample.merged_callchain);
	nr = s.sample.callchain->nr;
	free(s.sample.callchain);
	TEST_ASSERT_VAL("length", nr == 5 + 1 + 256);
	return TEST_OK;
}

/* Registers in arm64's struct pt_regs, by their index; the last is the system call's number. */
enum { A_FP = 29, A_SP = 31, A_PC, A_PSTATE, A_SYSCALL = 35, NR_ARM64_REGS };

/* Flags of the last comparison; a signature above an address. */
#define PSTATE		0x60000000ULL
#define SIGNATURE	(0x2aULL << 48)

struct arm64_sample {
	struct perf_record_guest_read	record;
	u64				regs[PERF_REG_ARM64_PC + 1];
	u64				saved[NR_ARM64_REGS];
	u64				stack[8];
	struct {
		u64	nr;
		u64	ips[5];
	} chain;
	struct perf_sample		sample;
};

/* Make a sample of a function that a system call has called. */
static void make_arm64_sample(struct arm64_sample *s)
{
	*s = (struct arm64_sample) {
		.record = {
			.abi = PERF_SAMPLE_REGS_ABI_64,
			.mask = BIT_ULL(PERF_REG_ARM64_PC + 1) - 1,
		},
		.regs = {
			[PERF_REG_ARM64_X29] = TOP - 0x200,
			[PERF_REG_ARM64_SP] = TOP - 0x220,
			[PERF_REG_ARM64_PC] = KERNEL_IP,
		},
		.saved = {
			[A_FP] = USER_SP + 0x10,
			[A_SP] = USER_SP,
			[A_PC] = USER_IP,
			[A_PSTATE] = PSTATE,
			[A_SYSCALL] = 64,
		},
		.stack = { 1, 2, USER_SP + 0x30, RA_1 | SIGNATURE, 3, 4, 0, RA_2 },
		.chain = { 5, { PERF_CONTEXT_GUEST_KERNEL, KERNEL_IP, PERF_CONTEXT_USER_DEFERRED,
				PERF_CONTEXT_GUEST_KERNEL, CALLER } },
		.sample = {
			.cpumode = PERF_RECORD_MISC_GUEST_KERNEL,
			.callchain = (struct ip_callchain *)&s->chain,
			.guest_read = { .record = &s->record, .nr = NR_GUEST_READ_SLOTS },
		},
	};
	s->sample.guest_read.pieces[GUEST_READ_USER_REGS] = (struct guest_piece) {
		TOP - sizeof(s->saved), sizeof(s->saved), (const u8 *)s->saved,
	};
	s->sample.guest_read.pieces[GUEST_READ_USER_STACK] = (struct guest_piece) {
		USER_SP, sizeof(s->stack), (const u8 *)s->stack,
	};
}

/* What differs in a sample whose registers aren't user mode's, or may be an earlier entry's. */
static const struct {
	const char	*name;
	unsigned int	saved;
	u64		value;
	u64		fp;
	bool		alone;
	bool		whole;
} arm64_cases[] = {
	{ "a system call",		.saved = A_PSTATE, .value = PSTATE, .whole = true },
	{ "an exception",		.saved = A_SYSCALL, .value = ~0U, .whole = true },
	{ "a thread of the kernel",	.saved = A_PSTATE, .value = PSTATE | 5 },
	{ "a 32-bit program",		.saved = A_PSTATE, .value = PSTATE | 16 },
	{ "masked interrupts",		.saved = A_PSTATE, .value = PSTATE | 128 },
	{ "a state of 33 bits",		.saved = A_PSTATE, .value = PSTATE | BIT_ULL(32) },
	{ "no PC",			.saved = A_PC, .value = 0 },
	{ "a PC in the kernel",		.saved = A_PC, .value = KERNEL_IP },
	{ "FP is still user mode's",	.saved = A_PSTATE, .value = PSTATE, .fp = USER_SP + 0x10 },
	{ "the kernel's entry",		.saved = A_PSTATE, .value = PSTATE, .alone = true },
};

static int test__arm64(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static const u64 user[] = { PERF_CONTEXT_GUEST_USER, USER_IP, RA_1, RA_2 };

	for (size_t i = 0; i < ARRAY_SIZE(arm64_cases); i++) {
		const struct ip_callchain *chain;
		struct arm64_sample s;
		bool good;

		make_arm64_sample(&s);
		s.saved[arm64_cases[i].saved] = arm64_cases[i].value;
		if (arm64_cases[i].fp)
			s.regs[PERF_REG_ARM64_X29] = arm64_cases[i].fp;
		if (arm64_cases[i].alone)
			s.chain.nr = 4;
		sample__add_guest_user(&s.sample, NULL);
		chain = s.sample.callchain;
		good = s.sample.merged_callchain == arm64_cases[i].whole;
		if (s.sample.merged_callchain) {
			good = good && chain->nr == s.chain.nr + ARRAY_SIZE(user) &&
			       !memcmp(chain->ips, s.chain.ips, s.chain.nr * sizeof(u64)) &&
			       !memcmp(&chain->ips[s.chain.nr], user, sizeof(user));
			free(s.sample.callchain);
		}
		TEST_ASSERT_VAL(arm64_cases[i].name, good);
	}
	return TEST_OK;
}

static struct test_case tests__guest_user[] = {
	TEST_CASE("Entries, exits and frames", chains),
	TEST_CASE("More frames than a chain has", many_frames),
	TEST_CASE("Entries of arm64", arm64),
	{ .name = NULL, }
};

struct test_suite suite__guest_user = {
	.desc = "User mode of guests in callchains",
	.test_cases = tests__guest_user,
};
