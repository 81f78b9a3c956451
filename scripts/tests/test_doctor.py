# SPDX-License-Identifier: GPL-2.0-only
"""Tests of doctor/: what it finds out about hosts and guests that are made up, and how it asks."""

import ast
import contextlib
import errno
import gzip
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import doctor
from doctor import __main__ as command
from doctor import system
from hostlib.patches import topics

PID = 1234
CONFIG, CONFIG_GZ = "/boot/config-7.3.4", "/proc/config.gz"
SYSCTL = "/proc/sys/kernel/"
STACK, CONTEXTS, SWITCH, PARANOID = (f"{SYSCTL}perf_event_{name}" for name in (
    "max_stack", "max_contexts_per_stack", "guest_callchain", "paranoid"))
MAPS, STATUS, CMDLINE, FD, VM = (f"/proc/{PID}/{name}" for name in (
    "maps", "status", "cmdline", "fd", "fdinfo/1"))
AMD_MEDIATES, INTEL_MEDIATES = (f"/sys/module/kvm_{vendor}/parameters/enable_mediated_pmu"
                                for vendor in ("amd", "intel"))
RECORD = f"-g -p {PID} -o perf.data.guest -- sleep 10"
GUEST = f"he guest of process {PID} "
RUNS = f"T{GUEST}runs Linux 6.1.0-50-cloud: 87182 symbols\n"
NO_NAMES = f"T{GUEST}has no names: "
NO_LINUX = {"said": NO_NAMES + "no Linux kernel is found in its memory; do it\n"}
NO_TABLES = f"{RUNS}T{GUEST}is not unwound by ORC: "
OPTION_OFF = b"CONFIG_A=y\n# CONFIG_GUEST_PERF_CALLCHAIN is not set\n"

# What differs from the usual machine: files, by full path; and other answers, see Machine.
Changes = Dict[str, Any]


def process(uid: int, name: str = "qemu-system-x86", tgid: int = PID) -> str:
    return f"Name:\t{name}\nTgid:\t{tgid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}"


def policy(name: str) -> str:
    return (f"flags:\t02\nguest_callchain:\t{name}\n"
            "memslot:\tas_id=0 slot=0 gpa=0x0 size=0xa0000 hva=0x1 flags=0x0\n"
            "memslot:\tas_id=0 slot=3 gpa=0x10000 size=0xff00000 hva=0x2 flags=0x0\n"
            "memslot:\tas_id=1 slot=0 gpa=0x0 size=0xa0000 hva=0x1 flags=0x0")


USUAL: Changes = {
    "/dev/kvm": "", INTEL_MEDIATES: "N", CONFIG: "A=y\nCONFIG_GUEST_PERF_CALLCHAIN=y",
    "/proc/cpuinfo": "processor : 0\nflags\t\t: fpu vmx sse", PARANOID: "2", STACK: "127",
    SWITCH: "3", VM: policy("undecided"), CONTEXTS: "8", STATUS: process(0),
    f"/proc/{PID}/comm": "qemu", CMDLINE: "qemu\0-m\x00256",
    FD: ["/dev/kvm", "anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0", "anon_inode:kvm-vcpu:1",
         "anon_inode:kvm-vcpu-stats:0"],
    MAPS: "555500000000-555500800000 r-xp 0 8:1 1 /qemu\n7f0000000000-7f0010000000 rw-p 0 0:0 0\n"
          "7f0020000000-7f0020400000 rw-p 0 0:0 0\n7f0030000000-7f0070000000 ---p 0 0:0 0",
    f"/proc/{PID}/task/1236/comm": "CPU 0/KVM", "/proc/1236/status": process(0),
    # Another process.
    "/proc/77/status": process(0, "bash", 77), "/proc/77/fd": []}


class Machine(system.System):
    """A host where all is well, with a guest of root's, PID; and what differs from that."""

    def __init__(self, changes: Changes) -> None:
        super().__init__()
        self.commands: List[List[str]] = []
        self.machine, self.release, self.uid = "x86_64", "7.3.4", 0
        self.hidden = "/nothing"  # a pattern of the files that this user can't see
        self.knows = system.GUEST_CALLCHAIN | system.GUEST_READ
        self.samples, self.error, self.error_first = {0: "all", PID: "all"}, errno.EACCES, False
        self.pmu, self.memory = "ok", errno.EFAULT
        self.usage: Tuple[Optional[int], str] = (129, " Usage: perf kvm guest-info -p PID\n")
        self.said = RUNS + f"T{GUEST}is called a\x1b[2J\u00e9\n"
        vars(self).update((key, value) for key, value in changes.items() if key[0] != "/")
        self.files = {name: text for name, text in {**USUAL, **changes}.items()
                      if text is not None and not re.search(self.hidden, name)}

    def read_bytes(self, name: str) -> Optional[bytes]:
        text = self.files.get(name)
        return f"{text}\n".encode() if isinstance(text, str) else text

    def entries(self, name: str) -> Optional[List[str]]:
        if name.endswith("/fd"):
            return None if name not in self.files else [*map(str, range(len(self.files[name])))]
        return sorted({file[len(name) + 1:].partition("/")[0] for file in self.files
                       if file.startswith(name + "/")})

    def exists(self, name: str) -> bool:
        return any((file + "/").startswith(name + "/") for file in self.files)

    def link(self, name: str) -> Optional[str]:
        folder, _, number = name.rpartition("/")
        return self.files[folder][int(number)] or None

    def run(self, command: Sequence[str], seconds: int) -> Tuple[Optional[int], str]:
        assert command[0] == "a;"
        self.commands.append([*command])
        if "-o" not in command:
            return self.usage if command[-1] == "guest-info" else (0, "perf version 9.8\n")
        self.files[f"{command[-1]}/{PID}/proc/modules"] = "ext4 1 0 - Live 0\nkvm 1 0 - Live 0"
        self.files[f"{command[-1]}/{PID}/tasks"] = "0 ff00 1 1 init\n0 ff01 7 8 a b\n9 ff00"
        return 0, self.said

    def open_event(self, event: Tuple[int, int], bits: int = 0, sample_type: int = 0,
                   pid: int = 0) -> int:
        allowed = self.samples[pid]
        denied = allowed == "nothing" or (allowed != "all" and not bits & system.EXCLUDE_KERNEL)
        refused = bits & ~self.knows & (system.GUEST_CALLCHAIN | system.GUEST_READ
                                        | system.RESERVED)
        if bits & system.GUEST_CALLCHAIN:
            refused |= (not sample_type & system.SAMPLE_CALLCHAIN
                        or (self.sysctl("perf_event_max_contexts_per_stack") or 0) < 3
                        or not self.sysctl("perf_event_max_stack"))
        if refused and not (denied and self.error_first):
            return errno.EINVAL
        if denied or event != system.HARDWARE_CYCLES:
            return self.error if denied else 0
        return {"ok": 0, "none": errno.ENOENT, "mediated": 0 if bits & system.EXCLUDE_GUEST else
                errno.EOPNOTSUPP}[self.pmu]

    def read_memory(self, pid: int) -> int:
        return self.memory


def alice(samples: str, **more: Any) -> Changes:
    """Be a user who may sample so much, but nothing of root's guest."""
    return {"uid": 1000, "samples": {0: samples, PID: "nothing"}, "memory": errno.EPERM,
            "hidden": f"/{PID}/(fd|maps)", **more}


def own(samples: str, **more: Any) -> Changes:
    return {STATUS: process(1000), **alice(samples), "samples": {0: samples, PID: samples},
            "hidden": "/nothing", **more}


NO_READS = "host.switch:no-reads"
HIDDEN = ("guest.vmm? guest.sample:nothing! guest.memory:refused guest.encryption? guest.ram? "
          "guest.kernel?")
ENCRYPTED = "guest.encryption:encrypted! guest.kernel?"
NO_RIGHTS = f"host.pmu? host.user:nothing! {HIDDEN}"
NOT_LINUX = "guest.kernel:no-linux guest.unwinding?"

# Situations: checks that are not "ok", with "?" if unknown, "!" if they block; then texts that must
# be in the report: commands, options, names, numbers; then what differs from the usual machine.
CASES: Sequence[Tuple[str, str, Changes]] = (
    ("", f"'a;' kvm --guest record {RECORD}|[2J|6.1.0-50-cloud|87182|2 modules|2 tasks|2 vCPU|"
     "2 memslots, 255 MiB|kvm_intel|perf 9.8|--call-graph orc", {}),
    # The kernel.
    ("host.kernel:unpatched!", "make deb", {CONFIG: "A=y", "knows": 0}),
    ("host.kernel:off!", f"-e GUEST_PERF_CALLCHAIN|{CONFIG}", {CONFIG: OPTION_OFF, "knows": 0}),
    ("host.kernel:off!", CONFIG_GZ, {CONFIG_GZ: gzip.compress(OPTION_OFF), "knows": 0}),
    ("host.kernel:other-config!", CONFIG, {CONFIG_GZ: b"\x1f\x8b broken", "knows": 0}),
    ("host.kernel:incomplete", RECORD, {"knows": system.GUEST_CALLCHAIN}),
    ("host.kernel:missing! host.limits?", "make deb",
     {"knows": 0, "hidden": "/boot|/sys|/proc/cpuinfo"}),
    # The PMU, KVM and the machine.
    ("host.pmu:none", f"record -e cpu-clock {RECORD}", {"pmu": "none"}),
    ("host.pmu:mediated", f"record -e cpu-clock {RECORD}|load kvm_intel",
     {INTEL_MEDIATES: "Y", "pmu": "mediated"}),
    ("", "kvm_amd", {AMD_MEDIATES: "1"}),
    ("host.kvm:no-cpu! guest.vmm:no-vm!", "-accel kvm",
     {"/dev/kvm": None, "/proc/cpuinfo": "flags\t: fpu sse", FD: ["/dev/null"]}),
    ("host.kvm:not-loaded! guest.vmm:no-vm!", "modprobe kvm_intel",
     {"/dev/kvm": None, FD: ["/dev/null"]}),
    ("", RECORD, {"/dev/kvm": None}),
    ("host.machine:aarch64!", "perf-guests.rst", {"machine": "aarch64"}),
    ("host.machine:riscv64!", "x86-64", {"machine": "riscv64"}),
    # The administrator's limits, and who may read guests.
    ("host.kernel? host.limits:none!", "max_contexts_per_stack=8", {CONTEXTS: "2"}),
    ("host.kernel? host.limits:none!", "max_stack=127", {STACK: "0"}),
    ("host.limits:shallow", "max_stack=127", {STACK: "16"}),
    ("host.switch:off! guest.kernel:switch guest.unwinding?", "guest_callchain=3",
     {SWITCH: "0", "said": NO_NAMES + "kernel.perf_event_guest_callchain is 0\n"}),
    (NO_READS, "guest_callchain=3|whose VMM allows", {SWITCH: "1", VM: policy("allowed")}),
    ("", "", {SWITCH: "1", VM: policy("read-allowed")}),
    (NO_READS, f"guest_callchain=3|{RECORD}", {SWITCH: "2"}),
    ("", "", {SWITCH: "2", VM: policy("read-allowed")}),
    (f"{NO_READS} guest.policy:not-allowed!", "guest_callchain=3", {SWITCH: "1"}),
    ("guest.policy:forbidden!", "", {VM: policy("forbidden")}),
    ("guest.policy:forbidden!", "", {FD: ["/dev/kvm", *["anon_inode:kvm-vm"] * 2],
                                     VM[:-1] + "2": policy("forbidden")}),
    (f"{NO_READS} " + HIDDEN.replace(" ", " guest.policy? ", 1), "or as user root",
     {SWITCH: "1", **alice("all")}),
    # perf.
    ("host.perf:old! guest.kernel?", "--perf perf_7.3|PERF=perf_7.3",
     {"usage": (129, " Usage: perf kvm [<options>] {top|record}\n")}),
    ("host.perf:not-run! guest.kernel?", "no way", {"usage": (None, "no way")}),
    ("guest.kernel:other guest.unwinding?", "Segmen", {"said": "\nSegmentation\n"}),
    # The user's rights.
    (f"host.kernel? {NO_RIGHTS}", "paranoid is 4|perf as root",
     {STATUS: process(64055), PARANOID: "4", **alice("nothing", error_first=True)}),
    (NO_RIGHTS, "", alice("nothing")),
    (f"host.kernel:other-config! {NO_RIGHTS}", "", alice("nothing", knows=0)),
    ("host.kernel? host.pmu? host.user:system-call! guest.vmm? guest.sample:nothing! "
     "guest.encryption?", "leave the container|CAP_SYS_PTRACE", {
         "samples": {0: "nothing", PID: "nothing"}, "error": errno.ENOSYS, "error_first": True,
         FD: ["", ""]}),
    ("host.user:programs guest.sample:programs", f"paranoid=1|record -e cycles:u {RECORD}",
     own("programs", memory=errno.EFAULT)),
    ("guest.memory:yama guest.kernel? guest.unwinding?", "yama.ptrace_scope=0|255 MiB",
     {SYSCTL + "yama/ptrace_scope": "1", **own("all")}),
    # The guest's memory and names.
    (ENCRYPTED, "(SEV-SNP)", {CMDLINE: "a\0-object\0sev-snp-guest,i=j"}),
    (ENCRYPTED, "(SEV)", {CMDLINE: "a\0-object\0sev-guest,id=a"}),
    (ENCRYPTED, "(TDX)", {CMDLINE: 'a\0-object\0{"qom-type":"tdx-guest","id":"a"}'}),
    (ENCRYPTED, "(SEV-SNP)", {CMDLINE: "a\0--platform\0num_pci_segments=1,sev_snp=on"}),
    (ENCRYPTED, "(SEV)", {FD: ["anon_inode:kvm-vm", "/dev/sev"]}),
    ("", RECORD, {CMDLINE: "a\0-name\0sev-guest"}),
    ("guest.encryption?", RECORD, {FD: ["anon_inode:kvm-vm", "[kvm-gmem]"]}),
    (NOT_LINUX, "4096 MiB", {VM: None, **NO_LINUX, MAPS:
                             "10000000-90000000 rw-p 0\n7e0000000000-7e0100000000 rw-s 0"}),
    ("guest.ram:mappings " + NOT_LINUX, "3072 MiB|2048 MiB", {
        VM: None, **NO_LINUX, MAPS: "10000000-90000000 rw-p\n7e0000000000-7e00c0000000 rw-s"}),
    (NOT_LINUX, f"--call-graph fp|{RECORD}", NO_LINUX),
    ("guest.kernel:other guest.unwinding?", "32 bits|--guestkallsyms",
     {"said": NO_NAMES + "only a kernel of 32 bits is found, which perf can't read; do it\n"}),
    ("guest.kernel:no-symbols guest.unwinding?", "--guestkallsyms|--guestvmlinux",
     {"said": NO_NAMES + "no kallsyms are found in its kernel\n"}),
    ("", "--call-graph fp", {"said": f"{NO_TABLES}its kernel has no ORC tables\n"}),
    ("guest.unwinding:no-tables", "--guestvmlinux", {"said": f"{NO_TABLES}they are not mapped\n"}),
    ("guest.modules:no-libbpf guest.tasks:other", "libbpf's headers", {
        "said": f"{RUNS}Modules of t{GUEST}have no names: this perf was built without libbpf\n"
        f"Tasks of t{GUEST}have no names: its BTF\n"}),
)


def run(machine: Machine, *args: str) -> Tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = command.main(["--perf", "a;", *args], machine)
    return status, out.getvalue()


class DoctorTest(unittest.TestCase):
    def report(self, machine: Machine, *args: str) -> Tuple[Dict[str, Any], str]:
        """Return the report, and its checks that are not "ok" as CASES has them."""
        status, text = run(machine, "--json", *args)
        report = json.loads(text)
        blocking = [check["mend"] for check in report["checks"] if check["blocks"]]
        self.assertEqual(status, 1 if blocking else 0)
        self.assertEqual(bool(report["command"]), bool(args and not blocking))
        self.assertIn((blocking or [""])[0], report["summary"])
        return report, " ".join(check["key"] + {"no": ":" + check["why"], "unknown": "?"}[
            check["state"]] + "!" * check["blocks"] for check in report["checks"]
            if check["state"] != "ok")

    def test_situations(self) -> None:
        for wanted, texts, changes in CASES:
            with self.subTest(wanted, texts=texts):
                machine = Machine(changes)
                report, found = self.report(machine, str(PID))
                self.assertEqual(found, wanted)
                for text in texts.split("|"):
                    self.assertIn(text, json.dumps(report))
                # The doctor knows better what to do.
                self.assertNotIn("do it", json.dumps(report))
                # perf must not search memory that is encrypted.
                self.assertFalse(ENCRYPTED in found and "-p" in sum(machine.commands, []))
                self.check_text(report, run(Machine(changes), str(PID))[1])

    def check_text(self, report: Dict[str, Any], text: str) -> None:
        """A screen must have room for the text, and the text must have all that matters."""
        lines = text.splitlines()
        self.assertLessEqual(len(lines), 40)
        self.assertLessEqual(max(map(len, lines)), 80)
        marks = re.findall(r"^  (ok|no|--) ", text, re.M)
        self.assertEqual([{"--": "unknown"}.get(mark, mark) for mark in marks],
                         [check["state"] for check in report["checks"]])
        for said in [report["summary"], *(check["mend"] for check in report["checks"])]:
            self.assertIn("".join(said.split()), "".join(text.split()))
        self.assertEqual(report["command"] or lines[-1], lines[-1].strip())
        # A guest must not control the terminal by its name.
        self.assertRegex(text, r"\A[ -~\n]+\Z")

    def test_pids(self) -> None:
        for pid, wanted in ("77", "no-vm"), ("4242", "no-process"), ("1236", "thread"):
            report, found = self.report(Machine({}), pid)
            self.assertEqual((found, report["pid"]), (f"guest.vmm:{wanted}!", int(pid)))
            self.assertIn(str(PID), report["summary"])
        report, found = self.report(Machine({}))
        self.assertEqual(found, "")
        self.assertIn(f"{PID} (qemu)", report["summary"])
        self.assertIn("_paranoid=1", self.report(Machine(alice("nothing")))[0]["summary"])
        for word in ("0", "-1", "qemu"):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as end:
                command.main(["--", word])
            self.assertEqual(end.exception.code, 2)


class SystemTest(unittest.TestCase):
    """The questions to this machine."""

    def test_attributes_are_those_of_the_patches(self) -> None:
        text = "".join(topic.patch.read_text(encoding="utf-8") for topic in topics())
        bits = {name: 1 << 64 - int(left) for left, name in re.findall(
            r"(?m)^-\s+__reserved_1 +: (\d+);\n\+\s+(\w+) +: +1,", text)}
        self.assertEqual(bits["guest_callchain"], system.GUEST_CALLCHAIN)
        self.assertEqual(bits["guest_read"], system.GUEST_READ)

    def test_attribute_as_the_kernel_reads_it(self) -> None:
        packed = system.attr(system.SOFTWARE_CPU_CLOCK, system.GUEST_CALLCHAIN, 32)
        self.assertEqual(struct.unpack("<IIQQQQQ64x", packed),
                         (1, len(packed), 0, 1000003, 32, 0, 1 << 40 | 1))

    @unittest.skipUnless(os.uname().machine == "x86_64", "the system calls are those of x86-64")
    def test_system_calls(self) -> None:
        here = system.System()
        self.assertEqual(here.read_memory(os.getpid()), errno.EFAULT)
        self.assertEqual(here.read_memory(1 << 30), errno.ESRCH)
        before = os.listdir("/proc/self/fd")
        here.open_event(system.SOFTWARE_CPU_CLOCK, system.EXCLUDE_KERNEL)
        self.assertEqual(os.listdir("/proc/self/fd"), before)
        # The kernel finds the bit invalid, unless this user may not open events at all.
        self.assertIn(here.open_event(system.SOFTWARE_CPU_CLOCK, system.RESERVED),
                      (errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENOSYS))

    def test_files_and_commands(self) -> None:
        here = system.System()
        with tempfile.TemporaryFile() as file:
            self.assertIn(here.link(f"/proc/self/fd/{file.fileno()}"),
                          here.open_files(os.getpid()) or [])
        self.assertEqual(here.status_of(os.getpid())["Pid"], str(os.getpid()))
        self.assertEqual((here.open_files(1 << 30), here.link("/nowhere"), here.read("/nowhere"),
                          here.exists("/nowhere"), here.status_of(1 << 30)),
                         (None, None, "", False, {}))
        self.assertEqual(here.run(["sh", "-c", "echo out; echo err >&2; exit 3"], 60),
                         (3, "out\nerr\n"))
        for words, seconds in ((["/nowhere/perf"], 60), (["sleep", "60"], 0)):
            self.assertIsNone(here.run(words, seconds)[0])


class FolderTest(unittest.TestCase):
    """The folder, alone on another machine, where Python is old."""

    def test_it_stands_alone(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            folder = shutil.copytree(Path(doctor.__file__).parent, f"{tmp}/doctor")
            Path(tmp, "json.py").write_text("raise SystemExit('the wrong module')")
            done = subprocess.run([sys.executable, "-I", folder, "--json", "--perf", "/no"],
                                  stdout=subprocess.PIPE, check=False)
            self.assertEqual((done.returncode, json.loads(done.stdout)["command"]), (1, None))
        for path in Path(doctor.__file__).parent.glob("*.py"):
            ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
