# SPDX-License-Identifier: GPL-2.0-only
"""Tests of assembling a tree from a source, patches and new files."""

import contextlib
import io
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib import git, patches
from hostlib.git import Repository
from hostlib.source import Source, find
from hostlib.tree import Tree
from hostlib.ui import Failure

_DIFF = """Subject: perf: Call it

diff --git a/kernel/events/core.c b/kernel/events/core.c
--- a/kernel/events/core.c
+++ b/kernel/events/core.c
@@ -1,3 +1,4 @@
 a
 b
+call
 c
"""


class TreeTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        self.top, self.own = self.tmp / "top", self.tmp / "own"
        self.write(self.own, "Makefile", "VERSION = 7\nPATCHLEVEL = 3\n")
        self.write(self.own, "Kbuild", "")
        self.write(self.own, "arch/x86/kvm/x86.c", "")
        self.write(self.own, "kernel/events/core.c", "a\nb\nc\n")
        self.write(self.top, "patches/series", "[kernel]\ncall.patch\n\tkernel/events/new.c\n"
                                               "[instruments]\ntest.patch\n")
        self.write(self.top, "patches/call.patch", _DIFF)
        self.write(self.top, "patches/test.patch", _DIFF.replace("+call", "+test"))
        self.write(self.top, "patches/cover-kernel.txt", "Title\n\nText\n")
        self.write(self.top, "kernel/events/new.c", "new\n")

    def write(self, top: Path, name: str, text: str) -> None:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)

    def assemble(self, **options: bool) -> Path:
        tree = Tree(self.tmp / "build", top=self.top, **options)
        with contextlib.redirect_stdout(io.StringIO()):
            tree.assemble(find(str(self.own)))
        return tree.path

    def refused(self, *words: str) -> None:
        before = {path: path.read_bytes() for path in self.own.rglob("*") if path.is_file()}
        with self.assertRaises(Failure) as caught:
            self.assemble()
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertEqual({path: path.read_bytes() for path in self.own.rglob("*")
                          if path.is_file()}, before)

    def test_with_patches_and_without(self) -> None:
        for options, core, new in (({"instruments": False}, "a\nb\ncall\nc\n", True),
                                   ({"patched": False}, "a\nb\ntest\nc\n", False),
                                   ({"patched": False, "instruments": False}, "a\nb\nc\n", False),
                                   ({"instruments": False}, "a\nb\ncall\nc\n", True)):
            with self.subTest(options):
                tree = self.assemble(**options)
                self.assertEqual((tree / "kernel/events/core.c").read_text(), core)
                self.assertEqual((tree / "kernel/events/new.c").exists(), new)

    def test_a_new_file_has_the_edits_of_later_patches_already(self) -> None:
        self.write(self.top, "patches/series", "[kernel]\ncall.patch\n\tkernel/events/new.c\n"
                                               "edit.patch\n")
        self.write(self.top, "patches/edit.patch", _DIFF.replace("core.c", "new.c"))
        self.write(self.top, "kernel/events/new.c", "a\nb\ncall\nc\n")
        tree = self.assemble(instruments=False)
        self.assertEqual((tree / "kernel/events/new.c").read_text(), "a\nb\ncall\nc\n")

    def test_only_what_differs_is_written(self) -> None:
        tree = self.assemble(instruments=False)
        times = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
        (self.top / "kernel/events/new.c").write_text("newer\n")
        self.assemble(instruments=False)
        self.assertEqual([path.name for path in tree.rglob("*.c")
                          if path.stat().st_mtime_ns != times[path]], ["new.c"])

    def test_changes_of_ours_in_the_tree_are_undone(self) -> None:
        tree = self.assemble(instruments=False)
        (tree / "kernel/events/core.c").write_text("mutant\n")
        self.assemble(instruments=False)
        self.assertEqual((tree / "kernel/events/core.c").read_text(), "a\nb\ncall\nc\n")

    def test_a_file_that_a_patch_renames_or_removes(self) -> None:
        self.write(self.own, "kernel/events/old.c", "old\n")
        self.write(self.top, "patches/call.patch", "Subject: perf: Rename it\n\n"
                   "diff --git a/kernel/events/core.c b/kernel/events/main.c\n"
                   "similarity index 100%\nrename from kernel/events/core.c\n"
                   "rename to kernel/events/main.c\n"
                   "diff --git a/kernel/events/old.c b/kernel/events/old.c\n"
                   "deleted file mode 100644\n--- a/kernel/events/old.c\n+++ /dev/null\n"
                   "@@ -1 +0,0 @@\n-old\n")
        tree = self.assemble(instruments=False)
        self.assertEqual(sorted(path.name for path in (tree / "kernel/events").iterdir()),
                         ["main.c", "new.c"])
        self.write(self.top, "patches/call.patch", _DIFF)
        self.assemble(instruments=False)
        self.assertEqual(sorted(path.name for path in (tree / "kernel/events").iterdir()),
                         ["core.c", "new.c", "old.c"])

    def test_sources_that_do_not_fit(self) -> None:
        self.write(self.own, "kernel/events/core.c", "a\nc\n")
        self.refused("call.patch", "kernel/events/core.c:1")
        (self.own / "kernel/events/core.c").unlink()
        self.refused("call.patch", "kernel/events/core.c")
        self.write(self.own, "kernel/events/new.c", "")
        self.refused("kernel/events/new.c")
        self.write(self.own, "Makefile", "VERSION = 7\nPATCHLEVEL = 9\n")
        self.refused("7.9", "7.3")
        (self.own / "Kbuild").unlink()
        self.refused(str(self.own))

    def test_a_git_tree_with_changes(self) -> None:
        self.write(self.top, "patches/series", "[kernel]\ncall.patch\n\tkernel/events/new.c\n")
        repo = Repository(self.own)
        repo.init()
        repo.commit_all("Linux")
        self.assemble()
        self.write(self.own, "kernel/events/core.c", "a\nb\nc\nd\n")
        self.refused("kernel/events/core.c")
        (self.own / ".git/HEAD").write_text("broken")
        self.refused("git status")

    def test_the_repository_of_a_hook_is_left_alone(self) -> None:
        with mock.patch.dict(os.environ, {"GIT_DIR": "/nowhere", "GIT_AUTHOR_NAME": "a"}):
            self.assertNotIn("GIT_DIR", git.environment())
            self.assertEqual(git.environment(GIT_X="b")["GIT_X"], "b")
            self.assertEqual(git.environment()["GIT_AUTHOR_NAME"], "a")
            self.assertNotEqual(git.isolated()["GIT_AUTHOR_NAME"], "a")

    def test_a_series_that_can_not_be_read(self) -> None:
        self.write(self.top, "patches/series", "[kernel]\ncall.patch two words\n")
        with self.assertRaises(Failure) as caught:
            patches.topics(self.top)
        self.assertIn("line 2", str(caught.exception))

    def test_instruments_are_in_our_trees_and_in_no_series(self) -> None:
        tree = Tree(self.tmp / "build")
        self.assertIn("tools/testing/guest_callchain/Makefile", tree.new_files)
        self.assertNotIn(patches.INSTRUMENTS, patches.posted())
        self.assertNotIn("arch/x86/kvm/stacktrace_v3.c", tree.new_files)
        self.assertIn("arch/x86/kvm/stacktrace_v3.c", Tree(self.tmp, baseline=True).new_files)
        self.assertFalse(Tree(self.tmp, patched=False).new_files)

    def test_a_source_package(self) -> None:
        """A tarball is unpacked once, and must be the right Linux."""
        tarball = self.tmp / "linux.tar.xz"
        subprocess.run(["tar", "-C", str(self.tmp), "-cJf", str(tarball), "own"], check=True)
        tree = Tree(self.tmp / "build", patched=False, instruments=False)
        with contextlib.redirect_stdout(io.StringIO()):
            tree.assemble(Source("linux 1", tarball=tarball))
            (tree.path / "kept").write_text("")
            tree.assemble(Source("linux 1", tarball=tarball))
            self.assertTrue((tree.path / "kept").exists())
            tree.assemble(Source("linux 2", tarball=tarball))
            self.assertFalse((tree.path / "kept").exists())


if __name__ == "__main__":
    unittest.main()
