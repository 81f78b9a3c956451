# SPDX-License-Identifier: GPL-2.0-only
"""Tests of how host.py begins: with modules to load, and an environment for commands."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from functools import partial
from pathlib import Path
from typing import Dict, List
from unittest import mock

import host
from hostlib.options import Command, Options


class EnvironmentTest(unittest.TestCase):
    def _run(self, *groups: str, **environment: str) -> Dict[str, str]:
        """Return the environment of a command, which needs these groups of packages."""
        found: List[Dict[str, str]] = []

        def run(options: Options) -> int:
            self.assertEqual(options.jobs, 3)
            found.append(dict(os.environ))
            return 0

        with mock.patch.dict(os.environ, {**environment, "JOBS": "3"}), \
                mock.patch.object(host, "COMMANDS", {
                    "x": Command(run, "x", ("jobs", "arch", "vendor"))}), \
                mock.patch.object(host, "need") as need, \
                mock.patch.object(host.signal, "signal"):
            self.assertEqual(host.main(["x"]), 0)
        need.assert_called_once_with(["x", *groups])
        return found[0]

    def test_no_flag_of_the_callers_make_reaches_a_build(self) -> None:
        flags = {name: "-i" for name in ("MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "KCFLAGS",
                                         "KCPPFLAGS", "KAFLAGS", "W")}
        environment = self._run("arm64", **flags, ARCH="arm64", OTHER="kept")
        self.assertEqual(environment.keys() & {"ARCH", *flags}, set())
        self.assertEqual(environment["OTHER"], "kept")

    def test_what_an_intel_host_needs(self) -> None:
        self._run("intel", VENDOR="intel")


class LoadTest(unittest.TestCase):
    def test_ctrl_c_while_modules_load(self) -> None:
        """It ends the program at once and silently, or is ignored if the caller ignores it."""
        with tempfile.TemporaryDirectory() as tmp:
            program = Path(tmp) / "host.py"
            program.write_bytes(Path(host.__file__).read_bytes())
            (program.parent / "hostlib").mkdir()
            (program.parent / "hostlib/__init__.py").write_text(
                "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('on')\nexit(7)\n")
            for handler, ends in ((signal.SIG_DFL, (-signal.SIGINT, "")),
                                  (signal.SIG_IGN, (7, "on\n"))):
                done = subprocess.run(
                    [sys.executable, str(program)], stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True, check=False,
                    preexec_fn=partial(signal.signal, signal.SIGINT, handler))
                self.assertEqual((done.returncode, done.stdout), ends)
