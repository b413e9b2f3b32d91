"""What a teardown leaves and tells: machines that stay, allocations, stored bytes, usage."""

from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt as Call
from tests.simulation.contracts import Handler
from tests.workflows.jobs.test_outage_hours import NOW, address
from tests.workflows.primitives.played import ID, played
from workflows.contracts.base import Contract, Done
from workflows.contracts.billing import BalanceForecast
from workflows.contracts.errors import REFUSED
from workflows.contracts.events import Event
from workflows.contracts.jobs import (
    EndRequest,
    Exit,
    JobProgress,
    JobRequest,
    MachineGone,
    WorkerAssignment,
    WorkerProgress,
)
from workflows.contracts.statuses import JobStatus, JobType, WorkerStatus
from workflows.effects.jobs import LogCollected, OutputStored, WorkerStaged
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.state_snapshots import StateSnapshots
from workflows.jobs.teardown import Teardown, leaving_of, retained_nodes, retention_events
from workflows.jobs.termination import Termination
from workflows.jobs.volumes import WrittenVolumes
from workflows.jobs.worker import Worker

CANCEL = EndRequest(reason="not wanted")
FORECAST = BalanceForecast(
    posted_microcredits=1, balance_microcredits=1, burn_microcredits_per_hour=0
)
DISCARD = EndRequest(reason="not wanted", discards=True)


def request(**changes: Any) -> JobRequest:
    return JobRequest(
        job_id="job-1", account_id="acc-1", project_id="prj-1", name="digits",
        type=JobType.TRAINING, **changes,
    )  # fmt: skip


def worker(
    index: int = 0, status: WorkerStatus = WorkerStatus.EXITED, *, ephemeral: bool = True
) -> Worker:
    return Worker(
        "job-1",
        1,
        WorkerProgress(
            index=index, status=status, run_id=f"job-1-{index}-1", elapsed_s=9.5, started_at=NOW,
            exit=Exit(exit_code=0, reason="exited") if status is WorkerStatus.EXITED else None,
            assignment=WorkerAssignment(
                worker=index, allocation_id=f"alo-{index}", node=address(f"nod-{index}"),
                ephemeral=ephemeral,
            ),
        ),
    )  # fmt: skip


class World:
    """The teardown of one job, and what it writes."""

    def __init__(self, **changes: Any) -> None:
        asked = request(**changes)
        self.written: list[tuple[str, str, JobStatus | None]] = []
        self.outages = NodeOutages(3600, {}, lambda _: None)
        self.termination = Termination(asked)
        self.teardown = Teardown(
            asked,
            self.termination,
            self.outages,
            (
                StateSnapshots(asked, self.outages, self._record),
                WrittenVolumes(asked, self.outages, self._record),
            ),
            self._write,
        )

    async def _write(
        self, event: Event, status: JobStatus | None = None, reason: str | None = None
    ) -> None:
        self.written.append((event.type, event.message, status))

    async def _record(self, *_: Event) -> None:
        raise AssertionError("no snapshot is taken here")

    def store(self, *outputs: OutputStored, log_bytes: int = 2000) -> list[Event]:
        """Have so many bytes stored of each worker, and say what is told of it."""
        for index, output in enumerate(outputs):
            self.teardown._stored_logs[index] = LogCollected(stored_bytes=log_bytes)
            self.teardown._stored_outputs[index] = output
        return list(self.teardown.stored_events())


@pytest.mark.parametrize(
    ("changes", "outcome", "workers", "asked", "kept"),
    [
        ({}, JobStatus.FINISHED, [worker()], None, ()),
        ({"auto_terminate": False}, JobStatus.FINISHED, [worker()], None, ("nod-0",)),
        ({"auto_terminate": False}, JobStatus.FAILED, [worker()], None, ("nod-0",)),
        ({"auto_terminate": False}, JobStatus.STOPPED, [worker()], None, ()),
        ({"auto_terminate": False}, JobStatus.FINISHED, [worker()], CANCEL, ()),
        ({"auto_terminate": False}, JobStatus.FINISHED, [worker(ephemeral=False)], None, ()),
        (
            {"auto_terminate": False},
            JobStatus.FAILED,
            [worker(), worker(1, WorkerStatus.LOST)],
            None,
            (),
        ),
    ],
)
def test_only_a_job_that_has_ended_by_itself_may_keep_its_machines(
    changes: dict[str, Any],
    outcome: JobStatus,
    workers: list[Worker],
    asked: EndRequest | None,
    kept: tuple[str, ...],
) -> None:
    termination = Termination(request(**changes))
    termination.outcome, termination.request = outcome, asked
    found = retained_nodes(request(**changes), termination, workers)
    assert found == kept
    told = retention_events(found)
    assert [(one.type, one.details) for one in told] == [
        ("job.machine-stays", {"nodes": [node]}) for node in kept
    ]
    assert all("the machine of nod-0 is retained and costs money" in one.message for one in told)


def test_what_was_not_seen_to_end_is_left_to_its_node_unless_that_is_gone() -> None:
    outages = NodeOutages(3600, {}, lambda _: None)
    workers = [
        worker(0),
        worker(1, WorkerStatus.LOST),
        worker(2, WorkerStatus.RUNNING),
        worker(3, WorkerStatus.PENDING),
        worker(4, WorkerStatus.RUNNING),
    ]
    outages.abandon("nod-4")
    assert leaving_of(workers, outages) == ("alo-1", "alo-2")


def test_what_is_stored_counts_once_and_is_told() -> None:
    world = World()
    stored = OutputStored(stored_bytes=3_000_000, file_count=1)
    (event,) = world.store(stored, stored)
    assert event.type == "job.stored"
    assert event.message == "stored: a log of 4.0 kB, and the output: 2 files, 6.0 MB packed"
    assert event.details == {"log_bytes": 4000, "output_bytes": 6_000_000, "output_files": 2}
    assert world.store() == []
    assert (world.teardown.log_bytes, world.teardown.output_bytes) == (4000, 6_000_000)
    (again,) = world.store(OutputStored(stored_bytes=2_000_000_000), log_bytes=999)
    assert again.message == "stored: a log of 999 B, and the output: 2.0 GB packed"
    assert again.details == {"log_bytes": 999, "output_bytes": 2_000_000_000}
    assert (world.teardown.log_bytes, world.teardown.output_bytes) == (4999, 2_006_000_000)


def test_an_output_that_is_discarded_does_not_count_unless_the_job_has_finished() -> None:
    progress = JobProgress(sequence=1, attempt=1, status=JobStatus.RUNNING)
    for outcome, is_counted in ((JobStatus.CANCELED, False), (JobStatus.FINISHED, True)):
        world = World(resumed_from=progress)
        world.termination.request, world.termination.outcome = DISCARD, outcome
        assert world.teardown.discards_outputs is not is_counted
        (event,) = world.store(OutputStored(stored_bytes=5, file_count=1))
        assert ("output_bytes" in event.details) is is_counted


@pytest.mark.parametrize(
    ("changes", "acts", "message"),
    [
        ({}, [], "log and output are being stored"),
        ({"keeps_output": False}, [], "the log is being stored"),
        ({}, [CANCEL], "log and output are being stored, for at most 10 min"),
        ({}, [DISCARD], "the log is being stored; the output is discarded, as asked"),
        (
            {"max_retries": 1},
            ["fails"],
            "the log is being stored; the output of an attempt that is tried again is not",
        ),
        ({}, ["leaves"], "log and output are being stored, for at most 2 min"),
    ],
)
def test_people_are_told_what_is_being_stored(
    changes: dict[str, Any], acts: list[Any], message: str
) -> None:
    world = World(**changes)
    for act in acts:
        if isinstance(act, EndRequest):
            world.termination.cancel(act)
        elif act == "leaves":
            world.termination.reschedule("its lease ends")
        else:
            world.termination.decide(ApplicationError("exit code 1", type="JobEnded"))
    assert world.teardown._uploading_message() == message


@pytest.mark.parametrize("broken", [(), ("post_usage",), ("end_billing",)])
def test_usage_that_cannot_be_posted_is_kept_and_told(broken: tuple[str, ...]) -> None:
    world, asked = World(), []

    def handler(name: str, answer: Contract) -> Handler:
        def handle(_: Call, command: Contract) -> Contract:
            asked.append(command)
            if name in broken:
                raise ApplicationError("no database", type=REFUSED, non_retryable=True)
            return answer

        return handle

    async def story() -> None:
        await world.teardown._settle(1, [worker(), worker(1)])

    effects = {
        "post_usage": handler("post_usage", FORECAST),
        "end_billing": handler("end_billing", Done()),
    }
    assert played(story, effects).describe(ID).status == "completed"
    told = {
        "post_usage": "its usage is posted later by the reconciliation: no database",
        "end_billing": "its job billing could not be ended: no database",
    }
    assert world.written == [("job.billing-failed", told[name], None) for name in broken]
    unsettled = [usage.worker for usage in world.teardown.unsettled]
    assert unsettled == ([0, 1] if "post_usage" in broken else [])


def test_a_run_on_a_machine_that_has_ended_is_billed_until_then() -> None:
    world = World()
    running = worker(0, WorkerStatus.RUNNING)
    posted: list[Any] = []

    def keep(_: Call, command: Any) -> Contract:
        posted.extend(command.usages)
        return FORECAST

    async def story() -> None:
        running.started_at = workflow.now()
        await workflow.sleep(60)
        ended_at = workflow.now()
        await workflow.sleep(60)
        world.outages.lose_machine(
            MachineGone(node_id="nod-0", reason="it was preempted", ended_at=ended_at)
        )
        await world.teardown._settle(1, [running])

    effects: dict[str, Handler] = {"post_usage": keep, "end_billing": lambda _, __: Done()}
    assert played(story, effects).describe(ID).status == "completed"
    assert [usage.through_s for usage in posted] == [60]


def snapshots(job_type: JobType = JobType.TRAINING, **progress: Any) -> StateSnapshots:
    async def record(_: Event) -> None:
        raise AssertionError("nothing is recorded here")

    before = JobProgress(sequence=1, attempt=2, status=JobStatus.RUNNING, **progress)
    asked = request(state_interval_s=60, resumed_from=before)
    asked = asked.model_copy(update={"type": job_type})
    return StateSnapshots(asked, NodeOutages(3600, {}, lambda _: None), record)


def test_a_next_attempt_says_of_each_worker_with_which_state_it_begins() -> None:
    workers = [worker(0), worker(1), worker(2)]
    workers[0].staged = WorkerStaged(state_saved_at=NOW)
    workers[1].staged = WorkerStaged(state_refused="it is cut off")
    told = snapshots(has_copies=True).restored_events(workers)
    assert [(one.type, one.message) for one in told] == [
        ("job.state-restored", f"worker {index}: {message}")
        for index, message in enumerate(
            (
                "its state of 2026-03-01 12:00:00 UTC is restored",
                "starts from the beginning: its state cannot be restored: it is cut off",
                "starts from the beginning: it has no saved state",
            )
        )
    ]
    assert snapshots().restored_events(workers) == []


@pytest.mark.parametrize("job_type", [JobType.TRAINING, JobType.NOTEBOOK])
@pytest.mark.parametrize("ephemeral", [True, False])
def test_state_is_saved_of_services_and_where_a_machine_can_be_lost(
    job_type: JobType, ephemeral: bool
) -> None:
    is_saved = job_type is JobType.NOTEBOOK or ephemeral
    assert snapshots(job_type).applies_to([worker(ephemeral=ephemeral)]) is is_saved
