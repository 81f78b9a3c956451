#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A job for the patched host: measure the CPU time that guests of one vCPU each, or processes,
# lose while perf record samples the whole host.  Each line of output has: guests or processes,
# their number, how they are sampled, and the CPU time in nanoseconds that each took for the same
# work, on average.
set -eu
bench=$BUILD_SELFTESTS/guest_callchain/guest_callchain_bench
out=/run/whole-host

# The script runs itself with these arguments, also under perf: do the work $2 times at the same
# time, with the benchmark's option $3.
if [ "${1-}" = work ]; then
	pids=
	for i in $(seq "$2"); do
		# shellcheck disable=SC2086
		"$bench" ${3-} -m off -t 0 -w 10000000 -d 16 > "$out/$i" &
		pids="$pids $!"
	done
	for pid in $pids; do
		wait "$pid"
	done
	exit
fi

# $1: guests or processes; $2: how many; $3: how they are sampled; the rest: the command for that.
each()
{
	who=$1
	number=$2
	way=$3
	shift 3
	rm -rf "$out"
	mkdir "$out"
	target=
	[ "$who" = guests ] || target=-H
	[ $# = 0 ] || set -- "$@" -q -a -e cpu-clock -c 250000 -o /tmp/whole-host.data --
	"$@" sh "$REPO/scripts/guest/whole-host.sh" work "$number" $target
	# The benchmark's other lines have no results.
	cat "$out"/* | sed -n '/^{/s/.*"cpu_ns": \([0-9]*\),.*/\1/p' |
		awk -v who="$who" -v number="$number" -v way="$way" \
		    '{ sum += $1 } END { if (NR != number) exit 1; print who, number, way, sum / NR }'
}

for number in 1 4 16; do
	each guests "$number" off
	each guests "$number" ip perf record
	each guests "$number" callchain perf kvm --guest record --call-graph fp
	each processes "$number" off
	each processes "$number" callchain perf record --call-graph fp
done
