# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the demo: its checks, its page, and its message if it can't draw the page."""

import contextlib
import dataclasses
import io
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import List, Tuple
from unittest import mock

from hostlib import demo, flamepage, npm
from hostlib.arch import ARM64, X86, Arch
from hostlib.stacks import GUEST_KERNEL, Frame, Sample
from hostlib.ui import Failure

_SAMPLES = [Sample("G", ("vfs_read", "do_syscall_64"), ("8000000000000001", "8000000000000002")),
            Sample("G", (), ())]


class ReadHereTest(unittest.TestCase):
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


class SystemCallsTest(unittest.TestCase):
    def test_user_mode_is_the_outermost(self) -> None:
        kernel, user = "8000000000000001", "401000"
        entry = "entry_SYSCALL_64_after_hwframe"
        samples = [Sample("G", ("vfs_read", entry, "main"), (kernel, kernel, user)),
                   Sample("G", ("vfs_read", entry), (kernel, kernel)),
                   Sample("G", ("asm_exc_page_fault", "main"), (kernel, user)),
                   Sample("g", ("main",), (user,))]
        self.assertEqual(demo.system_calls(samples, entry), (2, 1))

    def test_whole_if_the_kernel_begins_where_it_is_entered(self) -> None:
        arm64, kernel, user = demo._FUNCTIONS["arm64"], "ffff800080000000", "401000"
        for names, addresses, whole in (
                (("vfs_read", "el0_svc", "el0t_64_sync", "main"), (kernel,) * 3 + (user,), True),
                (("vfs_read", "el0t_64_sync"), (kernel, kernel), True),
                (("schedule", "ret_from_fork"), (kernel, kernel), True),
                (("vectors", "main"), (kernel, user), True),
                (("vectors",), (kernel,), False),
                (("vfs_read", "el0_svc"), (kernel, kernel), False),
                (("vfs_read", "do_splice"), (kernel, kernel), False),
                (("vfs_read", "main"), (kernel, user), False),
                ((), (), False)):
            sample = Sample("G", names, addresses)
            self.assertEqual(demo.is_whole(sample, arm64), whole, names)
        self.assertTrue(demo.is_whole(Sample("G", ("vfs_read", "entry_SYSCALL_64_after_hwframe"),
                                             ("8000000000000001",) * 2), demo._FUNCTIONS["x86"]))


class CheckTest(unittest.TestCase):
    def _failed(self, arch: Arch, **changes: object) -> List[str]:
        """Return the failures of a good profile with some changes."""
        functions = demo._FUNCTIONS[arch.name]
        known = Counter({("a",) * depth: 50 for depth in demo._DEPTHS})
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file in ("report.txt", "flamegraph.svg"):
                (folder / file).write_text(" ".join(functions.expected))
            profile = demo.Profile(folder, functions, Counter([functions.expected]), 1000, 1000,
                                   1000, 1000, 100, 100, 1, known, known)
            counts = demo.check(dataclasses.replace(profile, **changes), arch)
        self.assertEqual(counts.failed, sum("failed" in remark for remark in counts.remarks))
        return [remark for remark in counts.remarks if "failed" in remark]

    def test_good_ones_pass(self) -> None:
        self.assertEqual(self._failed(X86), [])
        self.assertEqual(self._failed(ARM64), [])

    def test_chains_that_end_too_early(self) -> None:
        for arch in (X86, ARM64):
            self.assertEqual(self._failed(arch, kernel_whole=950), [])
            self.assertIn("95 % must", " ".join(self._failed(arch, kernel_whole=949)))

    def test_only_x86_has_both_ways(self) -> None:
        other: "Counter[Tuple[str, ...]]" = Counter({("b",): 100})
        self.assertEqual(len(self._failed(X86, immediate=other)), 1)
        self.assertEqual(self._failed(ARM64, immediate=other), [])

    def test_both_ways_find_the_known_stacks_only(self) -> None:
        known = Counter({("a",) * depth: 50 for depth in demo._DEPTHS})
        more = known + Counter({("a",) * demo._DEPTHS[1]: 500})
        self.assertEqual(self._failed(X86, immediate=more), [])
        for bad in (known + Counter({("a",): 1}), known - Counter({("a",) * demo._DEPTHS[0]: 1})):
            self.assertEqual(len(self._failed(X86, immediate=bad)), 1)
            self.assertEqual(len(self._failed(X86, deferred=bad)), 1)


class PageTest(unittest.TestCase):
    def _write(self) -> Tuple[List[str], str]:
        """Return the files that were written, and the output."""
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
            demo._write_page(_SAMPLES, "title", Path(folder) / "flamegraph.html")
            return [path.name for path in Path(folder).iterdir()], said.getvalue()

    def test_one_sentence_where_npm_has_nothing(self) -> None:
        with mock.patch.object(npm, "fetch", side_effect=Failure("npm can't fetch it")):
            self.assertEqual(self._write(), (
                [], "There is no flamegraph.html, only the static picture: npm can't fetch it.\n"))

    def test_the_page_has_the_samples_with_frames(self) -> None:
        with mock.patch.object(npm, "read", return_value=""):
            self.assertEqual(self._write(), (["flamegraph.html"], ""))
        with mock.patch.object(flamepage, "write") as write:
            self._write()
        stack = (Frame("do_syscall_64", GUEST_KERNEL), Frame("vfs_read", GUEST_KERNEL))
        self.assertEqual([dict(profile) for profile in write.call_args[0][0]], [{stack: 1}])


if __name__ == "__main__":
    unittest.main()
