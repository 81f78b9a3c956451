// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests whose stacks, page tables or memory are broken or unusual.  Each case has
 * the number of frames that a walk must find: all frames before the broken part (none in
 * private_memory_cases), and nothing behind it.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_SAMPLES	20
#define NR_FRAMES	16

/* The frame to tamper with.  Each frame lies on a page of its own. */
#define BAD		5

/* How often to enter a guest with a broken CR3, at most: a PMI is rarely pending then. */
#define MAX_CR3_TRIES	20000

/*
 * The period of these PMIs is CR3_MAX_PERIOD_NS at first, and halved after every
 * CR3_TRIES_OF_PERIOD entries to the guest, down to CR3_MIN_PERIOD_NS: with the short period that
 * a fast host needs, a slow one would do nothing but take samples.
 */
#define CR3_MAX_PERIOD_NS	6400000
#define CR3_MIN_PERIOD_NS	200000
#define CR3_TRIES_OF_PERIOD	100

/* A physical address at which the tests have no memslot. */
#define NO_MEMSLOT_GPA	BIT_ULL(34)

/* A memslot for the page to tamper with, large enough for a huge page. */
#define BAD_SLOT	1
#define BAD_SLOT_GPA	BIT_ULL(35)
#define BAD_SLOT_PAGES	(PG_SIZE_2M / PG_SIZE_4K)

#define LOCAL_APIC_GPA	0xfee00000ULL

struct hostile_guest {
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct guest_stack stack;
};

struct hostile_case {
	const char *name;
	void (*tamper)(struct hostile_guest *guest, u64 arg);
	u64 arg;
	unsigned int nr_frames;
	bool user;
	int levels;		/* run only with this many paging levels; zero for any */
	unsigned long vm_type;
};

static void set_word(struct hostile_guest *guest, gva_t gva, u64 word)
{
	*(u64 *)addr_gva2hva(guest->vm, gva) = word;
}

static gva_t bad_frame(struct hostile_guest *guest)
{
	return guest->stack.frames[BAD];
}

static void *bad_hva(struct hostile_guest *guest)
{
	return addr_gva2hva(guest->vm, bad_frame(guest) & PAGE_MASK);
}

static u64 *bad_pte(struct hostile_guest *guest, int level)
{
	return vm_get_pte_level(guest->vm, bad_frame(guest), level);
}

/* Tamper with the stack. */

static void next_is(struct hostile_guest *guest, u64 fp)
{
	set_word(guest, bad_frame(guest), fp);
}

static void next_is_frame(struct hostile_guest *guest, u64 nr)
{
	next_is(guest, guest->stack.frames[nr]);
}

static void next_is_off_by(struct hostile_guest *guest, u64 bytes)
{
	next_is(guest, guest->stack.frames[BAD + 1] + bytes);
}

static void next_is_near(struct hostile_guest *guest, u64 bytes)
{
	next_is(guest, bad_frame(guest) + bytes);
}

/*
 * Let the bad frame lead to a frame at @fp, which leads back to the first frame.  Map its page,
 * but not the next one: write only those words of the frame that lie on its page.
 */
static void next_is_mapped(struct hostile_guest *guest, u64 fp)
{
	gpa_t gpa = vm_alloc_page_table(guest->vm);
	u64 *frame = addr_gpa2hva(guest->vm, gpa) + fp % PAGE_SIZE;

	virt_pg_map(guest->vm, fp & ~(PAGE_SIZE - 1), gpa);
	frame[0] = guest->stack.frames[0];
	if ((fp + 8) % PAGE_SIZE)
		frame[1] = guest->stack.ras[BAD + 1];
	next_is(guest, fp);
}

static u64 noncanonical_hole(struct hostile_guest *guest)
{
	return 1ULL << (guest->vm->mmu.pgtable_levels == 5 ? 56 : 47);
}

static void next_is_below_hole(struct hostile_guest *guest, u64 bytes)
{
	next_is_mapped(guest, noncanonical_hole(guest) - bytes);
}

static void next_is_in_hole(struct hostile_guest *guest, u64 bytes)
{
	next_is(guest, -noncanonical_hole(guest) - bytes);
}

static void next_is_above_hole(struct hostile_guest *guest, u64 bytes)
{
	next_is_mapped(guest, -noncanonical_hole(guest) + bytes);
}

/* The frame behind the bad one leads to one at the end of its own page. */
static void next_straddles(struct hostile_guest *guest, u64 unused)
{
	gva_t absent = (guest->stack.frames[BAD + 1] & PAGE_MASK) + PAGE_SIZE;

	set_word(guest, guest->stack.frames[BAD + 1], absent - 8);
	set_word(guest, absent - 8, guest->stack.frames[BAD + 3]);
	set_word(guest, absent, guest->stack.ras[BAD + 2]);
	*vm_get_pte_level(guest->vm, absent, PG_LEVEL_4K) &= ~PTE_PRESENT_MASK(&guest->vm->mmu);
}

/* Let the innermost frame lie at address 8, RSP be zero, and RBP be @fp. */
static void first_is_low(struct hostile_guest *guest, u64 fp)
{
	struct kvm_regs regs;

	next_is_mapped(guest, 8);
	set_word(guest, 8, guest->stack.frames[1]);
	set_word(guest, 16, guest->stack.ras[0]);
	next_is_frame(guest, BAD + 1);

	vcpu_regs_get(guest->vcpu, &regs);
	regs.rsp = 0;
	regs.rbp = fp;
	vcpu_regs_set(guest->vcpu, &regs);
}

static void first_is_below_rsp(struct hostile_guest *guest, u64 bytes)
{
	struct kvm_regs regs;

	vcpu_regs_get(guest->vcpu, &regs);
	regs.rsp = regs.rbp + bytes;
	vcpu_regs_set(guest->vcpu, &regs);
}

static gpa_t table_of_level(struct hostile_guest *guest, int level)
{
	if (level == guest->vm->mmu.pgtable_levels)
		return guest->vm->mmu.pgd;
	return PTE_GET_PA(*bad_pte(guest, level + 1));
}

static void next_is_page_table(struct hostile_guest *guest, u64 level)
{
	gva_t gva = vm_unused_gva_gap(guest->vm, PAGE_SIZE, bad_frame(guest));

	/* The upper half of the table is unused: it reads as a frame without return address. */
	virt_pg_map(guest->vm, gva, table_of_level(guest, level));
	next_is(guest, gva + PAGE_SIZE / 2);
}

static void return_address_is(struct hostile_guest *guest, u64 ra)
{
	set_word(guest, bad_frame(guest) + 8, ra);
}

/* Tamper with the page tables that lead to the stack. */

static void clear_present(struct hostile_guest *guest, u64 level)
{
	*bad_pte(guest, level) &= ~PTE_PRESENT_MASK(&guest->vm->mmu);
}

static void set_reserved(struct hostile_guest *guest, u64 level)
{
	*bad_pte(guest, level) |= BIT_ULL(51);
}

static void set_page_size(struct hostile_guest *guest, u64 level)
{
	*bad_pte(guest, level) |= PTE_HUGE_MASK(&guest->vm->mmu);
}

static void point_to(struct hostile_guest *guest, int level, gpa_t gpa)
{
	u64 *pte = bad_pte(guest, level);

	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | gpa;
}

static void point_to_no_memslot(struct hostile_guest *guest, u64 level)
{
	point_to(guest, level, NO_MEMSLOT_GPA);
}

static void point_to_local_apic(struct hostile_guest *guest, u64 level)
{
	point_to(guest, level, LOCAL_APIC_GPA);
}

static void point_past_maxphyaddr(struct hostile_guest *guest, u64 level)
{
	point_to(guest, level, BIT_ULL(guest->vm->pa_bits));
}

#define ENTRY_TO_TABLE(_entry, _table)	((_entry) << 4 | (_table))

static void point_to_table(struct hostile_guest *guest, u64 entry_to_table)
{
	point_to(guest, entry_to_table >> 4, table_of_level(guest, entry_to_table & 15));
}

static void point_to_random_bits(struct hostile_guest *guest, u64 level)
{
	struct kvm_random_state rng = new_kvm_random_state(1);
	gpa_t gpa = vm_alloc_page_table(guest->vm);
	u64 *words = addr_gpa2hva(guest->vm, gpa);
	unsigned int i;

	for (i = 0; i < PAGE_SIZE / sizeof(*words); i++)
		words[i] = kvm_random_u64(&rng);
	point_to(guest, level, gpa);
}

/* In an entry of a large page, the bits from bit 13 up to the page's address are reserved. */
static void set_page_size_misaligned(struct hostile_guest *guest, u64 level)
{
	*bad_pte(guest, level) |= PTE_HUGE_MASK(&guest->vm->mmu) | BIT_ULL(13);
}

static struct userspace_mem_region *add_bad_slot(struct hostile_guest *guest,
						 enum vm_mem_backing_src_type src, u32 flags)
{
	vm_userspace_mem_region_add(guest->vm, src, BAD_SLOT_GPA, BAD_SLOT, BAD_SLOT_PAGES,
				    flags);
	return memslot2region(guest->vm, BAD_SLOT);
}

/* Put all frames on one large page, of which there is memory for the first 2 MiB. */
static void map_large_page(struct hostile_guest *guest, u64 level)
{
	struct userspace_mem_region *region = add_bad_slot(guest, VM_MEM_SRC_ANONYMOUS, 0);
	unsigned int i;

	TEST_ASSERT(level < PG_LEVEL_1G || kvm_cpu_has(X86_FEATURE_GBPAGES),
		    "The host has no pages of 1 GiB");
	TEST_ASSERT(!(guest->stack.gva % PG_SIZE_1G), "The stack begins at 0x%lx",
		    guest->stack.gva);

	for (i = 0; i < guest->stack.nr_pages; i++)
		memcpy(region->host_mem + i * PAGE_SIZE,
		       addr_gva2hva(guest->vm, guest->stack.gva + i * PAGE_SIZE), PAGE_SIZE);
	point_to(guest, level, BAD_SLOT_GPA);
	set_page_size(guest, level);
}

/* Tamper with what the guest's current mode may read. */

static void make_kernel_only(struct hostile_guest *guest, u64 unused)
{
	*bad_pte(guest, PG_LEVEL_4K) &= ~PTE_USER_MASK(&guest->vm->mmu);
}

static void user_page_under_smap(struct hostile_guest *guest, u64 rflags)
{
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	vm_set_user_accessible(guest->vm, bad_frame(guest) & PAGE_MASK, 1);

	vcpu_sregs_get(guest->vcpu, &sregs);
	sregs.cr4 |= X86_CR4_SMAP;
	vcpu_sregs_set(guest->vcpu, &sregs);

	vcpu_regs_get(guest->vcpu, &regs);
	regs.rflags |= rflags;
	vcpu_regs_set(guest->vcpu, &regs);
}

/* Tamper with the VMM's memory. */

static void drop_page(struct hostile_guest *guest, u64 advice)
{
	TEST_ASSERT(!madvise(bad_hva(guest), PAGE_SIZE, advice), "madvise()");
}

static void protect_page(struct hostile_guest *guest, u64 prot)
{
	TEST_ASSERT(!mprotect(bad_hva(guest), PAGE_SIZE, prot), "mprotect()");
}

static void unmap_page(struct hostile_guest *guest, u64 unused)
{
	TEST_ASSERT(!munmap(bad_hva(guest), PAGE_SIZE), "munmap()");
}

/* Move what an entry points to, a stack page or a table, to a memslot of its own. */
static struct userspace_mem_region *move_to_slot(struct hostile_guest *guest, int level,
						 enum vm_mem_backing_src_type src, u32 flags)
{
	struct userspace_mem_region *region = add_bad_slot(guest, src, flags);

	memcpy(region->host_mem, addr_gpa2hva(guest->vm, PTE_GET_PA(*bad_pte(guest, level))),
	       PAGE_SIZE);
	point_to(guest, level, BAD_SLOT_GPA);
	return region;
}

static void move_to_readonly_slot(struct hostile_guest *guest, u64 level)
{
	move_to_slot(guest, level, VM_MEM_SRC_ANONYMOUS, KVM_MEM_READONLY);
}

static void delete_slot(struct hostile_guest *guest, u64 level)
{
	move_to_slot(guest, level, VM_MEM_SRC_ANONYMOUS, 0);
	vm_mem_region_delete(guest->vm, BAD_SLOT);
}

static void move_slot(struct hostile_guest *guest, u64 level)
{
	move_to_slot(guest, level, VM_MEM_SRC_ANONYMOUS, 0);
	vm_mem_region_move(guest->vm, BAD_SLOT, 2 * BAD_SLOT_GPA);
}

static void back_by(struct hostile_guest *guest, u64 src)
{
	struct userspace_mem_region *region = move_to_slot(guest, PG_LEVEL_4K, src, 0);

	if (src == VM_MEM_SRC_ANONYMOUS_THP)
		TEST_ASSERT(!madvise(region->host_mem, PG_SIZE_2M, MADV_COLLAPSE),
			    "MADV_COLLAPSE failed: %s", strerror(errno));
}

static void punch_hole(struct hostile_guest *guest, u64 src)
{
	struct userspace_mem_region *region = move_to_slot(guest, PG_LEVEL_4K, src, 0);

	TEST_ASSERT(!fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			       PG_SIZE_2M),
		    "FALLOC_FL_PUNCH_HOLE failed: %s", strerror(errno));
}

/* Make the page private; the VMM's mapping still has the page's frame. */
static void make_private(struct hostile_guest *guest, u64 level)
{
	move_to_slot(guest, level, VM_MEM_SRC_ANONYMOUS, KVM_MEM_GUEST_MEMFD);
	vm_mem_set_private(guest->vm, BAD_SLOT_GPA, PAGE_SIZE);
}

static const struct hostile_case stack_cases[] = {
	{ "untouched",		NULL, 0, NR_FRAMES },
	{ "points to itself",	next_is_frame, BAD, BAD + 1 },
	{ "points backwards",	next_is_frame, BAD - 1, BAD + 1 },
	{ "cycle of three",	next_is_frame, BAD - 2, BAD + 1 },
	{ "long cycle",		next_is_frame, 0, BAD + 1 },
	{ "skips frames",	next_is_frame, NR_FRAMES, BAD + 1 },
	{ "misaligned by 2",	next_is_off_by, 2, BAD + 1 },
	{ "misaligned by 4",	next_is_off_by, 4, BAD + 1 },
	{ "misaligned on its page", next_is_near, 0x44, BAD + 1 },
	{ "overlaps a frame",	next_is_off_by, -(u64)PAGE_SIZE + 8, BAD + 1 },
	{ "zero",		next_is, 0, BAD + 1 },
	{ "first page",		next_is, 8, BAD + 1 },
	{ "non-canonical",	next_is, 1ULL << 63, BAD + 1 },
	{ "not mapped",		next_is_off_by, 1ULL << 40, BAD + 1 },
	{ "top of memory",	next_is, -16ULL, BAD + 1 },
	{ "last word of memory", next_is, -8ULL, BAD + 1 },
	{ "near the top of memory", next_is, -32ULL, BAD + 1 },
	{ "top of memory, mapped", next_is_mapped, -16ULL, BAD + 1 },
	{ "last word of memory, mapped", next_is_mapped, -8ULL, BAD + 1 },
	{ "first at address 0",	first_is_low, 0, 0 },
	{ "first at address 8",	first_is_low, 8, NR_FRAMES },
	{ "first below RSP",	first_is_below_rsp, 8, 0 },
	{ "ends at the hole",	next_is_below_hole, 16, BAD + 2 },
	{ "reaches into the hole", next_is_below_hole, 8, BAD + 1 },
	{ "last word of the hole", next_is_in_hole, 8, BAD + 1 },
	{ "begins above the hole", next_is_above_hole, 0, BAD + 2 },
	{ "straddles into nothing", next_straddles, 0, BAD + 2 },
	{ "no return address",	return_address_is, 0, BAD },
	{ "return to a context marker", return_address_is, PERF_CONTEXT_KERNEL, BAD },
	{ "return to the lowest marker", return_address_is, PERF_CONTEXT_MAX, BAD },
	{ "return to nowhere",	return_address_is, 1ULL << 62, BAD },
	{ "return to the hole",	return_address_is, 1ULL << 47, BAD, .levels = 4 },
	{ "return to the hole",	return_address_is, 1ULL << 56, BAD, .levels = 5 },
	{ "in a level 1 table",	next_is_page_table, 1, BAD + 1 },
	{ "in a level 2 table",	next_is_page_table, 2, BAD + 1 },
	{ "in a level 3 table",	next_is_page_table, 3, BAD + 1 },
	{ "in a level 4 table",	next_is_page_table, 4, BAD + 1 },
	{ "in a level 5 table",	next_is_page_table, 5, BAD + 1, .levels = 5 },
};

static const struct hostile_case page_table_cases[] = {
	{ "page not present", clear_present, 1, BAD },
	{ "level 2 not present", clear_present, 2, 0 },
	{ "level 3 not present", clear_present, 3, 0 },
	{ "level 4 not present", clear_present, 4, 0 },
	{ "level 5 not present", clear_present, 5, 0, .levels = 5 },
	{ "page has a reserved bit", set_reserved, 1, BAD },
	{ "level 2 has a reserved bit", set_reserved, 2, 0 },
	{ "level 3 has a reserved bit", set_reserved, 3, 0 },
	{ "level 4 has a reserved bit", set_reserved, 4, 0 },
	{ "level 5 has a reserved bit", set_reserved, 5, 0, .levels = 5 },
	{ "page past MAXPHYADDR", point_past_maxphyaddr, 1, BAD },
	{ "level 2 past MAXPHYADDR", point_past_maxphyaddr, 2, 0 },
	{ "level 3 past MAXPHYADDR", point_past_maxphyaddr, 3, 0 },
	{ "level 4 past MAXPHYADDR", point_past_maxphyaddr, 4, 0 },
	{ "level 5 past MAXPHYADDR", point_past_maxphyaddr, 5, 0, .levels = 5 },
	{ "level 4 is a page", set_page_size, 4, 0 },
	{ "level 5 is a page", set_page_size, 5, 0, .levels = 5 },
	{ "level 2 is a misaligned page", set_page_size_misaligned, 2, 0 },
	{ "level 3 is a misaligned page", set_page_size_misaligned, 3, 0 },
	{ "2 MiB page", map_large_page, PG_LEVEL_2M, NR_FRAMES },
	{ "1 GiB page", map_large_page, PG_LEVEL_1G, NR_FRAMES },
	{ "page outside of memslots", point_to_no_memslot, 1, BAD },
	{ "level 1 table outside of memslots", point_to_no_memslot, 2, 0 },
	{ "level 2 table outside of memslots", point_to_no_memslot, 3, 0 },
	{ "level 3 table outside of memslots", point_to_no_memslot, 4, 0 },
	{ "level 4 table outside of memslots", point_to_no_memslot, 5, 0, .levels = 5 },
	{ "page in the local APIC", point_to_local_apic, 1, BAD },
	{ "level 1 table in the local APIC", point_to_local_apic, 2, 0 },
	{ "level 2 table in the local APIC", point_to_local_apic, 3, 0 },
	{ "level 3 table in the local APIC", point_to_local_apic, 4, 0 },
	{ "level 4 table in the local APIC", point_to_local_apic, 5, 0, .levels = 5 },
	{ "page of random bits", point_to_random_bits, 1, BAD },
	{ "level 1 table of random bits", point_to_random_bits, 2, 0 },
	{ "level 2 table of random bits", point_to_random_bits, 3, 0 },
	{ "level 3 table of random bits", point_to_random_bits, 4, 0 },
	{ "level 4 table of random bits", point_to_random_bits, 5, 0, .levels = 5 },
	{ "page is the level 1 table", point_to_table, ENTRY_TO_TABLE(1, 1), BAD },
	{ "page is the level 2 table", point_to_table, ENTRY_TO_TABLE(1, 2), BAD },
	{ "page is the level 3 table", point_to_table, ENTRY_TO_TABLE(1, 3), BAD },
	{ "page is the level 4 table", point_to_table, ENTRY_TO_TABLE(1, 4), BAD },
	{ "page is the level 5 table",
		point_to_table, ENTRY_TO_TABLE(1, 5), BAD, .levels = 5 },
	{ "level 2 points to the level 2 table",
		point_to_table, ENTRY_TO_TABLE(2, 2), 0 },
	{ "level 2 points to the level 3 table",
		point_to_table, ENTRY_TO_TABLE(2, 3), 0 },
	{ "level 2 points to the level 4 table",
		point_to_table, ENTRY_TO_TABLE(2, 4), 0 },
	{ "level 2 points to the level 5 table",
		point_to_table, ENTRY_TO_TABLE(2, 5), 0, .levels = 5 },
	{ "level 3 points to the level 3 table",
		point_to_table, ENTRY_TO_TABLE(3, 3), 0 },
	{ "level 3 points to the level 4 table",
		point_to_table, ENTRY_TO_TABLE(3, 4), 0 },
	{ "level 3 points to the level 5 table",
		point_to_table, ENTRY_TO_TABLE(3, 5), 0, .levels = 5 },
	{ "level 4 points to the level 4 table",
		point_to_table, ENTRY_TO_TABLE(4, 4), 0 },
	{ "level 4 points to the level 5 table",
		point_to_table, ENTRY_TO_TABLE(4, 5), 0, .levels = 5 },
	{ "level 5 points to the level 5 table",
		point_to_table, ENTRY_TO_TABLE(5, 5), 0, .levels = 5 },
};

static const struct hostile_case privilege_cases[] = {
	{ "user mode reads a user stack", NULL, 0, NR_FRAMES, true },
	{ "user mode can't read a kernel page", make_kernel_only, 0, BAD, true },
};

static const struct hostile_case smap_cases[] = {
	{ "SMAP",			user_page_under_smap, 0, BAD },
	{ "SMAP with AC",		user_page_under_smap, X86_EFLAGS_AC, NR_FRAMES },
};

static const struct hostile_case vmm_cases[] = {
	{ "page not in memory",		drop_page, MADV_DONTNEED, BAD },
	{ "page not accessible",	protect_page, PROT_NONE, BAD },
	{ "page read-only",		protect_page, PROT_READ, NR_FRAMES },
	{ "page unmapped",		unmap_page, 0, BAD },
	{ "page in a read-only slot",	move_to_readonly_slot, 1, NR_FRAMES },
	{ "level 1 table in a read-only slot", move_to_readonly_slot, 2, NR_FRAMES },
	{ "level 2 table in a read-only slot", move_to_readonly_slot, 3, NR_FRAMES },
	{ "level 3 table in a read-only slot", move_to_readonly_slot, 4, NR_FRAMES },
	{ "level 4 table in a read-only slot", move_to_readonly_slot, 5, NR_FRAMES,
		.levels = 5 },
	{ "page in a slot that was deleted", delete_slot, 1, BAD },
	{ "page in a slot that has moved", move_slot, 1, BAD },
	{ "page in a memfd",		back_by, VM_MEM_SRC_SHMEM, NR_FRAMES },
	{ "hole in a memfd",		punch_hole, VM_MEM_SRC_SHMEM, BAD },
};

static const struct hostile_case huge_page_cases[] = {
	{ "THP",		back_by, VM_MEM_SRC_ANONYMOUS_THP, NR_FRAMES },
	{ "hugetlb",		back_by, VM_MEM_SRC_ANONYMOUS_HUGETLB, NR_FRAMES },
	{ "hugetlb memfd",	back_by, VM_MEM_SRC_SHARED_HUGETLB, NR_FRAMES },
	{ "hole in a hugetlb memfd", punch_hole, VM_MEM_SRC_SHARED_HUGETLB, BAD },
};

static const struct hostile_case private_memory_cases[] = {
	/* A walk reads no memory of such a guest, not even shared memory. */
	{ "page is private",	make_private, 1, 0, .vm_type = KVM_X86_SW_PROTECTED_VM },
};

PMI_LEVELS_FIXTURE(hostile)

static void create_guest(struct hostile_guest *guest, int levels, unsigned long vm_type,
			 bool user)
{
	const struct vm_shape shape = { .mode = VM_MODE_DEFAULT, .type = vm_type };
	const struct guest_stack_layout layout = {
		.nr_frames = NR_FRAMES,
		.stride = PAGE_SIZE,
		.offset = 0x7f0,
		.far = true,
	};

	guest->vm = vm_create_shape_with_one_vcpu(shape, &guest->vcpu, guest_loop);
	if (guest->vm->mmu.pgtable_levels > levels)
		vcpu_use_4_level_paging(guest->vcpu);

	guest_stack_build_and_use(guest->vcpu, &guest->stack, &layout, user);
	if (user)
		vcpu_enter_user_mode(guest->vcpu);
}

static void run_case(const struct hostile_case *c, enum pmi_source source, int levels)
{
	struct callchain_expectation e;
	struct hostile_guest guest;

	create_guest(&guest, levels, c->vm_type, c->user);
	expect_guest_stack(&e, c->name, c->user, &guest.stack, 1 + c->nr_frames);
	if (c->tamper)
		c->tamper(&guest, c->arg);

	vcpu_run_and_compare(guest.vcpu, source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(guest.vm);
}

/* Return false if the case needs a reserved bit in addresses, and the CPU has none. */
static bool can_run(const struct hostile_case *c)
{
	return (c->tamper != set_reserved && c->tamper != point_past_maxphyaddr) ||
	       kvm_cpu_property(X86_PROPERTY_MAX_PHY_ADDR) < 52;
}

#define RUN_CASES(_cases)						\
do {									\
	const struct hostile_case *c;					\
									\
	for_each_case(c, _cases) {					\
		if (c->levels && c->levels != variant->levels)		\
			continue;					\
		if (!can_run(c)) {					\
			TH_LOG("%s: no address bit is reserved", c->name); \
			continue;					\
		}							\
		TH_LOG("%s", c->name);					\
		run_case(c, variant->source, variant->levels);		\
	}								\
} while (0)

CALLCHAIN_TEST(hostile, stacks)
{
	RUN_CASES(stack_cases);
}

CALLCHAIN_TEST(hostile, page_tables)
{
	RUN_CASES(page_table_cases);
}

CALLCHAIN_TEST(hostile, privileges)
{
	RUN_CASES(privilege_cases);
}

CALLCHAIN_TEST(hostile, smap)
{
	if (!kvm_cpu_has(X86_FEATURE_SMAP))
		SKIP(return, "The host has no SMAP for guests");
	RUN_CASES(smap_cases);
}

CALLCHAIN_TEST(hostile, vmm)
{
	RUN_CASES(vmm_cases);
}

static void ignore_signal(int sig)
{
}

/* Make KVM_RUN return after each sample. */
static void signal_samples(int fd)
{
	const struct f_owner_ex owner = { .type = F_OWNER_TID, .pid = syscall(SYS_gettid) };
	const struct sigaction sa = { .sa_handler = ignore_signal };

	TEST_ASSERT(!sigaction(SIGUSR1, &sa, NULL) && !fcntl(fd, F_SETSIG, SIGUSR1) &&
		    !fcntl(fd, F_SETOWN_EX, &owner) && !fcntl(fd, F_SETFL, O_ASYNC),
		    "Perf's file can't signal: %s", strerror(errno));
}

static void shorten_period(struct callchain_event *event, struct perf_event_attr *attr)
{
	__u64 period = attr->sample_period / 2;

	TEST_ASSERT(!ioctl(event->fd, PERF_EVENT_IOC_PERIOD, &period),
		    "PERF_EVENT_IOC_PERIOD failed: %s", strerror(errno));
	attr->sample_period = period;
}

/*
 * A guest whose root table is garbage can't execute a single instruction.  But a
 * PMI that is pending when KVM enters the guest hits the guest before its first
 * instruction.  Other PMIs hit the host while KVM tries to handle the guest's
 * faults.  The result of KVM_RUN does not matter.
 */
static void sample_cr3(struct hostile_guest *guest, u64 cr3)
{
	struct perf_event_attr attr = { .sample_period = CR3_MAX_PERIOD_NS, .wakeup_events = 1 };
	struct callchain_comparison c = {};
	struct callchain_expectation e;
	struct callchain_event event;
	struct kvm_sregs sregs;
	struct kvm_regs regs;
	unsigned int try;

	expect_guest_stack(&e, "CR3", false, &guest->stack, 1);
	c.expected = &e;
	vcpu_regs_get(guest->vcpu, &regs);
	vcpu_sregs_get(guest->vcpu, &sregs);

	callchain_event_start(&event, PMI_IRQ, &attr, 0, -1);
	/* On a slow host, so many samples may hit KVM between two reads that they fill the ring. */
	event.may_lose = true;
	signal_samples(event.fd);
	for (try = 0; try < MAX_CR3_TRIES && c.nr_guest < 3; try++) {
		struct kvm_sregs broken = sregs;

		broken.cr3 = cr3;
		vcpu_sregs_set(guest->vcpu, &broken);
		vcpu_regs_set(guest->vcpu, &regs);
		__vcpu_run(guest->vcpu);
		callchain_event_read(&event, callchain_compare, &c);
		if (try % CR3_TRIES_OF_PERIOD == CR3_TRIES_OF_PERIOD - 1 &&
		    attr.sample_period > CR3_MIN_PERIOD_NS)
			shorten_period(&event, &attr);
	}
	callchain_event_disable(&event);
	callchain_event_read(&event, callchain_compare, &c);
	callchain_event_close(&event);

	TEST_ASSERT(c.nr_guest, "CR3 0x%lx: no sample hit the guest in %u tries", cr3, try);

	vcpu_sregs_set(guest->vcpu, &sregs);
	vcpu_regs_set(guest->vcpu, &regs);
}

static void test_cr3(int levels)
{
	struct kvm_random_state rng = new_kvm_random_state(2);
	struct hostile_guest guest;
	gpa_t garbage;
	unsigned int i;
	u64 *words;

	create_guest(&guest, levels, 0, false);
	garbage = vm_phy_page_alloc(guest.vm, KVM_GUEST_PAGE_TABLE_MIN_PADDR, 0);
	words = addr_gpa2hva(guest.vm, garbage);
	for (i = 0; i < PAGE_SIZE / sizeof(u64); i++)
		words[i] = kvm_random_u64(&rng);

	sample_cr3(&guest, NO_MEMSLOT_GPA);
	sample_cr3(&guest, BIT_ULL(guest.vm->pa_bits) - PAGE_SIZE);
	sample_cr3(&guest, garbage);
	sample_cr3(&guest, addr_gva2gpa(guest.vm, guest.stack.frames[0]) & PAGE_MASK);
	kvm_vm_free(guest.vm);
}

/* An empty fixture: TEST() has a timeout of 30 seconds, too short on a slow host. */
FIXTURE(global) {};
FIXTURE_SETUP(global) {}
FIXTURE_TEARDOWN(global) {}

/*
 * Use only IRQs: NMIs are rarely pending when KVM enters a guest, on AMD only if they come between
 * CLGI and VMRUN.
 */
CALLCHAIN_TEST(global, cr3)
{
	SKIP_UNLESS_PMI(PMI_IRQ);
	test_cr3(4);
	if (kvm_cpu_has(X86_FEATURE_LA57))
		test_cr3(5);
}

CALLCHAIN_TEST(hostile, huge_pages)
{
	SKIP_UNLESS_OVERRIDDEN("/proc/sys/vm/nr_hugepages", 4);
	if (!thp_configured() || get_def_hugetlb_pagesz() != PG_SIZE_2M)
		SKIP(return, "The host has no huge pages of 2 MiB");
	RUN_CASES(huge_page_cases);
}

CALLCHAIN_TEST(hostile, private_memory)
{
	if (!(kvm_check_cap(KVM_CAP_VM_TYPES) & BIT(KVM_X86_SW_PROTECTED_VM)))
		SKIP(return, "The host has no VMs of KVM_X86_SW_PROTECTED_VM");
	RUN_CASES(private_memory_cases);
}

/*
 * Set PKRU to R8, loop for a while, clear PKRU, and loop for a while.  Most samples
 * hit one of the two loop instructions, so that the IP shows which value PKRU had.
 */
void guest_toggle_pkru(void);
void guest_denied(void);
void guest_allowed(void);
asm(".pushsection .text\n"
    ".balign 64\n"
    ".global guest_toggle_pkru, guest_denied, guest_allowed\n"
    "guest_toggle_pkru:\n"
    "	xor	%ecx, %ecx\n"
    "	xor	%edx, %edx\n"
    "	mov	%r8d, %eax\n"
    "	wrpkru\n"
    "	mov	$10000, %ecx\n"
    "guest_denied:\n"
    "	loop	guest_denied\n"
    "	xor	%eax, %eax\n"
    "	wrpkru\n"
    "	mov	$10000, %ecx\n"
    "guest_allowed:\n"
    "	loop	guest_allowed\n"
    "	jmp	guest_toggle_pkru\n"
    ".popsection");

#define PKRU_DENY(_key)		(1U << ((_key) * 2))
#define PTE_PKEY(_key)		((u64)(_key) << 59)

static const struct pkey_case {
	const char *name;
	u32 pkru;
	bool whole_stack;	/* the whole stack has key 1, not only the bad frame's page */
	unsigned int nr_frames;
} pkey_cases[] = {
	{ "page's key is denied",	PKRU_DENY(1), false, BAD },
	/* The VMM's memory has key 0, but the guest's PKRU does not apply to it. */
	{ "VMM's key is denied",	PKRU_DENY(0), true, NR_FRAMES },
};

struct pkey_samples {
	struct callchain_expectation denied, allowed;
	unsigned int nr_denied, nr_allowed;
};

static void compare_pkey_sample(const struct callchain_sample *s, void *arg)
{
	struct pkey_samples *ps = arg;

	if (s->ip == (u64)guest_allowed)
		ps->nr_allowed += callchain_sample_compare(s, &ps->allowed);
	else if (s->ip == (u64)guest_denied || !callchain_sample_is_guest(s))
		ps->nr_denied += callchain_sample_compare(s, &ps->denied);
}

static void expect_at(struct callchain_expectation *e, const char *name, bool user,
		      const struct guest_stack *stack, unsigned int nr_frames, u64 ip)
{
	expect_guest_stack(e, name, user, stack, 1 + nr_frames);
	e->ip = ip;
	e->ips[1] = ip;
}

static void run_pkey_case(const struct pkey_case *c, enum pmi_source source, int levels)
{
	struct pkey_samples ps = {};
	struct hostile_guest guest;
	struct kvm_sregs sregs;
	struct kvm_regs regs;
	unsigned int i;

	create_guest(&guest, levels, VM_TYPE_DEFAULT, true);
	vm_set_user_accessible(guest.vm, (gva_t)guest_toggle_pkru & PAGE_MASK, 1);
	for (i = 0; i <= NR_FRAMES; i++)
		if (c->whole_stack || i == BAD)
			*vm_get_pte_level(guest.vm, guest.stack.frames[i], PG_LEVEL_4K) |=
				PTE_PKEY(1);

	vcpu_sregs_get(guest.vcpu, &sregs);
	sregs.cr4 |= X86_CR4_PKE;
	vcpu_sregs_set(guest.vcpu, &sregs);
	vcpu_regs_get(guest.vcpu, &regs);
	regs.rip = (u64)guest_toggle_pkru;
	regs.r8 = c->pkru;
	vcpu_regs_set(guest.vcpu, &regs);

	expect_at(&ps.denied, c->name, true, &guest.stack, c->nr_frames, (u64)guest_denied);
	expect_at(&ps.allowed, "no key is denied", true, &guest.stack, NR_FRAMES,
		  (u64)guest_allowed);
	while (ps.nr_denied < NR_SAMPLES || ps.nr_allowed < NR_SAMPLES)
		vcpu_run_sampled(guest.vcpu, source, NULL, NR_SAMPLES, compare_pkey_sample, &ps);

	kvm_vm_free(guest.vm);
}

CALLCHAIN_TEST(hostile, protection_keys)
{
	const struct pkey_case *c;

	if (!kvm_cpu_has(X86_FEATURE_PKU))
		SKIP(return, "The host has no protection keys for guests");

	for_each_case(c, pkey_cases) {
		TH_LOG("%s", c->name);
		run_pkey_case(c, variant->source, variant->levels);
	}
}

/*
 * Set CR3 to R8, loop for a while, set CR3 to R9, and loop for a while.  As in
 * guest_toggle_pkru(), the IP shows which page tables the guest had.  With shadow paging, each
 * switch is an exit.  A host with KASAN and lockdep handles exits slowly: loop for longer than
 * that takes, or few samples hit the guest.
 */
void guest_switch_cr3(void);
void guest_with_stack(void);
void guest_without_stack(void);
asm(".pushsection .text\n"
    ".balign 64\n"
    ".global guest_switch_cr3, guest_with_stack, guest_without_stack\n"
    "guest_switch_cr3:\n"
    "	mov	%r8, %cr3\n"
    "	mov	$300000, %ecx\n"
    "guest_with_stack:\n"
    "	loop	guest_with_stack\n"
    "	mov	%r9, %cr3\n"
    "	mov	$300000, %ecx\n"
    "guest_without_stack:\n"
    "	loop	guest_without_stack\n"
    "	jmp	guest_switch_cr3\n"
    ".popsection");

/*
 * struct cr3_samples - samples of a guest that runs guest_switch_cr3()
 * @with:	those that hit guest_with_stack()
 * @without:	those that hit guest_without_stack()
 * @nr_both:	twice the smaller number of these, so that vcpu_run_until_guest_sampled() waits
 *		until there are enough of both
 */
struct cr3_samples {
	struct callchain_comparison with, without;
	unsigned int nr_both;
};

static void compare_cr3_sample(const struct callchain_sample *s, void *arg)
{
	struct cr3_samples *cs = arg;

	if (s->ip == (u64)guest_with_stack || !callchain_sample_is_guest(s))
		callchain_compare(s, &cs->with);
	else if (s->ip == (u64)guest_without_stack)
		callchain_compare(s, &cs->without);
	cs->nr_both = 2 * min(cs->with.nr_guest, cs->without.nr_guest);
}

/* A walk must use the CR3 that the guest has, whether or not the write to CR3 was an exit. */
CALLCHAIN_TEST(hostile, switches_cr3)
{
	const int root_shift = 12 + 9 * (variant->levels - 1);
	struct callchain_expectation with, without;
	struct cr3_samples cs = {
		.with.expected = &with,
		.without.expected = &without,
	};
	u64 *table;
	struct hostile_guest guest;
	struct kvm_regs regs;
	gpa_t root;

	create_guest(&guest, variant->levels, VM_TYPE_DEFAULT, false);
	root = vm_alloc_page_table(guest.vm);
	table = addr_gpa2hva(guest.vm, root);
	memcpy(table, addr_gpa2hva(guest.vm, guest.vm->mmu.pgd), PAGE_SIZE);
	table[(guest.stack.frames[0] >> root_shift) & 0x1ff] = 0;

	vcpu_regs_get(guest.vcpu, &regs);
	regs.rip = (u64)guest_switch_cr3;
	regs.r8 = guest.vm->mmu.pgd;
	/* PWT and PCD are no part of the address. */
	regs.r9 = root | BIT_ULL(3) | BIT_ULL(4);
	vcpu_regs_set(guest.vcpu, &regs);

	expect_at(&with, "with the stack", false, &guest.stack, NR_FRAMES, (u64)guest_with_stack);
	expect_at(&without, "without the stack", false, &guest.stack, 0, (u64)guest_without_stack);
	vcpu_run_until_guest_sampled(guest.vcpu, variant->source, NULL, 2 * NR_SAMPLES,
				     compare_cr3_sample, &cs, &cs.nr_both);

	kvm_vm_free(guest.vm);
}

TEST_HARNESS_MAIN
