"""Logging in to a machine of a double, with the host key that it is to have."""

from __future__ import annotations

import base64

import asyncssh

SSH_PORT = 22
KEY = asyncssh.generate_private_key("ssh-ed25519")
PUBLIC = KEY.export_public_key().decode().strip()
HOST_KEY = asyncssh.generate_private_key("ssh-ed25519")
HOST_KEY_LINE = " ".join(HOST_KEY.export_public_key().decode().split()[:2])
HOST_KEY_BASE64 = base64.b64encode(HOST_KEY.export_private_key()).decode()
"""As a renter hands it over in the environment of a machine."""


async def said(host: str, port: int, command: str, host_key: str = HOST_KEY_LINE) -> str:
    """What a command says over SSH."""
    place = host if port == SSH_PORT else f"[{host}]:{port}"
    known = asyncssh.import_known_hosts(f"{place} {host_key}\n")
    async with asyncssh.connect(
        host, port, username="root", client_keys=[KEY], known_hosts=known, config=None
    ) as connection:
        done = await connection.run(command, check=True)
        return str(done.stdout).strip()
