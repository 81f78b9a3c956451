// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sampling must leave no trace.  Two guests run the same instructions, one of them
 * is sampled all the while, and afterwards both must have the same state.  Walks that
 * end at an absent page must neither bring it in nor raise a userfault.
 */
#include <fcntl.h>
#include <linux/bitmap.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "apic.h"
#include "callchain_harness.h"
#include "hyperv.h"
#include "userfaultfd_util.h"

/*
 * Sample a guest for MIN_ITERATIONS of its loop.  If fewer than MIN_SAMPLES samples have the whole
 * chain, repeat this with a new guest and twice as many iterations, until there are enough.
 */
#define MIN_SAMPLES		100
#define MIN_ITERATIONS		(1UL << 19)

/* Samples to take of a guest whose chain ends at a page that isn't there. */
#define NR_SAMPLES		25

#define NR_FRAMES		16

#define STACK_SLOT		1
#define STACK_SLOT_GPA		(1ULL << 32)
#define STACK_SLOT_PAGES	64

/* Replace this frame's page, or a table that leads to it, by a page that nobody has touched. */
#define ABSENT			5
#define ABSENT_SLOT		2
#define ABSENT_SLOT_GPA		(1ULL << 33)

/* The guest writes to these pages; one of them is present at a time. */
#define NR_TOUCHED		8
#define TOUCHED_GVA		(1ULL << 30)
#define ITERATIONS_PER_FAULT	(1UL << 16)

#define EXIT_PORT		0x10

/* More entries than any guest here can fill. */
#define DIRTY_RING_SIZE		(4096 * sizeof(struct kvm_dirty_gfn))

/*
 * The guest's work.  All its variables are in registers: RCX counts down, RSI
 * points to the pages to write, RSP is for exceptions in kernel mode.  RBP is the
 * frame pointer, and isn't used.
 */
void guest_work(void);
void guest_work_end(void);
asm(".pushsection .text\n"
    ".balign 64\n"
    ".global guest_work, guest_work_end\n"
    "guest_work:\n"
    "	lea	-1(%rcx), %rax\n"
    "	shr	$16, %rax\n"
    "	and	$7, %eax\n"
    "	shl	$12, %rax\n"
    "	add	%rcx, (%rsi,%rax)\n"
    "	movq	%rcx, %xmm0\n"
    "	paddq	%xmm0, %xmm1\n"
    "	dec	%rcx\n"
    "	jnz	guest_work\n"
    "	out	%al, $0x10\n"
    "guest_work_end:\n"
    ".popsection");

kvm_static_assert(NR_TOUCHED == 7 + 1);
kvm_static_assert(ITERATIONS_PER_FAULT == 1 << 16);

/* Variables of the guest's page fault handler, and how many page faults there were. */
static u64 *touched_ptes;
static gva_t touched_gva;
static unsigned int present;
static unsigned long nr_faults;

static void guest_handle_page_fault(struct ex_regs *regs)
{
	const u64 mask = guest_mmu.arch.pte_masks.present |
			 guest_mmu.arch.pte_masks.accessed |
			 guest_mmu.arch.pte_masks.dirty;
	u64 nr = (get_cr2() - touched_gva) / PAGE_SIZE;

	GUEST_ASSERT(nr < NR_TOUCHED);
	touched_ptes[present] &= ~mask;
	invlpg(touched_gva + present * PAGE_SIZE);
	touched_ptes[nr] |= guest_mmu.arch.pte_masks.present;
	present = nr;
	nr_faults++;
}

struct guest {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct guest_stack stack;
};

FIXTURE(no_side_effects) {};

FIXTURE_VARIANT(no_side_effects)
{
	enum pmi_source source;
	int levels;
	bool user;
};

PMI_VARIANTS(no_side_effects, _4_level_kernel, .levels = 4);
PMI_VARIANTS(no_side_effects, _4_level_user, .levels = 4, .user = true);
PMI_VARIANTS(no_side_effects, _5_level_kernel, .levels = 5);
PMI_VARIANTS(no_side_effects, _5_level_user, .levels = 5, .user = true);

FIXTURE_SETUP(no_side_effects)
{
	SKIP_UNLESS_PMI(variant->source);
	SKIP_UNLESS_LEVELS(variant->levels);
}

FIXTURE_TEARDOWN(no_side_effects)
{
}

#define VARIANT const FIXTURE_VARIANT(no_side_effects)

static void create_guest(struct guest *guest, VARIANT *variant,
			 u32 dirty_ring_size)
{
	const struct guest_stack_layout layout = {
		.nr_frames = NR_FRAMES,
		.stride = PAGE_SIZE,
		.offset = 0x7f0,
		.far = true,
	};
	struct kvm_vm *vm;

	vm = vm_create(1);
	if (dirty_ring_size)
		vm_enable_dirty_ring(vm, dirty_ring_size);
	guest->vm = vm;
	guest->vcpu = vm_vcpu_add(vm, 0, guest_loop);
	vcpu_set_if(guest->vcpu);
	if (vm->mmu.pgtable_levels > variant->levels)
		vcpu_use_4_level_paging(guest->vcpu);

	/* What the test allocates by vm_alloc() lies in a memslot of its own. */
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS, STACK_SLOT_GPA, STACK_SLOT,
				    STACK_SLOT_PAGES, 0);
	vm->memslots[MEM_REGION_TEST_DATA] = STACK_SLOT;

	guest_stack_build(vm, &guest->stack, &layout);
	if (variant->user) {
		vm_set_user_accessible(vm, guest->stack.gva, guest->stack.nr_pages);
		vm_set_user_accessible(vm, (gva_t)guest_work & PAGE_MASK, 1);
		vcpu_enter_user_mode(guest->vcpu);
	}
}

/* Set up a guest for its work, which doesn't use the frame pointer. */
static void prepare_work(struct guest *guest, bool user)
{
	struct kvm_vm *vm = guest->vm;
	struct kvm_regs regs;
	gva_t touched, table;
	unsigned int i;

	touched = vm_alloc(vm, NR_TOUCHED * PAGE_SIZE, TOUCHED_GVA);
	if (user)
		vm_set_user_accessible(vm, touched, NR_TOUCHED);
	table = vm_unused_gva_gap(vm, PAGE_SIZE, KVM_UTIL_MIN_VADDR);
	virt_pg_map(vm, table, PTE_GET_PA(*vm_get_pte_level(vm, touched, PG_LEVEL_2M)));

	for (i = 0; i < NR_TOUCHED; i++)
		*vm_get_pte_level(vm, touched + i * PAGE_SIZE, PG_LEVEL_4K) &=
			~PTE_PRESENT_MASK(&vm->mmu);

	write_guest_global(vm, touched_gva, touched);
	write_guest_global(vm, touched_ptes,
			   (u64 *)table + ((touched >> PG_LEVEL_SHIFT(PG_LEVEL_4K)) & 0x1ff));
	vm_install_exception_handler(vm, PF_VECTOR, guest_handle_page_fault);

	vcpu_regs_get(guest->vcpu, &regs);
	regs.rip = (u64)guest_work;
	regs.rbp = guest->stack.fp;
	regs.rsi = touched;
	/* Let user mode exit by "out". */
	regs.rflags |= 3 * X86_EFLAGS_IOPL;
	vcpu_regs_set(guest->vcpu, &regs);
}

static void log_dirty_pages(struct kvm_vm *vm)
{
	struct userspace_mem_region *region;
	int bkt;

	hash_for_each(vm->regions.slot_hash, bkt, region, slot_node)
		vm_mem_region_set_flags(vm, region->region.slot, KVM_MEM_LOG_DIRTY_PAGES);
}

/* Copy all memory, because the library leaves host addresses in it, which differ between VMs. */
static void copy_memory(struct kvm_vm *to, struct kvm_vm *from)
{
	struct userspace_mem_region *region;
	int bkt;

	hash_for_each(from->regions.slot_hash, bkt, region, slot_node)
		memcpy(memslot2region(to, region->region.slot)->host_mem, region->host_mem,
		       region->region.memory_size);
}

static void compare(const char *what, u64 addr, const void *sampled, const void *unsampled,
		    size_t size)
{
	size_t i, n;

	for (i = 0; i < size; i += n) {
		u64 a = 0, b = 0;

		n = min(size - i, sizeof(u64));
		memcpy(&a, sampled + i, n);
		memcpy(&b, unsampled + i, n);
		TEST_ASSERT(a == b, "Sampling changed %s at 0x%lx: 0x%lx, and 0x%lx without",
			    what, addr + i, a, b);
	}
}

static void assert_stack_not_accessed(struct guest *guest)
{
	struct kvm_mmu *mmu = &guest->vm->mmu;
	unsigned int i;
	int level;

	for (i = 0; i < guest->stack.nr_pages; i++) {
		gva_t gva = guest->stack.gva + i * PAGE_SIZE;

		for (level = mmu->pgtable_levels; level >= PG_LEVEL_4K; level--)
			TEST_ASSERT(!is_accessed_pte(mmu, vm_get_pte_level(guest->vm, gva, level)),
				    "The Accessed bit of 0x%lx is set at level %d", gva, level);
	}
}

static void compare_memory(struct guest *sampled, struct guest *unsampled)
{
	struct userspace_mem_region *region;
	int bkt;

	hash_for_each(sampled->vm->regions.slot_hash, bkt, region, slot_node)
		compare("the guest's memory", region->region.guest_phys_addr, region->host_mem,
			memslot2region(unsampled->vm, region->region.slot)->host_mem,
			region->region.memory_size);
}

static void harvest_dirty_ring(struct kvm_vcpu *vcpu, u32 slot, unsigned long *bitmap)
{
	struct kvm_dirty_gfn *gfns = vcpu_map_dirty_ring(vcpu);
	unsigned int i;

	for (i = 0; i < vcpu->dirty_gfns_count; i++) {
		if (!(__atomic_load_n(&gfns[i].flags, __ATOMIC_ACQUIRE) & KVM_DIRTY_GFN_F_DIRTY))
			break;
		if (gfns[i].slot == slot)
			__set_bit(gfns[i].offset, bitmap);
	}
}

static unsigned long *get_dirty_pages(struct kvm_vcpu *vcpu, u32 slot, size_t nr_pages)
{
	unsigned long *bitmap = bitmap_zalloc(nr_pages);

	TEST_ASSERT(bitmap, "bitmap_zalloc(%lu)", nr_pages);
	if (vcpu->vm->dirty_ring_size)
		harvest_dirty_ring(vcpu, slot, bitmap);
	else
		kvm_vm_get_dirty_log(vcpu->vm, slot, bitmap);
	return bitmap;
}

/* Ignore the order of dirty pages: it depends on when the CPU is interrupted. */
static void compare_dirty_pages(struct guest *sampled, struct guest *unsampled)
{
	unsigned int nr_dirty = 0, bkt;
	struct userspace_mem_region *region;

	hash_for_each(sampled->vm->regions.slot_hash, bkt, region, slot_node) {
		size_t i, nr_pages = region->region.memory_size / PAGE_SIZE;
		u32 slot = region->region.slot;
		unsigned long *a = get_dirty_pages(sampled->vcpu, slot, nr_pages);
		unsigned long *b = get_dirty_pages(unsampled->vcpu, slot, nr_pages);

		for (i = 0; i < nr_pages; i++) {
			gpa_t gpa = region->region.guest_phys_addr + i * PAGE_SIZE;

			TEST_ASSERT(test_bit(i, a) == test_bit(i, b),
				    "GPA 0x%lx is logged as dirty only %s sampling",
				    gpa, test_bit(i, a) ? "with" : "without");
			nr_dirty += test_bit(i, a);
		}
		free(a);
		free(b);
	}

	/* The guest has written to NR_TOUCHED pages, and to its data and page tables. */
	TEST_ASSERT(nr_dirty >= NR_TOUCHED, "Only %u pages are logged as dirty", nr_dirty);
}

/* Return true if the MSR counts time; all others in KVM's list must be the same. */
static bool is_clock(u32 msr)
{
	return msr == MSR_IA32_TSC || msr == HV_X64_MSR_TIME_REF_COUNT ||
	       msr == HV_X64_MSR_VP_RUNTIME;
}

static void compare_msrs(const struct kvm_msrs *sampled, const struct kvm_msrs *unsampled)
{
	unsigned int i;

	for (i = 0; i < sampled->nmsrs; i++) {
		const struct kvm_msr_entry *a = &sampled->entries[i];

		if (!is_clock(a->index))
			compare("the MSR", a->index, &a->data, &unsampled->entries[i].data,
				sizeof(a->data));
	}
}

static void compare_vcpus(struct kvm_vcpu *sampled, struct kvm_vcpu *unsampled)
{
	struct kvm_x86_state *a = vcpu_save_state(sampled);
	struct kvm_x86_state *b = vcpu_save_state(unsampled);
	int xsave_size = vm_check_cap(sampled->vm, KVM_CAP_XSAVE2) ?: sizeof(*a->xsave);
	struct kvm_lapic_state lapics[2];

	vcpu_ioctl(sampled, KVM_GET_LAPIC, &lapics[0]);
	vcpu_ioctl(unsampled, KVM_GET_LAPIC, &lapics[1]);

#define COMPARE(_what, _field) \
	compare("the " _what, 0, &a->_field, &b->_field, sizeof(a->_field))
	COMPARE("pending events", events);
	COMPARE("mp_state", mp_state);
	COMPARE("general registers", regs);
	COMPARE("special registers", sregs);
	COMPARE("debug registers", debugregs);
	COMPARE("extended control registers", xcrs);
	compare("the FPU's state", 0, a->xsave, b->xsave, xsave_size);
	compare("the nested state", 0, &a->nested, &b->nested, a->nested.size);
	compare_msrs(&a->msrs, &b->msrs);
	compare("the local APIC", 0, &lapics[0], &lapics[1], sizeof(lapics[0]));

	kvm_x86_state_cleanup(a);
	kvm_x86_state_cleanup(b);
}

struct work_samples {
	struct callchain_expectation e;
	unsigned int nr;
};

/* Each instruction of the work has the same callers; skip samples of the #PF handler. */
static void compare_work_sample(const struct callchain_sample *s, void *arg)
{
	struct work_samples *ws = arg;

	if (callchain_sample_is_guest(s)) {
		if (s->ip < (u64)guest_work || s->ip >= (u64)guest_work_end)
			return;
		ws->e.ip = s->ip;
		ws->e.ips[1] = s->ip;
	}
	ws->nr += callchain_sample_compare(s, &ws->e);
}

static void create_worker(struct guest *guest, VARIANT *variant,
			  u32 dirty_ring_size)
{
	create_guest(guest, variant, dirty_ring_size);
	prepare_work(guest, variant->user);
	log_dirty_pages(guest->vm);
	assert_stack_not_accessed(guest);
}

static void set_iterations(struct guest *guest, unsigned long nr_iterations)
{
	struct kvm_regs regs;

	vcpu_regs_get(guest->vcpu, &regs);
	regs.rcx = nr_iterations;
	vcpu_regs_set(guest->vcpu, &regs);
}

static void assert_work_done(struct guest *guest, unsigned long nr_iterations)
{
	unsigned long faults;

	assert_on_unhandled_exception(guest->vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(guest->vcpu, KVM_EXIT_IO);
	TEST_ASSERT_EQ(guest->vcpu->run->io.port, EXIT_PORT);
	faults = SYNC_FROM_GUEST_AND_READ(guest->vm, nr_faults);
	TEST_ASSERT(faults == nr_iterations / ITERATIONS_PER_FAULT,
		    "The guest had %lu page faults, not %lu", faults,
		    nr_iterations / ITERATIONS_PER_FAULT);
}

static void run_twice(VARIANT *variant, u32 dirty_ring_size)
{
	unsigned long nr_iterations = MIN_ITERATIONS;
	struct guest sampled, unsampled;
	struct work_samples ws = {};

	create_worker(&unsampled, variant, dirty_ring_size);

	for (;; nr_iterations *= 2) {
		create_worker(&sampled, variant, dirty_ring_size);
		copy_memory(sampled.vm, unsampled.vm);
		set_iterations(&sampled, nr_iterations);
		expect_guest_stack(&ws.e, "work", variant->user, &sampled.stack,
				   DEFAULT_MAX_STACK);
		ws.nr = 0;
		vcpu_run_sampled_to_exit(sampled.vcpu, variant->source, NULL,
					 compare_work_sample, &ws);
		if (ws.nr >= MIN_SAMPLES)
			break;
		kvm_vm_free(sampled.vm);
	}

	set_iterations(&unsampled, nr_iterations);
	vcpu_run(unsampled.vcpu);

	assert_work_done(&sampled, nr_iterations);
	assert_work_done(&unsampled, nr_iterations);
	assert_stack_not_accessed(&sampled);
	compare_dirty_pages(&sampled, &unsampled);
	compare_memory(&sampled, &unsampled);
	compare_vcpus(sampled.vcpu, unsampled.vcpu);

	kvm_vm_free(sampled.vm);
	kvm_vm_free(unsampled.vm);
}

CALLCHAIN_TEST(no_side_effects, state_and_dirty_log)
{
	run_twice(variant, 0);
}

CALLCHAIN_TEST(no_side_effects, state_and_dirty_ring)
{
	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING))
		SKIP(return, "The host has no dirty rings");
	run_twice(variant, DIRTY_RING_SIZE);
}

/* Bits of /proc/self/pagemap that don't change by themselves: present, swapped, file or shared. */
#define PM_STATE		GENMASK_ULL(63, 61)
#define PM_PRESENT		BIT_ULL(63)

static void get_pagemap(struct userspace_mem_region *region, u64 *entries)
{
	size_t i, nr_pages = region->region.memory_size / PAGE_SIZE;
	off_t pos = (u64)region->host_mem / PAGE_SIZE * sizeof(u64);
	int fd = open_path_or_exit("/proc/self/pagemap", O_RDONLY);
	ssize_t size = nr_pages * sizeof(u64);

	TEST_ASSERT(pread(fd, entries, size, pos) == size, "pread() of pagemap failed: %s",
		    strerror(errno));
	close(fd);
	for (i = 0; i < nr_pages; i++)
		entries[i] &= PM_STATE;
}

static u64 *get_pagemaps(struct kvm_vm *vm, size_t *size)
{
	struct userspace_mem_region *region;
	u64 *entries = NULL;
	size_t nr = 0;
	int bkt;

	hash_for_each(vm->regions.slot_hash, bkt, region, slot_node) {
		size_t nr_pages = region->region.memory_size / PAGE_SIZE;

		entries = realloc(entries, (nr + nr_pages) * sizeof(*entries));
		TEST_ASSERT(entries, "realloc() for %lu pages", nr + nr_pages);
		get_pagemap(region, entries + nr);
		nr += nr_pages;
	}

	*size = nr * sizeof(*entries);
	return entries;
}

/* Make an entry on the way to a frame point to the absent page, and sample the guest. */
static void sample_absent_page(VARIANT *variant, struct guest *guest,
			       int level)
{
	u64 *pte = vm_get_pte_level(guest->vm, guest->stack.frames[ABSENT], level), old = *pte;
	const unsigned int nr_frames = level == PG_LEVEL_4K ? ABSENT : 0;
	struct callchain_expectation e;
	u64 *before, *after, absent;
	size_t size;

	expect_guest_stack(&e, "absent page", variant->user, &guest->stack, 1 + nr_frames);
	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | ABSENT_SLOT_GPA;

	before = get_pagemaps(guest->vm, &size);
	vcpu_run_and_compare(guest->vcpu, variant->source, NULL, NR_SAMPLES, &e);
	after = get_pagemaps(guest->vm, &size);

	get_pagemap(memslot2region(guest->vm, ABSENT_SLOT), &absent);
	TEST_ASSERT(!(absent & PM_PRESENT), "Sampling brought in the absent page of level %d",
		    level);
	compare("the VMM's pagemap", 0, after, before, size);
	*pte = old;
	free(before);
	free(after);
}

/* The absent page is a page of the stack, and then each table below the root that leads there. */
CALLCHAIN_TEST(no_side_effects, absent_pages)
{
	struct pollfd pfd = { .events = POLLIN };
	struct userspace_mem_region *region;
	struct uffd_desc *uffd;
	struct guest guest;
	int level;

	create_guest(&guest, variant, 0);
	guest_stack_use(guest.vcpu, &guest.stack, (gva_t)guest_loop);
	vm_userspace_mem_region_add(guest.vm, VM_MEM_SRC_ANONYMOUS, ABSENT_SLOT_GPA,
				    ABSENT_SLOT, 1, 0);

	for (level = PG_LEVEL_4K; level <= variant->levels; level++)
		sample_absent_page(variant, &guest, level);

	if (!has_userfaults())
		goto out;

	region = memslot2region(guest.vm, ABSENT_SLOT);
	uffd = uffd_setup_demand_paging(UFFDIO_REGISTER_MODE_MISSING, 0, region->host_mem,
					PAGE_SIZE, 0, NULL);
	pfd.fd = uffd->uffd;
	for (level = PG_LEVEL_4K; level <= variant->levels; level++) {
		sample_absent_page(variant, &guest, level);
		TEST_ASSERT(!poll(&pfd, 1, 0), "Sampling raised a userfault at level %d", level);
	}
	uffd_stop_demand_paging(uffd);
out:
	kvm_vm_free(guest.vm);
}

TEST_HARNESS_MAIN
