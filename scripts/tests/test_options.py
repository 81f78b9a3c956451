# SPDX-License-Identifier: GPL-2.0-only
"""Tests of options and variables, and of their use by commands."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List
from unittest import mock

from hostlib import commands, hosts, options, testing
from hostlib.commands import COMMANDS
from hostlib.options import OPTIONS, Options
from hostlib.patches import REPO
from hostlib.ui import Failure

_HOST = REPO / "scripts" / "host.py"


def parse(*argv: str, **environment: str) -> Options:
    return options.parse(COMMANDS, "", argv, environment)[1]


class ParseTest(unittest.TestCase):
    def test_variables_are_options(self) -> None:
        self.assertEqual(parse("selftests", "--kargs=a b", "--all", "--jobs", "3"),
                         parse("selftests", KARGS="a b", ALL="1", JOBS="3"))
        self.assertEqual(parse("test-debug", TODAY="1"), Options(today="1"))
        self.assertEqual(parse("mutants", TODAY="3"), Options(today="3"))

    def test_option_beats_variable(self) -> None:
        self.assertEqual(parse("selftests", "--vendor=intel", VENDOR="amd").vendor, "intel")

    def test_empty_variables_are_none(self) -> None:
        self.assertEqual(parse("selftests", KARGS="", ALL="", JOBS="", VENDOR=""), Options())

    def test_a_switch_is_on_or_not_there(self) -> None:
        for value in ("0", "no", "2"):
            with self.assertRaisesRegex(Failure,
                                        f"LOCALMOD={value} is not valid; say LOCALMOD=1, or"):
                parse("deb", LOCALMOD=value)

    def test_wrong_values(self) -> None:
        for argv, named in ((("selftests", "--vendor=x"), ("--vendor", "amd", "intel")),
                            (("demo", "--jobs=0"), ("--jobs", "at least 1")),
                            (("gate", "--quick"), ("--quick",)),
                            (("x",), ("'x'", "gate"))):
            said = io.StringIO()
            with self.subTest(argv), contextlib.redirect_stderr(said):
                with self.assertRaises(SystemExit) as end:
                    parse(*argv)
                self.assertEqual(end.exception.code, 2)
                why = said.getvalue().partition("error:")[2]
                self.assertEqual([name for name in named if name not in why], [])

    def test_variable_that_is_not_heeded(self) -> None:
        for command, name in (("gate", "QUICK"), ("mutants", "KARGS"), ("bench", "VENDOR"),
                              ("test", "TESTS"), ("test-debug", "KCONFIG")):
            with self.subTest(command), \
                    self.assertRaisesRegex(Failure, f"{command} does not use {name}; omit"):
                parse(command, **{name: "1"})
        # Variables that say where and how to build are allowed for all commands.
        self.assertEqual(parse("clean", ACCEL="tcg", KERNEL_SRC="a", JOBS="2"), Options())


class TurnsTest(unittest.TestCase):
    def test_each_has_its_day(self) -> None:
        for number, days in (("1", 3), ("2", 2)):
            taken = [options.by_turns("abc", number, day) for day in range(days)]
            self.assertEqual({len(items) for items in taken}, {int(number)})
            self.assertEqual(set(sum(taken, [])), set("abc"))
        for wrong in ("0", "x"):
            self.assertRaises(Failure, options.by_turns, "abc", wrong)


class HelpTest(unittest.TestCase):
    def test_makefile_has_all(self) -> None:
        makefile = (REPO / "Makefile").read_text()
        exported = set(" ".join(line[len("export"):] for line in makefile.splitlines()
                                if line.startswith("export")).split())
        self.assertEqual(exported, {option.variable for option in OPTIONS.values()})
        for name in COMMANDS:
            self.assertRegex(makefile, rf"(?m)^{name}: ## .*\n\t\$\(HOST\)$")

    def make(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["make", "-C", str(REPO), "--no-print-directory", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              # Don't pass the variables of the make that runs this test.
                              env={"PATH": os.environ["PATH"]}, check=False)

    def test_make_hands_over(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            said = self.make("clean", f"BUILD={tmp}/no such")
        self.assertIn("must not contain a space", said.stdout)

    def test_make_may_be_called_from_another_folder(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            for command, given, said in (("clean", "BUILD=no such", f"{tmp}/no such"),
                                         ("deps", "FOR=dem", '"dem" is not known')):
                done = self.make("-C", tmp, "-f", str(REPO / "Makefile"), command, given)
                self.assertIn(said, done.stdout)

    def test_make_refuses_a_variable_that_nobody_knows(self) -> None:
        for wrong, right in (("GUSET", "GUEST"), ("FRO", "FOR"), ("XYZZY", "")):
            done = self.make("--dry-run", "demo", f"{wrong}=1")
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout, rf"{wrong}= .*{right and f'{right}='}")
            self.assertEqual(len(done.stdout.splitlines()), 1)
        known = {option.variable for option in OPTIONS.values()} | {"YES", "FOR", "PID", "PERF"}
        self.assertEqual(
            self.make("--dry-run", "demo", *(f"{name}=1" for name in known)).returncode, 0)

    def test_drawing_is_loaded_by_what_draws(self) -> None:
        for argv in (["--help"], ["gate", "--help"], ["demo", "--help"]):
            loaded = subprocess.run([sys.executable, "-X", "importtime", str(_HOST), *argv],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                    check=True).stderr
            self.assertIn("hostlib.commands", loaded)
            self.assertNotIn("matplotlib", loaded)


class CommandTest(unittest.TestCase):
    def test_intel_passes(self) -> None:
        passes = testing.intel_passes(Options(kargs="a"))
        self.assertEqual([one.kargs for one in passes],
                         ["a", "kvm_intel.ept=0 a", "kvm_intel.unrestricted_guest=0 a"])
        self.assertEqual({one.vendor for one in passes}, {"intel"})
        quick, = testing.intel_passes(Options(quick=True))
        self.assertEqual(quick.tests, testing.INTEL_QUICK)
        with self.assertRaisesRegex(Failure, "both choose tests"):
            testing.intel_passes(Options(quick=True, tests="a"))

    def test_debug_passes(self) -> None:
        ran: List[Options] = []

        def selftests(given: Options) -> int:
            ran.append(given)
            return 0

        with mock.patch.object(testing, "cmd_selftests", selftests):
            testing.cmd_test_debug(Options(kargs="a"))
            testing.cmd_test_debug(Options(today="1"))
        self.assertEqual([one.kargs for one in ran[:2]], ["no5lvl a", "no5lvl kvm_amd.npt=0 a"])
        self.assertEqual(len(ran), 3)
        self.assertTrue(all(one.kconfig.endswith("debug.config") for one in ran))

    def test_what_other_hosts_can_not(self) -> None:
        with self.assertRaisesRegex(Failure, "omit VENDOR=intel"):
            testing.cmd_selftests(Options(vendor="intel", all=True))
        with mock.patch("hostlib.demo.fetch", side_effect=AssertionError), \
                self.assertRaisesRegex(Failure, "leave out GUEST=own"):
            commands.cmd_demo(Options(arch="arm64", guest="own"))

    def test_full_disk_is_told_before_downloads_and_tests(self) -> None:
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch("shutil.disk_usage", return_value=mock.Mock(free=1 << 30)), \
                mock.patch.object(testing, "unit_tests") as work, \
                mock.patch.object(hosts, "linux", work), mock.patch("hostlib.demo.fetch", work):
            for command in (commands.cmd_demo, testing.cmd_test):
                with self.assertRaisesRegex(Failure, "has 1.0 GiB free"):
                    command(Options(build=f"{tmp}/build"))
        work.assert_not_called()

    def test_clean_removes_builds_only(self) -> None:
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(commands, "REPO", Path(tmp)):
            folders: Dict[str, Path] = {name: Path(tmp) / name for name in ("ours", "other")}
            for folder in folders.values():
                folder.mkdir()
                (folder / "file").write_text("")
            # A build of the user's own source has no pristine copies.
            (folders["ours"] / "linux.base").write_text("")
            with self.assertRaisesRegex(Failure, "not built by this project"):
                commands.cmd_clean(Options(build=str(folders["other"])))
            self.assertEqual(commands.cmd_clean(Options(build=str(folders["ours"]))), 0)
            self.assertEqual([folder.exists() for folder in folders.values()], [False, True])

            # A build folder in which only packages were built counts as ours, too.
            (folders["other"] / "package").mkdir()
            (folders["other"] / "package/linux.base").write_text("")
            with mock.patch.object(commands, "claim") as claim:
                self.assertEqual(commands.cmd_clean(Options(build=str(folders["other"]))), 0)
            self.assertEqual([call.args[0] for call in claim.call_args_list],
                             [folders["other"], folders["other"] / "package"])
            self.assertFalse(folders["other"].exists())
