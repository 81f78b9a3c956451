# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the boxes of flame graphs, and of the static picture."""

import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import List, Tuple
from xml.etree import ElementTree

from hostlib import flamegraph
from hostlib.stacks import GUEST_KERNEL, GUEST_USER, HOST, Frame

_FOLDED = Counter({("[unknown]",): 1, ("do_syscall_64", "vfs_write", "rep_movs"): 2})


class TreeTest(unittest.TestCase):
    def _boxes(self, *profiles: "Counter[Tuple[str, ...]]") -> List[Tuple[int, int, int, str]]:
        return [(node.depth, node.left, node.counts[-1], node.frame)
                for node in flamegraph.tree(profiles)]

    def test_callers_lie_below_callees_and_are_as_wide(self) -> None:
        self.assertEqual(self._boxes(_FOLDED), [
            (0, 0, 1, "[unknown]"), (0, 1, 2, "do_syscall_64"),
            (1, 1, 2, "vfs_write"), (2, 1, 2, "rep_movs")])

    def test_siblings_share_their_caller(self) -> None:
        folded = Counter({("a", "b"): 1, ("a", "c"): 2, ("a",): 4, ("b", "b"): 8})
        self.assertEqual(self._boxes(folded), [
            (0, 0, 7, "a"), (1, 4, 1, "b"), (1, 5, 2, "c"), (0, 7, 8, "b"), (1, 7, 8, "b")])

    def test_each_profile_is_counted_and_the_first_one_places(self) -> None:
        nodes = flamegraph.tree([Counter({("a",): 1, ("c",): 2}), Counter({("b",): 4, ("c",): 8})])
        self.assertEqual([(node.frame, node.left, node.counts) for node in nodes],
                         [("a", 0, [1, 0]), ("b", 1, [0, 4]), ("c", 1, [2, 8])])


class LabelTest(unittest.TestCase):
    def test_a_name_that_has_no_room_is_left_out(self) -> None:
        self.assertEqual([flamegraph._label("vfs_write", room) for room in (9, 8, 6, 5, 0, -1)],
                         ["vfs_write", "vfs_wr..", "vfs_..", "", "", ""])
        self.assertEqual(flamegraph._label("rb", 2), "rb")


class PictureTest(unittest.TestCase):
    def test_all_names_are_text(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.svg"
            names = ("$\\frac$", "<script>alert(1)</script>", "a & b")
            frames = tuple(Frame(name, GUEST_KERNEL) for name in names)
            flamegraph.write([Counter({frames: 1})], "title", path)
            drawn = [element.text for element in ElementTree.parse(path).iter()
                     if element.tag.endswith("}text")]
        self.assertEqual(sorted(drawn), sorted((*names, "title", GUEST_KERNEL, "no name")))

    def test_colors(self) -> None:
        kernel, user, unknown = (flamegraph._color(Frame(name, kind)) for name, kind in (
            ("f", GUEST_KERNEL), ("f", GUEST_USER), ("[unknown]", GUEST_USER)))
        self.assertGreater(kernel[0], kernel[1])
        self.assertGreater(user[1], user[0])
        self.assertEqual(len(set(unknown)), 1)
        self.assertEqual(flamegraph._color_of_change(0), (1, 1, 1))
        for change, most in ((0.05, 0), (-0.05, 2), (1, 0), (-1, 2)):
            color = flamegraph._color_of_change(change)
            self.assertEqual(color.index(max(color)), most)

    def test_a_difference_tells_both_shares(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.svg"
            one, other = ((Frame(name, HOST),) for name in "ab")
            flamegraph.write([Counter({one: 3, other: 1}), Counter({one: 1, other: 3})], "", path)
            hints = [element.text for element in ElementTree.parse(path).iter()
                     if element.tag.endswith("}title")]
        hints = [hint for hint in hints if hint and hint.startswith("a:")]
        self.assertIn("75.0 %", str(hints[0]))
        self.assertIn("before 25.0 %", str(hints[0]))
