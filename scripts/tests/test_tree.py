# SPDX-License-Identifier: GPL-2.0-only
"""Assembling a tree from a source, patches and new files."""

import tempfile
import unittest
from pathlib import Path

from hostlib import series, tree
from hostlib.source import Source, find
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
    """A hunk that fits in two functions."""

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

    def test_callers_tree_stays_as_it_is(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            own = Path(tmp) / "own"
            (own / "arch/x86/kvm").mkdir(parents=True)
            (own / "Kbuild").write_text("")
            before = sorted(str(path) for path in own.rglob("*"))
            with self.assertRaises(Failure):
                # Nothing to patch there: this fails, and must leave no trace.
                Tree(Path(tmp) / "build").assemble(Source(str(own), tree=own))
            self.assertEqual(before, sorted(str(path) for path in own.rglob("*")))


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
