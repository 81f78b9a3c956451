# SPDX-License-Identifier: GPL-2.0-only
"""Test perf kvm's whole workflow on two guests of Debian's, as an operator would use it."""

import json
import re
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from . import guest, oldperf
from .build import GUEST_PROGRAM, Build
from .emulated import EmulatedHost, check_console, pass_on
from .selftests import Counts, count_test
from .ui import Failure, Step, say

# Seconds for seven boots of guests, thirteen records, and three runs of perf top; a slow emulator
# needs most of them.
_DEADLINE = 2400

# The guests, as workflow-host.sh names them, and the suites whose kernels they run, which differ.
_SUITES = {"web": "bookworm", "db": "trixie-backports"}

# Functions that only one of the two kernels has.  A short record may miss any one of them.
_OWN = {"web": {"clear_user_erms", "copy_user_enhanced_fast_string", "memset_erms"},
        "db": {"clear_highpages_kasan_tagged", "pvclock_clocksource_read_nowd",
               "rep_stos_alternative", "set_pte_range"}}

# A line of a report: its share, its sort keys, the level of the function, the function.
_ROW = re.compile(r"^ +(\d+\.\d+)% +(.*?) +\[([kgu.])\] (\S+)", re.MULTILINE)

# A line of perf diff: one of the two shares may be missing.
_CHANGE = re.compile(r"^ +(?:\d+\.\d+%)? +(?:[+-]\d+\.\d+%)? .*\[[gu]\] \S+", re.MULTILINE)

# Functions by which kernels are entered, and functions of the program, innermost first.
_ENTRY = ("do_syscall_64", "entry_SYSCALL_64_after_hwframe")
_PROGRAM = ("transfer", "transfer_many", "work", "main")

# Situations that workflow-host.sh prepares: the doctor's exit status; results of some of its
# checks, by their keys, and why they fail; and names, options and commands that it must print.
_DOCTOR: Dict[str, Tuple[int, Dict[str, str], Sequence[str]]] = {
    "well": (0, {"guest.vmm": "ok", "guest.kernel": "ok", "guest.unwinding": "ok"},
             ("1 vCPU", "web runs Linux 6.1", "--call-graph orc",
              "perf kvm --guest record -e cpu-clock -g -p ")),
    "no-reads": (0, {"host.switch": "no-reads"}, ("sysctl kernel.perf_event_guest_callchain=3",)),
    "shallow": (0, {"host.limits": "shallow"}, ("sysctl kernel.perf_event_max_stack=127",)),
    "no-contexts": (1, {"host.limits": "none"},
                    ("sysctl kernel.perf_event_max_contexts_per_stack=8",)),
    "forbidden": (1, {"host.switch": "off", "guest.kernel": "switch"},
                  ("sysctl kernel.perf_event_guest_callchain=3",)),
    "no-perf": (1, {"host.perf": "not-run"}, ("/nowhere/perf", "--perf perf_7.3")),
    "others-guest": (1, {"host.user": "programs", "guest.sample": "nothing"}, ("perf as root",)),
    "no-vm": (1, {"guest.vmm": "no-vm"}, ("(qemu-system",)),
    "no-process": (1, {"guest.vmm": "no-process"}, ("4000000", "(qemu-system")),
    "no-linux": (0, {"guest.kernel": "no-linux", "guest.unwinding": "unknown"},
                 ("--call-graph fp",)),
    "no-kvm": (1, {"host.kvm": "not-loaded"}, ("modprobe kvm_intel",)),
}

# Traces of the guest's memory, see workflow-host.sh: those that perf has if it may record
# callchains and look for names, and one that it has only if events may read the guest.
_WITH_CALLCHAINS = ("callers", "release", "names", "folders", "printed")
_PLANTED = (*_WITH_CALLCHAINS, "word")

# The VMM's policy and the level of the administrator's sysctl, as workflow-host.sh names them,
# and the traces that perf must leave then; it must leave no others.
_SHOWN: Dict[str, Sequence[str]] = {
    "undecided-at-0": (), "undecided-at-1": (), "undecided-at-2": _WITH_CALLCHAINS,
    "undecided-at-3": _PLANTED, "allowed-at-0": (), "allowed-at-1": _WITH_CALLCHAINS,
    "read-allowed-at-1": _PLANTED, "forbidden-at-3": ()}

Row = Tuple[float, str, str, str]


def rows(report: str) -> List[Row]:
    """Return the share, sort keys, level and function of each line of a report."""
    return [(float(share), " ".join(keys.split()), level, function)
            for share, keys, level, function in _ROW.findall(report)]


def judge_levels(callers: str, wanted: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the functions with a wrong level in any line of a --children report."""
    for level, functions in wanted.items():
        for function in functions:
            found = {row[2] for row in rows(callers) if row[3] == function}
            if found != {level}:
                yield f"{function} has the levels {sorted(found)}, not {level}"


def judge_comms(report: str) -> Iterator[str]:
    """Yield complaints about the names of a guest's tasks; a tid does not count as a name."""
    nameless = [row for row in rows(report) if re.search(r"(?:^| ):\d+ ", row[1])]
    if not rows(report):
        yield "the report is empty"
    if nameless:
        yield f"{len(nameless)} lines of the report have a tid in place of a comm: {nameless[0][1]}"


def judge_sides(report: str, wanted: str) -> Iterator[str]:
    """Yield a complaint if a report does not have exactly the levels that are wanted."""
    found = {level for _, _, level, _ in rows(report)}
    if found != set(wanted):
        yield f"the report has the levels {''.join(sorted(found))}, not {wanted}"


def judge_vms(report: str) -> Iterator[str]:
    """Yield a complaint if a report that is sorted by guest does not have exactly our guests."""
    found = {keys.split()[0] for _, keys, _, _ in rows(report)}
    if found != set(_SUITES):
        yield f"the report has the guests {', '.join(sorted(found))}, not {', '.join(_SUITES)}"


def judge_kernels(report: str) -> Iterator[str]:
    """Yield complaints about the functions of each guest's kernel: the names must be its own."""
    for vm in _SUITES:
        found = [function for _, keys, level, function in rows(report)
                 if level == "g" and keys.split()[0] == vm]
        nameless = [function for function in found if function.startswith("0x")]
        if nameless:
            yield f"{len(nameless)} kernel functions of {vm} have no names: {nameless[0]}"
        if not _OWN[vm].intersection(found):
            yield f"{vm} has no function that only its kernel has: {', '.join(sorted(_OWN[vm]))}"
        for other in _OWN.keys() - {vm}:
            for function in sorted(_OWN[other].intersection(found)):
                yield f"{vm} has {function}, which only the kernel of {other} has"


def judge_planted(found: str) -> Iterator[str]:
    """Yield complaints about traces of the guest's memory in perf's files: wrong or missing ones.

    Args:
        found: lines with a key of _SHOWN, the trace, and how often it was found
    """
    for policy, shown in _SHOWN.items():
        for sought in ("samples", *_PLANTED):
            number = re.search(rf"^{policy} {sought} (\d+)$", found, re.MULTILINE)
            if not number:
                yield f"at {policy}, there is no result for the {sought}"
            elif bool(int(number[1])) != (sought in ("samples", *shown)):
                yield f"at {policy}, the {sought} was found {number[1]} times, which is wrong"


def judge_diff(diff: str) -> Iterator[str]:
    """Yield a complaint about the comparison of two records of a guest."""
    if len(_CHANGE.findall(diff)) < 10:
        yield "perf kvm diff has fewer than ten functions"


def judge_top(screen: str) -> Iterator[str]:
    """Yield complaints about perf top's screen: the guest's kernel must have names."""
    # Don't count short names: the screen may have cut them.
    named = re.findall(r"\[g\] [a-z_]\w{7,}", screen)
    if len(named) < 5:
        yield f"perf kvm top shows {len(named)} functions of the guest's kernel"
    if not re.search(r"%  program +.*\[u\] ", screen):
        yield "perf kvm top does not show the program's user mode"
    if re.search(r"^ +\d+\.\d+% .* :\d+ ", screen, re.MULTILINE):
        yield "perf kvm top shows a tid in place of a comm"


def judge_doctor(said: str, status: int, results: Mapping[str, str],
                 words: Sequence[str]) -> Iterator[str]:
    """Yield complaints about the doctor's output, JSON and a line with its exit status."""
    output, _, ended = said.rpartition("status ")
    try:
        checks = json.loads(output)["checks"]
    except ValueError:
        yield f"the doctor has written no JSON: {output[-200:]}"
        return
    if ended.strip() != str(status):
        yield f"the doctor's exit status is {ended.strip()}, not {status}"
    found = {check["key"]: check["why"] or check["state"] for check in checks}
    for key, result in results.items():
        if found.get(key) != result:
            yield f"the doctor finds {key}: {found.get(key)}, not {result}"
    for word in words:
        if word not in output:
            yield f"the doctor does not say: {word}"


def judge(folder: Path) -> Counts:
    """Judge the output of all commands, and count the tests."""
    def text(name: str) -> str:
        return (folder / f"{name}.txt").read_text()

    counts = Counts()
    for name, wrong in {
            **{f"doctor, {name}": judge_doctor(text(f"doctor-{name}"), *wanted)
               for name, wanted in _DOCTOR.items()},
            "report, levels of callers": judge_levels(text("callers"),
                                                      {"g": _ENTRY, "u": _PROGRAM}),
            "report, levels of callers on the host": judge_levels(text("host-callers"),
                                                                  {"k": _ENTRY}),
            "report, comms": judge_comms(text("callers")),
            "report, one guest": judge_sides(text("callers"), "gu"),
            "report, all guests": judge_vms(text("all")),
            "report, comms of all guests": judge_comms(text("all")),
            "report, kernels of all guests": judge_kernels(text("all")),
            "report, host and guests": judge_sides(text("both"), ".gku"),
            "report, host": judge_sides(text("host"), ".k"),
            "record, what the guest keeps to itself": judge_planted(text("planted")),
            "diff": judge_diff(text("diff")),
            "top": judge_top(text("top"))}.items():
        good = count_test(counts, (f"failed: {name}: {remark}" for remark in wrong))
        say(f"{'ok' if good else 'not ok'}: {name}")
    return counts


def run(build: Build, accel: str, folder: Path, kernel_args: str = "") -> Counts:
    """Boot the host and its guests, use each command, and count the tests."""
    for vm, suite in _SUITES.items():
        package = guest.fetch(suite)[0]
        with Step(f"Unpack {package.stem}"):
            guest.unpack(package, build.tree.path, folder / "kernels" / vm)
    guest.install({"program": build.selftests / GUEST_PROGRAM}, folder / "files")
    guest.write_initrd(folder / "initrd.img", "stock-guest.sh", folder / "files")
    job = (guest.SCRIPTS / "workflow-host.sh").read_text()
    outcome = EmulatedHost(build, accel, kernel_args).run(job, folder, _DEADLINE, pass_on)
    for name in (*_SUITES, *(policy for policy in _SHOWN if "undecided" not in policy)):
        check_console(folder / f"{name}.log", f"guest {name}")
    if outcome.status:
        raise Failure(f"perf kvm failed on the host, what it says is above; see {folder}")
    counts = judge(folder)
    ours = {what: (folder / f"joined-{what}.txt").read_text() for what in oldperf.SCRIPTS}
    counts.add(oldperf.judge_file(folder / "joined.data", ours, folder / "older"))
    return counts
