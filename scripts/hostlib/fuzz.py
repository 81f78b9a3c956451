# SPDX-License-Identifier: GPL-2.0-only
"""Fuzz the walk of guests' stacks, in user space and on the emulated host; fuzz perf as well."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .build import FUZZER, Build
from .emulated import EmulatedHost, pass_on
from .patches import REPO
from .ui import Failure, Step, run_logged, say

_SOURCES = REPO / "tools/testing/guest_callchain"

# The share of the time for user space; the runs with IRQs and with NMIs share the rest.
_USER_SPACE_SHARE = 0.4

# Seconds for the boot and the last case; and the seconds that a slow host takes for each case.
_GRACE = 120
_SECONDS_PER_CASE = 0.1

# Runs in user space for each case on the host: user space is faster by more than that.
_RUNS_PER_CASE = 50


@dataclass(frozen=True)
class Limits:
    """The seconds to fuzz, or the number of guests to sample if not zero; and the seed."""
    seconds: int
    cases: int
    seed: int

    @staticmethod
    def parse(seconds: str, cases: str, seed: str) -> "Limits":
        if not seconds.isdecimal() or int(seconds) < 5:
            raise Failure(f"FUZZ_SECONDS={seconds} must be a number of seconds, at least 5")
        if not cases.isdecimal():
            raise Failure(f"FUZZ_CASES={cases} must be a number")
        if not seed.isdecimal() or not 0 < int(seed) < 2**31:
            raise Failure(f"SEED={seed} must be a number from 1 to {2**31 - 1}")
        return Limits(int(seconds), int(cases), int(seed))

    def in_user_space(self) -> str:
        """The option for libFuzzer."""
        if self.cases:
            return f"-runs={self.cases * _RUNS_PER_CASE}"
        return f"-max_total_time={max(1, int(self.seconds * _USER_SPACE_SHARE))}"

    def shared(self, fuzzers: int) -> "Limits":
        """Return the limits for one of several fuzzers, which share the time, but not the cases."""
        return self if self.cases else Limits(self.seconds // fuzzers, 0, self.seed)

    def in_kernel(self) -> str:
        """The option for the selftest, which runs twice."""
        if self.cases:
            return f"-n {(self.cases + 1) // 2}"
        return f"-t {max(1, int(self.seconds * (1 - _USER_SPACE_SHARE) / 2))}"

    def deadline(self) -> int:
        """Seconds after which the host counts as hung."""
        return _GRACE + (int(self.cases * _SECONDS_PER_CASE) if self.cases else self.seconds)


def _run(program: Path, results: Path, limits: Limits, max_len: int) -> bool:
    """Run a program of libFuzzer; return True if it finds nothing wrong."""
    name = program.name
    log = results / f"{name}.log"
    with Step(f"Run {name}") as step, log.open("w") as out:
        process = subprocess.Popen(
            [str(program), limits.in_user_space(), f"-seed={limits.seed}",
             f"-max_len={max_len}", "-print_final_stats=1", f"-artifact_prefix={results}/{name}-"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                try:
                    process.wait(timeout=0.5)
                except subprocess.TimeoutExpired:
                    step.tick()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    text = log.read_text(errors="replace")
    if process.returncode == 0:
        stats = dict(re.findall(r"^stat::(\w+):\s+(\d+)", text, re.MULTILINE))
        say(f"{name}: {stats['number_of_executed_units']} runs, "
            f"{stats['average_exec_per_sec']} a second, nothing found")
        return True

    said = [line for line in text.splitlines()
            if line.startswith(f"{name}:") or "ERROR: AddressSanitizer" in line
            or "runtime error:" in line]
    say(f"{said[0] if said else f'{name} failed'}; see {log}")
    for crash in sorted(results.glob(f"{name}-crash-*")):
        say(f"To try again: {program} {crash}")
    return False


def user_space(build: Build, folder: Path, results: Path, limits: Limits) -> bool:
    """Fuzz KVM's walk alone, and perf's readers of guests; return True if nothing is found."""
    run_logged("Build the fuzzers for user space",
               ["make", "-C", str(_SOURCES), f"OUTPUT={folder}", f"LINUX={build.tree.path}",
                "all", "perf"], results / "build.log")
    lengths = {"fuzz_stack_walk": 256, "fuzz_stack_walk_arm64": 256, "fuzz_guest_stack": 1024,
               "fuzz_guest_memory": 256}
    return all([_run(folder / name, results, limits.shared(len(lengths)), length)
                for name, length in lengths.items()])


def in_kernel(build: Build, accel: str, results: Path, limits: Limits,
              kernel_args: str) -> bool:
    """Sample random guests on the emulated host; return True if all chains are right."""
    job = "cd \"$BUILD_SELFTESTS\"\nfailed=0\n" + "".join(
        f"{FUZZER} {limits.in_kernel()} -s {limits.seed} -i {source} || failed=1\n"
        for source in ("irq", "nmi")) + "exit $failed\n"
    outcome = EmulatedHost(build, accel, kernel_args).run(
        job, results, limits.deadline(), pass_on)
    return outcome.status == 0
