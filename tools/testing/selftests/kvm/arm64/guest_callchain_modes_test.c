// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests in each mode of arm64: sample guests whose stacks are known, and compare
 * each chain as a whole.  The walk is deferred: it is made when the guest has exited.
 */
#include <fcntl.h>
#include <linux/sizes.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "callchain_guest.h"
#include "userfaultfd_util.h"

#define SYSCTL		"/proc/sys/kernel/perf_event_guest_callchain"

/*
 * An environment variable: the address, for /dev/mem, of a page of registers of a device that
 * nobody uses.
 */
#define DEVICE_VARIABLE	"KVM_SELFTEST_DEVICE"

#define FILE_SLOT	11
#define FILE_GPA	BIT_ULL(33)
#define FILE_GVA	0x40000000ULL

/* An address that shares its last-level table with no other. */
#define TABLE_GVA	0x30000000ULL

/*
 * Exit twice in each round, with hypercalls that KVM doesn't know: first with X29 set from X19,
 * then with X29 set from X20.  So X29 equals X19 while the PC is at the second or the third
 * instruction, and X20 while it is at another one.
 */
void guest_exits(void);
asm(".pushsection .text; .balign 64; .global guest_exits; guest_exits:\n"
    "mov x29, x19; hvc #0; mov x29, x20; hvc #0; b guest_exits; .popsection");

/* KVM emulates the register, so that X29 changes while the exit is handled. */
void guest_traps(void);
asm(".pushsection .text; .balign 64; .global guest_traps; guest_traps:\n"
    "mov x29, x19; mrs x29, id_aa64isar0_el1; b guest_traps; .popsection");

/*
 * Compute with general and with FP registers, on an array of X1 + 16 bytes at X0, for X2 rounds.
 * Then write to the address in X3.  X8 is a factor.
 */
void guest_works(void);
asm(".pushsection .text; .balign 256; .global guest_works; guest_works:\n"
    ".irp n,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "dup v\\n\\().2d, x8\n"
    ".endr\n"
    "1: and x4, x7, x1; eor x6, x4, x1\n"
    "ldr x5, [x0, x4]; madd x7, x7, x8, x5; add x7, x7, x2; str x7, [x0, x4]\n"
    "ldr q0, [x0, x4]; add v1.2d, v1.2d, v0.2d; eor v2.16b, v2.16b, v1.16b\n"
    "scvtf d3, x7; fadd d4, d4, d3; fdiv d5, d4, d3; eor v2.16b, v2.16b, v5.16b\n"
    "str q2, [x0, x6]\n"
    "subs x2, x2, #1; b.ne 1b; str x7, [x3]\n"
    "2: b 2b; .popsection");

/* Whole stacks, in each granule, exception level, and half of the addresses. */
FIXTURE(whole)
{
	struct guest g;
};

FIXTURE_VARIANT(whole)
{
	enum vm_guest_mode mode;
	bool user;
	bool upper;
};

#define MODE_VARIANTS(_fixture, _name, _mode)				\
FIXTURE_VARIANT_ADD(_fixture, _name##_el1_ttbr0)			\
	{ .mode = _mode };						\
FIXTURE_VARIANT_ADD(_fixture, _name##_el1_ttbr1)			\
	{ .mode = _mode, .upper = true };				\
FIXTURE_VARIANT_ADD(_fixture, _name##_el0_ttbr0)			\
	{ .mode = _mode, .user = true };				\
FIXTURE_VARIANT_ADD(_fixture, _name##_el0_ttbr1)			\
	{ .mode = _mode, .user = true, .upper = true }

MODE_VARIANTS(whole, 4k, VM_MODE_P40V48_4K);
MODE_VARIANTS(whole, 4k_lpa2, VM_MODE_P52V48_4K);
MODE_VARIANTS(whole, 16k, VM_MODE_P40V48_16K);
MODE_VARIANTS(whole, 16k_lpa2, VM_MODE_P52V48_16K);
MODE_VARIANTS(whole, 16k_3_levels, VM_MODE_P36V47_16K);
MODE_VARIANTS(whole, 64k, VM_MODE_P40V48_64K);
MODE_VARIANTS(whole, 64k_lpa, VM_MODE_P52V48_64K);

FIXTURE_SETUP(whole)
{
	SKIP_UNLESS_SAMPLED();
	SKIP_UNLESS_SUPPORTED(variant->mode);
	create_guest(&self->g, variant->mode, variant->user, variant->upper);
}

FIXTURE_TEARDOWN(whole)
{
	kvm_vm_free(self->g.vm);
}

/* Each record lies on two pieces of 4 KiB, and some on two pages. */
TEST_F_TIMEOUT(whole, chain, TIMEOUT)
{
	build_stack(&self->g, 60, 0x1000, self->g.vm->page_size - 0x408);
	compare(&self->g);
}

/* Addresses with this bit lead to the same tables as those without it. */
#define WIDE_ALIAS	BIT_ULL(50)

/*
 * Let a guest have addresses of 52 bits, although the library has made its tables for 48.  With
 * pages of 4 KiB, that takes one more level.  With larger ones, the root table has more entries.
 */
static void use_52_bit_addresses(struct guest *g)
{
	unsigned int levels = g->vm->mmu.pgtable_levels;
	u64 *table, tcr = get_sys(g, SYS_TCR_EL1);
	gpa_t root = g->vm->mmu.pgd;

	if (g->vm->page_size == SZ_4K) {
		root = vm_alloc_page_table(g->vm);
		table = addr_gpa2hva(g->vm, root);
		table[0] = g->vm->mmu.pgd | PGD_TYPE_TABLE | PTE_VALID;
		levels++;
	}
	table = addr_gpa2hva(g->vm, root);
	table[WIDE_ALIAS >> (g->vm->page_shift + (levels - 1) * (g->vm->page_shift - 3))] =
		table[0];

	tcr &= ~(TCR_EL1_T0SZ_MASK | TCR_EL1_T1SZ_MASK);
	tcr |= SYS_FIELD_PREP(TCR_EL1, T0SZ, 12) | SYS_FIELD_PREP(TCR_EL1, T1SZ, 12);
	set_sys(g, SYS_TCR_EL1, tcr);
	set_sys(g, SYS_TTBR0_EL1, root);
	g->alias = WIDE_ALIAS;
	if (!g->upper)
		return;

	set_sys(g, SYS_TTBR1_EL1, root);
	g->upper = GENMASK_ULL(63, 52);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), (u64)guest_loop | g->upper);
}

/* Whole stacks at virtual addresses of 52 bits, for which the library has no modes. */
FIXTURE(wide)
{
	struct guest g;
};

FIXTURE_VARIANT(wide)
{
	enum vm_guest_mode mode;
	bool user;
	bool upper;
};

MODE_VARIANTS(wide, 4k, VM_MODE_P52V48_4K);
MODE_VARIANTS(wide, 16k, VM_MODE_P52V48_16K);
MODE_VARIANTS(wide, 64k, VM_MODE_P52V48_64K);

FIXTURE_SETUP(wide)
{
	SKIP_UNLESS_SAMPLED();
	SKIP_UNLESS_SUPPORTED(variant->mode);
	create_guest(&self->g, variant->mode, variant->user, variant->upper);
	/* With pages of 64 KiB, 52 bits of physical addresses don't imply 52 of virtual ones. */
	if (variant->mode == VM_MODE_P52V48_64K &&
	    !SYS_FIELD_GET(ID_AA64MMFR2_EL1, VARange, get_sys(&self->g, SYS_ID_AA64MMFR2_EL1)))
		SKIP(return, "This CPU has no virtual addresses of 52 bits");
	use_52_bit_addresses(&self->g);
}

FIXTURE_TEARDOWN(wide)
{
	kvm_vm_free(self->g.vm);
}

TEST_F_TIMEOUT(wide, chain, TIMEOUT)
{
	build_stack(&self->g, 100, 0x7f8, 0x3f8);
	compare(&self->g);
}

/* All else is tested with the granule of 4 KiB. */
FIXTURE(el)
{
	struct guest g;
};

FIXTURE_VARIANT(el)
{
	bool user;
	bool upper;
};

FIXTURE_VARIANT_ADD(el, el1) { };
FIXTURE_VARIANT_ADD(el, el1_ttbr1) { .upper = true };
FIXTURE_VARIANT_ADD(el, el0) { .user = true };

FIXTURE_SETUP(el)
{
	SKIP_UNLESS_SAMPLED();
	SKIP_UNLESS_4_KIB_GUESTS();
	SKIP_UNLESS_4_KIB_HOST();
	create_guest(&self->g, VM_MODE_P40V48_4K, variant->user, variant->upper);
}

FIXTURE_TEARDOWN(el)
{
	host_restore();
	kvm_vm_free(self->g.vm);
}

/* Each chain has the frames below the broken one, and no more. */
TEST_F_TIMEOUT(el, broken, TIMEOUT)
{
	struct guest *g = &self->g;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	compare_broken(g, "unaligned", g->frames[BROKEN] + 4);
	compare_broken(g, "to itself", g->frames[BROKEN - 1]);
	compare_broken(g, "to the innermost", g->frames[0]);
	compare_broken(g, "into itself", g->frames[BROKEN - 1] + 8);
	compare_broken(g, "unmapped", 0x600000000000ULL | g->upper);
	compare_broken(g, "outermost", 0);
	compare_broken(g, "not canonical", (BIT_ULL(52) | STACK_GVA) ^ g->upper);
	compare_return_address(g, "zero", 0);
	compare_return_address(g, "not canonical", BIT_ULL(52) ^ g->upper);
	compare_return_address(g, "a marker", PERF_CONTEXT_GUEST_USER);
}

/* The frame pointer is zero, or leads below the stack pointer. */
TEST_F_TIMEOUT(el, no_frames, TIMEOUT)
{
	struct guest *g = &self->g;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	expect_frames(g, "no frame pointer", 0);
	vcpu_set_fp(g->vcpu, 0);
	compare(g);

	vcpu_set_fp(g->vcpu, g->frames[0]);
	expect_frames(g, "whole again", SMALL_FRAMES);
	compare(g);

	if (!variant->user)
		return;
	set_sp(g, g->frames[1]);
	expect_frames(g, "below the stack pointer", 0);
	compare(g);
}

/* The number of times that a walk may leave a kernel's stack for a lower one. */
#define MAX_STACKS_LEFT	3

/* A kernel has stacks in any order.  A program has one. */
TEST_F_TIMEOUT(el, stacks, TIMEOUT)
{
	struct guest *g = &self->g;
	unsigned int i;
	u64 low, high;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	/* Go from the fourth frame to two records below all others, and on to the fifth frame. */
	low = g->frames[0] - 0x100;
	high = low + 0x20;
	write_word(g, g->frames[BROKEN - 1], low);
	write_word(g, low, high);
	write_word(g, low + 8, FAKE_TEXT | g->upper);
	write_word(g, high, g->frames[BROKEN]);
	write_word(g, high + 8, (FAKE_TEXT + 8) | g->upper);

	expect_frames(g, "two stacks", BROKEN);
	if (variant->user) {
		compare(g);
		return;
	}
	expect_entry(g, FAKE_TEXT | g->upper);
	expect_entry(g, (FAKE_TEXT + 8) | g->upper);
	memcpy(&g->e.ips[g->e.nr], &g->ras[BROKEN], (SMALL_FRAMES - BROKEN) * sizeof(u64));
	g->e.nr += SMALL_FRAMES - BROKEN;
	compare(g);

	/* The second stack leads back to the first one. */
	write_word(g, high, g->frames[1]);
	g->e.nr -= SMALL_FRAMES - BROKEN;
	g->e.name = "a cycle of two stacks";
	compare(g);

	/* Each record is on a stack of its own, below the one before. */
	expect_frames(g, "too many stacks", BROKEN);
	for (i = 0; i < MAX_STACKS_LEFT + 1; i++, low -= 0x40) {
		write_word(g, low, low - 0x40);
		write_word(g, low + 8, (FAKE_TEXT + 8 * i) | g->upper);
		if (i < MAX_STACKS_LEFT)
			expect_entry(g, (FAKE_TEXT + 8 * i) | g->upper);
	}
	compare(g);
}

/* The guest's own rights, and its page tables, decide what is read. */
TEST_F_TIMEOUT(el, rights, TIMEOUT)
{
	struct guest *g = &self->g;
	u64 page, pstate;

	/* One record a page. */
	build_stack(g, SMALL_FRAMES, 0x1000, 0);
	page = g->frames[BROKEN] & ~0xfffULL;

	set_pte_bits(g, page, 0x1000, 0, TEST_PTE_RDONLY);
	expect_frames(g, "read-only", SMALL_FRAMES);
	compare(g);

	set_pte_bits(g, page, 0x1000, TEST_PTE_RDONLY | TEST_PTE_USER,
		     variant->user ? 0 : TEST_PTE_USER);
	if (variant->user) {
		expect_frames(g, "the kernel's page", BROKEN);
		compare(g);
		return;
	}

	expect_frames(g, "user mode's page", SMALL_FRAMES);
	compare(g);

	pstate = vcpu_get_reg(g->vcpu, ARM64_CORE_REG(regs.pstate));
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pstate), pstate | PSTATE_PAN_SET);
	expect_frames(g, "user mode's page, with PAN", BROKEN);
	compare(g);
}

/* If the guest lets the CPU set Access flags, a walk needs no such flag, and sets none. */
TEST_F_TIMEOUT(el, access_flag, TIMEOUT)
{
	struct guest *g = &self->g;
	u64 page, *pte, old;

	build_stack(g, SMALL_FRAMES, 0x1000, 0);
	page = g->frames[BROKEN] & ~0xfffULL;
	pte = virt_get_pte_hva(g->vm, page & ~g->upper);
	set_pte_bits(g, page, 0x1000, PTE_AF, 0);
	old = *pte;

	expect_frames(g, "no access", BROKEN);
	compare(g);

	if (!SYS_FIELD_GET(ID_AA64MMFR1_EL1, HAFDBS, get_sys(g, SYS_ID_AA64MMFR1_EL1)))
		SKIP(return, "This CPU does not set Access flags");

	set_sys(g, SYS_TCR_EL1, get_sys(g, SYS_TCR_EL1) | TCR_HA);
	expect_frames(g, "access by hardware", SMALL_FRAMES);
	compare(g);
	TEST_ASSERT(*pte == old, "The walk has changed a descriptor from 0x%lx to 0x%lx", old,
		    *pte);
}

/* Programs may have big-endian data. */
TEST_F_TIMEOUT(el, big_endian, TIMEOUT)
{
	struct guest *g = &self->g;
	unsigned int i;

	if (!variant->user)
		SKIP(return, "The kernel's own page tables are in the other order");

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	for (i = 0; i < SMALL_FRAMES; i++) {
		write_word(g, g->frames[i], __builtin_bswap64(g->frames[i + 1]));
		write_word(g, g->frames[i] + 8, __builtin_bswap64(g->ras[i]));
	}
	set_sys(g, SYS_SCTLR_EL1, get_sys(g, SYS_SCTLR_EL1) | SCTLR_EL1_E0E);
	compare(g);
}

/* The topmost byte of a frame pointer may be a tag. */
TEST_F_TIMEOUT(el, tags, TIMEOUT)
{
	struct guest *g = &self->g;
	const u64 tbi = variant->upper ? TCR_TBI1 : TCR_TBI0, tag = 0x5aULL << 56;
	u64 tcr = get_sys(g, SYS_TCR_EL1);

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	write_word(g, g->frames[BROKEN - 1], g->frames[BROKEN] ^ tag);

	set_sys(g, SYS_TCR_EL1, tcr | tbi);
	expect_frames(g, "tagged", SMALL_FRAMES);
	compare(g);

	set_sys(g, SYS_TCR_EL1, tcr & ~tbi);
	expect_frames(g, "not to be tagged", BROKEN);
	compare(g);
}

static bool is_in_memory(void *page)
{
	unsigned char in_core;

	TEST_ASSERT(!mincore(page, getpagesize(), &in_core), "mincore(): %s", strerror(errno));
	return in_core & 1;
}

/* Let the last-level table of TABLE_GVA, which no other address uses, be at @gpa. */
static void use_table_at(struct guest *g, gpa_t gpa)
{
	u64 *pmd;

	virt_pg_map(g->vm, TABLE_GVA, OTHER_GPA);
	pmd = virt_get_pte_hva_at_level(g->vm, TABLE_GVA, 2);
	*pmd = (*pmd & ~GENMASK_ULL(47, 12)) | gpa;
}

/* Memory that the VMM has never touched is a hole.  It ends a walk, which must not fill it. */
TEST_F_TIMEOUT(el, holes, TIMEOUT)
{
	struct guest *g = &self->g;
	void *page, *table;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	page = add_other_memory(g) + 0x1000;
	table = page + 0x1000;

	compare_broken(g, "hole", (OTHER_GVA + 0x1000) | g->upper);
	TEST_ASSERT(!is_in_memory(page), "The walk has filled a hole");

	/* A page table may lie in a hole, too. */
	use_table_at(g, OTHER_GPA + 0x2000);
	compare_broken(g, "hole for a table", TABLE_GVA | g->upper);
	TEST_ASSERT(!is_in_memory(table), "The walk has filled a hole for a table");

	/* Holes of files are not filled either. */
	vm_userspace_mem_region_add(g->vm, VM_MEM_SRC_SHMEM, FILE_GPA, FILE_SLOT, 1, 0);
	virt_pg_map(g->vm, FILE_GVA, FILE_GPA);
	set_pte_bits(g, FILE_GVA, 0x1000, 0, variant->user ? TEST_PTE_USER : 0);
	compare_broken(g, "hole in a file", FILE_GVA | g->upper);
	TEST_ASSERT(!is_in_memory(addr_gpa2hva(g->vm, FILE_GPA)), "The walk has filled a file");

	/* Once the page is there, a walk reads it, and finds no return address. */
	*(u64 *)page = 0;
	compare_broken(g, "page", (OTHER_GVA + 0x1000) | g->upper);

	vm_mem_region_delete(g->vm, OTHER_SLOT);
	compare_broken(g, "no memslot", (OTHER_GVA + 0x1000) | g->upper);
}

/*
 * Pages that were aged, and that nobody has touched since, are read all the same, if the CPU sets
 * Access flags.  Any other CPU takes a page fault at the first access, which ends a walk.
 */
TEST_F_TIMEOUT(el, aged, TIMEOUT)
{
	struct guest *g = &self->g;
	int fd;

	if (!SYS_FIELD_GET(ID_AA64MMFR1_EL1, HAFDBS, get_sys(g, SYS_ID_AA64MMFR1_EL1)))
		SKIP(return, "This CPU does not set Access flags");

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	expect_frames(g, "aged", SMALL_FRAMES);

	fd = open("/proc/self/clear_refs", O_WRONLY);
	if (fd < 0)
		SKIP(return, "This kernel has no /proc/self/clear_refs");
	TEST_ASSERT_EQ(write(fd, "1", 1), 1);
	close(fd);
	compare(g);
}

/* No thread handles userfaults of missing pages.  A walk raises none. */
TEST_F_TIMEOUT(el, userfaults, TIMEOUT)
{
	struct pollfd pfd = { .events = POLLIN };
	struct guest *g = &self->g;
	struct uffd_desc *uffd;
	void *page;

	if (!has_userfaults())
		SKIP(return, "This user may not have userfaults of the kernel");

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	page = add_other_memory(g);
	use_table_at(g, OTHER_GPA + 0x2000);
	uffd = uffd_setup_demand_paging(UFFDIO_REGISTER_MODE_MISSING, 0, page,
					OTHER_PAGES * 0x1000, 0, NULL);
	pfd.fd = uffd->uffd;

	compare_broken(g, "stack", (OTHER_GVA + 0x1000) | g->upper);
	TEST_ASSERT(!poll(&pfd, 1, 0), "A walk has raised a userfault");
	compare_broken(g, "table", TABLE_GVA | g->upper);
	TEST_ASSERT(!poll(&pfd, 1, 0), "A walk has raised a userfault for a table");
	uffd_stop_demand_paging(uffd);
}

/* The registers of a device are not read. */
TEST_F_TIMEOUT(el, device, TIMEOUT)
{
	const char *name = getenv(DEVICE_VARIABLE);
	struct guest *g = &self->g;
	void *mem;
	int fd;

	if (!name)
		SKIP(return, DEVICE_VARIABLE " names no device");

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	fd = open("/dev/mem", O_RDWR | O_SYNC);
	TEST_ASSERT(fd >= 0, "open(/dev/mem): %s", strerror(errno));
	mem = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, strtoull(name, NULL, 0));
	TEST_ASSERT(mem != MAP_FAILED, "mmap(/dev/mem): %s", strerror(errno));

	vm_set_user_memory_region(g->vm, OTHER_SLOT, 0, OTHER_GPA, 0x1000, mem);
	virt_pg_map(g->vm, OTHER_GVA, OTHER_GPA);
	set_pte_bits(g, OTHER_GVA, 0x1000, 0, variant->user ? TEST_PTE_USER : 0);
	compare_broken(g, "device", OTHER_GVA | g->upper);

	vm_set_user_memory_region(g->vm, OTHER_SLOT, 0, OTHER_GPA, 0, mem);
	munmap(mem, 0x1000);
	close(fd);
}

/* A register that counts by itself. */
static bool is_counter(u64 id)
{
	return id == KVM_REG_ARM_TIMER_CNT || id == KVM_REG_ARM_PTIMER_CNT;
}

/* Save the vCPU's pending events, and all of its registers but counters. */
static size_t save_vcpu(struct guest *g, const struct kvm_reg_list *list, u8 *state, size_t size)
{
	struct kvm_vcpu_events events = {};
	size_t used = sizeof(events);
	u64 i;

	vcpu_events_get(g->vcpu, &events);
	memcpy(state, &events, used);
	for (i = 0; i < list->n; i++) {
		struct kvm_one_reg reg = { .id = list->reg[i], .addr = (u64)(state + used) };

		if (is_counter(reg.id))
			continue;
		TEST_ASSERT(used + KVM_REG_SIZE(reg.id) <= size, "There are too many registers");
		vcpu_ioctl(g->vcpu, KVM_GET_ONE_REG, &reg);
		used += KVM_REG_SIZE(reg.id);
	}
	return used;
}

/*
 * Sample a guest, and check that neither its memory nor its registers have changed.  If the CPU
 * sets Access flags, those of the stack's pages are clear: to set them would change memory.
 */
static void compare_and_change_nothing(struct guest *g)
{
	struct userspace_mem_region *region = memslot2region(g->vm, 0);
	const u64 size = region->region.memory_size;
	static u8 before[0x10000], after[0x10000];
	struct kvm_reg_list *list = vcpu_get_reg_list(g->vcpu);
	void *copy = malloc(size);
	size_t used;

	TEST_ASSERT(copy, "malloc()");
	memcpy(copy, region->host_mem, size);
	used = save_vcpu(g, list, before, sizeof(before));

	compare(g);

	TEST_ASSERT(!memcmp(copy, region->host_mem, size), "The guest's memory has changed");
	TEST_ASSERT(save_vcpu(g, list, after, sizeof(after)) == used &&
		    !memcmp(before, after, used), "The vCPU's registers have changed");
	free(copy);
	free(list);
}

static void build_stack_to_leave_alone(struct guest *g)
{
	build_stack(g, 100, 0x7f8, 0x3f8);
	if (!SYS_FIELD_GET(ID_AA64MMFR1_EL1, HAFDBS, get_sys(g, SYS_ID_AA64MMFR1_EL1)))
		return;
	set_pte_bits(g, g->frames[0] & ~0xfffULL, g->stack_size, PTE_AF, 0);
	set_sys(g, SYS_TCR_EL1, get_sys(g, SYS_TCR_EL1) | TCR_HA);
}

/* A walk changes neither memory nor registers, and logs no page as dirty. */
TEST_F_TIMEOUT(el, read_only, TIMEOUT)
{
	struct guest *g = &self->g;
	u64 i, pages = memslot2region(g->vm, 0)->region.memory_size / 0x1000;
	unsigned long *dirty = calloc(1, pages / 8 + 8);

	build_stack_to_leave_alone(g);
	compare(g);
	vm_mem_region_set_flags(g->vm, 0, KVM_MEM_LOG_DIRTY_PAGES);
	kvm_vm_get_dirty_log(g->vm, 0, dirty);

	compare_and_change_nothing(g);

	kvm_vm_get_dirty_log(g->vm, 0, dirty);
	for (i = 0; i < pages; i++)
		TEST_ASSERT(!test_bit(i, dirty), "Page %lu is dirty", i);
	free(dirty);
}

#define WORK_SIZE	0x4000
#define MIN_ROUNDS	2000000
#define MAX_ROUNDS	(MIN_ROUNDS << 6)
#define WORK_FACTOR	0x5851f42d4c957f2dULL

/* Let a guest run @rounds of guest_works() on a stack.  Return its array. */
static u64 *build_worker(struct guest *g, u64 rounds)
{
	const u64 user = g->user ? TEST_PTE_USER : 0;
	gva_t array;
	unsigned int i;
	u64 *words;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	if (g->user)
		set_pte_bits(g, (gva_t)guest_works & ~0xfffULL, 0x1000, 0,
			     TEST_PTE_USER | TEST_PTE_RDONLY);
	array = vm_alloc(g->vm, WORK_SIZE, OTHER_GVA);
	set_pte_bits(g, array, WORK_SIZE, 0, user);
	words = hva(g, array);
	for (i = 0; i < WORK_SIZE / sizeof(*words); i++)
		words[i] = i * WORK_FACTOR;

	/* There is no memory at OTHER_GPA: a write to TABLE_GVA is an exit to the VMM. */
	virt_pg_map(g->vm, TABLE_GVA, OTHER_GPA);
	set_pte_bits(g, TABLE_GVA, 0x1000, 0, user);

	for (i = 4; i <= 28; i++)
		vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[0]) + 2 * i, i * WORK_FACTOR);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[0]), array | g->upper);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[1]), WORK_SIZE - 16);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[2]), rounds);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[3]), TABLE_GVA | g->upper);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[8]), WORK_FACTOR);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), (u64)guest_works | g->upper);
	return words;
}

struct work {
	struct guest *g;
	unsigned int nr_guest;
};

/* The IP may be anywhere in guest_works(), but the frames are always the same. */
static void compare_work(const struct callchain_sample *s, void *arg)
{
	struct work *work = arg;
	struct guest *g = work->g;

	if (!callchain_sample_is_guest(s) || s->hit_kvm)
		return;
	TEST_ASSERT(s->nr == g->e.nr && s->ips[0] == g->e.ips[0] && s->ips[1] == s->ip,
		    "A chain of %lu entries", s->nr);
	TEST_ASSERT(!memcmp(&s->ips[2], g->ras, SMALL_FRAMES * sizeof(u64)),
		    "A chain of other frames");
	work->nr_guest++;
}

/*
 * A walk is made while the guest's registers are on the CPU.  A guest that computes must come to
 * the results of a twin that nobody samples.
 */
TEST_F_TIMEOUT(el, state, TIMEOUT)
{
	static u8 sampled[0x10000], alone[0x10000];
	struct guest *g = &self->g, twin = {};
	struct work work = { .g = g };
	struct kvm_reg_list *list;
	u64 *words, *twin_words, rounds;
	size_t used;

	/* Have a new guest work for longer, until enough samples are the guest's. */
	for (rounds = MIN_ROUNDS;; rounds *= 2) {
		words = build_worker(g, rounds);
		work.nr_guest = 0;
		vcpu_run_sampled_to_exit(g->vcpu, PMI_NMI, &attr, compare_work, &work);
		TEST_ASSERT_KVM_EXIT_REASON(g->vcpu, KVM_EXIT_MMIO);
		if (work.nr_guest >= NR_SAMPLES / 2)
			break;
		TEST_ASSERT(rounds < MAX_ROUNDS, "Only %u samples are the guest's", work.nr_guest);
		kvm_vm_free(g->vm);
		create_guest(g, VM_MODE_P40V48_4K, variant->user, variant->upper);
	}

	create_guest(&twin, VM_MODE_P40V48_4K, variant->user, variant->upper);
	twin_words = build_worker(&twin, rounds);
	vcpu_run(twin.vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(twin.vcpu, KVM_EXIT_MMIO);

	TEST_ASSERT(!memcmp(g->vcpu->run->mmio.data, twin.vcpu->run->mmio.data, 8),
		    "The results differ");
	TEST_ASSERT(!memcmp(words, twin_words, WORK_SIZE), "The arrays differ");
	list = vcpu_get_reg_list(g->vcpu);
	used = save_vcpu(g, list, sampled, sizeof(sampled));
	TEST_ASSERT(save_vcpu(&twin, list, alone, sizeof(alone)) == used &&
		    !memcmp(sampled, alone, used), "The vCPU's registers differ");
	free(list);
	kvm_vm_free(twin.vm);
}

struct exits {
	struct guest *g;
	unsigned int nr[2];
	unsigned int nr_guest;
};

static void compare_exit(const struct callchain_sample *s, void *arg)
{
	struct exits *exits = arg;
	struct guest *g = exits->g;
	u64 off = s->ip - ((u64)guest_exits | g->upper);
	unsigned int first, i;

	if (!callchain_sample_is_guest(s) || s->hit_kvm)
		return;

	TEST_ASSERT(off <= 16, "IP 0x%lx", s->ip);
	first = off == 4 || off == 8 ? 0 : BROKEN;
	TEST_ASSERT(s->nr == 2 + SMALL_FRAMES - first && s->ips[1] == s->ip,
		    "Instruction %lu: a chain of %lu entries", off / 4, s->nr);
	for (i = first; i < SMALL_FRAMES; i++)
		TEST_ASSERT(s->ips[2 + i - first] == g->ras[i],
			    "Instruction %lu: frame %u has 0x%lx, not 0x%lx", off / 4, i,
			    s->ips[2 + i - first], g->ras[i]);
	exits->nr[!!first]++;
	exits->nr_guest = min(exits->nr[0], exits->nr[1]) * 2;
}

/* A sample that hits KVM while it handles an exit must not get the chain of another exit. */
TEST_F_TIMEOUT(el, exits, TIMEOUT)
{
	const struct perf_event_attr a = { .sample_period = 50000 };
	struct guest *g = &self->g;
	struct exits exits = { .g = g };

	if (variant->user)
		SKIP(return, "EL0 can't make hypercalls");

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), (u64)guest_exits | g->upper);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[0]), -1ULL);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[19]), g->frames[0]);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[20]), g->frames[BROKEN]);
	vcpu_set_fp(g->vcpu, g->frames[BROKEN]);
	vcpu_run_until_guest_sampled(g->vcpu, PMI_IRQ, &a, 200, compare_exit, &exits,
				     &exits.nr_guest);

	/* A counter leaves out the host, so its PMIs hit the guest: each sample needs its chain. */
	exits = (struct exits) { .g = g };
	vcpu_run_until_guest_sampled(g->vcpu, PMI_NMI, &a, 200, compare_exit, &exits,
				     &exits.nr_guest);
}

static void compare_trap(const struct callchain_sample *s, void *arg)
{
	struct exits *exits = arg;
	struct guest *g = exits->g;
	u64 off = s->ip - ((u64)guest_traps | g->upper);
	bool at_trap = off == 4;

	if (!callchain_sample_is_guest(s) || s->hit_kvm)
		return;

	TEST_ASSERT(off <= 8 && s->nr == 2 + (at_trap ? SMALL_FRAMES : 0),
		    "Instruction %lu: a chain of %lu entries", off / 4, s->nr);
	TEST_ASSERT(!at_trap || !memcmp(&s->ips[2], g->ras, SMALL_FRAMES * sizeof(u64)),
		    "Instruction %lu: a chain of other frames", off / 4);
	exits->nr_guest += at_trap;
}

/* The walk starts from X29 as it was at the exit: to handle the exit may change X29. */
TEST_F_TIMEOUT(el, trapped, TIMEOUT)
{
	const struct perf_event_attr a = { .sample_period = 50000 };
	struct guest *g = &self->g;
	struct exits exits = { .g = g };

	if (variant->user)
		SKIP(return, "EL0 can't read the register that is trapped");

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), (u64)guest_traps | g->upper);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[19]), g->frames[0]);
	/* Until guest_traps() sets X29, X29 leads to no frame.  Nor does the emulated value. */
	vcpu_set_fp(g->vcpu, 1);
	vcpu_run_until_guest_sampled(g->vcpu, PMI_IRQ, &a, 200, compare_trap, &exits,
				     &exits.nr_guest);
}

static void set_policy(struct guest *g, u64 policy)
{
	vm_enable_cap(g->vm, KVM_CAP_GUEST_CALLCHAIN, policy);
}

/* If the administrator or the VMM forbids callchains, a sample has the IP only. */
TEST_F_TIMEOUT(el, control, TIMEOUT)
{
	struct guest *g = &self->g;

	if (!host_override(SYSCTL, 1))
		SKIP(return, "Can't write to " SYSCTL);

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	expect_frames(g, "if allowed", 0);
	compare(g);

	set_policy(g, KVM_GUEST_CALLCHAIN_ALLOW);
	expect_frames(g, "allowed", SMALL_FRAMES);
	compare(g);

	TEST_ASSERT(host_override(SYSCTL, 0), "Can't write to " SYSCTL);
	expect_frames(g, "never", 0);
	compare(g);

	TEST_ASSERT(host_override(SYSCTL, 2), "Can't write to " SYSCTL);
	expect_frames(g, "unless forbidden", SMALL_FRAMES);
	compare(g);

	set_policy(g, KVM_GUEST_CALLCHAIN_FORBID);
	expect_frames(g, "forbidden", 0);
	compare(g);
}

/* As read_only, with a dirty ring. */
FIXTURE(dirty_ring)
{
	struct guest g;
};

FIXTURE_SETUP(dirty_ring)
{
	SKIP_UNLESS_SAMPLED();
	SKIP_UNLESS_4_KIB_GUESTS();
	SKIP_UNLESS_4_KIB_HOST();
	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING_ACQ_REL))
		SKIP(return, "The host has no rings of dirty pages");
	self->g.dirty_ring = true;
	create_guest(&self->g, VM_MODE_P40V48_4K, false, true);
}

FIXTURE_TEARDOWN(dirty_ring)
{
	kvm_vm_free(self->g.vm);
}

TEST_F_TIMEOUT(dirty_ring, read_only, TIMEOUT)
{
	struct guest *g = &self->g;
	struct kvm_dirty_gfn *ring;

	build_stack_to_leave_alone(g);
	compare(g);
	vm_mem_region_set_flags(g->vm, 0, KVM_MEM_LOG_DIRTY_PAGES);
	ring = vcpu_map_dirty_ring(g->vcpu);

	compare_and_change_nothing(g);
	TEST_ASSERT(!READ_ONCE(ring[0].flags), "A walk has made page 0x%llx dirty",
		    ring[0].offset);
}

/* With pointer authentication, return addresses have signatures in bits that they don't need. */
FIXTURE(pauth)
{
	struct guest g;
};

FIXTURE_VARIANT(pauth)
{
	bool upper;
};

FIXTURE_VARIANT_ADD(pauth, ttbr0) { };
FIXTURE_VARIANT_ADD(pauth, ttbr1) { .upper = true };

FIXTURE_SETUP(pauth)
{
	SKIP_UNLESS_SAMPLED();
	SKIP_UNLESS_4_KIB_GUESTS();
	if (!kvm_has_cap(KVM_CAP_ARM_PTRAUTH_ADDRESS) || !kvm_has_cap(KVM_CAP_ARM_PTRAUTH_GENERIC))
		SKIP(return, "The host's guests have no pointer authentication");
	self->g.pauth = true;
	create_guest(&self->g, VM_MODE_P40V48_4K, false, variant->upper);
}

FIXTURE_TEARDOWN(pauth)
{
	kvm_vm_free(self->g.vm);
}

TEST_F_TIMEOUT(pauth, signatures, TIMEOUT)
{
	/* All bits above the addresses but bit 55, which selects the half. */
	const u64 bits = GENMASK_ULL(63, 48) & ~BIT_ULL(55);
	struct guest *g = &self->g;
	unsigned int i;

	build_stack(g, 16, 0x40, 0);
	for (i = 0; i < 16; i++)
		write_word(g, g->frames[i] + 8,
			   g->ras[i] ^ (((i + 1) * 0x1234567890abcdefULL) & bits));
	compare(g);
}

/* Return an event that counts this thread's calls of a kernel function, or -1. */
static int count_calls(const char *function)
{
	struct perf_event_attr a = {
		.type = pmu_type("kprobe"),
		.size = sizeof(a),
		.kprobe_func = (u64)function,
	};

	return a.type == (u32)-1 ? -1 : perf_event_open(&a, 0, -1);
}

static u64 read_count(int fd)
{
	u64 count;

	TEST_ASSERT_EQ(read(fd, &count, sizeof(count)), sizeof(count));
	return count;
}

#define BOUND_FRAMES	40
#define LEVELS		4

/*
 * The most translations that a walk can take, in any mode: each record lies on two pages, and no
 * page has parts of two records.  Check their number, and that of the descriptors that they read.
 */
TEST_F_TIMEOUT(el, bound, TIMEOUT)
{
	int walks = count_calls("kvm_arch_vcpu_stack_walk");
	int translations = count_calls("__kvm_translate_va");
	int descriptors = count_calls("kvm_peek_guest");
	struct guest *g = &self->g;
	unsigned int i;
	gva_t base, at;
	u64 expected;

	if (walks < 0 || translations < 0 || descriptors < 0)
		SKIP(return, "This user can't count calls of the kernel's functions");

	build_stack(g, 1, 0x10, 0);
	g->stack_size = BOUND_FRAMES * 0x2000;
	base = vm_alloc(g->vm, g->stack_size, STACK_GVA) | g->upper;
	if (variant->user)
		set_pte_bits(g, base, g->stack_size, 0, TEST_PTE_USER);

	expect_frames(g, "bound", 0);
	for (i = 0, at = base + 0xff8; i < BOUND_FRAMES; i++, at += 0x2000) {
		const u64 ra = (FAKE_TEXT + (i + 1) * 0x40) | g->upper;

		write_word(g, at, i + 1 < BOUND_FRAMES ? at + 0x2000 : 0);
		write_word(g, at + 8, ra);
		expect_entry(g, ra);
	}
	vcpu_set_fp(g->vcpu, base + 0xff8);
	set_sp(g, base);
	compare(g);

	expected = read_count(walks) * BOUND_FRAMES * 2;
	TEST_ASSERT_EQ(read_count(translations), expected);
	TEST_ASSERT_EQ(read_count(descriptors), expected * LEVELS);
	close(walks);
	close(translations);
	close(descriptors);
}

/* Changes that a thread makes to a guest's stack and page tables while the guest is sampled. */
enum move {
	MOVE_RECORD,	/* a record leads elsewhere */
	MOVE_RETURN,	/* a return address is zero, or one of another stack */
	MOVE_PAGE,	/* a page of the stack is gone, or is one of another stack */
	MOVE_TABLE,	/* a table of descriptors is gone, or is that of another stack */
	NR_MOVES,
};

struct mover {
	struct guest *g;
	u64 *words[NR_MOVES];
	u64 values[NR_MOVES][3];	/* the right one first */
	bool stop;
	unsigned int nr_whole;
	unsigned int nr_other;
	unsigned int nr_both;
};

static void wait_a_bit(void)
{
	unsigned int i;

	for (i = 0; i < 50; i++)
		cpu_relax();
}

/* Half of the time, all is as it should be. */
static void *move_memory(void *arg)
{
	struct mover *m = arg;
	unsigned int i, move;

	for (i = 0; !READ_ONCE(m->stop); i++) {
		move = i % NR_MOVES;
		WRITE_ONCE(*m->words[move], m->values[move][1 + i / NR_MOVES % 2]);
		wait_a_bit();
		WRITE_ONCE(*m->words[move], m->values[move][0]);
		wait_a_bit();
	}
	return NULL;
}

/* Other return addresses than those of struct guest have this bit. */
#define OTHER_RA	BIT_ULL(20)

/*
 * Each entry after the IP must be a return address that stood in memory.  There are no more of
 * these entries than there are records.
 */
static void check_moved(const struct callchain_sample *s, void *arg)
{
	const u64 text = FAKE_TEXT, end = FAKE_TEXT + (SMALL_FRAMES + 1) * 0x40;
	struct mover *m = arg;
	u64 i, ra;

	if (!callchain_sample_is_guest(s))
		return;
	TEST_ASSERT(s->nr >= 2 && s->nr <= 2 + 2 * SMALL_FRAMES &&
		    s->ips[0] == m->g->e.ips[0] && s->ips[1] == m->g->e.ip,
		    "A chain of %lu entries", s->nr);
	for (i = 2; i < s->nr; i++) {
		ra = (s->ips[i] ^ (s->ips[i] & OTHER_RA)) & ~m->g->upper;
		TEST_ASSERT(ra > text && ra < end && !(ra % 0x40) &&
			    (s->ips[i] & m->g->upper) == m->g->upper,
			    "Entry %lu, 0x%lx, was nowhere in memory", i, s->ips[i]);
	}
	if (s->nr == m->g->e.nr && !memcmp(s->ips, m->g->e.ips, s->nr * sizeof(s->ips[0])))
		m->nr_whole++;
	else
		m->nr_other++;
	m->nr_both = min(m->nr_whole, m->nr_other) * 2;
}

/* If a thread of the VMM moves stacks, chains may be wrong, but come from the guest's memory. */
TEST_F_TIMEOUT(el, moving, TIMEOUT)
{
	struct guest *g = &self->g;
	struct mover m = { .g = g };
	u64 other = OTHER_GVA | g->upper;
	unsigned int i, offset;
	pthread_t thread;
	u64 *pte;

	/* Both stacks have one record on each page, at the same offset. */
	build_stack(g, SMALL_FRAMES, 0x1000, 0);
	add_other_memory(g);
	offset = g->frames[0] & 0xfff;
	for (i = 0; i < SMALL_FRAMES; i++) {
		write_word(g, other + i * 0x1000 + offset, other + (i + 1) * 0x1000 + offset);
		write_word(g, other + i * 0x1000 + offset + 8, g->ras[i] | OTHER_RA);
	}
	virt_map(g->vm, TABLE_GVA, OTHER_GPA, OTHER_PAGES);
	set_pte_bits(g, TABLE_GVA, OTHER_PAGES * 0x1000, 0, variant->user ? TEST_PTE_USER : 0);

	m.words[MOVE_RECORD] = hva(g, g->frames[1]);
	m.values[MOVE_RECORD][0] = g->frames[2];
	m.values[MOVE_RECORD][1] = other + offset;
	m.values[MOVE_RECORD][2] = g->frames[0];
	m.words[MOVE_RETURN] = hva(g, g->frames[2] + 8);
	m.values[MOVE_RETURN][0] = g->ras[2];
	m.values[MOVE_RETURN][1] = g->ras[2] | OTHER_RA;
	m.values[MOVE_RETURN][2] = 0;
	pte = virt_get_pte_hva(g->vm, g->frames[3] & ~g->upper);
	m.words[MOVE_PAGE] = pte;
	m.values[MOVE_PAGE][0] = *pte;
	m.values[MOVE_PAGE][1] = *virt_get_pte_hva(g->vm, OTHER_GVA);
	pte = virt_get_pte_hva_at_level(g->vm, g->frames[0] & ~g->upper, 2);
	m.words[MOVE_TABLE] = pte;
	m.values[MOVE_TABLE][0] = *pte;
	m.values[MOVE_TABLE][1] = *virt_get_pte_hva_at_level(g->vm, TABLE_GVA, 2);
	/* For these two, the third value is zero: no page, and no table. */

	expect_frames(g, "moving", SMALL_FRAMES);
	pthread_create(&thread, NULL, move_memory, &m);
	vcpu_run_until_guest_sampled(g->vcpu, PMI_NMI, &attr, 100, check_moved, &m,
				     &m.nr_both);
	WRITE_ONCE(m.stop, true);
	pthread_join(thread, NULL);
	ksft_print_msg("%u whole chains, %u others\n", m.nr_whole, m.nr_other);

	/* The thread has restored everything before it stopped. */
	compare(g);
}

/* In protected mode, the host lacks a guest's memory or its registers: perf finds no callchain. */
FIXTURE(protected_host)
{
	struct kvm_vcpu vcpu;
	u32 *mem;
	int kvm_fd;
	int vm_fd;
};

FIXTURE_VARIANT(protected_host)
{
	u64 type;
};

FIXTURE_VARIANT_ADD(protected_host, vm) { };
FIXTURE_VARIANT_ADD(protected_host, protected_vm) { .type = KVM_VM_TYPE_ARM_PROTECTED };

/*
 * Create the VM without the library, which has no protected VMs, and which would access their
 * memory: the hypervisor takes that from the host.
 */
FIXTURE_SETUP(protected_host)
{
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = OTHER_GPA,
		.memory_size = 0x1000,
	};
	struct kvm_vcpu *vcpu = &self->vcpu;
	struct kvm_vcpu_init init;

	if (!is_protected_host())
		SKIP(return, "The host is not in protected mode");
	SKIP_UNLESS_4_KIB_HOST();

	self->kvm_fd = open_kvm_dev_path_or_exit();
	self->vm_fd = ioctl(self->kvm_fd, KVM_CREATE_VM, variant->type);
	TEST_ASSERT(self->vm_fd >= 0, "KVM_CREATE_VM: %s", strerror(errno));
	self->mem = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(self->mem != MAP_FAILED, "mmap(): %s", strerror(errno));
	/* A branch to itself. */
	self->mem[0] = 0x14000000;
	region.userspace_addr = (u64)self->mem;
	kvm_ioctl(self->vm_fd, KVM_SET_USER_MEMORY_REGION, &region);

	vcpu->fd = ioctl(self->vm_fd, KVM_CREATE_VCPU, 0);
	TEST_ASSERT(vcpu->fd >= 0, "KVM_CREATE_VCPU: %s", strerror(errno));
	vcpu->run = mmap(NULL, ioctl(self->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, NULL),
			 PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	TEST_ASSERT(vcpu->run != MAP_FAILED, "mmap(): %s", strerror(errno));
	kvm_ioctl(self->vm_fd, KVM_ARM_PREFERRED_TARGET, &init);
	init.features[0] |= BIT(KVM_ARM_VCPU_PSCI_0_2);
	vcpu_ioctl(vcpu, KVM_ARM_VCPU_INIT, &init);
	vcpu_set_reg(vcpu, ARM64_CORE_REG(regs.pc), OTHER_GPA);
}

FIXTURE_TEARDOWN(protected_host)
{
	close(self->vcpu.fd);
	close(self->vm_fd);
	close(self->kvm_fd);
}

static void expect_no_chain(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr_guest = arg;

	if (!callchain_sample_is_guest(s))
		return;
	TEST_ASSERT(!s->nr || s->nr == 2, "A chain of %lu entries", s->nr);
	++*nr_guest;
}

/*
 * For hardware counters, the library sets exclude_host, and then they don't count in these guests:
 * sample with the host's timer.
 */
TEST_F_TIMEOUT(protected_host, nothing, TIMEOUT)
{
	unsigned int nr_guest = 0;

	vcpu_run_until_guest_sampled(&self->vcpu, PMI_IRQ, NULL, NR_SAMPLES, expect_no_chain,
				     &nr_guest, &nr_guest);
}

TEST_HARNESS_MAIN
