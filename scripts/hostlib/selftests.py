# SPDX-License-Identifier: GPL-2.0-only
"""Run the KVM selftests on the emulated host, and count what they say."""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

from .build import SELFTESTS, Build
from .machine import Machine, pass_on
from .ui import Failure

# For one boot, and for one of its tests: twenty times what they take, for an
# emulated host that complains is slow, and so may be the machine around it.
_DEADLINE = 3600
_TEST_TIMEOUT = 900

# The kernel's own runner: timeouts, settings files and KTAP are its business.
_JOB = """
export BASE_DIR="$BUILD_TREE/tools/testing/selftests"
. "$BASE_DIR/kselftest/runner.sh"
cd "$BUILD_SELFTESTS"
# run_many names tests by their folder below BASE_DIR, and reads settings there.
DIR=kvm
kselftest_override_timeout={timeout}
ktap_print_header
ktap_set_plan {number}
failed=0
for test in {tests}; do
	run_one "$DIR" "$test" || failed=1
done
exit $failed
"""


@dataclass
class Counts:
    """How many tests passed, failed and were skipped, and why the latter."""
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


def run(build: Build, accel: str, results: Path, kernel_args: str = "",
        only: str = "", timeout: int = _TEST_TIMEOUT, deadline: int = _DEADLINE,
        show: Callable[[str], None] = pass_on) -> str:
    """Run all selftests, or some, in one boot, show their KTAP, and return it."""
    text: List[str] = []

    def output(part: str) -> None:
        text.append(part)
        show(part)

    tests = [test for test in SELFTESTS if not only or test.split("/")[-1] in only.split()]
    if not tests:
        raise Failure(f"TESTS={only} names none of our tests, which are "
                      + ", ".join(test.split("/")[-1] for test in SELFTESTS))
    job = _JOB.format(number=len(tests), tests=" ".join(tests), timeout=timeout)
    outcome = Machine(build, accel, kernel_args).run(job, results, deadline, output)
    ktap = "".join(text)
    (results / "selftests.ktap").write_text(ktap)
    if outcome.status and "\nnot ok " not in ktap:
        raise Failure(f"The tests did not run to their end; see {outcome.console}")
    return ktap


def _leaves(test: Any) -> Iterator[Any]:
    for sub in test.subtests:
        yield from _leaves(sub) if sub.subtests else [sub]


def by_program(ktap: str, tree: Path) -> Dict[str, List[Any]]:
    """The test cases of each program in the output of run(), by the kernel's own parser."""
    sys.path.insert(0, str(tree / "tools/testing/kunit"))
    import kunit_parser  # type: ignore[import-not-found]
    import kunit_printer  # type: ignore[import-not-found]
    sys.path.pop(0)

    # kselftest nests by "# ", the parser expects KTAP's indentation.
    lines = [re.sub(r"^# ", "    ", line) for line in ktap.splitlines()]
    parsed = kunit_parser.parse_run_tests(lines, kunit_printer.null_printer)
    return {program.name.split()[-1]: list(_leaves(program)) or [program]
            for program in parsed.subtests}


def cases(ktap: str, tree: Path) -> List[Any]:
    """The test cases in the output of run()."""
    return [case for program in by_program(ktap, tree).values() for case in program]


def count(ktap: str, tree: Path) -> Counts:
    """Count the test cases in the output of run()."""
    counts = Counts()
    for test in cases(ktap, tree):
        status = test.status.name
        if status == "SUCCESS":
            counts.passed += 1
        elif status == "SKIPPED":
            counts.skipped += 1
            counts.remarks.append(f"skipped: {test.name}: {test.skip_reason or 'no reason given'}")
        else:
            counts.failed += 1
            counts.remarks.append(f"failed: {test.name}")
    return counts
