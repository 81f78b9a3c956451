# SPDX-License-Identifier: GPL-2.0-only
"""Run git in repositories that commands make, apart from the user's repositories and settings."""

import os
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Dict, FrozenSet

from .ui import Failure

# Who makes the commits that commands write: all users get the same bytes at any time.
_NAME, _EMAIL, _SECONDS = "Guest callchains", "nobody@example.com", 1767225600
WRITER = f"{_NAME} <{_EMAIL}> {_SECONDS} +0000"
_WRITER = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
           for what, value in (("NAME", _NAME), ("EMAIL", _EMAIL), ("DATE", f"{_SECONDS} +0000"))}

_SETTINGS = (("core.attributesFile", os.devnull), ("core.excludesFile", os.devnull),
             ("core.hooksPath", os.devnull),
             # root may work on a copy of another user's tree.
             ("safe.directory", "*"),
             # Start no background process, which might still run when a repository is removed.
             ("gc.auto", "0"), ("maintenance.auto", "false"))

_APART = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1",
          "GIT_TEMPLATE_DIR": "", "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
          **{f"GIT_CONFIG_{what}_{number}": setting[place]
             for number, setting in enumerate(_SETTINGS)
             for place, what in enumerate(("KEY", "VALUE"))}}


@lru_cache(maxsize=None)
def _local() -> FrozenSet[str]:
    """Return the environment variables that tell git which repository to use."""
    return frozenset(subprocess.run(["git", "rev-parse", "--local-env-vars"], check=True,
                                    stdout=subprocess.PIPE, text=True).stdout.split())


def environment(**more: str) -> Dict[str, str]:
    """Return an environment with which git uses the repository of the folder where it runs.

    In a git hook, variables name the user's repository and its index, and git would use these.
    """
    return {**{name: value for name, value in os.environ.items() if name not in _local()}, **more}


def isolated(**more: str) -> Dict[str, str]:
    """Return an environment in which git ignores the user's settings and name, too."""
    return environment(**{**_APART, **_WRITER, "LC_ALL": "C", **more})


class Repository:
    """A git repository of a command's own.

    Args:
        path: its top
    """

    # The branch of a new repository.
    FIRST = "linux"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: Dict[str, Dict[str, str]] = {}

    def git(self, *args: str, stdin: str = "", **more: str) -> str:
        """Run git, and return its output; raise Failure if it fails.

        Args:
            stdin: its input
            more: environment variables
        """
        done = self.try_git(*args, stdin=stdin, **more)
        if done.returncode:
            said = (done.stderr or done.stdout).strip() or "nothing"
            raise Failure(f"git {args[0]} failed in {self.path}, it says: {said.splitlines()[0]}")
        return done.stdout

    def try_git(self, *args: str, stdin: str = "",
                **more: str) -> "subprocess.CompletedProcess[str]":
        """Run git, which may fail."""
        done = subprocess.run(["git", *args], cwd=self.path,
                              input=stdin.encode(errors="surrogateescape"),
                              env=isolated(**more), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        # Text mode would drop carriage returns.
        said, errors = (text.decode(errors="surrogateescape")
                        for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, said, errors)

    def files(self, commit: str) -> Dict[str, str]:
        """Return the modes of all files of a commit, by path."""
        if commit not in self._files:
            said = self.git("ls-tree", "-r", "-z", commit)
            self._files[commit] = {path: head.split()[0] for head, path in (
                line.split("\t", 1) for line in said.split("\0") if line)}
        return self._files[commit]

    def blob(self, name: str) -> bytes:
        """Return the content of a file of a commit, "COMMIT:PATH"."""
        return subprocess.run(["git", "cat-file", "blob", name], cwd=self.path, env=isolated(),
                              stdout=subprocess.PIPE, check=True).stdout

    def fast_import(self, stream: bytes) -> None:
        """Let git read commits and their files."""
        done = subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=self.path,
                              input=stream, env=isolated(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            raise Failure(f"git fast-import failed in {self.path}, it says: "
                          f"{done.stdout.decode(errors='replace').splitlines()[0]}")

    def init(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", self.FIRST)

    def commit_all(self, message: str) -> str:
        """Commit all files, ignored ones too, and return the commit."""
        # Without "-f", Linux's own .gitignore would keep some of its files out.
        # With the threshold, git packs the files at once; 90 000 loose objects would take longer.
        self.git("-c", "core.bigFileThreshold=1", "add", "-A", "-f")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()
