// SPDX-License-Identifier: GPL-2.0
/*
 * Unwind as arch/x86/kernel/unwind_orc.c does, but from outside the kernel, and for kernels of
 * several versions.  Both the tables and the stack are a guest's, and may hold anything: each word
 * must lie on a piece of the stack, and each frame above the one before, or on a later piece.
 *
 * Code that the kernel makes at run time has no table: the walk ends at trampolines of the function
 * tracer and at BPF programs.  If a kretprobe or the function graph tracer has replaced a return
 * address, the chain has the trampoline instead, and as a rule ends there.
 */
#include <string.h>

#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/unaligned.h>

#include "../../arch/x86/include/asm/orc_types.h"
#include "unwind-orc.h"

/* The CPU pushes these when it is interrupted; they are the end of struct pt_regs. */
struct iret_frame {
	u64 ip;
	u64 cs;
	u64 flags;
	u64 sp;
	u64 ss;
};

struct regs_frame {
	u64 r15, r14, r13, r12;
	u64 bp;
	u64 bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	struct iret_frame iret;
};

/**
 * struct orc_format - a format of ORC entries
 * @hash:	contents of .orc_header; zeroes for kernels before 6.3.10, which have none
 * @type_mask:	bits of the type in the last word of an entry; the lowest one is bit 8
 * @end_mask:	flag of the outermost frame; zero if that is a type
 * @signal_mask: flag of code that was interrupted; zero if the type shows that
 * @types:	ORC_TYPE_* of Linux 7.3 for each number in the format
 * @regs:	ORC_REG_* of Linux 7.3 for each number in the format
 */
struct orc_format {
	u8	hash[ORC_HASH_SIZE];
	u16	type_mask;
	u16	end_mask;
	u16	signal_mask;
	u8	types[8];
	u8	regs[16];
};

/* Numbers without a meaning become ORC_REG_MAX: a rule that uses one of them is refused. */
#define REGS_BEFORE_7_3 {						\
	[0] = ORC_REG_UNDEFINED,					\
	[1] = ORC_REG_PREV_SP,						\
	[2] = ORC_REG_DX,						\
	[3] = ORC_REG_DI,						\
	[4] = ORC_REG_BP,						\
	[5] = ORC_REG_SP,						\
	[6] = ORC_REG_R10,						\
	[7] = ORC_REG_R13,						\
	[8] = ORC_REG_BP_INDIRECT,					\
	[9] = ORC_REG_SP_INDIRECT,					\
	[10 ... 15] = ORC_REG_MAX,					\
}

#define REGS_SINCE_7_3 {						\
	ORC_REG_UNDEFINED, ORC_REG_AX, ORC_REG_DX, ORC_REG_SP,		\
	ORC_REG_BP, ORC_REG_DI, ORC_REG_R10, ORC_REG_R13,		\
	ORC_REG_PREV_SP, ORC_REG_SP_INDIRECT, ORC_REG_BP_INDIRECT,	\
	[11 ... 15] = ORC_REG_MAX,					\
}

#define TYPES_BEFORE_6_4 {						\
	ORC_TYPE_CALL, ORC_TYPE_REGS, ORC_TYPE_REGS_PARTIAL,		\
}

#define TYPES_SINCE_6_4 {						\
	ORC_TYPE_UNDEFINED, ORC_TYPE_END_OF_STACK, ORC_TYPE_CALL,	\
	ORC_TYPE_REGS, ORC_TYPE_REGS_PARTIAL,				\
}

/* 4.14 to 6.2 */
static const struct orc_format format_4_14 = {
	.type_mask = GENMASK(9, 8),
	.end_mask = BIT(10),
	.types = TYPES_BEFORE_6_4,
	.regs = REGS_BEFORE_7_3,
};

/* 6.3 */
static const struct orc_format format_6_3 = {
	.type_mask = GENMASK(9, 8),
	.end_mask = BIT(11),
	.signal_mask = BIT(10),
	.types = TYPES_BEFORE_6_4,
	.regs = REGS_BEFORE_7_3,
};

/* 6.4 to 7.2 */
static const struct orc_format format_6_4 = {
	.hash = { 0xfe, 0x5d, 0x32, 0xbf, 0x58, 0x1b, 0xd6, 0x3b, 0x2c, 0xa9,
		  0xa5, 0xc6, 0x5b, 0xa5, 0xa6, 0x25, 0xea, 0xb3, 0xfe, 0x24 },
	.type_mask = GENMASK(10, 8),
	.signal_mask = BIT(11),
	.types = TYPES_SINCE_6_4,
	.regs = REGS_BEFORE_7_3,
};

static const struct orc_format format_7_3 = {
	.hash = { 0x13, 0x7c, 0x36, 0xad, 0x76, 0x27, 0xc4, 0xdd, 0x55, 0x93,
		  0x21, 0x76, 0xbb, 0x0e, 0xcd, 0xbd, 0x50, 0x41, 0xfc, 0x82 },
	.type_mask = GENMASK(10, 8),
	.signal_mask = BIT(11),
	.types = TYPES_SINCE_6_4,
	.regs = REGS_SINCE_7_3,
};

/* Return the last word of an entry: registers, type and flags. */
static u16 orc_entry__flags(const u8 *entry)
{
	return get_unaligned_le16(&entry[4]);
}

/**
 * orc_format__find - find the format of ORC tables
 * @hash:	contents of .orc_header, or NULL if the kernel has none
 * @entries:	contents of .orc_unwind of vmlinux; that of a module may not show the format
 * @nr:		number of entries
 *
 * Return: the format; NULL if it is not known, for a wrong guess would yield wrong frames.
 */
const struct orc_format *orc_format__find(const u8 *hash, const u8 *entries, unsigned int nr)
{
	bool has_type_3 = false;
	unsigned int i;
	u16 flags = 0;

	if (hash && !memcmp(hash, format_7_3.hash, ORC_HASH_SIZE))
		return &format_7_3;
	if (hash && !memcmp(hash, format_6_4.hash, ORC_HASH_SIZE))
		return &format_6_4;
	if (hash)
		return NULL;

	for (i = 0; i < nr; i++) {
		u16 entry = orc_entry__flags(&entries[i * ORC_ENTRY_SIZE]);

		has_type_3 |= (entry & format_6_3.type_mask) == format_6_3.type_mask;
		flags |= entry;
	}
	if (flags & GENMASK(15, 12))
		return NULL;
	/*
	 * A kernel without .orc_header may have the format of 6.4.  Of the formats left, only that
	 * one has type 3.
	 */
	if (has_type_3)
		return &format_6_4;
	return flags & format_6_3.end_mask ? &format_6_3 : &format_4_14;
}

/* An entry, with the numbers of Linux 7.3. */
struct orc_rule {
	s16	sp_offset;
	s16	bp_offset;
	u8	sp_reg;
	u8	bp_reg;
	u8	type;
	bool	signal;
	bool	by_bp;
};

static void orc_rule__read(struct orc_rule *rule, const struct orc_format *format,
			   const u8 *entry)
{
	u16 flags = orc_entry__flags(entry);

	rule->sp_offset = get_unaligned_le16(&entry[0]);
	rule->bp_offset = get_unaligned_le16(&entry[2]);
	rule->sp_reg = format->regs[flags & 15];
	rule->bp_reg = format->regs[(flags >> 4) & 15];
	rule->type = flags & format->end_mask ? ORC_TYPE_END_OF_STACK :
						format->types[(flags & format->type_mask) >> 8];
	/*
	 * Before 5.12, the offset of an indirect SP was that of the pointer, and only entries into
	 * the kernel had one.  The table does not tell the version: refuse these few entries.
	 */
	if (format == &format_4_14 && rule->sp_reg == ORC_REG_SP_INDIRECT &&
	    rule->type != ORC_TYPE_CALL)
		rule->sp_reg = ORC_REG_MAX;
	rule->by_bp = format == &format_4_14 && rule->sp_reg == ORC_REG_BP;
	rule->signal = format->signal_mask ? flags & format->signal_mask :
					     rule->type != ORC_TYPE_CALL;
}

/**
 * orc_entry__ends_section - check whether an entry may end a section
 * @format:	format of the entry
 * @entry:	the entry
 *
 * Return: true if the entry has no rule, as behind the last function of a section.
 */
bool orc_entry__ends_section(const struct orc_format *format, const u8 *entry)
{
	struct orc_rule rule;

	orc_rule__read(&rule, format, entry);
	return rule.sp_reg == ORC_REG_UNDEFINED && rule.type != ORC_TYPE_END_OF_STACK;
}

/* Return the address at which entry @i begins. */
static u64 orc_table__ip(const struct orc_table *table, unsigned int i)
{
	u64 offset = (u64)i * ORC_IP_SIZE;

	return table->addr + offset + (s32)get_unaligned_le32(&table->ips[offset]);
}

/* Find the rule for @ip: that of the last entry that begins at @ip or below it. */
static enum orc_end orc_source__find_rule(const struct orc_source *source, u64 ip,
					  struct orc_rule *rule)
{
	const struct orc_table *table = source->find_table(ip, source->arg);
	unsigned int low = 0, high;

	if (!table || !table->format || !table->nr)
		return ORC_END_NO_TABLE;
	if (ip < orc_table__ip(table, 0) || ip >= table->end)
		return ORC_END_NO_TABLE;

	for (high = table->nr; high - low > 1;) {
		unsigned int middle = low + (high - low) / 2;

		if (orc_table__ip(table, middle) <= ip)
			low = middle;
		else
			high = middle;
	}
	orc_rule__read(rule, table->format, &table->entries[(size_t)low * ORC_ENTRY_SIZE]);
	return ORC_CONTINUE;
}

/*
 * Return the @size bytes at @addr, and the number of the piece that holds them; NULL if none does.
 */
static const u8 *orc_source__find(const struct orc_source *source, u64 addr, u64 size,
				  unsigned int *nr)
{
	unsigned int i;

	for (i = 0; i < source->nr_pieces; i++) {
		const struct orc_piece *piece = &source->pieces[i];

		if (addr >= piece->addr && addr - piece->addr <= piece->size &&
		    size <= piece->size - (addr - piece->addr)) {
			*nr = i;
			return piece->data + (addr - piece->addr);
		}
	}
	return NULL;
}

static enum orc_end orc_source__read(const struct orc_source *source, u64 addr, u64 *word)
{
	unsigned int nr;
	const u8 *data = orc_source__find(source, addr, sizeof(*word), &nr);

	if (!data)
		return ORC_END_NO_STACK;
	*word = get_unaligned_le64(data);
	return ORC_CONTINUE;
}

/*
 * Return true if a rule loads the stack pointer from the stack, as it does where an IRQ has changed
 * stacks.  Before 5.12, such a rule uses BP, and the piece of the interrupted stack begins where BP
 * points.
 */
static bool orc_rule__changes_stack(const struct orc_rule *rule, const struct orc_state *state,
				    const struct orc_piece *piece)
{
	return rule->sp_reg == ORC_REG_SP_INDIRECT || rule->sp_reg == ORC_REG_BP_INDIRECT ||
	       (rule->by_bp && state->bp == piece->addr);
}

/*
 * Find the @size bytes at @addr, which a frame has saved.  They must lie above the frame before, or
 * on the stack that was interrupted.  The walk never goes back, so it has no cycles.
 */
static enum orc_end orc_state__ascend(struct orc_state *state, const struct orc_rule *rule,
				      u64 addr, u64 size, const u8 **saved)
{
	unsigned int nr;

	*saved = orc_source__find(state->source, addr, size, &nr);
	/* The end of the address space is no stack: min_addr must not wrap. */
	if (!*saved || addr + size < addr)
		return ORC_END_NO_STACK;
	if (nr == state->piece ? addr < state->min_addr :
				 nr < state->piece ||
				 !orc_rule__changes_stack(rule, state, &state->source->pieces[nr]))
		return ORC_END_BACKWARDS;

	state->piece = nr;
	state->min_addr = addr + size;
	return ORC_CONTINUE;
}

/*
 * Find the canonical frame address: the caller's SP, or the address at which the registers of the
 * interrupted code are saved.
 */
static enum orc_end orc_state__find_cfa(const struct orc_state *state,
					const struct orc_rule *rule, u64 *cfa)
{
	enum orc_end end;

	switch (rule->sp_reg) {
	case ORC_REG_SP:
		*cfa = state->sp + rule->sp_offset;
		return ORC_CONTINUE;
	case ORC_REG_BP:
		*cfa = state->bp + rule->sp_offset;
		return ORC_CONTINUE;
	case ORC_REG_SP_INDIRECT:
		end = orc_source__read(state->source, state->sp, cfa);
		*cfa += rule->sp_offset;
		return end;
	case ORC_REG_BP_INDIRECT:
		return orc_source__read(state->source, state->bp + rule->sp_offset, cfa);
	case ORC_REG_UNDEFINED:
		return ORC_END_UNDEFINED;
	default:
		return ORC_END_REGISTER;
	}
}

static enum orc_end orc_state__find_bp(const struct orc_state *state, const struct orc_rule *rule,
				       u64 cfa, u64 *bp)
{
	switch (rule->bp_reg) {
	case ORC_REG_UNDEFINED:
		/* BP still has the caller's value, or was saved with the other registers. */
		return ORC_CONTINUE;
	case ORC_REG_PREV_SP:
		return orc_source__read(state->source, cfa + rule->bp_offset, bp);
	case ORC_REG_BP:
		return orc_source__read(state->source, state->bp + rule->bp_offset, bp);
	default:
		return ORC_END_REGISTER;
	}
}

static enum orc_end orc_state__return(struct orc_state *state, const struct orc_rule *rule,
				      u64 cfa)
{
	const u8 *saved;
	enum orc_end end;

	end = orc_state__ascend(state, rule, cfa - sizeof(u64), sizeof(u64), &saved);
	if (end)
		return end;

	state->ip = get_unaligned_le64(saved);
	state->sp = cfa;
	return ORC_CONTINUE;
}

static enum orc_end orc_state__return_from_interrupt(struct orc_state *state,
						     const u8 *frame)
{
	unsigned int nr;

	state->ip = get_unaligned_le64(frame + offsetof(struct iret_frame, ip));
	state->sp = get_unaligned_le64(frame + offsetof(struct iret_frame, sp));
	if ((get_unaligned_le64(frame + offsetof(struct iret_frame, cs)) & 3) == 3)
		return ORC_END_USER;

	/* The CPU pushes this frame below the SP that it saves there, or on another stack. */
	if (!orc_source__find(state->source, state->sp, sizeof(u64), &nr))
		return ORC_CONTINUE;
	if (nr < state->piece || (nr == state->piece && state->sp < state->min_addr))
		return ORC_END_BACKWARDS;

	state->piece = nr;
	state->min_addr = state->sp;
	return ORC_CONTINUE;
}

/* Make @state that of the caller, or of the code that was interrupted. */
static enum orc_end orc_state__unwind(struct orc_state *state)
{
	const struct orc_state callee = *state;
	enum orc_end end, bp_end;
	struct orc_rule rule;
	const u8 *saved;
	u64 cfa;

	/*
	 * A function may end with a call that doesn't return, and the return address is then in the
	 * next function: find the rule for the byte before it.
	 */
	end = orc_source__find_rule(state->source, state->interrupted ? state->ip : state->ip - 1,
				    &rule);
	if (end)
		return end;
	if (rule.type == ORC_TYPE_END_OF_STACK)
		return ORC_END_OUTERMOST;

	end = orc_state__find_cfa(state, &rule, &cfa);
	if (end)
		return end;

	switch (rule.type) {
	case ORC_TYPE_CALL:
		end = orc_state__return(state, &rule, cfa);
		break;
	case ORC_TYPE_REGS:
		end = orc_state__ascend(state, &rule, cfa, sizeof(struct regs_frame),
					&saved);
		if (end)
			return end;
		state->bp = get_unaligned_le64(saved + offsetof(struct regs_frame, bp));
		end = orc_state__return_from_interrupt(state,
						       saved + offsetof(struct regs_frame, iret));
		break;
	case ORC_TYPE_REGS_PARTIAL:
		end = orc_state__ascend(state, &rule, cfa, sizeof(struct iret_frame),
					&saved);
		if (end)
			return end;
		end = orc_state__return_from_interrupt(state, saved);
		break;
	default:
		return ORC_END_UNDEFINED;
	}
	if (end && end != ORC_END_USER)
		return end;

	bp_end = orc_state__find_bp(&callee, &rule, cfa, &state->bp);
	if (bp_end)
		return bp_end;

	state->interrupted = rule.signal;
	return end;
}

/**
 * orc_state__init - begin at the innermost frame
 * @state:	the position
 * @source:	what to unwind
 * @ip:		instruction pointer of the sample, in the kernel
 * @sp:		its stack pointer
 * @bp:		its base pointer
 */
void orc_state__init(struct orc_state *state, const struct orc_source *source, u64 ip, u64 sp,
		     u64 bp)
{
	*state = (struct orc_state) {
		.source = source,
		.ip = ip,
		.sp = sp,
		.bp = bp,
		.min_addr = sp,
		.interrupted = true,
	};
	orc_source__find(source, sp, 0, &state->piece);
}

/**
 * orc_state__next - go to the caller, or to the code that was interrupted
 * @state:	the position; it stays the same unless state->end is ORC_CONTINUE or ORC_END_USER
 *		afterwards
 */
void orc_state__next(struct orc_state *state)
{
	struct orc_state next = *state;

	if (state->end)
		return;

	next.end = orc_state__unwind(&next);
	if (!next.end || next.end == ORC_END_USER)
		*state = next;
	state->end = next.end;
}

static const char *const end_names[NR_ORC_ENDS] = {
	[ORC_CONTINUE]		= "not at its end",
	[ORC_END_USER]		= "user mode",
	[ORC_END_OUTERMOST]	= "outermost frame",
	[ORC_END_NO_TABLE]	= "no ORC table for this address",
	[ORC_END_UNDEFINED]	= "no ORC rule for this address",
	[ORC_END_REGISTER]	= "a register that isn't known",
	[ORC_END_NO_STACK]	= "beyond the stack that was recorded",
	[ORC_END_BACKWARDS]	= "the next frame is not above this one",
	[ORC_END_NO_CALL]	= "no call before a return address",
};

const char *orc_end__name(enum orc_end end)
{
	return end_names[end];
}
