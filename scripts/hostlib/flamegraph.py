# SPDX-License-Identifier: GPL-2.0-only
"""Draw a flame graph of folded stacks, as an SVG that needs nothing else."""

import zlib
from collections import Counter
from pathlib import Path
from typing import Dict, List, Tuple
from xml.etree import ElementTree

import matplotlib
matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

_SVG = "http://www.w3.org/2000/svg"

# Boxes narrower than this part of the picture are left out.
_NARROWEST = 0.001
_WIDTH_INCHES = 14.0
_ROW_INCHES = 0.22
_CHARS_PER_INCH = 15.0

# A box: depth, left edge in samples, width in samples, function.
Box = Tuple[int, int, int, str]


def layout(folded: "Counter[Tuple[str, ...]]") -> List[Box]:
    """Place the boxes: callers below callees, siblings by name."""
    boxes: List[Box] = []

    def place(stacks: Dict[Tuple[str, ...], int], depth: int, left: int) -> None:
        children: Dict[str, Dict[Tuple[str, ...], int]] = {}
        for stack, count in stacks.items():
            if stack:
                children.setdefault(stack[0], {})[stack[1:]] = count
        for function in sorted(children):
            width = sum(children[function].values())
            boxes.append((depth, left, width, function))
            place(children[function], depth + 1, left)
            left += width

    place(dict(folded), 0, 0)
    return boxes


def _color(function: str) -> Tuple[float, float, float]:
    """A warm color, always the same for a function; grey if it has no name."""
    if function == "[unknown]":
        return (0.8, 0.8, 0.8)
    value = zlib.crc32(function.encode()) / 0xffffffff
    return (0.87 + 0.1 * value, 0.35 + 0.45 * value, 0.2 + 0.15 * value)


def write(folded: "Counter[Tuple[str, ...]]", title: str, path: Path) -> None:
    """Draw a flame graph; each box tells its function and share when pointed at."""
    total = sum(folded.values())
    boxes = [box for box in layout(folded) if box[2] >= total * _NARROWEST]
    depth = 1 + max((box[0] for box in boxes), default=0)

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
    for number, (row, left, width, function) in enumerate(boxes):
        bar, = axes.barh(row + 0.5, width, left=left, height=0.96,
                         color=_color(function), linewidth=0)
        bar.set_gid(f"box{number}")
        hints[f"box{number}"] = f"{function}: {width} samples, {100 * width / total:.1f} %"
        room = int(width / total * _WIDTH_INCHES * 0.98 * _CHARS_PER_INCH) - 1
        if room >= 3:
            text = function if len(function) <= room else function[:room - 2] + ".."
            axes.text(left + total * 0.001, row + 0.5, text, fontsize=7.5, va="center",
                      family="monospace", clip_on=True)

    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    _add_hints(path, hints)


def _add_hints(path: Path, hints: Dict[str, str]) -> None:
    """matplotlib can't say what a viewer shows for a shape that is pointed at."""
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
