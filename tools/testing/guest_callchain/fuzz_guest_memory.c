// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzz tools/perf/util/guest-memory.c, and the code that uses it to read a guest, under libFuzzer.
 *
 * The guests are those of perf's test; the input changes bytes of one of them.  AddressSanitizer
 * and UBSan look for errors.  All output but the vmlinux must be text that a terminal can show.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The guests, see fake__make_contents() and fake__make_arm64() in the included file. */
#include "../../perf/tests/fake-guest.c"

#include "build-id.h"
#include "debug.h"
#include "guest-btf.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-memslots.h"
#include "guest-modules.h"
#include "guest-page-cache.h"
#include "guest-policy.h"
#include "guest-program.h"
#include "guest-task-writer.h"
#include "guest-vmlinux.h"

#define NR_X86		(2 * NR_KALLSYMS)
#define NR_GUESTS	(NR_X86 + ARRAY_SIZE(fake_arm64_guests) - 1)

/* For functions that are not under test: their coverage takes time and can't guide libFuzzer. */
#define no_coverage	__attribute__((no_sanitize("coverage")))

/* One guest of each kind; @present is true for its pages that have contents. */
static struct {
	u8	*ram;
	u64	btf_size;
	bool	present[LOW_SIZE / PAGE];
} guests[NR_GUESTS], *guest;

/* These replace system calls, which are slow.  This process is the VMM. */
static no_coverage ssize_t fuzz_readv(pid_t pid, const struct iovec *local,
				      unsigned long nr_local, const struct iovec *remote,
				      unsigned long nr, unsigned long flags)
{
	u8 *to = local->iov_base;
	ssize_t total = 0;

	for (unsigned long i = 0; i < nr; i++) {
		u64 offset = (u8 *)remote[i].iov_base - guest->ram;

		if (offset >= LOW_SIZE || !guest->present[offset / PAGE])
			break;
		memcpy(&to[total], remote[i].iov_base, remote[i].iov_len);
		total += remote[i].iov_len;
	}
	return total ?: -1;
}

static no_coverage ssize_t fuzz_pread(int fd, void *buf, size_t size, off_t pos)
{
	u64 page = ((u64)pos / sizeof(u64)) - (u64)guest->ram / PAGE, *entries = buf;

	for (size_t i = 0; i < size / sizeof(u64); i++, page++)
		entries[i] = page < LOW_SIZE / PAGE && guest->present[page] ? 1ULL << 63 : 0;
	return size;
}

static no_coverage FILE *fuzz_fopen(const char *path, const char *mode)
{
	static char map[64];

	snprintf(map, sizeof(map), "%lx-%lx rw-p\n", (long)guest->ram, (long)guest->ram + LOW_SIZE);
	return fmemopen(map, strlen(map), "r");
}

#define process_vm_readv	fuzz_readv
#define pread			fuzz_pread
#define fopen			fuzz_fopen
#include "guest-memory.c"
#undef fopen

int verbose;

int eprintf(int level, int var, const char *fmt, ...)
{
	return 0;
}

int veprintf(int level, int var, const char *fmt, va_list args)
{
	return 0;
}

/* As perf's; the rest of its file is not under test. */
int build_id__snprintf(const struct build_id *build_id, char *text, size_t size)
{
	*text = 0;
	for (size_t i = 0; i < build_id->size && 2 * i + 2 < size; i++)
		sprintf(&text[2 * i], "%02x", build_id->data[i]);
	return strlen(text);
}

/* KVM's list of memslots comes from the host, and is not fuzzed. */
bool guest_memslots__find_vm(pid_t pid, unsigned int nr, char path[PATH_MAX])
{
	return false;
}

/* The policies of the administrator and of the VMM are not fuzzed, either. */
const char *guest_policy__refusal(pid_t pid)
{
	return NULL;
}

size_t guest_memslots__read(const char *path, struct guest_memslot *slots)
{
	return 0;
}

/* Other parts of libbpf that its BTF code calls: messages, and access to the host's own BTF. */
void libbpf_print(int level, const char *fmt, ...)
{
}

long libbpf_get_error(const void *ptr)
{
	return ptr ? 0 : -errno;
}

int bpf_btf_load(const void *data, size_t size, const void *opts)
{
	return -ENOSYS;
}

int bpf_btf_get_info_by_fd(int fd, void *info, u32 *len)
{
	return -ENOSYS;
}

int bpf_btf_get_fd_by_id_opts(u32 id, const void *opts)
{
	return -ENOSYS;
}

/* Addresses at which the input may change bytes: virtual ones, then physical ones. */
static const u64 places[] = {
	KERNEL, NUM_SYMS, NAMES, TOKEN_TABLE, TOKEN_INDEX, OFFSETS, MODULES, MODULE(0), MODULE(1),
	STRINGS, SYMTAB, TYPES, ORC_HEADER, BTF, PAGE_OFFSET_AT, CPU_OFFSETS, IDLE_THREADS,
	TASK(0), TASK(1), TASK(2), TASK(3), SIGNAL, MM, VMA(0), FILE_OF(0), DENTRY(0), MOUNT(0),
	NAME_OF(0), INODE(0), MAPPING(0), CACHE(0), CACHE(1), VMEMMAP_AT, PROGRAM_FOLIO(HEADERS),
	PGD_GPA, PUD_GPA, PMD_GPA, PTE_GPA, INFO_GPA, PROGRAM_GPA, PROGRAM_RAM(HASHES, 0),
	PROGRAM_RAM(NAMES_1, 0), PROGRAM_RAM(DYNAMIC, 0), PROGRAM_RAM(CODE, 0),
	PROGRAM_RAM(TABLE, 0), PROGRAM_RAM(RULES_1, 0),
};

#define MAX_CHANGES	256

struct change {
	u64	gpa;
	u8	byte;
};

static void init(void)
{
	for (size_t i = 0; i < NR_GUESTS; i++) {
		fake_ram = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (fake_ram == MAP_FAILED)
			abort();
		if (i < NR_X86)
			fake__make_contents(&(const struct fake_kernel){
				.kallsyms = i / 2, .old = i % 2 });
		else
			fake__make_arm64(&fake_arm64_guests[i - NR_X86]);
		fake__make_program();
		guests[i].ram = fake_ram;
		guests[i].btf_size = btf_size;
		for (size_t j = 0; j < LOW_SIZE; j++) {
			if (fake_ram[j])
				guests[i].present[j / PAGE] = true;
		}
	}
}

static no_coverage void check_text(const char *name, const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if ((text[i] >= ' ' && text[i] <= '~') || text[i] == '\n' || text[i] == '\t')
			continue;
		fprintf(stderr, "fuzz_guest_memory: %s has a character 0x%02x\n", name,
			(u8)text[i]);
		abort();
	}
}

/* Write the program that the guest has in its page cache; its names must be text. */
static no_coverage void write_program(struct guest_kernel *kernel)
{
	struct btf *btf = guest_btf__read(kernel);
	struct guest_page_cache cache;
	struct build_id build_id;
	char *text = NULL;
	size_t size = 0;
	u64 content;
	FILE *file;

	if (btf && guest_page_cache__init(&cache, kernel->mem, btf, VMEMMAP)) {
		file = open_memstream(&text, &size);
		guest_memory__refresh(kernel->mem);
		if (guest_program__read_build_id(&cache, MAPPING(0), &build_id))
			guest_program__write(&cache, MAPPING(0), &build_id, file, &content);
		fclose(file);
		if (size) {
			const Elf64_Ehdr *ehdr = (void *)text;
			const Elf64_Shdr *names = (void *)&text[ehdr->e_shoff];

			while (names->sh_type != SHT_STRTAB)
				names++;
			for (u64 i = 0; i < names->sh_size; i++) {
				if (text[names->sh_offset + i])
					check_text("a program", &text[names->sh_offset + i], 1);
			}
		}
		free(text);
	}
	btf__free(btf);
}

static no_coverage void look_at_guest(void)
{
	char *kallsyms_text, *modules_text, *tasks_text, *maps_text;
	size_t kallsyms_size, modules_size, tasks_size, maps_size;
	FILE *kallsyms, *modules, *vmlinux, *tasks_file, *maps_file;
	struct guest_kernel *kernel;
	struct guest_task_writer *tasks;
	const char *why_not;

	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	if (!kernel)
		return;

	kallsyms = open_memstream(&kallsyms_text, &kallsyms_size);
	modules = open_memstream(&modules_text, &modules_size);
	tasks_file = open_memstream(&tasks_text, &tasks_size);
	maps_file = open_memstream(&maps_text, &maps_size);
	vmlinux = fopen("/dev/null", "w");
	for (size_t i = 0; i < kernel->nr_symbols; i++)
		fprintf(kallsyms, "%c %s\n", kernel->symbols[i].type, kernel->symbols[i].name);
	/* Build-ids are read, but can't be written, as /dev/null is no directory. */
	guest_modules__write(kernel, modules, kallsyms, "/dev/null", false);
	guest_vmlinux__write(kernel, vmlinux);
	/* Programs are not written there. */
	tasks = guest_task_writer__new(kernel, tasks_file, maps_file, "/dev/null");
	if (tasks)
		guest_task_writer__update(tasks, 0);
	guest_task_writer__delete(tasks);
	write_program(kernel);
	fclose(kallsyms);
	fclose(modules);
	fclose(tasks_file);
	fclose(maps_file);
	fclose(vmlinux);
	check_text("kallsyms", kallsyms_text, kallsyms_size);
	check_text("modules", modules_text, modules_size);
	check_text("tasks", tasks_text, tasks_size);
	check_text("maps", maps_text, maps_size);
	check_text("the release", kernel->info.release, strlen(kernel->info.release));
	free(kallsyms_text);
	free(modules_text);
	free(tasks_text);
	free(maps_text);
	guest_kernel__delete(kernel);
}

/*
 * The first byte chooses a guest.  The rest is a list of changes.  Each has a place, an offset
 * of two bytes, the number of new bytes, and these bytes.
 */
no_coverage int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct change changes[MAX_CHANGES];
	size_t nr = 0, i;

	if (!guests[0].ram)
		init();
	if (!size)
		return 0;

	guest = &guests[*data++ % NR_GUESTS];
	fake_ram = guest->ram;
	for (size--; size > 4 && nr < MAX_CHANGES; ) {
		size_t place = data[0] % ARRAY_SIZE(places);
		size_t len = min((size_t)(data[3] & 15), size - 4);
		u16 offset = data[1] | data[2] << 8;

		for (i = 0; i < len && nr < MAX_CHANGES; i++) {
			u64 at = places[place];
			u64 gpa = fake__offset(at + (offset & (at < KERNEL ? 0xfff : 0x1fff)) + i);

			changes[nr++] = (struct change){ gpa, fake_ram[gpa] };
			fake_ram[gpa] = data[4 + i];
		}
		data += 4 + len;
		size -= 4 + len;
	}

	look_at_guest();
	while (nr--)
		fake_ram[changes[nr].gpa] = changes[nr].byte;
	return 0;
}
