// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzz arch/x86/kvm/stacktrace.c in user space, under libFuzzer.
 *
 * The input is a guest: its registers, page tables and stacks, and sometimes a word that
 * changes during the walk.  The walk must find the same chain as the oracle.  Both use
 * oracle_translate(); guest_callchain_fuzz.c tests KVM's own page-table walk.
 */
#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "callchain_case.h"

/* The highest costs of an entry, by the comment of kvm_arch_vcpu_stack_walk(). */
#define MAX_READS	5
#define MAX_WALKS	2

/* A value right after the array for the walk's entries; the walk must not overwrite it. */
#define CANARY		0x0ff1ce0ff1ce0ff1ULL

static u8 mem[CASE_MEM_SIZE] __aligned(PAGE_SIZE);

/* The source of the random bytes for struct callchain_case. */
static struct {
	const u8 *data;
	size_t size;
	u64 state;
} input;

/* The current walk: its setup, and what it has done so far. */
static struct {
	struct callchain_case *c;
	struct oracle_chain chain;
	unsigned int depth;
	unsigned int reads;
	unsigned int walks;
	unsigned int race_countdown;
	unsigned int race_reads;
	bool racing;
	bool nmi;
	bool host_pkru;
	bool traced;
} walk;

static const enum oracle_end ends[] = {
	[UNWIND_CONTINUE]		= ORACLE_GOES_ON,
	[UNWIND_END_LAST]		= ORACLE_LAST,
	[UNWIND_END_DEPTH]		= ORACLE_DEPTH,
	[UNWIND_END_UNALIGNED]		= ORACLE_UNALIGNED,
	[UNWIND_END_BACKWARDS]		= ORACLE_BACKWARDS,
	[UNWIND_END_NONCANONICAL]	= ORACLE_NONCANONICAL,
	[UNWIND_END_UNMAPPED]		= ORACLE_UNMAPPED,
	[UNWIND_END_NO_MEMORY]		= ORACLE_NO_MEMORY,
};

#define FUZZ_ASSERT(_cond, ...)						\
do {									\
	if (!(_cond)) {							\
		fprintf(stderr, "fuzz_stack_walk: " __VA_ARGS__);	\
		fputc('\n', stderr);					\
		case_print(walk.c);						\
		case_print_chain("walk", &walk.chain);				\
		abort();						\
	}								\
} while (0)

/*
 * Return bytes of the input.  When these are used up, return random numbers; their seed is the
 * input's first 8 bytes.
 */
static u64 input_rnd(void *arg, unsigned int nr_bytes)
{
	u64 value = 0;

	if (input.size >= nr_bytes) {
		memcpy(&value, input.data, nr_bytes);
		input.data += nr_bytes;
		input.size -= nr_bytes;
		return value;
	}

	input.size = 0;
	input.state ^= input.state << 13;
	input.state ^= input.state >> 7;
	input.state ^= input.state << 17;
	value = input.state * 0x2545f4914f6cdd1dULL;
	return value >> (64 - 8 * nr_bytes);
}

static bool overlaps_race(const struct callchain_case *c, u32 off, unsigned int size)
{
	return off < c->race_off + c->race_size && c->race_off < off + size;
}

/* Memory as the walk sees it. */
static void load(u32 off, unsigned int size, u64 *word)
{
	if (walk.racing && !walk.race_countdown--)
		case_store(mem, walk.c->race_off, walk.c->race_size, walk.c->race_words[1]);
	case_load(mem, off, size, word);
}

static bool walk_read(void *arg, u64 gpa, unsigned int size, u64 *word)
{
	u32 off;

	if (!case_offset(gpa, &off))
		return false;
	load(off, size, word);
	return true;
}

gpa_t kvm_mmu_gva_to_gpa_peek(struct kvm_vcpu *vcpu, gva_t gva, u64 access)
{
	u64 gpa;

	FUZZ_ASSERT(!(gva & ~PAGE_MASK), "translates %#lx, not a page", gva);
	FUZZ_ASSERT(!(access & ~PFERR_USER_MASK), "translates with access %#lx", access);
	walk.walks++;
	if (!oracle_translate(&vcpu->state, walk_read, NULL, gva, access, &gpa))
		return INVALID_GPA;
	return gpa;
}

/* All memory is in one memslot, including the page that can't be read. */
struct kvm_memory_slot *kvm_vcpu_gfn_to_memslot(struct kvm_vcpu *vcpu, gfn_t gfn)
{
	gpa_t gpa = gfn << PAGE_SHIFT;
	u32 off;

	FUZZ_ASSERT(vcpu->kvm->srcu == 1, "looks for a memslot without kvm->srcu");
	if (case_offset(gpa, &off) || gpa == CASE_MEM_GPA + CASE_HOLE_OFF ||
	    gpa == CASE_HIGH_MEM_GPA + CASE_HOLE_OFF)
		return (void *)mem;
	return NULL;
}

unsigned long __gfn_to_hva_memslot(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	u32 off;

	case_offset(gfn << PAGE_SHIFT, &off);
	return (unsigned long)slot + off;
}

bool in_nmi(void)
{
	return walk.nmi;
}

const unsigned long fuzz_host_table = 1;

const pte_t *fuzz_host_pte(unsigned long addr)
{
	static pte_t pte;

	pte = addr - (unsigned long)mem < CASE_HOLE_OFF;
	return &pte;
}

struct page *kvm_get_swapped_page(unsigned long hva)
{
	FUZZ_ASSERT(false, "may sleep in a PMI");
	return NULL;
}

void put_page(struct page *page)
{
	FUZZ_ASSERT(false, "puts a page that it doesn't hold");
}

int fuzz_get_user(const void *uptr, unsigned int size, u64 *word)
{
	u64 off = (unsigned long)uptr - (unsigned long)mem;

	FUZZ_ASSERT(off <= CASE_MEM_SIZE - size && !(off & (size - 1)),
		    "reads %u bytes at offset %#lx", size, off);
	FUZZ_ASSERT(walk.host_pkru == walk.nmi, "reads with the guest's PKRU");
	walk.reads++;
	if (off >= CASE_HOLE_OFF)
		return -14;
	load(off, size, word);
	return 0;
}

bool kvm_handling_nmi_from_guest(struct kvm_vcpu *vcpu)
{
	return walk.nmi;
}

void kvm_load_host_pkru(struct kvm_vcpu *vcpu)
{
	FUZZ_ASSERT(walk.nmi && !walk.host_pkru, "loads the host's PKRU twice");
	walk.host_pkru = true;
}

void kvm_load_guest_pkru(struct kvm_vcpu *vcpu)
{
	FUZZ_ASSERT(walk.host_pkru, "loads the guest's PKRU twice");
	walk.host_pkru = false;
}

void trace_kvm_stack_walk(unsigned int vcpu_id, unsigned int frames, unsigned int reads,
			  unsigned int walks, enum guest_unwind_end end)
{
	FUZZ_ASSERT(reads == walk.reads && walks == walk.walks,
		    "traces %u reads and %u translations, but did %u and %u", reads, walks,
		    walk.reads, walk.walks);
	/*
	 * The first entry, the IP, needs no reads, but the end of the chain may, and adds
	 * no entry.  The walk may search once for user mode's registers: 22 words, 9 walks.
	 */
	FUZZ_ASSERT(reads <= MAX_READS * frames + 22 && walks <= MAX_WALKS * frames + 9,
		    "%u words and %u translations for %u entries", reads, walks, frames);
	FUZZ_ASSERT(end > UNWIND_CONTINUE && end < ARRAY_SIZE(ends),
		    "ends for an unknown reason, %u", end);
	walk.chain.nr = frames;
	walk.chain.end = ends[end];
	walk.traced = true;
}

/* Memory as the oracle sees it: the first @arg reads of the word that changes see the old value. */
static bool oracle_read(void *arg, u64 gpa, unsigned int size, u64 *word)
{
	struct callchain_case *c = walk.c;
	const unsigned int *old_reads = arg;
	u32 off;

	if (!case_offset(gpa, &off))
		return false;
	if (c->race && overlaps_race(c, off, size))
		case_store(mem, c->race_off, c->race_size,
			   c->race_words[walk.race_reads++ >= *old_reads]);
	case_load(mem, off, size, word);
	return true;
}

/* Return true if KVM has counted one walk, its entries, and only the reason for its end. */
static bool counted(const struct kvm_vcpu_stat *stat, const struct oracle_chain *chain)
{
	unsigned int end;

	for (end = UNWIND_CONTINUE + 1; end <= UNWIND_END_NO_MEMORY; end++) {
		if (stat->callchain_ends[end - 1] != (ends[end] == chain->end))
			return false;
	}
	return stat->callchain_walks == 1 && stat->callchain_frames == chain->nr;
}

/*
 * Return true if the walk's chain is the oracle's.  If a word changes, it does so once, and as
 * a whole: try each number of the oracle's reads that still see the old value.
 */
static bool is_right(struct callchain_case *c, bool print)
{
	static struct oracle_chain oracle;
	unsigned int old_reads = 0;

	do {
		walk.race_reads = 0;
		oracle_walk(&c->vcpu, oracle_read, &old_reads, walk.depth, &oracle);
		if (print)
			case_print_chain("oracle", &oracle);
		if (case_chains_equal(&walk.chain, &oracle))
			return true;
	} while (c->race && old_reads++ < walk.race_reads);

	return false;
}

/* Rings 1 to 3 count as user mode. */
static void check_request(struct kvm_vcpu *vcpu, const struct callchain_case *c)
{
	struct perf_guest_callchain_request *request = kvm_arch_vcpu_callchain_request(vcpu);

	FUZZ_ASSERT(request == &vcpu->arch.callchain_request, "returns no request");
	FUZZ_ASSERT(request->guest_state ==
		    (PERF_GUEST_ACTIVE | (c->vcpu.cpl ? PERF_GUEST_USER : 0)),
		    "requests with a wrong guest_state");
}

/* The pages of a dump must lie in the guest's memory, and have as many bytes as its pieces. */
static void check_dump(struct kvm_vcpu *vcpu, unsigned int size)
{
	static struct perf_guest_stack stack;
	u64 found = 0, pieces;
	unsigned int i;

	memset(&stack, 0xff, sizeof(stack));
	walk.walks = 0;
	walk.reads = 0;
	kvm_arch_vcpu_stack_begin(vcpu, &stack, size);
	FUZZ_ASSERT(stack.nr_pages <= ARRAY_SIZE(stack.pages), "dumps %u pages", stack.nr_pages);
	for (i = 0; i < stack.nr_pages; i++) {
		u64 off = (unsigned long)stack.pages[i].start - (unsigned long)mem;

		FUZZ_ASSERT(off < CASE_HOLE_OFF &&
			    offset_in_page(off) + stack.pages[i].size <= PAGE_SIZE,
			    "dumps %u bytes at offset %#lx", stack.pages[i].size, off);
		found += stack.pages[i].size;
	}
	pieces = stack.info.pieces[0].size + stack.info.pieces[1].size;
	FUZZ_ASSERT(found == pieces && found <= size, "dumps %lu bytes in pieces of %lu, not %u",
		    found, pieces, size);
	FUZZ_ASSERT(walk.walks <= ARRAY_SIZE(stack.pages) + 1 && walk.reads <= 2,
		    "%u words and %u translations for a dump", walk.reads, walk.walks);
	kvm_arch_vcpu_stack_end(vcpu, &stack);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct callchain_case c = {
		.rnd = input_rnd,
		.mem = mem,
		.has_la57 = true,
		.has_smap = true,
		.has_pke = true,
	};
	struct kvm kvm = {};
	/* Only test immediate walks: there is no thread that could swap in a page. */
	struct kvm_vcpu vcpu = { .kvm = &kvm, .arch.handling_intr_from_guest = 1 };
	static u64 ips[ARRAY_SIZE(walk.chain.entries) + 1];
	unsigned int nr, nr_kernel, i;

	input.state = 0x9e3779b97f4a7c15ULL;
	input.data = data;
	input.size = size;
	if (size >= 8) {
		input.state ^= input_rnd(NULL, 8);
		input.state = input.state ?: 1;
	}

	c.vcpu.amd = input_rnd(NULL, 1) & 1;
	c.vcpu.gbpages = input_rnd(NULL, 1) & 1;
	c.vcpu.maxphyaddr = 33 + input_rnd(NULL, 1) % 20;
	c.vcpu.pse36_bits = 40;
	case_generate(&c);

	walk.c = &c;
	walk.depth = case_depths[c.depth];
	walk.chain.nr = 0;
	walk.chain.end = ORACLE_GOES_ON;
	walk.reads = 0;
	walk.walks = 0;
	walk.racing = c.race;
	walk.race_countdown = c.race ? input_rnd(NULL, 1) : 0;
	walk.nmi = input_rnd(NULL, 1) & 1;
	walk.host_pkru = false;
	walk.traced = false;

	vcpu.state = c.vcpu;
	ips[walk.depth] = CANARY;
	nr = kvm_arch_vcpu_stack_walk(&vcpu, ips, walk.depth, &nr_kernel);
	FUZZ_ASSERT(walk.traced && nr == walk.chain.nr && nr <= walk.depth && nr_kernel <= nr,
		    "finds %u entries, %u of them the kernel's; traces %u", nr, nr_kernel,
		    walk.chain.nr);
	FUZZ_ASSERT(ips[walk.depth] == CANARY, "writes beyond its array");
	for (i = 0; i < nr; i++) {
		walk.chain.entries[i].ip = ips[i];
		walk.chain.entries[i].user = i >= nr_kernel;
	}

	FUZZ_ASSERT(counted(&vcpu.stat, &walk.chain), "the counters don't match the walk");
	FUZZ_ASSERT(!walk.host_pkru && !kvm.srcu, "returns with the host's PKRU or kvm->srcu");
	FUZZ_ASSERT(is_right(&c, false) || is_right(&c, true), "the chain is not the oracle's");
	check_request(&vcpu, &c);
	check_dump(&vcpu, 8 * (1 + input_rnd(NULL, 2) % (U16_MAX / 8)));
	FUZZ_ASSERT(!walk.host_pkru && !kvm.srcu, "ends a dump with the host's PKRU or kvm->srcu");
	case_clear(&c);
	return 0;
}
