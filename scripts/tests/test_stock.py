# SPDX-License-Identifier: GPL-2.0-only
"""Tests of reading Debian's packages and perf's output."""

import lzma
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Iterable

from hostlib import guest, stock
from hostlib.stacks import Sample
from hostlib.ui import Failure

_DEPENDS = """linux-image-cloud-amd64
  Depends: linux-image-7.3.4+deb13-cloud-amd64
  Suggests: linux-doc-7.3
"""

_BINARY = """linux-image-7.3.4+deb13-cloud-amd64
  Depends: kmod
 |Depends: linux-initramfs-tool
  Depends: linux-binary-7.3.4+deb13-cloud-amd64
  Depends: linux-modules-7.3.4+deb13-cloud-amd64
"""

_STATS = """
              SAMPLE events:       2921  (45.5%)
    GUEST_STACK end: user mode:       1544
    GUEST_STACK end: outermost frame:         69
    GUEST_STACK end: beyond the stack that was recorded:          3
"""


def _wrong(complaints: Iterable[str]) -> int:
    return len(list(complaints))


class StockTest(unittest.TestCase):
    def test_a_kernel_is_found_by_what_its_meta_package_needs(self) -> None:
        self.assertEqual(guest.kernel_packages(_DEPENDS), ["linux-image-7.3.4+deb13-cloud-amd64"])
        self.assertEqual(guest.kernel_packages(_BINARY), ["linux-binary-7.3.4+deb13-cloud-amd64"])
        self.assertEqual(guest.kernel_packages("linux-binary-7.3\n  Depends: kmod\n"), [])

    def test_a_broken_package_is_told(self) -> None:
        tmp = Path(self.enterContext(tempfile.TemporaryDirectory()))
        package = tmp / "linux-image.deb"
        package.write_bytes(b"!<arch>\nhalf of a package")
        with self.assertRaises(Failure) as failure:
            guest.unpack(package, tmp, tmp / "guest")
        self.assertIn(package.name, str(failure.exception))

    def test_a_package_without_a_module_is_told(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            root = Path(tmp) / "package"
            kept = root / "usr/lib/modules/7.3/kernel"
            kept.mkdir(parents=True)
            (kept / "null_blk.ko.xz").write_bytes(lzma.compress(b"module"))
            package = Path(tmp) / "a.deb"
            subprocess.run(["tar", "-cJf", f"{tmp}/data.tar.xz", "-C", str(root), "./usr"],
                           check=True)
            subprocess.run(["ar", "rc", str(package), "data.tar.xz"], check=True, cwd=tmp)
            mounted = Path(tmp) / "guest" / "root"
            mounted.parent.mkdir()
            modules = guest.unpack_modules(package, mounted, ["null_blk"])
            self.assertEqual([module.read_bytes() for module in modules], [b"module"])
            self.assertTrue((mounted / "lib/modules/7.3/kernel/null_blk.ko.xz").exists())
            with self.assertRaises(Failure) as failure:
                guest.unpack_modules(package, mounted, ["configfs"])
            self.assertIn("configfs", str(failure.exception))

    def test_ends_are_read_and_added_up(self) -> None:
        ends = stock.read_ends(_STATS)
        self.assertEqual(ends, {"user mode": 1544, "outermost frame": 69,
                                "beyond the stack that was recorded": 3})
        self.assertEqual(stock.Unwound(ends, 1616, 1616, 1616).whole, 1613)

    def test_the_outermost_function_is_the_kernels(self) -> None:
        sample = Sample("G", ("vfs_read+0x10", "entry_SYSCALL_64_after_hwframe+0x76", "[unknown]"),
                        ("ffffffff81000010", "ffffffff82000010", "47fc77"))
        self.assertEqual(stock.outermost(sample), "entry_SYSCALL_64_after_hwframe+0x76")
        self.assertTrue(stock._OUTERMOST.match(stock.outermost(sample)))
        self.assertFalse(stock._OUTERMOST.match("ret_from_fork+0x4c8530"))
        self.assertEqual(stock.outermost(Sample("G", ("[unknown]",), ("47fc77",))), "")

    def test_too_few_are_told_with_numbers(self) -> None:
        bad = stock.Unwound({"user mode": 900}, 1000, 980, 900)
        self.assertEqual(_wrong(stock._judge("a", bad)), 3)
        self.assertEqual(_wrong(stock._judge("a", stock.Unwound({}, 0, 0, 0))), 1)
        good = stock.Unwound({"user mode": 970, stock._NO_CALL: 1}, 1000, 990, 970)
        self.assertEqual(_wrong(stock._judge("a", good)), 0)
        odd = stock.Unwound({"user mode": 1001}, 1000, 1000, 1000)
        self.assertEqual(_wrong(stock._judge("a", odd)), 1)
        wrong = stock.Unwound({"user mode": 990, stock._NO_CALL: 2}, 1000, 1000, 1000)
        self.assertEqual(_wrong(stock._judge("a", wrong)), 1)

    def test_functions_of_modules_are_found_by_their_places(self) -> None:
        places = stock.modules_of("null_blk 8192 1 - Live 0xffffffffc0100000\n"
                                  "configfs 4096 1 null_blk, Live 0xffffffffc0200000 (E)\n")
        self.assertEqual(places, [range(0xffffffffc0100000, 0xffffffffc0102000),
                                  range(0xffffffffc0200000, 0xffffffffc0201000)])
        entry = "entry_SYSCALL_64_after_hwframe+0x76"
        kernel = "ffffffff81000010"
        innermost = Sample("G", ("a", entry), ("ffffffffc0100010", kernel))
        between = Sample("G", ("a", "b", entry), (kernel, "ffffffffc0200fff", kernel))
        cut = Sample("G", ("a", "b"), (kernel, "ffffffffc0101fff"))
        none = Sample("G", ("a", entry), ("ffffffffc0102000", kernel))
        found = stock.in_modules([innermost, between, cut, none], places)
        self.assertEqual(found, stock.InModules(3, 2))
        self.assertEqual(_wrong(stock._judge_modules("a", found)), 2)
        self.assertEqual(_wrong(stock._judge_modules("a", stock.InModules(100, 96))), 1)
        self.assertEqual(_wrong(stock._judge_modules("a", stock.InModules(100, 97))), 0)

    def test_all_functions_of_the_program_must_be_there(self) -> None:
        places = {"transfer": range(0x100, 0x110), "transfer_many": range(0x110, 0x120),
                  "work": range(0x120, 0x130), "main": range(0x130, 0x140)}
        kernel = "ffffffff81000010"

        def sample(*addresses: str) -> Sample:
            return Sample("G", ("",) * (1 + len(addresses)), (kernel, *addresses))

        whole, lacks_one, other = sample("101", "111", "121", "131", "9"), \
            sample("101", "121", "131"), sample("111", "121", "131")
        self.assertEqual(stock.from_program([whole, lacks_one, other, sample()], places),
                         stock.Program(2, 1))
        self.assertEqual(_wrong(stock._judge_program("a", stock.Program(100, 96))), 1)
        self.assertEqual(_wrong(stock._judge_program("a", stock.Program(49, 49))), 1)
        self.assertEqual(_wrong(stock._judge_program("a", stock.Program(100, 97))), 0)

    def test_functions_of_a_program_are_found_by_name(self) -> None:
        kernel, user = "ffffffff81000010", "401000"

        def sample(comm: str, *functions: str, syscall: str = "vfs_read+0x1") -> Sample:
            return Sample("G", (syscall, *functions), (kernel, *[user] * len(functions)), comm)

        samples = [sample("a", "read+0x5", "work+0x1", "main+0x2", "[unknown]"),
                   sample("a", "work+0x1", "[unknown]", "main+0x2"),
                   sample("a", "[unknown]"),
                   sample("a"),
                   sample("a", "[unknown]", syscall="load_elf_binary+0x61f"),
                   sample("b", "work+0x1", "main+0x2")]
        self.assertEqual(stock.named(samples, "a", ("work", "main")), stock.Program(3, 1))
        self.assertEqual(stock.named(samples, "c", ("work", "main")), stock.Program(0, 0))

    def test_programs_are_installed_with_their_libraries(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            root = Path(tmp) / "root"
            guest.install({"a": Path("/bin/true"), "b": Path(__file__)}, root)
            files = [path for path in root.rglob("*") if path.is_file()]
            self.assertEqual((root / "bin/a").read_bytes(), Path("/bin/true").read_bytes())
            self.assertIn(root / "bin/b", files)
            for path in files:
                if path.parent != root / "bin":
                    self.assertTrue(Path("/", path.relative_to(root)).is_file())
            self.assertTrue(any(path.name.startswith("libc.so") for path in files))

    def test_names(self) -> None:
        self.assertEqual(_wrong(stock._judge_names("a", "same\n")), 0)
        self.assertEqual(_wrong(stock._judge_names("a", "")), 1)
        self.assertEqual(_wrong(stock._judge_names("a", "- /tmp/functions differ\n")), 1)

    def test_tasks_have_the_shares_of_what_they_do(self) -> None:
        right = [Sample("G", ("f",), ("ffffffff81000000",), f"task{task}")
                 for task in range(10) for _ in range(20 * (task + 1))]
        self.assertLess(max(abs(sigma) for sigma in stock.deviations(right).values()), 1e-9)
        self.assertEqual(_wrong(stock._judge_tasks("a", right)), 0)
        # task0 has no sample then, 4.5 sigma off; task1 has 60 instead of 40, 3.2 sigma off.
        wrong = [Sample("G", ("f",), ("ffffffff81000000",),
                        "task1" if sample.comm == "task0" else sample.comm) for sample in right]
        self.assertEqual(_wrong(stock._judge_tasks("a", wrong)), 1)
        others = [*right, *[Sample("G", ("f",), ("ffffffff81000000",), "dd")] * 200]
        self.assertEqual(_wrong(stock._judge_tasks("a", others)), 1)
        self.assertEqual(_wrong(stock._judge_tasks("a", [])), 1)

    def test_both_kernels_of_a_guest_must_have_names(self) -> None:
        starts = [0xffffffff81000000, 0xffffffff9a000000]
        samples = [Sample("G", (f"f+{offset:#x}",), (f"{start + offset:x}",))
                   for start in starts for offset in range(600)]
        self.assertEqual(_wrong(stock._judge_reboot("a", samples, starts)), 0)
        self.assertEqual(_wrong(stock._judge_reboot("a", samples, starts[:1])), 1)
        self.assertEqual(_wrong(stock._judge_reboot("a", samples[:600], starts)), 1)
        unnamed = [*samples[:590], *[Sample("G", ("[unknown]",), samples[0].addresses)] * 10,
                   *samples[600:]]
        self.assertEqual(_wrong(stock._judge_reboot("a", unnamed, starts)), 1)

    def test_the_vm_has_its_name(self) -> None:
        report = ("# Overhead  Guest   \n# ........  ........\n#\n"
                  "    99.75%  bookworm\n     0.25%  4711    \n\n\n#\n# (Tip: ...)\n")
        self.assertEqual(stock.vms(report), {"bookworm": 99.75, "4711": 0.25})
        self.assertEqual(_wrong(stock._judge_vm("a", "bookworm", report)), 1)
        self.assertEqual(_wrong(stock._judge_vm("a", "bookworm", "")), 1)
        alone = "    62.43%  bookworm\n"
        self.assertEqual(_wrong(stock._judge_vm("a", "bookworm", alone)), 0)
        self.assertEqual(_wrong(stock._judge_vm("a", "trixie", alone)), 1)

    def test_build_ids_are_the_guests(self) -> None:
        listed = "aa [kernel.kallsyms]\nbb [guest.kernel.kallsyms.71]\ncc [null_blk]\n"

        def wrong(kernel: str, module: str) -> int:
            return len(list(stock._judge_build_ids("a", kernel, {"[null_blk]": module}, listed)))

        self.assertEqual(wrong("bb", "cc"), 0)
        self.assertEqual(wrong("aa", "cc"), 1)
        self.assertEqual(wrong("bb", "aa"), 1)
        self.assertEqual(_wrong(stock._judge_build_ids("a", "bb", {"[ext4]": "cc"}, "")), 2)

    def test_modules_are_read_where_they_are_not_compressed(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            place = Path(tmp)
            for name in ("root/lib/modules/7.3/null_blk.ko.xz", "null_blk.ko",
                         "root/lib/modules/7.3/configfs.ko"):
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).touch()
            self.assertEqual(stock._module(place, "null_blk"), place / "null_blk.ko")
            self.assertEqual(stock._module(place, "configfs"),
                             place / "root/lib/modules/7.3/configfs.ko")

    def test_a_hostile_guest_is_named(self) -> None:
        samples = [Sample("Gu", ("f",), ("10",), "a?[2J?b")] * 200
        report = "    50.00%  a?[2J?b  a?[2J?b (deleted) (guest)\n"
        self.assertEqual(_wrong(stock._judge_hostile("a", 0, report, samples)), 0)
        self.assertEqual(_wrong(stock._judge_hostile("a", 1, report, samples)), 1)
        self.assertEqual(_wrong(stock._judge_hostile("a", 0, "", samples)), 1)
        self.assertEqual(_wrong(stock._judge_hostile("a", 0, report, samples[1:])), 1)


if __name__ == "__main__":
    unittest.main()
