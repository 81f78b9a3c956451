# SPDX-License-Identifier: GPL-2.0-only
"""Counting what perf test says."""

import unittest

from hostlib import perftests

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


if __name__ == "__main__":
    unittest.main()
