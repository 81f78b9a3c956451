# SPDX-License-Identifier: GPL-2.0-only
"""The table of host.py's commands, and those commands that only call one module.

Only the commands that draw import the modules that draw: matplotlib takes long to load, and
the other commands don't need it.
"""

import shutil
import sys
from pathlib import Path
from typing import Dict, Iterator

from . import branch, check, checkall, checkbuild, checksource, measuring, packaging, series
from . import testing
from .arch import ARCHS
from .emulated import EmulatedHost
from .hosts import accel_of, build_dir, built, check_arch, fetched, linux, results_dir
from .options import Command, Options
from .patches import REPO
from .tree import Tree
from .ui import Failure, claim, say


def cmd_build(options: Options) -> int:
    check_arch(options)
    build = built(options)
    say(f"The tree is in {build.tree.path}, the kernel in {build.image}, perf in {build.perf}")
    return 0


def cmd_demo(options: Options) -> int:
    from . import demo

    using, whose = accel_of(options), options.guest or "debian"
    if (whose, options.arch) == ("own", "arm64"):
        raise Failure("The guest of an arm64 host is Debian's kernel; leave out GUEST=own")
    build = fetched(options)
    demo.fetch(whose, ARCHS[options.arch])
    build.all()
    name = "demo" if options.arch == "x86" else f"demo-{options.arch}"
    demo.show(demo.run(build, using, results_dir(name), whose, options.kargs))
    return 0


def cmd_shell(options: Options) -> int:
    if not sys.stdin.isatty():
        raise Failure("make shell needs a terminal; for a script, use make test")
    using = accel_of(options)
    EmulatedHost(built(options), using, options.kargs).shell(results_dir("shell"))
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


def cmd_check(options: Options) -> int:
    results = results_dir("check")
    build = build_dir(options)
    claim(build)

    def more(mails: Path) -> Iterator[check.Result]:
        return checkall.run(linux(options), Tree(build), mails, build / "check",
                            results / "mailed", options.jobs)

    return 0 if check.run(linux(options), build, results, options.jobs,
                          more if options.all else None) else 1


def cmd_docs(options: Options) -> int:
    build = build_dir(options)
    claim(build)
    tree = Tree(build)
    tree.assemble(linux(options))
    ours = checkbuild.our_lines(tree, linux(options))
    built = checksource.documentation(tree.path, tree.new_files, ours, build / "docs",
                                      build / "log/htmldocs.log")
    for page in checksource.pages(tree.new_files, build / "docs"):
        say(f"Written: {page}")
    return 0 if check.report([built]) else 1


def cmd_clean(options: Options) -> int:
    folder = build_dir(options)
    if folder.exists():
        # Other hosts, packages, and kernels for comparisons are built in subfolders.
        if (folder / "branch").exists():
            branch.check_nothing_lost(branch_dir(options), replaced=True)
        builds = [base.parent for base in [folder / "linux.base", folder / "branch/.git",
                                           *folder.glob("*/linux.base")] if base.exists()]
        if not builds and any(folder.iterdir()):
            raise Failure(f"{folder} was not built by this project; remove it by hand if you want "
                          "to")
        for build in [folder, *builds]:
            claim(build)
    for remove in (folder, REPO / "results" / "latest"):
        shutil.rmtree(remove, ignore_errors=True)
    return 0


_SOURCE = ("build", "kernel_src", "kernel_tarball", "mirror")
_BUILD = (*_SOURCE, "jobs")
_HOST = (*_BUILD, "accel")
_REPORT = ("junit", "json")

COMMANDS: Dict[str, Command] = {
    "demo": Command(
        cmd_demo, "profile a Linux guest from its host, and draw its flame graph",
        (*_HOST, "arch", "guest", "kargs", "kconfig", "baseline")),
    "test": Command(
        testing.cmd_test, 'run all tests; ends with "N passed, N failed, N skipped"',
        (*_HOST, "arch", "kargs", "kconfig", "baseline", *_REPORT)),
    "selftests": Command(
        testing.cmd_selftests, "run the KVM selftests on the patched host, print KTAP",
        (*_HOST, "arch", "vendor", "kargs", "kconfig", "baseline", "tests", "all", *_REPORT)),
    "test-bare": Command(
        testing.cmd_test_bare,
        "type what README has to try it, in a bare Debian; one of two, by turns",
        ("build", "mirror", "suite")),
    "test-debug": Command(
        testing.cmd_test_debug, "run the KVM selftests on a host with lockdep and KASAN, twice",
        (*_HOST, "arch", "kargs", "baseline", "tests", "today")),
    "test-intel": Command(
        testing.cmd_test_intel,
        "run the KVM selftests on an emulated Intel host, with EPT and without",
        (*_BUILD, "kargs", "kconfig", "baseline", "tests", "quick"),
        (("quick", "run fewer tests, once"),)),
    "test-stock": Command(
        testing.cmd_test_stock,
        "sample Debian's own kernels as guests, and unwind them by their ORC tables",
        (*_HOST, "kargs", "kconfig", "baseline")),
    "test-distro": Command(
        testing.cmd_test_distro,
        "sample whole distributions as guests, name and unwind their programs",
        (*_HOST, "kargs", "kconfig", "baseline")),
    "test-unikernel": Command(
        testing.cmd_test_unikernel,
        "sample a guest that is not Linux, and whose call paths are known",
        (*_HOST, "kargs", "kconfig", "baseline")),
    "test-workflow": Command(
        testing.cmd_test_workflow,
        "use perf kvm on two guests as an operator would: record, report, diff, top",
        (*_HOST, "kargs", "kconfig", "baseline")),
    "test-baseline": Command(
        testing.cmd_test_baseline, "test the tests: the walk of 2023 must fail some of them",
        (*_HOST, "kconfig")),
    "mutants": Command(
        testing.cmd_mutants,
        "test the tests: break the kernel in many places, each must be noticed",
        (*_HOST, "arch", "mutants", "today")),
    "test-abi": Command(
        testing.cmd_test_abi, "compare perf's records with and without our patches", _HOST),
    "fuzz": Command(
        testing.cmd_fuzz, "compare walks of random guests' stacks with the expected results",
        (*_HOST, "kargs", "kconfig", "baseline", "fuzz_seconds", "fuzz_cases", "seed")),
    "bench": Command(
        measuring.cmd_bench, "measure the cost of samples, beside other ways to take them",
        (*_HOST, "arch", "kargs", "kconfig", "quick"),
        (("quick", "measure less, in three minutes"),)),
    "gate": Command(
        measuring.cmd_gate, "fail if samples cost more than the committed reference says",
        (*_HOST, "arch", "kargs", "kconfig", "baseline")),
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
        (*_HOST, "arch", "kargs", "kconfig", "baseline")),
    "deb": Command(
        packaging.cmd_deb,
        "build Debian packages of the patched kernel and perf, for your own machines",
        (*_BUILD, "config", "kconfig", "localmod")),
    "perf-deb": Command(
        packaging.cmd_perf_deb,
        "build a Debian package of perf alone, to try it on the kernel that runs", _BUILD),
    "test-packages": Command(
        packaging.cmd_test_packages,
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
