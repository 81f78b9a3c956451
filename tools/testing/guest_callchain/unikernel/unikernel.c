// SPDX-License-Identifier: GPL-2.0-only
/*
 * A unikernel: a guest that is only this program, in ring 0, without Linux.  Tests that sample it
 * know what its callchains must be, and each callchain's share of the samples.
 */

#define noinline	__attribute__((noinline))

#define COM1		0x3f8
#define COM1_STATUS	(COM1 + 5)
#define COM1_IDLE	0x20

/* The I/O ports of the two PICs' masks. */
#define PIC1_MASK	0x21
#define PIC2_MASK	0xa1

static inline void write_port(unsigned short port, unsigned char value)
{
	asm volatile("outb %0, %1" : : "a" (value), "Nd" (port));
}

static inline unsigned char read_port(unsigned short port)
{
	unsigned char value;

	asm volatile("inb %1, %0" : "=a" (value) : "Nd" (port));
	return value;
}

static void print(const char *text)
{
	for (; *text; text++) {
		while (!(read_port(COM1_STATUS) & COM1_IDLE))
			;
		write_port(COM1, *text);
	}
}

/*
 * Work for @percent of the time; the callers' percentages add up to 100.  All callers use the same
 * loop: only their callchains tell them apart, and an iteration takes the same time for each.  A
 * second has thousands of rounds of all callers, and the calls take next to no time.
 */
static noinline void spin(int percent)
{
	int turns = percent * 500;

	/* GCC gives a leaf function a frame only if it uses the stack, or the frame's address. */
	asm volatile("" : : "r" (__builtin_frame_address(0)));
	do {
		asm volatile("");
	} while (--turns);
}

static noinline void parse(void)
{
	spin(10);
}

static noinline void huffman(void)
{
	spin(20);
}

static noinline void match(void)
{
	spin(30);
}

static noinline void compress(void)
{
	match();
	huffman();
}

static noinline void checksum(void)
{
	spin(40);
}

static noinline void respond(void)
{
	checksum();
}

static noinline void serve(void)
{
	parse();
	compress();
	respond();
}

/* Called by boot.S. */
void main(void);

void main(void)
{
	/*
	 * This program can't handle interrupts, so mask them all in the PICs.  Enable them in the
	 * CPU anyway: on some emulated hosts, the host's interrupts don't end guest mode while
	 * the guest has interrupts disabled.
	 */
	write_port(PIC1_MASK, 0xff);
	write_port(PIC2_MASK, 0xff);
	asm volatile("sti");
	print("at work\n");
	for (;;)
		serve();
}
