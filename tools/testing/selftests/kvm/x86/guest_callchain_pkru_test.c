// SPDX-License-Identifier: GPL-2.0-only
/*
 * A guest must keep its PKRU when the host prints a backtrace of its CPU, even if an event
 * samples tracepoints that the backtrace hits.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "callchain_harness.h"

#define SYSRQ		"/proc/sysrq-trigger"

/* The number of backtraces that must find the CPU in the guest, and the largest number to take. */
#define NR_BACKTRACES	5
#define MAX_BACKTRACES	50

/* Not the host's PKRU, which denies all keys but the first. */
#define GUEST_PKRU	0x4
#define EXIT_PORT	0x10

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

FIXTURE(pkru)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
};

FIXTURE_SETUP(pkru)
{
	const struct guest_stack_layout layout = { 4, 64, 0x100 };
	struct guest_stack stack;

	SKIP_UNLESS_PMI(PMI_IRQ);
	if (!kvm_cpu_has(X86_FEATURE_PKU))
		SKIP(return, "The host has no protection keys for guests");
	self->vm = vm_create_sampled(1, guest_check_pkru, &self->vcpu);
	guest_stack_build_and_use(self->vcpu, &stack, &layout, false);
}

FIXTURE_TEARDOWN(pkru)
{
	kvm_vm_free(self->vm);
}

/*
 * A backtrace walks the guest's stack in an NMI, with the host's PKRU.  The walk hits a tracepoint
 * whose event asks for the guest's callchain.  A second walk would lose the guest's PKRU.
 */
CALLCHAIN_TEST(pkru, backtrace)
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.config = tracepoint_id("kvmmmu/kvm_mmu_paging_element"),
		.sample_period = 1,
	};
	struct pkru_guest g = { self->vcpu, .cpu = sysconf(_SC_NPROCESSORS_ONLN) - 1 };
	struct callchain_event event;
	unsigned int i;
	pthread_t thread;
	int fd;

	if (g.cpu < 1)
		SKIP(return, "This takes two CPUs");
	if ((int)attr.config < 0)
		SKIP(return, "This user finds no kvmmmu:kvm_mmu_paging_element");
	fd = open(SYSRQ, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		SKIP(return, "This user can't write to " SYSRQ);

	pin_self_to_cpu(0);
	start_pkru_guest(&g, &thread);
	callchain_event_start(&event, PMI_ATTR, &attr, g.tid, -1);
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
