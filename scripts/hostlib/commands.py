# SPDX-License-Identifier: GPL-2.0-only
"""The commands of host.py.

Only the commands that draw import the modules that draw: matplotlib takes long to load, and
the other commands don't need it.
"""

import dataclasses
import datetime
import shutil
import sys
import unittest
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from . import allselftests, arm64, bare, baseline, bench, branch, check, checkbuild, checksource
from . import fuzz, gate, hosttable, installed, intel, ktap, mailed, mutants, objectcode, package
from . import perftests, records, selftests, series, source, stock, unikernel, workflow
from . import results as result_folders
from .arch import ARCHS, ARM64, X86
from .build import CONFIGS, Build
from .emulated import Complaint, EmulatedHost, choose_accel
from .options import GUESTS, Command, Options
from .patches import REPO
from .selftests import Counts
from .tree import Tree
from .ui import Failure, claim, host_folder, say


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
               "memslots_debugfs_test")


def build_dir(options: Options) -> Path:
    folder = Path(options.build or REPO / "build").resolve()
    # Neither the kernel's build system nor QEMU's options can quote these characters.
    if any(character in f"{folder}{REPO}" for character in " ,:\t\n"):
        raise Failure(f"The paths {folder} and {REPO} must not contain a space, comma or "
                      "colon; use other folders")
    return folder


def arch_dir(options: Options) -> Path:
    """Return the folder for builds for the host's architecture."""
    folder = build_dir(options)
    return folder / options.arch if ARCHS[options.arch] is ARM64 else folder


def results_dir(name: str) -> Path:
    return result_folders.begin(REPO / "results" / "latest" / name)


def linux(options: Options) -> source.Source:
    return source.find(options.kernel_src, options.kernel_tarball, options.kernel_sha256)


def demo_guest(options: Options) -> str:
    """Return whose kernel the demo's guest runs; Debian's would take an hour in Bochs."""
    whose = options.guest or ("own" if options.vendor == "intel" else "debian")
    if (whose, options.vendor) == ("debian", "intel"):
        raise Failure("The Intel host is too slow for Debian's kernel; use GUEST=own with it")
    if (whose, options.arch) == ("own", "arm64"):
        raise Failure("The guest of an arm64 host is Debian's kernel; leave out GUEST=own")
    return whose


def check_arch(options: Options) -> None:
    """Raise Failure if an option of x86 alone is given for another architecture."""
    for variable, given in (("VENDOR", options.vendor == "intel"), ("BASELINE", options.baseline)):
        if given and options.arch != "x86":
            raise Failure(f"{variable}= is for ARCH=x86; omit it or ARCH={options.arch}")


def accel_of(options: Options) -> str:
    """Return the emulator or accelerator that runs the host."""
    check_arch(options)
    if options.arch != "x86":
        return arm64.choose_accel(options.accel)
    return "bochs" if options.vendor == "intel" else choose_accel(options.accel)


def host_traits(options: Options) -> str:
    """Describe this host in the words of expected-skips.txt, except for "intel"."""
    return f"{options.arch} {options.kargs} {Path(options.kconfig).stem}"


def extra_config(options: Options) -> Optional[Path]:
    """The user's fragment of a configuration, if there is one."""
    extra = Path(options.kconfig) if options.kconfig else None
    if extra and not extra.is_file():
        raise Failure(f"{extra} is no file; name a fragment of a kernel's configuration")
    return extra


def host_dir(options: Options) -> Path:
    """The folder that the host is built in."""
    folder = build_dir(options)
    if options.baseline:
        # Use a tree of its own: if one tree changed back and forth, it would be compiled each time.
        folder /= "baseline-v3"
    if options.arch == ARM64.name:
        folder /= options.arch
    claim(folder)
    return folder


def built(options: Options) -> Build:
    """Return the host; build it first if that is necessary."""
    extra = extra_config(options)
    folder = host_dir(options)
    arch = ARCHS[options.arch]
    build = Build(folder, linux(options), extra, bool(options.baseline),
                  jobs=options.jobs, arch=arch)
    build.all()
    return build


def cmd_build(options: Options) -> int:
    check_arch(options)
    build = built(options)
    say(f"The tree is in {build.tree.path}, the kernel in {build.image}, perf in {build.perf}")
    return 0


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
    if options.json == "-":
        # This is standard output; sys.stdout is standard error then, see host.py.
        assert sys.__stdout__
        sys.__stdout__.write(ktap.kernelci(text, tree, options.arch))
    elif options.json:
        Path(options.json).write_text(ktap.kernelci(text, tree, options.arch))


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
    if options.one_today:
        chosen = passes[datetime.date.today().toordinal() % len(passes)]
        say(f"Today's pass has {chosen or 'no arguments'}; left out: "
            + ", ".join(args or "no arguments" for args in passes if args != chosen))
        passes = [chosen]
    failed = 0
    for args in passes:
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


def cmd_host_table(options: Options) -> int:
    page = REPO / "results" / "hosts.md"
    build = Build(build_dir(options), linux(options), None)
    build.assemble()
    hosttable.write(REPO / "results" / "latest", build.tree.path, page)
    say(f"The table is in {page}")
    return 0


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


def with_and_without(options: Options) -> Tuple[Build, Build]:
    """Return a host with our patches and one without; neither is built yet."""
    folder = arch_dir(options)
    claim(folder)
    kernel, arch = linux(options), ARCHS[options.arch]
    return (Build(folder, kernel, None, jobs=options.jobs, arch=arch),
            Build(folder / "unpatched", kernel, CONFIGS / "no-callchain.config", patched=False,
                  jobs=options.jobs, arch=arch))


def cmd_records(options: Options) -> int:
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


def object_code(build: Build) -> Counts:
    complaints = objectcode.check(build.kernel)
    return Counts(int(not complaints), int(bool(complaints)), remarks=[
        f"failed: no mask before a load of a guest's word: {text}" for text in complaints])


def test_arm64(options: Options) -> int:
    """Run the tests for arm64: unit tests, perf's, selftests in each mode of KVM, and a demo."""
    from . import demo

    check_report(options)
    using = accel_of(options)
    demo.fetch("debian", ARM64)
    parts: Dict[str, Counts] = {"unit tests": unit_tests()}
    said: Dict[str, str] = {}
    build = built(options)
    perf_here = build.perf_here()
    parts["perf test"] = perftests.run_there(build, using, results_dir("perf-test-arm64"))
    for args in ARM64_PASSES:
        one = dataclasses.replace(options, kargs=f"{args} {options.kargs}".strip())
        name = f"selftests {args}".strip()
        text = selftests.run(build, using, selftests_results(one), one.kargs)
        expected = selftests.expected_skips(using, host_traits(one))
        parts[name] = selftests.count(text, build.tree.path, expected)
        said[name] = selftests.fail_unexpected(text, expected)
    profile = demo.run(build, using, results_dir("demo-debian-arm64"), "debian", options.kargs)
    parts["demo"] = demo.check(profile, ARM64)
    parts["demo, read on this machine"] = demo.read_here(perf_here, profile.folder)
    return report_parts(options, parts, said, build.tree.path)


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


def cmd_test(options: Options) -> int:
    from . import demo

    if options.arch != "x86":
        return test_arm64(options)
    check_report(options)
    parts: Dict[str, Counts] = {"unit tests": unit_tests()}
    using = choose_accel(options.accel)
    for whose in GUESTS:
        demo.fetch(whose, X86)
    build = built(options)
    tree = build.tree.path
    parts["object code"] = object_code(build)
    parts["perf test"] = perftests.run(build, results_dir("perf-test"))
    text = selftests.run(build, using, selftests_results(options), options.kargs)
    expected = selftests.expected_skips(using, host_traits(options))
    parts["selftests"] = selftests.count(text, tree, expected)
    for whose in GUESTS:
        parts[f"demo {whose}"] = demo.check(demo.run(
            build, using, results_dir(f"demo-{whose}"), whose, options.kargs), X86)
    return report_parts(options, parts,
                        {"selftests": selftests.fail_unexpected(text, expected)}, tree)


def cmd_fuzz(options: Options) -> int:
    limits = fuzz.Limits.parse(options.fuzz_seconds, options.fuzz_cases, options.seed)
    using = choose_accel(options.accel)
    build = built(options)
    folder = results_dir("fuzz")
    if not fuzz.user_space(build, build_dir(options) / "fuzz", folder, limits):
        return 1
    return 0 if fuzz.in_kernel(build, using, folder, limits, options.kargs) else 1


def bench_peers(options: Options) -> Dict[str, Build]:
    """Build and return the kernels for the benchmark without guest callchains, by name."""
    patched, unpatched = with_and_without(options)
    patched.all()
    without = Build(patched.folder, linux(options), CONFIGS / "no-callchain.config",
                    jobs=options.jobs, arch=patched.arch)
    for build in (unpatched, without):
        build.root = patched.root
        build.host_and_bench(patched.selftests)
    return {"unpatched": unpatched, "option off": without, "option on": patched}


def bench_arm64(options: Options) -> int:
    from . import benchreport

    using = accel_of(options)
    build = built(options)
    folder = results_dir("bench-arm64")
    results = bench.measure(build, using, folder, bench.arm64_plan(options.quick), options.kargs)
    bench.write(results, folder / "bench.json")
    if not options.quick:
        results.peers = bench.measure_peers(bench_peers(options), using, folder, options.kargs)
    bench.write(results, folder / "bench.json")
    benchreport.write_arm64(results, folder)
    return 0


def cmd_bench(options: Options) -> int:
    from . import benchreport

    if options.arch != "x86":
        return bench_arm64(options)
    using = choose_accel(options.accel)
    build = built(dataclasses.replace(options, baseline="v3"))
    folder = results_dir("bench")
    results = bench.measure(build, using, folder, bench.plan(options.quick, using == "kvm"),
                            options.kargs, "" if options.quick else bench.WHOLE_HOST,
                            benchreport.whole_commands(options.quick))
    bench.write(results, folder / "bench.json")
    if not options.quick:
        results.whole_hosts = bench.whole_hosts(
            (folder / "counted" / "whole-host.txt").read_text())
        results.peers = bench.measure_peers(bench_peers(options), using, folder, options.kargs)
    bench.write(results, folder / "bench.json")
    benchreport.write(results, folder)
    return 0


def cmd_gate(options: Options) -> int:
    using = accel_of(options)
    build = built(options)
    folder = results_dir("gate" if options.arch == "x86" else f"gate-{options.arch}")
    results = bench.measure(build, using, folder, bench.gate_plan(build.arch), options.kargs)
    bench.write(results, folder / "gate.json")
    return 0 if gate.judge(results, folder, build.tree.path) else 1


def cmd_demo(options: Options) -> int:
    from . import demo

    using, whose = accel_of(options), demo_guest(options)
    demo.fetch(whose, ARCHS[options.arch])
    name = "demo" if options.arch == "x86" else f"demo-{options.arch}"
    demo.show(demo.run(built(options), using, results_dir(name), whose, options.kargs,
                       options.vendor))
    return 0


def cmd_test_stock(options: Options) -> int:
    return say_all(stock.run(built(options), choose_accel(options.accel), results_dir("stock"),
                             options.kargs))


def cmd_test_unikernel(options: Options) -> int:
    return say_all(unikernel.run(built(options), choose_accel(options.accel),
                                 results_dir("unikernel"), options.kargs))


def cmd_test_workflow(options: Options) -> int:
    return say_all(workflow.run(built(options), choose_accel(options.accel),
                                results_dir("workflow"), options.kargs))


def cmd_shell(options: Options) -> int:
    if not sys.stdin.isatty():
        raise Failure("make shell needs a terminal; for a script, use make test")
    using = accel_of(options)
    if options.vendor == "intel":
        intel.shell(built(options), results_dir("shell"), options.kargs)
    else:
        EmulatedHost(built(options), using, options.kargs).shell(
            results_dir("shell"))
    return 0


def branch_dir(options: Options) -> Path:
    folder = build_dir(options) / "branch"
    claim(folder)
    return folder


def cmd_branch(options: Options) -> int:
    folder = branch.write(linux(options), branch_dir(options))
    say(f"The branch is in {folder}; work there with git rebase -i {branch.BASE}")
    return 0


def cmd_import(options: Options) -> int:
    number = branch.read_back(branch_dir(options))
    say(f"patches/ and the new files have all of {number} commits now")
    return 0


def cmd_series(options: Options) -> int:
    build = build_dir(options)
    claim(build)
    for mails in series.write(linux(options), build, results_dir("series")):
        say(f"git am {mails}/*.patch")
    return 0


def packages_of(kind: str, options: Options, folder: Path, config: str,
                fragment: Optional[Path]) -> List[Path]:
    """Build packages of this kind in a folder, and return them.

    Args:
        config: the kernel's configuration; that of the running kernel if empty
        fragment: a fragment that is merged into it
    """
    claim(folder)
    base = package.find_config(config, folder)
    return package.Packages(folder, linux(options), package.Config(
        base, fragment, options.localmod), options.jobs).build(kind)


def make_packages(kind: str, options: Options) -> int:
    built_ones = packages_of(kind, options, build_dir(options) / "package", options.config,
                             extra_config(options))
    results = results_dir(kind)
    made = [shutil.copy(path, results) for path in built_ones]
    say(f"Install them with: {package.KINDS[kind].install} {' '.join(map(str, made))}")
    say(f"Then boot the kernel whose name ends in -guest-callchain; its perf is {package.PERF}. "
        "It is not signed, so Secure Boot has to be off.")
    return 0


def cmd_deb(options: Options) -> int:
    return make_packages("deb", options)


def cmd_rpm(options: Options) -> int:
    return make_packages("rpm", options)


def cmd_test_packages(options: Options) -> int:
    """Test packages with the emulated host's configuration: a distribution's takes hours."""
    installed.check_root()
    build = built(options)
    config, fragment = str(build.kernel / ".config"), CONFIGS / "package-test.config"
    folder = build_dir(options) / "package-test"
    counts = installed.debs(build, packages_of("deb", options, folder, config, fragment),
                            choose_accel(options.accel), results_dir("packages"))
    counts.add(installed.rpms(packages_of("rpm", options, folder, config, fragment),
                              results_dir("packages-rpm")))
    return say_all(counts)


def cmd_test_bare(options: Options) -> int:
    bare.check_root()
    suite, left_out = bare.choose(options.suite, datetime.date.today().toordinal())
    if left_out:
        say(f"Today's Debian is {suite}; left out: {', '.join(left_out)}")
    folder = build_dir(options) / f"bare-{suite}"
    claim(folder)
    return say_all(bare.run(suite, folder, results_dir(f"bare-{suite}")))


def cmd_check(options: Options) -> int:
    results = results_dir("check")
    build = build_dir(options)
    claim(build)

    def compiled(mails: Path) -> Iterator[check.Result]:
        tree, folder = Tree(build), build / "check"
        ours = checkbuild.our_lines(tree, linux(options))
        passed = checkbuild.passed_before(linux(options), folder)
        yield from checksource.run(tree, ours, folder, passed,
                                   checkbuild.inputs(linux(options), tree), options.jobs)
        yield from checkbuild.run(linux(options), tree, ours, mails, folder, passed, options.jobs)
        yield mailed.run(linux(options), tree, mails, folder / "mailed", results / "mailed",
                         passed, options.jobs)

    return 0 if check.run(linux(options), build, results, options.jobs,
                          compiled if options.all else None) else 1


def cmd_docs(options: Options) -> int:
    build = build_dir(options)
    claim(build)
    tree = Tree(build)
    tree.assemble(linux(options))
    ours = checkbuild.our_lines(tree, linux(options))
    built = checksource.documentation(tree, ours, build / "docs", build / "log")
    for page in checksource.pages(tree, build / "docs"):
        say(f"Written: {page}")
    return 0 if check.report([built]) else 1


def cmd_clean(options: Options) -> int:
    folder = build_dir(options)
    if folder.exists():
        # Other hosts, packages, and kernels for comparisons are built in subfolders.
        builds = [base.parent for base in [folder / "linux.base", *folder.glob("*/linux.base")]
                  if base.exists()]
        if not builds and any(folder.iterdir()):
            raise Failure(f"{folder} was not built by this project; remove it by hand if you want "
                          "to")
        for build in [folder, *builds]:
            claim(build)
    for remove in (folder, REPO / "results" / "latest"):
        shutil.rmtree(remove, ignore_errors=True)
    return 0


_SOURCE = ("build", "kernel_src", "kernel_tarball", "kernel_sha256", "mirror")
_BUILD = (*_SOURCE, "jobs")
_HOST = (*_BUILD, "accel")
_REPORT = ("junit", "json")

COMMANDS: Dict[str, Command] = {
    "demo": Command(
        cmd_demo, "profile a Linux guest from its host, and draw its flame graph",
        (*_HOST, "arch", "vendor", "guest", "kargs", "kconfig", "baseline")),
    "test": Command(
        cmd_test, 'run all tests; ends with "N passed, N failed, N skipped"',
        (*_HOST, "arch", "kargs", "kconfig", "baseline", *_REPORT)),
    "selftests": Command(
        cmd_selftests, "run the KVM selftests on the patched host, print KTAP",
        (*_HOST, "arch", "vendor", "kargs", "kconfig", "baseline", "tests", "all", *_REPORT)),
    "test-bare": Command(
        cmd_test_bare, "type what README has to try it, in a bare Debian; one of two, by turns",
        ("build", "mirror", "suite")),
    "test-debug": Command(
        cmd_test_debug, "run the KVM selftests on a host with lockdep and KASAN, twice",
        (*_HOST, "arch", "kargs", "baseline", "tests", "one_today")),
    "test-intel": Command(
        cmd_test_intel, "run the KVM selftests on an emulated Intel host, with EPT and without",
        (*_BUILD, "kargs", "kconfig", "baseline", "tests", "quick"),
        (("quick", "run fewer tests, once"),)),
    "test-stock": Command(
        cmd_test_stock,
        "sample Debian's own kernels as guests, and unwind them by their ORC tables",
        (*_HOST, "kargs", "kconfig", "baseline")),
    "test-unikernel": Command(
        cmd_test_unikernel, "sample a guest that is not Linux, and whose call paths are known",
        (*_HOST, "kargs", "kconfig", "baseline")),
    "test-workflow": Command(
        cmd_test_workflow,
        "use perf kvm on two guests as an operator would: record, report, diff, top",
        (*_HOST, "kargs", "kconfig", "baseline")),
    "test-baseline": Command(
        cmd_test_baseline, "test the tests: the walk of 2023 must fail some of them",
        (*_HOST, "kconfig")),
    "mutants": Command(
        cmd_mutants, "test the tests: break the kernel in many places, each must be noticed",
        (*_HOST, "arch", "mutants", "today")),
    "records": Command(
        cmd_records, "compare perf's records with and without our patches", _HOST),
    "fuzz": Command(
        cmd_fuzz, "compare walks of random guests' stacks with the expected results",
        (*_HOST, "kargs", "kconfig", "baseline", "fuzz_seconds", "fuzz_cases", "seed")),
    "bench": Command(
        cmd_bench, "measure the cost of samples, beside other ways to take them",
        (*_HOST, "arch", "kargs", "kconfig", "quick"),
        (("quick", "measure less, in three minutes"),)),
    "gate": Command(
        cmd_gate, "fail if samples cost more than the committed reference says",
        (*_HOST, "arch", "kargs", "kconfig", "baseline")),
    "host-table": Command(
        cmd_host_table, "write results/hosts.md: which tests passed on which host in the last "
        "runs", _SOURCE),
    "check": Command(
        cmd_check, "check Python, shell, C and patches with the usual tools",
        (*_SOURCE, "jobs", "all"),
        (("jobs", "do N things at once, not one for each CPU"),
         ("all", "compile each patch as well, also for other architectures; boot what git am "
          "gives"))),
    "docs": Command(
        cmd_docs, "build the documentation as HTML; fails if Sphinx warns about our lines",
        _SOURCE),
    "build": Command(
        cmd_build, "fetch, assemble and build the patched host, no more",
        (*_BUILD, "arch", "kconfig", "baseline")),
    "shell": Command(
        cmd_shell, "a shell on the running patched host, with perf and the tests",
        (*_HOST, "arch", "vendor", "kargs", "kconfig", "baseline")),
    "deb": Command(
        cmd_deb, "build Debian packages of the patched kernel and perf, for your own machines",
        (*_BUILD, "config", "kconfig", "localmod")),
    "rpm": Command(
        cmd_rpm, "build RPM packages of the patched kernel and perf",
        (*_BUILD, "config", "kconfig", "localmod")),
    "test-packages": Command(
        cmd_test_packages,
        "install deb's packages in a fresh Debian, boot it, sample a guest there", _HOST),
    "branch": Command(
        cmd_branch, "write the patches to a git branch in build/branch, to work on", _SOURCE),
    "import": Command(
        cmd_import, "read that branch back into patches/ and the new files", ("build",)),
    "series": Command(
        cmd_series, "write the patches for a kernel's mailing list, for git am",
        (*_SOURCE, "arch"),
        (("arch", "makes no difference, the series has both"),)),
    "clean": Command(
        cmd_clean, "remove what was built and measured; downloads are kept", ("build",),
        words=(("build", "the folder of the build, not ./build"),)),
}
