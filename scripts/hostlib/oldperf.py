# SPDX-License-Identifier: GPL-2.0-only
"""Read a file of ours with the perf and the hotspot of a Debian, which don't know our records."""

import re
import struct
import subprocess
from pathlib import Path
from typing import Dict, List, Mapping

from . import foreign
from .selftests import Counts, judge

# What reads the file, by Debian's release: perf of Linux 6.1 and 6.12.
_PACKAGES = {"bookworm": ("linux-perf", "hotspot"), "trixie": ("linux-perf",)}

# What perf script is to show, and its options.  Without --guest-code, it leaves out guests.
SCRIPTS = {"addresses": "--guest-code -G -F time,ip",
           "callchains": "--guest-code --no-inline -F time,ip"}

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_LOADER = "ld-linux-x86-64.so.2"
_PARSER = f"{_LIBRARIES}/libexec/hotspot-perfparser"

# hotspot-perfparser writes this and a version of four bytes, then messages: a size of four bytes,
# and as many bytes, the first of which is the type.
_MAGIC = b"QPERFSTREAM\0"
_SAMPLE = 13


def _run(root: Path, program: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run a program with the libraries that it was built for."""
    loader = next(path for path in (root / "lib64" / _LOADER, root / "usr/lib64" / _LOADER)
                  if path.exists())
    libraries = ":".join(str(root / folder) for folder in (_LIBRARIES, "lib/x86_64-linux-gnu"))
    return subprocess.run([str(loader), "--library-path", libraries, str(root / program), *args],
                          check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={"HOME": "/nonexistent", "LC_ALL": "C"})


def samples_of_hotspot(stream: bytes) -> int:
    """Return how many samples hotspot-perfparser has written; -1 if its output is cut off."""
    at = len(_MAGIC) + 4
    found = 0
    if not stream.startswith(_MAGIC):
        return -1
    while at < len(stream):
        size, = struct.unpack_from("<I", stream, at)
        if not size or at + 4 + size > len(stream):
            return -1
        found += stream[at + 4] == _SAMPLE
        at += 4 + size
    return found


def lines(text: str) -> List[str]:
    """Return the lines of perf script, as all versions print them.

    Columns differ in width, and addresses of user mode that have no name may be a file's.
    """
    found = [" ".join(line.split()) for line in text.splitlines()]
    return [line if ":" in line or not line or line.startswith("ffff") else "user mode"
            for line in found]


def judge_file(data: Path, ours: Mapping[str, str], folder: Path) -> Counts:
    """Count the readers that show all samples of a file, those of guests and those of the host.

    Args:
        data: written by perf inject --join-callchains
        ours: what our perf says of it, with each of SCRIPTS
        folder: a folder for the readers
    """
    cases: Dict[str, bool] = {}
    for suite, packages in _PACKAGES.items():
        root = folder / suite
        foreign.unpack(foreign.fetch("amd64", packages, suite), root, folder / f"{suite}.log")
        version = _run(root, "usr/bin/perf", "version").stdout.strip()
        for what, options in SCRIPTS.items():
            said = _run(root, "usr/bin/perf", "script", "-f", *options.split(), "-i", str(data))
            (folder / f"{suite}-{what}.txt").write_text(said.stdout + said.stderr)
            cases[f"{version}: script shows all {what}"] = bool(
                not said.returncode and ours[what] and lines(said.stdout) == lines(ours[what]))
        report = _run(root, "usr/bin/perf", "kvm", "--host", "--guest", f"--guestmount={root}",
                      "report", "-f", "--stdio", "-g", "none", "-i", str(data))
        (folder / f"{suite}-report.txt").write_text(report.stdout + report.stderr)
        levels = set(re.findall(r"% .* \[([kgu.])\] ", report.stdout))
        cases[f"{version}: report shows the levels {' '.join(sorted(levels))}"] = (
            not report.returncode and {"k", "g", "u"} <= levels)
        if "hotspot" in packages:
            out = folder / "hotspot.bin"
            parser = _run(root, _PARSER, "--input", str(data), "--output", str(out))
            found = samples_of_hotspot(out.read_bytes()) if not parser.returncode else -1
            wanted = len(ours["addresses"].splitlines())
            cases[f"hotspot's parser has {found} of {wanted} samples"] = found == wanted > 0
    return judge("older readers", cases)
