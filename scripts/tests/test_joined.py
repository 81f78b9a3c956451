# SPDX-License-Identifier: GPL-2.0-only
"""Tests of one picture with the host and its guests."""

import re
import unittest
from typing import Dict, Tuple

from hostlib import joined, stacks
from hostlib.ui import Failure


_RUNS = ("vcpu_run", "kvm_arch_vcpu_ioctl_run", "kvm_vcpu_ioctl")


def _fold(*samples: Tuple[str, ...]) -> Dict[str, int]:
    """Fold samples: each has its comm, maybe its PID and TID, its mode, and its functions."""
    text = ""
    for header, *names in samples:
        fields = re.sub(r"\|(\d+)/(\d+)\|", lambda ids: f" {ids[1]:>7}/{ids[2]:<7} ", header)
        text += "\n\t".join([f"{fields}     ", *(f"ffffffff81000000 {name}" for name in names)])
        text += "\n\n"
    return {";".join(frame.name for frame in stack): count
            for stack, count in joined.fold(stacks.read(text.splitlines())).items()}


class JoinedTest(unittest.TestCase):
    def test_where_guest_and_host_meet(self) -> None:
        walk = "kvm_vcpu_ioctl;kvm_arch_vcpu_ioctl_run;vcpu_run"
        for what, samples, folded in (
                ("in the thread",
                 (("CPU 0/KVM K", *_RUNS), ("CPU 0/KVM G", "vfs_read"), ("CPU 0/KVM KGg", "main"),
                  ("qemu K", "poll")),
                 {f"CPU 0/KVM;{walk}", "CPU 0/KVM;KVM_RUN (guest);vfs_read",
                  "CPU 0/KVM;KVM_RUN (guest);main", "qemu;poll"}),
                ("a task of the guest is its VMM's",
                 (("CPU 0/KVM K", *_RUNS), ("CPU 1/KVM K", *_RUNS[1:]), ("CPU 0/KVM U", "main"),
                  ("bash G", "vfs_read")),
                 {f"CPU */KVM;{walk}", f"CPU */KVM;{walk.rpartition(';')[0]}", "CPU */KVM;main",
                  "CPU */KVM;KVM_RUN (guest);vfs_read"}),
                ("VMMs are told apart by PID",
                 (("CPU 0/KVM|10/11|K", *_RUNS[2:]), ("CPU 0/KVM|20/21|K", *_RUNS[2:]),
                  ("CPU 0/KVM|20/21|G", "f"),
                  ("CPU 0/KVM|10/11|G", "g ([guest.kernel.kallsyms.20])"),
                  ("sh|7/7|G", "h ([guest.kernel.kallsyms.30])"), ("sh|7/7|G", "i")),
                 {"CPU 0/KVM 10;kvm_vcpu_ioctl", "CPU 0/KVM 20;kvm_vcpu_ioctl",
                  "CPU 0/KVM 20;KVM_RUN (guest);f", "CPU 0/KVM 20;KVM_RUN (guest);g",
                  "VMM 30;KVM_RUN (guest);h", "a VMM;KVM_RUN (guest);i"}),
                ("a task of the guest may have the PID of a thread",
                 (("CPU 0/KVM|10/11|K", *_RUNS[2:]), ("qemu|10/10|K", "poll"),
                  ("qemu|10/10|G", "f")),
                 {"CPU 0/KVM;kvm_vcpu_ioctl", "qemu;poll", "CPU 0/KVM;KVM_RUN (guest);f"})):
            with self.subTest(what):
                self.assertEqual(_fold(*samples), dict.fromkeys(folded, 1))

    def test_samples_of_guests_alone(self) -> None:
        with self.assertRaises(Failure):
            _fold(("bash G", "vfs_read"))
