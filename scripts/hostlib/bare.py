# SPDX-License-Identifier: GPL-2.0-only
"""Type the commands by which README has people try this, in a Debian that has only git and make.

The commands run as root, in a fresh clone of what is committed.  Only downloads and compiled
objects are shared with this machine.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Sequence

from . import bootstrap, source
from .git import Repository, isolated
from .options import OPTIONS
from .selftests import Counts, judge
from .patches import REPO
from .ui import Failure, Step, run_logged

SUITES = OPTIONS["suite"].choices

# mmdebstrap adds what apt needs, no more.
_PACKAGES = ("git", "make", "ca-certificates")

# The clone's path in the root.
_CLONE = "root/guest-callchains"

# The variables of this machine that the commands may see: they tell how to reach the network.
_PASSED = ("MIRROR", "http_proxy", "https_proxy", "no_proxy")


def readme_commands(text: str, section: str) -> List[str]:
    """Return the lines of a section of README that are indented as code, without comments."""
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text,
                      re.MULTILINE | re.DOTALL)
    lines = found[1].splitlines() if found else []
    return [re.sub(r"\s+# .*", "", line.strip()) for line in lines if line.startswith("    ")]


def _ccache() -> Path:
    return Path(os.environ.get("CCACHE_DIR") or source.cache_dir().parent / "ccache")


def in_root(root: Path, shared: Dict[Path, str], command: str) -> List[str]:
    """Return the command line that runs a shell command in the clone in a root.

    Mounts and processes end with it: it has namespaces of its own.

    Args:
        shared: folders of this machine, and their paths below the root
    """
    at = shlex.quote(str(root))
    mounts = "".join(f"mkdir -p {at}/{there}\nmount --bind {shlex.quote(str(folder))} "
                     f"{at}/{there}\n" for folder, there in shared.items())
    passed = [f"{name}={os.environ[name]}" for name in _PASSED if name in os.environ]
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc",
            f'{mounts}mount -t proc proc {at}/proc\nmount --rbind /dev {at}/dev\n'
            f'exec chroot {at} "$@"', "bare", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/root", "CI=true", *passed, "bash", "-euxc", f"cd /{_CLONE}\n{command}"]


def _try(argv: Sequence[str], title: str, log: Path) -> bool:
    """Run a command with its output in a log, and return True if it succeeds."""
    try:
        run_logged(title, argv, log)
    except Failure as failure:
        print(f"{failure}.", flush=True)
        return False
    return True


def run(suite: str, folder: Path, results: Path) -> Counts:
    """Run README's commands in a bare Debian, and leave logs and results in a folder.

    Args:
        suite: Debian's release
        folder: a folder for the root; it is removed again if all commands succeed
    """
    tarball = bootstrap.tarball("bare", suite, _PACKAGES, results)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Step("Unpack it, and clone what is committed here"):
        # The root gets this machine's devices.
        subprocess.run(["tar", "-C", str(folder), "--exclude=./dev/*", "-xpf", str(tarball)],
                       check=True)
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
        # git refuses to clone another user's repository, but archives it.
        clone = Repository(folder / _CLONE)
        clone.init()
        subprocess.run(["sh", "-c", 'git archive HEAD | tar -x -C "$0"', str(clone.path)], cwd=REPO,
                       check=True, env=isolated())
        clone.commit_all("What is committed here")
    shared = {source.cache_dir(): f"root/.cache/{source.cache_dir().name}",
              _ccache(): "root/.cache/ccache"}
    for cache in shared:
        cache.mkdir(parents=True, exist_ok=True)

    commands = readme_commands((folder / _CLONE / "README.md").read_text(), "Try it")
    if not commands:
        raise Failure('README.md has no commands in a section "Try it"')
    cases = {f"{command} (its output is in {number}.log)":
             _try(in_root(folder, shared, command), command, results / f"{number}.log")
             for number, command in enumerate(commands, 1)}
    latest = folder / _CLONE / "results/latest"
    if latest.exists():
        shutil.copytree(latest, results / "latest", symlinks=True)
    counts = judge(f"bare {suite}", cases)
    if not counts.failed:
        shutil.rmtree(folder)
    return counts
