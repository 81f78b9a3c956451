#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of a guest that runs a distribution's kernel: print the facts that the host must find
# out, then do the work that "work" on the command line names until the VMM is killed.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp

load_modules()
{
	for module in /modules/*.ko; do
		[ -e "$module" ] && insmod "$module"
	done
}

# Print a digest of the functions, and the modules, that /proc lists.
tell_names()
{
	awk '$2 ~ /[tTwW]/ { print $1, $3, $4 }' /proc/kallsyms | sort | md5sum |
		sed 's/^/functions /' > /dev/console
	sed 's/^/modules /' /proc/modules > /dev/console
}

# The work "tasks" loads the modules later, while the guest is recorded.
[ "${work:=files}" = tasks ] || load_modules

echo "kernel $(uname -r)" > /dev/console
# Print only the symbols where code begins, where the kernel is entered, and where threads start:
# all symbols would take too long on a serial line.
grep -E ' [tT] (_text|do_syscall_64|(asm|entry|ret_from_fork|secondary_startup|x86_64_start)[^ ]*)$' \
	/proc/kallsyms | sed 's/^/symbol /' > /dev/console
# A guest need not wait for this if its host doesn't compare the names.
[ "${compare:=yes}" = no ] || tell_names
sed 's/^/version /' /proc/version > /dev/console

. /workload.sh
"prepare_$work"
echo "at work" > /dev/console
"work_on_$work"
