#!/bin/bash
# Callchains of guests
# SPDX-License-Identifier: GPL-2.0

# No KVM is needed: the samples are made up by lib/guest_callchains.py.

err=0
perf=$(command -v perf)
shelldir=$(dirname "$0")
generator="${shelldir}/lib/guest_callchains.py"
# shellcheck source=lib/setup_python.sh
. "${shelldir}"/lib/setup_python.sh

# perf looks here for the symbols of the sampled process.
jit_map=/tmp/perf-1073741824.map
dir=$(mktemp -d /tmp/perf-test-guest-callchains.XXXXXXXXXX)
cleanup() {
	trap - EXIT TERM INT
	rm -rf "${dir}" "${jit_map}"
}
trap_cleanup() {
	echo "Unexpected signal in ${FUNCNAME[1]}"
	cleanup
	exit 1
}
trap trap_cleanup EXIT TERM INT

kallsyms="--guestkallsyms=${dir}/kallsyms"
$PYTHON "${generator}" kallsyms "${dir}/kallsyms"
$PYTHON "${generator}" jit-map "${jit_map}"
$PYTHON "${generator}" mixed --vmm "${perf}" "${dir}/mixed"
$PYTHON "${generator}" dwarf --vmm "${perf}" "${dir}/dwarf"

# One line a sample, with what -F ip,sym prints of its callchain.
chains() {
	perf script "$@" -F ip,sym 2>"${dir}/err" |
		awk 'NF { line = line " " $0; next } { if (line) print line; line = "" }
		     END { if (line) print line }' |
		sed -e 's/[[:space:]]\+/ /g' -e 's/^ //'
}

check() { # title, expected, actual
	if [ "$2" = "$3" ]; then
		echo "$1 [Success]"
	else
		echo "$1 [Failed]"
		echo "expected:"; echo "$2"
		echo "actual:"; echo "$3"
		cat "${dir}/err"
		err=1
	fi
}

expected="\
ffffffff81001010 guest_leaf ffffffff81002010 guest_mid ffffffff81003010 guest_root 1234 [unknown]
ffffffff91000001 [unknown] 400100 [unknown] 600200 vmm_run
ffffffff91000002 [unknown] 400100 [unknown] 600200 vmm_run
ffffffff81001010 guest_leaf ffffffff81003010 guest_root
ffffffff81002010 guest_mid 21 (cookie)"

test_script() {
	check "perf script" "${expected}" "$(chains "${kallsyms}" -i "${dir}/mixed")"
	check "perf script warns about a lost callchain" \
	      "1 samples lack the deferred part of their callchain." \
	      "$(grep lack "${dir}/err")"
}

# With -G, perf begins with the caller, although the context marker stands before it in the chain.
test_report() {
	local out

	out=$(perf kvm --guest "${kallsyms}" -i "${dir}/mixed" report --stdio --no-children \
	      -G -s sym 2>"${dir}/err" | grep -A6 'guest_leaf$' | tr -d ' |-' | tr '\n' ' ')
	case "${out}" in
	*guest_root*guest_mid*guest_leaf*) out=yes ;;
	esac
	check "perf kvm report" "yes" "${out}"

	out=$(perf report -i "${dir}/mixed" --stats 2>"${dir}/err" |
	      awk '/_DEFERRED/ { print $1, $3 }')
	check "perf report --stats" "CALLCHAIN_DEFERRED 2
LOST_DEFERRED 1" "${out}"
}

test_json() {
	local out

	perf data convert --force --to-json "${dir}/json" "${kallsyms}" -i "${dir}/mixed" \
		>/dev/null 2>"${dir}/err"
	out=$($PYTHON - "${dir}/json" <<-EOF
		import json, sys
		for sample in json.load(open(sys.argv[1]))["samples"]:
		    print(*(f'{e["ip"]} {e.get("symbol", "-")} {e.get("dso", "-")[:7]}'
		            for e in sample["callchain"]), sep=", ")
	EOF
	)
	check "perf data convert" "\
0xffffffff81001010 guest_leaf [guest., 0xffffffff81002010 guest_mid [guest., \
0xffffffff81003010 guest_root [guest., 0x1234 - -
0xffffffff91000001 - -, 0x400100 - -, 0x600200 vmm_run [JIT] t
0xffffffff91000002 - -, 0x400100 - -, 0x600200 vmm_run [JIT] t
0xffffffff81001010 guest_leaf [guest., 0xffffffff81003010 guest_root [guest.
0xffffffff81002010 guest_mid [guest." "${out}"
}

test_inject() {
	perf inject -i "${dir}/mixed" -o "${dir}/injected" 2>"${dir}/err"
	check "perf inject" "${expected}" "$(chains "${kallsyms}" -i "${dir}/injected")"

	# Only deferred callchains hit the VMM.
	if readelf -n "${perf}" 2>/dev/null | grep -q "Build ID"; then
		for options in "-b" "-b --aslr"; do
			# shellcheck disable=SC2086  # There may be two options.
			perf inject ${options} -i "${dir}/mixed" -o "${dir}/injected" 2>"${dir}/err"
			check "perf inject ${options}" "${perf}" \
			      "$(perf buildid-list -i "${dir}/injected" 2>/dev/null |
				 cut -d' ' -f2)"
		done
	fi

	perf inject --aslr -i "${dir}/mixed" -o "${dir}/injected" 2>"${dir}/err"
	check "perf inject --aslr keeps deferred callchains" "2" \
	      "$(perf script -D -i "${dir}/injected" 2>/dev/null |
		 grep -c 'PERF_RECORD_CALLCHAIN_DEFERRED')"
	check "perf inject --aslr hides addresses" "" \
	      "$(perf script -D -i "${dir}/injected" 2>/dev/null |
		 grep -E '^\.\.\.\.\. .*(ffffffff[89]1|00(4001|6002)00$|1234$)')"
}

# With --guest-code, a guest's sample has the maps of its VMM.
test_dwarf() {
	if [ "$(uname -m)" != "x86_64" ] ||
	   ! perf version --build-options | grep -q "libdw-dwarf-unwind: \[ on"; then
		echo "perf script of --call-graph dwarf [Skipped]"
		return
	fi

	check "perf script of --call-graph dwarf" "\
ffffffff91000001 [unknown] 400100 [unknown]
ffffffff81001010 [unknown] ffffffff81003010 [unknown]" \
	      "$(chains --guest-code -i "${dir}/dwarf")"
}

# Check that only perf kvm sets the attributes.  perf kvm tries them on any kernel.
test_record() {
	local mode out

	if ! perf record -e cpu-clock:u -o "${dir}/data" true >/dev/null 2>&1; then
		echo "perf record [Skipped]"
		return
	fi

	for mode in fp fp,defer dwarf; do
		out=$(perf record -vv -e cpu-clock:u --call-graph "${mode}" -o "${dir}/data" \
		      true 2>&1 | grep guest_callchain)
		check "perf record --call-graph ${mode} leaves guests alone" "" "${out}"
	done

	out=$(perf kvm --guest record -vv -e cpu-clock:uG -g -o "${dir}/data" true 2>&1)
	check "perf kvm record" "defer_guest_callchain 1
defer_output 1
guest_callchain 1" \
	      "$(awk '/^  [a-z_]*(guest_callchain|defer_[a-z]*) / { print $1, $2 }' <<< "${out}" |
		 sort -u)"
	check "perf kvm record says what it gets" "1" \
	      "$(grep -c '^Callchains of guests: ' <<< "${out}")"

	out=$(perf kvm --guest record -vv -e cpu-clock:uG --call-graph fp,nodefer \
	      -o "${dir}/data" true 2>&1)
	check "perf kvm record --call-graph fp,nodefer" "guest_callchain 1" \
	      "$(awk '/^  [a-z_]*(guest_callchain|defer_[a-z]*) / { print $1, $2 }' <<< "${out}" |
		 sort -u)"
}

# perf top reads no perf.data file: use deferred callchains of the host.
test_top() {
	local pid callers

	if ! perf record -vv -e cpu-clock:u --call-graph fp,defer -o "${dir}/data" \
	     true >"${dir}/err" 2>&1 || grep -q "switching off deferred" "${dir}/err"; then
		echo "perf top [Skipped]"
		return
	fi

	perf test -w noploop 10 >/dev/null 2>&1 &
	pid=$!
	callers=$(timeout -s INT 5 perf top --stdio -d 1 -e cpu-clock:u -p ${pid} \
		  --call-graph fp,defer </dev/null 2>"${dir}/err" | grep -c '[ -]main$')
	kill ${pid}
	check "perf top --call-graph fp,defer" "yes" "$([ "${callers}" -gt 0 ] && echo yes)"
}

test_script
test_report
test_json
test_inject
test_dwarf
test_record
test_top

cleanup
exit $err
