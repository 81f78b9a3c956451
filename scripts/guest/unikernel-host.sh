#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A job for the patched host: boot a guest that is a single program, not Linux; sample it, report.
set -u
out=/run/shared
# The caller sets $UNIKERNEL if the program lies elsewhere.
unikernel=${UNIKERNEL:-$BUILD_SELFTESTS/guest_callchain/unikernel}

fail()
{
	echo "$*"
	exit 1
}

# perf takes the names of a guest's kernel from here; a unikernel has no /proc to copy.
nm "$unikernel" > $out/kallsyms || fail "the unikernel has no symbols"

qemu-system-x86_64 -M microvm,acpi=off -accel kvm -cpu host -m 64M -name guest=unikernel \
	-nodefaults -no-user-config -display none -no-reboot -serial file:$out/guest.log \
	-kernel "$unikernel" &
vm=$!
# Kill the VMM at the end: the host waits until no process has this job's output open.
trap 'kill $vm 2>/dev/null' EXIT

tries=0
until grep -qs "at work" $out/guest.log; do
	kill -0 $vm 2>/dev/null || fail "the unikernel died before it was at work"
	tries=$((tries + 1))
	[ $tries -lt 300 ] || fail "the unikernel did not get to work"
	sleep 0.2
done
echo "The unikernel is at work."

# QEMU's threads come and go: perf record gives up if one of them ends while perf lists them.
tries=1
until perf kvm --guest --guestkallsyms=$out/kallsyms record -e cpu-clock -F 999 --call-graph fp \
	-p $vm -o perf.data.guest --proc-map-timeout=20000 -- sleep 10 > $out/record.log 2>&1
do
	status=$?
	[ $tries -lt 3 ] || fail "perf record ended with status $status, see record.log"
	tries=$((tries + 1))
done
kill -0 $vm 2>/dev/null || fail "the unikernel died as it was sampled"
# An uncached share can't take perf's writes, which come from its ring buffer: copy the file.
cp perf.data.guest $out/

perf kvm --guest --guestkallsyms=$out/kallsyms -i perf.data.guest report --stdio \
	> $out/report.txt 2> $out/report.log || fail "perf report failed, see report.log"
perf script --guestkallsyms=$out/kallsyms -i perf.data.guest -F comm,misc,ip,sym \
	> $out/script.txt 2> $out/script.log || fail "perf script failed, see script.log"
