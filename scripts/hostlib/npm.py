# SPDX-License-Identifier: GPL-2.0-only
"""Fetch npm packages by name, version and checksum, and keep them in the cache."""

import base64
import hashlib
import re
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .source import cache_dir
from .ui import Failure


@dataclass(frozen=True)
class Package:
    """A package; sha512 is its tarball's SHA-512 in base64, as npm's "integrity" has it."""
    name: str
    version: str
    sha512: str

    @property
    def tarball(self) -> str:
        return f"{self.name}-{self.version}.tgz"


D3 = Package("d3", "7.9.0", "e1U46jVP+w7Iut8Jt8ri1YsPOvFpg46k+K8TpCb0P+zj"
             "CkjkPnV7WzfDJzMHy1LnA+wj5pLT1wjO901gLXeEhA==")
D3_FLAME_GRAPH = Package("d3-flame-graph", "5.0.0", "ALZQ4at8Dex8HCoj9D5p5TY6gLNEc2vAZAy+NKO/"
                         "6GLEfhYJmGxYuRClO6RPoplndyOHxQTPipdlGeMggkjtnQ==")

# By default, npm tries for three minutes when the network is down.
_PATIENCE = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000")


def _is_whole(package: Package, path: Path) -> bool:
    digest = hashlib.sha512(path.read_bytes()).digest()
    return base64.b64encode(digest).decode() == package.sha512


def fetch(package: Package) -> Path:
    """Return a package's tarball from the cache or from npm, after checking its SHA-512."""
    folder = cache_dir() / "npm"
    kept = folder / package.tarball
    if kept.exists() and _is_whole(package, kept):
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    # Run npm in a new folder, so that an .npmrc in the caller's folder has no effect.
    with tempfile.TemporaryDirectory(dir=folder) as incoming:
        try:
            result = subprocess.run(
                ["npm", "pack", f"{package.name}@{package.version}", *_PATIENCE], cwd=incoming,
                check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True)
        except FileNotFoundError:
            raise Failure(f"npm, which fetches {package.name}, is not installed; install it "
                          "(Debian's package is npm), and run the same command again") from None
        fetched = Path(incoming) / package.tarball
        if not fetched.exists():
            code = re.search(r"^npm \S+ code (\S+)", result.stdout, re.MULTILINE)
            raise Failure(f"npm can't fetch {package.name} {package.version} "
                          f"({code.group(1) if code else result.returncode}); check the network, "
                          "and run the same command again")
        if not _is_whole(package, fetched):
            raise Failure(f"What npm fetched as {package.name} {package.version} has another "
                          "SHA-512 than the one in scripts/hostlib/npm.py; don't use that mirror")
        return fetched.rename(kept)


def read(package: Package, member: str) -> str:
    """Return the text of a file in the package."""
    with tarfile.open(fetch(package)) as archive:
        found = archive.extractfile(f"package/{member}")
        assert found
        return found.read().decode()


def unpack(package: Package, modules: Path) -> Path:
    """Unpack a package into a folder node_modules, where node looks for it."""
    folder = modules / package.name
    with tarfile.open(fetch(package)) as archive:
        for member in archive.getmembers():
            # The paths in the archive are safe, because its checksum is right.
            member.name = member.name.partition("/")[2]
            archive.extract(member, folder)
    return folder
