# SPDX-License-Identifier: GPL-2.0-only
"""Check that this machine has all that a command needs; only "make deps" installs it."""

import subprocess
from pathlib import Path
from typing import Iterable

from .ui import Failure

SCRIPT = Path(__file__).resolve().parents[1] / "deps.sh"


def check(groups: Iterable[str]) -> None:
    """Raise Failure if something of these groups is missing; the message says how to get it."""
    wanted = list(groups)
    if not wanted:
        return
    result = subprocess.run(["sh", str(SCRIPT), "check", *wanted], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            check=False)
    if result.returncode:
        raise Failure(result.stdout.strip())
