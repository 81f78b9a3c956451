# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the series, as far as they need no Linux."""

import tempfile
import unittest
from pathlib import Path

from hostlib import series
from hostlib.tree import PATCHES, REPO, apply_patch, new_files, topics


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

    def test_each_patch_is_in_one_of_three_series(self) -> None:
        parts = series.parts()
        self.assertEqual([part[0].series for part in parts], ["fixes", "kernel", "tools"])
        # "git am" takes one after the other, so that what is between them is in order.
        self.assertEqual([topic for part in parts for topic in part], topics())

    def test_cover_letters_are_as_wide_as_mails_are(self) -> None:
        covers = sorted(PATCHES.glob("cover-*.txt"))
        self.assertEqual([cover.stem for cover in covers],
                         [f"cover-{part[0].series}" for part in series.parts()])
        for cover in covers:
            subject, empty, *_ = lines = cover.read_text().splitlines()
            self.assertTrue(subject, cover.name)
            self.assertEqual(empty, "", cover.name)
            self.assertLessEqual(max(map(len, lines)), 79, cover.name)


if __name__ == "__main__":
    unittest.main()
