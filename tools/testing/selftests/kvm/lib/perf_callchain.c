// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample a vCPU with perf, and read back the callchains.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest_stack_arch.h"
#include "kvm_util.h"
#include "perf_callchain.h"
#include "test_util.h"

#define SAMPLE_PERIOD_CYCLES	500000

/* The number of rounds to try before too few samples of the guest are an error. */
#define MAX_ROUNDS		10

/* Room for a thousand chains of full depth; a power of two. */
#define RING_PAGES		512

/*
 * Environment variable with the sysfs name of a PMU whose PMIs are NMIs, for hosts that have no
 * hardware counter.
 */
#define NMI_PMU_VARIABLE	"KVM_SELFTEST_NMI_PMU"

int perf_event_open(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	return syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/*
 * pmu_type - find a PMU
 * @name:	its name in sysfs
 *
 * Return: its type, for struct perf_event_attr, or -1 if there is none.
 */
int pmu_type(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", name);
	return read_number(path);
}

/*
 * has_hardware_cycles - return true if a hardware counter of this host samples cycles
 *
 * This works for users who may not sample the kernel, too.
 */
bool has_hardware_cycles(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.sample_period = SAMPLE_PERIOD_CYCLES,
		.exclude_kernel = 1,
		.disabled = 1,
	};
	int fd = perf_event_open(&attr, 0, -1);

	if (fd < 0)
		return false;

	close(fd);
	return true;
}

static bool pmi_source_config(enum pmi_source source, struct perf_event_attr *attr)
{
	const char *name;

	attr->guest_callchain = !(source & PMI_STOCK);
	source &= ~PMI_STOCK;
	attr->size = sizeof(*attr);
	if (!attr->sample_period)
		attr->sample_period = DEFAULT_SAMPLE_PERIOD_NS;

	if (source == PMI_ATTR)
		return true;

	if (source == PMI_IRQ) {
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_CPU_CLOCK;
		return true;
	}

	if (has_hardware_cycles()) {
		attr->type = PERF_TYPE_HARDWARE;
		attr->config = PERF_COUNT_HW_CPU_CYCLES;
		attr->sample_period = attr->sample_period * SAMPLE_PERIOD_CYCLES /
				      DEFAULT_SAMPLE_PERIOD_NS;
		/* PMIs that hit KVM find no chain there: leave them out. */
		if (PMIS_HIT_KVM && !attr->exclude_guest)
			attr->exclude_host = 1;
		return true;
	}

	name = getenv(NMI_PMU_VARIABLE);
	attr->type = name ? pmu_type(name) : -1;
	return attr->type != (u32)-1;
}

/*
 * pmi_source_available - check whether this user can sample guests' callchains with such PMIs
 * @source:	the kind of PMI
 * @why_not:	receives the reason if it can't, for the test to skip with
 *
 * Return: true if it can.
 */
bool pmi_source_available(enum pmi_source source, const char **why_not)
{
	struct perf_event_attr attr = {
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN,
		.disabled = 1,
	};
	int fd, level;

	*why_not = "There is no hardware counter, and " NMI_PMU_VARIABLE " names no PMU";
	if (!pmi_source_config(source, &attr))
		return false;

	*why_not = "kernel.perf_event_guest_callchain is below 2";
	level = read_number("/proc/sys/kernel/perf_event_guest_callchain");
	if (level >= 0 && level < 2)
		return false;

	fd = perf_event_open(&attr, 0, -1);
	if (fd >= 0) {
		close(fd);
		return true;
	}

	if (errno == EACCES || errno == EPERM)
		*why_not = "This user may not sample, see kernel.perf_event_paranoid";
	else if (errno == EINVAL)
		*why_not = "The kernel has no callchains of guests, CONFIG_GUEST_PERF_CALLCHAIN";
	else
		*why_not = "perf can't sample by such PMIs";
	return false;
}

struct kicker {
	struct kvm_vcpu *vcpu;
	pthread_t vcpu_thread;
	int fd;
};

static void ignore_signal(int sig)
{
}

/*
 * poll() returns when the event has enough samples, or when half of its ring is full.  The signal
 * may reach the vCPU's thread outside of KVM_RUN: immediate_exit makes the next KVM_RUN return.
 */
static void *kick_when_sampled(void *arg)
{
	struct kicker *kicker = arg;
	struct pollfd pfd = { .fd = kicker->fd, .events = POLLIN };

	TEST_ASSERT(poll(&pfd, 1, -1) == 1, "poll() of the event failed: %s",
		    strerror(errno));
	WRITE_ONCE(kicker->vcpu->run->immediate_exit, 1);
	pthread_kill(kicker->vcpu_thread, SIGUSR1);
	return NULL;
}

static void copy_from_ring(void *dst, const struct perf_event_mmap_page *page, u64 pos,
			   size_t size)
{
	const u8 *ring = (void *)page + page->data_offset;
	size_t off = pos % page->data_size, n = min_t(size_t, size, page->data_size - off);

	memcpy(dst, ring + off, n);
	memcpy(dst + n, ring, size - n);
}

/* Parse the fields of a sample, in the order of PERF_RECORD_SAMPLE in the uapi header. */
static void parse_sample(struct callchain_sample *sample, const struct callchain_event *event,
			 const struct perf_event_header *header, const u64 *body)
{
	const u64 *pos = body;

	*sample = (struct callchain_sample) {
		.cpumode = header->misc & PERF_RECORD_MISC_CPUMODE_MASK,
		.size = header->size,
		.ip = *pos++,
	};

	if (event->sample_type & PERF_SAMPLE_CALLCHAIN) {
		sample->nr = *pos++;
		sample->ips = pos;
		pos += sample->nr;
	}

	/* A size of 32 bits and as many bytes: together, a multiple of 8 bytes. */
	if (event->sample_type & PERF_SAMPLE_RAW) {
		sample->raw = (const void *)pos + sizeof(u32);
		pos = (const void *)sample->raw + *(const u32 *)pos;
	}

	TEST_ASSERT((const void *)pos - (const void *)body == header->size - sizeof(*header),
		    "A sample of %lu entries in %u bytes", sample->nr, header->size);
}

/* A copy of one record in the ring buffer. */
struct record {
	struct perf_event_header header;
	u64 body[64 * 1024 / sizeof(u64)];
};

/* Copy the record at @pos; return the position of the next one. */
static u64 copy_record(struct record *record, const struct perf_event_mmap_page *page, u64 pos)
{
	copy_from_ring(&record->header, page, pos, sizeof(record->header));
	copy_from_ring(record->body, page, pos + sizeof(record->header),
		       record->header.size - sizeof(record->header));
	return pos + record->header.size;
}

static bool is_guest_context(u64 ip)
{
	return ip == (u64)PERF_CONTEXT_GUEST_KERNEL || ip == (u64)PERF_CONTEXT_GUEST_USER;
}

/* Find the first record from @pos on that has this type and this cookie. */
static bool find_deferred(struct record *record, const struct perf_event_mmap_page *page,
			  u64 pos, u64 head, u32 type, u64 cookie)
{
	while (pos < head) {
		pos = copy_record(record, page, pos);
		if (record->header.type == type && record->body[0] == cookie)
			return true;
	}

	return false;
}

/*
 * Join a sample of a guest with its deferred records, those from @pos on that have its
 * cookie.  Write the joined chain to @joined, and the record of the guest's memory, if there
 * is one, to @read.  The deferred callchain begins with the sample's context marker: leave
 * that out.  Return false if the callchain is missing, unless the event may lose records.
 */
static bool join_deferred(struct callchain_sample *sample, struct callchain_event *event,
			  u64 pos, u64 head, u64 *joined, struct record *read)
{
	struct record record;
	u64 cookie, nr;

	if (sample->nr < 2 || sample->ips[sample->nr - 2] != (u64)PERF_CONTEXT_USER_DEFERRED)
		return true;

	cookie = sample->ips[sample->nr - 1];
	sample->cookie = cookie;
	/* A sample of the host has only user mode's part deferred, which isn't joined. */
	if (!is_guest_context(sample->ips[0]))
		return true;

	TEST_ASSERT(sample->nr == 4, "A sample of %lu entries is to be joined", sample->nr);
	sample->nr = 2;

	if (!find_deferred(&record, event->ring, pos, head, PERF_RECORD_CALLCHAIN_DEFERRED,
			   cookie)) {
		sample->alone = true;
		return event->may_lose;
	}

	nr = record.body[1];
	TEST_ASSERT(record.header.size == sizeof(record.header) + (2 + nr) * sizeof(u64),
		    "A deferred chain of %lu entries in %u bytes", nr, record.header.size);
	TEST_ASSERT((record.header.misc & PERF_RECORD_MISC_CPUMODE_MASK) == sample->cpumode,
		    "A deferred chain of cpumode %u for one of cpumode %u",
		    record.header.misc & PERF_RECORD_MISC_CPUMODE_MASK, sample->cpumode);
	TEST_ASSERT(!nr || record.body[2] == sample->ips[0],
		    "A deferred chain of %lu entries begins with 0x%lx", nr, record.body[2]);
	/* A record without callers has no marker, either. */
	TEST_ASSERT(nr != 1, "A deferred chain has a marker, and nothing behind it");

	memcpy(joined, sample->ips, 2 * sizeof(u64));
	if (nr) {
		memcpy(&joined[2], &record.body[3], (nr - 1) * sizeof(u64));
		sample->nr = 2 + nr - 1;
	}
	if (find_deferred(read, event->ring, pos, head, PERF_RECORD_GUEST_READ, cookie)) {
		TEST_ASSERT((read->header.misc & PERF_RECORD_MISC_CPUMODE_MASK) == sample->cpumode,
			    "A read of cpumode %u for a sample of cpumode %u",
			    read->header.misc & PERF_RECORD_MISC_CPUMODE_MASK, sample->cpumode);
		sample->read = &read->body[1];
		sample->read_size = read->header.size - sizeof(read->header) - sizeof(cookie);
	}
	sample->ips = joined;
	sample->shares_walk = cookie == event->cookie;
	event->cookie = cookie;
	return true;
}

/*
 * callchain_event_head - return the position up to which perf has written to the ring
 * @event:	the event; it may sample another thread
 */
u64 callchain_event_head(const struct callchain_event *event)
{
	return __atomic_load_n(&event->ring->data_head, __ATOMIC_ACQUIRE);
}

/*
 * callchain_event_count_walks - count deferred callchains
 * @event:	the event; it may sample another thread, which may also read it
 * @since:	the position from which to count, see callchain_event_head(); perf must not have
 *		written as much as the ring has room for since then
 */
unsigned int callchain_event_count_walks(const struct callchain_event *event, u64 since)
{
	const struct perf_event_mmap_page *page = event->ring;
	u64 head = callchain_event_head(event), pos;
	struct perf_event_header header;
	unsigned int nr = 0;

	for (pos = since; pos < head; pos += header.size) {
		copy_from_ring(&header, page, pos, sizeof(header));
		TEST_ASSERT(header.size, "The ring was overwritten");
		nr += header.type == PERF_RECORD_CALLCHAIN_DEFERRED;
	}
	return nr;
}

/*
 * callchain_event_read - read the samples that were taken since the last call
 * @event:	the event
 * @fn:		called with each sample, in the order in which they were taken
 * @arg:	passed to @fn
 *
 * If a deferred record of a sample isn't there yet, the sample and all that comes behind it are
 * left for the next call.  If @event may lose records, nothing is joined with the sample.
 *
 * Return: how many samples were read.
 */
unsigned int callchain_event_read(struct callchain_event *event,
				  callchain_sample_fn fn, void *arg)
{
	struct perf_event_mmap_page *page = event->ring;
	u64 head = callchain_event_head(event);
	u64 next, pos = page->data_tail;
	struct record record;
	unsigned int nr = 0;

	while (pos < head) {
		struct callchain_sample sample;
		u64 joined[ARRAY_SIZE(record.body)];
		struct record read;

		next = copy_record(&record, page, pos);
		if (record.header.type == PERF_RECORD_SAMPLE) {
			parse_sample(&sample, event, &record.header, record.body);
			event->waits = !join_deferred(&sample, event, next, head, joined, &read);
			if (event->waits)
				break;
			TEST_ASSERT(!sample.cookie || event->defers ||
				    !is_guest_context(sample.ips[0]),
				    "The chain of a guest was deferred");
			sample.hit_kvm = PMIS_HIT_KVM && !event->exclude_host &&
					 callchain_sample_is_guest(&sample) && !sample.nr;
			fn(&sample, arg);
			nr++;
		}
		pos = next;
		if (record.header.type == PERF_RECORD_LOST) {
			TEST_ASSERT(event->may_lose,
				    "The ring buffer is too small, perf lost %lu records",
				    record.body[1]);
			event->nr_lost += record.body[1];
		}
		if (record.header.type == PERF_RECORD_CALLCHAIN_DEFERRED && event->deferred_fn) {
			sample = (struct callchain_sample) {
				.cpumode = record.header.misc & PERF_RECORD_MISC_CPUMODE_MASK,
				.size = record.header.size,
				.cookie = record.body[0],
				.nr = record.body[1],
				.ips = &record.body[2],
			};
			event->deferred_fn(&sample, arg);
		}
		if (record.header.type == PERF_RECORD_THROTTLE)
			event->nr_throttled++;
	}

	__atomic_store_n(&page->data_tail, pos, __ATOMIC_RELEASE);
	return nr;
}

/*
 * callchain_event_open_ring - open an event, disabled, with a ring of a given size
 * @event:	is filled in
 * @source:	the kind of PMI
 * @attr:	further attributes, or NULL.  A sample_type of zero means
 *		PERF_SAMPLE_IP and PERF_SAMPLE_CALLCHAIN; any other must have
 *		PERF_SAMPLE_IP, and may have PERF_SAMPLE_CALLCHAIN and PERF_SAMPLE_RAW.
 * @pid:	the task to sample, as for perf_event_open(2)
 * @cpu:	on which CPU, likewise
 * @nr_pages:	how many pages the ring has for records, a power of two
 *
 * Return: zero, or -1 with errno set if perf refuses the event.
 */
int callchain_event_open_ring(struct callchain_event *event, enum pmi_source source,
			      const struct perf_event_attr *attr, pid_t pid, int cpu,
			      unsigned int nr_pages)
{
	struct perf_event_attr a = attr ? *attr : (struct perf_event_attr){};

	TEST_ASSERT(pmi_source_config(source, &a), "PMI source is not available");
	if (!a.sample_type)
		a.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN;
	a.disabled = 1;

	event->fd = perf_event_open(&a, pid, cpu);
	if (event->fd < 0)
		return -1;

	event->sample_type = a.sample_type;
	event->nr_throttled = 0;
	event->cookie = 0;
	event->waits = false;
	event->defers = a.guest_callchain;
	event->exclude_host = a.exclude_host;
	event->may_lose = false;
	event->nr_lost = 0;
	event->deferred_fn = NULL;
	event->map_size = (1 + nr_pages) * (size_t)getpagesize();
	event->ring = mmap(NULL, event->map_size, PROT_READ | PROT_WRITE, MAP_SHARED,
			   event->fd, 0);
	TEST_ASSERT(event->ring != MAP_FAILED, "mmap() of perf's ring buffer failed: %s",
		    strerror(errno));
	return 0;
}

/*
 * callchain_event_open - open an event, disabled, with a ring of RING_PAGES
 * @event:	is filled in
 * @source:	the kind of PMI
 * @attr:	see callchain_event_open_ring()
 * @pid:	the task to sample, as for perf_event_open(2)
 * @cpu:	on which CPU, likewise
 *
 * Return: zero, or -1 with errno set if perf refuses the event.
 */
int callchain_event_open(struct callchain_event *event, enum pmi_source source,
			 const struct perf_event_attr *attr, pid_t pid, int cpu)
{
	return callchain_event_open_ring(event, source, attr, pid, cpu, RING_PAGES);
}

void callchain_event_enable(struct callchain_event *event)
{
	TEST_ASSERT(!ioctl(event->fd, PERF_EVENT_IOC_ENABLE, 0),
		    "PERF_EVENT_IOC_ENABLE failed: %s", strerror(errno));
}

void callchain_event_disable(struct callchain_event *event)
{
	TEST_ASSERT(!ioctl(event->fd, PERF_EVENT_IOC_DISABLE, 0),
		    "PERF_EVENT_IOC_DISABLE failed: %s", strerror(errno));
}

/*
 * callchain_event_start - open and enable an event; end the test if perf refuses it
 * @event:	is filled in
 * @source:	the kind of PMI
 * @attr:	see callchain_event_open_ring()
 * @pid:	the task to sample, as for perf_event_open(2)
 * @cpu:	on which CPU, likewise
 */
void callchain_event_start(struct callchain_event *event, enum pmi_source source,
			   const struct perf_event_attr *attr, pid_t pid, int cpu)
{
	TEST_ASSERT(!callchain_event_open(event, source, attr, pid, cpu),
		    "perf_event_open() failed: %s", strerror(errno));
	callchain_event_enable(event);
}

void callchain_event_close(struct callchain_event *event)
{
	munmap(event->ring, event->map_size);
	close(event->fd);
}

/*
 * vcpu_run_until_sampled - run a vCPU until an event has wakeup_events more samples
 * @vcpu:	the vCPU; its guest must not exit to userspace by itself
 * @event:	an event that samples this thread
 * @enable:	enable the event only for this run; otherwise it is enabled, and stays so
 *
 * PERF_EVENT_IOC_REFRESH would disable the event with its last sample, before the deferred
 * records of that sample come.
 */
void vcpu_run_until_sampled(struct kvm_vcpu *vcpu, struct callchain_event *event,
			    bool enable)
{
	struct kicker kicker = {
		.vcpu = vcpu,
		.vcpu_thread = pthread_self(),
		.fd = event->fd,
	};
	struct sigaction sa = { .sa_handler = ignore_signal };
	pthread_t kicker_thread;
	int r;

	vcpu->run->immediate_exit = 0;
	TEST_ASSERT(!sigaction(SIGUSR1, &sa, NULL), "sigaction(SIGUSR1)");
	pthread_create(&kicker_thread, NULL, kick_when_sampled, &kicker);
	if (enable)
		callchain_event_enable(event);

	r = __vcpu_run(vcpu);
	if (enable)
		callchain_event_disable(event);
	TEST_ASSERT(r == -1 && errno == EINTR,
		    "The guest stopped by itself, KVM_RUN returned %d, exit reason %s",
		    r, exit_reason_str(vcpu->run->exit_reason));
	pthread_join(kicker_thread, NULL);
	vcpu->run->immediate_exit = 0;
}

/* When KVM_RUN has returned, all deferred records are in the ring. */
static void assert_all_joined(const struct callchain_event *event)
{
	TEST_ASSERT(!event->waits, "The deferred record of a sample is missing");
}

/*
 * vcpu_run_sampled_bpf - as vcpu_run_sampled(), with a BPF program attached to the event
 * @vcpu:	the vCPU; its guest must not exit to userspace by itself
 * @source:	the kind of PMI
 * @attr:	see callchain_event_open_ring()
 * @prog_fd:	a program of BPF_PROG_TYPE_PERF_EVENT, which must not drop samples; or -1
 * @nr_samples:	how many samples to take at least, those that hit the host included
 * @fn:		called with each sample, in the order in which they were taken
 * @arg:	passed to @fn
 */
void vcpu_run_sampled_bpf(struct kvm_vcpu *vcpu, enum pmi_source source,
			  const struct perf_event_attr *attr, int prog_fd,
			  unsigned int nr_samples, callchain_sample_fn fn, void *arg)
{
	struct perf_event_attr a = attr ? *attr : (struct perf_event_attr){};
	struct callchain_event event;
	unsigned int nr;

	a.wakeup_events = nr_samples;
	TEST_ASSERT(!callchain_event_open(&event, source, &a, 0, -1),
		    "perf_event_open() failed: %s", strerror(errno));

	if (prog_fd >= 0)
		TEST_ASSERT(!ioctl(event.fd, PERF_EVENT_IOC_SET_BPF, prog_fd),
			    "PERF_EVENT_IOC_SET_BPF failed: %s", strerror(errno));

	vcpu_run_until_sampled(vcpu, &event, true);

	nr = callchain_event_read(&event, fn, arg);
	TEST_ASSERT(nr >= nr_samples, "Asked for %u samples, got %u", nr_samples, nr);
	assert_all_joined(&event);

	callchain_event_close(&event);
}

/*
 * vcpu_run_sampled - run a vCPU until perf has taken a number of samples of it
 * @vcpu:	the vCPU; its guest must not exit to userspace by itself
 * @source:	the kind of PMI
 * @attr:	see callchain_event_open_ring()
 * @nr_samples:	how many samples to take at least, those that hit the host included
 * @fn:		called with each sample, in the order in which they were taken
 * @arg:	passed to @fn
 */
void vcpu_run_sampled(struct kvm_vcpu *vcpu, enum pmi_source source,
		      const struct perf_event_attr *attr, unsigned int nr_samples,
		      callchain_sample_fn fn, void *arg)
{
	vcpu_run_sampled_bpf(vcpu, source, attr, -1, nr_samples, fn, arg);
}

/*
 * vcpu_run_until_guest_sampled - run a vCPU until enough samples have hit its guest
 * @vcpu:	the vCPU, see vcpu_run_sampled()
 * @source:	the kind of PMI
 * @attr:	see callchain_event_open_ring()
 * @nr_samples:	how many samples to take in each round, until half as many have hit the guest
 * @fn:		called with each sample; must count those that hit the guest
 * @arg:	passed to @fn
 * @nr_guest:	where @fn keeps this count
 *
 * On a slow or busy host, the next PMI may come before the guest runs again.  So the
 * period doubles with each round.
 */
void vcpu_run_until_guest_sampled(struct kvm_vcpu *vcpu, enum pmi_source source,
				  const struct perf_event_attr *attr, unsigned int nr_samples,
				  callchain_sample_fn fn, void *arg,
				  const unsigned int *nr_guest)
{
	struct perf_event_attr a = attr ? *attr : (struct perf_event_attr){};
	unsigned int round;

	for (round = 0; round < MAX_ROUNDS && *nr_guest < nr_samples / 2; round++) {
		vcpu_run_sampled(vcpu, source, &a, nr_samples, fn, arg);
		a.sample_period = 2 * (a.sample_period ?: DEFAULT_SAMPLE_PERIOD_NS);
	}

	TEST_ASSERT(*nr_guest >= nr_samples / 2, "Only %u of %u samples are the guest's",
		    *nr_guest, round * nr_samples);
}

/*
 * callchain_event_set_reads - set what to read of the guest's memory
 * @event:	an event with attr.guest_read
 * @reads:	what to read
 */
void callchain_event_set_reads(struct callchain_event *event, const struct perf_guest_reads *reads)
{
	TEST_ASSERT(!ioctl(event->fd, PERF_EVENT_IOC_SET_GUEST_READS, reads),
		    "PERF_EVENT_IOC_SET_GUEST_READS failed: %s", strerror(errno));
}

/*
 * vcpu_run_until_guest_read - as vcpu_run_until_guest_sampled(), with reads of the guest's memory
 * @vcpu:	the vCPU, see vcpu_run_sampled()
 * @source:	the kind of PMI
 * @reads:	what to read
 * @nr_samples:	how many samples to take in each round, until half as many have hit the guest
 * @fn:		called with each sample; must count those that hit the guest
 * @arg:	passed to @fn
 * @nr_guest:	where @fn keeps this count
 */
void vcpu_run_until_guest_read(struct kvm_vcpu *vcpu, enum pmi_source source,
			       const struct perf_guest_reads *reads, unsigned int nr_samples,
			       callchain_sample_fn fn, void *arg, const unsigned int *nr_guest)
{
	struct perf_event_attr attr = {
		.sample_period = DEFAULT_SAMPLE_PERIOD_NS,
		.wakeup_events = nr_samples,
		.guest_read = 1,
	};
	struct callchain_event event;
	unsigned int round;

	for (round = 0; round < MAX_ROUNDS && *nr_guest < nr_samples / 2; round++) {
		TEST_ASSERT(!callchain_event_open_ring(&event, source, &attr, 0, -1,
						       8 * RING_PAGES),
			    "perf_event_open() failed: %s", strerror(errno));
		callchain_event_set_reads(&event, reads);
		vcpu_run_until_sampled(vcpu, &event, true);
		callchain_event_read(&event, fn, arg);
		assert_all_joined(&event);
		callchain_event_close(&event);
		attr.sample_period *= 2;
	}

	TEST_ASSERT(*nr_guest >= nr_samples / 2, "Only %u of %u samples are the guest's",
		    *nr_guest, round * nr_samples);
}

/*
 * vcpu_run_sampled_to_exit - sample a vCPU until its guest exits to userspace
 * @vcpu:	the vCPU
 * @source:	the kind of PMI
 * @attr:	see callchain_event_open_ring()
 * @fn:		called with each sample, in the order in which they were taken
 * @arg:	passed to @fn
 */
void vcpu_run_sampled_to_exit(struct kvm_vcpu *vcpu, enum pmi_source source,
			      const struct perf_event_attr *attr,
			      callchain_sample_fn fn, void *arg)
{
	struct callchain_event event;

	/* Nothing is read from the ring until the guest exits, which takes long on a slow host. */
	TEST_ASSERT(!callchain_event_open_ring(&event, source, attr, 0, -1, 8 * RING_PAGES),
		    "perf_event_open() failed: %s", strerror(errno));
	callchain_event_enable(&event);
	vcpu_run(vcpu);
	callchain_event_disable(&event);

	callchain_event_read(&event, fn, arg);
	assert_all_joined(&event);
	callchain_event_close(&event);
}

/*
 * callchain_sample_compare - compare one sample
 * @s:	the sample
 * @e:	what it must have if it hit the guest
 *
 * Return: true if it hit the guest, unless it shares its walk with an earlier sample, or has hit
 * KVM and so lacks the chain that is expected.
 */
bool callchain_sample_compare(const struct callchain_sample *s,
			      const struct callchain_expectation *e)
{
	unsigned int i;

	/* Samples that hit the host inside of KVM_RUN have the host's chain. */
	if (!callchain_sample_is_guest(s)) {
		for (i = 0; i < s->nr; i++)
			TEST_ASSERT(s->ips[i] != (u64)PERF_CONTEXT_GUEST_KERNEL &&
				    s->ips[i] != (u64)PERF_CONTEXT_GUEST_USER,
				    "%s: entry %u of %lu of a host sample, cpumode %u, IP 0x%lx, is the guest's",
				    e->name, i, s->nr, s->cpumode, s->ip);
		return false;
	}

	TEST_ASSERT(s->cpumode == e->cpumode, "%s: cpumode %u, not %u", e->name,
		    s->cpumode, e->cpumode);
	TEST_ASSERT(s->ip == e->ip, "%s: IP 0x%lx, not 0x%lx", e->name, s->ip, e->ip);
	if (s->hit_kvm && e->nr)
		return false;

	for (i = 0; i < min_t(u64, s->nr, e->nr); i++)
		TEST_ASSERT(s->ips[i] == e->ips[i], "%s: entry %u is 0x%lx, not 0x%lx",
			    e->name, i, s->ips[i], e->ips[i]);
	TEST_ASSERT(s->nr == e->nr, "%s: a chain of %lu entries, not %u", e->name,
		    s->nr, e->nr);
	return !s->shares_walk;
}

/*
 * callchain_compare - compare and count a sample, as a callchain_sample_fn
 * @s:		the sample
 * @arg:	the struct callchain_comparison
 */
void callchain_compare(const struct callchain_sample *s, void *arg)
{
	struct callchain_comparison *c = arg;

	c->nr_guest += callchain_sample_compare(s, c->expected);
}

/*
 * vcpu_run_and_compare - sample a vCPU, and compare each sample of its guest
 * @vcpu:	the vCPU, see vcpu_run_sampled()
 * @source:	the kind of PMI
 * @attr:	see callchain_event_open_ring()
 * @nr_samples:	how many samples to take per round; rounds follow until half as many hit the guest
 * @e:		what each of them must have, unless it hits the host
 *
 * Return: how many samples hit the guest, at least half of @nr_samples; those that
 * share a walk count as one.
 */
unsigned int vcpu_run_and_compare(struct kvm_vcpu *vcpu, enum pmi_source source,
				  const struct perf_event_attr *attr,
				  unsigned int nr_samples,
				  const struct callchain_expectation *e)
{
	struct callchain_comparison c = { .expected = e };

	vcpu_run_until_guest_sampled(vcpu, source, attr, nr_samples, callchain_compare, &c,
				     &c.nr_guest);
	return c.nr_guest;
}

/* Return false on errors, as the value itself may be negative. */
static bool read_setting(const char *path, int *value)
{
	FILE *f = fopen(path, "r");
	bool ok;

	if (!f)
		return false;
	ok = fscanf(f, "%d", value) == 1;
	fclose(f);
	return ok;
}

/*
 * read_number - read a number from a file of /proc or /sys
 * @path:	the file
 *
 * Return: the number, or -1 if it can't be read.
 */
int read_number(const char *path)
{
	int value;

	return read_setting(path, &value) ? value : -1;
}

#define TRACEFS	"/sys/kernel/tracing"

/*
 * tracepoint_id - return the ID of a tracepoint, which is the config of its events
 * @name:	its directory in tracefs, e.g. "irq/softirq_entry"
 *
 * If tracefs isn't mounted, mount it in a new mount namespace of this thread, where others don't
 * see it.
 *
 * Return: the ID, or -1 if the tracepoint isn't there, or if this user can't read its ID.
 */
int tracepoint_id(const char *name)
{
	char path[PATH_MAX];

	if (access(TRACEFS "/events", F_OK) &&
	    (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	     mount("tracefs", TRACEFS, "tracefs", 0, NULL)))
		return -1;

	snprintf(path, sizeof(path), TRACEFS "/events/%s/id", name);
	return read_number(path);
}

/*
 * write_number - write a number to a file of /proc or /sys
 * @path:	the file
 * @value:	the number
 *
 * Return: true if the kernel accepted it.
 */
bool write_number(const char *path, int value)
{
	FILE *f = fopen(path, "w");
	bool ok;

	if (!f)
		return false;
	ok = fprintf(f, "%d", value) > 0;
	return !fclose(f) && ok;
}

/*
 * has_userfaults - return true if this user's userfaultfd may handle faults of the kernel, too
 */
bool has_userfaults(void)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		return false;

	close(fd);
	return true;
}

/* Host settings that were changed, and the process that restores each. */
static struct {
	char path[128];
	int fd;
	int alive;
	pid_t guardian;
} overrides[4];

static pid_t overrider;

/*
 * Restore a setting when the test has ended.  However the test ends, its end of the pipe is closed.
 * setsid() keeps this process alive if somebody kills the test's process group.  Close all files
 * of the test but the locked one.  The kernel refuses some settings as long as there is an event,
 * and the test's event may not be freed yet: try again.
 */
static void __noreturn guard(const char *path, int value, int alive, int fd)
{
	unsigned int try;
	char c;

	setsid();
	dup2(alive, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	close_range(STDERR_FILENO, ~0U, 0);
	while (read(STDIN_FILENO, &c, 1) < 0 && errno == EINTR)
		;
	for (try = 0; !write_number(path, value) && try < 1000; try++)
		usleep(10000);
	_exit(0);
}

/*
 * host_restore - restore all settings that host_override() has changed
 *
 * Without this call, they are restored a bit later, after the test, however it ends.
 */
void host_restore(void)
{
	unsigned int i;

	/* Children inherit the exit handler. */
	if (getpid() != overrider)
		return;

	for (i = 0; i < ARRAY_SIZE(overrides); i++) {
		if (!overrides[i].guardian)
			continue;
		close(overrides[i].alive);
		waitpid(overrides[i].guardian, NULL, 0);
		close(overrides[i].fd);
		overrides[i].guardian = 0;
	}
}

/*
 * host_override - change a setting of the host, e.g. a sysctl, while the test runs
 * @path:	its file
 * @value:	what to write
 *
 * The first call for each file forks a process that restores the setting.
 *
 * Return: true if the kernel accepted the value; if not, errno has the reason.
 */
bool host_override(const char *path, int value)
{
	int pipefd[2], old, fd, err;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(overrides) && overrides[i].guardian; i++) {
		if (overrider == getpid() && !strcmp(overrides[i].path, path))
			return write_number(path, value);
	}
	TEST_ASSERT(i < ARRAY_SIZE(overrides), "Too many settings are overridden");

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;

	/* The process that restores this setting after another test may not have done so yet. */
	TEST_ASSERT(!flock(fd, LOCK_EX), "flock() of %s failed: %s", path, strerror(errno));
	if (!read_setting(path, &old) || !write_number(path, value)) {
		err = errno;
		close(fd);
		errno = err;
		return false;
	}

	TEST_ASSERT(!pipe2(pipefd, O_CLOEXEC), "pipe2() failed: %s", strerror(errno));
	snprintf(overrides[i].path, sizeof(overrides[i].path), "%s", path);
	overrides[i].fd = fd;
	overrides[i].alive = pipefd[1];
	overrides[i].guardian = fork();
	TEST_ASSERT(overrides[i].guardian >= 0, "fork() failed: %s", strerror(errno));
	if (!overrides[i].guardian)
		guard(path, old, pipefd[0], fd);
	close(pipefd[0]);

	if (overrider != getpid())
		atexit(host_restore);
	overrider = getpid();
	return true;
}
