# SPDX-License-Identifier: GPL-2.0-only
"""Remember the checks that passed, so that a second run repeats only those with changed inputs."""

import hashlib
import json
from pathlib import Path
from typing import Dict, List, Optional


def digest(*parts: str) -> str:
    """Return a digest of some texts; other texts have another digest."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Passed:
    """The checks that passed, by the digest of all their inputs; they are kept in a file.

    Args:
        path: the file, which is written each time a check passes; None if the checks shall be
            forgotten after this run
    """

    def __init__(self, path: Optional[Path]) -> None:
        self._path = path
        self._found: Dict[str, List[str]] = {}
        try:
            self._found = json.loads(path.read_text()) if path else {}
        except (OSError, ValueError):
            # There was no run yet, or the file is damaged.
            pass

    def __contains__(self, key: object) -> bool:
        return key in self._found

    def notes(self, key: str) -> Optional[List[str]]:
        """Return the notes that were added when this check passed; None if it has not passed."""
        return self._found.get(key)

    def add(self, key: str, notes: Optional[List[str]] = None) -> None:
        self._found[key] = notes or []
        if not self._path:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(json.dumps(self._found))
        partial.rename(self._path)
