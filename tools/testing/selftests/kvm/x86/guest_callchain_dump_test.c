// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dumps of a host's CPU name the guest that runs there, and show its callchain unless the
 * administrator or the VMM says no.
 *
 * KVM_SELFTEST_LOCKUP may be a command that locks up the CPU on which it runs for some
 * seconds: with kernel.softlockup_all_cpu_backtrace the watchdog then dumps all CPUs.
 * KVM_SELFTEST_DUMP_IRQ may be a file, to which a "1" is written to have a PMI of the PMU
 * "test_pmi_irq" dump its CPU.
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
#define LOCKUP		"KVM_SELFTEST_LOCKUP"
#define DUMP_IRQ	"KVM_SELFTEST_DUMP_IRQ"

/* The innermost entries that a dump has, and one frame more on the stack. */
#define NR_PRINTED	16
#define NR_FRAMES	NR_PRINTED

/* How often a dump may find the guest's CPU in the host. */
#define MAX_ROUNDS	20
#define LOG_SIZE	BIT(20)

#define SKIP_UNLESS_DUMPED()						\
do {									\
	if (access(SYSCTL, W_OK))					\
		SKIP(return, "Can't write to " SYSCTL);			\
	if (access("/dev/kmsg", R_OK))					\
		SKIP(return, "Can't read /dev/kmsg");			\
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)				\
		SKIP(return, "This takes two CPUs");			\
} while (0)

/**
 * struct dumped_guest - a guest, and what the kernel has printed
 * @vm:		the guest
 * @vcpu:	runs in a thread of its own
 * @stack:	its stack
 * @thread:	the vCPU's
 * @tid:	the same thread; zero until it runs
 * @cpu:	where it runs
 * @stop:	tells the thread to end
 * @kmsg:	/dev/kmsg
 * @log:	what was printed since the last dump was asked for
 */
struct dumped_guest {
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

/* How to have the guest's CPU dumped. */
typedef void (*dump_fn)(struct dumped_guest *g);

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
	struct dumped_guest *g = arg;

	pin_to(g->cpu);
	WRITE_ONCE(g->tid, syscall(SYS_gettid));
	while (!READ_ONCE(g->stop))
		__vcpu_run(g->vcpu);
	return NULL;
}

static void start_guest(struct dumped_guest *g, bool user)
{
	const struct guest_stack_layout layout = { .nr_frames = NR_FRAMES, .stride = 64,
						    .offset = 256 };
	const struct sigaction action = { .sa_handler = no_action };

	/* The last CPU: the first loses its GIF now and then where QEMU 7.2 emulates it. */
	g->cpu = sysconf(_SC_NPROCESSORS_ONLN) - 1;
	pin_to(0);
	g->vm = vm_create_looping(&g->vcpu, 4, user);
	guest_stack_build_and_use(g->vcpu, &g->stack, &layout, user);
	TEST_ASSERT(!sigaction(SIGUSR1, &action, NULL), "sigaction(): %s", strerror(errno));
	TEST_ASSERT(!pthread_create(&g->thread, NULL, run_guest, g), "pthread_create()");
	while (!READ_ONCE(g->tid))
		usleep(1000);
}

static void dumped_guest_init(struct dumped_guest *g)
{
	g->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	g->log = malloc(LOG_SIZE);
	TEST_ASSERT(g->kmsg >= 0 && g->log, "/dev/kmsg: %s", strerror(errno));
}

static void dumped_guest_free(struct dumped_guest *g)
{
	if (g->tid) {
		WRITE_ONCE(g->stop, true);
		/* A signal that comes right before KVM_RUN does not end it. */
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

static void dump_by_sysrq(struct dumped_guest *g)
{
	int fd = open(SYSRQ, O_WRONLY | O_CLOEXEC);

	TEST_ASSERT(fd >= 0 && write(fd, "l", 1) == 1, SYSRQ ": %s", strerror(errno));
	close(fd);
}

static void dump_by_watchdog(struct dumped_guest *g)
{
	/* Its status says nothing: modules that lock up a CPU don't stay loaded. */
	TEST_ASSERT(system(getenv(LOCKUP)) != -1, "system(): %s", strerror(errno));
}

static void dump_by_irq(struct dumped_guest *g)
{
	struct perf_event_attr attr = {
		.type = pmu_type("test_pmi_irq"),
		.size = sizeof(attr),
		.sample_period = 1000000,
		.sample_type = PERF_SAMPLE_IP,
	};
	int fd;

	TEST_ASSERT(write_number(getenv(DUMP_IRQ), 1), "%s: %s", getenv(DUMP_IRQ),
		    strerror(errno));
	fd = perf_event_open(&attr, g->tid, -1);
	TEST_ASSERT(fd >= 0, "perf_event_open(): %s", strerror(errno));
	while (read_number(getenv(DUMP_IRQ)) > 0)
		usleep(10000);
	close(fd);
}

/* Have the guest's CPU dumped, and read what was printed. */
static void dump(struct dumped_guest *g, dump_fn dump_cpu)
{
	size_t len = 0;
	ssize_t r;

	TEST_ASSERT(lseek(g->kmsg, 0, SEEK_END) == 0, "lseek(): %s", strerror(errno));
	dump_cpu(g);

	/* A record a read: "6,1234,5678,-;text\n", and perhaps lines that begin with a space. */
	while (len < LOG_SIZE - 1) {
		r = read(g->kmsg, g->log + len, LOG_SIZE - 1 - len);
		if (r < 0 && errno == EPIPE)
			continue;
		if (r <= 0)
			break;
		len += r;
	}
	g->log[len] = '\0';
}

/* Return the text after @from of the next record; it ends with a newline. */
static const char *next_line(const char *from)
{
	const char *line = strchr(from, '\n');

	line = line ? strchr(line, ';') : NULL;
	return line ? line + 1 : "";
}

/* Return the line of the log that names this guest, NULL if there is none. */
static const char *find_guest(struct dumped_guest *g)
{
	char wanted[64];

	snprintf(wanted, sizeof(wanted), ";KVM guest: VM %d vCPU %u ", getpid(), g->vcpu->id);
	return strstr(g->log, wanted);
}

static bool log_has_stack(struct dumped_guest *g)
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

static void assert_line(const char *line, const char *wanted)
{
	TEST_ASSERT(!strncmp(line, wanted, strlen(wanted)), "The kernel printed\n%.*s, not\n%s",
		    (int)strcspn(line, "\n"), line, wanted);
}

static void assert_dump(struct dumped_guest *g, dump_fn dump_cpu, bool user, bool shown)
{
	const char *line = NULL;
	char wanted[128];
	unsigned int i;

	/* The CPU may be in the kernel, on its way back to the guest. */
	for (i = 0; i < MAX_ROUNDS && !line; i++) {
		dump(g, dump_cpu);
		line = find_guest(g);
	}
	TEST_ASSERT(line, "No dump of %u names the guest", MAX_ROUNDS);

	snprintf(wanted, sizeof(wanted), ";KVM guest: VM %d vCPU %u %s mode IP 0x%lx\n", getpid(),
		 g->vcpu->id, user ? "user" : "kernel", (unsigned long)guest_loop);
	assert_line(line, wanted);
	TEST_ASSERT(log_has_stack(g) == shown, "The stack is %sin the log",
		    shown ? "not " : "");
	if (!shown)
		return;

	line = next_line(line);
	assert_line(line, "Guest call trace:\n");
	for (i = 0; i < NR_PRINTED - 1; i++) {
		line = next_line(line);
		snprintf(wanted, sizeof(wanted), " 0x%lx%s\n", g->stack.ras[i],
			 user ? " (user)" : "");
		assert_line(line, wanted);
	}
	TEST_ASSERT(strncmp(next_line(line), " 0x", 3), "There are more entries than %u",
		    NR_PRINTED);
}

FIXTURE(dump)
{
	struct dumped_guest g;
};

FIXTURE_VARIANT(dump)
{
	dump_fn dump_cpu;
};

FIXTURE_VARIANT_ADD(dump, sysrq) { .dump_cpu = dump_by_sysrq };
FIXTURE_VARIANT_ADD(dump, irq) { .dump_cpu = dump_by_irq };

FIXTURE_SETUP(dump)
{
	SKIP_UNLESS_DUMPED();
	if (variant->dump_cpu == dump_by_sysrq && access(SYSRQ, W_OK))
		SKIP(return, "Can't write to " SYSRQ);
	if (variant->dump_cpu == dump_by_irq && !getenv(DUMP_IRQ))
		SKIP(return, DUMP_IRQ " names no file");

	dumped_guest_init(&self->g);
}

FIXTURE_TEARDOWN(dump)
{
	dumped_guest_free(&self->g);
}

CALLCHAIN_TEST(dump, kernel_mode)
{
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 2);
	start_guest(&self->g, false);
	assert_dump(&self->g, variant->dump_cpu, false, true);
}

CALLCHAIN_TEST(dump, user_mode)
{
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 2);
	start_guest(&self->g, true);
	assert_dump(&self->g, variant->dump_cpu, true, true);
}

/* Whoever says no: the dump has what samples have then, the IP. */
CALLCHAIN_TEST(dump, forbidden)
{
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 0);
	start_guest(&self->g, false);
	assert_dump(&self->g, variant->dump_cpu, false, false);

	TEST_ASSERT(write_number(SYSCTL, 2), "The sysctl: %s", strerror(errno));
	assert_dump(&self->g, variant->dump_cpu, false, true);

	vm_enable_cap(self->g.vm, KVM_CAP_GUEST_CALLCHAIN, KVM_GUEST_CALLCHAIN_FORBID);
	assert_dump(&self->g, variant->dump_cpu, false, false);
}

FIXTURE(lockup)
{
	struct dumped_guest g;
};

FIXTURE_SETUP(lockup)
{
	SKIP_UNLESS_DUMPED();
	if (!getenv(LOCKUP))
		SKIP(return, LOCKUP " names no command");

	dumped_guest_init(&self->g);
}

FIXTURE_TEARDOWN(lockup)
{
	dumped_guest_free(&self->g);
}

/* Another CPU is locked up, and the watchdog has all of them dumped. */
CALLCHAIN_TEST(lockup, soft)
{
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 2);
	SKIP_UNLESS_OVERRIDDEN(ALL_CPUS, 1);
	SKIP_UNLESS_OVERRIDDEN(THRESHOLD, 1);
	start_guest(&self->g, false);
	assert_dump(&self->g, dump_by_watchdog, false, true);
}

TEST_HARNESS_MAIN
