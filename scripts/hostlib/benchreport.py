# SPDX-License-Identifier: GPL-2.0-only
"""Report the results of a benchmark: tables as Markdown, and plots as SVG."""

import json
import re
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import matplotlib
matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from .arch import X86
from .bench import DEPTHS, GATE_PIECE, KEEPS_UP, PIECES, RATES, Figure, Results
from .build import BENCH
from .ui import Failure, say

# Label, target and mode: the rows of most tables, and the lines of all plots.
_WAYS = [
    ("ip only, with the patches", "guest", "ip"),
    ("guest callchain", "guest", "callchain"),
    ("walk of 2023", "guest", "v3"),
    ("user-space sampler", "guest", "userspace"),
    ("host process, perf's own", "host", "callchain"),
]

# Color, line and marker of each way.  Line and marker tell the ways apart in a grey print.
_STYLES = [("#666666", "--", "None"), ("#2166ac", "-", "s"), ("#b35806", "-.", "^"),
           ("#762a83", "--", "D"), ("#222222", "-", "x")]

# Instructions per second, to compute a share of time from a cost and a rate.
_SPEED = 1_000_000_000

# Loops of the guest that hyperfine times; they take a second under emulation.
_LOOPS = 50_000_000


def whole_commands(quick: bool) -> str:
    """A shell script that times a fixed workload, without and with perf record."""
    work = f"$BUILD_SELFTESTS/{BENCH} -m off -t 0 -w {_LOOPS}"
    record = "perf record -q -N -B -o /tmp/perf.data"
    commands = [("perf record of nothing", f"{record} -e dummy -- {work}"), ("no perf", work)]
    for rate in RATES:
        for name, options in (("ip only", ""), ("callchains", "-g")):
            commands.append((f"perf record, {name}, {rate} Hz",
                             f"{record} {options} -e cpu-clock -c {10**9 // rate} -- {work}"))
    arguments = " ".join(f'-n "{name}" "{command}"' for name, command in commands)
    return (f"hyperfine -N --style none --warmup 1 --runs {2 if quick else 8} "
            f"--export-json /run/shared/hyperfine.json {arguments} > /dev/null 2>&1")


def _table(head: Sequence[str], rows: List[List[str]]) -> str:
    """Return a Markdown table; rows without figures are left out.  An empty one has no text."""
    rows = [row for row in rows if any(re.search(r"\d", cell) for cell in row[1:])]
    if not rows:
        return ""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cell(figure: Optional[Figure], text: Callable[[Figure], str]) -> str:
    """Format a figure, and append its marks, such as "throttled"."""
    if figure is None:
        return "-"
    return text(figure) + "".join(f" ({mark})" for mark in figure.marks)


def _number(value: Optional[float]) -> str:
    assert value is not None
    return f"{value:,.0f}".replace(",", " ")


def _percent(value: Optional[float]) -> str:
    assert value is not None
    return f"{100 * value:.1f} %"


def _lost(figure: Figure) -> str:
    """Format the share of time that was lost, with its spread if the run was repeated."""
    if figure.spread is None:
        return _percent(figure.slowdown)
    assert figure.slowdown is not None
    return f"{100 * figure.slowdown:.0f} ± {100 * figure.spread:.0f} %"


def _by_depth(head: str, depths: Sequence[int], cell: Callable[[Dict[str, Any]], str]) -> str:
    """Return a table of all ways; cell() formats the figure of runs with some properties."""
    return _table([head, *(f"depth {depth}" for depth in depths)], [
        [label, *(cell({"target": target, "mode": mode,
                        "depth": 0 if mode == "ip" else depth}) for depth in depths)]
        for label, target, mode in _WAYS])


def _latency_table(results: Results) -> str:
    def cell(way: Dict[str, Any]) -> str:
        figure = results.find(clock="counted", source=results.source, stride=16, **way)
        # A sampler in user space has no PMI.
        return _cell(figure if way["mode"] != "userspace" else None,
                     lambda f: f"{_number(f.latency['median'])}, {_number(f.latency['max'])}")

    return _by_depth("PMI, instructions: median, highest", DEPTHS, cell)


def _rates() -> str:
    return " / ".join(f"{rate // 1000}" for rate in RATES)


def _slowdown_table(results: Results, depths: Sequence[int]) -> str:
    def cell(way: Dict[str, Any]) -> str:
        return " / ".join(_cell(results.find("slowdown", clock="timed", source="irq", rate=rate,
                                             **way), _lost) for rate in RATES)

    return _by_depth(f"Time lost at {_rates()} kHz, timed", depths, cell)


def _cost_tables(results: Results, depths: Sequence[int]) -> List[str]:
    """Return the table of costs, and that of the time lost, which follows from them."""
    def find(way: Dict[str, Any]) -> Optional[Figure]:
        return results.find("cost", clock="counted", source="irq", rate=RATES[1], **way)

    def share(way: Dict[str, Any]) -> str:
        figure = find(way)
        return " / ".join(lost(figure.cost, rate) for rate in RATES) if figure else "-"

    return [_by_depth("Whole cost of a sample, instructions", depths,
                      lambda way: _cell(find(way), lambda f: _number(f.cost))),
            _by_depth(f"Time lost at {_rates()} kHz: cost times rate, at a billion instructions "
                      "a second", depths, share)]


def lost(cost: Optional[float], rate: int) -> str:
    """Format the share of time that samples take, from their cost and rate."""
    assert cost is not None
    share = cost * rate / _SPEED
    return _percent(share) if share < 1 else "> 100 %"


def highest_rate(results: Results, clock: str, mode: str, depth: int = 64) -> Optional[int]:
    """Return the highest rate of NMIs that was kept up with, as were all lower rates.

    Return None if there is none, or if there are no rates to compare.
    """
    figures = [f for f in results.figures
               if (f.run.clock, f.run.target, f.run.mode, f.run.source, f.run.depth,
                   f.run.stride) == (clock, "guest", mode, "nmi", depth, 16)]
    if len(figures) < 2:
        return None

    best = None
    for figure in sorted(figures, key=lambda f: f.run.rate):
        if figure.kept < KEEPS_UP or figure.throttled:
            break
        best = figure.run.rate
    return best


def _rate(results: Results, mode: str, depth: int) -> str:
    """Format the highest rate.

    It is "at least" that rate if samples without a callchain can't do more, either.
    """
    best, limit = (highest_rate(results, "counted", which, depth) for which in (mode, "ip"))
    if not best:
        return "-"
    return f"at least {_number(best)} Hz" if best == limit else f"{_number(best)} Hz"


def _other_table(results: Results) -> str:
    rows = []
    depths = (64, 127) if results.source == "nmi" else ()
    for label, target, mode in _WAYS:
        rates = [_rate(results, mode, depth) if target == "guest" else "-" for depth in depths]
        figure = results.find(clock="counted", target=target, mode=mode, rate=RATES[1],
                              source="irq", depth=0 if mode == "ip" else 64)
        rows.append([label, *rates,
                     _cell(figure, lambda f: _number(f.bytes_per_sample))])
    return _table(["", *(f"highest NMI rate kept up with, depth {depth}" for depth in depths),
                   "bytes a sample, depth 64"], rows)


def _piece_table(results: Results) -> str:
    cells = []
    for piece, task in (*((piece, False) for piece in (0, *PIECES)), (GATE_PIECE, True)):
        run = {"clock": "counted", "target": "guest", "mode": "callchain", "depth": 1,
               "piece": piece, "task": task, "rate": RATES[0], "stride": 16}
        pmi, whole = (results.find("cost", source=source, **run)
                      for source in (results.source, "irq"))
        cells.append(" / ".join((_cell(pmi, lambda f: _number(f.latency["median"])),
                                 _cell(whole, lambda f: _number(f.cost)),
                                 _cell(whole, lambda f: _number(f.bytes_per_sample)))))
    return _table(["Depth 1, and the stack is read from the start of a page", "nothing",
                   *(f"{piece // 1024} KiB" for piece in PIECES),
                   "all that perf kvm record -g reads: 4 KiB, registers, 8 KiB of user mode's "
                   "stack, the task"],
                  [["PMI / whole sample / bytes", *cells]])


def _exits(results: Results) -> str:
    off, event = (results.find(clock="counted", target="exit", mode=mode)
                  for mode in ("off", "callchain"))
    if not (off and event):
        raise Failure("The benchmark lacks the runs that time exits")
    what = "CPUID" if results.arch == X86.name else "a hypercall"
    return (f"An exit for {what} and the entry after it take the guest "
            f"{_number(off.latency['median'])} instructions, and "
            f"{_number(event.latency['median'])} while an event asks for callchains.\n")


def _peer_table(results: Results) -> str:
    """Return a table of the costs by kernel if no guest callchain is requested."""
    ways = [("guest, ip only", "guest", "ip", 0), ("process, ip only", "host", "ip", 0),
            *((f"process, {depth} frames", "host", "callchain", depth) for depth in DEPTHS),
            ("exit and entry", "exit", "off", 0)]
    rows = []
    for kernel, figures in results.peers.items():
        peer = Results({}, figures)
        rows.append([kernel, *(_cell(peer.find(target=target, mode=mode, depth=depth),
                                     lambda f: _number(f.latency["median"]))
                               for _, target, mode, depth in ways)])
    return _table(["Without a guest's callchain, PMI, median", *(way for way, *_ in ways)], rows)


def _whole_host_table(results: Results) -> str:
    """Return a table of what perf record -a costs several vCPUs, and as many processes."""
    ways = (("guests, ip only", "guests", "ip"), ("guests, callchains", "guests", "callchain"),
            ("processes, perf's own callchains", "processes", "callchain"))
    lost = {(each.who, each.way, each.number): each.slowdown for each in results.whole_hosts}
    numbers = sorted({number for _, _, number in lost})
    return _table(["Time lost to `perf record -a` at 4 kHz, 16 frames",
                   *(f"{number} of them" for number in numbers)],
                  [[label, *(_percent(lost[who, way, number]) for number in numbers)]
                   for label, who, way in ways])


def _page_table(results: Results) -> str:
    """Return a table of whole costs: the PMI's latency does not include walks."""
    figures = {mode: sorted((f for f in results.figures if f.run.clock == "counted" and
                             (f.run.mode, f.run.source, f.run.depth, f.run.rate) ==
                             (mode, "irq", 127, 500)), key=lambda f: f.run.stride)
               for _, _, mode in _WAYS}
    return _table(["127 frames, whole cost of a sample",
                   *(f"{f.pages} page{'s' * (f.pages > 1)}" for f in figures["callchain"])],
                  [[label, *(_cell(f, lambda f: _number(f.cost)) for f in figures[mode])]
                   for label, target, mode in _WAYS if target == "guest"])


def _hyperfine_table(path: Path) -> str:
    results = json.loads(path.read_text())["results"]
    base = results[0]["median"]
    return _table(["Whole command, timed by hyperfine", "median, relative to perf record of nothing"],
                  [[r["command"], f"{r['median'] / base:.2f} ± {r['stddev'] / base:.2f}"]
                   for r in results])


def _axes(title: str, x: str, y: str) -> Tuple[Any, Any]:
    matplotlib.rcParams["svg.hashsalt"] = "bench"
    figure, axes = pyplot.subplots(figsize=(8, 5))
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    return figure, axes


def _style(style: Tuple[str, str, str]) -> Dict[str, str]:
    return dict(zip(("color", "linestyle", "marker"), style))


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.legend(fontsize=9)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _latencies(results: Results, target: str, mode: str) -> List[Tuple[int, float]]:
    """Return the median latency by depth; frames lie side by side, and no stack is read."""
    # IPs don't depend on the depth: they have one figure, which is drawn as a line.
    usual = ("counted", target, mode, results.source, 16, 1000, 0)
    points = sorted((f.run.depth, f.latency["median"]) for f in results.figures if f.latency and
                    (f.run.clock, f.run.target, f.run.mode, f.run.source, f.run.stride,
                     f.run.rate, f.run.piece) == usual)
    if points and mode == "ip":
        return [(depth, points[0][1]) for depth in (0, max(DEPTHS))]
    return points


def _plot_latency(results: Results, path: Path) -> None:
    figure, axes = _axes("How long a PMI takes, by the depth of the guest's stack",
                         "frames on the stack", "instructions in the PMI's handler, median")
    for (label, target, mode), style in zip(_WAYS, _STYLES):
        points = _latencies(results, target, mode)
        if points:
            axes.plot(*zip(*dict(points).items()), label=label, markersize=5, **_style(style))
    axes.set_yscale("log")
    _save(figure, axes, path)


def _plot_overhead(results: Results, clock: str, path: Path) -> None:
    figure, axes = _axes(f"What a guest loses, by the rate of samples, depth 64, {clock}",
                         "samples a second", "time lost, percent")
    for (label, target, mode), style in zip(_WAYS, _STYLES):
        points: Dict[int, Tuple[float, float]] = {
            f.run.rate: (100 * f.slowdown, 100 * (f.spread or 0)) for f in results.figures
            if f.run.clock == clock and f.run.target == target and f.run.mode == mode
            and f.run.source == "irq" and f.slowdown is not None
            and (mode == "ip" or f.run.depth == 64)}
        if points:
            rates = sorted(points)
            axes.errorbar(rates, [points[rate][0] for rate in rates],
                          [points[rate][1] for rate in rates] if clock == "timed" else None,
                          label=label, markersize=5, elinewidth=0.6, capsize=2, **_style(style))
    axes.set_xscale("log")
    # Timed figures are not exact enough to tell small shares apart.
    if clock == "counted":
        axes.set_yscale("log")
    _save(figure, axes, path)


def _meaning(results: Results) -> str:
    """Return a sentence that sums up the main figures."""
    def share(mode: str) -> Optional[str]:
        figure = results.find("cost", clock="counted", target="guest", mode=mode, source="irq",
                              depth=64, rate=RATES[1])
        return lost(figure.cost, RATES[1]) if figure else None
    ours, sampler, v3 = map(share, ("callchain", "userspace", "v3"))
    if not (ours and sampler):
        raise Failure("The benchmark lacks the runs that its summary is about")
    return (f"At 4 kHz and 64 frames, a guest loses {ours} of its time to callchains; a sampler in "
            f"its VMM would take {sampler}{f', and the walk of 2023 {v3}' if v3 else ''}.\n")


def _origin(results: Results) -> str:
    environment = results.environment
    return ("Figures are instructions, counted under QEMU's `-icount`. "
            f"Linux {environment['kernel']}, QEMU {environment['qemu']}, "
            f"{environment['compiler']}, {environment['accel']}, commit {environment['commit']}.\n")


def write(results: Results, folder: Path) -> None:
    """Write the tables and plots next to the JSON, and print the tables."""
    def depths(clock: str) -> List[int]:
        return [depth for depth in DEPTHS
                if results.find("slowdown", clock=clock, mode="callchain", source="irq",
                                target="guest", rate=RATES[1], depth=depth)]

    counted, timed = depths("counted"), depths("timed")
    parts = [
        _origin(results), _latency_table(results), *_cost_tables(results, counted),
        _meaning(results), _other_table(results), _piece_table(results), _exits(results),
        _page_table(results), _peer_table(results), _whole_host_table(results)]
    _plot_latency(results, folder / "latency.svg")
    _plot_overhead(results, "counted", folder / "overhead.svg")
    if timed:
        hyperfine = folder / "timed" / "hyperfine.json"
        shutil.copy(hyperfine, folder / "hyperfine.json")
        parts += ["Timed figures are good for ratios only, of the middle one of repeated runs; "
                  "half of these lie within ±.\n", _slowdown_table(results, timed),
                  _hyperfine_table(folder / "hyperfine.json")]
        _plot_overhead(results, "timed", folder / "overhead-timed.svg")
    text = "\n".join(part for part in parts if part)
    (folder / "table.md").write_text(text)
    say(text)
    say(f"The figures are in {folder}/bench.json, with plots next to it")
