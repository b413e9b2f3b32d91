"""What nodes, regions and providers ask of rows, and whom they tell."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment

from activities.billing.orphaned_runs import bill_orphaned_runs
from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.dependents import find_dependents, remove_dependents
from activities.nodes.addresses import find_peers
from activities.nodes.running_jobs import find_node_runs, notify_jobs
from activities.temporal.client import set_client
from tests.activities.outbox.test_relay import signals_of
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.jobs import EndRequest, MachineGone
from workflows.contracts.nodes import Hardware, NodeNotice, RunSeen
from workflows.contracts.removals import Removal
from workflows.effects.lifecycles import FindDependents, RemoveDependents
from workflows.effects.nodes import (
    BillOrphanedRuns,
    FindNodeRuns,
    FindPeers,
    NotifyJobs,
)


class World:
    """An account with two nodes; a job has a place on the first."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            self.account = add_payer(session)
            self.region = add_region(session, self.account)
            self.node = add_node(session, self.region, "n1")
            self.other = add_node(session, self.region, "n2")
            self.job = add_job(session, self.account)
            self.allocation = allocate(session, self.job, self.node, gpu=0)

    def set_node(self, **values: Any) -> None:
        with self.database.write() as session:
            session.get_one(tables.Node, self.other.id).sqlmodel_update(values)


@pytest.fixture
def world(migrated: Database) -> World:
    return World(migrated)


@pytest.mark.parametrize(
    ("change", "is_peer"),
    [({}, True), ({"status": "offline"}, False), ({"host": None}, False)],
)
def test_peers_are_the_regions_other_nodes_that_are_up(
    world: World, change: dict[str, Any], is_peer: bool
) -> None:
    world.set_node(**change)
    peers = find_peers(FindPeers(node_id=world.node.id, region_id=world.region.id)).peers
    assert [peer.node_id for peer in peers] == ([world.other.id] if is_peer else [])


def test_machines_of_strangers_are_not_shown_to_one_another(world: World) -> None:
    world.set_node()
    with world.database.write() as session:
        session.get_one(tables.Region, world.region.id).provider_kind = "vastai"
    assert find_peers(FindPeers(node_id=world.node.id, region_id=world.region.id)).peers == ()


def test_a_peer_that_the_platform_reaches_from_outside_has_its_private_address(
    world: World,
) -> None:
    hardware = Hardware(cpu_count=1, memory_bytes=1, addresses=("203.0.113.7", "10.0.0.7"))
    question = FindPeers(node_id=world.node.id, region_id=world.region.id)
    world.set_node(host="203.0.113.7", port=2022, hardware=hardware.model_dump(mode="json"))
    (peer,) = find_peers(question).peers
    assert (peer.host, peer.port) == ("10.0.0.7", 22)
    world.set_node(host="10.0.0.7", port=2022)
    (peer,) = find_peers(question).peers
    assert (peer.host, peer.port) == ("10.0.0.7", 2022)


def test_live_runs_of_a_node_are_those_that_hold_a_place(world: World) -> None:
    question = FindNodeRuns(node_id=world.node.id)
    assert find_node_runs(question).run_ids == (f"{world.job.id}-0-1",)
    assert find_node_runs(question).job_ids == (world.job.id,)
    with world.database.write() as session:
        session.get_one(tables.Allocation, world.allocation.id).released_at = NOW
    assert find_node_runs(question).run_ids == ()


def seen(job_id: str, elapsed_s: float) -> RunSeen:
    return RunSeen(run_id=f"{job_id}-0-1", job_id=job_id, worker=0, attempt=1, elapsed_s=elapsed_s)


def test_strays_are_billed_once_for_what_they_had_run(world: World) -> None:
    with world.database.write() as session:
        row = session.get_one(tables.Job, world.job.id)
        row.rates = {"0": {"gpu_count": 1, "microcredits_per_gpu_hour": 250_000}}
    runs = (seen(world.job.id, 1800.9), seen("job-unknown", 60))
    command = BillOrphanedRuns(node_id=world.node.id, runs=runs)
    bill_orphaned_runs(command)
    bill_orphaned_runs(command)
    with world.database.read() as session:
        row = session.get_one(tables.Job, world.job.id)
        meter = session.exec(select(tables.UsageMeter)).one()
    assert row.charged_microcredits == 125_000
    assert meter.posted_s == 1800
    assert meter.started_at == world.allocation.created_at


def test_a_node_bills_no_run_that_was_placed_on_another(world: World) -> None:
    runs = (seen(world.job.id, 1800),)
    bill_orphaned_runs(BillOrphanedRuns(node_id=world.other.id, runs=runs))
    with world.database.read() as session:
        assert session.exec(select(tables.UsageMeter)).all() == []


def test_a_node_s_clock_moves_no_bill_out_of_the_time_of_the_allocation(world: World) -> None:
    for instant in (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        run = seen(world.job.id, 60).model_copy(update={"started_at": instant})
        bill_orphaned_runs(BillOrphanedRuns(node_id=world.node.id, runs=(run,)))
    with world.database.read() as session:
        meter = session.exec(select(tables.UsageMeter)).one()
    assert meter.started_at == world.allocation.created_at


def test_strays_of_a_job_that_has_ended_do_not_count_as_running(world: World) -> None:
    with world.database.write() as session:
        session.get_one(tables.Job, world.job.id).status = "failed"
    runs = (seen(world.job.id, 60),)
    bill_orphaned_runs(BillOrphanedRuns(node_id=world.node.id, runs=runs))
    with world.database.read() as session:
        assert not session.exec(select(tables.UsageMeter)).one().running


def test_dependents_are_what_is_still_there(world: World) -> None:
    def of(resource_id: str) -> tuple[str, ...]:
        return find_dependents(FindDependents(resource_id=resource_id)).ids

    assert of(world.region.provider_id) == (world.region.id,)
    assert of(world.region.id) == tuple(sorted((world.node.id, world.other.id)))
    assert of(world.node.id) == (world.job.id,)
    assert of(world.other.id) == ()
    world.set_node(status="archived", updated_at=NOW + timedelta(seconds=1))
    assert of(world.region.id) == (world.node.id,)


async def start_idle(client: Client, workflow_id: str) -> None:
    """A workflow that no worker serves: it only takes signals."""
    await client.start_workflow("Idle", id=workflow_id, task_queue="nobody")


@pytest.mark.parametrize(
    ("notice", "signal"),
    [
        (NodeNotice.UNREACHABLE, "node_unreachable"),
        (NodeNotice.REACHABLE, "node_reachable"),
        (NodeNotice.ENDING, "node_ending"),
        (NodeNotice.REMOVED, "stop"),
    ],
)
async def test_jobs_on_a_node_are_told(
    world: World, temporal_server: Client, notice: NodeNotice, signal: str
) -> None:
    set_client(temporal_server)
    workflow_id = f"job/{world.job.id}"
    await start_idle(temporal_server, workflow_id)
    told = await notify_jobs(NotifyJobs(node_id=world.node.id, notice=notice, reason="why"))
    assert told.job_ids == (world.job.id,)
    assert await signals_of(temporal_server, workflow_id) == [signal]


async def test_jobs_are_told_where_a_node_is_that_is_back(
    world: World, temporal_server: Client
) -> None:
    set_client(temporal_server)
    workflow_id = f"job/{world.job.id}"
    await start_idle(temporal_server, workflow_id)
    with world.database.write() as session:
        session.get_one(tables.Node, world.node.id).host = "10.0.0.99"
    await notify_jobs(NotifyJobs(node_id=world.node.id, notice=NodeNotice.REACHABLE))
    history = await temporal_server.get_workflow_handle(workflow_id).fetch_history()
    told = [
        event.workflow_execution_signaled_event_attributes.input.payloads[0].data
        for event in history.events
        if event.HasField("workflow_execution_signaled_event_attributes")
    ]
    assert b"10.0.0.99" in told[-1]


async def test_a_job_is_told_which_node_was_removed_unreached(
    world: World, temporal_server: Client
) -> None:
    set_client(temporal_server)
    workflow_id = f"job/{world.job.id}"
    await start_idle(temporal_server, workflow_id)
    await notify_jobs(
        NotifyJobs(node_id=world.node.id, notice=NodeNotice.REMOVED_UNREACHABLE, reason="removed")
    )
    history = await temporal_server.get_workflow_handle(workflow_id).fetch_history()
    told = history.events[-1].workflow_execution_signaled_event_attributes
    assert told.signal_name == "stop"
    (request,) = await temporal_server.data_converter.decode(told.input.payloads, [EndRequest])
    assert (request.code, request.is_gone) == ("node-removed", True)
    assert request.node_id == world.node.id


@pytest.mark.parametrize("notice", [NodeNotice.MACHINE_GONE, NodeNotice.PROTOCOL_VIOLATED])
async def test_a_job_is_told_when_its_machine_has_ended_or_is_not_believed_any_more(
    world: World, temporal_server: Client, notice: NodeNotice
) -> None:
    set_client(temporal_server)
    workflow_id = f"job/{world.job.id}"
    await start_idle(temporal_server, workflow_id)
    ended = NotifyJobs(node_id=world.node.id, notice=notice, reason="preempted", ended_at=NOW)
    await notify_jobs(ended)
    history = await temporal_server.get_workflow_handle(workflow_id).fetch_history()
    told = history.events[-1].workflow_execution_signaled_event_attributes
    (gone,) = await temporal_server.data_converter.decode(told.input.payloads, [MachineGone])
    assert gone == MachineGone(
        node_id=world.node.id,
        reason="preempted",
        ended_at=NOW,
        is_violation=notice is NodeNotice.PROTOCOL_VIOLATED,
    )


async def test_jobs_are_told_once_however_often_it_is_tried(
    world: World, temporal_server: Client
) -> None:
    set_client(temporal_server)
    workflow_id = f"job/{world.job.id}"
    await start_idle(temporal_server, workflow_id)
    asked = NotifyJobs(node_id=world.node.id, notice=NodeNotice.REMOVED, reason="why")
    environment = ActivityEnvironment()
    for _ in range(2):
        await environment.run(notify_jobs, asked)
    assert await signals_of(temporal_server, workflow_id) == ["stop"]

    environment.info = dataclasses.replace(environment.info, activity_id="another")
    await environment.run(notify_jobs, asked)
    assert await signals_of(temporal_server, workflow_id) == ["stop", "stop"]


async def test_telling_a_job_that_has_ended_is_silent(
    world: World, temporal_server: Client
) -> None:
    set_client(temporal_server)
    told = await notify_jobs(NotifyJobs(node_id=world.node.id, notice=NodeNotice.REACHABLE))
    assert told.job_ids == (world.job.id,)
    with pytest.raises(RPCError, match="not found"):  # Nothing was started in its place.
        await temporal_server.get_workflow_handle(f"job/{world.job.id}").describe()


async def test_a_forced_removal_reaches_every_node_of_the_region(
    world: World, temporal_server: Client
) -> None:
    set_client(temporal_server)
    for node in (world.node, world.other):
        await start_idle(temporal_server, f"node/{node.id}")
    await remove_dependents(
        RemoveDependents(resource_id=world.region.id, removal=Removal(force=True))
    )
    for node in (world.node, world.other):
        handle = temporal_server.get_workflow_handle(f"node/{node.id}")
        history = await handle.fetch_history()
        told = history.events[-1].workflow_execution_signaled_event_attributes
        assert told.signal_name == "remove"
        (removal,) = await temporal_server.data_converter.decode(told.input.payloads, [Removal])
        assert removal == Removal(force=True, reschedules=True), "its jobs begin again elsewhere"
