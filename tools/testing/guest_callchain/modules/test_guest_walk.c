// SPDX-License-Identifier: GPL-2.0-only
/*
 * Change a guest's page tables in the middle of a walk of the guest's stack.
 *
 * KVM's tracepoints tell how far a walk has got, and probes run right there, in
 * the PMI, or in the thread where the PMI puts the walk off.  So what is a race with
 * another vCPU elsewhere always happens here, and always at the same place.  Only
 * the thread that has the device open counts, and its PMIs: to these, what that
 * thread wrote is in order by itself.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kvm_host.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/task.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>

#include "test_guest_walk.h"

/* The thread that has the device open, and the same while its PMIs count. */
static struct task_struct *user;
static struct task_struct *armed;

static struct guest_walk_change changes[GUEST_WALK_MAX_CHANGES];
static struct guest_walk_result results[GUEST_WALK_MAX_CHANGES];
static unsigned int nr_changes;

/* The current change. */
static unsigned int cur;

/* The current walk: did it translate anything, and how many entries were read? */
static bool begun;
static u32 elements;

static bool in_armed_walk(void)
{
	return READ_ONCE(armed) == current && cur < nr_changes &&
	       in_task() == !!changes[cur].deferred;
}

/*
 * If KVM shadows the guest's page tables, the guest's page faults walk these as well,
 * but with the host's page faults enabled.
 */
static bool in_armed_table_walk(void)
{
	return in_armed_walk() && pagefault_disabled();
}

static bool write_entry(u64 value)
{
	if (!copy_to_user_nofault(u64_to_user_ptr(changes[cur].addr), &value, sizeof(value)))
		return true;

	results[cur].failures++;
	return false;
}

static void take_step(u32 step)
{
	const struct guest_walk_change *c = &changes[cur];

	if (!c->addr || step < c->step || (!c->flip && step > c->step))
		return;

	if (write_entry((step - c->step) & 1 ? c->before : c->after))
		results[cur].changes++;
}

static void probe_pagetable_walk(void *data, u64 addr, u32 pferr)
{
	if (!in_armed_table_walk() || begun)
		return;

	begun = true;
	take_step(0);
}

static void probe_paging_element(void *data, u64 pte, int level)
{
	if (in_armed_table_walk())
		take_step(++elements);
}

static void probe_stack_walk(void *data, unsigned int vcpu_id, unsigned int frames,
			     unsigned int reads, unsigned int walks, int end)
{
	struct guest_walk_result *r;

	if (!in_armed_walk())
		return;

	/* The next walk is to find what this one found. */
	if (changes[cur].addr)
		write_entry(changes[cur].before);

	r = &results[cur];
	r->nr_walks++;
	r->elements += elements;
	r->max_elements = max(r->max_elements, elements);
	r->max_reads = max(r->max_reads, reads);
	r->max_table_walks = max(r->max_table_walks, walks);
	begun = false;
	elements = 0;
	if (r->nr_walks == changes[cur].nr_walks)
		cur++;
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

/* It is called for modules that are loaded already, too; and again on unregistration. */
static struct notifier_block module_nb = {
	.notifier_call = module_notify,
};

/* KVM may be built in. */
static void connect_kernel(struct tracepoint *tp, void *coming)
{
	connect(tp, coming);
}

static int device_open(struct inode *inode, struct file *file)
{
	if (cmpxchg(&user, NULL, current))
		return -EBUSY;

	get_task_struct(current);
	return 0;
}

static int device_release(struct inode *inode, struct file *file)
{
	struct task_struct *task = user;

	/* Another thread may be the one that closes, while a PMI hits the first. */
	WRITE_ONCE(armed, NULL);
	tracepoint_synchronize_unregister();
	xchg(&user, NULL);
	put_task_struct(task);
	return 0;
}

static ssize_t device_read(struct file *file, char __user *buf, size_t count, loff_t *ppos)
{
	if (current != user)
		return -EPERM;
	if (count != nr_changes * sizeof(results[0]))
		return -EINVAL;

	return copy_to_user(buf, results, count) ? -EFAULT : count;
}

static ssize_t device_write(struct file *file, const char __user *buf, size_t count,
			    loff_t *ppos)
{
	if (current != user)
		return -EPERM;
	if (count > sizeof(changes) || count % sizeof(changes[0]))
		return -EINVAL;

	WRITE_ONCE(armed, NULL);
	barrier();
	if (copy_from_user(changes, buf, count))
		return -EFAULT;
	memset(results, 0, sizeof(results));
	nr_changes = count / sizeof(changes[0]);
	cur = 0;
	begun = false;
	elements = 0;
	barrier();
	WRITE_ONCE(armed, current);
	return count;
}

static const struct file_operations device_fops = {
	.owner		= THIS_MODULE,
	.open		= device_open,
	.release	= device_release,
	.read		= device_read,
	.write		= device_write,
};

static struct miscdevice device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "test_guest_walk",
	.fops	= &device_fops,
};

static int __init test_guest_walk_init(void)
{
	int r = register_tracepoint_module_notifier(&module_nb);

	if (r)
		return r;
	for_each_kernel_tracepoint(connect_kernel, &device);

	r = misc_register(&device);
	if (!r)
		return 0;

	for_each_kernel_tracepoint(connect_kernel, NULL);
	unregister_tracepoint_module_notifier(&module_nb);
	tracepoint_synchronize_unregister();
	return r;
}

static void __exit test_guest_walk_exit(void)
{
	misc_deregister(&device);
	for_each_kernel_tracepoint(connect_kernel, NULL);
	unregister_tracepoint_module_notifier(&module_nb);
	tracepoint_synchronize_unregister();
}

module_init(test_guest_walk_init);
module_exit(test_guest_walk_exit);
MODULE_DESCRIPTION("Changes of guest page tables during walks of guest stacks");
MODULE_LICENSE("GPL");
