#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Write perf.data files with callchains of guests, as a host with KVM records them."""

import argparse
import struct
from typing import BinaryIO, List, Sequence, Tuple

RECORD_MMAP, RECORD_COMM, RECORD_SAMPLE, RECORD_MMAP2 = 1, 3, 9, 10
RECORD_DEFERRED, RECORD_GUEST_READ = 22, 23
KERNEL, USER, GUEST_KERNEL, GUEST_USER = 1, 2, 4, 5

IN_KERNEL, IN_USER = 2**64 - 128, 2**64 - 512
IN_GUEST_KERNEL, IN_GUEST_USER = 2**64 - 2176, 2**64 - 2560
USER_DEFERRED = 2**64 - 640

# PERF_SAMPLE_*: IP, TID, TIME, CALLCHAIN; REGS_USER, STACK_USER
SAMPLE_TYPE, DWARF = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5, 1 << 12 | 1 << 13
# Bits of struct perf_event_attr
SAMPLE_ID_ALL = 1 << 18
DEFER_CALLCHAIN, DEFER_OUTPUT = 1 << 38, 1 << 39
GUEST_CALLCHAIN, GUEST_READ = 1 << 40, 1 << 41
# All registers of x86-64 but DS, ES, FS and GS.
REGS_MASK, REGS_NR, REG_SP, REG_IP = 0xff0fff, 20, 7, 8

# No process has this PID.
PID = 1 << 30
GUEST_TEXT, HOST_TEXT = 0xffffffff81000000, 0xffffffff91000000
VMM_TEXT, JIT_TEXT = 0x400000, 0x600000
# User mode of the guest: two functions and the stack.
USER_IPS, USER_SP = (0x1234, 0x5678), 0x7fff0000
# The end of the kernel's stack of the guest's task, the size of what is saved there, and SP.
TOP, PT_REGS, GUEST_SP = 0xffffc90000004000, 168, 0xffffc90000003000
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

    def sample(self, cpumode: int, tid: int, chain: Sequence[int], rest: bytes = b"",
               ip: int = 0) -> None:
        self.event(RECORD_SAMPLE, cpumode, struct.pack("<Q", ip or chain[1]) + self._id(tid) +
                   struct.pack(f"<{len(chain) + 1}Q", len(chain), *chain) + rest)

    def deferred(self, cpumode: int, tid: int, cookie: int, chain: Sequence[int]) -> None:
        self.event(RECORD_DEFERRED, cpumode, struct.pack(f"<{len(chain) + 2}Q", cookie,
                   len(chain), *chain) + self._id(tid))

    def read(self, cpumode: int, tid: int, cookie: int,
             pieces: Sequence[Tuple[int, bytes]]) -> None:
        """What was read of the guest: SP, and pieces of memory."""
        body = struct.pack("<6Q", cookie, 2, 0x2000, 1 << REG_SP, GUEST_SP, len(pieces))
        for address, data in pieces:
            # A word behind the data could not be read.
            size = len(data) + 8 if data else 0
            body += struct.pack("<QQ", address, size)
            body += struct.pack(f"<{size}sQ", data, len(data)) if data else b""
        self.event(RECORD_GUEST_READ, cpumode, body + self._id(tid))


def user_pieces() -> List[Tuple[int, bytes]]:
    """Pieces with user mode's registers and stack, which has one frame."""
    saved = [0] * (PT_REGS // 8)
    # BP, IP, CS, FLAGS, SP
    saved[4], saved[16:20] = USER_SP + 8, (USER_IPS[0], 0x33, 0x246, USER_SP)
    # The kernel's stacks were not read.
    return [(0, b""), (0, b""), (TOP - PT_REGS, struct.pack(f"<{len(saved)}Q", *saved)),
            (USER_SP, struct.pack("<3Q", 0, 0, USER_IPS[1]))]


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
    data = PerfData(path, DEFER_CALLCHAIN | DEFER_OUTPUT | GUEST_CALLCHAIN | GUEST_READ)
    data.comm(vcpu, "vcpu0")
    data.mmap(VMM_TEXT, 1 << 20, vmm)
    data.mmap(JIT_TEXT, 1 << 20, "//anon")
    # A sample of the host and one of the guest wait at the same time.
    data.sample(KERNEL, vcpu, [IN_KERNEL, HOST_TEXT + 1, USER_DEFERRED, 11])
    # In the file, the records come before the sample: perf has to go by the time.
    data.time += 1000
    data.read(GUEST_KERNEL, vcpu, 22, user_pieces())
    data.deferred(GUEST_KERNEL, vcpu, 22, [IN_GUEST_KERNEL, guest_ip(2), guest_ip(3)])
    data.time -= 3000
    data.sample(GUEST_KERNEL, vcpu, [IN_GUEST_KERNEL, guest_ip(1), USER_DEFERRED, 22])
    data.time += 2000
    data.deferred(USER, vcpu, 11, [VMM_TEXT + 0x100, JIT_TEXT + 0x200])
    # This sample comes after its record.
    data.sample(KERNEL, vcpu, [IN_KERNEL, HOST_TEXT + 2, USER_DEFERRED, 11])
    # It has no callers.
    data.sample(GUEST_KERNEL, vcpu, [IN_GUEST_KERNEL, guest_ip(3), USER_DEFERRED, 24])
    data.deferred(GUEST_KERNEL, vcpu, 24, [])
    # A sample of user mode
    data.sample(GUEST_USER, vcpu, [IN_GUEST_USER, USER_IPS[0], USER_DEFERRED, 26])
    data.deferred(GUEST_USER, vcpu, 26, [IN_GUEST_USER, USER_IPS[1]])
    # Its record is lost.
    data.sample(GUEST_KERNEL, vcpu, [IN_GUEST_KERNEL, guest_ip(2), USER_DEFERRED, 33])
    data.close()


def write_dwarf(path: str, vmm: str) -> None:
    """A host's and a guest's sample, both with the registers and stack of the VMM."""
    regs = [0] * REGS_NR
    regs[REG_IP], regs[REG_SP] = VMM_TEXT + 0x100, 0x7fff0000
    rest = struct.pack(f"<{REGS_NR + 1}Q", 2, *regs)
    rest += struct.pack("<Q8192xQ", 8192, 8192)
    data = PerfData(path, 0, SAMPLE_TYPE | DWARF)
    data.mmap(VMM_TEXT, 1 << 20, vmm)
    data.sample(KERNEL, PID, [IN_KERNEL, HOST_TEXT + 1], rest)
    # Such an event has no callchains of guests.
    data.sample(GUEST_KERNEL, PID, [], rest, guest_ip(1))
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
