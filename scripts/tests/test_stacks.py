# SPDX-License-Identifier: GPL-2.0-only
"""Folding what perf script prints."""

import unittest

from hostlib import flamegraph, stacks

_SCRIPT = """\
qemu-system-x86 G    
\tffffffff81000010 rep_movs
\tffffffff81000020 vfs_write
\tffffffff81000030 do_syscall_64

qemu-system-x86 KGg    
\t          4005d0 [unknown]

CPU 0/KVM K    
\tffffffff81000040 vcpu_run

qemu-system-x86 G    
\tffffffff81000010 rep_movs
\tffffffff81000020 vfs_write
\tffffffff81000030 do_syscall_64
"""


class StacksTest(unittest.TestCase):
    def setUp(self) -> None:
        self.samples = list(stacks.read(_SCRIPT.splitlines()))

    def test_reads_samples_whole_and_in_order(self) -> None:
        self.assertEqual([sample.mode for sample in self.samples], ["G", "g", "K", "G"])
        self.assertEqual(self.samples[0].functions,
                         ("rep_movs", "vfs_write", "do_syscall_64"))

    def test_tells_guest_from_host(self) -> None:
        self.assertEqual([sample.is_guest for sample in self.samples],
                         [True, True, False, True])
        self.assertEqual([sample.is_guest_kernel for sample in self.samples],
                         [True, False, False, True])

    def test_folds_outermost_first(self) -> None:
        guest = [sample for sample in self.samples if sample.is_guest]
        self.assertEqual(stacks.folded_text(stacks.fold(guest)),
                         "[unknown] 1\ndo_syscall_64;vfs_write;rep_movs 2\n")

    def test_callers_lie_below_callees_and_are_as_wide(self) -> None:
        folded = stacks.fold(sample for sample in self.samples if sample.is_guest)
        self.assertEqual(flamegraph.layout(folded), [
            (0, 0, 1, "[unknown]"), (0, 1, 2, "do_syscall_64"),
            (1, 1, 2, "vfs_write"), (2, 1, 2, "rep_movs")])


if __name__ == "__main__":
    unittest.main()
