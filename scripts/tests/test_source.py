# SPDX-License-Identifier: GPL-2.0-only
"""Tests of a kernel's source that the user names, and of unpacking a source."""

import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib import source
from hostlib.tree import Tree
from hostlib.ui import Failure


class TarballTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        top = self.tmp / "linux-7.3.9"
        top.mkdir()
        (top / "Kbuild").write_text("")
        (top / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 3\n")
        (top / "new").write_text("content\n")
        self.tarball = self.tmp / "linux-7.3.9.tar.xz"
        subprocess.run(["tar", "-cJf", str(self.tarball), "-C", str(self.tmp), top.name],
                       check=True)

    def test_is_unpacked_once(self) -> None:
        found = source.find("", str(self.tarball))
        tree = Tree(self.tmp / "build", patched=False, instruments=False)
        tree.assemble(found)
        self.assertEqual((tree.path / "new").read_text(), "content\n")
        (tree.path / "new").write_text("kept\n")
        tree.assemble(source.find("", str(self.tarball)))
        self.assertEqual((tree.path / "new").read_text(), "kept\n")

    def test_package_of_debians(self) -> None:
        kept = self.tmp / "package/usr/src" / f"linux-source-{source.SERIES}.tar.xz"
        kept.parent.mkdir(parents=True)
        self.tarball.rename(kept)
        subprocess.run(["tar", "-cJf", "data.tar.xz", "-C", "package", "./usr"], cwd=self.tmp,
                       check=True)
        subprocess.run(["ar", "rc", "a.deb", "data.tar.xz"], cwd=self.tmp, check=True)
        tree = Tree(self.tmp / "build", patched=False, instruments=False)
        tree.assemble(source.Source("a", tarball_package=self.tmp / "a.deb"))
        self.assertEqual((tree.path / "new").read_text(), "content\n")

    def test_of_another_linux(self) -> None:
        tree = Tree(self.tmp / "build", patched=False, instruments=False)
        with mock.patch.object(source, "LINUX", "7.9"), \
                self.assertRaisesRegex(Failure, r"Linux 7\.3, and the patches are for Linux 7\.9"):
            tree.assemble(source.find("", str(self.tarball)))

    def test_wrong_use(self) -> None:
        for arguments, why in ((("", "nowhere"), "is no file"),
                               (("dir", str(self.tarball)), "use one of them")):
            with self.subTest(why), self.assertRaisesRegex(Failure, why):
                source.find(*arguments)
