# SPDX-License-Identifier: GPL-2.0-only
"""Tests of packages that a real apt downloads, from a small mirror of Debian in a folder."""

import hashlib
import os
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import List
from unittest import mock

from hostlib import check, deb, guest, source
from hostlib.ui import Failure

_KERNEL = "linux-image-cloud-amd64"


@unittest.skipUnless(shutil.which("apt-get") and deb.KEYRING.exists(), "apt and its keyring")
class MirrorCase(unittest.TestCase):
    def setUp(self) -> None:
        tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.mirror = tmp / "mirror"
        self.mirror.mkdir()
        # Nobody has signed this mirror.
        (tmp / "apt.conf").write_text('Acquire::AllowInsecureRepositories "true";\n'
                                      'APT::Get::AllowUnauthenticated "true";\n')
        self.enterContext(mock.patch.dict(os.environ, {
            "MIRROR": f"file:{self.mirror}/", "APT_CONFIG": str(tmp / "apt.conf"),
            "XDG_CACHE_HOME": str(tmp / "cache")}))
        # The mirror lacks some of these, as Debian's does.
        self.enterContext(mock.patch.object(source, "SUITES", ("forky", "sid", "experimental")))
        self.cache = tmp / "cache/kvm-guest-callchains"

    def add(self, suite: str, name: str, version: str = "1", depends: str = "",
            architecture: str = "amd64") -> Path:
        """Add a package to the mirror, and return its file."""
        package = self.mirror / "pool" / f"{name}_{version}_{architecture}.deb"
        package.parent.mkdir(exist_ok=True)
        package.write_text(f"{name} {version}")
        top = self.mirror / "dists" / suite
        listing = top / f"main/binary-{architecture}/Packages"
        listing.parent.mkdir(parents=True, exist_ok=True)
        with listing.open("a") as out:
            out.write(f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
                      + (f"Depends: {depends}\n" if depends else "")
                      + f"Filename: pool/{package.name}\nSize: {package.stat().st_size}\n"
                      f"SHA256: {hashlib.sha256(package.read_bytes()).hexdigest()}\n\n")
        content = listing.read_bytes()
        (top / "Release").write_text(
            f"Codename: {suite}\nArchitectures: {architecture}\nComponents: main\nSHA256:\n "
            f"{hashlib.sha256(content).hexdigest()} {len(content)} {listing.relative_to(top)}\n")
        return package

    def kept(self) -> List[str]:
        return sorted(path.name for path in self.cache.glob("**/*.deb"))


class SourceTest(MirrorCase):
    def test_newest_release_once(self) -> None:
        for suite, version in (("forky", "7.3.9-1"), ("sid", "7.3.10-1"),
                               ("experimental", "7.3.11~rc1-1")):
            self.add(suite, source.PACKAGE, version)
        found = source.find()
        self.assertEqual(found.name, f"{source.PACKAGE}_7.3.10-1_amd64")
        assert found.tarball_package
        self.assertEqual(found.tarball_package.read_text(), f"{source.PACKAGE} 7.3.10-1")
        shutil.rmtree(self.mirror)
        self.assertEqual(source.find(), found)

    def test_no_suite_has_it_any_more(self) -> None:
        for name in ("7.8", "7.10"):
            self.add("sid", f"linux-source-{name}")
        with self.assertRaisesRegex(Failure, "linux-source-7.8, linux-source-7.10.*KERNEL_SRC="):
            source.find()

    def test_no_mirror(self) -> None:
        with self.assertRaisesRegex(Failure, "check the network.*KERNEL_SRC="):
            source.find()

    def test_broken_download(self) -> None:
        package = self.add("sid", source.PACKAGE)
        whole = package.read_text()
        package.write_text(whole[:-1] + "x")
        with self.assertRaisesRegex(Failure, "check the network.*KERNEL_SRC="):
            source.find()
        self.assertEqual(list((self.cache / "sources").glob("*.deb")), [])
        package.write_text(whole)
        assert (found := source.find().tarball_package)
        self.assertEqual(found.read_text(), whole)

    def test_interrupted_download(self) -> None:
        self.add("sid", source.PACKAGE)
        # This apt is ended while it downloads.
        program = self.mirror / "apt-get"
        program.write_text('#!/bin/sh\nfor word; do test "$word" != download || {\n'
                           f'echo half > {source.PACKAGE}_1_amd64.deb; kill -9 $$; }}; done\n'
                           f'exec {shutil.which("apt-get")} "$@"\n')
        program.chmod(0o755)
        with mock.patch.dict(os.environ, {"PATH": f"{self.mirror}:{os.environ['PATH']}"}), \
                self.assertRaises(Failure):
            source.find()
        assert (found := source.find().tarball_package)
        self.assertEqual(found.read_text(), f"{source.PACKAGE} 1")

    def test_no_apt(self) -> None:
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}), \
                self.assertRaisesRegex(Failure, "install apt.*KERNEL_SRC="):
            source.find()


class NewerTest(MirrorCase):
    def test_only_what_is_newer_and_released(self) -> None:
        series = [int(part) for part in source.SERIES.split(".")]
        older, newer, newest = (f"{series[0]}.{series[1] + more}" for more in (-1, 7, 8))
        for name in (older, source.SERIES, "", "7.3-rt"):
            self.add("sid", f"linux-source-{name}".rstrip("-"), "9.9-1")
        self.add("experimental", f"linux-source-{newest}", f"{newest}~rc1-1~exp1")
        self.assertEqual(check._newest(), check.Result("newest Linux"))
        # As a string, 7.10 would be older than 7.3.
        self.add("sid", f"linux-source-{newer}", f"{newer}.1-1")
        remark = check._newest()
        self.assertIn(f"linux-source-{newer}:", remark.to_mend[0])
        self.assertEqual(remark.complaints, [])

    def test_no_network(self) -> None:
        result = check._newest()
        self.assertIn("network", result.not_tried)
        self.assertEqual(result.complaints, [])


class KernelTest(MirrorCase):
    def test_newest_that_the_suite_depends_on(self) -> None:
        self.add("bookworm", _KERNEL, depends="linux-image-6.1.0-50-cloud-amd64")
        self.add("bookworm", "linux-image-6.1.0-49-cloud-amd64")
        self.add("bookworm", "linux-image-6.1.0-50-cloud-amd64", depends="kmod, linux-base")
        self.add("trixie", _KERNEL, depends="linux-image-6.12-cloud-amd64")
        kernel, modules = guest.fetch("bookworm")
        self.assertEqual(kernel.read_text(), "linux-image-6.1.0-50-cloud-amd64 1")
        self.assertEqual(modules, kernel)
        shutil.rmtree(self.mirror)
        self.assertEqual(guest.fetch("bookworm"), (kernel, kernel))

    def test_modules_of_their_own(self) -> None:
        self.add("trixie-backports", _KERNEL, depends="linux-image-7.3+deb13-cloud-amd64")
        self.add("trixie-backports", "linux-image-7.3+deb13-cloud-amd64", depends="kmod | dracut, "
                 "linux-modules-7.3+deb13-cloud-amd64, linux-binary-7.3+deb13-cloud-amd64")
        for kind in ("binary", "modules"):
            self.add("trixie-backports", f"linux-{kind}-7.3+deb13-cloud-amd64")
        both = guest.fetch("trixie-backports")
        self.assertEqual([path.read_text().split("-")[1] for path in both], ["binary", "modules"])
        shutil.rmtree(self.mirror)
        self.assertEqual(guest.fetch("trixie-backports"), both)
        both[1].unlink()
        with self.assertRaisesRegex(Failure, "GUEST=own"):
            guest.fetch("trixie-backports")

    def test_another_architecture(self) -> None:
        package = "linux-image-6.1.0-50-cloud-arm64"
        self.add("bookworm", "linux-image-cloud-arm64", "1", package, "arm64")
        self.add("bookworm", package, "1", "", "arm64")
        self.assertEqual(guest.fetch("bookworm", "arm64")[0].name, f"{package}_1_arm64.deb")
        # Without a kernel for amd64, there is an alternative.
        with self.assertRaisesRegex(Failure, "GUEST=own"):
            guest.fetch("bookworm")

    def test_gone(self) -> None:
        self.add("bookworm", "other")
        with self.assertRaisesRegex(Failure, f"bookworm has no {_KERNEL}"):
            guest.fetch("bookworm")
        self.add("bookworm", _KERNEL, depends="linux-image-6.1.0-50-cloud-amd64")
        self.add("bookworm", "linux-image-6.1.0-50-cloud-amd64").unlink()
        with self.assertRaisesRegex(Failure, "run the same command again"):
            guest.fetch("bookworm")
        self.assertEqual(self.kept(), [])


class OwnMirrorTest(unittest.TestCase):
    def test_debians_and_not_another(self) -> None:
        for labelled, every, expected in (
                ("http://a/debian/\nhttp://b/debian\n", "", "http://a/debian"),
                ("", "http://c/other\nhttp://d/debian/\n", "http://d/debian"),
                ("", "http://c/other\n", "")):
            said = [mock.Mock(stdout=labelled), mock.Mock(stdout=every)]
            with self.subTest(expected), mock.patch.dict(os.environ, {"MIRROR": ""}), \
                    mock.patch.object(deb, "_run", side_effect=said):
                if expected:
                    self.assertEqual(deb.mirror(), expected)
                else:
                    self.assertRaises(Failure, deb.mirror)
