# SPDX-License-Identifier: GPL-2.0-only
"""Output for people: steps, how long they take, and how they fail."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional, Sequence, TextIO

# A step that still runs prints how long it has taken, once in so many seconds.
_REMIND_TTY = 1
_REMIND_LOG = 60


class Failure(Exception):
    """An expected failure: one clear sentence, which also tells how to solve the problem."""


def say(text: str) -> None:
    print(text, flush=True)


def host_folder(vendor: str, config: Optional[Path], kernel_args: str) -> str:
    """Return the name of a folder for one host's results, with "+" for commas in arguments.

    The path becomes a part of QEMU's options, where a comma ends a value.

    Args:
        vendor: the vendor of the host's CPU; for another architecture than x86, its name
        config: the host's fragment of a kernel's configuration
        kernel_args: the arguments of its kernel
    """
    parts = [vendor] if vendor != "amd" else []
    if config:
        parts.append(config.stem)
    return "-".join(parts + kernel_args.replace(",", "+").split())


def check_root(command: str) -> None:
    """Raise Failure unless this process can make a Debian in a folder, and run programs in it."""
    if os.geteuid():
        raise Failure(f"{command} makes a Debian of its own, which only root can; run it as root")


# Lock files. They stay open, and so locked, as long as this process runs.
_claims: Dict[Path, TextIO] = {}


def claim(folder: Path) -> None:
    """Lock a folder until this process ends. Raise Failure if another process has locked it."""
    if folder in _claims:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f".{folder.name}.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise Failure(f"Another run uses {folder}; wait for its end, or use another "
                      "clone") from None
    _claims[folder] = lock


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process at a time work in a folder; others wait for their turn."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Another run downloads to {folder}; this one waits until it has ended")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def end_as_interrupted(signum: int, frame: object) -> None:
    """A signal handler: clean up as after Ctrl-C."""
    raise KeyboardInterrupt


class Step:
    """Print the title of a step, and how long it takes, while it runs and at its end.

    Use as a context manager; call tick() now and then.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._start = time.monotonic()
        self._said = 0.0
        self._tty = sys.stdout.isatty()

    def _elapsed(self) -> float:
        return time.monotonic() - self._start

    def __enter__(self) -> "Step":
        if not self._tty:
            say(f"        {self.title} ...")
        self.tick()
        return self

    def tick(self, detail: str = "") -> None:
        elapsed = self._elapsed()
        if elapsed - self._said < (_REMIND_TTY if self._tty else _REMIND_LOG):
            return
        self._said = elapsed
        line = f"[{elapsed:4.0f}s] {self.title} ... {detail}"
        if self._tty:
            width = os.get_terminal_size(sys.stdout.fileno()).columns - 1
            print(f"\r\033[K{line[:width]}", end="", flush=True)
        else:
            say(line)

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        end = "\r\033[K" if self._tty else ""
        state = "" if kind is None else " - not finished"
        say(f"{end}[{self._elapsed():4.0f}s] {self.title}{state}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all that it started."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sig)
            process.wait(timeout=5)
            return
        except ProcessLookupError:
            process.wait()
            return
        except subprocess.TimeoutExpired:
            continue


# With less than this many bytes left, a disk counts as full.
_FULL = 16 << 20


def explain(log: Path) -> str:
    """Return the reason why a command failed, from its log."""
    lines = log.read_text(errors="replace").splitlines()
    # A full disk leaves no room for the message that says so.
    if (shutil.disk_usage(log.parent).free < _FULL or
            any("No space left on device" in line for line in lines[-200:])):
        return "the disk is full; free some space and run the same command again"
    # apt's and mmdebstrap's first complaint is the cause of those that follow.
    errors = [line for line in lines if "error:" in line or "Error " in line or "*** " in line
              or line.startswith("E: ")]
    said = (errors[:1] or lines[-1:] or ["nothing"])[0]
    unread = "; check the network, and run the same command again" * ("Failed to fetch" in said)
    return f"it says: {said.strip()}{unread}"


def run_logged(title: str, argv: Sequence[str], log: Path, *,
               cwd: Optional[Path] = None,
               env: Optional[Mapping[str, str]] = None) -> None:
    """Run a command as a step, with its output in a log. Raise Failure if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with Step(title) as step, log.open("wb") as out:
        process = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=subprocess.STDOUT,
                                   env={**os.environ, "LC_ALL": "C", **(env or {})},
                                   start_new_session=True)
        try:
            while True:
                try:
                    process.wait(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    step.tick(f"{log.stat().st_size // 1024} KiB of log")
        except BaseException:
            _stop(process)
            raise
        if process.returncode:
            raise Failure(f"{title} failed, {explain(log)}. All of it is in {log}")
