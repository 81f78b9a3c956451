# SPDX-License-Identifier: GPL-2.0-only
"""Boot the patched host on an emulated Intel machine, Bochs, run a job, see how it ended.

QEMU emulates no VMX, Bochs does.  It has no way to this machine's files: a CD-ROM brings
the kernel, and an initramfs with what the job needs; serial lines bring out what is said.
"""

import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterable, List, Optional, Set

from .build import Build
from .machine import Complaint, Outcome, check_console
from .tree import REPO
from .ui import Failure

_INIT = REPO / "scripts" / "guest" / "bochs-init.sh"
_BUSYBOX = Path("/bin/busybox")
_ISOLINUX = (Path("/usr/lib/ISOLINUX/isolinux.bin"),
             Path("/usr/lib/syslinux/modules/bios/ldlinux.c32"))
_TERM_PLUGIN = "/usr/lib/x86_64-linux-gnu/bochs/plugins"

# Each CPU of Bochs' runs so many instructions a second of the guest's time.  They take
# longer: no clock of the host's is one of ours.
_CONFIG = """
config_interface: textconfig
display_library: term
cpu: model=corei7_haswell_4770, count=2, ips=50000000, ignore_bad_msrs=1
memory: guest=1024, host=1024
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path={iso}, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={console}
com2: enabled=1, mode=file, dev={output}
clock: sync=none
sound: driver=dummy
speaker: enabled=0
log: {log}
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
"""

# The job's exit status is the last thing that the second serial line says.
_STATUS = re.compile(r"^bochs: status (\d+)\r?$", re.MULTILINE)


def _libraries(program: Path) -> Set[Path]:
    """What a program is linked with, the dynamic linker included."""
    said = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, check=False).stdout
    return {Path(path) for path in re.findall(r"(/\S+)", said) if Path(path).exists()}


class BochsMachine:
    """An emulated Intel host.

    Args:
        build: the kernel to boot, its modules and its tests
        kernel_args: more for the kernel's command line
    """

    def __init__(self, build: Build, kernel_args: str = "") -> None:
        self._build = build
        self._kernel_args = kernel_args

    def run(self, job: str, programs: Iterable[str], shared: Path, deadline: int,
            output: Callable[[str], None]) -> Outcome:
        """Run a shell script on the host.

        Args:
            job: the script; what it needs besides busybox is in $BUILD_SELFTESTS
            programs: the files below the build's selftests that it needs
            shared: a folder for what is said
            deadline: seconds after which the host counts as hung
            output: called with what the script prints, as it comes

        Raises Failure when the host does not end as it should.
        """
        for name, package in (("bochs", "bochs and bochs-term"), ("xorriso", "xorriso")):
            if not shutil.which(name):
                raise Failure(f"{name} is missing; install Debian's {package}")
        for needed in (*_ISOLINUX, _BUSYBOX):
            if not needed.exists():
                raise Failure(f"{needed} is missing; install Debian's isolinux, syslinux-common "
                              "and busybox-static")
        shared.mkdir(parents=True, exist_ok=True)
        console, said = shared / "console.log", shared / "output"
        for file in (console, said):
            file.write_bytes(b"")
        with tempfile.TemporaryDirectory() as tmp:
            iso = self._write_iso(Path(tmp), job, programs)
            config = Path(tmp) / "bochsrc"
            config.write_text(_CONFIG.format(iso=iso, console=console, output=said,
                                             log=shared / "bochs.log"))
            (Path(tmp) / "rc").write_text("c\n")
            self._boot(["bochs", "-q", "-f", str(config), "-rc", str(Path(tmp) / "rc")],
                       shared, deadline, console, said, output)
        check_console(console, "host")
        text = said.read_text(errors="replace")
        status = _STATUS.search(text)
        if not status:
            raise Complaint(f"The host ended before its job was done; see {console}")
        return Outcome(int(status[1]), console)

    def _write_iso(self, tmp: Path, job: str, programs: Iterable[str]) -> Path:
        root, cd = tmp / "root", tmp / "cd"
        self._fill_root(root, job, programs)
        (cd / "isolinux").mkdir(parents=True)
        names = "\n".join(str(p.relative_to(root)) for p in sorted(root.rglob("*")))
        with (cd / "initrd.img").open("wb") as out:
            subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=root,
                           input=names.encode(), stdout=out, check=True)
        shutil.copy2(self._build.bzimage, cd / "vmlinuz")
        for file in _ISOLINUX:
            shutil.copy2(file, cd / "isolinux")
        append = " ".join([
            "console=ttyS0 panic=-1 panic_on_warn=1 oops=panic reboot=t",
            # Bochs' clocks and its instructions go at paces of their own.
            "tsc=reliable lpj=1000000", self._kernel_args])
        (cd / "isolinux" / "isolinux.cfg").write_text(
            f"default host\nprompt 0\nlabel host\n kernel /vmlinuz\n initrd /initrd.img\n"
            f" append {append}\n")
        iso = tmp / "host.iso"
        made = subprocess.run(
            ["xorriso", "-as", "mkisofs", "-quiet", "-o", str(iso), "-b", "isolinux/isolinux.bin",
             "-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4",
             "-boot-info-table", str(cd)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False)
        if made.returncode:
            raise Failure(f"xorriso made no CD-ROM: {made.stdout.strip()}")
        shutil.rmtree(root)
        return iso

    def _fill_root(self, root: Path, job: str, programs: Iterable[str]) -> None:
        for name in ("bin", "dev", "proc", "sys", "tmp", "run", "lib64", "selftests", "modules"):
            (root / name).mkdir(parents=True)
        shutil.copy2(_BUSYBOX, root / "bin/busybox")
        (root / "bin/sh").symlink_to("busybox")
        shutil.copy2(_INIT, root / "init")
        (root / "init").chmod(0o755)
        (root / "job").write_text("export BUILD_SELFTESTS=/selftests BUILD_MODULES=/modules\n"
                                  + job + "\n")
        needed: Set[Path] = set()
        for name in programs:
            source, target = self._build.selftests / name, root / "selftests" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            subprocess.run(["strip", "-g", str(target)], check=False, stderr=subprocess.DEVNULL)
            needed |= _libraries(source)
        for library in needed:
            target = root / str(library)[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library.resolve(), target)
        for module in ("irqbypass", "kvm", "kvm-intel"):
            for found in self._build.modules.rglob(f"{module}.ko"):
                shutil.copy2(found, root / "modules")

    @staticmethod
    def _boot(argv: List[str], shared: Path, deadline: int, console: Path, said: Path,
              output: Callable[[str], None]) -> None:
        # Bochs has no display library without a terminal; what it draws there is of no use.
        leader, follower = pty.openpty()
        with (shared / "bochs.out").open("wb") as err:
            process = subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=err,
                                       start_new_session=True, cwd=shared,
                                       env={**os.environ, "TERM": "xterm"})
        os.close(follower)
        os.set_blocking(leader, False)
        end = time.monotonic() + deadline
        position = 0
        try:
            while True:
                running = process.poll() is None
                _drain(leader)
                with said.open("rb") as file:
                    file.seek(position)
                    data = file.read()
                position += len(data)
                if data:
                    output(data.decode(errors="replace").replace("\r", ""))
                if not running or _ended(console, said):
                    return
                if time.monotonic() > end:
                    raise Complaint(f"The host did not end within {deadline} seconds, it hangs or "
                                    f"this machine is very slow; its console ends with: "
                                    f"{_last_line(console)}; see {console}")
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            os.close(leader)


def _drain(leader: int) -> None:
    try:
        while os.read(leader, 65536):
            pass
    except OSError:
        pass


def _last_line(console: Path) -> str:
    lines = console.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")


def _ended(console: Path, said: Path) -> Optional[bool]:
    """The job is done, or the kernel has panicked: Bochs itself would go on."""
    return bool(_STATUS.search(said.read_text(errors="replace"))
                or "Kernel panic" in console.read_text(errors="replace"))
