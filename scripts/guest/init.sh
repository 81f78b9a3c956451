#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of the emulated host: "job" runs /run/shared/job, "shell" asks a person.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /dev/pts /dev/shm /run/shared
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
# Uncached: the machine around reads what is written here as it comes.
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=262144 shared /run/shared

# Where programs expect to write; what they write is gone with this host.
for dir in /root /var; do
	mkdir -p "/run/over$dir/up" "/run/over$dir/work"
	mount -t overlay -o "lowerdir=$dir,upperdir=/run/over$dir/up,workdir=/run/over$dir/work" \
		overlay "$dir" 2>/dev/null
done
echo 1 > /proc/sys/kernel/printk
echo -1 > /proc/sys/kernel/perf_event_paranoid
hostname host 2>/dev/null

. /run/shared/job_env
grep -q vmx /proc/cpuinfo && kvm=kvm_intel || kvm=kvm_amd
modprobe -d "$BUILD_MODULES" "$kvm" || echo "KVM could not be loaded"

if [ "$1" = shell ]; then
	cd "$BUILD_SELFTESTS" || cd /
	echo "This is the patched host. Here are the KVM selftests (x86/guest_callchain_test),"
	echo "perf is in the PATH, files in /run/shared are kept. Leave with exit or Ctrl-D."
	setsid -c /bin/bash --norc -i </dev/ttyS0 >/dev/ttyS0 2>&1
else
	cd /tmp || exit
	sh /run/shared/job >/run/shared/output 2>&1 </dev/null
	echo $? > /run/shared/status
fi

sync
umount /run/shared
reboot -f >/dev/null 2>&1
