// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample a guest or this process in one of several ways, and print the cost as a
 * line of JSON.  The program checks that the samples are right, but does not judge
 * the cost.
 */
#include <getopt.h>
#include <linux/align.h>
#include <linux/stringify.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>

#include "kvm_util.h"
#include "perf_callchain.h"
#include "test_modules.h"
#include "test_util.h"

/* Upper limits: bytes of a sample without its piece of the stack, and pages of a ring. */
#define MAX_SAMPLE_SIZE	2048
#define MAX_RING_PAGES	32768

/* The largest piece, in bytes: each stack from guest_stack_build() has at least two pages. */
#define MAX_PIECE	8192

/*
 * A disturbance takes at least this many ticks.  If a tick is one instruction, as with QEMU's
 * -icount, each exit to the host and the entry after it take more.
 */
#define UNDISTURBED	500

/* At most this many disturbances are recorded. */
#define MAX_GAPS	1024

/*
 * struct work - the work of a guest or of this process, and its progress
 * @left:	iterations of the loop that are left
 * @undisturbed: the shortest time of 16 iterations, in ticks of the clock
 * @gaps:	address at which the next disturbance is stored
 * @gaps_end:	end of the room for disturbances
 */
struct work {
	u64 left;
	u64 undisturbed;
	u64 gaps;
	u64 gaps_end;
};

/* A guest's registers, as the sampler in user space reads them. */
struct sampled_regs {
	u64 ip;
	u64 sp;
	u64 fp;
	u64 root;	/* of the page tables */
};

#include "bench_arch.h"

#define STOP_SIGNAL	SIGUSR1
#define SAMPLE_SIGNAL	SIGUSR2

enum mode {
	MODE_OFF,
	MODE_IP,
	MODE_CALLCHAIN,
	MODE_USERSPACE,
	NR_MODES
};

static const char * const mode_names[NR_MODES] = {
	[MODE_OFF]		= "off",
	[MODE_IP]		= "ip",
	[MODE_CALLCHAIN]	= "callchain",
	[MODE_USERSPACE]	= "userspace",
};

enum source {
	SOURCE_CPU_CLOCK,
	SOURCE_CYCLES,
	SOURCE_IRQ,	/* this and the next are PMUs of test_pmi: samples tell when handlers ran */
	SOURCE_NMI,
	NR_SOURCES
};

static const char * const source_names[NR_SOURCES] = {
	[SOURCE_CPU_CLOCK]	= "cpu-clock",
	[SOURCE_CYCLES]		= "cycles",
	[SOURCE_IRQ]		= "irq",
	[SOURCE_NMI]		= "nmi",
};

static const char * const pmu_names[NR_SOURCES] = {
	[SOURCE_IRQ]		= "test_pmi_irq",
	[SOURCE_NMI]		= "test_pmi",
};

static struct {
	/* Options: what to measure. */
	bool host;
	bool exits;
	enum mode mode;
	enum source source;
	struct guest_stack_layout layout;
	unsigned int piece;	/* bytes of the stack that are read for each sample */
	bool task;		/* also read what names and unwinds the task */
	u64 period_ns;
	u64 run_ms;
	u64 work;

	/* The process or the guest that is sampled. */
	struct kvm_vcpu *vcpu;
	struct guest_stack stack;
	const void *text;
	const void *text_end;
	bool stop;
	bool sample;
	gva_t links;		/* two pointers: to themselves, and to user mode's stack */

	/* Results. */
	struct callchain_event event;
	u64 cpu_ns;
	u64 work_done;
	u64 nr_pmis;
	u64 nr_samples;
	u64 bytes;
	struct test_pmi_raw previous;
	bool previous_hit;
	u64 *latencies;
	u64 nr_latencies;
	u64 *gaps;		/* length of the target's disturbances, in ticks of the clock */
	gva_t gaps_gva;
	u64 nr_gaps;
	u64 undisturbed;
	u64 *userspace_pos;
	u64 *userspace_end;
} bench = {
	.mode = MODE_CALLCHAIN,
	.source = SOURCE_NMI,
	.layout = { .nr_frames = 16, .stride = 16 },
	.period_ns = 1000000,
	.run_ms = 100,
	.work = -1ULL,
};

/*
 * Return this thread's CPU time.  Other threads' work does not count.  NMIs that hit this thread
 * count, and IRQs do, unless CONFIG_IRQ_TIME_ACCOUNTING is set.
 */
static u64 cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* Make KVM_RUN return, even if the signal comes just before KVM_RUN begins. */
static void on_signal(int sig)
{
	if (sig == STOP_SIGNAL)
		WRITE_ONCE(bench.stop, true);
	else
		WRITE_ONCE(bench.sample, true);
	if (bench.vcpu)
		WRITE_ONCE(bench.vcpu->run->immediate_exit, 1);
}

static timer_t start_timer(int sig, u64 first_ns, u64 interval_ns)
{
	struct itimerspec its = {
		.it_value = { first_ns / NSEC_PER_SEC, first_ns % NSEC_PER_SEC },
		.it_interval = { interval_ns / NSEC_PER_SEC, interval_ns % NSEC_PER_SEC },
	};
	struct sigaction sa = { .sa_handler = on_signal };
	struct sigevent sev = {
		.sigev_notify = SIGEV_THREAD_ID,
		.sigev_signo = sig,
		._sigev_un._tid = syscall(SYS_gettid),
	};
	timer_t timer;

	TEST_ASSERT(!sigaction(sig, &sa, NULL), "sigaction()");
	TEST_ASSERT(!timer_create(CLOCK_MONOTONIC, &sev, &timer), "timer_create() failed: %s",
		    strerror(errno));
	TEST_ASSERT(!timer_settime(timer, 0, &its, NULL), "timer_settime()");
	return timer;
}

static bool in_text(u64 ip)
{
	return ip >= (u64)bench.text && ip < (u64)bench.text_end;
}

/* @ras: the return addresses of a sampled chain, innermost first. */
static void check_chain(const u64 *ras, u64 nr)
{
	TEST_ASSERT(nr == bench.layout.nr_frames, "%s: %lu frames, not %u",
		    mode_names[bench.mode], nr, bench.layout.nr_frames);
	TEST_ASSERT(!memcmp(ras, bench.stack.ras, nr * sizeof(*ras)),
		    "%s: a return address is wrong", mode_names[bench.mode]);
}

/*
 * The record of a read has: abi, root, mask, registers, nr; and of each piece: addr, size, data,
 * and how much of it could be read.
 */
enum { READ_MASK = 2, READ_REGS };

/* Sizes of what perf kvm record -g reads beside the kernel's stack, see guest_reads__describe(). */
static const struct {
	unsigned int derefs;
	unsigned int size;
} task_pieces[] = {
	{ 1, 168 },		/* the registers of user mode */
	{ 2, MAX_PIECE },	/* its stack, by one of these registers */
	{ 1, 8 },		/* pid and tid */
	{ 1, 16 },		/* comm */
	{ 4, 8 },		/* the id of the cgroup */
};

/* perf reads 20 registers: on x86, all but DS, ES, FS and GS. */
#ifdef __x86_64__
#define TASK_REGS	0xff0fffULL
#else
#define TASK_REGS	0xfffffULL
#endif

/* Check that all pieces are complete: a shorter one would cost less. */
static void check_pieces(const struct callchain_sample *s)
{
	unsigned int nr = 1 + (bench.task ? ARRAY_SIZE(task_pieces) : 0);
	const u64 *word;

	TEST_ASSERT(s->read, "The stack was not read");
	word = s->read + READ_REGS + __builtin_popcountll(s->read[READ_MASK]);
	TEST_ASSERT(*word == nr, "%lu pieces were read, not %u", *word, nr);
	word++;
	for (unsigned int i = 0; i < nr; i++) {
		unsigned int size = i ? task_pieces[i - 1].size : bench.piece;

		TEST_ASSERT(i || *word == bench.stack.sp, "This stack was not read");
		TEST_ASSERT(word[1] == size && word[2 + size / sizeof(u64)] == size,
			    "Piece %u: only %lu of %u bytes were read", i,
			    word[2 + size / sizeof(u64)], size);
		word += 3 + size / sizeof(u64);
	}
	bench.bytes += sizeof(struct perf_event_header) + sizeof(s->cookie) + s->read_size;
}

static void on_sample(const struct callchain_sample *s, void *arg)
{
	const u16 cpumode = bench.host ? PERF_RECORD_MISC_USER : PERF_RECORD_MISC_GUEST_KERNEL;
	const u64 context = bench.host ? PERF_CONTEXT_USER : PERF_CONTEXT_GUEST_KERNEL;
	bool hit = s->cpumode == cpumode && in_text(s->ip) &&
		   (bench.mode == MODE_IP || !s->hit_kvm);
	struct test_pmi_raw raw = {};

	/* Each sample tells when the handler of the PMI before it ended. */
	if (s->raw) {
		memcpy(&raw, s->raw, sizeof(raw));
		if (bench.previous_hit && raw.nr == bench.previous.nr + 1)
			bench.latencies[bench.nr_latencies++] =
				raw.last_exit - bench.previous.entry;
	}
	bench.nr_pmis++;
	bench.previous = raw;
	bench.previous_hit = hit;
	if (!hit)
		return;

	bench.nr_samples++;
	bench.bytes += s->size - (s->raw ? ALIGN(sizeof(u32) + sizeof(raw), sizeof(u64)) : 0);
	if (bench.piece)
		check_pieces(s);
	if (bench.mode == MODE_IP)
		return;

	TEST_ASSERT(s->nr >= 2 && s->ips[0] == context && s->ips[1] == s->ip,
		    "%s: the chain does not begin with its marker and IP", mode_names[bench.mode]);
	check_chain(&s->ips[2], s->nr - 2);
}

/*
 * A sampler that works on any kernel: a timer's signal interrupts KVM_RUN, then this
 * process reads the registers, and follows the frames in the guest memory that it has
 * mapped.  It caches translations and never checks them again, so it is faster than a
 * real sampler could be.
 */
#define NR_CACHED	256

static struct {
	u64 root;
	u64 page;
	const u8 *hva;
} translations[NR_CACHED];

static const u8 *userspace_translate(const struct sampled_regs *regs, u64 page)
{
	unsigned int slot = (page >> PAGE_SHIFT) % NR_CACHED;

	if (translations[slot].hva && translations[slot].page == page &&
	    translations[slot].root == regs->root)
		return translations[slot].hva;

	translations[slot].page = page;
	translations[slot].root = regs->root;
	translations[slot].hva = arch_translate(bench.vcpu->vm, regs, page);
	return translations[slot].hva;
}

static void userspace_sample(void)
{
	u64 *sample = bench.userspace_pos, *ras = &sample[2];
	u64 page_gva = 0, nr = 0, fp, sp;
	struct sampled_regs regs;
	const u8 *page = NULL;

	bench.nr_pmis++;
	arch_get_regs(bench.vcpu, &regs);
	if (!in_text(regs.ip) || bench.userspace_pos >= bench.userspace_end)
		return;

	fp = regs.fp;
	sp = regs.sp;
	while (fp && IS_ALIGNED(fp, 16) && fp >= sp && nr < GUEST_STACK_MAX_FRAMES) {
		const u64 *frame;

		if (!page || page_gva != (fp & PAGE_MASK)) {
			page_gva = fp & PAGE_MASK;
			page = userspace_translate(&regs, page_gva);
			if (!page)
				break;
		}
		frame = (const void *)(page + (fp & ~PAGE_MASK));
		if (!frame[1])
			break;
		ras[nr++] = frame[1];
		sp = fp + 16;
		fp = frame[0];
	}

	sample[0] = nr;
	sample[1] = regs.ip;
	bench.userspace_pos = &ras[nr];
	bench.nr_samples++;
}

static void check_userspace_samples(const u64 *sample)
{
	bench.bytes = (bench.userspace_pos - sample) * sizeof(*sample);
	while (sample < bench.userspace_pos) {
		TEST_ASSERT(in_text(sample[1]), "userspace: a wrong IP, 0x%lx", sample[1]);
		check_chain(&sample[2], sample[0]);
		sample += 2 + sample[0];
	}
}

/* Build a guest's frames in this process; the outermost one has a saved frame pointer of zero. */
static void build_host_stack(void)
{
	size_t size = (bench.layout.nr_frames + 1) * (size_t)bench.layout.stride;
	u64 fp = (u64)kvm_mmap(size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);
	unsigned int i;

	bench.gaps = kvm_mmap(MAX_GAPS * sizeof(u64), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);
	bench.stack.fp = bench.layout.nr_frames ? fp : 0;
	for (i = 0; i < bench.layout.nr_frames; i++, fp += bench.layout.stride) {
		bench.stack.ras[i] = 0x10000 + i;
		((u64 *)fp)[0] = i + 1 < bench.layout.nr_frames ? fp + bench.layout.stride : 0;
		((u64 *)fp)[1] = bench.stack.ras[i];
	}
}

/* Build what leads to the task's pieces: one pointer stands for all but the one to the stack. */
static void build_task(struct kvm_vm *vm)
{
	gva_t stack = vm_alloc(vm, MAX_PIECE, PAGE_SIZE);
	u64 *links;

	memset(addr_gva2hva(vm, stack), 0x55, MAX_PIECE);
	bench.links = vm_alloc(vm, PAGE_SIZE, PAGE_SIZE);
	links = addr_gva2hva(vm, bench.links);
	links[0] = bench.links;
	links[1] = stack;
}

static void build_guest(void)
{
	struct work work = { .left = bench.work, .undisturbed = UNDISTURBED };
	struct kvm_vm *vm;

	vm = arch_create_guest(&bench.vcpu, guest_work);
	guest_stack_build(vm, &bench.stack, &bench.layout);
	if (bench.piece) {
		vm_enable_cap(vm, KVM_CAP_GUEST_CALLCHAIN,
			      KVM_GUEST_CALLCHAIN_ALLOW | KVM_GUEST_CALLCHAIN_ALLOW_READ);
		/* SP is the start of a page, so a piece of one page takes one translation. */
		bench.stack.sp = bench.stack.gva;
		/* Write to this page, as reads don't fault it in: the frames are on later pages. */
		*(u64 *)addr_gva2hva(vm, bench.stack.sp) = 0;
	}
	if (bench.task)
		build_task(vm);
	guest_stack_use(bench.vcpu, &bench.stack, (gva_t)guest_work);
	work.gaps = vm_alloc(vm, MAX_GAPS * sizeof(u64), PAGE_SIZE);
	work.gaps_end = work.gaps + MAX_GAPS * sizeof(u64);
	bench.gaps = addr_gva2hva(vm, work.gaps);
	bench.gaps_gva = work.gaps;
	arch_set_work(bench.vcpu, &work);
	if (bench.mode == MODE_USERSPACE)
		arch_show_regs(bench.vcpu);
}

static void run_host(void)
{
	struct work work = {
		.left = bench.work,
		.undisturbed = UNDISTURBED,
		.gaps = (u64)bench.gaps,
		.gaps_end = (u64)(bench.gaps + MAX_GAPS),
	};

	arch_run_host(&work, &bench.stack, &bench.stop);
	bench.nr_gaps = (u64 *)work.gaps - bench.gaps;
	bench.undisturbed = work.undisturbed;
	bench.work_done = bench.work - work.left;
}

static void run_guest(void)
{
	struct work work;
	int r = -1;

	while (!READ_ONCE(bench.stop)) {
		r = __vcpu_run(bench.vcpu);
		if (!r)
			break;
		TEST_ASSERT(errno == EINTR, "KVM_RUN failed: %s", strerror(errno));
		bench.vcpu->run->immediate_exit = 0;
		if (READ_ONCE(bench.sample)) {
			WRITE_ONCE(bench.sample, false);
			userspace_sample();
		}
	}

	TEST_ASSERT(r || bench.vcpu->run->exit_reason == WORK_DONE,
		    "The guest exited unexpectedly, exit reason %s",
		    exit_reason_str(bench.vcpu->run->exit_reason));
	arch_get_work(bench.vcpu, &work);
	bench.work_done = bench.work - work.left;
	bench.nr_gaps = (work.gaps - bench.gaps_gva) / sizeof(u64);
	bench.undisturbed = work.undisturbed;
}

static unsigned int ring_pages(u64 nr_samples)
{
	unsigned int nr_pages = 64;

	while (nr_pages < MAX_RING_PAGES &&
	       nr_pages * PAGE_SIZE < nr_samples * (MAX_SAMPLE_SIZE + bench.piece +
						    (bench.task ? MAX_PIECE : 0)))
		nr_pages *= 2;
	return nr_pages;
}

/* Count the bytes of deferred callchains, too. */
static void on_deferred(const struct callchain_sample *s, void *arg)
{
	if (callchain_sample_is_guest(s))
		bench.bytes += s->size;
}

/*
 * Check that this event had the PMU nearly all of the time.  If events take turns on the PMU,
 * this event has no PMIs during another one's turn, and no record tells so.
 */
static void check_event_had_pmu(void)
{
	struct {
		u64 value;
		u64 enabled_ns;
		u64 running_ns;
	} count;

	TEST_ASSERT(bench.nr_pmis, "No PMI came; does another event use this PMU?");
	TEST_ASSERT(read(bench.event.fd, &count, sizeof(count)) == sizeof(count),
		    "The event can't be read: %s", strerror(errno));
	TEST_ASSERT(count.running_ns >= count.enabled_ns / 10 * 9,
		    "Another event uses this PMU as well: this one had it for %lu of %lu ns",
		    count.running_ns, count.enabled_ns);
}

static void add_task(struct perf_guest_reads *reads)
{
	reads->regs = TASK_REGS;
	for (unsigned int i = 0; i < ARRAY_SIZE(task_pieces); i++) {
		struct perf_guest_read *read = &reads->read[reads->nr++];

		*read = (struct perf_guest_read) {
			.base = PERF_GUEST_READ_ADDRESS,
			.address = bench.links,
			.nr_derefs = task_pieces[i].derefs,
			.flags = PERF_GUEST_READ_IN_KERNEL,
			.size = task_pieces[i].size,
		};
		/* The second pointer leads to the stack. */
		if (task_pieces[i].size == MAX_PIECE)
			read->offset[1] = sizeof(u64);
	}
}

static void open_event(struct perf_event_attr *attr, unsigned int nr_pages)
{
	/* Ask for a guest's callchain only if one is needed: other events work on any kernel. */
	bool stock = bench.host || bench.mode == MODE_IP;
	enum pmi_source source = PMI_ATTR, flags = stock ? PMI_STOCK : 0;
	struct perf_guest_reads reads = {
		.nr = 1,
		.read[0] = {
			.base = PERF_GUEST_READ_SP,
			.flags = PERF_GUEST_READ_IN_KERNEL,
			.size = bench.piece,
		},
	};

	attr->sample_type |= PERF_SAMPLE_IP;
	if (bench.mode != MODE_IP)
		attr->sample_type |= PERF_SAMPLE_CALLCHAIN;
	attr->guest_read = bench.piece != 0;
	if (bench.source == SOURCE_CPU_CLOCK)
		source = PMI_IRQ;
	else if (bench.source == SOURCE_CYCLES)
		source = PMI_NMI;
	else
		attr->type = pmu_type(pmu_names[bench.source]);

	TEST_ASSERT(!callchain_event_open_ring(&bench.event, source | flags, attr, 0, -1,
					       nr_pages),
		    "perf_event_open() failed: %s", strerror(errno));
	if (bench.task)
		add_task(&reads);
	if (bench.piece)
		callchain_event_set_reads(&bench.event, &reads);
}

static void measure(void)
{
	bool has_event = bench.mode != MODE_OFF && bench.mode != MODE_USERSPACE;
	u64 nr_samples = bench.run_ms * 1000000 / bench.period_ns + 1000;
	struct perf_event_attr attr = {
		.sample_period = bench.period_ns,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
	};
	timer_t sampler = NULL, stopper = NULL;
	u64 start_ns, *buffer = NULL;

	if (pmu_names[bench.source])
		attr.sample_type = PERF_SAMPLE_RAW;

	if (has_event) {
		bench.latencies = calloc(2 * nr_samples, sizeof(*bench.latencies));
		open_event(&attr, ring_pages(nr_samples));
	}

	if (bench.mode == MODE_USERSPACE) {
		size_t size = nr_samples * MAX_SAMPLE_SIZE;

		/* Populate the buffer before the first sample, as perf does with its ring. */
		buffer = kvm_mmap(size + GUEST_STACK_MAX_FRAMES * 2 * sizeof(u64),
				  PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);
		bench.userspace_pos = buffer;
		bench.userspace_end = buffer + size / sizeof(*buffer);
	}

	start_ns = cpu_ns();
	if (bench.mode == MODE_USERSPACE)
		sampler = start_timer(SAMPLE_SIGNAL, bench.period_ns, bench.period_ns);
	if (has_event)
		TEST_ASSERT(!ioctl(bench.event.fd, PERF_EVENT_IOC_ENABLE, 0), "IOC_ENABLE");
	/* Start this timer last: else, on a busy host, it may expire before the work begins. */
	if (bench.run_ms)
		stopper = start_timer(STOP_SIGNAL, bench.run_ms * 1000000, 0);

	if (bench.host)
		run_host();
	else
		run_guest();

	if (has_event)
		TEST_ASSERT(!ioctl(bench.event.fd, PERF_EVENT_IOC_DISABLE, 0), "IOC_DISABLE");
	if (sampler)
		timer_delete(sampler);
	bench.cpu_ns = cpu_ns() - start_ns;
	if (stopper)
		timer_delete(stopper);

	if (buffer)
		check_userspace_samples(buffer);
	if (!has_event)
		return;

	bench.event.deferred_fn = on_deferred;
	callchain_event_read(&bench.event, on_sample, NULL);
	TEST_ASSERT(!bench.event.waits, "The deferred record of a sample is missing");
	check_event_had_pmu();
	callchain_event_close(&bench.event);
}

static u64 exit_ticks[500];

static void guest_exits(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(exit_ticks); i++)
		exit_ticks[i] = arch_time_exit();
	GUEST_DONE();
}

/* Measure how long exits take: without an event, or with one that takes no sample meanwhile. */
static void measure_exits(void)
{
	struct perf_event_attr attr = { .sample_period = NSEC_PER_SEC };
	u64 start_ns = cpu_ns();
	struct kvm_vm *vm;
	struct ucall uc;

	vm = arch_create_guest(&bench.vcpu, guest_exits);
	if (bench.mode == MODE_CALLCHAIN) {
		open_event(&attr, ring_pages(0));
		TEST_ASSERT(!ioctl(bench.event.fd, PERF_EVENT_IOC_ENABLE, 0), "IOC_ENABLE");
	}
	vcpu_run(bench.vcpu);
	TEST_ASSERT(get_ucall(bench.vcpu, &uc) == UCALL_DONE, "The guest is not done");
	sync_global_from_guest(vm, exit_ticks);
	bench.latencies = exit_ticks;
	bench.nr_latencies = ARRAY_SIZE(exit_ticks);
	bench.work_done = ARRAY_SIZE(exit_ticks);
	bench.cpu_ns = cpu_ns() - start_ns;
	if (bench.mode == MODE_CALLCHAIN)
		callchain_event_close(&bench.event);
}

static u64 nr_pages_crossed(void)
{
	if (!bench.layout.nr_frames)
		return 0;
	return 1 + (bench.layout.nr_frames - 1) * (u64)bench.layout.stride / PAGE_SIZE;
}

static void print_result(void)
{
	u64 i;

	printf("{\"target\": \"%s\", \"mode\": \"%s\", \"source\": \"%s\", \"depth\": %u, "
	       "\"piece\": %u, \"task\": %s, \"pages\": %lu, \"period_ns\": %lu, \"cpu_ns\": %lu, "
	       "\"work\": %lu, \"pmis\": %lu, \"samples\": %lu, \"throttled\": %u, "
	       "\"bytes\": %lu, \"latency_ticks\": [",
	       bench.host ? "host" : bench.exits ? "exit" : "guest", mode_names[bench.mode],
	       bench.mode == MODE_USERSPACE ? "timer" : source_names[bench.source],
	       bench.layout.nr_frames, bench.piece, bench.task ? "true" : "false",
	       nr_pages_crossed(), bench.period_ns,
	       bench.cpu_ns, bench.work_done, bench.nr_pmis, bench.nr_samples,
	       bench.event.nr_throttled, bench.bytes);
	for (i = 0; i < bench.nr_latencies; i++)
		printf("%s%lu", i ? ", " : "", bench.latencies[i]);
	printf("], \"gap_ticks\": [");
	/* Leave out the first one: a guest's loop has no earlier time to compare with. */
	for (i = 1; i < bench.nr_gaps; i++)
		printf("%s%lu", i > 1 ? ", " : "", bench.gaps[i] - bench.undisturbed);
	printf("]}\n");
}

static int find_name(const char *name, const char * const *names, int nr)
{
	int i;

	for (i = 0; i < nr; i++) {
		if (!strcmp(name, names[i]))
			return i;
	}

	fprintf(stderr, "\"%s\" is not known\n", name);
	exit(KSFT_FAIL);
}

static void help(const char *name)
{
	printf("usage: %s [options]\n"
	       " -H sample this process, not a guest\n"
	       " -x time exits of a guest; off or callchain\n"
	       " -m off, ip, callchain, or userspace\n"
	       " -i nmi or irq, of the test_pmi module; cpu-clock; or cycles\n"
	       " -d return addresses on the stack\n"
	       " -s bytes from one frame to the next\n"
	       " -k bytes of the stack to read\n"
	       " -g read registers, user mode's stack and the task, too, as perf kvm record -g\n"
	       " -p nanoseconds from one PMI to the next\n"
	       " -t milliseconds to run; 0 to run until the work is done\n"
	       " -w loops to do at most\n", name);
	exit(KSFT_FAIL);
}

int main(int argc, char *argv[])
{
	int opt;

	while ((opt = getopt(argc, argv, "Hxgm:i:d:s:k:p:t:w:h")) != -1) {
		switch (opt) {
		case 'H':
			bench.host = true;
			break;
		case 'x':
			bench.exits = true;
			break;
		case 'g':
			bench.task = true;
			break;
		case 'm':
			bench.mode = find_name(optarg, mode_names, NR_MODES);
			break;
		case 'i':
			bench.source = find_name(optarg, source_names, ARRAY_SIZE(source_names));
			break;
		case 'd':
			bench.layout.nr_frames = atoi_non_negative("Depth", optarg);
			break;
		case 's':
			bench.layout.stride = atoi_positive("Stride", optarg);
			break;
		case 'k':
			bench.piece = atoi_positive("Piece", optarg);
			break;
		case 'p':
			bench.period_ns = atoi_positive("Period", optarg);
			break;
		case 't':
			bench.run_ms = atoi_non_negative("Time", optarg);
			break;
		case 'w':
			bench.work = atoi_positive("Work", optarg);
			break;
		default:
			help(argv[0]);
		}
	}

	if (pmu_names[bench.source])
		TEST_ASSERT(!load_test_module("test_pmi"), "The test_pmi module can't be loaded");
	if (bench.source == SOURCE_CYCLES)
		TEST_ASSERT(has_hardware_cycles(), "The host has no counter of cycles");
	TEST_ASSERT(bench.source != SOURCE_NMI || get_nprocs() > 1,
		    "NMIs are sent by another CPU, but the host has only one");
	TEST_ASSERT(!bench.host || bench.mode != MODE_USERSPACE,
		    "The mode userspace needs a guest");
	TEST_ASSERT(bench.piece <= MAX_PIECE, "At most %u bytes can be read", MAX_PIECE);
	TEST_ASSERT(!bench.task || bench.piece, "-g goes with -k");
	TEST_ASSERT(!bench.piece || (bench.mode == MODE_CALLCHAIN && !bench.host && !bench.exits),
		    "Guests' stacks are read with their callchains");
	TEST_ASSERT(!bench.exits || bench.mode == MODE_OFF || bench.mode == MODE_CALLCHAIN,
		    "With -x, the mode must be off or callchain");

	/* Stay on one CPU: the timer that sends NMIs is on another one, and is not disturbed. */
	pin_self_to_cpu(get_nprocs() - 1);
	if (bench.exits) {
		measure_exits();
		print_result();
		return 0;
	}

	if (bench.host) {
		build_host_stack();
		/* Before this address, the frame pointer does not lead to the built frames yet. */
		bench.text = host_work_loop;
		bench.text_end = host_work_end;
	} else {
		build_guest();
		bench.text = guest_work;
		bench.text_end = guest_work_end;
	}

	measure();
	print_result();
	return 0;
}
