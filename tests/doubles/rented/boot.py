"""What stands behind a rented machine: pluggable, so that a test chooses how much it needs."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import asyncssh

_KEY = re.compile(
    r"-----BEGIN OPENSSH PRIVATE KEY-----.+?-----END OPENSSH PRIVATE KEY-----", re.DOTALL
)
_BASE64 = re.compile(r"[A-Za-z0-9+/=]{200,}")


@dataclass(frozen=True)
class Address:
    """Where a machine answers to SSH."""

    host: str
    port: int


@dataclass
class Machine:
    """A rented machine as its container sees itself.

    script: what runs at its start (RunPod's `args`, Vast.ai's `onstart`); let_in: public keys that
    may log in as root; gpus: the name that nvidia-smi shows, the count and the MiB of each;
    own_host_key: its image starts an sshd of its own before the script; host: the address at
    which it answers, any if empty.
    """

    id: str
    name: str
    image: str
    env: Mapping[str, str]
    script: str = ""
    let_in: list[str] = field(default_factory=list)
    gpus: tuple[str, int, int] = ("", 0, 0)
    own_host_key: bool = False
    host: str = ""

    def given_host_key(self) -> asyncssh.SSHKey | None:
        """The host key that the renter has put into its environment or its script."""
        if self.own_host_key:
            return None
        for text in (*self.env.values(), self.script):
            found = _key_in(text)
            if found is not None:
                return found
        return None

    def lets_in(self, key: asyncssh.SSHKey) -> bool:
        shown = key.export_public_key().decode().split()[:2]
        return any(line.split()[:2] == shown for line in self.let_in)


class Boot(Protocol):
    """How machines come to be. Calls for one machine never overlap."""

    def start(self, machine: Machine) -> Address:
        """Run it until its port answers."""
        ...

    def public_key(self, machine_id: str) -> str:
        """The host key of a machine that runs or has run: type and base64."""
        ...

    def end(self, machine_id: str, *, keeps_disk: bool = False) -> None:
        """End everything in it at once, as if the plug were pulled; silent when it is off."""
        ...

    def close(self) -> None:
        """End every machine there is."""
        ...


class NoBoot:
    """Machines that exist in answers only: for tests of placement and money."""

    def __init__(self) -> None:
        self._count = 0

    def start(self, machine: Machine) -> Address:
        self._count += 1
        host = machine.host or f"127.81.{self._count >> 8 & 255}.{self._count & 255}"
        return Address(host, 10000 + self._count)

    def public_key(self, machine_id: str) -> str:
        return f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{machine_id}"

    def end(self, machine_id: str, *, keeps_disk: bool = False) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing runs."""


def _key_in(text: str) -> asyncssh.SSHKey | None:
    """A private key in plain text, with its line ends escaped, or in base64."""
    texts = [text, text.replace("\\n", "\n")]
    for run in _BASE64.findall(text):
        try:
            texts.append(base64.b64decode(run, validate=True).decode())
        except (binascii.Error, UnicodeDecodeError):
            continue
    for each in texts:
        found = _KEY.search(each)
        if found is not None:
            return asyncssh.import_private_key(found.group() + "\n")
    return None
