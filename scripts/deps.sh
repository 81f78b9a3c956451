#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Find out which programs, headers and modules that commands need are missing, and install them.
# deps.txt lists them.
#
#   deps.sh check NAME...     print what is missing and how to get it; fail if anything is missing
#   deps.sh need NAME...      the same, but offer to install it; YES=1, or CI=true for root, accepts
#   deps.sh python NAME...    the same, but only if there is no Python, which can't look then
#   deps.sh install NAME...   install what is missing, as root or by sudo
#
# A NAME is that of a command, or of a group in deps.txt; "all" means all groups.
#
# This needs only a shell and basic utilities, e.g. sed and sort.
set -u

here=$(dirname "$0")
tab=$(printf '\t')
PATH=$PATH:/usr/sbin:/sbin

fail()
{
	echo "$*"
	exit 1
}

# Set $distribution to the name of the distribution's column in deps.txt, $column to the column's
# number, and $install to the command that installs packages.
find_distribution()
{
	ID='' ID_LIKE='' PRETTY_NAME=''
	os_release=${OS_RELEASE:-/etc/os-release}
	# shellcheck disable=SC1090
	[ ! -r "$os_release" ] || . "$os_release"
	distribution='' column=0
	for id in $ID $ID_LIKE; do
		case $id in
		debian|ubuntu)		distribution=debian column=4 install="apt-get install" ;;
		fedora|rhel|centos)	distribution=fedora column=5 install="dnf install" ;;
		arch)			distribution=arch column=6 install="pacman -S" ;;
		*suse*)			distribution=suse column=7 install="zypper install" ;;
		alpine)			distribution=alpine column=8 install="apk add" ;;
		*)			continue ;;
		esac
		return
	done
}

# Set $PYTHON.  Prefer Debian's Python, because only that one finds Debian's modules.
find_python()
{
	[ -n "${PYTHON:=}" ] || PYTHON=/usr/bin/python3
	command -v "$PYTHON" >/dev/null || PYTHON=python3
}

compiles()
{
	for header; do
		echo "#include <$header>"
	done | gcc -fsyntax-only -x c - >/dev/null 2>&1
}

# Succeed if a file matches the pattern $1.
exists()
{
	# shellcheck disable=SC2086
	set -- $1
	[ -e "$1" ]
}

is_static()
{
	for file in "/bin/$1.static" "/bin/$1" "$(command -v "$1")"; do
		[ ! -x "$file" ] || ldd "$file" >/dev/null 2>&1 || return 0
	done
	return 1
}

# Succeed if the LLVM program $1 is new enough for everything that "make check ALL=1" compiles
# with it.  Debian has several versions beside each other, so also look for names with a version,
# e.g. clang-19.  18 is the highest minimum that Linux 7.3's scripts/min-tool-version.sh has for
# any architecture.
is_new_llvm()
{
	version=$("$1" --version 2>/dev/null |
		sed -n 's/.*\(version\|LLD\) \([0-9]\{1,\}\)\..*/\2/p' | sed 1q)
	[ "${version:-0}" -lt 18 ] || return 0
	version=18
	while [ $version -lt 40 ]; do
		! command -v "$1-$version" >/dev/null || return 0
		version=$((version + 1))
	done
	return 1
}

fuzzes()
{
	echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }' |
		clang -fsanitize=fuzzer -x c -o /dev/null - >/dev/null 2>&1
}

is_there()
{
	case $1 in
	cmd)	command -v "$2" >/dev/null ;;
	header)	[ -n "$all_headers" ] || compiles "$2" ;;
	python)	"$PYTHON" -c "import $2" >/dev/null 2>&1 ;;
	static)	is_static "$2" ;;
	file)	exists "$2" ;;
	fuzzer)	fuzzes ;;
	llvm)	is_new_llvm "$2" ;;
	*)	fail "deps.txt: unknown way \"$1\" to look for $2" ;;
	esac
}

# Print each line of deps.txt that belongs to one of $groups: how, what, and the package.
rows()
{
	while IFS=$tab read -r group how what debian fedora arch suse alpine; do
		case "$group$tab$what" in
		'#'*|*"$tab") continue ;;
		esac
		case " $groups " in
		*" $group "*|*" all "*) ;;
		*) continue ;;
		esac
		case $column in
		4) package=$debian ;;
		5) package=$fedora ;;
		6) package=$arch ;;
		7) package=$suse ;;
		8) package=$alpine ;;
		*) package=- ;;
		esac
		echo "$how$tab$what$tab$package"
	done < "$here/deps.txt" | sort -u
}

# Set $missing to the missing items of $groups, separated by commas; $packages to their packages;
# and $unknown to the missing items for which no package is known.
find_missing()
{
	missing='' packages='' unknown=''
	wanted=$(rows)
	# Usually all headers are there: then one run of the compiler is enough.
	all_headers=
	headers=$(echo "$wanted" | sed -n "s/^header$tab\([^$tab]*\)$tab.*/\1/p")
	# shellcheck disable=SC2086
	! compiles $headers || all_headers=1
	while IFS=$tab read -r how what package; do
		if [ -z "$how" ] || is_there "$how" "$what"; then
			continue
		fi
		[ "$how" != python ] || what="Python's $what"
		[ "$how" != static ] || what="a static $what"
		[ "$how" != llvm ] || what="a new $what"
		missing="$missing${missing:+, }$what"
		case $package in
		-)	unknown="$unknown${unknown:+, }$what"; continue ;;
		esac
		case " $packages " in
		*" $package "*) ;;
		*) packages="$packages${packages:+ }$package" ;;
		esac
	done <<END
$wanted
END
}

# Set $groups to the groups of the commands and groups $names, and $advice to the command that installs
# what they need.
resolve()
{
	groups=python advice='' more=''
	for name in $names; do
		found=$(sed -n "s/^$name$tab\([^$tab]*\)\$/\1/p" "$here/deps.txt")
		if [ -z "$found" ] && [ "$name" != all ]; then
			grep -q "^$name$tab" "$here/deps.txt" ||
				fail "deps: \"$name\" is not known; \"make\" lists the commands"
		fi
		groups="$groups ${found:-$name}"
		case $name in
		all)	more="$more ALL=1" ;;
		arm64)	more="$more ARCH=arm64" ;;
		intel)	more="$more VENDOR=intel" ;;
		*)	advice="$advice${advice:+ }$name" ;;
		esac
	done
	case $advice in
	*" "*)	advice=" FOR=\"$advice\"" ;;
	?*)	advice=" FOR=$advice" ;;
	esac
	advice="make deps$advice$more"
}

can_be_root()
{
	[ "$(id -u)" = 0 ] || command -v sudo >/dev/null
}

fail_unknown_system()
{
	fail "missing: $missing; install the packages that have these; their names on ${PRETTY_NAME:-this system} are not known here"
}

check()
{
	find_missing
	[ -n "$missing" ] || return 0
	[ -n "$distribution" ] || fail_unknown_system
	as=
	can_be_root || as=" as root, because there is no sudo"
	fail "missing: $missing; run \"$advice\"${packages:+, or \"$install $packages\"}$as${unknown:+; no package of ${PRETTY_NAME:-this system} is known for $unknown}"
}

# Run a command as root, by sudo if necessary.
as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

do_install()
{
	# shellcheck disable=SC2086
	case $distribution in
	debian)
		# Finish an interrupted installation first, or apt refuses to go on.
		as_root dpkg --configure -a &&
		as_root apt-get update &&
		as_root env DEBIAN_FRONTEND=noninteractive \
			apt-get install --yes --no-install-recommends $packages ;;
	fedora)	as_root dnf install --assumeyes $packages ;;
	arch)	as_root pacman -Sy --noconfirm --needed $packages ;;
	suse)	as_root zypper --non-interactive install $packages ;;
	alpine)	as_root apk add $packages ;;
	esac
}

# Succeed if the caller has agreed in advance.
says_yes()
{
	[ "${YES:-}" = 1 ] || { [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ]; }
}

need()
{
	find_missing
	if [ -n "$missing" ] && [ -n "$distribution" ] && can_be_root && { says_yes || [ -t 0 ]; }; then
		install_missing
	else
		check
	fi
}

install_missing()
{
	find_missing
	if [ -z "$missing" ]; then
		echo "deps: nothing is missing"
		return
	fi
	[ -n "$distribution" ] || fail_unknown_system
	if [ -n "$packages" ]; then
		# Bring what makes commands faster or better, too, if this system has it.
		required=$groups groups="$groups extra"
		find_missing
		groups=$required
		echo "deps: missing: $missing"
		echo "deps: $install $packages"
		can_be_root ||
			fail "deps: only root can install packages, and there is no sudo; run that as root."
		if [ -t 0 ] && ! says_yes; then
			printf 'deps: go on? [Y/n] '
			read -r answer || answer=n
			case $answer in
			[nN]*) fail "deps: nothing was installed; \"$advice\" does it later." ;;
			esac
		fi
		do_install || fail "deps: the packages could not be installed, see above; correct that (is the network up?), and run the same command again."
		find_missing
	fi
	[ -z "$missing" ] || fail "deps: still missing: $missing; install these by hand."
}

[ "$(uname -m)" = x86_64 ] ||
	fail "this needs an x86-64 machine, but this one is $(uname -m)"
find_distribution
find_python
command=${1:-}
[ $# = 0 ] || shift
names=$*
resolve
case $command in
check)		check ;;
need)		need ;;
python)		command -v "$PYTHON" >/dev/null || need ;;
install)	install_missing ;;
*)		fail "usage: deps.sh check|need|python|install NAME..." ;;
esac
