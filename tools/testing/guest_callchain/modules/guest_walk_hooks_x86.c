// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hooks into x86's walks of guests' stacks: KVM's tracepoints.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kvm_host.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/tracepoint.h>

#include "guest_walk_hooks.h"

/*
 * Walks of a stack run with preemption disabled.  If KVM shadows the guest's page tables, it also
 * walks these at the guest's page faults, but with preemption enabled.
 */
static void probe_pagetable_walk(void *data, u64 addr, u32 pferr)
{
	if (!preemptible())
		guest_walk_tables();
}

static void probe_paging_element(void *data, u64 pte, int level)
{
	if (!preemptible())
		guest_walk_element();
}

static void probe_stack_walk(void *data, unsigned int vcpu_id, unsigned int nr, u64 end)
{
	guest_walk_end();
}

static const struct {
	const char *name;
	void *probe;
} probes[] = {
	{ "kvm_mmu_pagetable_walk",	probe_pagetable_walk },
	{ "kvm_mmu_paging_element",	probe_paging_element },
	{ "kvm_stack_walk",		probe_stack_walk },
};

static void connect(struct tracepoint *tp, bool coming)
{
	int i, r;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (strcmp(tp->name, probes[i].name))
			continue;

		if (coming)
			r = tracepoint_probe_register(tp, probes[i].probe, NULL);
		else
			r = tracepoint_probe_unregister(tp, probes[i].probe, NULL);
		if (r)
			pr_err("%s: %d\n", tp->name, r);
	}
}

static int module_notify(struct notifier_block *nb, unsigned long state, void *data)
{
	struct tp_module *tp_mod = data;
	struct module *mod = tp_mod->mod;
	int i;

	if (state == MODULE_STATE_COMING || state == MODULE_STATE_GOING)
		for (i = 0; i < mod->num_tracepoints; i++)
			connect(tracepoint_ptr_deref(&mod->tracepoints_ptrs[i]),
				state == MODULE_STATE_COMING);

	return NOTIFY_OK;
}

/*
 * Registration also calls this with MODULE_STATE_COMING for each loaded module with tracepoints.
 * Unregistration calls it with MODULE_STATE_GOING for each of them.
 */
static struct notifier_block module_nb = {
	.notifier_call = module_notify,
};

/* If KVM is built in, its tracepoints are among the kernel's own. */
static void connect_kernel(struct tracepoint *tp, void *coming)
{
	connect(tp, coming);
}

int guest_walk_hooks_register(void)
{
	int r = register_tracepoint_module_notifier(&module_nb);

	if (r)
		return r;
	for_each_kernel_tracepoint(connect_kernel, &module_nb);
	return 0;
}

void guest_walk_hooks_unregister(void)
{
	for_each_kernel_tracepoint(connect_kernel, NULL);
	unregister_tracepoint_module_notifier(&module_nb);
	tracepoint_synchronize_unregister();
}

void guest_walk_hooks_wait(void)
{
	tracepoint_synchronize_unregister();
}
