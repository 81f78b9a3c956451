/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ARCH_X86_KVM_STACKTRACE_H
#define ARCH_X86_KVM_STACKTRACE_H

/* Reasons why a walk of a guest's stack ended, in the order of struct kvm_vcpu_stat. */
enum guest_unwind_end {
	UNWIND_CONTINUE,
	UNWIND_END_LAST,	/* the outermost frame: it has no return address */
	UNWIND_END_DEPTH,	/* perf takes no more entries, or not this one */
	UNWIND_END_UNALIGNED,	/* an unaligned frame pointer, or implausible saved registers */
	UNWIND_END_BACKWARDS,	/* not a frame pointer, another stack, or a cycle */
	UNWIND_END_NONCANONICAL, /* an address that isn't canonical, or not user mode's */
	UNWIND_END_UNMAPPED,	/* the guest can't read there, or its tables aren't at hand */
	UNWIND_END_NO_MEMORY,	/* no memslot, private memory, or memory that isn't at hand */
};

#endif /* ARCH_X86_KVM_STACKTRACE_H */
