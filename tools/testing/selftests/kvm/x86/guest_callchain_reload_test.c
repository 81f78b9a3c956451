// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains after KVM was unloaded and loaded again while events sampled the host.  This
 * runs only if KVM_SELFTEST_RELOAD is set, as nobody else can start a VM meanwhile.
 */
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_SAMPLES	25
#define NR_RELOADS	3

/* The CPUID leaf in which a hypervisor has its signature, by convention. */
#define HYPERVISOR_LEAF	0x40000000

static void sample_a_guest(enum pmi_source source, const char *name)
{
	const struct guest_stack_layout layout = { 16, 64, 0x100 };
	struct callchain_expectation e;
	struct guest_stack stack;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	vm = vm_create_sampled(1, guest_loop, &vcpu);
	guest_stack_build_and_use(vcpu, &stack, &layout, false);
	expect_guest_stack(&e, name, false, &stack, DEFAULT_MAX_STACK);
	vcpu_run_and_compare(vcpu, source, NULL, NR_SAMPLES, &e);
	kvm_vm_free(vm);
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

static bool load_kvm(void)
{
	const char *dir = getenv("BUILD_MODULES");
	char command[PATH_MAX + 64];

	snprintf(command, sizeof(command), "modprobe %s%s%s %s", dir ? "-d '" : "",
		 dir ?: "", dir ? "'" : "", kvm_vendor_module());
	return !system(command);
}

/*
 * Return true if TCG, QEMU's emulator, emulates this CPU.  With a thread for each
 * CPU, TCG may still run an old translation of code that another CPU has patched (seen
 * with QEMU 7.2).  KVM patches perf's static calls when it is loaded and unloaded: a PMI
 * on another CPU may then run into the int3 that was there for a moment.  So sample only
 * one CPU on TCG, the one that patches.
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

PMI_VARIANTS(reload,);

FIXTURE_SETUP(reload)
{
	int cpu, own = -1;

	if (!getenv("KVM_SELFTEST_RELOAD"))
		SKIP(return, "KVM is unloaded only if KVM_SELFTEST_RELOAD is set");
	SKIP_UNLESS_PMI(variant->source);
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
		if (callchain_event_open(event, variant->source, NULL, -1, cpu)) {
			if (errno == EACCES || errno == EPERM)
				SKIP(return, "Only root may sample all CPUs");
			TEST_ASSERT(errno == ENODEV, "perf_event_open() failed on CPU %d: %s",
				    cpu, strerror(errno));
			continue;
		}
		/* Nobody reads the ring, but perf walks the stacks all the same. */
		callchain_event_enable(event);
		self->nr_events++;
	}
}

FIXTURE_TEARDOWN_PARENT(reload)
{
	if (getenv("KVM_SELFTEST_RELOAD"))
		TEST_ASSERT(module_refcount(kvm_vendor_module()) >= 0 || load_kvm(),
			    "modprobe can't load KVM again");
}

static bool unload(const char *module)
{
	return !syscall(SYS_delete_module, module, O_NONBLOCK);
}

CALLCHAIN_TEST(reload, under_events)
{
	unsigned int i;

	for (i = 0; i < NR_RELOADS; i++) {
		/* Use an IRQ in each variant: the PMU of NMIs may take only one event per CPU. */
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
