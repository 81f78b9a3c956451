# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the gate: results that pass, results that fail, and results that it doesn't compare."""

import unittest
from typing import Any, Dict, List, Tuple

from hostlib import bench, gate
from hostlib.arch import ARM64, X86, Arch
from hostlib.bench import Figure, Results
from hostlib.gate import Limit
from hostlib.ui import Failure

_ENVIRONMENT = {"commit": "0123456789ab", "kernel": "7.3.4", "qemu": "7.2.22",
                "compiler": "gcc 12.2.0", "accel": "tcg", "cpu": "some", "cpus": "2"}


def _results(arch: Arch = X86, pmi: int = 1000, start: int = 3900, frame: int = 35,
             page: int = 970, kib: int = 600, task: int = 0, exit_and_entry: int = 2884,
             **environment: Any) -> Results:
    """Made-up results.  The walk adds to samples' cost, not to PMIs' latency."""
    figures = []
    for run in bench.gate_plan(arch):
        pages = 1 + max(0, run.depth - 1) * run.stride // 4096
        latency = {"exit": exit_and_entry, "host": 2000 + run.depth,
                   "guest": 920 if run.mode == "ip" else pmi}[run.target]
        figures.append(Figure(run, {"median": latency, "max": latency}, pages=pages,
                              cost=start + frame * run.depth + page * pages
                              + kib * run.piece // 1024 + 2 * task * run.task))
    return Results({**_ENVIRONMENT, "arch": arch.name, **environment}, figures)


def _too_slow(new: Results, arch: Arch = X86) -> List[str]:
    """Return the names of what is slower than its limit."""
    limits = gate.read_limits(gate.LIMITS, arch.name)
    assert all(limit.reason for limit in limits)
    return [v.limit.name for v in gate.compare(new, _results(arch), limits) if not v.good]


class CompareTest(unittest.TestCase):
    def test_what_gets_slower_is_named(self) -> None:
        pmis = ["PMI, depth 1", "PMI, depth 127"]
        reads = ["PMI, 4 KiB of the stack", "PMI, both stacks and the task"]
        wholes = ["whole sample, 4 KiB of the stack", "whole sample, both stacks and the task"]
        exits = ["exit and entry", "exit and entry, with an event"]
        changes: List[Tuple[Dict[str, int], List[str]]] = [
            ({}, []), ({"frame": 20, "page": 500, "pmi": 930}, []),
            ({"pmi": 1030}, []), ({"pmi": 1031}, [*pmis, *reads]),
            ({"pmi": 1051}, [*pmis, "PMI, depth 64, worst of all", *reads]),
            # Three instructions a frame are too many.
            ({"frame": 37}, []),
            ({"frame": 38}, ["whole sample, depth 127", "frame"]),
            ({"page": 1020}, ["page"]), ({"kib": 660}, wholes), ({"task": 110}, wholes[1:]),
            ({"exit_and_entry": 2885}, exits)]
        for arch in (X86, ARM64):
            for change, slower in changes:
                with self.subTest(arch.name, change=change):
                    found = _too_slow(_results(arch, **change), arch)
                    self.assertEqual(found, slower)

    def test_absolute_limits_are_those_of_x86(self) -> None:
        name = "whole sample, depth 127"
        for arch, good in ((X86, False), (ARM64, True)):
            limit = next(limit for limit in gate.read_limits(gate.LIMITS, arch.name)
                         if limit.name == name)
            self.assertEqual(12200 <= limit.highest(12200), good)

    def test_costs_by_nmis_are_not_used(self) -> None:
        """They include the work of other CPUs meanwhile."""
        new = _results()
        for figure in new.figures:
            if figure.run.source == "nmi":
                figure.cost = 99999
        self.assertEqual(gate.figures(new), gate.figures(_results()))

    def test_costs_must_be_counted(self) -> None:
        for arch in (X86, ARM64):
            results = _results(arch)
            for figure in results.figures:
                figure.cost = None
            with self.assertRaises(Failure):
                gate.figures(results)

    def test_limit_is_percent_or_instructions_and_absolute(self) -> None:
        limit = Limit("a", 10, 5, "why", at_most=1050)
        self.assertEqual([limit.highest(reference) for reference in (20, 900, 1000, 2000)],
                         [25, 990, 1050, 1050])

    def test_results_of_other_tools_are_refused(self) -> None:
        # Patch levels may differ.
        _too_slow(_results(kernel="7.3.9", qemu="7.2.25", compiler="gcc 12.3.0"))
        for name, value in (("kernel", "7.4.1"), ("qemu", "9.0.1"), ("compiler", "gcc 14.1.0"),
                            ("cpus", "1")):
            new = _results()
            new.environment[name] = value
            with self.subTest(name), self.assertRaises(Failure) as failure:
                _too_slow(new)
            self.assertIn(value, str(failure.exception))
        with self.assertRaises(Failure):
            Results.from_json({"schema": 0})

    def test_the_reference_of_the_same_tools_is_taken(self) -> None:
        first, second = _results(compiler="gcc 14.1.0"), _results(frame=50)
        # Without one, any is taken, so that it is refused with the reason.
        for compiler, taken in (("gcc 12.2.0", second), ("gcc 14.2.0", first),
                                ("gcc 15.1.0", first)):
            self.assertIs(gate.choose(_results(compiler=compiler), [first, second]), taken)

    def test_marked_figures_are_refused_unless_they_are_only_slow(self) -> None:
        for mark in ("throttled", bench.TOO_SLOW):
            new = _results(frame=95)
            new.figures[3].marks.append(mark)
            if mark == bench.TOO_SLOW:
                self.assertIn("frame", _too_slow(new))
            else:
                with self.assertRaises(Failure) as failure:
                    _too_slow(new)
                self.assertIn(mark, str(failure.exception))


class OutputTest(unittest.TestCase):
    def test_ktap_and_kcidb(self) -> None:
        verdicts = gate.compare(_results(frame=95), _results(), gate.read_limits(gate.LIMITS))
        lines = gate.to_ktap(verdicts).splitlines()
        self.assertEqual(lines[:2], ["KTAP version 1", f"1..{len(verdicts)}"])
        self.assertTrue(any(line.startswith("not ok ") and line.endswith(" frame")
                            for line in lines))
        data = gate.kcidb(verdicts, _results())
        self.assertEqual({test["build_id"] for test in data["tests"]}, {data["builds"][0]["id"]})
        self.assertEqual(data["builds"][0]["checkout_id"], data["checkouts"][0]["id"])
        self.assertIn("FAIL", {test["status"] for test in data["tests"]})
        self.assertEqual(gate.kcidb([], _results(ARM64))["builds"][0]["architecture"], "arm64")

    def test_references_are_of_an_architecture(self) -> None:
        self.assertNotEqual(gate.references("arm64"), gate.references("x86"))


if __name__ == "__main__":
    unittest.main()
