# SPDX-License-Identifier: GPL-2.0-only
"""What "make check ALL=1" adds: it works on a git repository with a commit for each patch."""

import os
from pathlib import Path
from typing import Iterator, List

from . import branch, checkbuild, checkeach, checkmails, checksource, patches
from .check import Result
from .checkeach import BASE_COMMIT, check_out
from .git import Repository
from .patches import INSTRUMENTS
from .source import Source
from .tree import Tree
from .ui import say


def repository(source: Source, folder: Path, top: Path = patches.REPO) -> Repository:
    """Return a clean repository with the commits of all patches."""
    # A tree of the user's own has no version: it may have changed.
    make = branch.unpack_base if source.tree else branch.base_of
    repo = make(source, folder)
    branch.add_commits(repo, BASE_COMMIT, top)
    repo.git("clean", "-fdxq")
    return repo


def differences(one: Path, tree: Tree) -> List[str]:
    """Return which of the files that make build writes are others in a tree."""
    def content(path: Path) -> object:
        return path.exists() and (path.stat().st_mode & 0o100, path.read_bytes())

    return [f"make branch and make build have another {path}" for path in sorted(tree.ours())
            if content(one / path) != content(tree.path / path)]


def run(source: Source, tree: Tree, mails: Path, folder: Path, results: Path,
        jobs: int) -> Iterator[Result]:
    """Run all these checks.

    Args:
        tree: the tree that make build makes
        mails: a folder with a subfolder of mails for each series
        folder: a folder to work in
        results: a new folder for the tests' output
        jobs: how many jobs run at once; 0 for one for each CPU
    """
    jobs = jobs or os.cpu_count() or 1
    repo = repository(source, folder / "linux")
    check_out(repo, f"series/{INSTRUMENTS}")
    yield Result("one tree", differences(repo.path, tree))
    ours = checkbuild.our_lines(tree, source)
    yield from checkbuild.run(repo.path, ours, folder, jobs)
    posted = patches.posted()
    every = [topic for topic in patches.topics() if topic.series in posted]
    say(f"        Compile each of {len(every)} patches")
    yield from checkeach.run(repo, every, folder / "each", jobs)
    results.mkdir()
    yield checkmails.run(
        repo, sorted(mails.rglob("*.patch")), posted[-1],
        lambda linux: checkmails.build_and_test(linux, folder / "mailed", results, jobs))
    # Last, as coccinelle takes as long as all the others together.
    check_out(repo, f"series/{INSTRUMENTS}")
    yield from checksource.run(repo.path, set(tree.new_files), ours, folder, jobs)
