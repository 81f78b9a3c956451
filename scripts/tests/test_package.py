# SPDX-License-Identifier: GPL-2.0-only
"""Tests of packages: the configuration that they start from, and the options that it must keep."""

import gzip
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from doctor.perf import PERF
from hostlib import commands, kconfig, package
from hostlib.options import Options
from hostlib.package import find_config
from hostlib.source import Source
from hostlib.tree import INSTRUMENTS, REPO, topics
from hostlib.ui import Failure

_HOST = "CONFIG_X86_64=y\nCONFIG_MODULES=y\n"


class FindConfigTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.top = Path(tmp.name).resolve()

    def _find(self, given: str = "") -> Path:
        return find_config(given, self.top / "build", "7.0-test", self.top)

    def _write(self, name: str, text: str = _HOST) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {path}\n{text}")
        return path

    def test_running_kernel(self) -> None:
        self._write("boot/config-6.9-other")
        running = self._write("boot/config-7.0-test")
        self.assertEqual(self._find(), self.top / "build/base.config")
        self.assertIn(f"# {running}", self._find().read_text())

    def test_where_fedora_has_it(self) -> None:
        running = self._write("lib/modules/7.0-test/config")
        self.assertIn(f"# {running}", self._find().read_text())

    def test_in_proc(self) -> None:
        (self.top / "proc").mkdir()
        (self.top / "proc/config.gz").write_bytes(gzip.compress(_HOST.encode()))
        self.assertEqual(self._find().read_text(), _HOST)

    def test_given_wins(self) -> None:
        self._write("boot/config-7.0-test")
        given = self._write("mine")
        self.assertIn(f"# {given}", self._find(str(given)).read_text())

    def test_given_twice(self) -> None:
        given = self._write("build/base.config")
        self.assertIn(f"# {given}", self._find(str(given)).read_text())

    def test_what_is_no_text(self) -> None:
        whole = gzip.compress(_HOST.encode() * 99)
        for data in (whole[:40], whole[:20] + b"\xff" + whole[21:], b"# caf\xe9\n"):
            (self.top / "mine").write_bytes(data)
            with self.assertRaisesRegex(Failure, "mine can't be read .*; name another"):
                self._find(str(self.top / "mine"))

    def test_given_is_missing(self) -> None:
        self._write("boot/config-7.0-test")
        with self.assertRaisesRegex(Failure, "CONFIG=.*nowhere is no file; name"):
            self._find(str(self.top / "nowhere"))

    def test_none(self) -> None:
        with self.assertRaisesRegex(Failure, "7.0-test, is not on this machine; name one with"):
            self._find()

    def test_of_another_machine(self) -> None:
        for option in ("CONFIG_X86_64=y", "CONFIG_MODULES=y"):
            given = self._write("mine", _HOST.replace(option, ""))
            with self.assertRaisesRegex(Failure, f"mine does not say {option}, which"):
                self._find(str(given))


class PackagesTest(unittest.TestCase):
    def test_no_module_is_loaded(self) -> None:
        with tempfile.TemporaryDirectory() as tmp, mock.patch.dict(os.environ, clear=True):
            packages = package.Packages(Path(tmp), Source("none"), package.Config(
                Path(tmp) / "config", localmod=True))
            for loaded in (Path(tmp) / "missing", Path("/dev/null")):
                with mock.patch.object(package, "_LOADED", loaded), \
                        self.assertRaisesRegex(Failure, "none are; leave LOCALMOD=1 out"):
                    packages._local_config()

    def test_what_a_command_says_is_passed_on(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            packages = package.Packages(Path(tmp), Source("none"), package.Config(Path(tmp)))
            self.assertEqual(packages._ask("echo", "yes"), "yes")
            with self.assertRaisesRegex(Failure, "^sh failed, it says: no library$"):
                packages._ask("sh", "-c", "echo no library >&2; exit 2")

    def test_packages_to_install(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            folder = Path(tmp)
            packages = package.Packages(folder, Source("none"), package.Config(folder))
            (folder / "kernel").mkdir()
            (folder / "linux-image-old_1_amd64.deb").touch()

            def make(title: str, log: str, *args: str) -> None:
                for name in ("linux-image-7", "linux-headers-7", "linux-libc-dev"):
                    (folder / f"{name}_1_amd64.deb").touch()

            with mock.patch.object(packages, "_make", make):
                self.assertEqual([path.name for path in packages.kernel_deb()],
                                 ["linux-headers-7_1_amd64.deb", "linux-image-7_1_amd64.deb"])

    def test_no_instruments(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            packages = package.Packages(Path(tmp), Source("none"), package.Config(Path(tmp)))
            instruments = {topic.patch for topic in topics(INSTRUMENTS)}
            self.assertTrue(instruments)
            self.assertFalse(instruments.intersection(
                topic.patch for topic in packages._tree.topics))

    def test_options_are_heeded(self) -> None:
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(package, "Packages") as made, \
                mock.patch.object(package, "find_config") as found, \
                mock.patch.object(commands, "linux"):
            fragment = Path(tmp) / "fragment"
            fragment.touch()
            with mock.patch.object(commands, "results_dir"):
                commands.cmd_deb(Options(build=f"{tmp}/b", config="mine", localmod=True,
                                         kconfig=str(fragment)))
            self.assertEqual(found.call_args.args[0], "mine")
            config = made.call_args.args[2]
            self.assertEqual((config.base, config.fragment, config.localmod),
                             (found.return_value, fragment, True))
            made.return_value.build.assert_called_once_with("deb")

    def test_perf_is_called_so_everywhere(self) -> None:
        self.assertEqual(package.PERF, PERF)
        self.assertIn(package.PERF, (REPO / "README.md").read_text())


class DroppedTest(unittest.TestCase):
    def _dropped(self, fragment: str, config: str) -> str:
        with tempfile.TemporaryDirectory() as tmp:
            (Path(tmp) / "fragment").write_text(fragment)
            (Path(tmp) / "config").write_text(config)
            return " ".join(kconfig.dropped([Path(tmp) / "fragment"], Path(tmp) / "config"))

    def test_what_is_taken(self) -> None:
        self.assertEqual(self._dropped('# why\nCONFIG_A=y\nCONFIG_B=""\n# CONFIG_C is not set\n',
                                       'CONFIG_A=y\nCONFIG_B=""\n# CONFIG_C is not set\n'), "")

    def test_what_a_configuration_does_not_name_is_off_and_empty(self) -> None:
        self.assertEqual(self._dropped('CONFIG_B=""\n# CONFIG_C is not set\n', ""), "")

    def test_n_is_not_set(self) -> None:
        self.assertEqual(self._dropped("CONFIG_A=n\nCONFIG_B=y \n",
                                       "# CONFIG_A is not set\nCONFIG_B=y\n"), "")
        self.assertEqual(self._dropped("CONFIG_A=n\n", "CONFIG_A=y\n"),
                         "# CONFIG_A is not set")

    def test_what_is_dropped(self) -> None:
        self.assertEqual(self._dropped('CONFIG_A=y\nCONFIG_B=""\n# CONFIG_C is not set\n',
                                       'CONFIG_B="keys.pem"\nCONFIG_C=m\n'),
                         'CONFIG_A=y CONFIG_B="" # CONFIG_C is not set')


if __name__ == "__main__":
    unittest.main()
