# SPDX-License-Identifier: GPL-2.0-only
"""Run the KVM selftests on the emulated Intel host."""

from pathlib import Path
from typing import Callable, List

from . import bochs, selftests
from .build import Build
from .emulated import pass_on

# In seconds: for one boot, by the real clock, and for one of its tests, by Bochs' clock.
_DEADLINE = 2 * 3600
_TEST_TIMEOUT = 600

_MODULES = ("guest_callchain/test_pmi.ko", "guest_callchain/test_guest_walk.ko")

_PREPARE = selftests.MOUNT + """
insmod guest_callchain/test_pmi.ko && export KVM_SELFTEST_NMI_PMU=test_pmi
# The registers of a device, Bochs' HPET, which this kernel does not use.
export KVM_SELFTEST_DEVICE=0xfed00000
# Nobody else uses KVM here.
export KVM_SELFTEST_RELOAD=1 KVM_SELFTEST_HOTPLUG=1
"""

# The kernel's runner, kselftest/runner.sh, needs more programs than this host has.
_JOB = """
cd /selftests || exit
{prepare}
echo "TAP version 13"
echo "1..{number}"
number=0 failed=0
for test in {tests}; do
	number=$((number + 1))
	program=${{test##*/}}
	name="$number selftests: kvm: $program"
	echo "# selftests: kvm: $program"
	# Kill test cases that are left over, which would keep the pipe open.
	(cd "./${{test%"$program"}}" && timeout {timeout} "./$program"; echo $? > /tmp/status
	 killall -KILL "$program" 2>/dev/null) 2>&1 | sed "s/^/# /"
	status=$(cat /tmp/status)
	case $status in
	0)	echo "ok $name" ;;
	4)	echo "ok $name # SKIP" ;;
	*)	echo "not ok $name # exit=$status"; failed=1 ;;
	esac
done
exit $failed
"""


def job(tests: List[str], timeout: int, prepare: str = "") -> str:
    """Return a script that runs test programs on the host, and ends each after timeout seconds."""
    return _JOB.format(prepare=prepare, number=len(tests), tests=" ".join(tests), timeout=timeout)


def run(build: Build, results: Path, kernel_args: str = "", only: str = "",
        timeout: int = _TEST_TIMEOUT, deadline: int = _DEADLINE,
        show: Callable[[str], None] = pass_on) -> str:
    """Run all selftests, or some, in one boot, show their KTAP, and return it."""
    tests = selftests.choose(build, only)
    files = {f"selftests/{name}": build.selftests / name for name in [*tests, *_MODULES]}
    return selftests.keep(results, show, lambda output: bochs.run(
        build, kernel_args, job(tests, timeout, _PREPARE), files, results, deadline, output))
