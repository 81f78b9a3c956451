#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of the emulated host: $mode, from the kernel's command line, is "job"
# to run /run/shared/job, or "shell" for a person; either has the CPUs $job_cpus.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mkdir -p /dev/pts /dev/shm /run/shared
mount -t devpts pts /dev/pts
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount -t tmpfs shm /dev/shm
# Uncached: the machine that emulates this host reads what is written here as it comes.
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=262144 shared /run/shared
# A host with a user space of its own is shown what else it takes of that machine.
for share in $(echo "${shares:-}" | tr , " "); do
	mkdir "/run/$share"
	mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 \
		"$share" "/run/$share"
done

# Where programs expect to write; what they write is gone with this host.
for dir in /tmp /root /var; do
	mkdir -p "/run/over$dir/up" "/run/over$dir/work"
	mount -t overlay -o "lowerdir=$dir,upperdir=/run/over$dir/up,workdir=/run/over$dir/work" \
		overlay "$dir" 2>/dev/null
done
# Swap, so that a guest's pages can be somewhere else.
mkswap /dev/ram0 >/dev/null && swapon /dev/ram0
echo -1 > /proc/sys/kernel/perf_event_paranoid
hostname host 2>/dev/null

# The kernel's command line sets it.
# shellcheck disable=SC2154
: "$job_cpus" "$mode"
# In vain if the command line left some of them off.
taskset -cp "$job_cpus" $$ >/dev/null 2>&1

. /run/shared/job_env
case $(uname -m) in
x86_64)
	tests=x86
	grep -q vmx /proc/cpuinfo && kvm=kvm_intel || kvm=kvm_amd
	modprobe -d "$BUILD_MODULES" "$kvm" || echo "KVM could not be loaded" ;;
aarch64)
	tests=arm64
	[ -e /dev/kvm ] || echo "KVM has not found EL2" ;;
esac

# QEMU before 8.1 may keep old code on one CPU when another patches it; QEMU's commit deba78709ae8
# mended that.  Linux patches perf's hook into the scheduler for the first event of a task, and out
# after the last; it patches KVM's hook for the first VM, and after the last.  A CPU without them
# would count no task's events, and would not load or put a vCPU.  So hold an event, and a VM, and
# patch while nothing else runs.
# shellcheck disable=SC2154
lacking=
if [ -n "$keep_hooks" ]; then
	# Wait until the process $1 has the file $2, which it gets when its hook is there.
	wait_for_file()
	{
		for _ in $(seq 300); do
			readlink "/proc/$1/fd/"* 2>/dev/null | grep -qxF "anon_inode:$2" && return
			kill -0 "$1" 2>/dev/null || break
			sleep 0.1
		done
		lacking="$lacking $2"
	}

	perf stat -i -e dummy -p $$ sleep infinity >/dev/null 2>&1 &
	wait_for_file $! '[perf_event]'
	if [ -e /dev/kvm ]; then
		# KVM_CREATE_VM
		perl -e 'open(KVM, "+<", "/dev/kvm") && ioctl(KVM, 0xae01, 0) && sleep' &
		wait_for_file $! kvm-vm
	fi
fi

if [ "$mode" = shell ]; then
	echo 1 > /proc/sys/kernel/printk
	cd "$BUILD_SELFTESTS" || cd /
	echo "This is the patched host. Here are the KVM selftests ($tests/guest_callchain_modes_test),"
	echo "perf is in the PATH, files in /run/shared are kept. Leave with exit or Ctrl-D."
	read -r tty _ < /proc/consoles
	setsid -c /bin/bash --norc -i <"/dev/$tty" >"/dev/$tty" 2>&1
elif [ -n "$lacking" ]; then
	echo "The host can't keep its hooks, nobody holds:$lacking" > /run/shared/output
	echo 1 > /run/shared/status
elif ! dmesg | grep -q "APIC timer disabled due to verification failure"; then
	# The console is read to see whether this kernel complains.
	echo 7 > /proc/sys/kernel/printk
	cd /tmp || exit
	# By a pipe: what reopens its own standard output must not start over.
	{ sh /run/shared/job; echo $? > /run/shared/status; } 2>&1 </dev/null |
		cat > /run/shared/output
# Else the host is booted again.
fi

sync
umount /run/shared
busybox reboot -f >/dev/null 2>&1
