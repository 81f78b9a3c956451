# SPDX-License-Identifier: GPL-2.0-only
"""Draw a flame graph of folded stacks, as an SVG that needs nothing else."""

import zlib
from collections import Counter
from pathlib import Path
from typing import Dict, Tuple
from xml.etree import ElementTree

import matplotlib
matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from . import frametree  # noqa: E402

_SVG = "http://www.w3.org/2000/svg"

# Boxes narrower than this part of the picture are left out.
_NARROWEST = 0.001
_WIDTH_INCHES = 14.0
_ROW_INCHES = 0.22
_CHARS_PER_INCH = 15.0

# A name that is cut to fewer characters is useless.
_FEWEST_CHARS = 4


def _color(function: str) -> Tuple[float, float, float]:
    """A warm color, always the same for a function; grey if it has no name."""
    if function == "[unknown]":
        return (0.8, 0.8, 0.8)
    value = zlib.crc32(function.encode()) / 0xffffffff
    return (0.87 + 0.1 * value, 0.35 + 0.45 * value, 0.2 + 0.15 * value)


def _label(function: str, room: int) -> str:
    """Cut a function's name to so many characters; return "" if too few of its own are left."""
    if len(function) <= room:
        return function
    return function[:room - 2] + ".." if room - 2 >= _FEWEST_CHARS else ""


def write(folded: "Counter[Tuple[str, ...]]", title: str, path: Path) -> None:
    """Draw a flame graph; each box tells its function and share when pointed at."""
    total = sum(folded.values())
    boxes = [node for node in frametree.build([folded])
             if node.counts[0] >= total * _NARROWEST]
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
        bar, = axes.barh(box.depth + 0.5, box.counts[0], left=box.left, height=0.96,
                         color=_color(box.frame), linewidth=0)
        bar.set_gid(f"box{number}")
        share = box.counts[0] / total
        hints[f"box{number}"] = f"{box.frame}: {box.counts[0]} samples, {100 * share:.1f} %"
        text = _label(box.frame, int(share * _WIDTH_INCHES * 0.98 * _CHARS_PER_INCH) - 1)
        if text:
            axes.text(box.left + total * 0.001, box.depth + 0.5, text, fontsize=7.5,
                      va="center", family="monospace", clip_on=True, parse_math=False)

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
