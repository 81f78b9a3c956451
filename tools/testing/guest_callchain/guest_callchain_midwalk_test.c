// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests whose page tables change while they are walked.
 *
 * The test_guest_walk module changes one entry at one step of each walk, for every entry and
 * every step; in some cases, it also changes it back and forth.  One rule tells what a walk must
 * find: an entry counts with the value that the walk has read for a page, and for that page only.
 */
#include "callchain_harness.h"
#include "midwalk_arch.h"
#include "test_modules.h"

/* Walks with each change: the second one must find the same as the first. */
#define NR_WALKS	2

/* How many samples to take after the last change, to check that all entries are restored. */
#define NR_RESTORED	5

/* How often to try again when too few samples hit the guest. */
#define MAX_ROUNDS	100

/* Four frames per page; the return address of the fourth one lies on the next page. */
#define NR_FRAMES	10
#define NR_PAGES	3
#define STRIDE		1024
#define OFFSET		0x3f8

/* Distance from the stack to its copies at each level, in page-table entries. */
#define COPY_DISTANCE	16

/* A page of any size may begin here; the tests have a memslot for its first part. */
#define HUGE_GPA	BIT_ULL(33)
#define HUGE_SLOT	10
#define HUGE_NR_PAGES	16

/* A physical address at which the tests have no memslot. */
#define NO_MEMSLOT_GPA	BIT_ULL(34)

/* Copies of the stack.  Return addresses differ, so that a chain tells which copy was read. */
enum copy {
	COPY_NONE,
	COPY_OTHER,
	COPY_HUGE,
};

enum kind {
	REMOVED,
	RESERVED,
	NO_MEMSLOT,
	MARKED_HUGE,
	HUGE_PAGE,
	REDIRECTED,
};

static const char * const kind_names[] = {
	[REMOVED]	= "removed",
	[RESERVED]	= "all bits set",
	[NO_MEMSLOT]	= "outside of memslots",
	[MARKED_HUGE]	= "marked as a huge page",
	[HUGE_PAGE]	= "a huge page",
	[REDIRECTED]	= "another table",
};

/**
 * struct midwalk_case - which entry changes, to what, and when
 * @kind:	what it changes to
 * @level:	the entry's level
 * @page:	the page of the stack that it maps; zero above the last level
 * @step:	how many entries the walk has read before the change
 * @flip:	the entry changes back at the next step, and so on
 */
struct midwalk_case {
	enum kind kind;
	int level;
	unsigned int page;
	unsigned int step;
	bool flip;
};

/**
 * struct midwalk - what a walk must do, by the rule
 * @e:		the sample that it must give
 * @elements:	how many page-table entries it reads
 */
struct midwalk {
	struct callchain_expectation e;
	unsigned int elements;
};

FIXTURE(midwalk)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct guest_stack stack;
	gva_t base;
	int fd;
};

FIXTURE_VARIANT(midwalk)
{
	enum pmi_source source;
	int levels;
};

PMI_VARIANTS(midwalk, _4_level, .levels = 4);
#if GUEST_MAX_LEVELS > 4
PMI_VARIANTS(midwalk, _5_level, .levels = 5);
#endif

static gva_t copy_gva(gva_t gva, int level)
{
	return gva + ((u64)COPY_DISTANCE << PG_LEVEL_SHIFT(level));
}

static u64 copy_ra(u64 ra, enum copy copy)
{
	return ra + ((u64)copy << 32);
}

/* Copy the stack's pages, and give the frames the return addresses of this copy. */
static void copy_stack(FIXTURE_DATA(midwalk) * self, gpa_t gpa, enum copy copy)
{
	unsigned int i;

	for (i = 0; i < NR_PAGES; i++)
		memcpy(addr_gpa2hva(self->vm, gpa + i * PAGE_SIZE),
		       addr_gva2hva(self->vm, self->base + i * PAGE_SIZE), PAGE_SIZE);

	for (i = 0; i < NR_FRAMES; i++) {
		gpa_t ra = gpa + self->stack.frames[i] + 8 - self->base;

		*(u64 *)addr_gpa2hva(self->vm, ra) = copy_ra(self->stack.ras[i], copy);
	}
}

FIXTURE_SETUP(midwalk)
{
	struct guest_stack_layout layout = {
		.nr_frames = NR_FRAMES,
		.stride = STRIDE,
		.offset = OFFSET,
		.far = true,
	};
	unsigned int i;
	gpa_t other;
	int level;

	SKIP_UNLESS_PMI(variant->source);
	SKIP_UNLESS_LEVELS(variant->levels);
	self->fd = guest_walk_open();
	if (self->fd < 0)
		SKIP(return, "The test_guest_walk module can't be loaded");

	self->vm = vm_create_looping(&self->vcpu, variant->levels, false);
	guest_stack_build_and_use(self->vcpu, &self->stack, &layout, false);
	self->base = self->stack.frames[0] & PAGE_MASK;

	/* Map the copy once for each level, so that each level has an entry that leads to it. */
	other = vm_phy_pages_alloc(self->vm, NR_PAGES, KVM_GUEST_PAGE_TABLE_MIN_PADDR, 0);
	copy_stack(self, other, COPY_OTHER);
	for (level = PG_LEVEL_4K; level <= variant->levels; level++)
		for (i = 0; i < NR_PAGES; i++)
			virt_pg_map(self->vm, copy_gva(self->base + i * PAGE_SIZE, level),
				    other + i * PAGE_SIZE);

	vm_userspace_mem_region_add(self->vm, VM_MEM_SRC_ANONYMOUS, HUGE_GPA, HUGE_SLOT,
				    HUGE_NR_PAGES, 0);
	copy_stack(self, HUGE_GPA + (self->base & (PG_LEVEL_SIZE(PG_LEVEL_1G) - 1)), COPY_HUGE);
}

FIXTURE_TEARDOWN(midwalk)
{
	close(self->fd);
	kvm_vm_free(self->vm);
}

static u64 *midwalk_pte(FIXTURE_DATA(midwalk) * self, const struct midwalk_case *c)
{
	return vm_get_pte_level(self->vm, self->base + c->page * PAGE_SIZE, c->level);
}

static u64 changed_pte(FIXTURE_DATA(midwalk) * self, const struct midwalk_case *c)
{
	gva_t gva = self->base + c->page * PAGE_SIZE;
	u64 leaf = *vm_get_pte_level(self->vm, gva, PG_LEVEL_4K);
	u64 pte = *midwalk_pte(self, c);

	switch (c->kind) {
	case REMOVED:
		return 0;
	case RESERVED:
		TEST_ASSERT(self->vm->pa_bits < 52, "No address bit is reserved");
		return ~0ULL;
	case NO_MEMSLOT:
		return (pte & ~PTE_ADDR) | NO_MEMSLOT_GPA;
	case MARKED_HUGE:
		TEST_ASSERT(c->level == PG_LEVEL_4K || never_huge(pte),
			    "0x%lx may be an entry for a huge page", pte);
		return pte_make_huge(self->vm, pte);
	case HUGE_PAGE:
		return pte_make_huge(self->vm, (leaf & ~PTE_ADDR) | HUGE_GPA);
	case REDIRECTED:
		return *vm_get_pte_level(self->vm, copy_gva(gva, c->level), c->level);
	}

	TEST_FAIL("No such kind: %u", c->kind);
	return 0;
}

/* Return true if the entry is changed when the walk has read @elements entries. */
static bool is_changed(const struct midwalk_case *c, unsigned int elements)
{
	if (elements < c->step)
		return false;

	return !c->flip || (elements - c->step) % 2 == 0;
}

/*
 * Translate a page as the guest's CPU would.  All entries are good, except for the
 * changed one.  Set *@copy to the copy of the stack that the page belongs to.  Return
 * false if the translation fails.
 */
static bool translate(const struct midwalk_case *c, int levels, unsigned int page,
		      struct midwalk *walk, enum copy *copy)
{
	int level;

	*copy = COPY_NONE;
	for (level = levels; level >= PG_LEVEL_4K; level--) {
		bool changed = level == c->level &&
			       (level > PG_LEVEL_4K || page == c->page) &&
			       is_changed(c, walk->elements);

		walk->elements++;
		if (!changed)
			continue;

		switch (c->kind) {
		case REDIRECTED:
			*copy = COPY_OTHER;
			continue;
		case NO_MEMSLOT:
			return false;
		case MARKED_HUGE:
			if (level == PG_LEVEL_4K && LEAF_IGNORES_HUGE)
				continue;
			break;
		case HUGE_PAGE:
			if (has_huge_pages(level)) {
				*copy = COPY_HUGE;
				return true;
			}
			break;
		default:
			break;
		}

		return false;
	}

	return true;
}

static void expect_midwalk(FIXTURE_DATA(midwalk) * self, const struct midwalk_case *c,
			   int levels, const char *name, struct midwalk *walk)
{
	struct callchain_expectation *e = &walk->e;
	enum copy copy = COPY_NONE;
	unsigned int frame, word;
	int page = -1;

	expect_guest_stack(e, name, false, &self->stack, 1);
	walk->elements = 0;

	for (frame = 0; frame <= NR_FRAMES; frame++) {
		for (word = 0; word < 2; word++) {
			gva_t gva = self->stack.frames[frame] + word * 8;
			int p = (gva - self->base) / PAGE_SIZE;

			if (p != page && !translate(c, levels, p, walk, &copy))
				return;
			page = p;
		}

		if (frame < NR_FRAMES)
			e->ips[e->nr++] = copy_ra(self->stack.ras[frame], copy);
	}
}

static const char *case_name(const struct midwalk_case *c)
{
	static char name[128];

	snprintf(name, sizeof(name), "%s, level %d, page %u, %s step %u", kind_names[c->kind],
		 c->level, c->page, c->flip ? "flips from" : "at", c->step);
	return name;
}

static unsigned int add_cases(struct midwalk_case *cases, enum kind kind, int levels)
{
	struct midwalk_case c = { .kind = kind };
	unsigned int nr = 0;

	/* At the last level, no entry maps a huge page, whatever its bits are. */
	c.level = kind == HUGE_PAGE ? PG_LEVEL_2M : PG_LEVEL_4K;
	for (; c.level <= levels; c.level++) {
		/* Above the last level, all pages have the same entries. */
		for (c.page = 0; c.page < (c.level == PG_LEVEL_4K ? NR_PAGES : 1); c.page++) {
			c.flip = false;
			for (c.step = 0; c.step <= NR_PAGES * levels; c.step++)
				cases[nr++] = c;

			/* Every second read finds the change, from the first or the second on. */
			c.flip = true;
			for (c.step = 0; c.step < 2; c.step++)
				cases[nr++] = c;
		}
	}

	return nr;
}

/* Samples come in the order of the walks, and the walks in the order of the cases. */
struct midwalk_run {
	FIXTURE_DATA(midwalk) * self;
	int levels;
	struct midwalk_case cases[GUEST_WALK_MAX_CHANGES];
	unsigned int nr_cases;
	unsigned int nr_guest;
	struct midwalk walk;
};

static void check_sample(const struct callchain_sample *s, void *arg)
{
	struct midwalk_run *run = arg;
	unsigned int i = run->nr_guest / NR_WALKS;

	if (s->shares_walk)
		return;

	/* Walks after the last case find all entries restored. */
	if (i >= run->nr_cases)
		expect_guest_stack(&run->walk.e, "all restored", false, &run->self->stack,
				   DEFAULT_MAX_STACK);
	else if (run->nr_guest % NR_WALKS == 0)
		expect_midwalk(run->self, &run->cases[i], run->levels,
			       case_name(&run->cases[i]), &run->walk);

	if (callchain_sample_compare(s, &run->walk.e))
		run->nr_guest++;
}

static void check_result(const struct midwalk_run *run, const struct midwalk_case *c,
			 const struct guest_walk_change *change,
			 const struct guest_walk_result *result, const struct midwalk *walk)
{
	const unsigned int changes = c->flip ? walk->elements - c->step + 1 : 1;
	const u64 pte = *midwalk_pte(run->self, c);

	TEST_ASSERT(result->nr_walks == NR_WALKS, "%s: %u walks, not %u", walk->e.name,
		    result->nr_walks, NR_WALKS);
	TEST_ASSERT(!result->failures, "%s: %u writes of the entry failed", walk->e.name,
		    result->failures);
	TEST_ASSERT(result->changes == NR_WALKS * changes,
		    "%s: %u changes in %u walks, not %u in each", walk->e.name,
		    result->changes, NR_WALKS, changes);
	TEST_ASSERT(result->max_elements == walk->elements &&
		    result->elements == NR_WALKS * walk->elements,
		    "%s: %u entries were read in %u walks, up to %u in one, not %u in each",
		    walk->e.name, result->elements, NR_WALKS, result->max_elements,
		    walk->elements);
	TEST_ASSERT(pte == change->before, "%s: the entry is 0x%lx, not 0x%llx afterwards",
		    walk->e.name, pte, change->before);
}

static void run_kind(FIXTURE_DATA(midwalk) * self, const FIXTURE_VARIANT(midwalk) * variant,
		     enum kind kind)
{
	static struct guest_walk_change changes[GUEST_WALK_MAX_CHANGES];
	static struct guest_walk_result results[GUEST_WALK_MAX_CHANGES];
	static struct midwalk_run run;
	struct perf_event_attr attr = { .sample_period = DEFAULT_SAMPLE_PERIOD_NS };
	unsigned int i, round, nr_wanted;

	run.self = self;
	run.levels = variant->levels;
	run.nr_cases = add_cases(run.cases, kind, variant->levels);
	for (i = 0; i < run.nr_cases; i++) {
		u64 *pte = midwalk_pte(self, &run.cases[i]);

		changes[i] = (struct guest_walk_change) {
			.addr		= (u64)pte,
			.before		= *pte,
			.after		= changed_pte(self, &run.cases[i]),
			.step		= run.cases[i].step,
			.flip		= run.cases[i].flip,
			.nr_walks	= NR_WALKS,
		};
	}

	nr_wanted = run.nr_cases * NR_WALKS + NR_RESTORED;
	guest_walk_arm(self->fd, changes, run.nr_cases);
	for (round = 0; round < MAX_ROUNDS && run.nr_guest < nr_wanted; round++) {
		vcpu_run_sampled(self->vcpu, variant->source, &attr, nr_wanted - run.nr_guest,
				 check_sample, &run);
		/* On a slow host, the next PMI may come before the guest runs again. */
		attr.sample_period += DEFAULT_SAMPLE_PERIOD_NS;
	}
	guest_walk_get_results(self->fd, results, run.nr_cases);
	TEST_ASSERT(run.nr_guest >= nr_wanted, "%s: %u samples hit the guest, not %u",
		    kind_names[kind], run.nr_guest, nr_wanted);

	for (i = 0; i < run.nr_cases; i++) {
		expect_midwalk(self, &run.cases[i], variant->levels, case_name(&run.cases[i]),
			       &run.walk);
		check_result(&run, &run.cases[i], &changes[i], &results[i], &run.walk);
	}
}

#define MIDWALK_TEST(_name, _kind)	\
CALLCHAIN_TEST(midwalk, _name)		\
{					\
	run_kind(self, variant, _kind);	\
}

MIDWALK_TEST(removed, REMOVED);
MIDWALK_TEST(reserved, RESERVED);
MIDWALK_TEST(no_memslot, NO_MEMSLOT);
MIDWALK_TEST(marked_huge, MARKED_HUGE);
MIDWALK_TEST(huge_page, HUGE_PAGE);
MIDWALK_TEST(redirected, REDIRECTED);

TEST_HARNESS_MAIN
