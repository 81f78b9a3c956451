# SPDX-License-Identifier: GPL-2.0-only
"""Tests of finding the differences between two runs of Linux's selftests."""

import unittest

from hostlib.allselftests import differences, outcomes

_KTAP = """KTAP version 1
1..3
# selftests: kvm: smm_test
ok 1 selftests: kvm: smm_test
# selftests: kvm: guest_memfd_test
# TAP version 13
# 1..2
# ok 1 mmap
# not ok 2 fault
not ok 2 selftests: kvm: guest_memfd_test # exit=1
# selftests: kvm: amx_test
# 1..0 # SKIP no AMX
ok 3 selftests: kvm: amx_test # SKIP
"""


class AllSelftestsTest(unittest.TestCase):
    def test_outcomes_of_programs_and_of_their_cases(self) -> None:
        self.assertEqual(outcomes(_KTAP), {
            "smm_test": "ok", "guest_memfd_test mmap": "ok", "guest_memfd_test fault": "not ok",
            "guest_memfd_test": "not ok", "amx_test": "skipped"})

    def test_what_never_ended_the_same_way_differs(self) -> None:
        self.assertEqual(differences({"a": {"ok"}, "b": {"ok"}, "c": {"ok", "not ok"}},
                                     {"a": {"not ok"}, "b": {"ok"}, "c": {"not ok"}}), ["a"])

    def test_what_is_missing_differs(self) -> None:
        self.assertEqual(differences({"a": {"ok"}}, {}), ["a"])
