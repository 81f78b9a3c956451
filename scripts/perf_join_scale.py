#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Check that perf report reads deferred callchains about as fast as immediate ones.

Writes the same samples of many vCPUs to two files, once with deferred callchains and
once with immediate ones, and compares the CPU time that perf report takes for them.
The reports must not differ.
"""

import argparse
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

_REPO = Path(__file__).resolve().parents[1]
# perf's own test has this code to write perf.data files.
_WRITER = runpy.run_path(str(_REPO / "tools/perf/tests/shell/lib/guest_callchains.py"))
_MODES = ("immediate", "deferred")
_DEPTH = 16
# PERF_RECORD_FINISHED_ROUND
_FINISHED_ROUND = 68


def _write(path: Path, deferred: bool, samples: int, vcpus: int) -> None:
    """Write samples of a guest's vCPUs.  If deferred, all vCPUs wait for callchains at once."""
    w = _WRITER
    stacks: List[List[int]] = [[w["guest_ip"](1 + (salt >> level % 6 & 1)) + level
                                for level in range(_DEPTH)] for salt in range(64)]
    flags = w["GUEST_CALLCHAIN"]
    if deferred:
        flags |= w["DEFER_CALLCHAIN"] | w["DEFER_OUTPUT"] | w["DEFER_GUEST_CALLCHAIN"]
    data = w["PerfData"](str(path), flags)
    for number in range(0, samples, vcpus):
        batch = range(number, min(number + vcpus, samples))
        for cookie in batch:
            stack, tid = stacks[cookie * 7 % 64], w["PID"] + 1 + cookie % vcpus
            data.sample(w["GUEST_KERNEL"], tid,
                        [w["IN_GUEST_KERNEL"], stack[0], w["USER_DEFERRED"], cookie]
                        if deferred else [w["IN_GUEST_KERNEL"], *stack])
        for cookie in batch if deferred else ():
            data.deferred(w["GUEST_KERNEL"], w["PID"] + 1 + cookie % vcpus, cookie,
                          [w["IN_GUEST_KERNEL"], *stacks[cookie * 7 % 64][1:]])
        data.event(_FINISHED_ROUND, 0, b"")
    data.close()


def _report(perf: Path, folder: Path, mode: str) -> float:
    """Write a report; return the CPU time that this took, in seconds."""
    command = [str(perf), "kvm", "--guest", f"--guestkallsyms={folder}/kallsyms",
               "-i", str(folder / mode), "report", "--stdio"]
    # Ignore the user's own configuration of perf.
    env = {**os.environ, "PERF_CONFIG": "/dev/null"}
    with open(folder / f"{mode}.txt", "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=env)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"perf report fails with the {mode} samples, status {status}; "
                         f"see what it says: {' '.join(command)}")
    return float(usage.ru_utime + usage.ru_stime)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--perf", type=Path, default=_REPO / "build/perf/perf")
    parser.add_argument("--samples", type=int, default=100000)
    parser.add_argument("--vcpus", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5, help="the fastest run counts")
    parser.add_argument("--limit", type=float, default=1.3)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        _WRITER["write_kallsyms"](str(folder / "kallsyms"))
        for mode in _MODES:
            _write(folder / mode, mode == "deferred", args.samples, args.vcpus)
        seconds: Dict[str, float] = {}
        # Alternate between the modes, as the machine may get slower or faster meanwhile.
        for _ in range(args.runs):
            for mode in _MODES:
                seconds[mode] = min(seconds.get(mode, float("inf")),
                                    _report(args.perf, folder, mode))
        texts = [(folder / f"{mode}.txt").read_text() for mode in _MODES]

    ratio = seconds["deferred"] / seconds["immediate"]
    print(f"{args.samples} samples of {args.vcpus} vCPUs: immediate {seconds['immediate']:.2f} s, "
          f"deferred {seconds['deferred']:.2f} s, ratio {ratio:.2f}, limit {args.limit}")
    if texts[0] != texts[1] or "guest_leaf" not in texts[0]:
        print("The reports differ or lack callchains; look at perf kvm report of both files")
        return 1
    return 0 if ratio <= args.limit else 1


if __name__ == "__main__":
    sys.exit(main())
