/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_VMLINUX_H
#define __PERF_GUEST_VMLINUX_H

#include <stdio.h>

struct guest_kernel;

const char *guest_vmlinux__write(struct guest_kernel *kernel, FILE *file);

#endif /* __PERF_GUEST_VMLINUX_H */
