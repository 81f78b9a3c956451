// SPDX-License-Identifier: GPL-2.0-only
/*
 * Print how fast this machine's TSC counts, in kHz.
 *
 * An emulated host has the TSC of this machine, and no clock to
 * measure it with but the PIT, which fails whenever the emulator is preempted.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

int main(void)
{
	uint64_t ns = now_ns(), tsc = __rdtsc();
	uint64_t ns_end, tsc_end;

	do {
		ns_end = now_ns();
		tsc_end = __rdtsc();
	} while (ns_end - ns < 50000000);

	printf("%llu\n", (unsigned long long)((tsc_end - tsc) * 1000000 / (ns_end - ns)));
	return 0;
}
