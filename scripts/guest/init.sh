#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The init of the emulated host.  The kernel's command line sets $mode: "job" runs
# /run/shared/job, "shell" runs a shell for a person; both run on the CPUs $job_cpus.
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
# Uncached, so that the machine that emulates this host can read files while they are written.
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=262144 shared /run/shared
# A host with its own user space gets the other folders that it needs from that machine.
for share in $(echo "${shares:-}" | tr , " "); do
	mkdir "/run/$share"
	mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 \
		"$share" "/run/$share"
done

# Programs expect to write to these folders.  Their files are lost when this host ends.
for dir in /tmp /root /var; do
	mkdir -p "/run/over$dir/up" "/run/over$dir/work"
	mount -t overlay -o "lowerdir=$dir,upperdir=/run/over$dir/up,workdir=/run/over$dir/work" \
		overlay "$dir" 2>/dev/null
done
# Enable swap, so that a guest's pages can be swapped out.
mkswap /dev/ram0 >/dev/null && swapon /dev/ram0
echo -1 > /proc/sys/kernel/perf_event_paranoid
hostname host 2>/dev/null

# The kernel's command line sets both.
# shellcheck disable=SC2154
: "$job_cpus" "$mode"
# Ignore errors: the command line may have left these CPUs offline.
taskset -cp "$job_cpus" $$ >/dev/null 2>&1

. /run/shared/job_env
case $(uname -m) in
x86_64)
	tests=x86
	grep -q vmx /proc/cpuinfo && kvm=kvm_intel || kvm=kvm_amd
	modprobe -d "$BUILD_MODULES" "$kvm" || echo "KVM could not be loaded" ;;
aarch64)
	tests=arm64
	[ -e /dev/kvm ] || echo "There is no /dev/kvm: KVM has not found EL2" ;;
esac

# QEMU before 8.1 may run old code on one CPU after another CPU has patched it; QEMU's commit
# deba78709ae8 fixed that.  Linux patches the scheduler to call perf when the first event of a task
# is opened, and again after the last one; for KVM, it does so with the first and the last VM.  A
# CPU with the old code would not count tasks' events, and would not load or put vCPUs.  So open an
# event and a VM while nothing else runs, and keep both open.
# shellcheck disable=SC2154
lacking=
if [ -n "$keep_hooks" ]; then
	# Wait until the process $1 has opened the file $2: then its hook is patched in.
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
	echo "The host can't keep its code patched: these files can't be opened:$lacking" > /run/shared/output
	echo 1 > /run/shared/status
elif ! dmesg | grep -q "APIC timer disabled due to verification failure"; then
	# Print all messages but those for debugging: the console is searched for complaints.
	echo 7 > /proc/sys/kernel/printk
	cd /tmp || exit
	# Use a pipe: a program that reopens its standard output would overwrite a file.
	{ sh /run/shared/job; echo $? > /run/shared/status; } 2>&1 </dev/null |
		cat > /run/shared/output
# Otherwise there is no status, and the host is booted again.
fi

sync
umount /run/shared
busybox reboot -f >/dev/null 2>&1
