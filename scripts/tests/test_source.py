# SPDX-License-Identifier: GPL-2.0-only
"""Tests of finding a kernel's source, and of the advice if there is none."""

import os
import tempfile
import time
import unittest
from pathlib import Path
from threading import Thread
from typing import Any, List, Optional
from unittest import mock

from hostlib import source
from hostlib.ui import Failure


class _FakeApt:
    """An apt whose mirror has some versions of some kernels."""
    found: List[str] = []
    others: List[str] = []
    download_error = ""

    def __init__(self, folder: Path, mirror: str) -> None:
        self.mirror = mirror

    def get(self, *args: str, cwd: Optional[Path] = None) -> str:
        if args[0] == "download" and not self.download_error:
            assert cwd
            version = args[1].split("=")[1]
            (cwd / f"{source.PACKAGE}_{version}_all.deb").write_text("whole")
        elif args[0] == "download":
            assert cwd
            (cwd / f"{source.PACKAGE}_9_all.deb").write_text("half")
            return self.download_error
        return ""

    def cache(self, *args: str) -> str:
        return "".join(f"linux-source-{name} - Linux kernel source\n" for name in self.others)

    def have_lists(self) -> bool:
        return bool(self.others)

    def versions(self) -> List[str]:
        return self.found


class FetchTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.cache = Path(tmp.name)
        self._patch(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": tmp.name}))
        self._patch(mock.patch.object(source, "PrivateApt", _FakeApt))
        self._patch(mock.patch.object(source, "apt_mirror", return_value="mirror"))
        self._patch(mock.patch.multiple(_FakeApt, found=["7.3.4-1", "7.3.1-1"],
                                        others=["7.2", "7.3"], download_error=""))

    def _patch(self, patcher: Any) -> None:
        patcher.start()
        self.addCleanup(patcher.stop)

    def test_takes_the_newest_and_keeps_it(self) -> None:
        found = source.find()
        self.assertEqual(found.name, "linux-source-7.3_7.3.4-1_all")
        with mock.patch.object(_FakeApt, "found", []):
            self.assertEqual(source.find(), found)

    def test_no_network(self) -> None:
        with mock.patch.multiple(_FakeApt, found=[], others=[]):
            with self.assertRaisesRegex(Failure, "can't be reached.*KERNEL_SRC"):
                source.find()

    def test_no_suite_has_it_any_more(self) -> None:
        with mock.patch.multiple(_FakeApt, found=[], others=["7.9", "7.8"]):
            with self.assertRaisesRegex(Failure, "they have linux-source-7.8, "
                                                 "linux-source-7.9; .*KERNEL_SRC=DIR"):
                source.find()

    def test_half_a_download_is_not_taken_for_a_package(self) -> None:
        with mock.patch.object(_FakeApt, "download_error", "E: Connection reset"):
            with self.assertRaisesRegex(Failure, "Connection reset.*run the same command again"):
                source.find()
        self.assertEqual(list((self.cache / "kvm-guest-callchains/sources").glob("*.deb")), [])

    def test_two_runs_at_once(self) -> None:
        inside: List[int] = []
        most = []

        class Slow(_FakeApt):
            def get(self, *args: str, cwd: Optional[Path] = None) -> str:
                inside.append(1)
                time.sleep(0.05)
                most.append(len(inside))
                inside.pop()
                return super().get(*args, cwd=cwd)

        with mock.patch.object(source, "PrivateApt", Slow):
            runs = [Thread(target=source.find) for _ in range(2)]
            for run in runs:
                run.start()
            for run in runs:
                run.join()
        # One thread updates and downloads; the other finds the file that was fetched.
        self.assertEqual(most, [1, 1])


class VersionsTest(unittest.TestCase):
    def test_no_release_candidate(self) -> None:
        rows = "".join(f" {source.PACKAGE} | {version} | http://a sid/main amd64 Packages\n"
                       for version in ("7.3.4-1", "7.3.10-1", "7.3~rc7-1~exp1"))
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(source.PrivateApt, "cache", return_value=rows):
            self.assertEqual(source.PrivateApt(Path(tmp), "mirror").versions(),
                             ["7.3.10-1", "7.3.4-1"])


class MirrorTest(unittest.TestCase):
    def setUp(self) -> None:
        patchers: List[Any] = [mock.patch.object(source.shutil, "which", return_value="/bin/it"),
                               mock.patch.object(source, "KEYRING", Path("/")),
                               mock.patch.dict(os.environ, {"MIRROR": ""})]
        for patcher in patchers:
            patcher.start()
            self.addCleanup(patcher.stop)

    @staticmethod
    def _targets(text: str) -> Any:
        return mock.patch.object(source, "_run", return_value=mock.Mock(stdout=text))

    def test_debian_and_not_its_security_updates(self) -> None:
        with self._targets("http://a/debian-security/ Debian-Security\n"
                           "http://a/debian/ Debian\n"):
            self.assertEqual(source.apt_mirror(), "http://a/debian/")

    def test_before_the_first_update(self) -> None:
        with self._targets("http://a/debian-security \nhttp://a/debian \n"):
            self.assertEqual(source.apt_mirror(), "http://a/debian")

    def test_another_distribution(self) -> None:
        with self._targets("http://a/ubuntu Ubuntu\n"):
            self.assertIsNone(source.apt_mirror())

    def test_mirror_of_the_users(self) -> None:
        with self._targets("http://a/debian/ Debian\n"), \
                mock.patch.dict(os.environ, {"MIRROR": "http://mine/debian/"}):
            self.assertEqual(source.apt_mirror(), "http://mine/debian")

    def test_no_apt(self) -> None:
        with mock.patch.dict(os.environ, {"MIRROR": "http://mine/debian/"}), \
                mock.patch.object(source.shutil, "which", return_value=None):
            self.assertIsNone(source.apt_mirror())


if __name__ == "__main__":
    unittest.main()
