# SPDX-License-Identifier: GPL-2.0-only
"""Tests of counting the results of perf test."""

import tempfile
import unittest
from pathlib import Path
from typing import Callable
from unittest import mock

from hostlib import perftests
from hostlib.emulated import EmulatedHost

_TITLE = "Deferred callchains"
_FIRST = """\
 43: Deferred callchains                        :
 43.1: Join with samples                        : Running (1 active)
 43.1: Join with samples                        : Ok
"""
_SECOND = " 43.2: Refuse malformed lengths                 : %s\n"


class CountTest(unittest.TestCase):
    def test_all_pass(self) -> None:
        counts = perftests.count(_TITLE, 0, _FIRST + _SECOND % "Ok")
        self.assertEqual(str(counts), "2 passed, 0 failed, 0 skipped")

    def test_failure_and_skip_fail(self) -> None:
        for result in ("FAILED!", "Skip (no permission)"):
            counts = perftests.count(_TITLE, 0, _FIRST + _SECOND % result)
            self.assertEqual(str(counts), "1 passed, 1 failed, 0 skipped")
            self.assertIn("Refuse malformed lengths", counts.remarks[0])

    def test_early_end_fails(self) -> None:
        for output in ("", _FIRST, _FIRST + _SECOND % "Running (1 active)",
                       _FIRST + "took 3.: a while : Ok\n"):
            counts = perftests.count(_TITLE, 0, output)
            self.assertEqual(counts.failed, 1)
            self.assertIn(_TITLE, counts.remarks[0])

    def test_exit_status_counts(self) -> None:
        counts = perftests.count(_TITLE, -11, _FIRST + _SECOND % "Ok")
        self.assertEqual(counts.failed, 1)


class ThereTest(unittest.TestCase):
    def _run(self, status: str) -> str:
        """Return the counts if the host runs the tests of one title and prints this status."""
        def run(_: EmulatedHost, job: str, folder: Path, _deadline: int,
                output: Callable[[str], None]) -> None:
            self.assertIn(f"perf_test '{_TITLE}'\n", job)
            (folder / f"{_TITLE}.log").write_text(_FIRST + _SECOND % "Ok")
            output(status)

        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(perftests, "_TITLES", {_TITLE: 2, perftests._X86_ONLY[0]: 1}), \
                mock.patch.object(EmulatedHost, "run", run):
            return str(perftests.run_there(mock.Mock(), "tcg", Path(tmp)))

    def test_counts_what_the_host_says(self) -> None:
        self.assertEqual(self._run(f"0 {_TITLE}\n"), "2 passed, 0 failed, 0 skipped")

    def test_title_that_did_not_end_well_fails(self) -> None:
        for status in ("", f"1 {_TITLE}\n", f"0 {_TITLE} or so\n"):
            self.assertEqual(self._run(status), "2 passed, 1 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
