# SPDX-License-Identifier: GPL-2.0-only
"""Tests of evaluating the output of the benchmark program."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Tuple
from unittest import mock

from hostlib import bench, benchreport
from hostlib.arch import ARM64
from hostlib.bench import Figure, Results, Run


def _line(work: int = 1000, pmis: int = 0, cpu_ns: int = 2000, **more: Any) -> Dict[str, Any]:
    return {"work": work, "pmis": pmis, "samples": pmis, "cpu_ns": cpu_ns, "period_ns": 100,
            "throttled": 0, "bytes": 16 * pmis, "pages": 1, "latency_ticks": [], "gap_ticks": [],
            **more}


def _figures(runs: List[Run], lines: List[Dict[str, Any]], stable: bool = True) -> List[Figure]:
    return bench._figures(runs, lines, stable)


_OFF = Run("counted", "guest", "off", "irq")
_OURS = Run("counted", "guest", "callchain", "irq", 16)


class FiguresTest(unittest.TestCase):
    def test_loss_is_what_off_would_have_done(self) -> None:
        _, ours = _figures([_OFF, _OURS], [_line(), _line(work=900, pmis=20)])
        self.assertAlmostEqual(ours.slowdown or 0, 0.1)

    def test_a_sample_costs_what_most_disturbances_do(self) -> None:
        gaps = [5000, 4000, 4002, 900, 4001, 70000]
        _, ours = _figures([_OFF, _OURS], [_line(gap_ticks=[900]), _line(pmis=4, gap_ticks=gaps)])
        self.assertEqual(ours.cost, 4001.5)

    def test_ticks_of_a_clock_are_no_cost(self) -> None:
        timed = Run("timed", "guest", "callchain", "irq", 16)
        [ours] = _figures([timed], [_line(pmis=4, gap_ticks=[4000])])
        self.assertIsNone(ours.cost)

    def test_no_loss_is_claimed_without_off(self) -> None:
        longer = Run("counted", "guest", "callchain", "irq", 16, ms=_OFF.ms + 1)
        _, ours = _figures([_OFF, longer], [_line(), _line(work=900, pmis=20)])
        self.assertIsNone(ours.slowdown)

    def test_the_middle_one_of_repeated_runs(self) -> None:
        lines = [_line(work=work) for work in (1000, 900, 1100)]
        lines += [_line(work=work, pmis=20) for work in (100, 900, 940)]
        off, ours = _figures([_OFF] * 3 + [_OURS] * 3, lines)
        self.assertEqual(off.slowdown, 0)
        self.assertAlmostEqual(ours.slowdown or 0, 0.1)
        # The quartiles of ours are 500 and 920, those of off are 950 and 1050.
        self.assertAlmostEqual(ours.spread or 0, 0.21 + 0.9 * 0.05)
        self.assertEqual(benchreport._lost(ours), "10 ± 26 %")

    def test_what_was_run_once_has_no_spread(self) -> None:
        _, ours = _figures([_OFF, _OURS], [_line(), _line(work=900, pmis=20)])
        self.assertIsNone(ours.spread)
        self.assertEqual(benchreport._lost(ours), "10.0 %")

    def test_marks(self) -> None:
        runs = [_OFF, _OURS]
        cases: Tuple[Tuple[Dict[str, Any], bool, List[str]], ...] = (
                 (_line(pmis=20), True, []),
                 (_line(pmis=10), True, [bench.TOO_SLOW]),
                 (_line(pmis=20, throttled=1), True, ["throttled"]),
                 (_line(pmis=20), False, ["the clock is not stable"]))
        for line, stable, marks in cases:
            with self.subTest(marks):
                self.assertEqual(_figures(runs, [_line(), line], stable)[1].marks, marks)

    def test_latency(self) -> None:
        ticks = list(range(200, 0, -1))
        figure, = _figures([_OURS], [_line(pmis=20, latency_ticks=ticks)])
        self.assertEqual(figure.latency, {"min": 1, "median": 100.5, "p99": 198, "max": 200})

    def test_plans_have_all_that_tables_show(self) -> None:
        for quick, depths in ((True, (64,)), (False, bench.DEPTHS)):
            runs = bench.plan(quick, timed=True)
            for run in runs:
                if run.source == "irq" and run.mode not in ("off",) and run.rate != 1000:
                    self.assertIn(Run(run.clock, run.target, "off", "irq", ms=run.ms), runs)
            for depth in depths:
                for mode in ("callchain", "deferred", "v3", "userspace"):
                    self.assertTrue([run for run in runs if run.mode == mode and run.depth == depth
                                     and run.source == "irq" and run.clock == "counted"])


class DumpsTest(unittest.TestCase):
    def setUp(self) -> None:
        # A figure's values tell its run.  Runs with dumps come first, as any order is allowed.
        runs = sorted(bench.plan(quick=False, timed=False), key=lambda run: -run.dump)
        self.results = Results({}, [
            Figure(run, {"median": (1000 if run.source == "nmi" else 0) + run.depth + run.dump},
                   cost=(2000 if run.source == "irq" else 0) + run.dump,
                   bytes_per_sample=run.dump + 48) for run in runs if run.clock == "counted"])

    def test_command(self) -> None:
        self.assertIn(" -k 4096 ", Run("counted", "guest", "deferred", dump=4096).command())
        self.assertNotIn(" -k", Run("counted", "guest", "deferred").command())

    def test_none_is_found_unless_asked_for(self) -> None:
        asked: Tuple[Tuple[int, Dict[str, int]], ...] = ((0, {}), (2048, {"dump": 2048}))
        for dump, wanted in asked:
            figure = self.results.find(target="guest", mode="deferred", depth=1, **wanted)
            self.assertEqual(figure.run.dump if figure else None, dump)

    def test_table(self) -> None:
        for quick in (True, False):
            runs = bench.plan(quick, timed=False)
            figures = [figure for figure in self.results.figures if figure.run in runs]
            rows = benchreport._dump_table(Results({}, figures)).splitlines()
            self.assertEqual([row.split(" | ")[0] for row in rows[2:5]],
                             ["| immediate", "| deferred", "| host process, perf's own"])
            for row in rows[2:5]:
                self.assertEqual(row.split(" | ")[1:],
                                 ["1 001 / 2 000 / 48", "2 025 / 3 024 / 1 072",
                                  "3 049 / 4 048 / 2 096", "5 097 / 6 096 / 4 144",
                                  "9 193 / 10 192 / 8 240 |"])

    def test_plot_has_none(self) -> None:
        axes = mock.Mock()
        with mock.patch.object(benchreport, "_axes", return_value=(None, axes)), \
                mock.patch.object(benchreport, "_save"):
            benchreport._plot_latency(self.results, Path())
        for call in axes.plot.call_args_list:
            self.assertLess(max(call.args[1]), 1000 + 1024)

    def test_gate_has_those_that_it_watches(self) -> None:
        self.assertEqual({run.dump for run in bench.gate_plan()}, {0, bench.GATE_DUMP})


class Arm64Test(unittest.TestCase):
    def test_plans_are_what_it_can(self) -> None:
        """On arm64, a module can't send NMIs, no walk is immediate, and there are no dumps."""
        for runs in (bench.arm64_plan(True), bench.arm64_plan(False), bench.gate_plan(ARM64),
                     bench.peers_plan(bench.pmis("arm64"))):
            self.assertEqual({run.source for run in runs}, {"irq"})
            self.assertEqual({run.dump for run in runs}, {0})
            self.assertFalse([run for run in runs if run.target == "guest"
                              and run.mode in ("callchain", "v3")])
        self.assertEqual({run.source for run in bench.peers_plan()}, {"nmi"})

    def test_tables_have_all_figures(self) -> None:
        environment = {name: "some" for name in ("kernel", "qemu", "compiler", "accel", "commit")}
        for quick, rows in ((True, 1), (False, 4)):
            # Give latencies, costs and slowdowns values that can be told apart.
            figures = [Figure(run, {"median": 1000.0 + run.depth, "max": 9.0},
                              cost=5000.0 + run.depth, slowdown=0.01, pages=run.stride // 16)
                       for run in bench.arm64_plan(quick)]
            results = Results({**environment, "arch": "arm64"}, figures)
            with tempfile.TemporaryDirectory() as tmp, mock.patch.object(benchreport, "say"):
                benchreport.write_arm64(results, Path(tmp))
                text = (Path(tmp) / "table.md").read_text()
                self.assertTrue((Path(tmp) / "latency.svg").exists())
            self.assertIn("| deferred | 1 001, 9 | 1 016, 9 | 1 064, 9 | 1 127, 9 |", text)
            self.assertIn("| host process, perf's own | 1 001, 9 |", text)
            costs = "| 5 001 | 5 016 | 5 064 | 5 127 |" if not quick else "| 5 064 |"
            self.assertIn(f"| deferred {costs}\n", text)
            self.assertIn(f"| user-space sampler {costs}\n", text)
            self.assertIn("An exit for a hypercall and the entry after it take the guest 1 000 "
                          "instructions", text)
            self.assertIn(f"| deferred | {'5 127 | ' * (2 if quick else 5)}".rstrip(), text)
            self.assertEqual(rows, len(costs.split("|")) - 2)

    def test_its_tools_are_recorded(self) -> None:
        build = mock.Mock(arch=ARM64)
        host = {"kernel": "7.3.4", "cpus": "2", "cpu": "0xd0c", "clocksource": "arch_sys_counter"}
        run = Run("counted", "guest", "ip", "irq")
        with mock.patch.object(bench, "EmulatedHost"), mock.patch.object(bench, "_said") as said, \
                mock.patch.object(bench, "_measure", return_value=(host, [_line(pmis=1)])):
            said.return_value = "QEMU emulator version 7.2.22"
            results = bench.measure(build, "tcg", Path("/r"), [run])
        asked = [call.args[0] for call in said.call_args_list]
        self.assertIn("qemu-system-aarch64", asked)
        self.assertIn("aarch64-linux-gnu-gcc", asked)
        self.assertEqual((results.arch, results.source), ("arm64", "irq"))
        self.assertNotIn("the clock is not stable", results.figures[0].marks)


class LostTest(unittest.TestCase):
    def test_cost_times_rate(self) -> None:
        self.assertEqual(benchreport.lost(5000.0, 4000), "2.0 %")
        self.assertEqual(benchreport.lost(99999.0, 10000), "100.0 %")
        self.assertEqual(benchreport.lost(100000.0, 10000), "> 100 %")

    def test_lines_can_be_told_apart_in_grey(self) -> None:
        self.assertEqual(len(benchreport._STYLES), len(benchreport._WAYS))
        self.assertEqual(len({style[1:] for style in benchreport._STYLES}),
                         len(benchreport._STYLES))

    def test_lines_are_darker_than_paper(self) -> None:
        for color, *_ in benchreport._STYLES:
            parts = [int(color[place:place + 2], 16) / 255 for place in (1, 3, 5)]
            linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
                      for part in parts]
            contrast = 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
            self.assertGreater(contrast, 4.5, color)

    def test_nothing_is_timed_in_emulation(self) -> None:
        for quick in (True, False):
            self.assertEqual({run.clock for run in bench.plan(quick, timed=False)}, {"counted"})
            self.assertIn("timed", {run.clock for run in bench.plan(quick, timed=True)})


class HighestRateTest(unittest.TestCase):
    def _results(self, *kept: float) -> Results:
        return Results({}, [Figure(Run("counted", "guest", "callchain", depth=64, rate=rate),
                                   kept=share)
                            for rate, share in zip((1000, 2000, 4000, 8000), kept)])

    def test_below_the_first_that_is_too_fast(self) -> None:
        self.assertEqual(benchreport.highest_rate(self._results(1, 0.99, 0.5, 1), "counted",
                                                  "callchain"), 2000)

    def test_where_all_fail_it_is_a_lower_bound(self) -> None:
        results = self._results(1, 0.99, 0.5, 1)
        self.assertEqual(benchreport._rate(results, "callchain", 64), "2 000 Hz")
        ips = Results({}, [Figure(Run("counted", "guest", "ip", depth=64, rate=figure.run.rate),
                                  kept=figure.kept) for figure in results.figures])
        results.figures += ips.figures
        self.assertEqual(benchreport._rate(results, "callchain", 64), "at least 2 000 Hz")
        self.assertEqual(benchreport._rate(results, "v3", 64), "-")

    def test_none(self) -> None:
        self.assertIsNone(benchreport.highest_rate(self._results(0.5, 1), "counted", "callchain"))

    def test_one_rate_tells_nothing(self) -> None:
        self.assertIsNone(benchreport.highest_rate(self._results(1), "counted", "callchain"))


class JsonTest(unittest.TestCase):
    def test_committed_results_are_what_the_schema_says(self) -> None:
        for name in ("bench/bench.json", "gate/gcc12-qemu7.2.json"):
            path = bench.REPO / "results" / name
            results = bench.read(path)
            data = json.loads(path.read_text())
            for figure in data["figures"]:
                figure["run"].setdefault("dump", 0)
            self.assertEqual(results.to_json(), data)

    def test_command_of_the_walk_of_2023(self) -> None:
        script = Run("counted", "guest", "v3").script()
        self.assertIn("-m callchain", script)
        self.assertTrue(script.startswith("echo 1 > ") and "\necho 0 > " in script)


class PeersTest(unittest.TestCase):
    def test_loss_is_told_from_runs_without_perf(self) -> None:
        said = ("guests 1 off 1000\nguests 1 ip 1250\nguests 4 off 3000\nguests 4 ip 4000\n"
                "processes 4 off 900\nprocesses 4 callchain 1000\n")
        found = bench.whole_hosts(said)
        self.assertEqual([(each.who, each.number, each.way) for each in found],
                         [("guests", 1, "ip"), ("guests", 4, "ip"),
                          ("processes", 4, "callchain")])
        for each, lost in zip(found, (0.2, 0.25, 0.1)):
            self.assertAlmostEqual(each.slowdown, lost)

    def test_script_runs_each_way(self) -> None:
        """Use programs that do nothing.  The benchmark's first line is no result."""
        with tempfile.TemporaryDirectory() as tmp:
            programs = Path(tmp) / "guest_callchain"
            programs.mkdir()
            script = Path(tmp) / "scripts" / "guest" / "whole-host.sh"
            script.parent.mkdir(parents=True)
            text = (bench.REPO / "scripts" / "guest" / script.name).read_text()
            script.write_text(text.replace("/run/whole-host", f"{tmp}/out"))
            for path, does in ((Path(tmp) / "perf",
                                'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'),
                               (programs / "guest_callchain_bench",
                                'echo "Random seed: 1"; echo "{\\"cpu_ns\\": 100, \\"x\\": 1}"')):
                path.write_text(f"#!/bin/sh\n{does}\n")
                path.chmod(0o755)
            environment = {"BUILD_SELFTESTS": tmp, "REPO": tmp, "PATH": f"{tmp}:/usr/bin:/bin"}
            done = subprocess.run(["sh", str(script)], env=environment, check=True,
                                  stdout=subprocess.PIPE, text=True)
            self.assertEqual(len(bench.whole_hosts(done.stdout)), 9)
            self.assertIn("guests 16 callchain 100\n", done.stdout)
            (programs / "guest_callchain_bench").write_text("#!/bin/sh\nexit 4\n")
            done = subprocess.run(["sh", str(script)], env=environment, check=False,
                                  stdout=subprocess.PIPE, text=True)
            self.assertNotEqual(done.returncode, 0)

    def test_tables_have_all_figures(self) -> None:
        hosts = [bench.WholeHost(who, number, way, (number + more) / 100)
                 for who, way, more in (("guests", "ip", 1), ("guests", "callchain", 2),
                                        ("processes", "callchain", 0))
                 for number in (1, 4, 16)]
        figures = [Figure(run, {"median": 1000.0 + number})
                   for number, run in enumerate(bench.peers_plan())]
        results = Results({}, [], {"unpatched": figures, "option on": figures}, hosts)
        *_, first, second = benchreport._peer_table(results).splitlines()
        numbers = " | ".join(f"1 00{number}" for number in range(7))
        self.assertEqual(first, f"| unpatched | {numbers} |")
        self.assertEqual(second, f"| option on | {numbers} |")
        *_, first, second, third = benchreport._whole_host_table(results).splitlines()
        self.assertEqual(first, "| guests, ip only | 2.0 % | 5.0 % | 17.0 % |")
        self.assertEqual(second, "| guests, deferred callchains | 3.0 % | 6.0 % | 18.0 % |")
        self.assertEqual(third, "| processes, perf's own callchains | 1.0 % | 4.0 % | 16.0 % |")

    def test_both_survive_the_file(self) -> None:
        figures = [Figure(run, {"median": 1.0}) for run in bench.peers_plan()]
        environment = {name: "tcg" for name in ("commit", "kernel", "qemu", "compiler", "accel",
                                                "cpu", "cpus")}
        results = Results(environment, figures, {"unpatched": figures},
                          [bench.WholeHost("guests", 4, "ip", 0.1)])
        with tempfile.TemporaryDirectory() as tmp:
            bench.write(results, Path(tmp) / "bench.json")
            self.assertEqual(bench.read(Path(tmp) / "bench.json"), results)


if __name__ == "__main__":
    unittest.main()
