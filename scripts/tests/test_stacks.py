# SPDX-License-Identifier: GPL-2.0-only
"""Tests of reading and folding the output of perf script."""

import unittest
from typing import List

from hostlib import stacks
from hostlib.stacks import GUEST_KERNEL, GUEST_USER, HOST, TASK, Frame

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


def _read(text: str) -> List[stacks.Sample]:
    return list(stacks.read(text.splitlines()))


class StacksTest(unittest.TestCase):
    def setUp(self) -> None:
        self.samples = _read(_SCRIPT)

    def test_reads_samples_whole_and_in_order(self) -> None:
        self.assertEqual([(sample.mode, sample.is_guest, sample.is_guest_kernel)
                          for sample in self.samples],
                         [("G", True, True), ("g", True, False), ("K", False, False),
                          ("G", True, True)])
        self.assertEqual(self.samples[0].functions,
                         ("rep_movs", "vfs_write", "do_syscall_64"))

    def test_folds_outermost_first(self) -> None:
        guest = [sample for sample in self.samples if sample.is_guest]
        self.assertEqual(stacks.folded_text(stacks.fold(guest)),
                         "[unknown] 1\ndo_syscall_64;vfs_write;rep_movs 2\n")

    def test_a_cookie_is_no_frame(self) -> None:
        lost = _read("CPU 0/KVM G     \n\tffffffff81000010 f\n\t    35c400000003 (cookie)\n\n"
                     "CPU 0/KVM G     \n\t    35c400000004 (cookie)\n")
        self.assertEqual([sample.functions for sample in lost], [("f",), ()])
        self.assertEqual([sample.addresses for sample in lost], [("ffffffff81000010",), ()])
        self.assertEqual(stacks.folded_text(stacks.fold(lost)), "f 1\n")


class FieldsTest(unittest.TestCase):
    def test_fields_in_any_choice(self) -> None:
        headers = ["CPU 0/KVM     312/318     [001] K       84.211000:     cpu-clock: ",
                   "CPU 0/KVM     318 [001] K       84.211000:          1 cpu-clock:u: ",
                   "CPU 0/KVM     318 K     ", "CPU 0/KVM [001] K     ", "CPU 0/KVM K     "]
        found = [_read(f"{header}\n\t10 f\n")[0] for header in headers]
        self.assertEqual([(sample.mode, sample.comm) for sample in found],
                         [("K", "CPU 0/KVM")] * 5)
        self.assertEqual([(sample.pid, sample.tid) for sample in found],
                         [("312", "318"), ("", "318"), ("", "318"), ("", ""), ("", "")])

    def test_a_name_that_looks_like_fields(self) -> None:
        text = "sh G     \n\t10 f\n\na      12 G     \n\t10 f\n\n 10 g      K     \n\t10 f\n"
        self.assertEqual([(sample.mode, sample.comm, sample.tid) for sample in _read(text)],
                         [("G", "sh", ""), ("G", "a      12", ""), ("K", "10 g", "")])

    def test_any_bytes(self) -> None:
        text = "a\u2028b G     \n\t10 f\x0bg\n\t10 ".encode() + b"\xff\n"
        sample, = stacks.read_bytes(text)
        self.assertEqual((sample.comm, sample.functions), ("a\u2028b", ("f\x0bg", "\ufffd")))

    def test_names_without_offset_and_file(self) -> None:
        sample = _read("a G     \n\tffffffff81000010 vfs_write+0x1f ([guest.kernel.kallsyms.7])\n"
                       "\t20 f(int (int))+0x0 (/tmp/a (deleted))\n\t10 [unknown] ([unknown])\n")[0]
        self.assertEqual([frame.name for frame in sample.frames()],
                         ["[unknown]", "f(int (int))", "vfs_write"])
        self.assertEqual(sample.vmm, "7")

    def test_a_function_without_a_name_has_its_file(self) -> None:
        for function, name in (("[unknown] (/usr/bin/gzip (guest))", "[gzip]"),
                               ("[unknown] (/usr/bin/gzip (guest)+0x41e8)", "[gzip]"),
                               ("[unknown] (/bin/a b (deleted) (guest, no build-id))", "[unknown]"),
                               ("[unknown] (/gzip)", "[gzip]"),
                               ("[unknown] ([unknown])", "[unknown]"),
                               ("deflate (/usr/lib/libz.so.1 (guest))", "deflate")):
            sample = stacks.Sample("g", (function,), ("10",), "a task")
            self.assertEqual(sample.frames()[0].name, name)
        self.assertEqual(list(stacks.with_tasks([sample, sample]).items()),
                         [((Frame("a task", TASK), Frame("deflate", GUEST_USER)), 2)])


class KindsTest(unittest.TestCase):
    def _kinds(self, mode: str, *addresses: str) -> List[str]:
        return [frame.kind for frame in
                stacks.Sample(mode, ("f",) * len(addresses), addresses).frames()]

    def test_user_mode_lies_below_its_kernel(self) -> None:
        self.assertEqual(self._kinds("G", "ffffffff81000000", "ffffffff81000001", "10"),
                         [GUEST_USER, GUEST_KERNEL, GUEST_KERNEL])
        self.assertEqual(self._kinds("G", "c1000000", "8048000"), [GUEST_USER, GUEST_KERNEL])
        self.assertEqual(self._kinds("g", "4005d0"), [GUEST_USER])
        # A kernel may be at low addresses.
        self.assertEqual(self._kinds("G", "100000", "100"), [GUEST_KERNEL] * 2)
        self.assertEqual(self._kinds("K", "ffffffff81000000", "10"), [HOST] * 2)
