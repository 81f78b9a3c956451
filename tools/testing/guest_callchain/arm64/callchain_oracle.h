/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Compute the callchain that an arm64 guest must have.  Derived from the architecture's manual
 * and its procedure call standard.  Shares no code with KVM.
 */
#ifndef GUEST_CALLCHAIN_ARM64_ORACLE_H
#define GUEST_CALLCHAIN_ARM64_ORACLE_H

#include <linux/types.h>

#define ORACLE_MAX_DEPTH	128

/**
 * struct oracle_vcpu - the parts of a vCPU's state that its callchain depends on
 * @pauth:	the vCPU has pointer authentication
 * @pc:		PC
 * @x29:	X29
 * @sp_el0:	SP_EL0
 * @sp_el1:	SP_EL1
 * @pstate:	PSTATE, in the format of SPSR_EL1
 * @sctlr:	SCTLR_EL1
 * @tcr:	TCR_EL1
 * @ttbr:	TTBR0_EL1, and TTBR1_EL1
 */
struct oracle_vcpu {
	bool pauth;
	u64 pc;
	u64 x29;
	u64 sp_el0;
	u64 sp_el1;
	u64 pstate;
	u64 sctlr;
	u64 tcr;
	u64 ttbr[2];
};

/* Read eight bytes at @pa without swapping them; return false if the guest has no memory there. */
typedef bool (*oracle_read_fn)(void *arg, u64 pa, u64 *bytes);

struct oracle_chain {
	unsigned int nr;
	u64 ips[ORACLE_MAX_DEPTH];
};

/* Who may read at an address. */
struct oracle_rights {
	bool el1;
	bool el0;
};

unsigned int oracle_granule_shift(const struct oracle_vcpu *v, bool upper);
unsigned int oracle_va_bits(const struct oracle_vcpu *v, bool upper);
bool oracle_is_canonical(const struct oracle_vcpu *v, u64 va);
u64 oracle_sp(const struct oracle_vcpu *v);
u64 oracle_untagged(const struct oracle_vcpu *v, u64 va);
bool oracle_translate(const struct oracle_vcpu *v, oracle_read_fn read, void *arg, u64 va,
		      bool as_el0, u64 *pa, struct oracle_rights *rights);
bool oracle_may_read(const struct oracle_vcpu *v, bool el0, const struct oracle_rights *rights);
void oracle_walk(const struct oracle_vcpu *v, oracle_read_fn read, void *arg,
		 unsigned int max, struct oracle_chain *chain);

#endif /* GUEST_CALLCHAIN_ARM64_ORACLE_H */
