#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of the demo, on the patched host: boot a guest, sample it, report.  $whose
# kernel it runs is set before this.
# $symbols is several options or none, $qemu several words, and $whose is set.
# shellcheck disable=SC2086,SC2154
set -u
out=/run/shared
mkdir -p $out/guest

fail()
{
	echo "$*"
	exit 1
}

# What a guest takes.  clearcpuid: 154 is XSAVE; where the host itself is emulated, the sizes of its
# areas disagree.
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

# Boot a guest, $vm is its VMM then; what follows are options of QEMU's.
boot()
{
	$qemu -accel kvm -cpu host -m 256M -nodefaults -no-user-config -display none -no-reboot \
		-serial file:$out/guest.log -initrd $out/initrd.img \
		-append "$arguments quiet panic=-1" "$@" &
	vm=$!
	# This job's output is open as long as the guest runs.
	trap 'kill $vm 2>/dev/null' EXIT
}

# Wait for what says that the guest is at work.
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

# A distribution's kernel is not prepared for anything: perf finds its symbols and its ORC
# tables in the guest's memory.  A kernel that was built here has frame pointers, and shares
# a folder with the host.
if [ "$whose" = debian ]; then
	boot -kernel $out/kernel/vmlinuz
	wait_until grep -qs "at work" $out/guest.log
	symbols=
	# The guest's program is at hand, if it has one; its kernel is not.
	files="--symfs $out/files"
else
	boot -kernel "$BUILD_KERNEL/arch/x86/boot/bzImage" \
		-fsdev local,id=guest,path=$out/guest,security_model=none \
		-device virtio-9p-device,fsdev=guest,mount_tag=guest
	wait_until [ -e $out/guest/working ]
	symbols="--guestkallsyms=$out/guest/kallsyms --guestmodules=$out/guest/modules"
	files=
fi
echo "The guest is at work."

# A hardware counter where there is one, else a timer.
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
# perf says how callchains are taken.
grep "^Callchains of guests" $out/record.log
# perf writes from its ring buffer, which an uncached share can't take; so copy.
cp -r perf.data.guest* $out/

perf kvm --guest $symbols -i perf.data.guest report $files --stdio \
	> $out/report.txt 2> $out/report.log || fail "perf report failed, see report.log"
perf kvm --guest $symbols -i perf.data.guest report --stats \
	> $out/stats.txt 2>> $out/report.log || fail "perf report failed, see report.log"
# Firefox Profiler takes no text with the field misc, which tells guest from host.
perf script $symbols $files -i perf.data.guest -F comm,pid,tid,time,event,ip,sym,dso \
	> $out/script.txt 2> $out/script.log || fail "perf script failed, see script.log"
perf script $symbols $files -i perf.data.guest -F comm,pid,tid,misc,ip,sym,dso \
	> $out/samples.txt 2>> $out/script.log || fail "perf script failed, see script.log"
perf data convert $symbols --to-json $out/perf.json -i perf.data.guest --force \
	> $out/json.log 2>&1 || fail "perf data convert failed, see json.log"
echo "Sampled with $event."

# arm64 has deferred callchains only.
[ "$(uname -m)" = x86_64 ] || exit 0

# Two stacks that are known, by the vCPU's thread and by PMIs: these must agree.  Their guests
# have no names, but perf script leaves out guests unless it is told of some.
: "${symbols:=--guestkallsyms=/dev/null}"
bench=$BUILD_SELFTESTS/guest_callchain/guest_callchain_bench
for way in defer nodefer; do
	perf kvm --guest record -e $event -F 999 --call-graph fp,$way -o perf.data.$way -- \
		sh -c "$bench -m off -d 5 -t 1000; $bench -m off -d 16 -t 2000" \
		> $out/$way.log 2>&1 || fail "perf record ended with status $?, see $way.log"
	perf script $symbols -i perf.data.$way -F comm,misc,ip,sym \
		> $out/$way.txt 2>> $out/$way.log || fail "perf script failed, see $way.log"
done
