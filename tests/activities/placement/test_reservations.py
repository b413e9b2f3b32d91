"""Reservations in planning rounds: one job holds each, and the database lets no second one."""

import pytest
from sqlalchemy.exc import IntegrityError

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.placement.allocations import free_allocations, lock_jobs, release_allocations
from activities.placement.refusals import refusals_of_jobs
from tests.activities.placement.rows import add_gpu_node, add_waiting_job, live, round_of
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.job_submission import SubmittedPlacement
from workflows.contracts.statuses import AllocationState, JobStatus


class World:
    """Two jobs that wait with one reservation, and two nodes of its region."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            account = add_payer(session)
            add_credits(session, account, 1, "first", NOW)
            region = add_region(session, account)
            self.nodes = [add_gpu_node(session, region, name).id for name in ("one", "two")]
            row = tables.Reservation(
                id=new_id("rsv"), account_id=account.id, region_id=region.id, name="front",
                type="port", hostname="web", port=8888, created_at=NOW,
            )  # fmt: skip
            session.add(row)
            session.flush()
            self.reservation_id = row.id
            placement = SubmittedPlacement(region_id=region.id)
            self.jobs = [
                add_waiting_job(
                    session, account, port=8888, reservation_id=row.id, placement=placement
                ).id
                for _ in range(2)
            ]

    def held(self) -> list[tuple[str, str | None]]:
        """The live allocations: job, and the reservation that it names."""
        with self.database.read() as session:
            return [(row.job_id, row.reservation_id) for row in live(session)]

    def refusal(self, job_id: str) -> dict[str, object]:
        """The only refusal of a job that waits."""
        with self.database.read() as session:
            job = session.get_one(tables.Job, job_id)
            (found,) = refusals_of_jobs(session, [job])[job_id]
        return found


@pytest.fixture
def world(migrated: Database) -> World:
    return World(migrated)


def test_one_job_holds_a_reservation_and_the_other_is_told_its_name(world: World) -> None:
    first, second = world.jobs
    assert round_of().placed == 1
    assert world.held() == [(first, world.reservation_id)]
    assert round_of().placed == 0
    refused = world.refusal(second)
    assert refused["code"] == "reservation"
    assert refused["detail"] == f"reservation front: job digits ({first}) holds it"


def test_the_other_gets_it_on_another_node_while_nobody_has_seen_the_first_run_end(
    world: World,
) -> None:
    first, second = world.jobs
    round_of()
    with world.database.write() as session:
        (allocation,) = live(session)
        node_id = allocation.node_id
        lock_jobs(session, [first])
        release_allocations(session, first, NOW, leaving=[allocation.id])
        session.get_one(tables.Job, first).status = JobStatus.FAILED
    assert round_of().placed == 1
    with world.database.read() as session:
        states = {row.job_id: (row.state, row.node_id) for row in live(session)}
    (other,) = set(world.nodes) - {node_id}  # The port of the first node is not free yet.
    assert states == {
        first: (AllocationState.LEAVING, node_id),
        second: (AllocationState.HELD, other),
    }


def test_it_is_free_again_when_its_job_has_ended(world: World) -> None:
    round_of()
    with world.database.write() as session:
        free_allocations(session, live(session), NOW)
        session.get_one(tables.Job, world.jobs[0]).status = JobStatus.FINISHED
    assert round_of().placed == 1
    assert world.held() == [(world.jobs[1], world.reservation_id)]


def test_the_database_lets_no_two_jobs_hold_it(world: World) -> None:
    round_of()
    row = tables.Allocation(
        id="alc-second", job_id=world.jobs[1], worker=0, attempt=1, node_id=world.nodes[1],
        cpu_count=1, memory_bytes=0, gpu_indices=[], reservation_id=world.reservation_id,
        created_at=NOW,
    )  # fmt: skip
    with pytest.raises(IntegrityError), world.database.write() as session:
        session.add(row)
    assert len(world.held()) == 1
