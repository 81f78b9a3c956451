#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# On the patched host: boot guests as a distribution ships them, and sample each at each
# kind of work.
# $symbols and $graph are several options, and $files may be none.
# shellcheck disable=SC2086
set -u
out=/run/shared
vm=
# This job's output is open as long as a guest runs.
trap '[ -z "$vm" ] || kill $vm 2>/dev/null' EXIT

fail()
{
	echo "$*"
	exit 1
}

# Boot a guest, the kernel $1, for the work $2 on $3 CPUs; $vm is its VMM then.
# clearcpuid: 154 is XSAVE; where the host itself is emulated, its sizes disagree.
boot()
{
	rm -f /tmp/guest.log
	again=-no-reboot
	[ "$2" != reboot ] || again=
	# $again: none or one.
	qemu-system-x86_64 -M microvm,acpi=off,rtc=on -accel kvm -cpu host -m 256M -smp "$3" \
		-name "guest=$(basename "$guest"),debug-threads=on" \
		-nodefaults -no-user-config -display none $again -serial file:/tmp/guest.log \
		-kernel "$1" -initrd "$guest/initrd.img" \
		-append "console=ttyS0 quiet panic=-1 reboot=t clearcpuid=154 mitigations=off work=$2" &
	vm=$!
	for _ in $(seq 900); do
		grep -q "at work" /tmp/guest.log 2>/dev/null && return
		kill -0 $vm 2>/dev/null || return 1
		sleep 0.2
	done
	kill $vm
	wait $vm 2>/dev/null
	return 1
}

# What the guest that runs has told about itself; it may boot once more meanwhile than it is to.
told()
{
	tr -d '\r' < /tmp/guest.log | awk -v boots="$boots" '/^kernel / { nr++ } nr <= boots' |
		sed -n "s/^$1 //p"
}

# Name the files of the guest that runs, each of them, in $symbols.
name_files()
{
	told symbol > "$guest/kallsyms"
	symbols="--guestkallsyms=$guest/kallsyms --guestvmlinux=$guest/vmlinux"
}

# Let $symbols name a folder that has the root file system of the guest that runs, as if
# it were mounted there.
mount_guest()
{
	root=/tmp/guests/$vm
	mkdir -p "$root/boot" "$root/proc"
	cp -r "$guest/root/lib" "$root"
	told symbol > "$root/proc/kallsyms"
	told modules > "$root/proc/modules"
	told version > "$root/proc/version"
	cp "$root/proc/modules" "$guest/modules-block"
	# perf can't unpack LZ4.
	kernel=vmlinuz
	[ "$(basename "$guest")" = bookworm ] && kernel=vmlinux
	for modules in "$root"/lib/modules/*; do
		ln -s "$guest/$kernel" "$root/boot/$kernel-${modules##*/}"
	done
	symbols="--guestmount=/tmp/guests"
}

# Keep what perf has noted, to find out later why a sample has no name.
keep_notes()
{
	for notes in tasks maps; do
		cp "perf.data.guests/$vm/$notes" "$guest/$notes-$work"
	done
}

# Compare what perf has found in the memory of the guest that runs with what it has told, each
# of its kernels: names and addresses of all functions, and where the modules are, in whatever
# order.
compare_names()
{
	set -- perf.data.guests/$vm/proc
	[ "$boots" = 1 ] || set -- "$1" perf.data.guests/$vm/kernels/*/proc
	for found in "$@"; do
		awk '$2 ~ /[tTwW]/ { print $1, $3, $4 }' "$found/kallsyms" | LC_ALL=C sort | md5sum
	done > /tmp/functions
	told functions | tail -n "$boots" | cmp - /tmp/functions &&
		for found in "$@"; do
			cut -d' ' -f 1,2,6 "$found/modules"
		done | sort > /tmp/modules &&
		told modules | cut -d' ' -f 1,2,6 | sort | cmp - /tmp/modules &&
		echo same
}

# Count the bytes that change a terminal in what perf has written and printed; tables and
# build-ids are not text.
look_for_strange()
{
	perf kvm --guest -i perf.data report --stdio --no-children -g none --sort comm,dso \
		> "$guest/report-hostile.txt" 2> "$guest/report-hostile.log" || return 1
	for file in kallsyms modules version; do
		[ -s "perf.data.guests/$vm/proc/$file" ] || return 1
	done
	[ -s "perf.data.guests/$vm/tasks" ] && [ -s "perf.data.guests/$vm/maps" ] || return 1
	find "perf.data.guests/$vm" "$guest"/*.log "$guest"/*-hostile* -type f \
		! -path "*/boot/*" ! -path "*/sys/*" ! -name guest.log -exec cat {} + |
		LC_ALL=C tr -d '\n\t -~' | wc -c > "$guest/strange"
}

# What waits until the guest has told $1, $2 times; five minutes at most, for it may hang.
until_told()
{
	echo "for _ in \$(seq 1500); do [ \$(grep -c '$1' /tmp/guest.log) -lt $2 ] || break; sleep 0.2; done"
}

# Sample the guest that runs, at the work $1, in each of the ways that follow; what is
# found goes to $guest.  The way "outside" takes no file of the guest's.
sample()
{
	work=$1
	shift
	boots=1
	until_done="sleep 6"
	# A guest that boots again is recorded until it has done so, and works; one that loads
	# modules, until they have been seen.
	case $work in
	reboot | kexec)
		boots=2
		until_done="$(until_told "at work" 2); $until_done" ;;
	tasks)	until_done="$(until_told loaded 1); $until_done" ;;
	esac
	if [ "$work" = block ]; then mount_guest; else name_files; fi
	for way in "$@"; do
		graph="--call-graph $way"
		files=
		if [ "$way" = outside ]; then
			graph=-g
			symbols=
			# The files of its programs are at hand, those of its kernel are not.
			files="--symfs $guest/files"
		fi
		perf kvm --guest $symbols record -e cpu-clock -F 999 $graph -p $vm \
			--proc-map-timeout=20000 -o perf.data -- sh -c "$until_done" \
			> "$guest/record.log" 2>&1 || return 1
		[ "$work" != tasks ] || sh -c "$(until_told named 1)"
		if [ "$(grep -c "at work" /tmp/guest.log)" -lt $boots ]; then
			kill $vm
			wait $vm 2>/dev/null
		fi
		# One that has died meanwhile, or hung as it booted again, is booted once more.
		kill -0 $vm 2>/dev/null || return 1
		[ "$way" != outside ] || keep_notes
		[ "$way" != outside ] || compare_names > "$guest/names-$work" 2>&1 ||
			cp "perf.data.guests/$vm/proc/kallsyms" "$guest/kallsyms-$work"
		# Where the code of each of its kernels begins.
		cat perf.data.guests/$vm/proc/kallsyms perf.data.guests/$vm/kernels/*/proc/kallsyms \
			2> /dev/null | sed -n 's/ T _stext$//p' > "$guest/kernels-$work"
		perf kvm --guest $symbols -i perf.data report --stats \
			> "$guest/stats-$work-$way.txt" 2> "$guest/report.log" || return 1
		[ "$way" != outside ] || perf kvm --guest -i perf.data report --stdio --no-children -g none \
			--sort guest > "$guest/vms-$work.txt" 2> "$guest/vms.log" || return 1
		[ "$work" != block ] || perf buildid-list -i perf.data > "$guest/build-ids.txt" || return 1
		perf script $symbols $files -i perf.data -F comm,misc,ip,sym,symoff \
			> "$guest/script-$work-$way.txt" 2> "$guest/script.log" || return 1
		[ "$work" != hostile ] || look_for_strange || return 1
	done
}

# Boot and sample the guest in $guest, at the work $1 on $2 CPUs, in the ways that follow.
# QEMU 7.2 may run an old translation of code that the guest has patched: 6.12, which
# patches a lot as it boots, dies of that now and then, or soon after.
boot_and_sample()
{
	name="$(basename "$guest"), $1"
	work=$1
	cpus=$2
	shift 2
	tries=1
	until boot "$guest/vmlinuz" "$work" "$cpus" && sample "$work" "$@"; do
		cp /tmp/guest.log "$guest/guest.log.$work-$tries"
		kill -0 $vm 2>/dev/null && fail "$name: could not be sampled, see its logs"
		[ $tries -lt 5 ] || fail "$name: died $tries times, see its guest.log.*"
		tries=$((tries + 1))
	done
	cp /tmp/guest.log "$guest"
	kill $vm
	wait $vm 2>/dev/null
	echo "$name: sampled, after $tries boots."
}

for guest in "$out"/guests/*; do
	boot_and_sample files 1 fp orc orc,nodefer outside
	boot_and_sample network 2 orc orc,nodefer outside
	boot_and_sample block 2 orc orc,nodefer outside
	boot_and_sample tasks 1 outside
	boot_and_sample hostile 1 outside
	boot_and_sample reboot 1 outside
	boot_and_sample kexec 1 outside
done
