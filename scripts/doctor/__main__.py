# SPDX-License-Identifier: GPL-2.0-only
"""The command: python3 doctor [--perf PERF] [--json] [PID]."""

import argparse
import os
import sys
from typing import Optional, Sequence

# Python was given this folder, not its name as a package.
if not __package__:
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import doctor
from doctor.report import as_json, as_text, examine
from doctor.system import System


def main(argv: Optional[Sequence[str]] = None, system: Optional[System] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="doctor", description=(doctor.__doc__ or "").splitlines()[0],
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
