# SPDX-License-Identifier: GPL-2.0-only
"""Compare the records of an unpatched perf on a kernel with our patches and on one without.

Events that don't ask for a guest's callchain must get the same records as from stock Linux.
Two runs never hit the same instructions, so this compares shapes: each record's type; flags of
samples and deferred records; the layout of samples; each callchain's context markers, and the
addresses after these: their number in a guest's samples, else only whether there are any.
"""

import json
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

from . import stock
from .build import BENCH, Build
from .emulated import EmulatedHost, pass_on
from .patches import REPO
from .ui import Failure, say

JOB = REPO / "scripts" / "guest" / "records-host.sh"
_DEADLINE = 600

# Both kernels record until each shape of one was seen on the other, but at most this often.
_TRIES = 4

# The other kernel may lack a shape of host samples that occurs at most this often: some shapes
# are rare, e.g. in samples of a process that ends.
_RARE = 3

# What the doctor must find on each kernel to block a recording.
_DOCTOR: Dict[str, List[str]] = {"patched": [], "unpatched": ["host.kernel: missing"]}

# include/uapi/linux/perf_event.h
_RECORD_SAMPLE = 9
_RECORD_CALLCHAIN_DEFERRED = 22
_MISC_CPUMODE = 7
_GUEST_MODES = (4, 5)
_SAMPLE = {"IP": 1 << 0, "TID": 1 << 1, "TIME": 1 << 2, "ADDR": 1 << 3, "READ": 1 << 4,
           "CALLCHAIN": 1 << 5, "ID": 1 << 6, "CPU": 1 << 7, "PERIOD": 1 << 8,
           "STREAM_ID": 1 << 9, "RAW": 1 << 10, "BRANCH_STACK": 1 << 11,
           "REGS_USER": 1 << 12, "STACK_USER": 1 << 13, "IDENTIFIER": 1 << 16}
_ONE_WORD_EACH = ("IDENTIFIER", "IP", "TID", "TIME", "ADDR", "ID", "STREAM_ID", "CPU", "PERIOD")
_CONTEXT_MAX = (1 << 64) - 4095

# Two records count as equal if their shapes are equal.
Shape = Tuple[object, ...]


def _chain(words: List[int], whole: bool) -> Shape:
    """Return a callchain's markers, each with the number of addresses after it.

    Unless whole is set, the number is 1 for any number of addresses above 0.
    """
    shape: List[object] = []
    for word in words:
        if word >= _CONTEXT_MAX:
            shape += [hex(word), 0]
        elif shape:
            shape[-1] = int(str(shape[-1])) + 1 if whole else 1
        else:
            shape.append("no marker")
    return tuple(shape)


def _sample(body: bytes, misc: int, sample_type: int, regs_user: int) -> Shape:
    for name in ("READ", "RAW", "BRANCH_STACK"):
        if sample_type & _SAMPLE[name]:
            raise Failure(f"perf records {name}, which records.py can't read")
    position = sum(8 for name in _ONE_WORD_EACH if sample_type & _SAMPLE[name])
    shape: List[object] = []

    def words(number: int) -> List[int]:
        nonlocal position
        found = struct.unpack_from(f"<{number}Q", body, position)
        position += 8 * number
        return list(found)

    if sample_type & _SAMPLE["CALLCHAIN"]:
        chain = words(words(1)[0])
        shape.append(_chain(chain, misc & _MISC_CPUMODE in _GUEST_MODES))
    if sample_type & _SAMPLE["REGS_USER"]:
        abi = words(1)[0]
        shape.append(("regs", abi))
        if abi:
            words(bin(regs_user).count("1"))
    if sample_type & _SAMPLE["STACK_USER"]:
        size = words(1)[0]
        shape.append(("stack", size))
        if size:
            position += size
            words(1)
    return (*shape, ("left over", len(body) - position))


def shapes(path: Path) -> Tuple[bytes, "Counter[Shape]"]:
    """Return the first event's attributes in a file of perf's, and how often each shape occurs."""
    data = path.read_bytes()
    if data[:8] != b"PERFILE2":
        raise Failure(f"{path} is no file of perf's")
    attr_size, attrs, _, start, size = struct.unpack_from("<5Q", data, 16)
    attr = data[attrs:attrs + attr_size - 16]
    sample_type, = struct.unpack_from("<Q", attr, 24)
    regs_user, = struct.unpack_from("<Q", attr, 80)
    found: "Counter[Shape]" = Counter()
    position, end = start, start + size
    while position < end:
        kind, misc, length = struct.unpack_from("<IHH", data, position)
        body = data[position + 8:position + length]
        if kind == _RECORD_SAMPLE:
            found[("sample", misc, *_sample(body, misc, sample_type, regs_user))] += 1
        elif kind == _RECORD_CALLCHAIN_DEFERRED:
            number, = struct.unpack_from("<Q", body, 8)
            chain = list(struct.unpack_from(f"<{number}Q", body, 16))
            found[("deferred", misc, _chain(chain, False))] += 1
        else:
            found[("record", kind)] += 1
        position += length
    return attr, found


def _is_rare(shape: Shape, number: int) -> bool:
    return (number <= _RARE and shape[0] == "sample"
            and int(str(shape[1])) & _MISC_CPUMODE not in _GUEST_MODES)


def _record(build: Build, perf: Path, guest: Path, new_perf: Path, accel: str,
            folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    job = (f"export PERF={perf} GUEST={guest}\n. {JOB}\n"
           f"python3 {REPO}/scripts/doctor --json --perf {new_perf} > /run/shared/doctor.json || "
           "true\n")
    outcome = EmulatedHost(build, accel).run(job, folder, _DEADLINE, pass_on)
    if outcome.status:
        raise Failure(f"Nothing was recorded; see {folder / 'output'}")


def _of_folder(folder: Path) -> Iterator[Tuple[str, bytes, "Counter[Shape]"]]:
    for path in sorted(folder.glob("*.data")):
        attr, found = shapes(path)
        yield path.stem, attr, found


def compare(patched: Build, unpatched: Build, accel: str, results: Path) -> bool:
    """Record on both kernels with the unpatched perf, and run the doctor there.

    Return true if both kernels record the same, and the doctor finds what it must.
    """
    guest = patched.path / "selftests" / "kvm" / BENCH
    kernels = (("patched", patched), ("unpatched", unpatched))
    attrs: Dict[str, Set[bytes]] = {}
    seen: List[Dict[str, "Counter[Shape]"]] = [{}, {}]
    differing: List[str] = []
    for _ in range(_TRIES):
        for (name, build), all_of_it in zip(kernels, seen):
            _record(build, unpatched.perf, guest, patched.perf, accel, results / name)
            for way, attr, found in _of_folder(results / name):
                attrs.setdefault(way, set()).add(attr)
                all_of_it.setdefault(way, Counter()).update(found)
        differing = [f"{way}: {shape}: {seen[0][way][shape]} with our patches, "
                     f"{seen[1][way][shape]} without"
                     for way in sorted(attrs)
                     for shape in sorted(seen[0][way].keys() ^ seen[1][way].keys(), key=str)
                     if not _is_rare(shape, seen[0][way][shape] + seen[1][way][shape])]
        if not differing:
            break
    differing += [f"{way}: attributes" for way, found in attrs.items() if len(found) > 1]
    for way in sorted(attrs):
        samples = [sum(n for shape, n in all_of_it[way].items() if shape[0] == "sample")
                   for all_of_it in seen]
        say(f"{way}: {len(seen[1][way])} kinds of records, {samples[0]} samples with our "
            f"patches, {samples[1]} without")
    for name, wanted in _DOCTOR.items():
        report = json.loads((results / name / "doctor.json").read_text())
        blocking = [f"{check['key']}: {check['why']}" for check in report["checks"]
                    if check["blocks"]]
        if blocking != wanted:
            differing.append(f"the doctor on the {name} kernel: {blocking}, not {wanted}")
    differing += stock.on_stock_kernel(unpatched, patched, accel, results / "names")
    for what in differing:
        say(f"differs: {what}")
    return bool(attrs) and not differing
