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
 * Offset of the frame in the device's page, where the device has no registers.  If a walk read the
 * frame, it would end for another reason than no_memory.
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

static void compare_with_end(struct kvm_vcpu *vcpu, enum pmi_source source,
			     const struct callchain_expectation *e, const char *end)
{
	u64 nr = vcpu_get_callchain_end_stat(vcpu, end);

	nr += vcpu_run_and_compare(vcpu, source, NULL, NR_SAMPLES, e);
	TEST_ASSERT_EQ(vcpu_get_callchain_end_stat(vcpu, end), nr);
}

static void has_no_stack(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr_guest = arg;

	if (!callchain_sample_is_guest(s))
		return;

	TEST_ASSERT(s->stack.info && !s->stack.info->pieces[0].size &&
		    !s->stack.info->pieces[1].size, "A dump of what is no stack");
	++*nr_guest;
}

/* A dump has no bytes of a stack whose frames the walk must not read. */
static void expect_no_stack(struct kvm_vcpu *vcpu, enum pmi_source source)
{
	const struct perf_event_attr attr = {
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_GUEST_STACK,
	};
	unsigned int nr_guest = 0;

	vcpu_run_until_guest_sampled(vcpu, source, &attr, NR_SAMPLES, has_no_stack, &nr_guest,
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

	compare_with_end(vcpu, source, &e, "no_memory");
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
	const struct vm_shape shape = { .mode = VM_MODE_DEFAULT, .type = type };
	struct kvm_vm *vm = vm_create_shape_with_one_vcpu(shape, vcpu, guest_loop);

	guest_stack_build_and_use(*vcpu, stack, &layout, false);
	return vm;
}

/* Copy the page that an entry points to, to @hva, and make the entry point to OTHER_GPA. */
static void move_to(struct kvm_vm *vm, u64 *pte, void *hva)
{
	memcpy(hva, addr_gpa2hva(vm, PTE_GET_PA(*pte)), PAGE_SIZE);
	*pte = (*pte & ~PHYSICAL_PAGE_MASK) | OTHER_GPA;
}

/*
 * Make private what the page-table entry of @level points to: a page of the stack, or a
 * page table.  The VMM's mapping still has the contents.  A walk reads no memory of a VM that
 * may have private memory, not even shared pages, so each callchain has the IP only.
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
	compare_with_end(vcpu, source, &e, "no_memory");
	expect_no_stack(vcpu, source);
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
	compare_with_end(vcpu, variant->source, &e, "last");
	kvm_munmap(mem, size);
	close(fd);
	kvm_vm_free(vm);
}

TEST_HARNESS_MAIN
