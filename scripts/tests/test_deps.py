# SPDX-License-Identifier: GPL-2.0-only
"""Tests of deps.sh: finding the packages that are missing, and installing them."""

import os
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import List

from hostlib.arch import ARCHS
from hostlib.commands import COMMANDS
from hostlib.patches import REPO

_SCRIPT = REPO / "scripts/deps.sh"
_TABLE = dict(line.split("\t", 1) for line in
              (REPO / "scripts" / "deps.txt").read_text().splitlines() if "\t" in line)
# Programs that deps.sh and the scripts of these tests need.
_TOOLS = ("sh", "cat", "dirname", "sed", "sort", "uname", "id", "env", "touch", "tr", "python3")


class TableTest(unittest.TestCase):
    def test_each_command_has_a_line(self) -> None:
        self.assertLessEqual(COMMANDS.keys() | {"doctor", "extra", "intel"}
                             | ARCHS.keys() - {"x86"}, _TABLE.keys())

    def test_each_group_is_known_and_used(self) -> None:
        named = {word[1:] for needs in _TABLE.values() for word in needs.split()
                 if word.startswith("@")}
        self.assertLessEqual(named, _TABLE.keys())
        self.assertEqual(_TABLE.keys() - named - COMMANDS.keys() - ARCHS.keys(),
                         {"doctor", "extra", "check-all"})


class ScriptTest(unittest.TestCase):
    def setUp(self) -> None:
        self.tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.bin = self.tmp / "bin"
        self.bin.mkdir()
        for tool in _TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        self.installed("python3", "ccache", "debian-archive-keyring")
        # It tells the packages in a file; apt-get adds what it is told to install.
        self.program("dpkg-query", f'while read -r package; do echo "installed $package"; done '
                                   f'< {self.tmp}/installed')
        self.program("dpkg", "")
        self.program("apt-get", f'[ "$1" = update ] || for package; do echo "$package"; done '
                                f'>> {self.tmp}/installed')
        self.program("apt-cache", 'for package; do echo "Package: $package"; done')

    def installed(self, *packages: str) -> None:
        (self.tmp / "installed").write_text("".join(f"{name}\n" for name in packages))

    def program(self, name: str, script: str) -> None:
        """Install a program that logs its calls, and then runs a script."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        log = "" if name in ("dpkg-query", "apt-cache") else f'echo "{name} $*" >> {self.tmp}/log\n'
        path.write_text(f'#!{shutil.which("sh")}\n{log}{script}\n')
        path.chmod(0o755)

    def log(self) -> List[str]:
        path = self.tmp / "log"
        return path.read_text().splitlines() if path.exists() else []

    def run_script(self, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([str(self.bin / "sh"), str(_SCRIPT), *arguments],
                              env={"PATH": str(self.bin), **more}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)

    def test_what_is_missing_and_how_to_get_it(self) -> None:
        for names, how, package in (
                (("unpack",), "make deps FOR=unpack", "lz4"),
                (("deb", "fuzz"), 'make deps FOR="deb fuzz"', "debhelper"),
                (("gate", "arm64"), "make deps FOR=gate ARCH=arm64", "qemu-system-arm"),
                (("selftests", "intel"), "make deps FOR=selftests VENDOR=intel", "bochs"),
                (("check-all",), "make deps FOR=check-all", "clang-19")):
            result = self.run_script("need", *names)
            self.assertEqual((result.returncode, len(result.stdout.splitlines())), (1, 1))
            self.assertIn(f'run "{how}"', result.stdout)
            self.assertIn(package, result.stdout)
            self.assertNotIn("ccache", result.stdout)
        self.assertEqual(self.log(), [])
        self.installed("python3", "lz4", "zstd")
        result = self.run_script("need", "unpack")
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_unknown_name(self) -> None:
        for how in ("need", "install"):
            result = self.run_script(how, "dem")
            self.assertIn("dem", result.stdout)
            self.assertEqual(result.returncode, 1)

    def test_a_system_without_dpkg(self) -> None:
        (self.bin / "dpkg-query").unlink()
        self.assertEqual(self.run_script("need", "unpack").returncode, 0)
        self.assertEqual(self.run_script("install", "unpack").returncode, 1)

    def asked(self, answer: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a command that needs packages at a terminal, and type an answer."""
        terminal, end = pty.openpty()
        os.write(terminal, answer.encode())
        try:
            return subprocess.run([str(self.bin / "sh"), str(_SCRIPT), "need", "unpack"],
                                  env={"PATH": str(self.bin)}, stdin=end, stdout=subprocess.PIPE,
                                  check=False)
        finally:
            os.close(terminal)
            os.close(end)

    def test_one_question(self) -> None:
        for answer in ("n\n", "\x04"):
            result = self.asked(answer)
            self.assertEqual(result.returncode, 1)
            self.assertIn(b"make deps FOR=unpack", result.stdout)
            self.assertEqual(self.log(), [])
        result = self.asked("\n")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stdout.count(b"?"), 1)
        self.assertEqual(self.log(), [
            "dpkg --configure -a", "apt-get update",
            "apt-get install --yes --no-install-recommends lz4 zstd"])
        # Now nothing is missing, and nothing is asked.
        self.assertEqual(self.asked("").stdout, b"")

    def test_answers_in_advance(self) -> None:
        for user, variable, value, installs in (
                ("0", "YES", "", False), ("0", "YES", "1", True), ("0", "CI", "true", True),
                ("1000", "CI", "true", False), ("1000", "YES", "1", True)):
            with self.subTest(user=user, variable=variable):
                self.installed("python3")
                self.program("id", f"echo {user}")
                self.program("sudo", '"$@"')
                result = self.run_script("need", "unpack", **{variable: value})
                self.assertEqual(result.returncode == 0, installs, result.stdout)
                install = [line for line in self.log() if line.startswith("apt-get install")]
                self.assertEqual(bool(install), installs)
                # What makes builds faster comes along.
                self.assertEqual("ccache" in "".join(install), installs)
                (self.tmp / "log").unlink(missing_ok=True)

    def test_who_can_install(self) -> None:
        self.program("id", "echo 1000")
        result = self.run_script("need", "unpack", YES="1")
        self.assertIn("as root", result.stdout)
        self.assertEqual((result.returncode, len(result.stdout.splitlines())), (1, 1))
        self.program("sudo", '"$@"')
        self.assertEqual(self.run_script("install", "unpack").returncode, 0)
        self.assertIn("sudo apt-get update", self.log())

    def test_apt_fails_or_does_not_install(self) -> None:
        for script, said in (("exit 1", "network"), ("", "lz4 zstd")):
            self.program("apt-get", script)
            result = self.run_script("install", "unpack")
            self.assertIn(said, result.stdout.splitlines()[-1])
            self.assertEqual(result.returncode, 1)

    def test_apt_knows_no_package(self) -> None:
        """Without a network, apt-get update only warns, and g++ becomes a pattern."""
        self.program("apt-cache", 'echo "Package: lz4"')
        result = self.run_script("install", "unpack")
        self.assertRegex(result.stdout.splitlines()[-1], "do not have .*zstd; .*network")
        self.assertNotIn("lz4", result.stdout.splitlines()[-1])
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("apt-get install", "".join(self.log()))

    def test_commands_ask_for_all_that_they_need(self) -> None:
        self.installed()
        for command in ([sys.executable, str(REPO / "scripts/host.py"), "series"],
                        [str(shutil.which("make")), "-C", str(REPO), "--no-print-directory",
                         "series"]):
            result = subprocess.run(command, env={"PATH": str(self.bin)}, text=True,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stdout, "^missing: binutils git .*FOR=series")

    def test_without_python_all_is_named_at_once(self) -> None:
        shell = _SCRIPT.read_text().replace("/usr/bin/python3", "/none")
        (self.tmp / "deps.sh").write_text(shell)
        (self.tmp / "deps.txt").write_text((REPO / "scripts/deps.txt").read_text())
        self.installed()
        for there, said in ((True, ""), (False, "python3")):
            if not there:
                (self.bin / "python3").unlink()
            result = subprocess.run(
                [str(self.bin / "sh"), str(self.tmp / "deps.sh"), "python", "series"],
                env={"PATH": str(self.bin)}, text=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, check=False)
            self.assertEqual(result.returncode, int(not there))
            self.assertIn(said, result.stdout)
            self.assertEqual("binutils" in result.stdout, not there)
