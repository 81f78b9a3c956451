# SPDX-License-Identifier: GPL-2.0-only
"""Compile each patch in turn, with the option on and off: check out its commit, and make.

A patch that has passed is compiled again only if its tree, the tree before it, the compilers or
this program have changed.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import checkbuild, objectdiff
from .arch import ARM64
from .branch import BASE
from .build import PERF_FLAGS, cached_cc
from .check import Result
from .checkbuild import Kernel, NotTried, Variant
from .git import Repository
from .passed import Passed, digest
from .patches import Topic
from .ui import Failure, run_logged

# How each patch is compiled, if it edits a file of theirs.
ON = Variant("option on", "arch/x86/kvm/", "gcc", ("W=e",), checkbuild.ON)
OFF = Variant("option off", "arch/x86/kvm/", "gcc", ("W=e",), checkbuild.OFF)
ON_ARM64 = Variant("arm64, option on", "arch/arm64/kvm/", f"{ARM64.prefix}gcc",
                   (*checkbuild.ARM64_ARGS, "W=e"), ("CONFIG_GUEST_PERF_CALLCHAIN=y",))
OFF_ARM64 = Variant("arm64, option off", "arch/arm64/kvm/", f"{ARM64.prefix}gcc",
                    (*checkbuild.ARM64_ARGS, "W=e"), ("# CONFIG_GUEST_PERF_CALLCHAIN is not set",))

# Without this, the first patches would not be compiled: a later one has architectures select it.
_SELECT = "HAVE_GUEST_PERF_CALLCHAIN"

# The folders of x86's kernel in which each patch's effect on objects is looked at.
_OBJECTS = ("arch/x86/events", "arch/x86/kvm", "kernel/events", "lib", "virt/kvm")

# The series whose patches must not change objects if the option is off; fixes are for all kernels.
_KERNEL = "kernel"

_SELFTESTS = "tools/testing/selftests/"
_LISTING = f"{_SELFTESTS}kvm/Makefile.kvm"

BASE_COMMIT = f"refs/tags/{BASE}"

_CHECKER = checkbuild.checker("checkeach", "objectdiff")


def check_out(repo: Repository, commit: str) -> None:
    repo.git("checkout", "-q", "--force", "--detach", commit)


def tree_of(repo: Repository, commit: str) -> str:
    """Return git's name of a commit's content; it does not depend on messages or parents."""
    return repo.git("rev-parse", f"{commit}^{{tree}}").strip()


class _Commit(NamedTuple):
    """A commit, and git's names of the trees before and after it."""
    name: str
    before: str
    after: str


class _Each:
    """The kernels, and the programs that patches edit: perf, and selftests of x86 and of arm64.

    Args:
        kernels: those that can be compiled here, at least x86's
        arm64: False to leave out selftests of arm64
    """

    def __init__(self, repo: Repository, kernels: Dict[Variant, Kernel], arm64: bool,
                 folder: Path, jobs: int) -> None:
        self._repo = repo
        self._kernels = kernels
        self._arm64 = arm64
        self._folder = folder
        self._jobs = jobs
        self._objects = objectdiff.Objects(kernels[OFF].folder)
        # The tree that is built; empty if it is none.
        self._built = ""
        # The trees that can't be compiled.
        self._failed: Set[str] = set()
        self.inputs = digest(_CHECKER, str(arm64), *(f"{variant}{kernel.version}"
                                                     for variant, kernel in kernels.items()))

    def try_patch(self, name: str,
                  commit: _Commit) -> Tuple[List[str], Optional[List[str]]]:
        """Compile what a patch edits.

        Returns:
            complaints, and the functions that it changes; None if this is not known
        """
        complaints: List[str] = []
        try:
            if self._built != commit.before:
                self._compile_before(f"{commit.name}^", f"before {name}")
                self._built = commit.before
        except Failure as failure:
            # What the previous patch broke was reported already.
            complaints += [str(failure)] if commit.before not in self._failed else []
        is_known = self._built == commit.before
        self._built = ""
        try:
            check_out(self._repo, commit.name)
            self._compile(name, self._repo.git("diff", "--name-only", "--no-renames",
                                               f"{commit.name}^", commit.name).split())
            complaints += [f"{line[3:]} was edited while the patch was compiled; run this again"
                           for line in self._repo.git("status", "--porcelain",
                                                      "--untracked-files=no").splitlines()]
        except Failure as failure:
            complaints.append(str(failure))
        if complaints:
            self._failed.add(commit.after)
            return complaints, None
        if not is_known:
            return [], None
        self._built = commit.after
        return [], self._objects.changed(_OBJECTS)

    def _compile_before(self, commit: str, title: str) -> None:
        check_out(self._repo, commit)
        for kernel in self._kernels.values():
            kernel.configure()
            kernel.compile(title)
        self._objects.changed(_OBJECTS)

    def _compile(self, title: str, paths: Sequence[str]) -> None:
        """Compile what edits of these files change."""
        for kernel in self._kernels.values():
            if kernel.is_edited(paths):
                if any(Path(path).name.startswith("Kconfig") for path in paths):
                    kernel.configure()
                kernel.compile(f"{title}: kernel")
        programs = {path[len(_SELFTESTS):].split("/")[0] if path.startswith(_SELFTESTS)
                    else "perf" for path in paths if path.startswith("tools/")}
        if "perf" in programs:
            self._make(f"{title}: perf", "tools/perf", f"O={self._output('perf')}",
                       *cached_cc(), *PERF_FLAGS)
        for name in sorted(programs - {"perf"}):
            # KVM's folder has many other programs.
            chosen = self._chosen("x86") if name == "kvm" else []
            self._make_selftests(title, name, ON, name, *cached_cc()[:1], *chosen)
        if "kvm" in programs and self._arm64:
            cache = cached_cc(ON_ARM64.compiler)[:1] or [f"CC={ON_ARM64.compiler}"]
            # Use another folder than for x86: objects have the same names there.
            self._make_selftests(title, "kvm", ON_ARM64, "kvm-arm64", *checkbuild.ARM64_ARGS,
                                 *cache, *self._chosen("arm64"))

    def _output(self, name: str) -> Path:
        (self._folder / name).mkdir(exist_ok=True)
        return self._folder / name

    def _make(self, title: str, folder: str, *args: str) -> None:
        log = re.sub(r"[^\w-]+", "-", title)
        run_logged(title, ["make", "-C", str(self._repo.path / folder), f"-j{self._jobs}", *args],
                   self._folder / "log" / f"{log}.log")

    def _make_selftests(self, title: str, name: str, variant: Variant, output: str,
                        *args: str) -> None:
        kernel = self._kernels[variant]
        kernel.headers()
        self._make(f"{title}: {output} selftests", f"{_SELFTESTS}{name}",
                   f"OUTPUT={self._output(output)}", f"O={kernel.folder}",
                   f"KHDR_INCLUDES=-isystem {kernel.folder}/usr/include", *args)

    def _chosen(self, arch: str) -> List[str]:
        """Return make's arguments to build those of KVM's selftests that our patches list."""
        now = (self._repo.path / _LISTING).read_text()
        before = self._repo.try_git("show", f"{BASE_COMMIT}:{_LISTING}").stdout
        listed, linux = [re.findall(rf"^TEST_GEN_PROGS_(?:COMMON|{arch}) \+= (\S+)$", text,
                                    re.MULTILINE) for text in (now, before)]
        return [f"TEST_GEN_PROGS_{arch}={' '.join(test for test in listed if test not in linux)}",
                f"TEST_PROGS_{arch}=", f"TEST_GEN_PROGS_EXTENDED_{arch}="]


def _has_libc(compiler: str) -> bool:
    """Return True if a compiler finds the headers of a libc for its target."""
    return not subprocess.run([compiler, "-fsyntax-only", "-x", "c", "-"],
                              input="#include <stdio.h>\n", text=True, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def _commits(repo: Repository, topics: Sequence[Topic]) -> List[Tuple[Topic, _Commit]]:
    """Return patches with their commits; patches are those of the first series."""
    lines = repo.git("log", "--reverse", "--format=%H %T",
                     f"{BASE_COMMIT}..series/{topics[-1].series}").splitlines()
    trees = [tree_of(repo, BASE_COMMIT), *(line.split()[1] for line in lines)]
    commits = [_Commit(line.split()[0], *both) for line, both in zip(lines, zip(trees, trees[1:]))]
    return list(zip(topics, commits, strict=True))


def run(repo: Repository, topics: Sequence[Topic], folder: Path, passed: Passed,
        jobs: int) -> Iterator[Result]:
    """Compile each patch, and tell which functions change in a kernel without the option.

    Args:
        repo: a repository with a commit for each patch, see branch.add_commits()
        topics: the patches, from the first one on
        folder: a folder to build in
    """
    shutil.rmtree(folder, ignore_errors=True)
    kernels: Dict[Variant, Kernel] = {}
    for number, variant in enumerate((ON, OFF, ON_ARM64, OFF_ARM64)):
        try:
            kernels[variant] = Kernel(variant, repo.path, folder / f"kernel{number}",
                                      folder / "log", jobs, _SELECT)
        except NotTried as reason:
            yield Result(f"each patch, {variant.name}", not_tried=str(reason))
    if ON not in kernels:
        return
    arm64 = ON_ARM64 in kernels and _has_libc(ON_ARM64.compiler)
    if ON_ARM64 in kernels and not arm64:
        yield Result("each patch, selftests of arm64",
                     not_tried=f"there is no libc for {ON_ARM64.compiler}")
    each = _Each(repo, kernels, arm64, folder, jobs)
    changes: Dict[str, Optional[List[str]]] = {}
    for topic, commit in _commits(repo, topics):
        name = topic.patch.name
        key = digest(each.inputs, commit.before, commit.after)
        result = Result(name, before=key in passed)
        if not result.before:
            result.complaints, found = each.try_patch(topic.patch.stem, commit)
            if found is not None:
                passed.add(key, found)
        if topic.series == _KERNEL:
            changes[name] = passed.notes(key)
        yield result
    yield Result("object code without the option", objectdiff.complaints(
        {name: found for name, found in changes.items() if found is not None},
        [entry for entry in objectdiff.read_accepted()
         if changes.get(entry.patch, []) is not None]))
