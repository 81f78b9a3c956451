// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk the stack of a guest as the series of 2023 did, rebuilt from what is
 * known of its design: each word is read by kvm_read_guest_virt(), on its own,
 * and whatever it holds is followed.  For benchmarks, and for tests of tests.
 */
#include <linux/kvm_host.h>
#include <linux/perf_event.h>

#include "regs.h"
#include "x86.h"

bool __read_mostly kvm_stack_walk_v3;

static bool read_word(struct kvm_vcpu *vcpu, u64 gva, u64 *word, unsigned int size)
{
	struct x86_exception e;

	*word = 0;
	return kvm_read_guest_virt(vcpu, gva, word, size, &e) == X86EMUL_CONTINUE;
}

unsigned int kvm_arch_vcpu_stack_walk_v3(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max,
					 unsigned int *nr_kernel)
{
	unsigned int size = is_64_bit_mode(vcpu) ? 8 : 4;
	u64 fp = kvm_rbp_read(vcpu), ip = kvm_rip_read(vcpu);
	bool user = kvm_x86_call(get_cpl)(vcpu) != 0;
	u64 cs_base = 0, ss_base = 0, next_fp;
	u64 *end = &vcpu->stat.callchain_end_depth;
	unsigned int nr = 0;

	if (size == 4) {
		cs_base = kvm_get_segment_base(vcpu, VCPU_SREG_CS);
		ss_base = kvm_get_segment_base(vcpu, VCPU_SREG_SS);
		ip += cs_base;
	}

	/* It did not disable page faults. */
	while (nr < max && ip < PERF_CONTEXT_MAX) {
		ips[nr++] = ip;
		end = &vcpu->stat.callchain_end_unmapped;
		if (!fp || !read_word(vcpu, ss_base + fp, &next_fp, size) ||
		    !read_word(vcpu, ss_base + fp + size, &ip, size) || !ip) {
			if (!fp || !ip)
				end = &vcpu->stat.callchain_end_last;
			break;
		}
		fp = next_fp;
		ip += cs_base;
		end = &vcpu->stat.callchain_end_depth;
	}

	vcpu->stat.callchain_walks++;
	vcpu->stat.callchain_frames += nr;
	++*end;
	*nr_kernel = user ? 0 : nr;
	return nr;
}
