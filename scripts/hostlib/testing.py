# SPDX-License-Identifier: GPL-2.0-only
"""The commands that test, and their reports."""

import dataclasses
import sys
import unittest
from pathlib import Path
from typing import Dict, List

from . import allselftests, baseline, bare, fuzz, intel, ktap, mutants
from . import distro, perftests, records, selftests, stock, unikernel, workflow
from .arch import ARCHS, X86
from .build import CONFIGS
from .emulated import Complaint, choose_accel
from .hosts import (accel_of, build_dir, built, fetched, host_dir, host_traits, linux, results_dir,
                    with_and_without)
from .options import GUESTS, Options, by_turns
from .patches import REPO
from .selftests import Counts
from .ui import Failure, check_root, claim, host_folder, say


# no5lvl: while Linux 7.3 boots, it forgets the CPU's features for a moment.  In an IRQ that
# comes just then, KASAN takes addresses of 5-level paging for wild ones.
DEBUG_PASSES = ("no5lvl", "no5lvl kvm_amd.npt=0")

# KVM with VHE, KVM without VHE, and KVM in protected mode.
ARM64_PASSES = ("", "kvm-arm.mode=nvhe", "kvm-arm.mode=protected")

# Protected mode is left out: it hides its guests.  A host whose PMIs are NMIs runs instead.
ARM64_DEBUG_PASSES = (*ARM64_PASSES[:2], "irqchip.gicv3_pseudo_nmi=1")

# Kernel arguments and tests; all tests if none is named.
INTEL_PASSES = (("", ""), ("kvm_intel.ept=0", ""),
                ("kvm_intel.unrestricted_guest=0",
                 "guest_callchain_test guest_callchain_modes_test"))

# Tests of what differs most from AMD: VMX's registers, modes, L2 and memslots, and how an NMI
# comes.
INTEL_QUICK = ("guest_callchain_test guest_callchain_modes_test guest_callchain_memory_test "
               "guest_read_test")


def selftests_results(options: Options) -> Path:
    """Return an empty folder for the results on this host.  Results on other hosts are kept; if
    only some tests are run, so are the results of all tests.
    """
    host = host_folder(options.vendor if options.arch == "x86" else options.arch,
                       Path(options.kconfig) if options.kconfig else None,
                       f"{options.baseline} {options.kargs}")
    return results_dir(("some-" if options.tests else "") + f"selftests-{host}".rstrip("-"))


def say_all(counts: Counts) -> int:
    """Print the counts and the remarks; return an exit status."""
    for remark in counts.remarks:
        say(remark)
    say(str(counts))
    return 1 if counts.failed else 0


def check_report(options: Options) -> None:
    """Raise Failure, before long work, if the results could not be written."""
    for file in (options.junit, options.json):
        if file and not Path(file).resolve().parent.is_dir():
            raise Failure(f"{file} can't be written, its folder is missing; make that first")


def report(options: Options, text: str, tree: Path) -> None:
    """Write KTAP in the formats that the options ask for."""
    if options.junit:
        Path(options.junit).write_text(ktap.junit(text, tree, "guest callchains"))
    if options.json:
        Path(options.json).write_text(ktap.kernelci(text, tree, options.arch))


def report_parts(options: Options, parts: Dict[str, Counts], said: Dict[str, str],
                 tree: Path) -> int:
    """Report groups of tests, with KTAP if a group has it; return an exit status."""
    counts = Counts()
    for part in parts.values():
        counts.add(part)
    report(options, ktap.join([
        ktap.Part(name, not part.failed, [str(part), *part.remarks], said.get(name, ""))
        for name, part in parts.items()]), tree)
    return say_all(counts)


def cmd_selftests(options: Options) -> int:
    using = accel_of(options)
    check_report(options)
    if options.all:
        return compare_all_selftests(options, using)
    build = built(options)
    results = selftests_results(options)
    if options.vendor == "intel":
        text = intel.run(build, results, options.kargs, options.tests)
        expected = selftests.expected_skips(using, f"intel {host_traits(options)}")
    else:
        text = selftests.run(build, using, results, options.kargs, options.tests)
        expected = selftests.expected_skips(using, host_traits(options))
    counts = selftests.count(text, build.tree.path, expected)
    report(options, selftests.fail_unexpected(text, expected), build.tree.path)
    return say_all(counts)


def cmd_test_debug(options: Options) -> int:
    """Test with nested paging, then with shadow paging; or with one of them each day.

    On arm64, test with VHE, without VHE, and with pseudo-NMIs.
    """
    x86 = options.arch == "x86"
    config = CONFIGS / ("debug.config" if x86 else f"debug-{options.arch}.config")
    passes = [f"{args} {options.kargs}".strip() for args in
              (DEBUG_PASSES if x86 else ARM64_DEBUG_PASSES)]
    chosen = by_turns(passes, options.today) if options.today else passes
    left_out = [args or "no arguments" for args in passes if args not in chosen]
    if left_out:
        say(f"Left out today: {', '.join(left_out)}")
    failed = 0
    for args in chosen:
        say(f"The debug host, with {args or 'no arguments'}")
        failed |= cmd_selftests(dataclasses.replace(options, kargs=args,
                                                    kconfig=str(config)))
    return failed


def intel_passes(options: Options) -> List[Options]:
    """Return the passes: with EPT, without EPT, and without unrestricted guest.

    There is a single pass with QUICK=, of fewer tests, or if the user sets options of kvm_intel.
    """
    if options.quick and options.tests:
        raise Failure("QUICK= and TESTS= both choose tests; use one of them")
    once = options.quick or "kvm_intel." in options.kargs
    return [dataclasses.replace(
        options, vendor="intel", kargs=f"{args} {options.kargs}".strip(),
        tests=INTEL_QUICK if options.quick else options.tests or tests)
        for args, tests in (INTEL_PASSES[:1] if once else INTEL_PASSES)]


def cmd_test_intel(options: Options) -> int:
    failed = 0
    for one in intel_passes(options):
        say(f"The Intel host, with {one.kargs or 'no arguments'}"
            + (f"; of the tests, {one.tests}" if one.tests else ""))
        try:
            failed |= cmd_selftests(one)
        except Complaint as complaint:
            say(f"{complaint}.")
            failed = 1
    return failed


def compare_all_selftests(options: Options, using: str) -> int:
    """Compare Linux's own KVM selftests with our patches and without."""
    if options.vendor == "intel" or options.arch != "x86":
        other = "VENDOR=intel" if options.vendor == "intel" else f"ARCH={options.arch}"
        raise Failure(f"ALL=1 compares kernels on an AMD host; omit {other}")
    if options.junit or options.json:
        raise Failure("ALL=1 compares two runs, and has no results for JUNIT= or JSON=")
    same = allselftests.compare(*with_and_without(options), using, results_dir("all-selftests"),
                                options.kargs, options.tests)
    return 0 if same else 1


def cmd_test_abi(options: Options) -> int:
    using = choose_accel(options.accel)
    patched, unpatched = with_and_without(options)
    patched.all()
    unpatched.host_and_perf()
    return 0 if records.compare(patched, unpatched, using, results_dir("records")) else 1


def cmd_test_baseline(options: Options) -> int:
    using = choose_accel(options.accel)
    build = built(dataclasses.replace(options, baseline="v3"))
    return 0 if baseline.check(build, using, results_dir("baseline-v3")) else 1


def cmd_mutants(options: Options) -> int:
    arch = ARCHS[options.arch]
    every = [mutant for mutant in mutants.parse_all() if mutant.arch == arch.name]
    chosen = mutants.choose(every, options.mutants, options.today)
    using = accel_of(options)
    # A run of a few mutants must not overwrite the table of all, nor that of another architecture.
    name = ("" if len(chosen) == len(every) else "some-") + "mutants"
    results = results_dir(name if arch is X86 else f"{name}-{arch.name}")
    return 0 if mutants.run(host_dir(options), linux(options), using, results, every, chosen,
                            options.jobs, arch) else 1


def unit_tests() -> Counts:
    suite = unittest.defaultTestLoader.discover(str(REPO / "scripts" / "tests"))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1, buffer=True).run(suite)
    bad = [*result.failures, *result.errors]
    return Counts(result.testsRun - len(bad) - len(result.skipped), len(bad), len(result.skipped),
                  [f"failed: {test.id()}" for test, _ in bad])


def cmd_test(options: Options) -> int:
    """Run unit tests, perf's tests, selftests in each mode of KVM, and demos."""
    from . import demo

    check_report(options)
    arch, using = ARCHS[options.arch], accel_of(options)
    x86 = arch is X86
    guests = GUESTS if x86 else ("debian",)
    build = fetched(options)
    for whose in guests:
        demo.fetch(whose, arch)
    parts: Dict[str, Counts] = {"unit tests": unit_tests()}
    said: Dict[str, str] = {}
    build.all()
    if x86:
        parts["perf test"] = perftests.run(build, results_dir("perf-test"))
    else:
        parts["perf test"] = perftests.run_there(build, using, results_dir("perf-test-arm64"))
    for args in ("",) if x86 else ARM64_PASSES:
        one = dataclasses.replace(options, kargs=f"{args} {options.kargs}".strip())
        name = f"selftests {args}".strip()
        text = selftests.run(build, using, selftests_results(one), one.kargs)
        expected = selftests.expected_skips(using, host_traits(one))
        parts[name] = selftests.count(text, build.tree.path, expected)
        said[name] = selftests.fail_unexpected(text, expected)
    for whose in guests:
        folder = results_dir(f"demo-{whose}" if x86 else f"demo-{whose}-{arch.name}")
        profile = demo.run(build, using, folder, whose, options.kargs)
        parts[f"demo {whose}"] = demo.check(profile)
        if not x86:
            parts["demo, read on this machine"] = demo.read_here(build.perf_here(), folder)
            parts["demo, programs"] = demo.judge_programs(build.perf_here(), folder)
    return report_parts(options, parts, said, build.tree.path)


def cmd_fuzz(options: Options) -> int:
    limits = fuzz.Limits.parse(options.fuzz_seconds, options.fuzz_cases, options.seed)
    using = choose_accel(options.accel)
    build = built(options)
    folder = results_dir("fuzz")
    if not fuzz.user_space(build, build_dir(options) / "fuzz", folder, limits):
        return 1
    return 0 if fuzz.in_kernel(build, using, folder, limits, options.kargs) else 1


def cmd_test_stock(options: Options) -> int:
    return say_all(stock.run(built(options), choose_accel(options.accel), results_dir("stock"),
                             options.kargs))


def cmd_test_distro(options: Options) -> int:
    check_root("test-distro")
    build = built(options)
    return say_all(distro.run(build, choose_accel(options.accel), build_dir(options) / "distro",
                              results_dir("distro"), options.kargs))


def cmd_test_unikernel(options: Options) -> int:
    return say_all(unikernel.run(built(options), choose_accel(options.accel),
                                 results_dir("unikernel"), options.kargs))


def cmd_test_workflow(options: Options) -> int:
    return say_all(workflow.run(built(options), choose_accel(options.accel),
                                results_dir("workflow"), options.kargs))


def cmd_test_bare(options: Options) -> int:
    check_root("test-bare")
    suite = options.suite or bare.SUITES[0]
    folder = build_dir(options) / f"bare-{suite}"
    claim(folder)
    return say_all(bare.run(suite, folder, results_dir(f"bare-{suite}")))
