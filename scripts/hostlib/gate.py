# SPDX-License-Identifier: GPL-2.0-only
"""Compare counted figures with the committed reference, and say what got slower."""

import functools
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import bench, ktap
from .arch import ARCHS, ARM64, X86
from .bench import Figure, Results
from .patches import REPO
from .ui import Failure, say

# One reference for each set of tools. References of other architectures are in subfolders.
REFERENCES = REPO / "results" / "gate"
LIMITS = REPO / "scripts" / "gate-limits.toml"

_ORIGIN = "kvm_guest_callchains"


@dataclass(frozen=True)
class Limit:
    """How much slower a figure may get, in percent or in instructions, and the reason.

    at_most: an absolute limit, whatever the reference is
    """
    name: str
    percent: float
    instructions: float
    reason: str
    at_most: float = math.inf

    def highest(self, reference: float) -> float:
        return min(reference + max(reference * self.percent / 100, self.instructions),
                   self.at_most)


@dataclass(frozen=True)
class Verdict:
    """One figure, with its reference and its limit."""
    limit: Limit
    value: float
    reference: float

    @property
    def good(self) -> bool:
        return self.value <= self.limit.highest(self.reference)

    def __str__(self) -> str:
        change = 100 * (self.value / self.reference - 1)
        return (f"{self.value:.1f} instructions, reference {self.reference:.1f} "
                f"({change:+.1f} %), limit {self.limit.highest(self.reference):.1f}")


def references(arch: str) -> Path:
    """Return the folder with the references of an architecture."""
    return REFERENCES if arch == X86.name else REFERENCES / arch


def read_limits(path: Path, arch: str = X86.name) -> List[Limit]:
    """Read the limits of an architecture.

    Those of x86 are at the top level, others are in a table with the architecture's name.
    """
    # Python has tomllib since 3.11. Other commands must work without it, so import it here.
    import tomllib

    data = tomllib.loads(path.read_text())
    others = {name: data.pop(name, {}) for name in ARCHS}
    data = data if arch == X86.name else others[arch]
    return [Limit(name, entry.get("percent", 0), entry.get("instructions", 0), entry["reason"],
                  entry.get("at_most", math.inf))
            for name, entry in data.items()]


def _median(results: Results, **wanted: Any) -> float:
    usual: Dict[str, Any] = {"clock": "counted", "target": "guest", "mode": "callchain",
                             "source": results.source, "levels": 4, "stride": 16}
    figure: Optional[Figure] = results.find(**{**usual, **wanted})
    if figure is None or not figure.latency:
        raise Failure(f"There is no figure for {wanted}")
    return figure.latency["median"]


def _deferred_cost(results: Results, **wanted: Any) -> float:
    """Return the whole cost of a deferred sample, in its PMI and in the thread; PMIs are IRQs."""
    figure = results.find("cost", clock="counted", target="guest", mode="deferred", source="irq",
                          **wanted)
    if figure is None or figure.cost is None:
        raise Failure(f"There is no cost of a deferred sample for {wanted}")
    return figure.cost


def _pages(results: Results, mode: str, stride: int) -> Figure:
    figure = results.find(clock="counted", mode=mode, depth=127, stride=stride)
    if figure is None:
        raise Failure(f"There is no figure for frames {stride} bytes apart")
    return figure


def _arm64_figures(results: Results) -> Dict[str, float]:
    """Do the same as figures() for arm64: costs of PMIs, of whole deferred samples, of exits."""
    cost = functools.partial(_deferred_cost, results)
    few, many = (_pages(results, "deferred", stride) for stride in (512, 4096))
    return {
        "sample without a callchain": _median(results, mode="ip"),
        **{f"depth {depth}, deferred": _median(results, mode="deferred", depth=depth)
           for depth in (bench.DEPTHS[0], bench.DEPTHS[-1])},
        "whole sample, depth 1": cost(depth=1),
        "frame": (cost(depth=127, stride=16) - cost(depth=16)) / (127 - 16),
        "page": (cost(depth=127, stride=4096) - cost(depth=127, stride=512)) /
                (many.pages - few.pages),
        **{f"host process, depth {depth}": _median(results, target="host", depth=depth)
           for depth in (bench.DEPTHS[0], bench.DEPTHS[-1])},
        "exit and entry": _median(results, target="exit", mode="off"),
        "exit and entry, with an event": _median(results, target="exit", mode="deferred"),
    }


def figures(results: Results) -> Dict[str, float]:
    """Return the figures that have a limit, by name, in instructions."""
    if results.arch == ARM64.name:
        return _arm64_figures(results)

    few, many = (_pages(results, "callchain", stride) for stride in (512, 4096))
    values = {
        "sample without a callchain": _median(results, mode="ip"),
        "frame": (_median(results, depth=127) - _median(results, depth=16)) / (127 - 16),
        "page": (many.latency["median"] - few.latency["median"]) / (many.pages - few.pages),
        "depth 64, by IRQ": _median(results, depth=64, source="irq"),
        "depth 64, 5-level paging": _median(results, depth=64, levels=5),
    }
    for depth in bench.DEPTHS:
        values[f"depth {depth}"] = _median(results, depth=depth)
    for depth in (bench.DEPTHS[0], bench.DEPTHS[-1]):
        values[f"depth {depth}, deferred"] = _median(results, depth=depth, mode="deferred")
    for depth in (bench.DEPTHS[0], bench.DEPTHS[-1]):
        values[f"host process, depth {depth}"] = _median(results, target="host", depth=depth)
    for mode in ("callchain", "deferred"):
        values[f"{mode} with a dump"] = _median(results, mode=mode, depth=1,
                                                dump=bench.GATE_DUMP)
    values["dump, deferred"] = (_deferred_cost(results, depth=1, dump=bench.GATE_DUMP)
                                - _deferred_cost(results, depth=1, dump=0))
    figure = results.find(clock="counted", target="guest", mode="callchain", source="nmi",
                          depth=64, levels=4)
    assert figure
    values["depth 64, worst of all"] = figure.latency["max"]
    return values


def _series(version: str) -> str:
    """Return the part of a version that must be equal in comparable runs.

    7.3.4 and 7.3.5 are comparable: that is what the gate is for. 7.4 is another base.
    """
    match = re.match(r"\d+\.\d+", version)
    return match.group() if match else version


def _other_tool(new: Results, reference: Results) -> Optional[Tuple[str, str, str]]:
    """Return the first tool that differs from the reference's: its name, the old and new version.

    None if all are the same.
    """
    compared: List[Tuple[str, str, Callable[[str], str]]] = [
        ("kernel", "Linux", _series), ("qemu", "QEMU", _series),
        ("compiler", "compiler", lambda v: v.split(".")[0]),
        ("cpu", "CPU", str), ("cpus", "number of CPUs", str)]
    for name, what, key in compared:
        old, now = reference.environment[name], new.environment[name]
        if key(old) != key(now):
            return what, old, now
    return None


def choose(new: Results, references: List[Results]) -> Results:
    """Return the reference that was made with this run's tools; without one, the first of all."""
    return next((reference for reference in references if not _other_tool(new, reference)),
                references[0])


def refuse(new: Results, reference: Results) -> None:
    """Raise Failure if the figures of two runs can't be compared."""
    other = _other_tool(new, reference)
    if other:
        what, old, now = other
        raise Failure(f"The reference was made with another {what}, {old} rather than {now}, so "
                      "the figures can't be compared; make another reference from a commit that "
                      "is known to be good, see results/README.md")
    for results, whose in ((new, "this run"), (reference, "the reference")):
        # A run that does not keep up can be compared: its figures show how slow it is.
        marked = {mark for figure in results.figures for mark in figure.marks
                  if mark != bench.TOO_SLOW}
        if marked:
            raise Failure(f"The figures of {whose} can't be compared: {', '.join(sorted(marked))}")


def compare(new: Results, reference: Results, limits: List[Limit]) -> List[Verdict]:
    refuse(new, reference)
    values, references = figures(new), figures(reference)
    if set(values) != {limit.name for limit in limits}:
        odd = ", ".join(sorted(set(values) ^ {limit.name for limit in limits}))
        raise Failure(f"{LIMITS} and the figures don't agree on: {odd}")
    return [Verdict(limit, values[limit.name], references[limit.name]) for limit in limits]


def to_ktap(verdicts: List[Verdict]) -> str:
    lines = ["KTAP version 1", f"1..{len(verdicts)}"]
    for number, verdict in enumerate(verdicts, 1):
        lines += [f"# {verdict.limit.name}: {verdict}",
                  f"{'ok' if verdict.good else 'not ok'} {number} {verdict.limit.name}"]
    return "\n".join(lines) + "\n"


def kcidb(verdicts: List[Verdict], new: Results) -> Dict[str, Any]:
    """Return the verdicts for the KernelCI database, in version 4 of its schema."""
    checkout, build = f"{_ORIGIN}:{new.environment['commit']}", f"{_ORIGIN}:gate"
    return {
        "version": {"major": 4, "minor": 0},
        "checkouts": [{"id": checkout, "origin": _ORIGIN, "valid": True}],
        "builds": [{"id": build, "checkout_id": checkout, "origin": _ORIGIN, "valid": True,
                    "architecture": "x86_64" if new.arch == X86.name else new.arch,
                    "compiler": new.environment["compiler"]}],
        "tests": [{"id": f"{_ORIGIN}:gate.{number}", "build_id": build, "origin": _ORIGIN,
                   "path": "kvm.guest_callchain."
                           + re.sub(r"[^a-z0-9]+", "_", v.limit.name.lower()),
                   "status": "PASS" if v.good else "FAIL",
                   "misc": {"instructions": v.value, "reference": v.reference,
                            "limit": v.limit.highest(v.reference)}}
                  for number, v in enumerate(verdicts)],
    }


def judge(new: Results, folder: Path, tree: Path) -> bool:
    """Compare with the reference; print KTAP and what got slower; write KTAP, JUnit and KCIDB.

    Returns:
        true if nothing got slower than its limit
    """
    made = [bench.read(path) for path in sorted(references(new.arch).glob("*.json"))]
    if not made:
        raise Failure(f"There is no reference in {references(new.arch)}; see results/README.md")
    reference = choose(new, made)
    try:
        verdicts = compare(new, reference, read_limits(LIMITS, new.arch))
    except Failure as failure:
        say(f"Bail out! {failure}")
        raise

    text = to_ktap(verdicts)
    sys.stdout.write(text)
    (folder / "gate.ktap").write_text(text)
    (folder / "gate.junit.xml").write_text(
        ktap.junit(text, tree, "guest callchains, gate"))
    (folder / "gate.kcidb.json").write_text(json.dumps(kcidb(verdicts, new), indent=1) + "\n")

    slower = [verdict for verdict in verdicts if not verdict.good]
    if slower:
        say(f"\nSlower than at commit {reference.environment['commit']}:")
        for verdict in slower:
            say(f"  {verdict.limit.name:28} {verdict.value:10.1f}, was {verdict.reference:.1f}; "
                f"at most {verdict.limit.highest(verdict.reference):.1f}: {verdict.limit.reason}")
    say(f"{len(verdicts) - len(slower)} passed, {len(slower)} failed, 0 skipped")
    return not slower
