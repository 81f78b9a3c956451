# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the environment that host.py passes to commands."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List
from unittest import mock

import host
from hostlib.options import Command, Options


class EnvironmentTest(unittest.TestCase):
    def _run(self, **environment: str) -> Dict[str, str]:
        """Return the environment of a command."""
        found: List[Dict[str, str]] = []

        def run(options: Options) -> int:
            self.assertEqual(options.jobs, 3)
            found.append(dict(os.environ))
            return 0

        with mock.patch.dict(os.environ, {**environment, "JOBS": "3"}), \
                mock.patch.object(host, "COMMANDS", {"x": Command(run, "x", ("jobs",))}), \
                mock.patch.object(host.deps, "need"), mock.patch.object(host.signal, "signal"):
            self.assertEqual(host.main(["x"]), 0)
        return found[0]

    def test_no_flag_of_the_callers_make_reaches_a_build(self) -> None:
        flags = {name: "-i" for name in ("MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "KCFLAGS",
                                         "KCPPFLAGS", "KAFLAGS", "W")}
        environment = self._run(**flags, OTHER="kept")
        self.assertEqual(environment.keys() & flags.keys(), set())
        self.assertEqual(environment["OTHER"], "kept")

    def test_a_make_that_goes_on_after_errors(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            (Path(tmp) / "Makefile").write_text("all:\n\t@false\n")
            environment = self._run(MAKEFLAGS="i -j2 --jobserver-auth=98,99")
            done = subprocess.run(["make", "-C", tmp], env=environment, stderr=subprocess.STDOUT,
                                  stdout=subprocess.PIPE, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("jobserver", done.stdout)


if __name__ == "__main__":
    unittest.main()
