# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the series that need no source of Linux."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List
from unittest import mock

from hostlib import series
from hostlib.source import Source
from hostlib.tree import PATCHES, REPO, apply_patch, new_files, topics
from hostlib.ui import Failure


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
        # "git am" applies one part after the other, so their patches must be in this order.
        self.assertEqual([topic for part in parts for topic in part], topics())

    def test_the_repository_has_a_mail_for_each_patch(self) -> None:
        subjects = []
        for mail in sorted(series.RELEASE.rglob("*.patch")):
            head = re.sub(r"\n ", " ", mail.read_text().split("\n\n", 1)[0])
            subjects += re.findall(r"^Subject: \[PATCH[^]]*\] (.*)$", head, re.MULTILINE)
        self.assertEqual(subjects, [series.message(topic.patch).splitlines()[0]
                                    for topic in topics()])

    def test_mails_that_are_stale(self) -> None:
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(series, "RELEASE", Path(tmp) / "ours"):
            for name, ours, fresh in (("same", "a", "a"), ("edited", "a", "b"),
                                      ("gone", "a", None), ("new", None, "a")):
                for folder, text in (("ours", ours), ("fresh", fresh)):
                    path = Path(tmp) / folder / "1-fixes" / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if text:
                        path.write_text(text)
            # The file "source" names the source that the mails were written with; it is no mail.
            (Path(tmp) / "ours" / "source").write_text("linux_1\n")
            self.assertEqual(series.stale(Path(tmp) / "fresh"),
                             ["1-fixes/edited", "1-fixes/gone", "1-fixes/new"])

    def test_a_base_has_no_release(self) -> None:
        # The base 7.3-rc7 has the same version as 7.3, but another package.
        with mock.patch.object(series, "PINNED", mock.Mock()), \
                mock.patch.object(series, "write") as write, \
                self.assertRaisesRegex(Failure, "RELEASE=1"):
            series.release(mock.Mock(), Path())
        write.assert_not_called()

    def test_a_source_of_the_users_has_no_release(self) -> None:
        for source in (Source("/a", tree=Path("/a")), Source("a", tarball=Path("/a.tar.xz"))):
            with mock.patch.object(series, "PINNED", None), \
                    mock.patch.object(series, "RELEASE", Path("/none/series")), \
                    mock.patch.object(series, "write") as write, \
                    self.assertRaisesRegex(Failure, "Debian's source.*KERNEL_SRC= and KERNEL_TAR"):
                series.release(source, Path())
            write.assert_not_called()

    def test_a_release_is_whole_or_the_one_before(self) -> None:
        def write(source: Source, build: Path, folder: Path, release: bool) -> List[Path]:
            (folder / "1-fixes").mkdir()
            (folder / "1-fixes" / "0001.patch").write_text(source.name)
            return [folder / "1-fixes"]

        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(series, "RELEASE", Path(tmp) / "series"), \
                mock.patch.object(series, "PINNED", None), \
                mock.patch.object(series, "write", write):
            for name in ("linux_1", "linux_2"):
                self.assertEqual(series.release(Source(name), Path()),
                                 [Path(tmp) / "series" / "1-fixes"])
                self.assertEqual((series.RELEASE / "1-fixes" / "0001.patch").read_text(), name)
                self.assertEqual(series.made_with(), name)
                self.assertEqual(series.RELEASE.stat().st_mode & 0o777, 0o755)
                self.assertEqual(os.listdir(tmp), ["series"])
            with mock.patch.object(series.shutil, "copytree", side_effect=OSError), \
                    self.assertRaises(OSError):
                series.release(Source("linux_3"), Path())
            self.assertEqual((series.RELEASE / "1-fixes" / "0001.patch").read_text(), "linux_2")

    def test_the_repository_knows_its_source(self) -> None:
        self.assertTrue(series.made_with())

    def test_a_release_is_the_same_whoever_writes_it(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            said = []
            for name, date in (("A", "2001-01-01T00:00:00"), ("B", "2002-02-02T00:00:00")):
                environment = {"HOME": tmp, "GIT_AUTHOR_NAME": name, "GIT_COMMITTER_NAME": name,
                               "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
                with mock.patch.dict(os.environ, environment):
                    said.append(self._mails(Path(tmp) / name))
        self.assertEqual(*said)
        self.assertNotIn("Signed-off-by", said[0]["0001-a.patch"])
        self.assertIn("From: Guest callchains <nobody@example.com>", said[0]["0001-a.patch"])

    def test_the_repository_of_a_hook_is_left_alone(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            mine = Path(tmp) / "mine"
            subprocess.run(["git", "init", "-q", str(mine)], check=True)
            before = sorted(path for path in mine.rglob("*"))
            with mock.patch.dict(os.environ, {"GIT_DIR": str(mine / ".git"),
                                              "GIT_INDEX_FILE": str(mine / ".git" / "index")}):
                self.assertIn("0001-a.patch", self._mails(Path(tmp) / "ours"))
            self.assertEqual(sorted(path for path in mine.rglob("*")), before)

    def _mails(self, folder: Path) -> Dict[str, str]:
        """Return the mails of a release that has the second of a repository's two commits."""
        repo = series.Repository(folder, release=True)
        folder.mkdir()
        repo.git("init", "-q")
        for text in ("a", "b"):
            (folder / "file").write_text(f"{text}\n")
            repo.git("add", "-A")
            repo.git("commit", "-q", "-m", text if text != "b" else "a")
        repo.git("config", "branch.master.description", "cover\n\ntext")
        repo.format_patches(folder / "mails", "HEAD~1..HEAD")
        return {mail.name: mail.read_text() for mail in (folder / "mails").iterdir()}

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
