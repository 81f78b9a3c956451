/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the fuzzers of x86's and arm64's walks share: the input, the guest's memory with the
 * kernel's functions that reach it, and the check of reads.
 */
#ifndef GUEST_CALLCHAIN_FUZZ_GUEST_H
#define GUEST_CALLCHAIN_FUZZ_GUEST_H

#include <stdio.h>
#include <stdlib.h>

#include "fuzz_kernel.h"

enum fuzz_page {
	FUZZ_PAGE_USUAL,
	FUZZ_PAGE_ABSENT,	/* not present: reads fault */
	FUZZ_PAGE_NO_VMA,	/* the VMM has mapped nothing there */
	FUZZ_PAGE_CHANGING,	/* the VMM changes the mapping meanwhile */
	FUZZ_PAGE_IO,		/* memory of devices, by three flags of VMAs */
	FUZZ_PAGE_PFNMAP,
	FUZZ_PAGE_MIXEDMAP,
	FUZZ_PAGE_NO_SLOT,
	FUZZ_PAGE_HIDDEN,	/* in a memslot of KVM's own, or in one that is being removed */
	NR_FUZZ_PAGES,
};

/**
 * struct fuzz_race - a word that changes while the stack is walked
 * @on:		there is such a word, and it has not changed yet
 * @countdown:	how many words are read before the change
 * @off:	its offset in the memory
 * @size:	its size in bytes
 * @word:	its new value
 */
struct fuzz_race {
	bool on;
	unsigned int countdown;
	u64 off;
	unsigned int size;
	u64 word;
};

/**
 * struct fuzz_fault - a read or a lock that fails once
 * @on:		there is one, and it has not been tried yet
 * @countdown:	how many are tried before it
 * @done:	how many bytes are read before the fault, modulo the size of the read
 */
struct fuzz_fault {
	bool on;
	unsigned int countdown;
	unsigned int done;
};

/**
 * struct fuzz_guest - the guest's memory, and what was done with it
 * @mem:	the memory, as the fuzzer and the oracle see it
 * @race:	a word that changes
 * @word_fault:	a word that is not at hand once, also in a page table
 * @copy_fault:	bytes that are not at hand once
 * @lock_fault:	a mapping that the VMM changes just then
 * @walking:	this is the walk of a stack, which the first fault ends
 * @faulted:	a word could not be read, or a lock not be taken
 * @translations: how often a walk or a read has translated an address
 * @translating: this is a translation: its words don't count
 * @words:	words that were read
 */
struct fuzz_guest {
	u8 *mem;
	struct fuzz_race race;
	struct fuzz_fault word_fault;
	struct fuzz_fault copy_fault;
	struct fuzz_fault lock_fault;
	bool walking;
	bool faulted;
	unsigned int translations;
	bool translating;
	unsigned int words;
};

extern struct fuzz_guest fuzz_guest;

#define FUZZ_ASSERT(_cond, ...)						\
do {									\
	if (!(_cond)) {							\
		fprintf(stderr, "%s: ", fuzz_name);			\
		fprintf(stderr, __VA_ARGS__);				\
		fputc('\n', stderr);					\
		fuzz_print();						\
		abort();						\
	}								\
} while (0)

void fuzz_make_memory(void);
void fuzz_begin(const u8 *data, size_t size);
u64 fuzz_rnd(unsigned int nr_bytes);
bool fuzz_walk_read(struct kvm_vcpu *vcpu, u64 gpa, unsigned int size, u64 *word, bool find_slot);
void fuzz_translating(void);
void fuzz_peek_begin(struct kvm_vcpu *vcpu);
void fuzz_begin_walk(void);
bool fuzz_end_walk(struct kvm_vcpu *vcpu);
enum fuzz_page fuzz_page_kind(u64 off);
void fuzz_check_reads(struct kvm_vcpu *vcpu, bool in_user, u64 valid_regs);

/* Each fuzzer defines these. */
extern const char *const fuzz_name;
extern const size_t fuzz_mem_size;
/* From here on, there are pages of unusual kinds. */
extern const u64 fuzz_odd_off;
void fuzz_print(void);
/* Find physical memory; return false if no kind of page is there. */
bool fuzz_find(u64 gpa, u64 *off);
/* What reads must find, by the oracle; the translation is that of a page. */
bool fuzz_translate(u64 gva, bool user, u64 *gpa);
u64 fuzz_read_base(enum perf_guest_read_base base);
void fuzz_read_regs(u64 mask, u64 *data);
/* An address at which a read may find something. */
u64 fuzz_any_address(void);
/* Memory that the guest uses. */
u64 fuzz_any_offset(void);

#endif /* GUEST_CALLCHAIN_FUZZ_GUEST_H */
