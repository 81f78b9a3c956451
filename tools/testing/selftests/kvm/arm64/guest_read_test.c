// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads of an arm64 guest's registers and memory for the samples of an event, see struct
 * perf_guest_read.  Each record is compared, whole, with what the guest has.  x86's test has more
 * cases of what doesn't depend on the architecture.
 */
#include <asm/perf_regs.h>

#include "callchain_guest.h"
#include "callchain_harness.h"

#define SYSCTL		"/proc/sys/kernel/perf_event_guest_callchain"

#define ALLOW		KVM_GUEST_CALLCHAIN_ALLOW
#define ALLOW_READ	(KVM_GUEST_CALLCHAIN_ALLOW | KVM_GUEST_CALLCHAIN_ALLOW_READ)

#define IN_KERNEL	PERF_GUEST_READ_IN_KERNEL
#define IN_USER		PERF_GUEST_READ_IN_USER
#define AS_USER		PERF_GUEST_READ_AS_USER
#define IN_BOTH		(IN_KERNEL | IN_USER)

/* A bit of an ASID, which only TTBR0_EL1 has in these guests. */
#define TTBR_ASID	BIT_ULL(48)

/* As the address of a per-CPU symbol in the image of a guest's kernel. */
#define KERNEL_SYMBOL	0xffff8000822f3a40ULL

/* What each record must have. */
struct expectation {
	struct guest *g;
	struct perf_guest_reads reads;
	u64 addr[PERF_GUEST_READ_MAX];	/* the last address; zero if it can't be found */
	u64 found[PERF_GUEST_READ_MAX];	/* how many bytes can be read there */
	bool none;			/* there is no record */
	u64 head[3 + PERF_REG_ARM64_MAX + 1]; /* what comes before the reads */
	unsigned int nr_head;
	unsigned int nr_guest;		/* how many samples of the guest were compared */
};

static void compare_record(const struct callchain_sample *s, void *arg)
{
	struct expectation *e = arg;
	const char *name = e->g->e.name;
	const u64 *pos = s->read;
	unsigned int i;

	e->nr_guest += callchain_sample_compare(s, &e->g->e);
	if (!callchain_sample_is_guest(s) || s->hit_kvm)
		return;

	TEST_ASSERT(e->none == !pos, "%s: there is %s record", name, pos ? "a" : "no");
	if (!pos)
		return;

	for (i = 0; i < e->nr_head; i++, pos++)
		TEST_ASSERT(*pos == e->head[i], "%s: word %u is 0x%lx, not 0x%lx", name, i, *pos,
			    e->head[i]);
	for (i = 0; i < e->reads.nr; i++) {
		const u64 addr = *pos++, size = *pos++, *data = pos;

		TEST_ASSERT(addr == e->addr[i] && size == (addr ? e->reads.read[i].size : 0),
			    "%s: read %u has %lu bytes at 0x%lx", name, i, size, addr);
		if (!size)
			continue;
		pos += size / sizeof(*pos);
		TEST_ASSERT(*pos == e->found[i], "%s: read %u found %lu bytes at 0x%lx, not %lu",
			    name, i, *pos, addr, e->found[i]);
		TEST_ASSERT(!*pos || !memcmp(data, hva(e->g, addr), *pos),
			    "%s: read %u has other bytes than the guest", name, i);
		pos++;
	}
	TEST_ASSERT((void *)pos - (void *)s->read == s->read_size, "%s: a record of %lu bytes",
		    name, s->read_size);
}

/* X0 to X30, SP_EL0 and PC have the same order as perf's registers. */
static u64 reg_id(const struct guest *g, unsigned int reg)
{
	return reg == PERF_REG_ARM64_SP && !g->user ? ARM64_CORE_REG(sp_el1) :
						      ARM64_CORE_REG(regs.regs[0]) + 2 * reg;
}

static void run_and_compare(struct expectation *e, const char *name)
{
	unsigned int i, nr = 0;

	e->g->e.name = name;
	e->head[nr++] = PERF_SAMPLE_REGS_ABI_64;
	e->head[nr++] = get_sys(e->g, SYS_TTBR0_EL1);
	e->head[nr++] = e->reads.regs;
	for (i = 0; i < PERF_REG_ARM64_MAX; i++) {
		if (e->reads.regs & BIT_ULL(i))
			e->head[nr++] = vcpu_get_reg(e->g->vcpu, reg_id(e->g, i));
	}
	e->head[nr++] = e->reads.nr;
	e->nr_head = nr;
	e->nr_guest = 0;
	vcpu_run_until_guest_read(e->g->vcpu, PMI_NMI, &e->reads, NR_SAMPLES, compare_record, e,
				  &e->nr_guest);
}

/* Add a read, and what it must find. */
static void add_read(struct expectation *e, struct perf_guest_read read, u64 addr, u64 found)
{
	e->reads.read[e->reads.nr] = read;
	e->addr[e->reads.nr] = addr;
	e->found[e->reads.nr++] = found;
}

static struct perf_guest_read read_at(u64 address, u32 size, u16 flags)
{
	return (struct perf_guest_read) {
		.base = PERF_GUEST_READ_ADDRESS, .address = address, .size = size, .flags = flags,
	};
}

/* Let no two words be the same, but leave alone those that aren't zero. */
static void fill(struct guest *g, gva_t gva, u64 size)
{
	u64 *words = hva(g, gva), i;

	for (i = 0; i < size / sizeof(*words); i++)
		words[i] = words[i] ?: (gva + 8 * i) * 0x9e3779b97f4a7c15ULL;
}

/* User mode may read the page at @data, and only the kernel the next one, which is the last. */
FIXTURE(read)
{
	struct guest g;
	struct expectation e;
	gva_t data, kernel_page;
};

FIXTURE_VARIANT(read)
{
	enum vm_guest_mode mode;
	bool user;
	bool upper;
};

FIXTURE_VARIANT_ADD(read, el1_4k) { .mode = VM_MODE_P40V48_4K };
FIXTURE_VARIANT_ADD(read, el1_4k_ttbr1) { .mode = VM_MODE_P40V48_4K, .upper = true };
FIXTURE_VARIANT_ADD(read, el0_4k) { .mode = VM_MODE_P40V48_4K, .user = true };
FIXTURE_VARIANT_ADD(read, el1_16k) { .mode = VM_MODE_P40V48_16K };
FIXTURE_VARIANT_ADD(read, el0_64k) { .mode = VM_MODE_P40V48_64K, .user = true };

FIXTURE_SETUP(read)
{
	struct guest *g = &self->g;
	u64 size;

	SKIP_UNLESS_SAMPLED();
	SKIP_UNLESS_SUPPORTED(variant->mode);
	create_guest(g, variant->mode, variant->user, variant->upper);
	vm_enable_cap(g->vm, KVM_CAP_GUEST_CALLCHAIN, ALLOW_READ);
	set_sys(g, SYS_TTBR0_EL1, get_sys(g, SYS_TTBR0_EL1) | TTBR_ASID);

	/* The outermost frame, which has zeroes, lies above the part that is filled. */
	build_stack(g, SMALL_FRAMES, 0x1000, 0);
	fill(g, g->frames[0] & ~0xfffULL, 0x2000);

	size = g->vm->page_size;
	self->data = vm_alloc(g->vm, 2 * size, OTHER_GVA) | g->upper;
	self->kernel_page = self->data + size;
	set_pte_bits(g, self->data, size, 0, TEST_PTE_USER);
	fill(g, self->data, 2 * size);
	self->e.g = g;
}

FIXTURE_TEARDOWN(read)
{
	host_restore();
	kvm_vm_free(self->g.vm);
}

/* The topmost byte of the stack pointer may be a tag, which the register has, but no address. */
TEST_F_TIMEOUT(read, registers, TIMEOUT)
{
	struct perf_guest_read stack = {
		.base = PERF_GUEST_READ_SP, .offset = { 13 }, .size = 0x1010, .flags = IN_BOTH,
	};
	const u64 sp = self->g.frames[0] - 0x20, tag = 0x5aULL << 56;
	struct expectation *e = &self->e;
	struct guest *g = &self->g;
	unsigned int i;

	for (i = PERF_REG_ARM64_X0; i <= PERF_REG_ARM64_LR; i++)
		vcpu_set_reg(g->vcpu, reg_id(g, i), (i + 1) * 0x0102030405060708ULL);
	vcpu_set_fp(g->vcpu, g->frames[0]);
	run_and_compare(e, "nothing");

	e->reads.regs = GENMASK_ULL(PERF_REG_ARM64_PC, PERF_REG_ARM64_X0);
	add_read(e, stack, sp + 13, 0x1010);
	stack.offset[0] = -0x100;
	add_read(e, stack, sp - 0x100, 0x1010);
	run_and_compare(e, "all registers, and the stack");

	set_sys(g, SYS_TCR_EL1, get_sys(g, SYS_TCR_EL1) | (variant->upper ? TCR_TBI1 : TCR_TBI0));
	set_sp(g, sp ^ tag);
	e->reads.regs = BIT_ULL(PERF_REG_ARM64_X1) | BIT_ULL(PERF_REG_ARM64_SP);
	run_and_compare(e, "two registers, and the stack at a tagged address");
}

/* Dereferences are aligned, and have the kernel's rights.  The last address need not be aligned. */
TEST_F_TIMEOUT(read, percpu, TIMEOUT)
{
	struct perf_guest_read read = {
		.base = PERF_GUEST_READ_PERCPU, .size = 40, .flags = IN_BOTH | AS_USER,
		.nr_derefs = 2, .offset = { 0xc0, -0x10, 3 },
	};
	struct expectation *e = &self->e;

	set_sys(&self->g, SYS_TPIDR_EL1, self->data + 0x40);
	write_word(&self->g, self->data + 0x100, self->kernel_page + 0x400);
	write_word(&self->g, self->kernel_page + 0x3f0, self->data + 0x200);

	add_read(e, read, self->data + 0x203, 40);
	/* Nothing is found behind a word that isn't aligned, or not mapped. */
	read.offset[1] = -0xc;
	add_read(e, read, 0, 0);
	read.offset[1] = self->g.vm->page_size;
	add_read(e, read, 0, 0);
	run_and_compare(e, "percpu");

	/* A per-CPU symbol may be far from where its CPU has it: the sum wraps around. */
	e->reads.nr = 0;
	set_sys(&self->g, SYS_TPIDR_EL1, self->data - KERNEL_SYMBOL);
	read.address = KERNEL_SYMBOL + 0x40;
	read.offset[1] = -0x10;
	add_read(e, read, self->data + 0x203, 40);
	run_and_compare(e, "percpu, far away");
}

/* A read ends at what is not mapped, and one with user mode's rights at the kernel's page. */
TEST_F_TIMEOUT(read, pages, TIMEOUT)
{
	const gva_t near_kernel = self->kernel_page - 20;
	const gva_t end = self->kernel_page + self->g.vm->page_size;
	struct expectation *e = &self->e;

	add_read(e, read_at(near_kernel, 40, IN_BOTH), near_kernel, 40);
	add_read(e, read_at(near_kernel, 40, IN_BOTH | AS_USER), near_kernel, 20);
	add_read(e, read_at(self->kernel_page, 40, IN_BOTH | AS_USER), self->kernel_page, 0);
	add_read(e, read_at(end - 11, 104, IN_BOTH), end - 11, 11);
	add_read(e, read_at(end, 8, IN_BOTH), end, 0);
	run_and_compare(e, "pages");
}

/* With PAN, the kernel's rights don't reach user mode's pages, but user mode's do. */
TEST_F_TIMEOUT(read, pan, TIMEOUT)
{
	struct perf_guest_read deref = read_at(self->data, 8, IN_BOTH);
	struct expectation *e = &self->e;
	struct guest *g = &self->g;

	if (variant->user ||
	    !SYS_FIELD_GET(ID_AA64MMFR1_EL1, PAN, get_sys(g, SYS_ID_AA64MMFR1_EL1)))
		SKIP(return, "The guest is in EL0, or its CPU has no PAN");

	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pstate), PSTATE_EL1H | PSTATE_PAN_SET);
	write_word(g, self->data, self->kernel_page);
	deref.nr_derefs = 1;
	add_read(e, deref, 0, 0);
	add_read(e, read_at(self->data, 40, IN_BOTH), self->data, 0);
	add_read(e, read_at(self->data, 40, IN_BOTH | AS_USER), self->data, 40);
	add_read(e, read_at(self->kernel_page, 40, IN_BOTH), self->kernel_page, 40);
	run_and_compare(e, "PAN");
}

/* Which reads are made depends on the mode that was sampled. */
TEST_F_TIMEOUT(read, modes, TIMEOUT)
{
	struct expectation *e = &self->e;

	add_read(e, read_at(self->data, 16, IN_KERNEL), variant->user ? 0 : self->data, 16);
	add_read(e, read_at(self->data, 24, IN_USER), variant->user ? self->data : 0, 24);
	add_read(e, read_at(self->data, 32, IN_BOTH), self->data, 32);
	add_read(e, read_at(self->data, 40, AS_USER), 0, 0);
	run_and_compare(e, "modes");
}

static const struct policy_case {
	const char *name;
	int sysctl;
	u64 policy;
	bool chain, read;
} policy_cases[] = {
	{ "1, reads allowed",	1, ALLOW_READ, true, true },
	{ "0, reads allowed",	0, ALLOW_READ },
	{ "2, allowed",		2, ALLOW, true },
	{ "3, allowed",		3, ALLOW, true, true },
	{ "3, forbidden",	3, KVM_GUEST_CALLCHAIN_FORBID },
};

TEST_F_TIMEOUT(read, policy, TIMEOUT)
{
	const struct policy_case *c;

	add_read(&self->e, read_at(self->data, 64, IN_BOTH), self->data, 64);
	for_each_case(c, policy_cases) {
		SKIP_UNLESS_OVERRIDDEN(SYSCTL, c->sysctl);
		vm_enable_cap(self->g.vm, KVM_CAP_GUEST_CALLCHAIN, c->policy);
		expect_frames(&self->g, c->name, c->chain ? SMALL_FRAMES : 0);
		self->e.none = !c->read;
		run_and_compare(&self->e, c->name);
	}
}

TEST_HARNESS_MAIN
