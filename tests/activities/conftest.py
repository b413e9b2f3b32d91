"""A real SSH server, connections to it, and an agent of its own for each test."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from activities.lifecycles.kinds import KINDS
from activities.outbox.workflow_starts import register
from activities.transport.endpoint import NodeEndpoint
from activities.transport.ssh import NodeConnections
from tests.activities.agent.agent_process import LocalAgent, removed
from tests.activities.hostile_sites import hostile
from tests.activities.providers.fake_driver import RentedDriver
from tests.activities.providers.kinds import kind_with
from tests.activities.sites import site
from tests.activities.sshd import SSHD, Sshd
from tests.activities.waiting import wait_for

__all__ = ["agent", "connections", "endpoint", "hostile", "node_root", "site", "sshd"]

register(KINDS)


@pytest.fixture
def driver() -> Iterator[RentedDriver]:
    """What drives the machines of every provider of the kind gcp."""
    found = RentedDriver()
    with kind_with(driver=lambda _: found):
        yield found


@pytest.fixture
def node_root() -> Iterator[Path]:
    """A folder that every user may pass through, as /var/lib is."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-node-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder / "root"
    wait_for(lambda: removed(folder), f"{folder} is gone")


@pytest.fixture
def agent(node_root: Path) -> Iterator[LocalAgent]:
    found = LocalAgent(node_root)
    yield found
    found.end_all()


@pytest.fixture
def staged_before(agent: LocalAgent) -> None:
    """The agent has its interpreter and the environment of runs without packages."""
    agent.has_staged_before()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    if not Path(SSHD).exists():
        pytest.fail("no sshd: make setup-tests installs openssh-server")
    server = Sshd(tmp_path / "sshd")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def endpoint(sshd: Sshd, node_root: Path) -> Iterator[NodeEndpoint]:
    yield sshd.endpoint(node_root)
    for archive in node_root.glob("agent/*.pyz"):
        local = LocalAgent(node_root.parent / "cleaning")
        local.root, local.archive = node_root, archive
        local.end_all()


@pytest.fixture
async def connections(sshd: Sshd) -> AsyncIterator[NodeConnections]:
    pool = NodeConnections(sshd.client_key)
    yield pool
    await pool.close()
