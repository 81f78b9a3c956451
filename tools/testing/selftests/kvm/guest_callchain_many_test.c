// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of vCPUs that run side by side, some of them in the same VM.  Each vCPU has a stack
 * of its own, and its samples must have this stack's chain.  A CPU is taken offline meanwhile
 * only if KVM_SELFTEST_HOTPLUG is set.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_VMS		2
#define NR_VCPUS	2	/* of each VM */
#define NR_THREADS	(NR_VMS * NR_VCPUS)
#define NR_SAMPLES	20
#define NR_GUEST	100	/* samples to be compared, of each vCPU */
#define NR_ROUNDS	6	/* calls of disturb(), at least */
#define NR_COOKIES	1000	/* to be compared, of each vCPU */

/* The distance between the return addresses of two vCPUs' stacks; those of one stack are closer. */
#define TEXT_STRIDE	BIT_ULL(20)

struct vcpu_thread {
	pthread_t thread;
	pid_t tid;
	enum pmi_source source;
	struct kvm_vcpu *vcpu;
	struct callchain_expectation e;
	struct callchain_comparison c;
	unsigned int nr_guest;
	u64 cookies[NR_COOKIES];
	unsigned int nr_cookies;
};

FIXTURE(many)
{
	struct kvm_vm *vms[NR_VMS];
	struct vcpu_thread threads[NR_THREADS];
};

FIXTURE_VARIANT(many)
{
	enum pmi_source source;
};

PMI_VARIANTS(many,);

static void build_stack(struct vcpu_thread *t, unsigned int nr, bool user)
{
	const struct guest_stack_layout layout = { 5 + 3 * nr, 64, 0x100 };
	struct guest_stack stack;
	unsigned int i;

	guest_stack_build_and_use(t->vcpu, &stack, &layout, user);
	for (i = 0; i < stack.nr_frames; i++) {
		stack.ras[i] += nr * TEXT_STRIDE;
		write_guest_word(t->vcpu->vm, stack.frames[i] + 8, stack.ras[i]);
	}
	expect_guest_stack(&t->e, "one of many", user, &stack, DEFAULT_MAX_STACK);
	t->c.expected = &t->e;
}

FIXTURE_SETUP(many)
{
	SKIP_UNLESS_PMI(variant->source);
}

FIXTURE_TEARDOWN(many)
{
	unsigned int i;

	host_restore();
	for (i = 0; i < NR_VMS; i++) {
		if (self->vms[i])
			kvm_vm_free(self->vms[i]);
	}
}

static bool all_compared(FIXTURE_DATA(many) * self)
{
	unsigned int i;

	for (i = 0; i < NR_THREADS; i++) {
		if (READ_ONCE(self->threads[i].nr_guest) < NR_GUEST)
			return false;
	}
	return true;
}

static bool stop;

static void compare(const struct callchain_sample *s, void *arg)
{
	struct vcpu_thread *t = arg;

	callchain_compare(s, &t->c);
	if (callchain_sample_is_guest(s) && s->cookie && !s->shares_walk &&
	    t->nr_cookies < NR_COOKIES)
		t->cookies[t->nr_cookies++] = s->cookie;
}

static int compare_cookies(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* No two walks may have the same cookie, whichever CPU and event requested them. */
static void assert_cookies_differ(FIXTURE_DATA(many) * self)
{
	static u64 cookies[NR_THREADS * NR_COOKIES];
	unsigned int i, nr = 0;

	for (i = 0; i < NR_THREADS; i++) {
		memcpy(&cookies[nr], self->threads[i].cookies,
		       self->threads[i].nr_cookies * sizeof(u64));
		nr += self->threads[i].nr_cookies;
	}

	qsort(cookies, nr, sizeof(u64), compare_cookies);
	for (i = 1; i < nr; i++)
		TEST_ASSERT(cookies[i] != cookies[i - 1], "Two walks have the cookie 0x%lx",
			    cookies[i]);
}

/* Run until all vCPUs are done, so that none has the host for itself. */
static void *run_vcpu(void *arg)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct vcpu_thread *t = arg;
	struct callchain_event event;

	/*
	 * Set tid last: once all threads have one, a CPU may go offline, and some PMUs of NMIs need
	 * two CPUs when an event starts.
	 */
	callchain_event_start(&event, t->source, &attr, 0, -1);
	WRITE_ONCE(t->tid, syscall(SYS_gettid));
	while (!READ_ONCE(stop)) {
		vcpu_run_until_sampled(t->vcpu, &event, false);
		callchain_event_read(&event, compare, t);
		WRITE_ONCE(t->nr_guest, t->c.nr_guest);
	}
	callchain_event_close(&event);
	return NULL;
}

static void create_vcpus(FIXTURE_DATA(many) * self, enum pmi_source source)
{
	struct kvm_vcpu *vcpus[NR_VCPUS];
	unsigned int i;

	for (i = 0; i < NR_THREADS; i++) {
		struct vcpu_thread *t = &self->threads[i];
		/* In one VM, all run in user mode. */
		const bool user = i / NR_VCPUS;

		if (!(i % NR_VCPUS))
			self->vms[i / NR_VCPUS] = vm_create_sampled(NR_VCPUS, guest_loop, vcpus);
		t->vcpu = vcpus[i % NR_VCPUS];
		t->source = source;
		if (user)
			vcpu_enter_user_mode(t->vcpu);
		build_stack(t, i, user);
	}
}

/*
 * Don't fork once the vCPUs exist, and so don't override a new setting, see
 * host_override(): when a vCPU writes to a page that is shared with a child, the host
 * unmaps the page until it is copied, and a sample of another vCPU finds no stack or no
 * page table there.
 */
static void run_disturbed(FIXTURE_DATA(many) * self, enum pmi_source source,
			  void (*disturb)(FIXTURE_DATA(many) * self, unsigned int round))
{
	unsigned int i, round;

	create_vcpus(self, source);
	for (i = 0; i < NR_THREADS; i++)
		pthread_create(&self->threads[i].thread, NULL, run_vcpu, &self->threads[i]);
	for (i = 0; i < NR_THREADS; i++) {
		while (!READ_ONCE(self->threads[i].tid))
			usleep(1000);
	}
	for (round = 0; round < NR_ROUNDS || !all_compared(self); round++)
		disturb(self, round);
	WRITE_ONCE(stop, true);
	for (i = 0; i < NR_THREADS; i++)
		pthread_join(self->threads[i].thread, NULL);
	assert_cookies_differ(self);
	ksft_print_msg("%u rounds, %u samples of the first vCPU, %u of the last one\n", round,
		       self->threads[0].nr_guest, self->threads[NR_THREADS - 1].nr_guest);
}

static int nth_allowed_cpu(unsigned int n)
{
	cpu_set_t cpus;
	int cpu;

	TEST_ASSERT(!sched_getaffinity(getpid(), sizeof(cpus), &cpus), "sched_getaffinity()");
	n %= CPU_COUNT(&cpus);
	for (cpu = 0; !CPU_ISSET(cpu, &cpus) || n--; cpu++)
		;
	return cpu;
}

/* Move each thread to the CPU that comes after its last one. */
static void move_threads(FIXTURE_DATA(many) * self, unsigned int round)
{
	cpu_set_t cpus;
	unsigned int i;

	for (i = 0; i < NR_THREADS; i++) {
		CPU_ZERO(&cpus);
		CPU_SET(nth_allowed_cpu(round + i), &cpus);
		TEST_ASSERT(!sched_setaffinity(self->threads[i].tid, sizeof(cpus), &cpus),
			    "sched_setaffinity() failed: %s", strerror(errno));
	}
	usleep(20000);
}

CALLCHAIN_TEST(many, migrated)
{
	run_disturbed(self, variant->source, move_threads);
}

static char online_path[64];

static void toggle_cpu(FIXTURE_DATA(many) * self, unsigned int round)
{
	TEST_ASSERT(host_override(online_path, round & 1), "Can't write %u to %s: %s", round & 1,
		    online_path, strerror(errno));
	usleep(100000);
}

/*
 * Of the CPUs that this process may use, take the last one offline and back online, unless it is
 * the only one.
 */
CALLCHAIN_TEST(many, hotplugged)
{
	cpu_set_t cpus;
	int cpu;

	TEST_ASSERT(!sched_getaffinity(0, sizeof(cpus), &cpus), "sched_getaffinity()");
	cpu = nth_allowed_cpu(CPU_COUNT(&cpus) - 1);
	snprintf(online_path, sizeof(online_path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	if (!getenv("KVM_SELFTEST_HOTPLUG"))
		SKIP(return, "A CPU goes offline only if KVM_SELFTEST_HOTPLUG is set");
	if (CPU_COUNT(&cpus) < 2 || read_number(online_path) != 1)
		SKIP(return, "There is no CPU that can go offline");
	SKIP_UNLESS_OVERRIDDEN(online_path, 1);
	run_disturbed(self, variant->source, toggle_cpu);
}

TEST_HARNESS_MAIN
