# SPDX-License-Identifier: GPL-2.0-only
"""Write samples as pprof's profile.proto, which servers for continuous profiling take."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Dict, Iterable, List, Tuple

from .stacks import Frame

# Numbers of fields, from github.com/google/pprof/proto/profile.proto.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRINGS = 1, 2, 4, 5, 6
_TYPE, _UNIT = 1, 2
_SAMPLE_LOCATIONS, _SAMPLE_VALUES, _SAMPLE_LABEL = 1, 2, 3
_KEY, _STRING = 1, 2
_LOCATION_ID, _LOCATION_LINE = 1, 4
_LINE_FUNCTION = 1
_FUNCTION_ID, _FUNCTION_NAME, _FUNCTION_SYSTEM_NAME, _FUNCTION_FILE = 1, 2, 3, 4


def _varint(value: int) -> bytes:
    """Encode seven bits in each byte, the lowest first; the eighth bit tells that more follow."""
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))


class _Numbers:
    """A table of items that the profile refers to by number."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.table: Dict[object, int] = {}

    def __getitem__(self, item: object) -> int:
        return self.table.setdefault(item, self._first + len(self.table))


def encode(folded: "Counter[Tuple[Frame, ...]]") -> bytes:
    """Return the uncompressed profile.  Each sample has a label with the kind of code it hit."""
    strings, frames = _Numbers(0), _Numbers(1)
    assert strings[""] == 0
    out: List[bytes] = [_bytes(_SAMPLE_TYPE, _number(_TYPE, strings["samples"])
                               + _number(_UNIT, strings["count"]))]
    for stack, count in sorted(folded.items()):
        label = _number(_KEY, strings["mode"]) + _number(_STRING, strings[stack[-1].kind])
        out.append(_bytes(_SAMPLE, _packed(_SAMPLE_LOCATIONS, (frames[f] for f in stack[::-1]))
                          + _packed(_SAMPLE_VALUES, [count]) + _bytes(_SAMPLE_LABEL, label)))
    # Make one location for each function: perf script's text may not have addresses in files.
    for frame, number in frames.table.items():
        assert isinstance(frame, Frame)
        line = _number(_LINE_FUNCTION, number)
        out.append(_bytes(_LOCATION, _number(_LOCATION_ID, number) + _bytes(_LOCATION_LINE, line)))
        out.append(_bytes(_FUNCTION, _number(_FUNCTION_ID, number)
                          + _number(_FUNCTION_NAME, strings[frame.name])
                          + _number(_FUNCTION_SYSTEM_NAME, strings[frame.name])
                          + _number(_FUNCTION_FILE, strings[f"[{frame.kind}]"])))
    out.extend(_bytes(_STRINGS, str(text).encode()) for text in strings.table)
    return b"".join(out)


def write(folded: "Counter[Tuple[Frame, ...]]", path: Path) -> None:
    path.write_bytes(gzip.compress(encode(folded), mtime=0))
