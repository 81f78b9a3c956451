# SPDX-License-Identifier: GPL-2.0-only
"""What the host can do: its kernel, KVM and PMU; and what its user may record."""

import errno
import gzip
import os
import re
from typing import List, NamedTuple, Optional, Set

from .check import Check, no, ok, stop, unknown
from .system import (EXCLUDE_GUEST, EXCLUDE_KERNEL, GUEST_CALLCHAIN, GUEST_READ, HARDWARE_CYCLES,
                     RESERVED, SAMPLE_CALLCHAIN, SOFTWARE_CPU_CLOCK, System)

# A guest's chain has three words that count as contexts, see perf_guest_callchain_check().
CONTEXTS = 3
USUAL_MAX_STACK = 127

BE_ROOT = "run perf as root (CAP_PERFMON gives chains without names)"
PERMIT = "sysctl kernel.perf_event_guest_callchain=3"
APPLY = ("install the kernel that make deb builds, and boot it; or apply what make series "
         "writes to a tree of yours, and build it with CONFIG_GUEST_PERF_CALLCHAIN=y")


class Sampling(NamedTuple):
    """The code that may be sampled, "all", "programs" or "nothing"; and the error, or 0."""
    code: str
    error: int


def sampling_of(system: System, pid: int) -> Sampling:
    if not system.open_event(SOFTWARE_CPU_CLOCK, pid=pid):
        return Sampling("all", 0)
    error = system.open_event(SOFTWARE_CPU_CLOCK, EXCLUDE_KERNEL, pid=pid)
    return Sampling("nothing" if error else "programs", error)


class Host:
    """The machine, its user, and what this user may sample."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.uid = system.uid
        self.user = f"user {system.user_name(self.uid)}" if self.uid else "root"
        self.sampling = sampling_of(system, 0)


def list_vmms(system: System) -> str:
    pids = sorted(int(name) for name in system.entries("/proc") or [] if name.isdigit())
    vmms = [f"{pid} ({system.read(f'/proc/{pid}/comm').strip()})" for pid in pids
            if "anon_inode:kvm-vm" in (system.open_files(pid) or [])]
    if not vmms:
        return "no VMM of KVM is seen" + (" by this user" if system.uid else "")
    return f"VMMs of KVM are {', '.join(vmms[:4] + ['...'] * (len(vmms) > 4))}"


def check_machine(system: System) -> Check:
    fact, page = (f"Linux {system.release} on {system.machine}",
                  "Documentation/admin-guide/perf-guests.rst")
    if system.machine == "x86_64":
        return ok("host.machine", fact)
    return stop("host.machine", system.machine, f"{fact}: this command knows x86-64 only",
                f"read {page}" if system.machine == "aarch64" else "use a host of x86-64")


def check_kvm(system: System, has_vm: bool) -> Check:
    if has_vm or system.exists("/dev/kvm"):
        modules = [name for name in ("kvm_intel", "kvm_amd")
                   if system.exists(f"/sys/module/{name}")]
        return ok("host.kvm", f"KVM is there: {' and '.join(modules) or '/dev/kvm'}")
    if re.search(r"^flags\s*:.*\b(vmx|svm)\b", system.read("/proc/cpuinfo"), re.M):
        return stop("host.kvm", "not-loaded", "there is no /dev/kvm: KVM isn't loaded",
                    "modprobe kvm_intel or kvm_amd, and read dmesg if that fails")
    return stop("host.kvm", "no-cpu", "there is no /dev/kvm, and the CPU has neither VMX nor SVM",
                "enable virtualization in the firmware; in a VM, nesting on its host")


def knows(system: System, bits: int) -> Optional[bool]:
    """Return whether the kernel knows these attributes; None if that is not known."""
    error = system.open_event(SOFTWARE_CPU_CLOCK, bits | EXCLUDE_KERNEL, SAMPLE_CALLCHAIN)
    if error in (0, errno.EINVAL):
        return not error
    # No kernel knows RESERVED.  If this fails with EINVAL, the kernel checks attributes before
    # permissions, so it knows the attributes above.
    error = system.open_event(SOFTWARE_CPU_CLOCK, RESERVED | EXCLUDE_KERNEL)
    return True if error == errno.EINVAL else None


def refusal(system: System) -> Check:
    """Say why the kernel doesn't know guest callchains."""
    why, fact, mend = "missing", "the patches or CONFIG_GUEST_PERF_CALLCHAIN are missing", APPLY
    modules = f"/lib/modules/{system.release}"
    for name in ("/proc/config.gz", f"/boot/config-{system.release}", f"{modules}/config",
                 f"{modules}/build/.config"):
        config = system.read_bytes(name)
        try:
            config = gzip.decompress(config) if config and name.endswith(".gz") else config
        except (OSError, EOFError):
            continue
        if not config:
            continue
        if b"\nCONFIG_GUEST_PERF_CALLCHAIN=y" in config:
            why, fact = "other-config", f"{name} has the option, so it is another kernel's"
            mend = "boot the kernel that was built by it"
        elif b"# CONFIG_GUEST_PERF_CALLCHAIN is not set" in config:
            why, fact = "off", f"CONFIG_GUEST_PERF_CALLCHAIN is off in {name}"
            mend = "scripts/config -e GUEST_PERF_CALLCHAIN in its tree; build, install and boot it"
        else:
            why, fact = "unpatched", f"the patches aren't applied, by {name}"
        break
    return stop("host.kernel", why, f"the kernel refuses guest_callchain: {fact}", mend)


def check_kernel(host: Host) -> Check:
    known = knows(host.system, GUEST_CALLCHAIN)
    if known is None:
        return unknown("host.kernel", "whether the kernel records guests' callchains: "
                       f"{os.strerror(host.sampling.error)} for {host.user}", "run this as root")
    if not known:
        if check_limits(host.system).blocks:
            return unknown("host.kernel", "whether the kernel records guests' callchains, because "
                           "of perf's limits")
        return refusal(host.system)
    if knows(host.system, GUEST_CALLCHAIN | GUEST_READ) is False:
        return no("host.kernel", "incomplete", "the kernel records guests' callchains, but doesn't "
                  "read stacks for ORC", f"apply all patches: {APPLY}")
    return ok("host.kernel", "the kernel records guests' callchains, and reads stacks for ORC")


def check_limits(system: System) -> Check:
    depth = system.sysctl("perf_event_max_stack")
    contexts = system.sysctl("perf_event_max_contexts_per_stack")
    if depth is None or contexts is None:
        return unknown("host.limits", "how long callchains may be")
    fact = f"perf_event_max_stack is {depth}, perf_event_max_contexts_per_stack is {contexts}"
    deeper = f"sysctl kernel.perf_event_max_stack={USUAL_MAX_STACK}"
    more = "sysctl kernel.perf_event_max_contexts_per_stack=8"
    if contexts < CONTEXTS or not depth:
        return stop("host.limits", "none", f"there are no callchains of guests: {fact}",
                    more if depth else deeper)
    if depth < USUAL_MAX_STACK:
        return no("host.limits", "shallow", f"callchains end early: {fact}", deeper)
    return ok("host.limits", f"perf's limits allow callchains of {depth} frames")


def check_switch(system: System, policies: Set[str]) -> List[Check]:
    """Report the administrator's switch, unless it permits all; policies: those of the VMM."""
    permits = system.sysctl("perf_event_guest_callchain")
    fact = f"perf_event_guest_callchain is {permits}"
    if permits == 0:
        return [stop("host.switch", "off", f"no guests may be read: {fact}", PERMIT)]
    if permits in (1, 2) and policies != {"read-allowed"}:
        guests = "guests whose VMM allows it" if permits == 1 else "guests"
        return [no("host.switch", "no-reads", f"chains of {guests} follow frame pointers only, as "
                   f"no stacks are read: {fact}", PERMIT)]
    return []


def check_pmu(host: Host) -> Check:
    system = host.system
    # The module of KVM that mediates PMUs, if there is one.
    mediates = next((module for module in ("kvm_intel", "kvm_amd", "kvm") if system.read(
        f"/sys/module/{module}/parameters/enable_mediated_pmu").strip() in ("Y", "1")), "")
    bits = 0 if host.sampling.code == "all" else EXCLUDE_KERNEL
    error = system.open_event(HARDWARE_CYCLES, bits)
    if not error:
        return ok("host.pmu", "there is a hardware PMU: cycles" + (
            mediates and f"; while it samples guests, {mediates} starts none with a PMU"))
    if error in (errno.EACCES, errno.EPERM, errno.ENOSYS):
        return unknown("host.pmu", "whether there is a hardware PMU")
    if error == errno.EOPNOTSUPP and not system.open_event(HARDWARE_CYCLES, bits | EXCLUDE_GUEST):
        return no("host.pmu", "mediated", "cycles can't sample guests: a VM has the PMU",
                  f"record with -e cpu-clock; or load {mediates or 'KVM'} with "
                  "enable_mediated_pmu=0")
    return no("host.pmu", "none", "there is no hardware PMU that samples: no cycles",
              "record with -e cpu-clock, a timer")


def check_user(host: Host, is_own: bool) -> Check:
    """Judge what this user may record; is_own: the guest is this user's, or none was named."""
    code, error = host.sampling
    adds = "; root also has others' guests" if host.uid else ""
    if code == "all":
        return ok("host.user", f"{host.user} may record kernels{adds}")
    if code == "nothing" and (not host.uid or error == errno.ENOSYS):
        return stop("host.user", "system-call", f"{host.user} may record nothing: "
                    f"perf_event_open() fails ({os.strerror(error)})",
                    "leave the container, or allow it that system call")
    paranoid = host.system.sysctl("perf_event_paranoid")
    fact = (f"{host.user} may record {'nothing' if error else 'programs, no kernels'}: "
            f"perf_event_paranoid is {'not known' if paranoid is None else paranoid}{adds}")
    mend = BE_ROOT + (", or sysctl kernel.perf_event_paranoid=1" if is_own else "")
    return (stop if error else no)("host.user", code, fact, mend)


def checks(host: Host, has_vm: bool, is_own: bool, policies: Set[str]) -> List[Check]:
    return [check_kvm(host.system, has_vm), check_kernel(host), check_limits(host.system),
            *check_switch(host.system, policies), check_pmu(host), check_user(host, is_own)]
