# SPDX-License-Identifier: GPL-2.0-only
"""Lay our new files and patches over a kernel's source, in the build folder.

A second run changes only files that differ, so that make builds only what depends on them.
"""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Callable, Dict, FrozenSet, List, Optional, Set

from .source import LINUX, SERIES, Source, check_version
from .ui import Failure, Step, run_logged

REPO = Path(__file__).resolve().parents[2]
SCRIPTS = REPO / "scripts"
PATCHES = REPO / "patches" / f"v{SERIES}"
# Laid over each tree that is tested or measured, but no part of the series.
INSTRUMENTS = REPO / "patches" / "instruments"
BASELINE_V3 = REPO / "patches" / "baseline-v3"

# The folders of this repository that hold new kernel files, at Linux's paths.
_OVERLAY = ("arch", "include", "kernel", "tools", "virt", "Documentation")

# Not laid over a tree: Linux has its own file at this path, which must stay there.
_NOT_OVERLAID = {"tools/testing/selftests/Makefile"}


@lru_cache(maxsize=None)
def _git_local() -> FrozenSet[str]:
    """Return the environment variables that tell git which repository to use."""
    return frozenset(subprocess.run(["git", "rev-parse", "--local-env-vars"], check=True,
                                    stdout=subprocess.PIPE, text=True).stdout.split())


def git_environment(**more: str) -> Dict[str, str]:
    """Return an environment with which git uses the repository of the folder where it runs.

    In a git hook, variables name the user's repository and its index, and git would use these.
    The variables that tell who the user is stay.
    """
    return {**{name: value for name, value in os.environ.items() if name not in _git_local()},
            **more}


@dataclass(frozen=True)
class Topic:
    """One patch, the new files that belong to it, and the series in which it is posted."""
    patch: Path
    new_files: List[str]
    series: str


def topics(folder: Path = PATCHES) -> List[Topic]:
    """Return all patches of a folder, in order.  patches/README.md describes the format."""
    result: List[Topic] = []
    series = ""
    for number, line in enumerate((folder / "series").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        header = re.fullmatch(r"\[(\w+)\]", line)
        if header:
            series = header.group(1)
        elif re.fullmatch(r"\s+[\w./-]+", line) and result:
            result[-1].new_files.append(line.strip())
        elif re.fullmatch(r"[\w.-]+\.patch", line):
            result.append(Topic(folder / line, [], series))
        else:
            raise Failure(f"{folder}/series, line {number}: \"{line}\" is neither a patch nor "
                          "a new file nor the name of a series")
    return result


def new_files() -> Set[str]:
    """Return the paths of our new files and of the instruments', in the repository as in Linux."""
    found = {str(path.relative_to(REPO))
             for top in _OVERLAY for path in (REPO / top).rglob("*") if path.is_file()}
    ours = {path for path in found - _NOT_OVERLAID if not _is_product(path)}
    listed = {path for topic in topics() + topics(INSTRUMENTS) for path in topic.new_files}
    if ours != listed:
        raise Failure("The files patches/*/series and the tree disagree about new files: "
                      + ", ".join(sorted(ours ^ listed)))
    return ours


def _is_product(path: str) -> bool:
    return path.endswith((".o", ".ko", ".cmd", ".mod", ".mod.c", ".pyc"))


def _touched(patch: Path) -> List[str]:
    return re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)


def patched_files() -> Set[str]:
    """Return the paths of Linux's own files that patches edit."""
    return {path for topic in topics() for path in _touched(topic.patch)} - new_files()


def edits(patch: Path) -> Dict[str, str]:
    """Return a patch's diffs, by the file that each edits."""
    return edits_of(patch.read_text())


def edits_of(text: str) -> Dict[str, str]:
    """Return the diffs in a text, by the file that each edits."""
    diffs = re.split(r"^(?=diff --git )", text, flags=re.MULTILINE)[1:]
    return {re.findall(r"^\+\+\+ b/(\S+)", diff, re.MULTILINE)[0]: diff for diff in diffs}


def _function(lines: List[str], line: int) -> str:
    """Return the first line of the function that contains a line of C, or that precedes it."""
    for text in reversed(lines[:line - 1]):
        if re.match(r"[A-Za-z_]", text) and not re.match(r"\w+:", text):
            return text
    return ""


def misplaced(text: str, said: str, before: Dict[str, List[str]]) -> List[str]:
    """Return the places of hunks that patch moved out of the function in their header.

    Hunks have little context, so patch may find a wrong place with the same lines.

    Args:
        text: diffs
        said: the output of patch for these
        before: for files that they edit, the lines before; hunks in other files are not checked
    """
    found = []
    diffs = edits_of(text)
    for path, moves in re.findall(r"^patching file (\S+)\n((?:Hunk .*\n)+)", said, re.MULTILINE):
        hunks = re.findall(r"^@@ -(\d+).*@@ ?(.*)$", diffs[path], re.MULTILINE)
        for number, offset in re.findall(r"^Hunk #(\d+) .*\(offset (-?\d+) line", moves,
                                         re.MULTILINE):
            first, header = hunks[int(number) - 1]
            line = int(first) + int(offset)
            named = header.split("(")[0]
            if (named and path in before
                    and not _function(before[path], line).startswith(named)):
                found.append(f"{path}:{line}")
    return found


def apply_patch(patch: Path, folder: Path, only: Callable[[str], bool] = lambda path: True,
                reverse: bool = False) -> None:
    """Apply one patch, without fuzz.

    Args:
        patch: the patch
        folder: the top of the tree
        only: returns true for paths of files to edit
        reverse: undo the edits

    Raises Failure with the place if it does not fit.
    """
    text = "".join(diff for path, diff in edits(patch).items() if only(path))
    if not text:
        return
    before = {path: (folder / path).read_text(errors="replace").splitlines()
              for path in edits_of(text)
              if path.endswith((".c", ".h")) and (folder / path).exists()}
    result = subprocess.run(["patch", "-p1", "--fuzz=0", "--force", "--no-backup-if-mismatch",
                             "--reject-file=-", *(["--reverse"] if reverse else [])],
                            cwd=folder, input=text, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        where = re.findall(r"^patching file (\S+)\n(?:.*\n)*?Hunk #\d+ FAILED at (\d+)",
                           result.stdout, re.MULTILINE)
        at = ", ".join(f"{name}:{line}" for name, line in where[:3])
        raise Failure(f"{patch.relative_to(REPO)} does not apply at {at or 'a missing file'}: "
                      f"this source is not the Linux {LINUX} that it was made for, or has a part "
                      "of the patches already; adapt the patch, or omit KERNEL_SRC or "
                      "KERNEL_TARBALL to use Debian's source")
    elsewhere = [] if reverse else misplaced(text, result.stdout, before)
    if elsewhere:
        raise Failure(f"{patch.relative_to(REPO)} would change another function at "
                      f"{', '.join(elsewhere[:3])}: this source is not the Linux {LINUX} that it "
                      "was made for; adapt the patch")


class Tree:
    """The assembled kernel source, and pristine copies of the files that were patched.

    Args:
        build: the build folder
        extra: a folder with another series and its new files, which is laid over all else
        patched: false for Linux without our series, to compare with
        instruments: apply the patch in patches/instruments as well, patched or not; the new files
            listed there are laid over each patched tree
    """

    def __init__(self, build: Path, extra: Optional[Path] = None, patched: bool = True,
                 instruments: bool = True) -> None:
        self.topics = ((topics() if patched else [])
                       + (topics(INSTRUMENTS) if instruments else [])
                       + (topics(extra) if extra else []))
        self.new_files = {path: REPO / path for path in new_files()} if patched else {}
        if extra:
            self.new_files.update({path: extra / path for topic in topics(extra)
                                   for path in topic.new_files})
        self._patched = ({path for topic in self.topics for path in _touched(topic.patch)}
                         - self.new_files.keys())
        self.path = build / "linux"
        self._stamp = build / "linux.base"
        self._pristine = build / "pristine"
        self._logs = build / "log"

    def assemble(self, source: Source) -> None:
        if source.tree:
            self._copy(source)
        else:
            self._unpack(source)
        self._overlay(source)

    def _is_of(self, name: str) -> bool:
        return self._stamp.exists() and self._stamp.read_text() == name

    def _forget(self) -> None:
        self._stamp.unlink(missing_ok=True)
        for folder in (self.path, self._pristine):
            shutil.rmtree(folder, ignore_errors=True)

    def _unpack(self, source: Source) -> None:
        if self._is_of(source.name):
            return
        self._forget()
        self.path.mkdir(parents=True)
        tarball = f"./usr/src/linux-source-{LINUX}.tar.xz"
        if source.tarball_package:
            # A package is an ar archive, and the tarball is in a tarball in this archive.
            script = ('ar p "$1" data.tar.xz | tar -x -J -O "$3" | xz -d -T0 | '
                      'tar -x -C "$2" --strip-components=1')
        else:
            script = 'tar -x -f "$1" -C "$2" --strip-components=1'
        run_logged(f"Unpack {source.name.split()[0]}", [
            "sh", "-c", f'set -e; {script}; test -f "$2/Kbuild"', "unpack",
            str(source.tarball_package or source.tarball), str(self.path), tarball],
            self._logs / "unpack.log")
        check_version(self.path, source.name)
        # Write the stamp last, so that only a complete tree has it.
        self._stamp.write_text(source.name)

    def _changes(self, tree: Path) -> List[str]:
        """Return files with changes that are not committed, of those that patches edit.

        Args:
            tree: a source; if it is no git tree, there are none
        """
        if not self._patched or not (tree / ".git").exists():
            return []
        done = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "--",
                               *sorted(self._patched)], cwd=tree, env=git_environment(),
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
        if not self._is_of(source.name):
            self._forget()
        keep = self._logs / "copy.exclude"
        keep.parent.mkdir(parents=True, exist_ok=True)
        keep.write_text("".join(f"/{path}\n" for path in sorted(self.ours())))
        products = [f"--exclude={pattern}" for pattern in
                    ("/.git", "*.o", "*.ko", "*.a", "*.cmd", "/.config", "/vmlinux*",
                     "/include/config", "/include/generated", "/arch/*/include/generated")]
        self.path.mkdir(parents=True, exist_ok=True)
        run_logged(f"Copy {source.tree}", ["rsync", "-a", f"--exclude-from={keep}", *products,
                   f"{source.tree}/", f"{self.path}/"], self._logs / "copy.log")
        self._stamp.write_text(source.name)

    def ours(self) -> Set[str]:
        """Return the paths of files that assemble() writes, and restores if they were changed."""
        return self._patched | self.new_files.keys()

    def original(self, source: Source, path: str) -> Path:
        """Return the path of a file as it was before any patch."""
        if source.tree:
            return source.tree / path
        copy = self._pristine / path
        if not copy.exists() and (self.path / path).exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            partial = copy.with_name(copy.name + ".partial")
            shutil.copy2(self.path / path, partial)
            partial.rename(copy)
        return copy

    def _overlay(self, source: Source) -> None:
        with Step("Lay patches and new files over it"), \
                tempfile.TemporaryDirectory(dir=self.path.parent) as tmp:
            scratch = Path(tmp)
            wanted: Dict[str, Path] = {}

            for path in self._patched | self._patched_before():
                original = self.original(source, path)
                if not original.exists():
                    continue
                (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(original, scratch / path)
                wanted[path] = scratch / path
            for topic in self.topics:
                # New files have the edits that patches make to them already.
                apply_patch(topic.patch, scratch, lambda path: path in self._patched)

            for path, ours in self.new_files.items():
                if source.tree and (source.tree / path).exists():
                    raise Failure(f"{source.tree} has a {path} of its own; "
                                  "use a tree without these patches")
                wanted[path] = ours

            for path in self._new_before() - wanted.keys():
                (self.path / path).unlink(missing_ok=True)
            self._new_list().write_text("\n".join(sorted(self.new_files)))
            for path, content in wanted.items():
                _update(self.path / path, content)

    def _new_list(self) -> Path:
        return self._stamp.with_name("linux.new-files")

    def _new_before(self) -> Set[str]:
        listing = self._new_list()
        return set(listing.read_text().split()) if listing.exists() else set()

    def _patched_before(self) -> Set[str]:
        if not self._pristine.exists():
            return set()
        return {str(path.relative_to(self._pristine))
                for path in self._pristine.rglob("*")
                if path.is_file() and path.suffix != ".partial"}


def _update(target: Path, content: Path) -> None:
    """Write a file if its content differs, and replace it in one step."""
    data = content.read_bytes()
    if target.exists() and target.read_bytes() == data:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    partial.write_bytes(data)
    shutil.copymode(content, partial)
    partial.rename(target)
