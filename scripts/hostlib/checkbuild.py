# SPDX-License-Identifier: GPL-2.0-only
"""Compile the kernel's files that the series touches as a maintainer's robots would.

There is one build for each of VARIANTS; it must not warn about a line of ours.
"""

import difflib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Set, Tuple

from . import kconfig
from .build import CONFIGS, cached_cc
from .check import Result
from .source import Source
from .tree import Tree
from .ui import Failure, run_logged

# The make targets of all architectures: perf's core.  KVM is added.
_COMMON = ("kernel/events/",)

# Warnings of compilers and sparse, and of kernel-doc.
_WARNINGS = (re.compile(r"^(\S+?):(\d+)(?::\d+)?: (?:warning|error): (.*)$", re.MULTILINE),
             re.compile(r"^Warning: (\S+?):(\d+) (.*)$", re.MULTILINE))

# A warning of objtool, which names an object and no line.
_OBJTOOL = re.compile(r"^(\S+\.o): (?:warning|error): (objtool: .*)$", re.MULTILINE)

# The clang of scripts/deps.txt, and programs that a build with LLVM= needs beside it.
CLANG = "clang-19"
_LLVM = ("ld.lld", "llvm-ar", "llvm-nm", "llvm-objcopy", "llvm-objdump", "llvm-readelf",
         "llvm-strip")


@dataclass(frozen=True)
class Variant:
    """One way to compile the kernel: architecture, compiler, options.

    Args:
        name: for the report
        kvm: the folder of the architecture's KVM; empty if KVM is off
        compiler: the program that it needs
        make: arguments for make
        config: lines of its configuration
    """
    name: str
    kvm: str
    compiler: str
    make: Tuple[str, ...] = ()
    config: Tuple[str, ...] = ()


_X86 = ("CONFIG_64BIT=y", "CONFIG_HYPERVISOR_GUEST=y", "CONFIG_KVM_AMD=y", "CONFIG_KVM_INTEL=y",
        "CONFIG_KVM_SMM=y", "CONFIG_PROCESSOR_SELECT=y", "CONFIG_CPU_SUP_INTEL=y",
        "CONFIG_CPU_SUP_AMD=y", "CONFIG_X86_LOCAL_APIC=y", "CONFIG_HIGH_RES_TIMERS=y")
ON = (*_X86, "CONFIG_GUEST_PERF_CALLCHAIN=y")
# objtool checks stack frames, code that runs with access to user memory, and the mitigations.
_OBJTOOL_CONFIG = ("CONFIG_OBJTOOL=y", "CONFIG_UNWINDER_ORC=y", "CONFIG_CPU_MITIGATIONS=y",
                   "CONFIG_MITIGATION_RETPOLINE=y", "CONFIG_MITIGATION_RETHUNK=y",
                   "CONFIG_MITIGATION_SLS=y",
                   # With it, objtool checks the linked kernel, and nothing is linked here.
                   "# CONFIG_X86_KERNEL_IBT is not set")
OFF = (*_X86, "# CONFIG_GUEST_PERF_CALLCHAIN is not set")
ARM64_ARGS = ("ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-")

VARIANTS = (
    Variant("x86, W=1 and objtool", "arch/x86/kvm/", "gcc", ("W=1",), (*ON, *_OBJTOOL_CONFIG)),
    Variant("x86, sparse", "arch/x86/kvm/", "sparse", ("C=2",), ON),
    Variant("x86, clang", "arch/x86/kvm/", CLANG, (), ON),
    Variant("x86, option off", "arch/x86/kvm/", "gcc", (), OFF),
    Variant("x86, 32 bits", "arch/x86/kvm/", "gcc", ("ARCH=i386",),
            tuple(line for line in _X86 if "64BIT" not in line)),
    Variant("arm64", "arch/arm64/kvm/", "aarch64-linux-gnu-gcc", ARM64_ARGS,
            ("CONFIG_GUEST_PERF_CALLCHAIN=y",)),
    Variant("arm64, no perf events", "", "aarch64-linux-gnu-gcc", ARM64_ARGS,
            ("# CONFIG_PERF_EVENTS is not set", "# CONFIG_KVM is not set",
             "# CONFIG_VIRTUALIZATION is not set")),
    Variant("riscv", "arch/riscv/kvm/", "riscv64-linux-gnu-gcc",
            ("ARCH=riscv", "CROSS_COMPILE=riscv64-linux-gnu-"),
            ("CONFIG_64BIT=y", "CONFIG_MMU=y", "CONFIG_RISCV_SBI_V01=y", "CONFIG_FPU=y",
             # Without it, Linux 7.3's KVM does not compile.
             "CONFIG_RISCV_ISA_V=y")),
    Variant("s390", "arch/s390/kvm/", "s390x-linux-gnu-gcc",
            ("ARCH=s390", "CROSS_COMPILE=s390x-linux-gnu-")),
    Variant("loongarch", "arch/loongarch/kvm/", CLANG, ("ARCH=loongarch",), ("CONFIG_64BIT=y",)),
)


class NotTried(Exception):
    """Something can't be tried here; the message says why."""


def compiler_args(compiler: str) -> List[str]:
    """Return make's arguments for a compiler; raise NotTried if it is missing."""
    suffix = CLANG[len("clang"):]
    tools = [tool + suffix for tool in _LLVM] if compiler == CLANG else []
    # gcc compiles the programs that the build itself runs; with sparse, also the kernel.
    for tool in (compiler, *tools, "gcc"):
        if not shutil.which(tool):
            raise NotTried(f"there is no {tool}")
    if tools:
        return [f"LLVM={suffix}", *cached_cc(compiler)]
    return cached_cc(compiler if compiler.endswith("gcc") else "gcc")


class Kernel:
    """The build of one tree in one variant.

    Args:
        select: an option that KVM selects, although no architecture does so yet
    """

    def __init__(self, variant: Variant, tree: Path, folder: Path, logs: Path, jobs: int,
                 select: str = "") -> None:
        self.variant = variant
        self._tree = tree
        self.folder = folder
        self._logs = logs
        self._select = select
        self._argv = ["make", "-C", str(tree), f"O={folder}", f"-j{jobs}",
                      *compiler_args(variant.compiler), *variant.make]
        if select:
            self._argv.append(f"KBUILD_KCONFIG={folder / 'Kconfig'}")
        self._env = {"CCACHE_BASEDIR": str(folder.parent), "CCACHE_NOHASHDIR": "1"}

    def _make(self, title: str, log: str, *args: str) -> None:
        run_logged(title, [*self._argv, *args], self._logs / log, env=self._env)

    def is_edited(self, paths: Iterable[str]) -> bool:
        """Return True if one of these files is kernel code of its architecture, or of all."""
        own = self.variant.kvm[:self.variant.kvm.index("/", len("arch/")) + 1]
        return any(path.startswith(own) if path.startswith("arch/")
                   else not path.startswith(("tools/", "Documentation/")) for path in paths)

    def configure(self) -> List[str]:
        """Configure the kernel, and return the options that it can't have.

        Do this again when a patch has changed a Kconfig file.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._select:
            (self.folder / "Kconfig").write_text(
                (self._tree / "Kconfig").read_text()
                + f"\nconfig CHECK_EACH_PATCH\n\tdef_bool KVM\n\tselect {self._select}\n")
        tiny, own = self.folder / "tiny.config", self.folder / "own.config"
        self._make("Configure", "config.log", f"KCONFIG_CONFIG={tiny}", "tinyconfig")
        own.write_text("".join(f"{line}\n" for line in self.variant.config))
        return kconfig.merge(self._tree, self.folder, tiny, [CONFIGS / "check.config", own],
                             self._make, self._logs)

    def compile(self, title: str) -> str:
        """Compile it, and return the output."""
        log = f"{re.sub(r'[^a-z0-9]+', '-', f'{title} {self.variant.name}'.lower())}.log"
        events = ["arch/x86/events/"] if self.variant.kvm.startswith("arch/x86/") else []
        self._make(title, log, *_COMMON, *events, *filter(None, [self.variant.kvm]))
        return (self._logs / log).read_text(errors="replace")

    def headers(self) -> None:
        """Make the kernel's headers, which programs of the selftests include."""
        self._make("Gather its headers", "headers.log", "headers")


def our_lines(tree: Tree, source: Source) -> Dict[str, Set[int]]:
    """Return the numbers of our lines in each file."""
    ours: Dict[str, Set[int]] = {}
    for path in tree.ours():
        after = (tree.path / path).read_text(errors="replace").splitlines()
        if path in tree.new_files:
            ours[path] = set(range(1, len(after) + 1))
            continue
        before = tree.original(source, path).read_text(errors="replace").splitlines()
        ours[path] = {number + 1
                      for tag, _, _, first, last in difflib.SequenceMatcher(
                          None, before, after, autojunk=False).get_opcodes()
                      if tag != "equal" for number in range(first, last)}
    return ours


def complaints(said: str, ours: Dict[str, Set[int]],
               kinds: Iterable["re.Pattern[str]"] = _WARNINGS) -> List[str]:
    """Return a tool's complaints about our lines; its paths may start in any folder."""
    found = []
    for path, line, text in (each for kind in kinds for each in kind.findall(said)):
        parts = os.path.normpath(path).split("/")
        for name in ("/".join(parts[first:]) for first in range(len(parts))):
            if int(line) in ours.get(name, ()):
                found.append(f"{name}:{line}: {text}")
                break
    return list(dict.fromkeys(found))


def of_objects(said: str) -> List[str]:
    """Return objtool's complaints: Linux's own objects have none, so all are about ours."""
    return [f"{path}: {text}" for path, text in dict.fromkeys(_OBJTOOL.findall(said))]


def _compile_all(kernel: Kernel, ours: Dict[str, Set[int]]) -> List[str]:
    # Objects of an earlier run would not be compiled again, and give no warnings.
    shutil.rmtree(kernel.folder, ignore_errors=True)
    try:
        missing = kernel.configure()
        if missing:
            return [f"the kernel can't have {', '.join(missing)}"]
        said = kernel.compile("all")
        return [*complaints(said, ours), *of_objects(said)]
    except Failure as failure:
        return [str(failure)]
    finally:
        shutil.rmtree(kernel.folder, ignore_errors=True)


def run(tree: Path, ours: Dict[str, Set[int]], folder: Path, jobs: int) -> Iterator[Result]:
    """Compile all variants of a tree.

    Args:
        ours: the lines of our_lines()
        folder: a folder to build in
    """
    for variant in VARIANTS:
        try:
            kernel = Kernel(variant, tree, folder / "variant", folder / "log", jobs)
        except NotTried as reason:
            yield Result(variant.name, not_tried=str(reason))
            continue
        yield Result(variant.name, _compile_all(kernel, ours))
