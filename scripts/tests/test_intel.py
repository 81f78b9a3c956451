# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the Intel host: the output of its job, and how its end is noticed."""

import subprocess
import tempfile
import unittest
from pathlib import Path

from hostlib import bochs, intel


class Job(unittest.TestCase):
    def test_says_how_programs_ended(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            folder = Path(tmp)
            for name, code in (("good", 0), ("x86/bad", 1), ("x86/lacking", 4)):
                program = folder / name
                program.parent.mkdir(exist_ok=True)
                program.write_text(f"#!/bin/sh\necho said by {name}\nexit {code}\n")
                program.chmod(0o755)
            script = intel.job(["good", "x86/bad", "x86/lacking"], 10)
            done = subprocess.run(
                ["sh", "-c", script.replace("/tmp/status", f"{tmp}/status")
                 .replace("cd /selftests", f"cd {tmp}")],
                env={"PATH": "/usr/bin:/bin"},
                stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual([line for line in done.stdout.splitlines() if "selftests" in line
                          and not line.startswith("#")],
                         ["ok 1 selftests: kvm: good",
                          "not ok 2 selftests: kvm: bad # exit=1",
                          "ok 3 selftests: kvm: lacking # SKIP"])
        self.assertIn("# said by good", done.stdout)


class End(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_why_bochs_gave_up(self) -> None:
        log, console = self.folder / "log", self.folder / "console"
        for text, last in (("first\r\nlast words\r\n\r\n", "last words"), ("", "nothing")):
            console.write_text(text)
            self.assertEqual(bochs._last_words(log, console), last)
        log.write_text("00000000000p[SIM   ] >>PANIC<< no SMP here\n")
        self.assertIn("no SMP here", bochs._last_words(log, console))

    def test_end_of_host(self) -> None:
        console, said = self.folder / "console", self.folder / "said"
        for text, output, ended in (
                ("Linux version 7.3\n", "at work\n", False),
                ("Linux version 7.3\n", "at work\nbochs: status 1\n", True),
                ("Linux version 7.3\nKernel panic - not syncing\n", "", True),
                ("Linux version 7.3\nLinux version 7.3\n", "", True)):
            console.write_text(text)
            said.write_text(output)
            self.assertEqual(bochs._ended(console, said), ended, text)
