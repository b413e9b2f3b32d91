"""How the databases find devices: what runs for each device, step or tick reads no whole table."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, event, update
from sqlmodel import col

from activities.db import tables
from activities.db.session import Database
from activities.devices.assignments import find_assignment
from activities.devices.rollouts import (
    advance_rollout,
    end_rollout,
    roll_back,
    supersede_waiting,
)
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.lifecycles.reconciliation import _ended_rows, _open_rows
from activities.lifecycles.record import record
from api.pagination import PageQuery
from api.routes.deployments import list_deployment_devices, list_deployments
from api.routes.devices import _filters, list_devices
from api.services.minions import device_of
from tests.activities.devices.many import Fleet, add_fleet
from tests.activities.rows import NOW, add_payer
from workflows.contracts.deployments import RolloutPolicy
from workflows.contracts.devices import (
    AssignmentOutcome,
    DeviceAssignment,
    DeviceRun,
    InferenceStatus,
)
from workflows.contracts.lifecycles import DeviceChanges, Record
from workflows.effects.deployments import AdvanceRollout, EndRollout, RollBack
from workflows.effects.devices import FindAssignment

DEVICES, SOME = 3000, 20
TABLES = ("devices", "deployment_targets", "device_deployments")
Asked = tuple[str, Any]


@contextmanager
def asked_of_devices() -> Iterator[list[Asked]]:
    """The questions about devices that are asked in the block, each with its values."""
    found: list[Asked] = []

    def note(*said: Any) -> None:
        statement, values = said[2], said[3]
        is_question = statement.startswith(("SELECT", "UPDATE", "DELETE"))
        if is_question and any(name in statement for name in TABLES):
            found.append((statement, values[0] if isinstance(values, list) else values))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def whole_tables(database: Database, asked: Asked) -> list[str]:
    """The parts of a question's plan that read every row of one of these tables."""
    statement, values = asked
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN (FORMAT JSON)"
    with database.connection() as connection:
        plan = connection.exec_driver_sql(f"{explain} {statement}", values).fetchall()
    if database.is_sqlite:
        # A scan of an index reads every row as well.
        return [row[3] for row in plan if row[3].startswith(tuple(f"SCAN {t}" for t in TABLES))]
    (found,) = plan[0][0]
    return [json.dumps(part) for part in _parts(found["Plan"]) if _reads_all(part)]


def _parts(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield part
    for each in part.get("Plans", ()):
        yield from _parts(each)


def _reads_all(part: dict[str, Any]) -> bool:
    is_scan = part["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan")
    return is_scan and part.get("Relation Name") in TABLES and "Index Cond" not in part


class Life:
    """What happens for one device, one deployment, or at a tick, in a database with many."""

    def __init__(self, database: Database, fleet: Fleet) -> None:
        self.database = database
        self.fleet = fleet
        self.device_id = fleet.device_ids[DEVICES // 2]
        self.deployment_id = fleet.deploy(database, SOME)
        self.sequence = 9

    def find_assignment(self) -> None:
        assert find_assignment(FindAssignment(device_id=self.device_id)).assignment

    def observed(self) -> None:
        run = DeviceRun(number=1, status=InferenceStatus.FAILED, exit_code=1)
        self._record(DeviceChanges(run=run))

    def came_to_an_end(self) -> None:
        assignment = DeviceAssignment(
            number=1, configuration_id=self.fleet.configuration.id, revision=2,
            deployment_id=self.fleet.deployment_ids[0],
        )  # fmt: skip
        outcome = AssignmentOutcome(assignment=assignment)
        self._record(DeviceChanges(outcome=outcome, run=DeviceRun(number=1)))

    def removed(self) -> None:
        self._record(DeviceChanges(), "archived")

    def stopped(self) -> None:
        with self.database.write() as session:
            supersede_waiting(session, [self.device_id], NOW)

    def announced(self) -> None:
        account = self.fleet.configuration.account_id
        with self.database.read() as session:
            assert device_of(session, f"SHA256:{self.device_id}", account)

    def rolled_out(self) -> None:
        policy = RolloutPolicy(max_unavailable=5)
        for _ in range(2):
            state = advance_rollout(
                AdvanceRollout(deployment_id=self.deployment_id, policy=policy, asks=True, at=NOW)
            )
        assert (state.counts.asked, state.counts.waiting) == (5, SOME - 5)

    def rolled_back(self) -> None:
        roll_back(RollBack(deployment_id=self.deployment_id, at=NOW))

    def ended(self) -> None:
        end_rollout(EndRollout(deployment_id=self.deployment_id, at=NOW))

    def reconciled(self) -> None:
        for kind, resource_id in (
            (KIND_BY_NOUN["device"], self.device_id),
            (KIND_BY_NOUN["deployment"], self.deployment_id),
        ):
            _open_rows(kind, resource_id, 200)
            _ended_rows(kind, [resource_id])

    def listed(self) -> None:
        caller = self.fleet.caller
        paging = PageQuery(limit=50, before=None)
        for _ in range(2):
            page = list_devices(caller, paging, _filters(self.fleet.configuration.region_id))
            assert len(page.items) == 50
            paging = PageQuery(limit=50, before=page.items[-1].id)
        paging = PageQuery(limit=50, before=self.deployment_id)
        assert len(list_deployments(caller, paging).items) == 50
        paging = PageQuery(limit=5, before=None)
        assert len(list_deployment_devices(self.deployment_id, caller, paging, "asked").items) == 5

    def _record(self, changes: DeviceChanges, status: str = "active") -> None:
        self.sequence += 1
        step = Record(
            resource_id=self.device_id,
            account_id=self.fleet.configuration.account_id,
            sequence=self.sequence,
            at=datetime.now(UTC),
            status=status,
            changes=changes,
        )
        assert record(step).applied


@pytest.fixture
def life(migrated: Database) -> Life:
    """Half of the devices are another account's."""
    life = Life(migrated, add_fleet(migrated, DEVICES, ended=2))
    with migrated.write() as session:
        other = add_payer(session, "other")
        is_first_half = col(tables.Device.id) < life.device_id
        session.execute(update(tables.Device).where(is_first_half).values(account_id=other.id))
    with migrated.connection() as connection:
        connection.exec_driver_sql("ANALYZE")
    return life


PARTS: tuple[Callable[[Life], None], ...] = (
    *(Life.find_assignment, Life.observed, Life.came_to_an_end, Life.stopped, Life.announced),
    *(Life.rolled_out, Life.reconciled, Life.listed),
    *(Life.rolled_back, Life.ended, Life.removed),
)


def test_nothing_that_is_asked_for_one_device_or_at_a_tick_reads_a_whole_table(life: Life) -> None:
    """By the plans of SQLite and PostgreSQL, both of which know how many rows there are."""
    found = {}
    for part in PARTS:
        with asked_of_devices() as questions:
            part(life)
        assert questions, part.__name__
        for each in dict(questions).items():
            if scans := whole_tables(life.database, each):
                found[f"{part.__name__}: {each[0]}"] = scans
    assert not found, "\n".join(f"{question}\n  {scans}" for question, scans in found.items())
