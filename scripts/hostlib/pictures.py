# SPDX-License-Identifier: GPL-2.0-only
"""Test pictures as people use them: in a browser, and in viewers of other projects."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

from . import npm
from .selftests import Counts
from .ui import Failure, Step, say

_SCRIPTS = Path(__file__).resolve().parent.parent

# The packages that the tests need, in versions that Debian bookworm's node, 18, can run.  Firefox
# Profiler's importer is in no package, so it is not tested.
_PACKAGES = (
    npm.Package("playwright-core", "1.49.1", "BzmpVcs4kE2CH15rWfzpjzVGhWERJfmnXmniSyKeRZUs9Ws65m+R"
                "GIi7mjJK/euCegfn3i7jvqWeWyHe9y3Vgg=="),
    npm.Package("speedscope", "1.25.0", "cpf9HWTZf1ijLXBJrk87Ve/54tnYx6rlf0gUThvn3ook6h63hLXVOQiMf4"
                "4PT+XoV503cPfvfiT5gP5vojp6Ag=="),
    npm.Package("pprof-format", "2.3.2", "fcMM+sgKMOveSurz7i0BMHfy1hHNnI9+VWjd4kdclqQjSTuiHWaP69DG"
                "wvkw3zcLkM/F76LhVIKvPyrxmp6iiw=="),
)

# Comm, pid, tid, mode, and the frames, innermost first.  A frame begins with K for the guest's
# kernel, U for its user mode, or H for the host's kernel.
_Stack = Tuple[str, str, str, str, Tuple[str, ...]]
_VCPU, _TASK = ("CPU 0/KVM", "300", "301"), ("work", "77", "77")
_READ = (*_TASK, "G", ("K vfs_read", "K do_syscall_64", "U main"))
_COPY = (*_TASK, "G", ("K copy_to_user", *_READ[-1]))
_WRITE = (*_VCPU, "G", ("K vfs_write", "K do_syscall_64", "U main"))
_MAIN = (*_TASK, "KGg", ("U main",))
_RUN = (*_VCPU, "K", ("H vcpu_run", "H kvm_vcpu_ioctl"))
_SAMPLES: List[_Stack] = [_READ] * 2 + [_COPY] * 4 + [_WRITE] * 3 + [_MAIN] + [_RUN] * 2
_OLD: List[_Stack] = [_READ] * 6 + [_WRITE] * 12 + [_MAIN] * 2

_HOSTILE = ("</script><script>document.title=1</script>", "<!--<script>", "a\u2028b",
            "<img src=x onerror=document.title=1>", "{{code}}", "&lt;", "__proto__")

_PLACES = {"K": ("ffffffff81000000", "[guest.kernel.kallsyms.300]"), "U": ("401000", "/bin/work"),
           "H": ("ffffffff81000000", "[kernel.kallsyms]")}

_EXPECTED: Dict[str, Any] = {
    "title": "Guests, sampled from the host: 10 samples", "guest_boxes": 6, "hostile": _HOSTILE,
    "pprof": {"main": "1 guest user", "main;do_syscall_64;vfs_read": "2 guest kernel",
              "main;do_syscall_64;vfs_read;copy_to_user": "4 guest kernel",
              "main;do_syscall_64;vfs_write": "3 guest kernel"},
}


def _print(samples: List[_Stack], modes: bool) -> str:
    """Print samples as perf script does, either with their modes or with times and events."""
    lines = []
    for number, (comm, pid, tid, mode, frames) in enumerate(samples):
        last = f"{mode:6}" if modes else f"{40 + number / 1000:12.6f}: cpu-clock: "
        lines.append(f"{comm} {pid:>7}/{tid:<7} {last}")
        for frame in frames:
            address, dso = _PLACES[frame[0]]
            lines.append(f"\t{address:>16} {frame[2:]} ({dso})")
        lines.append("")
    return "\n".join([*lines, ""])


def _draw(folder: Path) -> None:
    hostile: List[_Stack] = [(*_VCPU, "G", tuple(f"K {name}" for name in _HOSTILE))]
    texts = {"samples.txt": _print(_SAMPLES, True), "old.txt": _print(_OLD, True),
             "hostile.txt": _print(hostile, True), "script.txt": _print(_SAMPLES, False),
             "expected.json": json.dumps(_EXPECTED)}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    for line in ("samples.txt -o guest.html", "samples.txt -o guest.pb.gz",
                 "samples.txt --joined -o joined.html", "samples.txt --diff old.txt -o diff.html",
                 "hostile.txt --title hostile -o hostile.html"):
        drawn = subprocess.run([sys.executable, str(_SCRIPTS / "flamegraph.py"), *line.split()],
                               cwd=folder, check=False, stdout=subprocess.PIPE, text=True)
        if drawn.returncode:
            raise Failure(f"flamegraph.py {line} failed, it says: {drawn.stdout.strip()}")


def run(folder: Path) -> Counts:
    """Draw pictures in a folder, and have node test them."""
    with Step("Get what tests pictures, of npm"):
        for package in _PACKAGES:
            npm.unpack(package, folder / "node_modules")
    with Step("Draw pictures"):
        _draw(folder)
    with Step("Use them in a browser"):
        result = subprocess.run(
            ["node", "--test", str(_SCRIPTS / "tests" / "pictures.test.js")],
            check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PICTURES": str(folder), "NODE_PATH": f"{folder}/node_modules"})
    (folder / "node.log").write_text(result.stdout)
    counts = _count(result.stdout)
    if result.returncode or not counts.passed:
        say(result.stdout)
        counts.failed = counts.failed or 1
    return counts


def _count(output: str) -> Counts:
    """Count tests from the summary that node prints at the end, in TAP or for a terminal."""
    found = dict(re.findall(r"^\S (pass|fail|skipped|cancelled) (\d+)$", output, re.MULTILINE))
    numbers = {key: int(value) for key, value in found.items()}
    return Counts(numbers.get("pass", 0), numbers.get("fail", 0) + numbers.get("cancelled", 0),
                  numbers.get("skipped", 0))
