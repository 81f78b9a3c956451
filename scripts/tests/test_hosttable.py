# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the table of tests by host."""

import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from hostlib import hosttable
from hostlib.ui import Failure


def _case(name: str, status: str, reason: str = "") -> SimpleNamespace:
    return SimpleNamespace(name=name, status=SimpleNamespace(name=status), skip_reason=reason)


class Table(unittest.TestCase):
    def test_counts_and_reasons(self) -> None:
        amd = {"a_test": [_case("a.irq.x", "SUCCESS"), _case("a.nmi.x", "SUCCESS")]}
        intel = {"a_test": [_case("a.irq.x", "SKIPPED", "no SMAP"),
                            _case("a.nmi.x", "SKIPPED", "no SMAP")],
                 "b_test": [_case("b.irq.y", "FAILURE")]}
        arm64 = {"a_test": [_case("a.irq.x", "SUCCESS")]}
        page = hosttable.table([amd, amd, intel, intel, arm64, arm64])
        self.assertIn("| a_test | 2 | 2 | 2 skipped | 2 skipped | 1 | 1 |", page)
        self.assertIn("| b_test | - | - | 0, **1 failed** | 0, **1 failed** | - | - |", page)
        self.assertIn("- Intel, EPT: `a.x`: no SMAP", page)

    def test_missing_run_is_named(self) -> None:
        tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        with self.assertRaises(Failure) as failure:
            hosttable.write(tmp, tmp, tmp / "page")
        self.assertIn('"make selftests"', str(failure.exception))


if __name__ == "__main__":
    unittest.main()
