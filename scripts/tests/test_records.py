# SPDX-License-Identifier: GPL-2.0-only
"""Tests of records.py with perf.data files that are made here."""

import struct
import tempfile
import unittest
from pathlib import Path
from typing import List

from hostlib import records

_KERNEL, _USER, _GUEST = (2 ** 64 - 128, 2 ** 64 - 512, 2 ** 64 - 2048)
_IP_CALLCHAIN = 1 << 0 | 1 << 5


def _sample(misc: int, chain: List[int], more: bytes = b"") -> bytes:
    body = struct.pack(f"<{2 + len(chain)}Q", 0x1000, len(chain), *chain) + more
    return struct.pack("<IHH", 9, misc, 8 + len(body)) + body


class ShapesTest(unittest.TestCase):
    def test_what_differs(self) -> None:
        attr = struct.pack("<IIQQQ", 1, 136, 0, 0, _IP_CALLCHAIN).ljust(136, b"\0")
        path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "perf.data"
        usual = _sample(1, [_KERNEL, 1])
        for what, one, other, shapes in (
                ("host chains of any depth are alike", _sample(1, [_KERNEL, 1, 2, _USER, 3]),
                 _sample(1, [_KERNEL, 1, _USER, 3, 4, 5]), 1),
                ("an empty part", _sample(1, [_KERNEL, 1, _USER]),
                 _sample(1, [_KERNEL, 1, _USER, 3]), 2),
                ("each entry of guest chains", _sample(4, [_GUEST, 1]),
                 _sample(4, [_GUEST, 1, 2]), 2),
                ("flags", usual, _sample(2, [_KERNEL, 1]), 2),
                ("bytes behind a sample", usual, _sample(1, [_KERNEL, 1], bytes(8)), 2)):
            with self.subTest(what):
                path.write_bytes(b"PERFILE2" + struct.pack(
                    "<6Q", 104, 152, 104, 152, 256, len(one + other)).ljust(96, b"\0")
                    + attr + bytes(16) + one + other)
                found_attr, found = records.shapes(path)
                self.assertEqual(found_attr, attr)
                self.assertEqual(len(list(found)), shapes)
