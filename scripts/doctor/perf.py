# SPDX-License-Identifier: GPL-2.0-only
"""What perf can do, and what it finds in a guest's memory."""

import re
import tempfile
from typing import Dict, List, NamedTuple, Optional

from .check import Check, no, ok, stop, unknown
from .host import PERMIT
from .system import System

# The name of the perf that make deb builds.
PERF = "perf_7.3"

QUICK_SECONDS = 20
# perf searches the guest's memory.  A search that takes longer than this counts as failed.
SEARCH_SECONDS = 180

GIVE_FILES = "give perf files of the guest's: --guestkallsyms=FILE, --guestmodules=FILE"
START_ANEW = "start it anew with a VMM that doesn't: it can't take that back"
GIVE_VMLINUX = "give its vmlinux for the ORC tables, by --guestvmlinux=FILE"

# Parts of perf's messages about what it has not found, each with a word and a remedy.
REASONS = (
    ("perf_event_guest_callchain is", "switch", PERMIT),
    ("its VMM forbids it", "policy", START_ANEW),
    ("may not trace", "trace", "run this, and perf, as root"),
    ("no Linux kernel", "no-linux", f"if it has not booted yet, wait; else {GIVE_FILES}"),
    ("no kallsyms are found", "no-symbols", f"{GIVE_FILES} and --guestvmlinux=FILE"),
    ("without libbpf", "no-libbpf", "install libbpf's headers, and build perf again"),
    ("", "other", GIVE_FILES),
)


class Info(NamedTuple):
    """What perf kvm guest-info has found; why_not has the reasons for the rest."""
    name: str = ""
    release: str = ""
    symbols: str = ""
    modules: int = 0
    tasks: int = 0
    why_not: Dict[str, str] = {}


def check_perf(system: System, program: str) -> Check:
    mend = (f"pass --perf {PERF}, or PERF={PERF} to make; make deb builds it, and make -C "
            "tools/perf in a patched kernel tree builds perf, too")
    # Without options, the subcommand prints its usage.  Other perfs don't know the subcommand.
    status, usage = system.run([program, "kvm", "guest-info"], QUICK_SECONDS)
    if status is None:
        return stop("host.perf", "not-run", f"{program} can't be run: {usage}", mend)
    found = re.search(r"perf version (\S+)", system.run([program, "version"], QUICK_SECONDS)[1])
    version = f"perf {found.group(1)}" if found else program
    if "guest-info -p" not in usage:
        return stop("host.perf", "old", f"{version} does not know guests' callchains", mend)
    return ok("host.perf", f"{version} knows guests' callchains")


def look_into(system: System, program: str, pid: int) -> Info:
    """Let perf look for the guest's kernel, and remove the files that perf writes."""
    try:
        with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
            status, output = system.run([program, "kvm", "guest-info", "-p", str(pid),
                                         "-o", f"{folder}/guests"], SEARCH_SECONDS)
            if status is None:
                return Info(why_not={"names": output})
            return read_info(system, output, pid, f"{folder}/guests/{pid}")
    except OSError as error:
        return Info(why_not={"names": f"perf has no room for what it finds: {error.strerror}"})


def read_info(system: System, output: str, pid: int, folder: str) -> Info:
    """Read the output of perf kvm guest-info, and the files that it has written to a folder."""
    guest = f"the guest of process {pid}"
    # Behind a semicolon, perf says what to do: so does the doctor.
    said = {what: re.search(f"{words}: ([^;\n]*)", output, re.I) for what, words in (
        ("names", f"{guest} has no names"), ("modules", f"modules of {guest} have no names"),
        ("tasks", f"tasks of {guest} have no names"), ("tables", f"{guest} is not unwound by ORC"))}
    why_not = {what: found.group(1) for what, found in said.items() if found}
    runs = re.search(rf"^{guest} runs Linux (\S+): (\d+) symbols", output, re.I | re.M)
    if not runs:
        last = (output.strip() or "perf kvm guest-info failed").splitlines()[-1]
        return Info(why_not={"names": last, **why_not})
    modules = system.read(f"{folder}/proc/modules").splitlines()
    # A task that is gone has a line of two words.
    tasks = [line for line in system.read(f"{folder}/tasks").splitlines() if line.count(" ") > 1]
    called = re.search(f"{guest} is called (.*)", output, re.I)
    return Info(called.group(1) if called else "it", runs.group(1), runs.group(2), len(modules),
                len(tasks), why_not)


def because(key: str, fact: str, reason: str, mend: str = "") -> Check:
    """Return a failed check for one of perf's reasons."""
    why, usual = next((why, mend) for part, why, mend in REASONS if part in reason)
    return no(key, why, f"{fact}: {reason}", mend or usual)


def check_names(info: Info) -> List[Check]:
    if not info.release:
        return [because("guest.kernel", "its functions have no names", info.why_not["names"])]
    fact = f"{info.name} runs Linux {info.release}: {info.symbols} symbols"
    checks = []
    for what, number, mend in (("modules", info.modules, ""), (
            "tasks", info.tasks, "nothing: their samples have the VMM's name")):
        if what in info.why_not:
            checks.append(because(f"guest.{what}", f"its {what} have no names",
                                  info.why_not[what], mend))
        else:
            fact += f", {number} {what}"
    return [ok("guest.kernel", fact), *checks]


def has_tables(info: Optional[Info]) -> bool:
    return bool(info and info.release and "tables" not in info.why_not)


def check_unwinding(info: Optional[Info]) -> Check:
    """Say by which method -g unwinds the guest's kernel."""
    if not info or not info.release:
        return unknown("guest.unwinding", "whether its kernel has frame pointers: -g is "
                       "--call-graph fp")
    if has_tables(info):
        return ok("guest.unwinding", "it has ORC tables: -g is --call-graph orc")
    if "no ORC tables" in info.why_not["tables"]:
        return ok("guest.unwinding", "its kernel has no ORC tables, so it should have frame "
                  "pointers: -g is --call-graph fp")
    return no("guest.unwinding", "no-tables", "it is not unwound by ORC: "
              + info.why_not["tables"], GIVE_VMLINUX)
