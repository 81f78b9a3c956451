# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the folders for results: what a run leaves, however it ends."""

import signal
import tempfile
import unittest
from pathlib import Path
from typing import Callable, Dict
from unittest import mock

import host
from hostlib import results
from hostlib.options import Command, Options
from hostlib.ui import Failure


def fail() -> int:
    raise Failure("it failed")


def interrupt() -> int:
    raise KeyboardInterrupt


class ResultsTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.addCleanup(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        # Each run is a process of its own, and takes its locks anew.
        self.enterContext(mock.patch.object(results, "claim"))
        self.folder = Path(tmp.name) / "demo"

    def run_command(self, text: str, end: Callable[[], int]) -> int:
        """Run a command that writes a result, and then ends in some way."""
        def run(options: Options) -> int:
            for name in ("a", text):
                # The folder is empty each time.
                (results.begin(self.folder) / name).write_text(text)
            return end()

        with mock.patch.object(host, "COMMANDS", {"x": Command(run, "x")}), \
                mock.patch.object(host, "need"), mock.patch.object(host.signal, "signal"), \
                mock.patch.object(host, "say"), mock.patch.object(results, "say") as said:
            status = host.main(["x"])
        self.said = " ".join(call.args[0] for call in said.call_args_list)
        return status

    def files(self) -> Dict[str, str]:
        """Return the names of all files, below the folders that they are in."""
        return {str(path.relative_to(self.folder.parent)): path.read_text()
                for path in self.folder.parent.rglob("*") if path.is_file()}

    def test_a_run_that_ends_replaces_the_result(self) -> None:
        for text, status in (("first", 0), ("second", 1)):
            self.assertEqual(self.run_command(text, lambda: status), status)
            self.assertEqual(self.files(), {f"demo/{text}": text})

    def test_an_interrupted_run_changes_nothing(self) -> None:
        self.run_command("first", lambda: 0)
        for _ in range(2):
            self.assertEqual(self.run_command("second", interrupt), 130)
            self.assertEqual(self.files(), {"demo/first": "first"})

    def test_a_failed_run_keeps_its_logs_and_the_last_result(self) -> None:
        self.run_command("first", lambda: 0)
        for text in ("second", "third"):
            self.assertEqual(self.run_command(text, fail), 1)
            self.assertEqual(self.files(), {f"demo/{text}": text, ".demo.last/first": "first"})
            self.assertIn(".demo.last", self.said)
        self.run_command("fourth", interrupt)
        self.assertEqual(self.files(), {"demo/first": "first"})

    def test_a_killed_run_keeps_the_last_result(self) -> None:
        self.run_command("first", lambda: 0)
        (results.begin(self.folder) / "second").write_text("")
        results._begun.clear()
        self.run_command("third", interrupt)
        self.assertEqual(self.files(), {"demo/first": "first"})

    def test_first_run_interrupted(self) -> None:
        self.run_command("first", interrupt)
        self.assertEqual(self.files(), {"demo/first": "first"})
        self.run_command("second", lambda: 0)
        self.assertEqual(self.files(), {"demo/second": "second"})
