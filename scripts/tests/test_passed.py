# SPDX-License-Identifier: GPL-2.0-only
"""Tests of remembering the results of earlier runs."""

import tempfile
import unittest
from pathlib import Path

from hostlib.passed import Passed, digest


class PassedTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.path = Path(tmp.name) / "check" / "passed.json"

    def test_is_kept_at_once(self) -> None:
        passed = Passed(self.path)
        passed.add("a")
        passed.add("b", ["note"])
        again = Passed(self.path)
        self.assertIn("a", again)
        self.assertEqual((again.notes("a"), again.notes("b"), again.notes("c")),
                         ([], ["note"], None))

    def test_is_forgotten_without_a_file(self) -> None:
        passed = Passed(None)
        passed.add("a", ["note"])
        self.assertEqual(passed.notes("a"), ["note"])
        self.assertNotIn("a", Passed(None))

    def test_a_file_that_is_cut_off_is_none(self) -> None:
        self.path.parent.mkdir()
        self.path.write_text('{"a": [')
        self.assertNotIn("a", Passed(self.path))

    def test_texts_that_differ_have_other_digests(self) -> None:
        self.assertEqual(digest("a", "b"), digest("a", "b"))
        self.assertEqual(len({digest("a", "b"), digest("ab"), digest("b", "a"), digest()}), 4)


if __name__ == "__main__":
    unittest.main()
