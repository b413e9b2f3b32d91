"""A real registry of images (Debian's docker-registry) that asks for a password."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.activities.waiting import wait_for

ADA, BOB = "ada:the-password-of-ada", "bob:the-password-of-bob"
HTPASSWD = """\
ada:$2y$05$3JDHfEyf6gz0yKWcrufkWu6z8VQ1R0alimUOgjLvlCl2eY2EoXxn6
bob:$2y$05$dAzY1ASdxa1QFufSUvtddezHmIXo32paVFOt9wrRlkYclkZIV5Z.e
"""
"""Both passwords, as `htpasswd -B` hashes them, as cheaply as it can."""
CONFIGURATION = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/images}}}}
http: {{addr: "{address}"}}
auth: {{htpasswd: {{realm: tests, path: {folder}/htpasswd}}}}
"""


@dataclass(frozen=True)
class PasswordRegistry:
    """The registry at a loopback port, over plain HTTP."""

    address: str

    @property
    def settings(self) -> str:
        """A registries.conf by which podman speaks plain HTTP with it."""
        return f'[[registry]]\nlocation = "{self.address}"\ninsecure = true\n'


@contextlib.contextmanager
def password_registry(folder: Path) -> Iterator[PasswordRegistry]:
    """The registry, for as long as it is held."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.fail("no docker-registry: make setup-tests installs it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folder.mkdir()
    (folder / "htpasswd").write_text(HTPASSWD)
    (folder / "registry.yml").write_text(CONFIGURATION.format(folder=folder, address=address))
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [program, "serve", str(folder / "registry.yml")], stdout=log, stderr=log
        )
    try:
        wait_for(lambda: _answers(address), "the registry")
        yield PasswordRegistry(address)
    finally:
        running.kill()
        running.wait()


def _answers(address: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://{address}/v2/", trust_env=False).status_code == 401
    return False
