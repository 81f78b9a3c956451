# SPDX-License-Identifier: GPL-2.0-only
"""Tests of judging the samples of a guest whose call paths and shares are known."""

import unittest
from typing import Dict, List, Tuple

from hostlib import unikernel
from hostlib.stacks import Sample

Path = Tuple[str, ...]

_ALL = 5000
_REPORT = "".join(f"  1.00%  1.00%  CPU 0/KVM  [guest.kernel.kallsyms]  [g] {name}\n"
                  for name in sorted({name for path in unikernel.PERCENTS for name in path}))


def _due() -> Dict[Path, int]:
    return {path: _ALL * percent // 100 for path, percent in unikernel.PERCENTS.items()}


def _samples(counts: Dict[Path, int]) -> List[Sample]:
    """Return samples as perf script has them, with the innermost function first."""
    return [Sample("G", path[::-1], ("100000",) * len(path))
            for path, count in counts.items() for _ in range(count)]


def _failed(counts: Dict[Path, int], report: str = _REPORT) -> List[str]:
    return [case for case, holds in unikernel.cases(_samples(counts), report).items()
            if not holds]


def _path(name: str) -> Path:
    return next(path for path in unikernel.PERCENTS if path[-2] == name)


class UnikernelTest(unittest.TestCase):
    def setUp(self) -> None:
        self.counts = _due()

    def _move(self, source: Path, target: Path, count: int) -> None:
        self.counts[source] -= count
        self.counts[target] = self.counts.get(target, 0) + count

    def test_what_is_due_passes(self) -> None:
        self.assertEqual(sum(unikernel.PERCENTS.values()), 100)
        self.assertEqual(_failed(self.counts), [])

    def test_a_share_may_be_three_sigma_off(self) -> None:
        self.assertAlmostEqual(unikernel.deviation(520, 5000, 10), 20 / 450 ** 0.5)
        self._move(_path("checksum"), _path("parse"), 63)
        self.assertEqual(_failed(self.counts), [])
        self._move(_path("checksum"), _path("parse"), 1)
        failed = _failed(self.counts)
        self.assertEqual(len(failed), 1)
        self.assertIn("serve > parse > spin, 10 % are due: +3.0 sigma", failed[0])

    def test_a_share_may_not_be_too_small_either(self) -> None:
        self._move(_path("parse"), _path("checksum"), 64)
        self.assertIn("-3.0 sigma", _failed(self.counts)[0])

    def test_another_caller_is_noticed(self) -> None:
        self._move(_path("huffman"), ("start", "main", "serve", "huffman", "spin"), 1000)
        failed = _failed(self.counts)
        self.assertIn("0.0 % of chains are start > main > serve > compress > huffman > spin, "
                      "20 % are due: -31.6 sigma", failed)
        self.assertIn("1000 samples have other chains, at most 2 % are allowed; "
                      "start > main > serve > huffman > spin", failed)

    def test_the_order_of_a_chain_counts(self) -> None:
        self._move(_path("match"), ("start", "serve", "main", "compress", "match", "spin"), 1500)
        self.assertIn("1500 samples have other chains, at most 2 % are allowed; "
                      "start > serve > main > compress > match > spin", _failed(self.counts))

    def test_chains_without_callers_are_noticed(self) -> None:
        self.assertEqual(len(_failed({path[-2:]: count for path, count in self.counts.items()})),
                         len(unikernel.PERCENTS) + 1)

    def test_few_other_chains_may_be(self) -> None:
        self._move(_path("checksum"), ("start", "main"), 60)
        self._move(_path("match"), ("start", "main", "serve"), 40)
        self.assertEqual(_failed(self.counts), [])
        self._move(_path("match"), ("[unknown]",), 1)
        self.assertEqual(_failed(self.counts), ["101 samples have other chains, at most 2 % are "
                                                "allowed; start > main; start > main > serve; "
                                                "[unknown]"])

    def test_samples_without_a_chain_are_others(self) -> None:
        self._move(_path("checksum"), (), 101)
        self.assertEqual(_failed(self.counts),
                         ["101 samples have other chains, at most 2 % are allowed"])

    def test_few_samples_prove_nothing(self) -> None:
        self.assertEqual(_failed({path: count // 10 for path, count in self.counts.items()}),
                         ["there are 500 samples, 1000 must be"])
        self.assertGreater(len(_failed({})), 1)

    def test_the_report_has_names(self) -> None:
        self.assertEqual(_failed(self.counts, _REPORT.replace("match", "0x100080")),
                         ["perf report has the names of all functions, but not match"])


if __name__ == "__main__":
    unittest.main()
