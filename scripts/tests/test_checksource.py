# SPDX-License-Identifier: GPL-2.0-only
"""Tests of how "make check ALL=1" judges the output of coccicheck and Sphinx."""

import contextlib
import io
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Tuple
from unittest import mock

from hostlib import checksource
from hostlib.check import Result
from hostlib.passed import Passed
from hostlib.patches import REPO
from hostlib.ui import Failure

_RULES = {"free/a.cocci": "// Options: --no-includes --include-headers\nvirtual report\n",
          "api/b.cocci": "virtual patch\nvirtual  report\n// Requires: 1.2\n",
          "api/c.cocci": "virtual patch\n",
          "api/d.cocci": "virtual report\n@initialize:ocaml@\n"}

_COCCI = """virt/kvm/kvm_main.c:7:1-4: WARNING: NULL check before a free is not needed
virt/kvm/kvm_main.c:8:1-4: Linux's own
kernel/events/new.c:3:2-3: Unneeded semicolon
"""

_SPHINX = """Using alabaster theme
/w/linux/Documentation/virt/kvm/api.rst:4: WARNING: Title underline too short.
/w/linux/Documentation/virt/kvm/api.rst:5: WARNING: Linux's own
/w/linux/Documentation/virt/new.rst:1: ERROR: Unknown directive type "tabel".
/w/linux/Documentation/virt/new.rst: WARNING: document isn't included in any toctree
/w/linux/Documentation/virt/kvm/api.rst: WARNING: Linux's own as well
WARNING: dot(1) not found
"""


class CoccicheckTest(unittest.TestCase):
    def setUp(self) -> None:
        self.tree = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, text in _RULES.items():
            path = self.tree / "scripts/coccinelle" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def _check(self, said: str, status: int = 0, missing: str = "ocamlopt",
               inputs: str = "", unparsed: str = "") -> List[Result]:
        self.asked: List[List[str]] = []
        (self.tree / "standard.h").write_text("#define A its own\n")
        for path in ("virt/kvm/kvm_main.c", "kernel/events/new.c"):
            (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / path).write_text("int a;\nint b BAD;\nint c;\n")

        def run(_: object, argv: List[str], cwd: Path) -> Tuple[int, str]:
            self.assertEqual(cwd, self.tree)
            if "--parse-c" in argv:
                return 0, f"init_defs_builtins: {self.tree}/standard.h\n{unparsed}"
            self.asked.append(argv)
            self.groups = Path(argv[-1]).read_text()
            self.macros = Path(argv[argv.index("--macro-file-builtins") + 1]).read_text()
            return status, said

        with mock.patch.object(checksource.shutil, "which",
                               lambda name: None if name == missing else name), \
                mock.patch.object(checksource, "said_by", return_value="spatch version 1.1.1 x"), \
                mock.patch.object(checksource.Processes, "run", run), \
                contextlib.redirect_stdout(io.StringIO()):
            return checksource.coccicheck(self.tree, {
                "virt/kvm/kvm_main.c": {7}, "kernel/events/new.c": {1, 2, 3}, "a.h": {1}}, 2,
                Passed(self.tree / "passed.json"), inputs)

    def test_of_our_lines_only(self) -> None:
        results = {result.name: result for result in self._check(_COCCI)}
        self.assertEqual(results["coccicheck, a.cocci"].complaints, [
            "virt/kvm/kvm_main.c:7: WARNING: NULL check before a free is not needed",
            "kernel/events/new.c:3: Unneeded semicolon"])
        rule = self.asked[0][self.asked[0].index("--cocci-file") + 1]
        self.assertEqual(rule, str(self.tree / "scripts/coccinelle/free/a.cocci"))
        self.assertEqual(self.asked[0][-4:-1], ["--no-includes", "--include-headers",
                                                "--file-groups"])
        # An empty line ends a group.
        self.assertEqual(self.groups, "kernel/events/new.c\n\nvirt/kvm/kvm_main.c\n")

    def test_what_is_accepted(self) -> None:
        accepted = {("a.cocci", "kernel/events/new.c"): "why"}
        with mock.patch.object(checksource, "_ACCEPTED", accepted):
            self.assertEqual(self._check(_COCCI)[-1].complaints, [
                "virt/kvm/kvm_main.c:7: WARNING: NULL check before a free is not needed"])
        for (_, path), reason in checksource._ACCEPTED.items():
            self.assertTrue((REPO / path).exists() and reason)

    def test_rules_that_cant_be_tried(self) -> None:
        self.assertEqual({result.name: bool(result.not_tried) for result in self._check("")},
                         {"coccicheck, a.cocci": False, "what coccicheck sees": False,
                          **{f"coccicheck, {name}.cocci": True for name in "bcd"}})
        self.assertEqual(len(self.asked), 1)
        self._check("", missing="", inputs="another tree")
        self.assertEqual(len(self.asked), 2)

    def test_interrupted(self) -> None:
        """No other rule is tried, and the processes that spatch has started end, too."""
        for number in range(20):
            (self.tree / f"scripts/coccinelle/z{number:02}.cocci").write_text("virtual report\n")
        pids = self.tree / "pids"
        (self.tree / "bin").mkdir()
        (self.tree / "bin/spatch").write_text(
            "#!/bin/sh\ncase $* in\n"
            f"--version) echo spatch version 1.1.1 ;;\n"
            f"*--parse-c*) echo init_defs_builtins: {self.tree}/standard.h ;;\n"
            f"*) echo >> {self.tree}/tried\n"
            f"sleep 60 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait ;;\nesac\n")
        (self.tree / "bin/spatch").chmod(0o755)
        (self.tree / "standard.h").write_text("")
        (self.tree / "a.c").write_text("")

        def interrupt(_: object, detail: str = "") -> None:
            while detail and not pids.exists():
                time.sleep(0.01)
            if detail:
                raise KeyboardInterrupt

        start = time.monotonic()
        with mock.patch.dict(os.environ, {"PATH": f"{self.tree}/bin:{os.environ['PATH']}"}), \
                mock.patch.object(checksource.Step, "tick", interrupt), \
                contextlib.redirect_stdout(io.StringIO()), self.assertRaises(KeyboardInterrupt):
            checksource.coccicheck(self.tree, {"a.c": {1}}, 2, Passed(self.tree / "passed"), "")
        self.assertLess(time.monotonic() - start, 30)
        self.assertLess(len((self.tree / "tried").read_text()), 10)
        time.sleep(0.1)
        for pid in pids.read_text().split():
            self.assertFalse(self._runs(int(pid)))

    @staticmethod
    def _runs(pid: int) -> bool:
        """Return whether the process runs; a zombie has ended."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def test_macros_are_behind_its_own(self) -> None:
        self._check("")
        self.assertTrue(self.macros.startswith("#define A its own\n"))
        self.assertTrue(self.macros.endswith(checksource.MACROS.read_text()))

    def test_a_spatch_that_does_not_work(self) -> None:
        self.assertTrue(self._check("", missing="spatch")[0].not_tried)
        with mock.patch.object(Path, "exists", return_value=False):
            self.assertEqual(len(self._check("")[0].complaints), 1)
        for broken in (mock.Mock(side_effect=subprocess.CalledProcessError(2, "spatch")),
                       mock.Mock(return_value="")):
            with mock.patch.object(checksource, "said_by", broken), \
                    self.assertRaises(Failure):
                checksource._Spatch(self.tree, self.tree)

    def test_lines_that_no_rule_sees(self) -> None:
        bad = "badcount: 2\nbad: int a;\nBAD:!!!!! int b BAD;\n"
        for _ in range(2):
            result = self._check("", unparsed=bad)[3]
            self.assertEqual(result.name, "what coccicheck sees")
            self.assertEqual(len(result.complaints), 1)
            self.assertIn("kernel/events/new.c:1: spatch can't parse", result.complaints[0])
        self.assertEqual(self._check("")[3].complaints, [])
        self.assertTrue(self._check("")[3].before)

    def test_a_rule_that_has_passed_waits_for_another_tree(self) -> None:
        for inputs, said, tried in (("a", _COCCI, 1), ("a", "", 1), ("a", _COCCI, 0),
                                    ("b", "", 1)):
            result = self._check(said, inputs=inputs)[-1]
            self.assertEqual(len(self.asked), tried)
            self.assertEqual(result.before, not tried)
            self.assertEqual(bool(result.complaints), bool(said and tried))
        rule = self.tree / "scripts/coccinelle/free/a.cocci"
        rule.write_text(rule.read_text() + "// edited\n")
        self._check("", inputs="b")
        self.assertEqual(len(self.asked), 1)

    def test_rule_that_breaks(self) -> None:
        for said, status, complaint in (
                ("EXN: Coccinelle_modules.Common.Timeout in a.c\n", 0, "EXN: Coccinelle"),
                ("x\nFatal error: exception\n", 2, "Fatal error"), ("", 255, "exit status 255")):
            with self.subTest(said):
                self.assertIn(complaint, self._check(said, status)[-1].complaints[0])


class UnparsedTest(unittest.TestCase):
    def test_where_they_are(self) -> None:
        text = ("}\n/* \n * f() */\nint f(void)\n{\n\treturn 0 BAD;\n}\n\n"
                "#define A(x)\t\\\n\t{ x BAD }\nint f(void)\n{\n\treturn 0 BAD;\n}\n")
        bad = "bad: int f(void)\nbad: {\nBAD:!!!!! \treturn 0 BAD;\nbad: }\n"
        macro = "bad: }\nbad: \nbad: #define A(x)\t\\\nBAD:!!!!! \t{ x BAD }\n"
        header = "badcount: 1\nBAD:!!!!! struct x BAD;\n"
        self.assertEqual(checksource.unparsed(
            f"PARSING: a.c\n{header}badcount: 4\n{bad}ERROR-RECOV: x\n", text), {4, 6})
        self.assertEqual(checksource.unparsed(
            f"badcount: 4\n{macro}badcount: 4\n{bad}", text), {11, 13})
        self.assertEqual(checksource.unparsed(
            2 * "badcount: 1\nBAD:!!!!! BAD(x);\n", "int a;\nBAD(x);\nint b;\nBAD(x);\n"),
            {2, 4})
        comment = "bad: }\nbad: /* \nbad:  * f() */\n"
        self.assertEqual(checksource.unparsed(f"badcount: 3\n{comment}", text), set())
        self.assertEqual(checksource.unparsed("nb good = 13,  nb bad = 0\n", text), set())


class DocumentationTest(unittest.TestCase):
    def test_of_our_lines_and_documents(self) -> None:
        self.assertEqual(checksource.sphinx_complaints(
            _SPHINX, {"Documentation/virt/kvm/api.rst": {4}, "Documentation/virt/new.rst": {1}},
            {"Documentation/virt/new.rst"}), [
                "Documentation/virt/kvm/api.rst:4: Title underline too short.",
                'Documentation/virt/new.rst:1: Unknown directive type "tabel".',
                "Documentation/virt/new.rst: document isn't included in any toctree"])

    def test_documents_that_are_not_built(self) -> None:
        """Each must be in the page of its own path."""
        tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        document, folder = "Documentation/virt/kvm/b.rst", tmp / "documentation"
        tree: Any = SimpleNamespace(path=tmp, new_files={document: tmp})

        def make(page: str) -> Callable[[str, List[str], Path], None]:
            def run(title: str, argv: List[str], log: Path) -> None:
                self.assertIn("SPHINXDIRS=virt", argv)
                (folder / page).parent.mkdir(parents=True, exist_ok=True)
                (folder / page).write_text("")
                log.write_text("")
            return run

        self.enterContext(mock.patch.object(checksource.shutil, "which", return_value="it"))
        self.enterContext(mock.patch.object(checksource.importlib.util, "find_spec"))
        for page, built in (("output/virt/kvm/b.html", True), ("output/virt/b.html", False)):
            with mock.patch.object(checksource, "run_logged", make(page)):
                result = checksource.documentation(tree, {document: {1}, "kernel/a.c": {1}},
                                                   folder, tmp)
            self.assertEqual([document in text for text in result.complaints], [True] * (not built))
            self.assertEqual(checksource.pages(tree, folder), [folder / page] * built)
        with mock.patch.object(checksource, "run_logged", side_effect=Failure("broken")):
            self.assertEqual(checksource.documentation(tree, {document: {1}}, folder,
                                                       tmp).complaints, ["broken"])


if __name__ == "__main__":
    unittest.main()
