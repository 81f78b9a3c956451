# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the gate: results that pass, results that fail, and results that it doesn't compare."""

import unittest
from typing import Any, Dict, List

from hostlib import bench, gate
from hostlib.arch import ARM64
from hostlib.bench import Figure, Results, Run
from hostlib.gate import Limit
from hostlib.ui import Failure

_ENVIRONMENT = {"commit": "0123456789ab", "kernel": "7.3.4", "qemu": "7.2.22",
                "compiler": "gcc 12.2.0", "accel": "tcg", "cpu": "some", "cpus": "2"}


def _latency(run: Run, frame: int, page: int, kib: int) -> float:
    if run.mode == "ip":
        return 920
    if run.mode == "deferred":
        return 1000
    pages = 1 + max(0, run.depth - 1) * run.stride // 4096
    return 2000 + frame * run.depth + page * pages + kib * run.dump // 1024


def _results(frame: int = 45, page: int = 900, kib: int = 200, **environment: str) -> Results:
    figures = []
    for run in bench.gate_plan():
        latency = _latency(run, frame, page, kib)
        figures.append(Figure(run, {"min": latency, "median": latency, "p99": latency,
                                    "max": latency},
                              cost=latency + 3000 + kib * run.dump // 1024,
                              pages=1 + max(0, run.depth - 1) * run.stride // 4096))
    return Results({**_ENVIRONMENT, **environment}, figures)


class CompareTest(unittest.TestCase):
    def setUp(self) -> None:
        self.limits = gate.read_limits(gate.LIMITS)

    def _slower(self, **change: Any) -> Dict[str, bool]:
        verdicts = gate.compare(_results(**change), _results(), self.limits)
        return {v.limit.name: not v.good for v in verdicts}

    def test_the_same_passes(self) -> None:
        self.assertFalse(any(self._slower().values()))

    def test_faster_passes(self) -> None:
        self.assertFalse(any(self._slower(frame=20, page=500).values()))

    def test_slower_frames_are_named(self) -> None:
        slower = self._slower(frame=95)
        self.assertTrue(slower["frame"])
        self.assertFalse(slower["page"])
        self.assertFalse(slower["sample without a callchain"])

    def test_three_instructions_a_frame_are_too_many(self) -> None:
        self.assertTrue(self._slower(frame=48)["frame"])
        self.assertFalse(self._slower(frame=47)["frame"])

    def test_slower_pages_are_named(self) -> None:
        slower = self._slower(page=1000)
        self.assertTrue(slower["page"])
        self.assertFalse(slower["frame"])

    def test_slower_dumps_are_named(self) -> None:
        slower = self._slower(kib=300)
        self.assertEqual([name for name, is_slower in slower.items() if is_slower],
                         ["callchain with a dump", "dump, deferred"])

    def test_a_dump_costs_what_it_adds(self) -> None:
        # The gate must not use the cost by NMIs, which includes the work of other CPUs meanwhile.
        new = _results(kib=200)
        for figure in new.figures:
            if figure.run.source == "nmi":
                figure.cost = 99999
        self.assertEqual(gate.figures(new)["dump, deferred"], 4 * 200)

    def test_slower_deferred_dumps_are_named(self) -> None:
        new = _results()
        for figure in new.figures:
            if figure.run.mode == "deferred" and figure.run.dump and figure.run.source == "nmi":
                figure.latency["median"] *= 1.1
        self.assertEqual([v.limit.name for v in gate.compare(new, _results(), self.limits)
                          if not v.good], ["deferred with a dump"])

    def test_costs_must_be_counted(self) -> None:
        new = _results()
        for figure in new.figures:
            if figure.run.source == "irq":
                figure.cost = None
        with self.assertRaisesRegex(Failure, "no cost of a deferred sample for .*'dump': 4096"):
            gate.figures(new)

    def test_limit_is_percent_or_instructions(self) -> None:
        limit = Limit("a", 10, 5, "why")
        self.assertEqual(limit.highest(20), 25)
        self.assertEqual(limit.highest(1000), 1100)

    def test_no_reference_allows_more_than_at_most(self) -> None:
        limit = Limit("a", 10, 5, "why", at_most=1050)
        self.assertEqual([limit.highest(reference) for reference in (900, 1000, 2000)],
                         [990, 1050, 1050])
        self.assertEqual([limit.at_most for limit in self.limits
                          if limit.name == "dump, deferred"], [3000])

    def test_limits_have_reasons(self) -> None:
        self.assertTrue(all(limit.reason for limit in self.limits))

    def test_patch_levels_are_comparable(self) -> None:
        self._slower(kernel="7.3.9", qemu="7.2.25", compiler="gcc 12.3.0")

    def test_others_are_refused(self) -> None:
        for name, value, said in (("kernel", "7.4.1", "Linux"), ("qemu", "9.0.1", "QEMU"),
                                  ("compiler", "gcc 14.1.0", "compiler"), ("cpus", "1", "CPUs")):
            with self.subTest(name), self.assertRaisesRegex(Failure, f"another .*{said}"):
                self._slower(**{name: value})

    def test_the_reference_of_the_same_tools_is_taken(self) -> None:
        first, second = _results(compiler="gcc 14.1.0"), _results(frame=50)
        self.assertIs(gate.choose(_results(), [first, second]), second)
        self.assertIs(gate.choose(_results(compiler="gcc 14.2.0"), [first, second]), first)
        # No reference has this compiler: take any, so that it is refused with the reason.
        self.assertIs(gate.choose(_results(compiler="gcc 15.1.0"), [first, second]), first)

    def test_marked_figures_are_refused(self) -> None:
        new = _results()
        new.figures[3].marks.append("throttled")
        with self.assertRaisesRegex(Failure, "this run can't be compared: throttled"):
            gate.compare(new, _results(), self.limits)

    def test_slow_ones_are_compared(self) -> None:
        new = _results(frame=95)
        new.figures[3].marks.append(bench.TOO_SLOW)
        self.assertFalse(all(v.good for v in gate.compare(new, _results(), self.limits)))

    def test_another_schema_is_refused(self) -> None:
        with self.assertRaisesRegex(Failure, "schema 0, this is 1"):
            Results.from_json({"schema": 0})

    def test_json_and_back(self) -> None:
        results = _results()
        self.assertEqual(Results.from_json(results.to_json()), results)


def _arm64_results(pmi: int = 1000, start: int = 6000, frame: int = 100, page: int = 4000,
                   exit_and_entry: int = 1200) -> Results:
    """Results of an arm64 host: the walk adds to samples' cost, not to PMIs' latency."""
    figures = []
    for run in bench.gate_plan(ARM64):
        pages = 1 + max(0, run.depth - 1) * run.stride // 4096
        latency = {"exit": exit_and_entry, "host": 2000 + run.depth, "guest": pmi}[run.target]
        figures.append(Figure(run, {"median": latency}, pages=pages,
                              cost=start + frame * run.depth + page * pages))
    return Results({**_ENVIRONMENT, "arch": "arm64"}, figures)


class Arm64Test(unittest.TestCase):
    def _slower(self, **change: int) -> List[str]:
        limits = gate.read_limits(gate.LIMITS, "arm64")
        self.assertTrue(all(limit.reason for limit in limits))
        return [v.limit.name for v in gate.compare(_arm64_results(**change), _arm64_results(),
                                                   limits) if not v.good]

    def test_what_gets_slower_is_named(self) -> None:
        self.assertEqual(self._slower(), [])
        self.assertEqual(self._slower(pmi=1031), ["sample without a callchain",
                                                  "depth 1, deferred", "depth 127, deferred"])
        self.assertEqual(self._slower(start=6500), ["whole sample, depth 1"])
        self.assertEqual(self._slower(frame=103), ["frame"])
        self.assertEqual(self._slower(page=4250), ["page"])

    def test_an_exit_costs_no_instruction_more(self) -> None:
        self.assertEqual(self._slower(exit_and_entry=1201),
                         ["exit and entry", "exit and entry, with an event"])

    def test_its_references_are_its_own(self) -> None:
        self.assertNotEqual(gate.references("arm64"), gate.references("x86"))
        self.assertNotIn("exit and entry", {limit.name for limit in gate.read_limits(gate.LIMITS)})
        data = gate.kcidb([], _arm64_results())
        self.assertEqual(data["builds"][0]["architecture"], "arm64")

    def test_costs_must_be_counted(self) -> None:
        results = _arm64_results()
        for figure in results.figures:
            figure.cost = None
        with self.assertRaisesRegex(Failure, "no cost of a deferred sample"):
            gate.figures(results)


class OutputTest(unittest.TestCase):
    def setUp(self) -> None:
        self.verdicts = gate.compare(_results(frame=95), _results(),
                                     gate.read_limits(gate.LIMITS))

    def test_ktap(self) -> None:
        lines = gate.to_ktap(self.verdicts).splitlines()
        self.assertEqual(lines[:2], ["KTAP version 1", f"1..{len(self.verdicts)}"])
        self.assertTrue(any(line.startswith("not ok ") and line.endswith(" frame")
                            for line in lines))

    def test_kcidb_refers_to_itself(self) -> None:
        data = gate.kcidb(self.verdicts, _results())
        self.assertEqual({test["build_id"] for test in data["tests"]}, {data["builds"][0]["id"]})
        self.assertEqual(data["builds"][0]["checkout_id"], data["checkouts"][0]["id"])
        self.assertIn("FAIL", {test["status"] for test in data["tests"]})


if __name__ == "__main__":
    unittest.main()
