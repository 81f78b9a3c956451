// SPDX-License-Identifier: GPL-2.0-only
/*
 * A unikernel: all of a guest is this one program, in ring 0, and no Linux.  Whoever samples
 * it knows what its chains must be, and what share of the samples each of them has.
 */

#define noinline	__attribute__((noinline))

#define COM1		0x3f8
#define COM1_STATUS	(COM1 + 5)
#define COM1_IDLE	0x20

/* The masks of the two PICs. */
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
 * Work for so many percent of the time: those of all callers add up to 100.  It is the same
 * loop for all, so that nothing but their chains tells them apart, and that a turn takes each
 * of them the same time.  A second has thousands of rounds, and calls take next to nothing.
 */
static noinline void spin(int percent)
{
	int turns = percent * 500;

	/* GCC gives functions that call no other a frame only if it is asked for. */
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
	 * Nothing can handle an interrupt here, so none may come.  They are enabled all the same:
	 * some emulated hosts don't leave a guest that has disabled them.
	 */
	write_port(PIC1_MASK, 0xff);
	write_port(PIC2_MASK, 0xff);
	asm volatile("sti");
	print("at work\n");
	for (;;)
		serve();
}
