#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""The patched host: fetch, assemble, build, boot, test and show it.

"make COMMAND" is the short way here.
"""

import errno
import os
import signal
import sys

# The other modules take a second to load.  Ctrl-C ends that without a traceback, if not ignored.
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.dont_write_bytecode = True
import subprocess  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Iterable, Sequence  # noqa: E402

from hostlib import options, results  # noqa: E402
from hostlib.commands import COMMANDS  # noqa: E402
from hostlib.ui import Failure, end_as_interrupted, say  # noqa: E402

# Variables that make passes on, and that a kernel's build system would heed.  "make -i check"
# would make it ignore errors, and LLVM=1 would make it use clang, while results are recorded as
# gcc's.  ARCH has another meaning there.
_NOT_FOR_BUILDS = ("ARCH", "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "KCFLAGS", "KCPPFLAGS",
                   "KAFLAGS", "W", "LLVM", "LLVM_IAS", "CROSS_COMPILE", "KCONFIG_ALLCONFIG")


def need(names: Iterable[str]) -> bool:
    """Return True if this machine has all that commands or groups of deps.txt need.

    If not, deps.sh has offered to install the rest, or has said how to get it.
    """
    return not subprocess.run(["sh", str(Path(__file__).with_name("deps.sh")), "need", *names],
                              stdout=sys.stdout.fileno(), check=False).returncode


def main(argv: Sequence[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, end_as_interrupted)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, end_as_interrupted)
    name = "host.py"
    try:
        name, given = options.parse(COMMANDS, str(__doc__), argv, os.environ)
        if given.mirror:
            os.environ["MIRROR"] = given.mirror
        if not need([name, *(["intel"] if given.vendor == "intel" else []),
                     *([given.arch] if given.arch != "x86" else [])]):
            return 1
        # hostlib itself passes to Linux's build systems what they need.
        for variable in _NOT_FOR_BUILDS:
            os.environ.pop(variable, None)
        status = COMMANDS[name].run(given)
        results.finish()
        return status
    except Failure as failure:
        say(f"{name}: {failure}.")
    except KeyboardInterrupt:
        results.put_back()
        say(f"\n{name}: interrupted; the same command continues from the finished parts.")
        return 130
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EACCES):
            raise
        where = f": {error.filename}" if error.filename else ""
        say(f"{name}: {error.strerror}{where}; correct that, or choose other folders with "
            "BUILD=DIR for the build and XDG_CACHE_HOME=DIR for downloads, and run the same "
            "command again.")
    results.say_where()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
