# SPDX-License-Identifier: GPL-2.0-only
"""Tests that figures in texts are those of the committed results."""

import re
import unittest
from typing import Dict, List

from hostlib import bench
from hostlib.patches import REPO, cover

DEPTHS = (1, 16, 64, 127)


def _medians() -> Dict[str, List[str]]:
    """Return how long PMIs take at each depth, for each kind of sample, as texts write it."""
    results = bench.read(REPO / "results/bench/bench.json")

    def row(target: str, mode: str, dump: int = 0) -> List[str]:
        found = []
        for depth in DEPTHS:
            figure = results.find("latency", clock="counted", target=target, mode=mode,
                                  source="nmi", depth=0 if mode == "ip" else depth, dump=dump)
            assert figure and figure.latency
            found.append(f"{round(figure.latency['median']):,}".replace(",", " "))
        return found

    return {"ip": row("guest", "ip"), "immediate": row("guest", "callchain"),
            "deferred": row("guest", "deferred"), "v3": row("guest", "v3"),
            "host": row("host", "callchain")}


class FiguresTest(unittest.TestCase):
    def _check_rows(self, text: str, separator: str, names: Dict[str, str]) -> None:
        """Check rows of a table, by their first cells."""
        rows = {cells[0]: cells[1:5] for cells in ([cell.strip(" *") for cell in re.split(
            separator, line.strip("|"))] for line in text.splitlines())}
        medians = _medians()
        for row, name in names.items():
            self.assertEqual(rows[row], medians[name], row)

    def test_readme(self) -> None:
        self._check_rows((REPO / "README.md").read_text(), r"\|", {
            "IP only": "ip", "guest callchain, deferred** (default)": "deferred",
            "guest callchain, at once": "immediate",
            "callchain of a host process, for comparison": "host", "the series of 2023": "v3"})

    def test_documentation(self) -> None:
        text = (REPO / "Documentation/virt/kvm/x86/guest-callchains.rst").read_text()
        table = text[text.index("PMI's handler, median"):text.index("Whole cost of a sample")]
        self._check_rows(table, r"\s{2,}", {"without a callchain": "ip", "host": "host",
                                            "guest callchain": "immediate",
                                            "the same, deferred": "deferred"})

    def test_second_record(self) -> None:
        """A deferred sample's extra cost over an immediate one's, rounded to tens."""
        whole = (REPO / "results/bench/table.md").read_text().split("| Whole cost of a sample")[1]
        cost = {cells[1].strip(): int(cells[2].replace(" ", "")) for cells in
                (line.split("|") for line in whole.splitlines()[2:8])}
        more = round((cost["deferred"] - cost["immediate"]) / 10) * 10
        for text in ("README.md", "Documentation/virt/kvm/x86/guest-callchains.rst",
                     "Documentation/admin-guide/perf-guests.rst"):
            self.assertRegex((REPO / text).read_text(), rf"\b{more}\s+instructions", text)

    def test_cover_letter(self) -> None:
        text = cover("kernel").read_text()
        medians = _medians()
        for figure in (medians["v3"][-1], medians["immediate"][-1], medians["immediate"][0],
                       medians["deferred"][0], medians["ip"][0]):
            self.assertRegex(text, rf"\b{figure}\b")
