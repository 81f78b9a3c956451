# SPDX-License-Identifier: GPL-2.0-only
"""Tests of getting npm's packages, with a script in place of npm."""

import base64
import hashlib
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib import npm
from hostlib.ui import Failure


class FetchTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "package").mkdir()
        (self.folder / "package/a.js").write_text("text")
        tarball = self.folder / "tarball"
        subprocess.run(["tar", "-czf", str(tarball), "package"], cwd=self.folder, check=True)
        digest = hashlib.sha512(tarball.read_bytes()).digest()
        self.package = npm.Package("a", "1.0.0", base64.b64encode(digest).decode())
        self.enterContext(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder),
                                                       "PATH": str(self.folder)}))

    def _npm(self, script: str) -> None:
        program = self.folder / "npm"
        program.write_text(f"#!/bin/sh\necho \"$*\" >> {self.folder}/calls\n{script}\n")
        program.chmod(0o755)

    def test_is_fetched_once_while_it_is_whole(self) -> None:
        self._npm(f"/bin/cat {self.folder}/tarball > a-1.0.0.tgz")
        for kept in (None, None, b"half"):
            if kept:
                npm.fetch(self.package).write_bytes(kept)
            self.assertEqual(npm.read(self.package, "a.js"), "text")
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual([call.split()[:2] for call in calls], [["pack", "a@1.0.0"]] * 2)
        npm.unpack(self.package, self.folder / "node_modules")
        self.assertEqual((self.folder / "node_modules/a/a.js").read_text(), "text")

    def test_what_fails_says_why_and_keeps_nothing(self) -> None:
        for script, why in (("", "not installed"), ("echo npm ERR! code ENOTFOUND; exit 1",
                                                    "ENOTFOUND"),
                            ("echo other > a-1.0.0.tgz", "SHA-512")):
            if script:
                self._npm(script)
            for _ in range(2):
                with self.subTest(why), self.assertRaises(Failure) as failure:
                    npm.fetch(self.package)
                self.assertIn(why, str(failure.exception))


if __name__ == "__main__":
    unittest.main()
