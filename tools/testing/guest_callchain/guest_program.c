// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program for guests, with frame pointers.  It is built twice: with a C library, and without.
 * Its functions call each other, and the innermost one calls the kernel, so that tests that
 * sample the guest know what its callchains must be.  With one argument, it runs ten tasks that
 * take turns, each with a known share of user mode's time.  With two arguments, the paths of a
 * kernel and of an initrd, it boots these by kexec.
 */
#include <errno.h>
#include <linux/reboot.h>
#include <sys/reboot.h>
#include <sys/syscall.h>

#define noinline	__attribute__((noinline))

static char buffer[64 * 1024];

/* Make the compiler set up a frame, also in leaf functions, and keep it from tail calls. */
#define KEEP_FRAME()	do { asm volatile("" : : "r" (__builtin_frame_address(0))); } while (0)

/*
 * A word that is only in a register, which the kernel saves on its stack: this program's file
 * has the word's complement.  A user of the host that may not read the guest must not find the
 * word.
 */
#define PLANTED		0x7a9d5e3c1b08f642UL

static noinline void transfer(int from, int to)
{
	register unsigned long planted asm("r12") = ~PLANTED;
	ssize_t n;

	/* Keep the compiler from computing the word at build time.  Calls preserve R12. */
	asm volatile("" : "+r" (planted));
	planted = ~planted;
	asm volatile("" : "+r" (planted));
	n = read(from, buffer, sizeof(buffer));
	write(to, buffer, n);
	asm volatile("" : : "r" (planted));
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

#define NR_TASKS	10
/* Iterations of an empty loop; few, so that a few seconds have many turns. */
#define UNIT		50000

/* Each time it is this task's turn, work for @nr units. */
static int run_task(int nr, int from, int to)
{
	const char comm[] = { 't', 'a', 's', 'k', '0' + nr - 1 };
	int fd = open("/proc/self/comm", O_WRONLY);
	char turn;
	int i;

	if (fd < 0 || write(fd, comm, sizeof(comm)) != sizeof(comm))
		return 1;
	while (read(from, &turn, 1) == 1) {
		for (i = 0; i < nr * UNIT; i++)
			asm volatile("");
		write(to, &turn, 1);
	}
	return 1;
}

/* Run the tasks in turns: task0 works for one unit, task1 for two, and task9 for ten. */
static int run_tasks(void)
{
	int pipes[NR_TASKS][2], i;

	for (i = 0; i < NR_TASKS; i++) {
		if (pipe(pipes[i]))
			return 1;
	}
	for (i = 0; i < NR_TASKS; i++) {
		if (!fork())
			return run_task(i + 1, pipes[i][0], pipes[(i + 1) % NR_TASKS][1]);
	}
	write(pipes[0][1], "", 1);
	for (;;)
		sleep(1000);
}

/* Boot a kernel with the running kernel's command line.  Return only if that fails: errno. */
static int boot(const char *kernel, const char *initrd)
{
	int kernel_fd = open(kernel, O_RDONLY), initrd_fd = open(initrd, O_RDONLY);
	ssize_t n = read(open("/proc/cmdline", O_RDONLY), buffer, sizeof(buffer));

	if (n <= 0)
		return errno;
	/* The string must end with a zero: replace the line feed. */
	buffer[n - 1] = 0;
	if (!syscall(__NR_kexec_file_load, kernel_fd, initrd_fd, n, buffer, 0))
		reboot(LINUX_REBOOT_CMD_KEXEC);
	return errno;
}

int main(int argc, char *argv[])
{
	int from = open("/dev/zero", O_RDONLY), to = open("/dev/null", O_WRONLY);

	if (from < 0 || to < 0)
		return 1;
	if (argc > 2)
		return boot(argv[1], argv[2]);
	if (argc > 1)
		return run_tasks();
	for (;;)
		work(from, to);
}
