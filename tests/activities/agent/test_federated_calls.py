"""The system calls that a federated run may not make, tried by a process that has closed them."""

import json
import subprocess
import sys

from activities.agent.federated import hardening

TRIED = """
import ctypes, json, platform, socket
from activities.agent.federated import hardening
hardening.harden()
libc = ctypes.CDLL(None, use_errno=True)
number = hardening.SOCKET[hardening.MACHINES[platform.machine()][1]]
found = {}
for family in (1, 2, 10, hardening.VSOCK, 1 << 32 | hardening.VSOCK):
    opened = libc.syscall(number, ctypes.c_ulong(family), socket.SOCK_STREAM, 0)
    found[family] = ctypes.get_errno() if opened < 0 else 0
found["ptrace"] = [libc.ptrace(0, 0, 0, 0), ctypes.get_errno()]
print(json.dumps(found))
"""


def test_no_socket_leads_past_the_network_of_a_federated_run() -> None:
    tried = subprocess.run([sys.executable, "-c", TRIED], check=True, capture_output=True)
    refused = {str(hardening.VSOCK): 1, str(1 << 32 | hardening.VSOCK): 1}
    allowed = dict.fromkeys(("1", "2", "10"), 0)
    assert json.loads(tried.stdout) == allowed | refused | {"ptrace": [-1, 1]}


def test_a_federated_container_has_no_such_socket_either() -> None:
    calls = hardening.profile()["syscalls"]
    assert isinstance(calls, list)
    family = {"index": 0, "value": 0xFFFFFFFF, "valueTwo": 40, "op": "SCMP_CMP_MASKED_EQ"}
    assert [each["args"] for each in calls if each["names"] == ["socket"]] == [[family]]
