# SPDX-License-Identifier: GPL-2.0-only
"""What QEMU emulates for a host."""

from dataclasses import dataclass, field
from typing import List


@dataclass(frozen=True)
class Machine:
    """A machine.

    Args:
        qemu: QEMU, and its options for the machine and its CPUs
        job_cpus: those of its CPUs that jobs run on, as taskset takes them
        console: its first serial line, as Linux calls it
        kernel_args: what its kernel is told beside what all are told
    """
    qemu: List[str]
    job_cpus: str
    console: str
    kernel_args: List[str] = field(default_factory=list)
