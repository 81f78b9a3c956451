# SPDX-License-Identifier: GPL-2.0-only
"""Tests that figures in texts are those of the committed results."""

import unittest
from typing import Dict, List

from hostlib import bench
from hostlib.patches import REPO, cover


def _medians() -> Dict[str, List[str]]:
    """Return how long PMIs take at each depth, for each kind of sample, as texts write it."""
    measured = bench.read(REPO / "results/bench/bench.json")
    reference = bench.read(REPO / "results/gate/gcc12-qemu7.2.json")

    def row(target: str, mode: str) -> List[str]:
        # The gate's reference is never older, but lacks the walk of 2023.
        results = measured if mode == "v3" else reference
        found = []
        for depth in bench.DEPTHS:
            figure = results.find("latency", clock="counted", target=target, mode=mode,
                                  source="nmi", depth=0 if mode == "ip" else depth)
            assert figure and figure.latency
            found.append(f"{round(figure.latency['median']):,}".replace(",", " "))
        return found

    return {"IP only": row("guest", "ip"), "guest": row("guest", "callchain"),
            "v3": row("guest", "v3"), "host process": row("host", "callchain")}


class FiguresTest(unittest.TestCase):
    def test_readme(self) -> None:
        """Each kind of sample has a row in the table, whatever the row's name is."""
        rows = [[cell.strip(" *") for cell in line.split("|")[2:6]]
                for line in (REPO / "README.md").read_text().splitlines() if "|" in line]
        for name, medians in _medians().items():
            self.assertIn(medians, rows, name)

    def test_cover_letter(self) -> None:
        text = cover("callchains").read_text()
        medians = _medians()
        for figure in (medians["v3"][-1], medians["guest"][0], medians["IP only"][0]):
            self.assertRegex(text, rf"\b{figure}\b")


if __name__ == "__main__":
    unittest.main()
