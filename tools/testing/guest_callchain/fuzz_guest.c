// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the fuzzers of x86's and arm64's walks share.
 *
 * The kernel's code sees addresses of the VMM, where nothing is: AddressSanitizer finds all reads
 * but those by the functions below, which check that the VMM has memory there.
 */
#include <linux/kvm_host.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <trace/events/kvm.h>

#include "fuzz_guest.h"

#define MAX_PAGES	1024

struct fuzz_guest fuzz_guest;

/* The bytes of the input; when these are used up, random numbers, seeded by its first bytes. */
static struct {
	const u8 *data;
	size_t size;
	u64 state;
} input;

/* Where the VMM has the memory, and how.  Nobody may look at a VMA that isn't locked. */
static u8 *view;
static u8 kinds[MAX_PAGES];
static struct vm_area_struct vmas[MAX_PAGES] __aligned(8);
/* The VMA of each page, or NULL. */
static struct vm_area_struct *vma_of[MAX_PAGES];
/* The VMA of normal memory that was found last. */
static struct vm_area_struct last_vma;

/* Input */

u64 fuzz_rnd(unsigned int nr_bytes)
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

void fuzz_begin(const u8 *data, size_t size)
{
	input.state = 0x9e3779b97f4a7c15ULL;
	input.data = data;
	input.size = size;
	if (size >= 8)
		input.state ^= fuzz_rnd(8);
	input.state = input.state ?: 1;
}

static unsigned int pick(unsigned int n)
{
	return fuzz_rnd(2) % n;
}

/* Memory */

void fuzz_make_memory(void)
{
	if (fuzz_guest.mem)
		return;
	fuzz_guest.mem = mmap(NULL, fuzz_mem_size, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	view = mmap(NULL, fuzz_mem_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fuzz_guest.mem == MAP_FAILED || view == MAP_FAILED)
		abort();
	ASAN_POISON_MEMORY_REGION(view, fuzz_mem_size);
	ASAN_POISON_MEMORY_REGION(vmas, sizeof(vmas));
}

enum fuzz_page fuzz_page_kind(u64 off)
{
	return kinds[off / PAGE_SIZE];
}

/* Return the flag of the VMA that has a page, ~0 if none has it that can be locked. */
static unsigned long vma_flag(u64 off)
{
	switch (fuzz_page_kind(off)) {
	case FUZZ_PAGE_NO_VMA:
	case FUZZ_PAGE_CHANGING:
		return ~0UL;
	case FUZZ_PAGE_IO:
		return VM_IO;
	case FUZZ_PAGE_PFNMAP:
		return VM_PFNMAP;
	case FUZZ_PAGE_MIXEDMAP:
		return VM_MIXEDMAP;
	default:
		return 0;
	}
}

/*
 * Choose the kinds of pages, and VMAs that fit them.  Where the flags are the same, there may be
 * several VMAs.
 */
static void choose_pages(void)
{
	const u64 nr_odd = (fuzz_mem_size - fuzz_odd_off) / PAGE_SIZE;
	unsigned int first = 1 + pick(NR_FUZZ_PAGES - 1), i;
	u64 cuts = pick(2) ? fuzz_rnd(8) : 0, bits = fuzz_rnd(8), off;
	struct vm_area_struct *vma = NULL;

	memset(kinds, FUZZ_PAGE_USUAL, sizeof(kinds));
	for (i = 0; i < nr_odd && i < NR_FUZZ_PAGES; i++)
		kinds[fuzz_odd_off / PAGE_SIZE + i] = (first + i) % NR_FUZZ_PAGES;
	for (i = pick(2) ? pick(4) : 0; i; i--)
		kinds[fuzz_any_offset() / PAGE_SIZE] = pick(NR_FUZZ_PAGES);

	ASAN_UNPOISON_MEMORY_REGION(vmas, sizeof(vmas));
	for (off = 0; off < fuzz_mem_size; off += PAGE_SIZE) {
		const unsigned long flag = vma_flag(off);

		if (!off || flag != vma_flag(off - PAGE_SIZE) || cuts >> (off / PAGE_SIZE % 64) & 1)
			vma = NULL;
		vma_of[off / PAGE_SIZE] = NULL;
		if (flag == ~0UL)
			continue;
		if (!vma) {
			vma = &vmas[off / PAGE_SIZE];
			vma->vm_start = (unsigned long)view + off;
			/* The other flags don't matter. */
			vma->vm_flags = flag | (bits & ~(VM_IO | VM_PFNMAP | VM_MIXEDMAP));
		}
		vma->vm_end = (unsigned long)view + off + PAGE_SIZE;
		vma_of[off / PAGE_SIZE] = vma;
	}
	ASAN_POISON_MEMORY_REGION(vmas, sizeof(vmas));
}

/* There are two memslots: of the guest's memory, and a hidden one. */
static char slots[2];

struct kvm_memory_slot *kvm_vcpu_gfn_to_memslot(struct kvm_vcpu *vcpu, gfn_t gfn)
{
	u64 off;

	if (!fuzz_find(gfn << PAGE_SHIFT, &off) || fuzz_page_kind(off) == FUZZ_PAGE_NO_SLOT)
		return NULL;
	return (void *)&slots[fuzz_page_kind(off) == FUZZ_PAGE_HIDDEN];
}

bool kvm_is_visible_memslot(const struct kvm_memory_slot *slot)
{
	return slot == (void *)&slots[0];
}

unsigned long __gfn_to_hva_memslot(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	u64 off;

	FUZZ_ASSERT(kvm_is_visible_memslot(slot), "takes memory of a memslot that isn't visible");
	FUZZ_ASSERT(fuzz_find(gfn << PAGE_SHIFT, &off), "looks beyond the memslot");
	return (unsigned long)view + off;
}

/* The VMM's mappings */

static struct mm_struct {
	struct vm_area_struct *locked;
	unsigned int nr_pagefault_disabled;
	bool user_access;
	unsigned int nr_user_access;
} mm;

static struct kvm kvm = { .mm = &mm };

void pagefault_disable(void)
{
	mm.nr_pagefault_disabled++;
}

void pagefault_enable(void)
{
	FUZZ_ASSERT(mm.nr_pagefault_disabled, "enables page faults that it has not disabled");
	mm.nr_pagefault_disabled--;
}

static void check_user_access(bool open)
{
	FUZZ_ASSERT(mm.nr_pagefault_disabled == 1, "reads with page faults disabled %u times",
		    mm.nr_pagefault_disabled);
	FUZZ_ASSERT(mm.user_access == open, "reads with user access %s",
		    mm.user_access ? "open" : "closed");
	FUZZ_ASSERT(!fuzz_guest.walking || !fuzz_guest.faulted, "walks on after a fault");
}

/* Return true if this read or lock is the one that fails. */
static bool take_fault(struct fuzz_fault *fault)
{
	if (!fault->on || fault->countdown--)
		return false;
	fault->on = false;
	return true;
}

struct vm_area_struct *lock_vma_under_rcu(struct mm_struct *of, unsigned long addr)
{
	u64 off = addr - (unsigned long)view;
	struct vm_area_struct *vma;

	check_user_access(false);
	FUZZ_ASSERT(off < fuzz_mem_size, "locks a VMA at %#lx", addr);
	FUZZ_ASSERT(of == &mm && !mm.locked, "locks the wrong VMAs, or two of them");
	FUZZ_ASSERT(addr < last_vma.vm_start || addr >= last_vma.vm_end,
		    "locks the VMA that it has just had");
	memset(&last_vma, 0, sizeof(last_vma));
	if (take_fault(&fuzz_guest.lock_fault)) {
		fuzz_guest.faulted = true;
		return NULL;
	}

	vma = vma_of[off / PAGE_SIZE];
	if (!vma)
		return NULL;

	ASAN_UNPOISON_MEMORY_REGION(vma, sizeof(*vma));
	if (!(vma->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP)))
		last_vma = *vma;
	mm.locked = vma;
	return vma;
}

void vma_end_read(struct vm_area_struct *vma)
{
	FUZZ_ASSERT(vma && vma == mm.locked, "unlocks a VMA that it has not locked");
	FUZZ_ASSERT(!mm.user_access, "unlocks a VMA with user access open");
	mm.locked = NULL;
	ASAN_POISON_MEMORY_REGION(vma, sizeof(*vma));
}

/*
 * Return where the memory is.  It must lie in one page of the guest, which the walk may read, and
 * in the VMA that is locked.
 */
static u64 user_offset(const void __user *from, size_t size)
{
	u64 off = (const u8 *)from - view;

	FUZZ_ASSERT(off < fuzz_mem_size, "takes %p for the guest's memory", from);
	FUZZ_ASSERT(mm.locked && (unsigned long)from - mm.locked->vm_start <
		    mm.locked->vm_end - mm.locked->vm_start, "reads without a lock");
	FUZZ_ASSERT(offset_in_page(off) + size <= PAGE_SIZE, "reads %zu bytes at %#lx", size, off);
	FUZZ_ASSERT(fuzz_page_kind(off) <= FUZZ_PAGE_ABSENT, "reads a page of kind %u",
		    fuzz_page_kind(off));
	return off;
}

bool user_read_access_begin(const void __user *from, size_t size)
{
	check_user_access(false);
	user_offset(from, size);
	mm.user_access = true;
	mm.nr_user_access++;
	return true;
}

void user_read_access_end(void)
{
	FUZZ_ASSERT(mm.user_access, "closes user access that isn't open");
	mm.user_access = false;
}

int fuzz_get_user(u64 *word, const void __user *from, unsigned int size, bool unsafe)
{
	struct fuzz_race *race = &fuzz_guest.race;
	u64 off;

	check_user_access(unsafe);
	off = user_offset(from, size);
	FUZZ_ASSERT(!(off & (size - 1)), "reads %u bytes at %#lx", size, off);
	fuzz_guest.words += !fuzz_guest.translating;
	*word = 0;
	if (fuzz_page_kind(off) == FUZZ_PAGE_ABSENT || take_fault(&fuzz_guest.word_fault)) {
		fuzz_guest.faulted = true;
		return -EFAULT;
	}

	if (race->on && !race->countdown--) {
		race->on = false;
		memcpy(fuzz_guest.mem + race->off, &race->word, race->size);
	}
	memcpy(word, fuzz_guest.mem + off, size);
	return 0;
}

/* AddressSanitizer finds writes beyond the room in the buffer. */
unsigned int perf_output_copy_user(struct perf_output_handle *handle, const void __user *buf,
				   unsigned int len)
{
	unsigned int done = len;
	u64 off;

	check_user_access(false);
	FUZZ_ASSERT(len, "reads nothing");
	off = user_offset(buf, len);
	if (take_fault(&fuzz_guest.copy_fault))
		done = fuzz_guest.copy_fault.done % len;
	if (fuzz_page_kind(off) == FUZZ_PAGE_ABSENT)
		done = 0;
	memcpy(handle->addr, fuzz_guest.mem + off, done);
	/* What doesn't count may be anything. */
	memset(handle->addr + done, 0xa5, len - done);
	handle->addr += done;
	return len - done;
}

/**
 * fuzz_walk_read - read an entry of a page table, as KVM's page-table walks do
 * @vcpu: the vCPU
 * @gpa: where the entry is
 * @size: its size in bytes
 * @word: is set to the entry
 * @find_slot: find the memslot here, and don't leave that to kvm_peek_guest()
 *
 * Return: true if there is one.
 */
bool fuzz_walk_read(struct kvm_vcpu *vcpu, u64 gpa, unsigned int size, u64 *word, bool find_slot)
{
	struct kvm_memory_slot *slot = NULL;
	bool found;

	*word = 0;
	fuzz_guest.faulted = false;
	if (find_slot) {
		slot = kvm_vcpu_gfn_to_memslot(vcpu, gpa_to_gfn(gpa));
		found = kvm_is_visible_memslot(slot) &&
			!kvm_peek_slot(vcpu, slot, gpa, word, size);
	} else {
		found = !kvm_peek_guest(vcpu, gpa, word, size);
	}
	FUZZ_ASSERT(!found || !fuzz_guest.faulted, "takes an entry that it could not read");
	return found;
}

/* A translation begins. */
void fuzz_translating(void)
{
	check_user_access(false);
	fuzz_guest.translations++;
	fuzz_guest.translating = true;
}

static void check_balance(unsigned int begun)
{
	FUZZ_ASSERT(mm.nr_pagefault_disabled == begun && !mm.user_access,
		    "leaves page faults disabled %u times, user access %s",
		    mm.nr_pagefault_disabled, mm.user_access ? "open" : "closed");
	FUZZ_ASSERT(begun || !mm.locked, "leaves a VMA locked");
}

void trace_kvm_stack_walk(unsigned int vcpu_id, unsigned int nr, u64 end)
{
	check_balance(1);
}

static void peek_begin(struct kvm_vcpu *vcpu)
{
	vcpu->kvm = &kvm;
	/* What was found before counts no more. */
	vcpu->peek = (struct kvm_peek){
		.vma = &vmas[0], .user = pick(2), .piece = fuzz_guest.mem, .pairs = ~0UL,
	};
	memset(&last_vma, 0, sizeof(last_vma));
	fuzz_guest.translations = 0;
	fuzz_guest.words = 0;
	fuzz_guest.faulted = false;

	kvm_peek_begin(vcpu);
	check_balance(1);
	FUZZ_ASSERT(!mm.locked, "begins with a lock");
}

/* Call kvm_peek_begin(), with other mappings than before. */
void fuzz_peek_begin(struct kvm_vcpu *vcpu)
{
	choose_pages();
	peek_begin(vcpu);
}

static void peek_end(struct kvm_vcpu *vcpu)
{
	check_balance(1);
	kvm_peek_end(vcpu);
	check_balance(0);
}

static unsigned int nr_faults;

/* A walk begins, after fuzz_peek_begin(). */
void fuzz_begin_walk(void)
{
	fuzz_guest.word_fault = (struct fuzz_fault) {
		.on = !pick(6), .countdown = pick(64),
	};
	fuzz_guest.lock_fault = (struct fuzz_fault) {
		.on = !pick(6), .countdown = pick(8),
	};
	fuzz_guest.walking = true;
	nr_faults = fuzz_guest.word_fault.on + fuzz_guest.lock_fault.on;
}

/* A walk ends.  Return true if a read or a lock has failed that does not, as a rule. */
bool fuzz_end_walk(struct kvm_vcpu *vcpu)
{
	bool faulted = fuzz_guest.word_fault.on + fuzz_guest.lock_fault.on < nr_faults;

	fuzz_guest.walking = false;
	fuzz_guest.race.on = false;
	fuzz_guest.word_fault.on = false;
	fuzz_guest.lock_fault.on = false;
	peek_end(vcpu);
	return faulted;
}

/* Reads */

static u32 choose_size(void)
{
	switch (pick(8)) {
	case 0:
		return fuzz_rnd(2);
	case 1:
		return pick(3 * PAGE_SIZE);
	case 2:
		return pick(2) ? 0 : PAGE_SIZE;
	default:
		return pick(200);
	}
}

static s32 choose_offset(void)
{
	switch (pick(8)) {
	case 0:
		return fuzz_rnd(4);
	case 1:
		return pick(2 * PAGE_SIZE) - PAGE_SIZE;
	default:
		return 8 * (pick(16) - 4);
	}
}

static void choose_reads(struct perf_guest_reads *reads, u64 valid_regs)
{
	unsigned int i, j;

	memset(reads, 0, sizeof(*reads));
	reads->regs = fuzz_rnd(8) & valid_regs;
	reads->nr = pick(PERF_GUEST_READ_MAX + 1);
	for (i = 0; i < reads->nr; i++) {
		struct perf_guest_read *read = &reads->read[i];

		read->base = pick(PERF_GUEST_READ_BASE_MAX);
		read->nr_derefs = pick(2) ? 0 : pick(PERF_GUEST_READ_DEREFS + 1);
		read->flags = pick(8) | pick(4);
		read->size = ALIGN_DOWN(choose_size(), sizeof(u64));
		if (read->nr_derefs && !pick(2))
			read->within = pick(2) ? pick(128) : pick(4 * PAGE_SIZE);
		for (j = 0; j <= PERF_GUEST_READ_DEREFS; j++)
			read->offset[j] = pick(2) ? 0 : choose_offset();
		/* Two bases are addresses of the guest: most sums with another one lead nowhere. */
		if (read->base == PERF_GUEST_READ_ADDRESS)
			read->address = fuzz_any_address();
		else if (pick(2))
			read->address = fuzz_any_address() - fuzz_read_base(read->base);
	}
}

/* The translations that the oracle's reads take. */
static unsigned int expected_translations;

/* Read with the oracle; return how many bytes could be read.  Words have no @copy_fault. */
static unsigned int expect_bytes(u64 gva, bool user, u8 *data, unsigned int size,
				 struct fuzz_fault *copy_fault)
{
	unsigned int done = 0;
	bool fault = false;
	u64 gpa, off, n;

	while (done < size && !fault) {
		expected_translations++;
		if (!fuzz_translate(gva & PAGE_MASK, user, &gpa) ||
		    !fuzz_find(gpa + offset_in_page(gva), &off) ||
		    fuzz_page_kind(off) > FUZZ_PAGE_ABSENT)
			break;
		n = PAGE_SIZE - offset_in_page(gva);
		n = n < size - done ? n : size - done;
		if (copy_fault && take_fault(copy_fault)) {
			fault = true;
			n = copy_fault->done % n;
		}
		if (fuzz_page_kind(off) == FUZZ_PAGE_ABSENT)
			break;
		memcpy(data + done, fuzz_guest.mem + off, n);
		done += n;
		gva += n;
		/* The highest address is the last one. */
		if (!gva)
			break;
	}
	return done;
}

/* Find where a read begins; return false if a word on the way there can't be read. */
static bool expect_address(const struct perf_guest_read *read, u64 *addr)
{
	u64 at = read->address, word, sp = fuzz_read_base(PERF_GUEST_READ_SP);
	unsigned int i;

	if (read->base != PERF_GUEST_READ_ADDRESS)
		at += fuzz_read_base(read->base);
	for (i = 0; i < read->nr_derefs; i++) {
		at += (s64)read->offset[i];
		if (at & 7 || expect_bytes(at, false, (u8 *)&word, 8, NULL) != 8)
			return false;
		/* The stack pointer must be among the addresses below the word. */
		if (i == 0 && read->within && !(word - read->within <= sp && sp < word) &&
		    !(word < read->within && (sp < word || sp >= word - read->within)))
			return false;
		at = word;
	}
	*addr = at + (s64)read->offset[read->nr_derefs];
	return true;
}

static void check_find(struct kvm_vcpu *vcpu, const struct perf_guest_reads *reads, bool in_user,
		       u64 *addr, unsigned int *found)
{
	const u32 mode = in_user ? PERF_GUEST_READ_IN_USER : PERF_GUEST_READ_IN_KERNEL;
	const unsigned int nr_words = 3 + __builtin_popcountll(reads->regs);
	u64 expected[3 + 64], *words, at;
	unsigned int i, max = 0;

	/* AddressSanitizer finds writes beyond these. */
	words = malloc(nr_words * sizeof(*words));
	*found = kvm_guest_find_reads(vcpu, reads, in_user ? PERF_GUEST_USER : 0, words, addr);
	fuzz_read_regs(reads->regs, expected);
	FUZZ_ASSERT(!memcmp(words, expected, nr_words * sizeof(*words)), "stores wrong registers");
	free(words);

	for (i = 0; i < reads->nr; i++) {
		const struct perf_guest_read *read = &reads->read[i];
		const bool right = read->flags & mode && expect_address(read, &at);

		FUZZ_ASSERT((*found >> i & 1) == right, "finds %#x, wrong for read %u", *found, i);
		FUZZ_ASSERT(!right || addr[i] == at, "finds read %u at %#lx, not at %#lx", i,
			    addr[i], at);
		if (read->flags & mode)
			max += read->nr_derefs;
	}
	FUZZ_ASSERT(!(*found >> i), "finds %#x of %u reads", *found, i);
	FUZZ_ASSERT(fuzz_guest.words <= max && fuzz_guest.translations <= max,
		    "%u words and %u translations, at most %u", fuzz_guest.words,
		    fuzz_guest.translations, max);
}

static void check_read(struct kvm_vcpu *vcpu, u64 gva, unsigned int size, bool user,
		       struct fuzz_fault *copy_fault)
{
	/* A record's size has 16 bits. */
	static u8 expected[UINT16_MAX];
	/* AddressSanitizer finds writes beyond this. */
	u8 *data = malloc(size);
	struct perf_output_handle handle = { .addr = data };
	unsigned int done, right;

	expected_translations = 0;
	done = kvm_guest_read(vcpu, &handle, gva, size, user);
	right = expect_bytes(gva, user, expected, size, copy_fault);
	FUZZ_ASSERT(done == right && handle.addr == data + right && !memcmp(data, expected, right),
		    "reads %u of %u bytes at %#lx, %zu into the buffer; should read %u", done,
		    size, gva, handle.addr - data, right);
	free(data);
	FUZZ_ASSERT(!fuzz_guest.words && fuzz_guest.translations <= expected_translations,
		    "%u words and %u translations, at most %u", fuzz_guest.words,
		    fuzz_guest.translations, expected_translations);
}

/* Read words and pairs in two pages. */
static void check_words(struct kvm_vcpu *vcpu)
{
	const u64 page = fuzz_any_address() & PAGE_MASK;
	const u64 other = pick(2) ? page + PAGE_SIZE : fuzz_any_address() & PAGE_MASK;
	/* The page that was read last: not known yet. */
	u64 last = 1, gva, words[2], expected[2];
	unsigned int i, size, opened;
	bool user = false;
	int error;

	for (i = pick(8); i; i--) {
		/* The other mode may not read what was at hand. */
		if (!pick(4)) {
			last = 1;
			user = !user;
		}
		kvm_peek_with_rights(vcpu, user);
		size = 8 << pick(2);
		/* Often around the last pair of a page. */
		gva = (pick(3) ? page : other) + 8 * (pick(2) ? pick(512) : 508 + pick(4));
		if (gva > -16ULL)
			continue;

		fuzz_guest.translations = 0;
		opened = mm.nr_user_access;
		error = size == 8 ? kvm_peek_word(vcpu, gva, words) :
				    kvm_peek_pair(vcpu, gva, words, words + 1);
		opened = mm.nr_user_access - opened;
		FUZZ_ASSERT(!error == (expect_bytes(gva, user, (u8 *)expected, size, NULL) ==
				       size), "returns %d for words at %#lx", error, gva);
		FUZZ_ASSERT(error || !memcmp(words, expected, size), "wrong words at %#lx", gva);
		/* What is at hand isn't looked for, and is read at once. */
		FUZZ_ASSERT(last != ALIGN_DOWN(gva, PAGE_SIZE) ||
			    last != ALIGN_DOWN(gva + size - 8, PAGE_SIZE) ||
			    (!fuzz_guest.translations && opened == (size == 16)),
			    "%u translations and user access %u times for %u bytes at %#lx",
			    fuzz_guest.translations, opened, size, gva);
		last = error ? 1 : ALIGN_DOWN(gva + size - 8, PAGE_SIZE);
	}
}

/**
 * fuzz_check_reads - make reads, and compare the results with the oracle's
 * @vcpu:	the vCPU
 * @in_user:	it was in user mode
 * @valid_regs:	the registers that reads may ask for
 */
void fuzz_check_reads(struct kvm_vcpu *vcpu, bool in_user, u64 valid_regs)
{
	struct perf_guest_reads reads;
	struct fuzz_fault copy_fault;
	unsigned int i, found;
	u64 *addr;

	choose_reads(&reads, valid_regs);
	addr = malloc(reads.nr * sizeof(*addr));
	fuzz_peek_begin(vcpu);
	check_find(vcpu, &reads, in_user, addr, &found);
	peek_end(vcpu);

	copy_fault = (struct fuzz_fault) {
		.on = !pick(4), .countdown = pick(4), .done = fuzz_rnd(2),
	};
	fuzz_guest.copy_fault = copy_fault;
	for (i = 0; i < reads.nr; i++) {
		if (!(found >> i & 1))
			continue;
		peek_begin(vcpu);
		check_read(vcpu, addr[i], reads.read[i].size,
			   reads.read[i].flags & PERF_GUEST_READ_AS_USER, &copy_fault);
		peek_end(vcpu);
	}
	free(addr);

	peek_begin(vcpu);
	check_words(vcpu);
	peek_end(vcpu);
}
