# SPDX-License-Identifier: GPL-2.0-only
"""Tests of coccicheck and "make htmldocs", with a spatch and a make that say what a test wants."""

import contextlib
import io
import os
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import List
from unittest import mock

from hostlib import checksource
from hostlib.check import Result

_RULES = {"free/a.cocci": "// Options: --no-includes --include-headers\nvirtual report\n",
          "api/b.cocci": "virtual patch\nvirtual  report\n// Requires: 1.2\n",
          "api/c.cocci": "virtual patch\n",
          "api/d.cocci": "virtual report\n@initialize:ocaml@\n"}

_FILES = ("kernel/events/new.c", "virt/kvm/kvm_main.c")

_COCCI = """virt/kvm/kvm_main.c:7:1-4: WARNING: NULL check before a free is not needed
virt/kvm/kvm_main.c:8:1-4: Linux's own
kernel/events/new.c:3:2-3: Unneeded semicolon
"""

_UNPARSED = "badcount: 2\nbad: int a;\nBAD:!!!!! int b BAD;\n"

# It keeps what it is asked: its arguments, the list of files, and the macros.
_SPATCH = """#!/bin/sh
case $* in
--version) echo spatch version 1.1.1 x; exit ;;
*--parse-c*) cat TMP/parse; exit ;;
esac
echo "$*" >> TMP/asked
while [ $# -gt 1 ]; do
	case $1 in
	--file-groups) cat $2 > TMP/groups ;;
	--macro-file-builtins) cat $2 > TMP/macros ;;
	esac
	shift
done
. TMP/apply
"""


class _Made(unittest.TestCase):
    def setUp(self) -> None:
        self.tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.tree = self.tmp / "linux"
        for name in ("sh", "cat", "sleep", "mkdir"):
            self._file(f"bin/{name}", f'#!/bin/sh\nPATH=/bin:/usr/bin exec {name} "$@"\n')
        self.enterContext(mock.patch.dict(os.environ, {"PATH": f"{self.tmp}/bin"}))
        self.enterContext(contextlib.redirect_stdout(io.StringIO()))

    def _file(self, name: str, text: str) -> None:
        (self.tmp / name).parent.mkdir(parents=True, exist_ok=True)
        (self.tmp / name).write_text(text)
        (self.tmp / name).chmod(0o755)


class CoccicheckTest(_Made):
    def setUp(self) -> None:
        super().setUp()
        for name, text in _RULES.items():
            self._file(f"linux/scripts/coccinelle/{name}", text)
        for path in _FILES:
            self._file(f"linux/{path}", "int a;\nint b BAD;\nint c;\n")
        self._file("bin/spatch", _SPATCH.replace("TMP", str(self.tmp)))
        self._file("standard.h", "#define A its own\n")

    def _check(self, said: str, then: str = "", unparsed: str = "") -> List[Result]:
        """Return the results if spatch says something, then does something else."""
        self._file("said", said)
        self._file("parse", f"init_defs_builtins: {self.tmp}/standard.h\n" + "".join(
            f"PARSING: {path}\n{unparsed}" for path in _FILES))
        self._file("apply", f"cat {self.tmp}/said\n{then}\n")
        self._file("asked", "")
        results = list(checksource.coccicheck(self.tree, {
            "virt/kvm/kvm_main.c": {7}, "kernel/events/new.c": {1, 2, 3}, "a.h": {1},
            "tools/perf/perf.c": {1}},
            self.tmp / "check", 2))
        self.asked = (self.tmp / "asked").read_text().splitlines()
        return results

    def test_of_our_lines_only(self) -> None:
        result = self._check(_COCCI)[-1]
        self.assertEqual(result.complaints, [
            "virt/kvm/kvm_main.c:7: WARNING: NULL check before a free is not needed",
            "kernel/events/new.c:3: Unneeded semicolon"])
        self.assertIn(f"--cocci-file {self.tree}/scripts/coccinelle/free/a.cocci", self.asked[0])
        self.assertIn("--no-includes --include-headers", self.asked[0])
        # An empty line ends a group.
        self.assertEqual((self.tmp / "groups").read_text(),
                         "kernel/events/new.c\n\nvirt/kvm/kvm_main.c\n")
        # Of two macros with the same name, spatch takes the last one.
        self.assertEqual((self.tmp / "macros").read_text(),
                         "#define A its own\n" + checksource.MACROS.read_text())

    def test_rules_that_cant_be_tried(self) -> None:
        self.assertEqual([(result.name.split()[-1], bool(result.not_tried))
                          for result in self._check("")], [
            ("sees", False), ("b.cocci", True), ("c.cocci", True), ("d.cocci", True),
            ("a.cocci", False)])
        self.assertEqual(len(self.asked), 1)
        self._file("bin/ocamlopt", "")
        self._check("")
        self.assertEqual(len(self.asked), 2)
        (self.tmp / "bin/spatch").unlink()
        result, = self._check("")
        self.assertTrue(result.not_tried)

    def test_a_spatch_that_does_not_run(self) -> None:
        (self.tmp / "standard.h").unlink()
        self.assertEqual(len(self._check("")[0].complaints), 1)
        for script in ("exit 2", "exit 0"):
            self._file("bin/spatch", f"#!/bin/sh\n{script}\n")
            result, = self._check("")
            self.assertEqual(len(result.complaints), 1)

    def test_lines_that_no_rule_sees(self) -> None:
        said, = self._check("", unparsed=_UNPARSED)[0].complaints
        self.assertIn("kernel/events/new.c:1:", said)
        self.assertEqual(self._check("")[0].complaints, [])

    def test_rule_that_breaks(self) -> None:
        for said, status in (("EXN: Coccinelle_modules.Common.Timeout in a.c\n", 0),
                             ("x\nFatal error: exception\n", 2), ("", 255)):
            result = self._check(said, f"exit {status}")[-1]
            self.assertEqual(len(result.complaints), 1)
            self.assertIn(said.strip().split("\n")[-1], result.complaints[0])


class UnparsedTest(unittest.TestCase):
    def setUp(self) -> None:
        self.enterContext(contextlib.redirect_stdout(io.StringIO()))

    @unittest.skipUnless(shutil.which("spatch"), "there is no spatch")
    def test_where_they_are(self) -> None:
        text = ("/* A comment */\n#define A(x)\t\\\n\t{ x BAD }\n"
                "/*\n * f() */\nint f(void)\n{\n\treturn 0 BAD;\n}\n"
                "#define B BAD {\nDEFINE_FOO(x, y) = {\n\t.a = 1\n};\n"
                "int g(void)\n{\n\treturn 1;\n}\n" + 2 * "int h(void)\n{\n\treturn 0 BAD;\n}\n")
        with tempfile.TemporaryDirectory() as tmp:
            (Path(tmp) / "b.h").write_text("int b(void)\n{\n\treturn 0 BAD;\n}\n")
            (Path(tmp) / "a.c").write_text(f'#include "b.h"\n{text}')
            (Path(tmp) / "c.c").write_text("int c(void)\n{\n}\nint d(void)BAD\n{\n}\n")
            found = checksource._Spatch(Path(tmp), Path(tmp), 1).unparsed(["a.c", "c.c"])
        self.assertEqual(found, {"a.c": {7, 9, 12, 13, 19, 21, 23, 25}, "c.c": {4}})


class DocumentationTest(_Made):
    DOCUMENTS = {"Documentation/admin-guide/a.rst": {1}, "Documentation/virt/kvm/b.rst": {4},
                 "kernel/a.c": {1}}
    PAGES = ("output/admin-guide/a.html", "output/virt/kvm/b.html")

    def setUp(self) -> None:
        super().setUp()
        self._file("bin/sphinx-build", "")

    def _build(self, *pages: str, said: str = "", then: str = "", yaml: object = 1) -> Result:
        """Return the result if make writes these pages, and says something."""
        self._file("said", said)
        write = "".join(f"mkdir -p ${{3#O=}}/{os.path.dirname(page)}; : > ${{3#O=}}/{page}\n"
                        for page in pages)
        self._file("bin/make", f"#!/bin/sh\necho \"$4\" > {self.tmp}/parts\n{write}"
                   f"cat {self.tmp}/said\n{then}\n")
        with mock.patch.object(checksource.importlib.util, "find_spec", return_value=yaml):
            return checksource.documentation(self.tree, {"Documentation/admin-guide/a.rst"},
                                             self.DOCUMENTS, self.tmp / "docs", self.tmp / "log")

    def test_of_our_lines_and_documents(self) -> None:
        found = self._build(*self.PAGES, said=(
            "Using alabaster theme\n"
            "/w/linux/Documentation/virt/kvm/b.rst:4: WARNING: Title underline too short.\n"
            "/w/linux/Documentation/virt/kvm/b.rst:5: WARNING: Linux's own\n"
            '/w/linux/Documentation/admin-guide/a.rst:1: ERROR: Unknown directive "tabel".\n'
            "/w/linux/Documentation/admin-guide/a.rst: WARNING: it is in no toctree\n"
            "/w/linux/Documentation/virt/kvm/b.rst: WARNING: Linux's own as well\n"
            "WARNING: dot(1) not found\n"))
        self.assertEqual(found.complaints, [
            "Documentation/virt/kvm/b.rst:4: Title underline too short.",
            'Documentation/admin-guide/a.rst:1: Unknown directive "tabel".',
            "Documentation/admin-guide/a.rst: it is in no toctree"])
        self.assertEqual((self.tmp / "parts").read_text(), "SPHINXDIRS=admin-guide virt\n")

    def test_documents_that_are_in_no_page(self) -> None:
        self.assertEqual(self._build(*self.PAGES).complaints, [])
        said, = self._build(self.PAGES[0], "output/virt/b.html").complaints
        self.assertIn("Documentation/virt/kvm/b.rst", said)
        # Only our documents' pages are named.
        self._build(*self.PAGES, "output/other/a.html", "output/admin-guide/other.html")
        self.assertEqual(checksource.pages({*self.DOCUMENTS, "a.rst"}, self.tmp / "docs"),
                         [self.tmp / "docs" / page for page in self.PAGES])
        self.assertEqual(len(self._build(*self.PAGES, then="exit 1").complaints), 1)

    def test_not_there(self) -> None:
        self.assertTrue(self._build(*self.PAGES, yaml=None).not_tried)
        (self.tmp / "bin/sphinx-build").unlink()
        self.assertTrue(self._build(*self.PAGES).not_tried)
