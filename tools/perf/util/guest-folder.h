/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_FOLDER_H
#define __PERF_GUEST_FOLDER_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include "guest-files.h"

struct build_id;
struct machine;
struct perf_sample;
struct record_opts;

enum guest_files guest_folder__write(pid_t pid, const char *dir, bool tables);
enum guest_files guest_folder__record(const struct record_opts *opts, const char *data,
				      bool tables);
void guest_folder__use(const char *data);
const char *guest_folder__missing(void);
enum guest_files guest_folder__begin_live(const struct record_opts *opts, bool tables);
void guest_folder__end_live(void);
bool guest_folder__is_live(void);
FILE *guest_folder__open(const struct machine *machine, const char *name);
bool guest_folder__is_used(struct machine *machine);
char *guest_folder__mounted(struct machine *machine, const char *path,
			    const struct build_id *build_id);
const char *guest_folder__name(struct machine *machine);
void guest_folder__use_kernel_of(struct machine *machine, const struct perf_sample *sample);

#endif /* __PERF_GUEST_FOLDER_H */
