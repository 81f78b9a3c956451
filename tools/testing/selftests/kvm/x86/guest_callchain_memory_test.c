// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests that have something else than the VMM's usual memory: a device's
 * registers, private memory, or guest_memfd.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_SAMPLES	20
#define NR_FRAMES	16

/*
 * An environment variable: the address, for /dev/mem, of a page of registers of a device that
 * nobody uses.  The first register has 32 bits, does not change, and is neither 0 nor all ones.
 */
#define DEVICE_VARIABLE	"KVM_SELFTEST_DEVICE"

/*
 * Offset of the frame in the device's page, where the device has no registers.  Whoever emulates
 * the device can see a read there.
 */
#define DEVICE_FRAME	0x1e0

#define CODE_SLOT	10
#define CODE_GPA	0x40000000ULL
#define DEVICE_SLOT	11
#define DEVICE_GPA	0x50000000ULL

/* A memslot for a page of the stack, or for one of its page tables. */
#define OTHER_SLOT	12
#define OTHER_GPA	BIT_ULL(32)
#define OTHER_PAGES	512

/*
 * In long mode: mov (%rax),%eax; out %al,$0x80; 1: jmp 1b.  In 32-bit mode, the same bytes begin
 * with mov (%eax),%eax.
 */
static const u8 code[] = { 0x8b, 0x00, 0xe6, 0x80, 0xeb, 0xfe };

#define LOOP_OFF	4

PMI_FIXTURE(memory)

/* What a VMM says that lets reads be made whatever the sysctl is. */
#define ALLOW_READ	(KVM_GUEST_CALLCHAIN_ALLOW | KVM_GUEST_CALLCHAIN_ALLOW_READ)

#define STACK_SIZE	256

static void has_no_stack(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr_guest = arg;

	if (!callchain_sample_is_guest(s))
		return;

	/* abi, root, mask, nr, and the read's addr, size, bytes and dyn_size */
	TEST_ASSERT(s->read && s->read_size == 7 * sizeof(u64) + STACK_SIZE && s->read[3] == 1 &&
		    s->read[5] == STACK_SIZE && !s->read[6 + STACK_SIZE / sizeof(u64)],
		    "A read of what is no stack");
	++*nr_guest;
}

/* Nothing can be read of a stack whose frames a walk must not read. */
static void expect_no_stack(struct kvm_vcpu *vcpu, enum pmi_source source)
{
	const struct perf_guest_reads reads = {
		.nr = 1,
		.read = { {
			.base = PERF_GUEST_READ_SP,
			.flags = PERF_GUEST_READ_IN_KERNEL,
			.size = STACK_SIZE,
		} },
	};
	unsigned int nr_guest = 0;

	vm_enable_cap(vcpu->vm, KVM_CAP_GUEST_CALLCHAIN, ALLOW_READ);
	vcpu_run_until_guest_read(vcpu, source, &reads, NR_SAMPLES, has_no_stack, &nr_guest,
				  &nr_guest);
}

static void *map_device(const char *address)
{
	int fd = open("/dev/mem", O_RDWR | O_SYNC);
	void *mem;

	TEST_ASSERT(fd >= 0, "/dev/mem: %s", strerror(errno));
	mem = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   strtoull(address, NULL, 0));
	TEST_ASSERT(mem != MAP_FAILED, "mmap() of /dev/mem at %s: %s", address, strerror(errno));
	close(fd);
	return mem;
}

static void enter_32_bit_mode(struct kvm_vcpu *vcpu)
{
	struct kvm_sregs sregs;

	vcpu_sregs_get(vcpu, &sregs);
	sregs.cs.l = 0;
	sregs.cs.db = 1;
	sregs.efer = 0;
	sregs.cr4 = 0;
	sregs.cr0 = X86_CR0_PE | X86_CR0_NE | X86_CR0_ET;
	vcpu_sregs_set(vcpu, &sregs);
}

/* A device's registers must not be read, although guest and host have mapped them. */
static void test_device(enum pmi_source source, void *device, bool paging)
{
	struct callchain_expectation e = {
		.name = paging ? "device, long mode" : "device, no paging",
		.cpumode = PERF_RECORD_MISC_GUEST_KERNEL,
		.ip = CODE_GPA + LOOP_OFF,
		.nr = 2,
		.ips = { PERF_CONTEXT_GUEST_KERNEL, CODE_GPA + LOOP_OFF },
	};
	struct kvm_vcpu *vcpu;
	struct kvm_regs regs;
	struct kvm_vm *vm;

	vm = vm_create_with_one_vcpu(&vcpu, guest_loop);
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS, CODE_GPA, CODE_SLOT, 1, 0);
	vm_set_user_memory_region(vm, DEVICE_SLOT, 0, DEVICE_GPA, PAGE_SIZE, device);
	memcpy(addr_gpa2hva(vm, CODE_GPA), code, sizeof(code));
	virt_pg_map(vm, CODE_GPA, CODE_GPA);
	virt_pg_map(vm, DEVICE_GPA, DEVICE_GPA);
	if (!paging)
		enter_32_bit_mode(vcpu);

	vcpu_regs_get(vcpu, &regs);
	regs.rax = DEVICE_GPA;
	regs.rip = CODE_GPA;
	regs.rsp = DEVICE_GPA;
	regs.rbp = DEVICE_GPA + DEVICE_FRAME;
	vcpu_regs_set(vcpu, &regs);
	vcpu_run(vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(vcpu, KVM_EXIT_IO);
	vcpu_regs_get(vcpu, &regs);
	TEST_ASSERT(regs.rax && regs.rax != ~0U && regs.rax == READ_ONCE(*(u32 *)device),
		    "The guest reads 0x%lx from the device, the host 0x%x", (unsigned long)regs.rax,
		    READ_ONCE(*(u32 *)device));
	vcpu_set_if(vcpu);

	vcpu_run_and_compare(vcpu, source, NULL, NR_SAMPLES, &e);
	regs.rip = CODE_GPA + LOOP_OFF;
	regs.rsp = DEVICE_GPA + DEVICE_FRAME;
	vcpu_regs_set(vcpu, &regs);
	vcpu_set_if(vcpu);
	expect_no_stack(vcpu, source);
	kvm_vm_free(vm);
}

CALLCHAIN_TEST(memory, device)
{
	const char *address = getenv(DEVICE_VARIABLE);
	void *device;

	if (!address)
		SKIP(return, DEVICE_VARIABLE " names no device");

	device = map_device(address);
	test_device(variant->source, device, true);
	test_device(variant->source, device, false);
}

/* Create a guest whose stack has one frame per page, and its own page tables except the root. */
static struct kvm_vm *create_guest(struct kvm_vcpu **vcpu, unsigned long type,
				   struct guest_stack *stack)
{
	const struct guest_stack_layout layout = { NR_FRAMES, PAGE_SIZE, 0x7f0, .far = true };
	const unsigned int frame_index = DEVICE_FRAME / sizeof(u64);
	const struct vm_shape shape = { .mode = VM_MODE_DEFAULT, .type = type };
	struct kvm_vm *vm = vm_create_shape_with_one_vcpu(shape, vcpu, guest_loop);

	/* Put the first frame's entry in the lowest table at DEVICE_FRAME. */
	vm_alloc(vm, (frame_index - 1) * PAGE_SIZE, BIT_ULL(vm->mmu.pgtable_levels == 5 ? 51 : 46));
	guest_stack_build_and_use(*vcpu, stack, &layout, false);
	TEST_ASSERT(stack->frames[0] / PAGE_SIZE % 512 == frame_index, "The stack is at 0x%lx",
		    stack->gva);
	return vm;
}

/* Copy the page that an entry points to, to @hva, and make the entry point to OTHER_GPA. */
static void move_to(struct kvm_vm *vm, u64 *pte, void *hva)
{
	memcpy(hva, addr_gpa2hva(vm, PTE_GET_PA(*pte)), PAGE_SIZE);
	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | OTHER_GPA;
}

/* Let the entry of a level point to OTHER_GPA, and expect that the walk ends there. */
static void expect_end_at(struct kvm_vcpu *vcpu, enum pmi_source source, const char *name,
			  const struct guest_stack *stack, int level)
{
	u64 *pte = vm_get_pte_level(vcpu->vm, stack->frames[1], level), old = *pte;
	const unsigned int nr_frames = level == PG_LEVEL_4K ? 1 : 0;
	struct callchain_expectation e;

	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | OTHER_GPA;
	expect_guest_stack(&e, name, false, stack, 1 + nr_frames);
	vcpu_run_and_compare(vcpu, source, NULL, NR_SAMPLES, &e);
	*pte = old;
}

/* A device's registers must not be read as page tables, nor as a page behind others. */
CALLCHAIN_TEST(memory, device_tables)
{
	const char *address = getenv(DEVICE_VARIABLE);
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int level;

	if (!address)
		SKIP(return, DEVICE_VARIABLE " names no device");

	vm = create_guest(&vcpu, VM_TYPE_DEFAULT, &stack);
	vm_set_user_memory_region(vm, OTHER_SLOT, 0, OTHER_GPA, PAGE_SIZE, map_device(address));
	for (level = PG_LEVEL_4K; level <= vm->mmu.pgtable_levels; level++)
		expect_end_at(vcpu, variant->source, "a device's registers", &stack, level);
	kvm_vm_free(vm);
}

/* Whoever reads memory that isn't there would get zeroes, bring in a page, or a signal. */
CALLCHAIN_TEST(memory, missing_tables)
{
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u8 in_core = 1;
	void *mem;
	int level;

	vm = create_guest(&vcpu, VM_TYPE_DEFAULT, &stack);
	mem = kvm_mmap(PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	vm_set_user_memory_region(vm, OTHER_SLOT, 0, OTHER_GPA, PAGE_SIZE, mem);
	for (level = PG_LEVEL_4K; level <= vm->mmu.pgtable_levels; level++)
		expect_end_at(vcpu, variant->source, "a page that isn't there", &stack, level);
	TEST_ASSERT(!mincore(mem, PAGE_SIZE, &in_core) && !in_core, "A page was brought in");

	/* It has what the walk looks for, but the VMM may not read it. */
	memcpy(mem, addr_gva2hva(vm, stack.frames[1] & PAGE_MASK), PAGE_SIZE);
	TEST_ASSERT(!mprotect(mem, PAGE_SIZE, PROT_NONE), "mprotect(): %s", strerror(errno));
	expect_end_at(vcpu, variant->source, "a page without rights", &stack, PG_LEVEL_4K);

	for (level = PG_LEVEL_2M; level <= vm->mmu.pgtable_levels; level++) {
		u64 *pte = vm_get_pte_level(vm, stack.frames[1], level);

		TEST_ASSERT(!mprotect(mem, PAGE_SIZE, PROT_READ | PROT_WRITE), "mprotect()");
		memcpy(mem, addr_gpa2hva(vm, PTE_GET_PA(*pte)), PAGE_SIZE);
		TEST_ASSERT(!mprotect(mem, PAGE_SIZE, PROT_NONE), "mprotect()");
		expect_end_at(vcpu, variant->source, "a table without rights", &stack, level);
	}

	kvm_munmap(mem, PAGE_SIZE);
	for (level = PG_LEVEL_4K; level <= vm->mmu.pgtable_levels; level++)
		expect_end_at(vcpu, variant->source, "no mapping", &stack, level);
	kvm_vm_free(vm);
}

/*
 * Make private what the page-table entry of @level points to: a page of the stack, or a
 * page table.  The VMM's mapping still has the contents.  Nothing is read of a VM that may have
 * private memory, not even shared pages: each callchain ends at the IP.
 */
static void test_private(enum pmi_source source, int level)
{
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	vm = create_guest(&vcpu, KVM_X86_SW_PROTECTED_VM, &stack);
	vm_mem_add(vm, VM_MEM_SRC_ANONYMOUS, OTHER_GPA, OTHER_SLOT, OTHER_PAGES,
		   KVM_MEM_GUEST_MEMFD, -1, 0);
	move_to(vm, vm_get_pte_level(vm, stack.frames[1], level), addr_gpa2hva(vm, OTHER_GPA));
	vm_mem_set_private(vm, OTHER_GPA, PAGE_SIZE);

	expect_guest_stack(&e, "private memory", false, &stack, 1);
	vcpu_run_and_compare(vcpu, source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(vm);
}

CALLCHAIN_TEST(memory, private)
{
	int level;

	if (!(kvm_check_cap(KVM_CAP_VM_TYPES) & BIT(KVM_X86_SW_PROTECTED_VM)))
		SKIP(return, "The host has no VMs of KVM_X86_SW_PROTECTED_VM");

	for (level = PG_LEVEL_4K; level <= PG_LEVEL_512G; level++)
		test_private(variant->source, level);
}

/* A guest_memfd that the VMM has mapped is read like other memory. */
CALLCHAIN_TEST(memory, guest_memfd)
{
	const u64 flags = GUEST_MEMFD_FLAG_MMAP | GUEST_MEMFD_FLAG_INIT_SHARED;
	const size_t size = OTHER_PAGES * PAGE_SIZE;
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	void *mem;
	int fd;

	vm = create_guest(&vcpu, VM_TYPE_DEFAULT, &stack);
	if ((vm_check_cap(vm, KVM_CAP_GUEST_MEMFD_FLAGS) & flags) != flags) {
		kvm_vm_free(vm);
		SKIP(return, "The host has no guest_memfd that can be mapped");
	}

	fd = vm_create_guest_memfd(vm, size, flags);
	mem = kvm_mmap(size, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	vm_set_user_memory_region2(vm, OTHER_SLOT, KVM_MEM_GUEST_MEMFD, OTHER_GPA, size, mem,
				   fd, 0);
	move_to(vm, vm_get_pte_level(vm, stack.frames[1], PG_LEVEL_4K), mem);

	expect_guest_stack(&e, "guest_memfd", false, &stack, DEFAULT_MAX_STACK);
	vcpu_run_and_compare(vcpu, variant->source, NULL, NR_SAMPLES, &e);
	kvm_munmap(mem, size);
	close(fd);
	kvm_vm_free(vm);
}

TEST_HARNESS_MAIN
