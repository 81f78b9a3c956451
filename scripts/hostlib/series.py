# SPDX-License-Identifier: GPL-2.0-only
"""Turn patches and new files into a series that "git am" takes."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from .source import SERIES, Source
from .tree import REPO, Tree, apply_patch, new_files, patched_files, topics
from .ui import Failure, Step


def write(source: Source, build: Path, folder: Path, sender: str = "") -> None:
    """Write one mail for each patch, with its new files, and a cover letter.

    Args:
        sender: a name; if none is given, sender and sign-off are those of the git user
    """
    tree = Tree(build)
    tree.assemble(source)
    with Step("Write the series"), tempfile.TemporaryDirectory() as tmp:
        repo = Path(tmp)
        for path in patched_files():
            (repo / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree.original(source, path), repo / path)
        _git(repo, "init", "-q")
        if sender:
            _git(repo, "config", "user.name", sender)
            _git(repo, "config", "user.email", "nobody@example.com")
        _git(repo, "add", "-A")
        _git(repo, "commit", "-q", "-m", f"Linux {SERIES}")

        first = _first_versions(Path(tmp) / ".git" / "first")
        for topic in topics():
            apply_patch(topic.patch, repo)
            for path in topic.new_files:
                (repo / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(first / path, repo / path)
            _git(repo, "add", "-A")
            _git(repo, "commit", "-q", "-s", "-F", "-", stdin=message(topic.patch))
        _git(repo, "format-patch", "-q", "--cover-letter", "-o", str(folder),
             f"HEAD~{len(topics())}")
        # To be filled in; "git am" would stumble over it.
        (folder / "0000-cover-letter.patch").rename(folder / "cover-letter.txt")


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
