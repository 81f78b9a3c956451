/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_READS_H
#define __PERF_GUEST_READS_H

#include <stdbool.h>
#include <sys/types.h>
#include <linux/types.h>

struct callchain_param;
struct evlist;
struct guest_kernel;
struct perf_guest_reads;

/**
 * enum guest_read_slot - what perf reads of a guest, in the order of PERF_RECORD_GUEST_READ
 * @GUEST_READ_STACK:		the stack of the guest's kernel, from SP up
 * @GUEST_READ_INTERRUPTED:	if that is the stack of an IRQ, the stack that the IRQ interrupted
 * @GUEST_READ_USER_REGS:	user mode's registers, at the end of the task's kernel stack
 * @GUEST_READ_USER_STACK:	user mode's stack, from the SP in these registers up
 * @GUEST_READ_CURRENT_STACK:	user mode's stack, from SP up, if user mode was sampled
 * @GUEST_READ_PIDS:		pid and tgid of the current task
 * @GUEST_READ_COMM:		its comm
 * @GUEST_READ_CGROUP:		the id of its cgroup
 * @NR_GUEST_READ_SLOTS:	number of slots
 *
 * Data files have these numbers: don't change what they mean.  What perf can't read of a guest
 * leaves its slot empty.
 */
enum guest_read_slot {
	GUEST_READ_STACK,
	GUEST_READ_INTERRUPTED,
	GUEST_READ_USER_REGS,
	GUEST_READ_USER_STACK,
	GUEST_READ_CURRENT_STACK,
	GUEST_READ_PIDS,
	GUEST_READ_COMM,
	GUEST_READ_CGROUP,
	NR_GUEST_READ_SLOTS,
};

/* The size of a guest's struct pt_regs, and the offset of SP in it. */
#define GUEST_PT_REGS_SIZE	168
#define GUEST_PT_REGS_SP	152

/* Of arm64's, which are larger in some versions: up to the number of the system call. */
#define GUEST_ARM64_PT_REGS_SIZE 288
#define GUEST_ARM64_PT_REGS_SP	248

/* TASK_COMM_LEN */
#define GUEST_COMM_SIZE		16

const char *guest_read_slot__name(unsigned int slot);
bool guest_reads__are_wanted(const struct callchain_param *param);
void guest_reads__describe(struct perf_guest_reads *reads, struct guest_kernel *kernel);
void guest_reads__set_size(struct perf_guest_reads *reads, u32 size);
void guest_reads__note(pid_t pid, const struct perf_guest_reads *reads, bool known);
void guest_reads__begin(struct evlist *evlist);
void guest_reads__end(void);
void guest_reads__refuse(const char *why);
bool guest_reads__are_refused(void);

#endif /* __PERF_GUEST_READS_H */
