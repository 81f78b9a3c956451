# SPDX-License-Identifier: GPL-2.0-only
"""Tests of another architecture's packages: their choice, and when they are unpacked."""

import tempfile
import unittest
from pathlib import Path
from typing import Dict, List
from unittest import mock

from hostlib import foreign, source
from hostlib.ui import Failure

_SIMULATED = """NOTE: This is only a simulation!
Inst bash (5.2.37-2+b10 Debian:13.6/stable [arm64]) []
Inst libcap2 (1:2.75-10+deb13u1+b3 Debian:13.6/stable, Debian-Security:13/stable-security [arm64])
Inst libc6:arm64 (2.41-12 Debian:13.6/stable [arm64])
Inst linux-libc-dev (6.12.117-1 Debian:13.6/stable [all])
Conf bash (5.2.37-2+b10 Debian:13.6/stable [arm64])
"""


class Apt(unittest.TestCase):
    def test_names_of_archives(self) -> None:
        self.assertEqual(source.archive_names(_SIMULATED), [
            "bash_5.2.37-2+b10_arm64.deb", "libcap2_1%3a2.75-10+deb13u1+b3_arm64.deb",
            "libc6_2.41-12_arm64.deb", "linux-libc-dev_6.12.117-1_all.deb"])

    def _options(self, architecture: str) -> str:
        with tempfile.TemporaryDirectory() as tmp:
            apt = source.PrivateApt(Path(tmp), "http://a/debian", ("trixie",), architecture)
            listed = (Path(tmp) / "sources.list").read_text()
            self.assertTrue(listed.startswith(f"deb [arch={architecture} "), listed)
            return " ".join(apt._options)

    def test_knows_nothing_of_what_is_installed_here(self) -> None:
        self.assertNotIn("APT::Architecture", self._options("amd64"))
        self.assertNotIn("status", self._options("amd64"))
        self.assertIn("APT::Architecture=arm64", self._options("arm64"))
        self.assertRegex(self._options("arm64"), "Dir::State::status=/.*/status")


class Fetch(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.folder = Path(tmp.name) / "arm64"
        (self.folder / "archives").mkdir(parents=True)
        self.enterContext(mock.patch.object(source, "cache_dir", return_value=Path(tmp.name)))
        self.apt = mock.Mock()
        self.apt.get.return_value = ""
        self.enterContext(mock.patch.object(source, "PrivateApt", return_value=self.apt))
        self.mirror = self.enterContext(mock.patch.object(source, "apt_mirror",
                                                          return_value="http://a/debian"))

    def _downloads(self, *names: str) -> List[Path]:
        found = [self.folder / "archives" / name for name in names]
        for path in found:
            path.write_text("")
        self.apt.download_all.return_value = found
        return found

    def test_once(self) -> None:
        found = self._downloads("a.deb", "b.deb")
        for _ in range(2):
            self.assertEqual(foreign.fetch("arm64", ("a",)), found)
        self.apt.download_all.assert_called_once()

    def test_again_if_one_is_gone_or_others_are_wanted(self) -> None:
        found = self._downloads("a.deb", "b.deb")
        foreign.fetch("arm64", ("a",))
        found[1].unlink()
        foreign.fetch("arm64", ("a",))
        self._downloads("a.deb", "b.deb")
        foreign.fetch("arm64", ("a", "b"))
        self.assertEqual(self.apt.download_all.call_count, 3)

    def test_says_why_not(self) -> None:
        self.apt.download_all.return_value = []
        self.apt.get.return_value = "Ign:1\nE: could not resolve a\n"
        with self.assertRaisesRegex(Failure, "could not resolve a.*check the network"):
            foreign.fetch("arm64", ("a",))
        self.mirror.return_value = None
        with self.assertRaisesRegex(Failure, "install apt.*MIRROR=URL"):
            foreign.fetch("arm64", ("a",))


class Unpack(unittest.TestCase):
    def test_base_first_and_only_if_they_differ(self) -> None:
        unpacked: List[List[str]] = []

        def run(_title: str, argv: List[str], _log: Path) -> None:
            unpacked.append([Path(path).name for path in argv[6:]])

        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(foreign, "run_logged", run):
            root, log = Path(tmp) / "root", Path(tmp) / "log"
            packages: Dict[str, Path] = {name: Path(tmp) / f"{name}_1_arm64.deb"
                                         for name in ("bash", "base-files", "dash")}
            for chosen in (("bash", "base-files"), ("bash", "base-files"),
                           ("bash", "base-files", "dash")):
                foreign.unpack([packages[name] for name in chosen], root, log)
                self.assertTrue(root.is_dir())
        self.assertEqual(unpacked, [
            ["base-files_1_arm64.deb", "bash_1_arm64.deb"],
            ["base-files_1_arm64.deb", "bash_1_arm64.deb", "dash_1_arm64.deb"]])


if __name__ == "__main__":
    unittest.main()
