#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Write perf.data files with callchains of guests, as a host with KVM records them."""

import argparse
import struct
from typing import BinaryIO, Sequence

RECORD_MMAP, RECORD_COMM, RECORD_SAMPLE, RECORD_MMAP2 = 1, 3, 9, 10
RECORD_DEFERRED = 22
KERNEL, USER, GUEST_KERNEL, GUEST_USER = 1, 2, 4, 5

IN_KERNEL, IN_USER = 2**64 - 128, 2**64 - 512
IN_GUEST_KERNEL, IN_GUEST_USER = 2**64 - 2176, 2**64 - 2560
USER_DEFERRED = 2**64 - 640

# PERF_SAMPLE_*: IP, TID, TIME, CALLCHAIN; REGS_USER, STACK_USER
SAMPLE_TYPE, DWARF = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5, 1 << 12 | 1 << 13
# Bits of struct perf_event_attr
SAMPLE_ID_ALL = 1 << 18
DEFER_CALLCHAIN, DEFER_OUTPUT = 1 << 38, 1 << 39
GUEST_CALLCHAIN, DEFER_GUEST_CALLCHAIN = 1 << 40, 1 << 41
# All registers of x86-64 but DS, ES, FS and GS.
REGS_MASK, REGS_NR, REG_SP, REG_IP = 0xff0fff, 20, 7, 8

# No process has this PID.
PID = 1 << 30
GUEST_TEXT, HOST_TEXT = 0xffffffff81000000, 0xffffffff91000000
VMM_TEXT, JIT_TEXT = 0x400000, 0x600000
KALLSYMS = ("_text", "guest_leaf", "guest_mid", "guest_root", "_etext")


def guest_ip(function: int) -> int:
    """An address in one of the functions of KALLSYMS."""
    return GUEST_TEXT + (function << 12) + 0x10


class PerfData:
    """A perf.data file with one event."""

    def __init__(self, path: str, flags: int, sample_type: int = SAMPLE_TYPE) -> None:
        self._file: BinaryIO = open(path, "wb")
        self.time = 0
        attr = struct.pack("<IIQQQQQIIQQQQIi", 1, 112, 0, 1, sample_type, 0,
                           SAMPLE_ID_ALL | flags, 0, 0, 0, 0, 0,
                           REGS_MASK if sample_type & DWARF else 0,
                           8192 if sample_type & DWARF else 0, 0)
        self._attr = attr.ljust(112, b"\0") + struct.pack("<QQ", 0, 0)
        self._data = 104 + len(self._attr)
        self._file.write(b"\0" * self._data)
        # The kernel of all guests.
        self.event(RECORD_MMAP, GUEST_KERNEL, struct.pack("<IIQQQ32s", 0, 0, GUEST_TEXT,
                   0x1000000, GUEST_TEXT, b"[guest.kernel.kallsyms]_text") + self._id(0))

    def close(self) -> None:
        """Complete the file with its header."""
        size = self._file.tell() - self._data
        self._file.seek(0)
        self._file.write(b"PERFILE2" + struct.pack("<12Q", 104, len(self._attr), 104,
                         len(self._attr), self._data, size, 0, 0, 0, 0, 0, 0))
        self._file.write(self._attr)
        self._file.close()

    def event(self, kind: int, cpumode: int, body: bytes) -> None:
        self._file.write(struct.pack("<IHH", kind, cpumode, 8 + len(body)) + body)

    def _id(self, tid: int) -> bytes:
        self.time += 1000
        return struct.pack("<IIQ", PID, tid, self.time)

    def comm(self, tid: int, name: str) -> None:
        text = name.encode().ljust(16, b"\0")
        self.event(RECORD_COMM, 0, struct.pack("<II", PID, tid) + text + self._id(tid))

    def mmap(self, start: int, size: int, path: str) -> None:
        text = path.encode() + b"\0"
        text = text.ljust((len(text) + 7) // 8 * 8, b"\0")
        self.event(RECORD_MMAP2, USER, struct.pack("<IIQQQIIQQII", PID, PID, start, size, 0,
                   0, 0, 0, 0, 5, 2) + text + self._id(PID))

    def sample(self, cpumode: int, tid: int, chain: Sequence[int], rest: bytes = b"") -> None:
        self.event(RECORD_SAMPLE, cpumode, struct.pack("<Q", chain[1]) + self._id(tid) +
                   struct.pack(f"<{len(chain) + 1}Q", len(chain), *chain) + rest)

    def deferred(self, cpumode: int, tid: int, cookie: int, chain: Sequence[int]) -> None:
        self.event(RECORD_DEFERRED, cpumode, struct.pack(f"<{len(chain) + 2}Q", cookie,
                   len(chain), *chain) + self._id(tid))


def write_kallsyms(path: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        for index, name in enumerate(KALLSYMS):
            file.write(f"{GUEST_TEXT + (index << 12):x} T {name}\n")


def write_jit_map(path: str) -> None:
    """Name a function of the VMM; perf reads such names from /tmp/perf-PID.map."""
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{JIT_TEXT:x} 1000 vmm_run\n")


def write_mixed(path: str, vmm: str) -> None:
    """Samples of a host and of a guest, in the thread of one vCPU."""
    vcpu = PID + 1
    data = PerfData(path, DEFER_CALLCHAIN | DEFER_OUTPUT | GUEST_CALLCHAIN |
                    DEFER_GUEST_CALLCHAIN)
    data.comm(vcpu, "vcpu0")
    data.mmap(VMM_TEXT, 1 << 20, vmm)
    data.mmap(JIT_TEXT, 1 << 20, "//anon")
    # A sample of the host and one of the guest wait at the same time.
    data.sample(KERNEL, vcpu, [IN_KERNEL, HOST_TEXT + 1, USER_DEFERRED, 11])
    # In the file, the record comes before the sample: perf has to go by the time.
    data.time += 1000
    data.deferred(GUEST_KERNEL, vcpu, 22, [IN_GUEST_KERNEL, guest_ip(2), guest_ip(3),
                                           IN_GUEST_USER, 0x1234])
    data.time -= 2000
    data.sample(GUEST_KERNEL, vcpu, [IN_GUEST_KERNEL, guest_ip(1), USER_DEFERRED, 22])
    data.time += 1000
    data.deferred(USER, vcpu, 11, [VMM_TEXT + 0x100, JIT_TEXT + 0x200])
    # This sample comes after its record.
    data.sample(KERNEL, vcpu, [IN_KERNEL, HOST_TEXT + 2, USER_DEFERRED, 11])
    # Not deferred.
    data.sample(GUEST_KERNEL, vcpu, [IN_GUEST_KERNEL, guest_ip(1), guest_ip(3)])
    # Its record is lost.
    data.sample(GUEST_KERNEL, vcpu, [IN_GUEST_KERNEL, guest_ip(2), USER_DEFERRED, 33])
    data.close()


def write_dwarf(path: str, vmm: str) -> None:
    """A host's and a guest's sample, both with the registers and stack of the VMM."""
    regs = [0] * REGS_NR
    regs[REG_IP], regs[REG_SP] = VMM_TEXT + 0x100, 0x7fff0000
    rest = struct.pack(f"<{REGS_NR + 1}Q", 2, *regs)
    rest += struct.pack("<Q8192xQ", 8192, 8192)
    data = PerfData(path, GUEST_CALLCHAIN, SAMPLE_TYPE | DWARF)
    data.mmap(VMM_TEXT, 1 << 20, vmm)
    data.sample(KERNEL, PID, [IN_KERNEL, HOST_TEXT + 1], rest)
    data.sample(GUEST_KERNEL, PID, [IN_GUEST_KERNEL, guest_ip(1), guest_ip(3)], rest)
    data.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["kallsyms", "jit-map", "mixed", "dwarf"])
    parser.add_argument("file")
    parser.add_argument("--vmm", default="/vmm", help="the VMM, an ELF file")
    args = parser.parse_args()

    if args.what == "kallsyms":
        write_kallsyms(args.file)
    elif args.what == "jit-map":
        write_jit_map(args.file)
    elif args.what == "mixed":
        write_mixed(args.file, args.vmm)
    else:
        write_dwarf(args.file, args.vmm)


if __name__ == "__main__":
    main()
