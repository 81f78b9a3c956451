# SPDX-License-Identifier: GPL-2.0-only
"""Build the kernel, perf and the selftests, each only when an input changed."""

import hashlib
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Iterable, List, Optional, Tuple

from . import foreign, kconfig
from .arch import X86, Arch
from .patches import REPO, edits, topics, touched
from .source import Source
from .tree import Tree
from .ui import Failure, run_logged

CONFIGS = REPO / "scripts" / "configs"

# The space for a tree, its objects, perf, and the compiler's cache.
_NEEDS_GIB = 6


@lru_cache(maxsize=None)
def our_selftests(arch: str) -> List[str]:
    """Return our KVM selftests for an architecture: those that patches add to Makefile.kvm.

    Linux has a hundred more, which need not be built here.
    """
    listed: List[Tuple[str, str]] = []
    for topic in topics():
        diff = edits(topic.patch, "tools/testing/selftests/kvm/Makefile.kvm")
        for sign, *entry in re.findall(r"^([+-])TEST_GEN_PROGS_(\w+) \+= (\S+)$", diff,
                                       re.MULTILINE):
            (listed.append if sign == "+" else listed.remove)((entry[0], entry[1]))
    # Run those of all architectures first.
    return sorted((test for where, test in listed if where in (arch, "COMMON")),
                  key=lambda test: ("/" in test, test))


# One of perf's selftests, which are built into a folder below KVM's.
PERF_EVENTS_TEST = "perf_events/sw_event_samples"

# Some of Linux's own tests.  They show whether the host of another architecture has what our
# tests need, and take at most a minute each.  These are left out: debug-exceptions takes many
# minutes without VHE; get-reg-list says several times that all is skipped, and passes; and
# psci_test may end in a warning of KVM's if the kernel is preempted.
LINUX_TESTS = {"arm64": ["arm64/hypercalls", "arm64/vpmu_counter_access"]}

# The instruments.  Their tests run last: their module slows down the code that it watches.
MIDWALK_TEST = "guest_callchain/guest_callchain_midwalk_test"
INSTRUMENT_TESTS = ["guest_callchain/guest_callchain_bound_test", MIDWALK_TEST]
# A 32-bit program, for kernels that can run it.
TEST_32BIT = "guest_callchain/guest_callchain_vmm32_test"
BENCH = "guest_callchain/guest_callchain_bench"
FUZZER = "guest_callchain/guest_callchain_fuzz"
GUEST_PROGRAM = "guest_callchain/guest_program"
LIBC_PROGRAM = "guest_callchain/guest_program_libc"
CALL_PATHS = "guest_callchain/call_paths"
UNIKERNEL = "guest_callchain/unikernel"
VMM_POLICY = "guest_callchain/vmm_policy.so"

# The same input must give the same kernel.
_REPRODUCIBLE = {"KBUILD_BUILD_TIMESTAMP": "2026-01-01", "KBUILD_BUILD_USER": "build",
                 "KBUILD_BUILD_HOST": "host", "KBUILD_BUILD_VERSION": "1"}

# The same Python as in the Makefile.
_PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else "python3"

# Build perf without the parts that need more than Debian's small set of libraries.  As PYTHON is
# given, perf's Makefile would insist on python3-config, although its output is not used.
PERF_FLAGS = ["NO_RUST=1", "NO_LIBPYTHON=1", "NO_LIBPERL=1", "NO_JEVENTS=1", "NO_SLANG=1",
              "BUILD_BPF_SKEL=0", "NO_SHELLCHECK=1", f"PYTHON={_PYTHON}", "PYTHON_CONFIG=true"]


def cached_cc(compiler: str = "gcc") -> List[str]:
    """Return make's arguments that have ccache keep the compiled objects, if it is installed."""
    return [f"CC=ccache {compiler}", "HOSTCC=ccache gcc"] if shutil.which("ccache") else []


def _cross(arch: Arch, root: Optional[Path] = None, headers: Iterable[Path] = ()) -> List[str]:
    """Return make's arguments to build for an architecture.

    Args:
        arch: the architecture
        root: the root of the system that has the headers and libraries for programs
        headers: folders with headers that are searched before these
    """
    if not arch.prefix:
        return cached_cc()
    cache = "ccache " if shutil.which("ccache") else ""
    options = ""
    if root:
        # A cross compiler has its own libc, and would find that one first.
        folders = [*headers, root / "usr/include" / arch.triplet, root / "usr/include"]
        options = "".join([f" --sysroot={root} -B{root}/usr/lib/{arch.triplet}",
                           *(f" -isystem {folder}" for folder in folders)])
    return [f"ARCH={arch.name}", f"CROSS_COMPILE={arch.prefix}", f"HOSTCC={cache}gcc",
            f"CC={cache}{arch.prefix}gcc{options}"]


def _compiler(name: str) -> str:
    """Return a compiler's name and version: another compiler must build all anew."""
    said = subprocess.run([name, "--version"], stdout=subprocess.PIPE, text=True,
                          check=True)
    return said.stdout.splitlines()[0]


def _hash(parts: Iterable[object]) -> str:
    """Return a hash of texts and of the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else str(part).encode()
        digest.update(hashlib.sha256(data).digest())
    return digest.hexdigest()


def check_space(folder: Path) -> None:
    """Raise Failure if a folder has too little space for a build."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free / 2**30
    if free < _NEEDS_GIB:
        raise Failure(f"A build needs {_NEEDS_GIB} GiB, {folder} has {free:.1f} GiB free; free "
                      "some, or choose another folder with BUILD=DIR")


class Build:
    """The kernel and programs that are built from one source with one configuration.

    Args:
        build: the build folder
        source: the kernel's source
        extra_config: a fragment that is merged over host.config
        baseline: true for a host that can walk as the series of 2023 did
        patched: false for a kernel without our series; it has Linux's selftests only
        jobs: the number of parallel jobs; 0 for one per CPU
        arch: the host's architecture
        compiler: what compiles the kernel, if that is not its architecture's gcc
    """

    def __init__(self, build: Path, source: Source, extra_config: Optional[Path],
                 baseline: bool = False, patched: bool = True,
                 jobs: int = 0, arch: Arch = X86, compiler: str = "gcc") -> None:
        self.arch = arch
        self.tree = Tree(build, patched, baseline=baseline)
        self._source = source
        self._fragments = [CONFIGS / "host.config", CONFIGS / f"host-{arch.name}.config"]
        if patched and not self._walks_guests():
            self._fragments.append(CONFIGS / "no-callchain.config")
        name = "host"
        if extra_config:
            self._fragments.append(extra_config.resolve())
            name += "-" + extra_config.stem
        self.folder = build
        self.path = build / name
        self.log_dir = self.path / "log"
        self.kernel = self.path / "kernel"
        self.modules = self.path / "modules"
        self.perf = build / "perf" / "perf"
        # The user space of a host that can't run this machine's programs.
        self.root = build / "root"
        self.tsc_khz = build / "tsc_khz"
        self.selftests = self.path / "selftests" / "kvm"
        self._number_of_jobs = jobs
        self._jobs = f"-j{jobs or os.cpu_count() or 1}"
        self._compiler = compiler
        # ccache must find objects of another clone, which has the same files under another path.
        self._env = {**_REPRODUCIBLE, "CCACHE_BASEDIR": str(build), "CCACHE_NOHASHDIR": "1"}
        if arch is not X86:
            libraries = f"{self.root}/usr/lib/{arch.prefix.rstrip('-')}/pkgconfig"
            self._env.update({"PKG_CONFIG_SYSROOT_DIR": str(self.root), "PKG_CONFIG_LIBDIR":
                              f"{libraries}:{self.root}/usr/share/pkgconfig"})

    @property
    def image(self) -> Path:
        return self.kernel / self.arch.image

    def _walks_guests(self) -> bool:
        """Return True if our patches make this architecture walk guests' stacks."""
        kconfig_of_kvm = f"arch/{self.arch.name}/kvm/Kconfig"
        return any("+\tselect HAVE_GUEST_PERF_CALLCHAIN" in edits(topic.patch, kconfig_of_kvm)
                   for topic in self.tree.topics)

    @property
    def tests(self) -> List[str]:
        """The test programs that this kernel can run."""
        if self.arch is not X86:
            return [*self._selftests(), PERF_EVENTS_TEST, MIDWALK_TEST]
        runs_32bit = "CONFIG_IA32_EMULATION=y\n" in (self.kernel / ".config").read_text()
        return [*our_selftests(X86.name), PERF_EVENTS_TEST, *([TEST_32BIT] if runs_32bit else []),
                *INSTRUMENT_TESTS]

    def _selftests(self) -> List[str]:
        """Return the programs that the selftests' Makefile builds, as paths below its folder."""
        return [*our_selftests(self.arch.name), *LINUX_TESTS.get(self.arch.name, [])]

    def _instruments(self) -> List[str]:
        """Return the other programs that are built beside the selftests."""
        if self.arch is not X86:
            return [MIDWALK_TEST, BENCH, CALL_PATHS]
        return [*INSTRUMENT_TESTS, TEST_32BIT, BENCH, FUZZER, GUEST_PROGRAM, LIBC_PROGRAM,
                CALL_PATHS, UNIKERNEL, VMM_POLICY]

    def assemble(self) -> None:
        """Assemble the tree from source, patches and new files; undo other changes in it."""
        self.tree.assemble(self._source)

    def all(self) -> None:
        if self.arch is not X86:
            foreign.unpack(foreign.fetch(self.arch.debian), self.root, self.log_dir / "root.log")
        kernel_inputs = self._build_host()
        self._build_perf(self.perf, self.arch)
        self._build_selftests(kernel_inputs)

    def host_and_bench(self, programs: Path) -> None:
        """Build a host for another build's benchmark program; programs is its selftests' folder.

        A kernel without our patches lacks the selftests library that the program needs.
        """
        kernel_inputs = self._build_host()
        folder = (self.selftests / BENCH).parent
        folder.mkdir(parents=True, exist_ok=True)
        stamp = self.path / "bench.stamp"
        sources = REPO / "tools/testing/guest_callchain"
        inputs = _hash([kernel_inputs, *sorted((sources / "modules").glob("*")),
                        programs / BENCH])
        if self._is_current(stamp, inputs, self.selftests / BENCH, folder / "test_pmi.ko"):
            return
        stamp.unlink(missing_ok=True)
        shutil.copy(programs / BENCH, folder)
        self._build_modules(folder, "test_pmi.o")
        stamp.write_text(inputs)

    def guest(self, config: Path, compiler: str) -> "Build":
        """Build another kernel from the same tree, for a guest, and return what was built.

        Args:
            config: a fragment that is merged over the host's configuration
            compiler: what compiles it
        """
        made = Build(self.folder, self._source, config, jobs=self._number_of_jobs,
                     arch=self.arch, compiler=compiler)
        # ccache does not see the seed of CONFIG_RANDSTRUCT, and would mix layouts.
        made._env["CCACHE_DISABLE"] = "1"
        made.path.mkdir(parents=True, exist_ok=True)
        if not made.image.exists():
            check_space(self.folder)
        made._build_kernel()
        return made

    def host_and_perf(self) -> None:
        """Build all but our selftests, which a tree without our patches does not have."""
        self._build_host()
        self._build_perf(self.perf, self.arch)

    def _build_host(self) -> str:
        """Build what a host needs to boot, and return a hash of the kernel's inputs."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.image.exists():
            check_space(self.folder)
        self.assemble()
        kernel_inputs = self._build_kernel()
        if self.arch is not X86:
            return kernel_inputs
        run_logged("Build the TSC calibrator", ["gcc", "-O2", "-o", str(self.tsc_khz),
                   str(REPO / "scripts" / "tsc_khz.c")], self.log_dir / "tsc_khz.log")
        return kernel_inputs

    def _overlay(self, tops: Iterable[str]) -> List[object]:
        """Return our files below some folders, and all patches that touch these folders."""
        tops = tuple(tops)
        files = [file for path, file in sorted(self.tree.new_files.items())
                 if path.startswith(tops)]
        patches = [topic.patch for topic in self.tree.topics
                   if any(path.startswith(tops) for path in touched([topic.patch]))]
        return [*map(str, files), *files, *patches]

    def _is_current(self, stamp: Path, inputs: str, *products: Path) -> bool:
        """Return True if the products need not be built again.

        A tree of the user's own may change at any time, so that make has to look each time.
        """
        return (not self._source.tree and stamp.exists() and stamp.read_text() == inputs
                and all(product.exists() for product in products))

    def _make(self, *args: str) -> List[str]:
        return ["make", "-C", str(self.tree.path), f"O={self.kernel}", self._jobs,
                *_cross(self.arch), *self._other_compiler(), *args]

    def _compiler_version(self) -> str:
        return _compiler(f"{self.arch.prefix}gcc" if self._compiler == "gcc" else self._compiler)

    def _other_compiler(self) -> List[str]:
        """Return the arguments that override those for gcc."""
        if self._compiler == "gcc":
            return []
        return cached_cc(self._compiler) or [f"CC={self._compiler}"]

    def _run_make(self, title: str, log: str, *args: str) -> None:
        run_logged(title, self._make(*args), self.log_dir / log, env=self._env)

    def _configure(self) -> None:
        """Configure the kernel with tinyconfig and our fragments."""
        self.kernel.mkdir(parents=True, exist_ok=True)
        tiny = self.kernel / "tiny.config"
        config = self.kernel / ".config"
        previous = config.read_bytes() if config.exists() else None

        self._run_make("Configure the kernel", "config.log", f"KCONFIG_CONFIG={tiny}",
                       "tinyconfig")
        kconfig.merge_all(self.tree.path, self.kernel, tiny, self._fragments, self._run_make,
                          self.log_dir)
        if previous == config.read_bytes():
            return
        self._kernel_stamp().unlink(missing_ok=True)

    def _kernel_stamp(self) -> Path:
        return self.path / "kernel.stamp"

    def _make_kernel(self, title: str) -> None:
        self._run_make(title, "kernel.log", self.arch.target, "modules")
        shutil.rmtree(self.modules, ignore_errors=True)
        self._run_make("Gather its modules", "modules.log", "modules_install",
                       f"INSTALL_MOD_PATH={self.modules}")

    def changed_kernel(self) -> None:
        """Build only the kernel, from a tree that was changed since all()."""
        # all() must not take this kernel for its own.
        self._kernel_stamp().unlink(missing_ok=True)
        self._make_kernel("Build the changed kernel")

    def _build_kernel(self) -> str:
        stamp = self._kernel_stamp()
        inputs = _hash([self._source.name, self._compiler_version(),
                        *self._fragments,
                        *self._overlay(("arch/", "include/", "init/", "kernel/", "lib/", "virt/"))])
        if not self._is_current(stamp, inputs, self.image, self.modules):
            stamp.unlink(missing_ok=True)
            self._configure()
            self._make_kernel("Build the kernel, 6 minutes on two cores for the first time")
            self._run_make("Gather its headers", "headers.log", "headers")
            stamp.write_text(inputs)
        return inputs

    def perf_here(self) -> Path:
        """Build perf for this machine, and return its path; it reads the host's files, too."""
        if self.arch is X86:
            return self.perf
        perf = self.folder / "perf-here" / "perf"
        self._build_perf(perf, X86)
        return perf

    def _build_perf(self, perf: Path, arch: Arch) -> None:
        stamp = perf.with_suffix(".stamp")
        inputs = _hash([self._source.name, _compiler(f"{arch.prefix}gcc"), *PERF_FLAGS,
                        *self._overlay(("tools/perf/", "tools/lib/", "tools/include/",
                                        "tools/arch/", "include/uapi/linux/perf_event.h"))])
        if self._is_current(stamp, inputs, perf):
            return
        stamp.unlink(missing_ok=True)
        perf.parent.mkdir(parents=True, exist_ok=True)
        cross = arch is not X86
        # pkg-config's variables name libraries of the host's architecture, not of this machine.
        env = {name: value for name, value in self._env.items()
               if cross or not name.startswith("PKG_CONFIG")}
        run_logged("Build perf" if arch is self.arch else "Build perf for this machine",
                   ["make", "-C", str(self.tree.path / "tools/perf"), f"O={perf.parent}",
                    self._jobs, *_cross(arch, self.root), *PERF_FLAGS,
                    *(["PKG_CONFIG=pkg-config"] if cross else [])],
                   self.log_dir / f"{perf.parent.name}.log", env=env)
        stamp.write_text(inputs)

    def _build_modules(self, folder: Path, *names: str) -> None:
        """Build all test modules, or only the ones named: the benchmark needs one."""
        # Another configuration may have another struct module, which make does not notice.
        for product in [*folder.glob("*.ko"), *folder.glob("*.mod.o")]:
            product.unlink()
        run_logged("Build the test modules", [
            "make", "-C", str(REPO / "tools/testing/guest_callchain"), f"KDIR={self.kernel}",
            f"MO={folder}", *([] if self.arch is X86 else _cross(self.arch)),
            *([f"MODULES={' '.join(names)}"] if names else []), "modules"],
            self.log_dir / "modules-test.log", env=self._env)

    def _build_selftests(self, kernel_inputs: str) -> None:
        stamp = self.path / "selftests.stamp"
        programs = [*self._selftests(), PERF_EVENTS_TEST, *self._instruments()]
        inputs = _hash([kernel_inputs, *programs, *self._overlay(("tools/testing/",))])
        products = [self.selftests / program for program in programs]
        if self._is_current(stamp, inputs, *products):
            return
        stamp.unlink(missing_ok=True)
        modules = self.selftests / "guest_callchain"
        modules.mkdir(parents=True, exist_ok=True)
        arch = self.arch.name
        run_logged("Build the selftests", [
            *self._make_selftests(), f"TEST_GEN_PROGS_{arch}={' '.join(self._selftests())}",
            f"TEST_PROGS_{arch}=", f"TEST_GEN_PROGS_EXTENDED_{arch}="],
            self.log_dir / "selftests.log", env=self._env)
        folder = os.path.dirname(PERF_EVENTS_TEST)
        (self.selftests / folder).mkdir(exist_ok=True)
        run_logged("Build perf's selftests", self._make_selftests(f"selftests/{folder}", folder),
                   self.log_dir / "perf-events.log", env=self._env)
        if self.arch is X86:
            run_logged("Build the instruments", [
                *self._make_selftests("guest_callchain"), f"KDIR={self.kernel}", f"MO={modules}",
                "programs", "modules"], self.log_dir / "instruments.log", env=self._env)
        else:
            run_logged("Build the instruments",
                       [*self._make_selftests("guest_callchain"), "programs"],
                       self.log_dir / "instruments.log", env=self._env)
            self._build_modules(modules)
        stamp.write_text(inputs)

    def _make_selftests(self, folder: str = "selftests/kvm", output: str = "") -> List[str]:
        """Return the make command for a folder of tools/testing.

        The output goes to the folder of KVM's selftests, or to one below it.
        """
        headers = self.kernel / "usr/include"
        return ["make", "-C", str(self.tree.path / "tools/testing" / folder), self._jobs,
                f"OUTPUT={self.selftests / output}", f"O={self.kernel}",
                f"KHDR_INCLUDES=-isystem {headers}",
                *([] if self.arch is X86 else _cross(self.arch, self.root, [headers]))]

    def all_selftests(self) -> List[str]:
        """Build the host and all KVM selftests of its tree; return the selftests' names."""
        self.selftests = self.path / "all-selftests" / "kvm"
        self._build_host()
        self.selftests.mkdir(parents=True, exist_ok=True)
        run_logged("Build all KVM selftests", [*self._make_selftests(), "TEST_PROGS_x86="],
                   self.log_dir / "all-selftests.log", env=self._env)
        said = subprocess.run(
            [*self._make_selftests(), "-s", "--eval=names: ; @echo names: $(TEST_GEN_PROGS)",
             "names"], check=True, stdout=subprocess.PIPE, text=True).stdout
        names = next(line for line in said.splitlines() if line.startswith("names: "))
        return [os.path.relpath(path, self.selftests) for path in names.split()[1:]]
