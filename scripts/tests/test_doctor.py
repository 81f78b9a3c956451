# SPDX-License-Identifier: GPL-2.0-only
"""Tests of doctor.py: its output for prepared hosts and guests, and its system calls."""

import contextlib
import errno
import gzip
import io
import json
import os
import re
import struct
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import doctor  # noqa: E402

PID = 1234
SCREEN = 40

_MAPS = """\
555500000000-555500800000 r-xp 00000000 08:01 1 /usr/bin/qemu-system-x86_64
7f0000000000-7f0010000000 rw-p 00000000 00:00 0
7f0020000000-7f0020400000 rw-p 00000000 00:00 0
7f0030000000-7f0070000000 ---p 00000000 00:00 0
"""

_SLOTS = """\
as_id=0 slot=0 gpa=0x0 size=0xa0000 hva=0x7f0000000000 flags=0x0
as_id=0 slot=1 gpa=0xfffc0000 size=0x40000 hva=0x7f0020000000 flags=0x2
as_id=0 slot=3 gpa=0x100000 size=0xff00000 hva=0x7f0000100000 flags=0x0
as_id=1 slot=0 gpa=0x0 size=0xa0000 hva=0x7f0000000000 flags=0x0
"""

_FOUND = f"""\
The guest of process {PID} runs Linux 6.1.0-50-cloud-amd64: 87182 symbols
The guest of process {PID} is called bookworm
"""

_OLD_USAGE = " Usage: perf kvm [<options>] {top|record|report|diff|buildid-list|stat}\n"
_USAGE = " Usage: perf kvm guest-info -p PID [-o DIR]\n"


class Machine(doctor.System):
    """A host where all is well, with a guest of root's, PID.  Tests break parts of it."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.denied: List[str] = []
        self.is_patched = True
        self.option = True
        self.checks_permission_first = False
        self.pmu = "yes"
        self.who = 0
        self.arch = "x86_64"
        self.samples: Dict[int, str] = {0: "all", PID: "all"}
        self.memory: Dict[int, int] = {PID: errno.EFAULT}
        self.perf: Optional[Tuple[str, str]] = (_USAGE, "perf version 7.3.4\n")
        self.found = _FOUND
        self.files = {"proc/modules": "ext4 1 0 - Live 0x0\nvirtio 1 0 - Live 0x0\n",
                      "tasks": "0 ff00 1000 1 1 init\n0 ff01 2000 7 8 a b\n9 ff00\n"}
        self.commands: List[Sequence[str]] = []
        self._make_host()
        self._make_guest()

    def write(self, name: str, text: str) -> None:
        path = Path(super().path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def remove(self, name: str) -> None:
        Path(super().path(name)).unlink()

    def fds(self, pid: int, *links: str) -> None:
        folder = Path(super().path(f"/proc/{pid}/fd"))
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for i, link in enumerate(links):
            (folder / str(i)).symlink_to(link)

    def _make_host(self) -> None:
        self.write("/dev/kvm", "")
        self.write("/sys/module/kvm_intel/parameters/enable_mediated_pmu", "N\n")
        self.write("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu vmx sse\n")
        self.write("/proc/self/status", "Name:\tpython3\nCapEff:\t000001ffffffffff\n")
        self.write("/proc/self/mounts", "sysfs /sys sysfs rw 0 0\n"
                   "debugfs /sys/kernel/debug debugfs rw 0 0\n")
        self.write("/proc/sys/kernel/perf_event_paranoid", "2\n")
        self.write("/proc/sys/kernel/perf_event_max_stack", "127\n")
        self.write("/proc/sys/kernel/perf_event_max_contexts_per_stack", "8\n")
        self.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n"
                   "libvirt-qemu:x:64055:108::/:/bin/false\n")
        self.configure("y")

    def configure(self, value: str) -> None:
        line = {"y": "CONFIG_GUEST_PERF_CALLCHAIN=y\n", "absent": "",
                "off": "# CONFIG_GUEST_PERF_CALLCHAIN is not set\n"}[value]
        self.write("/boot/config-7.3.4", f"CONFIG_KVM=y\n{line}CONFIG_PERF_EVENTS=y\n")

    def _make_guest(self) -> None:
        self.process(PID, "qemu-system-x86", 0)
        self.fds(PID, "/dev/kvm", "anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0",
                 "anon_inode:kvm-vcpu:1", "anon_inode:kvm-vcpu-stats:0", "socket:[77]")
        self.write(f"/proc/{PID}/cmdline",
                   "qemu-system-x86_64\0-name\0guest=bookworm,debug-threads=on\0-m\x00256\0")
        self.write(f"/proc/{PID}/maps", _MAPS)
        self.write(f"/proc/{PID}/task/1236/comm", "CPU 0/KVM\n")
        self.kvm("memslots", _SLOTS)
        self.ends(last=910, unaligned=90)
        # Another process' VM.
        self.write("/sys/kernel/debug/kvm/99-8/memslots", "as_id=0 slot=0 gpa=0x0 size=0x1 hva=")
        self.write("/sys/kernel/debug/kvm/99-8/callchain_end_depth", "5000\n")

    def process(self, pid: int, comm: str, uid: int) -> None:
        self.write(f"/proc/{pid}/status", f"Name:\t{comm}\nTgid:\t{pid}\nPid:\t{pid}\n"
                   f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        self.write(f"/proc/{pid}/comm", f"{comm}\n")
        self.fds(pid, "/dev/null")

    def kvm(self, name: str, text: str) -> None:
        self.write(f"/sys/kernel/debug/kvm/1236-11/{name}", text)

    def ends(self, **counts: int) -> None:
        for end in doctor.ENDS:
            self.kvm(f"callchain_end_{end}", f"{counts.get(end, 0)}\n")

    def become(self, uid: int, samples: str, *denied: str) -> None:
        """Become a user who doesn't own the guest."""
        self.who = uid
        self.samples = {0: samples, PID: "nothing"}
        self.memory = {PID: errno.EPERM}
        self.write("/proc/self/status", "Name:\tpython3\nCapEff:\t0000000000000000\n")
        self.denied = ["/sys/kernel/debug", f"/proc/{PID}/fd", f"/proc/{PID}/maps", *denied]

    # The machine's answers.

    def path(self, name: str) -> str:
        if any(name.startswith(part) for part in self.denied):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return super().path(name)

    def machine(self) -> str:
        return self.arch

    def release(self) -> str:
        return "7.3.4"

    def uid(self) -> int:
        return self.who

    def which(self, program: str) -> Optional[str]:
        return f"/usr/bin/{program}" if self.perf else None

    def run(self, command: Sequence[str], seconds: int) -> Tuple[Optional[int], str]:
        assert self.perf
        self.commands.append(command)
        if command[1:] == ["version"]:
            return 0, self.perf[1]
        if command[1:] == ["kvm", "guest-info"]:
            return 129, self.perf[0]
        if "runs Linux" in self.found:
            for name, text in self.files.items():
                path = Path(command[-1]) / str(PID) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        return 0 if "runs Linux" in self.found else 255, self.found

    def open_event(self, event: Tuple[int, int], bits: int = 0, sample_type: int = 0,
                   pid: int = 0) -> int:
        allowed = self.samples.get(pid, "gone")
        denied = allowed == "nothing" or (allowed == "programs" and
                                          not bits & doctor.EXCLUDE_KERNEL)
        if self.checks_permission_first and denied:
            return errno.EACCES
        new = bits & (doctor.GUEST_CALLCHAIN | doctor.DEFER_GUEST_CALLCHAIN)
        if bits & doctor.RESERVED or \
                ((new or sample_type & doctor.SAMPLE_GUEST_STACK) and
                 not (self.is_patched and self.option)):
            return errno.EINVAL
        if denied:
            return errno.EACCES
        if allowed == "gone":
            return errno.ESRCH
        if event == doctor.HARDWARE_CYCLES:
            if self.pmu == "no":
                return errno.ENOENT
            if self.pmu == "mediated" and not bits & doctor.EXCLUDE_GUEST:
                return errno.EOPNOTSUPP
        return 0

    def read_memory(self, pid: int) -> int:
        return self.memory.get(pid, errno.ESRCH)


class DoctorTest(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.host = Machine(folder.name)

    def told(self, pid: Optional[int] = PID) -> str:
        text = doctor.as_text(*doctor.examine(self.host, "perf", pid), pid)
        lines = text.splitlines()
        self.assertLessEqual(len(lines), SCREEN)
        self.assertLessEqual(max(map(len, lines)), doctor.WIDTH)
        return text

    def check(self, name: str, about: str = "guest") -> Optional[doctor.Check]:
        checks, _ = doctor.examine(self.host, "perf", PID)
        found = [check for check in checks if (check.about, check.name) == (about, name)]
        return found[0] if found else None


HOST = """\
This host
  ok Linux 7.3.4 on x86-64
  ok KVM is there: kvm_intel
  ok the kernel records guests' callchains, and their stacks for ORC
  ok perf's limits allow deferred callchains of 127 frames
  ok there is a hardware PMU: cycles
  ok perf 7.3.4 knows guests' callchains
  ok root may record kernels
"""

GUEST = """\
Process 1234
  ok qemu-system-x86 has a VM "bookworm" with 2 vCPUs
  ok you may sample it, its kernel included
  ok you may read its memory, for symbols and tasks
  ok its memory is not encrypted, by all that can be seen
  ok KVM lists where its RAM is: 3 memslots, 255 MiB
  ok it runs Linux 6.1.0-50-cloud-amd64: 87182 symbols, 2 modules, 2 tasks
  ok it has ORC tables: -g is --call-graph orc
  ok 1000 walks of its stacks: 91 % ended at the outermost frame, as they should
"""

RECORD = """\
Record this guest, by:
  perf kvm --guest record -g -p 1234 -o perf.data.guest -- sleep 10
"""

RECORD_BY_TIMER = RECORD.replace(" -g", " -e cpu-clock -g")


def line(text: str, words: str) -> str:
    """Return the one line that has the words."""
    found = [part for part in text.splitlines(True) if words in part]
    assert len(found) == 1, found
    return found[0]


class SituationTest(DoctorTest):
    """Tests of the whole output, in situations of users."""

    def test_all_is_well(self) -> None:
        self.assertEqual(self.told(), HOST + GUEST + RECORD)

    def test_kernel_without_the_patches(self) -> None:
        self.host.is_patched = False
        self.host.configure("absent")
        self.assertEqual(self.told(), HOST.replace(line(HOST, "the kernel records"), """\
  no the kernel refuses guest_callchain: the patches aren't applied, by
       /boot/config-7.3.4
     > install the kernel that make deb or make rpm builds, and boot it; or
       apply what make series writes to a tree of yours, and build it with
       CONFIG_GUEST_PERF_CALLCHAIN=y
""") + GUEST + """\
This guest can't be recorded with its callchain here. First: install the kernel
that make deb or make rpm builds, and boot it; or apply what make series writes
to a tree of yours, and build it with CONFIG_GUEST_PERF_CALLCHAIN=y.
""")

    def test_kernel_with_the_option_off(self) -> None:
        self.host.option = False
        self.host.configure("off")
        self.assertEqual(self.told(), HOST.replace(line(HOST, "the kernel records"), """\
  no the kernel refuses guest_callchain: CONFIG_GUEST_PERF_CALLCHAIN is off in
       /boot/config-7.3.4
     > scripts/config -e GUEST_PERF_CALLCHAIN in its tree; build, install and
       boot it
""") + GUEST + """\
This guest can't be recorded with its callchain here. First: scripts/config -e
GUEST_PERF_CALLCHAIN in its tree; build, install and boot it.
""")

    def test_no_hardware_pmu(self) -> None:
        self.host.pmu = "no"
        self.assertEqual(self.told(), HOST.replace(line(HOST, "PMU"), """\
  no there is no hardware PMU that samples: no cycles
     > record with -e cpu-clock, a timer
""") + GUEST + RECORD_BY_TIMER)

    def test_a_vm_has_the_pmu(self) -> None:
        self.host.pmu = "mediated"
        self.host.write("/sys/module/kvm_intel/parameters/enable_mediated_pmu", "Y\n")
        self.assertEqual(self.told(), HOST.replace(line(HOST, "PMU"), """\
  no cycles can't sample guests: a VM has the PMU (enable_mediated_pmu)
     > record with -e cpu-clock; or load kvm_intel with enable_mediated_pmu=0
""") + GUEST + RECORD_BY_TIMER)

    def test_too_few_contexts_to_defer(self) -> None:
        self.host.write("/proc/sys/kernel/perf_event_max_contexts_per_stack", "2\n")
        self.assertEqual(self.told(), HOST.replace(line(HOST, "limits"), """\
  no callchains are taken in the PMI, not deferred:
       perf_event_max_contexts_per_stack is 2
     > sysctl kernel.perf_event_max_contexts_per_stack=8
""") + GUEST + RECORD)

    def test_the_administrator_forbids_all(self) -> None:
        self.host.write("/proc/sys/kernel/perf_event_guest_callchain", "0\n")
        self.host.found = (f"The guest of process {PID} has no names: "
                           "kernel.perf_event_guest_callchain is 0\n")
        told = self.told()
        self.assertIn("""\
  no no guest may be read: perf_event_guest_callchain is 0
     > sysctl kernel.perf_event_guest_callchain=2
""", told)
        self.assertTrue(told.endswith("""\
This guest can't be recorded with its callchain here. First: sysctl
kernel.perf_event_guest_callchain=2.
"""))

    def test_perf_is_too_old(self) -> None:
        self.host.perf = (_OLD_USAGE, "perf version 6.1.187\n")
        self.assertEqual(self.told(), HOST.replace(line(HOST, "perf 7.3.4"), """\
  no perf 6.1.187 does not know guests' callchains
     > pass --perf perf_7.3, which make deb and make rpm build; or perf of a
       patched kernel tree, by make -C tools/perf
""") + GUEST.replace(line(GUEST, "it runs Linux") + line(GUEST, "ORC"), """\
  -- not known: its kernel, symbols, modules and tasks: that takes a perf that
       knows guests
""") + """\
This guest can't be recorded with its callchain here. First: pass --perf
perf_7.3, which make deb and make rpm build; or perf of a patched kernel tree,
by make -C tools/perf.
""")

    def test_user_who_may_record_nothing(self) -> None:
        self.host.checks_permission_first = True
        self.host.write("/proc/sys/kernel/perf_event_paranoid", "4\n")
        self.host.process(PID, "qemu-system-x86", 64055)
        self.host.become(1000, "nothing")
        self.assertEqual(self.told(), """\
This host
  ok Linux 7.3.4 on x86-64
  ok KVM is there: kvm_intel
  -- not known: whether the kernel records guests' callchains: perf_event_open()
       fails for user alice (EACCES)
     > run this as root
  ok perf's limits allow deferred callchains of 127 frames
  -- not known: whether there is a hardware PMU
  ok perf 7.3.4 knows guests' callchains
  no user alice may record nothing: perf_event_paranoid is 4
     > run perf as root (CAP_PERFMON gives chains without names)
     > root also has the guests of other users, and KVM's lists of RAM and
       statistics
Process 1234
  -- not known: whether qemu-system-x86 of user libvirt-qemu has a VM: its files
       can't be seen
     > run this as root or user libvirt-qemu
  no you may not sample it (EACCES): it is user libvirt-qemu's
     > run perf as root (CAP_PERFMON gives chains without names)
  no you may not read its memory (process_vm_readv(): EPERM): frames stay
       addresses
     > run perf as root
  -- not known: whether its memory is encrypted
  -- not known: where its RAM is
  -- not known: its kernel, symbols, modules and tasks: its memory can't be read
This guest can't be recorded with its callchain here. First: run perf as root
(CAP_PERFMON gives chains without names).
""")

    def test_user_who_may_record_programs(self) -> None:
        self.host.process(PID, "qemu-system-x86", 64055)
        self.host.become(1000, "programs")
        text = self.told()
        self.assertTrue(text.startswith(HOST.replace(line(HOST, "root may"), """\
  no user alice may record programs, no kernels: perf_event_paranoid is 2
     > run perf as root (CAP_PERFMON gives chains without names)
     > root also has the guests of other users, and KVM's lists of RAM and
       statistics
""") + """\
Process 1234
  -- not known: whether qemu-system-x86 of user libvirt-qemu has a VM: its files
"""), text)
        self.assertTrue(text.endswith("First: run perf as root\n"
                                      "(CAP_PERFMON gives chains without names).\n"), text)

    def test_users_own_guest(self) -> None:
        files = [os.readlink(path) for path in
                 sorted(Path(self.host.path(f"/proc/{PID}/fd")).iterdir())]
        self.host.process(PID, "qemu-system-x86", 1000)
        self.host.fds(PID, *files)
        self.host.become(1000, "programs")
        self.host.denied = ["/sys/kernel/debug"]
        self.host.samples[PID] = "programs"
        self.host.memory[PID] = errno.EFAULT
        self.assertEqual(self.told(), HOST.replace(line(HOST, "root may"), """\
  no user alice may record programs, no kernels: perf_event_paranoid is 2
     > run perf as root (CAP_PERFMON gives chains without names), or sysctl
       kernel.perf_event_paranoid=1
     > root also has the guests of other users, and KVM's lists of RAM and
       statistics
""") + """\
Process 1234
  ok qemu-system-x86 has a VM "bookworm" with 2 vCPUs
  no you may sample its programs, not its kernel
     > see perf_event_paranoid above
  ok you may read its memory, for symbols and tasks
  ok its memory is not encrypted, by all that can be seen
  ok its RAM was found in one mapping of the VMM's
  ok it runs Linux 6.1.0-50-cloud-amd64: 87182 symbols, 2 modules, 2 tasks
  ok it has ORC tables: -g is --call-graph orc
Record this guest, its programs only, by:
  perf kvm --guest record -e cycles:u -g -p 1234 -o perf.data.guest -- sleep 10
""")

    def test_no_vmm(self) -> None:
        self.host.process(77, "bash", 0)
        self.assertEqual(self.told(77), HOST + """\
Process 77
  no bash has no VM of KVM
     > name another process: VMMs of KVM are 1234 (qemu-system-x86)
This guest can't be recorded with its callchain here. First: name another
process: VMMs of KVM are 1234 (qemu-system-x86).
""")

    def test_no_process(self) -> None:
        self.assertEqual(self.told(4242), HOST + """\
Process 4242
  no there is no process 4242
     > name another process: VMMs of KVM are 1234 (qemu-system-x86)
This guest can't be recorded with its callchain here. First: name another
process: VMMs of KVM are 1234 (qemu-system-x86).
""")

    def test_a_thread(self) -> None:
        self.host.write("/proc/1236/status", "Name:\tCPU 0/KVM\nTgid:\t1234\n")
        self.assertEqual(self.told(1236), HOST + """\
Process 1236
  no 1236 is a thread of process 1234
     > name that process: 1234
This guest can't be recorded with its callchain here. First: name that process:
1234.
""")

    def test_guest_without_a_linux_that_can_be_read(self) -> None:
        self.host.found = (f"The guest of process {PID} has no names: no Linux kernel of x86-64 "
                           "is found in its memory\n")
        self.host.ends(no_memory=70, unmapped=30)
        self.assertEqual(self.told(), HOST + GUEST.partition("  ok it runs")[0] + """\
  no names of its functions: no Linux kernel of x86-64 is found in its memory
     > if it has not booted yet, wait; else its frames stay addresses
  -- not known: whether its kernel has frame pointers: -g is --call-graph fp
  no 100 walks of its stacks: 70 % ended at a page that the host doesn't have in
       memory
     > give the host memory, so that the guest isn't swapped out; don't use
       nodefer
""" + RECORD)

    def test_confidential_guest(self) -> None:
        self.host.fds(PID, "/dev/sev", "anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0")
        self.host.write(f"/proc/{PID}/cmdline",
                        "qemu-system-x86_64\0-object\0sev-snp-guest,id=sev0\0")
        self.host.ends()
        self.assertEqual(self.told(), HOST + """\
Process 1234
  ok qemu-system-x86 has a VM with 1 vCPU
  ok you may sample it, its kernel included
  ok you may read its memory
  no its memory is encrypted (SEV-SNP): nobody can read its stack from outside
     > record it without -g, or run it without SEV-SNP
  ok KVM lists where its RAM is: 3 memslots, 255 MiB
  -- not known: its kernel, symbols, modules and tasks: its memory is encrypted
  -- not known: how walks of its stacks end, as there was none yet
This guest can't be recorded with its callchain here. First: record it without
-g, or run it without SEV-SNP.
""")
        self.assertNotIn("-p", [word for command in self.host.commands for word in command])

    def test_arm64(self) -> None:
        self.host.arch = "aarch64"
        self.assertEqual(self.told(), """\
This host
  no Linux 7.3.4 on arm64: this command knows x86-64 only
     > read Documentation/virt/kvm/arm/guest-callchains.rst
No guest can be recorded with its callchain here. First: read
Documentation/virt/kvm/arm/guest-callchains.rst.
""")

    def test_other_architecture(self) -> None:
        self.host.arch = "riscv64"
        self.assertEqual(self.told(), """\
This host
  no Linux 7.3.4 on riscv64: guests' callchains need x86-64 or arm64
     > use a host of x86-64
No guest can be recorded with its callchain here. First: use a host of x86-64.
""")

    def test_no_kvm(self) -> None:
        self.host.remove("/dev/kvm")
        self.host.process(PID, "qemu-system-x86", 0)
        self.host.write("/proc/cpuinfo", "flags\t: fpu sse\n")
        self.assertEqual(self.told(), HOST.replace(line(HOST, "KVM"), """\
  no there is no /dev/kvm, and the CPU has neither VMX nor SVM
     > enable virtualization in the firmware; in a VM, nesting on its host
""") + """\
Process 1234
  no qemu-system-x86 has no VM of KVM
     > name another process: no VMM of KVM is seen; QEMU takes -accel kvm for
       one
This guest can't be recorded with its callchain here. First: enable
virtualization in the firmware; in a VM, nesting on its host.
""")

    def test_no_pid(self) -> None:
        self.assertEqual(self.told(None), HOST + """\
This host can record guests. Next: name a VMM; VMMs of KVM are 1234
(qemu-system-x86).
""")

    def test_almost_nothing_is_there(self) -> None:
        """An emulated host may have no config, no debugfs, no users, and no perf in its PATH."""
        self.host.perf = None
        self.host.is_patched = False
        self.host.denied = ["/boot", "/etc", "/sys", "/proc/self", "/proc/sys", "/proc/cpuinfo"]
        self.assertEqual(self.told(), """\
This host
  ok Linux 7.3.4 on x86-64
  ok KVM is there: /dev/kvm
  no the kernel refuses guest_callchain: the patches or
       CONFIG_GUEST_PERF_CALLCHAIN are missing
     > install the kernel that make deb or make rpm builds, and boot it; or
       apply what make series writes to a tree of yours, and build it with
       CONFIG_GUEST_PERF_CALLCHAIN=y
  -- not known: how long callchains may be
  ok there is a hardware PMU: cycles
  no there is no program perf
     > pass --perf perf_7.3, which make deb and make rpm build; or perf of a
       patched kernel tree, by make -C tools/perf
  ok root may record kernels
Process 1234
  ok qemu-system-x86 has a VM "bookworm" with 2 vCPUs
  ok you may sample it, its kernel included
  ok you may read its memory, for symbols and tasks
  ok its memory is not encrypted, by all that can be seen
  ok its RAM seems to be one mapping, of 256 MiB
  -- not known: its kernel, symbols, modules and tasks: that takes a perf that
       knows guests
  -- not known: how walks of its stacks have ended: debugfs is not mounted
     > mount -t debugfs debugfs /sys/kernel/debug
This guest can't be recorded with its callchain here. First: install the kernel
that make deb or make rpm builds, and boot it; or apply what make series writes
to a tree of yours, and build it with CONFIG_GUEST_PERF_CALLCHAIN=y.
""")


class FactTest(DoctorTest):
    """Tests of single facts that are in none of the situations."""

    def fact(self, name: str, about: str = "guest") -> str:
        found = self.check(name, about)
        return f"{found.state}: {found.fact}" if found else ""

    def test_kernel_checks_attributes_before_permissions(self) -> None:
        self.host.become(1000, "nothing")
        self.assertEqual(self.fact("kernel", "host"),
                         "ok: the kernel records guests' callchains, and their stacks for ORC")
        self.host.is_patched = False
        self.assertTrue(self.fact("kernel", "host").startswith("no: the kernel refuses"))

    def test_config_of_another_kernel(self) -> None:
        self.host.is_patched = False
        self.assertIn("so it belongs to another kernel", self.fact("kernel", "host"))

    def test_config_that_the_kernel_tells(self) -> None:
        self.host.option = False
        packed = gzip.compress(b"CONFIG_A=y\n# CONFIG_GUEST_PERF_CALLCHAIN is not set\n")
        Path(self.host.path("/proc/config.gz")).write_bytes(packed)
        self.assertIn("is off in /proc/config.gz", self.fact("kernel", "host"))
        Path(self.host.path("/proc/config.gz")).write_bytes(packed[:20])
        self.assertIn("/boot/config-7.3.4", self.fact("kernel", "host"))

    def test_user_who_may_record_nothing_and_names_no_guest(self) -> None:
        self.host.become(1000, "nothing")
        self.assertTrue(self.told(None).endswith("""\
No guest can be recorded with its callchain here. First: run perf as root
(CAP_PERFMON gives chains without names), or sysctl
kernel.perf_event_paranoid=1.
"""))

    def test_no_frames_at_all(self) -> None:
        self.host.write("/proc/sys/kernel/perf_event_max_contexts_per_stack", "0\n")
        found = self.check("limits", "host")
        self.assertTrue(found and found.blocks)

    def test_short_callchains(self) -> None:
        self.host.write("/proc/sys/kernel/perf_event_max_stack", "16\n")
        self.assertEqual(self.fact("limits", "host"),
                         "no: callchains end early: perf_event_max_stack is 16")

    def test_switch_of_the_administrator(self) -> None:
        for value, said in (("", ""), ("2", ""), ("1", "ok: guests may be read whose VMM allows "
                                                  "it: perf_event_guest_callchain is 1"),
                            ("0", "no: no guest may be read: perf_event_guest_callchain is 0")):
            with self.subTest(value):
                if value:
                    self.host.write("/proc/sys/kernel/perf_event_guest_callchain", f"{value}\n")
                self.assertEqual(self.fact("switch", "host"), said)

    def test_policy_of_the_vmm(self) -> None:
        forbidden = "no: its VMM has forbidden that its stack is read"
        not_allowed = "no: its VMM has not allowed that its stack is read"
        for value, policy, said in (
                ("2", "undecided", ""), ("2", "allowed", ""), ("2", "forbidden", forbidden),
                ("1", "undecided", not_allowed), ("1", "allowed", ""),
                ("1", "forbidden", forbidden)):
            with self.subTest(f"{value}, {policy}"):
                self.host.write("/proc/sys/kernel/perf_event_guest_callchain", f"{value}\n")
                self.host.kvm("guest_callchain", f"{policy}\n")
                self.assertEqual(self.fact("policy"), said)
                found = self.check("policy")
                self.assertEqual(bool(said), bool(found and found.blocks))

    def test_one_vm_of_two_is_forbidden(self) -> None:
        self.host.kvm("guest_callchain", "allowed\n")
        for policy, said in (("forbidden", "no: its VMM has forbidden that its stack is read"),
                             ("undecided", "")):
            self.host.write("/sys/kernel/debug/kvm/1236-12/guest_callchain", f"{policy}\n")
            self.assertEqual(self.fact("policy"), said)

    def test_policy_that_only_root_sees(self) -> None:
        self.host.become(1000, "all")
        self.host.write("/proc/sys/kernel/perf_event_guest_callchain", "1\n")
        found = self.check("policy")
        self.assertEqual(found and (found.state, found.mend), ("unknown", "run this as root"))
        self.host.write("/proc/sys/kernel/perf_event_guest_callchain", "2\n")
        self.assertEqual(self.fact("policy"), "")

    def test_mediated_pmu_that_no_vm_has_yet(self) -> None:
        self.host.write("/sys/module/kvm_amd/parameters/enable_mediated_pmu", "Y\n")
        self.assertEqual(self.fact("pmu", "host"), "ok: there is a hardware PMU: cycles; while "
                         "it samples guests, kvm_amd starts none with a PMU")

    def test_files_of_another_user_can_be_listed_but_not_read(self) -> None:
        """Root finds this in containers."""
        with mock.patch.object(Machine, "link", return_value=None):
            found = self.check("vmm")
        self.assertEqual(found and (found.state, found.mend),
                         ("unknown", "leave the container, or give it CAP_SYS_PTRACE"))

    def test_yama(self) -> None:
        self.host.process(PID, "qemu-system-x86", 1000)
        self.host.become(1000, "all")
        self.host.denied = []
        self.host.fds(PID, "anon_inode:kvm-vm")
        self.host.write("/proc/sys/kernel/yama/ptrace_scope", "1\n")
        found = self.check("memory")
        self.assertEqual(found and (found.fact, found.mend),
                         ("you may not read its memory (Yama's ptrace_scope is 1): frames stay "
                          "addresses", "run perf as root, or sysctl kernel.yama.ptrace_scope=0"))

    def test_ram_in_two_mappings(self) -> None:
        self.host.remove("/sys/kernel/debug/kvm/1236-11/memslots")
        self.host.write(f"/proc/{PID}/maps", "7f0000000000-7f0080000000 rw-p 0 0:0 0\n"
                        "7e0000000000-7e0100000000 rw-s 0 0:0 0\n")
        self.host.found = f"The guest of process {PID} has no names: no Linux kernel\n"
        self.assertTrue(self.fact("ram").startswith("ok: its RAM seems to be one"))
        self.host.write(f"/proc/{PID}/maps", "7f0000000000-7f0080000000 rw-p 0 0:0 0\n"
                        "7e0000000000-7e00c0000000 rw-s 0 0:0 0\n")
        self.assertEqual(self.fact("ram"),
                         "no: its RAM may be in several mappings, of 3072 MiB and 2048 MiB")

    def test_kernel_with_frame_pointers(self) -> None:
        self.host.found += (f"The guest of process {PID} is not unwound by ORC: its kernel has "
                            "no ORC tables\n")
        self.host.ends(unaligned=5, backwards=4, last=8)
        self.assertEqual(self.fact("unwinding"), "ok: its kernel has no ORC tables, so it should "
                         "have frame pointers: -g is --call-graph fp")
        self.assertEqual(self.fact("walks"), "no: 17 walks of its stacks: 52 % ended in code "
                         "without frame pointers")

    def test_kernel_without_frame_pointers_is_unwound_by_tables(self) -> None:
        self.host.ends(unaligned=5, backwards=4, last=8)
        self.assertEqual(self.fact("walks"), "ok: 17 walks of its stacks: 52 % ended in code "
                         "without frame pointers, where ORC goes on")

    def test_modules_and_tasks_without_names(self) -> None:
        self.host.found += (f"Modules of the guest of process {PID} have no names: this perf was "
                            "built without libbpf\n"
                            f"Tasks of the guest of process {PID} have no names: its kernel's BTF "
                            "does not describe them\n")
        self.assertEqual(self.fact("kernel"), "ok: it runs Linux 6.1.0-50-cloud-amd64: 87182 "
                         "symbols")
        found = self.check("modules")
        self.assertEqual(found and found.mend, "install libbpf's headers, and build perf again")
        self.assertTrue(self.fact("tasks").startswith("no: "))

    def test_perf_that_fails(self) -> None:
        self.host.found = "\nperf: Segmentation fault\n"
        self.assertEqual(self.fact("kernel"), "no: names of its functions: perf: Segmentation "
                         "fault")

    def test_what_others_have_written_leaves_the_terminal_alone(self) -> None:
        self.host.write(f"/proc/{PID}/cmdline", "qemu\0-name\0a\x1b[2J\u00e9\0")
        self.assertIn('has a VM "a?[2J?" with', self.told())

    def test_encryption(self) -> None:
        for args, expected in (("-object\0sev-guest,id=a", "SEV"),
                               ('-object\0{"qom-type":"tdx-guest","id":"a"}', "TDX"),
                               ("--platform\0num_pci_segments=1,sev_snp=on", "SEV-SNP"),
                               ("-name\0sev-guest", ""), ("-name\0guest=a,tdx-guest", "")):
            self.assertEqual(doctor.encryption(f"vmm\0{args}", []), expected, args)

    def test_vm_names(self) -> None:
        for args, expected in ((["-name", "a"], "a"), (["--id=b"], "b"),
                               (["--name", "c,,d"], "c,d"),
                               (["-name", "debug-threads=on,guest=e"], "e"),
                               (["-name", "debug-threads=on"], ""), (["-names", "f"], ""),
                               (["-name"], "")):
            self.assertEqual(doctor.vm_name(args), expected, args)

    def test_perf_is_named_in_the_command(self) -> None:
        _, verdict = doctor.examine(self.host, "/my tools/perf", PID)
        self.assertTrue((verdict.command or "").startswith("'/my tools/perf' kvm --guest"))


class ProgramTest(DoctorTest):
    """The program as a whole, and its system calls."""

    def run_main(self, *args: str) -> Tuple[int, str]:
        out = io.StringIO()
        with mock.patch.object(doctor, "System", lambda: self.host), \
                contextlib.redirect_stdout(out):
            status = doctor.main(args)
        return status, out.getvalue()

    def test_text_and_status(self) -> None:
        self.assertEqual(self.run_main(str(PID)), (0, HOST + GUEST + RECORD))
        self.host.option = False
        self.assertEqual(self.run_main(str(PID))[0], 1)

    def test_json(self) -> None:
        status, text = self.run_main("--json", str(PID))
        told = json.loads(text)
        self.assertEqual(status, 0)
        self.assertEqual(sorted(told), ["checks", "command", "pid", "summary"])
        self.assertEqual(told["command"], RECORD.splitlines()[1].strip())
        self.assertEqual([check["state"] for check in told["checks"]], ["ok"] * 15)
        self.assertEqual(told["checks"][0], {
            "about": "host", "name": "machine", "state": "ok", "blocks": False, "mend": "",
            "note": "", "fact": "Linux 7.3.4 on x86-64"})

    def test_wrong_pid(self) -> None:
        for word in ("0", "-1", "qemu"):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as end:
                doctor.main(["--", word])
            self.assertEqual(end.exception.code, 2)

    def test_attributes_are_those_of_the_patches(self) -> None:
        patches = Path(doctor.__file__).resolve().parents[1] / "patches" / "v7.3"
        for name, before, bit in (("0009-perf-guest-callchain.patch", 24, doctor.GUEST_CALLCHAIN),
                                  ("0011-perf-guest-deferred.patch", 23,
                                   doctor.DEFER_GUEST_CALLCHAIN)):
            text = (patches / name).read_text(encoding="utf-8")
            self.assertRegex(text, rf"(?m)^-\s+__reserved_1 +: {before};")
            self.assertEqual(bit, 1 << 64 - before)
        text = (patches / "0015-perf-guest-stack.patch").read_text(encoding="utf-8")
        found = re.search(r"PERF_SAMPLE_GUEST_STACK\s+= 1U << (\d+)", text)
        self.assertEqual(doctor.SAMPLE_GUEST_STACK, 1 << int(found.group(1)) if found else 0)

    def test_attribute_as_the_kernel_reads_it(self) -> None:
        packed = doctor.attr(doctor.SOFTWARE_CPU_CLOCK, doctor.GUEST_CALLCHAIN, 32)
        self.assertEqual(len(packed), doctor.ATTR_SIZE)
        self.assertEqual(struct.unpack("<IIQQQQQ", packed[:48]),
                         (1, doctor.ATTR_SIZE, 0, 1000003, 32, 0, 1 << 40 | 1))
        self.assertFalse(any(packed[48:]))

    @unittest.skipUnless(os.uname().machine == "x86_64", "the system calls are those of x86-64")
    def test_system_calls(self) -> None:
        system = doctor.System()
        self.assertEqual(system.read_memory(os.getpid()), errno.EFAULT)
        self.assertEqual(system.read_memory(1 << 30), errno.ESRCH)
        # The kernel finds the bit invalid, unless this user may not open events at all.
        self.assertIn(system.open_event(doctor.SOFTWARE_CPU_CLOCK, doctor.RESERVED),
                      (errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENOSYS))
        before = os.listdir("/proc/self/fd")
        doctor.may_sample(system, 0)
        self.assertEqual(os.listdir("/proc/self/fd"), before)

    def test_commands(self) -> None:
        system = doctor.System()
        self.assertEqual(system.run(["sh", "-c", "echo out; echo err >&2; exit 3"], 60),
                         (3, "out\nerr\n"))
        self.assertEqual(system.run(["/nowhere/perf"], 60), (None, "No such file or directory"))
        self.assertEqual(system.run(["sleep", "60"], 0), (None, "it took longer than 0 seconds"))


if __name__ == "__main__":
    unittest.main()
