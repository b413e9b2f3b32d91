"""Machines at a provider: made once whatever goes unanswered, ended for certain, swept."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import machine_sweep
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.lifecycle_requests import start_of
from activities.machine_sweep import sweep_machines
from activities.machines import (
    await_machine,
    create_machine,
    find_shortages,
    look_at_machine,
    release_machine,
    remember_shortage,
)
from activities.providers import registry
from activities.record import record
from activities.restarts import restart_of
from tests.activities.rented import Owned, RentedDriver
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts import errors
from workflows.contracts.machine import MachineOffer, MachineRequest, MachineSeen, MachineSpec
from workflows.contracts.record import LeaseChanges, Record
from workflows.contracts.states import LeaseStatus, MachineState, ProviderKind
from workflows.effects.lifecycle import MachinesSwept, SweepMachines
from workflows.effects.machine import (
    CreateMachine,
    FindShortages,
    LookAtMachine,
    ReleaseMachine,
    RememberShortage,
)

OFFER = MachineOffer(place="zone-a", machine_type="large", microcredits_per_hour=1_000_000)
NAME = {
    "lease_id": "lea-1",
    "provider_id": "prv-1",
    "provider_kind": ProviderKind.GCP,
    "machine_name": "baseload-lea-1",
}
CREATE = CreateMachine(**NAME, place="zone-a", offer=OFFER, spec=MachineSpec(lifetime_s=3600))
LOOK = LookAtMachine(**NAME, place="zone-a")
RELEASE = ReleaseMachine(**NAME, place="zone-a")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> RentedDriver:
    found = RentedDriver()
    monkeypatch.setitem(registry.DRIVERS, ProviderKind.GCP, lambda _: found)
    return found


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
        assert (await refusal(release_machine, RELEASE)).type == errors.NOT_YET
    assert (await do(release_machine, RELEASE)).state is MachineState.GONE
    assert driver.machines == {}
    assert (await do(release_machine, RELEASE)).state is MachineState.GONE


async def test_a_machine_is_waited_for_until_it_has_an_address_or_is_no_more(
    driver: RentedDriver,
) -> None:
    key = Owned("baseload-lea-1", "zone-a")
    for state in (MachineState.MAKING, MachineState.RUNNING):
        driver.machines[key] = MachineSeen(state=state, place="zone-a")
        assert (await refusal(await_machine, LOOK)).type == errors.NOT_YET
    driver.machines[key] = MachineSeen(state=MachineState.STOPPED, place="zone-a")
    assert (await do(await_machine, LOOK)).state is MachineState.STOPPED
    del driver.machines[key]
    assert (await do(await_machine, LOOK)).state is MachineState.GONE


async def test_a_machine_of_another_offer_is_not_taken_but_ended_and_made_anew(
    driver: RentedDriver,
) -> None:
    spot = OFFER.model_copy(update={"spot": True})
    await do(create_machine, CREATE.model_copy(update={"offer": spot}))
    failure = await refusal(create_machine, CREATE)
    assert (failure.type, "large-spot" in failure.message) == (errors.NOT_YET, True)
    assert driver.machines == {}
    assert (await do(create_machine, CREATE)).offer_mark == "large-on-demand"
    assert driver.made.total() == 2


async def test_a_machine_that_is_gone_says_when_if_its_provider_does(driver: RentedDriver) -> None:
    made: MachineSeen = await do(create_machine, CREATE)
    release = RELEASE.model_copy(update={"provider_machine_id": made.provider_machine_id})
    gone: MachineSeen = await do(release_machine, release)
    assert gone.began_at == made.began_at
    assert gone.ended_at is not None
    driver.gone.clear()
    assert (await do(release_machine, release)).state is MachineState.GONE


async def test_machines_of_a_kind_without_driver_are_refused_by_name() -> None:
    command = LOOK.model_copy(update={"provider_kind": ProviderKind.PHYSICAL})
    failure = await refusal(look_at_machine, command)
    assert failure.type == errors.REQUEST_REFUSED
    assert "physical" in failure.message


# ── leases ──────────────────────────────────────────────────────────────────────────────────


class Books:
    """The leases of one provider, and how they come to be in a state."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            account = add_payer(session)
            region = add_region(session, account)
            provider = session.get_one(tables.Provider, region.provider_id)
            provider.kind = region.provider_kind = "gcp"
            self.account_id, self.region_id = account.id, region.id
            self.provider_id = provider.id

    def lease(self, status: LeaseStatus, place: str | None = "zone-a") -> tables.Lease:
        offer = None if place is None else OFFER.model_copy(update={"place": place})
        lease_id = new_id("lea")
        row = tables.Lease(
            id=lease_id,
            account_id=self.account_id,
            name=f"baseload-{lease_id}",
            status="reserved",
            region_id=self.region_id,
            provider_id=self.provider_id,
            provider_kind="gcp",
            holder_id="nod-1",
            offers=[OFFER.model_dump(mode="json")],
            spec=MachineSpec(lifetime_s=3600).model_dump(mode="json"),
            deadline=NOW + timedelta(hours=1),
            created_at=NOW,
            updated_at=NOW,
        )
        with self.database.write() as session:
            session.add(row)
        changes = LeaseChanges(offer=offer, host="10.0.0.9", minion_id="SHA256:k", began_at=NOW)
        step = Record(
            resource_id=lease_id,
            account_id=self.account_id,
            sequence=4,
            at=NOW,
            status=status,
            changes=changes,
        )
        ActivityEnvironment().run(record, step)
        with self.database.read() as session:
            return session.get_one(tables.Lease, lease_id)


async def test_a_lease_without_its_workflow_is_taken_up_where_its_row_says(
    migrated: Database,
) -> None:
    books = Books(migrated)
    row = books.lease(LeaseStatus.READY)
    with migrated.read() as session:
        start = restart_of(session, row).start
        fresh = start_of(session, row)
    assert (start.id, start.workflow) == (f"machine/{row.id}", "MachineLifecycle")
    assert isinstance(start.argument, MachineRequest)
    assert isinstance(fresh.argument, MachineRequest)
    carried = start.argument.carried
    assert carried is not None
    assert carried.seen is not None
    assert (carried.status, carried.offer, carried.sequence) == (LeaseStatus.READY, OFFER, 4)
    assert (carried.seen.host, carried.seen.began_at) == ("10.0.0.9", NOW)
    assert fresh.argument.offers == (OFFER,)


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


async def do_now(activity: Any, command: Any) -> Any:
    """One that blocks."""
    return ActivityEnvironment().run(activity, command)


# ── the sweep ───────────────────────────────────────────────────────────────────────────────


async def test_a_sweep_ends_what_no_lease_holds_and_nothing_else(
    migrated: Database, driver: RentedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def note(workflow_id: str, signal: str) -> bool:
        told.append(f"{workflow_id} {signal}")
        return True

    monkeypatch.setattr(machine_sweep, "tell", note)
    books = Books(migrated)
    held, late = books.lease(LeaseStatus.READY), books.lease(LeaseStatus.RELEASED)
    moved, vanished = books.lease(LeaseStatus.CREATING, "zone-b"), books.lease(LeaseStatus.READY)
    begun = books.lease(LeaseStatus.CREATING)
    running = MachineSeen(state=MachineState.RUNNING)
    for name in (held.name, late.name, moved.name, begun.name, "baseload-nobody"):
        driver.machines[Owned(name, "zone-a")] = running
    swept: MachinesSwept = await do(sweep_machines, SweepMachines())
    assert set(driver.machines) == {
        Owned(held.name, "zone-a"),
        Owned(begun.name, "zone-a"),
        Owned("baseload-nobody", "zone-a"),
    }
    assert set(swept.released) == {late.name, moved.name}
    assert swept.unknown == ("baseload-nobody",)
    assert swept.missing == (vanished.id,)
    assert told == [f"machine/{vanished.id} look"]


async def test_a_stray_that_cannot_be_ended_does_not_save_the_others(
    migrated: Database, driver: RentedDriver
) -> None:
    books = Books(migrated)
    running = MachineSeen(state=MachineState.RUNNING)
    for _ in range(3):
        name = books.lease(LeaseStatus.RELEASED).name
        driver.machines[Owned(name, "zone-a")] = running
    driver.lost_replies = 1
    swept: MachinesSwept = await do(sweep_machines, SweepMachines())
    assert driver.machines == {}
    assert len(swept.released) == 2
    (failed,) = swept.failed
    assert "the connection was cut" in failed


async def test_a_provider_that_cannot_be_asked_is_named_by_the_sweep(
    migrated: Database, driver: RentedDriver
) -> None:
    books = Books(migrated)
    driver.is_away = True
    swept: MachinesSwept = await do(sweep_machines, SweepMachines())
    assert swept.failed == (f"{books.provider_id}: no route to the provider",)
