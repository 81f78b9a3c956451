#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A job for the patched host: boot guests with kernels as a distribution ships them, and sample
# each guest during each kind of work.
# $symbols and $graph hold several options, and $files may be empty.
# shellcheck disable=SC2086
set -u
out=/run/shared
vm=
# Kill the VMM at the end: the host waits until no process has this job's output open.
trap '[ -z "$vm" ] || kill $vm 2>/dev/null' EXIT

fail()
{
	echo "$*"
	exit 1
}

# Boot a guest with the kernel $1 for the work $2 on $3 CPUs; set $vm to the PID of its VMM.
# clearcpuid: 154 is XSAVE; if the host itself is emulated, the sizes of XSAVE's areas disagree.
boot()
{
	rm -f /tmp/guest.log
	again=-no-reboot
	[ "$2" != reboot ] || again=
	# $again holds one option or none.
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

# Print the running guest's messages about $1.  The guest may have booted more often than it
# should: use its first $boots boots only.
told()
{
	tr -d '\r' < /tmp/guest.log | awk -v boots="$boots" '/^kernel / { nr++ } nr <= boots' |
		sed -n "s/^$1 //p"
}

# Set $symbols to options that name each file of the running guest.
name_files()
{
	told symbol > "$guest/kallsyms"
	symbols="--guestkallsyms=$guest/kallsyms --guestvmlinux=$guest/vmlinux"
}

# Set $symbols to an option that names a folder with the root file system of the running guest, as
# if it were mounted there.
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
		ln -sf "$guest/$kernel" "$root/boot/$kernel-${modules##*/}"
	done
	symbols="--guestmount=/tmp/guests"
}

# Keep perf's notes about tasks and maps, to find out later why a sample has no name.
keep_notes()
{
	for notes in tasks maps; do
		cp "perf.data.guests/$vm/$notes" "$guest/$notes-$work"
	done
}

# Compare perf's findings in the running guest's memory with the guest's own messages, for each
# of its kernels: names and addresses of all functions, and the places of the modules in any order.
# Print "functions same" and "modules same" if there is no difference.
compare_names()
{
	set -- perf.data.guests/$vm/proc
	[ "$boots" = 1 ] || set -- "$1" perf.data.guests/$vm/kernels/*/proc
	for found in "$@"; do
		awk '$2 ~ /[tTwW]/ { print $1, $3, $4 }' "$found/kallsyms" | LC_ALL=C sort | md5sum
	done > /tmp/functions
	told functions | tail -n "$boots" | cmp - /tmp/functions && echo "functions same" &&
		for found in "$@"; do
			cut -d' ' -f 1,2,6 "$found/modules"
		done | sort > /tmp/modules &&
		told modules | cut -d' ' -f 1,2,6 | sort | cmp - /tmp/modules && echo "modules same"
}

# Count the bytes that could control a terminal in perf's files and output.  Leave out tables,
# programs and build-ids, which are not text.
look_for_strange()
{
	perf kvm --guest -i perf.data report --stdio --no-children -g none --sort comm,dso \
		> "$guest/report-hostile.txt" 2> "$guest/report-hostile.log" || return 1
	for file in kallsyms modules version; do
		[ -s "perf.data.guests/$vm/proc/$file" ] || return 1
	done
	[ -s "perf.data.guests/$vm/tasks" ] && [ -s "perf.data.guests/$vm/maps" ] || return 1
	find "perf.data.guests/$vm" "$guest"/*.log "$guest"/*-hostile* -type f \
		! -path "*/boot/*" ! -path "*/programs/*" ! -path "*/sys/*" ! -name guest.log -exec cat {} + |
		LC_ALL=C tr -d '\n\t -~' | wc -c > "$guest/strange"
}

# Print a command that waits until the guest has told $1 $2 times.  It waits for five minutes at
# most, because the guest may hang.
until_told()
{
	echo "for _ in \$(seq 1500); do [ \$(grep -c '$1' /tmp/guest.log) -lt $2 ] || break; sleep 0.2; done"
}

# Sample the running guest during the work $1, in each of the ways that the other arguments name;
# write the results to $guest.  The way "outside" uses no file of the guest's kernel.
sample()
{
	work=$1
	shift
	boots=1
	until_done="sleep 6"
	rate=999
	# Record a guest that boots again until it is at work again, and a guest that loads
	# modules until it has loaded them; then some seconds more.
	case $work in
	reboot | kexec)
		boots=2
		# On a busy machine, two boots take minutes, and the host has its disk in memory.
		rate=199
		until_done="$(until_told "at work" 2); $until_done" ;;
	tasks)	until_done="$(until_told loaded 1); $until_done" ;;
	esac
	for way in "$@"; do
		if [ "$work" = block ]; then mount_guest; else name_files; fi
		graph="--call-graph $way"
		files=
		if [ "$way" = frames ]; then
			graph=-g
			symbols="--guestkallsyms=$guest/kallsyms"
		fi
		if [ "$way" = outside ]; then
			# A host without our patches has no callchains of guests.
			graph=${outside_graph--g}
			symbols=
			# Give perf the files of the guest's programs, but not those of its kernel.
			files="--symfs $guest/files"
		fi
		perf kvm --guest $symbols record -e cpu-clock -F "$rate" $graph -p $vm \
			--proc-map-timeout=20000 -o perf.data -- sh -c "$until_done" \
			> "$guest/record.log" 2>&1 || return 1
		[ "$work" != tasks ] || sh -c "$(until_told named 1)"
		if [ "$(grep -c "at work" /tmp/guest.log)" -lt $boots ]; then
			kill $vm
			wait $vm 2>/dev/null
		fi
		# If the guest has died, or has hung in its second boot, the caller starts it anew.
		kill -0 $vm 2>/dev/null || return 1
		[ "$way" != outside ] || keep_notes
		[ "$way" != outside ] || compare_names > "$guest/names-$work" 2>&1 ||
			cp "perf.data.guests/$vm/proc/kallsyms" "$guest/kallsyms-$work"
		# What else perf may have missed, of any of the guest's kernels.
		[ "$way" != outside ] || grep -E "no names|not unwound" "$guest/record.log" >> "$guest/names-$work"
		# Store the addresses where the code of each of its kernels begins.
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

# Boot the guest in $guest and sample it during the work $1 on $2 CPUs, in the ways that the other
# arguments name.  Try several times: QEMU 7.2 may run an old translation of code that the guest has
# patched.  Linux 6.12 patches a lot as it boots, and sometimes dies of that, then or soon after.
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

# Let events read guests, if this kernel has our patches.
policy=/proc/sys/kernel/perf_event_guest_callchain
[ ! -e $policy ] || echo 3 > $policy
# shellcheck disable=SC2154 # the host's caller has set $guests
for guest in $guests; do
	guest=$out/guests/$guest
	# $ways holds one or several; descriptor 3, as a VMM reads the standard input.
	while read -r work cpus ways <&3; do
		boot_and_sample "$work" "$cpus" $ways
	done 3< "$guest/work"
done
