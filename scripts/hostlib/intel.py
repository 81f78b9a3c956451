# SPDX-License-Identifier: GPL-2.0-only
"""Run the KVM selftests on the emulated Intel host."""

from pathlib import Path
from typing import Callable, List

from . import selftests
from .bochs import BochsMachine
from .build import Build
from .machine import pass_on
from .ui import Failure

# For one boot, and, in Bochs' time, for one of its tests.
_DEADLINE = 2 * 3600
_TEST_TIMEOUT = 600

_MODULES = ("guest_callchain/test_pmi.ko", "guest_callchain/test_guest_walk.ko")

# The kernel's runner, kselftest/runner.sh, needs more programs than this host has.
_JOB = """
cd "$BUILD_SELFTESTS" || exit
insmod guest_callchain/test_pmi.ko && export KVM_SELFTEST_NMI_PMU=test_pmi
# In vain otherwise, Bochs' CPUs wait for the guest to set it.
export KVM_SELFTEST_NEEDS_IF=1
echo "TAP version 13"
echo "1..{number}"
number=0 failed=0
for test in {tests}; do
	number=$((number + 1))
	name="$number selftests: kvm: ${{test##*/}}"
	echo "# selftests: kvm: ${{test##*/}}"
	(cd "${{test%/*}}" && timeout {timeout} "./${{test##*/}}"; echo $? > /tmp/status) 2>&1 |
		sed "s/^/# /"
	status=$(cat /tmp/status)
	case $status in
	0)	echo "ok $name" ;;
	4)	echo "ok $name # SKIP" ;;
	*)	echo "not ok $name # exit=$status"; failed=1 ;;
	esac
done
exit $failed
"""


def job(tests: List[str], timeout: int) -> str:
    """The script that runs test programs on the host, for so many seconds each at most."""
    return _JOB.format(number=len(tests), tests=" ".join(tests), timeout=timeout)


def run(build: Build, results: Path, kernel_args: str = "", only: str = "",
        show: Callable[[str], None] = pass_on) -> str:
    """Run all selftests, or some, in one boot, show their KTAP, and return it."""
    text: List[str] = []

    def output(part: str) -> None:
        text.append(part)
        show(part)

    tests = selftests.choose(only)
    outcome = BochsMachine(build, kernel_args).run(
        job(tests, _TEST_TIMEOUT), [*tests, *_MODULES], results, _DEADLINE, output)
    ktap = "".join(text)
    (results / "selftests.ktap").write_text(ktap)
    if outcome.status and "\nnot ok " not in ktap:
        raise Failure(f"The tests did not run to their end; see {outcome.console}")
    return ktap
