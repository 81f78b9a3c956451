# SPDX-License-Identifier: GPL-2.0-only
"""Tests of comparing what perf says of a guest's programs with what the guest's own perf says."""

import unittest
from typing import List

from hostlib import inside
from hostlib.programs import Frame, Sample

# What perf 6.12 prints, and perf 6.1: of user mode, that has offsets in files.
_SCRIPT = """\
a task
\tffffffff81000010 vfs_read ([kernel.kallsyms])
\t    7f0000001010 read (/lib/libc.so.6+0x1010)

call_paths
\t             105 spin (/bin/call_paths)
\t             205 deep10 (/bin/call_paths)

"""


def _frame(offset: int, name: str = "[unknown]") -> Frame:
    return Frame(0x550000000000 + offset, name, f"/bin/call_paths (guest)+{offset:#x}")


def _ours(offset: int = 0x105, name: str = "spin", caller: int = 0x206) -> Sample:
    return Sample("call_paths", (_frame(offset, name), _frame(caller)))


def _failed(found: List[Sample]) -> int:
    theirs = inside.read(_SCRIPT.split("\n"))
    return sum(not holds for _, holds in inside.cases(found, theirs, theirs))


class InsideTest(unittest.TestCase):
    def test_script_is_read(self) -> None:
        kernel, user = inside.read(_SCRIPT.split("\n"))
        self.assertEqual((kernel.comm, kernel.is_user, kernel.user[0].in_file),
                         ("a task", False, ("/lib/libc.so.6", 0x1010)))
        self.assertEqual(inside.names([kernel, user]), {("/bin/call_paths", 0x105): "spin"})

    def test_each_fault_fails(self) -> None:
        good = [_ours()] * 300
        self.assertEqual(_failed(good), 0)
        self.assertEqual(_failed(good + [_ours(0x107, "other")]), 0, "an address of ours only")
        self.assertEqual(_failed(good + [_ours(name="other")]), 1, "another name")
        self.assertEqual(_failed(good + [_ours(name="[unknown]")] * 20), 1, "names are missing")
        self.assertEqual(_failed(good + [_ours(caller=0x300)] * 20), 1, "other callers")
        self.assertEqual(_failed(good[:199]), 1, "few samples")
