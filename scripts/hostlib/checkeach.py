# SPDX-License-Identifier: GPL-2.0-only
"""Compile each patch in turn, with the option on and off: check out its commit, and make."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

from . import checkbuild, objectdiff
from .arch import ARM64
from .branch import BASE
from .build import PERF_FLAGS, cached_cc
from .check import Result
from .checkbuild import Kernel, NotTried, Variant
from .git import Repository
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
_OBJECTS = ("arch/x86/events", "arch/x86/kvm", "kernel/events", "virt/kvm")

# The series whose patches may change objects if the option is off: fixes are for all kernels.
_FIXES = "fixes"

_SELFTESTS = "tools/testing/selftests/"
_LISTING = f"{_SELFTESTS}kvm/Makefile.kvm"

BASE_COMMIT = f"refs/tags/{BASE}"


def check_out(repo: Repository, commit: str) -> None:
    repo.git("checkout", "-q", "--force", "--detach", commit)


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

    def compile_base(self) -> None:
        """Compile all kernels as they are without patches."""
        check_out(self._repo, BASE_COMMIT)
        for kernel in self._kernels.values():
            kernel.configure()
            kernel.compile("before all patches")
        self._objects.changed(_OBJECTS)

    def try_patch(self, commit: str, name: str) -> List[str]:
        """Compile what a patch edits, and return the functions that it changes."""
        check_out(self._repo, commit)
        self._compile(name, self._repo.git("diff", "--name-only", "--no-renames", f"{commit}^",
                                           commit).split())
        return self._objects.changed(_OBJECTS)

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


def run(repo: Repository, topics: Sequence[Topic], folder: Path, jobs: int) -> Iterator[Result]:
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
    try:
        each.compile_base()
    except Failure as failure:
        yield Result("Linux without patches", [str(failure)])
        return
    changes: Dict[str, List[str]] = {}
    all_compiled = True
    commits = repo.git("rev-list", "--reverse", f"{BASE_COMMIT}..series/{topics[-1].series}")
    for topic, commit in zip(topics, commits.split(), strict=True):
        name = topic.patch.name
        try:
            found = each.try_patch(commit, topic.patch.stem)
        except Failure as failure:
            all_compiled = False
            yield Result(name, [str(failure)])
            continue
        # Behind a patch that does not compile, it is not known who has changed what.
        if topic.series != _FIXES and all_compiled:
            changes[name] = found
        yield Result(name)
    yield Result("object code without the option", objectdiff.complaints(changes, [
        entry for entry in objectdiff.read_accepted() if entry.patch in changes]))
