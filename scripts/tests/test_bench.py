# SPDX-License-Identifier: GPL-2.0-only
"""Tests of evaluating the output of the benchmark program, and of the committed results."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Tuple
from unittest import mock

from hostlib import bench, benchreport
from hostlib.arch import ARM64, X86
from hostlib.bench import REPO, Figure, Results, Run


def _line(work: int = 1000, pmis: int = 0, cpu_ns: int = 2000, **more: Any) -> Dict[str, Any]:
    return {"work": work, "pmis": pmis, "samples": pmis, "cpu_ns": cpu_ns, "period_ns": 100,
            "throttled": 0, "bytes": 16 * pmis, "pages": 1, "latency_ticks": [], "gap_ticks": [],
            **more}


_OFF = Run("counted", "guest", "off", "irq")
_OURS = Run("counted", "guest", "callchain", "irq", 16)


def _ours(run: Run = _OURS, stable: bool = True, **line: Any) -> Figure:
    """Return the figure of a run that follows one without samples."""
    return bench._figures([_OFF, run], [_line(gap_ticks=[900]), _line(**line)], stable)[1]


class FiguresTest(unittest.TestCase):
    def test_loss_is_what_off_of_the_same_length_would_have_done(self) -> None:
        once = _ours(work=900, pmis=20)
        self.assertAlmostEqual(once.slowdown or 0, 0.1)
        self.assertIsNone(once.spread)
        self.assertEqual(benchreport._lost(once), "10.0 %")
        longer = Run("counted", "guest", "callchain", "irq", 16, ms=_OFF.ms + 1)
        self.assertIsNone(_ours(longer, work=900, pmis=20).slowdown)

    def test_a_sample_costs_what_most_disturbances_do(self) -> None:
        gaps = [5000, 4000, 4002, 900, 4001, 70000]
        self.assertEqual(_ours(pmis=4, gap_ticks=gaps).cost, 4001.5)
        # Ticks of a clock are no cost.
        timed = Run("timed", "guest", "callchain", "irq", 16)
        self.assertIsNone(_ours(timed, pmis=4, gap_ticks=gaps).cost)

    def test_the_middle_one_of_repeated_runs(self) -> None:
        lines = [_line(work=work) for work in (1000, 900, 1100)]
        lines += [_line(work=work, pmis=20) for work in (100, 900, 940)]
        off, ours = bench._figures([_OFF] * 3 + [_OURS] * 3, lines, True)
        self.assertEqual(off.slowdown, 0)
        self.assertAlmostEqual(ours.slowdown or 0, 0.1)
        # The quartiles of ours are 500 and 920, those of off are 950 and 1050.
        self.assertAlmostEqual(ours.spread or 0, 0.21 + 0.9 * 0.05)
        self.assertEqual(benchreport._lost(ours), "10 ± 26 %")

    def test_marks(self) -> None:
        self.assertEqual(_ours(pmis=20).marks, [])
        self.assertEqual(_ours(pmis=10).marks, [bench.TOO_SLOW])
        self.assertEqual(len(_ours(pmis=20, throttled=1).marks), 1)
        self.assertEqual(len(_ours(pmis=20, stable=False).marks), 1)
        self.assertEqual([bench._stable(clock) for clock in ("tsc", "arch_sys_counter", "hpet")],
                         [True, True, False])

    def test_latency(self) -> None:
        figure = _ours(pmis=20, latency_ticks=list(range(200, 0, -1)))
        self.assertEqual(figure.latency, {"min": 1, "median": 100.5, "p99": 198, "max": 200})

    def test_no_run_that_reads_the_stack_is_found_unless_asked_for(self) -> None:
        runs = [Run("counted", "guest", "callchain", depth=1, piece=piece, task=task)
                for piece, task in ((2048, True), (2048, False), (0, False))]
        results = Results({}, [Figure(run, {"median": run.piece}) for run in runs])
        asked: List[Tuple[Dict[str, int], int]] = [({}, 0), ({"piece": 2048}, 2048)]
        for wanted, piece in asked:
            figure = results.find(target="guest", **wanted)
            self.assertEqual(figure and (figure.run.piece, figure.run.task), (piece, False))
        self.assertEqual(benchreport._latencies(results, "guest", "callchain"), [(1, 0)])
        ip = Results({}, [Figure(Run("counted", "guest", "ip"), {"median": 9})])
        self.assertEqual(benchreport._latencies(ip, "guest", "ip"), [(0, 9), (127, 9)])

    def test_commands(self) -> None:
        self.assertIn(" -k 4096 ", Run("counted", "guest", "callchain", piece=4096).command())
        self.assertIn(" -k 4096 -g ", Run("counted", "guest", "callchain", piece=4096,
                                          task=True).command())
        self.assertNotIn(" -k", Run("counted", "guest", "callchain").command())
        script = Run("counted", "guest", "v3").script()
        self.assertIn("-m callchain", script)
        self.assertTrue(script.startswith("echo 1 > ") and "\necho 0 > " in script)


class PlanTest(unittest.TestCase):
    def test_ways_and_depths(self) -> None:
        for arch, ways in ((X86, ("callchain", "v3", "userspace")),
                           (ARM64, ("callchain", "userspace"))):
            for quick, depths in ((True, (64,)), (False, bench.DEPTHS)):
                # Nothing is timed in emulation.
                self.assertEqual({run.clock for run in bench.plan(arch, quick, timed=False)},
                                 {"counted"})
                runs = set(bench.plan(arch, quick, timed=True))
                self.assertIn("timed", {run.clock for run in runs})
                for run in runs:
                    if run.source == "irq" and run.mode != "off" and run.rate > 1000:
                        self.assertIn(Run(run.clock, run.target, "off", "irq", ms=run.ms), runs)
                for depth in depths:
                    for mode in ways:
                        self.assertTrue([run for run in runs if run.mode == mode
                                         and run.depth == depth and run.source == "irq"])

    def test_arm64(self) -> None:
        """On arm64, a module can't send NMIs, and there is no walk of 2023."""
        self.assertEqual(Results({"arch": "arm64"}, []).source, "irq")
        for runs in (bench.plan(ARM64, True, False), bench.plan(ARM64, False, False),
                     bench.gate_plan(ARM64), bench.peers_plan(bench.pmis("arm64"))):
            self.assertEqual({run.source for run in runs}, {"irq"})
            self.assertNotIn("v3", {run.mode for run in runs})
        self.assertEqual({run.source for run in bench.peers_plan()}, {"nmi"})

    def test_gate_repeats_no_run(self) -> None:
        for arch in (X86, ARM64):
            runs = bench.gate_plan(arch)
            self.assertEqual(len(runs), len(set(runs)))


class ReportTest(unittest.TestCase):
    def test_committed_tables_follow_from_committed_figures(self) -> None:
        for folder in (REPO / "results/bench", REPO / "results/bench/arm64"):
            with tempfile.TemporaryDirectory() as tmp, mock.patch.object(benchreport, "say"):
                benchreport.write(bench.read(folder / "bench.json"), Path(tmp))
                self.assertEqual((Path(tmp) / "table.md").read_text(),
                                 (folder / "table.md").read_text(), folder)
                self.assertEqual({path.name for path in Path(tmp).iterdir()} | {"bench.json"},
                                 {path.name for path in folder.iterdir() if path.is_file()})

    def test_quick_plans_have_what_tables_need(self) -> None:
        environment = {name: "some" for name in ("kernel", "qemu", "compiler", "accel", "commit")}
        for arch in (X86, ARM64):
            results = Results({**environment, "arch": arch.name}, [
                Figure(run, {"median": 1000.0, "max": 9.0}, cost=5000.0, slowdown=0.01,
                       pages=run.stride // 16) for run in bench.plan(arch, True, timed=False)])
            with tempfile.TemporaryDirectory() as tmp, mock.patch.object(benchreport, "say"):
                benchreport.write(results, Path(tmp))
                text = (Path(tmp) / "table.md").read_text()
            for row in ("| guest callchain | 1 000, 9 | 1 000, 9 | 1 000, 9 | 1 000, 9 |",
                        "| user-space sampler | 5 000 |", "| guest callchain | 5 000 | 5 000 |",
                        "| 1 000 / 5 000 / 0 | 1 000 / 5 000 / 0 |"):
                self.assertIn(row, text)
            self.assertEqual("walk of 2023" in text, arch is X86)
            self.assertNotIn("perf record -a", text)

    def test_more_than_all_is_lost(self) -> None:
        self.assertEqual([benchreport.lost(cost, 10000) for cost in (99999.0, 100000.0)],
                         ["100.0 %", "> 100 %"])

    def test_highest_rate(self) -> None:
        def results(mode: str, *kept: float) -> List[Figure]:
            return [Figure(Run("counted", "guest", mode, depth=64, rate=rate), kept=share)
                    for rate, share in zip((1000, 2000, 4000, 8000), kept)]

        # Rates above the first that is too fast don't count, and one rate tells nothing.
        for kept, highest in (((1, 0.99, 0.5, 1), 2000), ((0.5, 1), None), ((1,), None)):
            found = benchreport.highest_rate(Results({}, results("callchain", *kept)), "counted",
                                             "callchain")
            self.assertEqual(found, highest, kept)
        ours = results("callchain", 1, 0.99, 0.5, 1)
        self.assertEqual(benchreport._rate(Results({}, ours), "callchain", 64), "2 000 Hz")
        both = Results({}, ours + results("ip", 1, 0.99, 0.5, 1))
        self.assertEqual(benchreport._rate(both, "callchain", 64), "at least 2 000 Hz")
        self.assertEqual(benchreport._rate(both, "v3", 64), "-")

    def test_lines_can_be_told_apart_in_grey_and_are_darker_than_paper(self) -> None:
        self.assertEqual(len({style[1:] for style in benchreport._STYLES}),
                         len(benchreport._WAYS))
        for color, *_ in benchreport._STYLES:
            parts = [int(color[place:place + 2], 16) / 255 for place in (1, 3, 5)]
            linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
                      for part in parts]
            contrast = 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
            self.assertGreater(contrast, 4.5, color)


class JsonTest(unittest.TestCase):
    def test_all_and_small(self) -> None:
        """The small form lacks nothing but counts, and both can be read."""
        figure = Figure(Run("counted", "guest", "ip", piece=8), {"min": 1, "median": 2, "max": 3},
                        cost=4.0, kept=0.5, samples=5, pmis=6, marks=["throttled"])
        results = Results({"commit": "some"}, [figure], {"unpatched": [figure]},
                          [bench.WholeHost("guests", 4, "ip", 0.1)])
        self.assertEqual(Results.from_json(json.loads(bench._text(results.to_json()))), results)
        text = bench._text(results.to_json(bench.small))
        figure.latency, figure.samples, figure.pmis = {"median": 2, "max": 3}, 0, 0
        self.assertEqual(Results.from_json(json.loads(text)), results)

    def test_committed_results_are_as_they_would_be_written(self) -> None:
        paths = [*REPO.glob("results/bench/**/*.json"), *REPO.glob("results/gate/**/*.json")]
        self.assertGreaterEqual(len(paths), 4)
        for path in paths:
            self.assertEqual(path.read_text(),
                             bench._text(bench.read(path).to_json(bench.small)) + "\n", path)


class WholeHostTest(unittest.TestCase):
    def test_loss_is_told_from_runs_without_perf(self) -> None:
        said = ("guests 1 off 1000\nguests 1 ip 1250\nguests 4 off 3000\nguests 4 ip 4000\n"
                "processes 4 off 900\nprocesses 4 callchain 1000\n")
        self.assertEqual([(each.who, each.number, each.way, round(each.slowdown, 6))
                          for each in bench.whole_hosts(said)],
                         [("guests", 1, "ip", 0.2), ("guests", 4, "ip", 0.25),
                          ("processes", 4, "callchain", 0.1)])

    def test_script_runs_each_way(self) -> None:
        """Use programs that do nothing.  The benchmark's first line is no result."""
        tmp = self.enterContext(tempfile.TemporaryDirectory())
        programs = Path(tmp) / "guest_callchain"
        programs.mkdir()
        script = Path(tmp) / "scripts" / "guest" / "whole-host.sh"
        script.parent.mkdir(parents=True)
        text = (REPO / "scripts" / "guest" / script.name).read_text()
        script.write_text(text.replace("/run/whole-host", f"{tmp}/out"))
        for path, does in ((Path(tmp) / "perf",
                            'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'),
                           (programs / "guest_callchain_bench",
                            'echo "Random seed: 1"; echo "{\\"cpu_ns\\": 100, \\"x\\": 1}"')):
            path.write_text(f"#!/bin/sh\n{does}\n")
            path.chmod(0o755)

        def run() -> "subprocess.CompletedProcess[str]":
            return subprocess.run(["sh", str(script)], check=False, stdout=subprocess.PIPE,
                                  text=True, env={"BUILD_SELFTESTS": tmp, "REPO": tmp,
                                                  "PATH": f"{tmp}:/usr/bin:/bin"})

        done = run()
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(bench.whole_hosts(done.stdout)), 9)
        self.assertIn("guests 16 callchain 100\n", done.stdout)
        (programs / "guest_callchain_bench").write_text("#!/bin/sh\nexit 4\n")
        self.assertNotEqual(run().returncode, 0)


if __name__ == "__main__":
    unittest.main()
