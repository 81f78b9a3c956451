# SPDX-License-Identifier: GPL-2.0-only
"""Programs of another architecture or another Debian, unpacked by mmdebstrap."""

import hashlib
import shutil
from pathlib import Path
from typing import Sequence

from .deb import cache_dir, mirror
from .ui import one_at_a_time, run_logged

SUITE = "trixie"

# The programs that init.sh and the selftests' runner call, and the libraries that perf and the
# selftests are linked with.  QEMU runs the demo's guest.
PACKAGES = ("base-files", "bash", "busybox-static", "coreutils", "dash", "findutils", "grep",
            "gzip", "hostname", "kmod", "mawk", "mount", "perl-base", "procps", "qemu-system-arm",
            "sed", "util-linux", "libc6-dev", "libdw-dev", "libelf-dev", "libtraceevent-dev",
            "libzstd-dev", "zlib1g-dev")

# Unpack only: this machine can't run programs of the packages' architecture.  So it takes no root,
# and no packages' scripts run; one of mawk's would make a link.
_OPTIONS = ("--variant=extract", "--mode=chrootless", "--skip=check/chrootless,output/dev",
            '--extract-hook=ln -s mawk "$1/usr/bin/awk"')


def fetch(architecture: str, packages: Sequence[str] = PACKAGES, suite: str = SUITE) -> Path:
    """Return a tarball of Debian's packages with all dependencies; make it only once."""
    options = [*_OPTIONS, f"--architectures={architecture}", f"--include={','.join(packages)}"]
    digest = hashlib.sha256(" ".join(options).encode()).hexdigest()
    folder = cache_dir() / architecture
    with one_at_a_time(folder):
        tarball = folder / f"{suite}-{digest[:12]}.tar.gz"
        if not tarball.exists():
            incoming = folder / "incoming"
            shutil.rmtree(incoming, ignore_errors=True)
            incoming.mkdir()
            run_logged(f"Download packages of {suite} for {architecture}",
                       ["mmdebstrap", *options, suite, str(incoming / tarball.name), mirror()],
                       folder / "mmdebstrap.log", env={"TMPDIR": str(incoming)})
            (incoming / tarball.name).rename(tarball)
    return tarball


def unpack(tarball: Path, root: Path, log: Path) -> None:
    """Unpack the tarball into the root folder of a system, unless it was already."""
    stamp = root.with_name(root.name + ".packages")
    if root.exists() and stamp.exists() and stamp.read_text() == tarball.name:
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    # output/dev leaves out this folder, too.
    (root / "dev").mkdir(parents=True)
    run_logged("Unpack them", ["tar", "-xpzf", str(tarball), "-C", str(root)], log)
    stamp.write_text(tarball.name)
