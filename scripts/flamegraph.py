#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Draw a flame graph of guests, as an SVG, from what perf script prints.

perf script must print which samples hit a guest, and where their functions lie:

    perf script -i perf.data.guest -F comm,pid,tid,misc,ip,sym,dso > samples.txt
    scripts/flamegraph.py samples.txt -o guest.svg
    scripts/flamegraph.py samples.txt --diff older.txt -o change.svg
    scripts/flamegraph.py samples.txt --joined -o host-and-guest.svg
    perf script -F +pid,+misc | scripts/flamegraph.py - -o guest.pb.gz

What perf script prints can also be opened in speedscope and in Firefox Profiler.
"""

import argparse
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import List, Optional, Tuple

sys.dont_write_bytecode = True
from hostlib import flamegraph, joined, pprof, stacks  # noqa: E402
from hostlib.ui import Failure, say  # noqa: E402

_PPROF = ".pb.gz"
_SVG = ".svg"


def _read(name: str) -> List[stacks.Sample]:
    """Return the samples that have callchains; fail if none says whether it hit a guest."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise Failure(f"{name} can't be read ({error.strerror}); name a file with what perf script "
                      "printed, or - for standard input") from None
    samples = [sample for sample in stacks.read_bytes(data) if sample.functions]
    if not any(sample.mode for sample in samples):
        raise Failure(f"{name} does not say which samples hit a guest, or has no callchains; print "
                      "it by perf script -F comm,pid,tid,misc,ip,sym,dso")
    return samples


def _fold(name: str, join: bool) -> "Counter[Tuple[stacks.Frame, ...]]":
    samples = _read(name)
    if join:
        return joined.fold(samples)
    folded = stacks.with_tasks(sample for sample in samples if sample.is_guest)
    if not folded:
        raise Failure(f"No sample of {name} hits a guest; record with perf kvm --guest record -g, "
                      "and tell perf script of guests if it can't find their symbols: "
                      "--guestkallsyms=/dev/null will do")
    return folded


def _draw(options: argparse.Namespace) -> None:
    out = Path(options.output)
    if not options.output.endswith((_PPROF, _SVG)):
        raise Failure(f"{out} is neither a picture nor a profile; end its name in {_SVG} or "
                      f"{_PPROF}")
    if options.diff and options.output.endswith(_PPROF):
        raise Failure("A profile for pprof can't hold a difference; write two, and compare "
                      "them with pprof")
    profiles = [_fold(name, options.joined) for name in (options.samples, options.diff) if name]
    count = sum(profiles[0].values())
    try:
        if options.output.endswith(_PPROF):
            pprof.write(profiles[0], out)
        else:
            flamegraph.write(profiles, _title(options, count), out)
    except OSError as error:
        raise Failure(f"{error.filename or out} can't be written ({error.strerror}); name another "
                      "file by -o") from None
    say(f"{out}: {count} samples")


def _title(options: argparse.Namespace, count: int) -> str:
    what = "Host and guests" if options.joined else "Guests"
    since = f", compared with {Path(options.diff).name}" if options.diff else ""
    return f"{what}, sampled from the host: {count} samples{since}"


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", metavar="SAMPLES",
                        help="what perf script printed; - for standard input")
    parser.add_argument("-o", "--output", required=True, metavar="FILE",
                        help=f"a picture, FILE{_SVG}, or a profile for pprof, FILE{_PPROF}")
    parser.add_argument("--diff", metavar="OLD",
                        help="color by what has changed since another text")
    parser.add_argument("--joined", action="store_true",
                        help="show the host's samples too: VMM, KVM and guest in one picture")
    try:
        _draw(parser.parse_args(arguments))
        return 0
    except Failure as failure:
        say(f"flamegraph: {failure}.")
    except KeyboardInterrupt:
        return 130
    return 1


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
