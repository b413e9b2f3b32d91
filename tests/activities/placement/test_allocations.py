"""Allocations: each is notified, confirmed, withdrawn and released by its own id."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import event
from sqlmodel import col, select

from activities.billing.ledger import add_credits
from activities.billing.orphaned_runs import bill_orphaned_runs
from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.dependents import dependents_of
from activities.lifecycles.record import record
from activities.nodes.running_jobs import find_node_runs
from activities.placement import inventory
from activities.placement.allocations import release_allocations
from activities.placement.planning import (
    _not_notified,
    _set_notified,
    find_placement,
    plan_placements,
)
from activities.placement.withdrawals import withdraw_allocations
from tests.activities.placement.rows import (
    add_gpu_node,
    add_waiting_job,
    assert_books_agree,
    live,
    refusals,
)
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.jobs import Placement, run_id
from workflows.contracts.lifecycles import JobChanges, NodeChanges, Record, Recorded
from workflows.contracts.nodes import LeavingRun, RunSeen
from workflows.contracts.statuses import AllocationState, JobStatus, NodeStatus, NodeType
from workflows.effects.jobs import FindPlacement
from workflows.effects.nodes import BillOrphanedRuns, FindNodeRuns
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

    def release(self, *leaving: str) -> Recorded:
        """The last step of the job. leaving: the allocations whose runs nobody has seen end."""
        changes = JobChanges(release=True, leaving=leaving)
        return record(self._step(9, JobStatus.FAILED, changes))

    def left(self) -> Placement:
        """The job has ended, and nobody has seen its run end."""
        placement = self.placed()
        self.confirm(placement)
        self.release(*placement.allocation_ids)
        return placement

    def report(self, node: tables.Node, elapsed_s: float, alive: str = "") -> None:
        """What a node tells of the job's run."""
        name = run_id(self.job.id, 0, 1)
        seen = RunSeen(
            run_id=name, job_id=self.job.id, worker=0, attempt=1, elapsed_s=elapsed_s, alive=alive
        )
        bill_orphaned_runs(BillOrphanedRuns(node_id=node.id, runs=(seen,)))

    def was_placed(self, ago: timedelta) -> None:
        """Let so much time have passed since the placement."""
        with self.database.write() as session:
            held = session.exec(
                select(tables.Allocation).where(col(tables.Allocation.job_id) == self.job.id)
            ).one()
            held.created_at -= ago

    @property
    def posted_s(self) -> list[int]:
        with self.database.read() as session:
            return [each.posted_s for each in session.exec(select(tables.UsageMeter))]

    def archive(self, node: tables.Node, sequence: int = 5) -> None:
        """The last step of a node."""
        step = Record(
            resource_id=node.id,
            account_id=node.account_id,
            sequence=sequence,
            at=NOW,
            status=NodeStatus.ARCHIVED,
            changes=NodeChanges(),
        )
        record(step)

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


def test_a_run_that_nobody_has_seen_end_keeps_its_gpu_which_is_not_offered(world: World) -> None:
    world.left()
    assert world.held() == [(world.node.id, AllocationState.LEAVING)]
    with world.database.write() as session:
        other = add_waiting_job(session, session.get_one(tables.Account, world.job.account_id))
    assert plan_placements(PlanPlacements()).placed == 0
    with world.database.read() as session:
        (asked,) = session.exec(select(tables.OutboxRow)).all()
    assert [code for code, _ in refusals(world.database, other)] == ["gpu-count"]
    assert (asked.resource_id, asked.verb) == (world.node.id, "refresh")


def test_what_is_left_is_the_node_s_and_no_job_s_any_more(world: World) -> None:
    world.left()
    name = run_id(world.job.id, 0, 1)
    found = find_node_runs(FindNodeRuns(node_id=world.node.id))
    assert (found.run_ids, found.job_ids) == ((), ())
    assert found.leaving == (LeavingRun(run_id=name, gpu_indices=(0,)),)
    assert find_placement(FindPlacement(job_id=world.job.id, attempt=1)).placement is None
    with world.database.read() as session:
        assert inventory.held(session).weights == {}
        assert dependents_of(session, world.node.id) == []


def test_the_end_of_the_run_bills_it_to_its_end_and_frees_it_at_once(world: World) -> None:
    world.left()
    world.was_placed(timedelta(hours=3))
    world.report(world.node, 60, alive="still alive: [7]")
    assert (world.held(), world.posted_s) == ([(world.node.id, "leaving")], [60])
    world.report(world.add_node("two"), 3600)
    assert world.held() == [(world.node.id, "leaving")], "another node has not seen it end"
    for _ in range(2):
        world.report(world.node, 7200)
    assert (world.held(), world.posted_s) == ([], [7200])


def test_what_is_billed_and_what_is_freed_at_the_end_of_a_run_are_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.left()

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("activities.billing.orphaned_runs.free_allocations", fail)
        with pytest.raises(OSError, match="full"):
            world.report(world.node, 7200)
    assert (world.held(), world.posted_s) == ([(world.node.id, "leaving")], [])


def test_a_run_that_is_not_on_its_node_any_more_frees_what_it_held(world: World) -> None:
    world.left()
    world.report(world.node, 0)
    assert (world.held(), world.posted_s) == ([], [])


@pytest.mark.parametrize("is_archived_first", [True, False])
def test_a_node_that_is_removed_holds_nothing_for_what_ran_there(
    world: World, is_archived_first: bool
) -> None:
    placement = world.placed()
    world.confirm(placement)
    if is_archived_first:
        world.archive(world.node)
        assert world.held() == [(world.node.id, AllocationState.RUNNING)]
    world.release(*placement.allocation_ids)
    if not is_archived_first:
        assert world.held() == [(world.node.id, AllocationState.LEAVING)]
        world.archive(world.node)
    assert world.held() == []


def test_a_node_that_was_made_for_a_job_ends_although_its_run_was_not_seen_to_end(
    world: World,
) -> None:
    with world.database.write() as session:
        session.get_one(tables.Node, world.node.id).type = NodeType.EPHEMERAL
        session.add(
            tables.Allocation(
                id="alc-1", job_id=world.job.id, worker=0, attempt=1, node_id=world.node.id,
                cpu_count=2, memory_bytes=0, gpu_indices=[], created_at=NOW,
            )
        )  # fmt: skip
        session.get_one(tables.Node, world.node.id).reserved_cpu_count = 2
    world.release("alc-1")
    with world.database.read() as session:
        asked = [row.verb for row in session.exec(select(tables.OutboxRow))]
    assert sorted(asked) == ["refresh", "remove"]


def test_the_next_attempt_of_the_job_leaves_what_is_left_of_the_first_alone(world: World) -> None:
    world.left()
    other = world.add_node("two")
    with world.database.write() as session:
        job = session.get_one(tables.Job, world.job.id)
        job.status, job.attempt = JobStatus.WAITING_FOR_RESOURCES, 2
    again = world.placed()
    assert [each.node.node_id for each in again.assignments] == [other.id]
    assert world.confirm(again, sequence=10).confirmed
    with world.database.write() as session:
        release_allocations(session, world.job.id, NOW)
    assert world.held() == [(world.node.id, AllocationState.LEAVING)]


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mark", "release"),
        ("mark", "confirm"),
        ("mark", "withdraw"),
        ("release", "archive"),
        ("withdraw", "archive"),
        ("bill", "archive"),
    ],
)
@pytest.mark.parametrize("dialect", ["postgresql"])
def test_what_changes_the_allocations_of_a_job_at_once_does_not_deadlock(
    world: World, one: str, other: str
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

    if one == "bill":
        world.confirm(placement)
        world.release(*placement.allocation_ids)
    works: dict[str, Callable[[], object]] = {
        "mark": lambda: _set_notified([placement], []),
        "bill": lambda: world.report(world.node, 60),
        "release": world.release,
        "confirm": lambda: world.confirm(placement),
        "withdraw": lambda: world.close(world.node),
        "archive": lambda: world.archive(world.node),
    }
    engine = world.database._write
    event.listen(engine, "after_cursor_execute", meet)
    try:
        failures = at_once(works[one], works[other])
    finally:
        event.remove(engine, "after_cursor_execute", meet)
    assert failures == []
