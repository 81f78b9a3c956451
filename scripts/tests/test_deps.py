# SPDX-License-Identifier: GPL-2.0-only
"""Tests of deps.sh: finding what is missing on each distribution, and installing it."""

import os
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List, Set

from hostlib import deps
from hostlib.arch import ARCHS
from hostlib.commands import COMMANDS
from hostlib.patches import REPO

_TABLE = REPO / "scripts" / "deps.txt"
# Programs that deps.sh and the scripts of these tests need.
_TOOLS = ("sh", "cat", "dirname", "sed", "grep", "sort", "uname", "id", "env", "touch", "chmod",
          "python3")

_SYSTEMS = {
    "debian": ("ID=debian\n", "apt-get install lz4 zstd"),
    "mint": ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt-get install lz4 zstd"),
    "pop": ("ID=pop\nID_LIKE=ubuntu\n", "apt-get install lz4 zstd"),
    "rocky": ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install lz4 zstd"),
    "arch": ("ID=arch\n", "pacman -S lz4 zstd"),
    "suse": ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n', "zypper install lz4 zstd"),
    "alpine": ("ID=alpine\n", "apk add lz4 zstd"),
}


def lines() -> List[List[str]]:
    return [line.split("\t") for line in _TABLE.read_text().splitlines()
            if line and not line.startswith("#")]


def needs() -> Dict[str, List[str]]:
    """Return the groups of each command."""
    return {line[0]: line[1].split() for line in lines() if len(line) == 2}


def rows() -> List[List[str]]:
    return [line for line in lines() if len(line) != 2]


class TableTest(unittest.TestCase):
    def test_each_row_is_whole(self) -> None:
        for row in rows():
            with self.subTest(row):
                self.assertEqual(len(row), 8)
                self.assertTrue(all(cell and " " not in cell for cell in row))
                self.assertIn(row[1], ("cmd", "header", "python", "static", "file", "fuzzer",
                                       "llvm"))

    def test_each_command_has_its_groups(self) -> None:
        self.assertEqual(needs().keys(), COMMANDS.keys() | {"doctor"})
        needed: Set[str] = {group for groups in needs().values() for group in groups}
        self.assertEqual({row[0] for row in rows()},
                         needed | {"python", "extra", "compile"} | ARCHS.keys() - {"x86"})


class ScriptTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        self.bin = self.tmp / "bin"
        self.bin.mkdir()
        for tool in _TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        self.system("ID=debian\n")

    def system(self, os_release: str) -> None:
        (self.tmp / "os-release").write_text(os_release)

    def program(self, name: str, script: str) -> None:
        """Install a program that logs its calls, and then runs a script."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!{shutil.which("sh")}\necho "{name} $*" >> {self.tmp}/log\n{script}\n')
        path.chmod(0o755)

    def log(self) -> List[str]:
        path = self.tmp / "log"
        return path.read_text().splitlines() if path.exists() else []

    def environment(self) -> Dict[str, str]:
        # A shell imports no module, and fails sooner than Python.
        return {"PATH": str(self.bin), "OS_RELEASE": f"{self.tmp}/os-release",
                "PYTHON": str(self.bin / "sh")}

    def run_script(self, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([str(self.bin / "sh"), str(deps.SCRIPT), *arguments],
                              env={**self.environment(), **more}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)

    def test_each_distribution_in_its_words(self) -> None:
        for name, (os_release, said) in _SYSTEMS.items():
            with self.subTest(name):
                self.system(os_release)
                result = self.run_script("check", "unpack")
                self.assertEqual(result.stdout, 'missing: lz4, zstd; run "make deps FOR=unpack", '
                                                f'or "{said}"\n')
                self.assertEqual(result.returncode, 1)

    def test_unknown_distribution(self) -> None:
        self.system('ID=void\nPRETTY_NAME="Void Linux"\n')
        for how in ("check", "install"):
            result = self.run_script(how, "unpack")
            self.assertIn("missing: lz4, zstd; install the packages that have these; their names "
                          "on Void Linux are not known here", result.stdout)
            self.assertEqual(result.returncode, 1)

    def test_nothing_missing(self) -> None:
        for tool in ("lz4", "zstd"):
            self.program(tool, "")
        for how, said in (("check", ""), ("install", "deps: nothing is missing\n")):
            result = self.run_script(how, "unpack")
            self.assertEqual((result.returncode, result.stdout), (0, said))

    def test_names_what_brings_all_of_it_and_nothing_else(self) -> None:
        for names, how in ((("gate",), "make deps FOR=gate"),
                           (("deb", "fuzz"), 'make deps FOR="deb fuzz"'),
                           (("gate", "arm64"), "make deps FOR=gate ARCH=arm64"),
                           (("shell", "intel"), "make deps FOR=shell VENDOR=intel"),
                           (("all",), "make deps ALL=1")):
            said = self.run_script("check", *names).stdout
            self.assertIn(f'run "{how}", or', said)
            self.assertEqual("qemu-system-aarch64" in said, bool({"arm64", "all"} & {*names}))
            self.assertEqual("jsonschema" in said, bool({"gate", "all"} & {*names}))

    def test_unknown_name(self) -> None:
        for name in ("dem", "zst"):
            result = self.run_script("install", name)
            self.assertIn(f'"{name}" is not known', result.stdout)
            self.assertEqual(result.returncode, 1)

    def apt(self) -> None:
        """Install an apt that installs these programs."""
        self.program("dpkg", "")
        self.program("apt-get", f'[ "$1" = update ] || for tool in lz4 zstd; do '
                                f'touch {self.bin}/$tool; chmod +x {self.bin}/$tool; done')

    def asked(self, answer: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a command that needs packages at a terminal, and type an answer."""
        terminal, end = pty.openpty()
        os.write(terminal, answer.encode())
        try:
            return subprocess.run([str(self.bin / "sh"), str(deps.SCRIPT), "need", "unpack"],
                                  env=self.environment(), stdin=end, stdout=subprocess.PIPE,
                                  check=False)
        finally:
            os.close(terminal)
            os.close(end)

    def test_one_question(self) -> None:
        self.apt()
        for answer in ("n\n", "\x04"):
            result = self.asked(answer)
            self.assertEqual(result.returncode, 1)
            self.assertIn(b'"make deps FOR=unpack" does it later', result.stdout)
            self.assertEqual(self.log(), [])
        result = self.asked("\n")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout.count(b"?"), 1)
        self.assertEqual(len(self.log()), 3)
        # Now nothing is missing, and nothing is asked.
        self.assertEqual(self.asked("").stdout, b"")

    def test_answers_in_advance(self) -> None:
        for user, variable, value, installs in (
                ("0", "YES", "", False), ("0", "YES", "1", True), ("0", "CI", "true", True),
                ("1000", "CI", "true", False), ("1000", "YES", "1", True)):
            with self.subTest(user=user, variable=variable):
                self.apt()
                self.program("id", f"echo {user}")
                self.program("sudo", '"$@"')
                result = self.run_script("need", "unpack", **{variable: value})
                self.assertEqual(result.returncode == 0, installs, result.stdout)
                self.assertEqual(any(" install " in line for line in self.log()), installs)
                if not installs:
                    self.assertIn('run "make deps FOR=unpack"', result.stdout)
                    self.assertEqual(len(result.stdout.splitlines()), 1)
                for name in ("log", "bin/lz4", "bin/zstd"):
                    (self.tmp / name).unlink(missing_ok=True)

    def test_what_is_not_needed_comes_along_but_may_be_missing(self) -> None:
        self.apt()
        self.assertIn("ccache", self.run_script("install", "unpack").stdout)
        result = self.run_script("install", "unpack")
        self.assertEqual((result.returncode, result.stdout), (0, "deps: nothing is missing\n"))

    def test_headers_by_compiling(self) -> None:
        # This compiler knows one header only.
        self.program("gcc", 'text=$(cat)\n[ "$text" = "#include <zlib.h>" ]')
        said = self.run_script("check", "build").stdout
        self.assertIn(" libelf.h,", said)
        self.assertNotIn("zlib.h", said)

    def test_llvm_by_version(self) -> None:
        for name, script, missing in (("clang", "echo Debian clang version 14.0.6", True),
                                      ("clang", "echo clang version 18.1.0", False),
                                      ("clang", "echo Debian clang version 20.0.0", False),
                                      ("clang-17", "", True), ("clang-19", "", False)):
            with self.subTest(name=name, script=script):
                self.program(name, script)
                said = self.run_script("check", "compile").stdout
                self.assertEqual("a new clang," in said, missing, said)
                (self.bin / name).unlink()
        self.program("ld.lld", "echo 'Debian LLD 19.1.7 (compatible with GNU linkers)'")
        self.assertNotIn("a new ld.lld", self.run_script("check", "compile").stdout)

    def test_modules_by_import(self) -> None:
        (self.tmp / "none").write_text(f"#!{sys.executable}\nimport sys\nsys.exit(1)\n")
        (self.tmp / "none").chmod(0o755)
        environment = {**self.environment(), "PYTHON": f"{self.tmp}/none"}
        result = subprocess.run([str(self.bin / "sh"), str(deps.SCRIPT), "check", "draw"],
                                env=environment, text=True, stdout=subprocess.PIPE, check=False)
        self.assertIn("Python's matplotlib", result.stdout)
        self.assertIn("apt-get install python3-matplotlib", result.stdout)

    def test_without_a_package(self) -> None:
        self.system("ID=arch\nPRETTY_NAME=Arch\n")
        said = self.run_script("check", "intel").stdout
        self.assertIn("libisoburn", said)
        self.assertRegex(said, "no package of Arch is known for bochs")

    def test_installs_and_says_so_before(self) -> None:
        self.apt()
        result = self.run_script("install", "unpack")
        self.assertEqual(result.returncode, 0, result.stdout)
        packages = result.stdout.partition("deps: apt-get install ")[2].strip()
        self.assertLessEqual({"lz4", "zstd"}, set(packages.split()))
        self.assertEqual(self.log(), [
            "dpkg --configure -a", "apt-get update",
            f"apt-get install --yes --no-install-recommends {packages}"])

    def test_package_without_the_tool(self) -> None:
        self.system("ID=alpine\n")
        self.program("apk", "")
        result = self.run_script("install", "unpack")
        self.assertRegex(self.log()[0], "^apk add .*lz4 zstd$")
        self.assertIn("still missing: lz4, zstd", result.stdout)
        self.assertEqual(result.returncode, 1)

    def test_install_fails(self) -> None:
        self.system("ID=fedora\n")
        self.program("dnf", "echo no network; exit 1")
        result = self.run_script("install", "unpack")
        self.assertIn("no network\ndeps: the packages could not be installed", result.stdout)
        self.assertIn("network", result.stdout.splitlines()[-1])
        self.assertEqual(result.returncode, 1)

    def test_user_needs_sudo(self) -> None:
        self.system("ID=fedora\n")
        self.program("id", "echo 1000")
        self.program("dnf", "")
        self.assertIn("only root can install", self.run_script("install", "unpack").stdout)
        said = self.run_script("need", "unpack", YES="1").stdout
        self.assertIn("as root", said)
        self.assertEqual(len(said.splitlines()), 1)
        self.program("sudo", '"$@"')
        self.run_script("install", "unpack")
        self.assertRegex("\n".join(self.log()), "sudo dnf install --assumeyes .*lz4 zstd")

    def test_without_python_all_is_named_at_once(self) -> None:
        (self.bin / "python3").unlink()
        result = subprocess.run([str(shutil.which("make")), "-C", str(REPO), "series",
                                 "PYTHON=none", "--no-print-directory"],
                                env=self.environment(), stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stdout,
                         '^missing: ar, .*python3.*; run "make deps FOR=series", or .*\\n$')

    def test_commands_only_look(self) -> None:
        for name in ("dpkg", "apt-get", "sudo"):
            self.program(name, "")
        result = subprocess.run([sys.executable, str(REPO / "scripts/host.py"), "series"],
                                env=self.environment(), stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r'^missing: ar, git, .*; run "make deps FOR=series", or '
                                        r'"apt-get install binutils git .*"\n$')
        self.assertEqual(self.log(), [])


if __name__ == "__main__":
    unittest.main()
