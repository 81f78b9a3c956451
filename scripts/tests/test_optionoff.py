# SPDX-License-Identifier: GPL-2.0-only
"""Tests of which functions count as changed."""

import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from hostlib import optionoff
from hostlib.optionoff import Accepted, Objects
from hostlib.tree import topics

_CODE = """
a.o:     file format elf64-x86-64


Disassembly of section .text:

0000000000000000 <f>:
   0:\tpush   %rbp
   1:\tlea    0x0(%rip),%rdi        # 8 <f+0x8>
\t\t\t4: R_X86_64_PC32\t.rodata.str1.1+0x10
   8:\tcall   20 <g>
   d:\tjmp    1f <f+0x1f>
  12:\tcmpb   $0x0,0x0(%rip)        # 19 <f+0x19>
\t\t\t14: R_X86_64_PC32\tknown.7-0x5
  19:\tlea    0x0(%rip),%rdi        # 20 <g>
\t\t\t1c: R_X86_64_PC32\t.LC7-0x4

0000000000000020 <g>:
  20:\tret

Disassembly of section .altinstr_replacement:

0000000000000000 <.altinstr_replacement>:
   0:\tlfence
"""


class FunctionsTest(unittest.TestCase):
    def test_what_is_read(self) -> None:
        self.assertEqual(optionoff.functions(_CODE), {
            "f": ["push   %rbp", "lea    0x0(%rip),%rdi", "R_X86_64_PC32 .rodata.str1",
                  "call   <g>", "jmp    <f+0x1f>", "cmpb   $0x0,0x0(%rip)",
                  "R_X86_64_PC32 known-0x5", "lea    0x0(%rip),%rdi",
                  "R_X86_64_PC32 .LC"],
            "g": ["ret"]})

    def _changed(self, *edits: str) -> object:
        after = _CODE
        for old, new in zip(edits[::2], edits[1::2]):
            self.assertIn(old, after)
            after = after.replace(old, new)
        return optionoff.changed(optionoff.functions(_CODE), optionoff.functions(after))

    def test_places_don_t_count(self) -> None:
        self.assertEqual(self._changed("call   20 <g>", "call   30 <g>", "  20:\tret", "  30:\tret",
                                       "0000000000000020", "0000000000000030",
                                       "known.7", "known.8", "1+0x10", "1+0x18",
                                       ".LC7", ".LC8",
                                       "# 8 <f+0x8>", "# 9 <f+0x9>", "lfence", "mfence"), [])

    def test_instructions_do(self) -> None:
        self.assertEqual(self._changed("push   %rbp", "push   %rbx"), ["f"])
        self.assertEqual(self._changed("call   20 <g>", "call   20 <h>"), ["f"])
        self.assertEqual(self._changed("known.7", "unknown.7"), ["f"])
        self.assertEqual(self._changed("<f+0x1f>", "<f+0x20>"), ["f"])
        self.assertEqual(self._changed(" <g>:", " <h>:"), ["g", "h"])


class ObjectsTest(unittest.TestCase):
    def test_since_the_last_look(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            (Path(tmp) / "lib").mkdir()
            objects = Objects(Path(tmp))
            found = []
            for content, text in (("1", _CODE), ("1", "not read again"),
                                  ("2", _CODE.replace("20:\tret", "20:\tnop"))):
                (Path(tmp) / "lib/a.o").write_text(content)
                with mock.patch.object(optionoff.subprocess, "run",
                                       return_value=SimpleNamespace(stdout=text)):
                    found.append(objects.changed(["lib", "virt/kvm"]))
        self.assertEqual(found, [["lib/a.o: f", "lib/a.o: g"], [], ["lib/a.o: g"]])


class AcceptedTest(unittest.TestCase):
    def test_what_no_line_covers_and_lines_that_cover_nothing(self) -> None:
        accepted = [Accepted("a.patch", "lib/*.o", "f*", "why"),
                    Accepted("b.patch", "lib/a.o", "f", "why")]
        self.assertEqual(optionoff.complaints(
            {"a.patch": ["lib/a.o: f1", "lib/a.o: g"], "b.patch": []}, accepted),
            ["a.patch changes lib/a.o: g", "option-off.txt: b.patch changes no lib/a.o: f"])

    def test_committed_list_has_reasons_and_patches(self) -> None:
        patches = {topic.patch.name for topic in topics() if topic.series == "kernel"}
        for entry in optionoff.read_accepted():
            with self.subTest(entry):
                self.assertIn(entry.patch, patches)
                self.assertGreater(len(entry.reason.split()), 1)


if __name__ == "__main__":
    unittest.main()
