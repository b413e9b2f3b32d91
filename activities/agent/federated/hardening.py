"""What a federated run may not do with memory: show it, dump it, or have it written to swap.

A filter of system calls closes what reads or changes the memory of other processes, and what makes
namespaces and mounts, in which a run would be root of its own. A core dump is none, also where the
machine hands dumps to a program: the kernel takes a limit of 1 byte as a sign to give none.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import struct
from typing import Any, Dict, List

from ..errors import RefusedError
from ..folders import Run
from ..host import cgroups, prctl

SET_SECCOMP, FILTER = 22, 2
CLOSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "io_uring_setup": (425, 425),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
}
"""The closed calls, each with its number on x86_64 and on aarch64."""
SOCKET = (41, 198)
"""The number of `socket` on x86_64 and on aarch64."""
VSOCK = 40
"""The family of sockets that reach a machine's other runs and its host past all namespaces."""
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The number of each architecture for the kernel, and which of the numbers above are its own."""
X32 = 0x40000000
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, RETURN = 0x20, 0x15, 0x35, 0x06
FIRST_ARGUMENT = 16
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
SWAPS = "/proc/swaps"
MOST_SWAP = "memory.swap.max"


def why_not() -> str | None:
    """Why this machine can close no system calls to a run; None: it can."""
    machine = os.uname().machine
    return None if machine in MACHINES else "no filter of system calls is known for %s" % machine


def harden() -> None:
    """Close what shows memory to this process and all that it will start; there is no way back.

    New privileges are forbidden before. Raises: OSError.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    with contextlib.suppress(OSError), open("/proc/self/coredump_filter", "w") as file:
        file.write("0")
    prctl.forbid_new_privileges()
    program = _program(*MACHINES[os.uname().machine])
    code = ctypes.create_string_buffer(b"".join(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    given = Program(len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(given), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


def _program(architecture: int, column: int) -> List[bytes]:
    """The filter: a call of another architecture ends the process, a closed one is refused.

    Of the family of a socket the kernel sees the lower half of the argument alone, as the filter.
    """

    def step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("=HBBI", code, then, otherwise, value)

    closed = [numbers[column] for numbers in CLOSED.values()]
    of_sockets = [
        step(JUMP_EQUAL, SOCKET[column], 0, 2),
        step(LOAD, FIRST_ARGUMENT),
        step(JUMP_EQUAL, VSOCK, 1, 0),
    ]
    to_refusal = len(closed) + len(of_sockets)
    steps = [
        step(LOAD, 4),
        step(JUMP_EQUAL, architecture, 1, 0),
        step(RETURN, KILL),
        step(LOAD, 0),
        step(JUMP_GREATER_EQUAL, X32, to_refusal + 1, 0),
    ]
    for at, number in enumerate(closed):
        steps.append(step(JUMP_EQUAL, number, to_refusal - at, 0))
    return [*steps, *of_sockets, step(RETURN, ALLOW), step(RETURN, REFUSE)]


def profile() -> Dict[str, object]:
    """The filter for podman, as the profile that it reads."""
    closed = {"names": sorted(CLOSED), "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
    family = {"index": 0, "value": 0xFFFFFFFF, "valueTwo": VSOCK, "op": "SCMP_CMP_MASKED_EQ"}
    vsock = {**closed, "names": ["socket"], "args": [family]}
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [closed, vsock]}


def keep_off_swap(run: Run, spec: Dict[str, Any]) -> None:
    """Let nothing of the run be written to swap, by its cgroups.

    systemd and podman have cgroups of their own, see `launch` and `Confinement.options`.
    Raises: RefusedError `swap`, on a machine that has swap and whose cgroups cannot forbid it.
    """
    if not has_swap() or _is_off_swap(run, spec):
        return
    raise RefusedError(
        "swap", "this machine has swap, and its cgroups cannot keep a federated run off it"
    )


def _is_off_swap(run: Run, spec: Dict[str, Any]) -> bool:
    if spec.get("runtime") == "podman":
        return bool(spec.get("memory_bytes"))
    if spec.get("runtime") == "systemd":
        with open("/proc/self/cgroup") as file:
            own = [line.strip()[3:] for line in file if line.startswith("0::")]
        paths = ["/sys/fs/cgroup%s/%s" % (one, MOST_SWAP) for one in own]
        return any(os.path.exists(path) and _said(path) == "0" for path in paths)
    for folder in cgroups.folders_of(run):
        parent = os.path.dirname(folder)
        for above in (os.path.dirname(parent), parent):
            with contextlib.suppress(OSError):
                _write(os.path.join(above, "cgroup.subtree_control"), "+memory")
        with contextlib.suppress(OSError):
            _write(os.path.join(folder, MOST_SWAP), "0")
            return True
    return False


def _said(path: str) -> str:
    with open(path) as file:
        return file.read().strip()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def has_swap() -> bool:
    """Whether this machine writes memory to a disk, or to memory that is packed, when it has to."""
    try:
        with open(SWAPS) as file:
            return len(file.readlines()) > 1
    except OSError:
        return False
