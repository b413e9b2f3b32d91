"""The lab as fixtures. Another folder's conftest.py imports them by name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import count
from typing import Protocol

import pytest

from tests.lab.file_servers import NfsServer, SmbServer, missing_programs
from tests.lab.host import obstacle
from tests.lab.machine import Kind, Machine, Parts
from tests.lab.machines import Lab
from tests.lab.network import Network


class BootMachine(Protocol):
    def __call__(self, kind: Kind = "sshd", parts: Parts | None = None) -> Machine:
        """Boot a new machine, which is discarded after the test.

        parts: what it is built with beside the host's hardware, such as `Jetson("Orin NX")`.
        """


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One network for the session. Skips where the host cannot; with CI=true it fails."""
    reason = obstacle()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    with Lab() as running:
        yield running


_numbers = count()


@pytest.fixture
def boot_machine(lab: Lab) -> Iterator[BootMachine]:
    """A factory of machines of the test's own, `m0`, `m1`, …"""
    made: list[str] = []

    def boot(kind: Kind = "sshd", parts: Parts | None = None) -> Machine:
        machine = lab.add(f"m{next(_numbers)}", kind, parts)
        made.append(machine.name)
        return machine

    yield boot
    for name in made:
        lab.remove(name)


@pytest.fixture(scope="module")
def nfs_server() -> Iterator[NfsServer]:
    """A started NFS server, which is the module's own."""
    with lab_network() as network, NfsServer(network, "nfs0", 100) as server:
        server.start()
        yield server


@pytest.fixture(scope="module")
def smb_server() -> Iterator[SmbServer]:
    """A started SMB server, which is the module's own."""
    with lab_network() as network, SmbServer(network, "smb0", 101) as server:
        server.start()
        yield server


@contextlib.contextmanager
def lab_network() -> Iterator[Network]:
    """A network for file servers. Skips where the host cannot; with CI=true it fails."""
    missing = missing_programs()
    reason = obstacle() or (missing and f"run `apt-get install {' '.join(missing)}`") or None
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    network = Network()
    try:
        yield network
    finally:
        network.close()
