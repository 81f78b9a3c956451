# SPDX-License-Identifier: GPL-2.0-only
"""The patches of this repository, their order, and the new files that come with them."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Container, Dict, Iterable, List, Optional, Set, Tuple

from .git import isolated
from .ui import Failure

REPO = Path(__file__).resolve().parents[2]
SCRIPTS = REPO / "scripts"
PATCHES = REPO / "patches"

# The series that are not posted.  The first one is laid over each tree that is tested or measured,
# the second one over those that can walk as the series of 2023 did.
INSTRUMENTS = "instruments"
BASELINE = "baseline-v3"

# The folders of this repository that hold new kernel files, at Linux's paths.
_OVERLAY = ("arch", "include", "kernel", "tools", "virt", "Documentation")

# Not laid over a tree: Linux has its own file at this path, which must stay there.
_NOT_OVERLAID = {"tools/testing/selftests/Makefile"}

# What builds and editors leave there.
_NOT_OURS = (".o", ".ko", ".cmd", ".mod", ".mod.c", ".pyc", ".orig", ".rej", ".partial", "~")


@dataclass(frozen=True)
class Topic:
    """One patch, the new files that it adds, and the series that it belongs to."""
    patch: Path
    new_files: Tuple[str, ...]
    series: str

    @property
    def message(self) -> str:
        """The commit message at the head of the patch."""
        head = read(self.patch).partition("\ndiff --git ")[0]
        return re.sub(r"\ASubject: ", "", head).strip() + "\n"

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]


def topics(top: Path = REPO) -> List[Topic]:
    """Return all patches of the repository at "top", in order; patches/README.md has the format."""
    result: List[Topic] = []
    series = ""
    listing = top / "patches" / "series"
    for number, line in enumerate(listing.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        header = re.fullmatch(r"\[([\w-]+)\]", line)
        if header:
            series = header[1]
        elif re.fullmatch(r"\s+\S+", line) and result:
            last = result.pop()
            result.append(Topic(last.patch, (*last.new_files, line.strip()), last.series))
        elif re.fullmatch(r"[\w.-]+\.patch", line):
            result.append(Topic(top / "patches" / line, (), series))
            if not result[-1].patch.is_file():
                raise Failure(f"patches/series, line {number}: there is no patches/{line}")
        else:
            raise Failure(f"patches/series, line {number}: \"{line}\" is neither a patch nor a new "
                          "file nor the name of a series")
    return result


def posted(top: Path = REPO) -> List[str]:
    """Return the names of the series that are posted, in order: those with a cover letter."""
    return [name for name in dict.fromkeys(topic.series for topic in topics(top))
            if cover(name, top).exists()]


def cover(series: str, top: Path = REPO) -> Path:
    return top / "patches" / f"cover-{series}.txt"


def may_be_new(path: str) -> bool:
    """Return True if a new file may have this path: commands look for it there."""
    return path.split("/")[0] in _OVERLAY and path not in _NOT_OVERLAID


def new_files(every: Iterable[Topic]) -> Set[str]:
    """Return the paths of the new files as the last patch leaves them."""
    found: Set[str] = set()
    for topic in every:
        found.update(topic.new_files)
        for paths, diff in split(read(topic.patch)):
            for old, new in re.findall(r"^rename from (\S+)\nrename to (\S+)$", diff, re.MULTILINE):
                if old in found:
                    found.remove(old)
                    found.add(new)
            if "\ndeleted file mode " in diff:
                found -= paths
    return found


def ours(every: Iterable[Topic]) -> Set[str]:
    """Return all paths that new files have after any patch: a patch may rename them."""
    found: Set[str] = set()
    for topic in every:
        found.update(topic.new_files)
        for paths, diff in split(read(topic.patch)):
            if "\nrename to " in diff and paths & found:
                found |= paths
    return found


def check_listed(top: Path = REPO) -> None:
    """Raise Failure if patches/series does not list the repository's files below Linux's paths."""
    there = {str(path.relative_to(top)) for folder in _OVERLAY for path in (top / folder).rglob("*")
             if path.is_file() and not path.name.startswith(".")
             and not path.name.endswith(_NOT_OURS)} - _NOT_OVERLAID
    listed = new_files(topics(top))
    if there != listed:
        raise Failure("patches/series and the repository have different new files: "
                      f"{', '.join(sorted(there ^ listed))}; list each below the patch that adds "
                      "it, or remove it")


def split(text: str) -> List[Tuple[Set[str], str]]:
    """Return the diffs in a text, each with the paths that it names: two if it renames a file."""
    diffs = re.split(r"^(?=diff --git )", text, flags=re.MULTILINE)[1:]
    return [(set(re.findall(r"^diff --git a/(\S+) b/(\S+)$", diff, re.MULTILINE)[0]), diff)
            for diff in diffs]


def touched(patches: Iterable[Path]) -> Set[str]:
    """Return the paths of the files that patches edit, rename or remove."""
    return {path for patch in patches for paths, _ in split(read(patch)) for path in paths}


def edits(patch: Path, path: str) -> str:
    """Return a patch's diff of one file; empty if it does not edit this file."""
    return "".join(diff for paths, diff in split(read(patch)) if path in paths)


def read(patch: Path) -> str:
    """Return a patch's text, which may have any bytes; encode() gives them back."""
    return patch.read_bytes().decode(errors="surrogateescape")


def encode(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


# Why a patch may not fit a kernel's source.
_ANOTHER_LINUX = ("this source is not the Linux that it was made for, or has a part of the patches "
                  "already; adapt the patch, or omit KERNEL_SRC or KERNEL_TARBALL to use Debian's "
                  "source")


def apply(patch: Path, folder: Path, only: Optional[Container[str]] = None,
          reverse: bool = False, why: str = _ANOTHER_LINUX) -> None:
    """Apply a patch in a folder without fuzz; raise Failure with the place if it does not fit.

    Args:
        only: the files to edit, if not all
        reverse: undo the edits
        why: what to say of the reason if it does not fit
    """
    text = "".join(diff for paths, diff in split(read(patch))
                   if only is None or any(path in only for path in paths))
    if not text:
        return
    done = subprocess.run(["git", "apply", "--whitespace=nowarn",
                           *(["--reverse"] if reverse else [])], cwd=folder,
                          input=encode(text), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          # git must take the folder for no part of a repository.
                          env=isolated(GIT_CEILING_DIRECTORIES=str(folder.resolve().parent)),
                          check=False)
    if done.returncode:
        raise Failure(f"{patch.parent.name}/{patch.name} does not apply at "
                      f"{_failed_at(done.stdout.decode(errors='replace'))}: {why}")


def _failed_at(said: str) -> str:
    """Return the place at which a patch does not fit, from the output of "git apply"."""
    found = re.findall(r"^error: (?:patch failed: )?([^:\n]+(?::\d+)?)(?=: |$)", said, re.MULTILINE)
    return str(found[0]) if found else "an unknown place"


def first_versions(every: List[Topic], folder: Path, top: Path = REPO) -> None:
    """Write the new files to a folder, each as its patch adds it.

    The repository has them as the last patch leaves them, so undo all edits by patches.
    """
    check_listed(top)
    for path in new_files(every):
        copy(top / path, folder / path)
    names = ours(every)
    for topic in reversed(every):
        apply(topic.patch, folder, names, reverse=True, why="this new file was edited where "
              "the patch edits it, too; undo that, and make the edit in the branch")


def copy(source: Path, target: Path) -> None:
    """Copy a file's content and its mode, but not its time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def update(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file if its content or mode differs, and replace it in one step."""
    if (path.is_file() and path.read_bytes() == data
            and path.stat().st_mode & 0o111 == mode & 0o111):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(data)
    partial.chmod(mode)
    partial.rename(path)


def by_subject(top: Path = REPO) -> Dict[str, str]:
    """Return the names of the patches' files by the subjects of their messages."""
    return {topic.subject: topic.patch.name for topic in topics(top)}
