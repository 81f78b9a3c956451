// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of arm64 guests whose stacks, page tables, registers or memory are broken or unusual.
 * Each case names the frames that a walk must find: all before the broken part, and nothing behind
 * it.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/sizes.h>
#include <sys/mman.h>
#include <unistd.h>

#include "callchain_guest.h"
#include "callchain_harness.h"

/* The stack lies where it shares no page table but the root with the guest's code. */
#define FAR_GVA		BIT_ULL(45)

/* A physical address at which the tests have no memslot. */
#define NO_MEMSLOT_GPA	BIT_ULL(34)

/* A physical address of more than the 40 bits that TCR_EL1.IPS gives to these guests. */
#define TOO_HIGH_GPA	BIT_ULL(41)

/* A memslot for moved pages and tables: it is aligned to 1 GiB, and has room for a huge page. */
#define BAD_SLOT	11
#define BAD_SLOT_GPA	BIT_ULL(35)
#define BAD_SLOT_PAGES	(SZ_2M / 0x1000)

/* The moved page's offset in that memslot: no huge page begins there. */
#define MOVED_OFF	0x5000

#define ADDR_MASK	GENMASK_ULL(47, 12)
#define PTE_BIT_1	BIT_ULL(1)
#define PTE_APTABLE_EL0	BIT_ULL(61)

#define TCR_T0SZ_BITS	GENMASK_ULL(5, 0)
#define TCR_T1SZ_BITS	GENMASK_ULL(21, 16)

#define PSTATE_EL0_32	0x10ULL

/* Branches to themselves, as A64 and as A32. */
#define A64_LOOP	0x14000000
#define A32_LOOP	0xeafffffe

static void compare_frames(struct guest *g, const char *name, unsigned int nr)
{
	expect_frames(g, name, nr);
	compare(g);
}

/* As compare_frames(), for a guest that runs other code than guest_loop(). */
static void compare_frames_at(struct guest *g, const char *name, unsigned int nr, u64 ip)
{
	expect_frames(g, name, nr);
	g->e.ip = ip;
	g->e.ips[1] = ip;
	compare(g);
}

static void build_far_stack(struct guest *g)
{
	build_stack_at(g, FAR_GVA, SMALL_FRAMES, 0x1000, 0);
}

/* The descriptor, in the table of a level, that leads to the broken frame. */
static u64 *desc_at(struct guest *g, int level)
{
	return virt_get_pte_hva_at_level(g->vm, mapped_gva(g, g->frames[BROKEN]), level);
}

static gpa_t table_of_level(struct guest *g, int level)
{
	return level ? *desc_at(g, level - 1) & ADDR_MASK : g->vm->mmu.pgd;
}

static void point_to(struct guest *g, int level, gpa_t gpa)
{
	u64 *desc = desc_at(g, level);

	*desc = (*desc & ~ADDR_MASK) | gpa;
}

static struct userspace_mem_region *add_bad_slot(struct guest *g, enum vm_mem_backing_src_type src,
						 u32 flags)
{
	vm_userspace_mem_region_add(g->vm, src, BAD_SLOT_GPA, BAD_SLOT, BAD_SLOT_PAGES, flags);
	return memslot2region(g->vm, BAD_SLOT);
}

FIXTURE(hostile)
{
	struct guest g;
};

FIXTURE_VARIANT(hostile)
{
	bool user;
	bool upper;
};

FIXTURE_VARIANT_ADD(hostile, el1) { };
FIXTURE_VARIANT_ADD(hostile, el1_ttbr1) { .upper = true };
FIXTURE_VARIANT_ADD(hostile, el0) { .user = true };

FIXTURE_SETUP(hostile)
{
	SKIP_UNLESS_SAMPLED();
	SKIP_UNLESS_4_KIB_GUESTS();
	SKIP_UNLESS_4_KIB_HOST();
	create_guest(&self->g, VM_MODE_P40V48_4K, variant->user, variant->upper);
}

FIXTURE_TEARDOWN(hostile)
{
	host_restore();
	kvm_vm_free(self->g.vm);
}

/* guest_callchain_modes_test has more cases of broken stacks. */
TEST_F_TIMEOUT(hostile, stacks, TIMEOUT)
{
	struct guest *g = &self->g;
	gva_t absent;
	u64 *pte;

	build_far_stack(g);
	compare_broken(g, "last word of memory", -8ULL);
	compare_broken(g, "top of memory", -16ULL);
	compare_broken(g, "near the top of memory", -32ULL);
	compare_broken(g, "skips frames", g->frames[SMALL_FRAMES]);
	/* A kernel may go to a lower stack, but nothing is there. */
	compare_broken(g, "first page", 8);
	compare_return_address(g, "lowest marker", PERF_CONTEXT_MAX);

	/* The first word of this frame is on the broken frame's page, the second on no page. */
	absent = g->frames[BROKEN + 1] & ~0xfffULL;
	pte = virt_get_pte_hva(g->vm, mapped_gva(g, absent));
	write_word(g, absent - 8, g->frames[BROKEN + 2]);
	*pte &= ~PTE_VALID;
	compare_broken(g, "straddles into nothing", absent - 8);
	*pte |= PTE_VALID;

	if (!variant->upper) {
		gva_t top = vm_alloc(g->vm, 0x1000, BIT_ULL(48) - 0x1000);

		set_pte_bits(g, top, 0x1000, 0, variant->user ? TEST_PTE_USER : 0);
		write_word(g, top + 0xff8, g->frames[BROKEN + 1]);
		compare_broken(g, "reaches into the gap", top + 0xff8);
	}

	compare_frames(g, "whole again", SMALL_FRAMES);
}

/* Tamper with the descriptor, in the table of a level, that leads to the broken frame. */

static void clear_bit_of(struct guest *g, int level, u64 bit)
{
	*desc_at(g, level) &= ~bit;
}

static void point_to_table(struct guest *g, int level, u64 table)
{
	point_to(g, level, table_of_level(g, table));
}

/* Map the frames by a block at @gpa.  At BAD_SLOT_GPA, the test page_tables has a copy of them. */
static void make_block(struct guest *g, int level, u64 gpa)
{
	const u64 page = *desc_at(g, 3);

	*desc_at(g, level) = (page & ~(ADDR_MASK | PTE_BIT_1)) | gpa;
}

static const struct table_case {
	const char *name;
	void (*tamper)(struct guest *g, int level, u64 arg);
	int level;
	u64 arg;
	unsigned int nr_frames;
} table_cases[] = {
	{ "level 0 is not valid", clear_bit_of, 0, PTE_VALID, 0 },
	{ "level 1 is not valid", clear_bit_of, 1, PTE_VALID, 0 },
	{ "level 2 is not valid", clear_bit_of, 2, PTE_VALID, 0 },
	{ "page is not valid", clear_bit_of, 3, PTE_VALID, BROKEN },
	{ "level 0 has a reserved type", clear_bit_of, 0, PTE_BIT_1, 0 },
	{ "page has a reserved type", clear_bit_of, 3, PTE_BIT_1, BROKEN },
	{ "level 1 table past the output size", point_to, 0, TOO_HIGH_GPA, 0 },
	{ "level 2 table past the output size", point_to, 1, TOO_HIGH_GPA, 0 },
	{ "level 3 table past the output size", point_to, 2, TOO_HIGH_GPA, 0 },
	{ "page past the output size", point_to, 3, TOO_HIGH_GPA, BROKEN },
	{ "block of 1 GiB past the output size", make_block, 1, TOO_HIGH_GPA, 0 },
	{ "block of 2 MiB past the output size", make_block, 2, TOO_HIGH_GPA, 0 },
	{ "level 1 table outside of memslots", point_to, 0, NO_MEMSLOT_GPA, 0 },
	{ "level 2 table outside of memslots", point_to, 1, NO_MEMSLOT_GPA, 0 },
	{ "level 3 table outside of memslots", point_to, 2, NO_MEMSLOT_GPA, 0 },
	{ "page outside of memslots", point_to, 3, NO_MEMSLOT_GPA, BROKEN },
	{ "block of 1 GiB outside of memslots", make_block, 1, NO_MEMSLOT_GPA, 0 },
	{ "block of 2 MiB outside of memslots", make_block, 2, NO_MEMSLOT_GPA, 0 },
	{ "block of 1 GiB", make_block, 1, BAD_SLOT_GPA, SMALL_FRAMES },
	{ "block of 2 MiB", make_block, 2, BAD_SLOT_GPA, SMALL_FRAMES },
	/* Tables have zeros at the frame's offset, which read as the outermost frame. */
	{ "page is the level 0 table", point_to_table, 3, 0, BROKEN },
	{ "page is the level 1 table", point_to_table, 3, 1, BROKEN },
	{ "page is the level 2 table", point_to_table, 3, 2, BROKEN },
	{ "page is the level 3 table", point_to_table, 3, 3, BROKEN },
	/* With these, a table's descriptor, which has no Access flag, is read as the page's. */
	{ "level 0 points to the level 0 table", point_to_table, 0, 0, 0 },
	{ "level 1 points to the level 0 table", point_to_table, 1, 0, 0 },
	{ "level 1 points to the level 1 table", point_to_table, 1, 1, 0 },
	{ "level 2 points to the level 0 table", point_to_table, 2, 0, 0 },
	{ "level 2 points to the level 1 table", point_to_table, 2, 1, 0 },
	{ "level 2 points to the level 2 table", point_to_table, 2, 2, 0 },
};

/*
 * The guest never touches its stack, so that its TLB doesn't matter: descriptors can be changed
 * and restored at will.
 */
TEST_F_TIMEOUT(hostile, page_tables, TIMEOUT)
{
	struct guest *g = &self->g;
	const struct table_case *c;
	void *copy;
	u64 *desc, old, off;
	int level;

	build_far_stack(g);
	TEST_ASSERT((g->frames[0] & ~0xfffULL & ~g->upper) == FAR_GVA, "The stack begins at 0x%lx",
		    g->frames[0]);
	copy = add_bad_slot(g, VM_MEM_SRC_ANONYMOUS, 0)->host_mem;
	for (off = 0; off < g->stack_size; off += 0x1000)
		memcpy(copy + off, hva(g, FAR_GVA + off), 0x1000);
	compare_frames(g, "as it is", SMALL_FRAMES);

	for_each_case(c, table_cases) {
		TH_LOG("%s", c->name);
		desc = desc_at(g, c->level);
		old = *desc;
		c->tamper(g, c->level, c->arg);
		compare_frames(g, c->name, c->nr_frames);
		*desc = old;
	}

	for (level = 0; level < 3; level++) {
		desc = desc_at(g, level);
		old = *desc;
		*desc |= PTE_APTABLE_EL0;
		compare_frames(g, "table denies EL0", variant->user ? 0 : SMALL_FRAMES);
		*desc = old;
	}

	compare_frames(g, "as it was", SMALL_FRAMES);
}

GUEST_SWITCHES(ttbr0, "msr ttbr0_el1,");
GUEST_SWITCHES(ttbr1, "msr ttbr1_el1,");

/* A bit of an ASID, which is no part of the address. */
#define TTBR_ASID	BIT_ULL(48)

/* A walk uses the tables that the guest has switched to, even if that has caused no exit. */
TEST_F_TIMEOUT(hostile, switches_ttbr, TIMEOUT)
{
	const u64 root = get_sys(&self->g, variant->upper ? SYS_TTBR1_EL1 : SYS_TTBR0_EL1);
	struct guest *g = &self->g;
	struct switches s = {};
	gpa_t other;
	u64 *table;

	if (variant->user)
		SKIP(return, "EL0 can't write TTBRs");

	build_far_stack(g);
	other = vm_alloc_page_table(g->vm);
	table = addr_gpa2hva(g->vm, other);
	memcpy(table, addr_gpa2hva(g->vm, g->vm->mmu.pgd), 0x1000);
	table[FAR_GVA >> 39] = 0;

	expect_frames(g, "with the stack", SMALL_FRAMES);
	expect_switch(&s, 0, g, variant->upper ? guest_switches_ttbr1_x19 :
						 guest_switches_ttbr0_x19);
	expect_frames(g, "without the stack", 0);
	expect_switch(&s, 1, g, variant->upper ? guest_switches_ttbr1_x20 :
						 guest_switches_ttbr0_x20);
	run_switches(g, &s, variant->upper ? guest_switches_ttbr1 : guest_switches_ttbr0, root,
		     other | TTBR_ASID);
}

/*
 * Move what a descriptor leads to, the broken frame's page or a table, to a memslot of its own.
 * Return the descriptor as it was.
 */
static u64 move_to_slot(struct guest *g, int level, enum vm_mem_backing_src_type src, u32 flags)
{
	struct userspace_mem_region *region = add_bad_slot(g, src, flags);
	const u64 old = *desc_at(g, level);

	memcpy(region->host_mem + MOVED_OFF, addr_gpa2hva(g->vm, old & ADDR_MASK), 0x1000);
	point_to(g, level, BAD_SLOT_GPA + MOVED_OFF);
	return old;
}

static void compare_in_slot(struct guest *g, const char *name, int level,
			    enum vm_mem_backing_src_type src, u32 flags)
{
	u64 old = move_to_slot(g, level, src, flags);

	if (src == VM_MEM_SRC_ANONYMOUS_THP)
		TEST_ASSERT(!madvise(memslot2region(g->vm, BAD_SLOT)->host_mem, SZ_2M,
				     MADV_COLLAPSE),
			    "MADV_COLLAPSE failed: %s", strerror(errno));
	compare_frames(g, name, SMALL_FRAMES);
	*desc_at(g, level) = old;
	vm_mem_region_delete(g->vm, BAD_SLOT);
}

static void compare_hole(struct guest *g, const char *name, enum vm_mem_backing_src_type src)
{
	u64 old = move_to_slot(g, 3, src, 0);

	TEST_ASSERT(!fallocate(memslot2region(g->vm, BAD_SLOT)->fd,
			       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SZ_2M),
		    "FALLOC_FL_PUNCH_HOLE failed: %s", strerror(errno));
	compare_frames(g, name, BROKEN);
	*desc_at(g, 3) = old;
	vm_mem_region_delete(g->vm, BAD_SLOT);
}

/* The VMM's memory under a frame, or under a table that leads to it. */
TEST_F_TIMEOUT(hostile, vmm, TIMEOUT)
{
	struct guest *g = &self->g;
	u8 saved[0x1000];
	void *page;
	int level;
	u64 old;

	build_far_stack(g);
	page = hva(g, g->frames[BROKEN] & ~0xfffULL);
	memcpy(saved, page, sizeof(saved));

	TEST_ASSERT(!madvise(page, 0x1000, MADV_DONTNEED), "madvise(): %s", strerror(errno));
	compare_frames(g, "page not in memory", BROKEN);
	memcpy(page, saved, sizeof(saved));
	compare_frames(g, "page in memory again", SMALL_FRAMES);

	TEST_ASSERT(!mprotect(page, 0x1000, PROT_NONE), "mprotect(): %s", strerror(errno));
	compare_frames(g, "page not accessible", BROKEN);
	TEST_ASSERT(!mprotect(page, 0x1000, PROT_READ), "mprotect(): %s", strerror(errno));
	compare_frames(g, "page read-only", SMALL_FRAMES);
	TEST_ASSERT(!mprotect(page, 0x1000, PROT_READ | PROT_WRITE), "mprotect(): %s",
		    strerror(errno));

	compare_in_slot(g, "page in a read-only slot", 3, VM_MEM_SRC_ANONYMOUS, KVM_MEM_READONLY);
	for (level = 0; level < 3; level++)
		compare_in_slot(g, "table in a read-only slot", level, VM_MEM_SRC_ANONYMOUS,
				KVM_MEM_READONLY);
	compare_in_slot(g, "page in a memfd", 3, VM_MEM_SRC_SHMEM, 0);
	compare_hole(g, "hole in a memfd", VM_MEM_SRC_SHMEM);

	old = move_to_slot(g, 3, VM_MEM_SRC_ANONYMOUS, 0);
	vm_mem_region_delete(g->vm, BAD_SLOT);
	compare_frames(g, "page in a slot that was deleted", BROKEN);
	*desc_at(g, 3) = old;

	old = move_to_slot(g, 3, VM_MEM_SRC_ANONYMOUS, 0);
	vm_mem_region_move(g->vm, BAD_SLOT, 2 * BAD_SLOT_GPA);
	compare_frames(g, "page in a slot that has moved", BROKEN);
	point_to(g, 3, 2 * BAD_SLOT_GPA + MOVED_OFF);
	compare_frames(g, "page where that slot is now", SMALL_FRAMES);
	*desc_at(g, 3) = old;
	vm_mem_region_delete(g->vm, BAD_SLOT);

	TEST_ASSERT(!munmap(page, 0x1000), "munmap(): %s", strerror(errno));
	compare_frames(g, "page unmapped", BROKEN);
}

TEST_F_TIMEOUT(hostile, huge_pages, TIMEOUT)
{
	struct guest *g = &self->g;

	SKIP_UNLESS_OVERRIDDEN("/proc/sys/vm/nr_hugepages", 4);
	if (!thp_configured() || get_def_hugetlb_pagesz() != SZ_2M)
		SKIP(return, "The host has no huge pages of 2 MiB");

	build_far_stack(g);
	compare_in_slot(g, "THP", 3, VM_MEM_SRC_ANONYMOUS_THP, 0);
	compare_in_slot(g, "hugetlb", 3, VM_MEM_SRC_ANONYMOUS_HUGETLB, 0);
	compare_in_slot(g, "hugetlb memfd", 3, VM_MEM_SRC_SHARED_HUGETLB, 0);
	compare_hole(g, "hole in a hugetlb memfd", VM_MEM_SRC_SHARED_HUGETLB);
}

/* A guest_memfd that the VMM has mapped is read like other memory. */
TEST_F_TIMEOUT(hostile, guest_memfd, TIMEOUT)
{
	const u64 flags = GUEST_MEMFD_FLAG_MMAP | GUEST_MEMFD_FLAG_INIT_SHARED;
	const size_t size = BAD_SLOT_PAGES * 0x1000;
	struct guest *g = &self->g;
	void *mem;
	int fd;

	if ((vm_check_cap(g->vm, KVM_CAP_GUEST_MEMFD_FLAGS) & flags) != flags)
		SKIP(return, "The host has no guest_memfd that can be mapped");

	build_far_stack(g);
	fd = vm_create_guest_memfd(g->vm, size, flags);
	mem = kvm_mmap(size, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	vm_set_user_memory_region2(g->vm, BAD_SLOT, KVM_MEM_GUEST_MEMFD, BAD_SLOT_GPA, size, mem,
				   fd, 0);
	memcpy(mem + MOVED_OFF, hva(g, g->frames[BROKEN] & ~0xfffULL), 0x1000);
	point_to(g, 3, BAD_SLOT_GPA + MOVED_OFF);
	compare_frames(g, "guest_memfd", SMALL_FRAMES);
	kvm_munmap(mem, size);
	close(fd);
}

/* Guests with unusual values in system registers and PSTATE.  Their code is in the lower half. */
FIXTURE(registers)
{
	struct guest g;
};

FIXTURE_VARIANT(registers)
{
	bool user;
};

FIXTURE_VARIANT_ADD(registers, el1) { };
FIXTURE_VARIANT_ADD(registers, el0) { .user = true };

FIXTURE_SETUP(registers)
{
	SKIP_UNLESS_SAMPLED();
	SKIP_UNLESS_4_KIB_GUESTS();
	SKIP_UNLESS_4_KIB_HOST();
	create_guest(&self->g, VM_MODE_P40V48_4K, variant->user, false);
}

FIXTURE_TEARDOWN(registers)
{
	kvm_vm_free(self->g.vm);
}

static void compare_ttbr1(struct guest *g, const char *name, u64 ttbr)
{
	const u64 old = get_sys(g, SYS_TTBR1_EL1);

	set_sys(g, SYS_TTBR1_EL1, ttbr);
	compare_frames(g, name, 0);
	set_sys(g, SYS_TTBR1_EL1, old);
}

static void compare_tcr(struct guest *g, const char *name, u64 clear, u64 set, unsigned int nr)
{
	const u64 old = get_sys(g, SYS_TCR_EL1);

	set_sys(g, SYS_TCR_EL1, (old & ~clear) | set);
	compare_frames(g, name, nr);
	set_sys(g, SYS_TCR_EL1, old);
}

static void compare_t1sz(struct guest *g, const char *name, u64 size)
{
	compare_tcr(g, name, TCR_T1SZ_BITS, FIELD_PREP(TCR_T1SZ_BITS, size), 0);
}

/* Only the stack is in the upper half: the guest runs, whatever is wrong with that half. */
TEST_F_TIMEOUT(registers, ttbr, TIMEOUT)
{
	struct guest *g = &self->g;

	vcpu_use_upper_half(g->vcpu);
	g->alias = GENMASK_ULL(63, 48);
	build_far_stack(g);
	compare_frames(g, "as it is", SMALL_FRAMES);

	compare_ttbr1(g, "TTBR1 outside of memslots", NO_MEMSLOT_GPA);
	compare_ttbr1(g, "TTBR1 past the output size", TOO_HIGH_GPA);
	compare_ttbr1(g, "TTBR1 is a page of zeros", vm_alloc_page_table(g->vm));
	compare_tcr(g, "no walks by TTBR1", 0, TCR_EPD1_MASK, 0);

	/* Without LPA2, addresses have at most 48 bits. */
	compare_t1sz(g, "addresses of 59 bits", 5);
	compare_t1sz(g, "addresses of 52 bits", 12);
	compare_t1sz(g, "addresses of 24 bits", 40);
	compare_t1sz(g, "addresses of 1 bit", 63);

	if (SYS_FIELD_GET(ID_AA64MMFR2_EL1, E0PD, get_sys(g, SYS_ID_AA64MMFR2_EL1)))
		compare_tcr(g, "no upper half for EL0", 0, TCR_EL1_E0PD1,
			    variant->user ? 0 : SMALL_FRAMES);
	else
		TH_LOG("This CPU has no E0PD");

	compare_frames(g, "as it was", SMALL_FRAMES);
}

GUEST_SWITCHES(tcr, "msr tcr_el1,");

/* The guest allows and forbids walks by TTBR1. */
TEST_F_TIMEOUT(registers, switches_tcr, TIMEOUT)
{
	struct guest *g = &self->g;
	struct switches s = {};

	if (variant->user)
		SKIP(return, "EL0 can't write TCR_EL1");

	vcpu_use_upper_half(g->vcpu);
	g->alias = GENMASK_ULL(63, 48);
	build_far_stack(g);

	expect_frames(g, "with TTBR1", SMALL_FRAMES);
	expect_switch(&s, 0, g, guest_switches_tcr_x19);
	expect_frames(g, "without TTBR1", 0);
	expect_switch(&s, 1, g, guest_switches_tcr_x20);
	run_switches(g, &s, guest_switches_tcr, get_sys(g, SYS_TCR_EL1),
		     get_sys(g, SYS_TCR_EL1) | TCR_EPD1_MASK);
}

/* Without translation, addresses are physical ones. */
TEST_F_TIMEOUT(registers, mmu_off, TIMEOUT)
{
	const unsigned int ipa_bits = kvm_check_cap(KVM_CAP_ARM_VM_IPA_SIZE);
	struct guest *g = &self->g;
	unsigned int i;
	u64 fp;

	/* The library finds memory by virtual addresses: make them equal to the physical ones. */
	vm_userspace_mem_region_add(g->vm, VM_MEM_SRC_ANONYMOUS, OTHER_GPA, OTHER_SLOT,
				    OTHER_PAGES, 0);
	virt_map(g->vm, OTHER_GPA, OTHER_GPA, OTHER_PAGES);
	*(u32 *)hva(g, OTHER_GPA) = A64_LOOP;
	for (i = 0, fp = OTHER_GPA + 0x1400; i < SMALL_FRAMES; i++, fp += 0x1000) {
		g->frames[i] = fp;
		g->ras[i] = FAKE_TEXT + (i + 1) * 0x40;
		write_word(g, fp, fp + 0x1000);
		write_word(g, fp + 8, g->ras[i]);
	}
	g->frames[i] = fp;
	write_word(g, fp, 0);
	write_word(g, fp + 8, 0);
	vcpu_set_fp(g->vcpu, g->frames[0]);
	set_sp(g, g->frames[0] - 0x20);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), OTHER_GPA);
	set_sys(g, SYS_SCTLR_EL1, get_sys(g, SYS_SCTLR_EL1) & ~SCTLR_ELx_M);
	compare_frames_at(g, "whole", SMALL_FRAMES, OTHER_GPA);

	write_word(g, g->frames[BROKEN - 1], NO_MEMSLOT_GPA);
	compare_frames_at(g, "outside of memslots", BROKEN, OTHER_GPA);

	/*
	 * Let addresses have 52 bits, so that the one below is canonical.  If translation were on,
	 * it would refuse this T0SZ.
	 */
	if (ipa_bits < 52) {
		set_sys(g, SYS_TCR_EL1, (get_sys(g, SYS_TCR_EL1) & ~TCR_T0SZ_BITS) | 12);
		write_word(g, g->frames[BROKEN - 1], BIT_ULL(ipa_bits));
		compare_frames_at(g, "no physical address", BROKEN, OTHER_GPA);
	}
}

/* 32-bit code has no frame records of this kind. */
TEST_F_TIMEOUT(registers, el0_32_bit, TIMEOUT)
{
	struct guest *g = &self->g;
	gva_t code;

	if (!variant->user)
		SKIP(return, "KVM has 32-bit kernels for VMs of another kind");
	if (SYS_FIELD_GET(ID_AA64PFR0_EL1, EL0, get_sys(g, SYS_ID_AA64PFR0_EL1)) !=
	    ID_AA64PFR0_EL1_EL0_AARCH32)
		SKIP(return, "This CPU runs no 32-bit programs");

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	code = vm_alloc(g->vm, 0x1000, OTHER_GVA);
	*(u32 *)hva(g, code) = A32_LOOP;
	set_pte_bits(g, code, 0x1000, 0, TEST_PTE_USER | TEST_PTE_RDONLY);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), code);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pstate), PSTATE_EL0_32);
	compare_frames_at(g, "a 32-bit program", 0, code);
}

TEST_HARNESS_MAIN
