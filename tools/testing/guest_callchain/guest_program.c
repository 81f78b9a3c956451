// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program for guests, with frame pointers and no C library: functions that call each
 * other, and the innermost of them the kernel.  Whoever samples the guest knows what its
 * chains must be.
 */

#define noinline	__attribute__((noinline))

static char buffer[64 * 1024];

/* Make the compiler set up a frame, in leaf functions too, and call where it could jump. */
#define KEEP_FRAME()	do { asm volatile("" : : "r" (__builtin_frame_address(0))); } while (0)

static noinline void transfer(int from, int to)
{
	ssize_t n = read(from, buffer, sizeof(buffer));

	write(to, buffer, n);
	KEEP_FRAME();
}

static noinline void transfer_many(int from, int to)
{
	int i;

	for (i = 0; i < 16; i++)
		transfer(from, to);
	KEEP_FRAME();
}

static noinline void work(int from, int to)
{
	transfer_many(from, to);
	KEEP_FRAME();
}

int main(void)
{
	int from = open("/dev/zero", O_RDONLY), to = open("/dev/null", O_WRONLY);

	if (from < 0 || to < 0)
		return 1;
	for (;;)
		work(from, to);
}
