# SPDX-License-Identifier: GPL-2.0-only
"""Make root file systems of Debian by mmdebstrap, and keep them."""

import time
from pathlib import Path
from typing import Sequence

from . import deb, source
from .ui import one_at_a_time, run_logged

# After so many days, make a root anew: its packages get old.
_DAYS = 30


def tarball(kind: str, suite: str, packages: Sequence[str], logs: Path,
            variant: str = "apt") -> Path:
    """Return a tarball of a Debian; make it if there is none, or if it is old.

    Args:
        kind: what the root is for, which names its folder in the cache
        packages: what to install in addition to mmdebstrap's variant
    """
    folder = source.cache_dir() / kind
    kept = folder / f"{suite}.tar"
    with one_at_a_time(folder):
        if kept.exists() and time.time() - kept.stat().st_mtime < _DAYS * 86400:
            return kept
        made = folder / f"new-{suite}.tar"
        run_logged(f"Make a Debian of {suite}",
                   ["mmdebstrap", f"--variant={variant}", f"--include={','.join(packages)}", suite,
                    str(made), deb.mirror()], logs / "mmdebstrap.log")
        return made.rename(kept)
