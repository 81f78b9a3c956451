# SPDX-License-Identifier: GPL-2.0-only
"""Find the functions whose object code a patch changes in a kernel without the option.

A kernel that can't record a guest's callchain must stay as it was: each patch of the kernel
series leaves the instructions in all objects alone, or scripts/option-off.txt tells the reason.
"""

import hashlib
import re
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Dict, List, Sequence

from .patches import REPO

ACCEPTED = REPO / "scripts" / "option-off.txt"

_OBJDUMP = ("objdump", "-dr", "--no-show-raw-insn", "--no-addresses")

# The section with the replacement code of alternatives, which has no names of functions.
_NAMELESS = ".altinstr_replacement"


@dataclass(frozen=True)
class Accepted:
    """A change that a patch may make, and the reason; object and function are shell patterns."""
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
    """Remove the compiler's numbers from symbols, as in x.7 or .LC7."""
    return re.sub(r"\.\d+", "", re.sub(r"\.LC\d+", ".LC", name))


def functions(disassembly: str) -> Dict[str, List[str]]:
    """Return each function's instructions and relocations in the output of _OBJDUMP.

    Leave out text that depends on the addresses of other functions and data.
    """
    found: Dict[str, List[str]] = {}
    for part in re.split(r"^(?=<)", disassembly, flags=re.MULTILINE)[1:]:
        head, *lines = part.splitlines()
        code = found.setdefault(_unnumbered(head.strip("<>:")), [])
        for line in lines:
            text = _unnumbered(re.split(r" # |\t#", line)[0].strip())
            # Drop the offset in a section, or behind a label of the compiler's.
            code += [re.sub(r"^(\S+\t\..*?)[+-]0x[0-9a-f]+$", r"\1", text)] * line.startswith("\t")
    found.pop(_NAMELESS, None)
    return found


def changed(before: Dict[str, List[str]], after: Dict[str, List[str]]) -> List[str]:
    """Return the functions that differ, and those that are on one side only."""
    return sorted(name for name in before.keys() | after.keys()
                  if before.get(name) != after.get(name))


class Objects:
    """The objects in a kernel's build folder, as they were at the last call of changed()."""

    def __init__(self, kernel: Path) -> None:
        self._kernel = kernel
        self._digests: Dict[str, str] = {}
        self._functions: Dict[str, Dict[str, List[str]]] = {}

    def changed(self, tops: Sequence[str]) -> List[str]:
        """Return changes below these folders since the last call, as "OBJECT: FUNCTION"."""
        found = []
        for path in sorted(path for top in tops for path in (self._kernel / top).rglob("*.o")):
            name = str(path.relative_to(self._kernel))
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if self._digests.get(name) == digest:
                continue
            now = functions(subprocess.run(
                [*_OBJDUMP, str(path)], check=True, text=True, stdout=subprocess.PIPE).stdout)
            found += [f"{name}: {function}"
                      for function in changed(self._functions.get(name, {}), now)]
            self._digests[name], self._functions[name] = digest, now
        return found


def complaints(changes: Dict[str, List[str]], accepted: Sequence[Accepted]) -> List[str]:
    """Return changes that no line of the list covers, and lines that no longer cover anything.

    Args:
        changes: for each patch, by name, the changes that Objects.changed() returned
        accepted: the lines of the list
    """
    found = [f"{patch} changes {name}" for patch, names in changes.items() for name in names
             if not any(entry.covers(patch, name) for entry in accepted)]
    return found + [f"{ACCEPTED.name}: {entry.patch} changes no {entry.object}: {entry.function}"
                    for entry in accepted
                    if not any(entry.covers(entry.patch, name)
                               for name in changes.get(entry.patch, []))]
