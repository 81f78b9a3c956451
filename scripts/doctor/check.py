# SPDX-License-Identifier: GPL-2.0-only
"""The result of a check."""

from typing import NamedTuple


class Check(NamedTuple):
    """What was found.  Programs may rely on key, state, why and blocks; the rest is for people.

    key: what was checked, "host.NAME" or "guest.NAME"
    state: "ok", "no" or "unknown"
    why: a word for what is wrong, if state is "no"
    blocks: nothing can be recorded with callchains before this is mended
    """
    key: str
    state: str
    fact: str
    mend: str = ""
    why: str = ""
    blocks: bool = False


def ok(key: str, fact: str) -> Check:
    return Check(key, "ok", fact)


def unknown(key: str, fact: str, mend: str = "") -> Check:
    return Check(key, "unknown", fact, mend)


def no(key: str, why: str, fact: str, mend: str) -> Check:
    return Check(key, "no", fact, mend, why)


def stop(key: str, why: str, fact: str, mend: str) -> Check:
    return Check(key, "no", fact, mend, why, True)
