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
ffffffff81001010 guest_leaf ffffffff81002010 guest_mid ffffffff81003010 guest_root 1234 [unknown] \
5678 [unknown]
ffffffff91000001 [unknown] 400100 [unknown] 600200 vmm_run
ffffffff91000002 [unknown] 400100 [unknown] 600200 vmm_run
ffffffff81003010 guest_root
1234 [unknown] 5678 [unknown]
ffffffff81002010 guest_mid 21 (cookie)"

test_script() {
	check "perf script" "${expected}" "$(chains "${kallsyms}" -i "${dir}/mixed")"
	check "perf script warns about a lost callchain" \
	      "1 samples lack the deferred part of their callchain." \
	      "$(grep lack "${dir}/err")"

	# Where nothing is known of the guest, no sample is left out.
	check "perf script without names" "$(sed 's/guest_[a-z]*/[unknown]/g' <<< "${expected}")" \
	      "$(chains -i "${dir}/mixed")"

	check "perf script -D" "... guest read: root 0x2000
... guest regs: mask 0x80 ABI 64-bit
.... stack: 0 bytes from 0
.... interrupted stack: 0 bytes from 0
.... user registers: 168 bytes from 0xffffc90000003f58
.... user stack: 24 bytes from 0x7fff0000" \
	      "$(perf script -D -i "${dir}/mixed" 2>"${dir}/err" |
		 sed -n '/GUEST_READ/,/user stack/p' | grep -E '^\.\.\. guest|bytes from')"
}

# If perf record is killed, the header lacks the size of the data, and the last record is cut.
test_killed() {
	cp "${dir}/mixed" "${dir}/killed"
	dd if=/dev/zero of="${dir}/killed" bs=8 seek=6 count=1 conv=notrunc 2>/dev/null
	truncate -s -3 "${dir}/killed"
	check "perf script of a killed recording" "$(head -n -1 <<< "${expected}")" \
	      "$(chains "${kallsyms}" -i "${dir}/killed")"
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

	out=$(perf report -i "${dir}/mixed" --stdio 2>&1 >/dev/null | grep "not shown")
	check "perf report" "4 guest samples are not shown" "${out%%:*}"
	out=$(sed "s/.*'\(.*\)'.*/\1/" <<< "${out}")
	check "perf report says how to see them" "yes" \
	      "$(sh -c "${out} --stdio" 2>"${dir}/err" | grep -q '\[g\]' && echo yes)"

	out=$(perf report -i "${dir}/mixed" --stats 2>"${dir}/err" |
	      awk '/_DEFERRED|GUEST_READ/ { print $1, $3 }')
	check "perf report --stats" "CALLCHAIN_DEFERRED 4
GUEST_READ 1
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
0xffffffff81003010 guest_root [guest., 0x1234 - -, 0x5678 - -
0xffffffff91000001 - -, 0x400100 - -, 0x600200 vmm_run [JIT] t
0xffffffff91000002 - -, 0x400100 - -, 0x600200 vmm_run [JIT] t
0xffffffff81003010 guest_root [guest.
0x1234 - -, 0x5678 - -
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
	check "perf inject --aslr keeps deferred callchains" "4" \
	      "$(perf script -D -i "${dir}/injected" 2>/dev/null |
		 grep -c 'PERF_RECORD_CALLCHAIN_DEFERRED')"
	check "perf inject --aslr drops what was read of guests" "0" \
	      "$(perf script -D -i "${dir}/injected" 2>/dev/null |
		 grep -c 'PERF_RECORD_GUEST_READ')"
	check "perf inject --aslr hides addresses" "" \
	      "$(perf script -D -i "${dir}/injected" 2>/dev/null |
		 grep -E '^\.\.\.\.\. .*(ffffffff[89]1|00(4001|6002)00$|1234$)')"
}

# The new file has no records that older versions of perf don't know.
test_join() {
	perf inject --join-callchains -i "${dir}/mixed" -o "${dir}/joined" 2>"${dir}/err"
	# Samples are in the order of their times now, no matter which records they have waited for.
	check "perf inject --join-callchains" "$(sed -e '1{h;d}' -e '2G' -e 's/ 21 (cookie)//' \
						 <<< "${expected}")" \
	      "$(chains "${kallsyms}" -i "${dir}/joined")"
	check "perf inject --join-callchains leaves nothing deferred" "" \
	      "$(perf script -D -i "${dir}/joined" 2>/dev/null |
		 grep -E 'DEFERRED|GUEST_READ|ffffffffffff(fd80|f780|f600)')"
	check "perf inject --join-callchains leaves no attribute" "" \
	      "$(perf evlist -v -i "${dir}/joined" 2>/dev/null |
			grep -o 'guest_[cr][a-z]*\|defer_[a-z]*')"
}

# With --guest-code, a guest's sample has the maps of its VMM.  Don't unwind it by the VMM's stack.
test_dwarf() {
	if [ "$(uname -m)" != "x86_64" ] ||
	   ! perf version --build-options | grep -q "libdw-dwarf-unwind: \[ on"; then
		echo "perf script of --call-graph dwarf [Skipped]"
		return
	fi

	check "perf script of --call-graph dwarf" "\
ffffffff91000001 [unknown] 400100 [unknown]" \
	      "$(chains --guest-code -i "${dir}/dwarf")"
}

# Print the bits of attributes that are about callchains.
guest_bits() {
	awk '/^  (guest_(callchain|read)|defer_[a-z]*) / { print $1, $2 }' | sort -u
}

# Check that only perf kvm sets the attributes.  perf kvm tries them on any kernel.
test_record() {
	local mode out expected_bits

	if ! perf record -e cpu-clock:u -o "${dir}/data" true >/dev/null 2>&1; then
		echo "perf record [Skipped]"
		return
	fi

	for mode in fp fp,defer dwarf; do
		out=$(perf record -vv -e cpu-clock:u --call-graph "${mode}" -o "${dir}/data" \
		      true 2>&1 | grep guest_callchain)
		check "perf record --call-graph ${mode} leaves guests alone" "" "${out}"
	done

	out=$(perf kvm --guest record -vv -e cpu-clock:uG --call-graph orc -o "${dir}/data" \
		true 2>&1)
	case "$(uname -m)" in
	x86_64)	expected_bits="guest_callchain 1
guest_read 1" ;;
	*)	expected_bits="guest_callchain 1" ;;
	esac
	check "perf kvm record --call-graph orc" "${expected_bits}" "$(guest_bits <<< "${out}")"
	check "perf kvm record says what it gets" "1" \
	      "$(grep -c '^Callchains of guests: ' <<< "${out}")"

	# The default event has a modifier, too.
	out=$(perf kvm --host --guest record -vv -e cpu-clock:u -o "${dir}/data" true 2>&1)
	check "perf kvm --host --guest record" "" \
	      "$(grep -o 'exclude_\(host\|guest\)' <<< "${out}")"

	# There is no guest whose tasks could have names.
	out=$(perf kvm --guest record -vv -e cpu-clock:uG -g -o "${dir}/data" true 2>&1)
	check "perf kvm record" "guest_callchain 1" "$(guest_bits <<< "${out}")"

	# The kernel records callchains of guests as a whole, or not at all.
	for mode in "--call-graph dwarf" "-g --kernel-callchains" "-g --user-callchains"; do
		# shellcheck disable=SC2086  # There are two options.
		out=$(perf kvm --guest record -vv -e cpu-clock:uG ${mode} -o "${dir}/data" \
		      true 2>&1)
		check "perf kvm record ${mode}" "" "$(guest_bits <<< "${out}")"
	done
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
test_killed
test_report
test_json
test_inject
test_join
test_dwarf
test_record
test_top

cleanup
exit $err
