# SPDX-License-Identifier: GPL-2.0-only
"""What one guest is: its VMM, and what may be read and recorded of it."""

import errno
import os
import re
from typing import Dict, List, Optional

from .check import Check, no, ok, stop, unknown
from .host import BE_ROOT, PERMIT, Host, list_vmms, sampling_of
from .perf import START_ANEW, check_names, check_unwinding, look_into
from .system import System

TRACE_IN_CONTAINER = "leave the container, or give it CAP_SYS_PTRACE"


class Guest:
    """A VMM and its VM."""

    def __init__(self, system: System, pid: int, status: Dict[str, str], program: str) -> None:
        """program: the perf that shall look into the guest's memory; empty if it can't"""
        self.pid = pid
        self.comm = status.get("Name", "")
        self.owner = int(status["Uid"].split("\t")[0])
        self.user = f"user {system.user_name(self.owner)}"
        self.files = system.open_files(pid)  # None if they can't be read
        self.encrypted_by = encryption(system.read(f"/proc/{pid}/cmdline"), self.files or [])
        self.sampling = sampling_of(system, pid)
        self.memory_error = system.read_memory(pid)
        self.vms = "\n".join(system.vms_of(pid))  # what KVM tells of them
        self.policies = set(re.findall(r"^guest_callchain:\t(\S+)", self.vms, re.M))
        is_readable = self.memory_error == errno.EFAULT and not self.encrypted_by
        self.info = look_into(system, program, pid) if program and is_readable else None


def encryption(args: str, files: List[str]) -> str:
    """Return the encryption of a guest's memory, judged by its VMM's arguments and open files."""
    found = re.search(r'-object[=\0](?:\{.*?"qom-type": *")?(sev-snp|sev|tdx)-guest\b|'
                      r"[\0,](sev_snp|tdx)=on\b", args)
    if found:
        return (found.group(1) or found.group(2)).replace("_", "-").upper()
    return "SEV" if "/dev/sev" in files else ""


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
    if "forbidden" in guest.policies:
        return [stop("guest.policy", "forbidden", "its VMM has forbidden that its stack is read",
                     START_ANEW)]
    if host.system.sysctl("perf_event_guest_callchain") != 1:
        return []
    if "undecided" in guest.policies:
        return [stop("guest.policy", "not-allowed", "its VMM has not allowed that its stack is "
                     "read", PERMIT)]
    return [] if guest.policies else [unknown(
        "guest.policy", "whether its VMM allows that its stack is read",
        "run this as root" if host.uid else TRACE_IN_CONTAINER)]


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
        r"^memslot:\tas_id=0 .*\bsize=0x([0-9a-f]+)", guest.vms, re.M)]
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
    mend = ("run perf as root" if host.uid else
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


def checks(host: Host, guest: Guest, perf_works: bool) -> List[Check]:
    return [check_vmm(host, guest), *check_policy(host, guest), check_sample(host, guest),
            check_memory(host, guest), check_encryption(guest), check_ram(host, guest),
            *check_info(guest, perf_works)]
