# SPDX-License-Identifier: GPL-2.0-only
"""Turn patches and new files into series that "git am" takes."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import List

from .source import LINUX, Source
from .tree import PATCHES, REPO, Topic, Tree, apply_patch, new_files, patched_files, topics
from .ui import Failure, Step


def parts() -> List[List[Topic]]:
    """The patches of each series, in the order in which these are posted."""
    names = list(dict.fromkeys(topic.series for topic in topics()))
    return [[topic for topic in topics() if topic.series == name] for name in names]


def write(source: Source, build: Path, folder: Path, sender: str = "") -> List[Path]:
    """Write one mail for each patch, with its new files, and a cover letter for each series.

    Args:
        folder: gets a folder for each series
        sender: a name; if none is given, sender and sign-off are those of the git user

    Returns:
        these folders, in the order in which "git am" takes what is in them
    """
    written = []
    tree = Tree(build)
    tree.assemble(source)
    with Step("Write three series"), tempfile.TemporaryDirectory() as tmp:
        repo = Path(tmp)
        for path in patched_files():
            (repo / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree.original(source, path), repo / path)
        _git(repo, "init", "-q")
        if sender:
            _git(repo, "config", "user.name", sender)
            _git(repo, "config", "user.email", "nobody@example.com")
        _git(repo, "add", "-A")
        _git(repo, "commit", "-q", "-m", f"Linux {LINUX}")

        first = _first_versions(Path(tmp) / ".git" / "first")
        for number, part in enumerate(parts(), 1):
            name = part[0].series
            # The cover letter's text is the description of a branch.
            _git(repo, "checkout", "-q", "-b", name)
            _git(repo, "config", f"branch.{name}.description",
                 (PATCHES / f"cover-{name}.txt").read_text())
            for topic in part:
                _commit(repo, topic, first)
            mails = folder / f"{number}-{name}"
            _git(repo, "format-patch", "-q", "--cover-letter", "--cover-from-description=subject",
                 "-o", str(mails), f"{name}~{len(part)}..{name}")
            # "git am" would stumble over it.
            (mails / "0000-cover-letter.patch").rename(mails / "cover-letter.txt")
            written.append(mails)
    return written


def _commit(repo: Path, topic: Topic, first: Path) -> None:
    """Commit one patch, with its new files as the folder "first" has them."""
    apply_patch(topic.patch, repo)
    for path in topic.new_files:
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(first / path, repo / path)
    _git(repo, "add", "-A")
    _git(repo, "commit", "-q", "-s", "-F", "-", stdin=message(topic.patch))


def _first_versions(folder: Path) -> Path:
    """New files as the patches have them that bring them.

    The repository has them as the last patch leaves them.
    """
    for path in new_files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / path, folder / path)
    for topic in reversed(topics()):
        apply_patch(topic.patch, folder, lambda path: path in new_files(), reverse=True)
    return folder


def message(patch: Path) -> str:
    """The commit message at the head of a patch."""
    head = patch.read_text().split("\ndiff --git ", 1)[0]
    return re.sub(r"^Subject: ", "", head, count=1).strip() + "\n"


def _git(repo: Path, *args: str, stdin: str = "") -> None:
    result = subprocess.run(["git", *args], cwd=repo, input=stdin, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode:
        said = (result.stdout.strip() or "nothing").splitlines()[0]
        raise Failure(f"git {args[0]} failed, it says: {said}; the mails need your name: "
                      "git config --global user.name and user.email")
