// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of a guest whose VMM is a 32-bit program on a 64-bit host: its thread makes
 * 32-bit system calls, and its memslots lie in the lower 4 GiB.
 *
 * The library of the KVM selftests is for 64-bit programs.  nolibc needs no 32-bit C library
 * to be installed.
 */
#include <linux/kvm.h>
#include <linux/perf_event.h>

/* KVM starts a thread in this process.  nolibc's exit() does not end it, exit_group() does. */
#define exit(_status)				\
do {						\
	syscall(__NR_exit_group, _status);	\
	__builtin_unreachable();		\
} while (0)

#include "kselftest.h"

#define PAGE_SIZE	4096
#define GUEST_SIZE	(16 * PAGE_SIZE)
#define RING_SIZE	(64 * PAGE_SIZE)

/* The guest's addresses: code, and stack.  The last frames lie on the stack's second page. */
#define CODE		0x1000
#define STACK		0x2f80
#define NR_FRAMES	16
#define FIRST_RA	0x8000

#define NR_SAMPLES	25
#define MIN_RUNS	3
#define MAX_RUNS	200

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

/* Map a file, or anonymous memory if @fd is negative. */
static void *map(int fd, size_t size, const char *what)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS :
								     MAP_SHARED, fd, 0);

	check(p != MAP_FAILED, what);
	return p;
}

/* Create a vCPU in protected mode without paging, with flat 32-bit segments. */
static void create_vcpu(void)
{
	struct kvm_userspace_memory_region region = { .memory_size = GUEST_SIZE };
	struct kvm_segment flat = {
		.limit = -1, .selector = 8, .type = 11, .present = 1, .db = 1, .s = 1, .g = 1,
	};
	struct kvm_sregs sregs;
	int kvm_fd, vm_fd, size;

	kvm_fd = open("/dev/kvm", O_RDWR);
	check(kvm_fd >= 0, "open() of /dev/kvm");
	vm_fd = ioctl(kvm_fd, KVM_CREATE_VM, 0);
	check(vm_fd >= 0, "KVM_CREATE_VM");

	guest = map(-1, GUEST_SIZE, "mmap() of the guest's memory");
	region.userspace_addr = (unsigned long)guest;
	check(!ioctl(vm_fd, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");

	vcpu_fd = ioctl(vm_fd, KVM_CREATE_VCPU, 0);
	check(vcpu_fd >= 0, "KVM_CREATE_VCPU");
	size = ioctl(kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	run = map(vcpu_fd, size, "mmap() of the vCPU");

	check(!ioctl(vcpu_fd, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	sregs.cs = flat;
	flat.type = 3;
	flat.selector = 16;
	sregs.ds = flat;
	sregs.ss = flat;
	sregs.cr0 |= 1;
	check(!ioctl(vcpu_fd, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
}

/* Build frames as "push %ebp; mov %esp,%ebp" leaves them.  The outermost one is all zeroes. */
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

static int open_event(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN,
		.guest_callchain = 1,
		.defer_output = 1,
	};
	int fd = syscall(__NR_perf_event_open, &attr, 0, -1, -1, 0);

	check(fd >= 0, "perf_event_open()");
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

static bool is_guest_context(__u64 ip)
{
	return ip == (__u64)PERF_CONTEXT_GUEST_KERNEL || ip == (__u64)PERF_CONTEXT_GUEST_USER;
}

static bool is_host(__u16 misc)
{
	misc &= PERF_RECORD_MISC_CPUMODE_MASK;
	return misc == PERF_RECORD_MISC_KERNEL || misc == PERF_RECORD_MISC_USER;
}

/*
 * Check a record.  *@cookie is the cookie of the samples that wait for their deferred chain,
 * or zero if there are none.  The chain must come before samples with another cookie.
 * Return how many whole chains the record completes, or -1 if the record is wrong.
 */
static int check_record(const struct perf_event_header *header, __u64 *cookie)
{
	const __u64 *body = (const void *)(header + 1), *ips = &body[2];
	__u64 nr = body[1];

	if (header->type == PERF_RECORD_CALLCHAIN_DEFERRED) {
		if (!*cookie || body[0] != *cookie || nr < 1 ||
		    ips[0] != (__u64)PERF_CONTEXT_GUEST_KERNEL || !are_frames(&ips[1], nr - 1))
			return -1;
		*cookie = 0;
		return 1;
	}
	if (header->type != PERF_RECORD_SAMPLE)
		return header->type == PERF_RECORD_LOST ? -1 : 0;

	if (is_host(header->misc))
		return nr && is_guest_context(ips[0]) ? -1 : 0;

	/* The IP is that of the loop or of "hlt". */
	if ((header->misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_GUEST_KERNEL ||
	    (body[0] != CODE && body[0] != CODE + 2) || nr != 4 ||
	    ips[0] != (__u64)PERF_CONTEXT_GUEST_KERNEL || ips[1] != body[0] ||
	    ips[2] != (__u64)PERF_CONTEXT_USER_DEFERRED || !ips[3] ||
	    (*cookie && *cookie != ips[3]))
		return -1;
	*cookie = ips[3];
	return 0;
}

/* Count the whole chains in a ring that has not wrapped; -1 if a record is wrong or missing. */
static int count_chains(const struct perf_event_mmap_page *ring)
{
	const unsigned char *data = (const void *)ring + ring->data_offset;
	const struct perf_event_header *header;
	unsigned int pos, end = ring->data_head;
	__u64 cookie = 0;
	int nr = 0, r;

	for (pos = 0; pos < end; pos += header->size) {
		header = (const void *)(data + pos);
		r = check_record(header, &cookie);
		if (r < 0) {
			ksft_print_msg("Record %u, %u bytes, misc %u, at %u of %u is wrong\n",
				       header->type, header->size, header->misc, pos, end);
			return -1;
		}
		nr += r;
	}
	return cookie ? -1 : nr;
}

static void run_guest(void)
{
	struct kvm_regs regs = {
		.rip = CODE, .rcx = NR_LOOPS, .rsp = STACK, .rbp = STACK, .rflags = 0x202,
	};

	check(!ioctl(vcpu_fd, KVM_SET_REGS, &regs), "KVM_SET_REGS");
	check(!ioctl(vcpu_fd, KVM_RUN, NULL), "KVM_RUN");
	if (run->exit_reason != KVM_EXIT_HLT)
		ksft_exit_fail_msg("KVM_RUN returned with exit reason %u\n", run->exit_reason);
}

/* Each run has an event of its own, so that the event's ring does not wrap. */
static int run_sampled(void)
{
	int nr, fd = open_event();
	struct perf_event_mmap_page *ring = map(fd, PAGE_SIZE + RING_SIZE, "mmap() of perf's ring");

	run_guest();
	nr = count_chains(ring);
	munmap(ring, PAGE_SIZE + RING_SIZE);
	close(fd);
	return nr;
}

static void test_chains(void)
{
	int i, nr = 0, found = 0;

	for (i = 0; i < MAX_RUNS && nr >= 0 && (found < NR_SAMPLES || i < MIN_RUNS); i++) {
		nr = run_sampled();
		found += nr;
	}
	ksft_print_msg("%d whole chains in %d runs\n", found, i);
	ksft_test_result(nr >= 0 && found >= NR_SAMPLES, "vmm32.irq\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(1);
	create_vcpu();
	build_stack();
	test_chains();
	ksft_finished();
}
