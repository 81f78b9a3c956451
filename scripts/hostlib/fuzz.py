# SPDX-License-Identifier: GPL-2.0-only
"""Fuzz the walk of guests' stacks: in user space, and on the emulated host."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .build import FUZZER, Build
from .machine import Machine, pass_on
from .tree import REPO
from .ui import Failure, Step, run_logged, say

_SOURCES = REPO / "tools/testing/guest_callchain"

# What user space gets of the time; IRQs and NMIs share the rest.
_USER_SPACE_SHARE = 0.4

# For booting, and for the last case; and how slow an emulated host may be.
_GRACE = 120
_SECONDS_PER_CASE = 0.1

# User space is that much faster, and then some.
_RUNS_PER_CASE = 50


@dataclass(frozen=True)
class Limits:
    """How long to fuzz, or how many guests to sample if that isn't zero; and the seed."""
    seconds: int
    cases: int
    seed: int

    @staticmethod
    def parse(seconds: str, cases: str, seed: str) -> "Limits":
        if not seconds.isdecimal() or int(seconds) < 5:
            raise Failure(f"FUZZ_SECONDS={seconds} is no number of seconds from 5 on")
        if not cases.isdecimal():
            raise Failure(f"FUZZ_CASES={cases} is no number")
        if not seed.isdecimal() or not 0 < int(seed) < 2**31:
            raise Failure(f"SEED={seed} is no number from 1 on")
        return Limits(int(seconds), int(cases), int(seed))

    def in_user_space(self) -> str:
        """The option for libFuzzer."""
        if self.cases:
            return f"-runs={self.cases * _RUNS_PER_CASE}"
        return f"-max_total_time={max(1, int(self.seconds * _USER_SPACE_SHARE))}"

    def in_kernel(self) -> str:
        """The option for the selftest, which runs twice."""
        if self.cases:
            return f"-n {(self.cases + 1) // 2}"
        return f"-t {max(1, int(self.seconds * (1 - _USER_SPACE_SHARE) / 2))}"

    def deadline(self) -> int:
        """Seconds after which the host counts as hung."""
        return _GRACE + (int(self.cases * _SECONDS_PER_CASE) if self.cases else self.seconds)


def user_space(build: Path, results: Path, limits: Limits) -> bool:
    """Fuzz stacktrace.c alone, by libFuzzer; say whether it withstood."""
    program = build / "fuzz_stack_walk"
    run_logged("Build the fuzzer for user space",
               ["make", "-C", str(_SOURCES), f"OUTPUT={build}"], results / "build.log")

    log = results / "user_space.log"
    with Step("Fuzz in user space") as step, log.open("w") as out:
        process = subprocess.Popen(
            [str(program), limits.in_user_space(), f"-seed={limits.seed}",
             "-max_len=256", "-print_final_stats=1", f"-artifact_prefix={results}/"],
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
        say(f"user space: {stats['number_of_executed_units']} runs, "
            f"{stats['average_exec_per_sec']} a second, no difference")
        return True

    said = [line for line in text.splitlines()
            if line.startswith("fuzz_stack_walk:") or "ERROR: AddressSanitizer" in line
            or "runtime error:" in line]
    say(f"user space: {said[0] if said else 'the fuzzer failed'}; see {log}")
    for crash in sorted(results.glob("crash-*")):
        say(f"To try again: {program} {crash}")
    return False


def in_kernel(build: Build, accel: str, results: Path, limits: Limits,
              kernel_args: str) -> bool:
    """Sample random guests on the emulated host; say whether all chains are right."""
    job = "cd \"$BUILD_SELFTESTS\"\nfailed=0\n" + "".join(
        f"{FUZZER} {limits.in_kernel()} -s {limits.seed} -i {source} || failed=1\n"
        for source in ("irq", "nmi")) + "exit $failed\n"
    outcome = Machine(build, accel, kernel_args).run(
        job, results, limits.deadline(), pass_on)
    return outcome.status == 0
