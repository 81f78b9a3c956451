# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the series, as far as they need no Linux."""

import tempfile
import unittest
from pathlib import Path

from hostlib import series
from hostlib.tree import REPO, apply_patch, new_files, topics


class SeriesTest(unittest.TestCase):
    def test_new_files_become_what_they_are_by_the_patches(self) -> None:
        ours = new_files()
        with tempfile.TemporaryDirectory() as tmp:
            folder = series._first_versions(Path(tmp))
            for topic in topics():
                apply_patch(topic.patch, folder, lambda path: path in ours)
            for path in sorted(ours):
                with self.subTest(path):
                    self.assertEqual((folder / path).read_bytes(), (REPO / path).read_bytes())


if __name__ == "__main__":
    unittest.main()
