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
import tty
from pathlib import Path
from typing import Callable, Dict, List

from . import guest
from .build import Build
from .emulated import Complaint, Outcome, check_console, follow, last_line
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


def run(build: Build, kernel_args: str, job: str, files: Dict[str, Path], shared: Path,
        deadline: int, output: Callable[[str], None]) -> Outcome:
    """Run a shell script on an emulated Intel host.

    Args:
        build: the kernel to boot, its modules and its tests
        kernel_args: more for the kernel's command line
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
    with tempfile.TemporaryDirectory() as tmp:
        _boot(Path(tmp), _write_iso(build, kernel_args, Path(tmp), job, files), shared, deadline,
              output)
    check_console(console, "host")
    status = _STATUS.search(said.read_text(errors="replace"))
    if status:
        return Outcome(int(status[1]), console)
    if not console.stat().st_size:
        why = _last_words(shared / "bochs.log", shared / "bochs.out")
        raise Failure(f"Bochs failed: {why}")
    raise Complaint(f"The host ended before its job was done: "
                    f"{_last_words(shared / 'bochs.log', console)}; see {console}")


def _boot(tmp: Path, iso: Path, shared: Path, deadline: int,
          output: Callable[[str], None]) -> None:
    """Let Bochs boot a CD-ROM; kill it when the job has ended."""
    config, commands = tmp / "bochsrc", tmp / "rc"
    console, said = shared / "console.log", shared / "output"
    config.write_text(_CONFIG.format(model=_MODEL, roms=_ROMS, iso=iso, console=console,
                                     output=said, log=shared / "bochs.log"))
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
    screens = [leader]

    def runs() -> bool:
        running = process.poll() is None and not _ended(console, said)
        _drain(screens, bochs_out)
        return running

    try:
        follow(runs, said, deadline, console, output)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for screen in screens:
            os.close(screen)


def _drain(screens: List[int], bochs_out: Path) -> None:
    """Read what Bochs writes to its terminals, and discard it.

    Debian's Bochs has a debugger.  Because of it, Bochs opens a second terminal, and prints
    the terminal's name.  It blocks for ever if nobody reads a terminal with some 64 KiB in it.
    """
    own = _OWN_SCREEN.search(bochs_out.read_text(errors="replace"))
    if own and len(screens) == 1:
        # Bochs may have ended just now.
        with contextlib.suppress(OSError, termios.error):
            screens.append(os.open(own[1], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
            tty.setraw(screens[1])
    for screen in screens:
        with contextlib.suppress(OSError):
            while os.read(screen, 65536):
                pass


def _write_iso(build: Build, kernel_args: str, tmp: Path, job: str,
               files: Dict[str, Path]) -> Path:
    root, cd = tmp / "root", tmp / "cd"
    _fill_root(build, root, job, files)
    (cd / "isolinux").mkdir(parents=True)
    guest.pack(root, cd / "initrd.img")
    shutil.copy2(build.image, cd / "vmlinuz")
    for file in _ISOLINUX:
        shutil.copy2(file, cd / "isolinux")
    append = " ".join([
        "console=ttyS0,115200 panic=-1 panic_on_warn=1 oops=panic reboot=t",
        # Bochs' clocks and its instructions run at unrelated speeds.  So skip the checks of
        # the TSC, and the calibration of the delay loop.
        "tsc=reliable lpj=1000000", kernel_args])
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


def _fill_root(build: Build, root: Path, job: str, files: Dict[str, Path]) -> None:
    for name in ("bin", "dev", "proc", "sys", "tmp", "run", "lib64", "selftests"):
        (root / name).mkdir(parents=True)
    shutil.copy2(guest.busybox(), root / "bin/busybox")
    shutil.copy2(_INIT, root / "init")
    (root / "init").chmod(0o755)
    (root / "job").write_text(f"{job}\n")
    # Use dash: busybox's shell would run busybox's own modprobe, which has no option -d.
    for name, source in {"bin/modprobe": _MODPROBE, "bin/sh": _SHELL, **files}.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        subprocess.run(["strip", "-g", str(target)], check=False, stderr=subprocess.DEVNULL)
        guest.install_libraries(source, root)
    shutil.copytree(build.modules, root / "modules", symlinks=True)


def _last_words(log: Path, console: Path) -> str:
    """Return the message with which Bochs itself gave up, else the console's last line.

    Bochs gives up, for example, if it can emulate one CPU only.
    """
    panics = re.findall(r"^\d+p\[.*?\] *>>PANIC<< (.*)$",
                        log.read_text(errors="replace") if log.exists() else "", re.MULTILINE)
    return f"Bochs: {panics[-1]}" if panics else last_line(console)


def _ended(console: Path, said: Path) -> bool:
    """Return True if the job is done, or the kernel has panicked or rebooted.

    Bochs itself goes on in all of these cases.
    """
    text = console.read_text(errors="replace")
    return bool(_STATUS.search(said.read_text(errors="replace"))
                or "Kernel panic" in text or text.count("Linux version") > 1)
