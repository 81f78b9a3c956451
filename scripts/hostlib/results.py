# SPDX-License-Identifier: GPL-2.0-only
"""The folders in results/latest: a run that does not finish loses no earlier result.

While a run writes to NAME, the result that was there waits as .NAME.last.  The path of NAME is
in messages and logs of the run, so the new result can't be the one that is moved.
"""

import shutil
import signal
from pathlib import Path
from typing import List

from .ui import claim, say

# The folders that this run writes to.
_begun: List[Path] = []


def _last(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.last")


def begin(folder: Path) -> Path:
    """Return this folder, now empty, for a new result; keep the old one until finish()."""
    claim(folder)
    last = _last(folder)
    if folder.exists() and folder not in _begun and not last.exists():
        folder.rename(last)
    # If a run was killed, this has what it left, and the last result waits already.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _begun.append(folder)
    return folder


def finish() -> None:
    """Remove the old results: the new ones are complete."""
    while _begun:
        shutil.rmtree(_last(_begun.pop()), ignore_errors=True)


def put_back() -> None:
    """Put the old results in the place of those that an interrupted run has begun."""
    # A second Ctrl-C must not come between.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for folder in set(_begun):
        if _last(folder).exists():
            shutil.rmtree(folder, ignore_errors=True)
            _last(folder).rename(folder)
    _begun.clear()


def say_where() -> None:
    """After a failure, whose logs the new folders have, say where the old results are."""
    for folder in sorted(set(_begun)):
        if _last(folder).exists():
            say(f"The result before this run is kept in {_last(folder)}, until a run succeeds.")
    _begun.clear()
