# SPDX-License-Identifier: GPL-2.0-only
"""The options of all commands: each may be given as a variable as well, as make has them."""

import argparse
from dataclasses import dataclass, fields
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .arch import ARCHS
from .ui import Failure

# Whose kernel the demo's guest may run: Debian's as distributed, or the one that was built here.
GUESTS = ("debian", "own")


@dataclass(frozen=True)
class Options:
    """What a command is asked for."""
    build: str = ""
    kernel_src: str = ""
    kernel_tarball: str = ""
    kernel_sha256: str = ""
    mirror: str = ""
    base: str = ""
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
    one_today: bool = False
    config: str = ""
    localmod: bool = False
    release: bool = False
    junit: str = ""
    json: str = ""


@dataclass(frozen=True)
class Option:
    """One of them.

    Args:
        variable: that make hands over in the environment
        help: what it does; the command may have its own words
        metavar: what the value is; none for a switch
        choices: the only values, if so
        alone: what --option means without a value, if that is allowed
        ambient: the variable may be set whether a command heeds it or not, for it says where
            and how, and not what
    """
    variable: str
    help: str
    metavar: str = ""
    choices: Tuple[str, ...] = ()
    alone: str = ""
    ambient: bool = False


OPTIONS: Dict[str, Option] = {
    "build": Option("BUILD", "build there, not in ./build", "DIR", ambient=True),
    "kernel_src": Option("KERNEL_SRC", "use this Linux source, and leave it as it is", "DIR",
                         ambient=True),
    "kernel_tarball": Option("KERNEL_TARBALL", "use the source in this linux-7.3.x.tar.xz", "FILE",
                             ambient=True),
    "kernel_sha256": Option("KERNEL_SHA256", "the SHA-256 that the tarball must have", "HEX",
                            ambient=True),
    "mirror": Option("MIRROR", "fetch what is Debian's there, not where apt does", "URL",
                     ambient=True),
    "base": Option("BASE", "lay the patches over another Linux, whose differences are in "
                   "patches/vVERSION", "VERSION"),
    "jobs": Option("JOBS", "build with N jobs, not one for each CPU", "N", ambient=True),
    "accel": Option("ACCEL", "how QEMU runs the host; auto takes KVM if it can nest",
                    choices=("auto", "tcg", "kvm"), ambient=True),
    "arch": Option("ARCH", "of which architecture the host is; arm64 is emulated by QEMU",
                   choices=tuple(ARCHS)),
    "vendor": Option("VENDOR", "whose CPU the host has; Bochs emulates Intel's",
                     choices=("amd", "intel")),
    "guest": Option("GUEST", "whose kernel the guest runs: Debian's, or the one built here",
                    choices=GUESTS),
    "kargs": Option("KARGS", "boot the host with them, e.g. kvm_amd.npt=0", "ARGS"),
    "kconfig": Option("KCONFIG", "merge this fragment into the configuration of the host's kernel",
                      "FILE"),
    "baseline": Option("BASELINE", "build a host that can walk as the series of 2023 did",
                       choices=("v3",)),
    "tests": Option("TESTS", "run just these, e.g. guest_callchain_test", "NAMES"),
    "all": Option("ALL", "compare all KVM selftests of Linux with an unpatched kernel"),
    "quick": Option("QUICK", "do less"),
    "fuzz_seconds": Option("FUZZ_SECONDS", "fuzz for so long, builds aside (60)", "N"),
    "fuzz_cases": Option("FUZZ_CASES", "sample N guests instead, and fuzz user space 50 N times",
                         "N"),
    "seed": Option("SEED", "fuzz other cases than those of seed 1", "N"),
    "mutants": Option("MUTANTS", "try just these, as their files in patches/mutants are called",
                      "NAMES"),
    "today": Option("TODAY", "try N of them, on each day others", "N"),
    "one_today": Option("TODAY", "run one of the two passes, on each day another"),
    "config": Option("CONFIG", "configure the kernel as this file does, not as the running one",
                     "FILE"),
    "localmod": Option("LOCALMOD", "leave out modules that are not loaded; let VMs run here"),
    "release": Option("RELEASE", "write them to series/, from nobody and not signed off"),
    "junit": Option("JUNIT", "write the results to it, as JUnit's XML", "FILE"),
    "json": Option("JSON", "write the results as KernelCI's JSON, to standard output unless FILE "
                   "is named; all else goes to standard error then", "FILE", alone="-"),
}
assert {field.name for field in fields(Options)} == OPTIONS.keys()


@dataclass(frozen=True)
class Command:
    """A command.

    Args:
        run: takes the options, returns an exit status
        help: what it does, in a line
        options: the names of those that it heeds
        needs: groups of scripts/deps.txt that it takes, beyond those of its options
        words: what an option means here, where that differs
    """
    run: Callable[[Options], int]
    help: str
    options: Tuple[str, ...] = ()
    needs: Tuple[str, ...] = ()
    words: Tuple[Tuple[str, str], ...] = ()


_EPILOG = """
A variable in the environment does what the option does that its name is behind; make hands
over its own.
"""


def _add(parser: argparse.ArgumentParser, name: str, option: Option, words: str) -> None:
    flag = "--today" if name == "one_today" else f"--{name.replace('_', '-')}"
    text = f"{words or option.help}  ({option.variable}=)".replace("%", "%%")
    if option.choices:
        parser.add_argument(flag, dest=name, choices=option.choices, help=text)
    elif option.alone:
        parser.add_argument(flag, dest=name, metavar=option.metavar, nargs="?",
                            const=option.alone, help=text)
    elif option.metavar:
        parser.add_argument(flag, dest=name, metavar=option.metavar, help=text,
                            type=_number if name == "jobs" else str)
    else:
        parser.add_argument(flag, dest=name, action="store_true", default=None, help=text)


def _number(text: str) -> int:
    if not text.isdecimal() or text == "0":
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 on")
    return int(text)


def parser_of(commands: Mapping[str, Command], description: str) -> argparse.ArgumentParser:
    """The parser of a program with these commands."""
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
    """The variables that are set, as options."""
    arguments = []
    for name in command.options:
        value = environment.get(OPTIONS[name].variable)
        if value:
            flag = "--today" if name == "one_today" else f"--{name.replace('_', '-')}"
            option = OPTIONS[name]
            is_switch = not (option.choices or option.metavar)
            if is_switch and value != "1":
                raise Failure(f"{option.variable}={value} is neither yes nor no; say "
                              f"{option.variable}=1, or leave it out")
            arguments.append(flag if is_switch else f"{flag}={value}")
    return arguments


def _check_heeded(name: str, command: Command, environment: Mapping[str, str]) -> None:
    """Raise Failure if a variable is set that says what to do, and that this doesn't heed."""
    heeded = {OPTIONS[option].variable for option in command.options}
    vain = sorted({option.variable for option in OPTIONS.values()
                   if not option.ambient and environment.get(option.variable)} - heeded)
    if vain:
        raise Failure(f"{name} does not heed {', '.join(vain)}; leave it away, and see "
                      f"\"scripts/host.py {name} --help\"")


def parse(commands: Mapping[str, Command], description: str, argv: Sequence[str],
          environment: Mapping[str, str]) -> Tuple[str, Options]:
    """The command that is asked for, and its options.

    Raises Failure if the environment asks for something else.
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
