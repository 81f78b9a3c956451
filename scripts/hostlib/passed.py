# SPDX-License-Identifier: GPL-2.0-only
"""Remember what has passed, so that a second run does only what changed."""

import hashlib
import json
from pathlib import Path
from typing import Dict, List, Optional


def digest(*parts: str) -> str:
    """A name for some texts: others have another one."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Passed:
    """What has passed, by the digest of all that it depends on; kept in a file.

    Args:
        path: the file; it is written at once when something passes.  None if what passes is to
            be forgotten with this run
    """

    def __init__(self, path: Optional[Path]) -> None:
        self._path = path
        self._found: Dict[str, List[str]] = {}
        try:
            self._found = json.loads(path.read_text()) if path else {}
        except (OSError, ValueError):
            # There was no run yet, or it was killed while it wrote.
            pass

    def __contains__(self, key: object) -> bool:
        return key in self._found

    def notes(self, key: str) -> Optional[List[str]]:
        """What was noted when this passed; None if it has not."""
        return self._found.get(key)

    def add(self, key: str, notes: Optional[List[str]] = None) -> None:
        self._found[key] = notes or []
        if not self._path:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(json.dumps(self._found))
        partial.rename(self._path)
