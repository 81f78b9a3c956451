# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the commands in README.md."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import List, Tuple

from hostlib.bare import SUITES, readme_commands

_REPO = Path(__file__).resolve().parents[2]
_README = (_REPO / "README.md").read_text()


def _ci(turn: int, fails: str) -> Tuple[int, List[str]]:
    """Run .ci/run with a make that only notes what is typed, and fails at one command."""
    with tempfile.TemporaryDirectory() as tmp:
        make = Path(tmp) / "make"
        make.write_text(f'#!/bin/sh\necho "$*" >> {tmp}/typed\n[ "$*" != "{fails}" ]\n')
        make.chmod(0o755)
        done = subprocess.run(["bash", str(_REPO / ".ci/run")], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, "TURN": str(turn),
                                   "PATH": f"{tmp}:{os.environ['PATH']}"})
        typed = Path(tmp) / "typed"
        return done.returncode, typed.read_text().splitlines() if typed.exists() else []


class CommandsTest(unittest.TestCase):
    def test_of_one_section_without_comments(self) -> None:
        text = ("## One\n\n    make a     # first\n\ntext\n\n## Two\n\n    make b X='# y'  # z\n"
                "    make c\n\n## Three\n\n    make d\n")
        self.assertEqual(readme_commands(text, "Two"), ["make b X='# y'", "make c"])
        self.assertEqual(readme_commands(text, "Three"), ["make d"])
        self.assertEqual(readme_commands(text, "T"), [])

    def test_ci_runs_what_a_reader_tries(self) -> None:
        self.assertEqual(readme_commands(_README, "Try it"),
                         ["make demo", "make test"])
        typed = [line for turn in range(5) for line in _ci(turn, "")[1]]
        for suite in SUITES:
            self.assertIn(f"test-bare SUITE={suite}", typed)

    def test_ci_fails_with_the_last_command_of_each_turn(self) -> None:
        for turn in range(5):
            status, typed = _ci(turn, "")
            self.assertEqual(status, 0)
            self.assertNotEqual(_ci(turn, typed[-1])[0], 0)

    def test_ci_has_no_other_turn(self) -> None:
        self.assertNotEqual(_ci(5, "")[0], 0)

    def test_make_knows_all_targets(self) -> None:
        targets = set(re.findall(r"^([a-z-]+):", (_REPO / "Makefile").read_text(), re.MULTILINE))
        for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "patches/README.md",
                     "results/README.md"):
            for target in re.findall(r"(?:`|^    +)make ([a-z][a-z-]*)",
                                     (_REPO / page).read_text(), re.MULTILINE):
                self.assertIn(target, targets, page)

    def test_links_lead_somewhere(self) -> None:
        for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md"):
            for link in re.findall(r"\]\((?!http)([^)#]+)", (_REPO / page).read_text()):
                self.assertTrue((_REPO / page).parent.joinpath(link).exists(), f"{page}: {link}")
