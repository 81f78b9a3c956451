// SPDX-License-Identifier: GPL-2.0-only
/*
 * A library for LD_PRELOAD.  It makes a VMM that does not know KVM_CAP_GUEST_CALLCHAIN allow or
 * forbid callchains and reads of its guest, as the environment variable GUEST_CALLCHAIN says.
 */
#include <err.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static __u64 wanted_policy(void)
{
	const char *name = getenv("GUEST_CALLCHAIN");

	if (name && !strcmp(name, "allow"))
		return KVM_GUEST_CALLCHAIN_ALLOW;
	if (name && !strcmp(name, "allow-read"))
		return KVM_GUEST_CALLCHAIN_ALLOW | KVM_GUEST_CALLCHAIN_ALLOW_READ;
	if (name && !strcmp(name, "forbid"))
		return KVM_GUEST_CALLCHAIN_FORBID;
	errx(1, "GUEST_CALLCHAIN must be allow, allow-read or forbid");
}

/* This replaces libc's ioctl(), and has the same prototype. */
int ioctl(int fd, unsigned long request, ...)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_GUEST_CALLCHAIN };
	va_list args;
	void *arg;
	long ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);

	ret = syscall(SYS_ioctl, fd, request, arg);
	if (request != KVM_CREATE_VM || ret < 0)
		return ret;

	cap.args[0] = wanted_policy();
	if (syscall(SYS_ioctl, ret, KVM_ENABLE_CAP, &cap))
		err(1, "KVM_CAP_GUEST_CALLCHAIN");
	return ret;
}
