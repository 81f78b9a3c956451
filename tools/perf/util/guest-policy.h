/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_POLICY_H
#define __PERF_GUEST_POLICY_H

#include <sys/types.h>

const char *guest_policy__refusal(pid_t pid);

/* The sysctl's file, if that is not procfs': for tests. */
extern const char *guest_policy__sysctl;

#endif /* __PERF_GUEST_POLICY_H */
