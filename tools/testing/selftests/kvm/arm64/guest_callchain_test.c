// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests: sample guests whose stacks are known, and compare each chain as a whole.
 * The walk is deferred: it is made when the guest has exited.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest_modes.h"
#include "kvm_test_harness.h"
#include "kvm_util.h"
#include "perf_callchain.h"
#include "processor.h"
#include "test_util.h"

#define NR_SAMPLES	20
#define MAX_FRAMES	120
#define TIMEOUT		100

#define SYSCTL		"/proc/sys/kernel/perf_event_guest_callchain"

/*
 * An environment variable: the address, for /dev/mem, of a page of registers of a device that
 * nobody uses.
 */
#define DEVICE_VARIABLE	"KVM_SELFTEST_DEVICE"

/* Made-up return addresses begin here, where nothing is mapped. */
#define FAKE_TEXT	0x700000000000ULL

#define STACK_GVA	0x10000000ULL
#define OTHER_SLOT	10
#define OTHER_GPA	BIT_ULL(32)
#define OTHER_GVA	0x20000000ULL
#define OTHER_PAGES	16

/* An address whose last table is that of no other. */
#define TABLE_GVA	0x30000000ULL

#define TEST_PTE_USER	BIT_ULL(6)
#define TEST_PTE_RDONLY	BIT_ULL(7)

#define TCR_TBI0	BIT_ULL(37)

#define PSTATE_EL0	0x0ULL
#define PSTATE_EL0_32	0x10ULL
#define PSTATE_EL1H	0x3c5ULL
#define PSTATE_PAN_SET	BIT_ULL(22)

/* A Linux guest's struct pt_regs: words, by their index, and where the frame record is. */
enum {
	REGS_X29	= 29,
	REGS_SP		= 31,
	REGS_PC		= 32,
	REGS_PSTATE	= 33,
	REGS_RECORD	= 37,
	REGS_TYPE	= 39,
	REGS_WORDS	= 40,
	REGS_RECORD_6_12 = 38,
};

#define TYPE_FINAL	1
#define TYPE_REGS	2

/* One instruction that branches to itself: the guest's IP is known, and it reads no stack. */
void guest_loop(void);
asm(".pushsection .text; .balign 4; .global guest_loop; guest_loop: b guest_loop; .popsection");

/*
 * Exit by a hypercall that KVM doesn't know, by turns with the frame pointers in X19 and X20.  X29
 * is the one in X19 from the second instruction on to the third, and the one in X20 elsewhere.
 */
void guest_exits(void);
asm(".pushsection .text; .balign 64; .global guest_exits; guest_exits:\n"
    "mov x29, x19; hvc #0; mov x29, x20; hvc #0; b guest_exits; .popsection");

static const struct perf_event_attr attr = { .exclude_host = 1 };

/*
 * struct guest - a guest, and what is known of its stack
 * @mode:	page size, and width of addresses
 * @user:	it runs in EL0
 * @upper:	bits to add to an address for the upper half, TTBR1's; or zero
 * @frames:	addresses of the frame records, innermost first
 * @ras:	their return addresses
 * @e:		the chain that a walk must find
 */
struct guest {
	enum vm_guest_mode mode;
	bool user;
	bool pauth;
	u64 upper;
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	unsigned int nr_frames;
	u64 stack_size;
	gva_t frames[MAX_FRAMES + 1];
	u64 ras[MAX_FRAMES];
	struct callchain_expectation e;
};

static u64 get_sys(struct guest *g, u32 reg)
{
	return vcpu_get_reg(g->vcpu, KVM_ARM64_SYS_REG(reg));
}

static void set_sys(struct guest *g, u32 reg, u64 val)
{
	vcpu_set_reg(g->vcpu, KVM_ARM64_SYS_REG(reg), val);
}

/* Addresses in the upper half are mapped as in the lower one: both halves have the same tables. */
static void *hva(struct guest *g, gva_t gva)
{
	return addr_gva2hva(g->vm, gva & ~g->upper);
}

static void write_word(struct guest *g, gva_t gva, u64 word)
{
	*(u64 *)hva(g, gva) = word;
}

static void use_upper_half(struct guest *g)
{
	static const u64 tg1[] = { [12] = 2, [14] = 1, [16] = 3 };
	u64 tcr = get_sys(g, SYS_TCR_EL1);

	tcr &= ~TCR_EPD1_MASK;
	tcr |= (64ULL - g->vm->va_bits) << 16;
	/* Memory attributes and shareability are those of the lower half. */
	tcr |= (tcr & GENMASK_ULL(13, 8)) << 16;
	tcr |= tg1[g->vm->page_shift] << 30;
	set_sys(g, SYS_TCR_EL1, tcr);
	set_sys(g, SYS_TTBR1_EL1, get_sys(g, SYS_TTBR0_EL1));
	g->upper = GENMASK_ULL(63, g->vm->va_bits);
}

static void set_pte_bits(struct guest *g, gva_t gva, u64 size, u64 clear, u64 set)
{
	u64 off;

	for (off = 0; off < size; off += g->vm->page_size) {
		u64 *pte = virt_get_pte_hva(g->vm, (gva & ~g->upper) + off);

		*pte = (*pte & ~clear) | set;
	}
}

static void set_fp(struct guest *g, u64 fp)
{
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[29]), fp);
}

static void set_sp(struct guest *g, u64 sp)
{
	vcpu_set_reg(g->vcpu, g->user ? ARM64_CORE_REG(regs.sp) : ARM64_CORE_REG(sp_el1), sp);
}

/* Expect the IP, and the return addresses of the first frames. */
static void expect_frames(struct guest *g, const char *name, unsigned int nr)
{
	unsigned int i;

	g->e.name = name;
	g->e.cpumode = g->user ? PERF_RECORD_MISC_GUEST_USER : PERF_RECORD_MISC_GUEST_KERNEL;
	g->e.ip = (u64)guest_loop | g->upper;
	g->e.nr = 0;
	g->e.ips[g->e.nr++] = g->user ? PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL;
	g->e.ips[g->e.nr++] = g->e.ip;
	for (i = 0; i < nr; i++)
		g->e.ips[g->e.nr++] = g->ras[i];
}

static void expect_entry(struct guest *g, u64 ip)
{
	g->e.ips[g->e.nr++] = ip;
}

/*
 * Build a stack, and let the vCPU run on it.  A frame record is the caller's frame pointer, and
 * the return address above it.  In the outermost one, both are zero.
 */
static void build_stack(struct guest *g, unsigned int nr_frames, unsigned int stride,
			unsigned int offset)
{
	unsigned int i;
	gva_t base;
	u64 fp;

	g->nr_frames = nr_frames;
	g->stack_size = vm_page_align(g->vm, offset + (nr_frames + 4) * stride + 0x1000);
	base = vm_alloc(g->vm, g->stack_size, STACK_GVA) | g->upper;
	fp = base + 0x400 + offset;

	for (i = 0; i < nr_frames; i++, fp += stride) {
		g->frames[i] = fp;
		g->ras[i] = (FAKE_TEXT + (i + 1) * 0x40) | g->upper;
		write_word(g, fp, fp + stride);
		write_word(g, fp + 8, g->ras[i]);
	}
	g->frames[i] = fp;
	write_word(g, fp, 0);
	write_word(g, fp + 8, 0);

	if (g->user)
		set_pte_bits(g, base, g->stack_size, 0, TEST_PTE_USER);
	set_fp(g, g->frames[0]);
	set_sp(g, g->frames[0] - 0x20);
	expect_frames(g, "whole", nr_frames);
}

static void create_guest(struct guest *g, enum vm_guest_mode mode, bool user, bool upper)
{
	struct kvm_vcpu_init init;

	g->mode = mode;
	g->user = user;
	g->upper = 0;
	g->vm = __vm_create(VM_SHAPE(mode), 1, 0);
	kvm_get_default_vcpu_target(g->vm, &init);
	/* Walks refuse guests that have EL2. */
	init.features[0] &= ~BIT(KVM_ARM_VCPU_HAS_EL2);
	if (g->pauth)
		init.features[0] |= BIT(KVM_ARM_VCPU_PTRAUTH_ADDRESS) |
				    BIT(KVM_ARM_VCPU_PTRAUTH_GENERIC);
	g->vcpu = aarch64_vcpu_add(g->vm, 0, &init, guest_loop);
	kvm_arch_vm_finalize_vcpus(g->vm);

	if (upper)
		use_upper_half(g);
	if (user)
		set_pte_bits(g, (gva_t)guest_loop & ~(g->vm->page_size - 1), g->vm->page_size,
			     0, TEST_PTE_USER | TEST_PTE_RDONLY);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), (u64)guest_loop | g->upper);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pstate), user ? PSTATE_EL0 : PSTATE_EL1H);
}

static void compare(struct guest *g)
{
	vcpu_run_and_compare(g->vcpu, PMI_NMI_DEFERRED, &attr, NR_SAMPLES, &g->e);
}

/* Compare, and check that each walk ended for this reason. */
static void compare_with_end(struct guest *g, const char *end)
{
	u64 walks = vcpu_get_stat(g->vcpu, callchain_walks);
	u64 ends = vcpu_get_callchain_end_stat(g->vcpu, end);

	compare(g);
	walks = vcpu_get_stat(g->vcpu, callchain_walks) - walks;
	ends = vcpu_get_callchain_end_stat(g->vcpu, end) - ends;
	TEST_ASSERT(walks && ends == walks, "%s: %lu of %lu walks ended as '%s'", g->e.name,
		    ends, walks, end);
}

#define SKIP_UNLESS_SAMPLED()						\
do {									\
	const char *why_not;						\
									\
	if (!pmi_source_available(PMI_NMI_DEFERRED, &why_not))		\
		SKIP(return, "%s", why_not);				\
} while (0)

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

#define WHOLE_VARIANTS(_name, _mode)					\
FIXTURE_VARIANT_ADD(whole, _name##_el1_ttbr0)				\
	{ .mode = _mode };						\
FIXTURE_VARIANT_ADD(whole, _name##_el1_ttbr1)				\
	{ .mode = _mode, .upper = true };				\
FIXTURE_VARIANT_ADD(whole, _name##_el0_ttbr0)				\
	{ .mode = _mode, .user = true };				\
FIXTURE_VARIANT_ADD(whole, _name##_el0_ttbr1)				\
	{ .mode = _mode, .user = true, .upper = true }

WHOLE_VARIANTS(4k, VM_MODE_P40V48_4K);
WHOLE_VARIANTS(4k_lpa2, VM_MODE_P52V48_4K);
WHOLE_VARIANTS(16k, VM_MODE_P40V48_16K);
WHOLE_VARIANTS(16k_lpa2, VM_MODE_P52V48_16K);
WHOLE_VARIANTS(16k_3_levels, VM_MODE_P36V47_16K);
WHOLE_VARIANTS(64k, VM_MODE_P40V48_64K);
WHOLE_VARIANTS(64k_lpa, VM_MODE_P52V48_64K);

FIXTURE_SETUP(whole)
{
	SKIP_UNLESS_SAMPLED();
	if (!guest_modes[variant->mode].supported)
		SKIP(return, "The host has no guests of mode %s",
		     vm_guest_mode_string(variant->mode));
	create_guest(&self->g, variant->mode, variant->user, variant->upper);
}

FIXTURE_TEARDOWN(whole)
{
	kvm_vm_free(self->g.vm);
}

/* Some records lie on two pages: the stride is odd to the page's size. */
TEST_F_TIMEOUT(whole, chain, TIMEOUT)
{
	build_stack(&self->g, 100, 0x7f8, 0x3f8);
	compare_with_end(&self->g, "last");
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
	if (!guest_modes[VM_MODE_P40V48_4K].supported)
		SKIP(return, "The host has no guests with pages of 4 KiB");
	create_guest(&self->g, VM_MODE_P40V48_4K, variant->user, variant->upper);
}

FIXTURE_TEARDOWN(el)
{
	host_restore();
	kvm_vm_free(self->g.vm);
}

#define SMALL_FRAMES	8
#define BROKEN		4

/* Let the frame below the broken one lead elsewhere, and expect the frames up to there. */
static void compare_broken(struct guest *g, const char *name, u64 fp, const char *end)
{
	write_word(g, g->frames[BROKEN - 1], fp);
	expect_frames(g, name, BROKEN);
	compare_with_end(g, end);
	write_word(g, g->frames[BROKEN - 1], g->frames[BROKEN]);
}

static void compare_return_address(struct guest *g, const char *name, u64 ra, const char *end)
{
	write_word(g, g->frames[BROKEN] + 8, ra);
	expect_frames(g, name, BROKEN);
	compare_with_end(g, end);
	write_word(g, g->frames[BROKEN] + 8, g->ras[BROKEN]);
}

/* Each chain has the frames below the broken one, and no more. */
TEST_F_TIMEOUT(el, broken, TIMEOUT)
{
	struct guest *g = &self->g;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	compare_broken(g, "unaligned", g->frames[BROKEN] + 4, "unaligned");
	compare_broken(g, "to itself", g->frames[BROKEN - 1], "backwards");
	compare_broken(g, "to the innermost", g->frames[0], "backwards");
	compare_broken(g, "into itself", g->frames[BROKEN - 1] + 8, "backwards");
	compare_broken(g, "unmapped", 0x600000000000ULL | g->upper, "unmapped");
	compare_broken(g, "no return address", 0, "last");
	compare_broken(g, "not canonical", (BIT_ULL(52) | STACK_GVA) ^ g->upper, "noncanonical");
	compare_return_address(g, "zero", 0, "last");
	compare_return_address(g, "not canonical", BIT_ULL(52) ^ g->upper, "noncanonical");
	compare_return_address(g, "a marker", PERF_CONTEXT_GUEST_USER, "depth");
}

/* The frame pointer is zero, or leads below the stack pointer. */
TEST_F_TIMEOUT(el, no_frames, TIMEOUT)
{
	struct guest *g = &self->g;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	expect_frames(g, "no frame pointer", 0);
	set_fp(g, 0);
	compare_with_end(g, "last");

	set_fp(g, g->frames[0]);
	expect_frames(g, "whole again", SMALL_FRAMES);
	compare_with_end(g, "last");

	if (!variant->user)
		return;
	set_sp(g, g->frames[1]);
	expect_frames(g, "below the stack pointer", 0);
	compare_with_end(g, "backwards");
}

/* A kernel has stacks in any order.  A program has one. */
TEST_F_TIMEOUT(el, stacks, TIMEOUT)
{
	struct guest *g = &self->g;
	u64 low, high;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	/* Go from the fourth frame to a record below all others, and on to the fifth. */
	low = g->frames[0] - 0x100;
	high = low + 0x20;
	write_word(g, g->frames[BROKEN - 1], low);
	write_word(g, low, high);
	write_word(g, low + 8, FAKE_TEXT | g->upper);
	write_word(g, high, g->frames[BROKEN]);
	write_word(g, high + 8, (FAKE_TEXT + 8) | g->upper);

	expect_frames(g, "two stacks", BROKEN);
	if (variant->user) {
		compare_with_end(g, "backwards");
		return;
	}
	expect_entry(g, FAKE_TEXT | g->upper);
	expect_entry(g, (FAKE_TEXT + 8) | g->upper);
	memcpy(&g->e.ips[g->e.nr], &g->ras[BROKEN], (SMALL_FRAMES - BROKEN) * sizeof(u64));
	g->e.nr += SMALL_FRAMES - BROKEN;
	compare_with_end(g, "last");

	/* The second stack leads back to the first one. */
	write_word(g, high, g->frames[1]);
	g->e.nr -= SMALL_FRAMES - BROKEN;
	g->e.name = "a cycle of two stacks";
	compare_with_end(g, "backwards");
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
	compare_with_end(g, "last");

	set_pte_bits(g, page, 0x1000, TEST_PTE_RDONLY | TEST_PTE_USER,
		     variant->user ? 0 : TEST_PTE_USER);
	if (variant->user) {
		expect_frames(g, "the kernel's page", BROKEN);
		compare_with_end(g, "unmapped");
		return;
	}

	expect_frames(g, "user mode's page", SMALL_FRAMES);
	compare_with_end(g, "last");

	pstate = vcpu_get_reg(g->vcpu, ARM64_CORE_REG(regs.pstate));
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pstate), pstate | PSTATE_PAN_SET);
	expect_frames(g, "user mode's page, with PAN", BROKEN);
	compare_with_end(g, "unmapped");
}

/* If the CPU sets Access flags, a walk passes them, but does not set them. */
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
	compare_with_end(g, "unmapped");

	if (!SYS_FIELD_GET(ID_AA64MMFR1_EL1, HAFDBS, get_sys(g, SYS_ID_AA64MMFR1_EL1)))
		SKIP(return, "This CPU does not set Access flags");

	set_sys(g, SYS_TCR_EL1, get_sys(g, SYS_TCR_EL1) | TCR_HA);
	expect_frames(g, "access by hardware", SMALL_FRAMES);
	compare_with_end(g, "last");
	TEST_ASSERT(*pte == old, "The walk has changed a descriptor from 0x%lx to 0x%lx", old,
		    *pte);
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
	compare_with_end(g, "last");

	set_sys(g, SYS_TCR_EL1, tcr & ~tbi);
	expect_frames(g, "not to be tagged", BROKEN);
	compare_with_end(g, "noncanonical");
}

static bool is_in_memory(void *page)
{
	unsigned char in_core;

	TEST_ASSERT(!mincore(page, getpagesize(), &in_core), "mincore(): %s", strerror(errno));
	return in_core & 1;
}

/* Memory that the VMM has not mapped ends a walk, and stays what it is. */
TEST_F_TIMEOUT(el, holes, TIMEOUT)
{
	struct guest *g = &self->g;
	void *page, *table;
	u64 *pmd;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	vm_userspace_mem_region_add(g->vm, VM_MEM_SRC_ANONYMOUS, OTHER_GPA, OTHER_SLOT,
				    OTHER_PAGES, 0);
	virt_map(g->vm, OTHER_GVA, OTHER_GPA, OTHER_PAGES);
	set_pte_bits(g, OTHER_GVA, OTHER_PAGES * 0x1000, 0, variant->user ? TEST_PTE_USER : 0);
	page = addr_gpa2hva(g->vm, OTHER_GPA + 0x1000);

	compare_broken(g, "hole", (OTHER_GVA + 0x1000) | g->upper, "no_memory");
	TEST_ASSERT(!is_in_memory(page), "The walk has filled a hole");

	/* A page table may lie in a hole, too. */
	table = addr_gpa2hva(g->vm, OTHER_GPA + 0x2000);
	virt_pg_map(g->vm, TABLE_GVA, OTHER_GPA);
	pmd = virt_get_pte_hva_at_level(g->vm, TABLE_GVA, 2);
	*pmd = (*pmd & ~GENMASK_ULL(47, 12)) | (OTHER_GPA + 0x2000);
	compare_broken(g, "hole for a table", TABLE_GVA | g->upper, "unmapped");
	TEST_ASSERT(!is_in_memory(table), "The walk has filled a hole for a table");

	/* A page that is there has no return address. */
	*(u64 *)page = 0;
	compare_broken(g, "page", (OTHER_GVA + 0x1000) | g->upper, "last");

	vm_mem_region_delete(g->vm, OTHER_SLOT);
	compare_broken(g, "no memslot", (OTHER_GVA + 0x1000) | g->upper, "no_memory");
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
	compare_broken(g, "device", OTHER_GVA | g->upper, "no_memory");

	vm_set_user_memory_region(g->vm, OTHER_SLOT, 0, OTHER_GPA, 0, mem);
	munmap(mem, 0x1000);
	close(fd);
}

/* Return X0 to X30, SP_EL0, PC, or PSTATE.  Their IDs count words of 32 bits. */
static u64 get_core_reg(struct guest *g, unsigned int i)
{
	return vcpu_get_reg(g->vcpu, ARM64_CORE_REG(regs.regs[0]) + 2 * i);
}

/* A walk changes neither memory nor registers, and logs no page as dirty. */
TEST_F_TIMEOUT(el, read_only, TIMEOUT)
{
	struct guest *g = &self->g;
	struct userspace_mem_region *region = memslot2region(g->vm, 0);
	const u64 size = region->region.memory_size;
	unsigned long *dirty = calloc(1, size / 0x1000 / 8 + 8);
	u64 i, regs[REGS_PSTATE + 1];
	void *copy = malloc(size);

	build_stack(g, 100, 0x7f8, 0x3f8);
	compare(g);

	vm_mem_region_set_flags(g->vm, 0, KVM_MEM_LOG_DIRTY_PAGES);
	kvm_vm_get_dirty_log(g->vm, 0, dirty);
	memcpy(copy, region->host_mem, size);
	for (i = 0; i < ARRAY_SIZE(regs); i++)
		regs[i] = get_core_reg(g, i);

	compare(g);

	TEST_ASSERT(!memcmp(copy, region->host_mem, size), "The guest's memory has changed");
	kvm_vm_get_dirty_log(g->vm, 0, dirty);
	for (i = 0; i < size / 0x1000; i++)
		TEST_ASSERT(!test_bit(i, dirty), "Page %lu is dirty", i);
	for (i = 0; i < ARRAY_SIZE(regs); i++)
		TEST_ASSERT_EQ(get_core_reg(g, i), regs[i]);
	free(copy);
	free(dirty);
}

/* The chain is as long as the event allows. */
TEST_F_TIMEOUT(el, depth, TIMEOUT)
{
	struct perf_event_attr a = attr;
	struct guest *g = &self->g;
	unsigned int max;

	build_stack(g, 100, 0x20, 0);
	for (max = 1; max < 100; max += 24) {
		a.sample_max_stack = max;
		expect_frames(g, "depth", max - 1);
		vcpu_run_and_compare(g->vcpu, PMI_NMI_DEFERRED, &a, NR_SAMPLES, &g->e);
	}
}

/* A walk in the PMI would not be sound: it has the IP only. */
TEST_F_TIMEOUT(el, immediate, TIMEOUT)
{
	struct guest *g = &self->g;

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	expect_frames(g, "immediate", 0);
	vcpu_run_and_compare(g->vcpu, PMI_NMI, &attr, NR_SAMPLES, &g->e);
}

/* Samples of the host's timer hit KVM, too.  Those have either no chain, or the right one. */
static void compare_or_empty(const struct callchain_sample *s, void *arg)
{
	struct callchain_comparison *c = arg;

	if (!callchain_sample_is_guest(s) || !s->nr)
		return;
	c->nr_guest += callchain_sample_compare(s, c->expected);
}

TEST_F_TIMEOUT(el, cpu_clock, TIMEOUT)
{
	struct guest *g = &self->g;
	struct callchain_comparison c = { .expected = &g->e };

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	vcpu_run_until_guest_sampled(g->vcpu, PMI_IRQ_DEFERRED, NULL, NR_SAMPLES,
				     compare_or_empty, &c, &c.nr_guest);
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
	unsigned int first;

	if (!callchain_sample_is_guest(s) || !s->nr)
		return;

	TEST_ASSERT(off <= 16, "IP 0x%lx", s->ip);
	first = off == 4 || off == 8 ? 0 : BROKEN;
	TEST_ASSERT(s->nr == 2 + SMALL_FRAMES - first && s->ips[2] == g->ras[first],
		    "Instruction %lu: a chain of %lu entries that begins with 0x%lx, not 0x%lx",
		    off / 4, s->nr, s->ips[2], g->ras[first]);
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
	set_fp(g, g->frames[BROKEN]);
	vcpu_run_until_guest_sampled(g->vcpu, PMI_IRQ_DEFERRED, &a, 200, compare_exit, &exits,
				     &exits.nr_guest);
}

/* The administrator, and the VMM, may forbid it. */
static void expect_nothing(struct guest *g, const char *name)
{
	expect_frames(g, name, 0);
	g->e.nr = 0;
}

static void set_policy(struct guest *g, u64 policy)
{
	vm_enable_cap(g->vm, KVM_CAP_GUEST_CALLCHAIN, policy);
}

TEST_F_TIMEOUT(el, control, TIMEOUT)
{
	struct guest *g = &self->g;

	if (!host_override(SYSCTL, 1))
		SKIP(return, "Can't write to " SYSCTL);

	build_stack(g, SMALL_FRAMES, 0x40, 0);
	expect_nothing(g, "if allowed");
	compare(g);

	set_policy(g, KVM_GUEST_CALLCHAIN_ALLOW);
	expect_frames(g, "allowed", SMALL_FRAMES);
	compare(g);

	TEST_ASSERT(host_override(SYSCTL, 0), "Can't write to " SYSCTL);
	expect_nothing(g, "never");
	compare(g);

	TEST_ASSERT(host_override(SYSCTL, 2), "Can't write to " SYSCTL);
	expect_frames(g, "unless forbidden", SMALL_FRAMES);
	compare(g);

	set_policy(g, KVM_GUEST_CALLCHAIN_FORBID);
	expect_nothing(g, "forbidden");
	compare(g);
}

/* With pointer authentication, return addresses have signatures above the guest's addresses. */
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
	compare_with_end(g, "last");
}

/* The registers that a Linux guest saves when code is interrupted. */
FIXTURE(linux_guest)
{
	struct guest g;
	gva_t regs;
	gva_t user_stack;
};

FIXTURE_VARIANT(linux_guest)
{
	unsigned int record;
};

FIXTURE_VARIANT_ADD(linux_guest, linux_6_13) { .record = REGS_RECORD };
FIXTURE_VARIANT_ADD(linux_guest, linux_6_12) { .record = REGS_RECORD_6_12 };

#define USER_IP		0x400100ULL
#define USER_RA		0x400200ULL
#define USER_OFF	0x800

/* The kernel's stack has its frames, then user mode's registers. */
FIXTURE_SETUP(linux_guest)
{
	struct guest *g = &self->g;

	SKIP_UNLESS_SAMPLED();
	create_guest(g, VM_MODE_P40V48_4K, false, true);
	build_stack(g, SMALL_FRAMES, 0x40, 0);
	self->regs = g->frames[SMALL_FRAMES] + 0x10;
	self->user_stack = vm_alloc(g->vm, 0x1000, OTHER_GVA);
	set_pte_bits(g, self->user_stack, 0x1000, 0, TEST_PTE_USER);
	write_word(g, self->user_stack + USER_OFF, 0);
	write_word(g, self->user_stack + USER_OFF + 8, USER_RA);

	write_word(g, g->frames[SMALL_FRAMES - 1], self->regs + 8 * variant->record);
	write_word(g, self->regs + 8 * REGS_X29, self->user_stack + USER_OFF);
	write_word(g, self->regs + 8 * REGS_SP, self->user_stack + USER_OFF - 0x40);
	write_word(g, self->regs + 8 * REGS_PC, USER_IP);
	write_word(g, self->regs + 8 * REGS_PSTATE, PSTATE_EL0);
	if (variant->record == REGS_RECORD)
		write_word(g, self->regs + 8 * REGS_TYPE, TYPE_FINAL);
	expect_frames(g, "kernel", SMALL_FRAMES);
}

FIXTURE_TEARDOWN(linux_guest)
{
	kvm_vm_free(self->g.vm);
}

TEST_F_TIMEOUT(linux_guest, user, TIMEOUT)
{
	struct guest *g = &self->g;

	expect_entry(g, PERF_CONTEXT_GUEST_USER);
	expect_entry(g, USER_IP);
	expect_entry(g, USER_RA);
	compare_with_end(g, "last");
}

/* User mode's rights apply to its stack. */
TEST_F_TIMEOUT(linux_guest, user_rights, TIMEOUT)
{
	struct guest *g = &self->g;

	set_pte_bits(g, self->user_stack, 0x1000, TEST_PTE_USER, 0);
	expect_entry(g, PERF_CONTEXT_GUEST_USER);
	expect_entry(g, USER_IP);
	compare_with_end(g, "unmapped");
}

TEST_F_TIMEOUT(linux_guest, user_32_bit, TIMEOUT)
{
	struct guest *g = &self->g;

	write_word(g, self->regs + 8 * REGS_PSTATE, PSTATE_EL0_32);
	expect_entry(g, PERF_CONTEXT_GUEST_USER);
	expect_entry(g, USER_IP);
	compare_with_end(g, "last");
}

/* At the kernel's entry, X29 is user mode's, and nothing is on the kernel's stack. */
TEST_F_TIMEOUT(linux_guest, entry, TIMEOUT)
{
	struct guest *g = &self->g;

	set_fp(g, self->user_stack + USER_OFF);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(elr_el1), USER_IP);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(spsr[KVM_SPSR_EL1]), PSTATE_EL0);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.sp), self->user_stack + USER_OFF);
	expect_frames(g, "entry", 0);
	expect_entry(g, PERF_CONTEXT_GUEST_USER);
	expect_entry(g, USER_IP);
	expect_entry(g, USER_RA);
	compare_with_end(g, "last");

	/* The kernel keeps a pointer of its own in SP_EL0. */
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.sp), g->frames[0]);
	compare_with_end(g, "last");

	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(spsr[KVM_SPSR_EL1]), PSTATE_EL1H);
	expect_frames(g, "not from user mode", 0);
	compare_with_end(g, "noncanonical");
}

/* What is no register of user mode is not part of the chain. */
TEST_F_TIMEOUT(linux_guest, implausible, TIMEOUT)
{
	struct guest *g = &self->g;

	write_word(g, self->regs + 8 * REGS_PC, 0);
	g->e.name = "never in user mode";
	compare_with_end(g, "last");

	write_word(g, self->regs + 8 * REGS_PC, USER_IP | g->upper);
	g->e.name = "the upper half";
	compare_with_end(g, "last");

	write_word(g, self->regs + 8 * REGS_PC, USER_IP);
	write_word(g, self->regs + 8 * REGS_PSTATE, PSTATE_EL1H);
	g->e.name = "not user mode";
	compare_with_end(g, "last");

	write_word(g, self->regs + 8 * REGS_PSTATE, BIT_ULL(40));
	g->e.name = "no such flag";
	compare_with_end(g, "last");
}

/* The kernel was interrupted: go on with its frames behind the registers. */
TEST_F_TIMEOUT(linux_guest, interrupted_kernel, TIMEOUT)
{
	const u64 ip = 0x1000ULL | self->g.upper, ra = 0x2000ULL | self->g.upper;
	u64 frame = self->regs + 8 * REGS_WORDS + 0x20;
	struct guest *g = &self->g;

	if (variant->record != REGS_RECORD)
		SKIP(return, "Its records are as those of calls");

	write_word(g, self->regs + 8 * REGS_TYPE, TYPE_REGS);
	write_word(g, self->regs + 8 * REGS_X29, frame);
	write_word(g, self->regs + 8 * REGS_SP, self->regs + 8 * REGS_WORDS);
	write_word(g, self->regs + 8 * REGS_PC, ip);
	write_word(g, self->regs + 8 * REGS_PSTATE, PSTATE_EL1H);
	write_word(g, frame, 0);
	write_word(g, frame + 8, ra);
	expect_entry(g, ip);
	expect_entry(g, ra);
	compare_with_end(g, "last");

	write_word(g, self->regs + 8 * REGS_PSTATE, PSTATE_EL0);
	expect_frames(g, "no kernel was interrupted", SMALL_FRAMES);
	compare_with_end(g, "unaligned");

	write_word(g, self->regs + 8 * REGS_TYPE, 3);
	expect_frames(g, "no such type", SMALL_FRAMES);
	compare_with_end(g, "last");
}

TEST_HARNESS_MAIN
