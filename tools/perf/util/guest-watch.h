/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_WATCH_H
#define __PERF_GUEST_WATCH_H

#include "guest-files.h"

struct guest_reader;

enum guest_files guest_watch__add(const struct guest_reader *what);
void guest_watch__start(void);
void guest_watch__stop(void);

#endif /* __PERF_GUEST_WATCH_H */
