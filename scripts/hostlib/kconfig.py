# SPDX-License-Identifier: GPL-2.0-only
"""Configurations of kernels: a base and fragments, merged by the kernel's own script."""

import re
from pathlib import Path
from typing import Callable, List, Sequence

from .ui import Failure, run_logged


def dropped(fragments: Sequence[Path], config: Path) -> List[str]:
    """Return the settings in fragments that a configuration does not have."""
    taken = config.read_text().splitlines()
    # In a fragment, "=n" is a way to say that something is not set.
    lines = [re.sub(r"^(CONFIG_\w+)=n$", r"# \1 is not set", line.strip())
             for fragment in fragments for line in fragment.read_text().splitlines()]
    asked = {line.split("=")[0].removeprefix("# ").split(" ")[0]: line for line in lines
             if line.startswith("CONFIG_") or line.endswith("is not set")}
    # A configuration does not name options that depend on one that is off.
    named = {line.split("=")[0] for line in taken}
    return [line for option, line in asked.items() if line not in taken
            and not (line.endswith(("is not set", '=""')) and option not in named)]


def merge(tree: Path, kernel: Path, base: Path, fragments: Sequence[Path],
          make: Callable[..., None], logs: Path) -> List[str]:
    """Write the configuration of a kernel; return the settings that this kernel can't have.

    Args:
        tree: the kernel's source
        kernel: where it is built
        base: a configuration
        fragments: settings that override those of the base
        make: runs make for this kernel: it takes a title, the log's name, and arguments
        logs: a folder for logs
    """
    run_logged("Merge its fragments",
               ["sh", str(tree / "scripts/kconfig/merge_config.sh"), "-m",
                "-O", str(kernel), str(base), *map(str, fragments)],
               logs / "merge.log", cwd=tree)
    make("Complete it", "olddefconfig.log", "olddefconfig")
    return dropped(fragments, kernel / ".config")


def merge_all(tree: Path, kernel: Path, base: Path, fragments: Sequence[Path],
              make: Callable[..., None], logs: Path) -> None:
    """Do the same, and raise Failure if this kernel can't have the settings of the fragments."""
    missing = merge(tree, kernel, base, fragments, make, logs)
    if missing:
        raise Failure(f"This kernel can't be configured with {', '.join(missing)}; correct "
                      f"{', '.join(map(str, [base, *fragments]))}")
