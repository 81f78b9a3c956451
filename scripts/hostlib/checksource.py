# SPDX-License-Identifier: GPL-2.0-only
"""Run Linux's own checkers of source on our lines: coccicheck and "make htmldocs"."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Callable, Dict, Iterator, List, Sequence, Set

from .build import CONFIGS
from .check import Result
from .checkbuild import complaints, said_by
from .passed import Passed, digest
from .tree import Tree
from .ui import Failure, Processes, Step, run_logged

# A rule's report: the file, the line and columns, and a message that each rule words itself.
_COCCI = re.compile(r"^(\S+?):(\d+):\d+-\d+: (.*)$", re.MULTILINE)

# A complaint of Sphinx about a line.
_SPHINX = re.compile(r"^(\S+?):(\d+): (?:WARNING|ERROR|SEVERE|CRITICAL): (.*)$", re.MULTILINE)
# A complaint of Sphinx about a whole document.
_SPHINX_FILE = re.compile(r"^(\S+?\.rst): (?:WARNING|ERROR|SEVERE|CRITICAL): (.*)$", re.MULTILINE)

# Rules whose reports about a file are accepted, and why.
_ACCEPTED = {("minmax.cocci", "tools/testing/guest_callchain/callchain_oracle.c"):
             "it runs anywhere, and includes nothing that has min()",
             ("orplus.cocci", "tools/perf/tests/fake-guest.c"): "these are addresses",
             ("orplus.cocci", "tools/testing/selftests/kvm/x86/guest_callchain_modes_test.c"):
             "these are addresses",
             ("doublebitand.cocci", "tools/testing/guest_callchain/callchain_case.c"):
             "each call returns another random number"}

# Macros that spatch must know beside its own.
MACROS = CONFIGS / "coccinelle.h"

# Lines that spatch can't parse, as it prints them.
_UNPARSED = re.compile(r"^badcount: \d+\n((?:(?:bad: |BAD:!!!!! ).*\n)+)", re.MULTILINE)

# Timeout of a rule for one file, in seconds.
_PATIENCE = 600


def _numbers(text: str) -> List[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def rules(tree: Path, version: str) -> Dict[Path, str]:
    """Return all rules, and for each why this spatch can't apply it; empty if it can."""
    found = {}
    for path in sorted((tree / "scripts/coccinelle").rglob("*.cocci")):
        text = path.read_text()
        needed = "".join(re.findall(r"Requires:\s*(\S+)", text)[:1])
        found[path] = ""
        if not re.search(r"virtual\s+report\b", text):
            found[path] = "it only patches"
        elif _numbers(version) < _numbers(needed):
            found[path] = f"spatch {version} is older than {needed}"
        elif re.search(r"^@.*\bocaml\b", text, re.MULTILINE) and not shutil.which("ocamlopt"):
            found[path] = "there is no ocamlopt"
    return found


def unparsed(said: str, text: str) -> Set[int]:
    """Return the numbers of the lines of a file that spatch can't parse: no rule sees them.

    Comments, braces and definitions of macros don't count: rules look at the uses of macros.

    Args:
        said: the output of "spatch --parse-c"; it may be about included headers, too
        text: the content of the file
    """
    lines = text.split("\n")
    found: Set[int] = set()
    start = 0
    for said_lines in _UNPARSED.findall(said):
        bad = [re.sub(r"^(bad: |BAD:!!!!! )", "", line) for line in said_lines.split("\n")[:-1]]
        for first in range(start, len(lines)):
            if lines[first:first + len(bad)] == bad:
                # The next group may begin with the last line of this one.
                start = first + max(1, len(bad) - 1)
                found.update(range(first + 1, first + 1 + len(bad)))
                break
    in_macro = False
    code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda comment: "\n" * comment[0].count("\n"), text,
                  flags=re.DOTALL)
    for number, line in enumerate(code.split("\n"), 1):
        in_macro = in_macro or line.startswith("#")
        if in_macro or not re.search(r"\w", line):
            found.discard(number)
        in_macro = in_macro and line.endswith("\\")
    return found


class _Spatch:
    """Coccinelle on a tree; several threads may use it at once.

    Args:
        tree: the tree whose files are checked
        folder: a folder in which this class writes files for spatch
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        self._tree = tree
        self._folder = folder
        self._macros = folder / "macros.h"
        self.processes = Processes()
        try:
            self.version = said_by("spatch", "--version").split()[2]
        except (subprocess.CalledProcessError, IndexError) as error:
            raise Failure("spatch does not say which version it is") from error
        # Put our macros behind spatch's own: of two with the same name, the last one counts.
        # With --macro-file, spatch's own would win.
        empty = folder / "empty.c"
        empty.write_text("")
        own = re.search(r"^init_defs_builtins: (\S+)$", self._said("--parse-c", str(empty)),
                        re.MULTILINE)
        if not own or not Path(own[1]).exists():
            raise Failure("spatch does not say where its own macros are")
        self._macros.write_text(Path(own[1]).read_text() + MACROS.read_text())

    def _said(self, *args: str) -> str:
        """Run spatch, and return its output; raise Failure if it fails."""
        status, said = self.processes.run(["spatch", *args], self._tree)
        if status or "EXN:" in said:
            wrong = [line for line in said.splitlines() if "EXN:" in line or "rror" in line]
            raise Failure((wrong or [f"exit status {status}"])[0].strip())
        return said

    def key(self) -> str:
        """Return a digest of all that its results depend on, beside the tree and the rule."""
        return digest(self.version, self._macros.read_text())

    def apply(self, rule: Path, files: Sequence[str]) -> str:
        """Return a rule's reports about some files; raise Failure if it fails for one of them."""
        options = re.search(r"Options:(.*)", rule.read_text())
        groups = self._folder / f"{rule.parent.name}-{rule.stem}.files"
        # Put each file in a group of its own: one group of all takes hours, and gigabytes.
        groups.write_text("\n\n".join(files) + "\n")
        return self._said("-D", "report", "--no-show-diff", "--very-quiet",
                          "--timeout", str(_PATIENCE), "--cocci-file", str(rule),
                          "--macro-file-builtins", str(self._macros),
                          *(options.group(1).split() if options else []),
                          "--file-groups", str(groups))

    def unparsed(self, path: str) -> Set[int]:
        """Return the numbers of the lines of a file that no rule sees."""
        said = self._said("--macro-file-builtins", str(self._macros), "--parse-c", path)
        return unparsed(said, (self._tree / path).read_text(errors="replace"))


def _not_seen(spatch: _Spatch, ours: Dict[str, Set[int]], files: Sequence[str]) -> List[str]:
    """Return complaints about lines of ours that spatch can't parse."""
    found = []
    for path in files:
        lines = sorted(spatch.unparsed(path) & ours[path])
        if lines:
            found.append(f"{path}:{lines[0]}: spatch can't parse this, {len(lines)} lines in all; "
                         f"define the macros that it does not know in {MACROS.name}")
    return found


def coccicheck(tree: Path, ours: Dict[str, Set[int]], jobs: int, passed: Passed,
               inputs: str) -> List[Result]:
    """Apply each of the kernel's rules to all C files that we have lines in.

    Args:
        passed: rules that have passed are not applied again
        inputs: a digest of the tree
    """
    if not shutil.which("spatch"):
        return [Result("coccicheck", not_tried="there is no spatch")]
    with tempfile.TemporaryDirectory(prefix="coccicheck.") as folder:
        try:
            spatch = _Spatch(tree, Path(folder))
        except Failure as failure:
            return [Result("coccicheck", [str(failure)])]
        return _coccicheck(spatch, tree, ours, jobs, passed, inputs)


def _coccicheck(spatch: _Spatch, tree: Path, ours: Dict[str, Set[int]], jobs: int,
                passed: Passed, inputs: str) -> List[Result]:
    files = sorted(path for path in ours if path.endswith(".c"))
    lock = Lock()

    def check(name: str, text: str, found: Callable[[], List[str]]) -> Result:
        """Look for complaints, unless the same text of a rule has passed before."""
        key = digest(inputs, spatch.key(), name, text)
        if key in passed:
            return Result(name, before=True)
        try:
            result = Result(name, found())
        except Failure as failure:
            return Result(name, [str(failure)])
        if not result.complaints:
            with lock:
                passed.add(key)
        return result

    def apply(rule: Path) -> Result:
        judged = {path: lines for path, lines in ours.items()
                  if (rule.name, path) not in _ACCEPTED}
        return check(f"coccicheck, {rule.name}", rule.read_text(),
                     lambda: complaints(spatch.apply(rule, files), judged, [_COCCI]))

    every = rules(tree, spatch.version)
    with Step(f"Apply {len(every)} rules of coccicheck to {len(files)} files") as step, \
            ThreadPoolExecutor(jobs) as pool:
        results = [Result(f"coccicheck, {rule.name}", not_tried=reason)
                   for rule, reason in every.items() if reason]
        try:
            for future in [pool.submit(check, "what coccicheck sees", "",
                                       lambda: _not_seen(spatch, ours, files)),
                           *(pool.submit(apply, rule)
                             for rule, reason in every.items() if not reason)]:
                results.append(future.result())
                step.tick(f"{len(results)} of {len(every) + 1}")
        except BaseException:
            # Otherwise, a user who interrupts this would wait for all other rules.
            pool.shutdown(wait=False, cancel_futures=True)
            spatch.processes.end()
            raise
    return results


def parts_of(documents: Sequence[str]) -> List[str]:
    """Return the folders of the documentation with these documents, for SPHINXDIRS."""
    return sorted({document.split("/")[1] for document in documents})


def sphinx_complaints(said: str, ours: Dict[str, Set[int]], new_files: Set[str]) -> List[str]:
    """Return Sphinx's complaints about our lines, and about our documents as a whole."""
    whole = [f"{name}: {text}" for path, text in _SPHINX_FILE.findall(said)
             for name in new_files if path.endswith(name)]
    return complaints(said, ours, [_SPHINX]) + whole


def documentation(tree: Tree, ours: Dict[str, Set[int]], folder: Path, logs: Path) -> Result:
    """Build the parts of the documentation that we have lines in, in a folder."""
    name = "make htmldocs"
    if not shutil.which("sphinx-build"):
        return Result(name, not_tried="there is no sphinx-build")
    if not importlib.util.find_spec("yaml"):
        return Result(name, not_tried="there is no yaml for Python")
    documents = sorted(path for path in ours if path.startswith("Documentation/"))
    # Start anew: Sphinx does not warn again of documents that an earlier run has read.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = logs / "htmldocs.log"
    parts = parts_of(documents)
    try:
        run_logged(f"Build the documentation of {', '.join(parts)}", [
            "make", "-C", str(tree.path), f"O={folder}", f"SPHINXDIRS={' '.join(parts)}",
            "htmldocs"], log)
        said = log.read_text(errors="replace")
        written = [str(page.with_suffix("")) for page in folder.rglob("*.html")]
        absent = [document for document in documents if not any(
            page.endswith(document[len("Documentation"):-len(".rst")]) for page in written)]
        return Result(name, sphinx_complaints(said, ours, set(tree.new_files))
                      + [f"{document} was not built" for document in absent])
    except Failure as failure:
        return Result(name, [str(failure)])


def pages(tree: Tree, folder: Path) -> List[Path]:
    """Return the pages that documentation() has made of our documents."""
    return sorted(page for path in tree.new_files if path.startswith("Documentation/")
                  for page in folder.rglob(f"{Path(path).stem}.html")
                  if str(page.with_suffix("")).endswith(path[len("Documentation"):-len(".rst")]))


def run(tree: Tree, ours: Dict[str, Set[int]], folder: Path, passed: Passed, inputs: str,
        jobs: int = 0) -> Iterator[Result]:
    """Run both checkers on an assembled tree; ours are the lines of checkbuild.our_lines()."""
    jobs = jobs or os.cpu_count() or 1
    yield documentation(tree, ours, folder / "documentation", folder / "log")
    shutil.rmtree(folder / "documentation", ignore_errors=True)
    yield from coccicheck(tree.path, ours, jobs, passed, inputs)
