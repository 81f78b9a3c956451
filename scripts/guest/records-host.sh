#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A job for a host with our patches or without: record with $PERF in several ways, while the
# program $GUEST runs a guest, and while no guest runs.  Write /run/shared/NAME.data.
set -u

fail()
{
	echo "$*"
	exit 1
}

# The shell that is recorded expands $n.
# shellcheck disable=SC2016
# Record in one way, named $1: first the host's work alone, then a guest's.
record()
{
	name=$1
	shift
	"$PERF" record -q -e cpu-clock -F 999 -o "/run/$name-host.data" "$@" -- \
		sh -c 'n=0; while [ $n -lt 20000 ]; do n=$((n + 1)); done' || fail "$name failed"
	"$PERF" record -q -e cpu-clock -F 999 -o "/run/$name-guest.data" "$@" -- \
		"$GUEST" -m off -i cpu-clock -d 5 -t 1500 > /dev/null || fail "$name failed with a guest"
	# An uncached share can't take perf's writes, which come from its ring buffer: copy files.
	cp "/run/$name-host.data" "/run/$name-guest.data" /run/shared/
}

record g -g
record a-g -a -g
record defer --call-graph fp,defer
record dwarf --call-graph dwarf,1024
