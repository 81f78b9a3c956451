// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample random guests, once each, and compare the callchains with the oracle's.
 *
 * All guests run in one VM, one after the other: each has new registers, page tables
 * and stacks.  A case depends only on the seed and on its number, so that a case that
 * fails can be run alone.
 */
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include "callchain_case.h"
#include "kvm_util.h"
#include "perf_callchain.h"
#include "processor.h"
#include "test_modules.h"
#include "test_util.h"

#define DEFAULT_CASES		2000
#define SAMPLE_PERIOD_NS	20000

/* The maximum number of tries to sample a guest: samples may hit the host instead. */
#define MAX_TRIES		1000

/* The most reads of a changing word for which all orders of its two values are tried. */
#define MAX_RACE_READS		12

/* One case may stay unjudged, plus one per this many cases with a changing word. */
#define RACES_PER_UNJUDGED	100

static struct {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct kvm_sregs sregs;
	struct kvm_xsave xsave;
	unsigned int pkru_off;
	struct callchain_event events[CASE_NR_DEPTHS];
	enum pmi_source source;
	u64 seed;
	u64 nr;			/* of the current case */
	u64 rnd;
	struct callchain_case c;
} fuzz;

/* The samples of a case. */
struct samples {
	struct oracle_chain chain;
	unsigned int nr_guest;
	unsigned int nr;
	u64 ip;
	u16 cpumode;
	const char *wrong;
};

static void print_failure(void)
{
	case_print(&fuzz.c);
	fprintf(stderr, "To try again: guest_callchain_fuzz -i %s -s %lu -c %lu\n",
		fuzz.source == PMI_NMI ? "nmi" : "irq", fuzz.seed, fuzz.nr);
}

#define FUZZ_ASSERT(_cond, _fmt, ...)					\
do {									\
	bool __ok = _cond;						\
									\
	if (!__ok)							\
		print_failure();					\
	TEST_ASSERT(__ok, "Case %lu of seed %lu: " _fmt, fuzz.nr,	\
		    fuzz.seed, ##__VA_ARGS__);				\
} while (0)

static u64 next_rnd(void *unused, unsigned int nr_bytes)
{
	fuzz.rnd ^= fuzz.rnd << 13;
	fuzz.rnd ^= fuzz.rnd >> 7;
	fuzz.rnd ^= fuzz.rnd << 17;
	return fuzz.rnd * 0x2545f4914f6cdd1dULL >> (64 - 8 * nr_bytes);
}

/* Seed by SplitMix64, so that the random numbers of successive cases are unrelated. */
static void seed_rnd(u64 seed, u64 nr)
{
	u64 z = (seed + 1) * 0xd1342543de82ef95ULL + nr * 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	z ^= z >> 31;
	fuzz.rnd = z ?: 1;
}

/* The guest */

static void create_guest(void)
{
	struct kvm_cpuid_entry2 *pkru;
	u8 *mem;

	fuzz.vm = vm_create_barebones();
	fuzz.vcpu = __vm_vcpu_add(fuzz.vm, 0);
	vcpu_init_cpuid(fuzz.vcpu, kvm_get_supported_cpuid());
	vcpu_sregs_get(fuzz.vcpu, &fuzz.sregs);

	mem = kvm_mmap(CASE_MEM_SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1);
	memset(mem, 0, CASE_MEM_SIZE);
	TEST_ASSERT(!mprotect(mem + CASE_HOLE_OFF, PAGE_SIZE, PROT_NONE), "mprotect()");
	vm_set_user_memory_region(fuzz.vm, 0, 0, CASE_MEM_GPA, CASE_MEM_SIZE, mem);
	vm_set_user_memory_region(fuzz.vm, 1, 0, CASE_HIGH_MEM_GPA, CASE_MEM_SIZE, mem);

	/* jmp . */
	mem[CASE_CODE_OFF] = 0xeb;
	mem[CASE_CODE_OFF + 1] = 0xfe;

	fuzz.c.rnd = next_rnd;
	fuzz.c.mem = mem;
	fuzz.c.has_la57 = kvm_cpu_has(X86_FEATURE_LA57);
	fuzz.c.has_smap = kvm_cpu_has(X86_FEATURE_SMAP);
	fuzz.c.has_pke = kvm_cpu_has(X86_FEATURE_PKU);
	/* AMD's CPUs load PDPTEs from memory if paging is nested; there are no registers then. */
	fuzz.c.fixed_pdptes = !host_cpu_is_amd_compatible || !get_kvm_amd_param_bool("npt");
	fuzz.c.vcpu.amd = host_cpu_is_amd_compatible;
	fuzz.c.vcpu.gbpages = kvm_cpu_has(X86_FEATURE_GBPAGES);
	fuzz.c.vcpu.maxphyaddr = kvm_cpu_property(X86_PROPERTY_MAX_PHY_ADDR);
	/*
	 * Expect KVM's deviation from SDM vol. 3, 4.3: there, PDEs of 4 MiB pages have up to
	 * 40 address bits (PSE-36); KVM's page-table walk only knows the first 36.
	 */
	fuzz.c.vcpu.pse36_bits = 36;

	if (fuzz.c.has_pke) {
		pkru = __vcpu_get_cpuid_entry(fuzz.vcpu, 0xd, 9);
		fuzz.pkru_off = pkru->ebx;
		vcpu_xsave_get(fuzz.vcpu, &fuzz.xsave);
	}
}

static void set_segment(struct kvm_segment *seg, const struct oracle_vcpu *v, u64 base, u8 type)
{
	seg->base = base;
	seg->limit = 0xffffffff;
	seg->selector = 8 | v->cpl;
	seg->type = type;
	seg->present = 1;
	seg->dpl = v->cpl;
	seg->db = v->cs_d;
	seg->s = 1;
	seg->l = 0;
	seg->g = 1;
	seg->unusable = 0;
}

static void enter_case(void)
{
	const struct oracle_vcpu *v = &fuzz.c.vcpu;
	struct kvm_sregs sregs = fuzz.sregs;
	struct kvm_regs regs = {
		.rip = v->rip,
		.rsp = v->rsp,
		.rbp = v->rbp,
		.rflags = X86_EFLAGS_FIXED | (v->ac ? X86_EFLAGS_AC : 0),
	};

	set_segment(&sregs.cs, v, v->cs_base, 11);
	set_segment(&sregs.ss, v, v->ss_base, 3);
	sregs.cs.l = v->cs_l;
	sregs.cr3 = v->cr3;
	sregs.cr0 = X86_CR0_ET | X86_CR0_NE | (fuzz.c.real ? 0 : X86_CR0_PE) |
		    (v->pg ? X86_CR0_PG : 0);
	sregs.cr4 = (v->pse ? X86_CR4_PSE : 0) | (v->pae ? X86_CR4_PAE : 0) |
		    (v->la57 ? X86_CR4_LA57 : 0) | (v->smap ? X86_CR4_SMAP : 0) |
		    (v->pke ? X86_CR4_PKE : 0);
	sregs.efer = (v->lma ? EFER_LME | EFER_LMA : 0) | (v->nxe ? EFER_NX : 0);
	vcpu_sregs_set(fuzz.vcpu, &sregs);
	vcpu_regs_set(fuzz.vcpu, &regs);

	if (v->pke) {
		/* The bitmap in the header of the XSAVE area is at offset 512. */
		*(u64 *)((u8 *)&fuzz.xsave + 512) |= XFEATURE_MASK_PKRU;
		*(u32 *)((u8 *)&fuzz.xsave + fuzz.pkru_off) = v->pkru;
		vcpu_xsave_set(fuzz.vcpu, &fuzz.xsave);
	}
}

/* Samples */

static void open_events(void)
{
	unsigned int i;

	for (i = 0; i < CASE_NR_DEPTHS; i++) {
		const struct perf_event_attr attr = {
			.sample_period = SAMPLE_PERIOD_NS,
			.sample_max_stack = case_depths[i],
			.wakeup_events = 1,
		};

		TEST_ASSERT(!callchain_event_open(&fuzz.events[i], fuzz.source, &attr, 0, -1),
			    "perf_event_open() failed: %s", strerror(errno));
	}
}

static void take_sample(const struct callchain_sample *s, void *arg)
{
	struct samples *samples = arg;
	struct oracle_chain *chain = &samples->chain;
	u64 i;

	samples->nr++;
	if (!callchain_sample_is_guest(s) || s->hit_kvm)
		return;
	samples->nr_guest++;
	samples->ip = s->ip;
	samples->cpumode = s->cpumode;

	if (s->nr < 2 || s->nr - 2 > ORACLE_MAX_DEPTH || s->ips[1] != s->ip ||
	    s->ips[0] != (u64)(s->cpumode == PERF_RECORD_MISC_GUEST_USER ?
			       PERF_CONTEXT_GUEST_USER : PERF_CONTEXT_GUEST_KERNEL)) {
		samples->wrong = "no marker and IP at its beginning, or too many entries";
		return;
	}

	chain->nr = s->nr - 2;
	for (i = 0; i < chain->nr; i++) {
		chain->ips[i] = s->ips[i + 2];
		if (chain->ips[i] >= (u64)PERF_CONTEXT_MAX)
			samples->wrong = "a context marker in it";
	}
}

static void ignore_sample(const struct callchain_sample *s, void *unused)
{
}

/* Run until a sample has hit the guest. */
static void sample_case(struct samples *samples)
{
	struct callchain_event *event = &fuzz.events[fuzz.c.depth];
	unsigned int try;

	/* Drop the sample of an NMI that may have come after the last case. */
	callchain_event_read(event, ignore_sample, NULL);

	for (try = 0; try < MAX_TRIES && !samples->nr_guest; try++) {
		vcpu_run_until_sampled(fuzz.vcpu, event, true);
		callchain_event_read(event, take_sample, samples);
	}
	FUZZ_ASSERT(samples->nr_guest, "None of %u samples hit the guest", samples->nr);
}

/* Words that change */

static struct {
	pthread_t thread;
	bool runs;
	bool stop;
} racer;

static void *toggle_word(void *unused)
{
	const struct callchain_case *c = &fuzz.c;

	while (!READ_ONCE(racer.stop)) {
		case_store(c->mem, c->race_off, c->race_size, c->race_words[1]);
		WRITE_ONCE(racer.runs, true);
		case_store(c->mem, c->race_off, c->race_size, c->race_words[0]);
	}
	return NULL;
}

static void start_race(void)
{
	racer.runs = false;
	racer.stop = false;
	TEST_ASSERT(!pthread_create(&racer.thread, NULL, toggle_word, NULL), "pthread_create()");
	while (!READ_ONCE(racer.runs))
		sched_yield();
}

static void stop_race(void)
{
	WRITE_ONCE(racer.stop, true);
	pthread_join(racer.thread, NULL);
}

/* The oracle */

/* The order in which the oracle's reads see the two values of a changing word. */
struct order {
	u32 values;
	unsigned int nr_reads;
};

static bool oracle_read(void *arg, u64 gpa, unsigned int size, u64 *word)
{
	const struct callchain_case *c = &fuzz.c;
	struct order *order = arg;
	u32 off;

	if (!case_offset(gpa, &off))
		return false;

	if (c->race && off < c->race_off + c->race_size && c->race_off < off + size) {
		unsigned int value = 0;

		if (order->nr_reads < MAX_RACE_READS)
			value = order->values >> order->nr_reads & 1;
		order->nr_reads++;
		case_store(c->mem, c->race_off, c->race_size, c->race_words[value]);
	}
	case_load(c->mem, off, size, word);
	return true;
}

/*
 * Return true if @chain is the oracle's.  If a word changes all the time, try all orders in
 * which the oracle's reads may see its values.  If the word is read too often for that, return
 * true, and set @judged to false.
 */
static bool is_right(const struct oracle_chain *chain, struct oracle_chain *oracle,
		     bool *judged, bool print)
{
	const struct callchain_case *c = &fuzz.c;
	unsigned int max_reads = 0;
	struct order order;
	u32 values = 0;

	*judged = true;
	do {
		order = (struct order) { .values = values };
		oracle_walk(&c->vcpu, oracle_read, &order, case_depths[c->depth] - 1, oracle);
		if (print)
			case_print_chain("oracle", oracle);
		if (case_chains_equal(chain, oracle))
			return true;
		max_reads = max(max_reads, order.nr_reads);
		if (max_reads > MAX_RACE_READS) {
			*judged = false;
			return true;
		}
	} while (++values < 1u << max_reads);

	return false;
}

struct totals {
	u64 callers;
	u64 races;
	u64 unjudged;
	u64 host_samples;
};

static void run_case(u64 nr, struct totals *totals)
{
	struct oracle_chain oracle;
	struct samples samples;
	const struct oracle_chain *chain = &samples.chain;
	bool judged, pae, right = false;
	unsigned int try;

	fuzz.nr = nr;
	seed_rnd(fuzz.seed, nr);
	case_generate(&fuzz.c);
	enter_case();

	/*
	 * With PAE paging, the guest's CPU may set an Accessed bit after the sample, in an entry
	 * that is a PDPTE as well, where this bit is reserved.  It stays: judge one more sample.
	 */
	pae = fuzz.c.vcpu.pg && fuzz.c.vcpu.pae && !fuzz.c.vcpu.lma;
	for (try = 0; try < 1 + pae && !right; try++) {
		samples = (struct samples) {};
		if (fuzz.c.race)
			start_race();
		sample_case(&samples);
		if (fuzz.c.race)
			stop_race();
		FUZZ_ASSERT(!samples.wrong, "The chain has %s", samples.wrong);
		right = is_right(chain, &oracle, &judged, false);
	}
	if (!right) {
		is_right(chain, &oracle, &judged, true);
		case_print_chain("perf", chain);
		FUZZ_ASSERT(false, "The chain is not the oracle's");
	}
	FUZZ_ASSERT(samples.ip == oracle_ip(&fuzz.c.vcpu) &&
		    samples.cpumode == (fuzz.c.vcpu.cpl ? PERF_RECORD_MISC_GUEST_USER :
							  PERF_RECORD_MISC_GUEST_KERNEL),
		    "The sample's IP is 0x%lx, its cpumode %u", samples.ip, samples.cpumode);

	totals->callers += chain->nr;
	totals->races += fuzz.c.race;
	totals->unjudged += !judged;
	totals->host_samples += samples.nr - samples.nr_guest;
	case_clear(&fuzz.c);
}

static void help(const char *name)
{
	printf("usage: %s [-n cases] [-t seconds] [-s seed] [-i irq|nmi] [-c case]\n"
	       " -n: how many cases, %u by default\n"
	       " -t: run for this many seconds instead\n"
	       " -s: seed of the cases, 1 by default\n"
	       " -i: the kind of PMI\n"
	       " -c: the number of one case, to run it alone\n",
	       name, DEFAULT_CASES);
	exit(KSFT_FAIL);
}

int main(int argc, char *argv[])
{
	u64 nr_cases = DEFAULT_CASES, first = 0, i;
	struct timespec start, elapsed = {};
	unsigned long max_seconds = 0;
	struct totals totals = {};
	const char *why_not;
	double seconds;
	int opt;

	fuzz.seed = 1;
	fuzz.source = PMI_IRQ;
	while ((opt = getopt(argc, argv, "n:t:s:i:c:h")) != -1) {
		switch (opt) {
		case 'n':
			nr_cases = strtoull(optarg, NULL, 0);
			break;
		case 't':
			max_seconds = strtoul(optarg, NULL, 0);
			nr_cases = ULONG_MAX;
			break;
		case 's':
			fuzz.seed = strtoull(optarg, NULL, 0);
			break;
		case 'i':
			if (strcmp(optarg, "irq") && strcmp(optarg, "nmi"))
				help(argv[0]);
			fuzz.source = strcmp(optarg, "irq") ? PMI_NMI : PMI_IRQ;
			break;
		case 'c':
			first = strtoull(optarg, NULL, 0);
			nr_cases = 1;
			max_seconds = 0;
			break;
		default:
			help(argv[0]);
		}
	}

	/* Hosts with a hardware counter don't need this module. */
	if (!load_test_module("test_pmi"))
		setenv("KVM_SELFTEST_NMI_PMU", "test_pmi", false);
	__TEST_REQUIRE(pmi_source_available(fuzz.source, &why_not), "%s", why_not);

	create_guest();
	open_events();

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (i = 0; i < nr_cases; i++) {
		run_case(first + i, &totals);
		elapsed = timespec_elapsed(start);
		if (max_seconds && elapsed.tv_sec >= max_seconds)
			nr_cases = i + 1;
	}
	seconds = elapsed.tv_sec + elapsed.tv_nsec / 1e9;

	printf("%lu cases in %.1f s, %.0f a second, seed %lu, %s\n", nr_cases, seconds,
	       nr_cases / seconds, fuzz.seed, fuzz.source == PMI_NMI ? "NMIs" : "IRQs");
	printf("%lu callers, %lu samples hit the host\n", totals.callers, totals.host_samples);
	printf("%lu cases with a word that changes, %lu of them not judged\n", totals.races,
	       totals.unjudged);

	TEST_ASSERT(totals.unjudged <= 1 + totals.races / RACES_PER_UNJUDGED,
		    "%lu of %lu changing words were not judged, MAX_RACE_READS is too low",
		    totals.unjudged, totals.races);

	kvm_vm_free(fuzz.vm);
	return 0;
}
