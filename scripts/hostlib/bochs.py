# SPDX-License-Identifier: GPL-2.0-only
"""Boot the patched host in Bochs, which emulates Intel's CPUs; run a job, and see how it ended.

Bochs emulates VMX, QEMU does not.  The host in Bochs can't access this machine's files.  It
boots from a CD-ROM, which has the kernel and an initramfs with the files of the job.  Output
comes through serial lines.
"""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import termios
import time
import tty
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Set

from . import guest
from .build import Build
from .emulated import Complaint, Outcome, check_console
from .patches import REPO
from .ui import Failure

_INIT = REPO / "scripts" / "guest" / "bochs-init.sh"
_MODPROBE = Path("/sbin/modprobe")
_SHELL = Path("/bin/dash")
_ROMS = (Path("/usr/share/bochs/BIOS-bochs-latest"),
         Path("/usr/share/bochs/VGABIOS-lgpl-latest"))
_ISOLINUX = (Path("/usr/lib/ISOLINUX/isolinux.bin"),
             Path("/usr/lib/syslinux/modules/bios/ldlinux.c32"))

# This model has SMAP, and Linux 7.3 boots on it.  On Bochs' Skylake, Linux 7.3 oopses in XSAVE.
# Newer models were not tried.
_MODEL = "broadwell_ult"

# ips: how many instructions Bochs' CPUs execute in a second of the emulated clock, which
# is independent of real time.  With a lower number, PMIs leave a guest no time.
_CONFIG = """
config_interface: textconfig
display_library: term
cpu: model={model}, count=2, ips=200000000, ignore_bad_msrs=1, reset_on_triple_fault=0
memory: guest=1024, host=1024
romimage: file={roms[0]}
vgaromimage: file={roms[1]}
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

_OWN_SCREEN = re.compile(r'^Bochs connected to screen "(/dev/.*)"$', re.MULTILINE)

# The last line on the second serial line has the job's exit status.
_STATUS = re.compile(r"^bochs: status (\d+)\r?\n", re.MULTILINE)


def _libraries(program: Path) -> Set[Path]:
    """Return the libraries that a program is linked with, and the dynamic linker."""
    said = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, check=False).stdout
    return {Path(path) for path in re.findall(r"(/\S+)", said) if Path(path).exists()}


class BochsHost:
    """An emulated Intel host.

    Args:
        build: the kernel to boot, its modules and its tests
        kernel_args: more for the kernel's command line
    """

    def __init__(self, build: Build, kernel_args: str = "") -> None:
        self._build = build
        self._kernel_args = kernel_args

    def run(self, job: str, files: Dict[str, Path], shared: Path, deadline: int,
            output: Callable[[str], None]) -> Outcome:
        """Run a shell script on the host.

        Args:
            job: the script, for sh and busybox
            files: other files that the job needs, by their names on the host; the libraries of
                programs are added
            shared: a folder for the logs and the output
            deadline: seconds after which the host counts as hung
            output: called with the script's output, as it comes

        Raises Failure when the host does not end as it should.
        """
        shared.mkdir(parents=True, exist_ok=True)
        console, said = shared / "console.log", shared / "output"
        for log in (console, said):
            log.write_bytes(b"")
        with tempfile.TemporaryDirectory() as tmp, \
                self._running(Path(tmp), job, files, shared) as bochs:
            _follow(bochs, deadline, console, said, output)
        check_console(console, "host")
        text = said.read_text(errors="replace")
        status = _STATUS.search(text)
        if not status and not console.stat().st_size:
            why = _last_words(shared / "bochs.log", shared / "bochs.out")
            raise Failure(f"Bochs failed: {why}")
        if not status:
            raise Complaint(f"The host ended before its job was done: "
                            f"{_last_words(shared / 'bochs.log', console)}; see {console}")
        return Outcome(int(status[1]), console)

    @contextlib.contextmanager
    def _running(self, tmp: Path, job: str, files: Dict[str, Path],
                 shared: Path) -> Iterator["_Bochs"]:
        """Start Bochs, which boots a host; kill it when the caller is done with it."""
        iso = self._write_iso(tmp, job, files)
        config, commands = tmp / "bochsrc", tmp / "rc"
        config.write_text(_CONFIG.format(
            model=_MODEL, roms=_ROMS, iso=iso, console=shared / "console.log",
            output=shared / "output", log=shared / "bochs.log"))
        commands.write_text("c\n")
        # Bochs' display library needs a terminal; its picture is not used.
        leader, follower = pty.openpty()
        bochs_out = shared / "bochs.out"
        with bochs_out.open("wb") as err:
            process = subprocess.Popen(
                ["bochs", "-q", "-f", str(config), "-rc", str(commands)], stdin=follower,
                stdout=follower, stderr=err, start_new_session=True, cwd=shared,
                env={**os.environ, "TERM": "xterm"})
        os.close(follower)
        os.set_blocking(leader, False)
        bochs = _Bochs(process, bochs_out, [leader])
        try:
            yield bochs
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for screen in bochs.screens:
                os.close(screen)

    def _write_iso(self, tmp: Path, job: str, files: Dict[str, Path]) -> Path:
        root, cd = tmp / "root", tmp / "cd"
        self._fill_root(root, job, files)
        (cd / "isolinux").mkdir(parents=True)
        names = "\n".join(str(p.relative_to(root)) for p in sorted(root.rglob("*")))
        with (cd / "initrd.img").open("wb") as out:
            subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=root,
                           input=names.encode(), stdout=out, check=True)
        shutil.copy2(self._build.image, cd / "vmlinuz")
        for file in _ISOLINUX:
            shutil.copy2(file, cd / "isolinux")
        append = " ".join([
            "console=ttyS0,115200 panic=-1 panic_on_warn=1 oops=panic reboot=t",
            # Bochs' clocks and its instructions run at unrelated speeds.  So skip the checks of
            # the TSC, and the calibration of the delay loop.
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

    def _fill_root(self, root: Path, job: str, files: Dict[str, Path]) -> None:
        for name in ("bin", "dev", "proc", "sys", "tmp", "run", "lib64", "selftests"):
            (root / name).mkdir(parents=True)
        shutil.copy2(guest.busybox(), root / "bin/busybox")
        shutil.copy2(_INIT, root / "init")
        (root / "init").chmod(0o755)
        (root / "job").write_text(f"{job}\n")
        needed: Set[Path] = set()
        # Use dash: busybox's shell would run busybox's own modprobe, which has no option -d.
        for name, source in {"bin/modprobe": _MODPROBE, "bin/sh": _SHELL, **files}.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            subprocess.run(["strip", "-g", str(target)], check=False, stderr=subprocess.DEVNULL)
            needed |= _libraries(source)
        for library in needed:
            target = root / str(library)[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library.resolve(), target)
        shutil.copytree(self._build.modules, root / "modules", symlinks=True)


@dataclass
class _Bochs:
    """A running Bochs, the file with its messages, and the terminals that it draws on.

    Debian's Bochs has a debugger.  Because of it, Bochs opens a second terminal, and prints
    the terminal's name.  It blocks for ever if nobody reads a terminal with some 64 KiB in it.
    """
    process: "subprocess.Popen[bytes]"
    out: Path
    screens: List[int]

    def drain(self) -> None:
        """Read the output on the terminals, and discard it."""
        own = _OWN_SCREEN.search(self.out.read_text(errors="replace"))
        if own and len(self.screens) == 1:
            # Bochs may have ended just now.
            with contextlib.suppress(OSError, termios.error):
                self.screens.append(os.open(own[1], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
                tty.setraw(self.screens[1])
        for screen in self.screens:
            with contextlib.suppress(OSError):
                while os.read(screen, 65536):
                    pass


def _follow(bochs: _Bochs, deadline: int, console: Path, said: Path,
            output: Callable[[str], None]) -> None:
    """Pass on the job's output, until the host ends or hangs."""
    end = time.monotonic() + deadline
    position = 0
    while True:
        # Check this before the read, so that the last read gets all output.
        ended = bochs.process.poll() is not None or _ended(console, said)
        bochs.drain()
        with said.open("rb") as file:
            file.seek(position)
            data = file.read()
        position += len(data)
        if data:
            output(data.decode(errors="replace").replace("\r", ""))
        if ended:
            return
        if time.monotonic() > end:
            raise Complaint(f"The host did not end within {deadline} seconds, it hangs or "
                            f"this machine is very slow; its console ends with: "
                            f"{_last_line(console)}; see {console}")
        time.sleep(0.2)


def _last_line(console: Path) -> str:
    lines = console.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")


def _last_words(log: Path, console: Path) -> str:
    """Return the message with which Bochs itself gave up, else the console's last line.

    Bochs gives up, for example, if it can emulate one CPU only.
    """
    panics = re.findall(r"^\d+p\[.*?\] *>>PANIC<< (.*)$",
                        log.read_text(errors="replace") if log.exists() else "", re.MULTILINE)
    return f"Bochs: {panics[-1]}" if panics else _last_line(console)


def _ended(console: Path, said: Path) -> bool:
    """Return True if the job is done, or the kernel has panicked or rebooted.

    Bochs itself goes on in all of these cases.
    """
    text = console.read_text(errors="replace")
    return bool(_STATUS.search(said.read_text(errors="replace"))
                or "Kernel panic" in text or text.count("Linux version") > 1)
