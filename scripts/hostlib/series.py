# SPDX-License-Identifier: GPL-2.0-only
"""Write the series that are posted as mails for "git am"."""

import shutil
import tempfile
from pathlib import Path
from typing import List

from . import branch, patches
from .git import Repository
from .patches import REPO
from .source import LINUX, Source
from .tree import Tree
from .ui import Step


def write(source: Source, build: Path, folder: Path, top: Path = REPO) -> List[Path]:
    """Write the mails of all series; see mails()."""
    with tempfile.TemporaryDirectory() as tmp:
        return mails(repository(source, build, Path(tmp), top), folder, top)


def mails(repo: Repository, folder: Path, top: Path = REPO) -> List[Path]:
    """Write one mail for each patch, with its new files, and a cover letter for each series.

    All users get the same bytes.  Who posts a series takes the branch of "make branch", and signs
    off there.

    Args:
        repo: a repository with all commits; its work tree changes
        folder: gets a folder for each series

    Returns:
        the folders of all series, in the order in which "git am" must apply them
    """
    posted = patches.posted(top)
    with Step(f"Write {len(posted)} series"):
        befores = [branch.BASE, *(f"series/{name}" for name in posted)]
        return [_format(repo, number, series, before, folder)
                for number, (before, series) in enumerate(zip(befores, posted), 1)]


def repository(source: Source, build: Path, folder: Path, top: Path = REPO) -> Repository:
    """Make a repository in a folder with all commits, and with no files that patches don't edit."""
    tree = Tree(build, top=top)
    tree.assemble(source)
    repo = Repository(folder)
    repo.init()
    # .gitattributes tells git how to find the function that a hunk is in.
    linux = patches.touched(topic.patch for topic in patches.topics(top)) | {".gitattributes"}
    for path in linux:
        if tree.original(source, path).is_file():
            patches.copy(tree.original(source, path), repo.path / path)
    repo.commit_all(f"Linux {LINUX}")
    repo.git("tag", branch.BASE)
    branch.add_commits(repo, branch.BASE, top)
    return repo


def _format(repo: Repository, number: int, series: str, before: str, folder: Path) -> Path:
    written = folder / f"{number}-{series}"
    shutil.rmtree(written, ignore_errors=True)
    repo.git("checkout", "-q", "--force", f"series/{series}")
    repo.git("-c", "core.abbrev=12", "format-patch", "-q", "--cover-letter",
             "--cover-from-description=subject", "--zero-commit", "--no-signature",
             "--no-numbered", "-o", str(written),
             f"{before}..series/{series}")
    # "git am" would fail on the cover letter.
    (written / "0000-cover-letter.patch").rename(written / "cover-letter.txt")
    return written
