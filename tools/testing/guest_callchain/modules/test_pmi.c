// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two perf PMUs for machines without a hardware PMU: the PMI of "test_pmi" is a
 * true NMI, that of "test_pmi_irq" an IRQ.
 *
 * A counter "overflows" every sample_period nanoseconds, or every 10000 if that is more.  For
 * "test_pmi", a timer on another CPU then sends an NMI to the CPU on which the event is
 * scheduled, so two CPUs are needed.  For "test_pmi_irq", the timer is on that CPU itself.  So
 * the PMI hits any code on that CPU, guest mode included, as that of a hardware counter does; but
 * an IRQ can't hit code of the host that has IRQs off.  Each PMU takes one event per CPU.
 *
 * A module can send and handle NMIs only on x86: other architectures have no "test_pmi".
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/smp.h>

#include <asm/irq_regs.h>
#ifdef CONFIG_X86
#include <asm/apic.h>
#include <asm/nmi.h>
#else
#include <asm/arch_timer.h>
#endif

#include "test_pmi.h"

#define TEST_PMI_MIN_PERIOD_NS	10000

/**
 * struct test_pmi_cpu - the counter of one CPU
 * @timer:	fires on @sender
 * @csd:	starts @timer on @sender
 * @event:	the event to sample; written on this CPU with IRQs off, read in its PMI
 * @period_ns:	the timer's period; zero stops the timer
 * @sent:	how many NMIs were sent
 * @seen:	how many of them the handler has counted
 * @late:	one of the counted NMIs may not have arrived yet
 * @sender:	the CPU of the timer
 * @cpu:	this CPU
 * @raw:	the samples' raw data
 */
struct test_pmi_cpu {
	struct hrtimer		timer;
	call_single_data_t	csd;
	struct perf_event	*event;
	u64			period_ns;
	atomic_t		sent;
	int			seen;
	bool			late;
	unsigned int		sender;
	unsigned int		cpu;
	struct test_pmi_raw	raw;
};

static DEFINE_PER_CPU(struct test_pmi_cpu, test_pmi_nmi_cpus);
static DEFINE_PER_CPU(struct test_pmi_cpu, test_pmi_irq_cpus);

static struct pmu test_pmi_nmi_pmu;
static struct pmu test_pmi_irq_pmu;

/* The clock of struct test_pmi_raw; programs read it, too.  Inlined: a call would be measured. */
static __always_inline u64 test_pmi_clock(void)
{
#ifdef CONFIG_X86
	return rdtsc_ordered();
#else
	return __arch_counter_get_cntvct();
#endif
}

static struct test_pmi_cpu *test_pmi_this_cpu(const struct perf_event *event)
{
	return event->pmu == &test_pmi_nmi_pmu ? this_cpu_ptr(&test_pmi_nmi_cpus) :
						 this_cpu_ptr(&test_pmi_irq_cpus);
}

/*
 * Take a sample in the PMI, whose handler began at @entry.  The next PMI may
 * overwrite the raw data, because perf copies it.
 */
static void test_pmi_sample(struct test_pmi_cpu *tc, struct pt_regs *regs, u64 entry)
{
	struct perf_event *event = READ_ONCE(tc->event);
	struct perf_raw_record raw = {
		.frag = { .data = &tc->raw, .size = sizeof(tc->raw) },
	};
	struct perf_sample_data data;

	/* The last PMI may come after its event was stopped or deleted. */
	if (!event || event->hw.state & PERF_HES_STOPPED)
		return;

	tc->raw.nr++;
	tc->raw.entry = entry;

	local64_add(event->hw.sample_period, &event->count);
	perf_sample_data_init(&data, 0, event->hw.last_period);
	perf_sample_save_raw_data(&data, event, &raw);
	perf_event_overflow(event, &data, regs);

	tc->raw.last_exit = test_pmi_clock();
}

static enum hrtimer_restart test_pmi_irq_timer(struct hrtimer *timer)
{
	struct test_pmi_cpu *tc = container_of(timer, struct test_pmi_cpu, timer);
	u64 entry = test_pmi_clock();
	u64 period_ns;

	test_pmi_sample(tc, get_irq_regs(), entry);

	/* The sample may have stopped the event. */
	period_ns = READ_ONCE(tc->period_ns);
	if (!period_ns)
		return HRTIMER_NORESTART;

	hrtimer_forward_now(timer, ns_to_ktime(period_ns));
	return HRTIMER_RESTART;
}

/* Runs on the sender, with IRQs off. */
static void test_pmi_start_timer(void *info)
{
	struct test_pmi_cpu *tc = info;
	u64 period_ns = READ_ONCE(tc->period_ns);

	if (period_ns)
		hrtimer_start(&tc->timer, ns_to_ktime(period_ns),
			      HRTIMER_MODE_REL_PINNED_HARD);
}

static void test_pmi_start(struct perf_event *event, int flags)
{
	struct test_pmi_cpu *tc = test_pmi_this_cpu(event);

	WRITE_ONCE(tc->period_ns, max_t(u64, event->hw.sample_period,
					TEST_PMI_MIN_PERIOD_NS));
	event->hw.state = 0;
	if (tc->sender == tc->cpu)
		test_pmi_start_timer(tc);
	else
		smp_call_function_single_async(tc->sender, &tc->csd);
}

/* Also called in PMIs, when perf throttles an event or when the event reaches its limit. */
static void test_pmi_stop(struct perf_event *event, int flags)
{
	struct test_pmi_cpu *tc = test_pmi_this_cpu(event);

	WRITE_ONCE(tc->period_ns, 0);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int test_pmi_add(struct perf_event *event, int flags)
{
	struct test_pmi_cpu *tc = test_pmi_this_cpu(event);

	if (tc->event)
		return -EBUSY;

	tc->sender = event->pmu == &test_pmi_nmi_pmu ?
		     cpumask_any_but(cpu_online_mask, tc->cpu) : tc->cpu;
	if (tc->sender >= nr_cpu_ids)
		return -ENODEV;

	WRITE_ONCE(tc->event, event);
	event->hw.state = PERF_HES_STOPPED;
	if (flags & PERF_EF_START)
		test_pmi_start(event, flags);

	return 0;
}

static void test_pmi_del(struct perf_event *event, int flags)
{
	struct test_pmi_cpu *tc = test_pmi_this_cpu(event);

	test_pmi_stop(event, flags);
	WRITE_ONCE(tc->event, NULL);
}

static void test_pmi_read(struct perf_event *event)
{
}

static int test_pmi_event_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (!is_sampling_event(event) || has_branch_stack(event))
		return -EOPNOTSUPP;
	if (event->pmu == &test_pmi_nmi_pmu && num_online_cpus() < 2)
		return -ENODEV;

	return 0;
}

#define TEST_PMI_PMU			\
{					\
	.module		= THIS_MODULE,	\
	.task_ctx_nr	= perf_sw_context, \
	.event_init	= test_pmi_event_init, \
	.add		= test_pmi_add,	\
	.del		= test_pmi_del,	\
	.start		= test_pmi_start, \
	.stop		= test_pmi_stop, \
	.read		= test_pmi_read, \
}

static struct pmu test_pmi_nmi_pmu = TEST_PMI_PMU;
static struct pmu test_pmi_irq_pmu = TEST_PMI_PMU;

static void test_pmi_setup_cpu(struct test_pmi_cpu *tc, unsigned int cpu,
			       enum hrtimer_restart (*timer)(struct hrtimer *timer))
{
	tc->cpu = cpu;
	hrtimer_setup(&tc->timer, timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	INIT_CSD(&tc->csd, test_pmi_start_timer, tc);
}

#ifdef CONFIG_X86
static enum hrtimer_restart test_pmi_nmi_timer(struct hrtimer *timer)
{
	struct test_pmi_cpu *tc = container_of(timer, struct test_pmi_cpu, timer);
	u64 period_ns = READ_ONCE(tc->period_ns);

	if (!period_ns)
		return HRTIMER_NORESTART;

	atomic_inc(&tc->sent);
	apic->send_IPI_mask(cpumask_of(tc->cpu), NMI_VECTOR);

	hrtimer_forward_now(timer, ns_to_ktime(period_ns));
	return HRTIMER_RESTART;
}

static int test_pmi_nmi(unsigned int cmd, struct pt_regs *regs)
{
	struct test_pmi_cpu *tc = this_cpu_ptr(&test_pmi_nmi_cpus);
	u64 entry = test_pmi_clock();
	int sent = atomic_read(&tc->sent);

	/*
	 * If an NMI is sent while this handler runs for an earlier one, the
	 * handler may count both.  When the second NMI arrives, there is
	 * nothing left to do.
	 */
	if (sent == tc->seen) {
		if (!tc->late)
			return NMI_DONE;
		tc->late = false;
		return NMI_HANDLED;
	}
	tc->seen = sent;
	tc->late = true;

	test_pmi_sample(tc, regs, entry);
	return NMI_HANDLED;
}

static int test_pmi_init_nmi(void)
{
	int cpu, r;

	for_each_possible_cpu(cpu)
		test_pmi_setup_cpu(per_cpu_ptr(&test_pmi_nmi_cpus, cpu), cpu, test_pmi_nmi_timer);

	r = register_nmi_handler(NMI_LOCAL, test_pmi_nmi, 0, "test_pmi");
	if (r)
		return r;

	r = perf_pmu_register(&test_pmi_nmi_pmu, "test_pmi", -1);
	if (r)
		unregister_nmi_handler(NMI_LOCAL, "test_pmi");
	return r;
}

static void test_pmi_exit_nmi(void)
{
	int cpu;

	perf_pmu_unregister(&test_pmi_nmi_pmu);
	for_each_possible_cpu(cpu)
		hrtimer_cancel(&per_cpu_ptr(&test_pmi_nmi_cpus, cpu)->timer);
	unregister_nmi_handler(NMI_LOCAL, "test_pmi");
}
#else
static int test_pmi_init_nmi(void)
{
	return 0;
}

static void test_pmi_exit_nmi(void)
{
}
#endif

static int __init test_pmi_init(void)
{
	int cpu, r;

	for_each_possible_cpu(cpu)
		test_pmi_setup_cpu(per_cpu_ptr(&test_pmi_irq_cpus, cpu), cpu, test_pmi_irq_timer);

	r = test_pmi_init_nmi();
	if (r)
		return r;

	r = perf_pmu_register(&test_pmi_irq_pmu, "test_pmi_irq", -1);
	if (r)
		test_pmi_exit_nmi();
	return r;
}

/* No event is left: each holds a reference on the module. */
static void __exit test_pmi_exit(void)
{
	int cpu;

	perf_pmu_unregister(&test_pmi_irq_pmu);
	for_each_possible_cpu(cpu)
		hrtimer_cancel(&per_cpu_ptr(&test_pmi_irq_cpus, cpu)->timer);
	test_pmi_exit_nmi();
}

module_init(test_pmi_init);
module_exit(test_pmi_exit);
MODULE_DESCRIPTION("perf PMUs that sample by NMIs sent from another CPU, and by IRQs");
MODULE_LICENSE("GPL");
