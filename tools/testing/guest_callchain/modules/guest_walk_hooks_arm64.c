// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hooks into arm64's walks of guests' stacks.  There are no tracepoints: probe KVM's functions.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>

#include "guest_walk_hooks.h"

static int before_element(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	guest_walk_tables();
	return 0;
}

static int after_element(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	/* If the read failed, no entry was read. */
	if (!(int)regs_return_value(regs))
		guest_walk_element();
	return 0;
}

static int after_walk(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	guest_walk_end(0, 0);
	return 0;
}

/* Only walks of the guest's page tables call this function, to read an entry. */
static struct kretprobe element_probe = {
	.kp.symbol_name	= "kvm_peek_guest",
	.entry_handler	= before_element,
	.handler	= after_element,
};

static struct kretprobe walk_probe = {
	.kp.symbol_name	= "kvm_arch_vcpu_stack_walk",
	.handler	= after_walk,
};

static struct kretprobe *probes[] = { &element_probe, &walk_probe };

int guest_walk_hooks_register(void)
{
	return register_kretprobes(probes, ARRAY_SIZE(probes));
}

void guest_walk_hooks_unregister(void)
{
	unregister_kretprobes(probes, ARRAY_SIZE(probes));
	if (element_probe.nmissed || walk_probe.nmissed)
		pr_warn("%d reads and %d walks were not seen\n", element_probe.nmissed,
			walk_probe.nmissed);
}

void guest_walk_hooks_wait(void)
{
	/* Handlers run with preemption disabled. */
	synchronize_rcu();
}
