/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * By PVH, a guest starts in 32-bit protected mode without paging.  Switch to 64-bit mode, and call
 * main().  The lowest GiB is mapped to itself.
 */

#define XEN_ELFNOTE_PHYS32_ENTRY	18

#define CR4_PAE				(1 << 5)
#define CR0_PG				(1 << 31)
#define MSR_EFER			0xc0000080
#define EFER_LME			(1 << 8)

/* Page-table entries: present and writable.  LARGE entries map 2 MiB. */
#define TABLE				0x03
#define LARGE				0x83

#define CODE_SELECTOR			0x08

	.section .note.pvh, "a", @note
	.align 4
	.long 4, 8, XEN_ELFNOTE_PHYS32_ENTRY
	.asciz "Xen"
	.quad pvh_start

	.text
	.code32
	.globl pvh_start
	.type pvh_start, @function
pvh_start:
	cld
	movl $page_map, %eax
	movl %eax, %cr3
	movl %cr4, %eax
	orl $CR4_PAE, %eax
	movl %eax, %cr4
	movl $MSR_EFER, %ecx
	rdmsr
	orl $EFER_LME, %eax
	wrmsr
	movl %cr0, %eax
	orl $CR0_PG, %eax
	movl %eax, %cr0
	lgdt gdt_pointer
	ljmp $CODE_SELECTOR, $start
	.size pvh_start, . - pvh_start

	.code64
	.type start, @function
start:
	xorl %eax, %eax
	movl %eax, %ds
	movl %eax, %es
	movl %eax, %ss
	movl $stack_end, %esp
	/* A frame pointer of zero marks the outermost frame. */
	xorl %ebp, %ebp
	call main
	ud2
	.size start, . - start

	.section .rodata
	.align 8
gdt:
	.quad 0
	/* Code: 64 bits, present, ring 0. */
	.quad 0x00209a0000000000
gdt_pointer:
	.word . - gdt - 1
	.long gdt

	/* Page tables are writable, as the CPU sets Accessed and Dirty bits in their entries. */
	.data
	.align 4096
page_map:
	.quad directory_pointers + TABLE
	.skip 4096 - 8
directory_pointers:
	.quad directory + TABLE
	.skip 4096 - 8
directory:
	.rept 512
	.quad ((. - directory) << 18) + LARGE
	.endr

	.bss
	.align 16
	.skip 4096
stack_end:

	.section .note.GNU-stack, "", @progbits
