# SPDX-License-Identifier: GPL-2.0-only
"""The architectures of emulated hosts: what sets their builds apart."""

from dataclasses import dataclass
from typing import Dict


@dataclass(frozen=True)
class Arch:
    """An architecture.

    Args:
        name: as Linux's build system calls it
        image: the kernel's image, below where it is built
        target: what make builds it as
        debian: as Debian calls it
        prefix: of the names of a cross compiler's programs; none for this machine's own
    """
    name: str
    image: str
    target: str
    debian: str
    prefix: str = ""


X86 = Arch("x86", "arch/x86/boot/bzImage", "bzImage", "amd64")
ARM64 = Arch("arm64", "arch/arm64/boot/Image", "Image", "arm64", "aarch64-linux-gnu-")

ARCHS: Dict[str, Arch] = {arch.name: arch for arch in (X86, ARM64)}
