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


def machine(counted: bool = False) -> Machine:
    """A machine that starts its kernel at EL2, so that KVM works, with a PMU.

    Args:
        counted: with a clock that ticks once an instruction, and that programs can read
    """
    accel, cpu = ["tcg,thread=multi"], ""
    if counted:
        accel = ["tcg,thread=single", "-icount", "shift=0,sleep=off"]
        cpu = ",cntfrq=1000000000"
    return Machine(
        ["qemu-system-aarch64", "-M", "virt,virtualization=on,gic-version=3",
         # The architected algorithm of pointer authentication takes QEMU half of its time.
         "-accel", *accel, "-cpu", f"max,pauth-impdef=on{cpu}", "-smp", "2"],
        "0-1", "ttyAMA0")
