# SPDX-License-Identifier: GPL-2.0-only
"""Turn patches and new files into series that "git am" takes."""

import filecmp
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List

from .source import LINUX, PINNED, SERIES, Source
from .tree import (PATCHES, REPO, Topic, Tree, apply_patch, git_environment, new_files,
                   patched_files, topics)
from .ui import Failure, Step


# The copy of the series in the repository, so that a reader needs no command of ours.
RELEASE = REPO / "series"

# A file there with the name of the source for which they were written: the context and the file
# digests in mails depend on it.
_MADE_WITH = "source"

# These mails have no sign-off, and do not depend on the git user's settings.
_RELEASE_SENDER = "Guest callchains"
_SETTINGS = (("core.attributesFile", os.devnull), ("core.excludesFile", os.devnull),
             ("core.hooksPath", os.devnull),
             # root may apply the mails to a copy of another user's tree.
             ("safe.directory", "*"),
             # Start no background process, which might still run when a repository is removed.
             ("gc.auto", "0"), ("maintenance.auto", "false"))
_RELEASE_ENV = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_ATTR_NOSYSTEM": "1", "GIT_TEMPLATE_DIR": "",
                "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
                **{f"GIT_CONFIG_{what}_{number}": setting[place]
                   for number, setting in enumerate(_SETTINGS)
                   for place, what in enumerate(("KEY", "VALUE"))}}


def parts() -> List[List[Topic]]:
    """Return the patches of each series, in the order in which the series are posted."""
    names = list(dict.fromkeys(topic.series for topic in topics()))
    return [[topic for topic in topics() if topic.series == name] for name in names]


def write(source: Source, build: Path, folder: Path, release: bool = False) -> List[Path]:
    """Write one mail for each patch, with its new files, and a cover letter for each series.

    Args:
        folder: gets a folder for each series
        release: write the same bytes for every user and at any time, without sign-off;
            otherwise the git user is the sender and signs off

    Returns:
        the folders of all series, in the order in which "git am" must apply them
    """
    written = []
    tree = Tree(build)
    tree.assemble(source)
    with Step("Write three series"), tempfile.TemporaryDirectory() as tmp:
        repo = Repository(Path(tmp), release)
        for path in patched_files():
            (repo.path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree.original(source, path), repo.path / path)
        repo.git("init", "-q")
        repo.git("add", "-A", "-f")
        repo.git("commit", "-q", "-m", f"Linux {LINUX}")

        first = _first_versions(repo.path / ".git" / "first")
        for number, part in enumerate(parts(), 1):
            name = part[0].series
            # git format-patch takes the cover letter's text from the description of a branch.
            repo.git("checkout", "-q", "-b", name)
            repo.git("config", f"branch.{name}.description",
                     (PATCHES / f"cover-{name}.txt").read_text())
            for topic in part:
                repo.commit(topic, first)
            mails = folder / f"{number}-{name}"
            repo.format_patches(mails, f"{name}~{len(part)}..{name}")
            # "git am" would fail on the cover letter.
            (mails / "0000-cover-letter.patch").rename(mails / "cover-letter.txt")
            written.append(mails)
    return written


class Repository:
    """A git repository that mails are made from, or applied to.

    Args:
        path: its top
        release: commit as nobody@example.com, and ignore the git user's settings
    """

    def __init__(self, path: Path, release: bool) -> None:
        self.path = path
        self._release = release
        self._env: Dict[str, str] = {}
        if release:
            self._env = {**_RELEASE_ENV,
                         **{f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
                            for what, value in (("NAME", _RELEASE_SENDER),
                                                ("EMAIL", "nobody@example.com"))}}

    def git(self, *args: str, stdin: str = "") -> None:
        result = subprocess.run(["git", *args], cwd=self.path, input=stdin, text=True,
                                env=git_environment(**self._env), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, check=False)
        if result.returncode:
            said = (result.stdout.strip() or "nothing").splitlines()[0]
            name = ("" if self._release else "; the mails need your name: "
                    "git config --global user.name and user.email")
            raise Failure(f"git {args[0]} failed, it says: {said}{name}")

    def commit(self, topic: Topic, first: Path) -> None:
        """Commit one patch, with its new files from the folder "first"."""
        apply_patch(topic.patch, self.path)
        for path in topic.new_files:
            (self.path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(first / path, self.path / path)
        self.git("add", "-A", "-f")
        self.git("commit", "-q", *([] if self._release else ["-s"]), "-F", "-",
                 stdin=message(topic.patch))

    def format_patches(self, folder: Path, commits: str) -> None:
        same = ["--zero-commit", "--no-signature", "--no-numbered"] if self._release else []
        self.git("-c", "core.abbrev=12", "format-patch", "-q", "--cover-letter",
                 "--cover-from-description=subject", *same, "-o", str(folder), commits)
        if self._release:
            # Remove the date, so that mails stay the same; "git am" then uses the current time.
            for mail in folder.glob("*.patch"):
                mail.write_text(re.sub(r"^Date: .*\n", "", mail.read_text(), count=1,
                                       flags=re.MULTILINE))


def release(source: Source, build: Path) -> List[Path]:
    """Write the copy of the series in the repository."""
    # Only copies of the repository for another base have a pinned source.
    if PINNED:
        raise Failure(f"series/ is for Linux {SERIES}; leave RELEASE=1 out, or BASE=")
    if source.tree or source.tarball:
        raise Failure("series/ is written with Debian's source, which all have; leave RELEASE=1 "
                      "out, or KERNEL_SRC= and KERNEL_TARBALL=")
    partial, old = (RELEASE.with_name(f"{RELEASE.name}.{what}") for what in ("partial", "old"))
    for folder in (partial, old):
        shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as tmp:
        names = [mails.name for mails in write(source, build, Path(tmp), release=True)]
        shutil.copytree(tmp, partial)
    # The copy has the mode of the temporary folder, which only its owner may enter.
    partial.chmod(0o755)
    (partial / _MADE_WITH).write_text(f"{source.name}\n")
    if RELEASE.exists():
        RELEASE.rename(old)
    partial.rename(RELEASE)
    shutil.rmtree(old, ignore_errors=True)
    return [RELEASE / name for name in names]


def made_with() -> str:
    """Return the name of the source for which series/ was written; "" if it is unknown."""
    path = RELEASE / _MADE_WITH
    return path.read_text().strip() if path.exists() else ""


def stale(mails: Path) -> List[str]:
    """Return the files that differ between series/ and a folder to which write() has written."""
    def contents(top: Path) -> Dict[str, Path]:
        return {str(path.relative_to(top)): path for path in top.rglob("*") if path.is_file()}

    ours, fresh = contents(RELEASE), contents(mails)
    ours.pop(_MADE_WITH, None)
    return sorted(name for name in ours.keys() | fresh.keys()
                  if name not in ours or name not in fresh
                  or not filecmp.cmp(ours[name], fresh[name], shallow=False))


def _first_versions(folder: Path) -> Path:
    """Copy new files to a folder, in the version of the patch that adds each.

    The repository has them as the last patch leaves them, so undo all edits by patches.
    """
    for path in new_files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / path, folder / path)
    for topic in reversed(topics()):
        apply_patch(topic.patch, folder, lambda path: path in new_files(), reverse=True)
    return folder


def message(patch: Path) -> str:
    """Return the commit message at the head of a patch."""
    head = patch.read_text().split("\ndiff --git ", 1)[0]
    return re.sub(r"^Subject: ", "", head, count=1).strip() + "\n"
