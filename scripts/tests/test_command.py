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
from hostlib import flamegraph, pprof
from hostlib.stacks import GUEST_KERNEL, HOST, TASK, Frame

_SAMPLES = ("CPU 0/KVM G     \n\tffffffff81000010 vfs_read+0x10 ([guest.kernel.kallsyms])\n\n"
            "CPU 0/KVM K     \n\tffffffff81000010 kvm_vcpu_ioctl ([kernel.kallsyms])\n\n")
_READ = Frame("vfs_read", GUEST_KERNEL)
_GUEST = (Frame("CPU 0/KVM", TASK), _READ)


class CommandTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.text = self._text("new", _SAMPLES)

    def _text(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def _run(self, *arguments: str, page: str = "a.svg") -> Tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = command.main([*arguments, "-o", str(self.folder / page)])
        return status, said.getvalue()

    def _drawn(self, *arguments: str) -> List[object]:
        with mock.patch.object(flamegraph, "write") as write:
            self.assertEqual(self._run(*arguments)[0], 0)
        profiles, title, path = write.call_args[0]
        return [*map(dict, profiles), title]

    def test_guests_alone_with_the_host_and_compared(self) -> None:
        profile, title = self._drawn(self.text)
        self.assertEqual((profile, "1 samples" in str(title)), ({_GUEST: 1}, True))
        vcpu = Frame("CPU 0/KVM", HOST)
        self.assertEqual(self._drawn(self.text, "--joined")[0], {
            (vcpu, Frame("KVM_RUN (guest)", HOST), _READ): 1,
            (vcpu, Frame("kvm_vcpu_ioctl", HOST)): 1})
        *profiles, title = self._drawn(self.text, "--diff", self._text("old", 3 * _SAMPLES))
        self.assertEqual((profiles, "old" in str(title)), ([{_GUEST: 1}, {_GUEST: 3}], True))

    def test_standard_input(self) -> None:
        with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(_SAMPLES.encode() + b"\xff\n"))):
            self.assertEqual(self._drawn("-")[0], {_GUEST: 1})

    def test_a_profile_for_pprof(self) -> None:
        self.assertEqual(self._run(self.text, page="a.pb.gz")[0], 0)
        with mock.patch.object(pprof, "write") as write:
            self._run(self.text, page="a.pb.gz")
        self.assertEqual(dict(write.call_args[0][0]), {_GUEST: 1})

    def test_mistakes(self) -> None:
        """Each is told by one line, which names what to change."""
        empty, host_only = self._text("empty", ""), self._text("host", "a K     \n\t10 f\n\n")
        guest_only = self._text("guest", _SAMPLES.split("\n\n", maxsplit=1)[0])
        no_mode = self._text("no_mode", "a 1\n\t10 f\n\n")
        for word, arguments, page in (
                ("none", (str(self.folder / "none"),), "a.svg"),
                ("perf script -F", (no_mode,), "a.svg"), ("perf script -F", (empty,), "a.svg"),
                ("guest", (host_only,), "a.svg"), ("a.html", (self.text,), "a.html"),
                ("pprof", (self.text, "--diff", self.text), "a.pb.gz"),
                ("none", (self.text,), "none/a.pb.gz"),
                ("--host --guest", (guest_only, "--joined"), "a.svg")):
            with self.subTest(arguments):
                status, said = self._run(*arguments, page=page)
                self.assertEqual((status, len(said.splitlines())), (1, 1))
                self.assertIn(word, said)
