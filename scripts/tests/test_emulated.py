# SPDX-License-Identifier: GPL-2.0-only
"""Tests of judging a run of the emulated host."""

import tempfile
import unittest
from pathlib import Path
from typing import Callable, List
from unittest import mock

from hostlib import emulated
from hostlib.emulated import Complaint, EmulatedHost, choose_accel
from hostlib.ui import Failure

_judge = EmulatedHost._judge  # pylint: disable=protected-access
_GOOD = "[    1.0] reboot: Restarting system\n"


class JudgeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.shared = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.console = self.shared / "console.log"
        self.console.write_text(_GOOD)

    def _complaint(self) -> str:
        with self.assertRaises(Complaint) as complaint:
            _judge(self.shared, self.console)
        return str(complaint.exception)

    def test_status_of_the_job(self) -> None:
        self.assertIn(str(self.console), self._complaint())
        (self.shared / "status").write_text("3\n")
        self.assertEqual(_judge(self.shared, self.console).status, 3)

    def test_splats_fail_even_if_the_job_ended_well(self) -> None:
        (self.shared / "status").write_text("0\n")
        for splat in ("WARNING: CPU: 0 PID: 1 at kernel/events/core.c:1",
                      "BUG: sleeping function called from invalid context",
                      "INFO: suspicious RCU usage", "WARNING: suspicious RCU usage",
                      "[ BUG: Invalid wait context ]", "Oops: 0000 [#1] SMP",
                      "Internal error: synchronous external abort: 96000410",
                      "Kernel panic - not syncing: panic_on_warn set ..."):
            with self.subTest(splat):
                self.console.write_text(f"[    2.0] {splat}\n")
                self.assertIn(splat, self._complaint())

    def test_read_of_the_unused_device_fails(self) -> None:
        (self.shared / "status").write_text("0\n")
        log = self.shared / "virtio_mmio.log"
        log.write_text("virtio_mmio_read virtio_mmio_read offset 0x60\n")
        self.assertEqual(_judge(self.shared, self.console).status, 0)
        log.write_text("virtio_mmio_read virtio_mmio_read offset 0x1e0\n"
                       "virtio_mmio_read virtio_mmio_read offset 0x60\n")
        self.assertIn(log.name, self._complaint())


class FollowTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.said, self.console = folder / "output", folder / "console.log"
        self.console.write_text("it sticks\r\n\r\n")
        self.heard: List[str] = []

    def _follow(self, runs: Callable[[], bool], deadline: int) -> None:
        emulated.follow(runs, self.said, deadline, self.console, self.heard.append)

    def test_all_output_is_passed_on(self) -> None:
        words = ["one\r\n", "two\n"]

        def runs() -> bool:
            with self.said.open("a", newline="") as out:
                out.write(words.pop(0))
            return bool(words)

        self._follow(runs, 60)
        self.assertEqual(self.heard, ["one\n", "two\n"])

    def test_a_host_that_hangs(self) -> None:
        with self.assertRaisesRegex(Complaint, "it sticks"):
            self._follow(lambda: True, 0)


class HostTest(unittest.TestCase):
    def _run(self, *consoles: str) -> int:
        """Boot hosts with these consoles one after the other; return the number of boots."""
        boots = iter(consoles)

        def boot(_: EmulatedHost, shared: Path, _deadline: int, console: Path,
                 _output: object) -> None:
            console.write_text(next(boots))
            (shared / "status").write_text("0\n")

        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(EmulatedHost, "_prepare"), \
                mock.patch.object(EmulatedHost, "_boot", boot):
            EmulatedHost(mock.Mock(), "tcg").run("true", Path(tmp), 1, lambda _: None)
        return len(consoles) - len(list(boots))

    def test_boots_until_there_are_timers(self) -> None:
        bad = "[    0.6] APIC timer disabled due to verification failure\n"
        self.assertEqual(self._run(_GOOD, _GOOD), 1)
        self.assertEqual(self._run(bad, bad, _GOOD, _GOOD), 3)
        with self.assertRaises(Failure):
            self._run(*([bad] * 11))

    def test_no_byte_counts_as_an_instruction(self) -> None:
        # Only TCG counts.
        for counted, accel in ((True, "kvm"), (False, "tcg")):
            with mock.patch.object(EmulatedHost, "_tsc_khz", return_value=1):
                argv = EmulatedHost(mock.Mock(), accel, counted=counted)._argv(Path(), [], "")
            self.assertEqual("-icount" in argv, counted)
            self.assertEqual(",-erms,-fsrm" in argv[argv.index("-cpu") + 1], counted)

    def test_auto_takes_kvm_only_if_it_nests(self) -> None:
        for nests, accel in ((True, "kvm"), (False, "tcg")):
            with mock.patch.object(emulated, "_can_nest", return_value=nests):
                self.assertEqual(choose_accel("auto"), accel)
                self.assertEqual(choose_accel("tcg"), "tcg")
                for wrong in ("xen", *(() if nests else ("kvm",))):
                    with self.assertRaises(Failure) as failure:
                        choose_accel(wrong)
                    self.assertIn("tcg", str(failure.exception))
