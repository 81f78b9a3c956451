// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test who may see callchains of a guest.  The administrator may forbid them by the sysctl
 * kernel.perf_event_guest_callchain, and the VMM by KVM_CAP_GUEST_CALLCHAIN.  If one of them
 * does, nothing on the guest's stack may get into the ring buffer.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/kvm.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "callchain_harness.h"

#define SYSCTL		"/proc/sys/kernel/perf_event_guest_callchain"
#define NR_SAMPLES	20
#define NR_FRAMES	8
#define MAX_ROUNDS	8

#define ALLOW		KVM_GUEST_CALLCHAIN_ALLOW
#define FORBID		KVM_GUEST_CALLCHAIN_FORBID

#define ALLOW_READ	(ALLOW | KVM_GUEST_CALLCHAIN_ALLOW_READ)

PMI_FIXTURE(control)

static const struct control_case {
	const char *name;
	int sysctl;
	u64 said[2];
	bool shown;
} cases[] = {
	{ "0",				0, {},			false },
	{ "0, allowed",			0, { ALLOW },		false },
	{ "0, forbidden",		0, { FORBID },		false },
	{ "1",				1, {},			false },
	{ "1, allowed",			1, { ALLOW },		true },
	{ "1, forbidden",		1, { FORBID },		false },
	{ "1, allowed, forbidden",	1, { ALLOW, FORBID },	false },
	{ "2",				2, {},			true },
	{ "2, allowed",			2, { ALLOW },		true },
	{ "2, forbidden",		2, { FORBID },		false },
	{ "2, allowed, forbidden",	2, { ALLOW, FORBID },	false },
	{ "0, reads allowed",		0, { ALLOW_READ },	false },
	{ "1, reads allowed",		1, { ALLOW_READ },	true },
	{ "3",				3, {},			true },
	{ "3, forbidden",		3, { FORBID },		false },
};

/*
 * struct control - a case that is tested
 * @c:		the case
 * @e:		what each sample of the guest must have, if its stack is shown
 * @stack:	the guest's stack
 * @nr_guest:	how many samples hit the guest
 */
struct control {
	const struct control_case *c;
	struct callchain_expectation e;
	struct guest_stack stack;
	unsigned int nr_guest;
};

static void check_sample(const struct callchain_sample *s, void *arg)
{
	struct control *control = arg;
	const char *name = control->c->name;

	/* A sample may lack its deferred records if the ring was too small for them. */
	if (!callchain_sample_is_guest(s) || s->alone)
		return;

	if (control->c->shown && !s->hit_kvm) {
		callchain_sample_compare(s, &control->e);
		control->nr_guest++;
		return;
	}

	control->nr_guest += !control->c->shown;
	TEST_ASSERT(s->ip == control->e.ip, "%s: the IP is 0x%lx", name, s->ip);
	/* The chain of a guest that isn't shown ends at the IP. */
	TEST_ASSERT(s->hit_kvm ? !s->nr && !s->cookie :
		    s->nr == 2 && s->ips[0] == control->e.ips[0] && s->ips[1] == s->ip,
		    "%s: a callchain of %lu entries", name, s->nr);
}

/* Build a stack, and expect its chain in each sample of a guest that is shown. */
static void build_stack(struct control *control, struct kvm_vcpu *vcpu, const char *name)
{
	const struct guest_stack_layout layout = { .nr_frames = NR_FRAMES, .stride = 64,
						    .offset = 256 };

	guest_stack_build_and_use(vcpu, &control->stack, &layout, false);
	expect_guest_stack(&control->e, name, false, &control->stack, DEFAULT_MAX_STACK);
}

/* Return true if a frame pointer or return address of the guest's is anywhere in the ring. */
static bool ring_has_stack(const struct callchain_event *event, const struct guest_stack *stack)
{
	const u64 *word = (void *)event->ring + PAGE_SIZE;
	const u64 *end = (void *)event->ring + event->map_size;
	unsigned int i;

	for (; word < end; word++) {
		if (*word >= stack->ras[0] && *word <= stack->ras[NR_FRAMES - 1])
			return true;
		/* The stack has the pointers to all frames but the first. */
		for (i = 1; i <= NR_FRAMES; i++) {
			if (*word == stack->frames[i])
				return true;
		}
	}
	return false;
}

static void sample_guest(struct kvm_vcpu *vcpu, enum pmi_source source, struct control *control)
{
	struct perf_event_attr attr = {
		.sample_period = 1000000,
		.wakeup_events = NR_SAMPLES,
	};
	const char *name = control->c->name;
	struct callchain_event event;
	unsigned int i, before;
	bool in_ring;

	for (i = 0; i < MAX_ROUNDS && control->nr_guest < NR_SAMPLES / 2; i++) {
		before = control->nr_guest;
		TEST_ASSERT(!callchain_event_open(&event, source, &attr, 0, -1),
			    "%s: perf_event_open() failed: %s", name, strerror(errno));
		vcpu_run_until_sampled(vcpu, &event, true);
		callchain_event_read(&event, check_sample, control);
		TEST_ASSERT(!event.waits, "%s: the deferred record of a sample is missing", name);
		in_ring = ring_has_stack(&event, &control->stack);
		TEST_ASSERT(control->c->shown || !in_ring,
			    "%s: the stack is in the ring buffer", name);
		/* On a slow host, all PMIs of a round may miss the guest. */
		TEST_ASSERT(!control->c->shown || in_ring || control->e.nr <= 2 ||
			    control->nr_guest == before,
			    "%s: the stack is not in the ring buffer", name);
		callchain_event_close(&event);
		/* Give the vCPU more time to get into the guest. */
		attr.sample_period *= 2;
	}
	TEST_ASSERT(control->nr_guest >= NR_SAMPLES / 2, "%s: only %u samples are the guest's",
		    name, control->nr_guest);
}

CALLCHAIN_TEST(control, shown_or_not)
{
	const struct control_case *c;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	unsigned int i;

	for_each_case(c, cases) {
		struct control control = { .c = c };

		SKIP_UNLESS_OVERRIDDEN(SYSCTL, c->sysctl);
		vm = vm_create_looping(&vcpu, 4, false);
		build_stack(&control, vcpu, c->name);
		for (i = 0; i < ARRAY_SIZE(c->said) && c->said[i]; i++)
			vm_enable_cap(vm, KVM_CAP_GUEST_CALLCHAIN, c->said[i]);
		sample_guest(vcpu, variant->source, &control);
		kvm_vm_free(vm);
	}
}

/* A policy that is set before a vCPU exists applies to that vCPU. */
CALLCHAIN_TEST(control, before_vcpus)
{
	static const struct control_case before[] = {
		{ "1, allowed before",		1, { ALLOW },	true },
		{ "2, forbidden before",	2, { FORBID },	false },
	};
	const struct control_case *c;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	for_each_case(c, before) {
		struct control control = { .c = c };

		SKIP_UNLESS_OVERRIDDEN(SYSCTL, c->sysctl);
		vm = vm_create(1);
		vm_enable_cap(vm, KVM_CAP_GUEST_CALLCHAIN, c->said[0]);
		vcpu = vm_add_looping(vm);
		build_stack(&control, vcpu, c->name);
		sample_guest(vcpu, variant->source, &control);
		kvm_vm_free(vm);
	}
}

static void check_rest(struct kvm_vcpu *vcpu, struct callchain_event *event,
		       struct control *control, const struct control_case *c)
{
	unsigned int i;

	control->c = c;
	control->nr_guest = 0;
	/* On a slow host, a PMI may come before the vCPU is back in the guest. */
	for (i = 0; i < 20 * MAX_ROUNDS && !control->nr_guest; i++) {
		vcpu_run_until_sampled(vcpu, event, false);
		callchain_event_read(event, check_sample, control);
	}
	TEST_ASSERT(control->nr_guest, "%s: no sample of the guest", c->name);
}

/* A refusal takes effect at once, even for open events and for vCPUs that have run before. */
CALLCHAIN_TEST(control, no_at_any_time)
{
	static const struct control_case shown = { .name = "before", .sysctl = 2, .shown = true };
	static const struct control_case never = { .name = "the sysctl says no" };
	static const struct control_case again = { .name = "after", .sysctl = 2, .shown = true };
	static const struct control_case forbidden = { .name = "the VMM says no", .sysctl = 2 };
	const struct perf_event_attr attr = {
		.sample_period = 4000000,
		.wakeup_events = NR_SAMPLES,
	};
	struct control control = {};
	struct callchain_event event;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 2);
	vm = vm_create_looping(&vcpu, 4, false);
	build_stack(&control, vcpu, "no at any time");
	callchain_event_start(&event, variant->source, &attr, 0, -1);
	event.may_lose = true;
	check_rest(vcpu, &event, &control, &shown);
	TEST_ASSERT(write_number(SYSCTL, 0), "The sysctl: %s", strerror(errno));
	check_rest(vcpu, &event, &control, &never);
	TEST_ASSERT(write_number(SYSCTL, 2), "The sysctl: %s", strerror(errno));
	check_rest(vcpu, &event, &control, &again);
	vm_enable_cap(vm, KVM_CAP_GUEST_CALLCHAIN, FORBID);
	check_rest(vcpu, &event, &control, &forbidden);
	callchain_event_close(&event);
	kvm_vm_free(vm);
}

/* Users that sample a guest of OWNER, and the highest kernel.perf_event_paranoid that lets them. */
#define OWNER		60001
#define OTHER		60002
#define NEVER		(-2)
#define ALWAYS		100

#define PARANOID	"/proc/sys/kernel/perf_event_paranoid"

static const struct user {
	const char *name;
	uid_t uid;
	bool perfmon;
	int allowed_to;
} users[] = {
	{ "root",			0,	true,	ALWAYS },
	{ "the owner",			OWNER,	false,	1 },
	{ "another user",		OTHER,	false,	NEVER },
	{ "another, with CAP_PERFMON",	OTHER,	true,	ALWAYS },
};

static void become(const struct user *user)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {};

	if (!user->uid)
		return;

	TEST_ASSERT(!prctl(PR_SET_KEEPCAPS, 1) && !setresgid(user->uid, user->uid, user->uid) &&
		    !setresuid(user->uid, user->uid, user->uid), "setresuid(): %s",
		    strerror(errno));
	if (user->perfmon)
		data[CAP_PERFMON / 32].permitted = BIT(CAP_PERFMON % 32);
	data[CAP_PERFMON / 32].effective = data[CAP_PERFMON / 32].permitted;
	TEST_ASSERT(!syscall(SYS_capset, &header, data), "capset(): %s", strerror(errno));
}

/* Run the guest as its owner, until this process is killed. */
static void run_owners_guest(struct kvm_vcpu *vcpu, int ready_fd)
{
	static const struct user owner = { .uid = OWNER };

	become(&owner);
	/*
	 * A VMM that its user has started is dumpable, so that this user may sample it.
	 * setresuid() has made this process undumpable: undo that.
	 */
	TEST_ASSERT(!prctl(PR_SET_DUMPABLE, 1) && !prctl(PR_SET_PDEATHSIG, SIGKILL),
		    "prctl(): %s", strerror(errno));
	TEST_ASSERT(write(ready_fd, "", 1) == 1, "write(): %s", strerror(errno));
	for (;;)
		__vcpu_run(vcpu);
}

/*
 * Sample the VMM as @user.  Check that perf refuses this if @paranoid is too high for @user, and
 * shows the guest's stack otherwise.
 */
static void look_as(const struct user *user, int paranoid, enum pmi_source source, pid_t vmm,
		    struct control *control)
{
	const bool denied = paranoid > user->allowed_to;
	struct callchain_event event;
	unsigned int i;
	int r;

	become(user);
	r = callchain_event_open(&event, source, NULL, vmm, -1);
	TEST_ASSERT(!!r == denied && (!r || errno == EACCES),
		    "%s, paranoid %d: perf_event_open() returned %d, errno %d", user->name,
		    paranoid, r, errno);
	if (r)
		return;

	/* On a slow host, it takes long until this process runs again. */
	event.may_lose = true;
	callchain_event_enable(&event);
	for (i = 0; i < 1000 && control->nr_guest < NR_SAMPLES; i++) {
		usleep(10000);
		callchain_event_read(&event, check_sample, control);
	}
	TEST_ASSERT(control->nr_guest >= NR_SAMPLES, "%s, paranoid %d: %u samples of the guest",
		    user->name, paranoid, control->nr_guest);
}

static void wait_for(pid_t pid, const char *who)
{
	int status = 0;

	TEST_ASSERT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status),
		    "%s has failed, status 0x%x", who, status);
}

/* To sample a VMM's guest takes the same rights as to sample the VMM and the kernel. */
CALLCHAIN_TEST(control, users)
{
	static const struct control_case shown = { .name = "users", .sysctl = 2, .shown = true };
	struct control control = { .c = &shown };
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int pipefd[2], paranoid;
	unsigned int i;
	pid_t vmm, pid;
	char byte;

	if (getuid())
		SKIP(return, "This takes root, who can become other users");

	/*
	 * Fork the VMM before settings are overridden.  The process that restores a setting waits
	 * until nobody has the write end of its pipe: a VMM that is forked later would inherit it.
	 */
	TEST_ASSERT(!pipe(pipefd), "pipe(): %s", strerror(errno));
	vmm = fork();
	TEST_ASSERT(vmm >= 0, "fork(): %s", strerror(errno));
	/*
	 * KVM_RUN fails in a process that has not created the VM.  So parent and child create one
	 * each, with the same layout.
	 */
	vm = vm_create_looping(&vcpu, 4, false);
	build_stack(&control, vcpu, "users");
	if (!vmm)
		run_owners_guest(vcpu, pipefd[1]);

	close(pipefd[1]);
	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 2);
	SKIP_UNLESS_OVERRIDDEN(PARANOID, 2);
	TEST_ASSERT(read(pipefd[0], &byte, 1) == 1, "The VMM has failed");
	for (paranoid = -1; paranoid <= 2; paranoid++) {
		TEST_ASSERT(write_number(PARANOID, paranoid), "%d is not taken", paranoid);
		for (i = 0; i < ARRAY_SIZE(users); i++) {
			pid = fork();
			TEST_ASSERT(pid >= 0, "fork(): %s", strerror(errno));
			if (!pid) {
				look_as(&users[i], paranoid, variant->source, vmm, &control);
				_exit(0);
			}
			wait_for(pid, users[i].name);
		}
	}
	TEST_ASSERT(!kill(vmm, SIGKILL) && waitpid(vmm, NULL, 0) == vmm, "kill()");
	close(pipefd[0]);
	kvm_vm_free(vm);
}

FIXTURE(capability)
{
	struct kvm_vm *vm;
};

FIXTURE_SETUP(capability)
{
	self->vm = vm_create_barebones();
	if (!vm_check_cap(self->vm, KVM_CAP_GUEST_CALLCHAIN))
		SKIP(return, "The kernel has no callchains of guests, CONFIG_GUEST_PERF_CALLCHAIN");
}

FIXTURE_TEARDOWN(capability)
{
	kvm_vm_free(self->vm);
}

static void assert_fails(struct kvm_vm *vm, const char *what, struct kvm_enable_cap cap, int err)
{
	int r = __vm_ioctl(vm, KVM_ENABLE_CAP, &cap);

	TEST_ASSERT(r == -1 && errno == err, "%s: KVM_ENABLE_CAP returned %d, errno %d", what, r,
		    errno);
}

/* The VMM can't allow callchains again after it has forbidden them. */
TEST_F(capability, sealed)
{
	const struct kvm_enable_cap none = { .cap = KVM_CAP_GUEST_CALLCHAIN };
	const struct kvm_enable_cap both = {
		.cap = KVM_CAP_GUEST_CALLCHAIN,
		.args = { ALLOW | FORBID },
	};
	const struct kvm_enable_cap read_alone = {
		.cap = KVM_CAP_GUEST_CALLCHAIN,
		.args = { KVM_GUEST_CALLCHAIN_ALLOW_READ },
	};
	const struct kvm_enable_cap read_and_forbid = {
		.cap = KVM_CAP_GUEST_CALLCHAIN,
		.args = { ALLOW_READ | FORBID },
	};
	const struct kvm_enable_cap unknown = {
		.cap = KVM_CAP_GUEST_CALLCHAIN,
		.args = { 1ULL << 32 | ALLOW },
	};
	const struct kvm_enable_cap flags = {
		.cap = KVM_CAP_GUEST_CALLCHAIN,
		.flags = 1,
		.args = { FORBID },
	};
	const struct kvm_enable_cap allow = {
		.cap = KVM_CAP_GUEST_CALLCHAIN,
		.args = { ALLOW },
	};
	const struct kvm_enable_cap allow_read = {
		.cap = KVM_CAP_GUEST_CALLCHAIN,
		.args = { ALLOW_READ },
	};

	TEST_ASSERT_EQ(vm_check_cap(self->vm, KVM_CAP_GUEST_CALLCHAIN), (ALLOW_READ | FORBID));
	assert_fails(self->vm, "no argument", none, EINVAL);
	assert_fails(self->vm, "both", both, EINVAL);
	assert_fails(self->vm, "reads without callchains", read_alone, EINVAL);
	assert_fails(self->vm, "reads and no callchains", read_and_forbid, EINVAL);
	assert_fails(self->vm, "an unknown bit", unknown, EINVAL);
	assert_fails(self->vm, "a flag", flags, EINVAL);

	vm_enable_cap(self->vm, KVM_CAP_GUEST_CALLCHAIN, ALLOW_READ);
	vm_enable_cap(self->vm, KVM_CAP_GUEST_CALLCHAIN, ALLOW);
	vm_enable_cap(self->vm, KVM_CAP_GUEST_CALLCHAIN, FORBID);
	vm_enable_cap(self->vm, KVM_CAP_GUEST_CALLCHAIN, FORBID);
	assert_fails(self->vm, "to allow what was forbidden", allow, EPERM);
	assert_fails(self->vm, "to allow reads after that", allow_read, EPERM);
}

FIXTURE(sysctl) {};
FIXTURE_SETUP(sysctl) {}
FIXTURE_TEARDOWN(sysctl)
{
	host_restore();
}

TEST_F(sysctl, range)
{
	static const int wrong[] = { -1, 4, 1000 };
	unsigned int i;
	struct stat st;

	SKIP_UNLESS_OVERRIDDEN(SYSCTL, 1);
	TEST_ASSERT(!stat(SYSCTL, &st) && (st.st_mode & 07777) == 0644 && !st.st_uid,
		    "The sysctl's mode is %o", st.st_mode);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		TEST_ASSERT(!write_number(SYSCTL, wrong[i]) && errno == EINVAL,
			    "The sysctl took %d", wrong[i]);
		TEST_ASSERT_EQ(read_number(SYSCTL), 1);
	}
}

TEST_HARNESS_MAIN
