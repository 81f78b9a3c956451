# SPDX-License-Identifier: GPL-2.0-only
"""Compile the files that the series touches as a maintainer's robots would.

There is one build for each of WAYS; it must not warn about a line of ours.  Then each patch of
each series is compiled, in order, with the option on and off.  A build that has passed is not
repeated until its inputs change: see inputs().
"""

import difflib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Set, Tuple

from . import kconfig, optionoff
from .arch import ARM64
from .build import COMMON_SELFTESTS, CONFIGS, PERF_FLAGS, SELFTESTS, cached_cc
from .check import Result
from .passed import Passed, digest
from .git import isolated
from .patches import SCRIPTS, Topic, posted, topics, touched
from .source import Source
from .tree import Tree
from .ui import Failure, run_logged, say

# The make targets of all architectures: perf's core, and an edited file of lib/.  KVM is added.
_COMMON = ("kernel/events/", "lib/nmi_backtrace.o")

# The folders of x86's kernel in which each patch's effect on objects is looked at.
_OBJECTS = ("arch/x86/events", "arch/x86/kvm", "kernel/events", "lib", "virt/kvm")

# Without this, the first patches would not be compiled: a later one has the architecture select
# HAVE_GUEST_PERF_CALLCHAIN.
_SELECT = """
config CHECK_EACH_PATCH
	def_bool KVM
	select HAVE_GUEST_PERF_CALLCHAIN
"""

# Warnings of compilers and sparse, and of kernel-doc.
_WARNINGS = (re.compile(r"^(\S+?):(\d+)(?::\d+)?: (?:warning|error): (.*)$", re.MULTILINE),
             re.compile(r"^Warning: (\S+?):(\d+) (.*)$", re.MULTILINE))

# A warning of objtool, which names an object and no line.
_OBJTOOL = re.compile(r"^(\S+\.o): (?:warning|error): (objtool: .*)$", re.MULTILINE)

# Programs that a build with LLVM= needs beside clang.
_LLVM = ("ld.lld", "llvm-ar", "llvm-nm", "llvm-objcopy", "llvm-objdump", "llvm-readelf",
         "llvm-strip")


@dataclass(frozen=True)
class Way:
    """One way to compile the kernel.

    Args:
        name: for the report
        kvm: the folder of the architecture's KVM; empty if KVM is off
        compiler: the program that this way needs; "clang" stands for any clang that is new
            enough
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
_ARM64 = ("ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-")

WAYS = (
    Way("x86, W=1 and objtool", "arch/x86/kvm/", "gcc", ("W=1",), (*ON, *_OBJTOOL_CONFIG)),
    Way("x86, sparse", "arch/x86/kvm/", "sparse", ("C=2",), ON),
    Way("x86, clang", "arch/x86/kvm/", "clang", (), ON),
    Way("x86, option off", "arch/x86/kvm/", "gcc", (), OFF),
    Way("x86, 32 bits", "arch/x86/kvm/", "gcc", ("ARCH=i386",),
        tuple(line for line in _X86 if "64BIT" not in line)),
    Way("arm64", "arch/arm64/kvm/", "aarch64-linux-gnu-gcc", _ARM64),
    Way("arm64, no perf events", "", "aarch64-linux-gnu-gcc", _ARM64,
        ("# CONFIG_PERF_EVENTS is not set", "# CONFIG_KVM is not set",
         "# CONFIG_VIRTUALIZATION is not set")),
    Way("riscv", "arch/riscv/kvm/", "riscv64-linux-gnu-gcc",
        ("ARCH=riscv", "CROSS_COMPILE=riscv64-linux-gnu-"),
        ("CONFIG_64BIT=y", "CONFIG_MMU=y", "CONFIG_RISCV_SBI_V01=y", "CONFIG_FPU=y",
         # Without it, Linux 7.3's KVM does not compile.
         "CONFIG_RISCV_ISA_V=y")),
    Way("s390", "arch/s390/kvm/", "s390x-linux-gnu-gcc",
        ("ARCH=s390", "CROSS_COMPILE=s390x-linux-gnu-")),
    Way("loongarch", "arch/loongarch/kvm/", "clang", ("ARCH=loongarch",), ("CONFIG_64BIT=y",)),
)


# The ways in which each patch is compiled, if it edits a file of theirs.
EACH_ON = Way("option on", "arch/x86/kvm/", "gcc", ("W=e",), ON)
EACH_OFF = Way("option off", "arch/x86/kvm/", "gcc", ("W=e",), OFF)
EACH_ARM64 = Way("arm64, option on", "arch/arm64/kvm/", "aarch64-linux-gnu-gcc",
                 (*_ARM64, "W=e"), ("CONFIG_GUEST_PERF_CALLCHAIN=y",))
EACH = (
    EACH_ON, EACH_OFF, EACH_ARM64,
    Way("arm64, option off", "arch/arm64/kvm/", "aarch64-linux-gnu-gcc", (*_ARM64, "W=e"),
        ("# CONFIG_GUEST_PERF_CALLCHAIN is not set",)),
)


def _topics() -> List[Topic]:
    return [topic for topic in topics() if topic.series in posted()]


class NotTried(Exception):
    """Something can't be tried here; the message says why."""


def _version(text: str) -> Tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def clangs() -> List[str]:
    """All clangs on the PATH: the usual one, then others from the newest on."""
    numbered = {path.name for folder in os.get_exec_path()
                for path in Path(folder).glob("clang-[0-9]*")
                if re.fullmatch(r"clang-\d+", path.name)}
    usual = ["clang"] if shutil.which("clang") else []
    return usual + sorted(numbered, key=_version, reverse=True)


def find_clang(tree: Path, arch: str) -> str:
    """Return a clang that is new enough for a tree; raise NotTried if there is none."""
    minimum = said_by("sh", str(tree / "scripts/min-tool-version.sh"), "llvm", SRCARCH=arch)
    versions = {name: said_by(name, "-dumpversion") for name in clangs()}
    if not versions:
        raise NotTried("there is no clang")
    for name, version in versions.items():
        if _version(version) >= _version(minimum):
            return name
    newest = max(versions.values(), key=_version)
    raise NotTried(f"clang {newest} is older than {minimum} (scripts/min-tool-version.sh)")


def said_by(*argv: str, **environment: str) -> str:
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, **environment}).stdout.strip()


def compiler_of(way: Way, tree: Path) -> List[str]:
    """Return make's arguments for a way's compiler; raise NotTried if there is none."""
    if way.compiler == "clang":
        clang = find_clang(tree, way.kvm.split("/")[1])
        suffix = clang[len("clang"):]
        for tool in (tool + suffix for tool in _LLVM):
            if not shutil.which(tool):
                raise NotTried(f"there is no {tool}")
        return [f"LLVM={suffix or 1}", *cached_cc(clang)]
    if not shutil.which(way.compiler):
        raise NotTried(f"there is no {way.compiler}")
    return cached_cc(way.compiler if way.compiler.endswith("gcc") else "gcc")


class _Kernel:
    """The build of one tree in one way."""

    def __init__(self, way: Way, tree: Path, folder: Path, logs: Path, jobs: int) -> None:
        self._way = way
        self._tree = tree
        self.folder = folder
        self._logs = logs
        self._argv = ["make", "-C", str(tree), f"O={folder}", f"-j{jobs}",
                      *compiler_of(way, tree), *way.make]
        self._env = {"CCACHE_BASEDIR": str(folder.parent), "CCACHE_NOHASHDIR": "1"}

    def _make(self, title: str, log: str, *args: str) -> None:
        run_logged(title, [*self._argv, *args], self._logs / log, env=self._env)

    def is_edited(self, paths: Iterable[str]) -> bool:
        """Return True if one of these files is kernel code of its architecture, or of all."""
        own = self._way.kvm[:self._way.kvm.index("/", len("arch/")) + 1]
        return any(path.startswith(own) if path.startswith("arch/")
                   else not path.startswith(("tools/", "Documentation/")) for path in paths)

    def configure(self) -> None:
        """Configure the kernel; do it again when a patch has changed a Kconfig file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tiny, own = self.folder / "tiny.config", self.folder / "own.config"
        self._make("Configure", "config.log", f"KCONFIG_CONFIG={tiny}", "tinyconfig")
        own.write_text("".join(f"{line}\n" for line in self._way.config))
        run_logged("Merge", ["sh", str(self._tree / "scripts/kconfig/merge_config.sh"), "-m",
                             "-O", str(self.folder), str(tiny), str(CONFIGS / "check.config"),
                             str(own)], self._logs / "merge.log", cwd=self._tree)
        self._make("Complete it", "olddefconfig.log", "olddefconfig")

    def missing(self) -> List[str]:
        """Return the options that the configuration should have, but does not."""
        return kconfig.dropped([CONFIGS / "check.config", self.folder / "own.config"],
                               self.folder / ".config")

    def compile(self, title: str, *more: str) -> str:
        """Compile it, and return the output."""
        log = f"{re.sub(r'[^a-z0-9]+', '-', f'{title} {self._way.name}'.lower())}.log"
        events = ["arch/x86/events/"] if self._way.kvm.startswith("arch/x86/") else []
        self._make(title, log, *_COMMON, *events, *filter(None, [self._way.kvm]), *more)
        return (self._logs / log).read_text(errors="replace")

    def not_validated(self, ours: Iterable[str]) -> List[str]:
        """Return our C files that were compiled, but whose objects objtool did not check."""
        commands = {path: self.folder / Path(path).parent / f".{Path(path).stem}.o.cmd"
                    for path in ours if path.endswith(".c")}
        return [path for path, command in commands.items()
                if command.exists() and "/objtool/objtool " not in command.read_text()]

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


def _checker() -> str:
    """Return a digest of the code that checks: if it is edited, all is checked anew."""
    modules = ("build", "checkbuild", "checksource", "kconfig", "optionoff", "passed", "tree")
    files = [CONFIGS / "check.config", *(SCRIPTS / "hostlib" / f"{name}.py" for name in modules)]
    return digest(*(path.read_text() for path in files))


# The digest of the code that is running: its files may be edited meanwhile.
_CHECKER = _checker()


def inputs(source: Source, tree: Tree) -> str:
    """Return a digest of a tree and of the code that checks it."""
    return digest(source.name, _CHECKER,
                  *(f"{path}\n{(tree.path / path).read_text(errors='replace')}"
                    for path in sorted(tree.ours())))


def passed_before(source: Source, folder: Path) -> Passed:
    """Return what has passed in earlier runs.

    A tree of the user's own has no version, so that nothing is kept for it.
    """
    return Passed(None if source.tree else folder / "passed.json")


def _version_of(way: Way, tree: Path) -> str:
    """Return the versions of a way's compilers; empty if the way can't be tried."""
    try:
        compiler_of(way, tree)
    except NotTried:
        return ""
    program = find_clang(tree, way.kvm.split("/")[1]) if way.compiler == "clang" else way.compiler
    # gcc compiles the programs that the build itself runs; with sparse, also the kernel.
    return "\n".join(said_by(each, "--version") for each in dict.fromkeys((program, "gcc"))
                     if shutil.which(each))


def _try_way(way: Way, tree: Tree, ours: Dict[str, Set[int]], folder: Path, logs: Path,
             jobs: int) -> Result:
    # Compile all: objects of an earlier run would not be compiled again, and give no warnings.
    shutil.rmtree(folder, ignore_errors=True)
    try:
        kernel = _Kernel(way, tree.path, folder, logs, jobs)
        kernel.configure()
        missing = kernel.missing()
        if missing:
            return Result(way.name, [f"the kernel can't have {', '.join(missing)}"])
        said = kernel.compile("all")
        passed_by = kernel.not_validated(ours) if "CONFIG_OBJTOOL=y" in way.config else []
        return Result(way.name, complaints(said, ours) + of_objects(said)
                      + [f"{path}: objtool did not look at its object" for path in passed_by])
    except NotTried as reason:
        return Result(way.name, not_tried=str(reason))
    except Failure as failure:
        return Result(way.name, [str(failure)])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _edited(mail: Path) -> List[str]:
    return re.findall(r"^\+\+\+ b/(\S+)", mail.read_text(), re.MULTILINE)


def _programs(paths: Iterable[str]) -> Set[str]:
    """Return which programs have to be compiled after edits of these files."""
    selftests = "tools/testing/selftests/"
    return {path[len(selftests):].split("/")[0] if path.startswith(selftests) else "perf"
            for path in paths if path.startswith("tools/")}


def _state(tree: Path, paths: Iterable[str]) -> str:
    """Return a digest of some files of a tree; files that it does not have are left out."""
    return digest(*(f"{path}\n{(tree / path).read_text(errors='replace')}"
                    for path in sorted(paths) if (tree / path).is_file()))


def _states(originals: Path, mails: Sequence[Path], paths: Iterable[str]) -> List[str]:
    """Return digests of the edited files: before the first mail, and after each mail.

    Args:
        originals: the folder with the original files; the mails are applied there
        paths: the paths of these files
    """
    states = [_state(originals, paths)]
    for mail in mails:
        try:
            _apply(mail, originals)
        except Failure:
            # The failure is reported when the mail is compiled.
            pass
        states.append(_state(originals, paths))
    return states


@dataclass(frozen=True)
class _Patch:
    """A patch to compile.

    Args:
        mail: the mail that has it
        topic: its name and series
        key: a digest of its inputs: the files before and after it, and the compilers
        after: a digest of the files after it
        is_last: True if no other patch follows
    """
    mail: Path
    topic: Topic
    key: str
    after: str
    is_last: bool


def _patches(source: Source, tree: Path, mails: Sequence[Path], paths: Set[str],
             programs: Iterable[Way]) -> List[_Patch]:
    """Return the patches to compile, in order.

    Args:
        paths: the files that mails edit
        programs: the ways in which edited programs are compiled as well
    """
    if len(mails) != len(_topics()):
        raise Failure(f"There are {len(mails)} mails of {len(_topics())} patches")
    same = digest(source.name, _CHECKER, *(_version_of(way, tree) for way in EACH),
                  *(way.name for way in programs))
    with tempfile.TemporaryDirectory() as tmp:
        for path in paths:
            if (tree / path).exists():
                (Path(tmp) / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / path, Path(tmp) / path)
        states = _states(Path(tmp), mails, paths)
    # The last patch has to meet more conditions, see _missing().
    lasts = [False] * (len(mails) - 1) + [True]
    return [_Patch(mail, topic, digest(same, before, after, str(last)), after, last)
            for mail, topic, before, after, last
            in zip(mails, _topics(), states, states[1:], lasts)]


class _Each:
    """Compile one patch after the other.

    Args:
        tree: the tree to which they are applied
        paths: the files that they edit
        kernels: the kernels that can be compiled here; at least x86's with and without the option
        programs: a function that compiles the programs that a mail edits
        passed: the patches that need not be compiled again
    """

    def __init__(self, tree: Path, paths: Set[str], kernels: Dict[Way, _Kernel],
                 programs: Callable[[Path], None], passed: Passed) -> None:
        self._tree = tree
        self._paths = paths
        self._kernels = kernels
        self._programs = programs
        self._passed = passed
        self._objects = optionoff.Objects(kernels[EACH_OFF].folder)
        # True if the kernels and the objects are those of the previous patch.
        self._are_built = False
        self._has_failed = False
        # The functions that each patch changes, by its name; and the names of the patches for
        # which this is not known.
        self.changes: Dict[str, List[str]] = {}
        self.unknown: Set[str] = set()

    def _build_before(self, patch: _Patch) -> List[str]:
        """Compile the tree before the patch is applied; return what went wrong."""
        found = []
        for kernel in self._kernels.values():
            try:
                kernel.configure()
                kernel.compile(f"before {_title(patch.mail)}")
            except Failure as failure:
                found.append(str(failure))
        self._are_built = not found
        if self._are_built:
            self._objects.changed(_OBJECTS)
        # If the previous patch has failed, these failures were reported already.
        return [] if self._has_failed else found

    def _missing(self) -> List[str]:
        """Complain about missing options after the last patch; earlier ones can't have all."""
        return [f"{way.name}: the kernel can't have {', '.join(kernel.missing())}"
                for way, kernel in self._kernels.items() if kernel.missing()]

    def _compile(self, patch: _Patch) -> List[str]:
        """Compile the files that the patch has edited; return what went wrong."""
        try:
            for kernel in self._kernels.values():
                _compile_kernel(patch.mail, kernel)
            self._programs(patch.mail)
        except Failure as failure:
            return [str(failure)]
        return self._missing() if patch.is_last and self._are_built else []

    def try_patch(self, patch: _Patch) -> Result:
        """Apply the next patch, and compile it if it has not passed yet."""
        result = Result(patch.mail.name, before=patch.key in self._passed)
        if not result.before and not self._are_built:
            result.complaints += self._build_before(patch)
        try:
            # Apply the patch even after a failure: the next ones need it.
            _apply(patch.mail, self._tree)
            if not result.before:
                result.complaints += self._compile(patch)
        except Failure as failure:
            result.complaints.append(str(failure))
        if not result.before and not result.complaints and self._are_built:
            changes = self._objects.changed(_OBJECTS)
            # Add the key only if it stands for the files that were compiled.
            if _state(self._tree, self._paths) == patch.after:
                self._passed.add(patch.key, changes)
        self._has_failed = bool(result.complaints)
        self._are_built = self._are_built and not result.before and not result.complaints
        # Only for this series: changes by fixes are meant for all kernels.
        if patch.topic.series == "kernel":
            name, notes = patch.topic.patch.name, self._passed.notes(patch.key)
            if notes is None:
                self.unknown.add(name)
            else:
                self.changes[name] = notes
        return result


def each_patch(source: Source, mails: Sequence[Path], folder: Path, logs: Path, jobs: int,
               passed: Passed) -> Iterator[Result]:
    """Apply one mail after the other to a tree of its own, and compile what it touches.

    A mail that has passed before, with the same files before and after it, is only applied.
    """
    tree = Tree(folder, patched=False, instruments=False)
    shutil.rmtree(folder, ignore_errors=True)
    tree.assemble(source)
    with (tree.path / "lib/Kconfig.debug").open("a") as options:
        options.write(_SELECT)
    kernels: Dict[Way, _Kernel] = {}
    for number, way in enumerate(EACH):
        try:
            kernels[way] = _Kernel(way, tree.path, folder / f"kernel{number}", logs, jobs)
        except NotTried as reason:
            yield Result(f"each patch, {way.name}", not_tried=str(reason))
    if EACH_ON not in kernels or EACH_OFF not in kernels:
        yield Result("each patch", not_tried="it takes the kernels of x86")
        return
    programs = dict(kernels)
    if EACH_ARM64 in kernels and not _has_libc(EACH_ARM64.compiler):
        yield Result("each patch, selftests of arm64",
                     not_tried=f"there is no libc for {EACH_ARM64.compiler}")
        del programs[EACH_ARM64]
    paths = touched(topic.patch for topic in _topics()).union(*map(_edited, mails))
    patches = _patches(source, tree.path, mails, paths, programs)
    each = _Each(tree.path, paths, kernels, lambda mail: _compile_programs(
        mail, tree.path, programs, folder, logs, jobs), passed)
    for patch in patches:
        yield each.try_patch(patch)
    yield Result("object code without the option", optionoff.complaints(
        each.changes, [entry for entry in optionoff.read_accepted()
                       if entry.patch not in each.unknown]))


def _apply(mail: Path, tree: Path) -> None:
    done = subprocess.run(["git", "apply", "--whitespace=nowarn", str(mail)], cwd=tree,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=isolated(GIT_CEILING_DIRECTORIES=str(tree.parent)),
                          check=False)
    if done.returncode:
        raise Failure(f"it does not apply: {done.stdout.strip()}")


def _title(mail: Path) -> str:
    return f"{mail.parent.name} {mail.name.split('-')[0]}"


def _compile_kernel(mail: Path, kernel: _Kernel) -> None:
    paths = _edited(mail)
    if kernel.is_edited(paths):
        if any(Path(path).name.startswith("Kconfig") for path in paths):
            kernel.configure()
        kernel.compile(f"{_title(mail)}: kernel")


def _compile_programs(mail: Path, tree: Path, kernels: Dict[Way, _Kernel], folder: Path,
                      logs: Path, jobs: int) -> None:
    """Compile the programs that a mail edits.

    Args:
        kernels: the kernels whose headers programs include; without the one of arm64, programs
            for arm64 are left out
    """
    edited = _edited(mail)
    programs = _programs(edited)
    title = _title(mail)
    if "perf" in programs:
        (folder / "perf").mkdir(exist_ok=True)
        run_logged(f"{title}: perf", ["make", "-C", str(tree / "tools/perf"),
                   f"O={folder / 'perf'}", f"-j{jobs}", *cached_cc(), *PERF_FLAGS],
                   logs / f"{title}-perf.log")
    builds = [(name, kernels[EACH_ON], name, [*cached_cc()[:1], *_chosen(tree, name)])
              for name in sorted(programs - {"perf"})]
    arm64 = _chosen_of_arm64(tree) if EACH_ARM64 in kernels and _is_of_arm64(edited) else []
    if arm64:
        # Use another folder than for x86: objects have the same names there.
        builds.append(("kvm", kernels[EACH_ARM64], "kvm-arm64", arm64))
    for name, kernel, output, args in builds:
        kernel.headers()
        (folder / output).mkdir(exist_ok=True)
        run_logged(f"{title}: {output} selftests", [
            "make", "-C", str(tree / "tools/testing/selftests" / name), f"-j{jobs}",
            f"OUTPUT={folder / output}", f"O={kernel.folder}",
            f"KHDR_INCLUDES=-isystem {kernel.folder}/usr/include", *args],
            logs / f"{title}-{output}-selftests.log")


_KVM_SELFTESTS = "tools/testing/selftests/kvm"


def _chosen(tree: Path, selftests: str) -> List[str]:
    """Return make's arguments to build only our programs; only KVM's folder has many others."""
    if selftests != "kvm":
        return []
    tests = [test for test in SELFTESTS if (tree / f"{_KVM_SELFTESTS}/{test}.c").exists()]
    return [f"TEST_GEN_PROGS_x86={' '.join(tests)}", "TEST_PROGS_x86=",
            "TEST_GEN_PROGS_EXTENDED_x86="]


def _is_of_arm64(paths: Iterable[str]) -> bool:
    """Return True if one of these is a file of arm64's KVM selftests, or their Makefile."""
    folders = tuple(f"{_KVM_SELFTESTS}/{folder}arm64/" for folder in ("", "lib/", "include/"))
    return any(path.startswith(folders) or path == f"{_KVM_SELFTESTS}/Makefile.kvm"
               for path in paths)


def _chosen_of_arm64(tree: Path) -> List[str]:
    """Return make's arguments to build our programs for arm64; empty if there are none yet.

    The Makefile tells which these are: the files of common tests exist before arm64 has the code
    that they need.
    """
    listed = re.findall(r"^TEST_GEN_PROGS_(?:COMMON|arm64) \+= (\S+)$",
                        (tree / f"{_KVM_SELFTESTS}/Makefile.kvm").read_text(), re.MULTILINE)
    tests = [test for test in listed
             if test in COMMON_SELFTESTS or test.startswith("arm64/guest_callchain_")]
    if not tests:
        return []
    cache = cached_cc(f"{ARM64.prefix}gcc") or [f"CC={ARM64.prefix}gcc"]
    return ["ARCH=arm64", f"CROSS_COMPILE={ARM64.prefix}", cache[0],
            f"TEST_GEN_PROGS_arm64={' '.join(tests)}", "TEST_PROGS_arm64=",
            "TEST_GEN_PROGS_EXTENDED_arm64="]


def _has_libc(compiler: str) -> bool:
    """Return True if a compiler finds the headers of a libc for its target."""
    return not subprocess.run([compiler, "-fsyntax-only", "-x", "c", "-"],
                              input="#include <stdio.h>\n", text=True, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def run(source: Source, tree: Tree, ours: Dict[str, Set[int]], mails: Path, folder: Path,
        passed: Passed, jobs: int = 0) -> Iterator[Result]:
    """Run all builds; mails are those of series.write(), ours the lines of our_lines()."""
    jobs = jobs or os.cpu_count() or 1
    logs = folder / "log"
    for way in WAYS:
        key = digest(inputs(source, tree), repr(way),
                     _version_of(way, tree.path))
        if key in passed:
            yield Result(way.name, before=True)
            continue
        result = _try_way(way, tree, ours, folder / "way", logs, jobs)
        if not result.complaints and not result.not_tried:
            passed.add(key)
        yield result
    paths = sorted(mails.rglob("*.patch"))
    say(f"        Compile each of {len(_topics())} patches")
    yield from each_patch(source, paths, folder / "each", logs, jobs, passed)
