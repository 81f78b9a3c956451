# SPDX-License-Identifier: GPL-2.0-only
"""Tests of choosing mutants, and of the report on them."""

import tempfile
import unittest
from pathlib import Path
from typing import List
from unittest import mock

from hostlib import mutants, options
from hostlib import tree as tree_module
from hostlib.emulated import Complaint
from hostlib.mutants import Clock, Mutant, Verdict
from hostlib.ui import Failure

_HEADER = """Breaks: one
 thing
Tests: guest_callchain_test guest_callchain_modes_test
Config: scripts/configs/debug.config
Kargs: kvm_amd.npt=0
Survives: no host
 shows it
"""
_DIFF = """
diff --git a/kernel/events/core.c b/kernel/events/core.c
--- a/kernel/events/core.c
+++ b/kernel/events/core.c
@@ -1 +1 @@
-old
+new
"""


def _mutant(name: str = "some", survives: str = "") -> Mutant:
    return Mutant(name, "it", ("guest_callchain_test",), survives, "amd", "", "", Path(name), ())


class ParseTest(unittest.TestCase):
    def _parse(self, text: str) -> Mutant:
        with tempfile.TemporaryDirectory() as tmp:
            patch = Path(tmp) / "some.patch"
            patch.write_text(text)
            return mutants.parse(patch)

    def test_header(self) -> None:
        found = self._parse(_HEADER + _DIFF)
        self.assertEqual((found.name, found.breaks), ("some", "one thing"))
        self.assertEqual(found.tests, ("guest_callchain_test", "guest_callchain_modes_test"))
        self.assertEqual((found.arch, *found.host),
                         ("x86", "amd", "scripts/configs/debug.config", "kvm_amd.npt=0"))
        self.assertEqual(found.survives, "no host shows it")
        self.assertEqual(found.touched, ("kernel/events/core.c",))
        other = self._parse("Arch: arm64\nVendor: intel\n" + _HEADER + _DIFF)
        self.assertEqual((other.arch, other.vendor), ("arm64", "intel"))

    def test_what_is_no_mutant(self) -> None:
        good = _HEADER + _DIFF
        for text, why in ((good.replace("Kargs:", "Args:"), "Args"),
                          (good.replace("Breaks: one", "Kargs: one"), "Breaks"),
                          (good.replace("modes_test", "mode_test"), "guest_callchain_mode_test"),
                          (good.replace("debug.config", "gone.config"), "gone.config"),
                          (good.replace("Kargs:", "Vendor: via\nKargs:"), "via"),
                          ("Arch: vax\n" + good, "vax"),
                          (good.replace("kernel/events", "tools/perf"), "tools/perf"),
                          (_HEADER + "not a header\n" + _DIFF, "diff"),
                          (_HEADER + "\n", "diff")):
            with self.subTest(text), self.assertRaises(Failure) as failure:
                self._parse(text)
            self.assertRegex(str(failure.exception), f"some.patch .*{why}")

    def test_those_that_there_are(self) -> None:
        self.assertEqual({mutant.arch for mutant in mutants.parse_all()}, {"x86", "arm64"})


class ChooseTest(unittest.TestCase):
    def _names(self, names: str = "", today: str = "", day: int = 1) -> str:
        with mock.patch.object(options, "datetime") as clock:
            clock.date.today.return_value.toordinal.return_value = day
            return "".join(mutant.name for mutant in mutants.choose(
                [_mutant(name) for name in "abcde"], names, today))

    def test_all_some_and_those_of_a_day(self) -> None:
        self.assertEqual(self._names(), "abcde")
        self.assertEqual(self._names("d a"), "ad")
        seen = [self._names(today="2", day=day) for day in range(20, 25)]
        self.assertEqual(seen[:2], ["ab", "cd"])
        self.assertEqual(sorted("".join(seen)), sorted("abcde" * 2))
        self.assertEqual(sorted(self._names(today="9")), list("abcde"))

    def test_what_is_no_choice(self) -> None:
        for names, today, why in (("", "0", "TODAY=0"), ("", "-1", "TODAY=-1"),
                                  ("", "all", "TODAY=all"), ("a", "1", "TODAY="),
                                  ("a y x", "", "x, y")):
            with self.subTest(why), self.assertRaises(Failure) as failure:
                self._names(names, today)
            self.assertIn(why, str(failure.exception))


class JudgeTest(unittest.TestCase):
    def test_states(self) -> None:
        """A survivor needs a reason, and it is told which reason no longer holds."""
        for passed, survives, state, by in (("bx", "", mutants.NOTICED, "a, c"),
                                            ("", "", mutants.NOTICED, "a, b and 1 more"),
                                            ("abc", "", mutants.SURVIVED, ""),
                                            ("abc", "rare", mutants.EXCUSED, "rare"),
                                            ("ab", "rare", mutants.STALE, "c")):
            verdict = mutants.judge(_mutant(survives=survives), {"a", "b", "c"}, set(passed))
            self.assertEqual((verdict.state, verdict.good), (state, state != mutants.SURVIVED))
            self.assertIn(by, verdict.by)
        verdict = mutants.judge(_mutant(), {"a"}, Complaint("It says: BUG: x; see there"))
        self.assertEqual((verdict.state, verdict.by), (mutants.NOTICED, "It says: BUG: x"))

    def test_table_has_the_bad_ones_last(self) -> None:
        *lines, last = mutants.table([Verdict(_mutant("z"), mutants.SURVIVED, "none"),
                                      Verdict(_mutant("y"), mutants.NOTICED, "a"),
                                      Verdict(_mutant("x"), mutants.NOTICED, "b")]).splitlines()
        self.assertEqual([line.split(":")[0] for line in lines], ["x", "y", "z"])
        self.assertRegex(last, f"3 .*2 {mutants.NOTICED}, .*1 {mutants.SURVIVED}")


class RunTest(unittest.TestCase):
    def test_seconds_of_each_test(self) -> None:
        clock = Clock(last=10)
        clock.feed("TAP version 13\n# ok 1 some.case\nok 1 selftests: kv", 11)
        clock.feed("m: one_test\n", 12)
        clock.feed("not ok 2 selftests: kvm: two_test # exit=1\n", 17)
        self.assertEqual(clock.seconds, {"one_test": 2, "two_test": 5})

    def test_the_first_failure_of_what_passed_before_ends_it(self) -> None:
        watch = mutants.FirstFailure({"walk.irq.stack"})
        watch.feed("# not ok 1 walk.irq.other\n# ok 2 walk.irq.st")
        watch.feed("ack\n# # not ok 3 walk.irq.stack\n# not ok 4 walk")
        with self.assertRaises(mutants.Noticed):
            watch.feed(".irq.stack\n")

    def test_patch_that_does_not_apply_or_cannot_be_undone(self) -> None:
        tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(tree_module, "REPO", tmp))
        tree = mock.Mock(path=tmp, **{"ours.return_value": {"kernel/ours.c"}})
        (tree.path / "kernel").mkdir()
        for name in ("ours.c", "theirs.c"):
            (tree.path / "kernel" / name).write_text("old\n")
        found: List[List[str]] = []
        for path, old in (("kernel/ours.c", "old"), ("kernel/ours.c", "other"),
                          ("kernel/theirs.c", "old")):
            patch = tree.path / "some.patch"
            patch.write_text(f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
                             f"@@ -1 +1 @@\n-{old}\n+new\n")
            mutant = Mutant("some", "it", (), "", "amd", "", "", patch, (path,))
            found.append([verdict.by for verdict in mutants.unfit([mutant], tree)])
        self.assertEqual(list(map(len, found)), [0, 1, 1])
        self.assertIn("kernel/ours.c", found[1][0])
        self.assertIn("kernel/theirs.c", found[2][0])
        self.assertEqual((tree.path / "kernel/ours.c").read_text(), "old\n")


if __name__ == "__main__":
    unittest.main()
