"""The sweep of machines: what nobody holds is ended, what is unknown is told, within bounds."""

from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Engine, event
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.leases import reconciliation
from activities.leases.orphaned_machines import listed_machines, terminate_orphaned_machine
from activities.leases.reconciliation import reconcile_machines
from tests.activities.leases.rows import Books
from tests.activities.providers.fake_driver import Owned, RentedDriver
from workflows.contracts import errors
from workflows.contracts.machines import MachineObservation, OrphanedMachine, OrphanedMachinesFound
from workflows.contracts.statuses import LeaseStatus, MachineState, ProviderKind
from workflows.effects.machines import TerminateOrphanedMachine
from workflows.effects.providers import StartNotifications
from workflows.effects.reconciliation import MachinesReconciled, ReconcileMachines

RUNNING = MachineObservation(state=MachineState.RUNNING, zone="zone-a")


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What workflows were told, and started, by the sweep."""
    found: list[Any] = []

    async def note(workflow_id: str, signal: str, argument: Any = None) -> bool:
        found.append((workflow_id, signal, argument))
        return True

    async def begin(asked: StartNotifications) -> None:
        found.append((f"provider/{asked.provider_id}/notifications", "start", None))

    monkeypatch.setattr(reconciliation, "tell", note)
    monkeypatch.setattr(reconciliation, "start_listening", begin)
    return found


async def sweep(books: Books) -> MachinesReconciled:
    command = ReconcileMachines(
        provider_id=books.provider_id, provider_kind=ProviderKind.GCP, is_ready=True
    )
    swept: MachinesReconciled = await ActivityEnvironment().run(reconcile_machines, command)
    return swept


async def test_a_sweep_ends_what_no_lease_holds_and_nothing_else(
    migrated: Database, driver: RentedDriver, told: list[Any]
) -> None:
    books = Books(migrated)
    held, late = books.lease(LeaseStatus.READY), books.lease(LeaseStatus.RELEASED)
    moved, vanished = books.lease(LeaseStatus.CREATING, "zone-b"), books.lease(LeaseStatus.READY)
    begun = books.lease(LeaseStatus.CREATING)
    for name in (held.name, late.name, moved.name, begun.name, "baseload-nobody"):
        driver.machines[Owned(name, "zone-a")] = RUNNING
    swept = await sweep(books)
    assert set(driver.machines) == {
        Owned(held.name, "zone-a"),
        Owned(begun.name, "zone-a"),
        Owned("baseload-nobody", "zone-a"),
    }
    assert set(swept.released) == {late.name, moved.name}
    assert swept.unknown == ("baseload-nobody",)
    assert swept.missing == (vanished.id,)
    unknown = OrphanedMachinesFound(
        machines=(OrphanedMachine(name="baseload-nobody", zone="zone-a"),)
    )
    assert told == [
        (f"provider/{books.provider_id}/notifications", "start", None),
        (f"lease/{vanished.id}", "refresh", None),
        (f"provider/{books.provider_id}", "orphaned_machines", unknown),
    ]


async def test_a_stray_that_cannot_be_ended_does_not_save_the_others(
    migrated: Database, driver: RentedDriver
) -> None:
    books = Books(migrated)
    for _ in range(3):
        driver.machines[Owned(books.lease(LeaseStatus.RELEASED).name, "zone-a")] = RUNNING
    driver.lost_replies = 1
    swept = await sweep(books)
    assert driver.machines == {}
    assert len(swept.released) == 2
    (failed,) = swept.failed
    assert "the connection was cut" in failed


def reconciled_at(books: Books) -> datetime | None:
    with books.database.read() as session:
        return session.get_one(tables.Provider, books.provider_id).reconciled_at


async def test_the_row_says_when_its_provider_was_last_compared_completely(
    migrated: Database, driver: RentedDriver
) -> None:
    books = Books(migrated)
    driver.is_away = True
    with pytest.raises(ApplicationError, match="no route to the provider") as failure:
        await sweep(books)
    assert failure.value.type == errors.UNAVAILABLE
    assert reconciled_at(books) is None

    driver.is_away = False
    assert (await sweep(books)).reconciled_at == (first := reconciled_at(books))
    assert first is not None
    driver.machines[Owned(books.lease(LeaseStatus.RELEASED).name, "zone-a")] = RUNNING
    driver.lost_replies = 1
    assert (await sweep(books)).reconciled_at is None
    assert reconciled_at(books) == first


async def test_a_lease_that_cannot_be_read_keeps_its_machine_and_stops_no_other(
    migrated: Database, driver: RentedDriver
) -> None:
    books = Books(migrated)
    broken, odd, late = (books.lease(LeaseStatus.RELEASED) for _ in range(3))
    with migrated.write() as session:
        session.get_one(tables.Lease, broken.id).status = "of-another-release"
        session.get_one(tables.Lease, odd.id).offer = {}
    for lease in (broken, odd, late):
        driver.machines[Owned(lease.name, "zone-a")] = RUNNING
    swept = await sweep(books)
    assert set(driver.machines) == {Owned(broken.name, "zone-a"), Owned(odd.name, "zone-a")}
    assert swept.released == (late.name,)
    assert {line.partition(":")[0] for line in swept.failed} == {broken.id, odd.id}
    with pytest.raises(ApplicationError, match=f"lease {broken.id} holds it"):
        await end(books, broken.name)


async def test_the_number_of_questions_does_not_grow_with_each_machine(
    migrated: Database, driver: RentedDriver
) -> None:
    books = Books(migrated)
    for _ in range(40):
        driver.machines[Owned(books.lease(LeaseStatus.RELEASED).name, "zone-a")] = RUNNING
    asked: list[str] = []

    def count(*query: Any) -> None:
        asked.append(query[2])

    event.listen(Engine, "before_cursor_execute", count)
    try:
        swept = await sweep(books)
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert len(swept.released) == 40
    assert len([query for query in asked if "FROM leases" in query]) <= 5


# ── at a person's word ──────────────────────────────────────────────────────────────────────


async def end(books: Books, name: str) -> MachineObservation:
    command = TerminateOrphanedMachine(
        provider_id=books.provider_id,
        provider_kind=ProviderKind.GCP,
        machine_name=name,
        zone="zone-a",
    )
    seen: MachineObservation = await ActivityEnvironment().run(terminate_orphaned_machine, command)
    return seen


async def test_an_unknown_machine_is_ended_at_a_person_s_word_and_seen_to_be_gone(
    migrated: Database, driver: RentedDriver
) -> None:
    books = Books(migrated)
    driver.machines[Owned("baseload-nobody", "zone-a")] = RUNNING
    driver.ending = 1
    with pytest.raises(ApplicationError) as caught:
        await end(books, "baseload-nobody")
    assert caught.value.type == errors.NOT_YET
    assert (await end(books, "baseload-nobody")).state is MachineState.GONE
    assert driver.machines == {}


async def test_a_machine_that_a_lease_holds_is_not_unknown(
    migrated: Database, driver: RentedDriver
) -> None:
    books = Books(migrated)
    held, ended = books.lease(LeaseStatus.READY), books.lease(LeaseStatus.REFUSED)
    for name in (held.name, ended.name, "baseload-nobody"):
        driver.machines[Owned(name, "zone-a")] = RUNNING
    with pytest.raises(ApplicationError, match=f"lease {held.id} holds it"):
        await end(books, held.name)
    assert len(driver.machines) == 3
    found = {
        each.name: each.is_held for each in listed_machines(books.provider_id, ProviderKind.GCP)
    }
    assert found == {held.name: True, ended.name: False, "baseload-nobody": False}
