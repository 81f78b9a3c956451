# SPDX-License-Identifier: GPL-2.0-only
"""Where a command builds, from which source, and on which host it runs, by its options."""

from pathlib import Path
from typing import Optional, Tuple

from . import arm64, source
from . import results as result_folders
from .arch import ARCHS, ARM64
from .build import CONFIGS, Build, check_space
from .emulated import choose_accel
from .options import Options
from .patches import REPO
from .ui import Failure, claim


def build_dir(options: Options) -> Path:
    folder = Path(options.build or REPO / "build").resolve()
    # Neither the kernel's build system nor QEMU's options can quote these characters.
    if any(character in f"{folder}{REPO}" for character in " ,:\t\n"):
        raise Failure(f"The paths {folder} and {REPO} must not contain a space, comma or "
                      "colon; use other folders")
    return folder


def arch_dir(options: Options) -> Path:
    """Return the folder for builds for the host's architecture."""
    folder = build_dir(options)
    return folder / options.arch if ARCHS[options.arch] is ARM64 else folder


def results_dir(name: str) -> Path:
    return result_folders.begin(REPO / "results" / "latest" / name)


def linux(options: Options) -> source.Source:
    return source.find(options.kernel_src, options.kernel_tarball)


def check_arch(options: Options) -> None:
    """Raise Failure if an option of x86 alone is given for another architecture."""
    for variable, given in (("VENDOR", options.vendor == "intel"), ("BASELINE", options.baseline)):
        if given and options.arch != "x86":
            raise Failure(f"{variable}= is for ARCH=x86; omit it or ARCH={options.arch}")


def accel_of(options: Options) -> str:
    """Return the emulator or accelerator that runs the host."""
    check_arch(options)
    if options.arch != "x86":
        return arm64.choose_accel(options.accel)
    return "bochs" if options.vendor == "intel" else choose_accel(options.accel)


def host_traits(options: Options) -> str:
    """Describe this host in the words of expected-skips.txt, except for "intel"."""
    return f"{options.arch} {options.kargs} {Path(options.kconfig).stem}"


def extra_config(options: Options) -> Optional[Path]:
    """The user's fragment of a configuration, if there is one."""
    extra = Path(options.kconfig) if options.kconfig else None
    if extra and not extra.is_file():
        raise Failure(f"{extra} is no file; name a fragment of a kernel's configuration")
    return extra


def host_dir(options: Options) -> Path:
    """The folder that the host is built in."""
    folder = build_dir(options)
    if options.baseline:
        # Use a tree of its own: if one tree changed back and forth, it would be compiled each time.
        folder /= "baseline-v3"
    if options.arch == ARM64.name:
        folder /= options.arch
    claim(folder)
    return folder


def fetched(options: Options) -> Build:
    """Return the host, which is not built yet, but can be: this fails before long work."""
    extra = extra_config(options)
    folder = host_dir(options)
    arch = ARCHS[options.arch]
    # Look at the disk before the download of the source, too.
    if not any(folder.glob(f"host*/kernel/{arch.image}")):
        check_space(folder)
    return Build(folder, linux(options), extra, bool(options.baseline),
                 jobs=options.jobs, arch=arch)


def built(options: Options) -> Build:
    """Return the host; build it first if that is necessary."""
    build = fetched(options)
    build.all()
    return build


def with_and_without(options: Options) -> Tuple[Build, Build]:
    """Return a host with our patches and one without; neither is built yet."""
    folder = arch_dir(options)
    claim(folder)
    kernel, arch = linux(options), ARCHS[options.arch]
    return (Build(folder, kernel, None, jobs=options.jobs, arch=arch),
            Build(folder / "unpatched", kernel, CONFIGS / "no-callchain.config", patched=False,
                  jobs=options.jobs, arch=arch))
