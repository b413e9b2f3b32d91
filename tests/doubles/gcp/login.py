"""Logging in to a VM of the double, with the host key that it is known to have."""

from __future__ import annotations

from collections.abc import Mapping

import asyncssh

from tests.doubles.gcp.boot import Address

KEY = asyncssh.generate_private_key("ssh-ed25519")
PUBLIC = KEY.export_public_key().decode().strip()
LET_ROOT_IN = """#!/bin/sh
mkdir -p /root/.ssh /etc/ssh/sshd_config.d
printf '%s\\n' '{key}' > /root/.ssh/authorized_keys
printf 'PermitRootLogin prohibit-password\\n' > /etc/ssh/sshd_config.d/10-test.conf
systemctl reload ssh
echo let root in
"""


async def said(address: Address, host_keys: Mapping[str, str], command: str, user: str) -> str:
    """What a command says over SSH, with the host key that the VM's agent has published."""
    [(kind, key)] = host_keys.items()
    names = f"{address.host},[{address.host}]:{address.port}"
    known = asyncssh.import_known_hosts(f"{names} {kind} {key}\n")
    async with asyncssh.connect(
        address.host, address.port, username=user, client_keys=[KEY], known_hosts=known,
        config=None,
    ) as connection:  # fmt: skip
        done = await connection.run(command, check=True)
        return str(done.stdout).strip()
