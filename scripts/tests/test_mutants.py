# SPDX-License-Identifier: GPL-2.0-only
"""Tests of choosing mutants, and of the report on them."""

import datetime
import tempfile
import unittest
from pathlib import Path
from typing import List
from unittest import mock

from hostlib import mutants
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
        self.assertEqual(found.host, ("amd", "scripts/configs/debug.config", "kvm_amd.npt=0"))
        self.assertEqual(self._parse(_HEADER.replace("Config:", "Vendor: intel\nConfig:")
                                     + _DIFF).vendor, "intel")
        self.assertEqual((found.arch, self._parse("Arch: arm64\n" + _HEADER + _DIFF).arch),
                         ("x86", "arm64"))
        self.assertEqual(found.survives, "no host shows it")
        self.assertEqual(found.touched, ("kernel/events/core.c",))

    def test_what_is_no_mutant(self) -> None:
        good = _HEADER + _DIFF
        for text, why in ((good.replace("Kargs:", "Args:"), "unknown Args"),
                          (good.replace("Breaks: one", "Kargs: one"), "needs Breaks"),
                          (good.replace("modes_test", "mode_test"), "guest_callchain_mode_test"),
                          (good.replace("debug.config", "gone.config"), "gone.config, is no file"),
                          (good.replace("Kargs:", "Vendor: via\nKargs:"), "neither amd nor intel"),
                          ("Arch: vax\n" + good, "Arch, vax, is not one of x86, arm64"),
                          (good.replace("kernel/events", "tools/perf"), "more than the kernel"),
                          (_HEADER + "not a header\n" + _DIFF, "its diff must begin"),
                          (_HEADER + "\n", "its diff must begin")):
            with self.subTest(why), self.assertRaisesRegex(Failure, f"some.patch is no.*{why}"):
                self._parse(text)

    def test_those_that_there_are(self) -> None:
        self.assertEqual({mutant.arch for mutant in mutants.parse_all()}, {"x86", "arm64"})


class ChooseTest(unittest.TestCase):
    def setUp(self) -> None:
        self.all = [_mutant(name) for name in "abcde"]

    def _names(self, names: str = "", today: str = "", day: int = 1) -> List[str]:
        return [mutant.name for mutant in
                mutants.choose(self.all, names, today, datetime.date.fromordinal(day))]

    def test_all_by_default(self) -> None:
        self.assertEqual(self._names(), list("abcde"))

    def test_by_name(self) -> None:
        self.assertEqual(self._names("d a"), ["a", "d"])
        with self.assertRaisesRegex(Failure, "no mutant x, y; the mutants are: a, b"):
            self._names("a y x")

    def test_all_in_turn_by_day(self) -> None:
        seen = [name for day in range(20, 25) for name in self._names(today="2", day=day)]
        self.assertEqual(sorted(seen), sorted("abcde" * 2))
        self.assertEqual(self._names(today="2", day=20), ["a", "b"])
        self.assertEqual(self._names(today="2", day=21), ["c", "d"])

    def test_more_than_there_are(self) -> None:
        self.assertEqual(sorted(self._names(today="9")), list("abcde"))

    def test_what_is_no_choice(self) -> None:
        for today in ("0", "-1", "all"):
            with self.assertRaisesRegex(Failure, f"TODAY={today} must be a number"):
                self._names(today=today)
        with self.assertRaisesRegex(Failure, "use one of them"):
            self._names("a", "1")


class JudgeTest(unittest.TestCase):
    def _judge(self, passed: str, survives: str = "") -> Verdict:
        return mutants.judge(_mutant(survives=survives), {"a", "b", "c"}, set(passed))

    def test_noticed_by_cases_that_passed_before(self) -> None:
        verdict = self._judge("bx")
        self.assertEqual((verdict.state, verdict.by), (mutants.NOTICED, "a, c"))
        self.assertEqual(self._judge("").by, "a, b and 1 more")

    def test_noticed_by_the_kernel(self) -> None:
        verdict = mutants.judge(_mutant(), {"a"}, Complaint("It says: BUG: x; see there"))
        self.assertEqual((verdict.state, verdict.by), (mutants.NOTICED, "It says: BUG: x"))

    def test_survivors_need_a_reason(self) -> None:
        self.assertEqual(self._judge("abc").state, mutants.SURVIVED)
        self.assertFalse(self._judge("abc").good)
        excused = self._judge("abc", "rare")
        self.assertEqual((excused.state, excused.by), (mutants.EXCUSED, "rare"))
        self.assertTrue(excused.good)

    def test_reason_that_no_longer_holds(self) -> None:
        verdict = self._judge("ab", "rare")
        self.assertEqual((verdict.state, verdict.by), (mutants.STALE, "c"))
        self.assertTrue(verdict.good)

    def test_table(self) -> None:
        text = mutants.table([Verdict(_mutant("z"), mutants.SURVIVED, "none"),
                              Verdict(_mutant("y"), mutants.NOTICED, "a"),
                              Verdict(_mutant("x"), mutants.NOTICED, "b")])
        self.assertEqual(text.splitlines()[:3], ["x: noticed: b", "y: noticed: a",
                                                 "z: SURVIVED: none"])
        self.assertRegex(text, "3 mutants: 2 noticed, .*1 SURVIVED, 0 ERROR$")


class ClockTest(unittest.TestCase):
    def test_seconds_of_each_test(self) -> None:
        clock = Clock(last=10)
        clock.feed("TAP version 13\n# ok 1 some.case\nok 1 selftests: kv", 11)
        clock.feed("m: one_test\n", 12)
        clock.feed("not ok 2 selftests: kvm: two_test # exit=1\n", 17)
        self.assertEqual(clock.seconds, {"one_test": 2, "two_test": 5})


class UnfitTest(unittest.TestCase):
    def test_patch_that_does_not_apply_or_cannot_be_undone(self) -> None:
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(tree_module, "REPO", Path(tmp)):
            tree = mock.Mock(path=Path(tmp), **{"ours.return_value": {"kernel/ours.c"}})
            (tree.path / "kernel").mkdir()
            for name in ("ours.c", "theirs.c"):
                (tree.path / "kernel" / name).write_text("old\n")
            found = []
            for path, old in (("kernel/ours.c", "old"), ("kernel/ours.c", "other"),
                              ("kernel/theirs.c", "old")):
                patch = tree.path / "some.patch"
                patch.write_text(f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
                                 f"@@ -1 +1 @@\n-{old}\n+new\n")
                mutant = Mutant("some", "it", (), "", "amd", "", "", patch, (path,))
                found.append(mutants.unfit([mutant], tree))
            self.assertEqual(found[0], [])
            self.assertRegex(found[1][0].by, "does not apply at kernel/ours.c:1")
            self.assertRegex(found[2][0].by, "theirs.c is neither our file")
            self.assertEqual((tree.path / "kernel/ours.c").read_text(), "old\n")


class FirstFailure(unittest.TestCase):
    def test_ends_a_run(self) -> None:
        watch = mutants.FirstFailure({"walk.irq.stack"})
        watch.feed("# not ok 1 walk.irq.other\n# ok 2 walk.irq.st")
        watch.feed("ack\n# # not ok 3 walk.irq.stack\n# not ok 4 walk")
        with self.assertRaisesRegex(mutants.Noticed, "walk.irq.stack"):
            watch.feed(".irq.stack\n")


if __name__ == "__main__":
    unittest.main()
