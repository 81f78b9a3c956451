# SPDX-License-Identifier: GPL-2.0-only
"""Tests of how "make check" judges the output of tools."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import List
from unittest import mock

from hostlib import check
from hostlib.check import Accepted, Finding, Result
from hostlib.source import Source
from hostlib.patches import REPO

_MAIL = """From: Nobody <nobody@example.com>
Subject: [PATCH] a

A message.
---
diff --git a/kernel/a.c b/kernel/a.c
--- a/kernel/a.c
+++ b/kernel/a.c
@@ -1 +1 @@
-a
+b
diff --git a/mm/b.h b/mm/b.h
--- a/mm/b.h
+++ b/mm/b.h
@@ -1 +1 @@
-a
+b
"""


class FindingsTest(unittest.TestCase):
    def test_of_a_mail(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            mail = Path(tmp) / "0001-a.patch"
            mail.write_text(_MAIL)
            found = check.read_findings(f"{mail}:4: WARNING:COMMIT_LOG_LONG_LINE: long\n"
                                        f"{mail}:11: ERROR:SPACING: space\n"
                                        f"{mail}:17: CHECK:BIT_MACRO: bit\n"
                                        "total: 1 errors, 1 warnings, 1 checks, 2 lines checked\n")
        self.assertEqual(found, [
            Finding("COMMIT_LOG_LONG_LINE", "0001-a.patch", "0001-a.patch:4", "long"),
            Finding("SPACING", "kernel/a.c", "0001-a.patch:11", "space"),
            Finding("BIT_MACRO", "mm/b.h", "0001-a.patch:17", "bit")])

    def test_of_files(self) -> None:
        found = check.read_findings(f"tools/a.c:1: CHECK:A: a\n{REPO}/scripts/b.c:2: CHECK:B: b\n")
        self.assertEqual([finding.file for finding in found], ["tools/a.c", "scripts/b.c"])

    def test_accepted_or_not(self) -> None:
        accepted = [Accepted("A", "tools/*", "why"), Accepted("B", "*.patch", "TODO mend")]
        result = check.judge("all", [Finding("A", "tools/x/a.c", "1", ""),
                                     Finding("A", "kernel/a.c", "2", ""),
                                     Finding("B", "0001-a.patch", "3", ""),
                                     Finding("C", "tools/x/a.c", "4", "")], accepted)
        self.assertEqual([text[0] for text in result.complaints], ["2", "4"])
        self.assertEqual([text[0] for text in result.to_mend], ["3"])
        self.assertEqual(result.used, accepted)


class RunTest(unittest.TestCase):
    def _checkpatch(self, status: int, output: str) -> Result:
        with mock.patch.object(check.subprocess, "run", return_value=SimpleNamespace(
                returncode=status, stdout=output)):
            return check._checkpatch(Path(), "all", [], ["x"])

    def test_checkpatch_that_breaks(self) -> None:
        self.assertEqual(self._checkpatch(0, "").complaints, [])
        self.assertEqual(len(self._checkpatch(1, "a.c:1: CHECK:A: a\n").complaints), 1)
        self.assertIn("Can't locate a.pm", self._checkpatch(2, "Can't locate a.pm\n").complaints[0])
        # Output that can't be parsed is a complaint.
        self.assertEqual(len(self._checkpatch(1, "a.c line 1: other words\n").complaints), 1)

    def test_a_tool_that_finds_something(self) -> None:
        for script, complaints in (("echo fine", []), ("echo b; echo c; exit 1", ["b", "c"])):
            self.assertEqual(check._run("a", ["sh", "-c", script], Path("/")).complaints,
                             complaints)
        self.assertEqual(len(check._run("a", ["false"], Path("/")).complaints), 1)

    def test_report_and_order_of_results(self) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertFalse(check.report([Result("a"), Result("b", ["wrong"], ["later"])]))
            self.assertTrue(check.report([Result("a", to_mend=["later"])]))
            jobs = [lambda: Result("a"), lambda: Result("b")]
            self.assertEqual([result.name for result in check.run_all(jobs, 2)], ["a", "b"])
        self.assertRegex(out.getvalue(), "(?s)later\n.*b: wrong\n1 passed, 1 failed\n"
                         ".*later\n1 passed, 0 failed\n")


class WholeTest(unittest.TestCase):
    def test_both_parts_count(self) -> None:
        good, bad = Result("a"), Result("b", ["wrong"])
        for first, second in ((good, good), (bad, good), (good, bad)):
            with tempfile.TemporaryDirectory() as tmp, \
                    contextlib.redirect_stdout(io.StringIO()), \
                    mock.patch.multiple(check, series=mock.DEFAULT, run_all=lambda *_: [first],
                                        read_accepted=list):
                self.assertEqual(check.run(Source("linux_1"), Path(tmp), Path(tmp), 1,
                                           lambda mails: [second]), first is second)


class FilesTest(unittest.TestCase):
    def test_all_are_looked_at(self) -> None:
        asked: List[str] = []

        def run(name: str, argv: List[str], cwd: Path) -> Result:
            asked.extend(argv)
            return Result(name)

        with mock.patch.object(check, "_run", run):
            for job in [*check._python(), *check._shell()]:
                job()
        for file in ("host.py", "hostlib/check.py", "tests/test_check.py",
                     "../tools/perf/tests/shell/lib/guest_callchains.py", "scripts/deps.sh",
                     "scripts/guest/init.sh", ".ci/run",
                     "tools/perf/tests/shell/guest_callchains.sh"):
            self.assertIn(file, asked)

    def test_c_files_in_no_mail(self) -> None:
        files = check.without_mail()
        for path in ("tools/testing/guest_callchain/fuzz_stack_walk.c", "scripts/tsc_khz.c",
                     "arch/x86/kvm/stacktrace_v3.c"):
            self.assertIn(f"{REPO}/{path}", files)
        self.assertNotIn(f"{REPO}/arch/x86/kvm/stacktrace.c", files)
        self.assertFalse([file for file in files if file.endswith("Makefile")])
