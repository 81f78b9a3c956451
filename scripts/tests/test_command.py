# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the command that draws flame graphs: its pictures and its messages."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from typing import List, Tuple
from unittest import mock

import flamegraph as command
from hostlib import flamepage, pprof
from hostlib.stacks import GUEST_KERNEL, HOST, Frame

_SAMPLES = ("CPU 0/KVM G     \n\tffffffff81000010 vfs_read+0x10 ([guest.kernel.kallsyms])\n\n"
            "CPU 0/KVM K     \n\tffffffff81000010 kvm_vcpu_ioctl ([kernel.kallsyms])\n\n")
_GUEST = (Frame("vfs_read", GUEST_KERNEL),)


class CommandTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.folder = Path(tmp.name)
        self.text = self._text("new", _SAMPLES)

    def _text(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def _run(self, *arguments: str, page: str = "a.html") -> Tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = command.main([*arguments, "-o", str(self.folder / page)])
        return status, said.getvalue()

    def _drawn(self, *arguments: str) -> List[object]:
        with mock.patch.object(flamepage, "write") as write:
            self.assertEqual(self._run(*arguments)[0], 0)
        profiles, title, path = write.call_args[0]
        return [*map(dict, profiles), title]

    def _fails(self, pattern: str, *arguments: str, page: str = "a.html") -> None:
        status, said = self._run(*arguments, page=page)
        self.assertEqual(status, 1)
        self.assertRegex(said, pattern)
        self.assertEqual(len(said.splitlines()), 1)

    def test_guests_alone(self) -> None:
        self.assertEqual(self._drawn(self.text), [
            {_GUEST: 1}, "Guests, sampled from the host: 1 samples"])

    def test_the_host_too(self) -> None:
        vcpu = Frame("CPU 0/KVM", HOST)
        self.assertEqual(self._drawn(self.text, "--joined", "--title", "t"), [
            {(vcpu, Frame("KVM_RUN (guest)", HOST), *_GUEST): 1,
             (vcpu, Frame("kvm_vcpu_ioctl", HOST)): 1}, "t"])

    def test_a_difference(self) -> None:
        self.assertEqual(self._drawn(self.text, "--diff", self._text("old", 3 * _SAMPLES)), [
            {_GUEST: 1}, {_GUEST: 3},
            "Guests, sampled from the host: 1 samples, compared with old"])

    def test_standard_input(self) -> None:
        with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(_SAMPLES.encode() + b"\xff\n"))):
            self.assertEqual(self._drawn("-")[0], {_GUEST: 1})

    def test_a_profile_for_pprof(self) -> None:
        self.assertEqual(self._run(self.text, page="a.pb.gz")[0], 0)
        with mock.patch.object(pprof, "write") as write:
            self._run(self.text, page="a.pb.gz")
        self.assertEqual(dict(write.call_args[0][0]), {_GUEST: 1})

    def test_mistakes(self) -> None:
        self._fails("can't be read .*standard input", str(self.folder / "none"))
        self._fails("does not say which samples.*perf script -F",
                    self._text("x", "a 1\n\t10 f\n\n"))
        self._fails("does not say which samples", self._text("x", ""))
        self._fails("No sample of .* hits a guest", self._text("x", "a K     \n\t10 f\n\n"))
        self._fails("neither a page nor a profile", self.text, page="a.svg")
        self._fails("compare them with pprof", self.text, "--diff", self.text, page="a.pb.gz")
        self._fails("can't be both", "-", "--diff", "-")
        self._fails("can't be written", self.text, page="none/a.pb.gz")
        self._fails("--host --guest", self._text("x", _SAMPLES.split("\n\n")[0]), "--joined")


if __name__ == "__main__":
    unittest.main()
