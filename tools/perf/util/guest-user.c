// SPDX-License-Identifier: GPL-2.0
/*
 * Find user mode's part of a callchain that begins in a guest's kernel.  Linux on x86-64 and arm64
 * saves user mode's registers at the end of the task's stack when it is entered.  User mode's stack
 * is walked by frame pointers.  All of this is the guest's, and may hold anything.
 */
#include <stdlib.h>
#include <string.h>

#include <linux/bits.h>
#include <linux/bitops.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/unaligned.h>
#include <perf/event.h>

#include "addr_location.h"
#include "callchain.h"
#include "dwarf-regs.h"
#include "event.h"
#include "guest-reads.h"
#include "guest-regs.h"
#include "guest-task-reader.h"
#include "guest-user.h"
#include "machine.h"
#include "maps.h"
#include "perf_regs.h"
#include "sample.h"
#include "thread.h"
#include "unwind.h"
#include "unwind-libdw.h"

/* Kernels live in the upper half, user mode in the lower half; 57 bits are translated at most. */
#define is_kernel_address(addr)	((s64)(addr) < 0)
#define MAX_USER_ADDRESS	BIT_ULL(56)

/* CS of 32-bit and 64-bit programs on a 64-bit kernel, and the privilege level of user mode. */
#define USER32_CS	0x23
#define USER_CS		0x33
#define USER_RPL	3
#define RPL_MASK	3

/* Bits of RFLAGS: IF; what is always set, and what is never set in a program's flags. */
#define FLAGS_IF	BIT(9)
#define FLAGS_SET	BIT(1)
#define FLAGS_CLEAR	(GENMASK_ULL(63, 22) | BIT(17) | BIT(15) | BIT(5) | BIT(3))

/* Kernels that are built for FRED leave this many bytes free at the end of a task's stack. */
#define FRED_RESERVED	16

#define GUEST_PAGE_SIZE	4096

/* Offsets of registers in struct pt_regs. */
enum { SAVED_BP = 32, SAVED_IP = 128, SAVED_CS = 136, SAVED_FLAGS = 144 };

/* The same of arm64: FP, PC, the state, and the number of the system call, negative if none. */
enum { SAVED_FP = 232, SAVED_PC = 256, SAVED_PSTATE = 264, SAVED_SYSCALL = 280 };

/*
 * arm64's state is that of 64-bit code in user mode if all of these bits are zero: those of the
 * mode, the masks of exceptions, which user mode can't set, and those that Linux leaves zero.
 */
#define PSTATE_CLEAR	(GENMASK_ULL(63, 32) | GENMASK_ULL(9, 6) | GENMASK_ULL(4, 0))

/* In an address of user mode, this bit of arm64 is zero, whatever signature the others may have. */
#define ARM64_KERNEL	BIT_ULL(55)

/* Registers of either architecture. */
#define MAX_REGS	(PERF_REG_ARM64_PC + 1)

/* The most frames of user mode. */
#define MAX_FRAMES	256

/**
 * struct user_regs - registers of user mode
 * @ip:		instruction pointer
 * @sp:		the lowest address at which a frame may lie
 * @fp:		frame pointer
 * @word:	bytes in a word
 * @address:	the bits of a return address
 */
struct user_regs {
	u64		ip;
	u64		sp;
	u64		fp;
	unsigned int	word;
	u64		address;
};

/**
 * guest_read__reg - return a register that was read of a guest
 * @read:	what was read
 * @reg:	PERF_REG_X86_* or PERF_REG_ARM64_*
 *
 * Return: the register; zero if it was not read.
 */
u64 guest_read__reg(const struct guest_read *read, unsigned int reg)
{
	const struct perf_record_guest_read *record = read->record;

	return record && record->mask & BIT_ULL(reg) ?
	       record->regs[hweight64(record->mask & (BIT_ULL(reg) - 1))] : 0;
}

/**
 * guest_read__is_arm64 - check whether an arm64 guest was read
 * @read: what was read
 *
 * Return: true if so: perf has the register PC read of these, and x86 has none of that number.
 */
bool guest_read__is_arm64(const struct guest_read *read)
{
	return read->record && read->record->mask & BIT_ULL(PERF_REG_ARM64_PC);
}

static bool is_user_ip(u64 ip)
{
	/* Kernel threads that were never in user mode have zero there. */
	return ip && ip < MAX_USER_ADDRESS;
}

static bool are_flags(u64 flags)
{
	return (flags & (FLAGS_CLEAR | FLAGS_SET)) == FLAGS_SET;
}

/*
 * Return true if the sample hit the first or the last instructions of a system call: the stack is
 * still, or again, user mode's, or nothing is on the kernel's.  RCX and R11 have user mode's IP and
 * flags then: SYSCALL puts them there, and SYSRET takes them from there.  BP is user mode's.
 *
 * With page-table isolation, SP has the value of CR3 for a few instructions, which is in the lower
 * half as well.  The kernel's stack may be the one on which it switches page tables.
 */
static bool find_syscall_edge(const struct guest_read *read, bool has_callers,
			      struct user_regs *regs)
{
	u64 sp = guest_read__reg(read, PERF_REG_X86_SP);
	u64 flags = guest_read__reg(read, PERF_REG_X86_R11);

	*regs = (struct user_regs) {
		.ip	= guest_read__reg(read, PERF_REG_X86_CX),
		.fp	= guest_read__reg(read, PERF_REG_X86_BP),
		.word	= sizeof(u64),
		.address = ~0ULL,
	};
	if (!is_kernel_address(guest_read__reg(read, PERF_REG_X86_IP)) || !is_user_ip(regs->ip) ||
	    !are_flags(flags))
		return false;

	if (!is_kernel_address(sp)) {
		regs->sp = sp;
		/* The stack of a 32-bit program is below 4 GiB: BP is a system call's argument. */
		return sp >= BIT_ULL(32);
	}

	/* Between SP and the end of the stack is less than user mode's registers take. */
	return !has_callers && (flags & FLAGS_IF) &&
	       -sp % GUEST_PAGE_SIZE < GUEST_PT_REGS_SIZE + FRED_RESERVED;
}

/* Return what the kernel has saved of user mode's registers, @size bytes; NULL if there is none. */
static const u8 *saved_by_kernel(const struct guest_read *read, size_t size)
{
	const struct guest_piece *piece = &read->pieces[GUEST_READ_USER_REGS];

	return read->nr > GUEST_READ_USER_REGS && piece->size == size &&
	       is_kernel_address(piece->addr) ? piece->data : NULL;
}

/* Find the registers that the kernel has saved; return false if they can't be user mode's. */
static bool find_saved(const struct guest_read *read, struct user_regs *regs)
{
	const u8 *saved = saved_by_kernel(read, GUEST_PT_REGS_SIZE);
	u16 cs;

	if (!saved)
		return false;

	cs = get_unaligned_le64(saved + SAVED_CS);
	*regs = (struct user_regs) {
		.ip	= get_unaligned_le64(saved + SAVED_IP),
		.sp	= get_unaligned_le64(saved + GUEST_PT_REGS_SP),
		.fp	= get_unaligned_le64(saved + SAVED_BP),
		.word	= cs == USER32_CS ? sizeof(u32) : sizeof(u64),
		.address = ~0ULL,
	};
	/* A null selector has the index zero: it is no code's. */
	if (cs <= RPL_MASK || (cs & RPL_MASK) != USER_RPL || !is_user_ip(regs->ip) ||
	    !are_flags(get_unaligned_le64(saved + SAVED_FLAGS)))
		return false;

	/* 32-bit code leaves the upper halves of registers undefined. */
	if (cs == USER32_CS) {
		regs->ip = (u32)regs->ip;
		regs->sp = (u32)regs->sp;
		regs->fp = (u32)regs->fp;
	}
	return regs->ip;
}

/* Return the bits of an address: above them, arm64 may have put a signature, and a tag. */
static u64 arm64_address(struct machine *machine)
{
	return BIT_ULL(machine__guest_va_bits(machine)) - 1;
}

/*
 * As find_saved(), for arm64.  While the kernel is entered or left, FP is still, or again, user
 * mode's, or it points to the outermost frame.  The registers may be those of the last entry then.
 */
static bool find_arm64_saved(const struct guest_read *read, bool has_callers,
			     struct machine *machine, struct user_regs *regs)
{
	const u8 *saved = saved_by_kernel(read, GUEST_ARM64_PT_REGS_SIZE);

	if (!saved || !has_callers ||
	    !is_kernel_address(guest_read__reg(read, PERF_REG_ARM64_X29)) ||
	    get_unaligned_le64(saved + SAVED_PSTATE) & PSTATE_CLEAR)
		return false;

	*regs = (struct user_regs) {
		.ip	= get_unaligned_le64(saved + SAVED_PC),
		.sp	= get_unaligned_le64(saved + GUEST_ARM64_PT_REGS_SP),
		.fp	= get_unaligned_le64(saved + SAVED_FP),
		.word	= sizeof(u64),
		.address = arm64_address(machine),
	};
	return is_user_ip(regs->ip);
}

/* Read a word of user mode's stack, in whichever piece it is. */
static bool read_word(const struct guest_read *read, u64 addr, unsigned int size, u64 *word)
{
	static const unsigned int slots[] = {
		GUEST_READ_USER_STACK, GUEST_READ_CURRENT_STACK, GUEST_READ_STACK,
	};

	for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
		const struct guest_piece *piece = &read->pieces[slots[i]];
		u64 offset = addr - piece->addr;

		if (slots[i] >= read->nr || addr < piece->addr || piece->size < size ||
		    offset > piece->size - size)
			continue;
		*word = size == sizeof(u32) ? get_unaligned_le32(piece->data + offset) :
					      get_unaligned_le64(piece->data + offset);
		return true;
	}
	return false;
}

/* Walk by frame pointers, as the host's kernel does.  Return the number of entries. */
static unsigned int walk(const struct guest_read *read, struct user_regs *regs,
			 u64 ips[MAX_FRAMES])
{
	u64 limit = regs->word == sizeof(u32) ? BIT_ULL(32) : MAX_USER_ADDRESS, next, ra;
	unsigned int nr = 0;

	ips[nr++] = regs->ip;
	/* Each frame lies above the one before, so that there are no cycles. */
	while (nr < MAX_FRAMES && regs->fp >= regs->sp && regs->fp < limit &&
	       regs->fp % regs->word == 0) {
		if (!read_word(read, regs->fp, regs->word, &next) ||
		    !read_word(read, regs->fp + regs->word, regs->word, &ra))
			break;
		ra &= regs->address;
		if (!ra || ra >= limit)
			break;
		ips[nr++] = ra;
		regs->sp = regs->fp + 2 * regs->word;
		regs->fp = next;
	}
	return nr;
}

/* Return how many addresses a callchain has. */
static u64 callchain__nr_ips(const struct ip_callchain *chain)
{
	u64 nr = 0;

	for (u64 i = 0; i < chain->nr; i++)
		nr += chain->ips[i] < PERF_CONTEXT_MAX;
	return nr;
}

/**
 * sample__add_guest_user - add user mode's part to the callchain of a guest's kernel
 * @sample: a sample with its deferred parts
 * @machine: the guest; may be NULL
 *
 * Call this before the kernel's part is replaced: whether it has callers shows if the kernel's
 * stack is empty.
 */
void sample__add_guest_user(struct perf_sample *sample, struct machine *machine)
{
	const struct guest_read *read = &sample->guest_read;
	struct ip_callchain *old = sample->callchain, *chain;
	struct user_regs regs;
	u64 ips[MAX_FRAMES];
	unsigned int nr;
	u64 nr_old;

	if (!read->record || read->record->abi != PERF_SAMPLE_REGS_ABI_64 ||
	    sample->cpumode != PERF_RECORD_MISC_GUEST_KERNEL || !old || !old->nr ||
	    perf_sample__lacks_deferred(sample))
		return;

	if (guest_read__is_arm64(read) ?
	    !find_arm64_saved(read, callchain__nr_ips(old) > 1, machine, &regs) :
	    !find_syscall_edge(read, callchain__nr_ips(old) > 1, &regs) && !find_saved(read, &regs))
		return;

	nr = walk(read, &regs, ips);
	nr_old = old->nr;
	chain = malloc(sizeof(*chain) + (nr_old + 1 + nr) * sizeof(u64));
	if (!chain)
		return;

	memcpy(chain->ips, old->ips, nr_old * sizeof(u64));
	chain->ips[nr_old++] = PERF_CONTEXT_GUEST_USER;
	memcpy(&chain->ips[nr_old], ips, nr * sizeof(u64));
	chain->nr = nr_old + nr;
	if (sample->merged_callchain)
		free(old);
	sample->callchain = chain;
	sample->merged_callchain = true;
}

#ifdef HAVE_LIBDW_SUPPORT
/* The registers in struct pt_regs, by their places; ORIG_AX is none. */
static const s8 saved_regs[] = {
	PERF_REG_X86_R15, PERF_REG_X86_R14, PERF_REG_X86_R13, PERF_REG_X86_R12, PERF_REG_X86_BP,
	PERF_REG_X86_BX, PERF_REG_X86_R11, PERF_REG_X86_R10, PERF_REG_X86_R9, PERF_REG_X86_R8,
	PERF_REG_X86_AX, PERF_REG_X86_CX, PERF_REG_X86_DX, PERF_REG_X86_SI, PERF_REG_X86_DI, -1,
	PERF_REG_X86_IP, PERF_REG_X86_CS, PERF_REG_X86_FLAGS, PERF_REG_X86_SP, PERF_REG_X86_SS,
};

/* The addresses that the unwinder finds. */
struct user_chain {
	u64		ips[MAX_FRAMES];
	unsigned int	nr;
};

static int add_entry(struct unwind_entry *entry, void *arg)
{
	struct user_chain *chain = arg;

	if (chain->nr < MAX_FRAMES)
		chain->ips[chain->nr++] = entry->ip;
	return 0;
}

static void reverse(struct user_chain *chain)
{
	for (unsigned int i = 0; i < chain->nr / 2; i++) {
		u64 ip = chain->ips[i];

		chain->ips[i] = chain->ips[chain->nr - 1 - i];
		chain->ips[chain->nr - 1 - i] = ip;
	}
}

/* Fill in user mode's registers, as those of a process are, from the kernel's stack. */
static void take_saved(const struct guest_read *read, struct regs_dump *regs, u64 *values)
{
	const u8 *saved = read->pieces[GUEST_READ_USER_REGS].data;

	for (size_t i = 0; i < ARRAY_SIZE(saved_regs); i++) {
		if (saved_regs[i] >= 0) {
			regs->mask |= BIT_ULL(saved_regs[i]);
			values[saved_regs[i]] = get_unaligned_le64(saved + i * sizeof(u64));
		}
	}
	/*
	 * SYSCALL has put IP, the address after it, into CX, and the flags into R11.  Its own rule
	 * holds there: it may be the last instruction that has one, as in C libraries' return from
	 * signals.
	 */
	if (values[PERF_REG_X86_CX] == values[PERF_REG_X86_IP] &&
	    values[PERF_REG_X86_R11] == values[PERF_REG_X86_FLAGS])
		values[PERF_REG_X86_IP]--;
}

/* The stack of user mode is not larger. */
#define MAX_STACK	8192

/**
 * struct user_state - what the unwinder gets of user mode
 * @regs:	which registers there are
 * @values:	the registers
 * @stack:	a copy of the stack, if that had to be changed
 */
struct user_state {
	struct regs_dump	regs;
	u64			values[MAX_REGS];
	u64			stack[MAX_STACK / sizeof(u64)];
};

/* Remove the signature of a word that may be an address, which has the bits @address. */
static u64 strip(u64 word, u64 address)
{
	return word & ARM64_KERNEL ? word : word & address;
}

/*
 * Have the unwinder find return addresses without signatures: libdw removes them only if it is told
 * their bits, which older versions can't be.  That changes other words of the stack, too, but no
 * rule computes addresses by these.
 */
static void strip_all(struct user_state *state, struct perf_sample *user, u64 address)
{
	size_t size = min_t(u64, user->user_stack.size, MAX_STACK) & ~(sizeof(u64) - 1);

	for (size_t i = 0; i < size / sizeof(u64); i++)
		state->stack[i] = strip(get_unaligned_le64(user->user_stack.data +
							   i * sizeof(u64)), address);
	user->user_stack.data = (char *)state->stack;
	user->user_stack.size = size;
	state->values[PERF_REG_ARM64_LR] = strip(state->values[PERF_REG_ARM64_LR], address);
}

/* As take_saved(), for arm64, which saves all registers in the order that perf has. */
static void take_arm64_saved(const struct guest_read *read, struct regs_dump *regs, u64 *values)
{
	const u8 *saved = read->pieces[GUEST_READ_USER_REGS].data;

	for (unsigned int reg = 0; reg <= PERF_REG_ARM64_PC; reg++)
		values[reg] = get_unaligned_le64(saved + reg * sizeof(u64));
	regs->mask = BIT_ULL(PERF_REG_ARM64_PC + 1) - 1;
	/* At a system call, PC is behind SVC.  See take_saved(). */
	if ((s32)get_unaligned_le32(saved + SAVED_SYSCALL) >= 0)
		values[PERF_REG_ARM64_PC]--;
}

/* Fill in user mode's registers from those that the CPU had when it was sampled. */
static void take_current(const struct guest_read *read, struct regs_dump *regs, u64 *values)
{
	regs->mask = read->record->mask;
	for (unsigned int reg = 0; reg < MAX_REGS; reg++)
		values[reg] = guest_read__reg(read, reg);
}

/* Return the index after the marker of user mode's part of a chain; zero if there is none. */
static u64 find_user_part(const struct ip_callchain *chain)
{
	for (u64 i = 0; i < chain->nr; i++) {
		if (chain->ips[i] == PERF_CONTEXT_GUEST_USER)
			return i + 1;
	}
	return 0;
}

/*
 * Take user mode's registers and stack; return false if they were not read, or if they are those of
 * a 32-bit program.
 */
static bool take_user(const struct perf_sample *sample, struct machine *machine,
		      struct perf_sample *user, struct user_state *state)
{
	const struct guest_read *read = &sample->guest_read;
	const struct guest_piece *stack = &read->pieces[GUEST_READ_CURRENT_STACK];
	/* A chain has markers before the kernel's part and before user mode's. */
	bool has_callers = find_user_part(sample->callchain) > 3;
	bool arm64 = guest_read__is_arm64(read);
	struct regs_dump *regs = &state->regs;
	u64 *values = state->values;
	unsigned int sp = arm64 ? PERF_REG_ARM64_SP : PERF_REG_X86_SP, nr = 0;
	struct user_regs found;

	if (sample->cpumode == PERF_RECORD_MISC_GUEST_USER) {
		take_current(read, regs, values);
		if (!arm64 && values[PERF_REG_X86_CS] != USER_CS)
			return false;
	} else if (arm64) {
		if (!find_arm64_saved(read, has_callers, machine, &found))
			return false;
		take_arm64_saved(read, regs, values);
		stack = &read->pieces[GUEST_READ_USER_STACK];
	} else if (!find_syscall_edge(read, has_callers, &found) &&
		   find_saved(read, &found) && found.word == sizeof(u64)) {
		/* At the edge of a system call, these are the registers of the one before. */
		take_saved(read, regs, values);
		stack = &read->pieces[GUEST_READ_USER_STACK];
	} else {
		return false;
	}

	if (!stack->size || stack->addr != values[sp])
		return false;

	user->user_stack.size = stack->size;
	user->user_stack.data = (char *)stack->data;
	if (arm64)
		strip_all(state, user, arm64_address(machine));
	/* Values stand without gaps. */
	for (unsigned int reg = 0; reg < MAX_REGS; reg++) {
		if (regs->mask & BIT_ULL(reg))
			values[nr++] = values[reg];
	}
	regs->abi = PERF_SAMPLE_REGS_ABI_64;
	regs->regs = values;
	user->user_regs = regs;
	return true;
}

/*
 * Put the addresses that were found in the place of those of frame pointers.  The first one stays:
 * at a system call, the unwinder was told the one before it.
 */
static void replace_user_part(struct perf_sample *sample, const struct user_chain *found)
{
	struct ip_callchain *old = sample->callchain, *chain;
	u64 first = find_user_part(old);

	if (!first || first >= old->nr || old->ips[first] - found->ips[0] > 1)
		return;

	chain = malloc(sizeof(*chain) + (first + found->nr) * sizeof(u64));
	if (!chain)
		return;

	memcpy(chain->ips, old->ips, (first + 1) * sizeof(u64));
	memcpy(&chain->ips[first + 1], &found->ips[1], (found->nr - 1) * sizeof(u64));
	chain->nr = first + found->nr;
	if (sample->merged_callchain)
		free(old);
	sample->callchain = chain;
	sample->merged_callchain = true;
}

static bool is_mapped(struct thread *thread, struct regs_dump *regs, bool arm64)
{
	struct addr_location al;
	bool found;
	u64 ip;

	if (perf_reg_value(&ip, regs, arm64 ? PERF_REG_ARM64_PC : PERF_REG_X86_IP))
		return false;

	addr_location__init(&al);
	found = thread__find_map(thread, PERF_RECORD_MISC_GUEST_USER, ip, &al);
	addr_location__exit(&al);
	return found;
}

/**
 * sample__unwind_guest_user - replace user mode's part of a guest's callchain
 * @sample:	a sample with its deferred parts, and with the pid and tid of the guest's task
 * @machine:	the guest
 *
 * Unwind user mode's stack by the rules of the files that the task has mapped, as the stacks of the
 * host's processes are.  Keep the part that frame pointers have found only if the file isn't known:
 * in a program that has rules, they lead to addresses that are no caller's.
 *
 * Return: why there are no more frames; UNWIND_NONE if user mode's registers or stack were not
 * read.
 */
enum unwind_end sample__unwind_guest_user(struct perf_sample *sample, struct machine *machine)
{
	const struct guest_read *read = &sample->guest_read;
	struct user_chain found = { .nr = 0 };
	struct perf_sample user = { .cpumode = PERF_RECORD_MISC_GUEST_USER };
	struct user_state state = { .regs = { .mask = 0 } };
	bool arm64 = guest_read__is_arm64(read);
	enum unwind_end end = UNWIND_NO_FILE;
	struct thread *thread;

	if (!read->record || !machine || machine__is_host(machine) || !sample->callchain ||
	    read->record->abi != PERF_SAMPLE_REGS_ABI_64 || perf_sample__lacks_deferred(sample) ||
	    !take_user(sample, machine, &user, &state))
		return UNWIND_NONE;

	thread = machine__find_thread(machine, sample->pid, sample->tid);
	/* Don't look for it in the host's process of that pid. */
	if (thread)
		thread__set_e_machine(thread, arm64 ? EM_AARCH64 : EM_X86_64);
	/* Of code that is in no known file, only frame pointers may know the callers. */
	if (thread && is_mapped(thread, &state.regs, arm64) &&
	    libdw__get_entries(add_entry, &found, thread, &user, MAX_FRAMES, true) > 0 &&
	    found.nr) {
		/* The entries come in the order in which callchains are shown. */
		if (callchain_param.order == ORDER_CALLER)
			reverse(&found);
		replace_user_part(sample, &found);
		end = libdw__end(thread__maps(thread));
	}
	thread__put(thread);
	return end;
}
#else
enum unwind_end sample__unwind_guest_user(struct perf_sample *sample __maybe_unused,
					  struct machine *machine __maybe_unused)
{
	return UNWIND_NONE;
}
#endif

const char *guest_user_end__name(enum unwind_end end)
{
	static const char *const names[NR_UNWIND_ENDS] = {
		[UNWIND_NONE]		= "not looked for",
		[UNWIND_OUTERMOST]	= "start of the program or of a thread",
		[UNWIND_NO_RULE]	= "no rule was found",
		[UNWIND_NO_FILE]	= "no file has this code",
		[UNWIND_NO_STACK]	= "beyond the stack that was recorded",
		[UNWIND_MAX_STACK]	= "more frames than a callchain has",
		[UNWIND_ERROR]		= "the unwinder has failed",
	};

	return names[end];
}
