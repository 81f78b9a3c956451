# SPDX-License-Identifier: GPL-2.0-only
"""Tests of results in the formats of other programs."""

import contextlib
import io
import json
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

from hostlib import commands, demo, ktap
from hostlib.options import Options
from hostlib.selftests import Counts, ExpectedSkip, fail_unexpected
from hostlib.ui import Failure

_TEXT = """TAP version 13
1..1
# selftests: kvm: a
# TAP version 13
# 1..2
# # Starting 2 tests
# ok 1 a.irq.x
# ok 2 a.nmi.x # SKIP no NMI
ok 1 selftests: kvm: a
"""


class TextTest(unittest.TestCase):
    def setUp(self) -> None:
        self.lines: List[str] = []

        def parse(lines: List[str], _: object) -> Any:
            self.lines = list(lines)
            return SimpleNamespace(name="")

        patcher = mock.patch.dict("sys.modules", {
            "kunit_parser": SimpleNamespace(parse_run_tests=parse),
            "kunit_printer": SimpleNamespace(null_printer=None),
            "kunit_junit": SimpleNamespace(get_junit_result=lambda test: f"<a>{test.name}</a>"),
            "kunit_json": SimpleNamespace(
                Metadata=SimpleNamespace,
                get_json_result=lambda test, metadata: json.dumps(vars(metadata)))})
        patcher.start()
        self.addCleanup(patcher.stop)

    def test_cases_of_programs_are_nested(self) -> None:
        ktap.parse(_TEXT, Path())
        self.assertIn("    ok 2 a.nmi.x # SKIP no NMI", self.lines)
        self.assertIn("ok 1 selftests: kvm: a", self.lines)
        ktap.parse(ktap.join([ktap.Part("selftests", True, [], _TEXT)]), Path())
        self.assertIn("        ok 2 a.nmi.x # SKIP no NMI", self.lines)
        self.assertIn("    ok 1 selftests: kvm: a", self.lines)

    def test_parts(self) -> None:
        text = ktap.join([ktap.Part("unit tests", False, ["0 passed", "failed: a\nand b"]),
                          ktap.Part("selftests", True, [], "ok 1 x\n")])
        self.assertEqual(text, "KTAP version 1\n1..2\n# 0 passed\n# failed: a\n# and b\n"
                               "not ok 1 unit tests\n    ok 1 x\nok 2 selftests\n")

    def test_unexpected_skip_has_failed(self) -> None:
        self.assertEqual(fail_unexpected(_TEXT, None), _TEXT)
        self.assertEqual(fail_unexpected(_TEXT, [ExpectedSkip("a.nmi.*", "why")]), _TEXT)
        self.assertIn("\n# not ok 2 a.nmi.x\n", fail_unexpected(_TEXT, []))

    def test_files(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            options = Options(junit=f"{tmp}/a.xml", json=f"{tmp}/a.json")
            commands.report(options, _TEXT, Path("/build/linux"))
            root = xml.etree.ElementTree.parse(f"{tmp}/a.xml").getroot()
            self.assertEqual(root.text, "guest callchains")
            self.assertEqual(json.loads(Path(f"{tmp}/a.json").read_text()),
                             {"arch": "x86_64", "build_dir": "/build"})

    def test_folder_is_looked_for_before_the_work(self) -> None:
        for options in (Options(junit="/nowhere/a.xml"), Options(json="/nowhere/a.json")):
            for command in (commands.cmd_selftests, commands.cmd_test):
                with mock.patch.object(commands, "unit_tests") as work, \
                        mock.patch.object(commands, "built", work), \
                        self.assertRaisesRegex(Failure, "its folder is missing"):
                    command(options)
                work.assert_not_called()

    def test_all_parts_are_reported(self) -> None:
        build = SimpleNamespace(tree=SimpleNamespace(path=Path("/build/linux")), kernel=Path())
        whole = Counts(1, 0, 0)
        with contextlib.ExitStack() as stack:
            def replace(where: Any, name: str, value: object) -> None:
                stack.enter_context(mock.patch.object(where, name, return_value=value))

            replace(commands, "unit_tests", Counts(2, 1, 0, ["failed: a.b"]))
            replace(commands, "built", build)
            replace(commands, "object_code", whole)
            replace(commands, "results_dir", Path())
            for module, name, value in ((commands.perftests, "run", whole),
                                        (commands.selftests, "run", _TEXT),
                                        (commands.selftests, "count", whole),
                                        (demo, "fetch", None), (demo, "run", None),
                                        (demo, "check", whole)):
                replace(module, name, value)
            report = stack.enter_context(mock.patch.object(commands, "report"))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            self.assertEqual(commands.cmd_test(Options(accel="tcg")), 1)
        lines = report.call_args[0][1].splitlines()
        self.assertEqual([line for line in lines if line.startswith(("ok ", "not ok "))],
                         ["not ok 1 unit tests", "ok 2 object code", "ok 3 perf test",
                          "ok 4 selftests", "ok 5 demo debian", "ok 6 demo own"])
        # The skip is not an expected one, so it is a failure.
        self.assertIn("    # not ok 2 a.nmi.x", lines)

    def test_json_is_alone_on_standard_output(self) -> None:
        out, errors = io.StringIO(), io.StringIO()
        with mock.patch("sys.__stdout__", out), contextlib.redirect_stdout(errors):
            commands.report(Options(json="-"), _TEXT, Path("/build/linux"))
        self.assertEqual(json.loads(out.getvalue())["arch"], "x86_64")
        self.assertEqual(errors.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
