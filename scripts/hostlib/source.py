# SPDX-License-Identifier: GPL-2.0-only
"""Get a kernel's source: Debian's package of it, or a tree or tarball of the user's own."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cmp_to_key
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from . import pool
from .ui import Failure, Step, one_at_a_time

# The kernel that patches/ is made for.
SERIES = "7.3"

# A file that only the copies made by bases.py have: a line with another kernel and its package.
THIS_BASE = "patches/base"


def read_base(path: Path) -> Tuple[str, Optional[pool.Pinned]]:
    """Return the kernel's version, and its package if path names another kernel.

    The file has a line with the version, and the package's path, size and SHA-256.
    """
    if not path.exists():
        return SERIES, None
    version, package, size, sha256 = path.read_text().split()
    return version, pool.Pinned(package, int(size), sha256)


LINUX, PINNED = read_base(Path(__file__).resolve().parents[2] / THIS_BASE)
PACKAGE = f"linux-source-{LINUX}"

# Debian's suites that may have the source; suites that a mirror does not carry are ignored.  Use
# codenames, because mirrors update aliases like stable-backports late.
SUITES = ("trixie-backports", "forky-backports", "forky", "sid", "experimental")

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Source:
    """A kernel's source: a tarball to unpack, in Debian's package or not, or a tree to copy."""
    name: str
    tarball_package: Optional[Path] = None
    tarball: Optional[Path] = None
    tree: Optional[Path] = None


def cache_dir() -> Path:
    """Return the folder where downloads are kept, outside of any tree."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kvm-guest-callchains"


def _run(argv: List[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"})


def apt_mirror() -> Optional[str]:
    """Return the mirror of Debian to use with apt: MIRROR=, or the one of this machine's own apt.

    None if there is no apt or no keyring of Debian's, or if apt knows no mirror of Debian.
    """
    if not (shutil.which("apt-get") and shutil.which("apt-cache") and KEYRING.exists()):
        return None
    if os.environ.get("MIRROR"):
        return pool.mirror()
    targets = _run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)",
                    "Created-By: Packages"]).stdout.split("\n")
    labels: Dict[str, str] = {}
    for line in targets:
        uri, _, label = line.partition(" ")
        if uri:
            labels[uri] = label.strip()

    for uri, label in labels.items():
        if label == "Debian":
            return uri
    # Before the first "apt-get update" there are no labels.
    for uri, label in labels.items():
        if not label and uri.rstrip("/").endswith("/debian"):
            return uri
    return None


def archive_names(simulated: str) -> List[str]:
    """Return apt's names of the files that "apt-get --simulate install" would install."""
    rows = re.findall(r"^Inst (\S+) \((\S+) .*\[(\w+)\]\)", simulated, re.MULTILINE)
    return [f"{name.split(':')[0]}_{version.replace(':', '%3a')}_{architecture}.deb"
            for name, version, architecture in rows]


class PrivateApt:
    """An apt with lists and sources of its own; this machine's stay untouched."""

    def __init__(self, folder: Path, mirror_uri: str,
                 suites: Sequence[str] = SUITES, architecture: str = "amd64") -> None:
        sources = folder / "sources.list"
        for sub in ("lists/partial", "archives/partial"):
            (folder / sub).mkdir(parents=True, exist_ok=True)
        sources.write_text("".join(f"deb [arch={architecture} signed-by={KEYRING}] {mirror_uri} "
                                   f"{suite} main\n" for suite in suites))
        self._options = [
            "-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null",
            "-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}",
            "-o", f"Dir::Cache::archives={folder}/archives",
            "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=",
            "-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3",
            "-o", "Acquire::http::Timeout=30",
        ]
        self._archives = folder / "archives"
        if architecture != "amd64":
            # The packages installed on this machine are of another architecture: ignore them.
            (folder / "status").write_text("")
            self._options += [
                "-o", f"APT::Architecture={architecture}",
                "-o", f"APT::Architectures={architecture}",
                "-o", f"Dir::State::status={folder}/status",
            ]

    def _get(self, *args: str, cwd: Optional[Path] = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["apt-get", *self._options, *args], cwd=cwd,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, "LC_ALL": "C"})

    def get(self, *args: str, cwd: Optional[Path] = None) -> str:
        result = self._get(*args, cwd=cwd)
        return result.stdout if result.returncode else ""

    def download_all(self, packages: Sequence[str]) -> List[Path]:
        """Download packages, and all dependencies that this apt does not know as installed.

        For another architecture than amd64, it knows none as installed.

        Returns:
            the files; nothing if one could not be downloaded
        """
        install = ("install", "--yes", "--no-install-recommends", *packages)
        planned = self._get("--simulate", *install)
        if planned.returncode or self._get("--download-only", *install).returncode:
            return []
        found = [self._archives / name for name in archive_names(planned.stdout)]
        return found if all(path.exists() for path in found) else []

    def cache(self, *args: str) -> str:
        return _run(["apt-cache", *self._options, *args]).stdout

    def have_lists(self) -> bool:
        return bool(self.cache("search", "--names-only", "^linux-source-").strip())

    def versions(self) -> List[str]:
        """Return the package's versions without release candidates, newest first."""
        rows = [row.split("|") for row in self.cache("madison", PACKAGE).splitlines()]
        found = {row[1].strip() for row in rows if len(row) == 3 and row[0].strip() == PACKAGE
                 and "~rc" not in row[1]}

        def order(a: str, b: str) -> int:
            newer = _run(["dpkg", "--compare-versions", a, "gt", b]).returncode == 0
            return -1 if newer else 1
        return sorted(found, key=cmp_to_key(order))


def _cached(downloads: Path) -> List[Path]:
    """Return the packages of the source that were downloaded and checked, oldest file first."""
    return sorted(downloads.glob(f"{PACKAGE}_*.deb"), key=lambda p: p.stat().st_mtime)


def _fetch() -> Source:
    folder = cache_dir()
    with one_at_a_time(folder / "sources"):
        return _fetch_alone(folder)


def _fetch_alone(folder: Path) -> Source:
    downloads = folder / "sources"
    if PINNED:
        # Use another folder than for the usual source: both packages may have the same name, and
        # differ in the version only.
        package = pool.fetch(PINNED, downloads / "bases", apt_mirror())
        return Source(package.stem, tarball_package=package)
    cached = _cached(downloads)
    if cached:
        return Source(cached[-1].stem, tarball_package=cached[-1])

    mirror = apt_mirror()
    if not mirror:
        package = pool.fetch(pool.LINUX_SOURCE, downloads)
        return Source(package.stem, tarball_package=package)

    # If an earlier run has left a part of the package in this folder, apt downloads all anew.
    incoming = downloads / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    apt = PrivateApt(folder / "apt", mirror)
    with Step(f"Look for {PACKAGE} in Debian's suites"):
        trouble = apt.get("update")
        versions = apt.versions()
        if not versions and not apt.have_lists():
            last = (trouble.strip() or "no suite could be read").splitlines()[-1]
            raise Failure(f"Debian's mirror can't be reached ({last}); check the network and "
                          "run the same command again, or use a source of your own with "
                          "KERNEL_SRC=DIR")
        if not versions:
            names = apt.cache("search", "--names-only", r"^linux-source-[0-9.]+$")
            others = ", ".join(sorted(line.split()[0] for line in names.splitlines()))
            raise Failure(f"No suite of Debian has {PACKAGE} any more, they have {others}; "
                          f"unpack a Linux {SERIES} source by hand, and run the same command "
                          "with KERNEL_SRC=DIR")

    with Step(f"Download {PACKAGE} {versions[0]}, 160 MB"):
        trouble = apt.get("download", f"{PACKAGE}={versions[0]}", cwd=incoming)
        if trouble:
            raise Failure(f"The download failed ({trouble.strip().splitlines()[-1]}); run the "
                          "same command again")
    fetched = _cached(incoming)[-1]
    package = fetched.rename(downloads / fetched.name)
    return Source(package.stem, tarball_package=package)


def _tarball(given: str, sha256: str) -> Source:
    """Return a tarball of the user's as a source, with its SHA-256 in the source's name."""
    path = Path(given).expanduser().resolve()
    if not path.is_file():
        raise Failure(f"KERNEL_TARBALL={given} is no file; name a linux-{LINUX}.x.tar.xz")
    found = pool.sha256(path)
    if sha256 and sha256.lower() != found:
        raise Failure(f"{path} has the SHA-256 {found}, and not the one that KERNEL_SHA256= "
                      "says; download it again")
    return Source(f"{path.name} {found}", tarball=path)


def check_version(tree: Path, name: str) -> None:
    """Raise Failure if a source is another Linux than the one that the patches are made for.

    Args:
        tree: the source
        name: its name in the message
    """
    makefile = tree / "Makefile"
    text = makefile.read_text(errors="replace") if makefile.exists() else ""
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL) = (\d+)$", text, re.MULTILINE))
    version = f"{found.get('VERSION', '?')}.{found.get('PATCHLEVEL', '?')}"
    if version != LINUX:
        raise Failure(f"{name} is Linux {version}, and the patches are for Linux {LINUX}; "
                      "patches/README.md tells what BASE= takes, and how to add a kernel")


def find(kernel_src: str = "", kernel_tarball: str = "", kernel_sha256: str = "") -> Source:
    """Return the source to use: KERNEL_SRC or KERNEL_TARBALL if one is given, else Debian's."""
    if kernel_src and kernel_tarball:
        raise Failure("KERNEL_SRC= and KERNEL_TARBALL= both name a source; use one of them")
    if kernel_sha256 and not kernel_tarball:
        raise Failure("KERNEL_SHA256= is for KERNEL_TARBALL=FILE; give both")
    if kernel_tarball:
        return _tarball(kernel_tarball, kernel_sha256)
    if not kernel_src:
        return _fetch()

    tree = Path(kernel_src).expanduser().resolve()
    if not (tree / "Kbuild").exists() or not (tree / "arch/x86/kvm").is_dir():
        raise Failure(f"KERNEL_SRC={kernel_src} is not the top of a Linux source tree")
    check_version(tree, f"KERNEL_SRC={kernel_src}")
    return Source(str(tree), tree=tree)
