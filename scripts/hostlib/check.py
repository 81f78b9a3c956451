# SPDX-License-Identifier: GPL-2.0-only
"""Look for mistakes: mypy, flake8, shellcheck, checkpatch, and the unit tests.

scripts/setup.cfg configures the first two.  scripts/checkpatch-accepted.txt lists complaints of
checkpatch that are accepted.  Two more checks tell whether all mutants apply, and whether make
import would leave the patches as they are.
"""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Callable, Iterable, List, Optional, Sequence

from . import branch, mutants, series
from .git import Repository
from .options import OPTIONS
from .patches import REPO, SCRIPTS, posted, topics
from .source import Source, newer_linux
from .tree import Tree
from .ui import Failure, Step, say

ACCEPTED = SCRIPTS / "checkpatch-accepted.txt"

# A reason that begins with this marks a mistake that has yet to be corrected.
TO_MEND = "TODO"

_FINDING = re.compile(r"^(\S+?):(\d+): (?:ERROR|WARNING|CHECK):([A-Z0-9_]+): (.*)$", re.MULTILINE)


@dataclass
class Result:
    """The result of a check; it has passed if it was tried, and there are no complaints.

    to_mend: complaints about mistakes that are to be corrected later
    used: the types of accepted complaints that it has met
    not_tried: why the check was not run; empty if it was
    """
    name: str
    complaints: List[str] = field(default_factory=list)
    to_mend: List[str] = field(default_factory=list)
    used: List["Accepted"] = field(default_factory=list)
    not_tried: str = ""


@dataclass(frozen=True)
class Finding:
    """A complaint of checkpatch.

    Args:
        kind: the type of complaint, as checkpatch calls it
        file: the file that it is about, or the name of a mail if it is about the message
        place: the name and the line of the mail or file in which it was found
        text: the complaint in words
    """
    kind: str
    file: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.file}: {self.kind}: {self.text}"


@dataclass(frozen=True)
class Accepted:
    """A type of complaint that is accepted for some files, and why."""
    kind: str
    pattern: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        return finding.kind == self.kind and fnmatchcase(finding.file, self.pattern)


def read_accepted(path: Path = ACCEPTED) -> List[Accepted]:
    return [Accepted(*line.split(None, 2)) for line in path.read_text().splitlines()
            if line.strip() and not line.startswith("#")]


def file_at(mail: str, number: int) -> str:
    """Return the file that a line of a mail is about; empty if the line is in the message."""
    lines = mail.splitlines()[:number]
    found = [line[len("+++ b/"):] for line in lines if line.startswith("+++ b/")]
    return found[-1] if found else ""


def read_findings(output: str) -> List[Finding]:
    """Read the complaints from checkpatch's output."""
    findings = []
    for name, line, kind, text in _FINDING.findall(output):
        path = Path(name)
        if path.suffix == ".patch":
            file = file_at(path.read_text(), int(line)) or path.name
        else:
            file = os.path.relpath(path, REPO) if path.is_absolute() else name
        findings.append(Finding(kind, file, f"{path.name}:{line}", text))
    return findings


def judge(name: str, findings: Iterable[Finding], accepted: Sequence[Accepted]) -> Result:
    """Sort findings into complaints, accepted ones, and mistakes to be corrected later."""
    result = Result(name)
    for finding in findings:
        covering = [entry for entry in accepted if entry.covers(finding)]
        result.used += covering
        if not covering:
            result.complaints.append(str(finding))
        elif all(entry.reason.startswith(TO_MEND) for entry in covering):
            result.to_mend.append(str(finding))
    return result


def _run(name: str, argv: Sequence[str], cwd: Path) -> Result:
    """Run a tool that exits with an error if it has complaints."""
    # Options of this command, such as ALL=1, are none of the tool's.
    env = {variable: value for variable, value in os.environ.items()
           if variable not in {option.variable for option in OPTIONS.values()}}
    done = subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    said = done.stdout.strip().splitlines()
    return Result(name, (said or [f"exit status {done.returncode}"]) if done.returncode else [])


def python_files() -> List[str]:
    """Return our Python files, by their paths relative to scripts/."""
    return sorted(os.path.relpath(path, SCRIPTS)
                  for top in (SCRIPTS, REPO / "tools") for path in top.rglob("*.py"))


def _python() -> List[Callable[[], Result]]:
    files = python_files()
    return [lambda: _run("mypy", [sys.executable, "-m", "mypy", "--cache-dir=/dev/null",
                                  "--no-error-summary", *files], SCRIPTS),
            # Some need tools that other machines lack: there, they are skipped.
            lambda: _run("unit tests", [sys.executable, "-m", "unittest", "discover", "--buffer",
                                        "-s", "tests"], SCRIPTS),
            lambda: _run("flake8", [sys.executable, "-m", "flake8", *files], SCRIPTS)]


def _shell() -> List[Callable[[], Result]]:
    """Check our own scripts for all complaints, and the kernel's as perf's Makefile does."""
    ours = [str(path.relative_to(REPO)) for path in sorted(SCRIPTS.rglob("*.sh"))]
    kernels = [str(path.relative_to(REPO)) for path in sorted((REPO / "tools").rglob("*.sh"))]
    # SC1091: some scripts include files that only the host or the guest has.
    return [lambda: _run("shellcheck of ours", ["shellcheck", "-e", "SC1091", *ours, ".ci/run"],
                         REPO),
            lambda: _run("shellcheck of the kernel's",
                         ["shellcheck", "-S", "warning", "-e", "SC1091", *kernels], REPO)]


def without_mail() -> List[str]:
    """Return C files that are in no mail."""
    kept = [path for topic in topics() if topic.series not in posted()
            for path in topic.new_files if path.endswith((".c", ".h"))]
    return [*(str(REPO / path) for path in kept),
            *map(str, sorted(SCRIPTS.glob("*.c")))]


def _checkpatch(tree: Path, name: str, accepted: Sequence[Accepted],
                arguments: Sequence[str]) -> Result:
    """Run checkpatch once for several files: its start takes longer than the check of one."""
    done = subprocess.run(["perl", "scripts/checkpatch.pl", "--strict", "--terse",
                           "--show-types", "--color=never", *arguments], cwd=tree,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    findings = read_findings(done.stdout)
    # It prints nothing if it finds nothing.
    if done.returncode not in (0, 1) or bool(done.returncode) != bool(findings):
        return Result(name, [f"exit status {done.returncode}: {done.stdout.strip()}"])
    return judge(name, findings, accepted)


def _patches(tree: Path, mails: Path, accepted: Sequence[Accepted],
             number: int) -> List[Callable[[], Result]]:
    def job(name: str, arguments: Sequence[str]) -> Callable[[], Result]:
        return lambda: _checkpatch(tree, name, accepted, arguments)

    # The person who posts the series signs them off.
    unsigned = "--no-signoff"
    paths = [str(mail) for mail in sorted(mails.rglob("*.patch"))]
    return [job("checkpatch of C files in no mail", ["-f", *without_mail()]),
            *(job(f"checkpatch of mails, part {part + 1}", [unsigned, *paths[part::number]])
              for part in range(number))]


def _imported(repo: Repository) -> Result:
    """Check that make branch and make import leave the patches as they are."""
    return Result("patches as make import writes them", [
        f"{name} differs; run make branch and make import"
        for name in branch.not_as_imported(repo)])


def _mutants(tree: Tree) -> Result:
    """Check that all mutants still apply; to test them all takes hours."""
    return Result("mutants fit", [str(verdict)
                                  for verdict in mutants.unfit(mutants.parse_all(), tree)])


def _newest() -> Result:
    """Remark on a newer Linux of Debian's; the patches are not wrong because of it."""
    try:
        newer = newer_linux()
    except Failure as failure:
        return Result("newest Linux", not_tried=str(failure))
    return Result("newest Linux",
                  to_mend=[f"Debian has {newer}: move the patches to it"] if newer else [])


def run_all(jobs: Sequence[Callable[[], Result]], number: int) -> List[Result]:
    """Run several jobs at once, and return the results in the order of the jobs."""
    with Step(f"Check {len(jobs)} things") as step, \
            ThreadPoolExecutor(number) as pool:
        results = []
        for future in [pool.submit(job) for job in jobs]:
            results.append(future.result())
            step.tick(f"{len(results)} of {len(jobs)}")
        return results


def report(results: Iterable[Result]) -> bool:
    """Print complaints when they are known, then counts; return True if nothing has failed."""
    count = failed = skipped = 0
    for result in results:
        for text in result.to_mend:
            say(f"to be corrected: {text}")
        for text in result.complaints:
            say(f"failed: {result.name}: {text}")
        if result.not_tried:
            say(f"not tried: {result.name}: {result.not_tried}")
        count += 1
        failed += bool(result.complaints)
        skipped += bool(result.not_tried)
    say(f"{count - failed - skipped} passed, {failed} failed"
        + (f", {skipped} not tried" if skipped else ""))
    return not failed


def run(source: Source, build: Path, folder: Path, number: int = 0,
        more: Optional[Callable[[Path], Iterable[Result]]] = None) -> bool:
    """Run all checks, and leave the checked mails in a folder.

    Args:
        source: the kernel's source
        build: the build folder; its tree is assembled
        number: how many checks to run at once; 0 for one per CPU
        more: further checks of the mails, if there are any
    """
    mails = folder / "series"
    mails.mkdir()
    accepted = read_accepted()
    number = number or os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as tmp:
        repo = series.repository(source, build, Path(tmp))
        series.mails(repo, mails)
        results = run_all([*_patches(build / "linux", mails, accepted, number), *_python(),
                           *_shell(), _newest, lambda: _imported(repo),
                           lambda: _mutants(Tree(build))], number)
    for entry in accepted:
        if not any(entry in result.used for result in results):
            say(f"not reported any more, remove it from {ACCEPTED.name}: "
                f"{entry.kind} {entry.pattern}")
    # The other checks take more than an hour: report() prints complaints as they come.
    return report(chain(results, more(mails) if more else []))
