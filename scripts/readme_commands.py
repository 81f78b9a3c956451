#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Print the commands of a section of README.md, as they are typed, for a shell to run."""

import re
import sys
from pathlib import Path
from typing import List

_README = Path(__file__).resolve().parent.parent / "README.md"


def commands(text: str, section: str) -> List[str]:
    """The lines of a section that are indented as code, without their comments."""
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text,
                      re.MULTILINE | re.DOTALL)
    lines = found.group(1).splitlines() if found else []
    return [re.sub(r"\s+# .*", "", line.strip()) for line in lines if line.startswith("    ")]


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: readme_commands.py SECTION", file=sys.stderr)
        return 2
    found = commands(_README.read_text(), sys.argv[1])
    if not found:
        print(f"README.md has no commands in a section \"{sys.argv[1]}\".", file=sys.stderr)
        return 1
    print("\n".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
