# SPDX-License-Identifier: GPL-2.0-only
"""Remember the checks that passed, so that a second run repeats only those with changed inputs."""

import hashlib
import json
from pathlib import Path
from typing import List, Optional, Sequence


def digest(*parts: str) -> str:
    """Return a digest of some texts; other texts have another digest."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Passed:
    """The checks that passed: a file for each in a folder, named by a digest of its inputs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, key: object) -> bool:
        return (self._folder / str(key)).exists()

    def notes(self, key: str) -> Optional[List[str]]:
        """Return the notes that were added when this check passed; None if it has not passed."""
        return (self._folder / key).read_text().splitlines() if key in self else None

    def add(self, key: str, notes: Sequence[str] = ()) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / f"{key}.partial"
        partial.write_text("\n".join(notes))
        partial.rename(self._folder / key)
