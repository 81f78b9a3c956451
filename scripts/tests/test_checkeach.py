# SPDX-License-Identifier: GPL-2.0-only
"""Tests of compiling each patch: a made-up Linux in git, and a made-up make."""

import contextlib
import io
import os
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List
from unittest import mock

from hostlib import checkeach, objectdiff
from hostlib.check import Result
from hostlib.git import WRITER, Repository
from hostlib.patches import Topic

# A make for sources in which each line is the name of a function and its code.  Lines that begin
# with "on" count if the option is on; a line "broken" does not compile.
_MAKE = r"""#!/bin/sh
echo "$@" >> MADE
compile() {
	: > $2
	while read -r name code; do
		[ $name != broken ] || { echo "$1: error: broken"; exit 1; }
		[ $name != on ] || [ $on ] && printf '<%s>:\n\t%s\n' $name "$code" >> $2
	done < $1
}
while [ $# -gt 0 ]; do
	case $1 in
	-C) cd "$2"; shift ;;
	O=*) O=${1#O=}
		[ -f $O/on ] && on=1 ;;
	OUTPUT=*) output=${1#OUTPUT=} ;;
	KHDR_INCLUDES=*) headers=${1##* } ;;
	KBUILD_KCONFIG=*) kconfig=${1#*=} ;;
	KCONFIG_CONFIG=*) : > ${1#*=} ;;
	olddefconfig)
		grep -q 'select HAVE_GUEST_PERF_CALLCHAIN' $kconfig || exit
		grep -q 'config GUEST_PERF_CALLCHAIN' $kconfig ||
			sed -i /CONFIG_GUEST_PERF_CALLCHAIN=y/d $O/.config
		grep -q CONFIG_GUEST_PERF_CALLCHAIN=y $O/.config && : > $O/on ;;
	headers) mkdir -p $O/usr/include ;;
	*/) [ -d $O/$1 ] || mkdir -p $O/$1; for file in $1*.c; do compile $file $O/${file%.c}.o; done ;;
	TEST_GEN_PROGS_x86=*|TEST_GEN_PROGS_arm64=*)
		for test in ${1#*=}; do
			[ -d $headers ] && compile $test.c $output/$test || exit
		done ;;
	esac
	shift
done
[ ! -f perf.c ] || compile perf.c $O/perf
"""

_LINUX = {
    "Kconfig": "config KVM\n",
    "scripts/kconfig/merge_config.sh": 'shift 2; folder=$1; shift; cat "$@" > $folder/.config\n',
    "kernel/events/core.c": "core ret 0\n",
    "kernel/events/uprobes.c": "probe ret 0\n",
    "arch/x86/events/core.c": "x86 ret 0\n",
    "arch/x86/kvm/x86.c": "kvm ret 0\n",
    "arch/arm64/kvm/arm.c": "kvm ret 0\n",
    "tools/perf/perf.c": "perf ret 0\n",
    "tools/testing/selftests/kvm/Makefile.kvm": "TEST_GEN_PROGS_COMMON += linux_test\n",
}

_TOOLS = ("sh", "git", "sed", "grep", "mkdir", "cat")
_ARM64 = "aarch64-linux-gnu-gcc"
_CORE = "kernel/events/core.c"
_KVM = "tools/testing/selftests/kvm"
_LISTING = f"{_KVM}/Makefile.kvm"


class EachPatchTest(unittest.TestCase):
    def setUp(self) -> None:
        self.tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.tmp / "bin").mkdir()
        for name in _TOOLS:
            (self.tmp / "bin" / name).symlink_to(str(shutil.which(name)))
        self._program("make", _MAKE.replace("MADE", f"{self.tmp}/made"))
        self._program("gcc", "echo gcc 1")
        self._program("objdump", 'cat "$4"')
        self.accepted = self.tmp / "option-off.txt"
        self.accepted.write_text("")
        self.enterContext(mock.patch.dict(os.environ, {"PATH": f"{self.tmp}/bin"}))
        self.enterContext(mock.patch.object(objectdiff.read_accepted, "__defaults__",
                                            (self.accepted,)))
        self.enterContext(contextlib.redirect_stdout(io.StringIO()))
        self.repo = Repository(self.tmp / "linux")
        self.repo.init()
        self._commit(_LINUX)
        self.repo.git("tag", "base")

    def _program(self, name: str, script: str) -> None:
        path = self.tmp / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def _commit(self, files: Dict[str, str]) -> None:
        for name, text in files.items():
            path = self.repo.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.repo.commit_all("a commit")

    def _run(self, *patches: Dict[str, str]) -> Dict[str, Result]:
        """Check patches a, b, c ..., each of which writes some files."""
        topics = [Topic(Path(f"{name}.patch"), (), "kernel" if name > "a" else self.first)
                  for name, _ in zip("abcdefg", patches)]
        stream, parent = "", "refs/tags/base"
        for mark, files in enumerate(patches, 1):
            stream += (f"commit refs/heads/series/{topics[-1].series}\nmark :{mark}\n"
                       f"committer {WRITER}\ndata 1\na\nfrom {parent}\n")
            stream += "".join(f"M 644 inline {path}\ndata {len(text)}\n{text}\n"
                              for path, text in files.items())
            parent = f":{mark}"
        self.repo.fast_import(stream.encode())
        (self.tmp / "made").write_text("")
        results = {result.name.replace(".patch", ""): result for result in checkeach.run(
            self.repo, topics, self.tmp / "each", 1)}
        self.made = (self.tmp / "made").read_text().splitlines()
        return results

    @staticmethod
    def _failed(results: Dict[str, Result]) -> str:
        """Return the patches that fail."""
        return "".join(name for name, result in results.items()
                       if result.complaints and len(name) == 1)

    def _objects(self, results: Dict[str, Result]) -> List[str]:
        return results["object code without the option"].complaints

    # The series of the first patch.
    first = "fixes"

    # Three patches; the option is there after the last one.
    A = {_CORE: "core ret 1\n"}
    B = {"kernel/events/uprobes.c": "probe ret 2\n"}
    C = {"arch/x86/kvm/x86.c": "on ret 1\nkvm ret 1\n",
         "Kconfig": "config GUEST_PERF_CALLCHAIN\n"}

    def test_functions_that_change(self) -> None:
        results = self._run(self.A, self.B, self.C)
        self.assertEqual(self._failed(results), "")
        # Those of a fix are meant for all kernels.
        self.assertEqual(self._objects(results), [
            "b.patch changes kernel/events/uprobes.o: probe",
            "c.patch changes arch/x86/kvm/x86.o: kvm"])
        self.first = "kernel"
        self.assertEqual(self._objects(self._run(self.A)),
                         ["a.patch changes kernel/events/core.o: core"])

    def test_one_that_does_not_compile(self) -> None:
        patches = self.A, {"kernel/events/uprobes.c": "broken\n"}, {**self.B, **self.C}
        results = self._run(*patches)
        self.assertEqual(self._failed(results), "b")
        # The one behind it is tried, but what it changes is not known.
        self.assertEqual(self._objects(results), [])
        self.accepted.write_text("c.patch a.o f a reason\nb.patch a.o f a reason\n")
        self.assertEqual(self._objects(self._run(*patches)), [])

    def test_a_tree_that_did_not_compile_before_any_patch(self) -> None:
        self._commit({_CORE: "broken\n"})
        self.repo.git("tag", "-f", "base")
        result, = [each for each in self._run(self.A).values() if not each.not_tried]
        self.assertTrue(result.complaints)

    def test_an_option_is_chosen_as_soon_as_it_exists(self) -> None:
        self._run(self.A, self.C)
        objects = [self.tmp / "each" / kernel / "arch/x86/kvm/x86.o"
                   for kernel in ("kernel0", "kernel1")]
        self.assertEqual(["<on>" in path.read_text() for path in objects], [True, False])

    def test_lines_of_the_list(self) -> None:
        self.accepted.write_text("b.patch kernel/*.o p* a reason\nb.patch kernel/*.o g a reason\n")
        self.assertEqual(self._objects(self._run(self.A, {**self.B, **self.C})), [
            "b.patch changes arch/x86/kvm/x86.o: kvm",
            "option-off.txt: b.patch changes no kernel/*.o: g"])

    def test_without_a_compiler(self) -> None:
        (self.tmp / "bin/gcc").unlink()
        self._program(_ARM64, "exit 0")
        results = self._run(self.A)
        self.assertNotIn("a", results)
        self.assertTrue(all(result.not_tried for result in results.values()))
        self.assertEqual(self.made, [])

    def _made(self) -> Dict[str, str]:
        """Return what was compiled for each patch, from the names of the logs."""
        logs = sorted(path.stem for path in (self.tmp / "each/log").glob("[a-z]-*"))
        return {name: " ".join(log[2:] for log in logs if log[0] == name and "off" not in log)
                for name in dict.fromkeys(log[0] for log in logs)}

    def test_only_what_is_edited(self) -> None:
        self._program(_ARM64, "echo gcc 1")
        results = self._run(
            {"Documentation/a.rst": "text\n"}, {"arch/arm64/kvm/arm.c": "kvm ret 1\n"}, self.A,
            {"arch/x86/kvm/x86.c": "kvm ret 2\n"}, {"tools/perf/perf.c": "broken\n"},
            {"tools/perf/perf.c": "perf ret 1\n"}, self.C)
        arm64, x86 = "kernel-arm64-option-on", "kernel-option-on"
        self.assertEqual(self._made(), {"b": arm64, "c": f"{arm64} {x86}", "d": x86, "e": "perf",
                                        "f": "perf", "g": f"{arm64} {x86}"})
        self.assertEqual(self._failed(results), "e")

    def test_selftests(self) -> None:
        listed = f"{_LINUX[_LISTING]}TEST_GEN_PROGS_x86 += one\n"
        for libc in (False, True):
            self._program(_ARM64, f'[ "$1" = --version ] || {str(libc).lower()}')
            results = self._run(
                {_LISTING: listed, f"{_KVM}/one.c": "one ret\n"},
                {_LISTING: f"{listed}TEST_GEN_PROGS_arm64 += two\n",
                 f"{_KVM}/two.c": "two ret\n"},
                {f"{_KVM}/lib/arm64/a.c": ""}, {f"{_KVM}/two.c": "broken\n"})
            # Without a libc, arm64's are left out.
            self.assertEqual("each patch, selftests of arm64" in results, not libc)
            self.assertEqual(self._failed(results), "d" * libc)
            made = "kvm-arm64-selftests kvm-selftests" if libc else "kvm-selftests"
            self.assertEqual(self._made(), {name: made for name in "abcd"})
        # Only our own tests are compiled.
        self.assertEqual([sorted(path.name for path in (self.tmp / "each" / folder).iterdir())
                          for folder in ("kvm", "kvm-arm64")], [["one"], ["two"]])
