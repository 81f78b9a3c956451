// SPDX-License-Identifier: GPL-2.0-only
/*
 * Check the cost of walks and dumps of a guest's stack: words read, pages translated,
 * and page-table entries read, as the test_guest_walk module counts them.  No guest
 * may make a walk or a dump cost more than its bound.
 */
#include "callchain_harness.h"
#include "test_modules.h"

/* Offsets of registers in struct pt_regs.  Include this last: it defines short names. */
#define __FRAME_OFFSETS
#include <asm/ptrace-abi.h>

#define NR_SAMPLES	10

#define MAX_STACK	"/proc/sys/kernel/perf_event_max_stack"

/*
 * Bounds from the comment on kvm_arch_vcpu_stack_walk().  They apply to each entry of a chain,
 * except for the IP, which costs nothing.
 */
#define MAX_READS(_depth)		(5 * ((_depth) - 1))
#define MAX_TABLE_WALKS(_depth)		(2 * ((_depth) - 1))

/* In a peek at an L1 guest's tables, walk_addr_generic() reads one entry per level, once each. */
#define MAX_ELEMENTS(_depth, _levels)	(MAX_TABLE_WALKS(_depth) * (_levels))

/* Any selector will do that is not null and whose RPL is zero. */
#define KERNEL_CS	8

/* More frames than the deepest chain takes. */
#define NR_FRAMES	505

/* The stacks have a memslot of their own: they need more memory than a VM has otherwise. */
#define STACK_GPA	BIT_ULL(32)
#define STACK_SLOT	10

/* Index of the frame whose saved frame pointer is wrong. */
#define BAD		5

/*
 * Indices in the root table: two entries that map the table itself, and the first frame.  The
 * entries that map the guest's code are below them.
 */
#define SELF_MAP_LOW	160
#define SELF_MAP_HIGH	192
#define SELF_MAP_FRAMES	300
#define NR_SELF_MAPS	16

static const unsigned int depths[] = { 1, 2, 16, 127, 500 };

/* The words that a walk reads to find one caller. */
struct next {
	gva_t words[5];
	unsigned int nr_words;
};

struct bound_guest {
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct guest_stack stack;
	struct next nexts[NR_FRAMES + 1];
	unsigned int nr_nexts;
};

struct bound_case {
	const char *name;
	struct guest_stack_layout layout;
	void (*tamper)(struct bound_guest *guest);
	bool worst;
};

static void set_word(struct bound_guest *guest, gva_t gva, u64 word)
{
	*(u64 *)addr_gva2hva(guest->vm, gva) = word;
}

static void reads_frame(struct bound_guest *guest, gva_t frame)
{
	guest->nexts[guest->nr_nexts++] = (struct next) {
		.words = { frame, frame + 8 },
		.nr_words = 2,
	};
}

/* A walk reads all five registers, or stops at the IP if that is zero. */
static void reads_regs(struct bound_guest *guest, gva_t regs, bool has_ip)
{
	guest->nexts[guest->nr_nexts++] = (struct next) {
		.words = {
			regs + RBP,
			regs + RIP,
			regs + CS,
			regs + EFLAGS,
			regs + RSP,
		},
		.nr_words = has_ip ? 5 : 2,
	};
}

/* A walk finds the return addresses of all frames up to BAD. */
static void reads_good_frames(struct bound_guest *guest)
{
	unsigned int i;

	guest->stack.nr_frames = BAD + 1;
	for (i = 0; i <= BAD; i++)
		reads_frame(guest, guest->stack.frames[i]);
}

static void all_good(struct bound_guest *guest)
{
	unsigned int i;

	for (i = 0; i <= NR_FRAMES; i++)
		reads_frame(guest, guest->stack.frames[i]);
}

static void cycle(struct bound_guest *guest)
{
	reads_good_frames(guest);
	set_word(guest, guest->stack.frames[BAD], guest->stack.frames[0]);
}

/*
 * The bad frame's saved frame pointer is zero: the walk looks above the frame for registers that
 * a system call has saved, and finds none.
 */
static void no_more_frames(struct bound_guest *guest)
{
	reads_good_frames(guest);
	set_word(guest, guest->stack.frames[BAD], 0);
	reads_regs(guest, guest->stack.frames[BAD] + 16, false);
}

static void mark_without_regs(struct bound_guest *guest)
{
	reads_good_frames(guest);
	set_word(guest, guest->stack.frames[BAD], guest->stack.frames[BAD + 1] | 1);
	reads_regs(guest, guest->stack.frames[BAD + 1], false);
}

/* Each frame holds the registers of interrupted kernel code; the outermost one has no IP. */
static void entry_frames(struct bound_guest *guest)
{
	unsigned int i;

	for (i = 0; i <= NR_FRAMES; i++) {
		gva_t regs = guest->stack.frames[i];

		reads_regs(guest, regs, i < NR_FRAMES);
		if (i == NR_FRAMES)
			break;

		set_word(guest, regs + RBP, guest->stack.frames[i + 1] | 1);
		set_word(guest, regs + RIP, guest->stack.ras[i]);
		set_word(guest, regs + CS, KERNEL_CS);
		set_word(guest, regs + EFLAGS, X86_EFLAGS_FIXED);
		set_word(guest, regs + RSP, guest->stack.frames[i + 1]);
	}
	guest->stack.fp |= 1;
}

static void entry_cycle(struct bound_guest *guest)
{
	entry_frames(guest);
	set_word(guest, guest->stack.frames[BAD] + RBP,
		 guest->stack.frames[0] | 1);
	guest->stack.nr_frames = BAD + 1;
	guest->nr_nexts = BAD + 1;
}

static void entry_self(struct bound_guest *guest)
{
	gva_t regs = guest->stack.frames[BAD];

	entry_frames(guest);
	set_word(guest, regs + RBP, regs | 1);
	set_word(guest, regs + RSP, regs);
	guest->stack.nr_frames = BAD;
	guest->nr_nexts = BAD + 1;
}

/*
 * The stack lies in the root table, which maps itself.  So the root table is the page table of
 * each level, and the stack's page, at many addresses.  Each frame is at a different one of them.
 */
static void in_root_table(struct bound_guest *guest)
{
	struct kvm_vm *vm = guest->vm;
	u64 *root = addr_gpa2hva(vm, vm->mmu.pgd);
	u64 flags = *vm_get_pte_level(vm, (gva_t)guest_loop, vm->mmu.pgtable_levels) &
		    ~PHYSICAL_PAGE_MASK;
	struct guest_stack *stack = &guest->stack;
	unsigned int i;
	int level;

	root[SELF_MAP_LOW] = flags | vm->mmu.pgd;
	root[SELF_MAP_HIGH] = flags | vm->mmu.pgd;

	for (i = 0; i < NR_SELF_MAPS; i++) {
		stack->frames[i] = (SELF_MAP_FRAMES + 2 * i) * sizeof(u64);
		for (level = PG_LEVEL_4K; level <= vm->mmu.pgtable_levels; level++)
			stack->frames[i] |= (i & BIT(level - 1) ? SELF_MAP_HIGH : SELF_MAP_LOW) *
					    PG_LEVEL_SIZE(level);
		reads_frame(guest, stack->frames[i]);
	}

	stack->nr_frames = NR_SELF_MAPS - 1;
	for (i = 0; i < stack->nr_frames; i++) {
		root[SELF_MAP_FRAMES + 2 * i] = stack->frames[i + 1];
		root[SELF_MAP_FRAMES + 2 * i + 1] = stack->ras[i];
	}
	stack->fp = stack->frames[0];
	stack->sp = stack->fp;
}

static const struct bound_case cases[] = {
	{ "many frames on a page",	{ NR_FRAMES, 16, 0 }, all_good },
	{ "one frame on a page",	{ NR_FRAMES, 4096, 0x7f0 }, all_good },
	{ "each frame on two pages",	{ NR_FRAMES, 8192, 0xff8 }, all_good },
	{ "cycle",			{ NR_FRAMES, 8192, 0xff8 }, cycle },
	{ "no more frames",		{ NR_FRAMES, 4096, 0xfd0 }, no_more_frames },
	{ "mark without registers",	{ NR_FRAMES, 4096, 0xfa0 }, mark_without_regs },
	{ "entry frames",		{ NR_FRAMES, 176, 0 }, entry_frames },
	{ "entry frames on two pages",	{ NR_FRAMES, 8192, 0xfa0 }, entry_frames, true },
	{ "cycle of entry frames",	{ NR_FRAMES, 8192, 0xfa0 }, entry_cycle },
	{ "entry frame leads to itself",	{ NR_FRAMES, 8192, 0xfa0 }, entry_self },
	{ "in the root table",		{ 16, 16, 0 }, in_root_table },
};

FIXTURE(bound)
{
	int fd;
};

FIXTURE_VARIANT(bound)
{
	enum pmi_source source;
	int levels;
};

PMI_VARIANTS(bound, _4_level, .levels = 4);
PMI_VARIANTS(bound, _5_level, .levels = 5);

FIXTURE_SETUP(bound)
{
	SKIP_UNLESS_PMI(variant->source);
	SKIP_UNLESS_LEVELS(variant->levels);
	self->fd = guest_walk_open();
	if (self->fd < 0)
		SKIP(return, "The test_guest_walk module can't be loaded");
	SKIP_UNLESS_OVERRIDDEN(MAX_STACK, depths[ARRAY_SIZE(depths) - 1]);
}

FIXTURE_TEARDOWN(bound)
{
	close(self->fd);
	host_restore();
}

static void count_guest(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr_guest = arg;

	*nr_guest += callchain_sample_is_guest(s) && !s->shares_walk;
}

static void check_cost(const struct bound_case *c, unsigned int depth, const char *what,
		       unsigned int cost, unsigned int expected, unsigned int bound)
{
	TEST_ASSERT(cost == expected && cost <= bound,
		    "%s, depth %u: %u %s in a walk, not %u; the bound is %u", c->name, depth,
		    cost, what, expected, bound);
}

static void run_depth(struct bound_guest *guest, const struct bound_case *c, int fd,
		      enum pmi_source source, unsigned int depth)
{
	const struct perf_event_attr attr = { .sample_max_stack = depth };
	const struct guest_walk_change count = {
		.nr_walks = -1,
		.deferred = !!(source & PMI_DEFERRED),
	};
	const unsigned int levels = guest->vm->mmu.pgtable_levels;
	unsigned int i, word, nr_guest, reads = 0, walks = 0;
	struct callchain_expectation e;
	struct guest_walk_result r;
	gva_t page = 0;

	/* A walk translates a page when it reaches the page, again only after leaving it. */
	for (i = 0; i < min(depth - 1, guest->nr_nexts); i++) {
		for (word = 0; word < guest->nexts[i].nr_words; word++) {
			gva_t p = guest->nexts[i].words[word] & PAGE_MASK;

			reads++;
			walks += p != page;
			page = p;
		}
	}

	expect_guest_stack(&e, c->name, false, &guest->stack, depth);
	guest_walk_arm(fd, &count, 1);
	nr_guest = vcpu_run_and_compare(guest->vcpu, source, &attr, NR_SAMPLES, &e);
	guest_walk_get_results(fd, &r, 1);

	TEST_ASSERT(r.nr_walks == nr_guest, "%s, depth %u: %u walks, but %u guest samples",
		    c->name, depth, r.nr_walks, nr_guest);
	check_cost(c, depth, "words of the stack were read", r.max_reads, reads, MAX_READS(depth));
	check_cost(c, depth, "pages were translated", r.max_table_walks, walks,
		   MAX_TABLE_WALKS(depth));
	check_cost(c, depth, "entries of tables were read", r.max_elements, walks * levels,
		   MAX_ELEMENTS(depth, levels));
	TEST_ASSERT_EQ(r.elements, nr_guest * walks * levels);

	/* The worst case reaches the bounds, so they are not too high. */
	if (c->worst)
		TEST_ASSERT(reads == MAX_READS(depth) && walks == MAX_TABLE_WALKS(depth),
			    "%s, depth %u: this should be the worst case", c->name, depth);
}

static void run_case(const struct bound_case *c, int fd, enum pmi_source source, int levels)
{
	const u64 nr_pages = (c->layout.nr_frames + 2) * (u64)c->layout.stride / PAGE_SIZE + 4;
	static struct bound_guest guest;
	unsigned int i;

	guest.vm = __vm_create_with_one_vcpu(&guest.vcpu, nr_pages, guest_loop);
	if (guest.vm->mmu.pgtable_levels > levels)
		vcpu_use_4_level_paging(guest.vcpu);

	vm_userspace_mem_region_add(guest.vm, VM_MEM_SRC_ANONYMOUS, STACK_GPA, STACK_SLOT,
				    nr_pages, 0);
	guest.vm->memslots[MEM_REGION_TEST_DATA] = STACK_SLOT;

	guest.nr_nexts = 0;
	guest_stack_build(guest.vm, &guest.stack, &c->layout);
	c->tamper(&guest);
	guest_stack_use(guest.vcpu, &guest.stack, (gva_t)guest_loop);

	for (i = 0; i < ARRAY_SIZE(depths); i++)
		run_depth(&guest, c, fd, source, depths[i]);

	kvm_vm_free(guest.vm);
}

CALLCHAIN_TEST(bound, cost)
{
	const struct bound_case *c;

	for_each_case(c, cases) {
		TH_LOG("%s", c->name);
		run_case(c, self->fd, variant->source, variant->levels);
	}
}

/*
 * A kernel's stacks have NR_DUMP_PAGES pages, and an unmapped page after these.  As in Linux,
 * they end at multiples of THREAD_SIZE.
 */
#define KERNEL_GVA		0xffff888000000000ULL
#define NR_DUMP_PAGES		20
#define THREAD_SIZE		(4 * PAGE_SIZE)

/* A dump has at most 18 pages.  One more translation fails where the first piece ends. */
#define MAX_DUMP_WALKS		(18 + 1)

/*
 * Each dump begins @offset bytes from the start of the first stack.  If @two_pieces is set, it may
 * continue on the second stack.  It takes @walks translations.
 */
static const struct {
	const char *name;
	unsigned int offset;
	unsigned int size;
	bool two_pieces;
	unsigned int walks;
} dumps[] = {
	{ "one word",			0x100,				8,	false,	1 },
	{ "a page",			0x800,				2048,	false,	1 },
	{ "a word of the next page",	0x800,				2056,	false,	2 },
	{ "as much as there may be",	0x7f8,				65528,	false,	17 },
	{ "up to the end",		NR_DUMP_PAGES * 4096 - 0x200,	65528,	false,	2 },
	{ "two pieces",			NR_DUMP_PAGES * 4096 - 0x200,	65528,	true,	19 },
	{ "nothing",			NR_DUMP_PAGES * 4096,		65528,	false,	1 },
};

/* Return the host address of @gva's page.  addr_gva2hva() does not work in the upper half. */
static u64 *page_of(struct kvm_vm *vm, gva_t gva)
{
	return addr_gpa2hva(vm, PTE_GET_PA(*vm_get_pte_level(vm, gva, PG_LEVEL_4K)));
}

static gva_t alloc_kernel_stack(struct kvm_vm *vm)
{
	gva_t gva = vm_alloc(vm, (NR_DUMP_PAGES + 4) * PAGE_SIZE, KERNEL_GVA);
	unsigned int i;

	gva = round_up(gva, THREAD_SIZE);
	/* Write to each page: the host has no memory at pages that were never written. */
	for (i = 0; i < NR_DUMP_PAGES; i++)
		memset(page_of(vm, gva + i * PAGE_SIZE), 0xaa, PAGE_SIZE);
	*vm_get_pte_level(vm, gva + NR_DUMP_PAGES * PAGE_SIZE, PG_LEVEL_4K) = 0;
	return gva;
}

static void run_dump(struct kvm_vm *vm, struct kvm_vcpu *vcpu, int fd, enum pmi_source source,
		     unsigned int i, gva_t sp)
{
	const struct perf_event_attr attr = {
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_GUEST_STACK,
		.sample_stack_guest = dumps[i].size,
		/* The walk of frame pointers has only room for the IP, so it costs nothing. */
		.sample_max_stack = 1,
	};
	const struct guest_walk_change count = {
		.nr_walks = -1,
		.deferred = !!(source & PMI_DEFERRED),
	};
	unsigned int walks = dumps[i].walks, nr_guest = 0;
	struct guest_walk_result r;
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	regs.rsp = sp;
	vcpu_regs_set(vcpu, &regs);
	vcpu_set_if(vcpu);

	guest_walk_arm(fd, &count, 1);
	vcpu_run_until_guest_sampled(vcpu, source, &attr, NR_SAMPLES, count_guest, &nr_guest,
				     &nr_guest);
	guest_walk_get_results(fd, &r, 1);

	/* In a PMI, a dump follows its walk and counts for the next walk; the last is missing. */
	if (!(source & PMI_DEFERRED))
		nr_guest--;
	TEST_ASSERT(walks <= MAX_DUMP_WALKS &&
		    r.max_elements == walks * vm->mmu.pgtable_levels &&
		    r.elements == nr_guest * r.max_elements,
		    "%s: %u entries of tables were read for %u dumps, up to %u for one, not %u times %u",
		    dumps[i].name, r.elements, nr_guest, r.max_elements, walks,
		    vm->mmu.pgtable_levels);
}

/* Bounds from the comment on kvm_arch_vcpu_stack_walk(): the search for user mode's registers. */
#define MAX_TASK_READS		22
#define MAX_TASK_WALKS		9

/*
 * Words near the end of a stack.  At both places where user mode's registers may be, these look
 * like user mode's IP, CS and flags, except that CS is not user mode's.
 */
static const u64 nearly_regs[] = { 0x1000, 0x11, 0x246, 0x11, 0x246 };

static void fill_end(struct kvm_vm *vm, gva_t stack, u64 sp)
{
	u64 *end = page_of(vm, stack + (NR_DUMP_PAGES - 1) * PAGE_SIZE) + PAGE_SIZE / sizeof(u64);

	/* An exception's stack ends with the saved SP and SS. */
	end[-1] = 0x18;
	end[-2] = sp;
	memcpy(&end[-7], nearly_regs, sizeof(nearly_regs));
}

/* The walk looks for user mode's registers at all places where they may be, and finds none. */
CALLCHAIN_TEST(bound, user_mode)
{
	const gva_t last = NR_DUMP_PAGES * PAGE_SIZE - THREAD_SIZE;
	const struct guest_walk_change count = {
		.nr_walks = -1,
		.deferred = !!(variant->source & PMI_DEFERRED),
	};
	const struct guest_stack none = {};
	struct callchain_expectation e;
	struct guest_walk_result r;
	struct kvm_vcpu *vcpu;
	gva_t first, second;
	struct kvm_regs regs;
	struct kvm_vm *vm;

	vm = vm_create_looping(&vcpu, variant->levels, false);
	first = alloc_kernel_stack(vm);
	second = alloc_kernel_stack(vm);
	fill_end(vm, first, second + last + 0x100);
	fill_end(vm, second, 0);
	vcpu_regs_get(vcpu, &regs);
	regs.rsp = first + last + 8;
	regs.rbp = 0xb00;
	vcpu_regs_set(vcpu, &regs);
	vcpu_set_if(vcpu);

	expect_guest_stack(&e, "no user mode", false, &none, DEFAULT_MAX_STACK);
	guest_walk_arm(self->fd, &count, 1);
	vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);
	guest_walk_get_results(self->fd, &r, 1);
	TEST_ASSERT_EQ(r.max_reads, MAX_TASK_READS);
	TEST_ASSERT_EQ(r.max_table_walks, MAX_TASK_WALKS);
	kvm_vm_free(vm);
}

CALLCHAIN_TEST(bound, dump)
{
	struct kvm_vcpu *vcpu;
	gva_t first, second;
	struct kvm_vm *vm;
	unsigned int i;

	vm = vm_create_looping(&vcpu, variant->levels, false);
	first = alloc_kernel_stack(vm);
	second = alloc_kernel_stack(vm);
	for (i = 0; i < ARRAY_SIZE(dumps); i++) {
		u64 *last_page = page_of(vm, first + (NR_DUMP_PAGES - 1) * PAGE_SIZE);

		last_page[PAGE_SIZE / sizeof(u64) - 1] = dumps[i].two_pieces ? second + 0x7f8 : 0;
		run_dump(vm, vcpu, self->fd, variant->source, i, first + dumps[i].offset);
	}
	kvm_vm_free(vm);
}

TEST_HARNESS_MAIN
