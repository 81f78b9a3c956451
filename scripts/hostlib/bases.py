# SPDX-License-Identifier: GPL-2.0-only
"""Run a command with the series on another Linux, which BASE= names.

A folder in patches/ that has a file "base" stands for such a Linux.  The file is one line: the
version of that Linux, and the Debian package with its source.  The *.diff files beside it are
the differences in files of this repository.  The command runs in a copy of the repository with
these differences.  The copy is in the build folder.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Mapping, Sequence

from .source import THIS_BASE
from .tree import REPO
from .ui import Failure, Step, claim, run_logged

# Files and folders that are not copied.
_NOT_COPIED = (".git", ".*.lock", "__pycache__", "*.o", "*.ko", "*.cmd", "*.mod", "*.mod.c")


def folders(patches: Path = REPO / "patches") -> Dict[str, Path]:
    """The folders of all bases, by name."""
    return {base.parent.name.removeprefix("v"): base.parent
            for base in sorted(patches.glob("v*/base"))}


def _find(name: str) -> Path:
    known = folders()
    if name not in known:
        raise Failure(f"BASE={name} is unknown, known are {', '.join(known)}; omit it "
                      "to use the Linux that the patches are made for")
    return known[name]


def apply(base: Path, copy: Path) -> None:
    """Apply the differences of a base to a copy of the repository."""
    for diff in sorted(base.glob("*.diff")):
        done = subprocess.run(["patch", "-p1", "--fuzz=0", "--force", "--no-backup-if-mismatch",
                               "--reject-file=-", f"--input={diff}"], cwd=copy,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode:
            raise Failure(f"patches/{base.name}/{diff.name} does not apply: the file that "
                          f"it changes was edited; {done.stdout.strip().splitlines()[-1]}")
    shutil.copy2(base / "base", copy / THIS_BASE)


def _copy(base: Path, folder: Path, results: Path) -> Path:
    """Make or update the copy of the repository for a base, and return its path.

    Only files that differ are written.
    """
    copy, fresh = folder / "repository", folder / "repository.new"
    with Step(f"Lay patches/{base.name} over a copy of this repository"):
        shutil.rmtree(fresh, ignore_errors=True)
        top = shutil.ignore_patterns("build", "latest")

        def ignore(path: str, names: List[str]) -> "set[str]":
            within = top(path, names) if Path(path) in (REPO, REPO / "results") else set()
            return shutil.ignore_patterns(*_NOT_COPIED)(path, names) | within

        shutil.copytree(REPO, fresh, symlinks=True, ignore=ignore)
        apply(base, fresh)
        (fresh / "results" / "latest").symlink_to(results)
        run_logged("Update it", ["rsync", "-rlpc", "--delete", f"{fresh}/", f"{copy}/"],
                   folder / "log" / "base.log")
        shutil.rmtree(fresh)
    return copy


def without(argv: Sequence[str], *options: str) -> List[str]:
    """Arguments without some options and their values."""
    left: List[str] = []
    rest = iter(argv)
    for argument in rest:
        if argument in options:
            next(rest, None)
        elif not argument.startswith(tuple(f"{option}=" for option in options)):
            left.append(argument)
    return left


def run(name: str, build: Path, argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command of host.py on a base.

    Args:
        build: the build folder; the base gets one below it
        argv: the arguments of host.py
    """
    base = _find(name)
    folder = build / f"base-{name}"
    claim(folder / "repository")
    results = REPO / "results" / "latest" / f"base-{name}"
    results.mkdir(parents=True, exist_ok=True)
    copy = _copy(base, folder, results)
    return subprocess.run(
        [sys.executable, str(copy / "scripts" / "host.py"), *without(argv, "--base", "--build")],
        env={**environment, "BASE": "", "BUILD": str(folder)}, check=False).returncode
