// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains while guests come and go: VMs and VMMs are sampled when they end.
 */
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_SAMPLES	25
#define NR_VMS		5

static void build_guest(struct kvm_vcpu **vcpu, unsigned int nr_frames, const char *name,
			struct callchain_expectation *e)
{
	const struct guest_stack_layout layout = { nr_frames, 64, 0x100 };
	struct guest_stack stack;

	vm_create_sampled(1, guest_loop, vcpu);
	guest_stack_build_and_use(*vcpu, &stack, &layout, false);
	expect_guest_stack(e, name, false, &stack, DEFAULT_MAX_STACK);
}

static void sample_a_guest(enum pmi_source source, const char *name)
{
	struct callchain_expectation e;
	struct kvm_vcpu *vcpu;

	build_guest(&vcpu, 16, name, &e);
	vcpu_run_and_compare(vcpu, source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(vcpu->vm);
}

PMI_FIXTURE(lifetime)

static void is_of_the_host(const struct callchain_sample *s, void *arg)
{
	TEST_ASSERT(!callchain_sample_is_guest(s), "A guest is sampled that has gone: %lu entries",
		    s->nr);
}

/* One event sees many VMs come and go on the thread that it follows. */
CALLCHAIN_TEST(lifetime, vms_replaced)
{
	const struct perf_event_attr attr = { .wakeup_events = NR_SAMPLES };
	struct callchain_event event;
	struct callchain_expectation e;
	struct kvm_vcpu *vcpu, *old = NULL;
	unsigned int i;

	callchain_event_start(&event, variant->source, &attr, 0, -1);
	for (i = 0; i < NR_VMS; i++) {
		struct callchain_comparison c = { .expected = &e };

		/*
		 * Each VM has another number of frames, so that its chains can't be taken for
		 * another VM's.
		 */
		build_guest(&vcpu, 5 + i, "VM replaced", &e);
		/* Free the old VM only now: the new one's memory must lie at other addresses. */
		if (old)
			kvm_vm_free(old->vm);
		old = vcpu;
		callchain_event_read(&event, is_of_the_host, NULL);
		while (c.nr_guest < NR_SAMPLES) {
			vcpu_run_until_sampled(vcpu, &event, false);
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

	/* Wait for the parent to open the event: a thread inherits only events that are there. */
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

	/* perf maps the ring of an event with attr.inherit only if the event is bound to a CPU. */
	TEST_ASSERT(!sched_getaffinity(0, sizeof(all), &all), "sched_getaffinity()");
	cpu = pin_self_to_any_cpu();

	TEST_ASSERT(!pipe(go), "pipe() failed: %s", strerror(errno));
	vmm = fork();
	TEST_ASSERT(vmm >= 0, "fork() failed: %s", strerror(errno));
	if (!vmm)
		be_a_vmm(go[0], e);
	TEST_ASSERT(!sched_setaffinity(0, sizeof(all), &all), "sched_setaffinity()");

	callchain_event_start(&event, source, &attr, vmm, cpu);
	TEST_ASSERT(write(go[1], "", 1) == 1, "write() to the VMM");

	/* Until the VMM has created its VM, only the host is sampled. */
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

CALLCHAIN_TEST(lifetime, vmm_killed)
{
	kill_a_vmm(variant->source);

	/* The killed VMM must have left nothing behind that breaks the next one. */
	sample_a_guest(variant->source, "VMM after a VMM that was killed");
}

/* x86_emulator, kvm_mmu_page_header and pte_list_desc exist only on x86. */
static const char * const slab_caches[] = {
	"kvm_vcpu", "x86_emulator", "kvm_mmu_page_header", "pte_list_desc", "perf_event",
};

/*
 * Return how many objects are in use, or -1 if they aren't counted, or only together with those
 * of other caches.
 */
static int slab_objects(const char *cache)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "/sys/kernel/slab/%s", cache);
	if (lstat(path, &st) || S_ISLNK(st.st_mode))
		return -1;

	/* Free objects that CPUs keep for themselves count as in use. */
	snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", cache);
	if (!write_number(path, 1))
		return -1;

	snprintf(path, sizeof(path), "/sys/kernel/slab/%s/objects", cache);
	return read_number(path);
}

CALLCHAIN_TEST(lifetime, objects)
{
	int before[ARRAY_SIZE(slab_caches)], now;
	struct kvm_vcpu *vcpu;
	unsigned int i, grace;
	struct kvm_vm *vm;

	vm = vm_create_sampled(1, guest_loop, &vcpu);
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
		/* RCU frees some of them later. */
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

TEST_HARNESS_MAIN
