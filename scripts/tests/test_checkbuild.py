# SPDX-License-Identifier: GPL-2.0-only
"""Tests of how "make check ALL=1" judges the output of compilers."""

import difflib
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Dict, List
from unittest import mock

from hostlib import checkbuild
from hostlib.check import Result
from hostlib.checkbuild import NotTried, Way
from hostlib.passed import Passed
from hostlib.source import Source
from hostlib.tree import topics
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
    """Tests with a PATH that has programs made by the tests."""

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
    """Tests of the changes after which a check that has passed is done again."""

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
    def _made(self, *paths: str, with_arm64: bool = True, listed: str = "") -> List[List[str]]:
        """Return make's arguments to compile programs after edits of these files."""
        self.kernels = {checkbuild.EACH_ON: mock.Mock(folder=Path("/each/kernel0"))}
        if with_arm64:
            self.kernels[checkbuild.EACH_ARM64] = mock.Mock(folder=Path("/each/kernel2"))
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(checkbuild.shutil, "which", return_value=None), \
                mock.patch.object(checkbuild, "run_logged") as run:
            makefile = Path(tmp) / "tools/testing/selftests/kvm/Makefile.kvm"
            makefile.parent.mkdir(parents=True)
            makefile.write_text(listed)
            checkbuild._compile_programs(
                _mail(tmp, *paths), Path(tmp), self.kernels,  # type: ignore[arg-type]
                Path(tmp), Path("/log"), 1)
            # No two runs of make have a log or a folder in common.
            calls = [call[0] for call in run.call_args_list]
            self.assertEqual(len({log for _, _, log in calls}), len(calls))
            made = [[each.replace(tmp, "") for each in argv] for _, argv, _ in calls]
            outputs = [each for argv in made for each in argv if each.startswith("OUTPUT=")]
            self.assertEqual(len(set(outputs)), len(outputs))
            return made

    def test_selftests_include_headers_of_this_kernel(self) -> None:
        made = self._made("tools/testing/selftests/kvm/a.c",
                          "tools/testing/selftests/perf_events/b.c")
        for argv, of_kvm in zip(made, (True, False)):
            self.assertIn("KHDR_INCLUDES=-isystem /each/kernel0/usr/include", argv)
            self.assertEqual("TEST_PROGS_x86=" in argv, of_kvm)
        self.assertEqual([argv[2] for argv in made], [f"/tools/testing/selftests/{name}"
                                                      for name in ("kvm", "perf_events")])
        self.assertEqual(self.kernels[checkbuild.EACH_ON].headers.call_count, 2)

    def test_selftests_of_arm64(self) -> None:
        kvm = "tools/testing/selftests/kvm"
        listed = ("TEST_GEN_PROGS_COMMON += memslots_debugfs_test\n"
                  "TEST_GEN_PROGS_COMMON += demand_paging_test\n"
                  "TEST_GEN_PROGS_x86 += guest_callchain_many_test\n"
                  "TEST_GEN_PROGS_arm64 += arm64/aarch32_id_regs\n"
                  "TEST_GEN_PROGS_arm64 += guest_callchain_test\n"
                  "TEST_GEN_PROGS_arm64 += arm64/guest_callchain_modes_test\n")
        for path in ("arm64/a_test.c", "lib/arm64/guest_stack.c", "include/arm64/guest_stack.h",
                     "Makefile.kvm"):
            x86, arm64 = self._made(f"{kvm}/{path}", listed=listed)
            self.assertNotIn("ARCH=arm64", x86)
            for argument in ("ARCH=arm64", "CC=aarch64-linux-gnu-gcc", "TEST_PROGS_arm64=",
                             "O=/each/kernel2",
                             "KHDR_INCLUDES=-isystem /each/kernel2/usr/include",
                             "TEST_GEN_PROGS_arm64=memslots_debugfs_test guest_callchain_test "
                             "arm64/guest_callchain_modes_test"):
                self.assertIn(argument, arm64)
            self.kernels[checkbuild.EACH_ARM64].headers.assert_called_once_with()
        for path in ("x86/a_test.c", "lib/guest_stack.c"):
            self.assertEqual(len(self._made(f"{kvm}/{path}", listed=listed)), 1)
        # Compile nothing for arm64 without its kernel, or before it has any of our programs.
        self.assertEqual(len(self._made(f"{kvm}/Makefile.kvm", listed=listed,
                                        with_arm64=False)), 1)
        self.assertEqual(len(self._made(f"{kvm}/Makefile.kvm")), 1)

    def test_the_last_patch_with_selftests_of_arm64(self) -> None:
        patch = next(topic.patch for topic in topics() if topic.patch.name.startswith("0210-"))
        self.assertTrue(checkbuild._is_of_arm64(checkbuild._edited(patch)))

    def test_a_compiler_without_a_libc(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            for status in (0, 1):
                compiler = Path(tmp) / "gcc"
                compiler.write_text(f"#!/bin/sh\ngrep -q '#include <stdio.h>' && exit {status}\n")
                compiler.chmod(0o755)
                self.assertEqual(checkbuild._has_libc(str(compiler)), not status)

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
        # Patches that can't be compiled, and patches before which the tree can't be compiled.
        self.fails = ""
        self.fails_before = ""
        self.missing: List[str] = []
        self.has_libc = True
        # Ways that can't be tried.
        self.not_tried: List[Way] = []
        self.compiled: List[str] = []
        self.before: List[str] = []
        self.tree = self.tmp / "linux"
        (self.tree / "lib").mkdir(parents=True)
        self.topics = [SimpleNamespace(series=series, patch=Path(f"{name}.patch"))
                       for series, name in (("fixes", "a"), ("kernel", "b"), ("kernel", "c"))]

        def compile_kernel(mail: Path, _: object) -> None:
            self.compiled.append(mail.name[0])
            if mail.name[0] in self.fails:
                raise Failure("broken")

        def compile_before(title: str) -> None:
            self.before.append(title[-1])
            if title[-1] in self.fails_before:
                raise Failure("broken before")

        def kernel(way: Way, *_: object) -> object:
            if way in self.not_tried:
                raise NotTried(f"there is no {way.compiler}")
            return mock.Mock(compile=compile_before, missing=lambda: self.missing)

        objects = mock.Mock()
        objects.changed.side_effect = lambda _: [f"a.o: {''.join(self.compiled[-1:])}"]
        for name, value in (("Tree", lambda *_, **__: mock.Mock(path=self.tree)),
                            ("_Kernel", kernel), ("topics", lambda: self.topics),
                            ("patched_files", lambda: {"f"}),
                            ("EACH", checkbuild.EACH[:2]), ("_version_of", lambda *_: "gcc 1"),
                            ("_compile_kernel", compile_kernel),
                            ("_compile_programs", mock.Mock()),
                            ("_title", lambda mail: mail.stem),
                            ("_has_libc", lambda _: self.has_libc),
                            ("optionoff.Objects", lambda _: objects),
                            ("optionoff.read_accepted", lambda: [])):
            patcher = mock.patch.object(
                checkbuild.optionoff if "." in name else checkbuild, name.split(".")[-1], value)
            patcher.start()
            self.addCleanup(patcher.stop)

    def _mail(self, name: str, before: str, after: str) -> Path:
        mail = self.tmp / f"{name}.patch"
        mail.write_text("[PATCH]\ndiff --git a/f b/f\n" + "".join(difflib.unified_diff(
            [f"{before}\n"], [f"{after}\n"], "a/f", "b/f")))
        return mail

    def _mails(self) -> List[Path]:
        """Each patch appends its text to a line of a file."""
        after = ["-" + "".join(self.texts[:number]) for number in range(len(self.texts) + 1)]
        return [self._mail(*each) for each in zip("abc", after, after[1:])]

    def _run(self) -> List[Result]:
        (self.tree / "f").write_text("-\n")
        (self.tree / "lib/Kconfig.debug").write_text("")
        self.compiled, self.before = [], []
        self.results = list(checkbuild.each_patch(
            Source("linux"), self._mails(), self.tmp / "each", self.tmp, 1,
            Passed(self.tmp / "passed.json")))
        return self.results

    def _passed_before(self) -> List[str]:
        """Return the patches that passed in an earlier run."""
        return [result.name[0] for result in self._run() if result.before]

    def _complaints(self) -> Dict[str, List[str]]:
        return {result.name.split(".")[0]: result.complaints for result in self._run()}

    def test_all_are_compiled_once(self) -> None:
        self.assertEqual(self._passed_before(), [])
        self.assertEqual(self.compiled, ["a", "a", "b", "b", "c", "c"])
        self.assertEqual(self._passed_before(), ["a", "b", "c"])
        self.assertEqual(self.compiled, [])

    def test_from_the_first_that_differs(self) -> None:
        self._run()
        self.texts[1] = "edited"
        self.assertEqual(self._passed_before(), ["a"])
        self.assertEqual(self.compiled, ["b", "b", "c", "c"])

    def test_until_the_files_are_the_same_again(self) -> None:
        self.texts = ["a", "bc", "d"]
        self._run()
        self.texts = ["ab", "c", "d"]
        self.assertEqual(self._passed_before(), ["c"])
        self.assertEqual(self.compiled, ["a", "a", "b", "b"])

    def test_what_is_built_is_that_of_the_patch_before(self) -> None:
        self._run()
        self.texts[2] = "edited"
        self._run()
        # One kernel with the option, and one without.
        self.assertEqual(self.before, ["c"] * 2)

    def test_from_the_one_that_failed(self) -> None:
        self.fails = "b"
        complaints = self._complaints()
        self.assertEqual((complaints["a"], complaints["b"]), ([], ["broken"]))
        self.fails = ""
        self.assertEqual(self._passed_before(), ["a", "c"])

    def test_one_that_is_behind_a_broken_one(self) -> None:
        """The broken patch's failure is reported once; this one is still applied and tried."""
        self.fails, self.fails_before = "b", "c"
        complaints = self._complaints()
        self.assertEqual((complaints["b"], complaints["c"]), (["broken"], []))
        self.assertEqual((self.tree / "f").read_text(), "-abc\n")
        self.assertEqual(self.compiled, ["a", "a", "b", "c", "c"])
        # It has not passed, because its changes to objects are not known.
        self.fails = self.fails_before = ""
        self.assertEqual(self._passed_before(), ["a"])

    def test_one_before_which_nothing_can_be_compiled(self) -> None:
        """It is applied nevertheless, so that the files of later patches match their keys."""
        self.fails_before = "a"
        complaints = self._complaints()
        self.assertEqual(complaints["a"], ["broken before"] * 2)
        self.assertEqual((complaints["b"], complaints["c"]), ([], []))
        self.assertEqual((self.tree / "f").read_text(), "-abc\n")

    def test_what_is_compiled_is_what_the_key_says(self) -> None:
        """Somebody edits a file while the patches are compiled."""
        with mock.patch.object(checkbuild, "_compile_programs", lambda mail, *_: (
                self.tree / "f").write_text("-abc \n") if mail.stem == "c" else None):
            self._run()
        self.assertEqual(self._passed_before(), ["a", "b"])

    def test_the_last_configuration_is_whole(self) -> None:
        self.missing = ["CONFIG_A=y"]
        for _ in range(2):
            complaints = self._complaints()
            self.assertEqual((complaints["a"], complaints["b"]), ([], []))
            self.assertEqual(complaints["c"],
                             [f"{name}: the kernel can't have CONFIG_A=y"
                              for name in ("option on", "option off")])
        self.missing = []
        self.assertEqual(self._passed_before(), ["a", "b"])

    def test_one_that_becomes_the_last(self) -> None:
        """Before it became the last, it only had to compile."""
        self._run()
        self.missing = ["CONFIG_A=y"]
        del self.texts[2], self.topics[2]
        self.assertTrue(self._complaints()["b"])

    def test_kernels_are_those_of_their_ways(self) -> None:
        """Without gcc, arm64's kernels are not mistaken for x86's."""
        self.not_tried = [checkbuild.EACH_ON, checkbuild.EACH_OFF]
        both = checkbuild.EACH
        for others in ((), (checkbuild.EACH_ARM64, Way("arm64, option off", "", "gcc"))):
            with mock.patch.object(checkbuild, "EACH", both + others):
                results = self._run()
            self.assertEqual([(result.name, result.not_tried) for result in results], [
                ("each patch, option on", "there is no gcc"),
                ("each patch, option off", "there is no gcc"),
                ("each patch", "it takes the kernels of x86")])
            self.assertEqual(self.compiled, [])

    def test_without_a_libc_of_arm64(self) -> None:
        name = "each patch, selftests of arm64"
        with mock.patch.object(checkbuild, "EACH", (*checkbuild.EACH, checkbuild.EACH_ARM64)):
            self.has_libc = False
            self.assertEqual((self._run()[0].name, self.results[0].not_tried),
                             (name, "there is no libc for aarch64-linux-gnu-gcc"))
            self.assertEqual(self._passed_before(), ["a", "b", "c"])
            # Once there is a libc, all patches are tried again.
            self.has_libc = True
            self.assertEqual(self._passed_before(), [])

    def test_each_mail_has_its_patch(self) -> None:
        del self.topics[0]
        with self.assertRaisesRegex(Failure, "3 mails of 2 patches"):
            self._run()

    def test_changes_of_objects_are_remembered(self) -> None:
        for _ in range(2):
            self.assertEqual(self._run()[-1].complaints,
                             ["b.patch changes a.o: b", "c.patch changes a.o: c"])

    def test_changes_that_nobody_knows(self) -> None:
        """If a patch's changes are not known, its entries in the list are not wrong."""
        accepted = checkbuild.optionoff.Accepted("b.patch", "a.o", "x", "why")
        with mock.patch.object(checkbuild.optionoff, "read_accepted", lambda: [accepted]):
            self.assertIn("option-off.txt: b.patch changes no a.o: x", self._run()[-1].complaints)
            (self.tmp / "passed.json").unlink()
            self.fails = "b"
            self.assertEqual(self._run()[-1].complaints, ["c.patch changes a.o: c"])


class ApplyTest(unittest.TestCase):
    def test_the_repository_of_a_hook_has_no_say(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            tree, mail = Path(tmp) / "build" / "linux", Path(tmp) / "a.patch"
            subprocess.run(["git", "init", "-q", tmp], check=True)
            tree.mkdir(parents=True)
            (tree / "f").write_text("1\n")
            mail.write_text("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n")
            # In a repository, git ignores files outside the folder that it is run in.
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
                return checkbuild._states(Path(folder), mails, ["f"])

        with tempfile.TemporaryDirectory() as tmp:
            first, second = mail("1", "1\n2\n", "a\n2\n"), mail("2", "a\n2\n", "a\nb\n")
            self.assertEqual(len(set(states(first, second))), 3)
            self.assertEqual(states(first, second)[2],
                             states(mail("both", "1\n2\n", "a\nb\n"))[1])
            # A mail that does not apply changes nothing.
            self.assertEqual(states(first, first)[1:], [states(first)[1]] * 2)
