# SPDX-License-Identifier: GPL-2.0-only
"""Tests of judging a run of the emulated host."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hostlib import emulated
from hostlib.emulated import EmulatedHost, choose_accel
from hostlib.ui import Failure

_judge = EmulatedHost._judge  # pylint: disable=protected-access


class JudgeTest(unittest.TestCase):
    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.shared = Path(tmp.name)
        self.console = self.shared / "console.log"

    def test_status_of_the_job(self) -> None:
        self.console.write_text("[    1.0] reboot: Restarting system\n")
        (self.shared / "status").write_text("3\n")
        self.assertEqual(_judge(self.shared, self.console).status, 3)

    def test_job_that_did_not_end(self) -> None:
        self.console.write_text("[    1.0] booted\n")
        with self.assertRaisesRegex(Failure, "before its job was done.*console.log"):
            _judge(self.shared, self.console)

    def test_splats_fail_even_if_the_job_ended_well(self) -> None:
        for splat in ("WARNING: CPU: 0 PID: 1 at kernel/events/core.c:1",
                      "BUG: sleeping function called from invalid context",
                      "INFO: suspicious RCU usage", "WARNING: suspicious RCU usage",
                      "[ BUG: Invalid wait context ]", "Oops: 0000 [#1] SMP",
                      "Kernel panic - not syncing: panic_on_warn set ..."):
            with self.subTest(splat):
                self.console.write_text(f"[    2.0] {splat}\n")
                (self.shared / "status").write_text("0\n")
                with self.assertRaisesRegex(Failure, "The host's kernel says"):
                    _judge(self.shared, self.console)

    def test_read_of_the_unused_device_fails(self) -> None:
        self.console.write_text("[    1.0] reboot: Restarting system\n")
        (self.shared / "status").write_text("0\n")
        log = self.shared / "virtio_mmio.log"
        log.write_text("virtio_mmio_read virtio_mmio_read offset 0x60\n")
        self.assertEqual(_judge(self.shared, self.console).status, 0)
        log.write_text("virtio_mmio_read virtio_mmio_read offset 0x1e0\n"
                       "virtio_mmio_read virtio_mmio_read offset 0x60\n")
        with self.assertRaisesRegex(Failure, "read a stack from a device.*virtio_mmio.log"):
            _judge(self.shared, self.console)


class BootTest(unittest.TestCase):
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
        good = "[    1.0] reboot: Restarting system\n"
        self.assertEqual(self._run(good, good), 1)
        self.assertEqual(self._run(bad, bad, good, good), 3)
        with self.assertRaisesRegex(Failure, "no working timers in 10 boots.*too busy"):
            self._run(*([bad] * 11))


class CountedTest(unittest.TestCase):
    def _cpu(self, counted: bool) -> str:
        with mock.patch.object(EmulatedHost, "_tsc_khz", return_value=1):
            argv = EmulatedHost(mock.Mock(), "tcg", counted=counted)._argv(Path(), [], "")
        return argv[argv.index("-cpu") + 1]

    def test_no_byte_counts_as_an_instruction(self) -> None:
        self.assertIn(",-erms,-fsrm", self._cpu(counted=True))
        self.assertNotIn("erms", self._cpu(counted=False))


class AccelTest(unittest.TestCase):
    def test_auto_takes_kvm_only_if_it_nests(self) -> None:
        for nests, accel in ((True, "kvm"), (False, "tcg")):
            with mock.patch.object(emulated, "_can_nest", return_value=nests):
                self.assertEqual(choose_accel("auto"), accel)
                self.assertEqual(choose_accel("tcg"), "tcg")

    def test_kvm_is_refused_where_it_does_not_nest(self) -> None:
        with mock.patch.object(emulated, "_can_nest", return_value=False):
            with self.assertRaisesRegex(Failure, "ACCEL=tcg"):
                choose_accel("kvm")

    def test_unknown_accelerator(self) -> None:
        with self.assertRaisesRegex(Failure, "auto, tcg or kvm"):
            choose_accel("xen")


if __name__ == "__main__":
    unittest.main()
