# SPDX-License-Identifier: GPL-2.0-only
"""The command: python3 doctor [--perf PERF] [--json] [PID]."""

import argparse
import os
import sys
import types
from typing import Optional, Sequence

if not __package__:
    # Python was given this folder, not the package's name.  Don't let it look for modules in the
    # folder above: that may be /tmp, where anybody can leave some.
    package = types.ModuleType("doctor")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules["doctor"] = package

from doctor.report import as_json, as_text, examine
from doctor.system import System


def main(argv: Optional[Sequence[str]] = None, system: Optional[System] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="doctor", description="Say what works on this host, and for the guest of one VMM.",
        epilog="Exits with 0 if it can be recorded, else with 1.")
    parser.add_argument("--perf", default="perf", metavar="PERF", help="the perf to be used")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("pid", nargs="?", type=int, metavar="PID",
                        help="the process that runs the guest, e.g. QEMU")
    args = parser.parse_args(argv)
    if args.pid is not None and args.pid <= 0:
        parser.error("PID must be larger than 0")
    if sys.stderr.isatty():
        print("Looking at the host, and at the guest's memory ...", file=sys.stderr)
    try:
        report = examine(system or System(), args.perf, args.pid)
    except KeyboardInterrupt:
        return 130
    sys.stdout.write((as_json if args.json else as_text)(report))
    return 1 if any(check.blocks for check in report.checks) else 0


if __name__ == "__main__":
    sys.exit(main())
