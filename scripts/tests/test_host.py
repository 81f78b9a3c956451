# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the environment that host.py passes to commands."""

import os
import unittest
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
