// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of a guest whose memslots, memory, page tables and frames change while its stack is
 * read: a chain may be short, or have what was there a moment before, but never anything else.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "callchain_harness.h"
#include "ucall_common.h"
#include "userfaultfd_util.h"

/*
 * Each case takes NR_SAMPLES samples at a time, until at least NR_GUEST_SAMPLES
 * have hit the guest and NR_CHANGES changes were made.
 */
#define NR_SAMPLES		100
#define NR_GUEST_SAMPLES	50
#define NR_CHANGES		24

/* About as long as a walk takes on an emulated host.  The shortest period of cpu-clock is 10 us. */
#define PERIOD_NS		50000

/* Each frame lies on a page of its own, and so costs a walk of the page tables. */
#define NR_FRAMES		64

/* The stack and a copy with other return addresses, 2 MiB each, in a memslot of their own. */
#define STACK_SLOT		10
#define STACK_GPA		BIT_ULL(32)
#define COPY_OFFSET		BIT_ULL(21)
#define STACK_SLOT_SIZE		(2 * COPY_OFFSET)

/* The slot moves to OTHER_GPA; there is never a slot at NO_MEMSLOT_GPA. */
#define OTHER_GPA		BIT_ULL(33)
#define NO_MEMSLOT_GPA		BIT_ULL(34)

/* Added to the stack's return addresses to get those of the copy. */
#define COPY_RA			0x10

/* Tamper with these frames: the third one, and every twelfth after it. */
#define FIRST_BAD		2
#define BAD_STEP		12

#define MAX_GUEST_WRITES	80

/* Effects that the chains of a case must show at least once, besides full chains. */
enum {
	SEES_SHORT	= BIT(0),	/* chains that are cut short */
	SEES_COPY	= BIT(1),	/* frames of the copy */
	SEES_SKIPS	= BIT(2),	/* chains that leave out a frame */
};

struct churn;

/*
 * struct churn_case - one way to change what is walked
 * @name:	for messages
 * @setup:	called before the first change, may be NULL
 * @change:	makes the change number @step from the host; NULL if a vCPU makes the
 *		changes, which @setup lists
 * @nr_steps:	how many steps there are; the last one restores what was there before
 * @burst:	how often a vCPU makes all changes at full speed before it exits
 * @src_type:	backing of the memslot, see vm_userspace_mem_region_add()
 * @sees:	SEES_* that must be seen; the others must not
 */
struct churn_case {
	const char *name;
	void (*setup)(struct churn *c);
	void (*change)(struct churn *c, unsigned int step);
	unsigned int nr_steps;
	unsigned int burst;
	enum vm_mem_backing_src_type src_type;
	unsigned int sees;
};

/* A guest, the changes to it, and what was seen of it. */
struct churn {
	const struct churn_case *way;

	/* @vcpu runs guest_loop() on @stack, which it never touches. */
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct guest_stack stack;
	struct userspace_mem_region *region;	/* the stack's memslot */
	u64 *saved;				/* a copy of the stack */

	/* A thread makes the changes; for some of them, it runs another vCPU. */
	struct kvm_vcpu *changer;
	struct kvm_random_state rng;
	unsigned int first, nr;			/* pages that this round changes */
	struct uffd_desc *uffd;			/* has no handler: walks must raise no userfault */
	bool stop;

	/* What samples the vCPU; its ring grows with each walk. */
	struct callchain_event event;

	/* Counts of changes and of the guest's samples. */
	unsigned int nr_changes;
	unsigned int nr_guest;
	unsigned int nr_full;			/* with all frames, and none of the copy */
	unsigned int seen;			/* SEES_* */
};

static void *page_hva(struct churn *c, unsigned int page)
{
	return c->region->host_mem + page * PAGE_SIZE;
}

/*
 * Pick a random range of the stack's pages that have a frame.  The lowest page has none, see
 * guest_stack_build().
 */
static void pick_pages(struct churn *c)
{
	c->first = kvm_random_u32_in_range(&c->rng, 1, NR_FRAMES);
	c->nr = kvm_random_u32_in_range(&c->rng, 1, NR_FRAMES + 1 - c->first);
}

static void *picked_hva(struct churn *c)
{
	return page_hva(c, c->first);
}

static size_t picked_size(struct churn *c)
{
	return c->nr * PAGE_SIZE;
}

/* Restore the picked pages, word by word: a walk may see each word old or new, but not a mix. */
static void rewrite_picked(struct churn *c)
{
	const u64 *src = c->saved + c->first * PAGE_SIZE / sizeof(u64);
	u64 *dst = picked_hva(c);
	unsigned int i;

	for (i = 0; i < picked_size(c) / sizeof(u64); i++)
		WRITE_ONCE(dst[i], src[i]);
}

/* Changes of the memslot. */

static void set_slot(struct churn *c, gpa_t gpa, u64 size, u64 offset, u32 flags)
{
	struct kvm_userspace_memory_region2 region = c->region->region;

	region.guest_phys_addr = gpa;
	region.memory_size = size;
	region.userspace_addr += offset;
	region.flags = flags;
	vm_ioctl(c->vm, KVM_SET_USER_MEMORY_REGION2, &region);
}

static void slot_delete(struct churn *c, unsigned int step)
{
	set_slot(c, STACK_GPA, step ? STACK_SLOT_SIZE : 0, 0, 0);
}

static void slot_move(struct churn *c, unsigned int step)
{
	set_slot(c, step ? STACK_GPA : OTHER_GPA, STACK_SLOT_SIZE, 0, 0);
}

/* Delete the slot, add it with the copy, delete it, and add it with the stack. */
static void slot_copy(struct churn *c, unsigned int step)
{
	set_slot(c, STACK_GPA, step & 1 ? COPY_OFFSET : 0, step == 1 ? COPY_OFFSET : 0, 0);
}

static void slot_read_only(struct churn *c, unsigned int step)
{
	set_slot(c, STACK_GPA, step & 1 ? COPY_OFFSET : 0, step == 1 ? COPY_OFFSET : 0,
		 step == 1 ? KVM_MEM_READONLY : 0);
}

static void slot_dirty_log(struct churn *c, unsigned int step)
{
	set_slot(c, STACK_GPA, STACK_SLOT_SIZE, 0, step ? 0 : KVM_MEM_LOG_DIRTY_PAGES);
}

/* Changes of the VMM's memory. */

static void drop_picked(struct churn *c)
{
	TEST_ASSERT(!madvise(picked_hva(c), picked_size(c), MADV_DONTNEED),
		    "madvise(MADV_DONTNEED) failed: %s", strerror(errno));
}

static void memory_drop(struct churn *c, unsigned int step)
{
	if (step) {
		rewrite_picked(c);
		return;
	}

	pick_pages(c);
	drop_picked(c);
}

static void memory_protect(struct churn *c, unsigned int step)
{
	if (!step)
		pick_pages(c);
	TEST_ASSERT(!mprotect(picked_hva(c), picked_size(c),
			      step ? PROT_READ | PROT_WRITE : PROT_NONE),
		    "mprotect() failed: %s", strerror(errno));
}

static void memory_unmap(struct churn *c, unsigned int step)
{
	void *hva;

	if (!step) {
		pick_pages(c);
		kvm_munmap(picked_hva(c), picked_size(c));
		return;
	}

	/* MAP_FIXED_NOREPLACE fails if something else was mapped there meanwhile. */
	hva = mmap(picked_hva(c), picked_size(c), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	TEST_ASSERT(hva == picked_hva(c), "mmap() of the stack failed: %s", strerror(errno));
	rewrite_picked(c);
}

static void memory_punch_hole(struct churn *c, unsigned int step)
{
	if (step) {
		rewrite_picked(c);
		return;
	}

	pick_pages(c);
	TEST_ASSERT(!fallocate(c->region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       c->first * PAGE_SIZE, picked_size(c)),
		    "fallocate(FALLOC_FL_PUNCH_HOLE) failed: %s", strerror(errno));
}

/* Dropping pages splits the huge page; the last step collapses them to a huge page again. */
static void memory_collapse(struct churn *c, unsigned int step)
{
	if (step < 2) {
		memory_drop(c, step);
		return;
	}

	TEST_ASSERT(!madvise(page_hva(c, 0), COPY_OFFSET, MADV_COLLAPSE) || errno == EAGAIN,
		    "madvise(MADV_COLLAPSE) failed: %s", strerror(errno));
}

/* Changes of memory that raises userfaults. */

static void uffd_setup(struct churn *c)
{
	c->uffd = uffd_setup_demand_paging(UFFDIO_REGISTER_MODE_MISSING, 0, c->region->host_mem,
					   COPY_OFFSET, 0, NULL);
}

static void check_userfaults(struct churn *c)
{
	struct uffd_msg msg = {};
	ssize_t r;

	r = read(c->uffd->uffd, &msg, sizeof(msg));
	TEST_ASSERT(r == -1 && errno == EAGAIN,
		    "%s: a walk has raised a userfault, event 0x%x at 0x%llx", c->way->name,
		    msg.event, msg.arg.pagefault.address);
}

/*
 * Make the pages missing, fill them with zeroes, which end a chain as well, make them missing
 * again, and fill them with the frames.
 */
static void uffd_fill(struct churn *c, unsigned int step)
{
	struct uffdio_zeropage zero = { };
	struct uffdio_copy copy = { };

	switch (step) {
	case 0:
		pick_pages(c);
		drop_picked(c);
		break;
	case 1:
		zero.range.start = (u64)picked_hva(c);
		zero.range.len = picked_size(c);
		TEST_ASSERT(!ioctl(c->uffd->uffd, UFFDIO_ZEROPAGE, &zero),
			    "UFFDIO_ZEROPAGE failed: %s", strerror(errno));
		break;
	case 2:
		drop_picked(c);
		break;
	case 3:
		copy.dst = (u64)picked_hva(c);
		copy.src = (u64)c->saved + c->first * PAGE_SIZE;
		copy.len = picked_size(c);
		TEST_ASSERT(!ioctl(c->uffd->uffd, UFFDIO_COPY, &copy), "UFFDIO_COPY failed: %s",
			    strerror(errno));
		break;
	}

	check_userfaults(c);
}

/* Changes that another vCPU makes. */

static struct guest_write {
	u64 *addr;
	u64 value;
} guest_writes[MAX_GUEST_WRITES];

static unsigned int nr_guest_writes, guest_burst;

static void make_write(unsigned int i)
{
	WRITE_ONCE(*guest_writes[i].addr, guest_writes[i].value);
}

/*
 * Make all writes at full speed.  Then make only some, one more each time, and exit: the host
 * waits for a walk that sees the guest's memory like this.
 */
static void guest_changer(void)
{
	unsigned int i, n, last;

	for (;;) {
		for (last = 0; last < nr_guest_writes; last++) {
			for (n = 0; n < guest_burst; n++) {
				for (i = 0; i < nr_guest_writes; i++)
					make_write(i);
			}
			for (i = 0; i <= last; i++)
				make_write(i);
			GUEST_SYNC(last);
		}
	}
}

static void add_write(gva_t gva, u64 value)
{
	TEST_ASSERT(nr_guest_writes < MAX_GUEST_WRITES, "Too many guest_writes[]");
	guest_writes[nr_guest_writes++] = (struct guest_write) { (u64 *)gva, value };
}

#define for_each_bad_frame(i) \
	for (i = FIRST_BAD; i < NR_FRAMES; i += BAD_STEP)

static u64 *frame_entry(struct churn *c, unsigned int i, int level)
{
	return vm_get_pte_level(c->vm, c->stack.frames[i], level);
}

/* Let the guest write each of @values to a page table entry, and restore the entry each time. */
static void __toggle_entry(struct churn *c, const u64 *entry, const u64 *values, unsigned int nr)
{
	gva_t gva = vm_unused_gva_gap(c->vm, PAGE_SIZE, KVM_UTIL_MIN_VADDR);
	gpa_t gpa = addr_hva2gpa(c->vm, (void *)entry);

	virt_pg_map(c->vm, gva, gpa & PAGE_MASK);
	while (nr--) {
		add_write(gva + (gpa & ~PAGE_MASK), *values++);
		add_write(gva + (gpa & ~PAGE_MASK), *entry);
	}
}

#define toggle_entry(_c, _entry, ...) \
	__toggle_entry(_c, _entry, (const u64[]){ __VA_ARGS__ }, \
		       ARRAY_SIZE(((const u64[]){ __VA_ARGS__ })))

static void entry_cleared(struct churn *c)
{
	unsigned int i;

	for_each_bad_frame(i)
		toggle_entry(c, frame_entry(c, i, PG_LEVEL_4K), 0);
}

static void entry_redirected(struct churn *c)
{
	unsigned int i;

	for_each_bad_frame(i) {
		u64 *pte = frame_entry(c, i, PG_LEVEL_4K);

		toggle_entry(c, pte, *pte + COPY_OFFSET);
	}
}

static void entry_garbage(struct churn *c)
{
	unsigned int i;

	for_each_bad_frame(i) {
		u64 *pte = frame_entry(c, i, PG_LEVEL_4K);

		toggle_entry(c, pte, ~pte_present_mask(c->vm), ~0ULL,
			     NO_MEMSLOT_GPA | pte_present_mask(c->vm),
			     *pte - STACK_GPA + NO_MEMSLOT_GPA);
	}
}

/*
 * Three values for a huge page: the first one is valid, and maps the copy in place of the stack;
 * the second one is misaligned, which is a fault on x86; the third one leads to an address without
 * memory.
 */
static void entry_huge(struct churn *c)
{
	gpa_t gpa = addr_gva2gpa(c->vm, c->stack.frames[0] & PAGE_MASK);
	u64 huge = pte_make_huge(c->vm, *frame_entry(c, 0, PG_LEVEL_4K)) - gpa;

	toggle_entry(c, frame_entry(c, 0, PG_LEVEL_2M), huge + STACK_GPA + COPY_OFFSET,
		     huge + STACK_GPA + PAGE_SIZE * 2, huge + NO_MEMSLOT_GPA);
}

static void entry_root(struct churn *c)
{
	toggle_entry(c, frame_entry(c, 0, c->vm->mmu.pgtable_levels), 0);
}

static void frames(struct churn *c)
{
	const gva_t *f = c->stack.frames;
	unsigned int i;

	for_each_bad_frame(i) {
		const gva_t next = f[i], ra = f[i] + sizeof(u64);

		add_write(next, f[i + 2]);
		add_write(ra, c->stack.ras[i] + COPY_RA);
		add_write(next, f[i + 1]);
		add_write(next, f[i - 1]);
		add_write(ra, c->stack.ras[i]);
		add_write(next, f[i + 1] + 1);
		add_write(next, 0);
		add_write(next, f[i + 1]);
		add_write(ra, 0);
		add_write(ra, BIT_ULL(62));
		add_write(ra, c->stack.ras[i]);
	}
}

static const struct churn_case slot_cases[] = {
	{ "memslot deleted, added", NULL, slot_delete, 2, .sees = SEES_SHORT },
	{ "memslot moved, back", NULL, slot_move, 2, .sees = SEES_SHORT },
	{ "memslot with other memory", NULL, slot_copy, 4, .sees = SEES_SHORT | SEES_COPY },
	{ "memslot read-only, writable", NULL, slot_read_only, 4, .sees = SEES_SHORT | SEES_COPY },
	{ "memslot with dirty log, without", NULL, slot_dirty_log, 2 },
};

static const struct churn_case memory_cases[] = {
	{ "memory dropped, rewritten", NULL, memory_drop, 2, .sees = SEES_SHORT },
	{ "memory inaccessible, back", NULL, memory_protect, 2, .sees = SEES_SHORT },
	{ "memory unmapped, mapped", NULL, memory_unmap, 2, .sees = SEES_SHORT },
	{ "hole punched, refilled", NULL, memory_punch_hole, 2, .sees = SEES_SHORT,
	  .src_type = VM_MEM_SRC_SHMEM },
};

static const struct churn_case huge_page_cases[] = {
	{ "huge page split, collapsed", NULL, memory_collapse, 3, .sees = SEES_SHORT,
	  .src_type = VM_MEM_SRC_ANONYMOUS_THP },
};

static const struct churn_case userfault_cases[] = {
	{ "page missing, filled", uffd_setup, uffd_fill, 4, .sees = SEES_SHORT },
};

static const struct churn_case page_table_cases[] = {
	{ "entries cleared", entry_cleared, .burst = 500, .sees = SEES_SHORT },
	{ "entries redirected", entry_redirected, .burst = 500, .sees = SEES_COPY },
	{ "entries garbage", entry_garbage, .burst = 150, .sees = SEES_SHORT },
	{ "table made a huge page", entry_huge, .burst = 1000, .sees = SEES_SHORT | SEES_COPY },
	/* Without EPT or NPT, KVM shadows the root table, and emulates writes to it: make fewer. */
	{ "root entry cleared", entry_root, .burst = 100, .sees = SEES_SHORT },
};

static const struct churn_case frame_cases[] = {
	{ "frames rewritten", frames, .burst = 100, .sees = SEES_SHORT | SEES_COPY | SEES_SKIPS },
};

/*
 * Wait until one whole walk has seen this state.  Another one may be under way already: wait for
 * two records.
 */
static void wait_for_walk(struct churn *c)
{
	u64 since = callchain_event_head(&c->event);

	while (callchain_event_count_walks(&c->event, since) < 2 && !READ_ONCE(c->stop))
		sched_yield();
}

static void spin(struct churn *c)
{
	unsigned int n = kvm_random_u32_in_range(&c->rng, 0, 1000);

	while (n--)
		cpu_relax();
}

static void count_change(struct churn *c)
{
	WRITE_ONCE(c->nr_changes, c->nr_changes + 1);
}

/* Every second round waits for a walk after each step, so that walks see all steps for sure. */
static void *change_by_host(void *arg)
{
	struct churn *c = arg;
	unsigned int step, round;

	for (round = 0; !READ_ONCE(c->stop); round++) {
		for (step = 0; step < c->way->nr_steps; step++) {
			c->way->change(c, step);
			count_change(c);
			if (round & 1)
				spin(c);
			else
				wait_for_walk(c);
		}
	}

	return NULL;
}

static void *change_by_guest(void *arg)
{
	struct churn *c = arg;
	struct ucall uc;

	while (!READ_ONCE(c->stop)) {
		vcpu_run(c->changer);
		switch (get_ucall(c->changer, &uc)) {
		case UCALL_SYNC:
			count_change(c);
			wait_for_walk(c);
			break;
		case UCALL_ABORT:
			REPORT_GUEST_ASSERT(uc);
		default:
			TEST_FAIL("%s: the changer has exited: %s", c->way->name,
				  exit_reason_str(c->changer->run->exit_reason));
		}
	}

	return NULL;
}

static void check_sample(const struct callchain_sample *s, void *arg)
{
	struct churn *c = arg;
	const struct churn_case *way = c->way;
	unsigned int i, frame = 0, seen = 0;

	if (!callchain_sample_is_guest(s) || s->shares_walk)
		return;

	TEST_ASSERT(s->cpumode == PERF_RECORD_MISC_GUEST_KERNEL && s->ip == (u64)guest_loop,
		    "%s: cpumode %u, IP 0x%lx", way->name, s->cpumode, s->ip);
	if (s->hit_kvm)
		return;

	TEST_ASSERT(s->nr >= 2 && s->ips[0] == (u64)PERF_CONTEXT_GUEST_KERNEL &&
		    s->ips[1] == s->ip, "%s: a chain of %lu entries, the first ones 0x%lx, 0x%lx",
		    way->name, s->nr, s->ips[0], s->ips[1]);

	for (i = 2; i < s->nr; i++, frame++) {
		u64 ra = s->ips[i];

		TEST_ASSERT(frame < NR_FRAMES, "%s: entry %u, 0x%lx, is beyond the last frame",
			    way->name, i, ra);
		if (way->sees & SEES_SKIPS && ra > c->stack.ras[frame] + COPY_RA) {
			seen |= SEES_SKIPS;
			frame++;
		}
		if (frame < NR_FRAMES && way->sees & SEES_COPY &&
		    ra == c->stack.ras[frame] + COPY_RA) {
			seen |= SEES_COPY;
			ra -= COPY_RA;
		}
		TEST_ASSERT(frame < NR_FRAMES && ra == c->stack.ras[frame],
			    "%s: entry %u is 0x%lx, which no frame has that may come here",
			    way->name, i, s->ips[i]);
	}

	if (frame < NR_FRAMES)
		seen |= SEES_SHORT;
	TEST_ASSERT(!(seen & ~way->sees),
		    "%s: %u frames of %u, but the stack was there all the time",
		    way->name, frame, NR_FRAMES);

	c->seen |= seen;
	c->nr_full += !seen;
	c->nr_guest++;
}

static void build(struct churn *c)
{
	const struct guest_stack_layout layout = {
		.nr_frames = NR_FRAMES,
		.stride = PAGE_SIZE,
		.offset = 0x7f0,
		.far = true,
	};
	unsigned int i;

	vm_userspace_mem_region_add(c->vm, c->way->src_type, STACK_GPA, STACK_SLOT,
				    STACK_SLOT_SIZE / PAGE_SIZE, 0);
	c->region = memslot2region(c->vm, STACK_SLOT);

	c->vm->memslots[MEM_REGION_TEST_DATA] = STACK_SLOT;
	guest_stack_build(c->vm, &c->stack, &layout);
	guest_stack_use(c->vcpu, &c->stack, (gva_t)guest_loop);
	TEST_ASSERT(addr_gva2hva(c->vm, c->stack.gva) == c->region->host_mem,
		    "The stack is not where its memslot begins");

	c->saved = malloc(COPY_OFFSET);
	TEST_ASSERT(c->saved, "malloc(%llu)", COPY_OFFSET);
	memcpy(c->saved, c->region->host_mem, COPY_OFFSET);
	memcpy(c->region->host_mem + COPY_OFFSET, c->saved, COPY_OFFSET);
	for (i = 0; i < NR_FRAMES; i++) {
		u64 *ra = addr_gva2hva(c->vm, c->stack.frames[i] + sizeof(u64));

		ra[COPY_OFFSET / sizeof(u64)] += COPY_RA;
	}
}

static void run_case(const struct churn_case *way, enum pmi_source source)
{
	const struct perf_event_attr attr = {
		.sample_period = PERIOD_NS,
		.wakeup_events = NR_SAMPLES,
	};
	struct churn c = {
		.way = way,
		.rng = new_kvm_random_state(kvm_random_seed),
	};
	struct general_regs before, after;
	struct kvm_vcpu *vcpus[2];
	pthread_t changer;

	c.vm = vm_create_sampled(ARRAY_SIZE(vcpus), guest_changer, vcpus);
	c.vcpu = vcpus[0];
	c.changer = vcpus[1];
	build(&c);

	nr_guest_writes = 0;
	guest_burst = way->burst;
	if (way->setup)
		way->setup(&c);
	sync_global_to_guest(c.vm, guest_writes);
	sync_global_to_guest(c.vm, nr_guest_writes);
	sync_global_to_guest(c.vm, guest_burst);

	vcpu_get_general_regs(c.vcpu, &before);
	TEST_ASSERT(!callchain_event_open(&c.event, source, &attr, 0, -1),
		    "perf_event_open() failed: %s", strerror(errno));
	pthread_create(&changer, NULL, way->change ? change_by_host : change_by_guest, &c);
	do {
		vcpu_run_until_sampled(c.vcpu, &c.event, true);
		callchain_event_read(&c.event, check_sample, &c);
	} while (c.nr_guest < NR_GUEST_SAMPLES || READ_ONCE(c.nr_changes) < NR_CHANGES);
	WRITE_ONCE(c.stop, true);
	pthread_join(changer, NULL);

	TEST_ASSERT(!c.event.waits, "%s: the record of a sample is missing", way->name);
	callchain_event_close(&c.event);
	vcpu_get_general_regs(c.vcpu, &after);

	ksft_print_msg("%s: %u samples, %u full, %u changes\n", way->name, c.nr_guest,
		       c.nr_full, c.nr_changes);
	TEST_ASSERT(c.nr_full, "%s: no chain was full", way->name);
	TEST_ASSERT(c.seen == way->sees, "%s: this was seen: 0x%x, and not 0x%x", way->name,
		    c.seen, way->sees);
	TEST_ASSERT(!memcmp(&before, &after, sizeof(before)),
		    "%s: sampling changed the guest's registers", way->name);

	if (c.uffd)
		uffd_stop_demand_paging(c.uffd);
	kvm_vm_free(c.vm);
	free(c.saved);
}

PMI_FIXTURE(churn)

#define RUN_CASES(_cases)						\
do {									\
	const struct churn_case *c;					\
									\
	for_each_case(c, _cases)					\
		run_case(c, variant->source);				\
} while (0)

CALLCHAIN_TEST(churn, memslots)
{
	RUN_CASES(slot_cases);
}

CALLCHAIN_TEST(churn, memory)
{
	RUN_CASES(memory_cases);
}

CALLCHAIN_TEST(churn, huge_pages)
{
	if (!thp_configured())
		SKIP(return, "The host has no transparent huge pages");

	RUN_CASES(huge_page_cases);
}

CALLCHAIN_TEST(churn, userfaults)
{
	SKIP_UNLESS_USERFAULTS();
	RUN_CASES(userfault_cases);
}

CALLCHAIN_TEST(churn, page_tables)
{
	RUN_CASES(page_table_cases);
}

CALLCHAIN_TEST(churn, frames)
{
	RUN_CASES(frame_cases);
}

TEST_HARNESS_MAIN
