# SPDX-License-Identifier: GPL-2.0-only
"""Test the tests: break the kernel in one place at a time, and see which test notices.

A mutant is a patch against the assembled tree, in patches/mutants; the README there
describes its header.
"""

import email.parser
import itertools
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple, Union

from . import intel, patches, selftests
from .arch import ARCHS, X86, Arch
from .build import INSTRUMENT_TESTS, PERF_EVENTS_TEST, TEST_32BIT, Build, our_selftests
from .emulated import Complaint
from .options import by_turns
from .patches import REPO
from .source import Source
from .tree import Tree
from .ui import Failure, Step, host_folder, say

MUTANTS = REPO / "patches" / "mutants"

_HEADERS = {"Breaks", "Tests", "Arch", "Vendor", "Config", "Kargs", "Survives"}

# The only folders in which a mutant may change files: for these, it is enough to build the
# kernel, and assembling the tree again undoes the change.
_KERNEL = ("arch/", "include/linux/", "kernel/", "virt/")

# The possible results for a mutant.
NOTICED = "noticed"
EXCUSED = "survived with a reason"
STALE = "noticed against its reason"
SURVIVED = "SURVIVED"
ERROR = "ERROR"


@dataclass(frozen=True)
class Mutant:
    """A patch that breaks something.

    Args:
        name: name of its file, without ".patch"
        breaks: what it breaks
        tests: the programs that should notice
        survives: why none of them can notice; empty if one should
        vendor: vendor of the host's CPU, as for VENDOR=
        config: a fragment for the kernel's configuration, as a path in the repository
        kargs: arguments for the kernel's command line
        patch: its file
        touched: the files that it changes, as paths in Linux
        arch: architecture of the host, as for ARCH=
    """
    name: str
    breaks: str
    tests: Tuple[str, ...]
    survives: str
    vendor: str
    config: str
    kargs: str
    patch: Path
    touched: Tuple[str, ...]
    arch: str = X86.name

    @property
    def host(self) -> Tuple[str, str, str]:
        """The host's traits. Mutants with equal traits share a build and a run without mutants."""
        return self.vendor, self.config, self.kargs


def parse(patch: Path) -> Mutant:
    """Read a mutant: its header has the format of a mail's, its body is the diff."""
    mail = email.parser.Parser().parsestr(patch.read_text())
    header = {key: " ".join(value.split()) for key, value in mail.items()}
    diff = mail.get_payload()
    wrong = ""
    if set(header) - _HEADERS:
        wrong = f"its header has an unknown {', '.join(sorted(set(header) - _HEADERS))}"
    elif not header.get("Breaks") or not header.get("Tests"):
        wrong = "its header needs Breaks and Tests"
    elif not diff.startswith("diff --git "):
        wrong = 'after its header and an empty line, its diff must begin with "diff --git"'
    touched = tuple(re.findall(r"^\+\+\+ b/(\S+)", diff, re.MULTILINE))
    ours = [*our_selftests(X86.name), PERF_EVENTS_TEST, TEST_32BIT, *INSTRUMENT_TESTS]
    known = {test.split("/")[-1] for test in ours}
    tests = tuple(header.get("Tests", "").split())
    if set(tests) - known:
        wrong = f"these are not tests of ours: {', '.join(sorted(set(tests) - known))}"
    elif not all(path.startswith(_KERNEL) for path in touched):
        wrong = f"it changes more than the kernel's code: {', '.join(touched)}"
    config = header.get("Config", "")
    if config and not (REPO / config).is_file():
        wrong = f"its Config, {config}, is no file"
    vendor = header.get("Vendor", "amd")
    if vendor not in ("amd", "intel"):
        wrong = f"its Vendor, {vendor}, is neither amd nor intel"
    arch = header.get("Arch", X86.name)
    if arch not in ARCHS:
        wrong = f"its Arch, {arch}, is not one of {', '.join(ARCHS)}"
    if wrong:
        raise Failure(f"{patch.name} is not a valid mutant: {wrong}")
    return Mutant(patch.stem, header["Breaks"], tests, header.get("Survives", ""), vendor,
                  config, header.get("Kargs", ""), patch, touched, arch)


def parse_all(folder: Path = MUTANTS) -> List[Mutant]:
    return [parse(patch) for patch in sorted(folder.glob("*.patch"))]


def choose(mutants: List[Mutant], names: str, today: str) -> List[Mutant]:
    """Return all mutants, those with these names, or as many as today says."""
    if names and today:
        raise Failure("MUTANTS= and TODAY= both choose mutants; use one of them")
    if names:
        unknown = set(names.split()) - {mutant.name for mutant in mutants}
        if unknown:
            raise Failure(f"There is no mutant {', '.join(sorted(unknown))}; the mutants are: "
                          + ", ".join(mutant.name for mutant in mutants))
        return [mutant for mutant in mutants if mutant.name in names.split()]
    return by_turns(mutants, today) if today else mutants


@dataclass
class Verdict:
    """The result for a mutant, and its cause: test cases, the excuse, or an error."""
    mutant: Mutant
    state: str
    by: str = ""

    @property
    def good(self) -> bool:
        return self.state not in (SURVIVED, ERROR)

    def __str__(self) -> str:
        return f"{self.mutant.name}: {self.state}: {self.by}"


def _shortened(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def judge(mutant: Mutant, before: Set[str], after: Union[Set[str], Complaint]) -> Verdict:
    """Judge a mutant by the cases that passed without it and with it, or by a complaint.

    Args:
        mutant: the mutant
        before: the cases that passed without it
        after: the cases that passed with it, or the complaint that ended the run
    """
    if isinstance(after, Complaint):
        by = str(after).split("; see ")[0]
    else:
        by = _shortened(before - after)
    if by:
        return Verdict(mutant, STALE if mutant.survives else NOTICED, by)
    if mutant.survives:
        return Verdict(mutant, EXCUSED, mutant.survives)
    return Verdict(mutant, SURVIVED, "none of " + " ".join(mutant.tests))


def table(verdicts: List[Verdict]) -> str:
    """All verdicts, the bad ones last, and how many there are of each kind."""
    order = (NOTICED, EXCUSED, STALE, SURVIVED, ERROR)
    listed = sorted(verdicts, key=lambda v: (order.index(v.state), v.mutant.name))
    states = [verdict.state for verdict in verdicts]
    counts = ", ".join(f"{states.count(state)} {state}" for state in order)
    return "\n".join([*map(str, listed), f"{len(verdicts)} mutants: {counts}"])


@dataclass
class Clock:
    """Measure how long each test takes, by the arrival of the KTAP lines that end tests."""
    last: float = field(default_factory=time.monotonic)
    seconds: Dict[str, float] = field(default_factory=dict)
    _line: str = ""

    def feed(self, part: str, now: Optional[float] = None) -> None:
        now = time.monotonic() if now is None else now
        *lines, self._line = (self._line + part).split("\n")
        for line in lines:
            end = re.match(r"(?:not )?ok \d+ selftests: \S+ (\S+)", line)
            if end:
                self.seconds[end[1]] = now - self.last
                self.last = now


class Noticed(Exception):
    """A case that passed without the mutant has failed: the run need not go on."""


@dataclass
class FirstFailure:
    """Read KTAP as it arrives, and raise Noticed when a case fails that passed before."""
    passed: Set[str]
    _line: str = ""

    def feed(self, part: str) -> None:
        *lines, self._line = (self._line + part).split("\n")
        for line in lines:
            failed = re.match(r"# not ok \d+ (\S+)$", line)
            if failed and failed[1] in self.passed:
                raise Noticed(failed[1])


# For each test, the status of each of its cases, as the KTAP parser names it.
_Statuses = Dict[str, Dict[str, str]]


class _Host:
    """A host that runs mutants of one build of the kernel.

    Raises Failure if the tests don't pass without a mutant.
    """

    def __init__(self, build: Build, vendor: str, accel: str, kargs: str, results: Path,
                 tests: Iterable[str]) -> None:
        self._build = build
        self._vendor = vendor
        self._accel = accel
        self._kargs = kargs
        self._results = results
        build.all()
        clock = Clock()
        self._before = self._test("unchanged", tests, clock.feed)
        self._seconds = clock.seconds
        failed = [case for cases in self._before.values() for case, status in cases.items()
                  if status not in ("SUCCESS", "SKIPPED")]
        if failed:
            raise Failure(f"{_shortened(failed)} failed without any mutant, so mutants can't be "
                          f"judged; correct this first, see {results / 'unchanged'}")

    def _test(self, name: str, tests: Iterable[str], show: Callable[[str], None],
              **limits: int) -> _Statuses:
        folder = self._results / name
        folder.mkdir(parents=True, exist_ok=True)
        with Step(f"Test {name}") as step:
            def feed(part: str) -> None:
                show(part)
                step.tick()

            only = " ".join(tests)
            if self._vendor == "intel":
                ktap = intel.run(self._build, folder, self._kargs, only, show=feed, **limits)
            else:
                ktap = selftests.run(self._build, self._accel, folder, self._kargs, only,
                                     show=feed, **limits)
        return {program: {case.name: case.status.name for case in cases} for program, cases in
                selftests.by_program(ktap, self._build.tree.path).items()}

    def try_out(self, mutant: Mutant) -> Verdict:
        seconds = [self._seconds.get(test, 0) for test in mutant.tests]
        # A test that hangs must time out before the deadline, which is for a kernel that hangs.
        # Both leave time for a busy machine.
        timeout = int(30 + 3 * max(seconds))
        deadline = int(30 + timeout + 2 * sum(seconds))
        if self._vendor == "intel":
            # The timeout is in seconds of Bochs' clock, which are longer; Bochs also boots slowly.
            deadline = 300 + 4 * deadline
        before = {test: self._before[test] for test in mutant.tests}
        try:
            self._build.assemble()
            patches.apply(mutant.patch, self._build.tree.path)
            self._build.changed_kernel()
            after = self._test(mutant.name, mutant.tests, FirstFailure(_passed(before)).feed,
                               timeout=timeout, deadline=deadline)
        except Noticed as noticed:
            return Verdict(mutant, STALE if mutant.survives else NOTICED, str(noticed))
        except Complaint as complaint:
            return judge(mutant, _passed(before), complaint)
        except Failure as failure:
            return Verdict(mutant, ERROR, str(failure))
        return judge(mutant, _passed(before), _passed(after))


def _passed(statuses: _Statuses) -> Set[str]:
    return {case for cases in statuses.values() for case, status in cases.items()
            if status == "SUCCESS"}


def unfit(mutants: List[Mutant], tree: Tree) -> List[Verdict]:
    """Return verdicts on the mutants that don't fit the assembled tree."""
    verdicts = []
    for mutant in mutants:
        with tempfile.TemporaryDirectory() as tmp:
            try:
                for path in mutant.touched:
                    if path not in tree.ours():
                        raise Failure(f"{path} is neither our file nor one that we patch")
                    (Path(tmp) / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(tree.path / path, Path(tmp) / path)
                patches.apply(mutant.patch, Path(tmp), why="the code that it breaks has "
                              "changed; adapt the mutant")
            except Failure as failure:
                verdicts.append(Verdict(mutant, ERROR, str(failure)))
    return verdicts


def run(folder: Path, source: Source, accel: str, results: Path, mutants: List[Mutant],
        chosen: List[Mutant], jobs: int = 0, arch: Arch = X86) -> bool:
    """Try the chosen ones of an architecture's mutants in a build folder, and print verdicts.

    Returns:
        true if all verdicts are good
    """
    def build(config: str) -> Build:
        return Build(folder, source, REPO / config if config else None, jobs=jobs, arch=arch)

    plain = build("")
    plain.assemble()
    verdicts = unfit(mutants, plain.tree)
    unfit_ones = [verdict.mutant for verdict in verdicts]
    # Sort mutants by host and changed files, so that less is rebuilt from one to the next.
    todo = sorted((mutant for mutant in chosen if mutant not in unfit_ones),
                  key=lambda mutant: (mutant.host, mutant.touched, mutant.name))
    try:
        for (vendor, config, kargs), group in itertools.groupby(todo, lambda mutant: mutant.host):
            trying = list(group)
            name = host_folder(vendor, Path(config) if config else None, kargs) or "host"
            host = _Host(build(config), vendor, accel, kargs, results / name,
                         sorted({test for mutant in trying for test in mutant.tests}))
            for mutant in trying:
                verdicts.append(host.try_out(mutant))
                say(str(verdicts[-1]))
    finally:
        plain.assemble()
        (results / "table.txt").write_text(table(verdicts) + "\n")
        say(table(verdicts))
    return all(verdict.good for verdict in verdicts)
