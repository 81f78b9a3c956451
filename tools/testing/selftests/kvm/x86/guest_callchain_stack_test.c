// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dumps of a guest's stack in perf samples.  Stacks have known words, and end where
 * no more can be read; dumps are compared byte by byte with what was built.
 *
 * On stacks as a Linux kernel has them, also test callchains that continue from the
 * kernel to user mode.
 */
#include <linux/perf_event.h>
#include <sys/mman.h>

#include "callchain_harness.h"

/* Few enough for half of the ring buffer: poll() also returns when half of it is full. */
#define NR_SAMPLES	10

/* The largest dump touches 17 pages; one more follows. */
#define NR_PAGES	18

/* Sizes in a Linux kernel, in bytes. */
#define THREAD_SIZE	(4 * PAGE_SIZE)
#define PT_REGS_SIZE	168

static struct perf_event_attr attr_of_size(unsigned int size)
{
	return (struct perf_event_attr) {
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_GUEST_STACK,
		.sample_stack_guest = size,
	};
}

/*
 * struct dump_expectation - what each sample of a guest must have
 * @chain:	cpumode, IP and callchain
 * @vm:		the VM
 * @info:	registers, and the pieces of the stack that can be read
 * @size:	how many bytes the event asks for
 * @found:	size of a deferred dump if only the copy finds that some of its bytes can't be
 *		read; zero if all of them can
 * @none:	the sample has no dump
 * @deferred:	the dump is deferred
 * @nr_guest:	how many samples of the guest were compared; those that share a walk count as
 *		one
 */
struct dump_expectation {
	struct callchain_expectation chain;
	struct kvm_vm *vm;
	struct callchain_stack_info info;
	unsigned int size;
	unsigned int found;
	bool none;
	bool deferred;
	unsigned int nr_guest;
};

/* As addr_gva2hva(), which works only for the lower half of the addresses. */
static void *gva2hva(struct kvm_vm *vm, gva_t gva)
{
	u64 *pte = vm_get_pte_level(vm, gva, PG_LEVEL_4K);

	return addr_gpa2hva(vm, PTE_GET_PA(*pte)) + gva % PAGE_SIZE;
}

static void compare_bytes(const struct dump_expectation *e, const u8 *data, u64 gva, u64 size)
{
	u64 i;

	for (i = 0; i < size; i++) {
		u8 byte = *(u8 *)gva2hva(e->vm, gva + i);

		TEST_ASSERT(data[i] == byte, "%s: the byte of 0x%lx is 0x%x, not 0x%x",
			    e->chain.name, gva + i, data[i], byte);
	}
}

static void compare_dump(const struct callchain_sample *s, void *arg)
{
	const struct callchain_stack_info *info = s->stack.info;
	struct dump_expectation *e = arg;
	const u8 *data = s->stack.data;
	const char *name = e->chain.name;
	unsigned int i, size = e->size;

	if (!callchain_sample_is_guest(s)) {
		TEST_ASSERT(!s->stack.size, "%s: a sample of the host has a guest's stack", name);
		return;
	}

	e->nr_guest += callchain_sample_compare(s, &e->chain);
	if (e->none) {
		TEST_ASSERT(!s->stack.size, "%s: %lu bytes of stack", name, s->stack.size);
		return;
	}

	/* A deferred record is only as long as what was found. */
	if (e->deferred)
		size = e->found ?: round_up(e->info.pieces[0].size + e->info.pieces[1].size, 8);
	TEST_ASSERT(s->stack.size == size,
		    "%s: %lu bytes of stack", name, s->stack.size);
	TEST_ASSERT(!memcmp(info, &e->info, sizeof(*info)),
		    "%s: abi %lu, ip 0x%lx, sp 0x%lx, fp 0x%lx, flags 0x%lx, root 0x%lx, %lu bytes at 0x%lx, %lu at 0x%lx",
		    name, info->abi, info->ip, info->sp, info->fp, info->flags, info->root,
		    info->pieces[0].size, info->pieces[0].addr, info->pieces[1].size,
		    info->pieces[1].addr);
	for (i = 0; i < ARRAY_SIZE(info->pieces); i++) {
		compare_bytes(e, data, info->pieces[i].addr, info->pieces[i].size);
		data += info->pieces[i].size;
	}
}

/* As vcpu_run_and_compare(), but compare the dump of each sample, too. */
static void run_and_compare(struct kvm_vcpu *vcpu, enum pmi_source source,
			    struct perf_event_attr attr, struct dump_expectation *e)
{
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	vcpu_set_if(vcpu);
	vcpu_regs_get(vcpu, &regs);
	vcpu_sregs_get(vcpu, &sregs);
	e->vm = vcpu->vm;
	e->size = attr.sample_stack_guest ?: DEFAULT_GUEST_STACK_SIZE;
	e->info.abi = PERF_SAMPLE_REGS_ABI_64;
	e->info.ip = e->chain.ip;
	e->info.sp = regs.rsp;
	e->info.fp = regs.rbp;
	e->info.flags = regs.rflags;
	e->info.root = sregs.cr3;
	e->info.pieces[0].addr = regs.rsp;
	e->deferred = source & PMI_DEFERRED && !attr.exclude_callchain_kernel &&
		      !attr.exclude_callchain_user;
	e->nr_guest = 0;
	vcpu_run_until_guest_sampled(vcpu, source, &attr, NR_SAMPLES, compare_dump, e,
				     &e->nr_guest);
}

/* Expect a chain of the instruction pointer alone. */
static void expect_ip(struct callchain_expectation *e, const char *name, bool user)
{
	const struct guest_stack none = {};

	expect_guest_stack(e, name, user, &none, DEFAULT_MAX_STACK);
}

FIXTURE(stack)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	gva_t gva;
};

FIXTURE_VARIANT(stack)
{
	enum pmi_source source;
	bool user;
};

PMI_VARIANTS(stack, _kernel, .user = false);
PMI_VARIANTS(stack, _user, .user = true);

/* Fill pages with different words: each has its address, changed so that it isn't canonical. */
static void fill(struct kvm_vm *vm, gva_t gva, unsigned int nr_pages)
{
	u64 i;

	for (i = 0; i < nr_pages * PAGE_SIZE; i += 8)
		*(u64 *)gva2hva(vm, gva + i) = 0xdead000000000000ULL ^ (gva + i);
}

static void assert_filled(struct kvm_vm *vm, gva_t gva, unsigned int nr_pages)
{
	u64 i;

	for (i = 0; i < nr_pages * PAGE_SIZE; i += 8)
		TEST_ASSERT_EQ(*(u64 *)gva2hva(vm, gva + i), 0xdead000000000000ULL ^ (gva + i));
}

/* Allocate pages, aligned as a task's stack; the page behind them is not mapped. */
static gva_t alloc_stack(struct kvm_vm *vm, gva_t min, unsigned int nr_pages, bool user)
{
	gva_t gva = vm_alloc(vm, (nr_pages + 5) * PAGE_SIZE, min);

	gva = round_up(gva, THREAD_SIZE);
	*vm_get_pte_level(vm, gva + nr_pages * PAGE_SIZE, PG_LEVEL_4K) = 0;
	fill(vm, gva, nr_pages);
	if (user)
		vm_set_user_accessible(vm, gva, nr_pages);
	return gva;
}

FIXTURE_SETUP(stack)
{
	SKIP_UNLESS_PMI(variant->source);
	self->vm = vm_create_looping(&self->vcpu, 4, variant->user);
	self->gva = alloc_stack(self->vm, DEFAULT_GUEST_STACK_VADDR_MIN, NR_PAGES,
				variant->user);
}

FIXTURE_TEARDOWN(stack)
{
	kvm_vm_free(self->vm);
}

static void set_sp(struct kvm_vcpu *vcpu, u64 sp)
{
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	regs.rsp = sp;
	/* A walk by frame pointers ends here. */
	regs.rbp = 0xb00;
	vcpu_regs_set(vcpu, &regs);
}

static const struct {
	const char *name;
	unsigned int offset;
	unsigned int size;
	unsigned int expected;
} dumps[] = {
	{ "4 KiB if the event doesn't say",	0,		0,	4096 },
	{ "one word",				0x100,		8,	8 },
	{ "from an odd address",		0x123,		512,	512 },
	{ "two pages",				0xff8,		16,	16 },
	{ "three pages",			0xff8,		8192,	8192 },
	{ "60 KiB",				0x7f8,		61440,	61440 },
	{ "the last word",			NR_PAGES * 4096 - 8,	4096,	8 },
	{ "the last three bytes",		NR_PAGES * 4096 - 3,	4096,	3 },
	{ "half a page before the end",		NR_PAGES * 4096 - 2048,	4096,	2048 },
	{ "a page that is not mapped",		NR_PAGES * 4096,	4096,	0 },
};

CALLCHAIN_TEST(stack, known_words)
{
	struct dump_expectation e;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(dumps); i++) {
		e = (struct dump_expectation){ .info.pieces[0].size = dumps[i].expected };
		expect_ip(&e.chain, dumps[i].name, variant->user);
		set_sp(self->vcpu, self->gva + dumps[i].offset);
		run_and_compare(self->vcpu, variant->source, attr_of_size(dumps[i].size), &e);
	}
}

/* A record's size has 16 bits: the largest dump has fewer bytes than the event asks for. */
static void is_largest(const struct callchain_sample *s, void *arg)
{
	struct dump_expectation *e = arg;
	u64 size = s->stack.size;

	if (!callchain_sample_is_guest(s))
		return;

	TEST_ASSERT(size > 65000 && size < 65528 && s->stack.info->pieces[0].size == size &&
		    !s->stack.info->pieces[1].size, "%lu bytes of stack", size);
	compare_bytes(e, s->stack.data, e->info.sp, size);
	e->nr_guest++;
}

CALLCHAIN_TEST(stack, largest)
{
	const struct perf_event_attr attr = attr_of_size(65528);
	struct dump_expectation e = { .vm = self->vm, .info.sp = self->gva + 0x7f8 };

	set_sp(self->vcpu, e.info.sp);
	vcpu_set_if(self->vcpu);
	vcpu_run_until_guest_sampled(self->vcpu, variant->source, &attr, NR_SAMPLES, is_largest,
				     &e, &e.nr_guest);
}

/*
 * Dumps must not change the stack, or the leaf entries that map it, whose Accessed and Dirty bits
 * are clear.
 */
CALLCHAIN_TEST(stack, no_trace)
{
	struct dump_expectation e = { .info.pieces[0].size = 8192 };
	u64 *ptes[3], before[3];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ptes); i++) {
		ptes[i] = vm_get_pte_level(self->vm, self->gva + i * PAGE_SIZE, PG_LEVEL_4K);
		*ptes[i] &= ~(PTE_ACCESSED_MASK(&self->vm->mmu) | PTE_DIRTY_MASK(&self->vm->mmu));
		before[i] = *ptes[i];
	}

	expect_ip(&e.chain, "no trace", variant->user);
	set_sp(self->vcpu, self->gva + 0x800);
	run_and_compare(self->vcpu, variant->source, attr_of_size(8192), &e);

	for (i = 0; i < ARRAY_SIZE(ptes); i++)
		TEST_ASSERT(*ptes[i] == before[i], "PTE %u is 0x%lx, not 0x%lx", i, *ptes[i],
			    before[i]);
	assert_filled(self->vm, self->gva, NR_PAGES);
}

/* A page that user mode may not read ends user mode's dump, but not the kernel's. */
CALLCHAIN_TEST(stack, supervisor_page)
{
	struct dump_expectation e = { .info.pieces[0].size = variant->user ? 0x800 : 4096 };

	*vm_get_pte_level(self->vm, self->gva + PAGE_SIZE, PG_LEVEL_4K) &=
		~PTE_USER_MASK(&self->vm->mmu);
	expect_ip(&e.chain, "supervisor page", variant->user);
	set_sp(self->vcpu, self->gva + 0x800);
	run_and_compare(self->vcpu, variant->source, attr_of_size(4096), &e);
}

CALLCHAIN_TEST(stack, no_memslot)
{
	struct dump_expectation e = { .info.pieces[0].size = 0x100 };
	u64 *pte = vm_get_pte_level(self->vm, self->gva + PAGE_SIZE, PG_LEVEL_4K);

	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | (self->vm->max_gfn << PAGE_SHIFT);
	expect_ip(&e.chain, "no memslot", variant->user);
	set_sp(self->vcpu, self->gva + 0xf00);
	run_and_compare(self->vcpu, variant->source, attr_of_size(4096), &e);
}

/* A page of PROT_NONE looks mapped; only the copy finds that it can't be read. */
CALLCHAIN_TEST(stack, forbidden_page)
{
	struct dump_expectation e = { .info.pieces[0].size = 0x100, .found = 4096 };
	u64 *pte = vm_get_pte_level(self->vm, self->gva + PAGE_SIZE, PG_LEVEL_4K);
	void *hva = addr_gpa2hva(self->vm, PTE_GET_PA(*pte));

	expect_ip(&e.chain, "a page of PROT_NONE", variant->user);
	set_sp(self->vcpu, self->gva + 0xf00);
	TEST_ASSERT(!mprotect(hva, PAGE_SIZE, PROT_NONE), "mprotect(): %s", strerror(errno));
	run_and_compare(self->vcpu, variant->source, attr_of_size(4096), &e);
	TEST_ASSERT(!mprotect(hva, PAGE_SIZE, PROT_READ | PROT_WRITE), "mprotect()");
}

/* A dump is empty if SP isn't canonical, or lies on the highest page, which is not mapped. */
CALLCHAIN_TEST(stack, no_address)
{
	static const u64 sps[] = { 0x0000800000000000ULL, 0x8000000000000000ULL, -8ULL, -1ULL };
	struct dump_expectation e;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sps); i++) {
		e = (struct dump_expectation){};
		expect_ip(&e.chain, "no address", variant->user);
		set_sp(self->vcpu, sps[i]);
		run_and_compare(self->vcpu, variant->source, attr_of_size(4096), &e);
	}
}

/* An event that may not see a mode's chain may not see its stack. */
CALLCHAIN_TEST(stack, excluded)
{
	struct perf_event_attr attrs[] = { attr_of_size(0), attr_of_size(0), attr_of_size(0) };
	struct dump_expectation e;
	unsigned int i;
	bool own;

	attrs[0].exclude_user = 1;
	attrs[1].exclude_callchain_user = 1;
	attrs[2].exclude_callchain_kernel = 1;
	/*
	 * A hardware counter with exclude_user takes no samples of user mode: leave that case
	 * out.  The PMU of KVM_SELFTEST_NMI_PMU ignores exclude_user.
	 */
	i = variant->user && (variant->source & ~PMI_DEFERRED) == PMI_NMI &&
	    has_hardware_cycles();
	for (; i < ARRAY_SIZE(attrs); i++) {
		struct callchain_event event;

		/* perf doesn't defer chains that lack a mode, nor a stack without its chain. */
		if (variant->source & PMI_DEFERRED && i > 0) {
			TEST_ASSERT(callchain_event_open(&event, variant->source, &attrs[i], 0,
							 -1) < 0 && errno == EINVAL,
				    "perf defers a stack without its callchain");
			continue;
		}
		own = variant->user ? i < 2 : i == 2;
		e = (struct dump_expectation){ .info.pieces[0].size = 4096, .none = own };
		expect_ip(&e.chain, "excluded", variant->user);
		if (own)
			e.chain.nr = 0;
		set_sp(self->vcpu, self->gva);
		run_and_compare(self->vcpu, variant->source, attrs[i], &e);
	}
}

/* A stack that reaches the last address ends there, although address zero is mapped. */
CALLCHAIN_TEST(stack, wraps)
{
	const u64 sp = -0x100ULL;
	struct dump_expectation e = { .info.pieces[0].size = 0x100 };
	u64 *pte = vm_get_pte_level(self->vm, self->gva, PG_LEVEL_4K);

	virt_pg_map(self->vm, -PAGE_SIZE, PTE_GET_PA(pte[0]));
	virt_pg_map(self->vm, 0, PTE_GET_PA(pte[1]));
	if (variant->user) {
		vm_set_user_accessible(self->vm, -PAGE_SIZE, 1);
		vm_set_user_accessible(self->vm, 0, 1);
	}
	expect_ip(&e.chain, "the last address", variant->user);
	set_sp(self->vcpu, sp);
	run_and_compare(self->vcpu, variant->source, attr_of_size(4096), &e);
}

/* An empty fixture: TEST() has a timeout of 30 seconds, too short on a slow host. */
FIXTURE(global) {};
FIXTURE_SETUP(global) {}
FIXTURE_TEARDOWN(global) {}

static void ignore_sample(const struct callchain_sample *s, void *arg)
{
}

static void count_walks(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr_walks = arg;

	*nr_walks += callchain_sample_is_guest(s) && !s->shares_walk;
}

static unsigned int nr_stacks(struct callchain_event *event)
{
	unsigned int nr;

	callchain_event_read(event, ignore_sample, NULL);
	nr = event->nr_stacks;
	event->nr_stacks = 0;
	return nr;
}

#define RECEIVED	(PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_GUEST_STACK)

/* Events without samples of their own, and how many bytes of a deferred stack they get. */
static const struct {
	const char *name;
	struct perf_event_attr attr;
	unsigned int size;
} receiver_cases[] = {
	{ "asks", { .defer_output = 1, .sample_type = RECEIVED }, 64 },
	{ "asks for less", { .defer_output = 1, .sample_type = RECEIVED,
			     .sample_stack_guest = 16 }, 16 },
	{ "has no stack in its samples", { .defer_output = 1, .sample_stack_guest = 24,
					   .sample_type = RECEIVED & ~PERF_SAMPLE_GUEST_STACK },
	  24 },
	{ "asks for callchains only", { .defer_output = 1,
					.sample_type = RECEIVED & ~PERF_SAMPLE_GUEST_STACK } },
	{ "takes nothing deferred", { .sample_type = RECEIVED } },
	{ "excludes guests", { .defer_output = 1, .sample_type = RECEIVED,
			       .exclude_guest = 1 } },
	{ "excludes the kernel", { .defer_output = 1, .sample_type = RECEIVED,
				   .exclude_kernel = 1 } },
	{ "excludes the kernel's callchain", { .defer_output = 1, .sample_type = RECEIVED,
					       .exclude_callchain_kernel = 1 } },
	{ "excludes user mode", { .defer_output = 1, .sample_type = RECEIVED,
				  .exclude_user = 1 }, 64 },
};

/*
 * A deferred stack goes to each event that asks for one and may see it, with at most as many
 * bytes as this event asks for.  There is none if the event that samples doesn't ask for one.
 */
CALLCHAIN_TEST(global, receivers)
{
	struct callchain_event events[ARRAY_SIZE(receiver_cases)];
	struct perf_event_attr attr = attr_of_size(64);
	unsigned int i, nr, nr_walks = 0;
	struct kvm_vcpu *vcpu;
	const char *why_not;
	struct kvm_vm *vm;

	if (!pmi_source_available(PMI_IRQ, &why_not))
		SKIP(return, "%s", why_not);

	vm = vm_create_looping(&vcpu, 4, false);
	set_sp(vcpu, alloc_stack(vm, DEFAULT_GUEST_STACK_VADDR_MIN, 1, false));
	vcpu_set_if(vcpu);
	for (i = 0; i < ARRAY_SIZE(receiver_cases); i++) {
		struct perf_event_attr receiver = receiver_cases[i].attr;

		receiver.type = PERF_TYPE_SOFTWARE;
		receiver.config = PERF_COUNT_SW_DUMMY;
		callchain_event_start(&events[i], PMI_ATTR, &receiver, 0, -1);
	}

	vcpu_run_until_guest_sampled(vcpu, PMI_IRQ_DEFERRED, &attr, NR_SAMPLES, count_walks,
				     &nr_walks, &nr_walks);
	for (i = 0; i < ARRAY_SIZE(receiver_cases); i++) {
		unsigned int size = receiver_cases[i].size;

		nr = nr_stacks(&events[i]);
		TEST_ASSERT(nr == (size ? nr_walks : 0) && events[i].max_stack == size,
			    "A receiver that %s got %u stacks of up to %lu bytes of %u walks",
			    receiver_cases[i].name, nr, events[i].max_stack, nr_walks);
	}

	attr.sample_type &= ~PERF_SAMPLE_GUEST_STACK;
	attr.sample_stack_guest = 0;
	nr_walks = 0;
	vcpu_run_until_guest_sampled(vcpu, PMI_IRQ_DEFERRED, &attr, NR_SAMPLES, count_walks,
				     &nr_walks, &nr_walks);
	for (i = 0; i < ARRAY_SIZE(receiver_cases); i++)
		TEST_ASSERT(!nr_stacks(&events[i]), "A stack was dumped that no sample asked for");

	for (i = 0; i < ARRAY_SIZE(receiver_cases); i++)
		callchain_event_close(&events[i]);
	kvm_vm_free(vm);
}

/*
 * struct sized_samples - samples of an event that asks for stacks of a given size
 * @size:	how many bytes of stack each must have
 * @nr:		how many hit the guest
 * @cookies:	the cookies of their walks
 * @times:	when they were taken
 */
struct sized_samples {
	unsigned int size;
	unsigned int nr;
	u64 cookies[1000];
	u64 times[1000];
};

static void check_size(const struct callchain_sample *s, void *arg)
{
	struct sized_samples *samples = arg;

	if (!callchain_sample_is_guest(s) || samples->nr == ARRAY_SIZE(samples->cookies))
		return;

	TEST_ASSERT(s->stack.size == samples->size, "%lu bytes of stack, not %u",
		    s->stack.size, samples->size);
	samples->cookies[samples->nr] = s->cookie;
	samples->times[samples->nr++] = s->time;
}

/* Return true if a sample of @first asked for a walk before one of @second asked for the same. */
static bool share_a_walk(const struct sized_samples *first, const struct sized_samples *second)
{
	unsigned int i, j;

	for (i = 0; i < first->nr; i++) {
		for (j = 0; j < second->nr; j++) {
			if (first->cookies[i] == second->cookies[j] &&
			    first->times[i] < second->times[j])
				return true;
		}
	}
	return false;
}

static bool share_walks(const struct sized_samples *a, const struct sized_samples *b)
{
	return share_a_walk(a, b) && share_a_walk(b, a);
}

/*
 * Samples of one exit share a dump, which must be large enough for the event that asks for the
 * most.
 */
CALLCHAIN_TEST(global, shared_by_sizes)
{
	struct sized_samples samples[] = { { 64 }, { 1024 }, { 64 } };
	struct callchain_event events[ARRAY_SIZE(samples)];
	unsigned int i, try;
	struct kvm_vcpu *vcpu;
	const char *why_not;
	struct kvm_vm *vm;

	if (!pmi_source_available(PMI_IRQ, &why_not))
		SKIP(return, "%s", why_not);

	vm = vm_create_looping(&vcpu, 4, false);
	set_sp(vcpu, alloc_stack(vm, DEFAULT_GUEST_STACK_VADDR_MIN, 1, false));
	vcpu_set_if(vcpu);
	/*
	 * Open an event that asks for less before and after the one that asks for the most.  As
	 * their periods differ slightly, their timers expire together again and again, and any of
	 * them may be the first.
	 */
	for (i = 0; i < ARRAY_SIZE(events); i++) {
		struct perf_event_attr attr = attr_of_size(samples[i].size);

		attr.sample_type |= PERF_SAMPLE_TIME;
		attr.wakeup_events = NR_SAMPLES;
		attr.sample_period = 300000 + 2000 * i;
		callchain_event_start(&events[i], PMI_IRQ_DEFERRED, &attr, 0, -1);
	}
	for (try = 0; try < 100 && !(share_walks(&samples[1], &samples[0]) &&
				     share_walks(&samples[1], &samples[2])); try++) {
		vcpu_run_until_sampled(vcpu, &events[1], 0);
		for (i = 0; i < ARRAY_SIZE(events); i++)
			callchain_event_read(&events[i], check_size, &samples[i]);
	}
	for (i = 0; i < ARRAY_SIZE(samples); i += 2) {
		TEST_ASSERT(share_a_walk(&samples[1], &samples[i]),
			    "Event %u never asked for a walk that event 1 had asked for", i);
		TEST_ASSERT(share_a_walk(&samples[i], &samples[1]),
			    "Event 1 never asked for a walk that event %u had asked for", i);
	}

	for (i = 0; i < ARRAY_SIZE(events); i++)
		callchain_event_close(&events[i]);
	kvm_vm_free(vm);
}

/*
 * The stacks of a Linux guest, which lie from KERNEL_GVA on.  The last word of an IRQ's stack
 * is the stack pointer from before the switch to it; the last two words of an exception's
 * stack are the stack pointer of the interrupted code, and SS.
 */
#define KERNEL_GVA	0xffff888000000000ULL

FIXTURE(linux_stack)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	gva_t irq;
	gva_t task;
};

FIXTURE_VARIANT(linux_stack)
{
	enum pmi_source source;
	int levels;
};

PMI_VARIANTS(linux_stack, _4_level, .levels = 4);
PMI_VARIANTS(linux_stack, _5_level, .levels = 5);

FIXTURE_SETUP(linux_stack)
{
	SKIP_UNLESS_PMI(variant->source);
	SKIP_UNLESS_LEVELS(variant->levels);
	self->vm = vm_create_looping(&self->vcpu, variant->levels, false);
	self->irq = alloc_stack(self->vm, KERNEL_GVA, THREAD_SIZE / PAGE_SIZE, false);
	self->task = alloc_stack(self->vm, KERNEL_GVA, THREAD_SIZE / PAGE_SIZE, false);
}

FIXTURE_TEARDOWN(linux_stack)
{
	kvm_vm_free(self->vm);
}

static void write_word(struct kvm_vm *vm, gva_t gva, u64 word)
{
	*(u64 *)gva2hva(vm, gva) = word;
}

/* How many bytes of the IRQ's stack are in use. */
#define NR_IRQ	0x200

/*
 * The last two words of the stack on which a sample is taken, and if they lead to another stack.
 * Where is_sp[i] is set, the word is a pointer to the task's stack instead of last[i].
 */
static const struct {
	const char *name;
	bool is_sp[2];
	u64 last[2];
	bool found;
} ends[] = {
	{ "an IRQ's",			{ false, true },	{ 0x1234, 0 },		true },
	{ "an exception's",		{ true, false },	{ 0, 0x18 },		true },
	{ "a task's",			{ false, false },	{ 0x7ffc0000f000, 0x2b } },
	{ "a kernel thread's",		{ false, false },	{ 0, 0 } },
	{ "user mode's address",	{ false, false },	{ 0, 0x7ffc0000f000 } },
	{ "not aligned",		{ false, false },	{ 0, 0xffff888000001004 } },
	{ "not canonical",		{ false, false },	{ 0, 0x8000000000001000 } },
};

CALLCHAIN_TEST(linux_stack, two_pieces)
{
	gva_t end = self->irq + THREAD_SIZE, sp = self->task + 0x2800;
	struct dump_expectation e;
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(ends); i++) {
		e = (struct dump_expectation){ .info.pieces[0].size = NR_IRQ };
		if (ends[i].found) {
			e.info.pieces[1].addr = sp;
			e.info.pieces[1].size = 4096 - NR_IRQ;
		}
		for (j = 0; j < 2; j++)
			write_word(self->vm, end - 16 + 8 * j,
				   ends[i].is_sp[j] ? sp : ends[i].last[j]);
		expect_ip(&e.chain, ends[i].name, false);
		set_sp(self->vcpu, end - NR_IRQ);
		run_and_compare(self->vcpu, variant->source, attr_of_size(0), &e);
	}
}

/*
 * There is no second piece if the stack's last word points into the first piece, if the first
 * piece has all bytes that the event asks for, or if the first piece has only one word.
 */
CALLCHAIN_TEST(linux_stack, one_piece)
{
	gva_t end = self->irq + THREAD_SIZE;
	struct dump_expectation e = { .info.pieces[0].size = NR_IRQ };

	write_word(self->vm, end - 8, end - 0x100);
	expect_ip(&e.chain, "the same stack", false);
	set_sp(self->vcpu, end - NR_IRQ);
	run_and_compare(self->vcpu, variant->source, attr_of_size(0), &e);

	write_word(self->vm, end - 8, end - NR_IRQ);
	e.chain.name = "the same address";
	run_and_compare(self->vcpu, variant->source, attr_of_size(0), &e);

	write_word(self->vm, end - 8, self->irq + PAGE_SIZE);
	e = (struct dump_expectation){ .info.pieces[0].size = THREAD_SIZE - 8 };
	expect_ip(&e.chain, "another page of the same stack", false);
	set_sp(self->vcpu, self->irq + 8);
	run_and_compare(self->vcpu, variant->source, attr_of_size(2 * THREAD_SIZE), &e);

	write_word(self->vm, end - 8, self->task);
	e = (struct dump_expectation){ .info.pieces[0].size = NR_IRQ };
	expect_ip(&e.chain, "no room", false);
	set_sp(self->vcpu, end - NR_IRQ);
	run_and_compare(self->vcpu, variant->source, attr_of_size(NR_IRQ), &e);

	e = (struct dump_expectation){ .info.pieces[0].size = 8 };
	expect_ip(&e.chain, "one word", false);
	set_sp(self->vcpu, end - 8);
	run_and_compare(self->vcpu, variant->source, attr_of_size(0), &e);
}

/* A stack in the lower half, or of user mode, doesn't lead to another one. */
CALLCHAIN_TEST(linux_stack, no_kernel_stack)
{
	struct dump_expectation e = { .info.pieces[0].size = NR_IRQ };
	gva_t end, low;

	low = alloc_stack(self->vm, DEFAULT_GUEST_STACK_VADDR_MIN, 1, false);
	end = low + PAGE_SIZE;
	write_word(self->vm, end - 8, self->task);
	expect_ip(&e.chain, "the lower half", false);
	set_sp(self->vcpu, end - NR_IRQ);
	run_and_compare(self->vcpu, variant->source, attr_of_size(0), &e);

	end = self->irq + THREAD_SIZE;
	write_word(self->vm, end - 8, self->task);
	vm_set_user_accessible(self->vm, self->irq, THREAD_SIZE / PAGE_SIZE);
	vm_set_user_accessible(self->vm, self->task, THREAD_SIZE / PAGE_SIZE);
	vcpu_enter_user_mode(self->vcpu);
	e = (struct dump_expectation){ .info.pieces[0].size = NR_IRQ };
	expect_ip(&e.chain, "user mode", true);
	set_sp(self->vcpu, end - NR_IRQ);
	run_and_compare(self->vcpu, variant->source, attr_of_size(0), &e);
}

/* Each piece ends where nothing more can be read. */
CALLCHAIN_TEST(linux_stack, pieces_cut_short)
{
	gva_t end = self->irq + THREAD_SIZE;
	struct dump_expectation e = { .info.pieces[0].size = NR_IRQ };

	write_word(self->vm, end - 8, self->task + THREAD_SIZE - 0x30);
	e.info.pieces[1].addr = self->task + THREAD_SIZE - 0x30;
	e.info.pieces[1].size = 0x30;
	expect_ip(&e.chain, "the end of a stack", false);
	set_sp(self->vcpu, end - NR_IRQ);
	run_and_compare(self->vcpu, variant->source, attr_of_size(0), &e);

	write_word(self->vm, end - 8, self->task + THREAD_SIZE);
	e.info.pieces[1].addr = self->task + THREAD_SIZE;
	e.info.pieces[1].size = 0;
	e.chain.name = "not mapped";
	run_and_compare(self->vcpu, variant->source, attr_of_size(0), &e);
}

/* Offsets in struct pt_regs, in which a 64-bit kernel saves user mode's registers. */
#define SAVED_BP	32
#define SAVED_IP	128
#define SAVED_CS	136
#define SAVED_FLAGS	144
#define SAVED_SP	152

#define USER_IP		0x401234
#define USER_SP		0x7ffc0000f000

static const struct {
	const char *name;
	unsigned int padding;
	u64 ip;
	u64 cs;
	u64 flags;
	bool found;
} tasks[] = {
	{ "at the top",			0,	USER_IP,	0x33,	0x246,	true },
	{ "16 bytes below it",		16,	USER_IP,	0x33,	0x246,	true },
	{ "32 bytes below it",		32,	USER_IP,	0x33,	0x246 },
	{ "no IP",			0,	0,		0x33,	0x246 },
	{ "an IP that is none",		0,	1ULL << 62,	0x33,	0x246 },
	{ "the kernel's CS",		0,	USER_IP,	0x10,	0x246 },
	{ "no CS",			0,	USER_IP,	3,	0x246 },
	{ "no flags",			0,	USER_IP,	0x33,	0 },
	{ "too many flags",		0,	USER_IP,	0x33,	1ULL << 22 | 0x246 },
};

/* Build a program's stack, which user mode can read. */
static void build_program(FIXTURE_DATA(linux_stack) * self, struct guest_stack *program)
{
	static const struct guest_stack_layout layout = { 3, 32, 0x100, .far = true };

	guest_stack_build(self->vm, program, &layout);
	vm_set_user_accessible(self->vm, program->gva, program->nr_pages);
}

static void expect_program(struct callchain_expectation *e, const struct guest_stack *program)
{
	unsigned int i;

	e->ips[e->nr++] = PERF_CONTEXT_GUEST_USER;
	e->ips[e->nr++] = USER_IP;
	for (i = 0; i < program->nr_frames; i++)
		e->ips[e->nr++] = program->ras[i];
}

/*
 * This kernel has no frame pointers, but its programs do: the chain continues with user
 * mode if the task's stack ends with words that can be user mode's registers.
 */
CALLCHAIN_TEST(linux_stack, user_mode)
{
	struct callchain_expectation e;
	struct guest_stack user;
	unsigned int i;
	gva_t regs;

	build_program(self, &user);
	set_sp(self->vcpu, self->task + 0x1234 * 2);
	vcpu_set_if(self->vcpu);

	for (i = 0; i < ARRAY_SIZE(tasks); i++) {
		fill(self->vm, self->task, THREAD_SIZE / PAGE_SIZE);
		regs = self->task + THREAD_SIZE - PT_REGS_SIZE - tasks[i].padding;
		write_word(self->vm, regs + SAVED_BP, user.fp);
		write_word(self->vm, regs + SAVED_IP, tasks[i].ip);
		write_word(self->vm, regs + SAVED_CS, tasks[i].cs);
		write_word(self->vm, regs + SAVED_FLAGS, tasks[i].flags);
		/* With the kernel's CS, the registers are plausible only if SP lies above them. */
		write_word(self->vm, regs + SAVED_SP,
			   tasks[i].cs & 3 ? user.sp : self->task + THREAD_SIZE);

		expect_ip(&e, tasks[i].name, false);
		if (tasks[i].found)
			expect_program(&e, &user);
		vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
	}
}

/* Write the program's registers to the top of the stack at @gva. */
static void save_program(struct kvm_vm *vm, gva_t gva, const struct guest_stack *program)
{
	gva_t regs = gva + THREAD_SIZE - PT_REGS_SIZE;

	write_word(vm, regs + SAVED_BP, program->fp);
	write_word(vm, regs + SAVED_IP, USER_IP);
	write_word(vm, regs + SAVED_CS, 0x33);
	write_word(vm, regs + SAVED_FLAGS, 0x246);
	write_word(vm, regs + SAVED_SP, program->sp);
}

/* As the test user_mode, but SP is on an IRQ's or exception's stack, which leads to the task's. */
CALLCHAIN_TEST(linux_stack, user_mode_interrupted)
{
	gva_t end = self->irq + THREAD_SIZE, sp = self->task + 0x2800;
	u64 *last = vm_get_pte_level(self->vm, end - PAGE_SIZE, PG_LEVEL_4K);
	struct callchain_expectation e;
	struct guest_stack program;
	unsigned int i, j;

	build_program(self, &program);
	save_program(self->vm, self->task, &program);
	vcpu_set_if(self->vcpu);
	for (i = 0; i < ARRAY_SIZE(ends); i++) {
		for (j = 0; j < 2; j++)
			write_word(self->vm, end - 16 + 8 * j,
				   ends[i].is_sp[j] ? sp : ends[i].last[j]);
		expect_ip(&e, ends[i].name, false);
		if (ends[i].found)
			expect_program(&e, &program);
		/* Sample on the stack's last page, and on its first one. */
		set_sp(self->vcpu, end - NR_IRQ);
		vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
		set_sp(self->vcpu, self->irq + 8);
		vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
	}

	/* A stack ends at a page that is not mapped, not at one that has no memory. */
	write_word(self->vm, end - 8, sp);
	last[1] = (*last & ~PHYSICAL_PAGE_MASK) | (self->vm->max_gfn << PAGE_SHIFT);
	expect_ip(&e, "no memory", false);
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
}

/* Registers behind the end of a stack are those of another task. */
CALLCHAIN_TEST(linux_stack, stack_ends_below)
{
	gva_t end = self->irq + 2 * PAGE_SIZE, sp = self->task + 0x2800;
	struct callchain_expectation e;
	struct guest_stack program;

	build_program(self, &program);
	save_program(self->vm, self->task, &program);
	save_program(self->vm, self->irq, &program);
	write_word(self->vm, self->irq + THREAD_SIZE - PT_REGS_SIZE + SAVED_IP, USER_IP + 1);
	*vm_get_pte_level(self->vm, end, PG_LEVEL_4K) = 0;
	write_word(self->vm, end - 8, sp);
	set_sp(self->vcpu, self->irq + 8);
	vcpu_set_if(self->vcpu);
	expect_ip(&e, "a stack of two pages", false);
	expect_program(&e, &program);
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);

	/*
	 * As if an NMI had interrupted an IRQ: the second stack leads to a third one, but the walk
	 * must not continue there.
	 */
	*vm_get_pte_level(self->vm, self->task + 3 * PAGE_SIZE, PG_LEVEL_4K) = 0;
	write_word(self->vm, self->task + 3 * PAGE_SIZE - 8, self->irq + THREAD_SIZE - 0x800);
	expect_ip(&e, "three stacks", false);
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
}

/* Linux has its code here. */
#define KERNEL_TEXT	0xffffffff81000000ULL

static const struct {
	const char *name;
	u64 ip;
	u64 rcx;
	u64 r11;
	u64 sp;		/* zero for the program's */
	bool found;
} syscalls[] = {
	{ "at its beginning",		KERNEL_TEXT,	USER_IP,	0x246,	0,	true },
	{ "code of the lower half",	0,		USER_IP,	0x246 },
	{ "no IP",			KERNEL_TEXT,	0,		0x246 },
	{ "an IP that is none",		KERNEL_TEXT,	1ULL << 62,	0x246 },
	{ "the kernel's IP",		KERNEL_TEXT,	KERNEL_TEXT,	0x246 },
	{ "no flags",			KERNEL_TEXT,	USER_IP,	0 },
	{ "a stack below 4 GiB",	KERNEL_TEXT,	USER_IP,	0x246,	0xffffd000 },
};

static void test_syscalls(FIXTURE_DATA(linux_stack) * self, enum pmi_source source,
			  const struct guest_stack *program)
{
	u64 loop = KERNEL_TEXT + ((gva_t)guest_loop & ~PAGE_MASK);
	struct callchain_expectation e;
	struct kvm_regs regs;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(syscalls); i++) {
		vcpu_regs_get(self->vcpu, &regs);
		regs.rip = syscalls[i].ip ? loop : (u64)guest_loop;
		regs.rcx = syscalls[i].rcx;
		regs.r11 = syscalls[i].r11;
		regs.rsp = syscalls[i].sp ?: program->sp;
		/*
		 * If this must not pass for a system call, don't let RBP lead to the program's
		 * frames: the walk would take them for the kernel's.
		 */
		regs.rbp = syscalls[i].found ? program->fp : 0xb00;
		vcpu_regs_set(self->vcpu, &regs);

		expect_ip(&e, syscalls[i].name, false);
		e.ip = regs.rip;
		e.ips[1] = regs.rip;
		if (syscalls[i].found)
			expect_program(&e, program);
		vcpu_run_and_compare(self->vcpu, source, NULL, NR_SAMPLES, &e);

		/* The dump is empty: this isn't the kernel's stack. */
		if (syscalls[i].found) {
			struct dump_expectation dump = { .chain = e };

			run_and_compare(self->vcpu, source, attr_of_size(64), &dump);
		}
	}
}

/* A system call begins on user mode's stack, with user mode's IP and flags in RCX and R11. */
CALLCHAIN_TEST(linux_stack, syscall)
{
	u64 *pte = vm_get_pte_level(self->vm, (gva_t)guest_loop, PG_LEVEL_4K);
	struct guest_stack program;
	struct kvm_sregs sregs;

	virt_pg_map(self->vm, KERNEL_TEXT, PTE_GET_PA(*pte));
	build_program(self, &program);
	vcpu_set_if(self->vcpu);
	test_syscalls(self, variant->source, &program);

	/* The program's stack is read with the program's rights: SMAP does not apply. */
	if (!kvm_cpu_has(X86_FEATURE_SMAP))
		return;
	vcpu_sregs_get(self->vcpu, &sregs);
	sregs.cr4 |= X86_CR4_SMAP;
	vcpu_sregs_set(self->vcpu, &sregs);
	test_syscalls(self, variant->source, &program);
}

static const struct {
	const char *name;
	unsigned int used;	/* bytes of the stack that are in use */
	u64 rcx;
	u64 r11;
	bool kernel_frame;
	bool found;
} edges[] = {
	{ "an empty stack",		0,	USER_IP,	0x246,	false,	true },
	{ "user mode's RSP and RDI",	16,	USER_IP,	0x246,	false,	true },
	{ "all registers but one",	176,	USER_IP,	0x246,	false,	true },
	{ "all registers",		184,	USER_IP,	0x246 },
	{ "interrupts off",		16,	USER_IP,	0x046 },
	{ "no flags",			16,	USER_IP,	0x200 },
	{ "no IP",			16,	0,		0x246 },
	{ "the kernel's IP",		16,	KERNEL_TEXT,	0x246 },
	{ "the kernel's frame",		16,	USER_IP,	0x246,	true },
};

/*
 * Near its beginning and its end, a system call runs on a stack of the kernel of which only the
 * last words are in use.
 */
CALLCHAIN_TEST(linux_stack, syscall_edge)
{
	struct callchain_expectation e;
	struct guest_stack program;
	struct kvm_regs regs;
	gva_t frame = alloc_stack(self->vm, self->task + THREAD_SIZE, 1, false);
	unsigned int i;

	build_program(self, &program);
	fill(self->vm, self->task, THREAD_SIZE / PAGE_SIZE);
	/* The kernel's frame: its frame pointer leads nowhere. */
	write_word(self->vm, frame, 0xb00);
	write_word(self->vm, frame + 8, KERNEL_TEXT);
	vcpu_set_if(self->vcpu);

	for (i = 0; i < ARRAY_SIZE(edges); i++) {
		vcpu_regs_get(self->vcpu, &regs);
		regs.rcx = edges[i].rcx;
		regs.r11 = edges[i].r11;
		regs.rsp = self->task + THREAD_SIZE - edges[i].used;
		regs.rbp = edges[i].kernel_frame ? frame : program.fp;
		vcpu_regs_set(self->vcpu, &regs);

		expect_ip(&e, edges[i].name, false);
		if (edges[i].kernel_frame)
			e.ips[e.nr++] = KERNEL_TEXT;
		if (edges[i].found)
			expect_program(&e, &program);
		vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
	}
}

/*
 * With a frame pointer of zero, the words at the stack pointer may look like registers of
 * interrupted kernel code.  Neither these registers nor their RBP are user mode's.
 */
CALLCHAIN_TEST(linux_stack, syscall_edge_without_frame)
{
	const gva_t rsp = self->task + THREAD_SIZE - PT_REGS_SIZE - 8;
	struct callchain_expectation e;
	struct guest_stack program;
	struct kvm_regs regs;

	build_program(self, &program);
	fill(self->vm, self->task, THREAD_SIZE / PAGE_SIZE);
	write_word(self->vm, rsp + SAVED_BP, program.fp);
	write_word(self->vm, rsp + SAVED_IP, KERNEL_TEXT);
	write_word(self->vm, rsp + SAVED_CS, 0x10);
	write_word(self->vm, rsp + SAVED_FLAGS, 0x246);
	write_word(self->vm, rsp + SAVED_SP, self->task + THREAD_SIZE);
	vcpu_set_if(self->vcpu);
	vcpu_regs_get(self->vcpu, &regs);
	regs.rcx = USER_IP;
	regs.r11 = 0x246;
	regs.rsp = rsp;
	regs.rbp = 0;
	vcpu_regs_set(self->vcpu, &regs);

	expect_ip(&e, "no frame", false);
	e.ips[e.nr++] = PERF_CONTEXT_GUEST_USER;
	e.ips[e.nr++] = USER_IP;
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
}

/* An empty stack's RSP is where the next stack begins, which is another task's. */
CALLCHAIN_TEST(linux_stack, empty)
{
	u64 *task = vm_get_pte_level(self->vm, self->task, PG_LEVEL_4K);
	u64 *other = vm_get_pte_level(self->vm, self->irq, PG_LEVEL_4K);
	struct callchain_expectation e;
	struct guest_stack program;
	unsigned int i;

	build_program(self, &program);
	save_program(self->vm, self->irq, &program);
	for (i = 0; i < THREAD_SIZE / PAGE_SIZE; i++)
		task[THREAD_SIZE / PAGE_SIZE + i] = other[i];

	set_sp(self->vcpu, self->task + THREAD_SIZE);
	vcpu_set_if(self->vcpu);
	expect_ip(&e, "an empty stack", false);
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
}

/*
 * If frame pointers have led to the outermost frame, the walk doesn't look for user mode's
 * registers.
 */
CALLCHAIN_TEST(linux_stack, frame_pointers)
{
	gva_t regs = self->task + THREAD_SIZE - PT_REGS_SIZE, frame = self->task + 0x1000;
	const struct perf_event_attr two = { .sample_max_stack = 2 };
	struct callchain_expectation e;
	struct kvm_regs r;

	write_word(self->vm, regs + SAVED_IP, USER_IP);
	write_word(self->vm, regs + SAVED_CS, 0x33);
	write_word(self->vm, regs + SAVED_FLAGS, 0x246);
	write_word(self->vm, frame, frame + 0x100);
	write_word(self->vm, frame + 8, 0xffffffff81000123);
	write_word(self->vm, frame + 0x100, 0);
	write_word(self->vm, frame + 0x108, 0);

	set_sp(self->vcpu, self->task + 0x800);
	vcpu_regs_get(self->vcpu, &r);
	r.rbp = frame;
	vcpu_regs_set(self->vcpu, &r);
	vcpu_set_if(self->vcpu);
	expect_ip(&e, "frame pointers", false);
	e.ips[e.nr++] = 0xffffffff81000123;
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);

	/*
	 * The walk doesn't look for them, either, if it reaches sample_max_stack, or a return
	 * address that perf would take for a context marker.
	 */
	write_word(self->vm, frame + 0x108, 0xffffffff81000456);
	e.name = "frame pointers, up to sample_max_stack";
	vcpu_run_and_compare(self->vcpu, variant->source, &two, NR_SAMPLES, &e);

	write_word(self->vm, frame + 8, -2ULL);
	expect_ip(&e, "frame pointers, to a context marker", false);
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
}

TEST_HARNESS_MAIN
