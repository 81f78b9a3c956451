# SPDX-License-Identifier: GPL-2.0-only
"""Counting what perf test says."""

import unittest

from hostlib import perftests

_OUTPUT = """\
 43: Deferred callchains                        :
 43.1: Join with samples                        : Running (1 active)
 43.1: Join with samples                        : Ok
 43.2: Refuse malformed lengths                 : %s

=== Test Summary ===
Passed subtests   : 2
"""


class CountTest(unittest.TestCase):
    def test_subtests(self) -> None:
        self.assertEqual(str(perftests.count("x", _OUTPUT % "Ok")),
                         "2 passed, 0 failed, 0 skipped")

    def test_failure_and_skip_fail(self) -> None:
        for result in ("FAILED!", "Skip (no permission)"):
            counts = perftests.count("x", _OUTPUT % result)
            self.assertEqual(str(counts), "1 passed, 1 failed, 0 skipped")
            self.assertIn("Refuse malformed lengths", counts.remarks[0])

    def test_nothing_found_fails(self) -> None:
        counts = perftests.count("Gone", "=== Test Summary ===\n")
        self.assertEqual((counts.passed, counts.failed), (0, 1))
        self.assertIn("Gone", counts.remarks[0])


if __name__ == "__main__":
    unittest.main()
