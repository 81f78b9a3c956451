# SPDX-License-Identifier: GPL-2.0-only
"""Read samples of programs, and the rules by which the programs are unwound."""

import bisect
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

UPPER_HALF = 1 << 63
UNKNOWN = "[unknown]"

# "\tffffffff81000000 vfs_write ([guest.kernel.kallsyms])", "\t7f... read (/lib/libc.so.6+0x1234)"
_FRAME = re.compile(r"^\s+([0-9a-f]+) (.*?) \((.*)\)$")
_PLACE = re.compile(r"(.*?)(?: \(guest(?:, no build-id)?\))?\+0x([0-9a-f]+)$")
# "openssl  g": a name may have spaces, and the last letter is the mode of a guest's sample.
_HEADER = re.compile(r"^(\S.*?) +([KUHGg]+) *$")


@dataclass(frozen=True)
class Frame:
    """A frame: its address, its function, and the place in a file, if that is known."""
    address: int
    function: str
    place: str

    @property
    def in_file(self) -> Tuple[str, int]:
        """The path and the offset in the file; an empty path if they are not known."""
        found = _PLACE.match(self.place)
        return (found[1], int(found[2], 16)) if found else ("", 0)


@dataclass(frozen=True)
class Sample:
    """A sample of a guest: the task's name, and frames, innermost first."""
    comm: str
    frames: Tuple[Frame, ...]

    @property
    def user(self) -> Tuple[Frame, ...]:
        return tuple(frame for frame in self.frames if frame.address < UPPER_HALF)

    @property
    def is_user(self) -> bool:
        return bool(self.frames) and self.frames[0].address < UPPER_HALF


def read(lines: Sequence[str]) -> List[Sample]:
    """Return the guest's samples in perf script's output, which has an empty line after each."""
    found: List[Sample] = []
    comm, frames = "", []  # type: Tuple[str, List[Frame]]
    for line in [*lines, ""]:
        frame, header = _FRAME.match(line), _HEADER.match(line)
        if frame:
            frames.append(Frame(int(frame[1], 16), frame[2], frame[3]))
        elif header:
            comm, frames = (header[1] if header[2][-1] in "Gg" else ""), []
        elif not line:
            if comm:
                found.append(Sample(comm, tuple(frames)))
            comm, frames = "", []
    return found


@dataclass(frozen=True)
class Program:
    """An ELF file: which code has rules to unwind it, by its offsets in the file.

    Args:
        rules: all code that has a rule, sorted
        outermost: where code with a rule begins that has no caller: that of the program or of a
            thread
        entry: where the file's code is entered; the dynamic linker has no rule there
    """
    rules: Sequence[range]
    outermost: FrozenSet[int]
    entry: int = -1

    def rule(self, offset: int) -> Optional[range]:
        at = bisect.bisect([rule.start for rule in self.rules], offset) - 1
        return self.rules[at] if at >= 0 and offset in self.rules[at] else None


# "00000000 0000000000000014 00000000 CIE", what rules have in common, and
# "00000018 0000000000000014 0000001c FDE cie=00000000 pc=0000000000004760..0000000000004782", each
# with more lines; the return address is r16, and r30 of arm64.
_RECORD = re.compile(r"^(\w+) \w+ \w+ (?:CIE|FDE cie=(\w+) pc=(\w+)\.\.(\w+))\n((?:  .*\n)*)",
                     re.MULTILINE)
_NO_CALLER = re.compile(r"DW_CFA_undefined: r(16|30)\b")


def _readelf(path: Path, *options: str) -> str:
    return subprocess.run(["readelf", "-W", *options, str(path)], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False).stdout


def read_program(path: Path) -> Program:
    """Read a file; one that is missing has no rules, and no entry."""
    text = _readelf(path, "-hl", "--debug-dump=frames")
    loads = [tuple(int(word, 16) for word in found) for found in
             re.findall(r"^ +LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+)", text, re.MULTILINE)]

    def offset(address: int) -> int:
        return next((address - first + place for place, first, size in loads
                     if first <= address < first + size), -1)

    common: Dict[str, str] = {}
    rules, outermost = [], set()
    for record, of, start, end, more in _RECORD.findall(text):
        if not of:
            common[record] = more
            continue
        first = offset(int(start, 16))
        rules.append(range(first, first + int(end, 16) - int(start, 16)))
        if _NO_CALLER.search(common.get(of, "") + more):
            outermost.add(first)
    entry = re.search(r"Entry point address: +(0x\w+)", text)
    return Program(sorted(rules, key=lambda rule: rule.start), frozenset(outermost),
                   offset(int(entry[1], 16)) if entry else -1)


Find = Callable[[str], Program]


def finder(root: Path, paths: Dict[str, str]) -> Find:
    """Return a function that reads a program by the path that it has in the guest.

    Args:
        paths: the program's path below root, if that is another one
    """
    programs: Dict[str, Program] = {}

    def find(path: str) -> Program:
        if path not in programs:
            programs[path] = read_program(root / paths.get(path, path).lstrip("/"))
        return programs[path]
    return find
