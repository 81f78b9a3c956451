# SPDX-License-Identifier: GPL-2.0-only
"""What one guest is: its VMM, and what may be read and recorded of it."""

import errno
import os
import re
from typing import Dict, List, Optional

from .check import Check, no, ok, stop, unknown
from .host import BE_ROOT, PERMIT, USUAL_MAX_STACK, Host, list_vmms, sampling_of
from .perf import (GIVE_VMLINUX, START_ANEW, check_names, check_unwinding, has_tables,
                   look_into)
from .system import System

MOUNT_DEBUGFS = "mount -t debugfs debugfs /sys/kernel/debug"
TRACE_IN_CONTAINER = "leave the container, or give it CAP_SYS_PTRACE"

# The ways in which walks end, see Documentation/virt/kvm/x86/guest-callchains.rst: KVM's names,
# a description, and a remedy.
ENDS = {
    "last": (["last"], "at the outermost frame, as they should", ""),
    "depth": (["depth"], "at the limit of their length",
              f"sysctl kernel.perf_event_max_stack={8 * USUAL_MAX_STACK}, and report with "
              f"--max-stack {8 * USUAL_MAX_STACK}"),
    "no-frames": (["unaligned", "backwards", "noncanonical"], "in code without frame pointers",
                  GIVE_VMLINUX),
    "unmapped": (["unmapped"], "at a page that the guest itself can't read",
                 "nothing: its stacks were damaged, or changed meanwhile"),
    "no-memory": (["no_memory"], "at a page that the host doesn't have in memory",
                  "give the host memory, so that the guest isn't swapped out; don't use nodefer"),
}


class Guest:
    """A VMM and its VM."""

    def __init__(self, system: System, pid: int, status: Dict[str, str], program: str) -> None:
        """program: the perf that shall look into the guest's memory; empty if it can't"""
        self._system = system
        self.pid = pid
        self.comm = status.get("Name", "")
        self.owner = int(status["Uid"].split("\t")[0])
        self.user = f"user {system.user_name(self.owner)}"
        self.files = system.open_files(pid)  # None if they can't be read
        self.encrypted_by = encryption(system.read(f"/proc/{pid}/cmdline"), self.files or [])
        self.sampling = sampling_of(system, pid)
        self.memory_error = system.read_memory(pid)
        self.folders = vm_folders(system, pid)
        is_readable = self.memory_error == errno.EFAULT and not self.encrypted_by
        self.info = look_into(system, program, pid) if program and is_readable else None

    def read(self, name: str) -> List[str]:
        """Return the texts of this file of KVM's, one for each VM that has it."""
        texts = [self._system.read(f"{folder}/{name}") for folder in self.folders or []]
        return [text for text in texts if text]


def encryption(args: str, files: List[str]) -> str:
    """Return the encryption of a guest's memory, judged by its VMM's arguments and open files."""
    found = re.search(r'-object[=\0](?:\{.*?"qom-type": *")?(sev-snp|sev|tdx)-guest\b|'
                      r"[\0,](sev_snp|tdx)=on\b", args)
    if found:
        return (found.group(1) or found.group(2)).replace("_", "-").upper()
    return "SEV" if "/dev/sev" in files else ""


def vm_folders(system: System, pid: int) -> Optional[List[str]]:
    """Return the folders of a process' VMs in debugfs; None if debugfs is not mounted.

    A folder's name consists of the ID of the thread that made the VM, and of the VM's fd.
    """
    mounts = [line.split() for line in system.read("/proc/self/mounts").splitlines()]
    top = next((mount[1] for mount in mounts if mount[2:3] == ["debugfs"]), None)
    if not top:
        return None
    return [f"{top}/kvm/{name}" for name in system.entries(f"{top}/kvm") or []
            if re.fullmatch(r"\d+-\d+", name)
            and system.exists(f"/proc/{pid}/task/{name.partition('-')[0]}")]


def check_process(system: System, pid: int, status: Dict[str, str]) -> Optional[Check]:
    """Return a failed check if a process is surely no VMM."""
    comm, leader, files = status.get("Name", ""), status.get("Tgid"), system.open_files(pid)
    others = f"name another process: {list_vmms(system)}"
    if not status:
        return stop("guest.vmm", "no-process", f"there is no process {pid}", others)
    if leader not in (None, str(pid)):
        return stop("guest.vmm", "thread", f"{pid} is a thread of process {leader}",
                    f"name that process: {leader}")
    if files is not None and "anon_inode:kvm-vm" not in files:
        return stop("guest.vmm", "no-vm", f"{comm} has no VM of KVM", others + (
            "; QEMU takes -accel kvm for one" if "qemu" in comm else ""))
    return None


def check_vmm(host: Host, guest: Guest) -> Check:
    if guest.files is None:
        mend = "run this as root" + (f" or {guest.user}" if guest.owner else "")
        return unknown("guest.vmm", f"whether {guest.comm} of {guest.user} has a VM: its files "
                       "can't be seen", mend if host.uid or guest.owner else TRACE_IN_CONTAINER)
    vms = guest.files.count("anon_inode:kvm-vm")
    vcpus = sum(file.startswith("anon_inode:kvm-vcpu:") for file in guest.files)
    return ok("guest.vmm", f"{guest.comm} has {vms} VM{'s' * (vms != 1)} with {vcpus} vCPU"
              + "s" * (vcpus != 1))


def check_policy(host: Host, guest: Guest) -> List[Check]:
    """Judge the VMM's policy for callchains of its guest, where that matters."""
    policies = {text.strip() for text in guest.read("guest_callchain")}
    if "forbidden" in policies:
        return [stop("guest.policy", "forbidden", "its VMM has forbidden that its stack is read",
                     START_ANEW)]
    if host.system.sysctl("perf_event_guest_callchain") != 1 or policies == {"allowed"}:
        return []
    if policies:
        return [stop("guest.policy", "not-allowed", "its VMM has not allowed that its stack is "
                     "read", PERMIT)]
    return [unknown("guest.policy", "whether its VMM allows that its stack is read: debugfs tells "
                    "root", "run this as root" if host.uid else MOUNT_DEBUGFS)]


def check_sample(host: Host, guest: Guest) -> Check:
    code, error = guest.sampling
    if code == "all":
        return ok("guest.sample", "you may sample it, its kernel included")
    if code == "programs":
        return no("guest.sample", code, "you may sample its programs, not its kernel",
                  "see perf_event_paranoid above")
    as_owner = host.sampling.code == "all" and guest.owner != host.uid
    return stop("guest.sample", code, f"you may not sample it ({os.strerror(error)}): it is "
                f"{guest.user}'s", BE_ROOT + (f", or as {guest.user}" if as_owner else ""))


def check_memory(host: Host, guest: Guest) -> Check:
    if guest.memory_error == errno.EFAULT:
        return ok("guest.memory", "you may read its memory")
    why, reason = "refused", f"process_vm_readv(): {os.strerror(guest.memory_error)}"
    mend = "run perf as root" if host.uid else TRACE_IN_CONTAINER
    yama = host.system.sysctl("yama/ptrace_scope")
    if host.uid and guest.owner == host.uid and yama:
        why, reason = "yama", f"Yama's ptrace_scope is {yama}"
        mend += ", or sysctl kernel.yama.ptrace_scope=0" if yama == 1 else ""
    return no("guest.memory", why, f"you may not read its memory ({reason}): frames stay "
              "addresses", mend)


def check_encryption(guest: Guest) -> Check:
    by = guest.encrypted_by
    if by:
        return stop("guest.encryption", "encrypted", f"its memory is encrypted ({by}): nobody can "
                    "read its stack from outside", f"record it without -g, or run it without {by}")
    if guest.files is None:
        return unknown("guest.encryption", "whether its memory is encrypted")
    if {"anon_inode:[kvm-gmem]", "[kvm-gmem]"}.intersection(guest.files):
        return unknown("guest.encryption", "whether the host sees all of its memory: some is "
                       "guest_memfd's, and may be private")
    return ok("guest.encryption", "its memory is not encrypted, by all that can be seen")


def check_ram(host: Host, guest: Guest) -> Check:
    """Judge whether perf finds the guest's RAM in the VMM's memory."""
    slots = [int(size, 16) >> 10 for size in re.findall(
        r"^as_id=0 .*\bsize=0x([0-9a-f]+)", "".join(guest.read("memslots")), re.M)]
    if slots:
        return ok("guest.ram", f"KVM lists where its RAM is: {len(slots)} memslots, "
                  f"{sum(slots) >> 10} MiB")
    if guest.info and guest.info.release:
        return ok("guest.ram", "its RAM was found in one mapping of the VMM's")
    # The VMM's writable mappings without code, in MiB, the largest first.
    maps = re.findall("^([0-9a-f]+)-([0-9a-f]+) rw-", host.system.read(f"/proc/{guest.pid}/maps"),
                      re.M)
    sizes = sorted(((int(end, 16) - int(start, 16)) >> 20 for start, end in maps), reverse=True)
    if not sizes:
        return unknown("guest.ram", "where its RAM is")
    if len(sizes) == 1 or sizes[0] >= 2 * sizes[1]:
        return ok("guest.ram", f"its RAM seems to be one mapping, of {sizes[0]} MiB")
    mend = ("run perf as root" if host.uid else MOUNT_DEBUGFS if guest.folders is None else
            "boot a kernel that has all patches") + ": KVM lists where its RAM is"
    return no("guest.ram", "mappings", "its RAM may be in several mappings, of "
              f"{sizes[0]} MiB and {sizes[1]} MiB", mend)


def check_info(guest: Guest, perf_works: bool) -> List[Check]:
    checks = check_names(guest.info) if guest.info else [unknown(
        "guest.kernel", "its kernel, symbols, modules and tasks: " + (
            "its memory is encrypted" if guest.encrypted_by else
            "its memory can't be read" if perf_works else "that takes a perf that knows guests"))]
    if perf_works and not guest.encrypted_by and guest.sampling.code != "nothing":
        checks.append(check_unwinding(guest.info))
    return checks


def check_walks(host: Host, guest: Guest) -> List[Check]:
    """Judge how walks have ended so far, if KVM counts that."""
    if not guest.read("callchain_end_last"):
        return [] if host.uid or guest.folders is not None else [unknown(
            "guest.walks", "how walks of its stacks have ended: debugfs is not mounted",
            MOUNT_DEBUGFS)]
    sums = {why: sum(int(text) for end in names for text in guest.read(f"callchain_end_{end}"))
            for why, (names, _, _) in ENDS.items()}
    most, total = max(sums, key=lambda why: sums[why]), sum(sums.values())
    if not total:
        return [unknown("guest.walks", "how walks of its stacks end, as there was none yet")]
    _, words, mend = ENDS[most]
    fact = f"{total} walks of its stacks: {100 * sums[most] // total} % ended {words}"
    if most == "no-frames" and has_tables(guest.info):
        return [ok("guest.walks", f"{fact}, where ORC goes on")]
    return [no("guest.walks", most, fact, mend) if mend else ok("guest.walks", fact)]


def checks(host: Host, guest: Guest, perf_works: bool) -> List[Check]:
    return [check_vmm(host, guest), *check_policy(host, guest), check_sample(host, guest),
            check_memory(host, guest), check_encryption(guest), check_ram(host, guest),
            *check_info(guest, perf_works), *check_walks(host, guest)]
