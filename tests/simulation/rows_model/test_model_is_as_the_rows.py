"""The same calls of the model and of the real activities on SQLite: equal answers, equal rows.

The activities that need no server are called: steps, planning rounds, placements, withdrawals,
usage, orphaned runs, and what nodes and regions read.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, cast

import pytest
from sqlmodel import col, select

from activities.billing import job_billing, orphaned_runs
from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.jobs.submissions import stored_spec
from activities.lifecycles import dependents
from activities.lifecycles.record import record
from activities.nodes import running_jobs
from activities.outbox.requests import create
from activities.placement import planning, withdrawals
from tests.simulation.contracts import Outside
from tests.simulation.rows_model import ModelRows
from tests.simulation.rows_model.records import Job, LifecycleRow, Node, Region
from tests.simulation.rows_model.scripted import ATTEMPT, hardware, submission
from tests.simulation.rows_model.temporal_double import TemporalDouble
from workflows.contracts.base import Contract
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.events import Event
from workflows.contracts.jobs import Placement, run_id
from workflows.contracts.lifecycles import (
    Changes,
    JobChanges,
    NodeChanges,
    ProviderChanges,
    Record,
    RegionChanges,
)
from workflows.contracts.nodes import Preparation, RunSeen
from workflows.effects.billing import PostUsage
from workflows.effects.jobs import FindPlacement
from workflows.effects.lifecycles import FindDependents
from workflows.effects.nodes import BillOrphanedRuns, FindNodeRuns
from workflows.effects.placement import PlanPlacements, WithdrawAllocations

REAL: dict[str, Callable[[Any], Any]] = {
    "record": record,
    "plan_placements": planning.plan_placements,
    "find_placement": planning.find_placement,
    "withdraw_allocations": withdrawals.withdraw_allocations,
    "post_usage": job_billing.post_usage,
    "bill_orphaned_runs": orphaned_runs.bill_orphaned_runs,
    "find_node_runs": running_jobs.find_node_runs,
    "find_dependents": dependents.find_dependents,
}
STEPS = 60


@pytest.fixture
def dialect() -> str:
    return "sqlite"


class Pair:
    """One installation twice; both are asked the same, and their answers are compared."""

    def __init__(self, database: Database, random: Random) -> None:
        self.database = database
        self.random = random
        self.temporal = TemporalDouble()
        self.model = ModelRows(self.temporal, cast("Outside", None))
        self.sequences: dict[str, int] = {}
        self.jobs: list[str] = []
        self.attempts: dict[str, int] = {}
        self._tick()
        self.account = self.model.add_account(10**9)
        self._copy_account()
        self.provider = self._made(self.model.add_provider(self.account, "physical"))
        self.step(self.provider, "ready", ProviderChanges())
        self.region = self._made(self.model.add_region(self.provider))
        self.step(self.region, "healthy", RegionChanges())
        self.nodes = [self._add_node(gpus) for gpus in (1, 2, 4)]

    def _tick(self) -> None:
        self.temporal.at = datetime.now(UTC)

    # ── both ────────────────────────────────────────────────────────────────────────────────

    def both(self, effect: str, ours: Contract, theirs: Contract | None = None) -> Any:
        """The answer of the model, which the real activity gives as well."""
        self._tick()
        model = _outcome(lambda: self.model.effects[effect](ATTEMPT, ours))
        real = _outcome(lambda: REAL[effect](theirs or ours))
        assert _shown(model) == _shown(real), effect
        return model

    def step(
        self,
        resource_id: str,
        status: str,
        ours: Changes,
        theirs: Changes | None = None,
        *,
        number: int | None = None,
        run: str = "run-1",
    ) -> Any:
        sequence = number or self.sequences.get(resource_id, 0) + 1
        self._tick()

        def written(changes: Changes) -> Record:
            return Record(
                resource_id=resource_id,
                account_id=self.account,
                sequence=sequence,
                at=self.temporal.now(),
                status=status,
                events=(Event(type="job.waiting", message="it waits"),),
                changes=changes,
                run_id=run,
                history_length=self.random.randrange(9),
            )

        mine = written(ours)
        copied = mine.model_copy(update={"changes": theirs or ours})
        answer = self.both("record", mine, copied)
        if getattr(answer, "applied", False):
            self.sequences[resource_id] = sequence
        return answer

    # ── the same rows ───────────────────────────────────────────────────────────────────────

    def _copy_account(self) -> None:
        account, now = self.model.tables.accounts[self.account], self.temporal.now()
        with self.database.write() as session:
            row = tables.Account(
                id=account.id,
                name="one",
                personal_project_id=account.project_id,
                created_at=now,
                updated_at=now,
            )
            session.add(row)
            session.flush()
            session.add(
                tables.Project(
                    id=account.project_id,
                    account_id=account.id,
                    name="Personal",
                    created_at=now,
                    updated_at=now,
                )
            )
            session.flush()
            add_credits(session, row, 10**9, "grant-000001", now)

    def _made(self, resource_id: str) -> str:
        row = self.model.tables.row(resource_id)
        with self.database.write() as session:
            create(session, _copied(row))
        return resource_id

    def _add_node(self, gpus: int) -> str:
        minion_id = f"SHA256:{gpus}"
        node_id = self._made(self.model.add_node(self.region, minion_id))
        found = NodeChanges(
            host=f"10.0.0.{gpus}",
            hardware=hardware(gpus),
            preparation=Preparation(job_user="job"),
        )
        self.step(node_id, "active", found)
        return node_id

    # ── what happens ────────────────────────────────────────────────────────────────────────

    def submit(self) -> None:
        self._tick()
        asked = submission(self.random.choice((0, 1, 1, 2, 8)), self.random.choice((1, 1, 2)))
        job_id = self._made(self.model.submit(self.account, asked))
        self.jobs.append(job_id)
        self.attempts[job_id] = 1
        self.wait(job_id)

    def wait(self, job_id: str) -> None:
        changes = JobChanges(attempt=self.attempts[job_id])
        self.step(job_id, "waiting_for_resources", changes)

    def plan(self) -> None:
        self.both("plan_placements", PlanPlacements())

    def placements(self, job_id: str) -> tuple[Placement | None, Placement | None]:
        """Of the model and of the rows, which differ in nothing but the ids of allocations."""
        command = FindPlacement(job_id=job_id, attempt=self.attempts[job_id])
        mine = self.model.effects["find_placement"](ATTEMPT, command)
        real = planning.find_placement(command)
        assert _shown(mine) == _shown(real)
        return cast("Any", mine).placement, real.placement

    def confirm(self, job_id: str) -> None:
        mine, real = self.placements(job_id)
        if mine is None or real is None:
            return
        ours = JobChanges(attempt=mine.attempt, confirms=mine.allocation_ids)
        theirs = JobChanges(attempt=real.attempt, confirms=real.allocation_ids)
        self.step(job_id, "provisioning", ours, theirs)
        self.step(job_id, "running", JobChanges())

    def release(self, job_id: str) -> None:
        mine, real = self.placements(job_id)
        leaves = self.random.random() < 0.4
        ours = mine.allocation_ids[:1] if mine and leaves else ()
        theirs = real.allocation_ids[:1] if real and leaves else ()
        status = self.random.choice(("finished", "waiting_for_resources"))
        if status == "waiting_for_resources":
            self.attempts[job_id] += 1
        values = {"attempt": self.attempts[job_id], "release": True, "log_bytes": 7}
        self.step(
            job_id,
            status,
            JobChanges(**values, leaving=ours),
            JobChanges(**values, leaving=theirs),
        )

    def use(self, job_id: str) -> None:
        job = self.model.tables.jobs[job_id]
        usage = WorkerUsage(
            job_id=self.random.choice((job_id, job_id, job_id, "job-999999")),
            worker=0,
            attempt=self.random.choice((1, self.attempts[job_id])),
            started_at=job.created_at,
            through_s=self.random.randrange(60),
        )
        self.both("post_usage", PostUsage(usages=(usage,)))

    def end_run(self, job_id: str) -> None:
        attempt = self.random.randint(1, self.attempts[job_id])
        run = RunSeen(
            run_id=run_id(job_id, 0, attempt),
            job_id=job_id,
            worker=0,
            attempt=attempt,
            elapsed_s=self.random.randrange(50),
            alive=self.random.choice(("", "", "a process")),
        )
        command = BillOrphanedRuns(node_id=self.random.choice(self.nodes), runs=(run,))
        self.both("bill_orphaned_runs", command)

    def withdraw(self, _: str) -> None:
        node_id = self.random.choice(self.nodes)
        command = WithdrawAllocations(node_id=node_id, reason="gone", at=self.temporal.now())
        self.both("withdraw_allocations", command)

    def repeat(self, job_id: str) -> None:
        """A step that the row has, or that comes late."""
        number = max(1, self.sequences[job_id] - self.random.randrange(2))
        run = self.random.choice(("run-1", "run-2", ""))
        self.step(job_id, "running", JobChanges(), number=number, run=run)

    def change_node(self, _: str) -> None:
        node_id = self.random.choice(self.nodes)
        status = self.random.choice(("active", "active", "maintenance", "offline"))
        self.step(node_id, status, NodeChanges())

    def read(self, _: str) -> None:
        for node_id in self.nodes:
            self.both("find_node_runs", FindNodeRuns(node_id=node_id))
            self.both("find_dependents", FindDependents(resource_id=node_id))
        self.both("find_dependents", FindDependents(resource_id=self.region))
        self.both("find_dependents", FindDependents(resource_id=self.provider))

    # ── what is left ────────────────────────────────────────────────────────────────────────

    def compare(self) -> None:
        mine = self.model.tables
        with self.database.read() as session:
            held = session.exec(select(tables.Allocation)).all()
            assert _sorted(_allocation(row) for row in mine.allocations.values()) == _sorted(
                _allocation(row) for row in held
            )
            jobs = session.exec(select(tables.Job).order_by(col(tables.Job.id))).all()
            assert [_job(row) for row in mine.jobs.values()] == [_job(row) for row in jobs]
            nodes = session.exec(select(tables.Node).order_by(col(tables.Node.id))).all()
            assert [_node(row) for row in mine.nodes.values()] == [_node(row) for row in nodes]
            meters = session.exec(select(tables.UsageMeter)).all()
            assert _sorted(_meter(row) for row in mine.meters.values()) == _sorted(
                _meter(row) for row in meters
            )
            rows = session.exec(select(tables.LedgerAccount)).all()
            balances = {row.name: row.balance_microcredits for row in rows}
            assert self.model.ledger.balances == balances
            asked = session.exec(select(tables.OutboxRow)).all()
            assert _sorted((row.resource_id, row.verb) for row in mine.outbox.values()) == _sorted(
                (row.resource_id, row.verb) for row in asked
            )
            events = session.exec(select(tables.EventRow)).all()
            of_all = (*mine.events.values(), *mine.account_events.values())
            assert _sorted(_event(one) for of in of_all for one in of) == _sorted(
                _event(one) for one in events
            )
        assert self.model.violations() == []


@pytest.mark.parametrize("seed", range(3))
def test_the_model_answers_and_leaves_what_the_rows_do(migrated: Database, seed: int) -> None:
    random = Random(seed)
    pair = Pair(migrated, random)
    pair.submit()
    acts = (
        (pair.confirm, 6),
        (pair.release, 3),
        (pair.use, 2),
        (pair.end_run, 2),
        (pair.withdraw, 1),
        (pair.repeat, 2),
        (pair.change_node, 1),
        (pair.read, 1),
    )
    for number in range(STEPS):
        if number % 5 == 0 and len(pair.jobs) < 12:
            pair.submit()
        if number % 2 == 0:
            pair.plan()
        act = random.choices([each for each, _ in acts], [weight for _, weight in acts])[0]
        act(random.choice(pair.jobs))
    pair.compare()


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as failure:  # noqa: BLE001 - whatever one raises, the other raises as well
        return getattr(failure, "type", type(failure).__name__)


def _shown(answer: Any) -> Any:
    """The answer without the ids of allocations, which are drawn."""
    if isinstance(answer, str):
        return answer
    shown = answer.model_dump(mode="json")
    for one in (shown.get("placement") or {}).get("assignments", ()):
        one.pop("allocation_id")
    return shown


def _copied(row: LifecycleRow) -> tables.LifecycleRow:
    """The row as the API writes it."""
    common = {
        name: getattr(row, name)
        for name in ("id", "account_id", "name", "created_at", "updated_at")
    }
    if isinstance(row, Job):
        names = ("project_id", "type", "priority", "demand_key", "waiting_since")
        own = {name: getattr(row, name) for name in names}
        spec = stored_spec(row.spec)
        return tables.Job(**common, **own, spec=spec, workers=[], placement_refusals=[])
    if isinstance(row, Node):
        own = {name: getattr(row, name) for name in ("region_id", "minion_id", "host")}
        services = list(row.services)
        return tables.Node(**common, **own, services=services, requirements=[])
    if isinstance(row, Region):
        own = {name: getattr(row, name) for name in ("provider_id", "provider_kind")}
        relaxed = list(row.relaxed_requirements)
        return tables.Region(**common, **own, relaxed_requirements=relaxed, options={})
    return tables.Provider(**common, kind=cast("Any", row).kind, checks=[])


def _allocation(row: Any) -> tuple[Any, ...]:
    run = (row.job_id, row.attempt, row.worker)
    held = (row.cpu_count, row.memory_bytes, tuple(row.gpu_indices), row.port)
    told = (row.notified_at is None, row.released_at is None)
    return (*run, row.node_id, str(row.state), held, told)


def _job(row: Any) -> tuple[Any, ...]:
    codes = tuple(
        each["code"] if isinstance(each, dict) else each.code for each in row.placement_refusals
    )
    charged = (row.charged_microcredits, row.gpu_seconds, row.log_bytes)
    return (row.id, str(row.status), row.attempt, row.sequence, charged, codes, row.waiting_since)


def _node(row: Any) -> tuple[Any, ...]:
    total = (row.gpu_type, row.gpu_count, row.cpu_count, row.memory_bytes)
    reserved = (row.reserved_cpu_count, row.reserved_memory_bytes)
    return (row.id, str(row.status), row.sequence, total, reserved)


def _meter(row: Any) -> tuple[Any, ...]:
    run = (row.job_id, row.attempt, row.worker)
    return (*run, row.posted_s, row.posted_microcredits, row.running, row.microcredits_per_hour)


def _event(row: Any) -> tuple[Any, ...]:
    return (row.resource_id, row.sequence, row.index, row.type)


def _sorted(found: Any) -> Sequence[Any]:
    return sorted(found, key=repr)
