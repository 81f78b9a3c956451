// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests in the modes of x86 but virtual-8086 mode: paging modes, page sizes, word
 * sizes, segments, and nested guests.
 */
#include "callchain_harness.h"
#include "smm.h"
#include "svm_util.h"
#include "vmx.h"

#define NR_SAMPLES	20
#define NR_FRAMES	8

/* If L2 does little, only 1 to 10 % of all samples hit it, depending on the machine. */
#define MAX_ROUNDS	400

/* Two memslots of 4 MiB, the size of the largest page outside of long mode; one is above 4 GiB. */
#define MEM_GPA		0x10000000ULL
#define HIGH_MEM_GPA	0x140000000ULL
#define MEM_PAGES	1024
#define MEM_SLOT	1
#define HIGH_MEM_SLOT	2

/* Offsets in a slot.  Code and tables are in the lower one. */
#define CODE_OFF	0x0000
#define TABLES_OFF	0x1000
#define STACK_OFF	0x10000
#define STACK_PAGES	16

/* Paging maps code and stack here.  Outside of long mode, they share no table but the root. */
#define CODE_GVA	0x40000000U
#define STACK_GVA	0x90000000U

/* mov %rax,%cr3, or mov %eax,%cr3; 1: jmp 1b.  All modes have the same bytes. */
static const u8 code[] = { 0x0f, 0x22, 0xd8, 0xeb, 0xfe };

#define LOOP_OFF	3

enum paging {
	PAGING_OFF,
	PAGING_32,
	PAGING_32_NO_PSE,	/* bit 7 of a PDE is ignored */
	PAGING_32_4M,
	PAGING_32_PSE36,	/* 4 MiB, above 4 GiB */
	PAGING_PAE,
	PAGING_PAE_2M,
	PAGING_LONG,		/* as the selftests' library does it */
};

struct mode {
	const char *name;
	enum paging paging;
	u8 word;
	bool real;
	bool user;
	u32 cs_base;
	u32 ss_base;
};

static const struct mode modes[] = {
	{ "32-bit, no paging",			PAGING_OFF, 4 },
	{ "32-bit, no paging, user",		PAGING_OFF, 4, .user = true },
	{ "32-bit",				PAGING_32, 4 },
	{ "32-bit, user",			PAGING_32, 4, .user = true },
	{ "32-bit, CR4.PSE clear",		PAGING_32_NO_PSE, 4 },
	{ "32-bit, 4 MiB page",			PAGING_32_4M, 4 },
	{ "32-bit, PSE-36",			PAGING_32_PSE36, 4 },
	{ "32-bit, PAE",			PAGING_PAE, 4 },
	{ "32-bit, PAE, user",			PAGING_PAE, 4, .user = true },
	{ "32-bit, PAE, 2 MiB page",		PAGING_PAE_2M, 4 },
	{ "32-bit, segments",			PAGING_32, 4, .cs_base = 0x30000000,
						.ss_base = 0x8fff0000 },
	{ "32-bit, segments that wrap",		PAGING_PAE, 4, .cs_base = 0xc0000000,
						.ss_base = 0xa0000000 },
	{ "16-bit, protected mode",		PAGING_32, 2, .cs_base = CODE_GVA,
						.ss_base = STACK_GVA },
	{ "compatibility mode, 32-bit",		PAGING_LONG, 4 },
	{ "compatibility mode, 32-bit, user",	PAGING_LONG, 4, .user = true },
	{ "compatibility mode, 32-bit, segments", PAGING_LONG, 4, .cs_base = 0xc0000000,
						.ss_base = 0xa0000000 },
	{ "compatibility mode, 16-bit",		PAGING_LONG, 2, .cs_base = CODE_GVA,
						.ss_base = STACK_GVA },
};

struct mode_guest {
	const struct mode *mode;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u32 code;		/* linear addresses */
	u32 stack;
	u64 decoy_cr3;		/* maps the code, but not the stack; in long mode, equals cr3 */
	u64 cr3;
};

PMI_FIXTURE(modes)

/*
 * The stack's pages are mapped in reverse order, unless paging is off or they are in a large
 * page.
 */
static gpa_t stack_gpa(const struct mode_guest *g, unsigned int off)
{
	switch (g->mode->paging) {
	case PAGING_OFF:
	case PAGING_32_4M:
	case PAGING_PAE_2M:
		return MEM_GPA + STACK_OFF + off;
	case PAGING_32_PSE36:
		return HIGH_MEM_GPA + STACK_OFF + off;
	default:
		return MEM_GPA + STACK_OFF + (STACK_PAGES - 1 - off / PAGE_SIZE) * PAGE_SIZE +
		       off % PAGE_SIZE;
	}
}

#define TABLE_FLAGS	(BIT(0) | BIT(1) | BIT(2))	/* present, writable, user */
#define LARGE_PAGE	BIT(7)

static u32 *table32(struct mode_guest *g, unsigned int nr)
{
	return addr_gpa2hva(g->vm, MEM_GPA + TABLES_OFF + nr * PAGE_SIZE);
}

static u64 *table64(struct mode_guest *g, unsigned int nr)
{
	return (u64 *)table32(g, nr);
}

static u64 to_table(unsigned int nr)
{
	return (MEM_GPA + TABLES_OFF + nr * PAGE_SIZE) | TABLE_FLAGS;
}

static void build_32_tables(struct mode_guest *g)
{
	u32 *pd = table32(g, 0), *decoy = table32(g, 1);
	u32 *code_pt = table32(g, 2), *stack_pt = table32(g, 3);
	unsigned int i;

	pd[CODE_GVA >> 22] = decoy[CODE_GVA >> 22] = to_table(2);
	pd[STACK_GVA >> 22] = to_table(3);
	code_pt[0] = (MEM_GPA + CODE_OFF) | TABLE_FLAGS;
	for (i = 0; i < STACK_PAGES; i++)
		stack_pt[i] = stack_gpa(g, i * PAGE_SIZE) | TABLE_FLAGS;

	switch (g->mode->paging) {
	case PAGING_32_NO_PSE:
		pd[STACK_GVA >> 22] |= LARGE_PAGE;
		break;
	case PAGING_32_4M:
		pd[STACK_GVA >> 22] = MEM_GPA | TABLE_FLAGS | LARGE_PAGE;
		break;
	case PAGING_32_PSE36:
		/* SDM vol. 3, table 5-4: bits 13 to 20 are bits 32 to 39 of the address. */
		pd[STACK_GVA >> 22] = (u32)HIGH_MEM_GPA | (HIGH_MEM_GPA >> 32) << 13 |
				      TABLE_FLAGS | LARGE_PAGE;
		break;
	default:
		break;
	}

	g->cr3 = to_table(0) & PAGE_MASK;
	g->decoy_cr3 = to_table(1) & PAGE_MASK;
}

static void build_pae_tables(struct mode_guest *g)
{
	/* A PDPT has 32 bytes, and need not lie at the beginning of a page. */
	u64 *pdpt = table64(g, 0) + 12, *decoy = table64(g, 1);
	u64 *code_pd = table64(g, 2), *code_pt = table64(g, 3);
	u64 *stack_pd = table64(g, 4), *stack_pt = table64(g, 5);
	unsigned int i;

	pdpt[CODE_GVA >> 30] = decoy[CODE_GVA >> 30] = to_table(2) & ~6ULL;
	pdpt[STACK_GVA >> 30] = to_table(4) & ~6ULL;
	code_pd[(CODE_GVA >> 21) & 511] = to_table(3);
	code_pt[0] = (MEM_GPA + CODE_OFF) | TABLE_FLAGS;
	stack_pd[(STACK_GVA >> 21) & 511] = to_table(5);
	for (i = 0; i < STACK_PAGES; i++)
		stack_pt[i] = stack_gpa(g, i * PAGE_SIZE) | TABLE_FLAGS;
	if (g->mode->paging == PAGING_PAE_2M)
		stack_pd[(STACK_GVA >> 21) & 511] = MEM_GPA | TABLE_FLAGS | LARGE_PAGE;

	g->cr3 = (to_table(0) & PAGE_MASK) + 12 * sizeof(u64);
	g->decoy_cr3 = to_table(1) & PAGE_MASK;
}

static void build_long_tables(struct mode_guest *g)
{
	unsigned int i;

	virt_pg_map(g->vm, CODE_GVA, MEM_GPA + CODE_OFF);
	vm_set_user_accessible(g->vm, CODE_GVA, 1);
	for (i = 0; i < STACK_PAGES; i++)
		virt_pg_map(g->vm, STACK_GVA + i * PAGE_SIZE, stack_gpa(g, i * PAGE_SIZE));
	vm_set_user_accessible(g->vm, STACK_GVA, STACK_PAGES);
	g->cr3 = g->vm->mmu.pgd;
	g->decoy_cr3 = g->cr3;
}

static void build_tables(struct mode_guest *g)
{
	g->code = CODE_GVA;
	g->stack = STACK_GVA;

	switch (g->mode->paging) {
	case PAGING_OFF:
		g->code = MEM_GPA + CODE_OFF;
		g->stack = MEM_GPA + STACK_OFF;
		break;
	case PAGING_32:
	case PAGING_32_NO_PSE:
		build_32_tables(g);
		break;
	case PAGING_32_4M:
	case PAGING_32_PSE36:
		build_32_tables(g);
		g->stack += STACK_OFF;
		break;
	case PAGING_PAE:
		build_pae_tables(g);
		break;
	case PAGING_PAE_2M:
		build_pae_tables(g);
		g->stack += STACK_OFF;
		break;
	case PAGING_LONG:
		build_long_tables(g);
		break;
	}
}

static void set_segment(struct kvm_segment *seg, u32 base, const struct mode *mode)
{
	seg->base = base;
	seg->limit = 0xffffffff;
	seg->g = 1;
	seg->l = 0;
	seg->db = mode->word == 4;
	if (mode->user) {
		seg->selector |= 3;
		seg->dpl = 3;
	}
}

static void enter_mode(struct mode_guest *g)
{
	const struct mode *mode = g->mode;
	struct kvm_sregs sregs;

	vcpu_sregs_get(g->vcpu, &sregs);
	set_segment(&sregs.cs, mode->cs_base, mode);
	set_segment(&sregs.ss, mode->ss_base, mode);
	/* User mode can't write CR3, and needs the right one from the beginning. */
	sregs.cr3 = mode->user ? g->cr3 : g->decoy_cr3;

	if (mode->paging != PAGING_LONG) {
		sregs.efer = 0;
		sregs.cr4 = 0;
		sregs.cr0 = X86_CR0_NE | X86_CR0_ET;
		if (!mode->real)
			sregs.cr0 |= X86_CR0_PE;
		if (mode->paging != PAGING_OFF)
			sregs.cr0 |= X86_CR0_PG;
		if (mode->paging == PAGING_32_4M || mode->paging == PAGING_32_PSE36)
			sregs.cr4 |= X86_CR4_PSE;
		if (mode->paging == PAGING_PAE || mode->paging == PAGING_PAE_2M)
			sregs.cr4 |= X86_CR4_PAE;
	}
	vcpu_sregs_set(g->vcpu, &sregs);
}

/* Write a word of the mode's size, at an offset into the stack. */
static void write_stack(struct mode_guest *g, unsigned int off, u32 word)
{
	memcpy(addr_gpa2hva(g->vm, stack_gpa(g, off)), &word, g->mode->word);
}

/*
 * Every other frame straddles two pages.  Return addresses are such that adding
 * the code segment's base may wrap.
 */
static void build_stack(struct mode_guest *g, struct kvm_regs *regs,
			struct callchain_expectation *e)
{
	const struct mode *mode = g->mode;
	unsigned int i, off = PAGE_SIZE - mode->word;
	u32 ra = mode->word == 2 ? 0x4000 : 0x81234000;

	regs->rax = g->cr3;
	regs->rip = g->code - mode->cs_base;
	/* Skip the write to CR3: it is privileged, and has no effect without paging. */
	if (mode->user || mode->paging == PAGING_OFF)
		regs->rip += LOOP_OFF;
	regs->rsp = g->stack - mode->ss_base;
	/* In this mode, bits above a word are not part of the frame pointer. */
	regs->rbp = ((g->stack + off - mode->ss_base) & GENMASK(mode->word * 8 - 1, 0)) |
		    0xdeadbeef00000000ULL;
	if (mode->word == 2)
		regs->rbp |= 0xbad0000;

	e->name = mode->name;
	e->cpumode = mode->user ? PERF_RECORD_MISC_GUEST_USER : PERF_RECORD_MISC_GUEST_KERNEL;
	e->ip = g->code + LOOP_OFF;
	e->nr = 0;
	e->ips[e->nr++] = mode->user ? PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL;
	e->ips[e->nr++] = e->ip;

	for (i = 0; i < NR_FRAMES; i++, off += PAGE_SIZE / 2, ra += 0x40) {
		write_stack(g, off, g->stack + off + PAGE_SIZE / 2 - mode->ss_base);
		write_stack(g, off + mode->word, ra);
		e->ips[e->nr++] = (u32)(mode->cs_base + ra);
	}
}

static void store_ip(const struct callchain_sample *s, void *ip)
{
	*(u64 *)ip = s->ip;
}

/*
 * Let the guest come to its loop: the first PMIs may be pending before its first
 * instruction.  The event has no callchains, so that perf has to ask KVM for the IP
 * alone.
 */
static void run_to_loop(struct kvm_vcpu *vcpu, enum pmi_source source, u64 loop)
{
	const struct perf_event_attr attr = { .sample_type = PERF_SAMPLE_IP };
	unsigned int i;
	u64 ip = 0;

	for (i = 0; i < 1000 && ip != loop; i++)
		vcpu_run_sampled(vcpu, source | PMI_STOCK, &attr, 1, store_ip, &ip);
	TEST_ASSERT(ip == loop, "The guest stands at 0x%lx, not at 0x%lx", ip, loop);
}

static void create_in_mode(struct mode_guest *g, struct callchain_expectation *e,
			   enum pmi_source source)
{
	struct kvm_regs regs;

	g->vm = vm_create_with_one_vcpu(&g->vcpu, guest_loop);
	vm_userspace_mem_region_add(g->vm, VM_MEM_SRC_ANONYMOUS, MEM_GPA, MEM_SLOT,
				    MEM_PAGES, 0);
	vm_userspace_mem_region_add(g->vm, VM_MEM_SRC_ANONYMOUS, HIGH_MEM_GPA,
				    HIGH_MEM_SLOT, MEM_PAGES, 0);
	memcpy(addr_gpa2hva(g->vm, MEM_GPA + CODE_OFF), code, sizeof(code));

	build_tables(g);
	enter_mode(g);
	vcpu_regs_get(g->vcpu, &regs);
	build_stack(g, &regs, e);
	vcpu_regs_set(g->vcpu, &regs);
	vcpu_set_if(g->vcpu);

	run_to_loop(g->vcpu, source, e->ip);
}

static void test_mode(const struct mode *mode, enum pmi_source source)
{
	struct mode_guest g = { .mode = mode };
	struct callchain_expectation e;

	create_in_mode(&g, &e, source);
	vcpu_run_and_compare(g.vcpu, source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(g.vm);
}

CALLCHAIN_TEST(modes, all)
{
	const struct mode *mode;

	for_each_case(mode, modes) {
		TH_LOG("%s", mode->name);
		test_mode(mode, variant->source);
	}
}

/* No chain goes through an entry that the guest's CPU would refuse. */
CALLCHAIN_TEST(modes, pae_reserved)
{
	const struct mode mode = { "a reserved bit in a PDPTE", PAGING_PAE, 4 };
	struct mode_guest g = { .mode = &mode };
	struct callchain_expectation e;
	u64 *pdpt;

	create_in_mode(&g, &e, variant->source);
	pdpt = addr_gpa2hva(g.vm, g.cr3);
	pdpt[STACK_GVA >> 30] |= BIT(5);
	e.nr = 2;
	vcpu_run_and_compare(g.vcpu, variant->source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(g.vm);
}

/* Without unrestricted guest, VMX can't run real mode with the tests' segments: KVM emulates it. */
#define SKIP_UNLESS_UNRESTRICTED()						\
do {										\
	if (host_cpu_is_intel && !kvm_is_unrestricted_guest_enabled())		\
		SKIP(return, "The host emulates real mode, without unrestricted guest"); \
} while (0)

CALLCHAIN_TEST(modes, real)
{
	const struct mode mode = {
		"16-bit, real mode", PAGING_OFF, 2, .real = true,
		.cs_base = MEM_GPA, .ss_base = MEM_GPA + STACK_OFF,
	};

	SKIP_UNLESS_UNRESTRICTED();
	test_mode(&mode, variant->source);
}

/*
 * Two loops, each on a stack of its own, whose RSP and RBP are in R8 to R11.  A guest
 * that goes from one loop to the other changes RIP, RSP and RBP without an exit.
 */
void two_loops(void);
void first_loop(void);
void second_loop(void);
asm(".pushsection .text\n"
    "two_loops:\n"
    "	mov	%r8, %rsp\n"
    "	mov	%r9, %rbp\n"
    "	mov	$5000, %ecx\n"
    "first_loop:\n"
    "	loop	first_loop\n"
    "	mov	%r10, %rsp\n"
    "	mov	%r11, %rbp\n"
    "	mov	$5000, %ecx\n"
    "second_loop:\n"
    "	loop	second_loop\n"
    "	jmp	two_loops\n"
    ".popsection");

struct two_loops {
	struct callchain_comparison first;
	struct callchain_comparison second;
};

static void compare_two_loops(const struct callchain_sample *s, void *arg)
{
	struct two_loops *loops = arg;

	if (s->ip == (u64)first_loop)
		callchain_compare(s, &loops->first);
	else if (s->ip == (u64)second_loop)
		callchain_compare(s, &loops->second);
}

static void expect_loop(struct callchain_expectation *e, const struct guest_stack *stack,
			void *loop)
{
	expect_guest_stack(e, "two loops", false, stack, DEFAULT_MAX_STACK);
	e->ip = (u64)loop;
	e->ips[1] = e->ip;
}

/* A walk must not use registers cached before VM entry: VMX leaves RIP and RSP in the VMCS. */
CALLCHAIN_TEST(modes, two_loops)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100 };
	struct callchain_expectation first, second;
	struct two_loops loops = { { .expected = &first }, { .expected = &second } };
	struct guest_stack stacks[2];
	struct kvm_vcpu *vcpu;
	struct kvm_regs regs;
	unsigned int round;
	struct kvm_vm *vm;

	vm = vm_create_with_one_vcpu(&vcpu, two_loops);
	guest_stack_build(vm, &stacks[0], &layout);
	guest_stack_build(vm, &stacks[1], &layout);
	expect_loop(&first, &stacks[0], first_loop);
	expect_loop(&second, &stacks[1], second_loop);

	vcpu_regs_get(vcpu, &regs);
	/* KVM caches this RSP, which is above both stacks: with it, no frame would be found. */
	regs.rsp = BIT_ULL(46);
	regs.r8 = stacks[0].sp;
	regs.r9 = stacks[0].fp;
	regs.r10 = stacks[1].sp;
	regs.r11 = stacks[1].fp;
	vcpu_regs_set(vcpu, &regs);
	vcpu_set_if(vcpu);

	for (round = 0; round < MAX_ROUNDS && (loops.first.nr_guest < NR_SAMPLES ||
					       loops.second.nr_guest < NR_SAMPLES); round++)
		vcpu_run_sampled(vcpu, variant->source, NULL, NR_SAMPLES, compare_two_loops,
				 &loops);
	TEST_ASSERT(loops.first.nr_guest >= NR_SAMPLES && loops.second.nr_guest >= NR_SAMPLES,
		    "Only %u samples hit the first loop, %u the second one",
		    loops.first.nr_guest, loops.second.nr_guest);
	kvm_vm_free(vm);
}

/* Ring 1 counts as user mode, and so a walk reads what user mode can: not the kernel's stack. */
CALLCHAIN_TEST(modes, ring_1)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100 };
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_sregs sregs;
	struct kvm_vm *vm;

	vm = vm_create_looping(&vcpu, 4, false);
	guest_stack_build_and_use(vcpu, &stack, &layout, false);
	vcpu_sregs_get(vcpu, &sregs);
	sregs.cs.selector |= 1;
	sregs.cs.dpl = 1;
	sregs.ss.selector |= 1;
	sregs.ss.dpl = 1;
	vcpu_sregs_set(vcpu, &sregs);

	expect_guest_stack(&e, "ring 1", true, &stack, DEFAULT_MAX_STACK);
	e.nr = 2;
	vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(vm);
}

/* User mode's IP when it entered the guest's kernel, and where its stack is. */
#define USER_IP			0x401000ULL
#define USER_STACK_GVA		0x30000000ULL

/*
 * Linux' entry code leaves in RBP, and so in the outermost frame: zero at a system call, or an
 * encoded pointer to the registers that it has saved.  Other kernels leave user mode's RBP.
 */
static const struct entry_case {
	const char *name;
	bool encoded;
	bool of_user;
} entry_cases[] = {
	{ "system call" },
	{ "interrupt", .encoded = true },
	{ "user mode's frame pointer", .of_user = true },
};

/* A chain of the guest's kernel ends where user mode has entered the kernel. */
CALLCHAIN_TEST(modes, entered_by_user)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100, .far = true };
	const struct entry_case *c;

	for_each_case(c, entry_cases) {
		struct callchain_expectation e;
		struct guest_stack stack;
		struct kvm_vcpu *vcpu;
		struct kvm_vm *vm;
		gva_t user, outermost;

		vm = vm_create_looping(&vcpu, 4, false);
		user = vm_alloc(vm, PAGE_SIZE, USER_STACK_GVA);
		vm_set_user_accessible(vm, user, 1);
		write_guest_word(vm, user, user + 16);
		write_guest_word(vm, user + 8, USER_IP);
		guest_stack_build_and_use(vcpu, &stack, &layout, false);
		TEST_ASSERT(stack.gva > user, "The kernel's stack is below user mode's");
		expect_guest_stack(&e, c->name, false, &stack, DEFAULT_MAX_STACK);
		guest_stack_enter_linux(vm, &stack, USER_IP, &e);
		outermost = stack.frames[stack.nr_frames];
		if (c->encoded)
			write_guest_word(vm, outermost, (outermost + 16) | 1);
		if (c->of_user)
			write_guest_word(vm, outermost, user);
		vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);
		kvm_vm_free(vm);
	}
}

static void switch_cr3_and_loop(void)
{
	asm volatile("mov %%rax, %%cr3; jmp guest_loop" : : );
}

CALLCHAIN_TEST(modes, cr3)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100, .far = true };
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_sregs sregs;
	struct kvm_regs regs;
	struct kvm_vm *vm;
	gpa_t decoy;

	vm = vm_create_looping(&vcpu, 4, false);
	guest_stack_build(vm, &stack, &layout);
	guest_stack_use(vcpu, &stack, (gva_t)switch_cr3_and_loop);
	expect_guest_stack(&e, "new CR3", false, &stack, DEFAULT_MAX_STACK);

	decoy = vm_phy_page_alloc(vm, KVM_GUEST_PAGE_TABLE_MIN_PADDR, 0);
	memcpy(addr_gpa2hva(vm, decoy), addr_gpa2hva(vm, vm->mmu.pgd), PAGE_SIZE);
	((u64 *)addr_gpa2hva(vm, decoy))[(stack.gva >> 39) & 511] = 0;

	vcpu_regs_get(vcpu, &regs);
	regs.rax = vm->mmu.pgd;
	vcpu_regs_set(vcpu, &regs);
	vcpu_sregs_get(vcpu, &sregs);
	sregs.cr3 = decoy;
	vcpu_sregs_set(vcpu, &sregs);

	run_to_loop(vcpu, variant->source, e.ip);
	vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(vm);
}

#define SMRAM_GPA	0x1000000
#define SMM_STACK_GPA	0x4000
#define SMM_STACK_SLOT	0x10002	/* in address space 1, that of SMM */

/* SMM's code runs in real mode.  Its stack lies where the guest has other memory outside of SMM. */
CALLCHAIN_TEST(modes, smm)
{
	static u16 smm_stack[PAGE_SIZE / sizeof(u16)] __aligned(PAGE_SIZE);
	const u16 frames[] = { SMM_STACK_GPA + 4, 0x1234, SMM_STACK_GPA + 8, 0x5678, 0, 0 };
	const u64 loop = SMRAM_GPA + 0x8000 + 1;
	struct callchain_expectation e = {
		.name = "SMM",
		.cpumode = PERF_RECORD_MISC_GUEST_KERNEL,
		.ip = loop,
		.nr = 4,
		.ips = { PERF_CONTEXT_GUEST_KERNEL, loop, SMRAM_GPA + 0x1234,
			 SMRAM_GPA + 0x5678 },
	};
	struct kvm_vcpu *vcpu;
	struct kvm_regs regs;
	struct kvm_vm *vm;

	if (!kvm_has_cap(KVM_CAP_X86_SMM))
		SKIP(return, "The host has no SMM for guests");
	SKIP_UNLESS_UNRESTRICTED();

	vm = vm_create_with_one_vcpu(&vcpu, guest_loop);
	/* sti; 1: jmp 1b.  An SMI clears RFLAGS.IF, see vcpu_set_if(). */
	setup_smram(vm, vcpu, SMRAM_GPA, "\xfb\xeb\xfe", 3);
	vm_set_user_memory_region(vm, SMM_STACK_SLOT, 0, SMM_STACK_GPA, PAGE_SIZE, smm_stack);
	/* Two frames, and one without return address. */
	memcpy(smm_stack, frames, sizeof(frames));

	vcpu_regs_get(vcpu, &regs);
	regs.rsp = SMM_STACK_GPA;
	regs.rbp = SMM_STACK_GPA;
	vcpu_regs_set(vcpu, &regs);
	inject_smi(vcpu);

	run_to_loop(vcpu, variant->source, e.ip);
	vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(vm);
}

/* The state in which L2 begins, and in which it continues after an exit. */
static struct l2 {
	u64 rip;
	u64 rsp;
	u64 rbp;
	u64 cr3;
	u64 pdptes[4];	/* with EPT, VMX takes them from the VMCS */
	bool user;
	bool pae;
} l2;

/*
 * L2 spins for a while, so that an NMI can hit it, and exits to L1, which resumes it from
 * the beginning.
 */
void l2_vmcall(void);
void l2_vmmcall(void);
asm(".pushsection .text\n"
    "l2_vmcall: mov $500, %ecx; loop .; vmcall; ud2\n"
    "l2_vmmcall: mov $500, %ecx; loop .; vmmcall; ud2\n"
    ".popsection");

#define L2_CODE_SIZE	12

#define AR_BYTES_DPL_3	(3 << 5)
#define AR_BYTES_L	BIT(13)
#define AR_BYTES_DB	BIT(14)

static void l1_vmx_code(struct vmx_pages *vmx)
{
	unsigned int i;

	GUEST_ASSERT(prepare_for_vmx_operation(vmx));
	GUEST_ASSERT(load_vmcs(vmx));
	prepare_vmcs(vmx, (void *)l2.rip);
	vmwrite(GUEST_RSP, l2.rsp);
	vmwrite(GUEST_CR3, l2.cr3);
	/* See vcpu_set_if(). */
	vmwrite(GUEST_RFLAGS, X86_EFLAGS_FIXED | X86_EFLAGS_IF);
	if (l2.user) {
		vmwrite(GUEST_CS_SELECTOR, vmreadz(GUEST_CS_SELECTOR) | 3);
		vmwrite(GUEST_CS_AR_BYTES, vmreadz(GUEST_CS_AR_BYTES) | AR_BYTES_DPL_3);
		vmwrite(GUEST_SS_SELECTOR, vmreadz(GUEST_SS_SELECTOR) | 3);
		vmwrite(GUEST_SS_AR_BYTES, vmreadz(GUEST_SS_AR_BYTES) | AR_BYTES_DPL_3);
	}
	if (l2.pae) {
		vmwrite(VM_ENTRY_CONTROLS, vmreadz(VM_ENTRY_CONTROLS) & ~VM_ENTRY_IA32E_MODE);
		vmwrite(GUEST_CS_AR_BYTES,
			(vmreadz(GUEST_CS_AR_BYTES) & ~AR_BYTES_L) | AR_BYTES_DB);
		for (i = 0; i < ARRAY_SIZE(l2.pdptes); i++)
			vmwrite(GUEST_PDPTR0 + 2 * i, l2.pdptes[i]);
	}

	guest_regs.rbp = l2.rbp;
	GUEST_ASSERT(!vmlaunch());
	while (vmreadz(VM_EXIT_REASON) == EXIT_REASON_VMCALL) {
		vmwrite(GUEST_RIP, l2.rip);
		GUEST_ASSERT(!vmresume());
	}
	GUEST_FAIL("L2 exited to L1 with 0x%lx", vmreadz(VM_EXIT_REASON));
}

static void l1_svm_code(struct svm_test_data *svm)
{
	struct vmcb_save_area *save = &svm->vmcb->save;

	generic_svm_setup(svm, NULL);
	save->rsp = l2.rsp;
	save->cr3 = l2.cr3;
	if (l2.user) {
		save->cpl = 3;
		save->cs.attrib |= SVM_SELECTOR_DPL_MASK;
		save->ss.attrib |= SVM_SELECTOR_DPL_MASK;
	}
	if (l2.pae) {
		save->cs.attrib &= ~SVM_SELECTOR_L_MASK;
		save->cs.attrib |= SVM_SELECTOR_DB_MASK;
		save->efer = EFER_SVME;
		save->cr4 = X86_CR4_PAE;
	}

	guest_regs.rbp = l2.rbp;
	do {
		save->rip = l2.rip;
		run_guest(svm->vmcb, svm->vmcb_gpa);
	} while (svm->vmcb->control.exit_code == SVM_EXIT_VMMCALL);
	GUEST_FAIL("L2 exited to L1 with 0x%lx", (u64)svm->vmcb->control.exit_code);
}

static void l1_code(void *nested)
{
	if (this_cpu_has(X86_FEATURE_VMX))
		l1_vmx_code(nested);
	else
		l1_svm_code(nested);
}

#define SKIP_UNLESS_NESTED(_tdp)						\
do {										\
	if (!kvm_cpu_has(X86_FEATURE_SVM) && !kvm_cpu_has(X86_FEATURE_VMX))	\
		SKIP(return, "The host can't nest guests");			\
	if ((_tdp) && !kvm_cpu_has_tdp())					\
		SKIP(return, "The host can't give guests NPT or EPT");		\
} while (0)

static struct kvm_vm *create_nested_guest(struct kvm_vcpu **vcpu, bool tdp)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, l1_code);
	gva_t nested_gva;

	if (tdp)
		vm_enable_tdp(vm);
	if (kvm_cpu_has(X86_FEATURE_VMX))
		vcpu_alloc_vmx(vm, &nested_gva);
	else
		vcpu_alloc_svm(vm, &nested_gva);
	vcpu_args_set(*vcpu, 1, nested_gva);
	vcpu_set_if(*vcpu);
	l2 = (struct l2){ .rip = (u64)guest_loop, .cr3 = vm->mmu.pgd };
	return vm;
}

static void build_l2_stack(struct kvm_vm *vm, struct guest_stack *stack,
			   const struct guest_stack_layout *layout)
{
	guest_stack_build(vm, stack, layout);
	l2.rsp = stack->sp;
	l2.rbp = stack->fp;
}

/*
 * L2's stack must be read through both levels of translation: with NPT or EPT, L1 maps
 * one page of the stack to another page, which has another return address.
 */
static void test_nested(enum pmi_source source, bool tdp)
{
	const struct guest_stack_layout layout = { NR_FRAMES, PAGE_SIZE, 0x7f0, .far = true };
	const unsigned int moved = 3;
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	u64 *tdp_ptes[2];
	struct kvm_vm *vm;
	unsigned int i;
	u64 accessed;
	gva_t gva;

	vm = create_nested_guest(&vcpu, tdp);
	accessed = tdp ? PTE_ACCESSED_MASK(&vm->stage2_mmu) : 0;
	build_l2_stack(vm, &stack, &layout);
	sync_global_to_guest(vm, l2);

	if (tdp) {
		gpa_t gpa = addr_gva2gpa(vm, stack.frames[moved] & PAGE_MASK);
		gva_t other = vm_alloc_page(vm);

		tdp_identity_map_default_memslots(vm);
		memcpy(addr_gva2hva(vm, other), addr_gpa2hva(vm, gpa), PAGE_SIZE);
		stack.ras[moved] ^= BIT(20);
		gva = other + (stack.frames[moved] & ~PAGE_MASK) + 8;
		*(u64 *)addr_gva2hva(vm, gva) = stack.ras[moved];
		tdp_ptes[0] = tdp_get_pte(vm, gpa);
		*tdp_ptes[0] &= ~PHYSICAL_PAGE_MASK;
		*tdp_ptes[0] |= addr_gva2gpa(vm, other);

		/* This lowest page table maps only the stack, so L2 itself never reads it. */
		gpa = PTE_GET_PA(*vm_get_pte_level(vm, stack.frames[moved], PG_LEVEL_2M));
		tdp_ptes[1] = tdp_get_pte(vm, gpa);
		for (i = 0; i < ARRAY_SIZE(tdp_ptes); i++)
			*tdp_ptes[i] &= ~accessed;
		/* A walk must not ask for the right to set bits in it, either. */
		*tdp_ptes[1] &= ~PTE_WRITABLE_MASK(&vm->stage2_mmu);
	}

	expect_guest_stack(&e, tdp ? "L2 with NPT or EPT" : "L2 with shadow paging", false,
			   &stack, DEFAULT_MAX_STACK);
	run_to_loop(vcpu, source, e.ip);
	vcpu_run_and_compare(vcpu, source, NULL, NR_SAMPLES, &e);
	for (i = 0; tdp && i < ARRAY_SIZE(tdp_ptes); i++)
		TEST_ASSERT(!(*tdp_ptes[i] & accessed),
			    "Sampling set the Accessed bit of an entry in L1's NPT or EPT: 0x%lx",
			    *tdp_ptes[i]);
	kvm_vm_free(vm);
}

CALLCHAIN_TEST(modes, nested)
{
	SKIP_UNLESS_NESTED(false);
	test_nested(variant->source, false);
}

CALLCHAIN_TEST(modes, nested_tdp)
{
	SKIP_UNLESS_NESTED(true);
	test_nested(variant->source, true);
}

struct l2_comparison {
	struct callchain_comparison c;
	struct callchain_expectation e;
};

/* Samples hit L1 as well; skip them. */
static void compare_l2_sample(const struct callchain_sample *s, void *arg)
{
	struct l2_comparison *l2c = arg;

	if (callchain_sample_is_guest(s)) {
		if (s->ip - l2.rip >= L2_CODE_SIZE)
			return;
		l2c->e.ip = s->ip;
		l2c->e.ips[1] = s->ip;
	}
	callchain_compare(s, &l2c->c);
}

/*
 * A PMI that comes as L2 exits hits L2, and has L2's stack, although the vCPU's
 * thread is about to switch to L1, which has no such stack.  An NMI hits a guest
 * only by an exit of its own, so it hits L2 while L2 spins.
 */
CALLCHAIN_TEST(modes, nested_exits)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100, .far = true };
	struct l2_comparison l2c = { .c = { .expected = &l2c.e } };
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_sregs sregs;
	unsigned int round;
	struct kvm_vm *vm;
	u64 *root;

	SKIP_UNLESS_NESTED(false);

	vm = create_nested_guest(&vcpu, false);
	if (vm->mmu.pgtable_levels == 5)
		vcpu_use_4_level_paging(vcpu);
	build_l2_stack(vm, &stack, &layout);
	l2.cr3 = vm->mmu.pgd;
	l2.rip = kvm_cpu_has(X86_FEATURE_VMX) ? (u64)l2_vmcall : (u64)l2_vmmcall;
	sync_global_to_guest(vm, l2);

	/* L1's page tables map all but the stack. */
	vcpu_sregs_get(vcpu, &sregs);
	sregs.cr3 = vm_phy_page_alloc(vm, KVM_GUEST_PAGE_TABLE_MIN_PADDR, 0);
	root = addr_gpa2hva(vm, sregs.cr3);
	memcpy(root, addr_gpa2hva(vm, vm->mmu.pgd), PAGE_SIZE);
	root[(stack.gva >> 39) & 511] = 0;
	vcpu_sregs_set(vcpu, &sregs);

	expect_guest_stack(&l2c.e, "L2 that exits", false, &stack, DEFAULT_MAX_STACK);
	for (round = 0; round < MAX_ROUNDS && l2c.c.nr_guest < NR_SAMPLES; round++)
		vcpu_run_sampled(vcpu, variant->source, NULL, 4 * NR_SAMPLES,
				 compare_l2_sample, &l2c);
	TEST_ASSERT(l2c.c.nr_guest >= NR_SAMPLES, "Only %u samples of %u hit L2",
		    l2c.c.nr_guest, round * 4 * NR_SAMPLES);
	kvm_vm_free(vm);
}

static void test_nested_user(enum pmi_source source, bool tdp)
{
	const struct guest_stack_layout layout = { NR_FRAMES, PAGE_SIZE, 0x7f0, .far = true };
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	vm = create_nested_guest(&vcpu, tdp);
	build_l2_stack(vm, &stack, &layout);
	vm_set_user_accessible(vm, (gva_t)guest_loop & PAGE_MASK, 1);
	vm_set_user_accessible(vm, stack.gva, stack.nr_pages);
	if (tdp)
		tdp_identity_map_default_memslots(vm);
	l2.user = true;
	sync_global_to_guest(vm, l2);

	expect_guest_stack(&e, tdp ? "user mode of L2 with NPT or EPT" : "user mode of L2", true,
			   &stack, DEFAULT_MAX_STACK);
	run_to_loop(vcpu, source, e.ip);
	vcpu_run_and_compare(vcpu, source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(vm);
}

CALLCHAIN_TEST(modes, nested_user)
{
	SKIP_UNLESS_NESTED(false);
	test_nested_user(variant->source, false);
	if (kvm_cpu_has_tdp())
		test_nested_user(variant->source, true);
}

/*
 * Clear L2's PDPTEs in L1's memory at the address in L2's CR3: a walk that looks there finds
 * none.  SVM reads them from where L1's NPT maps that address, VMX has them in the VMCS.
 */
CALLCHAIN_TEST(modes, nested_tdp_pae)
{
	const struct mode mode = { "PAE mode of L2", PAGING_PAE, 4 };
	const gpa_t pdpt = MEM_GPA + TABLES_OFF, moved = HIGH_MEM_GPA;
	struct mode_guest g = { .mode = &mode };
	struct callchain_expectation e;
	struct kvm_regs regs;
	u64 *pte;

	SKIP_UNLESS_NESTED(true);

	g.vm = create_nested_guest(&g.vcpu, true);
	vm_userspace_mem_region_add(g.vm, VM_MEM_SRC_ANONYMOUS, MEM_GPA, MEM_SLOT, MEM_PAGES, 0);
	vm_userspace_mem_region_add(g.vm, VM_MEM_SRC_ANONYMOUS, HIGH_MEM_GPA, HIGH_MEM_SLOT,
				    MEM_PAGES, 0);
	memcpy(addr_gpa2hva(g.vm, MEM_GPA + CODE_OFF), code, sizeof(code));
	build_tables(&g);
	build_stack(&g, &regs, &e);

	tdp_identity_map_default_memslots(g.vm);
	tdp_map(g.vm, MEM_GPA, MEM_GPA, MEM_PAGES * PAGE_SIZE);
	memcpy(l2.pdptes, addr_gpa2hva(g.vm, g.cr3), sizeof(l2.pdptes));
	if (!kvm_cpu_has(X86_FEATURE_VMX))
		memcpy(addr_gpa2hva(g.vm, moved), addr_gpa2hva(g.vm, pdpt), PAGE_SIZE);
	memset(addr_gpa2hva(g.vm, pdpt), 0, PAGE_SIZE);
	pte = tdp_get_pte(g.vm, pdpt);
	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | moved;

	l2.rip = e.ip;
	l2.rsp = regs.rsp;
	l2.rbp = (u32)regs.rbp;
	l2.cr3 = g.cr3;
	l2.pae = true;
	sync_global_to_guest(g.vm, l2);

	/* KVM has L2's PDPTEs, but doesn't read them for callchains. */
	e.nr = 2;
	run_to_loop(g.vcpu, variant->source, e.ip);
	vcpu_run_and_compare(g.vcpu, variant->source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(g.vm);
}

TEST_HARNESS_MAIN
