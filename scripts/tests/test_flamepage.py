# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the interactive flame graph: a hostile guest's names can't change the page."""

import base64
import hashlib
import json
import re
import tempfile
import unittest
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, List, Tuple
from unittest import mock

from hostlib import flamepage, npm
from hostlib.stacks import GUEST_KERNEL, GUEST_USER, Frame

_HOSTILE = ("</script><script>alert(1)</script>", "<!--<script>", "a\u2028b", "{{code}}", "\ud800",
            "&lt;", "\"'\\")


class _Page(HTMLParser):
    """The scripts of a page, and how many tags there are."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: List[Tuple[Dict[str, Any], str]] = []
        self.policy = ""
        self.tags = 0
        self._inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags += 1
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append((dict(attrs), ""))
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data


def _read(package: npm.Package, member: str) -> str:
    return f"/* {package.name} {member} */"


class PageTest(unittest.TestCase):
    def _write(self, *profiles: "Counter[Tuple[Frame, ...]]", title: str = "title") -> _Page:
        page = _Page()
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(npm, "read", _read):
            flamepage.write(list(profiles), title, Path(folder) / "a.html")
            text = (Path(folder) / "a.html").read_text("utf-8")
        page.feed(text)
        self.assertNotIn("\u2028", text)
        return page

    def test_names_are_data(self) -> None:
        plain = self._write(Counter({(Frame("a", GUEST_USER),): 1}))
        stack = tuple(Frame(name, GUEST_KERNEL) for name in _HOSTILE)
        page = self._write(Counter({stack: 1}))
        self.assertEqual(page.tags, plain.tags)
        attributes, text = page.scripts[0]
        self.assertEqual(attributes, {"type": "application/json", "id": "data"})
        self.assertEqual(tuple(json.loads(text)["names"]), _HOSTILE)
        self.assertIsNone(re.search("[<>&]", text))

    def test_a_title_is_text(self) -> None:
        profile: "Counter[Tuple[Frame, ...]]" = Counter({(Frame("a", GUEST_USER),): 1})
        self.assertEqual(self._write(profile, title="</title><script>").tags,
                         self._write(profile).tags)

    def test_nothing_runs_but_our_scripts(self) -> None:
        page = self._write(Counter({(Frame("a", GUEST_USER),): 1}))
        run = [text for attributes, text in page.scripts if not attributes]
        self.assertEqual(len(run), 3)
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
                  for text in run]
        self.assertEqual(page.policy, "default-src 'none'; style-src 'unsafe-inline'; script-src "
                         + " ".join(f"'sha256-{value}'" for value in hashes))

    def test_boxes_are_rows(self) -> None:
        new: "Counter[Tuple[Frame, ...]]" = Counter({(Frame("a", GUEST_USER),
                                                      Frame("b", GUEST_KERNEL)): 3})
        old: "Counter[Tuple[Frame, ...]]" = Counter({(Frame("a", GUEST_USER),): 5})
        data = json.loads(self._write(new, old).scripts[0][1])
        self.assertEqual(data["totals"], [3, 5])
        self.assertEqual([[parent, data["names"][name], data["kinds"][kind], *counts]
                          for parent, name, kind, *counts in data["nodes"]],
                         [[-1, "a", GUEST_USER, 3, 5], [0, "b", GUEST_KERNEL, 3, 0]])


if __name__ == "__main__":
    unittest.main()
