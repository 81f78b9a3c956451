// SPDX-License-Identifier: GPL-2.0-only
/*
 * When the host prints a backtrace of a CPU that runs a guest, it names the guest.  It also prints
 * the guest's callchain, or on arm64 the guest's IP, unless the administrator or the VMM forbids
 * callchains.
 *
 * KVM_SELFTEST_LOCKUP may be a command that locks up the CPU on which it runs for some seconds.
 * The watchdog then makes all CPUs print a backtrace, because the test sets
 * kernel.softlockup_all_cpu_backtrace.
 *
 * KVM_SELFTEST_BACKTRACE_IRQ may name a file of a module that is not part of Linux, and that has a
 * PMU "test_pmi_irq".  After the test has written "1" to that file, the next interrupt of the PMU
 * triggers sysrq-l, as an interrupt of a serial console would.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "callchain_harness.h"

#define SYSCTL		"/proc/sys/kernel/perf_event_guest_callchain"
#define ALL_CPUS	"/proc/sys/kernel/softlockup_all_cpu_backtrace"
#define THRESHOLD	"/proc/sys/kernel/watchdog_thresh"
#define SYSRQ		"/proc/sysrq-trigger"
#define SYSRQ_MASK	"/proc/sys/kernel/sysrq"
#define LOCKUP		"KVM_SELFTEST_LOCKUP"
#define BACKTRACE_IRQ	"KVM_SELFTEST_BACKTRACE_IRQ"

/* The kernel prints at most NR_PRINTED entries: the IP and its callers.  Build two callers more. */
#define NR_PRINTED	16
#define NR_FRAMES	(NR_PRINTED + 1)

/* The largest number of backtraces to take until one finds the CPU in the guest. */
#define MAX_ROUNDS	20
#define MAX_LOCKUPS	3

/* The ID of the vCPU that runs: neither the first vCPU's ID, which is 0, nor its own index, 1. */
#define VCPU_ID		3
#define LOG_SIZE	BIT(20)

#define SKIP_UNLESS_LOGGED()						\
do {									\
	const char *why_not;						\
									\
	if (!guests_available(&why_not))				\
		SKIP(return, "%s", why_not);				\
	if (access(SYSCTL, W_OK))					\
		SKIP(return, "Can't write to " SYSCTL);			\
	if (access("/dev/kmsg", R_OK))					\
		SKIP(return, "Can't read /dev/kmsg");			\
	if (nr_cpus() < 2)						\
		SKIP(return, "This takes two CPUs");			\
} while (0)

/*
 * struct logged_guest - a guest, and what the kernel has printed
 * @vm:		the guest
 * @vcpu:	runs in a thread of its own
 * @stack:	its stack
 * @thread:	the thread that runs the vCPU
 * @tid:	the thread's ID; zero until it runs
 * @cpu:	the CPU on which it runs
 * @stop:	tells the thread to end
 * @kmsg:	file descriptor of /dev/kmsg
 * @log:	messages since the last backtrace was triggered
 */
struct logged_guest {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct guest_stack stack;
	pthread_t thread;
	pid_t tid;
	int cpu;
	bool stop;
	int kmsg;
	char *log;
};

/* A function that makes the kernel print a backtrace of the guest's CPU. */
typedef void (*backtrace_fn)(struct logged_guest *g);

static int nr_cpus(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) ? 0 : CPU_COUNT(&cpus);
}

static void pin_to(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	TEST_ASSERT(!sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity(): %s",
		    strerror(errno));
}

static void no_action(int sig)
{
}

static void *run_guest(void *arg)
{
	struct logged_guest *g = arg;

	pin_to(g->cpu);
	WRITE_ONCE(g->tid, syscall(SYS_gettid));
	while (!READ_ONCE(g->stop))
		__vcpu_run(g->vcpu);
	return NULL;
}

static void start_guest(struct logged_guest *g, bool user)
{
	const struct guest_stack_layout layout = { .nr_frames = NR_FRAMES, .stride = 64,
						    .offset = 256 };
	const struct sigaction action = { .sa_handler = no_action };
	cpu_set_t cpus;
	int cpu;

	/*
	 * Run the guest on the last CPU: on the first one, QEMU 7.2's emulation of SVM sometimes
	 * loses the GIF, the global interrupt flag.
	 */
	TEST_ASSERT(!sched_getaffinity(0, sizeof(cpus), &cpus), "sched_getaffinity(): %s",
		    strerror(errno));
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &cpus))
			g->cpu = cpu;
	}
	for (cpu = 0; !CPU_ISSET(cpu, &cpus); cpu++)
		;
	TEST_ASSERT(cpu != g->cpu, "There is one CPU only");
	pin_to(cpu);
	g->vm = vm_create_looping_second(&g->vcpu, VCPU_ID, user);
	guest_stack_build_and_use(g->vcpu, &g->stack, &layout, user);
	TEST_ASSERT(!sigaction(SIGUSR1, &action, NULL), "sigaction(): %s", strerror(errno));
	TEST_ASSERT(!pthread_create(&g->thread, NULL, run_guest, g), "pthread_create()");
	while (!READ_ONCE(g->tid) || !vcpu_get_stat(g->vcpu, exits))
		usleep(1000);
}

static void logged_guest_init(struct logged_guest *g)
{
	g->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	g->log = malloc(LOG_SIZE);
	TEST_ASSERT(g->kmsg >= 0 && g->log, "/dev/kmsg: %s", strerror(errno));
}

static void logged_guest_free(struct logged_guest *g)
{
	if (g->tid) {
		WRITE_ONCE(g->stop, true);
		/* A signal that comes right before KVM_RUN doesn't end KVM_RUN: send it again. */
		while (pthread_tryjoin_np(g->thread, NULL)) {
			pthread_kill(g->thread, SIGUSR1);
			usleep(10000);
		}
		kvm_vm_free(g->vm);
	}
	host_restore();
	free(g->log);
	if (g->kmsg > 0)
		close(g->kmsg);
}

static void backtrace_by_sysrq(struct logged_guest *g)
{
	int fd = open(SYSRQ, O_WRONLY | O_CLOEXEC);

	TEST_ASSERT(fd >= 0 && write(fd, "l", 1) == 1, SYSRQ ": %s", strerror(errno));
	close(fd);
}

static void backtrace_by_watchdog(struct logged_guest *g)
{
	/* Ignore the command's status: after the lockup, modprobe test_lockup fails on purpose. */
	TEST_ASSERT(system(getenv(LOCKUP)) != -1, "system(): %s", strerror(errno));
}

static void backtrace_by_irq(struct logged_guest *g)
{
	struct perf_event_attr attr = {
		.type = pmu_type("test_pmi_irq"),
		.size = sizeof(attr),
		.sample_period = 1000000,
		.sample_type = PERF_SAMPLE_IP,
	};
	const char *path = getenv(BACKTRACE_IRQ);
	unsigned int i;
	int fd;

	TEST_ASSERT(write_number(path, 1), "%s: %s", path, strerror(errno));
	fd = perf_event_open(&attr, g->tid, -1);
	TEST_ASSERT(fd >= 0, "perf_event_open(): %s", strerror(errno));
	for (i = 0; i < 3000 && read_number(path) > 0; i++)
		usleep(10000);
	/* close() waits for an interrupt that is being handled. */
	close(fd);
	TEST_ASSERT(!read_number(path) || !write_number(path, 0), "No interrupt has come");
}

/* Make the kernel print a backtrace of the guest's CPU, and read the messages since then. */
static void read_backtrace(struct logged_guest *g, backtrace_fn backtrace)
{
	size_t len = 0;
	ssize_t r;

	TEST_ASSERT(lseek(g->kmsg, 0, SEEK_END) == 0, "lseek(): %s", strerror(errno));
	backtrace(g);

	/*
	 * Each read() returns one record: "6,1234,5678,-;text\n", and maybe lines that begin with
	 * a space.
	 */
	for (;;) {
		r = read(g->kmsg, g->log + len, LOG_SIZE - 1 - len);
		if (r > 0)
			len += r;
		/* EPIPE: the oldest records were overwritten. */
		else if (errno != EPIPE)
			break;
	}
	TEST_ASSERT(errno == EAGAIN, "/dev/kmsg: %s", strerror(errno));
	g->log[len] = '\0';
}

static bool log_has_stack(const struct logged_guest *g)
{
	unsigned int i;
	char word[32];

	for (i = 0; i < NR_FRAMES; i++) {
		snprintf(word, sizeof(word), "%lx", g->stack.ras[i]);
		if (strstr(g->log, word))
			return true;
	}
	return false;
}

static void assert_entry(const char *line, u64 ip, bool user)
{
	char wanted[64];

	TEST_ASSERT(line, "The log lacks 0x%lx", ip);
	snprintf(wanted, sizeof(wanted), "; 0x%lx%s\n", ip, user ? " (user)" : "");
	TEST_ASSERT(!strncmp(line, wanted, strlen(wanted)), "The log has\n%.*s, not\n%s",
		    (int)strcspn(line, "\n"), line, wanted);
}

static void assert_backtrace(struct logged_guest *g, backtrace_fn backtrace, bool user, bool shown)
{
	unsigned int i, nr_rounds = backtrace == backtrace_by_watchdog ? MAX_LOCKUPS : MAX_ROUNDS;
	/* If PMIs can't walk the stack, the interrupt that prints can't either: it finds the IP. */
	unsigned int nr_printed = PMIS_WALK ? NR_PRINTED : 1;
	char *line = NULL, *trace, *end, wanted[64];
	bool has_stack;

	snprintf(wanted, sizeof(wanted), ";Guest of VMM %d, vCPU %u\n", getpid(), g->vcpu->id);
	/* The CPU may be in the host's kernel, on its way back to the guest: try again. */
	for (i = 0; i < nr_rounds && !line; i++) {
		/* A slow host needs more time to get back to the guest. */
		usleep(i * 10000);
		read_backtrace(g, backtrace);
		line = strstr(g->log, wanted);
		/* If interrupts that hit KVM count as the guest's, the IP may be missing. */
		if (PMIS_HIT_KVM && shown && line && !strstr(line, ";Guest call trace:\n"))
			line = NULL;
	}
	TEST_ASSERT(line, "None of %u backtraces names the guest", nr_rounds);

	has_stack = log_has_stack(g);
	/*
	 * Cut off further backtraces: the watchdog fires repeatedly, and there may be other
	 * guests.
	 */
	end = strstr(line + 1, ";Guest of VMM ");
	if (end)
		*end = '\0';
	trace = strstr(line, ";Guest call trace:\n");
	TEST_ASSERT(!!trace == shown && has_stack == (shown && nr_printed > 1),
		    "The trace is %sin the log, the stack is %sin it", trace ? "" : "not ",
		    has_stack ? "" : "not ");
	if (!shown)
		return;

	/* The entries are complete and in order, but there may be other messages in between. */
	for (i = 0; i < nr_printed; i++) {
		trace = strstr(trace + 1, "; 0x");
		assert_entry(trace, i ? g->stack.ras[i - 1] : (u64)guest_loop, user);
	}
	TEST_ASSERT(!strstr(trace + 1, "; 0x"), "There are more entries than %u", nr_printed);
}

FIXTURE(backtrace)
{
	struct logged_guest g;
};

FIXTURE_VARIANT(backtrace)
{
	backtrace_fn backtrace;
};

FIXTURE_VARIANT_ADD(backtrace, sysrq) { .backtrace = backtrace_by_sysrq };
FIXTURE_VARIANT_ADD(backtrace, irq) { .backtrace = backtrace_by_irq };

FIXTURE_SETUP(backtrace)
{
	SKIP_UNLESS_LOGGED();
	if (variant->backtrace == backtrace_by_sysrq && access(SYSRQ, W_OK))
		SKIP(return, "Can't write to " SYSRQ);
	if (variant->backtrace == backtrace_by_irq) {
		if (!getenv(BACKTRACE_IRQ))
			SKIP(return, BACKTRACE_IRQ " names no file");
		SKIP_UNLESS_OVERRIDDEN(SYSRQ_MASK, 1);
	}

	logged_guest_init(&self->g);
}

FIXTURE_TEARDOWN(backtrace)
{
	logged_guest_free(&self->g);
}

CALLCHAIN_TEST(backtrace, kernel_mode)
{
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 2);
	start_guest(&self->g, false);
	assert_backtrace(&self->g, variant->backtrace, false, true);
}

CALLCHAIN_TEST(backtrace, user_mode)
{
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 2);
	start_guest(&self->g, true);
	assert_backtrace(&self->g, variant->backtrace, true, true);
}

/* If the sysctl or the VMM forbids callchains, the guest is named, but no trace is printed. */
CALLCHAIN_TEST(backtrace, forbidden)
{
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 0);
	start_guest(&self->g, false);
	assert_backtrace(&self->g, variant->backtrace, false, false);

	TEST_ASSERT(write_number(SYSCTL, 2), "The sysctl: %s", strerror(errno));
	assert_backtrace(&self->g, variant->backtrace, false, true);

	vm_enable_cap(self->g.vm, KVM_CAP_GUEST_CALLCHAIN, KVM_GUEST_CALLCHAIN_FORBID);
	assert_backtrace(&self->g, variant->backtrace, false, false);
}

FIXTURE(lockup)
{
	struct logged_guest g;
};

FIXTURE_SETUP(lockup)
{
	SKIP_UNLESS_LOGGED();
	if (!getenv(LOCKUP))
		SKIP(return, LOCKUP " names no command");

	logged_guest_init(&self->g);
}

FIXTURE_TEARDOWN(lockup)
{
	logged_guest_free(&self->g);
}

/* Another CPU locks up, and the watchdog makes all CPUs print a backtrace. */
CALLCHAIN_TEST(lockup, soft)
{
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 2);
	SKIP_UNLESS_OVERRIDDEN(ALL_CPUS, 1);
	SKIP_UNLESS_OVERRIDDEN(THRESHOLD, 2);
	start_guest(&self->g, false);
	assert_backtrace(&self->g, backtrace_by_watchdog, false, true);
}

TEST_HARNESS_MAIN
