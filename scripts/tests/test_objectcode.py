# SPDX-License-Identifier: GPL-2.0-only
"""Tests of which loads count as masked."""

import unittest
from typing import List

from hostlib import objectcode


def _unmasked(*lines: str) -> List[str]:
    """Return the complaints about the last of some instructions."""
    text = "".join(f"  {i:x}:\t{line}\n" for i, line in enumerate(lines))
    return objectcode.unmasked(text, [len(lines) - 1])


class MaskTest(unittest.TestCase):
    def test_masked(self) -> None:
        for lines in (["and    $0xff8,%edx", "add    %rax,%rdx", "mov    (%rdx),%rax"],
                      ["and    $0xff8,%r9d", "test   %r9,%r9", "je     12 <x+0x1>",
                       "mov    0x8(%r9,%rax,1),%rax"],
                      ["and    $0xfff,%esi", "lea    0x8(%rdi,%rsi,1),%r10", "mov    (%r10),%r8"],
                      ["and    $0xff8,%eax", "mov    %rax,%rcx", "add    -0xb8(%rbp),%rcx",
                       "mov    %rdx,0x8(%rcx)", "mov    (%rcx),%rcx"]):
            with self.subTest(lines):
                self.assertEqual(_unmasked(*lines), [])

    def test_not_masked(self) -> None:
        for lines in (["mov    %r13,%rdx", "add    %rax,%rdx", "mov    (%rdx),%rax"],
                      ["and    $0xff8,%edx", "mov    %r13,%rdx", "mov    (%rdx),%rax"],
                      ["and    $0xff8,%edx", "mov    (%rdx),%rdx", "mov    (%rdx),%rax"],
                      ["and    $0xfffffffffffff000,%rdx", "mov    (%rdx),%rax"],
                      ["and    %rcx,%rdx", "mov    (%rdx),%rax"],
                      ["and    $0xff8,%edx", "pop    %rdx", "mov    (%rdx),%rax"],
                      ["mov    (%rdx),%rax"]):
            with self.subTest(lines):
                self.assertEqual(_unmasked(*lines),
                                 [f"{len(lines) - 1:#x}: mov (%rdx),%rax"])

    def test_names_of_registers(self) -> None:
        names = {"rax": "eax ax al ah rax", "rsi": "esi si sil rsi", "rbp": "ebp bp bpl",
                 "r8": "r8d r8w r8b r8", "r13": "r13d r13"}
        for whole, parts in names.items():
            for part in parts.split():
                self.assertEqual(objectcode._whole(f"%{part}"), whole)  # pylint: disable=W0212

    def test_load_that_is_none(self) -> None:
        self.assertEqual(objectcode.unmasked("", [7]), ["0x7 is no instruction"])
