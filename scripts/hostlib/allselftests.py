# SPDX-License-Identifier: GPL-2.0-only
"""Run every KVM selftest of Linux, on the patched kernel and on one without our patches.

The results must be the same.  Tests whose results differ are run again, several times on
each kernel: in emulation, some of Linux's tests fail now and then.
"""

import re
from pathlib import Path
from typing import Dict, List, Set

from . import selftests
from .build import Build
from .emulated import EmulatedHost, pass_on
from .ui import Failure, say

# Timeout of a test, in seconds: twice that of its settings, because the host is emulated.
_TEST_TIMEOUT = 240
_DEADLINE = 4 * 3600

# How often a test whose results differ is run on each kernel, the first run included.
_TRIES = 4

_PROGRAM = re.compile(r"# selftests: kvm: (\S+)$")
_RESULT = re.compile(r"(?:# )*(ok|not ok) \d+ (.*)$")

# All outcomes that each test case has had in its runs, by its name.
Outcomes = Dict[str, Set[str]]


def outcomes(ktap: str) -> Dict[str, str]:
    """Return the outcome of each test program, and of each case, in one run."""
    found: Dict[str, str] = {}
    program = ""
    for line in ktap.splitlines():
        if match := _PROGRAM.match(line):
            program = match.group(1)
        elif match := _RESULT.match(line):
            name, _, directive = match.group(2).partition(" # ")
            if name.startswith("selftests: kvm: "):
                name = ""
            skipped = directive.upper().startswith("SKIP")
            found[f"{program} {name}".strip()] = "skipped" if skipped else match.group(1)
    return found


def run(build: Build, accel: str, results: Path, programs: List[str],
        kernel_args: str) -> Dict[str, str]:
    """Run test programs; if one crashes the host, boot again and run the others."""
    found: Dict[str, str] = {}
    left = list(programs)
    while left:
        text: List[str] = []

        def output(part: str) -> None:
            text.append(part)
            pass_on(part)

        try:
            EmulatedHost(build, accel, kernel_args).run(
                selftests.job(left, _TEST_TIMEOUT), results, _DEADLINE, output)
        except Failure as failure:
            say(str(failure))
        found.update(outcomes("".join(text)))
        done = 0
        while done < len(left) and left[done].split("/")[-1] in found:
            done += 1
        if done < len(left):
            found[left[done].split("/")[-1]] = "the host died"
            done += 1
        left = left[done:]
    return found


def differences(patched: Outcomes, unpatched: Outcomes) -> List[str]:
    """Return the test cases that never had the same outcome on both kernels."""
    return sorted(name for name in patched.keys() | unpatched.keys()
                  if not patched.get(name, {"missing"}) & unpatched.get(name, {"missing"}))


def _affected(names: List[str], programs: List[str]) -> List[str]:
    of_names = {name.split(" ")[0] for name in names}
    return [program for program in programs if program.split("/")[-1] in of_names]


def compare(patched: Build, unpatched: Build, accel: str, results: Path, kernel_args: str,
            only: str = "") -> bool:
    """Run all KVM selftests of Linux, or only some, on both kernels, and print what differs.

    Return True if nothing differs.
    """
    builds = (patched, unpatched)
    programs = unpatched.all_selftests()
    patched.all_selftests()
    programs = [program for program in programs
                if not only or program.split("/")[-1] in only.split()]
    if not programs:
        raise Failure(f"TESTS={only} names no KVM selftest of Linux")

    seen: List[Outcomes] = [{}, {}]
    left = programs
    for _ in range(_TRIES):
        for build, all_of_it in zip(builds, seen):
            say(f"{len(left)} programs on the kernel in {build.kernel}")
            for name, outcome in run(build, accel, results, left, kernel_args).items():
                all_of_it.setdefault(name, set()).add(outcome)
        left = _affected(differences(*seen), programs)
        if not left:
            break

    for outcome in ("ok", "not ok", "skipped", "the host died"):
        counts = [sum(outcome in found for found in all_of_it.values()) for all_of_it in seen]
        say(f"{outcome}: {counts[0]} cases with our patches, {counts[1]} without")
    differing = differences(*seen)
    for name in differing:
        say(f"differs: {name}: {seen[0].get(name, 'missing')} with our patches, "
            f"{seen[1].get(name, 'missing')} without")
    say(f"{len(seen[1])} cases of {len(programs)} programs, {len(differing)} differ")
    return not differing
