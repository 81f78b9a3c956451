# SPDX-License-Identifier: GPL-2.0-only
"""Compare counted figures with the committed reference, and say what got slower."""

import json
import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import bench, ktap
from .arch import X86
from .bench import Figure, Results
from .patches import REPO
from .ui import Failure, say

# One reference for each set of tools. References of other architectures are in subfolders.
REFERENCES = REPO / "results" / "gate"
LIMITS = REPO / "scripts" / "gate-limits.toml"

_ORIGIN = "kvm_guest_callchains"

# What limits of other PMIs are multiples of.
_PMI = "PMI, without a callchain"


@dataclass(frozen=True)
class Limit:
    """How much slower a figure may get, in percent or in instructions, and the reason.

    at_most: an absolute limit, whatever the reference is
    times: another one, as a multiple of a PMI without a callchain in the same run
    """
    name: str
    percent: float
    instructions: float
    reason: str
    at_most: float = math.inf
    times: float = math.inf

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
    """Read the limits.  Absolute ones are those of an architecture."""
    # Python has tomllib since 3.11. Other commands must work without it, so import it here.
    import tomllib

    return [Limit(name, entry.get("percent", 0), entry.get("instructions", 0), entry["reason"],
                  entry.get("at_most", {}).get(arch, math.inf), entry.get("times", math.inf))
            for name, entry in tomllib.loads(path.read_text()).items()]


def _figure(results: Results, has: str = "latency", **wanted: Any) -> Figure:
    usual: Dict[str, Any] = {"clock": "counted", "target": "guest", "mode": "callchain",
                             "source": results.source, "stride": 16}
    figure = results.find(has, **{**usual, **wanted})
    if figure is None:
        raise Failure(f"There is no {has} for {wanted}")
    return figure


def _median(results: Results, **wanted: Any) -> float:
    return _figure(results, **wanted).latency["median"]


def _cost(results: Results, **wanted: Any) -> float:
    """Return the whole cost of a sample, in its PMI and in the vCPU's thread; PMIs are IRQs."""
    cost = _figure(results, "cost", source="irq", **wanted).cost
    assert cost is not None
    return cost


def figures(results: Results) -> Dict[str, float]:
    """Return the figures that have a limit, by name, in instructions."""
    few, many = (_figure(results, "cost", source="irq", depth=127, stride=stride)
                 for stride in (512, 2048))
    assert few.cost is not None and many.cost is not None
    whole = {depth: _cost(results, depth=depth) for depth in bench.DEPTHS}
    ends = (bench.DEPTHS[0], bench.DEPTHS[-1])
    return {
        _PMI: _median(results, mode="ip"),
        **{f"PMI, depth {depth}": _median(results, depth=depth) for depth in ends},
        "PMI, depth 64, worst of all": _figure(results, depth=64).latency["max"],
        "PMI, 4 KiB of the stack": _median(results, depth=1, piece=bench.GATE_PIECE),
        "PMI, both stacks and the task": _median(results, depth=1, piece=bench.GATE_PIECE,
                                                 task=True),
        **{f"whole sample, depth {depth}": cost for depth, cost in whole.items()},
        "whole sample, 4 KiB of the stack": _cost(results, depth=1, piece=bench.GATE_PIECE),
        "whole sample, both stacks and the task": _cost(results, depth=1, piece=bench.GATE_PIECE,
                                                        task=True),
        "frame": (whole[127] - whole[16]) / (127 - 16),
        "page": (many.cost - few.cost) / (many.pages - few.pages),
        **{f"host process, depth {depth}": _median(results, target="host", depth=depth)
           for depth in ends},
        "exit and entry": _median(results, target="exit", mode="off"),
        "exit and entry, with an event": _median(results, target="exit"),
    }


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
    return [Verdict(replace(limit, at_most=min(limit.at_most, limit.times * values[_PMI])),
                    values[limit.name], references[limit.name]) for limit in limits]


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
