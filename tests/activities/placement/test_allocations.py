"""Allocations: each is notified, confirmed, withdrawn and released by its own id."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import event

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.record import record
from activities.placement.planning import (
    _not_notified,
    _set_notified,
    find_placement,
    plan_placements,
)
from activities.placement.withdrawals import withdraw_allocations
from tests.activities.placement.rows import add_gpu_node, add_waiting_job, assert_books_agree, live
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.jobs import Placement
from workflows.contracts.lifecycles import JobChanges, Record, Recorded
from workflows.contracts.statuses import AllocationState, JobStatus
from workflows.effects.jobs import FindPlacement
from workflows.effects.placement import PlanPlacements, WithdrawAllocations


class World:
    """A job that waits, and a node with room for it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            account = add_payer(session)
            add_credits(session, account, 1, "first", NOW)
            self.region = add_region(session, account)
            self.node = add_gpu_node(session, self.region, "one", gpus=1)
            self.job = add_waiting_job(session, account)

    def placed(self) -> Placement:
        """The job's placement, as it is about to be notified of it."""
        assert plan_placements(PlanPlacements()).placed == 1
        (placement,) = _not_notified(10)
        return placement

    def add_node(self, name: str) -> tables.Node:
        with self.database.write() as session:
            return add_gpu_node(session, self.region, name, gpus=1)

    def close(self, node: tables.Node) -> None:
        """The node's machine is lost, and what it holds for jobs is withdrawn."""
        with self.database.write() as session:
            session.get_one(tables.Node, node.id).status = "offline"
        command = WithdrawAllocations(node_id=node.id, reason="its machine is gone", at=NOW)
        withdraw_allocations(command)

    def confirm(self, placement: Placement, sequence: int = 1) -> Recorded:
        """The first step of the job after its placement."""
        changes = JobChanges(confirms=placement.allocation_ids)
        return record(self._step(sequence, JobStatus.PROVISIONING, changes))

    def release(self) -> Recorded:
        return record(self._step(9, JobStatus.FAILED, JobChanges(release=True)))

    def _step(self, sequence: int, status: str, changes: JobChanges) -> Record:
        return Record(
            resource_id=self.job.id,
            account_id=self.job.account_id,
            sequence=sequence,
            at=NOW,
            status=status,
            changes=changes,
        )

    @property
    def status(self) -> str:
        with self.database.read() as session:
            return session.get_one(tables.Job, self.job.id).status

    def held(self) -> list[tuple[str, str]]:
        """The node and the state of each live allocation."""
        with self.database.read() as session:
            assert_books_agree(session)
            return [(each.node_id, each.state) for each in live(session)]


@pytest.fixture
def world(migrated: Database) -> World:
    return World(migrated)


def test_a_job_confirms_what_it_holds_and_nobody_withdraws_that(world: World) -> None:
    placement = world.placed()
    for _ in range(2):  # The answer to the first may have been lost.
        assert world.confirm(placement).confirmed
    _set_notified([placement], [])
    world.close(world.node)
    assert world.held() == [(world.node.id, AllocationState.RUNNING)]
    assert world.status == JobStatus.PROVISIONING
    assert _not_notified(10) == []


def test_a_job_that_is_notified_of_a_machine_while_it_is_lost_is_placed_anew(world: World) -> None:
    told = world.placed()
    world.close(world.node)
    _set_notified([told], [])
    assert world.confirm(told) == Recorded(applied=False, confirmed=False)
    assert (world.status, world.held()) == (JobStatus.WAITING_FOR_RESOURCES, [])
    other = world.add_node("two")
    again = world.placed()
    assert world.confirm(again, sequence=2).confirmed
    assert world.held() == [(other.id, AllocationState.RUNNING)]


def test_a_notification_that_was_marked_is_withdrawn_with_its_machine_as_well(world: World) -> None:
    told = world.placed()
    _set_notified([told], [])
    assert world.held() == [(world.node.id, AllocationState.NOTIFIED)]
    world.close(world.node)
    assert world.held() == []
    assert not world.confirm(told).confirmed


def test_a_late_mark_of_a_placement_does_not_touch_the_next_one(world: World) -> None:
    late = world.placed()
    world.close(world.node)
    other = world.add_node("two")
    assert plan_placements(PlanPlacements()).placed == 1
    _set_notified([late], [])
    (next_one,) = _not_notified(10)
    assert [each.node.node_id for each in next_one.assignments] == [other.id]
    assert world.held() == [(other.id, AllocationState.HELD)]
    assert next_one == find_placement(FindPlacement(job_id=world.job.id, attempt=1)).placement
    assert not world.confirm(late).confirmed
    assert world.confirm(next_one, sequence=2).confirmed


def at_once(*works: Callable[[], object]) -> list[BaseException]:
    """What each of these raises, when all run at the same time."""
    failures: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as cause:  # noqa: BLE001 - every failure of a thread counts
            failures.append(cause)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.parametrize("other", ["release", "confirm", "withdraw"])
@pytest.mark.parametrize("dialect", ["postgresql"])
def test_what_changes_the_allocations_of_a_job_at_once_does_not_deadlock(
    world: World, other: str
) -> None:
    placement = world.placed()
    both_hold_a_lock = threading.Barrier(2, timeout=0.5)

    def meet(*arguments: object) -> None:
        """After the first statement that locks rows of jobs or allocations, wait for the other."""
        statement = str(arguments[2])
        changes = statement.startswith("UPDATE") or "FOR UPDATE" in statement
        mine = threading.current_thread()
        if changes and getattr(mine, "has_met", None) is None:
            setattr(mine, "has_met", True)  # noqa: B010 - a mark of this test's own
            try:
                both_hold_a_lock.wait()
            except threading.BrokenBarrierError:
                return  # The other waits for this one's lock, as it should.

    works: dict[str, Callable[[], object]] = {
        "release": world.release,
        "confirm": lambda: world.confirm(placement),
        "withdraw": lambda: world.close(world.node),
    }
    engine = world.database._write
    event.listen(engine, "after_cursor_execute", meet)
    try:
        failures = at_once(lambda: _set_notified([placement], []), works[other])
    finally:
        event.remove(engine, "after_cursor_execute", meet)
    assert failures == []
