# SPDX-License-Identifier: GPL-2.0-only
"""Look whether this machine has what a command takes; only "make deps" installs it."""

import subprocess
from pathlib import Path
from typing import Iterable

from .ui import Failure

SCRIPT = Path(__file__).resolve().parents[1] / "deps.sh"


def check(groups: Iterable[str]) -> None:
    """Raise Failure, which says how to get it, if something of these groups is missing."""
    wanted = list(groups)
    if not wanted:
        return
    result = subprocess.run(["sh", str(SCRIPT), "check", *wanted], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            check=False)
    if result.returncode:
        raise Failure(result.stdout.strip())
