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
    def test_all_that_is_not_ok_fails(self) -> None:
        for status, output, passed, failed in (
                (0, _SECOND % "Ok", 2, 0), (0, _SECOND % "FAILED!", 1, 1),
                (0, _SECOND % "Skip (no permission)", 1, 1), (-11, _SECOND % "Ok", 2, 1),
                # It ended early.
                (0, "", 1, 1), (0, _SECOND % "Running (1 active)", 1, 1),
                (0, "took 3.: a while : Ok\n", 1, 1)):
            with self.subTest(output, status=status):
                counts = perftests.count(_TITLE, status, _FIRST + output)
                self.assertEqual((counts.passed, counts.failed, counts.skipped),
                                 (passed, failed, 0))
                self.assertEqual(len(counts.remarks), failed)
        self.assertEqual(perftests.count(_TITLE, 0, "").failed, 1)

    def test_title_selects_nothing_else(self) -> None:
        """perf test runs every suite whose title contains the given one."""
        for title in perftests._TITLES:
            self.assertEqual([other for other in perftests._TITLES
                              if title.lower() in other.lower()], [title])

    def test_each_title_must_end_well_on_the_host(self) -> None:
        for status, failed in ((f"0 {_TITLE}\n", 0), ("", 1), (f"1 {_TITLE}\n", 1),
                               (f"0 {_TITLE} or so\n", 1)):
            def run(_: EmulatedHost, job: str, folder: Path, _deadline: int,
                    output: Callable[[str], None], said: str = status) -> None:
                self.assertIn(f"perf_test '{_TITLE}'\n", job)
                (folder / f"{_TITLE}.log").write_text(_FIRST + _SECOND % "Ok")
                output(said)

            with tempfile.TemporaryDirectory() as tmp, \
                    mock.patch.object(perftests, "_TITLES",
                                      {_TITLE: 2, perftests._X86_ONLY[0]: 1}), \
                    mock.patch.object(EmulatedHost, "run", run):
                counts = perftests.run_there(mock.Mock(), "tcg", Path(tmp))
            self.assertEqual((counts.passed, counts.failed), (2, failed))
