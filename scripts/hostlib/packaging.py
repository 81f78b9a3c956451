# SPDX-License-Identifier: GPL-2.0-only
"""The commands that build packages, and test them."""

import shutil
from pathlib import Path
from typing import List, Optional

from . import installed, package
from .build import CONFIGS
from .emulated import choose_accel
from .hosts import build_dir, built, extra_config, linux, results_dir
from .options import Options
from .testing import say_all
from .ui import check_root, claim, say


def packages_of(options: Options, folder: Path, config: str,
                fragment: Optional[Path]) -> List[Path]:
    """Build packages in a folder, and return them.

    Args:
        config: the kernel's configuration; that of the running kernel if empty
        fragment: a fragment that is merged into it
    """
    claim(folder)
    base = package.find_config(config, folder)
    return package.Packages(folder, linux(options), base, fragment, options.localmod,
                            options.jobs).build()


def cmd_deb(options: Options) -> int:
    built_ones = packages_of(options, build_dir(options) / "package", options.config,
                             extra_config(options))
    results = results_dir("deb")
    made = [shutil.copy(path, results) for path in built_ones]
    say(f"Install them with: apt install {' '.join(map(str, made))}")
    say(f"Then boot the kernel whose name ends in -guest-callchain; its perf is {package.PERF}. "
        "It is not signed, so Secure Boot has to be off.")
    return 0


def cmd_perf_deb(options: Options) -> int:
    folder = build_dir(options) / "package-perf"
    claim(folder)
    package_, = package.Packages(folder, linux(options), jobs=options.jobs).perf_alone()
    made = shutil.copy(package_, results_dir("perf-deb"))
    say(f"Install it with: apt install {made}")
    say(f"Then run {package.PERF} kvm --guest record -p PID, with the PID of a guest's VMM. It "
        "names the functions that the guest runs; with the kernel of make deb, it also shows "
        "their callers.")
    return 0


def cmd_test_packages(options: Options) -> int:
    """Test packages with the emulated host's configuration: a distribution's takes hours."""
    check_root("test-packages")
    build = built(options)
    packages = packages_of(options, build_dir(options) / "package-test",
                           str(build.kernel / ".config"), CONFIGS / "package-test.config")
    return say_all(installed.debs(build, packages, choose_accel(options.accel),
                                  results_dir("packages")))
