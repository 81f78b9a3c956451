/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the callchain of an arm64 guest must be, derived from the architecture's manual, its
 * procedure call standard, and Linux, and shared with no code of KVM.
 */
#ifndef GUEST_CALLCHAIN_ARM64_ORACLE_H
#define GUEST_CALLCHAIN_ARM64_ORACLE_H

#include <linux/types.h>

#define ORACLE_MAX_DEPTH	128

/**
 * struct oracle_vcpu - what of a vCPU's state decides on its callchain
 * @pauth:	it has pointer authentication
 * @pc:		PC
 * @x29:	X29
 * @x24:	X24 to X27, as the entry code of Linux leaves them alone
 * @sp_el0:	SP_EL0
 * @sp_el1:	SP_EL1
 * @elr:	ELR_EL1
 * @spsr:	SPSR_EL1
 * @pstate:	PSTATE, as in an SPSR
 * @sctlr:	SCTLR_EL1
 * @tcr:	TCR_EL1
 * @ttbr:	TTBR0_EL1, and TTBR1_EL1
 */
struct oracle_vcpu {
	bool pauth;
	u64 pc;
	u64 x29;
	u64 x24[4];
	u64 sp_el0;
	u64 sp_el1;
	u64 elr;
	u64 spsr;
	u64 pstate;
	u64 sctlr;
	u64 tcr;
	u64 ttbr[2];
};

/* Read eight bytes, as they are in memory; false if the guest has no memory there. */
typedef bool (*oracle_read_fn)(void *arg, u64 pa, u64 *bytes);

enum oracle_end {
	ORACLE_GOES_ON,
	ORACLE_LAST,
	ORACLE_DEPTH,
	ORACLE_UNALIGNED,
	ORACLE_BACKWARDS,
	ORACLE_NONCANONICAL,
	ORACLE_UNMAPPED,
	ORACLE_NO_MEMORY,
};

struct oracle_chain {
	unsigned int nr;
	unsigned int nr_kernel;
	enum oracle_end end;
	u64 ips[ORACLE_MAX_DEPTH];
};

/* Who may read what an address translates to. */
struct oracle_rights {
	bool el1;
	bool el0;
};

unsigned int oracle_granule_shift(const struct oracle_vcpu *v, bool upper);
unsigned int oracle_va_bits(const struct oracle_vcpu *v, bool upper);
bool oracle_translate(const struct oracle_vcpu *v, oracle_read_fn read, void *arg, u64 va,
		      bool as_el0, u64 *pa, struct oracle_rights *rights);
void oracle_walk(const struct oracle_vcpu *v, oracle_read_fn read, void *arg,
		 unsigned int depth, struct oracle_chain *chain);

#endif /* GUEST_CALLCHAIN_ARM64_ORACLE_H */
