"""A node behind a real sshd, and everything that a site's activities find in their process."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import PayloadConverter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.secrets.region_keys import region_key_line
from activities.settings import settings
from activities.site.node_client import close_connections
from activities.site.run_names import RunNames
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.logs import LogStore, log_store
from activities.storage.run_specs import Isolation
from activities.temporal import client
from tests.activities.agent.agent_process import LocalAgent
from tests.activities.sshd import Sshd
from workflows.contracts.base import Contract
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import NodeAddress

Asked = TypeVar("Asked", bound=Contract)
Answered = TypeVar("Answered", bound=Contract)
REGION = "reg-1"


def isolated(node: NodeAddress) -> Isolation:
    """What is sealed of a node whose runs have its login user, whoever runs these tests."""
    return Isolation(node_id=node.node_id, minion_id=node.minion_id, login_user=node.user)


@dataclass
class Jobs:
    """Stands in for the Temporal client: keeps every signal, as a server would."""

    signals: list[tuple[str, str, Any]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    failures: int = 0
    """How many of the next signals get lost."""

    def get_workflow_handle(self, workflow_id: str) -> "Job":
        return Job(self, workflow_id)

    def of(self, workflow_id: str) -> list[tuple[str, Any]]:
        return [(name, argument) for job, name, argument in self.signals if job == workflow_id]


@dataclass
class Job:
    jobs: Jobs
    id: str

    async def signal(self, name: str, *, args: list[Any], rpc_timeout: timedelta) -> None:
        if self.id in self.jobs.gone:
            raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
        if self.jobs.failures:
            self.jobs.failures -= 1
            raise RPCError("unavailable", RPCStatusCode.UNAVAILABLE, b"")
        self.jobs.signals.append((self.id, name, args[0]))


@dataclass
class Site:
    """One node of a region, and the stores of its site."""

    node: NodeAddress
    agent: LocalAgent
    sshd: Sshd
    jobs: Jobs
    told: list[str] = field(default_factory=list)
    """Everything that has passed through Temporal: what was asked, answered, heartbeats."""

    @property
    def logs(self) -> LogStore:
        return log_store(settings().storage)

    @property
    def blobs(self) -> BlobStore:
        return blob_store(settings().storage)

    def names(self, *run_ids: str) -> tuple[str, ...]:
        """The names of runs on the node."""
        return tuple(self.agent.named(run_id) for run_id in run_ids)

    async def do(
        self, effect: Callable[[Asked], Coroutine[Any, Any, Answered]], command: Asked
    ) -> Answered:
        """Run an activity as a worker would, its argument and answer through payloads."""
        answer = await self._environment().run(effect, self.through(command))
        return self.through(answer)

    def begin(
        self, effect: Callable[[Asked], Coroutine[Any, Any, Answered]], command: Asked
    ) -> tuple[ActivityEnvironment, "asyncio.Task[Answered]"]:
        """Begin a long activity; the environment cancels it."""
        environment = self._environment()
        return environment, asyncio.ensure_future(environment.run(effect, command))

    def _environment(self) -> ActivityEnvironment:
        environment = ActivityEnvironment()
        environment.payload_converter = converter()
        environment.on_heartbeat = lambda *details: self.told.append(repr(details))
        return environment

    def through(self, value: Asked) -> Asked:
        """As it comes out of Temporal's history on the other side."""
        payloads = converter().to_payloads([value])
        self.told += [payload.data.decode() for payload in payloads]
        found: Asked = converter().from_payloads(payloads, [type(value)])[0]
        return found


def join(root: Path, authorized_keys: Path, region_id: str = REGION) -> None:
    """What join.sh writes on a machine that joins the region."""
    file = root / "join"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"http://127.0.0.1:8700 {region_id} join_{region_id}_x {authorized_keys}\n")
    file.chmod(0o600)


def converter() -> PayloadConverter:
    return pydantic_data_converter.payload_converter


def name_on(node: NodeAddress, run_id: str) -> str:
    """The name of a run on a node; what is no run id stays as it is."""
    try:
        parse_run_id(run_id)
    except ValueError:
        return run_id
    return RunNames(node).of(run_id)


@pytest.fixture
async def site(
    sshd: Sshd, agent: LocalAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    """Settings of a worker of its own: home, platform key, store."""
    monkeypatch.setenv("BASELOAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BASELOAD_SSH_KEY", str(sshd.client_key))
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "ab" * 32)
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.1/32")
    settings.cache_clear()
    found = sshd.endpoint(agent.root)
    agent.has_staged_before(next(filter(None, map(shutil.which, found.pythons))))
    keys = sshd.folder / "authorized_keys"
    keys.write_text(f"{region_key_line(REGION)}\n")
    join(agent.root, keys)
    jobs = Jobs()
    monkeypatch.setattr(client, "_client", jobs)
    node = NodeAddress(
        node_id="nod-1",
        region_id=REGION,
        host=found.host,
        port=found.port,
        user=found.user,
        minion_id=found.minion_id,
        root=found.root,
    )
    agent.named = partial(name_on, node)
    yield Site(
        node=node,
        agent=agent,
        sshd=sshd,
        jobs=jobs,
    )
    await close_connections()
    settings.cache_clear()
