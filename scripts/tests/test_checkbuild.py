# SPDX-License-Identifier: GPL-2.0-only
"""Tests of how "make check ALL=1" compiles the kernel, and judges the output of compilers."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from typing import List
from unittest import mock

from hostlib import checkbuild
from hostlib.check import Result
from hostlib.checkbuild import NotTried, Variant

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


class ObjtoolTest(unittest.TestCase):
    def test_of_objects(self) -> None:
        self.assertEqual(checkbuild.of_objects(
            "arch/x86/kvm/a.o: warning: objtool: f+0x1: call to g() with UACCESS enabled\n" * 2
            + "arch/x86/kvm/b.o: error: objtool: h() is too long\n"
            + "  AR      arch/x86/kvm/built-in.a\n"),
            ["arch/x86/kvm/a.o: objtool: f+0x1: call to g() with UACCESS enabled",
             "arch/x86/kvm/b.o: objtool: h() is too long"])


# A make that configures, and that says what is in the file "said" of the tree.
_MAKE = """
case $* in
*tiny.config*) : > ${3#O=}/tiny.config ;;
*kernel/events/*) cat $2/said; : > ${3#O=}/compiled ;;
esac
"""


class CompilersTest(unittest.TestCase):
    """Tests with a PATH that has programs made by the tests."""

    def setUp(self) -> None:
        self.tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ, {"PATH": f"{self.tmp}/bin"}))
        self._program("bin/sh", 'exec /bin/sh "$@"')
        self._program("bin/gcc")

    def _program(self, path: str, script: str = "") -> None:
        (self.tmp / path).parent.mkdir(parents=True, exist_ok=True)
        (self.tmp / path).write_text(f"#!/bin/sh\n{script}\n")
        (self.tmp / path).chmod(0o755)

    def test_what_make_is_told(self) -> None:
        self._program("bin/ccache")
        clang, linker = checkbuild.CLANG, "ld.lld-19"
        for name, said in ((clang, [f"CC=ccache {clang}", "LLVM=-19"]),
                           ("aarch64-linux-gnu-gcc", ["CC=ccache aarch64-linux-gnu-gcc"]),
                           ("sparse", ["CC=ccache gcc"])):
            with self.assertRaisesRegex(NotTried, name):
                checkbuild.compiler_args(name)
            self._program(f"bin/{name}")
            if name == clang:
                with self.assertRaisesRegex(NotTried, linker):
                    checkbuild.compiler_args(name)
                for tool in checkbuild._LLVM:
                    self._program(f"bin/{tool}-19")
            self.assertEqual(sorted(checkbuild.compiler_args(name)),
                             sorted([*said, "HOSTCC=ccache gcc"]))

    def _run(self, *variants: Variant) -> List[Result]:
        with mock.patch.object(checkbuild, "VARIANTS", variants), \
                contextlib.redirect_stdout(io.StringIO()):
            return list(checkbuild.run(self.tmp, {"kernel/a.c": {1}}, self.tmp / "check", 1))

    def _make(self, said: str = "", options: str = "") -> None:
        """Let make say something, and make a configuration."""
        self._program("bin/make", _MAKE)
        for tool in ("cat", "mkdir"):
            self._program(f"bin/{tool}", f'PATH=/bin:/usr/bin exec {tool} "$@"')
        (self.tmp / "said").write_text(said)
        self._program("scripts/kconfig/merge_config.sh",
                      f'shift 2; cat $3 > $1/.config; echo "{options}" >> $1/.config')

    def test_variants(self) -> None:
        self._make()
        gcc, sparse = Variant("one", "", "gcc"), Variant("two", "", "sparse")
        compiled, not_tried = self._run(gcc, sparse)
        self.assertEqual(compiled, Result("one"))
        self.assertEqual((not_tried.complaints, "sparse" in not_tried.not_tried), ([], True))

    def test_variants_that_fail(self) -> None:
        for said, options, config, complaint in (
                ("kernel/a.c:1:1: warning: ours\n", "", (), "kernel/a.c:1: ours"),
                ("x.o: warning: objtool: f is too long\n", "", (), "x.o: objtool: f is too long"),
                ("", "", ("CONFIG_A=y",), "CONFIG_A=y")):
            self._make(said, options)
            result, = self._run(Variant("a", "", "gcc", (), config))
            self.assertEqual(len(result.complaints), 1)
            self.assertIn(complaint, result.complaints[0])
        self._program("bin/make", "exit 1")
        self.assertTrue(self._run(Variant("b", "", "gcc"))[0].complaints)
