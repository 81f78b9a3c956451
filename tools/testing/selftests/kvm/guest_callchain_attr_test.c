// SPDX-License-Identifier: GPL-2.0-only
/*
 * An event must get the parts of a guest's callchain that its attributes ask for, no less and no
 * more, whatever other events of the same vCPU have asked for.
 */
#include <linux/bpf.h>
#include <pthread.h>
#include <sched.h>
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

/* User mode's IP when it entered the guest's kernel. */
#define USER_IP			0x401000ULL

/* User mode has entered the guest's kernel: a chain has the kernel's part, then user mode's. */
FIXTURE(attr)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct callchain_expectation e;
	unsigned int nr_kernel;		/* entries of e that are the kernel's, marker included */
};

FIXTURE_VARIANT(attr)
{
	enum pmi_source source;
};

PMI_VARIANTS(attr,);

static void create_entered_guest(FIXTURE_DATA(attr) * self, unsigned int nr_frames)
{
	const struct guest_stack_layout layout = { nr_frames, 64, 0x100 };
	struct guest_stack stack;

	self->vm = vm_create_sampled(1, guest_loop, &self->vcpu);
	guest_stack_build_and_use(self->vcpu, &stack, &layout, false);
	expect_guest_stack(&self->e, "attr", false, &stack, nr_frames + 1);

	guest_stack_enter_linux(self->vm, &stack, USER_IP, &self->e);

	self->nr_kernel = self->e.nr;
	self->e.ips[self->e.nr++] = PERF_CONTEXT_GUEST_USER;
	self->e.ips[self->e.nr++] = USER_IP;
}

FIXTURE_SETUP(attr)
{
	SKIP_UNLESS_PMI(variant->source);
	create_entered_guest(self, NR_FRAMES);
}

FIXTURE_TEARDOWN(attr)
{
	host_restore();
	kvm_vm_free(self->vm);
}

CALLCHAIN_TEST(attr, combinations)
{
	unsigned int bits;
	int fd;

	for (bits = 0; bits < 4; bits++) {
		struct perf_event_attr attr = {
			.type = PERF_TYPE_SOFTWARE,
			.size = sizeof(attr),
			.config = PERF_COUNT_SW_CPU_CLOCK,
			.sample_type = PERF_SAMPLE_CALLCHAIN,
			.disabled = 1,
			.guest_callchain = bits & 1,
			.defer_guest_callchain = bits >> 1,
		};

		fd = perf_event_open(&attr, 0, -1);
		if (bits == 2)
			TEST_ASSERT(fd < 0 && errno == EINVAL,
				    "defer_guest_callchain alone: %d, %s", fd, strerror(errno));
		else
			TEST_ASSERT(fd >= 0, "perf_event_open() failed with bits %u: %s", bits,
				    strerror(errno));
		close(fd);
	}
}

static void is_refused(struct perf_event_attr attr, const char *why)
{
	int fd = perf_event_open(&attr, 0, -1);

	TEST_ASSERT(fd < 0 && errno == EINVAL, "perf takes %s", why);
}

/* Test with which attributes perf accepts dumps of guests' stacks; arm64's dumps are empty. */
CALLCHAIN_TEST(attr, stack_combinations)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_GUEST_STACK,
		.guest_callchain = 1,
	};
	int fd;

	fd = perf_event_open(&attr, 0, -1);
	TEST_ASSERT(fd >= 0, "perf_event_open() failed: %s", strerror(errno));
	close(fd);

	attr.sample_stack_guest = 12;
	is_refused(attr, "a size that is no multiple of 8");
	attr.sample_stack_guest = 16;
	attr.guest_callchain = 0;
	is_refused(attr, "a guest's stack without its callchain");
	attr.guest_callchain = 1;
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_GUEST_STACK;
	is_refused(attr, "a guest's stack without any callchain");
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN;
	is_refused(attr, "a size without PERF_SAMPLE_GUEST_STACK");

	attr.defer_guest_callchain = 1;
	fd = perf_event_open(&attr, 0, -1);
	TEST_ASSERT(fd >= 0, "perf_event_open() with a deferred stack failed: %s", strerror(errno));
	close(fd);
	attr.sample_type |= PERF_SAMPLE_GUEST_STACK;
	is_refused(attr, "a deferred stack in the sample");
	attr.sample_type = PERF_SAMPLE_IP;
	is_refused(attr, "a deferred stack without any callchain");
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
		vcpu_run_until_sampled(self->vcpu, &event, 0);
		callchain_event_read(&event, callchain_compare, &c);
		callchain_event_read(&stock, is_stock, &n);
	}
	callchain_event_close(&event);
	callchain_event_close(&stock);
	TEST_ASSERT(c.nr_guest >= NR_SAMPLES && n.nr_guest >= NR_SAMPLES,
		    "Only %u and %u samples are the guest's", c.nr_guest, n.nr_guest);
	TEST_ASSERT(!n.nr_records, "A stock event got %u deferred chains", n.nr_records);
}

static const struct receiver_case {
	const char *name;
	struct perf_event_attr attr;
	enum pmi_source stock;
	bool no_record, no_kernel, no_user;
} receiver_cases[] = {
	{ "plain", {} },
	{ "no guest_callchain", {}, .stock = PMI_STOCK, .no_record = true },
	{ "exclude_guest", { .exclude_guest = 1 }, .no_record = true },
	{ "exclude_kernel", { .exclude_kernel = 1 }, .no_kernel = true },
	{ "exclude_callchain_kernel", { .exclude_callchain_kernel = 1 }, .no_kernel = true },
	{ "exclude_user", { .exclude_user = 1 }, .no_user = true },
	{ "exclude_callchain_user", { .exclude_callchain_user = 1 }, .no_user = true },
	{ "exclude_kernel, exclude_user", { .exclude_kernel = 1, .exclude_user = 1 },
	  .no_kernel = true, .no_user = true },
};

struct receiver {
	const struct receiver_case *c;
	struct callchain_event event;
	unsigned int nr_records;
	unsigned int nr;
	u64 ips[NR_FRAMES + 8];
};

static void check_record(const struct callchain_sample *s, void *arg)
{
	struct receiver *r = arg;

	if (!callchain_sample_is_guest(s))
		return;

	TEST_ASSERT(!r->c->no_record, "%s: a record of %lu entries", r->c->name, s->nr);
	TEST_ASSERT(s->nr == r->nr && !memcmp(s->ips, r->ips, r->nr * sizeof(u64)),
		    "%s: a record of %lu entries, not %u, from 0x%lx", r->c->name, s->nr, r->nr,
		    s->nr ? s->ips[0] : 0);
	r->nr_records++;
}

static void no_samples(const struct callchain_sample *s, void *arg)
{
	TEST_FAIL("A dummy has a sample");
}

/*
 * Open a dummy event, and store what its records must have: the kernel's part of the chain without
 * the IP, which is in the sample, and user mode's part.  A part that the event excludes is missing.
 */
static void open_receiver(struct receiver *r, const struct callchain_expectation *e,
			  unsigned int nr_kernel)
{
	struct perf_event_attr attr = r->c->attr;

	if (!r->c->no_kernel && nr_kernel > 2) {
		r->ips[r->nr++] = e->ips[0];
		memcpy(&r->ips[r->nr], &e->ips[2], (nr_kernel - 2) * sizeof(u64));
		r->nr += nr_kernel - 2;
	}
	if (!r->c->no_user) {
		memcpy(&r->ips[r->nr], &e->ips[nr_kernel], (e->nr - nr_kernel) * sizeof(u64));
		r->nr += e->nr - nr_kernel;
	}

	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_DUMMY;
	attr.defer_output = 1;
	TEST_ASSERT(!callchain_event_open_ring(&r->event, PMI_ATTR | r->c->stock, &attr, 0, -1, 64),
		    "perf_event_open() failed: %s", strerror(errno));
	callchain_event_enable(&r->event);
	r->event.deferred_fn = check_record;
}

static void run_receivers(FIXTURE_DATA(attr) * self, enum pmi_source source)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct receiver receivers[ARRAY_SIZE(receiver_cases)] = {}, *r;
	struct callchain_comparison c = { .expected = &self->e };
	struct callchain_event event;
	unsigned int i, round;

	for (i = 0; i < ARRAY_SIZE(receivers); i++) {
		receivers[i].c = &receiver_cases[i];
		open_receiver(&receivers[i], &self->e, self->nr_kernel);
	}
	callchain_event_start(&event, source | PMI_DEFERRED, &attr, 0, -1);
	for (round = 0; round < MAX_ROUNDS && c.nr_guest < NR_SAMPLES; round++) {
		vcpu_run_until_sampled(self->vcpu, &event, 0);
		callchain_event_read(&event, callchain_compare, &c);
	}
	callchain_event_close(&event);
	TEST_ASSERT(c.nr_guest >= NR_SAMPLES, "Only %u walks", c.nr_guest);

	for (r = receivers; r < receivers + ARRAY_SIZE(receivers); r++) {
		callchain_event_read(&r->event, no_samples, r);
		callchain_event_close(&r->event);
		TEST_ASSERT(r->c->no_record || r->nr_records >= c.nr_guest,
			    "%s: %u records of %u walks", r->c->name, r->nr_records, c.nr_guest);
	}
}

/* Each event that takes deferred chains gets the part that it may see. */
CALLCHAIN_TEST(attr, receivers)
{
	run_receivers(self, variant->source);
}

/*
 * With this frame pointer, a chain has only the IP.  The IP is in the sample, so deferred records
 * are empty.
 */
CALLCHAIN_TEST(attr, receivers_of_nothing)
{
	vcpu_set_fp(self->vcpu, 8);
	self->nr_kernel = 2;
	self->e.nr = 2;
	run_receivers(self, variant->source);
}

/* An event that excludes user mode sees none of it, neither in samples nor in records. */
CALLCHAIN_TEST(attr, exclude_user)
{
	const struct perf_event_attr attr = { .exclude_user = 1 };

	self->e.nr = self->nr_kernel;
	vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &self->e);
}

/* An event that excludes both parts of a chain gets an empty one. */
CALLCHAIN_TEST(attr, exclude_callchain)
{
	const struct perf_event_attr attr = {
		.exclude_callchain_kernel = 1,
		.exclude_callchain_user = 1,
	};

	self->e.nr = 0;
	vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &self->e);
}

/*
 * Chains as deep as sample_max_stack, with two markers.  A deferred walk allocates memory for the
 * last two depths.
 */
CALLCHAIN_TEST(attr, full_depth)
{
	struct perf_event_attr attr = {};

	SKIP_UNLESS_OVERRIDDEN(MAX_STACK_SYSCTL, FULL_DEPTH + 2);
	for (attr.sample_max_stack = FULL_DEPTH; attr.sample_max_stack <= FULL_DEPTH + 2;
	     attr.sample_max_stack++) {
		kvm_vm_free(self->vm);
		create_entered_guest(self, attr.sample_max_stack - 3);
		TEST_ASSERT(self->e.nr == attr.sample_max_stack + 2u, "The chain has %u entries",
			    self->e.nr);
		vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &self->e);
	}
}

/* An event that excludes the kernel sees nothing of the guest's kernel. */
CALLCHAIN_TEST(attr, exclude_kernel)
{
	const struct perf_event_attr attr = { .exclude_kernel = 1 };
	enum pmi_source source = PMI_NMI | (variant->source & PMI_DEFERRED);

	/*
	 * With exclude_kernel, only a PMU that ignores it samples the guest's kernel, so that perf
	 * has something to leave out: the PMU that KVM_SELFTEST_NMI_PMU names.
	 */
	SKIP_UNLESS_PMI(source);
	if (has_hardware_cycles())
		SKIP(return, "The host's PMU doesn't count while the guest's kernel runs");

	self->e.ip = 0;
	self->e.nr = 0;
	vcpu_run_and_compare(self->vcpu, source, &attr, NR_SAMPLES, &self->e);
}

struct vcpu_thread {
	struct kvm_vcpu *vcpu;
	struct callchain_event *event;
};

static void *run_vcpu(void *arg)
{
	struct vcpu_thread *t = arg;

	vcpu_run_until_sampled(t->vcpu, t->event, 0);
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

/*
 * There is room for one context marker, the guest kernel's, and none for a cookie: sample without
 * deferral.
 */
CALLCHAIN_TEST(attr, one_context)
{
	if (!PMIS_WALK)
		SKIP(return, "A chain that isn't deferred has one context only");

	SKIP_UNLESS_OVERRIDDEN(MAX_CONTEXTS_SYSCTL, 1);
	self->e.nr = self->nr_kernel;
	vcpu_run_and_compare(self->vcpu, variant->source & ~PMI_DEFERRED, NULL, NR_SAMPLES,
			     &self->e);
}

/* A BPF program that asks for no stack doesn't change the chains. */
CALLCHAIN_TEST(attr, bpf_without_stack)
{
	const struct bpf_insn insns[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, .imm = 1 },
		{ BPF_JMP | BPF_EXIT },
	};
	union bpf_attr bpf = {
		.prog_type = BPF_PROG_TYPE_PERF_EVENT,
		.insns = (u64)insns,
		.insn_cnt = ARRAY_SIZE(insns),
		.license = (u64)"GPL",
	};
	struct callchain_comparison c = { .expected = &self->e };
	struct perf_event_attr attr = { .sample_period = 200000 };
	int prog_fd = syscall(SYS_bpf, BPF_PROG_LOAD, &bpf, sizeof(bpf));

	if (prog_fd < 0)
		SKIP(return, "BPF_PROG_LOAD failed: %s", strerror(errno));

	for (; c.nr_guest < NR_SAMPLES && attr.sample_period < 200000000; attr.sample_period *= 2)
		vcpu_run_sampled_bpf(self->vcpu, variant->source, &attr, prog_fd, NR_SAMPLES,
				     callchain_compare, &c);
	TEST_ASSERT(c.nr_guest >= NR_SAMPLES, "Only %u walks", c.nr_guest);
	close(prog_fd);
}

TEST_HARNESS_MAIN
