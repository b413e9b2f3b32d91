"""Jobs whose workflow is not the first: it was lost, is ended, or has become too long."""

from datetime import timedelta

from tests.simulation.engine.engine import Limits
from tests.transcripts.jobs.answers import in_turn
from tests.transcripts.jobs.given import (
    AGAIN,
    ASKED,
    ENDED,
    GONE,
    NIGHT,
    NOTEBOOK,
    ON_ONE,
    exited,
    placed,
    running,
)
from tests.transcripts.jobs.whole_job import WholeJob
from tests.transcripts.whole import always
from workflows.contracts.jobs import MACHINE_LOST, EndRequest, JobEnding
from workflows.contracts.lifecycles import Recorded
from workflows.contracts.statuses import JobStatus, WorkerStatus
from workflows.effects.jobs import PlacementFound


def is_adopted_from_an_outage_that_is_over() -> list[str]:
    job = WholeJob(**NOTEBOOK)
    job.adopted(JobStatus.UNREACHABLE, running(0, "nod-1"))
    return job.play(
        (100, "stop", NIGHT), (200, "start_again", None), (1000, "placed", AGAIN), most_s=2000
    )


def is_adopted_while_it_waits() -> list[str]:
    found = PlacementFound(placement=placed("nod-1"), sequence=8)
    job = WholeJob(always("find_placement", found))
    job.adopted(JobStatus.WAITING_FOR_RESOURCES)
    return job.play((60, "worker_exited", exited(0, "nod-1")))


def is_adopted_with_all_commands_ended() -> list[str]:
    job = WholeJob()
    worker = running(0, "nod-1").model_copy(update={"status": WorkerStatus.EXITED, "exit": ENDED})
    job.adopted(JobStatus.RUNNING, worker, ran_s=70, log_bytes=11, output_bytes=22)
    return job.play()


def is_adopted_to_be_canceled_and_removed() -> list[str]:
    job = WholeJob()
    ending = JobEnding(request=ASKED, removes=True)
    job.adopted(JobStatus.RUNNING, running(0, "nod-1"), ending=ending)
    return job.play()


def stops_where_its_row_is_ahead() -> list[str]:
    found = PlacementFound(placement=placed("nod-1"), sequence=99)
    job = WholeJob(always("find_placement", found))
    return job.play(most_s=3000)


def is_placed_again_where_the_first_was_withdrawn() -> list[str]:
    withdrawn = Recorded(applied=False, confirmed=False)
    job = WholeJob(in_turn("record", None, lambda _: withdrawn))
    return job.play(
        ON_ONE, (700, "placed", placed("nod-2")), (800, "worker_exited", exited(0, "nod-2"))
    )


def is_adopted_while_it_runs() -> list[str]:
    job = WholeJob(state_interval_s=600, auto_terminate=False, max_duration_s=1000)
    job.adopted(
        JobStatus.RUNNING, running(0, "nod-1", ephemeral=True), ran_s=70, restarts=2, retries=1,
        reschedules=3, has_copies=True, log_bytes=11, output_bytes=22, snapshot_bytes={0: 33},
    )  # fmt: skip
    return job.play()


def is_adopted_after_the_loss_of_its_machine() -> list[str]:
    job = WholeJob()
    ending = JobEnding(request=EndRequest(reason="nod-1 is lost", code=MACHINE_LOST))
    job.adopted(JobStatus.RUNNING, running(0, "nod-1"), gone=(GONE,), ending=ending)
    return job.play(most_s=900)


def is_adopted_and_learns_of_the_loss_of_its_machine() -> list[str]:
    job = WholeJob()
    job.adopted(JobStatus.RUNNING, running(0, "nod-1"), gone=(GONE,))
    return job.play(most_s=900)


def is_adopted_after_its_failure() -> list[str]:
    job = WholeJob(max_retries=2)
    ending = JobEnding(request=EndRequest(reason="no disk", code="failed"))
    job.adopted(JobStatus.RUNNING, running(0, "nod-1"), running(1, "nod-2"), ending=ending)
    return job.play()


def is_ended_in_temporal_while_it_runs() -> list[str]:
    job = WholeJob(ending=EndRequest(reason="ended by a person", code="terminated"))
    job.adopted(JobStatus.RUNNING, running(0, "nod-1"))
    return job.play()


def is_ended_in_temporal_too_late() -> list[str]:
    job = WholeJob(ending=EndRequest(reason="ended by a person", code="terminated"))
    worker = running(0, "nod-1").model_copy(update={"status": WorkerStatus.EXITED, "exit": ENDED})
    job.adopted(JobStatus.UPLOADING, worker)
    return job.play()


def is_adopted_in_its_pause() -> list[str]:
    job = WholeJob(max_retries=3)
    retry_at = job.engine.now() + timedelta(seconds=40)
    job.adopted(
        JobStatus.WAITING_FOR_RESOURCES, running(0, "nod-1"), number=2, retry_at=retry_at,
        retries=2, reason="no memory; waits 20 s before retry 2 of 3",
    )  # fmt: skip
    return job.play(most_s=900)


def is_adopted_while_it_is_staged() -> list[str]:
    job = WholeJob()
    job.adopted(JobStatus.WAITING_FOR_DATA, running(0, "nod-1"))
    return job.play((300, "cancel", ASKED))


def is_adopted_while_it_is_stopped() -> list[str]:
    job = WholeJob(**NOTEBOOK)
    job.adopted(JobStatus.STOPPED, running(0, "nod-1"), has_copies=True)
    return job.play((100, "start_again", None), (200, "cancel", ASKED))


def goes_on_in_next_runs() -> list[str]:
    job = WholeJob(limits=Limits(suggested_events=60), **NOTEBOOK)
    return job.play(ON_ONE, (40_000, "stop", NIGHT), most_s=50_000)


def waits_in_next_runs() -> list[str]:
    return WholeJob(limits=Limits(suggested_events=40)).play((9000, "placed", AGAIN), most_s=9999)
