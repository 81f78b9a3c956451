# SPDX-License-Identifier: GPL-2.0-only
"""Tests of assembling a tree from a source, patches and new files."""

import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Dict
from unittest import mock

from hostlib import series, tree
from hostlib.source import find
from hostlib.tree import INSTRUMENTS, PATCHES, REPO, Tree, apply_patch, new_files, topics
from hostlib.ui import Failure


class TreeTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)

    def test_each_new_file_belongs_to_a_patch(self) -> None:
        self.assertIn("arch/x86/kvm/stacktrace.c", new_files())
        self.assertNotIn("tools/testing/selftests/Makefile", new_files())

    def test_patch_that_does_not_fit_is_named_with_its_place(self) -> None:
        patch = PATCHES / "0017-kvm-selftests-guest-callchain.patch"
        makefile = self.tmp / "wrong/tools/testing/selftests/kvm/Makefile.kvm"
        makefile.parent.mkdir(parents=True)
        makefile.write_text("nothing of what is expected\n")
        with self.assertRaisesRegex(Failure, r"0017-.*\.patch does not apply at "
                                             r"tools/testing/selftests/kvm/Makefile\.kvm:\d+"):
            apply_patch(patch, self.tmp / "wrong")

    def test_message_of_a_patch(self) -> None:
        text = series.message(PATCHES / "0001-kvm-x86-mmu-peek.patch")
        self.assertTrue(text.startswith("KVM: x86/mmu: "))
        self.assertNotIn("diff --git", text)


_DIFF = """diff --git a/a.c b/a.c
--- a/a.c
+++ b/a.c
@@ -{line},3 +{line},3 @@ int {function}(int a,
{blank}
-\treturn 0;
+\treturn 1;
 }}
"""

_FILE = """int f(int a,
      int b)
{
label:

\treturn 0;
}

int g(int a,
      int b)
{

\treturn 0;
}
"""


class MisplacedTest(unittest.TestCase):
    """Tests with a hunk that fits in two functions."""

    def _apply(self, line: int, function: str) -> str:
        with tempfile.TemporaryDirectory(dir=REPO / "patches") as tmp:
            (Path(tmp) / "a.c").write_text(_FILE)
            patch = Path(tmp) / "a.patch"
            patch.write_text(_DIFF.format(line=line, function=function, blank=" "))
            apply_patch(patch, Path(tmp))
            return (Path(tmp) / "a.c").read_text()

    def test_where_it_says(self) -> None:
        for line, function in ((5, "f"), (12, "g"), (6, "f"), (11, "g"), (14, "g")):
            with self.subTest(line=line):
                changed = self._apply(line, function)
                self.assertIn("return 1", changed.split("int g")[function == "g"])

    def test_moved_to_another_function(self) -> None:
        for line, function in ((6, "g"), (11, "f")):
            with self.subTest(line=line), \
                    self.assertRaisesRegex(Failure, r"would change another function at a\.c:\d+"):
                self._apply(line, function)


class SourceTest(unittest.TestCase):
    def test_kernel_src_must_be_a_kernel(self) -> None:
        with self.assertRaisesRegex(Failure, "not the top of a Linux source tree"):
            find(str(REPO))

    def _own(self, tmp: str, makefile: str = "VERSION = 7\nPATCHLEVEL = 3\n") -> Path:
        """Make a tree of the user's own that has nothing to patch."""
        own = Path(tmp) / "own"
        (own / "arch/x86/kvm").mkdir(parents=True)
        (own / "Kbuild").write_text("")
        (own / "Makefile").write_text(makefile)
        return own

    def _refused(self, own: Path, reason: str) -> None:
        """Assert that a tree is refused for this reason and stays unchanged."""
        def files() -> Dict[str, bytes]:
            return {str(path): path.read_bytes() for path in own.rglob("*") if path.is_file()}

        before = files()
        with self.assertRaisesRegex(Failure, reason):
            Tree(own.parent / "build").assemble(find(str(own)))
        self.assertEqual(before, files())

    def test_a_tree_without_what_is_patched(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            self._refused(self._own(tmp), "does not apply at a missing file")

    def test_a_tree_of_another_linux(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            self._refused(self._own(tmp, "VERSION = 7\nPATCHLEVEL = 9\n"),
                          r"own is Linux 7\.9, and the patches are for Linux 7\.3; .*BASE=")
        with tempfile.TemporaryDirectory() as tmp:
            self._refused(self._own(tmp, "all:\n"), r"own is Linux \?\.\?, and")

    def test_a_tree_that_is_patched_in_part(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            own = self._own(tmp)
            mine = Tree(Path(tmp) / "build")
            for path in mine._patched:
                (own / path).parent.mkdir(parents=True, exist_ok=True)
                (own / path).write_text("")
            self._refused(own, "or has a part of the patches already; adapt")

    def test_a_tree_with_new_files_of_ours(self) -> None:
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(tree, "apply_patch"):
            own = self._own(tmp)
            (own / "kernel/events").mkdir(parents=True)
            (own / "kernel/events/callchain_guest.c").write_text("")
            self._refused(own, "has a kernel/events/callchain_guest.c of its own; use a tree "
                               "without these patches")

    def test_a_git_tree_with_changes(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            own = self._own(tmp)
            (own / "kernel/events").mkdir(parents=True)
            (own / "kernel/events/core.c").write_text("")
            for command in (["init", "-q"], ["add", "-A"],
                            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
                subprocess.run(["git", *command], cwd=own, check=True,
                               env=tree.git_environment())
            self._refused(own, "does not apply")
            (own / "kernel/events/core.c").write_text("int a;\n")
            self._refused(own, r"has changes of kernel/events/core\.c that are not committed")
            unpatched = Tree(Path(tmp) / "build", patched=False, instruments=False)
            self.assertEqual(unpatched._changes(own), [])
            (own / ".git/HEAD").write_text("broken")
            self._refused(own, "git status of .*/own failed, it says: fatal")

    def test_who_the_user_is(self) -> None:
        with mock.patch.dict("os.environ", {"GIT_AUTHOR_NAME": "a", "GIT_DIR": "/nowhere"}):
            environment = tree.git_environment(GIT_X="b")
        self.assertEqual(environment["GIT_AUTHOR_NAME"], "a")
        self.assertEqual(environment["GIT_X"], "b")
        self.assertNotIn("GIT_DIR", environment)


class ListingTest(unittest.TestCase):
    def test_instruments_are_in_the_tree_and_not_in_the_series(self) -> None:
        exported, = topics(INSTRUMENTS)
        self.assertIn("tools/testing/guest_callchain/Makefile", exported.new_files)
        self.assertIn(exported, Tree(REPO / "build").topics)
        self.assertNotIn(exported, topics())
        for topic in topics():
            self.assertFalse([path for path in topic.new_files
                              if path.startswith("tools/testing/guest_callchain/")])

    def test_all_patches_are_in_the_series(self) -> None:
        self.assertEqual({topic.patch for topic in topics()}, set(PATCHES.glob("*.patch")))
        self.assertTrue(tree.patched_files())


if __name__ == "__main__":
    unittest.main()
