# SPDX-License-Identifier: GPL-2.0-only
"""Configurations of kernels: a base and fragments, merged by the kernel's own script."""

import re
from pathlib import Path
from typing import List, Protocol, Sequence

from .ui import Failure, run_logged


class Make(Protocol):
    """Run the kernel's make as a step."""

    def __call__(self, title: str, log: str, *args: str) -> None: ...


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


def merge(tree: Path, kernel: Path, base: Path, fragments: Sequence[Path], make: Make,
          logs: Path) -> None:
    """Write the configuration of a kernel.

    Args:
        tree: the kernel's source
        kernel: where it is built
        base: a configuration
        fragments: settings that override those of the base
        make: runs make for this kernel
        logs: a folder for logs

    Raises Failure if this kernel can't have the settings of the fragments.
    """
    run_logged("Merge its fragments",
               ["sh", str(tree / "scripts/kconfig/merge_config.sh"), "-m",
                "-O", str(kernel), str(base), *map(str, fragments)],
               logs / "merge.log", cwd=tree)
    make("Complete it", "olddefconfig.log", "olddefconfig")
    missing = dropped(fragments, kernel / ".config")
    if missing:
        raise Failure(f"This kernel can't be configured with {', '.join(missing)}; correct "
                      f"{', '.join(map(str, [base, *fragments]))}")
