# SPDX-License-Identifier: GPL-2.0-only
"""Tests of one picture with the host and its guests."""

import unittest
from typing import Dict

from hostlib import joined, stacks
from hostlib.ui import Failure


def _sample(header: str, *frames: str) -> str:
    return "\n\t".join([header, *(f"ffffffff81000000 {frame}" for frame in frames)]) + "\n\n"


_RUNS = ("vcpu_run", "kvm_arch_vcpu_ioctl_run", "kvm_vcpu_ioctl")


def _fold(*texts: str) -> Dict[str, int]:
    samples = stacks.read("".join(texts).splitlines())
    return {";".join(frame.name for frame in stack): count
            for stack, count in joined.fold(samples).items()}


class JoinedTest(unittest.TestCase):
    def test_guest_and_host_meet_in_the_thread(self) -> None:
        self.assertEqual(
            _fold(_sample("CPU 0/KVM K     ", *_RUNS), _sample("CPU 0/KVM G     ", "vfs_read"),
                  _sample("CPU 0/KVM KGg   ", "main"), _sample("qemu K     ", "poll")),
            {"CPU 0/KVM;kvm_vcpu_ioctl;kvm_arch_vcpu_ioctl_run;vcpu_run": 1,
             "CPU 0/KVM;KVM_RUN (guest);vfs_read": 1, "CPU 0/KVM;KVM_RUN (guest);main": 1,
             "qemu;poll": 1})

    def test_a_task_of_the_guest_is_its_vmms(self) -> None:
        self.assertEqual(
            _fold(_sample("CPU 0/KVM K     ", *_RUNS), _sample("CPU 1/KVM K     ", *_RUNS[1:]),
                  _sample("CPU 0/KVM U     ", "main"), _sample("bash G     ", "vfs_read")),
            {"CPU */KVM;kvm_vcpu_ioctl;kvm_arch_vcpu_ioctl_run;vcpu_run": 1,
             "CPU */KVM;kvm_vcpu_ioctl;kvm_arch_vcpu_ioctl_run": 1, "CPU */KVM;main": 1,
             "CPU */KVM;KVM_RUN (guest);vfs_read": 1})

    def test_vmms_are_told_apart_by_pid(self) -> None:
        self.assertEqual(
            _fold(_sample("CPU 0/KVM      10/11      K     ", *_RUNS[2:]),
                  _sample("CPU 0/KVM      20/21      K     ", *_RUNS[2:]),
                  _sample("CPU 0/KVM      20/21      G     ", "f"),
                  _sample("CPU 0/KVM      10/11      G     ", "g ([guest.kernel.kallsyms.20])"),
                  _sample("sh       7/7       G     ", "h ([guest.kernel.kallsyms.30])"),
                  _sample("sh       7/7       G     ", "i")),
            {"CPU 0/KVM 10;kvm_vcpu_ioctl": 1, "CPU 0/KVM 20;kvm_vcpu_ioctl": 1,
             "CPU 0/KVM 20;KVM_RUN (guest);f": 1, "CPU 0/KVM 20;KVM_RUN (guest);g": 1,
             "VMM 30;KVM_RUN (guest);h": 1, "a VMM;KVM_RUN (guest);i": 1})

    def test_a_task_of_the_guest_that_has_the_pid_of_a_thread(self) -> None:
        self.assertEqual(
            _fold(_sample("CPU 0/KVM      10/11      K     ", *_RUNS[2:]),
                  _sample("qemu      10/10      K     ", "poll"),
                  _sample("qemu      10/10      G     ", "f")),
            {"CPU 0/KVM;kvm_vcpu_ioctl": 1, "qemu;poll": 1, "CPU 0/KVM;KVM_RUN (guest);f": 1})

    def test_samples_of_guests_alone(self) -> None:
        with self.assertRaises(Failure):
            _fold(_sample("bash G     ", "vfs_read"))


if __name__ == "__main__":
    unittest.main()
