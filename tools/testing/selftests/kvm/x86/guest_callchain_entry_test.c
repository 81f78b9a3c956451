// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains that cross the entry into a Linux guest's kernel.  They have the
 * kernel's frames, the IP of user mode that the kernel has saved, and user mode's
 * frames, with a marker for each mode.
 */
#include "callchain_harness.h"

#define NR_SAMPLES	20
#define NR_FRAMES	4	/* of each stack */

#define LINUX_KERNEL_CS	0x10
#define LINUX_USER32_CS	0x23
#define LINUX_USER_CS	0x33

/* User mode's IP and return addresses, and an address in the kernel. */
#define USER_IP		0x401000ULL
#define USER_RA(i)	(0x402000ULL + (i) * 0x40)
#define KERNEL_IP	0xffffffff81001000ULL

/* User mode's stack lies below 4 GiB, so that 32-bit code can use it as well. */
#define USER_STACK_GVA	0x30000000ULL
#define USER_STACK_PAGES 2

/* Room for registers above the kernel's stack. */
#define KERNEL_STACK_PAGES 4

/* The registers that a 64-bit Linux kernel saves, from the lowest address up. */
struct linux_regs {
	u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
	u64 orig_rax, rip, cs, eflags, sp, ss;
};

struct entry_guest {
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct guest_stack kernel;
	struct linux_regs regs;		/* to be written to @regs_gva */
	gva_t regs_gva;			/* right above the outermost frame */
	u64 mark;			/* saved RBP of the outermost frame; encodes @regs_gva */
	struct callchain_expectation e;
};

struct entry_case {
	const char *name;
	void (*tamper)(struct entry_guest *g, u64 arg);
	u64 arg;
	const char *end;
	bool no_entry;			/* only the kernel's part is expected */
	unsigned int nr_user;		/* otherwise: entries of user mode, its IP included */
};

static void *hva(struct entry_guest *g, gva_t gva)
{
	return addr_gva2hva(g->vm, gva);
}

static void write_user_frames(struct entry_guest *g, unsigned int word)
{
	unsigned int i;
	u64 fp = USER_STACK_GVA + 0x100, next, ra;

	g->regs.sp = fp - 0x10;
	g->regs.rbp = fp;
	for (i = 0; i < NR_FRAMES; i++, fp = next) {
		next = fp + 0x40;
		ra = USER_RA(i);
		memcpy(hva(g, fp), &next, word);
		memcpy(hva(g, fp + word), &ra, word);
	}
	memset(hva(g, fp), 0, 2 * word);
}

/* As at a system call: the saved RBP of the outermost frame is zero, and encodes nothing. */
static void syscall_entry(struct entry_guest *g, u64 unused)
{
	g->mark = 0;
}

static void syscall_of_32_bit_code(struct entry_guest *g, u64 unused)
{
	g->mark = 0;
	g->regs.cs = LINUX_USER32_CS;
	write_user_frames(g, 4);
}

static void interrupt_of_32_bit_code(struct entry_guest *g, u64 unused)
{
	g->regs.cs = LINUX_USER32_CS;
	write_user_frames(g, 4);
}

static void upper_halves_of_32_bit_code(struct entry_guest *g, u64 upper)
{
	interrupt_of_32_bit_code(g, 0);
	g->regs.rip |= upper;
	g->regs.rbp |= upper;
	g->regs.sp |= upper;
}

static void set_flags(struct entry_guest *g, u64 flags)
{
	g->regs.eflags = flags;
}

static void set_cs(struct entry_guest *g, u64 cs)
{
	g->regs.cs = cs;
}

static void set_ip(struct entry_guest *g, u64 ip)
{
	g->regs.rip = ip;
}

static void syscall_with_flags(struct entry_guest *g, u64 flags)
{
	g->mark = 0;
	g->regs.eflags = flags;
}

static void syscall_with_cs(struct entry_guest *g, u64 cs)
{
	g->mark = 0;
	g->regs.cs = cs;
}

static void kernel_thread(struct entry_guest *g, u64 unused)
{
	memset(&g->regs, 0, sizeof(g->regs));
}

static void mark_is_below(struct entry_guest *g, u64 bytes)
{
	g->mark -= bytes;
}

static void mark_is_not_mapped(struct entry_guest *g, u64 unused)
{
	g->mark += 1ULL << 40;
}

static void user_fp_is_kernel_stack(struct entry_guest *g, u64 unused)
{
	g->regs.rbp = g->kernel.frames[0];
	g->regs.sp = 0;
}

/* User mode's RBP leads to the page that was read last: one of the kernel's, not user mode's. */
static void user_fp_is_above_registers(struct entry_guest *g, u64 bytes)
{
	g->regs.rbp = g->regs_gva + bytes;
	g->regs.sp = 0;
	*(u64 *)hva(g, g->regs.rbp + 8) = KERNEL_IP;
}

static void user_fp_is_marked(struct entry_guest *g, u64 unused)
{
	g->regs.rbp = g->regs_gva | 1;
	g->regs.sp = 0;
}

static void user_sp_is_above(struct entry_guest *g, u64 unused)
{
	g->regs.sp = g->regs.rbp + 8;
}

static void user_pages_under_smap(struct entry_guest *g, u64 unused)
{
	struct kvm_sregs sregs;

	vcpu_sregs_get(g->vcpu, &sregs);
	sregs.cr4 |= X86_CR4_SMAP;
	vcpu_sregs_set(g->vcpu, &sregs);
}

static void user_pages_are_kernel_pages(struct entry_guest *g, u64 unused)
{
	*vm_get_pte_level(g->vm, USER_STACK_GVA, PG_LEVEL_4K) &= ~PTE_USER_MASK(&g->vm->mmu);
}

/* User mode had entered the kernel, and then the kernel was interrupted, on the same stack. */
static void interrupt_of_kernel(struct entry_guest *g, u64 unused)
{
	struct linux_regs *outer = hva(g, g->regs_gva + 0x400);

	*outer = g->regs;
	g->regs.cs = LINUX_KERNEL_CS;
	g->regs.rip = KERNEL_IP;
	g->regs.rbp = (g->regs_gva + 0x400) | 1;
	g->regs.sp = g->regs_gva + sizeof(g->regs);
	g->e.ips[g->e.nr++] = KERNEL_IP;
}

static void interrupt_of_kernel_at(struct entry_guest *g, u64 ip)
{
	interrupt_of_kernel(g, 0);
	g->regs.rip = ip;
	g->e.nr--;
}

/*
 * The saved RBP leads to these registers again, and the saved RSP to the same address or among
 * them.
 */
static void interrupt_of_itself(struct entry_guest *g, u64 offset)
{
	g->regs.cs = LINUX_KERNEL_CS;
	g->regs.rbp = g->regs_gva | 1;
	g->regs.sp = g->regs_gva + offset;
}

static void interrupt_of_other_stack(struct entry_guest *g, u64 unused)
{
	g->regs.cs = LINUX_KERNEL_CS;
	g->regs.sp = g->kernel.frames[0];
}

static const struct entry_case cases[] = {
	{ "interrupt",			NULL, 0, "last", .nr_user = 1 + NR_FRAMES },
	{ "interrupt of 32-bit code",	interrupt_of_32_bit_code, 0, "last",
					.nr_user = 1 + NR_FRAMES },
	{ "upper halves of 32-bit code's registers", upper_halves_of_32_bit_code,
					0x5aULL << 40, "last", .nr_user = 1 + NR_FRAMES },
	{ "more than a selector in CS's place", set_cs,
					0x5a5aULL << 48 | 0x5a << 16 | LINUX_USER_CS,
					"last", .nr_user = 1 + NR_FRAMES },
	{ "system call",		syscall_entry, 0, "last", .nr_user = 1 + NR_FRAMES },
	{ "system call of 32-bit code",	syscall_of_32_bit_code, 0, "last",
					.nr_user = 1 + NR_FRAMES },
	{ "interrupt of the kernel",	interrupt_of_kernel, 0, "last",
					.nr_user = 1 + NR_FRAMES },
	{ "interrupt of itself",	interrupt_of_itself, 0, "backwards", true },
	{ "interrupt whose stack is among its registers", interrupt_of_itself,
					sizeof(struct linux_regs) - 8, "backwards", true },
	{ "interrupt of another stack",	interrupt_of_other_stack, 0, "backwards", true },
	{ "kernel thread",		kernel_thread, 0, "last", true },
	{ "flags: bit 1 clear",		set_flags, 0x200, "unaligned", true },
	{ "flags: bit 3 set",		set_flags, 0x20a, "unaligned", true },
	{ "flags: bit 32 set",		set_flags, 0x100000202, "unaligned", true },
	{ "flags: VM set",		set_flags, 0x20202, "unaligned", true },
	{ "no code segment",		set_cs, 0, "unaligned", true },
	{ "no code segment, ring 3",	set_cs, 3, "unaligned", true },
	{ "ring 1",			set_cs, LINUX_KERNEL_CS | 1, "unaligned", true },
	{ "IP is non-canonical",	set_ip, 1ULL << 62, "noncanonical", true },
	{ "IP of user mode in the upper half", set_ip, 0xffff888000001000, "noncanonical", true },
	{ "IP is a context marker",	interrupt_of_kernel_at, PERF_CONTEXT_USER, "depth", true },
	{ "system call: flags",		syscall_with_flags, 0x200, "last", true },
	{ "system call: from kernel",	syscall_with_cs, LINUX_KERNEL_CS, "last", true },
	{ "mark leads backwards",	mark_is_below, 0x100, "backwards", true },
	{ "mark is off by two",		mark_is_below, 2, "unaligned", true },
	{ "mark leads nowhere",		mark_is_not_mapped, 0, "unmapped", true },
	{ "user mode points to the kernel's stack", user_fp_is_kernel_stack, 0, "unmapped",
					.nr_user = 1 },
	{ "user mode points to where its registers were", user_fp_is_above_registers, 0x200,
					"unmapped", .nr_user = 1 },
	{ "user mode has a mark",	user_fp_is_marked, 0, "unaligned", .nr_user = 1 },
	{ "user mode's frame is below its stack", user_sp_is_above, 0, "backwards",
					.nr_user = 1 },
	{ "user mode can't read its stack", user_pages_are_kernel_pages, 0, "unmapped",
					.nr_user = 1 },
};

PMI_FIXTURE(entry)

/* Lay out the stack so that the saved registers straddle two pages. */
static void build_guest(struct entry_guest *g)
{
	const struct guest_stack_layout layout = {
		.nr_frames = NR_FRAMES,
		.stride = 0x40,
		.offset = PAGE_SIZE - 0xa0 - NR_FRAMES * 0x40,
	};
	gva_t gva;

	memset(g, 0, sizeof(*g));
	g->vm = vm_create_with_one_vcpu(&g->vcpu, guest_loop);
	guest_stack_build_and_use(g->vcpu, &g->kernel, &layout, false);
	gva = g->kernel.gva + g->kernel.nr_pages * PAGE_SIZE;
	TEST_ASSERT_EQ(vm_alloc(g->vm, KERNEL_STACK_PAGES * PAGE_SIZE, gva), gva);

	gva = vm_alloc(g->vm, USER_STACK_PAGES * PAGE_SIZE, USER_STACK_GVA);
	TEST_ASSERT_EQ(gva, USER_STACK_GVA);
	vm_set_user_accessible(g->vm, gva, USER_STACK_PAGES);
	write_user_frames(g, 8);

	/*
	 * The kernel's outermost frame has a return address, into the entry code: run_case()
	 * writes it.
	 */
	g->regs_gva = g->kernel.frames[NR_FRAMES] + 16;
	g->mark = g->regs_gva | 1;
	g->regs.rip = USER_IP;
	g->regs.cs = LINUX_USER_CS;
	g->regs.eflags = X86_EFLAGS_IF | X86_EFLAGS_FIXED;
}

static void run_case(const struct entry_case *c, const struct perf_event_attr *attr,
		     enum pmi_source source, bool show_kernel, bool show_user)
{
	struct entry_guest g;
	unsigned int i;
	u64 ends;

	build_guest(&g);
	expect_guest_stack(&g.e, c->name, false, &g.kernel, DEFAULT_MAX_STACK);
	g.e.ips[g.e.nr++] = KERNEL_IP;
	if (c->tamper)
		c->tamper(&g, c->arg);

	*(u64 *)hva(&g, g.kernel.frames[NR_FRAMES]) = g.mark;
	*(u64 *)hva(&g, g.kernel.frames[NR_FRAMES] + 8) = KERNEL_IP;
	for (i = 0; i < sizeof(g.regs) / sizeof(u64); i++)
		*(u64 *)hva(&g, g.regs_gva + i * sizeof(u64)) = ((u64 *)&g.regs)[i];

	if (!show_kernel)
		g.e.nr = 0;
	if (!c->no_entry && show_user) {
		g.e.ips[g.e.nr++] = PERF_CONTEXT_GUEST_USER;
		g.e.ips[g.e.nr++] = USER_IP;
		for (i = 0; i < c->nr_user - 1; i++)
			g.e.ips[g.e.nr++] = USER_RA(i);
	}

	vcpu_run_and_compare(g.vcpu, source, attr, NR_SAMPLES, &g.e);
	ends = vcpu_get_callchain_end_stat(g.vcpu, c->end);
	TEST_ASSERT(ends == vcpu_get_stat(g.vcpu, callchain_walks),
		    "%s: only %lu of %lu walks ended by \"%s\"", c->name, ends,
		    vcpu_get_stat(g.vcpu, callchain_walks), c->end);
	kvm_vm_free(g.vm);
}

CALLCHAIN_TEST(entry, cases)
{
	const struct entry_case *c;

	for_each_case(c, cases) {
		TH_LOG("%s", c->name);
		run_case(c, NULL, variant->source, true, true);
	}
}

CALLCHAIN_TEST(entry, smap)
{
	const struct entry_case c = { "user pages under SMAP", user_pages_under_smap, 0, "last",
				      .nr_user = 1 + NR_FRAMES };

	if (!kvm_cpu_has(X86_FEATURE_SMAP))
		SKIP(return, "The host has no SMAP for guests");
	run_case(&c, NULL, variant->source, true, true);
}

CALLCHAIN_TEST(entry, exclude_callchain)
{
	const struct entry_case kernel_only = { "kernel only", .end = "last", .no_entry = true };
	const struct entry_case user_only = { "user only", .end = "last",
					      .nr_user = 1 + NR_FRAMES };
	const struct entry_case user_cut = { "user only, cut", .end = "depth", .nr_user = 2 };
	struct perf_event_attr attr = { .exclude_callchain_user = 1 };

	run_case(&kernel_only, &attr, variant->source, true, false);

	attr = (struct perf_event_attr){ .exclude_callchain_kernel = 1 };
	run_case(&user_only, &attr, variant->source, false, true);

	/* Excluded frames count as well, or nothing would bound the walk. */
	attr.sample_max_stack = NR_FRAMES + 4;
	run_case(&user_cut, &attr, variant->source, false, true);
}

TEST_HARNESS_MAIN
