#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Check that perf report reads deferred callchains about as fast as immediate ones.

Writes the same samples of many vCPUs to two files, once with deferred callchains and
once with immediate ones, and compares the CPU time that perf report takes for them.
The reports must not differ.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict

_REPO = Path(__file__).resolve().parents[1]
_GENERATOR = _REPO / "tools/perf/tests/shell/lib/guest_callchains.py"
_MODES = ("immediate", "deferred")


def _report(perf: Path, folder: Path, mode: str) -> float:
    """Write a report; its CPU time in seconds."""
    command = [str(perf), "kvm", "--guest", f"--guestkallsyms={folder}/kallsyms",
               "-i", str(folder / mode), "report", "--stdio"]
    # What the user's own configuration says doesn't matter.
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
        for what in ("kallsyms", *_MODES):
            subprocess.run([sys.executable, str(_GENERATOR), what, str(folder / what),
                            f"--samples={args.samples}", f"--vcpus={args.vcpus}"], check=True)
        seconds: Dict[str, float] = {}
        # In turns, as the machine may get slower or faster meanwhile.
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
