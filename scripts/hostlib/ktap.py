# SPDX-License-Identifier: GPL-2.0-only
"""Read KTAP, and write it as JUnit's XML or KernelCI's JSON, by the kernel's own modules."""

import importlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, List


def _kunit(tree: Path, name: str) -> Any:
    """A module of the kernel's tools/testing/kunit."""
    folder = str(tree / "tools/testing/kunit")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def parse(text: str, tree: Path, name: str = "") -> Any:
    """Parse KTAP with kunit_parser, and return a test that contains its subtests.

    kselftest marks nested lines with "# ", the parser expects KTAP's indentation.
    """
    lines = [re.sub(r"^( *)# (?=(?:not )?ok \d|K?TAP version \d|\d+\.\.\d|# )", r"\1    ", line)
             for line in text.splitlines()]
    printer = _kunit(tree, "kunit_printer").null_printer
    test = _kunit(tree, "kunit_parser").parse_run_tests(lines, printer)
    if name:
        test.name = name
    return test


def junit(text: str, tree: Path, name: str) -> str:
    """JUnit's XML."""
    return str(_kunit(tree, "kunit_junit").get_junit_result(parse(text, tree, name))) + "\n"


def kernelci(text: str, tree: Path, arch: str = "x86") -> str:
    """JSON as "kunit.py --json" prints it."""
    module = _kunit(tree, "kunit_json")
    # As kunit.py calls it.
    machine = "x86_64" if arch == "x86" else arch
    metadata = module.Metadata(arch=machine, build_dir=str(tree.parent))
    return str(module.get_json_result(parse(text, tree), metadata)) + "\n"


@dataclass
class Part:
    """A group of tests: whether it has passed, remarks to print, and its own KTAP if any."""
    name: str
    passed: bool
    remarks: List[str] = field(default_factory=list)
    text: str = ""


def join(parts: List[Part]) -> str:
    """The KTAP of several groups of tests."""
    lines = ["KTAP version 1", f"1..{len(parts)}"]
    for number, part in enumerate(parts, 1):
        lines += [f"    {line}" for line in part.text.splitlines()]
        lines += [f"# {line}" for remark in part.remarks for line in remark.splitlines()]
        lines.append(f"{'ok' if part.passed else 'not ok'} {number} {part.name}")
    return "\n".join(lines) + "\n"
