# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the arm64 host: its build, its machine in QEMU, and its access to this machine."""

import os
import re
import tempfile
import unittest
from pathlib import Path
from typing import List
from unittest import mock

import host
from hostlib import build as build_module
from hostlib import commands, demo
from hostlib.arch import ARM64, X86
from hostlib.build import CONFIGS, Build
from hostlib.emulated import EmulatedHost, check_console
from hostlib.options import Command, Options
from hostlib.selftests import Counts, choose
from hostlib.source import Source
from hostlib.ui import Failure


class HostTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.folder = Path(tmp.name).resolve()
        self.build = Build(self.folder / "arm64", Source("any"), None, arch=ARM64)
        self.build.root.mkdir(parents=True)
        self.host = EmulatedHost(self.build, "tcg", "kvm-arm.mode=nvhe")

    def _argv(self) -> List[str]:
        return self.host._argv(Path("/shared"), [], "job")

    def test_boots_its_own_root_and_kernel(self) -> None:
        argv = self._argv()
        self.assertEqual(argv[0], "qemu-system-aarch64")
        self.assertIn("virtualization=on", argv[argv.index("-M") + 1])
        self.assertEqual(argv[argv.index("-kernel") + 1],
                         str(self.folder / "arm64/host/kernel/arch/arm64/boot/Image"))
        self.assertTrue(any(f"id=root,path={self.folder}/arm64/root," in word for word in argv))
        append = argv[argv.index("-append") + 1]
        for word in ("console=ttyAMA0", "init=/init.sh", "panic_on_warn=1", "shares=build,repo",
                     "kvm-arm.mode=nvhe"):
            self.assertIn(word, append.split())
        self.assertTrue((self.build.root / "init.sh").exists())

    def test_counts_by_a_clock_that_programs_read(self) -> None:
        argv = self._argv()
        self.assertNotIn("-icount", argv)
        self.assertNotIn("cntfrq", argv[argv.index("-cpu") + 1])
        self.host = EmulatedHost(self.build, "tcg", counted=True)
        argv = self._argv()
        # One tick of CNTVCT_EL0 is a nanosecond, and so is an instruction.
        self.assertEqual(argv[argv.index("-icount") + 1], "shift=0,sleep=off")
        self.assertIn(",cntfrq=1000000000", argv[argv.index("-cpu") + 1])
        self.assertIn("thread=single", argv[argv.index("-accel") + 1])

    def test_may_write_to_one_folder_only(self) -> None:
        writable = [word for word in self._argv() if "security_model" in word
                    and "readonly=on" not in word]
        self.assertEqual([word.split(",")[1] for word in writable], ["id=shared"])

    def test_paths_there(self) -> None:
        shared = self.folder / "shared"
        self.host._prepare(shared, "true")
        said = (shared / "job_env").read_text()
        for line in ("BUILD_TREE=/run/build/linux", "BUILD_SELFTESTS=/run/build/host/selftests/kvm",
                     "REPO=/run/repo", "PATH=/run/build/perf:$PATH"):
            self.assertIn(f"export {line}\n", said)
        self.assertNotIn(str(self.folder), said)

    def test_x86_host_sees_this_machine_as_it_is(self) -> None:
        with mock.patch.object(EmulatedHost, "_tsc_khz", return_value=1):
            there = EmulatedHost(Build(self.folder / "x86", Source("any"), None), "tcg")
            argv = there._argv(Path("/shared"), [], "job")
        self.assertNotIn("shares=", " ".join(argv))
        self.assertEqual(there._there(self.folder), self.folder)

    def test_its_kernels_complaints_are_noticed(self) -> None:
        console = self.folder / "console"
        console.write_text("[    2.0] Internal error: synchronous external abort: 96000410\n")
        with self.assertRaisesRegex(Failure, "The host's kernel says"):
            check_console(console, "host")


class BuildTest(unittest.TestCase):
    def setUp(self) -> None:
        self.build = Build(Path("/b/arm64"), Source("any"), None, arch=ARM64)

    def test_cross_compiler_and_headers(self) -> None:
        with mock.patch.object(build_module.shutil, "which", return_value=None):
            kernel, programs = self.build._make(), self.build._make_selftests()
        self.assertIn("CC=aarch64-linux-gnu-gcc", kernel)
        self.assertIn("ARCH=arm64", kernel)
        compiler = next(word for word in programs if word.startswith("CC="))
        # The kernel's headers go before those of Debian's older kernel.
        self.assertEqual(re.findall(r"-isystem (\S+)", compiler),
                         ["/b/arm64/host/kernel/usr/include",
                          "/b/arm64/root/usr/include/aarch64-linux-gnu",
                          "/b/arm64/root/usr/include"])

    def test_perf_of_this_machine(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            build = Build(Path(tmp), Source("any", tree=Path(tmp)), None, arch=ARM64)
            with mock.patch.object(build_module, "run_logged") as run:
                self.assertEqual(build.perf_here(), Path(tmp) / "perf-here/perf")
                build._build_perf(build.perf, ARM64)
            (here, there) = run.call_args_list
        for call, theirs in ((here, False), (there, True)):
            self.assertEqual("ARCH=arm64" in call.args[1], theirs)
            self.assertEqual("PKG_CONFIG_LIBDIR" in call.kwargs["env"], theirs)
        x86 = Build(Path("/b"), Source("any"), None)
        self.assertEqual(x86.perf_here(), x86.perf)

    def test_x86_is_built_as_ever(self) -> None:
        with mock.patch.object(build_module.shutil, "which", return_value=None):
            build = Build(Path("/b"), Source("any"), None)
            self.assertFalse([word for word in build._make() + build._make_selftests()
                              if word.startswith(("ARCH=", "CC=", "CROSS_COMPILE="))])
        self.assertEqual(build.image, Path("/b/host/kernel/arch/x86/boot/bzImage"))

    def test_configuration_is_of_what_patches_can(self) -> None:
        off = CONFIGS / "no-callchain.config"
        for arch, can in ((X86, True), (ARM64, False), (ARM64, True)):
            with mock.patch.object(Build, "_walks_guests", return_value=can):
                fragments = Build(Path("/b"), Source("any"), None, arch=arch)._fragments
            self.assertEqual(fragments, [CONFIGS / "host.config",
                                         CONFIGS / f"host-{arch.name}.config",
                                         *([] if can else [off])])
        self.assertTrue(Build(Path("/b"), Source("any"), None)._walks_guests())

    def test_tests(self) -> None:
        self.build.tree.new_files[
            "tools/testing/selftests/kvm/arm64/guest_callchain_modes_test.c"] = Path("any")
        self.assertEqual(choose(self.build,
                                "guest_callchain_test guest_callchain_modes_test hypercalls"),
                         ["guest_callchain_test", "arm64/guest_callchain_modes_test",
                          "arm64/hypercalls"])
        self.assertFalse([test for test in self.build.tests if test.startswith("x86/")])

    def test_instruments(self) -> None:
        """The benchmark is no test.  Modules are built as the kernel is."""
        self.assertEqual(self.build._instruments(),
                         [build_module.MIDWALK_TEST, build_module.BENCH])
        self.assertIn(build_module.MIDWALK_TEST, self.build.tests)
        self.assertNotIn(build_module.BENCH, self.build.tests)
        for build, prefix in ((self.build, "aarch64-linux-gnu-"),
                              (Build(Path("/b"), Source("any"), None), "")):
            with mock.patch.object(build_module, "run_logged") as run:
                build._build_modules(Path("/m"), "test_pmi.o")
            argv = run.call_args.args[1]
            self.assertIn("MODULES=test_pmi.o", argv)
            with mock.patch.object(build_module, "run_logged") as run:
                build._build_modules(Path("/m"))
            self.assertFalse([arg for arg in run.call_args.args[1] if arg.startswith("MODULES=")])
            self.assertEqual(f"CROSS_COMPILE={prefix}" in argv, bool(prefix))


class OptionsTest(unittest.TestCase):
    def test_folder_of_its_own(self) -> None:
        made: List[Path] = []

        def build(folder: Path, *_: object, **named: object) -> mock.Mock:
            made.append(folder)
            self.assertIs(named["arch"], ARM64)
            return mock.Mock()

        with mock.patch.object(commands, "Build", build), \
                mock.patch.object(commands, "claim"), mock.patch.object(commands, "linux"):
            commands.built(Options(build="/b", arch="arm64"))
        self.assertEqual(made, [Path("/b/arm64")])
        with mock.patch.object(commands, "results_dir") as results:
            commands.selftests_results(Options(arch="arm64"))
        results.assert_called_with("selftests-arm64")

    def test_what_it_can_not(self) -> None:
        for wrong, why in ((Options(arch="arm64", accel="kvm"), "this machine is x86"),
                           (Options(arch="arm64", vendor="intel"), "VENDOR= is for ARCH=x86"),
                           (Options(arch="arm64", baseline="v3"), "BASELINE= is for ARCH=x86"),
                           (Options(arch="arm64", all=True), "omit ARCH=arm64")):
            with mock.patch.object(commands, "built"), \
                    mock.patch.object(commands, "with_and_without"), \
                    self.assertRaisesRegex(Failure, why):
                commands.cmd_selftests(wrong)
        with mock.patch.object(commands, "built"), \
                self.assertRaisesRegex(Failure, "omit it or ARCH=arm64"):
            commands.cmd_build(Options(arch="arm64", baseline="v3"))

    def test_peers_share_its_user_space(self) -> None:
        made: List[mock.Mock] = []

        def build(folder: Path, *_: object, **named: object) -> mock.Mock:
            made.append(mock.Mock(folder=folder, root=folder / "root", arch=named["arch"]))
            return made[-1]

        with mock.patch.object(commands, "Build", build), \
                mock.patch.object(commands, "claim"), mock.patch.object(commands, "linux"):
            peers = commands.bench_peers(Options(build="/b", arch="arm64"))
        self.assertEqual(set(peers), {"unpatched", "option off", "option on"})
        for peer in peers.values():
            self.assertIs(peer.arch, ARM64)
            self.assertEqual(peer.root, Path("/b/arm64/root"))

    def test_debug_passes(self) -> None:
        with mock.patch.object(commands, "cmd_selftests", return_value=0) as selftests:
            commands.cmd_test_debug(Options(arch="arm64"))
        ran = [call.args[0] for call in selftests.call_args_list]
        self.assertEqual([one.kargs for one in ran],
                         ["", "kvm-arm.mode=nvhe", "irqchip.gicv3_pseudo_nmi=1"])
        self.assertTrue(all(one.kconfig.endswith("/debug-arm64.config") for one in ran))
        # "debug-arm64" is also part of its build folder's name, and a word of expected-skips.txt.
        self.assertEqual(commands.host_traits(ran[1]).split(),
                         ["arm64", "kvm-arm.mode=nvhe", "debug-arm64"])

    def test_test_has_both_modes(self) -> None:
        with mock.patch.object(commands, "unit_tests", return_value=Counts(passed=1)), \
                mock.patch.object(commands, "built"), \
                mock.patch.object(commands, "results_dir"), \
                mock.patch.object(commands.perftests, "run_there", return_value=Counts()), \
                mock.patch.object(commands.selftests, "run", return_value="") as run, \
                mock.patch.object(commands.selftests, "count",
                                  return_value=Counts(passed=2, failed=1)), \
                mock.patch.object(demo, "fetch"), mock.patch.object(demo, "run"), \
                mock.patch.object(demo, "check", return_value=Counts(passed=3)), \
                mock.patch.object(demo, "read_here", return_value=Counts(passed=1)), \
                mock.patch.object(commands, "say_all", side_effect=str) as said:
            commands.cmd_test(Options(arch="arm64", kargs="a"))
        self.assertEqual([call.args[3] for call in run.call_args_list],
                         ["a", "kvm-arm.mode=nvhe a", "kvm-arm.mode=protected a"])
        self.assertEqual(str(said.call_args.args[0]), "11 passed, 3 failed, 0 skipped")

    def test_builds_are_not_told_by_the_environment(self) -> None:
        seen: List[object] = []

        def run(options: Options) -> int:
            seen.extend([options.arch, os.environ.get("ARCH")])
            return 0

        with mock.patch.dict(host.COMMANDS, {"build": Command(run, "build", ("arch",))}), \
                mock.patch.object(host.deps, "check") as check:
            for value in ("arm64", ""):
                with mock.patch.dict(os.environ, {"ARCH": value}, clear=True):
                    self.assertEqual(host.main(["build"]), 0)
        self.assertEqual(seen, ["arm64", None, "x86", None])
        self.assertEqual([call.args[0] for call in check.call_args_list], [["arm64"], []])


if __name__ == "__main__":
    unittest.main()
