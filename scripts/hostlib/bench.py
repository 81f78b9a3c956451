# SPDX-License-Identifier: GPL-2.0-only
"""Measure the costs of several ways to sample a guest, and save the figures.

Each run of the benchmark program samples a guest, or a process of the host, in one
way for a while.  "Counted" runs are emulated with a clock that ticks once per
instruction.  "Timed" runs measure real time, which is good for ratios only.
"""

import json
import statistics
import subprocess
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from .arch import X86, Arch
from .build import BENCH, Build
from .emulated import EmulatedHost
from .patches import REPO
from .ui import Failure, Step

SCHEMA_VERSION = 1

# The depths and rates of the tables.
DEPTHS = (1, 16, 64, 127)
RATES = (1000, 4000, 10000)

# How much of the stack is read for samples beside the callchain, in bytes.
PIECES = (1024, 2048, 4096, 8192)

# The size of the piece whose cost has a limit: a page.
GATE_PIECE = 4096

# A rate is kept up with if at least this share of its PMIs comes.  The CPU that sends
# the PMIs has a tick of its own, which takes up to 5 % of them.
KEEPS_UP = 0.9
TOO_SLOW = "does not keep up"

# Timeout of one boot, in seconds.
_DEADLINE = 3000

# The job that runs guests and processes under "perf record -a"; see whole_hosts().
WHOLE_HOST = 'sh "$REPO/scripts/guest/whole-host.sh" > /run/shared/whole-host.txt'

# The parameter that makes a host built with BASELINE=v3 walk as in 2023.
_V3_PARAMETER = "/sys/module/kvm/parameters/stack_walk_v3"

_QEMU = {"x86": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}

_FRAME = 16         # bytes of a frame: the frames of a stack share a page or two


def pmis(arch: str) -> str:
    """Return the kind of PMI for this architecture: an arm64 module can't send NMIs."""
    return "nmi" if arch == X86.name else "irq"


@dataclass(frozen=True)
class Run:
    """One run of the benchmark program: what it samples, how, how often, how long."""
    clock: str
    target: str
    mode: str
    source: str = "nmi"
    depth: int = 0
    stride: int = _FRAME
    rate: int = 1000
    ms: int = 40
    piece: int = 0
    task: bool = False

    def command(self) -> str:
        target = {"guest": "", "host": "-H", "exit": "-x"}[self.target]
        return (f"{BENCH} {target} "
                f"-m {'callchain' if self.mode == 'v3' else self.mode} -i {self.source} "
                f"-d {self.depth} -s {self.stride} "
                f"{f'-k {self.piece} ' if self.piece else ''}"
                f"{'-g ' if self.task else ''}-p {10**9 // self.rate} -t {self.ms}")

    def script(self) -> str:
        """Return the shell commands for this run; the job exits if the run fails."""
        run = f"{self.command()} 2>&1 || exit 1"
        if self.mode != "v3":
            return run
        return f"echo 1 > {_V3_PARAMETER} || exit 1\n{run}\necho 0 > {_V3_PARAMETER}"


@dataclass
class Figure:
    """The results of a run.

    latency: how long the PMI's handler took, or an exit and the entry after it; in
        instructions if counted, else in ticks of the clock
    cost: the instructions that a PMI took from the target, the way to the handler and back
        included, as a median; None if they were not counted
    slowdown: the share of its time that the target lost; None if there is no run without
        samples to compare with
    spread: half of all repeated runs lie within this distance from the slowdown; None if
        there was one run only
    kept: the share of the due PMIs that came
    """
    run: Run
    latency: Dict[str, float] = field(default_factory=dict)
    cost: Optional[float] = None
    slowdown: Optional[float] = None
    spread: Optional[float] = None
    kept: float = 0.0
    samples: int = 0
    pmis: int = 0
    throttled: int = 0
    bytes_per_sample: float = 0.0
    pages: int = 0
    marks: List[str] = field(default_factory=list)


@dataclass
class WholeHost:
    """The time that guests or processes lose while "perf record -a" samples the whole host.

    who: "guests", of one vCPU each, or "processes"
    number: how many of them share a CPU
    way: how they are sampled
    slowdown: the share of its time that each of them lost, on average
    """
    who: str
    number: int
    way: str
    slowdown: float


@dataclass
class Results:
    """All figures of one command, and where they come from."""
    environment: Dict[str, Any]
    figures: List[Figure]
    # By kernel: the costs there if no guest callchain is requested.
    peers: Dict[str, List[Figure]] = field(default_factory=dict)
    # The costs of "perf record -a" for several guests or processes.
    whole_hosts: List[WholeHost] = field(default_factory=list)

    @property
    def arch(self) -> str:
        """The host's architecture."""
        return str(self.environment.get("arch", X86.name))

    @property
    def source(self) -> str:
        """The kind of PMI with which latencies were measured."""
        return pmis(self.arch)

    def find(self, has: str = "run", /, **wanted: Any) -> Optional[Figure]:
        """Return the first figure of a run with these properties that has this attribute.

        Only runs that read no piece of the stack count, and nothing of the task, unless that is
        among the properties.
        """
        wanted = {"piece": 0, "task": False, **wanted}
        for figure in self.figures:
            if (getattr(figure, has) is not None and
                    all(getattr(figure.run, name) == value for name, value in wanted.items())):
                return figure
        return None

    def to_json(self, form: "Callable[[Figure], Dict[str, Any]]" = asdict) -> Dict[str, Any]:
        """Return data for JSON, with each figure in this form."""
        data: Dict[str, Any] = {"schema": SCHEMA_VERSION, "environment": self.environment,
                                "figures": [form(figure) for figure in self.figures]}
        if self.peers:
            data["peers"] = {kernel: [form(figure) for figure in figures]
                             for kernel, figures in self.peers.items()}
        if self.whole_hosts:
            data["whole_hosts"] = [asdict(each) for each in self.whole_hosts]
        return data

    @staticmethod
    def from_json(data: Dict[str, Any]) -> "Results":
        def figures(listed: List[Dict[str, Any]]) -> List[Figure]:
            return [Figure(**dict(figure, run=Run(**figure["run"]))) for figure in listed]

        if data.get("schema") != SCHEMA_VERSION:
            raise Failure(f"These results have schema {data.get('schema')}, this is "
                          f"{SCHEMA_VERSION}; make them anew")
        return Results(data["environment"], figures(data["figures"]),
                       {kernel: figures(listed)
                        for kernel, listed in data.get("peers", {}).items()},
                       [WholeHost(**each) for each in data.get("whole_hosts", [])])


def _latencies(depths: Iterable[int], ways: Iterable[str], source: str) -> List[Run]:
    """Runs for the PMI latency by the depth of the stack, of a guest and of the host."""
    runs = [Run("counted", target, "ip", source) for target in ("guest", "host")]
    for depth in depths:
        runs += [Run("counted", "guest", way, source, depth, ms=60) for way in ways]
        runs.append(Run("counted", "host", "callchain", source, depth))
    return runs


def _costs(depths: Iterable[int]) -> List[Run]:
    """Runs for the whole cost of a sample; by IRQs, see _slowdowns()."""
    return [Run("counted", "guest", "callchain", "irq", depth, ms=60) for depth in depths]


def _pages(strides: Iterable[int], ways: Iterable[str]) -> List[Run]:
    """Runs for the whole cost by the number of pages that 127 frames lie on."""
    return [Run("counted", "guest", way, "irq", 127, stride, rate=500, ms=60)
            for stride in strides for way in ways]


def _slowdowns(clock: str, depths: Iterable[int], rates: Iterable[int], ms: int,
               ways: Iterable[str]) -> List[Run]:
    """Runs for the time that the target loses.

    The PMIs are IRQs: no other CPU has to send these, so that nothing else runs meanwhile.
    """
    runs = [Run(clock, target, "off", "irq", ms=ms) for target in ("guest", "host")]
    for rate in rates:
        runs.append(Run(clock, "guest", "ip", "irq", rate=rate, ms=ms))
        for depth in depths:
            runs += [Run(clock, "guest", way, "irq", depth, rate=rate, ms=ms)
                     for way in (*ways, "userspace")]
            runs.append(Run(clock, "host", "callchain", "irq", depth, rate=rate, ms=ms))
    return runs


def _pieces(sizes: Iterable[int], source: str) -> List[Run]:
    """Runs for the cost of reading the stack: in the PMI, and the whole cost, by IRQs.

    The depth is 1: guests whose stack is read have no frame pointers, so their chains are short.
    """
    return [Run("counted", "guest", "callchain", each, depth=1, piece=size, task=task)
            for size, task in (*((size, False) for size in sizes), (GATE_PIECE, True))
            for each in dict.fromkeys((source, "irq"))]


def _exits(source: str) -> List[Run]:
    """Runs for the cost of an exit while no sample is taken."""
    return [Run("counted", "exit", mode, source, rate=1) for mode in ("off", "callchain")]


def _ladder(rates: Iterable[int], modes: Iterable[str], depth: int) -> List[Run]:
    """Runs with NMIs at rising rates, to see which of these each mode keeps up with."""
    return [Run("counted", "guest", mode, depth=depth, rate=rate, ms=80)
            for mode in modes for rate in rates]


def plan(arch: Arch, quick: bool, timed: bool) -> List[Run]:
    """All runs of "make bench", except for those of peers_plan().

    Args:
        quick: measure less
        timed: measure time as well; this is meaningless if the host is emulated
    """
    source = pmis(arch.name)
    ways = ("callchain", "v3") if arch is X86 else ("callchain",)
    # Only PMIs that are NMIs can come faster than their samples are taken.
    rates = ((1000, 2000, 4000, 6000, 8000, 10000, 20000, 33000, 50000, 66000, 80000, 100000)
             if source == "nmi" else ())
    runs = _pieces(PIECES, source) + _exits(source)
    if quick:
        return (runs + _latencies(DEPTHS, ways, source) + _pages((_FRAME, 2048), ways)
                + _slowdowns("counted", (64,), RATES, 50, ways) + _ladder(rates[2::2], ways, 64)
                + (7 * _slowdowns("timed", (64,), RATES, 100, ways) if timed else []))
    return (runs + _latencies((0, 1, 2, 4, 8, 16, 32, 64, 96, 127), ways, source)
            + _pages((16, 32, 64, 128, 256, 512, 1024, 2048), ways)
            # In a shorter run, or at 100 Hz, the samples would cost no more than the other
            # interrupts, whose number varies from run to run.
            + _slowdowns("counted", DEPTHS, RATES, 300, ways)
            # At 50 kHz, a PMI of an arm64 host would interrupt the walk for the one before.
            + _slowdowns("counted", (64,), (20000, 50000) if arch is X86 else (20000,), 50, ways)
            + _ladder(rates, ("ip", *ways), 64) + _ladder(rates[5:], ("ip", *ways), 127)
            + (9 * _slowdowns("timed", (16, 64), (100, 1000, 4000, 10000, 20000, 50000), 100, ways)
               if timed else []))


def peers_plan(source: str = "nmi") -> List[Run]:
    """Runs without guest callchains, for any kernel, patched or not."""
    # These are so long that the periods lost at the start don't look like a failure to keep up.
    return [Run("counted", "guest", "ip", source, ms=100),
            Run("counted", "host", "ip", source, ms=100),
            *(Run("counted", "host", "callchain", source, depth, ms=100) for depth in DEPTHS),
            Run("counted", "exit", "off", source, rate=1)]


def gate_plan(arch: Arch = X86) -> List[Run]:
    """The runs of "make gate", on a host that does not have the walk of 2023."""
    source = pmis(arch.name)
    runs = (_latencies(DEPTHS, ("callchain",), source) + _costs(DEPTHS)
            + _pages((512, 2048), ("callchain",)) + _pieces((GATE_PIECE,), source)
            + _exits(source))
    # If PMIs are IRQs, runs for the latency are those for the whole cost, too.
    return list(dict.fromkeys(runs))


_JOB = """
cd "$BUILD_SELFTESTS"
# Deep chains, and rates as asked for: what is measured must not be cut down.
echo 256 > /proc/sys/kernel/perf_event_max_stack
echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent
echo "environment kernel $(uname -r)"
echo "environment cpus $(nproc)"
echo "environment cpu $(sed -nE 's/^(model name|CPU part).*: //p' /proc/cpuinfo | head -n 1)"
{runs}
# At the end: early on, the kernel uses another clocksource while it watches the TSC.
clocksource=/sys/devices/system/clocksource/clocksource0/current_clocksource
for _ in $(seq 50); do
	[ "$(cat $clocksource)" = tsc-early ] || break
	sleep 0.1
done
echo "environment clocksource $(cat $clocksource)"
{more}
"""


def _measure(emulated: EmulatedHost, title: str, runs: List[Run], folder: Path,
             more: str) -> Tuple[Dict[str, str], List[Dict[str, Any]]]:
    """Boot once and do all runs; return the host's environment, and the result of each run."""
    environment: Dict[str, str] = {}
    lines: List[Dict[str, Any]] = []
    unread = ""

    with Step(f"Benchmark, {title}, {len(runs)} runs") as step:
        def output(text: str) -> None:
            nonlocal unread
            *complete, unread = (unread + text).split("\n")
            for line in complete:
                if line.startswith("environment "):
                    _, name, value = line.split(" ", 2)
                    environment[name] = value
                elif line.startswith("{"):
                    lines.append(json.loads(line))
                    run = runs[len(lines) - 1]
                    step.tick(f"{len(lines)} of {len(runs)}: {run.target} {run.mode}, "
                              f"depth {run.depth}, {run.rate} Hz")

        commands = "\n".join(run.script() for run in runs)
        outcome = emulated.run(_JOB.format(runs=commands, more=more), folder, _DEADLINE, output)

    if outcome.status or len(lines) != len(runs):
        said = [line.strip() for line in (folder / "output").read_text().splitlines()
                if line and not line.startswith(("{", "environment ", "Random seed"))]
        if len(lines) == len(runs):
            raise Failure(f"The job failed after the benchmark; see {folder / 'output'}")
        raise Failure(f"\"{' '.join(runs[len(lines)].command().split())}\" says: "
                      f"{said[-1] if said else 'nothing'}; see {folder / 'output'}")
    return environment, lines


def _latency(ticks: List[int]) -> Dict[str, float]:
    if not ticks:
        return {}
    ticks = sorted(ticks)
    return {"min": ticks[0], "median": statistics.median(ticks),
            "p99": ticks[(len(ticks) - 1) * 99 // 100], "max": ticks[-1]}


def _speed(line: Dict[str, Any]) -> float:
    return float(line["work"] / line["cpu_ns"])


def _half_range(lines: List[Dict[str, Any]]) -> float:
    """Return half of the interquartile range of the speeds of repeated runs."""
    low, _, high = statistics.quantiles(map(_speed, lines), n=4, method="inclusive")
    return (high - low) / 2


def _figures(runs: List[Run], lines: List[Dict[str, Any]], stable: bool) -> List[Figure]:
    """Compare each run with the run without samples that has the same clock, target and length.

    Of repeated runs, the median one counts.
    """
    repeated: Dict[Run, List[Dict[str, Any]]] = {}
    for run, line in zip(runs, lines):
        repeated.setdefault(run, []).append(line)
    for these in repeated.values():
        these.sort(key=_speed)
    # Compare runs of the same length: then beginning and end take the same share of both.
    off_lines = {(run.clock, run.target, run.ms): these
                 for run, these in repeated.items() if run.mode == "off"}
    figures = []
    for run, these in repeated.items():
        line = these[len(these) // 2]
        figure = Figure(run, _latency(line["latency_ticks"]), samples=line["samples"],
                        pmis=line["pmis"], throttled=line["throttled"],
                        pages=line["pages"])
        off = off_lines.get((run.clock, run.target, run.ms))
        if off:
            off_speed = _speed(off[len(off) // 2])
            figure.slowdown = 1 - _speed(line) / off_speed
            if len(these) > 1 and len(off) > 1:
                figure.spread = (_half_range(these)
                                 + (1 - figure.slowdown) * _half_range(off)) / off_speed
        # Add two: the last period does not end, and the start takes up to another period.
        if line["pmis"]:
            figure.kept = (line["pmis"] + 2) * line["period_ns"] / line["cpu_ns"]
        # Gaps in the target's work are mostly PMIs; timer ticks are fewer, so that the median
        # is the cost of a PMI.
        if run.clock == "counted" and line["pmis"] and line["gap_ticks"]:
            figure.cost = statistics.median(line["gap_ticks"])
        if line["samples"]:
            figure.bytes_per_sample = line["bytes"] / line["samples"]
        if line["throttled"]:
            figure.marks.append("throttled")
        if line["pmis"] and figure.kept < KEEPS_UP:
            figure.marks.append(TOO_SLOW)
        if not stable:
            figure.marks.append("the clock is not stable")
        figures.append(figure)
    return figures


def _stable(clocksource: str) -> bool:
    """Return True if the kernel keeps time by the same clock that programs read."""
    return clocksource in ("tsc", "arch_sys_counter")


def _said(*argv: str) -> str:
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, cwd=REPO,
                          universal_newlines=True).stdout.strip()


def _commit() -> str:
    """Return the commit that is measured, for later readers of the figures."""
    if not (REPO / ".git").exists():
        return "no git repository"
    return _said("git", "describe", "--always", "--dirty", "--abbrev=12")


def whole_hosts(said: str) -> List[WholeHost]:
    """Compute slowdowns from the output of whole-host.sh, relative to runs without samples."""
    took = {(who, int(number), way): float(ns)
            for who, number, way, ns in (line.split() for line in said.splitlines())}
    return [WholeHost(who, number, way, 1 - took[who, number, "off"] / ns)
            for (who, number, way), ns in took.items() if way != "off"]


def measure_peers(builds: Dict[str, Build], accel: str, results: Path,
                  kernel_args: str) -> Dict[str, List[Figure]]:
    """Measure the costs on each of these kernels if no guest callchain is requested."""
    peers = {}
    for kernel, build in builds.items():
        runs = peers_plan(pmis(build.arch.name))
        emulated = EmulatedHost(build, accel, kernel_args, counted=True)
        folder = results / kernel.replace(" ", "-")
        host, lines = _measure(emulated, kernel, runs, folder, "")
        peers[kernel] = _figures(runs, lines, _stable(host["clocksource"]))
    return peers


def measure(build: Build, accel: str, results: Path, runs: List[Run],
            kernel_args: str = "", counted_job: str = "", timed_job: str = "") -> Results:
    """Do all runs, one boot for each clock.

    Args:
        counted_job: a shell script to run after the counted runs
        timed_job: another, after the timed runs
    """
    environment: Dict[str, Any] = {
        "commit": _commit(),
        "qemu": _said(_QEMU[build.arch.name], "--version").splitlines()[0].split()[3],
        "compiler": "gcc " + _said(f"{build.arch.prefix}gcc", "-dumpfullversion"),
        "accel": accel,
        **({} if build.arch is X86 else {"arch": build.arch.name}),
    }
    figures: List[Figure] = []
    for clock in ("counted", "timed"):
        these = [run for run in runs if run.clock == clock]
        if not these:
            continue
        emulated = EmulatedHost(build, accel, kernel_args, counted=clock == "counted")
        host, lines = _measure(emulated, clock, these, results / clock,
                               timed_job if clock == "timed" else counted_job)
        environment.update({name: host[name] for name in ("kernel", "cpus", "cpu")})
        environment[f"{clock}_clocksource"] = host["clocksource"]
        figures += _figures(these, lines, _stable(host["clocksource"]))
    return Results(environment, figures)


def small(figure: Figure) -> Dict[str, Any]:
    """Return what tables, plots and the gate need of a figure; what is as usual is left out."""
    def unusual(new: object, usual: object) -> Dict[str, Any]:
        return {name: value for name, value in vars(new).items() if value != vars(usual)[name]}

    kept = replace(figure, samples=0, pmis=0,
                   latency={name: value for name, value in figure.latency.items()
                            if name in ("median", "max")})
    return {"run": unusual(figure.run, Run("", "", "")), **unusual(kept, Figure(figure.run))}


def _text(data: Any, indent: str = "\n") -> str:
    """Return JSON with one figure a line."""
    deeper = indent + " "
    if isinstance(data, dict):
        return "{" + ",".join(f"{deeper}{json.dumps(name)}: {_text(value, deeper)}"
                              for name, value in data.items()) + indent + "}"
    if isinstance(data, list):
        return "[" + ",".join(deeper + json.dumps(each) for each in data) + indent + "]"
    return json.dumps(data)


def write(results: Results, path: Path) -> None:
    """Write what is needed of results as JSON, and all of them beside it, as NAME-all.json."""
    for where, data in ((path, results.to_json(small)),
                        (path.with_name(f"{path.stem}-all.json"), results.to_json())):
        where.write_text(_text(data) + "\n")


def read(path: Path) -> Results:
    return Results.from_json(json.loads(path.read_text()))
