# SPDX-License-Identifier: GPL-2.0-only
"""Read the samples that "perf script -F comm,misc,ip,sym" prints, and fold them.

The output may have pid, tid, cpu, time, period, event, symoff and dso as well.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Iterable, Iterator, List, NamedTuple, Optional, Pattern, Sequence, Tuple

# "qemu-system-x86  g", "CPU 0/KVM     312/318     [001] K       84.211000:     cpu-clock: "
_THREAD = r"(?=[-\d ]{7}) *(?:(?P<pid>-?\d+)/)?(?P<tid>-?\d+) +"
_CPU = r"\[\d{3,}\] +"
_MISC = r"(?P<misc>[KUHGg]+)(?: +\d+\.\d+:)?(?: +\d+)?(?: +\S+:)? *$"

# A guest chooses its tasks' names, which may look like fields.  But all samples have the same
# fields: so the right pattern is the one with the most fields that matches all samples.
_HEADERS = [re.compile(r"^(?P<comm>.*?) +" + fields + _MISC)
            for fields in (_THREAD + _CPU, _THREAD, _CPU, "")]

# "\tffffffff81000000 vfs_write+0x10 ([guest.kernel.kallsyms])"
_FRAME = re.compile(r"^\t *([0-9a-f]+) (.*)$")
_DSO = re.compile(r" \((?:[^()]|\([^()]*\))*\)$")
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")
# "[unknown] (/usr/bin/gzip (guest))"
_FILE = re.compile(r" \(/(?:[^()]*/)?([^()/ ]+)(?: \([^()]*\))*(?:\+0x[0-9a-f]+)?\)$")
UNKNOWN = "[unknown]"
_GUEST_DSO = re.compile(r"\(\[guest\.kernel\.kallsyms\.(\d+)\]\)$")

# perf script prints this as the last frame if the deferred part of a callchain was lost.
_COOKIE = "(cookie)"

# perf's letters for samples of a guest.  perf uses the mode like a bit mask, and so prints
# "KGg" for a guest's user mode: only the last letter counts.
_GUEST_KERNEL, _GUEST_USER = "G", "g"

GUEST_KERNEL, GUEST_USER, HOST = KINDS = ("guest kernel", "guest user", "host")
TASK = "task"

# The lowest addresses of kernels, in 64-bit code and in 32-bit Linux.
_UPPER_HALF, _UPPER_GIB = 1 << 63, 3 << 30


class Frame(NamedTuple):
    """A function, and its kind, which is one of KINDS."""
    name: str
    kind: str


@dataclass(frozen=True)
class Sample:
    """One sample: its mode, the functions and addresses, innermost first, and the task.

    In a guest's sample, this is the guest's task if perf knows it, else the VMM's thread.
    """
    mode: str
    functions: Tuple[str, ...]
    addresses: Tuple[str, ...]
    comm: str = ""
    pid: str = ""
    tid: str = ""

    @property
    def is_guest_kernel(self) -> bool:
        return self.mode == _GUEST_KERNEL

    @property
    def is_guest(self) -> bool:
        return self.mode in (_GUEST_KERNEL, _GUEST_USER)

    @property
    def vmm(self) -> str:
        """The PID of the guest's VMM, if the name of the guest's kernel has it; otherwise empty."""
        found = (_GUEST_DSO.search(function) for function in self.functions)
        return next((match.group(1) for match in found if match), "")

    def frames(self) -> Tuple[Frame, ...]:
        """The frames, outermost first."""
        names = map(_name, self.functions)
        return tuple(Frame(name, kind) for name, kind in zip(names, self._kinds()))[::-1]

    def _kinds(self) -> Iterator[str]:
        if not self.is_guest_kernel:
            yield from [GUEST_USER if self.is_guest else HOST] * len(self.addresses)
            return
        # User mode has lower addresses than the kernel, and its frames are the outer ones.
        places = [int(address, 16) for address in self.addresses]
        border = next((half for half in (_UPPER_HALF, _UPPER_GIB) if places[:1] >= [half]), 0)
        kind = GUEST_KERNEL
        for place in places:
            kind = GUEST_USER if place < border else kind
            yield kind


def _name(function: str) -> str:
    """Return a function's name; if it has none, that of its file, in brackets."""
    name = _OFFSET.sub("", _DSO.sub("", function))
    file = _FILE.search(function) if name == UNKNOWN else None
    return f"[{file[1]}]" if file else name


def _pattern(lines: Iterable[str]) -> Pattern[str]:
    headers = [line for line in lines if line[:1] not in ("", "\t") and _HEADERS[-1].match(line)]
    return next(pattern for pattern in _HEADERS if all(map(pattern.match, headers)))


def _sample(header: "Optional[re.Match[str]]", frames: Sequence[Tuple[str, str]]) -> Sample:
    if frames and frames[-1][1] == _COOKIE:
        frames = frames[:-1]
    fields = header.groupdict() if header else {}
    return Sample((fields.get("misc") or "")[-1:], tuple(function for _, function in frames),
                  tuple(address for address, _ in frames), (fields.get("comm") or "").strip(),
                  fields.get("pid") or "", fields.get("tid") or "")


def read(lines: Iterable[str]) -> Iterator[Sample]:
    """Return the samples in perf script's output, which has an empty line after each."""
    lines = [*lines, ""]
    pattern = _pattern(lines)
    header: "Optional[re.Match[str]]" = None
    frames: List[Tuple[str, str]] = []
    started = False
    for line in lines:
        frame = _FRAME.match(line)
        if frame:
            frames.append((frame.group(1), frame.group(2).strip()))
        elif line.strip():
            header, started = pattern.match(line), True
        elif started:
            yield _sample(header, frames)
            frames, started = [], False


def read_bytes(text: bytes) -> List[Sample]:
    """Return the samples in perf script's output; a guest may put any bytes into names."""
    return list(read(text.decode(errors="replace").split("\n")))


def with_tasks(samples: Iterable[Sample]) -> "Counter[Tuple[Frame, ...]]":
    """Count equal stacks of equal tasks, outermost function first, after the task's name."""
    return Counter((Frame(sample.comm or UNKNOWN, TASK), *sample.frames()) for sample in samples
                   if sample.functions)


def fold(samples: Iterable[Sample]) -> "Counter[Tuple[str, ...]]":
    """Count equal stacks, outermost function first."""
    return Counter(tuple(frame.name for frame in sample.frames()) for sample in samples
                   if sample.functions)


def folded_text(folded: "Counter[Tuple[str, ...]]") -> str:
    """The common format: functions joined by semicolons, then the count."""
    return "".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(folded.items()))
