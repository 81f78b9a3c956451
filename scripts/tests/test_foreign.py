# SPDX-License-Identifier: GPL-2.0-only
"""Tests of another architecture's user space: when it is made, and when it is unpacked."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib import foreign
from hostlib.ui import Failure

# Stands for mmdebstrap: the tarball has a file with the options.  $BROKEN: stop halfway.
_FAKE = """#!/bin/sh -e
for tarball; do case $tarball in *.tar.gz) break ;; esac; done
echo half > "$tarball"
test -z "$BROKEN" || { echo "E: Failed to fetch a"; exit 1; }
mkdir -p "$TMPDIR/root"
echo "$@" > "$TMPDIR/root/options"
tar -czf "$tarball" -C "$TMPDIR/root" .
"""


class Foreign(unittest.TestCase):
    def setUp(self) -> None:
        self.tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ, {
            "XDG_CACHE_HOME": str(self.tmp), "MIRROR": "http://a/debian", "BROKEN": "",
            "PATH": f"{self.tmp}:{os.environ['PATH']}"}))
        self.program = self.tmp / "mmdebstrap"
        self.program.write_text(_FAKE)
        self.program.chmod(0o755)
        self.root = self.tmp / "build/root"

    def _options(self, *packages: str) -> str:
        foreign.unpack(foreign.fetch("arm64", packages), self.root, self.tmp / "log")
        return (self.root / "options").read_text()

    def test_is_made_and_unpacked_once(self) -> None:
        options = self._options("a", "b")
        for part in ("--architectures=arm64", "--include=a,b", "trixie", "http://a/debian"):
            self.assertIn(part, options.split())
        self.program.write_text("#!/bin/false\n")
        (self.root / "kept").touch()
        self.assertEqual(self._options("a", "b"), options)
        self.assertTrue((self.root / "kept").exists())
        # After "make clean", what was downloaded is still there.
        (self.root / "options").unlink()
        self.root.rename(self.tmp / "gone")
        self.assertEqual(self._options("a", "b"), options)

    def test_other_packages(self) -> None:
        self._options("a")
        (self.root / "old").touch()
        self.assertIn("--include=a,b", self._options("a", "b"))
        self.assertFalse((self.root / "old").exists())

    def test_half_a_tarball_is_not_taken_for_a_whole(self) -> None:
        with mock.patch.dict(os.environ, {"BROKEN": "1"}), \
                self.assertRaisesRegex(Failure, "Failed to fetch a; check the network"):
            self._options("a")
        self.assertIn("--include=a", self._options("a"))

    def test_half_a_root_is_not_taken_for_a_whole(self) -> None:
        tarball = foreign.fetch("arm64", ("a",))
        whole = tarball.read_bytes()
        tarball.write_bytes(whole[:-20])
        with self.assertRaises(Failure):
            self._options("a")
        tarball.write_bytes(whole)
        self.assertIn("--include=a", self._options("a"))
