#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""The patched host: fetch, assemble, build, boot, test and show it.

Called by the Makefile, which hands over its variables in the environment.
"""

import argparse
import datetime
import errno
import os
import shutil
import signal
import sys
import unittest
from pathlib import Path
from typing import Tuple

sys.dont_write_bytecode = True
from hostlib import allselftests, baseline, bench, benchreport, demo, fuzz, gate  # noqa: E402
from hostlib import hosttable, intel, mutants, objectcode, perftests, records  # noqa: E402
from hostlib import selftests, series, source, stock, unikernel  # noqa: E402
from hostlib.build import CONFIGS, Build  # noqa: E402
from hostlib.machine import Complaint, Machine, choose_accel  # noqa: E402
from hostlib.tree import BASELINE_V3, REPO  # noqa: E402
from hostlib.ui import Failure, claim, end_as_interrupted, host_folder, say  # noqa: E402


# no5lvl: Linux 7.3 forgets the CPU's features for a moment while it boots; KASAN takes
# addresses of 5-level paging for wild ones in an IRQ that comes just then.
DEBUG_PASSES = ("no5lvl", "no5lvl kvm_amd.npt=0")

# Arguments and tests; all tests if none is named.
INTEL_PASSES = (("", ""), ("kvm_intel.ept=0", ""),
                ("kvm_intel.unrestricted_guest=0",
                 "guest_callchain_test guest_callchain_modes_test"))

# What differs from AMD: VMX's registers, modes, L2 and memslots, and how an NMI comes.
INTEL_QUICK = "guest_callchain_test guest_callchain_modes_test guest_callchain_memory_test"


def build_dir() -> Path:
    folder = Path(os.environ.get("BUILD") or REPO / "build").resolve()
    # Neither the kernel's build system nor QEMU's options can quote them.
    if any(character in f"{folder}{REPO}" for character in " ,:\t\n"):
        raise Failure(f"No name on the way to {folder} or {REPO} may have a space, comma or "
                      "colon; use other folders")
    return folder


def results_dir(name: str) -> Path:
    folder = REPO / "results" / "latest" / name
    claim(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def accel() -> str:
    return choose_accel(os.environ.get("ACCEL") or "auto")


def vendor() -> str:
    """Whose CPU the host has: QEMU emulates AMD's, Bochs Intel's."""
    name = os.environ.get("VENDOR") or "amd"
    if name not in ("amd", "intel"):
        raise Failure(f"VENDOR={name} is not known; use amd or intel")
    return name


def demo_guest() -> str:
    """Whose kernel the demo's guest runs; Bochs would take an hour for Debian's."""
    whose = os.environ.get("GUEST") or ("own" if vendor() == "intel" else "debian")
    if whose not in demo.GUESTS:
        raise Failure(f"GUEST={whose} is not known; use debian or own")
    if (whose, vendor()) == ("debian", "intel"):
        raise Failure("The Intel host is too slow for Debian's kernel; use GUEST=own with it")
    return whose


def kernel_args() -> str:
    return os.environ.get("KARGS") or ""


def host_traits() -> str:
    """What sets this host apart, in the words of expected-skips.txt."""
    return f"{kernel_args()} {Path(os.environ.get('KCONFIG') or '').stem}"


def built() -> Build:
    """The host, built if that is necessary."""
    extra = os.environ.get("KCONFIG")
    if extra and not Path(extra).is_file():
        raise Failure(f"KCONFIG={extra} is no file; name a fragment of a kernel's configuration")
    folder = build_dir()
    base = os.environ.get("BASELINE")
    if base:
        if base != "v3":
            raise Failure(f"BASELINE={base} is not known; there is only v3")
        # A tree of its own: one that changes back and forth is compiled each time.
        folder /= "baseline-v3"
    claim(folder)
    build = Build(folder, source.find(os.environ.get("KERNEL_SRC")),
                  Path(extra) if extra else None, BASELINE_V3 if base else None)
    build.all()
    return build


def cmd_build() -> int:
    build = built()
    say(f"The tree is in {build.tree.path}, the kernel in {build.bzimage}, perf in {build.perf}")
    return 0


def selftests_results(some: bool = False) -> Path:
    """A folder for the results on this host; those on other hosts are kept, and those of all
    tests when only some are run.
    """
    config = os.environ.get("KCONFIG")
    host = host_folder(vendor(), Path(config) if config else None,
                       f"{os.environ.get('BASELINE') or ''} {kernel_args()}")
    return results_dir(("some-" if some else "") + f"selftests-{host}".rstrip("-"))


def cmd_selftests() -> int:
    using = "bochs" if vendor() == "intel" else accel()
    if os.environ.get("ALL"):
        return compare_all_selftests(using)
    build = built()
    only = os.environ.get("TESTS") or ""
    if vendor() == "intel":
        ktap = intel.run(build, selftests_results(bool(only)), kernel_args(), only)
        expected = selftests.expected_skips(using, f"intel {host_traits()}")
    else:
        ktap = selftests.run(build, using, selftests_results(bool(only)), kernel_args(), only)
        expected = selftests.expected_skips(using, host_traits())
    counts = selftests.count(ktap, build.tree.path, expected)
    for remark in counts.remarks:
        say(remark)
    say(str(counts))
    return 1 if counts.failed else 0


def cmd_test_debug() -> int:
    """With nested paging, then with shadow paging; with TODAY set, one of these each day."""
    given = kernel_args()
    passes = [f"{args} {given}".strip() for args in DEBUG_PASSES]
    if os.environ.get("TODAY"):
        chosen = passes[datetime.date.today().toordinal() % len(passes)]
        say(f"Today's pass has {chosen}; left out: "
            + ", ".join(args for args in passes if args != chosen))
        passes = [chosen]
    os.environ["KCONFIG"] = str(CONFIGS / "debug.config")
    failed = 0
    for args in passes:
        os.environ["KARGS"] = args
        say(f"The debug host, with {args}")
        failed |= cmd_selftests()
    return failed


def cmd_test_intel() -> int:
    """On EPT, without EPT, and without unrestricted guest; with QUICK, a part once."""
    given, only = kernel_args().strip(), os.environ.get("TESTS") or ""
    os.environ["VENDOR"] = "intel"
    quick = bool(os.environ.get("QUICK"))
    if quick and only:
        raise Failure("QUICK= and TESTS= both choose tests; use one of them")
    if os.environ.get("ALL"):
        raise Failure("ALL=1 is for make selftests, on an AMD host")
    failed = 0
    once = quick or "kvm_intel." in given
    for args, tests in (INTEL_PASSES[:1] if once else INTEL_PASSES):
        os.environ["KARGS"] = f"{args} {given}".strip()
        os.environ["TESTS"] = INTEL_QUICK if quick else only or tests
        say(f"The Intel host, with {os.environ['KARGS'] or 'no arguments'}"
            + (f"; of the tests, {os.environ['TESTS']}" if os.environ["TESTS"] else ""))
        try:
            failed |= cmd_selftests()
        except Complaint as complaint:
            say(f"{complaint}.")
            failed = 1
    return failed


def cmd_host_table() -> int:
    page = REPO / "results" / "hosts.md"
    build = Build(build_dir(), source.find(os.environ.get("KERNEL_SRC")), None)
    build.assemble()
    hosttable.write(REPO / "results" / "latest", build.tree.path, page)
    say(f"The table is in {page}")
    return 0


def compare_all_selftests(using: str) -> int:
    """Linux's own KVM selftests, with our patches and without."""
    same = allselftests.compare(*with_and_without(), using, results_dir("all-selftests"),
                                kernel_args(), os.environ.get("TESTS") or "")
    return 0 if same else 1


def with_and_without() -> Tuple[Build, Build]:
    """A host with our patches and one without, neither built yet."""
    folder = build_dir()
    claim(folder)
    linux = source.find(os.environ.get("KERNEL_SRC"))
    return (Build(folder, linux, None),
            Build(folder / "unpatched", linux, CONFIGS / "no-callchain.config", patched=False))


def cmd_records() -> int:
    using = accel()
    patched, unpatched = with_and_without()
    patched.all()
    unpatched.host_and_perf()
    return 0 if records.compare(patched, unpatched, using, results_dir("records")) else 1


def cmd_test_baseline() -> int:
    os.environ["BASELINE"] = "v3"
    using = accel()
    return 0 if baseline.check(built(), using, results_dir("baseline-v3")) else 1


def cmd_mutants() -> int:
    for variable in ("KCONFIG", "KARGS", "BASELINE"):
        if os.environ.get(variable):
            raise Failure(f"Each mutant names its own host; leave {variable} away")
    every = mutants.parse_all()
    chosen = mutants.choose(every, os.environ.get("MUTANTS") or "", os.environ.get("TODAY") or "")
    using = accel()
    claim(build_dir())
    # A few don't wipe out the table of all.
    results = results_dir("mutants" if len(chosen) == len(every) else "some-mutants")
    return 0 if mutants.run(build_dir(), source.find(os.environ.get("KERNEL_SRC")), using,
                            results, every, chosen) else 1


def cmd_test() -> int:
    counts = selftests.Counts()
    suite = unittest.defaultTestLoader.discover(str(REPO / "scripts" / "tests"))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1, buffer=True).run(suite)
    counts.failed += len(result.failures) + len(result.errors)
    counts.skipped += len(result.skipped)
    counts.passed += result.testsRun - counts.failed - counts.skipped

    using = accel()
    for whose in demo.GUESTS:
        demo.fetch(whose)
    build = built()
    complaints = objectcode.check(build.kernel)
    counts.add(selftests.Counts(int(not complaints), int(bool(complaints)), remarks=[
        f"failed: no mask before a load of a guest's word: {text}" for text in complaints]))
    counts.add(perftests.run(build, results_dir("perf-test")))
    ktap = selftests.run(build, using, selftests_results(), kernel_args())
    counts.add(selftests.count(ktap, build.tree.path,
                               selftests.expected_skips(using, host_traits())))
    for whose in demo.GUESTS:
        counts.add(demo.check(demo.run(build, using, results_dir(f"demo-{whose}"), whose,
                                       kernel_args())))
    for remark in counts.remarks:
        say(remark)
    say(str(counts))
    return 1 if counts.failed else 0


def cmd_fuzz() -> int:
    limits = fuzz.Limits.parse(os.environ.get("FUZZ_SECONDS") or "60",
                               os.environ.get("FUZZ_CASES") or "0",
                               os.environ.get("SEED") or "1")
    using = accel()
    build = built()
    folder = results_dir("fuzz")
    if not fuzz.user_space(build, build_dir() / "fuzz", folder, limits):
        return 1
    return 0 if fuzz.in_kernel(build, using, folder, limits, kernel_args()) else 1


def cmd_bench() -> int:
    os.environ["BASELINE"] = "v3"
    quick = bool(os.environ.get("QUICK"))
    using = accel()
    build = built()
    folder = results_dir("bench")
    results = bench.measure(build, using, folder, bench.plan(quick), kernel_args(),
                            benchreport.whole_commands(quick))
    bench.write(results, folder / "bench.json")
    benchreport.write(results, folder)
    return 0


def cmd_gate() -> int:
    build = built()
    folder = results_dir("gate")
    results = bench.measure(build, accel(), folder, bench.gate_plan(), kernel_args())
    bench.write(results, folder / "gate.json")
    return 0 if gate.judge(results, folder, build.tree.path) else 1


def cmd_demo() -> int:
    using, whose = accel(), demo_guest()
    demo.fetch(whose)
    demo.show(demo.run(built(), using, results_dir("demo"), whose, kernel_args(), vendor()))
    return 0


def cmd_test_stock() -> int:
    """Debian's kernels as guests: at once and deferred, unwound by their ORC tables."""
    counts = stock.run(built(), accel(), results_dir("stock"), kernel_args())
    for remark in counts.remarks:
        say(remark)
    say(str(counts))
    return 1 if counts.failed else 0


def cmd_test_unikernel() -> int:
    """A guest that is no Linux, whose call paths and their shares are known."""
    counts = unikernel.run(built(), accel(), results_dir("unikernel"), kernel_args())
    for remark in counts.remarks:
        say(remark)
    say(str(counts))
    return 1 if counts.failed else 0


def cmd_shell() -> int:
    if not sys.stdin.isatty():
        raise Failure("make shell needs a terminal; for a script, use make test")
    if vendor() == "intel":
        intel.shell(built(), results_dir("shell"), kernel_args())
    else:
        Machine(built(), accel(), kernel_args()).shell(results_dir("shell"))
    return 0


def cmd_series() -> int:
    folder = results_dir("series")
    claim(build_dir())
    series.write(source.find(os.environ.get("KERNEL_SRC")), build_dir(), folder)
    say(f"git am {folder}/*.patch")
    return 0


def cmd_clean() -> int:
    folder = build_dir()
    if folder.exists():
        if not (folder / "pristine").exists() and any(folder.iterdir()):
            raise Failure(f"{folder} holds no build of ours; remove it by hand if you mean it")
        claim(folder)
    for folder in (folder, REPO / "results" / "latest"):
        shutil.rmtree(folder, ignore_errors=True)
    return 0


COMMANDS = {"build": cmd_build, "selftests": cmd_selftests, "test": cmd_test,
            "test-debug": cmd_test_debug, "test-intel": cmd_test_intel,
            "host-table": cmd_host_table,
            "test-baseline": cmd_test_baseline, "mutants": cmd_mutants, "records": cmd_records,
            "fuzz": cmd_fuzz, "bench": cmd_bench, "gate": cmd_gate, "demo": cmd_demo,
            "test-stock": cmd_test_stock, "test-unikernel": cmd_test_unikernel,
            "shell": cmd_shell, "series": cmd_series, "clean": cmd_clean}


# Those that heed VENDOR=intel.
INTEL_COMMANDS = ("build", "clean", "demo", "selftests", "shell", "test-intel")


def check_vendor(command: str) -> None:
    if vendor() == "intel" and (command not in INTEL_COMMANDS or os.environ.get("ALL")):
        raise Failure(f"VENDOR=intel works with make {', '.join(INTEL_COMMANDS)}, without ALL=1; "
                      "leave it away")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=sorted(COMMANDS))
    command = parser.parse_args().command
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, end_as_interrupted)
    try:
        check_vendor(command)
        return COMMANDS[command]()
    except Failure as failure:
        say(f"{command}: {failure}.")
    except KeyboardInterrupt:
        say(f"\n{command}: interrupted; the same command goes on from what is finished.")
        return 130
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EACCES):
            raise
        say(f"{command}: {error.strerror}: {error.filename}; mend that, or choose another "
            "folder with BUILD=DIR, and run the same command again.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
