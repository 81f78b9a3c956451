# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the arm64 host: its build, its machine in QEMU, and its access to this machine."""

import tempfile
import unittest
from pathlib import Path
from typing import List
from unittest import mock

from hostlib import build as build_module
from hostlib import hosts, testing
from hostlib.arch import ARM64, X86
from hostlib.build import CONFIGS, Build
from hostlib.emulated import EmulatedHost
from hostlib.options import Options
from hostlib.selftests import choose
from hostlib.source import Source
from hostlib.ui import Failure


class HostTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.build = Build(self.folder / "arm64", Source("any"), None, arch=ARM64)
        self.build.root.mkdir(parents=True)
        self.host = EmulatedHost(self.build, "tcg", "kvm-arm.mode=nvhe")

    def _argv(self) -> List[str]:
        return self.host._argv(Path("/shared"), [], "job")

    def test_warnings_are_fatal_and_the_users_arguments_are_passed_on(self) -> None:
        argv = self._argv()
        words = argv[argv.index("-append") + 1].split()
        self.assertLess({"panic_on_warn=1", "kvm-arm.mode=nvhe"}, set(words))

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
        self.assertIn("export BUILD_SELFTESTS=/run/build/host/selftests/kvm\n", said)
        self.assertIn("export REPO=/run/repo\n", said)
        self.assertNotIn(str(self.folder), said)
        x86 = EmulatedHost(Build(self.folder / "x86", Source("any"), None), "tcg")
        self.assertEqual(x86._there(self.folder), self.folder)


class BuildTest(unittest.TestCase):
    def setUp(self) -> None:
        self.build = Build(Path("/b/arm64"), Source("any"), None, arch=ARM64)

    def test_configuration_is_of_what_patches_can(self) -> None:
        off = CONFIGS / "no-callchain.config"
        for arch in (X86, ARM64):
            self.assertNotIn(off, Build(Path("/b"), Source("any"), None, arch=arch)._fragments)
        with mock.patch.object(build_module, "edits", return_value={}):
            self.assertIn(off, Build(Path("/b"), Source("any"), None, arch=ARM64)._fragments)

    def test_tests(self) -> None:
        self.build.tree.new_files[
            "tools/testing/selftests/kvm/arm64/guest_callchain_modes_test.c"] = Path("any")
        self.assertEqual(choose(self.build,
                                "guest_callchain_test guest_callchain_modes_test hypercalls"),
                         ["guest_callchain_test", "arm64/guest_callchain_modes_test",
                          "arm64/hypercalls"])
        self.assertFalse([test for test in self.build.tests if test.startswith("x86/")])
        self.assertIn(build_module.MIDWALK_TEST, self.build.tests)
        self.assertNotIn(build_module.BENCH, self.build.tests)


class OptionsTest(unittest.TestCase):
    def test_folders_of_its_own(self) -> None:
        tmp = self.enterContext(tempfile.TemporaryDirectory())
        options = Options(build=tmp, arch="arm64")
        self.assertEqual(hosts.host_dir(options), Path(tmp).resolve() / "arm64")
        self.assertEqual(hosts.arch_dir(options), Path(tmp).resolve() / "arm64")

    def test_what_it_can_not(self) -> None:
        for wrong, omit in ((Options(arch="arm64", accel="kvm"), "ACCEL=kvm"),
                            (Options(arch="arm64", vendor="intel"), "VENDOR="),
                            (Options(arch="arm64", baseline="v3"), "BASELINE="),
                            (Options(arch="arm64", all=True), "ARCH=arm64")):
            with self.subTest(omit), self.assertRaises(Failure) as failure:
                testing.cmd_selftests(wrong)
            self.assertIn(omit, str(failure.exception))

    def test_debug_passes(self) -> None:
        with mock.patch.object(testing, "cmd_selftests", side_effect=(0, 1, 0)) as selftests:
            self.assertEqual(testing.cmd_test_debug(Options(arch="arm64")), 1)
        # Words of expected-skips.txt.
        self.assertEqual([hosts.host_traits(call.args[0]).split()[1:]
                          for call in selftests.call_args_list],
                         [["debug-arm64"], ["kvm-arm.mode=nvhe", "debug-arm64"],
                          ["irqchip.gicv3_pseudo_nmi=1", "debug-arm64"]])
