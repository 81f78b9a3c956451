// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzz tools/perf/util/guest-memory.c, and the code that uses it to read a guest, under libFuzzer.
 *
 * The guests are those of perf's test; the input changes bytes of one of them.  AddressSanitizer
 * and UBSan look for errors.  All output but the vmlinux must be text that a terminal can show.
 */
#include <errno.h>
#include <fcntl.h>
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
#include "guest-files.h"
#include "guest-kernel.h"
#include "guest-memory.h"
#include "guest-memslots.h"
#include "guest-modules.h"
#include "guest-page-cache.h"
#include "guest-policy.h"
#include "guest-program.h"
#include "guest-sandbox.h"
#include "guest-task-writer.h"
#include "guest-vmlinux.h"

/* Guests with each layout of kallsyms, each with modules as before and since Linux 6.4. */
#define NR_USUAL	(2 * NR_KALLSYMS)

/* As Linux 5.10 and 4.18: perf has to search for kallsyms. */
static const struct fake_kernel old_kernels[] = {
	{ .kallsyms = FROM_BASE_BUT_PERCPU, .nr_symbols = 300, .old = true, .list = true,
	  .no_header = true, .no_top = true },
	{ .kallsyms = FROM_BASE_BUT_PERCPU, .nr_symbols = 300, .wide = true, .old = true,
	  .list = true, .types = IN_INFO, .no_header = true, .no_top = true, .radix = true },
};

#define NR_X86		(NR_USUAL + ARRAY_SIZE(old_kernels))
#define NR_GUESTS	(NR_X86 + ARRAY_SIZE(fake_arm64_guests) - 1)

/* For functions that are not under test: their coverage takes time and can't guide libFuzzer. */
#define no_coverage	__attribute__((no_sanitize("coverage")))

/* One guest of each kind; @present is true for its pages that have contents. */
static struct {
	u8	*ram;
	u64	btf_size;
	u64	page_bytes;
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

#define process_vm_readv	fuzz_readv
#define pread			fuzz_pread
#include "guest-memory.c"

/* The files that perf has written; what comes after the last of them is lost. */
static struct {
	char	path[PATH_MAX];
	char	*text;
	size_t	size;
} files[16];

static size_t nr_files;

static void check_path(const char *path);

static no_coverage FILE *new_file(const char *path)
{
	size_t i = nr_files;

	check_path(path);

	if (i == ARRAY_SIZE(files))
		return fopen("/dev/null", "w");
	nr_files++;
	snprintf(files[i].path, PATH_MAX, "%s", path);
	return open_memstream(&files[i].text, &files[i].size);
}

no_coverage FILE *guest_files__create(const char *dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return new_file(path);
}

bool guest_files__close(FILE *file)
{
	return file && !fclose(file);
}

/* Of the VMM's files, only its mappings are read as text. */
no_coverage FILE *guest_sandbox__fopen(const char *path, enum guest_request_op how)
{
	static char map[64];

	if (how != GUEST_READ_FILE)
		return new_file(path);
	snprintf(map, sizeof(map), "%lx-%lx rw-p\n", (long)guest->ram, (long)guest->ram + LOW_SIZE);
	return fmemopen(map, strlen(map), "r");
}

int guest_sandbox__open(const char *path, enum guest_request_op how)
{
	return open(path, O_RDONLY | O_CLOEXEC);
}

no_coverage int guest_sandbox__mkdir(const char *path)
{
	check_path(path);
	return 0;
}

no_coverage int guest_sandbox__rename(const char *path, const char *to)
{
	check_path(path);
	check_path(to);
	return 0;
}

no_coverage int guest_sandbox__unlink(const char *path)
{
	check_path(path);
	return 0;
}

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
	CSS_SET(0), CGROUP(0), CGROUP_DIR(0), CGROUP_NAME(0), FILES, FDT, FDS, OWN_PID,
	FILE_OF(JIT_FILE), DENTRY(JIT_DENTRY), JIT_CACHE, JIT_PAGE(0), VDSO_IMAGE, OLD_TABLES,
	OLD_TABLES + 0x1000, OLD_TABLES + 0x2000,
	PGD_GPA, PUD_GPA, PMD_GPA, PTE_GPA, INFO_GPA, PROGRAM_GPA, PROGRAM_RAM(HASHES, 0),
	PROGRAM_RAM(NAMES_1, 0), PROGRAM_RAM(DYNAMIC, 0), PROGRAM_RAM(CODE, 0),
	PROGRAM_RAM(TABLE, 0), PROGRAM_RAM(RULES_1, 0),
};

#define MAX_CHANGES	256

#define MODULE_STATE_COMING	1

/* Where perf writes the guest's files. */
#define TOP		"/top"

/* What a JIT compiler in the guest has written. */
static const char jit_map[] = "400000 10 first\n400010 20 second\n";

struct change {
	u64	gpa;
	u8	byte;
};

/* What the input changes: the first half before perf looks at the guest, the rest between looks. */
static struct change changes[MAX_CHANGES];
static size_t nr_changes;

static void make_guest(size_t i)
{
	const struct fake_arm64 *arm64 = i < NR_X86 ? NULL : &fake_arm64_guests[i - NR_X86];

	if (arm64)
		fake__make_arm64(arm64);
	else if (i < NR_USUAL)
		fake__make_contents(&(const struct fake_kernel){
			.kallsyms = i / 2, .old = i % 2 });
	else
		fake__make_contents(&old_kernels[i - NR_USUAL]);
	/* The rest is made for pages of 4 KiB. */
	if (arm64 && arm64->shift != 12)
		return;

	if (arm64) {
		fake__make_arm64_program(i % 2 ? 0x600 : 0, i % 3);
		fake__make_vdso();
		fake__move_vdso();
	} else {
		fake__make_program();
	}
	fake__make_jit("perf-3.map", jit_map, strlen(jit_map));
	/* init() takes a page that is all zeroes for one without contents. */
	fake__put_u64(FDS - sizeof(u64), 1);
}

static void init(void)
{
	for (size_t i = 0; i < NR_GUESTS; i++) {
		fake_ram = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (fake_ram == MAP_FAILED)
			abort();
		make_guest(i);
		guests[i].ram = fake_ram;
		guests[i].btf_size = btf_size;
		guests[i].page_bytes = i < NR_X86 ? PAGE :
				       1UL << fake_arm64_guests[i - NR_X86].shift;
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

/* The names that an ELF file has of a guest's program must be text. */
static no_coverage void check_program(const char *elf, size_t size)
{
	const Elf64_Ehdr *ehdr = (void *)elf;
	const Elf64_Shdr *names;

	if (size < sizeof(*ehdr))
		return;
	names = (void *)&elf[ehdr->e_shoff];
	while (names->sh_type != SHT_STRTAB)
		names++;
	for (u64 i = 0; i < names->sh_size; i++) {
		if (elf[names->sh_offset + i])
			check_text("a program", &elf[names->sh_offset + i], 1);
	}
}

/* Files have the names that perf or its checks give them, whatever the guest's names are. */
static no_coverage void check_path(const char *path)
{
	size_t len = strlen(path);

	check_text("a path", path, len);
	if (strncmp(path, TOP "/", strlen(TOP "/")) || strstr(path, "/../") ||
	    (len > 3 && !strcmp(&path[len - 3], "/.."))) {
		fprintf(stderr, "fuzz_guest_memory: perf would write %s\n", path);
		abort();
	}
}

static no_coverage void check_file(const char *path, const char *text, size_t size)
{
	if (!strncmp(path, TOP "/programs/", strlen(TOP "/programs/")) && !strstr(path, ".map"))
		check_program(text, size);
	else if (strncmp(path, TOP "/boot/", strlen(TOP "/boot/")) &&
		 strncmp(path, TOP "/sys/", strlen(TOP "/sys/")))
		check_text(path, text, size);
}

static no_coverage void check_files(void)
{
	for (size_t i = 0; i < nr_files; i++) {
		check_file(files[i].path, files[i].text, files[i].size);
		free(files[i].text);
	}
	nr_files = 0;
}

/* The page cache has a program whether or not a task runs it. */
static no_coverage void write_program(struct guest_kernel *kernel)
{
	const struct guest_vmcoreinfo *info = &kernel->info;
	u64 vmemmap = info->is_arm64 ? info->vmemmap -
		      ((s64)info->phys_offset >> info->page_shift) * STRUCT_PAGE : VMEMMAP;
	struct btf *btf = guest_btf__read(kernel);
	struct guest_page_cache cache;
	struct build_id build_id;
	u64 content;
	FILE *file;

	if (btf && guest_page_cache__init(&cache, kernel, btf, vmemmap)) {
		file = new_file(TOP "/programs/0");
		guest_memory__refresh(kernel->mem);
		if (guest_program__read_build_id(&cache, MAPPING(0), &build_id))
			guest_program__write(&cache, MAPPING(0), &build_id, file, &content);
		fclose(file);
	}
	btf__free(btf);
}

static bool changed_late;

static no_coverage void exchange_one(struct change *change)
{
	u8 byte = fake_ram[change->gpa];

	fake_ram[change->gpa] = change->byte;
	change->byte = byte;
}

/* Make some of the changes; each then has the byte that was there. */
static no_coverage void exchange(size_t from, size_t to)
{
	while (from < to)
		exchange_one(&changes[from++]);
}

static no_coverage void exchange_back(size_t from, size_t to)
{
	while (from < to)
		exchange_one(&changes[--to]);
}

/* A module is being loaded. */
static no_coverage void look_at_inits(struct guest_kernel *kernel, FILE *inits)
{
	u8 *state = &fake_ram[fake__offset(MODULE(0))], usual = *state;

	*state = MODULE_STATE_COMING;
	guest_memory__refresh(kernel->mem);
	if (guest_modules__are_loaded(kernel, 1))
		guest_modules__write_inits(kernel, inits, TOP, true, 1);
	*state = usual;
}

static no_coverage void look_at_guest(void)
{
	FILE *kallsyms, *modules, *inits, *vmlinux, *tasks_file, *maps_file;
	struct guest_kernel *kernel;
	struct guest_task_writer *tasks;
	const char *why_not;

	kernel = guest_kernel__find(getpid(), NULL, &why_not);
	if (!kernel)
		return;

	kallsyms = new_file(TOP "/kallsyms");
	modules = new_file(TOP "/modules");
	inits = new_file(TOP "/inits");
	tasks_file = new_file(TOP "/tasks");
	maps_file = new_file(TOP "/maps");
	vmlinux = fopen("/dev/null", "w");
	for (size_t i = 0; i < kernel->nr_symbols; i++)
		fprintf(kallsyms, "%c %s\n", kernel->symbols[i].type, kernel->symbols[i].name);
	guest_modules__write(kernel, modules, kallsyms, TOP, true);
	look_at_inits(kernel, inits);
	guest_vmlinux__write(kernel, vmlinux);
	tasks = guest_task_writer__new(kernel, tasks_file, maps_file, TOP);
	if (tasks)
		guest_task_writer__update(tasks, 0);
	exchange(nr_changes / 2, nr_changes);
	changed_late = true;
	if (tasks) {
		guest_task_writer__look_for_new(tasks, 1);
		guest_task_writer__update(tasks, 2);
		guest_task_writer__finish(tasks);
	}
	guest_task_writer__delete(tasks);
	write_program(kernel);
	fclose(kallsyms);
	fclose(modules);
	fclose(inits);
	fclose(tasks_file);
	fclose(maps_file);
	fclose(vmlinux);
	check_files();
	check_text("the release", kernel->info.release, strlen(kernel->info.release));
	guest_kernel__delete(kernel);
}

/*
 * The first byte chooses a guest.  The rest is a list of changes.  Each has a place, an offset
 * of two bytes, the number of new bytes, and these bytes.
 */
no_coverage int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	if (!guests[0].ram)
		init();
	if (!size)
		return 0;

	guest = &guests[*data++ % NR_GUESTS];
	fake_ram = guest->ram;
	page_bytes = guest->page_bytes;
	nr_changes = 0;
	for (size--; size > 4 && nr_changes < MAX_CHANGES; ) {
		size_t place = data[0] % ARRAY_SIZE(places);
		size_t len = min((size_t)(data[3] & 15), size - 4);
		u16 offset = data[1] | data[2] << 8;

		for (size_t i = 0; i < len && nr_changes < MAX_CHANGES; i++) {
			u64 at = places[place];
			u64 gpa = fake__offset(at + (offset & (at < KERNEL ? 0xfff : 0x1fff)) + i);

			changes[nr_changes++] = (struct change){ gpa, data[4 + i] };
		}
		data += 4 + len;
		size -= 4 + len;
	}

	exchange(0, nr_changes / 2);
	changed_late = false;
	look_at_guest();
	/* Undo them in reverse order: several may be at one place. */
	if (changed_late)
		exchange_back(nr_changes / 2, nr_changes);
	exchange_back(0, nr_changes / 2);
	return 0;
}
