# SPDX-License-Identifier: GPL-2.0-only
"""perf kvm's whole workflow on two guests of Debian's, as an operator would use it."""

import re
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from . import guest
from .build import GUEST_PROGRAM, Build
from .emulated import EmulatedHost, check_console, pass_on
from .selftests import Counts, count_test
from .ui import Failure, Step, say

# Six boots, and twelve records; a slow emulator needs most of it.
_DEADLINE = 2400

# What workflow-host.sh calls its guests, and whose kernels they run: two that differ.
_SUITES = {"web": "bookworm", "db": "trixie-backports"}

# Functions of the kernel of each which the other's has not.  A short record may miss any one.
_OWN = {"web": {"clear_user_erms", "copy_user_enhanced_fast_string", "memset_erms"},
        "db": {"clear_highpages_kasan_tagged", "pvclock_clocksource_read_nowd",
               "rep_stos_alternative", "set_pte_range"}}

# A line of a report: its share, what it is sorted by, the level of the function, the function.
_ROW = re.compile(r"^ +(\d+\.\d+)% +(.*?) +\[([kgu.])\] (\S+)", re.MULTILINE)

# A line of perf diff: one of the two shares may be missing.
_CHANGE = re.compile(r"^ +(?:\d+\.\d+%)? +(?:[+-]\d+\.\d+%)? .*\[[gu]\] \S+", re.MULTILINE)

# Functions that the guests' kernels run through, and those of the program, outwards.
_ENTRY = ("do_syscall_64", "entry_SYSCALL_64_after_hwframe")
_PROGRAM = ("transfer", "transfer_many", "work", "main")

# Situations that workflow-host.sh prepares, and what the doctor must say there.
_DOCTOR: Dict[str, Sequence[str]] = {
    "well": ('VM "web" with 1 vCPU', "it runs Linux 6.1", "it has ORC tables",
             "perf kvm --guest record -e cpu-clock -g -p ", "status 0"),
    "no-debugfs": ("> mount -t debugfs debugfs /sys/kernel/debug", "status 0"),
    "shallow": ("callchains end early: perf_event_max_stack is 16 "
                "> sysctl kernel.perf_event_max_stack=127", "status 0"),
    "not-deferred": ("callchains are taken in the PMI, not deferred: "
                     "perf_event_max_contexts_per_stack is 2 "
                     "> sysctl kernel.perf_event_max_contexts_per_stack=8", "status 0"),
    "forbidden": ("no guest may be read: perf_event_guest_callchain is 0 "
                  "> sysctl kernel.perf_event_guest_callchain=2",
                  "no names of its functions: kernel.perf_event_guest_callchain is 0", "status 1"),
    "no-perf": ("no there is no program /nowhere/perf > pass --perf perf_7.3",
                "This guest can't be recorded", "status 1"),
    "others-guest": ("may record programs, no kernels: perf_event_paranoid is 2",
                     "you may not sample it", "it is user root's > run perf as root", "status 1"),
    "no-vm": ("no sh has no VM of KVM > name another process: VMMs of KVM are ", "status 1"),
    "no-process": ("no there is no process 4000000 > name another process: VMMs of KVM are ",
                   "status 1"),
    "no-linux": ("no names of its functions: ", "-g is --call-graph fp", "status 0"),
    "no-kvm": ("no there is no /dev/kvm: KVM isn't loaded > modprobe kvm_intel or kvm_amd",
               "status 1"),
}

# What the guest's memory has, and what perf writes of it if it may; see workflow-host.sh.
_PLANTED = ("callers", "word", "release", "names", "folders", "printed")

# What the VMM says and the level of the administrator's sysctl, as workflow-host.sh calls them,
# and whether the guest may be read.
_MAY_READ = {"undecided-at-0": False, "undecided-at-1": False, "undecided-at-2": True,
             "allowed-at-0": False, "allowed-at-1": True, "forbidden-at-2": False}

Row = Tuple[float, str, str, str]


def rows(report: str) -> List[Row]:
    """Share, sort keys, level and function of each line of a report."""
    return [(float(share), " ".join(keys.split()), level, function)
            for share, keys, level, function in _ROW.findall(report)]


def judge_levels(callers: str, wanted: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What is wrong with the levels of functions in a --children report, in any of its lines."""
    for level, functions in wanted.items():
        for function in functions:
            found = {row[2] for row in rows(callers) if row[3] == function}
            if found != {level}:
                yield f"{function} has the levels {sorted(found)}, not {level}"


def judge_comms(report: str) -> Iterator[str]:
    """What is wrong with the names of a guest's tasks: a tid is none."""
    nameless = [row for row in rows(report) if re.search(r"(?:^| ):\d+ ", row[1])]
    if not rows(report):
        yield "the report is empty"
    if nameless:
        yield f"{len(nameless)} lines of the report have a tid in place of a comm: {nameless[0][1]}"


def judge_sides(report: str, wanted: str) -> Iterator[str]:
    """What is wrong with the levels of a report: it must have those that are wanted, only."""
    found = {level for _, _, level, _ in rows(report)}
    if found != set(wanted):
        yield f"the report has the levels {''.join(sorted(found))}, not {wanted}"


def judge_vms(report: str) -> Iterator[str]:
    """What is wrong with a report that is sorted by guest."""
    found = {keys.split()[0] for _, keys, _, _ in rows(report)}
    if found != set(_SUITES):
        yield f"the report has the guests {', '.join(sorted(found))}, not {', '.join(_SUITES)}"


def judge_kernels(report: str) -> Iterator[str]:
    """What is wrong with the names of each guest's kernel: they must be its own."""
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
    """What is wrong with where the guest's memory was found in what perf has written.

    Args:
        found: lines with one of _MAY_READ, what was sought, and how often it was found
    """
    for policy, may_read in _MAY_READ.items():
        for sought, wanted in (("samples", True), *((sought, may_read) for sought in _PLANTED)):
            number = re.search(rf"^{policy} {sought} (\d+)$", found, re.MULTILINE)
            if not number:
                yield f"at {policy}, nobody has looked for the {sought}"
            elif bool(int(number[1])) != wanted:
                yield f"at {policy}, found of the {sought}: {number[1]}"


def judge_diff(diff: str) -> Iterator[str]:
    """What is wrong with the comparison of two records of a guest."""
    if len(_CHANGE.findall(diff)) < 10:
        yield "perf kvm diff has fewer than ten functions"


def judge_top(screen: str) -> Iterator[str]:
    """What is wrong with what perf top shows: the guest's kernel must have names."""
    # Names that are cut don't count.
    named = re.findall(r"\[g\] [a-z_]\w{7,}", screen)
    if len(named) < 5:
        yield f"perf kvm top shows {len(named)} functions of the guest's kernel"
    if not re.search(r"%  program +.*\[u\] ", screen):
        yield "perf kvm top does not show the program's user mode"
    if re.search(r"^ +\d+\.\d+% .* :\d+ ", screen, re.MULTILINE):
        yield "perf kvm top shows a tid in place of a comm"


def judge_doctor(said: str, words: Sequence[str]) -> Iterator[str]:
    """What the doctor should say, and does not.

    Args:
        said: what it printed, in lines, and its exit status
        words: what must be in there, wherever lines end
    """
    line = " ".join(said.split())
    for word in words:
        if word not in line:
            yield f"the doctor does not say: {word}"


def judge(folder: Path) -> Counts:
    """What all commands have printed, as tests."""
    def text(name: str) -> str:
        return (folder / f"{name}.txt").read_text()

    counts = Counts()
    for name, wrong in {
            **{f"doctor, {name}": judge_doctor(text(f"doctor-{name}"), words)
               for name, words in _DOCTOR.items()},
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
    """Boot the host and its guests, use each command, and count what is right."""
    for vm, suite in _SUITES.items():
        package = guest.fetch(suite)
        with Step(f"Unpack {package.stem}"):
            guest.unpack(package, build.tree.path, folder / "kernels" / vm)
    guest.install({"program": build.selftests / GUEST_PROGRAM}, folder / "files")
    guest.write_initrd(folder / "initrd.img", "stock-guest.sh", folder / "files")
    job = (guest.SCRIPTS / "workflow-host.sh").read_text()
    outcome = EmulatedHost(build, accel, kernel_args).run(job, folder, _DEADLINE, pass_on)
    for name in (*_SUITES, *(policy for policy in _MAY_READ if "undecided" not in policy)):
        check_console(folder / f"{name}.log", f"guest {name}")
    if outcome.status:
        raise Failure(f"perf kvm failed on the host, what it says is above; see {folder}")
    return judge(folder)
