# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=sh
# The kinds of work that guests do, for their init to source.  Most of their programs spend their
# time in system calls.  No function work_on_* returns.

# The work on files in memory.
prepare_files()
{
	mkdir /tmp/src
	for i in $(seq 40); do
		dd if=/dev/zero of="/tmp/src/file$i" bs=4k count=8 2>/dev/null
	done
}

work_on_texts()
{
	/usr/bin/sha256sum /bin/busybox > /dev/null
	/usr/bin/perl -e 'print map { $_ * 7919 % 10007, "\n" } 1..20000' > /tmp/numbers
	/usr/bin/sort -n /tmp/numbers > /dev/null
	/usr/bin/gzip -c /tmp/numbers | /usr/bin/gzip -dc > /dev/null
	/usr/bin/sha256sum /tmp/numbers > /dev/null
	/usr/bin/perl -e 'my %h; $h{$_ % 977} .= "x$_" for 1..30000; join("", sort keys %h) =~ /99/;'
}

work_on_files()
{
	# A program whose call paths are known; it only computes, and leaves most of the CPU to others.
	[ ! -x /bin/call_paths ] || sh -c 'renice -n 10 -p $$ && exec call_paths' &
	# Programs as a distribution ships them.
	[ ! -x /usr/bin/perl ] || while :; do
		work_on_texts
	done &
	while :; do
		dd if=/dev/zero of=/tmp/copy bs=4k count=2000 2>/dev/null
		tar -cf - -C /tmp src | cat > /dev/null
		find /tmp /proc/sys /sys/kernel > /dev/null
		cat /tmp/src/* > /tmp/all
		# A program that has frame pointers, unlike these.
		[ ! -x /bin/program ] || timeout -s KILL 1 program
		[ ! -x /bin/program_libc ] || timeout -s KILL 1 program_libc
	done
}

# The work on a disk whose driver is a module, and ends most requests in softirqs.
prepare_block()
{
	[ -b /dev/nullb0 ] || echo "there is no /dev/nullb0" > /dev/console
}

work_on_block()
{
	for _ in 1 2; do
		while :; do
			dd if=/dev/nullb0 of=/dev/null bs=4k count=2000 iflag=direct 2>/dev/null
		done &
	done
	while :; do
		dd if=/dev/zero of=/dev/nullb0 bs=16k count=200 conv=fsync 2>/dev/null
	done &
	wait
}

# The work on the loopback device, and with timers: most of it runs in softirqs.
prepare_network()
{
	ifconfig lo 127.0.0.1 up
}

work_on_network()
{
	while :; do
		nc -l -p 5000 > /dev/null
	done &
	while :; do
		dd if=/dev/zero bs=64k count=100 2>/dev/null | nc 127.0.0.1 5000
	done &
	for _ in 1 2 3 4; do
		while :; do
			usleep 1000
		done &
	done
	wait
}

# The work of processes whose shares of user mode's time are known.  Modules are loaded later.
prepare_tasks()
{
	program tasks &
}

work_on_tasks()
{
	sleep 15
	load_modules
	echo "loaded" > /dev/console
	# tell_names takes a while, in which other programs run: wait until the recording has ended.
	sleep 10
	tell_names
	echo "named" > /dev/console
	wait
}

# The work on files, until the guest reboots.
prepare_reboot()
{
	prepare_files
}

work_on_reboot()
{
	work_on_files &
	sleep 40
	reboot -f
}

# The work on files, until the guest boots its kernel again by kexec, at another address.
prepare_kexec()
{
	prepare_files
	# Pack this system without its kernel, so that the next kernel has none to boot, and stays.
	(cd / && find . -xdev ! -name vmlinuz | cpio -o -H newc > /tmp/initrd)
}

work_on_kexec()
{
	work_on_files &
	sleep 40
	[ ! -e /vmlinuz ] || program /vmlinuz /tmp/initrd || echo "kexec failed: $?" > /dev/console
	wait
}

# The work of users who don't want to be seen: a program whose name would control a
# terminal, and whose file is removed; and memory full of pages that begin like the data that perf
# looks for.
prepare_hostile()
{
	strange="/tmp/$(printf 'a\033[2J\nb')"
	cp /bin/program "$strange"
	"$strange" &
	until [ "$(readlink /proc/$!/exe)" = "$strange" ]; do
		usleep 10000
	done
	rm "$strange"
	printf 'OSRELEASE=6.1.0\n' | dd bs=4k conv=sync of=/tmp/fakes 2>/dev/null
	for _ in $(seq 12); do
		cat /tmp/fakes /tmp/fakes > /tmp/more
		mv /tmp/more /tmp/fakes
	done
}

work_on_hostile()
{
	wait
}
