# SPDX-License-Identifier: GPL-2.0-only
"""Join samples of a host and of its guests: one picture of the VMM, KVM and the guest."""

import os
from collections import Counter
from typing import Dict, Iterable, List, Set, Tuple

from .stacks import HOST, Frame, Sample
from .ui import Failure

# Host functions that are in the callchain of a vCPU's thread when it runs KVM, not its guest.
_KVM_RUN = {"kvm_vcpu_ioctl", "kvm_arch_vcpu_ioctl_run"}

# The frame below a guest's frames: the vCPU's thread is in this ioctl.
GUEST_RUNS = Frame("KVM_RUN (guest)", HOST)


def _common(names: Iterable[str]) -> str:
    """Return one name for all: "CPU */KVM" for "CPU 0/KVM" and "CPU 1/KVM"."""
    names = sorted(names)
    if len(names) == 1:
        return names[0]
    start = os.path.commonprefix(names)
    end = os.path.commonprefix([name[len(start):][::-1] for name in names])[::-1]
    return f"{start}*{end}"


class _Vmms:
    """The VMMs whose threads were sampled, by PID; without PIDs, all VMMs count as one."""

    def __init__(self, samples: "List[Sample]") -> None:
        # The threads of vCPUs, and, for each VMM, the names of these threads.
        self._vcpus: Set[Tuple[str, str, str]] = set()
        self._comms: Dict[str, Set[str]] = {}
        for sample in samples:
            if not sample.is_guest and _KVM_RUN & {frame.name for frame in sample.frames()}:
                self._vcpus.add((sample.pid, sample.tid, sample.comm))
                self._comms.setdefault(sample.pid, set()).add(sample.comm)
        if not self._comms:
            raise Failure("The text has no sample of a vCPU's thread in its host's kernel, to join "
                          "with those of guests; record with perf kvm --host --guest record -g")

    def _name(self, pid: str) -> str:
        name = _common(self._comms[pid])
        return name if len(self._comms) == 1 else f"{name} {pid}"

    def root(self, sample: Sample) -> Frame:
        """Return the outermost frame for a sample: its VMM's vCPUs, or the host's thread."""
        # Don't find the VMM by the sample's comm and PID: these may be the guest's task's, and
        # the guest chooses them.
        if sample.is_guest and sample.vmm:
            known = sample.vmm in self._comms
            return Frame(self._name(sample.vmm) if known else f"VMM {sample.vmm}", HOST)
        if (sample.pid, sample.tid, sample.comm) in self._vcpus:
            return Frame(self._name(sample.pid), HOST)
        if not sample.is_guest:
            return Frame(sample.comm, HOST)
        return Frame(self._name(next(iter(self._comms))) if len(self._comms) == 1 else "a VMM",
                     HOST)


def fold(samples: Iterable[Sample]) -> "Counter[Tuple[Frame, ...]]":
    """Count equal stacks: a root frame, then the host's frames, or KVM_RUN and the guest's."""
    samples = [sample for sample in samples if sample.functions]
    vmms = _Vmms(samples)
    return Counter((vmms.root(sample), *([GUEST_RUNS] if sample.is_guest else []),
                    *sample.frames()) for sample in samples)
