# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the commands in README.md."""

import re
import unittest
from pathlib import Path

from hostlib.bare import readme_commands

_REPO = Path(__file__).resolve().parents[2]
_README = (_REPO / "README.md").read_text()


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
        self.assertIn("make test-bare\n", (_REPO / ".ci/run").read_text())

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
