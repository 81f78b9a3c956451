/* SPDX-License-Identifier: GPL-2.0-only */
#include <linux/kvm_host.h>

/* The end of a walk; see fuzz_guest.c. */
void trace_kvm_stack_walk(unsigned int vcpu_id, unsigned int nr, u64 end);
