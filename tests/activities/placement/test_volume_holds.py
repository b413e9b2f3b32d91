"""Volumes in placement, over real databases: one writer or many readers; what others are told."""

from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from activities.db import tables
from activities.db.session import Database
from activities.placement.allocations import (
    ContendedError,
    lock_allocations,
    release_allocations,
    write_allocations,
)
from activities.placement.volume_holds import volume_holders
from activities.placement.withdrawals import withdraw_allocations
from tests.activities.artifacts.artifact_rows import add_artifact
from tests.activities.placement.rows import (
    add_gpu_node,
    add_waiting_job,
    assert_books_agree,
    live,
    refusals,
    round_of,
)
from tests.activities.rows import NOW
from workflows.contracts.artifacts import VolumeAccess
from workflows.contracts.job_submission import SubmittedData, VolumeReference
from workflows.contracts.placement import Demand, PendingJob
from workflows.effects.placement import WithdrawAllocations

Place = tuple[tables.Account, tables.Region]


class Volumes:
    """Jobs that share a volume, and a node with room for all of them."""

    def __init__(self, database: Database, place: Place) -> None:
        self.database = database
        self.account, region = place
        self.volume_id = add_artifact(database, self.account, "vol", status="ready")
        with database.write() as session:
            self.node = add_gpu_node(session, region, gpus=0)

    def job(self, access: str, name: str = "digits") -> tables.Job:
        asked = VolumeReference(id=self.volume_id, access=VolumeAccess(access))
        with self.database.write() as session:
            job = add_waiting_job(
                session, self.account, gpus=0, data=SubmittedData(volumes=(asked,))
            )
            job.name, job.type = name, "notebook"
            return job

    def ends(self, job: tables.Job, *, leaving: bool = False) -> None:
        """Release a job's allocations, or hand them to its node, as nobody has seen its run end."""
        with self.database.write() as session:
            row = session.get_one(tables.Job, job.id)
            row.status = "canceled"
            held = lock_allocations(session, tables.Allocation.job_id == job.id)  # type: ignore[arg-type]
            left = [each.id for each in held] if leaving else []
            release_allocations(session, job.id, NOW, leaving=left)

    def holders(self) -> list[str]:
        with self.database.read() as session:
            found = volume_holders(session, [self.volume_id])
        return [each.job_id for each in found.get(self.volume_id, ())]


@pytest.fixture
def volumes(migrated: Database, place: Place) -> Volumes:
    return Volumes(migrated, place)


@pytest.mark.parametrize(
    ("first", "second", "does"),
    [
        ("write", "write", "writes to it"),
        ("write", "read", "writes to it"),
        ("read", "write", "reads it"),
    ],
)
def test_a_job_waits_for_the_one_that_has_its_volume_and_is_told_its_name(
    volumes: Volumes, migrated: Database, first: str, second: str, does: str
) -> None:
    one = volumes.job(first, "first")
    assert round_of().placed == 1
    two = volumes.job(second, "second")
    assert round_of().placed == 0
    detail = f"volume {volumes.volume_id}: asked to {second}; job first ({one.id}) {does}"
    assert refusals(migrated, two) == [("volume", detail)]
    volumes.ends(one)
    assert round_of().placed == 1
    assert volumes.holders() == [two.id]
    with migrated.read() as session:
        assert_books_agree(session)


def test_jobs_of_one_round_share_a_volume_as_far_as_they_may(
    volumes: Volumes, migrated: Database
) -> None:
    readers = [volumes.job("read", f"reader{number}") for number in range(3)]
    writer = volumes.job("write", "writer")
    assert round_of().placed == 3
    assert volumes.holders() == [job.id for job in readers]
    ((code, detail),) = refusals(migrated, writer)
    assert code == "volume"
    assert all(job.id in detail for job in readers)


def test_of_several_writers_of_one_round_one_is_placed(volumes: Volumes) -> None:
    jobs = [volumes.job("write", f"writer{number}") for number in range(3)]
    assert round_of().placed == 1
    assert volumes.holders() == [jobs[0].id]
    assert round_of().placed == 0


def test_a_volume_is_held_until_the_end_of_its_run_is_proved(
    volumes: Volumes, migrated: Database
) -> None:
    one = volumes.job("write")
    assert round_of().placed == 1
    volumes.ends(one, leaving=True)
    two = volumes.job("write")
    assert round_of().placed == 0
    assert volumes.holders() == [one.id]
    with migrated.write() as session:
        (held,) = live(session)
        held.state = "running"  # As the node has it confirmed that the run has ended.
        session.add(held)
        session.flush()
        release_allocations(session, one.id, NOW)
    assert round_of().placed == 1
    assert volumes.holders() == [two.id]


def test_what_a_worker_of_an_earlier_release_has_released_holds_no_volume(
    volumes: Volumes, migrated: Database
) -> None:
    """It frees an allocation, and knows nothing of volumes."""
    one = volumes.job("write")
    assert round_of().placed == 1
    with migrated.write() as session:
        (held,) = live(session)
        held.state, held.released_at = "gone", NOW
        session.add(held)
        session.get_one(tables.Job, one.id).status = "canceled"
    assert volumes.holders() == []
    two = volumes.job("write")
    assert round_of().placed == 1
    assert volumes.holders() == [two.id]


def test_what_is_withdrawn_holds_no_volume(volumes: Volumes) -> None:
    job = volumes.job("write")
    assert round_of().placed == 1
    withdraw_allocations(WithdrawAllocations(node_id=volumes.node.id, reason="lost", at=NOW))
    assert volumes.holders() == []
    assert round_of().placed == 1
    assert volumes.holders() == [job.id]


def test_the_database_itself_lets_no_second_job_write(volumes: Volumes, migrated: Database) -> None:
    volumes.job("write")
    assert round_of().placed == 1
    two = volumes.job("write")
    with migrated.write() as session:
        _, second = _allocation(session, volumes, two)
    with pytest.raises(IntegrityError), migrated.write() as session:
        session.add(
            tables.VolumeHold(
                allocation_id=second["id"], volume_id=volumes.volume_id, job_id=two.id,
                attempt=1, access="write",
            )
        )  # fmt: skip


def test_a_plan_that_is_late_for_a_volume_is_made_anew(
    volumes: Volumes, migrated: Database
) -> None:
    one = volumes.job("write", "first")
    assert round_of().placed == 1
    two = volumes.job("read")
    demand = Demand(account_id="acc", volumes=((volumes.volume_id, VolumeAccess.READ),))
    job = PendingJob(
        job_id=two.id, project_id=two.project_id, waiting_since=NOW, attempt=1, demand=demand
    )
    with migrated.write() as session:
        values, row = _allocation(session, volumes, two, written=False)
        with pytest.raises(ContendedError, match=f"job first \\({one.id}\\) writes"):
            write_allocations(session, [row], [values], [job])
        session.rollback()


def _allocation(
    session: Session, volumes: Volumes, job: tables.Job, *, written: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a job and the row of an allocation for it."""
    row: dict[str, Any] = {
        "id": "alc-second", "job_id": job.id, "worker": 0, "attempt": 1,
        "node_id": volumes.node.id, "cpu_count": 1, "memory_bytes": 1, "gpu_indices": [],
        "port": None, "rates": None, "created_at": NOW,
    }  # fmt: skip
    if written:
        session.add(tables.Allocation(**row))
    return {"id": job.id, "rates": None, "placement_refusals": []}, row
