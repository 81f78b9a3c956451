# SPDX-License-Identifier: GPL-2.0-only
"""Run the KVM selftests, the demo or a shell on the emulated Intel host."""

import base64
import gzip
import io
import re
import tarfile
import zlib
from pathlib import Path
from typing import Callable, Dict, List

from . import selftests
from .bochs import BochsHost
from .build import BENCH, Build
from .emulated import Outcome, pass_on
from .ui import Failure

# In seconds: for one boot, by the real clock, and for one of its tests, by Bochs' clock.
_DEADLINE = 2 * 3600
_TEST_TIMEOUT = 600

_MODULES = ("guest_callchain/test_pmi.ko", "guest_callchain/test_guest_walk.ko")

_PREPARE = selftests.TRACE + """
insmod guest_callchain/test_pmi.ko && export KVM_SELFTEST_NMI_PMU=test_pmi \
	KVM_SELFTEST_BACKTRACE_IRQ=/sys/module/test_pmi/parameters/backtrace
# The registers of a device, Bochs' HPET, which this kernel does not use.
export KVM_SELFTEST_DEVICE=0xfed00000
# Nobody else uses KVM here.
export KVM_SELFTEST_RELOAD=1 KVM_SELFTEST_HOTPLUG=1
"""

# The kernel's runner, kselftest/runner.sh, needs more programs than this host has.
_JOB = """
cd /selftests || exit
{prepare}
echo "TAP version 13"
echo "1..{number}"
number=0 failed=0
for test in {tests}; do
	number=$((number + 1))
	program=${{test##*/}}
	name="$number selftests: kvm: $program"
	echo "# selftests: kvm: $program"
	# Kill test cases that are left over, which would keep the pipe open.
	(cd "./${{test%"$program"}}" && timeout {timeout} "./$program"; echo $? > /tmp/status
	 killall -KILL "$program" 2>/dev/null) 2>&1 | sed "s/^/# /"
	status=$(cat /tmp/status)
	case $status in
	0)	echo "ok $name" ;;
	4)	echo "ok $name # SKIP" ;;
	*)	echo "not ok $name # exit=$status"; failed=1 ;;
	esac
done
exit $failed
"""


def job(tests: List[str], timeout: int, prepare: str = "") -> str:
    """Return a script that runs test programs on the host, and ends each after timeout seconds."""
    return _JOB.format(prepare=prepare, number=len(tests), tests=" ".join(tests), timeout=timeout)


# Paths on this host, for jobs that run on QEMU's host as well.
_JOB_ENV = """
export BUILD_SELFTESTS=/selftests BUILD_KERNEL=/kernel PATH=/bin:/usr/bin
"""

# Files leave the host by a serial line only: so a job's output ends with an archive, as text.
_ARCHIVE = "bochs: archive"
_PACK = f"""
status=$?
echo "{_ARCHIVE}"
cd /run/shared
tar -cf - *.txt *.log *.json 2>/dev/null | gzip | base64
exit $status
"""

# The files that QEMU needs to boot a guest of the type microvm.
_QEMU = Path("/usr/bin/qemu-system-x86_64")
_QEMU_ROMS = [Path("/usr/share/qemu") / name for name in ("bios-microvm.bin", "linuxboot_dma.bin")]


def run_demo(build: Build, folder: Path, script: str, deadline: int, kernel_args: str = "",
             show: Callable[[str], None] = pass_on) -> Outcome:
    """Run a job that boots a guest with QEMU, and fetch the texts and logs that it leaves.

    Args:
        build: the host, and the guest's kernel
        folder: has the guest's initrd.img, and gets the files that the job leaves
        script: the job; it finds and leaves files in /run/shared
        deadline: seconds after which the host counts as hung
        kernel_args: more arguments for the host's kernel
        show: called with each part of the job's output, as it arrives
    """
    said = _Said(show)
    files = {str(path)[1:]: path for path in (_QEMU, *(rom.resolve() for rom in _QEMU_ROMS))}
    files.update({str(rom)[1:]: rom for rom in _QEMU_ROMS})
    files["bin/perf"] = build.perf
    files["kernel/arch/x86/boot/bzImage"] = build.image
    files["run/shared/initrd.img"] = folder / "initrd.img"
    for name in (BENCH, *_MODULES):
        files[f"selftests/{name}"] = build.selftests / name
    job = f"{_JOB_ENV}(\n{script}\n)\n{_PACK}"
    outcome = BochsHost(build, kernel_args).run(job, files, folder, deadline, said.feed)
    try:
        _unpack(said.text, folder)
    except Failure:
        # A job that failed has printed the reason.
        if not outcome.status:
            raise
    return outcome


class _Said:
    """A job's output; the lines before the archive are shown as they arrive."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.text = ""
        self._show = show
        self._shown = 0

    def feed(self, part: str) -> None:
        self.text += part
        while _ARCHIVE not in self.text[:self._shown] and "\n" in self.text[self._shown:]:
            end = self.text.index("\n", self._shown) + 1
            line, self._shown = self.text[self._shown:end], end
            if _ARCHIVE not in line:
                self._show(line)


def _unpack(text: str, folder: Path) -> None:
    """Put the files of the archive at the end of a job's output into a folder."""
    _, _, archive = text.partition(_ARCHIVE + "\n")
    lines = [line for line in archive.splitlines() if re.fullmatch(r"[A-Za-z0-9+/]+=*", line)]
    try:
        # Decompress all of it before tar reads it: gzip's checksum is at the end.
        data = gzip.decompress(base64.b64decode("".join(lines)))
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar.getmembers():
                file = tar.extractfile(member)
                if file:
                    (folder / Path(member.name).name).write_bytes(file.read())
    except (tarfile.TarError, zlib.error, ValueError, EOFError, OSError) as error:
        raise Failure(f"The files from the host are incomplete: {error}; see {folder}") from error


def _files(build: Build, tests: List[str]) -> Dict[str, Path]:
    return {f"selftests/{name}": build.selftests / name for name in [*tests, *_MODULES]}


def shell(build: Build, results: Path, kernel_args: str = "") -> None:
    """Run a shell on the host, with all selftests and perf."""
    BochsHost(build, kernel_args).shell(
        {**_files(build, selftests.choose(build, "")), "bin/perf": build.perf}, results)


def run(build: Build, results: Path, kernel_args: str = "", only: str = "",
        timeout: int = _TEST_TIMEOUT, deadline: int = _DEADLINE,
        show: Callable[[str], None] = pass_on) -> str:
    """Run all selftests, or some, in one boot, show their KTAP, and return it."""
    tests = selftests.choose(build, only)
    host = BochsHost(build, kernel_args)
    return selftests.keep(results, show, lambda output: host.run(
        job(tests, timeout, _PREPARE), _files(build, tests), results, deadline, output))
