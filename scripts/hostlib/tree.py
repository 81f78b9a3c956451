# SPDX-License-Identifier: GPL-2.0-only
"""Lay our new files and patches over a kernel's source, in the build folder.

A second run changes only files that differ, so that make builds only what depends on them.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterable, List, Set

from . import git, patches
from .patches import BASELINE, INSTRUMENTS, REPO
from .source import LINUX, Source, check_version
from .ui import Failure, Step, run_logged

# What a build leaves in a tree of the user's own.
_PRODUCTS = ("/.git", "*.o", "*.ko", "*.a", "*.cmd", "/.config", "/vmlinux*", "/include/config",
             "/include/generated", "/arch/*/include/generated")


def unpack(source: Source, folder: Path, log: Path) -> None:
    """Unpack or copy a source to a new folder."""
    folder.mkdir(parents=True)
    if source.tree:
        copy_tree(source.tree, folder, log)
        return
    tarball = f"./usr/src/linux-source-{LINUX}.tar.xz"
    if source.tarball_package:
        # A package is an ar archive, and the tarball is in a tarball in this archive.
        script = ('ar p "$1" data.tar.xz | tar -x -J -O "$3" | xz -d -T0 | '
                  'tar -x -C "$2" --strip-components=1')
    else:
        script = 'tar -x -f "$1" -C "$2" --strip-components=1'
    run_logged(f"Unpack {source.name.split()[0]}", [
        "sh", "-c", f'set -e; {script}; test -f "$2/Kbuild"', "unpack",
        str(source.tarball_package or source.tarball), str(folder), tarball], log)
    check_version(folder, source.name)


def copy_tree(tree: Path, folder: Path, log: Path, keep: Iterable[str] = ()) -> None:
    """Copy a tree of the user's own, except for "keep", and what was built in it."""
    excluded = [f"--exclude={pattern}" for pattern in (*_PRODUCTS, *(f"/{path}" for path in keep))]
    run_logged(f"Copy {tree}", ["rsync", "-a", *excluded, f"{tree}/", f"{folder}/"], log)


class Tree:
    """The assembled kernel source, and pristine copies of the files that were patched.

    Args:
        build: the build folder
        patched: false for Linux without our series, to compare with
        instruments: apply the instruments' patches as well, patched or not; their new files are
            laid over each patched tree
        baseline: add the walk of 2023
    """

    def __init__(self, build: Path, patched: bool = True, instruments: bool = True,
                 baseline: bool = False, top: Path = REPO) -> None:
        wanted = [*(patches.posted(top) if patched else []),
                  *([INSTRUMENTS] if instruments else []), *([BASELINE] if baseline else [])]
        every = patches.topics(top)
        if top == REPO:
            patches.check_listed()
        self.topics = [topic for topic in every if topic.series in wanted]
        self.new_files = ({path: top / path for path in patches.new_files(self.topics)}
                          if patched else {})
        self._patched = (patches.touched(topic.patch for topic in self.topics)
                         - patches.ours(every))
        self.path = build / "linux"
        self._stamp = build / "linux.base"
        self._pristine = build / "pristine"
        self._logs = build / "log"

    def assemble(self, source: Source) -> None:
        if source.tree:
            self._copy(source)
        elif not self._is_of(source.name):
            self._forget()
            unpack(source, self.path, self._logs / "unpack.log")
            # Write the stamp last, so that only a complete tree has it.
            self._stamp.write_text(source.name)
        self._overlay(source)

    def _is_of(self, name: str) -> bool:
        return self._stamp.exists() and self._stamp.read_text() == name

    def _forget(self) -> None:
        self._stamp.unlink(missing_ok=True)
        for folder in (self.path, self._pristine):
            shutil.rmtree(folder, ignore_errors=True)

    def _changes(self, tree: Path) -> List[str]:
        """Return files with changes that are not committed, of those that patches edit.

        Args:
            tree: a source; if it is no git tree, there are none
        """
        if not self._patched or not (tree / ".git").exists():
            return []
        done = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "--",
                               *sorted(self._patched)], cwd=tree, env=git.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode:
            said = (done.stderr.strip() or "nothing").splitlines()[0]
            raise Failure(f"git status of {tree} failed, it says: {said}")
        return [line[3:] for line in done.stdout.splitlines()]

    def _copy(self, source: Source) -> None:
        assert source.tree
        changes = self._changes(source.tree)
        if changes:
            raise Failure(f"{source.tree} has changes of {changes[0]} that are not committed; "
                          "commit or stash them, so that what is built is known")
        for path in self.new_files:
            if (source.tree / path).exists():
                raise Failure(f"{source.tree} has a {path} of its own; use a tree without these "
                              "patches")
        if not self._is_of(source.name):
            self._forget()
        self.path.mkdir(parents=True, exist_ok=True)
        copy_tree(source.tree, self.path, self._logs / "copy.log", self.ours())
        self._stamp.write_text(source.name)

    def ours(self) -> Set[str]:
        """Return the paths of files that assemble() writes, and restores if they were changed."""
        return self._patched | self.new_files.keys()

    def original(self, source: Source, path: str) -> Path:
        """Return the path of a file as it was before any patch."""
        if source.tree:
            return source.tree / path
        copy = self._pristine / path
        if not copy.exists() and (self.path / path).exists() and path not in self._added_before():
            copy.parent.mkdir(parents=True, exist_ok=True)
            partial = copy.with_name(copy.name + ".partial")
            shutil.copy2(self.path / path, partial)
            partial.rename(copy)
        return copy

    def _overlay(self, source: Source) -> None:
        with Step("Lay patches and new files over it"), \
                tempfile.TemporaryDirectory(dir=self.path.parent) as tmp:
            scratch = Path(tmp)
            edited = self._patched | self._patched_before()
            for path in edited:
                original = self.original(source, path)
                if original.exists():
                    (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(original, scratch / path)
            for topic in self.topics:
                # New files have the edits that patches make to them already.
                patches.apply(topic.patch, scratch, self._patched)

            wanted = {path: scratch / path for path in edited if (scratch / path).exists()}
            wanted.update(self.new_files)
            for path in (self._added_before() | edited) - wanted.keys():
                (self.path / path).unlink(missing_ok=True)
            added = [path for path in wanted if not self.original(source, path).exists()]
            self._added_list().write_text("\n".join(sorted(added)))
            for path, content in wanted.items():
                patches.update(self.path / path, content.read_bytes(),
                               content.stat().st_mode & 0o777)

    def _added_list(self) -> Path:
        return self._stamp.with_name("linux.new-files")

    def _added_before(self) -> Set[str]:
        listing = self._added_list()
        return set(listing.read_text().split()) if listing.exists() else set()

    def _patched_before(self) -> Set[str]:
        if not self._pristine.exists():
            return set()
        return {str(path.relative_to(self._pristine))
                for path in self._pristine.rglob("*")
                if path.is_file() and path.suffix != ".partial"}
