# SPDX-License-Identifier: GPL-2.0-only
"""All questions to the machine."""

import ctypes
import errno
import os
import pwd
import struct
import subprocess
from typing import Dict, List, Optional, Sequence, Tuple

# System calls of x86-64.
NR_PERF_EVENT_OPEN = 298
NR_PROCESS_VM_READV = 310

# struct perf_event_attr, see include/uapi/linux/perf_event.h.  The size is that of Linux 4.1,
# which later kernels accept.
ATTR_SIZE = 112
PERF_FLAG_FD_CLOEXEC = 8
HARDWARE_CYCLES = (0, 0)
SOFTWARE_CPU_CLOCK = (1, 0)
DISABLED = 1 << 0
EXCLUDE_KERNEL = 1 << 5
EXCLUDE_GUEST = 1 << 20
GUEST_CALLCHAIN = 1 << 40
GUEST_READ = 1 << 41
RESERVED = 1 << 63
SAMPLE_CALLCHAIN = 1 << 5


def attr(event: Tuple[int, int], bits: int, sample_type: int) -> bytes:
    """A struct perf_event_attr: an event that samples, but is never enabled."""
    period = 1000003
    head = struct.pack("<IIQQQQQ", event[0], ATTR_SIZE, event[1], period, sample_type, 0,
                       bits | DISABLED)
    return head.ljust(ATTR_SIZE, b"\0")


class System:
    """This machine.  Tests answer in its place."""

    def __init__(self) -> None:
        self.machine = os.uname().machine
        self.release = os.uname().release
        self.uid = os.geteuid()

    def read_bytes(self, name: str) -> Optional[bytes]:
        try:
            with open(name, "rb") as file:
                return file.read()
        except OSError:
            return None

    def entries(self, name: str) -> Optional[List[str]]:
        """The names in a folder; None if it isn't there or can't be read."""
        try:
            return sorted(os.listdir(name))
        except OSError:
            return None

    def exists(self, name: str) -> bool:
        return os.path.lexists(name)

    def link(self, name: str) -> Optional[str]:
        """Return a link's target; None if it can't be read."""
        try:
            return os.readlink(name)
        except OSError:
            return None

    def user_name(self, uid: int) -> str:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return f"uid {uid}"

    def run(self, command: Sequence[str], seconds: int) -> Tuple[Optional[int], str]:
        """Return a command's status and output; if it failed to run or to end, None and why."""
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=seconds, check=False,
                                  env={**os.environ, "LC_ALL": "C"})
        except subprocess.TimeoutExpired:
            return None, f"it took longer than {seconds} seconds"
        except OSError as error:
            return None, error.strerror or "it can't be run"
        return done.returncode, done.stdout.decode(errors="replace")

    def open_event(self, event: Tuple[int, int], bits: int = 0, sample_type: int = 0,
                   pid: int = 0) -> int:
        """Open an event and close it again; return zero or the error."""
        fd = self._syscall(NR_PERF_EVENT_OPEN, attr(event, bits, sample_type), pid, -1, -1,
                           PERF_FLAG_FD_CLOEXEC)
        if fd < 0:
            return -fd
        os.close(fd)
        return 0

    def read_memory(self, pid: int) -> int:
        """Read at address zero, which is never mapped: EFAULT means that reading is allowed."""
        byte = ctypes.create_string_buffer(1)
        here = struct.pack("PN", ctypes.addressof(byte), 1)
        nowhere = struct.pack("PN", 0, 1)
        return -self._syscall(NR_PROCESS_VM_READV, pid, here, 1, nowhere, 1, 0)

    def _syscall(self, number: int, *args: object) -> int:
        """Return the result, or the error as a negative number."""
        if self.machine != "x86_64" or struct.calcsize("P") != 8:
            return -errno.ENOSYS
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        result: int = libc.syscall(ctypes.c_long(number), *(
            ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args))
        return result if result >= 0 else -ctypes.get_errno()

    def read(self, name: str) -> str:
        """Return a file's text; "" if it isn't there or can't be read."""
        return (self.read_bytes(name) or b"").decode(errors="replace")

    def sysctl(self, name: str) -> Optional[int]:
        text = self.read(f"/proc/sys/kernel/{name}")
        return int(text) if text else None

    def status_of(self, pid: int) -> Dict[str, str]:
        """Return the fields of /proc/PID/status; an empty dict if there is no such process."""
        lines = self.read(f"/proc/{pid}/status").splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def open_files(self, pid: int) -> Optional[List[str]]:
        """Return the names of a process' open files; None if they can't be read."""
        fds = self.entries(f"/proc/{pid}/fd")
        links = [self.link(f"/proc/{pid}/fd/{fd}") for fd in fds or []]
        names = [link for link in links if link is not None]
        # In a container, root may list others' files, but not read their names.
        return None if fds is None or (fds and not names) else names

    def vms_of(self, pid: int) -> List[str]:
        """Return what KVM tells of each of a process' VMs, as far as that can be read."""
        texts = [self.read(f"/proc/{pid}/fdinfo/{fd}")
                 for fd in self.entries(f"/proc/{pid}/fd") or []
                 if self.link(f"/proc/{pid}/fd/{fd}") == "anon_inode:kvm-vm"]
        return [text for text in texts if text]
