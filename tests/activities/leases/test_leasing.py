"""Leases of nodes as rows: one at a time, given back, and places that come to naught."""

from datetime import timedelta

import pytest
from sqlmodel import select
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.leases.leasing import acquire_lease, notify_holder, release_lease
from activities.lifecycles.restarts import restart_of
from activities.nodes.creation import LeasedNode, add_leased_node
from activities.placement.withdrawals import withdraw_allocations
from activities.temporal.client import set_client
from tests.activities.nodes.test_ephemeral import made_for_a_job, removals_asked
from tests.activities.outbox.test_relay import signals_of
from tests.activities.placement.rows import assert_books_agree
from tests.activities.rows import NOW, add_payer, add_region
from tests.waiting import eventually
from workflows.contracts.leases import LeaseRelease, MachineLost, ReleaseProgress
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType, ProviderKind
from workflows.effects.leases import AcquireLease, LeaseAcquired, NotifyHolder, ReleaseLease
from workflows.effects.placement import WithdrawAllocations

LEASE, ANOTHER = "lea-1", "lea-2"
OFFER = MachineOffer(zone="zone-a", machine_type="large", microcredits_per_hour=1)


class World:
    """A node that is to have a machine."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            region = add_region(session, add_payer(session))
            self.claim = MachineClaim(
                provider_id=region.provider_id,
                provider_kind=ProviderKind.GCP,
                offers=(OFFER,),
                spec=MachineSpec(lifetime_s=60),
            )
            asked = LeasedNode(
                "nod-1", "store", NodeType.PERMANENT, ("storage",), machine=self.claim
            )
            self.node, _ = add_leased_node(session, region, asked, NOW)

    def lease(self, lease_id: str = LEASE, *, is_unreachable: bool = False) -> LeaseAcquired:
        return acquire_lease(
            AcquireLease(
                lease_id=lease_id,
                node_id=self.node.id,
                region_id=self.node.region_id,
                machine=self.claim,
                at=NOW,
                is_unreachable=is_unreachable,
            )
        )

    def set(self, lease_id: str, **values: object) -> None:
        with self.database.write() as session:
            session.get_one(tables.Lease, lease_id).sqlmodel_update(values)

    def ready(self) -> None:
        seen = {"host": "10.0.0.9", "minion_id": "SHA256:k", "offer": OFFER.model_dump()}
        self.set(LEASE, status="ready", **seen)

    def asked(self, resource_id: str, verb: str) -> list[tables.OutboxRow]:
        query = select(tables.OutboxRow).filter_by(resource_id=resource_id, verb=verb)
        with self.database.read() as session:
            return list(session.exec(query).all())

    def is_delivered(self, resource_id: str, verb: str) -> bool:
        rows = self.asked(resource_id, verb)
        return bool(rows) and all(row.delivered_at for row in rows)

    def restarted(self, **values: object) -> NodeRequest:
        """What the sweep starts the node's workflow with."""
        with self.database.write() as session:
            row = session.get_one(tables.Node, self.node.id)
            row.sqlmodel_update({"sequence": 9, "host": "10.0.0.9", **values})
            request = restart_of(session, row).argument
        assert isinstance(request, NodeRequest)
        return request


@pytest.fixture
def world(migrated: Database) -> World:
    return World(migrated)


def test_a_lease_asked_for_twice_is_written_and_started_once(world: World) -> None:
    first = world.lease()
    assert (first.status, first.ready) == (LeaseStatus.RESERVED, None)
    assert world.lease() == first
    assert len(world.asked(LEASE, "start")) == 1
    with world.database.read() as session:
        row = session.get_one(tables.Lease, LEASE)
    assert (row.name, row.holder_id) == ("baseload-lea-1", "nod-1")
    assert row.deadline == NOW + timedelta(seconds=60)


def test_a_node_whose_workflow_has_forgotten_its_lease_gets_no_second_machine(
    world: World,
) -> None:
    world.lease()
    world.ready()
    found = world.lease(ANOTHER)
    assert found.lease_id == LEASE
    assert found.ready is not None
    assert (found.ready.seen.host, found.ready.seen.minion_id) == ("10.0.0.9", "SHA256:k")
    world.set(LEASE, status="releasing")
    assert world.lease(ANOTHER).lease_id == ANOTHER


def test_a_ready_lease_looks_at_its_machine_when_its_node_cannot_reach_that(world: World) -> None:
    world.lease()
    world.lease(is_unreachable=True)
    assert world.asked(LEASE, "refresh") == [], "it is not ready"
    world.ready()
    world.lease()
    assert world.asked(LEASE, "refresh") == []
    world.lease(is_unreachable=True)
    assert len(world.asked(LEASE, "refresh")) == 1


@pytest.mark.parametrize("status", ["removing", "archived"])
def test_a_node_that_is_removed_gets_no_machine(world: World, status: str) -> None:
    with world.database.write() as session:
        session.get_one(tables.Node, "nod-1").status = status
    with pytest.raises(ApplicationError, match="is being removed and gets no machine"):
        world.lease()
    assert world.asked(LEASE, "start") == []


async def test_a_lease_hears_that_it_is_given_back_even_if_it_has_not_begun(
    world: World, temporal_server: Client
) -> None:
    lease_id = new_id("lea")
    world.lease(lease_id)
    set_client(temporal_server)
    asked = ReleaseLease(node_id="nod-1", reason="its node is removed", at=NOW, sequence=3)
    environment = ActivityEnvironment()
    assert (await environment.run(release_lease, asked)).left == (lease_id,)
    workflow_id = f"lease/{lease_id}"
    await eventually(lambda: is_told(temporal_server, workflow_id), "it begins, to be ended")
    await environment.run(release_lease, asked)
    told = await signals_of(temporal_server, workflow_id)
    assert told == ["release", "release"]
    (row,) = world.asked(lease_id, "release")
    expected = LeaseRelease(reason="its node is removed", by_holder=True)
    assert LeaseRelease.model_validate(row.argument) == expected
    world.set(lease_id, status="releasing")
    assert (await environment.run(release_lease, asked)).left == (lease_id,)
    assert await signals_of(temporal_server, workflow_id) == told, "it is being released"
    world.set(lease_id, status="released")
    assert (await environment.run(release_lease, asked)).left == ()
    assert await signals_of(temporal_server, workflow_id) == told


async def test_a_return_that_comes_when_the_node_has_gone_on_leaves_its_next_machine(
    world: World, temporal_server: Client
) -> None:
    lease_id = new_id("lea")
    world.lease(lease_id)
    set_client(temporal_server)
    with world.database.write() as session:
        session.get_one(tables.Node, "nod-1").sequence = 4
    asked = ReleaseLease(node_id="nod-1", reason="it was preempted", at=NOW, sequence=3)
    environment = ActivityEnvironment()
    returned = await environment.run(release_lease, asked)
    assert (returned.left, returned.sequence) == ((lease_id,), 4)
    assert world.asked(lease_id, "release") == []
    asked = asked.model_copy(update={"sequence": returned.sequence})
    await environment.run(release_lease, asked)
    await eventually(lambda: world.is_delivered(lease_id, "release"), "it is given back")


async def is_told(client: Client, workflow_id: str) -> bool:
    try:
        return await signals_of(client, workflow_id) != []
    except RPCError as cause:
        if cause.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False


def test_places_nobody_was_told_of_are_withdrawn_on_all_nodes_of_their_job(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        job, (lost, other) = made_for_a_job(session, "one", "two")
    command = WithdrawAllocations(node_id=lost.id, reason="zone-a has none left", at=NOW)
    assert withdraw_allocations(command).job_ids == (job.id,)
    assert withdraw_allocations(command).job_ids == ()
    with migrated.read() as session:
        assert session.exec(select(tables.Allocation)).all() == []
        assert session.exec(select(tables.GpuAllocation)).all() == []
        (why,) = session.get_one(tables.Job, job.id).placement_refusals
        assert (why["code"], why["detail"]) == ("machine", "zone-a has none left")
        assert removals_asked(session) == [other.id]
        assert_books_agree(session)


def test_a_leased_node_whose_workflow_was_lost_goes_on_with_its_machine(world: World) -> None:
    world.lease()
    world.ready()
    resumed_from = world.restarted(status="active", minion_id="SHA256:k").resumed_from
    assert resumed_from is not None
    assert (resumed_from.lease_id, resumed_from.minion_id) == (LEASE, "SHA256:k")


def test_a_leased_node_whose_machine_has_ended_meanwhile_hears_of_it(world: World) -> None:
    world.lease()
    world.ready()
    world.set(LEASE, status="released")
    resumed_from = world.restarted(status="active", minion_id="SHA256:k").resumed_from
    assert resumed_from is not None
    assert resumed_from.lost is not None
    assert (resumed_from.status, resumed_from.lost.lease_id) == (NodeStatus.ACTIVE, LEASE)


@pytest.mark.parametrize("by_holder", [True, False])
def test_a_leased_node_does_not_take_a_machine_for_gone_that_is_being_terminated(
    world: World, by_holder: bool
) -> None:
    world.lease()
    world.ready()
    ending = ReleaseProgress(
        was_ready=True,
        released=LeaseRelease(reason="its end is near", by_holder=by_holder),
        lost=MachineLost(lease_id=LEASE, reason="the deadline has passed"),
    )
    world.set(LEASE, status="releasing", ending=ending.model_dump(mode="json"))
    resumed_from = world.restarted(status="maintenance", minion_id="SHA256:k").resumed_from
    assert resumed_from is not None
    assert resumed_from.lost is None
    assert resumed_from.releasing == ("its end is near" if by_holder else None)


async def test_a_holder_whose_workflow_is_lost_is_there_and_one_that_is_archived_is_not(
    world: World, temporal_server: Client
) -> None:
    set_client(temporal_server)
    lost = MachineLost(lease_id=LEASE, reason="it was preempted")
    command = NotifyHolder(holder_id=world.node.id, lost=lost)
    told = await notify_holder(command)
    assert told.is_there
    assert not told.is_notified, "its next run may have read the lease before"
    with world.database.write() as session:
        session.get_one(tables.Node, world.node.id).status = "archived"
    assert not (await notify_holder(command)).is_there
