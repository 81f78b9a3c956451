# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the run of README's commands in a bare Debian; this one has no packages."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib import bare
from hostlib.ui import Failure, check_root

_README = "# A\n\n## Try it\n\n    echo one > made; test $CI = true\n    test -e made{}\n\n## B\n"


class RootTest(unittest.TestCase):
    def test_needs_root(self) -> None:
        with mock.patch.object(os, "geteuid", return_value=1000), self.assertRaises(Failure):
            check_root("test-bare")


class RunTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        self.repo, self.results = self.tmp / "repo", self.tmp / "results"
        self.results.mkdir()
        root = self.tmp / "made"
        for folder in ("etc", "dev", "proc"):
            (root / folder).mkdir(parents=True)
        subprocess.run(["tar", "-C", str(root), "-cf", str(self.tmp / "x.tar"), "."], check=True)
        self.enterContext(mock.patch.dict(os.environ, {
            "XDG_CACHE_HOME": str(self.tmp / "cache"), "GIT_CONFIG_GLOBAL": "/dev/null"}))
        self.enterContext(mock.patch.object(bare, "REPO", self.repo))
        made = self.tmp / "x.tar"
        self.enterContext(mock.patch.object(bare.bootstrap, "tarball", return_value=made))

        def here(root: Path, shared: object, command: str) -> "list[str]":
            return ["sh", "-euc", f"cd {root / bare._CLONE}\nCI=true\n{command}"]

        self.enterContext(mock.patch.object(bare, "in_root", here))

    def commit(self, readme: str) -> None:
        subprocess.run(["git", "init", "-q", str(self.repo)], check=True)
        (self.repo / "README.md").write_text(readme)
        subprocess.run(["git", "-C", str(self.repo), "add", "."], check=True)
        subprocess.run(["git", "-C", str(self.repo), "-c", "user.name=a", "-c", "user.email=a@b",
                        "commit", "-qm", "a"], check=True)

    def test_all_commands_pass(self) -> None:
        self.commit(_README.format(""))
        # Only what is committed counts.
        (self.repo / "README.md").write_text("")
        counts = bare.run("trixie", self.tmp / "root", self.results)
        self.assertEqual((counts.passed, counts.failed), (2, 0))
        self.assertFalse((self.tmp / "root").exists())

    def test_a_command_that_fails(self) -> None:
        self.commit(_README.format("s || (echo why; exit 3)"))
        counts = bare.run("trixie", self.tmp / "root", self.results)
        self.assertEqual((counts.passed, counts.failed), (1, 1))
        self.assertIn("why", (self.results / "2.log").read_text())
        self.assertTrue((self.tmp / "root" / bare._CLONE / "made").exists())

    def test_no_commands(self) -> None:
        self.commit("# A\n")
        with self.assertRaisesRegex(Failure, "no commands"):
            bare.run("trixie", self.tmp / "root", self.results)
