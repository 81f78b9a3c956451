# SPDX-License-Identifier: GPL-2.0-only
"""The boxes of a flame graph: one for each function and its path of callers."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, List, Sequence, Tuple


@dataclass
class Node:
    """A box: the number of its caller's box (-1: none), its depth, left edge, and samples."""
    parent: int
    depth: int
    left: int
    frame: Any
    counts: List[int]


def build(profiles: "Sequence[Counter[Tuple[Any, ...]]]") -> List[Node]:
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
            nodes.append(Node(path[-1] if path else -1, len(path), left, frame,
                              [0] * len(profiles)))
            path.append(len(nodes) - 1)
        for number in path:
            nodes[number].counts = [sum(pair) for pair in zip(nodes[number].counts, counts)]
        left += counts[0]
    return nodes
