#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A job for the patched host: boot guests with whole distributions, sample each while it boots and
# while it works, and print the samples of its work twice: with what perf has read of the guest's
# memory, and with the guest's files.
# Then break recordings off.
set -u
out=/run/shared
vm=
trap '[ -z "$vm" ] || kill $vm 2>/dev/null' EXIT

fail()
{
	echo "$*"
	exit 1
}

# Wait until the guest says $1.
wait_for()
{
	for _ in $(seq 900); do
		grep -q "$1" /tmp/guest.log 2>/dev/null && return
		kill -0 $vm 2>/dev/null || return 1
		sleep 1
	done
	return 1
}

# Sample the guest from the moment at which its kernel can be found until its programs begin.
sample_boot()
{
	until perf kvm guest-info -p $vm -o /tmp/found > /tmp/found.log 2>&1; do
		kill -0 $vm 2>/dev/null || return 1
		sleep 0.2
	done
	rm -rf /tmp/found
	perf kvm --guest record -e cpu-clock -F 199 -g -p $vm -o boot.data \
		> "$out/$name/record-boot.log" 2>&1 &
	perf=$!
	wait_for begins || return 1
	# perf ends by this signal, too.
	kill -INT $perf
	wait $perf
	cp -r boot.data boot.data.guests "$out/$name" || return 1
	perf report --symfs /tmp/empty -i boot.data --stats \
		> "$out/$name/stats-boot.txt" 2> "$out/$name/stats-boot.log" || return 1
	print boot .
}

# Boot the guest in $guest; set $vm to the PID of its VMM.
# clearcpuid: 154 is XSAVE; if the host itself is emulated, the sizes of XSAVE's areas disagree.
boot()
{
	rm -f /tmp/guest.log
	truncate -s 64M /tmp/inside.tar
	qemu-system-x86_64 -M q35 -accel kvm -cpu host -m 512M -smp 1 \
		-name "guest=$name,debug-threads=on" -nodefaults -no-user-config -display none \
		-no-reboot -serial file:/tmp/guest.log -kernel "$guest/vmlinuz" \
		-initrd "$guest/initrd.img" \
		-drive "file=$guest/disk.img,if=virtio,format=raw,snapshot=on" \
		-drive "file=/tmp/inside.tar,if=virtio,format=raw" \
		-append "root=/dev/vda rw console=ttyS0 panic=-1 net.ifnames=0 clearcpuid=154 mitigations=off quiet" &
	vm=$!
	sample_boot && wait_for "at work" && tar xf /tmp/inside.tar -C "$out/$name"
}

# Print what perf's processes have taken so far: CPU time in ticks of user mode and of the kernel,
# memory in KiB, name.  perf-guests is the process that reads the guest.
note_costs()
{
	for process in /proc/[0-9]*; do
		comm=$(cat "$process/comm")
		case $comm in
		perf | perf-guests)
			echo "$(cut -d' ' -f14,15 "$process/stat")" \
				"$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\).*/\1/p' "$process/status") $comm"
			;;
		esac
	done
}

# Wait until perf has found the guest's kernel, opened its events and taken some samples: it says so
# in the file $1.  How long that takes depends on the emulator.
wait_begun()
{
	tries=0
	until grep -qs "^Callchains of guests" "$out/$name/$1" || [ $tries -eq 120 ]; do
		sleep 1
		tries=$((tries + 1))
	done
	sleep 10
}

# Sample the running guest.
sample()
{
	perf kvm --guest record -e cpu-clock -F 199 -g -p $vm -o perf.data -- sleep 40 \
		> "$out/$name/record.log" 2>&1 &
	perf=$!
	# To search the guest's RAM for its kernel is done only once.
	wait_begun record.log
	note_costs > "$out/$name/costs-begin.txt"
	sleep 20
	note_costs > "$out/$name/costs.txt"
	wait $perf || return 1
	kill -0 $vm 2>/dev/null || return 1
	cp -r perf.data perf.data.guests "$out/$name" || return 1
	mkdir -p /tmp/mount
	ln -s "$guest/root" /tmp/mount/$vm
	for way in memory files; do
		mount=
		[ $way = memory ] || mount=--guestmount=/tmp/mount
		# shellcheck disable=SC2086 # one option, or none
		perf script --symfs /tmp/empty $mount --no-inline -i perf.data -F comm,misc,ip,sym,dso,dsoff \
			> "$out/$name/script-$way.txt" 2> "$out/$name/script-$way.log" || return 1
	done
	perf report --symfs /tmp/empty -i perf.data --sort cgroup --no-children -g none --stdio \
		> "$out/$name/cgroups.txt" 2> "$out/$name/cgroups.log" || return 1
}

# Sample the running guest to $2/$1.data, in the background; set $perf to the PID of perf.
begin()
{
	perf kvm --guest record -e cpu-clock -F 199 -g -p $vm -o "$2/$1.data" -- sleep 60 \
		> "$out/$name/record-$1.log" 2>&1 &
	perf=$!
}

# Write the samples of $2/$1.data.
print()
{
	perf script --symfs /tmp/empty --no-inline -i "$2/$1.data" -F comm,misc,ip,sym,dso,dsoff \
		> "$out/$name/script-$1.txt" 2> "$out/$name/script-$1.log" ||
		echo "perf script: $?" >> "$out/$name/script-$1.log"
	rm -rf "$2/$1.data" "$2/$1.data.guests"
}

# End recordings as none should end: perf is killed, the disk is full, the VM dies.
break_off()
{
	begin killed .
	wait_begun record-killed.log
	kill -KILL $perf
	wait $perf 2>/dev/null
	print killed .

	# Leave room for what names the kernel.
	size=$(du -sk perf.data.guests | cut -f1)
	mkdir -p full
	mount -t tmpfs -o "size=$((size + 8192))k" none full
	begin full full
	wait $perf
	print full full
	umount full

	begin died .
	wait_begun record-died.log
	kill -KILL $vm
	wait $perf $vm 2>/dev/null
	print died .
}

echo 3 > /proc/sys/kernel/perf_event_guest_callchain
# No file of this machine's or of its user may name what the guest runs.
export HOME=/nowhere
cd /tmp || exit
# This machine may have the same files as the guest: an empty folder hides them.
mkdir -p empty
for name in $SUITES; do
	guest=$GUESTS/$name
	mkdir -p "$out/$name"
	tries=1
	until boot && sample; do
		cp /tmp/guest.log "$out/guest.log.$name.$tries"
		# Nothing of this try must be taken for the next one's.
		rm -rf "${out:?}/$name"
		mkdir "$out/$name"
		kill $vm 2>/dev/null
		wait $vm 2>/dev/null
		[ $tries -lt 3 ] || fail "$name: died $tries times, see guest.log.$name.*"
		tries=$((tries + 1))
	done
	break_off
	rm -rf perf.data*
	echo "$name: sampled, after $tries boots."
done
