# SPDX-License-Identifier: GPL-2.0-only
"""Read the samples that "perf script -F comm,misc,ip,sym" prints, and fold them."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Iterable, Iterator, List, Tuple

# "qemu-system-x86  g" and "\tffffffff81000000 vfs_write"
_HEADER = re.compile(r"^(\S.*?)\s+([A-Za-z]*)\s*$")
_FRAME = re.compile(r"^\s+([0-9a-f]+) (.*)$")

# perf's letters for samples of a guest.  It takes the mode for a mask, and so has
# "KGg" for a guest's user mode: the last letter is what counts.
_GUEST_KERNEL, _GUEST_USER = "G", "g"


@dataclass(frozen=True)
class Sample:
    """One sample: where it hit, the functions and addresses, innermost first, and the task."""
    mode: str
    functions: Tuple[str, ...]
    addresses: Tuple[str, ...]
    comm: str = ""

    @property
    def is_guest_kernel(self) -> bool:
        return self.mode == _GUEST_KERNEL

    @property
    def is_guest(self) -> bool:
        return self.mode in (_GUEST_KERNEL, _GUEST_USER)


def read(lines: Iterable[str]) -> Iterator[Sample]:
    """The samples in perf script's output, which puts an empty line behind each."""
    mode = comm = ""
    functions: List[str] = []
    addresses: List[str] = []
    started = False
    for line in [*lines, ""]:
        frame = _FRAME.match(line)
        if frame:
            functions.append(frame.group(2).strip())
            addresses.append(frame.group(1))
        elif line.strip():
            header = _HEADER.match(line)
            mode, started = (header.group(2)[-1:] if header else ""), True
            comm = header.group(1) if header else ""
        elif started:
            yield Sample(mode, tuple(functions), tuple(addresses), comm)
            functions, addresses, started = [], [], False


def fold(samples: Iterable[Sample]) -> "Counter[Tuple[str, ...]]":
    """Count equal stacks, outermost function first."""
    return Counter(tuple(reversed(sample.functions)) for sample in samples
                   if sample.functions)


def fold_callers(samples: Iterable[Sample]) -> "Counter[Tuple[str, ...]]":
    """Count equal stacks by their return addresses, for code without symbols."""
    return Counter(tuple(reversed(sample.addresses[1:])) for sample in samples)


def folded_text(folded: "Counter[Tuple[str, ...]]") -> str:
    """The common format: functions joined by semicolons, then the count."""
    return "".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(folded.items()))
