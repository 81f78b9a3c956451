# SPDX-License-Identifier: GPL-2.0-only
"""Tests of reading Debian's packages and perf's output."""

import lzma
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple

from hostlib import guest, stock
from hostlib.stacks import Sample
from hostlib.ui import Failure

_STATS = """
              SAMPLE events:       2921  (45.5%)
    GUEST_STACK end: user mode:       1544
    GUEST_STACK end: outermost frame:         69
    GUEST_STACK end: beyond the stack that was recorded:          3
"""


class StockTest(unittest.TestCase):
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

    def test_judges(self) -> None:
        """Each complains as often as there are things wrong."""
        def tasks(*comms: str) -> List[Sample]:
            return [Sample("G", ("f",), ("ffffffff81000000",), comm) for comm in comms]

        right = [f"task{task}" for task in range(10) for _ in range(20 * (task + 1))]
        # task0 has no sample then, 4.5 sigma off; task1 has 60 instead of 40, 3.2 sigma off.
        swapped = [comm.replace("task0", "task1") for comm in right]
        starts = [0xffffffff81000000, 0xffffffff9a000000]
        boots = [Sample("G", (f"f+{offset:#x}",), (f"{start + offset:x}",))
                 for start in starts for offset in range(600)]
        unnamed = [Sample("G", ("[unknown]",), boots[0].addresses)] * 10
        vm = "    62.43%  bookworm\n"
        ids = "aa [kernel.kallsyms]\nbb [guest.kernel.kallsyms.71]\ncc [null_blk]\n"
        strange = [Sample("Gu", ("f",), ("10",), "a?[2J?b")] * 200
        report = "    50.00%  a?[2J?b  a?[2J?b (deleted) (guest)\n"
        same = "functions same\nmodules same\n"
        unwound = stock.Unwound
        judges: List[Tuple[Callable[..., Iterator[str]], List[Tuple[int, Any]]]] = [
            (stock._judge, [
                (0, [unwound({"user mode": 970, stock._NO_CALL: 1}, 1000, 990, 970)]),
                (3, [unwound({"user mode": 900}, 1000, 980, 900)]), (1, [unwound({}, 0, 0, 0)]),
                (1, [unwound({"user mode": 1001}, 1000, 1000, 1000)]),
                (1, [unwound({"user mode": 990, stock._NO_CALL: 2}, 1000, 1000, 1000)]),
                (2, [unwound({"user mode": 600, stock._BEYOND: 400}, 1000, 1000, 600)]),
                (0, [unwound({"user mode": 600, stock._BEYOND: 400}, 1000, 1000, 600),
                     stock.FILES]),
                (1, [unwound({"user mode": 499, stock._BEYOND: 501}, 1000, 1000, 499),
                     stock.FILES]),
                (0, [unwound({}, 1000, 990, 970), stock.FRAMES]),
                (1, [unwound({}, 1000, 980, 960), stock.FRAMES])]),
            (stock._judge_nameless, [(0, [unwound({}, 1000, 900, 0)]),
                                     (1, [unwound({}, 1000, 899, 0)]),
                                     (1, [unwound({}, 100, 100, 0)])]),
            (stock._judge_found, [(0, [stock.Found(100, 97)]), (1, [stock.Found(100, 96)]),
                                  (1, [stock.Found(49, 49)]), (2, [stock.Found(3, 2)])]),
            (stock._judge_names, [
                (0, [same]), (1, [""]), (1, ["- /tmp/functions differ\n"]), (1, [f"{same}more"]),
                (1, ["functions same\n"]), (0, ["functions same\nno BTF", ("no BTF",)]),
                (1, [same, ("no BTF",)])]),
            (stock._judge_tasks, [(0, [tasks(*right)]), (1, [tasks(*swapped)]), (1, [[]]),
                                  (1, [tasks(*right, *["dd"] * 200)])]),
            (stock._judge_reboot, [
                (0, [boots, starts]), (1, [boots, starts[:1]]), (1, [boots[:600], starts]),
                (1, [[*boots[:590], *unnamed, *boots[600:]], starts])]),
            (stock._judge_vm, [(0, ["bookworm", vm]), (1, ["trixie", vm]), (1, ["bookworm", ""]),
                               (1, ["bookworm", f"{vm}     0.25%  4711    \n"])]),
            (stock._judge_build_ids, [
                (0, ["bb", {"[null_blk]": "cc"}, ids]), (1, ["aa", {"[null_blk]": "cc"}, ids]),
                (1, ["bb", {"[null_blk]": "aa"}, ids]), (2, ["bb", {"[ext4]": "cc"}, ""])]),
            (stock._judge_hostile, [(0, [0, report, strange]), (1, [1, report, strange]),
                                    (1, [0, "", strange]), (1, [0, report, strange[1:]])])]
        for judge, cases in judges:
            for number, (wrong, arguments) in enumerate(cases):
                with self.subTest(judge.__name__, case=number):
                    self.assertEqual(len(list(judge("a", *arguments))), wrong)

    def test_samples_without_callchains_are_judged(self) -> None:
        found = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (found / "names-files").write_text("".join(stock._SAME))
        line = "       CPU 0/KVM {}      ffffffff8ec70b7d {}\n"
        host = line.format("K", "[unknown]") * 300
        for named, unnamed, wrong in (300, 3, 0), (300, 4, 1), (199, 0, 1):
            (found / "script-files-outside.txt").write_text(
                host + line.format("G", "mm_alloc+0x16") * named +
                line.format("G", "[unknown]") * unnamed)
            self.assertEqual(len(list(stock._judge_stock_kernel("a", found))), wrong)

    def test_addresses_of_kernels_have_32_or_64_bits(self) -> None:
        addresses = ("ffffffff81000010", "c0100000", "bfffffff", "7fff00000000", "401000",
                     "7f1e89c4ad6b0000")
        self.assertEqual([stock.is_kernel(address) for address in addresses],
                         [True, True, False, False, False, False])

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
        self.assertEqual(found, stock.Found(3, 2))

    def test_all_functions_of_the_program_must_be_there(self) -> None:
        places = {"transfer": range(0x100, 0x110), "transfer_many": range(0x110, 0x120),
                  "work": range(0x120, 0x130), "main": range(0x130, 0x140)}
        kernel = "ffffffff81000010"

        def sample(*addresses: str) -> Sample:
            return Sample("G", ("",) * (1 + len(addresses)), (kernel, *addresses))

        whole, lacks_one, other = sample("101", "111", "121", "131", "9"), \
            sample("101", "121", "131"), sample("111", "121", "131")
        self.assertEqual(stock.from_program([whole, lacks_one, other, sample()], places),
                         stock.Found(2, 1))

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
        self.assertEqual(stock.named(samples, "a", ("work", "main")), stock.Found(3, 1))
        self.assertEqual(stock.named(samples, "c", ("work", "main")), stock.Found(0, 0))

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
