# SPDX-License-Identifier: GPL-2.0-only
"""Write which tests passed on which host, from the KTAP of the last run on each."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

from . import selftests
from .ui import Failure

# For each column: its heading, the command that makes its results, and the folder of these
# results, see commands.py.
HOSTS = (("AMD, nested paging", "make selftests", "selftests"),
         ("AMD, shadow paging", "make selftests KARGS=kvm_amd.npt=0", "selftests-kvm_amd.npt=0"),
         ("Intel, EPT", "make test-intel", "selftests-intel"),
         ("Intel, shadow paging", "make test-intel", "selftests-intel-kvm_intel.ept=0"),
         ("arm64, VHE", "ARCH=arm64 make selftests", "selftests-arm64"),
         ("arm64, nVHE", "ARCH=arm64 make selftests KARGS=kvm-arm.mode=nvhe",
          "selftests-arm64-kvm-arm.mode=nvhe"))

_HEAD = """# Tests by host

Written by `make host-table` from the output of the last run on each host. QEMU emulates the
AMD and the arm64 CPU, Bochs the Intel CPU. Numbers are test cases that passed. The number of
skipped cases follows; the reasons are below the table. A dash means that the test is for another
architecture. On arm64, all samples are deferred: tests have half as many variants.
"""

_Programs = Dict[str, List[Any]]


def _cell(cases: List[Any]) -> str:
    states = Counter(case.status.name for case in cases)
    passed, skipped = states.pop("SUCCESS", 0), states.pop("SKIPPED", 0)
    parts = [str(passed)] if passed or not skipped else []
    if skipped:
        parts.append(f"{skipped} skipped")
    if states:
        parts.append(f"**{sum(states.values())} failed**")
    return ", ".join(parts)


def _skips(columns: List[_Programs]) -> List[str]:
    """List, for each host, the reasons for skips and the skipped tests without their variants."""
    found: Dict[Tuple[str, str], Set[str]] = defaultdict(set)
    for (host, _, _), programs in zip(HOSTS, columns):
        for cases in programs.values():
            for case in cases:
                if case.status.name == "SKIPPED":
                    reason = case.skip_reason or "no reason given"
                    fixture, *rest = case.name.split(".")
                    found[host, reason].add(f"`{'.'.join([fixture, *rest[-1:]])}`")
    return [f"- {host}: {', '.join(sorted(tests))}: {reason}"
            for (host, reason), tests in sorted(found.items())]


def table(columns: List[_Programs]) -> str:
    """A page of Markdown.

    Args:
        columns: for each of HOSTS the cases of each program, see selftests.by_program()
    """
    lines = ["| test | " + " | ".join(host for host, _, _ in HOSTS) + " |",
             "|---|" + "---|" * len(HOSTS)]
    for program in sorted({name for programs in columns for name in programs}):
        lines.append(f"| {program} | " + " | ".join(
            _cell(programs[program]) if program in programs else "-"
            for programs in columns) + " |")
    every = [[case for cases in programs.values() for case in cases] for programs in columns]
    lines.append("| **all** | " + " | ".join(map(_cell, every)) + " |")
    return "\n".join([_HEAD, *lines, "", "Skipped:", "", *_skips(columns), ""])


def write(results: Path, tree: Path, page: Path) -> None:
    """Write the page from results of the last runs. Raise Failure if one of them is missing."""
    columns = []
    for host, command, folder in HOSTS:
        ktap = results / folder / "selftests.ktap"
        if not ktap.exists():
            raise Failure(f"There are no results of {host}: run \"{command}\" first")
        columns.append(selftests.by_program(ktap.read_text(), tree))
    page.write_text(table(columns))
