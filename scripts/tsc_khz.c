// SPDX-License-Identifier: GPL-2.0-only
/*
 * Print the frequency of this machine's TSC in kHz.
 *
 * The emulated host sees the TSC of this machine.  It could measure the TSC only
 * with the PIT, and that fails whenever the emulator is preempted.
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
