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

/* KVM_PEEK_MAX: a walk reads no more pages, wherever the guest puts its frames. */
#define MAX_PAGES	64

CALLCHAIN_TEST(guest_callchain, pages)
{
	const struct guest_stack_layout each_page = { 127, 4096, 0x100 };
	struct callchain_expectation e;

	build(self->vcpu, variant->user, &e, "a frame on each page", &each_page, 1 + MAX_PAGES);
	vcpu_run_and_compare(self->vcpu, variant->source, NULL, NR_SAMPLES, &e);
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
	if (variant->user && variant->source == PMI_NMI && has_hardware_cycles())
		SKIP(return, "The host's PMU doesn't count while the guest's user mode runs");

	build(self->vcpu, variant->user, &e, "exclude_user", &layout, DEFAULT_MAX_STACK);
	if (variant->user)
		e.nr = 0;
	vcpu_run_and_compare(self->vcpu, variant->source, &attr, NR_SAMPLES, &e);
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

/*
 * BPF's stack helpers take a sample's chain for one of the host: an event that has guests'
 * chains refuses a program that calls them, and any other event takes it.
 */
CALLCHAIN_TEST(guest_callchain, bpf_stack_helper)
{
	int prog_fd = load_bpf_get_stack();
	struct callchain_event event;

	if (prog_fd < 0 && (errno == ENOSYS || errno == EINVAL))
		SKIP(return, "The host has no BPF programs for perf events");
	if (prog_fd < 0 && (errno == EPERM || errno == EACCES))
		SKIP(return, "This user may not load BPF programs");
	TEST_ASSERT(prog_fd >= 0, "BPF_PROG_LOAD failed: %s", strerror(errno));

	TEST_ASSERT(!callchain_event_open(&event, variant->source, NULL, 0, -1),
		    "perf_event_open() failed: %s", strerror(errno));
	TEST_ASSERT(ioctl(event.fd, PERF_EVENT_IOC_SET_BPF, prog_fd) == -1 && errno == EPROTO,
		    "A program that calls bpf_get_stack() was not refused, errno %d", errno);
	callchain_event_close(&event);

	TEST_ASSERT(!callchain_event_open(&event, variant->source | PMI_STOCK, NULL, 0, -1),
		    "perf_event_open() failed: %s", strerror(errno));
	TEST_ASSERT(!ioctl(event.fd, PERF_EVENT_IOC_SET_BPF, prog_fd),
		    "An event without guests' chains has refused it: %s", strerror(errno));
	callchain_event_close(&event);
	close(prog_fd);
}

TEST_HARNESS_MAIN
