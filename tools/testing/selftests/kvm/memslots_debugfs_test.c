// SPDX-License-Identifier: GPL-2.0-only
/*
 * A VM's list of memslots in debugfs must have those that userspace has created, and no others.
 * A list that is open must work even after the VM was closed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvm_util.h"
#include "test_util.h"

#define MAX_TEXT	4096
#define MAX_SLOTS	8
#define MAX_LINE	128

/* In the order in which they are created, which is not that of their addresses. */
static const struct {
	u32	slot;
	gpa_t	gpa;
	u64	npages;
	u32	flags;
} slots[] = {
	{ 1, 0x100000000, 4, 0 },
	{ 7, 0, 2, KVM_MEM_LOG_DIRTY_PAGES },
	{ 2, 0x40000000, 1, 0 },
};

static void read_list(FILE *file, char *text)
{
	size_t size;

	rewind(file);
	size = fread(text, 1, MAX_TEXT - 1, file);
	TEST_ASSERT(!ferror(file), "The list can't be read");
	text[size] = 0;
}

/* Compare the list with these lines, in any order. */
static void check_list(FILE *file, char lines[][MAX_LINE], unsigned int nr, const char *when)
{
	char text[MAX_TEXT], *line, *rest = text;
	unsigned int found = 0;

	read_list(file, text);
	while ((line = strsep(&rest, "\n")) && *line) {
		unsigned int i = 0;

		while (i < nr && strcmp(line, lines[i]))
			i++;
		TEST_ASSERT(i < nr, "%s, the list has \"%s\"", when, line);
		found++;
	}
	TEST_ASSERT(found == nr, "%s, the list has %u memslots of %u", when, found, nr);
}

static void describe(struct kvm_vm *vm, u32 as_id, u32 slot, char line[MAX_LINE])
{
	const struct kvm_userspace_memory_region2 *region = &memslot2region(vm, slot)->region;

	snprintf(line, MAX_LINE, "as_id=%u slot=%u gpa=0x%llx size=0x%llx hva=0x%llx flags=0x%x",
		 as_id, slot, region->guest_phys_addr, region->memory_size,
		 region->userspace_addr, region->flags);
}

#ifdef __x86_64__
/*
 * Make KVM create memslots of its own, on hosts where it needs some: for real mode on Intel CPUs
 * that have no unrestricted guests, and for the local APIC's page where the CPU virtualizes it.
 */
static void make_own_slots(struct kvm_vm *vm)
{
	int vcpu;

	vm_ioctl(vm, KVM_SET_TSS_ADDR, (void *)0xfffbd000UL);
	vm_ioctl(vm, KVM_CREATE_IRQCHIP, NULL);
	vcpu = __vm_ioctl(vm, KVM_CREATE_VCPU, NULL);
	TEST_ASSERT(vcpu >= 0, "KVM_CREATE_VCPU failed");
	close(vcpu);
}
#else
static void make_own_slots(struct kvm_vm *vm)
{
}
#endif

int main(void)
{
	struct kvm_vm *vm = vm_create_barebones();
	char lines[MAX_SLOTS][MAX_LINE], path[64];
	unsigned int nr = 0;
	struct stat st;
	FILE *list;

	snprintf(path, sizeof(path), "/sys/kernel/debug/kvm/%d-%d/memslots", getpid(), vm->fd);
	list = fopen(path, "re");
	__TEST_REQUIRE(list, "KVM lists no memslots in debugfs, or debugfs is not for you");

	TEST_ASSERT(!fstat(fileno(list), &st) && (st.st_mode & 07777) == 0400,
		    "The list's mode is %o", st.st_mode);
	check_list(list, lines, 0, "Without memslots");

	for (; nr < ARRAY_SIZE(slots); nr++) {
		u64 npages = vm_adjust_num_guest_pages(vm->mode, slots[nr].npages);

		vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS, slots[nr].gpa,
					    slots[nr].slot, npages, slots[nr].flags);
		describe(vm, 0, slots[nr].slot, lines[nr]);
	}
	check_list(list, lines, nr, "With memslots");

	/* Map the same memory in the address space of system management mode. */
	if (kvm_check_cap(KVM_CAP_MULTI_ADDRESS_SPACE) > 1) {
		void *hva = addr_gpa2hva(vm, slots[0].gpa);

		vm_set_user_memory_region(vm, 1 << 16 | 5, 0, 0xa0000, getpagesize(), hva);
		snprintf(lines[nr], MAX_LINE,
			 "as_id=1 slot=5 gpa=0xa0000 size=0x%x hva=0x%lx flags=0x0",
			 getpagesize(), (unsigned long)hva);
		check_list(list, lines, nr + 1, "With another address space");
		vm_set_user_memory_region(vm, 1 << 16 | 5, 0, 0xa0000, 0, hva);
	}

	make_own_slots(vm);
	check_list(list, lines, nr, "With memslots of KVM's");

	vm_mem_region_delete(vm, slots[--nr].slot);
	check_list(list, lines, nr, "Without the last one");

	/* An open file keeps the VM alive. */
	kvm_vm_release(vm);
	check_list(list, lines, nr, "After the VM was closed");
	fclose(list);
	TEST_ASSERT(access(path, F_OK), "The list is still there");
	return 0;
}
