# SPDX-License-Identifier: GPL-2.0-only
"""What "make check ALL=1" makes of what compilers say."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib import checkbuild

_SAID = """make[1]: Entering directory '/work'
../virt/kvm/kvm_main.c:7:3: warning: ours [-Wunused]
../virt/kvm/kvm_main.c:8:3: warning: Linux's own [-Wunused]
/tmp/kernel/linux/kernel/events/new.c:1:1: error: ours too
../arch/x86/kvm/../../../virt/kvm/kvm_main.c:7:3: warning: once more
../include/linux/perf_event.h:9:3: warning: in a header
Warning: ../kernel/events/new.c:2 of kernel-doc
../virt/kvm/kvm_main.c: In function 'f':
"""


class ComplaintsTest(unittest.TestCase):
    def test_of_our_lines_only(self) -> None:
        ours = {"virt/kvm/kvm_main.c": {7}, "kernel/events/new.c": {1, 2},
                "include/linux/perf_event.h": {9}}
        self.assertEqual(checkbuild.complaints(_SAID, ours), [
            "virt/kvm/kvm_main.c:7: ours [-Wunused]",
            "kernel/events/new.c:1: ours too",
            "virt/kvm/kvm_main.c:7: once more",
            "include/linux/perf_event.h:9: in a header",
            "kernel/events/new.c:2: of kernel-doc"])


class SelftestsTest(unittest.TestCase):
    def test_include_headers_of_this_kernel(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            mail = Path(tmp) / "0001-a.patch"
            mail.write_text("+++ b/tools/testing/selftests/kvm/a.c\n")
            kernel = mock.Mock()
            with mock.patch.object(checkbuild, "run_logged") as run:
                checkbuild._compile_patch(mail, Path("/linux"), [kernel], Path("/each"),
                                          Path("/log"), 1)
        kernel.headers.assert_called_once()
        self.assertIn("KHDR_INCLUDES=-isystem /each/on/usr/include", run.call_args[0][1])


class TargetsTest(unittest.TestCase):
    def _targets(self, *paths: str) -> object:
        with tempfile.TemporaryDirectory() as tmp:
            mail = Path(tmp) / "0001-a.patch"
            mail.write_text("".join(f"--- a/{path}\n+++ b/{path}\n" for path in paths))
            return checkbuild._targets(mail)

    def test_by_folder(self) -> None:
        self.assertEqual(self._targets("virt/kvm/kvm_main.c", "Documentation/a.rst"), {"kernel"})
        self.assertEqual(self._targets("tools/perf/a.c", "tools/include/uapi/linux/a.h"), {"perf"})
        self.assertEqual(self._targets("tools/testing/selftests/kvm/x86/a.c"), {"selftests"})
        self.assertEqual(self._targets("Documentation/a.rst"), set())
