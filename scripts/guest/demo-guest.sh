#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of the guest whose kernel was built here: copy the kernel's symbols to the host, then
# work until the VMM is killed.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none guest /mnt

# From a guest of yours, "ssh guest cat /proc/kallsyms" gets the same.
cat /proc/kallsyms > /mnt/kallsyms.tmp && mv /mnt/kallsyms.tmp /mnt/kallsyms
cat /proc/modules > /mnt/modules.tmp && mv /mnt/modules.tmp /mnt/modules

. /workload.sh
prepare_files
touch /mnt/working
work_on_files
