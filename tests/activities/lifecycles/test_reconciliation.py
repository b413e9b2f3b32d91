"""The sweep: what says it is alive and has no workflow is started again or settled."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import TerminateWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.lifecycles.lost_workflows import HISTORY_SERVICE, describe, running_workflows
from activities.lifecycles.reconciliation import Suspicion, restart_lost_workflows
from activities.outbox.relay import relay_outbox
from activities.temporal.client import set_client
from tests.activities.nodes.test_running_jobs import start_idle
from tests.activities.outbox.test_relay import ask, signals_of, status_of, undelivered
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from tests.activities.temporal.stuck import TRIES, break_workflow
from tests.waiting import eventually
from tests.workflows.conftest import end_open_workflows
from tests.workflows.fake_world import node_address
from workflows.contracts.billing import BillingRequest
from workflows.contracts.events import PlatformEvent
from workflows.contracts.jobs import JobRequest, WorkerAssignment, WorkerProgress
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.providers import ProviderRequest
from workflows.contracts.regions import RegionRequest
from workflows.contracts.removals import Removal, RemovalProgress
from workflows.contracts.statuses import NodeStatus, RegionStatus, WorkerStatus
from workflows.effects.reconciliation import (
    LostWorkflowsRestarted,
    RelayOutbox,
    RestartLostWorkflows,
)

RUNNING = WorkflowExecutionStatus.RUNNING
CANCEL = {"reason": "not wanted any more"}


class World:
    """A node that holds a running job; only their rows are there, no workflow is."""

    def __init__(self, database: Database, client: Client) -> None:
        self.database, self.client = database, client
        self.began_at = datetime.now(UTC) - timedelta(seconds=1)
        with database.write() as session:
            self.account = add_payer(session)
            self.region = add_region(session, self.account)
            self.node = add_node(session, self.region)
            self.job = add_job(session, self.account)
            allocate(session, self.job, self.node, gpu=0)
            self.provider = session.get_one(tables.Provider, self.region.provider_id)
        self.set(self.provider, sequence=3)
        self.set(self.region, sequence=4)
        self.set(self.node, sequence=7)
        self.set(self.job, sequence=5, status="running")

    def set(self, row: tables.LifecycleRow, **values: Any) -> None:
        with self.database.write() as session:
            session.get_one(type(row), row.id).sqlmodel_update(values)

    def read(self, row: tables.LifecycleRow) -> Any:
        with self.database.read() as session:
            return session.get_one(type(row), row.id)

    async def start_all(self) -> None:
        for noun, row in (
            ("provider", self.provider),
            ("region", self.region),
            ("node", self.node),
            ("job", self.job),
        ):
            await start_idle(self.client, f"{noun}/{row.id}")

    async def start_as(self, workflow_id: str, status: str) -> None:
        """A workflow that shows this status."""
        pairs = [SearchAttributePair(SearchAttributeKey.for_keyword("ResourceStatus"), status)]
        await self.client.start_workflow(
            "Idle",
            id=workflow_id,
            task_queue="nobody",
            search_attributes=TypedSearchAttributes(pairs),
        )

    async def terminate(self, workflow_id: str, identity: str) -> None:
        request = TerminateWorkflowExecutionRequest(
            namespace=self.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
            identity=identity,
        )
        await self.client.workflow_service.terminate_workflow_execution(request)

    async def sweep(self) -> LostWorkflowsRestarted:
        """One reconciliation, as soon as Temporal lists what it knows."""
        await eventually(self._lists_what_runs, "Temporal lists what runs")
        swept = await ActivityEnvironment().run(
            restart_lost_workflows, RestartLostWorkflows(page_size=2)
        )
        assert isinstance(swept, LostWorkflowsRestarted)
        return swept

    async def _lists_what_runs(self) -> bool:
        """Of this world: earlier tests have left theirs, and each would be asked for again."""
        listed = await running_workflows(self.client)
        of_this_world = f"StartTime >= '{self.began_at.isoformat()}'"
        found = [each.id async for each in self.client.list_workflows(of_this_world)]
        known = {workflow_id: await describe(workflow_id) for workflow_id in found}
        mine = {workflow_id: it for workflow_id, it in listed.items() if workflow_id in known}
        return mine == {workflow_id: it for workflow_id, it in known.items() if it.runs}

    async def argument_of(self, workflow_id: str, shape: Any) -> Any:
        """What the workflow was started with."""
        history = self.client.get_workflow_handle(workflow_id).fetch_history_events()
        async for event in history:
            sent = event.workflow_execution_started_event_attributes.input
            return (await self.client.data_converter.decode(sent.payloads, [shape]))[0]
        raise AssertionError(f"{workflow_id} has no history")


@pytest.fixture
async def world(migrated: Database, temporal_server: Client) -> AsyncIterator[World]:
    set_client(temporal_server)
    yield World(migrated, temporal_server)
    await end_open_workflows(temporal_server)  # else each sweep of a later test looks at them


async def test_what_has_its_workflow_is_left_alone(world: World) -> None:
    await world.start_all()
    assert await world.sweep() == LostWorkflowsRestarted()
    assert world.read(world.job).status == "running"


@pytest.mark.parametrize("status", ["new", "running"])
async def test_a_job_that_was_terminated_is_started_again_to_end(world: World, status: str) -> None:
    world.set(world.job, status=status)  # A new one that has taken steps waits for data.
    await world.start_all()
    await world.client.get_workflow_handle(f"job/{world.job.id}").terminate()
    assert (await world.sweep()).restarted == (world.job.id,)
    request = await world.argument_of(f"job/{world.job.id}", JobRequest)
    assert request.ending is not None
    assert request.ending.code == "terminated"
    assert (request.resumed_from.sequence, request.resumed_from.status) == (5, status)
    assert await world.sweep() == LostWorkflowsRestarted()


async def test_a_job_that_temporal_does_not_know_is_adopted_and_not_ended(world: World) -> None:
    with world.database.write() as session:
        account = session.get_one(tables.Account, world.account.id)
        waiting = add_job(session, account)
    world.set(waiting, sequence=2, status="waiting_for_resources")
    assert {world.job.id, waiting.id} <= set((await world.sweep()).restarted)
    for job, status in ((world.job, "running"), (waiting, "waiting_for_resources")):
        request = await world.argument_of(f"job/{job.id}", JobRequest)
        assert request.ending is None
        assert request.resumed_from is not None
        assert (request.resumed_from.status, request.resumed_from.is_adopted) == (status, True)


async def test_a_job_that_the_server_has_terminated_is_adopted(world: World) -> None:
    await world.start_all()
    await world.terminate(f"job/{world.job.id}", identity=HISTORY_SERVICE)
    assert (await world.sweep()).restarted == (world.job.id,)
    request = await world.argument_of(f"job/{world.job.id}", JobRequest)
    assert request.ending is None


async def test_many_lost_workflows_are_nobodys_assignment_and_are_said_in_one_event(
    world: World,
) -> None:
    with world.database.write() as session:
        account = session.get_one(tables.Account, world.account.id)
        account.is_administrator = True
        session.add(account)
        jobs = [add_job(session, account) for _ in range(12)]
    for job in jobs:
        world.set(job, sequence=2, status="running")
    await start_idle(world.client, f"job/{jobs[0].id}")
    await world.client.get_workflow_handle(f"job/{jobs[0].id}").terminate("by a person")
    assert len((await world.sweep()).restarted) == 16
    request = await world.argument_of(f"job/{jobs[0].id}", JobRequest)
    assert request.ending is None
    assert (await world.sweep()).restarted == ()
    with world.database.read() as session:
        query = select(tables.EventRow).where(tables.EventRow.type == PlatformEvent.WORKFLOWS_LOST)
        (event,) = session.exec(query).all()
    assert event.account_id == world.account.id
    assert event.message.startswith("Temporal does not know 16 of 16 workflows")


async def test_a_workflow_that_is_older_than_its_row_is_replaced_by_one_from_the_row(
    world: World,
) -> None:
    await world.start_all()
    ended = world.region
    world.set(ended, status="archived")
    for row, noun in ((world.node, "node"), (ended, "region")):
        await world.client.get_workflow_handle(f"{noun}/{row.id}").terminate()
        await world.start_as(f"{noun}/{row.id}", "healthy")
    assert (await world.sweep()).restarted == (world.node.id,)
    node = await world.argument_of(f"node/{world.node.id}", NodeRequest)
    assert node.resumed_from is not None
    status = await status_of(world.client, f"region/{ended.id}")
    assert status is WorkflowExecutionStatus.TERMINATED
    assert (await world.sweep()).restarted == ()


async def test_a_stuck_workflow_is_replaced_once_another_one_is_found_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.temporal.stuck_workflows.STUCK_ATTEMPTS", TRIES)
    monkeypatch.setattr("activities.lifecycles.reconciliation._suspicion", Suspicion())
    for row, noun in ((world.region, "region"), (world.node, "node")):
        await start_idle(world.client, f"{noun}/{row.id}")
    stuck = f"job/{world.job.id}"
    await world.client.start_workflow("JobLifecycle", id=stuck, task_queue="broken")
    await break_workflow(world.client, stuck, "broken")

    async def all_run() -> bool:
        running = {f"region/{world.region.id}", f"node/{world.node.id}", stuck}
        return running <= set(await running_workflows(world.client))

    await eventually(all_run, "Temporal lists what runs")
    command = RestartLostWorkflows(page_size=2)
    swept = await ActivityEnvironment().run(restart_lost_workflows, command)
    assert set(swept.restarted) == {world.provider.id, world.job.id}
    request = await world.argument_of(stuck, JobRequest)
    assert request.resumed_from is not None
    assert request.resumed_from.status == "running"


async def test_a_signal_that_the_lost_workflow_has_not_acted_upon_is_delivered_again(
    world: World,
) -> None:
    heard, unheard = (ask(world.database, world.job.id, "cancel", CANCEL) for _ in range(2))
    with world.database.write() as session:
        session.get_one(tables.OutboxRow, heard).delivered_at = NOW - timedelta(seconds=1)
        session.get_one(tables.OutboxRow, unheard).delivered_at = NOW + timedelta(seconds=1)
    await world.sweep()  # It relays what it delivers again, beside its answer.
    await eventually(lambda: undelivered(world.database) == [], "all signals are delivered")
    assert await signals_of(world.client, f"job/{world.job.id}") == ["cancel"]


async def test_a_signal_is_delivered_again_although_the_process_is_killed_right_after_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unheard = ask(world.database, world.job.id, "cancel", CANCEL)
    with world.database.write() as session:
        session.get_one(tables.OutboxRow, unheard).delivered_at = NOW + timedelta(seconds=1)
    start = world.client.start_workflow

    async def kill_after(*asked: Any, **options: Any) -> None:
        await start(*asked, **options)
        if options["id"] == f"job/{world.job.id}":
            raise asyncio.CancelledError

    monkeypatch.setattr(world.client, "start_workflow", kill_after)
    with pytest.raises(asyncio.CancelledError):
        await world.sweep()
    assert undelivered(world.database) == [unheard]


async def test_a_row_that_cannot_be_read_keeps_nobody_else_from_being_started_again(
    world: World,
) -> None:
    world.set(world.job, spec={"unknown": "to this version"})
    lost = (world.provider, world.region, world.node)
    assert set((await world.sweep()).restarted) == {row.id for row in lost}


async def test_a_job_that_was_terminated_while_its_node_is_away_knows_so(world: World) -> None:
    world.set(world.node, status="offline")
    await world.sweep()
    request = await world.argument_of(f"job/{world.job.id}", JobRequest)
    assert request.resumed_from is not None
    assert request.resumed_from.lost == {world.node.id: world.read(world.node).updated_at}


def metered(job_id: str, started_at: datetime) -> WorkerProgress:
    """The worker of a running job."""
    return WorkerProgress(
        index=0,
        status=WorkerStatus.RUNNING,
        assignment=WorkerAssignment(worker=0, node=node_address()),
        run_id=f"{job_id}-0-1",
        started_at=started_at,
    )


async def test_the_bill_of_a_running_job_that_was_terminated_is_begun_again(world: World) -> None:
    started_at = NOW - timedelta(hours=3)
    carry = metered(world.job.id, started_at)
    world.set(world.job, workers=[carry.model_dump(mode="json")])
    await world.start_all()
    bill = f"job/{world.job.id}/billing"
    await start_idle(world.client, bill)
    assert await world.sweep() == LostWorkflowsRestarted()
    await world.client.get_workflow_handle(bill).terminate()
    assert (await world.sweep()).restarted == (bill,)
    assert await status_of(world.client, bill) is RUNNING
    request = await world.argument_of(bill, BillingRequest)
    assert (request.attempt, request.started_at) == (1, started_at)
    assert [worker.run_id for worker in request.workers] == [carry.run_id]
    assert await world.sweep() == LostWorkflowsRestarted()


async def test_stuck_bills_are_ended_and_that_of_a_running_job_is_begun_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.temporal.stuck_workflows.STUCK_ATTEMPTS", TRIES)
    suspicion = Suspicion()
    suspicion.begin()
    monkeypatch.setattr("activities.lifecycles.reconciliation._suspicion", suspicion)
    await world.start_all()
    world.set(world.job, workers=[metered(world.job.id, NOW).model_dump(mode="json")])
    bill, of_ended = f"job/{world.job.id}/billing", "job/job-that-has-ended/billing"
    for each in (bill, of_ended):
        await world.client.start_workflow("JobBilling", id=each, task_queue="broken")
        await break_workflow(world.client, each, "broken")

    async def all_are_listed() -> bool:
        return {bill, of_ended} <= set(await running_workflows(world.client))

    await eventually(all_are_listed, "Temporal lists them")
    command = RestartLostWorkflows(page_size=2)
    swept = await ActivityEnvironment().run(restart_lost_workflows, command)
    assert swept.restarted == (bill,)
    assert (await world.argument_of(bill, BillingRequest)).started_at == NOW
    status = await status_of(world.client, of_ended)
    assert status is WorkflowExecutionStatus.TERMINATED


async def test_a_stopped_service_that_was_terminated_rests_on(world: World) -> None:
    await world.start_all()
    world.set(world.job, status="stopped")
    await world.client.get_workflow_handle(f"job/{world.job.id}").terminate()
    assert (await world.sweep()).restarted == (world.job.id,)
    request = await world.argument_of(f"job/{world.job.id}", JobRequest)
    assert request.ending is None
    assert request.resumed_from is not None
    assert request.resumed_from.status == "stopped"


async def test_providers_regions_and_nodes_are_started_again_where_they_were(
    world: World,
) -> None:
    swept = await world.sweep()
    lost = (world.provider, world.region, world.node, world.job)
    assert set(swept.restarted) == {row.id for row in lost}
    region = await world.argument_of(f"region/{world.region.id}", RegionRequest)
    assert (region.sequence, region.resumed_status) == (4, RegionStatus.HEALTHY)
    node = await world.argument_of(f"node/{world.node.id}", NodeRequest)
    assert node.resumed_from is not None
    assert (node.resumed_from.sequence, node.resumed_from.status) == (7, NodeStatus.ACTIVE)
    assert (await world.sweep()).restarted == ()


async def test_a_node_lost_while_offline_comes_back_as_what_it_was(world: World) -> None:
    world.set(world.node, status="offline")
    with world.database.write() as session:
        for number, kind in enumerate(("node.maintenance", "node.active", "node.offline")):
            event = tables.EventRow(
                id=new_id("evt"),
                account_id=world.account.id,
                resource_id=world.node.id,
                sequence=number,
                type=kind,
                message=kind,
                details={},
                at=NOW,
            )
            session.add(event)
            session.flush()
    await world.sweep()
    node = await world.argument_of(f"node/{world.node.id}", NodeRequest)
    assert node.resumed_from is not None
    assert (node.resumed_from.status, node.resumed_from.resume_status) == (
        NodeStatus.OFFLINE,
        NodeStatus.ACTIVE,
    )


async def test_an_onboarding_that_was_lost_begins_anew_with_later_steps(world: World) -> None:
    world.set(world.node, status="inspecting")
    await world.sweep()
    node = await world.argument_of(f"node/{world.node.id}", NodeRequest)
    assert node.resumed_from is not None
    assert (node.resumed_from.status, node.resumed_from.sequence) == (NodeStatus.INSPECTING, 7)


async def test_a_removal_that_was_lost_goes_on_as_it_was_asked_for(world: World) -> None:
    asked = {
        "status": "removing",
        "removal_force": False,
        "removal_requested_by": "key-7",
        "removal_reschedules": True,
    }
    rows = (world.provider, world.region, world.node)
    for row in rows:
        world.set(row, **asked)
    await world.sweep()
    removal = Removal(force=False, requested_by="key-7", reschedules=True)
    region = await world.argument_of(f"region/{world.region.id}", RegionRequest)
    provider = await world.argument_of(f"provider/{world.provider.id}", ProviderRequest)
    node = await world.argument_of(f"node/{world.node.id}", NodeRequest)
    assert region.removal == provider.removal == RemovalProgress(removal=removal)
    assert node.resumed_from is not None
    assert node.resumed_from.removal == removal


async def test_what_has_ended_stays_ended(world: World) -> None:
    world.set(world.job, status="finished")
    world.set(world.node, status="archived")
    swept = await world.sweep()
    assert set(swept.restarted) == {world.provider.id, world.region.id}


async def test_a_row_that_is_being_written_to_is_left_alone(world: World) -> None:
    world.set(world.job, updated_at=NOW.replace(year=NOW.year + 50))
    assert world.job.id not in (await world.sweep()).restarted


async def test_a_job_lost_before_its_first_step_is_started_again(world: World) -> None:
    world.set(world.job, status="new", sequence=0)
    assert world.job.id in (await world.sweep()).restarted
    assert await status_of(world.client, f"job/{world.job.id}") is RUNNING


async def test_an_announcement_that_nobody_renews_is_forgotten_after_a_week(world: World) -> None:
    now = datetime.now(UTC)
    days = {"SHA256:old": 8, "SHA256:young": 6}
    with world.database.write() as session:
        for minion_id, age in days.items():
            session.add(
                tables.NodeAnnouncement(
                    minion_id=minion_id, host_public_key="key", host="10.0.0.9", port=22,
                    first_at=now - timedelta(days=30), last_at=now - timedelta(days=age),
                )
            )  # fmt: skip
    await world.sweep()
    with world.database.read() as session:
        left = session.exec(select(tables.NodeAnnouncement.minion_id)).all()
    assert left == ["SHA256:young"]


async def test_a_join_token_is_kept_while_its_machine_is_a_node(world: World) -> None:
    now = datetime.now(UTC)
    old, young = now - timedelta(days=8), now - timedelta(days=6)
    tokens: dict[str, dict[str, Any]] = {
        "unbound-old": {"expires_at": old},
        "unbound-young": {"expires_at": young},
        "bound-old": {"expires_at": old, "minion_id": "SHA256:gone", "last_at": old},
        "bound-young": {"expires_at": old, "minion_id": "SHA256:soon", "last_at": young},
        "of-a-node": {"expires_at": old, "minion_id": "SHA256:node", "last_at": old},
    }
    with world.database.write() as session:
        node = session.get_one(tables.Node, world.node.id)
        node.minion_id = "SHA256:node"
        for name, values in tokens.items():
            token = tables.JoinToken(
                id=name, account_id=node.account_id, region_id=node.region_id,
                secret_sha256=name, created_at=now - timedelta(days=30), **values,
            )  # fmt: skip
            session.add(token)
    await world.sweep()
    with world.database.read() as session:
        left = set(session.exec(select(tables.JoinToken.id)).all())
    assert left == {"unbound-young", "bound-young", "of-a-node"}


async def test_requests_are_delivered_once_they_are_old_enough(world: World) -> None:
    world.set(world.job, status="new", sequence=0)
    asked = ask(world.database, world.job.id, "start")
    with world.database.write() as session:
        row = session.get_one(tables.OutboxRow, asked)
        row.created_at = NOW.replace(year=NOW.year + 50)
    assert (await relay_outbox(RelayOutbox())).delivered == 0
    with world.database.write() as session:
        session.get_one(tables.OutboxRow, asked).created_at = NOW
    assert (await relay_outbox(RelayOutbox())).delivered == 1
    assert undelivered(world.database) == []
    assert await status_of(world.client, f"job/{world.job.id}") is RUNNING


async def test_more_is_said_while_more_waits(world: World) -> None:
    with world.database.write() as session:
        account = session.get_one(tables.Account, world.account.id)
        jobs = [add_job(session, account) for _ in range(3)]
    for job in jobs:
        ask(world.database, job.id, "start")
    assert (await relay_outbox(RelayOutbox(limit=2))).more
    assert not (await relay_outbox(RelayOutbox(limit=2))).more
