#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of the emulated Intel host, which has busybox and the files that the job needs.
# The job uses the second serial line, the kernel the first.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp LC_ALL=C

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm /run/shared
mount -t tmpfs shm /dev/shm
mkswap /dev/ram0 >/dev/null && swapon /dev/ram0
echo -1 > /proc/sys/kernel/perf_event_paranoid
stty -F /dev/ttyS1 115200 raw 2>/dev/null

export BUILD_MODULES=/modules
modprobe -d $BUILD_MODULES kvm_intel || echo "KVM could not be loaded" > /dev/ttyS1

cd /tmp || exit
{ sh /job; echo "bochs: status $?"; } > /dev/ttyS1 2>&1 </dev/null
# Reboot only after the second serial line has sent all output.  stty waits for that.  Closing
# the line would wait, too, but a test's process may keep it open.
stty -F /dev/ttyS1 115200 raw
reboot -f
