#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of a guest that runs a distribution's kernel: tell what its host is to find out,
# then do what "work" on the command line says until somebody ends its VMM.
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

# What /proc says of functions and modules.
tell_names()
{
	awk '$2 ~ /[tTwW]/ { print $1, $3, $4 }' /proc/kallsyms | sort | md5sum |
		sed 's/^/functions /' > /dev/console
	sed 's/^/modules /' /proc/modules > /dev/console
}

# At the work "tasks" modules are loaded while the guest is recorded.
[ "${work:=files}" = tasks ] || load_modules

echo "kernel $(uname -r)" > /dev/console
# Where code begins, and where kernels are entered and threads start; the whole takes a serial
# line too long.
grep -E ' [tT] (_text|do_syscall_64|(asm|entry|ret_from_fork|secondary_startup|x86_64_start)[^ ]*)$' \
	/proc/kallsyms | sed 's/^/symbol /' > /dev/console
# Whose host doesn't compare them need not wait.
[ "${compare:=yes}" = no ] || tell_names
sed 's/^/version /' /proc/version > /dev/console

. /workload.sh
"prepare_$work"
echo "at work" > /dev/console
"work_on_$work"
