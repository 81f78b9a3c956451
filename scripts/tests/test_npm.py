# SPDX-License-Identifier: GPL-2.0-only
"""Tests of getting npm's packages, and of the messages if that fails."""

import base64
import hashlib
import io
import os
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib import npm
from hostlib.ui import Failure


def _tarball(text: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo("package/a.js")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return out.getvalue()


class FetchTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.folder = Path(tmp.name)
        patcher = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": tmp.name, "PATH": tmp.name})
        patcher.start()
        self.addCleanup(patcher.stop)
        self.tarball = _tarball(b"text")
        digest = hashlib.sha512(self.tarball).digest()
        self.package = npm.Package("a", "1.0.0", base64.b64encode(digest).decode())

    def _npm(self, script: str) -> None:
        """Install this script as npm.  It logs its calls."""
        (self.folder / "tarball").write_bytes(self.tarball)
        program = self.folder / "npm"
        program.write_text(f"#!/bin/sh\necho \"$*\" >> {self.folder}/calls\n{script}\n")
        program.chmod(0o755)

    def _calls(self) -> int:
        return len((self.folder / "calls").read_text().splitlines())

    def test_fetches_once(self) -> None:
        self._npm(f"/bin/cat {self.folder}/tarball > a-1.0.0.tgz")
        self.assertEqual(npm.read(self.package, "a.js"), "text")
        self.assertEqual(npm.read(self.package, "a.js"), "text")
        self.assertEqual(self._calls(), 1)
        self.assertIn("pack a@1.0.0", (self.folder / "calls").read_text())

    def test_what_is_kept_is_checked(self) -> None:
        self._npm(f"/bin/cat {self.folder}/tarball > a-1.0.0.tgz")
        npm.fetch(self.package).write_bytes(b"half")
        self.assertEqual(npm.read(self.package, "a.js"), "text")

    def test_another_package_is_refused(self) -> None:
        self._npm("echo other > a-1.0.0.tgz")
        for _ in range(2):
            with self.assertRaisesRegex(Failure, "a 1.0.0 has another SHA-512"):
                npm.fetch(self.package)

    def test_no_network(self) -> None:
        self._npm("echo npm ERR! code ENOTFOUND; exit 1")
        with self.assertRaisesRegex(Failure, r"can't fetch a 1.0.0 \(ENOTFOUND\); .*network"):
            npm.fetch(self.package)

    def test_no_npm(self) -> None:
        with self.assertRaisesRegex(Failure, "not installed; install it"):
            npm.fetch(self.package)

    def test_unpacks_to_where_node_looks(self) -> None:
        self._npm(f"/bin/cat {self.folder}/tarball > a-1.0.0.tgz")
        npm.unpack(self.package, self.folder / "node_modules")
        self.assertEqual((self.folder / "node_modules/a/a.js").read_text(), "text")


if __name__ == "__main__":
    unittest.main()
