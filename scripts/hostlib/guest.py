# SPDX-License-Identifier: GPL-2.0-only
"""Make guests from files of ours and from kernels as Debian ships them."""

import lzma
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Tuple

from .arch import X86, Arch
from .deb import Apt, cache_dir
from .patches import REPO
from .ui import Failure, one_at_a_time

SCRIPTS = REPO / "scripts" / "guest"
# Paths at which distributions install a static busybox.
_BUSYBOXES = ("/bin/busybox.static", "/bin/busybox", "/usr/bin/busybox", "/usr/sbin/busybox")


# "0x... (NEEDED) Shared library: [libc.so.6]", "[Requesting program interpreter: /lib64/ld-...]"
_LIBRARY = re.compile(r"\(NEEDED\).*\[(.+)\]|program interpreter: (.+)\]")


def busybox() -> Path:
    for name in _BUSYBOXES:
        # ldd fails for programs that need no library.
        if Path(name).exists() and subprocess.run(
                ["ldd", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                check=False).returncode:
            return Path(name)
    raise Failure("There is no static busybox; run make deps")


def install(programs: Dict[str, Path], root: Path, system: Path = Path("/"),
            arch: Arch = X86) -> None:
    """Copy programs to /bin of a guest's root, and their libraries to the paths that they have.

    Args:
        programs: by the names that they get in the guest
        root: a new folder, which becomes the guest's root
        system, arch: see install_libraries()
    """
    (root / "bin").mkdir(parents=True)
    for name, program in programs.items():
        shutil.copy(program, root / "bin" / name)
        install_libraries(program, root, system, arch)


def install_libraries(program: Path, root: Path, system: Path = Path("/"),
                      arch: Arch = X86) -> None:
    """Copy a program's libraries, and the dynamic linker, to the same paths as they have.

    Args:
        root: where to copy them
        system: the root of the Debian that has them
        arch: that Debian's architecture
    """
    wanted = [program]
    while wanted:
        # ldd would run the program, which may be of another architecture.
        listed = subprocess.run(["readelf", "-ldW", str(wanted.pop())], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=False).stdout
        for library, linker in _LIBRARY.findall(listed):
            path = linker.lstrip("/") or f"lib/{arch.triplet}/{library}"
            kept = root / path
            if kept.exists():
                continue
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(system / path, kept)
            wanted.append(kept)


def pack(root: Path, path: Path) -> None:
    """Write an initramfs with all files of a folder."""
    names = "\n".join(str(p.relative_to(root)) for p in sorted(root.rglob("*")))
    with path.open("wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=root,
                       input=names.encode(), stdout=out, check=True)


def write_initrd(path: Path, init: str, files: Path, modules: Iterable[Path] = (),
                 shell: Optional[Path] = None) -> None:
    """Write a guest's files: busybox, workload.sh, and a script of scripts/guest as its init.

    Args:
        path: the file to write
        init: name of the script
        files: a folder with more files, at the paths that they get below the guest's root
        modules: modules of the guest's kernel; the script finds them in /modules, in this order
        shell: the busybox to use instead of this machine's
    """
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        shutil.copytree(files, root, dirs_exist_ok=True)
        for name in ("bin", "dev", "proc", "sys", "tmp", "mnt", "modules"):
            (root / name).mkdir(exist_ok=True)
        (root / "bin/busybox").write_bytes((shell or busybox()).read_bytes())
        (root / "bin/busybox").chmod(0o755)
        (root / "bin/sh").symlink_to("busybox")
        (root / "init").write_bytes((SCRIPTS / init).read_bytes())
        (root / "init").chmod(0o755)
        (root / "workload.sh").write_bytes((SCRIPTS / "workload.sh").read_bytes())
        for number, module in enumerate(modules):
            (root / "modules" / f"{number:02}-{module.name}").write_bytes(module.read_bytes())
        pack(root, path)


def fetch(suite: str, architecture: str = "amd64", flavour: str = "cloud-") -> Tuple[Path, Path]:
    """Return Debian's packages of a suite's kernel and of its modules, which may be the same.

    Download them if they are not in the cache.

    Args:
        flavour: what the kernel's name has before the architecture: "cloud-", "rt-", or nothing;
            for i386, what it has in place of it: "686"
    """
    kind = flavour if architecture == "i386" else f"{flavour}{architecture}"
    name = suite if kind == "cloud-amd64" else f"{suite}-{kind}"
    folder = cache_dir() / "stock" / name
    with one_at_a_time(folder):
        for kernel in (*folder.glob("linux-image-*.deb"), *folder.glob("linux-binary-*.deb")):
            modules = kernel.with_name(kernel.name.replace("linux-binary-", "linux-modules-"))
            if modules.exists():
                return kernel, modules
        try:
            return _download(suite, folder, architecture, kind)
        except Failure as failure:
            own = "; make demo GUEST=own does not need it" if architecture == "amd64" else ""
            raise Failure(f"{failure}{own}") from None


def fetch_busybox(suite: str, architecture: str) -> Path:
    """Return a suite's static busybox for another architecture; download it if necessary."""
    folder = cache_dir() / "stock" / f"{suite}-{architecture}-busybox"
    kept = folder / "busybox"
    with one_at_a_time(folder):
        if not kept.exists():
            package, = Apt(folder, [suite], architecture).download(
                f"Download Debian's busybox of {suite} for {architecture}", ["busybox-static"])
            with tempfile.TemporaryDirectory(dir=folder) as tmp:
                _extract(package, tmp, ["./bin/busybox", "./usr/bin/busybox"])
                next(Path(tmp).rglob("busybox")).rename(kept)
    return kept


def _download(suite: str, folder: Path, architecture: str, kind: str) -> Tuple[Path, Path]:
    apt = Apt(folder, [suite], architecture)
    kernel_name = re.compile(rf"^linux-(image|binary|modules)-\d.*\d-{kind}$")
    found = {part: package for package in apt.needs(f"linux-image-{kind}")
             for part in kernel_name.findall(package)}
    # linux-image-* is empty where there is a linux-binary-*.
    kernel = found.get("binary") or found.get("image")
    if not kernel:
        raise Failure(f"Debian's {suite} has no linux-image-{kind}")
    wanted = [kernel, *([found["modules"]] if "binary" in found else [])]
    files = apt.download(f"Download Debian's kernel of {suite} for {kind}", wanted)
    return files[0], files[-1]


def _extract(package: Path, folder: str, patterns: Iterable[str]) -> None:
    # If the package lacks the member, "ar" succeeds, but xz fails because it gets no input.
    with subprocess.Popen(["sh", "-c", 'ar p "$0" data.tar.xz | xz -d', str(package)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as archive:
        # tar fails if a pattern matches nothing; the callers check what was extracted.
        subprocess.run(["tar", "-x", "-C", folder, "--wildcards", *patterns],
                       stdin=archive.stdout, stderr=subprocess.DEVNULL, check=False)
    if archive.returncode:
        raise Failure(f"{package} is broken; remove it, and run the same command again")


def unpack_modules(package: Path, root: Path, names: Iterable[str]) -> List[Path]:
    """Extract modules from their package to their paths in a guest's root file system.

    Returns:
        the paths of the uncompressed modules, in the order of names
    """
    loadable = []
    with tempfile.TemporaryDirectory(dir=root.parent) as tmp:
        _extract(package, tmp, [f"./*lib/modules/*/{name}.ko*" for name in names])
        for name in names:
            found = list(Path(tmp).rglob(f"{name}.ko*"))
            if not found:
                raise Failure(f"{package} has no module {name}")
            path = str(found[0].relative_to(tmp))
            kept = root / path[path.index("lib/modules/"):]
            kept.parent.mkdir(parents=True, exist_ok=True)
            found[0].rename(kept)
            if kept.suffix == ".xz":
                plain = root.parent / f"{name}.ko"
                plain.write_bytes(lzma.decompress(kept.read_bytes()))
                kept = plain
            loadable.append(kept)
    return loadable


def unpack_image(package: Path, folder: Path) -> None:
    """Extract the bootable kernel from its package to vmlinuz in a new folder."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as tmp:
        _extract(package, tmp, ["./boot/vmlinuz*", "./*lib/modules/*/vmlinuz"])
        found = sorted(Path(tmp).rglob("vmlinuz*"))
        if not found:
            raise Failure(f"{package} has no vmlinuz; remove it, and run the same command again")
        found[0].rename(folder / "vmlinuz")


def unpack(package: Path, tree: Path, folder: Path) -> None:
    """Extract the kernel from its package, and the ELF file from the kernel.

    Args:
        package: Debian's package of a kernel
        tree: a Linux source, whose extract-vmlinux is used
        folder: a new folder for vmlinuz and vmlinux
    """
    unpack_image(package, folder)
    with (folder / "vmlinux").open("wb") as vmlinux:
        result = subprocess.run(["sh", str(tree / "scripts/extract-vmlinux"),
                                 str(folder / "vmlinuz")], stdout=vmlinux,
                                stderr=subprocess.DEVNULL, check=False)
    # The script may succeed without any output.
    if result.returncode or not (folder / "vmlinux").stat().st_size:
        raise Failure(f"{package} has a kernel that Linux's extract-vmlinux can't unpack; "
                      "are lz4, xz and zstd installed?")
