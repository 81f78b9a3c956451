# SPDX-License-Identifier: GPL-2.0-only
"""Tests of trying the series by its mails alone."""

import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

from hostlib import mailed
from hostlib.passed import Passed
from hostlib.selftests import Counts
from hostlib.source import Source
from hostlib.ui import Failure

_MAIL = """From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Nobody <nobody@example.com>
Subject: [PATCH] a: Return 1

---
diff --git a/a.c b/a.c
--- a/a.c
+++ b/a.c
@@ -1 +1 @@
-return 0;
+return 1;
"""


class MailedTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.folder = Path(tmp.name)
        (self.folder / "mails/1-fixes").mkdir(parents=True)
        self.mail = self.folder / "mails/1-fixes/0001-a.patch"
        self.mail.write_text(_MAIL)
        self.wanted: Any = self._tree("wanted", "return 1;\n")
        self.built: Any = SimpleNamespace(
            tree=self._tree("built", "return 1;\n"), assemble=lambda: None, all=mock.Mock(),
            arch=SimpleNamespace(name="x86"))
        self.passed = Passed(self.folder / "passed.json")

    def _tree(self, name: str, text: str) -> SimpleNamespace:
        path = self.folder / name
        path.mkdir()
        (path / "a.c").write_text(text)
        return SimpleNamespace(path=path, ours=lambda: {"a.c"}, new_files={})

    def _pristine(self, text: str) -> mock.Mock:
        path = self.folder / "pristine"
        path.mkdir(exist_ok=True)
        (path / "a.c").write_text(text)
        return mock.Mock(return_value=SimpleNamespace(path=path, assemble=lambda source: None))

    def _run(self, counts: Counts, linux: str = "return 0;\n",
             perf: Counts = Counts(passed=1)) -> mailed.Result:
        results = self.folder / f"results{len(list(self.folder.iterdir()))}"
        with mock.patch.object(mailed, "Tree", self._pristine(linux)), \
                mock.patch.object(mailed, "Build", lambda *args, **kwargs: self.built), \
                mock.patch.object(mailed, "topics", lambda folder: []), \
                mock.patch.object(mailed.shutil, "which", lambda name: name), \
                mock.patch.object(mailed, "_TOOLS", ("true",)), \
                mock.patch.object(mailed.perftests, "run", lambda *args: perf), \
                mock.patch.object(mailed.selftests, "run", lambda *args, **kwargs: ""), \
                mock.patch.object(mailed.selftests, "count", lambda *args: counts):
            return mailed.run(Source("7.3"), self.wanted, self.folder / "mails",
                              self.folder / "work", results, self.passed, 1)

    def test_what_has_passed_is_not_done_again(self) -> None:
        result = self._run(Counts(passed=2, remarks=["skipped: a"]))
        self.assertEqual((result.complaints, result.before), ([], False))
        self.assertEqual((self.folder / "pristine/a.c").read_text(), "return 1;\n")
        self.assertTrue(self._run(Counts(passed=2)).before)
        self.mail.write_text(_MAIL.replace("Return 1", "Don't return 0"))
        self.assertFalse(self._run(Counts(passed=2)).before)

    def test_failures_are_complaints(self) -> None:
        bad = Counts(1, 1, remarks=["failed: b"])
        for ours, perf, said in (
                (bad, Counts(1), ["selftest: 1 passed, 1 failed, 0 skipped", "failed: b"]),
                (Counts(1), bad, ["perf test: 1 passed, 1 failed, 0 skipped", "failed: b"]),
                (Counts(skipped=1), Counts(1), ["no selftest has passed"]),
                (Counts(1), Counts(), ["no perf test has passed"])):
            self.assertEqual(self._run(ours, perf=perf).complaints, said)
        self.built.all.side_effect = Failure("make failed")
        self.assertEqual(self._run(Counts(passed=1)).complaints, ["make failed"])
        self.assertFalse(self._passed_anything())

    def test_a_mail_that_does_not_apply(self) -> None:
        said: List[str] = self._run(Counts(passed=1), "int a;\n").complaints
        self.assertRegex(said[0], "git am failed, it says: ")
        self.built.all.assert_not_called()

    def test_a_tree_that_is_another(self) -> None:
        file = self.built.tree.path / "a.c"
        for change in (lambda: file.chmod(0o755), file.unlink, lambda: file.write_text("int a;\n"),
                       (self.wanted.path / "a.c").unlink, file.unlink):
            change()
            self.assertEqual(self._run(Counts(passed=1)).complaints,
                             ["a.c is not what make build makes of it"])
        self.built.all.assert_not_called()

    def _passed_anything(self) -> bool:
        return (self.folder / "passed.json").exists()


if __name__ == "__main__":
    unittest.main()
