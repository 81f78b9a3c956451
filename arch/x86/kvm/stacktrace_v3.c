// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk the stack of a guest as the series of 2023 did, rebuilt from what is
 * known of its design: each word is read by kvm_read_guest_virt(), on its own,
 * and whatever it holds is followed.  For benchmarks, and for tests of tests.
 */
#include <linux/kvm_host.h>
#include <linux/moduleparam.h>
#include <linux/perf_event.h>

#include "regs.h"
#include "x86.h"

module_param_named(stack_walk_v3, perf_guest_walk_v3, bool, 0644);

static bool read_word(struct kvm_vcpu *vcpu, u64 gva, u64 *word, unsigned int size)
{
	struct x86_exception e;

	*word = 0;
	return kvm_read_guest_virt(vcpu, gva, word, size, &e) == X86EMUL_CONTINUE;
}

/* Called in PMIs.  It did not disable page faults. */
unsigned int kvm_arch_vcpu_stack_walk_v3(struct kvm_vcpu *vcpu, u64 *ips, unsigned int max)
{
	unsigned int size = is_64_bit_mode(vcpu) ? 8 : 4, nr;
	u64 cs_base = 0, ss_base = 0, fp = kvm_rbp_read(vcpu), next_fp, ra;

	if (size == 4) {
		cs_base = kvm_get_segment_base(vcpu, VCPU_SREG_CS);
		ss_base = kvm_get_segment_base(vcpu, VCPU_SREG_SS);
	}

	for (nr = 0; nr < max && fp; nr++) {
		if (!read_word(vcpu, ss_base + fp, &next_fp, size) ||
		    !read_word(vcpu, ss_base + fp + size, &ra, size) ||
		    !ra || cs_base + ra >= PERF_CONTEXT_MAX)
			break;

		ips[nr] = cs_base + ra;
		fp = next_fp;
	}

	return nr;
}
