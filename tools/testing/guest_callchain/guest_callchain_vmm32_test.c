// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of a guest whose VMM is a 32-bit program on a 64-bit host: KVM's and
 * perf's compat system calls, and memslots in the lower 4 GiB.
 *
 * The KVM selftests' library is for 64-bit programs only, and Debian's 32-bit C library is a
 * package of its own: this program stands on nolibc, and on nothing else.
 */
#include <linux/kvm.h>
#include <linux/perf_event.h>

#include "kselftest.h"

#define PAGE_SIZE	4096
#define GUEST_SIZE	(16 * PAGE_SIZE)
#define RING_SIZE	(64 * PAGE_SIZE)

/* Of the guest: where its code is, and its stack, the last frames on a second page. */
#define CODE		0x1000
#define STACK		0x2f80
#define NR_FRAMES	16
#define FIRST_RA	0x8000

#define NR_SAMPLES	25
#define NR_RUNS		200

/* "loop ." until ECX is zero, then "hlt", which ends KVM_RUN. */
static const unsigned char code[] = { 0xe2, 0xfe, 0xf4 };
#define NR_LOOPS	10000000

static unsigned char *guest;
static int vcpu_fd;
static struct kvm_run *run;

static void check(bool ok, const char *what)
{
	if (!ok)
		ksft_exit_fail_msg("%s failed: errno %d\n", what, errno);
}

static void *map_shared(int fd, size_t size, const char *what)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS :
								     MAP_SHARED, fd, 0);

	check(p != MAP_FAILED, what);
	return p;
}

/* Flat 32-bit code in protected mode, without paging. */
static void create_vcpu(void)
{
	struct kvm_userspace_memory_region region = { .memory_size = GUEST_SIZE };
	struct kvm_segment flat = {
		.limit = -1, .selector = 8, .type = 11, .present = 1, .db = 1, .s = 1, .g = 1,
	};
	struct kvm_sregs sregs;
	int kvm_fd, vm_fd, size;

	kvm_fd = open("/dev/kvm", O_RDWR);
	if (kvm_fd < 0)
		ksft_exit_skip("Can't open /dev/kvm: errno %d\n", errno);
	vm_fd = ioctl(kvm_fd, KVM_CREATE_VM, 0);
	check(vm_fd >= 0, "KVM_CREATE_VM");

	guest = map_shared(-1, GUEST_SIZE, "mmap() of the guest's memory");
	region.userspace_addr = (unsigned long)guest;
	check(!ioctl(vm_fd, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");

	vcpu_fd = ioctl(vm_fd, KVM_CREATE_VCPU, 0);
	check(vcpu_fd >= 0, "KVM_CREATE_VCPU");
	size = ioctl(kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	run = map_shared(vcpu_fd, size, "mmap() of the vCPU");

	check(!ioctl(vcpu_fd, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	sregs.cs = flat;
	flat.type = 3;
	flat.selector = 16;
	sregs.ds = flat;
	sregs.ss = flat;
	sregs.cr0 |= 1;
	check(!ioctl(vcpu_fd, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
}

/* Frames as "push %ebp; mov %esp,%ebp" leaves them; the outermost one has neither. */
static void build_stack(void)
{
	__u32 *frame = (__u32 *)(guest + STACK);
	unsigned int i;

	for (i = 0; i < NR_FRAMES; i++, frame += 4) {
		frame[0] = (unsigned char *)(frame + 4) - guest;
		frame[1] = FIRST_RA + 16 * i;
	}
	memcpy(guest + CODE, code, sizeof(code));
}

static int open_event(bool defer)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN,
		.guest_callchain = 1,
		.defer_guest_callchain = defer,
		.defer_output = defer,
	};
	int fd = syscall(__NR_perf_event_open, &attr, 0, -1, -1, 0);

	if (fd < 0)
		ksft_exit_skip("perf has no callchains of guests here: errno %d\n", errno);
	return fd;
}

/* Compare @nr entries with the return addresses of the stack. */
static bool are_frames(const __u64 *ips, __u64 nr)
{
	unsigned int i;

	if (nr != NR_FRAMES)
		return false;
	for (i = 0; i < NR_FRAMES; i++) {
		if (ips[i] != FIRST_RA + 16 * i)
			return false;
	}
	return true;
}

static bool starts_at_loop(const __u64 *ips)
{
	return ips[0] == (__u64)PERF_CONTEXT_GUEST_KERNEL && ips[1] == CODE;
}

/*
 * Return how many whole chains lie in the ring, or -1 behind one that isn't whole.
 * Samples of the host, and of "hlt", are none.  A deferred chain comes behind the
 * samples that share it, before any other.
 */
static int count_chains(const struct perf_event_mmap_page *ring, bool defer)
{
	const unsigned char *data = (const void *)ring + ring->data_offset;
	unsigned int pos, end = ring->data_head;
	const struct perf_event_header *header;
	__u64 cookie = 0;
	int nr = 0;

	/* The ring has not wrapped, see main(). */
	for (pos = 0; pos < end; pos += header->size) {
		const __u64 *body;

		header = (const void *)(data + pos);
		body = (const void *)(header + 1);
		if (header->type == PERF_RECORD_SAMPLE &&
		    (header->misc & PERF_RECORD_MISC_CPUMODE_MASK) ==
		    PERF_RECORD_MISC_GUEST_KERNEL && body[0] == CODE) {
			if (body[1] < 4 || !starts_at_loop(&body[2]))
				return -1;
			if (!defer && !are_frames(&body[4], body[1] - 2))
				return -1;
			if (defer && (body[1] != 4 || (cookie && cookie != body[5]) ||
				      body[4] != (__u64)PERF_CONTEXT_USER_DEFERRED))
				return -1;
			cookie = defer ? body[5] : 0;
			nr += !defer;
		} else if (header->type == PERF_RECORD_CALLCHAIN_DEFERRED && body[0] == cookie) {
			if (body[2] != (__u64)PERF_CONTEXT_GUEST_KERNEL ||
			    !are_frames(&body[3], body[1] - 1))
				return -1;
			cookie = 0;
			nr++;
		}
	}
	return nr;
}

static void run_guest(void)
{
	struct kvm_regs regs = {
		.rip = CODE, .rcx = NR_LOOPS, .rsp = STACK, .rbp = STACK, .rflags = 0x202,
	};

	check(!ioctl(vcpu_fd, KVM_SET_REGS, &regs), "KVM_SET_REGS");
	check(!ioctl(vcpu_fd, KVM_RUN, NULL), "KVM_RUN");
	if (run->exit_reason != KVM_EXIT_HLT)
		ksft_exit_fail_msg("The guest left for reason %u\n", run->exit_reason);
}

static void test_chains(bool defer, const char *name)
{
	int i, nr = 0, fd = open_event(defer);
	struct perf_event_mmap_page *ring = map_shared(fd, PAGE_SIZE + RING_SIZE,
						       "mmap() of perf's ring");

	for (i = 0; i < NR_RUNS && nr >= 0 && nr < NR_SAMPLES; i++) {
		run_guest();
		/* A full ring takes no more: what is there remains as it is. */
		nr = count_chains(ring, defer);
	}
	ksft_print_msg("%d whole chains in %d runs\n", nr, i);
	ksft_test_result(nr >= NR_SAMPLES, "vmm32.%s\n", name);
	munmap(ring, PAGE_SIZE + RING_SIZE);
	close(fd);
}

int main(void)
{
	ksft_print_header();
	create_vcpu();
	build_stack();
	close(open_event(true));
	ksft_set_plan(2);
	test_chains(false, "irq");
	test_chains(true, "irq_deferred");
	ksft_finished();
}
