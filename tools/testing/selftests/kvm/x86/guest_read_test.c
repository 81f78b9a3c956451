// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads of a guest's registers and memory for the samples of an event, see struct perf_guest_read.
 * Each record is compared, whole, with what the guest has.
 */
#include <asm/perf_regs.h>
#include <linux/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "callchain_harness.h"

#define SYSCTL		"/proc/sys/kernel/perf_event_guest_callchain"
#define NR_SAMPLES	10
#define NR_FRAMES	16
#define MAX_ROUNDS	500

#define ALLOW		KVM_GUEST_CALLCHAIN_ALLOW
#define ALLOW_READ	(KVM_GUEST_CALLCHAIN_ALLOW | KVM_GUEST_CALLCHAIN_ALLOW_READ)
#define FORBID		KVM_GUEST_CALLCHAIN_FORBID

#define IN_KERNEL	PERF_GUEST_READ_IN_KERNEL
#define IN_USER		PERF_GUEST_READ_IN_USER
#define AS_USER		PERF_GUEST_READ_AS_USER
#define IN_BOTH		(IN_KERNEL | IN_USER)

/* Two pages of data, and then none.  The kernel alone may read the second one. */
#define DATA_GVA	0x50000000ULL

/* Pages in the upper half of the addresses: per-CPU data, and the last page of all. */
#define PERCPU_GVA	0xffff888000000000ULL
#define TOP_GVA		0xfffffffffffff000ULL

/* Nothing is mapped there; the second address is not canonical. */
#define UNMAPPED_GVA	0x60000000ULL
#define NONCANONICAL_GVA BIT_ULL(62)

/* The most that one read may ask for, if it is alone: a record has 16 bits for its size. */
#define MAX_SIZE	65216

/* All registers that perf knows, but those segments that it refuses in 64-bit mode. */
#define ALL_REGS	(GENMASK_ULL(PERF_REG_X86_SS, PERF_REG_X86_AX) | \
			 GENMASK_ULL(PERF_REG_X86_R15, PERF_REG_X86_R8))

/*
 * struct expectation - what each record must have
 * @chain:	of the sample
 * @vm:		the VM
 * @reads:	the event's reads
 * @addr:	the last address of each; zero if it can't be found
 * @size:	how many bytes there can be read
 * @none:	there is no record
 * @abi:	PERF_SAMPLE_REGS_ABI_*
 * @root:	CR3
 * @regs:	registers, by perf's numbers
 * @nr_guest:	how many samples of the guest were compared
 */
struct expectation {
	struct callchain_expectation chain;
	struct kvm_vm *vm;
	struct perf_guest_reads reads;
	u64 addr[PERF_GUEST_READ_MAX];
	u64 size[PERF_GUEST_READ_MAX];
	bool none;
	u64 abi;
	u64 root;
	u64 regs[PERF_REG_X86_64_MAX];
	unsigned int nr_guest;
};

FIXTURE(read)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct guest_stack stack;
	struct expectation e;
};

FIXTURE_VARIANT(read)
{
	enum pmi_source source;
	bool user;
};

PMI_VARIANTS(read, _kernel, .user = false);
PMI_VARIANTS(read, _user, .user = true);

/* As addr_gva2hva(), which works only for the lower half of the addresses. */
static void *gva2hva(struct kvm_vm *vm, gva_t gva)
{
	u64 *pte = vm_get_pte_level(vm, gva, PG_LEVEL_4K);

	return addr_gpa2hva(vm, PTE_GET_PA(*pte)) + gva % PAGE_SIZE;
}

static void write_word(struct kvm_vm *vm, gva_t gva, u64 word)
{
	*(u64 *)gva2hva(vm, gva) = word;
}

/* Let no two words of the page be the same, but leave alone those that aren't zero. */
static void fill_page(struct kvm_vm *vm, gva_t gva)
{
	u64 *words = gva2hva(vm, gva);
	unsigned int i;

	for (i = 0; i < PAGE_SIZE / sizeof(*words); i++) {
		if (!words[i])
			words[i] = (gva + i * sizeof(*words)) * 0x9e3779b97f4a7c15ULL;
	}
}

static void map_upper_page(struct kvm_vm *vm, gva_t gva)
{
	virt_pg_map(vm, gva, vm_phy_page_alloc(vm, KVM_GUEST_PAGE_TABLE_MIN_PADDR, 0));
	fill_page(vm, gva);
}

FIXTURE_SETUP(read)
{
	const struct guest_stack_layout layout = { NR_FRAMES, PAGE_SIZE, 0x7f0 };
	struct kvm_vm *vm;
	unsigned int i;

	SKIP_UNLESS_PMI(variant->source);
	vm = vm_create_looping(&self->vcpu, 4, variant->user);
	self->vm = vm;
	vm_enable_cap(vm, KVM_CAP_GUEST_CALLCHAIN, ALLOW_READ);

	guest_stack_build_and_use(self->vcpu, &self->stack, &layout, variant->user);
	/* The outermost frame, on the last page, has zeroes. */
	for (i = 0; i < self->stack.nr_pages - 1; i++)
		fill_page(vm, self->stack.gva + i * PAGE_SIZE);
	write_word(vm, self->stack.frames[NR_FRAMES], 0);
	write_word(vm, self->stack.frames[NR_FRAMES] + 8, 0);

	TEST_ASSERT_EQ(vm_alloc(vm, 2 * PAGE_SIZE, DATA_GVA), DATA_GVA);
	vm_set_user_accessible(vm, DATA_GVA, 1);
	*vm_get_pte_level(vm, DATA_GVA + PAGE_SIZE, PG_LEVEL_4K) &= ~PTE_USER_MASK(&vm->mmu);
	fill_page(vm, DATA_GVA);
	fill_page(vm, DATA_GVA + PAGE_SIZE);

	self->e.vm = vm;
	expect_guest_stack(&self->e.chain, "reads", variant->user, &self->stack,
			   DEFAULT_MAX_STACK);
}

FIXTURE_TEARDOWN(read)
{
	host_restore();
	kvm_vm_free(self->vm);
}

/* Compare the read that begins at @head, return its end. */
static const u64 *compare_read(const struct expectation *e, unsigned int nr, const u64 *head,
			       const u64 *end)
{
	const u64 size = e->addr[nr] ? e->reads.read[nr].size : 0;
	const u64 *dyn_size = &head[2 + size / sizeof(u64)];
	const u8 *data = (const u8 *)&head[2];
	u64 i;

	TEST_ASSERT(dyn_size + !!size <= end, "%s: the record ends in read %u", e->chain.name, nr);
	TEST_ASSERT(head[0] == e->addr[nr] && head[1] == size,
		    "%s: read %u has %lu bytes at 0x%lx, not %lu at 0x%lx", e->chain.name, nr,
		    head[1], head[0], size, e->addr[nr]);
	if (!size)
		return dyn_size;

	TEST_ASSERT(*dyn_size == e->size[nr], "%s: read %u has %lu bytes at 0x%lx, not %lu",
		    e->chain.name, nr, *dyn_size, head[0], e->size[nr]);
	for (i = 0; i < e->size[nr]; i++) {
		u8 byte = *(u8 *)gva2hva(e->vm, head[0] + i);

		TEST_ASSERT(data[i] == byte, "%s: read %u: the byte at 0x%lx is 0x%x, not 0x%x",
			    e->chain.name, nr, head[0] + i, data[i], byte);
	}
	return dyn_size + 1;
}

static void compare_record(const struct callchain_sample *s, void *arg)
{
	struct expectation *e = arg;
	const char *name = e->chain.name;
	const u64 *pos = s->read, *end;
	unsigned int i;

	if (!callchain_sample_is_guest(s) || s->alone)
		return;

	e->nr_guest += callchain_sample_compare(s, &e->chain);
	TEST_ASSERT(e->none == !pos, "%s: there is %s record", name, pos ? "a" : "no");
	if (!pos)
		return;

	end = (const void *)pos + s->read_size;
	TEST_ASSERT(pos[0] == e->abi && pos[1] == e->root && pos[2] == e->reads.regs,
		    "%s: abi %lu, root 0x%lx, mask 0x%lx", name, pos[0], pos[1], pos[2]);
	pos += 3;
	for (i = 0; i < PERF_REG_X86_64_MAX; i++) {
		if (!(e->reads.regs & BIT_ULL(i)))
			continue;
		TEST_ASSERT(*pos == e->regs[i], "%s: register %u is 0x%lx, not 0x%lx", name, i,
			    *pos, e->regs[i]);
		pos++;
	}
	TEST_ASSERT(*pos == e->reads.nr, "%s: %lu reads, not %u", name, *pos, e->reads.nr);
	pos++;
	for (i = 0; i < e->reads.nr; i++)
		pos = compare_read(e, i, pos, end);
	TEST_ASSERT(pos == end, "%s: %lu bytes behind the last read", name,
		    (unsigned long)((void *)end - (void *)pos));
}

/* Expect the registers that the vCPU has now. */
static void expect_regs(struct expectation *e, struct kvm_vcpu *vcpu)
{
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	vcpu_regs_get(vcpu, &regs);
	vcpu_sregs_get(vcpu, &sregs);
	e->abi = sregs.cs.l ? PERF_SAMPLE_REGS_ABI_64 : PERF_SAMPLE_REGS_ABI_32;
	e->root = sregs.cr3;
	e->regs[PERF_REG_X86_AX] = regs.rax;
	e->regs[PERF_REG_X86_BX] = regs.rbx;
	e->regs[PERF_REG_X86_CX] = regs.rcx;
	e->regs[PERF_REG_X86_DX] = regs.rdx;
	e->regs[PERF_REG_X86_SI] = regs.rsi;
	e->regs[PERF_REG_X86_DI] = regs.rdi;
	e->regs[PERF_REG_X86_BP] = regs.rbp;
	e->regs[PERF_REG_X86_SP] = regs.rsp;
	e->regs[PERF_REG_X86_IP] = regs.rip;
	e->regs[PERF_REG_X86_FLAGS] = regs.rflags;
	e->regs[PERF_REG_X86_CS] = sregs.cs.selector;
	e->regs[PERF_REG_X86_SS] = sregs.ss.selector;
	e->regs[PERF_REG_X86_R8] = regs.r8;
	e->regs[PERF_REG_X86_R9] = regs.r9;
	e->regs[PERF_REG_X86_R10] = regs.r10;
	e->regs[PERF_REG_X86_R11] = regs.r11;
	e->regs[PERF_REG_X86_R12] = regs.r12;
	e->regs[PERF_REG_X86_R13] = regs.r13;
	e->regs[PERF_REG_X86_R14] = regs.r14;
	e->regs[PERF_REG_X86_R15] = regs.r15;
}

static void run_and_compare(struct kvm_vcpu *vcpu, enum pmi_source source, struct expectation *e)
{
	expect_regs(e, vcpu);
	e->nr_guest = 0;
	vcpu_run_until_guest_read(vcpu, source, &e->reads, NR_SAMPLES, compare_record, e,
				  &e->nr_guest);
}

/* Add a read, and what it must find. */
static void add_read(struct expectation *e, struct perf_guest_read read, u64 addr, u64 size)
{
	unsigned int nr = e->reads.nr++;

	TEST_ASSERT(nr < PERF_GUEST_READ_MAX, "Too many reads");
	e->reads.read[nr] = read;
	e->addr[nr] = addr;
	e->size[nr] = size;
}

static void start(struct expectation *e, const char *name)
{
	memset(&e->reads, 0, sizeof(e->reads));
	e->chain.name = name;
}

static struct perf_guest_read read_at(u64 address, u32 size, u16 flags)
{
	return (struct perf_guest_read) {
		.base = PERF_GUEST_READ_ADDRESS,
		.address = address,
		.size = size,
		.flags = flags,
	};
}

CALLCHAIN_TEST(read, registers)
{
	struct expectation *e = &self->e;
	struct kvm_regs regs;
	unsigned int i;

	vcpu_regs_get(self->vcpu, &regs);
	regs.rax = 0xa1a2a3a4a5a6a7a8;
	regs.rbx = 0xb1b2b3b4b5b6b7b8;
	regs.rcx = 0xc1c2c3c4c5c6c7c8;
	regs.rdx = 0xd1d2d3d4d5d6d7d8;
	regs.rsi = 0x5152535455565758;
	regs.rdi = 0xe1e2e3e4e5e6e7e8;
	regs.r8 = 0x8182838485868788;
	regs.r9 = 0x9192939495969798;
	regs.r10 = 0x1011121314151617;
	regs.r11 = 0x1112131415161718;
	regs.r12 = 0x1213141516171819;
	regs.r13 = 0x131415161718191a;
	regs.r14 = 0x1415161718191a1b;
	regs.r15 = 0x15161718191a1b1c;
	vcpu_regs_set(self->vcpu, &regs);

	start(e, "all registers");
	e->reads.regs = ALL_REGS;
	run_and_compare(self->vcpu, variant->source, e);

	for (i = PERF_REG_X86_AX; i < PERF_REG_X86_64_MAX; i += 3) {
		if (!(ALL_REGS & BIT_ULL(i)))
			continue;
		start(e, "one register");
		e->reads.regs = BIT_ULL(i);
		run_and_compare(self->vcpu, variant->source, e);
	}

	start(e, "nothing");
	run_and_compare(self->vcpu, variant->source, e);
}

/* Different sizes, one behind the other, and with offsets. */
CALLCHAIN_TEST(read, stack)
{
	static const u32 sizes[] = { 0, 8, 16, 72, 1000, 4096, 5000, 20000 };
	struct expectation *e = &self->e;
	const u64 sp = self->stack.sp;
	unsigned int i;

	start(e, "sizes");
	e->reads.regs = BIT_ULL(PERF_REG_X86_SP);
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		add_read(e, (struct perf_guest_read){
				.base = PERF_GUEST_READ_SP, .flags = IN_BOTH, .size = sizes[i],
			}, sp, sizes[i]);
	run_and_compare(self->vcpu, variant->source, e);

	start(e, "offsets");
	for (i = 0; i < 4; i++) {
		const s32 offset = (i & 1 ? -1 : 1) * 333 * (int)i;

		add_read(e, (struct perf_guest_read){
				.base = PERF_GUEST_READ_SP, .flags = IN_BOTH, .size = 104,
				.offset = { offset },
			}, sp + offset, 104);
	}
	run_and_compare(self->vcpu, variant->source, e);

	start(e, "as much as a record has room for");
	add_read(e, read_at(self->stack.gva, MAX_SIZE, IN_BOTH), self->stack.gva, MAX_SIZE);
	run_and_compare(self->vcpu, variant->source, e);
}

/* The stack pointer of code that is not 64-bit is an offset in its segment. */
CALLCHAIN_TEST(read, stack_segment)
{
	const u32 base = 0xf0000000;
	struct expectation *e = &self->e;
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	vcpu_sregs_get(self->vcpu, &sregs);
	sregs.cs.l = 0;
	sregs.cs.db = 1;
	sregs.ss.base = base;
	vcpu_sregs_set(self->vcpu, &sregs);
	vcpu_regs_get(self->vcpu, &regs);
	regs.rsp = (u32)(self->stack.sp - base);
	vcpu_regs_set(self->vcpu, &regs);

	start(e, "stack segment");
	e->reads.regs = ALL_REGS;
	e->chain.nr = 2;
	add_read(e, (struct perf_guest_read){
			.base = PERF_GUEST_READ_SP, .flags = IN_BOTH, .size = 64,
		}, self->stack.sp, 64);
	run_and_compare(self->vcpu, variant->source, e);
}

/* Each word leads to the next one; the last address need not be aligned. */
CALLCHAIN_TEST(read, derefs)
{
	struct expectation *e = &self->e;
	struct perf_guest_read read;

	/* The second word lies on the kernel's page. */
	write_word(self->vm, DATA_GVA + 0x100, DATA_GVA + PAGE_SIZE + 0x400);
	write_word(self->vm, DATA_GVA + PAGE_SIZE + 0x400 - 0x10, DATA_GVA + 0x300);

	start(e, "derefs");
	read = read_at(DATA_GVA, 24, IN_BOTH);
	read.nr_derefs = 1;
	read.offset[0] = 0x100;
	read.offset[1] = -0x10;
	add_read(e, read, DATA_GVA + PAGE_SIZE + 0x400 - 0x10, 24);

	read.nr_derefs = 2;
	read.offset[2] = 3;
	read.flags |= AS_USER;
	add_read(e, read, DATA_GVA + 0x303, 24);

	write_word(self->vm, DATA_GVA + 0x800, DATA_GVA + 0x900);
	write_word(self->vm, DATA_GVA + 0x908, DATA_GVA + 0xa00);
	write_word(self->vm, DATA_GVA + 0xa10, DATA_GVA + 0xb00);
	write_word(self->vm, DATA_GVA + 0xb18, DATA_GVA + 0xc00);
	read = read_at(DATA_GVA + 0x1000, 40, IN_BOTH);
	read.nr_derefs = 4;
	read.offset[0] = -0x800;
	read.offset[1] = 8;
	read.offset[2] = 0x10;
	read.offset[3] = 0x18;
	read.offset[4] = -0x20;
	add_read(e, read, DATA_GVA + 0xbe0, 40);

	/* Nothing is at the end of a way that breaks off. */
	read.offset[2] = 0x11;
	add_read(e, read, 0, 0);
	read.offset[2] = 0x7fffff0;
	add_read(e, read, 0, 0);
	read = read_at(NONCANONICAL_GVA, 8, IN_BOTH);
	read.nr_derefs = 1;
	add_read(e, read, 0, 0);
	read.address = UNMAPPED_GVA;
	add_read(e, read, 0, 0);
	run_and_compare(self->vcpu, variant->source, e);
}

/* The first word is where a stack ends: go on only if the stack pointer is on that stack. */
CALLCHAIN_TEST(read, within)
{
	static const struct {
		u64 end;	/* from the stack pointer on */
		u32 within;
		bool on_stack;
	} cases[] = {
		{ 0x1000, 0x1000, true },
		{ 0x1000, 0xfff, false },
		{ 1, 1, true },
		{ 0, 1, false },
		{ 0, ~0U, false },
		{ -8ULL, 0x1000, false },
		{ BIT_ULL(32), ~0U, false },
		{ BIT_ULL(32) - 1, ~0U, true },
	};
	struct expectation *e = &self->e;
	unsigned int i;

	start(e, "within");
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct perf_guest_read read = read_at(DATA_GVA + 8 * i, 16, IN_BOTH);
		const u64 end = self->stack.sp + cases[i].end;

		write_word(self->vm, DATA_GVA + 8 * i, end);
		read.nr_derefs = 1;
		read.within = cases[i].within;
		/* Read something else than the stack's end, which may not be mapped. */
		read.offset[1] = (s32)(u32)-cases[i].end;
		if (cases[i].end >> 31)
			read.size = 0;
		if (cases[i].on_stack)
			add_read(e, read, end + read.offset[1], read.size);
		else
			add_read(e, read, 0, 0);
	}
	run_and_compare(self->vcpu, variant->source, e);
}

static void set_gs(struct kvm_vcpu *vcpu, u64 base, u64 kernel_base)
{
	struct kvm_sregs sregs;

	vcpu_sregs_get(vcpu, &sregs);
	sregs.gs.base = base;
	vcpu_sregs_set(vcpu, &sregs);
	vcpu_set_msr(vcpu, MSR_KERNEL_GS_BASE, kernel_base);
}

/*
 * The kernel's GS base is in the MSR while user mode runs, and until SWAPGS.  User mode may set its
 * own to any address.
 */
CALLCHAIN_TEST(read, percpu)
{
	const struct perf_guest_read read = {
		.base = PERF_GUEST_READ_PERCPU, .flags = IN_BOTH, .size = 32, .offset = { 0x40 },
	};
	struct perf_guest_read deref = read, far = read;
	struct expectation *e = &self->e;

	map_upper_page(self->vm, PERCPU_GVA);
	write_word(self->vm, PERCPU_GVA + 0x80, DATA_GVA);
	deref.nr_derefs = 1;
	deref.offset[0] = 0x80;
	deref.offset[1] = 0x10;
	/* The sum of base and address may wrap around. */
	far.address = DATA_GVA - PERCPU_GVA;

	start(e, variant->user ? "user mode" : "before SWAPGS");
	add_read(e, read, PERCPU_GVA + 0x40, 32);
	add_read(e, deref, DATA_GVA + 0x10, 32);
	add_read(e, far, DATA_GVA + 0x40, 32);
	set_gs(self->vcpu, DATA_GVA, PERCPU_GVA);
	run_and_compare(self->vcpu, variant->source, e);

	e->chain.name = variant->user ? "user mode with a high GS base" : "kernel";
	if (variant->user)
		set_gs(self->vcpu, TOP_GVA, PERCPU_GVA);
	else
		set_gs(self->vcpu, PERCPU_GVA, DATA_GVA);
	run_and_compare(self->vcpu, variant->source, e);
}

/* A read with the rights of user mode ends where the kernel's page begins. */
CALLCHAIN_TEST(read, rights)
{
	const gva_t near_end = DATA_GVA + PAGE_SIZE - 20;
	struct expectation *e = &self->e;

	start(e, "rights");
	add_read(e, read_at(near_end, 40, IN_BOTH), near_end, 40);
	add_read(e, read_at(near_end, 40, IN_BOTH | AS_USER), near_end, 20);
	add_read(e, read_at(DATA_GVA + PAGE_SIZE, 40, IN_BOTH), DATA_GVA + PAGE_SIZE, 40);
	add_read(e, read_at(DATA_GVA + PAGE_SIZE, 40, IN_BOTH | AS_USER), DATA_GVA + PAGE_SIZE, 0);
	run_and_compare(self->vcpu, variant->source, e);
}

/* With SMAP, the kernel's rights don't reach user mode's pages, but user mode's do. */
CALLCHAIN_TEST(read, smap)
{
	struct expectation *e = &self->e;
	struct kvm_sregs sregs;

	if (!kvm_cpu_has(X86_FEATURE_SMAP))
		SKIP(return, "The host has no SMAP for guests");

	vcpu_sregs_get(self->vcpu, &sregs);
	sregs.cr4 |= X86_CR4_SMAP;
	vcpu_sregs_set(self->vcpu, &sregs);
	start(e, "SMAP");
	add_read(e, read_at(DATA_GVA, 40, IN_BOTH), DATA_GVA, 0);
	add_read(e, read_at(DATA_GVA, 40, IN_BOTH | AS_USER), DATA_GVA, 40);
	add_read(e, read_at(DATA_GVA + PAGE_SIZE, 40, IN_BOTH), DATA_GVA + PAGE_SIZE, 40);
	run_and_compare(self->vcpu, variant->source, e);
}

/* Which reads are made depends on the mode that was sampled. */
CALLCHAIN_TEST(read, modes)
{
	struct expectation *e = &self->e;
	const bool user = variant->user;

	start(e, "modes");
	add_read(e, read_at(DATA_GVA, 8, IN_KERNEL), user ? 0 : DATA_GVA, user ? 0 : 8);
	add_read(e, read_at(DATA_GVA, 16, IN_USER), user ? DATA_GVA : 0, user ? 16 : 0);
	add_read(e, read_at(DATA_GVA, 24, IN_BOTH), DATA_GVA, 24);
	add_read(e, read_at(DATA_GVA, 32, 0), 0, 0);
	add_read(e, read_at(DATA_GVA, 32, AS_USER), 0, 0);
	run_and_compare(self->vcpu, variant->source, e);
}

/* What can't be read ends the read.  Addresses don't wrap around. */
CALLCHAIN_TEST(read, unreadable)
{
	const gva_t end = DATA_GVA + 2 * PAGE_SIZE;
	struct expectation *e = &self->e;
	gva_t absent;

	/* What lies behind the last page, and behind the absent one, can be read. */
	map_upper_page(self->vm, TOP_GVA);
	map_upper_page(self->vm, 0);
	absent = vm_alloc(self->vm, 3 * PAGE_SIZE, UNMAPPED_GVA + BIT(24));
	fill_page(self->vm, absent);
	fill_page(self->vm, absent + 2 * PAGE_SIZE);
	TEST_ASSERT(!madvise(addr_gva2hva(self->vm, absent + PAGE_SIZE), PAGE_SIZE, MADV_DONTNEED),
		    "MADV_DONTNEED: %s", strerror(errno));

	start(e, "unreadable");
	add_read(e, read_at(UNMAPPED_GVA, 8, IN_BOTH), UNMAPPED_GVA, 0);
	add_read(e, read_at(NONCANONICAL_GVA, 8, IN_BOTH), NONCANONICAL_GVA, 0);
	add_read(e, read_at(end - 5, 104, IN_BOTH), end - 5, 5);
	add_read(e, read_at(absent + PAGE_SIZE - 11, 104, IN_BOTH), absent + PAGE_SIZE - 11, 11);
	add_read(e, read_at(-9ULL, 104, IN_BOTH), -9ULL, 9);
	add_read(e, read_at(-1ULL, 8, IN_BOTH), -1ULL, 1);
	add_read(e, read_at(TOP_GVA, PAGE_SIZE + 8, IN_BOTH), TOP_GVA, PAGE_SIZE);
	add_read(e, read_at(BIT_ULL(47) - 4, 8, IN_BOTH), BIT_ULL(47) - 4, 0);
	run_and_compare(self->vcpu, variant->source, e);

	start(e, "unreadable twice");
	add_read(e, read_at(DATA_GVA, 8, IN_BOTH), DATA_GVA, 8);
	add_read(e, read_at(end, 8, IN_BOTH), end, 0);
	add_read(e, read_at(end + 8, 8, IN_BOTH), end + 8, 0);
	run_and_compare(self->vcpu, variant->source, e);
}

static const struct policy_case {
	const char *name;
	int sysctl;
	u64 said[2];
	bool chain;
	bool reads;
} policy_cases[] = {
	{ "0, reads allowed",		0, { ALLOW_READ } },
	{ "1",				1, {} },
	{ "1, allowed",			1, { ALLOW }, true },
	{ "1, reads allowed",		1, { ALLOW_READ }, true, true },
	{ "2",				2, {}, true },
	{ "2, allowed",			2, { ALLOW }, true },
	{ "2, reads allowed",		2, { ALLOW_READ }, true, true },
	{ "2, reads allowed, no more",	2, { ALLOW_READ, ALLOW }, true },
	{ "2, allowed, reads, too",	2, { ALLOW, ALLOW_READ }, true, true },
	{ "2, forbidden",		2, { ALLOW_READ, FORBID } },
	{ "3",				3, {}, true, true },
	{ "3, allowed",			3, { ALLOW }, true, true },
	{ "3, forbidden",		3, { FORBID } },
};

PMI_FIXTURE(policy)

CALLCHAIN_TEST(policy, of_admin_and_vmm)
{
	const struct guest_stack_layout layout = { NR_FRAMES, 64, 0x100 };
	const struct policy_case *c;

	for_each_case(c, policy_cases) {
		struct guest_stack stack;
		struct expectation e = {};
		struct kvm_vcpu *vcpu;
		unsigned int i;

		SKIP_UNLESS_OVERRIDDEN(SYSCTL, c->sysctl);
		e.vm = vm_create_looping(&vcpu, 4, false);
		for (i = 0; i < ARRAY_SIZE(c->said) && c->said[i]; i++)
			vm_enable_cap(e.vm, KVM_CAP_GUEST_CALLCHAIN, c->said[i]);
		guest_stack_build_and_use(vcpu, &stack, &layout, false);
		expect_guest_stack(&e.chain, c->name, false, &stack, DEFAULT_MAX_STACK);
		if (!c->chain)
			e.chain.nr = 2;
		e.none = !c->reads;
		start(&e, c->name);
		add_read(&e, (struct perf_guest_read){
				.base = PERF_GUEST_READ_SP, .flags = IN_BOTH, .size = 64,
			}, stack.sp, 64);
		run_and_compare(vcpu, variant->source, &e);
		kvm_vm_free(e.vm);
	}
}

/*
 * Events that share exits get what each has asked for.  The first one changes its mind, and the
 * last one asks for nothing.
 */
CALLCHAIN_TEST(read, event_of_each)
{
	struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct callchain_event events[3];
	struct expectation es[3], *e;
	unsigned int i, round, nr_guest = 0;

	for (i = 0; i < ARRAY_SIZE(events); i++) {
		e = &es[i];
		*e = self->e;
		expect_regs(e, self->vcpu);
		start(e, "each event");
		e->none = i == 2;
		attr.guest_read = !e->none;
		attr.sample_period = 300000 + 5000 * i;
		/* The PMU of NMIs may take only one event per CPU. */
		TEST_ASSERT(!callchain_event_open(&events[i], i ? PMI_IRQ : variant->source, &attr,
						  0, -1), "perf_event_open(): %s", strerror(errno));
		events[i].may_lose = true;
	}
	add_read(&es[0], read_at(DATA_GVA, 512, IN_BOTH), DATA_GVA, 512);
	callchain_event_set_reads(&events[0], &es[0].reads);
	start(&es[0], "first event");
	es[0].reads.regs = BIT_ULL(PERF_REG_X86_SP) | BIT_ULL(PERF_REG_X86_R8);
	add_read(&es[0], (struct perf_guest_read){
			.base = PERF_GUEST_READ_SP, .flags = IN_BOTH, .size = 1000,
		}, self->stack.sp, 1000);
	callchain_event_set_reads(&events[0], &es[0].reads);
	add_read(&es[1], read_at(DATA_GVA + 24, 16, IN_BOTH), DATA_GVA + 24, 16);
	callchain_event_set_reads(&events[1], &es[1].reads);

	for (i = 0; i < ARRAY_SIZE(events); i++)
		callchain_event_enable(&events[i]);
	for (round = 0; round < MAX_ROUNDS && nr_guest < 2 * NR_SAMPLES; round++) {
		vcpu_run_until_sampled(self->vcpu, &events[0], false);
		nr_guest = ~0U;
		for (i = 0; i < ARRAY_SIZE(events); i++) {
			callchain_event_read(&events[i], compare_record, &es[i]);
			nr_guest = min(nr_guest, es[i].nr_guest);
		}
	}
	for (i = 0; i < ARRAY_SIZE(events); i++)
		callchain_event_close(&events[i]);
	TEST_ASSERT(nr_guest >= 2 * NR_SAMPLES, "Only %u samples", nr_guest);
}

/* An event that may have reads, but has set none, has no records of them. */
CALLCHAIN_TEST(read, none_set)
{
	const struct perf_event_attr attr = { .guest_read = 1 };
	struct expectation *e = &self->e;

	e->none = true;
	vcpu_run_until_guest_sampled(self->vcpu, variant->source, &attr, NR_SAMPLES,
				     compare_record, e, &e->nr_guest);
}

FIXTURE(set_reads)
{
	struct callchain_event event;
};

FIXTURE_SETUP(set_reads)
{
	const struct perf_event_attr attr = { .guest_read = 1 };

	SKIP_UNLESS_PMI(PMI_IRQ);
	TEST_ASSERT(!callchain_event_open(&self->event, PMI_IRQ, &attr, 0, -1),
		    "perf_event_open(): %s", strerror(errno));
}

FIXTURE_TEARDOWN(set_reads)
{
	callchain_event_close(&self->event);
}

static void expect_set(struct callchain_event *event, const struct perf_guest_reads *reads,
		       const char *what, int err)
{
	int r = ioctl(event->fd, PERF_EVENT_IOC_SET_GUEST_READS, reads);

	TEST_ASSERT(err ? r == -1 && errno == err : !r, "%s: the ioctl returned %d, errno %d", what,
		    r, errno);
}

TEST_F(set_reads, errors)
{
	const struct perf_guest_read good = read_at(DATA_GVA, 8, IN_BOTH);
	struct callchain_event other;
	struct perf_guest_reads reads = {};
	unsigned int i;

	expect_set(&self->event, &reads, "nothing", 0);
	expect_set(&self->event, NULL, "no address", EFAULT);

	for (i = 0; i < PERF_GUEST_READ_MAX; i++)
		reads.read[i] = good;
	reads.nr = PERF_GUEST_READ_MAX;
	expect_set(&self->event, &reads, "eight reads", 0);
	reads.nr++;
	expect_set(&self->event, &reads, "nine reads", EINVAL);

	reads.nr = 1;
	reads.__reserved = 1;
	expect_set(&self->event, &reads, "a reserved field", EINVAL);
	reads.__reserved = 0;

	reads.regs = ALL_REGS;
	expect_set(&self->event, &reads, "all registers", 0);
	reads.regs = BIT_ULL(PERF_REG_X86_GS);
	expect_set(&self->event, &reads, "a register that perf refuses", EINVAL);
	reads.regs = BIT_ULL(PERF_REG_X86_64_MAX);
	expect_set(&self->event, &reads, "a register that there is not", EINVAL);
	reads.regs = BIT_ULL(PERF_REG_X86_XMM0);
	expect_set(&self->event, &reads, "a register that is not read", EINVAL);
	reads.regs = 0;

	reads.read[0].base = PERF_GUEST_READ_BASE_MAX;
	expect_set(&self->event, &reads, "a base that there is not", EINVAL);
	reads.read[0] = good;
	reads.read[0].nr_derefs = PERF_GUEST_READ_DEREFS;
	expect_set(&self->event, &reads, "four dereferences", 0);
	reads.read[0].nr_derefs++;
	expect_set(&self->event, &reads, "five dereferences", EINVAL);
	reads.read[0] = good;
	reads.read[0].flags = AS_USER << 1;
	expect_set(&self->event, &reads, "an unknown flag", EINVAL);
	reads.read[0] = good;
	reads.read[0].within = 1;
	expect_set(&self->event, &reads, "within without a word", EINVAL);
	reads.read[0].nr_derefs = 1;
	expect_set(&self->event, &reads, "within", 0);

	reads.read[0] = good;
	reads.read[0].size = MAX_SIZE;
	expect_set(&self->event, &reads, "the largest size", 0);
	reads.regs = BIT_ULL(PERF_REG_X86_SP);
	expect_set(&self->event, &reads, "the largest size and a register", EINVAL);
	reads.regs = 0;
	reads.read[0].size += 8;
	expect_set(&self->event, &reads, "a size that is too large", EINVAL);
	reads.read[0].size = 12;
	expect_set(&self->event, &reads, "a size that is no multiple of 8", EINVAL);
	reads.read[0].size = ~0U;
	expect_set(&self->event, &reads, "a size that wraps", EINVAL);
	reads.read[0].size = 32768;
	reads.read[1].size = 32768;
	reads.nr = 2;
	expect_set(&self->event, &reads, "sizes that are too large together", EINVAL);

	TEST_ASSERT(!callchain_event_open(&other, PMI_IRQ, NULL, 0, -1), "perf_event_open(): %s",
		    strerror(errno));
	reads.nr = 0;
	expect_set(&other, &reads, "an event without guest_read", EINVAL);
	callchain_event_close(&other);
}

/* Users that look at a process of OWNER, and at a CPU. */
#define OWNER		60001
#define OTHER		60002

static const struct user {
	const char *name;
	uid_t uid;
	u64 caps;
	bool callchain;		/* may have the process's guest's callchain */
	bool read;		/* may read the guest's memory */
	bool cpu_read;		/* may do so on a whole CPU */
} users[] = {
	{ "root",			0,	0, true, true, true },
	{ "the owner",			OWNER,	0, true, true, false },
	{ "another user",		OTHER,	0, false, false, false },
	{ "another, CAP_PERFMON",	OTHER,	BIT_ULL(CAP_PERFMON), true, false, false },
	{ "another, CAP_SYS_PTRACE",	OTHER,	BIT_ULL(CAP_SYS_PTRACE), true, true, false },
	{ "another, both",		OTHER,	BIT_ULL(CAP_PERFMON) | BIT_ULL(CAP_SYS_PTRACE),
	  true, true, true },
};

static void become(const struct user *user)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {};

	if (!user->uid)
		return;

	TEST_ASSERT(!prctl(PR_SET_KEEPCAPS, 1) && !setresgid(user->uid, user->uid, user->uid) &&
		    !setresuid(user->uid, user->uid, user->uid), "setresuid(): %s",
		    strerror(errno));
	data[0].permitted = user->caps;
	data[1].permitted = user->caps >> 32;
	data[0].effective = data[0].permitted;
	data[1].effective = data[1].permitted;
	TEST_ASSERT(!syscall(SYS_capset, &header, data), "capset(): %s", strerror(errno));
}

static void expect_open(const struct user *user, const char *what, bool read, pid_t pid, int cpu,
			bool allowed)
{
	const struct perf_event_attr attr = { .guest_read = read };
	struct callchain_event event;
	int r = callchain_event_open_ring(&event, PMI_IRQ, &attr, pid, cpu, 1);

	TEST_ASSERT(allowed ? !r : r && errno == EACCES, "%s, %s: perf_event_open(): %d, errno %d",
		    user->name, what, r, errno);
	if (!r)
		callchain_event_close(&event);
}

FIXTURE(users) {};
FIXTURE_SETUP(users) { SKIP_UNLESS_PMI(PMI_IRQ); }
FIXTURE_TEARDOWN(users) { host_restore(); }

/* Only who may read the VMM's memory may read the guest's: CAP_PERFMON is not enough. */
TEST_F(users, rights)
{
	static const struct user owner = { .name = "owner", .uid = OWNER };
	const struct user *user;
	int pipefd[2], status;
	pid_t vmm, pid;
	char byte;

	if (getuid())
		SKIP(return, "This takes root, who can become other users");

	TEST_ASSERT(!pipe(pipefd), "pipe(): %s", strerror(errno));
	vmm = fork();
	TEST_ASSERT(vmm >= 0, "fork(): %s", strerror(errno));
	if (!vmm) {
		become(&owner);
		prctl(PR_SET_DUMPABLE, 1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		TEST_ASSERT(write(pipefd[1], "", 1) == 1, "write()");
		for (;;)
			pause();
	}
	TEST_ASSERT(read(pipefd[0], &byte, 1) == 1, "The process has failed");
	SKIP_UNLESS_OVERRIDDEN("/proc/sys/kernel/perf_event_paranoid", 1);

	for_each_case(user, users) {
		pid = fork();
		TEST_ASSERT(pid >= 0, "fork(): %s", strerror(errno));
		if (!pid) {
			become(user);
			expect_open(user, "callchains", false, vmm, -1, user->callchain);
			expect_open(user, "reads", true, vmm, -1, user->read);
			expect_open(user, "reads of a CPU", true, -1, 0, user->cpu_read);
			_exit(0);
		}
		TEST_ASSERT(waitpid(pid, &status, 0) == pid && !status, "%s: status 0x%x",
			    user->name, status);
	}
	TEST_ASSERT(!kill(vmm, SIGKILL) && waitpid(vmm, NULL, 0) == vmm, "kill()");
	close(pipefd[0]);
	close(pipefd[1]);
}

TEST_HARNESS_MAIN
