# SPDX-License-Identifier: GPL-2.0-only
"""Tests of remembering the results of earlier runs."""

import tempfile
import unittest
from pathlib import Path

from hostlib.passed import Passed, digest


class PassedTest(unittest.TestCase):
    def test_is_kept_at_once(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory())) / "check" / "passed"
        passed = Passed(folder)
        passed.add("a")
        passed.add("b", ["one note", "another"])
        again = Passed(folder)
        self.assertIn("a", again)
        self.assertNotIn("c", again)
        self.assertEqual((again.notes("a"), again.notes("b"), again.notes("c")),
                         ([], ["one note", "another"], None))

    def test_texts_that_differ_have_other_digests(self) -> None:
        self.assertEqual(digest("a", "b"), digest("a", "b"))
        self.assertEqual(len({digest("a", "b"), digest("ab"), digest("b", "a"), digest()}), 4)


if __name__ == "__main__":
    unittest.main()
