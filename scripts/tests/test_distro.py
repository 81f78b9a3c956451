# SPDX-License-Identifier: GPL-2.0-only
"""Tests of judging the programs of guests that are whole distributions."""

import unittest
from typing import Dict, List, Tuple

from hostlib import distro, programs
from hostlib.programs import Frame, Program, Sample

_SCRIPT = """\
CPU 0/KVM K
\tffffffff81000010 svm_vcpu_run ([kvm])

a task       g
\t    7f0000001010 read (/lib/libc.so.6 (guest)+0x1010)
\t    550000000105 [unknown] (/bin/tool (guest)+0x105)

tool     G
\tffffffff81000010 vfs_read ([guest.kernel.kallsyms.74])
\t    7f0000001010 read (/lib/libc.so.6 (guest)+0x1010)
"""

# The tool begins at 0x100, threads in the C library at 0x1700.  The guest has cached rules for a
# part of the C library.
_TOOL = Program([range(0x100, 0x200)], frozenset([0x100]))
_FILES = {"/bin/tool": _TOOL, "/lib/libc.so.6": Program(
    [range(0x1000, 0x1700), range(0x1700, 0x1800), range(0x1800, 0x2000)], frozenset([0x1700]),
    0x2000)}
_MEMORY = {"/bin/tool": _TOOL, "/lib/libc.so.6": Program(
    [range(0x1000, 0x1700), range(0x1700, 0x1800)], frozenset([0x1700]))}
_NONE = Program([], frozenset())


def _files(path: str) -> Program:
    return _FILES.get(path, _NONE)


def _memory(path: str) -> Program:
    return _MEMORY.get(path, _NONE)


def _libc(offset: int, name: str = "[unknown]") -> Frame:
    return Frame(0x7f0000000000 + offset, name, f"/lib/libc.so.6 (guest)+{offset:#x}")


def _tool(offset: int, name: str = "[unknown]") -> Frame:
    return Frame(0x550000000000 + offset, name, f"/bin/tool+{offset:#x}")


_START = _tool(0x120)
_KERNEL = Frame(0xffffffff81000010, "do_syscall_64", "[guest.kernel.kallsyms.74]")
_EXIT = Frame(0xffffffff81000020, "do_exit", "[guest.kernel.kallsyms.74]")
_INITS = [Frame(0xffffffffc0000010, "init_module", f"[{name}.init]+0x10") for name in "ab"]
_NOWHERE = Frame(0x7f0000000000, "[unknown]", "[unknown]")
_PATHS = [tuple("[unknown]" if name == "hidden" else name for name in path)
          for path in sorted(distro.PATHS)]


def _path(names: "tuple[str, ...]") -> Sample:
    return Sample("call_paths", tuple(
        Frame(0x560000000000 + place, name, f"/usr/local/bin/call_paths (guest)+{place:#x}")
        for place, name in enumerate(names)) + (_START,))


def _good() -> Dict[str, List[Sample]]:
    """Samples that pass: of user mode, of the kernel, and of the known paths."""
    return {"user": [Sample("tool", (_libc(0x1010, "read"), _START))] * 600,
            "kernel": [Sample("tool", (_KERNEL, _libc(0x1010, "read"), _START))] * 600,
            "paths": [_path(path) for path in _PATHS] * 10}


def _failed(found: Dict[str, List[Sample]], reference: Dict[str, List[Sample]]) -> int:
    pairs = [[sample for kind in samples.values() for sample in kind]
             for samples in (found, reference)]
    return sum(not holds for _, holds in distro.cases(pairs[0], pairs[1], _files, _memory))


class DistroTest(unittest.TestCase):
    def test_script_is_read(self) -> None:
        samples = programs.read(_SCRIPT.split("\n"))
        self.assertEqual([sample.comm for sample in samples], ["a task", "tool"])
        self.assertEqual(samples[0].frames[1].in_file, ("/bin/tool", 0x105))
        self.assertEqual(samples[1].frames[0].in_file, ("", 0))
        self.assertEqual(len(samples[1].user), 1)

    def test_chains_are_told_apart(self) -> None:
        whole = Sample("tool", (_libc(0x1010), _libc(0x1900), _START))
        for frames, kind in (((_libc(0x1010), _libc(0x1900), _START), "start"),
                             ((_libc(0x1010), _libc(0x1900)), "page"),
                             ((_libc(0x1010),), "short"),
                             ((_libc(0x1010), _libc(0x1020), _START), "wrong"),
                             ((_libc(0x1010), _libc(0x1900), _START, _START), "wrong"),
                             ((), "short")):
            with self.subTest(frames=frames):
                self.assertEqual(distro.chain_kind(Sample("tool", frames), whole, _files,
                                                   _memory), kind)
        cut = Sample("tool", (_libc(0x1010), _libc(0x1020)))
        self.assertEqual(distro.chain_kind(cut, cut, _files, _memory), "short")
        for offset, kind in ((0x2010, "start"), (0x2050, "short")):
            entered = Sample("tool", (_libc(0x1010), _libc(offset)))
            self.assertEqual(distro.chain_kind(entered, entered, _files, _memory), kind)
        clone = Sample("tool", (_libc(0x1010), _libc(0x1720)))
        self.assertEqual(distro.chain_kind(clone, clone, _files, _memory), "start")

    def test_known_paths(self) -> None:
        for path in sorted(distro.PATHS):
            self.assertEqual(distro.path_kind(_path(path), True), "whole")
            self.assertEqual(distro.path_kind(_path(path[:-1]), True), "part")
            self.assertEqual(distro.path_kind(_path((path[0], *path)), True), "wrong")
        self.assertEqual(distro.path_kind(_path(("spin", "[unknown]", "in_thread"))), "whole")
        self.assertEqual(distro.path_kind(_path(("spin", "[unknown]", "in_thread")), True),
                         "wrong")
        self.assertEqual(distro.path_kind(_path(("spin", "deep10", "deep8"))), "wrong")

    def test_each_fault_fails(self) -> None:
        self.assertEqual(_failed(_good(), _good()), 0)
        user, reference = _good(), _good()
        user["user"][:7] = [Sample("tool", (_libc(0x1010, "write"), _START))] * 7
        self.assertEqual(_failed(user, reference), 1, "another name")
        user = _good()
        user["user"][:14] = [Sample("CPU 0/KVM", (_libc(0x1010, "read"), _START))] * 14
        self.assertEqual(_failed(user, reference), 1, "the VMM's")
        faults: List[Tuple[str, List[Sample], int]] = [
            ("user", [Sample("tool", (_libc(0x1010), _START))] * 600, 1),
            ("user", [Sample("tool", (_libc(0x1010, "read"),))] * 600, 1),
            ("kernel", [Sample("tool", (_KERNEL,))] * 600, 1),
            ("kernel", [Sample("tool", (_KERNEL, _libc(0x1020), _START))] * 600, 2),
            ("paths", [_path(path[:-1]) for path in _PATHS] * 10, 2),
            ("paths", [_path(("spin", "deep9"))] * 40, 2),
        ]
        for kind, broken, failures in faults:
            found = _good()
            found[kind] = broken
            with self.subTest(kind=kind, broken=broken[0]):
                self.assertGreaterEqual(_failed(found, _good()), failures)

    def test_a_boot_must_be_whole_and_named(self) -> None:
        def failed(ends: Dict[str, int], *unnamed: Sample) -> int:
            samples = [*_good()["kernel"], *unnamed, *[Sample("udevd", (_KERNEL, frame))
                                                       for frame in _INITS]]
            return sum(not holds for _, holds in distro.boot_cases(ends, samples))

        self.assertEqual(failed({"user mode": 400, "outermost frame": 184}), 0)
        self.assertEqual(failed({"user mode": 400, "outermost frame": 182, "no ORC table": 20}), 1)
        unknown = Frame(0xffffffffc0000010, "[unknown]", "[unknown]")
        self.assertEqual(failed({"user mode": 620}, *[Sample("udevd", (unknown, _KERNEL))] * 20), 1)
        self.assertEqual(sum(not holds for _, holds in distro.boot_cases({}, [])), 2)

    def test_few_samples_fail(self) -> None:
        found = _good()
        found["user"] = found["user"][:100]
        self.assertEqual(_failed(found, found), 1)

    def test_what_has_left_its_program_is_counted_apart(self) -> None:
        found, reference = _good(), _good()
        reference["kernel"] = found["kernel"] = [
            *found["kernel"], *[Sample("tool", (_EXIT, _KERNEL, _NOWHERE))] * 600]
        self.assertEqual(_failed(found, reference), 0)
        reference["kernel"] = found["kernel"] = [
            *_good()["kernel"], *[Sample("tool", (_KERNEL, _NOWHERE))] * 600]
        self.assertEqual(_failed(found, reference), 1)
        for function, failed in (("__schedule", 0), ("vfs_read", 1)):
            switch = Frame(0xffffffff81001000, function, "[guest.kernel.kallsyms]")
            reference["kernel"] = found["kernel"] = [
                *_good()["kernel"], *[Sample("tool", (switch, _KERNEL))] * 600]
            self.assertEqual(_failed(found, reference), failed)

    def test_a_server_must_give_all(self) -> None:
        def failed(**broken: Sample) -> int:
            found = {kind: [broken[kind]] * 600 if kind in broken else samples
                     for kind, samples in _good().items()}
            if "paths" not in broken:
                found["paths"] = [_path(path) for path in sorted(distro.PATHS)] * 10
            pairs = [[sample for kind in samples.values() for sample in kind]
                     for samples in (found, _good())]
            return sum(not holds for _, holds in distro.server_cases(pairs[0], pairs[1], _files))

        self.assertEqual(failed(), 0)
        self.assertEqual(failed(user=Sample("tool", (_libc(0x1010), _START))), 1)
        self.assertEqual(failed(user=Sample("tool", (_libc(0x1010, "read"),))), 1)
        self.assertEqual(failed(user=Sample("tool", (_libc(0x1010, "read"), _libc(0x1100)))), 2)
        self.assertGreaterEqual(failed(paths=_path(_PATHS[-1])), 1)

    def test_the_reference_must_be_good(self) -> None:
        short = Sample("tool", (_libc(0x1010, "read"),))
        found, reference = _good(), _good()
        reference["user"] = found["user"] = [short] * 600
        self.assertGreaterEqual(_failed(found, reference), 1)

    def test_cgroups(self) -> None:
        report = ("# Overhead  Cgroup\n    {}%  /system.slice/work.service\n"
                  "    20.00%  /\n     0.50%  N/A\n")
        self.assertTrue(distro.cgroup_case(report.format("79.50"))[1])
        self.assertFalse(distro.cgroup_case(report.format("49.50"))[1])
        self.assertFalse(distro.cgroup_case("")[1])

    def test_costs(self) -> None:
        begin = "300 100 1000 perf\n200 100 90000 perf-guests\n"
        for ticks, kib, good in ((300, 90000, True), (1000, 90000, False), (300, 900000, False)):
            costs = f"900 80 1000 perf\n{ticks} 200 {kib} perf-guests\n"
            self.assertEqual(distro.cost_case(begin, costs)[1], good)
        self.assertFalse(distro.cost_case(begin, "900 80 1000 perf\n")[1])
        self.assertFalse(distro.cost_case("", begin)[1])

    def test_what_was_broken_off_is_still_named(self) -> None:
        def failed(samples: List[Sample], said: str) -> int:
            return sum(not holds for _, holds in distro.broken_cases("full", samples, said))

        good, said = _good()["user"], "write failed: No space left on device\n"
        self.assertEqual(failed(good, said), 0)
        self.assertEqual(failed(good[:50], said), 1)
        self.assertEqual(failed([Sample("tool", (_libc(0x1010), _START))] * 600, said), 1)
        self.assertEqual(failed([Sample("tool", (_libc(0x1010, "read"),))] * 600, said), 1)
        self.assertEqual(failed(good, ""), 1)
        self.assertEqual(failed(good, f"{said}perf script: 255\n"), 1)

    def test_build_ids_are_found(self) -> None:
        maps = ("0 1000 7\n7f00 7f10 1000 fe:0 12 0a0b /lib/a b.so\n"
                "7f00 7f10 0 fe:0 12 - /lib/none.so\n")
        self.assertEqual(distro.build_ids(maps), {"/lib/a b.so": "0a0b"})


if __name__ == "__main__":
    unittest.main()
