# SPDX-License-Identifier: GPL-2.0-only
"""Test a guest that is not Linux: a unikernel with known call paths and shares of time."""

import math
from pathlib import Path
from typing import Dict, List, Tuple

from . import guest, stacks
from .build import Build
from .emulated import EmulatedHost, pass_on
from .selftests import Counts, judge
from .ui import Failure

# The call paths in unikernel.c, outermost function first, and their shares of its time in percent.
_SERVE = ("start", "main", "serve")
PERCENTS: Dict[Tuple[str, ...], int] = {
    (*_SERVE, "parse", "spin"): 10,
    (*_SERVE, "compress", "match", "spin"): 30,
    (*_SERVE, "compress", "huffman", "spin"): 20,
    (*_SERVE, "respond", "checksum", "spin"): 40,
}

# The largest deviation of a share, in sigma.
_SIGMAS = 3

# The lowest number of samples, and the largest share of them with other chains.  A sample has
# another chain if it hits a call or a return: these are a few of thousands of instructions, but
# an emulated host is slow at them.
_ENOUGH_SAMPLES = 1000
_OTHERS = 0.02

# Seconds. Some machines are several times slower than others.
_DEADLINE = 300


def deviation(found: int, total: int, percent: int) -> float:
    """Return by how many sigma a number of samples deviates from its share of all samples."""
    share = percent / 100
    return (found - total * share) / math.sqrt(max(total * share * (1 - share), 1))


def cases(samples: List[stacks.Sample], report: str) -> Dict[str, bool]:
    """Return what must hold for the samples, and whether it does.

    Args:
        samples: all samples of the guest
        report: perf report's text
    """
    total, folded = len(samples), stacks.fold(samples)
    known = sum(folded[path] for path in PERCENTS)
    result = {f"there are {total} samples, {_ENOUGH_SAMPLES} must be": total >= _ENOUGH_SAMPLES}
    for path, percent in PERCENTS.items():
        sigma = deviation(folded[path], known, percent)
        result[f"{100 * folded[path] / max(known, 1):.1f} % of chains are {' > '.join(path)}, "
               f"{percent} % are due: {sigma:+.1f} sigma"] = known > 0 and abs(sigma) <= _SIGMAS
    others = total - known
    most = [" > ".join(path) for path, _ in folded.most_common() if path not in PERCENTS][:3]
    result[f"{others} samples have other chains, at most 2 % are allowed"
           f"{''.join(f'; {path}' for path in most)}"] = others <= _OTHERS * total
    missing = {name for path in PERCENTS for name in path}.difference(report.split())
    result["perf report has the names of all functions"
           + (f", but not {', '.join(sorted(missing))}" if missing else "")] = not missing
    return result


def run(build: Build, accel: str, folder: Path, kernel_args: str = "") -> Counts:
    """Boot the unikernel on the host, sample it, and judge the samples."""
    job = (guest.SCRIPTS / "unikernel-host.sh").read_text()
    if EmulatedHost(build, accel, kernel_args).run(job, folder, _DEADLINE, pass_on).status:
        raise Failure(f"The unikernel could not be sampled, see above and {folder}")
    samples = [sample for sample in
               stacks.read((folder / "script.txt").read_text().splitlines()) if sample.is_guest]
    return judge("unikernel", cases(samples, (folder / "report.txt").read_text()))
