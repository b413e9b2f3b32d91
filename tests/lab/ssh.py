"""Reaching a machine of the lab over SSH as its owner would; not the product's transport."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import asyncssh

from tests.lab.machine import Machine
from tests.lab.machines import Lab


def known_hosts(machine: Machine, public_key: str | None = None) -> asyncssh.SSHKnownHosts:
    """The machine's present host key, or another one, pinned to its address."""
    return asyncssh.import_known_hosts(
        f"{machine.address} {public_key or machine.host_public_key}\n"
    )


def connect(
    lab: Lab, machine: Machine, **options: object
) -> AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    """Connect as root with the lab's key; `options` are asyncssh's, and win."""
    chosen: dict[str, object] = {
        "username": "root",
        "client_keys": [str(lab.client_key)],
        "known_hosts": known_hosts(machine),
        "config": None,
        "agent_path": None,
        "connect_timeout": 5,
        "keepalive_interval": 0.5,
        "keepalive_count_max": 2,
    }
    return asyncssh.connect(machine.address, machine.port, **{**chosen, **options})
