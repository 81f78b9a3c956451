// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program for guests, without frame pointers and with the C library of the distribution.  Its
 * call paths are known: ten calls deep, a callback of the C library, a signal handler, a thread.
 * spin() is the innermost function of all of them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* Keep the compiler from tail calls: something is left to do after each call. */
#define KEEP_FRAME()	do { asm volatile(""); } while (0)

#define noinline	__attribute__((noinline))

#define ITERATIONS	200000

noinline void spin(void)
{
	for (unsigned int i = 0; i < ITERATIONS; i++)
		asm volatile("");
}

/* Functions of which each has a frame of another size. */
#define DEEP(name, callee, size)			\
	noinline void name(void)			\
	{						\
		char frame[size];			\
							\
		asm volatile("" : : "r" (frame) : "memory"); \
		callee();				\
		KEEP_FRAME();				\
	}

DEEP(deep10, spin, 8)
DEEP(deep9, deep10, 100)
DEEP(deep8, deep9, 24)
DEEP(deep7, deep8, 500)
DEEP(deep6, deep7, 40)
DEEP(deep5, deep6, 16)
DEEP(deep4, deep5, 200)
DEEP(deep3, deep4, 72)
DEEP(deep2, deep3, 8)
DEEP(deep1, deep2, 300)

noinline int compare(const void *a, const void *b)
{
	const int *x = a, *y = b;

	spin();
	return *x - *y;
}

noinline void sort(void)
{
	int numbers[] = { 3, 1, 2 };

	qsort(numbers, sizeof(numbers) / sizeof(*numbers), sizeof(*numbers), compare);
	KEEP_FRAME();
}

noinline void handler(int signal)
{
	(void)signal;
	spin();
	KEEP_FRAME();
}

noinline void interrupt(void)
{
	raise(SIGUSR1);
	KEEP_FRAME();
}

/* It isn't exported: its name is in the debug information only. */
static noinline void hidden(void)
{
	spin();
	KEEP_FRAME();
}

noinline void *in_thread(void *arg)
{
	for (;;) {
		hidden();
		KEEP_FRAME();
	}
	return arg;
}

int main(void)
{
	pthread_t thread;

	signal(SIGUSR1, handler);
	if (pthread_create(&thread, NULL, in_thread, NULL))
		return 1;
	for (;;) {
		deep1();
		sort();
		interrupt();
	}
}
