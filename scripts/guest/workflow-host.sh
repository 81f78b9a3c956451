#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A job for the patched host: use perf kvm's commands for samples on two guests with Debian's
# kernels, as an operator would.  Store the output of the commands in files.
set -u
out=/run/shared
seconds=${WORKFLOW_SECONDS:-6}
web=
db=
vm=
preload=$BUILD_SELFTESTS/guest_callchain/vmm_policy.so
# Kill the VMMs at the end: the host waits until no process has this job's output open.
# shellcheck disable=SC2086
trap 'kill $web $db $vm 2>/dev/null' EXIT

fail()
{
	echo "$*" >&2
	exit 1
}

# Boot the guest $1 for the work $2, and set $vm to the PID of its VMM.  Its kernel is $3; without
# it, the kernel in the folder named $1.  $4 is the VMM's policy for callchains, if it has one:
# "allow", "allow-read" or "forbid".
# clearcpuid: 154 is XSAVE; if the host itself is emulated, the sizes of XSAVE's areas disagree.
# 395 is FSRS: with it, kernels clear memory by inline code, not by a function of its own.
boot()
{
	env ${4:+"GUEST_CALLCHAIN=$4" "LD_PRELOAD=$preload"} \
		qemu-system-x86_64 -M microvm,acpi=off,rtc=on -accel kvm -cpu host -m 256M \
		-name "guest=$1,debug-threads=on" -nodefaults -no-user-config -display none \
		-no-reboot -serial "file:$out/$1.log" -initrd $out/initrd.img \
		-kernel "${3:-$out/kernels/$1/vmlinuz}" \
		-append "console=ttyS0 quiet panic=-1 reboot=t clearcpuid=154,395 work=$2" &
	vm=$!
	for _ in $(seq 900); do
		grep -qs "at work" "$out/$1.log" && return
		kill -0 $vm 2>/dev/null || fail "the guest $1 died, see $1.log"
		sleep 0.2
	done
	fail "the guest $1 did not get to work, see $1.log"
}

# Record to the file $1 with perf kvm's options $2; the other arguments are the target.
record()
{
	file=$1
	sides=$2
	shift 2
	# The options may be several words.
	# shellcheck disable=SC2086
	perf kvm $sides record -e cpu-clock -F 499 -g --proc-map-timeout=20000 -o "$file" "$@" \
		-- sleep "$seconds" > "$out/record-${file##*/}.log" 2>&1 ||
		fail "perf kvm record failed, see record-${file##*/}.log"
}

# Print how many files in the folder $1 contain $2.  The other arguments tell grep the pattern.
count()
{
	folder=$1
	sought=$2
	shift 2
	files=$(LC_ALL=C grep -rla "$@" "$folder")
	[ $? -lt 2 ] || fail "grep can't read all of $folder"
	echo "$folder $sought $(echo "$files" | grep -c .)"
}

# Look in the folder $1 for data that perf can only have from the guest's memory: callers, the word
# that guest_program.c plants, and the release of the guest's kernel.
planted()
{
	perf script -D -i "$1/$1" > dump 2>/dev/null
	echo "$1 samples $(grep -c 'PERF_RECORD_SAMPLE(IP, 0x[45])' dump)"
	# Count the chains that have more than a context marker; the host's are not deferred.
	echo "$1 callers $(awk '/ PERF_RECORD_/ { chain = /PERF_RECORD_CALLCHAIN_DEFERRED/ }
		chain && match($0, /FP chain: nr:/) && substr($0, RSTART + RLENGTH) + 0 > 1 { nr++ }
		END { print nr + 0 }' dump)"
	rm dump
	count "$1" word -P '\x42\xf6\x08\x1b\x3c\x5e\x9d\x7a'
	count "$1" release -F "$release"
	echo "$1 names $(find "$1" | grep -cF "$release")"
	echo "$1 folders $(find "$1" -name '*.guests' | wc -l)"
	echo "$1 printed $(grep -cF "$release" "$out/record-$1.log")"
}

# Record the guest of the VMM $vm with the sysctl at $2, and look for data of the guest's memory in
# perf's files.  KVM must show the VMM's policy as $3; $1 is the name of this case.
record_planted()
{
	mkdir "$1"
	echo "$2" > /proc/sys/kernel/perf_event_guest_callchain
	[ "$(cat /proc/sys/kernel/perf_event_guest_callchain)" = "$2" ] ||
		fail "perf_event_guest_callchain can't be set to $2"
	found=$(sed -n 's/^guest_callchain:\t//p' /proc/$vm/fdinfo/*)
	[ "$found" = "$3" ] || fail "the VMM's policy is '$found', not '$3'"
	(
		# Make perf write all its files to this folder.
		HOME=$PWD/$1
		TMPDIR=$HOME
		export HOME TMPDIR
		# Ask for reads: by default, perf does so only if it has found the guest's kernel.
		record "$1/$1" "--guest" --call-graph orc -p $vm
		# The program that has the word runs for a second only of each turn of the guest's.
		if grep -q "^Callchains.* by reads" "$out/record-$1.log" &&
			! perf script -i "$1/$1" -F comm 2>/dev/null | grep -q program
		then
			record "$1/$1" "--guest" --call-graph orc -p $vm
		fi
	) || exit 1
	planted "$1" >> $out/planted.txt
	rm -rf "$1"
}

# Do the same with a new guest, whose VMM has the policy $3.
record_planted_with()
{
	boot "$1" files $out/kernels/web/vmlinuz "$3"
	release=$(release_of "$1") || exit 1
	case $3 in
	allow) record_planted "$1" "$2" allowed ;;
	allow-read) record_planted "$1" "$2" read-allowed ;;
	forbid) record_planted "$1" "$2" forbidden ;;
	esac
	kill $vm
	wait $vm
}

# Run perf with the other arguments, and store its output in $1.txt and its errors in $1.err.
show()
{
	to=$1
	shift
	perf "$@" > "$out/$to.txt" 2> "$out/$to.err" || fail "perf $* failed, see $to.err"
}

# Store perf top's screen in $1.txt, with the lines scrolled away: callers take many lines.
look_at_screen()
{
	tmux -L top capture-pane -p -S - > "$out/$1.txt"
}

# Succeed if perf top shows functions of the guest's kernel, and the program.
top_shows()
{
	look_at_screen top
	[ "$(grep -c '\[g\] [a-z]' $out/top.txt)" -ge 5 ] && grep -q 'program .*\[u\]' $out/top.txt
}

# Succeed if perf top shows a caller: a function of the guest's kernel with no sample of its own.
top_shows_callers()
{
	look_at_screen top-second
	grep -q '^ *[1-9][0-9.]*% *0[.]00% .*\[g\] [a-z]' $out/top-second.txt
}

# Print the release that the kernel of the guest $1 has told.
release_of()
{
	sed -n 's/^version Linux version \([^ ]*\).*/\1/p' "$out/$1.log" | grep . ||
		fail "the guest $1 did not tell its version"
}

# First, guests whose VMMs have policies: each boots alone, which is faster.
default=$(cat /proc/sys/kernel/perf_event_guest_callchain)
record_planted_with allowed-at-0 0 allow
record_planted_with allowed-at-1 1 allow
record_planted_with read-allowed-at-1 1 allow-read
record_planted_with forbidden-at-3 3 forbid
echo "$default" > /proc/sys/kernel/perf_event_guest_callchain

boot web files
web=$vm
boot db network
db=$vm

# Store the doctor's output for the situation $1; the other arguments are the command to run.
doctor()
{
	to=$out/doctor-$1.txt
	shift
	"$@" > "$to" 2>&1
	echo "status $?" >> "$to"
}

# Do the same while the sysctl perf_event_$2 is $3.
doctor_within()
{
	limit=/proc/sys/kernel/perf_event_$2
	usual=$(cat "$limit")
	echo "$3" > "$limit"
	# shellcheck disable=SC2086
	doctor "$1" $look $web
	echo "$usual" > "$limit"
}

# Let the doctor look at this host and at guests, before anything is recorded.
look="python3 $REPO/scripts/doctor --json"
# $look holds three words.
# shellcheck disable=SC2086
{
	doctor no-reads $look $web
	echo 3 > /proc/sys/kernel/perf_event_guest_callchain
	doctor well $look $web
	doctor_within shallow max_stack 16
	doctor_within no-contexts max_contexts_per_stack 2
	doctor_within forbidden guest_callchain 0
	doctor no-perf $look --perf /nowhere/perf $web
	echo 2 > /proc/sys/kernel/perf_event_paranoid
	doctor others-guest setpriv --reuid 65534 --regid 65534 --clear-groups $look $web
	echo -1 > /proc/sys/kernel/perf_event_paranoid
	doctor no-vm $look $$
	doctor no-process $look 4000000
	boot unikernel 0 "$BUILD_SELFTESTS/guest_callchain/unikernel"
	doctor no-linux $look $vm
	kill $vm
}

release=$(release_of web) || exit 1
vm=$web
record_planted undecided-at-0 0 undecided
record_planted undecided-at-1 1 undecided
record_planted undecided-at-2 2 undecided
# The following commands need this level.
record_planted undecided-at-3 3 undecided

record one --guest -p $web
files="--symfs $out/files"
# $files holds two words.
# shellcheck disable=SC2086
{
	show report kvm --guest -i one report --stdio --no-children $files -g caller,0.5,callee \
		--percent-limit 4
	show callers kvm --guest -i one report --stdio --children $files -g none
	show script script -i one $files -F comm,pid,misc,ip,sym,dso
}
record later --guest -p $web
show diff kvm --guest diff one later
record all --guest -a
show all kvm --guest -i all report --stdio --no-children -g none --sort guest,comm,dso,sym
record both "--host --guest" -a
show both kvm --host --guest -i both report --stdio --no-children -g none --sort comm,dso,sym
# For versions of perf that don't know the records of guests.
perf inject --join-callchains -i both -o $out/joined.data > $out/inject.log 2>&1 ||
	fail "perf inject failed, see inject.log"
show joined-addresses script -i $out/joined.data --guest-code -G -F time,ip
show joined-callchains script -i $out/joined.data --guest-code --no-inline -F time,ip
record host "--host --no-guest" -p $web
show host kvm --host --no-guest -i host report --stdio --no-children -g none
show host-callers kvm --host --no-guest -i host report --stdio --children -g none

# If no guest is named, perf must list them; it must also say which process runs none.
for none in "" "-p $$"; do
	# shellcheck disable=SC2086
	perf kvm --guest record -e cpu-clock $none -o none -- sleep 0.1
done > $out/record-none.log 2>&1
for said in "  -p $web  web" "  -p $db  db" "Process $$ runs no guest"; do
	[ "$(grep -cxF -- "$said" $out/record-none.log)" = 1 ] ||
		fail "perf does not say once: $said, see record-none.log"
done

# Wait until the shell that runs perf top has written perf top's status.
wait_for_top()
{
	for _ in $(seq 300); do
		[ ! -s $out/top.status ] || return 0
		sleep 0.5
	done
	fail "perf kvm top did not end"
}

# Let perf top show the last of the events $1 on a terminal until the command $2 succeeds.
look_at_top()
{
	mkdir /run/top
	rm -f $out/top.status
	tmux -L top -f /dev/null new-session -d -x 100 -y 40 \
		"TMPDIR=/run/top perf kvm --guest top -e $1 -F 499 -g --stdio -s comm,dso,sym -p $web 2> $out/top.err
		 echo \$? > $out/top.status"
	# perf drops keys that come before the first screen.
	for _ in $(seq 90); do
		look_at_screen top-first && grep -q PerfTop $out/top-first.txt && break
		sleep 1
	done
	case $1 in
	*,*)
		tmux -L top send-keys E
		sleep 2
		tmux -L top send-keys 1 Enter
		;;
	esac
	for _ in $(seq 90); do
		$2 && break
		sleep 1
	done
	$2 || fail "perf kvm top -e $1: $2 failed for 90 seconds"
	grep -q "^Callchains of guests: by reads" $out/top.err || fail "perf kvm top reads no guests"
	tmux -L top send-keys q
	wait_for_top
	[ "$(cat $out/top.status)" = 0 ] || fail "perf kvm top did not end well when q was typed"
	rmdir /run/top || fail "perf kvm top has left its files"
}

# The first event excludes the kernel, the second must have the kernel's callers nevertheless.
look_at_top cpu-clock:u,cpu-clock:k top_shows_callers
look_at_top cpu-clock top_shows

# Let perf top write to a pipe whose reader ends: perf top must end, too, and remove its files.
mkdir /run/top
rm -f $out/top.status
tmux -L pipe -f /dev/null new-session -d \
	"{ TMPDIR=/run/top perf kvm --guest top -e cpu-clock -F 499 --stdio -p $web 2> $out/top-pipe.err
	   echo \$? > $out/top.status; } |
		{ head -n 1 > $out/top-pipe.txt; ls /run/top > $out/top-pipe.files; }" ||
	fail "tmux failed"
wait_for_top
[ "$(cat $out/top.status)" = 0 ] || fail "perf kvm top did not end well when its reader ended"
[ -s $out/top-pipe.txt ] || fail "perf kvm top wrote nothing to a pipe"
[ -s $out/top-pipe.files ] || fail "perf kvm top had no files of the guest"
rmdir /run/top || fail "perf kvm top has left its files when its reader ended"

kill $web $db
wait $web $db
rmmod kvm_amd 2>/dev/null || rmmod kvm_intel
[ ! -e /dev/kvm ] || fail "KVM is still there"
# shellcheck disable=SC2086
doctor no-kvm $look
