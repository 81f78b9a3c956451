# SPDX-License-Identifier: GPL-2.0-only
"""Tests of what reads the output of other programs' readers."""

import struct
import unittest

from hostlib import oldperf


def _message(kind: int, size: int = 3) -> bytes:
    return struct.pack("<IB", size, kind) + bytes(size - 1)


class HotspotTest(unittest.TestCase):
    _HEAD = b"QPERFSTREAM\0" + struct.pack("<I", 1)

    def test_samples_are_counted(self) -> None:
        stream = self._HEAD + _message(13) + _message(2, 100) + _message(13, 1)
        self.assertEqual(oldperf.samples_of_hotspot(stream), 2)
        self.assertEqual(oldperf.samples_of_hotspot(self._HEAD), 0)

    def test_what_is_cut_off_is_no_success(self) -> None:
        whole = self._HEAD + _message(13)
        for stream in (b"", b"?" + whole[1:], whole[:-1], self._HEAD + struct.pack("<IB", 0, 13)):
            self.assertEqual(oldperf.samples_of_hotspot(stream), -1, stream)


if __name__ == "__main__":
    unittest.main()
