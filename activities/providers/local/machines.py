"""One local machine: what is in its folder, its process, and what is seen of it."""

import getpass
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from activities.providers.local.processes import send_signal
from activities.providers.local.records import MARK, NODE_ROOT, Asked, MachineFolder, write
from activities.secrets.machine_keys import (
    host_key_fingerprint,
    host_private_key,
)
from activities.secrets.region_keys import region_public_key
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState

HOST = "127.0.0.1"
ZONE = "here"
SERVER = "activities.providers.local.server"
CHECKOUT = Path(__file__).parents[3]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONNECT_LIMIT_S = 2.0


def furnish(machine: MachineFolder, asked: Asked, region_id: str) -> None:
    """Write the keys and the address of the SSH server, as `workers/embedded_sshd.py` reads them.

    It lets in the key of the region alone, with a host key that is of this machine alone.
    """
    fingerprint = host_key_fingerprint(asked.machine_name)
    write(machine.sshd / "host_key", host_private_key(asked.machine_name).decode())
    write(machine.sshd / "authorized_keys", f"{region_public_key(region_id)}\n")
    described = {
        "folder": str(machine.sshd),
        "host": asked.host,
        "port": asked.port,
        "user": asked.user,
        "minion_id": fingerprint,
        "host_public_key": "",
    }
    write(machine.sshd / "machine.json", json.dumps(described))


def shown(machine: MachineFolder, asked: Asked) -> MachineObservation:
    """The observation of a machine; its host key is the one that the platform has given it."""
    server = machine.server
    seen = MachineObservation(
        state=MachineState.MAKING,
        zone=ZONE,
        microcredits_per_hour=0,
        began_at=asked.began_at,
        offer_label=asked.offer_label,
        reason="its process begins",
    )
    if server is None:
        return seen
    seen = seen.model_copy(update={"provider_machine_id": f"{server.pid}-{server.start_ticks}"})
    if not server.is_alive:
        why = {"state": MachineState.STOPPED, "reason": "its process on this host has ended"}
        return seen.model_copy(update=why)
    if not _answers(asked):
        return seen.model_copy(update={"reason": "its SSH server does not answer yet"})
    return seen.model_copy(
        update={
            "state": MachineState.RUNNING,
            "reason": "",
            "host": asked.host,
            "port": asked.port,
            "user": asked.user,
            "minion_id": host_key_fingerprint(asked.machine_name),
        }
    )


def start(machine: MachineFolder) -> None:
    """Start the process of a machine, which goes on without this one."""
    with (machine.path / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", SERVER, str(machine.path)],
            cwd=CHECKOUT,
            env=_environment(machine),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()


def end(machine: MachineFolder) -> None:
    """Ask the process of a machine to end it."""
    if (server := machine.server) is not None:
        send_signal(server.pid, server.start_ticks, signal.SIGTERM)


def free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(asked: Asked) -> bool:
    try:
        with socket.create_connection((asked.host, asked.port), timeout=CONNECT_LIMIT_S):
            return True
    except OSError:
        return False


def _environment(machine: MachineFolder) -> dict[str, str]:
    """The environment of a machine, in which nothing is of the process that makes it."""
    return {
        "HOME": str(machine.home),
        "USER": getpass.getuser(),
        "LOGNAME": getpass.getuser(),
        "SHELL": pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh",
        "PATH": PATH,
        "LANG": "C.UTF-8",
        NODE_ROOT: str(machine.node),
        MARK: str(machine.path),
    }
