# SPDX-License-Identifier: GPL-2.0-only
"""Check object code for loads that could leak data under speculation: no test can show these.

The walk of a guest's stack uses words from the guest as addresses.  Branches keep these
on their page, but not under speculation.  So the code must mask each address before a load.
"""

import re
import subprocess
from pathlib import Path
from typing import List, NamedTuple

from .ui import Failure

# The largest offset in a page; a mask up to this value keeps an offset in its page.
_PAGE_MASK = 0xfff

# The object with the walk, in a kernel's build folder.
_WALK = "arch/x86/kvm/stacktrace.o"

# "add %rax,%rdx" and the like, as objdump prints it.
_INSN = re.compile(r"^ *([0-9a-f]+):\t(\S+)(?: +([^#<]*))?")
_ADDRESS = re.compile(r"^(?:-?0x[0-9a-f]+)?\((%\w+)?(?:,(%\w+)(?:,\d)?)?\)$")
_READ_ONLY = re.compile(r"^(cmp|test|bt|push|call|j)")


class Insn(NamedTuple):
    """One instruction: its address, its name, and its operands; the last one is the result."""
    address: int
    name: str
    operands: List[str]


def parse(disassembly: str) -> List[Insn]:
    result = []
    for line in disassembly.splitlines():
        found = _INSN.match(line)
        if found:
            # Don't split at commas within parentheses.
            operands = re.split(r",(?![^(]*\))", (found[3] or "").strip())
            result.append(Insn(int(found[1], 16), found[2], [op for op in operands if op]))
    return result


def _whole(register: str) -> str:
    """Return the name of the 64-bit register that contains a register."""
    name = register.lstrip("%")
    if re.fullmatch(r"r\d+[dwb]?", name):
        return name.rstrip("dwb")
    if re.fullmatch("[abcd][lh]", name):
        return f"r{name[0]}x"
    return "r" + (name[1:] if re.match("[re]..", name) else name.rstrip("l"))


def _is_masked(code: List[Insn], end: int, register: str) -> bool:
    """Return true if a masked value is a part of the register's value before code[end]."""
    for i in range(end - 1, -1, -1):
        name, operands = code[i].name, code[i].operands
        if (not operands or _READ_ONLY.match(name) or not operands[-1].startswith("%")
                or _whole(operands[-1]) != register):
            continue
        source = operands[0]
        if name.startswith("and") and source.startswith("$"):
            return 0 <= int(source[1:], 16) <= _PAGE_MASK or _is_masked(code, i, register)
        if name.startswith("lea"):
            return _address_is_masked(code, i, source)
        if name in ("mov", "add"):
            before = name == "add" and _is_masked(code, i, register)
            return before or (source.startswith("%") and _is_masked(code, i, _whole(source)))
        return False
    return False


def _address_is_masked(code: List[Insn], at: int, address: str) -> bool:
    found = _ADDRESS.match(address)
    return found is not None and any(_is_masked(code, at, _whole(register))
                                     for register in found.groups() if register)


def unmasked(disassembly: str, loads: List[int]) -> List[str]:
    """Return those of the loads at these addresses that read from an unmasked address."""
    code = parse(disassembly)
    places = {insn.address: i for i, insn in enumerate(code)}
    complaints = []
    for load in loads:
        place = places.get(load)
        if place is None:
            complaints.append(f"{load:#x} is no instruction")
        elif not _address_is_masked(code, place, code[place].operands[0]):
            complaints.append(f"{load:#x}: {code[place].name} {','.join(code[place].operands)}")
    return complaints


def check(kernel: Path) -> List[str]:
    """Return complaints about a built kernel: loads of a guest's words without a mask.

    The exception table has an entry for each inlined load from user memory, which begins with
    a reference to the instruction.  Loads by __get_user() need no mask: they are in a function
    of their own, which has a fence.
    """
    walk = kernel / _WALK

    def objdump(*args: str) -> str:
        return subprocess.run(["objdump", *args, str(walk)], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    entries = re.findall(r"^([0-9a-f]+) +R_X86_64_PC32 +\.text\+0x([0-9a-f]+)",
                         objdump("-r", "-j", "__ex_table"), re.MULTILINE)
    loads = [int(target, 16) for offset, target in entries if int(offset, 16) % 12 == 0]
    if not loads:
        raise Failure(f"{walk} has no loads from user memory to look at")
    return unmasked(objdump("-d", "-j", ".text", "--no-show-raw-insn"), loads)
