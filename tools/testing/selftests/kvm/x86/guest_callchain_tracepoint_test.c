// SPDX-License-Identifier: GPL-2.0-only
/*
 * Samples of tracepoints that hit while KVM runs a guest, but in no PMI's context: right after the
 * exit, in softirqs, and while a backtrace of the host walks the guest's stack.  On other
 * architectures, such samples count otherwise: those after the exit as the host's, and those in
 * softirqs as the guest's.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_SAMPLES	25
#define NR_FRAMES	4

#define TRACEFS		"/sys/kernel/tracing"
#define SYSRQ		"/proc/sysrq-trigger"

/* How many backtraces must find the CPU in the guest, of how many at most. */
#define NR_BACKTRACES	5
#define MAX_BACKTRACES	50

/* Not the host's PKRU, which denies all keys but the first. */
#define GUEST_PKRU	0x4
#define EXIT_PORT	0x10

FIXTURE(tracepoint)
{
	struct kvm_vcpu *vcpu;
	struct guest_stack stack;
	struct kvm_vm *vm;
};

FIXTURE_VARIANT(tracepoint)
{
	enum pmi_source source;
};

FIXTURE_VARIANT_ADD(tracepoint, immediate)
{
	.source = PMI_ATTR,
};

FIXTURE_VARIANT_ADD(tracepoint, deferred)
{
	.source = PMI_ATTR | PMI_DEFERRED,
};

FIXTURE_SETUP(tracepoint)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100 };

	SKIP_UNLESS_PMI(PMI_IRQ);
	/* Mount tracefs in a mount namespace of this test, where others don't see it. */
	if (access(TRACEFS "/events", F_OK) &&
	    (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	     mount("tracefs", TRACEFS, "tracefs", 0, NULL)))
		SKIP(return, "Can't mount %s: %s", TRACEFS, strerror(errno));

	self->vm = vm_create_sampled(1, guest_loop, &self->vcpu);
	guest_stack_build_and_use(self->vcpu, &self->stack, &layout, false);
}

FIXTURE_TEARDOWN(tracepoint)
{
	kvm_vm_free(self->vm);
}

static void count_guest_ip(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr = arg;

	if (!callchain_sample_is_guest(s))
		return;

	TEST_ASSERT(s->nr == 2 && s->ips[0] == (u64)PERF_CONTEXT_GUEST_KERNEL &&
		    s->ips[1] == (u64)guest_loop,
		    "A sample has %lu entries, not a marker and the guest's IP", s->nr);
	++*nr;
}

/*
 * When KVM enables IRQs to handle the one that has ended guest mode, the tracepoint hits in task
 * context.  Its sample is the guest's, but the walk must not sleep.  Make it look for a stack
 * that is not in memory.
 */
CALLCHAIN_TEST(tracepoint, irq_enable)
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.config = read_number(TRACEFS "/events/preemptirq/irq_enable/id"),
		.sample_period = 20,
		.wakeup_events = NR_SAMPLES,
	};
	struct callchain_event event;
	unsigned int nr = 0;

	if ((int)attr.config < 0)
		SKIP(return, "There is no preemptirq:irq_enable, CONFIG_PREEMPTIRQ_TRACEPOINTS");

	TEST_ASSERT(!madvise(addr_gva2hva(self->vm, self->stack.gva),
			     self->stack.nr_pages * PAGE_SIZE, MADV_DONTNEED), "MADV_DONTNEED");
	callchain_event_start(&event, variant->source, &attr, 0, -1);
	while (nr < NR_SAMPLES) {
		vcpu_run_until_sampled(self->vcpu, &event, 0);
		callchain_event_read(&event, count_guest_ip, &nr);
	}
	callchain_event_close(&event);
}

static void is_of_the_host(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr = arg;

	TEST_ASSERT(s->cpumode == PERF_RECORD_MISC_KERNEL && s->ip != (u64)guest_loop &&
		    s->nr && s->ips[0] == (u64)PERF_CONTEXT_KERNEL,
		    "A softirq's sample has cpumode %u, IP 0x%lx, %lu entries, from 0x%lx",
		    s->cpumode, s->ip, s->nr, s->nr ? s->ips[0] : 0);
	++*nr;
}

/* Softirqs that follow an IRQ which has ended guest mode are the host's. */
CALLCHAIN_TEST(tracepoint, softirq)
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.config = read_number(TRACEFS "/events/irq/softirq_entry/id"),
		.sample_period = 1,
		.wakeup_events = NR_SAMPLES,
	};
	struct callchain_event event;
	unsigned int nr = 0;

	TEST_ASSERT((int)attr.config >= 0, "There is no irq:softirq_entry");
	callchain_event_start(&event, variant->source, &attr, 0, -1);
	while (nr < NR_SAMPLES) {
		vcpu_run_until_sampled(self->vcpu, &event, 0);
		callchain_event_read(&event, is_of_the_host, &nr);
	}
	callchain_event_close(&event);
}

/* Set PKRU to EDI, then compare the two until they differ, and exit. */
void guest_check_pkru(void);
asm(".pushsection .text\n"
    ".balign 64\n"
    ".global guest_check_pkru\n"
    "guest_check_pkru:\n"
    "	xor	%ecx, %ecx\n"
    "	xor	%edx, %edx\n"
    "	mov	%edi, %eax\n"
    "	wrpkru\n"
    "1:	rdpkru\n"
    "	cmp	%edi, %eax\n"
    "	je	1b\n"
    "	out	%al, $" __stringify(EXIT_PORT) "\n"
    ".popsection");

struct pkru_guest {
	struct kvm_vcpu *vcpu;
	int cpu;		/* on which it runs */
	pid_t tid;		/* of the thread that runs it; zero until it runs */
	bool stop;
	bool changed;
};

static void no_action(int sig)
{
}

static void *run_pkru_guest(void *arg)
{
	struct pkru_guest *g = arg;

	pin_self_to_cpu(g->cpu);
	WRITE_ONCE(g->tid, syscall(SYS_gettid));
	while (!READ_ONCE(g->stop) && !g->changed) {
		__vcpu_run(g->vcpu);
		g->changed = g->vcpu->run->exit_reason == KVM_EXIT_IO;
	}
	return NULL;
}

static void start_pkru_guest(struct pkru_guest *g, pthread_t *thread)
{
	const struct sigaction action = { .sa_handler = no_action };
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	vcpu_sregs_get(g->vcpu, &sregs);
	sregs.cr4 |= X86_CR4_PKE;
	vcpu_sregs_set(g->vcpu, &sregs);
	vcpu_regs_get(g->vcpu, &regs);
	regs.rip = (u64)guest_check_pkru;
	regs.rdi = GUEST_PKRU;
	vcpu_regs_set(g->vcpu, &regs);

	TEST_ASSERT(!sigaction(SIGUSR1, &action, NULL), "sigaction(): %s", strerror(errno));
	TEST_ASSERT(!pthread_create(thread, NULL, run_pkru_guest, g), "pthread_create()");
	while (!READ_ONCE(g->tid) || !vcpu_get_stat(g->vcpu, exits))
		usleep(1000);
}

/*
 * A backtrace walks the guest's stack in an NMI, with the host's PKRU.  The walk hits a tracepoint
 * whose event asks for the guest's callchain.  A second walk would lose the guest's PKRU.
 */
CALLCHAIN_TEST(tracepoint, backtrace)
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.config = read_number(TRACEFS "/events/kvmmmu/kvm_mmu_paging_element/id"),
		.sample_period = 1,
	};
	struct pkru_guest g = { self->vcpu, .cpu = sysconf(_SC_NPROCESSORS_ONLN) - 1 };
	struct callchain_event event;
	unsigned int i;
	pthread_t thread;
	int fd;

	if (!kvm_cpu_has(X86_FEATURE_PKU))
		SKIP(return, "The host has no protection keys for guests");
	if (g.cpu < 1)
		SKIP(return, "This takes two CPUs");
	if ((int)attr.config < 0)
		SKIP(return, "There is no kvmmmu:kvm_mmu_paging_element");
	fd = open(SYSRQ, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		SKIP(return, "Can't write to " SYSRQ);

	pin_self_to_cpu(0);
	start_pkru_guest(&g, &thread);
	callchain_event_start(&event, variant->source, &attr, g.tid, -1);
	for (i = 0; i < MAX_BACKTRACES && !READ_ONCE(g.changed) &&
	     vcpu_get_stat(self->vcpu, callchain_walks) < NR_BACKTRACES; i++)
		TEST_ASSERT(write(fd, "l", 1) == 1, SYSRQ ": %s", strerror(errno));
	callchain_event_close(&event);
	close(fd);

	WRITE_ONCE(g.stop, true);
	/* A signal that comes right before KVM_RUN doesn't end KVM_RUN: send it again. */
	while (pthread_tryjoin_np(thread, NULL)) {
		pthread_kill(thread, SIGUSR1);
		usleep(10000);
	}
	TEST_ASSERT(!g.changed, "The guest's PKRU has changed");
	TEST_ASSERT(vcpu_get_stat(self->vcpu, callchain_walks) >= NR_BACKTRACES,
		    "Too few backtraces have found the guest");
}

TEST_HARNESS_MAIN
