# SPDX-License-Identifier: GPL-2.0-only
"""Tests of which functions count as changed."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from hostlib import objectdiff
from hostlib.objectdiff import Accepted, Objects
from hostlib.patches import posted, topics

_CODE = """
a.o:     file format elf64-x86-64


Disassembly of section .text:

<f>:
\tpush   %rbp
\tlea    0x0(%rip),%rdi        # <f+0x8>
\t\t\tR_X86_64_PC32\t.rodata.str1.1+0x10
\tcall   <g>
\tjmp    <f+0x1f>
\tcmpb   $0x0,0x0(%rip)        # <f+0x19>
\t\t\tR_X86_64_PC32\tknown.7-0x5
\tlea    0x0(%rip),%rdi        # <g>
\t\t\tR_X86_64_PC32\t.LC7-0x4

<g>:
\tret

Disassembly of section .altinstr_replacement:

<.altinstr_replacement>:
\tlfence
"""


class FunctionsTest(unittest.TestCase):
    def _changed(self, *edits: str) -> object:
        after = _CODE
        for old, new in zip(edits[::2], edits[1::2]):
            self.assertIn(old, after)
            after = after.replace(old, new)
        return objectdiff.changed(objectdiff.functions(_CODE), objectdiff.functions(after))

    def test_places_don_t_count(self) -> None:
        self.assertEqual(self._changed("known.7", "known.8", "1+0x10", "1+0x18", ".LC7", ".LC8",
                                       "# <f+0x8>", "# <f+0x9>", "lfence", "mfence"), [])

    def test_instructions_do(self) -> None:
        self.assertEqual(self._changed("push   %rbp", "push   %rbx"), ["f"])
        self.assertEqual(self._changed("call   <g>", "call   <h>"), ["f"])
        self.assertEqual(self._changed("known.7", "unknown.7"), ["f"])
        self.assertEqual(self._changed("known.7-0x5", "known.7-0x4"), ["f"])
        self.assertEqual(self._changed("<f+0x1f>", "<f+0x20>"), ["f"])
        self.assertEqual(self._changed("\n<g>:", "\n<h>:"), ["g", "h"])


@unittest.skipUnless(shutil.which("gcc") and shutil.which("objdump"), "there is no gcc")
class ObjectsTest(unittest.TestCase):
    def test_since_the_last_look(self) -> None:
        kernel = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (kernel / "lib").mkdir()
        objects = Objects(kernel)
        found = []
        for g, h in ((1, "h"), (1, "h"), (2, "h"), (2, "i")):
            subprocess.run(["gcc", "-O1", "-x", "c", "-c", "-o", kernel / "lib/a.o", "-"],
                           input=f"int f(void) {{ return 0; }} int g(void) {{ return {g}; }}"
                           f"int {h}(void) {{ return 0; }}", text=True, check=True)
            found.append(objects.changed(["lib", "virt/kvm"]))
        self.assertEqual(found, [["lib/a.o: f", "lib/a.o: g", "lib/a.o: h"], [], ["lib/a.o: g"],
                                 ["lib/a.o: h", "lib/a.o: i"]])


class AcceptedTest(unittest.TestCase):
    def test_what_no_line_covers_and_lines_that_cover_nothing(self) -> None:
        accepted = [Accepted("a.patch", "lib/*.o", "f*", "why"),
                    Accepted("b.patch", "lib/a.o", "f", "why")]
        self.assertEqual(objectdiff.complaints(
            {"a.patch": ["lib/a.o: f1", "lib/a.o: g"], "b.patch": []}, accepted),
            ["a.patch changes lib/a.o: g", "option-off.txt: b.patch changes no lib/a.o: f"])

    def test_committed_list_has_reasons_and_patches(self) -> None:
        patches = {topic.patch.name for topic in topics() if topic.series in posted()}
        for entry in objectdiff.read_accepted():
            with self.subTest(entry):
                self.assertIn(entry.patch, patches)
                self.assertGreater(len(entry.reason.split()), 1)
