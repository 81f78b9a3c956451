# SPDX-License-Identifier: GPL-2.0-only
"""The arm64 host: what QEMU emulates for it."""

from .machine import Machine
from .ui import Failure

# The first of virt's virtio-mmio devices; QEMU gives out the last ones first.
UNUSED_DEVICE = 0x0a000000


def choose_accel(wish: str) -> str:
    """How QEMU runs it: this machine's CPU is of another architecture."""
    if wish == "kvm":
        raise Failure("ARCH=arm64 can't be had with ACCEL=kvm, as this machine is x86; leave that "
                      "away, QEMU emulates the host")
    return "tcg"


def machine() -> Machine:
    """A machine that starts its kernel at EL2, so that KVM works, with a PMU."""
    return Machine(
        ["qemu-system-aarch64", "-M", "virt,virtualization=on,gic-version=3",
         # The architected algorithm of pointer authentication takes QEMU half of its time.
         "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on", "-smp", "2"],
        "0-1", "ttyAMA0")
