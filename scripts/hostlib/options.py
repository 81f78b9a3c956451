# SPDX-License-Identifier: GPL-2.0-only
"""The options of all commands; each can also be set by a variable, as with make."""

import argparse
import datetime
from dataclasses import dataclass, fields
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

from .arch import ARCHS
from .ui import Failure

Item = TypeVar("Item")

# The kernels that the demo's guest can run: Debian's, as distributed, or the one built here.
GUESTS = ("debian", "own")


@dataclass(frozen=True)
class Options:
    """The values of all options, for one run of a command."""
    build: str = ""
    kernel_src: str = ""
    kernel_tarball: str = ""
    mirror: str = ""
    jobs: int = 0
    accel: str = "auto"
    arch: str = "x86"
    vendor: str = "amd"
    guest: str = ""
    kargs: str = ""
    kconfig: str = ""
    baseline: str = ""
    tests: str = ""
    all: bool = False
    quick: bool = False
    fuzz_seconds: str = "60"
    fuzz_cases: str = "0"
    seed: str = "1"
    mutants: str = ""
    today: str = ""
    config: str = ""
    localmod: bool = False
    suite: str = ""
    junit: str = ""
    json: str = ""


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        variable: the environment variable by which make passes it
        help: what it does; a command may have another text for it, see Command.words
        metavar: the help's name for the value; empty for a switch, and if there are choices
        choices: the allowed values; empty if there is no such list
        ambient: the variable may be set even for a command that does not use it, because it
            tells where or how a command works, not what it does
    """
    variable: str
    help: str
    metavar: str = ""
    choices: Tuple[str, ...] = ()
    ambient: bool = False


OPTIONS: Dict[str, Option] = {
    "build": Option("BUILD", "build there, not in ./build", "DIR", ambient=True),
    "kernel_src": Option("KERNEL_SRC", "use this Linux source, and leave it as it is", "DIR",
                         ambient=True),
    "kernel_tarball": Option("KERNEL_TARBALL", "use the source in this linux-7.3.x.tar.xz", "FILE",
                             ambient=True),
    "mirror": Option("MIRROR", "fetch Debian's packages from there, not from apt's mirror", "URL",
                     ambient=True),
    "jobs": Option("JOBS", "build with N jobs, not one for each CPU", "N", ambient=True),
    "accel": Option("ACCEL", "how QEMU runs the host; auto takes KVM if it can nest",
                    choices=("auto", "tcg", "kvm"), ambient=True),
    "arch": Option("ARCH", "architecture of the host; QEMU emulates arm64",
                   choices=tuple(ARCHS)),
    "vendor": Option("VENDOR", "CPU of the host; Bochs emulates Intel's",
                     choices=("amd", "intel")),
    "guest": Option("GUEST", "kernel of the guest: Debian's, or the one built here",
                    choices=GUESTS),
    "kargs": Option("KARGS", "boot the host with these, e.g. kvm_amd.npt=0", "ARGS"),
    "kconfig": Option("KCONFIG", "merge this fragment into the configuration of the host's kernel",
                      "FILE"),
    "baseline": Option("BASELINE", "build a host that can walk as the series of 2023 did",
                       choices=("v3",)),
    "tests": Option("TESTS", "run just these, e.g. guest_callchain_test", "NAMES"),
    "all": Option("ALL", "compare all KVM selftests of Linux with an unpatched kernel"),
    "quick": Option("QUICK", "do less"),
    "fuzz_seconds": Option("FUZZ_SECONDS", "fuzz for N seconds, not counting builds (60)", "N"),
    "fuzz_cases": Option("FUZZ_CASES", "sample N guests instead, and fuzz user space 50 N times",
                         "N"),
    "seed": Option("SEED", "fuzz with another seed than 1", "N"),
    "mutants": Option("MUTANTS", "try just these, by the names of their files in patches/mutants",
                      "NAMES"),
    "today": Option("TODAY", "try N of them, others each day", "N"),
    "config": Option("CONFIG", "configure the kernel by this file, not as the running one",
                     "FILE"),
    "localmod": Option("LOCALMOD", "leave out modules that are not loaded; let VMs run here"),
    "suite": Option("SUITE", "Debian's release to try it on", choices=("trixie", "bookworm")),
    "junit": Option("JUNIT", "write the results to it, as JUnit's XML", "FILE"),
    "json": Option("JSON", "write the results to it, as KernelCI's JSON", "FILE"),
}
assert {field.name for field in fields(Options)} == OPTIONS.keys()


@dataclass(frozen=True)
class Command:
    """A command.

    Args:
        run: takes the options, returns an exit status
        help: what it does, in a line; scripts/deps.txt has what it needs
        options: the names of the options that it uses
        words: for options with another meaning here, the name and the help
    """
    run: Callable[[Options], int]
    help: str
    options: Tuple[str, ...] = ()
    words: Tuple[Tuple[str, str], ...] = ()


_EPILOG = """
Each option can also be set by the environment variable whose name follows it; make passes its
variables on.
"""


def _add(parser: argparse.ArgumentParser, name: str, option: Option, words: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    text = f"{words or option.help}  ({option.variable}=)".replace("%", "%%")
    if option.choices:
        parser.add_argument(flag, dest=name, choices=option.choices, help=text)
    elif option.metavar:
        parser.add_argument(flag, dest=name, metavar=option.metavar, help=text,
                            type=_number if name == "jobs" else str)
    else:
        parser.add_argument(flag, dest=name, action="store_true", default=None, help=text)


def by_turns(items: Sequence[Item], number: str, day: Optional[int] = None) -> List[Item]:
    """Return so many of these items: others each day, and all of them get their turn.

    Args:
        number: the value of TODAY=
        day: the number of the day; today if it is None
    """
    if not number.isdecimal() or number == "0":
        raise Failure(f"TODAY={number} must be a number, at least 1")
    count = min(int(number), len(items))
    first = (datetime.date.today().toordinal() if day is None else day) * count
    return [items[(first + i) % len(items)] for i in range(count)]


def _number(text: str) -> int:
    if not text.isdecimal() or text == "0":
        raise argparse.ArgumentTypeError(f"{text} must be a number, at least 1")
    return int(text)


def parser_of(commands: Mapping[str, Command], description: str) -> argparse.ArgumentParser:
    """Return the parser of a program with these commands."""
    parser = argparse.ArgumentParser(prog="host.py", description=description, epilog=_EPILOG,
                                     allow_abbrev=False)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in commands.items():
        sub = subparsers.add_parser(name, help=command.help, allow_abbrev=False, epilog=_EPILOG,
                                    description=f"{command.help[0].upper()}{command.help[1:]}.")
        words = dict(command.words)
        for option in command.options:
            _add(sub, option, OPTIONS[option], words.get(option, ""))
    return parser


def _from_environment(command: Command, environment: Mapping[str, str]) -> List[str]:
    """Return the variables that are set in the environment, as command-line options."""
    arguments = []
    for name in command.options:
        value = environment.get(OPTIONS[name].variable)
        if value:
            flag = f"--{name.replace('_', '-')}"
            option = OPTIONS[name]
            is_switch = not (option.choices or option.metavar)
            if is_switch and value != "1":
                raise Failure(f"{option.variable}={value} is not valid; say "
                              f"{option.variable}=1, or leave it out")
            arguments.append(flag if is_switch else f"{flag}={value}")
    return arguments


def _check_heeded(name: str, command: Command, environment: Mapping[str, str]) -> None:
    """Raise Failure if a variable is set that the command does not use, and is not ambient."""
    heeded = {OPTIONS[option].variable for option in command.options}
    vain = sorted({option.variable for option in OPTIONS.values()
                   if not option.ambient and environment.get(option.variable)} - heeded)
    if vain:
        raise Failure(f"{name} does not use {', '.join(vain)}; omit it, and see "
                      f"\"scripts/host.py {name} --help\"")


def parse(commands: Mapping[str, Command], description: str, argv: Sequence[str],
          environment: Mapping[str, str]) -> Tuple[str, Options]:
    """Return the command's name and its options, from the arguments and the environment.

    Raises Failure if the environment sets variables that the command can't use.
    """
    parser = parser_of(commands, description)
    given = parser.parse_args(argv)
    name: str = given.command
    _check_heeded(name, commands[name], environment)
    position = list(argv).index(name) + 1
    merged = parser.parse_args([*argv[:position], *_from_environment(commands[name], environment),
                                *argv[position:]])
    values: Dict[str, Optional[object]] = vars(merged)
    return name, Options(**{option: values[option] for option in commands[name].options
                            if values[option] is not None})  # type: ignore[arg-type]
