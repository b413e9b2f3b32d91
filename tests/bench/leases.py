"""What the sweep of machines costs, beside one bare question for the same rows."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Engine, event
from sqlmodel import select
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.leases.reconciliation import reconcile_machines
from tests.activities.leases.rows import Books, lease_row
from tests.activities.providers.fake_driver import Owned, RentedDriver
from tests.activities.providers.kinds import kind_with
from tests.bench.home import home
from tests.bench.measure import Row, best_s, both_best_s, compared, ms
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import LeaseStatus, MachineState, ProviderKind
from workflows.effects.reconciliation import ReconcileMachines

MACHINES = 5_000
STRAYS = 500
RUNNING = MachineObservation(state=MachineState.RUNNING, zone="zone-a")


def rows() -> list[Row]:
    """On SQLite; the provider is in memory, so that what is measured is ours."""
    driver = RentedDriver()
    logging.getLogger("temporalio.activity").setLevel(logging.ERROR)  # a line for each it ends
    with home() as (_, opened), kind_with(driver=lambda _: driver):
        books = Books(opened)
        _fill(opened, books, driver)
        return [_all_held(opened, books), _with_strays(opened, books, driver)]


def _fill(opened: Database, books: Books, driver: RentedDriver) -> None:
    with opened.write() as session:
        for _ in range(MACHINES):
            row = lease_row(books, new_id("lea"), LeaseStatus.READY)
            session.add(row)
            driver.machines[Owned(row.name, "zone-a")] = RUNNING


def _all_held(opened: Database, books: Books) -> Row:
    def read_rows() -> None:
        with opened.read() as session:
            session.exec(select(tables.Lease.id, tables.Lease.name, tables.Lease.status)).all()

    with _counted() as questions:
        _sweep(books)
        asked = len(questions)
    seconds, bare = both_best_s(partial(_sweep, books), read_rows)
    amount = f"{MACHINES:,} machines, {asked} questions to the database"
    return compared("sweep machines that are held", amount, seconds, "one bare question", bare)


def _with_strays(opened: Database, books: Books, driver: RentedDriver) -> Row:
    with opened.write() as session:
        for _ in range(STRAYS):
            row = lease_row(books, new_id("lea"), LeaseStatus.RELEASED)
            session.add(row)
            driver.machines[Owned(row.name, "zone-a")] = RUNNING
    with _counted() as questions:
        seconds = best_s(partial(_sweep, books), runs=1)
    left = len(driver.machines) - MACHINES
    return Row(
        f"sweep {MACHINES + STRAYS:,} machines, {STRAYS} of them nobody's",
        f"{ms(seconds)}, {left} left",
        f"{len(questions)} questions to the database",
    )


def _sweep(books: Books) -> None:
    command = ReconcileMachines(provider_id=books.provider_id, provider_kind=ProviderKind.GCP)
    asyncio.run(ActivityEnvironment().run(reconcile_machines, command))


@contextmanager
def _counted() -> Iterator[list[str]]:
    found: list[str] = []

    def note(*asked: Any) -> None:
        if asked[2].startswith("SELECT"):
            found.append(asked[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)
