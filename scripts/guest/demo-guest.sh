#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of the demo's guest: hand out the kernel's symbols, then work until
# somebody switches the machine off.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none guest /mnt

# On a machine of yours, "ssh guest cat /proc/kallsyms" does the same.
cat /proc/kallsyms > /mnt/kallsyms.tmp && mv /mnt/kallsyms.tmp /mnt/kallsyms
cat /proc/modules > /mnt/modules.tmp && mv /mnt/modules.tmp /mnt/modules

# Programs that spend their time in system calls, all of them on files in memory.
mkdir /tmp/src
for i in $(seq 40); do
	dd if=/dev/zero of=/tmp/src/file$i bs=4k count=8 2>/dev/null
done
touch /mnt/working
while :; do
	dd if=/dev/zero of=/tmp/copy bs=4k count=2000 2>/dev/null
	tar -cf - -C /tmp src | cat > /dev/null
	find /tmp /proc/sys /sys/kernel > /dev/null
	cat /tmp/src/* > /tmp/all
done
