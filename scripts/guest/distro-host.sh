#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A job for the patched host: boot guests with whole distributions, sample each while it works, and
# print the samples twice: with what perf has read of the guest's memory, and with the guest's files.
set -u
out=/run/shared
vm=
trap '[ -z "$vm" ] || kill $vm 2>/dev/null' EXIT

fail()
{
	echo "$*"
	exit 1
}

# Boot the guest in $guest; set $vm to the PID of its VMM.
# clearcpuid: 154 is XSAVE; if the host itself is emulated, the sizes of XSAVE's areas disagree.
boot()
{
	rm -f /tmp/guest.log
	qemu-system-x86_64 -M q35 -accel kvm -cpu host -m 512M -smp 1 \
		-name "guest=$name,debug-threads=on" -nodefaults -no-user-config -display none \
		-no-reboot -serial file:/tmp/guest.log -kernel "$guest/vmlinuz" \
		-initrd "$guest/initrd.img" \
		-drive "file=$guest/disk.img,if=virtio,format=raw,snapshot=on" \
		-append "root=/dev/vda rw console=ttyS0 panic=-1 net.ifnames=0 clearcpuid=154 mitigations=off quiet" &
	vm=$!
	for _ in $(seq 900); do
		grep -q "at work" /tmp/guest.log 2>/dev/null && return
		kill -0 $vm 2>/dev/null || return 1
		sleep 1
	done
	return 1
}

# Sample the running guest.
sample()
{
	# Let it run each of its programs once.
	sleep 40
	perf kvm --guest record -e cpu-clock -F 199 -g -p $vm -o perf.data -- sleep 40 \
		> "$out/$name/record.log" 2>&1 || return 1
	kill -0 $vm 2>/dev/null || return 1
	cp -r perf.data perf.data.guests "$out/$name" || return 1
	# This machine may have the same files as the guest: an empty folder hides them.
	mkdir -p /tmp/empty
	for way in memory files; do
		symfs=/tmp/empty
		[ $way = memory ] || symfs=$guest/root
		perf script --symfs "$symfs" --no-inline -i perf.data -F comm,misc,ip,sym,dso,dsoff \
			> "$out/$name/script-$way.txt" 2> "$out/$name/script-$way.log" || return 1
	done
}

echo 3 > /proc/sys/kernel/perf_event_guest_callchain
# No file of this machine's or of its user may name what the guest runs.
export HOME=/nowhere
cd /tmp || exit
for name in $SUITES; do
	guest=$GUESTS/$name
	mkdir -p "$out/$name"
	tries=1
	until boot && sample; do
		cp /tmp/guest.log "$out/$name/guest.log.$tries"
		kill $vm 2>/dev/null
		wait $vm 2>/dev/null
		[ $tries -lt 3 ] || fail "$name: died $tries times, see its guest.log.*"
		tries=$((tries + 1))
	done
	kill $vm
	wait $vm 2>/dev/null
	rm -rf perf.data*
	echo "$name: sampled, after $tries boots."
done
