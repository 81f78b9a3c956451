# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the gate: results that pass, results that fail, and results that it doesn't compare."""

import unittest
from typing import Callable, Dict, List, Tuple

from hostlib import bench, gate
from hostlib.arch import ARM64, X86, Arch
from hostlib.bench import Figure, Results, Run
from hostlib.gate import Limit
from hostlib.ui import Failure

_ENVIRONMENT = {"commit": "0123456789ab", "kernel": "7.3.4", "qemu": "7.2.22",
                "compiler": "gcc 12.2.0", "accel": "tcg", "cpu": "some", "cpus": "2"}


def _results(frame: int = 45, page: int = 900, kib: int = 200, **environment: str) -> Results:
    """Results of an x86 host."""
    def latency(run: Run, pages: int) -> float:
        if run.mode == "ip":
            return 920
        if run.mode == "deferred":
            return 1000
        return 2000 + frame * run.depth + page * pages + kib * run.dump // 1024

    figures = []
    for run in bench.gate_plan():
        pages = 1 + max(0, run.depth - 1) * run.stride // 4096
        took = latency(run, pages)
        figures.append(Figure(run, {"median": took, "max": took}, pages=pages,
                              cost=took + 3000 + kib * run.dump // 1024))
    return Results({**_ENVIRONMENT, **environment}, figures)


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


def _too_slow(new: Results, arch: Arch = X86) -> List[str]:
    """Return the names of what is slower than its limit."""
    reference = _results() if arch is X86 else _arm64_results()
    limits = gate.read_limits(gate.LIMITS, arch.name)
    assert all(limit.reason for limit in limits)
    return [v.limit.name for v in gate.compare(new, reference, limits) if not v.good]


class CompareTest(unittest.TestCase):
    def _changed(self, change: Callable[[Figure], None], **wanted: object) -> Results:
        """Return results with a change to the figures of the runs with these properties."""
        new = _results()
        for figure in new.figures:
            if all(getattr(figure.run, name) == value for name, value in wanted.items()):
                change(figure)
        return new

    def test_what_gets_slower_is_named(self) -> None:
        self.assertEqual(_too_slow(_results()), [])
        self.assertEqual(_too_slow(_results(frame=20, page=500)), [])
        # Three instructions a frame are too many.
        self.assertNotIn("frame", _too_slow(_results(frame=47)))
        slower = _too_slow(_results(frame=48))
        self.assertIn("frame", slower)
        self.assertFalse({"page", "sample without a callchain"}.intersection(slower))
        slower = _too_slow(_results(page=1000))
        self.assertIn("page", slower)
        self.assertNotIn("frame", slower)
        self.assertEqual(_too_slow(_results(kib=300)), ["callchain with a dump", "dump, deferred"])

    def test_what_gets_slower_on_arm64_is_named(self) -> None:
        changes: List[Tuple[Dict[str, int], List[str]]] = [
                ({}, []), ({"start": 6500}, ["whole sample, depth 1"]), ({"frame": 103}, ["frame"]),
                ({"page": 4250}, ["page"]),
                ({"pmi": 1031}, ["sample without a callchain", "depth 1, deferred",
                                 "depth 127, deferred"]),
                ({"exit_and_entry": 1201}, ["exit and entry", "exit and entry, with an event"])]
        for change, slower in changes:
            self.assertEqual(_too_slow(_arm64_results(**change), ARM64), slower)

    def test_dumps(self) -> None:
        # The gate must not use the cost by NMIs, which includes the work of other CPUs meanwhile.
        new = self._changed(lambda figure: setattr(figure, "cost", 99999), source="nmi")
        self.assertEqual(gate.figures(new)["dump, deferred"], 4 * 200)
        slower = self._changed(lambda figure: figure.latency.update(median=1100.0),
                               mode="deferred", source="nmi", dump=bench.GATE_DUMP)
        self.assertEqual(_too_slow(slower), ["deferred with a dump"])

    def test_costs_must_be_counted(self) -> None:
        arm64 = _arm64_results()
        for figure in arm64.figures:
            figure.cost = None
        x86 = self._changed(lambda figure: setattr(figure, "cost", None), source="irq")
        for results in (arm64, x86):
            with self.assertRaises(Failure):
                gate.figures(results)

    def test_limit_is_percent_or_instructions_and_absolute(self) -> None:
        limit = Limit("a", 10, 5, "why", at_most=1050)
        self.assertEqual([limit.highest(reference) for reference in (20, 900, 1000, 2000)],
                         [25, 990, 1050, 1050])
        self.assertEqual([limit.at_most for limit in gate.read_limits(gate.LIMITS)
                          if limit.name == "dump, deferred"], [3000])

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
        self.assertEqual(gate.kcidb([], _arm64_results())["builds"][0]["architecture"], "arm64")

    def test_references_are_of_an_architecture(self) -> None:
        self.assertNotEqual(gate.references("arm64"), gate.references("x86"))


if __name__ == "__main__":
    unittest.main()
