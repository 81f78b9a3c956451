# SPDX-License-Identifier: GPL-2.0-only
"""The main job on real input: profile a Linux guest from its host."""

import json
import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from . import flamegraph, flamepage, guest, intel, stacks
from .arch import X86, Arch
from .build import GUEST_PROGRAM, Build
from .emulated import EmulatedHost, check_console, pass_on
from .selftests import Counts, judge
from .ui import Failure, Step, say

# The kernel that runs best under QEMU's emulation.
_SUITE = "bookworm"

# Two boots, one inside the other, and a profile; a slow emulator needs most of it.
_DEADLINE = 1200
_BOCHS_DEADLINE = 3600

# Part of the guest-kernel samples that must carry more than the IP.
_ENOUGH = 0.90

# Part of the guest-kernel samples that must reach the kernel's entry, or where a thread starts.
_ENOUGH_WHOLE = 0.95


@dataclass(frozen=True)
class _Functions:
    """What the kernels of an architecture call functions.

    Args:
        entry: of system calls
        dispatch: what that leads to
        outermost: all entries, and where threads and CPUs start
    """
    entry: str
    dispatch: str
    outermost: str

    @property
    def expected(self) -> Tuple[str, ...]:
        """What the workload's system calls run through."""
        return self.entry, self.dispatch, "vfs_read", "vfs_write"


_FUNCTIONS = {
    "x86": _Functions("entry_SYSCALL_64_after_hwframe", "do_syscall_64",
                      r"(asm|entry|ret_from_fork|secondary_startup|x86_64_start)\w*"),
    "arm64": _Functions("el0t_64_sync", "el0_svc",
                        r"(vectors|tramp_vectors|__bp_harden_el1_vectors|el0t_|ret_from_fork|"
                        r"ret_to_user|__secondary_switched|__primary_switched)\w*"),
}

# How deep the known stacks are that demo-host.sh has sampled by both ways, and how often each
# must be found.
_DEPTHS = (5, 16)
_ENOUGH_OF_EACH = 50


@dataclass(frozen=True)
class Profile:
    """What the demo found."""
    folder: Path
    functions: _Functions
    folded: "Counter[Tuple[str, ...]]"
    guest_samples: int
    kernel_samples: int
    kernel_with_frames: int
    kernel_whole: int
    system_calls: int
    from_user: int
    json_samples: int
    deferred: "Counter[Tuple[str, ...]]"
    immediate: "Counter[Tuple[str, ...]]"

    @property
    def share(self) -> float:
        return self.kernel_with_frames / self.kernel_samples if self.kernel_samples else 0.0

    @property
    def whole(self) -> float:
        return self.kernel_whole / self.kernel_samples if self.kernel_samples else 0.0


def fetch(whose: str, arch: Arch) -> Optional[Path]:
    """Have what a guest takes that is not built here: better before long work than behind."""
    return guest.fetch(_SUITE, arch.debian) if whose == "debian" else None


def _make_guest(build: Build, folder: Path, whose: str) -> None:
    """The guest's kernel, if it is Debian's, and its initrd, in a folder."""
    foreign = build.arch is not X86
    programs = {} if foreign else {"program": build.selftests / GUEST_PROGRAM}
    guest.install(programs, folder / "files")
    package = fetch(whose, build.arch)
    if package:
        with Step(f"Unpack {package.stem}"):
            guest.unpack_image(package, folder / "kernel")
    init = "stock-guest.sh" if whose == "debian" else "demo-guest.sh"
    guest.write_initrd(folder / "initrd.img", init, folder / "files",
                       shell=build.root / "usr/bin/busybox" if foreign else None)


def run(build: Build, accel: str, folder: Path, whose: str, kernel_args: str = "",
        vendor: str = "amd") -> Profile:
    """Boot host and guest, sample the guest, and leave all that was found in a folder.

    Args:
        build: the host
        accel: what emulates it
        folder: for what is found
        whose: one of options.GUESTS
        kernel_args: more for the host's kernel
        vendor: whose CPU the host has
    """
    _make_guest(build, folder, whose)
    job = f"whose={whose}\n{(guest.SCRIPTS / 'demo-host.sh').read_text()}"
    if vendor == "intel":
        outcome = intel.run_demo(build, folder, job, _BOCHS_DEADLINE, kernel_args)
    else:
        outcome = EmulatedHost(build, accel, kernel_args).run(job, folder, _DEADLINE, pass_on)
    check_console(folder / "guest.log", "guest")
    if outcome.status:
        raise Failure(f"The demo failed on the host, what it says is above; see {folder}")

    functions = _FUNCTIONS[build.arch.name]
    with Step("Fold the stacks, and draw the flame graph"):
        samples = stacks.read_bytes((folder / "samples.txt").read_bytes())
        hits = [sample for sample in samples if sample.is_guest]
        kernel = [sample for sample in hits if sample.is_guest_kernel]
        folded = stacks.fold(hits)
        (folder / "folded.txt").write_text(stacks.folded_text(folded))
        whose = "A Linux guest" if build.arch is X86 else f"An {build.arch.name} Linux guest"
        title = f"{whose}, sampled from its host: {len(hits)} samples"
        flamegraph.write(folded, title, folder / "flamegraph.svg")
        converted = json.loads((folder / "perf.json").read_text())
    _write_page(hits, title, folder / "flamegraph.html")

    return Profile(folder, functions, folded, len(hits), len(kernel),
                   sum(len(sample.functions) >= 2 for sample in kernel),
                   sum(is_whole(sample, functions) for sample in kernel),
                   *system_calls(hits, functions.entry),
                   sum(1 for sample in converted["samples"]
                       if any(frame.get("symbol") == functions.dispatch
                              for frame in sample["callchain"])),
                   _known_stacks(folder / "defer.txt"), _known_stacks(folder / "nodefer.txt"))


def is_whole(sample: stacks.Sample, functions: _Functions) -> bool:
    """Is the outermost function of the kernel one where it is entered, or a thread starts?

    The instruction pointer alone says nothing of the walk.
    """
    frames = sample.frames()
    kernel = [frame for frame in frames if frame.kind == stacks.GUEST_KERNEL]
    return len(frames) > 1 and bool(kernel) and bool(
        re.fullmatch(functions.outermost, kernel[0].name))


def system_calls(samples: List[stacks.Sample], entry: str) -> Tuple[int, int]:
    """How many samples are in system calls, and how many of these begin in user mode."""
    called = [frames for frames in (sample.frames() for sample in samples)
              if any(frame.name == entry for frame in frames)]
    return len(called), sum(frames[0].kind == stacks.GUEST_USER for frames in called)


def _write_page(samples: List[stacks.Sample], title: str, path: Path) -> None:
    """Draw the flame graph as a page, too, where what draws it can be had."""
    try:
        flamepage.write([Counter(sample.frames() for sample in samples if sample.functions)],
                        title, path)
    except Failure as failure:
        say(f"There is no {path.name}, only the static picture: {failure}.")


def _known_stacks(script: Path) -> "Counter[Tuple[str, ...]]":
    if not script.exists():
        return Counter()
    return stacks.fold_callers(sample for sample in stacks.read_bytes(script.read_bytes())
                               if sample.is_guest_kernel)


def _agree(profile: Profile) -> bool:
    """Are the same stacks found by both ways, and no others, each often enough?

    How often they are sampled depends on how busy this machine is.
    """
    return (sorted(map(len, profile.deferred)) == list(_DEPTHS)
            and set(profile.deferred) == set(profile.immediate)
            and min(*profile.deferred.values(), *profile.immediate.values()) >= _ENOUGH_OF_EACH)


def show(profile: Profile) -> None:
    """Print the ten hottest guest call paths, and where the rest is."""
    say("\nThe ten hottest guest call paths, outermost function first:")
    for stack, count in profile.folded.most_common(10):
        say(f"{100 * count / profile.guest_samples:5.1f} %  {' > '.join(stack)}")
    say(f"\n{profile.guest_samples} samples hit the guest, {profile.kernel_samples} of them its "
        f"kernel; {profile.kernel_with_frames} of these ({100 * profile.share:.1f} %) carry two "
        f"frames or more, {profile.kernel_whole} ({100 * profile.whole:.1f} %) reach the kernel's "
        "entry or a thread's start.")
    say(f"Report: {profile.folder}/report.txt")
    page = profile.folder / "flamegraph.html"
    picture = page if page.exists() else page.with_suffix(".svg")
    say(f"Flame graph: {picture} (open it in a browser)")


def read_here(perf: Path, folder: Path) -> Counts:
    """Read the demo's data with this machine's perf: the text must be that of the host's.

    Args:
        perf: built for this machine
        folder: where the demo's results are
    """
    text = folder / "samples-here.txt"
    with text.open("w") as out, (folder / "samples-here.log").open("w") as log:
        # The user's settings, and what perf has kept, are not the host's.
        done = subprocess.run([str(perf), "script", "--symfs", str(folder / "files"), "-i",
                               str(folder / "perf.data.guest"), "-F",
                               "comm,pid,tid,misc,ip,sym,dso"],
                              cwd=folder, env={**os.environ, "HOME": str(folder), "LC_ALL": "C",
                                               "PERF_CONFIG": os.devnull},
                              stdin=subprocess.DEVNULL, stdout=out, stderr=log, check=False)
    theirs = (folder / "samples.txt").read_bytes()
    return judge("perf of this machine", {
        "perf script ends well": not done.returncode,
        "it prints the same text as the host's": bool(theirs) and text.read_bytes() == theirs})


def check(profile: Profile, arch: Arch) -> Counts:
    """The demo as a test: real frames of a real guest, with its symbols."""
    functions = {function for stack in profile.folded for function in stack}
    report = (profile.folder / "report.txt").read_text()
    cases = {
        f"the guest's kernel was sampled ({profile.kernel_samples} times)":
            profile.kernel_samples >= 100,
        f"{100 * profile.share:.1f} % of its samples carry frames, 90 % must":
            profile.share >= _ENOUGH,
        f"{100 * profile.whole:.1f} % of them reach the kernel's entry or a thread's start, "
        "95 % must": profile.whole >= _ENOUGH_WHOLE,
        "call paths have the functions of the workload's system calls":
            functions.issuperset(profile.functions.expected),
        f"{profile.from_user} of {profile.system_calls} system calls begin in user mode, "
        "90 % must": profile.from_user >= _ENOUGH * profile.system_calls > 0,
        "perf report shows them": all(name in report for name in profile.functions.expected),
        "perf data convert --to-json shows them": profile.json_samples > 0,
        "the flame graph shows them":
            profile.functions.dispatch in (profile.folder / "flamegraph.svg").read_text(),
    }
    if arch is X86:
        cases[f"deferred and immediate chains are the same ({profile.deferred.total()} and "
              f"{profile.immediate.total()} samples of two stacks)"] = _agree(profile)
    return judge(profile.folder.name, cases)
