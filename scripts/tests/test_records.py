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


def _sample(misc: int, chain: List[int]) -> bytes:
    body = struct.pack(f"<{2 + len(chain)}Q", 0x1000, len(chain), *chain)
    return struct.pack("<IHH", 9, misc, 8 + len(body)) + body


class Shapes(unittest.TestCase):
    def setUp(self) -> None:
        self._tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self._tmp.cleanup)
        self._path = Path(self._tmp.name) / "perf.data"

    def _shapes(self, *parts: bytes) -> List[records.Shape]:
        attr = struct.pack("<IIQQQ", 1, 136, 0, 0, _IP_CALLCHAIN).ljust(136, b"\0")
        data = b"".join(parts)
        self._path.write_bytes(
            b"PERFILE2" + struct.pack("<6Q", 104, 152, 104, 152, 256, len(data)).ljust(96, b"\0")
            + attr + bytes(16) + data)
        found_attr, found = records.shapes(self._path)
        self.assertEqual(found_attr, attr)
        return list(found)

    def test_host_chains_of_any_depth_are_alike(self) -> None:
        self.assertEqual(len(self._shapes(_sample(1, [_KERNEL, 1, 2, _USER, 3]),
                                          _sample(1, [_KERNEL, 1, _USER, 3, 4, 5]))), 1)

    def test_an_empty_part_differs(self) -> None:
        self.assertEqual(len(self._shapes(_sample(1, [_KERNEL, 1, _USER]),
                                          _sample(1, [_KERNEL, 1, _USER, 3]))), 2)

    def test_guest_chains_differ_by_each_entry(self) -> None:
        self.assertEqual(len(self._shapes(_sample(4, [_GUEST, 1]), _sample(4, [_GUEST, 1, 2]))), 2)

    def test_flags_differ(self) -> None:
        self.assertEqual(len(self._shapes(_sample(1, [_KERNEL, 1]), _sample(2, [_KERNEL, 1]))), 2)

    def test_bytes_behind_a_sample_differ(self) -> None:
        longer = _sample(1, [_KERNEL, 1]) + bytes(8)
        longer = longer[:6] + struct.pack("<H", len(longer)) + longer[8:]
        self.assertEqual(len(self._shapes(_sample(1, [_KERNEL, 1]), longer)), 2)


if __name__ == "__main__":
    unittest.main()
