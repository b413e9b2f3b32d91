"""Notebooks as machines: adopted by one lease at a time, let go, replaced, expired and silent."""

from datetime import UTC, datetime

import pytest
from sqlmodel import select
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.leases.orphaned_machines import listed_machines
from activities.leases.reconciliation import reconcile_machines
from activities.providers.base import CapacityExhausted, Unavailable
from activities.providers.colab.driver import ColabMachines, colab_offers
from activities.providers.colab.kind import check_colab
from activities.providers.colab_endpoints import LIFETIME, SILENCE_LIMIT
from tests.activities.cloud_rows import add_lease, add_shortage
from tests.activities.providers.colab.rows import ENDPOINT, add_colab, announce, endpoint_row
from tests.activities.providers.driver_contract import NAME, SPEC
from tests.activities.rows import add_node, add_payer
from workflows.contracts.machines import MachineOffer
from workflows.contracts.statuses import MachineState, ProviderKind
from workflows.effects.reconciliation import ReconcileMachines

OTHER = "baseload-lea-2"


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def region(migrated: Database) -> tables.Region:
    with migrated.write() as session:
        return add_colab(session, add_payer(session))


@pytest.fixture
def provider_id(region: tables.Region) -> str:
    return region.provider_id


def offer_of(provider_id: str) -> MachineOffer:
    (found,) = colab_offers(provider_id)
    return found.machine


def adopted(provider_id: str) -> ColabMachines:
    machines = ColabMachines(provider_id)
    machines.create(NAME, offer_of(provider_id), SPEC)
    return machines


def test_without_a_notebook_there_is_nothing_and_the_cell_is_named(
    migrated: Database, provider_id: str
) -> None:
    assert colab_offers(provider_id) == ()
    offer = MachineOffer(machine_type="colab", microcredits_per_hour=0)
    with pytest.raises(CapacityExhausted, match="open the notebook and run the cell"):
        ColabMachines(provider_id).create(NAME, offer, SPEC)
    (check,) = check_colab(provider_id)
    assert (check.status, "run the cell" in check.fix) == ("warning", True)


def test_an_announced_notebook_is_one_offer_free_of_charge_and_pinned_when_adopted(
    migrated: Database, provider_id: str
) -> None:
    announce(migrated, provider_id)
    (offer,) = colab_offers(provider_id)
    assert (offer.machine.gpu_type, offer.machine.gpu_count) == ("T4", 1)
    assert offer.machine.microcredits_per_hour == 0
    seen = adopted(provider_id).find(NAME, "")
    assert seen is not None
    assert (seen.host, seen.port, seen.user) == (ENDPOINT.host, ENDPOINT.port, "root")
    assert (seen.minion_id, seen.microcredits_per_hour) == (ENDPOINT.minion_id, 0)
    assert check_colab(provider_id)[0].status == "passed"


def test_the_second_lease_has_to_wait_until_the_first_lets_go(
    migrated: Database, region: tables.Region
) -> None:
    provider_id = region.provider_id
    announce(migrated, provider_id)
    machines, offer = adopted(provider_id), offer_of(provider_id)
    with pytest.raises(CapacityExhausted, match=f"held by {NAME} until its end"):
        machines.create(OTHER, offer, SPEC)
    machines.terminate(OTHER, "")
    assert machines.find(NAME, "") is not None, "it is not the other's to let go"
    with migrated.write() as session:
        add_shortage(session, region, offer.scope, "held")
    machines.terminate(NAME, "")
    assert machines.find(NAME, "") is None
    assert machines.create(OTHER, offer, SPEC).state is MachineState.RUNNING
    with migrated.read() as session:
        assert session.get(tables.ShortageRow, (provider_id, offer.scope)) is None


def test_the_next_lease_waits_until_the_node_of_the_one_before_is_forgotten(
    migrated: Database, region: tables.Region
) -> None:
    announce(migrated, region.provider_id)
    machines, offer = ColabMachines(region.provider_id), offer_of(region.provider_id)
    with migrated.write() as session:
        node = add_node(session, session.merge(region))
        node.minion_id = ENDPOINT.minion_id
        add_lease(session, region, node.id)
        add_lease(session, region, node.id, name=OTHER, status="creating")
    with pytest.raises(Unavailable, match=f"{node.id} of the lease before"):
        machines.create(NAME, offer, SPEC)
    assert endpoint_row(migrated, region.provider_id).held_by is None
    machines.create(OTHER, offer, SPEC)
    machines.terminate(OTHER, "")
    with migrated.write() as session:
        session.get_one(tables.Node, node.id).status = "archived"
    machines.create(NAME, offer, SPEC)
    assert endpoint_row(migrated, region.provider_id).held_by == NAME


def test_a_new_announcement_replaces_the_endpoint_and_the_lease_has_lost_it(
    migrated: Database, provider_id: str
) -> None:
    announce(migrated, provider_id)
    machines, before = adopted(provider_id), offer_of(provider_id)
    announce(migrated, provider_id, port=23456)
    assert machines.find(NAME, "") is None
    with pytest.raises(CapacityExhausted, match="announced anew"):
        machines.create(OTHER, before, SPEC)
    assert machines.create(OTHER, offer_of(provider_id), SPEC).port == 23456


def test_an_endpoint_expires_and_a_held_one_has_stopped(
    migrated: Database, provider_id: str
) -> None:
    announce(migrated, provider_id)
    offer = offer_of(provider_id)
    adopted(provider_id)
    late = ColabMachines(provider_id, clock=lambda: datetime.now(UTC) + LIFETIME)
    seen = late.find(NAME, "")
    assert seen is not None
    assert (seen.state, "has expired at" in seen.reason) == (MachineState.STOPPED, True)
    late.terminate(NAME, "")
    assert late.find(NAME, "") is None
    with pytest.raises(CapacityExhausted, match=r"has expired at .* run the cell"):
        late.create(OTHER, offer, SPEC)


def test_a_notebook_whose_node_is_offline_for_long_has_ended_and_is_offered_no_more(
    migrated: Database, region: tables.Region
) -> None:
    announce(migrated, region.provider_id)
    machines = adopted(region.provider_id)
    now = datetime.now(UTC)
    with migrated.write() as session:
        node = add_node(session, session.merge(region))
        node.status, node.updated_at = "offline", now
        add_lease(session, region, node.id, name=NAME, status="ready")
    seen = machines.find(NAME, "")
    assert seen is not None
    assert seen.state is MachineState.RUNNING, "it may come back"
    late = ColabMachines(region.provider_id, clock=lambda: datetime.now(UTC) + SILENCE_LIMIT)
    seen = late.find(NAME, "")
    assert seen is not None
    assert (seen.state, "silent since" in seen.reason) == (MachineState.STOPPED, True)
    expires_at = endpoint_row(migrated, region.provider_id).expires_at
    assert expires_at is not None
    assert expires_at < now + LIFETIME / 2
    with migrated.read() as session:
        assert session.exec(select(tables.RentalOfferRow)).all() == []


async def test_reconciliation_lists_none_and_ends_none(
    migrated: Database, provider_id: str
) -> None:
    announce(migrated, provider_id)
    machines = adopted(provider_id)
    command = ReconcileMachines(
        provider_id=provider_id, provider_kind=ProviderKind.COLAB, is_ready=True
    )
    found = await ActivityEnvironment().run(reconcile_machines, command)
    assert (found.released, found.unknown, found.missing) == ((), (), ())
    assert found.reconciled_at is not None
    assert listed_machines(provider_id, ProviderKind.COLAB) == []
    assert machines.find(NAME, "") is not None
