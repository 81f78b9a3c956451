# SPDX-License-Identifier: GPL-2.0-only
"""Test guests that are whole distributions: name and unwind their programs from their memory.

The same samples are resolved with what perf has read of the guest's memory, and with the files of
the guest's disk.  The latter are the reference: nothing may be said that they don't say, nor that
the guest's own perf does not say.  Then a debuginfod server gives the files to perf.  Last,
recordings are broken off.
"""

import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from . import bootstrap, guest, inside, stock
from .build import CALL_PATHS, Build
from .emulated import EmulatedHost, pass_on
from .programs import UNKNOWN, UPPER_HALF, Find, Frame, Sample, finder, read
from .selftests import Counts, judge
from .ui import Failure, Step, run_logged

SUITES = ("bookworm", "trixie")

_PACKAGES = ("systemd-sysv", "udev", "linux-image-cloud-amd64", "python3", "perl", "openssl",
             "linux-perf")
_DISK = "1500M"

# Seconds. Some machines are several times slower than others.
_DEADLINE = 5400
_INDEX_SECONDS = 300

# The lowest number of samples of each kind, and the lowest shares of them.
_ENOUGH = 500
_NAMED = 0.95
_REACH = 0.90
_REACH_BY_FILES = 0.97
# While the guest boots: the lowest share of the kernel's samples that must be whole, and named; and
# the lowest number of modules whose init must be found.
_BOOT = 0.97
_INITS = 2
# The same in a recording that was broken off.  Three quarters of all functions are exported, and so
# have names; perf may not have read a program's file again.
_ENOUGH_BROKEN = 100
_NAMED_BROKEN = 0.6
# The cgroup of what works, and the lowest share of all samples in it; the rest are the system's.
_CGROUP_PATH = "/system.slice/work.service"
_IN_CGROUP = 0.7
# What the process that reads the guest may take of a CPU, which is emulated and some twenty times
# slower than a real one, and of memory; for how many seconds this is looked at; ticks of a second.
_READER = 0.25
_READER_MIB = 400
_COSTS_SECONDS = 20
_TICKS = 100
# The largest share of samples that are shown as the VMM's.
_VMM = 0.01

# Functions of call_paths, from the innermost one outwards.  Between those may be the C library's.
_OUTER = ("main", "_start")
PATHS = {
    ("spin", *(f"deep{number}" for number in range(10, 0, -1)), *_OUTER),
    ("spin", "compare", "sort", *_OUTER),
    ("spin", "handler", "interrupt", *_OUTER),
    ("spin", "hidden", "in_thread"),
}
# hidden() is not exported.
_HIDDEN = "hidden"

# Functions of the kernel, of x86-64 and of arm64: those of all system calls and page faults; that
# which switches to another task; those in which a task leaves its program.
_CALLS = {"do_syscall_64", "exc_page_fault", "el0_svc", "el0_da", "el0_ia"}
_SWITCHES = "__schedule"
_LEAVES = {"bprm_execve", "__x64_sys_execve", "__arm64_sys_execve", "do_group_exit", "do_exit"}

# The code at the entry of a file is no longer than this.
_ENTRY_SIZE = 64


def is_start(frame: Frame, files: Find) -> bool:
    """Return True if a frame is where a program, or one of its threads, begins."""
    path, offset = frame.in_file
    program = files(path)
    rule = program.rule(offset)
    if rule is None:
        return program.entry >= 0 and 0 <= offset - program.entry < _ENTRY_SIZE
    return rule.start in program.outermost


def lacks_rule(frame: Frame, memory: Find) -> bool:
    """Return True if the page with the rule for a frame was not in the guest's memory."""
    path, offset = frame.in_file
    return not path or memory(path).rule(offset) is None


def chain_kind(found: Sample, reference: Sample, files: Find, memory: Find) -> str:
    """Compare user mode's part of a callchain with the reference.

    Returns:
        "start" if it leads to where the program begins, "page" if it ends because a page was not
        there, "short" if it ends otherwise, "wrong" if it has a frame that the reference lacks
    """
    ours, theirs = ([frame.address for frame in sample.user] for sample in (found, reference))
    if not ours:
        return "short"
    if theirs[:len(ours)] != ours:
        return "wrong"
    if len(ours) == len(theirs):
        return "start" if is_start(reference.user[-1], files) else "short"
    return "page" if lacks_rule(found.user[-1], memory) else "short"


def _kernel(sample: Sample) -> List[str]:
    return [frame.function for frame in sample.frames if frame.address >= UPPER_HALF]


def is_call(sample: Sample) -> bool:
    """Return True for a sample of the kernel in a system call or in a page fault."""
    return not _CALLS.isdisjoint(_kernel(sample))


def has_left(sample: Sample) -> bool:
    """Return True if the task's program is out of reach: its files, or its stack.

    The task has left its program, or the kernel already has the page tables of the next task.
    """
    kernel = _kernel(sample)
    leaves = not _LEAVES.isdisjoint(kernel)
    if not sample.user:
        return leaves or _SWITCHES in kernel
    return leaves and (sample.user[-1].place == UNKNOWN or len(sample.user) == 1)


def path_kind(sample: Sample, all_named: bool = False) -> str:
    """Judge a sample of call_paths: "whole", "part" or "wrong".

    Args:
        all_named: functions that are not exported have names, too
    """
    names = tuple(frame.function for frame in sample.user if "/call_paths" in frame.place)
    paths = PATHS if all_named else {
        tuple(UNKNOWN if name == _HIDDEN else name for name in path) for path in PATHS}
    if names in paths:
        return "whole"
    return "part" if any(path[:len(names)] == names for path in paths) else "wrong"


def _paths_of(samples: List[Sample], all_named: bool) -> Tuple[str, bool]:
    """Return how many of call_paths' samples have a known path, and whether these are enough."""
    paths = Counter(path_kind(sample, all_named) for sample in samples
                    if sample.comm == "call_paths" and sample.is_user
                    and sample.frames[0].function == "spin")
    total = sum(paths.values())
    return (f"{paths['whole']} of {total} known paths are whole, {paths['part']} end early, "
            f"{paths['wrong']} are others"), \
        not paths["wrong"] and total >= 20 and paths["whole"] >= _REACH * total


def cases(found: List[Sample], reference: List[Sample], files: Find,
          memory: Find) -> Iterator[Tuple[str, bool]]:
    """Yield what must hold for the samples of a guest, and whether it does."""
    pairs = list(zip(found, reference))
    user = [pair for pair in pairs if pair[0].is_user]
    kernel = [pair for pair in pairs if pair[0].frames and not pair[0].is_user]
    yield f"{len(user)} samples of user mode and {len(kernel)} of the kernel", \
        len(found) == len(reference) and min(len(user), len(kernel)) >= _ENOUGH

    vmm = sum(" KVM" in sample.comm or "/KVM" in sample.comm or sample.comm.startswith("qemu")
              for sample in found)
    yield f"{vmm} of {len(found)} samples are shown as the VMM's", vmm <= _VMM * len(found)

    known = [(ours.frames[0].function, theirs.frames[0].function) for ours, theirs in user
             if theirs.frames[0].function != UNKNOWN]
    same = sum(ours == theirs for ours, theirs in known)
    yield f"{same} of {len(known)} innermost functions have the reference's name", \
        same >= max(_NAMED * len(known), 1)
    other = Counter((ours.frames[0].function, theirs.frames[0].function) for ours, theirs in user
                    if ours.frames[0].function not in (UNKNOWN, theirs.frames[0].function))
    yield f"{sum(other.values())} have another name{_most(other)}", not other

    ends = Counter(chain_kind(ours, theirs, files, memory) for ours, theirs in user)
    yield _share("chains of user mode lead to the program's start", ends, len(user), _REACH)
    wrong = [f"{ours.comm} at {ours.frames[0].address:x}" for ours, theirs in user + kernel
             if ours.user and chain_kind(ours, theirs, files, memory) == "wrong"]
    yield f"{len(wrong)} chains have a frame that the reference lacks {wrong[:3]}", not wrong
    by_files = sum(bool(theirs.user) and is_start(theirs.user[-1], files) for _, theirs in user)
    yield f"{by_files} of {len(user)} do so with the guest's files", \
        by_files >= _REACH_BY_FILES * len(user)

    calls = [(ours, theirs) for ours, theirs in kernel if is_call(ours)]
    gone = sum(has_left(ours) for ours, _ in calls)
    ends = Counter(chain_kind(ours, theirs, files, memory) for ours, theirs in calls
                   if not has_left(ours))
    yield _share(f"chains of system calls and page faults ({gone} more of exec, exit and "
                 "switches, where the program is out of reach) lead to its start", ends,
                 len(calls) - gone, _REACH)

    yield _paths_of(found, all_named=False)


# "12 34 56789 perf-guests": ticks of user mode and of the kernel, memory in KiB.
_COSTS = re.compile(r"^(\d+) (\d+) (\d+) (\S+)$", re.MULTILINE)


def cost_case(begin: str, costs: str) -> Tuple[str, bool]:
    """Return what the process that reads the guest takes, and if this is within its limits.

    Args:
        begin: what perf's processes had taken when the guest's kernel was known
        costs: what they had taken _COSTS_SECONDS later
    """
    (before, _), (after, memory) = (
        [sum(column) for column in zip(*[(int(user) + int(system), int(kib)) for
                                         user, system, kib, name in _COSTS.findall(text)
                                         if name == "perf-guests"])] or [0, 0]
        for text in (begin, costs))
    share = (after - before) / _TICKS / _COSTS_SECONDS
    return (f"to read the guest takes {100 * share:.1f} % of an emulated CPU, {memory >> 10} MiB",
            0 < before < after and share <= _READER and memory >> 10 <= _READER_MIB)


# "    96.31%  /system.slice/work.service"
_CGROUP = re.compile(r"^ +([\d.]+)% +(/\S*)$", re.MULTILINE)


def cgroup_case(report: str) -> Tuple[str, bool]:
    """Return how much of a report by cgroup is of the service that works, and if this suffices."""
    share = sum(float(percent) for percent, path in _CGROUP.findall(report) if path == _CGROUP_PATH)
    return f"{share:.1f} % of all samples are in {_CGROUP_PATH}", share >= 100 * _IN_CGROUP


def server_cases(found: List[Sample], reference: List[Sample],
                 files: Find) -> Iterator[Tuple[str, bool]]:
    """Yield what must hold for samples that were resolved by a debuginfod server."""
    user = [(ours, theirs) for ours, theirs in zip(found, reference) if ours.is_user]
    known = [(ours.frames[0].function, theirs.frames[0].function) for ours, theirs in user
             if theirs.frames[0].function != UNKNOWN]
    same = sum(ours == theirs for ours, theirs in known)
    yield f"{same} of {len(known)} innermost functions have the reference's name", \
        len(found) == len(reference) and same >= max(_NAMED * len(known), _ENOUGH)
    ends = Counter(chain_kind(ours, theirs, files, files) for ours, theirs in user)
    yield f"{ends['start']} of {len(user)} chains of user mode lead to the program's start", \
        ends["start"] >= max(_REACH_BY_FILES * len(user), 1)
    yield f"{ends['wrong']} chains have a frame that the reference lacks", not ends["wrong"]
    yield _paths_of(found, all_named=True)


def boot_cases(ends: Dict[str, int], found: List[Sample]) -> Iterator[Tuple[str, bool]]:
    """Yield what must hold for the samples of a guest that boots.

    Args:
        ends: how many samples of the kernel were unwound to each end
    """
    kernel = [[frame.function for frame in sample.frames if frame.address >= UPPER_HALF]
              for sample in found if sample.frames and not sample.is_user]
    whole = sum(ends.get(end, 0) for end in stock.WHOLE)
    yield f"{whole} of {len(kernel)} samples of the booting kernel are whole", \
        len(kernel) >= _ENOUGH and whole >= _BOOT * len(kernel)
    named = sum(UNKNOWN not in functions for functions in kernel)
    yield f"all functions of {named} have names", named >= _BOOT * len(kernel)
    inits = {frame.place.split("]")[0] for sample in found for frame in sample.frames
             if ".init]" in frame.place}
    yield f"the inits of {len(inits)} modules were sampled", len(inits) >= _INITS


# Recordings that were broken off, by how: perf's messages have one of these about what is missing.
# If the VM dies, nothing is.
BROKEN = {"killed": "properly terminated?", "full": "No space left on device",
          "died": "Captured and wrote"}


def broken_cases(how: str, found: List[Sample], said: str) -> Iterator[Tuple[str, bool]]:
    """Yield what must hold for the samples of a recording that was broken off.

    Args:
        how: one of BROKEN
        said: what perf record and perf script have said
    """
    user = [sample for sample in found if sample.is_user]
    named = sum(sample.frames[0].function != UNKNOWN for sample in user)
    yield f"{named} of {len(user)} innermost functions of {len(found)} samples have a name", \
        len(user) >= _ENOUGH_BROKEN and named >= _NAMED_BROKEN * len(user)
    deep = sum(len(sample.user) > 1 for sample in user)
    yield f"{deep} have callers", deep >= _NAMED_BROKEN * len(user)
    yield f'perf says "{BROKEN[how]}"', BROKEN[how] in said and "perf script: " not in said


def _most(counted: "Counter[Tuple[str, str]]") -> str:
    return "".join(f"; {ours}, not {theirs}" for (ours, theirs), _ in counted.most_common(3))


def _share(what: str, ends: "Counter[str]", total: int, enough: float) -> Tuple[str, bool]:
    reach = ends["start"] + ends["page"]
    return (f"{ends['start']} of {total} {what}, {ends['page']} to a page that was not there, "
            f"{ends['short']} end early"), total > 0 and reach >= enough * total


def _make_disk(suite: str, build: Build, folder: Path, results: Path) -> None:
    """Make the disk of a guest, and keep its files beside it."""
    kept = bootstrap.tarball("distro", suite, _PACKAGES, results, variant="minbase")
    root = folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    with Step(f"Make the disk of {suite}"):
        subprocess.run(["tar", "-C", str(root), "--exclude=./dev/*", "-xpf", str(kept)],
                       check=True)
        for program, name in ((build.selftests / CALL_PATHS, "call_paths"),
                              (guest.SCRIPTS / "distro-work.sh", "work")):
            shutil.copy(program, root / "usr/local/bin" / name)
            (root / "usr/local/bin" / name).chmod(0o755)
        subprocess.run(["strip", str(root / "usr/local/bin/call_paths")], check=True)
        unit = root / "etc/systemd/system/work.service"
        unit.write_text("[Service]\nExecStart=/usr/local/bin/work\n")
        wants = unit.parent / "multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit.name).symlink_to(f"../{unit.name}")
        for name in ("vmlinuz", "initrd.img"):
            shutil.copy(next(root.glob(f"boot/{name}-*")), folder / name)
    run_logged(f"Write the disk of {suite}",
               ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(root),
                str(folder / "disk.img"), _DISK], results / f"mke2fs-{suite}.log")


class Server:
    """A debuginfod server of some folders, at a port of this machine that is free."""

    def __init__(self, folders: List[Path], cache: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._argv = ["debuginfod", "-F", "-t", "0", "-p", str(self._port), "-d",
                      str(cache / "index"), *map(str, folders)]
        self._log = cache / "log"

    def __enter__(self) -> "Server":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=log)
        end = time.monotonic() + _INDEX_SECONDS
        while not self._has_read_all():
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise Failure(f"debuginfod doesn't serve the guest's files; see {self._log}")
            time.sleep(0.5)
        return self

    def _has_read_all(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return False
        return bool(re.search(r'^thread_work_total\{role="traverse"\} [1-9]', text, re.MULTILINE)
                    and re.search(r'^thread_work_pending\{role="scan"\} 0$', text, re.MULTILINE)
                    and not re.search(r'^thread_busy\{role="(scan|traverse)"\} [1-9]', text,
                                      re.MULTILINE))

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def _ask_server(build: Build, root: Path, folder: Path) -> List[Sample]:
    """Resolve the samples on this machine, with a server that has the guest's files."""
    with tempfile.TemporaryDirectory() as tmp:
        cache, empty = Path(tmp), Path(tmp) / "empty"
        empty.mkdir()
        # The guest's copy of this program is stripped.
        debug = cache / "debug"
        debug.mkdir()
        shutil.copy(build.selftests / CALL_PATHS, debug)
        env = {**os.environ, "HOME": tmp, "DEBUGINFOD_CACHE_PATH": f"{tmp}/cache", "LC_ALL": "C"}
        with Server([root / "usr", debug], cache) as server, \
                (folder / "script-server.txt").open("w") as out, \
                (folder / "script-server.log").open("w") as log:
            subprocess.run([str(build.perf), "script", "--symfs", str(empty), "--no-inline", "-i",
                            str(folder / "perf.data"), "-F", "comm,misc,ip,sym,dso,dsoff"],
                           env={**env, "DEBUGINFOD_URLS": server.url}, stdin=subprocess.DEVNULL,
                           stdout=out, stderr=log, check=True)
    return _read_script(folder, "server")


def _read_script(folder: Path, way: str) -> List[Sample]:
    return read((folder / f"script-{way}.txt").read_text(errors="replace").split("\n"))


def build_ids(maps: str) -> Dict[str, str]:
    """Return the build-id of each file in perf's notes on the files that a guest's tasks run."""
    return {path: build_id for build_id, path in
            re.findall(r"^\w+ \w+ \w+ \w+:\w+ \d+ ([0-9a-f]{2,}) (/.*)$", maps, re.MULTILINE)}


def run(build: Build, accel: str, disks: Path, folder: Path, kernel_args: str = "") -> Counts:
    """Boot each distribution on the host, sample it at work, and judge the samples.

    Args:
        disks: a folder for the guests' disks; it is removed again if nothing failed
    """
    for suite in SUITES:
        _make_disk(suite, build, disks / suite, folder)
    job = (guest.SCRIPTS / "distro-host.sh").read_text()
    job = f"GUESTS={shlex.quote(str(disks))}\nSUITES='{' '.join(SUITES)}'\n{job}"
    if EmulatedHost(build, accel, kernel_args).run(job, folder, _DEADLINE, pass_on).status:
        raise Failure(f"A guest could not be sampled, see above and {folder}")
    counts = Counts()
    for suite in SUITES:
        counts.add(judge_guest(suite, disks / suite / "root", folder / suite))
        counts.add(judge(f"{suite}, debuginfod", dict(server_cases(
            _ask_server(build, disks / suite / "root", folder / suite),
            _read_script(folder / suite, "files"), finder(disks / suite / "root", {})))))
        counts.add(_judge_boot(suite, folder / suite))
        counts.add(_judge_inside(suite, folder / suite))
        for how in BROKEN:
            counts.add(_judge_broken(suite, how, folder / suite))
    if not counts.failed:
        shutil.rmtree(disks)
    return counts


def programs_in_memory(kept: Path) -> Find:
    """Return a function that reads a program as perf found it in a guest's memory.

    Args:
        kept: the directory that perf has written for the guest
    """
    return finder(kept / "programs", build_ids((kept / "maps").read_text()))


def judge_guest(suite: str, root: Path, folder: Path) -> Counts:
    """Judge the samples of one guest, and count what holds."""
    memory = programs_in_memory(next((folder / "perf.data.guests").iterdir()))
    return judge(suite, dict([*cases(_read_script(folder, "memory"), _read_script(folder, "files"),
                                     finder(root, {}), memory),
                              cgroup_case((folder / "cgroups.txt").read_text()),
                              cost_case((folder / "costs-begin.txt").read_text(),
                                        (folder / "costs.txt").read_text())]))


def _judge_broken(suite: str, how: str, folder: Path) -> Counts:
    said = "".join((folder / f"{command}-{how}.log").read_text(errors="replace")
                   for command in ("record", "script"))
    return judge(f"{suite}, {how}",
                 dict(broken_cases(how, _read_script(folder, how), said)))


def _judge_boot(suite: str, folder: Path) -> Counts:
    ends = stock.read_ends((folder / "stats-boot.txt").read_text())
    return judge(f"{suite}, boot", dict(boot_cases(ends, _read_script(folder, "boot"))))


def _judge_inside(suite: str, folder: Path) -> Counts:
    named, unwound = (inside.read((folder / f"{name}.txt").read_text().split("\n"))
                      for name in ("names", "chains"))
    return judge(f"{suite}, its own perf", dict(inside.cases(_read_script(folder, "memory"), named,
                                                             unwound)))
