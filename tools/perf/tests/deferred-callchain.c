// SPDX-License-Identifier: GPL-2.0
/*
 * Samples of a host and of guests come mixed with the records that hold the deferred
 * parts of their callchains, and what was read of guests.  Each sample must get its part,
 * or be known to lack it.
 * A record of a wrong length must be refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include "debug.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "machine.h"
#include "sample.h"
#include "session.h"
#include "tests.h"
#include "tool.h"

#define PID	10
#define HOST_IP	0x1000
#define PART_IP	0x2000

#define SAMPLE_WITH(mode, _tid, _cookie, _delivered) {				\
	.type = PERF_RECORD_SAMPLE, .cpumode = PERF_RECORD_MISC_##mode,		\
	.tid = _tid, .cookie = _cookie, .delivered = _delivered,		\
}

#define SAMPLE(mode, _tid, _cookie) SAMPLE_WITH(mode, _tid, _cookie, "")

#define RECORD(mode, _tid, _cookie, _nr, _delivered) {				\
	.type = PERF_RECORD_CALLCHAIN_DEFERRED,					\
	.cpumode = PERF_RECORD_MISC_##mode, .tid = _tid, .cookie = _cookie,	\
	.nr = _nr, .delivered = _delivered,					\
}

#define READ(mode, _tid, _cookie) {						\
	.type = PERF_RECORD_GUEST_READ, .cpumode = PERF_RECORD_MISC_##mode,	\
	.tid = _tid, .cookie = _cookie, .delivered = "",			\
}

static const struct step {
	u16 type;
	u8 cpumode;
	u32 tid;
	u64 cookie;
	/* The number of entries in the deferred part. */
	u64 nr;
	/*
	 * The samples that this step delivers, by their index: + with, - without the deferred part,
	 * r with what was read of the guest.
	 */
	const char *delivered;
} steps[] = {
	/* 0 */ SAMPLE(KERNEL, 1, 100),
	/* 1 */ SAMPLE(GUEST_KERNEL, 1, 200),
	/* 2 */ SAMPLE(GUEST_USER, 2, 201),
	/* 3 */ SAMPLE(GUEST_KERNEL, 1, 200),
	/* A guest's record does not complete samples of the host. */
	RECORD(GUEST_KERNEL, 1, 200, 3, "1+3+"),
	/* 5 */ SAMPLE(GUEST_KERNEL, 1, 202),
	/* 6 */ SAMPLE(GUEST_USER, 1, 203),
	/* A record may be empty.  It still shows that the record of sample 5 was lost. */
	RECORD(GUEST_USER, 1, 203, 0, "5-6+"),
	/* 8 */ SAMPLE(GUEST_KERNEL, 1, 204),
	/* 9 */ SAMPLE(KERNEL, 1, 100),
	/* A record of the host does not complete samples of the guest. */
	RECORD(USER, 1, 100, 2, "0+9+"),
	/* 11 */ SAMPLE(KERNEL, 1, 101),
	RECORD(USER, 1, 102, 2, "11-"),
	/* A record of the host comes only once, so it completes later samples as well. */
	/* 13 */ SAMPLE_WITH(KERNEL, 1, 102, "13+"),
	RECORD(GUEST_KERNEL, 1, 204, 1, "8+"),
	/* These samples wait until they are flushed, and keep their order. */
	/* 15 */ SAMPLE(KERNEL, 3, 103),
	/* 16 */ SAMPLE(GUEST_KERNEL, 2, 205),
	/* 17 */ SAMPLE(GUEST_USER, 3, 206),
	/* What was read of the guest comes before the callchain, once for each event. */
	/* 18 */ SAMPLE(GUEST_KERNEL, 4, 207),
	/* 19 */ SAMPLE(GUEST_KERNEL, 4, 207),
	READ(GUEST_KERNEL, 4, 207),
	READ(GUEST_KERNEL, 4, 207),
	RECORD(GUEST_KERNEL, 4, 207, 2, "18+r19+r"),
	RECORD(GUEST_KERNEL, 4, 207, 2, ""),
	/* Its record was lost.  What was read before, or in another thread, is not its own. */
	/* 24 */ SAMPLE(GUEST_KERNEL, 4, 208),
	READ(GUEST_KERNEL, 5, 208),
	RECORD(GUEST_KERNEL, 4, 208, 2, "24+"),
	/* The callchain's record was lost, and comes for a later sample. */
	/* 27 */ SAMPLE(GUEST_USER, 4, 209),
	READ(GUEST_USER, 4, 209),
	/* 29 */ SAMPLE(GUEST_USER, 4, 210),
	READ(GUEST_USER, 4, 210),
	RECORD(GUEST_USER, 4, 210, 2, "27-29+r"),
};

static const struct step waiting_sample = SAMPLE(GUEST_KERNEL, 1, 300);
static const struct step valid_record = RECORD(GUEST_KERNEL, 1, 300, 2, "");

/* Lengths that don't fit into the event. */
static const struct malformed {
	const struct step *step;
	u64 nr;
	/* The size of the event, if that is wrong. */
	u16 size;
} malformed[] = {
	{ .step = &valid_record, .nr = 1 << 20, },
	/* The record has two entries; the words after them are struct sample_id. */
	{ .step = &valid_record, .nr = 3, },
	{ .step = &valid_record, .nr = 5, },
	{ .step = &valid_record, .nr = 1ULL << 61, },
	{ .step = &valid_record, .nr = 0, .size = 3 * sizeof(u64), },
	{ .step = &valid_record, .nr = 0, .size = 2 * sizeof(u64), },
	{ .step = &waiting_sample, .nr = 5, },
	{ .step = &waiting_sample, .nr = 1 << 20, },
};

static char delivered[32];
static const struct step *record;
static struct machine host, guest;

static struct machine *machine_of(const struct step *step)
{
	return perf_event_header__cpumode_is_guest(step->cpumode) ? &guest : &host;
}

/* The callchain of a guest begins with a context marker, and so does its deferred part. */
static u64 first_entry(const struct step *step, u64 of_host)
{
	switch (step->cpumode) {
	case PERF_RECORD_MISC_GUEST_KERNEL:
		return PERF_CONTEXT_GUEST_KERNEL;
	case PERF_RECORD_MISC_GUEST_USER:
		return PERF_CONTEXT_GUEST_USER;
	default:
		return of_host;
	}
}

static int process_sample(const struct perf_tool *tool __maybe_unused,
			  union perf_event *event __maybe_unused,
			  struct perf_sample *sample,
			  struct machine *machine)
{
	bool lacks = perf_sample__lacks_deferred(sample);
	const struct ip_callchain *chain = sample->callchain;
	size_t len = strlen(delivered);

	/* The time of a sample is its index. */
	scnprintf(delivered + len, sizeof(delivered) - len, "%d%c%s", (int)sample->time,
		  lacks ? '-' : '+', sample->guest_read.record ? "r" : "");

	TEST_ASSERT_VAL("machine", machine == machine_of(&steps[sample->time]));
	TEST_ASSERT_VAL("marker", chain->ips[2] == PERF_CONTEXT_USER_DEFERRED);
	if (lacks) {
		TEST_ASSERT_VAL("entries", chain->nr == 4);
		TEST_ASSERT_VAL("cookie", chain->ips[3] == steps[sample->time].cookie);
		return 0;
	}

	TEST_ASSERT_VAL("entries", chain->nr == 3 + record->nr);
	for (u64 i = 0; i < record->nr; i++) {
		u64 expected = i ? PART_IP + i : first_entry(record, PART_IP);

		TEST_ASSERT_VAL("entry", chain->ips[3 + i] == expected);
	}
	return 0;
}

/* The fields that struct sample_id and a sample have in common. */
struct ids {
	u32 pid, tid;
	u64 time;
};

static void make_event(const struct step *step, u64 time, union perf_event *event)
{
	struct ids ids = { .pid = PID, .tid = step->tid, .time = time, };
	__u64 *p = event->sample.array;

	if (step->type == PERF_RECORD_SAMPLE) {
		*p++ = HOST_IP;
		p = mempcpy(p, &ids, sizeof(ids));
		*p++ = 4;
		*p++ = first_entry(step, PERF_CONTEXT_KERNEL);
		*p++ = HOST_IP;
		*p++ = PERF_CONTEXT_USER_DEFERRED;
		*p++ = step->cookie;
	} else if (step->type == PERF_RECORD_GUEST_READ) {
		*p++ = step->cookie;
		*p++ = PERF_SAMPLE_REGS_ABI_64;
		*p++ = 0x2000;
		/* No registers, and no pieces */
		*p++ = 0;
		*p++ = 0;
		p = mempcpy(p, &ids, sizeof(ids));
	} else {
		*p++ = step->cookie;
		*p++ = step->nr;
		for (u64 i = 0; i < step->nr; i++)
			*p++ = i ? PART_IP + i : first_entry(step, PART_IP);
		p = mempcpy(p, &ids, sizeof(ids));
	}

	event->header.type = step->type;
	event->header.misc = step->cpumode;
	event->header.size = (void *)p - (void *)event;
}

static int run_event(struct evlist *evlist, const struct perf_tool *tool,
		     const struct step *step, union perf_event *event)
{
	struct perf_sample sample;
	int err;

	if (step->type == PERF_RECORD_CALLCHAIN_DEFERRED)
		record = step;

	perf_sample__init(&sample, /*all=*/false);
	err = evlist__parse_sample(evlist, event, &sample);
	if (!err && step->type == PERF_RECORD_SAMPLE)
		err = evlist__defer_sample(evlist, tool, event, &sample, machine_of(step));
	else if (!err && step->type == PERF_RECORD_GUEST_READ)
		err = evlist__keep_guest_read(evlist, tool, event, &sample, machine_of(step));
	else if (!err)
		err = evlist__deliver_deferred_callchain(evlist, tool, event, &sample,
							 machine_of(step));
	perf_sample__exit(&sample);
	return err;
}

static int run_step(struct evlist *evlist, const struct perf_tool *tool, const struct step *step)
{
	union perf_event event;

	make_event(step, step - steps, &event);
	return run_event(evlist, tool, step, &event);
}

static int run_steps(struct evlist *evlist, const struct perf_tool *tool)
{
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		delivered[0] = '\0';
		TEST_ASSERT_VAL("step failed", !run_step(evlist, tool, &steps[i]));
		pr_debug("step %zu: delivered \"%s\", expected \"%s\"\n", i, delivered,
			 steps[i].delivered);
		TEST_ASSERT_VAL("wrong samples", !strcmp(delivered, steps[i].delivered));
	}

	/* The samples that are left are of threads 2 and 3.  The first one has the time 2. */
	delivered[0] = '\0';
	TEST_ASSERT_VAL("flush failed", !evlist__flush_deferred_samples(evlist, tool, 1));
	TEST_ASSERT_VAL("flushed too early", !strcmp(delivered, ""));
	TEST_ASSERT_VAL("flush failed", !evlist__flush_deferred_samples(evlist, tool, 2));
	TEST_ASSERT_VAL("not flushed", !strcmp(delivered, "2-"));

	delivered[0] = '\0';
	TEST_ASSERT_VAL("flush failed", !evlist__flush_deferred_samples(evlist, tool, UINT64_MAX));
	pr_debug("flushed \"%s\"\n", delivered);
	TEST_ASSERT_VAL("not flushed in order", !strcmp(delivered, "15-16-17-"));
	TEST_ASSERT_VAL("lost", evlist__stats(evlist)->nr_lost_deferred == 7);
	return TEST_OK;
}

static int run_malformed(struct evlist *evlist, const struct perf_tool *tool)
{
	union perf_event event;

	/* Queue the sample with which a valid record would be merged. */
	make_event(&waiting_sample, /*time=*/0, &event);
	TEST_ASSERT_VAL("sample failed", !run_event(evlist, tool, &waiting_sample, &event));

	for (size_t i = 0; i < ARRAY_SIZE(malformed); i++) {
		const struct malformed *m = &malformed[i];
		union perf_event *copy;
		int err;

		make_event(m->step, /*time=*/0, &event);
		if (m->step->type == PERF_RECORD_SAMPLE)
			event.sample.array[3] = m->nr;
		else
			event.callchain_deferred.nr = m->nr;
		if (m->size)
			event.header.size = m->size;

		/*
		 * Allocate no more than the event, so that the address sanitizer finds reads beyond
		 * it.
		 */
		copy = memdup(&event, event.header.size);
		TEST_ASSERT_VAL("memdup", copy);
		err = run_event(evlist, tool, m->step, copy);
		free(copy);
		pr_debug("malformed %zu: %d\n", i, err);
		TEST_ASSERT_VAL("accepted", err == -EFAULT);
	}
	return TEST_OK;
}

static int run(int (*test)(struct evlist *, const struct perf_tool *))
{
	struct perf_event_attr attr = {
		.type			= PERF_TYPE_SOFTWARE,
		.config			= PERF_COUNT_SW_CPU_CLOCK,
		.size			= sizeof(attr),
		.sample_type		= PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
					  PERF_SAMPLE_CALLCHAIN,
		.sample_id_all		= 1,
		.defer_callchain	= 1,
		.defer_output		= 1,
		.guest_callchain	= 1,
	};
	struct evlist *evlist = evlist__new();
	struct evsel *evsel = evsel__new(&attr);
	struct perf_tool tool;
	int ret = TEST_FAIL;

	perf_tool__init(&tool, /*ordered_events=*/false);
	tool.sample = process_sample;

	if (evlist && evsel) {
		evlist__add(evlist, evsel);
		ret = test(evlist, &tool);
	} else if (evsel) {
		evsel__put(evsel);
	}

	evlist__put(evlist);
	return ret;
}

static int test__join(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return run(run_steps);
}

static int test__malformed(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return run(run_malformed);
}

static struct test_case deferred_callchain_tests[] = {
	TEST_CASE("Join with samples", join),
	TEST_CASE("Refuse malformed lengths", malformed),
	{ .name = NULL, }
};

struct test_suite suite__deferred_callchain = {
	.desc = "Deferred callchains",
	.test_cases = deferred_callchain_tests,
};
