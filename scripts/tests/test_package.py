# SPDX-License-Identifier: GPL-2.0-only
"""Tests of packages: the configuration that they start from, and the options that it must keep."""

import gzip
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from doctor.perf import PERF
from hostlib import kconfig, package, packaging
from hostlib.options import Options
from hostlib.package import find_config
from hostlib.source import Source
from hostlib.patches import INSTRUMENTS, REPO, topics
from hostlib.ui import Failure

_HOST = "CONFIG_X86_64=y\nCONFIG_MODULES=y\n"


class FindConfigTest(unittest.TestCase):
    def setUp(self) -> None:
        self.top = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def _find(self, given: str = "") -> Path:
        return find_config(given and str(self.top / given), self.top / "build", "7.0-test",
                           self.top)

    def _write(self, name: str, data: bytes = _HOST.encode()) -> None:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def test_where_it_is_found(self) -> None:
        """The given one wins, even if it lies where the copy does; then that of this kernel."""
        self._write("boot/config-6.9-other", b"other")
        self._write("proc/config.gz", gzip.compress(f"# proc\n{_HOST}".encode()))
        self.assertIn("# proc", self._find().read_text())
        for name in ("lib/modules/7.0-test/config", "boot/config-7.0-test"):
            self._write(name, f"# {name}\n{_HOST}".encode())
            self.assertIn(f"# {name}", self._find().read_text())
        self.assertEqual(self._find(), self.top / "build/base.config")
        for given in ("mine", "build/base.config"):
            self._write(given, f"# {given}\n{_HOST}".encode())
            self.assertIn(f"# {given}", self._find(given).read_text())

    def test_what_is_none(self) -> None:
        with self.assertRaises(Failure) as failure:
            self._find()
        self.assertIn("7.0-test", str(failure.exception))
        self._write("boot/config-7.0-test")
        whole = gzip.compress(_HOST.encode() * 99)
        for data, why in ((None, "CONFIG="), (whole[:40], "read"), (b"# caf\xe9\n", "read"),
                          (whole[:20] + b"\xff" + whole[21:], "read"),
                          (b"CONFIG_X86_64=y\n", "CONFIG_MODULES"),
                          (b"CONFIG_MODULES=y\n", "CONFIG_X86_64")):
            if data:
                self._write("mine", data)
            with self.subTest(data), self.assertRaises(Failure) as failure:
                self._find("mine")
            self.assertRegex(str(failure.exception), f"(?s)mine.*{why}|{why}.*mine")


class PackagesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.packages = package.Packages(self.folder, Source("none"), self.folder / "config")

    def test_no_module_is_loaded(self) -> None:
        self.enterContext(mock.patch.dict(os.environ, clear=True))
        for loaded in (self.folder / "missing", Path("/dev/null")):
            with mock.patch.object(package, "_LOADED", loaded), \
                    self.assertRaises(Failure) as failure:
                self.packages._local_config()
            self.assertIn("LOCALMOD=1", str(failure.exception))

    def test_what_a_command_says_is_passed_on(self) -> None:
        self.assertEqual(self.packages._ask("echo", "yes"), "yes")
        with self.assertRaises(Failure) as failure:
            self.packages._ask("sh", "-c", "echo no library >&2; exit 2")
        self.assertIn("no library", str(failure.exception))

    def test_packages_to_install(self) -> None:
        (self.folder / "kernel").mkdir()
        (self.folder / "linux-image-old_1_amd64.deb").touch()

        def make(title: str, log: str, *args: str) -> None:
            for name in ("linux-image-7", "linux-headers-7", "linux-libc-dev"):
                (self.folder / f"{name}_1_amd64.deb").touch()

        with mock.patch.object(self.packages, "_make", make):
            self.assertEqual([path.name for path in self.packages._kernel_debs()],
                             ["linux-headers-7_1_amd64.deb", "linux-image-7_1_amd64.deb"])

    def test_no_instruments(self) -> None:
        instruments = {topic.patch for topic in topics() if topic.series == INSTRUMENTS}
        self.assertTrue(instruments)
        self.assertFalse(instruments.intersection(
            topic.patch for topic in self.packages._tree.topics))

    def test_options_are_heeded(self) -> None:
        with mock.patch.object(package, "Packages") as made, \
                mock.patch.object(package, "find_config") as found, \
                mock.patch.object(packaging, "linux"):
            packaging.packages_of(Options(localmod=True), self.folder / "b", "mine",
                                  Path("fragment"))
        self.assertEqual(found.call_args.args[0], "mine")
        self.assertEqual(made.call_args.args[2:5], (found.return_value, Path("fragment"), True))

    def test_perf_is_called_so_everywhere(self) -> None:
        self.assertEqual(package.PERF, PERF)
        self.assertIn(package.PERF, (REPO / "README.md").read_text())


class DroppedTest(unittest.TestCase):
    def test_what_a_configuration_lacks_of_a_fragment(self) -> None:
        tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for fragment, config, dropped in (
                ('# why\nCONFIG_A=y\nCONFIG_B=""\n# CONFIG_C is not set\n',
                 'CONFIG_A=y\nCONFIG_B=""\n# CONFIG_C is not set\n', []),
                # What a configuration does not name is off, and empty.
                ('CONFIG_B=""\n# CONFIG_C is not set\n', "", []),
                ("CONFIG_A=n\nCONFIG_B=y \n", "# CONFIG_A is not set\nCONFIG_B=y\n", []),
                ("CONFIG_A=n\n", "CONFIG_A=y\n", ["# CONFIG_A is not set"]),
                ('CONFIG_A=y\nCONFIG_B=""\n# CONFIG_C is not set\n',
                 'CONFIG_B="keys.pem"\nCONFIG_C=m\n',
                 ["CONFIG_A=y", 'CONFIG_B=""', "# CONFIG_C is not set"])):
            (tmp / "fragment").write_text(fragment)
            (tmp / "config").write_text(config)
            self.assertEqual(list(kconfig.dropped([tmp / "fragment"], tmp / "config")), dropped)

    def test_what_a_kernel_can_not_have_is_told(self) -> None:
        tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        script, base, fragment = tmp / "scripts/kconfig/merge_config.sh", tmp / "a", tmp / "b"
        script.parent.mkdir(parents=True)
        # This kernel has no B.
        script.write_text(f'grep -h -v B= {base} {fragment} > {tmp}/.config\n')
        base.write_text("CONFIG_A=y\n")
        fragment.write_text("CONFIG_C=y\n")
        kconfig.merge_all(tmp, tmp, base, [fragment], lambda *_: None, tmp)
        fragment.write_text("CONFIG_C=y\nCONFIG_B=y\n")
        with self.assertRaisesRegex(Failure, "CONFIG_B=y"):
            kconfig.merge_all(tmp, tmp, base, [fragment], lambda *_: None, tmp)
