# SPDX-License-Identifier: GPL-2.0-only
"""The architectures of emulated hosts, how their builds differ, and their machines."""

from dataclasses import dataclass, field
from typing import Dict, List


@dataclass(frozen=True)
class Arch:
    """An architecture.

    Args:
        name: its name in Linux's build system
        image: the path of the kernel's image in the kernel's build folder
        target: the make target that builds the image
        debian: its name in Debian
        triplet: the name of its libraries' folder in Debian
        prefix: the prefix of the cross compiler's programs; empty for this machine's own compiler
    """
    name: str
    image: str
    target: str
    debian: str
    triplet: str
    prefix: str = ""


X86 = Arch("x86", "arch/x86/boot/bzImage", "bzImage", "amd64", "x86_64-linux-gnu")
ARM64 = Arch("arm64", "arch/arm64/boot/Image", "Image", "arm64", "aarch64-linux-gnu",
             "aarch64-linux-gnu-")

ARCHS: Dict[str, Arch] = {arch.name: arch for arch in (X86, ARM64)}


@dataclass(frozen=True)
class Machine:
    """A machine that QEMU emulates for a host.

    Args:
        qemu: QEMU, and its options for the machine and its CPUs
        job_cpus: the CPUs that jobs run on, in the format of taskset
        console: Linux's name of the first serial line
        kernel_args: arguments for its kernel, besides those that all kernels get
    """
    qemu: List[str]
    job_cpus: str
    console: str
    kernel_args: List[str] = field(default_factory=list)
