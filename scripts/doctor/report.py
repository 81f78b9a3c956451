# SPDX-License-Identifier: GPL-2.0-only
"""All checks of a host and of a guest, the command that they lead to, and how they are printed."""

import json
import shlex
import textwrap
from typing import List, NamedTuple, Optional

from . import guest, host, perf
from .check import Check
from .system import System

WIDTH = 80
MARKS = {"ok": "ok", "no": "no", "unknown": "--"}


class Report(NamedTuple):
    """All results; command records the guest, and is None if there is none or it can't be."""
    pid: Optional[int]
    checks: List[Check]
    command: Optional[str]
    summary: str


def record_command(vmm: guest.Guest, has_cycles: bool, program: str) -> str:
    programs_only = vmm.sampling.code == "programs"
    event = ("cycles" if has_cycles else "cpu-clock") + (":u" if programs_only else "")
    words = [program, "kvm", "--guest", "record", *(["-e", event] if event != "cycles" else []),
             "-g", "-p", str(vmm.pid), "-o", "perf.data.guest", "--", "sleep", "10"]
    return " ".join(map(shlex.quote, words))


def examine(system: System, program: str, pid: Optional[int]) -> Report:
    machine = host.check_machine(system)
    if machine.blocks:
        return conclude(system, pid, [machine])
    here = host.Host(system)
    perf_check = perf.check_perf(system, program)
    perf_works = perf_check.state == "ok"
    status = system.status_of(pid) if pid else {}
    no_vmm = guest.check_process(system, pid, status) if pid else None
    vmm = None
    if pid and not no_vmm:
        vmm = guest.Guest(system, pid, status, program if perf_works else "")
    checks = [machine, *host.checks(here, bool(vmm and vmm.files),
                                    not vmm or vmm.owner == here.uid,
                                    vmm.policies if vmm else set()), perf_check]
    if no_vmm:
        checks.append(no_vmm)
    if not vmm:
        return conclude(system, pid, checks)
    has_cycles = any(check.key == "host.pmu" and check.state == "ok" for check in checks)
    return conclude(system, pid, checks + guest.checks(here, vmm, perf_works),
                    record_command(vmm, has_cycles, program))


def conclude(system: System, pid: Optional[int], checks: List[Check],
             command: Optional[str] = None) -> Report:
    first = next((check for check in checks if check.blocks), None)
    if first:
        what = "This guest can't" if pid else "No guest can"
        summary = f"{what} be recorded with its callchain here. First: {first.mend}."
    elif command:
        summary = "Record this guest, by:"
    else:
        summary = f"This host can record guests. Next: name a VMM; {host.list_vmms(system)}."
    return Report(pid, checks, None if first else command, summary)


def clean(text: str) -> str:
    """Replace characters that could control a terminal: names come from guests and others."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)


def wrap(first: str, text: str) -> List[str]:
    return textwrap.wrap(clean(text), WIDTH, initial_indent=first,
                         subsequent_indent=" " * 7 if first else "",
                         break_long_words=False, break_on_hyphens=False)


def as_text(report: Report) -> str:
    lines = []
    about = ""
    for check in report.checks:
        part = check.key.partition(".")[0]
        if part != about:
            about = part
            lines.append("This host" if part == "host" else f"Process {report.pid}")
        unknown = "not known: " if check.state == "unknown" else ""
        lines += wrap(f"{MARKS[check.state]:>4} ", unknown + check.fact)
        lines += wrap("     > ", check.mend) if check.mend else []
    lines += wrap("", report.summary)
    lines += [f"  {clean(report.command)}"] if report.command else []
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> str:
    return json.dumps({**report._asdict(), "checks": [check._asdict() for check in report.checks]},
                      indent=1) + "\n"
