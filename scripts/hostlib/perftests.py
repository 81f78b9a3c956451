# SPDX-License-Identifier: GPL-2.0-only
"""Run what perf test has of ours; it needs perf and no host."""

import os
import re
import subprocess
from pathlib import Path

from .build import Build
from .selftests import Counts
from .ui import Step, say

# By their titles, as perf test takes them.
_TITLES = ("Deferred callchains", "Callchains of guests", "Unwinding guests' kernels by ORC")

_RESULT = re.compile(r"\s*[\d.]+: (.+?)\s*: (Ok|FAILED!|Skip)")


def count(title: str, output: str) -> Counts:
    """Count the tests in what perf test prints of one title: one at least must pass."""
    counts = Counts()
    for name, result in _RESULT.findall(output):
        if result == "Ok":
            counts.passed += 1
        else:
            counts.failed += 1
            counts.remarks.append(f"failed: perf test: {name}: {result}")
    if not counts.passed and not counts.failed:
        counts.failed = 1
        counts.remarks.append(f"failed: perf has no test called {title}")
    return counts


def run(build: Build, folder: Path) -> Counts:
    """Run all of them, and leave their output in a folder."""
    # The shell tests lie beside perf's source, and call the perf on the path.
    env = {**os.environ, "PATH": f"{build.perf.parent}:{os.environ['PATH']}"}
    counts = Counts()
    for title in _TITLES:
        with Step(f"perf test: {title}"):
            output = subprocess.run(
                [str(build.perf), "test", "-v", title], cwd=build.tree.path / "tools/perf",
                env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False).stdout
        with (folder / "perf-test.log").open("a") as log:
            log.write(output)
        counts.add(count(title, output))
    say(f"perf test: {counts}")
    return counts
