/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guests of arm64 whose stacks are known, for tests that compare each chain as a whole.  The walk
 * is deferred: it is made when the guest has exited.
 */
#ifndef SELFTEST_KVM_CALLCHAIN_GUEST_H
#define SELFTEST_KVM_CALLCHAIN_GUEST_H

#include <sys/mman.h>
#include <unistd.h>

#include "guest_modes.h"
#include "guest_stack.h"
#include "kvm_test_harness.h"
#include "kvm_util.h"
#include "perf_callchain.h"
#include "processor.h"
#include "test_util.h"

#define NR_SAMPLES	20
#define MAX_FRAMES	120
#define TIMEOUT		100

/* Made-up return addresses begin here, where nothing is mapped. */
#define FAKE_TEXT	0x700000000000ULL

#define STACK_GVA	0x10000000ULL
#define OTHER_SLOT	10
#define OTHER_GPA	BIT_ULL(32)
#define OTHER_GVA	0x20000000ULL
#define OTHER_PAGES	16

/* More entries than there are pages. */
#define DIRTY_RING_SIZE	(4096 * sizeof(struct kvm_dirty_gfn))

#define TEST_PTE_USER	BIT_ULL(6)
#define TEST_PTE_RDONLY	BIT_ULL(7)

#define TCR_TBI0	BIT_ULL(37)

#define PSTATE_EL0	0x0ULL
#define PSTATE_EL1H	0x3c5ULL
#define PSTATE_PAN_SET	BIT_ULL(22)

static const struct perf_event_attr attr = { .exclude_host = 1 };

/*
 * struct guest - a guest, and what is known of its stack
 * @mode:	page size, and width of addresses
 * @user:	it runs in EL0
 * @pauth:	it may sign addresses
 * @dirty_ring:	its vCPU has a ring of dirty pages
 * @upper:	bits to add to an address for the upper half, TTBR1's; or zero
 * @alias:	bits to add to its stack's addresses, which don't change what they map to; or zero
 * @vm:		its VM
 * @vcpu:	the VM's vCPU
 * @nr_frames:	how many frame records its stack has, without the outermost one
 * @stack_size:	how many bytes
 * @frames:	addresses of the frame records, innermost first
 * @ras:	their return addresses
 * @e:		the chain that a walk must find
 */
struct guest {
	enum vm_guest_mode mode;
	bool user;
	bool pauth;
	bool dirty_ring;
	u64 upper;
	u64 alias;
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	unsigned int nr_frames;
	u64 stack_size;
	gva_t frames[MAX_FRAMES + 1];
	u64 ras[MAX_FRAMES];
	struct callchain_expectation e;
};

static inline u64 get_sys(struct guest *g, u32 reg)
{
	return vcpu_get_reg(g->vcpu, KVM_ARM64_SYS_REG(reg));
}

static inline void set_sys(struct guest *g, u32 reg, u64 val)
{
	vcpu_set_reg(g->vcpu, KVM_ARM64_SYS_REG(reg), val);
}

/* Addresses in the upper half are mapped as in the lower one: both halves have the same tables. */
static inline gva_t mapped_gva(struct guest *g, gva_t gva)
{
	return gva & ~(g->upper | g->alias);
}

static inline void *hva(struct guest *g, gva_t gva)
{
	return addr_gva2hva(g->vm, mapped_gva(g, gva));
}

static inline void write_word(struct guest *g, gva_t gva, u64 word)
{
	*(u64 *)hva(g, gva) = word;
}

static inline void set_pte_bits(struct guest *g, gva_t gva, u64 size, u64 clear, u64 set)
{
	u64 off;

	for (off = 0; off < size; off += g->vm->page_size) {
		u64 *pte = virt_get_pte_hva(g->vm, mapped_gva(g, gva) + off);

		*pte = (*pte & ~clear) | set;
	}
}

static inline void set_sp(struct guest *g, u64 sp)
{
	vcpu_set_reg(g->vcpu, g->user ? ARM64_CORE_REG(regs.sp) : ARM64_CORE_REG(sp_el1), sp);
}

/* Expect the IP, and the return addresses of the first frames. */
static inline void expect_frames(struct guest *g, const char *name, unsigned int nr)
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

static inline void expect_entry(struct guest *g, u64 ip)
{
	g->e.ips[g->e.nr++] = ip;
}

/*
 * Build a stack, and let the vCPU run on it.  A frame record is the caller's frame pointer, and
 * the return address above it.  In the outermost one, both are zero.
 */
static inline void build_stack_at(struct guest *g, gva_t min, unsigned int nr_frames,
				  unsigned int stride, unsigned int offset)
{
	unsigned int i;
	gva_t base;
	u64 fp;

	g->nr_frames = nr_frames;
	g->stack_size = vm_page_align(g->vm, offset + (nr_frames + 4) * stride + 0x1000);
	base = vm_alloc(g->vm, g->stack_size, min) | g->upper | g->alias;
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
	vcpu_set_fp(g->vcpu, g->frames[0]);
	set_sp(g, g->frames[0] - 0x20);
	expect_frames(g, "whole", nr_frames);
}

static inline void build_stack(struct guest *g, unsigned int nr_frames, unsigned int stride,
			       unsigned int offset)
{
	build_stack_at(g, STACK_GVA, nr_frames, stride, offset);
}

static inline void create_guest(struct guest *g, enum vm_guest_mode mode, bool user, bool upper)
{
	struct kvm_vcpu_init init;

	g->mode = mode;
	g->user = user;
	g->upper = 0;
	g->alias = 0;
	g->vm = __vm_create(VM_SHAPE(mode), 1, 0);
	if (g->dirty_ring)
		vm_enable_dirty_ring(g->vm, DIRTY_RING_SIZE);
	kvm_get_default_vcpu_target(g->vm, &init);
	/* Walks refuse guests that have EL2. */
	init.features[0] &= ~BIT(KVM_ARM_VCPU_HAS_EL2);
	if (g->pauth)
		init.features[0] |= BIT(KVM_ARM_VCPU_PTRAUTH_ADDRESS) |
				    BIT(KVM_ARM_VCPU_PTRAUTH_GENERIC);
	g->vcpu = aarch64_vcpu_add(g->vm, 0, &init, guest_loop);
	kvm_arch_vm_finalize_vcpus(g->vm);

	if (upper) {
		vcpu_use_upper_half(g->vcpu);
		g->upper = GENMASK_ULL(63, g->vm->va_bits);
	}
	if (user)
		set_pte_bits(g, (gva_t)guest_loop & ~(g->vm->page_size - 1), g->vm->page_size,
			     0, TEST_PTE_USER | TEST_PTE_RDONLY);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), (u64)guest_loop | g->upper);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pstate), user ? PSTATE_EL0 : PSTATE_EL1H);
}

static inline void compare(struct guest *g)
{
	vcpu_run_and_compare(g->vcpu, PMI_NMI, &attr, NR_SAMPLES, &g->e);
}

#define SKIP_UNLESS_SAMPLED()						\
do {									\
	const char *why_not;						\
									\
	if (is_protected_host())					\
		SKIP(return, "A host in protected mode shows nothing");	\
	if (!pmi_source_available(PMI_NMI, &why_not))		\
		SKIP(return, "%s", why_not);				\
} while (0)

#define SKIP_UNLESS_SUPPORTED(_mode)					\
do {									\
	if (!guest_modes[_mode].supported)				\
		SKIP(return, "The host has no guests of mode %s",	\
		     vm_guest_mode_string(_mode));			\
} while (0)

#define SKIP_UNLESS_4_KIB_GUESTS()	SKIP_UNLESS_SUPPORTED(VM_MODE_P40V48_4K)

/* For tests that drop, map or count single pages: the host's must be of the guest's size. */
#define SKIP_UNLESS_4_KIB_HOST()						\
do {										\
	if (getpagesize() != 0x1000)						\
		SKIP(return, "The host's pages are not 4 KiB");			\
} while (0)

#define SMALL_FRAMES	8
#define BROKEN		4

/* Let the frame below the broken one lead elsewhere, and expect the frames up to there. */
static inline void compare_broken(struct guest *g, const char *name, u64 fp)
{
	write_word(g, g->frames[BROKEN - 1], fp);
	expect_frames(g, name, BROKEN);
	compare(g);
	write_word(g, g->frames[BROKEN - 1], g->frames[BROKEN]);
}

static inline void compare_return_address(struct guest *g, const char *name, u64 ra)
{
	write_word(g, g->frames[BROKEN] + 8, ra);
	expect_frames(g, name, BROKEN);
	compare(g);
	write_word(g, g->frames[BROKEN] + 8, g->ras[BROKEN]);
}

/* Add memory that the guest never touches. */
static inline void *add_other_memory(struct guest *g)
{
	vm_userspace_mem_region_add(g->vm, VM_MEM_SRC_ANONYMOUS, OTHER_GPA, OTHER_SLOT,
				    OTHER_PAGES, 0);
	virt_map(g->vm, OTHER_GVA, OTHER_GPA, OTHER_PAGES);
	set_pte_bits(g, OTHER_GVA, OTHER_PAGES * 0x1000, 0, g->user ? TEST_PTE_USER : 0);
	return addr_gpa2hva(g->vm, OTHER_GPA);
}

/*
 * Define guest_switches_NAME().  It writes X19 to a register by the instruction _write, and counts
 * X21 down from X22 in guest_switches_NAME_x19().  It does the same with X20 in
 * guest_switches_NAME_x20(), and begins again.
 */
#define GUEST_SWITCHES(_name, _write)						\
	void guest_switches_##_name(void);					\
	void guest_switches_##_name##_x19(void);				\
	void guest_switches_##_name##_x20(void);				\
	asm(".pushsection .text; .balign 64; .irp sym, guest_switches_" #_name "\n" \
	    ".global \\sym, \\sym\\()_x19, \\sym\\()_x20\n"			\
	    "\\sym: " _write " x19; isb; mov x21, x22\n"			\
	    "\\sym\\()_x19: subs x21, x21, #1; b.ne \\sym\\()_x19\n"		\
	    _write " x20; isb; mov x21, x22\n"					\
	    "\\sym\\()_x20: subs x21, x21, #1; b.ne \\sym\\()_x20\n"		\
	    "b \\sym; .endr; .popsection")

/* Iterations, of two instructions each, from one switch to the next. */
#define SWITCH_COUNT	20000

/*
 * struct switches - samples of a guest that switches between two values of a register
 * @e:		what samples that hit the two loops must have
 * @nr:		how many samples hit each loop; those that share a walk count as one
 * @nr_both:	twice the smaller of @nr: see vcpu_run_until_guest_sampled()
 */
struct switches {
	struct callchain_expectation e[2];
	unsigned int nr[2];
	unsigned int nr_both;
};

/* Use the guest's last expectation for value @i of the register. */
static inline void expect_switch(struct switches *s, unsigned int i, const struct guest *g,
				 void (*loop)(void))
{
	s->e[i] = g->e;
	s->e[i].ip = (u64)loop | g->upper;
}

static inline void compare_switches(const struct callchain_sample *sample, void *arg)
{
	struct switches *s = arg;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct callchain_expectation *e = &s->e[i];
		const u64 loop = e->ip;

		/* A loop has two instructions. */
		if (sample->ip != loop && sample->ip != loop + 4)
			continue;
		e->ip = sample->ip;
		e->ips[1] = sample->ip;
		if (callchain_sample_compare(sample, e))
			s->nr[i]++;
		e->ip = loop;
	}
	s->nr_both = 2 * min(s->nr[0], s->nr[1]);
}

/* Sample guest_switches_NAME(), which is @code, in a VM that was not sampled yet. */
static inline void run_switches(struct guest *g, struct switches *s, void (*code)(void), u64 x19,
				u64 x20)
{
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.pc), (u64)code | g->upper);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[19]), x19);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[20]), x20);
	vcpu_set_reg(g->vcpu, ARM64_CORE_REG(regs.regs[22]), SWITCH_COUNT);
	vcpu_run_until_guest_sampled(g->vcpu, PMI_NMI, &attr, 2 * NR_SAMPLES,
				     compare_switches, s, &s->nr_both);
}

#endif /* SELFTEST_KVM_CALLCHAIN_GUEST_H */
