"""An installation whose rows are in a real database, and whose Temporal forgets everything."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from sqlmodel import Session
from temporalio.client import Client, WorkflowHandle

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.lifecycles.record import record
from activities.lifecycles.restarts import restart_of
from tests.activities.rows import add_job, add_node, add_payer, add_region
from tests.waiting import eventually
from tests.workflows.cloud_projects import STORAGE_CLAIM
from tests.workflows.conftest import Stage, at_work, end_open_workflows
from tests.workflows.fake_world import REGION, World
from tests.workflows.jobs.test_races import Gate
from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.jobs import Exit, NodeReachable
from workflows.contracts.lifecycles import Record, Recorded, noun_of
from workflows.contracts.statuses import RunState

JOB, NODE, LEASE, PROVIDER = "job-1", "nod-1", "lea-1", "prv-1"
CLOUD_REGION = "us-central1"
REACHABLE = NodeReachable(node_id=NODE)
Step = Callable[["Installation"], Awaitable[None]]


@dataclass
class RowWorld(World):
    """The tests' world, whose lifecycle rows are in a real database as well."""

    def record(self, step: Record) -> Recorded:
        record(step)
        return super().record(step)


@dataclass
class Installation:
    """The rows of one resource of each kind, their world, and the workflows that serve them."""

    stage: Stage
    database: Database
    started: set[str] = field(default_factory=set)
    """The ids of its workflows; Temporal's lists follow later."""
    held: dict[str, Gate] = field(default_factory=dict)
    """The gates at which calls of workflows are held, by effect."""

    @property
    def world(self) -> World:
        return self.stage.world

    async def start(
        self, resource_id: str, *, ended_by_person: bool = False, **changes: Any
    ) -> WorkflowHandle[Any, Any]:
        """The workflow of a row, as it is started or restarted from it."""
        with self.database.write() as session:
            row = self.row(session, resource_id)
            row.sqlmodel_update(changes)
            session.add(row)
            session.flush()
            start = restart_of(session, row, ended_by_person=ended_by_person)
        self.world.holders[NODE] = f"node/{NODE}"
        self.started.add(start.id)
        return await self.stage.client.start_workflow(
            start.workflow, start.argument, id=start.id, task_queue=queues.MAIN,
            search_attributes=start.search_attributes,
        )  # fmt: skip

    def row(self, session: Session, resource_id: str) -> Any:
        table: Any = KIND_BY_NOUN[noun_of(resource_id).name].table
        return session.get_one(table, resource_id)

    async def tell(self, resource_id: str, signal: str, *arguments: Contract) -> None:
        handle = self.stage.client.get_workflow_handle(f"{noun_of(resource_id).name}/{resource_id}")
        await handle.signal(signal, args=list(arguments))

    async def reaches(self, resource_id: str, status: str) -> None:
        await eventually(
            lambda: self.world.statuses[resource_id][-1:] == [status], f"{resource_id} is {status}"
        )

    async def want(self, status: str) -> None:
        """A person wants this status of the node."""
        self.world.want(NODE, status)
        await self.tell(NODE, "wake")

    def status(self, resource_id: str) -> str:
        with self.database.read() as session:
            return str(self.row(session, resource_id).status)

    async def forget(self) -> None:
        """Temporal loses every workflow; what runs elsewhere goes on."""
        await end_open_workflows(self.stage.client, *self.started)

    async def let_go(self) -> None:
        """Let the held calls go on, and wait for their end, for which nobody else may wait."""
        for gate in self.held.values():
            gate.open()
        await eventually(
            lambda: not any(self.world.under_way[effect] for effect in self.held), "they have ended"
        )

    def place(self, attempt: int = 1) -> None:
        self.world.place(JOB, attempt)

    async def run_to(self, status: str) -> None:
        """The job comes to this status."""
        await self.reaches(JOB, "waiting_for_resources")
        self.place()
        await self.tell(JOB, "placed", self.world.held[JOB])
        await self.reaches(JOB, status)

    def end_command(self, code: int = 0, elapsed_s: float = 12.0) -> None:
        """The job's command ends on its node, and nobody is told."""
        run = self.world.machines[NODE].runs[f"{JOB}-0-1"]
        run.state, run.elapsed_s = RunState.EXITED, elapsed_s
        run.exit = Exit(exit_code=code, elapsed_s=elapsed_s)


@pytest_asyncio.fixture
async def installation(
    temporal_server: Client, migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    world = RowWorld(client=temporal_server)
    ids = {"prv": PROVIDER, "reg": REGION, "nod": NODE, "job": JOB}
    monkeypatch.setattr("tests.activities.rows.new_id", lambda of: ids.get(of) or new_id(of))
    with migrated.write() as session:
        account = add_payer(session)
        region = add_region(session, account)
        provider = session.get_one(tables.Provider, region.provider_id)
        node = add_node(session, region)
        job = add_job(session, account)
        lease = tables.Lease(
            id=LEASE, account_id=account.id, name=f"baseload-{LEASE}", region_id=REGION,
            provider_id=PROVIDER, provider_kind="gcp", holder_id=NODE, status="reserved",
            offers=[one.model_dump(mode="json") for one in STORAGE_CLAIM.offers],
            spec=STORAGE_CLAIM.spec.model_dump(mode="json"),
            deadline=datetime.now(UTC) + timedelta(hours=1),
            created_at=job.created_at, updated_at=job.updated_at,
        )  # fmt: skip
        node.sqlmodel_update({"host": "10.0.0.1", "minion_id": "SHA256:key"})
        region.relaxed_requirements = ["all"]
        for row in (provider, region, node, job):
            row.status = "new"
        session.add(lease)
    async with at_work(temporal_server, world):
        installation = Installation(Stage(temporal_server, world), migrated)
        yield installation
        await installation.forget()
        await installation.let_go()  # A test that fails may have left calls at their gates.


async def nothing(_: Installation) -> None:
    """Nothing happens meanwhile."""
