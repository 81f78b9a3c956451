# SPDX-License-Identifier: GPL-2.0-only
"""Tests of judging the samples of a guest whose call paths and shares are known."""

import unittest
from typing import Dict, List, Tuple

from hostlib import unikernel
from hostlib.stacks import Sample

Path = Tuple[str, ...]

_REPORT = "".join(f"  1.00%  1.00%  CPU 0/KVM  [guest.kernel.kallsyms]  [g] {name}\n"
                  for name in sorted({name for path in unikernel.PERCENTS for name in path}))


def _failed(counts: Dict[Path, int], report: str = _REPORT) -> List[str]:
    """Judge samples as perf script has them, with the innermost function first."""
    samples = [Sample("G", path[::-1], ("100000",) * len(path))
               for path, count in counts.items() for _ in range(count)]
    return [case for case, holds in unikernel.cases(samples, report).items() if not holds]


def _path(name: str) -> Path:
    return next(path for path in unikernel.PERCENTS if path[-2] == name)


class UnikernelTest(unittest.TestCase):
    def setUp(self) -> None:
        self.counts = {path: 50 * percent for path, percent in unikernel.PERCENTS.items()}

    def _move(self, source: str, target: Path, count: int) -> int:
        """Move samples from one path to another; return how many cases fail then."""
        self.counts[_path(source)] -= count
        self.counts[target] = self.counts.get(target, 0) + count
        return len(_failed(self.counts))

    def test_a_share_may_be_three_sigma_off(self) -> None:
        self.assertEqual(sum(unikernel.PERCENTS.values()), 100)
        self.assertAlmostEqual(unikernel.deviation(520, 5000, 10), 20 / 450 ** 0.5)
        self.assertEqual(self._move("checksum", _path("parse"), 63), 0)
        self.assertEqual(self._move("checksum", _path("parse"), 1), 1)
        self.assertEqual(self._move("parse", _path("checksum"), 64 + 63), 0)
        self.assertEqual(self._move("parse", _path("checksum"), 1), 1)

    def test_another_caller_and_another_order_are_noticed(self) -> None:
        """The share of the right path is too small, and there are other chains."""
        for name, wrong in (("huffman", ("start", "main", "serve", "huffman", "spin")),
                            ("match", ("start", "serve", "main", "compress", "match", "spin"))):
            self.setUp()
            self.assertGreaterEqual(self._move(name, wrong, 1000), 2)
            self.assertTrue([case for case in _failed(self.counts) if " > ".join(wrong) in case])
        self.setUp()
        self.assertEqual(len(_failed({path[-2:]: count for path, count in self.counts.items()})),
                         len(unikernel.PERCENTS) + 1)

    def test_few_other_chains_may_be(self) -> None:
        self.assertEqual(self._move("checksum", ("start", "main"), 60), 0)
        self.assertEqual(self._move("match", (), 40), 0)
        self.assertEqual(self._move("match", ("[unknown]",), 1), 1)

    def test_few_samples_prove_nothing(self) -> None:
        self.assertEqual(len(_failed({path: n // 10 for path, n in self.counts.items()})), 1)
        self.assertGreater(len(_failed({})), 1)

    def test_the_report_has_names(self) -> None:
        missing, = _failed(self.counts, _REPORT.replace("match", "0x100080"))
        self.assertIn("match", missing)
