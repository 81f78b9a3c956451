# SPDX-License-Identifier: GPL-2.0-only
"""Test guests with kernels that Debian built: sample them from the host, and unwind by ORC."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Tuple

from . import guest, stacks
from .build import CONFIGS, GUEST_PROGRAM, LIBC_PROGRAM, Build
from .checkbuild import CLANG
from .emulated import EmulatedHost, pass_on
from .selftests import Counts, count_test
from .ui import Failure, Step, say

# The work that stock-host.sh lets guests do, and the CPUs for it.
WORKS = {"files": 1, "network": 2, "block": 2}
# The ways of sampling it: with the files of the guest's kernel, and without any.  Only without them
# does perf look into the guest's memory, and tell KVM to read user mode's registers and stack, and
# the stack that an IRQ has interrupted.
FILES = "orc"
OUTSIDE = "outside"
WAYS = (FILES, OUTSIDE)
# With the guest's kallsyms alone: its kernel has frame pointers.
FRAMES = "frames"

# More work, which is sampled in the way OUTSIDE only. TASKS: tasks with known shares of user
# mode's time, while modules are loaded. REBOOTS: the guest boots again while it is recorded, by
# a reset and by kexec.
TASKS = "tasks"
REBOOTS = ("reboot", "kexec")
# The guest's users try to hide from perf and to confuse it, see workload.sh.
HOSTILE = "hostile"

# What stock-host.sh has to say if perf's names are the guest's own.
_SAME = ("functions same\n", "modules same\n")


# Its name, the number of CPUs, and in which ways it is sampled.
Work = Tuple[str, int, Tuple[str, ...]]


@dataclass(frozen=True)
class Guest:
    """A guest.

    Args:
        suite: Debian's suite
        flavour: of its kernel, see guest.fetch()
        all_work: it does all work; if not, only files and TASKS, in the way OUTSIDE
        config: if its kernel is built here, the name of what is special in its configuration
        compiler: ... and what compiles it
        tells: what must be in the results of comparing names, and in perf's messages
        host: arguments of the host's kernel
    """
    suite: str = ""
    flavour: str = "cloud-"
    all_work: bool = False
    config: str = ""
    compiler: str = "gcc"
    tells: Tuple[str, ...] = _SAME
    host: str = ""

    @property
    def is_32bit(self) -> bool:
        return self.flavour.startswith("686")

    @property
    def lacks_names(self) -> bool:
        """perf must say that it can't name all; the kernel has frame pointers."""
        return self.tells != _SAME

    @property
    def work(self) -> List[Work]:
        """What it does, with how many CPUs, and in which ways it is sampled."""
        if self.lacks_names:
            return [("files", 1, (OUTSIDE, FRAMES))]
        if not self.all_work:
            return [("files", 1, (OUTSIDE,)), (TASKS, 1, (OUTSIDE,))]
        return [*((work, cpus, WAYS) for work, cpus in WORKS.items()),
                *((work, 1, (OUTSIDE,)) for work in (TASKS, HOSTILE, *REBOOTS))]


# Their kernels, 5.10, 6.1, 6.12 and 7.3, have three formats of ORC tables.
GUESTS = {
    "bookworm": Guest("bookworm", all_work=True),
    "trixie": Guest("trixie", all_work=True),
    "trixie-backports": Guest("trixie-backports", all_work=True),
    "bullseye": Guest("bullseye"),
    "bullseye-generic": Guest("bullseye", ""),
    "bookworm-rt": Guest("bookworm", "rt-"),
    # Structures have their fields in random order.
    "randstruct": Guest(config="guest-randstruct", compiler=CLANG),
    "no-btf": Guest(config="guest-frames", tells=(_SAME[0], "its kernel has no BTF")),
    # With nested paging, such guests hang on the emulated host.
    "bookworm-686": Guest("bookworm", "686", tells=("a kernel of 32 bits",),
                          host="kvm_amd.npt=0"),
}

# The modules for block I/O: the disk is null_blk.
MODULES = ("configfs", "null_blk")

# Seconds. This machine may be several times slower than others.
_DEADLINE = 5400

# The lowest number of samples of a guest's kernel, and the lowest shares of them that must be
# unwound, and that must have two frames or more.
_ENOUGH_SAMPLES = 200
_UNWOUND = 0.97
_WITH_FRAMES = 0.99
_WITH_FRAMES_NAMELESS = 0.9

# Functions where kernels are entered, and where their threads and CPUs start. The offset must be
# small enough to lie in the function: perf may have no other symbols than these, and takes all
# code after a symbol as part of it.
_OUTERMOST = re.compile(r"(?:asm|entry|ret_from_fork|secondary_startup|x86_64_start)\w*"
                        r"\+0x[0-9a-f]{1,3}$")

# Functions of the program with frame pointers, from the one that calls the kernel outwards.
_PROGRAM = ("transfer", "transfer_many", "work", "main")

# The functions that perf must name in samples of each program, by the guest's comm.  program_libc
# calls the C library, which has no frame pointers: so the library's caller, transfer(), is
# missing.
_NAMES = {"program": _PROGRAM, "program_libc": _PROGRAM[1:]}

# Kernel functions by which the program copies data.
_COPY = {"vfs_read", "vfs_write"}

# The end of walks that leave what was read of the stack, and the lowest share of samples that must
# be unwound with the files of the guest's kernel, where these walks do no harm.
_BEYOND = "beyond the stack that was recorded"
_UNWOUND_WITH_FILES = 0.5

# The lowest number of samples with functions of the program, or of modules.
_ENOUGH_OF_EACH = 50

# The ends of complete walks, by their names in the output of perf report --stats.
WHOLE = ("user mode", "outermost frame")

# The tasks of guest_program: the first does one unit of work, the second two, and so on to ten.
# Then the largest deviation of their shares of user mode's samples, in sigma, and the lowest
# share of these samples that all of them together must have.
_TASKS = [f"task{number}" for number in range(10)]
_SIGMAS = 4
_BUSY = 0.9

# The name of the hostile guest's program, as perf prints it.
_STRANGE_COMM = "a?[2J?b"
_STRANGE_FILE = f"{_STRANGE_COMM} (deleted)"

# For a guest that boots again: the lowest number of samples of each of its two kernels, the
# lowest share of them that must have names, and the size of the range that holds a kernel.
_KERNEL_SAMPLES = 500
_NAMED = 0.99
_KERNEL_SIZE = 1 << 26

# perf's name for the end of a walk at a return address with no call before it, and the largest
# share of samples with this end.
_NO_CALL = "no call before a return address"
_FAILED = 0.001


@dataclass(frozen=True)
class Unwound:
    """Numbers of samples of a guest's kernel.

    Args:
        ends: for each end of a walk, by its name, how many walks ended so
        samples: all of them
        with_frames: those with two frames or more
        entered: those unwound to a function where kernels are entered, or where threads start
    """
    ends: Dict[str, int]
    samples: int
    with_frames: int
    entered: int

    @property
    def whole(self) -> int:
        return sum(self.ends.get(end, 0) for end in WHOLE)


def read_ends(stats: str) -> Dict[str, int]:
    """Return how many walks ended in each way, from the output of perf report --stats."""
    return {end: int(number) for end, number in
            re.findall(r"^\s*GUEST_STACK end: (.*):\s+(\d+)$", stats, re.MULTILINE)}


def outermost(sample: stacks.Sample) -> str:
    """Return the kernel's outermost function; all functions after it are user mode's."""
    kernel = [function for function, address in zip(sample.functions, sample.addresses)
              if is_kernel(address)]
    return kernel[-1] if kernel else ""


def functions(program: Path) -> Dict[str, range]:
    """Return the address ranges of a program's functions."""
    listed = subprocess.run(["nm", "-S", "--defined-only", str(program)], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {row[3]: range(int(row[0], 16), int(row[0], 16) + int(row[1], 16))
            for row in rows if len(row) == 4 and row[2] in "tT"}


@dataclass(frozen=True)
class Found:
    """How many samples are of the kind that was looked for, and how many of them are whole.

    Of a program that calls the kernel, these have all its functions; through modules, they reach
    the kernel's entry.
    """
    samples: int
    whole: int


def from_program(samples: Iterable[stacks.Sample], places: Dict[str, range]) -> Found:
    """Look for the program's frames below those of the kernel."""
    total = whole = 0
    for sample in samples:
        user = [int(address, 16) for address in sample.addresses if not is_kernel(address)]
        if user and user[0] in places[_PROGRAM[0]]:
            total += 1
            # Ignore frames after main(), which was called by code without frame pointers.
            whole += (len(user) >= len(_PROGRAM) and
                      all(address in places[name] for address, name in zip(user, _PROGRAM)))
    return Found(total, whole)


def named(samples: Iterable[stacks.Sample], comm: str, names: Tuple[str, ...]) -> Found:
    """Look for a program's functions by name, in samples in which the kernel copies for it."""
    total = whole = 0
    for sample in samples:
        functions = [function.split("+")[0] for function in sample.functions]
        user = [function for function, address in zip(functions, sample.addresses)
                if not is_kernel(address)]
        # Skip other samples of the program, e.g. those at its start.
        if sample.comm == comm and user and _COPY.intersection(functions):
            total += 1
            whole += any(tuple(user[i:i + len(names)]) == names for i in range(len(user)))
    return Found(total, whole)


def modules_of(proc_modules: str) -> List[range]:
    """Return the address ranges of a guest's modules, from its /proc/modules.

    A line there has the name, the size, three more fields, and the address.
    """
    return [range(int(row[5], 16), int(row[5], 16) + int(row[1]))
            for row in map(str.split, proc_modules.splitlines())]


def in_modules(samples: Iterable[stacks.Sample], modules: List[range]) -> Found:
    """Find samples with a function of a module anywhere in the chain."""
    found = [sample for sample in samples
             if any(int(address, 16) in module for address in sample.addresses
                    for module in modules)]
    return Found(len(found), sum(bool(_OUTERMOST.match(outermost(sample))) for sample in found))


def is_kernel(address: str) -> bool:
    """Return true if an address lies in the upper half, or in the upper GiB of 32 bits."""
    return address >= {16: "8", 8: "c"}.get(len(address), "g")


def _read_script(folder: Path, work: str, way: str) -> Iterator[stacks.Sample]:
    return stacks.read((folder / f"script-{work}-{way}.txt").read_text().splitlines())


def _samples(folder: Path, work: str, way: str) -> List[stacks.Sample]:
    return [sample for sample in _read_script(folder, work, way) if sample.is_guest_kernel]


def _user_samples(folder: Path, work: str) -> List[stacks.Sample]:
    """Return the samples of the guest's user mode that were taken in the way OUTSIDE."""
    return [sample for sample in _read_script(folder, work, OUTSIDE)
            if sample.is_guest and not sample.is_guest_kernel]


def _read(folder: Path, work: str, way: str) -> Unwound:
    samples = _samples(folder, work, way)
    return Unwound(read_ends((folder / f"stats-{work}-{way}.txt").read_text()), len(samples),
                   sum(len(sample.addresses) >= 2 for sample in samples),
                   sum(bool(_OUTERMOST.match(outermost(sample))) for sample in samples))


def _judge(name: str, unwound: Unwound, way: str = OUTSIDE) -> Iterator[str]:
    """Yield complaints about the chains of a guest."""
    total = unwound.samples
    beyond = unwound.ends.get(_BEYOND, 0) if way == FILES else 0
    by_orc = (f"{100 * unwound.whole / max(total, 1):.2f} % unwound to user mode or a thread's "
              "start, " if way != FRAMES else "")
    say(f"{name}: {total} samples of the kernel, {by_orc}"
        f"{100 * unwound.entered / max(total, 1):.2f} % to a function there, "
        f"{100 * unwound.with_frames / max(total, 1):.2f} % with two frames or more"
        + "".join(f"; {number}: {end}" for end, number in sorted(unwound.ends.items())
                  if end not in WHOLE))
    if total < _ENOUGH_SAMPLES:
        yield f"{name}: only {total} samples"
    if sum(unwound.ends.values()) > total:
        yield f"{name}: {sum(unwound.ends.values())} walks ended, but there are {total} samples"
    if unwound.ends.get(_NO_CALL, 0) > _FAILED * total:
        yield (f"{name}: {unwound.ends[_NO_CALL]} of {total} chains end at a return address that "
               "follows no call")
    if way != FRAMES and (unwound.whole + beyond < _UNWOUND * total or
                          unwound.whole < _UNWOUND_WITH_FILES * total):
        yield f"{name}: only {unwound.whole} of {total} samples were unwound"
    if unwound.entered + beyond < _UNWOUND * total:
        yield f"{name}: only {unwound.entered} of {total} chains reach the kernel's entry"
    # Frame pointers need not be set up where the kernel is entered: such samples have no callers.
    if way != FRAMES and unwound.with_frames < _WITH_FRAMES * total:
        yield f"{name}: only {unwound.with_frames} of {total} samples have frames"


def _judge_nameless(name: str, unwound: Unwound) -> Iterator[str]:
    """Yield complaints about the chains of a guest whose functions have no names."""
    say(f"{name}: {unwound.with_frames} of {unwound.samples} samples of the kernel have frames")
    if unwound.with_frames < max(_WITH_FRAMES_NAMELESS * unwound.samples, _ENOUGH_SAMPLES):
        yield f"{name}: only {unwound.with_frames} of {unwound.samples} samples have frames"


def _judge_found(name: str, found: Found, enough: float = _UNWOUND) -> Iterator[str]:
    """Yield complaints about the chains through a program or modules."""
    say(f"{name}: {found.whole} of {found.samples} samples are whole")
    if found.samples < _ENOUGH_OF_EACH:
        yield f"{name}: only {found.samples} samples"
    if found.whole < enough * found.samples:
        yield f"{name}: only {found.whole} of {found.samples} samples are whole"


def _judge_names(name: str, compared: str, tells: Tuple[str, ...] = _SAME) -> Iterator[str]:
    """Yield complaints about the names that perf has found in a guest's memory.

    Args:
        tells: what must be there; if it is _SAME, nothing else may be there
    """
    if tells == _SAME:
        same = compared == "".join(_SAME)
    else:
        same = all(part in compared for part in tells)
    if not same:
        yield f"{name}: the guest reports other names: {compared.strip()}"


def vms(report: str) -> Dict[str, float]:
    """Return each VM's share, in percent, from the output of perf report --sort guest."""
    return {name: float(share) for share, name in
            re.findall(r"^ +(\d+\.\d+)%  (\S+) *$", report, re.MULTILINE)}


def _judge_vm(name: str, vm: str, report: str) -> Iterator[str]:
    """Yield a complaint unless the report names this VM and nothing else.

    Its share may be below 100 %: perf kvm --guest counts the host's samples, but hides them.
    """
    if set(vms(report)) != {vm}:
        yield f"{name}: perf report --sort guest has {vms(report)}"


def build_id(file: Path) -> str:
    """Return an ELF file's build-id, in hexadecimal digits."""
    notes = subprocess.run(["readelf", "-n", str(file)], check=True, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True).stdout
    return str(re.findall(r"Build ID: ([0-9a-f]+)", notes)[0])


def _judge_build_ids(name: str, kernel: str, modules: Dict[str, str],
                     listed: str) -> Iterator[str]:
    """Yield complaints about the build-ids of a guest's kernel and modules in perf's file."""
    found = {dso: digits for digits, dso in
             re.findall(r"^([0-9a-f]+) (\S+)", listed, re.MULTILINE)}
    kernels = {found[dso] for dso in found if dso.startswith("[guest.kernel.kallsyms.")}
    if kernels != {kernel}:
        yield f"{name}: the kernel's build-id is {kernel}, and not {kernels}"
    for module, expected in modules.items():
        if found.get(module) != expected:
            yield f"{name}: {module} has the build-id {expected}, and not {found.get(module)}"


def deviations(samples: List[stacks.Sample]) -> Dict[str, float]:
    """Return by how many sigma each task's samples deviate from its share of the tasks' work."""
    found = {task: sum(sample.comm == task for sample in samples) for task in _TASKS}
    total, units = sum(found.values()), sum(range(1, len(_TASKS) + 1))
    shares = {task: number / units for number, task in enumerate(_TASKS, 1)}
    return {task: (found[task] - total * share) / max(total * share * (1 - share), 1) ** 0.5
            for task, share in shares.items()}


def _judge_tasks(name: str, samples: List[stacks.Sample]) -> Iterator[str]:
    """Yield complaints about the tasks to which perf assigns samples of a guest."""
    of_tasks = sum(sample.comm in _TASKS for sample in samples)
    found = deviations(samples)
    say(f"{name}: {of_tasks} of {len(samples)} samples of user mode are of the ten tasks, whose "
        f"shares are {', '.join(f'{sigma:+.1f}' for sigma in found.values())} sigma off")
    if of_tasks < max(_BUSY * len(samples), _ENOUGH_SAMPLES):
        yield f"{name}: only {of_tasks} of {len(samples)} samples are of the guest's tasks"
    for task, sigma in found.items():
        if abs(sigma) > _SIGMAS:
            yield f"{name}: the share of {task} is {sigma:+.1f} sigma off"


def _judge_reboot(name: str, samples: List[stacks.Sample], starts: List[int]) -> Iterator[str]:
    """Yield complaints about the names in samples of a guest that has booted again."""
    if len(set(starts)) != 2:
        yield f"{name}: perf has found {len(set(starts))} kernels, not two"
    for start in set(starts):
        of_kernel = [sample for sample in samples
                     if start <= int(sample.addresses[0], 16) < start + _KERNEL_SIZE]
        named = sum("[unknown]" not in sample.functions[0] for sample in of_kernel)
        say(f"{name}: {named} of {len(of_kernel)} samples of the kernel at {start:#x} have names")
        if len(of_kernel) < _KERNEL_SAMPLES:
            yield f"{name}: only {len(of_kernel)} samples of the kernel at {start:#x}"
        if named < _NAMED * len(of_kernel):
            yield f"{name}: {named} of {len(of_kernel)} samples of one kernel have names"


def _judge_hostile(name: str, strange: int, report: str,
                   samples: List[stacks.Sample]) -> Iterator[str]:
    """Yield complaints about text that perf has printed because of a hostile guest."""
    found = sum(sample.comm == _STRANGE_COMM for sample in samples)
    say(f"{name}: {found} of {len(samples)} samples are of {_STRANGE_COMM}, "
        f"{strange} bytes change a terminal")
    if found < _ENOUGH_SAMPLES:
        yield f"{name}: only {found} of {len(samples)} samples are of {_STRANGE_COMM}"
    if _STRANGE_FILE not in report:
        yield f"{name}: perf report does not have {_STRANGE_FILE}"
    if strange:
        yield f"{name}: {strange} bytes change a terminal"


def _module(place: Path, name: str) -> Path:
    """Return the uncompressed file of a guest's module, which unpack_modules() has made."""
    plain = place / f"{name}.ko"
    return plain if plain.exists() else next((place / "root").rglob(f"{name}.ko"))


def _prepare_kernel(build: Build, kernel: Guest, place: Path) -> List[Path]:
    """Put the kernel of a guest into its folder; return the modules that it loads."""
    # A guest also lists the functions of its modules, which perf can't name if it lacks names.
    names = () if kernel.lacks_names else MODULES
    if kernel.config:
        made = build.guest(CONFIGS / f"{kernel.config}.config", kernel.compiler)
        place.mkdir(parents=True)
        shutil.copy(made.image, place / "vmlinuz")
        return [next(made.modules.rglob(f"{name}.ko")) for name in names]
    package, with_modules = guest.fetch(kernel.suite, "i386" if kernel.is_32bit else "amd64",
                                        kernel.flavour)
    with Step(f"Unpack {package.stem}"):
        guest.unpack(package, build.tree.path, place)
        return guest.unpack_modules(with_modules, place / "root", names)


def _prepare(build: Build, kernel: Guest, place: Path, works: Iterable[Work]) -> None:
    """Make all files of a guest that does this work, in a new folder."""
    modules = _prepare_kernel(build, kernel, place)
    shell = None
    if kernel.is_32bit:
        shell = guest.fetch_busybox(kernel.suite, "i386")
        (place / "files").mkdir()
    else:
        guest.install({"program": build.selftests / GUEST_PROGRAM,
                       "program_libc": build.selftests / LIBC_PROGRAM}, place / "files")
    # The guest boots this copy by kexec.
    if kernel.all_work:
        shutil.copy(place / "vmlinuz", place / "files")
    guest.write_initrd(place / "initrd.img", "stock-guest.sh", place / "files", modules, shell)
    (place / "work").write_text("".join(
        f"{work} {cpus} {' '.join(ways)}\n" for work, cpus, ways in works))


def on_stock_kernel(host: Build, build: Build, accel: str, folder: Path) -> List[str]:
    """Sample a guest on a host without our patches; return complaints about the names.

    Args:
        host: the host
        build: what has the perf to do it with
        folder: a new folder, for all results
    """
    name = "bookworm"
    _prepare(build, Guest(name), folder / "guests" / name, [("files", 1, (OUTSIDE,))])
    job = (f"guests={name} outside_graph=\nperf() {{ {build.perf} \"$@\"; }}\n" +
           (guest.SCRIPTS / "stock-host.sh").read_text())
    if EmulatedHost(host, accel).run(job, folder, _DEADLINE, pass_on).status:
        raise Failure(f"A guest could not be sampled, see above and {folder}")
    return list(_judge_stock_kernel(name, folder / "guests" / name))


# "  CPU 0/KVM G      ffffffff8ec70b7d filemap_map_pages+0x1fd"
_KERNEL_SAMPLE = re.compile(r" G +[0-9a-f]{16} (.+)$", re.MULTILINE)


def _judge_stock_kernel(name: str, found: Path) -> Iterator[str]:
    """Yield complaints about samples that have no callchains."""
    functions_found = _KERNEL_SAMPLE.findall((found / f"script-files-{OUTSIDE}.txt").read_text())
    named = sum("[unknown]" not in function for function in functions_found)
    say(f"{name}, on the kernel without our patches: {named} of {len(functions_found)} samples of "
        "the guest's kernel have names")
    yield from _judge_names(name, (found / "names-files").read_text())
    if named < max(_NAMED * len(functions_found), _ENOUGH_SAMPLES):
        yield f"{name}: only {named} of {len(functions_found)} samples have names"


def run(build: Build, accel: str, folder: Path, kernel_args: str = "") -> Counts:
    """Boot each guest on the host, sample it, and count what was unwound."""
    for name, kernel in GUESTS.items():
        _prepare(build, kernel, folder / "guests" / name, kernel.work)
    for arguments in dict.fromkeys(kernel.host for kernel in GUESTS.values()):
        names = [name for name, kernel in GUESTS.items() if kernel.host == arguments]
        job = f"guests='{' '.join(names)}'\n" + (guest.SCRIPTS / "stock-host.sh").read_text()
        host = EmulatedHost(build, accel, f"{kernel_args} {arguments}".strip())
        if host.run(job, folder, _DEADLINE, pass_on).status:
            raise Failure(f"A guest could not be sampled, see above and {folder}")
    return judge(folder, build.selftests / GUEST_PROGRAM)


def judge(folder: Path, program: Path) -> Counts:
    """Judge the samples, and count the tests.

    Args:
        folder: the folder of run(), with all results
        program: the program with frame pointers that the guests ran
    """
    counts = Counts()
    for name, kernel in GUESTS.items():
        _judge_guest(counts, name, folder / "guests" / name, kernel, program)
    return counts


def _judge_guest(counts: Counts, name: str, found: Path, kernel: Guest, program: Path) -> None:
    for work, _, _ in kernel.work:
        count_test(counts, _judge_names(f"{name}, {work}, names",
                                        (found / f"names-{work}").read_text(), kernel.tells))
        # perf looks for a VM's name only if it finds a kernel there.
        vm = "[guest]" if kernel.is_32bit else name
        count_test(counts, _judge_vm(f"{name}, {work}, VM", vm,
                                     (found / f"vms-{work}.txt").read_text()))
    if kernel.lacks_names:
        for way in (OUTSIDE, FRAMES):
            unwound = _read(found, "files", way)
            nameless = kernel.is_32bit and way == OUTSIDE
            count_test(counts, _judge_nameless(f"{name}, {way}", unwound) if nameless else
                       _judge(f"{name}, {way}", unwound, FRAMES))
        return

    count_test(counts, _judge_tasks(f"{name}, tasks", _user_samples(found, TASKS)))
    for comm, names in _NAMES.items():
        count_test(counts, _judge_found(f"{name}, {comm}, names", named(
            _samples(found, "files", OUTSIDE), comm, names)))
    count_test(counts, _judge_found(f"{name}, program", from_program(
        _samples(found, "files", OUTSIDE), functions(program))))
    for work, _, ways in kernel.work:
        for way in ways if work in WORKS else ():
            count_test(counts, _judge(f"{name}, {work}, {way}", _read(found, work, way), way))
    if not kernel.all_work:
        return

    count_test(counts, _judge_build_ids(
        f"{name}, build-ids", build_id(found / "vmlinux"),
        {"[null_blk]": build_id(_module(found, "null_blk"))},
        (found / "build-ids.txt").read_text()))
    count_test(counts, _judge_hostile(
        f"{name}, hostile", int((found / "strange").read_text()),
        (found / f"report-{HOSTILE}.txt").read_text(),
        list(_read_script(found, HOSTILE, OUTSIDE))))
    for work in REBOOTS:
        count_test(counts, _judge_reboot(
            f"{name}, {work}", _samples(found, work, OUTSIDE),
            [int(line, 16) for line in (found / f"kernels-{work}").read_text().split()]))
    places = modules_of((found / "modules-block").read_text())
    for way in WAYS:
        count_test(counts, _judge_found(f"{name}, modules, {way}", in_modules(
            _samples(found, "block", way), places),
            _UNWOUND_WITH_FILES if way == FILES else _UNWOUND))
