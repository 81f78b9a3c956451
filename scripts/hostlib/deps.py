# SPDX-License-Identifier: GPL-2.0-only
"""Check that this machine has all that a command needs; deps.sh offers to install the rest."""

import subprocess
import sys
from pathlib import Path
from typing import Iterable

SCRIPT = Path(__file__).resolve().parents[1] / "deps.sh"


def need(names: Iterable[str]) -> bool:
    """Return True if nothing is missing that commands or groups of deps.txt need.

    If something is, and was not installed, deps.sh has said so and how to get it.
    """
    sys.stdout.flush()
    return not subprocess.run(["sh", str(SCRIPT), "need", *names], stdout=sys.stdout.fileno(),
                              check=False).returncode
