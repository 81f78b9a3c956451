# SPDX-License-Identifier: GPL-2.0-only
"""Run the KVM selftests on the emulated host, and count their results."""

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

from . import arm64, ktap
from .arch import ARM64
from .build import Build
from .emulated import UNUSED_DEVICE, EmulatedHost, Outcome, pass_on
from .patches import REPO
from .ui import Failure, say

EXPECTED_SKIPS = REPO / "scripts" / "expected-skips.txt"

# Seconds for one boot, and for one of its tests: twenty times what they need, because
# an emulated host with a kernel for debugging is slow, and this machine may be slow, too.
_DEADLINE = 3600
_TEST_TIMEOUT = 900

# arm64's emulation is slower, and one program has 127 tests.
_ARM64_SLOWER = 3

# Tests run in the kernel's own runner, which handles timeouts, settings files and KTAP.
_JOB = """
export BASE_DIR="$BUILD_TREE/tools/testing/selftests"
. "$BASE_DIR/kselftest/runner.sh"
cd "$BUILD_SELFTESTS"
{prepare}
# run_one names tests by their folder below BASE_DIR, and reads settings there.
DIR=kvm
kselftest_override_timeout={timeout}
ktap_print_header
ktap_set_plan {number}
failed=0
for test in {tests}; do
	run_one "$DIR" "$test"
	# 4: it was skipped.
	case $? in
	0|4) ;;
	*) failed=1 ;;
	esac
done
# Scan twice: objects that the second scan finds again are leaks; the console has their number.
leaks=/sys/kernel/debug/kmemleak
if [ -e $leaks ]; then
	sleep 6
	echo scan > $leaks
	echo scan > $leaks
	sed 's/^/# /' $leaks
fi
exit $failed
"""

# Mount what tests need.
MOUNT = """
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
"""

_PREPARE_OURS = MOUNT + """
# A PMU whose PMIs are NMIs; tests use a hardware counter instead if there is one.
insmod guest_callchain/test_pmi.ko && export KVM_SELFTEST_NMI_PMU=test_pmi
# A device that nobody uses, see emulated.py.
export KVM_SELFTEST_DEVICE={device:#x}
# Nobody else uses KVM here.
export KVM_SELFTEST_RELOAD=1 KVM_SELFTEST_HOTPLUG=1
"""


# The same for arm64's host.  It has a hardware counter; its test PMU can't send NMIs.
_PREPARE_ARM64 = MOUNT + """
case " $(cat /proc/cmdline) " in
*" irqchip.gicv3_pseudo_nmi=1 "*)
	dmesg | grep -q "using NMIs" || {{ echo "The PMU doesn't use pseudo-NMIs" >&2; exit 1; }} ;;
esac
export KVM_SELFTEST_DEVICE={device:#x}
# Nobody else uses a CPU here.
export KVM_SELFTEST_HOTPLUG=1
"""


@dataclass
class Counts:
    """How many tests passed, failed and were skipped, with remarks on the last two."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    remarks: List[str] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.remarks += other.remarks

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_test(counts: Counts, wrong: Iterable[str]) -> bool:
    """Count one test, which has passed if nothing was wrong; return true if it has passed."""
    remarks = list(wrong)
    counts.add(Counts(failed=1, remarks=remarks) if remarks else Counts(passed=1))
    return not remarks


def judge(title: str, cases: Dict[str, bool]) -> Counts:
    """Print which cases hold and which do not, and count them."""
    counts = Counts()
    for case, holds in cases.items():
        name = f"{title}: {case}"
        say(f"{'ok' if holds else 'not ok'}: {name}")
        count_test(counts, [] if holds else [f"failed: {name}"])
    return counts


@dataclass(frozen=True)
class ExpectedSkip:
    """Test cases that are skipped on this host, and why."""
    pattern: str
    reason: str


def expected_skips(accel: str, host: str,
                   path: Path = EXPECTED_SKIPS) -> Optional[List[ExpectedSkip]]:
    """Return the cases that an emulated host may skip.

    None means that it may skip any case: with KVM, it has this machine's CPU.

    Args:
        accel: how it is emulated: "tcg", "kvm" or "bochs"
        host: its traits, with spaces between them: its architecture, its kernel's arguments, its
            configuration's name, "intel"
        path: the list
    """
    if accel == "kvm":
        return None

    def here(where: str) -> bool:
        named = not {"any", *host.split()}.isdisjoint(where.lstrip("!").split(","))
        return named != where.startswith("!")

    expected = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            where, pattern, reason = line.split(None, 2)
            if all(map(here, where.split("+"))):
                expected.append(ExpectedSkip(pattern, reason))
    return expected


def job(tests: List[str], timeout: int, prepare: str = "") -> str:
    """Return a script that runs test programs on the host, and ends each after timeout seconds."""
    return _JOB.format(number=len(tests), tests=" ".join(tests), timeout=timeout,
                       prepare=prepare)


def choose(build: Build, only: str) -> List[str]:
    """Return the test programs that this kernel can run: all, or those that TESTS= names."""
    tests = {test.split("/")[-1]: test for test in build.tests}
    unknown = set(only.split()) - tests.keys()
    if unknown:
        raise Failure(f"This host has no test {', '.join(sorted(unknown))}; its tests are "
                      + ", ".join(tests))
    return [test for name, test in tests.items() if not only or name in only.split()]


def run(build: Build, accel: str, results: Path, kernel_args: str = "",
        only: str = "", timeout: int = 0, deadline: int = 0,
        show: Callable[[str], None] = pass_on) -> str:
    """Run all selftests, or some, in one boot, show their KTAP, and return it.

    Args:
        build: the host and its tests
        accel: QEMU's accelerator, "tcg" or "kvm"
        results: a folder for the output
        kernel_args: more arguments for the kernel's command line
        only: names of tests; if it is empty, all tests run
        timeout: how many seconds one test may take; 0 means enough for a busy machine
        deadline: how many seconds all tests may take; 0 means enough for a busy machine
        show: called with each part of the output
    """
    tests = choose(build, only)
    slower = _ARM64_SLOWER if build.arch is ARM64 else 1
    timeout = timeout or slower * _TEST_TIMEOUT
    deadline = deadline or slower * _DEADLINE
    prepare = (_PREPARE_ARM64.format(device=arm64.UNUSED_DEVICE) if build.arch is ARM64 else
               _PREPARE_OURS.format(device=UNUSED_DEVICE))
    host = EmulatedHost(build, accel, kernel_args, watch_device=True)
    return keep(results, show, lambda output: host.run(job(tests, timeout, prepare), results,
                                                       deadline, output))


def keep(results: Path, show: Callable[[str], None],
         run_job: Callable[[Callable[[str], None]], Outcome]) -> str:
    """Show the KTAP of a job as it comes, leave it in a folder even if the job fails; return it."""
    said: List[str] = []

    def output(part: str) -> None:
        said.append(part)
        show(part)

    try:
        outcome = run_job(output)
    finally:
        text = "".join(said)
        (results / "selftests.ktap").write_text(text)
    if outcome.status and "\nnot ok " not in text:
        raise Failure(f"The tests did not run to their end; see {outcome.console}")
    return text


def _leaves(test: Any) -> Iterator[Any]:
    for sub in test.subtests:
        yield from _leaves(sub) if sub.subtests else [sub]


def by_program(text: str, tree: Path) -> Dict[str, List[Any]]:
    """The test cases of each program in the output of run(), by the kernel's own parser."""
    programs: Dict[str, List[Any]] = {}
    for program in ktap.parse(text, tree).subtests:
        # If the host dies in the middle of a line, the last test may have no name.
        cases = programs.setdefault((program.name.split() or ["?"])[-1], [])
        leaves = list(_leaves(program))
        cases += leaves
        # A program may fail although its cases have passed, e.g. when it exits.
        if not leaves or (program.status.name not in ("SUCCESS", "SKIPPED") and
                          all(case.status.name in ("SUCCESS", "SKIPPED") for case in leaves)):
            cases.append(program)
    return programs


def cases(text: str, tree: Path) -> List[Any]:
    """The test cases in the output of run()."""
    return [case for program in by_program(text, tree).values() for case in program]


def _may_skip(name: str, expected: Optional[List[ExpectedSkip]]) -> bool:
    return expected is None or any(fnmatchcase(name, e.pattern) for e in expected)


def fail_unexpected(text: str, expected: Optional[List[ExpectedSkip]]) -> str:
    """Return KTAP in which unexpected skips are failures, as count() counts them."""
    def line(found: "re.Match[str]") -> str:
        return found[0] if _may_skip(found[3], expected) else f"{found[1]}not {found[2]}"
    return re.sub(r"^(# )(ok \d+ (\S+)) # SKIP\b.*$", line, text, flags=re.MULTILINE)


def count(text: str, tree: Path, expected: Optional[List[ExpectedSkip]] = None) -> Counts:
    """Count the test cases in the output of run(); unexpected skips count as failures."""
    counts = Counts()
    tests = cases(text, tree)
    for test in tests:
        status = test.status.name
        if status == "SUCCESS":
            counts.passed += 1
        elif status != "SKIPPED":
            counts.failed += 1
            counts.remarks.append(f"failed: {test.name}")
        elif _may_skip(test.name, expected):
            counts.skipped += 1
            counts.remarks.append(f"skipped: {test.name}: {test.skip_reason or 'no reason given'}")
        else:
            counts.failed += 1
            counts.remarks.append(f"failed, because it was skipped unexpectedly: {test.name}: "
                                  f"{test.skip_reason or 'no reason given'}")
    for e in expected or []:
        found = [test for test in tests if fnmatchcase(test.name, e.pattern)]
        if found and not any(test.status.name == "SKIPPED" for test in found):
            counts.remarks.append(f"no longer skipped here, correct {EXPECTED_SKIPS.name}: "
                                  f"{e.pattern}")
    return counts
