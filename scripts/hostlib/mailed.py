# SPDX-License-Identifier: GPL-2.0-only
"""Test the series from the mails alone: git am, build, boot, run tests."""

import shutil
import subprocess
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from . import perftests, selftests
from .build import CONFIGS, Build
from .check import Result
from .passed import Passed, digest
from .git import Repository
from .patches import INSTRUMENTS, SCRIPTS, topics
from .source import LINUX, Source
from .tree import Tree
from .ui import Failure, Step

_NAME = "git am of all, build, boot, selftests"

_TOOLS = ("gcc", "qemu-system-x86_64")

# A digest of this program's files, taken at the start, as they may be edited while it runs.
_CHECKER = digest(*(path.read_text() for path in (
    selftests.EXPECTED_SKIPS, SCRIPTS / "guest/init.sh",
    *sorted((SCRIPTS / "hostlib").glob("*.py")))))

# With this accelerator, tests may skip only the cases in the list of expected skips.
_ACCEL = "tcg"


def _inputs(source: Source, wanted: Tree, mails: Sequence[Path]) -> str:
    """Return a digest of the mails, and of all files and tools that build and test them."""
    files = [*mails, *(topic.patch for topic in topics() if topic.series == INSTRUMENTS), *sorted(CONFIGS.glob("host*.config")),
             *(wanted.path / path for path in sorted(wanted.new_files))]
    versions = [subprocess.run([tool, "--version"], stdout=subprocess.PIPE, text=True,
                               check=True).stdout for tool in _TOOLS]
    return digest(_NAME, source.name, _CHECKER, *versions,
                  *(path.read_text() for path in files))


def apply(source: Source, mails: Sequence[Path], folder: Path) -> Path:
    """Unpack Linux in a new folder, apply mails there, and return where the tree is."""
    tree = Tree(folder, patched=False, instruments=False)
    tree.assemble(source)
    repo = Repository(tree.path)
    with Step(f"git am of {len(mails)} mails"):
        repo.init()
        repo.commit_all(f"Linux {LINUX}")
        repo.git("am", "-q", *map(str, mails))
    return tree.path


def differences(built: Tree, wanted: Tree) -> List[str]:
    """Return which of our files, and of the files that we edit, differ between two trees."""
    def content(tree: Tree, path: str) -> Optional[Tuple[int, bytes]]:
        file = tree.path / path
        return (file.stat().st_mode & 0o100, file.read_bytes()) if file.exists() else None

    return [path for path in sorted(wanted.ours())
            if content(built, path) is None or content(built, path) != content(wanted, path)]


def _tests(build: Build, wanted: Tree, results: Path) -> List[str]:
    """Build a kernel, perf and selftests from the mails, run tests, and return what fails."""
    build.assemble()
    found = [f"{path} is not what make build makes of it"
             for path in differences(build.tree, wanted)]
    if found:
        return found
    build.all()
    perf = perftests.run(build, results)
    text = selftests.run(build, _ACCEL, results, show=lambda part: None)
    ours = selftests.count(text, build.tree.path,
                           selftests.expected_skips(_ACCEL, build.arch.name))
    for name, counts in (("perf test", perf), ("selftest", ours)):
        if not counts.passed:
            found.append(f"no {name} has passed")
        if counts.failed:
            found.extend([f"{name}: {counts}", *counts.remarks])
    return found


def run(source: Source, wanted: Tree, mails: Path, folder: Path, results: Path, passed: Passed,
        jobs: int) -> Result:
    """Apply the mails to unpatched Linux, then build and test the result.

    The instruments are laid over it: tests need their test PMU, which is in no mail.

    Args:
        source: the kernel's source
        wanted: the tree that make build makes
        mails: a folder with a subfolder of mails for each series
        folder: a folder to build in; it is made anew, and removed if all tests pass
        results: a new folder for the tests' output
        passed: checks that have passed and need not run again
        jobs: how many jobs run at once
    """
    for tool in _TOOLS:
        if not shutil.which(tool):
            return Result(_NAME, not_tried=f"there is no {tool}")
    paths = sorted(mails.rglob("*.patch"))
    key = _inputs(source, wanted, paths)
    if key in passed:
        return Result(_NAME, before=True)
    results.mkdir()
    # Objects of an earlier run may be newer than a file that a mail no longer edits.
    shutil.rmtree(folder, ignore_errors=True)
    try:
        tree = apply(source, paths, folder / "am")
        for path in (path for topic in topics() if topic.series == INSTRUMENTS
                     for path in topic.new_files):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(wanted.path / path, tree / path)
        complaints = _tests(Build(folder / "build", Source(str(tree), tree=tree), None,
                                  patched=False, jobs=jobs), wanted, results)
    except Failure as failure:
        complaints = [str(failure)]
    if not complaints:
        shutil.rmtree(folder, ignore_errors=True)
        passed.add(key)
    return Result(_NAME, complaints)
