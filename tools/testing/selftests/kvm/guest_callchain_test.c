// SPDX-License-Identifier: GPL-2.0-only
/*
 * Callchains of guests in perf samples: guests with stacks of known frames are
 * sampled, and each sample is compared, whole and in order, with what was built.
 */
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "callchain_harness.h"

#define NR_SAMPLES	25

static const struct {
	const char *name;
	struct guest_stack_layout layout;
} stacks[] = {
	{ "no frames",			{ 0,   16,   0x100 } },
	{ "1 frame",			{ 1,   16,   0x100 } },
	{ "2 frames",			{ 2,   16,   0x100 } },
	{ "16 frames on one page",	{ 16,  64,   0x100 } },
	{ "16 frames on 16 pages",	{ 16,  4096, 0x7f0 } },
	{ "16 frames, 1 on two pages",	{ 16,  16,   0xf78 } },
	{ "126 frames, all that fit",	{ 126, 16,   0x000 } },
	{ "127 frames, one too many",	{ 127, 16,   0x000 } },
	{ "127 frames on 32 pages",	{ 127, 1032, 0x3f8 } },
	{ "300 frames",			{ 300, 32,   0x008 } },
};

FIXTURE(guest_callchain)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
};

FIXTURE_VARIANT(guest_callchain)
{
	enum pmi_source source;
	int levels;
	bool user;
};

PMI_VARIANTS(guest_callchain, _4_level_kernel, .levels = 4);
PMI_VARIANTS(guest_callchain, _4_level_user, .levels = 4, .user = true);
#if GUEST_MAX_LEVELS > 4
PMI_VARIANTS(guest_callchain, _5_level_kernel, .levels = 5);
PMI_VARIANTS(guest_callchain, _5_level_user, .levels = 5, .user = true);
#endif

FIXTURE_SETUP(guest_callchain)
{
	SKIP_UNLESS_PMI(variant->source);
	SKIP_UNLESS_LEVELS(variant->levels);
	self->vm = vm_create_looping(&self->vcpu, variant->levels, variant->user);
}

FIXTURE_TEARDOWN(guest_callchain)
{
	kvm_vm_free(self->vm);
}

/* The stack that most tests sample. */
static const struct guest_stack_layout layout = { 16, 32, 0xf00 };

static void build(struct kvm_vcpu *vcpu, bool user, struct callchain_expectation *e,
		  const char *name, const struct guest_stack_layout *layout,
		  unsigned int max_stack)
{
	struct guest_stack stack;

	guest_stack_build_and_use(vcpu, &stack, layout, user);
	expect_guest_stack(e, name, user, &stack, max_stack);
}

CALLCHAIN_TEST(guest_callchain, known_stacks)
{
	struct callchain_expectation e;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(stacks); i++) {
		build(self->vcpu, variant->user, &e, stacks[i].name, &stacks[i].layout,
		      DEFAULT_MAX_STACK);
		vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
	}
}

CALLCHAIN_TEST(guest_callchain, sample_max_stack)
{
	struct perf_event_attr attr = {};
	struct callchain_expectation e;

	for (attr.sample_max_stack = 1; attr.sample_max_stack < 20; attr.sample_max_stack += 3) {
		build(self->vcpu, variant->user, &e, "sample_max_stack", &layout,
		      attr.sample_max_stack);
		vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &e);
	}
}

/*
 * An event that excludes callchains of the mode that the guest is not in has the whole chain on
 * x86.  On arm64, it has only the IP, as the chain can't be deferred.  An event that excludes
 * callchains of the guest's mode has an empty chain.
 */
CALLCHAIN_TEST(guest_callchain, exclude_callchain)
{
	const struct perf_event_attr other = {
		.exclude_callchain_kernel = variant->user,
		.exclude_callchain_user = !variant->user,
	}, own = {
		.exclude_callchain_kernel = !variant->user,
		.exclude_callchain_user = variant->user,
	};
	struct callchain_expectation e;

	build(self->vcpu, variant->user, &e, "exclude_callchain", &layout, DEFAULT_MAX_STACK);
	/* An event that excludes a part of the chain defers nothing. */
	expect_undeferred(&e);
	vcpu_run_and_compare(self->vcpu, variant->source, &other, NR_SAMPLES, &e);
	e.nr = 0;
	vcpu_run_and_compare(self->vcpu, variant->source, &own, NR_SAMPLES, &e);
}

/*
 * A sample must have no callchain of a mode that its event excludes, even if a PMI hits that
 * mode by skid.  cpu-clock stands in for skid: it samples a guest's user mode despite exclude_user.
 */
CALLCHAIN_TEST(guest_callchain, exclude_user)
{
	const struct perf_event_attr attr = { .exclude_user = 1 };
	struct callchain_expectation e;

	/*
	 * A hardware counter with exclude_user takes no samples of user mode: leave that case
	 * out.  The PMU of KVM_SELFTEST_NMI_PMU ignores exclude_user.
	 */
	if (variant->user && (variant->source & ~PMI_DEFERRED) == PMI_NMI &&
	    has_hardware_cycles())
		SKIP(return, "The host's PMU doesn't count while the guest's user mode runs");

	build(self->vcpu, variant->user, &e, "exclude_user", &layout, DEFAULT_MAX_STACK);
	if (variant->user)
		e.nr = 0;
	vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &e);
}

static void is_not_guest(const struct callchain_sample *s, void *arg)
{
	unsigned int i;

	TEST_ASSERT(!callchain_sample_is_guest(s), "exclude_guest: cpumode is %u", s->cpumode);
	for (i = 0; i < s->nr; i++)
		TEST_ASSERT(s->ips[i] != (u64)PERF_CONTEXT_GUEST_KERNEL &&
			    s->ips[i] != (u64)PERF_CONTEXT_GUEST_USER &&
			    s->ips[i] != (u64)guest_loop,
			    "exclude_guest: entry %u is of the guest", i);
}

CALLCHAIN_TEST(guest_callchain, exclude_guest)
{
	const struct perf_event_attr attr = { .exclude_guest = 1 };
	struct callchain_expectation e;

	build(self->vcpu, variant->user, &e, "exclude_guest", &layout, DEFAULT_MAX_STACK);
	vcpu_run_sampled(self->vcpu, variant->source, &attr, NR_SAMPLES, is_not_guest, NULL);
}

/* Load a program that asks for the kernel's stack, and does not drop the sample. */
static int load_bpf_get_stack(void)
{
	const struct bpf_insn insns[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10 },
		{ BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, .imm = -64 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, .imm = 64 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_4, .imm = 0 },
		{ BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_stack },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, .imm = 1 },
		{ BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_PERF_EVENT,
		.insns = (u64)insns,
		.insn_cnt = ARRAY_SIZE(insns),
		.license = (u64)"GPL",
	};

	return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
}

static void is_bare(const struct callchain_sample *s, void *arg)
{
	unsigned int *nr_guest = arg;

	if (!callchain_sample_is_guest(s))
		return;

	/* The markers of the host alone, or with a cookie of its user mode. */
	TEST_ASSERT(s->nr >= 2 && s->ips[0] == (u64)PERF_CONTEXT_KERNEL &&
		    ((s->nr == 2 && s->ips[1] == (u64)PERF_CONTEXT_USER) ||
		     (s->nr == 3 && s->ips[1] == (u64)PERF_CONTEXT_USER_DEFERRED)),
		    "BPF's helper is shown %lu entries, from 0x%lx", s->nr, s->ips[0]);
	++*nr_guest;
}

/*
 * BPF's stack helpers read the chain that is recorded, and take it for one of the
 * host: with such a program, samples of guests have only the host's markers.
 */
CALLCHAIN_TEST(guest_callchain, bpf_stack_helper)
{
	struct perf_event_attr attr = { .sample_period = 200000 };
	struct callchain_expectation e;
	unsigned int nr_guest = 0;
	int prog_fd;

	prog_fd = load_bpf_get_stack();
	if (prog_fd < 0 && (errno == ENOSYS || errno == EINVAL))
		SKIP(return, "The host has no BPF programs for perf events");
	if (prog_fd < 0 && (errno == EPERM || errno == EACCES))
		SKIP(return, "This user may not load BPF programs");
	TEST_ASSERT(prog_fd >= 0, "BPF_PROG_LOAD failed: %s", strerror(errno));

	build(self->vcpu, variant->user, &e, "BPF", &layout, DEFAULT_MAX_STACK);

	/* As in vcpu_run_and_compare(), a slow host needs time between PMIs. */
	for (; nr_guest < NR_SAMPLES && attr.sample_period < 200000000; attr.sample_period *= 2)
		vcpu_run_sampled_bpf(self->vcpu, variant->source, &attr, prog_fd, NR_SAMPLES,
				     is_bare, &nr_guest);
	TEST_ASSERT(nr_guest >= NR_SAMPLES, "Only %u samples are the guest's", nr_guest);
	close(prog_fd);
}

TEST_HARNESS_MAIN
