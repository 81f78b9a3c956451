# SPDX-License-Identifier: GPL-2.0-only
"""Install the packages in a fresh Debian, boot their kernel, and sample a guest with them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List

from . import guest, stacks, unikernel
from .build import UNIKERNEL, Build
from .deb import mirror
from .emulated import EmulatedHost, pass_on
from .package import PERF, PERF_PACKAGE
from .selftests import Counts, judge
from .patches import REPO
from .ui import Failure, run_logged

_SUITE = "bookworm"

# Programs that an operator's host has, and programs that init.sh needs.
_PROGRAMS = ("binutils", "busybox-static", "initramfs-tools", "kmod", "python3",
             "qemu-system-x86")

# Seconds. Some machines are several times slower than others.
_DEADLINE = 600


def _bootstrap(root: Path, logs: Path) -> None:
    """Make a Debian in a folder, and keep apt's lists there."""
    shutil.rmtree(root, ignore_errors=True)
    run_logged(f"Make a Debian, {_SUITE}",
               ["mmdebstrap", "--variant=minbase", "--skip=cleanup/apt",
                f"--include={','.join(_PROGRAMS)}", _SUITE, str(root), mirror()],
               logs / "mmdebstrap.log")


def _in(root: Path, *command: str) -> List[str]:
    return ["chroot", str(root), "env", "DEBIAN_FRONTEND=noninteractive",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *command]


def _ours(root: Path) -> Iterator[Path]:
    """Yield the files of our packages that are in a system."""
    for pattern in ("boot/*guest-callchain*", "lib/modules/*guest-callchain*",
                    "usr/src/*guest-callchain*", "var/lib/initramfs-tools/*guest-callchain*",
                    f"usr/bin/{PERF}", f"usr/lib/{PERF_PACKAGE}"):
        yield from root.glob(pattern)


def _ask(argv: List[str], what: str) -> str:
    """Return the first line of a command's output that has this text; "" if there is none."""
    said = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    return next((line for line in said.splitlines() if what in line), "")


def _judge_sampling(folder: Path, release: str) -> Dict[str, bool]:
    """Return what must hold for a guest's profile made with the packages, and whether it does."""
    running = (folder / "release").read_text().strip()
    doctor = json.loads((folder / "doctor.json").read_text())
    samples = [sample for sample in
               stacks.read((folder / "script.txt").read_text().splitlines()) if sample.is_guest]
    return {
        f"the kernel that runs is {running}, {release} was installed": running == release,
        f"the doctor says: {doctor['summary']}": bool(doctor["command"]),
        **unikernel.cases(samples, (folder / "report.txt").read_text()),
    }


def debs(build: Build, packages: List[Path], accel: str, folder: Path) -> Counts:
    """Install the packages, boot their kernel, sample a guest, and remove the packages.

    Args:
        build: the build that has the guest
        packages: the packages that "make deb" built
        accel: QEMU's accelerator, "tcg" or "kvm"
        folder: a folder for the results
    """
    root = build.path / "debian"
    _bootstrap(root, folder)
    for package in packages:
        shutil.copy(package, root / "tmp")
    run_logged("Install the packages",
               _in(root, "apt-get", "install", "--yes", "--no-install-recommends",
                   *(f"/tmp/{package.name}" for package in packages)), folder / "install.log")
    release = next((root / "lib/modules").glob("*guest-callchain*")).name
    made = {f"the package's scripts have made /boot/initrd.img-{release}":
            (root / f"boot/initrd.img-{release}").is_file(),
            "perf has its text interface": "[ on " in _ask(
                _in(root, PERF, "version", "--build-options"), "libslang"),
            "the kernel has no exports for tests": "perf_event_overflow" not in
            next((root / "usr/src").glob("*guest-callchain*/Module.symvers")).read_text()}

    shutil.copy(build.selftests / UNIKERNEL, folder / "unikernel")
    shutil.copytree(REPO / "scripts/doctor", folder / "doctor")
    job = (guest.SCRIPTS / "unikernel-host.sh").read_text()
    (folder / "unikernel-host.sh").write_text(job)
    if EmulatedHost(build, accel, root=root).run(
            f"uname -r > /run/shared/release\nperf() {{ {PERF} \"$@\"; }}\n"
            "UNIKERNEL=/run/shared/unikernel\n. /run/shared/unikernel-host.sh\n"
            f"python3 /run/shared/doctor --json --perf {PERF} $vm "
            "> /run/shared/doctor.json || true", folder, _DEADLINE, pass_on).status:
        raise Failure(f"A guest could not be sampled with what was installed, see {folder}")
    made.update(_judge_sampling(folder, release))

    names = [subprocess.run(["dpkg-deb", "--field", str(package), "Package"], check=True,
                            stdout=subprocess.PIPE, text=True).stdout.strip()
             for package in packages]
    run_logged("Remove the packages", _in(root, "apt-get", "purge", "--yes", *names),
               folder / "remove.log")
    left = ", ".join(str(path.relative_to(root)) for path in _ours(root))
    made[f"nothing is left when they are removed{left and f', but {left}'}"] = not left
    return judge("deb", made)
