# SPDX-License-Identifier: GPL-2.0-only
"""Run our tests in perf test: on this machine, or on an emulated host of another architecture."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import List

from .build import Build
from .emulated import EmulatedHost
from .selftests import Counts
from .ui import Step

# The titles of our tests, as perf test takes them, and how many subtests each title has.
_TITLES = {"Deferred callchains": 2, "Callchains of guests": 1,
           "Unwinding guests' kernels by ORC": 8, "Sample parsing": 1,
           "Stacks of guests": 20, "User mode of guests in callchains": 3,
           "Reads of guests": 6, "Kernels of guests": 12, "Modules of guests": 4,
           "Programs of guests": 9, "Tasks of guests": 11, "Memory of guests": 4,
           "Directory of guests' files": 3, "Processes that read guests": 7,
           "Samples of guests": 19}

_PASSED = re.compile(r"^\s*[\d.]+: .+?\s*: Ok$", re.MULTILINE)
_BAD = re.compile(r"^\s*[\d.]+: (.+?)\s*: ((?:FAILED!|Skip).*)$", re.MULTILINE)

# These need Python and x86 guests, which hosts of other architectures don't have.
_X86_ONLY = ("Callchains of guests", "Reads of guests", "Kernels of guests", "Modules of guests",
             "Programs of guests", "Tasks of guests", "Memory of guests",
             "Directory of guests' files")

# A function for the emulated host, which runs the tests with the title $1 and writes $1.log.
_THERE = """
perf_test()
{
	perf test -v "$1" > "/tmp/$1.log" 2>&1 </dev/null
	echo "$? $1"
	cp "/tmp/$1.log" /run/shared/
}
"""
_THERE_DEADLINE = 900

# Timeout of one title, in seconds; usually it takes one second.
_DEADLINE = 300


def count(title: str, status: int, output: str) -> Counts:
    """Count the tests of one title: all of them must pass.

    Args:
        title: as in _TITLES
        status: perf's exit status
        output: perf's output
    """
    bad = _BAD.findall(output)
    counts = Counts(len(_PASSED.findall(output)), len(bad), remarks=[
        f"failed: perf test: {name}: {result}" for name, result in bad])
    if not bad and (status or counts.passed != _TITLES[title]):
        counts.failed += 1
        counts.remarks.append(f"failed: perf test: {title}: exit status {status}, "
                              f"{counts.passed} of {_TITLES[title]} passed")
    return counts


def run(build: Build, folder: Path) -> Counts:
    """Run all our tests in perf test, and write their output to a folder."""
    # perf test takes the shell tests from perf's source, and these call the perf in $PATH.
    env = {**os.environ, "PATH": f"{build.perf.parent}:{os.environ['PATH']}"}
    counts = Counts()
    for title in _TITLES:
        log = folder / f"{title}.log"
        with Step(f"perf test: {title}"), log.open("w") as out:
            try:
                status = subprocess.run(
                    [str(build.perf), "test", "-v", title], cwd=build.tree.path / "tools/perf",
                    env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    timeout=_DEADLINE, check=False).returncode
            except subprocess.TimeoutExpired:
                status = 1
        counts.add(count(title, status, log.read_text(errors="replace")))
    return counts


def run_there(build: Build, accel: str, folder: Path) -> Counts:
    """Run the tests on an emulated host of another architecture, with that host's perf."""
    titles = [title for title in _TITLES if title not in _X86_ONLY]
    said: List[str] = []
    job = _THERE + "".join(f"perf_test {shlex.quote(title)}\n" for title in titles)
    with Step(f"perf test, on the {build.arch.name} host"):
        EmulatedHost(build, accel).run(job, folder, _THERE_DEADLINE, said.append)
    counts = Counts()
    for title in titles:
        ended = re.search(rf"^(\d+) {re.escape(title)}$", "".join(said), re.MULTILINE)
        log = folder / f"{title}.log"
        counts.add(count(title, int(ended[1]) if ended else 1,
                         log.read_text(errors="replace") if log.exists() else ""))
    return counts
