# SPDX-License-Identifier: GPL-2.0-only
"""Draw a flame graph of folded stacks, or how it has changed, as an SVG that needs nothing else."""

import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple
from xml.etree import ElementTree

import matplotlib
matplotlib.use("svg")
from matplotlib import patches, pyplot  # noqa: E402

from .stacks import GUEST_KERNEL, GUEST_USER, HOST, TASK, UNKNOWN, Frame  # noqa: E402

_SVG = "http://www.w3.org/2000/svg"

# Boxes narrower than this part of the picture are left out.
_NARROWEST = 0.001
_WIDTH_INCHES = 14.0
_ROW_INCHES = 0.22
_CHARS_PER_INCH = 15.0

# A name that is cut to fewer characters is useless.
_FEWEST_CHARS = 4


_Color = Tuple[float, float, float]

# The color of each kind of function, and that of those without a name.
_COLORS: Dict[str, _Color] = {TASK: (0.93, 0.84, 0.55), GUEST_KERNEL: (0.93, 0.55, 0.25),
                              GUEST_USER: (0.45, 0.72, 0.4), HOST: (0.45, 0.62, 0.86)}
_NO_NAME: _Color = (0.8, 0.8, 0.8)

# A share that has grown or shrunk by this much has the full color.
_GREAT_CHANGE = 0.1
_MORE: _Color = (0.85, 0.2, 0.15)
_LESS: _Color = (0.15, 0.35, 0.85)


@dataclass
class Node:
    """A box: its depth, left edge, function, and samples in each profile."""
    depth: int
    left: int
    frame: Any
    counts: List[int]


def tree(profiles: "Sequence[Counter[Tuple[Any, ...]]]") -> List[Node]:
    """Return the boxes of all profiles' stacks, callers first, siblings sorted by name.

    Each box has its number of samples in each profile; its position is that in the first profile.
    """
    nodes: List[Node] = []
    path: List[int] = []
    left = 0
    for stack in sorted(set().union(*profiles)):
        counts = [profile[stack] for profile in profiles]
        same = 0
        while same < min(len(path), len(stack)) and nodes[path[same]].frame == stack[same]:
            same += 1
        del path[same:]
        for frame in stack[same:]:
            nodes.append(Node(len(path), left, frame, [0] * len(profiles)))
            path.append(len(nodes) - 1)
        for number in path:
            nodes[number].counts = [sum(pair) for pair in zip(nodes[number].counts, counts)]
        left += counts[0]
    return nodes


def _mix(one: _Color, other: _Color, part: float) -> _Color:
    red, green, blue = (a + (b - a) * part for a, b in zip(one, other))
    return red, green, blue


def _color(frame: Frame) -> _Color:
    """A shade of the color of the function's kind, always the same for a function."""
    if frame.name == UNKNOWN:
        return _NO_NAME
    # Of code without symbols, the file is known.
    if frame.name.startswith("["):
        return _mix(_COLORS[frame.kind], _NO_NAME, 0.7)
    return _mix(_COLORS[frame.kind], (1, 1, 1), zlib.crc32(frame.name.encode()) / 0xffffffff * 0.35)


def _color_of_change(change: float) -> _Color:
    """Red if the share of all samples has grown, blue if it has shrunk, white if it is the same."""
    return _mix((1, 1, 1), _MORE if change > 0 else _LESS, min(1, abs(change) / _GREAT_CHANGE))


def _legend(kinds: List[str], compared: bool) -> "List[patches.Patch]":
    colors = {"a greater share": _MORE, "a smaller share": _LESS} if compared else {
        **{kind: _COLORS[kind] for kind in _COLORS if kind in kinds}, "no name": _NO_NAME}
    return [patches.Patch(color=color, label=text) for text, color in colors.items()]


def _label(function: str, room: int) -> str:
    """Cut a function's name to so many characters; return "" if too few of its own are left."""
    if len(function) <= room:
        return function
    return function[:room - 2] + ".." if room - 2 >= _FEWEST_CHARS else ""


def write(profiles: "List[Counter[Tuple[Frame, ...]]]", title: str, path: Path) -> None:
    """Draw a profile, or how the first of two differs from the second.

    Each box tells its function and share when pointed at.
    """
    total, *before = [sum(profile.values()) for profile in profiles]
    boxes = [node for node in tree(profiles) if node.counts[0] >= total * _NARROWEST]
    depth = 1 + max((box.depth for box in boxes), default=0)

    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "flamegraph"
    figure, axes = pyplot.subplots(figsize=(_WIDTH_INCHES, _ROW_INCHES * (depth + 2)))
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02,
                           top=1 - 1.5 / (depth + 2))
    axes.set_xlim(0, total or 1)
    axes.set_ylim(0, depth)
    axes.axis("off")
    axes.set_title(title, fontsize=11)

    hints: Dict[str, str] = {}
    for number, box in enumerate(boxes):
        share = box.counts[0] / total
        hint = f"{box.frame.name}: {box.counts[0]} samples, {100 * share:.1f} %"
        color = _color(box.frame)
        if before:
            old = box.counts[1] / before[0]
            hint += f", before {100 * old:.1f} %"
            color = _color_of_change(share - old)
        hints[f"box{number}"] = hint
        bar, = axes.barh(box.depth + 0.5, box.counts[0], left=box.left, height=0.96,
                         color=color, linewidth=0)
        bar.set_gid(f"box{number}")
        text = _label(box.frame.name, int(share * _WIDTH_INCHES * 0.98 * _CHARS_PER_INCH) - 1)
        if text:
            axes.text(box.left + total * 0.001, box.depth + 0.5, text, fontsize=7.5,
                      va="center", family="monospace", clip_on=True, parse_math=False)

    axes.legend(handles=_legend([box.frame.kind for box in boxes], bool(before)), ncol=5,
                loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    _add_hints(path, hints)


def _add_hints(path: Path, hints: Dict[str, str]) -> None:
    """Add the texts that a viewer shows for the box at the pointer; matplotlib can't write them."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    drawing = ElementTree.parse(path)
    for group in drawing.iter(f"{{{_SVG}}}g"):
        hint = hints.get(group.get("id", ""))
        if hint:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = hint
            group.insert(0, title)
    drawing.write(path, encoding="utf-8", xml_declaration=True)
