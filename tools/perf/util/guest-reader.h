/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_READER_H
#define __PERF_GUEST_READER_H

#include <stdbool.h>
#include <sys/types.h>
#include <linux/perf_event.h>

struct record_opts;

/**
 * struct guest_reader - what to read of a guest
 * @pid:	pid of its VMM
 * @top:	directory to make for the files of its kernels
 * @tables:	true to write the tables that unwind its kernels
 * @only_tasks:	true to watch tasks, but neither modules nor reboots
 * @opts:	options of the recording; NULL to watch nothing
 */
struct guest_reader {
	pid_t			pid;
	const char		*top;
	bool			tables;
	bool			only_tasks;
	const struct record_opts *opts;
};

/* What the process that reads a guest tells perf: what to read at samples; enum guest_files. */
enum { GUEST_TOLD_READS, GUEST_TOLD_FILES };

struct guest_told_reads {
	u8			known;
	struct perf_guest_reads	reads;
};

void guest_reader__run(const struct guest_reader *what, int broker, int stop);

#endif /* __PERF_GUEST_READER_H */
