# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the demo's checks."""

import dataclasses
import tempfile
import unittest
from collections import Counter
from pathlib import Path

from hostlib import demo
from hostlib.arch import ARM64, X86, Arch
from hostlib.stacks import Sample

_KERNEL, _USER = "ffff800080000000", "401000"


class SamplesTest(unittest.TestCase):
    def test_text_must_be_the_same(self) -> None:
        for theirs, status, failed in (("a\n", 0, 0), ("b\n", 0, 1), ("", 0, 1), ("a\n", 1, 1)):
            with tempfile.TemporaryDirectory() as tmp:
                folder = Path(tmp)
                perf = folder / "perf"
                perf.write_text(f"#!/bin/sh\n[ -z '{theirs}' ] || echo a\nexit {status}\n")
                perf.chmod(0o755)
                (folder / "samples.txt").write_text(theirs)
                counts = demo.read_here(perf, folder)
            self.assertEqual(counts.failed, failed, (theirs, status))

    def test_user_mode_is_the_outermost(self) -> None:
        entry = "entry_SYSCALL_64_after_hwframe"
        samples = [Sample("G", ("vfs_read", entry, "main"), (_KERNEL, _KERNEL, _USER)),
                   Sample("G", ("vfs_read", entry), (_KERNEL, _KERNEL)),
                   Sample("G", ("asm_exc_page_fault", "main"), (_KERNEL, _USER)),
                   Sample("g", ("main",), (_USER,))]
        self.assertEqual(demo.system_calls(samples, entry), (2, 1))

    def test_only_an_entry_alone_has_no_callers(self) -> None:
        for names, entry in ((("vectors",), True), (("el0t_64_sync",), True),
                             (("vfs_read",), False), (("vectors", "main"), False), ((), False)):
            sample = Sample("G", names, tuple(_USER if name == "main" else _KERNEL
                                              for name in names))
            self.assertEqual(demo.is_entry(sample, demo._FUNCTIONS["arm64"]), entry, names)
        # x86's entries are not sampled alone: there, nothing is left out.
        sample = Sample("G", ("asm_exc_page_fault",), (_KERNEL,))
        self.assertFalse(demo.is_entry(sample, demo._FUNCTIONS["x86"]))

    def test_whole_if_the_kernel_begins_where_it_is_entered(self) -> None:
        for arch, names, whole in (
                ("arm64", ("vfs_read", "el0_svc", "el0t_64_sync", "main"), True),
                ("arm64", ("vfs_read", "el0t_64_sync"), True),
                ("arm64", ("schedule", "ret_from_fork"), True),
                ("arm64", ("vectors", "main"), True),
                ("arm64", ("vectors",), False),
                ("arm64", ("vfs_read", "el0_svc"), False),
                ("arm64", ("vfs_read", "do_splice"), False),
                ("arm64", ("vfs_read", "main"), False),
                ("arm64", (), False),
                ("x86", ("vfs_read", "entry_SYSCALL_64_after_hwframe"), True)):
            sample = Sample("G", names, tuple(_USER if name == "main" else _KERNEL
                                              for name in names))
            self.assertEqual(demo.is_whole(sample, demo._FUNCTIONS[arch]), whole, names)


class CheckTest(unittest.TestCase):
    def _failed(self, arch: Arch, **changes: object) -> int:
        """Return the number of failures of a good profile with some changes."""
        functions = demo._FUNCTIONS[arch.name]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file in ("report.txt", "flamegraph.svg"):
                (folder / file).write_text(" ".join(functions.expected))
            profile = demo.Profile(folder, True, True, functions, Counter([functions.expected]),
                                   1000, 1000, 1000, 1000, 100, 100, 1)
            return demo.check(dataclasses.replace(profile, **changes)).failed

    def test_each_number_counts(self) -> None:
        for arch in (X86, ARM64):
            self.assertEqual(self._failed(arch), 0)
            for name, enough in (("kernel_whole", 950), ("kernel_with_frames", 900),
                                 ("from_user", 90), ("json_samples", 1)):
                with self.subTest(name):
                    self.assertEqual(self._failed(arch, **{name: enough}), 0)
                    self.assertEqual(self._failed(arch, **{name: enough - 1}), 1)
            self.assertEqual(self._failed(arch, folded=Counter([("vfs_read",)])), 1)
            self.assertEqual(self._failed(arch, has_read=False), 1)
            self.assertEqual(self._failed(arch, may_read=False), 1)
            self.assertEqual(self._failed(arch, may_read=False, has_read=False, from_user=0), 0)
