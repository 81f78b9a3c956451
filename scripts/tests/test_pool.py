# SPDX-License-Identifier: GPL-2.0-only
"""Tests of getting Debian's packages without apt: from a mirror, checked, or with no mirror."""

import hashlib
import os
import subprocess
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Dict, List
from unittest import mock

from hostlib import guest, pool, source
from hostlib.pool import Pinned
from hostlib.tree import Tree
from hostlib.ui import Failure

_CONTENT = bytes(range(256)) * 100


class _Mirror(BaseHTTPRequestHandler):
    """A mirror that has /pool/a.deb.  Tests can cut its answers short."""
    ranges: List[str] = []
    content = _CONTENT
    limit = len(_CONTENT)

    def do_GET(self) -> None:
        # self.path lacks a second slash at the beginning: use the request as it was sent.
        if self.requestline.split()[1] != "/pool/a.deb":
            self.send_error(404)
            return
        wanted = self.headers.get("Range", "")
        self.ranges.append(wanted)
        start = int(wanted.partition("=")[2].rstrip("-") or 0)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start:self.limit])

    def log_message(self, format: str, *args: object) -> None:
        pass


class FetchTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.folder = Path(tmp.name)
        server = HTTPServer(("127.0.0.1", 0), _Mirror)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01},
                         daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        environment = mock.patch.dict(os.environ, {
            "MIRROR": f"http://127.0.0.1:{server.server_port}/", "no_proxy": "127.0.0.1"})
        environment.start()
        self.addCleanup(environment.stop)
        _Mirror.ranges = []
        _Mirror.content, _Mirror.limit = _CONTENT, len(_CONTENT)

    @staticmethod
    def _package(path: str = "pool/a.deb") -> Pinned:
        return Pinned(path, len(_CONTENT), hashlib.sha256(_CONTENT).hexdigest())

    def test_once(self) -> None:
        package = pool.fetch(self._package(), self.folder)
        self.assertEqual(package, self.folder / "a.deb")
        self.assertEqual(package.read_bytes(), _CONTENT)
        pool.fetch(self._package(), self.folder)
        self.assertEqual(len(_Mirror.ranges), 1)

    def test_mirror_that_ends_with_a_slash(self) -> None:
        url = os.environ.pop("MIRROR")
        self.assertEqual(pool.fetch(self._package(), self.folder, url).read_bytes(), _CONTENT)

    def test_goes_on_from_what_is_there(self) -> None:
        _Mirror.limit = 1000
        with self.assertRaisesRegex(Failure, "closed early.*goes on from what is there"):
            pool.fetch(self._package(), self.folder)
        self.assertFalse((self.folder / "a.deb").exists())
        _Mirror.limit = len(_CONTENT)
        self.assertEqual(pool.fetch(self._package(), self.folder).read_bytes(), _CONTENT)
        self.assertEqual(_Mirror.ranges, ["", "bytes=1000-"])

    def test_another_file_is_removed(self) -> None:
        _Mirror.content = bytes(len(_CONTENT))
        with self.assertRaisesRegex(Failure, "SHA-256 .* and not .*MIRROR=URL"):
            pool.fetch(self._package(), self.folder)
        self.assertEqual([path for path in self.folder.rglob("*") if path.is_file()], [])

    def test_replaced_package(self) -> None:
        with self.assertRaisesRegex(Failure, "404.*snapshot archive.*MIRROR=URL"):
            pool.fetch(self._package("pool/gone.deb"), self.folder)

    def test_a_mirror_must_be_named(self) -> None:
        with mock.patch.dict(os.environ, {"MIRROR": ""}), \
                self.assertRaisesRegex(Failure, "MIRROR=URL.*KERNEL_SRC=DIR"):
            pool.fetch(self._package(), self.folder)

    def test_no_network(self) -> None:
        with mock.patch.dict(os.environ, {"MIRROR": "http://127.0.0.1:1"}), \
                self.assertRaisesRegex(Failure, "check the network"):
            pool.fetch(self._package(), self.folder)

    def test_what_is_fetched_where_there_is_no_apt(self) -> None:
        asked: List[str] = []

        def fetch(package: Pinned, folder: Path) -> Path:
            asked.append(package.name)
            return folder / package.name

        with mock.patch.object(pool, "fetch", fetch), \
                mock.patch.object(source, "apt_mirror", return_value=None), \
                mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder)}):
            found = source.find()
            self.assertEqual(found.name, Path(pool.LINUX_SOURCE.name).stem)
            guest.fetch_modules("bookworm")
            guest.fetch_modules("trixie-backports")
        self.assertEqual(asked, [pool.LINUX_SOURCE.name, pool.KERNELS["bookworm"].name,
                                 pool.KERNELS["trixie-backports"].name,
                                 pool.MODULES["trixie-backports"].name])


class PinnedTest(unittest.TestCase):
    def test_names_are_what_apt_would_fetch(self) -> None:
        self.assertTrue(pool.LINUX_SOURCE.name.startswith(f"{source.PACKAGE}_{source.SERIES}"))
        packages: Dict[str, Pinned] = {**pool.KERNELS}
        for suite, package in packages.items():
            self.assertRegex(package.name, r"^linux-(image|binary)-\d.*-cloud-amd64_.*_amd64\.deb$")
            self.assertEqual(suite in pool.MODULES, package.name.startswith("linux-binary-"))
        for suite, modules in pool.MODULES.items():
            self.assertEqual(modules.name,
                             pool.KERNELS[suite].name.replace("linux-binary-", "linux-modules-"))
        for package in (pool.LINUX_SOURCE, *packages.values(), *pool.MODULES.values()):
            self.assertRegex(package.sha256, "^[0-9a-f]{64}$")


class TarballTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        top = self.tmp / "linux-7.3.9"
        top.mkdir()
        (top / "Kbuild").write_text("")
        (top / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 3\n")
        (top / "new").write_text("content\n")
        self.tarball = self.tmp / "linux-7.3.9.tar.xz"
        subprocess.run(["tar", "-cJf", str(self.tarball), "-C", str(self.tmp), top.name],
                       check=True)

    def test_is_unpacked_once(self) -> None:
        digest = hashlib.sha256(self.tarball.read_bytes()).hexdigest()
        found = source.find("", str(self.tarball), digest.upper())
        tree = Tree(self.tmp / "build", patched=False, instruments=False)
        tree.assemble(found)
        self.assertEqual((tree.path / "new").read_text(), "content\n")
        (tree.path / "new").write_text("kept\n")
        tree.assemble(source.find("", str(self.tarball)))
        self.assertEqual((tree.path / "new").read_text(), "kept\n")

    def test_package_of_debians(self) -> None:
        kept = self.tmp / "package/usr/src" / f"linux-source-{source.SERIES}.tar.xz"
        kept.parent.mkdir(parents=True)
        self.tarball.rename(kept)
        subprocess.run(["tar", "-cJf", "data.tar.xz", "-C", "package", "./usr"], cwd=self.tmp,
                       check=True)
        subprocess.run(["ar", "rc", "a.deb", "data.tar.xz"], cwd=self.tmp, check=True)
        tree = Tree(self.tmp / "build", patched=False, instruments=False)
        tree.assemble(source.Source("a", tarball_package=self.tmp / "a.deb"))
        self.assertEqual((tree.path / "new").read_text(), "content\n")

    def test_of_another_linux(self) -> None:
        tree = Tree(self.tmp / "build", patched=False, instruments=False)
        with mock.patch.object(source, "LINUX", "7.9"), \
                self.assertRaisesRegex(Failure, r"Linux 7\.3, and the patches are for Linux 7\.9"):
            tree.assemble(source.find("", str(self.tarball)))

    def test_wrong_use(self) -> None:
        for arguments, why in ((("", "nowhere", ""), "is no file"),
                               (("", str(self.tarball), "00"), "download it again"),
                               (("dir", str(self.tarball), ""), "use one of them"),
                               (("", "", "00"), "give both")):
            with self.subTest(why), self.assertRaisesRegex(Failure, why):
                source.find(*arguments)


if __name__ == "__main__":
    unittest.main()
