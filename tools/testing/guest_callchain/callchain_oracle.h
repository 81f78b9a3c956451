/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Compute the callchain that a guest must have.  The code follows the architecture's
 * manuals, and shares nothing with KVM's code.
 */
#ifndef SELFTEST_KVM_CALLCHAIN_ORACLE_H
#define SELFTEST_KVM_CALLCHAIN_ORACLE_H

#include <linux/types.h>

#define ORACLE_MAX_DEPTH	128

/**
 * struct oracle_vcpu - the parts of a vCPU's state that determine its callchain
 * @cpl:	privilege level, 0 to 3
 * @amd:	the CPU follows AMD's manual where Intel's differs
 * @lma:	EFER.LMA
 * @nxe:	EFER.NXE
 * @cs_l:	CS.L
 * @cs_d:	CS.D
 * @pg:		CR0.PG
 * @pse:	CR4.PSE
 * @pae:	CR4.PAE
 * @la57:	CR4.LA57
 * @smap:	CR4.SMAP
 * @pke:	CR4.PKE
 * @ac:		RFLAGS.AC
 * @gbpages:	CPUID reports 1 GiB pages
 * @maxphyaddr:	width of physical addresses
 * @pse36_bits:	width of the physical addresses of 4 MiB pages; the manuals say 40
 * @pkru:	PKRU
 * @cs_base:	base of CS, as it is in the descriptor
 * @ss_base:	base of SS
 * @rip:	RIP
 * @rsp:	RSP
 * @rbp:	RBP
 * @cr3:	CR3
 */
struct oracle_vcpu {
	u8 cpl;
	bool amd;
	bool lma;
	bool nxe;
	bool cs_l;
	bool cs_d;
	bool pg;
	bool pse;
	bool pae;
	bool la57;
	bool smap;
	bool pke;
	bool ac;
	bool gbpages;
	u8 maxphyaddr;
	u8 pse36_bits;
	u32 pkru;
	u64 cs_base;
	u64 ss_base;
	u64 rip;
	u64 rsp;
	u64 rbp;
	u64 cr3;
};

/* Read an aligned word of 2, 4 or 8 bytes; return false if the guest has no memory at @gpa. */
typedef bool (*oracle_read_fn)(void *arg, u64 gpa, unsigned int size, u64 *word);

struct oracle_chain {
	unsigned int nr;
	u64 ips[ORACLE_MAX_DEPTH];
};

bool oracle_translate(const struct oracle_vcpu *vcpu, oracle_read_fn read, void *arg,
		      u64 gva, bool user, u64 *gpa);
bool oracle_is_canonical(const struct oracle_vcpu *v, u64 la);
u64 oracle_ip(const struct oracle_vcpu *v);
void oracle_walk(const struct oracle_vcpu *vcpu, oracle_read_fn read, void *arg,
		 unsigned int max, struct oracle_chain *chain);

#endif /* SELFTEST_KVM_CALLCHAIN_ORACLE_H */
