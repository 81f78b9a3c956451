# SPDX-License-Identifier: GPL-2.0-only
"""The architectures of emulated hosts, and how their builds differ."""

from dataclasses import dataclass
from typing import Dict


@dataclass(frozen=True)
class Arch:
    """An architecture.

    Args:
        name: its name in Linux's build system
        image: the path of the kernel's image in the kernel's build folder
        target: the make target that builds the image
        debian: its name in Debian
        prefix: the prefix of the cross compiler's programs; empty for this machine's own compiler
    """
    name: str
    image: str
    target: str
    debian: str
    prefix: str = ""


X86 = Arch("x86", "arch/x86/boot/bzImage", "bzImage", "amd64")
ARM64 = Arch("arm64", "arch/arm64/boot/Image", "Image", "arm64", "aarch64-linux-gnu-")

ARCHS: Dict[str, Arch] = {arch.name: arch for arch in (X86, ARM64)}
