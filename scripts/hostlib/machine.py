# SPDX-License-Identifier: GPL-2.0-only
"""The machine that QEMU emulates for a host."""

from dataclasses import dataclass, field
from typing import List


@dataclass(frozen=True)
class Machine:
    """A machine.

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
