"""`record`: a step is written once and whole, and never after a later one."""

import threading
from datetime import datetime, timedelta

import pytest
from sqlmodel import col, select
from temporalio.exceptions import ApplicationError

from activities.db import tables
from activities.db.session import Database
from activities.lifecycles import record as module
from activities.lifecycles.record import record
from tests.activities.rows import GIB, NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.events import Event
from workflows.contracts.jobs import WorkerProgress
from workflows.contracts.lifecycles import JobChanges, NodeChanges, Record, Recorded, RegionChanges
from workflows.contracts.nodes import Gpu, Hardware
from workflows.contracts.statuses import AllocationState, WorkerStatus


@pytest.fixture
def job(migrated: Database) -> tables.Job:
    with migrated.write() as session:
        return add_job(session, add_payer(session))


def step_of(row: tables.Job, sequence: int, status: str, **changes: object) -> Record:
    return Record(
        resource_id=row.id,
        account_id=row.account_id,
        sequence=sequence,
        at=NOW + timedelta(seconds=sequence),
        status=status,
        events=(Event(type=f"job.{status}", message=f"step {sequence}"),),
        changes=JobChanges.model_validate(changes),
    )


def read_job(database: Database, job_id: str) -> tables.Job:
    with database.read() as session:
        return session.get_one(tables.Job, job_id)


def events_of(database: Database, resource_id: str) -> list[tables.EventRow]:
    with database.read() as session:
        query = select(tables.EventRow).where(col(tables.EventRow.resource_id) == resource_id)
        return list(session.exec(query.order_by(col(tables.EventRow.position))).all())


def test_a_step_writes_status_changes_and_events_together(
    migrated: Database, job: tables.Job
) -> None:
    worker = WorkerProgress(index=0, status=WorkerStatus.RUNNING)
    assert record(step_of(job, 1, "running", workers=[worker], attempt=2)).applied
    row = read_job(migrated, job.id)
    assert (row.status, row.sequence, row.attempt) == ("running", 1, 2)
    assert row.workers[0]["status"] == "running"
    assert row.updated_at == NOW + timedelta(seconds=1)
    assert [event.type for event in events_of(migrated, job.id)] == ["job.running"]


def test_a_repeated_step_changes_nothing(migrated: Database, job: tables.Job) -> None:
    record(step_of(job, 1, "running"))
    assert not record(step_of(job, 1, "running")).applied
    assert len(events_of(migrated, job.id)) == 1


def test_a_stale_writer_changes_nothing(migrated: Database, job: tables.Job) -> None:
    record(step_of(job, 3, "finished"))
    assert not record(step_of(job, 2, "uploading", output_bytes=7)).applied
    row = read_job(migrated, job.id)
    assert (row.status, row.output_bytes) == ("finished", None)
    assert [event.sequence for event in events_of(migrated, job.id)] == [3]


@pytest.mark.parametrize(
    ("run_id", "history_length", "is_stale"),
    [("run-1", 20, False), ("run-1", 23, False), ("run-1", 14, True), ("run-2", 20, True)],
)
def test_a_run_is_stale_unless_it_has_written_the_later_step_itself(
    migrated: Database, job: tables.Job, run_id: str, history_length: int, is_stale: bool
) -> None:
    """A killed worker's workflow task is begun anew; a restored history is shorter."""
    for sequence in (1, 2):
        step = step_of(job, sequence, "running")
        record(step.model_copy(update={"run_id": "run-1", "history_length": 20}))
    again = {"run_id": run_id, "history_length": history_length}
    told = record(step_of(job, 1, "running").model_copy(update=again))
    assert (told.applied, told.sequence, told.is_stale) == (False, 2, is_stale)


@pytest.mark.parametrize(
    ("run_id", "history_length", "is_stale"),
    [("run-1", 20, False), ("run-1", 23, False), ("run-1", 14, True), ("run-2", 20, True)],
)
def test_a_run_that_is_one_step_behind_is_stale_unless_it_repeats_its_own_step(
    migrated: Database, job: tables.Job, run_id: str, history_length: int, is_stale: bool
) -> None:
    """Otherwise the step after would be written on top of what the run does not know."""
    step = step_of(job, 1, "running")
    record(step.model_copy(update={"run_id": "run-1", "history_length": 20}))
    other = {"run_id": run_id, "history_length": history_length}
    told = record(step_of(job, 1, "unreachable").model_copy(update=other))
    assert (told.applied, told.sequence, told.is_stale) == (False, 1, is_stale)


def test_changes_left_out_leave_what_is_there(migrated: Database, job: tables.Job) -> None:
    record(step_of(job, 1, "uploading", output_bytes=7))
    record(step_of(job, 2, "finished"))
    assert read_job(migrated, job.id).output_bytes == 7


def test_usage_that_is_still_to_be_posted_stays_until_a_step_says_that_all_is_posted(
    migrated: Database, job: tables.Job
) -> None:
    used = WorkerUsage(job_id=job.id, worker=0, attempt=1, started_at=NOW, through_s=60)
    record(step_of(job, 1, "finished", attempt=2, restarts=1, unsettled=(used,)))
    record(step_of(job, 2, "removing"))
    row = read_job(migrated, job.id)
    assert (row.attempt, row.restarts) == (2, 1)
    assert [WorkerUsage.model_validate(one) for one in row.unsettled or ()] == [used]
    record(step_of(job, 3, "running", unsettled=()))
    assert read_job(migrated, job.id).unsettled is None


def test_what_jobs_have_stored_is_added_to_their_account_until_they_are_archived(
    migrated: Database, job: tables.Job
) -> None:
    def counted() -> int:
        with migrated.read() as session:
            return session.get_one(tables.Account, job.account_id).job_bytes

    record(step_of(job, 1, "running", state_bytes=30))
    assert counted() == 30
    for _ in range(2):
        record(step_of(job, 2, "uploading", log_bytes=7, state_bytes=40))
        assert counted() == 47
    record(step_of(job, 3, "finished", log_bytes=7, state_bytes=0))
    assert counted() == 7
    for sequence, status in enumerate(("removing", "archived", "archived"), 4):
        record(step_of(job, sequence, status))
    assert counted() == 0


def test_a_step_of_nothing_is_refused_for_good(migrated: Database, job: tables.Job) -> None:
    stray = step_of(job, 1, "running").model_copy(update={"resource_id": "job-none"})
    with pytest.raises(ApplicationError) as refused:
        record(stray)
    assert (refused.value.type, refused.value.non_retryable) == (NOT_FOUND, True)


def test_a_release_frees_gpus_and_capacity_once(migrated: Database, job: tables.Job) -> None:
    with migrated.write() as session:
        region = add_region(session, session.get_one(tables.Account, job.account_id))
        node = add_node(session, region)
        allocate(session, job, node, gpu=2)
        other = add_job(session, session.get_one(tables.Account, job.account_id))
        allocate(session, other, node, gpu=3)
    record(step_of(job, 1, "finished", release=True))
    record(step_of(job, 1, "finished", release=True))
    with migrated.read() as session:
        row = session.get_one(tables.Node, node.id)
        held = session.exec(
            select(tables.GpuAllocation.gpu_index).where(
                col(tables.GpuAllocation.released_at).is_(None)
            )
        ).all()
    assert (row.reserved_cpu_count, row.reserved_memory_bytes) == (2, 4 * GIB)
    assert held == [3]


def test_inspection_gives_the_node_its_capacity(migrated: Database, job: tables.Job) -> None:
    with migrated.write() as session:
        region = add_region(session, session.get_one(tables.Account, job.account_id))
        node = add_node(session, region)
    gpu = Gpu(index=0, name="NVIDIA A100-SXM4-80GB", uuid="GPU-1")
    hardware = Hardware(cpu_count=8, memory_bytes=32 * GIB, gpus=(gpu,))
    record(
        Record(
            resource_id=node.id,
            account_id=node.account_id,
            sequence=1,
            at=NOW,
            status="inspecting",
            changes=NodeChanges(hardware=hardware),
        )
    )
    with migrated.read() as session:
        row = session.get_one(tables.Node, node.id)
    assert (row.gpu_type, row.gpu_count, row.cpu_count) == ("A100-80GB", 1, 8)
    assert row.hardware is not None
    assert row.hardware["gpus"][0]["uuid"] == "GPU-1"


def test_a_step_writes_whose_it_is_and_all_its_events_in_their_order(
    migrated: Database, job: tables.Job
) -> None:
    events = tuple(Event(type=f"job.{each}", message=each, details={"n": each}) for each in "abc")
    step = step_of(job, 1, "running").model_copy(
        update={
            "events": events, "run_id": "run-1", "history_length": 20, "status_reason": "why",
        }
    )  # fmt: skip
    assert record(step) == Recorded(applied=True, sequence=1)
    row = read_job(migrated, job.id)
    assert (row.recorded_run_id, row.recorded_history_length) == ("run-1", 20)
    assert row.status_reason == "why"
    found = events_of(migrated, job.id)
    assert [(each.index, each.message, each.details, each.type) for each in found] == [
        (index, text, {"n": text}, f"job.{text}") for index, text in enumerate("abc")
    ]
    assert {(each.account_id, each.sequence, each.at) for each in found} == {
        (job.account_id, 1, step.at)
    }


def test_a_step_of_a_row_that_an_earlier_release_wrote_is_stale_only_when_it_is_older(
    migrated: Database, job: tables.Job
) -> None:
    record(step_of(job, 2, "running").model_copy(update={"run_id": ""}))
    for sequence, is_stale in ((2, False), (1, True)):
        told = record(step_of(job, sequence, "running"))
        assert (told.applied, told.sequence, told.is_stale) == (False, 2, is_stale)


@pytest.mark.parametrize(
    ("status", "attempt", "waits"),
    [
        ("waiting_for_resources", 2, True),
        ("waiting_for_resources", 1, False),
        ("waiting_for_resources", None, False),
        ("running", 2, False),
    ],
)
def test_only_a_later_attempt_loses_its_place_in_the_queue(
    migrated: Database, job: tables.Job, status: str, attempt: int | None, waits: bool
) -> None:
    record(step_of(job, 1, status, attempt=attempt))
    expected = NOW + timedelta(seconds=1) if waits else None
    assert read_job(migrated, job.id).waiting_since == expected


@pytest.mark.parametrize(
    ("changes", "wakes"),
    [
        (("running", {}), False),
        (("finished", {"release": True}), True),
        (("waiting_for_resources", {}), True),
    ],
)
def test_placement_is_woken_by_what_frees_a_place_or_waits_for_one(
    migrated: Database,
    job: tables.Job,
    monkeypatch: pytest.MonkeyPatch,
    changes: tuple[str, dict[str, object]],
    wakes: bool,
) -> None:
    woken: list[bool] = []
    monkeypatch.setattr(module, "wake_placement", lambda: woken.append(True))
    status, more = changes
    record(step_of(job, 1, status, **more))
    assert woken == [True] * wakes


@pytest.mark.parametrize(("status", "wakes"), [("active", True), ("draining", False)])
def test_placement_is_woken_by_a_node_that_becomes_active(
    migrated: Database, job: tables.Job, monkeypatch: pytest.MonkeyPatch, status: str, wakes: bool
) -> None:
    woken: list[bool] = []
    monkeypatch.setattr(module, "wake_placement", lambda: woken.append(True))
    with migrated.write() as session:
        node = add_node(
            session, add_region(session, session.get_one(tables.Account, job.account_id))
        )
    record(node_step(node, status))
    assert woken == [True] * wakes


def node_beside(database: Database, job: tables.Job) -> tables.Node:
    """A node of the job's account."""
    with database.write() as session:
        account = session.get_one(tables.Account, job.account_id)
        return add_node(session, add_region(session, account))


def node_step(node: tables.Node, status: str, **changes: object) -> Record:
    return Record(
        resource_id=node.id,
        account_id=node.account_id,
        sequence=1,
        at=NOW,
        status=status,
        changes=NodeChanges.model_validate(changes),
    )


def test_a_removal_is_kept_with_who_asked_for_it(migrated: Database, job: tables.Job) -> None:
    with migrated.write() as session:
        node = add_node(
            session, add_region(session, session.get_one(tables.Account, job.account_id))
        )
    removal = {"force": True, "requested_by": "usr-1", "reschedules": True}
    record(node_step(node, "removing", removal=removal))
    with migrated.read() as session:
        row = session.get_one(tables.Node, node.id)
    assert (row.removal_force, row.removal_requested_by, row.removal_reschedules) == (
        True, "usr-1", True,
    )  # fmt: skip
    assert row.removal_requested_at == NOW


def test_a_node_without_gpus_has_none(migrated: Database, job: tables.Job) -> None:
    with migrated.write() as session:
        node = add_node(
            session, add_region(session, session.get_one(tables.Account, job.account_id))
        )
    record(node_step(node, "inspecting", hardware=Hardware(cpu_count=8, memory_bytes=GIB)))
    with migrated.read() as session:
        row = session.get_one(tables.Node, node.id)
    assert (row.gpu_count, row.memory_bytes) == (0, GIB)


@pytest.mark.parametrize(("status", "freed"), [("archived", True), ("draining", False)])
def test_a_node_that_is_archived_frees_what_jobs_were_leaving_there_and_nothing_else(
    migrated: Database, job: tables.Job, status: str, freed: bool
) -> None:
    with migrated.write() as session:
        account = session.get_one(tables.Account, job.account_id)
        region = add_region(session, account)
        node, elsewhere = add_node(session, region), add_node(session, region, "n2")
        others = [add_job(session, account) for _ in range(2)]
        leaving = allocate(session, job, node, 0)
        held = allocate(session, others[0], node, 1)
        away = allocate(session, others[1], elsewhere, 0)
        leaving.state = away.state = AllocationState.LEAVING
    record(node_step(node, status))
    with migrated.read() as session:
        released = {each.id for each in session.exec(select(tables.Allocation)) if each.released_at}
    assert released == ({leaving.id} if freed else set())
    assert held.id not in released


def test_a_retry_is_kept_until_a_step_has_none(migrated: Database, job: tables.Job) -> None:
    at = NOW + timedelta(minutes=5)
    record(step_of(job, 1, "waiting_for_resources", retry_at=at))
    assert read_job(migrated, job.id).retry_at == at
    record(step_of(job, 2, "provisioning"))
    assert read_job(migrated, job.id).retry_at is None


def test_concurrent_writers_of_one_job_leave_the_last_step_and_no_gap_in_it(
    migrated: Database, job: tables.Job
) -> None:
    steps = [step_of(job, number, "running") for number in range(1, 41)]
    applied: list[int] = []

    def write(mine: list[Record]) -> None:
        applied.extend(step.sequence for step in mine if record(step).applied)

    threads = [threading.Thread(target=write, args=(steps[first::4],)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_job(migrated, job.id).sequence == 40
    assert sorted(applied) == sorted(event.sequence for event in events_of(migrated, job.id))


def test_events_are_seen_in_the_order_of_their_positions(
    migrated: Database, job: tables.Job
) -> None:
    """A reader that remembers the last position it saw misses nothing that comes later."""
    with migrated.write() as session:
        account = session.get_one(tables.Account, job.account_id)
        jobs = [add_job(session, account) for _ in range(4)]

    def write(row: tables.Job) -> None:
        for number in range(1, 21):
            record(step_of(row, number, "running"))

    threads = [threading.Thread(target=write, args=(row,)) for row in jobs]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    while any(thread.is_alive() for thread in threads) or len(seen) < 80:
        with migrated.read() as session:
            query = select(tables.EventRow.position).where(
                col(tables.EventRow.position) > (seen[-1] if seen else 0)
            )
            found = session.exec(query.order_by(col(tables.EventRow.position))).all()
        seen.extend(position for position in found if position is not None)
    assert len(seen) == 80


def test_the_reservations_of_a_region_stay_until_it_is_gone(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        region = add_region(session, account)
        session.add(
            tables.Reservation(
                id="rsv-1", account_id=account.id, region_id=region.id, name="front", type="port",
                hostname="web", port=8888, created_at=NOW,
            )
        )  # fmt: skip

    def removed_at(sequence: int, status: str) -> datetime | None:
        step = Record(
            resource_id=region.id, account_id=account.id, sequence=sequence, at=NOW, status=status,
            changes=RegionChanges(),
        )  # fmt: skip
        assert record(step).applied
        with migrated.read() as session:
            return session.get_one(tables.Reservation, "rsv-1").removed_at

    assert [removed_at(*step) for step in enumerate(("removing", "healthy", "removing"), 1)] == [
        None
    ] * 3
    assert removed_at(4, "archived") == NOW
