# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the other kernels that the series supports."""

import shutil
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from hostlib import bases, source
from hostlib.tree import REPO
from hostlib.ui import Failure


class FoldersTest(unittest.TestCase):
    def test_each_has_its_line_and_applies(self) -> None:
        folders = bases.folders()
        self.assertIn("7.2", folders)
        for name, folder in folders.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as tmp:
                version, package = source.read_base(folder / "base")
                assert package
                self.assertTrue(name.startswith(version))
                self.assertIn(f"/linux-source-{version}_", package.path)
                self.assertRegex(package.sha256, "^[0-9a-f]{64}$")
                self.assertEqual({path.suffix for path in folder.iterdir()} - {".diff"}, {""})
                for part in ("patches", "scripts/guest", "tools/testing/selftests"):
                    shutil.copytree(REPO / part, Path(tmp) / part)
                bases.apply(folder, Path(tmp))
                self.assertEqual((Path(tmp) / source.THIS_BASE).read_text(),
                                 (folder / "base").read_text())

    def test_this_repository_is_none(self) -> None:
        self.assertEqual(source.read_base(REPO / "no such file"), (source.SERIES, None))

    def test_file_that_has_changed(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            base = Path(tmp) / "v7.2"
            base.mkdir()
            (base / "base").write_text("")
            (base / "a.diff").write_text("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+b\n")
            (Path(tmp) / "a").write_text("another\n")
            with self.assertRaisesRegex(Failure, "patches/v7.2/a.diff does not apply"):
                bases.apply(base, Path(tmp))

    def test_unknown(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            with self.assertRaisesRegex(Failure, "BASE=1.0 is unknown, known are 7.2, "):
                bases.run("1.0", Path(tmp) / "build", ["series"], {})
            self.assertEqual(list(Path(tmp).iterdir()), [])


class RunTest(unittest.TestCase):
    def test_arguments_that_are_for_the_copy(self) -> None:
        self.assertEqual(bases.without(
            ["test", "--base", "7.2", "--kargs=--base=1", "--build=x", "--jobs", "2"],
            "--base", "--build"), ["test", "--kargs=--base=1", "--jobs", "2"])

    def test_runs_in_a_copy(self) -> None:
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(bases, "REPO", Path(tmp) / "repo"), \
                mock.patch.object(bases, "_find", return_value=Path(tmp) / "v7.2"), \
                mock.patch.object(bases, "_copy", return_value=Path("/copy")) as copy, \
                mock.patch.object(bases.subprocess, "run",
                                  return_value=SimpleNamespace(returncode=3)) as run:
            self.assertEqual(bases.run("7.2", Path(tmp) / "build", ["test", "--base=7.2"],
                                       {"BASE": "7.2", "ACCEL": "tcg"}), 3)
            self.assertEqual(copy.call_args[0][1:], (
                Path(tmp) / "build/base-7.2", Path(tmp) / "repo/results/latest/base-7.2"))
            self.assertEqual(run.call_args[0][0][1:], ["/copy/scripts/host.py", "test"])
            self.assertEqual(run.call_args[1]["env"], {
                "BASE": "", "ACCEL": "tcg", "BUILD": f"{tmp}/build/base-7.2"})


if __name__ == "__main__":
    unittest.main()
