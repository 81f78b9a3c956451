// SPDX-License-Identifier: GPL-2.0-only
/*
 * Check the cost of walks of a guest's stack: pages translated and page-table entries read, as
 * the test_guest_walk module counts them.  No guest may make a walk cost more than its bound.
 */
#include "callchain_harness.h"
#include "test_modules.h"

#define NR_SAMPLES	10

#define MAX_STACK	"/proc/sys/kernel/perf_event_max_stack"

/* KVM_PEEK_MAX: no walk translates more pages. */
#define PEEK_MAX			64U

/*
 * The bound from the comment on kvm_arch_vcpu_stack_walk().  It applies to each entry of a chain,
 * except for the IP, which costs nothing.
 */
#define MAX_TABLE_WALKS(_depth)		min(2 * ((_depth) - 1), PEEK_MAX)

/* In a peek at an L1 guest's tables, walk_addr_generic() reads one entry per level, once each. */
#define MAX_ELEMENTS(_depth, _levels)	(MAX_TABLE_WALKS(_depth) * (_levels))

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

struct bound_guest {
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct guest_stack stack;
	gva_t frames[NR_FRAMES + 1];
	unsigned int nr_frames;
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

/* A walk reads the two words of a frame. */
static void reads_frame(struct bound_guest *guest, gva_t frame)
{
	guest->frames[guest->nr_frames++] = frame;
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

static void no_more_frames(struct bound_guest *guest)
{
	reads_good_frames(guest);
	set_word(guest, guest->stack.frames[BAD], 0);
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
	{ "each frame on two pages",	{ NR_FRAMES, 8192, 0xff8 }, all_good, true },
	{ "cycle",			{ NR_FRAMES, 8192, 0xff8 }, cycle },
	{ "no more frames",		{ NR_FRAMES, 4096, 0xfd0 }, no_more_frames },
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
	const struct guest_walk_change count = { .nr_walks = -1 };
	const unsigned int levels = guest->vm->mmu.pgtable_levels;
	unsigned int i, word, nr_guest, walks = 0;
	struct callchain_expectation e;
	struct guest_walk_result r;
	gva_t page = 0;

	/*
	 * A walk translates a page when it reaches the page, again only after leaving it, and ends
	 * at the frame that would take one page too many.
	 */
	for (i = 0; i < min(depth - 1, guest->nr_frames) && walks <= PEEK_MAX; i++) {
		for (word = 0; word < 2; word++) {
			gva_t p = (guest->frames[i] + word * 8) & PAGE_MASK;

			walks += p != page;
			page = p;
		}
	}
	if (walks > PEEK_MAX) {
		walks = PEEK_MAX;
		depth = i;
	}

	expect_guest_stack(&e, c->name, false, &guest->stack, depth);
	guest_walk_arm(fd, &count, 1);
	nr_guest = vcpu_run_and_compare(guest->vcpu, source, &attr, NR_SAMPLES, &e);
	guest_walk_get_results(fd, &r, 1);

	TEST_ASSERT(r.nr_walks == nr_guest, "%s, depth %u: %u walks, but %u guest samples",
		    c->name, depth, r.nr_walks, nr_guest);
	check_cost(c, depth, "pages were translated", r.max_table_walks, walks,
		   MAX_TABLE_WALKS(depth));
	check_cost(c, depth, "entries of tables were read", r.max_elements, walks * levels,
		   MAX_ELEMENTS(depth, levels));
	TEST_ASSERT_EQ(r.elements, nr_guest * walks * levels);

	/* The worst case reaches the bound, so it is not too high. */
	if (c->worst)
		TEST_ASSERT(walks == MAX_TABLE_WALKS(depth),
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

	guest.nr_frames = 0;
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

TEST_HARNESS_MAIN
