# SPDX-License-Identifier: GPL-2.0-only
"""Run Linux's own checkers of source on our lines: coccicheck and "make htmldocs"."""

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Callable, Collection, Dict, Iterable, Iterator, List, Sequence, Set

from .build import CONFIGS
from .check import Result
from .checkbuild import complaints
from .ui import Failure, run_logged

# A rule's report: the file, the line and columns, and a message that each rule words itself.
_COCCI = re.compile(r"^(\S+?):(\d+):\d+-\d+: (.*)$", re.MULTILINE)

# A complaint of Sphinx about a line.
_SPHINX = re.compile(r"^(\S+?):(\d+): (?:WARNING|ERROR|SEVERE|CRITICAL): (.*)$", re.MULTILINE)
# A complaint of Sphinx about a whole document.
_SPHINX_FILE = re.compile(r"^(\S+?\.rst): (?:WARNING|ERROR|SEVERE|CRITICAL): (.*)$", re.MULTILINE)

# Macros that spatch must know beside its own.
MACROS = CONFIGS / "coccinelle.h"

# Lines that spatch can't parse, as it prints them.
_UNPARSED = re.compile(r"^badcount: \d+\n((?:(?:bad: |BAD:!!!!! ).*\n)+)", re.MULTILINE)
# Comments and directives.  No rule looks at definitions of macros, but at their uses.
_NO_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|^#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)

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

    Look for the text of these lines: spatch gives the place of the first one that it did not
    expect, which may be in a macro of another file.

    Args:
        said: the output of "spatch --parse-c"; it may be about included headers, too
        text: the content of the file
    """
    found: Set[int] = set()
    lines = text.split("\n")
    start = 0
    for group in _UNPARSED.findall(said):
        bad = [line.split(" ", 1)[1] for line in group.split("\n")[:-1]]
        for first in range(start, len(lines)):
            if lines[first:first + len(bad)] == bad:
                # The next group may begin with the last line of this one.
                start = first + max(1, len(bad) - 1)
                found.update(range(first + 1, first + 1 + len(bad)))
                break
    code = _NO_CODE.sub(lambda part: "\n" * part[0].count("\n"), text).split("\n")
    return {number for number in found if re.search(r"\w", code[number - 1])}


class _Spatch:
    """Coccinelle on a tree.

    Args:
        tree: the tree whose files are checked
        folder: a folder for its input and output
    """

    def __init__(self, tree: Path, folder: Path, jobs: int) -> None:
        self._tree = tree
        self._folder = folder
        self._jobs = jobs
        folder.mkdir(parents=True, exist_ok=True)
        self._macros = folder / "macros.h"
        # Put our macros behind spatch's own: of two with the same name, the last one counts.
        # With --macro-file, spatch's own would win.
        empty = folder / "empty.c"
        empty.write_text("")
        version = re.search(r"version (\S+)", self._said("Ask spatch", "--version"))
        own = re.search(r"^init_defs_builtins: (\S+)$",
                        self._said("Ask spatch", "--parse-c", str(empty)), re.MULTILINE)
        if not version or not own or not Path(own[1]).exists():
            raise Failure("spatch does not say which version it is, or where its macros are")
        self.version = version[1]
        self._macros.write_text(Path(own[1]).read_text() + MACROS.read_text())

    def _said(self, title: str, *args: str) -> str:
        """Run spatch, and return its output; raise Failure if it fails."""
        log = self._folder / "spatch.log"
        run_logged(title, ["spatch", *args], log, cwd=self._tree)
        said = log.read_text(errors="replace")
        for line in said.splitlines():
            if "EXN:" in line:
                raise Failure(line.strip())
        return said

    def apply(self, rule: Path, files: Sequence[str]) -> str:
        """Return a rule's reports about some files; raise Failure if it fails for one of them."""
        options = re.search(r"Options:(.*)", rule.read_text())
        groups = self._folder / "files"
        # Put each file in a group of its own: one group of all takes hours, and gigabytes.
        groups.write_text("\n\n".join(files) + "\n")
        return self._said(f"Apply {rule.name}",
                          "-D", "report", "--no-show-diff", "--very-quiet",
                          "--jobs", str(self._jobs), "--chunksize", "1",
                          "--timeout", str(_PATIENCE), "--cocci-file", str(rule),
                          "--macro-file-builtins", str(self._macros),
                          *(options.group(1).split() if options else []),
                          "--file-groups", str(groups))

    def unparsed(self, files: Sequence[str]) -> Dict[str, Set[int]]:
        """Return the numbers of the lines of each file that no rule sees."""
        said = self._said("Look for what it can't parse",
                          "--macro-file-builtins", str(self._macros), "--parse-c", *files)
        parts = re.split(r"^PARSING: (\S+)$", said, flags=re.MULTILINE)
        return {path: unparsed(part, (self._tree / path).read_text(errors="replace"))
                for path, part in zip(parts[1::2], parts[2::2])}


def _not_seen(spatch: _Spatch, ours: Dict[str, Set[int]], files: Sequence[str]) -> List[str]:
    """Return complaints about lines of ours that spatch can't parse."""
    found = spatch.unparsed(files)
    lines = {path: sorted(found[path] & ours[path]) for path in files}
    return [f"{path}:{bad[0]}: spatch can't parse this, {len(bad)} lines in all; define the "
            f"macros that it does not know in {MACROS.name}" for path, bad in lines.items() if bad]


def coccicheck(tree: Path, ours: Dict[str, Set[int]], folder: Path,
               jobs: int) -> Iterator[Result]:
    """Apply each of the kernel's rules to all of the kernel's C files that we have lines in.

    The rules know what the kernel's functions do; tools have others.
    """
    if not shutil.which("spatch"):
        yield Result("coccicheck", not_tried="there is no spatch")
        return
    try:
        spatch = _Spatch(tree, folder, jobs)
    except Failure as failure:
        yield Result("coccicheck", [str(failure)])
        return
    files = sorted(path for path in ours
                   if path.endswith(".c") and not path.startswith("tools/"))

    def check(name: str, found: Callable[[], List[str]]) -> Result:
        try:
            return Result(name, found())
        except Failure as failure:
            return Result(name, [str(failure)])

    yield check("what coccicheck sees", lambda: _not_seen(spatch, ours, files))
    for rule, reason in rules(tree, spatch.version).items():
        name = f"coccicheck, {rule.name}"
        yield (Result(name, not_tried=reason) if reason else
               check(name, lambda: complaints(spatch.apply(rule, files), ours, [_COCCI])))


def sphinx_complaints(said: str, ours: Dict[str, Set[int]],
                      new_files: Collection[str]) -> List[str]:
    """Return Sphinx's complaints about our lines, and about our documents as a whole."""
    whole = [f"{name}: {text}" for path, text in _SPHINX_FILE.findall(said)
             for name in new_files if path.endswith(name)]
    return complaints(said, ours, [_SPHINX]) + whole


def documentation(tree: Path, new_files: Collection[str], ours: Dict[str, Set[int]],
                  folder: Path, log: Path) -> Result:
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
    parts = sorted({document.split("/")[1] for document in documents})
    try:
        run_logged(f"Build the documentation of {', '.join(parts)}", [
            "make", "-C", str(tree), f"O={folder}", f"SPHINXDIRS={' '.join(parts)}", "htmldocs"],
            log)
    except Failure as failure:
        return Result(name, [str(failure)])
    return Result(name, sphinx_complaints(log.read_text(errors="replace"), ours, new_files)
                  + [f"{document} was not built" for document in documents
                     if not pages([document], folder)])


def pages(documents: Iterable[str], folder: Path) -> List[Path]:
    """Return the pages that documentation() has made of some documents."""
    return sorted(page for path in documents if path.startswith("Documentation/")
                  for page in folder.rglob(f"{Path(path).stem}.html")
                  if str(page.with_suffix("")).endswith(path[len("Documentation"):-len(".rst")]))


def run(tree: Path, new_files: Collection[str], ours: Dict[str, Set[int]], folder: Path,
        jobs: int) -> Iterator[Result]:
    """Run both checkers on a tree; ours are the lines of checkbuild.our_lines()."""
    yield documentation(tree, new_files, ours, folder / "documentation",
                        folder / "log/htmldocs.log")
    shutil.rmtree(folder / "documentation", ignore_errors=True)
    yield from coccicheck(tree, ours, folder / "coccicheck", jobs)
