"""What a recorded step does beside its row: allocations, leases, the end of a job."""

from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import select

from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.record import record
from tests.activities.leases.rows import OFFER, Books
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.lifecycles import JobChanges, LeaseChanges, Record, Recorded
from workflows.contracts.statuses import AllocationState, LeaseStatus


class Placed:
    """A job with an allocation on a node."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            account = add_payer(session)
            self.node = add_node(session, add_region(session, account))
            self.job = add_job(session, account)
            self.held = allocate(session, self.job, self.node, 0)

    def step(self, sequence: int = 1, status: str = "running", **changes: Any) -> Recorded:
        return record(
            Record(
                resource_id=self.job.id,
                account_id=self.job.account_id,
                sequence=sequence,
                at=NOW + timedelta(seconds=sequence),
                status=status,
                changes=JobChanges(**changes),
            )
        )

    def row(self) -> tables.Job:
        with self.database.read() as session:
            return session.get_one(tables.Job, self.job.id)

    def allocation(self) -> tables.Allocation:
        with self.database.read() as session:
            return session.exec(select(tables.Allocation)).one()


@pytest.fixture
def placed(migrated: Database) -> Placed:
    return Placed(migrated)


def test_a_step_that_confirms_takes_live_allocations_over(placed: Placed) -> None:
    assert placed.step(confirms=(placed.held.id,)) == Recorded(applied=True, sequence=1)
    found = placed.allocation()
    assert found.state == AllocationState.RUNNING
    assert found.notified_at == NOW + timedelta(seconds=1)


def test_a_step_that_confirms_what_is_gone_is_not_written(placed: Placed) -> None:
    placed.step(release=True)
    told = placed.step(2, "provisioning", confirms=(placed.held.id,))
    assert (told.applied, told.confirmed) == (False, False)
    assert (placed.row().sequence, placed.row().status) == (1, "running")


def test_a_release_leaves_to_its_node_what_nobody_has_seen_end(placed: Placed) -> None:
    placed.step(release=True, leaving=(placed.held.id,))
    found = placed.allocation()
    assert (found.state, found.released_at) == (AllocationState.LEAVING, None)


def test_the_end_of_a_job_and_its_unsettled_usage_stay_until_a_step_has_none(
    placed: Placed,
) -> None:
    used = WorkerUsage(job_id=placed.job.id, worker=0, attempt=1, started_at=NOW, through_s=9)
    placed.step(unsettled=(used,))
    unsettled = placed.row().unsettled
    assert unsettled is not None
    assert [WorkerUsage.model_validate(each) for each in unsettled] == [used]
    placed.step(2, unsettled=())
    assert (placed.row().unsettled, placed.row().ending) == (None, None)


def lease_step(books: Books, lease_id: str, sequence: int, **changes: Any) -> tables.Lease:
    record(
        Record(
            resource_id=lease_id,
            account_id=books.account_id,
            sequence=sequence,
            at=NOW,
            status=LeaseStatus.CREATING,
            changes=LeaseChanges(**changes),
        )
    )
    with books.database.read() as session:
        return session.get_one(tables.Lease, lease_id)


def test_a_step_of_a_lease_keeps_what_it_does_not_name(migrated: Database) -> None:
    books = Books(migrated)
    made = books.lease(LeaseStatus.CREATING)
    row = lease_step(books, made.id, 5, user="ada", port=2222, ended_at=NOW + timedelta(1))
    assert (row.host, row.minion_id, row.began_at) == ("10.0.0.9", "SHA256:k", NOW)
    assert (row.user, row.port, row.ended_at) == ("ada", 2222, NOW + timedelta(1))


def test_another_machine_of_a_lease_inherits_nothing(migrated: Database) -> None:
    books = Books(migrated)
    made = books.lease(LeaseStatus.CREATING)
    lease_step(books, made.id, 5, user="ada", port=2222, microcredits_per_hour=7)
    zone = OFFER.model_copy(update={"zone": "zone-b"})
    row = lease_step(books, made.id, 6, offer=zone, is_another=True, provider_machine_id="m2")
    assert (row.host, row.minion_id, row.began_at, row.ended_at) == (None, None, None, None)
    assert (row.user, row.port, row.microcredits_per_hour) == ("root", 22, None)
    assert row.provider_machine_id == "m2"
    assert row.offer is not None
    assert row.offer["zone"] == "zone-b"
