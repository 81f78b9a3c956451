// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests whose stacks, page tables and memory are not as they
 * should be: each case must yield exactly the frames before the trouble, and
 * end for exactly one reason.
 */
#include <sys/mman.h>

#include "guest_stack.h"
#include "kvm_test_harness.h"
#include "kvm_util.h"
#include "perf_callchain.h"
#include "processor.h"
#include "test_util.h"

#define NR_SAMPLES	20
#define NR_FRAMES	16

/* The frame that is tampered with; frames are as far apart as pages. */
#define BAD		5

/* An address that shares no page table below the root with the guest's code. */
#define STACK_GVA	(1ULL << 46)
#define STACK_GVA_LA57	(1ULL << 51)

/* A physical address at which the tests have no memslot. */
#define NO_MEMSLOT_GPA	(1ULL << 34)

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
	const char *end;
	bool user;
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

static void next_is_page_table(struct hostile_guest *guest, u64 unused)
{
	gva_t gva = vm_unused_gva_gap(guest->vm, PAGE_SIZE, bad_frame(guest));
	gpa_t table = PTE_GET_PA(*bad_pte(guest, PG_LEVEL_2M));

	/* The half of the table that is unused: a frame without return address. */
	virt_pg_map(guest->vm, gva, table);
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
	TEST_ASSERT(guest->vm->pa_bits < 52, "No address bit is reserved");
	*bad_pte(guest, level) |= BIT_ULL(51);
}

static void set_page_size(struct hostile_guest *guest, u64 level)
{
	*bad_pte(guest, level) |= PTE_HUGE_MASK(&guest->vm->mmu);
}

static void point_to_no_memslot(struct hostile_guest *guest, u64 level)
{
	u64 *pte = bad_pte(guest, level);

	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | NO_MEMSLOT_GPA;
}

static void point_to_itself(struct hostile_guest *guest, u64 level)
{
	u64 *pte = bad_pte(guest, level);
	gpa_t self = addr_hva2gpa(guest->vm, pte) & PAGE_MASK;

	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | self;
}

/* Tamper with what the sampled mode may read. */

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

static const struct hostile_case stack_cases[] = {
	{ "untouched",		NULL, 0, NR_FRAMES, "last" },
	{ "points to itself",	next_is_frame, BAD, BAD + 1, "backwards" },
	{ "points backwards",	next_is_frame, BAD - 1, BAD + 1, "backwards" },
	{ "long cycle",		next_is_frame, 0, BAD + 1, "backwards" },
	{ "skips frames",	next_is_frame, NR_FRAMES, BAD + 1, "last" },
	{ "misaligned by 2",	next_is_off_by, 2, BAD + 1, "unaligned" },
	{ "misaligned by 4",	next_is_off_by, 4, BAD + 1, "unaligned" },
	{ "overlaps a frame",	next_is_off_by, -(u64)PAGE_SIZE + 8, BAD + 1, "backwards" },
	{ "zero",		next_is, 0, BAD + 1, "last" },
	{ "first page",		next_is, 8, BAD + 1, "backwards" },
	{ "non-canonical",	next_is, 1ULL << 63, BAD + 1, "noncanonical" },
	{ "not mapped",		next_is_off_by, 1ULL << 40, BAD + 1, "unmapped" },
	{ "top of memory",	next_is, -16ULL, BAD + 1, "backwards" },
	{ "last word of memory", next_is, -8ULL, BAD + 1, "backwards" },
	{ "near the top of memory", next_is, -32ULL, BAD + 1, "unmapped" },
	{ "no return address",	return_address_is, 0, BAD, "last" },
	{ "return to nowhere",	return_address_is, 1ULL << 62, BAD, "noncanonical" },
	{ "in a page table",	next_is_page_table, 0, BAD + 1, "last" },
};

static const struct hostile_case page_table_cases[] = {
	{ "page not present",		clear_present, 1, BAD, "unmapped" },
	{ "level 2 not present",	clear_present, 2, 0, "unmapped" },
	{ "level 3 not present",	clear_present, 3, 0, "unmapped" },
	{ "level 4 not present",	clear_present, 4, 0, "unmapped" },
	{ "page has a reserved bit",	set_reserved, 1, BAD, "unmapped" },
	{ "level 2 has a reserved bit",	set_reserved, 2, 0, "unmapped" },
	{ "level 3 has a reserved bit",	set_reserved, 3, 0, "unmapped" },
	{ "level 4 has a reserved bit",	set_reserved, 4, 0, "unmapped" },
	{ "level 4 is a page",		set_page_size, 4, 0, "unmapped" },
	{ "page outside of memslots",	point_to_no_memslot, 1, BAD, "no_memory" },
	{ "level 1 outside of memslots", point_to_no_memslot, 2, 0, "unmapped" },
	{ "level 2 outside of memslots", point_to_no_memslot, 3, 0, "unmapped" },
	{ "level 3 outside of memslots", point_to_no_memslot, 4, 0, "unmapped" },
	{ "level 4 points to itself",	point_to_itself, 4, 0, "unmapped" },
	{ "level 3 points to itself",	point_to_itself, 3, 0, "unmapped" },
	{ "level 2 points to itself",	point_to_itself, 2, 0, "unmapped" },
};

static const struct hostile_case privilege_cases[] = {
	{ "user mode reads a user stack", NULL, 0, NR_FRAMES, "last", true },
	{ "user mode can't read a kernel page", make_kernel_only, 0, BAD, "unmapped", true },
	{ "SMAP",			user_page_under_smap, 0, BAD, "unmapped" },
	{ "SMAP with AC",		user_page_under_smap, X86_EFLAGS_AC, NR_FRAMES, "last" },
};

static const struct hostile_case vmm_cases[] = {
	{ "page not in memory",		drop_page, MADV_DONTNEED, BAD, "no_memory" },
	{ "page not accessible",	protect_page, PROT_NONE, BAD, "no_memory" },
	{ "page read-only",		protect_page, PROT_READ, NR_FRAMES, "last" },
	{ "page unmapped",		unmap_page, 0, BAD, "no_memory" },
};

FIXTURE(hostile)
{
};

FIXTURE_VARIANT(hostile)
{
	enum pmi_source source;
};

FIXTURE_VARIANT_ADD(hostile, irq)
{
	.source = PMI_IRQ,
};

FIXTURE_VARIANT_ADD(hostile, nmi)
{
	.source = PMI_NMI,
};

FIXTURE_SETUP(hostile)
{
	const char *why_not;

	if (!pmi_source_available(variant->source, &why_not))
		SKIP(return, "%s", why_not);
}

FIXTURE_TEARDOWN(hostile)
{
}

static u64 get_end_stat(struct kvm_vcpu *vcpu, const char *end)
{
	char name[64];
	u64 value;

	snprintf(name, sizeof(name), "callchain_end_%s", end);
	kvm_get_stat(&vcpu->stats, name, &value, 1);
	return value;
}

static void run_case(const struct hostile_case *c, enum pmi_source source)
{
	const struct perf_event_attr attr = {};
	struct callchain_expectation e;
	struct hostile_guest guest;
	struct guest_stack_layout layout = {
		.nr_frames = NR_FRAMES,
		.stride = PAGE_SIZE,
		.offset = 0x7f0,
	};
	unsigned int nr_guest;
	u64 walks, ends, frames;

	guest.vm = vm_create_with_one_vcpu(&guest.vcpu, guest_loop);
	layout.min_gva = guest.vm->mmu.pgtable_levels == 5 ? STACK_GVA_LA57 : STACK_GVA;
	guest_stack_build_and_use(guest.vcpu, &guest.stack, &layout, c->user);
	if (c->user) {
		vm_set_user_accessible(guest.vm, (gva_t)guest_loop & PAGE_MASK, 1);
		vcpu_enter_user_mode(guest.vcpu);
	}

	expect_guest_stack(&e, c->name, c->user, &guest.stack, 1 + c->nr_frames);
	if (c->tamper)
		c->tamper(&guest, c->arg);

	walks = vcpu_get_stat(guest.vcpu, callchain_walks);
	frames = vcpu_get_stat(guest.vcpu, callchain_frames);
	ends = get_end_stat(guest.vcpu, c->end);
	nr_guest = vcpu_run_and_compare(guest.vcpu, source, &attr, NR_SAMPLES, &e);
	walks = vcpu_get_stat(guest.vcpu, callchain_walks) - walks;
	frames = vcpu_get_stat(guest.vcpu, callchain_frames) - frames;
	ends = get_end_stat(guest.vcpu, c->end) - ends;

	TEST_ASSERT(walks == nr_guest, "%s: KVM counted %lu walks, perf %u guest samples",
		    c->name, walks, nr_guest);
	TEST_ASSERT(ends == walks, "%s: only %lu of %lu walks ended by \"%s\"", c->name,
		    ends, walks, c->end);
	TEST_ASSERT(frames == walks * (1 + c->nr_frames), "%s: KVM counted %lu frames in %lu walks",
		    c->name, frames, walks);

	kvm_vm_free(guest.vm);
}

#define RUN_CASES(_cases)						\
do {									\
	unsigned int i;							\
									\
	for (i = 0; i < ARRAY_SIZE(_cases); i++) {			\
		TH_LOG("%s", _cases[i].name);				\
		run_case(&_cases[i], variant->source);			\
	}								\
} while (0)

TEST_F(hostile, stacks)
{
	RUN_CASES(stack_cases);
}

TEST_F(hostile, page_tables)
{
	RUN_CASES(page_table_cases);
}

TEST_F(hostile, privileges)
{
	RUN_CASES(privilege_cases);
}

TEST_F(hostile, vmm)
{
	RUN_CASES(vmm_cases);
}

TEST_HARNESS_MAIN
