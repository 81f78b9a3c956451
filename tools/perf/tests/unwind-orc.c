// SPDX-License-Identifier: GPL-2.0
/*
 * Unwind made-up stacks by made-up ORC tables, in each format that the unwinder knows, and compare
 * whole chains.  A broken stack or table must end the chain with the right reason.
 */
#include <string.h>
#include <asm/byteorder.h>
#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/unaligned.h>
#include "debug.h"
#include "unwind-orc.h"
#include "tests.h"

#define TEXT		0xffffffff81000000ULL
#define TABLE		0xffffffff82000000ULL
#define STACK		0xffffc90000010000ULL
#define IRQ_STACK	0xffffc90000023f00ULL
#define MAX_FRAMES	16

/*
 * The functions of the kernel have 0x100 bytes each, and are named after what they do to the stack.
 */
enum {
	LEAF,
	SAVES_BP,
	BY_BP,
	SAVES_MORE,
	BP_BY_BP,
	BELOW_BP,
	BELOW_SP,
	ENTRY,
	BP_BESIDE_REGS,
	IRET_ONLY,
	BREAKPOINT,
	SWITCHES,
	SWITCHES_AND_SAVES,
	BY_BP_WORD,
	BY_R10,
	BP_BY_R10,
	NO_RULE,
	EMPTY,
	AFTER_EMPTY,
	OUTERMOST,
	NR_FUNCTIONS
};

#define START(function)	(TEXT + (function) * 0x100)
#define IN(function)	(START(function) + 0x10)

/* No table has these addresses. */
#define MODULE		0xffffffffc0000000ULL
#define USER		0x401000ULL

/* The numbers of registers, types and flags in a version of Linux. */
struct numbers {
	const char *name;
	const u8 *hash;
	u8 prev_sp, bp, sp, bp_indirect, sp_indirect, r10;
	u16 call, regs, iret, end, signal;
};

static const u8 hash_6_4[ORC_HASH_SIZE] = {
	0xfe, 0x5d, 0x32, 0xbf, 0x58, 0x1b, 0xd6, 0x3b, 0x2c, 0xa9,
	0xa5, 0xc6, 0x5b, 0xa5, 0xa6, 0x25, 0xea, 0xb3, 0xfe, 0x24,
};

static const u8 hash_7_3[ORC_HASH_SIZE] = {
	0x13, 0x7c, 0x36, 0xad, 0x76, 0x27, 0xc4, 0xdd, 0x55, 0x93,
	0x21, 0x76, 0xbb, 0x0e, 0xcd, 0xbd, 0x50, 0x41, 0xfc, 0x82,
};

#define NUMBERS_BEFORE_7_3	\
	.prev_sp = 1, .bp = 4, .sp = 5, .r10 = 6, .bp_indirect = 8, .sp_indirect = 9

#define NUMBERS_SINCE_7_3	\
	.prev_sp = 8, .bp = 4, .sp = 3, .r10 = 6, .bp_indirect = 10, .sp_indirect = 9

#define TYPES_BEFORE_6_4	.call = 0 << 8, .regs = 1 << 8, .iret = 2 << 8
#define TYPES_SINCE_6_4		\
	.call = 2 << 8, .regs = 3 << 8, .iret = 4 << 8, .end = 1 << 8, .signal = BIT(11)

static const struct numbers formats[] = {
	{ "6.1", NULL, NUMBERS_BEFORE_7_3, TYPES_BEFORE_6_4, .end = BIT(10) },
	{ "6.3", NULL, NUMBERS_BEFORE_7_3, TYPES_BEFORE_6_4, .end = BIT(11), .signal = BIT(10) },
	{ "6.4", hash_6_4, NUMBERS_BEFORE_7_3, TYPES_SINCE_6_4 },
	{ "6.4 without a hash", NULL, NUMBERS_BEFORE_7_3, TYPES_SINCE_6_4 },
	{ "7.3", hash_7_3, NUMBERS_SINCE_7_3, TYPES_SINCE_6_4 },
};

static u8 table_ips[NR_FUNCTIONS * ORC_IP_SIZE];
static u8 table_entries[NR_FUNCTIONS * ORC_ENTRY_SIZE];
static struct orc_table table = {
	.addr = TABLE,
	.ips = table_ips,
	.entries = table_entries,
	.nr = NR_FUNCTIONS,
	.end = START(NR_FUNCTIONS),
};

static const struct orc_table *find_table(u64 ip, void *arg)
{
	return ip == MODULE - 1 || ip <= USER ? NULL : arg;
}

static void put_entry(unsigned int function, s16 sp_offset, u8 sp_reg, s16 bp_offset, u8 bp_reg,
		      u16 flags)
{
	u8 *entry = &table_entries[function * ORC_ENTRY_SIZE];
	u64 offset = function * ORC_IP_SIZE;

	/* EMPTY has no code, so its entry begins where the next one does. */
	put_unaligned_le32(START(function == EMPTY ? AFTER_EMPTY : function) - (TABLE + offset),
			   &table_ips[offset]);
	put_unaligned_le16(sp_offset, &entry[0]);
	put_unaligned_le16(bp_offset, &entry[2]);
	put_unaligned_le16(sp_reg | bp_reg << 4 | flags, &entry[4]);
}

static void build_table(const struct numbers *n)
{
	put_entry(LEAF, 8, n->sp, 0, 0, n->call);
	put_entry(SAVES_BP, 16, n->sp, -16, n->prev_sp, n->call);
	put_entry(BY_BP, 16, n->bp, -16, n->prev_sp, n->call);
	put_entry(SAVES_MORE, 0x110, n->sp, -24, n->prev_sp, n->call);
	put_entry(BP_BY_BP, 24, n->bp, 8, n->bp, n->call);
	put_entry(BELOW_BP, -16, n->bp, 0, 0, n->call);
	put_entry(BELOW_SP, -8, n->sp, 0, 0, n->call);
	put_entry(ENTRY, 0, n->sp, 0, 0, n->regs | n->signal);
	put_entry(BP_BESIDE_REGS, 0, n->sp, 8, n->bp, n->regs | n->signal);
	put_entry(IRET_ONLY, 8, n->sp, 0, 0, n->iret | n->signal);
	put_entry(BREAKPOINT, 0, n->sp, 0, 0, n->iret);
	put_entry(SWITCHES, 8, n->sp_indirect, 0, 0, n->call);
	put_entry(SWITCHES_AND_SAVES, 24, n->sp_indirect, 0, 0, n->call);
	put_entry(BY_BP_WORD, -8, n->bp_indirect, 0, 0, n->call);
	put_entry(BY_R10, 8, n->r10, 0, 0, n->call);
	put_entry(BP_BY_R10, 8, n->sp, 0, n->r10, n->call);
	put_entry(NO_RULE, 0, 0, 0, 0, 0);
	put_entry(EMPTY, 0, 0, 0, 0, n->end);
	put_entry(AFTER_EMPTY, 8, n->sp, 0, 0, n->call);
	put_entry(OUTERMOST, 0, 0, 0, 0, n->end);
	table.format = orc_format__find(n->hash, table_entries, table.nr);
}

/* The address of word @i of a stack. */
#define AT(i)		(STACK + 8 * (i))
#define IRQ_AT(i)	(IRQ_STACK + 8 * (i))

/* struct pt_regs, from word @i on. */
#define REGS(i, _bp, _ip, _cs, _sp)						\
	[(i) + 4] = (_bp), [(i) + 16] = (_ip), [(i) + 17] = (_cs), [(i) + 19] = (_sp)

static const struct orc_case {
	const char *name;
	u64 ip;
	u64 bp;
	/* If zero, SP is at the beginning of the stack. */
	u64 sp;
	/* The case needs a format with a flag for code that was interrupted. */
	bool needs_signal;
	/* The stack of the sample, if it isn't that of the task. */
	u64 irq_stack[6];
	u64 stack[40];
	u64 ips[MAX_FRAMES];
	enum orc_end end;
	/* User mode's registers */
	u64 user_ip, user_sp, user_bp;
} cases[] = {
	{
		.name = "system call",
		.ip = IN(LEAF),
		.stack = {
			IN(SAVES_BP), AT(5), IN(BY_BP), 0, 0, 0x1234, IN(ENTRY),
			REGS(7, 0x7ff0, USER, 0x33, 0x7f00),
		},
		.ips = { IN(LEAF), IN(SAVES_BP), IN(BY_BP), IN(ENTRY) },
		.end = ORC_END_USER,
		.user_ip = USER, .user_sp = 0x7f00, .user_bp = 0x7ff0,
	}, {
		.name = "interrupt with a stack of its own, in a kernel thread",
		.ip = IN(LEAF),
		.irq_stack = { IN(SWITCHES), AT(0) },
		.stack = {
			IN(ENTRY), REGS(1, AT(30), IN(LEAF), 0x10, AT(22)), [22] = IN(BY_BP),
			[30] = 0, IN(OUTERMOST),
		},
		.ips = { IN(LEAF), IN(SWITCHES), IN(ENTRY), IN(LEAF), IN(BY_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "what the CPU has pushed, and an error code",
		.ip = IN(IRET_ONLY),
		.bp = 0x7ff0,
		.stack = { 14, USER, 0x33, 0x202, 0x7f00 },
		.ips = { IN(IRET_ONLY) },
		.end = ORC_END_USER,
		.user_ip = USER, .user_sp = 0x7f00, .user_bp = 0x7ff0,
	}, {
		.name = "realigned stack",
		.ip = IN(BY_BP_WORD),
		.bp = AT(3),
		.stack = { 0, 0, AT(6), 0, 0, IN(OUTERMOST) },
		.ips = { IN(BY_BP_WORD), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		/* The caller ends with a call that does not return. */
		.name = "return to a function's end",
		.ip = IN(LEAF),
		.stack = { START(BY_BP), 0, IN(OUTERMOST) },
		.ips = { IN(LEAF), START(BY_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "interrupted at a function's beginning",
		.ip = START(BY_BP),
		.bp = AT(4),
		.stack = { [5] = IN(OUTERMOST) },
		.ips = { START(BY_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "interrupt at a function's beginning",
		.ip = IN(LEAF),
		.stack = {
			IN(ENTRY), REGS(1, AT(30), START(BY_BP), 0x10, AT(22)),
			[31] = IN(OUTERMOST),
		},
		.ips = { IN(LEAF), IN(ENTRY), START(BY_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "BP saved relative to BP",
		.ip = IN(BP_BY_BP),
		.bp = AT(2),
		.stack = { [3] = AT(8), IN(BY_BP), [9] = IN(OUTERMOST) },
		.ips = { IN(BP_BY_BP), IN(BY_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "more than BP is saved",
		.ip = IN(SAVES_MORE),
		.stack = { [31] = AT(35), [33] = IN(BY_BP), [36] = IN(OUTERMOST) },
		.ips = { IN(SAVES_MORE), IN(BY_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "frame below BP",
		.ip = IN(BELOW_BP),
		.bp = AT(5),
		.stack = { [2] = IN(OUTERMOST) },
		.ips = { IN(BELOW_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "interrupt's stack with more than SP on it",
		.ip = IN(SWITCHES_AND_SAVES),
		.irq_stack = { AT(0) },
		.stack = { 0, 0, IN(OUTERMOST) },
		.ips = { IN(SWITCHES_AND_SAVES), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		/* int3 leaves the address behind it, as a call does. */
		.name = "breakpoint at a function's end",
		.needs_signal = true,
		.ip = IN(BREAKPOINT),
		.stack = { START(BY_BP), 0x10, 0x202, AT(6), 0x18, 0, 0, IN(OUTERMOST) },
		.ips = { IN(BREAKPOINT), START(BY_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "code segment of ring 1",
		.ip = IN(IRET_ONLY),
		.stack = { 14, IN(LEAF), 0x11, 0x202, AT(6), 0x18, IN(OUTERMOST) },
		.ips = { IN(IRET_ONLY), IN(LEAF), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "BP that is not saved with the other registers",
		.ip = IN(BP_BESIDE_REGS),
		.bp = AT(30),
		.stack = { REGS(0, AT(0), USER, 0x33, 0x7f00), [31] = 0x7ff0 },
		.ips = { IN(BP_BESIDE_REGS) },
		.end = ORC_END_USER,
		.user_ip = USER, .user_sp = 0x7f00, .user_bp = 0x7ff0,
	}, {
		.name = "user mode's SP is the kernel's stack",
		.ip = IN(IRET_ONLY),
		.stack = { 14, USER, 0x33, 0x202, AT(0) },
		.ips = { IN(IRET_ONLY) },
		.end = ORC_END_USER,
		.user_ip = USER, .user_sp = AT(0),
	}, {
		.name = "two entries of one address",
		.ip = START(AFTER_EMPTY),
		.stack = { IN(OUTERMOST) },
		.ips = { START(AFTER_EMPTY), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "address that no table has",
		.ip = IN(LEAF),
		.stack = { MODULE },
		.ips = { IN(LEAF), MODULE },
		.end = ORC_END_NO_TABLE,
	}, {
		.name = "return to a function's second byte",
		.ip = IN(LEAF),
		.bp = AT(4),
		.stack = { START(BY_BP) + 1, [5] = IN(OUTERMOST) },
		.ips = { IN(LEAF), START(BY_BP) + 1, IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "interrupted at the first function's beginning",
		.ip = START(LEAF),
		.stack = { IN(OUTERMOST) },
		.ips = { START(LEAF), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "sample on the stack that was interrupted",
		.ip = IN(LEAF),
		.irq_stack = { IN(OUTERMOST) },
		.sp = AT(2),
		.stack = { 0, 0, IN(BY_BP) },
		.bp = AT(-1),
		.ips = { IN(LEAF), IN(BY_BP) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "another stack without a change of stacks",
		.ip = IN(BY_BP),
		.irq_stack = { IN(OUTERMOST) },
		.bp = AT(4),
		.stack = { [5] = IN(OUTERMOST) },
		.ips = { IN(BY_BP) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "another stack by the CPU",
		.ip = IN(IRET_ONLY),
		.irq_stack = { 14, IN(LEAF), 0x10, 0x202, AT(2), 0x18 },
		.stack = { 0, 0, IN(BY_BP), [5] = IN(OUTERMOST) },
		.bp = AT(4),
		.ips = { IN(IRET_ONLY), IN(LEAF), IN(BY_BP), IN(OUTERMOST) },
		.end = ORC_END_OUTERMOST,
	}, {
		.name = "saved registers that lead to themselves",
		.ip = IN(ENTRY),
		.stack = { REGS(0, 0, IN(ENTRY), 0x10, AT(0)) },
		.ips = { IN(ENTRY) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "saved registers that lead into themselves",
		.ip = IN(ENTRY),
		.stack = { REGS(0, 0, IN(LEAF), 0x10, AT(5)), [5] = IN(OUTERMOST) },
		.ips = { IN(ENTRY) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "return address far beyond the stack",
		.ip = IN(BY_BP),
		.bp = AT(100000),
		.ips = { IN(BY_BP) },
		.end = ORC_END_NO_STACK,
	}, {
		.name = "frame below SP",
		.ip = IN(BY_BP),
		.sp = AT(8),
		.bp = AT(2),
		.stack = { [3] = IN(OUTERMOST) },
		.ips = { IN(BY_BP) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "frame below SP by the rule",
		.ip = IN(BELOW_SP),
		.sp = AT(8),
		.stack = { [6] = IN(OUTERMOST) },
		.ips = { IN(BELOW_SP) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "interrupted SP below what was pushed",
		.ip = IN(IRET_ONLY),
		.stack = { 14, IN(LEAF), 0x10, 0x202, AT(5), 0x18, IN(OUTERMOST) },
		.ips = { IN(IRET_ONLY) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "interrupted SP on an interrupt's stack",
		.ip = IN(SWITCHES),
		.irq_stack = { AT(0), IN(OUTERMOST) },
		.stack = {
			IN(IRET_ONLY), 14, IN(LEAF), 0x10, 0x202, IRQ_AT(1),
		},
		.ips = { IN(SWITCHES), IN(IRET_ONLY) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "SP before an interrupt beyond its stack",
		.ip = IN(BY_BP),
		.bp = AT(38),
		.stack = { [39] = IN(SWITCHES) },
		.ips = { IN(BY_BP), IN(SWITCHES) },
		.end = ORC_END_NO_STACK,
	}, {
		.name = "half of the SP before an interrupt",
		.ip = IN(SWITCHES),
		.sp = AT(39) + 4,
		.ips = { IN(SWITCHES) },
		.end = ORC_END_NO_STACK,
	}, {
		.name = "all but SS of what the CPU pushes",
		.ip = IN(LEAF),
		.sp = AT(34),
		.stack = { [34] = IN(IRET_ONLY), 14, IN(LEAF), 0x10, 0x202, AT(39) },
		.ips = { IN(LEAF), IN(IRET_ONLY) },
		.end = ORC_END_NO_STACK,
	}, {
		.name = "address below all tables",
		.ip = TEXT - 1,
		.ips = { TEXT - 1 },
		.end = ORC_END_NO_TABLE,
	}, {
		.name = "address behind all tables",
		.ip = IN(LEAF),
		.stack = { START(NR_FUNCTIONS) + 1 },
		.ips = { IN(LEAF), START(NR_FUNCTIONS) + 1 },
		.end = ORC_END_NO_TABLE,
	}, {
		.name = "address without a rule",
		.ip = IN(LEAF),
		.stack = { IN(NO_RULE) },
		.ips = { IN(LEAF), IN(NO_RULE) },
		.end = ORC_END_UNDEFINED,
	}, {
		.name = "frame by R10",
		.ip = IN(BY_R10),
		.ips = { IN(BY_R10) },
		.end = ORC_END_REGISTER,
	}, {
		.name = "BP by R10",
		.ip = IN(BP_BY_R10),
		.stack = { IN(OUTERMOST) },
		.ips = { IN(BP_BY_R10) },
		.end = ORC_END_REGISTER,
	}, {
		.name = "BP saved below the stack",
		.ip = IN(BY_BP),
		.bp = AT(-1),
		.stack = { IN(OUTERMOST) },
		.ips = { IN(BY_BP) },
		.end = ORC_END_NO_STACK,
	}, {
		.name = "half of a return address",
		.ip = IN(BY_BP),
		.bp = AT(39) - 4,
		.ips = { IN(BY_BP) },
		.end = ORC_END_NO_STACK,
	}, {
		.name = "return address beyond the stack",
		.ip = IN(BY_BP),
		.bp = AT(39),
		.ips = { IN(BY_BP) },
		.end = ORC_END_NO_STACK,
	}, {
		.name = "saved registers beyond the stack",
		.ip = IN(LEAF),
		.stack = { IN(SAVES_BP), [1] = AT(38), IN(BY_BP), [39] = IN(ENTRY) },
		.ips = { IN(LEAF), IN(SAVES_BP), IN(BY_BP), IN(ENTRY) },
		.end = ORC_END_NO_STACK,
	}, {
		.name = "frame that leads to itself",
		.ip = IN(BY_BP),
		.bp = AT(4),
		.stack = { [4] = AT(4), IN(BY_BP) },
		.ips = { IN(BY_BP), IN(BY_BP) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "frame below the last one",
		.ip = IN(BY_BP),
		.bp = AT(8),
		.stack = { [4] = 0, IN(OUTERMOST), [8] = AT(4), IN(BY_BP) },
		.ips = { IN(BY_BP), IN(BY_BP) },
		.end = ORC_END_BACKWARDS,
	}, {
		.name = "back to an interrupt's stack",
		.ip = IN(LEAF),
		.irq_stack = { IN(SWITCHES), AT(0), IN(OUTERMOST) },
		.stack = { IN(SWITCHES), IRQ_AT(2) },
		.ips = { IN(LEAF), IN(SWITCHES), IN(SWITCHES) },
		.end = ORC_END_BACKWARDS,
	},
};

static bool chain_is(const struct orc_case *c, const struct orc_source *source)
{
	u64 sp = c->sp ?: source->pieces[0].addr;
	struct orc_state state;
	unsigned int nr = 0;

	orc_state__for_each_frame(&state, source, c->ip, sp, c->bp) {
		if (nr == MAX_FRAMES || !c->ips[nr] || state.ip != c->ips[nr]) {
			pr_debug("frame %u is %#llx, not %#llx\n", nr,
				 (unsigned long long)state.ip,
				 nr < MAX_FRAMES ? (unsigned long long)c->ips[nr] : 0);
			return false;
		}
		nr++;
	}
	if (state.end != c->end || (nr < MAX_FRAMES && c->ips[nr])) {
		pr_debug("%u frames, then: %s\n", nr, orc_end__name(state.end));
		return false;
	}
	return c->end != ORC_END_USER || (state.ip == c->user_ip && state.sp == c->user_sp &&
					  state.bp == c->user_bp);
}

/* Unwind the stack of a case.  Tables and stacks are an x86-64 guest's, so little-endian. */
static bool stack_is_unwound(const struct orc_case *c)
{
	u64 irq_stack[ARRAY_SIZE(c->irq_stack)], stack[ARRAY_SIZE(c->stack)];
	const bool irq = c->irq_stack[0];
	const struct orc_piece pieces[] = {
		{ IRQ_STACK, sizeof(irq_stack), (u8 *)irq_stack },
		{ STACK, sizeof(stack), (u8 *)stack },
	};
	const struct orc_source source = {
		.find_table = find_table,
		.arg = &table,
		.pieces = &pieces[!irq],
		.nr_pieces = 1 + irq,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(irq_stack); i++)
		irq_stack[i] = cpu_to_le64(c->irq_stack[i]);
	for (i = 0; i < ARRAY_SIZE(stack); i++)
		stack[i] = cpu_to_le64(c->stack[i]);
	return chain_is(c, &source);
}

/* Unwind all stacks by tables of one format. */
static int test__format(struct test_suite *test __maybe_unused, int subtest)
{
	const struct numbers *n = &formats[subtest];
	struct orc_case c = {
		.ip = IN(BY_BP), .irq_stack = { IN(OUTERMOST) }, .bp = AT(0),
		.stack = { 0, IN(OUTERMOST) }, .ips = { IN(BY_BP) },
	};
	unsigned int i;

	build_table(n);
	TEST_ASSERT_VAL("unknown format", table.format);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!cases[i].needs_signal || n->signal)
			TEST_ASSERT_VAL(cases[i].name, stack_is_unwound(&cases[i]));
	}
	/* Before 5.12, an IRQ that changes stacks has BP point to the one that it interrupted. */
	c.end = n == &formats[0] ? ORC_END_OUTERMOST : ORC_END_BACKWARDS;
	c.ips[1] = n == &formats[0] ? IN(OUTERMOST) : 0;
	TEST_ASSERT_VAL("another stack by BP", stack_is_unwound(&c));
	return TEST_OK;
}

/* A register or type without a meaning in the format must end the chain. */
static int check_numbers(const struct numbers *n)
{
	const u8 regs[] = { n->bp, n->sp, n->bp_indirect, n->sp_indirect };
	struct orc_case c = { .ip = IN(LEAF), .ips = { IN(LEAF) } };
	unsigned int reg, type;

	build_table(n);
	for (reg = 0; reg < 16; reg++) {
		if (memchr(regs, reg, sizeof(regs)))
			continue;
		put_entry(LEAF, 8, reg, 0, 0, n->call);
		c.end = reg ? ORC_END_REGISTER : ORC_END_UNDEFINED;
		TEST_ASSERT_VAL("unknown register of a frame", stack_is_unwound(&c));

		put_entry(LEAF, 8, n->sp, 0, reg, n->call);
		c.end = ORC_END_REGISTER;
		TEST_ASSERT_VAL("unknown register of BP",
				!reg || reg == n->prev_sp || stack_is_unwound(&c));
	}

	/* Before 5.12, the offset of an indirect SP had another meaning at saved registers. */
	put_entry(LEAF, 8, n->sp_indirect, 0, 0, n->regs);
	c.end = ORC_END_REGISTER;
	TEST_ASSERT_VAL("unknown indirect SP", n != &formats[0] || stack_is_unwound(&c));

	c.end = ORC_END_UNDEFINED;
	for (type = 0; type < 8 << 8; type += 1 << 8) {
		if (n->hash && type != n->call && type != n->regs && type != n->iret &&
		    type != n->end) {
			put_entry(LEAF, 8, n->sp, 0, 0, type);
			TEST_ASSERT_VAL("unknown type", stack_is_unwound(&c));
		}
	}
	return TEST_OK;
}

static bool has_no_rule(struct orc_table *t)
{
	const struct orc_case c = {
		.ip = IN(LEAF), .ips = { IN(LEAF) }, .end = ORC_END_NO_TABLE,
	};
	const struct orc_piece piece = {};
	const struct orc_source source = {
		.find_table = find_table, .arg = t, .pieces = &piece,
	};

	return chain_is(&c, &source);
}

static int test__numbers(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(formats); i++) {
		if (check_numbers(&formats[i]) != TEST_OK)
			return TEST_FAIL;
	}
	return TEST_OK;
}

static int test__no_rule(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	const u64 top[] = { 0, 0, cpu_to_le64(-16ULL), cpu_to_le64(IN(BY_BP)) };
	struct orc_table empty, unreadable;

	build_table(&formats[0]);
	TEST_ASSERT_VAL("frame that ends where addresses do", chain_is(&(struct orc_case) {
		.ip = IN(BY_BP), .bp = -16ULL, .ips = { IN(BY_BP) }, .end = ORC_END_NO_STACK,
	}, &(struct orc_source) {
		.find_table = find_table, .arg = &table, .nr_pieces = 1,
		.pieces = &(struct orc_piece) { -32ULL, sizeof(top), (const u8 *)top },
	}));
	empty = (struct orc_table) { .format = table.format };
	TEST_ASSERT_VAL("empty table", has_no_rule(&empty));
	unreadable = table;
	unreadable.format = NULL;
	TEST_ASSERT_VAL("table of an unknown format", has_no_rule(&unreadable));
	return TEST_OK;
}

static int test__unknown(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	u8 unknown_hash[ORC_HASH_SIZE];
	unsigned int i;

	build_table(&formats[0]);
	for (i = 0; i < ARRAY_SIZE(formats); i++) {
		if (!formats[i].hash)
			continue;
		memcpy(unknown_hash, formats[i].hash, sizeof(unknown_hash));
		unknown_hash[ORC_HASH_SIZE - 1]++;
		TEST_ASSERT_VAL("hash of no known kernel",
				!orc_format__find(unknown_hash, table_entries, table.nr));
	}
	/* No known format has such a flag. */
	for (i = 12; i < 16; i++) {
		put_entry(LEAF, 0, 0, 0, 0, BIT(i));
		TEST_ASSERT_VAL("unknown flag", !orc_format__find(NULL, table_entries, table.nr));
	}
	return TEST_OK;
}

/* The first ones are in the order of formats[]. */
static struct test_case tests__unwind_orc[] = {
	TEST_CASE("Linux 6.1", format),
	TEST_CASE("Linux 6.3", format),
	TEST_CASE("Linux 6.4", format),
	TEST_CASE("Linux 6.4 without a hash", format),
	TEST_CASE("Linux 7.3", format),
	TEST_CASE("Registers and types without a meaning", numbers),
	TEST_CASE("Addresses without a rule", no_rule),
	TEST_CASE("Unknown formats", unknown),
	{ .name = NULL, }
};

struct test_suite suite__unwind_orc = {
	.desc = "Unwinding guests' kernels by ORC",
	.test_cases = tests__unwind_orc,
};
