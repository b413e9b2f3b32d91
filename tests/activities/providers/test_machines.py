"""Machines at a provider: made once whatever goes unanswered, ended for certain."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.leases.shortages import find_shortages, remember_shortage
from activities.leases.starts import start_lease
from activities.lifecycles.restarts import restart_of
from activities.providers.base import Unavailable
from activities.providers.machines import (
    create_machine,
    describe_machine,
    terminate_machine,
    wait_for_machine,
)
from tests.activities.leases.rows import OFFER, Books
from tests.activities.providers.fake_driver import Owned, RentedDriver
from tests.activities.rows import NOW
from workflows.contracts import errors
from workflows.contracts.leases import LeaseRequest
from workflows.contracts.machines import MachineObservation, MachineSpec
from workflows.contracts.statuses import LeaseStatus, MachineState, ProviderKind
from workflows.effects.machines import (
    CreateMachine,
    DescribeMachine,
    FindShortages,
    RememberShortage,
    TerminateMachine,
)

NAME = {
    "lease_id": "lea-1",
    "provider_id": "prv-1",
    "provider_kind": ProviderKind.GCP,
    "machine_name": "baseload-lea-1",
}
CREATE = CreateMachine(**NAME, zone="zone-a", offer=OFFER, spec=MachineSpec(lifetime_s=3600))
LOOK = DescribeMachine(**NAME, zone="zone-a")
RELEASE = TerminateMachine(**NAME, zone="zone-a")


async def do(activity: Any, command: Any) -> Any:
    return await ActivityEnvironment().run(activity, command)


async def refusal(activity: Any, command: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await do(activity, command)
    return caught.value


# ── one machine ─────────────────────────────────────────────────────────────────────────────


async def test_a_machine_whose_making_went_unanswered_is_found_and_not_made_again(
    driver: RentedDriver,
) -> None:
    driver.lost_replies = 1
    assert (await refusal(create_machine, CREATE)).type == errors.UNAVAILABLE
    assert (await do(create_machine, CREATE)).host == "10.0.0.9"
    assert driver.made.total() == 1


async def test_a_release_is_over_only_when_the_provider_no_longer_knows_the_machine(
    driver: RentedDriver,
) -> None:
    await do(create_machine, CREATE)
    driver.ending = 2
    for _ in range(2):
        assert (await refusal(terminate_machine, RELEASE)).type == errors.NOT_YET
    assert (await do(terminate_machine, RELEASE)).state is MachineState.GONE
    assert driver.machines == {}
    assert (await do(terminate_machine, RELEASE)).state is MachineState.GONE


async def test_a_machine_is_waited_for_until_it_has_an_address_or_is_no_more(
    driver: RentedDriver,
) -> None:
    key = Owned("baseload-lea-1", "zone-a")
    for state in (MachineState.MAKING, MachineState.RUNNING):
        driver.machines[key] = MachineObservation(state=state, zone="zone-a")
        assert (await refusal(wait_for_machine, LOOK)).type == errors.NOT_YET
    driver.machines[key] = MachineObservation(state=MachineState.STOPPED, zone="zone-a")
    assert (await do(wait_for_machine, LOOK)).state is MachineState.STOPPED
    del driver.machines[key]
    assert (await do(wait_for_machine, LOOK)).state is MachineState.GONE


async def test_an_internal_address_is_used_only_where_the_region_says_so(
    driver: RentedDriver,
) -> None:
    driver.machines[Owned("baseload-lea-1", "zone-a")] = MachineObservation(
        state=MachineState.RUNNING, zone="zone-a", internal_host="10.0.0.9", minion_id="SHA256:k"
    )
    refused: MachineObservation = await do(wait_for_machine, LOOK)
    assert not refused.is_reachable
    assert "has no external address" in refused.reason
    assert "uses_internal_addresses" in refused.reason
    inside = LOOK.model_copy(update={"uses_internal_addresses": True})
    found: MachineObservation = await do(wait_for_machine, inside)
    assert (found.host, found.is_reachable) == ("10.0.0.9", True)


async def test_a_machine_of_another_offer_is_not_taken_but_ended_and_made_anew(
    driver: RentedDriver,
) -> None:
    spot = OFFER.model_copy(update={"spot": True})
    await do(create_machine, CREATE.model_copy(update={"offer": spot}))
    failure = await refusal(create_machine, CREATE)
    assert (failure.type, "large-spot" in failure.message) == (errors.NOT_YET, True)
    assert driver.machines == {}
    assert (await do(create_machine, CREATE)).offer_label == "large-on-demand"
    assert driver.made.total() == 2


async def test_a_machine_that_is_gone_says_when_if_its_provider_does(driver: RentedDriver) -> None:
    made: MachineObservation = await do(create_machine, CREATE)
    release = RELEASE.model_copy(update={"provider_machine_id": made.provider_machine_id})
    gone: MachineObservation = await do(terminate_machine, release)
    assert gone.began_at == made.began_at
    assert gone.ended_at is not None
    driver.gone.clear()
    assert (await do(terminate_machine, release)).state is MachineState.GONE


async def test_the_end_of_a_machine_is_asked_for_again_before_it_is_billed_until_now(
    driver: RentedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: MachineObservation = await do(create_machine, CREATE)
    release = RELEASE.model_copy(update={"provider_machine_id": made.provider_machine_id})

    def away(*_: object) -> MachineObservation:
        raise Unavailable("no route to the provider")

    environment = ActivityEnvironment()
    with monkeypatch.context() as silent:
        silent.setattr(driver, "billed_period", away)
        assert (await do(terminate_machine, release)).ended_at is None, "long since scheduled"
        environment.info = dataclasses.replace(environment.info, scheduled_time=datetime.now(UTC))
        with pytest.raises(ApplicationError) as caught:
            await environment.run(terminate_machine, release)
        assert caught.value.type == errors.NOT_YET
    gone: MachineObservation = await environment.run(terminate_machine, release)
    assert gone.ended_at is not None


async def test_a_command_that_the_row_of_its_lease_has_left_behind_terminates_no_machine(
    migrated: Database, driver: RentedDriver
) -> None:
    row = Books(migrated).lease(LeaseStatus.READY)
    await do(create_machine, CREATE)
    late = {"lease_id": row.id, "sequence": row.sequence - 1}
    failure = await refusal(terminate_machine, RELEASE.model_copy(update=late))
    assert (failure.type, failure.non_retryable) == (errors.STALE, True)
    assert len(driver.machines) == 1
    present = {"lease_id": row.id, "sequence": row.sequence}
    await do(terminate_machine, RELEASE.model_copy(update=present))
    assert driver.machines == {}


async def test_a_command_that_the_row_of_its_lease_has_left_behind_creates_no_machine(
    migrated: Database, driver: RentedDriver
) -> None:
    row = Books(migrated).lease(LeaseStatus.READY)
    late = {"lease_id": row.id, "sequence": row.sequence - 1}
    failure = await refusal(create_machine, CREATE.model_copy(update=late))
    assert (failure.type, failure.non_retryable) == (errors.STALE, True)
    assert "asked to create its machine" in failure.message
    assert driver.machines == {}
    present = {"lease_id": row.id, "sequence": row.sequence}
    await do(create_machine, CREATE.model_copy(update=present))
    other = CREATE.offer.model_copy(update={"machine_type": "of an earlier offer"})
    failure = await refusal(create_machine, CREATE.model_copy(update={**late, "offer": other}))
    assert failure.type == errors.STALE
    assert len(driver.machines) == 1, "the machine of the present offer is left alone"


async def test_machines_of_a_kind_without_driver_are_refused_by_name() -> None:
    command = LOOK.model_copy(update={"provider_kind": ProviderKind.PHYSICAL})
    failure = await refusal(describe_machine, command)
    assert failure.type == errors.REQUEST_REFUSED
    assert "physical" in failure.message


# ── leases ──────────────────────────────────────────────────────────────────────────────────


async def test_a_lease_without_its_workflow_is_taken_up_where_its_row_says(
    migrated: Database,
) -> None:
    books = Books(migrated)
    row = books.lease(LeaseStatus.READY)
    with migrated.read() as session:
        start = restart_of(session, row)
        fresh = start_lease(session, row)
    assert (start.id, start.workflow) == (f"lease/{row.id}", "LeaseLifecycle")
    found_by = {pair.key.name: pair.value for pair in start.search_attributes}
    assert found_by["LeaseId"] == row.id
    assert isinstance(start.argument, LeaseRequest)
    assert isinstance(fresh.argument, LeaseRequest)
    resumed_from = start.argument.resumed_from
    assert resumed_from is not None
    assert resumed_from.seen is not None
    assert (resumed_from.status, resumed_from.offer, resumed_from.sequence) == (
        LeaseStatus.READY,
        OFFER,
        4,
    )
    assert (resumed_from.seen.host, resumed_from.seen.began_at) == ("10.0.0.9", NOW)
    assert fresh.argument.offers == (OFFER,)


def test_a_lease_knows_whether_its_region_uses_internal_addresses(migrated: Database) -> None:
    books = Books(migrated)
    row = books.lease(LeaseStatus.READY)
    for uses in (False, True):
        with migrated.write() as session:
            session.get_one(tables.Region, books.region_id).uses_internal_addresses = uses
        with migrated.read() as session:
            request = start_lease(session, row).argument
        assert isinstance(request, LeaseRequest)
        assert request.uses_internal_addresses is uses


async def test_shortages_are_remembered_for_all_and_forgotten_in_time(
    migrated: Database,
) -> None:
    books = Books(migrated)
    short = RememberShortage(provider_id=books.provider_id, scope=OFFER.scope, reason="none left")
    for _ in range(2):
        await do_now(remember_shortage, short)
    asked = FindShortages(provider_id=books.provider_id)
    (found,) = (await do_now(find_shortages, asked)).shortages
    assert (found.scope, found.reason) == ("zone-a/large/on-demand", "none left")
    with migrated.write() as session:
        session.get_one(tables.ShortageRow, (books.provider_id, OFFER.scope)).until = NOW
    assert (await do_now(find_shortages, asked)).shortages == ()


@pytest.mark.parametrize(("kind", "within_s"), [("gcp", 600), ("local", 10)])
async def test_a_host_that_is_lent_is_asked_again_soon_and_a_cloud_that_is_sold_out_later(
    migrated: Database, kind: str, within_s: int
) -> None:
    books = Books(migrated)
    with migrated.write() as session:
        session.get_one(tables.Provider, books.provider_id).kind = kind
    short = RememberShortage(provider_id=books.provider_id, scope=OFFER.scope, reason="is lent")
    asked_at = datetime.now(UTC)
    await do_now(remember_shortage, short)
    (found,) = (
        await do_now(find_shortages, FindShortages(provider_id=books.provider_id))
    ).shortages
    kept_s = (found.until - asked_at).total_seconds()
    assert within_s <= kept_s < within_s + 60


async def do_now(activity: Any, command: Any) -> Any:
    """One that blocks."""
    return ActivityEnvironment().run(activity, command)
