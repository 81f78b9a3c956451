# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=sh
# What guests do, for their init to source: programs that spend their time in system
# calls.  None of them ends.

# On files in memory.
prepare_files()
{
	mkdir /tmp/src
	for i in $(seq 40); do
		dd if=/dev/zero of="/tmp/src/file$i" bs=4k count=8 2>/dev/null
	done
}

work_on_files()
{
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

# On a disk that is a module, which ends most requests in softirqs.
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

# Through the loopback device, and with timers: most of it runs in softirqs.
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

# In processes whose shares of user mode's time are known; modules come later.
prepare_tasks()
{
	program tasks &
}

work_on_tasks()
{
	sleep 15
	load_modules
	echo "loaded" > /dev/console
	# That takes a while, in which others work: better behind the record.
	sleep 10
	tell_names
	echo "named" > /dev/console
	wait
}

# On files, until the guest boots again.
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

# On files, until the guest boots its kernel again by kexec, elsewhere.
prepare_kexec()
{
	prepare_files
	# All of this system but its kernel: the next one has none to boot, and stays.
	(cd / && find . -xdev ! -name vmlinuz | cpio -o -H newc > /tmp/initrd)
}

work_on_kexec()
{
	work_on_files &
	sleep 40
	[ ! -e /vmlinuz ] || program /vmlinuz /tmp/initrd || echo "kexec failed: $?" > /dev/console
	wait
}

# As users of a guest that don't want to be seen: a name that would change a terminal, a program
# whose file is gone, and memory full of pages that begin like what perf looks for.
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
