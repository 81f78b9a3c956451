// SPDX-License-Identifier: GPL-2.0
/*
 * Read the memory of an x86-64 or arm64 guest through the memory of its VMM.
 *
 * This needs the right to trace the VMM.  Look at pagemap first, and skip pages that the VMM
 * doesn't have, so as not to make it allocate them or bring them in.  Only a page that goes away
 * after perf has looked at pagemap may be brought in by the read.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/uio.h>

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "dwarf-regs.h"
#include "guest-memory.h"
#include "guest-memslots.h"
#include "guest-sandbox.h"

/* Entries of /proc/PID/pagemap, see Documentation/admin-guide/mm/pagemap.rst. */
#define PAGEMAP_PRESENT		BIT_ULL(63)

/* One system call looks at this many pages, and at no more than this many bytes of each. */
#define NR_BATCH		512
#define MAX_PREFIX		16

/* Page tables of x86-64, see the SDM's volume 3, 4.5. */
#define PTE_PRESENT		BIT_ULL(0)
#define PTE_LARGE		BIT_ULL(7)
#define PTE_ADDRESS		GENMASK_ULL(51, GUEST_PAGE_SHIFT)

/*
 * Page tables of arm64, see the Arm ARM, D8.3.  Descriptors with addresses of 52 bits have bits 50
 * and 51 of the address, with pages of 64 KiB also 48 and 49, in another place.  perf reads
 * none of bits 48 to 51, so it can't read memory above 256 TiB.
 */
#define DESC_VALID		BIT_ULL(0)
#define DESC_TABLE		BIT_ULL(1)
#define DESC_ADDRESS		GENMASK_ULL(47, GUEST_PAGE_SHIFT)

/*
 * Enough pages for all structures that lead to the files of a process, and for the page tables that
 * lead to these: most of them are read several times.
 */
#define NR_CACHED		1024

/* Enough translations of addresses for what the short looks read. */
#define NR_TRANSLATIONS		64

#define GIB			BIT_ULL(30)

/*
 * A VMM may map a guest's RAM in one piece, but guest-physical addresses have a hole for devices,
 * which ends at 4 GiB.  By default, the hole begins at one of these addresses on QEMU's q35, pc and
 * microvm.  The first entry, 4 GiB, stands for no hole.  This entry is also used for RAM that KVM
 * lists, as offsets are guest-physical addresses there.
 */
static const u64 holes[] = { 4 * GIB, 0x80000000, 0xb0000000, 0xc0000000, 0xe0000000 };

/*
 * On arm64, RAM begins above the devices: at 1 GiB on QEMU's virt and with Cloud Hypervisor, at
 * 2 GiB with kvmtool, crosvm and Firecracker.  The first entry is for RAM that KVM lists.
 */
static const u64 bases[] = { 0, GIB, 2 * GIB };

/*
 * Budget to read one kernel.  It limits how long perf takes, whatever the guest has written to its
 * memory.  Each read costs its bytes and READ_COST, and PAGE_COST for each page that is not in the
 * cache.  Debian's 7.3 kernel takes a sixth of the budget.
 */
#define BUDGET			(2 * GIB)
#define READ_COST		64
#define PAGE_COST		GUEST_PAGE_SIZE

/*
 * Budget of the search for a kernel: it is spent on looking into pages that begin like VMCOREINFO.
 * Programs of the guest can write such pages: a hundred thousand or more of them can hide the real
 * one, and perf takes a few seconds to look at them.
 */
#define SEARCH_BUDGET		GIB

/*
 * Budget of each later look at the guest: enough for 15 000 tasks, or for several hundred processes
 * whose files have changed.  A guest can make such a look last a fifth of a second.
 */
#define LOOK_BUDGET		(256ULL << 20)

/* Budget of the short looks in between: a guest can make such a look last some 10 ms. */
#define GLANCE_BUDGET		(16ULL << 20)

/* Read strings in pieces of this size, in bytes.  Most strings are shorter. */
#define STRING_PIECE		64

/* Only the largest mappings of a VMM can be a guest's RAM: look at this many. */
#define NR_MAPPINGS		16

/*
 * A search looks at no more memory than this.  A larger mapping is reserved address space, which
 * would take minutes to look at.  Memslots may add up to more, as they may share memory: the search
 * leaves out those that don't fit any more.
 */
#define MAX_RAM			(8192 * GIB)

/* VMMs have one VM, or one for each of a few guests: look at this many. */
#define MAX_VMS			16

/*
 * Give up a piece after this many present but unreadable pages in a row, e.g. device registers.
 */
#define MAX_UNREADABLE	4096

struct mapping {
	u64			start;
	u64			size;
};

/**
 * struct guest_memory - the memory of a guest
 * @pid:	pid of the VMM
 * @pagemap:	file descriptor of /proc/PID/pagemap
 * @mappings:	the largest mappings of the VMM that may be RAM, the largest first
 * @ram:	the guest's RAM: the pieces that KVM lists, by guest-physical address; or one
 *		mapping that has all of it, from offset 0 on
 * @nr_pieces:	number of pieces in @ram
 * @list:	path of KVM's list of memslots; empty if there is none
 * @layout:	index in holes[], or in bases[] on arm64
 * @budget:	how much may still be read
 * @error:	why the VMM's memory can't be read; zero if it can
 * @tables:	the guest's page tables
 * @levels:	number of levels of page tables; zero if there are none
 * @generation:	is increased when all that was read is dropped; never zero
 * @cached:	pages that were read, those of @generation
 * @translations_of: is increased when translations are dropped; never zero
 * @translations: translations of addresses of pages, those of @translations_of
 */
struct guest_memory {
	pid_t			pid;
	int			pagemap;
	struct mapping		mappings[NR_MAPPINGS];
	struct guest_memslot	ram[MAX_MEMSLOTS];
	size_t			nr_pieces;
	char			list[PATH_MAX];
	unsigned int		layout;
	u64			budget;
	int			error;
	struct guest_page_tables tables;
	unsigned int		levels;
	u64			generation;
	struct {
		u64		offset;
		u64		generation;
		u8		data[GUEST_PAGE_SIZE];
	} cached[NR_CACHED];
	u64			translations_of;
	struct {
		u64		gva;
		u64		gpa;
		u64		generation;
	} translations[NR_TRANSLATIONS];
};

/* Keep the largest mappings, sorted by size. */
static void add_mapping(struct guest_memory *mem, const struct mapping *mapping)
{
	size_t i = NR_MAPPINGS;

	while (i && mapping->size > mem->mappings[i - 1].size)
		i--;
	if (i == NR_MAPPINGS)
		return;
	memmove(&mem->mappings[i + 1], &mem->mappings[i],
		(NR_MAPPINGS - 1 - i) * sizeof(*mapping));
	mem->mappings[i] = *mapping;
}

/*
 * Find the mappings that may be a guest's RAM: the VMM can read and write them, but not execute
 * them.
 */
static bool find_mappings(struct guest_memory *mem)
{
	struct mapping mapping;
	char path[32], *line = NULL;
	size_t len = 0;
	FILE *maps;

	scnprintf(path, sizeof(path), "/proc/%d/maps", mem->pid);
	maps = guest_sandbox__fopen(path, GUEST_READ_FILE);
	if (!maps)
		return false;

	while (getline(&line, &len, maps) > 0) {
		char perms[5];
		u64 end;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &mapping.start, &end, perms) != 3 ||
		    strncmp(perms, "rw-", 3) || end <= mapping.start)
			continue;
		mapping.size = end - mapping.start;
		if (mapping.size <= MAX_RAM)
			add_mapping(mem, &mapping);
	}
	free(line);
	fclose(maps);
	errno = ENOENT;
	return mem->mappings[0].size;
}

/**
 * guest_memory__is_supported - check whether perf can read guests' memory on this host
 *
 * A guest has its host's architecture.  Its pages may have another size than the host's.  The host
 * must have pages of GUEST_PAGE_SIZE, as perf reads the VMM's pagemap in that unit.
 *
 * Return: true if it can.
 */
bool guest_memory__is_supported(void)
{
	return EM_HOST == EM_X86_64 ||
	       (EM_HOST == EM_AARCH64 && sysconf(_SC_PAGESIZE) == GUEST_PAGE_SIZE);
}

/**
 * guest_memory__open - find the memory of a guest
 * @pid: pid of its VMM
 *
 * Return: the memory, or NULL with errno set.
 */
struct guest_memory *guest_memory__open(pid_t pid)
{
	struct guest_memory *mem = zalloc(sizeof(*mem));
	char path[32];
	int err;

	if (!mem)
		return NULL;

	mem->pid = pid;
	mem->generation = 1;
	mem->translations_of = 1;
	scnprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	mem->pagemap = guest_sandbox__open(path, GUEST_READ_FILE);
	if (mem->pagemap >= 0 && find_mappings(mem))
		return mem;

	err = errno;
	guest_memory__close(mem);
	errno = err;
	return NULL;
}

void guest_memory__close(struct guest_memory *mem)
{
	if (mem && mem->pagemap >= 0)
		close(mem->pagemap);
	free(mem);
}

/* Read the pagemap entries of up to @nr pages from @hva on; return how many were read. */
static unsigned int get_present(struct guest_memory *mem, u64 hva, u64 *entries, unsigned int nr)
{
	off_t pos = hva / GUEST_PAGE_SIZE * sizeof(*entries);
	ssize_t found = pread(mem->pagemap, entries, nr * sizeof(*entries), pos);

	return found < 0 ? 0 : found / sizeof(*entries);
}

/* Take @cost from the budget; return false, and take all that is left, if that is too little. */
static bool spend(struct guest_memory *mem, u64 cost)
{
	if (mem->budget < cost) {
		mem->budget = 0;
		return false;
	}

	mem->budget -= cost;
	return true;
}

/* Return the VMM's address of @offset in RAM; zero if it has none. */
static u64 to_hva(const struct guest_memory *mem, u64 offset)
{
	size_t first = 0, end = mem->nr_pieces;

	/* Find the last piece that begins at @offset or below it. */
	while (end - first > 1) {
		size_t middle = first + (end - first) / 2;

		if (mem->ram[middle].gpa <= offset)
			first = middle;
		else
			end = middle;
	}
	if (!end || offset - mem->ram[first].gpa >= mem->ram[first].size)
		return 0;
	return mem->ram[first].hva + (offset - mem->ram[first].gpa);
}

/**
 * guest_memory__read_ram - read bytes by their offset in the guest's RAM
 * @mem:	the memory
 * @offset:	offset of the first one
 * @buf:	receives them
 * @size:	number of bytes, which must lie on one page
 *
 * Return: true if all were read.  Pages that the VMM does not have, or has swapped out, are not
 * brought in: they can't be read.
 */
bool guest_memory__read_ram(struct guest_memory *mem, u64 offset, void *buf, size_t size)
{
	u64 page = offset & GUEST_PAGE_MASK, hva = to_hva(mem, page), entry;
	unsigned int i = (offset >> GUEST_PAGE_SHIFT) % NR_CACHED;
	struct iovec local = { mem->cached[i].data, GUEST_PAGE_SIZE };
	struct iovec remote = { (void *)(unsigned long)hva, GUEST_PAGE_SIZE };

	if (!hva || offset - page + size > GUEST_PAGE_SIZE)
		return false;

	if (mem->cached[i].generation != mem->generation || mem->cached[i].offset != page) {
		if (!spend(mem, PAGE_COST))
			return false;
		mem->cached[i].generation = 0;
		if (get_present(mem, hva, &entry, 1) != 1 || !(entry & PAGEMAP_PRESENT) ||
		    process_vm_readv(mem->pid, &local, 1, &remote, 1, 0) != GUEST_PAGE_SIZE)
			return false;
		mem->cached[i].offset = page;
		mem->cached[i].generation = mem->generation;
	}

	memcpy(buf, &mem->cached[i].data[offset - page], size);
	return true;
}

/* Look at the first bytes of each page in a piece of RAM; see guest_memory__find(). */
static bool find_in_piece(struct guest_memory *mem, const struct guest_memslot *piece,
			  const char *prefix, guest_page_fn found, void *arg)
{
	bool found_any = false;
	struct iovec local, remote[NR_BATCH];
	u64 entries[NR_BATCH], offset;
	unsigned long page;
	char begins[NR_BATCH * MAX_PREFIX];
	unsigned int i, nr, nr_remote, unreadable = 0;
	size_t len = strlen(prefix);
	ssize_t bytes;

	for (offset = 0; offset < piece->size && unreadable < MAX_UNREADABLE;
	     offset += nr * GUEST_PAGE_SIZE) {
		nr = get_present(mem, piece->hva + offset, entries, NR_BATCH);
		if (!nr)
			return found_any;

		nr_remote = 0;
		for (i = 0; i < nr && offset + i * GUEST_PAGE_SIZE < piece->size; i++) {
			page = piece->hva + offset + i * GUEST_PAGE_SIZE;
			if (entries[i] & PAGEMAP_PRESENT)
				remote[nr_remote++] = (struct iovec){ (void *)page, len };
		}

		/* A page that is no longer mapped ends the system call: skip it, and call again. */
		for (i = 0; i < nr_remote; i++) {
			local = (struct iovec){ begins, (nr_remote - i) * len };
			bytes = process_vm_readv(mem->pid, &local, 1, &remote[i], nr_remote - i, 0);
			if (bytes < 0 && errno != EFAULT) {
				mem->error = errno;
				return found_any;
			}
			unreadable = bytes < 0 ? unreadable + 1 : 0;
			for (; bytes >= (ssize_t)len; bytes -= len, i++) {
				page = (unsigned long)remote[i].iov_base - piece->hva;
				if (!memcmp(local.iov_base, prefix, len))
					found_any |= found(mem, piece->gpa + page, arg);
				local.iov_base += len;
			}
		}
	}
	return found_any;
}

/*
 * Look at all pieces of RAM, as far as @left goes.  Don't stop at the first page for which @found
 * returns true: kernels that ran before may have left such pages as well.
 */
static bool find_in_ram(struct guest_memory *mem, u64 *left, const char *prefix,
			guest_page_fn found, void *arg)
{
	bool found_any = false;

	guest_memory__forget(mem);
	for (size_t i = 0; i < mem->nr_pieces && !mem->error; i++) {
		if (mem->ram[i].size > *left)
			continue;
		*left -= mem->ram[i].size;
		found_any |= find_in_piece(mem, &mem->ram[i], prefix, found, arg);
	}
	return found_any;
}

static bool search(struct guest_memory *mem, const char *prefix, guest_page_fn found, void *arg)
{
	u64 left = MAX_RAM;
	bool listed = false;

	for (unsigned int i = 0; i < MAX_VMS && !mem->error; i++) {
		if (!guest_memslots__find_vm(mem->pid, i, mem->list))
			break;
		mem->nr_pieces = guest_memslots__read(mem->list, mem->ram);
		listed |= mem->nr_pieces;
		if (find_in_ram(mem, &left, prefix, found, arg))
			return true;
	}

	*mem->list = 0;
	mem->nr_pieces = 1;
	for (size_t i = 0; !listed && !mem->error && i < NR_MAPPINGS; i++) {
		mem->ram[0] = (struct guest_memslot){
			.hva = mem->mappings[i].start, .size = mem->mappings[i].size,
		};
		if (find_in_ram(mem, &left, prefix, found, arg))
			return true;
	}
	return false;
}

/**
 * guest_memory__find - find the guest's RAM by a page in it
 * @mem:	the memory; call guest_memory__begin() before further reads
 * @prefix:	the first characters of the page, 16 at most
 * @found:	called for each such page, and may read the memory; returns true if the page shows
 *		that perf is looking at the guest's RAM
 * @arg:	argument of @found
 *
 * Return: true if @found has returned true.  errno is zero unless the VMM's memory can't be read.
 */
bool guest_memory__find(struct guest_memory *mem, const char *prefix, guest_page_fn found,
			void *arg)
{
	bool found_any;

	mem->budget = SEARCH_BUDGET;
	found_any = search(mem, prefix, found, arg);
	errno = mem->error;
	return found_any;
}

/**
 * guest_memory__forget - drop what was read, for the guest may have changed it
 * @mem: the memory
 */
void guest_memory__forget(struct guest_memory *mem)
{
	mem->generation++;
	mem->translations_of++;
}

/**
 * guest_memory__begin - drop what was read, and set the budget to that of reading one kernel
 * @mem: the memory
 */
void guest_memory__begin(struct guest_memory *mem)
{
	guest_memory__forget(mem);
	mem->budget = BUDGET;
}

/**
 * guest_memory__refresh - drop what was read, and set the budget to that of one look
 * @mem: the memory
 *
 * This also reads KVM's list of memslots again, if perf uses it.
 */
void guest_memory__refresh(struct guest_memory *mem)
{
	guest_memory__forget(mem);
	/* Memory may have been hotplugged. */
	if (*mem->list)
		mem->nr_pieces = guest_memslots__read(mem->list, mem->ram);
	mem->budget = LOOK_BUDGET;
}

/**
 * guest_memory__glance - drop what was read, and set the budget to that of a short look
 * @mem: the memory
 *
 * Translations of addresses are kept, as the kernel's image and the direct map of RAM don't move:
 * there are hundreds of such looks a second.
 */
void guest_memory__glance(struct guest_memory *mem)
{
	mem->generation++;
	mem->budget = GLANCE_BUDGET;
}

/**
 * guest_memory__spend - charge work on what was read to the budget
 * @mem:	the memory
 * @size:	number of bytes that were worked on
 *
 * Return: true if the budget sufficed.
 */
bool guest_memory__spend(struct guest_memory *mem, size_t size)
{
	return spend(mem, READ_COST + size);
}

/* Convert a guest-physical address to an offset in RAM; return false if there is none. */
static bool ram_offset(const struct guest_memory *mem, u64 gpa, u64 *offset)
{
	u64 hole;

	if (mem->tables.is_arm64) {
		*offset = gpa - bases[mem->layout];
		return gpa >= bases[mem->layout] && to_hva(mem, *offset);
	}

	hole = holes[mem->layout];
	if (gpa >= hole && gpa < 4 * GIB)
		return false;

	*offset = gpa < hole ? gpa : gpa - 4 * GIB + hole;
	return to_hva(mem, *offset);
}

/*
 * In a canonical address of x86-64, all bits above the topmost one that is translated equal that
 * bit.  On arm64, they are all set in an address of the kernel.
 */
static bool is_canonical(const struct guest_page_tables *tables, u64 gva)
{
	s64 above = (s64)gva >> (tables->va_bits - 1);

	if (tables->is_arm64)
		return (s64)gva >> tables->va_bits == -1;
	return above == 0 || above == -1;
}

/* Return true if an entry maps memory, rather than being the address of another table. */
static bool is_leaf(const struct guest_page_tables *tables, unsigned int level, u64 pte)
{
	return level == 1 ||
	       (tables->is_arm64 ? !(pte & DESC_TABLE) : level <= 3 && (pte & PTE_LARGE));
}

static bool walk_tables(struct guest_memory *mem, u64 gva, u64 *gpa)
{
	const struct guest_page_tables *tables = &mem->tables;
	u64 present = tables->is_arm64 ? DESC_VALID : PTE_PRESENT;
	u64 address = tables->is_arm64 ? DESC_ADDRESS : PTE_ADDRESS;
	unsigned int bits = tables->page_shift - 3, shift = tables->va_bits;
	u64 table = tables->root, offset, pte;

	if (!mem->levels || !is_canonical(tables, gva))
		return false;

	/* The topmost table may have fewer entries than others. */
	gva &= GENMASK_ULL(shift - 1, 0);
	shift = tables->page_shift + mem->levels * bits;
	for (unsigned int level = mem->levels; level; level--) {
		shift -= bits;
		table += ((gva >> shift) & GENMASK(bits - 1, 0)) * sizeof(pte);
		if (!ram_offset(mem, table, &offset) ||
		    !guest_memory__read_ram(mem, offset, &pte, sizeof(pte)) ||
		    !(pte & present))
			return false;
		if (is_leaf(tables, level, pte))
			break;
		table = pte & address & ~GENMASK_ULL(tables->page_shift - 1, 0);
	}

	/* Bit 12 of a large page's entry is an attribute, and not a part of the address. */
	*gpa = (pte & address & ~GENMASK_ULL(shift - 1, 0)) | (gva & GENMASK_ULL(shift - 1, 0));
	return true;
}

static bool translate(struct guest_memory *mem, u64 gva, u64 *gpa)
{
	unsigned int i = (gva >> GUEST_PAGE_SHIFT) % NR_TRANSLATIONS;

	if (mem->translations[i].generation != mem->translations_of ||
	    mem->translations[i].gva != (gva & GUEST_PAGE_MASK)) {
		if (!walk_tables(mem, gva & GUEST_PAGE_MASK, gpa))
			return false;
		mem->translations[i].gva = gva & GUEST_PAGE_MASK;
		mem->translations[i].gpa = *gpa;
		mem->translations[i].generation = mem->translations_of;
	}
	*gpa = mem->translations[i].gpa | (gva & ~GUEST_PAGE_MASK);
	return true;
}

/* Use the first layout from @layout on by which the page tables map themselves. */
static bool find_layout(struct guest_memory *mem, unsigned int layout)
{
	unsigned int nr_layouts = mem->tables.is_arm64 ? ARRAY_SIZE(bases) : ARRAY_SIZE(holes);
	u64 gpa;

	if (*mem->list)
		nr_layouts = 1;

	for (; layout < nr_layouts; layout++) {
		mem->layout = layout;
		guest_memory__forget(mem);
		if (translate(mem, mem->tables.gva, &gpa) && gpa == mem->tables.root)
			return true;
	}
	return false;
}

/**
 * guest_memory__use_tables - use page tables to read by virtual addresses
 * @mem:	the memory
 * @tables:	the page tables
 *
 * Return: true if, in one of the known layouts of RAM, the page tables map themselves.
 */
bool guest_memory__use_tables(struct guest_memory *mem, const struct guest_page_tables *tables)
{
	unsigned int bits = tables->page_shift - 3;

	mem->tables = *tables;
	mem->levels = (tables->va_bits - tables->page_shift + bits - 1) / bits;
	if (find_layout(mem, 0))
		return true;

	mem->levels = 0;
	return false;
}

/**
 * guest_memory__use_next_layout - use the next layout of RAM that fits
 * @mem:	the memory, with page tables
 *
 * Page tables that lie below all holes have the same offset in each layout, so they fit all
 * layouts.  Data that lies higher, as the list of modules may, shows which layout is right.
 *
 * Return: true if another layout fits; if not, the layout stays as it was.
 */
bool guest_memory__use_next_layout(struct guest_memory *mem)
{
	unsigned int layout = mem->layout;

	if (find_layout(mem, layout + 1))
		return true;

	mem->layout = layout;
	/* Translations were made by the other layouts. */
	guest_memory__forget(mem);
	return false;
}

/**
 * guest_memory__read - read bytes by their virtual address
 * @mem:	the memory, with page tables
 * @gva:	address of the first one
 * @buf:	receives them
 * @size:	number of bytes
 *
 * Return: true if all were read.
 */
bool guest_memory__read(struct guest_memory *mem, u64 gva, void *buf, size_t size)
{
	u64 gpa, offset;
	size_t len;

	if (!spend(mem, READ_COST + size))
		return false;

	while (size) {
		len = min((size_t)(GUEST_PAGE_SIZE - (gva & ~GUEST_PAGE_MASK)), size);
		if (!translate(mem, gva, &gpa) || !ram_offset(mem, gpa, &offset) ||
		    !guest_memory__read_ram(mem, offset, buf, len))
			return false;
		gva += len;
		buf += len;
		size -= len;
	}
	return true;
}

/**
 * guest_memory__read_page - read a page by its page frame number
 * @mem:	the memory, with page tables
 * @pfn:	the page frame number
 * @page:	receives the page
 *
 * Return: true if it was read.
 */
bool guest_memory__read_page(struct guest_memory *mem, u64 pfn, void *page)
{
	u64 offset;

	return pfn <= ~0ULL >> GUEST_PAGE_SHIFT &&
	       ram_offset(mem, pfn << GUEST_PAGE_SHIFT, &offset) &&
	       guest_memory__read_ram(mem, offset, page, GUEST_PAGE_SIZE);
}

/**
 * guest_memory__read_string - read a string by its virtual address
 * @mem:	the memory, with page tables
 * @gva:	its address
 * @max:	the maximum number of its characters
 *
 * Return: the string, to be freed; NULL if it is empty or too long, can't be read, or has a
 * character that is not a visible ASCII character.
 */
char *guest_memory__read_string(struct guest_memory *mem, u64 gva, size_t max)
{
	char *string = malloc(max + 1);
	size_t len, i = 0;

	while (string && i <= max) {
		/*
		 * Read in pieces: each read has a cost, and the bytes after the string may not be
		 * readable.
		 */
		len = min((size_t)(GUEST_PAGE_SIZE - ((gva + i) & ~GUEST_PAGE_MASK)),
			  (size_t)STRING_PIECE);
		len = min(len, max + 1 - i);
		if (!guest_memory__read(mem, gva + i, &string[i], len))
			break;
		for (; len; len--, i++) {
			if (!string[i] && i)
				return string;
			if (string[i] <= ' ' || string[i] > '~') {
				free(string);
				return NULL;
			}
		}
	}
	free(string);
	return NULL;
}

/**
 * guest_memory__is_exhausted - check whether the budget is used up
 * @mem:	the memory
 *
 * Return: true if too little is left to read another page.
 */
bool guest_memory__is_exhausted(const struct guest_memory *mem)
{
	return mem->budget < READ_COST + PAGE_COST;
}
