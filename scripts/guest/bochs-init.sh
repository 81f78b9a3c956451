#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of the emulated Intel host, which has busybox and what the job needs.  The
# job speaks by the second serial line, the kernel by the first.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp LC_ALL=C

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm /run/shared
mount -t tmpfs shm /dev/shm
mount -t debugfs debugfs /sys/kernel/debug
mkswap /dev/ram0 >/dev/null && swapon /dev/ram0
echo -1 > /proc/sys/kernel/perf_event_paranoid
stty -F /dev/ttyS1 raw 2>/dev/null

for module in irqbypass kvm kvm-intel; do
	[ ! -e /modules/$module.ko ] || insmod /modules/$module.ko || echo "No $module" > /dev/ttyS1
done

cd /tmp || exit
{ sh /job; echo "bochs: status $?"; } > /dev/ttyS1 2>&1 </dev/null
sync
# Let the serial line send the rest.
sleep 1
reboot -f
