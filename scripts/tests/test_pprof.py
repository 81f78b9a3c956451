# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the file of pprof's profile."""

import gzip
import tempfile
import unittest
from collections import Counter
from pathlib import Path

from hostlib import pprof
from hostlib.stacks import GUEST_KERNEL, GUEST_USER, Frame

_FOLDED = Counter({(Frame("main", GUEST_USER), Frame("vfs_read", GUEST_KERNEL)): 200,
                   (Frame("main", GUEST_USER),): 1})


class PprofTest(unittest.TestCase):
    def test_samples(self) -> None:
        """Field 2 has location numbers, innermost first, the count, and a label of two strings."""
        data = pprof.encode(_FOLDED)
        alone, called = b"\x12\x0c\x0a\x01\x01\x12\x01\x01\x1a\x04", b"\x12\x0e\x0a\x02\x02\x01"
        self.assertIn(alone, data)
        # 200 takes two bytes of seven bits.
        self.assertIn(called + b"\x12\x02\xc8\x01", data)
        for text in ("", "samples", "main", "vfs_read", f"[{GUEST_KERNEL}]"):
            self.assertIn(bytes([0x32, len(text)]) + text.encode(), data)

    def test_the_file_is_compressed_and_always_the_same(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.pb.gz"
            pprof.write(_FOLDED, path)
            packed = path.read_bytes()
        self.assertEqual(gzip.decompress(packed), pprof.encode(_FOLDED))
        # There is no time in it.
        self.assertEqual(packed[4:8], bytes(4))
