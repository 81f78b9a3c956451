# SPDX-License-Identifier: GPL-2.0-only
"""Packages of Debian's for machines without its apt: pinned, and checked by SHA-256.

The paths, sizes and checksums here are from package lists that Debian had signed.  When newer
packages replace these, they disappear from Debian's mirrors, but stay in its snapshot archive.
"""

import hashlib
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Optional

from .ui import Failure, Step

# A day on which the packages below were current, for the snapshot archive.
_DAY = "2026-11-24"

_CHUNK = 1 << 20
_TIMEOUT = 30


@dataclass(frozen=True)
class Pinned:
    """A package: its path below a mirror of Debian, its size and its SHA-256."""
    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1]


LINUX_SOURCE = Pinned(
    "pool/main/l/linux/linux-source-7.3_7.3.4-1~bpo13+1_all.deb", 166780612,
    "703e369ddd4cce971452f5a593ee55df3a5c10c83caf0fa0df039633ed181ee3")

# Kernels for guests, by suite.
KERNELS = {
    "bookworm": Pinned(
        "pool/main/l/linux-signed-amd64/linux-image-6.1.0-50-cloud-amd64_6.1.176-1_amd64.deb",
        26484304, "efe19f605b6f54a8352e68d85a629abb2d30b72a085faef603a9152590baa791"),
    "trixie": Pinned(
        "pool/main/l/linux-signed-amd64/"
        "linux-image-6.12.117+deb13-cloud-amd64_6.12.117-1_amd64.deb",
        34671208, "e9893e5295d0549b8852611f12a4b8b5f6cc4b8128dcc2086b9847793b904ab7"),
    "trixie-backports": Pinned(
        "pool/main/l/linux-signed-amd64/"
        "linux-binary-7.3.4+deb13-cloud-amd64_7.3.4-1~bpo13+1_amd64.deb",
        13604064, "c4fbc8e404958693b28825474c20742d70594d65ca58aea7be6a279c81eb6fa0"),
}

# The modules of these kernels, if they are in a package of their own.
MODULES = {
    "trixie-backports": Pinned(
        "pool/main/l/linux/linux-modules-7.3.4+deb13-cloud-amd64_7.3.4-1~bpo13+1_amd64.deb",
        22918420, "359f04c363b7d3c5f9ce999ccb7351e00cc8eec0a30d6bc1cda37734987fc43d"),
}


def mirror() -> str:
    """Return the mirror to fetch packages from. Without apt, only the user can name one."""
    url = os.environ.get("MIRROR")
    if not url:
        raise Failure("This machine has no apt that knows a mirror of Debian; name one with "
                      "MIRROR=URL, the folder of it that has pool/, or use a Linux source of "
                      "your own with KERNEL_SRC=DIR or KERNEL_TARBALL=FILE")
    return url.rstrip("/")


def sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as data:
        while chunk := data.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fetch(package: Pinned, folder: Path, url_of_mirror: Optional[str] = None) -> Path:
    """Return the package's file in a folder; download it if it is not there.

    Without url_of_mirror, download from MIRROR=.
    """
    target = folder / package.name
    if target.exists():
        return target
    incoming = folder / "incoming" / package.name
    incoming.parent.mkdir(parents=True, exist_ok=True)
    # apt prints mirrors with a slash at the end, and not all mirrors accept a double slash.
    url = f"{(url_of_mirror or mirror()).rstrip('/')}/{package.path}"
    with Step(f"Download {package.name}, {package.size / 1e6:.0f} MB") as step:
        try:
            _download(url, incoming, package.size, step)
        except urllib.error.HTTPError as error:
            raise Failure(f"{url} can't be fetched ({error}); if it is gone, name Debian's "
                          f"snapshot archive of {_DAY} with MIRROR=URL") from error
        except (OSError, HTTPException, ValueError) as error:
            raise Failure(f"{url} can't be fetched ({error}); check the network and run the "
                          "same command again, it goes on from what is there") from error
        found = sha256(incoming)
        if found != package.sha256:
            incoming.unlink()
            raise Failure(f"{url} has the SHA-256 {found} and not {package.sha256}: it is "
                          "another file, and was removed; use another MIRROR=URL")
    return incoming.rename(target)


def _download(url: str, file: Path, size: int, step: Step) -> None:
    """Download to a file; if it has the beginning already, download only the rest."""
    have = file.stat().st_size if file.exists() else 0
    if have >= size:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response, \
            file.open("ab" if response.status == 206 else "wb") as out:
        while chunk := response.read(_CHUNK):
            out.write(chunk)
            step.tick(f"{out.tell() / 1e6:.0f} MB")
    if file.stat().st_size < size:
        raise HTTPException("the connection was closed early")
