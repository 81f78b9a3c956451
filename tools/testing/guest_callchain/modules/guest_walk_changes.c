// SPDX-License-Identifier: GPL-2.0-only
/*
 * Change a guest's page tables in the middle of a walk of the guest's stack.
 *
 * Each architecture's hooks tell how far a walk has got.  They run in the context of
 * the walk: in the vCPU's thread.  So a change that is otherwise a race with another vCPU
 * happens here each time, at the same step.  Only walks of the thread that has the device
 * open count.  It walks in program order, so compiler barriers are enough.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/sched/task.h>
#include <linux/uaccess.h>

#include "guest_walk_hooks.h"
#include "test_guest_walk.h"

/* The thread that has the device open; and the same thread while its walks count. */
static struct task_struct *user;
static struct task_struct *armed;

static struct guest_walk_change changes[GUEST_WALK_MAX_CHANGES];
static struct guest_walk_result results[GUEST_WALK_MAX_CHANGES];
static unsigned int nr_changes;

/* The current change. */
static unsigned int cur;

/*
 * The current walk: how many pages it has begun to translate, and how many entries it
 * has read.
 */
static u32 table_walks;
static u32 elements;

static bool in_armed_walk(void)
{
	return READ_ONCE(armed) == current && cur < nr_changes && in_task();
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

/* A walk is about to translate a page.  Before its first entry, this is step zero. */
void guest_walk_tables(void)
{
	if (in_armed_walk() && !table_walks++)
		take_step(0);
}

/* A walk has read an entry. */
void guest_walk_element(void)
{
	if (in_armed_walk())
		take_step(++elements);
}

/* A walk of a stack has ended. */
void guest_walk_end(void)
{
	struct guest_walk_result *r;

	if (!in_armed_walk())
		return;

	/* Restore the entry, so that the next walk finds the same as this one. */
	if (changes[cur].addr)
		write_entry(changes[cur].before);

	r = &results[cur];
	r->nr_walks++;
	r->elements += elements;
	r->max_elements = max(r->max_elements, elements);
	r->max_table_walks = max(r->max_table_walks, table_walks);
	table_walks = 0;
	elements = 0;
	if (r->nr_walks == changes[cur].nr_walks)
		cur++;
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

	/* Another thread may close the device while the thread that opened it walks. */
	WRITE_ONCE(armed, NULL);
	guest_walk_hooks_wait();
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
	table_walks = 0;
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
	int r = guest_walk_hooks_register();

	if (r)
		return r;

	r = misc_register(&device);
	if (r)
		guest_walk_hooks_unregister();
	return r;
}

static void __exit test_guest_walk_exit(void)
{
	misc_deregister(&device);
	guest_walk_hooks_unregister();
}

module_init(test_guest_walk_init);
module_exit(test_guest_walk_exit);
MODULE_DESCRIPTION("Changes of guest page tables during walks of guest stacks");
MODULE_LICENSE("GPL");
