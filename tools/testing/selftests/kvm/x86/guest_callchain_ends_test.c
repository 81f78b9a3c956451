// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests at the ends of things: of the depth that perf allows, of
 * VMs and of VMMs that are sampled when they go, and of KVM itself.
 */
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest_stack.h"
#include "kvm_test_harness.h"
#include "kvm_util.h"
#include "perf_callchain.h"
#include "processor.h"
#include "test_util.h"

/* Seconds: a debug host is slow, and may not be alone. */
#define TIMEOUT		300

#define NR_SAMPLES		25
#define NR_VMS			5
#define NR_RELOADS		3

/* Where a hypervisor says who it is, by convention. */
#define HYPERVISOR_LEAF		0x40000000

#define MAX_STACK_SYSCTL	"/proc/sys/kernel/perf_event_max_stack"

/* More than the longest stack that can be built. */
#define RAISED_MAX_STACK	1000

static void build_guest(struct kvm_vcpu **vcpu, unsigned int nr_frames, const char *name,
			struct callchain_expectation *e)
{
	const struct guest_stack_layout layout = { nr_frames, 64, 0x100 };
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, guest_loop);
	struct guest_stack stack;

	guest_stack_build(vm, &stack, &layout);
	guest_stack_use(*vcpu, &stack, (gva_t)guest_loop);
	expect_guest_stack(e, name, false, &stack, RAISED_MAX_STACK);
}

static void sample_a_guest(enum pmi_source source, const char *name)
{
	const struct perf_event_attr attr = {};
	struct callchain_expectation e;
	struct kvm_vcpu *vcpu;

	build_guest(&vcpu, 16, name, &e);
	vcpu_run_and_compare(vcpu, source, &attr, NR_SAMPLES, &e);
	kvm_vm_free(vcpu->vm);
}

FIXTURE(ends)
{
};

FIXTURE_VARIANT(ends)
{
	enum pmi_source source;
};

FIXTURE_VARIANT_ADD(ends, irq)
{
	.source = PMI_IRQ,
};

FIXTURE_VARIANT_ADD(ends, nmi)
{
	.source = PMI_NMI,
};

FIXTURE_VARIANT_ADD(ends, irq_deferred)
{
	.source = PMI_IRQ_DEFERRED,
};

FIXTURE_VARIANT_ADD(ends, nmi_deferred)
{
	.source = PMI_NMI_DEFERRED,
};

FIXTURE_SETUP(ends)
{
	const char *why_not;

	if (!pmi_source_available(variant->source, &why_not))
		SKIP(return, "%s", why_not);
}

FIXTURE_TEARDOWN(ends)
{
}

static void is_refused(enum pmi_source source, u16 max_stack)
{
	const struct perf_event_attr attr = { .sample_max_stack = max_stack };
	struct callchain_event event;

	TEST_ASSERT(callchain_event_open(&event, source, &attr, 0, -1) && errno == EOVERFLOW,
		    "perf takes a sample_max_stack of %u, kernel.perf_event_max_stack is %d",
		    max_stack, read_number(MAX_STACK_SYSCTL));
}

static void check_depth(enum pmi_source source, u16 max_stack, unsigned int nr_frames,
			unsigned int nr_seen)
{
	const struct perf_event_attr attr = { .sample_max_stack = max_stack };
	struct callchain_expectation e;
	struct kvm_vcpu *vcpu;
	char name[64];

	snprintf(name, sizeof(name), "sample_max_stack %u, %u frames", max_stack, nr_frames);
	build_guest(&vcpu, nr_frames, name, &e);
	e.nr = 2 + nr_seen;
	vcpu_run_and_compare(vcpu, source, &attr, NR_SAMPLES, &e);
	kvm_vm_free(vcpu->vm);
}

/* The instruction pointer counts as well, the context marker doesn't. */
TEST_F_TIMEOUT(ends, depths, TIMEOUT)
{
	int max = read_number(MAX_STACK_SYSCTL);

	if (max < 1 || max > GUEST_STACK_MAX_FRAMES)
		SKIP(return, "kernel.perf_event_max_stack is %d", max);

	check_depth(variant->source, 0, GUEST_STACK_MAX_FRAMES, max - 1);
	check_depth(variant->source, 1, GUEST_STACK_MAX_FRAMES, 0);
	check_depth(variant->source, max, GUEST_STACK_MAX_FRAMES, max - 1);
	is_refused(variant->source, max + 1);
	is_refused(variant->source, 65535);
}

static void is_of_the_host(const struct callchain_sample *s, void *arg)
{
	TEST_ASSERT(!callchain_sample_is_guest(s), "A guest is sampled that has gone: %lu entries",
		    s->nr);
}

/* One event sees many VMs come and go on the thread that it follows. */
TEST_F_TIMEOUT(ends, vms_replaced, TIMEOUT)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct callchain_event event;
	struct callchain_expectation e;
	struct kvm_vcpu *vcpu, *old = NULL;
	unsigned int i;

	TEST_ASSERT(!callchain_event_open(&event, variant->source, &attr, 0, -1),
		    "perf_event_open() failed: %s", strerror(errno));
	TEST_ASSERT(!ioctl(event.fd, PERF_EVENT_IOC_ENABLE, 0), "PERF_EVENT_IOC_ENABLE: %s",
		    strerror(errno));

	for (i = 0; i < NR_VMS; i++) {
		struct callchain_comparison c = { .expected = &e };

		/* Another number of frames each time: they can't be mistaken. */
		build_guest(&vcpu, 5 + i, "VM replaced", &e);
		/* Not before: its memory must not be where the old one's was. */
		if (old)
			kvm_vm_free(old->vm);
		old = vcpu;
		callchain_event_read(&event, is_of_the_host, NULL);
		while (c.nr_guest < NR_SAMPLES) {
			vcpu_run_until_sampled(vcpu, &event, 0);
			callchain_event_read(&event, callchain_compare, &c);
		}
	}

	kvm_vm_free(old->vm);
	callchain_event_read(&event, is_of_the_host, NULL);
	callchain_event_close(&event);
}

static void *run_for_ever(void *arg)
{
	struct callchain_expectation *e = arg;
	struct kvm_vcpu *vcpu;

	build_guest(&vcpu, 16, "VMM killed", e);
	vcpu_run(vcpu);
	return NULL;
}

static void be_a_vmm(int go, struct callchain_expectation *e)
{
	pthread_t thread;
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);

	/* The thread comes after the event, to inherit it. */
	if (read(go, &c, 1) == 1) {
		pthread_create(&thread, NULL, run_for_ever, e);
		pthread_join(thread, NULL);
	}
	_exit(1);
}

static void kill_a_vmm(enum pmi_source source)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES, .inherit = 1 };
	struct callchain_comparison c = { };
	struct callchain_expectation *e;
	struct callchain_event event;
	struct pollfd pfd = { .events = POLLIN };
	int go[2], cpu, status;
	cpu_set_t all;
	pid_t vmm;

	e = kvm_mmap(sizeof(*e), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	c.expected = e;

	/* An event that is inherited has a ring on one CPU only. */
	TEST_ASSERT(!sched_getaffinity(0, sizeof(all), &all), "sched_getaffinity()");
	cpu = pin_self_to_any_cpu();

	TEST_ASSERT(!pipe(go), "pipe() failed: %s", strerror(errno));
	vmm = fork();
	TEST_ASSERT(vmm >= 0, "fork() failed: %s", strerror(errno));
	if (!vmm)
		be_a_vmm(go[0], e);
	TEST_ASSERT(!sched_setaffinity(0, sizeof(all), &all), "sched_setaffinity()");

	TEST_ASSERT(!callchain_event_open(&event, source, &attr, vmm, cpu),
		    "perf_event_open() failed: %s", strerror(errno));
	TEST_ASSERT(!ioctl(event.fd, PERF_EVENT_IOC_ENABLE, 0), "PERF_EVENT_IOC_ENABLE: %s",
		    strerror(errno));
	TEST_ASSERT(write(go[1], "", 1) == 1, "write() to the VMM");

	/* Until it has made its VM, only the host is sampled. */
	pfd.fd = event.fd;
	while (c.nr_guest < NR_SAMPLES) {
		TEST_ASSERT(poll(&pfd, 1, -1) == 1 && pfd.revents == POLLIN,
			    "The VMM has ended by itself");
		callchain_event_read(&event, callchain_compare, &c);
	}

	TEST_ASSERT(!kill(vmm, SIGKILL), "kill() failed: %s", strerror(errno));
	TEST_ASSERT(waitpid(vmm, &status, 0) == vmm && WIFSIGNALED(status),
		    "The VMM has ended otherwise, by 0x%x", status);

	callchain_event_read(&event, callchain_compare, &c);
	callchain_event_close(&event);
	close(go[0]);
	close(go[1]);
	kvm_munmap(e, sizeof(*e));
}

TEST_F_TIMEOUT(ends, vmm_killed, TIMEOUT)
{
	kill_a_vmm(variant->source);

	/* It has left nothing behind that the next one would trip over. */
	sample_a_guest(variant->source, "VMM after a VMM that was killed");
}

static const char *kvm_vendor_module(void)
{
	return host_cpu_is_intel ? "kvm_intel" : "kvm_amd";
}

static int module_refcount(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/module/%s/refcnt", name);
	return read_number(path);
}

static const char * const slab_caches[] = {
	"kvm_vcpu", "x86_emulator", "kvm_mmu_page_header", "pte_list_desc", "perf_event",
};

/* Objects in use; -1 if they aren't counted, or only together with others' objects. */
static int slab_objects(const char *cache)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "/sys/kernel/slab/%s", cache);
	if (lstat(path, &st) || S_ISLNK(st.st_mode))
		return -1;

	/* What CPUs have put by for themselves counts as in use. */
	snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", cache);
	if (!write_number(path, 1))
		return -1;

	snprintf(path, sizeof(path), "/sys/kernel/slab/%s/objects", cache);
	return read_number(path);
}

TEST_F_TIMEOUT(ends, objects, TIMEOUT)
{
	int before[ARRAY_SIZE(slab_caches)], now;
	struct kvm_vcpu *vcpu;
	unsigned int i, grace;
	struct kvm_vm *vm;

	vm = vm_create_with_one_vcpu(&vcpu, guest_loop);
	now = slab_objects("kvm_vcpu");
	kvm_vm_free(vm);
	if (now < 1)
		SKIP(return, "The host doesn't count the objects of slab caches");

	for (i = 0; i < ARRAY_SIZE(slab_caches); i++)
		before[i] = slab_objects(slab_caches[i]);

	for (i = 0; i < NR_VMS; i++)
		sample_a_guest(variant->source, "VM made, sampled, freed");
	kill_a_vmm(variant->source);

	for (i = 0; i < ARRAY_SIZE(slab_caches); i++) {
		now = slab_objects(slab_caches[i]);
		/* Some are freed by RCU. */
		for (grace = 0; now > before[i] && grace < 50; grace++) {
			syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
			now = slab_objects(slab_caches[i]);
		}
		ksft_print_msg("%s: %d objects, now %d\n", slab_caches[i], before[i], now);
		TEST_ASSERT(now <= before[i],
			    "%s has %d objects, and had %d before %u VMs were sampled",
			    slab_caches[i], now, before[i], NR_VMS + 1);
	}
}

/* What these change is the whole host's, and is put back whatever comes. */

FIXTURE(raised_max_stack)
{
	int old;
};

FIXTURE_VARIANT(raised_max_stack)
{
	enum pmi_source source;
};

FIXTURE_VARIANT_ADD(raised_max_stack, irq)
{
	.source = PMI_IRQ,
};

FIXTURE_VARIANT_ADD(raised_max_stack, nmi)
{
	.source = PMI_NMI,
};

FIXTURE_VARIANT_ADD(raised_max_stack, irq_deferred)
{
	.source = PMI_IRQ_DEFERRED,
};

FIXTURE_VARIANT_ADD(raised_max_stack, nmi_deferred)
{
	.source = PMI_NMI_DEFERRED,
};

FIXTURE_SETUP(raised_max_stack)
{
	const char *why_not;

	self->old = read_number(MAX_STACK_SYSCTL);
	if (!pmi_source_available(variant->source, &why_not))
		SKIP(return, "%s", why_not);
	if (!write_number(MAX_STACK_SYSCTL, RAISED_MAX_STACK))
		SKIP(return, "kernel.perf_event_max_stack can't be set: %s", strerror(errno));
}

FIXTURE_TEARDOWN_PARENT(raised_max_stack)
{
	if (read_number(MAX_STACK_SYSCTL) != self->old)
		TEST_ASSERT(write_number(MAX_STACK_SYSCTL, self->old),
			    "kernel.perf_event_max_stack can't be put back to %d: %s", self->old,
			    strerror(errno));
}

TEST_F_TIMEOUT(raised_max_stack, depths, TIMEOUT)
{
	check_depth(variant->source, 0, GUEST_STACK_MAX_FRAMES, GUEST_STACK_MAX_FRAMES);
	check_depth(variant->source, RAISED_MAX_STACK, GUEST_STACK_MAX_FRAMES,
		    GUEST_STACK_MAX_FRAMES);
	check_depth(variant->source, GUEST_STACK_MAX_FRAMES, GUEST_STACK_MAX_FRAMES,
		    GUEST_STACK_MAX_FRAMES - 1);
	is_refused(variant->source, RAISED_MAX_STACK + 1);
	is_refused(variant->source, 65535);
}

static bool load_kvm(void)
{
	const char *dir = getenv("BUILD_MODULES");
	char command[PATH_MAX + 64];

	snprintf(command, sizeof(command), "modprobe %s%s%s %s", dir ? "-d '" : "",
		 dir ?: "", dir ? "'" : "", kvm_vendor_module());
	return !system(command);
}

/*
 * QEMU's emulation, with a thread for each vCPU, may go on with an old
 * translation of code that another CPU patches (seen with 7.2).  KVM's static
 * calls are patched as it comes and goes; a PMI on another CPU then trips over
 * the int3 that stood there for a moment.
 */
static bool runs_on_tcg(void)
{
	u32 eax, signature[3];

	if (!this_cpu_has(X86_FEATURE_HYPERVISOR))
		return false;

	cpuid(HYPERVISOR_LEAF, &eax, &signature[0], &signature[1], &signature[2]);
	return !memcmp(signature, "TCGTCGTCGTCG", sizeof(signature));
}

FIXTURE(reload)
{
	struct callchain_event *events;
	unsigned int nr_events;
};

FIXTURE_VARIANT(reload)
{
	enum pmi_source source;
};

FIXTURE_VARIANT_ADD(reload, irq)
{
	.source = PMI_IRQ,
};

FIXTURE_VARIANT_ADD(reload, nmi)
{
	.source = PMI_NMI,
};

FIXTURE_VARIANT_ADD(reload, irq_deferred)
{
	.source = PMI_IRQ_DEFERRED,
};

FIXTURE_VARIANT_ADD(reload, nmi_deferred)
{
	.source = PMI_NMI_DEFERRED,
};

FIXTURE_SETUP(reload)
{
	const struct perf_event_attr attr = {};
	const char *why_not;
	int cpu, own = -1;

	if (!pmi_source_available(variant->source, &why_not))
		SKIP(return, "%s", why_not);
	if (module_refcount(kvm_vendor_module()) < 0)
		SKIP(return, "KVM is no module that can be unloaded");
	if (module_refcount(kvm_vendor_module()) > 0)
		SKIP(return, "Somebody else uses KVM");

	if (runs_on_tcg())
		own = pin_self_to_any_cpu();

	self->events = calloc(get_nprocs_conf(), sizeof(*self->events));
	for (cpu = 0; cpu < get_nprocs_conf(); cpu++) {
		struct callchain_event *event = &self->events[self->nr_events];

		if (own >= 0 && cpu != own)
			continue;
		if (callchain_event_open(event, variant->source, &attr, -1, cpu)) {
			if (errno == EACCES || errno == EPERM)
				SKIP(return, "Only root may sample all CPUs");
			TEST_ASSERT(errno == ENODEV, "perf_event_open() failed on CPU %d: %s",
				    cpu, strerror(errno));
			continue;
		}
		/* Nobody reads it; the chains are made all the same. */
		TEST_ASSERT(!ioctl(event->fd, PERF_EVENT_IOC_ENABLE, 0),
			    "PERF_EVENT_IOC_ENABLE: %s", strerror(errno));
		self->nr_events++;
	}
}

FIXTURE_TEARDOWN_PARENT(reload)
{
	TEST_ASSERT(module_refcount(kvm_vendor_module()) >= 0 || load_kvm(),
		    "modprobe can't load KVM again");
}

static bool unload(const char *module)
{
	return !syscall(SYS_delete_module, module, O_NONBLOCK);
}

TEST_F_TIMEOUT(reload, under_events, TIMEOUT)
{
	unsigned int i;

	for (i = 0; i < NR_RELOADS; i++) {
		/* An IRQ each time: a CPU of the test PMU's takes one event only. */
		sample_a_guest(PMI_IRQ, "before KVM is unloaded");

		if (!unload(kvm_vendor_module())) {
			if (errno == EPERM)
				SKIP(return, "Only root may unload KVM");
			TEST_FAIL("%s can't be unloaded, nobody used it: %s",
				  kvm_vendor_module(), strerror(errno));
		}
		TEST_ASSERT(unload("kvm"), "kvm can't be unloaded: %s", strerror(errno));
		TEST_ASSERT(load_kvm(), "modprobe can't load KVM again");
	}

	sample_a_guest(PMI_IRQ, "after KVM was loaded again");
	for (i = 0; i < self->nr_events; i++)
		callchain_event_close(&self->events[i]);
	sample_a_guest(variant->source, "after KVM was loaded again");
}

TEST_HARNESS_MAIN
