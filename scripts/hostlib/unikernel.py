# SPDX-License-Identifier: GPL-2.0-only
"""A guest that is no Linux: a unikernel whose call paths, and their shares, are known."""

import math
from pathlib import Path
from typing import Dict, List, Tuple

from . import guest, stacks
from .build import Build
from .emulated import EmulatedHost, pass_on
from .selftests import Counts, judge
from .ui import Failure

# What unikernel.c does: call paths, outermost function first, and the percents of its time.
_SERVE = ("start", "main", "serve")
PERCENTS: Dict[Tuple[str, ...], int] = {
    (*_SERVE, "parse", "spin"): 10,
    (*_SERVE, "compress", "match", "spin"): 30,
    (*_SERVE, "compress", "huffman", "spin"): 20,
    (*_SERVE, "respond", "checksum", "spin"): 40,
}

# By how much shares may deviate.
_SIGMAS = 3

# How many samples there must be, and which part of them may have other chains: calls and
# returns are a few instructions of thousands, but an emulated host is slow at them.
_ENOUGH_SAMPLES = 1000
_OTHERS = 0.02

# Seconds; a machine may be several times slower than others.
_DEADLINE = 300


def deviation(found: int, total: int, percent: int) -> float:
    """By how many sigma a number of samples is not its share of all."""
    share = percent / 100
    return (found - total * share) / math.sqrt(max(total * share * (1 - share), 1))


def cases(samples: List[stacks.Sample], report: str) -> Dict[str, bool]:
    """What must hold, and whether it does.

    Args:
        samples: all that hit the guest
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
    result[f"{others} samples have other chains, 2 % may{''.join(f'; {path}' for path in most)}"] \
        = others <= _OTHERS * total
    missing = {name for path in PERCENTS for name in path}.difference(report.split())
    result["perf report has the names of all functions"
           + (f", but not {', '.join(sorted(missing))}" if missing else "")] = not missing
    return result


def run(build: Build, accel: str, folder: Path, kernel_args: str = "") -> Counts:
    """Boot the unikernel on the host, sample it, and judge what was found."""
    job = (guest.SCRIPTS / "unikernel-host.sh").read_text()
    if EmulatedHost(build, accel, kernel_args).run(job, folder, _DEADLINE, pass_on).status:
        raise Failure(f"The unikernel could not be sampled, see above and {folder}")
    samples = [sample for sample in
               stacks.read((folder / "script.txt").read_text().splitlines()) if sample.is_guest]
    return judge("unikernel", cases(samples, (folder / "report.txt").read_text()))
