// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hooks into arm64's walks of guests' stacks.  Its page-table walk has no tracepoints: probe
 * KVM's functions.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>

#include "guest_walk_hooks.h"

static int before_tables(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	guest_walk_tables();
	/* The return doesn't matter. */
	return 1;
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
	guest_walk_end();
	return 0;
}

static struct kretprobe tables_probe = {
	.kp.symbol_name	= "kvm_arch_vcpu_peek_gva",
	.entry_handler	= before_tables,
};

/* Only walks of the guest's page tables call this function, to read an entry. */
static struct kretprobe element_probe = {
	.kp.symbol_name	= "kvm_peek_guest",
	.handler	= after_element,
};

static struct kretprobe walk_probe = {
	.kp.symbol_name	= "kvm_arch_vcpu_stack_walk",
	.handler	= after_walk,
};

static struct kretprobe *probes[] = { &tables_probe, &element_probe, &walk_probe };

int guest_walk_hooks_register(void)
{
	return register_kretprobes(probes, ARRAY_SIZE(probes));
}

void guest_walk_hooks_unregister(void)
{
	unregister_kretprobes(probes, ARRAY_SIZE(probes));
	if (tables_probe.nmissed || element_probe.nmissed || walk_probe.nmissed)
		pr_warn("%d translations, %d reads and %d walks were not seen\n",
			tables_probe.nmissed, element_probe.nmissed, walk_probe.nmissed);
}

void guest_walk_hooks_wait(void)
{
	/* Handlers run with preemption disabled. */
	synchronize_rcu();
}
