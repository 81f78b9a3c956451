# SPDX-License-Identifier: GPL-2.0-only
"""Tests of counting the results of selftests, and of which ones may skip."""

import subprocess
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Tuple
from unittest import mock

from hostlib import selftests
from hostlib.arch import ARM64, X86, Arch
from hostlib.build import CONFIGS, INSTRUMENT_TESTS, TEST_32BIT, Build
from hostlib.selftests import ExpectedSkip, expected_skips
from hostlib.source import Source
from hostlib.ui import Failure

_LIST = """# where, which, why
!debug,lockdep	modes.*.smm	there is no SMM
no5lvl	*_5_level.*	no 5-level paging
"""


def count(results: List[Tuple[str, str]], *patterns: str) -> selftests.Counts:
    tests = [SimpleNamespace(name=name, status=SimpleNamespace(name=status), skip_reason="why")
             for name, status in results]
    with mock.patch.object(selftests, "cases", return_value=tests):
        return selftests.count("", Path(), [ExpectedSkip(p, "why") for p in patterns])


class CountTest(unittest.TestCase):
    def test_unexpected_skip_fails(self) -> None:
        counts = count([("a.irq.x", "SUCCESS"), ("a.nmi.x", "SKIPPED")], "b.*")
        self.assertEqual(str(counts), "1 passed, 1 failed, 0 skipped")
        self.assertIn("failed, because it was skipped unexpectedly: a.nmi.x: why", counts.remarks)

    def test_expected_skip_does_not(self) -> None:
        counts = count([("a.irq.x", "SUCCESS"), ("a.nmi.x", "SKIPPED")], "a.nmi.*")
        self.assertEqual(str(counts), "1 passed, 0 failed, 1 skipped")

    def test_expected_skip_that_runs_is_reported(self) -> None:
        counts = count([("a.nmi.x", "SUCCESS")], "a.nmi.*", "b.*")
        self.assertEqual(counts.failed, 0)
        self.assertEqual(len(counts.remarks), 1)
        self.assertRegex(counts.remarks[0], r"no longer skipped.*: a\.nmi\.\*")


class LimitsTest(unittest.TestCase):
    def _limits(self, arch: Arch, timeout: int = 0, deadline: int = 0) -> Tuple[str, int]:
        """Return the timeout of the job's tests, and the job's deadline."""
        build: Any = SimpleNamespace(arch=arch, tests=["a_test"])
        host = mock.Mock()
        host.return_value.run.return_value = SimpleNamespace(status=0)
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(selftests, "EmulatedHost", host):
            selftests.run(build, "tcg", Path(tmp), timeout=timeout, deadline=deadline)
        job, _, used, _ = host.return_value.run.call_args.args
        return job.split("kselftest_override_timeout=")[1].split()[0], used

    def test_a_callers_limits_are_kept(self) -> None:
        for arch in (X86, ARM64):
            self.assertEqual(self._limits(arch, 40, 100), ("40", 100))

    def test_arm64_has_more_time(self) -> None:
        self.assertEqual(self._limits(X86), ("900", 3600))
        self.assertEqual(self._limits(ARM64), ("2700", 10800))


class JudgeTest(unittest.TestCase):
    def test_what_does_not_hold_fails_and_is_named(self) -> None:
        counts = selftests.judge("demo", {"holds": True, "does not": False})
        self.assertEqual(str(counts), "1 passed, 1 failed, 0 skipped")
        self.assertEqual(counts.remarks, ["failed: demo: does not"])


class ChooseTest(unittest.TestCase):
    def _build(self, folder: str, config: str) -> Build:
        build = Build(Path(folder), Source("any"), None)
        build.kernel.mkdir(parents=True)
        (build.kernel / ".config").write_text(config)
        return build

    def test_32_bit_program_needs_a_kernel_that_runs_it(self) -> None:
        for config, runs in (("CONFIG_IA32_EMULATION=y\n", True),
                             ("# CONFIG_IA32_EMULATION is not set\n", False)):
            with tempfile.TemporaryDirectory() as tmp:
                tests = selftests.choose(self._build(tmp, config), "")
            self.assertEqual(TEST_32BIT in tests, runs)
            self.assertIn(INSTRUMENT_TESTS[0], tests)

    def test_debug_host_runs_it(self) -> None:
        config = (CONFIGS / "debug.config").read_text()
        with tempfile.TemporaryDirectory() as tmp:
            self.assertIn(TEST_32BIT, self._build(tmp, config).tests)

    def test_some(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            build = self._build(tmp, "")
            self.assertEqual(selftests.choose(build, "guest_callchain_test"),
                             ["guest_callchain_test"])
            with self.assertRaisesRegex(Failure, "no test x; its tests are guest_callchain_test"):
                selftests.choose(build, "guest_callchain_test x")


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
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.path = Path(tmp.name) / "list"
        self.path.write_text(_LIST)

    def test_list_depends_on_the_host(self) -> None:
        self.assertEqual(expected_skips("tcg", "quiet", self.path),
                         [ExpectedSkip("modes.*.smm", "there is no SMM")])
        patterns = [e.pattern for e in expected_skips("tcg", "no5lvl quiet", self.path) or []]
        self.assertEqual(patterns, ["modes.*.smm", "*_5_level.*"])
        for name in ("debug", "lockdep"):
            self.assertEqual(expected_skips("tcg", f"quiet {name}", self.path), [])

    def test_several_conditions(self) -> None:
        self.path.write_text("arm64+!debug\tmidwalk.*\tno kprobes\n")
        for host, may_skip in (("arm64", True), ("arm64 debug", False), ("x86", False)):
            self.assertEqual(bool(expected_skips("tcg", host, self.path)), may_skip, host)

    def test_this_machines_cpu_may_lack_anything(self) -> None:
        self.assertIsNone(expected_skips("kvm", "", self.path))

    def test_committed_list(self) -> None:
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


if __name__ == "__main__":
    unittest.main()
