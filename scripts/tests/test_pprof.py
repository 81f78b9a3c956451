# SPDX-License-Identifier: GPL-2.0-only
"""Tests of pprof's profile, byte by byte; make test-pictures has npm's pprof-format read it."""

import gzip
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from hostlib import pprof
from hostlib.stacks import GUEST_KERNEL, GUEST_USER, Frame

_FOLDED = Counter({(Frame("main", GUEST_USER), Frame("vfs_read", GUEST_KERNEL)): 300,
                   (Frame("main", GUEST_USER),): 1})


def _varint(data: bytes, place: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[place] & 0x7f) << shift
        place, shift = place + 1, shift + 7
        if not data[place - 1] & 0x80:
            return value, place


def _fields(data: bytes) -> Iterator[Tuple[int, Any]]:
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        value, place = _varint(data, place)
        if key & 7 == 2:
            yield key >> 3, data[place:place + value]
            place += value
        else:
            yield key >> 3, value


def _messages(all_data: List[bytes]) -> List[Dict[int, Any]]:
    return [dict(_fields(data)) for data in all_data]


def _numbers(data: bytes) -> List[int]:
    found, place = [], 0
    while place < len(data):
        value, place = _varint(data, place)
        found.append(value)
    return found


class PprofTest(unittest.TestCase):
    def test_samples_lead_to_functions(self) -> None:
        table: Dict[int, List[bytes]] = {}
        for field, value in _fields(pprof.encode(_FOLDED)):
            assert isinstance(value, bytes)
            table.setdefault(field, []).append(value)
        strings = [text.decode() for text in table[6]]
        self.assertEqual(strings[0], "")
        self.assertEqual([strings[value] for _, value in _fields(table[1][0])],
                         ["samples", "count"])
        functions = {entry[1]: (strings[entry[2]], strings[entry[4]])
                     for entry in _messages(table[5])}
        lines = {entry[1]: functions[dict(_fields(entry[4]))[1]]
                 for entry in _messages(table[4])}
        found = []
        for entry in _messages(table[2]):
            label = dict(_fields(entry[3]))
            found.append(([lines[number] for number in _numbers(entry[1])], _numbers(entry[2]),
                          (strings[label[1]], strings[label[2]])))
        user, kernel = ("main", "[guest user]"), ("vfs_read", "[guest kernel]")
        self.assertEqual(found, [([user], [1], ("mode", GUEST_USER)),
                                 ([kernel, user], [300], ("mode", GUEST_KERNEL))])

    def test_the_file_is_compressed_and_always_the_same(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.pb.gz"
            pprof.write(_FOLDED, path)
            once = path.read_bytes()
            pprof.write(_FOLDED, path)
            self.assertEqual(path.read_bytes(), once)
        self.assertEqual(gzip.decompress(once), pprof.encode(_FOLDED))
        self.assertEqual(once[4:8], bytes(4))


if __name__ == "__main__":
    unittest.main()
