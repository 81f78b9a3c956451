# SPDX-License-Identifier: GPL-2.0-only
"""Tests of trying the series by its mails alone, and of the repository that this takes."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

from hostlib import branch, checkall, checkmails
from hostlib.check import Result
from hostlib.checkeach import BASE_COMMIT, check_out
from hostlib.git import Repository
from hostlib.selftests import Counts
from hostlib.source import Source
from hostlib.ui import Failure

_PATCH = """Subject: a: Return {0}

---
diff --git a/a.c b/a.c
--- a/a.c
+++ b/a.c
@@ -1 +1 @@
-return 0;
+return {0};
"""


class _Made(unittest.TestCase):
    """A made-up Linux, and a repository with a patch and an instrument."""

    def setUp(self) -> None:
        self.tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(contextlib.redirect_stdout(io.StringIO()))
        self.linux, self.top = self.tmp / "source", self.tmp / "top"
        self._write(self.linux / "a.c", "return 0;\n")
        self._write(self.top / "patches/series", "[kernel]\na.patch\n\ttools/b.c\n"
                    "[instruments]\ni.patch\n\ttools/i.c\n")
        self._write(self.top / "patches/cover-kernel.txt", "A cover\n")
        self._write(self.top / "patches/a.patch", _PATCH.format(1))
        self._write(self.top / "patches/i.patch", "Subject: i: Count\n")
        self._write(self.top / "tools/b.c", "b;\n")
        self._write(self.top / "tools/i.c", "i;\n")

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _repository(self) -> Repository:
        return checkall.repository(Source(str(self.linux), tree=self.linux), self.tmp / "linux",
                                   self.top)


def _files(tree: Path) -> List[str]:
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*")
                  if path.is_file() and ".git" not in path.parts)


class RepositoryTest(_Made):
    def test_a_tree_of_the_users_may_have_changed(self) -> None:
        self._repository()
        self._write(self.linux / "another.c", "edited;\n")
        self.assertIn("another.c", self._repository().files("series/kernel"))

    def test_what_was_left_there_is_removed(self) -> None:
        self._repository()
        self._write(self.tmp / "linux/stray.o", "")
        self._write(self.tmp / "linux/a.c", "edited\n")
        with mock.patch.object(branch, "unpack_base", side_effect=AssertionError):
            repo = checkall.repository(Source(str(self.linux)), self.tmp / "linux", self.top)
        check_out(repo, "series/instruments")
        self.assertEqual(_files(repo.path), ["a.c", "tools/b.c", "tools/i.c"])
        self.assertEqual((repo.path / "a.c").read_text(), "return 1;\n")

    def test_a_tree_that_is_another(self) -> None:
        repo = self._repository()
        check_out(repo, "series/kernel")
        tree: Any = SimpleNamespace(path=self.tmp / "tree", ours=lambda: {"a.c", "gone.c"})
        file = tree.path / "a.c"
        self._write(file, "return 1;\n")
        self.assertEqual(checkall.differences(repo.path, tree), [])
        for change in (lambda: file.chmod(0o755), file.unlink, lambda: file.write_text("int\n")):
            change()
            said, = checkall.differences(repo.path, tree)
            self.assertIn("a.c", said)


class MailsTest(_Made):
    def setUp(self) -> None:
        super().setUp()
        self.repo = self._repository()
        self.tested: List[str] = []
        self.complaints: List[str] = []
        self._mail("series/kernel")
        self.enterContext(mock.patch.object(checkmails, "_TOOLS", ("git",)))

    def _mail(self, commit: str) -> None:
        self.repo.git("format-patch", "-q", "-o", str(self.tmp / "mails"),
                      f"{BASE_COMMIT}..{commit}")

    def _test(self, tree: Path) -> List[str]:
        self.tested = _files(tree)
        return self.complaints

    def _run(self) -> Result:
        self.tested = []
        return checkmails.run(self.repo, sorted((self.tmp / "mails").iterdir()), "kernel",
                              self._test)

    def test_what_is_tested(self) -> None:
        self.assertEqual(self._run(), Result(checkmails._NAME))
        # The instrument is in no mail, but tests use it.
        self.assertEqual(self.tested, ["a.c", "tools/b.c", "tools/i.c"])

    def test_failures(self) -> None:
        self.complaints = ["it does not boot"]
        self.assertEqual(self._run().complaints, ["it does not boot"])
        with mock.patch.object(self, "_test", side_effect=Failure("make failed")):
            self.assertEqual(self._run().complaints, ["make failed"])

    def test_mails_that_give_another_tree(self) -> None:
        self._write(self.top / "patches/a.patch", _PATCH.format(2))
        branch.add_commits(self.repo, BASE_COMMIT, self.top)
        said, = self._run().complaints
        self.assertIn("a.c", said)
        self.assertEqual(self.tested, [])

    def test_a_mail_that_does_not_apply(self) -> None:
        mail, = (self.tmp / "mails").iterdir()
        text = mail.read_text()
        mail.write_text(text.replace("return 0", "return 7"))
        for _ in range(2):
            self.assertEqual(len(self._run().complaints), 1)
        self.assertEqual(self.tested, [])
        # What git am has left there does no harm.
        mail.write_text(text)
        self.assertEqual(self._run().complaints, [])

    def test_counts(self) -> None:
        good, bad = Counts(1, remarks=["skipped: a"]), Counts(1, 1, remarks=["failed: b"])
        self.assertEqual(checkmails.judge(good, good), [])
        for perf, ours in ((good, bad), (bad, good)):
            self.assertIn("failed: b", checkmails.judge(perf, ours))
        for perf, ours in ((good, Counts(skipped=1)), (Counts(), good)):
            self.assertEqual(len(checkmails.judge(perf, ours)), 1)
