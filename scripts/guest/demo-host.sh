#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of the demo, on the patched host: boot a guest, sample it, report.  The caller sets
# $whose: "debian" if the guest runs Debian's kernel, "own" if it runs the one built here.
# $symbols holds several options or none, $qemu several words, and the caller sets $whose.
# shellcheck disable=SC2086,SC2154
set -u
out=/run/shared
mkdir -p $out/guest

fail()
{
	echo "$*"
	exit 1
}

# The guest's machine and command line.  clearcpuid: 154 is XSAVE; if the host itself is emulated,
# the sizes of XSAVE's areas disagree.
case $(uname -m) in
x86_64)
	qemu="qemu-system-x86_64 -M microvm,acpi=off,rtc=on"
	arguments="console=ttyS0 reboot=t clearcpuid=154 compare=no" ;;
aarch64)
	qemu="qemu-system-aarch64 -M virt,gic-version=3"
	arguments="console=ttyAMA0 compare=no" ;;
*)
	fail "no guest is known for a host of $(uname -m)" ;;
esac

# Boot a guest with the arguments as further options of QEMU; set $vm to the PID of its VMM.
boot()
{
	$qemu -accel kvm -cpu host -m 256M -nodefaults -no-user-config -display none -no-reboot \
		-serial file:$out/guest.log -initrd $out/initrd.img \
		-append "$arguments quiet panic=-1" "$@" &
	vm=$!
	# Kill the VMM at the end: the host waits until no process has this job's output open.
	trap 'kill $vm 2>/dev/null' EXIT
}

# Wait until the command that the arguments hold succeeds: then the guest is at work.
wait_until()
{
	tries=0
	until "$@"; do
		kill -0 $vm 2>/dev/null || fail "the guest died, see guest.log"
		tries=$((tries + 1))
		[ $tries -lt 900 ] || fail "the guest did not get to work, see guest.log"
		sleep 0.2
	done
}

# A distribution's kernel needs no preparation: perf finds its symbols and its ORC tables in the
# guest's memory.  A kernel that was built here has frame pointers, and its guest shares a folder
# with the host.
if [ "$whose" = debian ]; then
	boot -kernel $out/kernel/vmlinuz
	wait_until grep -qs "at work" $out/guest.log
	symbols=
	# Give perf the file of our program, if the guest has it, but none of the kernel's or Debian's.
	files="--symfs $out/symbols"
else
	boot -kernel "$BUILD_KERNEL/arch/x86/boot/bzImage" \
		-fsdev local,id=guest,path=$out/guest,security_model=none \
		-device virtio-9p-device,fsdev=guest,mount_tag=guest
	wait_until [ -e $out/guest/working ]
	symbols="--guestkallsyms=$out/guest/kallsyms --guestmodules=$out/guest/modules"
	files=
fi
echo "The guest is at work."

# Let events read guests.
echo 3 > /proc/sys/kernel/perf_event_guest_callchain
# Use a hardware counter if there is one, else a timer.
event=cycles
perf stat -e cycles -- true 2>&1 | grep -q "not supported\|No supported" && event=cpu-clock

# QEMU's threads come and go: perf record gives up if one of them ends while perf lists them.
tries=1
until perf kvm --guest $symbols record -e $event -F 999 -g -p $vm \
	-o perf.data.guest --proc-map-timeout=20000 \
	-- sleep 10 > $out/record.log 2>&1
do
	status=$?
	[ $tries -lt 3 ] || fail "perf record ended with status $status, see record.log"
	tries=$((tries + 1))
done
kill $vm
# Print perf's message about how it takes callchains.
grep "^Callchains of guests" $out/record.log
# An uncached share can't take perf's writes, which come from its ring buffer: copy files.
cp -r perf.data.guest* $out/

perf kvm --guest $symbols -i perf.data.guest report $files --stdio \
	> $out/report.txt 2> $out/report.log || fail "perf report failed, see report.log"
perf kvm --guest $symbols -i perf.data.guest report --stats \
	> $out/stats.txt 2>> $out/report.log || fail "perf report failed, see report.log"
# Firefox Profiler can't read text with the field misc, which tells guest from host.
perf script $symbols $files -i perf.data.guest -F comm,pid,tid,time,event,ip,sym,dso \
	> $out/script.txt 2> $out/script.log || fail "perf script failed, see script.log"
perf script $symbols $files -i perf.data.guest -F comm,pid,tid,misc,ip,sym,dso \
	> $out/samples.txt 2>> $out/script.log || fail "perf script failed, see script.log"
perf data convert $symbols --to-json $out/perf.json -i perf.data.guest --force \
	> $out/json.log 2>&1 || fail "perf data convert failed, see json.log"
echo "Sampled with $event."
