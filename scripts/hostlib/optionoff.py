# SPDX-License-Identifier: GPL-2.0-only
"""Which functions a patch changes in a kernel without the option.

A kernel that can't record a guest's callchain is to stay what it was: each patch of the kernel
series leaves the instructions of all objects alone, or scripts/option-off.txt says why not.
"""

import hashlib
import re
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Dict, List, Sequence

from .tree import REPO

ACCEPTED = REPO / "scripts" / "option-off.txt"

_FUNCTION = re.compile(r"^[0-9a-f]+ <(\S+)>:$")
_INSN = re.compile(r"^ +[0-9a-f]+:\t(.*)$")
_RELOCATION = re.compile(r"^\t+[0-9a-f]+: (\S+)\t(\S+)$")

# Code that alternatives put elsewhere, whose places in a file have no names.
_NAMELESS = ".altinstr_replacement"


@dataclass(frozen=True)
class Accepted:
    """What a patch may change, and why: shell patterns of an object and of its functions."""
    patch: str
    object: str
    function: str
    reason: str

    def covers(self, patch: str, name: str) -> bool:
        return self.patch == patch and fnmatchcase(name, f"{self.object}: {self.function}")


def read_accepted(path: Path = ACCEPTED) -> List[Accepted]:
    return [Accepted(*line.split(None, 3)) for line in path.read_text().splitlines()
            if line.strip() and not line.startswith("#")]


def _unnumbered(name: str) -> str:
    """A symbol without the number that the compiler gave it: x.7 or .LC7."""
    return re.sub(r"\.\d+", "", re.sub(r"^\.LC\d+", ".LC", name))


def functions(disassembly: str) -> Dict[str, List[str]]:
    """The instructions of each function, as "objdump -dr --no-show-raw-insn" prints them.

    Without what depends on where other functions and data are.
    """
    found: Dict[str, List[str]] = {}
    lines: List[str] = []
    for line in disassembly.splitlines():
        start = _FUNCTION.match(line)
        if start:
            lines = found.setdefault(_unnumbered(start[1]), [])
            continue
        insn = _INSN.match(line)
        if insn:
            text = insn[1].split(" # ")[0].split("\t#")[0]
            lines.append(_unnumbered(re.sub(r"\b[0-9a-f]+ (?=<)", "", text)).strip())
            continue
        relocation = _RELOCATION.match(line)
        if relocation:
            target = _unnumbered(relocation[2])
            if target.startswith("."):
                # A section, or what the compiler has named.
                target = re.sub(r"[+-]0x[0-9a-f]+$", "", target)
            lines.append(f"{relocation[1]} {target}")
    found.pop(_NAMELESS, None)
    return found


def changed(before: Dict[str, List[str]], after: Dict[str, List[str]]) -> List[str]:
    """The functions that differ; also those that are on one side only."""
    return sorted(name for name in before.keys() | after.keys()
                  if before.get(name) != after.get(name))


class Objects:
    """The objects of a kernel's build folder, as they were when they were last looked at."""

    def __init__(self, kernel: Path) -> None:
        self._kernel = kernel
        self._digests: Dict[str, str] = {}
        self._functions: Dict[str, Dict[str, List[str]]] = {}

    def changed(self, tops: Sequence[str]) -> List[str]:
        """What has changed since the last call below some folders, as "OBJECT: FUNCTION"."""
        found = []
        for path in sorted(path for top in tops for path in (self._kernel / top).rglob("*.o")):
            name = str(path.relative_to(self._kernel))
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if self._digests.get(name) == digest:
                continue
            now = functions(subprocess.run(
                ["objdump", "-dr", "--no-show-raw-insn", str(path)], check=True, text=True,
                stdout=subprocess.PIPE).stdout)
            found += [f"{name}: {function}"
                      for function in changed(self._functions.get(name, {}), now)]
            self._digests[name], self._functions[name] = digest, now
        return found


def complaints(changes: Dict[str, List[str]], accepted: Sequence[Accepted]) -> List[str]:
    """What no line of the list covers, and lines that cover nothing any more.

    Args:
        changes: by the name of the patch, see Objects.changed()
    """
    found = [f"{patch} changes {name}" for patch, names in changes.items() for name in names
             if not any(entry.covers(patch, name) for entry in accepted)]
    return found + [f"{ACCEPTED.name}: {entry.patch} changes no {entry.object}: {entry.function}"
                    for entry in accepted
                    if not any(entry.covers(entry.patch, name)
                               for name in changes.get(entry.patch, []))]
