/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_POLICY_H
#define __PERF_GUEST_POLICY_H

#include <sys/types.h>

const char *guest_policy__refusal(pid_t pid);
const char *guest_policy__read_refusal(pid_t pid);

#endif /* __PERF_GUEST_POLICY_H */
