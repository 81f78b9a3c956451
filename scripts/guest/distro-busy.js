// SPDX-License-Identifier: GPL-2.0-only
// What a JIT compiler compiles in test-distro's guests: busy() must have a name there.
'use strict';

function busy(count) {
	let sum = 0;

	for (let i = 0; i < count; i++)
		sum += i % 7;
	return sum;
}

for (;;)
	busy(1000000);
