#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Say which parts of guest callchains work on this host, and for the guest of one VMM.

This file stands alone: copy it to any machine that has Python 3.9 with its standard library.  It
changes nothing there and needs no root, but it says what root could see in addition.  It gathers
facts first, then judges them, then prints the result.
"""

import argparse
import ctypes
import errno
import gzip
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import asdict, dataclass, field
from typing import Callable, Dict, List, Optional, Sequence, Tuple

WIDTH = 80

# System calls of x86-64.
NR_PERF_EVENT_OPEN = 298
NR_PROCESS_VM_READV = 310

# struct perf_event_attr, see include/uapi/linux/perf_event.h.  The size is that of Linux 4.1,
# which later kernels accept.
ATTR_SIZE = 112
PERF_FLAG_FD_CLOEXEC = 8
HARDWARE_CYCLES = (0, 0)
SOFTWARE_CPU_CLOCK = (1, 0)
DISABLED = 1 << 0
EXCLUDE_KERNEL = 1 << 5
EXCLUDE_GUEST = 1 << 20
GUEST_CALLCHAIN = 1 << 40
DEFER_GUEST_CALLCHAIN = 1 << 41
RESERVED = 1 << 63
SAMPLE_CALLCHAIN = 1 << 5
SAMPLE_GUEST_STACK = 1 << 25

CAP_PERFMON = 38

# perf searches the guest's memory.  A search that takes longer than this counts as failed.
SEARCH_SECONDS = 180
QUICK_SECONDS = 20

# A deferred chain has three words that count as contexts, see perf_guest_callchain_init().
DEFERRED_CONTEXTS = 3
USUAL_MAX_STACK = 127

BUILD_PERF = ("pass --perf perf_7.3, which make deb and make rpm build; or perf of a patched "
              "kernel tree, by make -C tools/perf")


def attr(event: Tuple[int, int], bits: int, sample_type: int) -> bytes:
    """A struct perf_event_attr: an event that samples, but is never enabled."""
    kind, config = event
    period = 1000003
    head = struct.pack("<IIQQQQQ", kind, ATTR_SIZE, config, period, sample_type, 0,
                       bits | DISABLED)
    return head.ljust(ATTR_SIZE, b"\0")


class System:
    """All questions to the machine.  Tests replace it with prepared files and answers."""

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def path(self, name: str) -> str:
        return os.path.join(self._root, name.lstrip("/"))

    def read_bytes(self, name: str) -> Optional[bytes]:
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except OSError:
            return None

    def read(self, name: str) -> Optional[str]:
        content = self.read_bytes(name)
        return None if content is None else content.decode(errors="replace")

    def exists(self, name: str) -> bool:
        try:
            return os.path.lexists(self.path(name))
        except OSError:
            return False

    def entries(self, name: str) -> Optional[List[str]]:
        """The names in a folder; None if it isn't there or can't be read."""
        try:
            return sorted(os.listdir(self.path(name)))
        except OSError:
            return None

    def link(self, name: str) -> Optional[str]:
        """Return a link's target; "" if there is no such link, None if it can't be read."""
        try:
            return os.readlink(self.path(name))
        except FileNotFoundError:
            return ""
        except OSError:
            return None

    def machine(self) -> str:
        return os.uname().machine

    def release(self) -> str:
        return os.uname().release

    def uid(self) -> int:
        return os.geteuid()

    def which(self, program: str) -> Optional[str]:
        return shutil.which(program)

    def run(self, command: Sequence[str], seconds: int) -> Tuple[Optional[int], str]:
        """Return a command's status and output; if it failed to run or to end, None and why."""
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=seconds, check=False,
                                  env={**os.environ, "LC_ALL": "C"})
        except subprocess.TimeoutExpired:
            return None, f"it took longer than {seconds} seconds"
        except OSError as error:
            return None, error.strerror or "it can't be run"
        return done.returncode, done.stdout.decode(errors="replace")

    def open_event(self, event: Tuple[int, int], bits: int = 0, sample_type: int = 0,
                   pid: int = 0) -> int:
        """Open an event and close it again; return zero or the error."""
        fd = self._syscall(NR_PERF_EVENT_OPEN, attr(event, bits, sample_type), pid, -1, -1,
                           PERF_FLAG_FD_CLOEXEC)
        if fd < 0:
            return -fd
        os.close(fd)
        return 0

    def read_memory(self, pid: int) -> int:
        """Read at address zero, which is never mapped: EFAULT means that reading is allowed."""
        byte = ctypes.create_string_buffer(1)
        here = struct.pack("PN", ctypes.addressof(byte), 1)
        nowhere = struct.pack("PN", 0, 1)
        return -self._syscall(NR_PROCESS_VM_READV, pid, here, 1, nowhere, 1, 0)

    def _syscall(self, number: int, *args: object) -> int:
        """Return the result, or the error as a negative number."""
        if self.machine() != "x86_64" or struct.calcsize("P") != 8:
            return -errno.ENOSYS
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        result: int = libc.syscall(ctypes.c_long(number), *(
            ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args))
        return result if result >= 0 else -ctypes.get_errno()


# Facts, and how they are gathered.

@dataclass
class Perf:
    """The perf program: state is "ok", "old", "missing" or "broken"."""
    path: str
    state: str
    version: str = ""
    error: str = ""


@dataclass
class Host:
    """Facts about this machine; None means not known, or not there."""
    machine: str
    release: str
    uid: int
    user: str
    dev_kvm: bool = False
    vendor_modules: List[str] = field(default_factory=list)
    cpu_virtualizes: bool = False
    has_perfmon: bool = False
    may_sample: str = "nothing"
    sample_error: int = 0
    guest_callchain: Optional[bool] = None
    defers: Optional[bool] = None
    guest_stack: Optional[bool] = None
    config: Optional[Tuple[str, str]] = None
    paranoid: Optional[int] = None
    max_stack: Optional[int] = None
    max_contexts: Optional[int] = None
    permits: Optional[int] = None
    cycles: Optional[str] = None
    mediated: Optional[str] = None
    perf: Perf = field(default_factory=lambda: Perf("perf", "missing"))
    vmms: List[Tuple[int, str]] = field(default_factory=list)


@dataclass
class Info:
    """The findings of perf kvm guest-info."""
    release: str = ""
    symbols: int = 0
    modules: int = 0
    tasks: int = 0
    why_no_names: str = ""
    why_no_modules: str = ""
    why_no_tasks: str = ""
    why_no_tables: str = ""


@dataclass
class Guest:
    """Facts about a process and its VM; None means not known, or not there."""
    pid: int
    exists: bool = True
    thread_of: int = 0
    comm: str = ""
    name: str = ""
    owner: Optional[int] = None
    owner_name: str = ""
    vms: Optional[int] = None
    vcpus: int = 0
    may_sample: str = "nothing"
    sample_error: int = 0
    memory_error: int = 0
    yama: Optional[int] = None
    encrypted_by: str = ""
    has_memfd: bool = False
    debugfs: Optional[str] = None
    slots: Optional[Tuple[int, int]] = None
    policies: List[str] = field(default_factory=list)
    mappings: List[int] = field(default_factory=list)
    info: Optional[Info] = None
    ends: Optional[Dict[str, int]] = None


def number(text: Optional[str]) -> Optional[int]:
    try:
        return int(text or "")
    except ValueError:
        return None


def sysctl(system: System, name: str) -> Optional[int]:
    return number(system.read(f"/proc/sys/kernel/{name}"))


def user_name(system: System, uid: int) -> str:
    for line in (system.read("/etc/passwd") or "").splitlines():
        parts = line.split(":")
        if len(parts) > 2 and parts[2] == str(uid):
            return parts[0]
    return f"uid {uid}"


def status_of(system: System, pid: str) -> Dict[str, str]:
    """Return the fields of /proc/PID/status; an empty dict if there is no such process."""
    lines = (system.read(f"/proc/{pid}/status") or "").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def may_sample(system: System, pid: int) -> Tuple[str, int]:
    """Return the code that may be sampled, "all", "programs" or "nothing", and the error or 0."""
    if not system.open_event(SOFTWARE_CPU_CLOCK, pid=pid):
        return "all", 0
    error = system.open_event(SOFTWARE_CPU_CLOCK, EXCLUDE_KERNEL, pid=pid)
    return ("nothing", error) if error else ("programs", 0)


def knows(system: System, bits: int, sample_type: int = 0) -> Optional[bool]:
    """Return whether the kernel knows these attributes; None if that is not known."""
    error = system.open_event(SOFTWARE_CPU_CLOCK, bits | EXCLUDE_KERNEL, sample_type)
    if not error:
        return True
    if error == errno.EINVAL:
        return False
    # No kernel knows RESERVED.  If this fails with EINVAL, the kernel checks attributes before
    # permissions, so it knows the attributes above.
    if system.open_event(SOFTWARE_CPU_CLOCK, RESERVED | EXCLUDE_KERNEL) == errno.EINVAL:
        return True
    return None


def kernel_config(system: System) -> Optional[Tuple[str, str]]:
    """Return the file with the configuration, and the option there: "y", "off" or "absent"."""
    release = system.release()
    for name in ("/proc/config.gz", f"/boot/config-{release}", f"/lib/modules/{release}/config",
                 f"/lib/modules/{release}/build/.config"):
        content = system.read_bytes(name)
        try:
            text = gzip.decompress(content) if content and name.endswith(".gz") else content
        except (OSError, EOFError):
            continue
        if not text:
            continue
        if b"\nCONFIG_GUEST_PERF_CALLCHAIN=y" in text:
            return name, "y"
        return name, "off" if b"# CONFIG_GUEST_PERF_CALLCHAIN is not set" in text else "absent"
    return None


def find_cycles(system: System, programs_only: bool) -> Optional[str]:
    """Return "ok" if cycles can sample guests, "mediated" if only hosts, or "none"; or None."""
    bits = EXCLUDE_KERNEL if programs_only else 0
    error = system.open_event(HARDWARE_CYCLES, bits)
    if not error:
        return "ok"
    if error in (errno.EACCES, errno.EPERM, errno.ENOSYS):
        return None
    if error == errno.EOPNOTSUPP and \
            not system.open_event(HARDWARE_CYCLES, bits | EXCLUDE_GUEST):
        return "mediated"
    return "none"


def mediated_module(system: System) -> Optional[str]:
    """Return the module of KVM that mediates PMUs, if there is one."""
    for module in ("kvm_intel", "kvm_amd", "kvm"):
        value = system.read(f"/sys/module/{module}/parameters/enable_mediated_pmu") or ""
        if value.strip() in ("Y", "1"):
            return module
    return None


def look_at_perf(system: System, program: str) -> Perf:
    path = system.which(program)
    if not path:
        return Perf(program, "missing")
    # Without options, the subcommand prints its usage.  Other perfs don't know the subcommand.
    status, usage = system.run([path, "kvm", "guest-info"], QUICK_SECONDS)
    if status is None:
        return Perf(program, "broken", error=usage)
    _, text = system.run([path, "version"], QUICK_SECONDS)
    found = re.search(r"perf version (\S+)", text)
    return Perf(program, "ok" if "guest-info -p" in usage else "old",
                found.group(1) if found else "of unknown version")


def find_vms(system: System, pid: str) -> Tuple[Optional[List[str]], bool]:
    """Return the names of a process' files, None if unreadable, and whether it has a VM."""
    fds = system.entries(f"/proc/{pid}/fd")
    links = [system.link(f"/proc/{pid}/fd/{fd}") for fd in fds or []]
    names = [link for link in links if link is not None]
    if fds is None or (fds and not names):
        return None, False
    return names, "anon_inode:kvm-vm" in names


def find_vmms(system: System) -> List[Tuple[int, str]]:
    pids = [int(name) for name in system.entries("/proc") or [] if name.isdigit()]
    return [(pid, (system.read(f"/proc/{pid}/comm") or "").strip()) for pid in sorted(pids)
            if find_vms(system, str(pid))[1]]


def gather_host(system: System, program: str) -> Host:
    uid = system.uid()
    host = Host(system.machine(), system.release(), uid, user_name(system, uid))
    if host.machine != "x86_64":
        return host
    host.dev_kvm = system.exists("/dev/kvm")
    host.vendor_modules = [name for name in ("kvm_intel", "kvm_amd")
                           if system.exists(f"/sys/module/{name}")]
    host.cpu_virtualizes = bool(re.search(r"^flags\s*:.*\b(vmx|svm)\b",
                                          system.read("/proc/cpuinfo") or "", re.M))
    caps = status_of(system, "self").get("CapEff", "0")
    host.has_perfmon = bool(int(caps, 16) >> CAP_PERFMON & 1)
    host.may_sample, host.sample_error = may_sample(system, 0)
    host.guest_callchain = knows(system, GUEST_CALLCHAIN)
    host.defers = knows(system, GUEST_CALLCHAIN | DEFER_GUEST_CALLCHAIN)
    host.guest_stack = knows(system, GUEST_CALLCHAIN, SAMPLE_CALLCHAIN | SAMPLE_GUEST_STACK)
    host.config = kernel_config(system)
    host.paranoid = sysctl(system, "perf_event_paranoid")
    host.max_stack = sysctl(system, "perf_event_max_stack")
    host.max_contexts = sysctl(system, "perf_event_max_contexts_per_stack")
    host.permits = sysctl(system, "perf_event_guest_callchain")
    host.cycles = find_cycles(system, host.may_sample != "all")
    host.mediated = mediated_module(system)
    host.perf = look_at_perf(system, program)
    host.vmms = find_vmms(system)
    return host


def vm_name(args: List[str]) -> str:
    """Return a VM's name as perf finds it: QEMU's -name, or other VMMs' --name or --id."""
    for i, arg in enumerate(args):
        option, equals, value = arg.partition("=")
        if option not in ("-name", "--name", "--id"):
            continue
        value = value if equals else "".join(args[i + 1:i + 2])
        elements = [part.replace("\0", ",") for part in value.replace(",,", "\0").split(",")]
        names = [part[len("guest="):] for part in elements if part.startswith("guest=")]
        if names or "=" not in elements[0]:
            return (names or elements)[-1 if names else 0]
    return ""


def encryption(args: str, files: List[str]) -> str:
    """Return the encryption of a guest's memory, judged by its VMM's arguments and open files."""
    found = re.search(r'-object[=\0](?:\{.*?"qom-type": *")?(sev-snp|sev|tdx)-guest\b|'
                      r"[\0,](sev_snp|tdx)=on\b", args)
    if found:
        return (found.group(1) or found.group(2)).replace("_", "-").upper()
    return "SEV" if "/dev/sev" in files else ""


def find_debugfs(system: System) -> Optional[str]:
    for line in (system.read("/proc/self/mounts") or "").splitlines():
        parts = line.split()
        if len(parts) > 2 and parts[2] == "debugfs":
            return parts[1]
    return None


def vm_folders(system: System, debugfs: str, pid: int) -> List[str]:
    """Return the folders of a process' VMs in debugfs.

    A folder's name consists of the ID of the thread that made the VM, and of the VM's fd.
    """
    names = system.entries(f"{debugfs}/kvm") or []
    return [f"{debugfs}/kvm/{name}" for name in names if re.fullmatch(r"\d+-\d+", name) and
            system.exists(f"/proc/{pid}/task/{name.partition('-')[0]}")]


def read_slots(system: System, folders: List[str]) -> Optional[Tuple[int, int]]:
    """Return the number of memslots and their total size; None if KVM does not list them."""
    text = "".join(system.read(f"{folder}/memslots") or "" for folder in folders)
    sizes = [int(size, 16) for size in
             re.findall(r"^as_id=0 .*\bsize=0x([0-9a-f]+)", text, re.M)]
    return (len(sizes), sum(sizes)) if sizes else None


def read_policies(system: System, folders: List[str]) -> List[str]:
    """Return the VMM's policy for each VM: "allowed", "forbidden", or "undecided"."""
    said = [system.read(f"{folder}/guest_callchain") for folder in folders]
    return [policy.strip() for policy in said if policy]


def read_ends(system: System, folders: List[str]) -> Optional[Dict[str, int]]:
    """Return the number of walks for each way to end; None if KVM does not count them."""
    ends = {}
    for end in ENDS:
        values = [number(system.read(f"{folder}/callchain_end_{end}")) for folder in folders]
        known = [value for value in values if value is not None]
        if known:
            ends[end] = sum(known)
    return ends or None


def read_mappings(system: System, pid: int) -> List[int]:
    """Return the sizes of a process' writable mappings without code, the largest first."""
    found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw-", system.read(f"/proc/{pid}/maps") or "",
                       re.M)
    return sorted((int(end, 16) - int(start, 16) for start, end in found), reverse=True)


def count(text: Optional[str], wanted: Callable[[str], bool] = bool) -> int:
    return sum(1 for line in (text or "").splitlines() if wanted(line))


def read_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def read_info(output: str, pid: int, folder: str) -> Info:
    """Read the output of perf kvm guest-info, and the files that it has written to a folder."""
    def said(pattern: str) -> Tuple[str, ...]:
        found = re.search(pattern.replace("GUEST", rf"the guest of process {pid}"), output, re.I)
        return found.groups() if found else ("",) * 2

    info = Info()
    info.release, symbols = said(r"^GUEST runs Linux (\S+): (\d+) symbols"
                                 .replace("^", r"(?m:^)"))
    info.symbols = int(symbols or 0)
    info.why_no_names = said(r"GUEST has no names: (.*)")[0]
    info.why_no_modules = said(r"Modules of GUEST have no names: (.*)")[0]
    info.why_no_tasks = said(r"Tasks of GUEST have no names: (.*)")[0]
    info.why_no_tables = said(r"GUEST is not unwound by ORC: (.*)")[0]
    if not info.release and not info.why_no_names:
        last = output.strip().splitlines()[-1:]
        info.why_no_names = last[0] if last else "perf kvm guest-info failed"
    info.modules = count(read_file(f"{folder}/{pid}/proc/modules"))
    # A task that is gone has a line of two words.
    info.tasks = count(read_file(f"{folder}/{pid}/tasks"), lambda line: len(line.split(" ")) > 2)
    return info


def look_into(system: System, perf: Perf, pid: int) -> Info:
    """Let perf look for the guest's kernel, and remove the files that perf writes."""
    path = system.which(perf.path) or perf.path
    try:
        with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
            status, output = system.run([path, "kvm", "guest-info", "-p", str(pid),
                                         "-o", f"{folder}/guests"], SEARCH_SECONDS)
            if status is None:
                return Info(why_no_names=output)
            return read_info(output, pid, f"{folder}/guests")
    except OSError as error:
        return Info(why_no_names=f"perf has no room for what it finds: {error.strerror}")


def gather_guest(system: System, host: Host, pid: int) -> Guest:
    guest = Guest(pid)
    status = status_of(system, str(pid))
    if not status:
        guest.exists = False
        return guest
    leader = number(status.get("Tgid"))
    if leader and leader != pid:
        guest.thread_of = leader
        return guest
    guest.comm = status.get("Name", "")
    guest.owner = number(status.get("Uid", "").split("\t")[0])
    guest.owner_name = "" if guest.owner is None else user_name(system, guest.owner)
    cmdline = (system.read(f"/proc/{pid}/cmdline") or "").rstrip("\0")
    guest.name = vm_name(cmdline.split("\0"))
    files, _ = find_vms(system, str(pid))
    if files is not None:
        guest.vms = files.count("anon_inode:kvm-vm")
        guest.vcpus = sum(name.startswith("anon_inode:kvm-vcpu:") for name in files)
        if not guest.vms:
            return guest
    guest.encrypted_by = encryption(cmdline, files or [])
    guest.has_memfd = "anon_inode:[kvm-gmem]" in (files or []) or "[kvm-gmem]" in (files or [])
    guest.may_sample, guest.sample_error = may_sample(system, pid)
    guest.memory_error = system.read_memory(pid)
    guest.yama = sysctl(system, "yama/ptrace_scope")
    guest.mappings = read_mappings(system, pid)
    guest.debugfs = find_debugfs(system)
    if guest.debugfs:
        folders = vm_folders(system, guest.debugfs, pid)
        guest.slots = read_slots(system, folders)
        guest.policies = read_policies(system, folders)
        guest.ends = read_ends(system, folders)
    if host.perf.state == "ok" and guest.memory_error == errno.EFAULT and not guest.encrypted_by:
        guest.info = look_into(system, host.perf, pid)
    return guest


# How the facts are judged.

@dataclass(frozen=True)
class Check:
    """A judged fact: state is "ok", "no" or "unknown"; blocks: nothing works without it."""
    about: str
    name: str
    state: str
    fact: str
    mend: str = ""
    blocks: bool = False
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """The command that records the guest; or None, and the summary says what to do first."""
    command: Optional[str]
    summary: str


# The ways in which walks end, see Documentation/virt/kvm/x86/guest-callchains.rst: a description,
# and a remedy.
NO_FRAMES = "in code without frame pointers"
GIVE_VMLINUX = "give its vmlinux for the ORC tables, by --guestvmlinux=FILE"
ENDS = {
    "last": ("at the outermost frame, as they should", ""),
    "depth": ("at the limit of their length",
              f"sysctl kernel.perf_event_max_stack={8 * USUAL_MAX_STACK}, and report with "
              f"--max-stack {8 * USUAL_MAX_STACK}"),
    "unaligned": (NO_FRAMES, GIVE_VMLINUX),
    "backwards": (NO_FRAMES, GIVE_VMLINUX),
    "noncanonical": (NO_FRAMES, GIVE_VMLINUX),
    "unmapped": ("at a page that the guest itself can't read",
                 "nothing: its stacks were damaged, or changed meanwhile"),
    "no_memory": ("at a page that the host doesn't have in memory",
                  "give the host memory, so that the guest isn't swapped out; don't use nodefer"),
}

ARM64_PAGE = "Documentation/virt/kvm/arm/guest-callchains.rst"
MOUNT_DEBUGFS = "mount -t debugfs debugfs /sys/kernel/debug"

# Parts of perf's messages about names that it has not found, each with a remedy.
NAME_MENDS = (
    ("perf_event_guest_callchain is", "sysctl kernel.perf_event_guest_callchain=2"),
    ("its VMM forbids it", "start it anew with a VMM that doesn't: it can't take that back"),
    ("may not trace", "run this, and perf, as root"),
    ("no Linux kernel", "if it has not booted yet, wait; else its frames stay addresses"),
    ("doesn't tell where symbols are", "give perf files of the guest's: --guestkallsyms=FILE, "
     "--guestmodules=FILE and --guestvmlinux=FILE"),
    ("without libbpf", "install libbpf's headers, and build perf again"),
    ("BTF", "give perf files of the guest's: --guestkallsyms=FILE, --guestmodules=FILE"),
)


def host_check(name: str, state: str, fact: str, mend: str = "", blocks: bool = False) -> Check:
    return Check("host", name, state, fact, mend, blocks)


def guest_check(name: str, state: str, fact: str, mend: str = "", blocks: bool = False) -> Check:
    return Check("guest", name, state, fact, mend, blocks)


def errno_name(error: int) -> str:
    return errno.errorcode.get(error, str(error))


def who(host: Host) -> str:
    return "root" if not host.uid else f"user {host.user}"


def judge_machine(host: Host) -> Check:
    if host.machine == "x86_64":
        return host_check("machine", "ok", f"Linux {host.release} on x86-64")
    if host.machine == "aarch64":
        return host_check("machine", "no", f"Linux {host.release} on arm64: this command "
                          "knows x86-64 only", f"read {ARM64_PAGE}", True)
    return host_check("machine", "no", f"Linux {host.release} on {host.machine}: guests' "
                      "callchains need x86-64 or arm64", "use a host of x86-64", True)


def judge_kvm(host: Host, has_vm: bool) -> Check:
    names = " and ".join(host.vendor_modules)
    if host.dev_kvm or has_vm:
        return host_check("kvm", "ok", f"KVM is there: {names or '/dev/kvm'}")
    if host.cpu_virtualizes:
        return host_check("kvm", "no", "there is no /dev/kvm: KVM isn't loaded",
                          "modprobe kvm_intel or kvm_amd, and read dmesg if that fails", True)
    return host_check("kvm", "no", "there is no /dev/kvm, and the CPU has neither VMX nor SVM",
                      "enable virtualization in the firmware; in a VM, nesting on its host", True)


APPLY = ("install the kernel that make deb or make rpm builds, and boot it; or apply what make "
         "series writes to a tree of yours, and build it with CONFIG_GUEST_PERF_CALLCHAIN=y")
ENABLE = "scripts/config -e GUEST_PERF_CALLCHAIN in its tree; build, install and boot it"


def judge_refusal(host: Host) -> Check:
    """Say why the kernel doesn't know guest callchains."""
    name, value = host.config or ("", "")
    if value == "off":
        fact, mend = f"CONFIG_GUEST_PERF_CALLCHAIN is off in {name}", ENABLE
    elif value == "y":
        fact = f"{name} has CONFIG_GUEST_PERF_CALLCHAIN=y, so it belongs to another kernel"
        mend = "boot the kernel that was built by it"
    elif value == "absent":
        fact, mend = f"the patches aren't applied, by {name}", APPLY
    else:
        fact = "the patches or CONFIG_GUEST_PERF_CALLCHAIN are missing"
        mend = APPLY
    return host_check("kernel", "no", f"the kernel refuses guest_callchain: {fact}", mend, True)


def judge_kernel(host: Host) -> Check:
    if host.guest_callchain is None:
        return host_check("kernel", "unknown", "whether the kernel records guests' callchains: "
                          f"perf_event_open() fails for {who(host)} "
                          f"({errno_name(host.sample_error)})",
                          "run this as root")
    if not host.guest_callchain:
        return judge_refusal(host)
    missing = [what for what, known in (("defer_guest_callchain", host.defers),
                                        ("PERF_SAMPLE_GUEST_STACK", host.guest_stack))
               if known is False]
    if missing:
        return host_check("kernel", "no", "the kernel records guests' callchains, but refuses "
                          + " and ".join(missing), f"apply all patches: {APPLY}")
    return host_check("kernel", "ok", "the kernel records guests' callchains, and their stacks "
                      "for ORC")


def judge_limits(host: Host) -> Check:
    depth, contexts = host.max_stack, host.max_contexts
    if depth is None or contexts is None:
        return host_check("limits", "unknown", "how long callchains may be")
    mend = "sysctl kernel.perf_event_max_contexts_per_stack=8"
    if not contexts or not depth:
        if not depth:
            mend = f"sysctl kernel.perf_event_max_stack={USUAL_MAX_STACK}"
        return host_check("limits", "no", "there are no callchains at all: "
                          f"perf_event_max_stack {depth}, max_contexts_per_stack {contexts}",
                          mend, True)
    if contexts < DEFERRED_CONTEXTS:
        return host_check("limits", "no", "callchains are taken in the PMI, not deferred: "
                          f"perf_event_max_contexts_per_stack is {contexts}", mend)
    if depth < USUAL_MAX_STACK:
        return host_check("limits", "no", "callchains end early: perf_event_max_stack is "
                          f"{depth}", f"sysctl kernel.perf_event_max_stack={USUAL_MAX_STACK}")
    return host_check("limits", "ok", f"perf's limits allow deferred callchains of {depth} frames")


def judge_switch(host: Host) -> List[Check]:
    """Report the administrator's switch, unless it has its default."""
    if host.permits == 0:
        return [host_check("switch", "no", "no guest may be read: perf_event_guest_callchain is 0",
                           "sysctl kernel.perf_event_guest_callchain=2", True)]
    if host.permits == 1:
        return [host_check("switch", "ok", "guests may be read whose VMM allows it: "
                           "perf_event_guest_callchain is 1")]
    return []


def judge_pmu(host: Host) -> Check:
    if host.cycles == "ok":
        fact = "there is a hardware PMU: cycles"
        if host.mediated:
            fact += f"; while it samples guests, {host.mediated} starts none with a PMU"
        return host_check("pmu", "ok", fact)
    if host.cycles == "mediated":
        off = f"load {host.mediated} with enable_mediated_pmu=0" if host.mediated else \
            "load KVM with enable_mediated_pmu=0"
        return host_check("pmu", "no", "cycles can't sample guests: a VM has the PMU "
                          "(enable_mediated_pmu)", f"record with -e cpu-clock; or {off}")
    if host.cycles is None:
        return host_check("pmu", "unknown", "whether there is a hardware PMU")
    return host_check("pmu", "no", "there is no hardware PMU that samples: no cycles",
                      "record with -e cpu-clock, a timer")


def judge_perf(perf: Perf) -> Check:
    if perf.state == "ok":
        return host_check("perf", "ok", f"perf {perf.version} knows guests' callchains")
    fact = {"missing": f"there is no program {perf.path}",
            "broken": f"{perf.path} can't be run: {perf.error}",
            "old": f"perf {perf.version} does not know guests' callchains"}[perf.state]
    return host_check("perf", "no", fact, BUILD_PERF, True)


ROOT_ADDS = "root also has the guests of other users, and KVM's lists of RAM and statistics"
TRACE_IN_CONTAINER = "leave the container, or give it CAP_SYS_PTRACE"
BE_ROOT = "run perf as root (CAP_PERFMON gives chains without names)"


def is_others(host: Host, guest: Optional[Guest]) -> bool:
    return guest is not None and guest.owner is not None and guest.owner != host.uid


def judge_user(host: Host, guest: Optional[Guest]) -> Check:
    """Judge what this user may record under the machine's settings."""
    if host.may_sample == "all":
        fact = f"{who(host)} may record kernels"
        if not host.uid:
            return host_check("user", "ok", fact)
        fact += ", of all processes (CAP_PERFMON)" if host.has_perfmon else \
            ", but of own processes only"
        return Check("host", "user", "ok", fact, note=ROOT_ADDS)
    denied = host.may_sample == "nothing"
    if denied and (not host.uid or host.sample_error == errno.ENOSYS):
        return host_check("user", "no", f"{who(host)} may record nothing: perf_event_open() "
                          f"fails ({errno_name(host.sample_error)})",
                          "leave the container, or allow it that system call", True)
    what = "nothing" if denied else "programs, no kernels"
    setting = "not known" if host.paranoid is None else host.paranoid
    mend = BE_ROOT
    if not is_others(host, guest):
        mend += ", or sysctl kernel.perf_event_paranoid=1"
    return Check("host", "user", "no", f"{who(host)} may record {what}: perf_event_paranoid is "
                 f"{setting}", mend, denied, ROOT_ADDS)


def judge_host(host: Host, guest: Optional[Guest]) -> List[Check]:
    machine = judge_machine(host)
    if machine.blocks:
        return [machine]
    has_vm = bool(guest and guest.vms)
    return [machine, judge_kvm(host, has_vm), judge_kernel(host), judge_limits(host),
            *judge_switch(host), judge_pmu(host), judge_perf(host.perf),
            judge_user(host, guest)]


def list_vmms(host: Host) -> str:
    if not host.vmms:
        return "no VMM of KVM is seen" + (" by this user" if host.uid else "")
    names = ", ".join(f"{pid} ({comm})" for pid, comm in host.vmms[:4])
    more = f" and {len(host.vmms) - 4} more" if len(host.vmms) > 4 else ""
    return f"VMMs of KVM are {names}{more}"


def judge_vmm(host: Host, guest: Guest) -> Check:
    others = f"name another process: {list_vmms(host)}"
    if not guest.exists:
        return guest_check("vmm", "no", f"there is no process {guest.pid}", others, True)
    if guest.thread_of:
        return guest_check("vmm", "no", f"{guest.pid} is a thread of process {guest.thread_of}",
                           f"name that process: {guest.thread_of}", True)
    if guest.vms is None:
        mend = f"run this as root or user {guest.owner_name}"
        if not guest.owner:
            mend = "run this as root" if host.uid else TRACE_IN_CONTAINER
        return guest_check("vmm", "unknown", f"whether {guest.comm} of user {guest.owner_name} "
                           "has a VM: its files can't be seen", mend)
    if not guest.vms:
        hint = "; QEMU takes -accel kvm for one" if "qemu" in guest.comm else ""
        return guest_check("vmm", "no", f"{guest.comm} has no VM of KVM", others + hint, True)
    called = f' "{guest.name}"' if guest.name else ""
    vms = "a VM" if guest.vms == 1 else f"{guest.vms} VMs"
    vcpus = "1 vCPU" if guest.vcpus == 1 else f"{guest.vcpus} vCPUs"
    return guest_check("vmm", "ok", f"{guest.comm} has {vms}{called} with {vcpus}")


def judge_policy(host: Host, guest: Guest) -> List[Check]:
    """Judge the VMM's policy for callchains of its guest, where that matters."""
    if "forbidden" in guest.policies:
        return [guest_check("policy", "no", "its VMM has forbidden that its stack is read",
                            "start it anew with a VMM that doesn't: it can't take that back",
                            True)]
    if host.permits == 1 and set(guest.policies) - {"allowed"}:
        return [guest_check("policy", "no", "its VMM has not allowed that its stack is read",
                            "sysctl kernel.perf_event_guest_callchain=2", True)]
    if host.permits == 1 and not guest.policies:
        mend = "run this as root" if host.uid else MOUNT_DEBUGFS
        return [guest_check("policy", "unknown", "whether its VMM allows that its stack is read: "
                            "debugfs tells root", mend)]
    return []


def judge_sample(host: Host, guest: Guest) -> Check:
    if guest.may_sample == "all":
        return guest_check("sample", "ok", "you may sample it, its kernel included")
    if guest.may_sample == "programs":
        return guest_check("sample", "no", "you may sample its programs, not its kernel",
                           "see perf_event_paranoid above")
    mend = BE_ROOT
    if is_others(host, guest) and host.may_sample == "all":
        mend += f", or as user {guest.owner_name}"
    return guest_check("sample", "no", f"you may not sample it ({errno_name(guest.sample_error)})"
                       f": it is user {guest.owner_name}'s", mend, True)


def judge_memory(host: Host, guest: Guest) -> Check:
    if guest.memory_error == errno.EFAULT:
        what = "" if guest.encrypted_by else ", for symbols and tasks"
        return guest_check("memory", "ok", f"you may read its memory{what}")
    why = f"process_vm_readv(): {errno_name(guest.memory_error)}"
    mend = "run perf as root" if host.uid else TRACE_IN_CONTAINER
    if host.uid and guest.owner == host.uid and guest.yama:
        why = f"Yama's ptrace_scope is {guest.yama}"
        mend = "run perf as root"
        if guest.yama == 1:
            mend += ", or sysctl kernel.yama.ptrace_scope=0"
    return guest_check("memory", "no", f"you may not read its memory ({why}): frames stay "
                       "addresses", mend)


def judge_secret(guest: Guest) -> Check:
    if guest.encrypted_by:
        return guest_check("secret", "no", f"its memory is encrypted ({guest.encrypted_by}): "
                           "nobody can read its stack from outside",
                           f"record it without -g, or run it without {guest.encrypted_by}", True)
    if guest.has_memfd:
        return guest_check("secret", "unknown", "whether the host sees all of its memory: some "
                           "is guest_memfd's, and may be private")
    if guest.vms is None:
        return guest_check("secret", "unknown", "whether its memory is encrypted")
    return guest_check("secret", "ok", "its memory is not encrypted, by all that can be seen")


def size_name(size: int) -> str:
    if size < 4 << 30:
        return f"{size >> 20} MiB"
    return f"{size >> 30} GiB"


def judge_ram(host: Host, guest: Guest) -> Check:
    """Judge whether perf finds the guest's RAM in the VMM's memory."""
    if guest.slots:
        slots, size = guest.slots
        return guest_check("ram", "ok", f"KVM lists where its RAM is: {slots} memslots, "
                           f"{size_name(size)}")
    if guest.info and guest.info.release:
        return guest_check("ram", "ok", "its RAM was found in one mapping of the VMM's")
    if not guest.mappings:
        return guest_check("ram", "unknown", "where its RAM is")
    sizes = guest.mappings[:2] + [0]
    if sizes[0] >= 2 * sizes[1]:
        return guest_check("ram", "ok", "its RAM seems to be one mapping, of "
                           f"{size_name(sizes[0])}")
    if host.uid:
        mend = "run perf as root: KVM has the list"
    elif not guest.debugfs:
        mend = "mount -t debugfs debugfs /sys/kernel/debug: KVM has the list there"
    else:
        mend = "boot a kernel that has all patches: KVM has the list in debugfs then"
    return guest_check("ram", "no", "its RAM may be in several mappings, of "
                       f"{size_name(sizes[0])} and {size_name(sizes[1])}", mend)


def mend_of(reason: str) -> str:
    for part, mend in NAME_MENDS:
        if part in reason:
            return mend
    return "give perf files of the guest's, see --guestkallsyms in perf kvm's manual"


def why_not_looked(host: Host, guest: Guest) -> str:
    if guest.encrypted_by:
        return "its memory is encrypted"
    if host.perf.state != "ok":
        return "that takes a perf that knows guests"
    return "its memory can't be read"


def judge_names(host: Host, guest: Guest) -> List[Check]:
    info = guest.info
    if not info:
        return [guest_check("kernel", "unknown", "its kernel, symbols, modules and tasks: "
                            + why_not_looked(host, guest))]
    if not info.release:
        return [guest_check("kernel", "no", f"names of its functions: {info.why_no_names}",
                            mend_of(info.why_no_names))]
    fact = f"it runs Linux {info.release}: {info.symbols} symbols"
    if not info.why_no_modules:
        fact += f", {info.modules} modules"
    if not info.why_no_tasks:
        fact += f", {info.tasks} tasks"
    checks = [guest_check("kernel", "ok", fact)]
    if info.why_no_modules:
        checks.append(guest_check("modules", "no", "its modules' functions have no names: "
                                  + info.why_no_modules, mend_of(info.why_no_modules)))
    if info.why_no_tasks:
        checks.append(guest_check("tasks", "no", f"its tasks have no names: {info.why_no_tasks}",
                                  "nothing: their samples have the VMM's name"))
    return checks


def has_tables(guest: Guest) -> bool:
    return bool(guest.info and guest.info.release and not guest.info.why_no_tables)


def judge_unwinding(host: Host, guest: Guest) -> List[Check]:
    """Say by which method -g unwinds the guest's kernel, if the guest can be sampled."""
    if guest.encrypted_by or host.perf.state != "ok" or guest.may_sample == "nothing":
        return []
    return [choose_unwinding(guest)]


def choose_unwinding(guest: Guest) -> Check:
    if has_tables(guest):
        return guest_check("unwinding", "ok", "it has ORC tables: -g is --call-graph orc")
    if not guest.info or not guest.info.release:
        return guest_check("unwinding", "unknown", "whether its kernel has frame pointers: -g "
                           "is --call-graph fp")
    if "no ORC tables" in guest.info.why_no_tables:
        return guest_check("unwinding", "ok", "its kernel has no ORC tables, so it should have "
                           "frame pointers: -g is --call-graph fp")
    return guest_check("unwinding", "no", f"it is not unwound by ORC: {guest.info.why_no_tables}",
                       GIVE_VMLINUX)


def judge_walks(host: Host, guest: Guest) -> List[Check]:
    """Judge how walks have ended so far, if KVM counts that."""
    if guest.ends is None:
        if host.uid or guest.debugfs:
            return []
        return [guest_check("walks", "unknown", "how walks of its stacks have ended: debugfs is "
                            "not mounted", MOUNT_DEBUGFS)]
    total = sum(guest.ends.values())
    if not total:
        return [guest_check("walks", "unknown", "how walks of its stacks end, as there was "
                            "none yet")]
    shares: Dict[str, int] = {}
    mends: Dict[str, str] = {}
    for end, walks in guest.ends.items():
        words, mend = ENDS[end]
        shares[words] = shares.get(words, 0) + walks
        mends[words] = mend
    words = max(shares, key=lambda key: shares[key])
    fact = f"{total} walks of its stacks: {100 * shares[words] // total} % ended {words}"
    if words == NO_FRAMES and has_tables(guest):
        return [guest_check("walks", "ok", f"{fact}, where ORC goes on")]
    return [guest_check("walks", "no" if mends[words] else "ok", fact, mends[words])]


def judge_guest(host: Host, guest: Guest) -> List[Check]:
    vmm = judge_vmm(host, guest)
    if vmm.blocks:
        return [vmm]
    return [vmm, *judge_policy(host, guest), judge_sample(host, guest),
            judge_memory(host, guest), judge_secret(guest), judge_ram(host, guest),
            *judge_names(host, guest),
            *judge_unwinding(host, guest), *judge_walks(host, guest)]


def record_command(host: Host, guest: Guest) -> str:
    programs_only = guest.may_sample == "programs"
    event = "cycles" if host.cycles == "ok" else "cpu-clock"
    chosen = []
    if event != "cycles" or programs_only:
        chosen = ["-e", event + (":u" if programs_only else "")]
    return shlex.join([host.perf.path, "kvm", "--guest", "record", *chosen, "-g", "-p",
                       str(guest.pid), "-o", "perf.data.guest", "--", "sleep", "10"])


def judge_all(host: Host, guest: Optional[Guest]) -> Tuple[List[Check], Verdict]:
    checks = judge_host(host, guest)
    if guest and not checks[0].blocks:
        checks += judge_guest(host, guest)
    first = next((check for check in checks if check.blocks), None)
    what = "This guest can't" if guest else "No guest can"
    if first:
        return checks, Verdict(None, f"{what} be recorded with its callchain here. First: "
                                     f"{first.mend}.")
    if not guest:
        return checks, Verdict(None, f"This host can record guests. Next: name a VMM; "
                               f"{list_vmms(host)}.")
    part = ", its programs only" if guest.may_sample == "programs" else ""
    return checks, Verdict(record_command(host, guest), f"Record this guest{part}, by:")


# How the result is printed.

MARKS = {"ok": "ok", "no": "no", "unknown": "--"}


def clean(text: str) -> str:
    """Replace characters that could control a terminal: names come from guests and others."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)


def wrap(first: str, text: str) -> List[str]:
    return textwrap.wrap(clean(text), WIDTH, initial_indent=first, subsequent_indent=" " * 7,
                         break_long_words=False, break_on_hyphens=False)


def as_text(checks: List[Check], verdict: Verdict, pid: Optional[int]) -> str:
    lines = []
    about = ""
    for check in checks:
        if check.about != about:
            about = check.about
            lines.append("This host" if about == "host" else f"Process {pid}")
        unknown = "not known: " if check.state == "unknown" else ""
        lines += wrap(f"{MARKS[check.state]:>4} ", unknown + check.fact)
        for text in (check.mend, check.note):
            lines += wrap("     > ", text) if text else []
    lines += textwrap.wrap(clean(verdict.summary), WIDTH, break_on_hyphens=False)
    if verdict.command:
        lines.append(f"  {clean(verdict.command)}")
    return "\n".join(lines) + "\n"


def as_json(checks: List[Check], verdict: Verdict, pid: Optional[int]) -> str:
    return json.dumps({
        "pid": pid,
        "checks": [asdict(check) for check in checks],
        "command": verdict.command,
        "summary": verdict.summary,
    }, indent=1) + "\n"


def examine(system: System, program: str, pid: Optional[int]) -> Tuple[List[Check], Verdict]:
    host = gather_host(system, program)
    guest = None
    if pid and host.machine == "x86_64":
        guest = gather_guest(system, host, pid)
    return judge_all(host, guest)


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="""
        Exits with 0 if it can be recorded, else with 1.""")
    parser.add_argument("--perf", default="perf", metavar="PERF", help="the perf to be used")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("pid", nargs="?", type=int, metavar="PID",
                        help="the process that runs the guest, e.g. QEMU")
    args = parser.parse_args(argv)
    if args.pid is not None and args.pid <= 0:
        parser.error("PID must be larger than 0")
    return args


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = parse(argv)
    watched = sys.stderr.isatty()
    if watched:
        print("Looking at the host, and at the guest's memory ...", end="\r", file=sys.stderr,
              flush=True)
    try:
        checks, verdict = examine(System(), args.perf, args.pid)
    except KeyboardInterrupt:
        return 130
    if watched:
        print("\033[K", end="", file=sys.stderr, flush=True)
    show = as_json if args.json else as_text
    sys.stdout.write(show(checks, verdict, args.pid))
    return 1 if any(check.blocks for check in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
