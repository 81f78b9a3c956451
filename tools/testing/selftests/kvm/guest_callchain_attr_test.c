// SPDX-License-Identifier: GPL-2.0-only
/*
 * An event must get what its attributes ask for of a guest's callchain, no less and no more,
 * whatever other events of the same vCPU ask for.
 */
#include <linux/bpf.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_SAMPLES	25
#define MAX_ROUNDS	500
#define NR_FRAMES	4

#define MAX_CONTEXTS_SYSCTL	"/proc/sys/kernel/perf_event_max_contexts_per_stack"
#define MAX_STACK_SYSCTL	"/proc/sys/kernel/perf_event_max_stack"

/* The longest chain for which a deferred walk allocates no memory. */
#define FULL_DEPTH		127

FIXTURE(attr)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct callchain_expectation e;
};

FIXTURE_VARIANT(attr)
{
	enum pmi_source source;
};

PMI_VARIANTS(attr,);

static void create_guest(FIXTURE_DATA(attr) * self, unsigned int nr_frames)
{
	const struct guest_stack_layout layout = { nr_frames, 64, 0x100 };
	struct guest_stack stack;

	self->vm = vm_create_sampled(1, guest_loop, &self->vcpu);
	guest_stack_build_and_use(self->vcpu, &stack, &layout, false);
	expect_guest_stack(&self->e, "attr", false, &stack, nr_frames + 1);
}

FIXTURE_SETUP(attr)
{
	SKIP_UNLESS_PMI(variant->source);
	create_guest(self, NR_FRAMES);
}

FIXTURE_TEARDOWN(attr)
{
	host_restore();
	kvm_vm_free(self->vm);
}

static void is_refused(enum pmi_source source, struct perf_event_attr attr, const char *why)
{
	struct callchain_event event;

	TEST_ASSERT(callchain_event_open(&event, source, &attr, 0, -1) && errno == EINVAL,
		    "perf takes %s", why);
}

/* All samples of an exit share the first part of their chain, so an event must take all of it. */
CALLCHAIN_TEST(attr, refused)
{
	const enum pmi_source source = variant->source;
	struct callchain_event event;

	is_refused(source, (struct perf_event_attr){ .exclude_guest = 1 }, "exclude_guest");
	is_refused(source, (struct perf_event_attr){ .exclude_callchain_kernel = 1 },
		   "exclude_callchain_kernel");
	is_refused(source, (struct perf_event_attr){ .exclude_callchain_user = 1 },
		   "exclude_callchain_user");
	is_refused(source, (struct perf_event_attr){ .sample_type = PERF_SAMPLE_IP },
		   "a guest's callchain without PERF_SAMPLE_CALLCHAIN");
	is_refused(source | PMI_STOCK, (struct perf_event_attr){ .guest_read = 1 },
		   "guest_read without guest_callchain");

	TEST_ASSERT(!callchain_event_open(&event, source, NULL, 0, -1), "perf_event_open(): %s",
		    strerror(errno));
	callchain_event_close(&event);
}

/* A chain takes three contexts: its marker, PERF_CONTEXT_USER_DEFERRED, and the cookie. */
CALLCHAIN_TEST(attr, few_contexts)
{
	SKIP_UNLESS_OVERRIDDEN(MAX_CONTEXTS_SYSCTL, 2);
	is_refused(variant->source, (struct perf_event_attr){}, "chains with two contexts");
	TEST_ASSERT(write_number(MAX_CONTEXTS_SYSCTL, 3), "The sysctl: %s", strerror(errno));
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &self->e);
}

struct neighbour {
	unsigned int nr_guest;
	unsigned int nr_records;
};

static void is_stock(const struct callchain_sample *s, void *arg)
{
	struct neighbour *n = arg;

	if (!callchain_sample_is_guest(s))
		return;

	TEST_ASSERT(s->nr == 2 && s->ips[0] == (u64)PERF_CONTEXT_KERNEL &&
		    s->ips[1] == (u64)PERF_CONTEXT_USER && s->ip == (u64)guest_loop,
		    "A stock sample has %lu entries, the first 0x%lx, IP 0x%lx", s->nr,
		    s->nr ? s->ips[0] : 0, s->ip);
	n->nr_guest++;
}

static void count_record(const struct callchain_sample *s, void *arg)
{
	struct neighbour *n = arg;

	n->nr_records++;
}

/* An event without guest_callchain gets what it always got, even beside an event with it. */
CALLCHAIN_TEST(attr, stock_neighbour)
{
	const struct perf_event_attr stock_attr = { .defer_output = 1, .sample_period = 300000 };
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct callchain_comparison c = { .expected = &self->e };
	struct callchain_event event, stock;
	struct neighbour n = {};
	unsigned int i;

	/* Use an IRQ in each variant: the PMU of NMIs may take only one event per CPU. */
	callchain_event_start(&stock, PMI_IRQ | PMI_STOCK, &stock_attr, 0, -1);
	stock.deferred_fn = count_record;
	callchain_event_start(&event, variant->source, &attr, 0, -1);
	/* On a slow host, the rings may overflow before both events have enough samples. */
	event.may_lose = true;
	stock.may_lose = true;
	for (i = 0; i < MAX_ROUNDS && (c.nr_guest < NR_SAMPLES || n.nr_guest < NR_SAMPLES); i++) {
		vcpu_run_until_sampled(self->vcpu, &event, false);
		callchain_event_read(&event, callchain_compare, &c);
		callchain_event_read(&stock, is_stock, &n);
	}
	callchain_event_close(&event);
	callchain_event_close(&stock);
	TEST_ASSERT(c.nr_guest >= NR_SAMPLES && n.nr_guest >= NR_SAMPLES,
		    "Only %u and %u samples are the guest's", c.nr_guest, n.nr_guest);
	TEST_ASSERT(!n.nr_records, "A stock event got %u deferred chains", n.nr_records);
}

/* Samples of an event, and records that it was sent. */
struct receiver {
	struct callchain_event event;
	unsigned int nr_samples;
	unsigned int nr_alone;
	unsigned int nr_records;
	u64 cookie;			/* of the last sample of the guest */
};

static void note_sample(const struct callchain_sample *s, void *arg)
{
	struct receiver *r = arg;

	/* On arm64, a sample that hit KVM counts as the guest's, but asks for nothing. */
	if (!callchain_sample_is_guest(s) || s->hit_kvm)
		return;

	r->nr_samples += s->cookie != r->cookie;
	r->nr_alone += s->alone;
	r->cookie = s->cookie;
}

static void note_record(const struct callchain_sample *s, void *arg)
{
	struct receiver *r = arg;

	r->nr_records += callchain_sample_is_guest(s);
}

/* Events with guest_callchain that take no samples, or few, and have little room. */
static const struct receiver_case {
	const char *name;
	struct perf_event_attr attr;
	bool cpu_wide;
	bool samples;
} receiver_cases[] = {
	{ "dummy", { .config = PERF_COUNT_SW_DUMMY } },
	{ "dummy, CPU-wide", { .config = PERF_COUNT_SW_DUMMY }, .cpu_wide = true },
	{ "dummy with defer_output", { .config = PERF_COUNT_SW_DUMMY, .defer_output = 1 } },
	{ "slow", { .config = PERF_COUNT_SW_CPU_CLOCK, .sample_period = 100000000 },
	  .samples = true },
	{ "slow, CPU-wide", { .config = PERF_COUNT_SW_CPU_CLOCK, .sample_period = 100000000 },
	  .cpu_wide = true, .samples = true },
};

static void open_receiver(struct receiver *r, const struct receiver_case *c, int cpu)
{
	struct perf_event_attr attr = c->attr;

	attr.type = PERF_TYPE_SOFTWARE;
	TEST_ASSERT(!callchain_event_open_ring(&r->event, PMI_ATTR, &attr, c->cpu_wide ? -1 : 0,
					       c->cpu_wide ? cpu : -1, 1),
		    "%s: perf_event_open() failed: %s", c->name, strerror(errno));
	r->event.may_lose = true;
	r->event.deferred_fn = note_record;
	callchain_event_enable(&r->event);
}

/*
 * Records go to those events that took a sample at this exit, and to no others.  So an event that
 * samples often can't fill the buffers of others: with NR_FULL records of their neighbour, they
 * would overflow.
 */
#define NR_FULL		200

CALLCHAIN_TEST(attr, receivers)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct receiver receivers[ARRAY_SIZE(receiver_cases)] = {}, *r;
	struct callchain_comparison c = { .expected = &self->e };
	const struct receiver_case *rc = receiver_cases;
	struct callchain_event event;
	int cpu = sched_getcpu();
	unsigned int i, round;
	cpu_set_t all;

	if (getuid())
		SKIP(return, "Only root may sample CPUs");

	TEST_ASSERT(!sched_getaffinity(0, sizeof(all), &all), "sched_getaffinity()");
	pin_self_to_cpu(cpu);
	for (r = receivers; r < receivers + ARRAY_SIZE(receivers); r++)
		open_receiver(r, rc++, cpu);
	callchain_event_start(&event, variant->source, &attr, 0, -1);
	for (round = 0; round < MAX_ROUNDS && c.nr_guest < NR_FULL; round++) {
		vcpu_run_until_sampled(self->vcpu, &event, false);
		callchain_event_read(&event, callchain_compare, &c);
		/* Make room for the samples that these events do take. */
		for (i = 0; i < ARRAY_SIZE(receivers); i++) {
			if (receiver_cases[i].samples)
				callchain_event_read(&receivers[i].event, note_sample,
						     &receivers[i]);
		}
	}
	callchain_event_close(&event);
	TEST_ASSERT(c.nr_guest >= NR_FULL, "Only %u walks", c.nr_guest);

	for (r = receivers, rc = receiver_cases; r < receivers + ARRAY_SIZE(receivers); r++, rc++) {
		callchain_event_disable(&r->event);
		callchain_event_read(&r->event, note_sample, r);
		callchain_event_close(&r->event);
		ksft_print_msg("%s: %u walks sampled, %u records\n", rc->name, r->nr_samples,
			       r->nr_records);
		TEST_ASSERT(!r->event.nr_lost, "%s: %lu records were lost", rc->name,
			    r->event.nr_lost);
		TEST_ASSERT(rc->samples || !r->nr_samples, "%s: a sample", rc->name);
		TEST_ASSERT(!r->nr_alone, "%s: samples without a record", rc->name);
		TEST_ASSERT(r->nr_records == r->nr_samples, "%s: %u records of %u walks", rc->name,
			    r->nr_records, r->nr_samples);
	}
	TEST_ASSERT(!sched_setaffinity(0, sizeof(all), &all), "sched_setaffinity()");
}

/*
 * With this frame pointer, a chain has only the IP.  The IP is in the sample, so the record is
 * empty, but it comes.
 */
CALLCHAIN_TEST(attr, empty_records)
{
	vcpu_set_fp(self->vcpu, 8);
	self->e.nr = 2;
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &self->e);
}

struct depth {
	struct callchain_event event;
	struct callchain_expectation e;
	struct callchain_comparison c;
};

/* Events that share a walk get as much of it as each has asked for. */
CALLCHAIN_TEST(attr, depth_of_each)
{
	static const u16 max_stacks[] = { 3, NR_FRAMES + 1, 1, 2 };
	struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct depth depths[ARRAY_SIZE(max_stacks)] = {}, *d;
	unsigned int i, round, nr_guest = 0;

	for (i = 0; i < ARRAY_SIZE(max_stacks); i++) {
		d = &depths[i];
		d->e = self->e;
		d->e.nr = 1 + max_stacks[i];
		d->c.expected = &d->e;
		attr.sample_max_stack = max_stacks[i];
		/* These timers expire together again and again.  test_pmi takes one event. */
		attr.sample_period = 300000 + 5000 * i;
		callchain_event_start(&d->event, i == 1 ? variant->source : PMI_IRQ, &attr, 0, -1);
		d->event.may_lose = true;
	}
	for (round = 0; round < MAX_ROUNDS && nr_guest < NR_SAMPLES; round++) {
		vcpu_run_until_sampled(self->vcpu, &depths[0].event, false);
		nr_guest = ~0U;
		for (i = 0; i < ARRAY_SIZE(max_stacks); i++) {
			callchain_event_read(&depths[i].event, callchain_compare, &depths[i].c);
			nr_guest = min(nr_guest, depths[i].c.nr_guest);
		}
	}
	for (i = 0; i < ARRAY_SIZE(max_stacks); i++)
		callchain_event_close(&depths[i].event);
	TEST_ASSERT(nr_guest >= NR_SAMPLES, "Only %u walks", nr_guest);
}

/* Chains as deep as sample_max_stack.  A walk allocates memory for the last two depths. */
CALLCHAIN_TEST(attr, full_depth)
{
	struct perf_event_attr attr = {};

	SKIP_UNLESS_OVERRIDDEN(MAX_STACK_SYSCTL, FULL_DEPTH + 2);
	for (attr.sample_max_stack = FULL_DEPTH; attr.sample_max_stack <= FULL_DEPTH + 2;
	     attr.sample_max_stack++) {
		kvm_vm_free(self->vm);
		create_guest(self, attr.sample_max_stack - 1);
		vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &self->e);
	}
}

/* An event that excludes the kernel sees nothing of the guest's kernel. */
CALLCHAIN_TEST(attr, exclude_kernel)
{
	const struct perf_event_attr attr = { .exclude_kernel = 1 };
	/*
	 * With exclude_kernel, only a PMU that ignores it samples the guest's kernel, so that perf
	 * has something to leave out: the PMU that KVM_SELFTEST_NMI_PMU names.
	 */
	SKIP_UNLESS_PMI(PMI_NMI);
	if (has_hardware_cycles())
		SKIP(return, "The host's PMU doesn't count while the guest's kernel runs");

	self->e.ip = 0;
	self->e.nr = 0;
	vcpu_run_and_compare(self->vcpu, PMI_NMI, &attr, NR_SAMPLES, &self->e);
}

struct vcpu_thread {
	struct kvm_vcpu *vcpu;
	struct callchain_event *event;
};

static void *run_vcpu(void *arg)
{
	struct vcpu_thread *t = arg;

	vcpu_run_until_sampled(t->vcpu, t->event, false);
	return NULL;
}

/* The vCPU's thread is created after the event, and inherits it. */
CALLCHAIN_TEST(attr, inherited)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES, .inherit = 1 };
	struct callchain_comparison c = { .expected = &self->e };
	struct callchain_event event;
	struct vcpu_thread t = { self->vcpu, &event };
	pthread_t thread;
	unsigned int i;

	/* perf maps the ring of an event with attr.inherit only if the event is bound to a CPU. */
	callchain_event_start(&event, variant->source, &attr, 0, pin_self_to_any_cpu());
	for (i = 0; i < MAX_ROUNDS && c.nr_guest < NR_SAMPLES; i++) {
		pthread_create(&thread, NULL, run_vcpu, &t);
		pthread_join(thread, NULL);
		callchain_event_read(&event, callchain_compare, &c);
	}
	callchain_event_close(&event);
	TEST_ASSERT(c.nr_guest >= NR_SAMPLES, "Only %u walks", c.nr_guest);
}

/* Load a program that asks for no stack; @keep: whether it keeps the samples. */
static int load_bpf(bool keep)
{
	const struct bpf_insn insns[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, .imm = keep },
		{ BPF_JMP | BPF_EXIT },
	};
	union bpf_attr bpf = {
		.prog_type = BPF_PROG_TYPE_PERF_EVENT,
		.insns = (u64)insns,
		.insn_cnt = ARRAY_SIZE(insns),
		.license = (u64)"GPL",
	};

	return syscall(SYS_bpf, BPF_PROG_LOAD, &bpf, sizeof(bpf));
}

/* Such a program doesn't change the chains. */
CALLCHAIN_TEST(attr, bpf_without_stack)
{
	struct callchain_comparison c = { .expected = &self->e };
	struct perf_event_attr attr = { .sample_period = 200000 };
	int prog_fd = load_bpf(true);

	if (prog_fd < 0)
		SKIP(return, "BPF_PROG_LOAD failed: %s", strerror(errno));

	for (; c.nr_guest < NR_SAMPLES && attr.sample_period < 200000000; attr.sample_period *= 2)
		vcpu_run_sampled_bpf(self->vcpu, variant->source, &attr, prog_fd, NR_SAMPLES,
				     callchain_compare, &c);
	TEST_ASSERT(c.nr_guest >= NR_SAMPLES, "Only %u walks", c.nr_guest);
	close(prog_fd);
}

/* A sample that is dropped has no record. */
CALLCHAIN_TEST(attr, bpf_drops)
{
	const struct perf_event_attr kick_attr = { .wakeup_events = NR_SAMPLES };
	struct callchain_comparison c = { .expected = &self->e };
	struct callchain_event event, kick;
	struct receiver dropped = {};
	unsigned int round;
	int prog_fd = load_bpf(false);
	u64 count[1];

	if (prog_fd < 0)
		SKIP(return, "BPF_PROG_LOAD failed: %s", strerror(errno));

	TEST_ASSERT(!callchain_event_open(&event, variant->source, NULL, 0, -1), "perf: %s",
		    strerror(errno));
	TEST_ASSERT(!ioctl(event.fd, PERF_EVENT_IOC_SET_BPF, prog_fd), "SET_BPF: %s",
		    strerror(errno));
	event.deferred_fn = note_record;
	callchain_event_enable(&event);
	callchain_event_start(&kick, PMI_IRQ, &kick_attr, 0, -1);
	for (round = 0; round < MAX_ROUNDS && c.nr_guest < 2 * NR_SAMPLES; round++) {
		vcpu_run_until_sampled(self->vcpu, &kick, false);
		callchain_event_read(&kick, callchain_compare, &c);
	}
	callchain_event_close(&kick);
	TEST_ASSERT(read(event.fd, count, sizeof(count)) == sizeof(count) && count[0],
		    "The event has not counted");
	callchain_event_read(&event, note_sample, &dropped);
	callchain_event_close(&event);
	close(prog_fd);
	TEST_ASSERT(c.nr_guest >= 2 * NR_SAMPLES, "Only %u walks", c.nr_guest);
	TEST_ASSERT(!dropped.nr_samples && !dropped.nr_records,
		    "%u samples and %u records of an event whose samples are dropped",
		    dropped.nr_samples, dropped.nr_records);
}

TEST_HARNESS_MAIN
