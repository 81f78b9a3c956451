/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_UNWIND_ORC_H
#define __PERF_UNWIND_ORC_H

#include <stdbool.h>
#include <linux/types.h>

/*
 * Unwind the stack of an x86-64 Linux kernel with its ORC tables, from outside the kernel.  The
 * registers and the pieces of the stack are those of a sample; the tables come from the kernel's
 * file or from its memory.
 */

#define ORC_IP_SIZE	4
#define ORC_ENTRY_SIZE	6
#define ORC_HASH_SIZE	20

struct orc_format;

/**
 * struct orc_table - how to unwind the functions of a kernel, or of one of its modules
 * @format:	format of @entries, see orc_format__find()
 * @addr:	address of .orc_unwind_ip in the guest; the module's start if perf relocated @ips
 * @ips:	contents of .orc_unwind_ip, little-endian: the address of each entry, relative to
 *		the word itself.  They are relocated and sorted, as in vmlinux; the kernel sorts
 *		those of a module when it loads it.
 * @entries:	contents of .orc_unwind, little-endian, in the same order
 * @nr:		number of entries
 * @end:	end of the code that the table describes
 */
struct orc_table {
	const struct orc_format	*format;
	u64			addr;
	const u8		*ips;
	const u8		*entries;
	unsigned int		nr;
	u64			end;
};

/**
 * struct orc_piece - a part of a stack at the time of the sample
 * @addr:	its first address
 * @size:	size in bytes; the last byte lies below 2^64
 * @data:	contents, little-endian
 */
struct orc_piece {
	u64		addr;
	u64		size;
	const u8	*data;
};

/**
 * struct orc_source - what to unwind
 * @find_table:	returns the table for an address, or NULL
 * @arg:	argument of @find_table
 * @pieces:	one piece of each stack, first that of the sample's SP, then those of the stacks
 *		that were interrupted, in this order; pieces don't overlap
 * @nr_pieces:	number of pieces
 */
struct orc_source {
	const struct orc_table	*(*find_table)(u64 ip, void *arg);
	void			*arg;
	const struct orc_piece	*pieces;
	unsigned int		nr_pieces;
};

/**
 * enum orc_end - why there are no more frames
 * @ORC_CONTINUE:	there may be more
 * @ORC_END_USER:	user mode comes next; the state has its registers
 * @ORC_END_OUTERMOST:	the table marks the outermost frame of a thread, or of the boot
 * @ORC_END_NO_TABLE:	no table has the address of the last frame, which may be no code at all
 * @ORC_END_UNDEFINED:	the table has no rule for the address
 * @ORC_END_REGISTER:	the rule uses a register that isn't known
 * @ORC_END_NO_STACK:	a saved word lies on no piece
 * @ORC_END_BACKWARDS:	the next frame does not lie above this one
 * @ORC_END_NO_CALL:	no call precedes the return address; only callers that have the code set
 *		this
 */
enum orc_end {
	ORC_CONTINUE,
	ORC_END_USER,
	ORC_END_OUTERMOST,
	ORC_END_NO_TABLE,
	ORC_END_UNDEFINED,
	ORC_END_REGISTER,
	ORC_END_NO_STACK,
	ORC_END_BACKWARDS,
	ORC_END_NO_CALL,
	NR_ORC_ENDS,
};

/**
 * struct orc_state - a position on the stack
 * @source:	what is unwound
 * @ip:		instruction pointer
 * @sp:		stack pointer
 * @bp:		base pointer
 * @interrupted: true if @ip is the instruction that was interrupted, not a return address
 * @piece:	number of the piece that the walk has reached
 * @min_addr:	lowest address on that piece at which the next frame may lie
 * @end:	why the walk has ended; ORC_CONTINUE if it has not
 */
struct orc_state {
	const struct orc_source	*source;
	u64			ip;
	u64			sp;
	u64			bp;
	bool			interrupted;
	unsigned int		piece;
	u64			min_addr;
	enum orc_end		end;
};

const struct orc_format *orc_format__find(const u8 *hash, const u8 *entries, unsigned int nr);
bool orc_entry__ends_section(const struct orc_format *format, const u8 *entry);
void orc_state__init(struct orc_state *state, const struct orc_source *source, u64 ip, u64 sp,
		     u64 bp);
void orc_state__next(struct orc_state *state);
const char *orc_end__name(enum orc_end end);

/* Go through the frames of the kernel, innermost first; state->ip is the address of each frame. */
#define orc_state__for_each_frame(state, source, ip, sp, bp) \
	for (orc_state__init(state, source, ip, sp, bp); !(state)->end; orc_state__next(state))

#endif /* __PERF_UNWIND_ORC_H */
