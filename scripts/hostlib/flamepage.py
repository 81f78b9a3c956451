# SPDX-License-Identifier: GPL-2.0-only
"""Draw an interactive flame graph, as a page of HTML that needs nothing else.

The npm package d3-flame-graph draws it.
"""

import base64
import hashlib
import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Tuple

from . import frametree, npm
from .stacks import KINDS, Frame

_HERE = Path(__file__).parent


def _data(profiles: "List[Counter[Tuple[Frame, ...]]]") -> Dict[str, Any]:
    """Return the data for flamepage.js: a table of names, and a row for each box."""
    names: Dict[str, int] = {}
    rows = [[node.parent, names.setdefault(node.frame.name, len(names)),
             KINDS.index(node.frame.kind), *node.counts] for node in frametree.build(profiles)]
    return {"totals": [sum(profile.values()) for profile in profiles], "kinds": KINDS,
            "names": list(names), "nodes": rows}


def embed_json(data: Any) -> str:
    """Return JSON to embed in HTML: nothing in it ends the script or starts a comment."""
    text = json.dumps(data, separators=(",", ":"))
    return re.sub("[<>&]", lambda match: f"\\u{ord(match.group()):04x}", text)


def _policy(scripts: "List[str]") -> str:
    """Return a policy by which only these scripts run, and nothing is loaded."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
              for script in scripts)
    return ("default-src 'none'; style-src 'unsafe-inline'; script-src "
            + " ".join(f"'sha256-{value}'" for value in hashes))


def _licenses() -> str:
    return "\n".join(f"{package.name} {package.version}:\n\n{npm.read(package, 'LICENSE')}"
                     for package in (npm.D3, npm.D3_FLAME_GRAPH))


def write(profiles: "List[Counter[Tuple[Frame, ...]]]", title: str, path: Path) -> None:
    """Draw a profile, or how the first of two differs from the second, into a page.

    Raise Failure, and write nothing, if npm can't fetch the packages that draw it.
    """
    scripts = {"d3": npm.read(npm.D3, "dist/d3.min.js"),
               "d3_flame_graph": npm.read(npm.D3_FLAME_GRAPH, "dist/d3-flamegraph.umd.min.js"),
               "code": (_HERE / "flamepage.js").read_text("utf-8")}
    parts = {**scripts, "title": html.escape(title), "policy": _policy(list(scripts.values())),
             "data": embed_json(_data(profiles)), "licenses": _licenses()}
    template = (_HERE / "flamepage.html").read_text("utf-8")
    # Insert all parts in one pass: a name from a guest may look like a placeholder.
    path.write_text(re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match.group(1)], template),
                    "utf-8")
