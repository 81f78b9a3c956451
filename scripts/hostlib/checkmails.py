# SPDX-License-Identifier: GPL-2.0-only
"""Test the series from the mails alone: git am, build, boot, run tests."""

import shutil
from pathlib import Path
from typing import Callable, List, Sequence

from . import perftests, selftests
from .build import Build
from .check import Result
from .checkeach import BASE_COMMIT, check_out
from .git import Repository
from .patches import INSTRUMENTS
from .selftests import Counts
from .source import Source
from .ui import Failure, Step

_NAME = "git am of all, build, boot, selftests"

_TOOLS = ("gcc", "qemu-system-x86_64")

# With this accelerator, tests may skip only the cases in the list of expected skips.
_ACCEL = "tcg"


def apply(repo: Repository, mails: Sequence[Path], wanted: str) -> List[str]:
    """Apply mails to the unpatched Linux; return how the result differs from a commit."""
    repo.try_git("am", "--abort")
    check_out(repo, BASE_COMMIT)
    with Step(f"git am of {len(mails)} mails"):
        repo.git("am", "-q", *map(str, mails))
    return [f"git am makes another {path} than the patches do"
            for path in repo.git("diff", "--name-only", "--no-renames", wanted, "HEAD").split()]


def judge(perf: Counts, ours: Counts) -> List[str]:
    """Return complaints about the results of perf's tests and of the selftests."""
    found: List[str] = []
    for name, counts in (("perf test", perf), ("selftest", ours)):
        found += [] if counts.passed else [f"no {name} has passed"]
        found += [f"{name}: {counts}", *counts.remarks] if counts.failed else []
    return found


def build_and_test(tree: Path, folder: Path, results: Path, jobs: int) -> List[str]:
    """Build a kernel, perf and selftests from a tree, run tests, and return what fails."""
    # Objects of an earlier run may be newer than a file that a mail no longer edits.
    shutil.rmtree(folder, ignore_errors=True)
    build = Build(folder, Source(str(tree), tree=tree), None, patched=False, jobs=jobs)
    build.all()
    perf = perftests.run(build, results)
    text = selftests.run(build, _ACCEL, results, show=lambda part: None)
    found = judge(perf, selftests.count(text, build.tree.path, selftests.expected_skips(
        _ACCEL, build.arch.name)))
    if not found:
        shutil.rmtree(folder)
    return found


def run(repo: Repository, mails: Sequence[Path], series: str,
        test: Callable[[Path], List[str]]) -> Result:
    """Apply the mails to unpatched Linux, then build and test the result.

    The instruments are laid over it: tests need their test PMU, which is in no mail.

    Args:
        repo: a repository with the commits of branch.add_commits()
        series: the last series that is posted
        test: tests the tree in a folder, and returns complaints
    """
    for tool in _TOOLS:
        if not shutil.which(tool):
            return Result(_NAME, not_tried=f"there is no {tool}")
    instruments = f"series/{INSTRUMENTS}"
    try:
        found = apply(repo, mails, f"series/{series}")
        if not found:
            files = repo.git("diff", "--name-only", "--diff-filter=A", "--no-renames",
                             f"series/{series}", instruments).split()
            repo.git("checkout", instruments, "--", *files)
            found = test(repo.path)
        return Result(_NAME, found)
    except Failure as failure:
        return Result(_NAME, [str(failure)])
