# SPDX-License-Identifier: GPL-2.0-only
"""Tests of judging perf kvm's whole workflow."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from typing import Any, List, Tuple

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

_HOST = "     1.00%  CPU 0/KVM  libc.so.6  [.] __GI___ioctl\n 2.00%  a  [kvm]  [k] f\n"

_BOTH = """     2.99%  web    program   [guest.kernel.kallsyms.76]   [g] clear_user_erms
     2.89%  db     dd        [guest.kernel.kallsyms.184]  [g] rep_stos_alternative
     0.47%  db     init      [guest.kernel.kallsyms.184]  [g] memset_orig
"""

_TID = "     0.44%  db     :205         [guest.kernel.kallsyms.184]  [g] clear_user_erms\n"

_PLANTED = "".join(f"{policy} {sought} {number}\n"
                   for policy, shown in workflow._SHOWN.items()
                   for sought, number in (("samples", 9), *((sought, int(sought in shown))
                                                            for sought in workflow._PLANTED)))

_DIFF = 5 * ("    11.08%     -1.93%  [guest.kernel.kallsyms.76]  [g] clear_user_erms\n"
             "               +0.40%  [guest.kernel.kallsyms.76]  [g] entry_SYSCALL_64\n")

_TOP = ("     3.00%     0.00%  program  program (guest)  [u] 0x00000000100012da\n"
        + "".join(f"     4.0{i}%     0.16%  find  [guest.kernel]  [g] hrtimer_interrupt_{i}\n"
                  for i in range(5)))

_DOCTOR = ('{"checks": [{"key": "host.kvm", "state": "ok", "why": ""}, {"key": "guest.vmm", '
           '"state": "no", "why": "no-vm"}], "summary": "try 76"}\nstatus 1\n')


class JudgeTest(unittest.TestCase):
    def test_judges(self) -> None:
        """Each complains as often as there are things wrong in the text."""
        levels: Tuple[Any, ...] = (workflow.judge_levels, _WANTED)
        judges: List[Tuple[Tuple[Any, ...], str, List[Tuple[str, str, int]]]] = [
            # The function, its other arguments, a good text, and what makes it bad: a part, what
            # comes in its place, and the number of complaints.
            (levels, _CALLERS, [("[g] do_syscall_64", "[u] do_syscall_64", 1),
                                ("[u] main", "[g] main", 1), ("[u] transfer\n", "[u] other\n", 1),
                                ("25.78%     0.00%  program", "0.1%  a  a  [u] do_syscall_64\n 1.0%"
                                 "  program", 1), (_CALLERS, "", 6)]),
            ((workflow.judge_comms,), _CALLERS, [("CPU 0/KVM", ":91      ", 1), (_CALLERS, "", 1),
                                                 (_CALLERS, _TID, 1)]),
            ((workflow.judge_sides, "gu"), _CALLERS, [("[u]", "[g]", 1),
                                                      ("[u] work", "[k] f", 1)]),
            ((workflow.judge_sides, ".k"), _HOST, [("[.]", "[k]", 1)]),
            ((workflow.judge_vms,), _BOTH, [("web", "76 ", 1), (" db ", " web ", 1)]),
            ((workflow.judge_kernels,), _BOTH,
             [("clear_user_erms", "memset_orig", 1), ("memset_orig", "clear_user_erms", 1),
              ("memset_orig", "0xffffffff81000000", 1), ("rep_stos_alternative", "a", 1),
              ("web    program", "db     program", 2)]),
            ((workflow.judge_planted,), _PLANTED,
             [("undecided-at-0 word 0", "undecided-at-0 word 1", 1),
              ("undecided-at-1 release 0", "undecided-at-1 release 2", 1),
              ("forbidden-at-3 names 0", "forbidden-at-3 names 1", 1),
              ("undecided-at-2 word 0", "undecided-at-2 word 1", 1),
              ("undecided-at-3 word 1", "undecided-at-3 word 0", 1),
              ("allowed-at-0 release 0\n", "", 1),
              ("\nallowed-at-1 samples 9", "\nallowed-at-1 samples 0", 1)]),
            ((workflow.judge_diff,), _DIFF,
             [(_DIFF, _DIFF.rsplit("[g]", 1)[0], 1), (_DIFF, "", 1)]),
            ((workflow.judge_top,), _TOP, [("[u]", "[g]", 1), ("hrtimer_interrupt_", "hr", 1),
                                           (_TOP, "", 2), (_TOP, _TOP + _TID, 1)]),
            ((workflow.judge_doctor, 1, {"host.kvm": "ok", "guest.vmm": "no-vm"}, ["76"]), _DOCTOR,
             [("76", "77", 1), ("status 1", "status 0", 1), ("host.kvm", "host", 1),
              ("no-vm", "thread", 1), ("{", "Traceback", 1)])]
        for (judge, *arguments), good, cases in judges:
            for part, other, wrong in (("", "", 0), *cases):
                with self.subTest(judge.__name__, part=part, other=other):
                    text = good.replace(part, other) if part else good
                    self.assertEqual(len(list(judge(text, *arguments))), wrong)

    def test_nothing_said_is_a_failure(self) -> None:
        names = [f"doctor-{name}" for name in workflow._DOCTOR]
        with tempfile.TemporaryDirectory() as tmp, contextlib.redirect_stdout(io.StringIO()):
            for name in (*names, "callers", "all", "both", "host", "host-callers", "planted",
                         "diff", "top"):
                (Path(tmp) / f"{name}.txt").touch()
            counts = workflow.judge(Path(tmp))
        self.assertEqual(counts.passed, 0, counts.remarks)
        self.assertGreaterEqual(counts.failed, len(names))
