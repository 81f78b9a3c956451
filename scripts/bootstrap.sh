#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Install the Debian packages that are missing, and those that are named as
# arguments.  Needs nothing but a shell.
set -eu

# What builds a kernel and perf, emulates the host, and draws the pictures.
packages="
	bc bison build-essential busybox-static ccache cpio debian-archive-keyring
	flex git kmod libdw-dev libelf-dev libssl-dev libtraceevent-dev libzstd-dev
	patch perl pkg-config python3 python3-matplotlib qemu-system-x86 rsync
	util-linux uuid-dev xz-utils
	$*
"

fail()
{
	echo "bootstrap: $*" >&2
	exit 1
}

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
	fail "this is not a Debian system; install by hand what provides:" $packages

[ "$(dpkg --print-architecture)" = amd64 ] ||
	fail "this needs an x86-64 machine, Debian calls that amd64; this one is $(dpkg --print-architecture)."

missing=
for package in $packages; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
		missing="$missing $package"
done
[ -n "$missing" ] || exit 0

install="apt-get install --yes --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
	as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	as_root="sudo"
elif command -v sudo >/dev/null && [ -t 0 ]; then
	as_root="sudo"
else
	fail "Debian packages are missing, and only root can install them. Run as root, then try again:
    apt-get update && $install"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "bootstrap: installing$missing"
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
# An interrupted installation is finished first, or apt refuses to go on.
$as_root dpkg --configure -a >"$log" 2>&1 || true
$as_root apt-get update >"$log" 2>&1 &&
	$as_root env DEBIAN_FRONTEND=noninteractive $install >"$log" 2>&1 || {
	tail -n 15 "$log" >&2
	fail "apt could not install the packages, see above; is the network up? Mend that and run the same command again."
}
