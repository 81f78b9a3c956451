# SPDX-License-Identifier: GPL-2.0-only
"""The page that the demo draws, and what it says where it can't."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from typing import List, Tuple
from unittest import mock

from hostlib import demo, flamepage, npm
from hostlib.stacks import GUEST_KERNEL, Frame, Sample
from hostlib.ui import Failure

_SAMPLES = [Sample("G", ("vfs_read", "do_syscall_64"), ("8000000000000001", "8000000000000002")),
            Sample("G", (), ())]


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
                (("vfs_read", "el0_svc"), (kernel, kernel), False),
                (("vfs_read", "do_splice"), (kernel, kernel), False),
                (("vfs_read", "main"), (kernel, user), False),
                ((), (), False)):
            sample = Sample("G", names, addresses)
            self.assertEqual(demo.is_whole(sample, arm64), whole, names)


class PageTest(unittest.TestCase):
    def _write(self) -> Tuple[List[str], str]:
        """The files that are there then, and what was said."""
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
