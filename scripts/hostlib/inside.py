# SPDX-License-Identifier: GPL-2.0-only
"""Compare what perf says of a guest's programs with what the guest's own perf says in the guest."""

import re
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from .programs import UNKNOWN, UPPER_HALF, Frame, Sample

# The lowest numbers of samples that can be compared, and the lowest share of them that must be the
# same.
_ENOUGH_NAMES = 200
_ENOUGH_CHAINS = 20
_SAME = 0.95

# "\t    7f8500001234 read (/usr/lib/libc.so.6+0x1234)", or "\t    1234 read (/usr/lib/libc.so.6)".
_FRAME = re.compile(r"^\s+([0-9a-f]+) (.*?) \((.*)\)$")

# The code of a function that calls another one, by its file and the offset in it.
Place = Tuple[str, int]


def read(lines: Sequence[str]) -> List[Sample]:
    """Return the samples that perf script -F comm,ip,sym,dso,dsoff has printed in the guest.

    perf 6.1 prints offsets in files in place of addresses of user mode.
    """
    found: List[Sample] = []
    comm, frames = "", []  # type: Tuple[str, List[Frame]]
    for line in [*lines, ""]:
        frame = _FRAME.match(line)
        if frame:
            address = int(frame[1], 16)
            has_place = address >= UPPER_HALF or re.search(r"\+0x[0-9a-f]+$", frame[3])
            place = frame[3] if has_place else f"{frame[3]}+{address:#x}"
            frames.append(Frame(address, frame[2], place))
        elif line:
            comm, frames = line.strip(), []
        elif comm:
            found.append(Sample(comm, tuple(frames)))
            comm = ""
    return found


def names(samples: Sequence[Sample]) -> Dict[Place, str]:
    """Return the name of the function at each place at which a program was sampled."""
    return {sample.frames[0].in_file: sample.frames[0].function for sample in samples
            if sample.is_user and sample.frames[0].function != UNKNOWN}


def chain(sample: Sample) -> Tuple[Place, ...]:
    """Return the places of the callers."""
    return tuple(frame.in_file for frame in sample.user[1:])


def alike(ours: Sequence[Place], theirs: Sequence[Place]) -> bool:
    """Return True if two chains are the same.

    Both perfs print the addresses of calls, one byte before those that functions return to. A
    signal's handler returns to code that has not called it: perf 6.1 counts back nevertheless.
    """
    return len(ours) == len(theirs) and all(
        path == other and 0 <= offset - place <= 1
        for (path, offset), (other, place) in zip(ours, theirs))


def cases(found: List[Sample], named: List[Sample],
          unwound: List[Sample]) -> Iterator[Tuple[str, bool]]:
    """Yield what must hold for the samples of a guest, and whether it does.

    Args:
        found: the samples that were taken from outside
        named: samples of all programs, taken in the guest
        unwound: samples of call_paths, unwound in the guest
    """
    theirs = names(named + unwound)
    pairs = [(sample.frames[0].function, theirs[sample.frames[0].in_file]) for sample in found
             if sample.is_user and sample.frames[0].in_file in theirs]
    same = sum(ours == name for ours, name in pairs)
    yield (f"{same} of {len(pairs)} samples at addresses that the guest's own perf names have its "
           "name", len(pairs) >= _ENOUGH_NAMES and same >= _SAME * len(pairs))
    other = {(ours, name) for ours, name in pairs if ours not in (UNKNOWN, name)}
    yield f"it has another name for {len(other)} functions {sorted(other)[:3]}", not other

    known: Set[Tuple[Place, ...]] = {chain(sample) for sample in unwound if sample.is_user}
    chains = [chain(sample) for sample in found
              if sample.comm == "call_paths" and sample.is_user
              and sample.frames[0].function == "spin"]
    same = sum(any(alike(places, one) for one in known) for places in chains)
    yield (f"{same} of {len(chains)} chains of known paths are those of the guest's own perf",
           len(chains) >= _ENOUGH_CHAINS and same >= _SAME * len(chains))
