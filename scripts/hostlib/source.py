# SPDX-License-Identifier: GPL-2.0-only
"""Get a kernel's source: Debian's package of it, or a tree or tarball of the user's own."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from .deb import Apt, cache_dir
from .ui import Failure, one_at_a_time

# The kernel that patches/ is made for.
SERIES = LINUX = "7.3"

PACKAGE = f"linux-source-{SERIES}"

# Debian's suites that may have the source.  Use codenames, because mirrors update aliases like
# stable-backports late.
SUITES = ("trixie-backports", "forky-backports", "forky", "sid", "experimental")

_OWN = "a source of your own can be used with KERNEL_SRC=DIR or KERNEL_TARBALL=FILE"


@dataclass(frozen=True)
class Source:
    """A kernel's source: a tarball to unpack, in Debian's package or not, or a tree to copy."""
    name: str
    tarball_package: Optional[Path] = None
    tarball: Optional[Path] = None
    tree: Optional[Path] = None


def _order(package: str) -> Tuple[int, ...]:
    return tuple(int(number) for number in package.split("-")[-1].split("."))


def _sources(apt: Apt) -> List[str]:
    """Return the packages with the source of a Linux, oldest first."""
    return sorted((name for name in apt.names("linux-source-")
                   if re.fullmatch(r"linux-source-\d+\.\d+", name)), key=_order)


def newer_linux() -> str:
    """Return the package of the newest Linux, if that is newer than the patches' one; else "".

    Raises:
        Failure: Debian's packages can't be looked at
    """
    folder = cache_dir() / "sources"
    with one_at_a_time(folder):
        apt = Apt(folder, SUITES)
        newer = [name for name in _sources(apt)
                 if _order(name) > _order(PACKAGE) and apt.versions(name)]
    return newer[-1] if newer else ""


def _fetch() -> Source:
    folder = cache_dir() / "sources"
    with one_at_a_time(folder):
        kept = sorted(folder.glob(f"{PACKAGE}_*.deb"), key=lambda path: path.stat().st_mtime)
        package = kept[-1] if kept else _download(folder)
    return Source(package.stem, tarball_package=package)


def _download(folder: Path) -> Path:
    try:
        apt = Apt(folder, SUITES)
        versions = apt.versions(PACKAGE)
        if not versions:
            raise Failure(f"No suite of Debian has {PACKAGE} any more, they have "
                          f"{', '.join(_sources(apt))}")
        return apt.download(f"Download {PACKAGE} {versions[0]}, 160 MB",
                            [f"{PACKAGE}={versions[0]}"])[0]
    except Failure as failure:
        raise Failure(f"{failure}; {_OWN}") from None


def _tarball(given: str) -> Source:
    """Return a tarball of the user's as a source, with its SHA-256 in the source's name."""
    path = Path(given).expanduser().resolve()
    if not path.is_file():
        raise Failure(f"KERNEL_TARBALL={given} is no file; name a linux-{LINUX}.x.tar.xz")
    with path.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
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
                      "use a source of that one")


def find(kernel_src: str = "", kernel_tarball: str = "") -> Source:
    """Return the source to use: KERNEL_SRC or KERNEL_TARBALL if one is given, else Debian's."""
    if kernel_src and kernel_tarball:
        raise Failure("KERNEL_SRC= and KERNEL_TARBALL= both name a source; use one of them")
    if kernel_tarball:
        return _tarball(kernel_tarball)
    if not kernel_src:
        return _fetch()

    tree = Path(kernel_src).expanduser().resolve()
    if not (tree / "Kbuild").exists() or not (tree / "arch/x86/kvm").is_dir():
        raise Failure(f"KERNEL_SRC={kernel_src} is not the top of a Linux source tree")
    check_version(tree, f"KERNEL_SRC={kernel_src}")
    return Source(str(tree), tree=tree)
