// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests are found by the vCPU's thread, after the exit.  It must not bring in
 * memory, nor wait for any.  Other events, signals, migration and full buffers may come between
 * a sample and its deferred record.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "callchain_harness.h"
#include "userfaultfd_util.h"

#define NR_SAMPLES	50
#define NR_FRAMES	16
#define MAX_TRIES	100
#define MAX_SAMPLES	4096

/* The stack lies in a memslot of its own, with one frame on each page. */
#define STACK_SLOT	10
#define STACK_GPA	BIT_ULL(32)
#define STACK_PAGES	64

/* The page with this frame is made absent. */
#define ABSENT		5

FIXTURE(deferred)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct guest_stack stack;
	struct callchain_expectation e;
	void *absent;
};

FIXTURE_VARIANT(deferred)
{
	enum pmi_source source;
};

PMI_VARIANTS(deferred,);

FIXTURE_SETUP(deferred)
{
	const struct guest_stack_layout layout = {
		.nr_frames = NR_FRAMES,
		.stride = PAGE_SIZE,
		.offset = 0x7f0,
	};

	SKIP_UNLESS_PMI(variant->source);
	self->vm = vm_create_sampled(1, guest_loop, &self->vcpu);
	vm_userspace_mem_region_add(self->vm, VM_MEM_SRC_ANONYMOUS, STACK_GPA, STACK_SLOT,
				    STACK_PAGES, 0);
	self->vm->memslots[MEM_REGION_TEST_DATA] = STACK_SLOT;
	guest_stack_build_and_use(self->vcpu, &self->stack, &layout, false);
	expect_guest_stack(&self->e, "deferred", false, &self->stack, DEFAULT_MAX_STACK);
	self->absent = addr_gva2hva(self->vm, self->stack.frames[ABSENT] & PAGE_MASK);
}

FIXTURE_TEARDOWN(deferred)
{
	host_restore();
	kvm_vm_free(self->vm);
}

/* Expect only the frames below the absent page. */
static void compare_frames_below(FIXTURE_DATA(deferred) * self, enum pmi_source source)
{
	struct callchain_expectation e;

	expect_guest_stack(&e, "frames below", false, &self->stack, 1 + ABSENT);
	vcpu_run_and_compare(self->vcpu, source, NULL, NR_SAMPLES, &e);
}

static bool is_in_memory(void *page)
{
	unsigned char in_core;

	TEST_ASSERT(!mincore(page, getpagesize(), &in_core), "mincore() failed: %s",
		    strerror(errno));
	return in_core & 1;
}

/* Return true if the page was paged out.  The kernel skips a page that is in use: try again. */
static bool page_out(void *page)
{
	unsigned int try;

	for (try = 0; try < MAX_TRIES && is_in_memory(page); try++) {
		TEST_ASSERT(!madvise(page, getpagesize(), MADV_PAGEOUT),
			    "MADV_PAGEOUT failed: %s", strerror(errno));
		usleep(1000);
	}
	return !is_in_memory(page);
}

/* A walk neither waits for a page that was swapped out, nor brings it in. */
CALLCHAIN_TEST(deferred, swapped_out)
{
	/*
	 * Pages that were just brought in are on a list of the CPU that did so, and can't be paged
	 * out from there.  MADV_PAGEOUT drains only the list of its own CPU: stay on one CPU.
	 */
	pin_self_to_cpu(sched_getcpu());
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &self->e);
	if (!page_out(self->absent))
		SKIP(return, "The host doesn't swap");

	compare_frames_below(self, variant->source);
	TEST_ASSERT(!is_in_memory(self->absent), "A walk has brought in the page");
	(void)READ_ONCE(*(u8 *)self->absent);
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &self->e);
}

/*
 * The page is missing, and nobody fills it.  The vCPU's thread must not raise a userfault for it,
 * let alone wait: a walk finds only the frames below that page.
 */
CALLCHAIN_TEST(deferred, userfault_missing)
{
	struct pollfd pfd = { .events = POLLIN };
	struct uffd_desc *uffd;

	SKIP_UNLESS_USERFAULTS();
	uffd = uffd_setup_demand_paging(UFFDIO_REGISTER_MODE_MISSING, 0, self->absent,
					getpagesize(), 0, NULL);
	TEST_ASSERT(!madvise(self->absent, getpagesize(), MADV_DONTNEED),
		    "MADV_DONTNEED failed: %s", strerror(errno));

	compare_frames_below(self, variant->source);
	pfd.fd = uffd->uffd;
	TEST_ASSERT(!poll(&pfd, 1, 0), "A walk has raised a userfault");
	uffd_stop_demand_paging(uffd);
}

/* As above, but the missing page is a page table of the guest that leads only to the stack. */
CALLCHAIN_TEST(deferred, userfault_missing_table)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100, .far = true };
	struct pollfd pfd = { .events = POLLIN };
	struct callchain_expectation e;
	struct guest_stack stack;
	struct uffd_desc *uffd;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	void *table;

	SKIP_UNLESS_USERFAULTS();
	vm = vm_create_sampled(1, guest_loop, &vcpu);
	guest_stack_build_and_use(vcpu, &stack, &layout, false);
	expect_guest_stack(&e, "table missing", false, &stack, 1);
	table = (void *)((unsigned long)vm_get_pte_level(vm, stack.gva, PG_LEVEL_4K) &
			 PAGE_MASK);
	uffd = uffd_setup_demand_paging(UFFDIO_REGISTER_MODE_MISSING, 0, table, getpagesize(),
					0, NULL);
	TEST_ASSERT(!madvise(table, getpagesize(), MADV_DONTNEED), "MADV_DONTNEED failed: %s",
		    strerror(errno));

	vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);
	pfd.fd = uffd->uffd;
	TEST_ASSERT(!poll(&pfd, 1, 0), "A walk has raised a userfault");
	uffd_stop_demand_paging(uffd);
	kvm_vm_free(vm);
}

/* Bits of /proc/self/pagemap: userfaultfd protects the page; the page is present. */
#define PAGEMAP_UFFD	BIT_ULL(57)
#define PAGEMAP_PRESENT	BIT_ULL(63)

static u64 read_pagemap(void *page)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	u64 entry;

	TEST_ASSERT(fd >= 0 && pread(fd, &entry, sizeof(entry), (u64)page / getpagesize() *
				     sizeof(entry)) == sizeof(entry),
		    "/proc/self/pagemap: %s", strerror(errno));
	close(fd);
	return entry & (PAGEMAP_UFFD | PAGEMAP_PRESENT);
}

/* Register a page with a new userfaultfd; return -1 if the kernel lacks these features. */
static int register_page(void *page, u64 features, u64 mode)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	struct uffdio_register reg = {
		.range = { (u64)page, getpagesize() },
		.mode = mode,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	TEST_ASSERT(fd >= 0, "userfaultfd(): %s", strerror(errno));
	if (ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return -1;
	}
	TEST_ASSERT(!ioctl(fd, UFFDIO_REGISTER, &reg), "UFFDIO_REGISTER: %s", strerror(errno));
	return fd;
}

/*
 * In one test, the page is absent and protected against writes: a read would map the zero page.  In
 * the other, it is present and protected against all accesses: a read would lift the protection.
 * Walks must do neither.
 */
static void compare_protected(FIXTURE_DATA(deferred) * self, enum pmi_source source, u64 expected)
{
	TEST_ASSERT_EQ(read_pagemap(self->absent), expected);
	compare_frames_below(self, source);
	TEST_ASSERT_EQ(read_pagemap(self->absent), expected);
}

/* A page that isn't there, and is protected against writes: a read would map the zero page. */
CALLCHAIN_TEST(deferred, userfault_write_protected)
{
	struct uffdio_writeprotect wp = {
		.range = { (u64)self->absent, getpagesize() },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	int fd;

	SKIP_UNLESS_USERFAULTS();
	fd = register_page(self->absent, UFFD_FEATURE_WP_ASYNC, UFFDIO_REGISTER_MODE_WP);
	if (fd < 0)
		SKIP(return, "The host doesn't protect pages that aren't there");

	TEST_ASSERT(!madvise(self->absent, getpagesize(), MADV_DONTNEED),
		    "MADV_DONTNEED failed: %s", strerror(errno));
	TEST_ASSERT(!ioctl(fd, UFFDIO_WRITEPROTECT, &wp), "UFFDIO_WRITEPROTECT: %s",
		    strerror(errno));
	compare_protected(self, variant->source, PAGEMAP_UFFD);
	close(fd);
}

/* Userspace protects a page against all accesses to see whether it is used. */
CALLCHAIN_TEST(deferred, userfault_access_protected)
{
	struct uffdio_rwprotect rwp = {
		.range = { (u64)self->absent, getpagesize() },
		.mode = UFFDIO_RWPROTECT_MODE_RWP,
	};
	int fd;

	SKIP_UNLESS_USERFAULTS();
	fd = register_page(self->absent, UFFD_FEATURE_RWP | UFFD_FEATURE_RWP_ASYNC,
			   UFFDIO_REGISTER_MODE_RWP);
	if (fd < 0)
		SKIP(return, "The host doesn't protect pages against reads");

	TEST_ASSERT(!ioctl(fd, UFFDIO_RWPROTECT, &rwp), "UFFDIO_RWPROTECT: %s", strerror(errno));
	compare_protected(self, variant->source, PAGEMAP_UFFD | PAGEMAP_PRESENT);
	close(fd);
}

static void ignore_sample(const struct callchain_sample *s, void *arg)
{
}

static void ignore_signal(int sig)
{
}

struct runner {
	struct kvm_vcpu *vcpu;
	enum pmi_source source;
	struct callchain_event event;
	bool running;
	int err;
};

static void *run_sampled(void *arg)
{
	struct runner *r = arg;

	callchain_event_start(&r->event, r->source, NULL, 0, -1);
	WRITE_ONCE(r->running, true);
	r->err = __vcpu_run(r->vcpu) ? errno : 0;
	callchain_event_disable(&r->event);
	return NULL;
}

/* KVM_RUN returns at a signal: walks don't wait for the missing page, which nobody fills. */
CALLCHAIN_TEST(deferred, userfault_signal)
{
	struct runner r = { .vcpu = self->vcpu, .source = variant->source };
	const struct sigaction sa = { .sa_handler = ignore_signal };
	struct pollfd pfd = { .events = POLLIN };
	struct uffd_desc *uffd;
	struct timespec ts;
	pthread_t thread;
	unsigned int i;

	SKIP_UNLESS_USERFAULTS();
	TEST_ASSERT(!sigaction(SIGUSR1, &sa, NULL), "sigaction(SIGUSR1)");
	uffd = uffd_setup_demand_paging(UFFDIO_REGISTER_MODE_MISSING, 0, self->absent,
					getpagesize(), 0, NULL);
	TEST_ASSERT(!madvise(self->absent, getpagesize(), MADV_DONTNEED),
		    "MADV_DONTNEED failed: %s", strerror(errno));

	pthread_create(&thread, NULL, run_sampled, &r);
	for (i = 0; i < MAX_TRIES && (!READ_ONCE(r.running) ||
				      callchain_event_count_walks(&r.event, 0) < NR_SAMPLES); i++)
		usleep(10000);
	WRITE_ONCE(self->vcpu->run->immediate_exit, 1);
	pthread_kill(thread, SIGUSR1);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec++;
	TEST_ASSERT(!pthread_timedjoin_np(thread, NULL, &ts), "KVM_RUN does not return");

	TEST_ASSERT_EQ(r.err, EINTR);
	TEST_ASSERT(callchain_event_count_walks(&r.event, 0) >= NR_SAMPLES, "Too few walks");
	callchain_event_close(&r.event);
	pfd.fd = uffd->uffd;
	TEST_ASSERT(!poll(&pfd, 1, 0), "A walk has raised a userfault");
	self->vcpu->run->immediate_exit = 0;
	uffd_stop_demand_paging(uffd);
}

/* Readers would take the guest's IP for a context marker, so perf leaves the chain empty. */
CALLCHAIN_TEST(deferred, ip_like_a_marker)
{
	const gva_t loop = (gva_t)PERF_CONTEXT_GUEST_KERNEL;
	gpa_t gpa = vm_phy_page_alloc(self->vm, KVM_GUEST_PAGE_TABLE_MIN_PADDR, 0);

	vcpu_map_upper_half(self->vcpu, loop & ~(PAGE_SIZE - 1), gpa);
	/* One instruction of at most 4 bytes. */
	memcpy(addr_gpa2hva(self->vm, gpa + loop % PAGE_SIZE), guest_loop, sizeof(u32));
	guest_stack_use(self->vcpu, &self->stack, loop);

	self->e.ip = loop;
	self->e.nr = 0;
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &self->e);
}

/* Zero is the IP of a guest whose registers the host can't see. */
CALLCHAIN_TEST(deferred, ip_zero)
{
	gpa_t gpa = vm_phy_page_alloc(self->vm, KVM_GUEST_PAGE_TABLE_MIN_PADDR, 0);

	virt_pg_map(self->vm, 0, gpa);
	/* One instruction of at most 4 bytes. */
	memcpy(addr_gpa2hva(self->vm, gpa), guest_loop, sizeof(u32));
	guest_stack_use(self->vcpu, &self->stack, 0);

	self->e.ip = 0;
	self->e.nr = 0;
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &self->e);
}

/* The samples of an event, and the records it was sent. */
struct samples {
	const struct callchain_expectation *e;
	unsigned int nr_guest;		/* joined samples, the first one of each walk */
	unsigned int nr_joined;
	unsigned int nr_alone;
	unsigned int nr_host;		/* samples of the host that have a cookie */
	u64 host_cookies[MAX_SAMPLES];
	u64 cookies[MAX_SAMPLES];	/* of the nr_guest samples */
	unsigned int nr_no_cookie;	/* records of user mode without one, see check_record() */
	unsigned int nr_user_records;
	u64 user_records[MAX_SAMPLES];
};

static void check_sample(const struct callchain_sample *s, void *arg)
{
	struct samples *samples = arg;

	if (s->alone) {
		TEST_ASSERT(s->nr == 2 && s->ips[0] == (u64)PERF_CONTEXT_GUEST_KERNEL &&
			    s->ips[1] == (u64)guest_loop && s->ip == (u64)guest_loop,
			    "A sample that stands alone has %lu entries, IP 0x%lx", s->nr, s->ip);
		samples->nr_alone++;
		return;
	}

	if (callchain_sample_is_guest(s) && !s->hit_kvm) {
		TEST_ASSERT(s->cookie && !(s->cookie >> 32 & 1), "The cookie is 0x%lx", s->cookie);
		samples->nr_joined++;
	} else if (s->cookie) {
		TEST_ASSERT(s->cookie >> 32 & 1, "A cookie of user mode is 0x%lx", s->cookie);
		TEST_ASSERT(samples->nr_host < ARRAY_SIZE(samples->host_cookies), "Samples");
		samples->host_cookies[samples->nr_host++] = s->cookie;
	}

	if (callchain_sample_compare(s, samples->e)) {
		TEST_ASSERT(samples->nr_guest < ARRAY_SIZE(samples->cookies), "Samples");
		samples->cookies[samples->nr_guest++] = s->cookie;
	}
}

static void check_record(const struct callchain_sample *s, void *arg)
{
	struct samples *samples = arg;

	if (callchain_sample_is_guest(s))
		return;

	TEST_ASSERT(s->cpumode == PERF_RECORD_MISC_USER && s->nr,
		    "A record of cpumode %u with %lu entries", s->cpumode, s->nr);
	/*
	 * unwind_reset_info() isn't atomic: if an NMI comes between its two steps, the sample has
	 * a cookie, but its record has none.
	 */
	if (!s->cookie) {
		samples->nr_no_cookie++;
		return;
	}
	TEST_ASSERT(s->cookie >> 32 & 1, "A record of user mode has cookie 0x%lx", s->cookie);
	TEST_ASSERT(samples->nr_user_records < ARRAY_SIZE(samples->user_records), "Records");
	samples->user_records[samples->nr_user_records++] = s->cookie;
}

static bool is_among(u64 cookie, const u64 *cookies, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (cookies[i] == cookie)
			return true;
	}
	return false;
}

static void sample_host_and_guest(FIXTURE_DATA(deferred) * self, enum pmi_source source,
				  u64 period, struct samples *samples)
{
	const struct perf_event_attr attr = {
		.wakeup_events = 5,
		.sample_period = period,
		.defer_callchain = 1,
		.defer_output = 1,
	};
	struct callchain_event event;
	unsigned int i;

	callchain_event_start(&event, source, &attr, 0, -1);
	event.deferred_fn = check_record;
	for (i = 0; i < 10000 && (samples->nr_guest < NR_SAMPLES ||
				  samples->nr_host < (HOST_DEFERS ? 5 : 0)); i++) {
		/* Leave room for the samples of a whole ring. */
		if (samples->nr_host >= MAX_SAMPLES / 2 || samples->nr_guest >= MAX_SAMPLES / 2)
			break;
		vcpu_run_until_sampled(self->vcpu, &event, false);
		callchain_event_read(&event, check_sample, samples);
	}
	callchain_event_disable(&event);
	callchain_event_read(&event, check_sample, samples);
	callchain_event_close(&event);
}

/*
 * One event samples host and guest.  Chains of the host's user mode are deferred until task work
 * runs, in KVM_RUN or when it returns.  Chains of the guest are deferred until after the exit.  A
 * record of the host must not be taken for one of the guest, nor vice versa.  On arm64, the host's
 * chains are not deferred.
 */
CALLCHAIN_TEST(deferred, host_and_guest)
{
	unsigned int i, nr_missing = 0;
	struct samples samples = {};
	u64 period, last;

	/* As in vcpu_run_and_compare(), a slow host needs time between PMIs. */
	for (period = 300000; samples.nr_guest < NR_SAMPLES && period < 20000000; period *= 2) {
		samples = (struct samples) { .e = &self->e };
		sample_host_and_guest(self, variant->source, period, &samples);
	}

	TEST_ASSERT(samples.nr_guest >= NR_SAMPLES, "Only %u walks", samples.nr_guest);
	TEST_ASSERT(HOST_DEFERS || !samples.nr_host, "%u samples of the host have a cookie",
		    samples.nr_host);
	if (!samples.nr_host)
		SKIP(return, "The host defers no callchains of user mode, or is not hit");
	/* The ioctl() that disables the event may be sampled: its record comes too late. */
	last = samples.host_cookies[samples.nr_host - 1];
	for (i = 0; i < samples.nr_host; i++)
		nr_missing += samples.host_cookies[i] != last &&
			      !is_among(samples.host_cookies[i], samples.user_records,
					samples.nr_user_records);
	TEST_ASSERT(nr_missing <= samples.nr_no_cookie,
		    "%u of the host's %u cookies have no record, and %u records no cookie",
		    nr_missing, samples.nr_host, samples.nr_no_cookie);
}

#define NR_EVENTS	4

static unsigned int read_all(struct callchain_event *events, struct samples *samples)
{
	unsigned int i, nr_joined = 0;

	for (i = 0; i < NR_EVENTS; i++) {
		callchain_event_read(&events[i], check_sample, &samples[i]);
		nr_joined += samples[i].nr_joined;
	}
	return nr_joined;
}

static unsigned int count_walks(const struct samples *samples)
{
	u64 *cookies = calloc(NR_EVENTS, sizeof(samples->cookies));
	unsigned int i, nr_walks = 0;
	const struct samples *s;

	TEST_ASSERT(cookies, "calloc() failed");
	for (s = samples; s < samples + NR_EVENTS; s++) {
		for (i = 0; i < s->nr_guest; i++) {
			if (!is_among(s->cookies[i], cookies, nr_walks))
				cookies[nr_walks++] = s->cookies[i];
		}
	}
	free(cookies);
	return nr_walks;
}

/* Samples that several events take at one exit share a walk. */
CALLCHAIN_TEST(deferred, shared_walk)
{
	struct perf_event_attr attr = {};
	const struct perf_event_attr kick_attr = {
		.sample_period = 300000,
		.wakeup_events = NR_SAMPLES,
		.exclude_guest = 1,
	};
	struct samples samples[NR_EVENTS] = {};
	struct callchain_event events[NR_EVENTS], kick;
	unsigned int i, nr_joined = 0, walks;

	/* Timers with these periods expire together again and again. */
	for (i = 0; i < NR_EVENTS; i++) {
		samples[i].e = &self->e;
		attr.sample_period = 300000 + 5000 * i;
		callchain_event_start(&events[i], variant->source, &attr, 0, -1);
	}
	TEST_ASSERT(!callchain_event_open(&kick, PMI_IRQ | PMI_STOCK, &kick_attr, 0, -1),
		    "kicker");
	for (i = 0; i < 200 && nr_joined < 4 * NR_SAMPLES; i++) {
		vcpu_run_until_sampled(self->vcpu, &kick, true);
		callchain_event_read(&kick, ignore_sample, NULL);
		nr_joined = read_all(events, samples);
	}
	for (i = 0; i < NR_EVENTS; i++)
		callchain_event_disable(&events[i]);
	nr_joined = read_all(events, samples);
	for (i = 0; i < NR_EVENTS; i++)
		callchain_event_close(&events[i]);
	callchain_event_close(&kick);

	walks = count_walks(samples);
	ksft_print_msg("%u samples, %u walks\n", nr_joined, walks);
	TEST_ASSERT(nr_joined >= NR_SAMPLES, "Only %u samples hit the guest", nr_joined);
	/* One interrupt handles all timers that expire together; NMIs come one by one. */
	if (variant->source == PMI_IRQ)
		TEST_ASSERT(walks < nr_joined, "Each of %u samples had a walk of its own",
			    nr_joined);
}

/*
 * If the ring has no room for a record, the sample that stands alone has the marker and the IP.
 * A sample for which there is no room asks for no record.
 */
CALLCHAIN_TEST(deferred, buffer_full)
{
	const struct perf_event_attr attr = { .wakeup_events = 1, .sample_period = 100000 };
	const struct perf_event_attr kick_attr = { .wakeup_events = 3 * NR_SAMPLES };
	struct samples samples = { .e = &self->e };
	struct callchain_event event, kick;
	unsigned int round, i;

	TEST_ASSERT(!callchain_event_open_ring(&event, variant->source, &attr, 0, -1, 1),
		    "perf_event_open() failed: %s", strerror(errno));
	callchain_event_enable(&event);
	event.may_lose = true;
	TEST_ASSERT(!callchain_event_open(&kick, PMI_IRQ, &kick_attr, 0, -1), "kicker");
	for (round = 0; round < 20; round++) {
		/* On a slow host, one run takes too few samples to fill the ring. */
		for (i = 0; i < (round < 10 ? 1 : 8); i++) {
			vcpu_run_until_sampled(self->vcpu, &kick, true);
			callchain_event_read(&kick, ignore_sample, NULL);
		}
		callchain_event_read(&event, check_sample, &samples);
	}
	callchain_event_close(&kick);
	callchain_event_close(&event);
	ksft_print_msg("%u joined, %u alone, %lu lost\n", samples.nr_joined, samples.nr_alone,
		       event.nr_lost);
	TEST_ASSERT(samples.nr_joined + samples.nr_alone, "No sample hit the guest");
	TEST_ASSERT(event.nr_lost, "The buffer was never full");
}

struct disturber {
	pid_t vcpu_tid;
	enum pmi_source source;
	const struct callchain_expectation *e;
	bool stop;
	unsigned int nr_rounds;
	struct samples samples;
};

/* Open and close events, so that some come or go between a sample and its record. */
static void *open_and_close(void *arg)
{
	const struct perf_event_attr attr = { .sample_period = 50000 };
	struct disturber *d = arg;

	d->samples.e = d->e;
	while (!READ_ONCE(d->stop)) {
		struct callchain_event event;
		unsigned int i;

		callchain_event_start(&event, d->source, &attr, d->vcpu_tid, -1);
		event.may_lose = true;
		for (i = d->nr_rounds % 64; i; i--)
			sched_yield();
		d->samples.nr_guest = 0;
		d->samples.nr_host = 0;
		callchain_event_read(&event, check_sample, &d->samples);
		callchain_event_close(&event);
		WRITE_ONCE(d->nr_rounds, d->nr_rounds + 1);
	}
	return NULL;
}

/* Move the vCPU's thread from one CPU to another. */
static void *migrate(void *arg)
{
	struct disturber *d = arg;
	cpu_set_t cpus;

	while (!READ_ONCE(d->stop)) {
		CPU_ZERO(&cpus);
		CPU_SET(d->nr_rounds % get_nprocs(), &cpus);
		TEST_ASSERT(!sched_setaffinity(d->vcpu_tid, sizeof(cpus), &cpus),
			    "sched_setaffinity() failed: %s", strerror(errno));
		WRITE_ONCE(d->nr_rounds, d->nr_rounds + 1);
		usleep(100);
	}
	return NULL;
}

static void run_disturbed(FIXTURE_DATA(deferred) * self, enum pmi_source source,
			  void *(*disturb)(void *), struct disturber *d)
{
	unsigned int nr_walks = 0;
	pthread_t thread;
	cpu_set_t all;

	TEST_ASSERT(!sched_getaffinity(0, sizeof(all), &all), "sched_getaffinity()");
	memset(d, 0, sizeof(*d));
	d->vcpu_tid = syscall(SYS_gettid);
	d->source = source;
	d->e = &self->e;
	pthread_create(&thread, NULL, disturb, d);
	while (nr_walks < 4 * NR_SAMPLES || READ_ONCE(d->nr_rounds) < 100)
		nr_walks += vcpu_run_and_compare(self->vcpu, source, NULL, NR_SAMPLES, &self->e);
	WRITE_ONCE(d->stop, true);
	pthread_join(thread, NULL);
	TEST_ASSERT(!sched_setaffinity(0, sizeof(all), &all), "sched_setaffinity()");
}

CALLCHAIN_TEST(deferred, events_come_and_go)
{
	struct disturber d = {};
	unsigned int i;

	for (i = 0; i < MAX_TRIES && !d.samples.nr_joined; i++)
		run_disturbed(self, variant->source, open_and_close, &d);
	ksft_print_msg("%u events, %u samples joined, %u alone\n", d.nr_rounds,
		       d.samples.nr_joined, d.samples.nr_alone);
	TEST_ASSERT(d.samples.nr_joined, "No sample was joined");
}

CALLCHAIN_TEST(deferred, migrated)
{
	struct disturber d = {};

	run_disturbed(self, variant->source, migrate, &d);
}

/*
 * Each CPU's event has a ring of its own.  The ring that has a sample has its record, too, wherever
 * the vCPU's thread goes: it can't leave the CPU before the record is written.
 */
CALLCHAIN_TEST(deferred, cpu_events)
{
	const struct perf_event_attr attr = { .sample_period = 2000000 };
	unsigned int i, try, nr_cpus = min_t(unsigned int, get_nprocs(), 8);
	struct samples samples = { .e = &self->e };
	struct callchain_event events[8];
	struct disturber d = {};

	for (i = 0; i < nr_cpus; i++) {
		if (callchain_event_open(&events[i], variant->source, &attr, -1, i)) {
			if (errno == EACCES || errno == EPERM)
				SKIP(return, "This user may not sample CPUs");
			TEST_FAIL("perf_event_open() failed: %s", strerror(errno));
		}
		callchain_event_enable(&events[i]);
	}
	for (try = 0; try < MAX_TRIES && samples.nr_joined < NR_SAMPLES; try++) {
		run_disturbed(self, PMI_IRQ, migrate, &d);
		for (i = 0; i < nr_cpus; i++)
			callchain_event_read(&events[i], check_sample, &samples);
	}
	for (i = 0; i < nr_cpus; i++)
		callchain_event_close(&events[i]);
	TEST_ASSERT(samples.nr_joined >= NR_SAMPLES && !samples.nr_alone,
		    "%u samples have their record, %u don't", samples.nr_joined, samples.nr_alone);
}

TEST_HARNESS_MAIN
