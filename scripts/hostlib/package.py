# SPDX-License-Identifier: GPL-2.0-only
"""Build packages of the patched kernel and its perf, to install beside a distribution's own."""

import gzip
import os
import platform
import shutil
import subprocess
import time
import zlib
from pathlib import Path
from typing import List, Optional

from . import kconfig
from .build import CONFIGS, PERF_FLAGS, cached_cc
from .source import SERIES, Source
from .tree import Tree
from .ui import Failure, run_logged, say

# Estimates of the disk space for a build without debug information, and with it. BTF is made
# from debug information.
_NEEDS_GIB, _NEEDS_GIB_DEBUG = 8, 30

# Lists the modules that are loaded now.
_LOADED = Path("/proc/modules")

# Paths at which distributions keep the running kernel's configuration.
_RUNNING = ("/boot/config-{release}", "/lib/modules/{release}/config",
            "/usr/lib/modules/{release}/config", "/proc/config.gz")

# No distribution uses these names now. Before bookworm, Debian's perf had a name like PERF.
PERF_PACKAGE = "perf-guest-callchain"
PERF = f"perf_{SERIES}"
_PERF_ABOUT = "perf of Linux, with callchains and names of KVM guests"

# Build perf with the text interface. Leave out libraries that the builder's machine may have, but
# the machine that runs perf may lack.
_PERF_FLAGS = [*(flag for flag in PERF_FLAGS if flag != "NO_SLANG=1"),
               "NO_LIBLLVM=1", "NO_JVMTI=1"]

_PERF_CONTROL = """\
Package: {name}
Version: {version}-{revision}
Architecture: amd64
Maintainer: {maintainer}
Section: devel
Priority: optional
Installed-Size: {kib}
{depends}
Description: {about}
 Call it as {program}.  It names the functions that guests run; on a kernel that
 has the option GUEST_PERF_CALLCHAIN, it also shows their callers.
"""


def find_config(given: str, folder: Path, running: str = platform.release(),
                top: Path = Path("/")) -> Path:
    """Find the configuration to start from: the one that is given, or the running kernel's.

    Args:
        given: the name of a file; empty for the running kernel's configuration
        folder: a folder for the copy
        running: the running kernel's release, as "uname -r" prints it
        top: the root of the system's files

    Returns a copy of it, uncompressed, with a name that the kernel's scripts accept.

    Raises Failure if there is none, or if it is not for an x86-64 kernel with modules.
    """
    if given:
        names = [Path(given).expanduser()]
    else:
        names = [top / name.format(release=running).lstrip("/") for name in _RUNNING]
    base = next((name for name in names if name.is_file()), None)
    if given and not base:
        raise Failure(f"CONFIG={given} is no file; name a kernel's configuration, as "
                      "distributions have them in /boot/config-*, or a .config")
    if not base:
        raise Failure(f"The configuration of the running kernel, {running}, is not on this "
                      "machine; name one with CONFIG=FILE, as distributions have them in "
                      "/boot/config-*")
    data = base.read_bytes()
    try:
        text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise Failure(f"{base} can't be read ({error}); name another configuration with "
                      "CONFIG=FILE") from error
    for option in ("CONFIG_X86_64=y", "CONFIG_MODULES=y"):
        if option not in text.splitlines():
            raise Failure(f"{base} does not say {option}, which a KVM host's whole .config does; "
                          "name another one with CONFIG=FILE")
    say(f"The kernel is configured as {base} says, and with guest callchains.")
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / "base.config"
    copy.write_text(text)
    return copy


class Packages:
    """The packages that are built from one source and one configuration.

    Args:
        folder: the folder of these builds
        source: the kernel's source
        base: the kernel's configuration, see find_config(); perf_alone() needs none
        fragment: the user's own settings, merged into it
        localmod: leave out modules that are not loaded on this machine now
        jobs: how many jobs run at once; 0 means as many as there are CPUs
    """

    def __init__(self, folder: Path, source: Source, base: Path = Path("/dev/null"),
                 fragment: Optional[Path] = None, localmod: bool = False,
                 jobs: int = 0) -> None:
        # Leave out the instruments: they export a function for tests.
        self._tree = Tree(folder, instruments=False)
        self._folder = folder
        self._source = source
        self._base = base
        self._fragments = [CONFIGS / "package.config", *([fragment.resolve()] if fragment else [])]
        self._localmod = localmod
        self._kernel = folder / "kernel"
        self._perf = folder / "perf"
        self._logs = folder / "log"
        self._jobs = f"-j{jobs or os.cpu_count() or 1}"
        # Debug information is large, and only needed to debug this kernel: make no package of it,
        # and strip modules.  The kernel's build strips them for Debian without being told.
        self._env = {"CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1",
                     "INSTALL_MOD_STRIP": "1",
                     "DEB_BUILD_PROFILES": "pkg.linux-upstream.nokerneldbg"}

    def _make_argv(self, *args: str) -> List[str]:
        return ["make", "--no-print-directory", "-C", str(self._tree.path), f"O={self._kernel}",
                self._jobs, *cached_cc(), *args]

    def _make(self, title: str, log: str, *args: str) -> None:
        run_logged(title, self._make_argv(*args), self._logs / log, env=self._env)

    def _ask(self, *argv: str) -> str:
        """Return a command's output. If it fails, raise Failure with its last error message."""
        done = subprocess.run(argv, cwd=self._folder, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            said = (done.stderr.strip() or "nothing").splitlines()[-1]
            raise Failure(f"{argv[0]} failed, it says: {said}")
        return done.stdout.strip()

    def _local_config(self) -> Path:
        """Return the configuration without modules that are not loaded on this machine."""
        if not os.environ.get("LSMOD") and not (_LOADED.exists() and _LOADED.read_text()):
            raise Failure("LOCALMOD=1 leaves out modules that are not loaded, and on this machine "
                          "none are; leave LOCALMOD=1 out")
        config, local = self._kernel / ".config", self._kernel / "localmod.config"
        shutil.copy(self._base, config)
        # localmodconfig asks about each new option; an empty answer takes the default.
        run_logged("Leave out modules that are not loaded",
                   ["sh", "-c", 'yes "" | "$@"', "sh", *self._make_argv("localmodconfig")],
                   self._logs / "localmod.log")
        return config.rename(local)

    def _configure(self) -> None:
        self._kernel.mkdir(parents=True, exist_ok=True)
        base = self._local_config() if self._localmod else self._base
        kconfig.merge_all(self._tree.path, self._kernel, base, self._fragments, self._make,
                          self._logs)
        options = (self._kernel / ".config").read_text().splitlines()
        if not {"CONFIG_KVM_INTEL=m", "CONFIG_KVM_AMD=m"}.intersection(options):
            raise Failure(f"{base} leaves out KVM for Intel's CPUs and for AMD's; load kvm_intel "
                          "or kvm_amd before LOCALMOD=1, or name another configuration with "
                          "CONFIG=FILE")
        needs = _NEEDS_GIB_DEBUG if "CONFIG_DEBUG_INFO=y" in options else _NEEDS_GIB
        free = shutil.disk_usage(self._folder).free / 2**30
        begun = (self._kernel / "arch/x86/kernel").exists()
        if free < needs and not begun:
            raise Failure(f"This configuration needs {needs} GiB, {self._folder} has {free:.1f} "
                          "GiB free; free some, choose another folder with BUILD=DIR, or leave "
                          "out modules with LOCALMOD=1")
        btf = "CONFIG_DEBUG_INFO_BTF=y"
        if btf in self._base.read_text().splitlines() and btf not in options:
            say("This kernel will have no BTF, which BPF programs may want: see in menuconfig "
                "what DEBUG_INFO_BTF depends on.")

    def build(self) -> List[Path]:
        """Build all packages, and return those to install."""
        self._tree.assemble(self._source)
        self._configure()
        perf = self.perf_alone()
        return [*self._kernel_debs(), *perf]

    def perf_alone(self) -> List[Path]:
        """Build the package of perf, for the kernel that a machine has."""
        self._kernel.mkdir(parents=True, exist_ok=True)
        self._tree.assemble(self._source)
        self._note_revision()
        return [self._perf_deb(self._stage_perf())]

    def _note_revision(self) -> None:
        """Write the time to where the kernel's build has its number: later packages are newer."""
        (self._kernel / ".version").write_text(f"{time.strftime('%y%m%d%H%M', time.gmtime())}\n")

    def _kernel_debs(self) -> List[Path]:
        """Build packages with the kernel's own make target, and return them."""
        for old in self._folder.rglob("linux-*.deb"):
            old.unlink()
        # The kernel's build adds one to this number, and uses it in the names of packages.
        self._note_revision()
        self._make("Build the kernel and its package, 10 minutes to hours", "bindeb-pkg.log",
                   "bindeb-pkg")
        # Leave out linux-libc-dev: the distribution's own headers for the C library stay.
        return [package for package in sorted(self._folder.rglob("linux-*.deb"))
                if not package.name.startswith("linux-libc-dev")]

    def _stage_perf(self) -> Path:
        """Build perf, install it into a folder, and return the folder."""
        stage = self._folder / "perf-root"
        shutil.rmtree(stage, ignore_errors=True)
        self._perf.mkdir(parents=True, exist_ok=True)
        home = f"/usr/lib/{PERF_PACKAGE}"
        run_logged("Build perf", ["make", "-C", str(self._tree.path / "tools/perf"),
                                  f"O={self._perf}", self._jobs, *cached_cc(), *_PERF_FLAGS,
                                  f"prefix={home}", f"DESTDIR={stage}", "install-tools"],
                   self._logs / "perf.log", env=self._env)
        self._ask("strip", str(stage / home.lstrip("/") / "bin/perf"))
        (stage / "usr/bin").mkdir()
        (stage / "usr/bin" / PERF).symlink_to(f"../lib/{PERF_PACKAGE}/bin/perf")
        return stage

    def _version(self) -> str:
        """Return the kernel's version; with "~", a release candidate sorts before the release."""
        version = self._ask(*self._make_argv("-s", "kernelversion")).splitlines()[-1]
        return version.replace("-rc", "~rc")

    def _perf_deb(self, stage: Path) -> Path:
        version, revision = self._version(), (self._kernel / ".version").read_text().strip()
        # dpkg-shlibdeps needs the control file of a source package.
        control = self._folder / "debian" / "control"
        control.parent.mkdir(exist_ok=True)
        control.write_text(f"Source: {PERF_PACKAGE}\n\nPackage: {PERF_PACKAGE}\n"
                           "Architecture: amd64\n")
        depends = self._ask("dpkg-shlibdeps", "-O",
                            str(stage / f"usr/lib/{PERF_PACKAGE}/bin/perf"))
        kib = sum(path.lstat().st_size for path in stage.rglob("*")) // 1024
        (stage / "DEBIAN").mkdir()
        (stage / "DEBIAN/control").write_text(_PERF_CONTROL.format(
            name=PERF_PACKAGE, version=version, revision=revision, about=_PERF_ABOUT, program=PERF,
            kib=kib, depends=depends.replace("shlibs:Depends=", "Depends: "),
            maintainer=f"{os.environ.get('USER') or 'root'} <root@localhost>"))
        package = self._folder / f"{PERF_PACKAGE}_{version}-{revision}_amd64.deb"
        run_logged("Pack perf", ["dpkg-deb", "--root-owner-group", "--build", str(stage),
                                 str(package)], self._logs / "perf-deb.log")
        return package
