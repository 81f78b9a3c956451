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
    """Write one mail for each patch, with its new files, and a cover letter for each series.

    All users get the same bytes.  Who posts a series takes the branch of "make branch", and signs
    off there.

    Args:
        folder: gets a folder for each series

    Returns:
        the folders of all series, in the order in which "git am" must apply them
    """
    tree = Tree(build, top=top)
    tree.assemble(source)
    posted = patches.posted(top)
    every = patches.topics(top)
    with Step(f"Write {len(posted)} series"), tempfile.TemporaryDirectory() as tmp:
        repo = Repository(Path(tmp))
        repo.init()
        # .gitattributes tells git how to find the function that a hunk is in.
        linux = patches.touched(topic.patch for topic in every) | {".gitattributes"}
        for path in linux:
            if tree.original(source, path).is_file():
                patches.copy(tree.original(source, path), repo.path / path)
        base = repo.commit_all(f"Linux {LINUX}")
        branch.add_commits(repo, base, top)
        befores = [base, *(f"series/{name}" for name in posted)]
        return [_format(repo, number, series, before, folder)
                for number, (before, series) in enumerate(zip(befores, posted), 1)]


def _format(repo: Repository, number: int, series: str, before: str, folder: Path) -> Path:
    mails = folder / f"{number}-{series}"
    shutil.rmtree(mails, ignore_errors=True)
    repo.git("checkout", "-q", "--force", f"series/{series}")
    repo.git("-c", "core.abbrev=12", "format-patch", "-q", "--cover-letter",
             "--cover-from-description=subject", "--zero-commit", "--no-signature",
             "--no-numbered", "-o", str(mails),
             f"{before}..series/{series}")
    # "git am" would fail on the cover letter.
    (mails / "0000-cover-letter.patch").rename(mails / "cover-letter.txt")
    return mails
