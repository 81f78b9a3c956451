# SPDX-License-Identifier: GPL-2.0-only
"""The user space of an emulated host of another architecture: Debian's packages, unpacked.

This machine's own packages are not changed.  An apt with its own lists and status file finds the
dependencies, dpkg-deb unpacks the packages, and no package's scripts are run.
"""

import shutil
from pathlib import Path
from typing import List, Sequence

from . import source
from .ui import Failure, Step, one_at_a_time, run_logged

SUITE = "trixie"

# The programs that init.sh and the selftests' runner call, and the libraries that perf and the
# selftests are linked with.  QEMU runs the demo's guest.
PACKAGES = ("base-files", "bash", "busybox-static", "coreutils", "dash", "findutils", "grep",
            "hostname", "kmod", "mawk", "mount", "perl-base", "procps", "qemu-system-arm", "sed",
            "util-linux", "libc6-dev", "libdw-dev", "libelf-dev", "libtraceevent-dev",
            "libzstd-dev", "zlib1g-dev")


def _kept(folder: Path, packages: Sequence[str]) -> List[Path]:
    """Return the files of an earlier download of these packages; empty if it is incomplete."""
    listing = folder / "packages"
    if not listing.exists():
        return []
    wanted, *names = listing.read_text().splitlines()
    found = [folder / "archives" / name for name in names]
    if wanted != " ".join(packages) or not all(path.exists() for path in found):
        return []
    return found


def fetch(architecture: str, packages: Sequence[str] = PACKAGES) -> List[Path]:
    """Return Debian's packages for an architecture with all dependencies; fetch them only once."""
    folder = source.cache_dir() / architecture
    with one_at_a_time(folder):
        found = _kept(folder, packages)
        if found:
            return found
        mirror = source.apt_mirror()
        if not mirror:
            raise Failure(f"An {architecture} host takes its programs from Debian by apt, and this "
                          "machine has none that knows a mirror; install apt and Debian's "
                          "keyring, and name a mirror with MIRROR=URL")
        apt = source.PrivateApt(folder, mirror, (SUITE,), architecture)
        with Step(f"Download Debian's packages for {architecture}, 60 MB"):
            trouble = apt.get("update")
            found = apt.download_all(packages)
        if not found:
            last = (trouble.strip() or f"{SUITE} lacks some of them").splitlines()[-1]
            raise Failure(f"Debian's packages for {architecture} can't be fetched ({last}); check "
                          "the network and run the same command again, it goes on from what is "
                          "there")
        (folder / "packages").write_text("\n".join(
            [" ".join(packages), *(path.name for path in found)]) + "\n")
        return found


def unpack(found: Sequence[Path], root: Path, log: Path) -> None:
    """Unpack these packages into the root folder of a system, unless it has them already."""
    stamp = root.with_name(root.name + ".packages")
    content = "\n".join(path.name for path in found)
    if root.exists() and stamp.exists() and stamp.read_text() == content:
        return
    stamp.unlink(missing_ok=True)
    partial = root.with_name(root.name + ".partial")
    for folder in (root, partial):
        shutil.rmtree(folder, ignore_errors=True)
    partial.mkdir(parents=True)
    # Unpack base-files first: it has links that the paths of other packages go through, such as
    # /bin to /usr/bin.
    in_order = sorted(found, key=lambda path: not path.name.startswith("base-files_"))
    run_logged("Unpack them", ["sh", "-e", "-c", 'root=$1; shift; for package; do '
                               'dpkg-deb -x "$package" "$root"; done', "unpack", str(partial),
                               *map(str, in_order)], log)
    # A script of the package mawk would make this link.
    (partial / "usr/bin").mkdir(parents=True, exist_ok=True)
    (partial / "usr/bin/awk").symlink_to("mawk")
    partial.rename(root)
    stamp.write_text(content)
