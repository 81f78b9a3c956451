# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the messages of a command that fails."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib.ui import Failure, claim, explain, host_folder, run_logged


class HostFolderTest(unittest.TestCase):
    def test_name(self) -> None:
        self.assertEqual(host_folder("amd", None, ""), "")
        self.assertEqual(host_folder("intel", Path("configs/debug.config"), "a=1,b  c"),
                         "intel-debug-a=1+b-c")


class ExplainTest(unittest.TestCase):
    def setUp(self) -> None:
        self.log = Path(self.enterContext(tempfile.TemporaryDirectory())) / "log"

    def test_first_error_of_a_compiler(self) -> None:
        self.log.write_text("CC a.o\na.c:1: error: first\na.c:2: error: second\nmake: *** [x]\n")
        self.assertIn("a.c:1: error: first", explain(self.log))
        self.assertNotIn("second", explain(self.log))

    def test_full_disk(self) -> None:
        self.log.write_text("tar: linux/x: Cannot write: No space left on device\n")
        self.assertIn("disk is full", explain(self.log))
        # It may have no room to say so.
        self.log.write_text("")
        with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=0)):
            self.assertIn("disk is full", explain(self.log))

    def test_failing_command_names_its_log(self) -> None:
        with self.assertRaises(Failure) as failure:
            run_logged("Try this", ["sh", "-c", "echo no such luck; exit 1"], self.log)
        for word in ("Try this", "no such luck", str(self.log)):
            self.assertIn(word, str(failure.exception))

    def test_second_run_is_told_of_the_first(self) -> None:
        folder = self.log.parent / "build"
        claim(folder)
        claim(folder)
        with mock.patch.dict("hostlib.ui._claims", clear=True), \
             self.assertRaises(Failure) as failure:
            claim(folder)
        self.assertIn(str(folder), str(failure.exception))
