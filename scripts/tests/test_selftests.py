# SPDX-License-Identifier: GPL-2.0-only
"""Tests of counting the results of selftests, and of which ones may skip."""

import subprocess
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Callable, List, Tuple
from unittest import mock

from hostlib import selftests
from hostlib.build import CONFIGS, INSTRUMENT_TESTS, TEST_32BIT, Build
from hostlib.emulated import Outcome
from hostlib.selftests import ExpectedSkip, expected_skips
from hostlib.source import Source
from hostlib.ui import Failure

_LIST = """# where, which, why
!debug,lockdep	modes.*.smm	there is no SMM
no5lvl	*_5_level.*	no 5-level paging
arm64+!debug	midwalk.*	no kprobes
"""


def count(results: List[Tuple[str, str]], *patterns: str) -> selftests.Counts:
    tests = [SimpleNamespace(name=name, status=SimpleNamespace(name=status), skip_reason="why")
             for name, status in results]
    with mock.patch.object(selftests, "cases", return_value=tests):
        return selftests.count("", Path(), [ExpectedSkip(p, "why") for p in patterns])


class CountTest(unittest.TestCase):
    def test_only_expected_skips_may_be(self) -> None:
        both = [("a.irq.x", "SUCCESS"), ("a.nmi.x", "SKIPPED")]
        for results, patterns, counted, remark in (
                (both, ("b.*",), (1, 1, 0), "a.nmi.x"), (both, ("a.nmi.*",), (1, 0, 1), "a.nmi.x"),
                # One that runs is reported.
                ([("a.nmi.x", "SUCCESS")], ("a.nmi.*", "b.*"), (1, 0, 0), "a.nmi.*"),
                ([("a.nmi.x", "FAILURE")], (), (0, 1, 0), "a.nmi.x")):
            counts = count(results, *patterns)
            self.assertEqual((counts.passed, counts.failed, counts.skipped), counted)
            self.assertEqual([remark in said for said in counts.remarks], [True])

    def test_what_does_not_hold_fails_and_is_named(self) -> None:
        counts = selftests.judge("demo", {"holds": True, "does not": False})
        self.assertEqual((counts.passed, counts.failed), (1, 1))
        self.assertIn("demo: does not", counts.remarks[0])


class KeepTest(unittest.TestCase):
    def test_what_was_said_is_kept_however_the_job_ends(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for text, status, ends in (("ok 1 a\n", 0, True), ("ok 1 a\nnot ok 2 b\n", 1, True),
                                   ("ok 1 a\n", 1, False)):
            def job(output: Callable[[str], None], said: str = text, code: int = status) -> Outcome:
                output(said)
                return Outcome(code, folder)

            if ends:
                self.assertEqual(selftests.keep(folder, lambda _: None, job), text)
            else:
                self.assertRaises(Failure, selftests.keep, folder, lambda _: None, job)
            self.assertEqual((folder / "selftests.ktap").read_text(), text)


class ChooseTest(unittest.TestCase):
    def test_what_this_kernel_runs_of_what_is_named(self) -> None:
        for config, runs_32bit in (("CONFIG_IA32_EMULATION=y\n", True),
                                   ((CONFIGS / "debug.config").read_text(), True),
                                   ("# CONFIG_IA32_EMULATION is not set\n", False)):
            with tempfile.TemporaryDirectory() as tmp:
                build = Build(Path(tmp), Source("any"), None)
                build.kernel.mkdir(parents=True)
                (build.kernel / ".config").write_text(config)
                tests = selftests.choose(build, "")
                self.assertEqual(TEST_32BIT in tests, runs_32bit)
                self.assertIn(INSTRUMENT_TESTS[0], tests)
                self.assertEqual(selftests.choose(build, "guest_callchain_test"),
                                 ["guest_callchain_test"])
                with self.assertRaises(Failure) as failure:
                    selftests.choose(build, "guest_callchain_test x")
                self.assertIn(" x;", str(failure.exception))


class ByProgramTest(unittest.TestCase):
    @staticmethod
    def _program(name: str, status: str, *cases: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, status=SimpleNamespace(name=status), subtests=[
            SimpleNamespace(name=f"case {i}", status=SimpleNamespace(name=case), subtests=[])
            for i, case in enumerate(cases)])

    def test_program_that_fails_as_it_ends(self) -> None:
        programs = [self._program("selftests: kvm: a", "FAILURE", "SUCCESS"),
                    self._program("selftests: kvm: b", "FAILURE", "SUCCESS", "FAILURE"),
                    self._program("", "FAILURE"), self._program("", "SUCCESS")]
        parser = SimpleNamespace(parse_run_tests=lambda *_: SimpleNamespace(subtests=programs))
        with mock.patch.dict("sys.modules", kunit_parser=parser,
                             kunit_printer=SimpleNamespace(null_printer=None)):
            found = selftests.by_program("", Path())
        self.assertEqual({name: [case.status.name for case in cases]
                          for name, cases in found.items()},
                         {"a": ["SUCCESS", "FAILURE"], "b": ["SUCCESS", "FAILURE"],
                          "?": ["FAILURE", "SUCCESS"]})


class ExpectedSkipsTest(unittest.TestCase):
    def test_list_depends_on_the_host(self) -> None:
        path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "list"
        path.write_text(_LIST)
        smm, level5, midwalk = (ExpectedSkip(*line.split("\t")[1:])
                                for line in _LIST.splitlines()[1:])
        for host, expected in (("quiet", [smm]), ("no5lvl quiet", [smm, level5]),
                               ("quiet debug", []), ("quiet lockdep", []),
                               ("arm64", [smm, midwalk]), ("arm64 debug", [])):
            self.assertEqual(expected_skips("tcg", host, path), expected, host)
        # This machine's CPU may lack anything.
        self.assertIsNone(expected_skips("kvm", "", path))
        self.assertIsNotNone(expected_skips("tcg", "no5lvl"))


class JobTest(unittest.TestCase):
    def test_status_is_of_what_failed(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            folder = Path(tmp) / "tools/testing/selftests/kselftest"
            folder.mkdir(parents=True)
            # Each test's name is its exit status.
            (folder / "runner.sh").write_text(
                'run_one() { return "$2"; }\nktap_print_header() { :; }\n'
                "ktap_set_plan() { :; }\n")
            for tests, status in ((["0", "4"], 0), (["4"], 0), (["1", "0"], 1), (["0", "124"], 1)):
                done = subprocess.run(
                    ["sh", "-c", selftests.job(tests, 10).replace("/sys/kernel/debug", tmp)],
                    env={"PATH": "/usr/bin:/bin", "BUILD_TREE": tmp, "BUILD_SELFTESTS": tmp},
                    check=False)
                self.assertEqual(done.returncode, status, tests)
