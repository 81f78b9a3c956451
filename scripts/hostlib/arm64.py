# SPDX-License-Identifier: GPL-2.0-only
"""The machine that QEMU emulates as the arm64 host."""

from .arch import Machine
from .ui import Failure

# Address of the first virtio-mmio device of the machine "virt".  QEMU assigns the last ones
# first, so this one stays unused.
UNUSED_DEVICE = 0x0a000000


def choose_accel(wish: str) -> str:
    """Return QEMU's accelerator: TCG, because this machine's CPU is of another architecture."""
    if wish == "kvm":
        raise Failure("ARCH=arm64 does not work with ACCEL=kvm, as this machine is x86; omit "
                      "ACCEL=kvm, and QEMU emulates the host")
    return "tcg"


def machine(counted: bool = False) -> Machine:
    """Return a machine that has a PMU, and that starts its kernel at EL2, which KVM needs.

    Args:
        counted: give it a clock that ticks once per instruction, and that programs can read
    """
    accel, cpu = ["tcg,thread=multi"], ""
    if counted:
        accel = ["tcg,thread=single", "-icount", "shift=0,sleep=off"]
        cpu = ",cntfrq=1000000000"
    return Machine(
        ["qemu-system-aarch64", "-M", "virt,virtualization=on,gic-version=3",
         # QEMU would spend half of its time in the architected algorithm of pointer
         # authentication.
         "-accel", *accel, "-cpu", f"max,pauth-impdef=on{cpu}", "-smp", "2"],
        "0-1", "ttyAMA0")
