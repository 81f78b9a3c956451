#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Find out which of Debian's packages are missing that commands need, and install them.
#
#   deps.sh need NAME...      offer to install what is missing; YES=1, or CI=true for root, accepts;
#                             fail if it is still missing
#   deps.sh python NAME...    the same, but only if there is no Python, which runs the commands
#   deps.sh install NAME...   install what is missing, after a question at a terminal
#
# NAMEs are those in deps.txt; "all" means all of them.  This needs only a shell, dpkg and sed.
set -u

table=$(dirname "$0")/deps.txt
tab=$(printf '\t')

fail()
{
	echo "$*"
	exit 1
}

# Print the packages that some names of deps.txt need, one a line.
expand()
{
	for word; do
		case $word in
		@*)
			line=$(sed -n "s/^${word#@}$tab//p" "$table")
			[ -n "$line" ] || echo "unknown:${word#@}"
			# shellcheck disable=SC2086
			expand $line ;;
		*)	echo "$word" ;;
		esac
	done
}

# Print the words that are no line of the first argument.
without()
{
	lines=$1
	shift
	rest=$(for word; do
		case "
$lines
" in
		*"
$word
"*)	;;
		*)	printf ' %s' "$word" ;;
		esac
	done)
	echo "${rest# }"
}

# Set $missing to the packages that $names need and that are not installed.
find_missing()
{
	# shellcheck disable=SC2046,SC2086
	wanted=$(expand $(printf '@%s ' python $names) | sort -u)
	case $wanted in
	*unknown:*)
		fail "deps: \"$(echo "$wanted" | sed -n 's/^unknown://p' | sed 1q)\" is not known; \"make\" lists the commands" ;;
	esac
	# shellcheck disable=SC2086
	there=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
		sed -n 's/^installed //p')
	# shellcheck disable=SC2086
	missing=$(without "$there" $wanted)
}

# Print the command that installs what $names need.
advice()
{
	rest='' more=''
	for name in $names; do
		case $name in
		arm64)	more="$more ARCH=arm64" ;;
		intel)	more="$more VENDOR=intel" ;;
		*)	rest="$rest${rest:+ }$name" ;;
		esac
	done
	case $rest in
	*" "*)	rest="\"$rest\"" ;;
	esac
	echo "make deps FOR=$rest$more"
}

can_be_root()
{
	[ "$(id -u)" = 0 ] || command -v sudo >/dev/null
}

as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

# Succeed if the caller has agreed in advance.
says_yes()
{
	[ "${YES:-}" = 1 ] || { [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ]; }
}

ask()
{
	says_yes || [ ! -t 0 ] || {
		printf 'deps: go on? [Y/n] '
		read -r answer || answer=n
		case $answer in
		[nN]*)	fail "deps: nothing was installed; \"$(advice)\" does it later." ;;
		esac
	}
}

do_install()
{
	required=$names names="$names extra"
	find_missing
	names=$required
	echo "deps: apt-get install $missing"
	can_be_root || fail "deps: only root can install packages, and there is no sudo; run \"$(advice)\" as root."
	ask
	# Finish an interrupted installation first, or apt refuses to go on.
	again="correct that (is the network up?), and run the same command again."
	if ! { as_root dpkg --configure -a && as_root apt-get update; }; then
		fail "deps: the packages could not be installed, see above; $again"
	fi
	# apt-get takes an unknown g++ for a pattern, and lists hundreds of packages that match it.
	# shellcheck disable=SC2086
	unknown=$(without "$(apt-cache show $missing 2>/dev/null | sed -n 's/^Package: //p')" $missing)
	[ -z "$unknown" ] || fail "deps: apt's sources do not have $unknown; $again"
	# shellcheck disable=SC2086
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install --yes --no-install-recommends $missing ||
		fail "deps: the packages could not be installed, see above; $again"
	find_missing
	[ -z "$missing" ] || fail "deps: still missing: $missing; install these by hand."
}

need()
{
	# Elsewhere, nobody knows which packages have what deps.txt lists; what is missing fails later.
	command -v dpkg-query >/dev/null || return 0
	find_missing
	[ -n "$missing" ] || return 0
	if can_be_root && { says_yes || [ -t 0 ]; }; then
		do_install
	else
		as=
		can_be_root || as=" as root, because there is no sudo"
		fail "missing: $missing; run \"$(advice)\"$as"
	fi
}

install_missing()
{
	command -v dpkg-query >/dev/null ||
		fail "deps: this is no Debian; install what has the programs and headers of the packages in $table."
	find_missing
	if [ -n "$missing" ]; then
		do_install
	else
		echo "deps: nothing is missing"
	fi
}

[ "$(uname -m)" = x86_64 ] || fail "this needs an x86-64 machine, but this one is $(uname -m)"
command=${1:-}
[ $# = 0 ] || shift
names=$*
case $names in
*[!a-z0-9\ -]*)	fail "deps: \"$names\" is not known; \"make\" lists the commands" ;;
esac
[ "$names" != all ] || names=$(sed -n "s/^\([a-z0-9-]*\)$tab.*/\1/p" "$table" | tr '\n' ' ')
case $command in
need)		need ;;
python)		command -v /usr/bin/python3 >/dev/null || command -v python3 >/dev/null || need ;;
install)	install_missing ;;
*)		fail "usage: deps.sh need|python|install NAME..." ;;
esac
