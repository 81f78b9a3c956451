# SPDX-License-Identifier: GPL-2.0-only
"""Boot the patched host in QEMU, run a job in it, and see how it ended.

The emulated host sees this machine's own files, read-only, through 9P: its programs are the
ones that are installed here, unless it has a root of its own.  It writes to one shared folder.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List

from . import arm64
from .arch import ARM64, Machine
from .build import Build
from .patches import REPO
from .ui import Failure

_INIT = REPO / "scripts" / "guest" / "init.sh"

# With "-icount shift=0", each instruction takes a nanosecond, and so does each tick of the TSC.
_COUNTED_TSC_KHZ = 1000000

# Messages that a kernel prints when something is wrong with it.
_SPLAT = re.compile(r"Kernel panic|Oops|BUG:|WARNING:|general protection|Internal error:|"
                    r"INFO: (suspicious RCU|possible|task .* blocked|rcu_)|"
                    r"\[ BUG|Invalid wait context|soft lockup|hard LOCKUP|"
                    r"KASAN:|UBSAN:|kmemleak: \d|bad: scheduling|possible circular locking")

# None of these messages is about a fault of the kernel.  The hardware is not real.  A test has
# modprobe lock up a CPU.  And CPUID of Bochs' CPUs has eight cores in leaf 4, but one logical
# processor in leaf 1.
_HARMLESS = re.compile(r"TSC.*unstable|"
                       r"BUG: soft lockup - CPU#\d+ stuck for \d+s! \[modprobe:|"
                       r"WARNING: .*cpu/topology_common\.c:\d+ at parse_legacy")

# Address of the first virtio-mmio device of the machine "microvm".  QEMU assigns the last ones
# first, so this one stays unused.
UNUSED_DEVICE = 0xfeb00000

_DEVICE_LOG = "virtio_mmio.log"

# A read from an offset where such a device has no register: a test has a stack there.
_DEVICE_READ = re.compile(r"virtio_mmio_read offset 0x1e[0-9a-f]$", re.MULTILINE)

# The kernel says this if QEMU had to wait for a CPU just when the kernel compared its
# timers.  Then there are no hrtimers: there is one PMI per tick, and NMIs come while their
# target has a tick as well.
_NO_HRTIMERS = "APIC timer disabled due to verification failure"
_BOOTS = 10


class Complaint(Failure):
    """The kernel that ran is to blame: it hangs, ended early, or complains."""


def choose_accel(wish: str) -> str:
    """Choose one of QEMU's accelerators; "auto" takes KVM if it can nest."""
    if wish not in ("auto", "tcg", "kvm"):
        raise Failure(f"ACCEL={wish} is not known; use auto, tcg or kvm")
    nests = _can_nest()
    if wish == "kvm" and not nests:
        raise Failure("ACCEL=kvm needs a /dev/kvm that this user may open, and nested "
                      "virtualization; use ACCEL=tcg, which needs neither")
    return "kvm" if nests and wish != "tcg" else "tcg"


def _can_nest() -> bool:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    if not re.search(r"^flags\s*:.*\b(svm|vmx)\b", Path("/proc/cpuinfo").read_text(),
                     re.MULTILINE):
        return False
    for vendor in ("intel", "amd"):
        nested = Path(f"/sys/module/kvm_{vendor}/parameters/nested")
        if nested.exists():
            return nested.read_text().strip() in ("Y", "1")
    return False


@dataclass(frozen=True)
class Outcome:
    """How a job ended: its exit status, and where the console's log is."""
    status: int
    console: Path


def _share(name: str, folder: Path, tag: str, more: str = "") -> List[str]:
    """Return QEMU's options that share a folder with the host, by this tag."""
    return ["-fsdev", f"local,id={name},path={folder},security_model=none{more},multidevs=remap",
            "-device", f"virtio-9p-device,fsdev={name},mount_tag={tag}"]


class EmulatedHost:
    """An emulated host.

    Args:
        build: the kernel to boot, and its tests
        accel: "tcg" or "kvm"
        kernel_args: further arguments for the kernel's command line
        counted: emulate it with a clock that ticks once per instruction, at 1 GHz, so that
            durations are counts of instructions
        watch_device: fail if the kernel reads a stack from UNUSED_DEVICE
        root: the root of another system, whose own kernel and modules are used
    """

    def __init__(self, build: Build, accel: str, kernel_args: str = "",
                 counted: bool = False, watch_device: bool = False,
                 root: Path = Path("/")) -> None:
        self._build = build
        self._accel = "tcg" if counted else accel
        self._kernel_args = kernel_args
        self._counted = counted
        self._watch_device = watch_device
        self._root = root
        self._shares: Dict[str, Path] = {}
        self._kernel, self._modules, self._init = build.image, build.modules, _INIT
        if build.arch is ARM64:
            # This host has its own user space.  Of this machine, it sees only these folders.
            self._root = build.root
            self._shares = {"build": build.folder, "repo": REPO}
        elif root != Path("/"):
            self._kernel, self._modules = next(root.glob("boot/vmlinuz-*")), Path("/")
        if self._root != Path("/"):
            # The other system has all that the host needs except for init.sh.
            self._init = Path("/init.sh")
            shutil.copy(_INIT, self._root / "init.sh")

    def _x86(self) -> Machine:
        cpus, job_cpus = 2, "0-1"
        if self._accel == "kvm":
            cpu = ["-accel", "kvm", "-cpu", "host"]
        elif self._counted:
            # QEMU counts each byte of a "rep movsb" as an instruction: 4 KiB would cost 3556
            # more.  No CPU takes that long.  Have Linux copy words, as it does on CPUs
            # without fast copies of bytes.
            cpu = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off",
                   "-cpu", "max,+svm,-erms,-fsrm"]
        else:
            # QEMU's cpu_clear_ignne() changes the first CPU's hflags2 without a lock, in the
            # thread of any CPU that restores FPU state.  Seen with QEMU 7.2: now and then the
            # first CPU enters a guest with GIF clear, gets no interrupt, and hangs.  So let
            # only the other CPUs run guests.
            cpu = ["-accel", "tcg,thread=multi", "-cpu", "max,+svm"]
            cpus, job_cpus = 3, "1-2"
        # KVM tells its guest the TSC's frequency.  An emulated PIT is not reliable enough to
        # measure it, nor as a watchdog of the TSC: without the TSC as clocksource, there are
        # no hrtimers.
        tsc = [] if self._accel == "kvm" else [f"tsc_early_khz={self._tsc_khz()}",
                                               "tsc=nowatchdog"]
        return Machine(["qemu-system-x86_64", "-M", "microvm,acpi=off,rtc=on", *cpu,
                        "-smp", str(cpus)], job_cpus, "ttyS0", tsc)

    def _argv(self, shared: Path, serial: List[str], mode: str) -> List[str]:
        machine = (arm64.machine(self._counted) if self._build.arch is ARM64
                   else self._x86())
        append = " ".join([
            f"console={machine.console} root=rootfs rootfstype=9p ro",
            "rootflags=trans=virtio,version=9p2000.L,cache=loose,msize=262144",
            # A warning is a failure: the kernel panics and reboots, which by -no-reboot ends
            # QEMU.
            "panic=-1 panic_on_warn=1 oops=panic reboot=t",
            # Arguments that the kernel does not know become init's environment.  Don't pass
            # them to init behind a "--": QEMU appends its devices.
            f"init={self._init} mode={mode} job_cpus={machine.job_cpus}",
            *([f"shares={','.join(self._shares)}"] if self._shares else []),
            *machine.kernel_args, self._kernel_args])
        return [
            *machine.qemu,
            "-m", "2G", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            *serial, "-kernel", str(self._kernel), "-append", append,
            *_share("root", self._root, "rootfs", ",readonly=on"),
            *_share("shared", shared, "shared"),
            *[word for tag, path in self._shares.items()
              for word in _share(tag, path, tag, ",readonly=on")],
            *(["-trace", f"virtio_mmio_read,file={shared / _DEVICE_LOG}"]
              if self._watch_device else []),
        ]

    def _tsc_khz(self) -> int:
        if self._counted:
            return _COUNTED_TSC_KHZ
        return int(subprocess.run([str(self._build.tsc_khz)], check=True,
                                  stdout=subprocess.PIPE).stdout)

    def _there(self, path: Path) -> Path:
        """Return the path by which the host sees a file of this machine."""
        for tag, folder in self._shares.items():
            if folder in [path, *path.parents]:
                return Path("/run") / tag / path.relative_to(folder)
        return path

    def _prepare(self, shared: Path, job: str) -> None:
        shared.mkdir(parents=True, exist_ok=True)
        for name in ("status", "output", _DEVICE_LOG):
            (shared / name).unlink(missing_ok=True)
        build = self._build
        (shared / "job").write_text(f". /run/shared/job_env\n{job}\n")
        there = {"TREE": build.tree.path, "KERNEL": build.kernel, "MODULES": self._modules,
                 "SELFTESTS": build.selftests}
        (shared / "job_env").write_text("\n".join([
            *(f"export BUILD_{name}={shlex.quote(str(self._there(path)))}"
              for name, path in there.items()),
            f"export REPO={shlex.quote(str(self._there(REPO)))}",
            f"export PATH={shlex.quote(str(self._there(build.perf.parent)))}:$PATH",
            f"keep_hooks={'yes' if build.arch is ARM64 and not self._counted else ''}",
            ""]))

    def shell(self, shared: Path) -> None:
        """A shell on the host's console; returns when the user leaves it."""
        self._prepare(shared, "")
        argv = self._argv(shared, ["-serial", "mon:stdio"], "shell quiet")
        subprocess.run(argv, check=False)

    def run(self, job: str, shared: Path, deadline: int,
            output: Callable[[str], None]) -> Outcome:
        """Run a shell script on the host.

        Args:
            job: the script
            shared: a folder that the host sees as /run/shared
            deadline: seconds after which the host counts as hung
            output: called with the script's output, as it comes

        Raises Failure when the host does not end as it should.
        """
        console = shared / "console.log"
        for _ in range(_BOOTS):
            self._prepare(shared, job)
            self._boot(shared, deadline, console, output)
            if not _has_no_hrtimers(console):
                return self._judge(shared, console)
            check_console(console, "host")
        raise Failure(f"The emulated host had no working timers in {_BOOTS} boots, this machine "
                      f"is too busy; see its console in {console}")

    def _boot(self, shared: Path, deadline: int, console: Path,
              output: Callable[[str], None]) -> None:
        argv = self._argv(shared, ["-serial", f"file:{console}"], "job")
        errors = shared / "qemu.log"
        with errors.open("wb") as err:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                                       start_new_session=True)
            try:
                follow(lambda: process.poll() is None, shared / "output", deadline, console,
                       output)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if process.returncode:
            raise Failure(f"QEMU failed: {errors.read_text().strip() or process.returncode}")

    @staticmethod
    def _judge(shared: Path, console: Path) -> Outcome:
        check_console(console, "host")
        _check_device(shared / _DEVICE_LOG)
        status = shared / "status"
        if not status.exists():
            raise Complaint(f"The host ended before its job was done; see {console}")
        return Outcome(int(status.read_text()), console)


def follow(runs: Callable[[], bool], path: Path, deadline: int, console: Path,
           output: Callable[[str], None]) -> None:
    """Pass on what a job writes to a file, until its host ends; raise Complaint if it hangs.

    Args:
        runs: tells whether the host has not ended yet
        deadline: seconds after which the host counts as hung
        console: the log of the host's console
    """
    end = time.monotonic() + deadline
    position = 0
    while True:
        # Ask this before the read, so that the last read gets all output.
        running = runs()
        if path.exists():
            with path.open("rb") as file:
                file.seek(position)
                data = file.read()
            position += len(data)
            if data:
                output(data.decode(errors="replace").replace("\r", ""))
        if not running:
            return
        if time.monotonic() > end:
            raise Complaint(f"The host did not end within {deadline} seconds, it hangs or this "
                            f"machine is very slow; its console ends with: {last_line(console)}; "
                            f"see {console}")
        time.sleep(0.2)


def last_line(console: Path) -> str:
    lines = console.read_text(errors="replace").split("\n") if console.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")


def _has_no_hrtimers(console: Path) -> bool:
    """Return True if the host gave up, see init.sh, because its kernel has no hrtimers."""
    return console.exists() and _NO_HRTIMERS in console.read_text(errors="replace")


def _check_device(log: Path) -> None:
    if log.exists() and _DEVICE_READ.search(log.read_text(errors="replace")):
        raise Complaint(f"The host's kernel has read a stack from a device; see {log}")


def check_console(console: Path, who: str) -> None:
    """Raise Failure if a kernel complains on its console."""
    text = console.read_text(errors="replace") if console.exists() else ""
    for line in text.splitlines():
        if _SPLAT.search(line) and not _HARMLESS.search(line):
            raise Complaint(f"The {who}'s kernel says: {line.strip()}; see {console}")


def pass_on(text: str) -> None:
    """Print a job's output as it comes."""
    sys.stdout.write(text)
    sys.stdout.flush()
