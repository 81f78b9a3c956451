# SPDX-License-Identifier: GPL-2.0-only
"""Download Debian's packages of any suite, by an apt whose settings and lists are in the cache."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import List, Sequence

from .ui import Failure, Step, run_logged

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def cache_dir() -> Path:
    """Return the folder where downloads are kept, outside of any tree."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kvm-guest-callchains"


def _run(argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"})


def mirror() -> str:
    """Return the mirror to use: MIRROR=, or the one of this machine's own apt.

    Raises Failure if there is none.
    """
    if os.environ.get("MIRROR"):
        return os.environ["MIRROR"].rstrip("/")
    own = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Label: Debian"])
    found = own.stdout.split()
    if not found:
        # apt knows labels only after its first update.
        every = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)"])
        found = [uri for uri in every.stdout.split() if uri.rstrip("/").endswith("/debian")]
    if not found:
        raise Failure("This machine's apt knows no mirror of Debian; name one with MIRROR=URL")
    return found[0].rstrip("/")


class Apt:
    """An apt that knows the packages of some suites, and none as installed.

    This machine's own settings of apt stay untouched.  Suites that the mirror lacks are ignored.

    Args:
        folder: the folder that packages are downloaded to; one process at a time may use it
    """

    def __init__(self, folder: Path, suites: Sequence[str], architecture: str = "amd64") -> None:
        if not (shutil.which("apt-get") and KEYRING.exists()):
            raise Failure("Debian's packages come by apt, and this machine lacks apt or "
                          f"{KEYRING}; install apt and debian-archive-keyring")
        self._folder, own = folder, folder / "apt"
        (own / "lists/partial").mkdir(parents=True, exist_ok=True)
        sources = own / "sources.list"
        sources.write_text("".join(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n"
                                   for suite in suites))
        self._options = [f"-o{option}" for option in (
            f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=/dev/null",
            f"Dir::State::lists={own}/lists", "Dir::State::status=/dev/null", f"Dir::Cache={own}",
            f"APT::Architecture={architecture}", f"APT::Architectures={architecture}",
            "APT::Sandbox::User=", "Debug::NoLocking=1", "Acquire::Languages=none",
            "Acquire::Retries=3", "Acquire::http::Timeout=30")]
        with Step(f"Look at Debian's packages of {', '.join(suites)}"):
            update = _run(["apt-get", *self._options, "update"])
        if not self.names(""):
            said = (update.stderr.strip() or "it has no package").splitlines()[0].lstrip("WE: ")
            raise Failure(f"Debian's mirror can't be read ({said}); check the network, and run "
                          "the same command again")

    def names(self, prefix: str) -> List[str]:
        """Return the names of all packages that begin with a prefix."""
        return self._cache("pkgnames", prefix).split()

    def versions(self, package: str) -> List[str]:
        """Return a package's versions without release candidates, newest first."""
        rows = [row.split("|") for row in self._cache("madison", package).splitlines()]
        return [row[1].strip() for row in rows if len(row) == 3 and "~rc" not in row[1]]

    def needs(self, package: str) -> List[str]:
        """Return a package's name and those of all that it depends on, at any depth."""
        return re.findall(r"^\w\S*", self._cache("depends", "--important", "--recurse", package),
                          re.M)

    def download(self, title: str, packages: Sequence[str]) -> List[Path]:
        """Download packages, "name" or "name=version", and return the files in this order."""
        # apt checks a file when it is complete: only then move it to where others look for it.
        incoming = self._folder / "incoming"
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir()
        run_logged(title, ["apt-get", *self._options, "download", *packages],
                   self._folder / "apt/download.log", cwd=incoming)
        found = [next(incoming.glob(f"{package.split('=')[0]}_*.deb")) for package in packages]
        return [path.rename(self._folder / path.name) for path in found]

    def _cache(self, *args: str) -> str:
        return _run(["apt-cache", *self._options, *args]).stdout
