#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of a guest that runs a distribution's kernel: hand out the kernel's symbols,
# then do what "work" on the command line says until somebody switches the machine off.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp

for module in /modules/*.ko; do
	[ -e "$module" ] && insmod "$module"
done

echo "kernel $(uname -r)" > /dev/ttyS0
if [ -b /dev/vda ]; then
	# On a machine of yours, "ssh guest cat /proc/kallsyms" does the same.
	mkdir /tmp/symbols
	cat /proc/kallsyms > /tmp/symbols/kallsyms
	cat /proc/modules > /tmp/symbols/modules
	tar -cf /dev/vda -C /tmp/symbols kallsyms modules
	sync
	rm -r /tmp/symbols
else
	# Where code begins, and where kernels are entered and threads start; the whole takes
	# a serial line too long.
	grep -E ' (_text|do_syscall_64|(asm|entry|ret_from_fork|secondary_startup|x86_64_start)[^ ]*)$' \
		/proc/kallsyms | sed 's/^/symbol /' > /dev/ttyS0
	sed 's/^/modules /' /proc/modules > /dev/ttyS0
	sed 's/^/version /' /proc/version > /dev/ttyS0
fi

. /workload.sh
"prepare_${work:=files}"
echo "at work" > /dev/ttyS0
"work_on_$work"
