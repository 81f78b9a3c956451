// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two events that count the same software event must not share the data of their samples: each
 * sample has the ID of its own event, and a callchain only if that event asks for one.
 *
 * A user callchain must end even if its frame pointers don't, and no entry can be stored.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kselftest_harness.h"

#define MAX_CONTEXTS	"/proc/sys/kernel/perf_event_max_contexts_per_stack"
#define NR_FAULTS	16

/* Room for all samples, each with a callchain of the default depth. */
#define NR_RING_PAGES	16

/* PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_IP, and PERF_SAMPLE_CALLCHAIN if the event asks for it. */
struct sample {
	struct perf_event_header header;
	__u64 id;
	__u64 ip;
	__u64 nr;
	__u64 ips[];
};

struct event {
	int fd;
	__u64 id;
	struct perf_event_mmap_page *ring;
};

FIXTURE(sw_event_samples)
{
	long page_size;
	struct event with;	/* has a callchain in its samples */
	struct event without;
};

/* perf visits events of one kind in an order that depends on which one was opened first. */
FIXTURE_VARIANT(sw_event_samples)
{
	bool with_first;
};

FIXTURE_VARIANT_ADD(sw_event_samples, with_callchain_first)
{
	.with_first = true,
};

FIXTURE_VARIANT_ADD(sw_event_samples, with_callchain_last)
{
	.with_first = false,
};

/* Return zero or the error's number. */
static int open_event(struct event *event, __u64 sample_type, long page_size)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_PAGE_FAULTS,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | sample_type,
		.disabled = 1,
		.exclude_kernel = 1,
	};

	event->ring = MAP_FAILED;
	event->fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	if (event->fd < 0)
		return errno;

	event->ring = mmap(NULL, (1 + NR_RING_PAGES) * page_size, PROT_READ | PROT_WRITE,
			   MAP_SHARED, event->fd, 0);
	if (event->ring == MAP_FAILED)
		return errno;

	return ioctl(event->fd, PERF_EVENT_IOC_ID, &event->id) ? errno : 0;
}

FIXTURE_SETUP(sw_event_samples)
{
	int err = 0;

	self->page_size = sysconf(_SC_PAGE_SIZE);
	if (variant->with_first)
		err = open_event(&self->with, PERF_SAMPLE_CALLCHAIN, self->page_size);
	if (!err)
		err = open_event(&self->without, 0, self->page_size);
	if (!err && !variant->with_first)
		err = open_event(&self->with, PERF_SAMPLE_CALLCHAIN, self->page_size);
	if (err == EACCES || err == EPERM || err == ENOSYS)
		SKIP(return, "perf_event_open() failed: %s", strerror(err));
	ASSERT_EQ(0, err);
}

static void close_event(struct event *event, long page_size)
{
	if (event->ring != MAP_FAILED)
		munmap(event->ring, (1 + NR_RING_PAGES) * page_size);
	if (event->fd >= 0)
		close(event->fd);
}

FIXTURE_TEARDOWN(sw_event_samples)
{
	close_event(&self->with, self->page_size);
	close_event(&self->without, self->page_size);
}

/* Return the first sample at or after *@offset, or NULL; move *@offset past the sample. */
static const struct sample *next_sample(const struct event *event, __u64 *offset)
{
	const struct sample *sample;

	/* The ring is larger than all records, so none of them wraps around. */
	while (*offset < __atomic_load_n(&event->ring->data_head, __ATOMIC_ACQUIRE)) {
		sample = (void *)event->ring + event->ring->data_offset + *offset;
		*offset += sample->header.size;
		if (sample->header.type == PERF_RECORD_SAMPLE)
			return sample;
	}
	return NULL;
}

TEST_F(sw_event_samples, are_apart)
{
	const struct sample *sample;
	unsigned int nr;
	__u64 offset;
	char *memory;

	memory = mmap(NULL, NR_FAULTS * self->page_size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	/* Let each page fault by itself.  Without huge pages, madvise() fails, and isn't needed. */
	madvise(memory, NR_FAULTS * self->page_size, MADV_NOHUGEPAGE);

	ASSERT_EQ(0, ioctl(self->with.fd, PERF_EVENT_IOC_ENABLE, 0));
	ASSERT_EQ(0, ioctl(self->without.fd, PERF_EVENT_IOC_ENABLE, 0));
	for (nr = 0; nr < NR_FAULTS; nr++)
		memory[nr * self->page_size] = 1;
	ASSERT_EQ(0, ioctl(self->with.fd, PERF_EVENT_IOC_DISABLE, 0));
	ASSERT_EQ(0, ioctl(self->without.fd, PERF_EVENT_IOC_DISABLE, 0));
	munmap(memory, NR_FAULTS * self->page_size);

	for (nr = 0, offset = 0; (sample = next_sample(&self->with, &offset)); nr++) {
		ASSERT_EQ(self->with.id, sample->id);
		ASSERT_EQ(offsetof(struct sample, ips[sample->nr]), sample->header.size);
		/* A context marker, and the address of the instruction that has faulted. */
		ASSERT_GE(sample->nr, 2);
		ASSERT_EQ((__u64)PERF_CONTEXT_USER, sample->ips[0]);
		ASSERT_EQ(sample->ip, sample->ips[1]);
	}
	ASSERT_GE(nr, NR_FAULTS);

	for (nr = 0, offset = 0; (sample = next_sample(&self->without, &offset)); nr++) {
		ASSERT_EQ(self->without.id, sample->id);
		ASSERT_EQ(offsetof(struct sample, nr), sample->header.size);
	}
	ASSERT_GE(nr, NR_FAULTS);
}

#ifdef __x86_64__
/* A frame that leads to itself until cut_cycle() clears its first word. */
static void *frame[2];
static bool is_cut;

/* Cut the cycle if the walk has not ended by itself.  The walk must be on another CPU. */
static void *cut_cycle(void *arg)
{
	sleep(10);
	__atomic_store_n(&is_cut, true, __ATOMIC_RELAXED);
	__atomic_store_n(&frame[0], NULL, __ATOMIC_RELEASE);
	return NULL;
}

/* Write to @memory while RBP leads to the frame.  Return the address of the instruction. */
static __u64 write_in_cycle(char *memory)
{
	__u64 ip;

	asm volatile("mov %%rbp, %%rbx\n\t"
		     "lea 1f(%%rip), %0\n\t"
		     "mov %1, %%rbp\n"
		     "1:\tmovb $1, (%2)\n\t"
		     "mov %%rbx, %%rbp"
		     : "=&a" (ip) : "S" (frame), "D" (memory) : "rbx", "memory");
	return ip;
}

/*
 * Sample a page fault in the cycle.  Return zero or the error's number; put the number of entries
 * of the callchain into @nr, and its last entry into @last.
 */
static int sample_cycle(char *memory, long page_size, __u64 *nr, __u64 *last)
{
	const struct sample *sample;
	struct event event;
	__u64 ip = 0, offset = 0;
	int err;

	if (madvise(memory, page_size, MADV_DONTNEED))
		return errno;

	err = open_event(&event, PERF_SAMPLE_CALLCHAIN, page_size);
	if (!err && ioctl(event.fd, PERF_EVENT_IOC_ENABLE, 0))
		err = errno;
	if (!err) {
		ip = write_in_cycle(memory);
		ioctl(event.fd, PERF_EVENT_IOC_DISABLE, 0);
		do {
			sample = next_sample(&event, &offset);
		} while (sample && sample->ip != ip);
		if (sample) {
			*nr = sample->nr;
			*last = sample->nr ? sample->ips[sample->nr - 1] : 0;
		} else {
			err = ENODATA;
		}
	}
	close_event(&event, page_size);
	return err;
}

/*
 * A walk of frames that lead to themselves must end, even if no context fits into the callchain,
 * and nothing is stored.
 */
TEST(endless_frames)
{
	long page_size = sysconf(_SC_PAGE_SIZE);
	cpu_set_t all, mine, others;
	__u64 nr = 0, last = 0;
	char old[16] = {}, *memory;
	pthread_attr_t attr;
	pthread_t thread;
	ssize_t size;
	int fd, cpu, err;

	memory = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, memory);

	ASSERT_EQ(0, sched_getaffinity(0, sizeof(all), &all));
	if (CPU_COUNT(&all) < 2)
		SKIP(return, "This takes two CPUs");
	cpu = sched_getcpu();
	CPU_ZERO(&mine);
	CPU_SET(cpu, &mine);
	others = all;
	CPU_CLR(cpu, &others);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(mine), &mine));
	ASSERT_EQ(0, pthread_attr_init(&attr));
	ASSERT_EQ(0, pthread_attr_setaffinity_np(&attr, sizeof(others), &others));

	fd = open(MAX_CONTEXTS, O_RDWR);
	if (fd < 0)
		SKIP(return, MAX_CONTEXTS ": %s", strerror(errno));
	size = read(fd, old, sizeof(old));
	ASSERT_GT(size, 0);

	/* As long as contexts fit, the cycle fills up the callchain. */
	frame[0] = frame;
	frame[1] = cut_cycle;
	ASSERT_EQ(0, sample_cycle(memory, page_size, &nr, &last));
	ASSERT_GT(nr, 2);
	ASSERT_EQ((__u64)frame[1], last);

	/* The sysctl can't change as long as an event with callchains exists. */
	if (pwrite(fd, "0", 1, 0) != 1)
		SKIP(return, "Can't write to " MAX_CONTEXTS ": %s", strerror(errno));
	err = pthread_create(&thread, &attr, cut_cycle, NULL);
	EXPECT_EQ(0, err);
	if (!err) {
		EXPECT_EQ(0, sample_cycle(memory, page_size, &nr, &last));
		EXPECT_EQ(0, nr);
		EXPECT_FALSE(__atomic_load_n(&is_cut, __ATOMIC_RELAXED));
		pthread_cancel(thread);
		pthread_join(thread, NULL);
	}
	EXPECT_EQ(size, pwrite(fd, old, size, 0));
	close(fd);
	pthread_attr_destroy(&attr);
	munmap(memory, page_size);
}
#endif

TEST_HARNESS_MAIN
