/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_VMLINUZ_H
#define __PERF_VMLINUZ_H

const char *vmlinuz__open(const char *path, int *fd);

#endif /* __PERF_VMLINUZ_H */
