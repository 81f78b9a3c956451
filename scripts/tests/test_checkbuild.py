# SPDX-License-Identifier: GPL-2.0-only
"""What "make check ALL=1" makes of what compilers say."""

import difflib
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import List
from unittest import mock

from hostlib import checkbuild
from hostlib.check import Result
from hostlib.checkbuild import NotTried, Way
from hostlib.passed import Passed
from hostlib.source import Source
from hostlib.ui import Failure

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

    def test_objects_that_it_passed_by(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            for name, command in (("a", "gcc a.c ; ./tools/objtool/objtool --orc a.o"),
                                  ("b", "gcc b.c")):
                (Path(tmp) / f".{name}.o.cmd").write_text(command)
            kernel = checkbuild._Kernel(Way("a", "", "gcc"), Path(), Path(tmp), Path(), 1)
            self.assertEqual(kernel.not_validated(["a.c", "b.c", "not-compiled.c", "b.h"]),
                             ["b.c"])


class ClangTest(unittest.TestCase):
    """A PATH with programs of ours."""

    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        self._program("scripts/min-tool-version.sh",
                      'case "$1 $SRCARCH" in "llvm x86") echo 17.0.1 ;; *) echo 18.0.0 ;; esac')
        patcher = mock.patch.dict(os.environ, {"PATH": f"{tmp.name}/bin:/usr/sbin"})
        patcher.start()
        self.addCleanup(patcher.stop)
        self._program("bin/sh", 'exec /bin/sh "$@"')

    def _program(self, path: str, script: str = "") -> None:
        (self.tmp / path).parent.mkdir(exist_ok=True)
        (self.tmp / path).write_text(f"#!/bin/sh\n{script}\n")
        (self.tmp / path).chmod(0o755)

    def _clang(self, name: str, version: str) -> None:
        self._program(f"bin/{name}", f"echo {version}")

    def test_the_usual_one_if_it_will_do(self) -> None:
        self._clang("clang", "17.0.1")
        self._clang("clang-19", "19.1.7")
        self.assertEqual(checkbuild.find_clang(self.tmp, "x86"), "clang")
        self.assertEqual(checkbuild.find_clang(self.tmp, "loongarch"), "clang-19")

    def test_the_newest_of_others(self) -> None:
        for version in ("9", "14", "19", "20"):
            self._clang(f"clang-{version}", f"{version}.0.0")
        self._clang("clang-format-21", "21.0.0")
        self._clang("clang", "14.0.6")
        self.assertEqual(checkbuild.find_clang(self.tmp, "x86"), "clang-20")

    def test_why_none_can_be_tried(self) -> None:
        with self.assertRaisesRegex(NotTried, "^there is no clang$"):
            checkbuild.find_clang(self.tmp, "x86")
        self._clang("clang", "14.0.6")
        self._clang("clang-16", "16.0.6")
        with self.assertRaisesRegex(NotTried, r"^clang 16\.0\.6 is older than 17\.0\.1 "
                                              r"\(scripts/min-tool-version\.sh\)$"):
            checkbuild.find_clang(self.tmp, "x86")

    def _told(self, way: Way) -> List[str]:
        return checkbuild.compiler_of(way, self.tmp)

    def test_what_make_is_told(self) -> None:
        x86 = Way("a", "arch/x86/kvm/", "clang")
        self._clang("clang-19", "19.1.7")
        with self.assertRaisesRegex(NotTried, "^there is no ld.lld-19$"):
            self._told(x86)
        for tool in checkbuild._LLVM:
            self._program(f"bin/{tool}-19")
        self.assertEqual(self._told(x86), ["LLVM=-19"])
        self._program("bin/ccache")
        self.assertEqual(self._told(x86), ["LLVM=-19", "CC=ccache clang-19", "HOSTCC=ccache gcc"])

    def test_other_compilers(self) -> None:
        for name, said in (("aarch64-linux-gnu-gcc", "CC=ccache aarch64-linux-gnu-gcc"),
                           ("sparse", "CC=ccache gcc")):
            way = Way("a", "arch/x86/kvm/", name)
            with self.assertRaisesRegex(NotTried, f"^there is no {name}$"):
                self._told(way)
            self._program(f"bin/{name}")
            self.assertEqual(self._told(way), [])
            self._program("bin/ccache")
            self.assertEqual(self._told(way), [said, "HOSTCC=ccache gcc"])
            (self.tmp / "bin/ccache").unlink()

    def test_not_tried_is_no_failure(self) -> None:
        with mock.patch.object(checkbuild, "run_logged") as run:
            result = checkbuild._try_way(
                Way("a", "arch/x86/kvm/", "sparse"),
                mock.Mock(path=self.tmp), {}, self.tmp / "way", self.tmp, 1)
        self.assertEqual((result.complaints, result.not_tried), ([], "there is no sparse"))
        run.assert_not_called()


def _mail(folder: str, *paths: str) -> Path:
    mail = Path(folder) / "0001-a.patch"
    mail.write_text("".join(f"--- a/{path}\n+++ b/{path}\n" for path in paths))
    return mail


class KeysTest(unittest.TestCase):
    """What makes something be checked again that has passed."""

    def test_a_tree_of_the_users_may_change_at_any_time(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            debians, own = Source("a"), Source("/a", tree=Path("/a"))
            for source in (debians, own):
                checkbuild.passed_before(source, Path(tmp)).add("key")
            self.assertIn("key", checkbuild.passed_before(debians, Path(tmp)))
            self.assertNotIn("key", checkbuild.passed_before(own, Path(tmp)))

    def test_sparse_comes_with_a_compiler(self) -> None:
        way = next(way for way in checkbuild.WAYS if way.compiler == "sparse")
        with mock.patch.object(checkbuild.shutil, "which", lambda name: name), \
                mock.patch.object(checkbuild, "said_by", lambda name, _: f"{name} 1"):
            self.assertEqual(checkbuild._version_of(way, Path()), "sparse 1\ngcc 1")

    def test_edits_of_what_checks(self) -> None:
        for name in ("checkbuild", "checksource", "tree"):
            before = checkbuild._checker()
            with mock.patch.object(Path, "read_text", autospec=True, side_effect=lambda path: (
                    "edited" if path.name == f"{name}.py" else path.read_bytes().decode())):
                self.assertNotEqual(checkbuild._checker(), before)

    def test_what_runs_counts_and_not_what_is_edited_meanwhile(self) -> None:
        tree = mock.Mock(path=Path("/none"))
        tree.ours.return_value = []
        before = checkbuild.inputs(Source("a"), tree)
        with mock.patch.object(Path, "read_text", return_value="edited"):
            self.assertEqual(checkbuild.inputs(Source("a"), tree), before)


class EachPatchTest(unittest.TestCase):
    def test_selftests_include_headers_of_this_kernel(self) -> None:
        kernel = mock.Mock(folder=Path("/each/kernel"))
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(checkbuild, "run_logged") as run:
            checkbuild._compile_programs(
                _mail(tmp, "tools/testing/selftests/kvm/a.c",
                      "tools/testing/selftests/perf_events/b.c"),
                Path("/linux"), kernel, Path(tmp), Path("/log"), 1)
        for (_, argv, _), of_kvm in zip((call[0] for call in run.call_args_list), (True, False)):
            self.assertIn("KHDR_INCLUDES=-isystem /each/kernel/usr/include", argv)
            self.assertEqual("TEST_PROGS_x86=" in argv, of_kvm)
        self.assertEqual([call[0][1][2] for call in run.call_args_list],
                         [f"/linux/tools/testing/selftests/{name}"
                          for name in ("kvm", "perf_events")])
        self.assertEqual(kernel.headers.call_count, 2)

    def test_programs_by_folder(self) -> None:
        for path, programs in (("virt/kvm/kvm_main.c", set()), ("Documentation/a.rst", set()),
                               ("tools/perf/a.c", {"perf"}),
                               ("tools/include/uapi/linux/a.h", {"perf"}),
                               ("tools/testing/selftests/kvm/x86/a.c", {"kvm"}),
                               ("tools/testing/selftests/perf_events/a.c", {"perf_events"})):
            with self.subTest(path):
                self.assertEqual(checkbuild._programs([path]), programs)

    def test_kernels_of_what_is_edited(self) -> None:
        kernels = {way.kvm: checkbuild._Kernel(way, Path(), Path("/a"), Path("/log"), 1)
                   for way in (Way("x86", "arch/x86/kvm/", "gcc"),
                               Way("arm64", "arch/arm64/kvm/", "gcc"))}
        for path, edited in (("virt/kvm/kvm_main.c", ["arch/x86/kvm/", "arch/arm64/kvm/"]),
                             ("arch/x86/include/asm/kvm_host.h", ["arch/x86/kvm/"]),
                             ("arch/arm64/kvm/at.c", ["arch/arm64/kvm/"]),
                             ("tools/perf/a.c", []), ("Documentation/a.rst", [])):
            with self.subTest(path):
                self.assertEqual([kvm for kvm, kernel in kernels.items()
                                  if kernel.is_edited([path])], edited)

    def test_a_new_option_is_chosen_before_it_is_compiled(self) -> None:
        kernel = mock.Mock()
        with tempfile.TemporaryDirectory() as tmp:
            checkbuild._compile_kernel(_mail(tmp, "kernel/events/core.c"), kernel)
            self.assertEqual([call[0] for call in kernel.method_calls],
                             ["is_edited", "compile"])
            kernel.reset_mock()
            checkbuild._compile_kernel(_mail(tmp, "arch/x86/kvm/Kconfig"), kernel)
            self.assertEqual([call[0] for call in kernel.method_calls],
                             ["is_edited", "configure", "compile"])
            kernel.reset_mock()
            kernel.is_edited.return_value = False
            checkbuild._compile_kernel(_mail(tmp, "arch/x86/kvm/Kconfig"), kernel)
            self.assertEqual([call[0] for call in kernel.method_calls], ["is_edited"])


class ResumeTest(unittest.TestCase):
    """Three patches, of which the first is a fix, and kernels that compile anything."""

    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        self.texts = ["a", "b", "c"]
        self.fails = ""
        self.compiled: List[str] = []
        topics = [SimpleNamespace(series=series, patch=Path(f"{name}.patch"))
                  for series, name in (("fixes", "a"), ("kernel", "b"), ("kernel", "c"))]

        def compile_kernel(mail: Path, _: object) -> None:
            self.compiled.append(mail.name[0])
            if mail.name[0] == self.fails:
                raise Failure("broken")

        tree = mock.Mock(path=self.tmp)
        objects = mock.Mock()
        objects.changed.side_effect = lambda _: [f"a.o: {''.join(self.compiled[-1:])}"]
        for name, value in (("Tree", lambda *_, **__: tree), ("_Kernel", mock.Mock()),
                            ("topics", lambda: topics), ("_apply", mock.Mock()),
                            ("EACH", checkbuild.EACH[:2]), ("_keys", self._keys),
                            ("_compile_kernel", compile_kernel),
                            ("_compile_programs", mock.Mock()),
                            ("optionoff.Objects", lambda _: objects),
                            ("optionoff.read_accepted", lambda: [])):
            patcher = mock.patch.object(
                checkbuild.optionoff if "." in name else checkbuild, name.split(".")[-1], value)
            patcher.start()
            self.addCleanup(patcher.stop)
        checkbuild._Kernel.return_value.missing.return_value = []  # type: ignore[attr-defined]
        (self.tmp / "lib").mkdir()

    def _keys(self, *_: object) -> List[str]:
        """Each patch appends its text to a file."""
        after = ["".join(self.texts[:number]) for number in range(4)]
        return [f"{first} {second}" for first, second in zip(after, after[1:])]

    def _run(self) -> List[Result]:
        mails = []
        for name, text in zip("abc", self.texts):
            mails.append(self.tmp / f"{name}.patch")
            mails[-1].write_text(f"[PATCH]\ndiff --git a/{text}")
        self.compiled = []
        return list(checkbuild.each_patch(
            SimpleNamespace(name="linux"), mails,  # type: ignore[arg-type]
            self.tmp / "each", self.tmp, 1, Passed(self.tmp / "passed.json")))

    def _before(self) -> List[str]:
        """Those that passed in an earlier run."""
        return [result.name[0] for result in self._run() if result.before]

    def test_all_are_compiled_once(self) -> None:
        self.assertEqual(self._before(), [])
        self.assertEqual(self.compiled, ["a", "a", "b", "b", "c", "c"])
        self.assertEqual(self._before(), ["a", "b", "c"])
        self.assertEqual(self.compiled, [])

    def test_from_the_first_that_differs(self) -> None:
        self._run()
        self.texts[1] = "edited"
        self.assertEqual(self._before(), ["a"])
        self.assertEqual(self.compiled, ["b", "b", "c", "c"])

    def test_until_the_files_are_the_same_again(self) -> None:
        self.texts = ["a", "bc", "d"]
        self._run()
        self.texts = ["ab", "c", "d"]
        self.assertEqual(self._before(), ["c"])
        self.assertEqual(self.compiled, ["a", "a", "b", "b"])

    def test_what_is_built_is_that_of_the_patch_before(self) -> None:
        self._run()
        before = checkbuild._Kernel.return_value.compile  # type: ignore[attr-defined]
        before.reset_mock()
        self.texts[2] = "edited"
        self._run()
        # One kernel with the option, and one without.
        self.assertEqual([call[0][0].split()[0] for call in before.call_args_list],
                         ["before"] * 2)

    def test_from_the_one_that_failed(self) -> None:
        self.fails = "b"
        results = {result.name: result.complaints for result in self._run()}
        self.assertEqual((results["a.patch"], results["b.patch"]), ([], ["broken"]))
        self.fails = ""
        self.assertEqual(self._before(), ["a", "c"])

    def test_changes_of_objects_are_remembered(self) -> None:
        for _ in range(2):
            self.assertEqual(self._run()[-1].complaints,
                             ["b.patch changes a.o: b", "c.patch changes a.o: c"])


class ApplyTest(unittest.TestCase):
    def test_the_repository_of_a_hook_has_no_say(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            tree, mail = Path(tmp) / "build" / "linux", Path(tmp) / "a.patch"
            subprocess.run(["git", "init", "-q", tmp], check=True)
            tree.mkdir(parents=True)
            (tree / "f").write_text("1\n")
            mail.write_text("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n")
            # There git passes by what lies above the folder that it is run in.
            with mock.patch.dict(os.environ, {"GIT_DIR": f"{tmp}/.git", "GIT_WORK_TREE": tmp}):
                checkbuild._apply(mail, tree)
            self.assertEqual((tree / "f").read_text(), "2\n")


class StatesTest(unittest.TestCase):
    def test_what_is_the_same_has_the_same_digest(self) -> None:
        def mail(name: str, old: str, new: str) -> Path:
            path = Path(tmp) / f"{name}.patch"
            path.write_text("message\ndiff --git a/f b/f\n" + "".join(difflib.unified_diff(
                old.splitlines(True), new.splitlines(True), "a/f", "b/f")))
            return path

        def states(*mails: Path) -> List[str]:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "f").write_text("1\n2\n")
                return checkbuild._states(Path(folder), mails)

        with tempfile.TemporaryDirectory() as tmp:
            first, second = mail("1", "1\n2\n", "a\n2\n"), mail("2", "a\n2\n", "a\nb\n")
            self.assertEqual(len(set(states(first, second))), 3)
            self.assertEqual(states(first, second)[2],
                             states(mail("both", "1\n2\n", "a\nb\n"))[1])
            # One that does not apply changes nothing.
            self.assertEqual(states(first, first)[1:], [states(first)[1]] * 2)
