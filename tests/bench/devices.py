"""What 10,000 devices cost in rows, on SQLite and on PostgreSQL, beside one bare question."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Engine, event
from sqlmodel import select

from activities.db import tables
from activities.db.session import Database
from activities.devices.assignments import find_assignment
from activities.devices.rollouts import advance_rollout
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.lifecycles.reconciliation import _open_rows
from activities.lifecycles.record import record
from api.pagination import PageQuery
from api.routes.devices import _filters, list_devices
from tests.activities.devices.many import Fleet, add_fleet
from tests.bench.home import home
from tests.bench.measure import Row, best_s, ms
from tests.bench.stack import scaled
from tests.postgresql_server import PostgresqlServer
from workflows.contracts.deployments import RolloutPolicy
from workflows.contracts.devices import (
    AssignmentOutcome,
    DeviceAssignment,
    DeviceRun,
    InferenceStatus,
)
from workflows.contracts.lifecycles import DeviceChanges, Record
from workflows.effects.deployments import AdvanceRollout
from workflows.effects.devices import FindAssignment

DEVICES = 10_000
AT_ONCE = 1000
PAGE = 500


def rows() -> list[Row]:
    """In this process, without Temporal."""
    measured: list[Row] = []
    with home(secrets_key="11" * 32) as (_, opened):
        measured += _rows("SQLite", opened)
    try:
        server = PostgresqlServer()
    except FileNotFoundError as missing:
        return [*measured, Row("PostgreSQL: devices in rows", "not measured", str(missing))]
    server.start()
    try:
        address = server.url(server.create())
        with home(secrets_key="11" * 32, database_url=address) as (_, opened):
            measured += _rows("PostgreSQL", opened)
    finally:
        server.stop()
    return measured


def _rows(database: str, opened: Database) -> list[Row]:
    count = scaled(DEVICES)
    fleet = add_fleet(opened, count, ended=2)
    with opened.connection() as connection:
        connection.exec_driver_sql("ANALYZE")
    life = _Life(opened, fleet)
    deployment_id = fleet.deploy(opened, count)
    step = partial(life.advance, deployment_id)
    works: tuple[tuple[str, Callable[[], object], int], ...] = (
        (f"a rollout's first step, which asks {AT_ONCE:,} of {count:,}", step, 1),
        (f"a rollout's next step, which asks none of {count:,}", step, 3),
        ("what is due of one device", life.find, 30),
        ("one device has changed what it does", life.observe, 30),
        ("one device says again what its assignment came to", life.end, 30),
        ("a page of 50 of the list of devices", life.page, 10),
        (f"the reconciliation reads all {count:,} rows, every 5 minutes", life.reconcile, 3),
    )
    bare_s = best_s(life.bare, 30)
    beside = f"one row by its key: {ms(bare_s)}"
    return [
        _row(f"{database}, {count:,} devices: {what}", beside, work, runs)
        for what, work, runs in works
    ]


def _row(name: str, beside: str, work: Callable[[], object], runs: int) -> Row:
    with _counted() as questions:
        seconds = best_s(work, runs)
    return Row(name, f"{ms(seconds)}, {len(questions) // runs:,} statements", beside)


class _Life:
    """What happens for one device, for a rollout, and at a tick."""

    def __init__(self, database: Database, fleet: Fleet) -> None:
        self.database = database
        self.fleet = fleet
        self.device_id = fleet.device_ids[len(fleet.device_ids) // 2]
        self.sequence = 9

    def bare(self) -> None:
        with self.database.read() as session:
            session.exec(
                select(tables.Device.status).where(tables.Device.id == self.device_id)
            ).one()

    def advance(self, deployment_id: str) -> None:
        policy = RolloutPolicy(max_unavailable=AT_ONCE)
        command = AdvanceRollout(
            deployment_id=deployment_id, policy=policy, asks=True, at=datetime.now(UTC)
        )
        advance_rollout(command)

    def find(self) -> None:
        find_assignment(FindAssignment(device_id=self.device_id))

    def observe(self) -> None:
        self._record(DeviceChanges(run=DeviceRun(number=1, status=InferenceStatus.RUNNING)))

    def end(self) -> None:
        assignment = DeviceAssignment(
            number=1,
            configuration_id=self.fleet.configuration.id,
            revision=1,
            deployment_id=self.fleet.deployment_ids[0],
        )
        outcome = AssignmentOutcome(assignment=assignment)
        self._record(DeviceChanges(run=DeviceRun(number=1), outcome=outcome))

    def page(self) -> None:
        list_devices(self.fleet.caller, PageQuery(limit=50, before=None), _filters())

    def reconcile(self) -> None:
        after = ""
        while found := _open_rows(KIND_BY_NOUN["device"], after, PAGE):
            after = max(found)

    def _record(self, changes: DeviceChanges) -> None:
        self.sequence += 1
        step = Record(
            resource_id=self.device_id,
            account_id=self.fleet.configuration.account_id,
            sequence=self.sequence,
            at=datetime.now(UTC),
            status="active",
            changes=changes,
        )
        record(step)


@contextmanager
def _counted() -> Iterator[list[Any]]:
    found: list[Any] = []

    def note(*asked: Any) -> None:
        found.append(asked[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)
