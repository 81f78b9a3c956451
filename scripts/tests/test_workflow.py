# SPDX-License-Identifier: GPL-2.0-only
"""Tests of judging perf kvm's whole workflow."""

import tempfile
import unittest
from pathlib import Path
from typing import Iterable

from hostlib import workflow

_CALLERS = """# Children      Self  Command  Shared Object               Symbol
    25.89%     0.05%  program       program                     [u] transfer_many
    25.89%     0.00%  program       program                     [u] main
    25.89%     0.00%  program       program                     [u] work
    25.84%     0.05%  program       program                     [u] transfer
    25.78%     0.00%  program       [guest.kernel.kallsyms.74]  [g] do_syscall_64
    25.78%     0.00%  CPU 0/KVM     [guest.kernel.kallsyms.74]  [g] entry_SYSCALL_64_after_hwframe
"""

_WANTED = {"g": ("do_syscall_64", "entry_SYSCALL_64_after_hwframe"),
           "u": ("transfer", "transfer_many", "work", "main")}

_TOP = ("     3.00%     0.00%  program  program (guest)  [u] 0x00000000100012da\n"
        + "".join(f"     4.0{i}%     0.16%  find  [guest.kernel]  [g] hrtimer_interrupt_{i}\n"
                  for i in range(5)))


def _wrong(complaints: Iterable[str]) -> int:
    return len(list(complaints))


class JudgeTest(unittest.TestCase):
    def test_what_the_doctor_must_find(self) -> None:
        said = ('{"checks": [{"key": "host.kvm", "state": "ok", "why": ""}, {"key": "guest.vmm", '
                '"state": "no", "why": "no-vm"}], "summary": "try 76"}\nstatus 1\n')
        wanted = (1, {"host.kvm": "ok", "guest.vmm": "no-vm"}, ["76"])
        self.assertEqual(list(workflow.judge_doctor(said, *wanted)), [])
        for good, bad in (("76", "77"), ("status 1", "status 0"), ("host.kvm", "host"),
                          ("no-vm", "thread"), ("{", "Traceback")):
            self.assertEqual(len(list(workflow.judge_doctor(said.replace(good, bad), *wanted))), 1,
                             bad)

    def test_nothing_said_is_a_failure(self) -> None:
        names = [f"doctor-{name}" for name in workflow._DOCTOR]
        with tempfile.TemporaryDirectory() as tmp:
            for name in (*names, "callers", "all", "both", "host", "host-callers", "planted",
                         "diff", "top"):
                (Path(tmp) / f"{name}.txt").touch()
            counts = workflow.judge(Path(tmp))
        self.assertEqual(counts.passed, 0, counts.remarks)
        self.assertGreaterEqual(counts.failed, len(names))

    def test_callers_have_their_own_levels(self) -> None:
        self.assertEqual(_wrong(workflow.judge_levels(_CALLERS, _WANTED)), 0)
        for good, bad in (("[g] do_syscall_64", "[u] do_syscall_64"), ("[u] main", "[g] main"),
                          ("[u] transfer\n", "[u] other\n")):
            changed = _CALLERS.replace(good, bad)
            self.assertEqual(_wrong(workflow.judge_levels(changed, _WANTED)), 1, bad)
        self.assertEqual(_wrong(workflow.judge_levels("", _WANTED)), 6)

    def test_each_line_of_a_function_counts(self) -> None:
        worse = "     0.10%     0.00%  find  [guest.kernel.kallsyms.74]  [u] do_syscall_64\n"
        self.assertEqual(_wrong(workflow.judge_levels(worse + _CALLERS, _WANTED)), 1)

    def test_tids_are_no_names(self) -> None:
        self.assertEqual(_wrong(workflow.judge_comms(_CALLERS)), 0)
        self.assertEqual(
            len(list(workflow.judge_comms(_CALLERS.replace("CPU 0/KVM", ":91      ")))), 1)
        self.assertEqual(_wrong(workflow.judge_comms("")), 1)
        by_guest = "     0.44%  db     :205         [guest.kernel.kallsyms.184]  [g] a\n"
        self.assertEqual(_wrong(workflow.judge_comms(by_guest)), 1)

    def test_sides_are_those_that_were_asked_for(self) -> None:
        self.assertEqual(_wrong(workflow.judge_sides(_CALLERS, "gu")), 0)
        self.assertEqual(_wrong(workflow.judge_sides(_CALLERS, "g")), 1)
        self.assertEqual(_wrong(workflow.judge_sides(_CALLERS, "gku")), 1)
        host = "     1.00%  CPU 0/KVM  libc.so.6  [.] __GI___ioctl\n 2.00%  a  [kvm]  [k] f\n"
        self.assertEqual(_wrong(workflow.judge_sides(host, ".k")), 0)

    def test_vms_have_their_names(self) -> None:
        both = ("     2.99%  web    program      [guest.kernel.kallsyms.76]   [g] clear_user_erms\n"
                "     0.47%  db     init         [guest.kernel.kallsyms.184]  [g] memset_erms\n")
        self.assertEqual(_wrong(workflow.judge_vms(both)), 0)
        self.assertEqual(_wrong(workflow.judge_vms(both.replace("web", "76 "))), 1)
        self.assertEqual(_wrong(workflow.judge_vms(both.split("\n", maxsplit=1)[0])), 1)

    def test_only_who_may_read_a_guest_has_its_words(self) -> None:
        good = "".join(f"{policy} {sought} {number}\n"
                       for policy, may_read in workflow._MAY_READ.items()
                       for sought, number in (("samples", 9), *((sought, int(may_read)) for sought
                                                                in workflow._PLANTED)))
        self.assertEqual(_wrong(workflow.judge_planted(good)), 0)
        for right, wrong in (("undecided-at-0 word 0", "undecided-at-0 word 1"),
                             ("undecided-at-1 release 0", "undecided-at-1 release 2"),
                             ("forbidden-at-2 names 0", "forbidden-at-2 names 1"),
                             ("undecided-at-2 word 1", "undecided-at-2 word 0"),
                             ("allowed-at-0 release 0\n", ""),
                             ("allowed-at-1 samples 9", "allowed-at-1 samples 0")):
            changed = good.replace(right, wrong)
            self.assertEqual(_wrong(workflow.judge_planted(changed)), 1, wrong)

    def test_names_are_of_the_vms_own_kernel(self) -> None:
        both = ("     2.99%  web    program   [guest.kernel.kallsyms.76]   [g] clear_user_erms\n"
                "     2.89%  db     dd        [guest.kernel.kallsyms.184]  "
                "[g] rep_stos_alternative\n"
                "     0.47%  db     init      [guest.kernel.kallsyms.184]  [g] memset_orig\n")
        self.assertEqual(_wrong(workflow.judge_kernels(both)), 0)
        for good, bad in (("clear_user_erms", "memset_orig"), ("memset_orig", "clear_user_erms"),
                          ("memset_orig", "0xffffffff81000000"), ("rep_stos_alternative", "a")):
            self.assertEqual(_wrong(workflow.judge_kernels(both.replace(good, bad))), 1, bad)
        swapped = both.replace("web", "x").replace("db ", "web").replace("x", "db ")
        self.assertEqual(_wrong(workflow.judge_kernels(swapped)), 4)

    def test_diff_has_functions(self) -> None:
        line = "    11.08%     -1.93%  [guest.kernel.kallsyms.76]  [g] clear_user_erms\n"
        missing = "               +0.40%  [guest.kernel.kallsyms.76]  [g] entry_SYSCALL_64\n"
        self.assertEqual(_wrong(workflow.judge_diff(5 * (line + missing))), 0)
        self.assertEqual(_wrong(workflow.judge_diff(9 * line)), 1)
        self.assertEqual(_wrong(workflow.judge_diff("")), 1)

    def test_top_shows_whole_names(self) -> None:
        self.assertEqual(_wrong(workflow.judge_top(_TOP)), 0)
        self.assertEqual(_wrong(workflow.judge_top(_TOP.replace("[u]", "[g]"))), 1)
        cut = _TOP.replace("hrtimer_interrupt_", "hr")
        self.assertEqual(_wrong(workflow.judge_top(cut)), 1)
        self.assertEqual(_wrong(workflow.judge_top("")), 2)
        tid = _TOP + "     1.00%  :91  [guest.kernel.kallsyms.74]  [g] clear_user_erms\n"
        self.assertEqual(_wrong(workflow.judge_top(tid)), 1)


if __name__ == "__main__":
    unittest.main()
