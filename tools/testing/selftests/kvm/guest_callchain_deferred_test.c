// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests that are deferred to the vCPU's thread.  Only that thread can find
 * memory that was swapped out.  Other events, signals, migration and full buffers may come
 * between a sample and its deferred record.
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
#define NR_DUMPS	20
#define NR_ROUNDS	5
#define NR_FRAMES	16
#define MAX_TRIES	100
#define MAX_SAMPLES	4096

#define MAX_CONTEXTS_SYSCTL	"/proc/sys/kernel/perf_event_max_contexts_per_stack"
#define MAX_STACK_SYSCTL	"/proc/sys/kernel/perf_event_max_stack"

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

FIXTURE_VARIANT_ADD(deferred, irq)
{
	.source = PMI_IRQ_DEFERRED,
};

FIXTURE_VARIANT_ADD(deferred, nmi)
{
	.source = PMI_NMI_DEFERRED,
};

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
	if (!(source & PMI_DEFERRED))
		expect_undeferred(&e);
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

static void ignore_sample(const struct callchain_sample *s, void *arg)
{
}

/*
 * Sample until a walk has brought in the page.  On a slow host, a PMI comes before the guest runs,
 * and nothing walks: lengthen the period.
 */
static bool sample_until_in_memory(FIXTURE_DATA(deferred) * self, enum pmi_source source,
				   const struct perf_event_attr *attr)
{
	struct perf_event_attr a = attr ? *attr : (struct perf_event_attr){};
	unsigned int i;

	for (i = 0; i < MAX_TRIES && !is_in_memory(self->absent); i++) {
		a.sample_period = DEFAULT_SAMPLE_PERIOD_NS << (i / 10);
		vcpu_run_sampled(self->vcpu, source, &a, 1, ignore_sample, NULL);
	}
	return is_in_memory(self->absent);
}

/* A deferred walk starts to read the page, but doesn't wait for it; later walks find it. */
CALLCHAIN_TEST(deferred, swapped_out)
{
	unsigned int round;

	/*
	 * Pages that were just brought in are on a list of the CPU that did so, and can't be paged
	 * out from there.  MADV_PAGEOUT drains only the list of its own CPU: stay on one CPU.
	 */
	pin_self_to_cpu(sched_getcpu());
	if (!page_out(self->absent))
		SKIP(return, "The host doesn't swap");

	for (round = 0; round < NR_ROUNDS; round++) {
		compare_frames_below(self, variant->source & ~PMI_DEFERRED);
		TEST_ASSERT(!is_in_memory(self->absent), "A PMI has brought in the page");
		TEST_ASSERT(sample_until_in_memory(self, variant->source, NULL),
			    "No walk has brought in the page");
		vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &self->e);
		TEST_ASSERT(page_out(self->absent), "The page is not swapped out again");
	}
}

/* Dumps ask for this much, so that they reach beyond the absent page. */
#define DUMP_SIZE	((ABSENT + 2) * PAGE_SIZE)

static const struct perf_event_attr dump_attr = {
	.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_GUEST_STACK,
	.sample_stack_guest = DUMP_SIZE,
};

/* The expected dump, and the number of dumps compared. */
struct dumps {
	const void *stack;
	u64 sp;
	u64 size;
	unsigned int nr_guest;
};

static void compare_dump(const struct callchain_sample *s, void *arg)
{
	const struct callchain_stack_info *info = s->stack.info;
	struct dumps *d = arg;

	if (!callchain_sample_is_guest(s))
		return;

	TEST_ASSERT(info, "No dump");
	TEST_ASSERT(s->nr == 2 && info->sp == d->sp && info->pieces[0].addr == d->sp &&
		    info->pieces[0].size == d->size && !info->pieces[1].size,
		    "A chain of %lu entries, and a dump of %lu bytes, not %lu, at 0x%lx", s->nr,
		    info->pieces[0].size, d->size, info->sp);
	TEST_ASSERT(!memcmp(s->stack.data, d->stack, d->size), "A dump of something else");
	d->nr_guest++;
}

static void compare_dumps(FIXTURE_DATA(deferred) * self, enum pmi_source source, u64 size)
{
	struct dumps d = {
		.stack = addr_gva2hva(self->vm, self->stack.sp),
		.sp = self->stack.sp,
		.size = size,
	};

	vcpu_run_until_guest_sampled(self->vcpu, source, &dump_attr, NR_DUMPS, compare_dump, &d,
				     &d.nr_guest);
}

static u64 size_below_absent(FIXTURE_DATA(deferred) * self)
{
	return (self->stack.frames[ABSENT] & PAGE_MASK) - self->stack.sp;
}

/* Value of the frame pointer's register in a function that uses no frame pointer. */
#define NO_FRAME_POINTER	0xb00

/* A dump in a PMI doesn't bring the page in, but one in the vCPU's thread does. */
CALLCHAIN_TEST(deferred, swapped_out_dump)
{
	if (!STACK_DUMPS)
		SKIP(return, "This architecture has no dumps of the guest's stack");

	vcpu_set_fp(self->vcpu, NO_FRAME_POINTER);
	pin_self_to_cpu(sched_getcpu());
	if (!page_out(self->absent))
		SKIP(return, "The host doesn't swap");

	compare_dumps(self, variant->source & ~PMI_DEFERRED, size_below_absent(self));
	TEST_ASSERT(!is_in_memory(self->absent), "A PMI has brought in the page");
	TEST_ASSERT(sample_until_in_memory(self, variant->source, &dump_attr),
		    "No dump has brought in the page");
	compare_dumps(self, variant->source, DUMP_SIZE);
}

/*
 * The page is missing, and nobody fills it.  Neither a PMI nor the vCPU's thread may
 * raise a userfault for it, let alone wait: a walk finds only the frames below that page.
 * On arm64, a PMI finds only the IP.
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

	compare_frames_below(self, variant->source & ~PMI_DEFERRED);
	compare_frames_below(self, variant->source);
	if (STACK_DUMPS) {
		vcpu_set_fp(self->vcpu, NO_FRAME_POINTER);
		compare_dumps(self, variant->source & ~PMI_DEFERRED, size_below_absent(self));
		compare_dumps(self, variant->source, size_below_absent(self));
	}
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

	vcpu_run_and_compare(vcpu, variant->source & ~PMI_DEFERRED, NULL, NR_SAMPLES, &e);
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
	compare_frames_below(self, source & ~PMI_DEFERRED);
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

static void ignore_signal(int sig)
{
}

struct runner {
	struct kvm_vcpu *vcpu;
	enum pmi_source source;
	int err;
};

static void *run_sampled(void *arg)
{
	struct runner *r = arg;
	struct callchain_event event;

	callchain_event_start(&event, r->source, NULL, 0, -1);
	r->err = __vcpu_run(r->vcpu) ? errno : 0;
	callchain_event_close(&event);
	return NULL;
}

/* KVM_RUN returns at a signal: walks don't wait for the missing page, which nobody fills. */
CALLCHAIN_TEST(deferred, userfault_signal)
{
	u64 walks = vcpu_get_stat(self->vcpu, callchain_walks) + NR_SAMPLES;
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
	for (i = 0; i < MAX_TRIES && vcpu_get_stat(self->vcpu, callchain_walks) < walks; i++)
		usleep(10000);
	WRITE_ONCE(self->vcpu->run->immediate_exit, 1);
	pthread_kill(thread, SIGUSR1);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec++;
	TEST_ASSERT(!pthread_timedjoin_np(thread, NULL, &ts), "KVM_RUN does not return");

	TEST_ASSERT_EQ(r.err, EINTR);
	TEST_ASSERT(vcpu_get_stat(self->vcpu, callchain_walks) >= walks, "Too few walks");
	pfd.fd = uffd->uffd;
	TEST_ASSERT(!poll(&pfd, 1, 0), "A walk has raised a userfault");
	self->vcpu->run->immediate_exit = 0;
	uffd_stop_demand_paging(uffd);
}

#define FAILSLAB	"/sys/kernel/debug/failslab/ignore-gfp-wait"

/*
 * More than PERF_MAX_STACK_DEPTH, so that the walk allocates memory.  So many words fit into a
 * page: kvmalloc_array() uses a slab, where failslab works, and doesn't fall back to vmalloc().
 */
#define LONG_STACK	500

/* Counts of walks that found the whole chain, and of walks that found nothing. */
struct long_walks {
	const struct callchain_expectation *e;
	unsigned int nr_whole;
	unsigned int nr_empty;
};

static void count_long_walk(const struct callchain_sample *s, void *arg)
{
	struct long_walks *walks = arg;

	if (callchain_sample_is_guest(s) && s->nr == 2)
		walks->nr_empty += !s->shares_walk;
	else
		walks->nr_whole += callchain_sample_compare(s, walks->e);
}

/* Make the next allocation of this thread fail.  Once it has, the returned file reads as "0". */
static int fail_next_allocation(void)
{
	int fd = open("/proc/thread-self/fail-nth", O_RDWR);

	TEST_ASSERT(fd >= 0 && write(fd, "1", 1) == 1, "fail-nth: %s", strerror(errno));
	return fd;
}

static void restore_failslab(void)
{
	write_number(FAILSLAB, 1);
}

/* If there is no memory for a walk, its record comes all the same, and is empty. */
CALLCHAIN_TEST(deferred, no_memory_for_record)
{
	/* Samples are large, and a slow host is late to see the signal: take them less often. */
	const struct perf_event_attr attr = {
		.wakeup_events = NR_SAMPLES,
		.sample_period = 1000000,
	};
	const struct f_owner_ex owner = { .type = F_OWNER_TID, .pid = syscall(SYS_gettid) };
	const struct sigaction sa = { .sa_handler = ignore_signal };
	struct long_walks walks = { .e = &self->e };
	struct callchain_event event;
	char left = '?';
	unsigned int i;
	int fd;

	SKIP_UNLESS_OVERRIDDEN(MAX_STACK_SYSCTL, LONG_STACK);
	if (!write_number(FAILSLAB, 0))
		SKIP(return, "The kernel can't fail allocations, CONFIG_FAILSLAB");
	/* Restore the setting even if an assertion fails, as that exits. */
	atexit(restore_failslab);

	/* Run the vCPU once, so that it needs no more allocations to run. */
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &self->e);

	callchain_event_start(&event, variant->source, &attr, 0, -1);
	TEST_ASSERT(!sigaction(SIGUSR1, &sa, NULL) && !fcntl(event.fd, F_SETSIG, SIGUSR1) &&
		    !fcntl(event.fd, F_SETOWN_EX, &owner) && !fcntl(event.fd, F_SETFL, O_ASYNC),
		    "Perf's file can't signal: %s", strerror(errno));
	fd = fail_next_allocation();
	for (i = 0; i < MAX_TRIES && !walks.nr_whole; i++) {
		TEST_ASSERT(__vcpu_run(self->vcpu) && errno == EINTR, "KVM_RUN does not return");
		callchain_event_read(&event, count_long_walk, &walks);
	}
	TEST_ASSERT(pread(fd, &left, 1, 0) == 1 && left == '0', "No allocation failed");
	close(fd);
	callchain_event_close(&event);
	restore_failslab();

	TEST_ASSERT(walks.nr_empty == 1 && walks.nr_whole, "%u walks were empty, %u whole",
		    walks.nr_empty, walks.nr_whole);
}

/*
 * All samples of an exit share a deferred record.  So the chains of an event that excludes the
 * kernel's or user mode's part are not deferred: they have what a PMI finds of the other part.
 */
CALLCHAIN_TEST(deferred, exclude_callchain)
{
	struct perf_event_attr attr = { .exclude_callchain_user = 1 };
	unsigned int nr_guest;
	u64 walks;

	expect_undeferred(&self->e);
	walks = vcpu_get_stat(self->vcpu, callchain_walks);
	nr_guest = vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &self->e);
	walks = vcpu_get_stat(self->vcpu, callchain_walks) - walks;
	TEST_ASSERT_EQ(walks, PMIS_WALK ? nr_guest : 0);

	attr.exclude_callchain_user = 0;
	attr.exclude_callchain_kernel = 1;
	self->e.nr = 0;
	vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &self->e);
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
	vcpu_run_and_compare(self->vcpu, variant->source & ~PMI_DEFERRED, NULL, NR_SAMPLES,
			     &self->e);
}

/*
 * A deferred chain takes three contexts: two markers and a cookie.  With a limit of two, perf
 * defers nothing, and samples have what a PMI finds.
 */
CALLCHAIN_TEST(deferred, few_contexts)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct callchain_comparison c = { .expected = &self->e };
	struct callchain_event event;
	unsigned int i;

	SKIP_UNLESS_OVERRIDDEN(MAX_CONTEXTS_SYSCTL, 2);
	callchain_event_start(&event, variant->source, &attr, 0, -1);
	event.defers = false;
	expect_undeferred(&self->e);
	for (i = 0; i < MAX_TRIES && c.nr_guest < NR_SAMPLES; i++) {
		vcpu_run_until_sampled(self->vcpu, &event, 0);
		callchain_event_read(&event, callchain_compare, &c);
	}
	TEST_ASSERT(c.nr_guest >= NR_SAMPLES, "Only %u walks", c.nr_guest);
	callchain_event_close(&event);
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

static void note_cookie(const struct callchain_sample *s, void *arg)
{
	struct samples *samples = arg;

	if (callchain_sample_is_guest(s) && s->cookie &&
	    samples->nr_guest < ARRAY_SIZE(samples->cookies))
		samples->cookies[samples->nr_guest++] = s->cookie;
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
		vcpu_run_until_sampled(self->vcpu, &event, 0);
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
	u64 period;

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
	for (i = 0; i < samples.nr_host; i++)
		nr_missing += !is_among(samples.host_cookies[i], samples.user_records,
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
	unsigned int i, nr_joined = 0;
	u64 walks = vcpu_get_stat(self->vcpu, callchain_walks);

	/* Timers with these periods expire together again and again. */
	for (i = 0; i < NR_EVENTS; i++) {
		samples[i].e = &self->e;
		attr.sample_period = 300000 + 5000 * i;
		callchain_event_start(&events[i], variant->source, &attr, 0, -1);
	}
	TEST_ASSERT(!callchain_event_open(&kick, PMI_IRQ, &kick_attr, 0, -1), "kicker");
	for (i = 0; i < 200 && nr_joined < 4 * NR_SAMPLES; i++) {
		vcpu_run_until_sampled(self->vcpu, &kick, NR_SAMPLES);
		callchain_event_read(&kick, ignore_sample, NULL);
		nr_joined = read_all(events, samples);
	}
	for (i = 0; i < NR_EVENTS; i++)
		callchain_event_disable(&events[i]);
	nr_joined = read_all(events, samples);
	for (i = 0; i < NR_EVENTS; i++)
		callchain_event_close(&events[i]);
	callchain_event_close(&kick);

	walks = vcpu_get_stat(self->vcpu, callchain_walks) - walks;
	ksft_print_msg("%u samples, %lu walks\n", nr_joined, walks);
	TEST_ASSERT(nr_joined >= NR_SAMPLES, "Only %u samples hit the guest", nr_joined);
	TEST_ASSERT(walks == count_walks(samples),
		    "KVM counted %lu walks, perf gave out %u cookies", walks,
		    count_walks(samples));
	/* One interrupt handles all timers that expire together; NMIs come one by one. */
	if (variant->source == PMI_IRQ_DEFERRED)
		TEST_ASSERT(walks < nr_joined, "Each of %u samples had a walk of its own",
			    nr_joined);
}

/* If events of different depths share a walk, the deepest one gets its whole chain. */
CALLCHAIN_TEST(deferred, shared_by_depths)
{
	struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct samples deep = { .e = &self->e }, shallow = {};
	struct callchain_event events[3];
	unsigned int i, nr_shared = 0;

	/*
	 * Open shallow events before and after the deep one.  Their timers expire together again
	 * and again.
	 */
	for (i = 0; i < ARRAY_SIZE(events); i++) {
		attr.sample_max_stack = i == 1 ? DEFAULT_MAX_STACK : 3;
		attr.sample_period = 300000 + 5000 * i;
		callchain_event_start(&events[i], variant->source, &attr, 0, -1);
	}
	for (i = 0; i < MAX_TRIES && deep.nr_guest < 4 * NR_SAMPLES; i++) {
		vcpu_run_until_sampled(self->vcpu, &events[1], 0);
		callchain_event_read(&events[1], check_sample, &deep);
		callchain_event_read(&events[0], note_cookie, &shallow);
		callchain_event_read(&events[2], note_cookie, &shallow);
	}
	for (i = 0; i < ARRAY_SIZE(events); i++)
		callchain_event_close(&events[i]);

	for (i = 0; i < deep.nr_guest; i++)
		nr_shared += is_among(deep.cookies[i], shallow.cookies, shallow.nr_guest);
	ksft_print_msg("%u of %u walks shared\n", nr_shared, deep.nr_guest);
	/* NMIs come one by one, and may share no walk. */
	TEST_ASSERT(nr_shared || variant->source == PMI_NMI_DEFERRED, "No walk was shared");
}

/* If the ring has no room for a record, the sample that stands alone has the marker and the IP. */
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
			vcpu_run_until_sampled(self->vcpu, &kick, 3 * NR_SAMPLES);
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
	struct callchain_expectation e = self->e;
	unsigned int nr_walks = 0;
	pthread_t thread;
	cpu_set_t all;

	if (!(source & PMI_DEFERRED))
		expect_undeferred(&e);
	TEST_ASSERT(!sched_getaffinity(0, sizeof(all), &all), "sched_getaffinity()");
	memset(d, 0, sizeof(*d));
	d->vcpu_tid = syscall(SYS_gettid);
	d->source = source;
	d->e = &e;
	pthread_create(&thread, NULL, disturb, d);
	while (nr_walks < 4 * NR_SAMPLES || READ_ONCE(d->nr_rounds) < 100)
		nr_walks += vcpu_run_and_compare(self->vcpu, source, NULL, NR_SAMPLES, &e);
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
 * While the vCPU's thread stays on one CPU, that CPU's ring has both the samples and their
 * records.
 */
CALLCHAIN_TEST(deferred, cpu_event_of_pinned_vcpu)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct samples samples = { .e = &self->e };
	struct callchain_event event;
	unsigned int i;
	cpu_set_t all;
	int cpu;

	TEST_ASSERT(!sched_getaffinity(0, sizeof(all), &all), "sched_getaffinity()");
	cpu = sched_getcpu();
	pin_self_to_cpu(cpu);
	if (callchain_event_open(&event, variant->source, &attr, -1, cpu)) {
		if (errno == EACCES || errno == EPERM)
			SKIP(return, "This user may not sample CPUs");
		TEST_FAIL("perf_event_open() failed: %s", strerror(errno));
	}
	callchain_event_enable(&event);
	for (i = 0; i < MAX_TRIES && samples.nr_joined < NR_SAMPLES; i++) {
		vcpu_run_until_sampled(self->vcpu, &event, 0);
		callchain_event_read(&event, check_sample, &samples);
	}
	callchain_event_close(&event);
	TEST_ASSERT(samples.nr_joined >= NR_SAMPLES, "Only %u samples were joined",
		    samples.nr_joined);
	TEST_ASSERT(!samples.nr_alone, "%u samples of %u lack their other half", samples.nr_alone,
		    samples.nr_alone + samples.nr_joined);
	TEST_ASSERT(!sched_setaffinity(0, sizeof(all), &all), "sched_setaffinity()");
}

/* Each CPU's event has a ring of its own: a record may be in another ring than its sample. */
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
		events[i].may_lose = true;
	}
	for (try = 0; try < MAX_TRIES && !samples.nr_joined; try++) {
		run_disturbed(self, PMI_IRQ, migrate, &d);
		for (i = 0; i < nr_cpus; i++)
			callchain_event_read(&events[i], check_sample, &samples);
	}
	for (i = 0; i < nr_cpus; i++)
		callchain_event_close(&events[i]);
	ksft_print_msg("%u joined, %u alone\n", samples.nr_joined, samples.nr_alone);
	TEST_ASSERT(samples.nr_joined, "None of %u samples was joined", samples.nr_alone);
}

TEST_HARNESS_MAIN
