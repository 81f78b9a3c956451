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

from hostlib import ktap, testing
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

        self.enterContext(mock.patch.dict("sys.modules", {
            "kunit_parser": SimpleNamespace(parse_run_tests=parse),
            "kunit_printer": SimpleNamespace(null_printer=None),
            "kunit_junit": SimpleNamespace(get_junit_result=lambda test: f"<a>{test.name}</a>"),
            "kunit_json": SimpleNamespace(
                Metadata=SimpleNamespace,
                get_json_result=lambda test, metadata: json.dumps(vars(metadata)))}))

    def test_cases_of_programs_are_nested(self) -> None:
        for text, indent in ((_TEXT, ""),
                             (ktap.join([ktap.Part("selftests", True, [], _TEXT)]), "    ")):
            ktap.parse(text, Path())
            self.assertIn(f"{indent}    ok 2 a.nmi.x # SKIP no NMI", self.lines)
            self.assertIn(f"{indent}ok 1 selftests: kvm: a", self.lines)

    def test_unexpected_skip_has_failed(self) -> None:
        self.assertEqual(fail_unexpected(_TEXT, None), _TEXT)
        self.assertEqual(fail_unexpected(_TEXT, [ExpectedSkip("a.nmi.*", "why")]), _TEXT)
        self.assertIn("\n# not ok 2 a.nmi.x\n", fail_unexpected(_TEXT, []))

    def test_all_parts_are_reported(self) -> None:
        """One that failed makes all fail; each line of a remark is a comment."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        options = Options(junit=f"{folder}/a.xml", json=f"{folder}/a.json")
        for failed in (0, 1):
            parts = {"unit tests": Counts(2, failed, 0, ["failed: a\nand b"]),
                     "selftests": Counts(1)}
            with contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(testing.report_parts(options, parts, {"selftests": _TEXT},
                                                      Path("/build/linux")), failed)
            self.assertIn(f"3 passed, {failed} failed, 0 skipped", said.getvalue())
            self.assertIn("and b", [line.lstrip("# ") for line in self.lines])
            self.assertEqual([line for line in self.lines if line.startswith(("ok", "not ok"))],
                             [f"{'not ' * failed}ok 1 unit tests", "ok 2 selftests"])
        root = xml.etree.ElementTree.parse(f"{folder}/a.xml").getroot()
        self.assertEqual(root.text, "guest callchains")
        self.assertEqual(json.loads(Path(f"{folder}/a.json").read_text()),
                         {"arch": "x86_64", "build_dir": "/build"})

    def test_folder_is_looked_for_before_the_work(self) -> None:
        for options in (Options(junit="/nowhere/a.xml"), Options(json="/nowhere/a.json")):
            for command in (testing.cmd_selftests, testing.cmd_test):
                with mock.patch.object(testing, "unit_tests") as work, \
                        mock.patch.object(testing, "built", work), \
                        mock.patch.object(testing, "fetched", work), \
                        self.assertRaises(Failure) as failure:
                    command(options)
                self.assertIn("/nowhere/a.", str(failure.exception))
                work.assert_not_called()
