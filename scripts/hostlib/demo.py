# SPDX-License-Identifier: GPL-2.0-only
"""The main job on real input: profile a Linux guest from its host."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from . import distro, flamegraph, guest, programs, stacks
from .arch import X86, Arch
from .build import CALL_PATHS, GUEST_PROGRAM, Build
from .emulated import EmulatedHost, check_console, pass_on
from .selftests import Counts, judge
from .ui import Failure, Step, say

# The Debian releases with the guests' kernels: of x86-64, what runs best under QEMU's emulation; of
# arm64, what tells where its data is.
_SUITES = {"x86": "bookworm", "arm64": "trixie"}

# Programs of the host's Debian that the guest runs: perf has none of their files, and names them
# from the guest's memory.
_DEBIANS = ("usr/bin/gzip", "usr/bin/perl", "usr/bin/sha256sum", "usr/bin/sort")

# The tasks whose programs have rules to unwind them: busybox has none, and sort has a frame that is
# larger than what perf records of a stack.  Some code of libcrypto has none either.
_UNWOUND = ("call_paths", "gzip", "perl", "sha256sum")
_NOT_UNWOUND = "/libcrypto.so"

# Seconds for two boots, one inside the other, and a profile; a slow emulator needs most of them.
_DEADLINE = 1200

# The share of the guest-kernel samples, but for those of entries, that must carry more than the IP,
# and of the samples in system calls whose chains must begin in user mode.
_ENOUGH = 0.90

# What perf record says if events read guests.
_READS = "Callchains of guests: by reads of their memory"

# The share of the guest-kernel samples that must reach the kernel's entry or a thread's start.
_ENOUGH_WHOLE = 0.95


@dataclass(frozen=True)
class _Functions:
    """The names of functions in an architecture's kernels.

    Args:
        entry: the entry of system calls
        dispatch: a function on the path from that entry to the system call
        outermost: a pattern of all entries, and of the functions where threads and CPUs start
        alone: a pattern of entries from user mode at which the emulator looks for interrupts: they
            are often sampled before there is a caller
    """
    entry: str
    dispatch: str
    outermost: str
    alone: str = ""

    @property
    def expected(self) -> Tuple[str, ...]:
        """The functions that the workload's system calls run through."""
        return self.entry, self.dispatch, "vfs_read", "vfs_write"


_FUNCTIONS = {
    "x86": _Functions("entry_SYSCALL_64_after_hwframe", "do_syscall_64",
                      r"(asm|entry|ret_from_fork|secondary_startup|x86_64_start)\w*"),
    "arm64": _Functions("el0t_64_sync", "el0_svc",
                        r"(vectors|tramp_vectors|__bp_harden_el1_vectors|el0t_|ret_from_fork|"
                        r"ret_to_user|__secondary_switched|__primary_switched)\w*",
                        r"(vectors|el0t_|ret_to_user)\w*"),
}


@dataclass(frozen=True)
class Profile:
    """The results of the demo.

    may_read: perf looks into the guest's memory, and has events read its stacks
    has_read: perf says so
    """
    folder: Path
    may_read: bool
    has_read: bool
    functions: _Functions
    folded: "Counter[Tuple[str, ...]]"
    guest_samples: int
    kernel_samples: int
    kernel_with_frames: int
    kernel_whole: int
    system_calls: int
    from_user: int
    json_samples: int

    @property
    def share(self) -> float:
        return self.kernel_with_frames / self.kernel_samples if self.kernel_samples else 0.0

    @property
    def whole(self) -> float:
        return self.kernel_whole / self.kernel_samples if self.kernel_samples else 0.0


def fetch(whose: str, arch: Arch) -> Optional[Path]:
    """Fetch the guest's kernel if it is not built here; call this before long work."""
    return guest.fetch(_SUITES[arch.name], arch.debian)[0] if whose == "debian" else None


def _make_guest(build: Build, folder: Path, whose: str) -> None:
    """Write the guest's initrd to a folder, and its kernel if that is Debian's."""
    foreign = build.arch is not X86
    system = build.root if foreign else Path("/")
    ours = ({"call_paths": build.selftests / CALL_PATHS} if foreign else
            {"program": build.selftests / GUEST_PROGRAM})
    guest.install(ours, folder / "files", system, build.arch)
    # The file of our program, which has no dynamic symbols, for --symfs.
    shutil.copytree(folder / "files", folder / "symbols")
    for program in _DEBIANS:
        kept = folder / "files" / program
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(system / program, kept)
        guest.install_libraries(kept, folder / "files", system, build.arch)
    package = fetch(whose, build.arch)
    if package:
        with Step(f"Unpack {package.stem}"):
            guest.unpack_image(package, folder / "kernel")
    init = "stock-guest.sh" if whose == "debian" else "demo-guest.sh"
    guest.write_initrd(folder / "initrd.img", init, folder / "files",
                       shell=build.root / "usr/bin/busybox" if foreign else None)


def run(build: Build, accel: str, folder: Path, whose: str, kernel_args: str = "") -> Profile:
    """Boot host and guest, sample the guest, and leave all results in a folder.

    Args:
        build: the host
        accel: the accelerator that runs the host
        folder: the folder for the results
        whose: one of options.GUESTS
        kernel_args: further arguments for the host's kernel
    """
    _make_guest(build, folder, whose)
    job = f"whose={whose}\n{(guest.SCRIPTS / 'demo-host.sh').read_text()}"
    outcome = EmulatedHost(build, accel, kernel_args).run(job, folder, _DEADLINE, pass_on)
    check_console(folder / "guest.log", "guest")
    if outcome.status:
        raise Failure(f"The demo failed on the host, what it says is above; see {folder}")

    functions = _FUNCTIONS[build.arch.name]
    # perf reads no guest whose files it is given.
    may_read = whose == "debian"
    has_read = _READS in (folder / "record.log").read_text()
    with Step("Fold the stacks, and draw the flame graph"):
        samples = stacks.read_bytes((folder / "samples.txt").read_bytes())
        hits = [sample for sample in samples if sample.is_guest]
        kernel = [sample for sample in hits
                  if sample.is_guest_kernel and not is_entry(sample, functions)]
        folded = stacks.fold(hits)
        (folder / "folded.txt").write_text(stacks.folded_text(folded))
        whose = "A Linux guest" if build.arch is X86 else f"An {build.arch.name} Linux guest"
        title = f"{whose}, sampled from its host: {len(hits)} samples"
        flamegraph.write([stacks.with_tasks(hits)], title, folder / "flamegraph.svg")
        converted = json.loads((folder / "perf.json").read_text())

    return Profile(folder, may_read, has_read, functions, folded, len(hits), len(kernel),
                   sum(len(sample.functions) >= 2 for sample in kernel),
                   sum(is_whole(sample, functions) for sample in kernel),
                   *system_calls(hits, functions.entry),
                   sum(1 for sample in converted["samples"]
                       if any(frame.get("symbol") == functions.dispatch
                              for frame in sample["callchain"])))


def is_entry(sample: stacks.Sample, functions: _Functions) -> bool:
    """Return True if an entry from user mode was sampled that has no callers in the kernel."""
    frames = sample.frames()
    return len(frames) == 1 and bool(re.fullmatch(functions.alone, frames[0].name))


def is_whole(sample: stacks.Sample, functions: _Functions) -> bool:
    """Return True if the outermost kernel function is an entry, or starts a thread or a CPU.

    A sample with the instruction pointer alone does not count: it says nothing about the walk.
    """
    frames = sample.frames()
    kernel = [frame for frame in frames if frame.kind == stacks.GUEST_KERNEL]
    return len(frames) > 1 and bool(kernel) and bool(
        re.fullmatch(functions.outermost, kernel[0].name))


def system_calls(samples: List[stacks.Sample], entry: str) -> Tuple[int, int]:
    """Count the samples in system calls, and those of them that begin in user mode."""
    called = [frames for frames in (sample.frames() for sample in samples)
              if any(frame.name == entry for frame in frames)]
    return len(called), sum(frames[0].kind == stacks.GUEST_USER for frames in called)


def show(profile: Profile) -> None:
    """Print the ten hottest guest call paths, and where the other results are."""
    say("\nThe ten hottest guest call paths, outermost function first:")
    for stack, count in profile.folded.most_common(10):
        say(f"{100 * count / profile.guest_samples:5.1f} %  {' > '.join(stack)}")
    say(f"\n{profile.guest_samples} samples hit the guest, {profile.kernel_samples} of them its "
        f"kernel (entries left out); {profile.kernel_with_frames} of these "
        f"({100 * profile.share:.1f} %) carry two frames or more, {profile.kernel_whole} "
        f"({100 * profile.whole:.1f} %) reach the kernel's entry or a thread's "
        "start.")
    say(f"Report: {profile.folder}/report.txt")
    say(f"Flame graph: {profile.folder}/flamegraph.svg (open it in a browser)")


def _script_here(perf: Path, folder: Path, name: str, *options: str) -> Tuple[bool, str]:
    """Run this machine's perf script on the demo's data; return if it ended well, and its text.

    Args:
        name: the name of the file with the text
    """
    text = folder / f"{name}.txt"
    with text.open("w") as out, (folder / f"{name}.log").open("w") as log:
        # Don't use the user's settings and perf's cache: the host does not have them.
        done = subprocess.run([str(perf), "script", "-i", str(folder / "perf.data.guest"),
                               *options],
                              cwd=folder, env={**os.environ, "HOME": str(folder), "LC_ALL": "C",
                                               "PERF_CONFIG": os.devnull},
                              stdin=subprocess.DEVNULL, stdout=out, stderr=log, check=False)
    return not done.returncode, text.read_text(errors="replace")


def read_here(perf: Path, folder: Path) -> Counts:
    """Read the demo's data with this machine's perf: it must print the same as the host's perf.

    Args:
        perf: the perf that was built for this machine
        folder: the folder with the demo's results
    """
    good, text = _script_here(perf, folder, "samples-here", "--symfs", str(folder / "symbols"),
                              "-F", "comm,pid,tid,misc,ip,sym,dso")
    theirs = (folder / "samples.txt").read_text(errors="replace")
    return judge("perf of this machine", {
        "perf script ends well": good,
        "it prints the same text as the host's": bool(theirs) and text == theirs})


def judge_programs(perf: Path, folder: Path) -> Counts:
    """Compare names and callers of the guest's programs with what the guest's files say.

    Args:
        perf: the perf that was built for this machine
        folder: the folder with the demo's results
    """
    kept = next((folder / "perf.data.guest.guests").iterdir())
    (folder / "mount").mkdir()
    (folder / "mount" / kept.name).symlink_to(folder / "files")
    (folder / "empty").mkdir()
    (good, text), (files_good, files_text) = (
        _script_here(perf, folder, f"script-{way}", "--symfs", str(folder / "empty"), *options,
                     "--no-inline", "-F", "comm,misc,ip,sym,dso,dsoff")
        for way, options in (("memory", ()),
                             ("files", (f"--guestmount={folder / 'mount'}",))))
    found, reference = (programs.read(each.split("\n")) for each in (text, files_text))
    pairs = [(ours, theirs) for ours, theirs in zip(found, reference)
             if ours.comm in _UNWOUND or " KVM" in ours.comm or ours.comm.startswith("qemu")
             if not any(_NOT_UNWOUND in frame.place for frame in theirs.user)]
    return judge("programs", {
        "perf script ends well": good and files_good and len(found) == len(reference),
        **dict(distro.cases([ours for ours, _ in pairs], [theirs for _, theirs in pairs],
                            programs.finder(folder / "files", {}),
                            distro.programs_in_memory(kept)))})


def check(profile: Profile) -> Counts:
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
        "perf report shows them": all(name in report for name in profile.functions.expected),
        "perf data convert --to-json shows them": profile.json_samples > 0,
        "the flame graph shows them":
            profile.functions.dispatch in (profile.folder / "flamegraph.svg").read_text(),
        f"perf has events read the guest: {profile.has_read}":
            profile.has_read == profile.may_read,
    }
    if profile.may_read:
        cases[f"{profile.from_user} of {profile.system_calls} system calls begin in user mode, "
              "90 % must"] = profile.from_user >= _ENOUGH * profile.system_calls > 0
    return judge(profile.folder.name, cases)
